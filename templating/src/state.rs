//! What a render has at hand while it runs: the world outside, and how much of its limits is used. Functions are given it.

use golib::budget::Budget;

use crate::error::Error;
use crate::host::{Host, Limits};
use crate::memory;

/// Memory that parsing needs for a byte of a large text, at worst, and from where on a text is large.
const PARSE_FACTOR: u64 = 64;
const LARGE_TEXT: u64 = 256 << 10;
/// Room for output from the beginning, in bytes: what a small template needs.
const FIRST_OUTPUT: usize = 1024;
/// What a document may weigh once decoded, in bytes.
const MAX_DOCUMENT: usize = 48 << 20;
/// Steps between two checks whether the render is to go on: a millisecond or so.
const STEPS_A_CHECK: u64 = 10_000;

/// State of the render that calls a function or method: its [`Host`], and an account of its [`Limits`].
///
/// A function that may do much work, or make much more than it was given, says so before it begins, and ends with the error
/// that it gets where that is too much:
///
/// ```
/// use templating::{Error, Functions, State, Str};
///
/// let mut functions = Functions::builtin();
/// functions.add("stars", |state: &mut State<'_>, count: i64| -> Result<Str, Error> {
///     let count = usize::try_from(count).unwrap_or(0);
///     state.spend_bytes(count as u64)?;
///     Ok("*".repeat(count).into())
/// });
/// ```
pub struct State<'a> {
    host: &'a dyn Host,
    limits: Limits,
    steps: u64,
    /// How many steps are done when the host is asked next whether to go on.
    next_check: u64,
    bytes: u64,
    /// Output that was handed over.
    rendered: u64,
    pub(crate) out: Vec<u8>,
    /// Memory of lists and maps before this render.
    memory_base: u64,
    /// An address on the stack near where the render began.
    stack_base: Option<usize>,
    ran_out_of_stack: bool,
}

impl<'a> State<'a> {
    pub(crate) fn new(host: &'a dyn Host, limits: Limits) -> Self {
        Self {
            host,
            limits,
            steps: 0,
            next_check: STEPS_A_CHECK,
            bytes: 0,
            rendered: 0,
            out: Vec::with_capacity(FIRST_OUTPUT),
            memory_base: memory::live(),
            stack_base: None,
            ran_out_of_stack: false,
        }
    }

    /// The world around the render.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use templating::{Functions, Limits, Renderer, State, SystemHost, TemplateSet, Value};
    ///
    /// let mut functions = Functions::builtin();
    /// // A function that asks the world outside asks the render's host, so that a test can set its clock.
    /// functions.add("year", |state: &mut State<'_>| state.host().now().to_string()[..4].to_owned());
    /// let mut set = TemplateSet::new("set", Arc::new(functions));
    /// set.parse("t", "{{ year }}")?;
    /// let mut renderer = Renderer::new(Arc::new(set), &SystemHost, Limits::default());
    /// assert_eq!(renderer.render("t", &Value::Nil)?.len(), 4);
    /// # Ok::<(), templating::Error>(())
    /// ```
    pub fn host(&self) -> &'a dyn Host {
        self.host
    }

    /// What the render may use up.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use templating::{Functions, Limits, Renderer, State, SystemHost, TemplateSet, Value};
    ///
    /// let mut functions = Functions::builtin();
    /// functions.add("longest", |state: &mut State<'_>| state.limits().text);
    /// let mut set = TemplateSet::new("set", Arc::new(functions));
    /// set.parse("t", "{{ longest }}")?;
    /// let limits = Limits { text: 1 << 10, ..Limits::default() };
    /// assert_eq!(Renderer::new(Arc::new(set), &SystemHost, limits).render("t", &Value::Nil)?, b"1024");
    /// # Ok::<(), templating::Error>(())
    /// ```
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

    /// Counts output that leaves the buffer for good.
    pub(crate) fn handed_over(&mut self, bytes: usize) {
        self.rendered += bytes as u64;
    }

    /// Counts work about to be done: elements to make, characters to look at.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use templating::{Error, Functions, Limits, Renderer, State, SystemHost, TemplateSet, Value};
    ///
    /// let mut functions = Functions::builtin();
    /// functions.add("sumTo", |state: &mut State<'_>, last: i64| -> Result<i64, Error> {
    ///     state.spend_steps(last.unsigned_abs())?; // before the loop that it is about
    ///     Ok((1..=last).sum())
    /// });
    /// let mut set = TemplateSet::new("set", Arc::new(functions));
    /// set.parse("few", "{{ sumTo 100 }}")?;
    /// set.parse("many", "{{ sumTo 1000000000 }}")?;
    /// let mut renderer = Renderer::new(Arc::new(set), &SystemHost, Limits::default());
    /// assert_eq!(renderer.render("few", &Value::Nil)?, b"5050");
    /// assert!(renderer.render("many", &Value::Nil).unwrap_err().is_limit());
    /// # Ok::<(), templating::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the render has done more than its limit, or is to end.
    pub fn spend_steps(&mut self, steps: u64) -> Result<(), Error> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps >= self.next_check {
            self.next_check = self.steps.saturating_add(STEPS_A_CHECK);
            self.host.check()?;
        }
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
    /// ```
    /// use std::sync::Arc;
    /// use templating::{Error, Functions, Limits, Renderer, State, SystemHost, TemplateSet, Value};
    ///
    /// let mut functions = Functions::builtin();
    /// functions.add("stars", |state: &mut State<'_>, count: i64| -> Result<String, Error> {
    ///     state.spend_bytes(count.unsigned_abs())?; // before they are made
    ///     Ok("*".repeat(usize::try_from(count).unwrap_or(0)))
    /// });
    /// let mut set = TemplateSet::new("set", Arc::new(functions));
    /// set.parse("few", "{{ stars 3 }}")?;
    /// set.parse("many", "{{ stars 1000000000 }}")?;
    /// let mut renderer = Renderer::new(Arc::new(set), &SystemHost, Limits::default());
    /// assert_eq!(renderer.render("few", &Value::Nil)?, b"***");
    /// assert!(renderer.render("many", &Value::Nil).unwrap_err().is_limit());
    /// # Ok::<(), templating::Error>(())
    /// ```
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
    pub(crate) fn spend_parse(&mut self, length: usize) -> Result<(), Error> {
        let length = length as u64;
        self.spend_steps(length / 16)?;
        self.check_memory(
            length
                .saturating_sub(LARGE_TEXT)
                .saturating_mul(PARSE_FACTOR),
        )
    }

    /// Fails when the lists, maps and larger texts of the render, and those about to be made, hold too much.
    ///
    /// # Errors
    /// When they hold more than the limit.
    pub(crate) fn check_memory(&self, more: u64) -> Result<(), Error> {
        let held = memory::live().saturating_sub(self.memory_base);
        if held.saturating_add(more) > self.limits.memory {
            let limit = self.limits.memory;
            return Err(Error::limit(format!(
                "lists, maps and texts hold more than {limit} bytes"
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

    /// Notes where the stack is as a render begins; `false` inside of another.
    pub(crate) fn begin_stack(&mut self) -> bool {
        let is_outermost = self.stack_base.is_none();
        if is_outermost {
            self.stack_base = Some(stack_address());
        }
        is_outermost
    }

    /// Ends what [`Self::begin_stack`] began.
    pub(crate) fn end_stack(&mut self) {
        self.stack_base = None;
    }

    /// Fails when too much of the native stack is used.
    pub(crate) fn check_stack(&mut self) -> Result<(), Error> {
        let used = self
            .stack_base
            .map_or(0, |base| base.abs_diff(stack_address()));
        if used > self.limits.stack_bytes {
            self.ran_out_of_stack = true;
            return Err(Error::limit("template is nested too deeply"));
        }
        Ok(())
    }

    /// Remembers that a larger stack might have given another result.
    pub(crate) fn note_stack_end(&mut self) {
        self.ran_out_of_stack = true;
    }

    pub(crate) fn ran_out_of_stack(&self) -> bool {
        self.ran_out_of_stack
    }
}

fn too_much(what: &str, limit: u64) -> Error {
    Error::limit(format!("template {what} more than {limit} bytes"))
}

#[inline(never)]
fn stack_address() -> usize {
    let here = 0_u8;
    std::ptr::from_ref(&here).addr()
}
