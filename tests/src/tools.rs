//! Where the Go programs of the test bed are.
//!
//! `tools/build.sh` builds them into a cache outside the checkout; this module computes the same path and never builds.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

/// A program built by `make tools`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is the program of that name")]
pub enum Tool {
    Etcd,
    KubeApiserver,
    KubeControllerManager,
    KubeScheduler,
    Kubectl,
    Kwok,
    Registry,
    Helm3,
    Helm4,
    Kubelet,
    Pause,
}

/// A program of Fleet's own, or the folder of its charts, built by `make tools-node` from a checkout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is what its name says")]
pub enum Stock {
    Controller,
    Agent,
    Cli,
    Charts,
}

impl Stock {
    /// Where it is: of the checkout that `FLEET` names, else of the pinned commit.
    ///
    /// # Errors
    /// When it was not built; the message says how to.
    pub fn path(self) -> Result<PathBuf> {
        let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools");
        let commit = match std::env::var_os("FLEET").filter(|v| !v.is_empty()) {
            None => std::fs::read_to_string(tools.join("fleet.commit"))?,
            Some(checkout) => {
                let mut git = Command::new("git");
                let output = git.arg("-C").arg(&checkout).args(["rev-parse", "HEAD"]);
                let output = output.output().context("running git")?;
                ensure!(output.status.success(), "{checkout:?} is no checkout");
                String::from_utf8(output.stdout)?
            }
        };
        let name = match self {
            Self::Controller => "fleetcontroller",
            Self::Agent => "fleetagent",
            Self::Cli => "fleetcli",
            Self::Charts => "charts",
        };
        let path = cache()?.join(format!("fleet-{}", commit.trim())).join(name);
        ensure!(
            path.exists(),
            "Fleet's {name} is not built (no {path:?}): `make tools-node FLEET=...` with a checkout of github.com/rancher/fleet"
        );
        Ok(path)
    }
}

impl Tool {
    /// The Go module below `tools/` and the file name of the program.
    fn location(self) -> (&'static str, &'static str) {
        match self {
            Self::Etcd => ("etcd", "etcd"),
            Self::KubeApiserver => ("kubernetes", "kube-apiserver"),
            Self::KubeControllerManager => ("kubernetes", "kube-controller-manager"),
            Self::KubeScheduler => ("kubernetes", "kube-scheduler"),
            Self::Kubectl => ("kubernetes", "kubectl"),
            Self::Kwok => ("kwok", "kwok"),
            Self::Registry => ("registry", "registry"),
            Self::Helm3 => ("helm3", "helm3"),
            Self::Helm4 => ("helm4", "helm4"),
            Self::Kubelet => ("kubelet", "kubelet"),
            Self::Pause => ("pause", "pause"),
        }
    }

    /// The path of the program.
    ///
    /// # Errors
    /// When it was not built yet; the message says how to.
    pub fn path(self) -> Result<PathBuf> {
        let (module, file) = self.location();
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tools")
            .join(module);
        let mut hash = Sha256::new();
        let mut names = vec!["go.mod".to_owned(), "go.sum".to_owned()];
        let mut own: Vec<String> = std::fs::read_dir(&source)
            .with_context(|| format!("reading {source:?}"))?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.ends_with(".go"))
            .collect();
        own.sort();
        names.append(&mut own);
        for name in names {
            let path = source.join(name);
            hash.update(std::fs::read(&path).with_context(|| format!("reading {path:?}"))?);
        }
        hash.update(go_version()?);
        let digest: String = hash
            .finalize()
            .iter()
            .take(8)
            .map(|b| format!("{b:02x}"))
            .collect();
        let path = cache()?.join(format!("{module}-{digest}")).join(file);
        ensure!(
            path.is_file(),
            "{file} is not built (no {path:?}): run `make tools`"
        );
        Ok(path)
    }
}

/// The cache of everything that is built or fetched for tests.
///
/// # Errors
/// When neither `XDG_CACHE_HOME` nor `HOME` is set.
pub fn cache() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME").filter(|v| !v.is_empty()) {
        Some(directory) => PathBuf::from(directory),
        None => PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(".cache"),
    };
    Ok(base.join("fleetagent-testbed"))
}

/// `go env GOVERSION` with its newline: the last thing the cache key hashes.
fn go_version() -> Result<&'static [u8]> {
    static VERSION: OnceLock<Vec<u8>> = OnceLock::new();
    if let Some(version) = VERSION.get() {
        return Ok(version);
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/etcd");
    let output = Command::new("go")
        .args(["env", "GOVERSION"])
        .current_dir(source)
        .output()
        .context("running `go env GOVERSION`")?;
    ensure!(output.status.success(), "`go env GOVERSION` failed");
    Ok(VERSION.get_or_init(|| output.stdout))
}
