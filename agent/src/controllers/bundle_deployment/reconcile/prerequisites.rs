//! What must hold before a bundle is deployed: a step each, in the order of [`Reconciler::reconcile`].

use std::time::Duration;

use super::{ReconcileState, Reconciler};
use crate::client::identity::{DeploymentClient, IdentityError, Purpose};
use crate::controllers::bundle_deployment::claims::ReleaseLock;
use crate::controllers::bundle_deployment::dependencies::{self, Problem};
use crate::controllers::bundle_deployment::downstream_resources::ChangedCopies;
use crate::controllers::bundle_deployment::halt::{Cause, Halt};
use crate::controllers::bundle_deployment::ownership::{OwnershipConflict, Part};
use crate::controllers::bundle_deployment::{
    claims, downstream_resources, namespace, ownership, spec_names,
};
use crate::controllers::queue::ReconcileKind;
use crate::ledger::{LedgerEntry, ReleaseKey};
use crate::public;
use crate::public::Name;

/// When copies are compared again that were put back during a deploy: writing them anew leads to the next one.
const COPY_RETRY: Duration = Duration::from_secs(60);

impl Reconciler {
    pub(super) fn check_names(&self, state: &ReconcileState) -> Result<(), Halt> {
        let refused = |message: String| Halt::new(Cause::Name, state.facts.redact_text(&message));
        spec_names::check(&state.bundle.spec).map_err(refused)
    }

    pub(super) async fn check_target_namespace(&self, state: &ReconcileState) -> Result<(), Halt> {
        let agent = self.context.identities.agent();
        let allowed = namespace::check_allowed(&agent, &state.bundle.spec.options).await;
        allowed
            .map_err(|message| Halt::new(Cause::TargetNamespace, state.facts.redact_text(&message)))
    }

    pub(super) fn check_release_is_free(&self, state: &mut ReconcileState) -> Result<(), Halt> {
        let key = claims::desired(&state.bundle);
        match self.conflicting_bundle(state, &key) {
            None => {
                state.report.ownership_conflicts(Part::Release, Vec::new());
                Ok(())
            }
            Some(other) => Err(self.refuse_taken(state, &key, &other)),
        }
    }

    /// When this bundle is to begin, where bundles want each other's releases and it is the first of them: at once, but if facts gave one of them
    /// the name that it wants, which may be wrong by mistake.
    fn begins_circle(&self, state: &ReconcileState, key: &ReleaseKey) -> Option<Duration> {
        let (ledger, store) = (&self.context.ledger, &self.context.store);
        let owned_by = |key: &ReleaseKey| {
            let owner = ledger.get(key).map(claims::Owner::of)?;
            owner.is_proven().then_some(owner.bundle)
        };
        let desired_by = |bundle: &str| {
            let bundle = store.get(bundle)?;
            let is_leaving = bundle.metadata.deletion_timestamp.is_some();
            store.desired(&bundle).filter(|_| !is_leaving)
        };
        let circle = claims::circle(state.bundle.name(), key, owned_by, desired_by)?;
        let grace_left = |(bundle, key): (&String, &ReleaseKey)| {
            let names = match bundle == state.bundle.name() {
                true => state.names.clone(),
                false => store
                    .get(bundle)
                    .and_then(|bundle| claims::template(&bundle)),
            };
            let entry = ledger.get(key)?;
            let is_renamed = entry.names.is_some() && entry.names == names;
            is_renamed.then(|| self.context.collector.grace_left(&entry))
        };
        let graces = circle.iter().filter_map(grace_left);
        Some(graces.max().unwrap_or_default())
    }

    /// Another bundle has the release: both statuses say so, and one that had it before has nothing of it any more.
    pub(super) fn refuse_taken(
        &self,
        state: &mut ReconcileState,
        key: &ReleaseKey,
        other: &str,
    ) -> Halt {
        let bundle = state.bundle.name();
        let deployed = self.context.store.get(other);
        let deployed = deployed.and_then(|other| ownership::deployed_since(&other, key));
        let since = deployed.unwrap_or_else(|| format!("{:.0}", state.report.now()));
        let taken = OwnershipConflict::release(key, other, since, bundle);
        let report = &mut state.report;
        report.ownership_conflicts(Part::Release, vec![taken]);
        if let Some(left) = self
            .begins_circle(state, key)
            .filter(|left| !left.is_zero())
        {
            state.report.wake_after(ReconcileKind::Full, left);
        }
        let mut halt = self.refuse(state, key, other);
        self.context.collector.is_desired(key, other);
        if self.has_lost(state, key, other) {
            halt.cause = Cause::ReleaseLost;
        }
        halt
    }

    /// Whether the bundle had the release that is proven to be another's by now.
    pub(super) fn has_lost(&self, state: &ReconcileState, key: &ReleaseKey, other: &str) -> bool {
        let Some(entry) = self.context.ledger.get(key) else {
            return false;
        };
        let (bundle, revision) = (&state.bundle, claims::revision(&state.bundle, key));
        // What another agent gave back to it may not have been read yet.
        let may_be_its = entry.may_be_of(bundle.name(), revision) && !self.was_record_read(bundle);
        revision > 0 && !may_be_its && claims::Owner::of(entry).is_proven_for(other)
    }

    /// The other bundle that has the release `key`, which this one wants.
    pub(super) fn conflicting_bundle(
        &self,
        state: &ReconcileState,
        key: &ReleaseKey,
    ) -> Option<String> {
        let (bundle, store) = (&state.bundle, &self.context.store);
        let entry = self.context.ledger.get(key);
        let owner = entry.clone().map(claims::Owner::of);
        // That it is not seen does not mean that it is gone: on proof of that the release is handed over.
        if let Some(owner) = &owner
            && owner.bundle != bundle.name()
            && store.get(&owner.bundle).is_none()
            && (owner.is_proven()
                || claims::revision(bundle, key) == 0
                || store.may_hide(&owner.bundle))
        {
            return Some(owner.bundle.clone());
        }
        let begins = || self.begins_circle(state, key) == Some(Duration::ZERO);
        let has_lost = || {
            let (ledger, id) = (&self.context.ledger, &bundle.spec.deployment_id);
            ledger.had_deployed(bundle.name(), &key.namespace, id)
        };
        if claims::takes(bundle, &self.context.deployed_ids, has_lost) || begins() {
            return None;
        }
        let mut others = store.claimants();
        if owner
            .as_ref()
            .is_some_and(|owner| owner.is_proven_for(bundle.name()))
        {
            // The releases that their statuses name were checked: they are not theirs, or cannot be.
            others.retain(|other| {
                let revision = claims::revision(&other.bundle, key);
                let may_be_its =
                    |entry: &LedgerEntry| entry.may_be_of(other.bundle.name(), revision);
                entry.as_ref().is_some_and(may_be_its) && !self.was_record_read(&other.bundle)
            });
        }
        claims::conflicting_bundle(bundle, key, owner.as_ref(), &others)
    }

    /// Locks a release for what is done with it next. Whose it is, is asked once more: another bundle may have deployed it since it was found free.
    pub(super) fn lock(
        &self,
        state: &mut ReconcileState,
        key: &ReleaseKey,
    ) -> Result<ReleaseLock, Halt> {
        let locked = self.context.release_locks.take(key, state.bundle.name());
        if let Some(other) = self.conflicting_bundle(state, key) {
            return Err(self.refuse_taken(state, key, &other));
        }
        locked.map_err(|other| {
            let ReleaseKey { namespace, name } = key;
            let text = public!(
                "bundle {} is at release {}/{}",
                Name(&other),
                Name(namespace),
                Name(name)
            );
            Halt::new(Cause::ReleaseBusy, text)
        })
    }

    /// Two bundles want one release, and the other one has it: its objects are not this one's to watch.
    pub(super) fn refuse(&self, state: &ReconcileState, key: &ReleaseKey, other: &str) -> Halt {
        let ReleaseKey { namespace, name } = key;
        self.context.drift.clear(state.bundle.name());
        Halt::new(
            Cause::ReleaseTaken,
            public!(
                "release {}/{} belongs to bundle {}",
                Name(namespace),
                Name(name),
                Name(other)
            ),
        )
    }

    pub(super) async fn impersonate(
        &self,
        state: &ReconcileState,
    ) -> Result<DeploymentClient, IdentityError> {
        let account = &state.bundle.spec.options.service_account;
        let identities = &self.context.identities;
        identities.deployment(account, Purpose::Deploy).await
    }

    /// Copies downstream resources. Gives those that changed since the release was deployed.
    pub(super) async fn copy_resources(
        &self,
        state: &mut ReconcileState,
        impersonated: &DeploymentClient,
    ) -> Result<ChangedCopies, Halt> {
        let (upstream, bundle) = (&self.upstream.client, &state.bundle);
        let (ledger, key) = (&self.context.ledger, claims::desired(bundle));
        if !bundle.spec.options.downstream_resources.is_empty() {
            // Whatever comes of the deploy, copies go with the bundle.
            let noted = match ledger.get(&key) {
                Some(known) if known.bundle != bundle.name() => {
                    let claimant = LedgerEntry {
                        bundle: bundle.name().to_owned(),
                        account: impersonated.account().to_owned(),
                        keep_resources: bundle.spec.options.keep_resources,
                        ..LedgerEntry::default()
                    };
                    ledger.note_claims(&key.namespace, &claimant).await
                }
                Some(known) if !known.is_attempt || known.has_revisions() => Ok(()),
                // What other bundles' attempts left to it was made with their accounts.
                _ => {
                    let entry = self.entry(bundle, impersonated, &key, false);
                    ledger.attempt(key, entry).await
                }
            };
            noted.map_err(Halt::at(Cause::Ledger, &state.facts))?;
        }
        let unnoted = &self.unnoted_copies;
        let copied = downstream_resources::copy_all(upstream, impersonated, bundle, unnoted).await;
        let changed = copied.map_err(Halt::at(Cause::CopyResources, &state.facts))?;
        // The controller wakes the one whose source it copied first.
        for other in &changed.others {
            self.context
                .drift
                .wake_after(other, ReconcileKind::Full, Duration::ZERO);
        }
        let generation = bundle.spec.downstream_resources_generation;
        state.report.resources_copied(generation);
        Ok(changed)
    }

    /// After a deploy: whoever deleted the namespace meanwhile took the copies, which were made before, and somebody may have made it anew. A restore of the
    /// cluster puts back those that were changed.
    pub(super) async fn check_downstream_resources(
        &self,
        state: &mut ReconcileState,
        impersonated: &DeploymentClient,
        changed: ChangedCopies,
    ) {
        if !changed.rolled_out(impersonated, &state.bundle).await {
            state.report.wake_after(ReconcileKind::Full, COPY_RETRY);
        }
        let found = downstream_resources::are_there(impersonated, &state.bundle).await;
        if !matches!(found, Ok(true)) {
            state.report.wake_after(ReconcileKind::Full, Duration::ZERO);
        }
    }

    pub(super) fn check_dependencies(&self, state: &ReconcileState) -> Result<(), Halt> {
        if state.bundle.spec.depends_on.is_empty() {
            return Ok(());
        }
        let others = self.context.store.all();
        let others = others.iter().map(AsRef::as_ref);
        dependencies::check(&state.bundle, others).map_err(|problem| {
            let cause = match problem {
                Problem::NotReady(_) => Cause::DependencyNotReady,
                Problem::Unknown(_) => Cause::DependencyUnknown,
            };
            Halt::new(cause, state.facts.redact_text(&problem.message()))
        })
    }
}
