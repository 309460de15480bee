//! What every fetch has in common.

use std::sync::Arc;
use std::time::Duration;

use super::disk::DiskSettings;
use super::index::Strictness;
use super::memory::Memory;
use super::proxy::ProxyRules;

/// Settings shared by all fetches.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `User-Agent` of every request.
    pub user_agent: String,
    /// For a whole exchange, its retries included, and what it waits for `memory` not. Default 5 minutes, as Fleet.
    pub timeout: Duration,
    /// How often a passing failure is tried again at once. Default 2.
    pub retries: u32,
    /// Before the first retry; doubles each time. Default 200 ms.
    pub retry_pause: Duration,
    /// PEM certificates trusted everywhere, besides the system's.
    pub proxy_ca: Option<Arc<[u8]>>,
    /// Rules that send requests through a proxy. Default none.
    pub proxy: Option<Arc<ProxyRules>>,
    /// How strictly an index is read. Default as Fleet.
    pub strictness: Strictness,
    /// How long an index, a tag or an archive without digest is believed without asking again.
    /// Default one minute.
    pub fresh_for: Duration,
    /// Memory of the caches of charts and of indexes, each, in bytes. Default 16 MiB.
    pub cache_bytes: usize,
    /// Where fetched charts are kept for later processes. Default nowhere.
    pub disk: Option<DiskSettings>,
    /// The largest archive taken, compressed. Default 100 MiB: what Helm accepts unpacked.
    pub max_archive_bytes: u64,
    /// So much of an archive is unpacked to see whether it is whole, and how much it takes. Default 256 MiB: more than Helm accepts.
    pub max_unpacked_bytes: u64,
    /// The largest index taken. Default 100 MiB.
    pub max_index_bytes: u64,
    /// Memory budget of all downloads at once, and of others that reserve of it. Default 64 MiB.
    pub memory: Memory,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            user_agent: concat!("fleetagent/", env!("CARGO_PKG_VERSION")).to_owned(),
            timeout: Duration::from_secs(300),
            retries: 2,
            retry_pause: Duration::from_millis(200),
            proxy_ca: None,
            proxy: None,
            strictness: Strictness::Fleet,
            fresh_for: Duration::from_secs(60),
            cache_bytes: 16 << 20,
            disk: None,
            max_archive_bytes: 100 << 20,
            max_unpacked_bytes: 256 << 20,
            max_index_bytes: 100 << 20,
            memory: Memory::new(64 << 20),
        }
    }
}

impl Settings {
    /// The defaults, with `HTTP_PROXY`, `HTTPS_PROXY`, `NO_PROXY` and `PROXY_CA_BUNDLE` of the
    /// process.
    ///
    /// ```
    /// use chart::source::Settings;
    ///
    /// let settings = Settings { user_agent: "mirror/1.0".to_owned(), ..Settings::from_environment() };
    /// assert_eq!(settings.retries, Settings::default().retries);
    /// ```
    pub fn from_environment() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            proxy_ca: variable("PROXY_CA_BUNDLE").map(|pem| pem.into_bytes().into()),
            proxy: ProxyRules::from_variables(variable).map(Arc::new),
            ..Self::default()
        }
    }
}
