//! The glob language of `.Files.Glob`: gobwas/glob 0.2.3.
//!
//! `*` and `?` stop at separators, `**` does not; `[abc]`, `[!abc]`, `[a-z]`, `{one,two*}` and a
//! backslash for literal characters. Patterns become regular expressions, so matching takes time
//! linear in the name.

use regex::{Regex, RegexBuilder};

/// Most memory a compiled pattern may take, in bytes.
const MAX_COMPILED_BYTES: usize = 4 << 20;
/// Deepest nesting of braces.
const MAX_NESTING: usize = 100;

/// A compiled glob.
#[derive(Debug, Clone)]
pub struct Glob {
    regex: Regex,
}

/// Why a text is no glob; prints in the words of the Go library where it has some.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A class is not closed.
    #[error("unexpected end of input")]
    UnexpectedEnd,
    /// More follows the range of a class, as in `[a-z0]`.
    #[error("expected close range character")]
    ExpectedClose,
    /// A class is empty.
    #[error("could not parse range")]
    EmptyClass,
    /// The ends of a range are in the wrong order.
    #[error("hi character '{high}' should be greater than lo '{low}'")]
    ReversedRange {
        /// The first character of the range.
        low: char,
        /// The last character of the range.
        high: char,
    },
    /// The pattern contains U+FFFD, which the Go library takes for a read error.
    #[error("could not read rune")]
    Unreadable,
    /// Larger or deeper than this library is willing to compile.
    #[error("pattern too large")]
    TooLarge,
}

impl Glob {
    /// Compiles a pattern; `separator` is what `*` and `?` do not match.
    ///
    /// # Errors
    /// When the pattern is malformed or unreasonably large.
    pub fn compile(pattern: &str, separator: char) -> Result<Self, Error> {
        let regex = translate(pattern, separator)?;
        RegexBuilder::new(&regex)
            .size_limit(MAX_COMPILED_BYTES)
            .build()
            .map(|regex| Self { regex })
            .map_err(|_| Error::TooLarge)
    }

    /// Whether the whole name matches.
    pub fn matches(&self, name: &str) -> bool {
        self.regex.is_match(name)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stop_at_separators_and_double_stars_do_not() {
        for (pattern, name, want) in [
            ("*.txt", "a.txt", true),
            ("*.txt", "d/a.txt", false),
            ("**.txt", "d/a.txt", true),
            ("config/**", "config/a/b", true),
            ("config/*", "config/a/b", false),
            ("a?c", "a/c", false),
            ("{a,b*}/c", "bxx/c", true),
            ("{a,{b,c}d", "cd", true),
            ("[!a]", "b", true),
            ("[a-c]x", "bx", true),
            ("[ab-]", "-", true),
            (r"\*", "*", true),
            ("a}b,c", "a}b,c", true),
            ("", "", true),
        ] {
            let glob = Glob::compile(pattern, '/').expect(pattern);
            assert_eq!(glob.matches(name), want, "{pattern} {name}");
        }
    }

    #[test]
    fn malformed_classes_are_refused() {
        let refused = |pattern| Glob::compile(pattern, '/').expect_err(pattern).to_string();
        assert_eq!(refused("[a"), "unexpected end of input");
        assert_eq!(refused("[a-z0-9]"), "expected close range character");
        assert_eq!(refused("[]"), "could not parse range");
        assert_eq!(
            refused("[z-a]"),
            "hi character 'a' should be greater than lo 'z'"
        );
        assert_eq!(refused(&"{".repeat(1000)), "pattern too large");
    }
}
