//! Numbers and quoted strings as text: Go's package `strconv`, to the byte, error texts included.
//!
//! Go's strings are bytes, so what is parsed or quoted is anything that is `AsRef<[u8]>`.

mod float;
mod integer;
mod quote;

pub use float::{format_float, parse_float};
pub use integer::{atoi, parse_bool, parse_int, parse_uint};
pub use quote::{
    Unquoted, can_backquote, quote, quote_rune, quote_rune_to_ascii, quote_to_ascii, unquote,
    unquote_char,
};

pub use crate::unicode::is_print;

/// Why a text is not a number: Go's `*strconv.NumError`, printed as Go prints it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("strconv.{function}: parsing {}: {kind}", quote(.text))]
pub struct NumError {
    /// The Go function that failed, such as `ParseInt`.
    pub function: &'static str,
    /// The text that was given.
    pub text: Vec<u8>,
    /// What is wrong with it.
    pub kind: NumErrorKind,
}

/// The cause inside a [`NumError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NumErrorKind {
    /// Not a number in this syntax.
    #[error("invalid syntax")]
    Syntax,
    /// A number, but too large for the type; see [`NumError::saturated`].
    #[error("value out of range")]
    Range,
    /// The base is not 0 or 2 to 36.
    #[error("invalid base {0}")]
    Base(u32),
}

impl NumError {
    fn new(function: &'static str, text: &[u8], kind: NumErrorKind) -> Self {
        Self {
            function,
            text: text.to_vec(),
            kind,
        }
    }

    /// What Go returns beside the error of a signed 64-bit parse: the nearest integer when out of range, else 0.
    pub fn saturated(&self) -> i64 {
        match self.kind {
            NumErrorKind::Range if self.text.starts_with(b"-") => i64::MIN,
            NumErrorKind::Range => i64::MAX,
            NumErrorKind::Syntax | NumErrorKind::Base(_) => 0,
        }
    }
}

/// Whether a text has a minus, and what is behind its sign.
fn split_sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    }
}

/// Whether underscores stand only between digits, or between a base prefix and a digit.
fn underscores_ok(text: &[u8]) -> bool {
    let (_, mut rest) = split_sign(text);
    let mut last = b'^';
    let mut hex = false;
    if let [b'0', prefix, tail @ ..] = rest
        && matches!(prefix.to_ascii_lowercase(), b'b' | b'o' | b'x')
    {
        last = b'0'; // the prefix counts as a digit
        hex = prefix.eq_ignore_ascii_case(&b'x');
        rest = tail;
    }
    for &byte in rest {
        if byte.is_ascii_digit() || hex && byte.is_ascii_hexdigit() {
            last = b'0';
        } else if byte == b'_' {
            if last != b'0' {
                return false;
            }
            last = b'_';
        } else {
            if last == b'_' {
                return false;
            }
            last = b'!';
        }
    }
    last != b'_'
}
