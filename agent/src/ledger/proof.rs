//! Proof that a release is a bundle's. No I/O.
//!
//! A name proves nothing: an administrator's release may have the one that a bundle wants. So whoever makes a release a bundle's in the
//! ledger, hands it over or removes it needs a [`Proof`], and only the functions here make one.

use release::action::Deployed;
use release::model::{Release, Status};

use super::entry::LedgerEntry;
use crate::api::{ANNOTATION_AGENT_NAMESPACE, ANNOTATION_BUNDLE_ID};

/// A release is a bundle's.
#[derive(Debug)]
pub struct Proof(());

impl Proof {
    /// A deploy of the bundle's succeeded over it.
    pub fn deployed(_by: &Deployed) -> Self {
        Self(())
    }

    /// Upstream's status, where no tenant writes, says that this revision of the bundle's was deployed, and its record is the one that was
    /// written here.
    pub fn of_status(entry: &LedgerEntry, revision: i64, record: &Release) -> Option<Self> {
        let digest = release::storage::digest(record);
        (entry.digest(revision) == Some(digest.as_str())).then_some(Self(()))
    }

    /// Upstream's status says that this revision was deployed by a bundle that the ledger does not have the release for yet: its record says so too,
    /// and is the one that the bundle wrote, above all that the one which has it ever wrote.
    pub fn claimed(
        entry: &LedgerEntry,
        bundle: &str,
        revision: i64,
        record: &Release,
    ) -> Option<Self> {
        let digest = release::storage::digest(record);
        let is_its = entry.digest_of(bundle, revision) == Some(digest.as_str());
        let is_deployed = record.status() == Status::Deployed;
        (is_its && is_deployed && entry.has_claim(bundle, revision)).then_some(Self(()))
    }

    /// A record names the bundle and this agent's namespace, which is what the Go agent asks for.
    pub fn named(record: &Release, bundle: &str, system_namespace: &str) -> Option<Self> {
        (named_bundle(record, system_namespace) == Some(bundle)).then_some(Self(()))
    }

    /// Something of its own is there, and nobody else's.
    pub(crate) fn of_records(what: &OwnedRecords) -> Option<Self> {
        matches!(what, OwnedRecords::Whole).then_some(Self(()))
    }
}

/// The bundle that a record names, if it names this agent's namespace too.
pub fn named_bundle<'r>(record: &'r Release, system_namespace: &str) -> Option<&'r str> {
    let (namespace, bundle) = named(record)?;
    (namespace == system_namespace).then_some(bundle)
}

/// The agent's namespace and the bundle that a record names.
fn named(record: &Release) -> Option<(&str, &str)> {
    let namespace = record.annotation(ANNOTATION_AGENT_NAMESPACE)?;
    Some((namespace, record.annotation(ANNOTATION_BUNDLE_ID)?))
}

/// The owner of a stored record, seen from a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordOwner {
    /// The record was written for the bundle's release: the ledger has its digest.
    Written {
        /// The record was deployed once, whatever came after.
        is_deployed: bool,
    },
    /// The record was written for the bundle, and the release was uninstalled since with its history kept: revisions above are not the bundle's any
    /// more.
    Ended,
    /// Another bundle wrote it here, in an attempt at the release: it says nothing.
    Claim,
    /// The record names the bundle and this agent.
    Named,
    /// The record names another bundle, of this agent or of another one.
    OtherBundle,
    /// Another client's, or of an unknown owner.
    Foreign,
    /// The record cannot be read.
    Unreadable,
}

impl RecordOwner {
    /// The owner of a record stored under `revision`.
    pub(super) fn of(
        record: &Release,
        revision: i64,
        entry: &LedgerEntry,
        system_namespace: &str,
    ) -> Self {
        let digest = release::storage::digest(record);
        if entry.digest(revision) == Some(digest.as_str()) {
            let status = record.status();
            if status == Status::Uninstalled {
                return Self::Ended;
            }
            let has_failed = matches!(status, Status::Failed | Status::Unknown);
            let is_deployed = !has_failed && !status.is_pending();
            return Self::Written { is_deployed };
        }
        if entry.is_claim(revision, &digest) {
            return Self::Claim;
        }
        match named(record) {
            Some(named) if named == (system_namespace, entry.bundle.as_str()) => Self::Named,
            Some(_) => Self::OtherBundle,
            None => Self::Foreign,
        }
    }

    fn is_ours(self) -> bool {
        matches!(self, Self::Written { .. } | Self::Ended | Self::Named)
    }
}

/// Whether a record shows that the release was deployed for the bundle, though the ledger may know of attempts only. Of one whose removal was
/// cut off counts what it was before.
pub(super) fn shows_deployed(owner: RecordOwner, record: &Release) -> bool {
    let before = record.status_before_removal();
    match owner {
        RecordOwner::Named => true,
        RecordOwner::Written { is_deployed: true } => {
            matches!(before, Some(Status::Deployed | Status::Superseded))
        }
        _ => false,
    }
}

/// The part of a release's records that is a bundle's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedRecords {
    /// The release is the bundle's with all it has.
    Whole,
    /// These revisions were written for the bundle over a release of somebody else's, and never got to their end.
    Parts(Vec<i64>),
    /// No record is the bundle's.
    Nothing,
    /// No record can be read.
    Unreadable,
}

/// Whether records, the newest first, show whose the release is, whatever the older ones are: the first that says anything is one that
/// was deployed for the bundle, or names it.
pub(super) fn is_settled(records: &[(i64, RecordOwner)]) -> bool {
    use RecordOwner::{Claim, Ended, Foreign, Named, Unreadable, Written};
    let is_silent = |owner: &RecordOwner| {
        let has_failed = *owner == Written { is_deployed: false };
        has_failed || matches!(owner, Claim | Ended | Foreign | Unreadable)
    };
    let mut owners = records.iter().map(|(_, owner)| owner);
    let first = owners.find(|owner| !is_silent(owner));
    matches!(first, Some(Named | Written { is_deployed: true }))
}

/// Decides which records belong to the bundle that the ledger has the release for. `records` are its revisions, the newest first.
pub(super) fn owned_records(entry: &LedgerEntry, records: &[(i64, RecordOwner)]) -> OwnedRecords {
    let has_claims = records
        .iter()
        .any(|(_, owner)| *owner == RecordOwner::Claim);
    let records = records.iter().copied();
    let records: Vec<_> = records
        .filter(|(_, owner)| *owner != RecordOwner::Claim)
        .collect();
    let Some((_, newest)) = records.first() else {
        return match has_claims && claims_lie_over_somebodys(entry) {
            true => OwnedRecords::Nothing,
            false => OwnedRecords::Whole,
        };
    };
    let is_unreadable = |(_, owner): &(i64, RecordOwner)| *owner == RecordOwner::Unreadable;
    if records.iter().all(is_unreadable) {
        return OwnedRecords::Unreadable;
    }
    let is_ours = |(_, owner): &(i64, RecordOwner)| owner.is_ours();
    let has = |expected: RecordOwner| records.iter().any(|(_, owner)| *owner == expected);
    let is_shown = [
        RecordOwner::Named,
        RecordOwner::OtherBundle,
        RecordOwner::Written { is_deployed: true },
    ];
    // Before there were attempts, a deploy that failed over somebody else's release had an entry like any other.
    let is_attempt = entry.is_attempt
        || has(RecordOwner::Foreign) && is_shown.into_iter().all(|owner| !has(owner));
    if !is_attempt {
        // A helm client may have written over ours since; another bundle has it for good.
        let mut known = records.iter().filter(|record| !is_unreadable(record));
        return match known.find(|(_, owner)| *owner != RecordOwner::Foreign) {
            // Somebody has installed his own where ours was uninstalled.
            Some((_, RecordOwner::Ended)) if *newest == RecordOwner::Foreign => {
                OwnedRecords::Nothing
            }
            Some((_, owner)) if owner.is_ours() => OwnedRecords::Whole,
            _ => OwnedRecords::Nothing,
        };
    }
    if records.iter().all(is_ours) && !lacks_theirs(entry, &records) {
        return OwnedRecords::Whole;
    }
    // Cut off between its record and the ledger; or somebody changed what a failed one says of itself, which its digest does not tell. So
    // nothing follows for what lay there before.
    if *newest == (RecordOwner::Written { is_deployed: true }) {
        return OwnedRecords::Nothing;
    }
    let written = records
        .iter()
        .filter(|(_, owner)| matches!(owner, RecordOwner::Written { .. }));
    let written: Vec<_> = written.map(|(revision, _)| *revision).collect();
    match written.is_empty() {
        true => OwnedRecords::Nothing,
        false => OwnedRecords::Parts(written),
    }
}

/// The revisions of records that are of no bundle here.
pub(super) fn of_others(records: &[(i64, RecordOwner)]) -> Vec<i64> {
    use RecordOwner::{Foreign, OtherBundle, Unreadable};
    let others = records.iter();
    let others = others.filter(|(_, owner)| matches!(owner, Foreign | OtherBundle | Unreadable));
    others.map(|(revision, _)| *revision).collect()
}

/// Whether what other bundles tried, where nothing else is left of a release, was tried over somebody's whose records were deleted since: over what an
/// attempt began with, or what came after the last revision of the bundle's own. A bundle that wrote nothing there has nothing of it either.
fn claims_lie_over_somebodys(entry: &LedgerEntry) -> bool {
    let own = entry.newest_written().filter(|_| !entry.is_attempt);
    let is_left = entry.is_attempt && !entry.has_revisions();
    is_left || entry.theirs().any(|revision| Some(revision) > own)
}

/// Whether a record of somebody else's that lay below is gone, and was not deleted here: what it had is none of the attempts', though nothing
/// else tells any more.
fn lacks_theirs(entry: &LedgerEntry, records: &[(i64, RecordOwner)]) -> bool {
    let newest = records.first().map(|(revision, _)| *revision);
    let is_there = |revision| records.iter().any(|(there, _)| *there == revision);
    entry
        .theirs()
        .any(|revision| Some(revision) < newest && !is_there(revision))
}

#[cfg(test)]
mod tests {
    use super::super::notes::Notes;
    use super::RecordOwner::{Claim, Ended, Foreign, Named, OtherBundle, Unreadable};
    use super::*;
    use release::model::BEFORE_REMOVAL_LABEL;
    use rstest::rstest;

    const WRITTEN: RecordOwner = RecordOwner::Written { is_deployed: false };
    const DEPLOYED: RecordOwner = RecordOwner::Written { is_deployed: true };

    /// Records are named from the newest to the oldest.
    #[rstest]
    #[case::no_records(false, &[], OwnedRecords::Whole)]
    #[case::ours(false, &[DEPLOYED, WRITTEN], OwnedRecords::Whole)]
    #[case::of_the_go_agent(false, &[Named, Named], OwnedRecords::Whole)]
    #[case::helm_upgraded_ours(false, &[Foreign, DEPLOYED], OwnedRecords::Whole)]
    #[case::helm_upgraded_the_go_agents(false, &[Foreign, Named], OwnedRecords::Whole)]
    #[case::we_took_over_a_helm_release(false, &[DEPLOYED, Foreign], OwnedRecords::Whole)]
    #[case::installed_anew_by_helm(false, &[Foreign, Foreign], OwnedRecords::Nothing)]
    #[case::another_bundle_has_it_now(false, &[OtherBundle, WRITTEN], OwnedRecords::Nothing)]
    #[case::helm_upgraded_another_bundles(false, &[Foreign, OtherBundle, WRITTEN], OwnedRecords::Nothing)]
    #[case::the_newest_is_damaged(false, &[Unreadable, WRITTEN], OwnedRecords::Whole)]
    #[case::a_former_version_failed_over_a_helm_release(false, &[WRITTEN, Foreign], OwnedRecords::Parts(vec![2]))]
    #[case::all_are_damaged(false, &[Unreadable, Unreadable], OwnedRecords::Unreadable)]
    #[case::a_first_deploy_failed(true, &[WRITTEN], OwnedRecords::Whole)]
    #[case::each_deploy_failed(true, &[WRITTEN, WRITTEN], OwnedRecords::Whole)]
    #[case::failed_as_under_the_go_agent(true, &[WRITTEN, Named], OwnedRecords::Whole)]
    #[case::failed_over_a_helm_release(true, &[WRITTEN, WRITTEN, Foreign], OwnedRecords::Parts(vec![3, 2]))]
    #[case::failed_over_another_bundles(true, &[WRITTEN, OtherBundle], OwnedRecords::Parts(vec![2]))]
    #[case::failed_over_what_is_damaged(true, &[WRITTEN, Unreadable], OwnedRecords::Parts(vec![2]))]
    #[case::failed_and_went(true, &[Foreign], OwnedRecords::Nothing)]
    #[case::cut_off_after_it_succeeded_or_made_look_so(true, &[DEPLOYED, Foreign], OwnedRecords::Nothing)]
    #[case::a_first_deploy_cut_off_after_it_succeeded(true, &[DEPLOYED], OwnedRecords::Whole)]
    #[case::another_bundle_failed_over_it(false, &[Claim, Claim, DEPLOYED], OwnedRecords::Whole)]
    #[case::taken_from_another_bundle(false, &[DEPLOYED, Claim], OwnedRecords::Whole)]
    #[case::nothing_but_what_others_tried(false, &[Claim], OwnedRecords::Whole)]
    #[case::failed_over_a_helm_release_as_another_bundle_did(true, &[Claim, WRITTEN, Foreign], OwnedRecords::Parts(vec![2]))]
    #[case::taken_back_by_helm(false, &[Claim, Foreign], OwnedRecords::Nothing)]
    #[case::uninstalled_by_helm(false, &[Ended, DEPLOYED], OwnedRecords::Whole)]
    #[case::uninstalled_and_installed_anew_by_helm(false, &[Foreign, Ended, DEPLOYED], OwnedRecords::Nothing)]
    #[case::nothing_else_is_left_of_it(false, &[Foreign, Ended], OwnedRecords::Nothing)]
    fn a_proof_covers_the_bundles_own_part_of_a_release(
        #[case] is_attempt: bool,
        #[case] records: &[RecordOwner],
        #[case] expected: OwnedRecords,
    ) {
        let entry = LedgerEntry {
            is_attempt,
            ..LedgerEntry::default()
        };
        let revisions = (1..).zip(records.iter().rev());
        let mut records: Vec<_> = revisions
            .map(|(revision, owner)| (revision, *owner))
            .collect();
        records.reverse();
        assert_eq!(owned_records(&entry, &records), expected);
    }

    /// Somebody deletes the foreign record, and changes what the attempts say of themselves, which digests leave out.
    #[test]
    fn attempts_over_a_release_whose_records_were_deleted_prove_nothing_of_it() {
        let attempt = LedgerEntry {
            is_attempt: true,
            revisions: Some(Notes::default()),
            ..LedgerEntry::default()
        };
        let over = attempt.clone().noting_theirs(&[1]).noting(2, "two".into());
        for forged in [DEPLOYED, WRITTEN, Named] {
            let owned = owned_records(&over, &[(2, forged)]);
            assert_ne!(owned, OwnedRecords::Whole, "{forged:?}");
        }
        // Pruned by the agent itself; of the Go agent; a number that is given anew.
        let pruned = over.clone().without(1);
        assert_eq!(owned_records(&pruned, &[(2, WRITTEN)]), OwnedRecords::Whole);
        let all = [(2, WRITTEN), (1, Named)];
        assert_eq!(owned_records(&over, &all), OwnedRecords::Whole);
        let anew = attempt.noting_theirs(&[1, 2, 3]).noting(1, "one".into());
        assert_eq!(owned_records(&anew, &[(1, WRITTEN)]), OwnedRecords::Whole);
    }

    /// A helm release, an attempt at it, and what that bundle leaves to another one, which tries or does not. Somebody deletes helm's record.
    #[test]
    fn attempts_left_to_another_bundle_do_not_prove_who_owns_the_records_below() {
        let attempt = LedgerEntry {
            bundle: "a".into(),
            is_attempt: true,
            revisions: Some(Notes::default()),
            ..LedgerEntry::default()
        };
        let over = attempt.clone().noting_theirs(&[1]).noting(2, "two".into());
        let left = over.clone().tried_by("b");
        // As an older agent left it.
        let in_claim = LedgerEntry {
            is_attempt: true,
            ..over.clone().taken_by("b")
        };
        // Helm's upgrade came after the attempt, which nobody has noted but who leaves it.
        let below = attempt.noting(1, "one".into()).tried_by("b");
        let below = below.noting_theirs(&of_others(&[(2, Foreign), (1, WRITTEN)]));
        for entry in [&left, &in_claim, &below] {
            let owned = owned_records(entry, &[(2, Claim)]);
            assert_eq!(owned, OwnedRecords::Nothing, "{entry:?}");
            let tried = entry.clone().noting(3, "three".into());
            let owned = owned_records(&tried, &[(3, WRITTEN), (2, Claim)]);
            assert_eq!(owned, OwnedRecords::Parts(vec![3]), "{entry:?}");
        }
        // Nor does a bundle that never tried, whatever foreign revisions are noted.
        let forgotten = left.clone().without(1);
        let owned = |entry: &LedgerEntry, records: &[(i64, RecordOwner)]| {
            owned_records(entry, records) == OwnedRecords::Whole
        };
        assert!(!owned(&forgotten, &[(2, Claim)]));
        // Pruned by the agent itself.
        let tried = forgotten.noting(3, "three".into());
        assert!(owned(&tried, &[(3, WRITTEN), (2, Claim)]));
        // Without records, none is removed.
        assert!(owned(&left, &[]));
    }

    /// Somebody installs his own where a bundle's release was, another bundle tries to take it, and all records but that one's are deleted.
    #[test]
    fn a_claim_above_a_foreign_record_does_not_prove_who_owns_the_release() {
        let own = LedgerEntry {
            bundle: "a".into(),
            revisions: Some(Notes::default()),
            ..LedgerEntry::default()
        };
        let own = own.noting(1, "one".into());
        let over = own.clone().noting_theirs(&[2]);
        let over = over.noting_claim("b", "", 3, "three".into());
        assert_eq!(owned_records(&over, &[(3, Claim)]), OwnedRecords::Nothing);
        let deployed_since = over.noting(4, "four".into());
        let owned = owned_records(&deployed_since, &[(3, Claim)]);
        assert_eq!(owned, OwnedRecords::Whole);
        let claimed = own.noting_claim("b", "", 2, "two".into());
        assert_eq!(owned_records(&claimed, &[(2, Claim)]), OwnedRecords::Whole);
    }

    #[rstest]
    #[case::deployed("deployed", None, true)]
    #[case::a_later_one_is("superseded", None, true)]
    #[case::never("failed", None, false)]
    #[case::cut_off("pending-upgrade", None, false)]
    #[case::its_removal_was_cut_off("uninstalling", Some("deployed"), true)]
    #[case::the_removal_of_an_attempt_was_cut_off("uninstalling", Some("failed"), false)]
    #[case::somebodys_removal_was_cut_off("uninstalling", None, false)]
    fn a_record_whose_removal_was_interrupted_counts_with_its_former_status(
        #[case] status: &str,
        #[case] before: Option<&str>,
        #[case] expected: bool,
    ) {
        let mut record = Release::default();
        record.set_status(Status::from(status), "");
        let label = before.map(|before| (BEFORE_REMOVAL_LABEL.to_owned(), before.to_owned()));
        record.labels.extend(label);
        let digest = release::storage::digest(&record);
        let entry = LedgerEntry::default().noting(1, digest);
        let owner = RecordOwner::of(&record, 1, &entry, "");
        assert_eq!(shows_deployed(owner, &record), expected);
        assert!(!shows_deployed(Foreign, &record));
    }

    #[test]
    fn a_record_proves_the_release_of_the_bundle_that_it_names_alone() {
        let mut chart = chart::Chart::default();
        let named = [
            (ANNOTATION_BUNDLE_ID, "a"),
            (ANNOTATION_AGENT_NAMESPACE, "system"),
        ];
        let named = named.map(|(key, value)| (key.to_owned(), value.to_owned()));
        chart.metadata.annotations = Some(named.into());
        let record = Release {
            chart: Some(chart.into()),
            ..Release::default()
        };
        assert!(Proof::named(&record, "a", "system").is_some());
        assert!(Proof::named(&record, "b", "system").is_none());
        assert!(Proof::named(&record, "a", "other").is_none());
    }

    #[test]
    fn a_record_is_the_one_that_was_written_if_its_digest_says_so() {
        let mut record = Release::default();
        let entry = LedgerEntry::default().noting(1, release::storage::digest(&record));
        let written = RecordOwner::of(&record, 1, &entry, "");
        assert!(written.is_ours() && Proof::of_status(&entry, 1, &record).is_some());
        record.manifest = "another".to_owned();
        assert_eq!(RecordOwner::of(&record, 1, &entry, ""), Foreign);
        assert!(Proof::of_status(&entry, 1, &record).is_none());
    }

    #[test]
    fn a_record_of_another_agents_bundle_is_not_a_helm_clients() {
        let annotations = |namespace: &str| {
            let all = [
                (ANNOTATION_AGENT_NAMESPACE, namespace),
                (ANNOTATION_BUNDLE_ID, "a"),
            ];
            all.map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into()
        };
        let mut chart = chart::Chart::default();
        chart.metadata.annotations = Some(annotations("elsewhere"));
        let entry = LedgerEntry {
            bundle: "a".into(),
            ..LedgerEntry::default()
        };
        let of = |chart: &chart::Chart| {
            let chart = Some(std::sync::Arc::new(chart.clone()));
            let record = Release {
                chart,
                ..Release::default()
            };
            RecordOwner::of(&record, 2, &entry, "here")
        };
        assert_eq!(of(&chart), OtherBundle);
        assert_eq!(
            owned_records(&entry, &[(2, of(&chart)), (1, DEPLOYED)]),
            OwnedRecords::Nothing
        );
        chart.metadata.annotations = Some(annotations("here"));
        assert_eq!(of(&chart), Named);
        assert_eq!(of(&chart::Chart::default()), Foreign);
    }

    #[test]
    fn only_a_deployed_record_of_its_own_gives_a_claimant_the_release() {
        let mut record = Release::default();
        let digest = release::storage::digest(&record);
        let entry = LedgerEntry::default().noting(1, "one".into());
        let entry = entry.noting_claim("b", "", 2, digest);
        let claimed = |record: &Release, bundle, revision| {
            Proof::claimed(&entry, bundle, revision, record).is_some()
        };
        assert!(!claimed(&record, "b", 2));
        record.set_status(Status::Deployed, "");
        assert!(claimed(&record, "b", 2));
        assert!(!claimed(&record, "c", 2) && !claimed(&record, "b", 1));
        record.manifest.push('x');
        assert!(!claimed(&record, "b", 2));
    }

    #[test]
    fn only_a_whole_release_is_proven() {
        assert!(Proof::of_records(&OwnedRecords::Whole).is_some());
        let others = [
            OwnedRecords::Nothing,
            OwnedRecords::Parts(vec![1]),
            OwnedRecords::Unreadable,
        ];
        assert!(others.iter().all(|what| Proof::of_records(what).is_none()));
    }
}
