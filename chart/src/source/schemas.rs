//! Schemas that stand at an address, for [`RemoteSchemas`].

use std::time::Duration;

use super::access::Access;
use super::error::FetchError;
use super::fetcher::Fetcher;
use super::safe_url::SafeUrl;
use super::settings::Settings;
use crate::values::schema::RemoteSchemas;

/// The largest schema taken.
const MAX_BYTES: u64 = 4 << 20;

/// Gets schemas over HTTP, without credentials, as Helm does: each has 15 s. Nothing is remembered.
#[derive(Debug, Clone)]
pub struct SchemaFetcher(Settings);

impl SchemaFetcher {
    /// Proxies, trust and `User-Agent` are those of `settings`.
    ///
    /// ```no_run
    /// use chart::source::{SchemaFetcher, Settings};
    /// use chart::{Warnings, loader, values::schema};
    ///
    /// let chart = loader::load("web".as_ref(), &mut Warnings::default())?;
    /// let remote = SchemaFetcher::new(Settings::from_environment());
    /// schema::validate(&chart, &chart.values, Some(&remote), &mut Warnings::default())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(settings: Settings) -> Self {
        Self(Settings {
            timeout: Duration::from_secs(15),
            retries: 0,
            max_archive_bytes: MAX_BYTES,
            ..settings
        })
    }

    /// The texts are Helm's.
    async fn get(&self, address: &str) -> Result<Vec<u8>, String> {
        let url = SafeUrl::parse(address).map_err(|error| {
            // An address that cannot be parsed may hold a password anywhere.
            format!("failed to create HTTP request: {error}")
        })?;
        let answer = Fetcher::new(self.0.clone())
            .get(&url, &Access::default())
            .await;
        answer.map(Vec::from).map_err(|error| match error {
            FetchError::Status { status, .. } => {
                let known = http::StatusCode::from_u16(status).ok();
                let reason = known.and_then(|status| status.canonical_reason());
                let reason = reason.unwrap_or_default();
                format!("HTTP request to {url} returned status {status} ({reason})")
            }
            error => format!("HTTP request failed for {url}: {error}"),
        })
    }
}

impl RemoteSchemas for SchemaFetcher {
    fn fetch(&self, url: &str) -> Result<Vec<u8>, String> {
        // The caller may be inside a runtime, which must not be waited in.
        std::thread::scope(|scope| {
            let get = || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .map_err(|error| error.to_string())?;
                runtime.block_on(self.get(url))
            };
            let thread = std::thread::Builder::new().name("schema".to_owned());
            let thread = thread
                .spawn_scoped(scope, get)
                .map_err(|error| error.to_string())?;
            let ended = thread.join();
            ended.unwrap_or_else(|_| Err("fetching it ended without an answer".to_owned()))
        })
    }
}
