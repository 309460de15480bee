//! Applying a strategic merge patch.

use std::collections::BTreeSet;

use golib::json::{go_text, go_type};
use serde_json::{Map, Value};

use super::MergeError;
use super::lists::{
    self, Elements, List, arrange, as_map, deduplicated, find, merge_key, partition,
};
use super::schema::{Shape, Strategy};
use super::work::Work;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";

/// `original` with `patch` applied.
pub(super) fn apply(
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
    shape: Shape,
    work: &mut Work,
) -> Result<Map<String, Value>, MergeError> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Map::new()),
            _ => Err(MergeError::unknown_directive(directive, &patch)),
        };
    }
    apply_retain_keys(&mut original, &mut patch)?;
    apply_element_orders(&mut original, &mut patch, shape, work)?;

    for (key, mut desired) in patch {
        let is_delete_list = key.starts_with(DELETE_FROM_LIST);
        let key = match is_delete_list {
            true => directive_field(&key, DELETE_FROM_LIST)?.to_owned(),
            false => key,
        };
        if desired.is_null() {
            original.remove(&key);
            continue;
        }
        let present = match original.remove(&key) {
            Some(present) if go_type(&present) == go_type(&desired) => present,
            other => {
                // An absent value, or one of another type, is replaced.
                if is_delete_list {
                    original.extend(other.map(|other| (key, other)));
                } else {
                    discard_nulls(&mut desired);
                    original.extend(without_directives(desired).map(|value| (key, value)));
                }
                continue;
            }
        };
        let merged = match (present, desired) {
            (Value::Object(present), Value::Object(desired)) => {
                let (field, strategy) = shape.field(&key)?;
                Some(Value::Object(match strategy.kind {
                    "replace" => desired,
                    _ => apply(present, desired, field, work)?,
                }))
            }
            (Value::Array(present), Value::Array(desired)) => {
                let (field, strategy) = shape.list_field(&key)?;
                let merged =
                    merge_list_field(present, desired, field, strategy, is_delete_list, work)?;
                Some(Value::Array(merged))
            }
            (_, desired) => without_directives(desired),
        };
        original.extend(merged.map(|merged| (key, merged)));
    }
    Ok(original)
}

/// The field that `$directive/field` is about.
fn directive_field<'a>(key: &'a str, directive: &'static str) -> Result<&'a str, MergeError> {
    match key.split_once('/') {
        Some((prefix, field)) if prefix == directive => Ok(field),
        _ if directive == DELETE_FROM_LIST => Err(MergeError::BadDirective("primitive list")),
        _ => Err(MergeError::BadDirective("setElementOrder list")),
    }
}

fn apply_retain_keys(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Result<(), MergeError> {
    let Some(retained) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let malformed = MergeError::BadDirective("retainKeys");
    let Value::Array(retained) = retained else {
        return Err(malformed);
    };
    let retained: BTreeSet<&str> = retained.iter().filter_map(Value::as_str).collect();
    let is_kept = |(key, value): (&String, &Value)| {
        value.is_null()
            || key.starts_with(DELETE_FROM_LIST)
            || key.starts_with(SET_ELEMENT_ORDER)
            || retained.contains(key.as_str())
    };
    if !patch.iter().all(is_kept) {
        return Err(malformed);
    }
    original.retain(|key, _| retained.contains(key.as_str()));
    Ok(())
}

/// Merges the lists whose order the patch states, and takes them out of the patch.
fn apply_element_orders(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    shape: Shape,
    work: &mut Work,
) -> Result<(), MergeError> {
    let keys: Vec<String> = patch
        .keys()
        .filter(|key| key.starts_with(SET_ELEMENT_ORDER))
        .cloned()
        .collect();
    for key in keys {
        let Some(order) = patch.remove(&key) else {
            continue;
        };
        let Value::Array(order) = order else {
            return Err(MergeError::expected_list(&order));
        };
        let field = directive_field(&key, SET_ELEMENT_ORDER)?;
        let (present, desired) = (list_of(original, field)?, list_of(patch, field)?);
        let of_patch = desired.map_or(&[][..], Vec::as_slice);
        let (element, strategy) = shape.list_field(field)?;
        check_order(of_patch, &order, strategy.merge_key)?;
        let mut server_order: Vec<&Value> = present.into_iter().flatten().collect();
        let merged = match (present, desired) {
            (None, None) => continue,
            (Some(present), None) => present.clone(),
            (None, Some(desired)) => match without_directives(Value::Array(desired.clone())) {
                Some(Value::Array(desired)) => desired,
                _ => continue,
            },
            (Some(present), Some(desired)) => {
                leave_order(&mut server_order, desired, strategy.merge_key, work)?;
                let (present, desired) = (present.clone(), desired.clone());
                merge_list_field(present, desired, element, strategy, false, work)?
            }
        };
        let (in_patch, server_only) = partition(merged, &order, strategy.merge_key)?;
        let elements = lists::elements(&server_order, of_patch)?;
        let arranged = arrange(
            in_patch,
            server_only,
            &order,
            &server_order,
            strategy.merge_key,
            elements,
            work,
        )?;
        original.insert(field.to_owned(), Value::Array(arranged));
        patch.remove(field);
    }
    Ok(())
}

fn list_of<'a>(map: &'a Map<String, Value>, field: &str) -> Result<Option<&'a List>, MergeError> {
    match map.get(field) {
        None => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list)),
        Some(other) => Err(MergeError::expected_list(other)),
    }
}

/// The elements of a patch must stand in the order that it states.
fn check_order(patch: &[Value], order: &[Value], key: &str) -> Result<(), MergeError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut remaining = Vec::with_capacity(patch.len());
    for element in patch {
        if key.is_empty() {
            remaining.push(element);
            continue;
        }
        as_map(element)?;
        if !lists::is_deletion(element) {
            remaining.push(element);
        }
    }
    let mut order_left = order.iter().peekable();
    let mut patch_left = remaining.into_iter().peekable();
    while let Some(element) = patch_left.peek() {
        let Some(desired) = order_left.peek().copied() else {
            let text = |list: &[Value]| go_text(&Value::Array(list.to_vec()));
            return Err(MergeError::Order {
                patch: text(patch),
                order: text(order),
            });
        };
        if element.get(DIRECTIVE).is_some() {
            patch_left.next();
            continue;
        }
        order_left.next();
        let is_equal = match key {
            "" => *element == desired,
            key => merge_key(element, key)? == merge_key(desired, key)?,
        };
        if is_equal {
            patch_left.next();
        }
    }
    Ok(())
}

fn merge_list_field(
    original: List,
    patch: List,
    shape: Shape,
    strategy: Strategy,
    is_delete_list: bool,
    work: &mut Work,
) -> Result<List, MergeError> {
    if strategy.kind != "merge" && !is_delete_list {
        return Ok(patch);
    }
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    let key = strategy.merge_key;
    let elements = lists::elements(&original, &patch)?;
    if elements == Elements::Scalars && is_delete_list {
        return Ok(lists::without(original, &patch));
    }
    let (merged, patch, original) = match elements {
        Elements::Scalars => {
            let both = original.iter().chain(&patch).cloned().collect();
            (deduplicated(both), patch, original)
        }
        Elements::Maps if key.is_empty() => {
            return Err(MergeError::ListWithoutKey(shape.go_kind()));
        }
        Elements::Maps => {
            let (original, patch) = apply_list_directives(original, patch, key, work)?;
            let merged = merge_maps_by_key(original.clone(), patch.clone(), key, shape, work)?;
            (merged, patch, original)
        }
    };
    let (in_patch, server_only) = partition(merged, &patch, key)?;
    arrange(
        in_patch,
        server_only,
        &patch,
        &original,
        key,
        elements,
        work,
    )
}

/// Makes of the server's list what Go's code sees of it after it was merged: deletions shift its array in place and additions fill the
/// room that they leave. What is left over at the end is repeated as often as there were deletions, and so is borrowed.
fn leave_order<'a>(
    order: &mut [&'a Value],
    patch: &'a [Value],
    key: &str,
    work: &mut Work,
) -> Result<(), MergeError> {
    if key.is_empty() || !patch.iter().all(Value::is_object) {
        return Ok(());
    }
    let mut remaining = order.len();
    for element in patch.iter().filter(|element| lists::is_deletion(element)) {
        let Some(value) = element.get(key) else {
            continue;
        };
        while let Some(index) = find(&order[..remaining], key, value, work)? {
            work.shift(remaining - index)?;
            order.copy_within(index + 1..remaining, index);
            remaining -= 1;
        }
    }
    if patch
        .iter()
        .any(|element| element.get(DIRECTIVE).is_some_and(|d| d == "replace"))
    {
        return Ok(());
    }
    for element in patch
        .iter()
        .filter(|element| element.get(DIRECTIVE).is_none())
    {
        let Some(value) = element.get(key) else {
            continue;
        };
        if find(&order[..remaining], key, value, work)?.is_none() && remaining < order.len() {
            order[remaining] = element;
            remaining += 1;
        }
    }
    Ok(())
}

/// Carries out the `$patch` elements of a list: what remains of both sides.
fn apply_list_directives(
    mut original: List,
    patch: List,
    key: &str,
    work: &mut Work,
) -> Result<(List, List), MergeError> {
    let mut remaining = Vec::with_capacity(patch.len());
    let mut is_replaced = false;
    for element in patch {
        let map = as_map(&element)?;
        let Some(directive) = map.get(DIRECTIVE) else {
            remaining.push(element);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let value = merge_key(&element, key)?;
                while let Some(index) = find(&original, key, value, work)? {
                    work.shift(original.len() - index)?;
                    original.remove(index);
                }
            }
            Some("replace") => is_replaced = true,
            Some("merge") => return Err(MergeError::MergeDirective),
            _ => return Err(MergeError::unknown_directive(directive, map)),
        }
    }
    Ok(if is_replaced {
        (remaining, List::new())
    } else {
        (original, remaining)
    })
}

fn merge_maps_by_key(
    mut original: List,
    patch: List,
    key: &str,
    shape: Shape,
    work: &mut Work,
) -> Result<List, MergeError> {
    for element in patch {
        let found = find(&original, key, merge_key(&element, key)?, work)?;
        match (found, element) {
            (Some(index), Value::Object(desired)) => {
                let present = match std::mem::take(&mut original[index]) {
                    Value::Object(present) => present,
                    _ => Map::new(),
                };
                original[index] = Value::Object(apply(present, desired, shape, work)?);
            }
            (_, element) => original.push(element),
        }
    }
    Ok(original)
}

/// Nulls vanish from maps at any depth.
fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(discard_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// The value without maps that hold a directive; `None` where it is one itself.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => Some(Value::Object(
            map.into_iter()
                .filter_map(|(key, value)| Some((key, without_directives(value)?)))
                .collect(),
        )),
        Value::Array(list) => Some(Value::Array(
            list.into_iter().filter_map(without_directives).collect(),
        )),
        other => Some(other),
    }
}
