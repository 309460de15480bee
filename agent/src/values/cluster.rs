//! What a template may know of the cluster, gathered from several places.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::inline::Values;
use chart::values::merge_maps;

/// Labels and annotations of machinery; templates do not see them.
const HIDDEN_PREFIX: &str = "kubectl.kubernetes.io/";
const HIDDEN_PART: &str = "cattle.io/";
/// Labels that are shown all the same.
const SHOWN_PREFIXES: [&str; 2] = ["fleet.cattle.io/", "management.cattle.io/"];

/// The facts of one cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterFacts {
    /// `.ClusterName`.
    pub name: String,
    /// `.ClusterNamespace`.
    pub namespace: String,
    /// `.ClusterLabels`, those of machinery not yet left out.
    pub labels: BTreeMap<String, String>,
    /// `.ClusterAnnotations`, likewise.
    pub annotations: BTreeMap<String, String>,
    /// `.ClusterValues`.
    pub template_values: Values,
}

/// Facts that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// Not YAML. What a parser quotes of it may be secret, so its place alone is shown.
    #[error("cluster facts are no YAML{}", .line.map(|line| format!(": line {line}")).unwrap_or_default())]
    Yaml {
        /// From 1; it is not known of everything.
        line: Option<usize>,
    },
    /// A field that [`ClusterFacts`] does not have: a typing error would go unnoticed.
    #[error("unknown field {0:?}")]
    UnknownField(String),
    /// A field of another type.
    #[error("field {field:?} is no {expected}")]
    Type {
        field: &'static str,
        expected: &'static str,
    },
    /// A list or a scalar.
    #[error("no map")]
    NoMap,
}

impl From<golib::yaml::Error> for FactsError {
    fn from(failed: golib::yaml::Error) -> Self {
        let line = match failed {
            golib::yaml::Error::Syntax { line, .. } => line,
            _ => None,
        };
        Self::Yaml { line }
    }
}

impl ClusterFacts {
    /// Of a Cluster object as it stands upstream.
    pub fn from_cluster(cluster: &Value) -> Self {
        let metadata = cluster.get("metadata").unwrap_or(&Value::Null);
        let text = |field: &str| {
            metadata
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let texts = |field: &str| -> BTreeMap<String, String> {
            let table = metadata.get(field).and_then(Value::as_object);
            let entries = table.into_iter().flatten();
            entries
                .filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned())))
                .collect()
        };
        let values = cluster
            .get("spec")
            .and_then(|spec| spec.get("templateValues"));
        Self {
            name: text("name"),
            namespace: text("namespace"),
            labels: texts("labels"),
            annotations: texts("annotations"),
            template_values: super::inline(values.and_then(Value::as_object)),
        }
    }

    /// Of a ConfigMap's key: YAML with `name`, `namespace`, `labels`, `annotations` and
    /// `templateValues`, each optional.
    ///
    /// # Errors
    /// [`FactsError`]; unknown fields are refused, because a typing error would go unnoticed.
    pub fn from_yaml(text: &[u8]) -> Result<Self, FactsError> {
        let table = match golib::yaml::decode_floats(text)? {
            Value::Null => return Ok(Self::default()),
            Value::Object(table) => table,
            _ => return Err(FactsError::NoMap),
        };
        let mut facts = Self::default();
        for (field, value) in table {
            match field.as_str() {
                "name" => facts.name = string("name", value)?,
                "namespace" => facts.namespace = string("namespace", value)?,
                "labels" => facts.labels = strings("labels", value)?,
                "annotations" => facts.annotations = strings("annotations", value)?,
                "templateValues" => facts.template_values = map("templateValues", value)?,
                _ => return Err(FactsError::UnknownField(field)),
            }
        }
        Ok(facts)
    }

    /// Of ClusterValues alone, as YAML.
    ///
    /// # Errors
    /// [`FactsError`]: not a map.
    pub fn from_values(text: &[u8]) -> Result<Self, FactsError> {
        match golib::yaml::decode_floats(text)? {
            Value::Null => Ok(Self::default()),
            Value::Object(template_values) => Ok(Self {
                template_values,
                ..Self::default()
            }),
            _ => Err(FactsError::NoMap),
        }
    }

    /// Lays `other`, the nearer source, over these: texts and labels replace, values are merged.
    #[must_use]
    pub fn overlaid(mut self, other: Self) -> Self {
        if !other.name.is_empty() {
            self.name = other.name;
        }
        if !other.namespace.is_empty() {
            self.namespace = other.namespace;
        }
        self.labels.extend(other.labels);
        self.annotations.extend(other.annotations);
        merge_maps(&mut self.template_values, other.template_values);
        self
    }

    /// The labels that templates and references see.
    pub(crate) fn visible_labels(&self) -> BTreeMap<&str, &str> {
        let shown = |key: &str| SHOWN_PREFIXES.iter().any(|prefix| key.starts_with(prefix));
        visible(&self.labels, |key| is_plain(key) || shown(key))
    }

    /// The dot of a template.
    pub(super) fn context(&self) -> Value {
        json!({
            "ClusterNamespace": self.namespace,
            "ClusterName": self.name,
            "ClusterLabels": texts(self.visible_labels()),
            "ClusterAnnotations": texts(visible(&self.annotations, is_plain)),
            "ClusterValues": self.template_values,
        })
    }
}

fn string(field: &'static str, value: Value) -> Result<String, FactsError> {
    match value {
        Value::String(text) => Ok(text),
        _ => Err(FactsError::Type {
            field,
            expected: "text",
        }),
    }
}

fn map(field: &'static str, value: Value) -> Result<Values, FactsError> {
    match value {
        Value::Null => Ok(Values::new()),
        Value::Object(map) => Ok(map),
        _ => Err(FactsError::Type {
            field,
            expected: "map",
        }),
    }
}

fn strings(field: &'static str, value: Value) -> Result<BTreeMap<String, String>, FactsError> {
    map(field, value)?
        .into_iter()
        .map(|(key, value)| Ok((key, string(field, value)?)))
        .collect()
}

fn is_plain(key: &str) -> bool {
    !key.starts_with(HIDDEN_PREFIX) && !key.contains(HIDDEN_PART)
}

fn visible(
    all: &BTreeMap<String, String>,
    is_visible: impl Fn(&str) -> bool,
) -> BTreeMap<&str, &str> {
    all.iter()
        .filter(|(key, _)| is_visible(key))
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect()
}

fn texts(entries: BTreeMap<&str, &str>) -> Map<String, Value> {
    entries
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.into()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearer_sources_win() {
        let upstream = ClusterFacts::from_cluster(&json!({
            "metadata": {"name": "c", "namespace": "fleet-default", "labels": {"env": "dev", "a": "b"}},
            "spec": {"templateValues": {"net": {"pods": "10.0.0.0/16"}, "n": 3}},
        }));
        let local = ClusterFacts::from_yaml(
            b"labels: {env: prod}\ntemplateValues: {net: {services: 10.1.0.0/16}}\n",
        )
        .unwrap();
        let facts = upstream.overlaid(local);
        assert_eq!(
            facts.context(),
            json!({
                "ClusterName": "c",
                "ClusterNamespace": "fleet-default",
                "ClusterLabels": {"env": "prod", "a": "b"},
                "ClusterAnnotations": {},
                "ClusterValues": {"net": {"pods": "10.0.0.0/16", "services": "10.1.0.0/16"}, "n": 3.0},
            })
        );
    }

    #[test]
    fn internal_labels_and_annotations_of_a_cluster_are_hidden() {
        let facts = ClusterFacts::from_cluster(&json!({"metadata": {
            "labels": {"fleet.cattle.io/x": "1", "management.cattle.io/x": "2", "other.cattle.io/x": "3",
                       "kubectl.kubernetes.io/x": "4", "env": "5"},
            "annotations": {"fleet.cattle.io/x": "1", "note": "2"},
        }}));
        let labels = facts.visible_labels();
        assert_eq!(
            labels.into_keys().collect::<Vec<_>>(),
            ["env", "fleet.cattle.io/x", "management.cattle.io/x"]
        );
        assert_eq!(facts.context()["ClusterAnnotations"], json!({"note": "2"}));
    }

    #[test]
    fn typing_errors_are_noticed() {
        assert!(ClusterFacts::from_yaml(b"templatevalues: {a: 1}").is_err());
        assert!(ClusterFacts::from_yaml(b"").unwrap().labels.is_empty());
    }
}
