//! Bundles that want the same release.
//!
//! A release has the objects of one bundle, and stays with it: another bundle that names it is refused, because its upgrade would delete the
//! first one's objects, and the first one's drift correction would bring them back. The Go agent lets them take the release from each other
//! with every change. With `takeOwnership` a changed bundle takes it here too. Evidence is what statuses and the ledger say, where no tenant
//! writes; a release record is no evidence. Of the ledger's owner the ledger knows better than its status, which is written later and is cleared where a
//! deploy fails. Another agent, whose ledger this is not, may have given the release away since: a status that says so makes the ledger's owner wait
//! until the record of that number has shown whose it is.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use super::deployed_ids::DeployedIds;
use crate::api::{ANNOTATION_RELEASE_NAME, BundleDeployment};
use crate::bundle::release_name;
use crate::ledger::{LedgerEntry, ReleaseKey};

/// A release as `status.release` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseId {
    pub release: ReleaseKey,
    pub revision: i64,
}

impl ReleaseId {
    /// A revision of a release.
    pub fn new(key: &ReleaseKey, revision: i64) -> Self {
        let release = key.clone();
        Self { release, revision }
    }

    /// The release, whatever its revision.
    pub fn key(&self) -> ReleaseKey {
        self.release.clone()
    }

    /// Parses `<namespace>/<name>:<revision>`.
    pub fn parse(text: &str) -> Option<Self> {
        let (path, revision) = text.rsplit_once(':')?;
        let (namespace, name) = path.split_once('/')?;
        if namespace.is_empty() || name.is_empty() {
            return None;
        }
        let revision = revision.parse().ok()?;
        let release = ReleaseKey {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        Some(Self { release, revision })
    }
}

impl std::fmt::Display for ReleaseId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.release, self.revision)
    }
}

/// The release a bundle wants.
pub fn desired(bundle: &BundleDeployment) -> ReleaseKey {
    let options = &bundle.spec.options;
    ReleaseKey {
        namespace: options.release_namespace().to_owned(),
        name: release_name(bundle.name(), options),
    }
}

/// Whether a release's namespace or name is only known once its `${ }` are filled in.
pub fn is_template(bundle: &BundleDeployment) -> bool {
    bundle.switch(ANNOTATION_RELEASE_NAME).is_some()
        || wishes(bundle).iter().any(|text| text.contains(OPENING))
}

/// Namespace and name of a bundle's release as they are written there, if its `${ }` are filled in on this cluster.
pub fn template(bundle: &BundleDeployment) -> Option<String> {
    is_template(bundle).then(|| wishes(bundle).join("/"))
}

/// Opening mark of a `${ }` template.
const OPENING: &str = "${";

/// Namespace and name of the release as they are written in the BundleDeployment.
fn wishes(bundle: &BundleDeployment) -> [String; 2] {
    let ReleaseKey { namespace, name } = desired(bundle);
    let name = match bundle.switch(ANNOTATION_RELEASE_NAME) {
        Some(annotated) => annotated.to_owned(),
        None => name,
    };
    [namespace, name]
}

/// Whether a text may become `name`, by what is around its `${ }`.
fn fits(wish: &str, name: &str) -> bool {
    match wish.split_once(OPENING) {
        None => wish == name,
        Some((before, rest)) => {
            let after = rest.rsplit_once('}').map_or("", |(_, after)| after);
            name.len() >= before.len() + after.len()
                && name.starts_with(before.trim_start())
                && name.ends_with(after.trim_end())
        }
    }
}

/// Whether a bundle may want a release, by the texts around its `${ }`.
fn may_want(bundle: &BundleDeployment, key: &ReleaseKey) -> bool {
    let names = [&key.namespace, &key.name];
    wishes(bundle)
        .iter()
        .zip(names)
        .all(|(wish, name)| fits(wish, name))
}

/// A bundle, and the release it wants as far as that is known.
#[derive(Clone, Debug)]
pub struct Claimant {
    pub bundle: Arc<BundleDeployment>,
    /// `None` while its `${ }` were never filled in.
    pub desired: Option<ReleaseKey>,
}

impl Claimant {
    /// Whether the bundle's release may be in a namespace: while its `${ }` were never filled in, wherever they may lead.
    pub fn may_be_in(&self, namespace: &str) -> bool {
        match &self.desired {
            Some(desired) => desired.namespace == namespace,
            None => fits(self.bundle.spec.options.release_namespace(), namespace),
        }
    }

    /// Whether the release is the bundle's still. Its proven owner has it until the ledger says otherwise: also while it goes, or is yet to be
    /// deployed under another name. Of others what they want decides; while that is not known, what was deployed.
    fn holds_on(&self, key: &ReleaseKey, owner: Option<&Owner>) -> bool {
        if owner.is_some_and(|owner| owner.is_proven_for(self.bundle.name())) {
            return true;
        }
        let wants = match &self.desired {
            Some(desired) => desired == key,
            None => reached(&self.bundle, key, owner) > 0,
        };
        wants && self.bundle.metadata.deletion_timestamp.is_none()
    }
}

/// The bundle that the ledger has for a release.
#[derive(Clone, Debug)]
pub struct Owner {
    pub bundle: String,
    /// The newest revision that was ever written for it; 0 where nothing proves that the release is its own.
    pub newest: i64,
}

impl Owner {
    /// As an entry of the ledger has it.
    pub fn of(entry: LedgerEntry) -> Self {
        Self {
            newest: entry.newest_owned(),
            bundle: entry.bundle,
        }
    }

    /// Whether the release is proven to be its own.
    pub fn is_proven(&self) -> bool {
        self.newest > 0
    }

    /// Whether the owner is this bundle, and the release proven to be its own.
    pub fn is_proven_for(&self, bundle: &str) -> bool {
        self.is_proven() && self.bundle == bundle
    }
}

/// How far a bundle got with a release, by its status or, of the ledger's owner, by the ledger.
fn reached(bundle: &BundleDeployment, key: &ReleaseKey, owner: Option<&Owner>) -> i64 {
    let owned = owner.filter(|owner| owner.bundle == bundle.name());
    revision(bundle, key).max(owned.map_or(0, |owner| owner.newest))
}

/// The other bundle that has the release `key`. `owner` is the bundle that the ledger has for it.
pub fn conflicting_bundle(
    bundle: &BundleDeployment,
    key: &ReleaseKey,
    owner: Option<&Owner>,
    others: &[Claimant],
) -> Option<String> {
    let is_owner = |one: &BundleDeployment| owner.is_some_and(|owner| owner.bundle == one.name());
    let mut conflicting = others
        .iter()
        .filter(|other| other.bundle.name() != bundle.name());
    // A status above what the ledger knows makes its owner wait, and gives nobody the release: what lies there is read for that first.
    let proven = owner.filter(|owner| owner.is_proven());
    if proven.is_some_and(|_| {
        conflicting
            .clone()
            .any(|one| is_owner(&one.bundle) && one.holds_on(key, owner))
    }) {
        return proven.map(|owner| owner.bundle.clone());
    }
    let rank = |one: &BundleDeployment| (reached(one, key, owner), is_owner(one));
    let ours = rank(bundle);
    conflicting
        .by_ref()
        .filter(|other| other.holds_on(key, owner))
        .map(|other| (rank(&other.bundle), other))
        .filter(|(theirs, _)| *theirs > ours)
        .max_by_key(|(theirs, _)| *theirs)
        .map(|(_, other)| other.bundle.name().to_owned())
}

/// The bundles that wait for each other's releases in a circle, as two do that swap names, each with the release that it has, where `bundle` is
/// the first of them by name: one has to begin. `owned_by` says who has a release, `desired_by` what a bundle wants.
pub fn circle(
    bundle: &str,
    key: &ReleaseKey,
    owned_by: impl Fn(&ReleaseKey) -> Option<String>,
    desired_by: impl Fn(&str) -> Option<ReleaseKey>,
) -> Option<BTreeMap<String, ReleaseKey>> {
    let mut seen = BTreeMap::new();
    let mut key = key.clone();
    while let Some(owner) = owned_by(&key) {
        if owner == bundle {
            let is_first = seen.keys().all(|other: &String| other.as_str() > bundle);
            let is_circle = is_first && !seen.is_empty();
            seen.insert(owner, key);
            return is_circle.then_some(seen);
        }
        let desired = desired_by(&owner)?;
        if seen.insert(owner, key).is_some() {
            return None;
        }
        key = desired;
    }
    None
}

/// Whether a bundle may take the release from another: it says `takeOwnership`, and its spec is not deployed yet. One that is deployed takes
/// nothing back, also where upstream's status does not say yet that it is. An ID without a release is one of a deploy that failed in words which
/// upstream shows as "not ready": there it counts whether the bundle `has_lost` the release with it.
pub fn takes(
    bundle: &BundleDeployment,
    deployed: &DeployedIds,
    has_lost: impl FnOnce() -> bool,
) -> bool {
    let (helm, status) = (bundle.spec.options.helm.as_ref(), &bundle.status);
    let id = &bundle.spec.deployment_id;
    let is_deployed =
        *id == status.applied_deployment_id && (!status.release.is_empty() || has_lost());
    helm.is_some_and(|helm| helm.take_ownership) && !is_deployed && !deployed.has_latest(bundle)
}

/// The bundle that gets a release once its owner gives it up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextOwner {
    /// This bundle.
    Bundle(String),
    /// This bundle may want it: that shows when its `${ }` are filled in.
    Unknown(String),
    /// This bundle had it before, and is missing without proof: it may want it when it is back.
    Missing(String),
    /// Nobody.
    Nobody,
}

/// The bundle that gets release `key` once `owner` gives it up: one that is there, or the one that had it before and is `missing`, or cannot be read.
pub fn next_known_owner(
    owner: &str,
    key: &ReleaseKey,
    others: &[Claimant],
    missing: impl FnOnce() -> Option<String>,
) -> NextOwner {
    match next_owner(owner, key, others) {
        NextOwner::Nobody => missing().map_or(NextOwner::Nobody, NextOwner::Missing),
        known => known,
    }
}

/// The same of those that are there.
pub fn next_owner(owner: &str, key: &ReleaseKey, others: &[Claimant]) -> NextOwner {
    let is_other = |other: &&Claimant| {
        other.bundle.name() != owner && other.bundle.metadata.deletion_timestamp.is_none()
    };
    let others = others.iter().filter(is_other);
    let mut waiting = others
        .clone()
        .filter(|one| one.desired.as_ref() == Some(key));
    if let Some(waiting) = waiting.next() {
        return NextOwner::Bundle(waiting.bundle.name().to_owned());
    }
    let mut doubtful = others.filter(|one| one.desired.is_none() && may_want(&one.bundle, key));
    match doubtful.next() {
        Some(doubtful) => NextOwner::Unknown(doubtful.bundle.name().to_owned()),
        None => NextOwner::Nobody,
    }
}

/// The revision of the release that a bundle's status names; 0 if it names another one.
pub fn revision(bundle: &BundleDeployment, key: &ReleaseKey) -> i64 {
    ReleaseId::parse(&bundle.status.release)
        .filter(|id| id.release == *key)
        .map_or(0, |id| id.revision)
}

/// Locks of releases that are deployed, corrected or removed, from when it is asked whose one is to when that was acted on: of two bundles that begin
/// at once, one is first.
#[derive(Clone, Debug, Default)]
pub struct ReleaseLocks(Arc<Mutex<HashMap<ReleaseKey, String>>>);

/// The lock of one release, until it is dropped.
#[derive(Debug)]
pub struct ReleaseLock {
    locks: ReleaseLocks,
    key: ReleaseKey,
}

impl ReleaseLocks {
    /// Locks a release for a bundle.
    ///
    /// # Errors
    /// The bundle that has the lock.
    pub fn take(&self, key: &ReleaseKey, bundle: &str) -> Result<ReleaseLock, String> {
        let mut taken = self.0.lock();
        if let Some(other) = taken.get(key) {
            return Err(other.clone());
        }
        taken.insert(key.clone(), bundle.to_owned());
        Ok(ReleaseLock {
            locks: self.clone(),
            key: key.clone(),
        })
    }

    /// Whether a release is locked for another bundle than this one.
    pub fn is_locked_by_other(&self, key: &ReleaseKey, bundle: &str) -> bool {
        self.0.lock().get(key).is_some_and(|other| other != bundle)
    }

    /// How many releases are locked.
    pub fn count(&self) -> usize {
        self.0.lock().len()
    }
}

impl Drop for ReleaseLock {
    fn drop(&mut self) {
        self.locks.0.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn key() -> ReleaseKey {
        ReleaseKey {
            namespace: "apps".into(),
            name: "web".into(),
        }
    }

    fn bundle(name: &str, release: &str, desired: &str) -> BundleDeployment {
        let value = json!({
            "metadata": {"name": name},
            "spec": {"options": {"defaultNamespace": "apps", "helm": {"releaseName": desired}}},
            "status": {"release": release},
        });
        serde_json::from_value(value).unwrap()
    }

    fn claimants(bundles: &[&BundleDeployment]) -> Vec<Claimant> {
        let claimant = |bundle: &&BundleDeployment| Claimant {
            desired: (!is_template(bundle)).then(|| desired(bundle)),
            bundle: Arc::new((*bundle).clone()),
        };
        bundles.iter().map(claimant).collect()
    }

    fn owner((bundle, newest): (&str, i64)) -> Owner {
        let bundle = bundle.to_owned();
        Owner { bundle, newest }
    }

    #[rstest]
    #[case::nobody_has_it("", "", None, None)]
    #[case::the_first_record_is_in_the_ledger("", "", Some(("b", 0)), Some("b"))]
    #[case::the_other_has_deployed_it("", "apps/web:1", None, Some("b"))]
    #[case::we_have_deployed_it("apps/web:1", "", Some(("b", 0)), None)]
    #[case::the_other_took_it_from_us("apps/web:1", "apps/web:2", None, Some("b"))]
    #[case::and_its_status_is_not_written_yet("apps/web:1", "", Some(("b", 2)), Some("b"))]
    #[case::and_its_status_is_of_before("apps/web:2", "apps/web:1", Some(("b", 3)), Some("b"))]
    #[case::we_took_it_from_the_other("apps/web:3", "apps/web:2", None, None)]
    #[case::and_our_status_was_cleared("", "apps/web:2", Some(("a", 9)), None)]
    #[case::only_our_status_says_that_we_got_it("apps/web:5", "apps/web:4", Some(("b", 4)), Some("b"))]
    #[case::their_status_says_that_they_got_it("apps/web:4", "apps/web:5", Some(("a", 4)), Some("b"))]
    #[case::a_release_of_that_name_elsewhere("", "other/web:4", None, None)]
    fn the_owner_of_a_release(
        #[case] ours: &str,
        #[case] theirs: &str,
        #[case] owned: Option<(&str, i64)>,
        #[case] expected: Option<&str>,
    ) {
        let (us, them) = (bundle("a", ours, "web"), bundle("b", theirs, "web"));
        let owner = owned.map(owner);
        let found = conflicting_bundle(&us, &key(), owner.as_ref(), &claimants(&[&us, &them]));
        assert_eq!(found.as_deref(), expected);
    }

    #[test]
    fn a_bundle_that_is_deleted_or_wants_another_release_does_not_conflict() {
        let us = bundle("a", "", "web");
        let conflict = |owned: Option<(&str, i64)>, one: &BundleDeployment| {
            let owner = owned.map(owner);
            conflicting_bundle(&us, &key(), owner.as_ref(), &claimants(&[one]))
        };
        let moved = bundle("b", "apps/web:1", "other");
        assert_eq!(conflict(None, &moved), None);
        let mut deleted = bundle("b", "apps/web:1", "web");
        deleted.metadata.deletion_timestamp =
            serde_json::from_value::<Value>(json!("2026-01-01T00:00:00Z"))
                .ok()
                .and_then(|at| serde_json::from_value(at).ok());
        assert_eq!(conflict(None, &deleted), None);
        // The ledger says when it gives the release up: once it is deployed under its new name, or gone.
        assert_eq!(conflict(Some(("b", 1)), &moved).as_deref(), Some("b"));
        assert_eq!(conflict(Some(("b", 1)), &deleted).as_deref(), Some("b"));
        assert_eq!(conflict(Some(("b", 0)), &moved), None);
        let unfilled = bundle("b", "apps/web:1", "${ .ClusterName }");
        let found = conflicting_bundle(&us, &key(), None, &claimants(&[&unfilled]));
        assert_eq!(found.as_deref(), Some("b"));
        let cleared = bundle("b", "", "${ .ClusterName }");
        let conflict = |newest| {
            let owner = owner(("b", newest));
            conflicting_bundle(&us, &key(), Some(&owner), &claimants(&[&cleared]))
        };
        assert_eq!(conflict(3).as_deref(), Some("b"));
        assert_eq!(conflict(0), None);
    }

    #[rstest]
    #[case::two_swap(&[("web", "a", "db"), ("db", "b", "web")], "a", true)]
    #[case::the_other_waits(&[("web", "a", "db"), ("db", "b", "web")], "b", false)]
    #[case::three(&[("web", "a", "db"), ("db", "b", "mq"), ("mq", "c", "web")], "a", true)]
    #[case::the_owner_stays(&[("web", "a", "db"), ("db", "b", "db")], "a", false)]
    #[case::nobody_has_it(&[("web", "a", "db")], "a", false)]
    #[case::others_go_round(&[("web", "a", "db"), ("db", "b", "mq"), ("mq", "c", "db")], "a", false)]
    fn where_bundles_swap_releases_the_first_by_name_begins(
        #[case] owned: &[(&str, &str, &str)],
        #[case] bundle: &str,
        #[case] expected: bool,
    ) {
        let named = |name: &str| ReleaseKey {
            name: name.to_owned(),
            ..key()
        };
        let owned_by = |key: &ReleaseKey| {
            let mut owners = owned.iter().filter(|(name, ..)| *name == key.name);
            owners.next().map(|(_, owner, _)| (*owner).to_owned())
        };
        let desired_by = |bundle: &str| {
            let mut wishes = owned.iter().filter(|(_, owner, _)| *owner == bundle);
            wishes.next().map(|(.., wish)| named(wish))
        };
        let desired = desired_by(bundle).unwrap();
        let found = circle(bundle, &desired, owned_by, desired_by);
        assert_eq!(found.is_some(), expected);
        let has = |(bundle, key): (&String, &ReleaseKey)| owned_by(key).as_ref() == Some(bundle);
        assert!(found.is_none_or(|found| found.iter().all(has)));
    }

    #[rstest]
    #[case::plain("web", None, NextOwner::Bundle("b".into()))]
    #[case::another("other", None, NextOwner::Nobody)]
    #[case::filled_in("${ .ClusterName }", Some("web"), NextOwner::Bundle("b".into()))]
    #[case::filled_in_otherwise("${ .ClusterName }", Some("other"), NextOwner::Nobody)]
    #[case::not_filled_in("w${ .ClusterName }b", None, NextOwner::Unknown("b".into()))]
    #[case::cannot_become_it("web-${ .ClusterName }", None, NextOwner::Nobody)]
    fn the_next_owner_of_a_release(
        #[case] wish: &str,
        #[case] filled: Option<&str>,
        #[case] expected: NextOwner,
    ) {
        let them = bundle("b", "", wish);
        let mut others = claimants(&[&bundle("a", "apps/web:1", "web"), &them]);
        if let Some(name) = filled {
            let name = name.to_owned();
            others[1].desired = Some(ReleaseKey { name, ..key() });
        }
        assert_eq!(next_owner("a", &key(), &others), expected);
    }

    /// A failed takeover is tried again, whatever it failed with; a deployed bundle takes nothing back.
    #[rstest]
    #[case::changed("s-1:a", "apps/web:1", false, false, true)]
    #[case::failed_as_not_ready("s-2:a", "", false, false, true)]
    #[case::deployed("s-2:a", "apps/web:2", false, false, false)]
    #[case::deployed_and_upstream_was_not_told("s-1:a", "apps/web:1", true, false, false)]
    #[case::deployed_and_failed_since("s-2:a", "", true, false, false)]
    #[case::deployed_and_failed_before_a_restart("s-2:a", "", false, true, false)]
    fn a_bundle_takes_ownership_until_its_deploy_has_succeeded(
        #[case] applied: &str,
        #[case] release: &str,
        #[case] is_deployed: bool,
        #[case] has_lost: bool,
        #[case] expected: bool,
    ) {
        let mut taker = bundle("b", release, "web");
        taker.spec.deployment_id = "s-2:a".to_owned();
        taker.status.applied_deployment_id = applied.to_owned();
        let deployed = DeployedIds::default();
        if is_deployed {
            deployed.note(&taker, "apps/web:2".to_owned(), None);
        }
        let takes = |taker: &BundleDeployment| takes(taker, &deployed, || has_lost);
        assert!(!takes(&taker), "it does not say so");
        taker
            .spec
            .options
            .helm
            .get_or_insert_default()
            .take_ownership = true;
        assert_eq!(takes(&taker), expected);
    }

    #[test]
    fn a_release_lock_is_exclusive_until_dropped() {
        let locks = ReleaseLocks::default();
        let lock = locks.take(&key(), "a").unwrap();
        assert_eq!(locks.take(&key(), "b").unwrap_err(), "a");
        drop(lock);
        assert!(locks.take(&key(), "b").is_ok());
    }

    #[rstest]
    #[case("ns/name:3", Some(("ns", "name", 3)))]
    #[case("", None)]
    #[case("name:3", None)]
    #[case("ns/name", None)]
    #[case("ns/name:x", None)]
    fn release_ids(#[case] text: &str, #[case] expected: Option<(&str, &str, i64)>) {
        let parsed = ReleaseId::parse(text);
        assert_eq!(
            parsed
                .as_ref()
                .map(|id| (&*id.release.namespace, &*id.release.name, id.revision)),
            expected
        );
        assert!(parsed.is_none_or(|id| id.to_string() == text));
    }
}
