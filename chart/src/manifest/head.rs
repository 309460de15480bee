//! The few fields Helm reads of every document.

use std::collections::BTreeMap;

use golib::json::At;
use golib::yaml;
use serde_json::Value;

use crate::DecodeError;
use crate::depth::{TooDeep, bounded};

/// What Helm knows of a document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    /// `apiVersion`.
    pub api_version: String,
    /// `kind`; empty in a document of comments only.
    pub kind: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.annotations`; plain scalars read as text.
    pub annotations: BTreeMap<String, String>,
}

/// A head that cannot be read. The text is that of Go's YAML library.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeadError {
    /// The document is no YAML.
    #[error(transparent)]
    Yaml(yaml::Error),
    /// The document nests too deep.
    #[error(transparent)]
    TooDeep(TooDeep),
    /// A field has the wrong type.
    #[error("error unmarshaling JSON: while decoding JSON: {0}")]
    Type(#[source] DecodeError),
}

/// The fields of a document that are read.
const FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The Go type of `metadata`, as its errors print it.
const METADATA_TYPE: &str = "struct { Name string \"json:\\\"name\\\"\"; \
     Annotations map[string]string \"json:\\\"annotations\\\"\" }";

impl Head {
    /// Reads the head of one document.
    ///
    /// ```
    /// use chart::manifest::Head;
    ///
    /// let head = Head::read("apiVersion: v1\nkind: Service\nmetadata: {name: web}\n")?;
    /// assert_eq!((head.kind.as_str(), head.name.as_str()), ("Service", "web"));
    /// # Ok::<(), chart::manifest::HeadError>(())
    /// ```
    ///
    /// # Errors
    /// The document is no YAML, no table, or one of the fields has the wrong type.
    pub fn read(document: &str) -> Result<Self, HeadError> {
        let value = yaml::decode_entries(document.as_bytes(), &FIELDS).map_err(HeadError::Yaml)?;
        Self::of(&bounded(value).map_err(HeadError::TooDeep)?)
    }

    /// The head of a document that was read.
    ///
    /// ```
    /// use chart::manifest::Head;
    /// use serde_json::json;
    ///
    /// let head = Head::of(&json!({"kind": "Job", "metadata": {"annotations": {"helm.sh/hook": "test"}}}))?;
    /// assert_eq!((head.kind.as_str(), head.annotations["helm.sh/hook"].as_str()), ("Job", "test"));
    /// assert!(Head::of(&json!(["no", "table"])).is_err());
    /// # Ok::<(), chart::manifest::HeadError>(())
    /// ```
    ///
    /// # Errors
    /// It is no table, or one of the fields has the wrong type.
    pub fn of(document: &Value) -> Result<Self, HeadError> {
        let mut head = Self::default();
        let at = At::new("SimpleHead", "util.SimpleHead", "").coercing();
        at.object(document, &FIELDS, |name, at, value| match name {
            "apiVersion" => at.string(value, &mut head.api_version),
            "kind" => at.string(value, &mut head.kind),
            _ if !value.is_null() && !value.is_object() => Err(at.mismatch(value, METADATA_TYPE)),
            _ => {
                let at = at.within("", METADATA_TYPE);
                let fields = ["name", "annotations"];
                at.object(value, &fields, |name, at, value| match name {
                    "name" => at.string(value, &mut head.name),
                    _ => read_annotations(value, at, &mut head.annotations),
                })
            }
        })
        .map_err(HeadError::Type)?;
        Ok(head)
    }
}

fn read_annotations(
    value: &Value,
    at: &At<'_>,
    out: &mut BTreeMap<String, String>,
) -> Result<(), DecodeError> {
    out.clear();
    for (key, value) in at.entries(value)?.into_iter().flatten() {
        let mut text = String::new();
        at.string(value, &mut text)?;
        out.insert(key.clone(), text);
    }
    Ok(())
}
