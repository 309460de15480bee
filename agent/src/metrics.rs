//! Metrics under controller-runtime's names, so that existing dashboards keep working, and a few
//! of our own under `fleet_agent_`.
//!
//! Labels are fixed words only: never a bundle's name or an error's text.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::config::AGENT_NAME;
use crate::requests;

/// Which loop a figure belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Controller {
    /// Reconciles BundleDeployments.
    BundleDeployment,
    /// Looks at live objects that changed.
    Drift,
}

impl Controller {
    fn name(self) -> &'static str {
        match self {
            Self::BundleDeployment => "bundledeployment",
            Self::Drift => "drift-reconciler",
        }
    }
}

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    Success,
    Error,
    RequeueAfter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByController {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByResult {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByName {
    name: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    reason: &'static str,
}

/// The process's figures; cheap to clone, all clones share.
#[derive(Clone, Debug)]
pub struct Metrics {
    reconciles: Family<ByResult, Counter>,
    errors: Family<ByController, Counter>,
    panics: Family<ByController, Counter>,
    seconds: Family<ByController, Histogram>,
    max_concurrent: Family<ByController, Gauge>,
    active: Family<ByController, Gauge>,
    depth: Family<ByName, Gauge>,
    leading: Family<ByName, Gauge>,
    held_removals: Gauge,
    unknown_releases: Gauge,
    events: Family<ByReason, Counter>,
    resident: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        const BUCKETS: [f64; 12] = [
            0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0,
        ];
        Self {
            reconciles: Family::default(),
            errors: Family::default(),
            panics: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            max_concurrent: Family::default(),
            active: Family::default(),
            depth: Family::default(),
            leading: Family::default(),
            held_removals: Gauge::default(),
            unknown_releases: Gauge::default(),
            events: Family::default(),
            resident: Gauge::default(),
        }
    }
}

impl Metrics {
    /// A pass began; pair with [`Metrics::finished`].
    pub fn started(&self, controller: Controller) {
        self.active.get_or_create(&by(controller)).inc();
    }

    /// A pass ended.
    pub fn finished(&self, controller: Controller, outcome: Outcome, took: Duration) {
        self.active.get_or_create(&by(controller)).dec();
        self.seconds
            .get_or_create(&by(controller))
            .observe(took.as_secs_f64());
        let result = match outcome {
            Outcome::Success => "success",
            Outcome::Error => "error",
            Outcome::RequeueAfter => "requeue_after",
        };
        let controller_name = controller.name();
        self.reconciles
            .get_or_create(&ByResult {
                controller: controller_name,
                result,
            })
            .inc();
        if outcome == Outcome::Error {
            self.errors.get_or_create(&by(controller)).inc();
        }
    }

    /// A pass panicked and was caught.
    pub fn panicked(&self, controller: Controller) {
        self.panics.get_or_create(&by(controller)).inc();
    }

    /// How many passes may run at once.
    pub fn limit(&self, controller: Controller, workers: usize) {
        let workers = i64::try_from(workers).unwrap_or(i64::MAX);
        self.max_concurrent
            .get_or_create(&by(controller))
            .set(workers);
    }

    /// Bundles waiting for a pass.
    pub fn queued(&self, controller: Controller, depth: usize) {
        let depth = i64::try_from(depth).unwrap_or(i64::MAX);
        self.depth
            .get_or_create(&ByName {
                name: controller.name(),
            })
            .set(depth);
    }

    /// Whether this process holds the Lease.
    pub fn leading(&self, leading: bool) {
        self.leading
            .get_or_create(&ByName { name: AGENT_NAME })
            .set(i64::from(leading));
    }

    /// Releases whose removal the brake holds back.
    pub fn held_removals(&self, count: usize) {
        self.held_removals
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Releases that name this agent and are not in its ledger.
    pub fn unknown_releases(&self, count: usize) {
        self.unknown_releases
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Something happened that is told as an Event with this reason, written or not.
    pub fn happened(&self, reason: &'static str) {
        self.events.get_or_create(&ByReason { reason }).inc();
    }

    /// The text of `/metrics` (OpenMetrics).
    pub fn encode(&self) -> String {
        self.resident.set(resident_bytes());
        let mut registry = Registry::default();
        let r = &mut registry;
        let register =
            |r: &mut Registry, name: &str, help: &str, metric: Family<ByController, Gauge>| {
                r.register(name, help, metric);
            };
        r.register(
            "controller_runtime_reconcile",
            "Reconciliations",
            self.reconciles.clone(),
        );
        r.register(
            "controller_runtime_reconcile_errors",
            "Failed ones",
            self.errors.clone(),
        );
        r.register(
            "controller_runtime_reconcile_panics",
            "Panicked ones",
            self.panics.clone(),
        );
        r.register_with_unit(
            "controller_runtime_reconcile_time",
            "Length of a reconciliation",
            Unit::Seconds,
            self.seconds.clone(),
        );
        register(
            r,
            "controller_runtime_max_concurrent_reconciles",
            "Workers",
            self.max_concurrent.clone(),
        );
        register(
            r,
            "controller_runtime_active_workers",
            "Busy workers",
            self.active.clone(),
        );
        r.register("workqueue_depth", "Bundles waiting", self.depth.clone());
        r.register(
            "leader_election_master_status",
            "1 while leading",
            self.leading.clone(),
        );
        r.register(
            requests::NAME,
            "Requests to API servers by code, method and host",
            requests::counts(),
        );
        r.register(
            "fleet_agent_held_removals",
            "Releases whose removal is held back",
            self.held_removals.clone(),
        );
        r.register(
            "fleet_agent_unknown_releases",
            "Releases that name this agent and are not in its ledger",
            self.unknown_releases.clone(),
        );
        r.register(
            "fleet_agent_events",
            "What happened, by the reason of its Event",
            self.events.clone(),
        );
        r.register(
            "process_resident_memory_bytes",
            "Resident memory",
            self.resident.clone(),
        );
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)
            .expect("writing to a String cannot fail");
        text
    }
}

fn by(controller: Controller) -> ByController {
    ByController {
        controller: controller.name(),
    }
}

/// Resident memory of this process in bytes; 0 where `/proc` is not to be had.
fn resident_bytes() -> i64 {
    const PAGE: i64 = 4096;
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<i64>().ok());
    pages.unwrap_or_default().saturating_mul(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_controller_runtimes() {
        let metrics = Metrics::default();
        metrics.started(Controller::BundleDeployment);
        metrics.finished(
            Controller::BundleDeployment,
            Outcome::Error,
            Duration::from_millis(3),
        );
        metrics.limit(Controller::Drift, 50);
        metrics.leading(true);
        let text = metrics.encode();
        for line in [
            "controller_runtime_reconcile_total{controller=\"bundledeployment\",result=\"error\"} 1",
            "controller_runtime_reconcile_errors_total{controller=\"bundledeployment\"} 1",
            "controller_runtime_reconcile_time_seconds_count{controller=\"bundledeployment\"} 1",
            "controller_runtime_active_workers{controller=\"bundledeployment\"} 0",
            "controller_runtime_max_concurrent_reconciles{controller=\"drift-reconciler\"} 50",
            "leader_election_master_status{name=\"fleet-agent\"} 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
