//! Making the strategic merge patch that removes: what one state has and the next one has not, list
//! elements matched by their merge keys. Changes and additions are not in it: the server applies those.

use std::cmp::Ordering;

use golib::json::go_text;
use serde_json::{Map, Value, json};

use super::MergeError;
use super::lists::{
    self, Elements, List, as_map, deduplicated, merge_key, sort_by_order, sorted_by_text,
};
use super::schema::{Shape, Strategy};
use super::work::Work;

/// The patch between two maps of shape `shape`; with `retain_keys` it says which keys remain, once
/// there is anything to remove.
pub(super) fn in_map(
    original: &Map<String, Value>,
    modified: &Map<String, Value>,
    shape: Shape,
    retain_keys: bool,
) -> Result<Map<String, Value>, MergeError> {
    let mut patch = Map::new();
    for (key, present) in original {
        match (present, modified.get(key)) {
            (_, None) => {
                patch.insert(key.clone(), Value::Null);
            }
            (present, Some(desired)) if key == "$patch" => {
                if !present.is_string() || !desired.is_string() {
                    return Err(MergeError::DirectiveType);
                }
                if present != desired {
                    patch.insert(key.clone(), desired.clone());
                }
            }
            (Value::Object(present), Some(Value::Object(desired))) => {
                let (field, strategy) = match shape.field(key) {
                    Ok(found) => found,
                    // A map that has not changed may stand under a field that the type lacks.
                    Err(_) if present == desired => continue,
                    Err(error) => return Err(error),
                };
                if strategy.kind != "replace" {
                    let found = in_map(present, desired, field, strategy.retain_keys)?;
                    if !found.is_empty() {
                        patch.insert(key.clone(), Value::Object(found));
                    }
                }
            }
            (Value::Array(present), Some(Value::Array(desired))) => {
                let (element, strategy) = match shape.list_field(key) {
                    Ok(found) => found,
                    Err(_) if present == desired => continue,
                    Err(error) => return Err(error),
                };
                if strategy.kind == "merge" && !present.is_empty() {
                    in_list(key, present, desired, element, strategy, &mut patch)?;
                }
            }
            _ => {}
        }
    }
    if retain_keys {
        let kept: List = modified
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, _)| Value::String(key.clone()))
            .collect();
        if !kept.is_empty() && !patch.is_empty() {
            patch.insert("$retainKeys".to_owned(), Value::Array(kept));
        }
    }
    Ok(patch)
}

fn in_list(
    field: &str,
    original: &[Value],
    modified: &[Value],
    shape: Shape,
    strategy: Strategy,
    patch: &mut Map<String, Value>,
) -> Result<(), MergeError> {
    let (key, removed, order): (_, _, List) = match lists::elements(original, modified)? {
        Elements::Maps => {
            let key = strategy.merge_key;
            let removed = from_list_of_maps(original, modified, shape, strategy)?;
            let name = |item: &Value| json!({ key: item.get(key).cloned().unwrap_or(Value::Null) });
            (
                field.to_owned(),
                removed,
                modified.iter().map(name).collect(),
            )
        }
        Elements::Scalars => (
            format!("$deleteFromPrimitiveList/{field}"),
            from_list_of_scalars(original, modified),
            modified.to_vec(),
        ),
    };
    if !removed.is_empty() {
        patch.insert(key, Value::Array(removed));
        if !order.is_empty() {
            patch.insert(format!("$setElementOrder/{field}"), Value::Array(order));
        }
    }
    Ok(())
}

fn from_list_of_scalars(original: &[Value], modified: &[Value]) -> List {
    let mut modified = sorted_by_text(modified, go_text)
        .iter()
        .map(go_text)
        .collect::<Vec<_>>()
        .into_iter()
        .peekable();
    let mut removed = List::new();
    for value in sorted_by_text(original, go_text) {
        let text = go_text(&value);
        while modified.next_if(|other| *other < text).is_some() {}
        if modified.next_if_eq(&text).is_none() {
            removed.push(value);
        }
    }
    deduplicated(removed)
}

/// Elements that go, behind those that stay and lose something.
fn from_list_of_maps(
    original: &[Value],
    modified: &[Value],
    shape: Shape,
    strategy: Strategy,
) -> Result<List, MergeError> {
    let key = strategy.merge_key;
    let key_text = |value: &Value| go_text(value.get(key).unwrap_or(&Value::Null));
    let (sorted_original, sorted_modified) = (
        sorted_by_text(original, key_text),
        sorted_by_text(modified, key_text),
    );
    let text = |value: &Value| merge_key(value, key).map(go_text);
    let (mut changes, mut deletions) = (List::new(), List::new());
    let (mut left, mut right) = (
        sorted_original.iter().peekable(),
        sorted_modified.iter().peekable(),
    );
    loop {
        let order = match (left.peek(), right.peek()) {
            (None, None) => break,
            (None, Some(desired)) => text(desired).map(|_| Ordering::Greater)?,
            (Some(present), None) => text(present).map(|_| Ordering::Less)?,
            (Some(present), Some(desired)) => text(present)?.cmp(&text(desired)?),
        };
        let present = if order.is_le() { left.next() } else { None };
        let desired = if order.is_ge() { right.next() } else { None };
        match (present, desired) {
            (Some(present), Some(desired)) => {
                let retain_keys = strategy.retain_keys;
                let mut found = in_map(as_map(present)?, as_map(desired)?, shape, retain_keys)?;
                if !found.is_empty() {
                    found.insert(key.to_owned(), merge_key(desired, key)?.clone());
                    changes.push(Value::Object(found));
                }
            }
            (Some(present), None) => {
                let value = merge_key(present, key)?;
                deletions.push(json!({ key: value, "$patch": "delete" }));
            }
            (None, _) => {}
        }
    }
    let mut removed = sort_by_order(
        changes,
        modified,
        key,
        Elements::Maps,
        &mut Work::unbounded(),
    )?;
    removed.extend(deletions);
    Ok(removed)
}
