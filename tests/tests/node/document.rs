//! `docs/install.md`, run from top to bottom: each block by a shell, in the place it is marked for, with the names it has.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::cluster::ADMIN;
use testbed::fleet::controller::apply;
use testbed::node::{image_digest, ours};
use testbed::tools::Tool;

use crate::installed::{restarts, values_file};
use testbed::fleet::stock::{AGENT_IMAGE, CLUSTERS_NAMESPACE, SYSTEM_NAMESPACE};
use testbed::node::bed::{NodeBed, OURS};
use testbed::node::managed_cluster::{Agent, ManagedCluster};
use testbed::objects;

/// What stands behind the language of a block.
const PLACES: [&str; 4] = ["upstream", "downstream", "node", "checkout"];

/// How skopeo is told to do without TLS, and to ask for no signatures.
const INSECURE: &str = "[[registry]]\nlocation = \"registry.example\"\ninsecure = true\n[[registry]]\nlocation = \"canary.example\"\ninsecure = true\n";
const POLICY: &str = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;

/// Where Rancher looks for values of the charts that it installs.
const RANCHER_NAMESPACE: &str = "cattle-system";
const RANCHER_CONFIG: &str = "rancher-config";

/// By what blocks are known before or after which something else happens, or is looked at.
const LOOK: &str = "@.type==\"Installed\"";
const REPAIR: &str = "set image deployment/fleet-agent";
const REINSTALL: &str = "redeployAgentGeneration";
const PAUSE_WAVE: &str = "\"paused\":true";
const DELETE_BUNDLE: &str = "delete bundles.fleet.cattle.io";
const INSTALL: &str = "helm install fleet-agent";
const MOMENTS: [&str; 7] = [
    LOOK,
    RANCHER_CONFIG,
    REPAIR,
    REINSTALL,
    PAUSE_WAVE,
    DELETE_BUNDLE,
    INSTALL,
];

/// The bundle of the agent of the page's cluster.
const AGENTS_BUNDLE: &str = "fleet-agent-edge-1";
const REMOVALS: &str = "fleet-agent-removals";
/// A variable that our agent ends of where it is no number, as the page says.
const UNREADABLE: &str = "FLEET_AGENT_CACHE_MIB";

const GIVEN_UP: &str = "given-up";
const CHART: &str = "apiVersion: v2\nname: given-up\nversion: 1.0.0\n";

/// Gives Fleet's chart what Rancher reads for it: our image is named, and nothing else has changed.
async fn upgrade_as_rancher(site: &ManagedCluster) -> Result<()> {
    let read = async |namespace: &str, name: &str, key: &str| -> Result<String> {
        let maps = objects::api(&site.upstream, "v1", "ConfigMap", namespace);
        let map = maps.get(name).await?;
        let text = map.data["data"][key].as_str();
        Ok(text
            .with_context(|| format!("no {key} in {name}"))?
            .to_owned())
    };
    let config = async || -> Result<Value> {
        let text = read(SYSTEM_NAMESPACE, "fleet-controller", "config").await?;
        Ok(serde_json::from_str(&text)?)
    };
    let before = config().await?;
    let values = read(RANCHER_NAMESPACE, RANCHER_CONFIG, "fleet").await?;
    let file = values_file(site.bed, &serde_json::from_str(&values)?)?;
    let upgrade = ["upgrade", "fleet", "fleet/fleet", "--reuse-values"];
    let into = ["--namespace", SYSTEM_NAMESPACE, "--values", &file];
    site.bed.fleet.helm.run(&[upgrade, into].concat())?;
    let after = config().await?;
    ensure!(after["agentImage"] == OURS, "{after}");
    ensure!(after == before, "{before}\nbecame {after}");
    Ok(())
}

struct Block {
    place: String,
    line: usize,
    commands: String,
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/install.md")
}

/// The fenced blocks of a page; one that says nothing of its place is an error.
fn blocks(text: &str) -> Result<Vec<Block>> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_open = false;
    for (number, line) in text.lines().enumerate() {
        match line.strip_prefix("```") {
            Some("") if is_open => is_open = false,
            Some(words) => {
                let place = words.strip_prefix("sh ").unwrap_or_default();
                ensure!(
                    !is_open && PLACES.contains(&place),
                    "line {}: a block is marked by one of {PLACES:?}",
                    number + 1
                );
                is_open = true;
                blocks.push(Block {
                    place: place.to_owned(),
                    line: number + 1,
                    commands: String::new(),
                });
            }
            None if is_open => {
                let block = blocks.last_mut().context("an open block")?;
                block.commands += line;
                block.commands.push('\n');
            }
            None => (),
        }
    }
    ensure!(!is_open, "the last block does not end");
    Ok(blocks)
}

/// Runs anywhere: no command of the page stands outside of a block, and every block is run.
#[test]
fn commands_of_the_page_are_in_blocks_that_are_run() -> Result<()> {
    let text = std::fs::read_to_string(page())?;
    let blocks = blocks(&text)?;
    ensure!(blocks.len() >= 10);
    let inside: String = blocks.iter().map(|block| block.commands.as_str()).collect();
    for program in ["helm ", "kubectl ", "ctr ", "skopeo "] {
        let outside = text.matches(&format!("`{program}")).count();
        ensure!(
            outside == 0,
            "`{program}…` stands in the text, where nobody runs it"
        );
        ensure!(inside.contains(program));
    }
    Ok(())
}

/// Who pastes the blocks, and where.
struct Reader<'a> {
    bed: &'a NodeBed,
    place: PathBuf,
}

impl<'a> Reader<'a> {
    /// A directory with the programs and files that the page takes for granted.
    fn new(bed: &'a NodeBed) -> Result<Self> {
        let place = bed.group.directory().join("page");
        let programs = place.join("bin");
        std::fs::create_dir_all(&programs)?;
        for (tool, name) in [(Tool::Kubectl, "kubectl"), (Tool::Helm4, "helm")] {
            std::os::unix::fs::symlink(tool.path()?, programs.join(name))?;
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        std::os::unix::fs::symlink(root.join("deploy").canonicalize()?, place.join("deploy"))?;
        let image = "fleetagent-0.1.0-amd64.tar";
        std::fs::copy(ours()?, place.join(image))?;
        let built = place.join("target/image");
        std::fs::create_dir_all(&built)?;
        std::fs::copy(ours()?, built.join(image))?;
        // The registries of the page speak plain HTTP here.
        let settings = place.join(".config/containers");
        std::fs::create_dir_all(&settings)?;
        std::fs::write(settings.join("registries.conf"), INSECURE)?;
        std::fs::write(settings.join("policy.json"), POLICY)?;
        std::fs::write(place.join("proxy-ca.pem"), bed.upstream.authority())?;
        Ok(Self { bed, place })
    }

    /// Runs a block where it is marked to be run; gives what it printed.
    fn run(&self, block: &Block) -> Result<String> {
        let kubeconfig = match block.place.as_str() {
            "upstream" => self.bed.upstream.kubeconfig(ADMIN)?,
            _ => self.bed.downstream.kubeconfig(ADMIN)?,
        };
        let programs = self.place.join("bin");
        let path = format!("{}:/usr/sbin:/usr/bin:/bin", programs.display());
        let output = Command::new("timeout")
            .args(["600", "bash", "-euxo", "pipefail", "-c", &block.commands])
            .current_dir(&self.place)
            .env_clear()
            .env("PATH", path)
            .env("HOME", &self.place)
            .env("KUBECONFIG", kubeconfig)
            .env("CONTAINERD_ADDRESS", self.bed.node.socket())
            .envs(self.bed.fleet.helm.home())
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "line {}: {said}", block.line);
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// A bundle that the Go agent gives up for good.
async fn give_up(edge: &ManagedCluster) -> Result<()> {
    let files = [
        ("chart/Chart.yaml", CHART),
        ("chart/templates/map.yaml", "a: b: c\n"),
    ];
    let files = files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()));
    edge.bundle(GIVEN_UP, &files, |bundle| {
        bundle["spec"]["helm"] = json!({ "chart": "chart" });
    })
    .await?;
    edge.wait("the Go agent to give up", async || {
        let deployment = edge.deployment(GIVEN_UP).await?.context("not there")?;
        let conditions = deployment["status"]["conditions"].as_array();
        let has_ended = |one: &Value| one["type"] == "Installed" && one["status"] == "False";
        let has_ended = conditions.into_iter().flatten().any(has_ended);
        ensure!(has_ended, "{}", deployment["status"]);
        Ok(())
    })
    .await
}

/// In the place of the agent, one that ends as soon as it starts; the agent before has no time to put itself back.
async fn break_agent(edge: &ManagedCluster) -> Result<()> {
    let deployments = objects::api(&edge.downstream, "apps/v1", "Deployment", &edge.namespace);
    let patch = async |spec: Value| {
        let patch = Patch::Strategic(json!({ "spec": spec }));
        let params = PatchParams::default();
        deployments.patch("fleet-agent", &params, &patch).await
    };
    patch(json!({ "replicas": 0 })).await?;
    edge.wait("the agent to end", async || {
        let pods = edge.pods().await?;
        ensure!(pods.is_empty(), "{} pods", pods.len());
        Ok(())
    })
    .await?;
    let container = json!({
        "name": "fleet-agent", "image": OURS,
        "env": [{ "name": UNREADABLE, "value": "1Gi" }],
    });
    let template = json!({ "spec": { "containers": [container] } });
    patch(json!({ "replicas": 1, "template": template })).await?;
    edge.wait("the agent to fail", async || {
        ensure!(restarts(edge).await? > 0, "it was not started again");
        ensure!(edge.logs().contains(UNREADABLE), "{}", edge.logs());
        Ok(())
    })
    .await
}

/// With our image named for all clusters: it waits for the end of the pause.
async fn waits_for_its_wave(edge: &ManagedCluster) -> Result<()> {
    edge.wait("the agent's bundle to be held", async || {
        let deployment = edge.deployment(AGENTS_BUNDLE).await?.context("not there")?;
        let spec = &deployment["spec"];
        let is_held = spec["stagedDeploymentID"] != spec["deploymentID"];
        ensure!(spec["paused"] == true && is_held, "{spec}");
        Ok(())
    })
    .await?;
    edge.runs(AGENT_IMAGE).await.map(drop)
}

/// Our agent lives on without its own bundle, and says what it holds.
async fn holds_its_own_bundle(edge: &ManagedCluster) -> Result<()> {
    let maps = objects::api(&edge.downstream, "v1", "ConfigMap", &edge.namespace);
    edge.wait("the agent's own bundle to be held", async || {
        let map = maps.get(REMOVALS).await?;
        let held = map.data["data"]["held"].as_str().unwrap_or_default();
        ensure!(held.contains(AGENTS_BUNDLE), "{}", map.data);
        Ok(())
    })
    .await?;
    edge.runs(OURS).await.map(drop)
}

#[tokio::test]
#[ignore = "needs a real node: make test-node"]
async fn the_page_on_installing_is_run() -> Result<()> {
    let bed = NodeBed::shared().await?;
    let reader = Reader::new(bed)?;
    // The cluster that the page speaks of: Fleet's agent in its usual namespace.
    let edge = ManagedCluster::managed_as("edge-1", Agent::Stock, |spec, _| {
        spec["agentNamespace"] = json!("");
    })
    .await?;
    let rancher = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": RANCHER_NAMESPACE },
    });
    apply(&edge.upstream, rancher).await?;
    let blocks = blocks(&std::fs::read_to_string(page())?)?;
    let run = |block: &Block| reader.run(block).with_context(|| edge.logs());
    // What names an image for all clusters, and has Fleet write their bundles.
    let naming = |image: &str| {
        let (repository, _) = image.split_once(':').unwrap_or_default();
        let setting = format!("agentImage.repository={repository} ");
        let annotation =
            format!("annotate namespace fleet-default --overwrite agent-image={image}\n");
        let names = move |one: &&Block| {
            one.commands.contains(&setting) || one.commands.contains(&annotation)
        };
        blocks.iter().filter(names)
    };
    let mut moments: Vec<&str> = MOMENTS.to_vec();
    for block in &blocks {
        // Each moment comes once.
        let moment = moments.iter().position(|one| block.commands.contains(one));
        let moment = moment.map(|number| moments.remove(number));
        match moment {
            Some(LOOK) => give_up(&edge).await?,
            Some(REPAIR | REINSTALL) => break_agent(&edge).await?,
            // What follows is about a cluster that nobody manages.
            Some(INSTALL) => edge.leave().await?,
            _ => (),
        }
        let printed = run(block)?;
        match moment {
            Some(LOOK) => {
                let row = format!("/{GIVEN_UP} False\n");
                ensure!(printed.contains(&row), "{printed}");
                let version = "fleet.cattle.io/v1alpha1";
                let bundles = objects::api(&edge.upstream, version, "Bundle", CLUSTERS_NAMESPACE);
                bundles.delete(GIVEN_UP, &DeleteParams::default()).await?;
            }
            Some(RANCHER_CONFIG) => upgrade_as_rancher(&edge).await?,
            Some(PAUSE_WAVE) => {
                for block in naming(OURS) {
                    run(block)?;
                }
                waits_for_its_wave(&edge).await?;
            }
            Some(DELETE_BUNDLE) => holds_its_own_bundle(&edge).await?,
            _ => (),
        }
    }
    ensure!(moments.is_empty(), "no block has {moments:?}");
    // A registry names the image as `make image` did.
    let digest = image_digest(&ours()?)?;
    for (name, tag) in [("fleetagent", "0.1.0"), ("rancher/fleet-agent", "v0.16.1")] {
        let pushed = bed.registry.digest(name, tag).await?;
        ensure!(pushed == digest, "{name}:{tag} is {pushed}, not {digest}");
    }
    let secrets = objects::api(&edge.downstream, "v1", "Secret", &edge.namespace);
    for name in ["fleet-agent", "fleet-agent-bootstrap"] {
        let left = secrets.get_opt(name).await?;
        ensure!(left.is_none(), "the last block leaves {name} behind");
    }
    // Other tests find Fleet's own image named for all clusters, and their namespace as it was.
    for block in naming(AGENT_IMAGE) {
        run(block)?;
    }
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": edge.namespace },
    });
    apply(&edge.downstream, namespace).await.map(drop)
}
