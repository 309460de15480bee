//! Template text to an immutable tree, which any number of renders on any thread can share. Mirrors Go's
//! `text/template/parse`; the functions a text may name must be known.

mod lex;
mod node;
mod number;
mod parser;
mod reads;

use std::sync::Arc;

pub(crate) use node::{
    Branch, Command, Declaration, Expr, ExprKind, Fields, List, Node, NodeRef, Pipe, Pos, Source,
    is_blank,
};
pub(crate) use number::Number;
pub(crate) use parser::{MAX_WEIGHT, parse};
pub use reads::Reads;
pub(crate) use reads::reads;

/// A named template: a file's own text or a `define` in it.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) name: Arc<str>,
    pub(crate) source: Arc<Source>,
    pub(crate) root: List,
}

impl Tree {
    /// Whether the body is only white space and comments.
    pub(crate) fn is_blank(&self) -> bool {
        is_blank(&self.root, &self.source)
    }
}
