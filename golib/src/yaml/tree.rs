//! What is about to be written, whatever type holds it: the emitter and the order of keys see values only as these.

use serde_json::Value;

use super::value::{Key, Raw};

/// Whose habits are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// yaml.v2: lists level with their key, lines folded at 80.
    V2,
    /// yaml.v3 with an indentation of two: lists indented below their key, nothing folded.
    V3,
    /// The same with lists level with their key (`CompactSeqIndent`).
    V3Compact,
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
    /// Never quoted.
    Plain(&'a str),
    /// Bytes that are no UTF-8, of which yaml.v3 makes `!!binary`.
    Binary(&'a [u8]),
}

/// A value about to be written: a scalar, or its parts.
pub(super) enum Node<'a, T> {
    Scalar(Scalar<'a>),
    Sequence(&'a [T]),
    Mapping(Vec<(Scalar<'a>, &'a T)>),
    /// A mapping that keeps its order.
    Struct(Vec<(Scalar<'a>, &'a T)>),
}

/// What can be written.
pub(super) trait Tree: Sized {
    fn node(&self) -> Node<'_, Self>;
}

impl Tree for Raw {
    fn node(&self) -> Node<'_, Self> {
        match self {
            Self::Scalar(key) => Node::Scalar(key.into()),
            Self::Seq(items) => Node::Sequence(items),
            Self::Map(entries) => {
                let entries = entries.iter().map(|(key, value)| (key.into(), value));
                Node::Mapping(entries.collect())
            }
        }
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
