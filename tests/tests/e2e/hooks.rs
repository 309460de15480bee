//! Hooks of bundles that share a namespace.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::wait::wait_until;

use crate::scene::{deploy, in_haste, target};

/// A chart with a migration that runs before it is installed, for as long as its pod does not end.
fn migrating(agent: &TestAgent<'_>, name: &str) -> BundleDeployment {
    let job = r#"apiVersion: batch/v1
kind: Job
metadata:
  name: migrate
  annotations: {helm.sh/hook: pre-install}
spec:
  template:
    metadata: {labels: {app: migrate}}
    spec:
      restartPolicy: Never
      nodeSelector: {nobody: has}
      containers: [{name: app, image: "app:never"}]
"#;
    let map = format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n");
    let files = [("templates/job.yaml", job), ("templates/map.yaml", &map)];
    BundleDeployment::chart(name, &files)
        .release(name, &target(agent))
        .helm("timeoutSeconds", json!(600))
}

async fn migration(agent: &TestAgent<'_>) -> Result<Option<String>> {
    let namespace = target(agent);
    let job = agent.object("batch/v1", "Job", &namespace, "migrate");
    Ok(job.await?.and_then(|job| job.metadata.uid))
}

/// Two charts that call their migration alike, in one namespace at one time.
#[tokio::test]
async fn a_running_hook_of_another_bundle_is_not_cut_off() -> Result<()> {
    let agent = in_haste().await?;
    agent.apply(&migrating(&agent, "one")).await?;
    wait_until("the first migration", PATIENCE, async || {
        let running = migration(&agent).await.map_err(|e| e.to_string())?;
        running.map(drop).ok_or("none".to_owned())
    })
    .await?;
    let first = migration(&agent).await?;
    agent.apply(&migrating(&agent, "two")).await?;
    let secrets = agent.objects("v1", "Secret", &target(&agent));
    wait_until("the second attempt", PATIENCE, async || {
        let record = secrets.get_opt("sh.helm.release.v1.two.v1").await;
        let record = record.map_err(|e| e.to_string())?;
        record.map(drop).ok_or("none".to_owned())
    })
    .await?;
    for name in ["bystander", "another"] {
        deploy(&agent, name, 1).await?;
        ensure!(migration(&agent).await? == first, "it was cut off");
    }
    let pods = agent.objects("v1", "Pod", &target(&agent));
    let ended = json!({ "status": { "phase": "Succeeded" } });
    let mut migrations = BTreeSet::new();
    wait_until("both to be migrated", PATIENCE, async || {
        let labelled = ListParams::default().labels("app=migrate");
        let running = pods.list(&labelled).await.map_err(|e| e.to_string())?;
        for pod in running.items {
            let (name, patch) = (pod.metadata.name.unwrap_or_default(), Patch::Merge(&ended));
            // It may be going already.
            let _ = pods
                .patch_status(&name, &PatchParams::default(), &patch)
                .await;
        }
        migrations.extend(migration(&agent).await.map_err(|e| e.to_string())?);
        let bundles = agent.bundle_deployments().map_err(|e| e.to_string())?;
        for name in ["one", "two"] {
            let bundle = bundles.get(name).await.map_err(|e| e.to_string())?;
            if bundle.data["status"]["ready"] != json!(true) {
                return Err(bundle.data["status"].to_string());
            }
        }
        Ok(())
    })
    .await
    .with_context(|| agent.agent_log_tail(40))?;
    migrations.extend(migration(&agent).await?);
    ensure!(migrations.len() == 2, "{migrations:?}");
    Ok(())
}
