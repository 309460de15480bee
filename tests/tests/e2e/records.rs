//! Release records lie where tenants may write; the ledger knows what was written.

use anyhow::{Context, Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams};
use release::storage::KubernetesDriver;
use release::{Cluster, Storage};
use serde_json::{Value, json};
use testbed::bed::Bed;
use testbed::cluster::ADMIN;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::wait::wait_until;

use crate::scene::{hasty, in_haste, target, wait_event};

fn map(name: &str) -> String {
    format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n")
}

/// A bundle of one ConfigMap, which is kept as it is.
fn kept(agent: &TestAgent<'_>, name: &str) -> BundleDeployment {
    BundleDeployment::content(name, vec![("map.yaml".to_owned(), map(name).into())])
        .option("defaultNamespace", json!(target(agent)))
        .correct_drift()
}

async fn records(agent: &TestAgent<'_>) -> Result<Storage> {
    let cluster = Cluster::new(agent.bed.downstream.client(ADMIN).await?);
    let objects = KubernetesDriver::new(cluster, target(agent));
    Ok(Storage::new(objects))
}

/// What the ledger says of a release.
async fn entry(agent: &TestAgent<'_>, name: &str) -> Result<Value> {
    let ledger = agent.ledger().await?.context("the ledger")?;
    let text = ledger.data["data"][format!("{}_{name}", target(agent))].as_str();
    Ok(serde_json::from_str(text.context("an entry")?)?)
}

async fn wait_revision(agent: &TestAgent<'_>, name: &str, revision: i64) -> Result<()> {
    let wanted = format!("{}/{name}:{revision}", target(agent));
    let is_there = |bundle: &Value| bundle["status"]["release"] == wanted.as_str();
    agent
        .wait_for(name, &format!("release {wanted}"), is_there)
        .await
        .map(drop)
}

/// A tenant adds an object to a release's record: what was changed is put right by the chart, not by the record.
#[tokio::test]
async fn drift_is_not_corrected_from_a_record_that_a_tenant_changed() -> Result<()> {
    let agent = in_haste().await?;
    agent.apply(&kept(&agent, "kept")).await?;
    agent.wait_ready("kept").await?;
    let records = records(&agent).await?;
    let mut record = records.get("kept", 1).await?;
    record.manifest += &map("forged");
    records.update(&record).await?;
    let maps = agent.objects("v1", "ConfigMap", &target(&agent));
    maps.delete("kept", &DeleteParams::default()).await?;
    wait_revision(&agent, "kept", 2).await?;
    agent.wait_ready("kept").await?;
    maps.get("kept").await?;
    ensure!(maps.get_opt("forged").await?.is_none());
    let reported = wait_event(&agent, "RecordChanged", "kept").await?;
    ensure!(reported.contains("revision 1"), "{reported}");
    // What was written is known, of every revision that is stored.
    let known = entry(&agent, "kept").await?;
    let known = known["revisions"].as_object().context("revisions")?;
    let newest = records.get("kept", 2).await?;
    ensure!(
        known["2"] == release::storage::digest(&newest).as_str(),
        "{known:?}"
    );
    Ok(())
}

/// No event comes when a record is deleted: records are listed now and then, and the live objects are taken over.
#[tokio::test]
async fn a_deleted_record_is_written_again() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent
        .configure(json!({ "garbageCollectionInterval": "1s" }))
        .await?;
    hasty(&mut agent).await?;
    agent.apply(&kept(&agent, "kept")).await?;
    agent.wait_ready("kept").await?;
    let maps = agent.objects("v1", "ConfigMap", &target(&agent));
    let before = maps.get("kept").await?.metadata.uid;
    agent
        .objects("v1", "Secret", &target(&agent))
        .delete("sh.helm.release.v1.kept.v1", &DeleteParams::default())
        .await?;
    let records = records(&agent).await?;
    wait_until("the record", PATIENCE, async || {
        let record = records.get("kept", 1).await;
        record.map(drop).map_err(|e| e.to_string())
    })
    .await
    .with_context(|| agent.agent_log_tail(30))?;
    agent.wait_ready("kept").await?;
    ensure!(maps.get("kept").await?.metadata.uid == before);
    Ok(())
}

/// Another agent upgraded a release while ours was away, and said so upstream, where no tenant can: nothing is deployed anew.
#[tokio::test]
async fn a_revision_reported_by_another_agent_is_adopted() -> Result<()> {
    let mut agent = in_haste().await?;
    agent.apply(&kept(&agent, "kept")).await?;
    agent.wait_ready("kept").await?;
    agent.process()?.kill();
    let records = records(&agent).await?;
    let mut record = records.get("kept", 1).await?;
    record.revision = 2;
    record.manifest += "# by another agent\n";
    records.create(&record).await?;
    let status = json!({ "status": { "release": format!("{}/kept:2", target(&agent)) } });
    agent
        .bundle_deployments()?
        .patch_status("kept", &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    agent.process()?.restart()?;
    // Something else to write, which takes along what was learnt.
    agent.apply(&kept(&agent, "other")).await?;
    agent.wait_ready("other").await?;
    let digest = release::storage::digest(&record);
    wait_until("the revision to be known", PATIENCE, async || {
        let known = entry(&agent, "kept").await.map_err(|e| e.to_string())?;
        match &known["revisions"]["2"] {
            known if *known == digest.as_str() => Ok(()),
            other => Err(other.to_string()),
        }
    })
    .await
    .with_context(|| agent.agent_log_tail(30))?;
    let ready = agent.wait_ready("kept").await?;
    ensure!(ready["status"]["release"] == format!("{}/kept:2", target(&agent)));
    ensure!(records.get("kept", 3).await.is_err());
    Ok(())
}

/// A ledger from before records were known by digest: they are believed once, and nothing is deployed anew.
#[tokio::test]
async fn records_older_than_the_ledger_are_adopted_once() -> Result<()> {
    let mut agent = in_haste().await?;
    agent.apply(&kept(&agent, "kept")).await?;
    agent.wait_ready("kept").await?;
    let before = entry(&agent, "kept").await?;
    let mut old = before.clone();
    old.as_object_mut().context("an entry")?.remove("revisions");
    let key = format!("{}_kept", target(&agent));
    agent.process()?.kill();
    let patch = json!({ "data": { key: old.to_string() } });
    agent.patch_ledger(&patch).await?;
    agent.process()?.restart()?;
    wait_until(
        "the record to be known again",
        PATIENCE,
        async || match entry(&agent, "kept").await.map_err(|e| format!("{e:#}"))? {
            now if now == before => Ok(()),
            now => Err(now.to_string()),
        },
    )
    .await?;
    wait_revision(&agent, "kept", 1).await
}
