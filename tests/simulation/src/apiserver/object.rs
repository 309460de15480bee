//! Objects as they are stored and sent.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::apply::{self, Managed};

/// An object's place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    pub group: String,
    pub plural: String,
    /// Empty for what lives in none.
    pub namespace: String,
    pub name: String,
}

impl Id {
    /// A place by its parts.
    pub fn new(group: &str, plural: &str, namespace: &str, name: &str) -> Self {
        Self {
            group: group.to_owned(),
            plural: plural.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    pub(super) fn place(&self) -> Self {
        Self {
            name: String::new(),
            ..self.clone()
        }
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (plural, namespace, name) = (&self.plural, &self.namespace, &self.name);
        write!(f, "{plural} {namespace}/{name}")
    }
}

#[derive(Clone, Debug)]
pub(super) struct Stored {
    /// The object without `managedFields`.
    pub(super) value: Arc<Value>,
    pub(super) managed: Vec<Managed>,
    /// The whole object and its metadata, as they are sent.
    pub(super) text: Bytes,
    /// Where the object's type ends in its text: items of a list have none, if their kind is built in.
    pub(super) typed: usize,
    pub(super) metadata: Bytes,
    pub(super) version: u64,
}

/// Whether two states differ in nothing but their version and generation.
pub(super) fn same(before: &Value, after: &Value) -> bool {
    let (Some(before), Some(after)) = (before.as_object(), after.as_object()) else {
        return before == after;
    };
    let is_own = |key: &str| matches!(key, "resourceVersion" | "generation");
    before.len() == after.len()
        && before.iter().all(|(key, value)| match key.as_str() {
            "metadata" => {
                let (Some(old), Some(new)) =
                    (value.as_object(), after.get(key).and_then(Value::as_object))
                else {
                    return false;
                };
                let kept = |map: &Map<String, Value>| map.keys().filter(|key| !is_own(key)).count();
                kept(old) == kept(new)
                    && old
                        .iter()
                        .filter(|(key, _)| !is_own(key))
                        .all(|(key, value)| new.get(key) == Some(value))
            }
            _ => after.get(key) == Some(value),
        })
}

/// An object with the texts it is sent as.
pub(super) fn pack(value: Arc<Value>, managed: Vec<Managed>, version: u64) -> Stored {
    let mut metadata = value["metadata"].clone();
    if !managed.is_empty() {
        metadata["managedFields"] = apply::printed(&managed);
    }
    let metadata = metadata.to_string();
    let mut text = "{".to_owned();
    for key in ["apiVersion", "kind"] {
        if let Some(value) = value.get(key) {
            text += &format!("\"{key}\":{value},");
        }
    }
    let typed = text.len();
    text += &format!("\"metadata\":{metadata}");
    for (key, value) in value.as_object().into_iter().flatten() {
        if !["apiVersion", "kind", "metadata"].contains(&key.as_str()) {
            text += &format!(",{}:{value}", Value::from(key.as_str()));
        }
    }
    text.push('}');
    let partial = format!(
        "{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{metadata}}}"
    );
    Stored {
        value,
        managed,
        text: text.into(),
        typed,
        metadata: partial.into(),
        version,
    }
}

pub(super) fn table<'v>(value: &'v mut Value, name: &str) -> &'v mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    table_in(value.as_object_mut().expect("it was made an object"), name)
}

pub(super) fn table_in<'v>(
    map: &'v mut Map<String, Value>,
    name: &str,
) -> &'v mut Map<String, Value> {
    let entry = map.entry(name).or_insert(Value::Null);
    if !entry.is_object() {
        *entry = json!({});
    }
    entry.as_object_mut().expect("it was made an object")
}

/// Labels and annotations that are empty are not stored.
pub(super) fn drop_empty(metadata: &mut Map<String, Value>) {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    metadata.retain(|_, value| !is_empty(value));
}

/// What is written as `stringData` is stored as `data`.
pub(super) fn string_data(secret: &mut Value) {
    use base64::Engine as _;
    let Some(map) = secret.as_object_mut() else {
        return;
    };
    let Some(Value::Object(plain)) = map.remove("stringData") else {
        return;
    };
    let data = table_in(map, "data");
    for (key, value) in plain {
        let text = value.as_str().unwrap_or_default();
        data.insert(
            key,
            base64::engine::general_purpose::STANDARD
                .encode(text)
                .into(),
        );
    }
}
