//! Deploying in a pass: what comes before and after, and how it is told.

use std::sync::Arc;

use release::action::Deployed;
use release::kube::FieldConflict;

use super::{Reconciler, Work};
use crate::bundle::release_name;
use crate::controllers::bundle_deployment::deploy::{DeployFailure, Failed};
use crate::controllers::bundle_deployment::namespace::{self, NamespaceError};
use crate::controllers::bundle_deployment::plan::{self, DeployReason, ReleaseId};
use crate::controllers::bundle_deployment::status::INSTALLED;
use crate::controllers::bundle_deployment::values::Filled;
use crate::controllers::queue::Next;
use crate::error;
use crate::events::Reason;
use crate::identity::DeploymentClient;
use crate::ledger::ReleaseKey;

impl Reconciler {
    /// Deploys; gives back what was done when that worked.
    pub(super) async fn deploy(
        &self,
        work: &mut Work,
        filled: &Filled,
        reason: DeployReason,
        acting: &DeploymentClient,
    ) -> Option<Deployed> {
        let bundle = Arc::clone(&work.bundle);
        let options = &bundle.spec.options;
        let labelled = namespace::label(acting, options).await;
        if let Err(failed @ NamespaceError::Api { .. }) = &labelled {
            let message = error::chain(failed);
            work.deployed(Err(&message));
            work.fail(
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
            work.deployed(Err(&message));
            work.fail(Reason::ApplyFailed, "the name of the release", &message);
            return None;
        }
        let key = ReleaseKey {
            namespace: id.namespace.clone(),
            name: id.name.clone(),
        };
        let _in_hand = match self.in_hand.take(&key, bundle.name()) {
            Ok(grip) => grip,
            Err(rival) => {
                self.refuse(work, &key, &rival);
                return None;
            }
        };
        // Entered with its first record, before anything is written, so that no release is ever
        // without an owner.
        let records = self.records(&bundle, acting, &id.namespace);
        let deployer = &self.rooms.deployer;
        let outcome = deployer.deploy(filled, reason, acting, &records).await;
        if outcome.is_err() {
            // It did not come to that, but there may be a release of another agent's.
            self.enter(work, acting, &id, false).await;
        }
        if let Err(Failed {
            reason: Reason::KindMissing,
            ..
        }) = &outcome
        {
            self.rooms.definitions.wait(bundle.name());
        }
        let deployed = match outcome {
            Ok(deployed) => deployed,
            Err(Failed {
                failure: DeployFailure::NotYet(message),
                ..
            }) => {
                self.not_yet(work, "waiting for upstream", &message);
                return None;
            }
            Err(Failed {
                reason,
                failure: DeployFailure::Failed(message),
            }) if plan::is_shown_as_not_ready(&message) => {
                work.status.not_installed(&message, work.now);
                work.status.release.clear();
                work.status.applied_deployment_id = bundle.spec.deployment_id.clone();
                work.deployed(Ok(()));
                work.fail(reason, "cannot install", &message);
                return None;
            }
            Err(Failed {
                reason,
                failure: DeployFailure::Failed(message),
            }) => {
                work.deployed(Err(&message));
                work.fail(reason, "failed deploying bundle", &message);
                return None;
            }
        };
        self.forget(bundle.name());
        let text = format!(
            "release {}/{} revision {}",
            id.namespace, id.name, deployed.release.revision
        );
        work.news.push((Reason::Deployed, text));
        work.status.release = ReleaseId {
            revision: deployed.release.revision,
            ..id.clone()
        }
        .to_string();
        work.status.applied_deployment_id = bundle.spec.deployment_id.clone();
        work.status.set_condition(INSTALLED, Ok(()), work.now);
        work.deployed(Ok(()));
        self.enter(work, acting, &id, true).await;
        work.is_new = deployed.changed;
        if deployed.changed {
            self.tell(work, &deployed.conflicts);
        }
        if let Err(failed) = labelled {
            self.namespace_failed(work, &failed);
        }
        if let Err(failed) = self
            .rooms
            .collector
            .remove_former(bundle.name(), &key)
            .await
        {
            work.fail(
                Reason::RemovalFailed,
                "cannot remove a former release",
                &error::chain(&failed),
            );
        }
        Some(deployed)
    }

    /// Tells what was taken from other managers or left to them; nothing is nothing to tell.
    pub(super) fn tell(&self, work: &mut Work, conflicts: &[FieldConflict]) {
        for conflict in conflicts {
            tracing::info!(bundle = work.bundle.name(), "{conflict}");
        }
        work.status.set_conflicts(conflicts, work.now);
    }

    pub(super) fn namespace_failed(&self, work: &mut Work, failed: &NamespaceError) {
        let message = error::chain(failed);
        match failed {
            NamespaceError::Forbidden { .. } => {
                work.status.not_installed(&message, work.now);
                work.next = Next::After(self.timing.namespace_retry);
            }
            NamespaceError::Api { .. } => {
                work.deployed(Err(&message));
                work.fail(
                    Reason::NamespaceRefused,
                    "cannot label the namespace",
                    &message,
                );
            }
        }
    }
}
