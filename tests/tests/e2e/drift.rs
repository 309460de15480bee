//! Edits made by hand: seen, named and, where wanted, put right.

use std::time::Duration;

use anyhow::{Context, Result};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::bed::{Bed, unique};
use testbed::chart::Chart;
use testbed::fault_proxy::refusal;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::apply;
use testbed::fleet::test_agent::{PATIENCE, TestAgent, condition};
use testbed::wait::wait_until;
use testbed::wire::{State, Wire};

use crate::scene::{behind_faults, target};

async fn deployed(correct: bool) -> Result<(TestAgent<'static>, String)> {
    let bed = Bed::shared().await?;
    let agent = TestAgent::registered(bed).await?;
    let chart = Chart::small(&unique("drift"), "1.0.0");
    bed.repository.add(&chart)?;
    let target = format!("{}-app", agent.id);
    let bundle = BundleDeployment::helm_op("web", bed.repository.url(), chart.name(), "1.0.0")
        .release("web", &target);
    agent
        .apply(&if correct {
            bundle.correct_drift()
        } else {
            bundle
        })
        .await?;
    agent.wait_ready("web").await?;
    Ok((agent, target))
}

/// Changes an object the way `kubectl edit` does.
async fn edit(
    agent: &TestAgent<'_>,
    api_version: &str,
    kind: &str,
    namespace: &str,
    change: Value,
) -> Result<()> {
    let params = PatchParams {
        field_manager: Some("kubectl-edit".to_owned()),
        ..PatchParams::default()
    };
    agent
        .objects(api_version, kind, namespace)
        .patch("web", &params, &Patch::Merge(&change))
        .await?;
    Ok(())
}

#[tokio::test]
async fn an_edit_is_reported_with_the_patch_that_would_undo_it() -> Result<()> {
    let (agent, target) = deployed(false).await?;
    edit(
        &agent,
        "v1",
        "ConfigMap",
        &target,
        json!({ "data": { "greeting": "edited" } }),
    )
    .await?;
    let bundle = agent
        .wait_for("web", "to be Modified", |b| {
            b["status"]["modifiedStatus"].is_array()
        })
        .await?;
    assert_eq!(
        bundle["status"]["modifiedStatus"],
        json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "namespace": target, "name": "web",
            "patch": "{\"data\":{\"greeting\":\"hello\"}}",
        }])
    );
    assert!(bundle["status"]["nonModified"].is_null());
    let ready = condition(&bundle, "Ready").context("a Ready condition")?;
    assert_eq!(ready["status"], "False");
    let message =
        format!("configmap.v1 {target}/web modified {{\"data\":{{\"greeting\":\"hello\"}}}}");
    assert_eq!(ready["message"], json!(message));
    // Nothing is corrected unasked: taking the edit back is what clears the report.
    edit(
        &agent,
        "v1",
        "ConfigMap",
        &target,
        json!({ "data": { "greeting": "hello" } }),
    )
    .await?;
    agent.wait_ready("web").await?;
    Ok(())
}

#[tokio::test]
async fn a_deleted_object_is_reported_missing() -> Result<()> {
    let (agent, target) = deployed(false).await?;
    agent
        .objects("v1", "Service", &target)
        .delete("web", &DeleteParams::default())
        .await?;
    let bundle = agent
        .wait_for("web", "to miss the Service", |b| {
            b["status"]["modifiedStatus"].is_array()
        })
        .await?;
    assert_eq!(
        bundle["status"]["modifiedStatus"],
        json!([{
            "apiVersion": "v1", "kind": "Service", "namespace": target, "name": "web", "missing": true,
        }])
    );
    let ready = condition(&bundle, "Ready").context("a Ready condition")?;
    assert_eq!(
        ready["message"],
        json!(format!("service.v1 {target}/web missing"))
    );
    Ok(())
}

#[tokio::test]
async fn edited_scaled_and_deleted_objects_are_corrected() -> Result<()> {
    let (agent, target) = deployed(true).await?;
    edit(
        &agent,
        "v1",
        "ConfigMap",
        &target,
        json!({ "data": { "greeting": "edited" } }),
    )
    .await?;
    edit(
        &agent,
        "apps/v1",
        "Deployment",
        &target,
        json!({ "spec": { "replicas": 3 } }),
    )
    .await?;
    agent
        .objects("v1", "Service", &target)
        .delete("web", &DeleteParams::default())
        .await?;
    wait_until("everything to be as the chart says", PATIENCE, async || {
        let get = async |api_version: &str, kind: &str| {
            let object = agent
                .object(api_version, kind, &target, "web")
                .await
                .map_err(|e| e.to_string())?;
            Ok::<Value, String>(object.map_or(Value::Null, |o| o.data))
        };
        let greeting = get("v1", "ConfigMap").await?["data"]["greeting"].clone();
        let replicas = get("apps/v1", "Deployment").await?["spec"]["replicas"].clone();
        let service = get("v1", "Service").await?;
        if greeting == "hello" && replicas == 1 && !service.is_null() {
            return Ok(());
        }
        Err(format!(
            "greeting {greeting}, replicas {replicas}, service {}",
            !service.is_null()
        ))
    })
    .await?;
    agent.wait_ready("web").await?;
    Ok(())
}

/// What lost its labels is not in the watch any more: that it left is told with the labels it had, and nothing of what follows.
#[tokio::test]
async fn an_edited_object_without_labels_is_corrected() -> Result<()> {
    let (agent, target) = deployed(true).await?;
    let stripped = json!({ "metadata": { "labels": null, "annotations": null } });
    edit(&agent, "v1", "ConfigMap", &target, stripped).await?;
    let edited = json!({ "data": { "greeting": "edited" } });
    edit(&agent, "v1", "ConfigMap", &target, edited).await?;
    wait_until("everything to be as the chart says", PATIENCE, async || {
        let object = agent.object("v1", "ConfigMap", &target, "web").await;
        let object = object.map_err(|e| e.to_string())?;
        let object = object.map_or(Value::Null, |object| object.data);
        match object["data"]["greeting"] == "hello" {
            true => Ok(()),
            false => Err(object.to_string()),
        }
    })
    .await
}

/// A webhook that is away: that an object cannot be judged is told, and holds up no other.
#[tokio::test]
async fn an_object_that_cannot_be_judged_is_told_and_holds_up_no_other() -> Result<()> {
    let (agent, fault_proxy) = behind_faults().await?;
    let target = target(&agent);
    // What the API server writes in another form is judged by a dry run.
    let container =
        json!({ "name": "web", "image": "web", "resources": { "limits": { "cpu": "1000m" } } });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" },
        "spec": {
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [container] },
            },
        },
    });
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "web" },
        "data": { "greeting": "hello" },
    });
    let files = [("map.yaml", map), ("web.yaml", deployment)];
    let files = files.map(|(name, file)| (name.to_owned(), file.to_string().into()));
    let bundle = BundleDeployment::content("web", files.into()).release("web", &target);
    agent.apply(&bundle.correct_drift()).await?;
    agent.wait_ready("web").await?;
    fault_proxy.refuse(|parts| {
        let query = parts.uri.query().unwrap_or_default();
        let is_asked = query.contains("dryRun") && parts.uri.path().ends_with("deployments/web");
        let away = "failed calling webhook \"x.example.com\": connection refused";
        is_asked.then(|| refusal(500, "InternalError", away))
    });
    let edited = json!({ "data": { "greeting": "edited" } });
    edit(&agent, "v1", "ConfigMap", &target, edited).await?;
    let tells = |bundle: &Value| {
        let monitored = condition(bundle, "Monitored").map(|c| c["message"].to_string());
        monitored.is_some_and(|message| message.contains("failed to compare Deployment"))
            && bundle["status"]["modifiedStatus"].is_null()
    };
    agent.wait_for("web", "to tell", tells).await?;
    wait_until("the map to be put right", PATIENCE, async || {
        let map = agent.object("v1", "ConfigMap", &target, "web").await;
        let map = map.map_err(|e| e.to_string())?.ok_or("gone")?;
        let is_right = map.data["data"]["greeting"] == "hello";
        is_right.then_some(()).ok_or(map.data.to_string())
    })
    .await?;
    fault_proxy.leave();
    let is_known =
        |bundle: &Value| condition(bundle, "Monitored").is_some_and(|c| c["status"] == "True");
    agent.wait_for("web", "to be known", is_known).await?;
    agent.wait_ready("web").await.map(drop)
}

/// A webhook that hangs: a newer spec does not wait for what nobody can tell of the former one's objects.
#[tokio::test]
async fn a_newer_spec_ends_a_drift_check_that_a_webhook_holds_up() -> Result<()> {
    let agent = TestAgent::registered(Bed::shared().await?).await?;
    let target = target(&agent);
    let bundle = |objects: &[Value]| {
        let files = objects.iter().enumerate();
        let files = files.map(|(at, object)| (format!("{at}.yaml"), object.to_string().into()));
        BundleDeployment::content("web", files.collect()).release("web", &target)
    };
    let map = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": target },
            "data": { "greeting": "hello" },
        })
    };
    let names = ["a", "b", "c", "d"];
    agent.apply(&bundle(&names.map(map))).await?;
    agent.wait_ready("web").await?;
    let edited = json!({ "data": { "greeting": "edited" } });
    let maps = agent.objects("v1", "ConfigMap", &target);
    for name in names {
        maps.patch(name, &PatchParams::default(), &Patch::Merge(&edited))
            .await?;
    }
    let are_modified = |bundle: &Value| {
        let modified = bundle["status"]["modifiedStatus"].as_array();
        modified.is_some_and(|modified| modified.len() == names.len())
    };
    agent
        .wait_for("web", "to be Modified", are_modified)
        .await?;

    // The API server waits ten seconds for a handshake.
    let wire = Wire::to("127.0.0.1:1").await?;
    wire.set(State::Silent);
    let hook = unique("hook");
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": hook },
        "webhooks": [{
            "name": "hangs.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Fail", "timeoutSeconds": 30, "clientConfig": { "url": wire.https_url() },
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": target } },
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
                "operations": ["CREATE", "UPDATE"],
            }],
        }],
    });
    apply(&agent.downstream, webhook).await?;
    wait_until("the webhook to hang", PATIENCE, async || {
        let probe = apply(&agent.downstream, map("probe"));
        match tokio::time::timeout(Duration::from_secs(3), probe).await {
            Err(_) => Ok(()),
            Ok(written) => Err(format!("{written:?}")),
        }
    })
    .await?;
    let look = json!({ "metadata": { "annotations": { "example.com/round": "1" } } });
    agent
        .bundle_deployments()?
        .patch("web", &PatchParams::default(), &Patch::Merge(&look))
        .await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "web" },
    });
    agent.apply(&bundle(&[account])).await?;
    let release = json!(format!("{target}/web:2"));
    let is_deployed = |bundle: &Value| bundle["status"]["release"] == release;
    let deployed = agent.wait_for("web", "to be deployed", is_deployed);
    tokio::time::timeout(Duration::from_secs(15), deployed)
        .await
        .context("the look goes on")??;
    agent
        .objects(
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            "",
        )
        .delete(&hook, &DeleteParams::default())
        .await
        .map(drop)
        .map_err(Into::into)
}

#[tokio::test]
async fn old_drift_is_corrected_once_correction_is_switched_on() -> Result<()> {
    let (agent, target) = deployed(false).await?;
    edit(
        &agent,
        "v1",
        "ConfigMap",
        &target,
        json!({ "data": { "greeting": "edited" } }),
    )
    .await?;
    agent
        .wait_for("web", "to be Modified", |b| {
            b["status"]["modifiedStatus"].is_array()
        })
        .await?;
    let switch = json!({ "spec": { "correctDrift": { "enabled": true } } });
    agent
        .bundle_deployments()?
        .patch("web", &PatchParams::default(), &Patch::Merge(&switch))
        .await?;
    agent.wait_ready("web").await?;
    Ok(())
}

#[tokio::test]
async fn an_added_label_is_no_drift() -> Result<()> {
    let (agent, target) = deployed(true).await?;
    edit(
        &agent,
        "v1",
        "ConfigMap",
        &target,
        json!({ "metadata": { "labels": { "mine": "yes" } } }),
    )
    .await?;
    // A real edit after it shows that the label was looked at and left alone.
    edit(
        &agent,
        "v1",
        "ConfigMap",
        &target,
        json!({ "data": { "greeting": "edited" } }),
    )
    .await?;
    wait_until("the greeting to be put right", PATIENCE, async || {
        let object = agent
            .object("v1", "ConfigMap", &target, "web")
            .await
            .map_err(|e| e.to_string())?;
        let object = object.ok_or("gone")?;
        if object.data["data"]["greeting"] == "hello" {
            Ok(object)
        } else {
            Err(object.data.to_string())
        }
    })
    .await
    .map(|object| {
        assert_eq!(
            object
                .metadata
                .labels
                .unwrap_or_default()
                .get("mine")
                .map(String::as_str),
            Some("yes")
        )
    })
}

#[tokio::test]
async fn an_object_taken_over_by_another_bundle_is_reported_by_the_first() -> Result<()> {
    let agent = TestAgent::registered(Bed::shared().await?).await?;
    let target = format!("{}-app", agent.id);
    let bundle = |name: &str| {
        let file = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: web}}\ndata: {{by: {name}}}\n"
        );
        BundleDeployment::content(name, vec![("cm.yaml".to_owned(), file.into_bytes())])
            .release(name, &target)
            .helm("takeOwnership", json!(true))
    };
    agent.apply(&bundle("former")).await?;
    agent.wait_ready("former").await?;
    agent.apply(&bundle("taker")).await?;
    agent.wait_ready("taker").await?;
    let former = agent
        .wait_for("former", "to have lost its object", |b| {
            b["status"]["modifiedStatus"].is_array()
        })
        .await?;
    assert_eq!(
        former["status"]["modifiedStatus"],
        json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "namespace": target, "name": "web",
            "missing": true, "exist": true,
        }])
    );
    // Correcting it leaves the object where it is, and both say so.
    let switch = json!({ "spec": { "correctDrift": { "enabled": true } } });
    agent
        .bundle_deployments()?
        .patch("former", &PatchParams::default(), &Patch::Merge(&switch))
        .await?;
    let lost = format!("ConfigMap {target}/web: bundle taker has it since ");
    for name in ["former", "taker"] {
        let tells = |bundle: &Value| {
            let reported =
                condition(bundle, "OwnershipConflicts").map(|c| c["message"].to_string());
            reported.is_some_and(|reported| reported.contains(&lost))
        };
        agent.wait_for(name, "to tell who has it", tells).await?;
    }
    let taker = agent.wait_ready("taker").await?;
    let ready = condition(&taker, "Ready").context("a Ready condition")?;
    assert_eq!(ready["status"], "True");
    let web = agent.object("v1", "ConfigMap", &target, "web").await?;
    let web = web.context("the object")?;
    assert_eq!(web.data["data"]["by"], "taker");
    Ok(())
}
