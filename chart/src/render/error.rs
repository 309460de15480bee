//! Errors of a render, in the words Helm's engine finds for them.

use std::fmt;

use templating::error::{Cause, ExecError, ParseError};
use templating::{Error, ErrorKind};

/// Why a chart could not be rendered. Prints as Helm's error does; the parts are inside.
#[derive(Debug)]
#[non_exhaustive]
pub enum RenderError {
    /// A file is no template.
    Parse {
        /// Full name of the file.
        file: String,
        /// What the parser says.
        source: Error,
    },
    /// A template failed.
    Execute {
        /// Full name of the file that was rendered.
        file: String,
        /// Where and why.
        source: Error,
    },
    /// No thread to render on.
    Thread(std::io::Error),
    /// Rendering panicked, which is a mistake of ours.
    Panic(String),
}

impl RenderError {
    pub(super) fn parse(file: &str, source: Error) -> Self {
        Self::Parse {
            file: file.to_owned(),
            source,
        }
    }

    pub(super) fn execute(file: &str, source: Error) -> Self {
        Self::Execute {
            file: file.to_owned(),
            source,
        }
    }

    /// The template error inside.
    pub fn template_error(&self) -> Option<&Error> {
        match self {
            Self::Parse { source, .. } | Self::Execute { source, .. } => Some(source),
            Self::Thread(_) | Self::Panic(_) => None,
        }
    }
}

impl std::error::Error for RenderError {}

impl fmt::Display for RenderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parse { file, source } => match source.kind() {
                ErrorKind::Parse(ParseError {
                    name,
                    line,
                    message,
                    ..
                }) => {
                    // Helm keeps only what follows the last colon.
                    let message = message.rsplit(": ").next().unwrap_or(message);
                    write!(f, "parse error at ({name}:{line}): {message}")
                }
                _ => write!(f, "parse error in ({file}): {source}"),
            },
            Self::Execute { source, .. } => write_execution(f, source),
            Self::Thread(error) => write!(f, "cannot start a thread to render on: {error}"),
            Self::Panic(text) => write!(f, "rendering template failed: {text}"),
        }
    }
}

fn write_execution(f: &mut fmt::Formatter<'_>, error: &Error) -> fmt::Result {
    let ErrorKind::Exec(outermost) = error.kind() else {
        return write!(f, "{error}");
    };
    // What the chart's author wrote is shown plainly, at the place in the file being rendered.
    let refusal = error.chain().find_map(|error| match error.kind() {
        ErrorKind::Refused(text) => Some(text),
        _ => None,
    });
    if let Some(text) = refusal {
        return write!(f, "execution error at ({}): {text}", outermost.location);
    }
    match trace(error) {
        Some(trace) => f.write_str(trace.trim()),
        None => write!(f, "{error}"),
    }
}

/// One block per level, outermost first. Nothing when some level is no error of the template engine: Helm then shows
/// the whole as it is.
fn trace(error: &Error) -> Option<String> {
    let mut trace = String::new();
    let mut previous = String::new();
    for error in error.chain() {
        let block = match error.kind() {
            ErrorKind::Exec(exec) => block(exec),
            ErrorKind::Message(text) if text.starts_with("template: no template ") => {
                format!("{text}\n")
            }
            _ => return None,
        };
        if block != previous {
            trace.push_str(&block);
            previous = block;
        }
    }
    Some(trace)
}

fn block(error: &ExecError) -> String {
    let ExecError {
        location,
        template,
        node,
        cause,
    } = error;
    let message = match cause {
        Cause::Message(message) | Cause::Limit(message) => message.clone(),
        Cause::Call { function, .. } => format!("error calling {function}:"),
    };
    // Helm finds the parts again in the finished text; an expression that holds the separator ends early.
    let text = format!("{node}>: {message}");
    let (node, message) = text.split_once(">: ").unwrap_or((&text, ""));
    let message = message.split(" template:").next().unwrap_or(message);
    let template = golib::strconv::quote(template.as_bytes());
    format!("{location}\n  executing {template} at <{node}>:\n    {message}\n")
}
