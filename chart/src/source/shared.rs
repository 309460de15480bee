//! What all fetches share: connections, what is remembered, and what is under way.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use super::access::Fingerprint;
use super::cache::Cache;
use super::disk::Disk;
use super::error::FetchError;
use super::fetched::{FetchedChart, Vouchers};
use super::flight::Flights;
use super::http::Http;
use super::kept::{Answered, IndexKey, Kept, KeptIndex, Key};
use super::reference::ChartRef;
use super::settings::Settings;

/// What is remembered of the forms of indexes: some hundred of them.
const READ_AS_A_WHOLE_BYTES: usize = 128 << 10;

pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) http: Http,
    pub(super) disk: Option<Arc<Disk>>,
    pub(super) indexes: Cache<IndexKey, KeptIndex>,
    /// Since when indexes are known to be in a form that only makes sense as a whole.
    pub(super) read_as_a_whole: Cache<IndexKey, Instant>,
    pub(super) archives: Cache<Key, Kept<FetchedChart>>,
    pub(super) vouchers: Cache<Key, Vouchers>,
    /// What the next downloads of indexes are to be about.
    pub(super) wanted: Mutex<HashMap<IndexKey, WantedCharts>>,
    pub(super) index_flights: Flights<IndexKey, Result<KeptIndex, FetchError>>,
    pub(super) chart_flights: Flights<(ChartRef, Fingerprint), Result<Answered, FetchError>>,
    pub(super) archive_flights: Flights<Key, Result<Kept<FetchedChart>, FetchError>>,
}

/// What an index is asked for.
#[derive(Default)]
pub(super) struct WantedCharts {
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
            let opened = opened.inspect_err(
                |error| tracing::warn!(%directory, %error, "no charts are kept on disk"),
            );
            opened.ok().map(Arc::new)
        });
        Self {
            http,
            disk,
            wanted: Mutex::default(),
            indexes: Cache::new(settings.cache_bytes),
            read_as_a_whole: Cache::new(READ_AS_A_WHOLE_BYTES),
            archives: Cache::new(settings.cache_bytes),
            vouchers: Cache::new(settings.cache_bytes / 4),
            index_flights: Flights::default(),
            chart_flights: Flights::default(),
            archive_flights: Flights::default(),
            settings,
        }
    }
}
