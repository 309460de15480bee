//! Ties it together: what all fetches share, what is remembered, what is asked again, who waits for whom.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use logging::Name;
use parking_lot::Mutex;
use reqwest::StatusCode;
use tokio::time::Instant;

use super::access::{Access, Fingerprint};
use super::cache::{Cache, SingleFlight};
use super::cached::{Cached, CachedIndex, FetchedAt, IndexKey, Key, is_since};
use super::credentials::ShownSecrets;
use super::disk::Disk;
use super::echoed;
use super::error::FetchError;
use super::fetched::{ChartSignatures, FetchedChart};
use super::http::{Http, Request, Transport, authorize};
use super::index::{Entry, Index};
use super::indexes::IndexSource;
use super::memory::Memory;
use super::oci::{self, NamedBy, Reference, Registry};
use super::reference::{self, ChartRef, Checksum, Location};
use super::safe_url::SafeUrl;
use super::settings::Settings;

/// Fetches charts. Clones share connections and what is remembered.
#[derive(Clone)]
pub struct Fetcher {
    pub(super) shared: Arc<Shared>,
}

impl Fetcher {
    /// A fetcher with nothing remembered.
    ///
    /// ```no_run
    /// use chart::source::{DiskSettings, Fetcher, Settings};
    ///
    /// let disk = DiskSettings { directory: "/var/cache/charts".into(), max_bytes: 256 << 20 };
    /// let fetcher = Fetcher::new(Settings { disk: Some(disk), ..Settings::from_environment() });
    /// let another = fetcher.clone(); // shares connections and what is remembered
    /// ```
    pub fn new(settings: Settings) -> Self {
        Self::with(Shared::new(Http::new(settings.clone()), settings))
    }

    /// A fetcher whose requests `transport` answers, instead of the network.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use bytes::Bytes;
    /// use chart::source::{Access, Fetcher, SafeUrl, Settings, Transport, TransportError};
    /// use futures_util::future::{BoxFuture, FutureExt as _, ready};
    ///
    /// /// A server that answers with the path it was asked for.
    /// struct Echo;
    ///
    /// impl Transport for Echo {
    ///     fn get(
    ///         &self,
    ///         url: &url::Url,
    ///         _headers: &http::HeaderMap,
    ///     ) -> BoxFuture<'static, Result<http::Response<Bytes>, TransportError>> {
    ///         ready(Ok(http::Response::new(url.path().to_owned().into()))).boxed()
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let fetcher = Fetcher::over(Arc::new(Echo), Settings::default());
    /// let url = SafeUrl::parse("https://charts.example/values.yaml")?;
    /// assert_eq!(fetcher.get(&url, &Access::default()).await?, "/values.yaml");
    /// # Ok(()) }
    /// ```
    pub fn over(transport: Arc<dyn Transport>, settings: Settings) -> Self {
        Self::with(Shared::new(
            Http::over(transport, settings.clone()),
            settings,
        ))
    }

    fn with(shared: Shared) -> Self {
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
    ///         let chart = chart::loader::load_archive(&fetched.bytes[..], &mut chart::Warnings::default())?;
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
    /// [`FetchError`] says which step failed; everybody who waited gets the same one.
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
    /// ```no_run
    /// # async fn example(fetcher: chart::source::Fetcher) -> Result<(), chart::source::FetchError> {
    /// use chart::source::{Access, ChartRef};
    ///
    /// // Somebody pushed a tag anew and said so: what was known before is not enough.
    /// let pushed = tokio::time::Instant::now();
    /// let web = ChartRef { repo: "oci://registry.example/charts/web".into(), version: "1.0.0".into(), ..ChartRef::default() };
    /// let fetched = fetcher.fetch_since(&web, &Access::default(), Some(pushed)).await?;
    /// println!("{}", fetched.digest);
    /// # Ok(()) }
    /// ```
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

    /// The memory budget of downloads, which users of the downloads may share.
    ///
    /// ```
    /// use chart::source::{Fetcher, Memory, Settings};
    ///
    /// let fetcher = Fetcher::new(Settings { memory: Memory::new(48 << 20), ..Settings::default() });
    /// assert_eq!(fetcher.memory().used(), 0); // nothing is being downloaded
    /// ```
    pub fn memory(&self) -> &Memory {
        &self.shared.settings.memory
    }

    /// The index of an HTTP repository, remembered like in [`Fetcher::fetch`].
    ///
    /// ```no_run
    /// # async fn example(fetcher: chart::source::Fetcher) -> Result<(), Box<dyn std::error::Error>> {
    /// use chart::source::{Access, SafeUrl};
    ///
    /// let repository = SafeUrl::parse("https://charts.example/stable")?;
    /// let index = fetcher.index(&repository, &Access::default()).await?;
    /// println!("{} charts", index.entries.len());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`FetchError`] when it cannot be fetched or read.
    pub async fn index(&self, repo: &SafeUrl, access: &Access) -> Result<Arc<Index>, FetchError> {
        let found = self.shared.index(repo, None, access, None).await;
        found.map(|(cached, _)| cached.value)
    }

    /// Downloads the file at an HTTP address as it is: a values file, say.
    ///
    /// ```
    /// use chart::source::{Access, SafeUrl};
    /// # struct Answers;
    /// # impl chart::source::Transport for Answers {
    /// #     fn get(
    /// #         &self,
    /// #         _url: &url::Url,
    /// #         _headers: &http::HeaderMap,
    /// #     ) -> futures_util::future::BoxFuture<'static, Result<http::Response<bytes::Bytes>, chart::source::TransportError>> {
    /// #         Box::pin(async { Ok(http::Response::new("replicas: 3\n".into())) })
    /// #     }
    /// # }
    /// #
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let fetcher = chart::source::Fetcher::over(std::sync::Arc::new(Answers), Default::default());
    ///
    /// let url = SafeUrl::parse("https://charts.example/values-prod.yaml")?;
    /// let file = fetcher.get(&url, &Access::default()).await?;
    /// assert_eq!(chart::values::load_values(&file)?["replicas"], 3.0);
    /// # Ok(()) }
    /// ```
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
    /// ```no_run
    /// # async fn example(fetcher: chart::source::Fetcher) -> Result<(), chart::source::FetchError> {
    /// use chart::source::{Access, Reference};
    ///
    /// let web = Reference::parse("oci://registry.example/charts/web")?;
    /// for version in fetcher.versions(&web, &Access::default()).await? {
    ///     println!("{version}");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`FetchError`] when the registry does not list them.
    pub async fn versions(
        &self,
        reference: &Reference,
        access: &Access,
    ) -> Result<Vec<String>, FetchError> {
        let registry = Registry::new(&self.shared.http, access, reference, NamedBy::Bundle)?;
        Ok(oci::versions(&registry.tags().await?))
    }

    /// Gets a chart that an index read elsewhere has an entry for.
    ///
    /// ```no_run
    /// # async fn example(fetcher: chart::source::Fetcher) -> Result<(), Box<dyn std::error::Error>> {
    /// use chart::source::{Access, SafeUrl};
    ///
    /// let (repository, access) = (SafeUrl::parse("https://charts.example/stable")?, Access::default());
    /// let index = fetcher.index(&repository, &access).await?;
    /// let entry = index.get("web", "^1.2")?;
    /// let fetched = fetcher.fetch_entry(&repository, "web", entry, &access).await?;
    /// println!("{} has {} bytes", fetched.url, fetched.bytes.len());
    /// # Ok(()) }
    /// ```
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
}

/// Memory for the forms of indexes that are remembered, in bytes: some hundred of them.
const READ_AS_A_WHOLE_BYTES: usize = 128 << 10;

pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) http: Http,
    pub(super) disk: Option<Arc<Disk>>,
    pub(super) indexes: Cache<IndexKey, CachedIndex>,
    /// Since when indexes are known to be in a form that only makes sense as a whole.
    pub(super) read_as_a_whole: Cache<IndexKey, Instant>,
    pub(super) archives: Cache<Key, Cached<FetchedChart>>,
    pub(super) signatures: Cache<Key, ChartSignatures>,
    /// What the next downloads of indexes are to be about.
    pub(super) requested: Mutex<HashMap<IndexKey, RequestedCharts>>,
    pub(super) index_flights: SingleFlight<IndexKey, Result<CachedIndex, FetchError>>,
    pub(super) chart_flights: SingleFlight<(ChartRef, Fingerprint), Result<FetchedAt, FetchError>>,
    pub(super) archive_flights: SingleFlight<Key, Result<Cached<FetchedChart>, FetchError>>,
}

/// What an index is asked for.
#[derive(Default)]
pub(super) struct RequestedCharts {
    pub(super) charts: BTreeSet<String>,
    /// All there are.
    pub(super) whole: bool,
}

impl Shared {
    /// With nothing remembered but what is on disk.
    fn new(http: Http, settings: Settings) -> Self {
        let disk = settings.disk.as_ref().and_then(|disk| {
            let opened = Disk::open(disk);
            let directory = disk.directory.display();
            let opened = opened.inspect_err(|error| {
                logging::warn!(
                    directory = Name(&directory.to_string()),
                    error = error.kind(),
                    "no charts are kept on disk"
                )
            });
            opened.ok().map(Arc::new)
        });
        Self {
            http,
            disk,
            requested: Mutex::default(),
            indexes: Cache::new(settings.cache_bytes),
            read_as_a_whole: Cache::new(READ_AS_A_WHOLE_BYTES),
            archives: Cache::new(settings.cache_bytes),
            signatures: Cache::new(settings.cache_bytes / 4),
            index_flights: SingleFlight::default(),
            chart_flights: SingleFlight::default(),
            archive_flights: SingleFlight::default(),
            settings,
        }
    }
}

impl Shared {
    async fn fetch(
        self: &Arc<Self>,
        chart: &ChartRef,
        access: &Access,
        since: Option<Instant>,
    ) -> Result<FetchedAt, FetchError> {
        match chart.locate()? {
            Location::Repository {
                repo,
                chart,
                version,
            } => {
                let (repo, chart, version) = (&repo, &*chart, &*version);
                let (index, from) = self.index(repo, Some(chart), access, since).await?;
                let listed = self.listed(repo, chart, version, &index, access, since);
                match listed.await {
                    Err(error) if from == IndexSource::Memory && may_be_outdated(&error) => {
                        drop(index);
                        let since = Some(Instant::now());
                        let (index, _) = self.index(repo, Some(chart), access, since).await?;
                        let listed = self.listed(repo, chart, version, &index, access, since);
                        listed.await
                    }
                    listed => listed,
                }
            }
            Location::Archive { url } => {
                let (clean, checksum) = reference::parameters(&url)?;
                self.archive(&clean, &clean, checksum, access, since).await
            }
            Location::Oci { reference, version } => {
                self.fetch_pulled(&reference, &version, NamedBy::Bundle, access, since)
                    .await
            }
        }
    }

    /// What an index has under a name, in a version.
    async fn listed(
        self: &Arc<Self>,
        repo: &SafeUrl,
        chart: &str,
        version: &str,
        index: &CachedIndex,
        access: &Access,
        since: Option<Instant>,
    ) -> Result<FetchedAt, FetchError> {
        let entry = index.value.get(chart, version);
        let entry = entry.map_err(|lookup| match &index.stale {
            // An old index cannot say that there is no such thing.
            Some(unanswered) => unanswered.clone(),
            None => FetchError::NotFound {
                location: repo.to_string(),
                lookup: echoed::lookup(lookup, &shown_to(repo, access)),
            },
        })?;
        let (mut fetched, asked) = self.entry(repo, chart, entry, access, since).await?;
        fetched.is_stale |= index.stale.is_some();
        // A source that does not answer has nothing newer.
        let index_asked = index.asked.filter(|_| index.stale.is_none());
        let asked = match (asked, index_asked) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Ok((fetched, asked))
    }

    /// The archive that an index names. Its address is the repository's word, and so are versions.
    async fn entry(
        self: &Arc<Self>,
        repo: &SafeUrl,
        chart: &str,
        entry: &Entry,
        access: &Access,
        since: Option<Instant>,
    ) -> Result<FetchedAt, FetchError> {
        let fetched = self.fetch_named(repo, chart, entry, access, since).await;
        fetched.map_err(|error| echoed::named(error, repo, &shown_to(repo, access)))
    }

    async fn fetch_named(
        self: &Arc<Self>,
        repo: &SafeUrl,
        chart: &str,
        entry: &Entry,
        access: &Access,
        since: Option<Instant>,
    ) -> Result<FetchedAt, FetchError> {
        let url = reference::chart_url(repo, chart, entry)?;
        let (mut fetched, asked) = if url.scheme() == "oci" {
            let reference = Reference::parse(url.as_str())?;
            let access = access.without_own();
            let named_by = NamedBy::Index(repo);
            self.fetch_pulled(&reference, &entry.version, named_by, &access, since)
                .await?
        } else {
            let checksum = Checksum::from_index(&entry.digest);
            self.archive(&url, repo, checksum, access, since).await?
        };
        fetched.version.clone_from(&entry.version);
        Ok((fetched, asked))
    }
}

/// What a repository is shown when its index is asked for.
fn shown_to(repo: &SafeUrl, access: &Access) -> ShownSecrets {
    let index = reference::index_url(repo);
    ShownSecrets::of(access.at(&index, repo).credentials()).and_of(&index)
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
