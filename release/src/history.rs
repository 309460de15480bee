//! What a release's history looks like from its records' metadata, and which records may go.

use std::collections::BTreeMap;

use jiff::Timestamp;
use objects::managed_fields::FIELD_MANAGER;

use crate::deletable::Deletable;
use crate::model::Status;

/// The highest number that counts of what was not written here. Beyond it, it was invented, so that there would be none left to count on to.
const MAX_OF_OTHERS: i64 = i64::MAX / 2;

/// A stored revision as its object's metadata shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRevision {
    /// Revision, from the label `version`.
    pub revision: i64,
    /// Status, from the label `status`.
    pub status: Status,
    /// The status; once its removal has begun the one it had before, if that was written down.
    pub before_removal: Option<Status>,
    /// When the record was created, which whoever writes it cannot choose.
    pub created_at: Option<Timestamp>,
    /// When the record was last written, as far as its metadata tells.
    pub written_at: Option<Timestamp>,
    /// Field manager that wrote it last, as far as its metadata tells.
    pub written_by: Option<String>,
    /// What vouches for it.
    pub origin: Origin,
}

/// What vouches for a stored revision, before its record is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// No digests are kept of its release: it has to be believed.
    #[default]
    Untracked,
    /// Its digest is known: if the record has it, it was written here.
    Noted,
    /// There never was a digest of it, and it stands in the place of none: another client's, or forged.
    Foreign,
    /// It stands in the place of what was written here, and its digest is not known, or is of another claimant's attempt: it is never
    /// believed.
    Spent,
    /// Another agent wrote it for the bundle that is deployed, as its record says.
    Agent,
}

impl StoredRevision {
    /// A revision with a status; who wrote it and when is unknown.
    pub fn new(revision: i64, status: Status) -> Self {
        Self {
            revision,
            before_removal: status.before_removal(&BTreeMap::new()),
            status,
            created_at: None,
            written_at: None,
            written_by: None,
            origin: Origin::default(),
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
    /// What is believed of it: nothing that stands in the place of what was written here, but that another client is at work on it, which
    /// is a claim to be waited for and to nothing else.
    #[must_use]
    pub fn believed(self) -> Self {
        match self.origin {
            Origin::Spent if self.status.is_pending() && self.is_foreign() => self,
            Origin::Spent => Self {
                status: Status::Unknown,
                before_removal: None,
                ..self
            },
            _ => self,
        }
    }

    /// Whether it counts: what was written here has whatever number came next.
    pub(crate) fn counts(&self) -> bool {
        let is_known = matches!(self.origin, Origin::Noted | Origin::Spent);
        is_known || self.revision <= MAX_OF_OTHERS
    }

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

/// Revisions that are too many, each list oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prunable {
    /// Those that give way to a new one.
    pub before: Vec<Deletable>,
    /// Somebody else's. They give way once the new one is deployed, which makes the release the writer's ([`Deletable::outdated`]).
    pub once_deployed: Vec<i64>,
}

/// The revisions to delete so that, with one more, at most `max_history` remain: never the newest deployed one, nor
/// the newest good one that was written here: what somebody else writes after it must not make it go. Zero and less
/// mean no limit.
///
/// Mirrors `Storage.removeLeastRecent` of `pkg/storage/storage.go`, which spares nobody's.
pub fn prunable(history: &[StoredRevision], max_history: i64) -> Prunable {
    let Ok(room) = usize::try_from(max_history - 1) else {
        return Prunable::default();
    };
    let noted = history.iter().filter(|head| head.origin == Origin::Noted);
    let is_good =
        |head: &&StoredRevision| matches!(head.status, Status::Deployed | Status::Superseded);
    let newest_deployed = deployed(history).map(|head| head.revision);
    let protected = match deployed(history).is_some_and(|head| head.origin == Origin::Noted) {
        true => newest_deployed,
        false => noted.filter(is_good).map(|head| head.revision).max(),
    };
    let mut heads: Vec<&StoredRevision> = history.iter().collect();
    heads.sort_unstable_by_key(|head| head.revision);
    let excess = heads.len().saturating_sub(room);
    heads.retain(|head| ![protected, newest_deployed].contains(&Some(head.revision)));
    let (own, others): (Vec<_>, Vec<_>) = heads.into_iter().partition(|head| head.is_own());
    let own = own.into_iter().filter_map(Deletable::own);
    let before: Vec<_> = own.take(excess).collect();
    let others = others.into_iter().map(|head| head.revision);
    let once_deployed = others.take(excess - before.len()).collect();
    Prunable {
        before,
        once_deployed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before(history: &[StoredRevision], max_history: i64) -> Vec<i64> {
        let before = prunable(history, max_history).before;
        before.iter().map(Deletable::revision).collect()
    }

    #[test]
    fn the_last_good_revision_is_never_prunable() {
        let history = [
            StoredRevision::new(1, Status::Deployed),
            StoredRevision::new(2, Status::Failed),
            StoredRevision::new(3, Status::Failed),
        ];
        assert_eq!(before(&history, 2), [2, 3]);
        assert_eq!(before(&history, 1), [2, 3]);
        assert_eq!(prunable(&history, 0), Prunable::default());
    }

    #[test]
    fn what_others_wrote_stays_until_a_deploy_over_it_has_succeeded() {
        let head = |revision, origin| StoredRevision {
            origin,
            ..StoredRevision::new(revision, Status::Deployed)
        };
        let mut history = vec![head(1, Origin::Noted)];
        history[0].status = Status::Superseded;
        history.extend((2..6).map(|revision| head(revision, Origin::Foreign)));
        let spared = |once_deployed: Vec<i64>| Prunable {
            once_deployed,
            before: Vec::new(),
        };
        assert_eq!(prunable(&history, 2), spared(vec![2, 3, 4]));
        // A release of helm's, and two attempts at it that failed.
        let failed = |revision| StoredRevision {
            status: Status::Failed,
            ..head(revision, Origin::Noted)
        };
        let mut history: Vec<_> = (1..4)
            .map(|revision| head(revision, Origin::Foreign))
            .collect();
        history.extend([failed(4), failed(5)]);
        assert_eq!(before(&history, 2), [4, 5]);
        assert_eq!(prunable(&history, 2).once_deployed, [1, 2]);
        // Its first record has the number of one of ours that is gone.
        history[0].origin = Origin::Spent;
        history[0].written_by = Some("Helm".to_owned());
        history[1].origin = Origin::Noted;
        history[1].written_by = Some("Helm".to_owned());
        assert_eq!(before(&history, 2), [4, 5]);
        assert_eq!(prunable(&history, 2).once_deployed, [1]);
    }

    #[test]
    fn a_number_that_was_invented_leaves_room_for_the_next() {
        let counts = |revision, origin| {
            let head = StoredRevision::new(revision, Status::Deployed);
            StoredRevision { origin, ..head }.counts()
        };
        for origin in [Origin::Foreign, Origin::Untracked] {
            assert!(counts(MAX_OF_OTHERS, origin));
            assert!(!counts(MAX_OF_OTHERS + 1, origin));
        }
        // What was written over it has the next.
        assert!(counts(MAX_OF_OTHERS + 1, Origin::Noted));
    }

    #[test]
    fn a_revision_that_cannot_be_counted_on_from_is_none() {
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
}
