//! Writes JSON as Go's `encoding/json` does, straight from `Serialize`.
//!
//! `golib::json` prints trees; records have a field order of their own and hold whole charts, so
//! they are streamed instead. Only numbers and text differ from serde's compact form.

use std::io;

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};

/// Go's JSON of `value`, HTML characters escaped.
pub(super) fn to_vec<T: Serialize>(value: &T) -> Result<Vec<u8>, serde_json::Error> {
    let mut out = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut out, Go))?;
    Ok(out)
}

struct Go;

impl Formatter for Go {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(golib::json::encode(&Value::from(value)).as_bytes())
    }

    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut written = 0;
        for (at, found) in fragment.match_indices(['<', '>', '&', '\u{2028}', '\u{2029}']) {
            writer.write_all(&fragment.as_bytes()[written..at])?;
            for unit in found.chars() {
                write!(writer, "\\u{:04x}", u32::from(unit))?;
            }
            written = at + found.len();
        }
        writer.write_all(&fragment.as_bytes()[written..])
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn prints_numbers_and_text_as_go() {
        let value = json!({"a": [1, 1.0, 1e21, 1e-7, -0.0], "t": "<a&b>\u{2028}\u{7f}\u{1}\t😀"});
        let text = String::from_utf8(super::to_vec(&value).unwrap()).unwrap();
        assert_eq!(
            text,
            "{\"a\":[1,1,1e+21,1e-7,-0],\"t\":\"\\u003ca\\u0026b\\u003e\\u2028\u{7f}\\u0001\\t😀\"}"
        );
    }
}
