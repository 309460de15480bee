//! Order and identity of list elements in strategic merges.

use std::borrow::Borrow;
use std::collections::{BTreeSet, HashMap, HashSet};

use golib::json::{go_text, go_type};
use serde_json::{Map, Value};

use super::MergeError;
use super::work::Work;

pub(super) type List = Vec<Value>;

/// The kind of all elements of some lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Elements {
    Maps,
    Scalars,
}

/// What the elements of two lists are.
///
/// # Errors
/// There are none, they differ in type, or they are lists.
pub(super) fn elements(
    one: &[impl Borrow<Value>],
    other: &[impl Borrow<Value>],
) -> Result<Elements, MergeError> {
    let (one, other) = (
        one.iter().map(Borrow::borrow),
        other.iter().map(Borrow::borrow),
    );
    let mut all = one.clone().chain(other.clone());
    let first: &Value = all.next().ok_or(MergeError::EmptyLists)?;
    if first.is_array() {
        return Err(MergeError::ListOfLists);
    }
    if !all.all(|value| go_type(value) == go_type(first)) {
        let lists = [one.cloned().collect(), other.cloned().collect()].map(Value::Array);
        let lists = go_text(&Value::Array(lists.into()));
        return Err(MergeError::MixedList { lists });
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
pub(super) fn find(
    list: &[impl Borrow<Value>],
    key: &str,
    value: &Value,
    work: &mut Work,
) -> Result<Option<usize>, MergeError> {
    let cost = 1 + size(value) / 64;
    for (index, element) in list.iter().enumerate() {
        work.spend(cost)?;
        let map = element.borrow().as_object();
        let map = map.ok_or(MergeError::NotAMap(index))?;
        if map.get(key) == Some(value) {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

/// What a comparison with a value may have to look at, in bytes.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => 32 + items.iter().map(size).sum::<usize>(),
        Value::Object(fields) => {
            32 + fields
                .iter()
                .map(|(key, value)| key.len() + size(value))
                .sum::<usize>()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
    }
}

/// The first places of elements in a list. Maps are told apart by `key`, and two that lack it are alike.
struct Places<'a> {
    key: &'a str,
    elements: Elements,
    first: HashMap<&'a Value, usize>,
}

impl<'a> Places<'a> {
    fn of(
        list: &'a [impl Borrow<Value>],
        key: &'a str,
        elements: Elements,
        work: &mut Work,
    ) -> Result<Self, MergeError> {
        let mut first = HashMap::with_capacity(list.len());
        let mut before: Option<&Value> = None;
        for (index, element) in list.iter().enumerate() {
            let element = element.borrow();
            // What deletions leave over is one element, borrowed once for each of them.
            if before.is_some_and(|before| std::ptr::eq(before, element)) {
                continue;
            }
            before = Some(element);
            let identity = identity(element, key, elements);
            work.spend(size(identity) / 64)?;
            first.entry(identity).or_insert(index);
        }
        Ok(Self {
            key,
            elements,
            first,
        })
    }

    fn get(&self, desired: &Value) -> Option<usize> {
        self.first
            .get(identity(desired, self.key, self.elements))
            .copied()
    }
}

fn identity<'a>(value: &'a Value, key: &str, elements: Elements) -> &'a Value {
    match elements {
        Elements::Maps => value.get(key).unwrap_or(&Value::Null),
        Elements::Scalars => value,
    }
}

/// Sorts `list` by `order`, deletions last.
///
/// Go's comparison is inconsistent for elements that `order` lacks, so its insertion sort is part
/// of the result.
pub(super) fn sort_by_order(
    mut list: List,
    order: &[impl Borrow<Value>],
    key: &str,
    elements: Elements,
    work: &mut Work,
) -> Result<List, MergeError> {
    let mut deletions = Vec::new();
    if elements == Elements::Maps {
        for element in list.iter().chain(order.iter().map(Borrow::borrow)) {
            merge_key(element, key)?;
        }
        (deletions, list) = list.into_iter().partition(is_deletion);
    }
    let places = Places::of(order, key, elements, work)?;
    let mut items: Vec<_> = list
        .into_iter()
        .map(|item| (places.get(&item), item))
        .collect();
    if items.iter().all(|(place, _)| place.is_some()) {
        items.sort_by_key(|(place, _)| *place);
    } else {
        insertion_sort(&mut items, work, |(left, _), (right, _)| {
            match (left, right) {
                (Some(left), Some(right)) => left < right,
                _ => true,
            }
        })?;
    }
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

fn insertion_sort<T>(
    items: &mut [T],
    work: &mut Work,
    is_less: impl Fn(&T, &T) -> bool,
) -> Result<(), MergeError> {
    for end in 1..items.len() {
        let mut at = end;
        while at > 0 && is_less(&items[at], &items[at - 1]) {
            work.spend(1)?;
            items.swap(at, at - 1);
            at -= 1;
        }
    }
    Ok(())
}

/// Elements of a merged list in their final order: those of the patch as `patch_order` says, the
/// server's own between them as they stood in `server_order`.
pub(super) fn arrange(
    patch: List,
    server_only: List,
    patch_order: &[Value],
    server_order: &[impl Borrow<Value>],
    key: &str,
    elements: Elements,
    work: &mut Work,
) -> Result<List, MergeError> {
    let patch = sort_by_order(patch, patch_order, key, elements, work)?;
    let server_only = sort_by_order(server_only, server_order, key, elements, work)?;
    let places = Places::of(server_order, key, elements, work)?;
    let mut result = Vec::with_capacity(patch.len() + server_only.len());
    // Each is looked up once, however many of the other list go before it.
    let placed = |item| (places.get(&item), item);
    let (mut patch, mut server) = (
        patch.into_iter().map(placed).peekable(),
        server_only.into_iter().map(placed).peekable(),
    );
    loop {
        let server_first = match (server.peek(), patch.peek()) {
            (None, None) => return Ok(result),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some((Some(left), _)), Some((Some(right), _))) => left < right,
            (Some(_), Some(_)) => false,
        };
        let next = if server_first {
            server.next()
        } else {
            patch.next()
        };
        result.extend(next.map(|(_, item)| item));
    }
}

/// Parts `list` into what stands in `by` too and the rest.
pub(super) fn partition(list: List, by: &[Value], key: &str) -> Result<(List, List), MergeError> {
    if key.is_empty() {
        let by: HashSet<&Value> = by.iter().collect();
        return Ok(list.into_iter().partition(|value| by.contains(value)));
    }
    // An element that is no map is an error for those that are not found before it.
    let not_a_map = by.iter().position(|element| !element.is_object());
    let maps = &by[..not_a_map.unwrap_or(by.len())];
    let keys: HashSet<&Value> = maps.iter().filter_map(|map| map.get(key)).collect();
    let (mut in_both, mut rest) = (Vec::new(), Vec::new());
    for element in list {
        if keys.contains(merge_key(&element, key)?) {
            in_both.push(element)
        } else if let Some(index) = not_a_map {
            return Err(MergeError::NotAMap(index));
        } else {
            rest.push(element)
        }
    }
    Ok((in_both, rest))
}

/// What of `list` does not stand in `by`.
pub(super) fn without(list: List, by: &[Value]) -> List {
    let by: HashSet<&Value> = by.iter().collect();
    let mut list = list;
    list.retain(|value| !by.contains(value));
    list
}

/// Sorted by text, as Go's `sort.Sort` leaves it with a comparison that calls equals smaller: they are turned round.
pub(super) fn sorted_by_text(list: &[Value], text: impl Fn(&Value) -> String) -> List {
    let mut items: Vec<_> = list
        .iter()
        .rev()
        .map(|value| (text(value), value))
        .collect();
    items.sort_by(|(left, _), (right, _)| left.cmp(right));
    items.into_iter().map(|(_, value)| value.clone()).collect()
}

/// Without repetitions; Go fills the gap with the last element.
pub(super) fn deduplicated(list: List) -> List {
    // A number for each value, and where each of them stands: what is repeated is found without a comparison of all with all.
    let mut known: HashMap<&Value, usize> = HashMap::with_capacity(list.len());
    let mut numbers: Vec<usize> = Vec::with_capacity(list.len());
    for value in &list {
        let next = known.len();
        numbers.push(*known.entry(value).or_insert(next));
    }
    if known.len() == list.len() {
        return list;
    }
    drop(known);
    let mut places: BTreeSet<(usize, usize)> = numbers
        .iter()
        .enumerate()
        .map(|(place, number)| (*number, place))
        .collect();
    let mut list = list;
    let mut first = 0;
    while first + 1 < list.len() {
        let number = numbers[first];
        while let Some(&(_, other)) = places
            .range((number, first + 1)..=(number, usize::MAX))
            .next()
        {
            let last = list.len() - 1;
            places.remove(&(number, other));
            if other < last {
                places.remove(&(numbers[last], last));
                places.insert((numbers[last], other));
            }
            list.swap_remove(other);
            numbers.swap_remove(other);
        }
        first += 1;
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All lists of up to seven elements of three values.
    fn short_lists() -> impl Iterator<Item = List> {
        (0..=7_u32).flat_map(|length| {
            (0..3_usize.pow(length)).map(move |number| {
                let digit = |place| number / 3_usize.pow(place) % 3;
                (0..length).map(|place| Value::from(digit(place))).collect()
            })
        })
    }

    #[test]
    fn the_last_element_fills_the_gap_of_a_repetition() {
        // `deduplicateScalars` (apimachinery, `pkg/util/strategicpatch/patch.go`).
        let as_go = |mut list: List| {
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
        };
        for list in short_lists() {
            assert_eq!(deduplicated(list.clone()), as_go(list.clone()), "{list:?}");
        }
    }

    #[test]
    fn equal_texts_are_turned_round() {
        for list in short_lists() {
            let text = |value: &Value| (value.as_u64().unwrap_or(0) / 2).to_string();
            let mut items: Vec<_> = list
                .iter()
                .map(|value| (text(value), value.clone()))
                .collect();
            let is_less = |left: &(String, Value), right: &(String, Value)| left.0 <= right.0;
            assert_eq!(
                insertion_sort(&mut items, &mut Work::unbounded(), is_less),
                Ok(())
            );
            let sorted: List = items.into_iter().map(|(_, value)| value).collect();
            assert_eq!(sorted_by_text(&list, text), sorted, "{list:?}");
        }
    }

    /// What is looked up of an element is read byte by byte, once for each place that it stands in.
    #[test]
    fn long_keys_take_steps_where_they_are_told_apart() {
        let named = |name: &str| serde_json::json!({ "name": name });
        let long = named(&"z".repeat(1 << 20));
        let sort = |order: &[&Value], steps| {
            let mut work = Work::new(steps);
            let list = vec![named("b"), named("a")];
            sort_by_order(list, order, "name", Elements::Maps, &mut work)
        };
        let copies = vec![long.clone(); 20];
        let (a, b) = (named("a"), named("b"));
        let order: Vec<&Value> = [&a, &b].into_iter().chain(&copies).collect();
        assert!(matches!(
            sort(&order, 100_000),
            Err(MergeError::TooMuchWork(_))
        ));
        assert_eq!(sort(&order, 1_000_000), Ok(vec![a.clone(), b.clone()]));
        // What deletions leave over is one element, however often it is repeated.
        let repeated = std::iter::repeat_n(&long, 4_000);
        let order: Vec<&Value> = [&a, &b].into_iter().chain(repeated).collect();
        assert_eq!(sort(&order, 20_000), Ok(vec![a, b]));
    }

    #[test]
    fn elements_that_are_ordered_keep_their_order_where_they_are_equal() {
        let order = [Value::from(2), Value::from(0), Value::from(1)];
        for list in short_lists() {
            let mut items: Vec<_> = list
                .iter()
                .map(|item| (order.iter().position(|value| value == item), item.clone()))
                .collect();
            let is_less =
                |left: &(Option<usize>, Value), right: &(Option<usize>, Value)| left.0 < right.0;
            assert_eq!(
                insertion_sort(&mut items, &mut Work::unbounded(), is_less),
                Ok(())
            );
            let expected: List = items.into_iter().map(|(_, value)| value).collect();
            let mut work = Work::new(0);
            let sorted = sort_by_order(list.clone(), &order, "", Elements::Scalars, &mut work);
            assert_eq!(sorted, Ok(expected), "{list:?}");
        }
    }

    #[test]
    fn an_element_that_is_no_map_is_an_error_for_what_is_not_found_before_it() {
        let map = |name: &str| serde_json::json!({ "name": name });
        let by = [map("a"), Value::from(1), map("b")];
        assert_eq!(
            partition(vec![map("a")], &by, "name"),
            Ok((vec![map("a")], Vec::new()))
        );
        assert_eq!(
            partition(vec![map("b")], &by, "name"),
            Err(MergeError::NotAMap(1))
        );
    }
}
