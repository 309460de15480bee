//! The table of functions, and what stands in it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::argument::{Signature, Typed};
use crate::error::Error;
use crate::state::State;
use crate::value::Operand;

/// A function of the table.
#[derive(Clone)]
pub struct Function {
    pub(crate) name: Arc<str>,
    pub(crate) signature: Signature,
    pub(crate) body: Body,
}

/// `and`, `or` and `call` look at their arguments in a way of their own.
#[derive(Clone)]
pub(crate) enum Body {
    And,
    Or,
    Call,
    Function(Callee),
}

/// The code behind a function: Rust code, or a function that executes templates, which only the engine can.
#[derive(Clone)]
pub(crate) enum Callee {
    Native(Arc<Native>),
    Include,
    Tpl,
}

type Native = dyn Fn(&mut State<'_>, &mut [Operand]) -> Result<Operand, Error> + Send + Sync;

impl Function {
    /// The name it is called by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The Go signature.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.name, self.signature)
    }
}

/// All functions that the templates of a set may name. Templates are parsed against a table: a name that is not in it is
/// a parse error, as in Go.
///
/// ```
/// use templating::funcs::Rest;
/// use templating::{Functions, Str};
///
/// let mut functions = Functions::builtin();
/// functions.add("shout", |text: Str| format!("{text}!"));
/// functions.add("total", |numbers: Rest<i64>| numbers.iter().sum::<i64>());
/// functions.alias("total", "sum");
/// functions.remove("html");
/// assert_eq!(functions.get("shout").unwrap().signature().params.len(), 1);
/// assert!(functions.names().contains(&"sum"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Functions {
    table: HashMap<Arc<str>, Arc<Function>>,
}

impl Functions {
    /// Adds a function, or replaces the one of that name.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use templating::{Functions, Limits, Renderer, Str, SystemHost, TemplateSet, Value};
    ///
    /// let mut functions = Functions::builtin();
    /// functions.add("repeat", |count: i64, text: Str| text.to_string().repeat(count.max(0) as usize));
    /// let mut set = TemplateSet::new("set", Arc::new(functions));
    /// set.parse("t", r#"{{ "ab" | repeat 2 }}"#)?;
    /// let mut renderer = Renderer::new(Arc::new(set), &SystemHost, Limits::default());
    /// assert_eq!(renderer.render("t", &Value::Nil)?, b"abab");
    /// # Ok::<(), templating::Error>(())
    /// ```
    pub fn add<Args, F: Typed<Args>>(&mut self, name: &str, function: F) {
        let signature = F::signature();
        self.insert(
            name,
            signature,
            Body::Function(Callee::Native(Arc::new(function.into_native()))),
        );
    }

    /// Adds a second name for a function.
    ///
    /// ```
    /// use templating::{Functions, Str};
    ///
    /// let mut functions = Functions::builtin();
    /// functions.add("shout", |text: Str| format!("{text}!"));
    /// functions.alias("shout", "call");
    /// assert_eq!(functions.get("call").unwrap().name(), "call");
    /// ```
    ///
    /// # Panics
    /// If there is no function of the first name.
    pub fn alias(&mut self, name: &str, alias: &str) {
        let Function {
            signature, body, ..
        } = (*self.table[name]).clone();
        self.insert(alias, signature, body);
    }

    pub(crate) fn insert(&mut self, name: &str, signature: Signature, body: Body) {
        let name: Arc<str> = name.into();
        let function = Function {
            name: Arc::clone(&name),
            signature,
            body,
        };
        self.table.insert(name, Arc::new(function));
    }

    /// Takes a function away.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use templating::{Functions, TemplateSet};
    ///
    /// let mut functions = Functions::builtin();
    /// functions.remove("html");
    /// let mut set = TemplateSet::new("set", Arc::new(functions));
    /// let refused = set.parse("t", "{{ html 1 }}").unwrap_err();
    /// assert_eq!(refused.to_string(), "template: t:1: function \"html\" not defined");
    /// ```
    pub fn remove(&mut self, name: &str) {
        self.table.remove(name);
    }

    /// The function of a name.
    ///
    /// ```
    /// let functions = templating::Functions::builtin();
    /// let signature = functions.get("printf").unwrap().signature();
    /// assert!(signature.variadic); // func(string, ...interface {}) string
    /// assert_eq!(signature.params[0].name(), "string");
    /// ```
    pub fn get(&self, name: &str) -> Option<&Function> {
        self.resolve(name).map(|function| &**function)
    }

    /// What a tree keeps of a function, so that a call need not look it up.
    pub(crate) fn resolve(&self, name: &str) -> Option<&Arc<Function>> {
        self.table.get(name)
    }

    /// The names, sorted.
    ///
    /// ```
    /// let functions = templating::Functions::builtin();
    /// assert_eq!(functions.names()[..3], ["and", "call", "eq"]);
    /// ```
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.table.keys().map(|name| &**name).collect();
        names.sort_unstable();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::super::argument::Rest;
    use super::*;
    use crate::value::{Str, Type, Value};

    #[test]
    fn closures_have_go_signatures_in_errors() {
        let mut functions = Functions::default();
        functions.add("trunc", |_n: i64, s: Str| s);
        functions.add("cat", |parts: Rest<Value>| parts.len() as i64);
        functions.add("now", |_: &mut State<'_>| -> Result<bool, Error> {
            Ok(true)
        });
        let signature = functions.get("trunc").unwrap().signature();
        assert_eq!(signature.params, [Type::Int, Type::String]);
        assert!(functions.get("cat").unwrap().signature().variadic);
        assert!(functions.get("now").unwrap().signature().params.is_empty());
        assert_eq!(functions.names(), ["cat", "now", "trunc"]);
    }
}
