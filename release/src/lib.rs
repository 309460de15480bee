//! Helm releases in a cluster: records, apply, ownership, hooks, readiness and drift.
//!
//! Knows kube, knows nothing of Fleet. The pure rooms come first: [`readiness`] judges a live
//! object, [`merge`] computes patches between states of one, [`drift`] compares wanted with live.

pub mod drift;
pub mod merge;
pub mod readiness;
