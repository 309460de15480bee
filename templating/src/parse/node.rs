//! The tree: what a template text says, every node with its place in the text.

use std::fmt::{self, Write};
use std::sync::Arc;

use bytes::Bytes;

use crate::funcs::Function;
use crate::value::Str;

/// An offset in the text of a [`Source`]. Trees are many times as large as what they are made of, so their parts are small.
pub(crate) type Pos = u32;

/// A text that was parsed: one file, or one string given to `tpl`.
#[derive(Debug)]
pub(crate) struct Source {
    /// The name it was parsed under.
    pub(crate) name: Arc<str>,
    pub(crate) text: Bytes,
}

impl Source {
    /// Line from 1, column in bytes from 0, and the line itself.
    pub(crate) fn place(&self, pos: Pos) -> (usize, usize, String) {
        let pos = pos as usize;
        let (before, after) = self.text.split_at(pos.min(self.text.len()));
        let line = before.iter().filter(|&&c| c == b'\n').count() + 1;
        let start = before
            .iter()
            .rposition(|&c| c == b'\n')
            .map_or(0, |newline| newline + 1);
        let end = after
            .iter()
            .position(|&c| c == b'\n')
            .map_or(self.text.len(), |n| pos + n);
        (
            line,
            pos - start,
            golib::utf8::to_str(&self.text[start..end]).into_owned(),
        )
    }

    /// A range of the text.
    pub(crate) fn range(&self, start: Pos, end: Pos) -> &[u8] {
        self.text
            .get(start as usize..end as usize)
            .unwrap_or_default()
    }

    /// The string literal that begins at a place, with its marks.
    fn literal(&self, start: Pos) -> &[u8] {
        let text = self.text.get(start as usize..).unwrap_or_default();
        let (mark, mut at) = (text.first(), 1);
        while let Some(byte) = text.get(at) {
            match byte {
                _ if Some(byte) == mark => return &text[..=at],
                b'\\' if mark == Some(&b'"') => at += 2,
                _ => at += 1,
            }
        }
        text
    }

    /// A whole line by its number, for errors that have no column.
    pub(crate) fn line(&self, number: usize) -> String {
        let line = self
            .text
            .split(|&c| c == b'\n')
            .nth(number.saturating_sub(1));
        golib::utf8::to_str(line.unwrap_or_default()).into_owned()
    }
}

/// A sequence of nodes.
pub(crate) type List = Box<[Node]>;

#[derive(Debug)]
pub(crate) enum Node {
    /// A range of the source.
    Text {
        start: Pos,
        end: Pos,
    },
    Action {
        pos: Pos,
        pipe: Pipe,
    },
    If(Box<Branch>),
    With(Box<Branch>),
    Range(Box<Branch>),
    Template {
        pos: Pos,
        name: Arc<str>,
        pipe: Option<Box<Pipe>>,
    },
    Break {
        pos: Pos,
    },
    Continue {
        pos: Pos,
    },
}

#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) pos: Pos,
    pub(crate) pipe: Pipe,
    pub(crate) list: List,
    pub(crate) else_list: Option<List>,
}

#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) pos: Pos,
    pub(crate) decl: Option<Box<Declaration>>,
    pub(crate) cmds: Box<[Command]>,
}

/// The variables that get the value of a pipeline: one, or two of a `range`.
#[derive(Debug)]
pub(crate) struct Declaration {
    /// Whether the variables are assigned, not declared.
    pub(crate) is_assign: bool,
    pub(crate) names: Box<[Arc<str>]>,
}

#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) pos: Pos,
    pub(crate) args: Box<[Expr]>,
}

#[derive(Debug)]
pub(crate) struct Expr {
    pub(crate) pos: Pos,
    pub(crate) kind: ExprKind,
}

#[derive(Debug)]
pub(crate) enum ExprKind {
    Bool(bool),
    Dot,
    Nil,
    Number(Arc<super::number::Number>),
    String(Str),
    /// `.a.b`
    Field(Fields),
    /// `$x.a.b`; the name includes the dollar. The fields begin where the expression stands, and end here.
    Variable {
        name: Arc<str>,
        end: Pos,
    },
    /// Anything else followed by fields.
    Chain {
        base: Box<Expr>,
        fields: Fields,
    },
    /// The name of a function.
    Identifier(Arc<Function>),
    /// A pipeline in parentheses.
    Pipe(Box<Pipe>),
}

/// Fields one after the other: the range of the source that begins with the first one's dot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fields {
    pub(crate) start: Pos,
    pub(crate) end: Pos,
}

impl Fields {
    pub(crate) fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// The names; letters and digits are all there can be in one.
    pub(crate) fn names(self, source: &Source) -> impl DoubleEndedIterator<Item = &str> + '_ {
        let text = source.range(self.start, self.end);
        let text = std::str::from_utf8(text).unwrap_or_default();
        let names = text.strip_prefix('.').map(|names| names.split('.'));
        names.into_iter().flatten()
    }
}

/// Any node, to say where an error happened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NodeRef<'t> {
    Node(&'t Node),
    Pipe(&'t Pipe),
    Command(&'t Command),
    Expr(&'t Expr),
}

impl NodeRef<'_> {
    pub(crate) fn pos(&self) -> Pos {
        match self {
            NodeRef::Node(node) => node.pos(),
            NodeRef::Pipe(pipe) => pipe.pos,
            NodeRef::Command(command) => command.pos,
            NodeRef::Expr(expr) => expr.pos,
        }
    }

    /// The node as source, as Go prints it.
    pub(crate) fn to_source(self, source: &Source) -> String {
        let mut out = String::new();
        let written = match self {
            NodeRef::Node(node) => node.write(&mut out, source),
            NodeRef::Pipe(pipe) => pipe.write(&mut out, source),
            NodeRef::Command(command) => command.write(&mut out, source),
            NodeRef::Expr(expr) => expr.write(&mut out, source),
        };
        written.expect("writing to a string does not fail");
        out
    }
}

impl Node {
    pub(crate) fn pos(&self) -> Pos {
        match self {
            Node::Text { start, .. } => *start,
            Node::Action { pos, .. }
            | Node::Template { pos, .. }
            | Node::Break { pos }
            | Node::Continue { pos } => *pos,
            Node::If(branch) | Node::With(branch) | Node::Range(branch) => branch.pos,
        }
    }

    fn write(&self, out: &mut String, source: &Source) -> fmt::Result {
        match self {
            Node::Text { start, end } => {
                out.push_str(&golib::utf8::to_str(source.range(*start, *end)));
            }
            Node::Action { pipe, .. } => {
                out.push_str("{{");
                pipe.write(out, source)?;
                out.push_str("}}");
            }
            Node::If(branch) => branch.write("if", out, source)?,
            Node::With(branch) => branch.write("with", out, source)?,
            Node::Range(branch) => branch.write("range", out, source)?,
            Node::Template { name, pipe, .. } => {
                write!(
                    out,
                    "{{{{template {}",
                    golib::strconv::quote(name.as_bytes())
                )?;
                if let Some(pipe) = pipe {
                    out.push(' ');
                    pipe.write(out, source)?;
                }
                out.push_str("}}");
            }
            Node::Break { .. } => out.push_str("{{break}}"),
            Node::Continue { .. } => out.push_str("{{continue}}"),
        }
        Ok(())
    }
}

impl Branch {
    fn write(&self, keyword: &str, out: &mut String, source: &Source) -> fmt::Result {
        write!(out, "{{{{{keyword} ")?;
        self.pipe.write(out, source)?;
        out.push_str("}}");
        for node in &*self.list {
            node.write(out, source)?;
        }
        if let Some(list) = &self.else_list {
            out.push_str("{{else}}");
            for node in &**list {
                node.write(out, source)?;
            }
        }
        out.push_str("{{end}}");
        Ok(())
    }
}

impl Pipe {
    /// The variables that get its value.
    pub(crate) fn names(&self) -> &[Arc<str>] {
        self.decl.as_ref().map_or(&[], |decl| &decl.names)
    }

    /// Whether the variables are assigned, not declared.
    pub(crate) fn is_assign(&self) -> bool {
        self.decl.as_ref().is_some_and(|decl| decl.is_assign)
    }

    fn write(&self, out: &mut String, source: &Source) -> fmt::Result {
        if let Some(Declaration { is_assign, names }) = self.decl.as_deref() {
            out.push_str(&names.join(", "));
            out.push_str(if *is_assign { " = " } else { " := " });
        }
        for (i, command) in self.cmds.iter().enumerate() {
            if i > 0 {
                out.push_str(" | ");
            }
            command.write(out, source)?;
        }
        Ok(())
    }
}

impl Command {
    fn write(&self, out: &mut String, source: &Source) -> fmt::Result {
        for (i, arg) in self.args.iter().enumerate() {
            if i > 0 {
                out.push(' ');
            }
            arg.write_as_part(out, source)?;
        }
        Ok(())
    }
}

impl Expr {
    /// The fields of a variable.
    pub(crate) fn fields_to(&self, end: Pos) -> Fields {
        Fields {
            start: self.pos,
            end,
        }
    }

    /// As part of a command or chain, where a pipeline stands in parentheses.
    fn write_as_part(&self, out: &mut String, source: &Source) -> fmt::Result {
        if let ExprKind::Pipe(pipe) = &self.kind {
            out.push('(');
            pipe.write(out, source)?;
            out.push(')');
            return Ok(());
        }
        self.write(out, source)
    }

    fn write(&self, out: &mut String, source: &Source) -> fmt::Result {
        let fields = match &self.kind {
            ExprKind::Bool(value) => return write!(out, "{value}"),
            ExprKind::Dot => {
                out.push('.');
                return Ok(());
            }
            ExprKind::Nil => {
                out.push_str("nil");
                return Ok(());
            }
            ExprKind::Number(number) => {
                out.push_str(&number.text.to_str_lossy());
                return Ok(());
            }
            ExprKind::String(_) => {
                out.push_str(&golib::utf8::to_str(source.literal(self.pos)));
                return Ok(());
            }
            ExprKind::Identifier(function) => {
                out.push_str(function.name());
                return Ok(());
            }
            ExprKind::Pipe(pipe) => return pipe.write(out, source),
            ExprKind::Field(fields) => *fields,
            ExprKind::Variable { name, end } => {
                out.push_str(name);
                self.fields_to(*end)
            }
            ExprKind::Chain { base, fields } => {
                base.write_as_part(out, source)?;
                *fields
            }
        };
        out.push_str(&golib::utf8::to_str(source.range(fields.start, fields.end)));
        Ok(())
    }
}

/// Whether a body is only white space, which does not replace another definition of its name.
pub(crate) fn is_blank(list: &[Node], source: &Source) -> bool {
    list.iter().all(|node| match node {
        Node::Text { start, end } => golib::utf8::to_str(source.range(*start, *end))
            .trim()
            .is_empty(),
        _ => false,
    })
}
