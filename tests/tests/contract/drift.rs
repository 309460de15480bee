//! Drift correction: what is put right, what is left alone, and when.

use anyhow::{Context, Result};
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::fleet::test_agent::{PATIENCE, condition};
use testbed::wait::wait_until;

use crate::shared::{Case, DEPLOYMENT, SERVICES, run};

async fn corrected(prefix: &str, manifest: &str, correct: Value) -> Result<Case> {
    let case = Case::new(prefix).await?;
    let bundle = case.bundle(manifest);
    let bundle = bundle
        .spec("correctDrift", correct.clone())
        .option("correctDrift", correct);
    case.deploy(&bundle).await?;
    Ok(case)
}

async fn enabled(prefix: &str, manifest: &str) -> Result<Case> {
    corrected(prefix, manifest, json!({ "enabled": true })).await
}

async fn forced(prefix: &str) -> Result<Case> {
    corrected(prefix, SERVICES, json!({ "enabled": true, "force": true })).await
}

const OUTSIDE: &str = "outside.example";

/// Points the external Service elsewhere.
async fn redirect(case: &Case) -> Result<()> {
    case.edit_service(
        "outside",
        json!({ "spec": { "externalName": "edited.example" } }),
    )
    .await
}

async fn is_redirected_back(case: &Case) -> Result<()> {
    let passes = |service: &Value| service["spec"]["externalName"] == OUTSIDE;
    case.wait_object(
        "v1",
        "Service",
        "outside",
        "to point where it should",
        passes,
    )
    .await
    .map(drop)
}

/// Changes the number of the port, which is what the list of ports is merged by.
async fn renumber(case: &Case) -> Result<()> {
    let ports = json!([{ "name": "http", "protocol": "TCP", "port": 4242, "targetPort": 4242 }]);
    case.edit_service("web", json!({ "spec": { "ports": ports } }))
        .await
}

/// Changes the BundleDeployment's spec.
async fn respec(case: &Case, spec: Value) -> Result<()> {
    let change = json!({ "spec": spec });
    let bundles = case.agent.bundle_deployments()?;
    bundles
        .patch(&case.name, &PatchParams::default(), &Patch::Merge(&change))
        .await?;
    Ok(())
}

/// The records of releases in the case's namespace.
async fn records(case: &Case) -> Result<Vec<Value>> {
    let secrets = case.agent.objects("v1", "Secret", &case.namespace);
    let list = secrets
        .list(&ListParams::default().fields("type=helm.sh/release.v1"))
        .await?;
    list.items
        .iter()
        .map(|s| Ok(serde_json::to_value(s)?))
        .collect()
}

#[test]
fn case_14_12_drift_is_not_corrected_unless_asked_for() -> Result<()> {
    run(async {
        let case = Case::new("unasked").await?;
        case.deploy(&case.bundle(SERVICES)).await?;
        redirect(&case).await?;
        let patch = r#"{"spec":{"externalName":"outside.example"}}"#;
        let message = format!("service.v1 {}/outside modified {patch}", case.namespace);
        let outside = case.entry("Service", "outside", ("patch", json!(patch)));
        case.modified(json!([outside]), &message).await?;
        // Another edit is seen later, and the first one is still there.
        case.edit_config(json!({ "data": { "greeting": "edited" } }))
            .await?;
        let patch = r#"{"data":{"greeting":"hello"}}"#;
        let message = format!("configmap.v1 {}/config modified {patch}", case.namespace);
        let config = case.entry("ConfigMap", "config", ("patch", json!(patch)));
        case.modified(json!([config, outside]), &message).await?;
        let service = case.object("v1", "Service", "outside").await?;
        assert_eq!(service["spec"]["externalName"], "edited.example");
        Ok(())
    })
}

#[test]
fn case_14_13_old_drift_is_corrected_once_that_is_switched_on() -> Result<()> {
    run(async {
        let case = Case::new("late").await?;
        case.deploy(&case.bundle(SERVICES)).await?;
        redirect(&case).await?;
        case.agent
            .wait_for(&case.name, "to be modified", |b| {
                b["status"]["modifiedStatus"].is_array()
            })
            .await?;
        let correct = json!({ "enabled": true });
        respec(
            &case,
            json!({ "correctDrift": correct, "options": { "correctDrift": correct } }),
        )
        .await?;
        is_redirected_back(&case).await
    })
}

#[test]
fn case_14_14_a_services_external_name_comes_back() -> Result<()> {
    run(async {
        let case = enabled("name", SERVICES).await?;
        redirect(&case).await?;
        is_redirected_back(&case).await
    })
}

#[test]
fn case_14_15_a_deployments_image_comes_back() -> Result<()> {
    run(async {
        // Its pods never become ready: a bundle that is not ready is corrected all the same.
        let never = DEPLOYMENT.replace("web:1", "web:never");
        let case = Case::new("image").await?;
        case.agent
            .apply(&case.bundle(&never).correct_drift())
            .await?;
        case.agent
            .wait_for(&case.name, "to be deployed and not ready", |b| {
                b["status"]["nonReadyStatus"].is_array()
            })
            .await?;
        let containers = json!([{ "name": "web", "image": "registry.example/edited:1", "ports": [{ "containerPort": 80 }] }]);
        let change = json!({ "spec": { "template": { "spec": { "containers": containers } } } });
        case.edit("apps/v1", "Deployment", "web", change).await?;
        let image = |d: &Value| d["spec"]["template"]["spec"]["containers"][0]["image"].clone();
        case.wait_object("apps/v1", "Deployment", "web", "to have its image", |d| {
            image(d) == "registry.example/web:never"
        })
        .await
        .map(drop)
    })
}

#[test]
fn case_14_16_a_changed_label_comes_back() -> Result<()> {
    run(async {
        let case = enabled("label", DEPLOYMENT).await?;
        let change = json!({ "metadata": { "labels": { "app": "edited" } } });
        case.edit("apps/v1", "Deployment", "web", change).await?;
        case.wait_object("apps/v1", "Deployment", "web", "to have its label", |d| {
            d["metadata"]["labels"]["app"] == "web"
        })
        .await
        .map(drop)
    })
}

#[test]
fn case_14_17_a_config_maps_data_comes_back_and_records_stay_few() -> Result<()> {
    run(async {
        let case = enabled("data", SERVICES).await?;
        case.edit_config(json!({ "data": { "greeting": "edited" } }))
            .await?;
        case.wait_object("v1", "ConfigMap", "config", "to have its data", |c| {
            c["data"]["greeting"] == "hello"
        })
        .await?;
        case.ready().await?;
        assert!(records(&case).await?.len() <= 2);
        Ok(())
    })
}

#[test]
fn case_14_18_a_deployments_replicas_come_back() -> Result<()> {
    run(async {
        let case = enabled("replicas", DEPLOYMENT).await?;
        case.edit(
            "apps/v1",
            "Deployment",
            "web",
            json!({ "spec": { "replicas": 5 } }),
        )
        .await?;
        case.wait_object("apps/v1", "Deployment", "web", "to have one replica", |d| {
            d["spec"]["replicas"] == 1
        })
        .await
        .map(drop)
    })
}

/// Deletes an object and waits for another of the same name, and for the bundle.
async fn comes_back(case: &Case, kind: &str, name: &str) -> Result<Value> {
    let old = case.object("v1", kind, name).await?;
    case.delete("v1", kind, name).await?;
    let new = case
        .wait_object("v1", kind, name, "to be another one", |found| {
            found["metadata"]["uid"] != old["metadata"]["uid"]
        })
        .await?;
    case.ready().await?;
    Ok(new)
}

#[test]
fn case_14_19_a_deleted_config_map_comes_back() -> Result<()> {
    run(async {
        let case = enabled("deleted-map", SERVICES).await?;
        assert_eq!(
            comes_back(&case, "ConfigMap", "config").await?["data"]["greeting"],
            "hello"
        );
        Ok(())
    })
}

#[test]
fn case_14_20_a_deleted_service_comes_back() -> Result<()> {
    run(async {
        let case = enabled("deleted-service", SERVICES).await?;
        assert_eq!(
            comes_back(&case, "Service", "web").await?["spec"]["ports"][0]["port"],
            80
        );
        Ok(())
    })
}

#[test]
fn case_14_21_a_status_and_defaults_in_a_manifest_are_no_drift() -> Result<()> {
    run(async {
        let manifest = r#"apiVersion: v1
kind: Service
metadata:
  name: web
spec:
  publishNotReadyAddresses: false
  selector:
    app: web
  ports:
  - name: http
    protocol: TCP
    port: 80
    targetPort: 9376
status:
  loadBalancer:
    ingress:
    - hostname: web.example
"#;
        let case = enabled("status", manifest).await?;
        let ready = case.ready().await?;
        assert_eq!(ready["status"]["nonModified"], true);
        Ok(())
    })
}

#[test]
fn case_14_22_a_renumbered_port_is_not_corrected_without_force() -> Result<()> {
    run(async {
        let case = enabled("port", SERVICES).await?;
        renumber(&case).await?;
        let refused = |found: &Value| {
            let message = condition(found, "Ready").map(|c| c["message"].clone());
            message.is_some_and(|m| m.as_str().unwrap_or_default().contains("Duplicate value"))
        };
        case.agent
            .wait_for(&case.name, "to say why", refused)
            .await?;
        let service = case.object("v1", "Service", "web").await?;
        assert_eq!(service["spec"]["ports"][0]["port"], 4242);
        Ok(())
    })
}

#[test]
fn case_14_23_with_force_a_deleted_config_map_comes_back() -> Result<()> {
    run(async {
        let case = forced("force-deleted").await?;
        assert_eq!(
            comes_back(&case, "ConfigMap", "config").await?["data"]["greeting"],
            "hello"
        );
        Ok(())
    })
}

#[test]
fn case_14_24_with_force_a_services_type_comes_back() -> Result<()> {
    run(async {
        let case = forced("force-type").await?;
        case.edit_service("web", json!({ "spec": { "type": "NodePort" } }))
            .await?;
        case.wait_object("v1", "Service", "web", "to be of its type", |s| {
            s["spec"]["type"] == "ClusterIP"
        })
        .await?;
        case.ready().await.map(drop)
    })
}

#[test]
fn case_14_25_with_force_a_renumbered_port_comes_back() -> Result<()> {
    run(async {
        let case = forced("force-port").await?;
        let before = case.object("v1", "Service", "web").await?;
        renumber(&case).await?;
        let wanted = json!([{ "name": "http", "protocol": "TCP", "port": 80, "targetPort": 9376 }]);
        let after = case
            .wait_object("v1", "Service", "web", "to have its port", |s| {
                s["spec"]["ports"] == wanted
            })
            .await?;
        case.ready().await?;
        // In place: nothing was deleted.
        assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
        Ok(())
    })
}

#[test]
fn case_14_26_a_failed_correction_stays_in_the_history_where_that_is_wanted() -> Result<()> {
    run(async {
        let keep = json!({ "enabled": true, "keepFailHistory": true });
        let case = corrected("keep", SERVICES, keep).await?;
        // One write, or the data would be put right before it cannot be any more.
        let frozen = json!({ "data": { "greeting": "edited" }, "immutable": true });
        case.edit_config(frozen).await?;
        wait_until("a failed record", PATIENCE, async || {
            let records = records(&case).await.map_err(|e| e.to_string())?;
            let status = |r: &Value| r["metadata"]["labels"]["status"].clone();
            let states: Vec<Value> = records.iter().map(status).collect();
            match states.contains(&json!("failed")) && states.contains(&json!("deployed")) {
                true => Ok(()),
                false => Err(json!(states).to_string()),
            }
        })
        .await?;
        let config = case.object("v1", "ConfigMap", "config").await?;
        assert_eq!(config["data"]["greeting"], "edited");
        Ok(())
    })
}

#[test]
fn case_14_27_two_objects_are_corrected_at_once() -> Result<()> {
    run(async {
        let case = enabled("two", SERVICES).await?;
        case.edit_config(json!({ "data": { "greeting": "edited" } }))
            .await?;
        redirect(&case).await?;
        case.wait_object("v1", "ConfigMap", "config", "to have its data", |c| {
            c["data"]["greeting"] == "hello"
        })
        .await?;
        is_redirected_back(&case).await?;
        case.ready().await.map(drop)
    })
}

/// A bundle that stands still is not corrected while another one is; afterwards it is.
async fn stands_still(field: &str) -> Result<()> {
    let case = enabled("still", SERVICES).await?;
    let awake = enabled("awake", SERVICES).await?;
    respec(&case, json!({ field: true })).await?;
    redirect(&case).await?;
    redirect(&awake).await?;
    is_redirected_back(&awake).await?;
    let service = case.object("v1", "Service", "outside").await?;
    assert_eq!(service["spec"]["externalName"], "edited.example");
    respec(&case, json!({ field: false })).await?;
    is_redirected_back(&case).await
}

#[test]
fn case_14_28_a_paused_bundle_is_corrected_afterwards() -> Result<()> {
    run(async { stands_still("paused").await })
}

#[test]
fn case_14_29_a_bundle_off_schedule_is_corrected_afterwards() -> Result<()> {
    run(async { stands_still("offSchedule").await })
}

#[test]
fn case_14_30_an_added_label_is_neither_removed_nor_reported() -> Result<()> {
    run(async {
        let case = Case::new("added").await?;
        case.deploy(&case.bundle(SERVICES).correct_drift()).await?;
        case.edit_config(json!({ "metadata": { "labels": { "mine": "yes" } } }))
            .await?;
        case.edit_config(json!({ "data": { "greeting": "edited" } }))
            .await?;
        case.wait_object("v1", "ConfigMap", "config", "to have its data", |c| {
            c["data"]["greeting"] == "hello"
        })
        .await?;
        let ready = case.ready().await?;
        assert!(ready["status"]["modifiedStatus"].is_null());
        let config = case.object("v1", "ConfigMap", "config").await?;
        let labels = config["metadata"]["labels"].as_object().context("labels")?;
        assert_eq!(labels.get("mine"), Some(&json!("yes")));
        Ok(())
    })
}
