//! What the ledger holds: as it is known to be written, and what is yet to be. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::{LedgerEntry, ReleaseKey};
use super::undone::AllUndone;
use super::upstream::{ContinuityBreak, UpstreamState};
use crate::api::AGENT_BUNDLE_PREFIX;

/// Changes that were asked for and are not known to be written; `None` removes an entry.
pub(super) type Pending = BTreeMap<ReleaseKey, Option<LedgerEntry>>;

#[derive(Debug, Default)]
pub(super) struct LedgerState {
    /// As written.
    pub(super) entries: BTreeMap<ReleaseKey, LedgerEntry>,
    pub(super) pending: Pending,
    /// Upstream as last seen.
    pub(super) upstream: Option<UpstreamState>,
    /// Attempts that were undone.
    pub(super) undone: AllUndone,
    /// Whether they are not known to be written as they are.
    pub(super) is_undone_pending: bool,
    /// How often upstream was not the one seen before.
    pub(super) breaks: u64,
}

impl LedgerState {
    /// The entry of a release, written or not.
    pub(super) fn get(&self, key: &ReleaseKey) -> Option<&LedgerEntry> {
        match self.pending.get(key) {
            Some(pending) => pending.as_ref(),
            None => self.entries.get(key),
        }
    }

    /// Every release and its entry, written or not, by key.
    pub(super) fn all(&self) -> Vec<(ReleaseKey, LedgerEntry)> {
        self.filtered(|_| true)
    }

    pub(super) fn of_bundle(&self, bundle: &str) -> Vec<(ReleaseKey, LedgerEntry)> {
        self.filtered(|entry| entry.bundle == bundle)
    }

    fn filtered(&self, is_wanted: impl Fn(&LedgerEntry) -> bool) -> Vec<(ReleaseKey, LedgerEntry)> {
        let written = self.entries.iter();
        let written = written.filter(|(key, _)| !self.pending.contains_key(*key));
        let pending = self.pending.iter();
        let pending = pending.filter_map(|(key, entry)| Some((key, entry.as_ref()?)));
        let mut found: Vec<_> = written
            .chain(pending)
            .filter(|(_, entry)| is_wanted(entry))
            .map(|(key, entry)| (key.clone(), entry.clone()))
            .collect();
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        found
    }

    /// Whether the agent ever had a BundleDeployment of its own.
    pub(super) fn had_own(&self) -> bool {
        let is_own = |entry: &LedgerEntry| entry.bundle.starts_with(AGENT_BUNDLE_PREFIX);
        self.upstream.as_ref().is_some_and(|seen| seen.has_own) || !self.filtered(is_own).is_empty()
    }

    /// Asks for what differs from an entry as written. Whether anything is to be written.
    pub(super) fn set(&mut self, key: &ReleaseKey, entry: LedgerEntry) -> bool {
        if self.entries.get(key) == Some(&entry) && !self.pending.contains_key(key) {
            return false;
        }
        self.pending.insert(key.clone(), Some(entry));
        true
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

    /// Forgets the digest of a revision that is gone.
    pub(super) fn forget_revision(&mut self, key: &ReleaseKey, revision: i64) {
        let Some(mut entry) = self.get(key).cloned() else {
            return;
        };
        let revisions = entry.revisions.as_mut();
        if revisions.is_some_and(|known| known.remove(&revision).is_some()) {
            self.pending.insert(key.clone(), Some(entry));
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

    /// Compares upstream with the one seen before, whose version was `floor` then; bundles it does not list are lost after a
    /// break. What was found, and whether there is anything to write.
    pub(super) fn check_continuity(
        &mut self,
        now: UpstreamState,
        floor: u64,
        listed: &BTreeSet<String>,
    ) -> (Option<ContinuityBreak>, bool) {
        let before = self.upstream.clone();
        let found = before.as_ref().and_then(|before| {
            let before = UpstreamState {
                version: floor,
                ..before.clone()
            };
            before.continues(&now).err()
        });
        for (key, entry) in self.all() {
            let lost = match (listed.contains(&entry.bundle), found) {
                (true, _) => None,
                (false, Some(found)) => Some(found),
                (false, None) => entry.lost,
            };
            if lost != entry.lost {
                self.pending
                    .insert(key, Some(LedgerEntry { lost, ..entry }));
            }
        }
        self.breaks += u64::from(found.is_some());
        let mut upstream = now;
        if let (Some(before), None) = (&before, found) {
            upstream.version = upstream.version.max(before.version);
            upstream.has_own |= before.has_own;
            upstream.reported = upstream.reported.max(before.reported);
        }
        // A version alone is not worth a write.
        let is_worth_a_write = before
            .as_ref()
            .is_none_or(|before| found.is_some() || before.has_own != upstream.has_own);
        self.upstream = Some(upstream);
        (found, is_worth_a_write || !self.pending.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ReleaseKey {
        ReleaseKey {
            namespace: "apps".into(),
            name: name.into(),
        }
    }

    fn entry(bundle: &str) -> LedgerEntry {
        LedgerEntry {
            bundle: bundle.into(),
            ..LedgerEntry::default()
        }
    }

    fn upstream(version: u64) -> UpstreamState {
        UpstreamState {
            server: "a".into(),
            version,
            ..UpstreamState::default()
        }
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
    fn after_a_restore_only_unlisted_bundles_are_lost_until_they_are_listed() {
        let mut state = LedgerState::default();
        state.set(&key("a"), entry("listed"));
        state.set(&key("b"), entry("unlisted"));
        let listed = BTreeSet::from(["listed".to_owned()]);
        assert_eq!(state.check_continuity(upstream(7), 0, &listed).0, None);
        let (found, must_write) = state.check_continuity(upstream(6), 7, &listed);
        assert_eq!((found, must_write), (Some(ContinuityBreak::Restored), true));
        let lost = |state: &LedgerState| state.of_bundle("unlisted")[0].1.lost;
        assert_eq!(lost(&state), found);
        assert_eq!(state.of_bundle("listed")[0].1.lost, None);
        let both = BTreeSet::from(["listed".to_owned(), "unlisted".to_owned()]);
        assert_eq!(state.check_continuity(upstream(8), 6, &both).0, None);
        assert_eq!((lost(&state), state.breaks), (None, 1));
    }
}
