//! The unmodified Fleet: its charts installed by helm, its controllers as programs of this machine, against a real API server.
//!
//! The pods of the charts are kwok's; what they would do is done by the programs themselves, with the settings the charts give them.
//! Left out: `gitjob`, which needs pods that clone; [`StockFleet::apply`] does what they would.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::controller::apply;
use crate::cluster::{ADMIN, ControlPlane};
use crate::helm::Helm;
use crate::ports;
use crate::process::{Process, ProcessGroup};
use crate::repository::ChartRepository;
use crate::tools::Stock;

/// Where Fleet is installed, upstream, and its agent downstream.
pub const SYSTEM_NAMESPACE: &str = "cattle-fleet-system";
/// Where the clusters of the tests are registered.
pub const CLUSTERS_NAMESPACE: &str = "fleet-default";
/// The image that the installed Fleet names: its own agent.
pub const AGENT_IMAGE: &str = "rancher/fleet-agent:v0.16.1";
/// The user that the controllers are.
const USER: &str = "fleet-controller";

/// An installed Fleet. Dropping it ends its controllers.
pub struct StockFleet {
    /// Helm, as its administrator has it: repository `fleet` holds the charts it was installed from.
    pub helm: Helm,
    kubeconfig: std::path::PathBuf,
    _running: Vec<Process>,
}

impl StockFleet {
    /// Installs Fleet in a cluster whose nodes are kwok's; agents are told to reach it at `url`.
    ///
    /// # Errors
    /// When its programs were not built or do not start.
    pub async fn install(
        group: &Arc<ProcessGroup>,
        upstream: &ControlPlane,
        url: &str,
    ) -> Result<Self> {
        let kubeconfig = upstream.kubeconfig(ADMIN)?;
        let [_, helm] = Helm::both(&kubeconfig, &group.directory().join("fleet"))?;
        let charts = Stock::Charts.path()?;
        let repository = ChartRepository::start(crate::repository::Access::default()).await?;
        let packages = group.directory().join("fleet-charts");
        std::fs::create_dir_all(&packages)?;
        for chart in ["fleet-crd", "fleet", "fleet-agent"] {
            let source = charts.join(chart).display().to_string();
            let to = packages.display().to_string();
            helm.run(&["package", &source, "--destination", &to])?;
        }
        for package in std::fs::read_dir(&packages)? {
            repository.add_archive(std::fs::read(package?.path())?)?;
        }
        helm.run(&["repo", "add", "fleet", repository.url()])?;
        let authority = group.directory().join("fleet-authority.pem");
        std::fs::write(&authority, upstream.authority())?;
        let into = ["--namespace", SYSTEM_NAMESPACE, "--create-namespace"];
        helm.run(&[&["install", "fleet-crd", "fleet/fleet-crd"], &into[..]].concat())?;
        let (repository, tag) = AGENT_IMAGE.split_once(':').context("a tag")?;
        let settings = [
            format!("--set=apiServerURL={url}"),
            format!("--set-file=apiServerCA={}", authority.display()),
            format!("--set=agentImage.repository={repository},agentImage.tag={tag}"),
            // Every cluster of the tests is a downstream one.
            "--set=bootstrap.enabled=false".to_owned(),
            // A chart of a checkout names no image of its own.
            "--set=global.imagePullPolicy=IfNotPresent".to_owned(),
        ];
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        helm.run(&[&["install", "fleet", "fleet/fleet"], &into[..], &settings].concat())?;
        let client = upstream.client(ADMIN).await?;
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": CLUSTERS_NAMESPACE },
        });
        apply(&client, namespace).await?;
        let mut running = Vec::new();
        let loopback = || -> Result<String> { Ok(format!("127.0.0.1:{}", ports::free()?)) };
        for (name, arguments) in [
            ("fleet-controller", &["--disable-metrics"][..]),
            (
                "fleet-agentmanagement",
                &["agentmanagement", "--disable-bootstrap"],
            ),
            ("fleet-helmops", &["helmops", "--disable-metrics"]),
        ] {
            let mut command = Command::new(Stock::Controller.path()?);
            command
                .args(arguments)
                .env("KUBECONFIG", upstream.kubeconfig(USER)?)
                .env("NAMESPACE", SYSTEM_NAMESPACE)
                .env("HOME", group.directory())
                .env("FLEET_HEALTHPROBE_BIND_ADDRESS", loopback()?)
                .env("FLEET_REGISTRATION_TOKEN_TTL_REQUIRED", "false");
            // What the chart sets, in the words of the chart's values.
            for prefix in ["CATTLE", "FLEET_AGENT"] {
                for (part, time) in [
                    ("LEASE_DURATION", "30s"),
                    ("RETRY_PERIOD", "10s"),
                    ("RENEW_DEADLINE", "25s"),
                ] {
                    command.env(format!("{prefix}_ELECTION_{part}"), time);
                }
            }
            running.push(group.spawn(name, &mut command)?);
        }
        Ok(Self {
            helm,
            kubeconfig,
            _running: running,
        })
    }

    /// What a GitRepo's job does once it has cloned: Fleet's own command line makes Bundles of a directory.
    ///
    /// # Errors
    /// When it fails, with what it said.
    pub fn apply(&self, name: &str, directory: &Path, arguments: &[&str]) -> Result<()> {
        let output = Command::new(Stock::Cli.path()?)
            .args(["--kubeconfig"])
            .arg(&self.kubeconfig)
            .args(["apply", "--namespace", CLUSTERS_NAMESPACE])
            .args(arguments)
            .args([name, "."])
            .current_dir(directory)
            .env("HOME", directory)
            .output()
            .context("running fleet apply")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "fleet apply: {said}");
        Ok(())
    }
}
