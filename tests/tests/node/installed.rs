//! Every way in: Fleet's manager, a token with Fleet's chart and with ours.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testbed::bed::unique;
use testbed::cluster::ADMIN;
use testbed::fleet::stock::{AGENT_IMAGE, SYSTEM_NAMESPACE};
use testbed::helm::Helm;

use testbed::node::bed::{CANARY, NodeBed, OURS};
use testbed::node::managed_cluster::{Agent, ManagedCluster, PATIENCE};
use testbed::wait::wait_until;

pub(crate) const OUR_CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/fleet-agent");

/// The pod is as Fleet writes it (user 1000, read-only root, no capabilities), finds upstream by name, and deploys.
#[tokio::test]
#[ignore = "needs a real node: make test-node"]
async fn fleets_manager_installs_our_image() -> Result<()> {
    let site = ManagedCluster::managed(Agent::Ours, |_, _| ()).await?;
    let pods = site.runs(&format!("{CANARY}/{AGENT_IMAGE}")).await?;
    let spec = serde_json::to_value(&pods[0].spec)?;
    ensure!(spec["securityContext"]["runAsUser"] == 1000, "{spec}");
    let container = &spec["containers"][0];
    ensure!(
        container["securityContext"]["readOnlyRootFilesystem"] == true,
        "{container}"
    );
    let id = ManagedCluster::container(&pods[0])?;
    // What the kernel says, not the pod: the ids of its process, and no capability that it may have.
    let status = process_status(&site, &id)?;
    ensure!(field(&status, "Uid:") == ["1000"; 4], "{status}");
    ensure!(
        field(&status, "CapEff:") == ["0000000000000000"],
        "{status}"
    );
    site.proves_itself().await?;
    ensure!(site.pods().await?.len() == 1, "it was never replaced");
    ensure!(restarts(&site).await? == 0, "{}", site.logs());
    site.end().await
}

fn process_status(site: &ManagedCluster, container: &str) -> Result<String> {
    let text = site.bed.node.ctr(&["tasks", "ls"])?;
    let mut lines = text.lines().map(|line| line.split_whitespace());
    let row = lines.find_map(|mut line| (line.next() == Some(container)).then(|| line.next()));
    let process = row.flatten().context("no such task")?;
    Ok(std::fs::read_to_string(format!("/proc/{process}/status"))?)
}

fn field<'a>(status: &'a str, name: &str) -> Vec<&'a str> {
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().split_whitespace().collect()
}

/// How often containers of the agent were started again.
pub(crate) async fn restarts(site: &ManagedCluster) -> Result<i32> {
    let pods = site.pods().await?;
    let statuses = pods.iter().filter_map(|pod| pod.status.as_ref());
    let containers = statuses.flat_map(|s| s.container_statuses.iter().flatten());
    Ok(containers.map(|one| one.restart_count).sum())
}

/// What Fleet gives to those who register a cluster from within: the values for its chart.
pub(crate) async fn token_values(bed: &'static NodeBed, name: &str) -> Result<Value> {
    let site = ManagedCluster::named(bed, name).await?;
    site.upstream_object(json!({
        "apiVersion": "fleet.cattle.io/v1alpha1", "kind": "ClusterRegistrationToken",
        "metadata": { "name": name }, "spec": { "ttl": "1h" },
    }))
    .await?;
    let secret = wait_until("the token's secret", PATIENCE, async || {
        let found = site.upstream_get("Secret", name).await;
        let found = found.map_err(|e| e.to_string())?.ok_or("not there")?;
        let text = found["data"]["values"].as_str().ok_or("no values")?;
        Ok(text.to_owned())
    })
    .await?;
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.decode(secret)?;
    let values = golib::yaml::decode_all(&text)?;
    values.into_iter().next().context("no values")
}

/// The helm of the cluster with the node.
pub(crate) fn downstream_helm(bed: &NodeBed) -> Result<Helm> {
    let kubeconfig = bed.downstream.kubeconfig(ADMIN)?;
    let [_, helm] = Helm::both(&kubeconfig, &bed.group.directory().join("downstream-helm"))?;
    Ok(helm)
}

/// Writes values for helm.
pub(crate) fn values_file(bed: &NodeBed, values: &Value) -> Result<String> {
    let path = bed.group.directory().join(unique("values"));
    std::fs::write(&path, values.to_string())?;
    Ok(path.display().to_string())
}

/// Installs a chart as release fleet-agent with a new token, and waits for the cluster. Fleet leaves the agent to helm.
pub(crate) async fn by_token(chart: &str, settings: &[&str]) -> Result<ManagedCluster> {
    let bed = NodeBed::shared().await?;
    bed.manages_agents(false).await?;
    let name = unique("token");
    let mut values = token_values(bed, &name).await?;
    values["clientID"] = json!(name);
    let file = values_file(bed, &values)?;
    let site = ManagedCluster::named(bed, &name).await?;
    site.upstream_object(json!({
        "apiVersion": "fleet.cattle.io/v1alpha1", "kind": "Cluster",
        "metadata": { "name": name }, "spec": { "clientID": name },
    }))
    .await?;
    let into = ["--namespace", SYSTEM_NAMESPACE, "--create-namespace"];
    let arguments = ["install", "fleet-agent", chart, "--values", &file];
    let helm = downstream_helm(bed)?;
    helm.run(&[&arguments, &into[..], settings].concat())?;
    site.registered().await?;
    Ok(site)
}

/// Takes an agent away that was installed by helm.
pub(crate) async fn uninstall(site: ManagedCluster) -> Result<()> {
    let helm = downstream_helm(site.bed)?;
    let release = ["uninstall", "fleet-agent", "--namespace", SYSTEM_NAMESPACE];
    helm.run(&[&release[..], &["--wait", "--timeout", "5m"]].concat())?;
    forget(&site).await?;
    site.end().await
}

/// Removes what an agent leaves in its namespace that is not its chart's.
pub(crate) async fn forget(site: &ManagedCluster) -> Result<()> {
    let params = kube::api::DeleteParams::default();
    for (version, kind, name) in [
        ("v1", "Secret", "fleet-agent"),
        ("v1", "Secret", "fleet-agent-bootstrap"),
        ("v1", "ConfigMap", "fleet-agent-ledger"),
        ("v1", "ConfigMap", "fleet-agent-removals"),
        ("coordination.k8s.io/v1", "Lease", "fleet-agent"),
    ] {
        let api = testbed::objects::api(&site.downstream, version, kind, SYSTEM_NAMESPACE);
        if api.get_opt(name).await?.is_some() {
            api.delete(name, &params).await?;
        }
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs a real node: make test-node"]
async fn fleets_chart_installs_our_image_by_token() -> Result<()> {
    let (repository, tag) = OURS.split_once(':').context("a tag")?;
    let chart = testbed::tools::Stock::Charts.path()?.join("fleet-agent");
    let settings = [
        format!("--set=image.repository={repository},image.tag={tag}"),
        "--set=image.imagePullPolicy=IfNotPresent".to_owned(),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let site = by_token(&chart.display().to_string(), &settings).await?;
    site.runs(OURS).await?;
    site.proves_itself().await?;
    // Nobody deploys another agent over it.
    site.runs(OURS).await?;
    uninstall(site).await
}

#[tokio::test]
#[ignore = "needs a real node: make test-node"]
async fn our_chart_installs_our_image_by_token() -> Result<()> {
    let (repository, _) = OURS.split_once(':').context("a tag")?;
    let image = format!("--set=image.repository={repository}");
    let site = by_token(OUR_CHART, &[&image]).await?;
    site.runs(OURS).await?;
    site.proves_itself().await?;
    // Nobody deploys another agent over it.
    site.runs(OURS).await?;
    uninstall(site).await
}
