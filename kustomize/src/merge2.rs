//! Strategic merge as kyaml does it (`yaml/merge2`, `yaml/walk`): by the keys of known types' lists, with `$patch` directives,
//! into nodes that keep their order and style. It differs from the API server's in many ways, so none of that is shared.
//!
//! Go's walker holds pointers, and where the patch takes the place of what it patches both are one node: here that is
//! [`Merger::same`].

use std::collections::{BTreeSet, HashSet};

use golib::yaml::node::{Kind, Node, Style};

use crate::error::{Error, Result};
use crate::fns::{self, field, is_empty_map, is_null};
use crate::loader::Build;
use crate::openapi::{OpenApi, Schema};

/// Merges a patch into an object. `false` when nothing is to be left of it.
///
/// # Errors
/// Values of other kinds than their counterparts, and unknown directives.
pub(crate) fn merge(
    patch: Node,
    dest: &mut Node,
    api: &OpenApi,
    build: &Build<'_>,
) -> Result<bool> {
    match (Merger { api, build }).walk(Some(dest), Some(patch), None)? {
        // Of what a patch puts in the place of a whole object kustomize asks no more than that it is there.
        Outcome::Dest | Outcome::KeepNull | Outcome::Other(_) => Ok(true),
        Outcome::Nothing => Ok(false),
    }
}

struct Merger<'a> {
    api: &'a OpenApi,
    build: &'a Build<'a>,
}

/// Result of merging a node with its patch.
enum Outcome {
    /// The node, changed in place.
    Dest,
    /// Another one in its place.
    Other(Node),
    /// Null that was there in so many words, and stays.
    KeepNull,
    Nothing,
}

impl Outcome {
    fn if_left(self, is_left: bool) -> Self {
        match is_left {
            true => self,
            false => Self::Nothing,
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Directive {
    Merge,
    Replace,
    Delete,
}

const DIRECTIVE: &str = "$patch";

fn directive_of(text: &str) -> Result<Directive> {
    match text {
        "delete" => Ok(Directive::Delete),
        "replace" => Ok(Directive::Replace),
        "merge" => Ok(Directive::Merge),
        _ => Err(Error::new(format!("unknown patch strategy '{text}'"))),
    }
}

/// What a patch asks for; its directive is taken out of it.
fn take_directive(patch: &mut Node, build: &Build<'_>) -> Result<Directive> {
    match patch.kind {
        Kind::Scalar => Err(Error::new(format!(
            "no implemented strategic merge patch strategy for '{}' ('{}')",
            patch.short_tag(),
            patch.to_yaml()
        ))),
        Kind::Mapping => {
            let Some(value) = field(patch, DIRECTIVE) else {
                return Ok(Directive::Merge);
            };
            let directive = directive_of(&value.value)?;
            fns::clear(patch, DIRECTIVE)?;
            Ok(directive)
        }
        Kind::Sequence => {
            let found = patch
                .content
                .iter()
                .find(|element| field(element, DIRECTIVE).is_some());
            let Some(element) = found.filter(|element| element.content.len() <= 2) else {
                return Ok(Directive::Merge);
            };
            let text = field(element, DIRECTIVE).map_or("", |value| &value.value);
            let directive = directive_of(text)?;
            let text = text.to_owned();
            let mut arena = Arena::default();
            let mut list = arena.adopt(std::mem::take(&mut patch.content));
            arena.set_element(&mut list, None, &[DIRECTIVE.into()], &[text])?;
            patch.content = arena.release(&list, build)?;
            Ok(directive)
        }
    }
}

fn non_null(node: &Option<&mut Node>) -> bool {
    node.as_ref().is_some_and(|node| !is_null(node))
}

impl Merger<'_> {
    fn schema(&self, known: Option<&Schema>, nodes: [Option<&Node>; 2]) -> Result<Option<Schema>> {
        if let Some(schema) = known {
            return Ok(Some(schema.clone()));
        }
        for node in nodes.into_iter().flatten() {
            if is_null(node) {
                continue;
            }
            let text = |name| {
                field(node, name)
                    .filter(|value| !fns::is_nil_or_empty(value))
                    .map_or("", |value| &value.value)
            };
            let (api_version, kind) = (text("apiVersion"), text("kind"));
            if api_version.is_empty() || kind.is_empty() {
                continue;
            }
            if let Some(schema) = self.api.schema_of(api_version, kind)? {
                return Ok(Some(schema));
            }
        }
        Ok(None)
    }

    fn walk(
        &self,
        dest: Option<&mut Node>,
        src: Option<Node>,
        known: Option<&Schema>,
    ) -> Result<Outcome> {
        let schema = self.schema(known, [dest.as_deref(), src.as_ref()])?;
        let schema = schema.as_ref();
        let src_kind = src.as_ref().filter(|src| !is_null(src)).map(|src| src.kind);
        let kind = match &dest {
            Some(dest) if !is_null(dest) => Some(dest.kind),
            _ => src_kind,
        };
        let Some(kind) = kind else {
            return Ok(match (src, dest) {
                (Some(src), _) => Outcome::Other(src),
                (None, Some(dest)) if !dest.value.is_empty() => Outcome::KeepNull,
                _ => Outcome::Nothing,
            });
        };
        for node in [dest.as_deref(), src.as_ref()].into_iter().flatten() {
            fns::expect_kind(node, kind)?;
        }
        match kind {
            Kind::Mapping => self.walk_map(dest, src, schema),
            Kind::Sequence if schema.is_some_and(Schema::is_merged) => {
                self.walk_associative(dest, src, schema)
            }
            Kind::Sequence | Kind::Scalar => Ok(src.map_or(Outcome::Dest, Outcome::Other)),
        }
    }

    fn walk_map(
        &self,
        dest: Option<&mut Node>,
        src: Option<Node>,
        schema: Option<&Schema>,
    ) -> Result<Outcome> {
        let is_there = non_null(&dest);
        let Some(dest) = dest.filter(|_| is_there) else {
            let Some(mut src) = src else {
                return Ok(Outcome::Nothing);
            };
            if take_directive(&mut src, self.build) == Ok(Directive::Delete) {
                return Ok(Outcome::Nothing);
            }
            self.same_fields(&mut src, schema)?;
            return Ok(Outcome::Other(src));
        };
        let mut src = src;
        if let Some(patch) = &mut src {
            copy_style(dest, patch);
            if is_null(patch) {
                return Ok(Outcome::Nothing);
            }
            match take_directive(patch, self.build)? {
                Directive::Delete => return Ok(Outcome::Nothing),
                Directive::Replace => {
                    self.same_fields(patch, schema)?;
                    return Ok(src.map_or(Outcome::Nothing, Outcome::Other));
                }
                Directive::Merge => {}
            }
        }
        let names = |node: &Node| -> BTreeSet<String> {
            node.entries().map(|(key, _)| key.value.clone()).collect()
        };
        let mut keys = names(dest);
        if let Some(patch) = &src {
            keys.extend(names(patch));
        }
        // Each is looked for from the beginning.
        let length = dest.content.len() + src.as_ref().map_or(0, |patch| patch.content.len());
        self.build.work(1 + keys.len() * length / 256)?;
        for key in keys {
            let schema = schema.and_then(|schema| schema.field(&key));
            let (key_style, patch) = match src.as_mut().and_then(|src| take_entry(src, &key)) {
                Some((style, value)) => (style, Some(value)),
                None => (Style::default(), None),
            };
            let mut own = fns::field_mut(dest, &key);
            let outcome = self.walk(own.as_deref_mut(), patch, schema.as_ref())?;
            match outcome {
                Outcome::KeepNull => {}
                Outcome::Dest => {
                    if let Some(own) = own {
                        fns::quote_if_needed(own);
                    }
                }
                Outcome::Other(node) if !is_null(&node) => {
                    let is_new = own.is_none();
                    fns::set_field(dest, &key, Some(node))?;
                    if is_new && let Some(last) = dest.content.len().checked_sub(2) {
                        dest.content[last].style = key_style;
                    }
                }
                Outcome::Other(_) | Outcome::Nothing => fns::clear(dest, &key)?,
            }
        }
        Ok(Outcome::Dest)
    }

    /// A node that is its own patch. `false` when nothing is to be left.
    fn same(&self, node: &mut Node, known: Option<&Schema>) -> Result<bool> {
        if is_null(node) {
            return Ok(false);
        }
        let schema = self.schema(known, [Some(node), None])?;
        let schema = schema.as_ref();
        match node.kind {
            Kind::Scalar => Ok(true),
            Kind::Mapping => {
                if take_directive(node, self.build)? == Directive::Delete {
                    return Ok(false);
                }
                self.same_fields(node, schema)?;
                Ok(true)
            }
            Kind::Sequence => match schema.filter(|schema| schema.is_merged()) {
                None => Ok(true),
                Some(schema) => {
                    if take_directive(node, self.build)? == Directive::Delete {
                        return Ok(false);
                    }
                    self.merge_elements(node, None, true, schema)
                }
            },
        }
    }

    fn same_fields(&self, node: &mut Node, schema: Option<&Schema>) -> Result<()> {
        let keys: BTreeSet<String> = node.entries().map(|(key, _)| key.value.clone()).collect();
        self.build.work(1 + keys.len() * node.content.len() / 256)?;
        for key in keys {
            let schema = schema.and_then(|schema| schema.field(&key));
            let Some(own) = fns::field_mut(node, &key) else {
                continue;
            };
            if self.same(own, schema.as_ref())? {
                fns::quote_if_needed(own);
            } else {
                fns::clear(node, &key)?;
            }
        }
        Ok(())
    }

    fn walk_associative(
        &self,
        dest: Option<&mut Node>,
        src: Option<Node>,
        schema: Option<&Schema>,
    ) -> Result<Outcome> {
        let Some(schema) = schema else {
            return Ok(src.map_or(Outcome::Dest, Outcome::Other));
        };
        let is_there = non_null(&dest);
        let Some(dest) = dest.filter(|_| is_there) else {
            let Some(mut src) = src else {
                return Ok(Outcome::Nothing);
            };
            let is_left = self.merge_elements(&mut src, None, true, schema)?;
            return Ok(Outcome::Other(src).if_left(is_left));
        };
        let Some(mut patch) = src else {
            let is_left = self.merge_elements(dest, None, false, schema)?;
            return Ok(Outcome::Dest.if_left(is_left));
        };
        copy_style(dest, &patch);
        if is_null(&patch) {
            return Ok(Outcome::Nothing);
        }
        match take_directive(&mut patch, self.build)? {
            Directive::Delete => Ok(Outcome::Nothing),
            Directive::Replace => {
                let is_left = self.merge_elements(&mut patch, None, true, schema)?;
                Ok(Outcome::Other(patch).if_left(is_left))
            }
            Directive::Merge => {
                let is_left = self.merge_elements(dest, Some(patch), false, schema)?;
                Ok(Outcome::Dest.if_left(is_left))
            }
        }
    }

    /// `walkAssociativeSequence`, of a list with its patch, without one, or of one that is both.
    fn merge_elements(
        &self,
        dest: &mut Node,
        src: Option<Node>,
        is_same: bool,
        schema: &Schema,
    ) -> Result<bool> {
        let keys = schema.keys().to_vec();
        let mut arena = Arena::default();
        let own = arena.adopt(std::mem::take(&mut dest.content));
        let patch = src.map(|src| arena.adopt(src.content));
        let fields: usize = arena.nodes.iter().map(|node| node.content.len()).sum();
        self.build.work(1 + keys.len() * fields / 256)?;
        let mut values: Vec<Vec<String>> = Vec::new();
        let mut seen: HashSet<Vec<String>> = HashSet::new();
        // What the patch has comes first.
        for &element in patch.iter().flatten().chain(&own) {
            let element = &arena.nodes[element];
            let found: Vec<String> = if keys.is_empty() {
                vec![element.value.clone()]
            } else {
                keys.iter()
                    .map(|key| {
                        field(element, key)
                            .filter(|value| !fns::is_nil_or_empty(value))
                            .map_or_else(String::new, |value| value.value.clone())
                    })
                    .collect()
            };
            if seen.insert(found.clone()) {
                values.push(found);
            }
        }
        // Each is looked for among all, and compared key by key.
        let length = own.len() + patch.as_ref().map_or(0, Vec::len);
        self.build
            .work(1 + values.len() * (length + values.len() * keys.len()) / 8)?;
        let keys = if keys.is_empty() {
            vec![String::new()]
        } else {
            keys
        };
        if keys.len() > 1 {
            unify(&mut values);
        }
        let element_schema = schema.elements();
        let mut own = own;
        let mut added: Vec<usize> = Vec::new();
        let mut valid_keys = keys.clone();
        for at in 0..values.len() {
            let expected;
            (valid_keys, expected) = valid(&values, &values[at], &keys);
            let (match_keys, match_values) =
                valid(std::slice::from_ref(&expected), &expected, &valid_keys);
            let find = |arena: &Arena, list: &[usize]| {
                list.iter()
                    .copied()
                    .find(|&element| arena.matches(element, &match_keys, &match_values))
            };
            let dest_element = find(&arena, &own);
            let result = if is_same {
                match dest_element {
                    Some(index) => {
                        let mut element = arena.take(index);
                        let is_left = self.same(&mut element, element_schema.as_ref());
                        arena.nodes[index] = element;
                        is_left?.then_some(index)
                    }
                    None => None,
                }
            } else {
                let src_element = patch.as_ref().and_then(|patch| find(&arena, patch));
                let patch_node = match src_element {
                    // By one key no other values find it.
                    Some(index) if keys.len() == 1 && !keys[0].is_empty() => {
                        Some(arena.take(index))
                    }
                    Some(index) => Some(arena.copy(index, self.build)?),
                    None => None,
                };
                let mut element = dest_element.map(|index| arena.take(index));
                let outcome = self.walk(element.as_mut(), patch_node, element_schema.as_ref());
                if let (Some(index), Some(element)) = (dest_element, element) {
                    arena.nodes[index] = element;
                }
                match outcome? {
                    Outcome::Dest => dest_element,
                    Outcome::Other(node) => Some(arena.add(node)),
                    Outcome::KeepNull | Outcome::Nothing => None,
                }
            };
            let result = result.filter(|&index| !is_empty_map(&arena.nodes[index]));
            let Some(index) = result else {
                for _ in &valid_keys {
                    self.build.work(own.len() / 64)?;
                    arena.set_element(&mut own, None, &valid_keys, &expected)?;
                }
                continue;
            };
            for (key, value) in valid_keys.iter().zip(&expected) {
                // A scalar has no fields, and its key is empty.
                if arena.nodes[index].kind == Kind::Mapping
                    && field(&arena.nodes[index], key).is_none()
                    && !value.is_empty()
                {
                    fns::set_field(&mut arena.nodes[index], key, Some(Node::scalar(value)))?;
                } else if arena.nodes[index].kind != Kind::Mapping
                    && !key.is_empty()
                    && !value.is_empty()
                {
                    fns::expect_kind(&arena.nodes[index], Kind::Mapping)?;
                }
            }
            arena.set_element(&mut added, Some(index), &valid_keys, &expected)?;
        }
        let merged = if values.is_empty() {
            own
        } else {
            arena.append_list(added, &own, &valid_keys)?
        };
        dest.content = arena.release(&merged, self.build)?;
        Ok(true)
    }
}

fn copy_style(dest: &mut Node, src: &Node) {
    if dest.kind != Kind::Scalar && dest.content.is_empty() {
        dest.style = src.style;
    }
}

fn take_entry(node: &mut Node, name: &str) -> Option<(Style, Node)> {
    let at = fns::position(node, name)?;
    let mut pair = node.content.drain(at - 1..=at);
    let key = pair.next()?;
    let value = pair.next()?;
    Some((key.style, value))
}

/// `validateKeys`: the keys that any of the elements has, and the values for them.
fn valid(all: &[Vec<String>], values: &[String], keys: &[String]) -> (Vec<String>, Vec<String>) {
    let is_used = |at: usize| {
        all.iter()
            .any(|values| values.get(at).is_some_and(|value| !value.is_empty()))
    };
    let used: Vec<bool> = (0..keys.len()).map(is_used).collect();
    if !used.contains(&true) {
        return (keys.to_vec(), values.to_vec());
    }
    let pick = |texts: &[String]| {
        texts
            .iter()
            .zip(&used)
            .filter(|(_, used)| **used)
            .map(|(text, _)| text.clone())
            .collect()
    };
    (pick(keys), pick(values))
}

/// `mergeValues`: what is the same as far as it is given becomes equal.
fn unify(values: &mut [Vec<String>]) {
    fn common(one: &[String], other: &[String]) -> Option<Vec<String>> {
        let mut has_common = false;
        let mut result = Vec::new();
        for (one, other) in one.iter().zip(other) {
            if one == other {
                has_common = true;
                result.push(one.clone());
            } else if !one.is_empty() && !other.is_empty() {
                return None;
            } else {
                result.push(if one.is_empty() { other } else { one }.clone());
            }
        }
        has_common.then_some(result)
    }
    for i in 0..values.len() {
        // Go compares what element i was when its turn came.
        let first = values[i].clone();
        for j in 0..values.len() {
            if let Some(unified) = common(&first, &values[j].clone()) {
                values[i].clone_from(&unified);
                values[j] = unified;
            }
        }
    }
}

/// Elements by number, as Go has pointers to them: one may stand in several lists, or in one list twice.
#[derive(Default)]
struct Arena {
    nodes: Vec<Node>,
}

impl Arena {
    fn adopt(&mut self, elements: Vec<Node>) -> Vec<usize> {
        elements.into_iter().map(|node| self.add(node)).collect()
    }

    fn add(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn take(&mut self, index: usize) -> Node {
        std::mem::replace(&mut self.nodes[index], Node::scalar(""))
    }

    /// A copy, which is counted: lists in lists copy their patches level by level.
    fn copy(&self, index: usize, build: &Build<'_>) -> Result<Node> {
        build.grow(&self.nodes[index])?;
        Ok(self.nodes[index].clone())
    }

    /// The elements of a list. What stands in it several times is copied.
    fn release(mut self, list: &[usize], build: &Build<'_>) -> Result<Vec<Node>> {
        let mut uses = vec![0_usize; self.nodes.len()];
        for &index in list {
            uses[index] += 1;
        }
        let mut nodes = Vec::with_capacity(list.len());
        for &index in list {
            uses[index] -= 1;
            nodes.push(match uses[index] {
                0 => self.take(index),
                _ => self.copy(index, build)?,
            });
        }
        Ok(nodes)
    }

    /// `ElementMatcher` with as many values as keys.
    fn matches(&self, element: usize, keys: &[String], values: &[String]) -> bool {
        let element = &self.nodes[element];
        match keys.first() {
            None => false,
            Some(key) if key.is_empty() => values.first() == Some(&element.value),
            Some(_) => {
                !is_null(element)
                    && element.kind == Kind::Mapping
                    && keys.iter().zip(values).all(|(key, value)| {
                        field(element, key).is_some_and(|found| found.value == *value)
                    })
            }
        }
    }

    /// `ElementSetter`: puts an element in the place of all that match, or behind all others; without one it removes.
    fn set_element(
        &self,
        list: &mut Vec<usize>,
        new: Option<usize>,
        keys: &[String],
        values: &[String],
    ) -> Result<()> {
        let is_mapping_setter = keys.first().is_some_and(|key| !key.is_empty())
            && values.first().is_some_and(|value| !value.is_empty());
        let mut kept = Vec::with_capacity(list.len() + 1);
        let mut is_found = false;
        for &index in &*list {
            let element = &self.nodes[index];
            if is_null(element) || is_empty_map(element) {
                continue;
            }
            if element.kind != Kind::Mapping && is_mapping_setter {
                kept.push(index);
                continue;
            }
            let mut matched = !keys.is_empty();
            let mut previous = false;
            for (at, key) in keys.iter().enumerate() {
                if let Some(value) = values.get(at) {
                    previous = if key.is_empty() {
                        fns::expect_kind(element, Kind::Scalar)?;
                        element.value == *value
                    } else {
                        fns::expect_kind(element, Kind::Mapping)?;
                        field(element, key)
                            .is_some_and(|found| value.is_empty() || found.value == *value)
                    };
                }
                if !previous {
                    matched = false;
                    break;
                }
            }
            if !matched {
                if !values.is_empty() {
                    kept.push(index);
                }
                continue;
            }
            is_found = true;
            kept.extend(new);
        }
        *list = kept;
        if let Some(new) = new
            && !is_null(&self.nodes[new])
            && !is_found
        {
            list.push(new);
        }
        Ok(())
    }

    /// `appendListNode`.
    fn append_list(
        &self,
        mut list: Vec<usize>,
        elements: &[usize],
        keys: &[String],
    ) -> Result<Vec<usize>> {
        for &index in elements {
            let element = &self.nodes[index];
            if keys.first().is_none_or(String::is_empty) {
                let value = [element.value.clone()];
                self.set_element(&mut list, Some(index), &[String::new()], &value)?;
                continue;
            }
            let mut values = Vec::new();
            for key in keys {
                match fns::get(element, key)? {
                    Some(value) => values.push(value.value.clone()),
                    None => list.push(index),
                }
            }
            if keys.len() > 1 {
                self.set_element(&mut list, None, keys, &values)?;
            }
            self.set_element(&mut list, Some(index), keys, &values)?;
        }
        Ok(list)
    }
}
