//! Actions on a release: deploy, uninstall, read.
//!
//! [`deploy`] is one entry for install, upgrade and finishing what was cut off, because which of them
//! is due is decided from what is stored ([`crate::state`]), never by the caller.
//!
//! Mirrors `pkg/action` of Helm 4.

mod attempt;
mod capabilities;
mod deploy;
pub(crate) mod error;
mod former;
mod hook_objects;
mod hook_progress;
mod hooks;
mod install;
mod known_records;
mod previous;
mod records;
mod removal_hook;
mod retained;
mod rollback;
mod spec;
mod uninstall;
mod unquoted;
mod withdraw;

pub use capabilities::capabilities;
pub use deploy::{MAX_HISTORY, deploy};
pub use error::{DeployError, HookError, UninstallError};
pub use install::check_name;
pub use known_records::KnownRecords;
pub use rollback::record_failed_rollback;
pub use spec::{
    DEFAULT_TIMEOUT, DeployOptions, DeploySpec, Deployed, RenderFn, RenderRequest, Rendered,
    UninstallSpec, Uninstalled, Writer,
};
pub use uninstall::{uninstall, uninstall_confirmed};
pub use unquoted::{Unquoted, error_unquoted};
pub use withdraw::withdraw;

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::kube::Cluster;
    use crate::others::Confirmation;
    use crate::storage::Storage;

    /// Callers spawn actions; this fails to compile when one cannot be.
    #[test]
    fn actions_can_be_spawned() {
        fn is_send<T: Send>(_: &T) {}
        let _ = |cluster: &Cluster, storage: &Storage, spec: &DeploySpec| {
            is_send(&deploy(cluster, storage, spec));
        };
        let _ = |cluster: &Cluster, storage: &Storage, spec: &UninstallSpec| {
            is_send(&uninstall(cluster, storage, spec));
            let asked = || async { true }.boxed();
            let confirmation = Confirmation::new(&asked);
            is_send(&uninstall_confirmed(cluster, storage, spec, confirmation));
        };
    }
}
