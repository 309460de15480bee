//! The workers: take bundles off the queue and reconcile them.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::controllers::bundle_deployment::reconcile::Reconciler;
use crate::controllers::queue::{FreeWorkers, Queue, ReconcileKind, Requeue};
use crate::controllers::store::Store;
use crate::process::memory;
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

/// Takes bundles off the queue and reconciles them, as many at once as the limits allow.
pub(super) struct Workers {
    queue: Arc<Queue>,
    store: Arc<Store>,
    reconciler: Arc<Reconciler>,
    metrics: Metrics,
    /// Bundles reconciled at once.
    limit: usize,
    /// Bundles checked for drift at once, beside them.
    drift_limit: usize,
}

impl Workers {
    pub(super) fn new(
        queue: Arc<Queue>,
        store: Arc<Store>,
        reconciler: Arc<Reconciler>,
        metrics: Metrics,
        limit: usize,
        drift_limit: usize,
    ) -> Self {
        metrics.limit(Controller::BundleDeployment, limit);
        metrics.limit(Controller::Drift, drift_limit);
        Self {
            queue,
            store,
            reconciler,
            metrics,
            limit,
            drift_limit,
        }
    }

    /// Ends once `stop` is cancelled and the reconciles in progress have ended, or were cut off after [`GRACE`]; once `drain` is, they have
    /// [`DRAIN`].
    pub(super) async fn run(&self, stop: CancellationToken, drain: CancellationToken) {
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
