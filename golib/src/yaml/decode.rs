//! Nodes to values: aliases, merge keys, duplicate keys and Go's limits (yaml.v2's `decode.go`). An explicit stack, so depth
//! costs no stack of the thread.

use std::collections::{BTreeMap, HashSet};

use super::Error;
use super::compose::{Document, NodeId, NodeKind};
use super::resolve::{self, is_merge};
use super::value::{Key, Raw};

/// Deeper values cannot become JSON in Go, whose decoder stops here.
const MAX_DEPTH: usize = 10_000;
/// Text that aliases may repeat, in bytes. Go has no such limit and would fill the memory.
const MAX_ALIASED_BYTES: usize = 64 << 20;

enum Frame {
    Sequence {
        node: NodeId,
        next: usize,
        items: Vec<Raw>,
    },
    Mapping {
        node: NodeId,
        next: usize,
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
    frames: Vec<Frame>,
    depth: usize,
    /// Aliases being followed.
    open_aliases: HashSet<NodeId>,
    decoded: usize,
    decoded_in_aliases: usize,
    aliased_bytes: usize,
    duplicates: Vec<String>,
}

/// Decodes a document; strictly means that a key given twice is an error.
pub(super) fn decode(document: &Document<'_>, strict: bool) -> Result<Raw, Error> {
    Decoder {
        document,
        strict,
        frames: Vec::new(),
        depth: 0,
        open_aliases: HashSet::new(),
        decoded: 0,
        decoded_in_aliases: 0,
        aliased_bytes: 0,
        duplicates: Vec::new(),
    }
    .run()
}

impl Decoder<'_> {
    fn run(mut self) -> Result<Raw, Error> {
        self.decoded += 1; // the document itself
        let mut step = Step::Enter(self.document.root);
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
        match &self.document.nodes[id].kind {
            NodeKind::Scalar {
                tag,
                value,
                implicit,
            } => {
                if in_alias {
                    self.aliased_bytes += value.len();
                }
                resolve::scalar(tag, value, *implicit).map(Step::Done)
            }
            NodeKind::Sequence(children) => {
                self.deeper()?;
                let items = Vec::with_capacity(children.len());
                self.frames.push(Frame::Sequence {
                    node: id,
                    next: 0,
                    items,
                });
                Ok(Step::Advance)
            }
            NodeKind::Mapping(_) => {
                self.deeper()?;
                let entries = merged.unwrap_or_default();
                self.frames.push(Frame::Mapping {
                    node: id,
                    next: 0,
                    entries,
                    expects: Expects::Key,
                });
                Ok(Step::Advance)
            }
            NodeKind::Alias { name, target } => {
                if !self.open_aliases.insert(id) {
                    return Err(Error::yaml(format!(
                        "anchor '{name}' value contains itself"
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

    fn deeper(&mut self) -> Result<(), Error> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Error::Json(
                "invalid character '[' exceeded max depth".into(),
            ));
        }
        Ok(())
    }

    /// yaml.v2's rule: of a small document nearly all may come from aliases, of a large one a tenth.
    #[expect(
        clippy::cast_precision_loss,
        reason = "Go counts so, and the counts are small"
    )]
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
        self.aliased_bytes > MAX_ALIASED_BYTES
            || self.decoded_in_aliases > 100
                && self.decoded > 1000
                && self.decoded_in_aliases as f64 / decoded > allowed
    }

    fn advance(&mut self) -> Result<Step, Error> {
        let document = self.document;
        let Some(frame) = self.frames.last_mut() else {
            return Ok(Step::Done(Raw::Null));
        };
        match frame {
            Frame::Sequence { node, next, items } => {
                if let NodeKind::Sequence(children) = &document.nodes[*node].kind
                    && let Some(&child) = children.get(*next)
                {
                    *next += 1;
                    return Ok(Step::Enter(child));
                }
                let items = std::mem::take(items);
                self.leave();
                Ok(Step::Done(Raw::Seq(items)))
            }
            Frame::Mapping {
                node,
                next,
                entries,
                expects,
            } => {
                let NodeKind::Mapping(children) = &document.nodes[*node].kind else {
                    return Ok(Step::Done(Raw::Null));
                };
                let Some(&[key, value]) = children
                    .get(*next..*next + 2)
                    .and_then(|pair| pair.first_chunk())
                else {
                    let entries = std::mem::take(entries);
                    self.leave();
                    return Ok(Step::Done(Raw::Map(entries)));
                };
                *next += 2;
                if let NodeKind::Scalar {
                    tag,
                    value: text,
                    implicit,
                } = &document.nodes[key].kind
                    && is_merge(tag, text, *implicit)
                {
                    *expects = Expects::Merged;
                    let entries = std::mem::take(entries);
                    return self.merge(value, entries);
                }
                Ok(Step::Enter(key))
            }
            Frame::Alias(_) | Frame::Merges(_) => Ok(Step::Done(Raw::Null)),
        }
    }

    fn leave(&mut self) {
        self.frames.pop();
        self.depth -= 1;
    }

    /// Starts merging a mapping, or the mappings of a list: earlier ones win, so the last comes first.
    fn merge(&mut self, id: NodeId, entries: BTreeMap<Key, Raw>) -> Result<Step, Error> {
        let mut targets = match &self.document.nodes[id].kind {
            NodeKind::Sequence(children) => children.clone(),
            _ => vec![id],
        };
        for &target in &targets {
            let kind = match &self.document.nodes[target].kind {
                NodeKind::Alias { target, .. } => &self.document.nodes[*target].kind,
                kind => kind,
            };
            if !matches!(kind, NodeKind::Mapping(_)) {
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
                items.push(value);
                Ok(Step::Advance)
            }
            Frame::Mapping {
                node,
                next,
                entries,
                expects,
            } => match std::mem::replace(expects, Expects::Key) {
                Expects::Merged => {
                    if let Raw::Map(merged) = &mut value {
                        *entries = std::mem::take(merged);
                    }
                    Ok(Step::Advance)
                }
                Expects::Key => {
                    let NodeKind::Mapping(children) = &document.nodes[*node].kind else {
                        return Ok(Step::Advance);
                    };
                    let key = value.into_key().map_err(|value| {
                        Error::yaml(format!("invalid map key: {}", value.go_syntax()))
                    })?;
                    *expects = Expects::Value(key);
                    Ok(Step::Enter(children[*next - 1]))
                }
                Expects::Value(key) => {
                    if self.strict && entries.contains_key(&key) {
                        let line = match &document.nodes[*node].kind {
                            NodeKind::Mapping(children) => document.nodes[children[*next - 1]].line,
                            _ => 0,
                        };
                        let key = Raw::from(key).go_syntax_alone();
                        self.duplicates
                            .push(format!("line {line}: key {key} already set in map"));
                    } else {
                        entries.insert(key, value);
                    }
                    Ok(Step::Advance)
                }
            },
        }
    }
}
