//! The helm programs, versions 3 and 4, asked about the releases our agent made.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::tools::Tool;

/// One of the two helm programs, pointed at a cluster.
#[derive(Debug, Clone)]
pub struct Helm {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: PathBuf,
}

impl Helm {
    /// Both helms, the older first, with `home` for their own files.
    ///
    /// # Errors
    /// When they are not built.
    pub fn both(kubeconfig: &Path, home: &Path) -> Result<[Self; 2]> {
        let helm = |tool| Self::of(tool, kubeconfig, home);
        Ok([helm(Tool::Helm3)?, helm(Tool::Helm4)?])
    }

    /// One helm, with `home` for its own files.
    ///
    /// # Errors
    /// When it is not built.
    pub fn of(tool: Tool, kubeconfig: &Path, home: &Path) -> Result<Self> {
        Ok(Self {
            program: tool.path()?,
            kubeconfig: kubeconfig.to_owned(),
            home: home.join(format!("{tool:?}")),
        })
    }

    /// The environment by which any helm shares this one's repositories and caches.
    pub fn home(&self) -> [(&'static str, PathBuf); 3] {
        [
            ("HELM_CACHE_HOME", self.home.join("cache")),
            ("HELM_CONFIG_HOME", self.home.join("config")),
            ("HELM_DATA_HOME", self.home.join("data")),
        ]
    }

    /// Runs helm and gives its standard output.
    ///
    /// # Errors
    /// When it fails, with what it said.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new(&self.program)
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HELM_DRIVER", "secret")
            .envs(self.home())
            .output()
            .context("running helm")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "helm {}: {errors}",
            arguments.join(" ")
        );
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs helm with `-o json` and reads the answer.
    ///
    /// # Errors
    /// When it fails or does not answer in JSON.
    pub fn json(&self, arguments: &[&str]) -> Result<Value> {
        let output = self.run(&[arguments, &["-o", "json"]].concat())?;
        serde_json::from_str(&output).with_context(|| format!("helm answered {output:?}"))
    }
}
