//! The options of a bundle, as their users see them.

use anyhow::{Context as _, Result};
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::bed::{Bed, unique};
use testbed::chart::Chart;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::apply;
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::kills::records;
use testbed::wait::wait_until;

/// A site beside the agent's own bundle, so that a deleted bundle counts as deleted.
async fn agent() -> Result<TestAgent<'static>> {
    let agent = TestAgent::registered(Bed::shared().await?).await?;
    let own = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: own\n";
    let own =
        BundleDeployment::content("fleet-agent-own", vec![("own.yaml".to_owned(), own.into())])
            .option("defaultNamespace", json!(agent.system_namespace));
    agent.apply(&own).await?;
    Ok(agent)
}

/// A bundle of one template, whose release and namespace have the bundle's name.
fn bundle(name: &str, template: &str) -> Result<BundleDeployment> {
    let bed_chart = Chart::new(name, "1.0.0").template("all.yaml", template);
    let files = bed_chart.files().iter();
    let files = files.map(|(path, content)| (format!("chart/{path}"), content.clone()));
    Ok(BundleDeployment::content(name, files.collect())
        .helm("chart", json!("chart"))
        .release(name, name))
}

fn map(name: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  value: {value:?}\n"
    )
}

async fn value(agent: &TestAgent<'_>, namespace: &str, name: &str) -> Result<Value> {
    let map = agent.object("v1", "ConfigMap", namespace, name).await?;
    Ok(map.map_or(Value::Null, |map| map.data["data"]["value"].clone()))
}

async fn wait_gone(agent: &TestAgent<'_>, release: &str) -> Result<()> {
    wait_until("the release to be forgotten", PATIENCE, async || {
        let records = records::read(&agent.downstream, release, release).await;
        match records.map_err(|error| error.to_string())?.len() {
            0 => Ok(()),
            count => Err(format!("{count} records")),
        }
    })
    .await
}

#[tokio::test]
async fn objects_and_crds_outlive_their_bundle_where_options_say_so() -> Result<()> {
    let agent = agent().await?;
    let [plain, kept, crds] = ["plain", "kept", "crds"].map(unique);
    let definition = |name: &str| {
        format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: cars.{name}.example.com}}\nspec:\n  \
             group: {name}.example.com\n  scope: Namespaced\n  names: {{kind: Car, plural: cars, singular: car}}\n  versions:\n  - \
             {{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object}}}}}}\n---\n{}",
            map("a", "1")
        )
    };
    agent.apply(&bundle(&plain, &definition(&plain))?).await?;
    let keep = bundle(&kept, &definition(&kept))?.option("keepResources", json!(true));
    agent.apply(&keep).await?;
    let all = bundle(&crds, &definition(&crds))?.option("deleteCRDResources", json!(true));
    agent.apply(&all).await?;
    for name in [&plain, &kept, &crds] {
        agent.wait_ready(name).await?;
        agent.delete(name).await?;
    }
    for (name, has_map, has_definition) in [
        (&plain, false, true),
        (&kept, true, true),
        (&crds, false, false),
    ] {
        wait_gone(&agent, name).await?;
        assert_eq!(value(&agent, name, "a").await? == "1", has_map, "{name}");
        wait_until("the definition's fate", PATIENCE, async || {
            let definition = format!("cars.{name}.example.com");
            let kind = "CustomResourceDefinition";
            let live = agent
                .object("apiextensions.k8s.io/v1", kind, "", &definition)
                .await;
            let live = live.map_err(|error| error.to_string())?;
            let is_as_expected = live.is_some() == has_definition;
            is_as_expected
                .then_some(())
                .ok_or_else(|| format!("{name}: {live:?}"))
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn host_names_are_resolved_unless_dns_is_disabled() -> Result<()> {
    let agent = agent().await?;
    for (is_off, expected) in [(false, "found"), (true, "")] {
        let name = unique("dns");
        let template =
            "{{ $found := ternary \"found\" \"\" (ne (getHostByName \"localhost\") \"\") }}\n";
        let template = format!("{template}{}", map("a", "{{ $found }}"));
        let bundle = bundle(&name, &template)?.helm("disableDNS", json!(is_off));
        agent.apply(&bundle).await?;
        agent.wait_ready(&name).await?;
        assert_eq!(value(&agent, &name, "a").await?, expected);
    }
    Ok(())
}

#[tokio::test]
async fn max_history_is_kept_and_a_forced_sync_adds_a_revision() -> Result<()> {
    let agent = agent().await?;
    let name = unique("history");
    for round in 1..=5 {
        let bundle = bundle(&name, &map("a", &round.to_string()))?
            .helm("maxHistory", json!(3))
            .option("forceSyncGeneration", json!(1));
        agent.apply(&bundle).await?;
        agent.wait_ready(&name).await?;
    }
    let forced = bundle(&name, &map("a", "5"))?
        .helm("maxHistory", json!(3))
        .option("forceSyncGeneration", json!(2));
    agent.apply(&forced).await?;
    agent.wait_ready(&name).await?;
    let records = records::read(&agent.downstream, &name, &name).await?;
    let revisions: Vec<u64> = records.iter().map(|record| record.revision).collect();
    assert_eq!(revisions, [4, 5, 6]);
    Ok(())
}

#[tokio::test]
async fn objects_of_others_are_taken_only_with_take_ownership() -> Result<()> {
    let agent = agent().await?;
    let name = unique("taken");
    apply(
        &agent.downstream,
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }),
    )
    .await?;
    apply(
        &agent.downstream,
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a", "namespace": name }, "data": { "value": "theirs" } }),
    )
    .await?;
    let polite = bundle(&name, &map("a", "ours"))?;
    agent.apply(&polite).await?;
    agent
        .wait_for(&name, "to be refused", |bundle| {
            bundle["status"]
                .to_string()
                .contains("cannot be imported into the current release")
        })
        .await?;
    assert_eq!(value(&agent, &name, "a").await?, "theirs");
    agent
        .apply(&polite.helm("takeOwnership", json!(true)))
        .await?;
    agent.wait_ready(&name).await?;
    assert_eq!(value(&agent, &name, "a").await?, "ours");
    Ok(())
}

#[tokio::test]
async fn immutable_fields_are_recreated_only_with_force() -> Result<()> {
    let agent = agent().await?;
    let name = unique("force");
    let job = |argument: &str| {
        format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: once}}\nspec:\n  template:\n    spec:\n      restartPolicy: Never\n      \
             containers: [{{name: main, image: registry.example/job, args: [{argument:?}]}}]\n---\n{}",
            map("a", argument)
        )
    };
    agent.apply(&bundle(&name, &job("one"))?).await?;
    agent.wait_ready(&name).await?;
    let a = agent.object("v1", "ConfigMap", &name, "a").await?;
    let uid = a.context("a is there")?.metadata.uid;
    agent.apply(&bundle(&name, &job("two"))?).await?;
    agent
        .wait_for(&name, "to be refused", |bundle| {
            bundle["status"].to_string().contains("field is immutable")
        })
        .await?;
    let forced = bundle(&name, &job("two"))?.helm("force", json!(true));
    agent.apply(&forced).await?;
    agent.wait_ready(&name).await?;
    let job = agent.object("batch/v1", "Job", &name, "once").await?;
    let args =
        &job.context("the Job is there")?.data["spec"]["template"]["spec"]["containers"][0]["args"];
    assert_eq!(*args, json!(["two"]));
    let a = agent.object("v1", "ConfigMap", &name, "a").await?;
    assert_eq!(
        a.context("a is there")?.metadata.uid,
        uid,
        "only what had to be"
    );
    Ok(())
}

#[tokio::test]
async fn a_namespace_is_awaited_where_none_may_be_created() -> Result<()> {
    let agent = agent().await?;
    let name = unique("namespace");
    let bundle = bundle(&name, &map("a", "1"))?.option("createNamespace", json!(false));
    agent.apply(&bundle).await?;
    agent
        .wait_for(&name, "to miss its namespace", |bundle| {
            bundle["status"].to_string().contains("not found")
        })
        .await?;
    apply(
        &agent.downstream,
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }),
    )
    .await?;
    agent.wait_ready(&name).await.map(drop)
}

/// A time-out is reported until the objects are ready, which takes no other change.
#[tokio::test]
async fn a_bundle_becomes_ready_after_its_timeout_without_another_deploy() -> Result<()> {
    let agent = agent().await?;
    let name = unique("late");
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  selector: {matchLabels: {app: web}}\n  \
        template:\n    metadata: {labels: {app: web}}\n    spec: {containers: [{name: main, image: \"registry.example/web:never\"}]}\n";
    let bundle = bundle(&name, deployment)?.helm("timeoutSeconds", json!(2));
    agent.apply(&bundle).await?;
    agent
        .wait_for(&name, "to be deployed and not ready", |bundle| {
            let status = &bundle["status"];
            status["appliedDeploymentID"] == bundle["spec"]["deploymentID"]
                && status["ready"] != true
        })
        .await?;
    let pods = agent.objects("v1", "Pod", &name);
    let image = json!({ "spec": { "containers": [{ "name": "main", "image": "registry.example/web:1" }] } });
    let made = wait_until("the pod", PATIENCE, async || {
        let list = pods.list(&ListParams::default()).await;
        let pod = list.map_err(|error| error.to_string())?.items.pop();
        pod.and_then(|pod| pod.metadata.name)
            .ok_or_else(String::new)
    });
    let params = PatchParams::default();
    pods.patch(&made.await?, &params, &Patch::Strategic(&image))
        .await?;
    agent.wait_ready(&name).await.map(drop)
}
