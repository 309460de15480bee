//! Charts fetched earlier, in memory and on disk. Reading and writing files takes a thread of its own.

use bytes::Bytes;
use reqwest::header::{IF_MODIFIED_SINCE, IF_NONE_MATCH};

use super::cached::{Cached, Key};
use super::disk::{ChartNote, Disk, blob_name, on_disk};
use super::fetched::FetchedChart;
use super::http::{SMALL_BYTES, reserved};
use super::safe_url::SafeUrl;
use super::shared::Shared;

/// Kind of the notes.
const CHART: &str = "chart";

impl Shared {
    /// What was fetched under a key by this process, or by one before. What comes from disk says of itself what it is; `is_sound` believes
    /// it, or not.
    pub(super) async fn cached_chart(
        &self,
        key: &Key,
        is_sound: impl FnOnce(&FetchedChart, &[String]) -> bool + Send + 'static,
    ) -> Option<Cached<FetchedChart>> {
        if let Some(cached) = self.archives.get(key) {
            return Some(cached);
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
        let (etag, last_modified) = (note.etag, note.last_modified);
        let read = on_disk(disk, move |disk| {
            let bytes = disk.blob(&note.blob, limit)?;
            let chart = FetchedChart {
                bytes: reserved(Bytes::from(bytes), reservation),
                unpacked_bytes: note.unpacked_bytes,
                version: note.version,
                digest: note.digest,
                manifest: note.manifest,
                url,
                is_stale: false,
            };
            is_sound(&chart, &note.manifests).then_some(chart)
        });
        let cached = Cached::from_disk(read.await?, etag.as_deref(), last_modified.as_deref());
        self.archives.put(key.clone(), cached.clone());
        Some(cached)
    }

    /// Remembers what was fetched, with the manifests that lead to it.
    pub(super) async fn keep_chart(
        &self,
        key: Key,
        cached: &Cached<FetchedChart>,
        manifests: &[Bytes],
    ) {
        self.archives.put(key.clone(), cached.clone());
        let Some(disk) = &self.disk else { return };
        let chart = cached.value.clone();
        let text = |manifest: &Bytes| String::from_utf8_lossy(manifest).into_owned();
        let manifests = manifests.iter().map(text).collect();
        let (etag, last_modified) = (
            cached.validator(IF_NONE_MATCH),
            cached.validator(IF_MODIFIED_SINCE),
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
                manifests,
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
}
