//! One stretch of work with one upstream credential: watches, workers, heartbeat, clean-up.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use chart::source::Fetcher;
use futures_util::stream::{BoxStream, FuturesUnordered};
use futures_util::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ListParams, PartialObjectMeta};
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::BundleDeployment;
use crate::client::health::{Health, Side};
use crate::client::identity::Identities;
use crate::client::watch::{self, Broken};
use crate::config::{AGENT_NAME, AgentConfig, BOOTSTRAP_NAME, Settings};
use crate::controllers::bundle_deployment::deploy::Deployer;
use crate::controllers::bundle_deployment::reconcile::{Context, Reconciler};
use crate::controllers::bundle_deployment::values::ValuesReader;
use crate::controllers::cluster_status::Heartbeat;
use crate::controllers::crd_watch::CrdWatch;
use crate::controllers::drift_watch::DriftWatches;
use crate::controllers::facts::{Facts, FactsReader};
use crate::controllers::garbage::{self, Collector};
use crate::controllers::queue::{Backoff, FreeWorkers, Queue, ReconcileKind, Requeue};
use crate::controllers::store::{Store, Wake};
use crate::error;
use crate::ledger::Ledger;
use crate::process::memory;
use crate::register::{Registrar, Upstream};
use crate::report::events::{Events, Reason};
use crate::report::metrics::{Controller, Metrics, Outcome};
use crate::schemas::Schemas;

/// How long passes in progress may go on after a termination was requested.
const GRACE: Duration = Duration::from_secs(5);

/// How long after a burst nothing of it is needed any more: connections are closed by then, and what
/// was remembered of bundles in motion is forgotten.
const SETTLED: Duration = Duration::from_secs(65);

/// Everything a session works with.
pub struct Session {
    pub settings: Settings,
    pub config: AgentConfig,
    pub identities: Arc<Identities>,
    pub registrar: Registrar,
    pub upstream: Upstream,
    pub fetcher: Fetcher,
    pub metrics: Metrics,
    pub health: Health,
    pub events: Arc<Events>,
    /// As it was read a moment ago, while upstream was asked.
    pub ledger: Option<Ledger>,
}

/// How often a cluster is asked while it is in trouble: a watch that resumes quietly tells nobody
/// that it is well again.
const RECHECK: Duration = Duration::from_secs(5);

/// How often upstream is asked anyway whether it still is what it was.
const CONTINUITY_CHECK: Duration = Duration::from_secs(5 * 60);

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Termination was requested.
    Stopped,
    /// The credential is refused: register again.
    CredentialDead,
    /// Another credential is stored, and it works: connect with it.
    CredentialReplaced,
}

impl Session {
    /// Works until one of the reasons to end comes up.
    ///
    /// # Cancellation
    /// Dropping it stops all work at once.
    pub async fn run(mut self, stop: CancellationToken) -> Ended {
        let ledger = match self.ledger.take() {
            Some(ledger) => Arc::new(ledger),
            None => tokio::select! {
                () = stop.cancelled() => return Ended::Stopped,
                ledger = self.load_ledger() => ledger,
            },
        };
        let timing = self.settings.timing;
        let backoff = Backoff {
            min: timing.backoff_min,
            max: timing.backoff_max,
        };
        let queue = Arc::new(Queue::new(backoff, self.metrics.clone()));
        let store = Arc::new(Store::default());
        let drift = Arc::new(DriftWatches::new(
            self.identities.agent(),
            Arc::clone(&queue),
            timing.drift_delay,
        ));
        let identities = Arc::clone(&self.identities);
        let crd_watch = Arc::new(CrdWatch::new(identities, Arc::clone(&queue)));
        let collector = Arc::new(Collector::new(
            &self.upstream,
            &self.settings.namespace,
            garbage::Context {
                identities: &self.identities,
                store: &store,
                ledger: &ledger,
                queue: &queue,
                events: &self.events,
                metrics: &self.metrics,
            },
        ));
        let reader = FactsReader {
            agent: self.identities.agent(),
            namespace: self.settings.namespace.clone(),
            site: self.settings.site.clone(),
            upstream: self.upstream.client.clone(),
            cluster_namespace: self.upstream.cluster_namespace.clone(),
            cluster_name: self.upstream.cluster_name.clone(),
        };
        let facts = Arc::new(Facts::new(reader, timing.facts_refresh, Arc::clone(&queue)));
        let values = ValuesReader {
            upstream: self.upstream.client.clone(),
            facts: Arc::clone(&facts),
            mode: self.settings.cluster_values,
        };
        let context = Context {
            identities: Arc::clone(&self.identities),
            store: Arc::clone(&store),
            ledger: Arc::clone(&ledger),
            drift: Arc::clone(&drift),
            crd_watch: Arc::clone(&crd_watch),
            events: Arc::clone(&self.events),
            health: self.health.clone(),
            collector: Arc::clone(&collector),
            facts: Arc::clone(&facts),
            deployer: Deployer::new(
                self.upstream.client.clone(),
                self.fetcher.clone(),
                values,
                Arc::clone(&self.events),
                &self.settings.namespace,
                &self.settings.scope,
                Schemas::new(self.settings.remote_schemas),
            ),
        };
        let reconciler = Reconciler::new(&self.settings, &self.upstream, context);
        let heartbeat = Heartbeat {
            upstream: self.upstream.client.clone(),
            cluster_namespace: self.upstream.cluster_namespace.clone(),
            cluster_name: self.upstream.cluster_name.clone(),
            namespace: self.settings.namespace.clone(),
            first: timing.first_checkin,
            interval: self.settings.checkin_interval,
            health: self.health.clone(),
            ledger: Arc::clone(&ledger),
            agent: self.identities.agent(),
        };
        let workers = Workers {
            queue: Arc::clone(&queue),
            reconciler,
            metrics: self.metrics.clone(),
            limit: self.settings.workers,
            drift_limit: self.settings.drift_workers,
        };
        self.metrics
            .limit(Controller::BundleDeployment, self.settings.workers);
        self.metrics
            .limit(Controller::Drift, self.settings.drift_workers);
        let interval = self.config.garbage_collection_interval;
        let restart = Notify::new();
        let watch = Watching {
            store: &store,
            queue: &queue,
            collector: &collector,
            ledger: &ledger,
            restart: &restart,
        };
        tokio::select! {
            // Ends by itself once termination is requested and passes have finished.
            () = workers.run(stop) => Ended::Stopped,
            ended = self.watch_bundles(&watch) => ended,
            ended = self.watch_credentials() => ended,
            () = facts.run() => Ended::Stopped,
            () = crd_watch.run() => Ended::Stopped,
            () = heartbeat.run() => Ended::Stopped,
            () = collector.run(&queue, interval) => Ended::Stopped,
            ended = self.check_clusters(&ledger, &restart) => ended,
        }
    }

    async fn load_ledger(&self) -> Arc<Ledger> {
        loop {
            match Ledger::load(&self.identities.agent(), &self.settings.namespace).await {
                Ok(ledger) => return Arc::new(ledger),
                Err(failed) => {
                    tracing::error!(error = %error::text(&failed), "cannot read the ledger");
                    tokio::time::sleep(Duration::from_secs(2)).await;
                }
            }
        }
    }

    /// Keeps the store like upstream and wakes bundles; ends when the credential is dead.
    async fn watch_bundles(&self, watch: &Watching<'_>) -> Ended {
        loop {
            tokio::select! {
                ended = self.watch_once(watch) => return ended,
                () = watch.restart.notified() => {}
            }
        }
    }

    async fn watch_once(&self, watch: &Watching<'_>) -> Ended {
        let Watching {
            store,
            queue,
            collector,
            ledger,
            ..
        } = watch;
        let api = Api::<DeserializeGuard<BundleDeployment>>::namespaced(
            self.upstream.client.clone(),
            &self.upstream.namespace,
        );
        let mut events = watch::watch(api, watcher::Config::default(), Broken::Resume);
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(event) => event,
                Err(failed) => {
                    self.health.trouble(Side::Upstream);
                    tracing::warn!(error = %error::chain(&failed), "watching bundledeployments");
                    if watch::is_credential_dead(&failed) {
                        return Ended::CredentialDead;
                    }
                    if watch::is_refused(&failed) {
                        // What was seen before may have been the namespace or the type going.
                        store.forget_deletions();
                    }
                    continue;
                }
            };
            self.health.contact(Side::Upstream);
            let Wake { names } = match event {
                watcher::Event::Init => {
                    store.relist();
                    Wake::default()
                }
                watcher::Event::InitApply(guard) => watch.applied(guard),
                watcher::Event::Apply(guard) => {
                    // Not while listing: what a list says is surveyed first.
                    let version = match &guard.0 {
                        Ok(bundle) => &bundle.metadata.resource_version,
                        Err(invalid) => &invalid.metadata.resource_version,
                    };
                    ledger.saw(version.as_deref());
                    watch.applied(guard)
                }
                watcher::Event::InitDone => {
                    let mut wake = store.relisted();
                    if let Err(failed) = collector.check_continuity().await {
                        // Every removal looks again.
                        tracing::warn!(error = %error::chain(&failed), "surveying upstream");
                    }
                    // What was deleted while nobody watched has releases, and nothing else.
                    wake.names.extend(collector.orphans());
                    wake
                }
                watcher::Event::Delete(DeserializeGuard(object)) => {
                    let metadata = match object {
                        Ok(bundle) => bundle.metadata,
                        Err(invalid) => invalid.metadata,
                    };
                    ledger.saw(metadata.resource_version.as_deref());
                    store.deleted(&metadata.name.unwrap_or_default())
                }
            };
            for name in names {
                queue.wake(&name, ReconcileKind::Full);
            }
        }
        // The stream has no end of its own.
        Ended::CredentialDead
    }

    /// Asks clusters that are in trouble whether they are well again, clusters that say nothing for a sign of life, and upstream
    /// whether it is in a state from before: then a resumed watch would be deaf, and is started anew. Ends when
    /// the credential is dead, which a watch that lives on does not notice.
    async fn check_clusters(&self, ledger: &Ledger, restart: &Notify) -> Ended {
        let bundles = Api::<BundleDeployment>::namespaced(
            self.upstream.client.clone(),
            &self.upstream.namespace,
        );
        let mut checked = Instant::now();
        let mut breaks = ledger.breaks();
        loop {
            tokio::time::sleep(RECHECK).await;
            // A look at orphans may notice first; it cannot start the watch anew.
            if std::mem::replace(&mut breaks, ledger.breaks()) != breaks {
                restart.notify_one();
            }
            if self.should_ask(Side::Local) {
                let local = self.identities.agent().client();
                match local.apiserver_version().await {
                    Ok(_) => self.health.contact(Side::Local),
                    Err(failed) => {
                        let error = error::text(&failed);
                        tracing::warn!(error, "the local cluster does not answer");
                        self.health.trouble(Side::Local);
                    }
                }
            }
            if !self.should_ask(Side::Upstream) && checked.elapsed() < CONTINUITY_CHECK {
                continue;
            }
            let seen = ledger.seen_version();
            let listed = match bundles.list_metadata(&ListParams::default().limit(1)).await {
                Ok(listed) => listed,
                Err(failed) => {
                    self.health.trouble(Side::Upstream);
                    if watch::is_refusal_of_credential(&failed) {
                        return Ended::CredentialDead;
                    }
                    continue;
                }
            };
            checked = Instant::now();
            let version = listed.metadata.resource_version.as_deref();
            let version = version.and_then(|text| text.parse::<u64>().ok());
            if version.is_some_and(|version| version < seen) {
                tracing::warn!("upstream is older than it was, watching anew");
                restart.notify_one();
            } else if self.health.is_troubled(Side::Upstream) {
                // The watch has not spoken since: it may hang on a connection nobody answers.
                restart.notify_one();
            }
            self.health.contact(Side::Upstream);
        }
    }

    fn should_ask(&self, side: Side) -> bool {
        self.health.is_troubled(side) || self.health.is_silent(side)
    }

    /// Ends when another credential is stored and works; until then the one in use is kept. A
    /// bootstrap Secret that appears, or a credential that goes, leads to another registration
    /// while work goes on.
    async fn watch_credentials(&self) -> Ended {
        let secrets = Api::<PartialObjectMeta<Secret>>::namespaced(
            self.identities.agent().client(),
            &self.settings.namespace,
        );
        let watch = |name: &str| {
            let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
            watch::watch(secrets.clone(), config, Broken::Relist)
        };
        let mut bootstrap = watch(BOOTSTRAP_NAME);
        let mut credential = watch(AGENT_NAME);
        loop {
            tokio::select! {
                Some(event) = bootstrap.next() => {
                    if let Ok(watcher::Event::Apply(_) | watcher::Event::InitApply(_)) = event {
                        tracing::info!("a bootstrap secret is there, registering again");
                        self.registrar.renew().await;
                    }
                }
                Some(event) = credential.next() => match event {
                    Ok(watcher::Event::Apply(_) | watcher::Event::InitApply(_)) => {
                        self.health.contact(Side::Local);
                        if self.is_replaced(&mut credential).await {
                            return Ended::CredentialReplaced;
                        }
                    }
                    Ok(watcher::Event::Delete(_)) => {
                        tracing::info!("the credential is gone, registering again");
                        self.registrar.renew().await;
                    }
                    Ok(watcher::Event::Init | watcher::Event::InitDone) => {
                        self.health.contact(Side::Local);
                    }
                    Err(failed) => {
                        tracing::debug!(error = %error::chain(&failed), "watching the credential");
                        self.health.trouble(Side::Local);
                    }
                },
            }
        }
    }

    /// Whether the stored credential is another one that works. One that does not is tried again
    /// until it does, or is the one in use again.
    async fn is_replaced(&self, changes: &mut CredentialWatch) -> bool {
        let mut backoff = watch::Backoff::default();
        loop {
            let current = &self.upstream.credential;
            let failed = match self.registrar.has_replacement_of(current).await {
                Ok(is_replaced) => return is_replaced,
                Err(failed) => error::chain(&failed),
            };
            tracing::warn!(
                error = failed,
                "the new credential does not work, keeping the old one"
            );
            self.events.emit_for_agent(
                Reason::CredentialRefused,
                format!("the new credential does not work, the old one is kept: {failed}"),
            );
            let pause = backoff.next().unwrap_or(RECHECK);
            tokio::select! {
                _ = changes.next() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}

/// Changes of the credential Secret.
type CredentialWatch =
    BoxStream<'static, watcher::Result<watcher::Event<PartialObjectMeta<Secret>>>>;

/// What the watch of BundleDeployments works with.
struct Watching<'a> {
    store: &'a Store,
    queue: &'a Queue,
    collector: &'a Collector,
    ledger: &'a Ledger,
    /// Notified when the watch is to begin anew.
    restart: &'a Notify,
}

impl Watching<'_> {
    fn applied(&self, DeserializeGuard(object): DeserializeGuard<BundleDeployment>) -> Wake {
        match object {
            Ok(bundle) => self.store.applied(bundle),
            Err(invalid) => {
                let name = invalid.metadata.name.unwrap_or_default();
                tracing::error!(
                    name,
                    error = invalid.error,
                    "a bundledeployment cannot be read"
                );
                self.store.malformed(&name);
                Wake::default()
            }
        }
    }
}

/// Takes bundles off the queue and runs their passes.
struct Workers {
    queue: Arc<Queue>,
    reconciler: Reconciler,
    metrics: Metrics,
    /// Bundles reconciled at once.
    limit: usize,
    /// Drift passes run at once, beside them.
    drift_limit: usize,
}

impl Workers {
    async fn run(&self, stop: CancellationToken) {
        // Not spawned: dropping the session must end every pass at once.
        let mut running = FuturesUnordered::new();
        let mut drifting = 0;
        // When there is memory to give back once more.
        let mut settled = None;
        loop {
            let room = FreeWorkers {
                full: running.len() - drifting < self.limit,
                drift: drifting < self.drift_limit,
            };
            tokio::select! {
                () = stop.cancelled() => break,
                (name, pass) = self.queue.take(room), if room.full || room.drift => {
                    drifting += usize::from(pass == ReconcileKind::Drift);
                    running.push(self.pass(name, pass));
                }
                Some(pass) = running.next() => {
                    drifting -= usize::from(pass == ReconcileKind::Drift);
                    if running.is_empty() {
                        memory::give_back();
                        settled = Some(Instant::now() + SETTLED);
                    }
                }
                () = tokio::time::sleep_until(settled.unwrap_or_else(Instant::now)), if settled.is_some() => {
                    self.reconciler.forget_resting();
                    memory::give_back();
                    settled = None;
                }
            }
        }
        let finished = async { while running.next().await.is_some() {} };
        if tokio::time::timeout(GRACE, finished).await.is_err() {
            tracing::warn!("passes in progress were cut off; the next start continues them");
        }
    }

    /// One pass, with its panic caught and its figures kept; gives back what it was for.
    async fn pass(&self, name: String, pass: ReconcileKind) -> ReconcileKind {
        let controller = pass.controller();
        let running = self.metrics.begin(controller);
        let passing = AssertUnwindSafe(Box::pin(self.reconciler.reconcile(&name, pass)));
        let next = passing.catch_unwind().await.unwrap_or_else(|_| {
            tracing::error!(name, "a reconcile panicked");
            self.metrics.panicked(controller);
            Requeue::Retry
        });
        let outcome = match next {
            Requeue::Idle => Outcome::Success,
            Requeue::After(_) | Requeue::FullAfter(_) => Outcome::RequeueAfter,
            Requeue::Retry => Outcome::Error,
        };
        running.end(outcome);
        self.queue.finish(&name, pass, next);
        pass
    }
}
