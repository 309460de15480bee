//! Printing: `Marshal`, `MarshalIndent` and an `Encoder` without HTML escaping.

use std::fmt::Write as _;
use std::io;

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use serde_json::{Number, Value, map};

use crate::strconv::format_float;

/// Go's `json.Marshal`: compact, keys sorted by bytes, `<`, `>` and `&` escaped.
///
/// ```
/// use serde_json::json;
///
/// let value = json!({"b": 1e21, "a": "<tag>"});
/// assert_eq!(golib::json::encode(&value), r#"{"a":"\u003ctag\u003e","b":1e+21}"#);
/// ```
pub fn encode(value: &Value) -> String {
    Printer {
        html: true,
        layout: None,
    }
    .print(value)
}

/// As [`encode`], with `<`, `>` and `&` as they are (`SetEscapeHTML(false)`); without the newline an `Encoder` appends.
///
/// ```
/// assert_eq!(golib::json::encode_raw(&"<tag>".into()), r#""<tag>""#);
/// ```
pub fn encode_raw(value: &Value) -> String {
    Printer {
        html: false,
        layout: None,
    }
    .print(value)
}

/// Go's `json.MarshalIndent`: each line but the first begins with `prefix` and one `indent` per level.
///
/// ```
/// let value = serde_json::json!({"a": [1]});
/// assert_eq!(golib::json::encode_indent(&value, "", "  "), "{\n  \"a\": [\n    1\n  ]\n}");
/// ```
pub fn encode_indent(value: &Value, prefix: &str, indent: &str) -> String {
    Printer {
        html: true,
        layout: Some((prefix, indent)),
    }
    .print(value)
}

/// Go's `json.Indent` of a compact text: one `indent` per level.
///
/// ```
/// assert_eq!(golib::json::indent(r#"{"b":[1],"a":{}}"#, "  "), "{\n  \"b\": [\n    1\n  ],\n  \"a\": {}\n}");
/// ```
pub fn indent(compact: &str, indent: &str) -> String {
    let mut out = String::with_capacity(compact.len() * 2);
    let newline = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n(indent, depth));
    };
    let (mut depth, mut is_opened, mut in_text, mut is_escaped) = (0_usize, false, false, false);
    for c in compact.chars() {
        if in_text {
            in_text = c != '"' || is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            out.push(c);
            continue;
        }
        let closes = matches!(c, '}' | ']');
        if closes && !is_opened {
            depth = depth.saturating_sub(1);
            newline(&mut out, depth);
        } else if is_opened && !closes {
            depth += 1;
            newline(&mut out, depth);
        }
        is_opened = matches!(c, '{' | '[');
        in_text = c == '"';
        out.push(c);
        match c {
            ',' => newline(&mut out, depth),
            ':' => out.push(' '),
            _ => {}
        }
    }
    out
}

/// Go's `json.Marshal` of anything that serde serializes, straight to bytes: fields stay in the order of their declaration.
///
/// ```
/// #[derive(serde::Serialize)]
/// struct Chart {
///     version: &'static str,
///     app: f64,
/// }
///
/// let text = golib::json::to_vec(&Chart { version: "1.0.0", app: 2.0 })?;
/// assert_eq!(text, br#"{"version":"1.0.0","app":2}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// # Errors
/// What the value's own `Serialize` fails with, and keys that are not text.
pub fn to_vec<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, serde_json::Error> {
    let mut out = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut out, Go))?;
    Ok(out)
}

/// What Go writes differently from serde_json: floats, and characters that mean something to HTML and JavaScript.
struct Go;

impl Formatter for Go {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(format_json_float(value).as_bytes())
    }

    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut escaped = String::with_capacity(fragment.len());
        push_escaped(&mut escaped, fragment, true);
        writer.write_all(escaped.as_bytes())
    }
}

/// Appends a number as `json.Marshal` prints it: integers plainly, floats with the fewest digits, exponents only from 1e21
/// on and below 1e-6.
fn push_number(out: &mut String, number: &Number) {
    // Writing to a String cannot fail.
    let _ = match (number.as_i64(), number.as_u64(), number.as_f64()) {
        (Some(integer), _, _) => write!(out, "{integer}"),
        (_, Some(integer), _) => write!(out, "{integer}"),
        (_, _, Some(float)) => write!(out, "{}", format_json_float(float)),
        _ => write!(out, "{number}"),
    };
}

/// Appends a text as it stands between the quotes of a JSON string: in whole runs up to the next character that is escaped.
fn push_escaped(out: &mut String, text: &str, html: bool) {
    let mut written = 0;
    for (at, byte) in text.bytes().enumerate() {
        let (escape, width) = match byte {
            b'"' => ("\\\"", 1),
            b'\\' => ("\\\\", 1),
            0x08 => ("\\b", 1),
            0x0c => ("\\f", 1),
            b'\n' => ("\\n", 1),
            b'\r' => ("\\r", 1),
            b'\t' => ("\\t", 1),
            b'<' if html => ("\\u003c", 1),
            b'>' if html => ("\\u003e", 1),
            b'&' if html => ("\\u0026", 1),
            // The line separators that JavaScript takes for the end of a line.
            0xe2 if text[at..].starts_with('\u{2028}') => ("\\u2028", 3),
            0xe2 if text[at..].starts_with('\u{2029}') => ("\\u2029", 3),
            0..b' ' => ("", 1),
            _ => continue,
        };
        out.push_str(&text[written..at]);
        if escape.is_empty() {
            let _ = write!(out, "\\u{byte:04x}"); // writing to a String cannot fail
        } else {
            out.push_str(escape);
        }
        written = at + width;
    }
    out.push_str(&text[written..]);
}

fn format_json_float(float: f64) -> String {
    let magnitude = float.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let mut text = format_float(float, b'e', -1, 64);
        // e-09 becomes e-9
        if let Some(zero) = text
            .len()
            .checked_sub(2)
            .filter(|&at| text[..at].ends_with("e-"))
            && text.as_bytes()[zero] == b'0'
        {
            text.remove(zero);
        }
        return text;
    }
    format_float(float, b'f', -1, 64)
}

enum Frame<'a> {
    Array(std::slice::Iter<'a, Value>),
    Object(map::Iter<'a>),
}

struct Printer<'a> {
    html: bool,
    layout: Option<(&'a str, &'a str)>,
}

impl Printer<'_> {
    fn print(&self, value: &Value) -> String {
        let mut out = String::new();
        let mut frames = Vec::new();
        self.open(&mut out, value, &mut frames);
        let mut first = !frames.is_empty();
        while let Some(depth) = frames.len().checked_sub(1) {
            let next = match &mut frames[depth] {
                Frame::Array(items) => items.next().map(|item| (None, item)),
                Frame::Object(entries) => entries.next().map(|(key, item)| (Some(key), item)),
            };
            if let Some((key, item)) = next {
                if !first {
                    out.push(',');
                }
                self.newline(&mut out, depth + 1);
                if let Some(key) = key {
                    self.string(&mut out, key);
                    out.push_str(if self.layout.is_some() { ": " } else { ":" });
                }
                self.open(&mut out, item, &mut frames);
                first = frames.len() > depth + 1;
            } else {
                self.newline(&mut out, depth);
                out.push(if matches!(frames.pop(), Some(Frame::Array(_))) {
                    ']'
                } else {
                    '}'
                });
                first = false;
            }
        }
        out
    }

    /// Prints a scalar or an empty collection whole, and of any other collection the opening bracket.
    fn open<'v>(&self, out: &mut String, value: &'v Value, frames: &mut Vec<Frame<'v>>) {
        match value {
            Value::Null => out.push_str("null"),
            Value::Bool(true) => out.push_str("true"),
            Value::Bool(false) => out.push_str("false"),
            Value::Number(number) => push_number(out, number),
            Value::String(text) => self.string(out, text),
            Value::Array(items) if items.is_empty() => out.push_str("[]"),
            Value::Object(entries) if entries.is_empty() => out.push_str("{}"),
            Value::Array(items) => {
                out.push('[');
                frames.push(Frame::Array(items.iter()));
            }
            Value::Object(entries) => {
                out.push('{');
                frames.push(Frame::Object(entries.iter()));
            }
        }
    }

    fn newline(&self, out: &mut String, depth: usize) {
        if let Some((prefix, indent)) = self.layout {
            out.push('\n');
            out.push_str(prefix);
            for _ in 0..depth {
                out.push_str(indent);
            }
        }
    }

    fn string(&self, out: &mut String, text: &str) {
        out.push('"');
        push_escaped(out, text, self.html);
        out.push('"');
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prints_as_go_does() {
        for (value, want) in [
            (json!(1.0), "1"),
            (json!(-0.0), "-0"),
            (json!(1e20), "100000000000000000000"),
            (json!(1e21), "1e+21"),
            (json!(1e-6), "0.000001"),
            (json!(1e-7), "1e-7"),
            (json!(1.5e-10), "1.5e-10"),
            (json!(u64::MAX), "18446744073709551615"),
            (
                json!("<a> & \u{2028}\u{1}\u{7f}é\"\\"),
                "\"\\u003ca\\u003e \\u0026 \\u2028\\u0001\u{7f}é\\\"\\\\\"",
            ),
            (
                json!({"b": [], "a": {"x": [1, {}]}}),
                r#"{"a":{"x":[1,{}]},"b":[]}"#,
            ),
        ] {
            assert_eq!(encode(&value), want);
        }
        assert_eq!(encode_raw(&json!("<&>")), "\"<&>\"");
        assert_eq!(
            encode_indent(&json!({"a": [1, {"b": null}], "c": {}}), ">", "  "),
            "{\n>  \"a\": [\n>    1,\n>    {\n>      \"b\": null\n>    }\n>  ],\n>  \"c\": {}\n>}"
        );
    }
    #[test]
    fn streamed_json_equals_encoded_json() {
        let value =
            json!({"a": [1, 1.0, 1e21, 1e-7, -0.0], "t": "<a&b>\u{2028}\u{7f}\u{1}\t😀\"\\"});
        let streamed = String::from_utf8(to_vec(&value).unwrap()).unwrap();
        assert_eq!(streamed, encode(&value));
    }
}
