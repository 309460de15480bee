//! `merge`, `mergeOverwrite` and `deepCopy`: mergo 1.0.1's `deepMerge` for maps and mitchellh's copystructure.
//!
//! Both work with a stack of their own, so deep values cannot exhaust the thread's, and notice maps that contain
//! themselves, on which Go runs out of memory.

use std::collections::HashSet;

use super::argument::Rest;
use super::functions::Functions;
use crate::error::Error;
use crate::state::State;
use crate::value::size::ELEMENT;
use crate::value::{Kind, List, ListType, Map, MapType, Str, Type, Value};

pub(super) fn add(f: &mut Functions) {
    for (name, must_name, overwrite) in [
        ("merge", "mustMerge", false),
        ("mergeOverwrite", "mustMergeOverwrite", true),
    ] {
        f.add(
            must_name,
            move |state: &mut State<'_>, into: Map, from: Rest<Map>| {
                must(merge_all(state, into, from, overwrite))
            },
        );
        f.add(
            name,
            move |state: &mut State<'_>, into: Map, from: Rest<Map>| {
                or_empty(merge_all(state, into, from, overwrite))
            },
        );
    }
    f.add("mustDeepCopy", deep_copy);
    f.add("deepCopy", deep_copy);
}

/// Why maps are not merged.
enum Failure {
    /// mergo's `ErrDifferentArgumentsTypes`: the one error that it returns.
    DifferentTypes,
    /// What Go panics with, or a limit.
    Ended(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Ended(error)
    }
}

fn must(merged: Result<Value, Failure>) -> Result<Value, Error> {
    merged.map_err(|failure| match failure {
        Failure::DifferentTypes => Error::message("src and dst must be of same type"),
        Failure::Ended(error) => error,
    })
}

/// `merge` swallows errors.
fn or_empty(merged: Result<Value, Failure>) -> Result<Value, Error> {
    match merged {
        Err(Failure::DifferentTypes) => Ok(Str::default().into()),
        merged => must(merged),
    }
}

fn merge_all(
    state: &mut State<'_>,
    into: Map,
    from: Rest<Map>,
    overwrite: bool,
) -> Result<Value, Failure> {
    let mut into = into;
    for from in from {
        if into.is_nil() && !from.is_nil() {
            into = Map::typed(into.map_type(), Default::default());
        }
        merge(state, into.clone(), from, overwrite)?;
    }
    Ok(into.into())
}

enum Step {
    Merge(Map, Map),
    /// Decides about one key, after the maps under it are merged.
    Settle(Map, Str, Value, Type),
}

fn merge(state: &mut State<'_>, into: Map, from: Map, overwrite: bool) -> Result<(), Failure> {
    let mut seen = HashSet::new();
    let mut steps = vec![Step::Merge(into, from)];
    while let Some(step) = steps.pop() {
        match step {
            Step::Merge(into, from) => {
                if into.is_same(&from) && from.is_nil() {
                    continue;
                }
                if !seen.insert((into.address(), from.address())) {
                    continue;
                }
                // mergo asks the element itself: an interface that holds a nil map is not nil.
                let element = from.map_type().element;
                let holds_interfaces = matches!(element, Type::Any);
                for (key, value) in from.entries() {
                    state.spend_steps(1)?;
                    let is_nil = match holds_interfaces {
                        true => value.is_untyped_nil(),
                        false => value.is_nil(),
                    };
                    if is_nil {
                        if overwrite {
                            set(&into, key, value, element)?;
                        }
                        continue;
                    }
                    let current = into.get(&key);
                    if let Some(current) = &current {
                        check(current, &value, overwrite)?;
                    }
                    let below = match (current, &value) {
                        (Some(Value::Map(into)), Value::Map(from)) if !into.is_nil() => {
                            Some(Step::Merge(into, from.clone()))
                        }
                        _ => None,
                    };
                    steps.push(Step::Settle(into.clone(), key, value, element));
                    steps.extend(below);
                }
            }
            Step::Settle(into, key, value, element) => {
                let current = into.get(&key);
                let is_map = |value: &Value| matches!(value, Value::Map(_));
                let keeps = current
                    .as_ref()
                    .is_some_and(|current| !is_empty(current) && is_map(current) && is_map(&value));
                if !keeps && (overwrite || current.as_ref().is_none_or(is_empty)) {
                    // mergo unwraps slices.
                    let from = match &value {
                        Value::List(list) => Type::List(list.list_type()),
                        _ => element,
                    };
                    set(&into, key, value, from)?;
                }
            }
        }
    }
    Ok(())
}

/// Where mergo goes into two values of which one is a struct or a pointer to one, and fails at the other.
fn check(into: &Value, from: &Value, overwrite: bool) -> Result<(), Failure> {
    let no_such_call = |method: &str, kind: Kind| {
        let kind = kind.name();
        let text = format!("reflect: call of reflect.Value.{method} on {kind} Value");
        Err(Failure::Ended(Error::message(text)))
    };
    let kind = from.kind();
    match into {
        _ if !matches!(kind, Kind::Struct | Kind::Ptr | Kind::Map) => Ok(()),
        Value::Map(map) if map.is_nil() && kind == Kind::Struct => no_such_call("IsNil", kind),
        Value::Object(object) if object.kind() == Kind::Ptr => {
            let is_pointee = object.type_name().strip_prefix('*') == Some(from.type_name());
            match overwrite || kind == Kind::Ptr || from.is_nil() || is_pointee {
                true => Ok(()),
                false => Err(Failure::DifferentTypes),
            }
        }
        Value::Object(object) if object.kind() == Kind::Struct && kind != Kind::Struct => {
            let unexported = object.unexported();
            let is_exported = |(name, _): &(&str, Value)| !unexported.contains(name);
            match object.fields().iter().any(is_exported) {
                true => no_such_call("Field", kind),
                false => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// mergo's `isEmptyValue`, which looks at no complex number.
fn is_empty(value: &Value) -> bool {
    !value.is_true() && !matches!(value.kind(), Kind::Struct | Kind::Complex128)
}

/// Sets a key as Go's reflection does, which minds the types of the maps' elements and not what they hold.
fn set(map: &Map, key: Str, value: Value, from: Type) -> Result<(), Error> {
    let element = map.map_type().element;
    if !matches!(element, Type::Any) && element != from {
        return Err(Error::message(format!(
            "reflect.Value.SetMapIndex: value of type {from} is not assignable to type {element}"
        )));
    }
    map.insert(key, value)
}

enum Copy {
    Visit(Value),
    List(&'static ListType, usize),
    Map(&'static MapType, Vec<Str>, usize),
}

fn deep_copy(state: &mut State<'_>, value: Value) -> Result<Value, Error> {
    if value.is_untyped_nil() {
        return Err(super::reflect::type_of_nothing());
    }
    let mut todo = vec![Copy::Visit(value)];
    let mut done: Vec<Value> = Vec::new();
    let mut open = HashSet::new();
    while let Some(step) = todo.pop() {
        state.spend_steps(1)?;
        state.check_memory((todo.len() + done.len()) as u64 * ELEMENT)?;
        match step {
            Copy::Visit(Value::List(list)) if !list.is_nil() => {
                todo.push(Copy::List(list.list_type(), list.len()));
                todo.extend(list.iter().rev().cloned().map(Copy::Visit));
            }
            Copy::Visit(Value::Map(map)) if !map.is_nil() => {
                if !open.insert(map.address()) {
                    return Err(Error::message(
                        "a dict that contains itself cannot be copied",
                    ));
                }
                let (keys, values): (Vec<_>, Vec<_>) = map.entries().into_iter().unzip();
                todo.push(Copy::Map(map.map_type(), keys, map.address()));
                todo.extend(values.into_iter().rev().map(Copy::Visit));
            }
            Copy::Visit(Value::Object(object)) => {
                done.push(object.copied().unwrap_or(Value::Object(object)));
            }
            Copy::Visit(value) => done.push(value),
            Copy::List(list_type, length) => {
                let items = done.split_off(done.len() - length);
                done.push(List::typed(list_type, items).into());
            }
            Copy::Map(map_type, keys, address) => {
                open.remove(&address);
                let values = done.split_off(done.len() - keys.len());
                done.push(Map::typed(map_type, keys.into_iter().zip(values).collect()).into());
            }
        }
    }
    Ok(done.pop().unwrap_or_default())
}
