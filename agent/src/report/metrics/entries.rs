//! How many entries the maps hold that remember something of bundles, releases and accounts: what grows without bound shows here
//! long before it shows in the memory of the process.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Kinds of remembered entries, and how many of each.
pub type Entries = Vec<(&'static str, usize)>;

type Count = Arc<dyn Fn() -> Entries + Send + Sync>;

/// Counts entries when metrics are read; nothing is counted in between.
#[derive(Clone, Default)]
pub(super) struct EntryCount(Arc<Mutex<Option<Count>>>);

/// Entries are counted as long as it lives.
#[must_use]
pub struct Counting(EntryCount);

impl Drop for Counting {
    fn drop(&mut self) {
        *self.0.0.lock() = None;
    }
}

impl fmt::Debug for EntryCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EntryCount")
    }
}

impl EntryCount {
    pub(super) fn begin(&self, count: impl Fn() -> Entries + Send + Sync + 'static) -> Counting {
        *self.0.lock() = Some(Arc::new(count));
        Counting(self.clone())
    }

    pub(super) fn now(&self) -> Entries {
        let count = self.0.lock().clone();
        count.map(|count| count()).unwrap_or_default()
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let family = Family::<[(&str, &str); 1], Gauge>::default();
        for (map, count) in self.now() {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            family.get_or_create(&[("map", map)]).set(count);
        }
        registry.register(
            "fleet_agent_remembered_entries",
            "What is remembered of bundles, releases and accounts, by map",
            family,
        );
    }
}
