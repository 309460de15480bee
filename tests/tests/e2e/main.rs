//! Tests of the real agent against real servers: one bed for all of them, a file per subject.

mod accounts;
mod answers;
mod bad_input;
mod bed;
mod claims;
mod cluster_values;
mod conflicts;
mod cost;
mod deploy;
mod differences;
mod disaster;
mod drift;
mod hostile;
mod identity;
mod kills;
mod options;
mod own_chart;
mod process;
mod published;
mod records;
mod recovery;
mod registration;
mod removal;
mod scene;
mod secrecy;
mod survival;
