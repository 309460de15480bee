//! From YAML text to objects, as Fleet reads them (`wrangler/pkg/yaml.ToObjects`).

use golib::budget::Budget;
use golib::yaml;
use golib::yaml::node::{self, Kind, Node};
use serde_json::{Map, Value};

/// Why a text holds no objects.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    /// Not YAML.
    #[error("{0}")]
    Yaml(#[source] yaml::Error),
    /// Not YAML, read as kustomize reads it.
    #[error("{0}")]
    Node(#[source] node::Error),
    /// A line of dashes with something behind them.
    #[error("invalid Yaml document separator")]
    Separator,
    /// A list or a scalar.
    #[error("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}")]
    NotAnObject {
        /// JSON type of what was found.
        found: &'static str,
    },
    /// An object without `kind`. Fleet quotes the whole object, which may be a secret; we do not.
    #[error("Object 'Kind' is missing")]
    NoKind,
}

/// The objects of one document, which may take so much; a list's items instead of the list.
///
/// # Errors
/// When the document is neither empty nor an object with a kind.
pub(super) fn of_document(document: &[u8], budget: &mut Budget) -> Result<Objects, ObjectsError> {
    let value = yaml::Decoder::new().decode(document, budget);
    of_value(value.map_err(ObjectsError::Yaml)?)
}

/// [`of_document`] of what a document says.
///
/// # Errors
/// As [`of_document`].
pub(super) fn of_value(document: Value) -> Result<Objects, ObjectsError> {
    let found = match document {
        Value::Object(map) if map.is_empty() => return Ok(Objects::default()),
        Value::Null => return Ok(Objects::default()),
        Value::Object(map) => return of_map(map),
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
    };
    Err(ObjectsError::NotAnObject { found })
}

/// Whether a document that is not empty holds an object with a kind, as [`of_value`] wants it.
///
/// # Errors
/// It does not.
pub(super) fn of_kind(document: &Node) -> Result<(), ObjectsError> {
    let found = match (document.kind, document.short_tag()) {
        (Kind::Mapping, _) => {
            let mut entries = document.entries();
            let has_kind = entries.any(|(key, value)| {
                key.value == "kind" && value.kind == Kind::Scalar && !value.value.is_empty()
            });
            return if has_kind {
                Ok(())
            } else {
                Err(ObjectsError::NoKind)
            };
        }
        (Kind::Sequence, _) => "array",
        (Kind::Scalar, node::tag::BOOL) => "bool",
        (Kind::Scalar, node::tag::INT | node::tag::FLOAT) => "number",
        (Kind::Scalar, _) => "string",
    };
    Err(ObjectsError::NotAnObject { found })
}

/// What a document holds.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) items: Vec<Map<String, Value>>,
    /// The objects were the items of a list.
    pub(super) flattened: bool,
}

fn of_map(mut map: Map<String, Value>) -> Result<Objects, ObjectsError> {
    let kind = text(&map, "kind").to_owned();
    if kind.is_empty() {
        return Err(ObjectsError::NoKind);
    }
    let Some(items) = map.remove("items") else {
        return Ok(Objects {
            items: vec![map],
            flattened: false,
        });
    };
    let api_version = text(&map, "apiVersion");
    let item_kind = kind.strip_suffix("List").unwrap_or(&kind);
    let items = match items {
        Value::Null => Vec::new(),
        Value::Array(items) => items,
        _ => {
            return Err(ObjectsError::NotAnObject {
                found: "list without items",
            });
        }
    };
    let items = items.into_iter().map(|item| match item {
        Value::Object(mut item) => {
            // Items of a typed list inherit what the list says of them.
            if text(&item, "kind").is_empty() && text(&item, "apiVersion").is_empty() {
                item.insert("kind".into(), item_kind.into());
                item.insert("apiVersion".into(), api_version.into());
            }
            Ok(item)
        }
        _ => Err(ObjectsError::NotAnObject { found: "list item" }),
    });
    Ok(Objects {
        items: items.collect::<Result<_, _>>()?,
        flattened: true,
    })
}

pub(super) fn text<'a>(object: &'a Map<String, Value>, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_flattened() {
        let list = "apiVersion: v1\nkind: ConfigMapList\nitems:\n- metadata: {name: a}\n- {kind: Secret, metadata: {name: b}}\n";
        let objects = of_document(list.as_bytes(), &mut Budget::default()).unwrap();
        assert!(objects.flattened);
        assert_eq!(text(&objects.items[0], "kind"), "ConfigMap");
        assert_eq!(text(&objects.items[0], "apiVersion"), "v1");
        assert_eq!(text(&objects.items[1], "kind"), "Secret");
        assert_eq!(text(&objects.items[1], "apiVersion"), "");
    }

    #[test]
    fn a_document_that_is_no_object_is_refused_without_quoting() {
        assert!(
            of_document(b"# nothing\n", &mut Budget::default())
                .unwrap()
                .items
                .is_empty()
        );
        assert!(
            of_document(b"{}", &mut Budget::default())
                .unwrap()
                .items
                .is_empty()
        );
        for text in [
            "[secret]",
            "secret",
            "{data: secret}",
            "{kind: List, items: secret}",
        ] {
            let error = of_document(text.as_bytes(), &mut Budget::default())
                .unwrap_err()
                .to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn flow_style_is_yaml_too() {
        let objects = of_document(
            b"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}",
            &mut Budget::default(),
        )
        .unwrap();
        assert_eq!(text(&objects.items[0], "kind"), "ConfigMap");
    }
}
