//! Live objects across bundles: which bundle has or wants each, which a list of their kind holds, and which events came while
//! bundles are reconciled. No I/O.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use objects::ObjectKey;

use super::changes::WatchEvent;

/// The bundles that have an object, or want it: an event concerns a few of thousands. Their names by what their objects' keys
/// hash to, which is shorter than the keys: another object's holder may be among those of one.
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

/// What a list of a kind holds, which may be any number of objects: hashes of the objects' keys, and of the keys with
/// their sets' hashes, as the keys are longer.
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

    /// How many objects the list holds.
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether the list holds the object.
    pub(super) fn has(&self, object: &ObjectKey) -> bool {
        self.objects.contains(&self.keys.hash_one(object))
    }

    /// Whether the list holds the object with this set hash.
    pub(super) fn has_with(&self, hash: &str, object: &ObjectKey) -> bool {
        let key = self.keys.hash_one((hash, object));
        self.with_hashes.contains(&key)
    }
}

/// Limit on the objects with events: whoever may create objects of a kind that is watched chooses how many there are.
pub(super) const MAX_EVENTS: usize = 4096;

/// The last event of each object since the oldest reconcile that is under way began. Events and beginnings are numbered together.
#[derive(Debug, Default)]
pub(super) struct RecentEvents {
    now: u64,
    events: HashMap<ObjectKey, Reported>,
    /// When the reconciles began that are under way.
    under_way: BTreeSet<u64>,
    /// Events up to this number were dropped.
    forgotten: u64,
}

/// An event: the object's hash, and its version, or that it was deleted.
#[derive(Debug)]
struct Reported {
    at: u64,
    hash: String,
    version: Option<String>,
}

impl Reported {
    /// The event as a bundle with this set hash sees it.
    fn for_bundle(&self, hash: &str) -> WatchEvent {
        match &self.version {
            None => WatchEvent::Gone,
            Some(version) if self.hash == hash => WatchEvent::There(version.clone()),
            Some(version) => WatchEvent::Foreign(version.clone()),
        }
    }
}

impl RecentEvents {
    /// A reconcile begins.
    pub(super) fn begin(&mut self) -> u64 {
        self.now += 1;
        self.under_way.insert(self.now);
        self.now
    }

    /// The reconcile that began then needs no more events.
    pub(super) fn end(&mut self, begun: u64) {
        self.under_way.remove(&begun);
        match self.under_way.first().copied() {
            None => self.events = HashMap::new(),
            Some(oldest) if oldest > begun => {
                self.events.retain(|_, reported| reported.at > oldest)
            }
            Some(_) => {}
        }
    }

    /// When the last event was, or the last beginning.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Whether a reconcile is under way that began no later than then.
    pub(super) fn is_any_older(&self, than: u64) -> bool {
        self.under_way.first().is_some_and(|oldest| *oldest <= than)
    }

    /// Keeps an event, if any reconcile is under way. Where there are too many, the older half is dropped.
    pub(super) fn note(&mut self, hash: &str, object: &ObjectKey, version: Option<&str>) {
        if self.under_way.is_empty() {
            return;
        }
        self.now += 1;
        let reported = Reported {
            at: self.now,
            hash: hash.to_owned(),
            version: version.map(str::to_owned),
        };
        self.events.insert(object.clone(), reported);
        if self.events.len() > MAX_EVENTS {
            let mut times: Vec<u64> = self.events.values().map(|reported| reported.at).collect();
            let (_, middle, _) = times.select_nth_unstable(MAX_EVENTS / 2);
            self.forgotten = *middle;
            self.events
                .retain(|_, reported| reported.at > self.forgotten);
        }
    }

    /// Events for a bundle with this hash since its reconcile began; nothing is known where some of them were dropped.
    pub(super) fn since(
        &self,
        begun: u64,
        hash: &str,
    ) -> Option<impl Iterator<Item = (&ObjectKey, WatchEvent)>> {
        let later = self
            .events
            .iter()
            .filter(move |(_, reported)| reported.at > begun);
        let reported = later.map(move |(object, reported)| (object, reported.for_bundle(hash)));
        (begun > self.forgotten).then_some(reported)
    }

    /// How many events are kept.
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }
}
