//! What status says of a bundle's objects, from the first deployment on.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::shared::{Case, FEWER, SERVICES, run};

/// A new bundle: four objects, ready and unmodified.
async fn new_bundle(prefix: &str) -> Result<Case> {
    let case = Case::new(prefix).await?;
    let ready = case.deploy(&case.bundle(SERVICES)).await?;
    let resources = ready["status"]["resources"]
        .as_array()
        .context("resources")?;
    assert_eq!(resources.len(), 4);
    assert!(
        resources.iter().all(|r| r["createdAt"].is_string()),
        "{resources:?}"
    );
    let named = |name: &str| resources.iter().find(|r| r["name"] == name).cloned();
    let mut web = named("web").context("the Service web")?;
    web["createdAt"] = Value::Null;
    let wanted = json!({
        "apiVersion": "v1", "kind": "Service", "namespace": case.namespace, "name": "web", "createdAt": null,
    });
    assert_eq!(web, wanted);
    let counts = json!({
        "desiredReady": 4, "ready": 4, "missing": 0, "modified": 0, "notReady": 0, "orphaned": 0, "unknown": 0, "waitApplied": 0,
    });
    let none = json!(0);
    for (key, count) in counts.as_object().context("an object")? {
        let found = ready["status"]["resourceCounts"].get(key).unwrap_or(&none);
        assert_eq!(found, count, "{key}");
    }
    Ok(case)
}

async fn a_modified_service(case: &Case) -> Result<()> {
    let other = json!({ "spec": { "selector": { "app": null, "foo": "bar" } } });
    case.edit_service("web", other).await?;
    let patch = r#"{"spec":{"selector":{"app":"web"}}}"#;
    let message = format!("service.v1 {}/web modified {patch}", case.namespace);
    case.modified(
        json!([case.entry("Service", "web", ("patch", json!(patch)))]),
        &message,
    )
    .await?;
    let right = json!({ "spec": { "selector": { "app": "web", "foo": null } } });
    case.edit_service("web", right).await?;
    case.ready().await.map(drop)
}

/// An upgrade leaves an object that something holds: it is extra until it is gone.
async fn an_object_that_stays(case: &Case) -> Result<()> {
    case.agent.apply(&case.bundle(FEWER)).await?;
    let message = format!("service.v1 {}/held extra", case.namespace);
    case.modified(
        json!([case.entry("Service", "held", ("delete", json!(true)))]),
        &message,
    )
    .await?;
    case.edit_service("held", json!({ "metadata": { "finalizers": null } }))
        .await?;
    case.ready().await.map(drop)
}

async fn a_deleted_service(case: &Case) -> Result<()> {
    case.delete("v1", "Service", "web").await?;
    let message = format!("service.v1 {}/web missing", case.namespace);
    case.modified(
        json!([case.entry("Service", "web", ("missing", json!(true)))]),
        &message,
    )
    .await
    .map(drop)
}

#[test]
fn case_14_37_a_new_bundle_lists_its_objects() -> Result<()> {
    run(async { new_bundle("new").await.map(drop) })
}

#[test]
fn case_14_38_a_modified_service_is_reported_until_it_is_put_right() -> Result<()> {
    run(async { a_modified_service(&new_bundle("modified").await?).await })
}

#[test]
fn case_14_39_a_left_over_object_is_extra_until_it_is_gone() -> Result<()> {
    run(async { an_object_that_stays(&new_bundle("held").await?).await })
}

#[test]
fn case_14_40_a_deleted_service_is_missing() -> Result<()> {
    run(async { a_deleted_service(&new_bundle("gone").await?).await })
}

/// The Go agent goes through the same once more with a second bundle beside the first; here the two share one namespace too.
#[test]
fn cases_14_41_to_44_a_second_bundle_goes_through_the_same() -> Result<()> {
    run(async {
        let first = new_bundle("first").await?;
        let second = new_bundle("second").await?;
        a_modified_service(&second).await?;
        an_object_that_stays(&second).await?;
        a_deleted_service(&second).await?;
        let ready = first.ready().await?;
        assert!(ready["status"]["modifiedStatus"].is_null());
        Ok(())
    })
}

#[test]
fn case_14_45_a_copied_mark_makes_nothing_extra() -> Result<()> {
    run(async {
        let case = new_bundle("copied").await?;
        let web = case.object("v1", "Service", "web").await?;
        let hash = &web["metadata"]["labels"]["objectset.rio.cattle.io/hash"];
        assert!(hash.is_string());
        case.create(json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": "copy", "labels": { "objectset.rio.cattle.io/hash": hash } },
            "spec": { "ports": [{ "protocol": "TCP", "port": 2, "targetPort": 1 }] },
        }))
        .await?;
        case.only_this_is_reported().await
    })
}
