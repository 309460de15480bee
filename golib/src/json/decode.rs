//! Reading: `Unmarshal` into `any`.

use serde_json::{Map, Number, Value};

use super::Error;
use crate::budget::Budget;
use crate::{strconv, utf8};

/// Go's `json.Unmarshal` into `any`, except that integers of 64 bits stay exact. Of duplicate keys the last wins; what is
/// not UTF-8 becomes U+FFFD.
///
/// ```
/// use golib::json;
///
/// assert_eq!(json::decode(br#"{"port": 8080}"#)?["port"], 8080);
/// match json::decode(b"[1,") {
///     Err(json::Error::Syntax { message, offset }) => {
///         assert_eq!(message, "unexpected end of JSON input");
///         assert_eq!(offset, 3);
///     }
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), json::Error>(())
/// ```
///
/// # Errors
/// Go's `SyntaxError` texts, [`Error::Type`] for a number beyond a float's range, and [`Error::TooLarge`].
pub fn decode(text: &[u8]) -> Result<Value, Error> {
    decode_within(text, &mut Budget::default())
}

/// As [`decode`], with a budget of the caller's.
///
/// ```
/// use golib::budget::Budget;
///
/// let mut budget = Budget::default();
/// golib::json::decode_within(b"{}", &mut budget)?;
/// # Ok::<(), golib::json::Error>(())
/// ```
///
/// # Errors
/// As [`decode`].
pub fn decode_within(text: &[u8], budget: &mut Budget) -> Result<Value, Error> {
    let (value, error) = decode_partly(text, budget)?;
    error.map_or(Ok(value), Err)
}

/// As [`decode_within`], with what Go leaves behind when a number is beyond a float's range: null in its place, and the
/// error.
///
/// ```
/// use golib::budget::Budget;
///
/// let (value, error) = golib::json::decode_partly(b"[1e999, 2]", &mut Budget::default())?;
/// assert_eq!(value, serde_json::json!([null, 2]));
/// assert!(error.is_some());
/// # Ok::<(), golib::json::Error>(())
/// ```
///
/// # Errors
/// Go's `SyntaxError` texts, and [`Error::TooLarge`].
pub fn decode_partly(text: &[u8], budget: &mut Budget) -> Result<(Value, Option<Error>), Error> {
    Parser {
        text,
        at: 0,
        range_error: None,
        budget,
    }
    .document()
}

/// A collection that is still open.
enum Frame {
    Array(Vec<Value>),
    Object(Map<String, Value>, String),
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    budget: &'a mut Budget,
    /// The first number that no float can hold: reported only when the rest is well-formed, as Go checks syntax first.
    range_error: Option<Error>,
}

impl Parser<'_> {
    fn document(mut self) -> Result<(Value, Option<Error>), Error> {
        let mut frames: Vec<Frame> = Vec::new();
        loop {
            let Some(mut value) = self.value(&mut frames)? else {
                continue;
            };
            // A value is complete: put it where it belongs, and close what closes.
            loop {
                match frames.last_mut() {
                    None => {
                        return match self.skip_space() {
                            Some(_) => Err(self.unexpected("after top-level value")),
                            None => Ok((value, self.range_error)),
                        };
                    }
                    Some(Frame::Array(items)) => {
                        self.budget.value(items.len())?;
                        items.push(value);
                        match self.skip_space() {
                            Some(b',') => {
                                self.at += 1;
                                break;
                            }
                            Some(b']') => self.at += 1,
                            _ => return Err(self.unexpected("after array element")),
                        }
                    }
                    Some(Frame::Object(entries, key)) => {
                        self.budget.value_entry(entries.len())?;
                        entries.insert(std::mem::take(key), value);
                        match self.skip_space() {
                            Some(b',') => {
                                self.at += 1;
                                *key = self.key()?;
                                break;
                            }
                            Some(b'}') => self.at += 1,
                            _ => return Err(self.unexpected("after object key:value pair")),
                        }
                    }
                }
                value = match frames.pop() {
                    Some(Frame::Array(items)) => Value::Array(items),
                    Some(Frame::Object(entries, _)) => Value::Object(entries),
                    None => Value::Null,
                };
            }
        }
    }

    /// A scalar or empty collection, or `None` after opening a collection.
    fn value(&mut self, frames: &mut Vec<Frame>) -> Result<Option<Value>, Error> {
        let first = self.skip_space();
        if matches!(first, Some(b'[' | b'{')) && frames.len() >= self.budget.depth() {
            return Err(self.unexpected("exceeded max depth"));
        }
        match first {
            Some(b'[') => {
                self.at += 1;
                if self.skip_space() == Some(b']') {
                    self.at += 1;
                    return Ok(Some(Value::Array(Vec::new())));
                }
                frames.push(Frame::Array(Vec::new()));
                Ok(None)
            }
            Some(b'{') => {
                self.at += 1;
                if self.skip_space() == Some(b'}') {
                    self.at += 1;
                    return Ok(Some(Value::Object(Map::new())));
                }
                let key = self.key()?;
                frames.push(Frame::Object(Map::new(), key));
                Ok(None)
            }
            Some(b'"') => self.string().map(|text| Some(Value::String(text))),
            Some(b't') => self.literal("true", Value::Bool(true)).map(Some),
            Some(b'f') => self.literal("false", Value::Bool(false)).map(Some),
            Some(b'n') => self.literal("null", Value::Null).map(Some),
            Some(b'-' | b'0'..=b'9') => self.number().map(Some),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    /// An object's key and the colon behind it.
    fn key(&mut self) -> Result<String, Error> {
        if self.skip_space() != Some(b'"') {
            return Err(self.unexpected("looking for beginning of object key string"));
        }
        let key = self.string()?;
        if self.skip_space() != Some(b':') {
            return Err(self.unexpected("after object key"));
        }
        self.at += 1;
        Ok(key)
    }

    fn literal(&mut self, word: &'static str, value: Value) -> Result<Value, Error> {
        for expected in word.chars() {
            if self.peek().map(char::from) != Some(expected) {
                return Err(
                    self.unexpected_inside(&format!("in literal {word} (expecting '{expected}')"))
                );
            }
            self.at += 1;
        }
        Ok(value)
    }

    fn number(&mut self) -> Result<Value, Error> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.unexpected_inside("in numeric literal")),
        }
        let mut integral = true;
        if self.peek() == Some(b'.') {
            integral = false;
            self.at += 1;
            if !self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                return Err(self.unexpected_inside("after decimal point in numeric literal"));
            }
            self.digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            integral = false;
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if !self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                return Err(self.unexpected_inside("in exponent of numeric literal"));
            }
            self.digits();
        }
        let text = &self.text[start..self.at];
        if integral && text != b"-0" {
            if let Ok(integer) = strconv::parse_int(text, 10, 64) {
                return Ok(integer.into());
            }
            if let Ok(integer) = strconv::parse_uint(text, 10, 64) {
                return Ok(integer.into());
            }
        }
        if let Some(float) = strconv::parse_float(text, 64)
            .ok()
            .and_then(Number::from_f64)
        {
            return Ok(Value::Number(float));
        }
        self.range_error.get_or_insert_with(|| Error::Type {
            found: format!("number {}", String::from_utf8_lossy(text)),
            expected: "float64",
        });
        Ok(Value::Null)
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn string(&mut self) -> Result<String, Error> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let length = rest
                .iter()
                .position(|&byte| byte < b' ' || matches!(byte, b'"' | b'\\'));
            let run = &rest[..length.unwrap_or(rest.len())];
            utf8::push(&mut out, run);
            self.at += run.len();
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    self.budget.text(out.len())?;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.escape(&mut out)?;
                }
                _ => return Err(self.unexpected("in string literal")),
            }
        }
    }

    fn escape(&mut self, out: &mut String) -> Result<(), Error> {
        let c = match self.peek() {
            Some(b'u') => {
                self.at += 1;
                let unit = self.hex4()?;
                if (0xd800..0xdc00).contains(&unit) && self.text[self.at..].starts_with(b"\\u") {
                    let before = self.at;
                    self.at += 2;
                    let low = self.hex4()?;
                    if (0xdc00..0xe000).contains(&low) {
                        let code_point = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                        out.push(char::from_u32(code_point).unwrap_or(char::REPLACEMENT_CHARACTER));
                        return Ok(());
                    }
                    self.at = before; // a lone surrogate; the second escape stands for itself
                }
                out.push(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER));
                return Ok(());
            }
            Some(b'b') => '\x08',
            Some(b'f') => '\x0c',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            _ => return Err(self.unexpected_inside("in string escape code")),
        };
        self.at += 1;
        out.push(c);
        Ok(())
    }

    fn hex4(&mut self) -> Result<u32, Error> {
        let mut value = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.unexpected_inside("in \\u hexadecimal character escape"));
            };
            value = value << 4 | digit;
            self.at += 1;
        }
        Ok(value)
    }

    fn skip_space(&mut self) -> Option<u8> {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        self.peek()
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// The next character does not fit where white space would; at the end, the text is too short.
    fn unexpected(&self, context: &str) -> Error {
        match self.peek() {
            Some(byte) => self.invalid(byte, context),
            None => self.syntax("unexpected end of JSON input".into()),
        }
    }

    /// The next character does not fit inside a token; Go tries a space at the end of the text.
    fn unexpected_inside(&self, context: &str) -> Error {
        self.invalid(self.peek().unwrap_or(b' '), context)
    }

    fn invalid(&self, byte: u8, context: &str) -> Error {
        let shown = match byte {
            b'\'' => r"'\''".into(),
            b'"' => r#"'"'"#.into(),
            _ => {
                let quoted = strconv::quote(char::from(byte).to_string());
                format!("'{}'", &quoted[1..quoted.len() - 1])
            }
        };
        self.syntax(format!("invalid character {shown} {context}"))
    }

    fn syntax(&self, message: String) -> Error {
        let offset = self.text.len().min(self.at + 1);
        Error::Syntax { message, offset }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn decodes_as_go_does() {
        for (text, want) in [
            (
                &b" {\"a\": [1, 2.5, -0, 18446744073709551615], \"a\": null} "[..],
                json!({"a": null}),
            ),
            (
                b"[1,1.0,9007199254740993]",
                json!([1, 1.0, 9_007_199_254_740_993_i64]),
            ),
            (br#""\ud83d\ude00\ud800\u0041\/""#, json!("😀\u{fffd}A/")),
            (b"\"\xff\xe2\x82\"", json!("\u{fffd}\u{fffd}\u{fffd}")),
        ] {
            assert_eq!(decode(text).unwrap(), want);
        }
    }

    #[test]
    fn errors_read_as_gos() {
        for (text, want) in [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            (
                "{a",
                "invalid character 'a' looking for beginning of object key string",
            ),
            ("[1 2", "invalid character '2' after array element"),
            ("{\"a\" 1", "invalid character '1' after object key"),
            (
                "{\"a\": 1 \"",
                "invalid character '\"' after object key:value pair",
            ),
            (
                "[1,]",
                "invalid character ']' looking for beginning of value",
            ),
            (
                "{\"a\":1,}",
                "invalid character '}' looking for beginning of object key string",
            ),
            (
                "trap",
                "invalid character 'a' in literal true (expecting 'u')",
            ),
            ("01", "invalid character '1' after top-level value"),
            (
                "1.x",
                "invalid character 'x' after decimal point in numeric literal",
            ),
            ("\"a\n", "invalid character '\\n' in string literal"),
            (
                "nul",
                "invalid character ' ' in literal null (expecting 'l')",
            ),
            ("\"\\x", "invalid character 'x' in string escape code"),
            ("é", "invalid character 'Ã' looking for beginning of value"),
            (
                "'",
                "invalid character '\\'' looking for beginning of value",
            ),
            (
                "1e400",
                "json: cannot unmarshal number 1e400 into Go value of type float64",
            ),
        ] {
            assert_eq!(
                decode(text.as_bytes()).unwrap_err().to_string(),
                want,
                "{text}"
            );
        }
        let deep = "[".repeat(10_001);
        let error = decode(deep.as_bytes()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid character '[' exceeded max depth"
        );
    }
}
