//! Writing: scalars of a table first, then its tables, each group sorted.

use std::fmt::Write as _;

use super::{Error, MAX_DEPTH, Value, key_text, path_text};
use crate::strconv::format_float;

/// Writes a value as the Go library's encoder does. Anything but a table comes out as it would stand behind a key.
///
/// ```
/// use golib::budget::Budget;
/// use golib::toml;
///
/// let document = toml::decode_within(b"a = {b = 1.0}", &mut Budget::default())?;
/// assert_eq!(toml::encode(&toml::Value::Table(document))?, "[a]\n  b = 1.0\n");
/// # Ok::<(), toml::Error>(())
/// ```
///
/// # Errors
/// Nil in an array, an array of tables that has no key, a complex number, and nesting beyond 500 levels.
pub fn encode(value: &Value) -> Result<String, Error> {
    let mut encoder = Encoder::default();
    encoder.entry(&mut Vec::new(), value)?;
    Ok(encoder.out)
}

#[derive(Default)]
struct Encoder {
    out: String,
    depth: usize,
}

impl Encoder {
    /// A value at a path: `key = value` or a table of its own.
    fn entry(&mut self, path: &mut Vec<String>, value: &Value) -> Result<(), Error> {
        self.nested(|encoder| match value {
            Value::Nil => Ok(()),
            // Behind a key `in_order` has refused it.
            Value::Complex => Err(Error::UnsupportedType(
                "unsupported type for key '': complex128",
            )),
            Value::Table(_) | Value::Struct(_) => {
                if path.len() == 1 {
                    encoder.newline();
                }
                if !path.is_empty() {
                    encoder.indent(path);
                    let _ = writeln!(encoder.out, "[{}]", path_text(path));
                }
                encoder.entries(path, value)
            }
            Value::Array(items) | Value::Tables(items) if is_table_array(items)? => {
                if path.is_empty() {
                    return Err(Error::Encode("top-level values must be Go maps or structs"));
                }
                for item in items {
                    encoder.newline();
                    encoder.indent(path);
                    let _ = writeln!(encoder.out, "[[{}]]", path_text(path));
                    encoder.entries(path, item)?;
                }
                Ok(())
            }
            _ => {
                if let Some(key) = path.last() {
                    let key = key_text(key);
                    encoder.indent(path);
                    let _ = write!(encoder.out, "{key} = ");
                }
                encoder.element(value)?;
                if !path.is_empty() {
                    encoder.newline();
                }
                Ok(())
            }
        })
    }

    fn entries(&mut self, path: &mut Vec<String>, table: &Value) -> Result<(), Error> {
        for (key, value) in in_order(&declared(table))? {
            path.push(key.clone());
            self.entry(path, value)?;
            path.pop();
        }
        Ok(())
    }

    /// A value on one line.
    fn element(&mut self, value: &Value) -> Result<(), Error> {
        self.nested(|encoder| {
            let out = &mut encoder.out;
            match value {
                Value::Nil | Value::Complex => return check_element(value),
                Value::Bool(value) => out.push_str(&value.to_string()),
                Value::Integer(value) => out.push_str(&value.to_string()),
                Value::Unsigned(value) => out.push_str(&value.to_string()),
                Value::Float(value) => out.push_str(&float(*value)),
                Value::String(text) => out.push_str(&quoted(text)),
                Value::Datetime(time) => {
                    let layout = match time.zone() {
                        crate::time::Zone::Fixed { name, .. } => match name.as_ref() {
                            "datetime-local" => "2006-01-02T15:04:05.999999999",
                            "date-local" => "2006-01-02",
                            "time-local" => "15:04:05.999999999",
                            _ => "2006-01-02T15:04:05.999999999Z07:00",
                        },
                        _ => "2006-01-02T15:04:05.999999999Z07:00",
                    };
                    out.push_str(&String::from_utf8_lossy(&time.format(layout)));
                }
                Value::Array(items) | Value::Tables(items) => {
                    is_table_array(items)?;
                    out.push('[');
                    for (index, item) in items.iter().enumerate() {
                        if index > 0 {
                            encoder.out.push_str(", ");
                        }
                        encoder.element(item)?;
                    }
                    encoder.out.push(']');
                }
                Value::Table(_) | Value::Struct(_) => {
                    out.push('{');
                    let entries = declared(value);
                    let ordered = in_order(&entries)?;
                    let last = ordered.len().saturating_sub(1);
                    let ends_in_nil = ends_in_nil(&entries)?;
                    for (index, (key, item)) in ordered.into_iter().enumerate() {
                        let _ = write!(encoder.out, "{} = ", key_text(key));
                        encoder.element(item)?;
                        if index < last || ends_in_nil {
                            encoder.out.push_str(", ");
                        }
                    }
                    encoder.out.push('}');
                }
            }
            Ok(())
        })
    }

    fn nested(&mut self, write: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<(), Error> {
        if self.depth == MAX_DEPTH {
            return Err(Error::Encode("value is nested too deeply"));
        }
        self.depth += 1;
        let result = write(self);
        self.depth -= 1;
        result
    }

    fn newline(&mut self) {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
    }

    fn indent(&mut self, path: &[String]) {
        self.out
            .extend(std::iter::repeat_n("  ", path.len().saturating_sub(1)));
    }
}

type Entry<'a> = (&'a String, &'a Value);

/// The entries of a table, sorted, or of a struct, as declared; of anything else none.
fn declared(table: &Value) -> Vec<Entry<'_>> {
    match table {
        Value::Table(entries) => entries.iter().collect(),
        Value::Struct(fields) => fields.iter().map(|(key, value)| (key, value)).collect(),
        _ => Vec::new(),
    }
}

/// The entries that are no tables, then those that are; nil is left out.
fn in_order<'a>(entries: &[Entry<'a>]) -> Result<Vec<Entry<'a>>, Error> {
    let mut direct = Vec::new();
    let mut tables = Vec::new();
    for &(key, value) in entries {
        match value {
            Value::Nil => {}
            Value::Complex => check_element(value)?,
            Value::Table(_) | Value::Struct(_) => tables.push((key, value)),
            Value::Array(items) | Value::Tables(items) if is_table_array(items)? => {
                tables.push((key, value))
            }
            _ => direct.push((key, value)),
        }
    }
    direct.append(&mut tables);
    Ok(direct)
}

/// Whether the last entry is one that is left out. The library has written the comma before it by then.
fn ends_in_nil(entries: &[Entry<'_>]) -> Result<bool, Error> {
    let mut last_is_nil = false;
    for (_, value) in entries {
        match value {
            Value::Table(_) | Value::Struct(_) => return Ok(false),
            Value::Array(items) | Value::Tables(items) if is_table_array(items)? => {
                return Ok(false);
            }
            value => last_is_nil = matches!(value, Value::Nil),
        }
    }
    Ok(last_is_nil)
}

/// Whether there are tables only. Fails at what no array may hold.
fn is_table_array(items: &[Value]) -> Result<bool, Error> {
    for item in items {
        check_element(item)?;
        // Go looks at the elements of nested arrays too.
        if let Value::Array(inner) | Value::Tables(inner) = item {
            inner.iter().try_for_each(check_element)?;
        }
    }
    Ok(!items.is_empty()
        && items
            .iter()
            .all(|item| matches!(item, Value::Table(_) | Value::Struct(_))))
}

fn check_element(item: &Value) -> Result<(), Error> {
    match item {
        Value::Nil => Err(Error::Encode("cannot encode array with nil element")),
        Value::Complex => Err(Error::UnsupportedType("unsupported type: complex128")),
        _ => Ok(()),
    }
}

fn float(value: f64) -> String {
    if value.is_nan() || value.is_infinite() {
        let sign = if value.is_sign_negative() { "-" } else { "" };
        return format!("{sign}{}", if value.is_nan() { "nan" } else { "inf" });
    }
    let text = format_float(value, b'g', -1, 64);
    if text.contains(['e', '.']) {
        text
    } else {
        format!("{text}.0")
    }
}

pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\x08' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\x0c' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            '\0'..' ' | '\x7f' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c)); // writing to a String cannot fail
            }
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}
