//! Slash-separated paths as Go's `path` package handles them, and its `Match`.
//!
//! Pure text: nothing here looks at a file system. On the systems we run on, Go's `filepath`
//! behaves the same. Paths are bytes, like Go's strings.

use crate::utf8;

/// The last element, without trailing slashes: `.` for nothing, `/` for only slashes.
///
/// ```
/// assert_eq!(golib::path::base(b"a/b.yaml"), b"b.yaml");
/// ```
pub fn base(path: &[u8]) -> &[u8] {
    if path.is_empty() {
        return b".";
    }
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
    let path = &path[..end];
    let start = path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
    if path.is_empty() {
        b"/"
    } else {
        &path[start..]
    }
}

/// All but the last element, cleaned.
///
/// ```
/// assert_eq!(golib::path::dir(b"a/b/../c.yaml"), b"a");
/// ```
pub fn dir(path: &[u8]) -> Vec<u8> {
    let end = path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
    clean(&path[..end])
}

/// The extension with its dot: from the last dot of the last element, or nothing.
///
/// ```
/// assert_eq!(golib::path::ext(b"chart.tar.gz"), b".gz");
/// ```
pub fn ext(path: &[u8]) -> &[u8] {
    let start = path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
    let last = &path[start..];
    last.iter()
        .rposition(|&b| b == b'.')
        .map_or(b"", |at| &last[at..])
}

/// Whether the path begins with a slash.
///
/// ```
/// assert!(golib::path::is_abs(b"/etc"));
/// ```
pub fn is_abs(path: &[u8]) -> bool {
    path.first() == Some(&b'/')
}

/// The shortest path that means the same: no empty elements, no `.`, `..` only at the front of a
/// relative path. Nothing becomes `.`.
///
/// ```
/// assert_eq!(golib::path::clean(b"a//./b/.."), b"a");
/// ```
pub fn clean(path: &[u8]) -> Vec<u8> {
    let rooted = is_abs(path);
    let mut elements: Vec<&[u8]> = Vec::new();
    for element in path.split(|&b| b == b'/') {
        match element {
            b"" | b"." => {}
            b".." => match elements.last() {
                Some(&last) if last != b".." => {
                    elements.pop();
                }
                None if rooted => {}
                _ => elements.push(element),
            },
            _ => elements.push(element),
        }
    }
    let joined = elements.join(&b'/');
    match (rooted, joined.is_empty()) {
        (true, _) => [b"/", joined.as_slice()].concat(),
        (false, true) => b".".to_vec(),
        (false, false) => joined,
    }
}

/// [`clean`] of a text.
///
/// ```
/// assert_eq!(golib::path::clean_text("/a/../b/"), "/b");
/// ```
pub fn clean_text(path: &str) -> String {
    String::from_utf8_lossy(&clean(path.as_bytes())).into_owned()
}

/// The pattern of [`matches()`] is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("syntax error in pattern")]
pub struct BadPattern;

/// Whether a shell pattern (`*`, `?`, `[a-z]`, `[^a]`, `\x`) matches the whole name. `*` and `?`
/// do not match a slash; classes do.
///
/// ```
/// use golib::path;
///
/// assert_eq!(path::matches("*.yaml", "values.yaml"), Ok(true));
/// assert_eq!(path::matches("*", "a/b"), Ok(false));
/// assert_eq!(path::matches("[", "a"), Err(path::BadPattern));
/// ```
///
/// # Errors
/// When the pattern is malformed. Like Go, the rest of the pattern is looked at even when the name
/// has ceased to match, so a bad pattern is always found.
pub fn matches(pattern: impl AsRef<[u8]>, name: impl AsRef<[u8]>) -> Result<bool, BadPattern> {
    glob(pattern.as_ref(), name.as_ref(), true)
}

/// Go's `filepath.Match`, where paths have slashes: as [`matches()`], but of a pattern that has ceased to match the rest is not looked at.
///
/// ```
/// use golib::path;
///
/// assert_eq!(path::matches_file("a*[", "b"), Ok(false));
/// assert_eq!(path::matches_file("a*[", "ab"), Err(path::BadPattern));
/// ```
///
/// # Errors
/// When the pattern is malformed as far as it was looked at.
pub fn matches_file(pattern: impl AsRef<[u8]>, name: impl AsRef<[u8]>) -> Result<bool, BadPattern> {
    glob(pattern.as_ref(), name.as_ref(), false)
}

fn glob(mut pattern: &[u8], mut name: &[u8], checks_rest: bool) -> Result<bool, BadPattern> {
    'pattern: while !pattern.is_empty() {
        let (star, chunk, rest) = scan_chunk(pattern);
        pattern = rest;
        if star && chunk.is_empty() {
            return Ok(!name.contains(&b'/'));
        }
        if let Some(tail) = match_chunk(chunk, name)?
            && (tail.is_empty() || !pattern.is_empty())
        {
            name = tail;
            continue;
        }
        if star {
            for skip in 0..name.iter().position(|&b| b == b'/').unwrap_or(name.len()) {
                if let Some(tail) = match_chunk(chunk, &name[skip + 1..])?
                    && (tail.is_empty() || !pattern.is_empty())
                {
                    name = tail;
                    continue 'pattern;
                }
            }
        }
        while checks_rest && !pattern.is_empty() {
            let (_, chunk, rest) = scan_chunk(pattern);
            pattern = rest;
            match_chunk(chunk, b"")?;
        }
        return Ok(false);
    }
    Ok(name.is_empty())
}

/// Leading stars, the pattern up to the next star, the rest.
fn scan_chunk(pattern: &[u8]) -> (bool, &[u8], &[u8]) {
    let stars = pattern.iter().take_while(|&&b| b == b'*').count();
    let pattern = &pattern[stars..];
    let mut in_class = false;
    let mut at = 0;
    while let Some(&byte) = pattern.get(at) {
        match byte {
            b'\\' if at + 1 < pattern.len() => at += 1,
            b'[' => in_class = true,
            b']' => in_class = false,
            b'*' if !in_class => break,
            _ => {}
        }
        at += 1;
    }
    let (chunk, rest) = pattern.split_at(at.min(pattern.len()));
    (stars > 0, chunk, rest)
}

/// What is left of the name after a chunk without stars, or nothing if it does not match.
fn match_chunk<'n>(chunk: &[u8], name: &'n [u8]) -> Result<Option<&'n [u8]>, BadPattern> {
    let mut chunk = chunk;
    let mut name = name;
    let mut failed = false;
    while let Some(&byte) = chunk.first() {
        failed = failed || name.is_empty();
        match byte {
            b'[' => {
                let mut c = '\0';
                if !failed {
                    (c, name) = first_rune(name);
                }
                let (within, rest) = match_class(&chunk[1..], c)?;
                chunk = rest;
                failed = failed || !within;
            }
            b'?' => {
                if !failed {
                    failed = name[0] == b'/';
                    name = first_rune(name).1;
                }
                chunk = &chunk[1..];
            }
            _ => {
                if byte == b'\\' {
                    chunk = &chunk[1..];
                }
                let &literal = chunk.first().ok_or(BadPattern)?;
                if !failed {
                    failed = literal != name[0];
                    name = &name[1..];
                }
                chunk = &chunk[1..];
            }
        }
    }
    Ok((!failed).then_some(name))
}

/// Whether a class (after its bracket) has the character, and the pattern after it.
fn match_class(class: &[u8], c: char) -> Result<(bool, &[u8]), BadPattern> {
    let (negated, mut rest) = match class.strip_prefix(b"^") {
        Some(rest) => (true, rest),
        None => (false, class),
    };
    let mut within = false;
    let mut first = true;
    loop {
        if !first && let Some(rest) = rest.strip_prefix(b"]") {
            return Ok((within != negated, rest));
        }
        first = false;
        let (low, after) = class_char(rest)?;
        let (high, after) = match after.strip_prefix(b"-") {
            Some(after) => class_char(after)?,
            None => (low, after),
        };
        within |= (low..=high).contains(&c);
        rest = after;
    }
}

/// The first character (U+FFFD of nothing) and the rest.
fn first_rune(text: &[u8]) -> (char, &[u8]) {
    utf8::split_first(text).unwrap_or((char::REPLACEMENT_CHARACTER, text))
}

fn class_char(text: &[u8]) -> Result<(char, &[u8]), BadPattern> {
    let text = match text.first() {
        None | Some(b'-' | b']') => return Err(BadPattern),
        Some(b'\\') => &text[1..],
        Some(_) => text,
    };
    let (c, rest) = first_rune(text);
    let is_invalid_byte = c == char::REPLACEMENT_CHARACTER && text.len() - rest.len() == 1;
    if is_invalid_byte || rest.is_empty() {
        Err(BadPattern)
    } else {
        Ok((c, rest))
    }
}

/// What is wrong with a file, as Go words it.
///
/// ```
/// let error = std::fs::read("/missing").unwrap_err();
/// assert_eq!(golib::path::io_cause(&error), "no such file or directory");
/// ```
pub fn io_cause(error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::NotFound => "no such file or directory".to_owned(),
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        ErrorKind::IsADirectory => "is a directory".to_owned(),
        ErrorKind::NotADirectory => "not a directory".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart_as_go_does() {
        for (path, want) in [
            ("", "."),
            ("/", "/"),
            ("//", "/"),
            ("a/b/", "b"),
            ("a", "a"),
        ] {
            assert_eq!(base(path.as_bytes()), want.as_bytes(), "{path}");
        }
        for (path, want) in [
            ("", "."),
            ("a", "."),
            ("/a", "/"),
            ("a//b", "a"),
            ("a/b/", "a/b"),
        ] {
            assert_eq!(dir(path.as_bytes()), want.as_bytes(), "{path}");
        }
        for (path, want) in [
            ("a.tar.gz", ".gz"),
            ("a.b/c", ""),
            (".x", ".x"),
            ("a.", "."),
        ] {
            assert_eq!(ext(path.as_bytes()), want.as_bytes(), "{path}");
        }
        for (path, want) in [
            ("", "."),
            ("a/../..", ".."),
            ("/../a", "/a"),
            ("../a", "../a"),
            ("a/../b", "b"),
            ("a/./b//c/..", "a/b"),
            ("../../a", "../../a"),
            ("a/..", "."),
            ("/", "/"),
        ] {
            assert_eq!(clean(path.as_bytes()), want.as_bytes(), "{path}");
        }
    }

    #[test]
    fn patterns_match_as_in_go() {
        for (pattern, name, want) in [
            ("*.yaml", "a.yaml", true),
            ("*", "a/b", false),
            ("a*/b", "a/c/b", false),
            ("a*b?c*x", "abxbbxdbxebxczzx", true),
            ("[a-c]?", "bé", true),
            ("[^a-c]", "b", false),
            ("a[/]b", "a/b", true),
            (r"\*", "*", true),
            (r"[\-]", "-", true),
            ("", "", true),
        ] {
            assert_eq!(matches(pattern, name), Ok(want), "{pattern} {name}");
        }
        for pattern in ["[", "[]a]", "[-]", "[a-]", r"a\", "x[", "*[", "[^", "a*[b"] {
            assert_eq!(matches(pattern, "a"), Err(BadPattern), "{pattern}");
        }
    }
}
