//! Errors of parsing or executing a template.
//!
//! An error keeps its parts (template, line, column, the node, the cause) so that callers need not take its text apart;
//! its `Display` is the text that Go's `Error()` gives.

use std::fmt;
use std::sync::Arc;

/// A failed parse or execution, or a failed function.
///
/// ```
/// use std::sync::Arc;
/// use templating::error::{Cause, ErrorKind};
/// use templating::{Dialect, Limits, Renderer, SystemHost, Value};
///
/// let mut set = Dialect::Helm.template_set("chart");
/// set.parse("values.yaml", "a: 1\nsize: {{ len 5 }}")?;
/// let mut renderer = Renderer::new(Arc::new(set), &SystemHost, Limits::default());
/// let error = renderer.render("values.yaml", &Value::Nil).unwrap_err();
///
/// assert_eq!(
///     error.to_string(),
///     "template: values.yaml:2:9: executing \"values.yaml\" at <len 5>: error calling len: len of type int"
/// );
/// match error.kind() {
///     ErrorKind::Exec(exec) => {
///         assert_eq!((exec.location.line, exec.location.column), (2, 9));
///         assert_eq!(exec.node, "len 5");
///         assert!(matches!(&exec.cause, Cause::Call { function, .. } if function == "len"));
///     }
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), templating::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Error(Box<ErrorKind>);

/// The parts of an [`Error`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The template text is wrong. No column: Go does not keep it.
    Parse(ParseError),
    /// A node could not be executed.
    Exec(ExecError),
    /// A text and nothing more: what functions fail with.
    Message(String),
    /// The chart itself refuses, by `required` or `fail`. The text is the author's; printed it stands between the
    /// marks that Helm puts around it.
    Refused(String),
    /// Words put before another error.
    Context {
        /// Without the colon that separates it from the cause.
        text: String,
        /// The error that the words are put before.
        source: Error,
    },
    /// One of the caller's [`Limits`](crate::Limits) is used up.
    Limit(String),
}

/// See [`ErrorKind::Parse`].
#[derive(Clone, Debug)]
pub struct ParseError {
    /// The name the text was parsed under.
    pub name: Arc<str>,
    /// From 1.
    pub line: usize,
    /// Go's words.
    pub message: String,
    /// Whether the template nests deeper than [`TemplateSet::with_max_depth`](crate::TemplateSet::with_max_depth) allows.
    pub is_too_deep: bool,
    /// The offending line of the template.
    pub source_line: String,
}

/// See [`ErrorKind::Exec`].
#[derive(Clone, Debug)]
pub struct ExecError {
    /// Where the node is.
    pub location: Location,
    /// The template that was executing: the name of a `define`, or of the file.
    pub template: Arc<str>,
    /// The node as source text.
    pub node: String,
    /// Why the node failed.
    pub cause: Cause,
}

/// A place in a template file.
#[derive(Clone, Debug)]
pub struct Location {
    /// The name the text was parsed under, usually a file.
    pub name: Arc<str>,
    /// From 1.
    pub line: usize,
    /// In bytes, from 0, as Go counts.
    pub column: usize,
    /// The line of the template the node begins on.
    pub source_line: String,
}

/// Why a node failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// The engine's own complaint.
    Message(String),
    /// One of the caller's limits is used up.
    Limit(String),
    /// A function returned an error.
    Call {
        /// The function's name.
        function: String,
        /// The function's error.
        source: Error,
    },
}

impl Error {
    /// An error with no more than a text, as functions return them.
    pub fn message(text: impl Into<String>) -> Self {
        ErrorKind::Message(text.into()).into()
    }

    /// The chart's own refusal, see [`ErrorKind::Refused`].
    ///
    /// ```
    /// use templating::Error;
    ///
    /// // What `required` and `fail` end with: Helm finds the author's text between its marks.
    /// assert_eq!(Error::refused("name it").to_string(), "HELM_ERR_STARTname itHELM_ERR_END");
    /// ```
    pub fn refused(text: impl Into<String>) -> Self {
        ErrorKind::Refused(text.into()).into()
    }

    /// A used-up limit.
    pub fn limit(text: impl Into<String>) -> Self {
        ErrorKind::Limit(text.into()).into()
    }

    /// Puts words before the error.
    ///
    /// ```
    /// let error = templating::Error::message("no such file").context("reading values");
    /// assert_eq!(error.to_string(), "reading values: no such file");
    /// assert_eq!(error.chain().count(), 2);
    /// ```
    pub fn context(self, text: impl Into<String>) -> Self {
        ErrorKind::Context {
            text: text.into(),
            source: self,
        }
        .into()
    }

    /// The kind of error, to match on.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use templating::error::ErrorKind;
    /// use templating::{Dialect, Limits, Renderer, SystemHost, Value};
    ///
    /// let mut set = Dialect::Helm.template_set("chart");
    /// set.parse("a.yaml", "one\n{{ fail \"no\" }}")?;
    /// let error = Renderer::new(Arc::new(set), &SystemHost, Limits::default()).render("a.yaml", &Value::Nil);
    /// let error = error.unwrap_err();
    /// let ErrorKind::Exec(place) = error.kind() else { panic!("it failed while it ran") };
    /// assert_eq!((place.location.line, &*place.template), (2, "a.yaml"));
    /// # Ok::<(), templating::Error>(())
    /// ```
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }

    /// The error inside this one, if any.
    pub fn inner(&self) -> Option<&Error> {
        match self.kind() {
            ErrorKind::Exec(ExecError {
                cause: Cause::Call { source, .. },
                ..
            })
            | ErrorKind::Context { source, .. } => Some(source),
            _ => None,
        }
    }

    /// This error and all inside it, outermost first.
    ///
    /// ```
    /// let error = templating::Error::message("no such file").context("reading values").context("a.yaml");
    /// let texts: Vec<_> = error.chain().map(ToString::to_string).collect();
    /// assert_eq!(texts.last().map(String::as_str), Some("no such file"));
    /// ```
    pub fn chain(&self) -> impl Iterator<Item = &Error> {
        std::iter::successors(Some(self), |error| error.inner())
    }

    /// Whether the text nests too deep to be parsed, see [`ParseError::is_too_deep`].
    pub fn is_too_deep(&self) -> bool {
        matches!(self.kind(), ErrorKind::Parse(error) if error.is_too_deep)
    }

    /// Whether a limit ended the render, rather than a mistake.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use templating::{Dialect, Limits, Renderer, SystemHost, Value};
    ///
    /// let mut set = Dialect::Helm.template_set("chart");
    /// set.parse("endless", "{{ range until 1000000 }}{{ . }}{{ end }}")?;
    /// let limits = Limits { steps: 1_000, ..Limits::default() };
    /// let error = Renderer::new(Arc::new(set), &SystemHost, limits).render("endless", &Value::Nil);
    /// assert!(error.unwrap_err().is_limit());
    /// # Ok::<(), templating::Error>(())
    /// ```
    pub fn is_limit(&self) -> bool {
        self.chain().any(|error| {
            matches!(
                error.kind(),
                ErrorKind::Limit(_)
                    | ErrorKind::Exec(ExecError {
                        cause: Cause::Limit(_),
                        ..
                    })
            )
        })
    }

    /// A form for people: the message of the innermost place, the line it is on, and a mark below the node.
    ///
    /// Unlike `Display` this is ours, not Go's.
    ///
    /// ```
    /// let mut set = templating::Dialect::Helm.template_set("chart");
    /// let error = set.parse("a.yaml", "x: {{ if }}").unwrap_err();
    /// assert_eq!(error.pretty(), "missing value for if\n  --> a.yaml:1\n   1 | x: {{ if }}\n");
    /// ```
    pub fn pretty(&self) -> String {
        let mut text = String::new();
        for error in self.chain() {
            match error.kind() {
                ErrorKind::Exec(exec) => {
                    let Location {
                        name,
                        line,
                        column,
                        source_line,
                    } = &exec.location;
                    let before = source_line.get(..*column).unwrap_or(source_line);
                    let indent = before.chars().count();
                    text += &format!("  --> {name}:{line}:{}\n", indent + 1);
                    // A width of `format!` ends at 65,535.
                    let spaces = " ".repeat(indent);
                    text += &format!("{line:>4} | {source_line}\n     | {spaces}^\n");
                }
                ErrorKind::Parse(parse) => {
                    let ParseError {
                        name,
                        line,
                        source_line,
                        ..
                    } = parse;
                    text += &format!("  --> {name}:{line}\n{line:>4} | {source_line}\n");
                }
                _ => {}
            }
        }
        let root = self.chain().last().unwrap_or(self);
        let message = match root.kind() {
            ErrorKind::Exec(ExecError {
                cause: Cause::Message(message),
                ..
            }) => message.clone(),
            ErrorKind::Parse(parse) => parse.message.clone(),
            _ => root.to_string(),
        };
        format!("{message}\n{text}")
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self(Box::new(kind))
    }
}

impl From<String> for Error {
    fn from(text: String) -> Self {
        Self::message(text)
    }
}

impl From<&str> for Error {
    fn from(text: &str) -> Self {
        Self::message(text)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A loop, not recursion: a thousand nested includes make an error as deep.
        for error in self.chain() {
            match error.kind() {
                ErrorKind::Parse(error) => {
                    let ParseError {
                        name,
                        line,
                        message,
                        ..
                    } = error;
                    write!(f, "template: {name}:{line}: {message}")?;
                }
                ErrorKind::Exec(error) => {
                    write!(f, "{error}")?;
                }
                ErrorKind::Message(text) | ErrorKind::Limit(text) => f.write_str(text)?,
                ErrorKind::Refused(text) => write!(f, "HELM_ERR_START{text}HELM_ERR_END")?,
                ErrorKind::Context { text, .. } => write!(f, "{text}: ")?,
            }
        }
        Ok(())
    }
}

/// The text up to the cause's own error, which [`Error`] prints after it.
impl fmt::Display for ExecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            location,
            template,
            node,
            cause,
        } = self;
        let template = golib::strconv::quote(template.as_bytes());
        write!(
            f,
            "template: {location}: executing {template} at <{node}>: "
        )?;
        match cause {
            Cause::Message(message) | Cause::Limit(message) => f.write_str(message),
            Cause::Call { function, .. } => write!(f, "error calling {function}: "),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.name, self.line, self.column)
    }
}

impl std::error::Error for Error {
    // The causes are part of the text already, as they are in Go.
}
