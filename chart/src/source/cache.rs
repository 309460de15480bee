//! A small memory: bounded in bytes, the least recently used goes first.

use std::collections::HashMap;
use std::hash::Hash;

use parking_lot::Mutex;

/// What an entry takes besides its value: many small ones must not be free.
const ENTRY_BYTES: usize = 512;

/// Values with a weight. A value heavier than a quarter of the whole is not kept at all, so that
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

impl<K: Eq + Hash + Clone, V: Clone> Cache<K, V> {
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

    pub(super) fn put(&self, key: K, value: V, bytes: usize) {
        let mut inner = self.inner.lock();
        inner.remove(&key);
        let bytes = bytes.saturating_add(ENTRY_BYTES);
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

    #[test]
    fn the_least_recently_used_goes_first() {
        let cache = Cache::new(100 * ENTRY_BYTES);
        for key in 0..4 {
            cache.put(key, key, 24 * ENTRY_BYTES);
        }
        assert_eq!(cache.get(&0), Some(0));
        cache.put(4, 4, 19 * ENTRY_BYTES);
        assert_eq!(
            (cache.get(&0), cache.get(&1), cache.get(&4)),
            (Some(0), None, Some(4))
        );
    }

    #[test]
    fn a_value_larger_than_the_cache_is_not_cached() {
        let cache = Cache::new(100 * ENTRY_BYTES);
        cache.put("small", 1, 20 * ENTRY_BYTES);
        cache.put("giant", 2, 90 * ENTRY_BYTES);
        assert_eq!((cache.get(&"small"), cache.get(&"giant")), (Some(1), None));
    }

    #[test]
    fn empty_entries_cost_their_overhead() {
        let cache = Cache::new(100 * ENTRY_BYTES);
        for key in 0..1000 {
            cache.put(key, (), 0);
        }
        assert_eq!(cache.inner.lock().entries.len(), 100);
    }

    #[test]
    fn replacing_frees_the_old_weight() {
        let cache = Cache::new(100 * ENTRY_BYTES);
        for _ in 0..50 {
            cache.put("key", 1, 24 * ENTRY_BYTES);
        }
        cache.put("other", 2, 24 * ENTRY_BYTES);
        assert_eq!(cache.get(&"key"), Some(1));
    }
}
