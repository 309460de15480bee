//! Which bundles are lost by a break of upstream, by comparing a list with what was seen before. No I/O.

use std::collections::BTreeMap;

use super::continuity::is_own;
use super::entry::{Hold, LedgerEntry};
use super::state::LedgerState;
use super::upstream::{ContinuityBreak, Listed, Renewal, UpstreamState};

/// What a ledger knew of losses, written or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// The bundles that are lost, and why.
    pub(super) bundles: BTreeMap<String, ContinuityBreak>,
    /// Upstream as it was seen last: a break may wait for a list that shows what is lost by it, and only the process knew how far upstream was.
    pub(super) upstream: Option<UpstreamState>,
    /// The version of that ledger, where it is known and its ConfigMap has all of this.
    pub(super) version: Option<u64>,
}

impl LedgerState {
    /// Compares upstream with the one seen before, whose version was `seen_version` when it was asked; bundles it does not list are lost
    /// after a break. That those it lists are gone was no proof, or is none any more. The break that was found and not reported yet, and whether there
    /// is anything to write.
    pub(super) fn check_continuity(
        &mut self,
        now: UpstreamState,
        seen_version: u64,
        listed: Listed<'_>,
    ) -> (Option<ContinuityBreak>, bool) {
        let mut before = self.upstream.clone();
        if let Some(before) = &mut before {
            let was_noted = !before.own.is_empty();
            // BundleDeployments with names like the agent's own were noted until the own one was known.
            before.own.retain(|name, _| is_own(name, listed.own_name));
            // Earlier versions took any name for it that begins like its own.
            let is_none = was_noted && before.own.is_empty() && listed.own_name.is_none();
            before.has_own &= !is_none;
        }
        let found = before.as_ref().and_then(|before| {
            let before = UpstreamState {
                version: seen_version,
                ..before.clone()
            };
            before.continues(&now).err()
        });
        // Without a noted one, releases that are held by now may have been lost with another agent BundleDeployment than this.
        let is_first_own = before.as_ref().is_none_or(|before| before.own.is_empty());
        let is_first_own = is_first_own && !now.own.is_empty();
        let is_renewal = found == Some(ContinuityBreak::Recreated);
        let is_confirmed = is_renewal && listed.renewal == Renewal::Confirmed;
        let new_break = found.filter(|_| !is_renewal || listed.renewal == Renewal::New);
        for (key, known) in self.all() {
            let entry = match listed.there.contains(&known.bundle) {
                true => known.clone().unproven(),
                false => known.clone(),
            };
            let was_held = is_first_own && entry.hold == Some(Hold::Held);
            let found = found
                .filter(|_| !is_confirmed)
                .or(was_held.then_some(ContinuityBreak::Recreated));
            let lost = lost(&entry, listed, found);
            // The permission is older than this break: the bundle may be back since, and lost with others.
            let is_let_go = entry.hold == Some(Hold::Released);
            let hold = match is_let_go && new_break.is_some() && lost.is_some() {
                true => Some(Hold::Held),
                false => entry.hold,
            };
            let entry = LedgerEntry {
                lost,
                hold,
                ..entry
            };
            if entry != known {
                self.pending.insert(key, Some(entry));
            }
        }
        self.note_vanished(listed, found.filter(|_| !is_confirmed));
        self.breaks += u64::from(new_break.is_some());
        let mut upstream = now;
        if let Some(before) = &before {
            upstream.heartbeat = before.heartbeat.clone();
            upstream.sending = before.sending;
            upstream.earlier.clone_from(&before.earlier);
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
            if is_renewal && !is_confirmed {
                upstream.own.clone_from(&before.own);
            }
        }
        // A version alone is not worth a write. What was not written by now, as a write failed, is.
        let noted = |upstream: &UpstreamState| {
            let at = (upstream.server.clone(), upstream.namespace.clone());
            let own = (upstream.has_own, upstream.own.clone());
            (at, own, upstream.broken)
        };
        let written = self.written.as_ref();
        let is_worth_a_write =
            new_break.is_some() || written.is_none_or(|written| noted(written) != noted(&upstream));
        self.upstream = Some(upstream);
        (new_break, is_worth_a_write || !self.pending.is_empty())
    }
}

impl LedgerState {
    /// Takes note of known bundles that are not listed after a break: what a deploy enters later of one of them is as lost as what was there.
    fn note_vanished(&mut self, listed: Listed<'_>, found: Option<ContinuityBreak>) {
        let is_missing = |name: &String| listed.known.contains(name) && !listed.all.contains(name);
        self.vanished.retain(|name, _| is_missing(name));
        if let Some(found) = found {
            let missing = listed.known.iter().filter(|name| is_missing(name));
            let missing = missing.map(|name| (name.clone(), found));
            self.vanished.extend(missing);
        }
    }

    /// Whether it is known that upstream lost something, and the ConfigMap does not have that.
    pub(super) fn has_unwritten_break(&self) -> bool {
        let is_broken = |upstream: &Option<UpstreamState>| {
            let upstream = upstream.as_ref();
            upstream.is_some_and(|upstream| upstream.broken.is_some())
        };
        let is_newly_lost = |(key, entry): (&_, &Option<LedgerEntry>)| {
            let lost = entry.as_ref().filter(|entry| entry.lost.is_some());
            let written = self.entries.get(key).zip(lost);
            written.is_some_and(|(written, lost)| {
                let is_let_go = |entry: &LedgerEntry| entry.hold == Some(Hold::Released);
                written.lost.is_none() || is_let_go(written) && !is_let_go(lost)
            })
        };
        is_broken(&self.upstream) && !is_broken(&self.written)
            || self.pending.iter().any(is_newly_lost)
    }

    /// Up to which heartbeat, in seconds since 1970, a ledger has to account for them to know all that is known here. None does, where the ConfigMap lacks
    /// a break: the next heartbeat overwrites what proves that, and has to prove it to whoever reads the ConfigMap after this process.
    pub(super) fn vouches_for(&self) -> Option<i64> {
        match self.has_unwritten_break() {
            true => Some(i64::MAX),
            false => self.written.as_ref().and_then(UpstreamState::accounts_for),
        }
    }

    /// Whether a heartbeat of this time would prove no break that the ConfigMap lacks: it is noted there already, or may be, from a moment before the
    /// break was found.
    pub(super) fn hides_break(&self, at: i64) -> bool {
        let noted = self.written.as_ref().and_then(UpstreamState::accounts_for);
        self.has_unwritten_break() && noted.max(self.unanswered) >= Some(at)
    }

    /// A write of all that is known here is about to be sent.
    pub(super) fn begins_write(&mut self) {
        if !self.has_unwritten_break() {
            let noted = self.upstream.as_ref().and_then(UpstreamState::accounts_for);
            self.unanswered = self.unanswered.max(noted);
        }
    }

    /// This is what the ConfigMap has of upstream.
    pub(super) fn has_written(&mut self, upstream: Option<UpstreamState>) {
        (self.written, self.unanswered) = (upstream, None);
    }

    /// Why each bundle is lost.
    pub(super) fn losses(&self) -> BTreeMap<String, ContinuityBreak> {
        let entries = self.iter();
        let lost = entries.filter_map(|(_, entry)| Some((entry.bundle.clone(), entry.lost?)));
        lost.chain(self.vanished.clone()).collect()
    }

    /// Takes over what was known to be lost, until upstream lists it.
    pub(super) fn inherits_losses(&mut self, losses: BTreeMap<String, ContinuityBreak>) {
        for (key, entry) in self.all() {
            let lost = entry.lost.or(losses.get(&entry.bundle).copied());
            if lost != entry.lost {
                // The permission is older than the loss.
                let hold = entry.hold.map(|_| Hold::Held);
                let entry = LedgerEntry {
                    lost,
                    hold,
                    ..entry
                };
                self.set(&key, entry);
            }
        }
        self.vanished.extend(losses);
    }

    /// Whether upstream has taken heartbeats since that only another process can have sent, which had read what was known `before`.
    fn is_ahead_of(&self, before: &UpstreamState) -> bool {
        self.upstream.as_ref().is_some_and(|now| {
            let is_same = !now.heartbeat.cluster.is_empty()
                && now.heartbeat.cluster == before.heartbeat.cluster;
            is_same && now.accounts_for() > before.accounts_for()
        })
    }

    /// Takes over what was known of the same upstream: no list may fall behind that.
    /// A version that was seen before another agent led may be of before a restore that this one has noticed and settled.
    pub(super) fn inherits_upstream(&mut self, former: &UpstreamState) {
        let is_outdated = self.is_ahead_of(former);
        let is_same = |upstream: &&mut UpstreamState| {
            upstream.server == former.server && upstream.namespace == former.namespace
        };
        if let Some(upstream) = self.upstream.as_mut().filter(is_same) {
            upstream.broken = upstream.broken.or(former.broken);
            if !is_outdated {
                upstream.version = upstream.version.max(former.version);
            }
        }
    }

    /// An entry as it is to be written, of a bundle that may have vanished while it was deployed.
    pub(super) fn marked(&self, entry: LedgerEntry) -> LedgerEntry {
        LedgerEntry {
            lost: entry.lost.or(self.vanished.get(&entry.bundle).copied()),
            ..entry
        }
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
        // Deleted with the agent's own bundle, it may be made anew as that was.
        true => [found, entry.lost]
            .contains(&Some(recreated))
            .then_some(recreated),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::fixtures::{NONE, entry, key, listed, upstream, with_own};
    use super::super::upstream::{Heartbeat, Remembered};
    use super::*;

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
        // The break is reported once.
        let (found, _) = state.check_continuity(upstream(9), 8, none);
        assert_eq!((found, state.breaks), (None, 1));
    }

    /// A list may have it without the watch ever telling of it.
    #[test]
    fn that_a_listed_bundle_goes_is_to_be_proven_anew() {
        let mut state = LedgerState {
            upstream: Some(upstream(7)),
            ..LedgerState::default()
        };
        for name in ["back", "gone", "left_since"] {
            let entry = LedgerEntry {
                is_removing: true,
                hold: Some(Hold::Released),
                ..entry(name)
            };
            state.set(&key(name), entry);
        }
        let all = BTreeSet::from(["back".to_owned(), "left_since".to_owned()]);
        let there = BTreeSet::from(["back".to_owned()]);
        let listed = Listed {
            there: &there,
            ..listed(&all)
        };
        state.check_continuity(upstream(8), 7, listed);
        let proofs = |name| {
            let entry = &state.of_bundle(name)[0].1;
            (entry.is_removing, entry.hold)
        };
        assert_eq!(proofs("back"), (false, Some(Hold::Held)));
        for name in ["gone", "left_since"] {
            assert_eq!(proofs(name), (true, Some(Hold::Released)));
        }
    }

    /// A list is under way when the watch, which listed after it, finds that upstream was restored: it may have what that lost.
    #[test]
    fn a_list_begun_before_a_restore_was_found_marks_no_bundle_as_lost() {
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

    /// The answer to the write that notes the heartbeat is lost, and a break is found before it goes out: whoever reads the ConfigMap next would find
    /// that heartbeat accounted for.
    #[test]
    fn a_heartbeat_hides_a_break_where_it_may_be_noted_already() {
        let mut state = LedgerState {
            upstream: Some(UpstreamState {
                heartbeat: sent(100),
                ..upstream(7)
            }),
            ..LedgerState::default()
        };
        state.has_written(state.upstream.clone());
        let seen = state.upstream.as_mut().unwrap();
        seen.sends(160);
        state.begins_write();
        state.upstream.as_mut().unwrap().broken = Some(ContinuityBreak::Restored);
        assert!(state.hides_break(160) && !state.hides_break(161));
        // A write that has the break says so to whoever reads it.
        state.upstream.as_mut().unwrap().sends(220);
        state.begins_write();
        assert!(!state.hides_break(220));
        state.has_written(state.upstream.clone());
        assert!(!state.hides_break(160));
    }

    /// A write of the note alone failed: no entry waits for another.
    #[test]
    fn what_is_not_written_of_upstream_is_written_with_the_next_list() {
        let seen = with_own(7, &["one"]);
        let mut state = LedgerState {
            upstream: Some(seen.clone()),
            written: Some(seen.clone()),
            ..LedgerState::default()
        };
        let mut must_write = |written: Option<UpstreamState>, now: UpstreamState| {
            state.written = written;
            state.check_continuity(now, 7, listed(&NONE))
        };
        let broken = UpstreamState {
            broken: Some(ContinuityBreak::Restored),
            ..seen.clone()
        };
        let next = || with_own(8, &["one"]);
        assert_eq!(must_write(Some(seen.clone()), next()), (None, false));
        assert_eq!(must_write(None, next()), (None, true));
        assert_eq!(must_write(Some(broken), next()), (None, true));
        assert_eq!(must_write(Some(upstream(7)), next()), (None, true));
        assert_eq!(must_write(Some(seen), next()), (None, false));
    }

    /// The chart took its time: nothing of the bundle was in the ledger when upstream was restored.
    #[test]
    fn what_is_deployed_of_a_bundle_that_a_restore_took_meanwhile_is_lost() {
        let mut state = LedgerState {
            upstream: Some(upstream(7)),
            ..LedgerState::default()
        };
        let known = BTreeSet::from(["deploying".to_owned()]);
        let without = Listed {
            known: &known,
            ..listed(&NONE)
        };
        let found = state.check_continuity(upstream(6), 7, without).0;
        assert_eq!(found, Some(ContinuityBreak::Restored));
        // As the next list has it still.
        state.check_continuity(upstream(8), 6, without);
        let lost = |state: &LedgerState, bundle: &str| state.marked(entry(bundle)).lost;
        assert_eq!(lost(&state, "deploying"), found);
        assert_eq!(lost(&state, "another"), None);
        let with = Listed {
            known: &known,
            ..listed(&known)
        };
        state.check_continuity(upstream(9), 8, with);
        assert_eq!(lost(&state, "deploying"), None);
        state.check_continuity(upstream(5), 9, without);
        assert_eq!(lost(&state, "deploying"), found);
        state.check_continuity(upstream(10), 5, listed(&NONE));
        assert_eq!(state.vanished.len(), 0, "none is being deployed any more");
    }

    /// Bundles that go with the agent's own BundleDeployment are not deleted, though a restored upstream lacks that one already.
    #[test]
    fn the_ledger_remembers_the_agents_own_bundle_across_a_restore() {
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

    /// The cluster is restored from a backup of before a bundle was lost.
    #[test]
    fn what_a_former_ledger_knew_to_be_lost_stays_lost_until_it_is_listed() {
        let mut former = LedgerState::default();
        let restored = Some(ContinuityBreak::Restored);
        for (bundle, lost) in [("lost", restored), ("deleted", None)] {
            former.set(
                &key(bundle),
                LedgerEntry {
                    lost,
                    ..entry(bundle)
                },
            );
        }
        let mut state = LedgerState {
            upstream: Some(upstream(7)),
            ..LedgerState::default()
        };
        for bundle in ["lost", "deleted"] {
            let hold = Some(Hold::Released);
            let let_go = LedgerEntry {
                hold,
                ..entry(bundle)
            };
            state.entries.insert(key(bundle), let_go);
        }
        state.inherits_losses(former.losses());
        let holds = ["lost", "deleted"].map(|bundle| state.of_bundle(bundle)[0].1.hold);
        assert_eq!(holds, [Some(Hold::Held), Some(Hold::Released)]);
        let lost = |state: &LedgerState| {
            ["lost", "deleted"].map(|bundle| state.of_bundle(bundle)[0].1.lost)
        };
        assert_eq!(lost(&state), [restored, None]);
        state.check_continuity(upstream(8), 7, listed(&NONE));
        assert_eq!(lost(&state), [restored, None]);
        let names = BTreeSet::from(["lost".to_owned()]);
        state.check_continuity(upstream(9), 8, listed(&names));
        assert_eq!(lost(&state), [None, None]);
        assert!(state.losses().is_empty());
    }

    /// Upstream was restored, which is not written yet, when somebody let go what was held before.
    #[test]
    fn a_permission_does_not_cover_a_break_that_is_not_written_yet() {
        let mut state = LedgerState {
            upstream: Some(upstream(7)),
            ..LedgerState::default()
        };
        let held = LedgerEntry {
            hold: Some(Hold::Held),
            ..entry("held")
        };
        state.entries.insert(key("held"), held);
        let found = state.entries.clone();
        state.check_continuity(upstream(6), 7, listed(&NONE));
        state.release_held(&found);
        let (_, entry) = &state.of_bundle("held")[0];
        assert_eq!(
            (entry.hold, state.ends_permission),
            (Some(Hold::Held), true)
        );
    }

    /// A removal that somebody let go fails. Its bundle comes back, and is lost with all others when upstream is restored, while no agent runs.
    #[test]
    fn a_permission_does_not_cover_bundles_lost_later() {
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
        // A permission given since covers it.
        let found = state.all().into_iter().collect();
        state.release_held(&found);
        state.check_continuity(upstream(9), 6, listed(&NONE));
        assert_eq!(hold(&state, "let-go"), Some(Hold::Released));
    }

    /// An earlier version noted it as the agent's own, whose absence would hold all removals for good.
    #[test]
    fn a_bundle_whose_name_only_begins_like_the_agents_own_is_not_its_own() {
        let had_own = |noted: &str, own_name| {
            let own = BTreeMap::from([(noted.to_owned(), "uid".to_owned())]);
            let mut state = LedgerState {
                upstream: Some(UpstreamState {
                    has_own: true,
                    own,
                    ..upstream(7)
                }),
                ..LedgerState::default()
            };
            let list = Listed {
                own_name,
                ..listed(&NONE)
            };
            state.check_continuity(upstream(8), 7, list);
            state.had_own()
        };
        assert!(!had_own("fleet-agents", None));
        assert!(had_own("fleet-agent-c1", None));
        // The agent's own bundle is known, and is gone.
        assert!(had_own("fleet-agents", Some("fleet-agent-c1")));
    }

    /// Somebody's GitRepo is called `fleet-agent-else`, and was noted before the agent's own was there.
    #[test]
    fn a_bundle_named_like_the_agents_own_is_forgotten_once_the_own_one_is_known() {
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
            let (new_break, _) = state.check_continuity(with_own(version, own), 0, list);
            let noted = state.upstream.as_ref().unwrap().own.clone();
            let lost = ["held", "missing"].map(|bundle| state.of_bundle(bundle)[0].1.lost);
            (new_break, noted == with_own(0, &["one"]).own, lost)
        };
        let recreated = Some(ContinuityBreak::Recreated);
        // As where none was noted before.
        assert_eq!(check(2, &["one"]), (None, true, [recreated, None]));
        assert_eq!(check(3, &[]), (None, true, [recreated, None]));
        assert_eq!(check(4, &["one"]), (None, true, [recreated, None]));
        assert_eq!(check(5, &["two"]), (recreated, true, [recreated; 2]));
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

    /// All BundleDeployments vanished, and the agent's own is the first that is made anew.
    #[test]
    fn bundles_not_back_when_the_agents_own_is_recreated_are_lost() {
        use Renewal::{Confirmed, New, Reported};
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
                there: &all,
                known: &NONE,
                own_name: None,
                was_broken: true,
                renewal,
            };
            let (new_break, must_write) = state.check_continuity(with_own(version, own), 0, list);
            let lost = state.all().into_iter();
            let lost = lost.filter_map(|(_, entry)| entry.lost.map(|_| entry.bundle));
            (new_break, must_write, lost.collect::<Vec<_>>())
        };
        let none = || Vec::<String>::new();
        let all = ["back", "later", "leaving", "missing", "removing"];
        assert_eq!(check(1, &["one"], New, &all, &[]), (None, true, none()));
        // The bundle is gone, or still there.
        assert_eq!(check(2, &[], New, &["leaving"], &["leaving"]).2, none());
        assert_eq!(check(3, &["one"], New, &["back"], &[]).2, none());
        let listed = ["back", "later", "leaving"];
        let (new_break, must_write, lost) = check(4, &["two"], New, &listed, &["leaving"]);
        assert_eq!(
            (new_break, must_write),
            (Some(ContinuityBreak::Recreated), true)
        );
        assert_eq!(lost, ["leaving", "missing", "removing"]);
        // The bundle was being deleted and still is, and no event says that it is back.
        let listed = ["back", "later"];
        assert_eq!(
            check(5, &["two"], Reported, &listed, &[]),
            (None, true, lost)
        );
        // A bundle that goes later is lost too until the new uid is noted.
        let (new_break, _, lost) = check(6, &["two"], Reported, &["back"], &[]);
        assert_eq!((new_break, lost.len()), (None, 4));
        assert_eq!(check(7, &["two"], Confirmed, &[], &[]), (None, true, lost));
        // A bundle made anew is lost no more, and goes like any other after that.
        assert_eq!(check(8, &["two"], New, &all, &[]).2, none());
        assert_eq!(check(9, &["two"], New, &["back"], &[]).2, none());
        // A bundle of somebody else's whose name begins like that of the agent's own comes, and does not hide that this one is made anew.
        let (new_break, _, lost) = check(10, &["two", "else"], New, &["back"], &[]);
        assert_eq!((new_break, lost), (None, none()));
        let (new_break, _, lost) = check(11, &["three", "else"], New, &["back"], &[]);
        assert_eq!(
            (new_break, lost.len()),
            (Some(ContinuityBreak::Recreated), 4)
        );
        // Nor while the agent's own is not listed.
        assert_eq!(
            check(12, &["three", "else"], Confirmed, &all, &[]).2,
            none()
        );
        assert_eq!(check(13, &["", "else"], New, &all, &[]).0, None);
        let (new_break, _, lost) = check(14, &["four", "else"], New, &["back"], &[]);
        assert_eq!(
            (new_break, lost.len()),
            (Some(ContinuityBreak::Recreated), 4)
        );
    }

    /// A ledger of an agent that noted no uid; or the agent had no bundle of its own so far.
    #[test]
    fn removals_held_before_the_agents_own_bundle_was_known_stay_held() {
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
}
