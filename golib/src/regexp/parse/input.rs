//! Reading a pattern character by character, and blaming a part of it.

use crate::regexp::error::{Error, ErrorCode};
use crate::utf8;

pub(super) fn fail<T>(code: ErrorCode, expression: &[u8]) -> Result<T, Error> {
    Err(Error {
        code,
        expression: expression.to_vec(),
    })
}

/// The part of `from` before `rest`, which is a tail of it.
pub(super) fn before<'p>(from: &'p [u8], rest: &[u8]) -> &'p [u8] {
    &from[..from.len() - rest.len()]
}

/// The first character and what follows it; `None` at the end.
pub(super) fn next_char(text: &[u8]) -> Result<Option<(char, &[u8])>, Error> {
    match utf8::decode_rune(text) {
        None => Ok(None),
        Some((char::REPLACEMENT_CHARACTER, 1)) => fail(ErrorCode::InvalidUtf8, text),
        Some((c, width)) => Ok(Some((c, &text[width..]))),
    }
}

/// Like [`next_char`] where the end of the text is taken for the same error as Go's decoder gives.
pub(super) fn expect_char(text: &[u8]) -> Result<(char, &[u8]), Error> {
    // Go decodes an empty text as U+FFFD of width 0, which is no error and no digit.
    Ok(next_char(text)?.unwrap_or((char::REPLACEMENT_CHARACTER, text)))
}

pub(super) fn check_utf8(text: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(text)
        .or_else(|error| fail(ErrorCode::InvalidUtf8, &text[error.valid_up_to()..]))
}
