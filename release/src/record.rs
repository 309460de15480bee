//! A release as one object stores it, and as that object's metadata shows it before it is read. No I/O.
//!
//! A record is found by its name, and another object may have that name by now: people delete records, helm clients install anew under the
//! number of one that is gone, and a backup or a forger brings one back. So whoever changes or deletes a record says which object it means,
//! and the API server refuses where that is not the one that is there.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use jiff::Timestamp;
use objects::managed_fields::FIELD_MANAGER;

use crate::model::{Release, Status};

/// The uid that the API server gave to a record's object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct RecordUid(String);

impl RecordUid {
    /// The uid of an object.
    pub fn new(uid: impl Into<String>) -> Self {
        Self(uid.into())
    }

    /// As the API server has it. Only an object that no API server has stored has none.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The identity of a record: its revision, and the uid of its object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RecordId {
    /// The revision.
    pub revision: i64,
    /// The object.
    pub uid: RecordUid,
}

/// A release as it was read from an object, or written into it.
#[derive(Debug, Clone)]
pub struct StoredRelease {
    release: Release,
    uid: RecordUid,
}

impl StoredRelease {
    /// What the object `uid` holds.
    pub fn new(release: Release, uid: RecordUid) -> Self {
        Self { release, uid }
    }

    /// `release`, which is to be written over the record that a history shows.
    pub(crate) fn over(head: &StoredRevision, release: Release) -> Self {
        Self::new(release, head.uid.clone())
    }

    /// The object that holds it.
    pub fn uid(&self) -> &RecordUid {
        &self.uid
    }

    /// The record's identity.
    pub fn id(&self) -> RecordId {
        RecordId {
            revision: self.release.revision,
            uid: self.uid.clone(),
        }
    }

    /// The release alone, without where it is stored.
    pub fn into_release(self) -> Release {
        self.release
    }
}

impl Deref for StoredRelease {
    type Target = Release;

    fn deref(&self) -> &Release {
        &self.release
    }
}

impl DerefMut for StoredRelease {
    fn deref_mut(&mut self) -> &mut Release {
        &mut self.release
    }
}

/// The highest number that counts of what was not written here, but for what follows what counts. Beyond it, it was invented, so that there
/// would be none left to count on to.
const MAX_OF_OTHERS: i64 = i64::MAX / 2;

/// A stored revision as its object's metadata shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRevision {
    /// Revision, from the label `version`.
    pub revision: i64,
    /// The object that it is.
    pub uid: RecordUid,
    /// Status, from the label `status`.
    pub status: Status,
    /// The status; once its removal has begun the one it had before, if that was written down.
    pub before_removal: Option<Status>,
    /// When the record was created, which whoever writes it cannot choose.
    pub created_at: Option<Timestamp>,
    /// When the record was last written, by its metadata.
    pub written_at: Option<Timestamp>,
    /// Field manager that wrote it last, by its metadata.
    pub written_by: Option<String>,
    /// Where the record comes from, as far as that is known.
    pub provenance: Provenance,
}

/// Where a stored revision comes from, before its record is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Provenance {
    /// No digests are kept of its release: it has to be believed.
    #[default]
    Untracked,
    /// The revision's digest is known: if the record has it, it was written here.
    Noted,
    /// No digest of the revision was ever known, and the record replaces none: another client's, or forged.
    Foreign,
    /// The revision's number was used for a record written here, and its digest is not known, or is of another claimant's attempt: the record is
    /// never believed.
    Reused,
    /// Another agent wrote the record for the bundle that is deployed, as it says itself.
    OtherAgent,
}

impl StoredRevision {
    /// A revision with a status; who wrote it and when, and which object it is, is unknown.
    pub fn new(revision: i64, status: Status) -> Self {
        Self {
            revision,
            uid: RecordUid::default(),
            before_removal: status.before_removal(&BTreeMap::new()),
            status,
            created_at: None,
            written_at: None,
            written_by: None,
            provenance: Provenance::default(),
        }
    }

    /// Reads the labels of a storage object; `None` if they do not name a revision that there can be.
    pub fn from_labels(labels: &BTreeMap<String, String>) -> Option<Self> {
        let revision = labels.get("version")?.parse().ok()?;
        if !(1..i64::MAX).contains(&revision) {
            return None;
        }
        let status: Status = labels.get("status").map_or("", String::as_str).into();
        Some(Self {
            before_removal: status.before_removal(labels),
            ..Self::new(revision, status)
        })
    }
}

impl StoredRevision {
    /// The record's identity.
    pub fn id(&self) -> RecordId {
        RecordId {
            revision: self.revision,
            uid: self.uid.clone(),
        }
    }

    /// The believable part of the revision: of a record in place of one written here, only that another client is at work on it, which is a claim to
    /// be waited for and to nothing else.
    #[must_use]
    pub fn believed(self) -> Self {
        match self.provenance {
            Provenance::Reused if self.status.is_pending() && self.is_foreign() => self,
            Provenance::Reused => Self {
                status: Status::Unknown,
                before_removal: None,
                ..self
            },
            _ => self,
        }
    }

    /// Keeps the records of a history, in the order of its revisions, that count: ours at any number, another client's above [`MAX_OF_OTHERS`] only in
    /// unbroken sequence.
    pub(crate) fn retain_counting(history: &mut Vec<Self>) {
        let mut next = 0;
        history.retain(|head| {
            let is_known = matches!(head.provenance, Provenance::Noted | Provenance::Reused);
            let counts = is_known || head.revision <= MAX_OF_OTHERS || head.revision == next;
            if counts {
                next = head.revision + 1;
            }
            counts
        });
    }

    /// Whether another client than ours wrote it last.
    pub fn is_foreign(&self) -> bool {
        let writer = self.written_by.as_deref();
        writer.is_some_and(|manager| manager != FIELD_MANAGER)
    }

    /// Whether the record was written here, by its metadata.
    pub(crate) fn is_own(&self) -> bool {
        match self.provenance {
            Provenance::Untracked => true,
            // The revision's number is known here, and the record in its place may be somebody else's.
            Provenance::Noted | Provenance::Reused => !self.is_foreign(),
            Provenance::Foreign | Provenance::OtherAgent => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_outside_the_valid_range_is_ignored() {
        for (version, expected) in [
            ("1", true),
            ("0", false),
            ("-3", false),
            ("9223372036854775807", false),
        ] {
            let labels = BTreeMap::from([("version".to_owned(), version.to_owned())]);
            assert_eq!(
                StoredRevision::from_labels(&labels).is_some(),
                expected,
                "{version}"
            );
        }
    }

    #[test]
    fn an_invented_revision_number_does_not_raise_the_next_one() {
        let counting = |all: &[(i64, Provenance)]| {
            let head = |&(revision, provenance)| StoredRevision {
                provenance,
                ..StoredRevision::new(revision, Status::Deployed)
            };
            let mut history = all.iter().map(head).collect();
            StoredRevision::retain_counting(&mut history);
            let left = history
                .into_iter()
                .map(|head| head.revision - MAX_OF_OTHERS);
            left.collect::<Vec<_>>()
        };
        for provenance in [Provenance::Foreign, Provenance::Untracked] {
            assert_eq!(counting(&[(MAX_OF_OTHERS, provenance)]), [0]);
            assert!(counting(&[(MAX_OF_OTHERS + 1, provenance)]).is_empty());
        }
        // A record written over it has the next number, and what a Helm client writes over that the one after; a number that follows nothing counts
        // no more than before.
        let above = [
            (MAX_OF_OTHERS + 1, Provenance::Noted),
            (MAX_OF_OTHERS + 2, Provenance::Foreign),
            (MAX_OF_OTHERS + 3, Provenance::Foreign),
            (MAX_OF_OTHERS + 5, Provenance::Foreign),
        ];
        assert_eq!(counting(&above), [1, 2, 3]);
    }
}
