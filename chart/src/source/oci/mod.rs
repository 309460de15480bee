//! Pulling from OCI registries: references, authentication, manifests, blobs, tags.
//!
//! A pull-only client of the distribution spec, as much of it as Helm and Fleet use. What a chart
//! looks like inside a registry is in [`chart`]; the rest would serve any artifact.

mod annotations;
mod auth;
mod chart;
mod problem;
mod reference;
mod registry;

pub(super) use annotations::{ID, STATES};
pub use chart::pick;
pub(super) use chart::{
    Found, Requested, check_version, layer, proves, requested, resolve, versions,
};
pub use reference::Reference;
pub(super) use reference::is_digest;
pub(super) use registry::{Descriptor, NamedBy, Registry, is_of};
