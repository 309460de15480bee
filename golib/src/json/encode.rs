//! Printing: `Marshal`, `MarshalIndent` and an `Encoder` without HTML escaping.

use std::fmt::Write as _;

use serde_json::{Number, Value, map};

use crate::strconv::format_float;

/// Go's `json.Marshal`: compact, keys sorted by bytes, `<`, `>` and `&` escaped.
pub fn encode(value: &Value) -> String {
    Printer {
        html: true,
        layout: None,
    }
    .print(value)
}

/// As [`encode`], with `<`, `>` and `&` as they are (`SetEscapeHTML(false)`); without the newline an `Encoder` appends.
pub fn encode_raw(value: &Value) -> String {
    Printer {
        html: false,
        layout: None,
    }
    .print(value)
}

/// Go's `json.MarshalIndent`: each line but the first begins with `prefix` and one `indent` per level.
pub fn encode_indent(value: &Value, prefix: &str, indent: &str) -> String {
    Printer {
        html: true,
        layout: Some((prefix, indent)),
    }
    .print(value)
}

/// A number as `json.Marshal` prints it: integers plainly, floats with the fewest digits, exponents only from 1e21 on and
/// below 1e-6.
pub fn format_number(number: &Number) -> String {
    match (number.as_i64(), number.as_u64(), number.as_f64()) {
        (Some(integer), _, _) => integer.to_string(),
        (_, Some(integer), _) => integer.to_string(),
        (_, _, Some(float)) => format_json_float(float),
        _ => number.to_string(),
    }
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
            Value::Number(number) => out.push_str(&format_number(number)),
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
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\x08' => out.push_str("\\b"),
                '\x0c' => out.push_str("\\f"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '<' | '>' | '&' if !self.html => out.push(c),
                '\0'..' ' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                    let _ = write!(out, "\\u{:04x}", u32::from(c)); // writing to a String cannot fail
                }
                _ => out.push(c),
            }
        }
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
}
