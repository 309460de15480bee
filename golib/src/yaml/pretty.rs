//! `toYamlPretty`: yaml.v3 with an indentation of two, straight from the value.

use serde_json::Value;

use super::encode::{Dialect, write};

/// What a yaml.v3 `Encoder` with `SetIndent(2)` writes, with the newline at the end. Integers print plainly and floats as Go's
/// `%v` does (`1e+06`).
pub fn encode_pretty(value: &Value) -> String {
    write(value, Dialect::V3)
}
