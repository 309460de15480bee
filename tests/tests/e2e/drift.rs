//! Edits made by hand: seen, named and, where wanted, put right.

use anyhow::{Context, Result};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::bed::{Bed, unique};
use testbed::chart::Chart;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::site::{PATIENCE, Site, condition};
use testbed::wait::wait_until;

async fn deployed(correct: bool) -> Result<(Site<'static>, String)> {
    let bed = Bed::shared().await?;
    let site = Site::registered(bed).await?;
    let chart = Chart::small(&unique("drift"), "1.0.0");
    bed.repository.add(&chart)?;
    let target = format!("{}-app", site.id);
    let bundle = BundleDeployment::helm_op("web", bed.repository.url(), chart.name(), "1.0.0")
        .release("web", &target);
    site.apply(&if correct {
        bundle.correct_drift()
    } else {
        bundle
    })
    .await?;
    site.wait_ready("web").await?;
    Ok((site, target))
}

/// Changes an object the way `kubectl edit` does.
async fn edit(
    site: &Site<'_>,
    api_version: &str,
    kind: &str,
    namespace: &str,
    change: Value,
) -> Result<()> {
    let params = PatchParams {
        field_manager: Some("kubectl-edit".to_owned()),
        ..PatchParams::default()
    };
    site.objects(api_version, kind, namespace)
        .patch("web", &params, &Patch::Merge(&change))
        .await?;
    Ok(())
}

#[tokio::test]
async fn an_edit_is_reported_with_the_patch_that_would_undo_it() -> Result<()> {
    let (site, target) = deployed(false).await?;
    edit(
        &site,
        "v1",
        "ConfigMap",
        &target,
        json!({ "data": { "greeting": "edited" } }),
    )
    .await?;
    let bundle = site
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
        &site,
        "v1",
        "ConfigMap",
        &target,
        json!({ "data": { "greeting": "hello" } }),
    )
    .await?;
    site.wait_ready("web").await?;
    Ok(())
}

#[tokio::test]
async fn a_deleted_object_is_reported_missing() -> Result<()> {
    let (site, target) = deployed(false).await?;
    site.objects("v1", "Service", &target)
        .delete("web", &DeleteParams::default())
        .await?;
    let bundle = site
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
async fn edited_scaled_and_deleted_objects_are_put_right() -> Result<()> {
    let (site, target) = deployed(true).await?;
    edit(
        &site,
        "v1",
        "ConfigMap",
        &target,
        json!({ "data": { "greeting": "edited" } }),
    )
    .await?;
    edit(
        &site,
        "apps/v1",
        "Deployment",
        &target,
        json!({ "spec": { "replicas": 3 } }),
    )
    .await?;
    site.objects("v1", "Service", &target)
        .delete("web", &DeleteParams::default())
        .await?;
    wait_until("everything to be as the chart says", PATIENCE, async || {
        let get = async |api_version: &str, kind: &str| {
            let object = site
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
    site.wait_ready("web").await?;
    Ok(())
}

#[tokio::test]
async fn correction_switched_on_later_puts_old_drift_right() -> Result<()> {
    let (site, target) = deployed(false).await?;
    edit(
        &site,
        "v1",
        "ConfigMap",
        &target,
        json!({ "data": { "greeting": "edited" } }),
    )
    .await?;
    site.wait_for("web", "to be Modified", |b| {
        b["status"]["modifiedStatus"].is_array()
    })
    .await?;
    let switch = json!({ "spec": { "correctDrift": { "enabled": true } } });
    site.bundle_deployments()?
        .patch("web", &PatchParams::default(), &Patch::Merge(&switch))
        .await?;
    site.wait_ready("web").await?;
    Ok(())
}

#[tokio::test]
async fn an_added_label_is_nobodys_business() -> Result<()> {
    let (site, target) = deployed(true).await?;
    edit(
        &site,
        "v1",
        "ConfigMap",
        &target,
        json!({ "metadata": { "labels": { "mine": "yes" } } }),
    )
    .await?;
    // A real edit after it shows that the label was looked at and left alone.
    edit(
        &site,
        "v1",
        "ConfigMap",
        &target,
        json!({ "data": { "greeting": "edited" } }),
    )
    .await?;
    wait_until("the greeting to be put right", PATIENCE, async || {
        let object = site
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
async fn an_object_that_another_bundle_takes_is_reported_by_the_former() -> Result<()> {
    let site = Site::registered(Bed::shared().await?).await?;
    let target = format!("{}-app", site.id);
    let bundle = |name: &str| {
        let file = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: web}}\ndata: {{by: {name}}}\n"
        );
        BundleDeployment::content(name, vec![("cm.yaml".to_owned(), file.into_bytes())])
            .release(name, &target)
            .helm("takeOwnership", json!(true))
    };
    site.apply(&bundle("former")).await?;
    site.wait_ready("former").await?;
    site.apply(&bundle("taker")).await?;
    site.wait_ready("taker").await?;
    let former = site
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
    // Putting it right takes it back, and it is the other one that tells.
    let switch = json!({ "spec": { "correctDrift": { "enabled": true } } });
    site.bundle_deployments()?
        .patch("former", &PatchParams::default(), &Patch::Merge(&switch))
        .await?;
    site.wait_ready("former").await?;
    let taker = site
        .wait_for("taker", "to have lost it again", |b| {
            b["status"]["modifiedStatus"].is_array()
        })
        .await?;
    let ready = condition(&taker, "Ready").context("a Ready condition")?;
    assert_eq!(
        ready["message"],
        json!(format!("configmap.v1 {target}/web is not owned by us"))
    );
    Ok(())
}
