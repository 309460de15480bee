//! Characters as Go sees them: decoding from bytes that need not be UTF-8, and Unicode's categories.

use std::sync::LazyLock;

use regex::Regex;

/// The first character and its length in bytes; a byte that begins no valid sequence is U+FFFD of length 1, and the
/// end is `None`.
pub(crate) fn decode_rune(bytes: &[u8]) -> Option<(char, usize)> {
    let &first = bytes.first()?;
    if first < 0x80 {
        return Some((char::from(first), 1));
    }
    let head = &bytes[..bytes.len().min(4)];
    let valid = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default(),
    };
    Some(
        valid
            .chars()
            .next()
            .map_or((char::REPLACEMENT_CHARACTER, 1), |c| (c, c.len_utf8())),
    )
}

/// Whether the character may be part of an identifier: `_`, a letter (category L) or a digit (Nd).
pub(crate) fn is_alphanumeric(c: char) -> bool {
    static LETTER_OR_DIGIT: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^[\p{L}\p{Nd}]$").expect("the pattern is constant"));
    if c.is_ascii() {
        return c == '_' || c.is_ascii_alphanumeric();
    }
    LETTER_OR_DIGIT.is_match(c.encode_utf8(&mut [0; 4]))
}

/// Go's `%#U`: the code point, and the character if it can be printed.
pub(crate) fn describe(c: char) -> String {
    let code = u32::from(c);
    if golib::strconv::is_print(c) {
        format!("U+{code:04X} '{c}'")
    } else {
        format!("U+{code:04X}")
    }
}
