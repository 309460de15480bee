//! Text to objects (`resource/factory.go`, kyaml's `ByteReader`).

use golib::yaml::node::{self, Kind, Node, tag};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::fns::{self, field, is_nil_or_empty, is_null};
use crate::loader::Build;
use crate::resource::{Meta, Resource};

/// The objects of a text; lists are taken apart.
///
/// # Errors
/// Text that is no YAML, and what has no kind or name.
pub(crate) fn resources(build: &Build<'_>, text: &[u8]) -> Result<Vec<Resource>> {
    of_nodes(build, read(build, text)?)
}

/// As [`resources`], of documents that were read before.
///
/// # Errors
/// As [`resources`].
pub(crate) fn of_documents(build: &Build<'_>, documents: &[Node]) -> Result<Vec<Resource>> {
    let mut nodes = Vec::with_capacity(documents.len());
    for document in documents {
        document.weigh(&mut build.budget.borrow_mut())?;
        take(document.clone(), documents.len() == 1, &mut nodes);
    }
    nodes
        .iter_mut()
        .try_for_each(|node| merge_anchored(node, build))?;
    of_nodes(build, nodes)
}

fn of_nodes(build: &Build<'_>, nodes: Vec<Node>) -> Result<Vec<Resource>> {
    let nodes = drop_bad(nodes)?;
    let nodes = inline_lists(build, nodes)?;
    Ok(nodes
        .into_iter()
        .map(|node| Resource::new(node, &build.api))
        .collect())
}

/// What a file's name adds to a problem in it (`kusterr.Handler`).
pub(crate) fn in_file(error: Error, path: &str) -> Error {
    if error.contains("error converting YAML to JSON") || error.contains("error unmarshaling JSON")
    {
        let text = format!("YAML file [{path}] encounters a format error.\n{error}\n");
        return error.reworded(text);
    }
    if is_malformed(&error) {
        let text = format!("{error} in File: {path}");
        return error.reworded(text);
    }
    error
}

pub(crate) fn is_malformed(error: &Error) -> bool {
    error.contains("MalformedYAMLError")
}

/// The pieces between lines that begin with `---`.
fn split_documents(text: &str) -> Result<Vec<&str>> {
    let mut documents = Vec::new();
    if text.is_empty() {
        return Ok(documents);
    }
    let mut start = 0;
    let mut from = 0;
    while let Some(found) = text[from..].find("\n---") {
        let at = from + found;
        let line = &text[at + 4..];
        let Some(length) = line.find('\n') else { break };
        let rest = line[..length].trim();
        if !rest.is_empty() && !rest.starts_with('#') {
            return Err(Error::new(format!(
                "invalid document separator: {}",
                text[at..at + 4 + length].trim()
            )));
        }
        documents.push(&text[start..at]);
        start = at + 4 + length + 1;
        from = start;
    }
    documents.push(&text[start..]);
    Ok(documents)
}

fn read(build: &Build<'_>, text: &[u8]) -> Result<Vec<Node>> {
    let text = String::from_utf8_lossy(text).replace("\r\n", "\n");
    let documents = split_documents(&text)?;
    let count = documents.len();
    let mut nodes = Vec::new();
    for (at, document) in documents.into_iter().enumerate() {
        let ended;
        let document = if at + 1 < count {
            ended = format!("{document}\n");
            &ended
        } else {
            document
        };
        let parsed = node::parse(document.as_bytes(), &mut build.budget.borrow_mut());
        let Some(node) =
            parsed.map_err(|error| Error::from(error).context("MalformedYAMLError"))?
        else {
            continue;
        };
        take(node, count == 1, &mut nodes);
    }
    nodes
        .iter_mut()
        .try_for_each(|node| merge_anchored(node, build))?;
    Ok(nodes)
}

/// A document, or the items of a list that stands alone.
fn take(node: Node, is_alone: bool, nodes: &mut Vec<Node>) {
    if is_null(&node) {
        return;
    }
    let meta = Meta::of(&node).unwrap_or_default();
    let is_list = matches!(&*meta.kind, "ResourceList" | "List")
        && (field(&node, "items").is_some() || field(&node, "functionConfig").is_some());
    if !(is_alone && is_list) {
        nodes.push(node);
    } else if let Some(items) = field(&node, "items") {
        nodes.extend(items.content.iter().cloned());
    }
}

/// `DeAnchor`, aliases having been replaced by what they name: fills in what `<<` merges.
pub(crate) fn merge_anchored(node: &mut Node, build: &Build<'_>) -> Result<()> {
    if node.kind == Kind::Mapping {
        let mut merged = None;
        for (key, value) in node.entries() {
            if key.tag == tag::MERGE && merged.replace(value).is_some() {
                return Err(Error::new("duplicate merge key"));
            }
        }
        if let Some(value) = merged {
            let mut values = Vec::new();
            merge_values(value, &mut values)?;
            let entries: usize = values.iter().map(|value| value.content.len()).sum();
            let length = entries + node.content.len();
            build.work(1 + length.saturating_mul(length) / 256)?;
            build.grow(node)?;
            fns::clear(node, "<<")?;
            let mut result = node.clone();
            let own = std::mem::take(&mut node.content);
            for source in values.iter().map(|value| &value.content).chain([&own]) {
                for pair in source.chunks_exact(2) {
                    match fns::position(&result, &pair[0].value) {
                        Some(at) => result.content[at - 1..=at].clone_from_slice(pair),
                        None => result.content.extend_from_slice(pair),
                    }
                }
            }
            *node = result;
        }
    }
    node.content
        .iter_mut()
        .try_for_each(|node| merge_anchored(node, build))
}

/// The maps to merge, in the order they are put in: of several the first wins.
fn merge_values(node: &Node, values: &mut Vec<Node>) -> Result<()> {
    match node.kind {
        Kind::Mapping => values.insert(0, node.clone()),
        _ if node.was_alias => {
            return Err(Error::new(
                "invalid map merge: received alias for a non-map value",
            ));
        }
        Kind::Sequence => {
            for item in &node.content {
                if item.kind == Kind::Sequence && !item.was_alias {
                    return Err(Error::new("invalid map merge: received a nested sequence"));
                }
                merge_values(item, values)?;
            }
        }
        Kind::Scalar => {
            return Err(Error::new(
                "map merge requires map or sequence of maps as the value",
            ));
        }
    }
    Ok(())
}

fn drop_bad(nodes: Vec<Node>) -> Result<Vec<Node>> {
    let mut kept = Vec::with_capacity(nodes.len());
    for node in nodes {
        if is_nil_or_empty(&node) {
            continue;
        }
        Resource::validate(&node)?;
        kept.push(node);
    }
    Ok(kept)
}

fn inline_lists(build: &Build<'_>, nodes: Vec<Node>) -> Result<Vec<Node>> {
    /// Lists in lists.
    const MAX_ROUNDS: usize = 10_000;
    let mut queue: std::collections::VecDeque<Node> = nodes.into();
    let mut result = Vec::new();
    let mut rounds = 0;
    while let Some(node) = queue.pop_front() {
        let kind = field(&node, "kind").map_or("", |kind| &*kind.value);
        if !kind.ends_with("List") {
            result.push(node);
            continue;
        }
        rounds += 1;
        if rounds > MAX_ROUNDS {
            return Err(Error::limit("too many lists of objects"));
        }
        let items = field(&node, "items").filter(|items| !is_null(items));
        let value = node.decode().map_err(|error| {
            // Go reads the list before it writes its items.
            if let (node::Error::Json(_), Some(items)) = (&error, items) {
                return match items.kind {
                    Kind::Mapping => not_an_array(kind, "map[string]interface {}"),
                    _ => error.into(),
                };
            }
            Error::new(format!(
                "trouble expanding list of {kind}; received error {error} for the following resource:\n{}",
                node.to_yaml()
            ))
        })?;
        match value.get("items") {
            None => result.push(node),
            Some(Value::Null) => {}
            Some(Value::Array(items)) => {
                let mut inner = Vec::new();
                for item in items {
                    let text = golib::json::encode(item);
                    inner.extend(drop_bad(read(build, text.as_bytes())?)?);
                }
                queue.extend(inner);
            }
            Some(other) => {
                let found = match other {
                    Value::Number(number) if !number.is_f64() => "int",
                    other => golib::json::go_type(other),
                };
                return Err(not_an_array(kind, found));
            }
        }
    }
    Ok(result)
}

fn not_an_array(kind: &str, found: &str) -> Error {
    Error::new(format!("expected array in {kind}/items, but found {found}"))
}

/// The node that Go makes of data, by way of its YAML.
pub(crate) fn node_of(value: &Value) -> Node {
    match value {
        Value::Null => Node::null(),
        Value::Bool(value) => Node::tagged(value.to_string(), tag::BOOL),
        Value::Number(_) => {
            let text = golib::json::go_text(value);
            let tag = node::resolved_tag(&text);
            Node::tagged(text, tag)
        }
        Value::String(text) => Node::encoded_string(text),
        Value::Array(items) => Node {
            content: items.iter().map(node_of).collect(),
            ..Node::collection(Kind::Sequence)
        },
        Value::Object(entries) => {
            let mut node = Node::collection(Kind::Mapping);
            for (key, value) in entries {
                node.content.push(node_of(&Value::String(key.clone())));
                node.content.push(node_of(value));
            }
            node
        }
    }
}
