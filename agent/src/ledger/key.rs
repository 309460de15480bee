//! Under which key the ledger has what it knows of a release, or of what a bundle made beside its releases.

use crate::public::Public;

/// What the names of [`ReleaseKey::claims_of`] begin with; those of releases have no capitals.
const CLAIMS: &str = "Claims.";

/// A release by its namespace and name; a name is unique in its namespace. Or what stands in its place for [`Self::claims_of`] a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReleaseKey {
    pub namespace: String,
    pub name: String,
}

impl ReleaseKey {
    /// Under which the ledger has what a bundle made in a namespace beside releases of its own: copies of upstream resources, and attempts at
    /// releases of other bundles. No release has this name, and none is entered under it.
    pub(super) fn claims_of(bundle: &str, namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: format!("{CLAIMS}{bundle}"),
        }
    }

    /// Whether the key stands for the claims of a bundle instead of a release.
    pub fn is_claims(&self) -> bool {
        self.name.starts_with(CLAIMS)
    }

    /// Whether its name can be the value of a label, as a release's is.
    pub(super) fn is_label(&self) -> bool {
        self.name.len() <= 63 && self.is_storable()
    }

    /// The entry's key in the ConfigMap. Neither namespace nor name can hold an underscore, so one separates them.
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

impl std::fmt::Display for ReleaseKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Public for ReleaseKey {
    fn fmt_public(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
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

    #[test]
    fn the_ledger_key_of_claims_is_no_valid_release_name() {
        let key = ReleaseKey::claims_of("b", "apps");
        assert!(key.is_claims() && key.is_label());
        let long = ReleaseKey::claims_of(&"b".repeat(57), "apps");
        assert!(!long.is_label());
        assert_eq!(
            ReleaseKey::from_data_key(&key.data_key()),
            Some(key.clone())
        );
        assert!(release::action::check_name(&key.name).is_err());
    }
}
