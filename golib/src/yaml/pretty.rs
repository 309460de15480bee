//! `toYamlPretty`: yaml.v3 with an indentation of two, straight from the value.

use serde_json::Value;

use super::encode::write;
use super::tree::{Dialect, Node, Scalar, Tree};

/// What yaml.v3 is given: it sees Go's own values, not their JSON.
#[derive(Debug, Clone, PartialEq)]
pub enum Pretty {
    /// Null.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A float, printed as Go's `%g` does.
    Float(f64),
    /// A string, quoted where it needs to be. One that is no UTF-8 is written as `!!binary`.
    Str(Vec<u8>),
    /// A scalar that is never quoted: a time.
    Plain(String),
    /// A list.
    Seq(Vec<Pretty>),
    /// A mapping; its keys are sorted when it is written.
    Map(Vec<(Vec<u8>, Pretty)>),
    /// A Go struct: a mapping whose fields stay in the order of their declaration.
    Struct(Vec<(String, Pretty)>),
}

impl Tree for Pretty {
    fn node(&self) -> Node<'_, Self> {
        Node::Scalar(match self {
            Self::Null => Scalar::Null,
            Self::Bool(value) => Scalar::Bool(*value),
            Self::Int(value) => Scalar::Int(*value),
            Self::Uint(value) => Scalar::Uint(*value),
            Self::Float(value) => Scalar::Float(*value),
            Self::Str(value) => text(value),
            Self::Plain(value) => Scalar::Plain(value),
            Self::Seq(items) => return Node::Sequence(items),
            Self::Map(entries) => return Node::Mapping(named(entries)),
            Self::Struct(fields) => return Node::Struct(named(fields)),
        })
    }
}

fn named<K: AsRef<[u8]>>(entries: &[(K, Pretty)]) -> Vec<(Scalar<'_>, &Pretty)> {
    let entries = entries.iter();
    entries
        .map(|(key, value)| (text(key.as_ref()), value))
        .collect()
}

fn text(bytes: &[u8]) -> Scalar<'_> {
    str::from_utf8(bytes).map_or(Scalar::Binary(bytes), Scalar::Str)
}

/// What a yaml.v3 `Encoder` with `SetIndent(2)` writes, with the newline at the end. Integers print plainly and floats as Go's
/// `%v` does (`1e+06`).
///
/// ```
/// let value = serde_json::json!({"list": ["a"]});
/// assert_eq!(golib::yaml::encode_pretty(&value), "list:\n  - a\n");
/// ```
pub fn encode_pretty(value: &Value) -> String {
    write(value, Dialect::V3)
}

impl Pretty {
    /// As [`encode_pretty`].
    pub fn encode(&self) -> String {
        write(self, Dialect::V3)
    }
}
