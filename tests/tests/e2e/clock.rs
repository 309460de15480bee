//! Clocks that are wrong: the agent counts time by its own monotonic clock, and what others wrote by theirs decides nothing.

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use testbed::bed::Bed;
use testbed::fleet::controller::apply;
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::wait::wait_until;

use crate::scene::{clusters, deletions, deploy, deploy_own, gone, haste, present};

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const ORIGIN: &str = "fleet.cattle.io/upstream";

/// When the agent reported last, by its own clock.
async fn last_seen(agent: &TestAgent<'_>) -> Result<Timestamp> {
    let (clusters, name) = clusters(agent)?;
    let cluster = clusters.get(&name).await?;
    let text = cluster.data["status"]["agent"]["lastSeen"].as_str();
    Ok(text.context("no report yet")?.parse()?)
}

async fn wait_report(agent: &TestAgent<'_>, passes: impl Fn(Timestamp) -> bool) -> Result<()> {
    wait_until("a report", PATIENCE, async || {
        match last_seen(agent).await {
            Ok(at) if passes(at) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .with_context(|| agent.agent_log_tail(30))
}

async fn origin(agent: &TestAgent<'_>) -> Result<Value> {
    let ledger = agent.ledger().await?.context("the ledger")?;
    let text = ledger
        .annotations()
        .get(ORIGIN)
        .context("an origin")?
        .clone();
    Ok(serde_json::from_str(&text)?)
}

/// The agent reported with a clock an hour ahead, and its clock is put right: upstream is the same, and what is deleted goes.
#[tokio::test]
async fn a_clock_set_back_by_an_hour_delays_nothing() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    let mut env = haste();
    env.insert("CHECKIN_INTERVAL".to_owned(), "1s".to_owned());
    agent.start(env)?;
    deploy_own(&agent).await?;
    let apps = deploy(&agent, "app", 3).await?;
    wait_report(&agent, |_| true).await?;
    agent.process()?.kill();
    let ahead = last_seen(&agent).await?.checked_add(HOUR)?;
    let (clusters, name) = clusters(&agent)?;
    let seen = json!({ "status": { "agent": { "lastSeen": format!("{ahead:.0}") } } });
    clusters
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(&seen))
        .await?;
    let mut remembered = origin(&agent).await?;
    remembered["reported"] = json!(ahead.as_second());
    let text = remembered.to_string();
    agent
        .patch_ledger(&json!({ "metadata": { "annotations": { ORIGIN: text } } }))
        .await?;

    // One goes while nobody looks, one while somebody does.
    agent.delete("app-0").await?;
    agent.process()?.restart()?;
    gone(&agent, &apps[..1], PATIENCE).await?;
    wait_report(&agent, |at| at < ahead).await?;
    agent.delete("app-1").await?;
    gone(&agent, &apps[1..2], PATIENCE).await?;
    ensure!(present(&agent, &apps[2..]).await? == apps[2..]);
    ensure!(
        deletions(&agent)?
            .iter()
            .all(|request| request.name != "app-2")
    );
    let log = agent.process()?.log();
    ensure!(!log.contains("restored from a backup"), "{log}");
    Ok(())
}

/// The lease of a holder that is gone says it was renewed in an hour: it runs out all the same.
#[tokio::test]
async fn a_lease_from_the_future_runs_out() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    let ahead = Timestamp::now().checked_add(HOUR)?;
    apply(
        &agent.downstream,
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "fleet-agent", "namespace": agent.system_namespace },
            "spec": {
                "holderIdentity": "gone", "leaseDurationSeconds": 3, "leaseTransitions": 7,
                "acquireTime": format!("{ahead:.6}"), "renewTime": format!("{ahead:.6}"),
            },
        }),
    )
    .await?;
    let process = crate::process::candidate(&agent, "patient", &[])?;
    crate::process::holder(&agent, "patient").await?;
    deploy(&agent, "app", 1)
        .await
        .with_context(|| process.log())
        .map(drop)
}
