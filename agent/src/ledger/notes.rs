//! Notes on the revisions of a release, for one bundle. No I/O.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Revisions of the bundle's own that are remembered by digest, and those of somebody else's that are remembered. Of a record that is deleted
/// the note goes at once, so that a release has hardly more than it keeps records.
pub(crate) const MAX_REVISIONS: usize = 64;
const _: () = assert!(MAX_REVISIONS > release::MAX_HISTORY as usize);

/// The note on a revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Note {
    /// The revision was written for the bundle, or believed, with this digest.
    Ours(String),
    /// The revision was written for the bundle with this digest, and says that a correction failed: nothing was applied from it.
    FailedCorrection(String),
    /// A revision whose record is gone: one in its place is not believed.
    Gone,
    /// Somebody else's, there when the bundle wrote a later revision.
    Theirs,
}

/// How [`Note::Theirs`] is written; no digest is so short.
const THEIRS: &str = "theirs";

/// Prefix of [`Note::FailedCorrection`] in the ledger, since before it had that name; digests hold no blanks.
const FAILED_CORRECTION: &str = "trace ";

impl From<String> for Note {
    fn from(text: String) -> Self {
        match text.as_str() {
            "" => Self::Gone,
            THEIRS => Self::Theirs,
            text => match text.strip_prefix(FAILED_CORRECTION) {
                Some(digest) => Self::FailedCorrection(digest.to_owned()),
                None => Self::Ours(text.to_owned()),
            },
        }
    }
}

impl From<Note> for String {
    fn from(note: Note) -> Self {
        match note {
            Note::Ours(digest) => digest,
            Note::FailedCorrection(digest) => format!("{FAILED_CORRECTION}{digest}"),
            Note::Gone => Self::new(),
            Note::Theirs => THEIRS.to_owned(),
        }
    }
}

/// Notes by revision. The newest one of the bundle's own stays, without its digest when its record is gone: up to it, nothing that is not
/// noted was written by the bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Notes(BTreeMap<i64, Note>);

impl Notes {
    /// Whether no revision was ever written for the bundle.
    pub(super) fn is_empty(&self) -> bool {
        self.own().next().is_none()
    }

    /// The digest of a revision of the bundle's own, unless its record is gone.
    pub(super) fn digest(&self, revision: i64) -> Option<&str> {
        match self.0.get(&revision)? {
            Note::Ours(digest) | Note::FailedCorrection(digest) => Some(digest),
            Note::Gone | Note::Theirs => None,
        }
    }

    /// Whether any note has a digest.
    pub(super) fn has_digests(&self) -> bool {
        self.digests().next().is_some()
    }

    /// The digests of the bundle's own revisions, as far as their records are not gone.
    pub(super) fn digests(&self) -> impl Iterator<Item = (i64, &str)> {
        let digests = self.0.keys();
        digests.filter_map(|revision| Some((*revision, self.digest(*revision)?)))
    }

    /// The revisions of the bundle's own that its deploys wrote, as far as their records are not gone.
    pub(super) fn tried(&self) -> impl Iterator<Item = i64> {
        let tried = self.0.iter();
        let tried = tried.filter(|(_, note)| matches!(note, Note::Ours(_)));
        tried.map(|(revision, _)| *revision)
    }

    /// The revisions that were seen to be somebody else's, as far as their records were not deleted here.
    pub(super) fn theirs(&self) -> impl Iterator<Item = i64> {
        let theirs = self.0.iter().filter(|(_, note)| **note == Note::Theirs);
        theirs.map(|(revision, _)| *revision)
    }

    /// Whether a revision was seen to be somebody else's.
    pub(super) fn is_theirs(&self, revision: i64) -> bool {
        self.0.get(&revision) == Some(&Note::Theirs)
    }

    fn own(&self) -> impl DoubleEndedIterator<Item = i64> + Clone {
        let own = self.0.iter().filter(|(_, note)| **note != Note::Theirs);
        own.map(|(revision, _)| *revision)
    }

    /// The oldest revision of the bundle's own.
    pub(super) fn first(&self) -> Option<i64> {
        self.own().next()
    }

    /// The oldest revision of the bundle's own above another one.
    pub(super) fn first_above(&self, revision: i64) -> Option<i64> {
        self.own().find(|own| *own > revision)
    }

    /// The newest revision of the bundle's own.
    pub(super) fn newest(&self) -> Option<i64> {
        self.own().next_back()
    }

    /// One more revision of the bundle's own; beyond [`MAX_REVISIONS`] those after the first go.
    pub(super) fn note(&mut self, revision: i64, digest: String) {
        self.note_own(revision, Note::Ours(digest));
    }

    /// One more revision of the bundle's own, which records a failed correction.
    pub(super) fn note_failed_correction(&mut self, revision: i64, digest: String) {
        self.note_own(revision, Note::FailedCorrection(digest));
    }

    fn note_own(&mut self, revision: i64, note: Note) {
        self.0.insert(revision, note);
        while self.own().count() > MAX_REVISIONS {
            let surplus = self.own().skip(1).find(|known| *known != revision);
            surplus.and_then(|surplus| self.0.remove(&surplus));
        }
    }

    /// A revision of the bundle's own whose record is gone.
    pub(super) fn note_gone(&mut self, revision: i64) {
        self.0.insert(revision, Note::Gone);
    }

    /// A revision that lies there and is somebody else's; of too many the oldest are not remembered.
    pub(super) fn note_theirs(&mut self, revision: i64) {
        self.0.entry(revision).or_insert(Note::Theirs);
        let theirs = |notes: &BTreeMap<i64, Note>| -> Vec<i64> {
            let theirs = notes.iter().filter(|(_, note)| **note == Note::Theirs);
            theirs.map(|(revision, _)| *revision).collect()
        };
        let known = theirs(&self.0);
        for oldest in &known[..known.len().saturating_sub(MAX_REVISIONS)] {
            self.0.remove(oldest);
        }
    }

    /// The record of a revision is gone. That attempts began with it stays, as it shows what was there before.
    pub(super) fn forget(&mut self, revision: i64, are_attempts: bool) {
        let is_first = are_attempts && self.first() == Some(revision);
        let is_remembered = is_first || self.newest() == Some(revision);
        match self.0.get_mut(&revision) {
            Some(note) if is_remembered => *note = Note::Gone,
            _ => drop(self.0.remove(&revision)),
        }
    }

    /// The note on a revision.
    pub(super) fn note_of(&self, revision: i64) -> Option<&Note> {
        self.0.get(&revision)
    }

    /// A revision was not written after all: of it is noted what was before.
    pub(super) fn restore(&mut self, revision: i64, before: Option<Note>) {
        match before {
            Some(before) => self.0.insert(revision, before),
            None => self.0.remove(&revision),
        };
    }

    /// Takes in what others noted, where nothing is noted here.
    pub(super) fn take_in(&mut self, others: Self) {
        for (revision, note) in others.0 {
            if self.digest(revision).is_none() {
                self.0.insert(revision, note);
            }
        }
    }

    /// Takes in what others have or found there as somebody else's.
    pub(super) fn take_in_as_theirs(&mut self, others: &Self) {
        let lie_there = others.0.iter().filter(|(_, note)| **note != Note::Gone);
        for (revision, _) in lie_there {
            self.note_theirs(*revision);
        }
    }
}
