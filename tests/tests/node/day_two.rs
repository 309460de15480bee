//! What happens to an agent that runs: updates of its chart, a node that goes away, little memory.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::json;
use testbed::bed::unique;
use testbed::chart::Chart;
use testbed::fleet::stock::{AGENT_IMAGE, SYSTEM_NAMESPACE};

use crate::installed::{OUR_CHART, by_token, downstream_helm, restarts, uninstall};
use testbed::node::bed::{CANARY, OURS};
use testbed::node::managed_cluster::{Agent, ManagedCluster};

/// Rolls our chart with this many replicas: helm waits for the end, the old pods are gone, and who holds the lease works.
async fn rolls(replicas: usize) -> Result<()> {
    let (repository, _) = OURS.split_once(':').context("a tag")?;
    let settings = [
        format!("--set=image.repository={repository}"),
        format!("--set=agent.replicas={replicas}"),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let site = by_token(OUR_CHART, &settings).await?;
    let names = |pods: &[k8s_openapi::api::core::v1::Pod]| -> Vec<String> {
        pods.iter()
            .filter_map(|pod| pod.metadata.name.clone())
            .collect()
    };
    let before = names(&site.runs(OURS).await?);
    ensure!(before.len() == replicas, "{before:?}");
    let app = site.proves_itself().await?;
    let helm = downstream_helm(site.bed)?;
    let upgrade = [
        "upgrade",
        "fleet-agent",
        OUR_CHART,
        "--namespace",
        SYSTEM_NAMESPACE,
        "--reuse-values",
    ];
    let change = [
        "--set=extraEnv[0].name=ROLLED,extraEnv[0].value=yes",
        "--wait",
        "--timeout",
        "5m",
    ];
    let rolled = helm.run(&[&upgrade[..], &change].concat());
    rolled.with_context(|| site.logs())?;
    let after = names(&site.runs(OURS).await?);
    ensure!(
        after.iter().all(|name| !before.contains(name)),
        "{before:?}, {after:?}"
    );
    let leases: Api<Lease> = Api::namespaced(site.downstream.clone(), SYSTEM_NAMESPACE);
    let holder = site
        .wait("a new pod to hold the lease", async || {
            let lease = leases.get("fleet-agent").await?;
            let holder = lease.spec.and_then(|spec| spec.holder_identity);
            let holder = holder.context("nobody holds the lease")?;
            let is_new = after.iter().any(|name| holder.starts_with(name.as_str()));
            ensure!(is_new, "{holder} holds it, not one of {after:?}");
            Ok(holder)
        })
        .await?;
    site.ready(&app).await?;
    site.proves_itself().await.with_context(|| holder)?;
    ensure!(restarts(&site).await? == 0, "{}", site.logs());
    uninstall(site).await
}

#[tokio::test]
#[ignore = "needs a real node: make test-node"]
async fn our_chart_rolls_with_one_replica() -> Result<()> {
    rolls(1).await
}

#[tokio::test]
#[ignore = "needs a real node: make test-node"]
async fn our_chart_rolls_with_two_replicas() -> Result<()> {
    rolls(2).await
}

/// A node that loses power: the agent comes back as a container of the same pod, and touches nothing that is as it should be.
#[tokio::test]
#[ignore = "needs a real node: make test-node"]
async fn a_node_that_restarts_loses_nothing() -> Result<()> {
    let site = ManagedCluster::managed(Agent::Ours, |_, _| ()).await?;
    let app = site.proves_itself().await?;
    let kinds = [
        ("v1", "ConfigMap"),
        ("v1", "Service"),
        ("apps/v1", "Deployment"),
        ("v1", "Secret"),
    ];
    let before = site.uids(&kinds).await?;
    let seen = site.seen_after("").await?;
    site.bed.node.restart(&site.bed.downstream).await?;
    site.wait("the agent's container to be started again", async || {
        let count = restarts(&site).await?;
        ensure!(count > 0, "not yet");
        Ok(())
    })
    .await?;
    site.seen_after(&seen).await?;
    site.ready(&app).await?;
    site.proves_itself().await?;
    let after = site.uids(&kinds).await?;
    for (object, uid) in &before {
        ensure!(
            after.get(object) == Some(uid),
            "{object} was {uid}, is {:?}",
            after.get(object)
        );
    }
    site.end().await
}

/// The limit that docs/install.md names, with as many bundles.
#[tokio::test]
#[ignore = "needs a real node: make test-node"]
async fn fifty_bundles_fit_into_64_mib() -> Result<()> {
    const BUNDLES: usize = 50;
    let limit = json!({ "limits": { "memory": "64Mi" }, "requests": { "memory": "32Mi" } });
    let site =
        ManagedCluster::managed(Agent::Ours, |spec, _| spec["agentResources"] = limit).await?;
    let name = unique("fifty");
    let chart = Chart::small(&name, "1.0.0");
    site.bed.repository.add(&chart)?;
    for number in 0..BUNDLES {
        let helm = json!({
            "repo": testbed::node::bed::CHARTS, "chart": name, "version": "1.0.0",
            "releaseName": format!("{name}-{number}"),
            // Objects count here, not what the machine can run.
            "values": { "replicas": 0 },
        });
        site.helm_op(&format!("{name}-{number}"), helm, |_| ())
            .await?;
    }
    for number in 0..BUNDLES {
        site.ready(&format!("{name}-{number}")).await?;
    }
    let pods = site.runs(&format!("{CANARY}/{AGENT_IMAGE}")).await?;
    ensure!(restarts(&site).await? == 0, "{}", site.logs());
    let memory = site
        .bed
        .node
        .memory(&ManagedCluster::container(&pods[0])?)?;
    ensure!(memory.peak > 0 && memory.peak <= 64 << 10, "{memory:?}");
    site.end().await
}
