//! One pass over one BundleDeployment: the deeds between the decisions of [`super::plan`].
//!
//! Mirrors the order of `bundledeployment_controller.go` (agent 4.6 to 4.34). Status is collected
//! and written once, at the end. `deploy.rs` has the deploy itself, `monitor.rs` what
//! follows it.

mod deploy;
mod monitor;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use release::model::Release;
use release::storage::{KnownDigest, Storage, StorageError};
use serde_json::Value;
use tokio::time::Instant;

use super::claims::{self, ReleaseLocks};
use super::correct::Attempts;
use super::deploy::{DeployFailure, Deployer};
use super::downstream_resources;
use super::names;
use super::namespace;
use super::observation_cache::ObservationCache;
use super::plan::{self, DependencyProblem, DeployFacts, ReleaseId, TargetNamespace};
use super::status::{self, DEPLOYED, INSTALLED, MONITORED};
use super::values::Filled;
use crate::api::{BundleDeployment, BundleDeploymentStatus};
use crate::bundle::SetId;
use crate::client::health::{Health, Side};
use crate::client::identity::{DeploymentClient, Identities, Purpose};
use crate::config::{Settings, Timing};
use crate::controllers::crd_watch::CrdWatch;
use crate::controllers::drift_watch::DriftWatches;
use crate::controllers::facts::Facts;
use crate::controllers::garbage::{Collector, RemovalError, Verdict};
use crate::controllers::queue::{ReconcileKind, Requeue};
use crate::controllers::store::Store;
use crate::error;
use crate::ledger::records;
use crate::ledger::{Ledger, LedgerEntry, ReleaseKey};
use crate::register::Upstream;
use crate::report::events::{Events, Reason};
use crate::summary::ErrorMapping;

/// What upstream has not delivered yet (values, copies) is told once it is late.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long the status of what was just deployed waits for it to be ready.
const HOLD: Duration = Duration::from_millis(1_500);

/// How often a removal that is held back is looked at again.
const HELD_RETRY: Duration = Duration::from_secs(20);

/// Reconciles BundleDeployments.
pub struct Reconciler {
    timing: Timing,
    scope: String,
    upstream: Upstream,
    context: Context,
    mapping: ErrorMapping,
    observation_cache: ObservationCache,
    since: Mutex<HashMap<String, Instant>>,
    corrections: Mutex<HashMap<String, Attempts>>,
    release_locks: ReleaseLocks,
}

/// What a reconciler works with; all of it outlives a pass.
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
    pub deployer: Deployer,
}

/// The state of one pass.
struct ReconcileState {
    bundle: Arc<BundleDeployment>,
    status: BundleDeploymentStatus,
    /// Whether this pass deployed something.
    is_new: bool,
    impersonated: Option<DeploymentClient>,
    /// What the site says while it holds changes.
    hold: Option<String>,
    now: Timestamp,
    next: Requeue,
    /// To be told as Events.
    events: Vec<(Reason, String)>,
}

impl ReconcileState {
    fn fail(&mut self, reason: Reason, what: &str, message: &str) {
        tracing::warn!(bundle = self.bundle.name(), error = message, "{what}");
        self.events.push((reason, format!("{what}: {message}")));
        self.next = Requeue::Retry;
    }

    /// Whether all there is to tell is that what was just deployed is not ready yet.
    fn comes_up(&self) -> bool {
        self.is_new
            && self.next == Requeue::Idle
            && !self.status.ready
            && self.status.non_modified
            && self.status.condition(MONITORED) == "True"
            && plan::should_monitor(&self.bundle, &self.status)
    }

    fn deployed(&mut self, outcome: Result<(), &str>) {
        self.status.set_condition(DEPLOYED, outcome, self.now);
    }
}

/// What decides about a deploy, besides the bundle itself.
fn deploy_facts(
    state: &ReconcileState,
    filled: &Filled,
    stored: Option<&Release>,
    downstream_resources_changed: bool,
) -> DeployFacts {
    DeployFacts {
        release_exists: stored.is_some(),
        downstream_resources_changed,
        overwritten: plan::is_overwritten(&state.bundle.spec, &state.bundle.status),
        facts_changed: stored.is_some_and(|stored| filled.is_outdated(stored)),
    }
}

/// The current release, as far as this pass has it in hand already.
#[derive(Default)]
struct Current {
    release: Option<Release>,
    /// It was looked for, and is not there.
    is_missing: bool,
    /// Its objects, if this pass wrote all there are.
    applied: Vec<Value>,
}

impl Current {
    /// What was found in storage. Its objects are not in hand.
    fn stored(release: Option<Release>) -> Self {
        Self {
            is_missing: release.is_none(),
            release,
            applied: Vec::new(),
        }
    }
}

/// How a pass goes on after a step.
enum Step {
    On,
    /// Nothing more to do in this pass.
    End,
}

impl Reconciler {
    /// A reconciler for one session.
    pub fn new(settings: &Settings, upstream: &Upstream, context: Context) -> Self {
        Self {
            timing: settings.timing,
            scope: settings.scope.clone(),
            upstream: upstream.clone(),
            mapping: settings.error_mapping.clone(),
            context,
            observation_cache: ObservationCache::default(),
            since: Mutex::default(),
            corrections: Mutex::default(),
            release_locks: ReleaseLocks::default(),
        }
    }

    /// Runs one pass and tells how to follow it up.
    ///
    /// # Cancellation
    /// Safe at every step: what was begun is found and finished by the next pass.
    pub async fn reconcile(&self, name: &str, pass: ReconcileKind) -> Requeue {
        let Some(bundle) = self.context.store.get(name) else {
            return self.gone(name).await;
        };
        self.context.collector.is_back(&bundle).await;
        if let Some(reason) = plan::suspend_reason(&bundle.spec) {
            tracing::debug!(name, ?reason, "standing still");
            self.context.drift.clear(name);
            return Requeue::Idle;
        }
        let held = self.observation_cache.take_held(&bundle);
        let mut state = ReconcileState {
            status: held.unwrap_or_else(|| bundle.status.clone()),
            bundle,
            is_new: false,
            impersonated: None,
            hold: self.context.facts.hold(name).await,
            now: self.context.identities.agent().now(),
            next: Requeue::Idle,
            events: Vec::new(),
        };
        let set = SetId::new(name, &self.scope);
        self.context.drift.begin(name, set.hash());
        match pass {
            ReconcileKind::Full => self.full(&mut state).await,
            // What another bundle has is not this one's to look at or to put right.
            ReconcileKind::Drift if self.conflicting_bundle(&state).is_some() => {}
            ReconcileKind::Drift => {
                if !self.monitor_changed(&mut state).await {
                    self.monitor(&mut state, Current::default()).await;
                }
            }
        }
        self.context.drift.end(name);
        if state.comes_up() {
            // Most are ready a moment later: one write tells both.
            self.observation_cache
                .hold(&state.bundle, state.status.clone());
            self.context.drift.monitor_after(name, HOLD);
        } else {
            self.write_status(&mut state).await;
        }
        for (reason, text) in state.events {
            self.context.events.emit(reason, name, text);
        }
        state.next
    }

    /// Forgets what is remembered of bundles that have come to rest, and of their charts.
    pub fn forget_resting(&self) {
        self.observation_cache.forget_resting();
        self.context.deployer.forget_templates();
    }

    /// The BundleDeployment is not there.
    async fn gone(&self, name: &str) -> Requeue {
        if self.context.store.is_listed(name) {
            // There, but unreadable: left as it is.
            return Requeue::Idle;
        }
        self.context.drift.clear(name);
        self.observation_cache.forget(name);
        if !self.context.collector.has_releases(name) {
            self.forget_facts(name);
            return Requeue::Idle;
        }
        if let Some(hold) = self.context.facts.hold(name).await {
            tracing::info!(name, hold, "not removing a release");
            return Requeue::Idle;
        }
        let waited = self.waited(name);
        if waited < self.timing.removal_grace {
            return Requeue::After(self.timing.removal_grace - waited);
        }
        let missing_since = Instant::now() - waited;
        match self.context.collector.remove(name, missing_since).await {
            Ok(Verdict::Alive | Verdict::Remove) => {
                self.forget_facts(name);
                Requeue::Idle
            }
            Ok(Verdict::Wait) => Requeue::After(self.timing.removal_grace),
            Ok(Verdict::Held(_)) => Requeue::After(HELD_RETRY),
            Err(failed) => {
                if matches!(failed, RemovalError::List(_)) {
                    self.context.health.trouble(Side::Upstream);
                }
                let error = error::chain(&failed);
                tracing::error!(name, error, "failed to clean up missing bundledeployment");
                self.context.events.emit(Reason::RemovalFailed, name, error);
                Requeue::Retry
            }
        }
    }

    /// How long something about a bundle has been waited for, since the first call.
    fn waited(&self, name: &str) -> Duration {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        since
            .entry(name.to_owned())
            .or_insert_with(Instant::now)
            .elapsed()
    }

    /// Upstream has not delivered something yet; told once it is late.
    fn not_yet(&self, state: &mut ReconcileState, what: &str, message: &str) {
        if self.waited(state.bundle.name()) > PATIENCE {
            state.deployed(Err(message));
        }
        state.fail(Reason::WaitingForUpstream, what, message);
    }

    /// The bundle is gone for good.
    fn forget_facts(&self, name: &str) {
        self.context.facts.forget(name);
        self.forget(name);
    }

    fn forget(&self, name: &str) {
        self.context.crd_watch.forget(name);
        self.since
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
        self.corrections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
    }

    /// Everything, in upstream's order.
    async fn full(&self, state: &mut ReconcileState) {
        let filled = match self.context.deployer.fill(&state.bundle).await {
            Ok(filled) => filled,
            Err(failure) => {
                self.not_filled(state, failure);
                return self.monitor(state, Current::default()).await;
            }
        };
        state.bundle = Arc::clone(&filled.bundle);
        if let Err(message) = names::check(&state.bundle.spec) {
            state.deployed(Err(&message));
            return state.fail(Reason::NamespaceRefused, "a name", &message);
        }
        if matches!(self.check_target_namespace(state).await, Step::End) {
            return;
        }
        if let Some(conflicting_bundle) = self.conflicting_bundle(state) {
            return self.refuse(state, &claims::desired(&state.bundle), &conflicting_bundle);
        }
        let options = &state.bundle.spec.options;
        let impersonated = match self
            .context
            .identities
            .deployment(&options.service_account, Purpose::Deploy)
            .await
        {
            Ok(impersonated) => impersonated,
            Err(failed) => {
                let message = error::chain(&failed);
                state.deployed(Err(&message));
                return state.fail(
                    Reason::AccountMissing,
                    "no account to deploy with",
                    &message,
                );
            }
        };
        state.impersonated = Some(impersonated.clone());
        if let Some(hold) = state.hold.clone() {
            return self.held(state, &impersonated, &filled, &hold).await;
        }
        let downstream_resources_changed = match downstream_resources::copy_all(
            &self.upstream.client,
            &impersonated,
            &state.bundle,
        )
        .await
        {
            Ok(changed) => changed,
            Err(failed) => {
                let what = "cannot copy resources from upstream";
                return self.not_yet(state, what, &error::chain(&failed));
            }
        };
        state.status.downstream_resources_generation =
            state.bundle.spec.downstream_resources_generation;
        if matches!(self.check_dependencies(state), Step::End) {
            return;
        }
        let stored = match self.stored(state, &impersonated).await {
            Ok(stored) => stored,
            Err(failed) => {
                let message = error::chain(&failed);
                state
                    .status
                    .set_condition(MONITORED, Err(&message), state.now);
                return state.fail(Reason::MonitorFailed, "cannot read the release", &message);
            }
        };
        let facts = deploy_facts(
            state,
            &filled,
            stored.as_ref(),
            downstream_resources_changed,
        );
        let current = match plan::deploy_reason(&state.bundle, facts) {
            None => {
                if plan::is_installed_once(&state.bundle, facts) {
                    let id = &state.bundle.spec.deployment_id;
                    state.status.applied_deployment_id.clone_from(id);
                }
                self.confirm(state, &impersonated).await;
                Current::stored(stored)
            }
            Some(reason) => {
                tracing::info!(bundle = state.bundle.name(), ?reason, "deploying");
                let deployed = self.deploy(state, &filled, reason, &impersonated, stored.as_ref());
                match deployed.await {
                    Some(deployed) => {
                        // Only before a first one can nothing be left over.
                        let is_first = deployed.release.revision == 1;
                        Current {
                            release: Some(deployed.release),
                            is_missing: false,
                            applied: Some(deployed.applied)
                                .filter(|_| is_first)
                                .unwrap_or_default(),
                        }
                    }
                    // What was deployed before is still there to be looked at.
                    None => Current::stored(stored),
                }
            }
        };
        self.monitor(state, current).await;
    }

    /// The other bundle that has the release this one wants.
    fn conflicting_bundle(&self, state: &ReconcileState) -> Option<String> {
        let key = claims::desired(&state.bundle);
        let owner = self.context.ledger.get(&key).map(|entry| entry.bundle);
        // That it is not seen does not mean that it is gone: on proof of that the release is handed over.
        if let Some(owner) = owner.as_deref()
            && owner != state.bundle.name()
            && self.context.store.get(owner).is_none()
            && (claims::revision(&state.bundle, &key) == 0 || self.context.store.may_hide(owner))
        {
            return Some(owner.to_owned());
        }
        if claims::takes(&state.bundle) {
            return None;
        }
        let others = self.context.store.all();
        let others = others.iter().map(AsRef::as_ref);
        claims::conflicting_bundle(&state.bundle, &key, owner.as_deref(), others)
    }

    /// Two bundles want one release, and the other one has it.
    fn refuse(&self, state: &mut ReconcileState, key: &ReleaseKey, conflicting_bundle: &str) {
        let ReleaseKey { namespace, name } = key;
        let message = format!("release {namespace}/{name} belongs to bundle {conflicting_bundle}");
        self.context.drift.clear(state.bundle.name());
        state.deployed(Err(&message));
        state.fail(Reason::ReleaseTaken, "not deploying", &message);
    }

    /// `${ }` could not be filled in: nothing is deployed, what is there is looked at.
    fn not_filled(&self, state: &mut ReconcileState, failure: DeployFailure) {
        match failure {
            DeployFailure::NotYet(message) => {
                self.not_yet(state, "waiting for upstream", &message);
            }
            DeployFailure::Failed(message) => {
                state.deployed(Err(&message));
                state.fail(Reason::ValuesFailed, "cannot fill in values", &message);
            }
        }
    }

    /// The site lets nothing change: what would be deployed is told, and what is there is looked at.
    async fn held(
        &self,
        state: &mut ReconcileState,
        impersonated: &DeploymentClient,
        filled: &Filled,
        hold: &str,
    ) {
        let stored = match self.stored(state, impersonated).await {
            Ok(stored) => stored,
            Err(failed) => {
                let message = error::chain(&failed);
                return state.fail(Reason::MonitorFailed, "cannot read the release", &message);
            }
        };
        let facts = deploy_facts(state, filled, stored.as_ref(), false);
        if let Some(reason) = plan::deploy_reason(&state.bundle, facts) {
            tracing::info!(bundle = state.bundle.name(), ?reason, hold, "not deploying");
            state.deployed(Err(hold));
        }
        self.monitor(state, Current::stored(stored)).await;
    }

    async fn check_target_namespace(&self, state: &mut ReconcileState) -> Step {
        let options = &state.bundle.spec.options;
        let Some(selector) = &options.allowed_target_namespace_selector else {
            return Step::On;
        };
        let name = options.release_namespace();
        // A check upon the bundle, so not with the bundle's own rights.
        let namespaces = Api::<Namespace>::all(self.context.identities.agent().client());
        let found = match namespaces.get_metadata_opt(name).await {
            Ok(Some(found)) => TargetNamespace::Labelled(found.metadata.labels.unwrap_or_default()),
            Ok(None) => TargetNamespace::Missing,
            Err(failed) => TargetNamespace::Unreadable(error::text(&failed)),
        };
        match plan::check_target_namespace(selector, name, &found) {
            Ok(()) => Step::On,
            Err(message) => {
                state.deployed(Err(&message));
                state.fail(Reason::NamespaceRefused, "target namespace", &message);
                Step::End
            }
        }
    }

    fn check_dependencies(&self, state: &mut ReconcileState) -> Step {
        if state.bundle.spec.depends_on.is_empty() {
            return Step::On;
        }
        let others = self.context.store.all();
        let Err(problem) =
            plan::check_dependencies(&state.bundle, others.iter().map(AsRef::as_ref))
        else {
            return Step::On;
        };
        let message = problem.message();
        state.deployed(Err(&message));
        match problem {
            DependencyProblem::NotReady(_) => {
                state.events.push((Reason::DependencyNotReady, message));
                state.next = Requeue::After(self.timing.dependency_retry);
            }
            DependencyProblem::Unknown(_) => {
                state.fail(Reason::DependencyNotReady, "dependencies", &message);
            }
        }
        Step::End
    }

    /// The release a status names, if it is in storage as it was written. A revision that nobody took note of was written by another
    /// agent, which told upstream so: no tenant can. It is believed the first time.
    async fn stored(
        &self,
        state: &mut ReconcileState,
        impersonated: &DeploymentClient,
    ) -> Result<Option<Release>, StorageError> {
        let Some(id) = ReleaseId::parse(&state.status.release) else {
            return Ok(None);
        };
        let key = ReleaseKey {
            namespace: id.namespace,
            name: id.name,
        };
        let known = self.context.ledger.get(&key).unwrap_or_default();
        let storage = self.records(&state.bundle, impersonated, &key.namespace);
        let release = match storage.get(&key.name, id.revision).await {
            Ok(release) => release,
            Err(StorageError::NotFound) => return Ok(None),
            Err(StorageError::Unproven { .. }) => {
                self.not_proven(state, &key, id.revision);
                return Ok(None);
            }
            Err(failed) => return Err(failed),
        };
        if !matches!(known.known_digest(id.revision), KnownDigest::Digest(_)) {
            let entry = self.entry(state, impersonated, &key, false);
            let digest = release::storage::digest(&release);
            let entry = entry.noting(id.revision, digest);
            self.context.ledger.adopt_revision(key, entry);
        }
        Ok(Some(release))
    }

    fn not_proven(&self, state: &mut ReconcileState, key: &ReleaseKey, revision: i64) {
        let text = format!(
            "the record of release {}/{} revision {revision} is not the one that was written: \
             deploying anew",
            key.namespace, key.name
        );
        tracing::warn!(bundle = state.bundle.name(), "{text}");
        state.events.push((Reason::RecordChanged, text));
    }

    fn records(
        &self,
        bundle: &BundleDeployment,
        impersonated: &DeploymentClient,
        namespace: &str,
    ) -> Storage {
        let bundle = records::Bundle {
            name: bundle.name().to_owned(),
            account: impersonated.account().to_owned(),
            keep_resources: bundle.spec.options.keep_resources,
        };
        records::records(&self.context.ledger, impersonated, namespace, bundle)
    }

    /// Nothing to deploy: what was reported as failed before is fine now.
    async fn confirm(&self, state: &mut ReconcileState, impersonated: &DeploymentClient) {
        if state.bundle.metadata.deletion_timestamp.is_some() {
            return;
        }
        state.status.set_condition(INSTALLED, Ok(()), state.now);
        state.deployed(Ok(()));
        if let Some(id) = ReleaseId::parse(&state.status.release) {
            // Releases of another agent are taken over by being entered.
            self.enter(state, impersonated, &id, true).await;
        }
        if let Err(failed) = namespace::label(impersonated, &state.bundle.spec.options).await {
            self.namespace_failed(state, &failed);
        }
        self.forget(state.bundle.name());
    }

    async fn enter(
        &self,
        state: &mut ReconcileState,
        impersonated: &DeploymentClient,
        id: &ReleaseId,
        is_deployed: bool,
    ) {
        let key = ReleaseKey {
            namespace: id.namespace.clone(),
            name: id.name.clone(),
        };
        let entry = self.entry(state, impersonated, &key, is_deployed);
        if let Err(failed) = self.context.ledger.record(key, entry).await {
            state.fail(
                Reason::ApplyFailed,
                "cannot write the ledger",
                &error::text(&failed),
            );
        }
    }

    fn entry(
        &self,
        state: &ReconcileState,
        impersonated: &DeploymentClient,
        key: &ReleaseKey,
        is_deployed: bool,
    ) -> LedgerEntry {
        let known = self.context.ledger.get(key);
        let keeps = state.bundle.spec.options.keep_resources;
        let kept = known.as_ref().is_some_and(|entry| entry.keep_resources);
        let entry = LedgerEntry {
            bundle: state.bundle.name().to_owned(),
            account: impersonated.account().to_owned(),
            // Until the new spec is deployed, the last one has a say.
            keep_resources: keeps || !is_deployed && kept,
            ..LedgerEntry::default()
        };
        match known {
            Some(known) => entry.with_revisions_of(&known),
            None => LedgerEntry {
                revisions: Some(BTreeMap::new()),
                ..entry
            },
        }
    }

    /// Sends the status upstream if it says anything new.
    async fn write_status(&self, state: &mut ReconcileState) {
        let name = state.bundle.name();
        let known = self
            .context
            .store
            .get(name)
            .filter(|now| now.metadata.uid == state.bundle.metadata.uid);
        let Some(known) = known else { return };
        let Some(patch) = status::patch(&known.status, &state.status) else {
            return;
        };
        let bundles = Api::<BundleDeployment>::namespaced(
            self.upstream.client.clone(),
            state.bundle.namespace(),
        );
        self.context.store.writing(name, &state.status);
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(&patch));
        match bundles.patch_status(name, &parameters, &patch).await {
            Ok(answer) => self.context.store.wrote(name, answer),
            Err(failed) if error::has_code(&failed, 404) => {}
            Err(failed) => {
                if !matches!(failed, kube::Error::Api(_)) {
                    self.context.health.trouble(Side::Upstream);
                }
                let message = error::text(&failed);
                state.fail(
                    Reason::WaitingForUpstream,
                    "failed final update to bundledeployment status",
                    &message,
                );
            }
        }
    }
}
