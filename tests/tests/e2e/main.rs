//! Tests of the real agent against real servers: one bed for all of them, a file per subject.

#![allow(
    clippy::disallowed_methods,
    reason = "only API servers answer these tests, and no page of a proxy"
)]

mod accounts;
mod answers;
mod bad_input;
mod bed;
mod claims;
mod clock;
mod cluster_values;
mod conflicts;
mod cost;
mod deploy;
mod differences;
mod disaster;
mod drift;
mod filled_in_names;
mod force;
mod held_removals;
mod hooks;
mod hostile;
mod identity;
mod kills;
mod kustomize;
mod moves;
mod obstacles;
mod options;
mod own_chart;
mod process;
mod proxies;
mod published;
mod records;
mod recovery;
mod redaction;
mod registration;
mod release_ownership;
mod release_scene;
mod removal;
mod removal_order;
mod scene;
mod shared_copies;
mod shared_namespaces;
mod signatures;
mod sizes;
mod soak;
mod sources;
mod steadiness;
mod survival;
mod takeover;
mod two_owners;
