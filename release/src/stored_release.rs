//! A release as one object stores it. No I/O.
//!
//! A record is found by its name, and another object may have that name by now: people delete records, helm clients install anew under the
//! number of one that is gone, and a backup or a forger brings one back. So whoever changes or deletes a record says which object it means,
//! and the API server refuses where that is not the one that is there.

use std::ops::{Deref, DerefMut};

use crate::model::Release;
use crate::stored_revision::StoredRevision;

/// Which object a record is: the uid that the API server gave it.
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

/// Which record: that of a revision, and the object that it is.
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

    /// Which record it is.
    pub fn id(&self) -> RecordId {
        RecordId {
            revision: self.release.revision,
            uid: self.uid.clone(),
        }
    }

    /// What it says, without where.
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
