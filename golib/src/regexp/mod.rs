//! Regular expressions in Go's syntax with Go's semantics.
//!
//! Go's RE2 dialect is parsed here (`parse`) and handed, re-written, to the `regex` crate, which
//! like RE2 is linear in the text and prefers the leftmost-first match. Texts are bytes: like Go, an
//! invalid byte is matched as if U+FFFD stood there. Finding, replacing and splitting follow Go's
//! `regexp` package in what they do with empty matches and with a count. Whatever matches is paid for: see [`Meter`].

mod budget;
mod error;
mod meter;
mod parse;
mod replace;
mod unicode_version;

use std::borrow::Cow;
use std::ops::Range;

use regex::bytes::{Regex, RegexBuilder};

use crate::strconv;
pub use budget::Budget;
pub use error::{Error, ErrorCode};
use meter::Searches;
pub use meter::{Meter, Steps, TooSlow};
use unicode_version::KNOWN;

/// Most memory a compiled pattern may take, in bytes.
const MAX_COMPILED_BYTES: usize = 16 << 20;
/// Nesting in the re-written pattern; ours is at most about twice Go's limit of 1000.
const MAX_NESTING: u32 = 3200;

/// A compiled regular expression.
#[derive(Debug, Clone)]
pub struct Regexp {
    regex: Regex,
    /// One entry for every capture group, the whole match (never named) first.
    names: Vec<Option<String>>,
    is_empty_pattern: bool,
    effort: u64,
    /// As `regex` was given it, unless it nests deeply.
    pattern: Option<String>,
}

impl Regexp {
    /// Compiles a pattern.
    ///
    /// ```
    /// use golib::regexp::{ErrorCode, Regexp, Steps};
    ///
    /// let word = Regexp::compile(r"\w+")?;
    /// let mut steps = Steps::new(1_000);
    /// assert_eq!(word.is_match(b"a b", &mut steps), Ok(true));
    /// assert_eq!(word.find(b"- abc", &mut steps), Ok(Some(2..5)));
    ///
    /// let error = Regexp::compile("a**").unwrap_err();
    /// assert_eq!(error.code, ErrorCode::InvalidRepeatOp);
    /// assert_eq!(error.to_string(), "error parsing regexp: invalid nested repetition operator: `**`");
    /// # Ok::<(), golib::regexp::Error>(())
    /// ```
    ///
    /// # Errors
    /// Where Go's `regexp.Compile` fails, and where the compiled form would take more than 16 MiB.
    pub fn compile(pattern: impl AsRef<[u8]>) -> Result<Self, Error> {
        // All that is left to refuse after our own parser is the size.
        Self::compile_within(pattern, &mut Budget::new(usize::MAX))
    }

    /// Compiles one of several patterns that are kept beside each other.
    ///
    /// ```
    /// use golib::regexp::{Budget, ErrorCode, Regexp};
    ///
    /// let mut budget = Budget::new(1 << 20);
    /// assert!(Regexp::compile_within("a+", &mut budget).is_ok());
    /// let error = Regexp::compile_within(r"\pL{150}", &mut budget).unwrap_err();
    /// assert_eq!(error.code, ErrorCode::Large);
    /// # Ok::<(), golib::regexp::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Regexp::compile`], and before it is compiled where the budget has not enough left for it.
    pub fn compile_within(pattern: impl AsRef<[u8]>, budget: &mut Budget) -> Result<Self, Error> {
        let pattern = pattern.as_ref();
        let parsed = parse::parse(pattern)?;
        let effort = effort(&parsed);
        let regex = budget.take(effort).and_then(|()| build(&parsed));
        let regex = regex.ok_or_else(|| Error {
            code: ErrorCode::Large,
            expression: pattern.to_vec(),
        })?;
        Ok(Self {
            regex,
            is_empty_pattern: pattern.is_empty(),
            effort,
            pattern: (parsed.height <= DEEP).then_some(parsed.pattern),
            names: parsed.names,
        })
    }

    /// How much work compiling was, about: the characters of the pattern with its repetitions written out.
    pub fn effort(&self) -> u64 {
        self.effort
    }

    /// What it takes of a [`Budget`], in bytes.
    pub fn weight(&self) -> usize {
        budget::weight(self.effort)
    }

    /// Whether the text contains a match.
    ///
    /// # Errors
    /// The meter's.
    pub fn is_match<M: Meter>(&self, text: &[u8], meter: &mut M) -> Result<bool, M::Error> {
        self.find(text, meter).map(|found| found.is_some())
    }

    /// The first match, as a range of bytes.
    ///
    /// # Errors
    /// The meter's.
    pub fn find<M: Meter>(
        &self,
        text: &[u8],
        meter: &mut M,
    ) -> Result<Option<Range<usize>>, M::Error> {
        let subject = Subject::new(text);
        let mut searches = Searches::begin(self, &subject, meter)?;
        let found = searches.search(0, find)?;
        Ok(found.map(|found| subject.original(&found)))
    }

    /// All matches that do not overlap, at most `limit` if it is not negative. An empty match
    /// directly after another match does not count.
    ///
    /// ```
    /// use golib::regexp::{Regexp, Steps};
    ///
    /// let found = Regexp::compile("[0-9]+")?.find_all(b"1 22 333", 2, &mut Steps::new(1_000));
    /// assert_eq!(found, Ok(vec![0..1, 2..4]));
    /// # Ok::<(), golib::regexp::Error>(())
    /// ```
    ///
    /// # Errors
    /// The meter's.
    pub fn find_all<M: Meter>(
        &self,
        text: &[u8],
        limit: i64,
        meter: &mut M,
    ) -> Result<Vec<Range<usize>>, M::Error> {
        let subject = Subject::new(text);
        let mut searches = Searches::begin(self, &subject, meter)?;
        let end = subject.text.len();
        let mut matches = Vec::new();
        let mut position = 0;
        let mut previous_end = None;
        while (limit < 0 || (matches.len() as i64) < limit) && position <= end {
            let Some(found) = searches.search(position, find)? else {
                break;
            };
            let accept = if found.end == position {
                position += subject.width_at(position);
                previous_end != Some(found.start)
            } else {
                position = found.end;
                true
            };
            previous_end = Some(found.end);
            if accept {
                matches.push(subject.original(&found));
            }
        }
        Ok(matches)
    }

    /// Cuts the text at its matches into at most `limit` parts (negative: all, zero: none).
    ///
    /// ```
    /// use golib::regexp::{Regexp, Steps};
    ///
    /// let parts = Regexp::compile(", *")?.split(b"a, b,c", -1, &mut Steps::new(1_000));
    /// assert_eq!(parts.unwrap(), [b"a", b"b", b"c"]);
    /// # Ok::<(), golib::regexp::Error>(())
    /// ```
    ///
    /// # Errors
    /// The meter's.
    pub fn split<'t, M: Meter>(
        &self,
        text: &'t [u8],
        limit: i64,
        meter: &mut M,
    ) -> Result<Vec<&'t [u8]>, M::Error> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        if !self.is_empty_pattern && text.is_empty() {
            return Ok(vec![text]);
        }
        let mut parts = Vec::new();
        let (mut begin, mut end) = (0, 0);
        for found in self.find_all(text, limit, meter)? {
            if limit > 0 && parts.len() as i64 == limit - 1 {
                break;
            }
            end = found.start;
            if found.end != 0 {
                parts.push(&text[begin..end]);
            }
            begin = found.end;
        }
        if end != text.len() {
            parts.push(&text[begin..]);
        }
        Ok(parts)
    }
}

/// The leftmost match at or after `start`, as `regex` finds it.
fn find(regex: &Regex, text: &[u8], start: usize) -> Option<Range<usize>> {
    regex.find_at(text, start).map(|found| found.range())
}

/// Operators in operators from where on a pattern is compiled with more stack.
const DEEP: usize = 50;

/// The compiled pattern, unless it is too large. `regex` compiles by recursion: what nests deeply gets a stack of its own.
fn build(parsed: &parse::Parsed) -> Option<Regex> {
    const STACK_BYTES: usize = 64 << 20;
    let build = || {
        let mut builder = RegexBuilder::new(&parsed.pattern);
        builder
            .size_limit(MAX_COMPILED_BYTES)
            .nest_limit(MAX_NESTING);
        builder.build().ok()
    };
    if parsed.height <= DEEP {
        return build();
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        thread.spawn_scoped(scope, build).ok()?.join().ok()?
    })
}

fn effort(parsed: &parse::Parsed) -> u64 {
    /// A class of Unicode's takes as much as so many characters.
    const UNICODE_CLASS: u64 = 100;
    // What is left out of a class makes it no larger.
    let pattern = parsed.pattern.replace(KNOWN, "");
    let classes = pattern.matches(r"\p{").count() as u64;
    let size = pattern.len() as u64 + classes * UNICODE_CLASS;
    size.saturating_mul(parsed.repeats)
}

/// Escapes everything that has a meaning in a pattern, so that the result matches `text` literally.
///
/// ```
/// assert_eq!(golib::regexp::quote_meta(b"1.5$"), br"1\.5\$");
/// ```
pub fn quote_meta(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for &byte in text {
        if br"\.+*?()|[]{}^$".contains(&byte) {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out
}

/// What Go's `MustCompile` panics with.
pub fn must_compile_message(pattern: &[u8], error: &Error) -> String {
    let quoted = if strconv::can_backquote(pattern) {
        format!("`{}`", String::from_utf8_lossy(pattern))
    } else {
        strconv::quote(pattern)
    };
    format!("regexp: Compile({quoted}): {error}")
}

/// The text to search: valid UTF-8, with the way back to the original bytes.
struct Subject<'t> {
    text: Cow<'t, str>,
    /// For each byte of `text` and its end, the offset in the original; empty where they agree.
    offsets: Vec<usize>,
}

impl<'t> Subject<'t> {
    fn new(bytes: &'t [u8]) -> Self {
        if let Ok(text) = std::str::from_utf8(bytes) {
            return Self {
                text: Cow::Borrowed(text),
                offsets: Vec::new(),
            };
        }
        let mut text = String::with_capacity(bytes.len() + 16);
        let mut offsets = Vec::with_capacity(bytes.len() + 16);
        let mut at = 0;
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            offsets.extend(at..at + chunk.valid().len());
            at += chunk.valid().len();
            // Go takes invalid bytes one at a time, each as one U+FFFD.
            for _ in chunk.invalid() {
                text.push(char::REPLACEMENT_CHARACTER);
                offsets.extend([at; char::REPLACEMENT_CHARACTER.len_utf8()]);
                at += 1;
            }
        }
        offsets.push(at);
        Self {
            text: Cow::Owned(text),
            offsets,
        }
    }

    fn original(&self, range: &Range<usize>) -> Range<usize> {
        let at = |offset: usize| self.offsets.get(offset).copied().unwrap_or(offset);
        at(range.start)..at(range.end)
    }

    /// How far to step from `position` to the next character, at least 1.
    fn width_at(&self, position: usize) -> usize {
        self.text[position..]
            .chars()
            .next()
            .map_or(1, char::len_utf8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps() -> Steps {
        Steps::new(1_000_000)
    }

    fn all(pattern: &str, text: &[u8]) -> Vec<String> {
        let regexp = Regexp::compile(pattern).expect(pattern);
        let matches = regexp.find_all(text, -1, &mut steps()).expect("quick");
        matches
            .into_iter()
            .map(|r| String::from_utf8_lossy(&text[r]).into_owned())
            .collect()
    }

    fn refused(pattern: impl AsRef<[u8]>) -> String {
        let error = Regexp::compile(pattern).expect_err("refused").to_string();
        error
            .strip_prefix("error parsing regexp: ")
            .expect("prefix")
            .to_owned()
    }

    #[test]
    fn classes_are_ascii_and_escapes_are_gos() {
        assert_eq!(all(r"\d+", "1٣".as_bytes()), ["1"]);
        assert_eq!(all(r"\w", "aé".as_bytes()), ["a"]);
        assert_eq!(all(r"\bé", "é".as_bytes()), [""; 0]);
        assert_eq!(all(r"\s", b"\x0b "), [" "]);
        assert_eq!(all(r"\Q.+\E+", b".++a"), [".++"]);
        assert_eq!(all(r"\141\x{62}{", b"ab{"), ["ab{"]);
        assert_eq!(all(r"[[:^alpha:]]", b"a1"), ["1"]);
        assert_eq!(all(r"(?i)[k]", "K".as_bytes()), ["K"]);
        assert_eq!(all(r"[a&&b]+", b"a&b"), ["a&b"]);
        assert_eq!(all(r"\p{^Greek}", "αa".as_bytes()), ["a"]);
        assert_eq!(all(r"\p{letter}\pL", "αa".as_bytes()), ["αa"]);
        assert_eq!(all(r"a{,2}", b"a{,2}"), ["a{,2}"]);
    }

    /// U+10D50 is a letter of Unicode 16; Go 1.26 has 15.0.
    #[test]
    fn characters_of_later_versions_of_unicode_are_not_assigned() {
        let text = "a\u{10d50}".as_bytes();
        for letter in [r"\pL", r"\p{Assigned}", r"[\p{Lu}a]"] {
            assert_eq!(all(letter, text), ["a"], "{letter}");
        }
        for other in [r"\PL", r"\p{Cn}", r"\pC", r"[^\pL]", r"\p{^Assigned}"] {
            assert_eq!(all(other, text), ["\u{10d50}"], "{other}");
        }
    }

    #[test]
    fn refusals_have_gos_words() {
        for (pattern, want) in [
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("*a", "missing argument to repetition operator: `*`"),
            ("a|*", "missing argument to repetition operator: `*`"),
            ("(a", "missing closing ): `(a`"),
            ("a)", "unexpected ): `a)`"),
            ("[a", "missing closing ]: `[a`"),
            ("[z-a]", "invalid character class range: `z-a`"),
            (r"\p{Nope}", r"invalid character class range: `\p{Nope}`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("(a{100}){100}", "invalid repeat count: `{100}`"),
            (r"\1", r"invalid escape sequence: `\1`"),
            ("a\\", "trailing backslash at end of expression: ``"),
            ("(?P<>a)", "invalid named capture: `(?P<>`"),
        ] {
            assert_eq!(refused(pattern), want, "{pattern}");
        }
        assert!(
            refused("(".repeat(3000) + &")".repeat(3000))
                .starts_with("expression nests too deeply")
        );
        assert!(refused(r"[\pL\pN]{1000}".repeat(20)).starts_with("expression too large"));
        assert!(refused([b'a', 0xff]).starts_with("invalid UTF-8"));
    }

    #[test]
    fn invalid_bytes_match_as_one_character_each() {
        let compile = |pattern: &str| Regexp::compile(pattern).expect(pattern);
        let found = compile("a.b").find(b"xa\xffb", &mut steps());
        assert_eq!(found, Ok(Some(1..4)));
        let found = compile("").find_all(b"\xff\xfe", -1, &mut steps());
        assert_eq!(found.expect("quick").len(), 3);
        let found = compile(r"\B").find_all("é".as_bytes(), -1, &mut steps());
        assert_eq!(found, Ok(vec![0..0, 2..2]));
    }

    #[test]
    fn empty_matches_and_splitting_follow_go() {
        assert_eq!(all("a*", b"baaac"), ["", "aaa", ""]);
        let split = |pattern: &str, text: &'static str, n| {
            let regexp = Regexp::compile(pattern).expect(pattern);
            regexp
                .split(text.as_bytes(), n, &mut steps())
                .expect("quick")
                .into_iter()
                .map(String::from_utf8_lossy)
                .collect::<Vec<_>>()
        };
        assert_eq!(split("", "abc", -1), ["a", "b", "c"]);
        assert_eq!(split("z+", "pizza", -1), ["pi", "a"]);
        assert_eq!(split("a", "banana", 2), ["b", "nana"]);
        assert_eq!(split("a", "", -1), [""]);
        assert!(split("a", "abc", 0).is_empty());
    }
}
