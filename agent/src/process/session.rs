//! One stretch of work with one upstream credential: everything that runs from a registration to the next.

use std::sync::Arc;
use std::time::Duration;

use chart::source::Fetcher;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::client::health::Health;
use crate::client::identity::Identities;
use crate::config::{AgentConfig, Settings};
use crate::controllers::bundle_deployment::deployer::Deployer;
use crate::controllers::bundle_deployment::reconcile::{Context, Reconciler};
use crate::controllers::bundle_deployment::values::ValuesReader;
use crate::controllers::claims::ReleaseLocks;
use crate::controllers::cluster_status::Heartbeat;
use crate::controllers::crd_watch::CrdWatch;
use crate::controllers::deployed_ids::DeployedIds;
use crate::controllers::downstream_resources::UnnotedCopies;
use crate::controllers::drift_watch::DriftWatches;
use crate::controllers::facts::{Facts, FactsReader, LastHold};
use crate::controllers::garbage::{Collector, CollectorContext};
use crate::controllers::queue::{Backoff, Queue};
use crate::controllers::signature_policy::SignaturePolicy;
use crate::controllers::source_hosts::SourceHosts;
use crate::controllers::store::Store;
use crate::controllers::values_watch::ValuesWatches;
use crate::ledger::{Ledger, Losses};
use crate::process::bundles::{BundleWatch, Workers};
use crate::process::cluster_checks::ClusterChecks;
use crate::process::credential_watch::CredentialWatch;
use crate::public::PublicText;
use crate::register::{Registrar, Upstream};
use crate::report::events::Events;
use crate::report::metrics::Metrics;

/// The parts a session works with.
///
/// # Expected flow
/// [`Session::run`] once, with what a registration gave. It makes the queue, the store and the controllers, which live as long as the
/// session, and runs them beside each other until the first of them ends. When it does not end with [`Ended::Stopped`], register
/// again and run the next session.
///
/// # Guarantees
/// Nothing of a session runs on after it: watches, reconciles and heartbeat all end with it. The ledger is read before anything is
/// removed or deployed.
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
    /// The ledger as it was read a moment ago, while upstream was asked.
    pub ledger: Option<Ledger>,
    /// What the ledgers of the sessions before knew to be lost: one that a backup brought back does not, nor one that could not be written.
    pub losses: Arc<Mutex<Losses>>,
    /// Of the sessions before, too.
    pub deployed_ids: Arc<DeployedIds>,
    /// As the sessions before read them.
    pub source_hosts: Arc<SourceHosts>,
    /// As the sessions before read it.
    pub last_hold: Arc<LastHold>,
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Termination was requested.
    Stopped,
    /// Another credential is there, and it works: connect with it.
    CredentialReplaced,
    /// The ledger is not as it was written here: what is remembered of it counts no more.
    LedgerReplaced,
}

/// Keeps what a session knew to be lost, however it ends: it is dropped where the lease is lost.
struct KeptLosses {
    ledger: Arc<Ledger>,
    losses: Arc<Mutex<Losses>>,
}

impl Drop for KeptLosses {
    fn drop(&mut self) {
        *self.losses.lock() = self.ledger.losses();
    }
}

impl Session {
    /// Works until one of the reasons to end comes up.
    ///
    /// # Cancellation
    /// Dropping it stops all work at once; what a reconcile had begun is in its release record, and the next session continues it.
    pub async fn run(mut self, stop: CancellationToken) -> Ended {
        let ledger = match self.ledger.take() {
            Some(ledger) => Arc::new(ledger),
            None => tokio::select! {
                biased;
                () = stop.cancelled() => return Ended::Stopped,
                ledger = self.load_ledger() => ledger,
            },
        };
        let is_inherited = ledger.inherits_losses(self.losses.lock().clone());
        let _kept = KeptLosses {
            ledger: Arc::clone(&ledger),
            losses: Arc::clone(&self.losses),
        };
        let Self {
            settings,
            identities,
            upstream,
            metrics,
            health,
            events,
            ..
        } = &self;
        let timing = settings.timing;
        let backoff = Backoff {
            min: timing.backoff_min,
            max: timing.backoff_max,
        };
        let queue = Arc::new(Queue::new(backoff, metrics.clone()));
        let store = Arc::new(Store::default());
        let drift = Arc::new(DriftWatches::new(
            identities.agent(),
            Arc::clone(&queue),
            timing.drift_delay,
        ));
        let crd_watch = Arc::new(CrdWatch::new(Arc::clone(identities), Arc::clone(&queue)));
        let release_locks = ReleaseLocks::default();
        let unnoted_copies = UnnotedCopies::of(&store);
        let collector = Arc::new(Collector::new(
            upstream,
            &settings.namespace,
            CollectorContext {
                identities,
                store: &store,
                ledger: &ledger,
                queue: &queue,
                events,
                metrics,
                health,
                memory: self.fetcher.memory(),
                release_locks: &release_locks,
                unnoted_copies: &unnoted_copies,
                removal_grace: timing.removal_grace,
                removal_settle: timing.removal_settle,
                rename_grace: timing.rename_grace,
            },
        ));
        let reader = FactsReader {
            agent: identities.agent(),
            namespace: settings.namespace.clone(),
            site: settings.site.clone(),
            upstream: upstream.clone(),
        };
        let facts = Arc::new(Facts::new(
            reader,
            timing.facts_refresh,
            Arc::clone(&queue),
            Arc::clone(&self.last_hold),
        ));
        let source_hosts = Arc::clone(&self.source_hosts);
        let values_watches = ValuesWatches::new(Arc::clone(&queue), timing.facts_refresh);
        let values_watches = Arc::new(values_watches);
        let values = ValuesReader {
            upstream: upstream.client.clone(),
            facts: Arc::clone(&facts),
            watches: Arc::clone(&values_watches),
            mode: settings.cluster_values,
            host: identities.host().clone(),
            limit: timing.render_limit,
        };
        let context = Context {
            identities: Arc::clone(identities),
            store: Arc::clone(&store),
            ledger: Arc::clone(&ledger),
            drift: Arc::clone(&drift),
            crd_watch: Arc::clone(&crd_watch),
            events: Arc::clone(events),
            health: health.clone(),
            collector: Arc::clone(&collector),
            facts: Arc::clone(&facts),
            values_watches,
            deployed_ids: Arc::clone(&self.deployed_ids),
            release_locks,
            unnoted_copies,
            deployer: Deployer::new(
                upstream.client.clone(),
                (self.fetcher.clone(), Arc::clone(&source_hosts)),
                values,
                SignaturePolicy::new(
                    identities.agent(),
                    &settings.namespace,
                    settings.needs_signature_policy,
                ),
                Arc::clone(&queue),
                settings,
            ),
        };
        let reconciler = Arc::new(Reconciler::new(settings, upstream, context));
        let _counting = metrics.count_entries({
            let (reconciler, queue) = (Arc::clone(&reconciler), Arc::clone(&queue));
            let events = Arc::clone(events);
            move || {
                let entries = [reconciler.entries(), queue.entries(), events.entries()];
                entries.concat()
            }
        });
        let workers = Workers {
            queue: &queue,
            store: &store,
            reconciler: &reconciler,
            metrics,
            limit: settings.workers,
            drift_limit: settings.drift_workers,
        };
        let heartbeat = Heartbeat {
            upstream: upstream.clone(),
            namespace: settings.namespace.clone(),
            first: timing.first_checkin,
            interval: settings.checkin_interval,
            health: health.clone(),
            ledger: Arc::clone(&ledger),
            agent: self.identities.agent(),
        };
        let (restart, refused) = (Notify::new(), Notify::new());
        let bundles = BundleWatch {
            upstream,
            store: &store,
            queue: &queue,
            collector: &collector,
            ledger: &ledger,
            health,
            restart: &restart,
            refused: &refused,
        };
        let credentials = CredentialWatch {
            local: identities.agent().client(),
            namespace: &settings.namespace,
            registrar: &self.registrar,
            upstream,
            refused: &refused,
            health,
            events,
        };
        let checks = ClusterChecks {
            upstream,
            local: identities.agent().client(),
            ledger: &ledger,
            store: &store,
            health,
            restart_watch: &restart,
            refused: &refused,
        };
        let drain = CancellationToken::new();
        let replaced = async {
            credentials.run().await;
            // Work under way goes on with the old credential, which may hold for a while.
            drain.cancel();
            std::future::pending::<()>().await;
        };
        let working = async {
            // Ends by itself once termination is requested and reconciles have finished.
            workers.run(stop.clone(), drain.clone()).await;
            match stop.is_cancelled() {
                true => Ended::Stopped,
                false => Ended::CredentialReplaced,
            }
        };
        let writing_inherited = async {
            // At once: as long as upstream is silent nothing else writes it, and a process that dies by then would leave nothing of it.
            if is_inherited && let Err(failed) = ledger.write().await {
                let error = PublicText::nothing_secret_in(&failed);
                logging::warn!(error, "cannot write the ledger");
            }
            std::future::pending().await
        };
        let interval = self.config.garbage_collection_interval;
        // Each is polled when there is something for it, not whenever there is for any of them.
        let mut parts = FuturesUnordered::from_iter([
            working.boxed(),
            stopped(bundles.run()),
            stopped(checks.run()),
            replaced.map(|()| Ended::CredentialReplaced).boxed(),
            stopped(writing_inherited),
            stopped(facts.run()),
            stopped(source_hosts.run()),
            stopped(crd_watch.run()),
            ledger
                .until_replaced()
                .map(|()| Ended::LedgerReplaced)
                .boxed(),
            stopped(heartbeat.run()),
            stopped(collector.run(&queue, interval)),
        ]);
        parts.next().await.unwrap_or(Ended::Stopped)
    }

    async fn load_ledger(&self) -> Arc<Ledger> {
        loop {
            match Ledger::load(&self.identities.agent(), &self.settings.namespace).await {
                Ok(ledger) => return Arc::new(ledger),
                Err(failed) => {
                    logging::error!(
                        error = PublicText::nothing_secret_in(&failed),
                        "cannot read the ledger"
                    );
                    tokio::time::sleep(Duration::from_secs(2)).await;
                }
            }
        }
    }
}

/// A part that never ends by itself.
fn stopped<'a>(part: impl Future<Output = ()> + Send + 'a) -> BoxFuture<'a, Ended> {
    part.map(|()| Ended::Stopped).boxed()
}
