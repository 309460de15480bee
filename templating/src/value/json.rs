//! From plain data to values.

use super::{List, Map, Value};

/// Integers become `int64`, all other numbers `float64`, as Helm stores them.
impl From<&serde_json::Value> for Value {
    fn from(data: &serde_json::Value) -> Self {
        match data {
            serde_json::Value::Null => Value::Nil,
            serde_json::Value::Bool(b) => Value::Bool(*b),
            serde_json::Value::Number(number) => match number.as_i64() {
                Some(integer) => Value::Int64(integer),
                None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            serde_json::Value::String(text) => Value::string(text.as_str()),
            serde_json::Value::Array(items) => {
                items.iter().map(Value::from).collect::<List>().into()
            }
            serde_json::Value::Object(entries) => entries
                .iter()
                .map(|(k, v)| (k.as_str(), Value::from(v)))
                .collect::<Map>()
                .into(),
        }
    }
}

impl From<serde_json::Value> for Value {
    fn from(data: serde_json::Value) -> Self {
        Value::from(&data)
    }
}
