//! The bundles of a session: the watch that delivers them, and the workers that take them off the queue and reconcile them.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use kube::runtime::watcher;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::BundleDeployment;
use crate::client::health::{Health, Side};
use crate::client::listed::RawObject;
use crate::client::watch::{self, Broken};
use crate::controllers::bundle_deployment::reconcile::Reconciler;
use crate::controllers::garbage::Collector;
use crate::controllers::queue::{FreeWorkers, Queue, ReconcileKind, Requeue};
use crate::controllers::store::Store;
use crate::ledger::Ledger;
use crate::process::memory;
use crate::public::{PublicText, redact};
use crate::register::Upstream;
use crate::report::metrics::{Controller, Metrics};

/// How long reconciles in progress may go on after a termination was requested.
const GRACE: Duration = Duration::from_secs(5);

/// How long they may go on after another credential was found: as long as hooks and waits may take that name no limit.
const DRAIN: Duration = Duration::from_secs(5 * 60);

/// How long after a burst nothing of it is needed any more: connections are closed by then, and what
/// was remembered of bundles in motion is forgotten.
const SETTLED: Duration = Duration::from_secs(65);

/// How often memory is given back while there is always something to do.
const GIVEN_BACK: Duration = Duration::from_millis(200);

/// The watch of BundleDeployments: keeps the store like upstream and wakes bundles.
pub(super) struct BundleWatch<'a> {
    pub(super) upstream: &'a Upstream,
    pub(super) store: &'a Store,
    pub(super) queue: &'a Queue,
    pub(super) collector: &'a Collector,
    pub(super) ledger: &'a Ledger,
    pub(super) health: &'a Health,
    /// Notified when the watch is to begin anew.
    pub(super) restart: &'a Notify,
    /// Notifies that upstream refuses the credential.
    pub(super) refused: &'a Notify,
}

impl BundleWatch<'_> {
    /// Watches; never ends.
    pub(super) async fn run(&self) {
        loop {
            tokio::select! {
                biased;
                () = self.watch() => {}
                () = self.restart.notified() => {}
            }
        }
    }

    async fn watch(&self) {
        let api = self
            .upstream
            .bundle_deployments::<RawObject<BundleDeployment>>();
        let mut events = watch::watch(api, watcher::Config::default(), Broken::Resume);
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(event) => event,
                Err(failed) => {
                    self.store.breaks_off();
                    match watch::is_answer(&failed) {
                        true => self.health.refused(Side::Upstream),
                        false => self.health.trouble(Side::Upstream),
                    }
                    logging::warn!(
                        error = PublicText::nothing_secret_in(&failed),
                        "watching bundledeployments"
                    );
                    let is_credential_refused = watch::is_credential_refused(&failed);
                    if is_credential_refused {
                        self.refused.notify_one();
                    }
                    if is_credential_refused || watch::is_broken(&failed) {
                        self.collector.doubt_upstream();
                    }
                    if watch::is_refused(&failed) {
                        // The namespace or the type may have been deleted, and its bundles with it: no proof.
                        self.store.forget_deletions();
                    }
                    continue;
                }
            };
            match event {
                // No request was sent yet.
                watcher::Event::Init => self.health.lists(),
                _ => self.health.contact(Side::Upstream),
            }
            for name in self.take(event) {
                self.queue.wake(&name, ReconcileKind::Full);
            }
        }
    }

    /// Brings the store up to an event. Which bundles it wakes.
    fn take(&self, event: watcher::Event<RawObject<BundleDeployment>>) -> Vec<String> {
        match event {
            watcher::Event::Init => {
                self.store.relist();
                Vec::new()
            }
            watcher::Event::InitApply(bundle) => self.applied(&bundle),
            watcher::Event::Apply(bundle) => {
                // Not while listing: the version of a list is first compared with the one seen before.
                let version = &bundle.metadata.resource_version;
                self.ledger.saw_version(version.as_deref());
                self.applied(&bundle)
            }
            watcher::Event::InitDone => {
                self.health.listed();
                // The store has forgotten by now what it was compared with.
                if self.store.take_older_listed() {
                    self.ledger.found_restored();
                }
                let mut wake = self.store.relisted();
                // Nobody said that they were deleted: they may be lost, and what is deployed of them with them.
                wake.iter().for_each(|gone| self.queue.supersede(gone));
                self.collector.check_continuity();
                // Deleted while nobody watched: such bundles are in the ledger and not in the list.
                wake.extend(self.collector.orphans());
                wake
            }
            watcher::Event::Delete(RawObject { metadata, .. }) => {
                self.ledger
                    .saw_version(metadata.resource_version.as_deref());
                let name = metadata.name.unwrap_or_default();
                self.store.deleted(&name);
                self.queue.supersede(&name);
                vec![name]
            }
        }
    }

    fn applied(&self, received: &RawObject<BundleDeployment>) -> Vec<String> {
        let name = received.metadata.name.as_deref();
        self.ledger.came_back(name.unwrap_or_default());
        match received.kept() {
            Ok(bundle) => {
                let name = bundle.name().to_owned();
                let old = self.store.get(&name);
                let is_other_spec = old.is_some_and(|old| old.spec != bundle.spec);
                let wake = self.store.applied(bundle);
                if is_other_spec {
                    self.queue.supersede(&name);
                }
                wake
            }
            Err(invalid) => {
                let name = received.metadata.name.clone().unwrap_or_default();
                logging::error!(
                    name,
                    error = redact::without_quotes(&invalid.to_string()),
                    "a bundledeployment cannot be read"
                );
                self.store.malformed(&name);
                vec![name]
            }
        }
    }
}

/// Takes bundles off the queue and reconciles them, as many at once as the limits allow.
pub(super) struct Workers<'a> {
    pub(super) queue: &'a Queue,
    pub(super) store: &'a Store,
    pub(super) reconciler: &'a Reconciler,
    pub(super) metrics: &'a Metrics,
    /// Bundles reconciled at once.
    pub(super) limit: usize,
    /// Bundles checked for drift at once, beside them.
    pub(super) drift_limit: usize,
}

impl Workers<'_> {
    /// Ends once `stop` is cancelled and the reconciles in progress have ended, or were cut off after [`GRACE`]; once `drain` is, they have
    /// [`DRAIN`].
    pub(super) async fn run(&self, stop: CancellationToken, drain: CancellationToken) {
        self.metrics.limit(Controller::BundleDeployment, self.limit);
        self.metrics.limit(Controller::Drift, self.drift_limit);
        // A bundle that is yet to be listed would count as not there: as what others depend on, as who waits for a release, as who has one.
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = drain.cancelled() => return,
            () = self.store.until_whole() => {}
        }
        // Not spawned: dropping the session must end every reconcile at once.
        let mut running = FuturesUnordered::new();
        let mut drifting = 0;
        // When there is memory to give back once more, and to forget what came to rest: also what a session before this one remembered.
        let mut settled = Some(Instant::now() + SETTLED);
        let mut given_back = Instant::now();
        loop {
            let free = FreeWorkers {
                full: running.len() - drifting < self.limit,
                drift: drifting < self.drift_limit,
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = drain.cancelled() => break,
                (name, kind) = self.queue.take(free), if free.full || free.drift => {
                    drifting += usize::from(kind == ReconcileKind::Drift);
                    running.push(self.reconcile(name, kind));
                }
                Some(kind) = running.next() => {
                    drifting -= usize::from(kind == ReconcileKind::Drift);
                    let now = Instant::now();
                    if running.is_empty() {
                        settled = Some(now + SETTLED);
                    }
                    // Where some work never ends, what the rest took goes back all the same.
                    if running.is_empty() || now.duration_since(given_back) >= GIVEN_BACK {
                        memory::give_back();
                        given_back = now;
                    }
                }
                () = tokio::time::sleep_until(settled.unwrap_or_else(Instant::now)), if settled.is_some() => {
                    self.reconciler.forget_resting();
                    memory::give_back();
                    settled = None;
                }
            }
        }
        let mut finished = pin!(async { while running.next().await.is_some() {} });
        let has_finished = tokio::select! {
            biased;
            () = &mut finished => true,
            () = stop.cancelled() => tokio::time::timeout(GRACE, finished).await.is_ok(),
            () = tokio::time::sleep(DRAIN) => false,
        };
        if !has_finished {
            logging::warn!("reconciles in progress were cut off; the next start continues them");
        }
    }

    /// One reconcile, with its panic caught and its metrics kept; gives back its kind.
    async fn reconcile(&self, name: String, kind: ReconcileKind) -> ReconcileKind {
        let controller = kind.controller();
        let running = self.metrics.begin(controller);
        let reconcile = AssertUnwindSafe(Box::pin(self.reconciler.reconcile(&name, kind)));
        let next = reconcile.catch_unwind().await.unwrap_or_else(|_| {
            logging::error!(bundle = name, "a reconcile panicked");
            self.metrics.panicked(controller);
            Requeue::RETRY
        });
        running.end(next.outcome());
        self.queue.finish(&name, kind, next);
        kind
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::client::scripted;
    use crate::controllers::garbage::fixtures::{bundle, collector};
    use crate::controllers::queue::Backoff;
    use crate::ledger::{Hold, LedgerEntry};

    /// Lets a watch act, of an upstream that answers each request with this code. Gives the ledger, which begins with these entries.
    async fn watching(
        store: &Arc<Store>,
        entries: &[(&str, LedgerEntry)],
        code: u16,
        acts: impl AsyncFnOnce(&BundleWatch<'_>),
    ) -> Arc<Ledger> {
        let clients = scripted::clients(move |_| {
            let status = json!({"kind": "Status", "status": "Failure", "code": code});
            std::future::ready((code, status))
        });
        let (collector, ledger) = collector(store, entries, |_| 200).await;
        let backoff = Backoff {
            min: Duration::ZERO,
            max: Duration::ZERO,
        };
        let watch = BundleWatch {
            upstream: &Upstream::scripted(&clients),
            store,
            queue: &Queue::new(backoff, Metrics::default()),
            collector: &collector,
            ledger: &ledger,
            health: &Health::new(GRACE),
            restart: &Notify::new(),
            refused: &Notify::new(),
        };
        acts(&watch).await;
        ledger
    }

    /// The bundle came and went again before it was its turn.
    #[tokio::test(start_paused = true)]
    async fn a_permission_ends_where_its_bundle_comes_back() {
        for spec in [json!({}), json!("unreadable")] {
            let delivered = json!({"metadata": {"name": "web"}, "spec": spec}).to_string();
            let delivered = || serde_json::from_str(&delivered).unwrap();
            let entries = ["web", "other"].map(|name| {
                let entry = LedgerEntry {
                    bundle: name.to_owned(),
                    hold: Some(Hold::Released),
                    ..LedgerEntry::default()
                };
                (name, entry)
            });
            let comes_and_goes = async |watch: &BundleWatch<'_>| {
                watch.take(watcher::Event::Apply(delivered()));
                watch.take(watcher::Event::Delete(delivered()));
            };
            let ledger = watching(&Arc::default(), &entries, 404, comes_and_goes).await;
            let hold = |bundle| ledger.of_bundle(bundle)[0].1.hold;
            assert_eq!(hold("web"), Some(Hold::Held), "{spec}");
            assert_eq!(hold("other"), Some(Hold::Released), "{spec}");
        }
    }

    /// The namespace may have been deleted, and its bundles with it.
    #[tokio::test(start_paused = true)]
    async fn deletions_seen_stop_counting_where_upstream_refuses_the_watch() {
        for (code, is_proof) in [(401, false), (403, false), (404, false), (500, true)] {
            let store = Arc::<Store>::default();
            store.applied(bundle("web"));
            store.deleted("web");
            let watches = async |watch: &BundleWatch<'_>| {
                let ended = tokio::time::timeout(GRACE, watch.run()).await;
                assert!(ended.is_err());
            };
            watching(&store, &[], code, watches).await;
            assert_eq!(store.deleted_since("web").is_some(), is_proof, "{code}");
        }
    }
}
