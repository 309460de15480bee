//! Bytes to checked UTF-8: encodings, byte order marks and the characters YAML allows.
//!
//! Mirrors the reader of yaml.v2 (`readerc.go`), which checks its input in blocks of 512 bytes just before they are
//! scanned. A bad character is therefore reported when the scanner reaches the block it is in, neither earlier (the first
//! document may end before it) nor later (an error behind it is not seen).

use std::borrow::Cow;

const BLOCK: usize = 512;

/// Text that may be scanned, and the problem that waits at its end.
pub(super) struct Input<'a> {
    pub(super) text: Cow<'a, [u8]>,
    pub(super) problem: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq)]
enum Encoding {
    Utf8,
    Utf16 { little: bool },
}

pub(super) fn read(bytes: &[u8]) -> Input<'_> {
    let (encoding, start) = match bytes {
        [0xff, 0xfe, ..] => (Encoding::Utf16 { little: true }, 2),
        [0xfe, 0xff, ..] => (Encoding::Utf16 { little: false }, 2),
        [0xef, 0xbb, 0xbf, ..] => (Encoding::Utf8, 3),
        _ => (Encoding::Utf8, 0),
    };
    if encoding == Encoding::Utf8 && is_plainly_fine(&bytes[start..]) {
        return Input {
            text: Cow::Borrowed(&bytes[start..]),
            problem: None,
        };
    }
    let mut wide = Vec::new();
    let (mut at, mut block_end) = (start, BLOCK);
    // Where the current block begins, in the bytes or, for UTF-16, in the text made of them.
    let mut block_start = start;
    let mut problem = None;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let decoded = match encoding {
            Encoding::Utf8 => decode_utf8(rest),
            Encoding::Utf16 { little } => decode_utf16(rest, little),
        };
        let width = match decoded {
            Ok((_, width)) | Err((_, width)) => width,
        };
        if at + width > block_end || at == block_end {
            block_end = at + BLOCK;
            block_start = if encoding == Encoding::Utf8 {
                at
            } else {
                wide.len()
            };
        }
        match decoded {
            Ok((c, width)) if is_allowed(c) => {
                if encoding != Encoding::Utf8 {
                    wide.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
                at += width;
            }
            Ok(_) => {
                problem = Some("control characters are not allowed");
                break;
            }
            Err((text, width)) => {
                if at + width == bytes.len() && text.starts_with("incomplete") {
                    // Seen only when the text before it is used up.
                    block_start = if encoding == Encoding::Utf8 {
                        at
                    } else {
                        wide.len()
                    };
                }
                problem = Some(text);
                break;
            }
        }
    }
    let text = if encoding == Encoding::Utf8 {
        let end = if problem.is_some() {
            block_start
        } else {
            bytes.len()
        };
        Cow::Borrowed(&bytes[start..end])
    } else {
        if problem.is_some() {
            wide.truncate(block_start);
        }
        Cow::Owned(wide)
    };
    Input { text, problem }
}

/// Whether the text is UTF-8 without characters that are not allowed, as nearly every text is.
fn is_plainly_fine(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    // ASCII is decided byte by byte, which the compiler does many at a time.
    let is_control =
        |byte: u8| byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r') || byte == 0x7f;
    let (mut control, mut wide) = (false, false);
    for &byte in bytes {
        control |= is_control(byte);
        wide |= byte >= 0x80;
    }
    !control && (!wide || text.chars().all(is_allowed))
}

fn is_allowed(c: char) -> bool {
    matches!(c,
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}'
        | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}')
}

/// The first character and its width, or the problem and how many bytes must be there for it to be noticed.
type Decoded = Result<(char, usize), (&'static str, usize)>;

fn decode_utf8(bytes: &[u8]) -> Decoded {
    let first = bytes.first().copied().unwrap_or(0);
    let (width, bits) = match first {
        0..0x80 => return Ok((char::from(first), 1)),
        0xc0..0xe0 => (2, first & 0x1f),
        0xe0..0xf0 => (3, first & 0x0f),
        0xf0..0xf8 => (4, first & 0x07),
        _ => return Err(("invalid leading UTF-8 octet", 1)),
    };
    let Some(trailing) = bytes.get(1..width) else {
        return Err(("incomplete UTF-8 octet sequence", bytes.len()));
    };
    let mut value = u32::from(bits);
    for &byte in trailing {
        if byte & 0xc0 != 0x80 {
            return Err(("invalid trailing UTF-8 octet", width));
        }
        value = value << 6 | u32::from(byte & 0x3f);
    }
    if value < [0x80, 0x800, 0x10000][width - 2] {
        return Err(("invalid length of a UTF-8 sequence", width));
    }
    char::from_u32(value)
        .map(|c| (c, width))
        .ok_or(("invalid Unicode character", width))
}

fn decode_utf16(bytes: &[u8], little: bool) -> Decoded {
    let unit = |at: usize| {
        let pair = bytes.get(at..at + 2)?.try_into().ok()?;
        let unit = if little {
            u16::from_le_bytes(pair)
        } else {
            u16::from_be_bytes(pair)
        };
        Some(u32::from(unit))
    };
    let Some(high) = unit(0) else {
        return Err(("incomplete UTF-16 character", bytes.len()));
    };
    match high {
        0xdc00..0xe000 => Err(("unexpected low surrogate area", 2)),
        0xd800..0xdc00 => match unit(2) {
            None => Err(("incomplete UTF-16 surrogate pair", bytes.len())),
            Some(low @ 0xdc00..0xe000) => {
                let value = 0x10000 + ((high & 0x3ff) << 10) + (low & 0x3ff);
                Ok((
                    char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER),
                    4,
                ))
            }
            Some(_) => Err(("expected low surrogate area", 4)),
        },
        _ => Ok((
            char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER),
            2,
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_cuts_the_text_at_its_block() {
        let mut bytes = vec![b'a'; 600];
        bytes.push(0x01);
        let input = read(&bytes);
        assert_eq!(input.text.len(), 512);
        assert_eq!(input.problem, Some("control characters are not allowed"));
        assert_eq!(read(b"a\xff").text.len(), 0);
        assert_eq!(&*read(b"a\xe2\x82").text, b"a");
        assert_eq!(read("é".as_bytes()).problem, None);
    }

    #[test]
    fn utf16_becomes_utf8() {
        assert_eq!(
            &*read(b"\xff\xfea\0:\0\x3d\xd8\x00\xde").text,
            "a:😀".as_bytes()
        );
        assert_eq!(&*read(b"\xfe\xff\0a").text, b"a");
        assert_eq!(
            read(b"\xff\xfea").problem,
            Some("incomplete UTF-16 character")
        );
    }
}
