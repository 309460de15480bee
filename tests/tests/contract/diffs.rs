//! `diff.comparePatches`: what they cover is no drift, what they do not cover is.

use anyhow::Result;
use serde_json::{Value, json};

use crate::shared::{Case, SERVICES, run};

/// A bundle whose ConfigMap data and Service ports do not count, and that may lose the Service.
async fn tolerant(prefix: &str) -> Result<Case> {
    let case = Case::new(prefix).await?;
    let patch = |kind: &str, name: &str, operation: Value| {
        json!({
            "apiVersion": "v1", "kind": kind, "name": name, "namespace": case.namespace,
            "operations": [operation],
        })
    };
    let patches = json!([
        patch(
            "ConfigMap",
            "config",
            json!({ "op": "remove", "path": "/data" })
        ),
        patch(
            "Service",
            "web",
            json!({ "op": "remove", "path": "/spec/ports" })
        ),
        patch("Service", "web", json!({ "op": "ignore" })),
    ]);
    let bundle = case.bundle(SERVICES);
    case.deploy(&bundle.option("diff", json!({ "comparePatches": patches })))
        .await?;
    Ok(case)
}

/// A change that nothing covers is the only one reported, so what was changed before it was looked at.
async fn only_another_service_is_reported(case: &Case) -> Result<()> {
    case.edit_service(
        "outside",
        json!({ "spec": { "externalName": "edited.example" } }),
    )
    .await?;
    let patch = r#"{"spec":{"externalName":"outside.example"}}"#;
    let message = format!("service.v1 {}/outside modified {patch}", case.namespace);
    case.modified(
        json!([case.entry("Service", "outside", ("patch", json!(patch)))]),
        &message,
    )
    .await
    .map(drop)
}

#[test]
fn case_14_8_a_changed_field_that_is_covered_is_no_drift() -> Result<()> {
    run(async {
        let case = tolerant("covered").await?;
        let ports =
            json!([{ "name": "http", "protocol": "TCP", "port": 4242, "targetPort": 9376 }]);
        case.edit_service("web", json!({ "spec": { "ports": ports } }))
            .await?;
        only_another_service_is_reported(&case).await
    })
}

#[test]
fn case_14_9_a_deleted_field_that_is_covered_is_no_drift() -> Result<()> {
    run(async {
        let case = tolerant("emptied").await?;
        case.edit_config(json!({ "data": null })).await?;
        only_another_service_is_reported(&case).await
    })
}

#[test]
fn case_14_10_a_deleted_object_that_is_ignored_is_no_drift() -> Result<()> {
    run(async {
        let case = tolerant("ignored").await?;
        case.delete("v1", "Service", "web").await?;
        only_another_service_is_reported(&case).await
    })
}

#[test]
fn case_14_11_a_field_that_is_not_covered_is_reported_with_its_patch() -> Result<()> {
    run(async {
        let case = tolerant("uncovered").await?;
        case.edit_service(
            "web",
            json!({ "spec": { "selector": { "app": null, "env": "edited" } } }),
        )
        .await?;
        let patch = r#"{"spec":{"selector":{"app":"web"}}}"#;
        let message = format!("service.v1 {}/web modified {patch}", case.namespace);
        case.modified(
            json!([case.entry("Service", "web", ("patch", json!(patch)))]),
            &message,
        )
        .await
        .map(drop)
    })
}
