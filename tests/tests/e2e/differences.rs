//! What the Go agent does and ours does not, seen from outside: no second render, no charts fetched for charts.

use anyhow::{Result, ensure};
use serde_json::json;
use testbed::bed::{Bed, unique};
use testbed::chart::Chart;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::apply;
use testbed::fleet::test_agent::TestAgent;

use crate::scene::target;

/// A `lookup` is answered by the cluster the first time, and that is the only time: the Go agent renders twice, and its first answer
/// is empty.
#[tokio::test]
async fn a_chart_is_rendered_once_with_what_the_cluster_has() -> Result<()> {
    let agent = TestAgent::registered(Bed::shared().await?).await?;
    let (source, target) = (unique("source"), target(&agent));
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": { "key": "found" },
        "metadata": { "name": source, "namespace": "default" },
    });
    apply(&agent.downstream, map).await?;
    let template = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: web\ndata:\n  key: \
         {{{{ (lookup \"v1\" \"ConfigMap\" \"default\" \"{source}\").data.key }}}}\n"
    );
    let chart = Chart::new("web", "1.0.0").template("map.yaml", &template);
    let bundle = BundleDeployment::content("web", chart.files().to_vec()).release("web", &target);
    agent.apply(&bundle).await?;
    agent.wait_ready("web").await?;
    let web = agent.object("v1", "ConfigMap", &target, "web").await?;
    ensure!(web.is_some_and(|web| web.data["data"]["key"] == "found"));
    let asked = agent.downstream_requests()?;
    let asked = asked
        .iter()
        .filter(|request| request.name == source)
        .count();
    ensure!(asked == 1, "asked {asked} times");
    Ok(())
}

#[tokio::test]
async fn a_fetched_chart_without_its_dependencies_names_them() -> Result<()> {
    let agent = TestAgent::registered(Bed::shared().await?).await?;
    let chart = Chart::new(&unique("lone"), "1.0.0");
    let metadata = format!(
        "apiVersion: v2\nname: {}\nversion: 1.0.0\ndependencies:\n- name: absent\n  version: 1.0.0\n  \
         repository: {}\n",
        chart.name(),
        agent.bed.repository.url()
    );
    let chart = chart.file("Chart.yaml", metadata);
    agent.bed.repository.add(&chart)?;
    let bundle =
        BundleDeployment::helm_op("lone", agent.bed.repository.url(), chart.name(), "1.0.0")
            .release("lone", &target(&agent));
    agent.apply(&bundle).await?;
    agent
        .wait_deploy_error("lone", |message| {
            message.contains("missing in charts/") && message.contains("absent")
        })
        .await
        .map(drop)
}
