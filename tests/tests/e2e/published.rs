//! Charts as their projects published them, deployed to Ready from both kinds of source, and what helm says about them.
//!
//! They lie beside the checkout or in the cache (`make corpus`); without them these tests say so and pass.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use testbed::bed::Bed;
use testbed::cluster::ADMIN;
use testbed::corpus;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::test_agent::TestAgent;
use testbed::helm::Helm;

/// Where a chart is pulled from.
#[derive(Clone, Copy)]
enum Source {
    Http,
    Oci,
}

/// Publishes a chart and gives its BundleDeployment, named and released like the chart.
async fn bundle(agent: &TestAgent<'_>, file: &str, source: Source) -> Result<BundleDeployment> {
    let archive = corpus::chart(file)?;
    let (name, version) = testbed::chart::identity(&archive)?;
    let bundle = match source {
        Source::Http => {
            agent.bed.repository.add_archive(archive)?;
            BundleDeployment::helm_op(&name, agent.bed.repository.url(), &name, &version)
        }
        Source::Oci => {
            agent.bed.registry.push_archive(archive).await?;
            agent
                .upstream_secret("plain", json!({ "basicHTTP": "true" }))
                .await?;
            BundleDeployment::oci_helm_op(&name, &agent.bed.registry.reference(&name), &version)
                .chart_options("plain", None, false)
        }
    };
    let namespace = format!("{}-{name}", agent.id);
    Ok(bundle.release(&name, &namespace))
}

/// `helm list`, `history` and `get values` of both helms about a release, which must agree with each other and with us.
fn helm_agrees(agent: &TestAgent<'_>, ready: &Value, values: &Value) -> Result<()> {
    let release = ready["status"]["release"].as_str().context("a release")?;
    let (namespace, rest) = release.split_once('/').context("a namespace")?;
    let (name, revision) = rest.split_once(':').context("a revision")?;
    for helm in Helm::both(
        &agent.bed.downstream.kubeconfig(ADMIN)?,
        agent.bed.group.directory(),
    )? {
        let list = helm.json(&["list", "--all-namespaces", "--filter", &format!("^{name}$")])?;
        let listed = list
            .as_array()
            .context("a list")?
            .iter()
            .find(|r| r["namespace"] == namespace);
        let listed = listed.with_context(|| format!("{namespace}/{name} in {list}"))?;
        assert_eq!(
            (&listed["revision"], &listed["status"]),
            (&json!(revision), &json!("deployed"))
        );
        let history = helm.json(&["history", name, "--namespace", namespace])?;
        assert_eq!(history[0]["status"], "deployed", "{history}");
        let stored = helm.json(&["get", "values", name, "--namespace", namespace])?;
        assert!(
            stored == *values || (stored.is_null() && *values == json!({})),
            "{stored}"
        );
        assert!(
            !helm
                .run(&["get", "manifest", name, "--namespace", namespace])?
                .is_empty()
        );
    }
    Ok(())
}

/// The service of an APIService cannot be reached where pods are only pretended, so that condition is left out of account.
fn judged(bundle: BundleDeployment) -> BundleDeployment {
    let unreachable = json!({ "type": "Available", "status": "False" });
    if bundle.name() == "rke2-metrics-server" {
        return bundle.option("ignore", json!({ "conditions": [unreachable] }));
    }
    bundle
}

/// Deploys charts one after the other, each when the one before it is Ready.
async fn deploy(charts: &[(&str, Source, Value)]) -> Result<()> {
    let files: Vec<&str> = charts.iter().map(|(file, ..)| *file).collect();
    if !corpus::is_present_for(&files.join(", ")) {
        return Ok(());
    }
    let agent = TestAgent::registered(Bed::shared().await?).await?;
    for (file, source, values) in charts {
        let bundle = bundle(&agent, file, *source).await?;
        let bundle = if *values == json!({}) {
            bundle
        } else {
            bundle.values(values.clone())
        };
        let bundle = judged(bundle);
        agent.apply(&bundle).await?;
        let ready = agent
            .wait_ready(bundle.name())
            .await
            .with_context(|| (*file).to_owned())?;
        helm_agrees(&agent, &ready, values).with_context(|| (*file).to_owned())?;
    }
    Ok(())
}

#[tokio::test]
async fn rke2_ingress_nginx() -> Result<()> {
    deploy(&[("rke2-ingress-nginx-4.15.109", Source::Http, json!({}))]).await
}

#[tokio::test]
async fn rke2_coredns() -> Result<()> {
    deploy(&[(
        "rke2-coredns-1.47.003",
        Source::Oci,
        json!({ "global": { "clusterDNS": "10.96.0.10" } }),
    )])
    .await
}

#[tokio::test]
async fn longhorn() -> Result<()> {
    deploy(&[
        ("longhorn-crd-104.2.0+up1.7.1", Source::Oci, json!({})),
        ("longhorn-104.2.0+up1.7.1", Source::Http, json!({})),
    ])
    .await
}

#[tokio::test]
async fn rancher_backup() -> Result<()> {
    deploy(&[
        (
            "rancher-backup-crd-104.0.2+up5.0.2",
            Source::Http,
            json!({}),
        ),
        ("rancher-backup-104.0.2+up5.0.2", Source::Oci, json!({})),
    ])
    .await
}

#[tokio::test]
async fn rke2_snapshot_controller() -> Result<()> {
    deploy(&[
        (
            "rke2-snapshot-controller-crd-5.2.003",
            Source::Http,
            json!({}),
        ),
        ("rke2-snapshot-controller-5.2.003", Source::Oci, json!({})),
    ])
    .await
}

#[tokio::test]
async fn rke2_metrics_server() -> Result<()> {
    deploy(&[("rke2-metrics-server-3.14.000", Source::Http, json!({}))]).await
}

/// A chart that helm cannot install either shows the API server's reason.
async fn fails(before: &[(&str, Source, Value)], file: &str, reason: &str) -> Result<()> {
    if !corpus::is_present_for(file) {
        return Ok(());
    }
    deploy(before).await?;
    let agent = TestAgent::registered(Bed::shared().await?).await?;
    let bundle = bundle(&agent, file, Source::Http).await?;
    agent.apply(&bundle).await?;
    agent
        .wait_deploy_error(bundle.name(), |message| message.contains(reason))
        .await?;
    Ok(())
}

#[tokio::test]
async fn rancher_logging_fails_as_with_helm() -> Result<()> {
    fails(
        &[(
            "rancher-logging-crd-104.1.2+up4.8.0",
            Source::Http,
            json!({}),
        )],
        "rancher-logging-104.1.2+up4.8.0",
        "null",
    )
    .await
}

#[tokio::test]
async fn rancher_istio_fails_as_with_helm() -> Result<()> {
    fails(&[], "rancher-istio-104.4.0+up1.22.1", "no matches for kind").await
}
