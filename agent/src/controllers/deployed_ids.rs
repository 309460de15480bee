//! The deployment ID that was deployed last of each bundle, for which forced sync, and whether any was tried since, whatever upstream's status says.
//!
//! A status comes back as it was when upstream is restored, or a commit is reverted that failed. Where it names the ID that is wanted, and any was
//! tried since, it tells of an earlier deployment, and the bundle is deployed again until that succeeds: what failed since may have left something. And
//! a status may be late: what it does not say yet is not done twice.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::claims::ReleaseId;
use crate::api::BundleDeployment;
use crate::ledger::{LedgerEntry, ReleaseKey};

/// Deployment IDs by bundle, for as long as this agent leads: another one may deploy afterwards. They outlive a connection to upstream, which
/// ends when it is restored.
#[derive(Debug, Default)]
pub struct DeployedIds(Mutex<HashMap<String, Last>>);

/// The last deployment of a bundle, and whether any was tried since.
#[derive(Debug, Default)]
struct Last {
    deployed: Option<Deployed>,
    is_unsettled: bool,
}

/// A deployed version of a bundle's spec.
#[derive(Debug)]
struct Deployed {
    id: String,
    sync: i64,
    /// As its status names it.
    release: String,
    /// The newest revision that was written by then: for the bundle, or, where the release is its own, for any.
    newest: i64,
}

impl DeployedIds {
    /// A deploy of the bundle has begun. Earlier deployments no longer count, until a deploy succeeds.
    pub fn note_tried(&self, bundle: &str) {
        let mut ids = self.0.lock();
        ids.entry(bundle.to_owned()).or_default().is_unsettled = true;
    }

    /// The ID of its spec is deployed by now, as this release; `entry` is what the ledger has of it, whoever has it there by now.
    pub fn note(&self, bundle: &BundleDeployment, release: String, entry: Option<&LedgerEntry>) {
        let newest = entry.and_then(|entry| match entry.bundle == bundle.name() {
            true => entry.newest(),
            false => entry.written_by(bundle.name()).into_iter().max(),
        });
        let deployed_revision = ReleaseId::parse(&release).map(|id| id.revision);
        let newest = newest.max(deployed_revision).unwrap_or_default();
        let deployed = Deployed {
            id: bundle.spec.deployment_id.clone(),
            sync: bundle.spec.options.force_sync_generation,
            release,
            newest,
        };
        let last = Last {
            deployed: Some(deployed),
            is_unsettled: false,
        };
        self.0.lock().insert(bundle.name().to_owned(), last);
    }

    /// Whether anything was tried since the status was written that names `release`: as this agent remembers, or as it or another one wrote for the
    /// bundle above that revision, or of another deployment ID, by the `entry` of a release. An attempt of another bundle's to take it counts too: one
    /// that failed has left what it wrote over. Where the release was installed anew, or somebody deleted its
    /// records, the numbers of its revisions say nothing.
    pub fn is_outdated(
        &self,
        bundle: &BundleDeployment,
        release: &str,
        entry: impl FnOnce(&ReleaseKey) -> Option<LedgerEntry>,
    ) -> bool {
        let is_below = || {
            let id = ReleaseId::parse(release)?;
            let entry = entry(&id.key())?;
            let settled = self.settled(bundle, release);
            // What this agent remembers of it is newer.
            let applied = &bundle.status.applied_deployment_id;
            let is_of_another =
                entry.is_left_behind() || settled.is_none() && entry.is_of_another(applied);
            let newest = settled.unwrap_or(id.revision);
            let is_above = entry.has_tried_above(newest) || entry.is_claimed_above(newest);
            Some(entry.bundle == bundle.name() && (is_above || is_of_another))
        };
        self.contradict(bundle) || is_below().unwrap_or(false)
    }

    /// Whether anything was tried or deployed since a bundle's status was as it is.
    fn contradict(&self, bundle: &BundleDeployment) -> bool {
        let ids = self.0.lock();
        let Some(last) = ids.get(bundle.name()) else {
            return false;
        };
        let applied = &bundle.status.applied_deployment_id;
        last.is_unsettled
            || last
                .deployed
                .as_ref()
                .is_some_and(|last| last.id != *applied)
    }

    /// Up to which revision all that was written is over, of the `release` that a bundle's status names, where that is what was deployed last.
    fn settled(&self, bundle: &BundleDeployment, release: &str) -> Option<i64> {
        let ids = self.0.lock();
        let deployed = ids.get(bundle.name())?.deployed.as_ref()?;
        (deployed.release == release).then_some(deployed.newest)
    }

    /// Whether what a bundle's spec says was deployed last, though its status may not say so yet.
    pub fn has_latest(&self, bundle: &BundleDeployment) -> bool {
        self.is_deployed(bundle, |last| last.id == bundle.spec.deployment_id)
    }

    /// Whether a deploy is to write all anew though nothing has changed: somebody asks for it, and it was not done yet; or another release of the bundle's
    /// may have objects of this one, of which the ledger has this `entry`.
    pub fn is_forced(&self, bundle: &BundleDeployment, entry: Option<&LedgerEntry>) -> bool {
        let desired = bundle.spec.options.force_sync_generation;
        let is_asked_for =
            bundle.is_sync_due() && !self.is_deployed(bundle, |last| last.sync == desired);
        is_asked_for || entry.is_some_and(LedgerEntry::is_left_behind)
    }

    fn is_deployed(&self, bundle: &BundleDeployment, is_it: impl Fn(&Deployed) -> bool) -> bool {
        let ids = self.0.lock();
        let last = ids.get(bundle.name());
        last.is_some_and(|last| last.deployed.as_ref().is_some_and(is_it))
    }

    /// The bundle is gone for good.
    pub fn forget(&self, bundle: &str) {
        self.0.lock().remove(bundle);
    }

    /// Somebody else may have deployed since.
    pub fn forget_all(&self) {
        self.0.lock().clear();
    }

    /// Keeps those of bundles that are still known.
    pub fn retain(&self, is_known: impl Fn(&str) -> bool) {
        self.0.lock().retain(|bundle, _| is_known(bundle));
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::ledger::DeploymentDigest;

    fn bundle(id: &str, sync: i64) -> BundleDeployment {
        let mut bundle = BundleDeployment::default();
        bundle.metadata.name = Some("web".to_owned());
        bundle.spec.deployment_id = id.to_owned();
        bundle.spec.options.force_sync_generation = sync;
        bundle
    }

    fn note(ids: &DeployedIds, bundle: &BundleDeployment) {
        ids.note(bundle, "shop/web:1".to_owned(), Some(&written(&[1, 2])));
    }

    /// Upstream's status says nothing of either yet.
    #[test]
    fn a_deployed_id_is_neither_outstanding_nor_forced_again() {
        let ids = DeployedIds::default();
        let first = bundle("s-1:a", 1);
        assert!(!ids.has_latest(&first) && ids.is_forced(&first, None));
        note(&ids, &first);
        assert!(ids.has_latest(&first) && !ids.is_forced(&first, None));
        assert!(!ids.has_latest(&bundle("s-2:a", 1)));
        assert!(ids.is_forced(&bundle("s-1:a", 2), None));
        ids.forget_all();
        assert!(!ids.has_latest(&first) && ids.is_forced(&first, None));
    }

    /// A bundle got another release, which took over its objects, and upstream took that back: the record of the former one has what is wanted.
    #[test]
    fn a_release_its_bundle_left_and_came_back_to_is_deployed_again() {
        let ids = DeployedIds::default();
        let mut back = bundle("s-1:a", 0);
        back.status.applied_deployment_id = "s-1:a".to_owned();
        let deployed = LedgerEntry {
            deployment: Some(DeploymentDigest::of("s-1:a")),
            ..written(&[1])
        };
        let deploys = |entry: &LedgerEntry| {
            let is_outdated = ids.is_outdated(&back, "shop/web:1", |_| Some(entry.clone()));
            (is_outdated, ids.is_forced(&back, Some(entry)))
        };
        let left = deployed.clone().left_behind();
        assert_eq!(deploys(&deployed), (false, false));
        assert_eq!(deploys(&left), (true, true));
        // Also where this agent remembers that it had deployed it.
        note(&ids, &back);
        assert_eq!(deploys(&deployed), (false, false));
        assert_eq!(deploys(&left), (true, true));
    }

    /// Of a restored upstream, which has the one before.
    #[test]
    fn a_status_older_than_an_attempt_is_contradicted_until_a_deploy_succeeds() {
        let ids = DeployedIds::default();
        let mut first = bundle("s-1:a", 1);
        first.status.applied_deployment_id = "s-1:a".to_owned();
        assert!(!ids.contradict(&first));
        note(&ids, &first);
        assert!(!ids.contradict(&first));
        ids.note_tried("web");
        assert!(ids.contradict(&first));
        // The deployed ID stays the one that was deployed.
        assert!(ids.has_latest(&first) && !ids.is_forced(&first, None));
        // A deploy begins anew, and fails or is cut off.
        ids.note_tried("web");
        assert!(ids.contradict(&first));
        note(&ids, &first);
        assert!(!ids.contradict(&first));
        note(&ids, &bundle("s-2:a", 1));
        assert!(ids.contradict(&first));
    }

    /// What the ledger has of a release for which these revisions were written.
    fn written(revisions: &[i64]) -> LedgerEntry {
        let entry = LedgerEntry {
            bundle: "web".to_owned(),
            ..LedgerEntry::default()
        };
        let note = |entry: LedgerEntry, revision: &i64| entry.noting(*revision, "x".to_owned());
        revisions.iter().fold(entry, note)
    }

    /// Of a revision that was announced and never written the ledger remembers the number.
    #[test]
    fn an_id_from_before_the_last_deploy_is_settled() {
        let ids = DeployedIds::default();
        let first = bundle("s-1:a", 1);
        assert_eq!(ids.settled(&first, "shop/web:1"), None);
        note(&ids, &first);
        assert_eq!(ids.settled(&first, "shop/web:1"), Some(2));
        let before = ids.settled(&first, "shop/web:0");
        assert_eq!(before, None, "the status is of before");
    }

    /// The status of what was deployed a moment ago is not sent yet; upstream's names the revision before.
    #[test]
    fn a_status_that_is_not_sent_yet_does_not_count_as_outdated() {
        let ids = DeployedIds::default();
        let mut forced = bundle("s-1:a", 2);
        forced.status.applied_deployment_id = "s-1:a".to_owned();
        forced.status.release = "shop/web:1".to_owned();
        let is_outdated =
            |release: &str| ids.is_outdated(&forced, release, |_| Some(written(&[1, 2])));
        assert!(is_outdated("shop/web:1") && !is_outdated("shop/web:2"));
        ids.note(&forced, "shop/web:2".to_owned(), Some(&written(&[1, 2])));
        assert!(is_outdated("shop/web:1") && !is_outdated("shop/web:2"));
        // Killed in the next one after it announced its revision.
        let announced = ids.is_outdated(&forced, "shop/web:2", |_| Some(written(&[1, 2, 3])));
        assert!(announced);
    }

    /// The owner's objects have what the other bundle's attempt wrote over them. Once they were deployed anew, the attempt's record means nothing
    /// more.
    #[test]
    fn an_attempt_of_another_bundle_to_take_the_release_makes_a_status_outdated() {
        let ids = DeployedIds::default();
        let mut owner = bundle("s-1:a", 1);
        owner.status.applied_deployment_id = "s-1:a".to_owned();
        let is_outdated = |ids: &DeployedIds, entry: &LedgerEntry, release: &str| {
            ids.is_outdated(&owner, release, |_| Some(entry.clone()))
        };
        let claimed = written(&[1]).noting_claim("taker", "", 2, "x".to_owned());
        assert!(!is_outdated(&ids, &written(&[1]), "shop/web:1"));
        assert!(is_outdated(&ids, &claimed, "shop/web:1"));
        let again = claimed.clone().noting(3, "x".to_owned());
        assert!(!is_outdated(&ids, &again, "shop/web:3"));
        let over = again.clone().noting_claim("taker", "", 4, "x".to_owned());
        assert!(is_outdated(&ids, &over, "shop/web:3"));
        let pruned = over.clone().without(4);
        assert!(!is_outdated(&ids, &pruned, "shop/web:3"));
        // The attempt was announced and never written, so that there was nothing to do about it.
        ids.note(&owner, "shop/web:3".to_owned(), Some(&over));
        assert!(!is_outdated(&ids, &over, "shop/web:3"));
        let others = LedgerEntry {
            bundle: "other".to_owned(),
            ..over
        };
        assert!(!is_outdated(&DeployedIds::default(), &others, "shop/web:3"));
    }

    /// The records were deleted, or the release was removed and installed anew: a restored status names a revision of before.
    #[rstest]
    #[case::the_same("s-1:a", false)]
    #[case::another_one("s-2:a", true)]
    fn a_reused_revision_number_belongs_to_the_deployment_in_the_ledger(
        #[case] known: &str,
        #[case] expected: bool,
    ) {
        let ids = DeployedIds::default();
        let mut restored = bundle("s-1:a", 1);
        restored.status.applied_deployment_id = "s-1:a".to_owned();
        let entry = LedgerEntry {
            deployment: Some(DeploymentDigest::of(known)),
            ..written(&[2])
        };
        let is_outdated =
            |entry: LedgerEntry| ids.is_outdated(&restored, "shop/web:2", |_| Some(entry));
        assert_eq!(is_outdated(entry.clone()), expected);
        let older = LedgerEntry {
            deployment: None,
            ..entry.clone()
        };
        assert!(!is_outdated(older), "an older agent wrote it");
        let others = LedgerEntry {
            bundle: "other".to_owned(),
            ..entry.clone()
        };
        assert!(!is_outdated(others));
        // A release deployed a moment ago may not be in the ledger yet.
        ids.note(&restored, "shop/web:2".to_owned(), Some(&entry));
        assert!(!is_outdated(entry));
    }

    /// A bundle took another one's release, for which the ledger has that other bundle yet: or nothing, as it could not be written.
    #[test]
    fn a_deployed_id_is_settled_whichever_bundle_the_ledger_names() {
        let ids = DeployedIds::default();
        let taker = bundle("s-1:a", 1);
        let owner = LedgerEntry {
            bundle: "owner".to_owned(),
            ..written(&[1, 9])
        };
        let claimed = owner.noting_claim("web", "", 2, "x".to_owned());
        for entry in [Some(&claimed), None] {
            ids.note(&taker, "shop/web:2".to_owned(), entry);
            assert_eq!(ids.settled(&taker, "shop/web:2"), Some(2));
        }
    }
}
