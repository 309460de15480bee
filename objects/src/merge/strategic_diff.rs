//! Making a strategic merge patch: the differences between two states, list elements matched by
//! their merge keys.

use serde_json::{Map, Value, json};

use super::MergeError;
use super::lists::{
    self, Elements, List, as_map, deduplicated, merge_key, sort_by_order, sorted_by_text, type_of,
};
use super::schema::{Shape, Strategy};
use crate::fields::go_text;

/// Which differences go into a patch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    additions: bool,
    deletions: bool,
    /// Say with `$retainKeys` which keys of a map remain.
    retain_keys: bool,
}

impl Part {
    pub(super) const ALL: Self = Self {
        additions: true,
        deletions: true,
        retain_keys: false,
    };
    pub(super) const ADDITIONS: Self = Self {
        additions: true,
        deletions: false,
        retain_keys: false,
    };
    pub(super) const DELETIONS: Self = Self {
        additions: false,
        deletions: true,
        retain_keys: false,
    };
}

/// The patch between two maps of shape `shape`.
pub(super) fn diff_maps(
    original: &Map<String, Value>,
    modified: &Map<String, Value>,
    shape: Shape,
    part: Part,
) -> Result<Map<String, Value>, MergeError> {
    let mut patch = Map::new();
    for (key, desired) in modified {
        let Some(present) = original.get(key) else {
            if part.additions {
                patch.insert(key.clone(), desired.clone());
            }
            continue;
        };
        if key == "$patch" {
            if !present.is_string() || !desired.is_string() {
                return Err(MergeError::DirectiveType);
            }
            if present != desired {
                patch.insert(key.clone(), desired.clone());
            }
            continue;
        }
        match (present, desired) {
            (Value::Object(present), Value::Object(desired)) => {
                diff_map_field(key, present, desired, &mut patch, shape, part)?;
            }
            (Value::Array(present), Value::Array(desired)) => {
                diff_list_field(key, present, desired, &mut patch, shape, part)?;
            }
            _ if part.additions && present != desired => {
                patch.insert(key.clone(), desired.clone());
            }
            _ => {}
        }
    }
    if part.deletions {
        for key in original.keys().filter(|key| !modified.contains_key(*key)) {
            patch.insert(key.clone(), Value::Null);
        }
    }
    if part.retain_keys {
        retain_keys(original, modified, &mut patch);
    }
    Ok(patch)
}

fn retain_keys(
    original: &Map<String, Value>,
    modified: &Map<String, Value>,
    patch: &mut Map<String, Value>,
) {
    let kept: List = modified
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, _)| Value::String(key.clone()))
        .collect();
    let is_dropped =
        |(key, value): (&String, &Value)| !value.is_null() && !modified.contains_key(key);
    if !kept.is_empty() && (!patch.is_empty() || original.iter().any(is_dropped)) {
        patch.insert("$retainKeys".to_owned(), Value::Array(kept));
    }
}

fn diff_map_field(
    key: &str,
    present: &Map<String, Value>,
    desired: &Map<String, Value>,
    patch: &mut Map<String, Value>,
    shape: Shape,
    part: Part,
) -> Result<(), MergeError> {
    let (field, strategy) = match shape.field(key) {
        Ok(found) => found,
        // A map that has not changed may stand under a field that the type lacks.
        Err(_) if present == desired => return Ok(()),
        Err(error) => return Err(error),
    };
    if strategy.kind == "replace" {
        if part.additions {
            patch.insert(key.to_owned(), Value::Object(desired.clone()));
        }
        return Ok(());
    }
    let part = Part {
        retain_keys: strategy.retain_keys,
        ..part
    };
    let found = diff_maps(present, desired, field, part)?;
    if !found.is_empty() {
        patch.insert(key.to_owned(), Value::Object(found));
    }
    Ok(())
}

fn diff_list_field(
    key: &str,
    present: &[Value],
    desired: &[Value],
    patch: &mut Map<String, Value>,
    shape: Shape,
    part: Part,
) -> Result<(), MergeError> {
    let (element, strategy) = match shape.list_field(key) {
        Ok(found) => found,
        Err(_) if present == desired => return Ok(()),
        Err(error) => return Err(error),
    };
    if strategy.kind != "merge" {
        if part.additions && present != desired {
            patch.insert(key.to_owned(), Value::Array(desired.to_vec()));
        }
        return Ok(());
    }
    let part = Part {
        retain_keys: strategy.retain_keys,
        ..part
    };
    let found = diff_lists(present, desired, element, strategy, part)?;
    for (key, list) in [
        (key.to_owned(), found.changes),
        (format!("$deleteFromPrimitiveList/{key}"), found.deletions),
        (format!("$setElementOrder/{key}"), found.order),
    ] {
        if !list.is_empty() {
            patch.insert(key, Value::Array(list));
        }
    }
    Ok(())
}

#[derive(Default)]
struct ListDiff {
    changes: List,
    /// Scalars to take out.
    deletions: List,
    order: List,
}

fn diff_lists(
    original: &[Value],
    modified: &[Value],
    shape: Shape,
    strategy: Strategy,
    part: Part,
) -> Result<ListDiff, MergeError> {
    if original.is_empty() {
        let changes = if part.additions {
            modified.to_vec()
        } else {
            List::new()
        };
        return Ok(ListDiff {
            changes,
            ..ListDiff::default()
        });
    }
    match lists::elements(&[original, modified])? {
        Elements::Maps => {
            let key = strategy.merge_key;
            let (changes, deletions) = diff_lists_of_maps(original, modified, shape, key, part)?;
            let mut changes = sort_by_order(changes, modified, key, Elements::Maps)?;
            let same_order = is_same_order(original, modified, key)?;
            changes.extend(deletions);
            let is_ordered = (part.additions && (!changes.is_empty() || !same_order))
                || (part.deletions && !changes.is_empty());
            let order = match is_ordered {
                true => modified
                    .iter()
                    .map(|item| json!({ key: item.get(key).cloned().unwrap_or(Value::Null) }))
                    .collect(),
                false => List::new(),
            };
            Ok(ListDiff {
                changes,
                deletions: List::new(),
                order,
            })
        }
        Elements::Scalars => {
            let (additions, deletions) = diff_lists_of_scalars(original, modified, part);
            let changes = sort_by_order(additions, modified, "", Elements::Scalars)?;
            let is_ordered = (part.deletions && !deletions.is_empty())
                || (part.additions && original != modified);
            let order = if is_ordered {
                modified.to_vec()
            } else {
                List::new()
            };
            Ok(ListDiff {
                changes,
                deletions,
                order,
            })
        }
    }
}

fn is_same_order(original: &[Value], modified: &[Value], key: &str) -> Result<bool, MergeError> {
    if original.len() != modified.len() {
        return Ok(false);
    }
    for (left, right) in original.iter().zip(modified) {
        let is_equal = match key {
            "" => left == right,
            key => merge_key(left, key)? == merge_key(right, key)?,
        };
        if !is_equal {
            return Ok(false);
        }
    }
    Ok(true)
}

fn diff_lists_of_scalars(original: &[Value], modified: &[Value], part: Part) -> (List, List) {
    let (original, modified) = (
        sorted_by_text(original, go_text),
        sorted_by_text(modified, go_text),
    );
    let (mut additions, mut deletions) = (List::new(), List::new());
    let mut original = original.into_iter().map(|v| (go_text(&v), v)).peekable();
    let mut modified = modified.into_iter().map(|v| (go_text(&v), v)).peekable();
    loop {
        let order = match (original.peek(), modified.peek()) {
            (None, None) => break,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(_), None) => std::cmp::Ordering::Less,
            (Some(left), Some(right)) => left.0.cmp(&right.0),
        };
        if order.is_le() {
            let gone = original.next().filter(|_| order.is_lt() && part.deletions);
            deletions.extend(gone.map(|(_, value)| value));
        }
        if order.is_ge() {
            let new = modified.next().filter(|_| order.is_gt() && part.additions);
            additions.extend(new.map(|(_, value)| value));
        }
    }
    (additions, deduplicated(deletions))
}

fn diff_lists_of_maps(
    original: &[Value],
    modified: &[Value],
    shape: Shape,
    key: &str,
    part: Part,
) -> Result<(List, List), MergeError> {
    let key_text = |value: &Value| go_text(value.get(key).unwrap_or(&Value::Null));
    let (original, modified) = (
        sorted_by_text(original, key_text),
        sorted_by_text(modified, key_text),
    );
    let (mut changes, mut deletions) = (List::new(), List::new());
    let (mut original, mut modified) = (original.iter().peekable(), modified.iter().peekable());
    loop {
        let text = |value: &Value| merge_key(value, key).map(go_text);
        let order = match (original.peek(), modified.peek()) {
            (None, None) => return Ok((changes, deletions)),
            (None, Some(right)) => {
                text(right)?;
                std::cmp::Ordering::Greater
            }
            (Some(left), None) => {
                text(left)?;
                std::cmp::Ordering::Less
            }
            (Some(left), Some(right)) => text(left)?.cmp(&text(right)?),
        };
        let left = if order.is_le() { original.next() } else { None };
        let right = if order.is_ge() { modified.next() } else { None };
        match (left, right) {
            (Some(left), Some(right)) => {
                let mut found = diff_maps(as_map(left)?, as_map(right)?, shape, part)?;
                if !found.is_empty() {
                    found.insert(key.to_owned(), merge_key(right, key)?.clone());
                    changes.push(Value::Object(found));
                }
            }
            (None, Some(right)) if part.additions => changes.push(right.clone()),
            (Some(left), None) if part.deletions => {
                let value = merge_key(left, key)?;
                deletions.push(json!({ key: value, "$patch": "delete" }));
            }
            _ => {}
        }
        debug_assert!(left.is_none_or(|l| type_of(l) == "map[string]interface {}"));
    }
}
