//! Patterns that do not compile, and Go's words for why.

/// What is wrong with a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorCode {
    /// A class such as `[b-a]`, or an unknown `\p{…}`.
    #[error("invalid character class range")]
    InvalidCharRange,
    /// A backslash before a character that it means nothing for.
    #[error("invalid escape sequence")]
    InvalidEscape,
    /// `(?P<name>…)` with a bad name, or one given twice.
    #[error("invalid named capture")]
    InvalidNamedCapture,
    /// `(?` and something unknown.
    #[error("invalid or unsupported Perl syntax")]
    InvalidPerlOp,
    /// `**`, `+*` and their like.
    #[error("invalid nested repetition operator")]
    InvalidRepeatOp,
    /// `{n}` beyond 1000, or `{2,1}`.
    #[error("invalid repeat count")]
    InvalidRepeatSize,
    /// A byte that is not UTF-8.
    #[error("invalid UTF-8")]
    InvalidUtf8,
    /// `[` without `]`.
    #[error("missing closing ]")]
    MissingBracket,
    /// `(` without `)`.
    #[error("missing closing )")]
    MissingParen,
    /// `*`, `+` or `?` with nothing before it.
    #[error("missing argument to repetition operator")]
    MissingRepeatArgument,
    /// A backslash at the end.
    #[error("trailing backslash at end of expression")]
    TrailingBackslash,
    /// `)` without `(`.
    #[error("unexpected )")]
    UnexpectedParen,
    /// More than a thousand groups inside each other.
    #[error("expression nests too deeply")]
    NestingDepth,
    /// Its compiled form would take more than the 16 MiB allowed.
    #[error("expression too large")]
    Large,
}

/// A pattern that does not compile; prints in Go's words, with the offending part of the pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// What is wrong.
    pub code: ErrorCode,
    /// The part of the pattern that is to blame.
    pub expression: Vec<u8>,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let expression = crate::utf8::to_str(&self.expression);
        write!(f, "error parsing regexp: {}: `{expression}`", self.code)
    }
}

impl std::error::Error for Error {}
