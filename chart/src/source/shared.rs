//! What all fetches share: connections, what is remembered, and what is under way.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use logging::Name;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::access::Fingerprint;
use super::cache::Cache;
use super::cached::{Cached, CachedIndex, FetchedAt, IndexKey, Key};
use super::disk::Disk;
use super::error::FetchError;
use super::fetched::{FetchedChart, Vouchers};
use super::http::Http;
use super::reference::ChartRef;
use super::settings::Settings;
use super::single_flight::SingleFlight;

/// What is remembered of the forms of indexes: some hundred of them.
const READ_AS_A_WHOLE_BYTES: usize = 128 << 10;

pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) http: Http,
    pub(super) disk: Option<Arc<Disk>>,
    pub(super) indexes: Cache<IndexKey, CachedIndex>,
    /// Since when indexes are known to be in a form that only makes sense as a whole.
    pub(super) read_as_a_whole: Cache<IndexKey, Instant>,
    pub(super) archives: Cache<Key, Cached<FetchedChart>>,
    pub(super) vouchers: Cache<Key, Vouchers>,
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
    pub(super) fn new(http: Http, settings: Settings) -> Self {
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
            vouchers: Cache::new(settings.cache_bytes / 4),
            index_flights: SingleFlight::default(),
            chart_flights: SingleFlight::default(),
            archive_flights: SingleFlight::default(),
            settings,
        }
    }
}
