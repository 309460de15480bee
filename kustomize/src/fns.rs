//! Reading and editing nodes by path, as kyaml's `yaml/fns.go` and `yaml/rnode.go` do: what is missing is no error, what is
//! of another kind is one, and a value put in place of another keeps the style of its predecessor.

use std::collections::BTreeMap;

use golib::yaml::node::{Kind, Node, ScalarStyle, tag};

use crate::error::{Error, Result};

/// Labels, annotations and the like.
pub(crate) type Texts = BTreeMap<String, String>;

pub(crate) fn is_null(node: &Node) -> bool {
    node.tag == tag::NULL
}

/// `IsYNodeNilOrEmpty`.
pub(crate) fn is_nil_or_empty(node: &Node) -> bool {
    is_null(node) || node.kind != Kind::Scalar && node.content.is_empty()
}

pub(crate) fn is_empty_map(node: &Node) -> bool {
    is_null(node) || node.kind == Kind::Mapping && node.content.is_empty()
}

/// `IsYNodeString`.
pub(crate) fn is_string(node: &Node) -> bool {
    node.kind == Kind::Scalar && (node.tag == tag::STR || node.tag.is_empty())
}

/// `GetValue`.
pub(crate) fn value_of(node: &Node) -> &str {
    if is_null(node) { "" } else { &node.value }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Scalar => "ScalarNode",
        Kind::Sequence => "SequenceNode",
        Kind::Mapping => "MappingNode",
    }
}

/// `ErrorIfInvalid`: null is of any kind.
pub(crate) fn expect_kind(node: &Node, kind: Kind) -> Result<()> {
    if is_null(node) || node.kind == kind {
        return Ok(());
    }
    Err(Error::wrong_kind(format!(
        "wrong node kind: expected {} but got {}: node contents:\n{}",
        kind_name(kind),
        kind_name(node.kind),
        node.to_yaml(),
    )))
}

/// The place of an entry's value in a mapping's content: of the first of several.
pub(crate) fn position(node: &Node, name: &str) -> Option<usize> {
    if node.kind != Kind::Mapping {
        return None;
    }
    node.content
        .chunks_exact(2)
        .position(|pair| pair[0].value == name)
        .map(|at| 2 * at + 1)
}

/// `RNode.Field`: nothing of what is no mapping.
pub(crate) fn field<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    position(node, name).map(|at| &node.content[at])
}

pub(crate) fn field_mut<'a>(node: &'a mut Node, name: &str) -> Option<&'a mut Node> {
    position(node, name).map(|at| &mut node.content[at])
}

/// `Get(name)`: as [`field`], and an error for what is no mapping.
pub(crate) fn get<'a>(node: &'a Node, name: &str) -> Result<Option<&'a Node>> {
    if is_null(node) {
        return Ok(None);
    }
    expect_kind(node, Kind::Mapping)?;
    Ok(field(node, name))
}

pub(crate) fn get_mut<'a>(node: &'a mut Node, name: &str) -> Result<Option<&'a mut Node>> {
    if is_null(node) {
        return Ok(None);
    }
    expect_kind(node, Kind::Mapping)?;
    Ok(field_mut(node, name))
}

/// One part of a path.
enum Part<'a> {
    Index(usize),
    Last,
    /// `[name=value]`
    Element(&'a str, &'a str),
    Field(&'a str),
}

fn part(text: &str) -> Result<Part<'_>> {
    if let Ok(index) = golib::strconv::atoi(text) {
        return match usize::try_from(index) {
            Ok(index) => Ok(Part::Index(index)),
            Err(_) => Err(Error::new(format!(
                "array index {index} cannot be negative"
            ))),
        };
    }
    match text {
        "-" => Ok(Part::Last),
        "*" => Err(Error::new("wildcard is not supported in PathGetter")),
        _ if is_list_index(text) => {
            let (name, value) = split_index_name_value(text)?;
            Ok(Part::Element(name, value))
        }
        _ => Ok(Part::Field(text)),
    }
}

pub(crate) fn is_list_index(text: &str) -> bool {
    text.starts_with('[') && text.ends_with(']')
}

pub(crate) fn is_index_number(text: &str) -> bool {
    golib::strconv::atoi(text).is_ok_and(|index| index >= 0)
}

pub(crate) fn split_index_name_value(text: &str) -> Result<(&str, &str)> {
    let inner = text.strip_suffix(']').unwrap_or(text);
    let inner = inner.strip_prefix('[').unwrap_or(inner);
    inner.split_once('=').ok_or_else(|| {
        Error::new("list path element must contain fieldName=fieldValue for element to match")
    })
}

/// What a path's next part makes of the node before it.
pub(crate) fn path_part_kind(next: &str, default: Kind) -> Kind {
    if is_list_index(next) || is_index_number(next) {
        Kind::Sequence
    } else if next.is_empty() {
        default
    } else {
        Kind::Mapping
    }
}

fn elements(node: &Node) -> Result<usize> {
    expect_kind(node, Kind::Sequence)?;
    Ok(if is_null(node) { 0 } else { node.content.len() })
}

fn matching_element(node: &Node, name: &str, value: &str) -> Result<Option<usize>> {
    expect_kind(node, Kind::Sequence)?;
    Ok(node.content.iter().position(|element| {
        if name.is_empty() {
            return element.value == value;
        }
        // Null elements match every kind and have no field.
        field(element, name).is_some_and(|found| found.value == value)
    }))
}

fn clean<'a>(path: &[&'a str]) -> Vec<&'a str> {
    path.iter()
        .map(|part| part.trim())
        .filter(|part| !part.is_empty())
        .collect()
}

/// `Lookup(path...)`.
pub(crate) fn lookup<'a>(node: &'a Node, path: &[&str]) -> Result<Option<&'a Node>> {
    let place = place_of(node, path)?;
    let into = |found: &'a Node, at: usize| &found.content[at];
    Ok(place.map(|place| place.into_iter().fold(node, into)))
}

pub(crate) fn lookup_mut<'a>(node: &'a mut Node, path: &[&str]) -> Result<Option<&'a mut Node>> {
    let place = place_of(node, path)?;
    let into = |found: &'a mut Node, at: usize| &mut found.content[at];
    Ok(place.map(|place| place.into_iter().fold(node, into)))
}

/// As [`lookup`]: where in the content of each collection on the way it is.
pub(crate) fn place_of(node: &Node, path: &[&str]) -> Result<Option<Vec<usize>>> {
    let mut found = node;
    let mut place = Vec::new();
    for text in clean(path) {
        let Some(index) = step(found, text)? else {
            return Ok(None);
        };
        found = &found.content[index];
        place.push(index);
    }
    Ok(Some(place))
}

/// Where a part of a path leads, in the content of a node.
fn step(node: &Node, text: &str) -> Result<Option<usize>> {
    Ok(match part(text)? {
        Part::Index(index) => (index < elements(node)?).then_some(index),
        Part::Last => elements(node)?.checked_sub(1),
        Part::Element(name, value) => matching_element(node, name, value)?,
        Part::Field(_) if is_null(node) => None,
        Part::Field(name) => {
            expect_kind(node, Kind::Mapping)?;
            position(node, name)
        }
    })
}

/// Nodes that a walk through all of a node comes by, in steps of work.
pub(crate) fn walk_cost(node: &Node) -> usize {
    const NODES_A_STEP: usize = 64;
    fn count(node: &Node) -> usize {
        1 + node.content.iter().map(count).sum::<usize>()
    }
    count(node) / NODES_A_STEP
}

/// Fields are made no deeper than documents may nest.
pub(crate) fn expect_depth(depth: usize) -> Result<()> {
    if depth > golib::yaml::node::MAX_DEPTH {
        return Err(Error::limit(format!(
            "a field would be nested deeper than {} levels",
            golib::yaml::node::MAX_DEPTH
        )));
    }
    Ok(())
}

/// `LookupCreate(kind, path...)`: what is missing is made, the last of the path of the given kind.
pub(crate) fn lookup_create<'a>(
    node: &'a mut Node,
    path: &[&str],
    kind: Kind,
) -> Result<Option<&'a mut Node>> {
    let path = clean(path);
    let mut found = node;
    for (at, text) in path.iter().enumerate() {
        let index = match (step(found, text)?, part(text)?) {
            (None, Part::Element(name, value)) if !is_null(found) => {
                found.content.push(new_element(name, value));
                Some(found.content.len() - 1)
            }
            (None, Part::Field(name)) if !is_null(found) => {
                let next = path.get(at + 1).copied().unwrap_or("");
                set_field(found, name, Some(untagged(path_part_kind(next, kind))))?;
                position(found, name)
            }
            (index, _) => index,
        };
        match index {
            Some(index) => found = &mut found.content[index],
            None => return Ok(None),
        }
    }
    Ok(Some(found))
}

pub(crate) fn untagged(kind: Kind) -> Node {
    Node {
        tag: "".into(),
        ..Node::collection(kind)
    }
}

fn new_element(name: &str, value: &str) -> Node {
    if name.is_empty() {
        return Node::scalar(value);
    }
    let mut element = untagged(Kind::Mapping);
    element.content = vec![Node::scalar(name), Node::scalar(value)];
    element
}

/// Whether YAML 1.1 takes a text for something else than text (`IsValueNonString`).
fn is_yaml_1_1_non_string(text: &str) -> bool {
    if text.is_empty() || text.contains('\n') {
        return false;
    }
    match golib::yaml::decode(text.as_bytes()) {
        Ok(value) => !value.is_string(),
        Err(error) => matches!(error, golib::yaml::Error::Conversion(_)),
    }
}

/// `FieldSetter` with a name: sets an entry, or removes it where there is no value or it is null.
///
/// # Errors
/// For what is no mapping.
pub(crate) fn set_field(node: &mut Node, name: &str, value: Option<Node>) -> Result<()> {
    set_field_keeping(node, name, value, false)
}

pub(crate) fn set_field_keeping(
    node: &mut Node,
    name: &str,
    value: Option<Node>,
    keep_null: bool,
) -> Result<()> {
    let Some(mut value) = value.filter(|value| keep_null || !is_null(value)) else {
        return clear(node, name);
    };
    quote_if_needed(&mut value);
    if is_null(node) {
        // `FieldMatcher` finds nothing in null, and what is appended to it is never seen.
        return Ok(());
    }
    expect_kind(node, Kind::Mapping)?;
    match field_mut(node, name) {
        Some(old) => put(old, value),
        None => {
            node.content.push(Node::scalar(name));
            node.content.push(value);
        }
    }
    Ok(())
}

pub(crate) fn quote_if_needed(value: &mut Node) {
    if is_string(value)
        && value.style == golib::yaml::node::Style::default()
        && is_yaml_1_1_non_string(&value.value)
    {
        value.style.scalar = ScalarStyle::DoubleQuoted;
    }
}

/// A value put in place of another takes over how that was written, and who shares it.
fn put(old: &mut Node, value: Node) {
    let line = if is_shared(old) { old.line } else { 0 };
    *old = Node {
        style: old.style,
        line,
        ..value
    };
}

/// From here on, a node's line says which nodes Go has as one: it puts one value into several fields, and whoever changes it in
/// one of them changes all.
const SHARED: u32 = 1 << 31;

/// The mark of a group of nodes.
pub(crate) fn share(group: usize) -> u32 {
    SHARED | u32::try_from(group).unwrap_or(SHARED - 1)
}

pub(crate) fn is_shared(node: &Node) -> bool {
    node.line >= SHARED
}

/// Takes a node, and what is in it, out of its groups.
pub(crate) fn unshare(node: &mut Node) {
    if is_shared(node) {
        node.line = 0;
    }
    node.content.iter_mut().for_each(unshare);
}

/// `FieldSetter` without a name: replaces a scalar.
pub(crate) fn set_scalar(node: &mut Node, mut value: Node) -> Result<()> {
    quote_if_needed(&mut value);
    expect_kind(node, Kind::Scalar)?;
    if is_null(&value) {
        return Ok(());
    }
    put(node, value);
    Ok(())
}

/// `Clear(name)`.
pub(crate) fn clear(node: &mut Node, name: &str) -> Result<()> {
    expect_kind(node, Kind::Mapping)?;
    if let Some(at) = position(node, name) {
        node.content.drain(at - 1..=at);
    }
    Ok(())
}

/// Removes an entry that holds nothing.
fn clear_if_empty(node: &mut Node, name: &str) -> Result<()> {
    expect_kind(node, Kind::Mapping)?;
    if let Some(at) = position(node, name)
        && node.content[at].content.is_empty()
    {
        node.content.drain(at - 1..=at);
    }
    Ok(())
}

/// `SetAnnotation`.
pub(crate) fn set_annotation(node: &mut Node, key: &str, value: &str) -> Result<()> {
    // `ClearEmptyAnnotations`.
    if let Some(metadata) = get_mut(node, "metadata")? {
        clear_if_empty(metadata, "annotations")?;
    }
    clear_if_empty(node, "metadata")?;
    add_metadata(node, "annotations", key, value)
}

/// `SetLabel`.
pub(crate) fn set_label(node: &mut Node, key: &str, value: &str) -> Result<()> {
    add_metadata(node, "labels", key, value)
}

fn add_metadata(node: &mut Node, map: &str, key: &str, value: &str) -> Result<()> {
    let mut text = Node::string(value);
    text.style.scalar = ScalarStyle::SingleQuoted;
    match lookup_create(node, &["metadata", map], Kind::Mapping)? {
        Some(entries) => set_field(entries, key, Some(text)),
        None => Ok(()),
    }
}

/// What a path in slashes or dots consists of; a backslash keeps a delimiter in its part (`PathSplitter`).
pub(crate) fn split_path(path: &str, delimiter: char) -> Result<Vec<String>> {
    no_deeper_than_fields(path_parts(path, delimiter))
}

fn path_parts(path: &str, delimiter: char) -> impl Iterator<Item = String> {
    let mut parts = path
        .strip_prefix(delimiter)
        .unwrap_or(path)
        .split(delimiter);
    std::iter::from_fn(move || {
        let mut whole = parts.next()?.to_owned();
        while whole.ends_with('\\')
            && let Some(part) = parts.next()
        {
            whole.pop();
            whole.push(delimiter);
            whole.push_str(part);
        }
        Some(whole)
    })
}

/// The parts of a path, which may have as many as it has bytes: no more are made than lead to a field.
fn no_deeper_than_fields(parts: impl Iterator<Item = String>) -> Result<Vec<String>> {
    let mut result = Vec::new();
    for part in parts {
        expect_depth(result.len() + 1)?;
        result.push(part);
    }
    Ok(result)
}

/// As [`split_path`], with delimiters inside of brackets kept (`SmarterPathSplitter`).
pub(crate) fn split_path_smartly(path: &str, delimiter: char) -> Result<Vec<String>> {
    let mut parts = path_parts(path, delimiter);
    no_deeper_than_fields(std::iter::from_fn(move || {
        let part = parts.next()?;
        if !part.starts_with('[') || part.ends_with(']') {
            return Some(part);
        }
        let mut bracketed = part;
        for next in parts.by_ref() {
            bracketed.push(delimiter);
            bracketed.push_str(&next);
            if next.ends_with(']') {
                break;
            }
        }
        Some(match bracketed.contains('=') {
            true => bracketed,
            false => bracketed.trim_matches(['[', ']']).to_owned(),
        })
    }))
}
