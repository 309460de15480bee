//! One pass over one BundleDeployment: the deeds between the decisions of [`super::plan`].
//!
//! Mirrors the order of `bundledeployment_controller.go` (agent 4.6 to 4.34). Status is collected
//! and written once, at the end. `deploy.rs` has the deploy itself, `look.rs` what
//! follows it.

mod deploy;
mod look;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use release::model::Release;
use release::storage::{Storage, StorageError, Testimony};
use serde_json::Value;
use tokio::time::Instant;

use super::claims::{self, InHand};
use super::copies;
use super::correct::Attempts;
use super::deploy::{DeployFailure, Deployer};
use super::names;
use super::namespace;
use super::plan::{self, DependencyProblem, DeployFacts, ReleaseId, TargetNamespace};
use super::recall::Recall;
use super::status::{self, DEPLOYED, INSTALLED, MONITORED};
use super::values::Filled;
use crate::api::{BundleDeployment, BundleDeploymentStatus};
use crate::bundle::SetId;
use crate::config::{Settings, Timing};
use crate::controllers::definitions::Definitions;
use crate::controllers::drift::DriftWatches;
use crate::controllers::facts::Facts;
use crate::controllers::garbage::{Collector, RemovalError, Verdict};
use crate::controllers::queue::{Next, Pass};
use crate::controllers::store::Store;
use crate::error;
use crate::events::{Events, Reason};
use crate::identity::{DeploymentClient, Identities, Purpose};
use crate::ledger::{Ledger, LedgerEntry, ReleaseKey};
use crate::records;
use crate::register::Upstream;
use crate::server::{Health, Side};
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
    rooms: Rooms,
    mapping: ErrorMapping,
    recall: Recall,
    since: Mutex<HashMap<String, Instant>>,
    corrections: Mutex<HashMap<String, Attempts>>,
    in_hand: InHand,
}

/// What a reconciler works with; all of it outlives a pass.
pub struct Rooms {
    pub identities: Arc<Identities>,
    pub store: Arc<Store>,
    pub ledger: Arc<Ledger>,
    pub drift: Arc<DriftWatches>,
    pub definitions: Arc<Definitions>,
    pub events: Arc<Events>,
    pub health: Health,
    pub collector: Arc<Collector>,
    pub facts: Arc<Facts>,
    pub deployer: Deployer,
}

/// The state of one pass.
struct Work {
    bundle: Arc<BundleDeployment>,
    status: BundleDeploymentStatus,
    /// Whether this pass deployed something.
    is_new: bool,
    acting: Option<DeploymentClient>,
    /// What the site says while it holds changes.
    hold: Option<String>,
    now: Timestamp,
    next: Next,
    /// To be told as Events.
    news: Vec<(Reason, String)>,
}

impl Work {
    fn fail(&mut self, reason: Reason, what: &str, message: &str) {
        tracing::warn!(bundle = self.bundle.name(), error = message, "{what}");
        self.news.push((reason, format!("{what}: {message}")));
        self.next = Next::Retry;
    }

    /// Whether all there is to tell is that what was just deployed is not ready yet.
    fn comes_up(&self) -> bool {
        self.is_new
            && self.next == Next::Idle
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
    work: &Work,
    filled: &Filled,
    stored: Option<&Release>,
    copies_changed: bool,
) -> DeployFacts {
    DeployFacts {
        release_exists: stored.is_some(),
        copies_changed,
        overwritten: plan::is_overwritten(&work.bundle.spec, &work.bundle.status),
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
    pub fn new(settings: &Settings, upstream: &Upstream, rooms: Rooms) -> Self {
        Self {
            timing: settings.timing,
            scope: settings.scope.clone(),
            upstream: upstream.clone(),
            mapping: settings.error_mapping.clone(),
            rooms,
            recall: Recall::default(),
            since: Mutex::default(),
            corrections: Mutex::default(),
            in_hand: InHand::default(),
        }
    }

    /// Runs one pass and tells how to follow it up.
    ///
    /// # Cancellation
    /// Safe at every step: what was begun is found and finished by the next pass.
    pub async fn reconcile(&self, name: &str, pass: Pass) -> Next {
        let Some(bundle) = self.rooms.store.get(name) else {
            return self.gone(name).await;
        };
        self.rooms.collector.is_back(&bundle).await;
        if let Some(reason) = plan::standstill(&bundle.spec) {
            tracing::debug!(name, ?reason, "standing still");
            self.rooms.drift.clear(name);
            return Next::Idle;
        }
        let held = self.recall.take_held(&bundle);
        let mut work = Work {
            status: held.unwrap_or_else(|| bundle.status.clone()),
            bundle,
            is_new: false,
            acting: None,
            hold: self.rooms.facts.hold(name).await,
            now: Timestamp::now(),
            next: Next::Idle,
            news: Vec::new(),
        };
        let set = SetId::new(name, &self.scope);
        self.rooms.drift.begin(name, set.hash());
        match pass {
            Pass::Full => self.full(&mut work).await,
            // What another bundle has is not this one's to look at or to put right.
            Pass::Drift if self.rival(&work).is_some() => {}
            Pass::Drift => {
                if !self.glance(&mut work).await {
                    self.look(&mut work, Current::default()).await;
                }
            }
        }
        self.rooms.drift.end(name);
        if work.comes_up() {
            // Most are ready a moment later: one write tells both.
            self.recall.hold(&work.bundle, work.status.clone());
            self.rooms.drift.look_after(name, HOLD);
        } else {
            self.write_status(&mut work).await;
        }
        for (reason, text) in work.news {
            self.rooms.events.tell(reason, name, text);
        }
        work.next
    }

    /// Forgets what is remembered of bundles that have come to rest, and of their charts.
    pub fn forget_resting(&self) {
        self.recall.forget_resting();
        self.rooms.deployer.forget_templates();
    }

    /// The BundleDeployment is not there.
    async fn gone(&self, name: &str) -> Next {
        if self.rooms.store.is_listed(name) {
            // There, but unreadable: left as it is.
            return Next::Idle;
        }
        self.rooms.drift.clear(name);
        self.recall.forget(name);
        if !self.rooms.collector.has_releases(name) {
            self.forget_facts(name);
            return Next::Idle;
        }
        if let Some(hold) = self.rooms.facts.hold(name).await {
            tracing::info!(name, hold, "not removing a release");
            return Next::Idle;
        }
        let waited = self.waited(name);
        if waited < self.timing.removal_grace {
            return Next::After(self.timing.removal_grace - waited);
        }
        let missing_since = Instant::now() - waited;
        match self.rooms.collector.remove(name, missing_since).await {
            Ok(Verdict::Alive | Verdict::Remove) => {
                self.forget_facts(name);
                Next::Idle
            }
            Ok(Verdict::Wait) => Next::After(self.timing.removal_grace),
            Ok(Verdict::Held(_)) => Next::After(HELD_RETRY),
            Err(failed) => {
                if matches!(failed, RemovalError::List(_)) {
                    self.rooms.health.trouble(Side::Upstream);
                }
                let error = error::chain(&failed);
                tracing::error!(name, error, "failed to clean up missing bundledeployment");
                self.rooms.events.tell(Reason::RemovalFailed, name, error);
                Next::Retry
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
    fn not_yet(&self, work: &mut Work, what: &str, message: &str) {
        if self.waited(work.bundle.name()) > PATIENCE {
            work.deployed(Err(message));
        }
        work.fail(Reason::WaitingForUpstream, what, message);
    }

    /// The bundle is gone for good.
    fn forget_facts(&self, name: &str) {
        self.rooms.facts.forget(name);
        self.forget(name);
    }

    fn forget(&self, name: &str) {
        self.rooms.definitions.forget(name);
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
    async fn full(&self, work: &mut Work) {
        let filled = match self.rooms.deployer.fill(&work.bundle).await {
            Ok(filled) => filled,
            Err(failure) => {
                self.not_filled(work, failure);
                return self.look(work, Current::default()).await;
            }
        };
        work.bundle = Arc::clone(&filled.bundle);
        if let Err(message) = names::check(&work.bundle.spec) {
            work.deployed(Err(&message));
            return work.fail(Reason::NamespaceRefused, "a name", &message);
        }
        if matches!(self.check_target_namespace(work).await, Step::End) {
            return;
        }
        if let Some(rival) = self.rival(work) {
            return self.refuse(work, &claims::wanted(&work.bundle), &rival);
        }
        let options = &work.bundle.spec.options;
        let acting = match self
            .rooms
            .identities
            .deployment(&options.service_account, Purpose::Deploy)
            .await
        {
            Ok(acting) => acting,
            Err(failed) => {
                let message = error::chain(&failed);
                work.deployed(Err(&message));
                return work.fail(
                    Reason::AccountMissing,
                    "no account to deploy with",
                    &message,
                );
            }
        };
        work.acting = Some(acting.clone());
        if let Some(hold) = work.hold.clone() {
            return self.held(work, &acting, &filled, &hold).await;
        }
        let copies_changed =
            match copies::copy_all(&self.upstream.client, &acting, &work.bundle).await {
                Ok(changed) => changed,
                Err(failed) => {
                    let what = "cannot copy resources from upstream";
                    return self.not_yet(work, what, &error::chain(&failed));
                }
            };
        work.status.downstream_resources_generation =
            work.bundle.spec.downstream_resources_generation;
        if matches!(self.check_dependencies(work), Step::End) {
            return;
        }
        let stored = match self.stored(work, &acting).await {
            Ok(stored) => stored,
            Err(failed) => {
                let message = error::chain(&failed);
                work.status
                    .set_condition(MONITORED, Err(&message), work.now);
                return work.fail(Reason::MonitorFailed, "cannot read the release", &message);
            }
        };
        let facts = deploy_facts(work, &filled, stored.as_ref(), copies_changed);
        let current = match plan::deploy_reason(&work.bundle, facts) {
            None => {
                if plan::is_installed_once(&work.bundle, facts) {
                    let id = &work.bundle.spec.deployment_id;
                    work.status.applied_deployment_id.clone_from(id);
                }
                self.confirm(work, &acting).await;
                Current::stored(stored)
            }
            Some(reason) => {
                tracing::info!(bundle = work.bundle.name(), ?reason, "deploying");
                match self.deploy(work, &filled, reason, &acting).await {
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
        self.look(work, current).await;
    }

    /// The other bundle that has the release this one wants.
    fn rival(&self, work: &Work) -> Option<String> {
        let key = claims::wanted(&work.bundle);
        let owner = self.rooms.ledger.get(&key).map(|entry| entry.bundle);
        // That it is not seen does not mean that it is gone: on proof of that the release is handed over.
        if let Some(owner) = owner.as_deref()
            && owner != work.bundle.name()
            && self.rooms.store.get(owner).is_none()
            && (claims::revision(&work.bundle, &key) == 0 || self.rooms.store.may_hide(owner))
        {
            return Some(owner.to_owned());
        }
        if claims::takes(&work.bundle) {
            return None;
        }
        let others = self.rooms.store.all();
        let others = others.iter().map(AsRef::as_ref);
        claims::rival(&work.bundle, &key, owner.as_deref(), others)
    }

    /// Two bundles want one release, and the other one has it.
    fn refuse(&self, work: &mut Work, key: &ReleaseKey, rival: &str) {
        let ReleaseKey { namespace, name } = key;
        let message = format!("release {namespace}/{name} belongs to bundle {rival}");
        self.rooms.drift.clear(work.bundle.name());
        work.deployed(Err(&message));
        work.fail(Reason::ReleaseTaken, "not deploying", &message);
    }

    /// `${ }` could not be filled in: nothing is deployed, what is there is looked at.
    fn not_filled(&self, work: &mut Work, failure: DeployFailure) {
        match failure {
            DeployFailure::NotYet(message) => {
                self.not_yet(work, "waiting for upstream", &message);
            }
            DeployFailure::Failed(message) => {
                work.deployed(Err(&message));
                work.fail(Reason::ValuesFailed, "cannot fill in values", &message);
            }
        }
    }

    /// The site lets nothing change: what would be deployed is told, and what is there is looked at.
    async fn held(&self, work: &mut Work, acting: &DeploymentClient, filled: &Filled, hold: &str) {
        let stored = match self.stored(work, acting).await {
            Ok(stored) => stored,
            Err(failed) => {
                let message = error::chain(&failed);
                return work.fail(Reason::MonitorFailed, "cannot read the release", &message);
            }
        };
        let facts = deploy_facts(work, filled, stored.as_ref(), false);
        if let Some(reason) = plan::deploy_reason(&work.bundle, facts) {
            tracing::info!(bundle = work.bundle.name(), ?reason, hold, "not deploying");
            work.deployed(Err(hold));
        }
        self.look(work, Current::stored(stored)).await;
    }

    async fn check_target_namespace(&self, work: &mut Work) -> Step {
        let options = &work.bundle.spec.options;
        let Some(selector) = &options.allowed_target_namespace_selector else {
            return Step::On;
        };
        let name = options.release_namespace();
        // A check upon the bundle, so not with the bundle's own rights.
        let namespaces = Api::<Namespace>::all(self.rooms.identities.agent().client());
        let found = match namespaces.get_metadata_opt(name).await {
            Ok(Some(found)) => TargetNamespace::Labelled(found.metadata.labels.unwrap_or_default()),
            Ok(None) => TargetNamespace::Missing,
            Err(failed) => TargetNamespace::Unreadable(error::text(&failed)),
        };
        match plan::check_target_namespace(selector, name, &found) {
            Ok(()) => Step::On,
            Err(message) => {
                work.deployed(Err(&message));
                work.fail(Reason::NamespaceRefused, "target namespace", &message);
                Step::End
            }
        }
    }

    fn check_dependencies(&self, work: &mut Work) -> Step {
        if work.bundle.spec.depends_on.is_empty() {
            return Step::On;
        }
        let others = self.rooms.store.all();
        let Err(problem) = plan::check_dependencies(&work.bundle, others.iter().map(AsRef::as_ref))
        else {
            return Step::On;
        };
        let message = problem.message();
        work.deployed(Err(&message));
        match problem {
            DependencyProblem::NotReady(_) => {
                work.news.push((Reason::DependencyNotReady, message));
                work.next = Next::After(self.timing.dependency_retry);
            }
            DependencyProblem::Unknown(_) => {
                work.fail(Reason::DependencyNotReady, "dependencies", &message);
            }
        }
        Step::End
    }

    /// The release a status names, if it is in storage as it was written. A revision that nobody took note of was written by another
    /// agent, which told upstream so: no tenant can. It is believed the first time.
    async fn stored(
        &self,
        work: &mut Work,
        acting: &DeploymentClient,
    ) -> Result<Option<Release>, StorageError> {
        let Some(id) = ReleaseId::parse(&work.status.release) else {
            return Ok(None);
        };
        let key = ReleaseKey {
            namespace: id.namespace,
            name: id.name,
        };
        let known = self.rooms.ledger.get(&key).unwrap_or_default();
        let storage = self.records(&work.bundle, acting, &key.namespace);
        let release = match storage.get(&key.name, id.revision).await {
            Ok(release) => release,
            Err(StorageError::NotFound) => return Ok(None),
            Err(StorageError::Unproven { .. }) => {
                self.not_proven(work, &key, id.revision);
                return Ok(None);
            }
            Err(failed) => return Err(failed),
        };
        if !matches!(known.testimony(id.revision), Testimony::Digest(_)) {
            let entry = self.entry(work, acting, &key, false);
            let digest = release::storage::digest(&release);
            let entry = entry.noting(id.revision, digest);
            self.rooms.ledger.adopt_revision(key, entry);
        }
        Ok(Some(release))
    }

    fn not_proven(&self, work: &mut Work, key: &ReleaseKey, revision: i64) {
        let text = format!(
            "the record of release {}/{} revision {revision} is not the one that was written: \
             deploying anew",
            key.namespace, key.name
        );
        tracing::warn!(bundle = work.bundle.name(), "{text}");
        work.news.push((Reason::RecordChanged, text));
    }

    fn records(
        &self,
        bundle: &BundleDeployment,
        acting: &DeploymentClient,
        namespace: &str,
    ) -> Storage {
        let bundle = records::Bundle {
            name: bundle.name().to_owned(),
            account: acting.account().to_owned(),
            keep_resources: bundle.spec.options.keep_resources,
        };
        records::records(&self.rooms.ledger, acting, namespace, bundle)
    }

    /// Nothing to deploy: what was reported as failed before is fine now.
    async fn confirm(&self, work: &mut Work, acting: &DeploymentClient) {
        if work.bundle.metadata.deletion_timestamp.is_some() {
            return;
        }
        work.status.set_condition(INSTALLED, Ok(()), work.now);
        work.deployed(Ok(()));
        if let Some(id) = ReleaseId::parse(&work.status.release) {
            // Releases of another agent are taken over by being entered.
            self.enter(work, acting, &id, true).await;
        }
        if let Err(failed) = namespace::label(acting, &work.bundle.spec.options).await {
            self.namespace_failed(work, &failed);
        }
        self.forget(work.bundle.name());
    }

    async fn enter(
        &self,
        work: &mut Work,
        acting: &DeploymentClient,
        id: &ReleaseId,
        is_deployed: bool,
    ) {
        let key = ReleaseKey {
            namespace: id.namespace.clone(),
            name: id.name.clone(),
        };
        let entry = self.entry(work, acting, &key, is_deployed);
        if let Err(failed) = self.rooms.ledger.record(key, entry).await {
            work.fail(
                Reason::ApplyFailed,
                "cannot write the ledger",
                &error::text(&failed),
            );
        }
    }

    fn entry(
        &self,
        work: &Work,
        acting: &DeploymentClient,
        key: &ReleaseKey,
        is_deployed: bool,
    ) -> LedgerEntry {
        let known = self.rooms.ledger.get(key);
        let keeps = work.bundle.spec.options.keep_resources;
        let kept = known.as_ref().is_some_and(|entry| entry.keep_resources);
        let entry = LedgerEntry {
            bundle: work.bundle.name().to_owned(),
            account: acting.account().to_owned(),
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
    async fn write_status(&self, work: &mut Work) {
        let name = work.bundle.name();
        let known = self
            .rooms
            .store
            .get(name)
            .filter(|now| now.metadata.uid == work.bundle.metadata.uid);
        let Some(known) = known else { return };
        let Some(patch) = status::patch(&known.status, &work.status) else {
            return;
        };
        let bundles = Api::<BundleDeployment>::namespaced(
            self.upstream.client.clone(),
            work.bundle.namespace(),
        );
        self.rooms.store.writing(name, &work.status);
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(&patch));
        match bundles.patch_status(name, &parameters, &patch).await {
            Ok(answer) => self.rooms.store.wrote(name, answer),
            Err(failed) if error::has_code(&failed, 404) => {}
            Err(failed) => {
                if !matches!(failed, kube::Error::Api(_)) {
                    self.rooms.health.trouble(Side::Upstream);
                }
                let message = error::text(&failed);
                work.fail(
                    Reason::WaitingForUpstream,
                    "failed final update to bundledeployment status",
                    &message,
                );
            }
        }
    }
}
