//! Metrics under controller-runtime's names, so that existing dashboards keep working, and a few
//! of our own under `fleet_agent_`.
//!
//! Labels are fixed words only: never a bundle's name or an error's text.

/// Registers a figure a row: its name, what it is, in which unit, and where it is counted. It stands before the modules, which use it too.
macro_rules! register {
    (@row $registry:ident, $name:expr, $help:literal, $counted:expr) => {
        $registry.register($name, $help, $counted);
    };
    (@row $registry:ident, $name:expr, $help:literal, $counted:expr, $unit:ident) => {
        $registry.register_with_unit($name, $help, Unit::$unit, $counted);
    };
    ($registry:ident, $($name:expr, $help:literal $(in $unit:ident)? => $counted:expr,)+) => {
        $(register!(@row $registry, $name, $help, $counted $(, $unit)?);)+
    };
}

mod entries;
mod process;
mod workqueue;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;

use crate::client::requests;
use crate::config::{AGENT_NAME, VERSION};
use entries::EntryCount;
pub use entries::{Counting, Entries};
use workqueue::Workqueue;

/// The loop that a figure belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Controller {
    /// Reconciles BundleDeployments.
    BundleDeployment,
    /// Compares live objects that changed.
    Drift,
}

impl Controller {
    const ALL: [Self; 2] = [Self::BundleDeployment, Self::Drift];

    fn name(self) -> &'static str {
        match self {
            Self::BundleDeployment => "bundledeployment",
            Self::Drift => "drift-reconciler",
        }
    }
}

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    Success,
    Error,
    RequeueAfter,
}

impl Outcome {
    const ALL: [Self; 3] = [Self::Success, Self::Error, Self::RequeueAfter];

    fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::RequeueAfter => "requeue_after",
        }
    }
}

/// So many labels of a figure, each with its value.
type Labels<const N: usize> = [(&'static str, &'static str); N];

/// The process's figures; cheap to clone, all clones share.
#[derive(Clone, Debug)]
pub struct Metrics {
    reconciles: Family<Labels<2>, Counter>,
    errors: Family<Labels<1>, Counter>,
    panics: Family<Labels<1>, Counter>,
    /// There are none, and no time limit of a reconcile as a whole; dashboards ask for them.
    terminal_errors: Family<Labels<1>, Counter>,
    timeouts: Family<Labels<1>, Counter>,
    seconds: Family<Labels<1>, Histogram>,
    max_concurrent: Family<Labels<1>, Gauge>,
    active: Family<Labels<1>, Gauge>,
    queue: Workqueue,
    started: Arc<AtomicU64>,
    leading: Family<Labels<1>, Gauge>,
    held_removals: Gauge,
    unknown_releases: Gauge,
    events: Family<Labels<1>, Counter>,
    build: Family<Labels<1>, Gauge>,
    entries: EntryCount,
}

/// A reconcile in progress; dropped without [`Running::end`] it was cut off.
#[derive(Debug)]
pub struct Running {
    metrics: Metrics,
    number: u64,
}

impl Running {
    /// The reconcile ended by itself.
    pub fn end(self, outcome: Outcome) {
        let Some((controller, took)) = self.stop() else {
            return;
        };
        let metrics = &self.metrics;
        metrics.queue.worked(controller, took);
        let seconds = metrics.seconds.get_or_create(&by(controller));
        seconds.observe(took.as_secs_f64());
        drop(seconds);
        metrics
            .reconciles
            .get_or_create(&of(controller, outcome))
            .inc();
        if outcome == Outcome::Error {
            metrics.errors.get_or_create(&by(controller)).inc();
        }
    }

    fn stop(&self) -> Option<(Controller, Duration)> {
        let (controller, since) = self.metrics.queue.ended(self.number)?;
        self.metrics.active.get_or_create(&by(controller)).dec();
        Some((controller, since.elapsed()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        // controller-runtime's.
        const BUCKETS: [f64; 40] = [
            0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7,
            0.8, 0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0,
            10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
        ];
        Self {
            reconciles: Family::default(),
            errors: Family::default(),
            panics: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            max_concurrent: Family::default(),
            active: Family::default(),
            queue: Workqueue::default(),
            started: Arc::default(),
            terminal_errors: Family::default(),
            timeouts: Family::default(),
            leading: Family::default(),
            held_removals: Gauge::default(),
            unknown_releases: Gauge::default(),
            events: Family::default(),
            build: Family::default(),
            entries: EntryCount::default(),
        }
    }
}

impl Metrics {
    /// A reconcile begins.
    pub fn begin(&self, controller: Controller) -> Running {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        self.active.get_or_create(&by(controller)).inc();
        self.queue.started(number, controller, Instant::now());
        Running {
            metrics: self.clone(),
            number,
        }
    }

    /// A reconcile panicked and was caught.
    pub fn panicked(&self, controller: Controller) {
        self.panics.get_or_create(&by(controller)).inc();
    }

    /// How many reconciles may run at once. From then on all figures of this controller are there.
    pub fn limit(&self, controller: Controller, workers: usize) {
        self.queue.introduce(controller);
        let counters = [
            &self.errors,
            &self.panics,
            &self.terminal_errors,
            &self.timeouts,
        ];
        for counter in counters {
            drop(counter.get_or_create(&by(controller)));
        }
        for outcome in Outcome::ALL {
            drop(self.reconciles.get_or_create(&of(controller, outcome)));
        }
        drop(self.active.get_or_create(&by(controller)));
        let workers = i64::try_from(workers).unwrap_or(i64::MAX);
        self.max_concurrent
            .get_or_create(&by(controller))
            .set(workers);
    }

    /// Bundles that are due and not worked on.
    pub fn queued(&self, controller: Controller, depth: usize) {
        self.queue.depth(controller, depth);
    }

    /// A bundle came into the queue, for now or for later.
    pub fn added(&self, controller: Controller, is_delayed: bool) {
        self.queue.added(controller, is_delayed);
    }

    /// A bundle was taken from the queue, having been due for so long.
    pub fn taken(&self, controller: Controller, waited: Duration) {
        self.queue.taken(controller, waited);
    }

    /// Whether this process holds the Lease. The figures of the Lease's holder are another process' to report after that.
    pub fn leading(&self, leading: bool) {
        self.leading
            .get_or_create(&[("name", AGENT_NAME)])
            .set(i64::from(leading));
        if !leading {
            self.held_removals(0);
            self.unknown_releases(0);
        }
    }

    /// Releases whose removal is held back.
    pub fn held_removals(&self, count: usize) {
        self.held_removals
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Releases that name this agent and are not in its ledger.
    pub fn unknown_releases(&self, count: usize) {
        self.unknown_releases
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Events may have this reason: its figure is there from now on, so that an alert sees the first one as an increase.
    pub fn may_emit(&self, reason: &'static str) {
        drop(self.events.get_or_create(&[("reason", reason)]));
    }

    /// An Event with this reason was emitted, written or not.
    pub fn emitted(&self, reason: &'static str) {
        self.events.get_or_create(&[("reason", reason)]).inc();
    }

    /// Registers a count of remembered entries, until the returned guard is dropped.
    pub fn count_entries(&self, count: impl Fn() -> Entries + Send + Sync + 'static) -> Counting {
        self.entries.begin(count)
    }

    /// How many entries each map has now; empty while no session runs.
    pub fn entries(&self) -> Entries {
        self.entries.now()
    }

    /// The text of `/metrics` (OpenMetrics).
    pub fn encode(&self) -> String {
        self.build.get_or_create(&[("version", VERSION)]).set(1);
        let mut registry = Registry::default();
        let r = &mut registry;
        register!(r,
            "controller_runtime_reconcile", "Reconciliations" => self.reconciles.clone(),
            "controller_runtime_reconcile_errors", "Failed ones" => self.errors.clone(),
            "controller_runtime_reconcile_panics", "Panicked ones" => self.panics.clone(),
            "controller_runtime_terminal_reconcile_errors", "Failures that are final; there are none" => self.terminal_errors.clone(),
            "controller_runtime_reconcile_timeouts", "Reconciliations cut off for their length; there are none" => self.timeouts.clone(),
            "controller_runtime_reconcile_time", "Length of a reconciliation" in Seconds => self.seconds.clone(),
            "controller_runtime_max_concurrent_reconciles", "Workers" => self.max_concurrent.clone(),
            "controller_runtime_active_workers", "Busy workers" => self.active.clone(),
        );
        self.queue.register(r);
        register!(r,
            "leader_election_master_status", "1 while leading" => self.leading.clone(),
            "fleet_agent_held_removals", "Releases whose removal is held back" => self.held_removals.clone(),
            "fleet_agent_unknown_releases", "Releases that name this agent and are not in its ledger" => self.unknown_releases.clone(),
            "fleet_agent_events", "What happened, by the reason of its Event" => self.events.clone(),
            "fleet_agent_build_info", "1 for the version that runs" => self.build.clone(),
            requests::NAME, "Requests to API servers by code, method and host" => requests::counts(),
        );
        self.entries.register(r);
        process::register(r);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)
            .expect("writing to a String cannot fail");
        text
    }
}

fn by(controller: Controller) -> Labels<1> {
    [("controller", controller.name())]
}

fn of(controller: Controller, outcome: Outcome) -> Labels<2> {
    [
        ("controller", controller.name()),
        ("result", outcome.name()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_lost_the_lease_reports_no_removals_or_unknown_releases() {
        let metrics = Metrics::default();
        metrics.leading(true);
        metrics.held_removals(2);
        metrics.unknown_releases(3);
        let has = |line: &str| metrics.encode().lines().any(|one| one == line);
        assert!(has("fleet_agent_held_removals 2") && has("fleet_agent_unknown_releases 3"));
        metrics.leading(false);
        assert!(has("fleet_agent_held_removals 0") && has("fleet_agent_unknown_releases 0"));
    }

    #[test]
    fn metrics_are_named_as_controller_runtime_names_them() {
        let metrics = Metrics::default();
        metrics.limit(Controller::BundleDeployment, 50);
        metrics.added(Controller::BundleDeployment, true);
        metrics.taken(Controller::BundleDeployment, Duration::from_millis(3));
        metrics
            .begin(Controller::BundleDeployment)
            .end(Outcome::Error);
        drop(metrics.begin(Controller::Drift));
        let running = metrics.begin(Controller::Drift);
        metrics.queued(Controller::Drift, 3);
        metrics.limit(Controller::Drift, 50);
        metrics.leading(true);
        metrics.may_emit("Removed");
        let counting = metrics.count_entries(|| vec![("bundles", 2)]);
        let text = metrics.encode();
        drop(counting);
        assert_eq!(metrics.entries(), []);
        for line in [
            "controller_runtime_reconcile_total{controller=\"bundledeployment\",result=\"error\"} 1",
            "controller_runtime_reconcile_errors_total{controller=\"bundledeployment\"} 1",
            "controller_runtime_reconcile_time_seconds_count{controller=\"bundledeployment\"} 1",
            "controller_runtime_active_workers{controller=\"bundledeployment\"} 0",
            "controller_runtime_max_concurrent_reconciles{controller=\"drift-reconciler\"} 50",
            "controller_runtime_active_workers{controller=\"drift-reconciler\"} 1",
            "controller_runtime_terminal_reconcile_errors_total{controller=\"drift-reconciler\"} 0",
            "controller_runtime_reconcile_timeouts_total{controller=\"drift-reconciler\"} 0",
            "controller_runtime_reconcile_total{controller=\"drift-reconciler\",result=\"success\"} 0",
            "leader_election_master_status{name=\"fleet-agent\"} 1",
            "workqueue_depth{name=\"drift-reconciler\",controller=\"drift-reconciler\",priority=\"0\"} 3",
            "workqueue_adds_total{name=\"bundledeployment\",controller=\"bundledeployment\"} 1",
            "workqueue_retries_total{name=\"bundledeployment\",controller=\"bundledeployment\"} 1",
            "workqueue_queue_duration_seconds_count{name=\"bundledeployment\",controller=\"bundledeployment\"} 1",
            "workqueue_work_duration_seconds_count{name=\"bundledeployment\",controller=\"bundledeployment\"} 1",
            "workqueue_work_duration_seconds_count{name=\"drift-reconciler\",controller=\"drift-reconciler\"} 0",
            "workqueue_unfinished_work_seconds{name=\"bundledeployment\",controller=\"bundledeployment\"} 0.0",
            "fleet_agent_remembered_entries{map=\"bundles\"} 2",
            "fleet_agent_events_total{reason=\"Removed\"} 0",
            "process_cpu_seconds_total ",
            "process_resident_memory_bytes ",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        let build = format!("fleet_agent_build_info{{version=\"{VERSION}\"}} 1");
        assert!(text.contains(&build), "{text}");
        let longest = "workqueue_longest_running_processor_seconds{name=\"drift-reconciler\"";
        let line = text.lines().find(|line| line.starts_with(longest));
        assert!(line.is_some_and(|line| !line.ends_with(" 0.0")), "{line:?}");
        drop(running);
    }
}
