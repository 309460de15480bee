//! What the real cosign, helm and gpg signed, as `make record-signatures` keeps it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

/// Where the recorded registry was: what simple signing documents name.
pub const SIGNED_AT: &str = "127.0.0.1:5599";

/// The chart that is signed everywhere: `web` in version 1.1.0.
pub struct SignedChart {
    pub archive: Vec<u8>,
    pub config: Vec<u8>,
    pub manifest: Vec<u8>,
}

/// What lies beside a manifest.
#[derive(Clone, Debug, Default)]
pub struct Signatures {
    /// Payload and annotations of attached signatures.
    pub attached: Vec<(String, Value)>,
    /// Sigstore bundles.
    pub bundles: Vec<String>,
}

/// A file of the recording.
pub fn specimen(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../signatures/tests/specimens")
        .join(name)
}

/// A file of the recording, as text.
///
/// # Errors
/// It is not there.
pub fn text(name: &str) -> Result<String> {
    std::fs::read_to_string(specimen(name)).with_context(|| name.to_owned())
}

impl SignedChart {
    /// Reads the chart.
    ///
    /// # Errors
    /// It is not there.
    pub fn read() -> Result<Self> {
        let bytes = |name: &str| std::fs::read(specimen(name)).with_context(|| name.to_owned());
        Ok(Self {
            archive: bytes("web-1.1.0.tgz")?,
            config: bytes("config.json")?,
            manifest: bytes("manifest.json")?,
        })
    }
}

impl Signatures {
    /// Reads a case.
    ///
    /// # Errors
    /// It is not there, or is none.
    pub fn read(case: &str) -> Result<Self> {
        let case: Value = serde_json::from_str(&text(&format!("{case}.json"))?)?;
        let list = |key: &str| case[key].as_array().cloned().context("a list");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(Self {
            attached: list("attached")?
                .iter()
                .map(|one| (text(&one["payload"]), one["annotations"].clone()))
                .collect(),
            bundles: list("bundles")?.iter().map(text).collect(),
        })
    }
}
