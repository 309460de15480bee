//! Quoting and unquoting: `Quote`, `QuoteToASCII`, `CanBackquote`, `Unquote`, `UnquoteChar`.

use std::fmt::Write as _;

use crate::unicode::is_print;
use crate::utf8;

/// Go's `Quote` (`%q`): a double-quoted Go string literal; bytes that are not UTF-8 become `\x..`.
///
/// ```
/// assert_eq!(golib::strconv::quote(b"a\n\xff"), r#""a\n\xff""#);
/// ```
pub fn quote(text: impl AsRef<[u8]>) -> String {
    quote_with(text.as_ref(), '"', false)
}

/// Go's `QuoteToASCII` (`%+q`): as [`quote`], with everything beyond ASCII escaped.
pub fn quote_to_ascii(text: impl AsRef<[u8]>) -> String {
    quote_with(text.as_ref(), '"', true)
}

/// Go's `QuoteRune`: a single-quoted character literal; a code point that is not a character prints as U+FFFD.
pub fn quote_rune(code_point: u32) -> String {
    rune_with(code_point, false)
}

/// Go's `QuoteRuneToASCII`.
pub fn quote_rune_to_ascii(code_point: u32) -> String {
    rune_with(code_point, true)
}

/// Go's `CanBackquote`: whether the text fits a single-line raw string literal unchanged.
pub fn can_backquote(text: impl AsRef<[u8]>) -> bool {
    std::str::from_utf8(text.as_ref()).is_ok_and(|text| {
        text.chars()
            .all(|c| c == '\t' || !matches!(c, '\0'..' ' | '`' | '\x7f' | '\u{feff}'))
    })
}

fn quote_with(text: &[u8], mark: char, ascii_only: bool) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push(mark);
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            escape(&mut out, c, mark, ascii_only);
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}"); // writing to a String cannot fail
        }
    }
    out.push(mark);
    out
}

fn rune_with(code_point: u32, ascii_only: bool) -> String {
    let mut out = String::from("'");
    let c = char::from_u32(code_point).unwrap_or(char::REPLACEMENT_CHARACTER);
    escape(&mut out, c, '\'', ascii_only);
    out.push('\'');
    out
}

fn escape(out: &mut String, c: char, mark: char, ascii_only: bool) {
    if c == mark || c == '\\' {
        out.push('\\');
        out.push(c);
        return;
    }
    if (c.is_ascii() || !ascii_only) && is_print(c) {
        out.push(c);
        return;
    }
    let code_point = u32::from(c);
    let _ = match c {
        '\x07' => out.write_str("\\a"),
        '\x08' => out.write_str("\\b"),
        '\x0c' => out.write_str("\\f"),
        '\n' => out.write_str("\\n"),
        '\r' => out.write_str("\\r"),
        '\t' => out.write_str("\\t"),
        '\x0b' => out.write_str("\\v"),
        '\0'..' ' | '\x7f' => write!(out, "\\x{code_point:02x}"),
        '\u{80}'..='\u{ffff}' => write!(out, "\\u{code_point:04x}"),
        _ => write!(out, "\\U{code_point:08x}"),
    };
}

/// The first character of a quoted literal, as Go's `UnquoteChar` returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unquoted<'a> {
    /// The code point; the byte itself for `\x..` and octal escapes.
    pub value: u32,
    /// Whether `value` stands for its UTF-8 encoding rather than for a single byte.
    pub multibyte: bool,
    /// What follows.
    pub tail: &'a [u8],
}

/// Go's `UnquoteChar(text, mark)`: decodes the first character or escape of a literal's inside. `mark` is the quote that
/// may not appear unescaped (`'"'`, `'\''`), or 0 for none. `None` is Go's "invalid syntax".
pub fn unquote_char(text: &[u8], mark: u8) -> Option<Unquoted<'_>> {
    let &first = text.first()?;
    let byte = |value: u8, tail| {
        Some(Unquoted {
            value: value.into(),
            multibyte: false,
            tail,
        })
    };
    if first == mark && matches!(mark, b'\'' | b'"') {
        return None;
    }
    if first >= 0x80 {
        let (c, tail) = utf8::split_first(text)?;
        return Some(Unquoted {
            value: c.into(),
            multibyte: true,
            tail,
        });
    }
    if first != b'\\' {
        return byte(first, &text[1..]);
    }
    let (&kind, tail) = text[1..].split_first()?;
    match kind {
        b'a' => byte(0x07, tail),
        b'b' => byte(0x08, tail),
        b'f' => byte(0x0c, tail),
        b'n' => byte(b'\n', tail),
        b'r' => byte(b'\r', tail),
        b't' => byte(b'\t', tail),
        b'v' => byte(0x0b, tail),
        b'\\' => byte(b'\\', tail),
        b'\'' | b'"' if kind == mark => byte(kind, tail),
        b'x' | b'u' | b'U' => {
            let length = match kind {
                b'x' => 2,
                b'u' => 4,
                _ => 8,
            };
            let (digits, tail) = tail.split_at_checked(length)?;
            let value = digits.iter().try_fold(0_u32, |value, &digit| {
                Some(value.wrapping_shl(4) | char::from(digit).to_digit(16)?)
            })?;
            if kind == b'x' {
                return Some(Unquoted {
                    value,
                    multibyte: false,
                    tail,
                });
            }
            char::from_u32(value)?;
            Some(Unquoted {
                value,
                multibyte: true,
                tail,
            })
        }
        b'0'..=b'7' => {
            let (digits, tail) = text[1..].split_at_checked(3)?;
            let value = digits.iter().try_fold(0_u32, |value, &digit| {
                Some(value * 8 + char::from(digit).to_digit(8)?)
            })?;
            (value <= 255).then_some(Unquoted {
                value,
                multibyte: false,
                tail,
            })
        }
        _ => None,
    }
}

/// Go's `Unquote`: the value of a double-quoted, backquoted or single-quoted (one character) Go literal. `None` is Go's
/// "invalid syntax".
///
/// ```
/// use golib::strconv::unquote;
///
/// assert_eq!(unquote(r#""a\tb""#), Some(b"a\tb".to_vec()));
/// assert_eq!(unquote("`raw`"), Some(b"raw".to_vec()));
/// assert_eq!(unquote("bare"), None);
/// ```
pub fn unquote(literal: impl AsRef<[u8]>) -> Option<Vec<u8>> {
    let literal = literal.as_ref();
    let [mark, inside @ .., last] = literal else {
        return None;
    };
    if mark != last {
        return None;
    }
    match mark {
        b'`' if inside.contains(&b'`') => None,
        b'`' => Some(
            inside
                .iter()
                .copied()
                .filter(|&byte| byte != b'\r')
                .collect(),
        ),
        b'"' | b'\'' => {
            let mut out = Vec::with_capacity(inside.len());
            let mut rest = inside;
            while !rest.is_empty() {
                if rest[0] == b'\n' {
                    return None;
                }
                let next = unquote_char(rest, *mark)?;
                match char::from_u32(next.value) {
                    Some(c) if next.multibyte => {
                        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                    }
                    _ => out.push(u8::try_from(next.value).ok()?),
                }
                rest = next.tail;
                if *mark == b'\'' {
                    return rest.is_empty().then_some(out);
                }
            }
            (*mark == b'"').then_some(out)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_as_go_does() {
        assert_eq!(quote("a\"b\\\n\t\x00\x7f"), r#""a\"b\\\n\t\x00\x7f""#);
        assert_eq!(
            quote("é\u{a0}\u{200b}\u{feff}😀\u{10ffff}"),
            "\"é\\u00a0\\u200b\\ufeff😀\\U0010ffff\""
        );
        assert_eq!(quote(b"\xe2\x82x"), r#""\xe2\x82x""#);
        assert_eq!(quote_to_ascii("é😀"), r#""\u00e9\U0001f600""#);
        assert_eq!(quote_rune(0xd800), "'\u{fffd}'");
        assert_eq!(quote_rune(u32::from('\'')), r"'\''");
        assert!(can_backquote("a\tb") && !can_backquote("a`b") && !can_backquote("a\nb"));
    }

    #[test]
    fn unquotes_as_go_does() {
        assert_eq!(
            unquote(r#""a\x41\u00e9\101\n""#).unwrap(),
            "aAéA\n".as_bytes()
        );
        assert_eq!(unquote(r#""\xff""#).unwrap(), b"\xff");
        assert_eq!(unquote("`a\\\r\n`").unwrap(), b"a\\\n");
        assert_eq!(unquote(r"'\''").unwrap(), b"'");
        for bad in [
            r#""\'""#,
            "\"a\nb\"",
            "'ab'",
            "''",
            "\"",
            "a",
            r#""\ud800""#,
            r#""\400""#,
            "\"a\"b\"",
        ] {
            assert_eq!(unquote(bad), None, "{bad}");
        }
    }
}
