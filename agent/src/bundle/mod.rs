//! From a BundleDeployment to the chart that is deployed for it.
//!
//! Owns where a bundle's files come from ([`Source`]), what they mean ([`style`]), and what Fleet does
//! to the rendered objects ([`FleetPostRenderer`]). Deciding and converting is pure; the two requests
//! that may be needed go through [`Upstream`]. Mirrors `internal/manifest`, `internal/bundlereader`,
//! `internal/ocistorage` and `internal/helmdeployer` (`render`, `rawyaml`, `postrender.go`).
//!
//! Left out: values ([`crate::values`]), rendering and deploying.

mod access;
mod chart;
mod error;
mod fleet_ignore;
mod kustomize;
mod manifest;
mod names;
mod objects;
mod post_render;
mod raw_yaml;
mod source;
mod style;
mod verification;

pub use access::{Storage, helm_access, is_fleets, refused, refused_hosts, source_hosts, storage};
pub use chart::{Identity, Package, annotations_of, from_archive, from_manifest};
pub use error::{BundleError, UpstreamKind};
pub use kustomize::Kustomization;
pub use manifest::{EMPTY_MANIFEST_ID, MAX_UNPACKED_BYTES, Manifest, Resource};
pub use names::{SetId, agent_bundle_name, derived_release_name, release_name};
pub use objects::ObjectsError;
pub use post_render::{FleetPostRenderError, FleetPostRenderer, ResourceScope, Scopes};
pub use source::{Bundle, Fetching, Source, Unpacking, Upstream, load};
pub use style::Style;
pub use verification::Requirements;
