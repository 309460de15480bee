//! A real node: kubelet, containerd and runc, where the machine has them and lets us.
//!
//! All of it lives in namespaces that `tests/tools/node.sh` makes: network, mounts and processes end with them, and nothing is left on
//! the machine. Pods have a bridge of their own, and reach what listens on loopback through a [`Gateway`]. Images are side-loaded.

pub mod bed;
mod config;
mod gateway;
mod image;
pub mod managed_cluster;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Api;
use serde_json::Value;

pub use gateway::Gateway;
pub use image::{OUR_NAME, archive, image_digest, ours};

use crate::cluster::{ADMIN, ControlPlane};
use crate::process::{Memory, Process, ProcessGroup};
use crate::tools::Tool;
use crate::wait::wait_until;

/// The node's name.
pub const NAME: &str = "node-real";
/// The image that only waits: the sandbox of every pod, and what deployed charts run.
pub const PAUSE: &str = "docker.io/testbed/pause:1";
/// The user that the kubelet is.
const USER: &str = "kubelet";
/// Names a cgroup that the node may have to itself; set by `tests/tools/node.sh`.
const CGROUP: &str = "FLEETAGENT_NODE_CGROUP";

const STARTUP: Duration = Duration::from_secs(180);

/// A node of a cluster. Dropping it ends its programs; its containers end with the namespaces.
pub struct RealNode {
    group: Arc<ProcessGroup>,
    directory: PathBuf,
    kubeconfig: PathBuf,
    running: Mutex<Vec<Process>>,
}

impl RealNode {
    /// Starts containerd and kubelet for a cluster that has no other node.
    ///
    /// # Errors
    /// When this is no place for a node, or a program ends, with the end of its log.
    pub async fn start(group: Arc<ProcessGroup>, cluster: &ControlPlane) -> Result<Self> {
        let cgroup = std::env::var(CGROUP);
        let cgroup = cgroup.context("a real node runs by tests/tools/node.sh only")?;
        let directory = group.directory().join("node");
        for part in ["cni", "kubelet", "containerd", "images"] {
            std::fs::create_dir_all(directory.join(part))?;
        }
        let node = Self {
            kubeconfig: cluster.kubeconfig(USER)?,
            group,
            directory,
            running: Mutex::default(),
        };
        node.write("containerd.toml", &config::containerd(&node.directory))?;
        let network = config::network(&node.directory).to_string();
        node.write("cni/10-testbed.conflist", &network)?;
        let kubelet = config::kubelet(&node.directory, &cgroup).to_string();
        node.write("kubelet.yaml", &kubelet)?;
        node.start_containerd().await?;
        node.load(&archive(&Tool::Pause.path()?, PAUSE, &node.images())?)?;
        node.start_kubelet(cluster).await?;
        Ok(node)
    }

    fn write(&self, name: &str, content: &str) -> Result<()> {
        Ok(std::fs::write(self.directory.join(name), content)?)
    }

    /// Where its containerd listens.
    pub fn socket(&self) -> PathBuf {
        config::socket(&self.directory)
    }

    /// Where archives of images may be put.
    pub fn images(&self) -> PathBuf {
        self.directory.join("images")
    }

    /// Loads the images of an archive, under their own names.
    ///
    /// # Errors
    /// When containerd refuses it.
    pub fn load(&self, archive: &Path) -> Result<()> {
        let archive = archive.display().to_string();
        self.ctr(&["images", "import", &archive]).map(drop)
    }

    /// Gives an image a further name, as a registry would that has it.
    ///
    /// # Errors
    /// When there is no such image.
    pub fn name_image(&self, image: &str, name: &str) -> Result<()> {
        self.ctr(&["images", "tag", "--force", image, name])
            .map(drop)
    }

    async fn start_containerd(&self) -> Result<()> {
        let mut command = Command::new("containerd");
        let config = self.directory.join("containerd.toml");
        let process = self
            .group
            .spawn("containerd", command.arg("--config").arg(config))?;
        self.lock().push(process);
        wait_until("containerd", STARTUP, async || {
            self.ensure_running()?;
            self.ctr(&["version"]).map_err(|e| format!("{e:#}"))
        })
        .await
        .map(drop)
    }

    async fn start_kubelet(&self, cluster: &ControlPlane) -> Result<()> {
        let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let mut command = Command::new(Tool::Kubelet.path()?);
        command
            .arg(flag("config", &self.directory.join("kubelet.yaml")))
            .arg(flag("kubeconfig", &self.kubeconfig))
            .arg(flag("root-dir", &self.directory.join("kubelet")))
            .arg(flag("cert-dir", &self.directory.join("kubelet/pki")))
            .arg(format!("--hostname-override={NAME}"))
            .arg(format!("--node-ip={}", crate::cluster::IN_CLUSTER_ADDRESS));
        let process = self.group.spawn("kubelet", &mut command)?;
        self.lock().push(process);
        let nodes = Api::<NodeObject>::all(cluster.client(ADMIN).await?);
        wait_until("the real node to be ready", STARTUP, async || {
            self.ensure_running()?;
            let node = nodes.get(NAME).await.map_err(|e| e.to_string())?;
            let conditions = node.status.and_then(|status| status.conditions);
            let conditions = conditions.unwrap_or_default();
            let mut ready = conditions.iter();
            let ready = ready.any(|one| one.type_ == "Ready" && one.status == "True");
            ready.then_some(()).ok_or(format!("{conditions:?}"))
        })
        .await
    }

    fn ensure_running(&self) -> Result<(), String> {
        let mut running = self.lock();
        running
            .iter_mut()
            .try_for_each(Process::ensure_running)
            .map_err(|e| e.to_string())
    }

    /// The node loses power, with everything on it, and comes back.
    ///
    /// # Errors
    /// When it does not come back.
    pub async fn restart(&self, cluster: &ControlPlane) -> Result<()> {
        let mut running: Vec<Process> = self.lock().drain(..).collect();
        // The kubelet first, or it would start anew what ends.
        while let Some(mut process) = running.pop() {
            if running.is_empty() {
                for task in self.tasks()? {
                    // It may end by itself meanwhile.
                    let _ = self.ctr(&["tasks", "kill", "--all", "--signal", "SIGKILL", &task]);
                }
            }
            process.kill();
        }
        self.start_containerd().await?;
        self.start_kubelet(cluster).await
    }

    /// The ids of the containers that run, sandboxes included.
    ///
    /// # Errors
    /// When containerd does not answer.
    pub fn tasks(&self) -> Result<Vec<String>> {
        let text = self.ctr(&["tasks", "ls", "--quiet"])?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Memory of a container as its cgroup counts it, in KiB: now without files that can be dropped, and at its highest with them.
    ///
    /// # Errors
    /// When there is no such container.
    pub fn memory(&self, container: &str) -> Result<Memory> {
        let text = self.ctr(&["tasks", "metrics", "--format", "json", container])?;
        let metrics: Value = serde_json::from_str(&text)?;
        // cgroups of version 1, then of version 2.
        let figure = |paths: [&str; 2]| {
            let mut found = paths.iter().filter_map(|path| metrics.pointer(path));
            found
                .next()
                .and_then(Value::as_u64)
                .map(|bytes| bytes / 1024)
        };
        let now = figure(["/memory/total_rss", "/memory/anon"]);
        let peak = figure(["/memory/usage/max", "/memory/max_usage"]);
        Ok(Memory {
            now: now.with_context(|| format!("no memory among {metrics}"))?,
            peak: peak.unwrap_or_default(),
            // Pages of files are not among the first, and cannot be told apart in the second.
            code: 0,
        })
    }

    /// Runs `ctr` among the kubelet's images and containers.
    ///
    /// # Errors
    /// When it fails, with what it said.
    pub fn ctr(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new("ctr")
            .arg("--address")
            .arg(self.socket())
            .args(["--namespace", "k8s.io"])
            .args(arguments)
            .output()
            .context("running ctr")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "ctr {arguments:?}: {said}");
        Ok(String::from_utf8(output.stdout)?)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Process>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
