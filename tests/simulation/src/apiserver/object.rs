//! Objects as they are stored and sent.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::apply::Managed;

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

    /// Whether it is of a collection: the place of a kind, or of a kind in a namespace.
    pub(crate) fn is_in(&self, place: &Self) -> bool {
        self.plural == place.plural
            && self.group == place.group
            && (place.namespace.is_empty() || place.namespace == self.namespace)
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

#[derive(Debug)]
pub(super) struct Stored {
    /// The object without `managedFields`.
    pub(super) value: Arc<Value>,
    pub(super) managed: Vec<Managed>,
    pub(super) version: u64,
    /// The whole object as it is sent, once it was asked for, and where its type ends in it.
    text: OnceLock<(Bytes, usize)>,
    /// Its metadata as they are sent.
    metadata: OnceLock<Bytes>,
}

impl Stored {
    pub(super) fn new(value: Arc<Value>, managed: Vec<Managed>, version: u64) -> Arc<Self> {
        Arc::new(Self {
            value,
            managed,
            version,
            text: OnceLock::new(),
            metadata: OnceLock::new(),
        })
    }

    /// The whole object.
    pub(super) fn text(&self) -> &Bytes {
        &self.whole().0
    }

    /// The object as an item of a list, which has no type if its kind is built in.
    pub(super) fn push_untyped(&self, text: &mut Vec<u8>) {
        let (whole, typed) = self.whole();
        text.push(b'{');
        text.extend_from_slice(&whole[*typed..]);
    }

    fn whole(&self) -> &(Bytes, usize) {
        self.text.get_or_init(|| {
            let mut text = "{".to_owned();
            for key in ["apiVersion", "kind"] {
                if let Some(value) = self.value.get(key) {
                    push(&mut text, format_args!("\"{key}\":{value},"));
                }
            }
            let typed = text.len();
            text += "\"metadata\":";
            self.push_metadata(&mut text);
            for (key, value) in self.value.as_object().into_iter().flatten() {
                if !["apiVersion", "kind", "metadata"].contains(&key.as_str()) {
                    push(
                        &mut text,
                        format_args!(",{}:{value}", Value::from(key.as_str())),
                    );
                }
            }
            text.push('}');
            (text.into(), typed)
        })
    }

    /// Its metadata alone.
    pub(super) fn metadata(&self) -> &Bytes {
        self.metadata.get_or_init(|| {
            let mut text =
                "{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":"
                    .to_owned();
            self.push_metadata(&mut text);
            text.push('}');
            text.into()
        })
    }

    fn push_metadata(&self, text: &mut String) {
        push(text, format_args!("{}", self.value["metadata"]));
        if !self.managed.is_empty() && text.pop() == Some('}') {
            let managed = serde_json::to_string(&self.managed).expect("texts can be printed");
            push(text, format_args!(",\"managedFields\":{managed}}}"));
        }
    }
}

fn push(text: &mut String, more: std::fmt::Arguments<'_>) {
    std::fmt::Write::write_fmt(text, more).expect("a String takes everything");
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

/// Whether somebody has deleted it, and a finalizer keeps it.
pub(crate) fn is_leaving(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}
