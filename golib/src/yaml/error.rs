//! What is wrong with a text or a value, and Go's words for it.

use super::token::Mark;
use crate::budget::TooLarge;

/// Why a text is not read or a value not written, printed as Go prints it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not YAML, or YAML that yaml.v2 refuses.
    #[error("error converting YAML to JSON: yaml: {}", with_line(*.line, .message))]
    Syntax {
        /// What is wrong, in yaml.v2's words; where it lists several things, each with its line.
        message: String,
        /// Where yaml.v2 says it is, from 1. It says nothing of the first line.
        line: Option<usize>,
    },
    /// YAML that has no counterpart in JSON.
    #[error("error converting YAML to JSON: {0}")]
    Conversion(String),
    /// JSON of another shape than asked for.
    #[error("error unmarshaling JSON: while decoding JSON: {0}")]
    Json(String),
    /// A document that would fill the memory.
    #[error("error converting YAML to JSON: yaml: {0}")]
    TooLarge(#[from] TooLarge),
    /// A value that yaml.v2 cannot write.
    #[error("yaml: {0}")]
    Encode(String),
}

impl Error {
    pub(super) fn yaml(text: impl Into<String>) -> Self {
        Self::Syntax {
            message: text.into(),
            line: None,
        }
    }
}

pub(super) fn with_line(line: Option<usize>, message: &str) -> String {
    match line {
        Some(line) => format!("line {line}: {message}"),
        None => message.to_owned(),
    }
}

/// What the reader, scanner or parser objects to, and on which line (from 1) yaml.v2 says it is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Problem {
    pub(super) text: &'static str,
    pub(super) line: Option<usize>,
    /// The line that yaml.v3 says it is on.
    pub(super) line_in_v3: Option<usize>,
}

impl Problem {
    pub(super) fn bare(text: &'static str) -> Self {
        Self {
            text,
            line: None,
            line_in_v3: None,
        }
    }

    pub(super) fn reader(text: &'static str) -> Self {
        Self::bare(text)
    }

    /// yaml.v2 counts lines of its scanner's problems from 1, of its parser's from 0, and on the first line gives none, or
    /// that of the context.
    pub(super) fn scanner(text: &'static str, context: Mark, mark: Mark) -> Self {
        let line = if mark.line > 0 {
            mark.line + 1
        } else {
            context.line
        };
        let in_v3 = if context.line > 0 {
            context.line
        } else {
            mark.line
        };
        Self {
            text,
            line: (line > 0).then_some(line),
            line_in_v3: (in_v3 > 0).then_some(in_v3 + 1),
        }
    }

    pub(super) fn parser(text: &'static str, context: Option<Mark>, mark: Mark) -> Self {
        let line = if mark.line > 0 {
            mark.line
        } else {
            context.map_or(0, |mark| mark.line)
        };
        let in_v3 = context
            .map(|mark| mark.line)
            .filter(|&line| line > 0)
            .unwrap_or(mark.line);
        Self {
            text,
            line: (line > 0).then_some(line),
            line_in_v3: (in_v3 > 0).then_some(in_v3),
        }
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        Self::Syntax {
            message: problem.text.into(),
            line: problem.line,
        }
    }
}
