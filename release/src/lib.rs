//! A Helm release in a cluster: records, apply, hooks, removal and waiting.
//!
//! The crate drives a rendered chart into a cluster and keeps records that any `helm` can read,
//! upgrade, roll back and uninstall. It knows kube and nothing of Fleet; it acts only through the
//! client it is handed.
//!
//! - [`deploy`] brings a release to what is desired: install, upgrade, or finishing what was cut off.
//! - [`uninstall`] does what its namesake in Helm does.
//! - [`state`] decides which action is due; [`storage`] keeps the records; [`kube`] talks to the
//!   cluster.
//!
//! Mirrors `pkg/action`, `pkg/storage` and `pkg/kube` of Helm 4.

pub mod action;
mod deletable;
mod error;
mod history;
pub mod host;
pub mod kube;
pub mod model;
mod others;
mod record;
pub mod state;
pub mod storage;

pub use action::{
    DeployError, DeployOptions, DeploySpec, Deployed, MAX_HISTORY, RenderRequest, Rendered,
    UninstallError, UninstallSpec, Uninstalled, Unquoted, deploy, error_unquoted, uninstall,
    uninstall_confirmed,
};
pub use error::{BoxError, error_chain};
pub use host::Host;
pub use kube::{Cluster, Owner};
pub use model::{ApplyMethod, Hook, HookEvent, Info, Release, Status};
pub use others::{
    AbortCheck, Confirmation, Container, ContainerUsage, ForeignObjects, OtherReleases, WhyLeft,
};
pub use storage::Storage;
