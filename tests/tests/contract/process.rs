//! The process: how it starts and ends, what its ports say, and what it asks of the API servers.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use testbed::bed::Bed;
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::wait::wait_until;

use crate::shared::{Case, SERVICES, run};

#[test]
fn a_start_that_fails_ends_the_process() -> Result<()> {
    run(async {
        let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
        for (name, value, words) in [
            (
                "CHECKIN_INTERVAL",
                "soon",
                "failed to parse CHECKIN_INTERVAL with duration soon",
            ),
            (
                "FLEET_AGENT_METRICS_BIND_ADDRESS",
                "nowhere",
                "FLEET_AGENT_METRICS_BIND_ADDRESS",
            ),
        ] {
            agent.start(BTreeMap::from([(name.to_owned(), value.to_owned())]))?;
            let status = agent.process()?.wait_exit(PATIENCE)?;
            assert_eq!(status.code(), Some(1), "{name}");
            let log = agent.process()?.log();
            assert!(log.contains(words), "{log}");
        }
        Ok(())
    })
}

#[test]
fn signals_end_the_process() -> Result<()> {
    run(async {
        let mut agent = TestAgent::registered(Bed::shared().await?).await?;
        let probes = agent.process()?.probes_url();
        wait_until("the agent to serve", PATIENCE, async || {
            answer(&format!("{probes}/healthz")).await
        })
        .await?;
        let status = agent.process()?.terminate(Duration::from_secs(30))?;
        assert_eq!(status.code(), Some(0));
        Ok(())
    })
}

async fn answer(url: &str) -> Result<String, String> {
    let answer = reqwest::get(url).await.map_err(|e| e.to_string())?;
    match answer.status().as_u16() {
        200 => answer.text().await.map_err(|e| e.to_string()),
        other => Err(other.to_string()),
    }
}

#[test]
fn ports_answer_like_controller_runtimes() -> Result<()> {
    run(async {
        let case = Case::new("ports").await?;
        case.deploy(&case.bundle(SERVICES)).await?;
        let agent = case.agent.process.as_ref().context("the agent runs")?;
        for path in ["healthz", "readyz"] {
            let url = format!("{}/{path}", agent.probes_url());
            answer(&url)
                .await
                .map_err(anyhow::Error::msg)
                .context(path)?;
        }
        let metrics = answer(&format!("{}/metrics", agent.metrics_url())).await;
        let metrics = metrics.map_err(anyhow::Error::msg)?;
        for name in [
            "controller_runtime_reconcile_total{controller=\"bundledeployment\",result=\"success\"}",
            "controller_runtime_reconcile_time_seconds_count{controller=\"bundledeployment\"}",
            "controller_runtime_max_concurrent_reconciles{controller=\"drift-reconciler\"} 50",
            "controller_runtime_active_workers{controller=\"bundledeployment\"}",
            "controller_runtime_terminal_reconcile_errors_total{controller=\"drift-reconciler\"} 0",
            "controller_runtime_reconcile_timeouts_total{controller=\"drift-reconciler\"} 0",
            "controller_runtime_reconcile_panics_total{controller=\"bundledeployment\"} 0",
            "workqueue_depth{name=\"bundledeployment\",controller=\"bundledeployment\",priority=\"0\"}",
            "workqueue_adds_total{name=\"bundledeployment\",controller=\"bundledeployment\"}",
            "workqueue_retries_total{name=\"drift-reconciler\",controller=\"drift-reconciler\"}",
            "workqueue_queue_duration_seconds_count{name=\"bundledeployment\",controller=\"bundledeployment\"}",
            "workqueue_work_duration_seconds_count{name=\"bundledeployment\",controller=\"bundledeployment\"}",
            "workqueue_unfinished_work_seconds{name=\"drift-reconciler\",controller=\"drift-reconciler\"}",
            "workqueue_longest_running_processor_seconds{name=\"drift-reconciler\",controller=\"drift-reconciler\"}",
            "process_cpu_seconds_total ",
            "process_resident_memory_bytes ",
            "rest_client_requests_total{code=\"200\",method=\"GET\",host=\"127.0.0.1:",
        ] {
            assert!(metrics.contains(name), "{name} is not in\n{metrics}");
        }
        Ok(())
    })
}

#[test]
fn upstream_is_asked_for_nothing_but_its_rights() -> Result<()> {
    run(async {
        let case = Case::new("rights").await?;
        let bundle = case.bundle(SERVICES).values(json!({ "a": 1 }));
        case.deploy(&bundle).await?;
        let namespace = case.agent.deployment_namespace()?;
        let requests = case.agent.upstream_requests()?;
        assert!(!requests.is_empty());
        for request in requests {
            let asked = (request.verb.as_str(), request.resource.as_str());
            let allowed = match asked {
                ("get" | "list" | "watch", "bundledeployments")
                | ("patch", "bundledeployments/status")
                | ("get", "secrets" | "configmaps") => request.namespace == namespace,
                ("get", "contents") => true,
                // Its own status; and facts about itself, which stock rights refuse.
                ("patch", "clusters/status") | ("get", "clusters") => true,
                // Versions and kinds.
                (_, "") => true,
                _ => false,
            };
            assert!(allowed, "{request:?}");
        }
        Ok(())
    })
}

#[test]
fn no_request_lists_secrets() -> Result<()> {
    run(async {
        let case = Case::new("unlisted").await?;
        case.deploy(&case.bundle(SERVICES)).await?;
        let cached = ["secrets", "configmaps", "namespaces", "serviceaccounts"];
        for request in case.agent.downstream_requests()? {
            let lists = ["list", "watch"].contains(&request.verb.as_str());
            if lists && cached.contains(&request.resource.as_str()) {
                let narrowed = ["labelSelector", "fieldSelector"];
                let is_narrow = narrowed.iter().any(|n| request.uri.contains(n));
                assert!(is_narrow, "{request:?}");
            }
        }
        Ok(())
    })
}
