//! The downstream agent for Rancher Fleet: the binary and Fleet's half.
//!
//! The only crate that knows `fleet.cattle.io`. What a chart or a release is lives below it.

pub mod api;
pub mod bundle;
pub mod summary;
pub mod values;
