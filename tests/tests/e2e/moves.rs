//! Bundles that move to another namespace.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::bed::Bed;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::wait::wait_until;
use testbed::wire::{State, Wire};

use crate::release_scene::{map, uid};
use crate::scene::target;

/// A hook that runs before a chart is installed, for as long as its pod has this image.
const HOOK: &str = r#"apiVersion: batch/v1
kind: Job
metadata:
  name: prepare
  annotations: {helm.sh/hook: pre-install}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: "busybox:never"}]
"#;

/// The bundle goes back while it is deployed elsewhere, and upstream, which swallows what is sent to it, has not told of that when the deploy ends.
#[tokio::test]
async fn a_release_stays_that_its_bundle_went_back_to_unheard() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    let wire = Wire::to(agent.plane.url().trim_start_matches("https://")).await?;
    agent.grant_at(&wire.https_url()).await?;
    agent.start(BTreeMap::new())?;
    let (home, away) = (target(&agent), format!("{}-away", agent.id));
    let web = map("web");
    let changed = format!("{web}data:\n  is: back\n");
    let bundle = |namespace: &str, files: &[(&str, &str)]| {
        BundleDeployment::chart("web", files).release("web", namespace)
    };
    let first = bundle(&home, &[("templates/web.yaml", &web)]);
    agent.apply(&first).await?;
    agent.wait_ready("web").await?;
    let before = uid(&agent, "web").await?.context("it is deployed")?;

    let hooked = [("templates/job.yaml", HOOK), ("templates/web.yaml", &web)];
    agent.apply(&bundle(&away, &hooked)).await?;
    let pods = agent.objects("v1", "Pod", &away);
    let pod = wait_until("the hook to run", PATIENCE, async || {
        let of_job = ListParams::default().labels("job-name=prepare");
        let found = pods.list(&of_job).await.map_err(|e| e.to_string())?;
        found.items.into_iter().next().ok_or("no pod".to_owned())
    })
    .await
    .with_context(|| agent.agent_log_tail(30))?;
    wire.set(State::Silent);
    agent
        .apply(&bundle(&home, &[("templates/web.yaml", &changed)]))
        .await?;
    let image = json!({ "spec": { "containers": [{ "name": "main", "image": "busybox:1" }] } });
    let pod = pod.metadata.name.unwrap_or_default();
    pods.patch(&pod, &PatchParams::default(), &Patch::Strategic(&image))
        .await?;
    let key = format!("{away}_web");
    wait_until("the deploy to be noted", PATIENCE, async || {
        let ledger = agent.ledger().await.map_err(|e| e.to_string())?;
        let ledger = ledger.ok_or("no ledger")?;
        let entry = ledger.data["data"][&key].as_str().unwrap_or_default();
        let entry: Value = serde_json::from_str(entry).map_err(|e| e.to_string())?;
        // The revision is noted before, as an attempt.
        match entry["isAttempt"].is_null() {
            true => Ok(()),
            false => Err(entry.to_string()),
        }
    })
    .await
    .with_context(|| agent.agent_log_tail(30))?;
    wire.set(State::Whole);
    let ready = agent.wait_ready("web").await?;
    let release = format!("{home}/web:2");
    ensure!(ready["status"]["release"] == release.as_str(), "{ready:#}");
    let after = uid(&agent, "web").await?;
    ensure!(after == Some(before), "it was removed and made anew");
    Ok(())
}
