//! Helm's release records, read as plain JSON: nothing of ours decides what is in them.

use std::io::Read as _;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::Value;

/// One revision, as it is stored.
#[derive(Debug, Clone)]
pub struct Record {
    /// From the label `version`.
    pub revision: u64,
    /// From the label `status`.
    pub status: String,
    /// The decoded release.
    pub release: Value,
}

impl Record {
    /// Version of the chart.
    pub fn chart_version(&self) -> &str {
        self.text("/chart/metadata/version")
    }

    /// What the record says of itself.
    pub fn description(&self) -> &str {
        self.text("/info/description")
    }

    /// Whether this revision is deployed, or was.
    pub fn is_good(&self) -> bool {
        ["deployed", "superseded"].contains(&self.status.as_str())
    }

    /// Hooks of an event that are not recorded as having ended well.
    pub fn unfinished_hooks(&self, event: &str) -> Vec<String> {
        let hooks = self.release["hooks"].as_array();
        let runs = |hook: &&Value| {
            let mut events = hook["events"].as_array().into_iter().flatten();
            events.any(|one| one == event)
        };
        hooks
            .into_iter()
            .flatten()
            .filter(runs)
            .filter(|hook| hook["last_run"]["phase"] != "Succeeded")
            .map(|hook| hook["name"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// `revision status (chart version)`.
    pub fn summary(&self) -> String {
        format!(
            "{} {} ({}, {:?})",
            self.revision,
            self.status,
            self.chart_version(),
            self.description()
        )
    }

    fn text(&self, pointer: &str) -> &str {
        let found = self.release.pointer(pointer).and_then(Value::as_str);
        found.unwrap_or_default()
    }
}

/// All records of a release, oldest first.
///
/// # Errors
/// When the API server does not answer or a record cannot be decoded.
pub async fn read(client: &Client, namespace: &str, release: &str) -> Result<Vec<Record>> {
    let labels = format!("owner=helm,name={release}");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let list = secrets.list(&ListParams::default().labels(&labels)).await?;
    let mut records = Vec::new();
    for secret in list.items {
        let label = |name: &str| {
            let labels = secret.metadata.labels.as_ref();
            let found = labels.and_then(|labels| labels.get(name));
            found.cloned().with_context(|| format!("no label {name}"))
        };
        let data = secret.data.as_ref().and_then(|data| data.get("release"));
        records.push(Record {
            revision: label("version")?.parse()?,
            status: label("status")?,
            release: decode(&data.context("no payload")?.0)?,
        });
    }
    records.sort_by_key(|record| record.revision);
    Ok(records)
}

fn decode(payload: &[u8]) -> Result<Value> {
    let zipped = STANDARD.decode(payload)?;
    let mut text = Vec::new();
    GzDecoder::new(zipped.as_slice()).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}
