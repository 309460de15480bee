//! The step that deploys, or finds that there is nothing to deploy, or may not.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use release::ForeignObjects;
use release::action::Deployed;
use release::model::Release;
use release::storage::StoredRelease;

use super::{Current, FOREIGN_RECHECK, ReconcileState, Reconciler};
use crate::api::BundleDeployment;
use crate::client::identity::DeploymentClient;
use crate::controllers::bundle_deployment::chart_poll;
use crate::controllers::bundle_deployment::deployer::Base;
use crate::controllers::bundle_deployment::halt::{Cause, Halt};
use crate::controllers::bundle_deployment::namespace::{self, KnownBundles, NamespaceError};
use crate::controllers::bundle_deployment::outcome::RedeployReason;
use crate::controllers::bundle_deployment::ownership::{OwnershipConflict, Part};
use crate::controllers::bundle_deployment::plan::{self, DeployFacts, DeployReason, Record};
use crate::controllers::bundle_deployment::values::Filled;
use crate::controllers::claims::{self, ReleaseId};
use crate::controllers::downstream_resources::Copies;
use crate::controllers::garbage::RemovalError;
use crate::controllers::queue::ReconcileKind;
use crate::error;
use crate::ledger::records::Writes;
use crate::ledger::{LedgerEntry, PlannedContainers, Proof, ReleaseKey};
use crate::public::PublicText;
use crate::public::redact::SensitiveData;
use crate::report::events::Reason;

/// The halt for a release under a former name that could not be removed, with the text of any failed removal.
fn former(failed: &RemovalError, facts: &SensitiveData) -> Halt {
    let message = facts.redact_text(&failed.public_text());
    Halt::new(Cause::FormerRelease, message)
}

impl Reconciler {
    /// Gathers the facts that decide about a deploy, besides the bundle itself. `stored` is the release that is wanted, as far as it is there.
    pub(super) fn deploy_facts(
        &self,
        state: &ReconcileState,
        filled: &Filled,
        stored: Option<&StoredRelease>,
        copies: Copies,
    ) -> DeployFacts {
        let bundle = &state.bundle;
        let known = self.context.ledger.get(&claims::desired(bundle));
        let applied = &state.report.status().applied_deployment_id;
        DeployFacts {
            record: Record::of(stored.map(|stored| stored.status()).as_ref()),
            is_known: known.is_some_and(|known| known.has_deployed(bundle.name(), applied)),
            copies,
            overwritten: self.overwritten.has(bundle.name()) || state.is_overwritten(),
            facts_changed: stored.is_some_and(|stored| filled.is_outdated(stored)),
            status_is_outdated: self.is_outdated(state),
        }
    }

    /// The site holds changes: reports that a deploy is held up, if one is called for, and gives back what is deployed.
    pub(super) async fn hold(
        &self,
        state: &mut ReconcileState,
        impersonated: &DeploymentClient,
        filled: &Filled,
        hold: &PublicText,
    ) -> Result<Current, Halt> {
        let stored = self.wanted(state, impersonated).await;
        let stored = stored.map_err(Halt::at(Cause::ReadHeldRelease, &state.facts))?;
        let facts = self.deploy_facts(state, filled, stored.as_ref(), Copies::Same);
        if let Some(reason) = plan::deploy_reason(&state.bundle, facts) {
            logging::info!(
                bundle = state.bundle.name(),
                reason,
                hold = *hold,
                "not deploying"
            );
            state.report.deploy_held(hold);
        }
        Ok(state.current(stored))
    }

    /// Deploys if that is called for. A deploy that fails is reported and does not end the reconcile: what was deployed before is still
    /// monitored.
    pub(super) async fn deploy_if_needed(
        &self,
        state: &mut ReconcileState,
        impersonated: &DeploymentClient,
        filled: &Filled,
        copies: Copies,
    ) -> Result<Current, Halt> {
        let stored = self.wanted(state, impersonated).await;
        let stored = stored.map_err(|failed| {
            let cause = match error::api_code(&failed) {
                // The bundle's account may not read its objects there.
                Some(403) => Cause::Deploy(Reason::Forbidden, None),
                _ => Cause::ReadRelease,
            };
            Halt::at(cause, &state.facts)(failed)
        })?;
        let facts = self.deploy_facts(state, filled, stored.as_ref(), copies);
        let reason = match plan::deploy_reason(&state.bundle, facts) {
            // What was put back has pauses, which changed values do not wait for.
            reason @ (None | Some(DeployReason::DownstreamResourcesPutBack)) => {
                let stored = stored.as_ref();
                let changed = self.changed_source(state, impersonated, stored).await;
                changed.or(reason)
            }
            reason => reason,
        };
        let Some(reason) = reason else {
            if plan::is_installed_once(&state.bundle, facts) {
                state.report.count_as_deployed();
            }
            self.confirm(state, impersonated, stored.as_deref()).await;
            return Ok(state.current(stored));
        };
        let tried = self.known_before(state, filled, impersonated).await;
        if self.waits(state, tried.as_ref(), reason) {
            return Ok(state.current(stored));
        }
        if reason == DeployReason::ReleaseGone
            && let Some(unfinished) = &stored
        {
            let revision = unfinished.revision;
            let id = ReleaseId::new(&claims::desired(&state.bundle), revision);
            state.report.redeploys(&id, RedeployReason::Unfinished);
        }
        logging::info!(bundle = state.bundle.name(), reason, "deploying");
        let known = stored.as_ref();
        let deployed = self.deploy(state, filled, (reason, copies), impersonated, known);
        match deployed.await {
            Ok(deployed) => {
                self.ask_source_again(state);
                // Only before a first one can nothing be left over.
                let is_first = deployed.release.revision == 1;
                let applied = match is_first {
                    true => deployed.applied,
                    false => Vec::new(),
                };
                Ok(Current::Deployed(deployed.release, applied))
            }
            Err(halt) if halt.cause == Cause::Superseded => Err(halt),
            Err(halt) => {
                let tried = match tried {
                    Some(tried) => tried,
                    None => self.tried(state, filled, impersonated).await,
                };
                self.deploy_failed(state, tried, halt).await;
                Ok(state.current(stored))
            }
        }
    }

    /// Whether anything was tried since the status was written, as where that comes from a backup.
    pub(super) fn is_outdated(&self, state: &ReconcileState) -> bool {
        let (ids, ledger) = (&self.context.deployed_ids, &self.context.ledger);
        let release = &state.report.status().release;
        ids.is_outdated(&state.bundle, release, |key| ledger.get(key))
    }

    /// Remembers that what a bundle's spec says is deployed, as the release that its status names from now on.
    pub(super) fn note_deployed(&self, bundle: &BundleDeployment, release: String) {
        let id = ReleaseId::parse(&release);
        let entry = id.and_then(|id| self.context.ledger.get(&id.key()));
        let ids = &self.context.deployed_ids;
        ids.note(bundle, release, entry.as_ref());
    }

    /// Nothing to deploy: clears failures that were reported before.
    async fn confirm(
        &self,
        state: &mut ReconcileState,
        impersonated: &DeploymentClient,
        stored: Option<&Release>,
    ) {
        if state.bundle.metadata.deletion_timestamp.is_some() {
            return;
        }
        state.report.confirmed();
        let id = state.named();
        if let Some(id) = id.filter(|id| id.key() == claims::desired(&state.bundle)) {
            // The release was read and proven a moment ago; the spec's settings for it count from now on.
            let settled = self.confirm_owner(state, impersonated, &id, stored);
            let settled = settled.await;
            self.note(state, settled);
            self.remove_former(state, &id.key(), false).await;
        }
        let labelled = self.label(state, impersonated).await;
        self.note_labels(state, labelled);
        self.forget(state.bundle.name());
    }

    /// Whether an attempt of the bundle's got as far as to write over another one's release: a revision of its own, or one that failed before once
    /// more, of which nothing is noted anew: that it has `begun` is what counts, as its record is the newest one from then on.
    fn has_claimed(
        &self,
        bundle: &str,
        key: &ReleaseKey,
        before: Option<&LedgerEntry>,
        begun: bool,
    ) -> bool {
        let claim = |entry: &LedgerEntry| entry.claims.get(bundle).cloned();
        let now = self.context.ledger.get(key);
        let now = now.filter(|entry| entry.bundle != bundle);
        let now = now.as_ref().and_then(claim);
        now.is_some() && (begun || now != before.and_then(claim))
    }

    /// Has the bundle that a release is of deploy it anew: what another one's attempt wrote over its objects that one does not take back, undone or not.
    fn wake_owner(&self, key: &ReleaseKey) {
        if let Some(entry) = self.context.ledger.get(key) {
            let drift = &self.context.drift;
            drift.wake_after(&entry.bundle, ReconcileKind::Full, Duration::ZERO);
        }
    }

    /// Removes releases under former names, and reports what came of it.
    async fn remove_former(&self, state: &mut ReconcileState, key: &ReleaseKey, is_new: bool) {
        let collector = &self.context.collector;
        let removed = collector.remove_former(state.bundle.name(), key, is_new);
        match removed.await {
            Ok(None) => {}
            Ok(Some(pause)) => state.report.wake_after(ReconcileKind::Full, pause),
            Err(failed) => {
                let halt = former(&failed, &state.facts);
                self.report(state, &halt);
            }
        }
    }

    /// Labels the namespace; gives the keys that other bundles have.
    async fn label(
        &self,
        state: &ReconcileState,
        impersonated: &DeploymentClient,
    ) -> Result<Vec<OwnershipConflict>, Halt> {
        let bundles = KnownBundles::of(&self.context.store, &self.context.ledger);
        let labelled = namespace::label(impersonated, &state.bundle, &bundles).await;
        labelled.map_err(|failed| {
            let cause = match failed {
                NamespaceError::Forbidden { .. } => Cause::NamespaceForbidden,
                NamespaceError::Api { .. } => Cause::NamespaceLabels,
            };
            Halt::at(cause, &state.facts)(failed)
        })
    }

    /// Reports what came of labelling the namespace.
    fn note_labels(
        &self,
        state: &mut ReconcileState,
        labelled: Result<Vec<OwnershipConflict>, Halt>,
    ) {
        let noted = labelled.map(|left| {
            if !left.is_empty() {
                // An object that another bundle gives up causes no event for this one.
                state
                    .report
                    .wake_after(ReconcileKind::Full, FOREIGN_RECHECK);
            }
            state.report.ownership_conflicts(Part::NamespaceKeys, left);
        });
        self.note(state, noted);
    }

    /// Deploys. `known` is the release as it was read before.
    async fn deploy(
        &self,
        state: &mut ReconcileState,
        filled: &Filled,
        (reason, copies): (DeployReason, Copies),
        impersonated: &DeploymentClient,
        known: Option<&StoredRelease>,
    ) -> Result<Deployed, Halt> {
        let bundle = Arc::clone(&state.bundle);
        let labelled = match self.label(state, impersonated).await {
            Err(halt) if halt.cause == Cause::NamespaceLabels => return Err(halt),
            // An account that lacks the right may still deploy: reported afterwards.
            labelled => labelled,
        };
        let key = claims::desired(&bundle);
        let checked = release::action::check_name(&key.name);
        checked.map_err(Halt::at(Cause::ReleaseName, &state.facts))?;
        let _release_lock = self.lock(state, &key)?;
        // With its first record the ledger knows that a deploy was begun, before anything is written.
        let before = self.context.ledger.get(&key);
        let planned = PlannedContainers::default();
        let noted = (Writes::Deploys, planned.clone());
        let records = self.planned_records(&bundle, impersonated, &key.namespace, noted);
        let deployer = &self.context.deployer;
        let shared_namespaces = self.context.collector.shared_namespaces();
        let begun = Arc::new(AtomicBool::new(false));
        let on_begun = {
            let (begun, bundle) = (Arc::clone(&begun), Arc::clone(&bundle));
            let deployed_ids = Arc::clone(&self.context.deployed_ids);
            move || {
                begun.store(true, Ordering::Relaxed);
                // At once: the reconcile may be cut off.
                deployed_ids.note_tried(bundle.name());
            }
        };
        let foreign_objects = {
            let (taken, drift) = (self.taken(bundle.name()), Arc::clone(&self.context.drift));
            let bundle = Arc::clone(&bundle);
            // An object changed since it was read may be another bundle's.
            ForeignObjects::new(move || {
                let mut foreign_objects = taken.clone()?;
                foreign_objects.extend(drift.changed_by_now(bundle.name())?);
                Some(foreign_objects)
            })
        };
        let ids = &self.context.deployed_ids;
        let base = Base {
            known,
            foreign_objects,
            other_releases: shared_namespaces.of_deploy(&key, bundle.name()),
            planned: planned.clone(),
            is_first: before.is_none(),
            // What began while a copy was another one may have read that.
            is_forced: copies == Copies::PutBack || ids.is_forced(&bundle, before.as_ref()),
            on_begun: Arc::new(on_begun),
        };
        let report = &mut state.report;
        let deployed = deployer.deploy(
            filled,
            reason,
            impersonated,
            records.storage(),
            base,
            report,
        );
        let deployed = match Box::pin(deployed).await {
            Ok((deployed, reservation)) => {
                state.reservation = reservation;
                deployed
            }
            Err(mut halt) => {
                let noted = self.note_failed(state, impersonated, &key).await;
                self.note(state, noted);
                let begun = begun.load(Ordering::Relaxed);
                if self.has_claimed(bundle.name(), &key, before.as_ref(), begun) {
                    halt.cause = halt.cause.of_a_take();
                    self.wake_owner(&key);
                }
                let lacks_kind = halt.cause == Cause::Deploy(Reason::KindMissing, None);
                let crd_watch = &self.context.crd_watch;
                crd_watch.deploy_lacks_kind(bundle.name(), lacks_kind);
                return Err(halt);
            }
        };
        self.forget(bundle.name());
        self.context.drift.deployed(bundle.name());
        // At once: the reconcile may be cut off.
        let id = ReleaseId::new(&key, deployed.release.revision);
        self.note_deployed(&bundle, id.to_string());
        self.deploy_succeeded(state, reason).await;
        self.overwritten.note(bundle.name(), false);
        if let Some(text) = chart_poll::downgrade(known.map(Deref::deref), &deployed.release) {
            state.report.event(Reason::OlderChart, text);
        }
        let (changed, conflicts) = (deployed.changed, &deployed.conflicts);
        let chart = chart_poll::event_text(&deployed.release);
        state.report.deployed(&id, changed, conflicts, &chart);
        let base = deployed.plan.action.from();
        let is_known = |from| {
            before
                .as_ref()
                .is_some_and(|entry| !entry.is_attempt || entry.digest(from).is_some())
        };
        if deployed.changed && base.is_some_and(|from| !is_known(from)) {
            state.report.taken_over(&key);
        }
        let proof = Proof::deployed(&deployed);
        let deployment = state.deployment();
        let deployment = (deployment, planned.get());
        let owned = self.own(state, impersonated, key.clone(), deployment, &proof);
        let owned = owned.await;
        self.note(state, owned);
        let settled = self.forget_unwritten(state, &records, &key, id.revision);
        let settled = settled.await;
        self.note(state, settled);
        if let Some(former) = before.filter(|former| former.bundle != bundle.name()) {
            // No object that the former bundle watches needs to have changed.
            let drift = &self.context.drift;
            drift.wake_after(&former.bundle, ReconcileKind::Full, Duration::ZERO);
        }
        // The namespace may have been deleted meanwhile with its labels, and the deploy made it anew.
        let labelled = match (deployed.changed, labelled) {
            (true, Ok(_)) => self.label(state, impersonated).await,
            (_, labelled) => labelled,
        };
        self.note_labels(state, labelled);
        let deployed_before = ReleaseId::parse(&bundle.status.release);
        let is_new = deployed_before.is_none_or(|before| before.key() != key);
        self.remove_former(state, &key, is_new).await;
        Ok(deployed)
    }
}

#[cfg(test)]
mod tests {
    use release::kube::ApiError;
    use release::storage::StorageError;

    use super::*;

    #[test]
    fn api_errors_about_records_of_a_former_release_are_reported_without_their_text() {
        let refused = kube::core::Status::failure("no: canary-record", "Forbidden").with_code(403);
        let failed = RemovalError::Records {
            release: "apps/canary-site".to_owned(),
            source: StorageError::Api {
                verb: "list",
                source: ApiError::Refused(refused.boxed()),
            },
        };
        let facts = SensitiveData::of_facts(&Default::default(), &["canary-site".to_owned()]);
        let shown = former(&failed, &facts).message;
        assert!(!shown.contains("canary"), "{}", &*shown);
        assert!(shown.contains("403 Forbidden"), "{}", &*shown);
    }
}
