//! Tests of the real agent against real servers: one bed for all of them, a file per subject.

mod accounts;
mod bad_input;
mod bed;
mod cluster_values;
mod deploy;
mod drift;
mod kills;
mod options;
mod own_chart;
mod published;
mod registration;
mod survival;
