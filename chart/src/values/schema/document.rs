//! The text of a schema, as Go's decoder of JSON reads it.

use golib::budget::Budget;
use golib::json;
use serde_json::Value;

use crate::values::json_stream;

/// What a schema and those that it refers to may take once they are read, in bytes.
pub(super) const MAX_DECODED: usize = 48 << 20;

/// Reads a schema's JSON, failing in the words of Go's stream decoder.
pub(super) fn decode(schema: &[u8], budget: &mut Budget) -> Result<Value, String> {
    if schema.trim_ascii().is_empty() {
        return Err("EOF".to_owned());
    }
    let decoded = json::decode_within(schema, budget);
    decoded.map_err(|failed| match failed {
        json::Error::TooLarge(_) => failed.to_string(),
        _ => match json_stream::error(schema) {
            None => "unexpected EOF".to_owned(),
            Some(error) => match error.to_string() {
                text if text.ends_with("after top-level value") => {
                    "invalid character after top-level value".to_owned()
                }
                text => text,
            },
        },
    })
}
