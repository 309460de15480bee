//! JSON as Go's `encoding/json` reads and prints it, error texts included.
//!
//! Integers keep their 64 bits in both directions; where Go decodes into `any`, every number is a float: see [`floats`].
//! Nothing that reads recurses, so depth costs memory and never stack; decoding stops at [`MAX_DEPTH`](crate::budget::MAX_DEPTH)
//! levels, where Go stops at 10,000, and at the weight a [`Budget`](crate::budget::Budget) allows.

mod bounded;
mod decode;
mod encode;
mod equal;
mod fields;
pub mod patch;
pub mod pointer;
mod text;
mod weight;

pub use bounded::at_most;
pub use decode::{decode, decode_partly, decode_within};
pub use encode::{encode, encode_indent, encode_raw, indent, to_vec};
pub use equal::equal;
pub use fields::{At, FieldError, Mismatch, known_field, parse_time, scalar_text, time};
pub use text::{go_text, go_text_as};
pub use weight::weigh;

use serde_json::{Number, Value};

use crate::budget::TooLarge;

/// Why a text was not decoded, printed as Go prints it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not JSON: Go's `*json.SyntaxError`.
    #[error("{message}")]
    Syntax {
        /// What is wrong, in Go's words.
        message: String,
        /// How many bytes were read when it was noticed.
        offset: usize,
    },
    /// JSON of another kind than asked for, or a number no float can hold.
    #[error("json: cannot unmarshal {found} into Go value of type {expected}")]
    Type {
        /// What was found: `array`, `object`, `string`, `bool`, `number`, or `number` and its text.
        found: String,
        /// The Go type that was to be filled.
        expected: &'static str,
    },
    /// A text that would fill the memory.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

impl Error {
    /// That `value` cannot fill a variable of the Go type `expected`.
    pub fn wrong_type(value: &Value, expected: &'static str) -> Self {
        Self::Type {
            found: type_name(value).into(),
            expected,
        }
    }
}

/// Go's `%T` of a decoded JSON value; whole numbers are `int64` as those of Kubernetes' objects are.
///
/// ```
/// assert_eq!(golib::json::go_type(&serde_json::json!([1])), "[]interface {}");
/// ```
pub fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// What Go's errors call the type of a JSON value: `null`, `bool`, `number`, `string`, `array` or `object`.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// How many lists and maps are inside each other; none in a scalar.
///
/// ```
/// assert_eq!(golib::json::depth(&serde_json::json!({"a": [1, {}]})), 3);
/// ```
pub fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(entries) => 1 + entries.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Every number as a float, which is what Go's decoder makes of them in an `any`.
///
/// ```
/// use golib::json;
///
/// let value = json::decode(b"12345678901234567890123")?;
/// assert_eq!(json::encode(&json::floats(value)), "1.2345678901234568e+22");
/// # Ok::<(), json::Error>(())
/// ```
pub fn floats(mut value: Value) -> Value {
    /// The rest of a collection.
    enum Rest<'a> {
        Items(std::slice::IterMut<'a, Value>),
        Entries(serde_json::map::ValuesMut<'a>),
    }
    let mut open = vec![Rest::Items(std::slice::from_mut(&mut value).iter_mut())];
    while let Some(rest) = open.last_mut() {
        let next = match rest {
            Rest::Items(items) => items.next(),
            Rest::Entries(entries) => entries.next(),
        };
        match next {
            None => {
                open.pop();
            }
            Some(Value::Number(number)) => {
                if let Some(float) = number.as_f64().and_then(Number::from_f64) {
                    *number = float;
                }
            }
            Some(Value::Array(items)) => open.push(Rest::Items(items.iter_mut())),
            Some(Value::Object(entries)) => open.push(Rest::Entries(entries.values_mut())),
            Some(Value::Null | Value::Bool(_) | Value::String(_)) => {}
        }
    }
    drop(open);
    value
}
