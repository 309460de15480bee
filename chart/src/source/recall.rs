//! What is remembered, in memory and on disk: the fetcher's half of it. Reading and writing files takes a thread of its own.

use std::sync::Arc;

use bytes::Bytes;
use reqwest::header::{HeaderMap, IF_MODIFIED_SINCE, IF_NONE_MATCH};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::credentials::Access;
use super::disk::{ChartNote, Disk, blob_name};
use super::error::FetchError;
use super::fetcher::{FetchedChart, IndexKey, Kept, KeptIndex, Key, Shared, shown};
use super::http::{SMALL_BYTES, reserved};
use super::index::{Entry, Index};
use super::oci::{Reference, Registry};
use super::safe_url::SafeUrl;
use super::{Artifact, repository};

/// Kinds of notes.
const CHART: &str = "chart";
const INDEX: &str = "index";

/// What an index says of one chart.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct IndexNote {
    etag: Option<String>,
    last_modified: Option<String>,
    api_version: String,
    /// Those of the chart, newest first. `None`: there is no such chart.
    entries: Option<Vec<Entry>>,
}

impl Shared {
    /// What was fetched under a key by this process, or by one before.
    pub(super) async fn recall(&self, key: &Key) -> Option<Kept<FetchedChart>> {
        if let Some(kept) = self.archives.get(key) {
            return Some(kept);
        }
        let disk = self.disk.as_ref()?;
        let name = disk.name(CHART, &key.0, key.1);
        let note: ChartNote = on_disk(disk, move |disk| disk.note(&name)).await?;
        let url = SafeUrl::parse(&note.url).ok()?;
        let limit = self.settings.max_archive_bytes.min(note.bytes);
        let reservation = match note.bytes > SMALL_BYTES {
            true => Some(self.settings.memory.reserve(note.bytes).await),
            false => None,
        };
        let blob = note.blob.clone();
        let bytes = on_disk(disk, move |disk| disk.blob(&blob, limit)).await?;
        let chart = FetchedChart {
            bytes: reserved(Bytes::from(bytes), reservation),
            unpacked_bytes: note.unpacked_bytes,
            version: note.version,
            digest: note.digest,
            manifest: note.manifest,
            url,
            is_stale: false,
        };
        let kept = Kept::recalled(chart, note.etag.as_deref(), note.last_modified.as_deref());
        let size = kept.value.bytes.len();
        self.archives.put(key.clone(), kept.clone(), size);
        Some(kept)
    }

    /// Remembers what was fetched.
    pub(super) async fn keep(&self, key: Key, kept: &Kept<FetchedChart>) {
        let size = kept.value.bytes.len();
        self.archives.put(key.clone(), kept.clone(), size);
        let Some(disk) = &self.disk else { return };
        let chart = kept.value.clone();
        let (etag, last_modified) = (
            kept.validator(IF_NONE_MATCH),
            kept.validator(IF_MODIFIED_SINCE),
        );
        let write = move |disk: &Disk| {
            let blob = blob_name(&chart.bytes);
            disk.put_blob(&blob, &chart.bytes);
            let note = ChartNote {
                etag,
                last_modified,
                version: chart.version,
                digest: chart.digest,
                manifest: chart.manifest,
                // As people see it: without what it may hold of credentials.
                url: chart.url.to_string(),
                unpacked_bytes: chart.unpacked_bytes,
                bytes: chart.bytes.len() as u64,
                blob,
            };
            disk.put_note(&disk.name(CHART, &key.0, key.1), &note);
            Some(())
        };
        on_disk(disk, write).await;
    }

    /// What is known of an index, if that is about `chart`.
    pub(super) async fn recall_index(
        &self,
        key: &IndexKey,
        url: &SafeUrl,
        chart: Option<&str>,
    ) -> Option<KeptIndex> {
        let in_memory = self.indexes.get(key);
        if let Some(kept) = in_memory.filter(|kept| kept.value.is_about(chart)) {
            return Some(kept);
        }
        let (disk, chart) = (self.disk.as_ref()?, chart?.to_owned());
        let name = index_name(disk, key, url, &chart);
        let note: IndexNote = on_disk(disk, move |disk| disk.note(&name)).await?;
        let index = Index {
            api_version: note.api_version,
            entries: note
                .entries
                .map(|entries| (chart.clone(), entries))
                .into_iter()
                .collect(),
            only: Some([chart].into()),
            ..Index::default()
        };
        Some(Kept::recalled(
            Arc::new(index),
            note.etag.as_deref(),
            note.last_modified.as_deref(),
        ))
    }

    /// Writes down what an index says of a chart. Not where that has addresses that are secrets.
    pub(super) async fn keep_index(
        &self,
        key: &IndexKey,
        url: &SafeUrl,
        chart: &str,
        kept: &KeptIndex,
    ) {
        let Some(disk) = &self.disk else { return };
        let entries = kept.value.entries.get(chart);
        let is_secret = |entry: &Entry| {
            let address = repository::chart_url(&key.0, chart, entry);
            address.is_ok_and(|address| address.to_string() != address.as_str())
        };
        if entries.into_iter().flatten().any(is_secret) {
            return;
        }
        let note = IndexNote {
            etag: kept.validator(IF_NONE_MATCH),
            last_modified: kept.validator(IF_MODIFIED_SINCE),
            api_version: kept.value.api_version.clone(),
            entries: entries.cloned(),
        };
        let name = index_name(disk, key, url, chart);
        on_disk(disk, move |disk| {
            disk.put_note(&name, &note);
            Some(())
        })
        .await;
    }

    /// See [`super::Fetcher::layer`].
    pub(super) async fn layer(
        &self,
        reference: &Reference,
        id: &str,
        access: &Access,
    ) -> Result<Artifact, FetchError> {
        let registry = Registry::new(&self.http, access, reference)?;
        let key = (
            format!("artifact {reference} {id}"),
            registry.access().fingerprint(),
        );
        let found = match self.download_layer(&registry, reference, id, &key).await {
            Err(error) if error.is_out_of_reach() => {
                Kept::in_place_of(self.recall(&key).await, error)?
            }
            found => found?,
        };
        Ok(Artifact {
            bytes: found.value.bytes,
            digest: found.value.digest,
        })
    }

    async fn download_layer(
        &self,
        registry: &Registry<'_>,
        reference: &Reference,
        id: &str,
        key: &Key,
    ) -> Result<Kept<FetchedChart>, FetchError> {
        let asked = Instant::now();
        let manifest = registry.manifest(&reference.wire_name()).await?;
        let artifact = |problem: String| FetchError::Artifact {
            reference: reference.to_string(),
            problem,
        };
        let [layer] = manifest.layers.as_slice() else {
            let found = manifest.layers.len();
            return Err(artifact(format!(
                "expected 1 layer in OCI manifest, {found} found"
            )));
        };
        if layer.annotations.len() != 1 {
            return Err(artifact(format!(
                "expecting 1 Annotation in layer descriptor. Found {}",
                layer.annotations.len()
            )));
        }
        if layer.annotations.get("id").map(String::as_str) != Some(id) {
            let problem = "could not find expected id in Descriptor's annotations";
            return Err(artifact(problem.to_owned()));
        }
        let blob = (
            format!("artifact {} {}", reference.registry, layer.digest),
            key.1,
        );
        let bytes = match self.recall(&blob).await {
            Some(kept) => kept.value.bytes,
            None => {
                let limit = self.settings.max_archive_bytes;
                registry.blob(layer, limit).await?
            }
        };
        let chart = FetchedChart {
            bytes,
            unpacked_bytes: 0,
            version: String::new(),
            digest: manifest.digest,
            manifest: None,
            url: shown(reference),
            is_stale: false,
        };
        let kept = Kept::new(chart, &HeaderMap::new(), asked);
        for key in [key.clone(), blob] {
            self.keep(key, &kept).await;
        }
        Ok(kept)
    }
}

fn index_name(disk: &Disk, key: &IndexKey, url: &SafeUrl, chart: &str) -> String {
    disk.name(INDEX, &format!("{chart} {}", url.as_str()), key.1)
}

/// Does something with files, on a thread that may wait.
async fn on_disk<T: Send + 'static>(
    disk: &Arc<Disk>,
    work: impl FnOnce(&Disk) -> Option<T> + Send + 'static,
) -> Option<T> {
    let disk = Arc::clone(disk);
    let work = tokio::task::spawn_blocking(move || work(&disk));
    work.await.ok().flatten()
}
