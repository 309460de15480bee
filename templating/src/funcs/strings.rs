//! Sprig's `strings.go`: trimming, cutting, quoting, indenting, replacing, joining. What works on words is in `words.rs`.

use std::collections::{BTreeMap, HashSet};

use golib::strconv;
use golib::utf8::{decode_last_rune, runes, split_first};

use super::argument::Rest;
use super::functions::Functions;
use super::text::{to_text, to_texts};
use super::words;
use crate::error::Error;
use crate::fmt;
use crate::state::State;
use crate::value::{List, STRINGS, Str, Value, size};

pub(super) fn add(f: &mut Functions) {
    f.add("hello", || "Hello!");
    f.add("trim", |s: Str| Str::from(trim_space(&s)));
    f.add("trimAll", |state: &mut State<'_>, cutset: Str, s: Str| {
        state.spend_steps(cutset.len() as u64)?;
        Ok::<_, Error>(Str::from(trim(&s, &cutset)))
    });
    f.alias("trimAll", "trimall");
    f.add("trimPrefix", |prefix: Str, s: Str| {
        match s.strip_prefix(&*prefix) {
            Some(rest) if !prefix.is_empty() => Str::from(rest),
            _ => s,
        }
    });
    f.add("trimSuffix", |suffix: Str, s: Str| {
        match s.strip_suffix(&*suffix) {
            Some(rest) if !suffix.is_empty() => Str::from(rest),
            _ => s,
        }
    });
    f.add("trunc", trunc);
    f.add("substr", substr);
    f.add("repeat", repeat);
    f.add("indent", |state: &mut State<'_>, n: i64, s: Str| {
        indent(state, n, &s, b"")
    });
    f.add("nindent", |state: &mut State<'_>, n: i64, s: Str| {
        indent(state, n, &s, b"\n")
    });
    f.add("replace", replace);
    f.add("contains", |part: Str, s: Str| find(&s, &part).is_some());
    f.add("hasPrefix", |prefix: Str, s: Str| s.starts_with(&prefix));
    f.add("hasSuffix", |suffix: Str, s: Str| s.ends_with(&suffix));
    f.add("quote", |state: &mut State<'_>, parts: Rest<Value>| {
        join_present(state, &parts, |state, part, out| {
            out.extend(strconv::quote(&*to_text(state, part)?).into_bytes());
            Ok(())
        })
    });
    f.add("squote", |state: &mut State<'_>, parts: Rest<Value>| {
        join_present(state, &parts, |state, part, out| {
            out.push(b'\'');
            out.extend_from_slice(&fmt::to_text(state, part)?);
            out.push(b'\'');
            Ok(())
        })
    });
    f.add("cat", |state: &mut State<'_>, parts: Rest<Value>| {
        join_present(state, &parts, |state, part, out| {
            out.extend_from_slice(&fmt::to_text(state, part)?);
            Ok(())
        })
    });
    f.add(
        "plural",
        |one: Str, many: Str, count: i64| if count == 1 { one } else { many },
    );
    f.add("toString", |state: &mut State<'_>, value: Value| {
        to_text(state, &value)
    });
    f.add(
        "toStrings",
        |state: &mut State<'_>, value: Value| match value {
            Value::List(list) if std::ptr::eq(list.list_type(), &STRINGS) => Ok(list),
            other => to_texts(state, &other).map(List::strings),
        },
    );
    f.add("join", join);
    f.add(
        "splitList",
        |state: &mut State<'_>, separator: Str, s: Str| {
            split(state, &s, &separator, -1).map(List::strings)
        },
    );
    f.add("split", |state: &mut State<'_>, separator: Str, s: Str| {
        split(state, &s, &separator, -1).map(numbered)
    });
    f.add(
        "splitn",
        |state: &mut State<'_>, separator: Str, n: i64, s: Str| {
            split(state, &s, &separator, n).map(numbered)
        },
    );
    words::add(f);
}

fn is_space(c: char) -> bool {
    c.is_whitespace()
}

/// `strings.TrimSpace`.
pub(super) fn trim_space(text: &[u8]) -> &[u8] {
    trim_where(text, is_space)
}

/// `strings.Trim`.
fn trim<'t>(text: &'t [u8], cutset: &[u8]) -> &'t [u8] {
    let cutset: HashSet<char> = runes(cutset).map(|(c, _)| c).collect();
    trim_where(text, |c| cutset.contains(&c))
}

fn trim_where(text: &[u8], cut: impl Fn(char) -> bool) -> &[u8] {
    let mut text = text;
    while let Some((c, rest)) = split_first(text)
        && cut(c)
    {
        text = rest;
    }
    while let Some((c, length)) = decode_last_rune(text)
        && cut(c)
    {
        text = &text[..text.len() - length];
    }
    text
}

/// Keeps the first `count` bytes, or with a negative count the last.
fn trunc(count: i64, s: Str) -> Str {
    let length = s.len() as i64;
    if count < 0 && length + count > 0 {
        return Str::from(&s[(length + count) as usize..]);
    }
    if count >= 0 && length > count {
        return Str::from(&s[..count as usize]);
    }
    s
}

fn substr(start: i64, end: i64, s: Str) -> Result<Str, Error> {
    let length = s.len() as i64;
    let out_of_range = |what: String| Err(out_of_range(&what));
    if start < 0 {
        return match end {
            ..0 => out_of_range(format!("[:{end}]")),
            _ if end > length => out_of_range(format!("[:{end}] with length {length}")),
            _ => Ok(Str::from(&s[..end as usize])),
        };
    }
    if end < 0 || end > length {
        return match start > length {
            true => out_of_range(format!("[{start}:{length}]")),
            false => Ok(Str::from(&s[start as usize..])),
        };
    }
    match start > end {
        true => out_of_range(format!("[{start}:{end}]")),
        false => Ok(Str::from(&s[start as usize..end as usize])),
    }
}

/// What Go's runtime panics with on a bad slice expression.
pub(super) fn out_of_range(what: &str) -> Error {
    Error::message(format!("runtime error: slice bounds out of range {what}"))
}

fn repeat(state: &mut State<'_>, count: i64, s: Str) -> Result<Vec<u8>, Error> {
    let count =
        u64::try_from(count).map_err(|_| Error::message("strings: negative Repeat count"))?;
    let bytes = (s.len() as u64)
        .checked_mul(count)
        .filter(|&bytes| i64::try_from(bytes).is_ok())
        .ok_or_else(|| Error::message("strings: Repeat output length overflow"))?;
    check_length(bytes)?;
    state.spend_bytes(bytes)?;
    Ok(if s.is_empty() {
        Vec::new()
    } else {
        s.repeat(count as usize)
    })
}

/// Go's runtime knows no address for more than 256 TiB. It tries to take what is less, and so do we up to the limit.
fn check_length(bytes: u64) -> Result<(), Error> {
    match bytes > 1 << 48 {
        true => Err(Error::message("runtime error: makeslice: len out of range")),
        false => Ok(()),
    }
}

/// Puts spaces before every line, also the empty ones and what follows the last newline.
fn indent(state: &mut State<'_>, count: i64, s: &[u8], before: &[u8]) -> Result<Vec<u8>, Error> {
    let count =
        u64::try_from(count).map_err(|_| Error::message("strings: negative Repeat count"))?;
    check_length(count)?;
    let lines = s.iter().filter(|&&b| b == b'\n').count() as u64 + 1;
    let bytes = lines.saturating_mul(count).saturating_add(s.len() as u64);
    state.spend_bytes(bytes)?;
    let count = count as usize;
    let mut out = Vec::with_capacity(bytes as usize + before.len());
    out.extend_from_slice(before);
    for line in s.split_inclusive(|&b| b == b'\n') {
        out.resize(out.len() + count, b' ');
        out.extend_from_slice(line);
    }
    if s.is_empty() || s.ends_with(b"\n") {
        out.resize(out.len() + count, b' ');
    }
    Ok(out)
}

fn replace(state: &mut State<'_>, old: Str, new: Str, s: Str) -> Result<Str, Error> {
    if old == new {
        return Ok(s);
    }
    let mut out = Vec::with_capacity(s.len());
    if old.is_empty() {
        // Go inserts before every character and at the end.
        for (_, bytes) in runes(&s) {
            state.spend_bytes(new.len() as u64)?;
            out.extend_from_slice(&new);
            out.extend_from_slice(bytes);
        }
        out.extend_from_slice(&new);
        return Ok(Str::from(out));
    }
    let mut copied = 0;
    let mut failed = None;
    for_each_match(&s, &old, |at| {
        if let Err(error) = state.spend_bytes(new.len() as u64) {
            failed = Some(error);
            return false;
        }
        out.extend_from_slice(&s[copied..at]);
        out.extend_from_slice(&new);
        copied = at + old.len();
        true
    });
    if let Some(error) = failed {
        return Err(error);
    }
    if copied == 0 {
        return Ok(s);
    }
    out.extend_from_slice(&s[copied..]);
    Ok(Str::from(out))
}

/// Calls `found` with every place that does not overlap the one before, until it says false.
fn for_each_match(text: &[u8], part: &[u8], mut found: impl FnMut(usize) -> bool) {
    if let &[byte] = part {
        for (at, _) in text.iter().enumerate().filter(|(_, b)| **b == byte) {
            if !found(at) {
                return;
            }
        }
        return;
    }
    // Both searches are linear in the text, whatever the part.
    if let (Ok(text), Ok(part)) = (std::str::from_utf8(text), std::str::from_utf8(part)) {
        for (at, _) in text.match_indices(part) {
            if !found(at) {
                return;
            }
        }
        return;
    }
    let pattern: String = part.iter().map(|byte| format!(r"\x{byte:02x}")).collect();
    if let Ok(regex) = regex::bytes::Regex::new(&format!("(?-u){pattern}")) {
        for at in regex.find_iter(text).map(|found| found.start()) {
            if !found(at) {
                return;
            }
        }
    }
}

/// Where the part begins first.
pub(super) fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() {
        return Some(0);
    }
    let mut first = None;
    for_each_match(text, part, |at| {
        first = Some(at);
        false
    });
    first
}

/// The arguments that are not nil, separated by spaces.
fn join_present(
    state: &mut State<'_>,
    parts: &[Value],
    write: fn(&mut State<'_>, &Value, &mut Vec<u8>) -> Result<(), Error>,
) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    for (index, part) in parts
        .iter()
        .filter(|part| !part.is_untyped_nil())
        .enumerate()
    {
        if index > 0 {
            out.push(b' ');
        }
        write(state, part, &mut out)?;
    }
    state.spend_bytes(out.len() as u64)?;
    Ok(out)
}

fn join(state: &mut State<'_>, separator: Str, value: Value) -> Result<Vec<u8>, Error> {
    let texts = to_texts(state, &value)?;
    let bytes: usize = texts.iter().map(|text| text.len() + separator.len()).sum();
    state.spend_bytes(bytes as u64)?;
    Ok(texts.join(&*separator))
}

/// `strings.SplitN`.
fn split(
    state: &mut State<'_>,
    text: &[u8],
    separator: &[u8],
    limit: i64,
) -> Result<Vec<Str>, Error> {
    if limit == 0 {
        return Ok(Vec::new());
    }
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut parts: Vec<Str> = Vec::new();
    if separator.is_empty() {
        let mut rest = text;
        while let Some((_, after)) = split_first(rest)
            && parts.len() < limit - 1
        {
            spend_part(state, parts.len())?;
            parts.push(Str::from(&rest[..rest.len() - after.len()]));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Str::from(rest));
        }
        return Ok(parts);
    }
    let mut start = 0;
    let mut spent = Ok(());
    for_each_match(text, separator, |at| {
        if parts.len() >= limit - 1 {
            return false;
        }
        spent = spend_part(state, parts.len());
        parts.push(Str::from(&text[start..at]));
        start = at + separator.len();
        spent.is_ok()
    });
    spent?;
    parts.push(Str::from(&text[start..]));
    Ok(parts)
}

/// Counts one more part of a text that has been cut into so many.
pub(super) fn spend_part(state: &mut State<'_>, parts: usize) -> Result<(), Error> {
    state.spend_steps(1)?;
    state.check_memory(parts as u64 * size::ENTRY)
}

/// Sprig's way to return several strings: `_0`, `_1`, and so on.
fn numbered(parts: Vec<Str>) -> BTreeMap<Str, Str> {
    let name = |(index, part)| (Str::from(format!("_{index}")), part);
    parts.into_iter().enumerate().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searching_finds_bytes_that_are_no_text() {
        assert_eq!(find(b"a\xff\xfeb", b"\xff\xfe"), Some(1));
        assert_eq!(find(b"abc", b""), Some(0));
        assert_eq!(find("äöü".as_bytes(), "ö".as_bytes()), Some(2));
        assert_eq!(find(b"abc", b"x"), None);
    }

    #[test]
    fn trimming_knows_unicode_and_stops_at_invalid_bytes() {
        assert_eq!(trim_space("\u{85}\u{a0} a b\u{2003}\n".as_bytes()), b"a b");
        assert_eq!(trim_space(b" \xff "), b"\xff");
        assert_eq!(trim("äöxäö".as_bytes(), "öä".as_bytes()), b"x");
    }

    #[test]
    fn cutting_counts_bytes() {
        assert_eq!(trunc(-2, "abc".into()), "bc");
        assert_eq!(trunc(1, "é".into()).as_bytes(), [0xc3]);
        assert_eq!(substr(-1, 2, "abc".into()).unwrap(), "ab");
        let error = substr(5, 9, "abc".into()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "runtime error: slice bounds out of range [5:3]"
        );
    }
}
