//! What the ledger holds: an entry for each release, as it is known to be written, and what is yet to be. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use release::storage::KnownDigest;
use serde::{Deserialize, Serialize};

use super::undone::AllUndone;
use super::upstream::{ContinuityBreak, UpstreamState};
use crate::api::AGENT_BUNDLE_PREFIX;

/// Revisions of a release that are remembered by digest. Of a record that is deleted the digest goes at once, so that a release has
/// hardly more than it keeps records.
const MAX_REVISIONS: usize = 64;

/// The digest of a revision that is gone, or was never written here: no record has it.
const NO_DIGEST: &str = "";

/// A release by its namespace and name; a name is unique in its namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReleaseKey {
    pub namespace: String,
    pub name: String,
}

impl ReleaseKey {
    /// Neither part can hold an underscore, so one tells them apart in a ConfigMap's key.
    pub(super) fn data_key(&self) -> String {
        format!("{}_{}", self.namespace, self.name)
    }

    /// Whether the API server takes it as a ConfigMap's key. One that it refuses would keep all others from being written.
    pub(super) fn is_storable(&self) -> bool {
        let key = self.data_key();
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        key.len() <= 253 && !key.starts_with("..") && key.bytes().all(is_allowed)
    }

    pub(super) fn from_data_key(key: &str) -> Option<Self> {
        let (namespace, name) = key.split_once('_')?;
        Some(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

impl std::fmt::Display for ReleaseKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// How it stands with a removal that was held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Hold {
    /// It is held back.
    Held,
    /// A person let it go while it was.
    Released,
}

/// What is known of a release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerEntry {
    /// Name of the BundleDeployment.
    pub bundle: String,
    /// Account it was deployed with; empty for the agent's own.
    #[serde(default)]
    pub account: String,
    /// Whether its objects outlive the BundleDeployment: as the spec last seen or the one last
    /// deployed says.
    #[serde(default)]
    pub keep_resources: bool,
    /// Nothing proves yet that the release is the bundle's: it began to deploy, and what is its own are the revisions whose digests are
    /// here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_attempt: bool,
    /// Set when upstream was not what it was while this bundle was missing: its absence proves
    /// nothing until it was listed again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<ContinuityBreak>,
    /// Whether its removal is, or was, held back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// Its removal was proven and has begun.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_removing: bool,
    /// What each revision was written with, as a digest; none for a release whose records are older
    /// than this. The newest one ever noted stays, also when its record is gone, and of attempts the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revisions: Option<BTreeMap<i64, String>>,
}

impl LedgerEntry {
    /// Whether it says that a release is a bundle's of which nothing was ever written or believed: what an older agent entered for a deploy
    /// that failed.
    pub(super) fn is_void(&self) -> bool {
        !self.is_attempt && !self.has_revisions()
    }

    /// The digest of a revision that was written here, or believed once.
    pub fn digest(&self, revision: i64) -> Option<&str> {
        let digest = self.revisions.as_ref()?.get(&revision)?;
        Some(digest.as_str()).filter(|digest| *digest != NO_DIGEST)
    }

    /// Whether a revision was ever written here, or believed; nothing is known of that for a release whose records are older than digests.
    pub(super) fn has_revisions(&self) -> bool {
        let revisions = self.revisions.as_ref();
        revisions.is_none_or(|revisions| !revisions.is_empty())
    }

    /// The oldest revision that has a digest here.
    fn oldest(&self) -> Option<i64> {
        Some(*self.revisions.as_ref()?.first_key_value()?.0)
    }

    /// The newest revision that ever had a digest here.
    fn newest(&self) -> Option<i64> {
        Some(*self.revisions.as_ref()?.last_key_value()?.0)
    }

    /// The digest that a revision's record must have. Up to the newest one ever noted, all that is not known was not written here; but
    /// what lies below the first attempt at somebody's release was there before.
    pub fn known_digest(&self, revision: i64) -> KnownDigest {
        let Some(revisions) = &self.revisions else {
            return KnownDigest::Untracked;
        };
        let was_there = self.is_attempt && self.oldest() > Some(revision);
        match revisions.get(&revision) {
            Some(digest) => KnownDigest::Digest(digest.clone()),
            None if self.newest() > Some(revision) && !was_there => {
                KnownDigest::Digest(NO_DIGEST.to_owned())
            }
            None => KnownDigest::Unknown,
        }
    }

    /// Whether a revision that somebody else wrote may be believed, if it is proven otherwise.
    pub fn may_believe(&self, revision: i64) -> bool {
        self.newest() < Some(revision)
    }

    /// This entry with the digest of one more revision; beyond [`MAX_REVISIONS`] those after the first go.
    #[must_use]
    pub fn noting(mut self, revision: i64, digest: String) -> Self {
        let revisions = self.revisions.get_or_insert_default();
        revisions.insert(revision, digest);
        while revisions.len() > MAX_REVISIONS {
            // The first tells what was there before.
            let mut known = revisions.keys().copied().skip(1);
            let surplus = known.find(|known| *known != revision);
            surplus.and_then(|surplus| revisions.remove(&surplus));
        }
        self
    }

    /// This entry without the digest of a revision whose record is gone.
    #[must_use]
    pub fn without(mut self, revision: i64) -> Self {
        let is_first = self.is_attempt && self.oldest() == Some(revision);
        let is_remembered = is_first || self.newest() == Some(revision);
        if let Some(revisions) = &mut self.revisions {
            match revisions.get_mut(&revision) {
                Some(digest) if is_remembered => NO_DIGEST.clone_into(digest),
                _ => drop(revisions.remove(&revision)),
            }
        }
        self
    }
}

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
    /// A permission for held removals was taken in, and is to be taken off the ConfigMap with the next write.
    pub(super) ends_permission: bool,
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

    fn filtered(&self, is_wanted: impl Fn(&LedgerEntry) -> bool) -> Vec<(ReleaseKey, LedgerEntry)> {
        let wanted = self.iter().filter(|(_, entry)| is_wanted(entry));
        let mut found: Vec<_> = wanted.map(|(k, e)| (k.clone(), e.clone())).collect();
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        found
    }

    /// Whether the agent ever had a BundleDeployment of its own.
    pub(super) fn had_own(&self) -> bool {
        let is_own = |entry: &LedgerEntry| entry.bundle.starts_with(AGENT_BUNDLE_PREFIX);
        self.upstream.as_ref().is_some_and(|seen| seen.has_own)
            || self.iter().any(|(_, entry)| is_own(entry))
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

    /// The record of a revision is gone: its digest goes with the next write. `before` is the digest that was replaced for a record that
    /// then was not written; that one is back.
    pub(super) fn forget_revision(
        &mut self,
        key: &ReleaseKey,
        revision: i64,
        before: Option<String>,
    ) {
        let Some(entry) = self.get(key).cloned() else {
            return;
        };
        let changed = match before {
            Some(before) => entry.clone().noting(revision, before),
            None => entry.clone().without(revision),
        };
        if changed != entry {
            self.pending.insert(key.clone(), Some(changed));
        }
    }

    /// Lets all go that is held, and takes the permission for it back. The bundles.
    pub(super) fn release_held(&mut self) -> BTreeSet<String> {
        self.ends_permission = true;
        let held = self.filtered(|entry| entry.hold == Some(Hold::Held));
        let mut bundles = BTreeSet::new();
        for (key, entry) in held {
            bundles.insert(entry.bundle.clone());
            let hold = Some(Hold::Released);
            self.pending
                .insert(key, Some(LedgerEntry { hold, ..entry }));
        }
        bundles
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
    use rstest::rstest;

    #[test]
    fn a_key_is_read_back_as_it_was_written() {
        let key = ReleaseKey {
            namespace: "a-b".into(),
            name: "c.d".into(),
        };
        assert_eq!(ReleaseKey::from_data_key(&key.data_key()), Some(key));
        assert_eq!(ReleaseKey::from_data_key("no-separator"), None);
    }

    #[rstest]
    #[case::usual("apps", "web.1", true)]
    #[case::path("../..", "web", false)]
    #[case::blank("apps", "a b", false)]
    fn a_key_the_api_server_would_refuse_is_not_stored(
        #[case] namespace: &str,
        #[case] name: &str,
        #[case] expected: bool,
    ) {
        let key = ReleaseKey {
            namespace: namespace.into(),
            name: name.into(),
        };
        assert_eq!(key.is_storable(), expected);
    }

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
    fn up_to_the_newest_ever_noted_nothing_is_believed_anew() {
        let noted = entry("a").noting(2, "two".into()).noting(3, "three".into());
        let digest = |text: &str| KnownDigest::Digest(text.into());
        assert_eq!(noted.known_digest(1), digest(NO_DIGEST));
        assert_eq!(noted.known_digest(3), digest("three"));
        assert_eq!(noted.known_digest(4), KnownDigest::Unknown);
        let key = key("web");
        let mut state = LedgerState::default();
        state.set(&key, noted);
        // Records are pruned; the newest one is remembered to have been.
        state.forget_revision(&key, 2, None);
        state.forget_revision(&key, 3, None);
        let entry = state.get(&key).unwrap();
        assert_eq!(entry.known_digest(2), digest(NO_DIGEST));
        assert_eq!(entry.known_digest(3), digest(NO_DIGEST));
        assert_eq!((entry.digest(3), entry.may_believe(3)), (None, false));
        assert!(entry.may_believe(4));
        // What was noted for a record that another writer was faster with.
        state.forget_revision(&key, 3, Some("three".into()));
        assert_eq!(state.get(&key).unwrap().digest(3), Some("three"));
    }

    #[test]
    fn what_lay_there_before_an_attempt_is_somebody_elses() {
        let attempt = LedgerEntry {
            is_attempt: true,
            ..entry("a").noting(3, "three".into()).noting(5, "five".into())
        };
        let spent = KnownDigest::Digest(NO_DIGEST.into());
        let check = |entry: &LedgerEntry| {
            assert_eq!(entry.known_digest(2), KnownDigest::Unknown);
            assert_eq!(entry.known_digest(4), spent);
            assert!(!entry.may_believe(2));
        };
        check(&attempt);
        // That they began there is remembered, whatever goes.
        check(&attempt.clone().without(3).without(5));
        let last = 5 + i64::try_from(MAX_REVISIONS).unwrap();
        let many = (6..=last).fold(attempt.clone(), |entry, at| entry.noting(at, "x".into()));
        check(&many);
        let owned = LedgerEntry {
            is_attempt: false,
            ..attempt
        };
        assert_eq!(owned.known_digest(2), spent);
    }

    #[test]
    fn a_permission_is_for_what_is_held_by_then() {
        let mut state = LedgerState::default();
        let held = LedgerEntry {
            hold: Some(Hold::Held),
            ..entry("held")
        };
        state.set(&key("a"), held);
        state.set(&key("b"), entry("other"));
        assert_eq!(state.release_held(), BTreeSet::from(["held".to_owned()]));
        assert_eq!(state.of_bundle("held")[0].1.hold, Some(Hold::Released));
        assert_eq!(state.of_bundle("other")[0].1.hold, None);
        assert!(state.release_held().is_empty());
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
