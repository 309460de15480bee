//! Which records may be deleted. No I/O.
//!
//! A history may hold what a helm client wrote, or another agent, in the course of one attempt of ours. So a deletion takes a value that only
//! what shows that the record may go can make.

use crate::model::{Release, Status};
use crate::stored_revision::StoredRevision;

/// A record that may be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deletable {
    revision: i64,
}

impl Deletable {
    /// The record that was just created as this one.
    pub(crate) fn created(record: &Release) -> Self {
        let revision = record.revision;
        Self { revision }
    }

    /// One that was read, and is what was written here.
    pub(crate) fn recognised(revision: i64) -> Self {
        Self { revision }
    }

    /// One that was written here, as far as its metadata tells: whoever wrote it is not known to be another, and nobody else's digest or none
    /// stands for it. Of a release of which no digests are kept, each is.
    pub fn own(head: &StoredRevision) -> Option<Self> {
        let revision = head.revision;
        head.is_own().then_some(Self { revision })
    }

    /// One below a revision that is deployed by now, which makes the release its writer's.
    pub fn outdated(revision: i64, by: &Release) -> Option<Self> {
        let is_outdated = by.status() == Status::Deployed && revision < by.revision;
        is_outdated.then_some(Self { revision })
    }

    /// Any of a release that is removed as a whole: whose it is, whoever removes it has proven.
    pub(crate) fn removed(head: &StoredRevision) -> Self {
        let revision = head.revision;
        Self { revision }
    }

    /// The record's revision.
    pub fn revision(&self) -> i64 {
        self.revision
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::stored_revision::Origin;

    #[rstest]
    #[case::written_here(Origin::Noted, Some("fleetagent"), true)]
    #[case::nobody_says_by_whom(Origin::Noted, None, true)]
    #[case::in_its_place_is_helms(Origin::Noted, Some("Helm"), false)]
    #[case::under_a_number_that_was_given(Origin::Spent, Some("Helm"), false)]
    #[case::of_another_claimant(Origin::Spent, Some("fleetagent"), true)]
    #[case::no_digests(Origin::Untracked, Some("Helm"), true)]
    #[case::of_the_former_agent(Origin::Agent, Some("fleetagent"), false)]
    #[case::somebody_elses(Origin::Foreign, None, false)]
    fn foreign_records_are_not_deletable(
        #[case] origin: Origin,
        #[case] writer: Option<&str>,
        #[case] expected: bool,
    ) {
        let head = StoredRevision {
            origin,
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
        by.set_status(Status::Failed, "");
        assert!(Deletable::outdated(2, &by).is_none());
        by.set_status(Status::Deployed, "");
        assert!(Deletable::outdated(2, &by).is_some());
        assert!(Deletable::outdated(4, &by).is_none());
    }
}
