//! Digests of the revisions that one bundle wrote of a release. No I/O.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Revisions of a release that are remembered by digest. Of a record that is deleted the digest goes at once, so that a release has
/// hardly more than it keeps records.
pub(super) const MAX_REVISIONS: usize = 64;

/// The digest of a revision that is gone, or was never written here: no record has it.
pub(super) const NO_DIGEST: &str = "";

/// Digests by revision. The newest one ever noted stays, without its digest when its record is gone: up to it, nothing else was written by
/// the bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Notes(BTreeMap<i64, String>);

impl Notes {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The digest of a revision, unless its record is gone.
    pub(super) fn digest(&self, revision: i64) -> Option<&str> {
        let digest = self.0.get(&revision)?;
        Some(digest.as_str()).filter(|digest| *digest != NO_DIGEST)
    }

    /// Whether there is any digest.
    pub(super) fn has_digests(&self) -> bool {
        self.0.values().any(|digest| digest != NO_DIGEST)
    }

    pub(super) fn first(&self) -> Option<i64> {
        Some(*self.0.first_key_value()?.0)
    }

    pub(super) fn newest(&self) -> Option<i64> {
        Some(*self.0.last_key_value()?.0)
    }

    /// One more revision; beyond [`MAX_REVISIONS`] those after the first go.
    pub(super) fn note(&mut self, revision: i64, digest: String) {
        self.0.insert(revision, digest);
        while self.0.len() > MAX_REVISIONS {
            let mut known = self.0.keys().copied().skip(1);
            let surplus = known.find(|known| *known != revision);
            surplus.and_then(|surplus| self.0.remove(&surplus));
        }
    }

    /// The record of a revision is gone. That attempts began with it stays, as it tells what was there before.
    pub(super) fn forget(&mut self, revision: i64, are_attempts: bool) {
        let is_first = are_attempts && self.first() == Some(revision);
        let is_remembered = is_first || self.newest() == Some(revision);
        match self.0.get_mut(&revision) {
            Some(digest) if is_remembered => NO_DIGEST.clone_into(digest),
            _ => drop(self.0.remove(&revision)),
        }
    }

    /// Takes in what others noted, where nothing is noted here.
    pub(super) fn take_in(&mut self, others: Self) {
        for (revision, digest) in others.0 {
            if self.digest(revision).is_none() {
                self.note(revision, digest);
            }
        }
    }
}
