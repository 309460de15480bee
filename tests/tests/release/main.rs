//! The release crate against a real API server, without the agent: one cluster for all tests, a
//! file per subject.

#![allow(
    clippy::disallowed_methods,
    reason = "only API servers answer these tests, and no page of a proxy"
)]

mod actions;
mod conflicts;
mod cost;
mod crashes;
mod definitions;
mod deletions;
mod doomed;
mod doubts;
mod drift;
mod dry_run;
mod flows;
mod forgeries;
mod histories;
mod hook_names;
mod hooks;
mod interop;
mod made_anew;
mod memory;
mod monitor;
mod options;
mod owners;
mod parallel;
mod proofs;
mod published;
mod retained;
mod rollbacks;
mod situations;
mod sizes;
mod unseen;
mod world;
