//! Go maps with string keys: references, shared by everyone who holds one. `set`, `unset` and `merge` change the map that
//! the caller passed, `.Values` included; templates rely on it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use super::cycles;
use super::drop::Children;
use super::size;
use super::types::{MAP, MapType};
use super::{Entries, Map, Str, Value};
use crate::error::Error;
use crate::memory::Held;

impl Map {
    /// An empty `map[string]interface {}`.
    ///
    /// ```
    /// use templating::{Map, Value};
    ///
    /// let values = Map::new();
    /// values.insert("replicas", Value::Int(3))?;
    /// assert!(values.contains_key("replicas"));
    /// # Ok::<(), templating::Error>(())
    /// ```
    pub fn new() -> Self {
        Self::typed(&MAP, BTreeMap::new())
    }

    /// A map of the given type; the values must be of its element type.
    ///
    /// ```
    /// use templating::value::STRING_MAP;
    /// use templating::{Map, Value};
    ///
    /// let labels = Map::typed(&STRING_MAP, [("env".into(), "prod".into())].into());
    /// assert_eq!(Value::Map(labels).type_name(), "map[string]string");
    /// ```
    pub fn typed(ty: &'static MapType, entries: BTreeMap<Str, Value>) -> Self {
        let held = Held::new(size::entries(entries.len()));
        Self {
            ty,
            entries: Some(Rc::new(Entries(RefCell::new(entries), held))),
        }
    }

    /// The nil map of a type: empty, `null` in JSON, and not to be written to.
    pub fn nil(ty: &'static MapType) -> Self {
        Self { ty, entries: None }
    }

    /// Whether this is the nil map of its type.
    pub fn is_nil(&self) -> bool {
        self.entries.is_none()
    }

    /// The Go type.
    pub fn map_type(&self) -> &'static MapType {
        self.ty
    }

    /// This map seen as another type with the same element type.
    pub fn with_type(&self, ty: &'static MapType) -> Self {
        Self {
            ty,
            entries: self.entries.clone(),
        }
    }

    /// Whether both values are references to one map.
    pub fn is_same(&self, other: &Map) -> bool {
        match (&self.entries, &other.entries) {
            (Some(a), Some(b)) => Rc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        }
    }

    /// Distinguishes this map from every other one alive.
    pub fn address(&self) -> usize {
        self.entries
            .as_ref()
            .map_or(0, |entries| Rc::as_ptr(entries).addr())
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.with(BTreeMap::len)
    }

    /// Whether the map has no entry; so it is with the nil map.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key. `None` when absent; a key that holds nil gives `Some(Value::Nil)`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Value> {
        self.with(|entries| entries.get(key.as_ref()).cloned())
    }

    /// Whether the map has an entry of this key, if only nil.
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> bool {
        self.with(|entries| entries.contains_key(key.as_ref()))
    }

    /// Sets a key, for every holder of this map.
    ///
    /// ```
    /// use templating::value::MAP;
    /// use templating::{Map, Value};
    ///
    /// let values = Map::new();
    /// values.insert("replicas", 3i64)?;
    /// assert_eq!(values.get("replicas").and_then(|value| value.as_signed()), Some(3));
    /// let refused = Map::nil(&MAP).insert("replicas", 3i64).unwrap_err();
    /// assert_eq!(refused.to_string(), "assignment to entry in nil map");
    /// # Ok::<(), templating::Error>(())
    /// ```
    ///
    /// # Errors
    /// A nil map cannot be written to (Go panics with the same words).
    pub fn insert(&self, key: impl Into<Str>, value: impl Into<Value>) -> Result<(), Error> {
        let Some(entries) = &self.entries else {
            return Err(Error::message("assignment to entry in nil map"));
        };
        let value = value.into();
        if Children::is_container(&value) {
            cycles::changed(entries);
        }
        let mut map = entries.0.borrow_mut();
        let old = map.insert(key.into(), value);
        if old.is_none() {
            entries.1.set(size::entries(map.len()));
        }
        drop(map);
        drop(old);
        Ok(())
    }

    /// Removes a key and gives back its value.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Option<Value> {
        let entries = self.entries.as_ref()?;
        let mut map = entries.0.borrow_mut();
        let old = map.remove(key.as_ref())?;
        entries.1.set(size::entries(map.len()));
        Some(old)
    }

    /// The keys, sorted by bytes.
    pub fn keys(&self) -> Vec<Str> {
        self.with(|entries| entries.keys().cloned().collect())
    }

    /// The entries as they are now, sorted by key.
    pub fn entries(&self) -> Vec<(Str, Value)> {
        self.with(|entries| {
            entries
                .iter()
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect()
        })
    }

    /// Looks at the entries without copying them. `read` must not change this map.
    ///
    /// ```
    /// let values = templating::Map::from_iter([("b", "2"), ("a", "1")]);
    /// let first = values.with(|entries| entries.keys().next().cloned());
    /// assert_eq!(first.unwrap().to_str_lossy(), "a");
    /// ```
    pub fn with<R>(&self, read: impl FnOnce(&BTreeMap<Str, Value>) -> R) -> R {
        match &self.entries {
            Some(entries) => read(&entries.0.borrow()),
            None => read(&BTreeMap::new()),
        }
    }

    pub(super) fn into_children(mut self) -> Vec<Value> {
        self.entries
            .take()
            .and_then(Rc::into_inner)
            .map_or(Vec::new(), |mut entries| entries.take())
    }
}

impl Entries {
    fn take(&mut self) -> Vec<Value> {
        let entries = std::mem::take(self.0.get_mut());
        entries.into_values().collect()
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        if self.0.get_mut().values().any(Children::is_container) {
            Children::release(self.take());
        }
    }
}

impl Default for Map {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Into<Str>, V: Into<Value>> FromIterator<(K, V)> for Map {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Self::typed(
            &MAP,
            entries
                .into_iter()
                .map(|(k, v)| (k.into(), v.into()))
                .collect(),
        )
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A map may contain itself, so its values are not shown.
        f.debug_set().entries(self.keys()).finish()
    }
}
