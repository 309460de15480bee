//! The bundles and releases in a namespace besides a given release, by the ledger and by the bundles' specs. No I/O.
//!
//! A namespace that a chart has goes with all that is in it: with releases of other bundles, and with the records of what those have elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use release::{NamespaceUsage, OtherReleases};

use super::bundle_deployment::claims::{self, Claimant, NextOwner};
use super::store::Store;
use crate::api::AGENT_BUNDLE_PREFIX;
use crate::ledger::{Hold, Ledger, LedgerEntry, ReleaseKey};

/// Namespaces that removals have come to and wait to delete, by release: it has nothing else left. None while another bundle deploys it.
type Waiting = BTreeMap<ReleaseKey, BTreeSet<String>>;

/// The bundles and releases of this cluster, as those who share namespaces.
#[derive(Clone)]
pub struct SharedNamespaces {
    store: Arc<Store>,
    ledger: Arc<Ledger>,
    waiting: Arc<Mutex<Waiting>>,
}

impl SharedNamespaces {
    /// What these know.
    pub fn new(store: &Arc<Store>, ledger: &Arc<Ledger>) -> Self {
        Self {
            store: Arc::clone(store),
            ledger: Arc::clone(ledger),
            waiting: Arc::default(),
        }
    }

    /// The other releases beside a bundle's release while it is deployed: whoever has or wants a release in a namespace that it drops keeps it.
    pub fn of_deploy(&self, key: &ReleaseKey, bundle: &str) -> OtherReleases {
        let (all, key, bundle) = (self.clone(), key.clone(), bundle.to_owned());
        OtherReleases::new(move |namespace| {
            let is_other = |(other, _): &(ReleaseKey, LedgerEntry)| {
                *other != key && !other.is_claims() && other.namespace == namespace
            };
            let is_in_use = all.ledger.all().iter().any(is_other)
                || is_wanted(namespace, &bundle, &all.store.claimants());
            match is_in_use {
                true => NamespaceUsage::InUse,
                false => NamespaceUsage::Unused,
            }
        })
    }

    /// The other releases beside a bundle's release while it is removed; `with_bundle`: all releases of its bundle are.
    pub fn of_removal(&self, key: &ReleaseKey, bundle: &str, with_bundle: bool) -> OtherReleases {
        let (all, key, bundle) = (self.clone(), key.clone(), bundle.to_owned());
        OtherReleases::new(move |namespace| all.beside(&key, &bundle, with_bundle, namespace))
    }

    fn beside(
        &self,
        key: &ReleaseKey,
        bundle: &str,
        with_bundle: bool,
        namespace: &str,
    ) -> NamespaceUsage {
        let claimants = self.store.claimants();
        let releases = self.ledger.all();
        let is_beside = |(other, _): &&(ReleaseKey, LedgerEntry)| {
            other != key && !other.is_claims() && other.namespace == namespace
        };
        let mut leaving = Vec::new();
        for (other, known) in releases.iter().filter(is_beside) {
            let goes_along = with_bundle && known.bundle == bundle;
            let is_kept = || {
                self.store.is_listed(&known.bundle)
                    || self.keeps(known)
                    || known.hold == Some(Hold::Held)
                    || known.lost.is_some()
            };
            let next_owner = || claims::next_owner(&known.bundle, other, &claimants);
            if !goes_along && is_kept() || next_owner() != NextOwner::Nobody {
                return NamespaceUsage::InUse;
            }
            leaving.push(other);
        }
        if is_wanted(namespace, bundle, &claimants) {
            return NamespaceUsage::InUse;
        }
        usage(key, &leaving, &self.waiting.lock())
    }

    /// Whether a bundle's objects are to stay when it goes.
    pub fn keeps(&self, entry: &LedgerEntry) -> bool {
        entry.keep_resources
            || self.store.kept_resources(&entry.bundle)
            || entry.bundle.starts_with(AGENT_BUNDLE_PREFIX)
    }

    /// The removal of a release has come to namespaces that others are about to leave, or to none while another bundle is at it. Whether it waited for
    /// the same before.
    pub fn waits(&self, key: &ReleaseKey, namespaces: Vec<String>) -> bool {
        let namespaces: BTreeSet<String> = namespaces.into_iter().collect();
        let before = self.waiting.lock().insert(key.clone(), namespaces.clone());
        before == Some(namespaces)
    }

    /// The namespaces that the removal of a release, while its bundle has another one, has come to and that others are about to leave still.
    pub fn pending_namespaces(&self, key: &ReleaseKey, bundle: &str) -> Vec<String> {
        let known = self.waiting.lock().get(key).cloned();
        let mut known: Vec<_> = known.into_iter().flatten().collect();
        known.retain(|namespace| {
            self.beside(key, bundle, false, namespace) == NamespaceUsage::Draining
        });
        known
    }

    /// A bundle is there: no removal of it waits, but that of a release which it has no use for, as far as it is known which one it wants.
    pub fn is_back(&self, bundle: &str) {
        let known = self.store.get(bundle);
        let desired = known.and_then(|known| self.store.desired(&known));
        let mut waiting = self.waiting.lock();
        waiting.retain(|key, _| match self.ledger.get(key) {
            None => false,
            Some(entry) => {
                entry.bundle != bundle || desired.as_ref().is_some_and(|desired| desired != key)
            }
        });
    }

    /// A release was removed, or given to somebody. The bundles whose removals may have waited for that.
    pub fn is_over(&self, key: &ReleaseKey) -> BTreeSet<String> {
        let mut waiting = self.waiting.lock();
        waiting.remove(key);
        let waited = |namespaces: &BTreeSet<String>| namespaces.contains(&key.namespace);
        let keys = waiting.iter().filter(|(_, all)| waited(all));
        let bundles = keys.filter_map(|(key, _)| self.ledger.get(key));
        bundles.map(|entry| entry.bundle).collect()
    }

    /// How many removals wait for others.
    pub fn count(&self) -> usize {
        self.waiting.lock().len()
    }
}

/// Whether a bundle that is there, another one than `bundle`, wants its release in a namespace.
fn is_wanted(namespace: &str, bundle: &str, claimants: &[Claimant]) -> bool {
    let mut others = claimants.iter().filter(|one| {
        one.bundle.name() != bundle && one.bundle.metadata.deletion_timestamp.is_none()
    });
    others.any(|one| {
        let desired = one.desired.as_ref();
        desired.is_some_and(|desired| desired.namespace == namespace)
    })
}

/// What a release is to do with a namespace in which others are `leaving`. It waits for them, as their records are in it. Of removals that wait
/// for each other in a circle the first by key leaves the namespace, which is all that is lost so.
fn usage(key: &ReleaseKey, leaving: &[&ReleaseKey], waiting: &Waiting) -> NamespaceUsage {
    if leaving.is_empty() {
        return NamespaceUsage::Unused;
    }
    let mut seen = BTreeSet::new();
    let mut ahead: Vec<&ReleaseKey> = leaving.to_vec();
    while let Some(other) = ahead.pop() {
        // A smaller one in the circle leaves its own.
        if other <= key || !seen.insert(other) {
            continue;
        }
        let Some(namespaces) = waiting.get(other) else {
            continue;
        };
        if namespaces.contains(&key.namespace) {
            return NamespaceUsage::InUse;
        }
        ahead.extend(
            waiting
                .keys()
                .filter(|one| namespaces.contains(&one.namespace)),
        );
    }
    NamespaceUsage::Draining
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// A release of that name, in the namespace of that name.
    fn key(name: &str) -> ReleaseKey {
        ReleaseKey {
            namespace: name.to_owned(),
            name: name.to_owned(),
        }
    }

    #[rstest]
    #[case::nobody_is_in_it("a", &[], &[], NamespaceUsage::Unused)]
    #[case::it_has_more_to_remove("a", &["b"], &[], NamespaceUsage::Draining)]
    #[case::it_waits_for_a_third("a", &["b"], &[("b", "c")], NamespaceUsage::Draining)]
    #[case::both_wait_for_each_other("a", &["b"], &[("b", "a")], NamespaceUsage::InUse)]
    #[case::and_the_other_is_first("b", &["a"], &[("a", "b")], NamespaceUsage::Draining)]
    #[case::three_in_a_circle("a", &["c"], &[("b", "a"), ("c", "b")], NamespaceUsage::InUse)]
    #[case::and_another_is_first("b", &["c"], &[("a", "b"), ("c", "a")], NamespaceUsage::Draining)]
    #[case::a_circle_without_it("a", &["b"], &[("b", "c"), ("c", "b")], NamespaceUsage::Draining)]
    fn a_namespace_is_deleted_after_the_releases_that_are_about_to_leave_it(
        #[case] name: &str,
        #[case] leaving: &[&str],
        #[case] waiting: &[(&str, &str)],
        #[case] expected: NamespaceUsage,
    ) {
        let leaving: Vec<_> = leaving.iter().copied().map(key).collect();
        let waiting = waiting.iter();
        let waiting = waiting.map(|(name, on)| (key(name), BTreeSet::from([(*on).to_owned()])));
        let found = usage(
            &key(name),
            &leaving.iter().collect::<Vec<_>>(),
            &waiting.collect(),
        );
        assert_eq!(found, expected);
    }
}
