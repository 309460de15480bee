//! A small memory: bounded in bytes, the least recently used goes first.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

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
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.clock += 1;
        let now = inner.clock;
        let entry = inner.entries.get_mut(key)?;
        entry.used = now;
        Some(entry.value.clone())
    }

    pub(super) fn put(&self, key: K, value: V, bytes: usize) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.remove(&key);
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
        let cache = Cache::new(100);
        for key in 0..4 {
            cache.put(key, key, 25);
        }
        assert_eq!(cache.get(&0), Some(0));
        cache.put(4, 4, 20);
        assert_eq!(
            (cache.get(&0), cache.get(&1), cache.get(&4)),
            (Some(0), None, Some(4))
        );
    }

    #[test]
    fn a_value_larger_than_the_cache_is_not_cached() {
        let cache = Cache::new(100);
        cache.put("small", 1, 20);
        cache.put("giant", 2, 90);
        assert_eq!((cache.get(&"small"), cache.get(&"giant")), (Some(1), None));
    }

    #[test]
    fn replacing_frees_the_old_weight() {
        let cache = Cache::new(100);
        for _ in 0..50 {
            cache.put("key", 1, 25);
        }
        cache.put("other", 2, 25);
        assert_eq!(cache.get(&"key"), Some(1));
    }
}
