//! One pass over one BundleDeployment: the deeds between the decisions of [`super::plan`].
//!
//! Mirrors the order of `bundledeployment_controller.go` (agent 4.6 to 4.34). Status is collected
//! and written once, at the end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use release::kube::{Object, Owner};
use release::model::Release;
use release::storage::StorageError;
use tokio::time::Instant;

use super::copies;
use super::correct::{self, Attempts};
use super::deploy::{self, DeployFailure, Deployer, Failed};
use super::namespace::{self, NamespaceError};
use super::observe::{self, Live, View};
use super::plan::{self, DependencyProblem, DeployFacts, DeployReason, ReleaseId, TargetNamespace};
use super::status::{self, DEPLOYED, INSTALLED, MONITORED, READY};
use super::values::Filled;
use crate::api::{BundleDeployment, BundleDeploymentStatus, ModifiedStatus};
use crate::bundle::{SetId, release_name};
use crate::config::{Settings, Timing};
use crate::controllers::drift::DriftWatches;
use crate::controllers::facts::Facts;
use crate::controllers::garbage::{Collector, RemovalError, Verdict};
use crate::controllers::queue::{Next, Pass};
use crate::controllers::store::Store;
use crate::error;
use crate::events::{Events, Reason};
use crate::identity::{DeploymentClient, Identities};
use crate::ledger::{Ledger, LedgerEntry, ReleaseKey};
use crate::register::Upstream;
use crate::server::{Health, Side};
use crate::summary::ErrorMapping;

/// What upstream has not delivered yet (values, copies) is told once it is late.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often a removal that is held back is looked at again.
const HELD_RETRY: Duration = Duration::from_secs(20);

/// Reconciles BundleDeployments.
pub struct Reconciler {
    timing: Timing,
    scope: String,
    upstream: Upstream,
    rooms: Rooms,
    mapping: ErrorMapping,
    since: Mutex<HashMap<String, Instant>>,
    corrections: Mutex<HashMap<String, Attempts>>,
}

/// What a reconciler works with; all of it outlives a pass.
pub struct Rooms {
    pub identities: Arc<Identities>,
    pub store: Arc<Store>,
    pub ledger: Arc<Ledger>,
    pub drift: Arc<DriftWatches>,
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

    fn deployed(&mut self, outcome: Result<(), &str>) {
        self.status.set_condition(DEPLOYED, outcome, self.now);
    }
}

/// Objects by their names alone: what differs in them may be secret.
fn names(objects: &[ModifiedStatus]) -> String {
    let names: Vec<_> = objects
        .iter()
        .map(|one| format!("{} {}/{}", one.kind, one.namespace, one.name))
        .collect();
    names.join(", ")
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
            since: Mutex::default(),
            corrections: Mutex::default(),
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
        let mut work = Work {
            status: bundle.status.clone(),
            bundle,
            acting: None,
            hold: self.rooms.facts.hold(name).await,
            now: Timestamp::now(),
            next: Next::Idle,
            news: Vec::new(),
        };
        match pass {
            Pass::Full => self.full(&mut work).await,
            Pass::Drift => self.look(&mut work, None).await,
        }
        self.write_status(&mut work).await;
        for (reason, text) in work.news {
            self.rooms.events.tell(reason, name, text);
        }
        work.next
    }

    /// The BundleDeployment is not there.
    async fn gone(&self, name: &str) -> Next {
        if self.rooms.store.is_listed(name) {
            // There, but unreadable: left as it is.
            return Next::Idle;
        }
        self.rooms.drift.clear(name);
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
                return self.look(work, None).await;
            }
        };
        work.bundle = Arc::clone(&filled.bundle);
        if matches!(self.check_target_namespace(work).await, Step::End) {
            return;
        }
        let options = &work.bundle.spec.options;
        let acting = match self
            .rooms
            .identities
            .deployment(&options.service_account)
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
        let stored = match self.stored(&acting, &work.status.release).await {
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
                stored
            }
            Some(reason) => {
                tracing::info!(bundle = work.bundle.name(), ?reason, "deploying");
                match self.deploy(work, &filled, reason, &acting).await {
                    Some(release) => Some(release),
                    // What was deployed before is still there to be looked at.
                    None => stored,
                }
            }
        };
        self.look(work, current).await;
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
        let stored = match self.stored(acting, &work.status.release).await {
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
        self.look(work, stored).await;
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

    /// The release a status names, if it is in storage.
    async fn stored(
        &self,
        acting: &DeploymentClient,
        named: &str,
    ) -> Result<Option<Release>, StorageError> {
        let Some(id) = ReleaseId::parse(named) else {
            return Ok(None);
        };
        let storage = acting.records(&id.namespace);
        match storage.get(&id.name, id.revision).await {
            Ok(release) => Ok(Some(release)),
            Err(StorageError::NotFound) => Ok(None),
            Err(failed) => Err(failed),
        }
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
        let keeps = work.bundle.spec.options.keep_resources;
        let kept = || {
            self.rooms
                .ledger
                .get(&key)
                .is_some_and(|entry| entry.keep_resources)
        };
        let entry = LedgerEntry {
            bundle: work.bundle.name().to_owned(),
            account: acting.account().to_owned(),
            // Until the new spec is deployed, the last one has a say.
            keep_resources: keeps || !is_deployed && kept(),
            ..LedgerEntry::default()
        };
        if let Err(failed) = self.rooms.ledger.record(key, entry).await {
            work.fail(
                Reason::ApplyFailed,
                "cannot write the ledger",
                &error::text(&failed),
            );
        }
    }

    /// Deploys; gives back the release when that worked.
    async fn deploy(
        &self,
        work: &mut Work,
        filled: &Filled,
        reason: DeployReason,
        acting: &DeploymentClient,
    ) -> Option<Release> {
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
        // Entered before anything is written, so that no release is ever without an owner.
        let id = ReleaseId {
            namespace: options.release_namespace().to_owned(),
            name: release_name(bundle.name(), options),
            revision: 0,
        };
        self.enter(work, acting, &id, false).await;
        if work.next == Next::Retry {
            return None;
        }
        let release = match self.rooms.deployer.deploy(filled, reason, acting).await {
            Ok(release) => release,
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
        let deployed = format!(
            "release {}/{} revision {}",
            id.namespace, id.name, release.revision
        );
        work.news.push((Reason::Deployed, deployed));
        work.status.release = ReleaseId {
            revision: release.revision,
            ..id.clone()
        }
        .to_string();
        work.status.applied_deployment_id = bundle.spec.deployment_id.clone();
        work.status.set_condition(INSTALLED, Ok(()), work.now);
        work.deployed(Ok(()));
        self.enter(work, acting, &id, true).await;
        if let Err(failed) = labelled {
            self.namespace_failed(work, &failed);
        }
        let key = ReleaseKey {
            namespace: id.namespace,
            name: id.name,
        };
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
        Some(release)
    }

    fn namespace_failed(&self, work: &mut Work, failed: &NamespaceError) {
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

    /// Compares live objects with the release and corrects them where that is wanted.
    async fn look(&self, work: &mut Work, current: Option<Release>) {
        let is_wanted = plan::should_monitor(&work.bundle, &work.status);
        // While the site holds changes, what was deployed before them is what there is to report.
        let is_held = work.hold.is_some() && !work.status.release.is_empty();
        if !is_wanted && !is_held {
            return;
        }
        let bundle = Arc::clone(&work.bundle);
        let acting = match &work.acting {
            Some(acting) => acting.clone(),
            None => match self
                .rooms
                .identities
                .deployment(&bundle.spec.options.service_account)
                .await
            {
                Ok(acting) => acting,
                Err(failed) => {
                    let message = error::chain(&failed);
                    return work.fail(Reason::AccountMissing, "no account", &message);
                }
            },
        };
        let release = match current {
            Some(release) => release,
            None => match self.stored(&acting, &work.status.release).await {
                Ok(Some(release)) => release,
                // Adopting what is live waits like any deploy: for the end of a hold, for the next try.
                Ok(None) if is_held || work.next == Next::Retry => return,
                Ok(None) => {
                    // A record that vanished: a full pass adopts what is live.
                    work.next = Next::FullAfter(Duration::ZERO);
                    return;
                }
                Err(failed) => {
                    let message = error::chain(&failed);
                    return work.fail(Reason::MonitorFailed, "no release", &message);
                }
            },
        };
        match self.observe(work, &acting, &release).await {
            Ok(wanted) => {
                work.status.set_condition(MONITORED, Ok(()), work.now);
                if work.hold.is_none() {
                    self.adopt_agent(work, &acting).await;
                    if bundle.metadata.deletion_timestamp.is_none()
                        && plan::is_overwritten(&bundle.spec, &work.status)
                    {
                        work.next = Next::FullAfter(self.timing.overwrite_retry);
                    }
                    self.correct(work, &acting, &release, &wanted).await;
                }
            }
            Err(message) => {
                work.status
                    .set_condition(MONITORED, Err(&message), work.now);
                work.fail(
                    Reason::MonitorFailed,
                    "cannot monitor deployed bundle",
                    &message,
                );
            }
        }
    }

    /// Looks at the live objects and keeps watching them; gives back what is wanted.
    async fn observe(
        &self,
        work: &mut Work,
        acting: &DeploymentClient,
        release: &Release,
    ) -> Result<Vec<Object>, String> {
        let bundle = Arc::clone(&work.bundle);
        let options = &bundle.spec.options;
        let set = SetId::new(bundle.name(), &self.scope);
        let cluster = acting.cluster();
        let wanted = correct::objects(cluster, release)
            .await
            .map_err(|e| error::chain(&e))?;
        let client = acting.client();
        self.rooms.drift.looking(bundle.name(), set.hash());
        let live = Live::read(&client, set.hash(), &wanted)
            .await
            .map_err(|e| error::chain(&e))?;
        let rules = observe::rules(options);
        let owner = Owner {
            name: release.name.clone(),
            namespace: release.namespace.clone(),
        };
        let differences = live.differences(&client, &owner, &wanted, &rules).await;
        let former = match live.has_others_than(&wanted) {
            true => self.former_objects(acting, release).await,
            false => Vec::new(),
        };
        let ignored = options
            .ignore_options
            .as_ref()
            .map(|ignore| ignore.conditions.as_slice());
        let view = View {
            rules: &rules,
            mapping: &self.mapping,
            ignored_conditions: ignored.unwrap_or_default(),
            now: work.now,
        };
        let found = live.compare(&wanted, &former, &differences, &view);
        if !found.modified.is_empty() && work.bundle.status.non_modified {
            work.news.push((Reason::DriftFound, names(&found.modified)));
        }
        work.status
            .observe(found, options.force_sync_generation, work.now);
        let is_ready = work.status.condition(READY) == "True";
        self.rooms.drift.refresh(
            bundle.name(),
            set.hash(),
            observe::kinds(&wanted),
            live.seen(),
            is_ready,
        );
        Ok(wanted)
    }

    /// Objects of the revision before, to tell left-overs from copies of our label. A record that
    /// cannot be read means none.
    async fn former_objects(&self, acting: &DeploymentClient, release: &Release) -> Vec<Object> {
        let storage = acting.records(&release.namespace);
        match storage
            .get(&release.name, release.revision.saturating_sub(1))
            .await
        {
            Ok(former) => correct::stored_objects(acting.cluster(), &former)
                .await
                .unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }

    /// The agent's own bundle adopts what the import left: objects left over from the former agent
    /// go. What is changed or missing is corrected, asked or not.
    async fn adopt_agent(&self, work: &Work, acting: &DeploymentClient) {
        if !work.bundle.is_agent_bundle() {
            return;
        }
        for extra in work
            .status
            .modified_status
            .iter()
            .filter(|entry| entry.extra)
        {
            let deleted = correct::delete(acting, extra, &DeleteParams::background()).await;
            if let Err(failed) = deleted {
                tracing::warn!(error = %failed, "failed cleaning old agent");
            }
        }
    }

    /// Puts drifted objects right, if that is wanted and did not just fail to help.
    async fn correct(
        &self,
        work: &mut Work,
        acting: &DeploymentClient,
        release: &Release,
        wanted: &[Object],
    ) {
        let bundle = Arc::clone(&work.bundle);
        let name = bundle.name();
        if work.status.non_modified {
            self.corrections
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(name);
            return;
        }
        let wish = bundle.spec.correct_drift();
        let is_wanted = wish.enabled || bundle.is_agent_bundle();
        if !is_wanted || bundle.metadata.deletion_timestamp.is_some() {
            return;
        }
        let due = {
            let mut all = self
                .corrections
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            all.entry(name.to_owned())
                .or_default()
                .due(&work.status.modified_status)
        };
        if let Some(pause) = due {
            work.next = Next::After(pause);
            return;
        }
        // Upstream learns what was found before it is put right.
        self.write_status(work).await;
        let drifted = &work.status.modified_status;
        match correct::apply(acting.cluster(), release, wanted, drifted, wish.force).await {
            Ok(()) => {
                let text = names(drifted);
                tracing::info!(bundle = name, objects = drifted.len(), "corrected drift");
                work.news.push((Reason::DriftCorrected, text));
                work.next = Next::After(self.timing.drift_delay.min(Duration::from_secs(1)));
            }
            Err(failed) => {
                let message = error::chain(&failed);
                if wish.keep_fail_history {
                    let kept = deploy::max_history(&bundle.spec.options);
                    let records = acting.records(&release.namespace);
                    correct::record_failure(&records, release, &message, kept).await;
                }
                work.status.set_condition(READY, Err(&message), work.now);
                work.fail(
                    Reason::CorrectionFailed,
                    "failed reconciling drift",
                    &message,
                );
            }
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
