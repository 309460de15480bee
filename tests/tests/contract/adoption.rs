//! Objects that were there before, that lose their marks, or that two bundles claim.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use testbed::fleet::test_agent::condition;

use crate::shared::{Case, bundle, run};

const CONFIG: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: config\ndata:\n  key: value\n";
const HASH: &str = "objectset.rio.cattle.io/hash";
const ID: &str = "objectset.rio.cattle.io/id";

/// The ConfigMap of the bundle as it was before the bundle came.
fn existing(labels: Value, annotations: Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "config", "labels": labels, "annotations": annotations },
        "data": { "foo": "bar" },
    })
}

/// Lets a bundle take over the ConfigMap; gives its metadata.
async fn adopted(prefix: &str, labels: Value, annotations: Value) -> Result<(Case, Value)> {
    let case = Case::new(prefix).await?;
    case.create(existing(labels, annotations)).await?;
    case.deploy(&case.bundle(CONFIG).helm("takeOwnership", json!(true)))
        .await?;
    let config = case.object("v1", "ConfigMap", "config").await?;
    assert_eq!(config["data"], json!({ "foo": "bar", "key": "value" }));
    let metadata = config["metadata"].clone();
    assert_eq!(metadata["labels"]["app.kubernetes.io/managed-by"], "Helm");
    assert_eq!(
        metadata["annotations"]["meta.helm.sh/release-name"],
        json!(case.name)
    );
    let namespace = &metadata["annotations"]["meta.helm.sh/release-namespace"];
    assert_eq!(*namespace, json!(case.namespace));
    assert_eq!(
        metadata["annotations"][ID],
        json!(format!("default-{}", case.name))
    );
    Ok((case, metadata))
}

#[test]
fn case_14_1_a_deleted_object_is_missing() -> Result<()> {
    run(async {
        let case = Case::new("missing").await?;
        case.deploy(&case.bundle(CONFIG)).await?;
        let config = case.object("v1", "ConfigMap", "config").await?;
        let metadata = &config["metadata"];
        assert_eq!(config["data"], json!({ "key": "value" }));
        assert_eq!(
            metadata["annotations"]["meta.helm.sh/release-name"],
            json!(case.name)
        );
        assert_eq!(
            metadata["annotations"][ID],
            json!(format!("default-{}", case.name))
        );
        assert!(metadata["labels"][HASH].is_string(), "{metadata}");
        case.delete("v1", "ConfigMap", "config").await?;
        let message = format!("configmap.v1 {}/config missing", case.namespace);
        case.modified(
            json!([case.entry("ConfigMap", "config", ("missing", json!(true)))]),
            &message,
        )
        .await?;
        Ok(())
    })
}

#[test]
fn case_14_2_an_object_without_its_labels_is_not_ours() -> Result<()> {
    run(async {
        let case = Case::new("stripped").await?;
        case.deploy(&case.bundle(CONFIG)).await?;
        let bare = json!({ "metadata": { "labels": null } });
        case.edit("v1", "ConfigMap", "config", bare).await?;
        let mut entry = case.entry("ConfigMap", "config", ("missing", json!(true)));
        entry["exist"] = json!(true);
        let message = format!("configmap.v1 {}/config is not owned by us", case.namespace);
        case.modified(json!([entry]), &message).await?;
        Ok(())
    })
}

#[test]
fn case_14_3_an_object_nobody_owns_is_adopted_and_merged() -> Result<()> {
    run(async { adopted("clean", json!({}), json!({})).await.map(drop) })
}

#[test]
fn case_14_4_marks_of_another_set_are_replaced() -> Result<()> {
    run(async {
        let hash = "33ed67317c57ea78702e369c4c025f8df88553cc";
        let (_, metadata) =
            adopted("marked", json!({ HASH: hash }), json!({ ID: "of-another" })).await?;
        assert_ne!(metadata["labels"][HASH], hash);
        Ok(())
    })
}

#[test]
fn case_14_5_ownership_marks_in_the_wrong_fields_are_ignored() -> Result<()> {
    run(async {
        let (_, metadata) =
            adopted("swapped", json!({ ID: "foo123" }), json!({ HASH: "234" })).await?;
        assert_ne!(metadata["labels"][HASH], "234");
        assert_ne!(metadata["annotations"][ID], "foo123");
        Ok(())
    })
}

#[test]
fn case_14_6_foreign_labels_and_annotations_stay() -> Result<()> {
    run(async {
        let (_, metadata) =
            adopted("foreign", json!({ "foo": "234" }), json!({ "bar": "xyz" })).await?;
        assert_eq!(metadata["labels"]["foo"], "234");
        assert_eq!(metadata["annotations"]["bar"], "xyz");
        Ok(())
    })
}

#[test]
fn case_14_7_the_bundle_that_lost_an_object_reports_it() -> Result<()> {
    run(async {
        let case = Case::new("one").await?;
        case.deploy(&case.bundle(CONFIG)).await?;
        let second = format!("{}-two", case.name);
        case.deploy(&bundle(&second, CONFIG, &case.namespace).helm("takeOwnership", json!(true)))
            .await?;
        let lost = case
            .agent
            .wait_for(&case.name, "to have lost the ConfigMap", |found| {
                let message = condition(found, "Ready").map(|c| c["message"].clone());
                message.is_some_and(|m| m.as_str().unwrap_or_default().contains("not owned by us"))
            })
            .await?;
        let ready = condition(&lost, "Ready").context("a Ready condition")?;
        assert_eq!(
            (&ready["status"], &ready["reason"]),
            (&json!("False"), &json!("Error"))
        );
        case.agent.wait_ready(&second).await.map(drop)
    })
}
