//! Events to a tree of nodes, a document at a time, with aliases resolved to the nodes they name.

use std::borrow::Cow;
use std::collections::HashMap;

use super::parser::{Event, Parser};
use super::reader::Input;
use super::{Error, Problem};

/// The place of a node in [`Document::nodes`].
pub(super) type NodeId = usize;

#[derive(Debug)]
pub(super) struct Node<'a> {
    pub(super) kind: NodeKind<'a>,
    /// Counted from 1.
    pub(super) line: usize,
}

#[derive(Debug)]
pub(super) enum NodeKind<'a> {
    Scalar {
        tag: Cow<'a, str>,
        value: Cow<'a, str>,
        implicit: bool,
    },
    Sequence(Vec<NodeId>),
    /// Keys and values in turn.
    Mapping(Vec<NodeId>),
    Alias {
        name: Cow<'a, str>,
        target: NodeId,
    },
}

#[derive(Debug)]
pub(super) struct Document<'a> {
    pub(super) nodes: Vec<Node<'a>>,
    pub(super) root: NodeId,
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
    pub(super) fn document(&mut self) -> Result<Option<Document<'a>>, Error> {
        if self.parser.event()?.0 == Event::StreamEnd {
            return Ok(None);
        }
        let mut nodes: Vec<Node<'_>> = Vec::new();
        let mut anchors: HashMap<Cow<'_, str>, NodeId> = HashMap::new();
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
