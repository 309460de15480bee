//! Values as they stand in the options of a bundle.

use serde_json::{Map, Value};

/// Values as Helm takes them; numbers are floats, as everywhere after Go's decoder.
pub type Values = Map<String, Value>;

/// Inline values of the options, with numbers as Go holds them.
pub fn inline(values: Option<&Values>) -> Values {
    match golib::json::floats(Value::Object(values.cloned().unwrap_or_default())) {
        Value::Object(values) => values,
        _ => Values::new(),
    }
}
