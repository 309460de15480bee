//! Texts that were parsed, kept for the sets of later renders.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::funcs::Functions;
use crate::parse::Tree;

/// Parsed texts that sets have in common: fifty releases of one chart parse it once. Shared by any number of threads;
/// what was not used for longest makes room.
///
/// ```
/// use bytes::Bytes;
/// use templating::{Dialect, TemplateCache};
///
/// let cache = TemplateCache::new(16 << 20);
/// for release in ["one", "two"] {
///     let mut set = Dialect::Helm.template_set(release);
///     set.parse_cached("a.yaml", Bytes::from_static(b"{{ .Values.a }}"), &cache)?; // the second time, nothing is parsed
/// }
/// # Ok::<(), templating::Error>(())
/// ```
#[derive(Debug)]
pub struct TemplateCache {
    /// In bytes.
    capacity: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    weight: usize,
    /// Counts uses.
    clock: u64,
    texts: HashMap<Key, Entry>,
}

/// All that parsing depends on, but for the functions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) text: Bytes,
    pub(super) delims: (String, String),
    pub(super) max_depth: usize,
}

#[derive(Debug)]
struct Entry {
    functions: Arc<Functions>,
    parsed: Parsed,
    used: u64,
}

/// What a text was parsed to.
#[derive(Debug, Clone)]
pub(super) struct Parsed {
    pub(super) trees: Arc<[Arc<Tree>]>,
    /// Of the trees, in bytes, about.
    pub(super) weight: usize,
}

impl Entry {
    /// With what it is kept under.
    fn weight(&self, key: &Key) -> usize {
        // The key and the trees share the text.
        self.parsed.weight + key.text.len() + key.name.len() + size_of::<(Key, Entry)>()
    }
}

impl TemplateCache {
    /// An empty cache that keeps at most about `capacity` bytes.
    ///
    /// ```
    /// let cache = templating::TemplateCache::new(4 << 20); // 4 MiB of texts and trees
    /// cache.clear();
    /// ```
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            kept: Mutex::default(),
        }
    }

    /// Lets go of everything.
    pub fn clear(&self) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Kept::default();
    }

    pub(super) fn get(&self, key: &Key, functions: &Arc<Functions>) -> Option<Parsed> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clock += 1;
        let now = kept.clock;
        let entry = kept.texts.get_mut(key)?;
        if !Arc::ptr_eq(&entry.functions, functions) {
            return None;
        }
        entry.used = now;
        Some(entry.parsed.clone())
    }

    pub(super) fn keep(&self, key: Key, functions: &Arc<Functions>, parsed: Parsed) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = Entry {
            functions: Arc::clone(functions),
            parsed,
            used: kept.clock,
        };
        let weight = entry.weight(&key);
        if weight > self.capacity {
            return;
        }
        kept.remove(&key);
        while kept.weight + weight > self.capacity {
            let oldest = kept.texts.iter().min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                break;
            };
            kept.remove(&oldest);
        }
        kept.weight += weight;
        kept.texts.insert(key, entry);
    }
}

impl Kept {
    fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.texts.remove(key) {
            self.weight -= entry.weight(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dialect, Error, TemplateSet};

    fn parse(cache: &TemplateCache, text: &str) -> Result<TemplateSet, Error> {
        let mut set = Dialect::Helm.template_set("set");
        set.parse_cached("page", Bytes::copy_from_slice(text.as_bytes()), cache)?;
        Ok(set)
    }

    fn same_tree(one: &TemplateSet, other: &TemplateSet) -> bool {
        let (one, other) = (one.tree("page").unwrap(), other.tree("page").unwrap());
        Arc::ptr_eq(one, other)
    }

    #[test]
    fn equal_texts_are_parsed_once() {
        let cache = TemplateCache::new(1 << 20);
        let first = parse(&cache, "{{ .a }}").unwrap();
        assert!(same_tree(&first, &parse(&cache, "{{ .a }}").unwrap()));
        assert!(!same_tree(&first, &parse(&cache, "{{ .b }}").unwrap()));
        cache.clear();
        assert!(!same_tree(&first, &parse(&cache, "{{ .a }}").unwrap()));
    }

    #[test]
    fn cached_templates_are_kept_apart_by_dialect() {
        let cache = TemplateCache::new(1 << 20);
        let text = Bytes::from_static(b"${ .a }{{ include \"x\" . }}");
        let mut helm = Dialect::Helm.template_set("set");
        helm.parse_cached("page", text.clone(), &cache).unwrap();
        // The other dialect has other delimiters, and no `include`.
        let mut fleet = Dialect::Fleet.template_set("set");
        fleet.parse_cached("page", text.clone(), &cache).unwrap();
        let mut plain = TemplateSet::new("set", Arc::new(Functions::builtin()));
        let refused = plain.parse_cached("page", text, &cache);
        assert!(refused.unwrap_err().to_string().contains("include"));
    }

    #[test]
    fn errors_are_not_kept() {
        let cache = TemplateCache::new(1 << 20);
        let first = parse(&cache, "{{ nosuch }}").unwrap_err().to_string();
        let again = parse(&cache, "{{ nosuch }}").unwrap_err().to_string();
        assert_eq!(first, again);
        assert_eq!(cache.kept.lock().unwrap().weight, 0);
    }

    #[test]
    fn the_least_recently_used_template_is_evicted() {
        let cache = TemplateCache::new(4 << 10);
        let first = parse(&cache, "{{ .often }}").unwrap();
        for n in 0..100 {
            parse(&cache, &format!("{{{{ .seldom{n} }}}}")).unwrap();
            assert!(same_tree(&first, &parse(&cache, "{{ .often }}").unwrap()));
        }
        let kept = cache.kept.lock().unwrap();
        assert!(kept.weight <= 4 << 10 && kept.texts.len() > 1);
        let weight: usize = kept.texts.iter().map(|(key, one)| one.weight(key)).sum();
        assert_eq!(weight, kept.weight);
    }
}
