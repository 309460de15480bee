//! What the agent lives through: being killed at any step, and an upstream that goes away.

use std::time::Duration;

use anyhow::{Context, Result};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use testbed::bed::{Bed, unique};
use testbed::chart::Chart;
use testbed::cluster::Part;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::wait::wait_until;

/// How long the upstream is away.
const OUTAGE: Duration = Duration::from_secs(60);

fn bundle(bed: &Bed, name: &str, chart: &Chart, target: &str) -> BundleDeployment {
    BundleDeployment::helm_op(name, bed.repository.url(), chart.name(), chart.version())
        .release(name, target)
}

/// Kills the agent at growing delays after each change, so that over the rounds every step is hit.
#[tokio::test]
async fn a_killed_agent_continues_where_it_was() -> Result<()> {
    let bed = Bed::shared().await?;
    let mut agent = TestAgent::registered(bed).await?;
    let chart = Chart::small(&unique("web"), "1.0.0");
    bed.repository.add(&chart)?;
    let target = format!("{}-app", agent.id);
    // The agent's own bundle, which every managed cluster has: only next to it does a missing bundle count as deleted.
    let own = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: own\n";
    let own = BundleDeployment::content(
        "fleet-agent-test",
        vec![("agent.yaml".to_owned(), own.into())],
    )
    .option("defaultNamespace", json!(agent.system_namespace));
    agent.apply(&own).await?;
    for round in 0..8_u64 {
        let greeting = json!({ "greeting": format!("round {round}") });
        agent
            .apply(
                &bundle(bed, "web", &chart, &target)
                    .values(greeting.clone())
                    .correct_drift(),
            )
            .await?;
        tokio::time::sleep(Duration::from_millis(60 * round)).await;
        agent.process()?.restart()?;
        agent
            .wait_ready("web")
            .await
            .with_context(|| format!("round {round}"))?;
        let config = agent
            .object("v1", "ConfigMap", &target, "web")
            .await?
            .context("the ConfigMap is there")?;
        assert_eq!(config.data["data"]["greeting"], greeting["greeting"]);
    }
    // Drift made while nobody looked.
    agent.process()?.kill();
    let change = json!({ "data": { "greeting": "edited" } });
    agent
        .objects("v1", "ConfigMap", &target)
        .patch("web", &PatchParams::default(), &Patch::Merge(&change))
        .await?;
    agent.process()?.restart()?;
    wait_until("the edit to be put right", PATIENCE, async || {
        let config = agent
            .object("v1", "ConfigMap", &target, "web")
            .await
            .map_err(|e| e.to_string())?;
        let greeting = config.ok_or("gone")?.data["data"]["greeting"].clone();
        if greeting == "round 7" {
            Ok(())
        } else {
            Err(greeting.to_string())
        }
    })
    .await?;
    // A bundle deleted while no agent ran. That the agent's own is still listed distinguishes a deletion
    // from an upstream that lost its objects.
    let own = bundle(bed, "fleet-agent-own", &chart, &target).spec("paused", json!(true));
    agent.apply(&own).await?;
    agent.process()?.kill();
    agent.delete("web").await?;
    agent.process()?.restart()?;
    let waited = wait_until("the release to be removed", PATIENCE, async || {
        let config = agent
            .object("v1", "ConfigMap", &target, "web")
            .await
            .map_err(|e| e.to_string())?;
        if config.is_none() {
            Ok(())
        } else {
            Err("still there".to_owned())
        }
    })
    .await;
    waited.with_context(|| agent.agent_log_tail(30))
}

/// A bed of its own: nobody else can work while its upstream is away.
#[tokio::test]
async fn work_continues_once_upstream_is_back() -> Result<()> {
    let bed = Bed::start(true).await?;
    let mut agent = TestAgent::registered(&bed).await?;
    let chart = Chart::small("web", "1.0.0");
    bed.repository.add(&chart)?;
    let target = format!("{}-app", agent.id);
    agent
        .apply(&bundle(&bed, "before", &chart, &target).correct_drift())
        .await?;
    agent.wait_ready("before").await?;
    let process = agent.process()?.memory_kib()?;

    bed.upstream.stop_part(Part::ApiServer);
    // Meanwhile the cluster is still looked after.
    let change = json!({ "data": { "greeting": "edited" } });
    agent
        .objects("v1", "ConfigMap", &target)
        .patch("before", &PatchParams::default(), &Patch::Merge(&change))
        .await?;
    tokio::time::sleep(OUTAGE).await;
    bed.upstream.start_part(Part::ApiServer).await?;

    agent.apply(&bundle(&bed, "after", &chart, &target)).await?;
    agent.wait_ready("after").await?;
    agent.wait_ready("before").await?;
    let config = agent
        .object("v1", "ConfigMap", &target, "before")
        .await?
        .context("the ConfigMap is there")?;
    assert_eq!(config.data["data"]["greeting"], "hello");
    let later = agent.process()?.memory_kib()?;
    assert!(
        later.now < process.now + 30_000,
        "{process:?} grew to {later:?}"
    );
    Ok(())
}
