//! Proof that an object is a copy that was made here, and the two requests that change one: both take the proof as an argument.
//!
//! A name proves nothing: an administrator's Secret may have the name of a copy. A write or deletion holds for the version that was read and for
//! no other, so that later changes by others stay.

use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, PostParams, Preconditions};
use release::kube::Owner;
use serde_json::json;

use super::claims::Claims;
use super::kinds::Copied;
use super::source_version::SourceVersion;
use crate::error;

/// An object that was read and is marked as a copy. Only the functions here make one.
#[derive(Clone, Debug)]
pub(super) struct ProvenCopy {
    claims: Claims,
    instance: Instance,
}

/// A copy that nobody needs any more. Only [`ProvenCopy::unneeded`] makes one.
#[derive(Clone, Debug)]
pub(super) struct UnneededCopy(Instance);

/// One object, in one version.
#[derive(Clone, Debug)]
struct Instance {
    uid: Option<String>,
    version: Option<String>,
}

impl ProvenCopy {
    /// Proof for writing the source over `found`: it is marked as a copy, and belongs to no release. The Go agent copies the marks of the release
    /// that the source is of.
    pub(super) fn of_source(found: &ObjectMeta, source: &ObjectMeta) -> Option<Self> {
        let owner = release_of(found);
        let is_free = owner.is_none() || owner == release_of(source);
        Self::marked(found).filter(|_| is_free)
    }

    /// Proof that `found` is a copy the bundle needs, and belongs to no release.
    pub(super) fn of_bundle(found: &ObjectMeta, bundle: &str) -> Option<Self> {
        let proven = Self::marked(found)?;
        (proven.claims.has(bundle) && release_of(found).is_none()).then_some(proven)
    }

    fn marked(found: &ObjectMeta) -> Option<Self> {
        Some(Self {
            claims: Claims::of(found)?,
            instance: Instance {
                uid: found.uid.clone(),
                version: found.resource_version.clone(),
            },
        })
    }

    /// The bundles that need the copy.
    pub(super) fn claims(&self) -> &Claims {
        &self.claims
    }

    /// Nobody needs it once a bundle has left it, nor does an next.
    pub(super) fn unneeded(self, bundle: &str, next: Option<&str>) -> Option<UnneededCopy> {
        let left = self.claims.without(bundle, next);
        left.is_none().then_some(UnneededCopy(self.instance))
    }

    /// Writes over it; without the note of its source's version where it has one and is refused, as by a policy that came after the note: what it holds counts
    /// for more. Gives what admission made of that.
    ///
    /// # Errors
    /// It is another one by now, or the API server refused.
    pub(super) async fn overwrite<K: Copied>(
        &self,
        copies: &Api<K>,
        name: &str,
        by: K,
    ) -> kube::Result<K> {
        let unnoted = SourceVersion::noted_on(by.meta()).map(|_| {
            let mut unnoted = by.clone();
            if let Some(annotations) = &mut unnoted.meta_mut().annotations {
                SourceVersion::remove_from(annotations);
            }
            unnoted
        });
        let answer = self.replace(copies, name, by).await;
        match (answer, unnoted) {
            (Err(failed), Some(unnoted)) if is_refused(&failed) => {
                self.replace(copies, name, unnoted).await
            }
            (answer, _) => answer,
        }
    }

    /// Writes over it, with what it is to be noted with or not at all.
    ///
    /// # Errors
    /// As [`Self::overwrite`].
    pub(super) async fn replace<K: Copied>(
        &self,
        copies: &Api<K>,
        name: &str,
        mut by: K,
    ) -> kube::Result<K> {
        let Instance { uid, version } = self.instance.clone();
        let metadata = by.meta_mut();
        (metadata.uid, metadata.resource_version) = (uid, version);
        metadata.managed_fields = None;
        copies.replace(name, &PostParams::default(), &by).await
    }
}

impl UnneededCopy {
    /// Deletes it.
    ///
    /// # Errors
    /// It is another one by now, or the API server refused.
    pub(super) async fn delete<K: Copied>(self, copies: &Api<K>, name: &str) -> kube::Result<()> {
        let Instance { uid, version } = self.0;
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid,
                // A bundle may have come to need it since.
                resource_version: version,
            }),
            ..DeleteParams::background()
        };
        copies.delete(name, &parameters).await.map(drop)
    }
}

/// Whether an API server, or what it asks, will not have a write: not that there are too many, nor that another one was first.
fn is_refused(failed: &kube::Error) -> bool {
    let passes = [404, 409, 429];
    error::is_answered(failed) && !passes.iter().any(|code| error::has_code(failed, *code))
}

fn release_of(metadata: &ObjectMeta) -> Option<Owner> {
    Owner::of(&json!({"metadata": {"annotations": metadata.annotations}}))
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::labelled;
    use super::*;
    use rstest::rstest;

    const FIRST: &str = "fleet.cattle.io/bundledeployment";

    #[rstest]
    #[case::unmarked(&[], &[], false)]
    #[case::of_either_agent(&[(FIRST, "a")], &[], true)]
    #[case::adopted_by_a_release(&[(FIRST, "a")], &["r"], false)]
    fn only_an_object_labelled_as_a_copy_and_in_no_release_counts_as_a_copy(
        #[case] labels: &[(&str, &str)],
        #[case] release: &[&str],
        #[case] expected: bool,
    ) {
        let mut found = labelled(labels);
        for name in release {
            let marks = ["name", "namespace"]
                .map(|mark| (format!("meta.helm.sh/release-{mark}"), (*name).to_owned()));
            found.annotations = Some(marks.into());
        }
        let is_proven = |source: &ObjectMeta| ProvenCopy::of_source(&found, source).is_some();
        assert_eq!(is_proven(&ObjectMeta::default()), expected);
        assert_eq!(ProvenCopy::of_bundle(&found, "a").is_some(), expected);
        assert!(ProvenCopy::of_bundle(&found, "b").is_none());
        // The Go agent copies the marks of its source.
        assert_eq!(is_proven(&found), !labels.is_empty());
    }

    #[test]
    fn a_copy_that_a_bundle_needs_is_not_deletable() {
        let found = labelled(&[(FIRST, "a"), ("bundledeployment.fleet.cattle.io/b", "")]);
        let proven = ProvenCopy::of_bundle(&found, "a").unwrap();
        assert!(proven.clone().unneeded("a", None).is_none());
        let found = labelled(&[(FIRST, "a")]);
        let proven = ProvenCopy::of_bundle(&found, "a").unwrap();
        assert!(proven.clone().unneeded("a", Some("c")).is_none());
        assert!(proven.unneeded("a", None).is_some());
    }
}
