//! Nested fields of an untyped object, as `unstructured.Nested*` and kstatus' `Get*Field` read them.

use std::fmt;

use golib::json::{go_text, go_type};
use serde_json::{Map, Value};

/// A field on the way has another type than the rule expects.
///
/// Prints as Go's accessor error, with the path of the field that has the wrong type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongType {
    path: String,
    found: String,
    found_type: &'static str,
    expected: &'static str,
}

impl fmt::Display for WrongType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} accessor error: {} is of the type {}, expected {}",
            self.path, self.found, self.found_type, self.expected
        )
    }
}

impl std::error::Error for WrongType {}

impl WrongType {
    fn new(fields: &[&str], found: &Value, expected: &'static str) -> Self {
        Self {
            path: format!(".{}", fields.join(".")),
            found: go_text(found),
            found_type: go_type(found),
            expected,
        }
    }
}

/// The value at `fields`; `None` where a map on the way lacks the key or holds null.
///
/// ```
/// use objects::fields::nested;
/// use serde_json::json;
///
/// let pod = json!({"spec": {"nodeName": "n1"}, "status": null});
/// assert_eq!(nested(&pod, &["spec", "nodeName"])?, Some(&json!("n1")));
/// assert_eq!(nested(&pod, &["status", "phase"])?, None);
/// assert!(nested(&pod, &["spec", "nodeName", "x"]).is_err());
/// # Ok::<(), objects::fields::WrongType>(())
/// ```
///
/// # Errors
/// Something on the way is neither a map nor null.
pub fn nested<'a>(object: &'a Value, fields: &[&str]) -> Result<Option<&'a Value>, WrongType> {
    let mut value = object;
    for (depth, field) in fields.iter().enumerate() {
        value = match value {
            Value::Null => return Ok(None),
            Value::Object(map) => match map.get(*field) {
                Some(next) => next,
                None => return Ok(None),
            },
            other => {
                let path = &fields[..=depth];
                return Err(WrongType::new(path, other, "map[string]interface{}"));
            }
        };
    }
    Ok(Some(value))
}

/// The string at `fields`. A null there is an error, as in Go.
///
/// # Errors
/// The value, or one on the way to it, has another type.
pub fn nested_str<'a>(object: &'a Value, fields: &[&str]) -> Result<Option<&'a str>, WrongType> {
    typed(object, fields, "string", Value::as_str)
}

/// The integer at `fields`; a float is not one.
///
/// # Errors
/// The value, or one on the way to it, has another type.
pub fn nested_i64(object: &Value, fields: &[&str]) -> Result<Option<i64>, WrongType> {
    typed(object, fields, "int64", Value::as_i64)
}

/// The map at `fields`.
///
/// # Errors
/// The value, or one on the way to it, has another type.
pub fn nested_map<'a>(
    object: &'a Value,
    fields: &[&str],
) -> Result<Option<&'a Map<String, Value>>, WrongType> {
    typed(object, fields, "map[string]interface{}", Value::as_object)
}

/// The list at `fields`.
///
/// # Errors
/// The value, or one on the way to it, has another type.
pub fn nested_list<'a>(
    object: &'a Value,
    fields: &[&str],
) -> Result<Option<&'a Vec<Value>>, WrongType> {
    typed(object, fields, "[]interface{}", Value::as_array)
}

fn typed<'a, T>(
    object: &'a Value,
    fields: &[&str],
    go_type: &'static str,
    read: impl FnOnce(&'a Value) -> Option<T>,
) -> Result<Option<T>, WrongType> {
    let Some(value) = nested(object, fields)? else {
        return Ok(None);
    };
    match read(value) {
        Some(read) => Ok(Some(read)),
        None => Err(WrongType::new(fields, value, go_type)),
    }
}

/// The text at a JSON pointer; empty where it is absent or anything else.
pub fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The list under `field`; empty where it is absent or anything else.
pub fn items<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    value
        .get(field)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The string at `fields`, or `default` where it is absent or anything else.
pub fn str_or<'a>(object: &'a Value, fields: &[&str], default: &'a str) -> &'a str {
    match nested(object, fields) {
        Ok(Some(Value::String(text))) => text,
        _ => default,
    }
}

/// The integer at `fields`, or `default` where it is absent or anything else.
pub fn i64_or(object: &Value, fields: &[&str], default: i64) -> i64 {
    match nested(object, fields) {
        Ok(Some(value)) => value.as_i64().unwrap_or(default),
        _ => default,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_on_the_way_is_absent_but_null_at_the_end_is_the_wrong_type() {
        let object = json!({"metadata": null, "status": {"phase": null}});
        assert_eq!(nested_str(&object, &["metadata", "name"]), Ok(None));
        let error = nested_str(&object, &["status", "phase"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            ".status.phase accessor error: <nil> is of the type <nil>, expected string"
        );
    }

    #[test]
    fn a_scalar_on_the_way_names_the_path_up_to_the_missing_step() {
        let error = nested(&json!({"status": 3}), &["status", "phase"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            ".status.phase accessor error: 3 is of the type int64, expected map[string]interface{}"
        );
    }
}
