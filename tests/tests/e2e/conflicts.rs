//! Fields that others hold when a bundle is upgraded: nine scenes, none of which may hold it up.

use anyhow::{Context, Result};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use testbed::bed::{Bed, unique};
use testbed::chart::Chart;
use testbed::cluster::ADMIN;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::apply;
use testbed::fleet::test_agent::{PATIENCE, TestAgent, condition};
use testbed::helm::Helm;
use testbed::wait::wait_until;

/// A self-signed certificate, as `caBundle` wants it.
const AUTHORITY: &str = include_str!("../release/authority.b64");

const DEPLOYMENT: &str = "apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      containers:
      - {name: web, image: \"registry.example/web:{{ .Chart.Version }}\"}
";

const WEBHOOK: &str = "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: {{ .Release.Namespace }}-{{ .Release.Name }}}
webhooks:
- name: a.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  rules: []
  clientConfig:
    caBundle: \"\"
    url: https://127.0.0.1:1/{{ .Chart.Version }}
";

const DEFINITION: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: {{ .Values.plural }}.conflicts.example
  labels: {version: \"{{ .Chart.Version }}\"}
spec:
  group: conflicts.example
  scope: Namespaced
  names: {plural: {{ .Values.plural }}, kind: {{ .Values.plural | title }}}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object}}
  conversion:
    strategy: Webhook
    webhook:
      conversionReviewVersions: [v1]
      clientConfig:
        caBundle: \"\"
        service: {namespace: default, name: conversion}
";

const ROLE: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .Release.Namespace }}-{{ .Release.Name }}
  labels: {version: \"{{ .Chart.Version }}\"}
aggregationRule:
  clusterRoleSelectors: [{matchLabels: {part-of: {{ .Release.Namespace }}-{{ .Release.Name }}}}]
rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .Release.Namespace }}-{{ .Release.Name }}-part
  labels: {part-of: {{ .Release.Namespace }}-{{ .Release.Name }}}
rules: [{apiGroups: [\"\"], resources: [pods], verbs: [get]}]
";

/// One scene: a chart in two versions, and what the second deployment has to tell.
struct Scene {
    name: &'static str,
    template: &'static str,
    /// Values of the first and the second version.
    values: [Value; 2],
    /// What the condition says; `{ns}` is the release's namespace.
    reported: &'static str,
}

fn scenes(plural: &str) -> Vec<Scene> {
    let same = |values: Value| [values.clone(), values];
    let replicas = |count: u32| json!({ "replicas": count });
    let scene = |name, template, values, reported| Scene {
        name,
        template,
        values,
        reported,
    };
    vec![
        scene(
            "edited",
            DEPLOYMENT,
            same(replicas(1)),
            "took .spec.template.spec.containers[name=\"web\"].image of Deployment {ns}/edited from kubectl-edit",
        ),
        scene(
            "applied",
            DEPLOYMENT,
            same(replicas(1)),
            "took .spec.template.spec.containers[name=\"web\"].image of Deployment {ns}/applied from them",
        ),
        scene(
            "scaled",
            DEPLOYMENT,
            [replicas(1), replicas(2)],
            "took .spec.replicas of Deployment {ns}/scaled from kubectl",
        ),
        scene(
            "autoscaled",
            DEPLOYMENT,
            same(replicas(1)),
            "left .spec.replicas of Deployment {ns}/autoscaled to kube-controller-manager",
        ),
        scene(
            "webhook",
            WEBHOOK,
            same(json!({})),
            "left .webhooks[name=\"a.example.com\"].clientConfig.caBundle of \
             ValidatingWebhookConfiguration {ns}-webhook to cainjector",
        ),
        scene(
            "definition",
            DEFINITION,
            same(json!({ "plural": plural })),
            "left .spec.conversion.webhook.clientConfig.caBundle of CustomResourceDefinition ",
        ),
        scene(
            "role",
            ROLE,
            same(json!({})),
            "left .rules of ClusterRole {ns}-role to clusterrole-aggregation-controller",
        ),
        scene(
            "helm3",
            DEPLOYMENT,
            same(replicas(1)),
            "took Deployment {ns}/helm3 from helm",
        ),
        scene(
            "helm3-edited",
            DEPLOYMENT,
            same(replicas(1)),
            "took .spec.template.spec.containers[name=\"web\"].image of Deployment {ns}/helm3-edited from kubectl-edit",
        ),
    ]
}

#[tokio::test]
async fn nine_field_conflicts_are_settled_and_reported() -> Result<()> {
    let bed = Bed::shared().await?;
    let agent = TestAgent::registered(bed).await?;
    let namespace = format!("{}-app", agent.id);
    let plural = unique("things").replace('-', "");
    let scenes = scenes(&plural);
    let chart = |scene: &Scene, turn: usize| {
        let version = ["1.0.0", "2.0.0"][turn];
        Chart::new(&format!("{}-{}", agent.id, scene.name), version)
            .template("all.yaml", scene.template)
            .file("values.yaml", scene.values[turn].to_string())
    };
    let bundle = |scene: &Scene, turn: usize| {
        let chart = chart(scene, turn);
        BundleDeployment::helm_op(
            scene.name,
            bed.repository.url(),
            chart.name(),
            chart.version(),
        )
        .release(scene.name, &namespace)
    };
    let [helm3, _] = Helm::both(&bed.downstream.kubeconfig(ADMIN)?, bed.group.directory())?;
    for scene in &scenes {
        for turn in [0, 1] {
            bed.repository.add(&chart(scene, turn))?;
        }
        if scene.name.starts_with("helm3") {
            let chart = chart(scene, 0);
            let from = ["--repo", bed.repository.url(), "--version", "1.0.0"];
            let to = ["--namespace", &namespace, "--create-namespace"];
            let install = ["install", scene.name, chart.name()];
            helm3.run(&[&install[..], &from, &to].concat())?;
        } else {
            agent.apply(&bundle(scene, 0)).await?;
        }
    }
    for scene in &scenes {
        if !scene.name.starts_with("helm3") {
            agent.wait_ready(scene.name).await.context(scene.name)?;
        }
        disturb(&agent, scene.name, &namespace, &plural)
            .await
            .context(scene.name)?;
    }
    for scene in &scenes {
        agent.apply(&bundle(scene, 1)).await?;
    }
    for scene in &scenes {
        let ready = agent.wait_ready(scene.name).await.context(scene.name)?;
        let reported = condition(&ready, "FieldConflicts")
            .with_context(|| format!("{}: nothing was told: {}", scene.name, ready["status"]))?;
        let message = reported["message"].as_str().unwrap_or_default();
        let expected = scene.reported.replace("{ns}", &namespace);
        assert!(message.contains(&expected), "{}: {message}", scene.name);
    }
    let image = "/spec/template/spec/containers/0/image";
    for name in [
        "edited",
        "applied",
        "scaled",
        "autoscaled",
        "helm3",
        "helm3-edited",
    ] {
        let live = read(&agent, "apps/v1", "Deployment", &namespace, name).await?;
        assert_eq!(
            live.pointer(image),
            Some(&json!("registry.example/web:2.0.0"))
        );
        match name {
            "scaled" => assert_eq!(live["spec"]["replicas"], 2),
            "autoscaled" => assert!(live["spec"]["replicas"].as_i64() >= Some(4)),
            _ => {}
        }
    }
    let version = "admissionregistration.k8s.io/v1";
    let name = format!("{namespace}-webhook");
    let live = read(&agent, version, "ValidatingWebhookConfiguration", "", &name).await?;
    let config = &live["webhooks"][0]["clientConfig"];
    assert_eq!(config["caBundle"], AUTHORITY);
    assert_eq!(config["url"], "https://127.0.0.1:1/2.0.0");
    let name = format!("{plural}.conflicts.example");
    let live = definition(&agent, &name).await?;
    let config = &live["spec"]["conversion"]["webhook"]["clientConfig"];
    assert_eq!(config["caBundle"], AUTHORITY);
    assert_eq!(live["metadata"]["labels"]["version"], "2.0.0");
    let name = format!("{namespace}-role");
    let live = read(
        &agent,
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        "",
        &name,
    )
    .await?;
    assert_eq!(live["rules"][0]["resources"], json!(["pods"]));
    assert_eq!(live["metadata"]["labels"]["version"], "2.0.0");
    // Nothing of it counts as drift, and the condition goes with a deployment without a conflict.
    agent.apply(&bundle(&scenes[0], 0)).await?;
    agent
        .wait_for("edited", "to have nothing to tell", |bundle| {
            let status = &bundle["status"];
            status["appliedDeploymentID"] == bundle["spec"]["deploymentID"]
                && condition(bundle, "FieldConflicts").is_none()
        })
        .await?;
    for scene in &scenes {
        agent.delete(scene.name).await?;
    }
    Ok(())
}

async fn read(
    agent: &TestAgent<'_>,
    api_version: &str,
    kind: &str,
    namespace: &str,
    name: &str,
) -> Result<Value> {
    let object = agent.object(api_version, kind, namespace, name).await?;
    Ok(serde_json::to_value(object.context(name.to_owned())?)?)
}

async fn definition(agent: &TestAgent<'_>, name: &str) -> Result<Value> {
    let kind = "CustomResourceDefinition";
    read(agent, "apiextensions.k8s.io/v1", kind, "", name).await
}

/// What somebody else does between the two versions.
async fn disturb(agent: &TestAgent<'_>, scene: &str, namespace: &str, plural: &str) -> Result<()> {
    let by = |manager: &str| PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    };
    let image = json!({ "spec": { "template": { "spec": { "containers":
        [{ "name": "web", "image": "registry.example/web:theirs" }] } } } });
    let deployments = agent.objects("apps/v1", "Deployment", namespace);
    match scene {
        "edited" | "helm3-edited" => {
            let patch = Patch::Strategic(&image);
            deployments
                .patch(scene, &by("kubectl-edit"), &patch)
                .await?;
        }
        "applied" => {
            let mut object = image.clone();
            object["apiVersion"] = "apps/v1".into();
            object["kind"] = "Deployment".into();
            let params = by("them").force();
            deployments
                .patch(scene, &params, &Patch::Apply(&object))
                .await?;
        }
        "scaled" => {
            let scale = json!({ "spec": { "replicas": 5 } });
            let patch = Patch::Merge(&scale);
            deployments
                .patch_scale(scene, &by("kubectl"), &patch)
                .await?;
        }
        "autoscaled" => {
            let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": scene });
            let autoscaler = json!({
                "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
                "metadata": { "name": scene, "namespace": namespace },
                "spec": { "minReplicas": 4, "maxReplicas": 6, "scaleTargetRef": target },
            });
            apply(&agent.downstream, autoscaler).await?;
            wait_until("the autoscaler to act", PATIENCE, async || {
                let live = deployments.get(scene).await.map_err(|e| e.to_string())?;
                let replicas = live.data["spec"]["replicas"].as_i64();
                if replicas >= Some(4) {
                    Ok(())
                } else {
                    Err(format!("{replicas:?}"))
                }
            })
            .await?;
        }
        "webhook" => {
            let kind = "ValidatingWebhookConfiguration";
            let objects = agent.objects("admissionregistration.k8s.io/v1", kind, "");
            let injected = json!({ "webhooks":
                [{ "name": "a.example.com", "clientConfig": { "caBundle": AUTHORITY } }] });
            let patch = Patch::Strategic(&injected);
            let name = format!("{namespace}-webhook");
            objects.patch(&name, &by("cainjector"), &patch).await?;
        }
        "definition" => {
            let kind = "CustomResourceDefinition";
            let objects = agent.objects("apiextensions.k8s.io/v1", kind, "");
            let injected = json!({ "spec": { "conversion": { "webhook": {
                "clientConfig": { "caBundle": AUTHORITY } } } } });
            let patch = Patch::Merge(&injected);
            let name = format!("{plural}.conflicts.example");
            objects.patch(&name, &by("cainjector"), &patch).await?;
        }
        "role" => {
            let roles = agent.objects("rbac.authorization.k8s.io/v1", "ClusterRole", "");
            let name = format!("{namespace}-role");
            wait_until("the rules to be aggregated", PATIENCE, async || {
                let live = roles.get(&name).await.map_err(|e| e.to_string())?;
                match live.data["rules"]
                    .as_array()
                    .is_some_and(|rules| !rules.is_empty())
                {
                    true => Ok(()),
                    false => Err(live.data["rules"].to_string()),
                }
            })
            .await?;
        }
        _ => {}
    }
    Ok(())
}
