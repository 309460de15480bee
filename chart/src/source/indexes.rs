//! Indexes of repositories: downloaded for those who ask at the same time, asked for conditionally, kept as far as somebody wants them.

use std::sync::Arc;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{IF_MODIFIED_SINCE, IF_NONE_MATCH};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::access::{Access, LocalAccess};
use super::cached::{Cached, CachedIndex, IndexKey};
use super::credentials::ShownSecrets;
use super::disk::{Disk, on_disk};
use super::echoed;
use super::error::{CredentialsUse, FetchError};
use super::fetcher::Shared;
use super::http::{Answer, BodyIs, Request, SMALL_BYTES, authorize};
use super::index::{Entry, Index, IndexError, Strictness, TREE_BYTES};
use super::reference;
use super::safe_url::SafeUrl;

/// Kind of the notes on disk; those of the first one have entries in another order.
const INDEX: &str = "index-2";

/// How long an index is taken to be in the form that it was found in: its repository may change it.
const FORM_LASTS: Duration = Duration::from_secs(60 * 60);

/// How many times the text of an index its tree is, about.
const TREE_FACTOR: u64 = 8;

/// Of how many indexes what is wanted is noted.
const MAX_REQUESTED: usize = 1_000;

/// Of how many charts an index is kept that is too large to be kept for all.
const MAX_CHARTS_OF_INDEX: usize = 200;

/// Of a chart with more versions nothing is written down: it would take long, and is asked for again.
const MOST_NOTED: usize = 5_000;

/// Where an index came from: worth asking again when it has no answer, or not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum IndexSource {
    Memory,
    Network,
}

/// What an index says of one chart.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct IndexNote {
    etag: Option<String>,
    last_modified: Option<String>,
    api_version: String,
    /// The chart's entries, newest first. `None`: there is no such chart.
    entries: Option<Vec<Entry>>,
}

impl Shared {
    /// The index, as far as it is about `chart` (all of it, where that is `None`); from memory while fresh.
    pub(super) async fn index(
        self: &Arc<Self>,
        repo: &SafeUrl,
        chart: Option<&str>,
        access: &Access,
        since: Option<Instant>,
    ) -> Result<(Cached<Arc<Index>>, IndexSource), FetchError> {
        let url = SafeUrl::from(reference::index_url(repo));
        let here = access.at(&url, repo);
        let key = (repo.clone(), here.fingerprint());
        loop {
            let cached = self.cached_index(&key, &url, chart).await;
            let is_fresh = |cached: &Cached<_>| cached.is_fresh(self.settings.fresh_for, since);
            if let Some(cached) = cached.clone().filter(is_fresh) {
                return Ok((cached, IndexSource::Memory));
            }
            self.want(&key, chart);
            let start = || {
                let (shared, key, url) = (Arc::clone(self), key.clone(), url.clone());
                let (here, shown) = (here.clone(), access.shown(&url, repo));
                let cached = cached.clone();
                async move { shared.download_index(key, url, &here, shown, cached).await }
            };
            let cached = match self.index_flights.run(key.clone(), start).await {
                Err(error) => Cached::in_place_of(cached, error)?,
                Ok(cached) => cached,
            };
            // Somebody else's may have been about other charts.
            if cached.value.is_about(chart) && cached.answers(since) {
                if let Some(chart) = chart.filter(|_| cached.stale.is_none()) {
                    self.keep_index(&key, &url, chart, &cached).await;
                }
                return Ok((cached, IndexSource::Network));
            }
        }
    }

    /// Notes what the next download of an index is to be about.
    fn want(&self, key: &IndexKey, chart: Option<&str>) {
        let mut requested = self.requested.lock();
        // Requests that were cancelled are forgotten; others see that the answer is not about their chart, and ask again.
        if requested.len() > MAX_REQUESTED {
            requested.clear();
        }
        let about = requested.entry(key.clone()).or_default();
        match chart {
            Some(chart) => drop(about.charts.insert(chart.to_owned())),
            None => about.whole = true,
        }
    }

    async fn download_index(
        &self,
        key: IndexKey,
        url: SafeUrl,
        access: &LocalAccess,
        shown: CredentialsUse,
        cached: Option<Cached<Arc<Index>>>,
    ) -> Result<Cached<Arc<Index>>, FetchError> {
        let asked = Instant::now();
        let mut requested = self.requested.lock().remove(&key).unwrap_or_default();
        // A cached index is confirmed only to those who want no other charts.
        let mut charts = requested.charts.iter();
        let is_enough = |cached: &Cached<Arc<Index>>| {
            !(requested.whole && cached.value.only.is_some())
                && charts.all(|chart| cached.value.is_about(Some(chart)))
        };
        let known = cached.filter(is_enough);
        let request = || {
            let request = Request::get((*url).clone(), self.settings.max_index_bytes, access);
            let mut request = authorize(request, access);
            if let Some(known) = &known {
                request.headers.extend(known.validators.clone());
            }
            request
        };
        // Cached entries of other charts are kept along.
        let in_memory = self.indexes.get(&key);
        if let Some(only) = in_memory
            .as_ref()
            .and_then(|cached| cached.value.only.as_ref())
        {
            let room = MAX_CHARTS_OF_INDEX.saturating_sub(requested.charts.len());
            requested.charts.extend(only.iter().take(room).cloned());
        }
        let is_filtered = !requested.whole
            && self.settings.strictness == Strictness::Fleet
            && !self.is_read_as_a_whole(&key);
        let filtered = Request {
            only: is_filtered.then(|| requested.charts.clone()),
            ..request()
        };
        let mut answer = self.http.send(filtered).await?;
        let mut index = self.read_index(&answer, &url).await;
        if answer.body_is == BodyIs::UnknownForm || answer.is_filtered() && index.is_err() {
            // Once: the next ones are read as a whole at once.
            self.read_as_a_whole.put(key.clone(), asked);
            answer = self.http.send(request()).await?;
            index = self.read_index(&answer, &url).await;
        }
        if let Some(known) = known
            .clone()
            .filter(|_| answer.status == StatusCode::NOT_MODIFIED)
        {
            let mut cached = known.confirmed(asked);
            let same = in_memory.filter(|other| other.validators == cached.validators);
            if let Some(other) = same {
                cached.value = Arc::new(cached.value.with(&other.value));
            }
            self.indexes.put(key, cached.clone());
            return Ok(cached);
        }
        if answer.status != StatusCode::OK {
            let (status, shown) = (answer.status.as_u16(), answer.shown(shown));
            return Err(FetchError::IndexStatus { url, status, shown });
        }
        let secrets = ShownSecrets::of(access.credentials()).and_of(&url);
        let mut index = index.map_err(|source| FetchError::Index {
            source: echoed::index(source, &secrets),
            url,
        })?;
        if answer.is_filtered() {
            index.only = Some(requested.charts);
        }
        for warning in &index.warnings {
            logging::warn!(
                repo = key.0,
                name = secrets.redact(warning.chart()),
                "skipping an entry of the index"
            );
        }
        let cached = Cached::new(Arc::new(index), &answer.headers, asked);
        self.indexes.put(key, cached.clone());
        Ok(cached)
    }

    fn is_read_as_a_whole(&self, key: &IndexKey) -> bool {
        let since = self.read_as_a_whole.get(key);
        since.is_some_and(|since| since.elapsed() < FORM_LASTS)
    }

    /// Reads an index. A large one within a reservation, as what is made of it takes more than its text, and on a thread that may take its time.
    async fn read_index(&self, answer: &Answer, url: &SafeUrl) -> Result<Index, IndexError> {
        let (body, strictness, source) = (
            answer.body.clone(),
            self.settings.strictness,
            url.to_string(),
        );
        let bytes = body.len() as u64;
        match answer.status {
            StatusCode::OK if bytes <= SMALL_BYTES => Index::load(&body, strictness, &source),
            StatusCode::OK => {
                let bytes = bytes.saturating_mul(TREE_FACTOR).min(TREE_BYTES as u64);
                let reservation = self.settings.memory.reserve(bytes).await;
                let read = tokio::task::spawn_blocking(move || {
                    let index = Index::load(&body, strictness, &source);
                    drop(reservation);
                    index
                });
                read.await
                    .unwrap_or_else(|panicked| Err(IndexError::Decode(panicked.to_string())))
            }
            _ => Ok(Index::default()),
        }
    }

    /// The cached index, if that is about `chart`.
    async fn cached_index(
        &self,
        key: &IndexKey,
        url: &SafeUrl,
        chart: Option<&str>,
    ) -> Option<CachedIndex> {
        let in_memory = self.indexes.get(key);
        if let Some(cached) = in_memory.filter(|cached| cached.value.is_about(chart)) {
            return Some(cached);
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
        Some(Cached::from_disk(
            Arc::new(index),
            note.etag.as_deref(),
            note.last_modified.as_deref(),
        ))
    }

    /// Writes down what an index says of a chart. Not where that has addresses with a user or a query: they may be secrets.
    async fn keep_index(&self, key: &IndexKey, url: &SafeUrl, chart: &str, cached: &CachedIndex) {
        let Some(disk) = &self.disk else { return };
        let entries = cached.value.entries.get(chart);
        if entries.is_some_and(|entries| entries.len() > MOST_NOTED) {
            return;
        }
        let is_secret = |entry: &Entry| {
            let address = reference::chart_url(&key.0, chart, entry);
            let urls = entry.urls.iter().flatten();
            address.is_ok_and(|address| address.may_hold_credentials())
                || urls.into_iter().any(|url| url.contains(['?', '@']))
        };
        if entries.into_iter().flatten().any(is_secret) {
            return;
        }
        let note = IndexNote {
            etag: cached.validator(IF_NONE_MATCH),
            last_modified: cached.validator(IF_MODIFIED_SINCE),
            api_version: cached.value.api_version.clone(),
            entries: entries.cloned(),
        };
        let name = index_name(disk, key, url, chart);
        on_disk(disk, move |disk| {
            disk.put_note(&name, &note);
            Some(())
        })
        .await;
    }
}

fn index_name(disk: &Disk, key: &IndexKey, url: &SafeUrl, chart: &str) -> String {
    disk.name(INDEX, &format!("{chart} {}", url.as_str()), key.1)
}

#[cfg(test)]
mod tests {
    use super::super::{DiskSettings, Fetcher, Settings};
    use super::*;

    #[tokio::test]
    async fn notes_in_the_former_order_are_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let fetcher = Fetcher::new(Settings {
            disk: Some(DiskSettings {
                directory: folder.path().to_owned(),
                max_bytes: 1 << 20,
            }),
            ..Settings::default()
        });
        let (shared, access) = (&fetcher.shared, Access::default());
        let disk = shared.disk.as_ref().expect("the folder can be used");
        let repo = SafeUrl::parse("https://charts.example").expect("a URL");
        let url = SafeUrl::from(reference::index_url(&repo));
        let key = (repo.clone(), access.at(&url, &repo).fingerprint());
        let former = disk.name("index", &format!("web {}", url.as_str()), key.1);
        disk.put_note(&former, &IndexNote::default());
        assert!(shared.cached_index(&key, &url, Some("web")).await.is_none());
        let name = index_name(disk, &key, &url, "web");
        disk.put_note(&name, &IndexNote::default());
        assert!(shared.cached_index(&key, &url, Some("web")).await.is_some());
    }
}
