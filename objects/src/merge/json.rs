//! JSON merge patches (RFC 7396) as Go's `evanphx/json-patch` makes and applies them.

use serde_json::{Map, Value};

use super::MergeError;
use crate::fields::go_text;

/// The smallest merge patch from `original` to `modified`; `None` where they are equal.
///
/// Lists are replaced as a whole. A null in `modified` is written as it is and so deletes.
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
fn is_equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(l, r)| is_equal(l, r))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(key, l)| right.get(key).is_some_and(|r| is_equal(l, r)))
        }
        _ => left == right,
    }
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

/// The merge patch that brings `live` from `original` to `modified`: additions and changes against
/// `live`, deletions against `original`; apimachinery's `CreateThreeWayJSONMergePatch`.
///
/// # Errors
/// The patch would change apiVersion, kind or name.
pub fn three_way(original: &Value, modified: &Value, live: &Value) -> Result<Value, MergeError> {
    let changed = |from| match create(from, modified) {
        Some(Value::Object(patch)) => patch,
        _ => Map::new(),
    };
    let additions = keep(changed(live), Keep::Values);
    let deletions = keep(changed(original), Keep::Nulls);
    let patch = rounded(merge(Value::Object(deletions), &Value::Object(additions)));
    let is_changed = patch.get("apiVersion").is_some()
        || patch.get("kind").is_some()
        || patch
            .get("metadata")
            .is_some_and(|metadata| metadata.get("name").is_some());
    match is_changed {
        true => Err(MergeError::Precondition(go_text(&patch))),
        false => Ok(patch),
    }
}

/// Go computes this patch on floats: integers beyond 2^53 lose digits.
fn rounded(value: Value) -> Value {
    match value {
        Value::Number(number) => match number.as_i64() {
            Some(integer) => Value::from(integer as f64 as i64),
            None => Value::Number(number),
        },
        Value::Array(list) => Value::Array(list.into_iter().map(rounded).collect()),
        Value::Object(map) => Value::Object(
            map.into_iter()
                .map(|(key, value)| (key, rounded(value)))
                .collect(),
        ),
        other => other,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    Nulls,
    Values,
}

fn keep(map: Map<String, Value>, part: Keep) -> Map<String, Value> {
    map.into_iter()
        .filter_map(|(key, value)| {
            let kept = match value {
                Value::Null => (part == Keep::Nulls).then_some(Value::Null),
                // An empty map is a value, not an empty patch.
                Value::Object(map) if map.is_empty() => {
                    (part == Keep::Values).then_some(Value::Object(map))
                }
                Value::Object(map) => {
                    let map = keep(map, part);
                    (!map.is_empty()).then_some(Value::Object(map))
                }
                other => (part == Keep::Values).then_some(other),
            };
            Some((key, kept?))
        })
        .collect()
}
