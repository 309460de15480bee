//! Fields that others hold when a release is upgraded.

use agent::controllers::bundle_deployment::observe;
use anyhow::Result;
use objects::conflict::Outcome;
use release::kube::{DryRun, Owner, dry_run};
use release::storage::Storage;
use release::{Cluster, DeployOptions};
use serde_json::{Value, json};
use testbed::cluster::ADMIN;

use crate::world::{Template, World, deployment};

fn one(world: &World, arguments: &[&str]) -> Result<Value> {
    Ok(serde_json::from_str(
        &world.kubectl(&[arguments, &["--output", "json"]].concat())?,
    )?)
}

fn live_image(world: &World) -> Result<Value> {
    let live = one(world, &["get", "deployment", "d"])?;
    Ok(live["spec"]["template"]["spec"]["containers"][0]["image"].clone())
}

#[tokio::test]
async fn a_manual_edit_is_overwritten_and_reported() -> Result<()> {
    let world = World::new().await?;
    world.deploy(&deployment("d", 1, "nginx:1")).await?;
    world.kubectl(&["set", "image", "deployment/d", "main=nginx:edited"])?;
    let done = world.deploy(&deployment("d", 1, "nginx:2")).await?;
    let [conflict] = &done.conflicts[..] else {
        panic!("{:?}", done.conflicts)
    };
    assert_eq!(conflict.outcome, Outcome::Taken);
    assert_eq!(
        conflict.field,
        ".spec.template.spec.containers[name=\"main\"].image"
    );
    assert_eq!(conflict.managers, ["kubectl-set"]);
    assert_eq!(live_image(&world)?, "nginx:2");
    Ok(())
}

#[tokio::test]
async fn another_managers_apply_is_overwritten() -> Result<()> {
    let world = World::new().await?;
    world.deploy(&deployment("d", 1, "nginx:1")).await?;
    let file = std::env::temp_dir().join(format!("{}.yaml", world.namespace));
    std::fs::write(&file, deployment("d", 1, "nginx:theirs"))?;
    let path = file.to_string_lossy();
    let theirs = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=them",
        "-f",
        &path,
    ];
    world.kubectl(&theirs)?;
    std::fs::remove_file(&file)?;
    let done = world.deploy(&deployment("d", 1, "nginx:2")).await?;
    assert_eq!(done.conflicts[0].managers, ["them"]);
    assert_eq!(live_image(&world)?, "nginx:2");
    Ok(())
}

#[tokio::test]
async fn manually_scaled_replicas_are_reset() -> Result<()> {
    let world = World::new().await?;
    world.deploy(&deployment("d", 1, "nginx:1")).await?;
    world.kubectl(&["scale", "deployment", "d", "--replicas=5"])?;
    world.deploy(&deployment("d", 2, "nginx:1")).await?;
    assert_eq!(
        one(&world, &["get", "deployment", "d"])?["spec"]["replicas"],
        2
    );
    Ok(())
}

#[tokio::test]
async fn replicas_of_an_autoscaler_are_left_unless_the_chart_changes_them() -> Result<()> {
    let world = World::new().await?;
    world.deploy(&deployment("d", 1, "nginx:1")).await?;
    world.kubectl(&["autoscale", "deployment", "d", "--min=4", "--max=6"])?;
    world.kubectl(&["scale", "deployment", "d", "--replicas=5"])?;
    let done = world.deploy(&deployment("d", 1, "nginx:2")).await?;
    assert_eq!(done.conflicts.len(), 1);
    assert_eq!(done.conflicts[0].outcome, Outcome::Left);
    let live = one(&world, &["get", "deployment", "d"])?;
    assert!(
        live["spec"]["replicas"].as_i64() >= Some(4),
        "{}",
        live["spec"]["replicas"]
    );
    assert_eq!(
        live["spec"]["template"]["spec"]["containers"][0]["image"],
        "nginx:2"
    );
    Ok(())
}

/// What the account may do says nothing about autoscalers: replicas that were set through `scale` may be theirs. The distribution's controllers are called otherwise than Kubernetes'
/// own.
#[tokio::test]
async fn replicas_are_left_where_the_account_may_not_look_for_autoscalers() -> Result<()> {
    let world = World::new().await?;
    world.deploy(&deployment("d", 1, "nginx:1")).await?;
    world.create(&tenant_role(&world.namespace)).await?;
    let account = format!("system:serviceaccount:{}:tenant", world.namespace);
    let mut kubeconfig = world.plane.kubeconfig_value(ADMIN, "default");
    kubeconfig["users"][0]["user"]["as"] = account.into();
    let cluster = Cluster::new(testbed::cluster::client(kubeconfig).await?);
    let storage = Storage::secrets(&cluster, &world.namespace);
    let deploy = async |replicas: u32, image: &str| {
        let template = Template::new(&deployment("d", replicas, image));
        let spec = world.spec(&template, DeployOptions::default());
        release::deploy(&cluster, &storage, &spec).await
    };
    let live_replicas = || {
        let live = one(&world, &["get", "deployment", "d"])?;
        Ok::<_, anyhow::Error>(live["spec"]["replicas"].clone())
    };

    world.kubectl(&["autoscale", "deployment", "d", "--min=1", "--max=60"])?;
    let fifty = r#"{"spec": {"replicas": 50}}"#;
    let scale = [
        "patch",
        "deployment/d",
        "--subresource=scale",
        "--type=merge",
    ];
    world.kubectl(&[&scale[..], &["--field-manager=k3s", "-p", fifty]].concat())?;
    let done = deploy(1, "nginx:2").await?;
    assert_eq!(live_image(&world)?, "nginx:2");
    assert_eq!(live_replicas()?, 50);
    assert_eq!(done.conflicts[0].outcome, Outcome::Left);
    assert_eq!(done.conflicts[0].managers, ["k3s"]);
    // Nor is it drift.
    let live = one(&world, &["get", "deployment", "d"])?;
    let wanted = observe::objects(&cluster, &done.release).await?.objects;
    let owner = Owner::new("web", &world.namespace);
    match dry_run(&cluster, &owner, &wanted[0], &live).await? {
        DryRun::Applied { predicted, .. } => assert_eq!(predicted["spec"]["replicas"], 50),
        DryRun::Gone => panic!("it is gone"),
    }

    deploy(2, "nginx:2").await?;
    assert_eq!(live_replicas()?, 2);
    // Autoscalers do not write the workload itself.
    let five = r#"{"spec": {"replicas": 5}}"#;
    world.kubectl(&[
        "patch",
        "deployment/d",
        "--field-manager=somebody",
        "-p",
        five,
    ])?;
    deploy(2, "nginx:3").await?;
    assert_eq!(live_replicas()?, 2);
    Ok(())
}

/// An account that may do everything with releases and workloads, and nothing with autoscalers.
fn tenant_role(namespace: &str) -> String {
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: tenant}}\n\
         rules: [{{apiGroups: [\"\", apps], resources: [\"*\"], verbs: [\"*\"]}}]\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: tenant}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenant}}\n\
         subjects: [{{kind: ServiceAccount, name: tenant, namespace: {namespace}}}]\n"
    )
}

#[tokio::test]
async fn an_injected_ca_bundle_is_left() -> Result<()> {
    let world = World::new().await?;
    let name = &world.namespace;
    let webhook = |path: &str| {
        format!(
            "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\n\
             metadata: {{name: {name}}}\nwebhooks:\n- name: a.example.com\n  \
             admissionReviewVersions: [v1]\n  sideEffects: None\n  rules: []\n  clientConfig:\n    \
             caBundle: \"\"\n    url: https://127.0.0.1:1/{path}\n"
        )
    };
    world.deploy(&webhook("one")).await?;
    let authority = json!([{"op": "add", "path": "/webhooks/0/clientConfig/caBundle",
        "value": INJECTED}]);
    let configuration = format!("validatingwebhookconfiguration/{name}");
    let inject = [
        "patch",
        &configuration,
        "--type=json",
        "--field-manager=cainjector",
        "-p",
    ];
    world.kubectl(&[&inject[..], &[&authority.to_string()]].concat())?;
    let done = world.deploy(&webhook("two")).await?;
    let live = one(&world, &["get", &configuration])?;
    let config = &live["webhooks"][0]["clientConfig"];
    assert_eq!(config["caBundle"], INJECTED);
    assert_eq!(config["url"], "https://127.0.0.1:1/two");
    assert_eq!(done.conflicts[0].outcome, Outcome::Left);
    assert_eq!(done.conflicts[0].managers, ["cainjector"]);
    let spec = release::UninstallSpec::new("web", &world.namespace);
    release::uninstall(&world.cluster, &world.storage, &spec).await?;
    Ok(())
}

/// A self-signed certificate, in base64 as `caBundle` wants it. The API server parses it.
const INJECTED: &str = include_str!("authority.b64");

#[tokio::test]
async fn aggregated_rules_are_left_to_their_controller() -> Result<()> {
    let world = World::new().await?;
    let name = &world.namespace;
    let role = |label: &str| {
        format!(
            "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n\
             metadata: {{name: {name}, labels: {{turn: \"{label}\"}}}}\n\
             aggregationRule: {{clusterRoleSelectors: [{{matchLabels: {{part-of: {name}}}}}]}}\n\
             rules: []\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n\
             metadata: {{name: {name}-part, labels: {{part-of: {name}}}}}\n\
             rules: [{{apiGroups: [\"\"], resources: [pods], verbs: [get]}}]\n"
        )
    };
    world.deploy(&role("one")).await?;
    let filled = async || {
        let live = one(&world, &["get", "clusterrole", name]).map_err(|e| e.to_string())?;
        match live["rules"]
            .as_array()
            .is_some_and(|rules| !rules.is_empty())
        {
            true => Ok(live),
            false => Err(live.to_string()),
        }
    };
    let deadline = std::time::Duration::from_secs(300);
    testbed::wait::wait_until("aggregated rules", deadline, filled).await?;
    let done = world.deploy(&role("two")).await?;
    assert_eq!(done.conflicts[0].outcome, Outcome::Left);
    let live = one(&world, &["get", "clusterrole", name])?;
    assert_eq!(live["rules"][0]["resources"], json!(["pods"]));
    assert_eq!(live["metadata"]["labels"]["turn"], "two");
    let spec = release::UninstallSpec::new("web", &world.namespace);
    release::uninstall(&world.cluster, &world.storage, &spec).await?;
    Ok(())
}
