//! One stretch of work with one upstream credential: watches, workers, heartbeat, clean-up.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use chart::source::Fetcher;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PartialObjectMeta;
use kube::core::DeserializeGuard;
use kube::runtime::{WatchStreamExt as _, watcher};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::BundleDeployment;
use crate::config::{AGENT_NAME, AgentConfig, BOOTSTRAP_NAME, Settings};
use crate::controllers::bundle_deployment::deploy::Deployer;
use crate::controllers::bundle_deployment::reconcile::{Reconciler, Rooms};
use crate::controllers::bundle_deployment::values::ValuesReader;
use crate::controllers::cluster_status::Heartbeat;
use crate::controllers::drift::DriftWatches;
use crate::controllers::facts::{Facts, FactsReader};
use crate::controllers::garbage::Collector;
use crate::controllers::queue::{Backoff, Next, Pass, Queue};
use crate::controllers::store::{Store, Wake};
use crate::error;
use crate::identity::Identities;
use crate::ledger::Ledger;
use crate::memory;
use crate::metrics::{Controller, Metrics, Outcome};
use crate::register::{Registrar, Upstream};
use crate::server::Health;
use crate::watching;

/// How long passes in progress may go on after a termination was requested.
const GRACE: Duration = Duration::from_secs(5);

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
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Termination was requested.
    Stopped,
    /// The credential is refused, was replaced or is gone: connect again.
    CredentialDead,
}

impl Session {
    /// Works until one of the reasons to end comes up.
    ///
    /// # Cancellation
    /// Dropping it stops all work at once.
    pub async fn run(self, stop: CancellationToken) -> Ended {
        let ledger = tokio::select! {
            () = stop.cancelled() => return Ended::Stopped,
            ledger = self.load_ledger() => ledger,
        };
        let timing = self.settings.timing;
        let queue = Arc::new(Queue::new(Backoff {
            min: timing.backoff_min,
            max: timing.backoff_max,
        }));
        let store = Arc::new(Store::default());
        let drift = Arc::new(DriftWatches::new(
            self.identities.agent(),
            Arc::clone(&queue),
            timing.drift_delay,
        ));
        let bundles = Api::<BundleDeployment>::namespaced(
            self.upstream.client.clone(),
            &self.upstream.namespace,
        );
        let collector = Arc::new(Collector::new(
            bundles,
            Arc::clone(&self.identities),
            Arc::clone(&store),
            Arc::clone(&ledger),
            self.metrics.clone(),
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
        let rooms = Rooms {
            identities: Arc::clone(&self.identities),
            store: Arc::clone(&store),
            ledger: Arc::clone(&ledger),
            drift: Arc::clone(&drift),
            collector: Arc::clone(&collector),
            facts: Arc::clone(&facts),
            deployer: Deployer::new(
                self.upstream.client.clone(),
                self.fetcher.clone(),
                values,
                &self.settings.namespace,
                &self.settings.scope,
            ),
        };
        let reconciler = Reconciler::new(&self.settings, &self.upstream, rooms);
        let heartbeat = Heartbeat {
            upstream: self.upstream.client.clone(),
            cluster_namespace: self.upstream.cluster_namespace.clone(),
            cluster_name: self.upstream.cluster_name.clone(),
            namespace: self.settings.namespace.clone(),
            first: timing.first_checkin,
            interval: self.settings.checkin_interval,
            health: self.health.clone(),
        };
        let workers = Workers {
            queue: Arc::clone(&queue),
            reconciler,
            metrics: self.metrics.clone(),
            limit: self.settings.workers,
        };
        self.metrics
            .limit(Controller::BundleDeployment, self.settings.workers);
        self.metrics
            .limit(Controller::Drift, self.settings.drift_workers);
        let interval = self.config.garbage_collection_interval;
        tokio::select! {
            // Ends by itself once termination is requested and passes have finished.
            () = workers.run(stop) => Ended::Stopped,
            ended = self.watch_bundles(&store, &queue, &collector) => ended,
            ended = self.watch_credentials() => ended,
            () = facts.run() => Ended::Stopped,
            () = heartbeat.run() => Ended::Stopped,
            () = collector.run(&queue, interval) => Ended::Stopped,
            () = self.health.watch(self.upstream.clone()) => Ended::Stopped,
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
    async fn watch_bundles(&self, store: &Store, queue: &Queue, collector: &Collector) -> Ended {
        let api = Api::<DeserializeGuard<BundleDeployment>>::namespaced(
            self.upstream.watching.clone(),
            &self.upstream.namespace,
        );
        let events = watcher(api, watcher::Config::default()).backoff(watching::Backoff::default());
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(event) => event,
                Err(failed) => {
                    self.health.trouble();
                    tracing::warn!(error = %error::chain(&failed), "watching bundledeployments");
                    if watching::is_credential_dead(&failed) {
                        return Ended::CredentialDead;
                    }
                    continue;
                }
            };
            self.health.contact();
            let Wake { names } = match event {
                watcher::Event::Init => {
                    store.relist();
                    Wake::default()
                }
                watcher::Event::InitApply(guard) | watcher::Event::Apply(guard) => {
                    applied(store, guard)
                }
                watcher::Event::InitDone => {
                    let mut wake = store.relisted();
                    // What was deleted while nobody watched has releases, and nothing else.
                    wake.names.extend(collector.orphans().await);
                    wake
                }
                watcher::Event::Delete(DeserializeGuard(object)) => {
                    let metadata = match object {
                        Ok(bundle) => bundle.metadata,
                        Err(invalid) => invalid.metadata,
                    };
                    store.deleted(&metadata.name.unwrap_or_default())
                }
            };
            for name in names {
                queue.wake(&name, Pass::Full);
            }
            self.metrics
                .queued(Controller::BundleDeployment, queue.depth());
        }
        // The stream has no end of its own.
        Ended::CredentialDead
    }

    /// Ends when the credential Secret goes or changes. A bootstrap Secret that appears is used to
    /// register again while work goes on with the old credential.
    async fn watch_credentials(&self) -> Ended {
        let secrets = Api::<PartialObjectMeta<Secret>>::namespaced(
            self.identities.agent().client(),
            &self.settings.namespace,
        );
        let watch = |name: &str| {
            let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
            watcher(secrets.clone(), config)
                .backoff(watching::Backoff::default())
                .boxed()
        };
        let mut bootstrap = watch(BOOTSTRAP_NAME);
        let mut credential = watch(AGENT_NAME);
        let mut version = None;
        loop {
            tokio::select! {
                Some(Ok(event)) = bootstrap.next() => {
                    if matches!(event, watcher::Event::Apply(_) | watcher::Event::InitApply(_)) {
                        tracing::info!("a bootstrap secret is there, registering again");
                        self.registrar.renew().await;
                    }
                }
                Some(Ok(event)) = credential.next() => match event {
                    watcher::Event::Apply(secret) | watcher::Event::InitApply(secret) => {
                        let found = secret.metadata.resource_version;
                        let changed = version.is_some() && version != found;
                        version = found;
                        if changed {
                            tracing::info!("the credential changed, connecting again");
                            return Ended::CredentialDead;
                        }
                    }
                    watcher::Event::Delete(_) => {
                        tracing::info!("the credential is gone, registering again");
                        return Ended::CredentialDead;
                    }
                    watcher::Event::Init | watcher::Event::InitDone => {}
                },
                // An error: the back-off is the stream's.
                else => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
    }
}

fn applied(store: &Store, DeserializeGuard(object): DeserializeGuard<BundleDeployment>) -> Wake {
    match object {
        Ok(bundle) => store.applied(bundle),
        Err(invalid) => {
            let name = invalid.metadata.name.unwrap_or_default();
            tracing::error!(
                name,
                error = invalid.error,
                "a bundledeployment cannot be read"
            );
            store.malformed(&name);
            Wake::default()
        }
    }
}

/// Takes bundles off the queue and runs their passes.
struct Workers {
    queue: Arc<Queue>,
    reconciler: Reconciler,
    metrics: Metrics,
    limit: usize,
}

impl Workers {
    async fn run(&self, stop: CancellationToken) {
        // Not spawned: dropping the session must end every pass at once.
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                (name, pass) = self.queue.take(), if running.len() < self.limit => {
                    running.push(self.pass(name, pass));
                }
                Some(()) = running.next() => {
                    self.metrics.queued(Controller::BundleDeployment, self.queue.depth());
                    if running.is_empty() {
                        memory::give_back();
                    }
                }
            }
        }
        let finished = async { while running.next().await.is_some() {} };
        if tokio::time::timeout(GRACE, finished).await.is_err() {
            tracing::warn!("passes in progress were cut off; the next start continues them");
        }
    }

    /// One pass, with its panic caught and its figures kept.
    async fn pass(&self, name: String, pass: Pass) {
        let controller = match pass {
            Pass::Full => Controller::BundleDeployment,
            Pass::Drift => Controller::Drift,
        };
        self.metrics.started(controller);
        let start = Instant::now();
        let passing = AssertUnwindSafe(Box::pin(self.reconciler.reconcile(&name, pass)));
        let next = passing.catch_unwind().await.unwrap_or_else(|_| {
            tracing::error!(name, "a reconcile panicked");
            self.metrics.panicked(controller);
            Next::Retry
        });
        let outcome = match next {
            Next::Idle => Outcome::Success,
            Next::After(_) => Outcome::RequeueAfter,
            Next::Retry => Outcome::Error,
        };
        self.metrics.finished(controller, outcome, start.elapsed());
        self.queue.finish(&name, pass, next);
    }
}
