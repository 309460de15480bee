//! `toYamlPretty`: yaml.v3 with an indentation of two, straight from the value.

use serde_json::Value;

use super::encode::write;
use super::tree::{Dialect, Node, Scalar, Tree};

/// What yaml.v3 is given: it sees Go's own values, not their JSON.
#[derive(Debug, Clone, PartialEq)]
pub enum Pretty {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Str(String),
    /// A scalar that is never quoted: a time.
    Plain(String),
    Seq(Vec<Pretty>),
    Map(Vec<(String, Pretty)>),
}

impl Tree for Pretty {
    fn node(&self) -> Node<'_, Self> {
        Node::Scalar(match self {
            Self::Null => Scalar::Null,
            Self::Bool(value) => Scalar::Bool(*value),
            Self::Int(value) => Scalar::Int(*value),
            Self::Uint(value) => Scalar::Uint(*value),
            Self::Float(value) => Scalar::Float(*value),
            Self::Str(value) => Scalar::Str(value),
            Self::Plain(value) => Scalar::Plain(value),
            Self::Seq(items) => return Node::Sequence(items),
            Self::Map(entries) => {
                let entries = entries.iter().map(|(key, value)| (Scalar::Str(key), value));
                return Node::Mapping(entries.collect());
            }
        })
    }
}

/// What a yaml.v3 `Encoder` with `SetIndent(2)` writes, with the newline at the end. Integers print plainly and floats as Go's
/// `%v` does (`1e+06`).
pub fn encode_pretty(value: &Value) -> String {
    write(value, Dialect::V3)
}

impl Pretty {
    /// As [`encode_pretty`].
    pub fn encode(&self) -> String {
        write(self, Dialect::V3)
    }
}
