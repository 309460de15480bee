//! `${ }` from what people write for stock Fleet (HelmOp, Bundle, the files of a GitRepo) to the object on the cluster.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testbed::bed::unique;
use testbed::chart::Chart;

use testbed::node::bed::CHARTS;
use testbed::node::managed_cluster::{Agent, ManagedCluster};

/// What a Cluster API cluster is to its network chart, as the calico example of docs/cluster-values.md reads it.
const INSTALLATION: &str = "calicoNetwork:\n  ipPools: ${ range $cidr := .ClusterValues.Cluster.spec.clusterNetwork.pods.cidrBlocks }\n  - cidr: \"${ $cidr }\"${ end }\n";

/// A chart that shows what its values are, and wants `installation` to be a map.
fn operator(name: &str, version: &str) -> Chart {
    Chart::new(name, version).template(
        "map.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\ndata:\n  version: {{ .Chart.Version }}\n  pools: {{ .Values.installation.calicoNetwork.ipPools | toJson | quote }}\n",
    )
}

/// A site whose people tell its agent of the cluster, as the page has it.
async fn described_site() -> Result<ManagedCluster> {
    let site = ManagedCluster::managed(Agent::Ours, |_, _| ()).await?;
    let values =
        "Cluster: {spec: {clusterNetwork: {pods: {cidrBlocks: [192.168.0.0/16, \"fd00::/108\"]}}}}";
    testbed::fleet::controller::apply(
        &site.downstream,
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "fleet-cluster-values", "namespace": site.namespace },
            "data": { "values": values },
        }),
    )
    .await?;
    Ok(site)
}

const POOLS: &str = r#"[{"cidr":"192.168.0.0/16"},{"cidr":"fd00::/108"}]"#;

fn labels() -> Value {
    json!({
        "fleet.cattle.io/cluster-values": "always",
        "fleet.cattle.io/install-once": "true",
    })
}

async fn shown(site: &ManagedCluster, release: &str) -> Result<Value> {
    let map = site.deployed("v1", "ConfigMap", release).await?;
    Ok(map.with_context(|| format!("no ConfigMap {release}"))?["data"].clone())
}

#[tokio::test]
#[ignore = "needs a real node: make test-node"]
async fn a_helm_op_of_stock_fleet_is_filled_in_on_the_cluster() -> Result<()> {
    let site = described_site().await?;
    let name = unique("operator");
    for version in ["1.0.0", "1.1.0"] {
        site.bed.repository.add(&operator(&name, version))?;
    }
    let helm = |version: &str| {
        json!({
            "repo": CHARTS, "chart": name, "version": version, "releaseName": name,
            "disablePreProcess": true, "templateValues": { "installation": INSTALLATION },
        })
    };
    site.helm_op(&name, helm("1.0.0"), |helm_op| {
        helm_op["spec"]["labels"] = labels()
    })
    .await?;
    let deployment = site.ready(&name).await?;
    // It is Fleet's controller that hands on the labels, and the templates as they stand.
    let metadata = &deployment["metadata"];
    ensure!(
        metadata["labels"]["fleet.cattle.io/cluster-values"] == "always",
        "{metadata}"
    );
    let handed_on = &deployment["spec"]["options"]["helm"]["templateValues"];
    ensure!(handed_on["installation"] == INSTALLATION, "{handed_on}");
    ensure!(shown(&site, &name).await?["pools"] == POOLS);
    // Installed once: a new version is not deployed, and the bundle is ready all the same.
    site.helm_op(&name, helm("1.1.0"), |helm_op| {
        helm_op["spec"]["labels"] = labels()
    })
    .await?;
    site.wait("the new version to be taken note of", async || {
        let deployment = site
            .deployment(&name)
            .await?
            .context("no BundleDeployment")?;
        let is_asked = deployment["spec"]["options"]["helm"]["version"] == "1.1.0";
        let is_noted =
            deployment["status"]["appliedDeploymentID"] == deployment["spec"]["deploymentID"];
        ensure!(is_asked && is_noted, "{deployment}");
        Ok(())
    })
    .await?;
    ensure!(shown(&site, &name).await?["version"] == "1.0.0");
    site.end().await
}

#[tokio::test]
#[ignore = "needs a real node: make test-node"]
async fn a_bundle_of_stock_fleet_is_filled_in_on_the_cluster() -> Result<()> {
    let site = described_site().await?;
    let name = unique("bundle");
    let release = format!("{name}-named");
    let files: Vec<(String, Vec<u8>)> = operator(&name, "1.0.0")
        .files()
        .iter()
        .map(|(path, content)| (format!("chart/{path}"), content.clone()))
        .collect();
    site.bundle(&name, &files, |bundle| {
        bundle["metadata"]["labels"] = labels();
        bundle["metadata"]["labels"]["fleet.cattle.io/release-name"] = json!(release);
        bundle["spec"]["helm"] = json!({
            "chart": "chart", "disablePreProcess": true,
            "templateValues": { "installation": INSTALLATION },
        });
    })
    .await?;
    site.ready(&name).await?;
    ensure!(shown(&site, &release).await?["pools"] == POOLS);
    site.end().await
}

/// The files of a GitRepo become Bundles by Fleet's own command, which its jobs run.
#[tokio::test]
#[ignore = "needs a real node: make test-node"]
async fn the_files_of_a_git_repo_are_filled_in_on_the_cluster() -> Result<()> {
    let site = described_site().await?;
    let name = unique("git");
    let chart = operator(&name, "1.0.0");
    let root = site.bed.group.directory().join(&name);
    for (path, content) in chart.files() {
        let path = root.join("chart").join(path);
        std::fs::create_dir_all(path.parent().context("a folder")?)?;
        std::fs::write(path, content)?;
    }
    // One label in the repository, and one of the GitRepo, which its job hands on as a flag.
    let description = json!({
        "name": name, "defaultNamespace": site.target(),
        "labels": { "fleet.cattle.io/install-once": "true" },
        "helm": {
            "chart": "chart", "releaseName": name, "disablePreProcess": true,
            "templateValues": { "installation": INSTALLATION },
        },
    });
    std::fs::write(root.join("fleet.yaml"), description.to_string())?;
    let targets = root.with_extension("targets.yaml");
    std::fs::write(
        &targets,
        json!({ "targets": [{ "clusterName": site.name }] }).to_string(),
    )?;
    let targets = format!("--targets-file={}", targets.display());
    let label = "--label=fleet.cattle.io/cluster-values=always";
    site.bed.fleet.apply(&name, &root, &[&targets, label])?;
    site.ready(&name).await?;
    ensure!(shown(&site, &name).await?["pools"] == POOLS);
    site.end().await
}

/// Without the label `disablePreProcess` means what Fleet says it means, for our agent too.
#[tokio::test]
#[ignore = "needs a real node: make test-node"]
async fn cluster_values_need_the_label() -> Result<()> {
    let site = described_site().await?;
    let name = unique("plain");
    let chart = Chart::new(&name, "1.0.0").template(
        "map.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\ndata:\n  text: {{ .Values.text | quote }}\n",
    );
    site.bed.repository.add(&chart)?;
    let text = "${ .ClusterName }";
    let helm = json!({
        "repo": CHARTS, "chart": name, "version": "1.0.0", "releaseName": name,
        "disablePreProcess": true, "values": { "text": text },
    });
    site.helm_op(&name, helm, |_| ()).await?;
    site.ready(&name).await?;
    ensure!(shown(&site, &name).await?["text"] == text);
    site.end().await
}
