//! The BundleDeployments of this cluster as the watch last had them, and what we remember of each.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use kube::api::ObjectMeta;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::claims::{self, Claimant, ReleaseId};
use super::conditions::DEPLOYED;
use super::relevant_change::is_relevant_change;
use super::spec_identity::SpecIdentity;
use super::suspension::suspend_reason;
use super::{bundle_state, dependencies};
use crate::api::{BundleDeployment, BundleDeploymentStatus};
use crate::ledger::{Ledger, ReleaseKey};
use crate::report::metrics::Entries;

/// So many bundles that vanish one soon after the other may have been lost together.
const MANY: usize = 3;

/// The versions seen of all bundles: a list that begins later and contradicts them is of an upstream that was restored from a backup.
#[derive(Debug, Default)]
pub struct SeenVersions {
    /// Of each bundle its UID and version; nothing of one that could not be read.
    objects: BTreeMap<String, Option<(Option<String>, u64)>>,
    /// The version of the last event. All earlier versions were delivered.
    told_until: u64,
}

impl SeenVersions {
    /// Whether an object that was listed later is in a state of before, or of a past that was never delivered. Of one name versions never go back,
    /// not even where it is made anew.
    pub fn is_older(&self, listed: &ObjectMeta) -> bool {
        let Some(version) = version(listed) else {
            return false;
        };
        match listed.name.as_ref().and_then(|name| self.objects.get(name)) {
            Some(None) => false,
            Some(Some((uid, seen))) if version == *seen => *uid != listed.uid,
            Some(Some((_, seen))) if version < *seen => true,
            Some(Some(_)) | None => version <= self.told_until,
        }
    }
}

/// The version of an object; nothing where it is no number.
fn version(metadata: &ObjectMeta) -> Option<u64> {
    metadata.resource_version.as_ref()?.parse().ok()
}

/// Whether what a bundle wants cannot have changed.
fn wants_the_same(one: &BundleDeployment, other: &BundleDeployment) -> bool {
    one.metadata.annotations == other.metadata.annotations
        && one.metadata.labels == other.metadata.labels
        && one.spec == other.spec
}

/// The bundles; shared by reference.
#[derive(Debug, Default)]
pub struct Store {
    inner: Mutex<Inner>,
    /// Whether a list has ended.
    is_whole: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Inner {
    bundles: BTreeMap<String, Arc<BundleDeployment>>,
    /// Named by the server but not readable: neither deployed nor removed.
    malformed: HashSet<String>,
    /// The watch broke off, and has delivered nothing since.
    is_broken_off: bool,
    /// Names seen by the list in progress.
    relisting: Option<HashSet<String>>,
    /// The versions seen before the running list began.
    before_list: SeenVersions,
    /// Whether a list since had an object that is older than it was seen to be: what the list has of it is all that is known afterwards.
    is_older_listed: bool,
    /// The version of the last event, or the highest of a list that has ended. Not that of an answer to a write: others were written before it.
    told_until: u64,
    /// The highest of the list in progress so far.
    listed_until: u64,
    /// Statuses as we last wrote them.
    written: BTreeMap<String, BundleDeploymentStatus>,
    /// Releases that bundles want, as their `${ }` said when they were filled in last.
    filled: BTreeMap<String, ReleaseKey>,
    /// Deleted in front of our eyes, on a live watch.
    deleted: BTreeMap<String, Instant>,
    /// Since when bundles are missed.
    missing: BTreeMap<String, Instant>,
    /// Those of them that are proven to be gone, by what is known now.
    proven_gone: BTreeSet<String>,
    /// The last [`MANY`] that vanished, each once, the latest last.
    vanished: VecDeque<(String, Instant)>,
    /// Bundles that are gone and whose last spec said `keepResources`.
    kept: HashSet<String>,
}

impl Store {
    /// The bundle, if it exists.
    pub fn get(&self, name: &str) -> Option<Arc<BundleDeployment>> {
        self.inner.lock().bundles.get(name).cloned()
    }

    /// All bundles.
    pub fn all(&self) -> Vec<Arc<BundleDeployment>> {
        self.inner.lock().bundles.values().cloned().collect()
    }

    /// The names that the server listed, readable or not.
    pub fn names(&self) -> BTreeSet<String> {
        let inner = self.inner.lock();
        let names = inner.bundles.keys().chain(&inner.malformed);
        names.cloned().collect()
    }

    /// Whether the server listed this name, readable or not.
    pub fn is_listed(&self, name: &str) -> bool {
        let inner = self.inner.lock();
        inner.bundles.contains_key(name) || inner.malformed.contains(name)
    }

    /// Whether a bundle may be there without being in the store: the server listed it but it is unreadable, or the list is still coming.
    pub fn may_hide(&self, name: &str) -> bool {
        let inner = self.inner.lock();
        !inner.bundles.contains_key(name)
            && (inner.malformed.contains(name) || inner.relisting.is_some())
    }

    /// Whether a list is still coming.
    pub fn is_listing(&self) -> bool {
        self.inner.lock().relisting.is_some()
    }

    /// The watch broke off, or was ended: upstream's changes are delivered once it is back, which no answer to another request shows.
    pub fn breaks_off(&self) {
        self.inner.lock().is_broken_off = true;
    }

    /// Whether the watch broke off and has delivered nothing since.
    pub fn is_broken_off(&self) -> bool {
        self.inner.lock().is_broken_off
    }

    /// Whether the watch has delivered a bundle as it is listed. One that cannot be read is delivered without its content.
    pub fn is_delivered(&self, name: &str, listed: &SpecIdentity) -> bool {
        let inner = self.inner.lock();
        match inner.bundles.get(name) {
            Some(delivered) => listed.is_of(&delivered.metadata),
            None => inner.malformed.contains(name),
        }
    }

    /// Waits until a list has ended: before that, a bundle that is not there may be one of those that are yet to be listed.
    ///
    /// # Cancellation
    /// Safe.
    pub async fn until_whole(&self) {
        let mut is_whole = self.is_whole.subscribe();
        // The channel cannot close: its sender lives as long as the store.
        let _ = is_whole.wait_for(|is_whole| *is_whole).await;
    }

    /// How long ago a DELETED event was seen of a bundle that has not come back.
    pub fn deleted_since(&self, name: &str) -> Option<Duration> {
        self.inner.lock().deleted.get(name).map(Instant::elapsed)
    }

    /// Since when a bundle that is not there is missed: since it left the store, or since the first call. An older list of upstream says
    /// nothing about it.
    pub fn missing_since(&self, name: &str) -> Instant {
        let mut inner = self.inner.lock();
        if let Some(since) = inner.missing.get(name) {
            return *since;
        }
        inner.vanished(name);
        let now = Instant::now();
        inner.missing.insert(name.to_owned(), now);
        now
    }

    /// The same where it is known, without its being missed from now on.
    pub fn known_missing_since(&self, name: &str) -> Option<Instant> {
        self.inner.lock().missing.get(name).copied()
    }

    /// The last bundles that vanished, each once: those of them that came back, too.
    pub fn vanished(&self) -> Vec<String> {
        let inner = self.inner.lock();
        let names = inner.vanished.iter().map(|(name, _)| name.clone());
        names.collect()
    }

    /// How long it is yet until fewer than [`MANY`] bundles have vanished within `settle`, those among them that are not `listed` any more and that
    /// the watch has not delivered; none where that is so.
    pub fn settles_in(&self, settle: Duration, listed: &BTreeSet<String>) -> Option<Duration> {
        let inner = self.inner.lock();
        let names = inner.bundles.keys().chain(&inner.malformed);
        let unlisted = names.filter(|name| !listed.contains(*name));
        if unlisted.count() + 1 >= MANY {
            return Some(settle);
        }
        let (_, first) = inner.vanished.front()?;
        let is_many = inner.vanished.len() >= MANY;
        let left = settle.checked_sub(first.elapsed());
        left.filter(|left| is_many && !left.is_zero())
    }

    /// Takes note of the release that a bundle wants, with its `${ }` filled in. Whether that is new.
    pub fn filled(&self, name: &str, desired: &ReleaseKey) -> bool {
        let mut inner = self.inner.lock();
        let is_template = inner
            .bundles
            .get(name)
            .is_some_and(|bundle| claims::is_template(bundle));
        if !is_template || inner.filled.get(name) == Some(desired) {
            return false;
        }
        inner.filled.insert(name.to_owned(), desired.clone());
        true
    }

    /// The release that a bundle wants, if that is known. What is deployed as its spec says is what it wants.
    pub fn desired(&self, bundle: &BundleDeployment) -> Option<ReleaseKey> {
        self.inner.lock().desired(bundle)
    }

    /// The release that a bundle wants as it is `now`, if that is known, whatever the watch has delivered.
    pub fn desired_by(&self, now: &BundleDeployment) -> Option<ReleaseKey> {
        if !claims::is_template(now) {
            return Some(claims::desired(now));
        }
        let inner = self.inner.lock();
        let delivered = inner.bundles.get(now.name())?;
        match wants_the_same(delivered, now) {
            true => inner.desired(delivered),
            false => None,
        }
    }

    /// Whether a bundle that is there wants a release, or may.
    pub fn may_want(&self, name: &str, key: &ReleaseKey) -> bool {
        let inner = self.inner.lock();
        match inner.bundles.get(name) {
            Some(bundle) => inner.desired(bundle).is_none_or(|desired| desired == *key),
            None => inner.malformed.contains(name),
        }
    }

    /// All bundles, with the releases they want.
    pub fn claimants(&self) -> Vec<Claimant> {
        let inner = self.inner.lock();
        let claimant = |bundle: &Arc<BundleDeployment>| Claimant {
            desired: inner.desired(bundle),
            bundle: Arc::clone(bundle),
        };
        inner.bundles.values().map(claimant).collect()
    }

    /// Remembers a status we are about to write, so that its own event wakes nobody.
    pub fn writing(&self, name: &str, status: &BundleDeploymentStatus) {
        let mut inner = self.inner.lock();
        inner.written.insert(name.to_owned(), status.clone());
    }

    /// The status as last written by us. Its own event brings nothing new after that: whom it concerns is woken now. Where the watch has told of what
    /// somebody wrote after that, or it is of another version of the bundle, it stays, and there is no answer: taken back, upstream would keep theirs, as
    /// nothing would seem to be left to write.
    #[must_use]
    pub fn wrote(&self, name: &str, answer: BundleDeployment) -> Option<Vec<String>> {
        let mut inner = self.inner.lock();
        let known = inner.bundles.get_mut(name).filter(|known| {
            known.metadata.uid == answer.metadata.uid
                && known.metadata.generation == answer.metadata.generation
        })?;
        let before = bundle_state::state(known);
        let (seen, answered) = (version(&known.metadata), version(&answer.metadata));
        if seen
            .zip(answered)
            .is_some_and(|(seen, answered)| answered < seen)
        {
            return None;
        }
        let is_newer = seen < answered;
        let known = Arc::make_mut(known);
        known.status = answer.status;
        if is_newer {
            known.metadata.resource_version = answer.metadata.resource_version;
        }
        Some(match bundle_state::state(known) == before {
            true => Vec::new(),
            false => inner.waiting_for(name),
        })
    }

    /// The versions of all bundles as they were seen last.
    pub fn versions(&self) -> SeenVersions {
        let inner = self.inner.lock();
        let read = inner.bundles.iter().map(|(name, bundle)| {
            let version = version(&bundle.metadata);
            let seen = version.map(|version| (bundle.metadata.uid.clone(), version));
            (name.clone(), seen)
        });
        let unread = inner.malformed.iter().map(|name| (name.clone(), None));
        SeenVersions {
            objects: read.chain(unread).collect(),
            told_until: inner.told_until,
        }
    }

    /// A list begins.
    pub fn relist(&self) {
        let seen = self.versions();
        let mut inner = self.inner.lock();
        inner.relisting = Some(HashSet::new());
        inner.listed_until = 0;
        inner.before_list = seen;
    }

    /// Whether a list that ended, or was cut off, had an object that is older than it was seen to be before; reported once.
    pub fn take_older_listed(&self) -> bool {
        std::mem::take(&mut self.inner.lock().is_older_listed)
    }

    /// A list ended: which bundles are gone since the one before.
    pub fn relisted(&self) -> Vec<String> {
        let mut inner = self.inner.lock();
        let Some(listed) = inner.relisting.take() else {
            return Vec::new();
        };
        inner.before_list = SeenVersions::default();
        inner.is_broken_off = false;
        // They may have been there while nobody watched.
        inner.proven_gone.clear();
        let gone: Vec<_> = inner
            .bundles
            .keys()
            .filter(|name| !listed.contains(*name))
            .cloned()
            .collect();
        for name in &gone {
            inner.gone(name);
            inner.written.remove(name);
        }
        inner.malformed.retain(|name| listed.contains(name));
        // Lower than before where upstream was restored.
        inner.told_until = std::mem::take(&mut inner.listed_until);
        drop(inner);
        self.is_whole.send_replace(true);
        gone
    }

    /// A bundle is there, new or changed: which ones that wakes.
    pub fn applied(&self, bundle: BundleDeployment) -> Vec<String> {
        let name = bundle.name().to_owned();
        let mut inner = self.inner.lock();
        inner.seen(&name);
        let version = version(&bundle.metadata).unwrap_or(0);
        match inner.relisting {
            Some(_) => {
                inner.is_older_listed |= inner.before_list.is_older(&bundle.metadata);
                inner.listed_until = inner.listed_until.max(version);
            }
            None => inner.told_until = inner.told_until.max(version),
        }
        inner.malformed.remove(&name);
        inner.kept.remove(&name);
        let written = inner.written.get(&name);
        let old = inner.bundles.get(&name);
        let wants_the_same = old.is_some_and(|old| wants_the_same(old, &bundle));
        let relevant = old.is_none_or(|old| is_relevant_change(old, &bundle, written));
        let state_changed =
            old.is_some_and(|old| bundle_state::state(old) != bundle_state::state(&bundle));
        inner.bundles.insert(name.clone(), Arc::new(bundle));
        if !wants_the_same {
            inner.filled.remove(&name);
        }
        let mut names = Vec::new();
        if relevant {
            names.push(name.clone());
        }
        if state_changed {
            names.extend(inner.waiting_for(&name));
        }
        names
    }

    /// A bundle is there but cannot be read: a removal of it that has begun is over.
    pub fn malformed(&self, name: &str) {
        let mut inner = self.inner.lock();
        inner.seen(name);
        inner.bundles.remove(name);
        inner.malformed.insert(name.to_owned());
    }

    /// A bundle was deleted while we watched.
    pub fn deleted(&self, name: &str) {
        let mut inner = self.inner.lock();
        inner.is_broken_off &= inner.relisting.is_some();
        inner.gone(name);
        inner.malformed.remove(name);
        inner.written.remove(name);
        inner.deleted.insert(name.to_owned(), Instant::now());
    }

    /// A removal was carried out or turned out to be none.
    pub fn forget_deletion(&self, name: &str) {
        let mut inner = self.inner.lock();
        inner.deleted.remove(name);
        inner.missing.remove(name);
        inner.proven_gone.remove(name);
        inner.kept.remove(name);
    }

    /// Those that are `listed` and that nobody has seen go since `at`, when that list was requested. They are not known to be missing any more, also where
    /// the watch has yet to tell of them.
    pub fn still_there(&self, listed: &BTreeSet<String>, at: Instant) -> BTreeSet<String> {
        let mut inner = self.inner.lock();
        let is_there = |name: &&String| inner.missing.get(*name).is_none_or(|since| *since <= at);
        let there: BTreeSet<String> = listed.iter().filter(is_there).cloned().collect();
        inner.deleted.retain(|name, _| !there.contains(name));
        inner.missing.retain(|name, _| !there.contains(name));
        inner.proven_gone.retain(|name| !there.contains(name));
        there
    }

    /// Takes note that a bundle which is missing is proven to be gone, until it is there again or its removal is held back. Whether that is news.
    /// Not of one that is missed for another time than `since`.
    pub fn note_proven_gone(&self, name: &str, since: Instant) -> bool {
        let mut inner = self.inner.lock();
        inner.missing.get(name) == Some(&since) && inner.proven_gone.insert(name.to_owned())
    }

    /// A bundle that had a release before `owner` took it, and may want it again: it is not there, or cannot be read, and not proven to be gone.
    pub fn missing_owner(&self, ledger: &Ledger, owner: &str, key: &ReleaseKey) -> Option<String> {
        let is_there = |bundle: &str| self.get(bundle).is_some();
        ledger.missing_owner(key, owner, is_there, |bundle| self.is_proven_gone(bundle))
    }

    /// The removal of bundles is held back.
    pub fn forget_proofs(&self, names: &BTreeSet<String>) {
        let mut inner = self.inner.lock();
        inner.proven_gone.retain(|name| !names.contains(name));
    }

    /// Whether that was noted of a bundle.
    pub fn is_proven_gone(&self, name: &str) -> bool {
        self.inner.lock().proven_gone.contains(name)
    }

    /// Upstream refuses to list: what looked like deletions may have been a loss.
    pub fn forget_deletions(&self) {
        let mut inner = self.inner.lock();
        inner.deleted.clear();
        inner.proven_gone.clear();
    }

    /// Whether a bundle that is gone wanted its objects to stay.
    pub fn kept_resources(&self, name: &str) -> bool {
        self.inner.lock().kept.contains(name)
    }

    /// How many bundles are remembered, of those that exist and of those that are gone.
    pub fn entries(&self) -> Entries {
        let inner = self.inner.lock();
        vec![
            ("bundles", inner.bundles.len()),
            ("malformed_bundles", inner.malformed.len()),
            ("written_statuses", inner.written.len()),
            ("filled_bundles", inner.filled.len()),
            ("deleted_bundles", inner.deleted.len()),
            ("missing_bundles", inner.missing.len()),
            ("bundles_that_keep_resources", inner.kept.len()),
        ]
    }
}

impl Inner {
    fn gone(&mut self, name: &str) {
        self.filled.remove(name);
        self.vanished(name);
        self.missing.insert(name.to_owned(), Instant::now());
        let keeps = |bundle: Arc<BundleDeployment>| bundle.spec.options.keep_resources;
        if self.bundles.remove(name).is_some_and(keeps) {
            self.kept.insert(name.to_owned());
        }
    }

    fn vanished(&mut self, name: &str) {
        self.vanished.retain(|(known, _)| known != name);
        self.vanished.push_back((name.to_owned(), Instant::now()));
        while self.vanished.len() > MANY {
            self.vanished.pop_front();
        }
    }

    fn desired(&self, bundle: &BundleDeployment) -> Option<ReleaseKey> {
        if !claims::is_template(bundle) {
            return Some(claims::desired(bundle));
        }
        let deployed = || {
            let (spec, status) = (&bundle.spec, &bundle.status);
            let is_deployed = spec.deployment_id == status.applied_deployment_id;
            let release = ReleaseId::parse(&status.release).filter(|_| is_deployed);
            release.map(|release| release.key())
        };
        self.filled.get(bundle.name()).cloned().or_else(deployed)
    }

    /// A bundle is there, whether or not it can be read: it is neither deleted nor missed, whatever was seen before.
    fn seen(&mut self, name: &str) {
        self.deleted.remove(name);
        self.missing.remove(name);
        self.proven_gone.remove(name);
        match &mut self.relisting {
            Some(listed) => {
                listed.insert(name.to_owned());
            }
            None => self.is_broken_off = false,
        }
    }

    /// Bundles held up by their dependencies, of which this one is one: its state may be what they wait for.
    fn waiting_for(&self, name: &str) -> Vec<String> {
        let Some(changed) = self.bundles.get(name) else {
            return Vec::new();
        };
        let waiting = self.bundles.values().filter(|bundle| {
            bundle.name() != name
                && !bundle.spec.depends_on.is_empty()
                && suspend_reason(&bundle.spec).is_none()
                && bundle.status.condition(DEPLOYED) == "False"
                && dependencies::is_on(bundle, changed)
        });
        waiting.map(|bundle| bundle.name().to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn bundle(value: serde_json::Value) -> BundleDeployment {
        serde_json::from_value(value).unwrap()
    }

    fn named(name: &str) -> BundleDeployment {
        bundle(json!({"metadata": {"name": name, "generation": 1}}))
    }

    /// A version of a bundle.
    fn seen(name: &str, uid: &str, version: &str) -> BundleDeployment {
        let metadata = json!({"name": name, "uid": uid, "resourceVersion": version});
        bundle(json!({"metadata": metadata}))
    }

    #[test]
    fn bundles_that_a_list_lacks_are_gone() {
        let store = Store::default();
        store.applied(named("a"));
        store.applied(named("b"));
        store.relist();
        store.applied(named("b"));
        assert_eq!(store.relisted(), ["a"]);
        assert!(!store.is_listed("a") && store.deleted_since("a").is_none());
    }

    #[test]
    fn versions_of_one_object_never_go_back() {
        let at = |uid, version| seen("a", uid, version);
        let store = Store::default();
        assert!(!store.versions().is_older(&at("1", "7").metadata));
        store.applied(at("1", "9"));
        let is_older = |uid, version| store.versions().is_older(&at(uid, version).metadata);
        assert!(is_older("1", "8") && !is_older("1", "9") && !is_older("1", "10"));
        // Made anew, and a version that says nothing.
        assert!(is_older("2", "9") && !is_older("2", "10") && !is_older("1", "x"));
        // The answer to a write comes before its event, and after that of a later one.
        assert_eq!(store.wrote("a", at("1", "12")), Some(Vec::new()));
        assert_eq!(store.wrote("a", at("1", "11")), None);
        assert!(is_older("1", "11") && !is_older("1", "12"));
    }

    /// Upstream was restored, and is as far as it was when it was seen last.
    #[test]
    fn an_unreported_object_with_an_old_version_shows_a_restored_upstream() {
        let at = |name, version| seen(name, name, version);
        let store = Store::default();
        store.relist();
        store.applied(at("a", "3"));
        let is_older = |name, version| store.versions().is_older(&at(name, version).metadata);
        // The list may have it yet.
        assert!(!is_older("b", "2"));
        store.applied(at("b", "5"));
        store.relisted();
        assert!(is_older("c", "4") && is_older("a", "5") && !is_older("c", "6"));
        store.applied(at("a", "8"));
        assert!(is_older("c", "8") && !is_older("c", "9") && !is_older("b", "5"));
        // An answer comes before the events of what was written before.
        assert_eq!(store.wrote("a", at("a", "20")), Some(Vec::new()));
        assert!(!is_older("b", "12"));
        // An object that cannot be read has no version that is known.
        store.malformed("b");
        assert!(!is_older("b", "5"));
        // The next list, of what was restored, is what there is.
        store.relist();
        store.applied(at("c", "4"));
        assert!(store.take_older_listed());
        store.relisted();
        assert!(is_older("d", "4") && !is_older("d", "5"));
    }

    /// Statuses are written while a list of several pages comes: what else was written before them is told by the watch after it.
    #[test]
    fn answers_to_writes_during_a_list_do_not_make_other_versions_old() {
        let at = |name, version| seen(name, name, version);
        let store = Store::default();
        store.relist();
        store.applied(at("a", "3"));
        assert_eq!(store.wrote("a", at("a", "20")), Some(Vec::new()));
        store.applied(at("b", "5"));
        store.relisted();
        let is_older = |name, version| store.versions().is_older(&at(name, version).metadata);
        assert!(!is_older("b", "12") && !is_older("c", "12") && is_older("c", "5"));
    }

    #[test]
    fn a_bundle_that_is_unreadable_or_not_listed_yet_may_be_there() {
        let store = Store::default();
        store.relist();
        store.applied(named("a"));
        assert!(store.may_hide("b") && !store.may_hide("a"));
        store.malformed("c");
        store.relisted();
        assert!(store.may_hide("c") && !store.may_hide("b"));
    }

    #[tokio::test]
    async fn a_store_is_whole_once_a_list_has_ended() {
        let store = Store::default();
        store.relist();
        store.applied(named("a"));
        assert!(store.until_whole().now_or_never().is_none());
        store.relist();
        assert!(store.until_whole().now_or_never().is_none());
        store.applied(named("a"));
        store.relisted();
        assert!(store.until_whole().now_or_never().is_some());
        store.relist();
        assert!(store.until_whole().now_or_never().is_some());
    }

    /// Of the pages of a list that breaks off nobody knows what the rest has.
    #[test]
    fn a_watch_that_broke_off_is_back_with_its_next_event_or_complete_list() {
        let store = Store::default();
        let events: [fn(&Store); 4] = [
            |store| drop(store.applied(named("a"))),
            |store| store.malformed("a"),
            |store| store.deleted("a"),
            |store| {
                store.relist();
                store.applied(named("a"));
                assert!(store.is_broken_off());
                store.relisted();
            },
        ];
        for events in events {
            store.breaks_off();
            assert!(store.is_broken_off());
            events(&store);
            assert!(!store.is_broken_off());
        }
    }

    #[test]
    fn the_desired_release_of_a_changed_bundle_is_known_unless_its_name_is_templated() {
        let named = |name: &str, version: u8| {
            bundle(json!({"metadata": {"name": "a"}, "spec": {
                "deploymentID": version.to_string(),
                "options": {"defaultNamespace": "apps", "helm": {"releaseName": name}},
            }}))
        };
        let key = |name: &str| {
            Some(ReleaseKey {
                namespace: "apps".into(),
                name: name.into(),
            })
        };
        let store = Store::default();
        let template = "${ .ClusterName }";
        store.applied(named(template, 1));
        store.filled("a", &key("edge").unwrap());
        assert_eq!(store.desired_by(&named("other", 1)), key("other"));
        assert_eq!(store.desired_by(&named(template, 1)), key("edge"));
        // The value of the name's `${ }` is not known by now.
        assert_eq!(store.desired_by(&named(template, 2)), None);
        let may_want = |name: &str| store.may_want("a", &key(name).unwrap());
        assert!(may_want("edge") && !may_want("other"));
        store.applied(named(template, 2));
        assert!(may_want("other"));
        store.malformed("a");
        assert!(may_want("other"));
        store.deleted("a");
        assert!(!may_want("other"));
    }

    #[test]
    fn a_malformed_bundle_still_counts_as_listed() {
        let store = Store::default();
        store.applied(named("a"));
        store.relist();
        store.malformed("a");
        assert!(store.relisted().is_empty());
        assert!(store.is_listed("a") && store.get("a").is_none());
    }

    #[test]
    fn our_own_status_write_queues_no_bundle() {
        let store = Store::default();
        assert_eq!(store.applied(named("a")), ["a"]);
        let mut own = named("a");
        own.status.release = "ns/a:1".into();
        store.writing("a", &own.status);
        assert!(store.applied(own).is_empty());
        assert_eq!(store.applied(named("a")), ["a"]);
    }

    #[test]
    fn a_dependency_that_changes_state_wakes_the_bundles_that_wait_for_it() {
        let store = Store::default();
        let waiting = |name: &str, dependency: Value| {
            bundle(json!({
                "metadata": {"name": name}, "spec": {"dependsOn": [dependency]},
                "status": {"conditions": [{"type": "Deployed", "status": "False"}]},
            }))
        };
        store.applied(waiting(
            "late",
            json!({"selector": {"matchLabels": {"team": "a"}}}),
        ));
        // This bundle waits for another dependency.
        store.applied(waiting("other", json!({"name": "second"})));
        let labelled = |name: &str| {
            let mut bundle = named(name);
            bundle.metadata.labels = Some([("team".to_owned(), "a".to_owned())].into());
            bundle
        };
        store.applied(labelled("first"));
        let mut ready = labelled("first");
        ready.status.ready = true;
        ready.status.non_modified = true;
        store.writing("first", &ready.status);
        assert_eq!(store.applied(ready.clone()), ["late"]);
        // The answer to the write says it first, as a rule, and once is enough.
        assert_eq!(store.wrote("first", ready.clone()), Some(Vec::new()));
        store.applied(labelled("first"));
        store.writing("first", &ready.status);
        assert_eq!(
            store.wrote("first", ready.clone()),
            Some(vec!["late".to_owned()])
        );
        assert!(store.applied(ready).is_empty());
    }

    /// Nothing would be written any more, and upstream would keep what the other writer said.
    #[test]
    fn an_answer_to_a_write_takes_back_no_later_status() {
        let at = |version: &str, ready: bool| -> BundleDeployment {
            bundle(
                json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": version}, "status": {"ready": ready}}),
            )
        };
        let known = |told: &str, answered: &str| {
            let store = Store::default();
            store.applied(at(told, false));
            let _ = store.wrote("a", at(answered, true));
            let known = store.get("a").unwrap();
            let version = known.metadata.resource_version.clone();
            (known.status.ready, version.unwrap_or_default())
        };
        assert_eq!(known("7", "6"), (false, "7".to_owned()));
        assert_eq!(known("7", "7"), (true, "7".to_owned()));
        assert_eq!(known("7", "8"), (true, "8".to_owned()));
        // Of such versions nobody knows which is later.
        assert_eq!(known("x", "w"), (true, "x".to_owned()));
    }

    #[test]
    fn keep_resources_outlives_the_bundle() {
        let store = Store::default();
        let keeper =
            json!({"metadata": {"name": "a"}, "spec": {"options": {"keepResources": true}}});
        store.applied(bundle(keeper));
        store.deleted("a");
        assert!(store.kept_resources("a"));
        store.applied(named("a"));
        store.deleted("a");
        assert!(!store.kept_resources("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_bundle_counts_as_missing_since_its_deletion() {
        let hour = Duration::from_secs(3600);
        let store = Store::default();
        store.applied(named("a"));
        // Waits while the bundle was there do not count.
        tokio::time::advance(hour).await;
        store.deleted("a");
        let left = Instant::now();
        // However late it is asked.
        tokio::time::advance(hour).await;
        assert_eq!(store.missing_since("a"), left);
        // The bundle comes back, and goes once more.
        store.applied(named("a"));
        tokio::time::advance(hour).await;
        store.relist();
        store.relisted();
        assert_eq!(store.missing_since("a"), Instant::now());
        // Never seen: from the first look on.
        let first = store.missing_since("b");
        tokio::time::advance(hour).await;
        assert_eq!(store.missing_since("b"), first);
    }

    #[test]
    fn the_desired_release_is_cached_until_its_names_change() {
        let key = |name: &str| ReleaseKey {
            namespace: "apps".into(),
            name: name.into(),
        };
        let templated = |text: &str| {
            bundle(json!({"metadata": {"name": "a"}, "spec": {"options": {
                "defaultNamespace": "apps", "helm": {"releaseName": text},
            }}}))
        };
        let store = Store::default();
        let known = |store: &Store| store.claimants()[0].desired.clone();
        store.applied(templated("${ .ClusterName }"));
        assert_eq!(known(&store), None);
        assert!(store.filled("a", &key("edge")) && !store.filled("a", &key("edge")));
        store.applied(templated("${ .ClusterName }"));
        assert_eq!(known(&store), Some(key("edge")));
        store.applied(templated("${ .ClusterNamespace }"));
        assert_eq!(known(&store), None);
        store.applied(templated("plain"));
        assert_eq!(known(&store), Some(key("plain")));
    }

    #[rstest]
    #[case::readable(|store: &Store| drop(store.applied(named("a"))))]
    #[case::unreadable(|store: &Store| store.malformed("a"))]
    fn a_bundle_that_comes_back_is_not_deleted(#[case] comes_back: impl Fn(&Store)) {
        let store = Store::default();
        store.applied(named("a"));
        store.deleted("a");
        assert!(store.deleted_since("a").is_some());
        comes_back(&store);
        assert!(store.deleted_since("a").is_none());
        // The bundle is deleted later, without an event.
        store.relist();
        store.relisted();
        assert!(store.deleted_since("a").is_none() && !store.is_listed("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn bundles_that_vanish_settle_once_few_of_them_have_vanished_for_a_while() {
        let (store, settle) = (Store::default(), Duration::from_secs(30));
        let second = Duration::from_secs(1);
        let settles_in = |store: &Store| store.settles_in(settle, &BTreeSet::new());
        for name in ["a", "b", "b"] {
            store.deleted(name);
            assert_eq!(settles_in(&store), None, "{name}");
        }
        tokio::time::advance(second).await;
        // By a list, as no agent ran when it went.
        let since = store.missing_since("c");
        assert_eq!(settles_in(&store), Some(settle - second));
        tokio::time::advance(second * 9).await;
        assert_eq!(store.missing_since("c"), since);
        store.deleted("d");
        assert_eq!(settles_in(&store), Some(settle - second * 10));
        tokio::time::advance(second * 20).await;
        assert_eq!(settles_in(&store), None);
        // Two that the list lacks are yet to be told of.
        store.applied(named("e"));
        assert_eq!(settles_in(&store), None);
        store.applied(named("f"));
        assert_eq!(settles_in(&store), Some(settle));
    }
}
