//! Decoded YAML before JSON narrows it: keys keep their types, floats may be infinite.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Number, Value};

use super::error::Error;
use crate::strconv::{format_float, quote};

/// A value as yaml.v2 puts it into an `any`.
#[derive(Debug)]
pub(super) enum Raw {
    Scalar(Key),
    Seq(Vec<Raw>),
    Map(BTreeMap<Key, Raw>),
}

impl Default for Raw {
    fn default() -> Self {
        Self::Scalar(Key::Null)
    }
}

/// A scalar, which may be a map key. Ordered by type, then by value.
#[derive(Debug, Clone)]
pub(super) enum Key {
    Null,
    Bool(bool),
    Int(i64),
    /// Beyond an i64.
    Uint(u64),
    Float(f64),
    Str(String),
}

impl Key {
    fn rank(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Bool(_) => 1,
            Self::Int(_) => 2,
            Self::Uint(_) => 3,
            Self::Float(_) => 4,
            Self::Str(_) => 5,
        }
    }

    /// As Go prints it with `%#v`.
    fn go_syntax(&self, out: &mut String) {
        let _ = match self {
            Self::Null => write!(out, "interface {{}}(nil)"),
            Self::Bool(value) => write!(out, "{value}"),
            Self::Int(value) => write!(out, "{value}"),
            Self::Uint(value) => write!(out, "{value:#x}"),
            Self::Float(value) => write!(out, "{}", format_float(*value, b'g', -1, 64)),
            Self::Str(value) => write!(out, "{}", quote(value)),
        };
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Int(a), Self::Int(b)) => a.cmp(b),
            (Self::Uint(a), Self::Uint(b)) => a.cmp(b),
            (Self::Float(a), Self::Float(b)) => (a + 0.0).total_cmp(&(b + 0.0)), // -0 is 0
            (Self::Str(a), Self::Str(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key {}

/// Taken apart level by level, so that depth costs no stack.
impl Drop for Raw {
    fn drop(&mut self) {
        let mut pending = Vec::new();
        self.take_children(&mut pending);
        while let Some(mut next) = pending.pop() {
            next.take_children(&mut pending);
        }
    }
}

/// Says of a path of keys whether its value is wanted.
pub(super) type Keep<'k> = &'k dyn Fn(&[&str]) -> bool;

/// How the target of a decode retypes scalars, as sigs.k8s.io/yaml does on the way to JSON.
#[derive(Clone, Copy)]
pub(super) enum Target<'k> {
    Any,
    /// A struct with texts at these places: floats there that JSON lacks become text.
    Texts(Keep<'k>),
}

impl Raw {
    fn take_children(&mut self, into: &mut Vec<Self>) {
        match self {
            Self::Seq(items) => into.append(items),
            Self::Map(entries) => into.extend(std::mem::take(entries).into_values()),
            _ => {}
        }
    }

    /// A map key, or the value back when it is a collection.
    pub(super) fn into_key(mut self) -> Result<Key, Self> {
        match &mut self {
            Self::Scalar(key) => Ok(std::mem::replace(key, Key::Null)),
            Self::Seq(_) | Self::Map(_) => Err(self),
        }
    }

    /// As `YAMLToJSON` does: keys become text, and the first float in key order that JSON lacks is an error.
    pub(super) fn into_json(self, target: Target<'_>) -> Result<Value, Error> {
        let mut unsupported = None;
        let mut frames: Vec<JsonFrame> = Vec::new();
        let mut current = self;
        loop {
            let mut done = match &mut current {
                Self::Scalar(scalar) => match std::mem::replace(scalar, Key::Null) {
                    Key::Null => Value::Null,
                    Key::Bool(value) => value.into(),
                    Key::Int(value) => value.into(),
                    Key::Uint(value) => value.into(),
                    Key::Float(value) => match Number::from_f64(value) {
                        Some(number) => number.into(),
                        None if matches!(target, Target::Texts(is_text) if is_text(&keys_of(&frames))) => {
                            format_float(value, b'g', -1, 32).into()
                        }
                        None => {
                            unsupported.get_or_insert(value);
                            Value::Null
                        }
                    },
                    Key::Str(value) => value.into(),
                },
                Self::Seq(items) => {
                    let items = std::mem::take(items).into_iter();
                    frames.push(JsonFrame::Array(items, Vec::new()));
                    Value::Null
                }
                Self::Map(entries) => {
                    let mut named = Vec::with_capacity(entries.len());
                    for (key, value) in std::mem::take(entries) {
                        named.push((json_key(key, &value)?, value));
                    }
                    named.sort_by(|(a, _), (b, _)| a.cmp(b));
                    frames.push(JsonFrame::Object(
                        named.into_iter(),
                        Map::new(),
                        String::new(),
                    ));
                    Value::Null
                }
            };
            let mut opened = matches!(current, Self::Seq(_) | Self::Map(_));
            // Hand what is done to the collection around it, and close collections that are complete.
            loop {
                let Some(frame) = frames.last_mut() else {
                    return match unsupported {
                        Some(float) => {
                            let text = format_float(float, b'g', -1, 64);
                            Err(Error::Conversion(format!(
                                "json: unsupported value: {text}"
                            )))
                        }
                        None => Ok(done),
                    };
                };
                if !std::mem::take(&mut opened) {
                    frame.add(done);
                }
                if let Some(next) = frame.next() {
                    current = next;
                    break;
                }
                done = match frames.pop() {
                    Some(JsonFrame::Array(_, items)) => Value::Array(items),
                    Some(JsonFrame::Object(_, entries, _)) => Value::Object(entries),
                    None => Value::Null,
                };
            }
        }
    }

    /// As Go prints the value with `%#v`.
    pub(super) fn go_syntax(&self) -> String {
        enum Part<'a> {
            Value(&'a Raw),
            Text(&'a str),
            Key(&'a Key),
        }
        let mut out = String::new();
        let mut pending = vec![Part::Value(self)];
        while let Some(part) = pending.pop() {
            let value = match part {
                Part::Text(text) => {
                    out.push_str(text);
                    continue;
                }
                Part::Key(key) => {
                    key.go_syntax(&mut out);
                    continue;
                }
                Part::Value(value) => value,
            };
            match value {
                Self::Scalar(key) => key.go_syntax(&mut out),
                Self::Seq(items) => {
                    pending.push(Part::Text("}"));
                    for (index, item) in items.iter().enumerate().rev() {
                        pending.push(Part::Value(item));
                        if index > 0 {
                            pending.push(Part::Text(", "));
                        }
                    }
                    out.push_str("[]interface {}{");
                }
                Self::Map(entries) => {
                    pending.push(Part::Text("}"));
                    for (index, (key, item)) in entries.iter().enumerate().rev() {
                        pending.push(Part::Value(item));
                        pending.push(Part::Text(":"));
                        pending.push(Part::Key(key));
                        if index > 0 {
                            pending.push(Part::Text(", "));
                        }
                    }
                    out.push_str("map[interface {}]interface {}{");
                }
            }
        }
        out
    }

    /// As [`Self::go_syntax`], for a value that is printed by itself.
    pub(super) fn go_syntax_alone(&self) -> String {
        if matches!(self, Self::Scalar(Key::Null)) {
            "<nil>".into()
        } else {
            self.go_syntax()
        }
    }
}

enum JsonFrame {
    Array(std::vec::IntoIter<Raw>, Vec<Value>),
    Object(
        std::vec::IntoIter<(String, Raw)>,
        Map<String, Value>,
        String,
    ),
}

impl JsonFrame {
    fn add(&mut self, value: Value) {
        match self {
            Self::Array(_, items) => items.push(value),
            Self::Object(_, entries, key) => {
                entries.insert(std::mem::take(key), value);
            }
        }
    }

    fn next(&mut self) -> Option<Raw> {
        match self {
            Self::Array(rest, _) => rest.next(),
            Self::Object(rest, _, key) => {
                let (name, value) = rest.next()?;
                *key = name;
                Some(value)
            }
        }
    }
}

/// The keys that lead into the innermost collection.
fn keys_of(frames: &[JsonFrame]) -> Vec<&str> {
    let keys = frames.iter().filter_map(|frame| match frame {
        JsonFrame::Object(_, _, key) => Some(key.as_str()),
        JsonFrame::Array(..) => None,
    });
    keys.collect()
}

fn json_key(key: Key, value: &Raw) -> Result<String, Error> {
    Ok(match key {
        Key::Str(text) => text,
        Key::Bool(value) => value.to_string(),
        Key::Int(value) => value.to_string(),
        Key::Float(value) if value.is_nan() => ".nan".into(),
        Key::Float(value) if value.is_infinite() => {
            if value > 0.0 { ".inf" } else { "-.inf" }.into()
        }
        Key::Float(value) => float_text(value),
        Key::Null | Key::Uint(_) => {
            let go_type = if key == Key::Null {
                "%!s(<nil>)"
            } else {
                "uint64"
            };
            return Err(Error::Conversion(format!(
                "unsupported map key of type: {go_type}, key: {}, value: {}",
                Raw::Scalar(key).go_syntax_alone(),
                value.go_syntax_alone()
            )));
        }
    })
}

/// A float as text where a string is wanted: its shortest 32-bit form.
fn float_text(value: f64) -> String {
    match format_float(value, b'g', -1, 32).as_str() {
        "+Inf" => ".inf".into(),
        "-Inf" => "-.inf".into(),
        text => text.to_owned(),
    }
}
