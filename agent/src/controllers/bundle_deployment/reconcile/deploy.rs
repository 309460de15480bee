//! Deploying in a reconcile: what comes before and after it.

use std::sync::Arc;

use release::action::Deployed;
use release::model::Release;

use super::{ReconcileState, Reconciler};
use crate::bundle::release_name;
use crate::client::identity::DeploymentClient;
use crate::controllers::bundle_deployment::namespace::{self, NamespaceError};
use crate::controllers::bundle_deployment::outcome::{Cause, Halt};
use crate::controllers::bundle_deployment::plan::{DeployReason, ReleaseId};
use crate::controllers::bundle_deployment::values::Filled;
use crate::ledger::ReleaseKey;
use crate::report::events::Reason;

impl Reconciler {
    /// Deploys. `known` is the release as it was read before.
    pub(super) async fn deploy(
        &self,
        state: &mut ReconcileState,
        filled: &Filled,
        reason: DeployReason,
        impersonated: &DeploymentClient,
        known: Option<&Release>,
    ) -> Result<Deployed, Halt> {
        let bundle = Arc::clone(&state.bundle);
        let options = &bundle.spec.options;
        let labelled = match namespace::label(impersonated, options).await {
            Err(failed @ NamespaceError::Api { .. }) => return Err(failed.into()),
            // A right that lacks is told after a deploy that works.
            labelled => labelled.map_err(Halt::from),
        };
        let key = ReleaseKey {
            namespace: options.release_namespace().to_owned(),
            name: release_name(bundle.name(), options),
        };
        release::action::check_name(&key.name).map_err(Halt::at(Cause::ReleaseName))?;
        let _release_lock = self
            .release_locks
            .take(&key, bundle.name())
            .map_err(|other| self.refuse(state, &key, &other))?;
        // Entered with its first record, before anything is written, so that no release is ever
        // without an owner.
        let records = self.records(&bundle, impersonated, &key.namespace);
        let deployer = &self.context.deployer;
        let deployed = deployer
            .deploy(filled, reason, impersonated, &records, known)
            .await;
        let deployed = match deployed {
            Ok(deployed) => deployed,
            Err(halt) => {
                // It did not come to that, but there may be a release of another agent's.
                let entered = self.enter(state, impersonated, key, false).await;
                self.note(state, entered);
                if halt.cause == Cause::Deploy(Reason::KindMissing) {
                    self.context.crd_watch.wait(bundle.name());
                }
                return Err(halt);
            }
        };
        self.forget(bundle.name());
        let id = ReleaseId::new(&key, deployed.release.revision);
        state.report.deployed(&id, deployed.changed);
        if deployed.changed {
            state.report.conflicts(&deployed.conflicts);
        }
        let entered = self.enter(state, impersonated, key.clone(), true).await;
        self.note(state, entered);
        self.note(state, labelled);
        let collector = &self.context.collector;
        let removed = collector.remove_former(bundle.name(), &key).await;
        self.note(state, removed.map_err(Halt::at(Cause::FormerRelease)));
        Ok(deployed)
    }
}
