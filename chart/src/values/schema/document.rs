//! The text of a schema, as Go's decoder of JSON reads it.

use golib::json;
use serde_json::Value;

use crate::values::json_stream;

/// Reads a schema's JSON, failing in the words of Go's stream decoder.
pub(super) fn decode(schema: &[u8]) -> Result<Value, String> {
    if schema.trim_ascii().is_empty() {
        return Err("EOF".to_owned());
    }
    json::decode(schema).map_err(|_| match json_stream::error(schema) {
        None => "unexpected EOF".to_owned(),
        Some(error) => match error.to_string() {
            text if text.ends_with("after top-level value") => {
                "invalid character after top-level value".to_owned()
            }
            text => text,
        },
    })
}
