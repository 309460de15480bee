//! What one render carries along.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use golib::weight::Budget;

use super::machine::Machine;
use super::{Operand, TemplateSet};
use crate::error::Error;
use crate::host::{Host, Limits};
use crate::parse::Tree;
use crate::value::{Str, Value, memory};

/// How deep `include` and `tpl` may nest, whatever the names: each level wraps the error of the one below, and
/// whoever prints or drops that chain needs stack for it.
const MAX_NESTED: usize = 1_500;
/// How many texts given to `tpl` are remembered, and how many bytes of them: a tree takes many times its text.
const MAX_PARSED: usize = 1024;
const MAX_PARSED_BYTES: usize = 1 << 20;
/// Memory that parsing needs for a byte of a large text, at worst, and from where on a text is large.
const PARSE_FACTOR: u64 = 64;
const LARGE_TEXT: u64 = 256 << 10;
/// Room for output from the beginning, in bytes: what a small template needs.
const FIRST_OUTPUT: usize = 1024;
/// What a document may weigh once decoded, in bytes.
const MAX_DOCUMENT: usize = 48 << 20;

/// The state of a render: its output, what it has used of its limits, and the host around it. Functions receive it.
///
/// One state can render several templates of a set, one after the other; the limits count for all of them together.
pub struct State<'a> {
    host: &'a dyn Host,
    limits: Limits,
    steps: u64,
    bytes: u64,
    /// Output that was handed over.
    rendered: u64,
    pub(crate) out: Vec<u8>,
    pub(crate) set: Arc<TemplateSet>,
    /// How often each name is being included at the moment.
    pub(crate) including: HashMap<Str, usize>,
    /// Texts that `tpl` has parsed.
    parsed: HashMap<Str, Arc<[Arc<Tree>]>>,
    parsed_bytes: usize,
    /// What lists and maps held before this render.
    memory_base: u64,
    /// An address on the stack near where the render began.
    stack_base: Option<usize>,
    /// How many templates are being executed inside each other.
    nested: usize,
    ran_out_of_stack: Cell<bool>,
}

impl<'a> State<'a> {
    pub fn new(set: Arc<TemplateSet>, host: &'a dyn Host, limits: Limits) -> Self {
        Self {
            host,
            limits,
            steps: 0,
            bytes: 0,
            rendered: 0,
            out: Vec::with_capacity(FIRST_OUTPUT),
            set,
            including: HashMap::new(),
            parsed: HashMap::new(),
            parsed_bytes: 0,
            memory_base: memory::live(),
            stack_base: None,
            nested: 0,
            ran_out_of_stack: Cell::new(false),
        }
    }

    /// Whether a larger stack, or deeper nesting of what is parsed, may give another result.
    pub fn ran_out_of_stack(&self) -> bool {
        self.ran_out_of_stack.get()
    }

    /// Executes a template of the set with a value as dot, and gives its output.
    ///
    /// # Errors
    /// When there is no such template, when it fails, and when a limit is used up.
    pub fn render(&mut self, name: &str, dot: &Value) -> Result<Vec<u8>, Error> {
        let output = self.render_with(name, dot, <[u8]>::to_vec)?;
        self.rendered += output.len() as u64;
        Ok(output)
    }

    /// [`State::render`], with the output taken from where it was written.
    pub(crate) fn render_with<T>(
        &mut self,
        name: &str,
        dot: &Value,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, Error> {
        let set = Arc::clone(&self.set);
        let Some(tree) = set.tree(name) else {
            let name = golib::strconv::quote(name);
            let set = golib::strconv::quote(set.name());
            return Err(Error::message(format!(
                "template: no template {name} associated with template {set}"
            )));
        };
        self.execute(&set, tree, dot, take)
    }

    /// Parses a text and executes it with all templates of the set in reach. What it defines is gone afterwards.
    /// Texts are parsed once per state.
    ///
    /// # Errors
    /// [`TplError`] tells a text that is no template from one that fails.
    pub(crate) fn render_text(&mut self, text: &Str, dot: &Value) -> Result<Vec<u8>, TplError> {
        let outer = Arc::clone(&self.set);
        let trees = match self.parsed.get(text) {
            Some(trees) => Arc::clone(trees),
            None => {
                self.spend_parse(text.len()).map_err(TplError::Execute)?;
                let trees = outer
                    .parse_trees(outer.name(), Bytes::copy_from_slice(text), &mut 0)
                    .map_err(|error| {
                        if error.is_too_deep() {
                            self.ran_out_of_stack.set(true);
                        }
                        TplError::Parse(error)
                    })?;
                let trees: Arc<[Arc<Tree>]> = trees.into();
                self.parsed_bytes += text.len();
                if self.parsed.len() >= MAX_PARSED || self.parsed_bytes > MAX_PARSED_BYTES {
                    self.parsed.clear();
                    self.parsed_bytes = text.len();
                }
                self.parsed.insert(text.clone(), Arc::clone(&trees));
                trees
            }
        };
        let set = Arc::new(TemplateSet::overlay(Arc::clone(&outer), &trees));
        // The text's own tree is last: definitions are finished before the text around them.
        let Some(tree) = trees.iter().rev().find(|tree| *tree.name == *outer.name()) else {
            return Ok(Vec::new());
        };
        self.set = Arc::clone(&set);
        let result = self.execute(&set, tree, dot, <[u8]>::to_vec);
        self.set = outer;
        result.map_err(TplError::Execute)
    }

    /// Output goes to the end of one buffer, however deep templates include each other.
    fn execute<T>(
        &mut self,
        set: &TemplateSet,
        tree: &Tree,
        dot: &Value,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, Error> {
        let is_outermost = self.stack_base.is_none();
        if is_outermost {
            self.stack_base = Some(stack_address());
        }
        if self.nested >= MAX_NESTED {
            return Err(Error::limit("template is nested too deeply"));
        }
        self.nested += 1;
        let start = self.out.len();
        let result = Machine::new(self, set, tree).run(Operand::exact(dot.clone()));
        self.nested -= 1;
        let result = result.map(|()| take(&self.out[start..]));
        self.out.truncate(start);
        if is_outermost {
            self.stack_base = None;
        }
        result
    }

    /// The world around the render.
    pub fn host(&self) -> &'a dyn Host {
        self.host
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Adds to the output.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.spend_bytes(bytes.len() as u64)?;
        let output = self.rendered + (self.out.len() + bytes.len()) as u64;
        if output > self.limits.output {
            return Err(too_much("writes", self.limits.output));
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    /// Counts work about to be done: elements to make, characters to look at.
    ///
    /// # Errors
    /// When the render has done more than its limit.
    pub fn spend_steps(&mut self, steps: u64) -> Result<(), Error> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > self.limits.steps {
            let limit = self.limits.steps;
            return Err(Error::limit(format!(
                "template needs more than {limit} steps"
            )));
        }
        Ok(())
    }

    /// Counts memory about to be filled. A function whose result can be much larger than its arguments (`repeat`,
    /// `indent`, `until`) calls this *before* building it.
    ///
    /// # Errors
    /// When the render has made more than its limit.
    pub fn spend_bytes(&mut self, bytes: u64) -> Result<(), Error> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limits.bytes {
            return Err(too_much("produces", self.limits.bytes));
        }
        if bytes > self.limits.text {
            return Err(too_much("makes a text of", self.limits.text));
        }
        Ok(())
    }

    /// Counts the reading of a text in some format. What is read takes a multiple of a large text's size.
    ///
    /// # Errors
    /// When the render has done or made more than its limits.
    pub fn spend_parse(&mut self, length: usize) -> Result<(), Error> {
        let length = length as u64;
        self.spend_steps(length / 16)?;
        self.check_memory(
            length
                .saturating_sub(LARGE_TEXT)
                .saturating_mul(PARSE_FACTOR),
        )
    }

    /// Fails when the lists and maps of the render, and those about to be made, hold too much.
    ///
    /// # Errors
    /// When they hold more than the limit.
    pub fn check_memory(&self, more: u64) -> Result<(), Error> {
        let held = memory::live().saturating_sub(self.memory_base);
        if held.saturating_add(more) > self.limits.memory {
            let limit = self.limits.memory;
            return Err(Error::limit(format!(
                "lists and maps hold more than {limit} bytes"
            )));
        }
        Ok(())
    }

    /// How long the next text may be.
    pub(crate) fn bytes_left(&self) -> u64 {
        let left = self.limits.bytes.saturating_sub(self.bytes);
        left.min(self.limits.text)
    }

    /// What a document may weigh that is decoded now.
    pub(crate) fn budget(&self) -> Budget {
        let held = memory::live().saturating_sub(self.memory_base);
        let left = self.limits.memory.saturating_sub(held);
        Budget::new(
            usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(MAX_DOCUMENT),
        )
    }

    /// Fails when too much of the native stack is used.
    pub(crate) fn check_stack(&self) -> Result<(), Error> {
        let used = self
            .stack_base
            .map_or(0, |base| base.abs_diff(stack_address()));
        if used > self.limits.stack_bytes {
            self.ran_out_of_stack.set(true);
            return Err(Error::limit("template is nested too deeply"));
        }
        Ok(())
    }
}

fn too_much(what: &str, limit: u64) -> Error {
    Error::limit(format!("template {what} more than {limit} bytes"))
}

/// Why `tpl` failed.
pub(crate) enum TplError {
    Parse(Error),
    Execute(Error),
}

#[inline(never)]
fn stack_address() -> usize {
    let here = 0_u8;
    std::ptr::from_ref(&here).addr()
}
