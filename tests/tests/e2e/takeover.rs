//! A cluster that changes from the Go agent to ours: what a recording of the Go agent left there, and an edit that nobody corrected.

use std::io::Write as _;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::bed::Bed;
use testbed::fleet::controller::apply;
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::objects::api;
use testbed::wait::wait_until;

use crate::scene::{deploy, deploy_own, haste, target};
use crate::two_owners::{nudge, writes};

/// The Go agent's field manager, and ours.
const MANAGER: &str = "fleetagent";

/// An object without what an API server allots, in a namespace.
fn again(object: &Value, namespace: &str) -> Value {
    let mut object = object.clone();
    let metadata = &object["metadata"];
    object["metadata"] = json!({
        "name": metadata["name"], "namespace": namespace,
        "labels": metadata["labels"], "annotations": metadata["annotations"],
    });
    object.as_object_mut().map(|fields| fields.remove("status"));
    object
}

/// A record as Helm writes it.
fn packed(release: &Value) -> Result<String> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(&serde_json::to_vec(release)?)?;
    Ok(STANDARD.encode(packed.finish()?))
}

/// What the Go agent left, from what was recorded of one: its record, its objects as it applied them, and what somebody did to them then.
async fn left_by_the_go_agent(agent: &TestAgent<'_>, recorded: &Value) -> Result<()> {
    let namespace = target(agent);
    apply(
        &agent.downstream,
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
    )
    .await?;
    let release = &recorded["releases"][0];
    let mut record = again(&release["secret"], &namespace);
    let fields = record.as_object_mut().context("a Secret")?;
    fields.remove("data");
    fields.insert(
        "stringData".to_owned(),
        json!({ "release": packed(&release["decoded"])? }),
    );
    apply(&agent.downstream, record).await?;
    let manifest = release["decoded"]["manifest"]
        .as_str()
        .context("a manifest")?;
    let live = recorded["live"].as_array().context("live objects")?;
    let marks = &live.first().context("an object")?["metadata"];
    for document in golib::yaml::documents(manifest.as_bytes())? {
        let mut wanted: Value = golib::yaml::decode(&document)?;
        for part in ["labels", "annotations"] {
            wanted["metadata"][part] = marks[part].clone();
        }
        let wanted = again(&wanted, &namespace);
        let (kind, name) = (
            wanted["kind"].as_str().context("a kind")?,
            wanted["metadata"]["name"].as_str().context("a name")?,
        );
        let objects = api(&agent.downstream, "v1", kind, &namespace);
        objects
            .patch(name, &PatchParams::apply(MANAGER), &Patch::Apply(&wanted))
            .await?;
        let is_it = |one: &&Value| one["kind"] == kind && one["metadata"]["name"] == name;
        match live.iter().find(is_it) {
            Some(edited) => {
                let edit = match kind {
                    "Service" => json!({ "spec": { "selector": edited["spec"]["selector"] } }),
                    _ => json!({ "data": edited["data"] }),
                };
                let somebody = PatchParams {
                    field_manager: Some("kubectl-edit".to_owned()),
                    ..PatchParams::default()
                };
                objects.patch(name, &somebody, &Patch::Merge(&edit)).await?;
            }
            None => drop(objects.delete(name, &DeleteParams::default()).await?),
        }
    }
    Ok(())
}

/// The Go agent deployed, somebody edited one object, another one and deleted a third, and ours takes over with drift correction on: the objects are as
/// in the chart, the newest record is one that the ledger knows, and nothing is written from then on. It goes with its bundle.
#[tokio::test]
async fn edits_made_under_the_go_agent_are_corrected() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    let namespace = target(&agent);
    let recorded = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/fixtures/recorded/drifting.json"
    );
    let recorded = std::fs::read_to_string(recorded)?
        .replace("\"drift\"", &format!("\"{namespace}\""))
        .replace("drift/drifting:", &format!("{namespace}/drifting:"))
        .replace("cattle-fleet-system", &agent.system_namespace);
    let recorded: Value = serde_json::from_str(&recorded)?;
    left_by_the_go_agent(&agent, &recorded).await?;
    let mut content = again(&recorded["content"], "");
    content["metadata"] = json!({ "name": recorded["content"]["metadata"]["name"] });
    apply(&agent.upstream, content).await?;
    let mut bundle = again(&recorded["bundledeployment"], agent.deployment_namespace()?);
    bundle["spec"]["correctDrift"] = json!({ "enabled": true });
    apply(&agent.upstream, bundle).await?;
    let status = json!({ "status": recorded["bundledeployment"]["status"] });
    agent
        .bundle_deployments()?
        .patch_status("drifting", &PatchParams::default(), &Patch::Merge(&status))
        .await?;

    agent.start(haste())?;
    deploy_own(&agent).await?;
    let ready = agent.wait_ready("drifting").await?;
    let edited = agent
        .object("v1", "ConfigMap", &namespace, "edited")
        .await?;
    let edited = edited.context("the edited ConfigMap")?;
    ensure!(
        edited.data["data"]["x"] == "1" && edited.data["data"]["true"] == "2",
        "{:#}",
        edited.data
    );
    let service = agent.object("v1", "Service", &namespace, "svc").await?;
    let service = service.context("the Service")?;
    ensure!(service.data["spec"]["selector"] == json!({ "app": "x" }));
    let gone = agent.object("v1", "ConfigMap", &namespace, "gone").await?;
    ensure!(gone.is_some());
    ensure!(ready["status"]["modifiedStatus"].is_null(), "{ready:#}");

    // The release that status names is the newest, and known.
    let named = ready["status"]["release"].as_str().unwrap_or_default();
    let revision = named.rsplit_once(':').context("a revision")?.1.to_owned();
    let later: i64 = revision.parse::<i64>()? + 1;
    let later = format!("sh.helm.release.v1.drifting.v{later}");
    ensure!(
        agent
            .object("v1", "Secret", &namespace, &later)
            .await?
            .is_none()
    );
    wait_until("the record to be ours", PATIENCE, async || {
        let ledger = agent.ledger().await.map_err(|e| e.to_string())?;
        let entries = ledger.map(|found| found.data["data"].clone());
        let entry = entries.unwrap_or_default()[format!("{namespace}_drifting")].clone();
        let entry: Value =
            serde_json::from_str(entry.as_str().unwrap_or("null")).map_err(|e| e.to_string())?;
        match &entry {
            entry if entry["bundle"] == "drifting" && entry["revisions"][&revision].is_string() => {
                Ok(())
            }
            other => Err(other.to_string()),
        }
    })
    .await
    .with_context(|| agent.agent_log_tail(30))?;
    let written = writes(&agent, "edited")?;
    for round in 0..3 {
        nudge(&agent, "drifting", round).await?;
        deploy(&agent, &format!("bystander-{round}"), 1).await?;
    }
    ensure!(writes(&agent, "edited")? == written);

    let bundles = agent.bundle_deployments()?;
    bundles.delete("drifting", &DeleteParams::default()).await?;
    wait_until("all of it to go", PATIENCE, async || {
        for name in ["edited", "gone", "ignored"] {
            let left = agent.object("v1", "ConfigMap", &namespace, name).await;
            if left.map_err(|e| e.to_string())?.is_some() {
                return Err(name.to_owned());
            }
        }
        Ok(())
    })
    .await
    .with_context(|| agent.agent_log_tail(30))
}
