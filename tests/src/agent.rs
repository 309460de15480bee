//! The agent under test: the real program, started, killed and restarted like a pod.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::ports;
use crate::process::{Memory, Process, ProcessGroup};

/// How the image has the allocator give back memory; what is measured is measured so.
const ALLOCATOR: [(&str, &str); 3] = [
    ("MALLOC_ARENA_MAX", "1"),
    ("MALLOC_TRIM_THRESHOLD_", "131072"),
    ("MALLOC_MMAP_THRESHOLD_", "131072"),
];

/// How an agent is started.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// The program; [`built`] gives the one of this checkout.
    pub program: PathBuf,
    /// A kubeconfig of the downstream cluster.
    pub kubeconfig: PathBuf,
    /// The agent's namespace downstream.
    pub namespace: String,
    /// Further environment; it wins over the defaults.
    pub env: BTreeMap<String, String>,
    /// Arguments after the defaults.
    pub arguments: Vec<String>,
}

/// A running agent. Dropping it kills it.
pub struct AgentProcess {
    group: Arc<ProcessGroup>,
    name: String,
    options: AgentOptions,
    metrics: u16,
    probes: u16,
    process: Option<Process>,
}

impl AgentProcess {
    /// Starts an agent; `name` names its log.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(group: Arc<ProcessGroup>, name: &str, options: AgentOptions) -> Result<Self> {
        let mut agent = Self {
            group,
            name: name.to_owned(),
            options,
            metrics: ports::free()?,
            probes: ports::free()?,
            process: None,
        };
        agent.restart()?;
        Ok(agent)
    }

    /// Kills the agent if it runs, without any warning to it, and starts it anew.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn restart(&mut self) -> Result<()> {
        self.kill();
        let mut command = Command::new(&self.options.program);
        command
            .arg("--leader-elect=false")
            .arg("--kubeconfig")
            .arg(&self.options.kubeconfig)
            .args(&self.options.arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .envs(ALLOCATOR)
            .env("HOSTNAME", &self.name)
            .env("TMPDIR", self.group.directory())
            .env("HOME", self.group.directory())
            // Charts that another agent fetched are none of its own.
            .env(
                "FLEET_AGENT_CACHE",
                self.group.directory().join(format!("{}-cache", self.name)),
            )
            .env("NAMESPACE", &self.options.namespace)
            .env("CHECKIN_INTERVAL", "15m")
            .env("BUNDLEDEPLOYMENT_RECONCILER_WORKERS", "50")
            .env("DRIFT_RECONCILER_WORKERS", "50")
            .env(
                "FLEET_AGENT_METRICS_BIND_ADDRESS",
                format!("127.0.0.1:{}", self.metrics),
            )
            .env(
                "FLEET_AGENT_PROBE_BIND_ADDRESS",
                format!("127.0.0.1:{}", self.probes),
            )
            .env("FLEET_AGENT_PPROF_DISABLED", "true")
            .envs(&self.options.env);
        self.process = Some(self.group.spawn(&self.name, &mut command)?);
        Ok(())
    }

    /// Kills the agent at once; [`Self::restart`] brings it back.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// Ends the agent as a kubelet does: SIGTERM, then waiting.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn terminate(&mut self, deadline: Duration) -> Result<ExitStatus> {
        self.process
            .as_mut()
            .context("the agent does not run")?
            .terminate(deadline)
    }

    /// The running process.
    ///
    /// # Errors
    /// When the agent does not run.
    pub fn process(&self) -> Result<&Process> {
        self.process.as_ref().context("the agent does not run")
    }

    /// Waits for the agent to end by itself.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn wait_exit(&mut self, deadline: Duration) -> Result<ExitStatus> {
        self.process
            .as_mut()
            .context("the agent does not run")?
            .wait_exit(deadline)
    }

    /// Resident memory now and at its highest, in KiB.
    ///
    /// # Errors
    /// When the agent does not run.
    pub fn memory_kib(&self) -> Result<Memory> {
        self.process()?.memory_kib()
    }

    /// Everything the agent has logged, over its restarts.
    pub fn log(&self) -> String {
        let path = self.group.directory().join(format!("{}.log", self.name));
        String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
    }

    /// The address of the probes, without a path.
    pub fn probes_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.probes)
    }

    /// The address of the metrics, without a path.
    pub fn metrics_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.metrics)
    }
}

/// The agent of this checkout in the profile this program was built with, brought up to date first.
///
/// `FLEETAGENT_BINARY` names another one.
///
/// # Errors
/// When it does not compile.
pub fn built() -> Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    BUILT
        .get_or_init(|| named_or_built(cfg!(debug_assertions)).map_err(|e| format!("{e:#}")))
        .clone()
        .map_err(anyhow::Error::msg)
}

/// The agent of this checkout with full optimisation, brought up to date first, or the one
/// `FLEETAGENT_BINARY` names.
///
/// # Errors
/// When it does not compile.
pub fn optimised() -> Result<PathBuf> {
    named_or_built(false)
}

fn named_or_built(debug: bool) -> Result<PathBuf> {
    match std::env::var_os("FLEETAGENT_BINARY") {
        Some(path) => Ok(PathBuf::from(path)),
        None => build(debug),
    }
}

fn build(debug: bool) -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("the crate is in a workspace")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args([
            "build",
            "--quiet",
            "--package",
            "agent",
            "--bin",
            "fleetagent",
        ])
        .current_dir(root);
    if !debug {
        command.arg("--release");
    }
    ensure!(
        command.status().context("running cargo")?.success(),
        "the agent does not compile"
    );
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => root.join(directory),
        None => root.join("target"),
    };
    Ok(target
        .join(if debug { "debug" } else { "release" })
        .join("fleetagent"))
}

#[cfg(test)]
mod allocator {
    use super::ALLOCATOR;

    #[test]
    fn agents_of_tests_have_memory_given_back_as_the_image_has() {
        let image = include_str!("../../deploy/image/src/archive.rs");
        let dockerfile = include_str!("../../Dockerfile");
        for (name, value) in ALLOCATOR {
            let setting = format!("{name}={value}");
            assert!(
                image.contains(&setting) && dockerfile.contains(&setting),
                "{setting}"
            );
        }
    }
}
