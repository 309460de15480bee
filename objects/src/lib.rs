//! Kubernetes objects without a cluster.
//!
//! Objects are `serde_json::Value`, never Rust types, so that no field a chart writes is lost.
//! Everything here is a pure function: what needs a cluster's answer is handed it.
//!
//! - [`manifest`] turns manifest text into [`Object`]s, whose kinds [`discovery`] knows.
//! - [`merge`] computes and applies patches between states of an object.
//! - [`conflict`] and [`managed_fields`] decide who keeps a field that several managers want.
//! - [`readiness`] judges a live object.
//! - [`drift`] compares desired with live.
//! - [`fields`] reads nested fields with Go's notion of "absent", "null" and "wrong type".

pub mod conflict;
pub mod discovery;
pub mod drift;
pub mod fields;
pub mod managed_fields;
pub mod manifest;
pub mod merge;
pub mod object;
pub mod readiness;

pub use discovery::{Discovery, GroupKind, Resource, group_version};
pub use manifest::BuildError;
pub use object::{Object, ObjectKey};
