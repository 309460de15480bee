//! What the tests of who has a release share: helm releases beside those of bundles, the ledger, the Cluster whose facts name releases.

use anyhow::{Context, Result};
use kube::ResourceExt;
use release::storage::{Deletable, KubernetesDriver};
use release::{Cluster, Storage};
use serde_json::{Value, json};
use testbed::cluster::ADMIN;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::helm::Helm;
use testbed::wait::wait_until;

use crate::scene::{deploy, gone, target};

/// A ConfigMap as a file of a bundle.
pub(crate) fn map(name: &str) -> String {
    format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n")
}

/// The helm of the day, as an administrator of the cluster.
pub(crate) fn helm(agent: &TestAgent<'_>) -> Result<Helm> {
    let kubeconfig = agent.bed.downstream.kubeconfig(ADMIN)?;
    let [_, helm] = Helm::both(&kubeconfig, agent.bed.group.directory())?;
    Ok(helm)
}

/// Waits until a removal that began later is through.
pub(crate) async fn let_removals_pass(agent: &TestAgent<'_>, name: &str) -> Result<()> {
    let next = deploy(agent, name, 1).await?;
    agent.delete(&next[0]).await?;
    gone(agent, &next, PATIENCE).await
}

pub(crate) async fn records(agent: &TestAgent<'_>) -> Result<Storage> {
    let cluster = Cluster::new(agent.bed.downstream.client(ADMIN).await?);
    let objects = KubernetesDriver::new(cluster, target(agent));
    Ok(Storage::new(objects))
}

/// Deletes a record as a person would.
pub(crate) async fn delete_record(records: &Storage, name: &str, revision: i64) -> Result<()> {
    let history = records.history(name).await?;
    let record = history.iter().find(|head| head.revision == revision);
    let record = record.and_then(Deletable::own).context("a record")?;
    Ok(records.delete(name, &record).await?)
}

/// What the ledger says of a release, if anything.
pub(crate) async fn entry(agent: &TestAgent<'_>, release: &str) -> Result<Option<Value>> {
    let ledger = agent.ledger().await?.context("the ledger")?;
    let text = ledger.data["data"][format!("{}_{release}", target(agent))].as_str();
    Ok(text.map(serde_json::from_str).transpose()?)
}

/// Waits until the ledger says so of a release.
pub(crate) async fn wait_entry(
    agent: &TestAgent<'_>,
    release: &str,
    what: &str,
    is_wanted: impl Fn(Option<&Value>) -> bool,
) -> Result<()> {
    wait_until(&format!("{release} {what}"), PATIENCE, async || {
        let entry = entry(agent, release).await.map_err(|e| e.to_string())?;
        match is_wanted(entry.as_ref()) {
            true => Ok(()),
            false => Err(format!("{entry:?}")),
        }
    })
    .await
}

/// A bundle of two ConfigMaps, one of its own and one that both have.
pub(crate) fn claim(agent: &TestAgent<'_>, name: &str) -> BundleDeployment {
    let text = map(name) + &map("common");
    BundleDeployment::content(name, vec![("maps.yaml".to_owned(), text.into())])
        .option("defaultNamespace", json!(target(agent)))
}

pub(crate) async fn uid(agent: &TestAgent<'_>, name: &str) -> Result<Option<String>> {
    let found = agent
        .object("v1", "ConfigMap", &target(agent), name)
        .await?;
    Ok(found.and_then(|map| map.uid()))
}

/// Waits until the ledger has nothing of a release.
pub(crate) async fn gone_entry(agent: &TestAgent<'_>, release: &str) -> Result<()> {
    wait_entry(agent, release, "to be forgotten", |entry| entry.is_none())
        .await
        .with_context(|| agent.agent_log_tail(40))
}
