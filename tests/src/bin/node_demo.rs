//! `make demo REAL_NODE=1`: the unmodified Fleet installs the agent as a pod on a real node, and deploys a chart through it.
//!
//! Nothing is prepared here either: what is printed is read back from the API servers, the kubelet's container, and its cgroup.
//! `KEEP=1` leaves everything running until Ctrl-C.

use anyhow::{Context, Result};
use serde_json::json;
use testbed::chart::Chart;
use testbed::cluster::ADMIN;
use testbed::fleet::stock::AGENT_IMAGE;
use testbed::helm::Helm;
use testbed::node::bed::{CANARY, CHARTS, NodeBed};
use testbed::node::managed_cluster::{Agent, ManagedCluster};
use testbed::node::{NAME, PAUSE};
use testbed::story::Story;
use testbed::tools::Tool;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut story = Story::new();

    story.step("Start a cluster with Fleet and a cluster with a node (waits for API servers, containerd and kubelet)");
    let bed = NodeBed::shared().await?;
    story.say(&format!(
        "upstream    {}   Fleet, as its own charts install it",
        bed.upstream.url()
    ));
    story.say(&format!(
        "downstream  {}   one node, {NAME}: kubelet, containerd, runc",
        bed.downstream.url()
    ));
    story.done();

    story.step("Tell Fleet of the cluster; its controller installs the agent (waits for the pod and its registration)");
    let site = ManagedCluster::managed_as("demo", Agent::Ours, |_, _| ()).await?;
    let pods = site.runs(&format!("{CANARY}/{AGENT_IMAGE}")).await?;
    let pod = pods.first().context("a pod")?;
    let status = pod.status.as_ref().context("a status")?;
    let image = status
        .container_statuses
        .as_ref()
        .and_then(|all| all.first());
    let image = image.context("a container")?;
    story.say(&format!(
        "pod         {}/{}",
        site.namespace,
        pod.metadata.name.as_deref().unwrap_or_default()
    ));
    story.say(&format!(
        "address     {}",
        status.pod_ip.as_deref().unwrap_or_default()
    ));
    story.say(&format!("image       {}", image.image));
    story.say(&format!("            {}", image.image_id));
    let container = ManagedCluster::container(pod)?;
    let registered = bed.node.memory(&container)?;
    story.done();

    story.step("Deploy a chart with a HelmOp (waits for its pods to run)");
    bed.repository.add(&Chart::small("guestbook", "1.0.0"))?;
    let helm = json!({
        "repo": CHARTS, "chart": "guestbook", "version": "1.0.0", "releaseName": "guestbook",
        "values": { "greeting": "hello from ${ .ClusterName }", "replicas": 2, "image": PAUSE },
    });
    site.helm_op("guestbook", helm, |_| ()).await?;
    let deployment = site.ready("guestbook").await?;
    story.say(&format!(
        "Ready, release {}",
        deployment["status"]["release"].as_str().unwrap_or_default()
    ));
    let map = site.deployed("v1", "ConfigMap", "guestbook").await?;
    let map = map.context("guestbook is deployed")?;
    story.say(&format!("greeting: {}", map["data"]["greeting"]));
    story.done();

    story.step("Look at it with helm");
    let kubeconfig = bed.downstream.kubeconfig(ADMIN)?;
    let helm = Helm::of(
        Tool::Helm4,
        &kubeconfig,
        &bed.group.directory().join("helm"),
    )?;
    for line in helm.run(&["list", "--all-namespaces"])?.lines() {
        story.say(line.trim_end());
    }
    story.done();

    story.step("Memory of the agent's container, as its cgroup counts it");
    let mib = |kib: u64| kib as f64 / 1024.0;
    let now = bed.node.memory(&container)?;
    story.say(&format!(
        "{:.1} MiB registered, {:.1} MiB now, {:.1} MiB at most with the files it read",
        mib(registered.now),
        mib(now.now),
        mib(now.peak)
    ));
    story.done();
    story.say(&format!("{:.0} s in all", story.elapsed().as_secs_f64()));
    // It has namespaces of its own.
    let way = "nsenter --target $(pgrep --oldest node_demo) --net --mount bash";
    story.keeps(&[way], &[&bed.upstream, &bed.downstream]).await
}
