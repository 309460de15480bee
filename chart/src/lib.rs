#![doc = include_str!("../README.md")]
//!
//! ## How it is built
//!
//! A [`Chart`] comes from an archive, a directory or files in memory ([`loader`]), its dependencies are switched on and off
//! ([`dependency`]), values are merged and checked ([`values`]), the engine runs its templates ([`render`]), what they print
//! may be changed ([`post_render`]) and is sorted ([`manifest`]); [`rendered`] does all of it in Helm's order. Nothing here knows
//! of kube; where a template must ask a cluster, the caller hands in a trait.
//!
//! Mirrors `pkg/chart`, `pkg/strvals`, `pkg/ignore`, `pkg/engine` and the rendering half of `pkg/action` of Helm 4.
#![warn(missing_docs)]

pub mod archive;
pub mod capabilities;
mod chart;
pub mod dependency;
mod depth;
pub mod ignore;
mod list;
pub mod loader;
pub mod lock;
pub mod manifest;
pub mod metadata;
pub mod post_render;
mod release_info;
pub mod render;
pub mod rendered;
#[cfg(feature = "fetch")]
pub mod source;
mod time;
#[cfg(feature = "fetch")]
pub mod trust;
pub mod values;
mod warning;

pub use capabilities::{Capabilities, HelmVersion, KubeVersion};
pub use chart::{API_VERSION_V1, API_VERSION_V2, Chart, Crd, File};
pub use depth::{MAX_DEPTH, TooDeep};
pub use golib::json::FieldError as DecodeError;
pub use list::List;
pub use metadata::{Dependency, Lock, Maintainer, Metadata};
pub use release_info::{ReleaseInfo, ReleaseNameError, validate_release_name};
pub use time::Time;
pub use warning::{Warning, Warnings, log_text};
