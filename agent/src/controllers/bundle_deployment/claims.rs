//! Bundles that want the same release.
//!
//! A release has the objects of one bundle, and stays with it: another bundle that names it is refused, because its upgrade would delete the
//! first one's objects, and the first one's drift correction would bring them back. The Go agent lets them take the release from each other
//! with every change. With `takeOwnership` a changed bundle takes it here too. Evidence is what statuses and the ledger say, where no tenant
//! writes; a release record is none.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::api::BundleDeployment;
use crate::bundle::release_name;
use crate::ledger::ReleaseKey;

/// A release as `status.release` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseId {
    pub namespace: String,
    pub name: String,
    pub revision: i64,
}

impl ReleaseId {
    /// A revision of a release.
    pub fn new(key: &ReleaseKey, revision: i64) -> Self {
        let ReleaseKey { namespace, name } = key.clone();
        Self {
            namespace,
            name,
            revision,
        }
    }

    /// The release, whatever its revision.
    pub fn key(&self) -> ReleaseKey {
        ReleaseKey {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }

    /// Parses `<namespace>/<name>:<revision>`.
    pub fn parse(text: &str) -> Option<Self> {
        let (path, revision) = text.rsplit_once(':')?;
        let (namespace, name) = path.split_once('/')?;
        if namespace.is_empty() || name.is_empty() {
            return None;
        }
        let revision = revision.parse().ok()?;
        Some(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            revision,
        })
    }
}

impl std::fmt::Display for ReleaseId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}:{}", self.namespace, self.name, self.revision)
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

/// The other bundle that has the release `key`. `owner` is the bundle that the ledger has for it.
pub fn conflicting_bundle<'a>(
    bundle: &BundleDeployment,
    key: &ReleaseKey,
    owner: Option<&str>,
    others: impl Iterator<Item = &'a BundleDeployment>,
) -> Option<String> {
    let rank = |one: &BundleDeployment| (revision(one, key), owner == Some(one.name()));
    let ours = rank(bundle);
    others
        .filter(|other| other.name() != bundle.name() && holds_on(other, key))
        .map(|other| (rank(other), other))
        .filter(|(theirs, _)| *theirs > ours)
        .max_by_key(|(theirs, _)| *theirs)
        .map(|(_, other)| other.name().to_owned())
}

/// Whether a bundle may take the release from another: it says `takeOwnership`, and its spec is not deployed yet. One that is deployed takes
/// nothing back.
pub fn takes(bundle: &BundleDeployment) -> bool {
    let helm = bundle.spec.options.helm.as_ref();
    helm.is_some_and(|helm| helm.take_ownership)
        && bundle.spec.deployment_id != bundle.status.applied_deployment_id
}

/// The bundle that wants the release `key` once `owner` gives it up.
pub fn next_owner<'a>(
    owner: &str,
    key: &ReleaseKey,
    others: impl Iterator<Item = &'a BundleDeployment>,
) -> Option<String> {
    let mut waiting = others.filter(|other| {
        other.name() != owner
            && other.metadata.deletion_timestamp.is_none()
            && desired(other) == *key
    });
    waiting.next().map(|other| other.name().to_owned())
}

/// Whether a bundle still wants the release. While its name holds `${ }`, what was deployed decides.
fn holds_on(bundle: &BundleDeployment, key: &ReleaseKey) -> bool {
    let desired = desired(bundle);
    let is_template = [&desired.namespace, &desired.name]
        .iter()
        .any(|text| text.contains("${"));
    bundle.metadata.deletion_timestamp.is_none()
        && (desired == *key || is_template && revision(bundle, key) > 0)
}

/// The revision of the release that a bundle's status names; 0 if it names another one.
pub fn revision(bundle: &BundleDeployment, key: &ReleaseKey) -> i64 {
    ReleaseId::parse(&bundle.status.release)
        .filter(|id| id.namespace == key.namespace && id.name == key.name)
        .map_or(0, |id| id.revision)
}

/// Locks of releases that are being deployed: of two bundles that begin at once, one is first.
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
        let mut taken = self.lock();
        if let Some(other) = taken.get(key) {
            return Err(other.clone());
        }
        taken.insert(key.clone(), bundle.to_owned());
        Ok(ReleaseLock {
            locks: self.clone(),
            key: key.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ReleaseKey, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ReleaseLock {
    fn drop(&mut self) {
        self.locks.lock().remove(&self.key);
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

    #[rstest]
    #[case::nobody_has_it("", "", None, None)]
    #[case::the_first_record_is_in_the_ledger("", "", Some("b"), Some("b"))]
    #[case::the_other_has_deployed_it("", "apps/web:1", None, Some("b"))]
    #[case::we_have_deployed_it("apps/web:1", "", Some("b"), None)]
    #[case::the_other_took_it_from_us("apps/web:1", "apps/web:2", None, Some("b"))]
    #[case::we_took_it_from_the_other("apps/web:3", "apps/web:2", None, None)]
    #[case::a_release_of_that_name_elsewhere("", "other/web:4", None, None)]
    fn who_has_a_release(
        #[case] ours: &str,
        #[case] theirs: &str,
        #[case] owner: Option<&str>,
        #[case] expected: Option<&str>,
    ) {
        let (us, them) = (bundle("a", ours, "web"), bundle("b", theirs, "web"));
        let found = conflicting_bundle(&us, &key(), owner, [&us, &them].into_iter());
        assert_eq!(found.as_deref(), expected);
    }

    #[test]
    fn a_bundle_that_is_deleted_or_wants_another_release_does_not_conflict() {
        let us = bundle("a", "", "web");
        let moved = bundle("b", "apps/web:1", "other");
        assert_eq!(
            conflicting_bundle(&us, &key(), Some("b"), [&moved].into_iter()),
            None
        );
        let mut deleted = bundle("b", "apps/web:1", "web");
        deleted.metadata.deletion_timestamp =
            serde_json::from_value::<Value>(json!("2026-01-01T00:00:00Z"))
                .ok()
                .and_then(|at| serde_json::from_value(at).ok());
        assert_eq!(
            conflicting_bundle(&us, &key(), Some("b"), [&deleted].into_iter()),
            None
        );
        let unfilled = bundle("b", "apps/web:1", "${ .ClusterName }");
        let found = conflicting_bundle(&us, &key(), None, [&unfilled].into_iter());
        assert_eq!(found.as_deref(), Some("b"));
    }

    #[test]
    fn of_two_that_begin_at_once_one_is_first() {
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
                .map(|id| (&*id.namespace, &*id.name, id.revision)),
            expected
        );
        assert!(parsed.is_none_or(|id| id.to_string() == text));
    }
}
