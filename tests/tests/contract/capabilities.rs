//! `.Capabilities`, and a chart that wants another Kubernetes.

use anyhow::{Context, Result};
use serde_json::json;
use testbed::chart::Chart;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::test_agent::condition;

use crate::shared::{Case, run};

/// A bundle that carries a chart which needs this Kubernetes.
fn carrying(case: &Case, kube_version: &str) -> BundleDeployment {
    let metadata =
        format!("apiVersion: v2\nname: config\nversion: 0.1.0\nkubeVersion: '{kube_version}'\n");
    let chart = Chart::new("config", "0.1.0").file("Chart.yaml", metadata).template(
        "config.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: config\ndata:\n  name: {{ .Values.name }}\n  kubeVersion: {{ .Capabilities.KubeVersion.Version | quote }}\n  apiVersions: {{ join \",\" .Capabilities.APIVersions | quote }}\n  helmVersion: {{ .Capabilities.HelmVersion.Version | quote }}\n",
    );
    let files = chart.files().iter();
    let files = files.map(|(path, data)| (format!("config-chart/{path}"), data.clone()));
    BundleDeployment::content(&case.name, files.collect())
        .helm("chart", json!("config-chart"))
        .helm("values", json!({ "name": "example" }))
        .option("defaultNamespace", json!(case.namespace))
}

#[test]
fn case_14_46_templates_see_versions_and_kinds() -> Result<()> {
    run(async {
        let case = Case::new("capable").await?;
        case.deploy(&carrying(&case, ">=1.20.0-0")).await?;
        let data = case.object("v1", "ConfigMap", "config").await?["data"].clone();
        let version = case.agent.downstream.apiserver_version().await?;
        assert_eq!(data["name"], "example");
        assert_eq!(data["kubeVersion"], json!(version.git_version));
        let kinds = data["apiVersions"].as_str().context("a text")?;
        assert!(kinds.split(',').any(|kind| kind == "apps/v1"), "{kinds}");
        assert!(
            kinds.split(',').any(|kind| kind == "apps/v1/Deployment"),
            "{kinds}"
        );
        assert!(
            data["helmVersion"]
                .as_str()
                .is_some_and(|v| v.starts_with("v4.")),
            "{data}"
        );
        Ok(())
    })
}

#[test]
fn case_14_47_a_chart_for_another_kubernetes_version_is_reported_in_ready() -> Result<()> {
    run(async {
        let case = Case::new("incapable").await?;
        case.agent.apply(&carrying(&case, ">=99.0.0")).await?;
        let found = case
            .agent
            .wait_for(&case.name, "to be refused", |b| {
                condition(b, "Ready").is_some()
            })
            .await?;
        let version = case.agent.downstream.apiserver_version().await?;
        let cause = format!(
            "chart requires kubeVersion: >=99.0.0 which is incompatible with Kubernetes {}",
            version.git_version
        );
        let reported = |kind: &str| condition(&found, kind).cloned().unwrap_or_default();
        assert_eq!(reported("Ready")["status"], "False");
        assert_eq!(
            reported("Ready")["message"],
            json!(format!("not ready: {cause}"))
        );
        assert_eq!(
            reported("Installed")["message"],
            json!(format!("not installed: {cause}"))
        );
        assert_eq!(reported("Deployed")["status"], "True");
        Ok(())
    })
}
