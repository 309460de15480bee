//! Ties it together: what is remembered, what is asked again, who waits for whom.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use reqwest::StatusCode;
use reqwest::header::{ACCEPT, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE};
use reqwest::header::{IF_NONE_MATCH, LAST_MODIFIED};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::cache::Cache;
use super::credentials::{Access, Fingerprint, Shown};
use super::disk::Disk;
use super::error::FetchError;
use super::flight::Flights;
use super::http::{Answer, BodyIs, Http, Request, Transport, authorize};
use super::index::{Entry, Index, IndexError};
use super::oci::{self, Reference, Registry, Wanted};
use super::reference::{ChartRef, Location};
use super::repository::{self, Checksum};
use super::safe_url::SafeUrl;
use super::vouchers::Vouchers;
use super::{Artifact, Memory, Settings, Strictness, archive};

/// A chart as it was downloaded; cheap to clone.
#[derive(Clone, Debug)]
pub struct FetchedChart {
    /// The archive: tar and gzip, whole, not yet looked into.
    pub bytes: Bytes,
    /// Its size unpacked: files, padding and headers.
    pub unpacked_bytes: u64,
    /// The version that was picked. Empty for a plain archive, whose `Chart.yaml` knows.
    pub version: String,
    /// SHA-256 of the archive, `sha256:…`.
    pub digest: String,
    /// Digest of the manifest that names it; `None` unless it came from a registry.
    pub manifest: Option<String>,
    /// Where it came from.
    pub url: SafeUrl,
    /// The source does not answer: this is what it gave before.
    pub is_stale: bool,
}

/// Fetches charts. Clones share connections and what is remembered.
#[derive(Clone)]
pub struct Fetcher {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) http: Http,
    pub(super) disk: Option<Arc<Disk>>,
    pub(super) indexes: Cache<IndexKey, KeptIndex>,
    pub(super) archives: Cache<Key, Kept<FetchedChart>>,
    pub(super) vouchers: Cache<Key, Vouchers>,
    /// What the next downloads of indexes are to be about.
    wanted: Mutex<HashMap<IndexKey, WantedOfIndex>>,
    index_flights: Flights<IndexKey, Result<KeptIndex, FetchError>>,
    chart_flights: Flights<(ChartRef, Fingerprint), Result<Answered, FetchError>>,
    archive_flights: Flights<Key, Result<Kept<FetchedChart>, FetchError>>,
}

/// What an archive is remembered under: what it was asked for as, and how its source was reached.
pub(super) type Key = (String, Fingerprint);

/// Of how many charts an index is kept that is too large to be kept for all.
const MAX_CHARTS_OF_INDEX: usize = 200;

/// What an index is asked for.
#[derive(Default)]
struct WantedOfIndex {
    charts: BTreeSet<String>,
    /// All there are.
    whole: bool,
}

/// What an index is remembered under: whose it is, and how that is reached.
pub(super) type IndexKey = (SafeUrl, Fingerprint);

pub(super) type KeptIndex = Kept<Arc<Index>>;

/// A chart, and since when it is known to be what was asked for. `None`: asking again would tell nothing else.
type Answered = (FetchedChart, Option<Instant>);

/// Something remembered, and how to ask whether it is still true.
#[derive(Clone)]
pub(super) struct Kept<T> {
    pub(super) value: T,
    /// When it was asked for; `None` if by an earlier process.
    asked: Option<Instant>,
    /// Why the source could not be asked.
    stale: Option<FetchError>,
    validators: HeaderMap,
}

impl<T: Clone> Kept<T> {
    pub(super) fn new(value: T, answer: &HeaderMap, asked: Instant) -> Self {
        let mut validators = HeaderMap::new();
        for (from, to) in [(ETAG, IF_NONE_MATCH), (LAST_MODIFIED, IF_MODIFIED_SINCE)] {
            if let Some(value) = answer.get(from) {
                validators.insert(to, value.clone());
            }
        }
        Self {
            value,
            asked: Some(asked),
            stale: None,
            validators,
        }
    }

    /// From an earlier process.
    pub(super) fn recalled(value: T, etag: Option<&str>, last_modified: Option<&str>) -> Self {
        let mut validators = HeaderMap::new();
        for (name, text) in [(IF_NONE_MATCH, etag), (IF_MODIFIED_SINCE, last_modified)] {
            if let Some(value) = text.and_then(|text| HeaderValue::from_str(text).ok()) {
                validators.insert(name, value);
            }
        }
        Self {
            value,
            asked: None,
            stale: None,
            validators,
        }
    }

    pub(super) fn validator(&self, name: HeaderName) -> Option<String> {
        let value = self.validators.get(name)?.to_str().ok()?;
        Some(value.to_owned())
    }

    /// Whether it answers those who ask since then; nothing newer can be had of a source that does not answer.
    fn answers(&self, since: Option<Instant>) -> bool {
        self.stale.is_some() || is_since(self.asked, since)
    }

    /// Whether it is believed without asking: for a while, and by those alone who may be told what was known before `since`.
    fn is_fresh(&self, fresh_for: Duration, since: Option<Instant>) -> bool {
        self.asked.is_some_and(|asked| asked.elapsed() < fresh_for) && is_since(self.asked, since)
    }

    /// Confirmed by the server, which was asked a moment ago.
    fn confirmed(&self, asked: Instant) -> Self {
        Self {
            asked: Some(asked),
            ..self.clone()
        }
    }

    /// What is known stands in for the answer of a source that is out of reach.
    pub(super) fn in_place_of(kept: Option<Self>, error: FetchError) -> Result<Self, FetchError> {
        match kept.filter(|_| error.is_out_of_reach()) {
            Some(kept) => {
                tracing::warn!(%error, "the source does not answer: what it said before stands in");
                Ok(Self {
                    stale: Some(error),
                    ..kept
                })
            }
            None => Err(error),
        }
    }
}

fn is_since(asked: Option<Instant>, since: Option<Instant>) -> bool {
    since.is_none_or(|since| asked.is_some_and(|asked| asked >= since))
}

impl Fetcher {
    /// A fetcher with nothing remembered.
    pub fn new(settings: Settings) -> Self {
        Self::with(Http::new(settings.clone()), settings)
    }

    /// A fetcher whose requests `transport` answers, instead of the network.
    pub fn over(transport: Arc<dyn Transport>, settings: Settings) -> Self {
        Self::with(Http::over(transport, settings.clone()), settings)
    }

    fn with(http: Http, settings: Settings) -> Self {
        let disk = settings.disk.as_ref().and_then(|disk| {
            let opened = Disk::open(disk);
            let directory = disk.directory.display();
            let opened = opened.inspect_err(
                |error| tracing::warn!(%directory, %error, "no charts are kept on disk"),
            );
            opened.ok().map(Arc::new)
        });
        let shared = Shared {
            http,
            disk,
            wanted: Mutex::default(),
            indexes: Cache::new(settings.cache_bytes),
            archives: Cache::new(settings.cache_bytes),
            vouchers: Cache::new(settings.cache_bytes / 4),
            index_flights: Flights::default(),
            chart_flights: Flights::default(),
            archive_flights: Flights::default(),
            settings,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Gets a chart, from memory where that is certain to be the same.
    ///
    /// An archive whose digest the index or the registry names is downloaded once and remembered
    /// as long as there is room. Indexes, tags and archives without a digest are believed for
    /// [`Settings::fresh_for`] and then asked for conditionally. When something cannot be found in
    /// a remembered index, the index is asked for again first. What was fetched with one access is
    /// never given to another.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use chart::source::{Access, ChartRef, FetchError, Fetcher, Settings};
    ///
    /// let fetcher = Fetcher::new(Settings::from_environment());
    /// let web = ChartRef { repo: "oci://registry.example/charts/web".into(), version: "^1".into(), ..ChartRef::default() };
    /// match fetcher.fetch(&web, &Access::default()).await {
    ///     Ok(fetched) => {
    ///         let chart = chart::loader::load_archive(&fetched.bytes[..], &mut Vec::new())?;
    ///         println!("{} {}", chart.name(), fetched.version);
    ///     }
    ///     Err(FetchError::NotFound { lookup, .. }) => println!("no such version: {lookup}"),
    ///     Err(error) if error.is_retryable() => println!("later: {error}"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`FetchError`] tells which step failed; everybody who waited gets the same one.
    ///
    /// # Cancellation
    /// Dropping the future stops the download unless somebody else waits for it too.
    pub async fn fetch(
        &self,
        chart: &ChartRef,
        access: &Access,
    ) -> Result<FetchedChart, FetchError> {
        self.fetch_since(chart, access, None).await
    }

    /// As [`Fetcher::fetch`], and what was asked for before `since` is asked for again: an index, a tag, an archive without a
    /// digest. What a digest names is not asked for again; it cannot have changed.
    ///
    /// # Errors
    /// As for [`Fetcher::fetch`].
    ///
    /// # Cancellation
    /// As for [`Fetcher::fetch`].
    pub async fn fetch_since(
        &self,
        chart: &ChartRef,
        access: &Access,
        since: Option<Instant>,
    ) -> Result<FetchedChart, FetchError> {
        loop {
            let key = (chart.clone(), access.fingerprint());
            let start = || {
                let (shared, chart, access) =
                    (Arc::clone(&self.shared), chart.clone(), access.clone());
                async move { shared.fetch(&chart, &access, since).await }
            };
            let (fetched, asked) = self.shared.chart_flights.run(key, start).await?;
            // Somebody else's may have begun earlier, or may have had less to ask for.
            if asked.is_none() || is_since(asked, since) {
                return Ok(fetched);
            }
        }
    }

    /// What downloads take their turns of; what is made of them may do so too.
    pub fn memory(&self) -> &Memory {
        &self.shared.settings.memory
    }

    /// The index of an HTTP repository, remembered like in [`Fetcher::fetch`].
    ///
    /// # Errors
    /// [`FetchError`] when it cannot be fetched or read.
    pub async fn index(&self, repo: &SafeUrl, access: &Access) -> Result<Arc<Index>, FetchError> {
        let found = self.shared.index(repo, None, access, None).await;
        found.map(|(kept, _)| kept.value)
    }

    /// What is at an HTTP address, as it is: a values file, say.
    ///
    /// # Errors
    /// [`FetchError`] when there is no answer, or another one than 200.
    pub async fn get(&self, url: &SafeUrl, access: &Access) -> Result<Bytes, FetchError> {
        let settings = &self.shared.settings;
        let here = access.at(url, url);
        let request = Request::get((**url).clone(), settings.max_archive_bytes, &here);
        let request = authorize(request, &here);
        let answer = self.shared.http.send(request).await?;
        if answer.status == StatusCode::OK {
            return Ok(answer.body);
        }
        Err(FetchError::Status {
            url: url.clone(),
            status: answer.status.as_u16(),
            shown: answer.shown(access.shown(url, url)),
        })
    }

    /// The tags of a repository in a registry that are versions, newest first.
    ///
    /// # Errors
    /// [`FetchError`] when the registry does not list them.
    pub async fn versions(
        &self,
        reference: &Reference,
        access: &Access,
    ) -> Result<Vec<String>, FetchError> {
        let registry = Registry::new(&self.shared.http, access, reference)?;
        Ok(oci::versions(&registry.tags().await?))
    }

    /// Gets a chart that an index read elsewhere has an entry for.
    ///
    /// # Errors
    /// [`FetchError`] as for [`Fetcher::fetch`].
    pub async fn fetch_entry(
        &self,
        repo: &SafeUrl,
        chart: &str,
        entry: &Entry,
        access: &Access,
    ) -> Result<FetchedChart, FetchError> {
        let fetched = self.shared.entry(repo, chart, entry, access, None).await;
        fetched.map(|(fetched, _)| fetched)
    }

    /// Gets the single layer of an artifact whose only annotation `id` is `id`, as Fleet stores
    /// bundles.
    ///
    /// # Errors
    /// [`FetchError::Artifact`] with Fleet's texts when it is shaped differently.
    pub async fn layer(
        &self,
        reference: &Reference,
        id: &str,
        access: &Access,
    ) -> Result<Artifact, FetchError> {
        self.shared.layer(reference, id, access).await
    }
}

/// Where an index came from: worth asking again when it has no answer, or not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Memory,
    Network,
}

impl Shared {
    async fn fetch(
        self: &Arc<Self>,
        chart: &ChartRef,
        access: &Access,
        since: Option<Instant>,
    ) -> Result<Answered, FetchError> {
        match chart.locate()? {
            Location::Repository {
                repo,
                chart,
                version,
            } => {
                let listed = async |since| {
                    self.fetch_listed(&repo, &chart, &version, access, since)
                        .await
                };
                match listed(since).await {
                    (Err(error), Origin::Memory) if may_be_outdated(&error) => {
                        listed(Some(Instant::now())).await.0
                    }
                    (result, _) => result,
                }
            }
            Location::Archive { url } => {
                let (clean, checksum) = repository::parameters(&url)?;
                self.archive(&clean, &clean, checksum, access, since).await
            }
            Location::Oci { reference, version } => {
                self.fetch_pulled(&reference, &version, access, since).await
            }
        }
    }

    async fn fetch_listed(
        self: &Arc<Self>,
        repo: &SafeUrl,
        chart: &str,
        version: &str,
        access: &Access,
        since: Option<Instant>,
    ) -> (Result<Answered, FetchError>, Origin) {
        let (index, from) = match self.index(repo, Some(chart), access, since).await {
            Ok(found) => found,
            Err(error) => return (Err(error), Origin::Network),
        };
        let result = async {
            let entry = index
                .value
                .get(chart, version)
                .map_err(|lookup| match &index.stale {
                    // An old index cannot say that there is no such thing.
                    Some(unanswered) => unanswered.clone(),
                    None => FetchError::NotFound {
                        location: repo.to_string(),
                        lookup,
                    },
                })?;
            let (fetched, asked) = self.entry(repo, chart, entry, access, since).await?;
            let is_stale = fetched.is_stale || index.stale.is_some();
            // Nothing newer can be had of a source that does not answer.
            let index_asked = index.asked.filter(|_| index.stale.is_none());
            let asked = match (asked, index_asked) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
            Ok((
                FetchedChart {
                    is_stale,
                    ..fetched
                },
                asked,
            ))
        };
        (result.await, from)
    }

    async fn entry(
        self: &Arc<Self>,
        repo: &SafeUrl,
        chart: &str,
        entry: &Entry,
        access: &Access,
        since: Option<Instant>,
    ) -> Result<Answered, FetchError> {
        let url = repository::chart_url(repo, chart, entry)?;
        let (fetched, asked) = if url.scheme() == "oci" {
            let reference = Reference::parse(url.as_str())?;
            // What proves who asks is the repository's, not the registry's.
            let access = Access {
                credentials: None,
                identity: None,
                ..access.clone()
            };
            self.fetch_pulled(&reference, &entry.version, &access, since)
                .await?
        } else {
            let checksum = Checksum::from_index(&entry.digest);
            self.archive(&url, repo, checksum, access, since).await?
        };
        let fetched = FetchedChart {
            version: entry.version.clone(),
            ..fetched
        };
        Ok((fetched, asked))
    }

    /// The index, as far as it is about `chart` (all of it, where that is `None`); from memory while fresh.
    async fn index(
        self: &Arc<Self>,
        repo: &SafeUrl,
        chart: Option<&str>,
        access: &Access,
        since: Option<Instant>,
    ) -> Result<(Kept<Arc<Index>>, Origin), FetchError> {
        let url = SafeUrl::from(repository::index_url(repo));
        let here = access.at(&url, repo);
        let key = (repo.clone(), here.fingerprint());
        loop {
            let kept = self.recall_index(&key, &url, chart).await;
            let is_fresh = |kept: &Kept<_>| kept.is_fresh(self.settings.fresh_for, since);
            if let Some(kept) = kept.clone().filter(is_fresh) {
                return Ok((kept, Origin::Memory));
            }
            self.want(&key, chart);
            let start = || {
                let (shared, key, url) = (Arc::clone(self), key.clone(), url.clone());
                let (here, shown) = (here.clone(), access.shown(&url, repo));
                let kept = kept.clone();
                async move { shared.download_index(key, url, &here, shown, kept).await }
            };
            let kept = match self.index_flights.run(key.clone(), start).await {
                Err(error) => Kept::in_place_of(kept, error)?,
                Ok(kept) => kept,
            };
            // Somebody else's may have been about other charts.
            if kept.value.is_about(chart) && kept.answers(since) {
                if let Some(chart) = chart.filter(|_| kept.stale.is_none()) {
                    self.keep_index(&key, &url, chart, &kept).await;
                }
                return Ok((kept, Origin::Network));
            }
        }
    }

    /// Notes what the next download of an index is to be about.
    fn want(&self, key: &IndexKey, chart: Option<&str>) {
        let mut wanted = self.lock_wanted();
        let about = wanted.entry(key.clone()).or_default();
        match chart {
            Some(chart) => drop(about.charts.insert(chart.to_owned())),
            None => about.whole = true,
        }
    }

    fn lock_wanted(&self) -> MutexGuard<'_, HashMap<IndexKey, WantedOfIndex>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn download_index(
        &self,
        key: IndexKey,
        url: SafeUrl,
        access: &Access,
        shown: Shown,
        kept: Option<Kept<Arc<Index>>>,
    ) -> Result<Kept<Arc<Index>>, FetchError> {
        let asked = Instant::now();
        let mut wanted = self.lock_wanted().remove(&key).unwrap_or_default();
        // What is known is confirmed only to those who want nothing else.
        let mut charts = wanted.charts.iter();
        let is_enough = |kept: &Kept<Arc<Index>>| {
            !(wanted.whole && kept.value.only.is_some())
                && charts.all(|chart| kept.value.is_about(Some(chart)))
        };
        let known = kept.filter(is_enough);
        let request = || {
            let request = Request::get((*url).clone(), self.settings.max_index_bytes, access);
            let mut request = authorize(request, access);
            if let Some(known) = &known {
                request.headers.extend(known.validators.clone());
            }
            request
        };
        // What is known of others is kept along.
        let in_memory = self.indexes.get(&key);
        if let Some(only) = in_memory.as_ref().and_then(|kept| kept.value.only.as_ref()) {
            let room = MAX_CHARTS_OF_INDEX.saturating_sub(wanted.charts.len());
            wanted.charts.extend(only.iter().take(room).cloned());
        }
        let is_sieved = !wanted.whole && self.settings.strictness == Strictness::Fleet;
        let sieved = Request {
            sieved: is_sieved.then(|| wanted.charts.clone()),
            ..request()
        };
        let mut answer = self.http.send(sieved).await?;
        let mut index = self.read_index(&answer, &url);
        if answer.body_is == BodyIs::NotUnderstood || answer.is_sieved() && index.is_err() {
            answer = self.http.send(request()).await?;
            index = self.read_index(&answer, &url);
        }
        if let Some(known) = known
            .clone()
            .filter(|_| answer.status == StatusCode::NOT_MODIFIED)
        {
            let mut kept = known.confirmed(asked);
            let same = in_memory.filter(|other| other.validators == kept.validators);
            if let Some(other) = same {
                kept.value = Arc::new(kept.value.with(&other.value));
            }
            self.indexes.put(key, kept.clone(), kept.value.size_bytes());
            return Ok(kept);
        }
        if answer.status != StatusCode::OK {
            let (status, shown) = (answer.status.as_u16(), answer.shown(shown));
            return Err(FetchError::IndexStatus { url, status, shown });
        }
        let mut index = index.map_err(|source| FetchError::Index { url, source })?;
        if answer.is_sieved() {
            index.only = Some(wanted.charts);
        }
        for warning in &index.warnings {
            tracing::warn!(repo = %key.0, "{warning}");
        }
        let kept = Kept::new(Arc::new(index), &answer.headers, asked);
        self.indexes.put(key, kept.clone(), kept.value.size_bytes());
        Ok(kept)
    }

    fn read_index(&self, answer: &Answer, url: &SafeUrl) -> Result<Index, IndexError> {
        match answer.status {
            StatusCode::OK => Index::load(&answer.body, self.settings.strictness, &url.to_string()),
            _ => Ok(Index::default()),
        }
    }

    /// An archive by address. With a checksum, what is remembered under it is the thing itself.
    async fn archive(
        self: &Arc<Self>,
        url: &SafeUrl,
        origin: &SafeUrl,
        checksum: Option<Checksum>,
        access: &Access,
        since: Option<Instant>,
    ) -> Result<Answered, FetchError> {
        let name = match &checksum {
            Some(checksum) => format!("{} {}", checksum.key(), url.as_str()),
            None => url.as_str().to_owned(),
        };
        let here = access.at(url, origin);
        let key = (name, here.fingerprint());
        let answered = |kept: Kept<FetchedChart>| {
            let is_stale = kept.stale.is_some();
            let is_settled = checksum.is_some() || is_stale;
            let asked = kept.asked.filter(|_| !is_settled);
            (
                FetchedChart {
                    is_stale,
                    ..kept.value
                },
                asked,
            )
        };
        loop {
            let kept = self.recall(&key).await;
            let is_fresh = |kept: &Kept<_>| {
                checksum.is_some() || kept.is_fresh(self.settings.fresh_for, since)
            };
            if let Some(kept) = kept.clone().filter(is_fresh) {
                return Ok(answered(kept));
            }
            let start = || {
                let (shared, key, url) = (Arc::clone(self), key.clone(), url.clone());
                let (here, shown) = (here.clone(), access.shown(&url, origin));
                let checksum = checksum.clone();
                let kept = kept.clone();
                async move {
                    shared
                        .download(key, url, checksum, &here, shown, kept)
                        .await
                }
            };
            let kept = match self.archive_flights.run(key.clone(), start).await {
                Err(error) => Kept::in_place_of(kept, error)?,
                Ok(kept) => kept,
            };
            if checksum.is_some() || kept.answers(since) {
                return Ok(answered(kept));
            }
        }
    }

    async fn download(
        &self,
        key: Key,
        url: SafeUrl,
        checksum: Option<Checksum>,
        access: &Access,
        shown: Shown,
        kept: Option<Kept<FetchedChart>>,
    ) -> Result<Kept<FetchedChart>, FetchError> {
        const ACCEPTED: HeaderValue =
            HeaderValue::from_static("application/gzip,application/octet-stream,*/*;q=0.1");
        let asked = Instant::now();
        let request = Request::get((*url).clone(), self.settings.max_archive_bytes, access)
            .header(ACCEPT, ACCEPTED);
        let mut request = authorize(request, access);
        if let Some(kept) = &kept {
            request.headers.extend(kept.validators.clone());
        }
        let answer = self.http.send(request).await?;
        if let Some(kept) = kept.filter(|_| answer.status == StatusCode::NOT_MODIFIED) {
            let kept = kept.confirmed(asked);
            self.archives.put(key, kept.clone(), kept.value.bytes.len());
            return Ok(kept);
        }
        if answer.status != StatusCode::OK {
            let (status, shown) = (answer.status.as_u16(), answer.shown(shown));
            return Err(FetchError::Status { url, status, shown });
        }
        if let Some(checksum) = &checksum {
            checksum.check(&url, &answer.body)?;
        }
        let digest = format!(
            "sha256:{}",
            golib::hex::encode(&Sha256::digest(&answer.body))
        );
        let (bytes, unpacked_bytes) = archive::checked(answer.body, &url).await?;
        let chart = FetchedChart {
            bytes,
            unpacked_bytes,
            version: String::new(),
            digest,
            manifest: None,
            url,
            is_stale: false,
        };
        let kept = Kept::new(chart, &answer.headers, asked);
        self.keep(key, &kept).await;
        Ok(kept)
    }

    async fn fetch_pulled(
        &self,
        reference: &Reference,
        version: &str,
        access: &Access,
        since: Option<Instant>,
    ) -> Result<Answered, FetchError> {
        let registry = Registry::new(&self.http, access, reference)?;
        let name = format!("{reference} {version}");
        let key = (name, registry.access().fingerprint());
        let by_digest = reference.digest.is_some();
        let kept = self.recall(&key).await;
        let is_fresh = |kept: &Kept<_>| by_digest || kept.is_fresh(self.settings.fresh_for, since);
        let kept = match kept.clone().filter(is_fresh) {
            Some(fresh) => fresh,
            None => match self.pull(&registry, reference, version, key).await {
                Err(error) => Kept::in_place_of(kept, error)?,
                Ok(pulled) => pulled,
            },
        };
        let is_stale = kept.stale.is_some();
        let is_settled = by_digest || is_stale;
        let asked = kept.asked.filter(|_| !is_settled);
        Ok((
            FetchedChart {
                is_stale,
                ..kept.value
            },
            asked,
        ))
    }

    async fn pull(
        &self,
        registry: &Registry<'_>,
        reference: &Reference,
        version: &str,
        key: Key,
    ) -> Result<Kept<FetchedChart>, FetchError> {
        let asked = Instant::now();
        let named = match oci::wanted(reference, version)? {
            Wanted::Name(named) => named,
            Wanted::Constraint(constraint) => {
                oci::resolve(registry, reference, &constraint).await?
            }
        };
        let oci::Found {
            layer,
            named: manifest,
            ..
        } = oci::layer(registry, &named).await?;
        let blob = (format!("{} {}", reference.registry, layer.digest), key.1);
        let (bytes, unpacked_bytes) = match self.recall(&blob).await {
            Some(kept) => (kept.value.bytes, kept.value.unpacked_bytes),
            None => {
                let bytes = registry
                    .blob(&layer, self.settings.max_archive_bytes)
                    .await?;
                archive::checked(bytes, &shown(&named)).await?
            }
        };
        let version = named.tag.clone().unwrap_or_else(|| version.to_owned());
        let url = shown(&named);
        let chart = FetchedChart {
            bytes,
            unpacked_bytes,
            version,
            digest: layer.digest,
            manifest: Some(manifest),
            url,
            is_stale: false,
        };
        let kept = Kept::new(chart, &HeaderMap::new(), asked);
        for key in [key, blob] {
            // The bytes are shared: counting them twice errs on the safe side.
            self.keep(key, &kept).await;
        }
        Ok(kept)
    }
}

/// A reference as a URL; references are checked to be hosts and paths.
pub(super) fn shown(reference: &Reference) -> SafeUrl {
    SafeUrl::parse(&reference.to_string()).expect("a reference is a valid URL")
}

/// Whether a newer index might help.
fn may_be_outdated(error: &FetchError) -> bool {
    matches!(
        error,
        FetchError::NotFound { .. }
            | FetchError::Checksum { .. }
            | FetchError::NoUrls { .. }
            | FetchError::Status {
                status: 403 | 404 | 410,
                ..
            }
    )
}
