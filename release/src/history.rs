//! What a release's history looks like from its records' metadata, and which records may go.

use crate::deletable::Deletable;
use crate::model::Status;
use crate::record::{Provenance, StoredRevision};

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
    /// Records of ours to delete before a new one is written.
    pub before: Vec<Deletable>,
    /// Records of others. They give way once the new one is deployed, which makes the release the writer's ([`Deletable::outdated`]).
    pub once_deployed: Vec<StoredRevision>,
}

/// The revisions to delete so that, with one more, at most `max_history` remain: never the newest deployed one, nor
/// the newest good one that was written here: what somebody else writes after it must not make it go. Zero and less
/// mean no limit.
///
/// Mirrors `Storage.removeLeastRecent` of `pkg/storage/storage.go`, which spares nobody's.
pub fn prunable(history: &[StoredRevision], max_history: i64) -> Prunable {
    let (heads, excess) = unprotected(history, max_history);
    let (own, others): (Vec<_>, Vec<_>) = heads.into_iter().partition(|head| head.is_own());
    let own = own.into_iter().filter_map(Deletable::own);
    let before: Vec<_> = own.take(excess).collect();
    let others = others.into_iter().take(excess - before.len());
    let once_deployed = others.cloned().collect();
    Prunable {
        before,
        once_deployed,
    }
}

/// Like [`Prunable::before`] for the record of a failure, which is worth less than a good revision: records of failures are deleted first.
pub fn prunable_for_failure(history: &[StoredRevision], max_history: i64) -> Vec<Deletable> {
    let (mut heads, excess) = unprotected(history, max_history);
    heads.sort_by_key(is_good);
    let own = heads.into_iter().filter_map(Deletable::own);
    own.take(excess).collect()
}

/// The revisions that may go at all, oldest first, and how many are too many.
fn unprotected(history: &[StoredRevision], max_history: i64) -> (Vec<&StoredRevision>, usize) {
    let Ok(room) = usize::try_from(max_history - 1) else {
        return (Vec::new(), 0);
    };
    let noted = history
        .iter()
        .filter(|head| head.provenance == Provenance::Noted);
    let newest_deployed = deployed(history).map(|head| head.revision);
    let protected = match deployed(history).is_some_and(|head| head.provenance == Provenance::Noted)
    {
        true => newest_deployed,
        false => noted.filter(is_good).map(|head| head.revision).max(),
    };
    // Of what was written here nothing may be known to be good, as in a cluster that was restored to before records whose digests are forgotten.
    let is_spared = |head: &StoredRevision| {
        let may_be_good = protected.is_none() && head.provenance == Provenance::Reused;
        may_be_good || [protected, newest_deployed].contains(&Some(head.revision))
    };
    let mut heads: Vec<&StoredRevision> = history.iter().collect();
    heads.sort_unstable_by_key(|head| head.revision);
    let excess = heads.len().saturating_sub(room);
    heads.retain(|head| !is_spared(head));
    (heads, excess)
}

fn is_good(head: &&StoredRevision) -> bool {
    matches!(head.status, Status::Deployed | Status::Superseded)
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

    /// The cluster was restored: the first revision was pruned here, and the second is as its deploy began.
    #[test]
    fn a_revision_that_may_have_been_good_is_kept_until_a_good_one_is_known() {
        let spent = StoredRevision {
            provenance: Provenance::Reused,
            ..StoredRevision::new(1, Status::Deployed)
        };
        let noted = |revision, status| StoredRevision {
            provenance: Provenance::Noted,
            ..StoredRevision::new(revision, status)
        };
        let mut history = vec![spent.believed(), noted(2, Status::PendingUpgrade)];
        assert_eq!(before(&history, 1), [2]);
        let for_failure = |history: &[StoredRevision]| -> Vec<i64> {
            let outdated = prunable_for_failure(history, 1);
            outdated.iter().map(Deletable::revision).collect()
        };
        assert_eq!(for_failure(&history), [2]);
        // A deployed revision of somebody else's is no good one of ours.
        history.push(StoredRevision {
            provenance: Provenance::Foreign,
            ..StoredRevision::new(3, Status::Deployed)
        });
        assert_eq!(before(&history, 1), [2]);
        history[2] = noted(3, Status::Deployed);
        assert_eq!(before(&history, 1), [1, 2]);
        assert_eq!(for_failure(&history), [1, 2]);
    }

    #[test]
    fn the_record_of_a_failure_takes_the_place_of_other_failures() {
        let mut history: Vec<_> = (1..4)
            .map(|revision| StoredRevision::new(revision, Status::Superseded))
            .collect();
        history.push(StoredRevision::new(4, Status::Deployed));
        history.push(StoredRevision::new(5, Status::Failed));
        let revisions = |max_history| -> Vec<i64> {
            let outdated = prunable_for_failure(&history, max_history);
            outdated.iter().map(Deletable::revision).collect()
        };
        assert_eq!(before(&history, 5), [1]);
        assert_eq!(revisions(5), [5]);
        assert_eq!(revisions(4), [5, 1]);
        assert_eq!(revisions(1), [5, 1, 2, 3]);
        assert_eq!(revisions(0), [0; 0]);
    }

    #[test]
    fn foreign_records_are_pruned_after_a_successful_deploy() {
        let head = |revision, provenance| StoredRevision {
            provenance,
            ..StoredRevision::new(revision, Status::Deployed)
        };
        let mut history = vec![head(1, Provenance::Noted)];
        history[0].status = Status::Superseded;
        history.extend((2..6).map(|revision| head(revision, Provenance::Foreign)));
        let once_deployed = |history: &[StoredRevision]| -> Vec<i64> {
            let spared = prunable(history, 2).once_deployed;
            spared.iter().map(|head| head.revision).collect()
        };
        assert_eq!(once_deployed(&history), [2, 3, 4]);
        assert!(before(&history, 2).is_empty());
        // A release of helm's, and two attempts at it that failed.
        let failed = |revision| StoredRevision {
            status: Status::Failed,
            ..head(revision, Provenance::Noted)
        };
        let mut history: Vec<_> = (1..4)
            .map(|revision| head(revision, Provenance::Foreign))
            .collect();
        history.extend([failed(4), failed(5)]);
        assert_eq!(before(&history, 2), [4, 5]);
        assert_eq!(once_deployed(&history), [1, 2]);
        // The other client's first record has the number of one of ours that is gone.
        history[0].provenance = Provenance::Reused;
        history[0].written_by = Some("Helm".to_owned());
        history[1].provenance = Provenance::Noted;
        history[1].written_by = Some("Helm".to_owned());
        assert_eq!(before(&history, 2), [4, 5]);
        assert_eq!(once_deployed(&history), [1]);
    }
}
