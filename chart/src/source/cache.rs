//! A small memory, bounded in bytes, of which the least recently used goes first; and doing a thing once, however many ask for it before it
//! is there to be remembered.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;
use tokio::time::Instant;

/// What an entry takes besides what its key and its value point to: many small ones must not be free.
const ENTRY_BYTES: usize = 512;

/// A cached value that knows its size, so that no part of it is forgotten where it is put in.
pub(super) trait Weigh {
    /// Bytes that it points to, about: what it takes besides its own size.
    fn weight(&self) -> usize;
}

impl Weigh for String {
    fn weight(&self) -> usize {
        self.len()
    }
}

impl Weigh for Instant {
    fn weight(&self) -> usize {
        0
    }
}

/// Values by key. An entry heavier than a quarter of the whole is not kept at all, so that
/// one giant cannot evict everything else.
pub(super) struct Cache<K, V> {
    capacity_bytes: usize,
    inner: Mutex<Inner<K, V>>,
}

struct Inner<K, V> {
    entries: HashMap<K, Entry<V>>,
    bytes: usize,
    clock: u64,
}

struct Entry<V> {
    value: V,
    bytes: usize,
    used: u64,
}

impl<K: Eq + Hash + Clone + Weigh, V: Clone + Weigh> Cache<K, V> {
    pub(super) fn new(capacity_bytes: usize) -> Self {
        let inner = Inner {
            entries: HashMap::new(),
            bytes: 0,
            clock: 0,
        };
        Self {
            capacity_bytes,
            inner: Mutex::new(inner),
        }
    }

    pub(super) fn get(&self, key: &K) -> Option<V> {
        let mut inner = self.inner.lock();
        inner.clock += 1;
        let now = inner.clock;
        let entry = inner.entries.get_mut(key)?;
        entry.used = now;
        Some(entry.value.clone())
    }

    pub(super) fn put(&self, key: K, value: V) {
        let mut inner = self.inner.lock();
        inner.remove(&key);
        let own = size_of::<(K, V)>().max(ENTRY_BYTES);
        let bytes = own + key.weight() + value.weight();
        if bytes > self.capacity_bytes / 4 {
            return;
        }
        while inner.bytes + bytes > self.capacity_bytes {
            let oldest = inner.entries.iter().min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                break;
            };
            inner.remove(&oldest);
        }
        inner.clock += 1;
        let used = inner.clock;
        inner.bytes += bytes;
        inner.entries.insert(key, Entry { value, bytes, used });
    }
}

impl<K: Eq + Hash, V> Inner<K, V> {
    fn remove(&mut self, key: &K) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.bytes;
        }
    }
}

/// Running work by key. Whoever asks while it runs waits for the same result.
///
/// The work goes on as long as one of those who wait is still there; when the last one leaves it
/// is dropped, and the next one starts afresh.
pub(super) struct SingleFlight<K, T: Clone> {
    running: Mutex<HashMap<K, WeakShared<BoxFuture<'static, T>>>>,
}

impl<K, T: Clone> Default for SingleFlight<K, T> {
    fn default() -> Self {
        Self {
            running: Mutex::default(),
        }
    }
}

impl<K: Eq + Hash + Clone, T: Clone + Send + Sync + 'static> SingleFlight<K, T> {
    /// Joins the work under `key`, or starts it.
    pub(super) async fn run<F>(&self, key: K, start: impl FnOnce() -> F) -> T
    where
        F: Future<Output = T> + Send + 'static,
    {
        let flight = self.join(&key, start);
        let result = flight.await;
        let mut running = self.running.lock();
        // Finished or abandoned work upgrades to nothing worth joining.
        running.retain(|_, weak| weak.upgrade().is_some_and(|shared| shared.peek().is_none()));
        result
    }

    fn join<F>(&self, key: &K, start: impl FnOnce() -> F) -> Shared<BoxFuture<'static, T>>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut running = self.running.lock();
        if let Some(flight) = running.get(key).and_then(WeakShared::upgrade)
            && flight.peek().is_none()
        {
            return flight;
        }
        let flight = start().boxed().shared();
        if let Some(weak) = flight.downgrade() {
            running.insert(key.clone(), weak);
        }
        flight
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    impl Weigh for &str {
        fn weight(&self) -> usize {
            0
        }
    }

    /// A value of so many entries' weight.
    impl Weigh for usize {
        fn weight(&self) -> usize {
            self * ENTRY_BYTES
        }
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let cache = Cache::new(100 * ENTRY_BYTES);
        for key in ["0", "1", "2", "3"] {
            cache.put(key, 24);
        }
        assert_eq!(cache.get(&"0"), Some(24));
        cache.put("4", 19);
        assert_eq!(
            (cache.get(&"0"), cache.get(&"1"), cache.get(&"4")),
            (Some(24), None, Some(19))
        );
    }

    #[test]
    fn a_value_larger_than_the_cache_is_not_cached() {
        let cache = Cache::new(100 * ENTRY_BYTES);
        cache.put("small", 20);
        cache.put("giant", 90);
        assert_eq!((cache.get(&"small"), cache.get(&"giant")), (Some(20), None));
    }

    #[test]
    fn empty_entries_cost_their_overhead_and_long_keys_their_length() {
        let kept = |length: usize| {
            let cache = Cache::new(100 * ENTRY_BYTES);
            for at in 0..1000 {
                cache.put(format!("{at:0length$}"), 0);
            }
            cache.inner.lock().entries.len()
        };
        assert_eq!(kept(0), 99);
        assert_eq!(kept(4 * ENTRY_BYTES), 20);
    }

    #[test]
    fn replacing_frees_the_old_weight() {
        let cache = Cache::new(100 * ENTRY_BYTES);
        for _ in 0..50 {
            cache.put("key", 24);
        }
        cache.put("other", 23);
        assert_eq!(cache.get(&"key"), Some(24));
    }

    #[tokio::test]
    async fn all_callers_get_the_result_of_one_download() {
        let flights = Arc::new(SingleFlight::<&str, usize>::default());
        let runs = Arc::new(AtomicUsize::new(0));
        let ask = || {
            let (flights, runs) = (Arc::clone(&flights), Arc::clone(&runs));
            async move {
                flights
                    .run("chart", || async move {
                        for _ in 0..1000 {
                            tokio::task::yield_now().await;
                        }
                        runs.fetch_add(1, Ordering::SeqCst) + 1
                    })
                    .await
            }
        };
        let answers = futures_util::future::join_all((0..50).map(|_| ask())).await;
        assert_eq!(answers, vec![1; 50]);
        assert_eq!(ask().await, 2, "finished work is not handed out again");
        assert!(flights.running.lock().is_empty());
    }

    #[tokio::test]
    async fn a_cancelled_download_is_started_again_by_the_next_caller() {
        let flights = SingleFlight::<&str, u8>::default();
        let stuck = flights.run("k", futures_util::future::pending);
        assert!(stuck.now_or_never().is_none());
        assert_eq!(flights.run("k", || async { 7 }).await, 7);
    }
}
