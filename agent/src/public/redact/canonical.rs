//! One form of a text for all ways in which it may be quoted, that is the same of what is looked for: so nobody needs to know which of its signs are
//! escapes, and which its own, nor how often it was quoted.
//!
//! What has a number, in hexadecimal digits or as HTML has it, becomes the sign that it is of, until there is none; a blank and a plus sign are one, as in
//! addresses. Backslashes and quotes, and all signs before which some may stand, become a mark: any number of them, as each quoting adds some. A line break
//! is a mark and `n`, as `\\n` is, since behind a backslash may begin something else as well, as in `DOMAIN\\name`.

use std::borrow::Cow;

use super::readings::{Reading, Sign, backslashes, entity, in_address, quoted};

/// Replaces backslashes and quotes in the canonical form.
const MARK: u8 = b'\'';

/// So often is a text gone through for escapes that stand for others, which somebody may have nested without end.
const MOST_NESTED: usize = 16;

/// Whether a text has something that may be an escape.
pub(super) fn has_escapes(text: &str) -> bool {
    text.contains(['\\', '&', '%', '+']) || text.contains("''")
}

/// A text in that form.
pub(super) fn of_text(text: &str) -> Reading {
    marked(&decoded(text))
}

/// A text in that form without its line breaks, however it is indented, if it has some.
pub(super) fn of_lines(text: &str) -> Option<Reading> {
    let read = decoded(text);
    let breaks = |pair: &[u8]| pair[0] == b'\n' || pair == b"\\n";
    let has_lines = read.bytes.windows(2).any(breaks);
    has_lines.then(|| joined(read))
}

/// A secret in the same form, to search for: without what may be of another text's characters before and behind it.
pub(super) fn form(form: &str) -> Cow<'_, [u8]> {
    if form.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Cow::Borrowed(form.as_bytes());
    }
    let mut bytes = of_text(form).bytes;
    if bytes.last() == Some(&MARK) {
        bytes.pop();
    }
    if bytes.first() == Some(&MARK) {
        bytes.remove(0);
    }
    Cow::Owned(bytes)
}

/// The form to search for, without its line breaks.
pub(super) fn joined_form(form: &str) -> Cow<'_, [u8]> {
    if form.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Cow::Borrowed(form.as_bytes());
    }
    Cow::Owned(joined(decoded(form)).bytes)
}

fn decoded(text: &str) -> Reading {
    let mut read = Reading::plain(text);
    for _ in 0..MOST_NESTED {
        match read.read(coded) {
            Some(next) => read = next,
            None => break,
        }
    }
    read
}

/// An escape that has the number of what it stands for, or its name, with all backslashes before it.
fn coded(rest: &[u8]) -> Option<(Sign, usize)> {
    match rest.first()? {
        b'&' => entity(rest),
        b'%' => in_address(rest),
        b'\\' => {
            let last = backslashes(rest) - 1;
            let is_coded = matches!(rest.get(last + 1), Some(b'x' | b'u' | b'U'));
            let (sign, length) = quoted(&rest[last..]).filter(|_| is_coded)?;
            Some((sign, last + length))
        }
        _ => None,
    }
}

fn marked(read: &Reading) -> Reading {
    let (mut bytes, mut spans) = (Vec::new(), Vec::new());
    for (byte, span) in read.bytes.iter().zip(&read.spans) {
        if !byte.is_ascii_alphanumeric() && bytes.last() != Some(&MARK) {
            bytes.push(MARK);
            spans.push(*span);
        }
        if !is_mark(*byte) {
            bytes.push(shown(*byte));
            spans.push(*span);
        }
    }
    Reading { bytes, spans }
}

fn joined(read: Reading) -> Reading {
    let (mut bytes, mut spans) = (Vec::new(), Vec::new());
    let mut before = 0;
    for (byte, span) in read.bytes.into_iter().zip(read.spans) {
        let is_break = before == b'\\' && b"nrt".contains(&byte);
        let is_blank = byte.is_ascii_whitespace() || byte == b'+';
        if !is_break && !is_blank && !is_mark(byte) {
            bytes.push(byte);
            spans.push(span);
        }
        before = byte;
    }
    Reading { bytes, spans }
}

fn is_mark(byte: u8) -> bool {
    b"\\'\"`".contains(&byte)
}

/// A sign as it is behind a backslash.
fn shown(byte: u8) -> u8 {
    match byte {
        7 => b'a',
        8 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        11 => b'v',
        12 => b'f',
        b'\r' => b'r',
        27 => b'e',
        b'+' => b' ',
        other => other,
    }
}
