//! What a release's history looks like from its records' metadata, and which records may go.

use std::collections::BTreeMap;

use jiff::Timestamp;
use objects::managed_fields::FIELD_MANAGER;

use crate::model::Status;

/// A stored revision as its object's metadata shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRevision {
    /// Revision, from the label `version`.
    pub revision: i64,
    /// Status, from the label `status`.
    pub status: Status,
    /// When the record was last written, as far as its metadata tells.
    pub written_at: Option<Timestamp>,
    /// Field manager that wrote it last, as far as its metadata tells.
    pub written_by: Option<String>,
}

impl StoredRevision {
    /// A revision with a status; who wrote it and when is unknown.
    pub fn new(revision: i64, status: Status) -> Self {
        Self {
            revision,
            status,
            written_at: None,
            written_by: None,
        }
    }

    /// Reads the labels of a storage object; `None` if they do not name a revision.
    pub fn from_labels(labels: &BTreeMap<String, String>) -> Option<Self> {
        let revision = labels.get("version")?.parse().ok()?;
        let status = labels.get("status").map_or("", String::as_str).into();
        Some(Self::new(revision, status))
    }
}

impl StoredRevision {
    /// Whether another client than ours wrote it last.
    pub fn is_foreign(&self) -> bool {
        let writer = self.written_by.as_deref();
        writer.is_some_and(|manager| manager != FIELD_MANAGER)
    }
}

/// The newest revision.
pub fn last(history: &[StoredRevision]) -> Option<&StoredRevision> {
    history.iter().max_by_key(|head| head.revision)
}

/// The newest deployed revision. Two concurrent writers may have left several.
pub fn deployed(history: &[StoredRevision]) -> Option<&StoredRevision> {
    last_where(history, |status| *status == Status::Deployed)
}

fn last_where(
    history: &[StoredRevision],
    fits: impl Fn(&Status) -> bool,
) -> Option<&StoredRevision> {
    history
        .iter()
        .filter(|head| fits(&head.status))
        .max_by_key(|head| head.revision)
}

/// The revisions to delete so that, with one more, at most `max_history` remain: oldest first,
/// never the newest deployed one. Zero and less mean no limit.
///
/// Mirrors `Storage.removeLeastRecent` of `pkg/storage/storage.go`.
pub fn prunable(history: &[StoredRevision], max_history: i64) -> Vec<i64> {
    let Ok(room) = usize::try_from(max_history - 1) else {
        return Vec::new();
    };
    let protected = deployed(history).map(|head| head.revision);
    let mut revisions: Vec<i64> = history.iter().map(|head| head.revision).collect();
    revisions.sort_unstable();
    let excess = revisions.len().saturating_sub(room);
    revisions
        .into_iter()
        .filter(|revision| Some(*revision) != protected)
        .take(excess)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_good_revision_is_never_prunable() {
        let history = [
            StoredRevision::new(1, Status::Deployed),
            StoredRevision::new(2, Status::Failed),
            StoredRevision::new(3, Status::Failed),
        ];
        assert_eq!(prunable(&history, 2), [2, 3]);
        assert_eq!(prunable(&history, 1), [2, 3]);
        assert_eq!(prunable(&history, 0), [0; 0]);
    }
}
