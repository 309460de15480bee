//! The language as the library documents it, as a regular expression: matching takes time linear in the name.

use regex::{Regex, RegexBuilder};

use super::error::Error;

/// Most memory a compiled pattern may take, in bytes.
const MAX_COMPILED_BYTES: usize = 4 << 20;
/// Deepest nesting of braces.
const MAX_NESTING: usize = 100;

pub(super) fn compile(pattern: &str, separator: char) -> Result<Regex, Error> {
    RegexBuilder::new(&translate(pattern, separator)?)
        .size_limit(MAX_COMPILED_BYTES)
        .build()
        .map_err(|_| Error::TooLarge)
}

fn translate(pattern: &str, separator: char) -> Result<String, Error> {
    // A NUL ends a pattern, as it does in the Go library.
    let pattern = pattern.split('\0').next().unwrap_or_default();
    if pattern.contains(char::REPLACEMENT_CHARACTER) {
        return Err(Error::Unreadable);
    }
    let not_separator = format!(r"[^\x{{{:X}}}]", u32::from(separator));
    let mut out = String::from(r"\A(?:");
    let mut depth = 0_usize;
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '{' => {
                depth += 1;
                if depth > MAX_NESTING {
                    return Err(Error::TooLarge);
                }
                out.push_str("(?:");
            }
            ',' if depth > 0 => out.push('|'),
            '}' if depth > 0 => {
                depth -= 1;
                out.push(')');
            }
            '[' => translate_class(&mut chars, &mut out)?,
            '?' => out.push_str(&not_separator),
            '*' if chars.next_if_eq(&'*').is_some() => out.push_str("(?s:.)*"),
            '*' => {
                out.push_str(&not_separator);
                out.push('*');
            }
            // A backslash at the end stands for nothing.
            '\\' => out.extend(chars.next().map(literal)),
            c => out.push_str(&literal(c)),
        }
    }
    // An open brace is closed by the end of the pattern.
    out.extend(std::iter::repeat_n(')', depth));
    out.push_str(r")\z");
    Ok(out)
}

fn literal(c: char) -> String {
    format!(r"\x{{{:X}}}", u32::from(c))
}

/// The rest of a class after its opening bracket.
fn translate_class(
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
    out: &mut String,
) -> Result<(), Error> {
    let negation = if chars.next_if_eq(&'!').is_some() {
        "^"
    } else {
        ""
    };
    let first = chars.next().ok_or(Error::UnexpectedEnd)?;
    if chars.next_if_eq(&'-').is_some() {
        let high = chars.next().ok_or(Error::UnexpectedEnd)?;
        match chars.next() {
            None => return Err(Error::UnexpectedEnd),
            Some(']') => {}
            Some(_) => return Err(Error::ExpectedClose),
        }
        if high < first {
            return Err(Error::ReversedRange { low: first, high });
        }
        out.push_str(&format!("[{negation}{}-{}]", literal(first), literal(high)));
        return Ok(());
    }
    let mut members = String::new();
    let mut next = Some(first);
    loop {
        match next {
            None => return Err(Error::UnexpectedEnd),
            Some(']') => break,
            Some('\\') => members.push_str(&literal(chars.next().ok_or(Error::UnexpectedEnd)?)),
            Some(c) => members.push_str(&literal(c)),
        }
        next = chars.next();
    }
    if members.is_empty() {
        return Err(Error::EmptyClass);
    }
    out.push_str(&format!("[{negation}{members}]"));
    Ok(())
}
