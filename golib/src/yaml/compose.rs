//! Events to a tree of nodes, a document at a time, with aliases resolved to the nodes they name.
//!
//! Nodes lie in the order of the text: a collection's children follow it, each up to its `end`.

use std::borrow::Cow;
use std::collections::HashMap;

use super::error::{Error, Problem};
use super::parser::{Event, Parser};
use super::reader::Input;
use crate::budget::{Budget, Part, TooLarge};

/// The place of a node in [`Document::nodes`].
pub(super) type NodeId = u32;

#[derive(Debug)]
pub(super) struct Node<'a> {
    pub(super) kind: NodeKind<'a>,
    /// Counted from 1.
    pub(super) line: u32,
    /// The node behind this one and all that is in it.
    end: NodeId,
}

#[derive(Debug)]
pub(super) enum NodeKind<'a> {
    Scalar {
        value: Cow<'a, str>,
        implicit: bool,
    },
    Sequence,
    /// Keys and values in turn.
    Mapping,
    Alias {
        target: NodeId,
    },
}

#[derive(Debug, Default)]
pub(super) struct Document<'a> {
    nodes: Vec<Node<'a>>,
    /// The few scalars that have one.
    tags: HashMap<NodeId, Cow<'a, str>>,
    anchors: HashMap<NodeId, Cow<'a, str>>,
    weight: usize,
}

impl<'a> Document<'a> {
    pub(super) const ROOT: NodeId = 0;

    pub(super) fn node(&self, id: NodeId) -> &Node<'a> {
        &self.nodes[id as usize]
    }

    /// A scalar's tag, empty where it has none.
    pub(super) fn tag(&self, id: NodeId) -> &str {
        self.tags.get(&id).map_or("", |tag| tag)
    }

    /// The name of an anchored node.
    pub(super) fn anchor(&self, id: NodeId) -> &str {
        self.anchors.get(&id).map_or("", |name| name)
    }

    /// The child at a place inside a collection, if it is not the collection's end.
    pub(super) fn child(&self, parent: NodeId, at: NodeId) -> Option<NodeId> {
        (at < self.node(parent).end).then_some(at)
    }

    /// The place behind a node: of its next sibling, or its parent's end.
    pub(super) fn behind(&self, id: NodeId) -> NodeId {
        self.node(id).end
    }

    pub(super) fn children(&self, parent: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        std::iter::successors(self.child(parent, parent + 1), move |&id| {
            self.child(parent, self.behind(id))
        })
    }

    /// What the nodes were counted with.
    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    fn weigh(&mut self, bytes: usize, budget: &mut Budget) -> Result<(), TooLarge> {
        self.weight += bytes;
        budget.spend(Part::Anchors, bytes)
    }
}

/// The documents of a stream, in order.
pub(super) struct Composer<'a> {
    parser: Parser<'a>,
}

impl<'a> Composer<'a> {
    pub(super) fn new(input: &'a Input<'_>) -> Self {
        Self {
            parser: Parser::new(input),
        }
    }

    /// The next document, if there is one.
    pub(super) fn document(&mut self, budget: &mut Budget) -> Result<Option<Document<'a>>, Error> {
        if self.parser.event()?.0 == Event::StreamEnd {
            return Ok(None);
        }
        let mut document = Document::default();
        let mut named: HashMap<Cow<'_, str>, NodeId> = HashMap::new();
        let mut open: Vec<NodeId> = Vec::new();
        loop {
            let (event, mark) = self.parser.event()?;
            let id = NodeId::try_from(document.nodes.len())
                .map_err(|_| Problem::bare("document is too large"))?;
            let (anchor, kind) = match event {
                Event::Alias(name) => {
                    let target = *named.get(&name).ok_or_else(|| {
                        Error::yaml(format!("unknown anchor '{name}' referenced"))
                    })?;
                    (None, NodeKind::Alias { target })
                }
                Event::Scalar {
                    anchor,
                    tag,
                    value,
                    implicit,
                    ..
                } => {
                    if !tag.is_empty() {
                        document.weigh(RARE + tag.len(), budget)?;
                        document.tags.insert(id, tag);
                    }
                    (anchor, NodeKind::Scalar { value, implicit })
                }
                Event::SequenceStart { anchor, .. } => (anchor, NodeKind::Sequence),
                Event::MappingStart { anchor, .. } => (anchor, NodeKind::Mapping),
                Event::SequenceEnd | Event::MappingEnd => {
                    if let Some(closed) = open.pop() {
                        document.nodes[closed as usize].end = id;
                    }
                    continue;
                }
                Event::DocumentEnd => return Ok(Some(document)),
                Event::StreamEnd | Event::DocumentStart => {
                    return Err(Problem::bare("unknown problem parsing YAML content").into());
                }
            };
            let own = match &kind {
                NodeKind::Scalar {
                    value: Cow::Owned(text),
                    ..
                } => text.len(),
                _ => 0,
            };
            document.weigh(size_of::<Node<'_>>() + own, budget)?;
            if matches!(kind, NodeKind::Sequence | NodeKind::Mapping) {
                open.push(id);
            }
            if let Some(anchor) = anchor {
                document.weigh(2 * (RARE + anchor.len()), budget)?;
                document.anchors.insert(id, anchor.clone());
                named.insert(anchor, id);
            }
            document.nodes.push(Node {
                kind,
                line: u32::try_from(mark.line)
                    .unwrap_or(u32::MAX)
                    .saturating_add(1),
                end: id.saturating_add(1),
            });
        }
    }
}

/// Bytes of what few nodes have.
const RARE: usize = 64;
