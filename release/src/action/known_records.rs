//! Whether somebody else has gone on with a release while an operation was under way.

use std::collections::HashSet;

use crate::storage::{RecordId, Storage, StorageError, StoredRevision, key};

/// The records that an operation on a release knows: those of the history that it goes by, and those it wrote itself.
#[derive(Debug, Clone, Default)]
pub struct KnownRecords(HashSet<RecordId>);

impl KnownRecords {
    /// The records of a history.
    pub fn of(history: &[StoredRevision]) -> Self {
        Self(history.iter().map(StoredRevision::id).collect())
    }

    /// Takes in one that was written since.
    pub(super) fn with(mut self, record: RecordId) -> Self {
        self.0.insert(record);
        self
    }

    /// Reads the history again, to see whether these records are all it has: what there is of the release may belong to whoever wrote
    /// another one.
    ///
    /// # Errors
    /// [`StorageError::HistoryChanged`], or the history cannot be read.
    pub(super) async fn check(&self, storage: &Storage, name: &str) -> Result<(), StorageError> {
        self.history(storage, name).await.map(drop)
    }

    /// The newest revision of them.
    pub fn newest(&self) -> Option<i64> {
        self.0.iter().map(|record| record.revision).max()
    }

    /// The history as it is now, where these records are all it has.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub(super) async fn history(
        &self,
        storage: &Storage,
        name: &str,
    ) -> Result<Vec<StoredRevision>, StorageError> {
        let now = storage.history(name).await?;
        match self.first_unknown(&now) {
            Some(head) => Err(StorageError::HistoryChanged {
                key: key(name, head.revision),
            }),
            None => Ok(now),
        }
    }

    /// The first record that somebody else has written or restored. Its number says nothing: once records were deleted, helm counts from 1
    /// again.
    pub(super) fn first_unknown<'h>(
        &self,
        now: &'h [StoredRevision],
    ) -> Option<&'h StoredRevision> {
        now.iter().find(|head| !self.0.contains(&head.id()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Status;
    use crate::storage::RecordUid;

    #[test]
    fn a_record_that_was_not_there_before_is_another_ones_whatever_its_number() {
        let head = |revision, uid: &str| StoredRevision {
            uid: RecordUid::new(uid),
            ..StoredRevision::new(revision, Status::PendingUpgrade)
        };
        let (before, attempt) = (head(1, "before"), head(2, "attempt"));
        let known = KnownRecords::of(std::slice::from_ref(&before)).with(attempt.id());
        let has_changed = |now: &[StoredRevision]| known.first_unknown(now).is_some();
        assert!(!has_changed(&[]), "all were deleted");
        assert!(!has_changed(std::slice::from_ref(&before)));
        assert!(!has_changed(&[before.clone(), attempt.clone()]));
        assert!(has_changed(&[before.clone(), head(2, "another")]));
        assert!(has_changed(&[before, attempt, head(3, "later")]));
        assert!(has_changed(&[head(1, "installed after all were deleted")]));
    }
}
