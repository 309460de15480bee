//! One render: a set of templates, what was parsed for it on the way, and the functions that execute templates.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use golib::strconv::quote;

use super::TemplateSet;
use super::machine::Machine;
use crate::error::Error;
use crate::funcs::{next_argument, without_no_value};
use crate::host::{Host, Limits};
use crate::parse::Tree;
use crate::state::State;
use crate::value::{Operand, Str, Value};

/// How deep `include` and `tpl` may nest, whatever the names: each level wraps the error of the one below, and
/// whoever prints or drops that chain needs stack for it.
const MAX_NESTED: usize = 1_500;
/// How many texts given to `tpl` are remembered, and how many bytes of them: a tree takes many times its text.
const MAX_PARSED: usize = 1024;
const MAX_PARSED_BYTES: usize = 1 << 20;

/// Executes the templates of a set, one after the other; the limits count for all of them together.
///
/// ```
/// use std::sync::Arc;
/// use templating::{Dialect, Limits, Map, Renderer, SystemHost};
///
/// let mut set = Dialect::Helm.template_set("chart");
/// set.parse("a", "{{ .name | upper }}")?;
/// set.parse("b", r#"{{ include "a" . | quote }}"#)?;
///
/// let data = Map::from_iter([("name", "world")]).into();
/// let mut renderer = Renderer::new(Arc::new(set), &SystemHost, Limits::default());
/// assert_eq!(renderer.render("a", &data)?, b"WORLD");
/// assert_eq!(renderer.render("b", &data)?, b"\"WORLD\"");
/// # Ok::<(), templating::Error>(())
/// ```
pub struct Renderer<'a> {
    pub(super) state: State<'a>,
    set: Arc<TemplateSet>,
    /// How often each name is being included at the moment.
    including: HashMap<Str, usize>,
    /// Texts that `tpl` has parsed.
    parsed: HashMap<Str, Arc<[Arc<Tree>]>>,
    parsed_bytes: usize,
    /// How many templates are being executed inside each other.
    nested: usize,
}

/// Why `tpl` failed.
enum TplError {
    Parse(Error),
    Execute(Error),
}

impl<'a> Renderer<'a> {
    /// A renderer of a set, in a world and within limits.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use templating::{Dialect, Limits, Renderer, SystemHost};
    ///
    /// let set = Arc::new(Dialect::Helm.template_set("chart")); // shared by any number of renders
    /// let limits = Limits { steps: 1_000_000, ..Limits::default() };
    /// let renderer = Renderer::new(Arc::clone(&set), &SystemHost, limits);
    /// assert!(!renderer.ran_out_of_stack());
    /// ```
    pub fn new(set: Arc<TemplateSet>, host: &'a dyn Host, limits: Limits) -> Self {
        Self {
            state: State::new(host, limits),
            set,
            including: HashMap::new(),
            parsed: HashMap::new(),
            parsed_bytes: 0,
            nested: 0,
        }
    }

    /// Whether a larger stack ([`Limits::stack_bytes`]), or deeper nesting of what is parsed
    /// ([`TemplateSet::with_max_depth`]), may give another result.
    pub fn ran_out_of_stack(&self) -> bool {
        self.state.ran_out_of_stack()
    }

    /// Goes on with another set: the limits count for the templates of all sets together.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use templating::{Dialect, Limits, Renderer, SystemHost, Value};
    ///
    /// let mut set = Dialect::Helm.template_set("one");
    /// set.parse("one", "{{ range until 10 }}{{ . }}{{ end }}")?;
    /// let set = Arc::new(set);
    /// let limits = Limits { steps: 100, ..Limits::default() };
    /// let mut renderer = Renderer::new(Arc::clone(&set), &SystemHost, limits);
    /// while let Ok(digits) = renderer.render("one", &Value::Nil) {
    ///     assert_eq!(digits, b"0123456789");
    ///     renderer.go_on_with(Arc::clone(&set));
    /// }
    /// # Ok::<(), templating::Error>(())
    /// ```
    pub fn go_on_with(&mut self, set: Arc<TemplateSet>) {
        self.set = set;
        self.including.clear();
        self.parsed.clear();
        self.parsed_bytes = 0;
    }

    /// Executes a template of the set with a value as dot, and gives its output.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use templating::{Dialect, Limits, Renderer, SystemHost, Value};
    ///
    /// let mut set = Dialect::Helm.template_set("chart");
    /// set.parse("t", "{{ range .ports }}{{ . }};{{ end }}")?;
    /// let dot = Value::from(serde_json::json!({ "ports": [80, 443] }));
    /// let mut renderer = Renderer::new(Arc::new(set), &SystemHost, Limits::default());
    /// assert_eq!(renderer.render("t", &dot)?, b"80;443;");
    /// # Ok::<(), templating::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such template, when it fails, and when a limit is used up.
    pub fn render(&mut self, name: &str, dot: &Value) -> Result<Vec<u8>, Error> {
        let output = self.execute_named(name.as_bytes(), dot, <[u8]>::to_vec)?;
        self.state.handed_over(output.len());
        Ok(output)
    }

    /// Helm's `include`: the output of a named template, as a string.
    pub(super) fn include(&mut self, args: &mut [Operand]) -> Result<Operand, Error> {
        let mut args = args.iter_mut();
        let (name, dot): (Str, Value) = (next_argument(&mut args)?, next_argument(&mut args)?);
        let max_depth = self.state.limits().include_depth;
        let depth = self.including.entry(name.clone()).or_insert(0);
        if *depth > max_depth {
            return Err(
                Error::message("unable to execute template").context(format!(
                    "rendering template has a nested reference name: {name}"
                )),
            );
        }
        *depth += 1;
        let result = self.execute_named(&name, &dot, |output| Str::from(output));
        if let Some(depth) = self.including.get_mut(&name) {
            *depth -= 1;
        }
        result.map(|output| Operand::exact(Value::Str(output)))
    }

    /// Helm's `tpl`: the output of a text as a template of its own, as a string.
    pub(super) fn tpl(&mut self, args: &mut [Operand]) -> Result<Operand, Error> {
        let mut args = args.iter_mut();
        let (text, dot): (Str, Value) = (next_argument(&mut args)?, next_argument(&mut args)?);
        match self.execute_text(&text, &dot) {
            Ok(output) => Ok(Operand::exact(Value::string(without_no_value(output)))),
            Err(TplError::Parse(error)) => {
                Err(error.context(format!("cannot parse template {}", quote(&text))))
            }
            Err(TplError::Execute(error)) => Err(error.context(format!(
                "error during tpl function execution for {}",
                quote(&text)
            ))),
        }
    }

    fn execute_named<T>(
        &mut self,
        name: &[u8],
        dot: &Value,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, Error> {
        let set = Arc::clone(&self.set);
        let Some(tree) = set.tree(&golib::utf8::to_str(name)) else {
            let (name, set) = (quote(name), quote(set.name()));
            return Err(Error::message(format!(
                "template: no template {name} associated with template {set}"
            )));
        };
        self.execute(&set, tree, dot, take)
    }

    /// Parses a text and executes it with all templates of the set in reach. What it defines is gone afterwards.
    /// Texts are parsed once per renderer.
    fn execute_text(&mut self, text: &Str, dot: &Value) -> Result<Vec<u8>, TplError> {
        let outer = Arc::clone(&self.set);
        let trees = match self.parsed.get(text) {
            Some(trees) => Arc::clone(trees),
            None => {
                self.state
                    .spend_parse(text.len())
                    .map_err(TplError::Execute)?;
                let trees = outer
                    .parse_trees(outer.name(), Bytes::copy_from_slice(text), &mut 0)
                    .map_err(|error| {
                        if error.is_too_deep() {
                            self.state.note_stack_end();
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
        let is_outermost = self.state.begin_stack();
        if self.nested >= MAX_NESTED {
            return Err(Error::limit("template is nested too deeply"));
        }
        self.nested += 1;
        let start = self.state.out.len();
        let result = Machine::new(self, set, tree).run(Operand::exact(dot.clone()));
        self.nested -= 1;
        let result = result.map(|()| take(&self.state.out[start..]));
        self.state.out.truncate(start);
        if is_outermost {
            self.state.end_stack();
        }
        result
    }
}
