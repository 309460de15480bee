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
//!
//! From a manifest to objects, by what a cluster says that it serves:
//!
//! ```
//! use objects::{Discovery, manifest};
//! use serde_json::json;
//!
//! let mut discovery = Discovery::default();
//! discovery.add_list(&json!({"groupVersion": "v1", "resources": [
//!     {"name": "configmaps", "kind": "ConfigMap", "namespaced": true},
//! ]}));
//! let documents = manifest::documents("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n")?;
//! let objects = manifest::build(documents, "shop", &discovery, &[])?;
//! assert_eq!(objects[0].describe(), "shop/web /v1, Kind=ConfigMap");
//! # Ok::<(), objects::BuildError>(())
//! ```

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
