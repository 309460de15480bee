//! Bundles with a kustomization, in the shapes that Fleet's own examples and cases have: overlays over a base, a chart that is
//! carried or was fetched for the bundle with an overlay on top, and what is refused.

use anyhow::{Context, Result, ensure};
use kube::api::DynamicObject;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use testbed::bed::Bed;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::test_agent::TestAgent;

use crate::scene::target;

const CHART: &str = "apiVersion: v2\nname: shop\nversion: 1.0.0\n";
const WORKLOADS: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: {{ .Values.replicas | default 1 }}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: 'registry.example/web:1', envFrom: [{configMapRef: {name: settings}}]}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
";
const SETTINGS: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {mode: plain, loud: yes}\n";

fn bundle(name: &str, files: &[(&str, &str)]) -> BundleDeployment {
    let files = files
        .iter()
        .map(|(path, text)| ((*path).to_owned(), (*text).into()));
    BundleDeployment::content(name, files.collect())
}

async fn found(
    agent: &TestAgent<'_>,
    namespace: &str,
    kind: &str,
    name: &str,
) -> Result<Option<DynamicObject>> {
    let version = if kind == "Deployment" {
        "apps/v1"
    } else {
        "v1"
    };
    agent.object(version, kind, namespace, name).await
}

async fn object(agent: &TestAgent<'_>, namespace: &str, kind: &str, name: &str) -> Result<Value> {
    let found = found(agent, namespace, kind, name).await?;
    Ok(found.with_context(|| format!("no {kind} {name}"))?.data)
}

/// One bundle for all clusters, an overlay for each: `kustomize.dir` names it, and another one replaces what it made.
#[tokio::test]
async fn an_overlay_is_built_over_its_base() -> Result<()> {
    let agent = TestAgent::registered(Bed::shared().await?).await?;
    let target = target(&agent);
    let secret =
        |field: &str| format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: login}}\n{field}\n");
    let (base, dev, prod) = (
        secret("type: Opaque\ndata: {user: YmFzZQ==, realm: YmFzZQ==}"),
        secret("data: {user: ZGV2}"),
        secret("data: {user: cHJvZA==}"),
    );
    let overlay = |name: &str| {
        format!(
            "nameSuffix: -{name}\nresources: [../../base]\npatchesStrategicMerge: [login.yaml]\n\
             configMapGenerator: [{{name: settings, literals: [stage={name}]}}]\n"
        )
    };
    let (in_dev, in_prod) = (overlay("dev"), overlay("prod"));
    let files = [
        ("base/kustomization.yaml", "resources: [login.yaml]\n"),
        ("base/login.yaml", base.as_str()),
        ("overlays/dev/kustomization.yaml", &in_dev),
        ("overlays/dev/login.yaml", &dev),
        ("overlays/prod/kustomization.yaml", &in_prod),
        ("overlays/prod/login.yaml", &prod),
        // Not of any overlay, and so not of the bundle.
        ("stray.yaml", SETTINGS),
    ];
    let overlay = |name: &str| {
        bundle("shop", &files)
            .release("shop", &target)
            .option("kustomize", json!({ "dir": format!("overlays/{name}") }))
    };
    agent.apply(&overlay("dev")).await?;
    agent.wait_ready("shop").await?;
    let login = object(&agent, &target, "Secret", "login-dev").await?;
    ensure!(
        login["data"] == json!({ "user": "ZGV2", "realm": "YmFzZQ==" }),
        "{login}"
    );
    ensure!(
        found(&agent, &target, "ConfigMap", "settings")
            .await?
            .is_none()
    );

    agent.apply(&overlay("prod")).await?;
    agent
        .wait_for("shop", "to have the other overlay", |bundle| {
            let resources = bundle["status"]["resources"].to_string();
            resources.contains("login-prod") && !resources.contains("login-dev")
        })
        .await?;
    let login = object(&agent, &target, "Secret", "login-prod").await?;
    ensure!(login["data"]["user"] == "cHJvZA==", "{login}");
    ensure!(
        found(&agent, &target, "Secret", "login-dev")
            .await?
            .is_none()
    );
    Ok(())
}

/// A kustomization in the root whose base lies below it.
#[tokio::test]
async fn a_root_names_its_overlay_as_a_base() -> Result<()> {
    let agent = TestAgent::registered(Bed::shared().await?).await?;
    let target = target(&agent);
    let files = [
        ("kustomization.yaml", "bases: [overlays/dev]\n"),
        (
            "overlays/dev/kustomization.yaml",
            "bases: [../../base]\ncommonLabels: {stage: dev}\n",
        ),
        ("base/kustomization.yaml", "resources: [settings.yaml]\n"),
        ("base/settings.yaml", SETTINGS),
    ];
    let bundle = bundle("root", &files)
        .release("root", "default")
        .option("namespace", json!(target))
        .option("kustomize", json!({ "dir": "" }));
    agent.apply(&bundle).await?;
    agent.wait_ready("root").await?;
    let settings = found(&agent, &target, "ConfigMap", "settings").await?;
    let settings = settings.context("no settings")?;
    ensure!(
        settings.data["data"] == json!({ "mode": "plain", "loud": "yes" }),
        "{:?}",
        settings.data
    );
    let labels = settings.metadata.labels.unwrap_or_default();
    ensure!(labels.get("stage").is_some_and(|stage| stage == "dev"));
    Ok(())
}

/// Fleet stores a chart that it fetched for a bundle below `.chart/` and a hash; one of the bundle's own lies where `helm.chart` says.
#[tokio::test]
async fn a_chart_is_rendered_and_then_kustomized() -> Result<()> {
    let agent = TestAgent::registered(Bed::shared().await?).await?;
    let address = "https://charts.example/shop-1.0.0.tgz";
    let hash = golib::hex::encode(&Sha256::digest(format!("{address}::")));
    let overlay = "\
commonAnnotations: {by: kustomize}
configMapGenerator: [{name: settings, behavior: merge, literals: [mode=dev]}]
patchesStrategicMerge: [web.yaml]
images: [{name: registry.example/web, newTag: '2'}]
";
    let hook = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: before\n  annotations: {helm.sh/hook: pre-install}\n";
    let patch =
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 0}\n";
    for (name, directory, chart) in [
        ("fetched", format!(".chart/{hash}/shop"), address),
        ("own", "charts/shop".to_owned(), "charts/shop"),
    ] {
        let namespace = format!("{}-{name}", target(&agent));
        let path = |file: &str| format!("{directory}/{file}");
        let (metadata, workloads) = (path("Chart.yaml"), path("templates/workloads.yaml"));
        let (settings, before) = (
            path("templates/settings.yaml"),
            path("templates/before.yaml"),
        );
        let files = [
            (metadata.as_str(), CHART),
            (&workloads, WORKLOADS),
            (&settings, SETTINGS),
            (&before, hook),
            ("overlays/dev/kustomization.yaml", overlay),
            ("overlays/dev/web.yaml", patch),
        ];
        let bundle = bundle(name, &files)
            .release(name, &namespace)
            .helm("chart", json!(chart))
            .values(json!({ "replicas": 2 }))
            .option("kustomize", json!({ "dir": "overlays/dev" }));
        agent.apply(&bundle).await?;
        agent.wait_ready(name).await?;

        let web = object(&agent, &namespace, "Deployment", "web").await?;
        ensure!(web["spec"]["replicas"] == 0, "{name}: {web}");
        let container = &web["spec"]["template"]["spec"]["containers"][0];
        ensure!(
            container["image"] == "registry.example/web:2",
            "{container}"
        );
        let map = &container["envFrom"][0]["configMapRef"]["name"];
        let map = map.as_str().context("a name")?;
        let settings = object(&agent, &namespace, "ConfigMap", map).await?;
        ensure!(
            settings["data"] == json!({ "mode": "dev", "loud": "yes" }),
            "{settings}"
        );
        for (kind, name) in [("Service", "web"), ("ConfigMap", "before")] {
            let found = found(&agent, &namespace, kind, name).await?;
            let annotations = found.and_then(|found| found.metadata.annotations);
            let by = annotations.and_then(|annotations| annotations.get("by").cloned());
            ensure!(by.as_deref() == Some("kustomize"), "{kind} {name}: {by:?}");
        }
    }
    Ok(())
}

/// Names that kustomize would not take do no harm where nothing is to be kustomized, and what is not built is told by name.
#[tokio::test]
async fn unsupported_kustomizations_are_named() -> Result<()> {
    let agent = TestAgent::registered(Bed::shared().await?).await?;
    let plain = [
        ("Chart.yaml", CHART),
        ("templates/settings.yaml", SETTINGS_IN_A_CHART),
        ("data/shop-1.0.0+build.1.bin", "x"),
    ];
    agent
        .apply(&bundle("plain", &plain).release("plain", &target(&agent)))
        .await?;
    agent.wait_ready("plain").await?;
    for (name, kustomization, reported) in [
        (
            "remote-base",
            "resources: ['https://user:pass@git.example/org/repository//base?ref=v1']\n",
            "'https://git.example/org/repository//base?ref=v1' is remote: only files of the bundle are used, nothing is fetched",
        ),
        (
            "helm-chart",
            "helmCharts: [{name: web, repo: 'https://charts.example'}]\n",
            "helmCharts are not inflated here, and the kustomization has chart \"web\"",
        ),
        (
            "container",
            "transformers:\n- |\n  apiVersion: example.com/v1\n  kind: Signer\n  metadata:\n    name: signer\n    \
             annotations: {config.kubernetes.io/function: 'container: {image: registry.example/signer}'}\n",
            "external plugins disabled; unable to load external plugin 'Signer'",
        ),
        (
            "missing",
            "resources: [absent.yaml]\n",
            "'/absent.yaml' doesn't exist",
        ),
    ] {
        let bundle = bundle(name, &[("kustomization.yaml", kustomization)]);
        agent.apply(&bundle.release(name, &target(&agent))).await?;
        agent
            .wait_deploy_error(name, |message| message.contains(reported))
            .await?;
    }
    Ok(())
}

const SETTINGS_IN_A_CHART: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {mode: plain}\n";
