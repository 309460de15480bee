//! Kubernetes objects without a cluster.
//!
//! Objects are `serde_json::Value`, never Rust types, so that no field a chart writes is lost.
//! Everything here is a pure function: what needs a cluster's answer is handed it.
//!
//! - [`merge`] computes and applies patches between states of an object.
//! - [`readiness`] judges a live object.
//! - [`drift`] compares wanted with live.
//! - [`fields`] reads nested fields with Go's notion of "absent", "null" and "wrong type".

pub mod drift;
pub mod fields;
pub mod merge;
pub mod readiness;
