//! The version of its source that a copy was made of, noted on copies that admission changes. Such a copy never looks like its source: only a new
//! version of the source shows that it changed.
//!
//! All that the note is believed in is that the source is the same. A forged one keeps nothing from being copied, nor from being rolled out
//! once the source changes.

use std::collections::BTreeMap;

use kube::api::ObjectMeta;

const ANNOTATION: &str = "fleetagent.cattle.io/copied-version";

/// One version of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceVersion(String);

impl SourceVersion {
    /// The version that a source has.
    pub(super) fn of(source: &ObjectMeta) -> Option<Self> {
        let (uid, version) = (source.uid.as_ref()?, source.resource_version.as_ref()?);
        Some(Self(format!("{uid}.{version}")))
    }

    /// The one that is noted on a copy.
    pub(super) fn noted_on(copy: &ObjectMeta) -> Option<Self> {
        let noted = copy.annotations.as_ref()?.get(ANNOTATION)?;
        Some(Self(noted.clone()))
    }

    pub(super) fn note(&self, copy: &mut ObjectMeta) {
        let annotations = copy.annotations.get_or_insert_default();
        annotations.insert(ANNOTATION.to_owned(), self.0.clone());
    }

    /// A source may itself be a copy.
    pub(super) fn remove_from(annotations: &mut BTreeMap<String, String>) {
        annotations.remove(ANNOTATION);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(uid: &str, version: &str) -> ObjectMeta {
        ObjectMeta {
            uid: Some(uid.to_owned()),
            resource_version: Some(version.to_owned()),
            ..Default::default()
        }
    }

    #[test]
    fn a_noted_source_version_matches_no_other_version_or_source() {
        let version = SourceVersion::of(&source("a", "7"));
        let mut copy = ObjectMeta::default();
        assert_eq!(SourceVersion::noted_on(&copy), None);
        version.clone().unwrap().note(&mut copy);
        assert_eq!(SourceVersion::noted_on(&copy), version);
        for other in [source("a", "8"), source("b", "7"), ObjectMeta::default()] {
            assert_ne!(SourceVersion::of(&other), version);
        }
        let annotations = copy.annotations.as_mut().unwrap();
        SourceVersion::remove_from(annotations);
        assert!(annotations.is_empty());
    }
}
