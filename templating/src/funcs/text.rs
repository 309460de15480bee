//! Values as text: Sprig's `strval` and `strslice`.

use crate::error::Error;
use crate::fmt;
use crate::state::State;
use crate::value::{Str, Value};

/// Sprig's `strval`: strings and bytes as they are, what has a `String` method by that, anything else as `%v` prints it.
pub(super) fn to_text(state: &mut State<'_>, value: &Value) -> Result<Str, Error> {
    match value {
        Value::Str(text) => Ok(text.clone()),
        Value::Bytes(bytes) => Ok(bytes.as_deref().cloned().unwrap_or_default()),
        Value::Object(object) => match object.text() {
            Some(text) => Ok(text),
            None => fmt::to_text(state, value),
        },
        _ => fmt::to_text(state, value),
    }
}

/// Sprig's `strslice`: the elements of a list as text without the nils; of anything else a list of its text.
pub(super) fn to_texts(state: &mut State<'_>, value: &Value) -> Result<Vec<Str>, Error> {
    match value {
        Value::Nil => Ok(Vec::new()),
        Value::List(list) => {
            let present = list.iter().filter(|item| !item.is_untyped_nil());
            present.map(|item| to_text(state, item)).collect()
        }
        Value::Bytes(bytes) => {
            let bytes = bytes.as_deref().map_or(&[][..], Str::as_bytes);
            Ok(bytes
                .iter()
                .map(|byte| Str::from(byte.to_string()))
                .collect())
        }
        other => Ok(vec![to_text(state, other)?]),
    }
}
