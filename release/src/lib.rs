//! A Helm release in a cluster: records, apply, hooks, removal and waiting.
//!
//! The crate drives a rendered chart into a cluster and keeps records that any `helm` can read,
//! upgrade, roll back and uninstall. It knows kube and nothing of Fleet; it acts only through the
//! client it is handed.
//!
//! - [`deploy`] brings a release to what is desired: install, upgrade, or finishing what was cut off.
//! - [`rollback`] and [`uninstall`] do what their namesakes in Helm do.
//! - [`state`] decides which action is due; [`storage`] keeps the records; [`kube`] talks to the
//!   cluster.
//!
//! Mirrors `pkg/action`, `pkg/storage` and `pkg/kube` of Helm 4.

pub mod action;
pub mod host;
pub mod kube;
pub mod model;
pub mod state;
pub mod storage;

pub use action::{
    DeployError, DeploySpec, Deployed, Options, RenderRequest, Rendered, RollbackError,
    RollbackSpec, UninstallError, UninstallSpec, Uninstalled, deploy, get, rollback, uninstall,
};
pub use host::Host;
pub use kube::{Cluster, Owner};
pub use model::{ApplyMethod, Hook, HookEvent, Info, Release, Status};
pub use storage::Storage;

/// An error and all its causes, joined by `: ` as Go prints wrapped errors.
pub fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut text = String::new();
    let mut last = String::new();
    for cause in causes {
        let words = cause.to_string();
        // A transparent or repeating layer says nothing new.
        if words != last && !words.is_empty() {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&words);
        }
        last = words;
    }
    text
}
