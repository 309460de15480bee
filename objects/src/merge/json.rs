//! JSON merge patches (RFC 7396) as Go's `evanphx/json-patch` makes and applies them.

use serde_json::{Map, Value};

/// The smallest merge patch from `original` to `modified`; `None` where they are equal.
///
/// Lists are replaced as a whole. A null in `modified` is written as it is and so deletes.
///
/// ```
/// use objects::merge::json::{create, merge};
/// use serde_json::json;
///
/// let (before, after) = (json!({"a": 1, "b": [1]}), json!({"b": [1, 2]}));
/// let patch = create(&before, &after).unwrap();
/// assert_eq!(patch, json!({"a": null, "b": [1, 2]}));
/// assert_eq!(merge(before, &patch), after);
/// assert_eq!(create(&after, &after), None);
/// ```
pub fn create(original: &Value, modified: &Value) -> Option<Value> {
    let (Value::Object(original), Value::Object(modified)) = (original, modified) else {
        return (!is_equal(original, modified)).then(|| modified.clone());
    };
    let mut patch = Map::new();
    for key in original.keys().filter(|key| !modified.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, desired) in modified {
        let change = match original.get(key) {
            Some(present) => create(present, desired),
            None => Some(desired.clone()),
        };
        patch.extend(change.map(|change| (key.clone(), change)));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Go compares decoded values, in which every number is a float.
pub(crate) fn is_equal(left: &Value, right: &Value) -> bool {
    golib::json::equal(left, right, |left, right| left.as_f64() == right.as_f64())
}

/// The part of [`create`]'s patch that removes: null for every field that only `original` has.
pub fn removal(original: &Value, modified: &Value) -> Value {
    let mut patch = Map::new();
    if let (Value::Object(original), Value::Object(modified)) = (original, modified) {
        for (key, old) in original {
            match modified.get(key) {
                None => {
                    patch.insert(key.clone(), Value::Null);
                }
                Some(new) => match removal(old, new) {
                    Value::Object(inner) if inner.is_empty() => {}
                    inner => {
                        patch.insert(key.clone(), inner);
                    }
                },
            }
        }
    }
    Value::Object(patch)
}

/// `document` with a merge patch applied.
pub fn merge(document: Value, patch: &Value) -> Value {
    match (document, patch) {
        (Value::Object(mut document), Value::Object(patch)) => {
            for (key, desired) in patch {
                match (document.remove(key), desired) {
                    (_, Value::Null) => {}
                    (None | Some(Value::Null), desired) => {
                        document.insert(key.clone(), without_nulls(desired.clone()));
                    }
                    (Some(present), desired) => {
                        document.insert(key.clone(), merge(present, desired));
                    }
                }
            }
            Value::Object(document)
        }
        (Value::Object(_), other) => other.clone(),
        (_, patch) => without_nulls(patch.clone()),
    }
}

/// Nulls of maps vanish at any depth; list elements that are null stay.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key, without_nulls(value)))
                .collect(),
        ),
        Value::Array(list) => Value::Array(list.into_iter().map(without_nulls).collect()),
        other => other,
    }
}
