//! Decides which records may be deleted. No I/O.
//!
//! A history may hold records of a helm client, or of another agent, in the course of one attempt of ours. So a deletion takes a value that only a
//! proof that the record may go can make.

use crate::model::{Release, Status};
use crate::record::{RecordId, RecordUid, StoredRelease, StoredRevision};

/// A record that may be deleted: the object that was seen, and no other that has its name by now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deletable {
    id: RecordId,
}

impl Deletable {
    /// The record that was just created as this one.
    pub(crate) fn created(record: &StoredRelease) -> Self {
        Self { id: record.id() }
    }

    /// A record that was read, and is the one written here.
    pub(crate) fn recognised(record: RecordId) -> Self {
        Self { id: record }
    }

    /// A record that was written here, as far as its metadata tells: its writer is not known to be another, and nobody else's digest or none
    /// stands for it. Of a release of which no digests are kept, each is.
    pub fn own(head: &StoredRevision) -> Option<Self> {
        head.is_own().then(|| Self { id: head.id() })
    }

    /// One below a revision that is deployed by now, which makes the release its writer's.
    pub fn outdated(head: &StoredRevision, by: &Release) -> Option<Self> {
        let is_outdated = by.status() == Status::Deployed && head.revision < by.revision;
        is_outdated.then(|| Self { id: head.id() })
    }

    /// Any of a release that is removed as a whole: whose it is, whoever removes it has proven.
    pub(crate) fn removed(head: &StoredRevision) -> Self {
        Self { id: head.id() }
    }

    /// The record's revision.
    pub fn revision(&self) -> i64 {
        self.id.revision
    }

    /// The object that it is.
    pub fn uid(&self) -> &RecordUid {
        &self.id.uid
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::record::Provenance;

    #[rstest]
    #[case::written_here(Provenance::Noted, Some("fleetagent"), true)]
    #[case::by_an_unknown_manager(Provenance::Noted, None, true)]
    #[case::in_its_place_is_helms(Provenance::Noted, Some("Helm"), false)]
    #[case::under_a_number_that_was_given(Provenance::Reused, Some("Helm"), false)]
    #[case::of_another_claimant(Provenance::Reused, Some("fleetagent"), true)]
    #[case::no_digests(Provenance::Untracked, Some("Helm"), true)]
    #[case::of_the_former_agent(Provenance::OtherAgent, Some("fleetagent"), false)]
    #[case::somebody_elses(Provenance::Foreign, None, false)]
    fn foreign_records_are_not_deletable(
        #[case] provenance: Provenance,
        #[case] writer: Option<&str>,
        #[case] expected: bool,
    ) {
        let head = StoredRevision {
            provenance,
            written_by: writer.map(str::to_owned),
            ..StoredRevision::new(1, Status::Failed)
        };
        assert_eq!(Deletable::own(&head).is_some(), expected);
    }

    #[test]
    fn foreign_records_are_deletable_once_a_later_revision_is_deployed() {
        let mut by = Release {
            revision: 3,
            ..Release::default()
        };
        let below = StoredRevision::new(2, Status::Superseded);
        by.set_status(Status::Failed, "");
        assert!(Deletable::outdated(&below, &by).is_none());
        by.set_status(Status::Deployed, "");
        assert!(Deletable::outdated(&below, &by).is_some());
        let above = StoredRevision::new(4, Status::Superseded);
        assert!(Deletable::outdated(&above, &by).is_none());
    }
}
