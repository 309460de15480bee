//! Classes: `[…]` and what stands for one.

use std::fmt::Write as _;

use super::Parser;
use super::escape::escape;
use super::input::{before, expect_char, fail};
use super::unicode::unicode_class;
use crate::regexp::error::{Error, ErrorCode};

/// A class without members.
pub(super) const NOTHING: &str = r"[^\x{0}-\x{10FFFF}]";

impl<'p> Parser<'p> {
    /// `[…]`
    pub(super) fn class(&mut self, text: &'p [u8]) -> Result<&'p [u8], Error> {
        let mut rest = &text[1..];
        let mut class = String::from("[");
        if rest.first() == Some(&b'^') {
            class.push('^');
            rest = &rest[1..];
        }
        let mut has_items = false;
        let mut first = true;
        while first || rest.first() != Some(&b']') {
            first = false;
            if let Some((named, after)) = posix_class(rest)? {
                class.push_str(&named);
                has_items = true;
                rest = after;
                continue;
            }
            if let Some((named, after)) = unicode_class(rest)? {
                class.push_str(&named);
                has_items = true;
                rest = after;
                continue;
            }
            if let Some((named, after)) = perl_class(rest) {
                class.push_str(named);
                has_items = true;
                rest = after;
                continue;
            }
            let range = rest;
            let (low, after) = class_char(rest, text)?;
            rest = after;
            let mut high = low;
            if rest.len() >= 2 && rest[0] == b'-' && rest[1] != b']' {
                let (code, after) = class_char(&rest[1..], text)?;
                rest = after;
                high = code;
                if high < low {
                    return fail(ErrorCode::InvalidCharRange, before(range, rest));
                }
            }
            has_items |= write_range(low, high, &mut class);
        }
        class.push(']');
        let text = match (has_items, class.starts_with("[^")) {
            (true, _) => self.folded(class, true),
            (false, false) => NOTHING.to_owned(),
            (false, true) => "(?s:.)".to_owned(),
        };
        self.push(text)?;
        Ok(&rest[1..])
    }
}

/// Writes a range of code points without the surrogates; whether anything was left to write.
fn write_range(low: u32, high: u32, class: &mut String) -> bool {
    let parts = [(low, high.min(0xD7FF)), (low.max(0xE000), high)];
    let mut wrote = false;
    for (low, high) in parts {
        if low <= high {
            write!(class, r"\x{{{low:X}}}-\x{{{high:X}}}").expect("writing to a String");
            wrote = true;
        }
    }
    wrote
}

fn class_char<'p>(text: &'p [u8], whole_class: &[u8]) -> Result<(u32, &'p [u8]), Error> {
    match text.first() {
        None => fail(ErrorCode::MissingBracket, whole_class),
        Some(b'\\') => escape(text),
        Some(_) => expect_char(text).map(|(c, rest)| (u32::from(c), rest)),
    }
}

/// `\d` and its siblings, which are ASCII in Go.
pub(super) fn perl_class(text: &[u8]) -> Option<(&'static str, &[u8])> {
    let class = match text.get(..2)? {
        br"\d" => "[0-9]",
        br"\D" => "[^0-9]",
        br"\s" => r"[\t\n\f\r ]",
        br"\S" => r"[^\t\n\f\r ]",
        br"\w" => "[0-9A-Za-z_]",
        br"\W" => "[^0-9A-Za-z_]",
        _ => return None,
    };
    Some((class, &text[2..]))
}

/// `[:alpha:]` and `[:^alpha:]`, inside a class.
pub(super) fn posix_class(text: &[u8]) -> Result<Option<(String, &[u8])>, Error> {
    if text.len() <= 2 || !text.starts_with(b"[:") {
        return Ok(None);
    }
    let Some(end) = text[2..].windows(2).position(|w| w == b":]") else {
        return Ok(None);
    };
    let (name, rest) = text.split_at(end + 4);
    let inner = &name[2..end + 2];
    let (negation, inner) = match inner.strip_prefix(b"^") {
        Some(inner) => ("^", inner),
        None => ("", inner),
    };
    let members = match inner {
        b"alnum" => "0-9A-Za-z",
        b"alpha" => "A-Za-z",
        b"ascii" => r"\x00-\x7F",
        b"blank" => r"\t ",
        b"cntrl" => r"\x00-\x1F\x7F",
        b"digit" => "0-9",
        b"graph" => "!-~",
        b"lower" => "a-z",
        b"print" => " -~",
        b"punct" => r"!-/:-@\[-`{-~",
        b"space" => r"\t\n\x0B\f\r ",
        b"upper" => "A-Z",
        b"word" => "0-9A-Za-z_",
        b"xdigit" => "0-9A-Fa-f",
        _ => return fail(ErrorCode::InvalidCharRange, name),
    };
    Ok(Some((format!("[{negation}{members}]"), rest)))
}
