//! Values to YAML: what is written, in which order and style (yaml.v2's `encode.go`), over the writer in `emitter.rs`.

use serde_json::Value;

use super::emitter::{Collection, Emitter};
use super::resolve::is_plain_string;
use super::value::{Key, Raw};
use super::{Error, order, read};
use crate::json;
use crate::strconv::format_float;

/// Whose habits are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// yaml.v2: lists level with their key, lines folded at 80.
    V2,
    /// yaml.v3 with an indentation of two: lists indented below their key, nothing folded.
    V3,
}

/// Go's `yaml.Marshal`, with its newline at the end: JSON, read as YAML, written by yaml.v2.
///
/// # Errors
/// Text that YAML cannot hold, such as DEL or U+FFFE, and what else yaml.v2 fails to read back from JSON (keys beyond 1,024
/// characters).
pub fn encode(value: &Value) -> Result<String, Error> {
    json_to_yaml(json::encode(value).as_bytes())
}

/// Go's `JSONToYAML`: the text is read as YAML, so integers stay exact and JSON's own rules are not enforced.
///
/// # Errors
/// As [`encode`], and for text that is neither JSON nor YAML.
pub fn json_to_yaml(text: &[u8]) -> Result<String, Error> {
    let value = read(text, false).map_err(|error| match error {
        Error::Yaml(text) => Error::Encode(text),
        other => other,
    })?;
    Ok(write(&value, Dialect::V2))
}

/// A scalar about to be written.
#[derive(Clone, Copy)]
pub(super) enum Scalar<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Str(&'a str),
}

/// A value about to be written: a scalar, or its parts.
pub(super) enum Node<'a, T> {
    Scalar(Scalar<'a>),
    Sequence(&'a [T]),
    Mapping(Vec<(Scalar<'a>, &'a T)>),
}

/// What can be written.
pub(super) trait Tree: Sized {
    fn node(&self) -> Node<'_, Self>;
}

impl Tree for Raw {
    fn node(&self) -> Node<'_, Self> {
        Node::Scalar(match self {
            Self::Null => Scalar::Null,
            Self::Bool(value) => Scalar::Bool(*value),
            Self::Int(value) => Scalar::Int(*value),
            Self::Uint(value) => Scalar::Uint(*value),
            Self::Float(value) => Scalar::Float(*value),
            Self::Str(value) => Scalar::Str(value),
            Self::Seq(items) => return Node::Sequence(items),
            Self::Map(entries) => {
                let entries = entries
                    .iter()
                    .map(|(key, value)| (key.into(), value))
                    .collect();
                return Node::Mapping(entries);
            }
        })
    }
}

impl<'a> From<&'a Key> for Scalar<'a> {
    fn from(key: &'a Key) -> Self {
        match key {
            Key::Null => Self::Null,
            Key::Bool(value) => Self::Bool(*value),
            Key::Int(value) => Self::Int(*value),
            Key::Uint(value) => Self::Uint(*value),
            Key::Float(value) => Self::Float(*value),
            Key::Str(value) => Self::Str(value),
        }
    }
}

impl Tree for Value {
    fn node(&self) -> Node<'_, Self> {
        Node::Scalar(match self {
            Self::Null => Scalar::Null,
            Self::Bool(value) => Scalar::Bool(*value),
            Self::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(integer), _) => Scalar::Int(integer),
                (_, Some(integer)) => Scalar::Uint(integer),
                _ => Scalar::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Self::String(value) => Scalar::Str(value),
            Self::Array(items) => return Node::Sequence(items),
            Self::Object(entries) => {
                let entries = entries.iter().map(|(key, value)| (Scalar::Str(key), value));
                return Node::Mapping(entries.collect());
            }
        })
    }
}

enum Frame<'a, T> {
    Sequence(std::slice::Iter<'a, T>),
    Mapping(std::vec::IntoIter<(Scalar<'a>, &'a T)>),
}

/// Writes a document and its final newline.
pub(super) fn write<T: Tree>(value: &T, dialect: Dialect) -> String {
    let mut emitter = Emitter::new(dialect);
    let mut frames: Vec<Frame<'_, T>> = Vec::new();
    open(&mut emitter, &mut frames, value, false, dialect);
    while let Some(frame) = frames.last_mut() {
        match frame {
            Frame::Sequence(items) => match items.next() {
                Some(item) => {
                    emitter.item();
                    open(&mut emitter, &mut frames, item, false, dialect);
                }
                None => {
                    emitter.end();
                    frames.pop();
                }
            },
            Frame::Mapping(entries) => match entries.next() {
                Some((key, value)) => {
                    let (text, quote) = text_of(key, dialect);
                    emitter.key(&text, quote);
                    open(&mut emitter, &mut frames, value, true, dialect);
                }
                None => {
                    emitter.end();
                    frames.pop();
                }
            },
        }
    }
    emitter.finish()
}

/// Writes a scalar or an empty collection; of any other collection the beginning.
fn open<'a, T: Tree>(
    emitter: &mut Emitter,
    frames: &mut Vec<Frame<'a, T>>,
    value: &'a T,
    in_mapping: bool,
    dialect: Dialect,
) {
    match value.node() {
        Node::Scalar(scalar) => {
            let (text, quote) = text_of(scalar, dialect);
            emitter.value(&text, quote);
        }
        Node::Sequence([]) => emitter.empty("[", "]"),
        Node::Mapping(entries) if entries.is_empty() => emitter.empty("{", "}"),
        Node::Sequence(items) => {
            emitter.begin(Collection::Sequence, in_mapping);
            frames.push(Frame::Sequence(items.iter()));
        }
        Node::Mapping(entries) => {
            emitter.begin(Collection::Mapping, in_mapping);
            frames.push(Frame::Mapping(order::sort(entries, dialect).into_iter()));
        }
    }
}

/// The text of a scalar, and whether it must be quoted to stay text.
fn text_of(scalar: Scalar<'_>, dialect: Dialect) -> (std::borrow::Cow<'_, str>, bool) {
    let text = match scalar {
        Scalar::Null => return ("null".into(), false),
        Scalar::Bool(value) => value.to_string(),
        Scalar::Int(value) => value.to_string(),
        Scalar::Uint(value) => value.to_string(),
        Scalar::Float(value) => match format_float(value, b'g', -1, 64).as_str() {
            "+Inf" => ".inf".into(),
            "-Inf" => "-.inf".into(),
            "NaN" => ".nan".into(),
            text => text.into(),
        },
        Scalar::Str(text) => {
            let plain = is_plain_string(text) && !(dialect == Dialect::V3 && is_octal(text));
            return (text.into(), !plain);
        }
    };
    (text.into(), false)
}

/// What only yaml.v3 takes for an octal: a sign behind the prefix.
fn is_octal(text: &str) -> bool {
    let digits = text.replace('_', "");
    let number = match (digits.strip_prefix("0o"), digits.strip_prefix("-0o")) {
        (Some(rest), _) => rest.to_owned(),
        (_, Some(rest)) => format!("-{rest}"),
        _ => return false,
    };
    crate::strconv::parse_int(number, 8, 64).is_ok()
}
