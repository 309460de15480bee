//! Whether two values are the same, where numbers are compared otherwise than in `serde_json`.

use serde_json::{Number, Value};

/// Whether two values are equal, with numbers that are by `numbers`.
///
/// ```
/// use golib::json::equal;
/// use serde_json::json;
///
/// // As Go compares them, which decodes every number as a float.
/// assert!(equal(&json!({"a": [1]}), &json!({"a": [1.0]}), |one, other| one.as_f64() == other.as_f64()));
/// ```
pub fn equal(one: &Value, other: &Value, numbers: fn(&Number, &Number) -> bool) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => numbers(one, other),
        (Value::Array(one), Value::Array(other)) => {
            let mut pairs = one.iter().zip(other);
            one.len() == other.len() && pairs.all(|(one, other)| equal(one, other, numbers))
        }
        (Value::Object(one), Value::Object(other)) => {
            let has = |(key, value): (&String, &Value)| {
                let found = other.get(key);
                found.is_some_and(|found| equal(value, found, numbers))
            };
            one.len() == other.len() && one.iter().all(has)
        }
        _ => one == other,
    }
}
