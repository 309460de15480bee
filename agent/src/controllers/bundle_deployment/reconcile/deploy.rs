//! Deploying in a pass: what comes before and after, and how it is told.

use std::sync::Arc;

use objects::conflict::FieldConflict;
use release::action::Deployed;
use release::model::Release;

use super::{ReconcileState, Reconciler};
use crate::bundle::release_name;
use crate::client::identity::DeploymentClient;
use crate::controllers::bundle_deployment::deploy::{DeployFailure, Failed};
use crate::controllers::bundle_deployment::namespace::{self, NamespaceError};
use crate::controllers::bundle_deployment::plan::{self, DeployReason, ReleaseId};
use crate::controllers::bundle_deployment::status::INSTALLED;
use crate::controllers::bundle_deployment::values::Filled;
use crate::controllers::queue::Requeue;
use crate::error;
use crate::ledger::ReleaseKey;
use crate::report::events::Reason;

impl Reconciler {
    /// Deploys; gives back what was done when that worked. `known` is the release as it was read before.
    pub(super) async fn deploy(
        &self,
        state: &mut ReconcileState,
        filled: &Filled,
        reason: DeployReason,
        impersonated: &DeploymentClient,
        known: Option<&Release>,
    ) -> Option<Deployed> {
        let bundle = Arc::clone(&state.bundle);
        let options = &bundle.spec.options;
        let labelled = namespace::label(impersonated, options).await;
        if let Err(failed @ NamespaceError::Api { .. }) = &labelled {
            let message = error::chain(failed);
            state.deployed(Err(&message));
            state.fail(
                Reason::NamespaceRefused,
                "cannot label the namespace",
                &message,
            );
            return None;
        }
        let id = ReleaseId {
            namespace: options.release_namespace().to_owned(),
            name: release_name(bundle.name(), options),
            revision: 0,
        };
        if let Err(cause) = release::action::check_name(&id.name) {
            let message = error::chain(&cause);
            state.deployed(Err(&message));
            state.fail(Reason::ApplyFailed, "the name of the release", &message);
            return None;
        }
        let key = ReleaseKey {
            namespace: id.namespace.clone(),
            name: id.name.clone(),
        };
        let _release_lock = match self.release_locks.take(&key, bundle.name()) {
            Ok(grip) => grip,
            Err(conflicting_bundle) => {
                self.refuse(state, &key, &conflicting_bundle);
                return None;
            }
        };
        // Entered with its first record, before anything is written, so that no release is ever
        // without an owner.
        let records = self.records(&bundle, impersonated, &id.namespace);
        let deployer = &self.context.deployer;
        let outcome = deployer
            .deploy(filled, reason, impersonated, &records, known)
            .await;
        if outcome.is_err() {
            // It did not come to that, but there may be a release of another agent's.
            self.enter(state, impersonated, &id, false).await;
        }
        if let Err(Failed {
            reason: Reason::KindMissing,
            ..
        }) = &outcome
        {
            self.context.crd_watch.wait(bundle.name());
        }
        let deployed = match outcome {
            Ok(deployed) => deployed,
            Err(Failed {
                failure: DeployFailure::NotYet(message),
                ..
            }) => {
                self.not_yet(state, "waiting for upstream", &message);
                return None;
            }
            Err(Failed {
                reason,
                failure: DeployFailure::Failed(message),
            }) if plan::is_shown_as_not_ready(&message) => {
                state.status.not_installed(&message, state.now);
                state.status.release.clear();
                state.status.applied_deployment_id = bundle.spec.deployment_id.clone();
                state.deployed(Ok(()));
                state.fail(reason, "cannot install", &message);
                return None;
            }
            Err(Failed {
                reason,
                failure: DeployFailure::Failed(message),
            }) => {
                state.deployed(Err(&message));
                state.fail(reason, "failed deploying bundle", &message);
                return None;
            }
        };
        self.forget(bundle.name());
        let text = format!(
            "release {}/{} revision {}",
            id.namespace, id.name, deployed.release.revision
        );
        state.events.push((Reason::Deployed, text));
        state.status.release = ReleaseId {
            revision: deployed.release.revision,
            ..id.clone()
        }
        .to_string();
        state.status.applied_deployment_id = bundle.spec.deployment_id.clone();
        state.status.set_condition(INSTALLED, Ok(()), state.now);
        state.deployed(Ok(()));
        self.enter(state, impersonated, &id, true).await;
        state.is_new = deployed.changed;
        if deployed.changed {
            self.tell(state, &deployed.conflicts);
        }
        if let Err(failed) = labelled {
            self.namespace_failed(state, &failed);
        }
        if let Err(failed) = self
            .context
            .collector
            .remove_former(bundle.name(), &key)
            .await
        {
            state.fail(
                Reason::RemovalFailed,
                "cannot remove a former release",
                &error::chain(&failed),
            );
        }
        Some(deployed)
    }

    /// Tells what was taken from other managers or left to them; nothing is nothing to tell.
    pub(super) fn tell(&self, state: &mut ReconcileState, conflicts: &[FieldConflict]) {
        for conflict in conflicts {
            tracing::info!(bundle = state.bundle.name(), "{conflict}");
        }
        state.status.set_conflicts(conflicts, state.now);
    }

    pub(super) fn namespace_failed(&self, state: &mut ReconcileState, failed: &NamespaceError) {
        let message = error::chain(failed);
        match failed {
            NamespaceError::Forbidden { .. } => {
                state.status.not_installed(&message, state.now);
                state.next = Requeue::After(self.timing.namespace_retry);
            }
            NamespaceError::Api { .. } => {
                state.deployed(Err(&message));
                state.fail(
                    Reason::NamespaceRefused,
                    "cannot label the namespace",
                    &message,
                );
            }
        }
    }
}
