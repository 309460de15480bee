//! Sprig's `reflect.go`: asking for types.

use super::functions::Functions;
use crate::error::Error;
use crate::state::State;
use crate::value::{Str, Value, deep_equal_counted};

pub(super) fn add(f: &mut Functions) {
    f.add("typeOf", |value: Value| value.type_name());
    f.add("typeIs", |name: Str, value: Value| {
        name == value.type_name()
    });
    f.add("typeIsLike", |name: Str, value: Value| {
        let actual = value.type_name();
        name == actual
            || actual
                .strip_prefix('*')
                .is_some_and(|actual| name == actual)
    });
    f.add("kindOf", |value: Value| value.kind().name());
    f.add("kindIs", |name: Str, value: Value| {
        name == value.kind().name()
    });
    f.add("deepEqual", |state: &mut State<'_>, a: Value, b: Value| {
        let mut steps = 0;
        let is_equal = deep_equal_counted(&a, &b, &mut steps);
        state.spend_steps(steps).map(|()| is_equal)
    });
}

/// What Go's reflection panics with when asked for the type of nil.
pub(super) fn type_of_nothing() -> Error {
    Error::message("reflect: call of reflect.Value.Type on zero Value")
}
