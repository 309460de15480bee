//! One reconcile of one BundleDeployment: its steps in the order of `bundledeployment_controller.go`.
//!
//! This file is the flow, from the BundleDeployment to its status; `gone.rs` is what becomes of one that is not there. The steps are in
//! `prerequisites.rs`, `deploy_step.rs`, which asks `changed_source.rs` whether what a bundle only names has changed and `postponed.rs` what has to wait, and
//! `monitor.rs`; `stored.rs` reads the release they are about. A step returns a result or a [`Halt`], and [`Report`] decides what that means.

mod changed_source;
mod deploy_step;
mod gone;
mod monitor;
mod postponed;
mod prerequisites;
mod stored;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use chart::source::Reservation;
use kube::Api;
use kube::api::{Patch, PatchParams};
use objects::ObjectKey;
use parking_lot::Mutex;
use release::storage::StoredRelease;
use serde_json::Value;
use tokio::time::Instant;

use super::correct::Attempts;
use super::deployer::Deployer;
use super::halt::{Cause, Halt, InputError};
use super::observation_cache::ObservationCache;
use super::outcome::Report;
use super::ownership::OwnershipConflicts;
use super::plan;
use crate::api::{BundleDeployment, BundleDeploymentStatus, LeftOut, TooMany};
use crate::bundle::SetId;
use crate::client::health::{Health, Side};
use crate::client::identity::{Identities, Purpose};
use crate::client::listed::RawObject;
use crate::config::{Settings, Timing};
use crate::controllers::claims::{self, ReleaseId, ReleaseLocks};
use crate::controllers::conditions::MONITORED;
use crate::controllers::crd_watch::CrdWatch;
use crate::controllers::deployed_ids::DeployedIds;
use crate::controllers::downstream_resources::{RolledOutCopies, UnnotedCopies};
use crate::controllers::drift_watch::DriftWatches;
use crate::controllers::facts::Facts;
use crate::controllers::garbage::Collector;
use crate::controllers::queue::{ReconcileKind, Requeue};
use crate::controllers::status_patch;
use crate::controllers::store::Store;
use crate::controllers::suspension::suspend_reason;
use crate::controllers::values_watch::ValuesWatches;
use crate::error;
use crate::ledger::Ledger;
use crate::public::PublicText;
use crate::public::redact::SensitiveData;
use crate::register::Upstream;
use crate::report::events::Events;
use crate::report::metrics::Entries;
use crate::summary::ErrorMapping;

/// How long upstream may be late with values or downstream resources before the status shows it.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long the status of what was just deployed waits for it to be ready.
const HOLD: Duration = Duration::from_millis(1_500);

/// Memory for reading large options before their size is known, in bytes; most come to less.
const LARGE_OPTIONS: u64 = 8 << 20;

/// What a condition says where the cluster does not serve a kind, as Helm does.
const NO_MATCH: &str = "no matches for kind";

/// How soon objects that somebody else has are monitored again.
const FOREIGN_RECHECK: Duration = Duration::from_secs(5 * 60);

/// Reconciles BundleDeployments.
pub struct Reconciler {
    timing: Timing,
    scope: String,
    upstream: Upstream,
    context: Context,
    mapping: Arc<ErrorMapping>,
    observation_cache: ObservationCache,
    /// Since when bundles wait for something that upstream has not delivered.
    waiting: Mutex<HashMap<String, Instant>>,
    corrections: Mutex<HashMap<String, Attempts>>,
    /// The releases that upstream's statuses name and the ledger does not know, once they were read, by bundle.
    records_read: Mutex<HashMap<String, String>>,
    /// Objects of bundles that another release has or nobody, all of them, as last monitored: the next deploy reads them before it writes
    /// them. Nothing of a bundle that is not monitored.
    taken: Mutex<HashMap<String, BTreeSet<ObjectKey>>>,
    overwritten: Overwritten,
    /// What the copies of upstream resources said that releases were deployed with.
    rolled_out_copies: RolledOutCopies,
}

/// Bundles an object of which was last found missing that they overwrite: the status names ten objects at most.
#[derive(Default)]
struct Overwritten(Mutex<BTreeSet<String>>);

impl Overwritten {
    fn has(&self, bundle: &str) -> bool {
        self.0.lock().contains(bundle)
    }

    /// Notes whether an overwritten object is missing; true where none was before: from then on each deploy says itself when it is tried again.
    fn note(&self, bundle: &str, is_missing: bool) -> bool {
        let mut bundles = self.0.lock();
        match is_missing {
            true => bundles.insert(bundle.to_owned()),
            false => {
                bundles.remove(bundle);
                false
            }
        }
    }
}

/// What a reconciler works with; all of it outlives a reconcile.
pub struct Context {
    pub identities: Arc<Identities>,
    pub store: Arc<Store>,
    pub ledger: Arc<Ledger>,
    pub drift: Arc<DriftWatches>,
    pub crd_watch: Arc<CrdWatch>,
    pub events: Arc<Events>,
    pub health: Health,
    pub collector: Arc<Collector>,
    pub facts: Arc<Facts>,
    pub values_watches: Arc<ValuesWatches>,
    pub deployer: Deployer,
    pub deployed_ids: Arc<DeployedIds>,
    pub release_locks: ReleaseLocks,
    /// Copies of upstream resources of which only this session knows which version was rolled out.
    pub unnoted_copies: UnnotedCopies,
}

/// One reconcile under way.
struct ReconcileState {
    /// With its `${ }` filled in, as soon as they are.
    bundle: Arc<BundleDeployment>,
    /// Namespace and name of its release as they are written, if they are filled in.
    names: Option<String>,
    /// Why the site holds changes, while it does.
    hold: Option<PublicText>,
    report: Report,
    /// What the bundle's names may be filled in with, once it is known.
    facts: Arc<SensitiveData>,
    /// What the release that was read takes of the memory that all reconciles share.
    reservation: Option<Reservation>,
    /// Memory of options that the store leaves out.
    options: Option<Reservation>,
}

/// The release that live objects are compared with, as far as it was read by now.
enum Current {
    /// The record was not read yet.
    Unread,
    /// The record is not in storage.
    Missing,
    /// Another release than is wanted: the status names it, and nothing of it decides about a deploy.
    Former,
    /// The release as it is in storage.
    Stored(StoredRelease),
    /// Deployed a moment ago, with the answers to what was written, if that is all there can be.
    Deployed(StoredRelease, Vec<Value>),
}

impl ReconcileState {
    /// The release that the status names.
    fn named(&self) -> Option<ReleaseId> {
        ReleaseId::parse(&self.report.status().release)
    }

    /// Whether what was deployed before the site held changes is what there is to report.
    fn reports_former(&self) -> bool {
        self.hold.is_some() && !self.report.status().release.is_empty()
    }

    /// Whether an object that the bundle overwrites was missing when somebody looked last: by the status as it is to be sent, as upstream may refuse it.
    fn is_overwritten(&self) -> bool {
        let delivered = self.report.status();
        // What is missing with its kind is among them, and cannot be made.
        let mut conditions = delivered.conditions.iter();
        let lacks_kind =
            conditions.any(|one| one.type_ == MONITORED && one.message.contains(NO_MATCH));
        !lacks_kind && plan::is_overwritten(&self.bundle.spec, &delivered.modified_status)
    }

    /// The release to compare live objects with, where nothing was deployed now; `wanted` is the stored record of the desired release.
    fn current(&self, wanted: Option<StoredRelease>) -> Current {
        let desired = claims::desired(&self.bundle);
        match (wanted, self.named()) {
            (Some(release), _) => Current::Stored(release),
            (None, Some(named)) if named.key() != desired => Current::Former,
            (None, _) => Current::Missing,
        }
    }
}

impl Reconciler {
    /// A reconciler for one session.
    pub fn new(settings: &Settings, upstream: &Upstream, context: Context) -> Self {
        Self {
            timing: settings.timing,
            scope: settings.scope.clone(),
            upstream: upstream.clone(),
            mapping: Arc::new(settings.error_mapping.clone()),
            context,
            observation_cache: ObservationCache::default(),
            waiting: Mutex::default(),
            corrections: Mutex::default(),
            records_read: Mutex::default(),
            taken: Mutex::default(),
            overwritten: Overwritten::default(),
            rolled_out_copies: RolledOutCopies::default(),
        }
    }

    /// Brings one BundleDeployment to what its spec wants, and says when to come back to it.
    ///
    /// # Expected flow
    /// The steps of `bundledeployment_controller.go`, in its order (numbers are those of `tests/fixtures/requirements.tsv`):
    /// 1. A BundleDeployment that is not there may have releases to remove (4.6).
    /// 2. What another agent deployed for it is entered into the ledger, once. One that is paused, off schedule or waiting for values is left alone (4.7).
    /// 3. [`ReconcileKind::Full`]: `${ }` is filled in; names, target namespace, release and account are checked (4.8 to 4.12); downstream
    ///    resources are copied (4.13); dependencies are checked (4.18); what changed is deployed (4.23).
    /// 4. Live objects are compared with the release, and corrected where that is wanted (4.28 to 4.34).
    /// 5. The status is sent upstream if it changed, Events are handed over.
    ///
    /// # Guarantees
    /// - Status is written once, at the end; before drift is corrected it is written as well where upstream answers, so that it learns of the
    ///   drift. What was just deployed and is not ready yet is written a moment later, mostly when it is.
    /// - Equal content leads to no write, downstream or upstream.
    /// - Nothing is deployed or corrected of a release that another bundle has.
    ///
    /// # Assumptions
    /// One bundle is never reconciled twice at once; [`Queue`](crate::controllers::queue::Queue) sees to that.
    ///
    /// # Errors
    /// None come out: a step that fails ends in a [`Halt`], which [`Report`] turns into a condition, an Event and a [`Requeue`].
    ///
    /// # Cancellation
    /// Safe: every `.await` may be the last. What was begun is found and finished by the next reconcile.
    pub async fn reconcile(&self, name: &str, kind: ReconcileKind) -> Requeue {
        let Some(bundle) = self.context.store.get(name) else {
            return self.gone(name).await;
        };
        let keeps = bundle.spec.options.keep_resources;
        self.context.collector.is_back(name, keeps).await;
        let imported = self.import(&bundle).await;
        if let Some(reason) = suspend_reason(&bundle.spec) {
            logging::debug!(bundle = name, reason, "suspended");
            self.context.drift.clear(name);
            self.context.crd_watch.forget(name);
            self.note_taken(name, None);
            return imported.requeue();
        }
        let held = self.observation_cache.take_held(&bundle);
        let status = held.unwrap_or_else(|| bundle.status.clone());
        let hold = self.context.facts.hold(name).await;
        let now = self.context.identities.agent().now();
        let mut state = ReconcileState {
            report: Report::new(&bundle, status, self.timing, now),
            names: claims::template(&bundle),
            bundle,
            hold,
            facts: Arc::default(),
            reservation: None,
            options: None,
        };
        let set = SetId::new(name, &self.scope);
        self.context.drift.begin(name, set.hash());
        let outcome = match (self.complete(&mut state).await, kind) {
            (Ok(()), ReconcileKind::Full) => self.full(&mut state).await,
            (Ok(()), ReconcileKind::Drift) => self.drift(&mut state).await,
            (Err(halt), _) => Err(halt),
        };
        self.note(&mut state, outcome);
        if state.report.counts_as_deployed() {
            self.note_deployed(&state.bundle, state.report.status().release.clone());
        }
        self.context.drift.end(name);
        if state.report.is_coming_up(&state.bundle) {
            // Most are ready a moment later: one write for both.
            let status = state.report.status().clone();
            self.observation_cache.hold(&state.bundle, status);
            state.report.wake_after(ReconcileKind::Drift, HOLD);
        } else {
            let written = self.write_status(&state).await;
            if written.is_err() {
                // A reconcile for drift knows nothing of a deploy but from the status.
                let status = state.report.status().clone();
                self.observation_cache.hold(&state.bundle, status);
            }
            self.note(&mut state, written);
        }
        for (kind, pause) in state.report.take_wakes() {
            self.context.drift.wake_after(name, kind, pause);
        }
        let (events, requeue) = state.report.finish();
        for (reason, text) in events {
            self.context.events.emit(reason, name, text);
        }
        requeue
    }

    /// Asks for a BundleDeployment whose options are too large to be kept.
    async fn complete(&self, state: &mut ReconcileState) -> Result<(), Halt> {
        let refused = |too_many: &TooMany| {
            let why = PublicText::nothing_secret_in(too_many);
            Err(Halt::new(Cause::TooMany, why))
        };
        match &state.bundle.spec.left_out {
            None => return Ok(()),
            Some(LeftOut::Refused(_, too_many)) => return refused(too_many),
            Some(LeftOut::Large(_)) => {}
        }
        let mut reservation = self.context.deployer.memory().reserve(LARGE_OPTIONS).await;
        let bundles = self
            .upstream
            .bundle_deployments::<RawObject<BundleDeployment>>();
        let asked = asked_again(&bundles, &state.bundle, &state.facts);
        let (bundle, weight) = asked.await?;
        if let Some(LeftOut::Refused(_, too_many)) = &bundle.spec.left_out {
            return refused(too_many);
        }
        reservation.hold(weight as u64);
        reservation.rest();
        state.options = Some(reservation);
        state.bundle = Arc::new(bundle);
        Ok(())
    }

    /// The steps of a full reconcile.
    async fn full(&self, state: &mut ReconcileState) -> Result<(), Halt> {
        let filled = self.context.deployer.values.fill(&state.bundle).await;
        let filled = match filled.map_err(InputError::at(Cause::FillIn)) {
            Ok(filled) => filled,
            Err(halt) => {
                self.report(state, &halt);
                // The release that was deployed before is still monitored.
                return self.monitor(state, None, Current::Unread).await;
            }
        };
        state.bundle = Arc::clone(&filled.bundle);
        state.facts = Arc::clone(&filled.secrets);
        let desired = claims::desired(&state.bundle);
        let collector = &self.context.collector;
        collector.is_filled(state.bundle.name(), &desired);
        let noted = collector.wants(state.bundle.name(), &desired, state.names.as_deref());
        let noted = noted.await.map_err(Halt::at(Cause::Ledger, &state.facts));
        self.note(state, noted);
        self.check_names(state)?;
        self.check_target_namespace(state).await?;
        self.check_release_is_free(state)?;
        let (identities, options) = (&self.context.identities, &state.bundle.spec.options);
        let account = identities.deployment(&options.service_account, Purpose::Deploy);
        let impersonated = match account.await {
            Ok(impersonated) => impersonated,
            Err(failed) => {
                let is_gone = failed.is_missing();
                let halt = Halt::at(Cause::DeployAccount, &state.facts)(failed);
                return match is_gone {
                    true => self.without_account(state, &filled, halt).await,
                    false => Err(halt),
                };
            }
        };
        let current = match state.hold.clone() {
            Some(hold) => self.hold(state, &impersonated, &filled, &hold).await?,
            None => {
                self.watch_values(state, &impersonated);
                let changed = self.copy_resources(state, &impersonated).await?;
                self.check_dependencies(state)?;
                let deploy = self.deploy_if_needed(state, &impersonated, &filled, changed.state());
                let current = deploy.await?;
                if matches!(current, Current::Deployed(..)) {
                    self.check_downstream_resources(state, &impersonated, changed)
                        .await;
                }
                current
            }
        };
        self.monitor(state, Some(impersonated), current).await
    }

    /// Monitors and corrects alone. A release that another bundle has is left to it.
    async fn drift(&self, state: &mut ReconcileState) -> Result<(), Halt> {
        let desired = self.context.store.desired(&state.bundle);
        let taken = desired.and_then(|key| Some((self.conflicting_bundle(state, &key)?, key)));
        if let Some((other, key)) = taken {
            // Where the owner is not known yet, a full reconcile finds out.
            return match self.has_lost(state, &key, &other) {
                true => Err(self.refuse_taken(state, &key, &other)),
                false => Ok(()),
            };
        }
        if self.monitor_changed(state).await {
            return Ok(());
        }
        self.monitor(state, None, Current::Unread).await
    }

    /// Reports a halt, where there is one.
    fn note(&self, state: &mut ReconcileState, outcome: Result<(), Halt>) {
        if let Err(halt) = outcome {
            self.report(state, &halt);
        }
    }

    /// Reports a halt. What upstream has not delivered yet shows in the status once it is late.
    fn report(&self, state: &mut ReconcileState, halt: &Halt) {
        let is_late = halt.waits_for_upstream() && self.waited(state.bundle.name()) > PATIENCE;
        state.report.halt(halt, is_late);
    }

    /// Forgets what is remembered of bundles that have come to rest, and of their charts.
    pub fn forget_resting(&self) {
        self.observation_cache.forget_resting();
        self.context.deployer.templates.clear();
        let (store, ledger) = (&self.context.store, &self.context.ledger);
        let is_known = |name: &str| store.get(name).is_some() || !ledger.of_bundle(name).is_empty();
        self.context.deployed_ids.retain(is_known);
        self.corrections
            .lock()
            .retain(|_, attempts| !attempts.forget_resting());
    }

    /// How many entries each map holds that remembers something of bundles, releases or accounts.
    pub fn entries(&self) -> Entries {
        fn len<K, V>(map: &Mutex<HashMap<K, V>>) -> usize {
            map.lock().len()
        }
        let context = &self.context;
        let mut entries = vec![
            ("bundles_waiting_for_upstream", len(&self.waiting)),
            ("corrected_bundles", len(&self.corrections)),
            ("deployed_bundles", context.deployed_ids.count()),
            ("looked_up_releases", len(&self.records_read)),
            ("bundles_without_their_objects", len(&self.taken)),
            (
                "bundles_with_unnoted_copies",
                context.unnoted_copies.count(),
            ),
            (
                "bundles_with_rolled_out_copies",
                self.rolled_out_copies.count(),
            ),
            ("locked_releases", context.release_locks.count()),
        ];
        entries.extend(self.observation_cache.entries());
        entries.extend(context.identities.entries());
        entries.extend(context.store.entries());
        entries.extend(context.ledger.entries());
        entries.extend(context.drift.entries());
        entries.extend(context.crd_watch.entries());
        entries.extend(context.collector.entries());
        entries.extend(context.facts.entries());
        entries.extend(context.values_watches.entries());
        entries.extend(context.deployer.entries());
        entries
    }

    /// The objects of a bundle that others have; nothing if nobody has looked, or not since it was left alone.
    fn taken(&self, bundle: &str) -> Option<BTreeSet<ObjectKey>> {
        self.taken.lock().get(bundle).cloned()
    }

    fn note_taken(&self, bundle: &str, found: Option<BTreeSet<ObjectKey>>) {
        let mut taken = self.taken.lock();
        match found {
            Some(found) => taken.insert(bundle.to_owned(), found),
            None => taken.remove(bundle),
        };
    }

    /// How long a bundle has waited for upstream, since the first call.
    fn waited(&self, name: &str) -> Duration {
        let mut waiting = self.waiting.lock();
        waiting
            .entry(name.to_owned())
            .or_insert_with(Instant::now)
            .elapsed()
    }

    /// No deploy waits for anything any more. How often corrections did not help is another matter.
    fn forget(&self, name: &str) {
        self.context.crd_watch.deploy_lacks_kind(name, false);
        self.waiting.lock().remove(name);
    }

    /// Sends the status upstream if it says anything new. That the BundleDeployment is gone is no failure.
    async fn write_status(&self, state: &ReconcileState) -> Result<(), Halt> {
        let status = state.report.status().fitting(&state.bundle.spec);
        let mut sent = self.send_status(state, &status).await;
        if sent.as_ref().is_err_and(is_too_large) {
            // Else the former one would stay, whatever that says.
            sent = self.send_status(state, &state.report.status().lean()).await;
        }
        sent.map_err(Halt::at(Cause::UpdateStatus, &state.facts))
    }

    async fn send_status(
        &self,
        state: &ReconcileState,
        status: &BundleDeploymentStatus,
    ) -> Result<(), kube::Error> {
        let name = state.bundle.name();
        let known = self
            .context
            .store
            .get(name)
            .filter(|now| now.metadata.uid == state.bundle.metadata.uid);
        let Some(known) = known else { return Ok(()) };
        let Some(sent) = status_patch::patch(&known.status, status) else {
            return Ok(());
        };
        let bundles = self
            .upstream
            .bundle_deployments::<RawObject<BundleDeployment>>();
        self.context.store.writing(name, status);
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(&sent));
        match bundles.patch_status(name, &parameters, &patch).await {
            Ok(answer) => {
                // The watch event of this write may never come, from an upstream that is restored at once.
                let version = answer.metadata.resource_version.as_deref();
                self.context.ledger.saw_version(version);
                // An answer that cannot be read comes from the watch as well.
                let (store, drift) = (&self.context.store, &self.context.drift);
                if let Ok(answer) = answer.kept() {
                    let is_written_over =
                        status_patch::is_written_over(&sent, &answer.status, status);
                    let written = store.wrote(name, answer);
                    // Its event will bring nothing new either. What was not taken in the watch has still to tell.
                    let anew = written.as_ref().filter(|_| is_written_over);
                    let anew = anew.map(|_| name.to_owned());
                    for waiting in written.iter().flatten().chain(&anew) {
                        drift.wake_after(waiting, ReconcileKind::Full, Duration::ZERO);
                    }
                }
                // The owner reports the conflict too.
                let owners_of = |status| OwnershipConflicts::read(name, status).owners();
                for owner in owners_of(&known.status).symmetric_difference(&owners_of(status)) {
                    drift.wake_after(owner, ReconcileKind::Drift, Duration::ZERO);
                }
            }
            Err(failed) if error::is_not_found(&failed) => {}
            Err(failed) => {
                if !matches!(failed, kube::Error::Api(_)) {
                    self.context.health.trouble(Side::Upstream);
                }
                return Err(failed);
            }
        }
        Ok(())
    }
}

/// Reads a BundleDeployment whose options the store leaves out, and what they weigh. One that changed since the watch told it is left to the watch: what is
/// reported, and noted in the ledger, is of what it told.
async fn asked_again(
    bundles: &Api<RawObject<BundleDeployment>>,
    delivered: &BundleDeployment,
    facts: &SensitiveData,
) -> Result<(BundleDeployment, usize), Halt> {
    // A BundleDeployment that is gone is reported by the watch.
    let received = bundles.get(delivered.name()).await;
    let received = received.map_err(Halt::at(Cause::WaitForUpstream, facts))?;
    let is_delivered = received.has_identity_of(delivered);
    if !is_delivered.map_err(Halt::at(Cause::FillIn, facts))? {
        return Err(Halt::new(
            Cause::NotDeliveredYet,
            "the bundle has changed meanwhile",
        ));
    }
    received.whole().map_err(Halt::at(Cause::FillIn, facts))
}

/// Whether an object was refused for its size: by the API server, or by etcd in words alone.
fn is_too_large(failed: &kube::Error) -> bool {
    match failed {
        kube::Error::Api(status) => {
            let message = &status.message;
            status.code == 413
                || message.contains("request is too large")
                || message.contains("message larger than max")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::client::scripted;

    /// Of a bundle, with this status to begin with.
    fn state(bundle: BundleDeployment, status: BundleDeploymentStatus) -> ReconcileState {
        let (timing, now) = (Timing::default(), Timestamp::UNIX_EPOCH);
        ReconcileState {
            report: Report::new(&bundle, status, timing, now),
            names: None,
            bundle: Arc::new(bundle),
            hold: None,
            facts: Arc::default(),
            reservation: None,
            options: None,
        }
    }

    /// What is deployed would be newer than what the status and the ledger say is.
    #[rstest]
    #[case::the_same(1, json!({}), 'x', Ok(()))]
    #[case::after_a_status(1, json!({"release": "shop/web:1"}), 'x', Ok(()))]
    #[case::of_another_generation(2, json!({}), 'x', Err(Cause::NotDeliveredYet))]
    #[case::restored_and_changed_anew(1, json!({}), 'y', Err(Cause::NotDeliveredYet))]
    #[tokio::test]
    async fn large_options_that_the_watch_has_not_told_yet_are_not_worked_on(
        #[case] generation: i64,
        #[case] status: Value,
        #[case] filler: char,
        #[case] expected: Result<(), Cause>,
    ) {
        let bundle = |generation: i64, status: &Value, filler: char| {
            let values = json!({"text": filler.to_string().repeat(600 << 10)});
            json!({
                "apiVersion": "fleet.cattle.io/v1alpha1", "kind": "BundleDeployment",
                "metadata": {"namespace": "up", "name": "web", "uid": "u", "generation": generation},
                "spec": {"deploymentID": format!("s-{generation}:a"), "options": {"helm": {"values": values}}},
                "status": status,
            })
        };
        let delivered = serde_json::to_string(&bundle(1, &json!({}), 'x')).unwrap();
        let delivered: RawObject<BundleDeployment> = serde_json::from_str(&delivered).unwrap();
        let delivered = delivered.kept().unwrap();
        assert!(matches!(delivered.spec.left_out, Some(LeftOut::Large(_))));
        let upstream = Arc::new(bundle(generation, &status, filler));
        let clients = scripted::clients(move |_| {
            let found = Arc::clone(&upstream);
            async move { (200, (*found).clone()) }
        });
        let client = scripted::identities(&clients).agent().client();
        let bundles = Api::namespaced(client, "up");
        let nothing = SensitiveData::default();
        let asked = asked_again(&bundles, &delivered, &nothing);
        let asked = asked.await.map(|(bundle, _)| {
            assert_eq!(bundle.spec.deployment_id, delivered.spec.deployment_id);
            assert_eq!(bundle.spec.left_out, None);
        });
        assert_eq!(asked.map_err(|halt| halt.cause), expected);
    }

    /// The object was deployed anew since, and upstream refused the status that says so: it is not deployed once more each time.
    #[test]
    fn a_redeployed_object_is_not_missing_though_upstream_refused_the_status() {
        let bundle: BundleDeployment = serde_json::from_value(json!({
            "metadata": {"name": "web"},
            "spec": {"options": {"overwrites": [{"kind": "ConfigMap", "namespace": "shop", "name": "a"}]}},
            "status": {"modifiedStatus": [
                {"kind": "ConfigMap", "namespace": "shop", "name": "a", "missing": true},
            ]},
        }))
        .unwrap();
        let upstreams = bundle.status.clone();
        let unsent = BundleDeploymentStatus::default();
        assert!(state(bundle.clone(), upstreams).is_overwritten());
        assert!(!state(bundle.clone(), unsent).is_overwritten());
        // With its kind it went for good; for another reason nobody knows how it stands by now.
        for (why, expected) in [
            ("failed to list Widget: busy", true),
            ("no matches for kind \"ConfigMap\" in version \"v1\"", false),
        ] {
            let mut status = bundle.status.clone();
            let why = PublicText::from(why);
            status.set_condition(MONITORED, Err(&why), Timestamp::UNIX_EPOCH);
            assert_eq!(state(bundle.clone(), status).is_overwritten(), expected);
        }
    }

    /// The bundle's redeploy waits for an hour, or it is installed once: monitoring is no reason to try before.
    #[test]
    fn a_missing_overwritten_object_asks_for_one_deploy_until_it_is_back() {
        let overwritten = Overwritten::default();
        assert!(overwritten.note("web", true));
        assert!(!overwritten.note("web", true) && overwritten.has("web"));
        // The object is there, and goes again.
        assert!(!overwritten.note("web", false) && !overwritten.has("web"));
        assert!(overwritten.note("web", true));
    }

    /// A release in a namespace that a bundle has left decides nothing, and today's account may have no rights there.
    #[rstest]
    #[case::of_another_namespace("before/web:7", "Former")]
    #[case::of_another_name("shop/before:7", "Former")]
    #[case::the_one_that_is_wanted("shop/web:7", "Missing")]
    #[case::of_nothing("", "Missing")]
    fn a_release_of_another_name_or_namespace_is_former_and_not_missing(
        #[case] release: &str,
        #[case] expected: &str,
    ) {
        let bundle: BundleDeployment = serde_json::from_value(json!({
            "metadata": {"name": "web"}, "status": {"release": release},
            "spec": {"options": {"defaultNamespace": "shop", "helm": {"releaseName": "web"}}},
        }))
        .unwrap();
        let status = bundle.status.clone();
        let state = state(bundle, status);
        let current = match state.current(None) {
            Current::Former => "Former",
            Current::Missing => "Missing",
            _ => "something else",
        };
        assert_eq!(current, expected);
    }
}
