//! Tracks which live objects changed since their bundle was last compared with them. No I/O.
//!
//! Versions are compared, not contents: an event of a version that the monitor has read is no change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use objects::ObjectKey;
use tokio::time::Instant;

use super::live_objects::{Holders, ListedObjects, RecentEvents};

/// Changes to a bundle that is not ready yet are compared this soon: it is probably becoming so.
const UNREADY_DELAY: Duration = Duration::from_millis(300);

/// But not more often than this: coming up takes several changes.
const UNREADY_PAUSE: Duration = Duration::from_secs(1);

/// An object that does not become ready is left alone for longer: for this part of the time that it was not.
const UNREADY_SHARE: u32 = 60;

/// Changes to a bundle that has been left alone for a while are compared this soon.
const READY_DELAY: Duration = Duration::from_millis(500);

/// So many changed objects of one bundle are known by name: whoever may create objects may give them its hash.
const MAX_CHANGES: usize = 4096;

/// A list of so many objects is kept for the reconciles that are under way; of a longer one nothing is known.
const MAX_LISTED: usize = 65_536;

/// The versions of one bundle's objects as the monitor read them; one that was not there has none.
pub type Seen = BTreeMap<ObjectKey, String>;

/// The bundles whose objects are watched.
#[derive(Default)]
pub(super) struct WatchedBundles {
    /// Names by set hash.
    by_hash: BTreeMap<String, Arc<str>>,
    by_name: BTreeMap<Arc<str>, WatchedBundle>,
    /// Of the objects that bundles have seen, or want.
    holders: Holders,
    /// Events to judge at the end of the reconciles that are under way.
    recent: RecentEvents,
}

/// A list of a kind.
struct CompletedList {
    /// Number of the last event before the list was complete.
    at: u64,
    /// None where the list was too long to be kept.
    objects: Option<Arc<ListedObjects>>,
}

#[derive(Default)]
struct WatchedBundle {
    hash: String,
    seen: Seen,
    /// Objects that it wants and another one has.
    foreign: BTreeSet<ObjectKey>,
    /// Since when the bundle is not ready; `None` where it is.
    unready_since: Option<Instant>,
    /// While a reconcile is under way: when it began. Events since then are judged by what the monitor reads.
    begun: Option<u64>,
    /// Objects that a list lacked since.
    missing: BTreeSet<ObjectKey>,
    /// The last list of each kind, by group and kind, that was completed since: it may lack objects that the reconcile wrote before.
    lists: BTreeMap<(String, String), CompletedList>,
    /// Objects that changed since the last comparison.
    changes: BTreeSet<ObjectKey>,
    /// More may have changed than is known.
    is_unknown: bool,
    /// When the objects were compared, or the last reconcile ended, whether it compared them or failed; never for a bundle whose objects never
    /// were.
    looked_at: Option<Instant>,
    /// Number of the last event before the objects were compared.
    compared_at: u64,
}

impl WatchedBundles {
    fn set_hash(&mut self, bundle: &str, hash: &str) {
        let former = self.by_name.get(bundle).map(|watched| &watched.hash);
        if let Some(former) = former.filter(|former| *former != hash).cloned() {
            self.by_hash.remove(&former);
        }
        self.by_hash.insert(hash.to_owned(), Arc::from(bundle));
    }

    /// A reconcile starts that may read live objects or write them: events are held until it has read them. Called for a new
    /// bundle too: without its hash, events before its first [`WatchedBundles::monitored_all`] would belong to no bundle.
    pub(super) fn started(&mut self, bundle: &str, hash: &str) {
        self.set_hash(bundle, hash);
        let watched = self
            .by_name
            .entry(Arc::from(bundle))
            .or_insert_with(|| WatchedBundle {
                unready_since: Some(Instant::now()),
                ..WatchedBundle::default()
            });
        hash.clone_into(&mut watched.hash);
        // No later reconcile judges the events of one that was given up.
        if let Some(begun) = watched.begun.replace(self.recent.begin()) {
            self.recent.end(begun);
        }
        watched.lists.clear();
    }

    /// All live objects were read. Whether any has changed since.
    pub(super) fn monitored_all(
        &mut self,
        bundle: &str,
        hash: &str,
        seen: Seen,
        is_ready: bool,
    ) -> bool {
        self.set_hash(bundle, hash);
        let name: Arc<str> = Arc::from(bundle);
        let (mut begun, mut missing, mut unready_since) = (None, BTreeSet::new(), None);
        let mut lists = BTreeMap::new();
        if let Some(former) = self.by_name.remove(bundle) {
            for object in former.objects() {
                self.holders.remove(object, &name);
            }
            (begun, missing, lists) = (former.begun, former.missing, former.lists);
            unready_since = former.unready_since;
        }
        for object in seen.keys() {
            self.holders.insert(object, &name);
        }
        let watched = WatchedBundle {
            hash: hash.to_owned(),
            seen,
            foreign: BTreeSet::new(),
            unready_since: continued(unready_since, is_ready),
            begun,
            missing,
            lists,
            changes: BTreeSet::new(),
            is_unknown: false,
            looked_at: Some(Instant::now()),
            compared_at: self.recent.now(),
        };
        self.by_name.insert(name, watched);
        self.judge(bundle)
    }

    /// Compares the events since a reconcile began with what the monitor read in it. Whether any is a change.
    fn judge(&mut self, bundle: &str) -> bool {
        let Some(watched) = self.by_name.get_mut(bundle) else {
            return false;
        };
        let Some(begun) = watched.begun.take() else {
            return false;
        };
        let mut missing = std::mem::take(&mut watched.missing);
        for (kind, list) in std::mem::take(&mut watched.lists) {
            let later = self.recent.since(list.at, &watched.hash);
            missing.extend(watched.gone_before(&kind, list.objects.as_deref(), later));
        }
        let missing = missing.into_iter().map(|object| (object, WatchEvent::Gone));
        let mut has_changes = false;
        match self.recent.since(begun, &watched.hash.clone()) {
            Some(reported) => {
                let reported = reported.map(|(object, event)| (object.clone(), event));
                for (object, event) in reported.chain(missing) {
                    has_changes |= watched.is_changed_by(&object, &event);
                }
            }
            None => {
                watched.is_unknown = true;
                has_changes = true;
            }
        }
        self.recent.end(begun);
        has_changes
    }

    /// Notes the objects that the bundle wants and another one has.
    pub(super) fn foreign(&mut self, bundle: &str, objects: BTreeSet<ObjectKey>) {
        let Some((name, watched)) = self.by_name.get_key_value(bundle) else {
            return;
        };
        let name = Arc::clone(name);
        for object in &watched.foreign {
            if !watched.seen.contains_key(object) {
                self.holders.remove(object, &name);
            }
        }
        for object in &objects {
            self.holders.insert(object, &name);
        }
        if let Some(watched) = self.by_name.get_mut(bundle) {
            watched.foreign = objects;
        }
    }

    /// Some live objects were read again. Whether any has changed since.
    pub(super) fn monitored_some(&mut self, bundle: &str, seen: Seen, is_ready: bool) -> bool {
        let Some(watched) = self.by_name.get_mut(bundle) else {
            return false;
        };
        let name: Arc<str> = Arc::from(bundle);
        for object in seen.keys() {
            self.holders.insert(object, &name);
        }
        watched.changes.retain(|object| !seen.contains_key(object));
        watched.seen.extend(seen);
        watched.unready_since = continued(watched.unready_since, is_ready);
        watched.looked_at = Some(Instant::now());
        watched.compared_at = self.recent.now();
        self.judge(bundle)
    }

    /// The bundle was deployed: it is not ready before its objects say so.
    pub(super) fn deployed(&mut self, bundle: &str) {
        if let Some(watched) = self.by_name.get_mut(bundle) {
            watched.unready_since = Some(Instant::now());
        }
    }

    /// The reconcile ended, whether it read live objects or not. Whether any has changed meanwhile.
    pub(super) fn finished(&mut self, bundle: &str) -> bool {
        let Some(watched) = self.by_name.get_mut(bundle) else {
            return false;
        };
        if watched.looked_at.is_some() {
            watched.looked_at = Some(Instant::now());
            return self.judge(bundle);
        }
        self.forget(bundle);
        false
    }

    /// How many there are, by whichever of the names is known for more.
    pub(super) fn len(&self) -> usize {
        self.by_name.len().max(self.by_hash.len())
    }

    /// How many events are kept for the reconciles that are under way.
    pub(super) fn held(&self) -> usize {
        self.recent.len()
    }

    pub(super) fn forget(&mut self, bundle: &str) {
        let Some((name, watched)) = self.by_name.remove_entry(bundle) else {
            return;
        };
        for object in watched.objects() {
            self.holders.remove(object, &name);
        }
        self.by_hash.remove(&watched.hash);
        if let Some(begun) = watched.begun {
            self.recent.end(begun);
        }
    }

    /// Objects that changed since the bundle's last comparison; `None` if there was none, or more may have changed than is known.
    pub(super) fn changes(&self, bundle: &str) -> Option<Vec<ObjectKey>> {
        let watched = self.by_name.get(bundle)?;
        watched.looked_at.filter(|_| !watched.is_unknown)?;
        Some(watched.changes.iter().cloned().collect())
    }

    /// Like `changes`, with the events since a reconcile under way began that has not read the objects again, and with what other bundles have read
    /// as well, whose events may not have come yet. `None` also if some of these events were dropped.
    pub(super) fn changed_by_now(&self, bundle: &str) -> Option<Vec<ObjectKey>> {
        let mut changes = self.changes(bundle)?;
        let watched = self.by_name.get(bundle)?;
        if let Some(begun) = watched.begun {
            let reported = self.recent.since(begun, &watched.hash)?;
            let changed = reported.filter(|(object, event)| {
                event.is_change(watched.seen.get(*object).map(String::as_str))
            });
            changes.extend(changed.map(|(object, _)| object.clone()));
            changes.extend(watched.missing.iter().cloned());
        }
        let is_shared = |object: &&ObjectKey| {
            let holders = self.holders.of(object);
            holders.iter().any(|holder| **holder != *bundle)
        };
        changes.extend(watched.objects().filter(is_shared).cloned());
        Some(changes)
    }

    /// How long changes to a bundle are collected before its objects are compared: not long, but where it is ready, or does not become so, not
    /// more often than once in `pause`.
    pub(super) fn delay(&self, bundle: &str, pause: Duration) -> Duration {
        let watched = self.by_name.get(bundle);
        let (soon, pause) = match watched.and_then(|watched| watched.unready_since) {
            None => (READY_DELAY.min(pause), pause),
            Some(since) => {
                let longer = UNREADY_PAUSE.max(since.elapsed() / UNREADY_SHARE);
                (UNREADY_DELAY.min(pause), longer.min(pause))
            }
        };
        let looked_at = watched.and_then(|watched| watched.looked_at);
        let since = looked_at.map_or(pause, |looked_at| looked_at.elapsed());
        soon.max(pause.saturating_sub(since))
    }

    /// A list of a kind holds this object. After the cluster was restored from a backup it may have any version: another one than
    /// the monitor read is a change, older or not. Gives the bundles to wake.
    pub(super) fn listed(&mut self, hash: &str, object: &ObjectKey, version: &str) -> Vec<String> {
        let owner = self.by_hash.get(hash);
        let watched = owner.and_then(|owner| self.by_name.get(owner));
        let seen = watched.and_then(|watched| watched.seen.get(object));
        let is_other = seen.is_some_and(|seen| seen != version);
        self.changed(hash, object, Some(version).filter(|_| !is_other))
    }

    /// The API server serves a kind no more, it seems, and these bundles have lost their objects of it. Gives the bundles to wake.
    pub(super) fn unserved(
        &mut self,
        (group, kind): (&str, &str),
        bundles: &BTreeSet<String>,
    ) -> Vec<String> {
        let is_of_kind = |object: &&ObjectKey| (&*object.group, &*object.kind) == (group, kind);
        let mut woken = Vec::new();
        for (name, watched) in &mut self.by_name {
            if bundles.contains(&**name) {
                let gone = watched.seen.keys().filter(is_of_kind).cloned().collect();
                woken.extend(watched.went(gone).then(|| name.to_string()));
            }
        }
        woken
    }

    /// A list of a kind is complete: an object that the monitor read and that is not `listed` with its bundle's hash was deleted while
    /// nobody watched. Gives the bundles to wake.
    pub(super) fn list_completed(
        &mut self,
        (group, kind): (&str, &str),
        listed: &Arc<ListedObjects>,
    ) -> Vec<String> {
        let mut woken = Vec::new();
        let now = self.recent.now();
        for (name, watched) in &mut self.by_name {
            if watched.begun.is_some() {
                let kind = (group.to_owned(), kind.to_owned());
                let list = CompletedList {
                    at: now,
                    objects: (listed.len() <= MAX_LISTED).then(|| Arc::clone(listed)),
                };
                watched.lists.insert(kind, list);
            }
            let is_missing = |object: &&ObjectKey| {
                (&*object.group, &*object.kind) == (group, kind)
                    && !listed.has_with(&watched.hash, object)
            };
            let missing = watched.seen.keys().filter(is_missing).cloned().collect();
            let mut is_change = watched.went(missing);
            let is_gone = |object: &&ObjectKey| {
                (&*object.group, &*object.kind) == (group, kind) && !listed.has(object)
            };
            let gone: Vec<_> = watched.foreign.iter().filter(is_gone).cloned().collect();
            for object in &gone {
                is_change |= watched.freed(object);
                if !watched.seen.contains_key(object) {
                    self.holders.remove(object, name);
                }
            }
            woken.extend(is_change.then(|| name.to_string()));
        }
        woken
    }

    /// An object with this hash is there in this version, or was deleted (`None`). Gives the bundles to wake.
    pub(super) fn changed(
        &mut self,
        hash: &str,
        object: &ObjectKey,
        version: Option<&str>,
    ) -> Vec<String> {
        let owner = self.by_hash.get(hash).cloned();
        let mut concerned = self.holders.of(object);
        concerned.extend(owner.clone());
        concerned.sort();
        concerned.dedup();
        // The former owner may be reconciled without a new read.
        let has_others = concerned.iter().any(|name| Some(name) != owner.as_ref());
        if has_others || !self.is_old(owner.as_deref(), object, version) {
            self.recent.note(hash, object, version);
        }
        let mut woken = Vec::new();
        for name in concerned {
            let Some(watched) = self.by_name.get_mut(&name) else {
                continue;
            };
            let is_owner = owner.as_ref() == Some(&name);
            let is_change = match version.map(str::to_owned) {
                Some(version) if is_owner => watched.receive(object, WatchEvent::There(version)),
                // The former owner has lost it, also where the new one read it before this event.
                Some(version) => watched.receive(object, WatchEvent::Foreign(version)),
                None if is_owner => watched.receive(object, WatchEvent::Gone),
                // Another release owned it; it no longer exists.
                None => watched.freed(object),
            };
            if !watched.has(object) {
                self.holders.remove(object, &name);
            }
            if is_change {
                woken.push(name.to_string());
            }
        }
        woken
    }

    /// Whether an event shows what the object's owner knew before any reconcile began that is under way: none of them can have read less. A list
    /// shows that of nearly all that it holds.
    fn is_old(&self, owner: Option<&str>, object: &ObjectKey, version: Option<&str>) -> bool {
        let owner = owner.and_then(|owner| self.by_name.get(owner));
        owner.is_some_and(|owner| {
            let seen = owner.seen.get(object).map(String::as_str);
            version.is_some() && seen == version && !self.recent.is_any_older(owner.compared_at)
        })
    }
}

/// The content of a watch event about an object.
#[derive(Clone, Debug)]
pub(super) enum WatchEvent {
    /// The bundle has it, in this version.
    There(String),
    /// Another one has it, in this version.
    Foreign(String),
    /// The object was deleted.
    Gone,
}

impl WatchEvent {
    /// Whether the event's version is another one than the monitor read.
    fn is_change(&self, seen: Option<&str>) -> bool {
        match (self, seen) {
            (Self::There(_), None) => true,
            (Self::Foreign(_) | Self::Gone, None) => false,
            (Self::There(version) | Self::Foreign(version), Some(seen)) => is_newer(seen, version),
            (Self::Gone, Some(_)) => true,
        }
    }
}

impl WatchedBundle {
    /// Whether this object was seen, or is wanted.
    fn has(&self, object: &ObjectKey) -> bool {
        self.seen.contains_key(object) || self.foreign.contains(object)
    }

    /// Objects that the bundle has or wants.
    fn objects(&self) -> impl Iterator<Item = &ObjectKey> {
        self.seen.keys().chain(&self.foreign)
    }

    fn note_change(&mut self, object: &ObjectKey) {
        if self.changes.len() < MAX_CHANGES {
            self.changes.insert(object.clone());
        } else if !self.changes.contains(object) {
            self.is_unknown = true;
        }
    }

    /// Whether an event is more than was seen, which is noted.
    fn is_changed_by(&mut self, object: &ObjectKey, event: &WatchEvent) -> bool {
        let is_change = event.is_change(self.seen.get(object).map(String::as_str));
        if is_change {
            self.note_change(object);
        }
        is_change
    }

    /// An object owned by another release was deleted. Returns whether this bundle's manifest has it.
    fn freed(&mut self, object: &ObjectKey) -> bool {
        let is_wanted = self.foreign.remove(object);
        if is_wanted {
            self.note_change(object);
        }
        is_wanted
    }

    /// Objects of a kind that were seen, are not in a list that was completed since, and have no event after it: deleted before the list was made.
    /// `later` are the events after it; none where some of them were dropped.
    fn gone_before<'e>(
        &self,
        (group, kind): &(String, String),
        list: Option<&ListedObjects>,
        later: Option<impl Iterator<Item = (&'e ObjectKey, WatchEvent)>>,
    ) -> Vec<ObjectKey> {
        let later: BTreeSet<_> = later.into_iter().flatten().map(|one| one.0).collect();
        let is_gone = |object: &&ObjectKey| {
            (&object.group, &object.kind) == (group, kind)
                && !list.is_some_and(|list| list.has_with(&self.hash, object))
                && !later.contains(object)
        };
        self.seen.keys().filter(is_gone).cloned().collect()
    }

    /// Objects that were seen are not there any more; whether that is a change.
    fn went(&mut self, gone: Vec<ObjectKey>) -> bool {
        let mut is_change = false;
        for object in gone {
            if self.begun.is_some() {
                self.missing.insert(object);
            } else {
                is_change |= self.receive(&object, WatchEvent::Gone);
            }
        }
        is_change
    }

    /// Whether an event is a change; during a reconcile that is decided later.
    fn receive(&mut self, object: &ObjectKey, event: WatchEvent) -> bool {
        if self.begun.is_some() {
            return false;
        }
        let is_change = self.is_changed_by(object, &event);
        if is_change && matches!(event, WatchEvent::Foreign(_)) {
            // The object is known to be lost: changes by its new owner are no news.
            self.seen.remove(object);
        }
        is_change
    }
}

/// Since when a bundle is not ready, by what it was before.
fn continued(unready_since: Option<Instant>, is_ready: bool) -> Option<Instant> {
    match is_ready {
        true => None,
        false => unready_since.or_else(|| Some(Instant::now())),
    }
}

/// Versions of one kind are numbers that grow; where they are not, a different one is newer.
fn is_newer(seen: &str, version: &str) -> bool {
    match (seen.parse::<u64>(), version.parse::<u64>()) {
        (Ok(seen), Ok(version)) => version > seen,
        _ => version != seen,
    }
}

#[cfg(test)]
mod tests {
    use super::super::live_objects::MAX_EVENTS;
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::echo_of_what_was_seen(Some("7"), WatchEvent::There("7".into()), false)]
    #[case::older_than_seen(Some("10"), WatchEvent::There("9".into()), false)]
    #[case::newer(Some("9"), WatchEvent::There("10".into()), true)]
    #[case::appeared(None, WatchEvent::There("3".into()), true)]
    #[case::opaque(Some("a"), WatchEvent::There("b".into()), true)]
    #[case::deleted(Some("9"), WatchEvent::Gone, true)]
    #[case::deleted_and_known_missing(None, WatchEvent::Gone, false)]
    #[case::taken(Some("9"), WatchEvent::Foreign("10".into()), true)]
    #[case::taken_back_since(Some("10"), WatchEvent::Foreign("9".into()), false)]
    #[case::foreign_and_always_was(None, WatchEvent::Foreign("9".into()), false)]
    fn only_a_newer_version_is_a_change(
        #[case] seen: Option<&str>,
        #[case] event: WatchEvent,
        #[case] expected: bool,
    ) {
        assert_eq!(event.is_change(seen), expected);
    }

    fn deployment() -> ObjectKey {
        ObjectKey::new("apps/v1", "Deployment", "ns", "web")
    }

    fn seen(version: &str) -> Seen {
        Seen::from([(deployment(), version.to_owned())])
    }

    #[rstest]
    #[case::unchanged(Some("7"), false)]
    #[case::changed_unwatched(Some("8"), true)]
    #[case::of_a_backup(Some("6"), true)]
    #[case::deleted_unwatched(None, true)]
    fn a_list_is_compared_with_what_was_read_before_the_watch_broke_off(
        #[case] version: Option<&str>,
        #[case] expected: bool,
    ) {
        let mut bundles = WatchedBundles::default();
        bundles.monitored_all("web", "h", seen("7"), true);
        let mut woken = Vec::new();
        let mut list = ListedObjects::default();
        if let Some(version) = version {
            woken.extend(bundles.listed("h", &deployment(), version));
            list.insert("h", &deployment());
        }
        let none = ListedObjects::default();
        woken.extend(bundles.list_completed(("", "ConfigMap"), &Arc::new(none)));
        woken.extend(bundles.list_completed(("apps", "Deployment"), &Arc::new(list)));
        assert_eq!(woken, vec!["web"; usize::from(expected)]);
    }

    /// The watch begins with the reconcile of another bundle, while this one has written its object and not yet said so.
    #[rstest]
    #[case::deleted_before_the_list(false, false, true)]
    #[case::in_the_list(true, false, false)]
    #[case::written_after_the_list(false, true, false)]
    fn a_list_during_a_first_reconcile_is_compared_at_its_end(
        #[case] is_listed: bool,
        #[case] comes_later: bool,
        #[case] expected: bool,
    ) {
        let mut bundles = WatchedBundles::default();
        bundles.started("web", "h");
        let mut list = ListedObjects::default();
        if is_listed {
            bundles.listed("h", &deployment(), "7");
            list.insert("h", &deployment());
        }
        let woken = bundles.list_completed(("apps", "Deployment"), &Arc::new(list));
        assert!(woken.is_empty(), "{woken:?}");
        if comes_later {
            bundles.changed("h", &deployment(), Some("7"));
        }
        let has_changes = bundles.monitored_all("web", "h", seen("7"), true);
        assert_eq!(has_changes, expected);
        assert_eq!(bundles.changes("web").unwrap().len(), usize::from(expected));
        assert!(!bundles.finished("web"));
    }

    #[test]
    fn an_object_listed_with_another_hash_counts_as_missing() {
        let mut bundles = WatchedBundles::default();
        bundles.monitored_all("web", "h", seen("7"), true);
        let mut list = ListedObjects::default();
        list.insert("other", &deployment());
        assert_eq!(
            bundles.list_completed(("apps", "Deployment"), &Arc::new(list)),
            ["web"]
        );
    }

    #[rstest]
    #[case::became_ready_since(Some("8"), true)]
    #[case::deleted_since(None, true)]
    #[case::echo(Some("7"), false)]
    fn an_event_during_the_first_read_of_a_bundle_counts_if_it_is_newer(
        #[case] observed: Option<&str>,
        #[case] expected: bool,
    ) {
        let mut bundles = WatchedBundles::default();
        assert!(bundles.changed("h", &deployment(), Some("6")).is_empty());
        bundles.started("web", "h");
        assert!(bundles.changed("h", &deployment(), observed).is_empty());
        assert_eq!(
            bundles.monitored_all("web", "h", seen("7"), false),
            expected
        );
        let later = bundles.changed("h", &deployment(), Some("9"));
        assert_eq!(later, ["web"]);
    }

    /// Somebody creates and deletes objects with a label of a set as fast as he can, while a hook is waited for.
    #[test]
    fn too_many_events_lead_to_a_check_of_all_objects() {
        let mut bundles = WatchedBundles::default();
        bundles.started("web", "h");
        for number in 0..=MAX_EVENTS {
            assert!(bundles.changed("x", &flood(number), Some("7")).is_empty());
        }
        // A reconcile that began later has lost no event.
        bundles.started("late", "l");
        assert!(!bundles.monitored_all("late", "l", Seen::new(), true));
        // A lost event may have been of an object that the monitor has not read.
        assert!(bundles.monitored_all("web", "h", seen("7"), true));
        assert_eq!(bundles.changes("web"), None);
        // Events after it count as ever.
        bundles.started("web", "h");
        assert!(!bundles.monitored_all("web", "h", seen("7"), true));
        assert_eq!(bundles.changed("h", &deployment(), Some("8")), ["web"]);
    }

    fn flood(number: usize) -> ObjectKey {
        ObjectKey::new("v1", "ConfigMap", "ns", &format!("flood-{number}"))
    }

    /// The number of kept events does not grow with the workers.
    #[test]
    fn events_are_held_once_for_all_reconciles() {
        let mut bundles = WatchedBundles::default();
        let names: Vec<_> = (0..100).map(|number| format!("bundle-{number}")).collect();
        for name in &names {
            bundles.started(name, name);
        }
        for number in 0..1_000 {
            bundles.changed("x", &flood(number), Some("7"));
        }
        assert_eq!(bundles.held(), 1_000);
        for number in 0..20_000 {
            bundles.changed("x", &flood(number), Some("7"));
        }
        assert!(bundles.held() <= MAX_EVENTS, "{}", bundles.held());
        for name in &names {
            bundles.monitored_all(name, name, Seen::new(), true);
        }
        assert_eq!(bundles.held(), 0);
    }

    /// A list of everything during a rollout tells nearly nothing that is new.
    #[test]
    fn a_list_of_objects_already_seen_holds_no_events() {
        let mut bundles = WatchedBundles::default();
        let object = |number: usize| ObjectKey::new("v1", "ConfigMap", "ns", &number.to_string());
        for bundle in 0..200 {
            let (name, objects) = (format!("b{bundle}"), bundle * 100..(bundle + 1) * 100);
            let seen = objects.map(|number| (object(number), "7".to_owned()));
            bundles.monitored_all(&name, &name, seen.collect(), true);
        }
        bundles.started("web", "h");
        for number in 0..20_000 {
            let hash = format!("b{}", number / 100);
            assert!(bundles.listed(&hash, &object(number), "7").is_empty());
        }
        assert_eq!(bundles.held(), 0);
        assert!(!bundles.monitored_all("web", "h", seen("7"), true));
        assert_eq!(bundles.changes("web"), Some(Vec::new()));
    }

    #[test]
    fn an_event_wakes_only_the_bundles_that_know_its_object() {
        let mut bundles = WatchedBundles::default();
        for number in 0..2_000 {
            let (name, mine) = (format!("b{number}"), flood(number));
            let seen = Seen::from([(mine.clone(), "7".to_owned())]);
            bundles.monitored_all(&name, &name, seen, true);
            assert_eq!(bundles.holders.of(&mine).len(), 1);
        }
        assert!(bundles.holders.of(&deployment()).is_empty());
        assert_eq!(bundles.changed("x", &flood(1), Some("8")), ["b1"]);
        assert!(bundles.holders.of(&flood(1)).is_empty());
        bundles.foreign("b2", BTreeSet::from([flood(1)]));
        bundles.foreign("b2", BTreeSet::from([flood(3)]));
        bundles.monitored_some("b4", Seen::from([(flood(3), "7".to_owned())]), true);
        assert_eq!(bundles.holders.of(&flood(3)).len(), 3);
        for number in 0..2_000 {
            bundles.forget(&format!("b{number}"));
        }
        assert_eq!(bundles.holders.len(), 0);
    }

    /// Somebody gives a bundle's hash to what he creates.
    #[test]
    fn beyond_a_limit_changed_objects_are_not_kept_by_name() {
        let mut bundles = WatchedBundles::default();
        bundles.monitored_all("web", "h", seen("7"), true);
        for number in 0..=MAX_CHANGES {
            bundles.changed("h", &flood(number), Some("7"));
        }
        assert_eq!(bundles.by_name["web"].changes.len(), MAX_CHANGES);
        assert_eq!(bundles.changes("web"), None);
    }

    #[test]
    fn an_object_taken_over_by_another_bundle_wakes_both() {
        let mut bundles = WatchedBundles::default();
        bundles.monitored_all("former", "f", seen("7"), true);
        bundles.monitored_all("bystander", "b", Seen::new(), true);
        bundles.monitored_all("taker", "t", Seen::new(), true);
        let mut woken = bundles.changed("t", &deployment(), Some("8"));
        woken.sort();
        assert_eq!(woken, ["former", "taker"]);
        bundles.monitored_all("former", "f", Seen::new(), false);
        bundles.monitored_all("taker", "t", seen("8"), true);
        assert!(bundles.changed("t", &deployment(), Some("8")).is_empty());
        // The foreign object goes with the bundle that took it.
        bundles.foreign("former", BTreeSet::from([deployment()]));
        let mut gone = bundles.changed("t", &deployment(), None);
        gone.sort();
        assert_eq!(gone, ["former", "taker"]);
        assert_eq!(bundles.changed("t", &deployment(), None), ["taker"]);
        bundles.foreign("former", BTreeSet::from([deployment()]));
        bundles.monitored_all("taker", "t", Seen::new(), true);
        let kind = ("apps", "Deployment");
        let mut listed = ListedObjects::default();
        listed.insert("t", &deployment());
        assert!(bundles.list_completed(kind, &Arc::new(listed)).is_empty());
        let none = ListedObjects::default();
        assert_eq!(bundles.list_completed(kind, &Arc::new(none)), ["former"]);
        // Whoever has it in another version has it still.
        bundles.monitored_all("taker", "t", seen("8"), true);
        let of_watch = |name: &str| BTreeSet::from([name.to_owned()]);
        assert!(bundles.unserved(kind, &of_watch("former")).is_empty());
        assert_eq!(bundles.unserved(kind, &of_watch("taker")), ["taker"]);
        bundles.monitored_all("taker", "t", seen("8"), true);
        // Taken by somebody unknown, for instance the agent of another scope.
        let lost = bundles.changed("x", &deployment(), Some("9"));
        assert_eq!(lost, ["taker"]);
    }

    #[test]
    fn a_bundle_is_woken_when_another_takes_its_object_though_the_taker_has_read_it() {
        let mut bundles = WatchedBundles::default();
        bundles.monitored_all("former", "f", seen("7"), true);
        bundles.monitored_all("taker", "t", seen("8"), true);
        assert_eq!(bundles.changed("t", &deployment(), Some("8")), ["former"]);
        assert_eq!(bundles.changed("t", &deployment(), Some("9")), ["taker"]);
        assert_eq!(bundles.changes("former"), Some(vec![deployment()]));
        let both = bundles.changed("f", &deployment(), Some("10"));
        assert_eq!(both, ["former", "taker"]);
        bundles.monitored_all("taker", "t", seen("8"), true);
        // The event is late: the bundle that took it back has read a later version.
        bundles.monitored_all("former", "f", seen("9"), true);
        assert!(bundles.changed("t", &deployment(), Some("8")).is_empty());
        bundles.monitored_all("former", "f", Seen::new(), false);
        assert_eq!(bundles.changed("t", &deployment(), Some("10")), ["taker"]);
    }

    #[test]
    fn an_object_that_is_taken_while_its_bundle_is_first_deployed_is_a_change() {
        let mut bundles = WatchedBundles::default();
        bundles.started("former", "f");
        bundles.monitored_all("taker", "t", seen("8"), true);
        assert!(bundles.listed("t", &deployment(), "8").is_empty());
        // The bundle knows its objects from the answers to its writes.
        assert!(bundles.monitored_all("former", "f", seen("7"), true));
        assert_eq!(bundles.changes("former"), Some(vec![deployment()]));
        // A bundle that has no such object does not care.
        bundles.started("bystander", "b");
        bundles.listed("t", &deployment(), "8");
        assert!(!bundles.monitored_all("bystander", "b", Seen::new(), true));
    }

    #[tokio::test(start_paused = true)]
    async fn an_edit_is_monitored_within_a_second_and_rate_limited() {
        let pause = Duration::from_secs(5);
        let millis = Duration::from_millis;
        let mut bundles = WatchedBundles::default();
        assert_eq!(bundles.delay("web", pause), millis(500));
        bundles.monitored_all("web", "h", seen("7"), true);
        assert_eq!(bundles.delay("web", pause), pause);
        tokio::time::advance(millis(3_000)).await;
        assert_eq!(bundles.delay("web", pause), millis(2_000));
        tokio::time::advance(millis(60_000)).await;
        assert_eq!(bundles.delay("web", pause), millis(500));
        assert_eq!(bundles.delay("web", millis(100)), millis(100));
        bundles.monitored_all("web", "h", seen("7"), false);
        assert_eq!(bundles.delay("web", pause), millis(1_000));
        tokio::time::advance(millis(60_000)).await;
        assert_eq!(bundles.delay("web", pause), millis(300));
    }

    /// A pod that crashes again and again, and an account whose rights were taken away.
    #[tokio::test(start_paused = true)]
    async fn objects_that_stay_unready_and_monitors_that_fail_are_checked_less_often() {
        let pause = Duration::from_secs(5);
        let minutes = |minutes: u64| tokio::time::advance(Duration::from_secs(60 * minutes));
        let mut bundles = WatchedBundles::default();
        bundles.monitored_all("web", "h", seen("7"), false);
        minutes(3).await;
        bundles.monitored_some("web", seen("8"), false);
        assert_eq!(bundles.delay("web", pause), Duration::from_secs(3));
        minutes(60).await;
        bundles.monitored_all("web", "h", seen("9"), false);
        assert_eq!(bundles.delay("web", pause), pause);
        // A bundle that is deployed anew is monitored while it comes up.
        bundles.deployed("web");
        bundles.monitored_all("web", "h", seen("10"), false);
        assert_eq!(bundles.delay("web", pause), UNREADY_PAUSE);
        bundles.monitored_all("web", "h", seen("11"), true);
        minutes(1).await;
        bundles.started("web", "h");
        bundles.finished("web");
        assert_eq!(bundles.delay("web", pause), pause);
    }

    #[test]
    fn events_find_a_bundle_by_its_new_hash_once_that_changed() {
        let mut bundles = WatchedBundles::default();
        bundles.monitored_all("web", "old", seen("7"), true);
        bundles.started("web", "new");
        assert!(!bundles.monitored_all("web", "new", seen("7"), true));
        let woken = bundles.changed("new", &deployment(), Some("8"));
        assert_eq!(woken, ["web"]);
    }

    /// A reconcile may deploy before it monitors again: an object that another bundle took meanwhile is not written over unseen.
    #[test]
    fn an_object_taken_during_a_reconcile_is_known_as_changed_before_it_is_read() {
        let mut bundles = WatchedBundles::default();
        bundles.started("former", "f");
        assert_eq!(bundles.changed_by_now("former"), None, "nobody has looked");
        bundles.monitored_all("former", "f", seen("7"), true);
        bundles.monitored_all("taker", "t", Seen::new(), true);
        bundles.started("former", "f");
        assert_eq!(bundles.changed_by_now("former"), Some(Vec::new()));
        // The reconcile has read this version already.
        assert!(bundles.changed("f", &deployment(), Some("7")).is_empty());
        assert_eq!(bundles.changed_by_now("former"), Some(Vec::new()));
        assert_eq!(bundles.changed("t", &deployment(), Some("8")), ["taker"]);
        assert_eq!(bundles.changed_by_now("former"), Some(vec![deployment()]));
        assert_eq!(bundles.changes("former"), Some(Vec::new()));
        for object in 0..=MAX_EVENTS {
            let object = ObjectKey::new("v1", "ConfigMap", "ns", &object.to_string());
            bundles.changed("f", &object, Some("8"));
        }
        assert_eq!(bundles.changed_by_now("former"), None);
        assert!(bundles.finished("former"));
        assert_eq!(bundles.changed_by_now("former"), bundles.changes("former"));
    }

    #[test]
    fn an_object_another_bundle_read_newer_counts_as_changed_before_its_event() {
        let mut bundles = WatchedBundles::default();
        bundles.monitored_all("former", "f", seen("7"), true);
        bundles.started("former", "f");
        bundles.monitored_all("taker", "t", seen("8"), true);
        assert_eq!(bundles.changed_by_now("former"), Some(vec![deployment()]));
        assert_eq!(bundles.changes("former"), Some(Vec::new()));
        bundles.forget("taker");
        assert_eq!(bundles.changed_by_now("former"), Some(Vec::new()));
    }

    #[test]
    fn an_event_during_a_reconcile_is_a_change_unless_the_monitor_read_it() {
        let mut bundles = WatchedBundles::default();
        let changes = |bundles: &WatchedBundles| bundles.by_name["web"].changes.len();
        bundles.monitored_all("web", "h", seen("5"), false);
        bundles.started("web", "h");
        assert!(bundles.changed("h", &deployment(), Some("6")).is_empty());
        assert!(!bundles.monitored_some("web", seen("6"), false));
        assert_eq!(changes(&bundles), 0);
        bundles.started("web", "h");
        assert!(bundles.changed("h", &deployment(), Some("7")).is_empty());
        assert!(bundles.finished("web"));
        assert_eq!(changes(&bundles), 1);
        // A reconcile that never read live objects leaves nothing behind.
        bundles.started("other", "o");
        assert!(!bundles.finished("other"));
        assert!(!bundles.by_name.contains_key("other") && !bundles.by_hash.contains_key("o"));
    }
}
