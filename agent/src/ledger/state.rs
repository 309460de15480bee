//! What the ledger holds: an entry for each release, as it is known to be written, and what is yet to be. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::{Hold, LedgerEntry};
use super::key::ReleaseKey;
use super::postponed::AllPostponed;
use super::upstream::{ContinuityBreak, Listed, Renewal, UpstreamState};

/// Changes that were asked for and are not known to be written; `None` removes an entry.
pub(super) type Pending = BTreeMap<ReleaseKey, Option<LedgerEntry>>;

/// What all entries may take in the ConfigMap: it has annotations and a mebibyte.
const MAX_BYTES: usize = 900 << 10;

/// More than an entry of a release takes that keeps as many revisions as it may, with those of somebody else's.
const MOST_OF_AN_ENTRY: usize = 8 << 10;

#[derive(Debug, Default)]
pub(super) struct LedgerState {
    /// As written.
    pub(super) entries: BTreeMap<ReleaseKey, LedgerEntry>,
    pub(super) pending: Pending,
    /// Upstream as last seen.
    pub(super) upstream: Option<UpstreamState>,
    /// What is not tried again at once.
    pub(super) postponed: AllPostponed,
    /// Whether they are not known to be written as they are.
    pub(super) is_postponed_pending: bool,
    /// How often upstream was not the one seen before.
    pub(super) breaks: u64,
    /// A permission for held removals was taken in, and is to be taken off the ConfigMap with the next write.
    pub(super) ends_permission: bool,
    /// Bundles that it let go, of which nobody was told yet.
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
        let size = |key: &ReleaseKey, entry: &LedgerEntry| {
            let text = serde_json::to_string(entry).map_or(0, |text| text.len());
            key.data_key().len() + text
        };
        let all = self.all();
        let before = all.iter().find(|(known, _)| known == key);
        let before = before.map_or(0, |(key, entry)| size(key, entry));
        let after = size(key, entry);
        // Most ledgers are far from it, and need not be measured.
        if after <= before || all.len() * MOST_OF_AN_ENTRY < MAX_BYTES {
            return true;
        }
        let total: usize = all.iter().map(|(key, entry)| size(key, entry)).sum();
        total - before + after <= MAX_BYTES
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

    /// What a bundle tried goes on otherwise now, and is tried at once.
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
        let changed = change(entry.clone());
        if changed != entry {
            self.pending.insert(key.clone(), Some(changed));
        }
    }

    /// Lets go what is held by what was `found` written where the permission for it stood, and takes that back: nobody was shown what is yet to be
    /// written as held. Whom it let go is told later. Where the agent's own bundle is among them, that upstream lists none
    /// holds nothing back from now on, until it lists one again: whoever let it go says that Fleet does not manage this agent any more.
    pub(super) fn release_held(&mut self, found: &BTreeMap<ReleaseKey, LedgerEntry>) {
        self.ends_permission = true;
        let is_held = |entry: &LedgerEntry| entry.hold == Some(Hold::Held);
        let mut held = self.filtered(is_held);
        held.retain(|(key, _)| found.get(key).is_some_and(is_held));
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

    /// These changes were written. What was asked for meanwhile stays pending.
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

    /// Compares upstream with the one seen before, whose version was `seen_version` when it was asked; bundles it does not list are lost
    /// after a break. What was found and not told yet, and whether there is anything to write.
    pub(super) fn check_continuity(
        &mut self,
        now: UpstreamState,
        seen_version: u64,
        listed: Listed<'_>,
    ) -> (Option<ContinuityBreak>, bool) {
        let mut before = self.upstream.clone();
        if let (Some(before), Some(own)) = (&mut before, listed.own_name) {
            // Others that are called alike were noted until it was known.
            before.own.retain(|name, _| name == own);
        }
        let found = before.as_ref().and_then(|before| {
            let before = UpstreamState {
                version: seen_version,
                ..before.clone()
            };
            before.continues(&now).err()
        });
        // Where none was noted, what is held by now may have gone with another one than this.
        let is_first_own = before.as_ref().is_none_or(|before| before.own.is_empty());
        let is_first_own = is_first_own && !now.own.is_empty();
        let is_renewal = found == Some(ContinuityBreak::Recreated);
        let is_settled = is_renewal && listed.renewal == Renewal::Settled;
        let told = found.filter(|_| !is_renewal || listed.renewal == Renewal::New);
        for (key, entry) in self.all() {
            let was_held = is_first_own && entry.hold == Some(Hold::Held);
            let found = found
                .filter(|_| !is_settled)
                .or(was_held.then_some(ContinuityBreak::Recreated));
            let lost = lost(&entry, listed, found);
            // Whoever let it go did not know of this: it may have come back since, and be lost with others.
            let is_let_go = entry.hold == Some(Hold::Released);
            let hold = match is_let_go && told.is_some() && lost.is_some() {
                true => Some(Hold::Held),
                false => entry.hold,
            };
            if (lost, hold) != (entry.lost, entry.hold) {
                let entry = LedgerEntry {
                    lost,
                    hold,
                    ..entry
                };
                self.pending.insert(key, Some(entry));
            }
        }
        self.breaks += u64::from(told.is_some());
        let mut upstream = now;
        if let Some(before) = &before {
            upstream.heartbeat = before.heartbeat.clone();
            upstream.broken = before.broken.filter(|_| !listed.was_broken);
        }
        if let (Some(before), None) = (&before, found) {
            upstream.version = upstream.version.max(before.version);
        }
        // Only another upstream never had a bundle of the agent's own.
        if let Some(before) = before
            .as_ref()
            .filter(|_| found != Some(ContinuityBreak::Elsewhere))
        {
            upstream.inherits(before);
            if is_renewal && !is_settled {
                upstream.own.clone_from(&before.own);
            }
        }
        // A version alone is not worth a write.
        let own = |upstream: &UpstreamState| (upstream.has_own, upstream.own.clone());
        let is_worth_a_write = before
            .as_ref()
            .is_none_or(|before| told.is_some() || own(before) != own(&upstream));
        self.upstream = Some(upstream);
        (told, is_worth_a_write || !self.pending.is_empty())
    }
}

/// Why a bundle's absence is no proof from now on, by a list in which a break was `found` or not.
fn lost(
    entry: &LedgerEntry,
    listed: Listed<'_>,
    found: Option<ContinuityBreak>,
) -> Option<ContinuityBreak> {
    let recreated = ContinuityBreak::Recreated;
    if !listed.all.contains(&entry.bundle) {
        return found.or(entry.lost);
    }
    match listed.leaving.contains(&entry.bundle) {
        // It goes with what the agent's own went with, and may be made anew as that was.
        true => [found, entry.lost]
            .contains(&Some(recreated))
            .then_some(recreated),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use release::storage::KnownDigest;

    use super::super::fixtures::{entry, key};
    use super::super::upstream::{Heartbeat, Remembered};
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
    fn a_release_is_left_from_when_facts_gave_its_bundle_another_one() {
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

    fn upstream(version: u64) -> UpstreamState {
        UpstreamState {
            server: "a".into(),
            version,
            ..UpstreamState::default()
        }
    }

    static NONE: BTreeSet<String> = BTreeSet::new();

    /// A list of these, none of which is being deleted.
    fn listed(all: &BTreeSet<String>) -> Listed<'_> {
        Listed {
            all,
            leaving: &NONE,
            own_name: None,
            was_broken: true,
            renewal: Renewal::New,
        }
    }

    fn sent(at: i64) -> Heartbeat {
        Heartbeat {
            at: Some(at),
            ..Heartbeat::default()
        }
    }

    /// Upstream forgot a report, and no list came before it took the next one.
    #[test]
    fn unlisted_bundles_stay_lost_where_a_continuity_break_came_before_the_list() {
        let mut state = LedgerState {
            upstream: Some(UpstreamState {
                heartbeat: sent(100),
                ..upstream(7)
            }),
            ..LedgerState::default()
        };
        state.set(&key("a"), entry("newer"));
        let seen = state.upstream.as_mut().unwrap();
        seen.remembers(Remembered::gone(), &sent(100));
        seen.heartbeat = sent(160);
        let none = listed(&NONE);
        let (found, must_write) = state.check_continuity(upstream(8), 7, none);
        assert_eq!((found, must_write), (Some(ContinuityBreak::Restored), true));
        assert_eq!(state.of_bundle("newer")[0].1.lost, found);
        let seen = state.upstream.clone().unwrap();
        assert_eq!((seen.broken, seen.heartbeat), (None, sent(160)));
        // It is told once.
        let (found, _) = state.check_continuity(upstream(9), 8, none);
        assert_eq!((found, state.breaks), (None, 1));
    }

    /// A list is under way when the watch, which listed after it, finds that upstream was restored: it may have what that lost.
    #[test]
    fn a_list_from_before_a_break_was_found_does_not_say_what_is_lost_by_it() {
        let mut state = LedgerState {
            upstream: Some(upstream(7)),
            ..LedgerState::default()
        };
        state.set(&key("a"), entry("newer"));
        let seen = state.upstream.as_mut().unwrap();
        seen.broken = Some(ContinuityBreak::Restored);
        let all = BTreeSet::from(["newer".to_owned()]);
        let early = Listed {
            was_broken: false,
            ..listed(&all)
        };
        let found = state.check_continuity(upstream(8), 7, early).0;
        assert_eq!(found, Some(ContinuityBreak::Restored));
        assert_eq!(state.of_bundle("newer")[0].1.lost, None);
        let later = listed(&NONE);
        assert_eq!(state.check_continuity(upstream(9), 8, later).0, found);
        assert_eq!(state.of_bundle("newer")[0].1.lost, found);
        assert_eq!(state.check_continuity(upstream(10), 9, later).0, None);
    }

    /// What goes with the agent's own BundleDeployment is no deletion, though a restored upstream lacks that one already.
    #[test]
    fn that_the_agent_had_a_bundle_of_its_own_outlives_a_restore() {
        let had_own = |now: UpstreamState| {
            let mut state = LedgerState {
                upstream: Some(UpstreamState {
                    has_own: true,
                    ..upstream(7)
                }),
                ..LedgerState::default()
            };
            state.check_continuity(now, 7, listed(&NONE));
            state.had_own()
        };
        assert!(had_own(upstream(8)));
        assert!(had_own(upstream(6)), "restored");
        let elsewhere = UpstreamState {
            server: "b".into(),
            ..upstream(8)
        };
        assert!(!had_own(elsewhere));
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
        // It is not written yet that this one is.
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

    /// A removal that somebody let go fails. Its bundle comes back, and is lost with all others when upstream is restored, while no agent runs.
    #[test]
    fn a_permission_is_not_for_what_is_lost_later() {
        let mut state = LedgerState {
            upstream: Some(upstream(7)),
            ..LedgerState::default()
        };
        let let_go = LedgerEntry {
            hold: Some(Hold::Released),
            ..entry("let-go")
        };
        state.set(&key("a"), let_go);
        state.check_continuity(upstream(8), 7, listed(&NONE));
        let hold = |state: &LedgerState, bundle| state.of_bundle(bundle)[0].1.hold;
        assert_eq!(hold(&state, "let-go"), Some(Hold::Released));
        state.check_continuity(upstream(6), 8, listed(&NONE));
        assert_eq!(hold(&state, "let-go"), Some(Hold::Held));
        // One that is given for that is for that.
        let found = state.all().into_iter().collect();
        state.release_held(&found);
        state.check_continuity(upstream(9), 6, listed(&NONE));
        assert_eq!(hold(&state, "let-go"), Some(Hold::Released));
    }

    /// Where Fleet does not manage the agent any more its own bundle is deleted upstream: every later removal would be held for that, and no
    /// permission would end it.
    #[test]
    fn letting_the_agents_own_bundle_go_ends_that_its_absence_holds_others() {
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
            // It goes, and upstream is listed without it.
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

    /// Somebody's GitRepo is called `fleet-agent-else`, and was noted before the agent's own was there.
    #[test]
    fn what_is_called_like_the_agents_own_bundle_is_forgotten_once_that_is_known() {
        let mut state = LedgerState {
            upstream: Some(with_own(1, &["", "else"])),
            ..LedgerState::default()
        };
        let held = LedgerEntry {
            hold: Some(Hold::Held),
            ..entry("held")
        };
        state.set(&key("a"), held);
        state.set(&key("b"), entry("missing"));
        let mut check = |version: u64, own: &[&str]| {
            let list = Listed {
                own_name: Some("fleet-agent-c1"),
                ..listed(&NONE)
            };
            let (told, _) = state.check_continuity(with_own(version, own), 0, list);
            let noted = state.upstream.as_ref().unwrap().own.clone();
            let lost = ["held", "missing"].map(|bundle| state.of_bundle(bundle)[0].1.lost);
            (told, noted == with_own(0, &["one"]).own, lost)
        };
        let recreated = Some(ContinuityBreak::Recreated);
        // As where none was noted before.
        assert_eq!(check(2, &["one"]), (None, true, [recreated, None]));
        assert_eq!(check(3, &[]), (None, true, [recreated, None]));
        assert_eq!(check(4, &["one"]), (None, true, [recreated, None]));
        assert_eq!(check(5, &["two"]), (recreated, true, [recreated; 2]));
    }

    #[test]
    fn a_bundle_in_the_store_is_held_no_more_and_lost_all_the_same() {
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
    fn after_a_restore_only_unlisted_bundles_are_lost_until_they_are_listed() {
        let mut state = LedgerState::default();
        state.set(&key("a"), entry("listed"));
        state.set(&key("b"), entry("unlisted"));
        let names = BTreeSet::from(["listed".to_owned()]);
        assert_eq!(
            state.check_continuity(upstream(7), 0, listed(&names)).0,
            None
        );
        let (found, must_write) = state.check_continuity(upstream(6), 7, listed(&names));
        assert_eq!((found, must_write), (Some(ContinuityBreak::Restored), true));
        let lost = |state: &LedgerState| state.of_bundle("unlisted")[0].1.lost;
        assert_eq!(lost(&state), found);
        assert_eq!(state.of_bundle("listed")[0].1.lost, None);
        let both = BTreeSet::from(["listed".to_owned(), "unlisted".to_owned()]);
        assert_eq!(
            state.check_continuity(upstream(8), 6, listed(&both)).0,
            None
        );
        assert_eq!((lost(&state), state.breaks), (None, 1));
    }

    /// Upstream as it is listed with the agent's own, and with one of somebody else's that is called alike.
    fn with_own(version: u64, own: &[&str]) -> UpstreamState {
        let names = ["fleet-agent-c1", "fleet-agent-else"];
        let own = names.iter().zip(own);
        let own: BTreeMap<_, _> = own
            .filter(|(_, uid)| !uid.is_empty())
            .map(|(name, uid)| ((*name).to_owned(), (*uid).to_owned()))
            .collect();
        UpstreamState {
            has_own: !own.is_empty(),
            own,
            ..upstream(version)
        }
    }

    /// All BundleDeployments vanished, and the agent's own is the first that is made anew.
    #[test]
    fn what_is_not_back_when_the_agents_own_bundle_is_another_one_is_lost() {
        use Renewal::{New, Settled, Told};
        let mut state = LedgerState::default();
        for bundle in ["back", "missing", "leaving", "removing", "later"] {
            let is_removing = bundle == "removing";
            let entry = LedgerEntry {
                is_removing,
                ..entry(bundle)
            };
            state.set(&key(bundle), entry);
        }
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let mut check = |version: u64, own: &[&str], renewal, all: &[&str], leaving: &[&str]| {
            let (all, leaving): (BTreeSet<_>, BTreeSet<_>) = (names(all), names(leaving));
            let list = Listed {
                all: &all,
                leaving: &leaving,
                own_name: None,
                was_broken: true,
                renewal,
            };
            let (told, must_write) = state.check_continuity(with_own(version, own), 0, list);
            let lost = state.all().into_iter();
            let lost = lost.filter_map(|(_, entry)| entry.lost.map(|_| entry.bundle));
            (told, must_write, lost.collect::<Vec<_>>())
        };
        let none = || Vec::<String>::new();
        let all = ["back", "later", "leaving", "missing", "removing"];
        assert_eq!(check(1, &["one"], New, &all, &[]), (None, true, none()));
        // It is gone, or still there.
        assert_eq!(check(2, &[], New, &["leaving"], &["leaving"]).2, none());
        assert_eq!(check(3, &["one"], New, &["back"], &[]).2, none());
        let listed = ["back", "later", "leaving"];
        let (told, must_write, lost) = check(4, &["two"], New, &listed, &["leaving"]);
        assert_eq!((told, must_write), (Some(ContinuityBreak::Recreated), true));
        assert_eq!(lost, ["leaving", "missing", "removing"]);
        // What was being deleted is, and nobody says that it is back.
        let listed = ["back", "later"];
        assert_eq!(check(5, &["two"], Told, &listed, &[]), (None, true, lost));
        // What goes later went with them, as long as the new one is not noted.
        let (told, _, lost) = check(6, &["two"], Told, &["back"], &[]);
        assert_eq!((told, lost.len()), (None, 4));
        assert_eq!(check(7, &["two"], Settled, &[], &[]), (None, true, lost));
        // What is made anew is lost no more, and goes like anything else after that.
        assert_eq!(check(8, &["two"], New, &all, &[]).2, none());
        assert_eq!(check(9, &["two"], New, &["back"], &[]).2, none());
        // A bundle of somebody else's whose name begins like that of the agent's own comes, and does not hide that this one is made anew.
        let (told, _, lost) = check(10, &["two", "else"], New, &["back"], &[]);
        assert_eq!((told, lost), (None, none()));
        let (told, _, lost) = check(11, &["three", "else"], New, &["back"], &[]);
        assert_eq!((told, lost.len()), (Some(ContinuityBreak::Recreated), 4));
        // Nor does it while the agent's own is not listed.
        assert_eq!(check(12, &["three", "else"], Settled, &all, &[]).2, none());
        assert_eq!(check(13, &["", "else"], New, &all, &[]).0, None);
        let (told, _, lost) = check(14, &["four", "else"], New, &["back"], &[]);
        assert_eq!((told, lost.len()), (Some(ContinuityBreak::Recreated), 4));
    }

    /// A ledger of an agent that noted no uid; or the agent had no bundle of its own so far.
    #[test]
    fn what_was_held_before_the_agents_own_bundle_was_known_is_not_let_go_by_it() {
        for has_own in [true, false] {
            let mut state = LedgerState {
                upstream: Some(UpstreamState {
                    has_own,
                    ..upstream(7)
                }),
                ..LedgerState::default()
            };
            state.set(&key("a"), entry("deleted"));
            let held = LedgerEntry {
                hold: Some(Hold::Held),
                ..entry("held")
            };
            state.set(&key("b"), held);
            let (found, must_write) =
                state.check_continuity(with_own(8, &["one"]), 7, listed(&NONE));
            assert_eq!((found, must_write), (None, true));
            assert_eq!(state.of_bundle("deleted")[0].1.lost, None);
            let lost = state.of_bundle("held")[0].1.lost;
            assert_eq!(lost, Some(ContinuityBreak::Recreated));
            // And a ledger that was written before is read.
            let text = r#"{"server": "a", "namespace": "n", "hasOwn": true}"#;
            let read: UpstreamState = serde_json::from_str(text).unwrap();
            assert!(read.has_own && read.own.is_empty());
        }
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
        // What was noted for a record that another writer was faster with.
        state.note(&key, |entry| {
            entry.restoring("a", 3, Some("three".to_owned().into()))
        });
        assert_eq!(state.get(&key).unwrap().digest(3), Some("three"));
    }
}
