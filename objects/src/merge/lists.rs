//! Order and identity of list elements in strategic merges.

use golib::json::{go_text, go_type};
use serde_json::{Map, Value};

use super::MergeError;

pub(super) type List = Vec<Value>;

/// The kind of all elements of some lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Elements {
    Maps,
    Scalars,
}

/// What the elements of `lists` are.
///
/// # Errors
/// There are none, they differ in type, or they are lists.
pub(super) fn elements(lists: &[&[Value]]) -> Result<Elements, MergeError> {
    let mut all = lists.iter().copied().flatten();
    let first = all.next().ok_or(MergeError::EmptyLists)?;
    if first.is_array() {
        return Err(MergeError::ListOfLists);
    }
    if !all.all(|value| go_type(value) == go_type(first)) {
        let lists: Vec<Value> = lists
            .iter()
            .map(|list| Value::Array(list.to_vec()))
            .collect();
        return Err(MergeError::MixedList(go_text(&Value::Array(lists))));
    }
    Ok(if first.is_object() {
        Elements::Maps
    } else {
        Elements::Scalars
    })
}

pub(super) fn as_map(value: &Value) -> Result<&Map<String, Value>, MergeError> {
    value
        .as_object()
        .ok_or_else(|| MergeError::expected_map(value))
}

/// The value of an element's merge key.
pub(super) fn merge_key<'a>(element: &'a Value, key: &str) -> Result<&'a Value, MergeError> {
    let map = as_map(element)?;
    map.get(key)
        .ok_or_else(|| MergeError::no_merge_key(map, key))
}

/// The first map of `list` whose `key` holds `value`.
pub(super) fn find(list: &[Value], key: &str, value: &Value) -> Result<Option<usize>, MergeError> {
    for (index, element) in list.iter().enumerate() {
        let map = element.as_object().ok_or(MergeError::NotAMap(index))?;
        if map.get(key) == Some(value) {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

/// Where an element like `desired` stands in `list`. Maps are told apart by `key`, and two that lack
/// it are alike.
fn index(list: &[Value], desired: &Value, key: &str, elements: Elements) -> Option<usize> {
    let identity = |value: &'_ Value| match elements {
        Elements::Maps => value.get(key).cloned().unwrap_or(Value::Null),
        Elements::Scalars => value.clone(),
    };
    let desired = identity(desired);
    list.iter().position(|value| identity(value) == desired)
}

/// Sorts `list` by `order`, deletions last.
///
/// Go's comparison is inconsistent for elements that `order` lacks, so its insertion sort is part
/// of the result.
pub(super) fn sort_by_order(
    mut list: List,
    order: &[Value],
    key: &str,
    elements: Elements,
) -> Result<List, MergeError> {
    let mut deletions = Vec::new();
    if elements == Elements::Maps {
        for element in list.iter().chain(order) {
            merge_key(element, key)?;
        }
        (deletions, list) = list.into_iter().partition(is_deletion);
    }
    let position: Vec<_> = list
        .iter()
        .map(|item| index(order, item, key, elements))
        .collect();
    let mut items: Vec<_> = position.into_iter().zip(list).collect();
    insertion_sort(&mut items, |(left, _), (right, _)| match (left, right) {
        (Some(left), Some(right)) => left < right,
        _ => true,
    });
    Ok(items
        .into_iter()
        .map(|(_, item)| item)
        .chain(deletions)
        .collect())
}

/// Whether an element asks for its own removal.
pub(super) fn is_deletion(element: &Value) -> bool {
    element.get("$patch").and_then(Value::as_str) == Some("delete")
}

fn insertion_sort<T>(items: &mut [T], is_less: impl Fn(&T, &T) -> bool) {
    for end in 1..items.len() {
        let mut at = end;
        while at > 0 && is_less(&items[at], &items[at - 1]) {
            items.swap(at, at - 1);
            at -= 1;
        }
    }
}

/// Elements of a merged list in their final order: those of the patch as `patch_order` says, the
/// server's own between them as they stood in `server_order`.
pub(super) fn arrange(
    patch: List,
    server_only: List,
    patch_order: &[Value],
    server_order: &[Value],
    key: &str,
    elements: Elements,
) -> Result<List, MergeError> {
    let patch = sort_by_order(patch, patch_order, key, elements)?;
    let server_only = sort_by_order(server_only, server_order, key, elements)?;
    let position = |item: &Value| index(server_order, item, key, elements);
    let mut result = Vec::with_capacity(patch.len() + server_only.len());
    let (mut patch, mut server) = (
        patch.into_iter().peekable(),
        server_only.into_iter().peekable(),
    );
    loop {
        let server_first = match (server.peek(), patch.peek()) {
            (None, None) => return Ok(result),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(left), Some(right)) => match (position(left), position(right)) {
                (Some(left), Some(right)) => left < right,
                _ => false,
            },
        };
        result.extend(if server_first {
            server.next()
        } else {
            patch.next()
        });
    }
}

/// Parts `list` into what stands in `by` too and the rest.
pub(super) fn partition(list: List, by: &[Value], key: &str) -> Result<(List, List), MergeError> {
    if key.is_empty() {
        return Ok(list.into_iter().partition(|value| by.contains(value)));
    }
    let (mut in_both, mut rest) = (Vec::new(), Vec::new());
    for element in list {
        let is_found = find(by, key, merge_key(&element, key)?)?.is_some();
        if is_found {
            in_both.push(element)
        } else {
            rest.push(element)
        }
    }
    Ok((in_both, rest))
}

/// Sorted by text, as Go's `sort.Sort` leaves it with a comparison that calls equals smaller.
pub(super) fn sorted_by_text(list: &[Value], text: impl Fn(&Value) -> String) -> List {
    let mut items: Vec<_> = list
        .iter()
        .map(|value| (text(value), value.clone()))
        .collect();
    insertion_sort(&mut items, |left, right| left.0 <= right.0);
    items.into_iter().map(|(_, value)| value).collect()
}

/// Without repetitions; Go fills the gap with the last element.
pub(super) fn deduplicated(mut list: List) -> List {
    let mut first = 0;
    while first + 1 < list.len() {
        let mut other = first + 1;
        while other < list.len() {
            if list[first] == list[other] {
                list.swap_remove(other);
            } else {
                other += 1;
            }
        }
        first += 1;
    }
    list
}
