//! Nodes to values: aliases, merge keys, duplicate keys and Go's limits (yaml.v2's `decode.go`). An explicit stack, so depth
//! costs no stack of the thread.

use std::collections::{BTreeMap, HashSet};

use super::compose::{Document, NodeId, NodeKind};
use super::error::Error;
use super::resolve::{self, is_merge};
use super::value::{Key, Raw};
use crate::budget::{Budget, TooLarge};

enum Frame {
    Sequence {
        node: NodeId,
        next: NodeId,
        items: Vec<Raw>,
    },
    Mapping {
        node: NodeId,
        next: NodeId,
        /// The value of the key being decoded.
        value: NodeId,
        entries: BTreeMap<Key, Raw>,
        expects: Expects,
    },
    Alias(NodeId),
    /// Mappings still to be merged, the last first.
    Merges(Vec<NodeId>),
}

/// What the next value means to a mapping.
enum Expects {
    Key,
    Value(Key),
    /// All entries, with those of a merged mapping among them.
    Merged,
}

enum Step {
    Enter(NodeId),
    /// Decode the mapping into entries that are there already.
    EnterMerged(NodeId, BTreeMap<Key, Raw>),
    Done(Raw),
    Advance,
}

pub(super) struct Decoder<'a> {
    document: &'a Document<'a>,
    strict: bool,
    budget: &'a mut Budget,
    frames: Vec<Frame>,
    depth: usize,
    /// Aliases being followed.
    open_aliases: HashSet<NodeId>,
    decoded: usize,
    decoded_in_aliases: usize,
    duplicates: Vec<String>,
}

/// Decodes a document; strictly means that a key given twice is an error.
pub(super) fn decode(
    document: &Document<'_>,
    strict: bool,
    budget: &mut Budget,
) -> Result<Raw, Error> {
    Decoder {
        document,
        strict,
        budget,
        frames: Vec::new(),
        depth: 0,
        open_aliases: HashSet::new(),
        decoded: 0,
        decoded_in_aliases: 0,
        duplicates: Vec::new(),
    }
    .run()
}

impl Decoder<'_> {
    fn run(mut self) -> Result<Raw, Error> {
        self.decoded += 1; // the document itself
        let mut step = Step::Enter(Document::ROOT);
        loop {
            step = match step {
                Step::Enter(node) => self.enter(node, None)?,
                Step::EnterMerged(node, entries) => self.enter(node, Some(entries))?,
                Step::Advance => self.advance()?,
                Step::Done(value) => {
                    if self.frames.is_empty() {
                        if self.duplicates.is_empty() {
                            return Ok(value);
                        }
                        let lines = self.duplicates.join("\n  ");
                        return Err(Error::yaml(format!("unmarshal errors:\n  {lines}")));
                    }
                    self.done(value)?
                }
            };
        }
    }

    fn enter(&mut self, id: NodeId, merged: Option<BTreeMap<Key, Raw>>) -> Result<Step, Error> {
        self.decoded += 1;
        let in_alias = !self.open_aliases.is_empty();
        if in_alias {
            self.decoded_in_aliases += 1;
        }
        if self.is_alias_bomb() {
            return Err(Error::yaml("document contains excessive aliasing"));
        }
        let document = self.document;
        match &document.node(id).kind {
            NodeKind::Scalar { value, implicit } => {
                let value = resolve::scalar(document.tag(id), value, *implicit)?;
                if let Raw::Scalar(Key::Str(text)) = &value {
                    let weight = self.budget.text(text.len());
                    self.weighed(weight)?;
                }
                Ok(Step::Done(value))
            }
            NodeKind::Sequence => {
                self.deeper()?;
                self.frames.push(Frame::Sequence {
                    node: id,
                    next: id + 1,
                    items: Vec::new(),
                });
                Ok(Step::Advance)
            }
            NodeKind::Mapping => {
                self.deeper()?;
                let entries = merged.unwrap_or_default();
                self.frames.push(Frame::Mapping {
                    node: id,
                    next: id + 1,
                    value: id,
                    entries,
                    expects: Expects::Key,
                });
                Ok(Step::Advance)
            }
            NodeKind::Alias { target } => {
                if !self.open_aliases.insert(id) {
                    return Err(Error::yaml(format!(
                        "anchor '{}' value contains itself",
                        document.anchor(*target)
                    )));
                }
                self.frames.push(Frame::Alias(id));
                Ok(match merged {
                    Some(entries) => Step::EnterMerged(*target, entries),
                    None => Step::Enter(*target),
                })
            }
        }
    }

    /// A document that gets too heavy by repeating itself is refused in yaml.v2's words.
    fn weighed(&self, weight: Result<(), TooLarge>) -> Result<(), Error> {
        weight.map_err(|error| match self.open_aliases.is_empty() {
            true => error.into(),
            false => Error::yaml("document contains excessive aliasing"),
        })
    }

    fn deeper(&mut self) -> Result<(), Error> {
        self.depth += 1;
        if self.depth > self.budget.depth() {
            return Err(Error::Json(
                "invalid character '[' exceeded max depth".into(),
            ));
        }
        Ok(())
    }

    /// yaml.v2's rule: of a small document nearly all may come from aliases, of a large one a tenth.
    #[expect(clippy::cast_precision_loss, reason = "Go counts so, and the counts are small")]
    fn is_alias_bomb(&self) -> bool {
        const LOW: f64 = 400_000.0;
        const HIGH: f64 = 4_000_000.0;
        let decoded = self.decoded as f64;
        let allowed = if decoded <= LOW {
            0.99
        } else if decoded >= HIGH {
            0.10
        } else {
            0.99 - 0.89 * ((decoded - LOW) / (HIGH - LOW))
        };
        self.decoded_in_aliases > 100
            && self.decoded > 1000
            && self.decoded_in_aliases as f64 / decoded > allowed
    }

    fn advance(&mut self) -> Result<Step, Error> {
        let document = self.document;
        let Some(frame) = self.frames.last_mut() else {
            return Ok(Step::Done(Raw::default()));
        };
        match frame {
            Frame::Sequence { node, next, items } => {
                if let Some(child) = document.child(*node, *next) {
                    *next = document.behind(child);
                    return Ok(Step::Enter(child));
                }
                let items = std::mem::take(items);
                self.leave();
                Ok(Step::Done(Raw::Seq(items)))
            }
            Frame::Mapping {
                node,
                next,
                value,
                entries,
                expects,
            } => {
                let pair = document.child(*node, *next).and_then(|key| {
                    let value = document.child(*node, document.behind(key))?;
                    Some((key, value))
                });
                let Some((key, value_node)) = pair else {
                    let entries = std::mem::take(entries);
                    self.leave();
                    return Ok(Step::Done(Raw::Map(entries)));
                };
                *next = document.behind(value_node);
                *value = value_node;
                if let NodeKind::Scalar {
                    value: text,
                    implicit,
                } = &document.node(key).kind
                    && is_merge(document.tag(key), text, *implicit)
                {
                    *expects = Expects::Merged;
                    let entries = std::mem::take(entries);
                    return self.merge(value_node, entries);
                }
                Ok(Step::Enter(key))
            }
            Frame::Alias(_) | Frame::Merges(_) => Ok(Step::Done(Raw::default())),
        }
    }

    fn leave(&mut self) {
        self.frames.pop();
        self.depth -= 1;
    }

    /// Starts merging a mapping, or the mappings of a list: earlier ones win, so the last comes first.
    fn merge(&mut self, id: NodeId, entries: BTreeMap<Key, Raw>) -> Result<Step, Error> {
        let mut targets: Vec<NodeId> = match &self.document.node(id).kind {
            NodeKind::Sequence => self.document.children(id).collect(),
            _ => vec![id],
        };
        for &target in &targets {
            let kind = match &self.document.node(target).kind {
                NodeKind::Alias { target } => &self.document.node(*target).kind,
                kind => kind,
            };
            if !matches!(kind, NodeKind::Mapping) {
                let text = "map merge requires map or sequence of maps as the value";
                return Err(Error::yaml(text));
            }
        }
        let Some(last) = targets.pop() else {
            return Ok(Step::Done(Raw::Map(entries)));
        };
        self.frames.push(Frame::Merges(targets));
        Ok(Step::EnterMerged(last, entries))
    }

    fn done(&mut self, mut value: Raw) -> Result<Step, Error> {
        let document = self.document;
        let Some(frame) = self.frames.last_mut() else {
            return Ok(Step::Done(value));
        };
        match frame {
            Frame::Alias(id) => {
                self.open_aliases.remove(id);
                self.frames.pop();
                Ok(Step::Done(value))
            }
            Frame::Merges(rest) => match (rest.pop(), &mut value) {
                (Some(target), Raw::Map(entries)) => {
                    Ok(Step::EnterMerged(target, std::mem::take(entries)))
                }
                _ => {
                    self.frames.pop();
                    Ok(Step::Done(value))
                }
            },
            Frame::Sequence { items, .. } => {
                let weight = self.budget.element::<Raw>(items.len());
                items.push(value);
                self.weighed(weight)?;
                Ok(Step::Advance)
            }
            Frame::Mapping {
                value: value_node,
                entries,
                expects,
                ..
            } => match std::mem::replace(expects, Expects::Key) {
                Expects::Merged => {
                    if let Raw::Map(merged) = &mut value {
                        *entries = std::mem::take(merged);
                    }
                    Ok(Step::Advance)
                }
                Expects::Key => {
                    let key = value.into_key().map_err(|value| {
                        Error::yaml(format!("invalid map key: {}", value.go_syntax()))
                    })?;
                    *expects = Expects::Value(key);
                    Ok(Step::Enter(*value_node))
                }
                Expects::Value(key) => {
                    if self.strict && entries.contains_key(&key) {
                        let line = document.node(*value_node).line;
                        let key = Raw::Scalar(key).go_syntax_alone();
                        self.duplicates
                            .push(format!("line {line}: key {key} already set in map"));
                        return Ok(Step::Advance);
                    }
                    let weight = self.budget.entry::<Key, Raw>(entries.len());
                    entries.insert(key, value);
                    self.weighed(weight)?;
                    Ok(Step::Advance)
                }
            },
        }
    }
}
