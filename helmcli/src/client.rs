//! Fetching for a command: one thing after the other, told as helm tells it.

use chart::source::{
    Access, ChartRef, Entry, FetchedChart, Fetcher, SafeUrl, Settings, Strictness,
};
use golib::strconv::quote;

use crate::console::say;
use crate::fetch_errors::message;

/// What helm says of tags with an underscore.
const UNDERSCORE: &str = "
OCI artifact references (e.g. tags) do not support the plus sign (+). To support
storing semantic versions, Helm adopts the convention of changing plus (+) to
an underscore (_) in chart version tags when pushing to a registry and back to
a plus (+) when pulling from a registry.";

/// An archive, and whom to ask for what vouches for it.
pub(crate) struct Fetched {
    pub(crate) chart: ChartRef,
    pub(crate) archive: FetchedChart,
    pub(crate) access: Access,
}

impl Fetched {
    pub(crate) fn new(repo: &str, chart: &str, archive: FetchedChart, access: Access) -> Self {
        let chart = ChartRef {
            repo: repo.to_owned(),
            chart: chart.to_owned(),
            version: String::new(),
        };
        Self {
            chart,
            archive,
            access,
        }
    }
}

/// Fetches, one thing after the other.
pub(crate) struct Client {
    runtime: tokio::runtime::Runtime,
    fetcher: Fetcher,
}

impl Client {
    /// A client that reads indexes as helm does.
    ///
    /// # Errors
    /// There is no room for a runtime.
    pub(crate) fn new() -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        let settings = Settings {
            strictness: Strictness::Helm,
            ..Settings::from_environment()
        };
        Ok(Self {
            runtime,
            fetcher: Fetcher::new(settings),
        })
    }

    /// Runs one fetch to its end.
    pub(crate) fn run<T>(&self, fetch: impl AsyncFnOnce(&Fetcher) -> T) -> T {
        self.runtime.block_on(fetch(&self.fetcher))
    }

    /// Pulls a chart from a registry, and tells so as helm does.
    ///
    /// # Errors
    /// It cannot be had; the text is helm's.
    pub(crate) fn pull(
        &self,
        reference: &str,
        version: &str,
        access: &Access,
    ) -> Result<FetchedChart, String> {
        let pulled = self.quietly(reference, version, access)?;
        // Registries know no `+`.
        let name = pulled.url.as_str().trim_start_matches("oci://");
        let name = name.replace('+', "_");
        say(&format!("Pulled: {name}"));
        let digest = pulled.manifest.as_deref().unwrap_or_default();
        say(&format!("Digest: {digest}"));
        if name.contains('_') {
            say(&format!("{name} contains an underscore.\n{UNDERSCORE}"));
        }
        Ok(pulled)
    }

    /// Pulls a chart from a registry that an index names.
    ///
    /// # Errors
    /// It cannot be had; the text is helm's.
    pub(crate) fn quietly(
        &self,
        reference: &str,
        version: &str,
        access: &Access,
    ) -> Result<FetchedChart, String> {
        let tag = reference
            .rsplit('/')
            .next()
            .and_then(|name| name.split_once(':'));
        if let Some((_, tag)) = tag.filter(|(_, tag)| tag.contains('+')) {
            return Err(format!("invalid reference: invalid tag {}", quote(tag)));
        }
        let chart = ChartRef {
            repo: reference.to_owned(),
            chart: String::new(),
            version: version.to_owned(),
        };
        let pulled = self.run(async |fetcher| fetcher.fetch(&chart, access).await);
        pulled.map_err(|error| message(&error))
    }

    /// Downloads an archive that the index of a repository names.
    ///
    /// # Errors
    /// It cannot be had; the text is helm's.
    pub(crate) fn archive(
        &self,
        repository: &str,
        url: &str,
        digest: &str,
        access: &Access,
    ) -> Result<FetchedChart, String> {
        let origin = SafeUrl::parse(repository)
            .map_err(|_| format!("invalid chart URL format: {repository}"))?;
        let entry = Entry {
            urls: Some(vec![url.to_owned()]),
            digest: digest.to_owned(),
            ..Entry::default()
        };
        self.run(async |fetcher| fetcher.fetch_entry(&origin, "", &entry, access).await)
            .map_err(|error| message(&error))
    }
}

/// What is at an address, for values files.
///
/// # Errors
/// It cannot be had.
pub(crate) fn get(url: &SafeUrl) -> Result<Vec<u8>, String> {
    let client = Client::new()?;
    let answer = client.run(async |fetcher| fetcher.get(url, &Access::default()).await);
    answer.map(Vec::from).map_err(|error| message(&error))
}
