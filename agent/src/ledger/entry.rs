//! What the ledger knows of one release.

use std::collections::BTreeMap;

use release::storage::KnownDigest;
use serde::{Deserialize, Serialize};

use super::upstream::ContinuityBreak;

/// Revisions of a release that are remembered by digest: all that is ever gone back to.
const MAX_REVISIONS: usize = 8;

/// A release by its namespace and name; a name is unique in its namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReleaseKey {
    pub namespace: String,
    pub name: String,
}

impl ReleaseKey {
    /// Neither part can hold an underscore, so one tells them apart in a ConfigMap's key.
    pub(super) fn data_key(&self) -> String {
        format!("{}_{}", self.namespace, self.name)
    }

    /// Whether the API server takes it as a ConfigMap's key. One that it refuses would keep all others from being written.
    pub(super) fn is_storable(&self) -> bool {
        let key = self.data_key();
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        key.len() <= 253 && !key.starts_with("..") && key.bytes().all(is_allowed)
    }

    pub(super) fn from_data_key(key: &str) -> Option<Self> {
        let (namespace, name) = key.split_once('_')?;
        Some(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

/// What is known of a release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerEntry {
    /// Name of the BundleDeployment.
    pub bundle: String,
    /// Account it was deployed with; empty for the agent's own.
    #[serde(default)]
    pub account: String,
    /// Whether its objects outlive the BundleDeployment: as the spec last seen or the one last
    /// deployed says.
    #[serde(default)]
    pub keep_resources: bool,
    /// Set when upstream was not what it was while this bundle was missing: its absence proves
    /// nothing until it was listed again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<ContinuityBreak>,
    /// Its removal was proven and has begun.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_removing: bool,
    /// What each revision was written with, as a digest; none for a release whose records are older
    /// than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revisions: Option<BTreeMap<i64, String>>,
}

impl LedgerEntry {
    /// The digest that the entry holds for a revision's record.
    pub fn known_digest(&self, revision: i64) -> KnownDigest {
        let Some(revisions) = &self.revisions else {
            return KnownDigest::Untracked;
        };
        match revisions.get(&revision) {
            Some(digest) => KnownDigest::Digest(digest.clone()),
            None => KnownDigest::Unknown,
        }
    }

    /// This entry with what another one knows of the records.
    #[must_use]
    pub fn with_revisions_of(self, other: &Self) -> Self {
        Self {
            revisions: other.revisions.clone(),
            ..self
        }
    }

    /// This entry with the digest of one more revision; the oldest beyond [`MAX_REVISIONS`] go.
    #[must_use]
    pub fn noting(mut self, revision: i64, digest: String) -> Self {
        let revisions = self.revisions.get_or_insert_default();
        revisions.insert(revision, digest);
        while revisions.len() > MAX_REVISIONS {
            revisions.pop_first();
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn a_key_is_read_back_as_it_was_written() {
        let key = ReleaseKey {
            namespace: "a-b".into(),
            name: "c.d".into(),
        };
        assert_eq!(ReleaseKey::from_data_key(&key.data_key()), Some(key));
        assert_eq!(ReleaseKey::from_data_key("no-separator"), None);
    }

    #[rstest]
    #[case::usual("apps", "web.1", true)]
    #[case::path("../..", "web", false)]
    #[case::blank("apps", "a b", false)]
    fn a_key_the_api_server_would_refuse_is_not_stored(
        #[case] namespace: &str,
        #[case] name: &str,
        #[case] expected: bool,
    ) {
        let key = ReleaseKey {
            namespace: namespace.into(),
            name: name.into(),
        };
        assert_eq!(key.is_storable(), expected);
    }
}
