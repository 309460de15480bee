//! `valuesFrom`: values in ConfigMaps and Secrets of this cluster.
//!
//! Mirrors `getValues` and `mergeValues` (`internal/helmdeployer/install.go`).

use golib::budget::{Budget, MAX_DEPTH};
use golib::yaml;

use super::inline::Values;
use crate::api::{BundleDeploymentOptions, KeySelector};

const DEFAULT_KEY: &str = "values.yaml";
/// The most that values may take once they are read, in bytes: as much as is read of a release record, where they stand.
pub const MAX_DECODED: usize = 24 << 20;

/// The kind of object a reference names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReferenceKind {
    /// The `data` of a ConfigMap; `binaryData` is not read.
    ConfigMap,
    /// The `data` of a Secret.
    Secret,
}

impl ReferenceKind {
    fn resource(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
        }
    }
}

/// One object to read values from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// ConfigMap or Secret.
    pub kind: ReferenceKind,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// The key that holds the values.
    pub key: String,
}

/// Why a reference gives no values.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ValuesFromError {
    /// The object has no such key.
    #[error("key {} is missing from {} {}/{}, can't use it in valuesFrom", .0.key, .0.kind.resource(), .0.namespace, .0.name)]
    MissingKey(Reference),
    /// The key is there, but empty. Go says just that.
    #[error("EOF")]
    Empty,
    /// Not YAML, or no map. The text names lines, not content.
    #[error("{} {}/{} key {}: {problem}", .reference.kind.resource(), .reference.namespace, .reference.name, .reference.key)]
    Yaml {
        /// The object.
        reference: Reference,
        /// The YAML error.
        problem: yaml::Error,
    },
    /// The line that ends the first document says something else too. Go shows it; it may be a Secret's.
    #[error("{} {}/{} key {}: invalid Yaml document separator", .0.kind.resource(), .0.namespace, .0.name, .0.key)]
    Separator(Reference),
}

/// The objects to read, in the order they are merged: entry by entry, the ConfigMap first.
pub fn references(options: &BundleDeploymentOptions) -> Vec<Reference> {
    let Some(helm) = &options.helm else {
        return Vec::new();
    };
    let release_namespace = options.release_namespace();
    let reference = |kind: ReferenceKind, selector: &KeySelector| {
        let is_copied = options.downstream_resources.iter().any(|copied| {
            copied.kind.eq_ignore_ascii_case(kind.resource()) && copied.name == selector.name
        });
        let namespace = match selector.namespace.as_str() {
            "" => release_namespace,
            _ if is_copied => release_namespace,
            namespace => namespace,
        };
        let key = match selector.key.as_str() {
            "" => DEFAULT_KEY,
            key => key,
        };
        Reference {
            kind,
            namespace: namespace.to_owned(),
            name: selector.name.clone(),
            key: key.to_owned(),
        }
    };
    helm.values_from
        .iter()
        .flat_map(|entry| {
            let config_map = entry.config_map_key_ref.as_ref();
            let secret = entry.secret_key_ref.as_ref();
            [
                config_map.map(|selector| reference(ReferenceKind::ConfigMap, selector)),
                secret.map(|selector| reference(ReferenceKind::Secret, selector)),
            ]
        })
        .flatten()
        .collect()
}

/// Memory budget of all values that a bundle's `valuesFrom` names, or its templates make, decoded.
pub fn budget() -> Budget {
    // Such maps are put into others: half of what may be read again.
    Budget::new(MAX_DECODED).with_depth(MAX_DEPTH / 2)
}

/// Reads the content of a reference's key (`None`: the object has no such key) within what the others have left of a [`budget`]. Only the
/// first document counts.
///
/// # Errors
/// [`ValuesFromError`]. An empty key is an error, one of comments only is not.
pub fn parse(
    reference: &Reference,
    content: Option<&[u8]>,
    budget: &mut Budget,
) -> Result<Values, ValuesFromError> {
    let content = content.ok_or_else(|| ValuesFromError::MissingKey(reference.clone()))?;
    if content.is_empty() {
        return Err(ValuesFromError::Empty);
    }
    // Cut before any YAML is read, so that comments or a directive before the first separator are a document.
    let first =
        yaml::first_document(content).map_err(|_| ValuesFromError::Separator(reference.clone()))?;
    let decoder = yaml::Decoder::new().floats();
    // Such maps are put into others: half of what may be read again.
    budget
        .limit_depth(MAX_DEPTH / 2, |budget| {
            decoder.decode_into_map(&first.unwrap_or_default(), budget)
        })
        .map_err(|problem| ValuesFromError::Yaml {
            reference: reference.clone(),
            problem,
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_in_order_and_name_the_copies_that_are_read() {
        let options: BundleDeploymentOptions = serde_json::from_value(json!({
            "defaultNamespace": "rel",
            "helm": {"valuesFrom": [
                {"secretKeyRef": {"name": "s", "namespace": "other", "key": "k"},
                 "configMapKeyRef": {"name": "c"}},
                {"secretKeyRef": {"name": "copied", "namespace": "other"}},
                {"configMapKeyRef": {"name": "copied", "namespace": "other"}},
            ]},
            "downstreamResources": [{"kind": "SECRET", "name": "copied"}],
        }))
        .unwrap();
        let found: Vec<_> = references(&options)
            .into_iter()
            .map(|r| format!("{}/{}/{}/{}", r.kind.resource(), r.namespace, r.name, r.key))
            .collect();
        assert_eq!(
            found,
            [
                "configmap/rel/c/values.yaml",
                "secret/other/s/k",
                "secret/rel/copied/values.yaml",
                "configmap/other/copied/values.yaml",
            ]
        );
    }

    #[test]
    fn a_key_that_holds_no_values_is_an_error() {
        let reference = Reference {
            kind: ReferenceKind::Secret,
            namespace: "ns".into(),
            name: "s".into(),
            key: "k".into(),
        };
        let parse = |content: Option<&[u8]>| parse(&reference, content, &mut budget());
        let text = |content: Option<&[u8]>| parse(content).unwrap_err().to_string();
        assert_eq!(
            text(None),
            "key k is missing from secret ns/s, can't use it in valuesFrom"
        );
        assert_eq!(text(Some(b"")), "EOF");
        assert!(text(Some(b"[1]")).starts_with("secret ns/s key k: "));
        assert!(parse(Some(b"# nothing\n")).unwrap().is_empty());
        let first = parse(Some(b"a: 1\n---\nb: 2\n")).unwrap();
        assert_eq!(serde_json::Value::Object(first), json!({"a": 1.0}));
        // `YAMLReader.Read` (apimachinery, `pkg/util/yaml/decoder.go:404`) cuts before anything is parsed.
        assert!(
            parse(Some(b"# managed by x\n---\nreplicas: 3\n"))
                .unwrap()
                .is_empty()
        );
        let first = parse(Some(b"---\na: 1\n--- # end\n--- x\n")).unwrap();
        assert_eq!(serde_json::Value::Object(first), json!({"a": 1.0}));
        assert!(text(Some(b"%YAML 1.1\n---\na: 1\n")).starts_with("secret ns/s key k: "));
        assert_eq!(
            text(Some(b"a: 1\n--- x\n")),
            "secret ns/s key k: invalid Yaml document separator"
        );
    }

    #[test]
    fn many_contents_share_one_budget() {
        let reference = Reference {
            kind: ReferenceKind::ConfigMap,
            namespace: "ns".into(),
            name: "m".into(),
            key: "k".into(),
        };
        let content = format!("k: [{}]", vec!["{}"; 100_000].join(","));
        let mut budget = budget();
        let parsed = (0..100).map(|_| parse(&reference, Some(content.as_bytes()), &mut budget));
        let reported = parsed.filter_map(Result::err).next().unwrap().to_string();
        assert!(reported.contains("configmap ns/m key k: "), "{reported}");
        assert!(reported.contains("more than 24 MiB"), "{reported}");
    }
}
