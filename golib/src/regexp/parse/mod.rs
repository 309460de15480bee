//! Go's pattern syntax (`regexp/syntax/parse.go`), re-written for the `regex` crate.
//!
//! The parser keeps Go's order of checks, so a bad pattern fails with Go's message. What it writes
//! uses only syntax that means the same on both sides: no implied flags, no named groups, classes
//! by code points.

mod class;
mod escape;
mod input;
mod piece;
mod unicode;

use super::error::{Error, ErrorCode};
use class::{NOTHING, perl_class};
use escape::{escape, escaped};
use input::{before, check_utf8, expect_char, fail, next_char};
use piece::{Kind, Piece, join};
use unicode::unicode_class;

/// Deepest nesting of operators.
const MAX_HEIGHT: usize = 1000;
/// Largest repeat count, also of nested repeats multiplied.
const MAX_REPEAT: u64 = 1000;

/// A pattern for the `regex` crate.
pub(super) struct Parsed {
    pub(super) pattern: String,
    pub(super) names: Vec<Option<String>>,
    /// The product of the repeat counts on the worst path down.
    pub(super) repeats: u64,
    /// How deep operators nest.
    pub(super) height: usize,
}

#[derive(Clone, Copy)]
struct Flags {
    fold_case: bool,
    multi_line: bool,
    dot_newline: bool,
    non_greedy: bool,
}

/// An open parenthesis (or the whole pattern) and what was read inside of it.
struct Frame {
    is_capture: bool,
    /// The flags to return to.
    flags: Flags,
    alternatives: Vec<Piece>,
    current: Vec<Piece>,
}

impl Frame {
    fn new(is_capture: bool, flags: Flags) -> Self {
        Self {
            is_capture,
            flags,
            alternatives: Vec::new(),
            current: Vec::new(),
        }
    }

    fn end_alternative(&mut self) {
        self.alternatives
            .push(join(std::mem::take(&mut self.current), Kind::Sequence));
    }

    fn close(mut self) -> Piece {
        self.end_alternative();
        join(self.alternatives, Kind::Alternation)
    }
}

struct Parser<'p> {
    whole: &'p [u8],
    flags: Flags,
    outer: Vec<Frame>,
    frame: Frame,
    names: Vec<Option<String>>,
}

pub(super) fn parse(pattern: &[u8]) -> Result<Parsed, Error> {
    let flags = Flags {
        fold_case: false,
        multi_line: false,
        dot_newline: false,
        non_greedy: false,
    };
    let mut parser = Parser {
        whole: pattern,
        flags,
        outer: Vec::new(),
        frame: Frame::new(false, flags),
        names: vec![None],
    };
    let mut rest = pattern;
    let mut last_repeat: &[u8] = b"";
    while let Some(&byte) = rest.first() {
        let start = rest;
        let mut repeat: &[u8] = b"";
        match byte {
            b'(' => rest = parser.open(rest)?,
            b'|' => {
                parser.frame.end_alternative();
                rest = &rest[1..];
            }
            b')' => {
                parser.close()?;
                rest = &rest[1..];
            }
            b'^' | b'$' | b'.' => {
                let Flags {
                    multi_line,
                    dot_newline,
                    ..
                } = parser.flags;
                let text = match byte {
                    b'^' if multi_line => "(?m:^)",
                    b'^' => r"\A",
                    b'$' if multi_line => "(?m:$)",
                    b'$' => r"\z",
                    _ if dot_newline => "(?s:.)",
                    _ => ".",
                };
                parser.push(text.to_owned())?;
                rest = &rest[1..];
            }
            b'[' => rest = parser.class(rest)?,
            b'*' => rest = parser.repeat("*", 0, None, start, &rest[1..], last_repeat)?,
            b'+' => rest = parser.repeat("+", 0, None, start, &rest[1..], last_repeat)?,
            b'?' => rest = parser.repeat("?", 0, None, start, &rest[1..], last_repeat)?,
            b'{' => match repeat_count(rest) {
                None => {
                    parser.literal('{')?;
                    rest = &rest[1..];
                }
                Some((range, after)) => {
                    let Some((low, high)) = range else {
                        return fail(ErrorCode::InvalidRepeatSize, before(start, after));
                    };
                    let operator = match high {
                        Some(high) if high == low => format!("{{{low}}}"),
                        Some(high) => format!("{{{low},{high}}}"),
                        None => format!("{{{low},}}"),
                    };
                    rest = parser.repeat(
                        &operator,
                        low,
                        high.or(Some(low)),
                        start,
                        after,
                        last_repeat,
                    )?;
                }
            },
            b'\\' => rest = parser.backslash(rest)?,
            _ => {
                let (c, after) = expect_char(rest)?;
                parser.literal(c)?;
                rest = after;
            }
        }
        let is_count = byte == b'{' && before(start, rest).len() > 1;
        if matches!(byte, b'*' | b'+' | b'?') || is_count {
            repeat = start;
        }
        last_repeat = repeat;
    }
    if !parser.outer.is_empty() {
        return fail(ErrorCode::MissingParen, pattern);
    }
    let piece = parser.frame.close();
    check_height(&piece, pattern)?;
    Ok(Parsed {
        repeats: piece.repeats,
        height: piece.height,
        pattern: piece.text,
        names: parser.names,
    })
}

fn check_height(piece: &Piece, whole: &[u8]) -> Result<(), Error> {
    if piece.height > MAX_HEIGHT {
        return fail(ErrorCode::NestingDepth, whole);
    }
    Ok(())
}

impl<'p> Parser<'p> {
    fn push(&mut self, text: String) -> Result<(), Error> {
        self.push_piece(Piece::atom(text))
    }

    fn push_piece(&mut self, piece: Piece) -> Result<(), Error> {
        check_height(&piece, self.whole)?;
        self.frame.current.push(piece);
        Ok(())
    }

    fn literal(&mut self, c: char) -> Result<(), Error> {
        let text = self.folded(escaped(c), c.is_alphabetic());
        self.push(text)
    }

    /// The text under `(?i:…)` where that makes a difference.
    fn folded(&self, text: String, has_case: bool) -> String {
        if self.flags.fold_case && has_case {
            format!("(?i:{text})")
        } else {
            text
        }
    }

    fn close(&mut self) -> Result<(), Error> {
        let Some(outer) = self.outer.pop() else {
            return fail(ErrorCode::UnexpectedParen, self.whole);
        };
        let frame = std::mem::replace(&mut self.frame, outer);
        self.flags = frame.flags;
        let is_capture = frame.is_capture;
        let mut piece = frame.close();
        if is_capture {
            piece = Piece {
                text: format!("({})", piece.text),
                kind: Kind::Atom,
                height: piece.height + 1,
                repeats: piece.repeats,
            };
        }
        self.push_piece(piece)
    }

    fn open_group(&mut self, name: Option<Option<String>>) {
        let is_capture = name.is_some();
        self.names.extend(name);
        let frame = Frame::new(is_capture, self.flags);
        self.outer.push(std::mem::replace(&mut self.frame, frame));
    }

    /// `(`, with or without `?` and what may follow it.
    fn open(&mut self, text: &'p [u8]) -> Result<&'p [u8], Error> {
        if text.get(1) != Some(&b'?') {
            self.open_group(Some(None));
            return Ok(&text[1..]);
        }
        let name_start = if text.len() > 4 && text[2..].starts_with(b"P<") {
            Some(4)
        } else if text.len() > 3 && text[2] == b'<' {
            Some(3)
        } else {
            None
        };
        if let Some(start) = name_start {
            let Some(end) = text.iter().position(|&b| b == b'>') else {
                check_utf8(text)?;
                return fail(ErrorCode::InvalidNamedCapture, text);
            };
            let name = check_utf8(text.get(start..end).unwrap_or_default())?;
            let is_word = |b: u8| b == b'_' || b.is_ascii_alphanumeric();
            if name.is_empty() || !name.bytes().all(is_word) {
                return fail(ErrorCode::InvalidNamedCapture, &text[..=end]);
            }
            self.open_group(Some(Some(name.to_owned())));
            return Ok(&text[end + 1..]);
        }
        self.perl_flags(text)
    }

    /// `(?flags)` and `(?flags:`.
    fn perl_flags(&mut self, text: &'p [u8]) -> Result<&'p [u8], Error> {
        let mut rest = &text[2..];
        let mut flags = self.flags;
        let (mut value, mut saw_flag) = (true, false);
        while let Some((c, after)) = next_char(rest)? {
            rest = after;
            match c {
                'i' => flags.fold_case = value,
                'm' => flags.multi_line = value,
                's' => flags.dot_newline = value,
                'U' => flags.non_greedy = value,
                '-' if value => {
                    (value, saw_flag) = (false, false);
                    continue;
                }
                ':' | ')' if value || saw_flag => {
                    if c == ':' {
                        self.open_group(None);
                    }
                    self.flags = flags;
                    return Ok(rest);
                }
                _ => break,
            }
            saw_flag = true;
        }
        fail(ErrorCode::InvalidPerlOp, before(text, rest))
    }

    /// A repetition operator; `low` and `high` are only of interest for `{…}`.
    fn repeat(
        &mut self,
        operator: &str,
        low: u64,
        high: Option<u64>,
        start: &'p [u8],
        after: &'p [u8],
        last_repeat: &'p [u8],
    ) -> Result<&'p [u8], Error> {
        let mut after = after;
        let mut lazy = self.flags.non_greedy;
        if after.first() == Some(&b'?') {
            after = &after[1..];
            lazy = !lazy;
        }
        if !last_repeat.is_empty() {
            return fail(ErrorCode::InvalidRepeatOp, before(last_repeat, after));
        }
        let Some(piece) = self.frame.current.pop() else {
            return fail(ErrorCode::MissingRepeatArgument, before(start, after));
        };
        let mut text = String::with_capacity(piece.text.len() + operator.len() + 5);
        piece.write(Kind::Atom, &mut text);
        text.push_str(operator);
        if lazy {
            text.push('?');
        }
        // `{0}` is valid whatever it repeats.
        let repeats = match high {
            None => piece.repeats,
            Some(0) if operator != "{0,}" => 1,
            Some(count) => count.max(1).saturating_mul(piece.repeats),
        };
        let repeated = Piece {
            text,
            kind: Kind::Sequence,
            height: piece.height + 1,
            repeats,
        };
        check_height(&repeated, self.whole)?;
        if high.is_some_and(|high| low.max(high) >= 2) && repeats > MAX_REPEAT {
            return fail(ErrorCode::InvalidRepeatSize, before(start, after));
        }
        self.frame.current.push(repeated);
        Ok(after)
    }

    fn backslash(&mut self, text: &'p [u8]) -> Result<&'p [u8], Error> {
        let assertion = match text.get(1) {
            Some(b'A') => Some(r"\A"),
            Some(b'b') => Some(r"(?-u:\b)"),
            Some(b'B') => Some(r"(?-u:\B)"),
            Some(b'z') => Some(r"\z"),
            _ => None,
        };
        if let Some(assertion) = assertion {
            self.push(assertion.to_owned())?;
            return Ok(&text[2..]);
        }
        match text.get(1) {
            Some(b'C') => return fail(ErrorCode::InvalidEscape, &text[..2]),
            Some(b'Q') => {
                let quoted = &text[2..];
                let end = quoted.windows(2).position(|w| w == br"\E");
                let (mut literal, rest) = match end {
                    Some(end) => (&quoted[..end], &quoted[end + 2..]),
                    None => (quoted, &b""[..]),
                };
                while let Some((c, after)) = next_char(literal)? {
                    self.literal(c)?;
                    literal = after;
                }
                return Ok(rest);
            }
            _ => {}
        }
        if let Some((class, rest)) = unicode_class(text)? {
            let class = self.folded(class, true);
            self.push(class)?;
            return Ok(rest);
        }
        if let Some((class, rest)) = perl_class(text) {
            let class = self.folded(class.to_owned(), true);
            self.push(class)?;
            return Ok(rest);
        }
        let (code, rest) = escape(text)?;
        match char::from_u32(code) {
            Some(c) => self.literal(c)?,
            // A lone surrogate: Go accepts it and never finds it.
            None => self.push(NOTHING.to_owned())?,
        }
        Ok(rest)
    }
}

/// `{2}`, `{2,}`, `{2,3}`: the counts and the rest. No counts: the numbers make no sense.
/// Nothing at all: this is no repetition, the brace is a character.
#[expect(clippy::type_complexity, reason = "three outcomes, named in the comment")]
fn repeat_count(text: &[u8]) -> Option<(Option<(u64, Option<u64>)>, &[u8])> {
    let (low, rest) = count(text.strip_prefix(b"{")?)?;
    let (high, rest) = match rest.strip_prefix(b",") {
        None => (Some(low), rest),
        Some(rest) if rest.first() == Some(&b'}') => (None, rest),
        Some(rest) => count(rest).map(|(high, rest)| (Some(high), rest))?,
    };
    let rest = rest.strip_prefix(b"}")?;
    let valid = low <= MAX_REPEAT && high.is_none_or(|high| high <= MAX_REPEAT && low <= high);
    Some((valid.then_some((low, high)), rest))
}

/// A decimal number without leading zeros; huge ones saturate.
fn count(text: &[u8]) -> Option<(u64, &[u8])> {
    let length = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(length);
    if digits.is_empty() || digits.len() > 1 && digits[0] == b'0' {
        return None;
    }
    let value = digits.iter().fold(0_u64, |value, digit| {
        value
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    });
    Some((value, rest))
}
