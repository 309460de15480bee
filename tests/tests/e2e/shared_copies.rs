//! Downstream resources: what is an administrator's stays, what several bundles need stays until the last one goes, and a change of one is
//! rolled out whatever comes between.

use anyhow::{Context, Result, ensure};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::audit::Request;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::apply;
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::wait::wait_until;

use crate::scene::{app, deletions, deploy, gone, in_haste, limit, target, with_own_bundle};

/// What the Go agent marks a copy with.
const LABEL: &str = "fleet.cattle.io/bundledeployment";

/// What it takes away: that a second bundle needs the copy.
const CLAIM_OF_RIGHT: &str = "bundledeployment.fleet.cattle.io/right";

/// An app that needs a Secret of upstream.
fn needing(agent: &TestAgent<'_>, name: &str, secret: &str, generation: i64) -> BundleDeployment {
    with_secret(app(agent, name), secret, generation)
}

fn with_secret(bundle: BundleDeployment, secret: &str, generation: i64) -> BundleDeployment {
    bundle
        .option(
            "downstreamResources",
            json!([{ "kind": "Secret", "name": secret }]),
        )
        .spec("downstreamResourcesGeneration", json!(generation))
}

async fn copy(agent: &TestAgent<'_>, name: &str) -> Result<Option<DynamicObject>> {
    agent.object("v1", "Secret", &target(agent), name).await
}

async fn found(agent: &TestAgent<'_>, name: &str) -> Result<DynamicObject> {
    copy(agent, name).await?.context("the copy is there")
}

fn label<'o>(object: &'o DynamicObject, key: &str) -> Option<&'o str> {
    let labels = object.metadata.labels.as_ref()?;
    labels.get(key).map(String::as_str)
}

async fn wait_revision(agent: &TestAgent<'_>, name: &str, revision: i64) -> Result<Value> {
    let release = json!(format!("{}/{name}:{revision}", target(agent)));
    let what = format!("to be at revision {revision}");
    agent
        .wait_for(name, &what, |bundle| {
            bundle["status"]["release"] == release && bundle["status"]["ready"] == json!(true)
        })
        .await
}

/// Waits until a Secret of the target namespace is gone.
async fn wait_gone(agent: &TestAgent<'_>, name: &str) -> Result<()> {
    wait_until(
        &format!("{name} to be gone"),
        PATIENCE,
        async || match copy(agent, name).await.map_err(|e| e.to_string())? {
            None => Ok(()),
            Some(copy) => Err(format!("{:?}", copy.metadata.labels)),
        },
    )
    .await
}

async fn annotate(agent: &TestAgent<'_>, name: &str, value: &str) -> Result<()> {
    let patch = json!({ "metadata": { "annotations": { "example.com/round": value } } });
    let bundles = agent.bundle_deployments()?;
    bundles
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Ok(())
}

#[tokio::test]
async fn an_administrators_secret_is_neither_overwritten_nor_deleted() -> Result<()> {
    let agent = with_own_bundle().await?;
    deploy(&agent, "first", 1).await?;
    let theirs = json!({
        "apiVersion": "v1", "kind": "Secret", "data": { "key": "dGhlaXJz" },
        "metadata": { "name": "pull", "namespace": target(&agent), "labels": { "team": "admins" } },
    });
    apply(&agent.downstream, theirs).await?;
    let before = found(&agent, "pull").await?;
    agent
        .upstream_secret("pull", json!({ "key": "ours" }))
        .await?;
    agent.apply(&needing(&agent, "web", "pull", 1)).await?;
    let named = format!("secret {}/pull is there downstream", target(&agent));
    agent
        .wait_deploy_error("web", |message| {
            message.contains(&named) && message.contains(LABEL)
        })
        .await?;
    agent.delete("web").await?;
    // Another removal that came later is over, so this one is.
    deploy(&agent, "other", 1).await?;
    agent.delete("other-0").await?;
    gone(&agent, &["other-0".to_owned()], PATIENCE).await?;
    let after = found(&agent, "pull").await?;
    ensure!(after.metadata.resource_version == before.metadata.resource_version);
    // Out of the way it is copied, also where a bundle waits for that.
    agent.apply(&needing(&agent, "late", "pull", 1)).await?;
    agent
        .wait_deploy_error("late", |message| message.contains(&named))
        .await?;
    let secrets = agent.objects("v1", "Secret", &target(&agent));
    secrets.delete("pull", &DeleteParams::default()).await?;
    agent.wait_ready("late").await?;
    ensure!(label(&found(&agent, "pull").await?, LABEL) == Some("late"));
    Ok(())
}

#[tokio::test]
async fn a_copy_goes_with_a_bundle_whose_release_another_one_took() -> Result<()> {
    let agent = with_own_bundle().await?;
    agent
        .upstream_secret("pull", json!({ "key": "value" }))
        .await?;
    let former = needing(&agent, "former", "pull", 1).helm("releaseName", json!("shared"));
    agent.apply(&former).await?;
    agent.wait_ready("former").await?;
    let taker = app(&agent, "taker")
        .helm("releaseName", json!("shared"))
        .helm("takeOwnership", json!(true));
    agent.apply(&taker).await?;
    agent.wait_ready("taker").await?;
    // As long as it waits for its release, it may need it.
    deploy(&agent, "bystander", 1).await?;
    ensure!(label(&found(&agent, "pull").await?, LABEL) == Some("former"));
    agent.delete("former").await?;
    wait_until("the copy to go", PATIENCE, async || {
        match copy(&agent, "pull").await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    agent.wait_ready("taker").await?;
    Ok(())
}

#[tokio::test]
async fn a_copy_that_two_bundles_need_goes_with_the_last_one() -> Result<()> {
    let mut agent = with_own_bundle().await?;
    agent
        .upstream_secret("pull", json!({ "key": "one" }))
        .await?;
    for name in ["left", "right"] {
        agent.apply(&needing(&agent, name, "pull", 1)).await?;
        agent.wait_ready(name).await?;
    }
    // Starts, and whatever else wakes them, make no revisions and write nothing.
    let before = found(&agent, "pull").await?;
    for round in ["1", "2"] {
        agent.process()?.restart()?;
        for name in ["left", "right"] {
            annotate(&agent, name, round).await?;
        }
        deploy(&agent, &format!("bystander-{round}"), 1).await?;
    }
    for name in ["left", "right"] {
        wait_revision(&agent, name, 1).await?;
    }
    let after = found(&agent, "pull").await?;
    ensure!(
        after.metadata.resource_version == before.metadata.resource_version,
        "{before:?}\n{after:?}"
    );
    // The controller wakes one of them: it copied the source for that one first.
    agent
        .upstream_secret("pull", json!({ "key": "two" }))
        .await?;
    agent.apply(&needing(&agent, "left", "pull", 2)).await?;
    for name in ["left", "right"] {
        wait_revision(&agent, name, 2).await?;
    }
    // After a stay of the Go agent it names the one that was reconciled last alone.
    let as_go = json!({ "metadata": { "labels": { LABEL: "left", CLAIM_OF_RIGHT: null } } });
    let secrets = agent.objects("v1", "Secret", &target(&agent));
    secrets
        .patch("pull", &PatchParams::default(), &Patch::Merge(&as_go))
        .await?;
    agent.delete("left").await?;
    gone(&agent, &["left".to_owned()], PATIENCE).await?;
    wait_until("the copy to be the other bundle's", PATIENCE, async || {
        let copy = found(&agent, "pull").await.map_err(|e| e.to_string())?;
        match label(&copy, LABEL) {
            Some("right") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    ensure!(found(&agent, "pull").await?.metadata.uid == before.metadata.uid);
    wait_revision(&agent, "right", 2).await?;
    agent.delete("right").await?;
    wait_gone(&agent, "pull").await?;
    // The API server writes of a deletion after its answer.
    wait_until("the one deletion", PATIENCE, async || {
        let deletions = deletions(&agent).map_err(|e| e.to_string())?;
        let of_copy = |one: &&Request| one.resource == "secrets" && one.name == "pull";
        match deletions.iter().filter(of_copy).count() {
            1 => Ok(()),
            _ => Err(format!("{deletions:#?}")),
        }
    })
    .await
}

#[tokio::test]
async fn a_changed_copy_is_rolled_out_though_the_deploy_was_refused_once() -> Result<()> {
    let mut agent = in_haste().await?;
    agent
        .upstream_secret("pull", json!({ "key": "one" }))
        .await?;
    agent.apply(&needing(&agent, "web", "pull", 1)).await?;
    wait_revision(&agent, "web", 1).await?;
    // No room for another revision.
    limit(&agent, &target(&agent), "count/secrets", "0").await?;
    agent
        .upstream_secret("pull", json!({ "key": "two" }))
        .await?;
    agent.apply(&needing(&agent, "web", "pull", 2)).await?;
    wait_until("the change to be refused", PATIENCE, async || {
        let log = agent.agent_log_tail(200);
        match log.contains("exceeded quota") {
            true => Ok(()),
            false => Err("no refusal in the log".to_owned()),
        }
    })
    .await?;
    agent.process()?.restart()?;
    deploy_elsewhere(&agent).await?;
    limit(&agent, &target(&agent), "count/secrets", "99").await?;
    wait_revision(&agent, "web", 2).await?;
    let current = found(&agent, "pull").await?;
    ensure!(current.data["data"]["key"] == "dHdv", "{:?}", current.data);
    // And once only.
    agent.process()?.restart()?;
    annotate(&agent, "web", "1").await?;
    deploy(&agent, "after", 1).await?;
    wait_revision(&agent, "web", 2).await.map(drop)
}

/// Admission makes something of a copy that is not what its source says, another thing each time: two bundles that share it are deployed for changes of the
/// source alone.
#[tokio::test]
async fn a_copy_that_admission_changes_is_rolled_out_once() -> Result<()> {
    let mut agent = with_own_bundle().await?;
    deploy(&agent, "first", 1).await?;
    mutate_secrets(&agent, &["pull", "probe"]).await?;
    agent
        .upstream_secret("pull", json!({ "key": "one" }))
        .await?;
    for name in ["left", "right"] {
        agent.apply(&needing(&agent, name, "pull", 1)).await?;
        agent.wait_ready(name).await?;
    }
    for (round, revision) in [(1, 1), (2, 2)] {
        if round == 2 {
            agent
                .upstream_secret("pull", json!({ "key": "two" }))
                .await?;
            agent.apply(&needing(&agent, "left", "pull", 2)).await?;
        }
        for name in ["left", "right"] {
            wait_revision(&agent, name, revision).await?;
        }
        agent.process()?.restart()?;
        for name in ["left", "right", "left"] {
            annotate(&agent, name, &format!("{round}-{name}")).await?;
            deploy(&agent, &format!("after-{round}-{name}"), 1).await?;
        }
        for name in ["left", "right"] {
            wait_revision(&agent, name, revision).await?;
        }
    }
    ensure!(found(&agent, "pull").await?.data["data"]["key"] != "dHdv");
    Ok(())
}

/// Has admission write into Secrets of these names which version is written over.
async fn mutate_secrets(agent: &TestAgent<'_>, names: &[&str]) -> Result<()> {
    let name = format!("{}-mutated", agent.id);
    // Eight digits are base64.
    let version = "('00000000' + oldObject.metadata.resourceVersion).substring(size(oldObject.metadata.resourceVersion))";
    let value = format!("oldObject == null ? '00000000' : {version}");
    let patch = format!(r#"[JSONPatch{{op: "add", path: "/data/key", value: {value}}}]"#);
    let api_version = "admissionregistration.k8s.io/v1";
    apply(
        &agent.downstream,
        json!({
            "apiVersion": api_version, "kind": "MutatingAdmissionPolicy", "metadata": { "name": name },
            "spec": {
                "matchConstraints": {
                    "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": target(agent) } },
                    "resourceRules": [{
                        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"],
                        "operations": ["CREATE", "UPDATE"],
                    }],
                },
                "matchConditions": [{
                    "name": "names", "expression": format!("object.metadata.name in {names:?}"),
                }],
                "failurePolicy": "Fail", "reinvocationPolicy": "Never",
                "mutations": [{ "patchType": "JSONPatch", "jsonPatch": { "expression": patch } }],
            },
        }),
    )
    .await?;
    let binding = json!({
        "apiVersion": api_version, "kind": "MutatingAdmissionPolicyBinding",
        "metadata": { "name": name }, "spec": { "policyName": name },
    });
    apply(&agent.downstream, binding).await?;
    let value = json!({ "data": { "key": "b25l" } });
    let probe = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "probe", "namespace": target(agent) },
        "data": value["data"],
    });
    apply(&agent.downstream, probe).await?;
    let secrets = agent.objects("v1", "Secret", &target(agent));
    wait_until("the policy to be in force", PATIENCE, async || {
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(&value));
        let written = secrets.patch("probe", &parameters, &patch).await;
        let written = written.map_err(|e| e.to_string())?;
        match written.data["data"] == value["data"] {
            true => Err("it is as it was written".to_owned()),
            false => Ok(()),
        }
    })
    .await
}

/// The release that a bundle leaves behind under its former name goes; the copy is the bundle's, and goes with that.
#[tokio::test]
async fn a_copy_stays_when_its_bundle_takes_another_release_name() -> Result<()> {
    let agent = with_own_bundle().await?;
    agent
        .upstream_secret("pull", json!({ "key": "one" }))
        .await?;
    // Each release has an object of its own: none goes from one to the other.
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\n";
    let bundle = BundleDeployment::chart("web", &[("templates/map.yaml", map)])
        .option("defaultNamespace", json!(target(&agent)));
    let bundle = with_secret(bundle, "pull", 1);
    agent.apply(&bundle).await?;
    agent.wait_ready("web").await?;
    let before = found(&agent, "pull").await?;
    agent
        .apply(&bundle.helm("releaseName", json!("renamed")))
        .await?;
    let release = json!(format!("{}/renamed:1", target(&agent)));
    agent
        .wait_for("web", "to have its new name", |bundle| {
            bundle["status"]["release"] == release && bundle["status"]["ready"] == json!(true)
        })
        .await?;
    wait_gone(&agent, "sh.helm.release.v1.web.v1").await?;
    let after = found(&agent, "pull").await?;
    ensure!(after.metadata.uid == before.metadata.uid, "it was deleted");
    ensure!(label(&after, LABEL) == Some("web"), "{after:?}");
    agent.delete("web").await?;
    wait_gone(&agent, "pull").await
}

/// Something in another namespace, after which the agent has been at work for a while.
async fn deploy_elsewhere(agent: &TestAgent<'_>) -> Result<()> {
    let elsewhere = json!(format!("{}-elsewhere", agent.id));
    agent
        .apply(&app(agent, "elsewhere").option("defaultNamespace", elsewhere))
        .await?;
    agent.wait_ready("elsewhere").await.map(drop)
}
