//! Escapes: reading those of a pattern, and writing characters so that they mean nothing else.

use super::input::{before, expect_char, fail, next_char};
use crate::regexp::error::{Error, ErrorCode};

/// A character that stands for itself everywhere in a pattern.
pub(super) fn escaped(c: char) -> String {
    match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | ' ' => c.to_string(),
        c if c.is_alphanumeric() => c.to_string(),
        c => format!(r"\x{{{:X}}}", u32::from(c)),
    }
}

/// A backslash escape for one code point.
pub(super) fn escape(text: &[u8]) -> Result<(u32, &[u8]), Error> {
    let Some((c, mut rest)) = next_char(&text[1..])? else {
        return fail(ErrorCode::TrailingBackslash, b"");
    };
    let octal = |b: Option<&u8>| {
        b.filter(|b| (b'0'..=b'7').contains(*b))
            .map(|b| u32::from(b - b'0'))
    };
    match c {
        '0'..='7' if c == '0' || octal(rest.first()).is_some() => {
            let mut code = u32::from(c) - u32::from('0');
            for _ in 0..2 {
                let Some(digit) = octal(rest.first()) else {
                    break;
                };
                code = code * 8 + digit;
                rest = &rest[1..];
            }
            return Ok((code, rest));
        }
        'x' if !rest.is_empty() => {
            let (c, after) = expect_char(rest)?;
            rest = after;
            if c == '{' {
                let mut code = None;
                while let Some((c, after)) = next_char(rest)? {
                    rest = after;
                    match (c, c.to_digit(16), code) {
                        ('}', _, Some(code)) => return Ok((code, rest)),
                        (_, Some(digit), _) => {
                            let next = code.unwrap_or(0) * 16 + digit;
                            if next > u32::from(char::MAX) {
                                break;
                            }
                            code = Some(next);
                        }
                        _ => break,
                    }
                }
            } else {
                let (d, after) = expect_char(rest)?;
                rest = after;
                if let (Some(high), Some(low)) = (c.to_digit(16), d.to_digit(16)) {
                    return Ok((high * 16 + low, rest));
                }
            }
        }
        'a' => return Ok((7, rest)),
        'f' => return Ok((12, rest)),
        'n' => return Ok((10, rest)),
        'r' => return Ok((13, rest)),
        't' => return Ok((9, rest)),
        'v' => return Ok((11, rest)),
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => return Ok((u32::from(c), rest)),
        _ => {}
    }
    fail(ErrorCode::InvalidEscape, before(text, rest))
}
