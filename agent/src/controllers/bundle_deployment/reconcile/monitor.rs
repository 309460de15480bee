//! The step that compares live objects with the release, and corrects what drifted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use chart::source::Reservation;
use k8s_openapi::jiff::Timestamp;
use objects::drift::Rules;
use objects::manifest::Unserved;
use objects::{BuildError, Object, ObjectKey};
use release::kube::{Cluster, Owner, Removal};
use release::model::Release;
use release::storage::StoredRelease;
use serde_json::Value;

use super::{Current, FOREIGN_RECHECK, ReconcileState, Reconciler};
use crate::api::{BundleDeployment, BundleDeploymentStatus, ModifiedStatus};
use crate::bundle::SetId;
use crate::client::health::Side;
use crate::client::identity::{DeploymentClient, Purpose};
use crate::controllers::bundle_deployment::correct::Attempts;
use crate::controllers::bundle_deployment::halt::{Cause, Halt};
use crate::controllers::bundle_deployment::observe::{
    self, Desired, FormerObjects, KindAndName, Live, ObjectsError, ObserveError, View,
};
use crate::controllers::bundle_deployment::ownership::{Holder, OwnershipConflict, Part};
use crate::controllers::bundle_deployment::plan::Record;
use crate::controllers::bundle_deployment::rendering::Compared;
use crate::controllers::bundle_deployment::status::{Observation, RedactedObservation};
use crate::controllers::bundle_deployment::values;
use crate::controllers::bundle_deployment::{
    correct, deployer, observation_cache, ownership, plan,
};
use crate::controllers::claims;
use crate::controllers::conditions::READY;
use crate::controllers::queue::ReconcileKind;
use crate::error;
use crate::ledger::records::Writes;
use crate::ledger::{Containers, ReleaseKey};
use crate::public::PublicText;
use crate::public::redact::SensitiveData;
use crate::summary::ErrorMapping;

/// What was found of a release's objects, all of it: the status has the first ten.
struct Observed {
    desired: Arc<Vec<Object>>,
    modified: Vec<ModifiedStatus>,
    /// Those of the agent's own bundle that are left over from a former agent, as they were read.
    left_over: Vec<Object>,
    /// Those that are not corrected: another release has them, it is not known how they differ by now, or their kind is gone.
    left: BTreeSet<ObjectKey>,
    /// Those whose kind is gone.
    unserved: BTreeSet<ObjectKey>,
    /// Why that is not known, or which kinds are gone.
    problem: Option<(Cause, String)>,
}

/// How soon corrected objects are monitored again, if changes are not collected for less.
const CORRECTED_RECHECK: Duration = Duration::from_secs(1);

/// How soon a release is monitored again that another bundle is deploying.
const DEPLOYING_RECHECK: Duration = Duration::from_secs(10);

/// At most so many objects are read one by one.
const MAX_REREAD: usize = 8;

/// Beyond so many objects other bundles do not wait for their comparison: a second on the thread that all share, where many are missing and many patterns are
/// held against their names.
const LARGE_LOOK: usize = 256;

/// What a comparison takes into account of a bundle.
fn view<'v>(
    bundle: &'v BundleDeployment,
    owner: &'v Owner,
    rules: &'v Rules,
    mapping: &'v ErrorMapping,
    now: Timestamp,
) -> View<'v> {
    let ignored = bundle.spec.options.ignore_options.as_ref();
    View {
        rules,
        owner,
        mapping,
        ignored_conditions: ignored
            .iter()
            .flat_map(|ignore| &ignore.conditions)
            .collect(),
        now,
    }
}

/// What was found, without what is secret; none if that failed. With many secrets it takes long: other bundles do not wait for it.
async fn redacted(
    cluster: &Cluster,
    bundle: &Arc<BundleDeployment>,
    release: &Arc<StoredRelease>,
    found: Observation,
) -> Option<RedactedObservation> {
    if found.is_in_order() {
        let mut redacted = found.redact(&SensitiveData::default());
        // Nobody has looked for secrets.
        redacted.is_plain = false;
        return Some(redacted);
    }
    let (bundle, release) = (Arc::clone(bundle), Arc::clone(release));
    let redaction = move || found.redact(&values::secrets(&bundle.spec, &release));
    cluster.host().work(redaction).await.ok()
}

/// An error, without what is secret in a release, in the same way.
async fn redact_error(
    cluster: &Cluster,
    release: &Arc<StoredRelease>,
    failed: String,
) -> PublicText {
    let release = Arc::clone(release);
    let redaction = move || SensitiveData::of_release(&release).redact_text(&failed);
    let redacted = cluster.host().work(redaction).await;
    redacted.unwrap_or_else(|_| "an error that cannot be told".into())
}

/// Whether the deploy of a stored release is over.
fn is_deployed(release: &StoredRelease) -> bool {
    Record::of(Some(&release.status())) == Record::Deployed
}

/// Whether the account that monitors is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rights {
    /// The account is there.
    Held,
    /// It is gone: what the API server still grants it is enough to read, and nothing is written.
    Left,
}

impl Reconciler {
    /// Compares live objects with the release and corrects them where that is wanted. `impersonated` is the bundle's account, where it was
    /// looked up already.
    pub(super) async fn monitor(
        &self,
        state: &mut ReconcileState,
        impersonated: Option<DeploymentClient>,
        current: Current,
    ) -> Result<(), Halt> {
        let is_enabled = plan::should_monitor(&state.bundle, state.report.status());
        if !is_enabled && !state.reports_former() {
            let name = state.bundle.name();
            self.context.crd_watch.monitor_lacks_kind(name, false);
            self.note_taken(name, None);
            return Ok(());
        }
        if let Some(impersonated) = impersonated {
            return self
                .monitor_as(state, &impersonated, current, Rights::Held)
                .await;
        }
        let (identities, options) = (&self.context.identities, &state.bundle.spec.options);
        let account = identities.deployment(&options.service_account, Purpose::Monitor);
        let missing = match account.await {
            Ok(impersonated) => {
                return self
                    .monitor_as(state, &impersonated, current, Rights::Held)
                    .await;
            }
            Err(missing) => missing,
        };
        let is_gone = missing.is_missing();
        let halt = Halt::at(Cause::MonitorAccount, &state.facts)(missing);
        if is_gone && let Some(former) = self.deployed_with(state) {
            let monitored = self.monitor_as(state, &former, current, Rights::Left).await;
            if let Err(failed) = monitored {
                let (bundle, error) = (state.bundle.name(), &failed.message);
                logging::debug!(bundle, error = *error, "cannot look without the account");
            }
        }
        Err(halt)
    }

    /// The same, where it is to be done, as the bundle's account.
    async fn monitor_as(
        &self,
        state: &mut ReconcileState,
        impersonated: &DeploymentClient,
        current: Current,
        rights: Rights,
    ) -> Result<(), Halt> {
        let bundle = Arc::clone(&state.bundle);
        let crd_watch = &self.context.crd_watch;
        let (release, applied) = match current {
            Current::Deployed(release, applied) => (release, applied),
            Current::Stored(release) => (release, Vec::new()),
            Current::Missing => {
                crd_watch.monitor_lacks_kind(bundle.name(), false);
                return Ok(());
            }
            Current::Former => match self.stored(state, impersonated).await {
                Ok(Some(release)) => (release, Vec::new()),
                Ok(None) => {
                    crd_watch.monitor_lacks_kind(bundle.name(), false);
                    return Ok(());
                }
                // The release in its place needs no rights there.
                Err(failed) if error::api_code(&failed) == Some(403) => return Ok(()),
                Err(failed) => return Err(Halt::at(Cause::MonitorRelease, &state.facts)(failed)),
            },
            Current::Unread => {
                let stored = self.stored(state, impersonated).await;
                let stored = stored.map_err(Halt::at(Cause::MonitorRelease, &state.facts))?;
                // An unfinished deploy is finished first, unless that is being tried already.
                let waits = state.reports_former()
                    || rights == Rights::Left
                    || state.report.requeue().has_failed();
                let stored =
                    stored.filter(|one| waits || is_deployed(one) || self.is_outdated(state));
                match stored {
                    Some(release) => (release, Vec::new()),
                    // Adopting what is live is a deploy: it waits for the end of a hold, or for the next try.
                    None if waits => return Ok(()),
                    None => {
                        state.report.record_vanished();
                        return Ok(());
                    }
                }
            }
        };
        let release = Arc::new(release);
        if let Some(reservation) = &mut state.reservation {
            // What it is compared with is read now, which takes no longer than any monitoring.
            reservation.resume();
        }
        let is_deployed = state.report.counts_as_deployed();
        let observation = Box::pin(self.observe(state, impersonated, &release, applied));
        let observed = match is_deployed {
            // What was written just now has no other verdict.
            true => observation.await,
            false => {
                let deployer = &self.context.deployer;
                deployer
                    .unless_superseded(bundle.name(), observation)
                    .await?
            }
        };
        let observed = match observed {
            Ok(observed) => observed,
            Err(message) => {
                self.note_taken(bundle.name(), None);
                let redacted = redact_error(impersonated.cluster(), &release, message).await;
                return Err(Halt::new(Cause::Monitor, redacted));
            }
        };
        let halt = match observed.problem.clone() {
            Some((cause, problem)) => {
                let redacted = redact_error(impersonated.cluster(), &release, problem).await;
                Some(Halt::new(cause, redacted))
            }
            None => None,
        };
        if rights == Rights::Held
            && plan::may_correct(Record::of(Some(&release.status())), state.hold.is_some())
        {
            // Before a correction sends what was found.
            if let Some(halt) = &halt {
                self.report(state, halt);
            }
            // What cannot be made again is no reason to deploy anew.
            let modified = observed.modified.iter();
            let served = modified.filter(|entry| !observed.unserved.contains(&entry.key()));
            let served: Vec<_> = served.cloned().collect();
            let overwritten = plan::is_overwritten(&bundle.spec, &served);
            let is_new = self.overwritten.note(bundle.name(), overwritten);
            if bundle.metadata.deletion_timestamp.is_none() && is_new {
                state.report.overwritten_missing();
            }
            return self.correct(state, impersonated, &release, observed).await;
        }
        halt.map_or(Ok(()), Err)
    }

    /// Takes note of what the objects of a release are in: no deploy did where another agent, or an older one, deployed it.
    async fn note_containers(
        &self,
        bundle: &str,
        release: &StoredRelease,
        containers: &Containers,
    ) {
        let (namespace, name) = (release.namespace.clone(), release.name.clone());
        let key = ReleaseKey { namespace, name };
        let noted = self.context.ledger.seen_in(&key, bundle, containers);
        if let Err(failed) = noted.await {
            let error = PublicText::nothing_secret_in(&failed);
            logging::debug!(bundle, error, "what its objects are in is not noted yet");
        }
    }

    /// Compares the live objects and keeps watching them.
    async fn observe(
        &self,
        state: &mut ReconcileState,
        impersonated: &DeploymentClient,
        release: &Arc<StoredRelease>,
        applied: Vec<Value>,
    ) -> Result<Observed, String> {
        let bundle = Arc::clone(&state.bundle);
        let set = SetId::new(bundle.name(), &self.scope);
        let found = observe::objects(impersonated.cluster(), release).await;
        let Desired {
            objects: mut desired,
            mut unserved,
            containers,
        } = found.map_err(|e| error::chain(&e))?;
        self.note_containers(bundle.name(), release, &containers)
            .await;
        let (compared, reservation) = (Compared::of(release, &desired), &mut state.reservation);
        let mut held = |live| {
            if let Some(reservation) = reservation {
                reservation.hold(compared.bytes(live));
            }
        };
        // Now it can be told what they take.
        held(0);
        let written = match applied.is_empty() {
            true => None,
            false => Live::written(set.hash(), &desired, applied),
        };
        let mut live = match written {
            Some(live) => live,
            None => Live::read(impersonated.cluster(), set.hash(), &desired, held)
                .await
                .map_err(|e| error::chain(&e))?,
        };
        unserved.extend(live.take_unserved(&mut desired));
        let rules = observe::rules(impersonated.cluster(), &bundle).await;
        let rules = rules.map_err(|_| "the compare patches cannot be read")?;
        let owner = Owner::new(&release.name, &release.namespace);
        // What was found before a deploy says nothing of now.
        let former = match state.report.counts_as_deployed() {
            true => Vec::new(),
            false => state.report.status().modified_status.clone(),
        };
        let mut differences = live
            .differences(impersonated.cluster(), &owner, &desired, &rules, &former)
            .await;
        let others = live.others_than(&desired);
        let former = match others.is_empty() {
            true => FormerObjects::new(),
            false => {
                let reservation = state.reservation.as_mut();
                let read = self.former_objects(&bundle, impersonated, release, others, reservation);
                match read.await {
                    Ok(read) => read,
                    // What was left over is so until it is known not to be.
                    Err(failed) => {
                        differences.problem.get_or_insert(failed);
                        observe::told_as_left_over(&former)
                    }
                }
            }
        };
        if let Some(left_out) = live.left_out() {
            differences.problem.get_or_insert(left_out);
        }
        let is_large = desired.len() + unserved.len() > LARGE_LOOK;
        let compare = {
            let (mapping, now) = (Arc::clone(&self.mapping), state.report.now());
            let (bundle, owner) = (Arc::clone(&bundle), owner.clone());
            // With what covers it: the thread goes on where nobody waits for it any more.
            let reservation = state.reservation.take();
            move || {
                let view = view(&bundle, &owner, &rules, &mapping, now);
                let found = live.compare(&desired, &unserved, &former, &differences, &view);
                let compared = (live, desired, unserved, differences, former);
                (found, compared, reservation)
            }
        };
        let (found, compared, reservation) = match is_large {
            true => {
                let compared = impersonated.cluster().host().work(compare).await;
                compared.map_err(|_| "the objects cannot be compared")?
            }
            false => compare(),
        };
        state.reservation = reservation;
        let (live, desired, unserved, differences, former) = compared;
        let desired = Arc::new(desired);
        let kinds = observe::kinds(&desired);
        let taken = found.taken.iter();
        let taken = taken.filter(|(_, other, _)| *other != owner);
        let taken = taken.map(|(key, ..)| key.clone());
        let gone: BTreeSet<_> = unserved.iter().map(Unserved::key).collect();
        let (crd_watch, name) = (&self.context.crd_watch, bundle.name());
        crd_watch.monitor_lacks_kind(name, !gone.is_empty());
        let unjudged = differences.problem;
        let unjudged = unjudged.map(|problem| (Cause::Monitor, error::chain(&problem)));
        let problem = unjudged.or_else(|| {
            let no_matches = (!unserved.is_empty()).then(|| BuildError::no_matches(unserved))?;
            Some((
                Cause::MonitorKinds,
                error::chain(&ObjectsError::from(no_matches)),
            ))
        });
        let left_over = match bundle.is_agent_bundle() {
            true => {
                let extras = found.modified.iter().filter(|entry| entry.extra);
                live.left_over(&desired, &former, extras)
            }
            false => Vec::new(),
        };
        let observed = Observed {
            left: taken
                .chain(differences.unjudged)
                .chain(gone.iter().cloned())
                .collect(),
            unserved: gone,
            problem,
            left_over,
            modified: found.modified.clone(),
            desired: Arc::clone(&desired),
        };
        let found = redacted(impersonated.cluster(), &bundle, release, found).await;
        let found = found.ok_or("what was found of the objects cannot be told")?;
        let is_ready = self.take_in(state, found, &owner, &desired);
        let wanted = claims::desired(&bundle);
        let is_former = (&wanted.namespace, &wanted.name) != (&release.namespace, &release.name);
        if is_former || !observed.unserved.is_empty() {
            // Of a former release nothing follows for the next one; and once a kind is back anybody may make an object of it.
            self.note_taken(name, None);
            self.observation_cache.forget(name);
        }
        let drift = &self.context.drift;
        let foreign = live.foreign();
        if !foreign.is_empty() {
            // What carries no mark of ours is not watched.
            state
                .report
                .wake_after(ReconcileKind::Drift, FOREIGN_RECHECK);
        }
        drift.refresh(name, set.hash(), kinds, (live.seen(), foreign), is_ready);
        Ok(observed)
    }

    /// Reads only what changed since the bundle was last monitored. False if that is not enough to
    /// know its state.
    pub(super) async fn monitor_changed(&self, state: &mut ReconcileState) -> bool {
        let bundle = Arc::clone(&state.bundle);
        let name = bundle.name();
        let status = state.report.status();
        if !plan::may_read_changes_alone(&bundle, status) {
            return false;
        }
        let (Some(changes), Some(cached)) = (
            self.context.drift.changes(name),
            self.observation_cache.of(&bundle, &status.release),
        ) else {
            return false;
        };
        let Some(in_sync) =
            observation_cache::unchanged(&cached.in_sync, &cached.desired, &changes)
        else {
            return false;
        };
        if cached.desired.len() - in_sync.len() > MAX_REREAD {
            return false;
        }
        let account = &bundle.spec.options.service_account;
        let Ok(impersonated) = self
            .context
            .identities
            .deployment(account, Purpose::Monitor)
            .await
        else {
            return false;
        };
        let mut release = None;
        if status.ready {
            // Somebody may have deleted the record of what is ready.
            let Ok(Some(stored)) = self.stored(state, &impersonated).await else {
                return false;
            };
            if !is_deployed(&stored) {
                return false;
            }
            release = Some(stored);
        }
        let set = SetId::new(name, &self.scope);
        let Some(mut live) =
            Live::reread(impersonated.cluster(), set.hash(), &cached.desired, in_sync).await
        else {
            return false;
        };
        let Ok(rules) = observe::rules(impersonated.cluster(), &bundle).await else {
            return false;
        };
        let (owner, desired) = (&cached.owner, &cached.desired);
        let differences = live
            .differences(impersonated.cluster(), owner, desired, &rules, &[])
            .await;
        let view = view(&bundle, owner, &rules, &self.mapping, state.report.now());
        let found = live.compare(desired, &[], &FormerObjects::new(), &differences, &view);
        if !found.modified.is_empty() || found.is_partial {
            return false;
        }
        let found = if found.is_in_order() || cached.is_plain {
            let mut redacted = found.redact(&SensitiveData::default());
            redacted.is_plain = cached.is_plain;
            redacted
        } else {
            if release.is_none() {
                release = self.stored(state, &impersonated).await.ok().flatten();
            }
            let Some(release) = release.map(Arc::new) else {
                return false;
            };
            match redacted(impersonated.cluster(), &bundle, &release, found).await {
                Some(found) => found,
                None => return false,
            }
        };
        let is_ready = self.take_in(state, found, owner, desired);
        self.context.drift.update(name, live.seen(), is_ready);
        true
    }

    /// Takes what was found into the status, and remembers a bundle in motion. Says whether it is ready.
    fn take_in(
        &self,
        state: &mut ReconcileState,
        found: RedactedObservation,
        owner: &Owner,
        desired: &Arc<Vec<Object>>,
    ) -> bool {
        let bundle = &state.bundle;
        if found.all.modified.is_empty() && !found.all.is_partial {
            let owner = owner.clone();
            let (release, desired) = (&state.report.status().release, Arc::clone(desired));
            self.observation_cache
                .keep(bundle, release, owner, desired, &found);
        } else {
            self.observation_cache.forget(bundle.name());
        }
        let generation = bundle.spec.options.force_sync_generation;
        // Anyone may make, or take, an object that is not marked. What the bundle has under a former name is its own.
        let may_be_foreign = |marked: &Option<Owner>| {
            let marked = marked.as_ref();
            marked.is_none_or(|marked| {
                marked != owner && self.holder(marked, bundle.name()).is_some()
            })
        };
        let unowned = found.all.unowned.iter();
        let unowned = unowned.filter(|(_, marked)| may_be_foreign(marked));
        let taken: BTreeSet<_> = unowned.map(|(key, _)| key.clone()).collect();
        if !taken.is_empty() {
            // An object that is in order otherwise is not read again, and so would not be among these.
            self.observation_cache.forget(bundle.name());
        }
        let mut lost = Vec::new();
        let others = found.all.taken.iter().filter(|one| one.1 != *owner);
        for (key, other, since) in others {
            if let Some(holder) = self.holder(other, bundle.name()) {
                let since = since.clone();
                lost.push(OwnershipConflict::object(key, holder, since, bundle.name()));
            }
        }
        self.note_taken(bundle.name(), Some(taken));
        let others = self.context.store.all();
        let conflicts = ownership::of_others(bundle.name(), others.iter().map(AsRef::as_ref));
        if !conflicts.is_empty() {
            // No event wakes this bundle when the other one releases its objects, so check again later.
            state
                .report
                .wake_after(ReconcileKind::Drift, FOREIGN_RECHECK);
        }
        state.report.ownership_conflicts(Part::Objects, lost);
        state.report.ownership_conflicts(Part::Ours, conflicts);
        state.report.observed(found, generation);
        state.report.status().condition(READY) == "True"
    }

    /// Who has what carries a release's marks; none if it is the bundle itself, under a former name.
    fn holder(&self, owner: &Owner, bundle: &str) -> Option<Holder> {
        let key = ReleaseKey {
            namespace: owner.namespace.clone(),
            name: owner.name.clone(),
        };
        match self.context.ledger.get(&key) {
            Some(entry) if entry.bundle == bundle => None,
            Some(entry) => Some(Holder::Bundle(entry.bundle)),
            None => Some(Holder::Release(format!("{}/{}", key.namespace, key.name))),
        }
    }

    /// Those of `others` that are objects of the revision before: they were left over from it, and what else there is has copied our label. `held` is what
    /// the look has reserved.
    async fn former_objects(
        &self,
        bundle: &BundleDeployment,
        impersonated: &DeploymentClient,
        release: &Release,
        others: BTreeSet<KindAndName>,
        mut held: Option<&mut Reservation>,
    ) -> Result<FormerObjects, ObserveError> {
        let records = self.records(bundle, impersonated, &release.namespace, Writes::Deploys);
        let revision = release.revision.saturating_sub(1);
        // Another reservation is waited for: who waits must not be waited for.
        if let Some(held) = &mut held {
            held.rest();
        }
        let former = records.in_revision(impersonated.cluster(), &release.name, revision, others);
        let former = former.await;
        if let Some(held) = held {
            held.resume();
        }
        former
    }

    /// Deletes what the agent's own bundle has left over from a former agent, as far as its marks prove that it is the release's. None of it where
    /// somebody has gone on with the release since it was looked at: who does so writes a record first.
    async fn remove_left_over(
        &self,
        bundle: &BundleDeployment,
        impersonated: &DeploymentClient,
        release: &Release,
        left_over: &[Object],
    ) {
        if left_over.is_empty() {
            return;
        }
        let records = self.records(bundle, impersonated, &release.namespace, Writes::Deploys);
        let Ok(history) = records.history(&release.name).await else {
            return;
        };
        if history
            .iter()
            .any(|record| record.revision > release.revision)
        {
            return;
        }
        let (cluster, owner) = (
            impersonated.cluster(),
            Owner::new(&release.name, &release.namespace),
        );
        for object in left_over {
            let bundle = bundle.name();
            match release::kube::delete_left_over(cluster, &owner, object).await {
                Ok(Removal::Deleted) => {
                    logging::info!(
                        bundle,
                        object = object.describe(),
                        "of a former agent, deleted"
                    );
                }
                Ok(_) => {}
                Err(failed) => {
                    let error = release::error_unquoted(&failed);
                    logging::warn!(bundle, error, "failed cleaning old agent");
                }
            }
        }
    }

    /// Puts drifted objects right, if that is wanted and did not just fail to help.
    async fn correct(
        &self,
        state: &mut ReconcileState,
        impersonated: &DeploymentClient,
        release: &Arc<StoredRelease>,
        observed: Observed,
    ) -> Result<(), Halt> {
        let bundle = Arc::clone(&state.bundle);
        let name = bundle.name();
        let correction = bundle.spec.correct_drift();
        let is_enabled = correction.enabled || bundle.is_agent_bundle();
        if !is_enabled {
            state.report.postponed_corrections(Vec::new());
        }
        if !is_enabled || bundle.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let key = ReleaseKey {
            namespace: release.namespace.clone(),
            name: release.name.clone(),
        };
        let lock = self.context.release_locks.take(&key, name).ok();
        let lock = lock.filter(|_| self.conflicting_bundle(state, &key).is_none());
        let Some(_release_lock) = lock else {
            // Another bundle's deploy writes these objects; its outcome tells the owner.
            state
                .report
                .wake_after(ReconcileKind::Drift, DEPLOYING_RECHECK);
            return Ok(());
        };
        self.remove_left_over(&bundle, impersonated, release, &observed.left_over)
            .await;
        let drifted = correct::correctable(&observed.modified, &observed.left);
        let now = state.report.now();
        let status = state.report.status().clone();
        let (due, fought, rests) = self.attempts(name, &status, now, |attempts| {
            let due = attempts.due(&drifted, now);
            (due, attempts.lines(), attempts.rests_after())
        });
        state.report.postponed_corrections(fought);
        for pause in due.again.into_iter().chain(rests) {
            state.report.wake_after(ReconcileKind::Drift, pause);
        }
        if let Some(problem) = &due.problem {
            state.report.correction_postponed(problem);
        }
        if due.now.is_empty() {
            return Ok(());
        }
        // Upstream learns what was found before it is put right. One that does not answer holds up no correction.
        if !self.context.health.is_cut_off(Side::Upstream) {
            let written = self.write_status(state).await;
            self.note(state, written);
        }
        let (cluster, desired) = (impersonated.cluster(), &observed.desired);
        match correct::apply(cluster, release, desired, &due.now, correction.force).await {
            Ok(conflicts) => {
                state.report.corrected(&due.now, &conflicts);
                let pause = self.timing.drift_delay.min(CORRECTED_RECHECK);
                state.report.wake_after(ReconcileKind::Drift, pause);
                Ok(())
            }
            Err(failed) => {
                let redacted = redact_error(cluster, release, error::chain(&failed)).await;
                let halt = Halt::new(Cause::Correct, redacted);
                let status = state.report.status();
                self.attempts(name, status, now, |attempts| attempts.failed(&halt.message));
                if correction.keep_fail_history {
                    let kept = deployer::max_history(&bundle.spec.options);
                    let failures = Writes::FailedCorrections;
                    let records = self.records(&bundle, impersonated, &release.namespace, failures);
                    let now = state.report.now();
                    correct::record_failure(records.storage(), release, &halt.message, kept, now)
                        .await;
                }
                Err(halt)
            }
        }
    }

    /// The corrections of a bundle that have not helped so far; what an earlier process knew of them is in the status.
    fn attempts<T>(
        &self,
        bundle: &str,
        status: &BundleDeploymentStatus,
        now: Timestamp,
        act: impl FnOnce(&mut Attempts) -> T,
    ) -> T {
        let mut all = self.corrections.lock();
        let attempts = all.entry(bundle.to_owned());
        act(attempts.or_insert_with(|| Attempts::read(status, now)))
    }
}
