//! Which bundles need a copy: labels on the copy, kept by each write of its content.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::ObjectMeta;

use crate::api::LABEL_BUNDLE_DEPLOYMENT;

/// Before a bundle's name, a label on the copies that it needs beside the one that [`LABEL_BUNDLE_DEPLOYMENT`] names. Its value is empty, or
/// the version of the source that the bundle's release was not deployed with yet.
const CLAIM_PREFIX: &str = "bundledeployment.fleet.cattle.io/";

/// The bundles that need a copy, from its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claims {
    /// The one that the Go agent would delete it with.
    first: String,
    /// The version of the source that each one's release was not deployed with yet; empty for none. The first is here only with such a version.
    others: BTreeMap<String, String>,
}

impl Claims {
    pub(super) fn first(bundle: &str) -> Self {
        Self {
            first: bundle.to_owned(),
            others: BTreeMap::new(),
        }
    }

    /// The claims on a copy; none on what is no copy.
    pub(super) fn of(metadata: &ObjectMeta) -> Option<Self> {
        let labels = metadata.labels.as_ref()?;
        let first = labels
            .get(LABEL_BUNDLE_DEPLOYMENT)
            .filter(|name| !name.is_empty())?;
        let claim = |(key, version): (&String, &String)| {
            let bundle = key.strip_prefix(CLAIM_PREFIX)?;
            Some((bundle.to_owned(), version.clone()))
        };
        let others = labels.iter().filter_map(claim).collect();
        Some(Self {
            first: first.clone(),
            others,
        })
    }

    pub(super) fn bundles(&self) -> BTreeSet<String> {
        self.others.keys().chain([&self.first]).cloned().collect()
    }

    pub(super) fn has(&self, bundle: &str) -> bool {
        self.first == bundle || self.others.contains_key(bundle)
    }

    pub(super) fn add(&mut self, bundle: &str) {
        if !self.has(bundle) {
            self.others.insert(bundle.to_owned(), String::new());
        }
    }

    /// Takes a bundle's claim away; `next` becomes the first claim where it was the first. `None` where no claim is left.
    pub(super) fn without(mut self, bundle: &str, next: Option<&str>) -> Option<Self> {
        self.others.remove(bundle);
        if self.first == bundle {
            let next = self
                .others
                .keys()
                .next()
                .cloned()
                .or_else(|| next.map(str::to_owned))?;
            if self.others.get(&next).is_some_and(String::is_empty) {
                self.others.remove(&next);
            }
            self.first = next;
        }
        Some(self)
    }

    /// The source changed: every bundle's release is to be deployed with it.
    pub(super) fn change(&mut self, version: &str) {
        for bundle in self.bundles() {
            self.others.insert(bundle, version.to_owned());
        }
    }

    /// The version that a bundle's release was not deployed with yet.
    pub(super) fn changed_since(&self, bundle: &str) -> Option<String> {
        self.others
            .get(bundle)
            .filter(|version| !version.is_empty())
            .cloned()
    }

    /// A bundle's release was deployed with this version.
    pub(super) fn rolled_out(&mut self, bundle: &str, version: &str) {
        if self.changed_since(bundle).as_deref() != Some(version) {
            return;
        }
        self.others.remove(bundle);
        self.add(bundle);
    }

    /// Puts the claims on a copy, in the place of all others.
    pub(super) fn write(&self, labels: &mut BTreeMap<String, String>) {
        labels.retain(|key, _| !key.starts_with(CLAIM_PREFIX));
        labels.insert(LABEL_BUNDLE_DEPLOYMENT.to_owned(), self.first.clone());
        let others = self.others.iter();
        labels.extend(
            others.map(|(bundle, version)| (format!("{CLAIM_PREFIX}{bundle}"), version.clone())),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::labelled;
    use super::*;

    const FIRST: &str = "fleet.cattle.io/bundledeployment";
    const CLAIM_OF_B: &str = "bundledeployment.fleet.cattle.io/b";

    #[test]
    fn a_copy_is_removed_with_the_last_bundle_that_claims_it() {
        let mut claims = Claims::of(&labelled(&[(FIRST, "a")])).unwrap();
        claims.add("b");
        claims.add("a");
        let mut labels = BTreeMap::new();
        claims.write(&mut labels);
        assert_eq!(
            labels,
            labelled(&[(FIRST, "a"), (CLAIM_OF_B, "")]).labels.unwrap()
        );
        let left = claims.clone().without("a", None).unwrap();
        assert_eq!(left, Claims::first("b"));
        assert_eq!(claims.without("b", None), Some(Claims::first("a")));
        assert_eq!(left.clone().without("b", None), None);
        assert_eq!(left.without("b", Some("c")), Some(Claims::first("c")));
    }

    #[test]
    fn a_change_of_a_copy_is_outstanding_for_each_bundle_until_it_deploys() {
        let mut claims = Claims::first("a");
        claims.add("b");
        claims.change("7");
        assert_eq!(claims.changed_since("a").as_deref(), Some("7"));
        claims.rolled_out("a", "6");
        assert_eq!(claims.changed_since("a").as_deref(), Some("7"));
        claims.rolled_out("a", "7");
        assert_eq!(claims.changed_since("a"), None);
        assert_eq!(claims.changed_since("b").as_deref(), Some("7"));
        claims.rolled_out("b", "7");
        let mut labels = BTreeMap::new();
        claims.write(&mut labels);
        assert_eq!(
            labels,
            labelled(&[(FIRST, "a"), (CLAIM_OF_B, "")]).labels.unwrap()
        );
    }
}
