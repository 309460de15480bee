//! `$(NAME)` in the fields that variables may stand in (`filters/refvar`).

use std::collections::BTreeMap;

use golib::yaml::node::{Kind, Node, Style, tag};

use crate::config::FieldSpec;
use crate::error::{Error, Result};
use crate::filters::fieldspec;
use crate::fns::{is_null, is_string};
use crate::loader::Build;

/// The value of a variable.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Variable {
    Text(String),
    Int(i64),
    Float(f64),
    Bool(bool),
    /// A list or map, which nothing can be replaced by.
    Collection,
}

impl Variable {
    /// As Go's `%v` prints it.
    fn text(&self) -> Option<String> {
        Some(match self {
            Self::Text(text) => text.clone(),
            Self::Int(integer) => integer.to_string(),
            Self::Float(float) => golib::strconv::format_float(*float, b'g', -1, 64),
            Self::Bool(value) => value.to_string(),
            Self::Collection => return None,
        })
    }
}

pub(crate) type Variables = BTreeMap<String, Variable>;

pub(crate) fn apply(
    spec: &FieldSpec,
    variables: &Variables,
    object: &mut Node,
    build: &Build<'_>,
) -> Result<()> {
    fieldspec::apply(spec, None, object, &mut |node| set(node, variables, build))
}

fn set(node: &mut Node, variables: &Variables, build: &Build<'_>) -> Result<()> {
    if is_null(node) {
        return Ok(());
    }
    match node.kind {
        Kind::Scalar => {
            if is_string(node) {
                update(node, variables, build)?;
            }
        }
        Kind::Mapping => {
            for pair in node.content.chunks_exact_mut(2) {
                if !is_string(&pair[0]) {
                    return Err(Error::new(format!(
                        "invalid map key: value='{}', tag='{}'",
                        pair[0].value, pair[0].tag
                    )));
                }
                if is_string(&pair[1]) {
                    update(&mut pair[1], variables, build)?;
                }
            }
        }
        Kind::Sequence => {
            for item in &mut node.content {
                if !is_string(item) {
                    return Err(Error::new("invalid value type expect a string"));
                }
                update(item, variables, build)?;
            }
        }
    }
    Ok(())
}

fn update(node: &mut Node, variables: &Variables, build: &Build<'_>) -> Result<()> {
    let line = node.line;
    *node = match replace(&node.value, variables, build)? {
        Variable::Text(text) => {
            let mut node = Node::string(text);
            node.style = Style::default();
            node
        }
        Variable::Int(integer) => Node::tagged(integer.to_string(), tag::INT),
        Variable::Bool(value) => Node::tagged(value.to_string(), tag::BOOL),
        Variable::Float(float) => Node::tagged(
            golib::strconv::format_float(float, b'f', -1, 64),
            tag::FLOAT,
        ),
        Variable::Collection => return Ok(()),
    };
    node.line = line;
    Ok(())
}

/// A text with its variables filled in; one that is nothing but a variable becomes its value.
fn replace(text: &str, variables: &Variables, build: &Build<'_>) -> Result<Variable> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let after = &rest[at + 1..];
        if after.is_empty() {
            break;
        }
        out.push_str(&rest[..at]);
        if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            rest = tail;
        } else if let Some(inner) = after.strip_prefix('(') {
            match inner.split_once(')') {
                Some((name, tail)) => {
                    let wrapped = || Variable::Text(format!("$({name})"));
                    let value = match variables.get(name) {
                        None | Some(Variable::Collection) => wrapped(),
                        Some(value) => {
                            if let Variable::Text(text) = value {
                                build.grow_by(text.len())?;
                            }
                            value.clone()
                        }
                    };
                    if text.len() == name.len() + 3 {
                        return Ok(value);
                    }
                    let value = value.text().unwrap_or_default();
                    out.push_str(&value);
                    rest = tail;
                }
                None => {
                    out.push_str("$(");
                    rest = inner;
                }
            }
        } else {
            // Go takes one byte along; it is written as the character of that number.
            out.push('$');
            let first = after.as_bytes()[0];
            out.push(char::from(first));
            rest = if first.is_ascii() {
                &after[1..]
            } else {
                let width = after.chars().next().map_or(1, char::len_utf8);
                &after[width..]
            };
        }
    }
    out.push_str(rest);
    Ok(Variable::Text(out))
}
