//! The steps of a reconcile, as far as no other test goes through them: standing still, values, copies, dependencies, and what
//! calls for another deployment.

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use testbed::bed::unique;
use testbed::chart::Chart;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::apply;
use testbed::fleet::sha256_hex;
use testbed::fleet::test_agent::{PATIENCE, condition};
use testbed::wait::wait_until;

use crate::shared::{Case, DEPLOYMENT, SERVICES, bundle, record, run};

const CONFIG: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: config\ndata:\n  greeting: hello\n";

/// Changes the BundleDeployment.
async fn patch(case: &Case, change: Value) -> Result<()> {
    let bundles = case.agent.bundle_deployments()?;
    bundles
        .patch(&case.name, &PatchParams::default(), &Patch::Merge(&change))
        .await?;
    Ok(())
}

/// Writes an object beside the BundleDeployments.
async fn upstream(case: &Case, mut object: Value) -> Result<()> {
    object["apiVersion"] = json!("v1");
    object["metadata"]["namespace"] = json!(case.agent.deployment_namespace()?);
    apply(&case.agent.upstream, object).await.map(drop)
}

#[test]
fn a_paused_bundle_reports_nothing_new() -> Result<()> {
    run(async {
        for field in ["paused", "offSchedule", "waitingForValues"] {
            let (still, awake) = (Case::new("still").await?, Case::new("awake").await?);
            still
                .agent
                .apply(&still.bundle(CONFIG).spec(field, json!(true)))
                .await?;
            awake.deploy(&awake.bundle(CONFIG)).await?;
            let found = still.agent.bundle_deployments()?.get(&still.name).await?;
            assert!(
                found.data["status"].is_null(),
                "{field}: {}",
                found.data["status"]
            );
            patch(&still, json!({ "spec": { field: false } })).await?;
            still.ready().await?;
        }
        Ok(())
    })
}

#[test]
fn values_wait_for_their_secret() -> Result<()> {
    run(async {
        let case = Case::new("values").await?;
        let chart = Chart::new("app", "0.1.0").template(
        "config.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: config\ndata:\n  greeting: {{ .Values.greeting }}\n",
    );
        let files = chart
            .files()
            .iter()
            .map(|(path, data)| (format!("app/{path}"), data.clone()));
        let values = json!({ "greeting": "stored" }).to_string();
        let hash = sha256_hex(values.as_bytes());
        let bundle = BundleDeployment::content(&case.name, files.collect())
            .helm("chart", json!("app"))
            .option("defaultNamespace", json!(case.namespace))
            .spec("valuesHash", json!(hash));
        case.agent.apply(&bundle).await?;
        let missing = format!("secrets \"{}\" not found", case.name);
        case.agent
            .wait_deploy_error(&case.name, |m| m == missing)
            .await?;
        let secret = |values: &str| {
            json!({
                "kind": "Secret",
                "type": "fleet.cattle.io/bundle-deployment/v1alpha1",
                "metadata": { "name": case.name },
                "data": { "values": STANDARD.encode(values) },
            })
        };
        upstream(&case, secret("{}")).await?;
        let mismatch = format!(
            "retrying, hash mismatch between secret and bundledeployment: actual {} != expected {hash}",
            sha256_hex(b"{}")
        );
        case.agent
            .wait_deploy_error(&case.name, |m| m == mismatch)
            .await?;
        upstream(&case, secret(&values)).await?;
        case.ready().await?;
        assert_eq!(
            case.object("v1", "ConfigMap", "config").await?["data"]["greeting"],
            "stored"
        );
        Ok(())
    })
}

#[test]
fn resources_are_copied_and_copied_again() -> Result<()> {
    run(async {
        let case = Case::new("copies").await?;
        let (secret, map) = (unique("secret"), unique("map"));
        let source = |token: &str| {
            json!({
                "kind": "Secret",
                "type": "example.com/token",
                "metadata": { "name": secret, "labels": { "mine": "yes" } },
                "data": { "token": STANDARD.encode(token) },
            })
        };
        upstream(&case, source("one")).await?;
        upstream(
            &case,
            json!({ "kind": "ConfigMap", "metadata": { "name": map }, "data": { "a": "1" } }),
        )
        .await?;
        let resources =
            json!([{ "kind": "Secret", "name": secret }, { "kind": "configmap", "name": map }]);
        let target = format!("{}-made", case.name);
        let bundle = case
            .bundle(CONFIG)
            .option("defaultNamespace", json!(target))
            .option("downstreamResources", resources);
        let generation = |n: i64| {
            bundle
                .clone()
                .spec("downstreamResourcesGeneration", json!(n))
        };
        let ready = case.deploy(&generation(1)).await?;
        assert_eq!(ready["status"]["downstreamResourcesGeneration"], 1);
        assert_eq!(
            ready["status"]["release"],
            json!(format!("{target}/{}:1", case.name))
        );
        let copy = async |kind: &str, name: &str| -> Result<Value> {
            let found = case.agent.object("v1", kind, &target, name).await?;
            Ok(serde_json::to_value(
                found.with_context(|| format!("no {kind} {name}"))?,
            )?)
        };
        let found = copy("Secret", &secret).await?;
        assert_eq!(found["type"], "example.com/token");
        assert_eq!(found["data"]["token"], json!(STANDARD.encode("one")));
        let labels = json!({ "mine": "yes", "fleet.cattle.io/bundledeployment": case.name });
        assert_eq!(found["metadata"]["labels"], labels);
        assert_eq!(copy("ConfigMap", &map).await?["data"], json!({ "a": "1" }));

        // The controller raises the generation when a source changed; a copy that was updated calls for a deployment.
        upstream(&case, source("two")).await?;
        case.agent.apply(&generation(2)).await?;
        let second = json!(format!("{target}/{}:2", case.name));
        let ready = case
            .agent
            .wait_for(&case.name, "to be deployed again", |b| {
                b["status"]["release"] == second
            });
        assert_eq!(ready.await?["status"]["downstreamResourcesGeneration"], 2);
        assert_eq!(
            copy("Secret", &secret).await?["data"]["token"],
            json!(STANDARD.encode("two"))
        );

        case.agent.delete(&case.name).await?;
        wait_until("the copies to be gone", PATIENCE, async || {
            let secret = case.agent.object("v1", "Secret", &target, &secret).await;
            let map = case.agent.object("v1", "ConfigMap", &target, &map).await;
            match (secret, map) {
                (Ok(None), Ok(None)) => Ok(()),
                found => Err(format!("{found:?}")),
            }
        })
        .await
    })
}

#[test]
fn an_unsupported_kind_of_downstream_resource_is_reported() -> Result<()> {
    run(async {
        let case = Case::new("uncopied").await?;
        let pods = json!([{ "kind": "Pod", "name": "web" }]);
        case.agent
            .apply(&case.bundle(CONFIG).option("downstreamResources", pods))
            .await?;
        let message = "unknown resource type for copy to downstream cluster: \"Pod\"";
        case.agent
            .wait_deploy_error(&case.name, |m| m == message)
            .await
            .map(drop)
    })
}

#[test]
fn a_downstream_resource_is_copied_once_its_source_exists() -> Result<()> {
    run(async {
        let case = Case::new("late").await?;
        let map = unique("map");
        let resources = json!([{ "kind": "ConfigMap", "name": map }]);
        case.agent
            .apply(&case.bundle(CONFIG).option("downstreamResources", resources))
            .await?;
        let message = format!(
            "could not get config map {}/{map} from upstream namespace for copying: configmaps \"{map}\" not found",
            case.agent.deployment_namespace()?
        );
        case.agent
            .wait_deploy_error(&case.name, |m| m == message)
            .await?;
        upstream(
            &case,
            json!({ "kind": "ConfigMap", "metadata": { "name": map }, "data": { "a": "1" } }),
        )
        .await?;
        case.ready().await?;
        assert_eq!(
            case.object("v1", "ConfigMap", &map).await?["data"]["a"],
            "1"
        );
        Ok(())
    })
}

#[test]
fn dependencies_are_chosen_by_name_and_selector() -> Result<()> {
    run(async {
        let (case, tier) = (Case::new("depends").await?, unique("tier"));
        let second = format!("{}-second", case.name);
        let by_label =
            json!([{}, { "selector": { "matchLabels": { "tests.example/tier": tier } } }]);
        let both = json!([{ "name": case.name, "selector": { "matchLabels": { "tests.example/tier": "other" } } }]);
        let dependent = |depends_on: Value| {
            bundle(&second, CONFIG, &case.namespace).spec("dependsOn", depends_on)
        };
        case.agent.apply(&dependent(by_label.clone())).await?;
        let none = format!(
            "list bundledeployments: no bundles matching labels tests.example/tier={tier} in namespace fleet-default"
        );
        case.agent.wait_deploy_error(&second, |m| m == none).await?;

        // Name and selector must both fit.
        case.deploy(&case.bundle(DEPLOYMENT).label("tests.example/tier", &tier))
            .await?;
        case.agent.apply(&dependent(both)).await?;
        case.agent
            .wait_deploy_error(&second, |m| m.contains("tests.example/tier=other"))
            .await?;
        case.agent.apply(&dependent(by_label)).await?;
        case.agent.wait_ready(&second).await?;

        // A dependency that degrades later counts at the next pass.
        let never = DEPLOYMENT
            .replace("web:1", "web:never")
            .replace("replicas: 1", "replicas: 2");
        case.agent
            .apply(&case.bundle(&never).label("tests.example/tier", &tier))
            .await?;
        case.agent
            .wait_for(&case.name, "not to be ready", |b| {
                b["status"]["nonReadyStatus"].is_array()
            })
            .await?;
        case.agent
            .apply(&dependent(json!([{ "name": case.name }])).label("tests.example/look", "again"))
            .await?;
        let waiting = format!("dependent bundle(s) are not ready: [{}]", case.name);
        case.agent
            .wait_deploy_error(&second, |m| m == waiting)
            .await?;
        let found = case.agent.bundle_deployments()?.get(&second).await?;
        assert!(found.data["status"]["release"].is_string());
        Ok(())
    })
}

#[test]
fn a_dependency_may_be_in_another_state() -> Result<()> {
    run(async {
        let case = Case::new("accepted").await?;
        let never = DEPLOYMENT.replace("web:1", "web:never");
        case.agent.apply(&case.bundle(&never)).await?;
        case.agent
            .wait_for(&case.name, "not to be ready", |b| {
                b["status"]["nonReadyStatus"].is_array()
            })
            .await?;
        let second = format!("{}-second", case.name);
        let depends_on = json!([{ "name": case.name, "acceptedStates": ["Ready", "NotReady"] }]);
        case.agent
            .apply(&bundle(&second, CONFIG, &case.namespace).spec("dependsOn", depends_on))
            .await?;
        case.agent.wait_ready(&second).await.map(drop)
    })
}

#[test]
fn a_deleted_release_record_leads_to_a_new_deploy() -> Result<()> {
    run(async {
        let case = Case::new("vanished").await?;
        case.deploy(&case.bundle(CONFIG)).await?;
        let before = case.object("v1", "ConfigMap", "config").await?;
        let key = format!("sh.helm.release.v1.{}.v1", case.name);
        case.delete("v1", "Secret", &key).await?;
        // Records are not watched: the next drift check notices.
        case.edit_config(json!({ "metadata": { "labels": { "mine": "yes" } } }))
            .await?;
        wait_until("a record", PATIENCE, async || {
            let found = case
                .agent
                .object("v1", "Secret", &case.namespace, &key)
                .await;
            found
                .map_err(|e| e.to_string())?
                .map(drop)
                .ok_or_else(|| "none".to_owned())
        })
        .await?;
        case.ready().await?;
        let after = case.object("v1", "ConfigMap", "config").await?;
        assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
        Ok(())
    })
}

#[test]
fn a_failed_deploy_keeps_what_was_deployed() -> Result<()> {
    run(async {
        let case = Case::new("failed").await?;
        let ready = case.deploy(&case.bundle(CONFIG)).await?;
        let bad = format!(
            "{CONFIG}---\n{}",
            CONFIG.replace("name: config", "name: Bad_Name")
        );
        case.agent.apply(&case.bundle(&bad)).await?;
        case.agent
            .wait_deploy_error(&case.name, |m| m.contains("Bad_Name"))
            .await?;
        let found = case.agent.bundle_deployments()?.get(&case.name).await?;
        for key in ["release", "appliedDeploymentID", "resources", "ready"] {
            assert_eq!(found.data["status"][key], ready["status"][key], "{key}");
        }
        Ok(())
    })
}

#[test]
fn drift_of_the_agents_own_bundle_is_corrected() -> Result<()> {
    run(async {
        let mut case = Case::new("own").await?;
        case.name = unique("fleet-agent-test");
        let other = CONFIG.replace("name: config", "name: other");
        let own = |manifest: &str| case.bundle(manifest).helm("takeOwnership", json!(true));
        case.deploy(&own(&format!("{CONFIG}---\n{other}"))).await?;
        let old = case.object("v1", "ConfigMap", "other").await?;
        case.deploy(&own(CONFIG)).await?;

        // An edit, with no correction asked for.
        case.edit_config(json!({ "data": { "greeting": "edited" } }))
            .await?;
        case.wait_object("v1", "ConfigMap", "config", "to have its data", |c| {
            c["data"]["greeting"] == "hello"
        })
        .await?;
        case.ready().await?;

        // What is left over of a former agent goes.
        let labels = &old["metadata"]["labels"];
        case.create(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "left", "labels": labels, "annotations": old["metadata"]["annotations"] },
    }))
    .await?;
        case.deploy(&own(&format!("{CONFIG}---\n{other}"))).await?;
        case.deploy(&own(CONFIG)).await?;
        case.create(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "other", "labels": labels, "annotations": old["metadata"]["annotations"] },
    }))
    .await?;
        wait_until("the left-over object to be gone", PATIENCE, async || {
            let found = case
                .agent
                .object("v1", "ConfigMap", &case.namespace, "other")
                .await;
            match found.map_err(|e| e.to_string())? {
                Some(_) => Err("still there".to_owned()),
                None => Ok(()),
            }
        })
        .await?;
        // One that no revision of ours knows is left alone.
        case.object("v1", "ConfigMap", "left").await?;
        case.ready().await.map(drop)
    })
}

#[test]
fn a_forced_generation_deploys_again() -> Result<()> {
    run(async {
        let case = Case::new("forced").await?;
        let ready = case.deploy(&case.bundle(CONFIG)).await?;
        assert_eq!(ready["status"]["syncGeneration"], 0);
        let ready = case
            .deploy(&case.bundle(CONFIG).option("forceSyncGeneration", json!(1)))
            .await?;
        assert_eq!(
            ready["status"]["release"],
            json!(format!("{0}/{1}:2", case.namespace, case.name))
        );
        assert_eq!(ready["status"]["syncGeneration"], 1);
        Ok(())
    })
}

#[test]
fn an_overwritten_object_is_deployed_again() -> Result<()> {
    run(async {
        let case = Case::new("overwrites").await?;
        // As Fleet writes it: the file names no namespace.
        let overwrites = json!([{ "kind": "ConfigMap", "name": "config" }]);
        let before = case
            .deploy(&case.bundle(SERVICES).option("overwrites", overwrites))
            .await?;
        let service = case.object("v1", "Service", "web").await?;
        case.delete("v1", "ConfigMap", "config").await?;
        let back = case.wait_object("v1", "ConfigMap", "config", "to be back", |_| true);
        assert_eq!(back.await?["data"]["greeting"], "hello");
        let ready = case.ready().await?;
        assert_ne!(ready["status"]["release"], before["status"]["release"]);
        // Nothing else was uninstalled on the way.
        let after = case.object("v1", "Service", "web").await?;
        assert_eq!(after["metadata"]["uid"], service["metadata"]["uid"]);
        Ok(())
    })
}

#[test]
fn a_release_under_its_former_name_is_removed() -> Result<()> {
    run(async {
        let case = Case::new("renamed").await?;
        let chart = Chart::new("app", "0.1.0").template(
            "config.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\n",
        );
        let files = chart
            .files()
            .iter()
            .map(|(path, data)| (format!("app/{path}"), data.clone()));
        let bundle = BundleDeployment::content(&case.name, files.collect())
            .helm("chart", json!("app"))
            .option("defaultNamespace", json!(case.namespace));
        case.deploy(&bundle.clone().helm("releaseName", json!("former")))
            .await?;
        case.object("v1", "ConfigMap", "former").await?;
        case.deploy(&bundle.helm("releaseName", json!("latter")))
            .await?;
        case.object("v1", "ConfigMap", "latter").await?;
        for (kind, name) in [
            ("ConfigMap", "former"),
            ("Secret", "sh.helm.release.v1.former.v1"),
        ] {
            let found = case.agent.object("v1", kind, &case.namespace, name).await?;
            assert!(found.is_none(), "{kind} {name}");
        }
        Ok(())
    })
}

#[test]
fn the_commit_is_the_charts_version() -> Result<()> {
    run(async {
        let case = Case::new("commit").await?;
        let commit = "0123456789abcdef0123456789abcdef01234567";
        case.deploy(&case.bundle(CONFIG).label("fleet.cattle.io/commit", commit))
            .await?;
        let release = record(&case, &case.name, 1).await?;
        let metadata = &release["chart"]["metadata"];
        assert_eq!(metadata["version"], "v0.0.0+git-0123456789ab");
        assert_eq!(metadata["name"], json!(case.name));
        assert_eq!(
            metadata["annotations"],
            json!({
                "fleet.cattle.io/agent-namespace": case.agent.system_namespace,
                "fleet.cattle.io/bundle-id": case.name,
                "fleet.cattle.io/commit": commit,
                "fleet.cattle.io/keep-resources": "false",
                "fleet.cattle.io/service-account": "",
            })
        );
        Ok(())
    })
}

#[test]
fn a_custom_resource_is_corrected() -> Result<()> {
    run(async {
        let case = Case::new("custom").await?;
        let kind = "Gadget";
        let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: gadgets.contract.example.com\nspec:\n  group: contract.example.com\n  scope: Namespaced\n  names: {kind: Gadget, plural: gadgets, singular: gadget, listKind: GadgetList}\n  versions:\n  - name: v1\n    served: true\n    storage: true\n    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}\n";
        let gadget = "apiVersion: contract.example.com/v1\nkind: Gadget\nmetadata:\n  name: one\nspec:\n  size: 3\n";
        let before = case
            .deploy(
                &case
                    .bundle(&format!("{definition}---\n{gadget}"))
                    .correct_drift(),
            )
            .await?;
        case.edit(
            "contract.example.com/v1",
            kind,
            "one",
            json!({ "spec": { "size": 7 } }),
        )
        .await?;
        case.wait_object(
            "contract.example.com/v1",
            kind,
            "one",
            "to have its size",
            |g| g["spec"]["size"] == 3,
        )
        .await?;
        let ready = case.ready().await?;
        assert_eq!(ready["status"]["release"], before["status"]["release"]);
        let condition = condition(&ready, "Ready").context("a Ready condition")?;
        assert_eq!(condition["status"], "True");
        Ok(())
    })
}
