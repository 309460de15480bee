//! Sprig's `defaults.go` without its JSON functions, which are in `encoding.rs`.

use super::argument::Rest;
use super::functions::Functions;
use crate::value::Value;

pub(super) fn add(f: &mut Functions) {
    f.add(
        "default",
        |default: Value, given: Rest<Value>| match given.into_iter().next() {
            Some(given) if !is_empty(&given) => given,
            _ => default,
        },
    );
    f.add("empty", |value: Value| is_empty(&value));
    f.add("coalesce", |values: Rest<Value>| {
        values
            .into_iter()
            .find(|value| !is_empty(value))
            .unwrap_or_default()
    });
    f.add("all", |values: Rest<Value>| !values.iter().any(is_empty));
    f.add("any", |values: Rest<Value>| {
        values.iter().any(|value| !is_empty(value))
    });
    f.add(
        "ternary",
        |yes: Value, no: Value, condition: bool| if condition { yes } else { no },
    );
}

/// Nil, false, zero, or without elements; structs never are.
pub(super) fn is_empty(value: &Value) -> bool {
    !value.is_true()
}
