//! The figures of client-go's work queues, under controller-runtime's names and with its labels. Our one queue counts as two: full
//! reconciles and drift checks have figures of their own.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;

use super::{Controller, Labels};

type Seconds = Gauge<f64, AtomicU64>;

/// Figures of the queue; all clones share.
#[derive(Clone, Debug)]
pub(super) struct Workqueue {
    depth: Family<Labels<3>, Gauge>,
    adds: Family<Labels<2>, Counter>,
    retries: Family<Labels<2>, Counter>,
    waited: Family<Labels<2>, Histogram>,
    worked: Family<Labels<2>, Histogram>,
    /// Reconciles in progress by a number of their own, and since when.
    running: Arc<Mutex<HashMap<u64, (Controller, Instant)>>>,
}

impl Default for Workqueue {
    fn default() -> Self {
        let histogram = || Histogram::new(exponential_buckets(10e-9, 10.0, 12));
        Self {
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            waited: Family::new_with_constructor(histogram),
            worked: Family::new_with_constructor(histogram),
            running: Arc::default(),
        }
    }
}

impl Workqueue {
    /// Shows everything of a controller from the beginning, as zero.
    pub(super) fn introduce(&self, controller: Controller) {
        let queue = by(controller);
        drop(self.depth.get_or_create(&by_priority(controller)));
        drop(self.adds.get_or_create(&queue));
        drop(self.retries.get_or_create(&queue));
        drop(self.waited.get_or_create(&queue));
        drop(self.worked.get_or_create(&queue));
    }

    pub(super) fn depth(&self, controller: Controller, depth: usize) {
        let depth = i64::try_from(depth).unwrap_or(i64::MAX);
        self.depth
            .get_or_create(&by_priority(controller))
            .set(depth);
    }

    pub(super) fn added(&self, controller: Controller, is_delayed: bool) {
        self.adds.get_or_create(&by(controller)).inc();
        if is_delayed {
            self.retries.get_or_create(&by(controller)).inc();
        }
    }

    pub(super) fn taken(&self, controller: Controller, waited: Duration) {
        let waited = waited.as_secs_f64();
        self.waited.get_or_create(&by(controller)).observe(waited);
    }

    pub(super) fn started(&self, number: u64, controller: Controller, at: Instant) {
        let mut running = self.running.lock();
        running.insert(number, (controller, at));
    }

    /// Since when this one ran.
    pub(super) fn ended(&self, number: u64) -> Option<(Controller, Instant)> {
        let mut running = self.running.lock();
        running.remove(&number)
    }

    pub(super) fn worked(&self, controller: Controller, took: Duration) {
        let took = took.as_secs_f64();
        self.worked.get_or_create(&by(controller)).observe(took);
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let (sum, longest) = self.unfinished();
        register!(registry,
            "workqueue_depth", "Bundles that are due and not worked on" => self.depth.clone(),
            "workqueue_adds", "Bundles that came into the queue" => self.adds.clone(),
            "workqueue_retries", "Bundles that came into the queue for later" => self.retries.clone(),
            "workqueue_queue_duration", "How long a bundle was due before it was worked on" in Seconds => self.waited.clone(),
            "workqueue_work_duration", "How long a reconcile took" in Seconds => self.worked.clone(),
            "workqueue_unfinished_work", "How long the reconciles in progress have taken together" in Seconds => sum,
            "workqueue_longest_running_processor", "How long the longest reconcile in progress has taken" in Seconds => longest,
        );
    }

    /// What the reconciles in progress have taken: together, and the longest of them.
    fn unfinished(&self) -> (Family<Labels<2>, Seconds>, Family<Labels<2>, Seconds>) {
        let (sum, longest) = (Family::default(), Family::default());
        let running = self.running.lock();
        for controller in Controller::ALL {
            let in_progress = running.values().filter(|(of, _)| *of == controller);
            let seconds = in_progress.map(|(_, since)| since.elapsed().as_secs_f64());
            let (all, most) = seconds.fold((0.0, 0.0), |(all, most), one| {
                (all + one, f64::max(most, one))
            });
            let sum: &Family<Labels<2>, Seconds> = &sum;
            let longest: &Family<Labels<2>, Seconds> = &longest;
            sum.get_or_create(&by(controller)).set(all);
            longest.get_or_create(&by(controller)).set(most);
        }
        (sum, longest)
    }
}

/// controller-runtime calls a queue and its controller the same.
fn by(controller: Controller) -> Labels<2> {
    let name = controller.name();
    [("name", name), ("controller", name)]
}

/// Labels of controller-runtime's priority queues; ours has no priorities: all are of the usual one.
fn by_priority(controller: Controller) -> Labels<3> {
    let [name, controller] = by(controller);
    [name, controller, ("priority", "0")]
}
