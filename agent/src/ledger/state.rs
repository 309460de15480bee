//! What the ledger holds: an entry for each release, as it is known to be written, and what is yet to be. No I/O.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::entry::{DeploymentDigest, Hold, LedgerEntry};
use super::key::ReleaseKey;
use super::postponed::AllPostponed;
use super::upstream::{ContinuityBreak, UpstreamState};

/// Changes that were asked for and are not known to be written; `None` removes an entry.
pub(super) type Pending = BTreeMap<ReleaseKey, Option<LedgerEntry>>;

/// Size limit of all entries in the ConfigMap, in bytes: it has annotations and a mebibyte.
const MAX_BYTES: usize = 900 << 10;

/// More than an entry of a release takes that keeps as many revisions as it may, with those of somebody else's.
const MOST_OF_AN_ENTRY: usize = 8 << 10;

/// How many bytes an entry takes in the ConfigMap.
fn size(key: &ReleaseKey, entry: &LedgerEntry) -> usize {
    let text = serde_json::to_string(entry).map_or(0, |text| text.len());
    key.data_key().len() + text
}

#[derive(Debug, Default)]
pub(super) struct LedgerState {
    /// As written.
    pub(super) entries: BTreeMap<ReleaseKey, LedgerEntry>,
    pub(super) pending: Pending,
    /// Upstream as last seen.
    pub(super) upstream: Option<UpstreamState>,
    /// Upstream as the ConfigMap is known to have it.
    pub(super) written: Option<UpstreamState>,
    /// Up to which heartbeat, in seconds since 1970, a write without any break accounted for them whose answer did not come: the ConfigMap may have that.
    pub(super) unanswered: Option<i64>,
    /// Attempts that are not tried again at once.
    pub(super) postponed: AllPostponed,
    /// Whether the postponed attempts may differ from those in the ConfigMap.
    pub(super) is_postponed_pending: bool,
    /// How often upstream was not the one seen before.
    pub(super) breaks: u64,
    /// Bundles without an entry that a break has lost, while they may get one: a deploy of theirs may be under way.
    pub(super) vanished: BTreeMap<String, ContinuityBreak>,
    /// A permission for held removals was taken in, and is to be taken off the ConfigMap with the next write.
    pub(super) ends_permission: bool,
    /// Bundles that it released, not reported yet.
    pub(super) let_go: BTreeSet<String>,
}

impl LedgerState {
    /// The entry of a release, written or not.
    pub(super) fn get(&self, key: &ReleaseKey) -> Option<&LedgerEntry> {
        match self.pending.get(key) {
            Some(pending) => pending.as_ref(),
            None => self.entries.get(key),
        }
    }

    /// Every release and its entry, written or not, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&ReleaseKey, &LedgerEntry)> {
        let written = self.entries.iter();
        let written = written.filter(|(key, _)| !self.pending.contains_key(*key));
        let pending = self.pending.iter();
        let pending = pending.filter_map(|(key, entry)| Some((key, entry.as_ref()?)));
        written.chain(pending)
    }

    /// Every release and its entry, written or not, by key.
    pub(super) fn all(&self) -> Vec<(ReleaseKey, LedgerEntry)> {
        self.filtered(|_| true)
    }

    pub(super) fn of_bundle(&self, bundle: &str) -> Vec<(ReleaseKey, LedgerEntry)> {
        self.filtered(|entry| entry.bundle == bundle)
    }

    fn filtered(&self, matches: impl Fn(&LedgerEntry) -> bool) -> Vec<(ReleaseKey, LedgerEntry)> {
        let found = self.iter().filter(|(_, entry)| matches(entry));
        let mut found: Vec<_> = found.map(|(k, e)| (k.clone(), e.clone())).collect();
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        found
    }

    /// The releases of others in a namespace over which a bundle wrote, with the account that it wrote with, by key.
    pub(super) fn claimed_by(&self, bundle: &str, namespace: &str) -> Vec<(ReleaseKey, String)> {
        let here = self.iter().filter(|(key, _)| key.namespace == namespace);
        let claimed = here.filter_map(|(key, entry)| {
            let claim = entry.claims.get(bundle)?;
            Some((key.clone(), claim.account.clone()))
        });
        let mut claimed: Vec<_> = claimed.collect();
        claimed.sort_unstable();
        claimed
    }

    /// A bundle has nothing left of what others took from it in a namespace.
    pub(super) fn forget_taken_from(&mut self, bundle: &str, namespace: &str) {
        for (key, mut entry) in self.all() {
            if key.namespace == namespace && entry.taken_from.remove(bundle) {
                self.pending.insert(key, Some(entry));
            }
        }
    }

    /// Asks for what differs from an entry as written. Whether anything is to be written.
    pub(super) fn set(&mut self, key: &ReleaseKey, entry: LedgerEntry) -> bool {
        if self.entries.get(key) == Some(&entry) && !self.pending.contains_key(key) {
            return false;
        }
        self.pending.insert(key.clone(), Some(entry));
        true
    }

    /// Whether an entry has room in the ConfigMap, which all releases share. What makes none of it larger always has: one write too many
    /// would be refused with all others.
    pub(super) fn has_room(&self, key: &ReleaseKey, entry: &LedgerEntry) -> bool {
        self.lacks(key, entry) == 0
    }

    /// How many bytes there are too few for an entry.
    fn lacks(&self, key: &ReleaseKey, entry: &LedgerEntry) -> usize {
        let before = self.get(key).map_or(0, |known| size(key, known));
        let after = size(key, entry);
        // Most ledgers are far from it, and need not be measured.
        if after <= before || self.iter().count() * MOST_OF_AN_ENTRY < MAX_BYTES {
            return 0;
        }
        let total: usize = self.iter().map(|(key, entry)| size(key, entry)).sum();
        (total - before + after).saturating_sub(MAX_BYTES)
    }

    /// Makes room for an entry, if that can be: what the objects of other releases are in gives way, of as few as will do. These count as in every container.
    pub(super) fn make_room(&mut self, key: &ReleaseKey, entry: &LedgerEntry) {
        let lacks = self.lacks(key, entry);
        if lacks == 0 {
            return;
        }
        let others = self.all().into_iter().filter(|(other, _)| other != key);
        let mut shorter: Vec<_> = others
            .map(|(other, known)| {
                let before = size(&other, &known);
                let known = known.shortened();
                (before.saturating_sub(size(&other, &known)), other, known)
            })
            .collect();
        shorter.sort_by_key(|(saved, ..)| Reverse(*saved));
        let mut saved = 0;
        let enough = shorter.iter().position(|(saves, ..)| {
            saved += saves;
            saved >= lacks
        });
        let Some(last) = enough else { return };
        for (_, other, known) in shorter.into_iter().take(last + 1) {
            self.set(&other, known);
        }
    }

    /// Whether the removal of any release has begun, or was released by a person.
    pub(super) fn has_proven(&self) -> bool {
        self.iter()
            .any(|(_, entry)| entry.is_removing || entry.hold == Some(Hold::Released))
    }

    /// Changes the entries of a bundle. One whose write is awaited with [`Self::is_pending`], if there is one.
    pub(super) fn change(
        &mut self,
        bundle: &str,
        change: impl Fn(LedgerEntry) -> LedgerEntry,
    ) -> Option<ReleaseKey> {
        let mut last = None;
        for (key, entry) in self.of_bundle(bundle) {
            if self.set(&key, change(entry)) {
                last = Some(key);
            }
        }
        last
    }

    /// Takes note of the release that a bundle wants by the facts of now, `names` being as it writes them: since when they give it another one
    /// than each that it has. One that they gave it before is not left. As [`Self::change`].
    pub(super) fn wants(
        &mut self,
        bundle: &str,
        desired: &ReleaseKey,
        names: Option<&str>,
        now: i64,
    ) -> Option<ReleaseKey> {
        let mut last = None;
        for (key, entry) in self.of_bundle(bundle) {
            let is_renamed =
                key != *desired && entry.names.is_some() && entry.names.as_deref() == names;
            // Before a clock was put right it may have been the future.
            let since = entry.left_since.filter(|since| *since <= now);
            let left_since = is_renamed.then(|| since.unwrap_or(now));
            let is_written = left_since == entry.left_since;
            let entry = LedgerEntry {
                left_since,
                ..entry
            };
            if !is_written && self.set(&key, entry) {
                last = Some(key);
            }
        }
        last
    }

    /// A bundle begins to deploy a release: it lost none with another deployment than this one, and where this one may take over what others have,
    /// releases of its own are left behind. One that was left behind itself takes back what it had.
    pub(super) fn begins(
        &mut self,
        bundle: &str,
        current: &ReleaseKey,
        deployment: &DeploymentDigest,
        takes_ownership: bool,
    ) {
        let known = self.get(current).filter(|known| known.bundle == bundle);
        let takes_over = takes_ownership || known.is_some_and(LedgerEntry::is_left_behind);
        for (key, entry) in self.of_bundle(bundle) {
            let changed = match key.is_claims() {
                true => LedgerEntry {
                    deployment: entry.deployment.clone().filter(|lost| lost == deployment),
                    ..entry.clone()
                },
                false if key == *current || !takes_over => continue,
                false => entry.clone().left_behind(),
            };
            if changed != entry {
                self.set(&key, changed);
            }
        }
    }

    /// A bundle's postponed deploy may succeed now, and waits no more.
    pub(super) fn postpones_no_more(&mut self, bundle: &str) {
        if let Some(postponed) = self.postponed.get_mut(bundle) {
            *postponed = std::mem::take(postponed).after_success();
            self.is_postponed_pending = true;
        }
    }

    /// Changes what is noted of a release, with the next write.
    pub(super) fn note(
        &mut self,
        key: &ReleaseKey,
        change: impl FnOnce(LedgerEntry) -> LedgerEntry,
    ) {
        let Some(entry) = self.get(key).cloned() else {
            return;
        };
        let changed = self.marked(change(entry.clone()));
        if changed != entry {
            self.pending.insert(key.clone(), Some(changed));
        }
    }

    /// Releases the removals that the ConfigMap showed as held where the permission was written (`found`), and revokes the permission. The released
    /// bundles are reported later. Where the agent's own bundle is among them, that upstream lists none
    /// holds nothing back from now on, until it lists one again: whoever let it go says that Fleet does not manage this agent any more.
    pub(super) fn release_held(&mut self, found: &BTreeMap<ReleaseKey, LedgerEntry>) {
        self.ends_permission = true;
        let is_held = |entry: &LedgerEntry| entry.hold == Some(Hold::Held);
        let mut held = self.filtered(is_held);
        // A break that is not written yet is newer than the permission.
        let is_meant = |key: &ReleaseKey, lost| {
            let found = found.get(key);
            found.is_some_and(|found| is_held(found) && found.lost == lost)
        };
        held.retain(|(key, entry)| is_meant(key, entry.lost));
        let is_own = |entry: &LedgerEntry| self.is_noted_as_own(&entry.bundle);
        let is_own_let_go = held.iter().any(|(_, entry)| is_own(entry));
        if is_own_let_go && let Some(upstream) = &mut self.upstream {
            upstream.has_own = false;
            upstream.own.clear();
        }
        for (key, entry) in held {
            self.let_go.insert(entry.bundle.clone());
            let hold = Some(Hold::Released);
            self.pending
                .insert(key, Some(LedgerEntry { hold, ..entry }));
        }
    }

    /// Whether a change of this entry is not known to be written.
    pub(super) fn is_pending(&self, key: &ReleaseKey) -> bool {
        self.pending.contains_key(key)
    }

    /// Notes that these changes were written. Changes requested meanwhile stay pending.
    pub(super) fn wrote(&mut self, changes: Pending) {
        for (key, entry) in changes {
            if self.pending.get(&key) == Some(&entry) {
                self.pending.remove(&key);
            }
            match entry {
                Some(entry) => self.entries.insert(key, entry),
                None => self.entries.remove(&key),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use release::storage::KnownDigest;

    use super::super::fixtures::{NONE, entry, key, listed, upstream, with_own};
    use super::super::upstream::ContinuityBreak;
    use super::*;

    /// One write too many would be refused by the API server with all others.
    #[test]
    fn a_full_ledger_refuses_only_entries_that_make_it_larger() {
        let mut state = LedgerState::default();
        let key = |n: usize| ReleaseKey {
            namespace: "ns".to_owned(),
            name: format!("app-{n}"),
        };
        let entry = |digests: i64| {
            let entry = LedgerEntry {
                bundle: "b".to_owned(),
                revisions: Some(super::super::notes::Notes::default()),
                ..LedgerEntry::default()
            };
            (1..=digests).fold(entry, |entry, n| entry.noting(n, "x".repeat(43)))
        };
        let mut taken = 0;
        while state.has_room(&key(taken), &entry(62)) {
            state.set(&key(taken), entry(62));
            taken += 1;
        }
        assert!((200..1_000).contains(&taken), "{taken}");
        let all = state.all();
        let all = all
            .iter()
            .map(|(key, entry)| (key.data_key(), serde_json::to_string(entry).unwrap()));
        let all: BTreeMap<_, _> = all.collect();
        assert!(serde_json::to_string(&all).unwrap().len() < 1 << 20);
        // An entry that does not grow is written, and one that shrinks makes room for others.
        assert!(state.has_room(&key(0), &entry(62)));
        assert!(state.has_room(&key(0), &entry(1)));
        let larger = LedgerEntry {
            keep_resources: true,
            bundle: "b".repeat(8 << 10),
            ..entry(62)
        };
        assert!(!state.has_room(&key(0), &larger));
        state.set(&key(1), entry(1));
        assert!(state.has_room(&key(taken), &entry(62)));
    }

    /// A fact that is wrong twice was not wrong in between.
    #[test]
    fn a_release_counts_as_left_since_cluster_facts_gave_its_bundle_another() {
        let mut state = LedgerState::default();
        let (web, db) = (key("web"), key("db"));
        let named = LedgerEntry {
            bundle: "a".to_owned(),
            names: Some("apps/${ .ClusterName }".to_owned()),
            ..LedgerEntry::default()
        };
        state.set(&web, named.clone());
        state.set(&db, entry("b"));
        let mut since = |desired: &ReleaseKey, names: &str, now| {
            state.wants("a", desired, Some(names), now);
            assert_eq!(state.get(&db).unwrap().left_since, None);
            state.get(&web).unwrap().left_since
        };
        let facts = "apps/${ .ClusterName }";
        assert_eq!(since(&web, facts, 10), None);
        assert_eq!(since(&db, facts, 20), Some(20));
        assert_eq!(since(&db, facts, 30), Some(20));
        assert_eq!(since(&web, facts, 40), None);
        assert_eq!(since(&db, facts, 50), Some(50));
        // The clock was put right; and the bundle asks for another name.
        assert_eq!(since(&db, facts, 45), Some(45));
        assert_eq!(since(&db, "apps/db", 60), None);
        state.set(&web, named);
        assert_eq!(state.wants("a", &web, Some(facts), 70), None);
    }

    #[test]
    fn a_change_that_was_asked_for_while_writing_stays_pending() {
        let mut state = LedgerState::default();
        assert!(state.set(&key("web"), entry("one")));
        let written = state.pending.clone();
        assert!(state.set(&key("web"), entry("two")));
        state.wrote(written);
        assert!(state.is_pending(&key("web")));
        assert_eq!(state.all(), [(key("web"), entry("two"))]);
        state.wrote(state.pending.clone());
        assert!(!state.set(&key("web"), entry("two")));
    }

    #[test]
    fn a_permission_is_for_the_removals_held_by_then() {
        let mut state = LedgerState::default();
        let held = LedgerEntry {
            hold: Some(Hold::Held),
            ..entry("held")
        };
        state.set(&key("a"), held);
        state.set(&key("b"), entry("other"));
        let found = state.all().into_iter().collect();
        // This hold is not written yet.
        let later = LedgerEntry {
            hold: Some(Hold::Held),
            ..entry("later")
        };
        state.set(&key("c"), later);
        state.release_held(&found);
        let let_go = std::mem::take(&mut state.let_go);
        assert_eq!(let_go, BTreeSet::from(["held".to_owned()]));
        assert_eq!(state.of_bundle("held")[0].1.hold, Some(Hold::Released));
        assert_eq!(state.of_bundle("other")[0].1.hold, None);
        assert_eq!(state.of_bundle("later")[0].1.hold, Some(Hold::Held));
        state.release_held(&found);
        assert!(state.let_go.is_empty());
    }

    /// Where Fleet does not manage the agent any more its own bundle is deleted upstream: every later removal would be held for that, and no
    /// permission would end it.
    #[test]
    fn once_the_agents_own_bundle_is_let_go_its_absence_holds_no_other_removal() {
        let had_own = |let_go: &str| {
            let mut state = LedgerState {
                upstream: Some(UpstreamState {
                    has_own: true,
                    ..upstream(7)
                }),
                ..LedgerState::default()
            };
            let held = LedgerEntry {
                hold: Some(Hold::Held),
                ..entry(let_go)
            };
            state.set(&key("a"), held);
            let found = state.all().into_iter().collect();
            state.release_held(&found);
            // The bundle goes, and the list lacks it.
            state.pending.insert(key("a"), None);
            state.check_continuity(upstream(8), 7, listed(&NONE));
            state.had_own()
        };
        assert!(had_own("apps") && !had_own("fleet-agent-c-1"));
        // Of two that are called alike only one was noted.
        let mut state = LedgerState {
            upstream: Some(with_own(7, &["one"])),
            ..LedgerState::default()
        };
        for (name, bundle) in [("a", "fleet-agent-else"), ("b", "fleet-agent-c1")] {
            let hold = Some(Hold::Held);
            state.set(
                &key(name),
                LedgerEntry {
                    hold,
                    ..entry(bundle)
                },
            );
            let found = state.all().into_iter().collect();
            state.release_held(&found);
            let seen = state.upstream.as_ref().unwrap();
            assert_eq!(seen.has_own, name == "a");
        }
    }

    #[test]
    fn a_bundle_seen_again_is_no_longer_held_and_stays_marked_as_lost() {
        let entry = LedgerEntry {
            is_removing: true,
            hold: Some(Hold::Held),
            lost: Some(ContinuityBreak::Restored),
            ..LedgerEntry::default()
        };
        let seen = entry.seen(false);
        assert_eq!((seen.is_removing, seen.hold), (false, None));
        assert_eq!(seen.lost, Some(ContinuityBreak::Restored));
    }

    #[test]
    fn a_revision_up_to_the_newest_noted_needs_its_digest() {
        let noted = entry("a").noting(2, "two".into()).noting(3, "three".into());
        let digest = |text: &str| KnownDigest::Digest(text.into());
        assert_eq!(noted.known_digest("a", 1), KnownDigest::Gone);
        assert_eq!(noted.known_digest("a", 3), digest("three"));
        assert_eq!(noted.known_digest("a", 4), KnownDigest::Unknown);
        let key = key("web");
        let mut state = LedgerState::default();
        state.set(&key, noted);
        // Records are pruned; the newest one is remembered to have been.
        state.note(&key, |entry| entry.without(2).without(3));
        let entry = state.get(&key).unwrap();
        assert_eq!(entry.known_digest("a", 2), KnownDigest::Gone);
        assert_eq!(entry.known_digest("a", 3), KnownDigest::Gone);
        assert_eq!((entry.digest(3), entry.may_believe(3)), (None, false));
        assert!(entry.may_believe(4));
        // The note of a record that another writer was faster with.
        state.note(&key, |entry| {
            entry.restoring("a", 3, Some("three".to_owned().into()))
        });
        assert_eq!(state.get(&key).unwrap().digest(3), Some("three"));
    }
}
