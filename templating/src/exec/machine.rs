//! Walking the statements of a template. Mirrors the `walk` functions of Go's `text/template/exec.go`, with a stack of
//! frames in place of recursion.

use std::rc::Rc;
use std::sync::Arc;

use super::TemplateSet;
use super::renderer::Renderer;
use crate::error::{Cause, Error, ErrorKind, ExecError, Location};
use crate::fmt;
use crate::parse::{Branch, List, Node, NodeRef, Source, Tree};
use crate::value::{self, Object, Operand, Str, Type, Value};

/// A piece of work that is left to do.
enum Frame<'t> {
    /// The rest of a list of nodes.
    Nodes {
        rest: std::slice::Iter<'t, Node>,
        dot: Operand,
    },
    /// The end of an `if` or `with`: its variables go.
    Scope { mark: usize },
    /// The end of a `range` that takes its `else`, where a `break` ends it, as if it were going round.
    Else { mark: usize },
    /// A `range` between two turns.
    Range {
        branch: &'t Branch,
        items: Items,
        mark: usize,
        body_mark: usize,
    },
    /// The end of a `{{template}}`: back to the caller.
    Call {
        tree: &'t Tree,
        node: NodeRef<'t>,
        base: usize,
    },
}

/// What a `range` has not yet visited.
enum Items {
    List {
        list: value::List,
        next: usize,
    },
    Bytes {
        bytes: Str,
        next: usize,
    },
    Map {
        entries: std::vec::IntoIter<(Str, Value)>,
        element: Type,
    },
    Count {
        next: u64,
        end: u64,
        make: fn(u64) -> Value,
    },
    /// As `Count`, in numbers of the host's type.
    Named {
        next: i64,
        end: i64,
        object: Rc<dyn Object>,
    },
}

impl Iterator for Items {
    /// Index or key, and the element.
    type Item = (Operand, Operand);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Items::List { list, next } => {
                let item = list.get(*next)?.clone();
                let index = Value::Int(*next as i64);
                *next += 1;
                let element = list.list_type().element;
                Some((Operand::exact(index), Operand::element(item, element)))
            }
            Items::Bytes { bytes, next } => {
                let byte = *bytes.get(*next)?;
                let index = Value::Int(*next as i64);
                *next += 1;
                Some((Operand::exact(index), Operand::exact(Value::Uint8(byte))))
            }
            Items::Map { entries, element } => {
                let (key, item) = entries.next()?;
                Some((
                    Operand::exact(Value::Str(key)),
                    Operand::element(item, *element),
                ))
            }
            Items::Count { next, end, make } => {
                if *next >= *end {
                    return None;
                }
                let item = make(*next);
                *next += 1;
                Some((Operand::default(), Operand::exact(item)))
            }
            Items::Named { next, end, object } => {
                if *next >= *end {
                    return None;
                }
                let item = object.counted(*next)?;
                *next += 1;
                Some((Operand::default(), Operand::exact(item)))
            }
        }
    }
}

/// The execution of one template and of those it calls with `{{template}}`.
pub(super) struct Machine<'t, 's, 'a> {
    pub(super) renderer: &'s mut Renderer<'a>,
    pub(super) set: &'t TemplateSet,
    tree: &'t Tree,
    /// Where errors are reported: the node last looked at.
    node: Option<NodeRef<'t>>,
    vars: Vec<(&'t str, Operand)>,
    /// Where the variables of the current template begin.
    base: usize,
    depth: usize,
    frames: Vec<Frame<'t>>,
    /// Arguments of the calls that are being evaluated.
    pub(super) args: Vec<Operand>,
}

impl<'t, 's, 'a> Machine<'t, 's, 'a> {
    pub(super) fn new(
        renderer: &'s mut Renderer<'a>,
        set: &'t TemplateSet,
        tree: &'t Tree,
    ) -> Self {
        Self {
            renderer,
            set,
            tree,
            node: None,
            vars: Vec::new(),
            base: 0,
            depth: 0,
            frames: Vec::new(),
            args: Vec::new(),
        }
    }

    pub(super) fn run(mut self, dot: Operand) -> Result<(), Error> {
        self.renderer.state.check_stack()?;
        self.push_var("$", dot.clone());
        self.push_nodes(&self.tree.root, dot);
        while let Some(frame) = self.frames.last_mut() {
            match frame {
                Frame::Nodes { rest, dot } => match rest.next() {
                    Some(node) => {
                        let dot = dot.clone();
                        self.step(node, dot)?;
                    }
                    None => {
                        self.frames.pop();
                    }
                },
                Frame::Scope { mark } | Frame::Else { mark } => {
                    self.vars.truncate(*mark);
                    self.frames.pop();
                }
                Frame::Range { .. } => self.next_turn()?,
                Frame::Call { tree, node, base } => {
                    self.vars.truncate(self.base);
                    self.tree = tree;
                    self.node = Some(*node);
                    self.base = *base;
                    self.depth -= 1;
                    self.frames.pop();
                }
            }
        }
        Ok(())
    }

    /// The text that is being executed.
    pub(super) fn source(&self) -> &'t Source {
        &self.tree.source
    }

    /// Remembers the node that an error would be about.
    pub(super) fn at(&mut self, node: NodeRef<'t>) {
        self.node = Some(node);
    }

    /// The error of the current node.
    pub(super) fn fail<T>(&self, message: impl Into<String>) -> Result<T, Error> {
        Err(self.error(Cause::Message(message.into())))
    }

    pub(super) fn error(&self, cause: Cause) -> Error {
        let source = &self.tree.source;
        let pos = self.node.map_or(0, |node| node.pos());
        let (line, column, source_line) = source.place(pos);
        let node = self
            .node
            .map_or(String::new(), |node| node.to_source(source));
        let location = Location {
            name: Arc::clone(&source.name),
            line,
            column,
            source_line,
        };
        let template = Arc::clone(&self.tree.name);
        ErrorKind::Exec(ExecError {
            location,
            template,
            node,
            cause,
        })
        .into()
    }

    /// A limit's error, as one of the current node.
    pub(super) fn limited<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|error| self.error(Cause::Limit(error.to_string())))
    }

    fn push_nodes(&mut self, list: &'t List, dot: Operand) {
        self.frames.push(Frame::Nodes {
            rest: list.iter(),
            dot,
        });
    }

    pub(super) fn push_var(&mut self, name: &'t str, value: Operand) {
        self.vars.push((name, value));
    }

    pub(super) fn var(&self, name: &str) -> Result<&Operand, Error> {
        match self.vars[self.base..]
            .iter()
            .rev()
            .find(|(var, _)| *var == name)
        {
            Some((_, value)) => Ok(value),
            None => self.fail(format!("undefined variable: {name}")),
        }
    }

    pub(super) fn set_var(&mut self, name: &str, value: Operand) -> Result<(), Error> {
        match self.vars[self.base..]
            .iter_mut()
            .rev()
            .find(|(var, _)| *var == name)
        {
            Some((_, var)) => *var = value,
            None => return self.fail(format!("undefined variable: {name}")),
        }
        Ok(())
    }

    fn step(&mut self, node: &'t Node, dot: Operand) -> Result<(), Error> {
        self.at(NodeRef::Node(node));
        let spent = self.renderer.state.spend_steps(1);
        self.limited(spent)?;
        match node {
            Node::Text { start, end } => {
                let written = self
                    .renderer
                    .state
                    .write(self.tree.source.range(*start, *end));
                self.limited(written)
            }
            Node::Action { pipe, .. } => {
                let value = self.pipeline(&dot, pipe)?;
                if pipe.decl.is_none() {
                    self.at(NodeRef::Node(node));
                    let written = self.print(&value);
                    self.limited(written)?;
                }
                Ok(())
            }
            Node::If(branch) => self.branch(branch, dot, false),
            Node::With(branch) => self.branch(branch, dot, true),
            Node::Range(branch) => self.range(branch, dot),
            Node::Template { name, pipe, .. } => {
                self.call_template(node, name, pipe.as_deref(), &dot)
            }
            Node::Break { .. } => {
                self.unwind_to(|frame| matches!(frame, Frame::Range { .. } | Frame::Else { .. }));
                if let Some(Frame::Range { mark, .. } | Frame::Else { mark }) = self.frames.pop() {
                    self.vars.truncate(mark);
                }
                Ok(())
            }
            Node::Continue { .. } => {
                self.unwind_to(|frame| matches!(frame, Frame::Range { .. }));
                Ok(())
            }
        }
    }

    fn print(&mut self, value: &Operand) -> Result<(), Error> {
        if value.is_invalid() {
            return self.renderer.state.write(b"<no value>");
        }
        if value.is_addressable
            && let Value::Object(object) = &value.value
            && let Some(text) = object.text_by_address()
        {
            return self.renderer.state.write(&text);
        }
        fmt::write(&mut self.renderer.state, &value.value)
    }

    fn branch(&mut self, branch: &'t Branch, dot: Operand, is_with: bool) -> Result<(), Error> {
        let mark = self.vars.len();
        let value = self.pipeline(&dot, &branch.pipe)?;
        self.frames.push(Frame::Scope { mark });
        if value.value.is_true() {
            self.push_nodes(&branch.list, if is_with { value } else { dot });
        } else if let Some(list) = &branch.else_list {
            self.push_nodes(list, dot);
        }
        Ok(())
    }

    fn range(&mut self, branch: &'t Branch, dot: Operand) -> Result<(), Error> {
        let mark = self.vars.len();
        let value = self.pipeline(&dot, &branch.pipe)?.value;
        let body_mark = self.vars.len();
        let items = self.items(branch, value)?;
        let Some(items) = items else {
            self.frames.push(Frame::Else { mark });
            if let Some(list) = &branch.else_list {
                self.push_nodes(list, dot);
            }
            return Ok(());
        };
        self.frames.push(Frame::Range {
            branch,
            items,
            mark,
            body_mark,
        });
        Ok(())
    }

    /// The items to iterate over; `None` when the value is empty.
    fn items(&mut self, branch: &Branch, value: Value) -> Result<Option<Items>, Error> {
        let items = match &value {
            Value::Nil => return Ok(None),
            Value::List(list) => Items::List {
                list: list.clone(),
                next: 0,
            },
            Value::Bytes(bytes) => Items::Bytes {
                bytes: bytes.as_deref().cloned().unwrap_or_default(),
                next: 0,
            },
            Value::Map(map) => Items::Map {
                entries: map.entries().into_iter(),
                element: map.map_type().element,
            },
            _ => {
                let Some(items) = count(&value) else {
                    let text = self.text(&value)?;
                    return self.fail(format!("range can't iterate over {text}"));
                };
                if branch.pipe.names().len() > 1 {
                    let text = self.text(&value)?;
                    return self.fail(format!(
                        "can't use {text} to iterate over more than one variable"
                    ));
                }
                items
            }
        };
        let is_empty = match &items {
            Items::List { list, .. } => list.is_empty(),
            Items::Bytes { bytes, .. } => bytes.is_empty(),
            Items::Map { entries, .. } => entries.len() == 0,
            Items::Count { end, .. } => *end == 0,
            Items::Named { end, .. } => *end <= 0,
        };
        Ok((!is_empty).then_some(items))
    }

    fn text(&mut self, value: &Value) -> Result<Str, Error> {
        let text = fmt::sprint_printable(&mut self.renderer.state, std::slice::from_ref(value));
        self.limited(text.map(Str::from))
    }

    /// Begins the next turn of the range on top of the stack, or ends it.
    fn next_turn(&mut self) -> Result<(), Error> {
        let Some(Frame::Range {
            branch,
            items,
            mark,
            body_mark,
        }) = self.frames.last_mut()
        else {
            return Ok(());
        };
        let branch: &'t Branch = branch;
        self.vars.truncate(*body_mark);
        let Some((index, element)) = items.next() else {
            self.vars.truncate(*mark);
            self.frames.pop();
            return Ok(());
        };
        let spent = self.renderer.state.spend_steps(1);
        self.limited(spent)?;
        let is_assign = branch.pipe.is_assign();
        match (branch.pipe.names(), is_assign) {
            ([], _) => {}
            ([only], true) => self.set_var(only, element.clone())?,
            ([first, second, ..], true) => {
                self.set_var(first, index)?;
                self.set_var(second, element.clone())?;
            }
            ([_], false) => self.set_top_var(1, element.clone()),
            ([_, _, ..], false) => {
                self.set_top_var(1, element.clone());
                self.set_top_var(2, index);
            }
        }
        self.push_nodes(&branch.list, element);
        Ok(())
    }

    fn set_top_var(&mut self, from_top: usize, value: Operand) {
        let at = self.vars.len() - from_top;
        self.vars[at].1 = value;
    }

    /// Drops everything above the innermost such frame; the parser made sure there is one.
    fn unwind_to(&mut self, is_it: impl Fn(&Frame<'t>) -> bool) {
        while self.frames.last().is_some_and(|frame| !is_it(frame)) {
            self.frames.pop();
        }
    }

    fn call_template(
        &mut self,
        node: &'t Node,
        name: &str,
        pipe: Option<&'t crate::parse::Pipe>,
        dot: &Operand,
    ) -> Result<(), Error> {
        let Some(tree) = self.set.tree(name) else {
            let name = golib::strconv::quote(name);
            return self.fail(format!("template {name} not defined"));
        };
        let max_depth = self.renderer.state.limits().template_depth;
        if self.depth == max_depth {
            return self.fail(format!("exceeded maximum template depth ({max_depth})"));
        }
        let dot = match pipe {
            Some(pipe) => self.pipeline(dot, pipe)?,
            None => Operand::default(),
        };
        self.frames.push(Frame::Call {
            tree: self.tree,
            node: NodeRef::Node(node),
            base: self.base,
        });
        self.depth += 1;
        self.tree = tree;
        self.base = self.vars.len();
        self.push_var("$", dot.clone());
        self.push_nodes(&tree.root, dot);
        Ok(())
    }
}

/// `range` over a number: from 0 up to it, in its own type.
fn count(value: &Value) -> Option<Items> {
    if let Value::Object(object) = value
        && object.counted(0).is_some()
    {
        return Some(Items::Named {
            next: 0,
            end: value.as_signed()?,
            object: Rc::clone(object),
        });
    }
    let make: fn(u64) -> Value = match value {
        Value::Int(_) => |n| Value::Int(n as i64),
        Value::Int32(_) => |n| Value::Int32(n as i32),
        Value::Uint8(_) => |n| Value::Uint8(n as u8),
        Value::Uint32(_) => |n| Value::Uint32(n as u32),
        Value::Uint64(_) => Value::Uint64,
        _ => |n| Value::Int64(n as i64),
    };
    let end = match value.as_signed() {
        Some(end) => end.max(0) as u64,
        None => value.as_unsigned()?,
    };
    Some(Items::Count { next: 0, end, make })
}
