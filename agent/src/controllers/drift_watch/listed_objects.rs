//! Which objects a list of a kind holds: there may be any number of them. No I/O.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

use objects::ObjectKey;

/// What a list of a kind holds: hashes of the objects' keys, and of the keys with their sets' hashes, as the keys are longer.
#[derive(Default)]
pub(super) struct ListedObjects {
    keys: RandomState,
    objects: HashSet<u64>,
    with_hashes: HashSet<u64>,
}

impl ListedObjects {
    pub(super) fn insert(&mut self, hash: &str, object: &ObjectKey) {
        self.objects.insert(self.keys.hash_one(object));
        self.with_hashes.insert(self.keys.hash_one((hash, object)));
    }

    /// Whether it holds an object.
    pub(super) fn has(&self, object: &ObjectKey) -> bool {
        self.objects.contains(&self.keys.hash_one(object))
    }

    /// The same with this hash.
    pub(super) fn has_with(&self, hash: &str, object: &ObjectKey) -> bool {
        let key = self.keys.hash_one((hash, object));
        self.with_hashes.contains(&key)
    }
}
