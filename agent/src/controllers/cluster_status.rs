//! The heartbeat: `status.agent` of this cluster upstream. Mirrors `clusterstatus/ticker.go`.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

use crate::api::Cluster;
use crate::client::health::{Health, Side};
use crate::client::identity::AgentClient;
use crate::error;
use crate::ledger::{self, Ledger, heartbeat_manager};
use crate::public::PublicText;
use crate::register::Upstream;

/// The first report comes once.
const NEVER_AGAIN: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How long a report that was refused waits for upstream to say what it remembers of the last one.
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
            let mut beat = self.beat(&clusters).await;
            if beat
                .as_ref()
                .is_err_and(|failed| error::has_code(failed, 422))
            {
                // The Cluster has another heartbeat than the last: what that means is asked and noted before the next overwrites it.
                self.ledger.doubt_upstream();
                self.health.compares();
                self.ledger.until_asked(PATIENCE).await;
                beat = self.beat(&clusters).await;
            }
            if matches!(beat, Ok(None)) {
                // By then what was found is written, or the ConfigMap has no heartbeat of that time.
                tokio::time::sleep(PATIENCE).await;
                beat = self.beat(&clusters).await;
            }
            match beat {
                Ok(None) => logging::warn!(
                    "no cluster status is reported before it is noted that upstream was restored"
                ),
                Ok(Some(taken)) => {
                    // No contact: whether the watch is back, who removes releases has to know.
                    if let Err(failed) = self.ledger.reported(taken).await {
                        let error = PublicText::nothing_secret_in(&failed);
                        logging::warn!(error, "cannot write the ledger");
                    }
                }
                Err(failed) => {
                    self.health.failed(Side::Upstream, &failed);
                    logging::error!(
                        error = PublicText::nothing_secret_in(&failed),
                        "failed to report cluster status"
                    );
                }
            }
        }
    }
}

impl Heartbeat {
    /// Reports once, as the agent: by its name it knows its own report from what others make of it. Nothing where that would hide that upstream was restored.
    ///
    /// # Errors
    /// Upstream refused it: with 422 where it remembers another report than the last one it took.
    async fn beat(&self, clusters: &Api<Cluster>) -> kube::Result<Option<ledger::Heartbeat>> {
        let now = self.agent.now();
        if let Err(failed) = self.ledger.reporting(now.as_second()).await {
            let error = PublicText::nothing_secret_in(&failed);
            logging::warn!(error, "cannot write the ledger");
        }
        if self.ledger.hides_break(now.as_second()) {
            return Ok(None);
        }
        let manager = heartbeat_manager(now.as_second(), self.ledger.vouches_for());
        let last = self.ledger.seen_heartbeat().at;
        let operations = report(&self.namespace, now, last);
        let patch: json_patch::Patch =
            serde_json::from_value(operations).map_err(kube::Error::SerdeError)?;
        let parameters = PatchParams {
            field_manager: Some(manager),
            ..PatchParams::default()
        };
        let (name, patch) = (&self.upstream.cluster_name, Patch::Json::<Cluster>(patch));
        let taken = clusters.patch_status(name, &parameters, &patch).await?;
        Ok(Some(ledger::Heartbeat {
            at: Some(now.as_second()),
            ..ledger::Heartbeat::of(&taken)
        }))
    }
}

/// The JSON patch of one report: no GET goes before it, upstream's rights allow none. `last` is the last one that upstream took, in seconds
/// since 1970: one that was restored from a backup remembers another and refuses, however long the request was on its way.
fn report(namespace: &str, now: Timestamp, last: Option<i64>) -> Value {
    let time = |at: Timestamp| format!("{at:.0}");
    let agent = json!({"lastSeen": time(now), "namespace": namespace});
    let add = json!({"op": "add", "path": "/status/agent", "value": agent});
    let last = last.filter(|last| *last > 0);
    match last.and_then(|last| Timestamp::from_second(last).ok()) {
        Some(last) => json!([
            {"op": "test", "path": "/status/agent/lastSeen", "value": time(last)},
            add,
        ]),
        None => json!([add]),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::Request;
    use kube::client::Body;

    use super::*;
    use crate::client::scripted;

    /// Events from before the watch broke off are old until it is back, whatever else upstream answers.
    #[tokio::test(start_paused = true)]
    async fn an_accepted_heartbeat_does_not_count_as_a_restored_watch() {
        let taken = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&taken);
        let clients = scripted::clients(move |request: Request<Body>| {
            let is_beat = request.uri().path().ends_with("/clusters/cluster/status");
            counted.fetch_add(usize::from(is_beat), Ordering::Relaxed);
            async {
                (
                    200,
                    json!({"metadata": {"resourceVersion": "5"}, "spec": {}}),
                )
            }
        });
        let agent = scripted::identities(&clients).agent();
        let health = Health::new(Duration::from_secs(300));
        let heartbeat = Heartbeat {
            upstream: Upstream::scripted(&clients),
            namespace: "system".to_owned(),
            first: Duration::from_secs(5),
            interval: Duration::from_secs(900),
            health: health.clone(),
            ledger: Arc::new(Ledger::load(&agent, "system").await.unwrap()),
            agent,
        };
        health.trouble(Side::Upstream);
        let minute = Duration::from_secs(60);
        let running = tokio::time::timeout(minute, heartbeat.run());
        running.await.unwrap_err();
        assert_eq!(taken.load(Ordering::Relaxed), 1);
        assert!(health.is_cut_off(Side::Upstream));
    }

    #[test]
    fn a_heartbeat_patches_the_agents_status_in_fleets_form() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let add = json!({"op": "add", "path": "/status/agent", "value": {
            "lastSeen": "2023-11-14T22:13:20Z", "namespace": "cattle-fleet-system",
        }});
        let reported = |last| report("cattle-fleet-system", now, last);
        assert_eq!(reported(None), json!([add]));
        assert_eq!(reported(Some(0)), json!([add]));
        let test = json!({"op": "test", "path": "/status/agent/lastSeen", "value": "2023-11-14T22:13:10Z"});
        assert_eq!(reported(Some(1_699_999_990)), json!([test, add]));
    }
}
