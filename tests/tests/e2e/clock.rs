//! Clocks that are wrong: the agent counts time by its own monotonic clock, and what others wrote by theirs decides nothing.

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use testbed::bed::Bed;
use testbed::fleet::controller::{apply, resource};
use testbed::fleet::site::{PATIENCE, Site};
use testbed::wait::wait_until;

use crate::scene::{deletions, deploy, deploy_own, gone, haste, present};

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const ORIGIN: &str = "fleet.cattle.io/upstream";

fn clusters(site: &Site<'_>) -> Result<(Api<DynamicObject>, String)> {
    let granted = site.granted.as_ref().context("just granted")?;
    let namespace = &granted.cluster_namespace;
    let api = Api::namespaced_with(site.upstream.clone(), namespace, &resource("Cluster"));
    Ok((api, granted.cluster_name.clone()))
}

/// When the agent reported last, by its own clock.
async fn last_seen(site: &Site<'_>) -> Result<Timestamp> {
    let (clusters, name) = clusters(site)?;
    let cluster = clusters.get(&name).await?;
    let text = cluster.data["status"]["agent"]["lastSeen"].as_str();
    Ok(text.context("no report yet")?.parse()?)
}

async fn wait_report(site: &Site<'_>, passes: impl Fn(Timestamp) -> bool) -> Result<()> {
    wait_until("a report", PATIENCE, async || match last_seen(site).await {
        Ok(at) if passes(at) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await
    .with_context(|| site.agent_log_tail(30))
}

async fn origin(site: &Site<'_>) -> Result<Value> {
    let ledger = site.ledger().await?.context("the ledger")?;
    let text = ledger
        .annotations()
        .get(ORIGIN)
        .context("an origin")?
        .clone();
    Ok(serde_json::from_str(&text)?)
}

/// The agent reported with a clock an hour ahead, and its clock is put right: upstream is the same, and what is deleted goes.
#[tokio::test]
async fn a_clock_that_is_set_back_an_hour_holds_nothing_back() -> Result<()> {
    let mut site = Site::prepare(Bed::shared().await?).await?;
    site.grant().await?;
    let mut env = haste();
    env.insert("CHECKIN_INTERVAL".to_owned(), "1s".to_owned());
    site.start(env)?;
    deploy_own(&site).await?;
    let apps = deploy(&site, "app", 3).await?;
    wait_report(&site, |_| true).await?;
    site.agent()?.kill();
    let ahead = last_seen(&site).await?.checked_add(HOUR)?;
    let (clusters, name) = clusters(&site)?;
    let seen = json!({ "status": { "agent": { "lastSeen": format!("{ahead:.0}") } } });
    clusters
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(&seen))
        .await?;
    let mut remembered = origin(&site).await?;
    remembered["reported"] = json!(ahead.as_second());
    let text = remembered.to_string();
    site.patch_ledger(&json!({ "metadata": { "annotations": { ORIGIN: text } } }))
        .await?;

    // One goes while nobody looks, one while somebody does.
    site.delete("app-0").await?;
    site.agent()?.restart()?;
    gone(&site, &apps[..1], PATIENCE).await?;
    wait_report(&site, |at| at < ahead).await?;
    site.delete("app-1").await?;
    gone(&site, &apps[1..2], PATIENCE).await?;
    ensure!(present(&site, &apps[2..]).await? == apps[2..]);
    ensure!(
        deletions(&site)?
            .iter()
            .all(|request| request.name != "app-2")
    );
    let log = site.agent()?.log();
    ensure!(!log.contains("restored from a backup"), "{log}");
    Ok(())
}

/// The lease of a holder that is gone says it was renewed in an hour: it runs out all the same.
#[tokio::test]
async fn a_lease_from_the_future_runs_out() -> Result<()> {
    let mut site = Site::prepare(Bed::shared().await?).await?;
    site.grant().await?;
    let ahead = Timestamp::now().checked_add(HOUR)?;
    apply(
        &site.downstream,
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "fleet-agent", "namespace": site.system_namespace },
            "spec": {
                "holderIdentity": "gone", "leaseDurationSeconds": 3, "leaseTransitions": 7,
                "acquireTime": format!("{ahead:.6}"), "renewTime": format!("{ahead:.6}"),
            },
        }),
    )
    .await?;
    let agent = crate::process::candidate(&site, "patient", &[])?;
    crate::process::holder(&site, "patient").await?;
    deploy(&site, "app", 1)
        .await
        .with_context(|| agent.log())
        .map(drop)
}
