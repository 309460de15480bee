//! A small memory: bounded in bytes, the least recently used goes first.

use std::collections::HashMap;
use std::hash::Hash;

use parking_lot::Mutex;
use tokio::time::Instant;

/// What an entry takes besides what its key and its value point to: many small ones must not be free.
const ENTRY_BYTES: usize = 512;

/// What is kept here knows what it takes, so that nothing of it is forgotten where it is put in.
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

#[cfg(test)]
mod tests {
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
}
