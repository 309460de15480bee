//! The heartbeat: `status.agent` of this cluster upstream. Mirrors `clusterstatus/ticker.go`.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

use crate::api::Cluster;
use crate::client::health::{Health, Side};
use crate::client::identity::AgentClient;
use crate::error;
use crate::ledger::Ledger;
use crate::register::Upstream;

/// The first report comes once.
const NEVER_AGAIN: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How long a report waits for upstream to say what it remembers of the last one.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where and how often to report.
pub struct Heartbeat {
    pub upstream: Upstream,
    /// System namespace of the agent, part of the report.
    pub namespace: String,
    /// When the first report goes out.
    pub first: Duration,
    pub interval: Duration,
    pub health: Health,
    /// Remembers what upstream took: one restored from a backup does not.
    pub ledger: Arc<Ledger>,
    pub agent: AgentClient,
}

impl Heartbeat {
    /// Reports for ever; a failure is logged and the next report is on time.
    ///
    /// # Cancellation
    /// Safe at any point.
    pub async fn run(self) {
        let clusters = self.upstream.clusters();
        let start = tokio::time::Instant::now();
        let mut first = tokio::time::interval_at(start + self.first, NEVER_AGAIN);
        let mut regular = tokio::time::interval_at(start + self.interval, self.interval);
        regular.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = first.tick() => {}
                _ = regular.tick() => {}
            }
            self.ledger.until_asked(PATIENCE).await;
            let now = self.agent.now();
            let operations = report(&self.namespace, now);
            let patch = match serde_json::from_value::<json_patch::Patch>(operations) {
                Ok(patch) => Patch::Json::<Cluster>(patch),
                Err(error) => {
                    tracing::error!(%error, "the heartbeat is no JSON patch");
                    return;
                }
            };
            let parameters = PatchParams::default();
            match clusters
                .patch_status(&self.upstream.cluster_name, &parameters, &patch)
                .await
            {
                Ok(_) => {
                    self.health.contact(Side::Upstream);
                    if let Err(failed) = self.ledger.reported(now.as_second()).await {
                        let error = error::text(&failed);
                        tracing::warn!(error, "cannot write the ledger");
                    }
                }
                Err(failed) => {
                    self.health.failed(Side::Upstream, &failed);
                    tracing::error!(error = %error::text(&failed), "failed to report cluster status");
                }
            }
        }
    }
}

/// The JSON patch of one report: no GET goes before it, upstream's rights allow none.
fn report(namespace: &str, now: Timestamp) -> Value {
    let agent = json!({"lastSeen": format!("{now:.0}"), "namespace": namespace});
    json!([{"op": "add", "path": "/status/agent", "value": agent}])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_upstreams() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        assert_eq!(
            report("cattle-fleet-system", now),
            json!([{"op": "add", "path": "/status/agent", "value": {
                "lastSeen": "2023-11-14T22:13:20Z", "namespace": "cattle-fleet-system",
            }}])
        );
    }
}
