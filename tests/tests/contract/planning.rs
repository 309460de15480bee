//! Wanted against live: what would have to be created, what is found, what differs. The Go agent asks its planner; here the plan
//! is what status reports of objects that somebody else puts there.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::shared::{Case, run};

const CONFIG: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: config\ndata:\n  wanted: \"yes\"\n";
const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  terminationGracePeriodSeconds: 0\n  containers:\n  - name: web\n    image: registry.example/web:1\n";

/// Labels and annotations of an object of this case's set.
async fn marks(case: &Case) -> Result<Value> {
    let config = case.object("v1", "ConfigMap", "config").await?;
    let hash = &config["metadata"]["labels"]["objectset.rio.cattle.io/hash"];
    Ok(json!({
        "labels": { "objectset.rio.cattle.io/hash": hash, "app.kubernetes.io/managed-by": "Helm" },
        "annotations": {
            "objectset.rio.cattle.io/id": format!("default-{}", case.name),
            "meta.helm.sh/release-name": case.name,
            "meta.helm.sh/release-namespace": case.namespace,
        },
    }))
}

/// An object as the set would have it, made by hand.
fn marked(marks: &Value, kind: &str, name: &str, rest: (&str, Value)) -> Value {
    let mut object = json!({ "apiVersion": "v1", "kind": kind, "metadata": marks });
    object["metadata"]["name"] = json!(name);
    object[rest.0] = rest.1;
    object
}

fn names(bundle: &Value) -> Vec<&str> {
    let resources = bundle["status"]["resources"].as_array();
    let names = resources
        .into_iter()
        .flatten()
        .filter_map(|r| r["name"].as_str());
    names.collect()
}

#[test]
fn case_14_48_a_pod_and_a_config_map() -> Result<()> {
    run(async {
        let case = Case::new("plan").await?;
        case.deploy(&case.bundle(&format!("{CONFIG}---\n{POD}")))
            .await?;
        let marks = marks(&case).await?;
        case.delete("v1", "ConfigMap", "config").await?;
        case.delete("v1", "Pod", "web").await?;
        let missing = |kind: &str, name: &str| case.entry(kind, name, ("missing", json!(true)));
        let config = missing("ConfigMap", "config");
        let reported = format!("configmap.v1 {}/config missing", case.namespace);
        let both = json!([config, missing("Pod", "web")]);
        let found = case.modified(both, &reported).await?;
        assert!(names(&found).is_empty(), "{found}");

        let containers = json!([{ "name": "web", "image": "registry.example/web:1" }]);
        let spec = json!({ "terminationGracePeriodSeconds": 0, "containers": containers });
        case.create(marked(&marks, "Pod", "web", ("spec", spec)))
            .await?;
        let found = case
            .agent
            .wait_for(&case.name, "to find the Pod and run it", |b| {
                let status = &b["status"];
                status["modifiedStatus"] == json!([config]) && status["ready"] == json!(true)
            });
        assert_eq!(names(&found.await?), ["web"]);

        let pod = case.object("v1", "Pod", "web").await?;
        let mut containers = pod["spec"]["containers"].clone();
        containers[0]["image"] = json!("registry.example/web:2");
        let change = json!({ "spec": { "containers": containers } });
        case.edit("v1", "Pod", "web", change).await?;
        let found = case
            .agent
            .wait_for(&case.name, "to see the Pod differ", |b| {
                b["status"]["modifiedStatus"]
                    .as_array()
                    .is_some_and(|m| m.len() == 2)
            });
        let found = found.await?;
        let pod = &found["status"]["modifiedStatus"][1];
        assert_eq!(pod["name"], "web");
        let patch = pod["patch"].as_str().context("a patch")?;
        assert!(patch.contains("registry.example/web:1"), "{patch}");
        Ok(())
    })
}

#[test]
fn case_14_49_a_config_map_with_the_mark() -> Result<()> {
    run(async {
        let case = Case::new("marked").await?;
        case.deploy(&case.bundle(CONFIG)).await?;
        let marks = marks(&case).await?;
        case.delete("v1", "ConfigMap", "config").await?;
        let reported = format!("configmap.v1 {}/config", case.namespace);
        let missing = case.entry("ConfigMap", "config", ("missing", json!(true)));
        case.modified(json!([missing]), &format!("{reported} missing"))
            .await?;

        case.create(marked(
            &marks,
            "ConfigMap",
            "config",
            ("data", json!({ "wanted": "yes" })),
        ))
        .await?;
        let found = case.ready().await?;
        assert_eq!(names(&found), ["config"]);

        case.edit_config(json!({ "data": { "wanted": "no" } }))
            .await?;
        let patch = r#"{"data":{"wanted":"yes"}}"#;
        let entry = case.entry("ConfigMap", "config", ("patch", json!(patch)));
        let found = case
            .modified(json!([entry]), &format!("{reported} modified {patch}"))
            .await?;
        assert_eq!(names(&found), ["config"]);
        Ok(())
    })
}

#[test]
fn case_14_50_a_config_map_without_the_mark_is_never_found() -> Result<()> {
    run(async {
        let case = Case::new("unmarked").await?;
        case.deploy(&case.bundle(CONFIG)).await?;
        case.delete("v1", "ConfigMap", "config").await?;
        let missing = case.entry("ConfigMap", "config", ("missing", json!(true)));
        let reported = format!("configmap.v1 {}/config", case.namespace);
        case.modified(json!([missing]), &format!("{reported} missing"))
            .await?;

        case.create(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "config" }, "data": { "wanted": "no" },
    }))
    .await?;
        // No event comes for an object without the label: the next drift check, whatever causes it, finds it.
        let bundles = case.agent.bundle_deployments()?;
        let touch = json!({ "metadata": { "annotations": { "tests.example/look": "again" } } });
        let params = kube::api::PatchParams::default();
        bundles
            .patch(&case.name, &params, &kube::api::Patch::Merge(&touch))
            .await?;
        let mut foreign = missing;
        foreign["exist"] = json!(true);
        let found = case
            .modified(json!([foreign]), &format!("{reported} is not owned by us"))
            .await?;
        assert!(names(&found).is_empty(), "{found}");
        Ok(())
    })
}
