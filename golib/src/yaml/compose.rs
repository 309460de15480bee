//! Events to a tree of nodes, a document at a time, with aliases resolved to the nodes they name.

use std::collections::HashMap;

use super::parser::{Event, Parser};
use super::{Error, Problem};

/// The place of a node in [`Document::nodes`].
pub(super) type NodeId = usize;

#[derive(Debug)]
pub(super) struct Node {
    pub(super) kind: NodeKind,
    /// Counted from 1.
    pub(super) line: usize,
}

#[derive(Debug)]
pub(super) enum NodeKind {
    Scalar {
        tag: String,
        value: String,
        implicit: bool,
    },
    Sequence(Vec<NodeId>),
    /// Keys and values in turn.
    Mapping(Vec<NodeId>),
    Alias {
        name: String,
        target: NodeId,
    },
}

#[derive(Debug)]
pub(super) struct Document {
    pub(super) nodes: Vec<Node>,
    pub(super) root: NodeId,
}

/// The documents of a stream, in order.
pub(super) struct Composer<'a> {
    parser: Parser<'a>,
}

impl<'a> Composer<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            parser: Parser::new(bytes),
        }
    }

    /// The next document, if there is one.
    pub(super) fn document(&mut self) -> Result<Option<Document>, Error> {
        if self.parser.event()?.0 == Event::StreamEnd {
            return Ok(None);
        }
        let mut nodes: Vec<Node> = Vec::new();
        let mut anchors: HashMap<String, NodeId> = HashMap::new();
        let mut open: Vec<NodeId> = Vec::new();
        loop {
            let (event, mark) = self.parser.event()?;
            let (anchor, kind) = match event {
                Event::Alias(name) => {
                    let target = *anchors.get(&name).ok_or_else(|| {
                        Error::yaml(format!("unknown anchor '{name}' referenced"))
                    })?;
                    (None, NodeKind::Alias { name, target })
                }
                Event::Scalar {
                    anchor,
                    tag,
                    value,
                    implicit,
                } => (
                    anchor,
                    NodeKind::Scalar {
                        tag,
                        value,
                        implicit,
                    },
                ),
                Event::SequenceStart { anchor } => (anchor, NodeKind::Sequence(Vec::new())),
                Event::MappingStart { anchor } => (anchor, NodeKind::Mapping(Vec::new())),
                Event::SequenceEnd | Event::MappingEnd => {
                    open.pop();
                    continue;
                }
                Event::DocumentEnd => return Ok(Some(Document { nodes, root: 0 })),
                Event::StreamEnd | Event::DocumentStart => {
                    return Err(Problem::bare("unknown problem parsing YAML content").into());
                }
            };
            let id = nodes.len();
            if let Some(NodeKind::Sequence(children) | NodeKind::Mapping(children)) =
                open.last().map(|&parent| &mut nodes[parent].kind)
            {
                children.push(id);
            }
            if matches!(kind, NodeKind::Sequence(_) | NodeKind::Mapping(_)) {
                open.push(id);
            }
            if let Some(anchor) = anchor {
                anchors.insert(anchor, id);
            }
            nodes.push(Node {
                kind,
                line: mark.line + 1,
            });
        }
    }
}
