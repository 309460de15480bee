//! Which bundles have an object, or want it: an event concerns a few of thousands. No I/O.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use objects::ObjectKey;

/// Names of bundles by what their objects' keys hash to, which is shorter than the keys: another object's holder may be among those of one.
#[derive(Debug, Default)]
pub(super) struct Holders {
    keys: RandomState,
    names: BTreeSet<(u64, Arc<str>)>,
}

impl Holders {
    pub(super) fn insert(&mut self, object: &ObjectKey, bundle: &Arc<str>) {
        let key = self.keys.hash_one(object);
        self.names.insert((key, Arc::clone(bundle)));
    }

    pub(super) fn remove(&mut self, object: &ObjectKey, bundle: &Arc<str>) {
        let key = self.keys.hash_one(object);
        self.names.remove(&(key, Arc::clone(bundle)));
    }

    /// The bundles that may have this object.
    pub(super) fn of(&self, object: &ObjectKey) -> Vec<Arc<str>> {
        let key = self.keys.hash_one(object);
        let first: (u64, Arc<str>) = (key, Arc::from(""));
        let holders = self.names.range(first..).take_while(|(at, _)| *at == key);
        holders.map(|(_, name)| Arc::clone(name)).collect()
    }

    /// How many pairs of an object and a bundle there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }
}
