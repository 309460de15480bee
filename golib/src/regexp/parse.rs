//! Go's pattern syntax (`regexp/syntax/parse.go`), re-written for the `regex` crate.
//!
//! The parser keeps Go's order of checks, so a bad pattern fails with Go's message. What it writes
//! uses only syntax that means the same on both sides: no implied flags, no named groups, classes
//! by code points.

use std::fmt::Write as _;

use super::{Error, ErrorCode};

/// Deepest nesting of operators.
const MAX_HEIGHT: usize = 1000;
/// Largest repeat count, also of nested repeats multiplied.
const MAX_REPEAT: u64 = 1000;

/// A pattern for the `regex` crate.
pub(super) struct Parsed {
    pub(super) pattern: String,
    pub(super) names: Vec<Option<String>>,
}

/// A piece of the re-written pattern with what Go's limits need to know about it.
struct Piece {
    text: String,
    kind: Kind,
    height: usize,
    /// The product of the repeat counts on the worst path down.
    repeats: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Binds tighter than any operator: a character, a class, a group.
    Atom,
    /// Needs a group before it can be repeated.
    Sequence,
    /// Needs a group in a sequence too.
    Alternation,
}

impl Piece {
    fn atom(text: String) -> Self {
        Self {
            text,
            kind: Kind::Atom,
            height: 1,
            repeats: 1,
        }
    }

    fn grouped(&self, loosest: Kind) -> bool {
        match loosest {
            Kind::Atom => self.kind != Kind::Atom,
            _ => self.kind == Kind::Alternation,
        }
    }

    fn write(&self, loosest: Kind, out: &mut String) {
        if self.grouped(loosest) {
            out.push_str("(?:");
            out.push_str(&self.text);
            out.push(')');
        } else {
            out.push_str(&self.text);
        }
    }
}

/// Joins pieces of a concatenation or an alternation; a single piece stays itself.
fn join(mut pieces: Vec<Piece>, kind: Kind) -> Piece {
    if pieces.len() == 1
        && let Some(only) = pieces.pop()
    {
        return only;
    }
    let mut text = String::with_capacity(pieces.iter().map(|p| p.text.len() + 4).sum());
    let (mut height, mut repeats) = (0, 1);
    for (index, piece) in pieces.iter().enumerate() {
        if kind == Kind::Alternation && index > 0 {
            text.push('|');
        }
        piece.write(
            if kind == Kind::Alternation {
                Kind::Alternation
            } else {
                Kind::Sequence
            },
            &mut text,
        );
        height = height.max(piece.height);
        repeats = repeats.max(piece.repeats);
    }
    if text.is_empty() {
        text.push_str("(?:)");
    }
    Piece {
        text,
        kind,
        height: height + 1,
        repeats,
    }
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

fn fail<T>(code: ErrorCode, expression: &[u8]) -> Result<T, Error> {
    Err(Error {
        code,
        expression: expression.to_vec(),
    })
}

/// The part of `from` before `rest`, which is a tail of it.
fn before<'p>(from: &'p [u8], rest: &[u8]) -> &'p [u8] {
    &from[..from.len() - rest.len()]
}

/// The first character and what follows it; `None` at the end.
fn next_char(text: &[u8]) -> Result<Option<(char, &[u8])>, Error> {
    if text.is_empty() {
        return Ok(None);
    }
    let head = &text[..text.len().min(4)];
    match head
        .utf8_chunks()
        .next()
        .and_then(|chunk| chunk.valid().chars().next())
    {
        Some(c) => Ok(Some((c, &text[c.len_utf8()..]))),
        None => fail(ErrorCode::InvalidUtf8, text),
    }
}

/// Like [`next_char`] where the end of the text is taken for the same error as Go's decoder gives.
fn expect_char(text: &[u8]) -> Result<(char, &[u8]), Error> {
    // Go decodes an empty text as U+FFFD of width 0, which is no error and no digit.
    Ok(next_char(text)?.unwrap_or((char::REPLACEMENT_CHARACTER, text)))
}

fn check_utf8(text: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(text)
        .or_else(|error| fail(ErrorCode::InvalidUtf8, &text[error.valid_up_to()..]))
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
            b'^' => {
                let text = if parser.flags.multi_line {
                    "(?m:^)"
                } else {
                    r"\A"
                };
                parser.push(text.to_owned())?;
                rest = &rest[1..];
            }
            b'$' => {
                let text = if parser.flags.multi_line {
                    "(?m:$)"
                } else {
                    r"\z"
                };
                parser.push(text.to_owned())?;
                rest = &rest[1..];
            }
            b'.' => {
                let text = if parser.flags.dot_newline {
                    "(?s:.)"
                } else {
                    "."
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

    /// `[…]`
    fn class(&mut self, text: &'p [u8]) -> Result<&'p [u8], Error> {
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

/// A class without members.
const NOTHING: &str = r"[^\x{0}-\x{10FFFF}]";

/// A character that stands for itself everywhere in a pattern.
fn escaped(c: char) -> String {
    match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | ' ' => c.to_string(),
        c if c.is_alphanumeric() => c.to_string(),
        c => format!(r"\x{{{:X}}}", u32::from(c)),
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

/// `{2}`, `{2,}`, `{2,3}`: the counts and the rest. No counts: the numbers make no sense.
/// Nothing at all: this is no repetition, the brace is a character.
#[expect(
    clippy::type_complexity,
    reason = "three outcomes, named in the comment"
)]
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

fn class_char<'p>(text: &'p [u8], whole_class: &[u8]) -> Result<(u32, &'p [u8]), Error> {
    match text.first() {
        None => fail(ErrorCode::MissingBracket, whole_class),
        Some(b'\\') => escape(text),
        Some(_) => expect_char(text).map(|(c, rest)| (u32::from(c), rest)),
    }
}

/// A backslash escape for one code point.
fn escape(text: &[u8]) -> Result<(u32, &[u8]), Error> {
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

/// `\d` and its siblings, which are ASCII in Go.
fn perl_class(text: &[u8]) -> Option<(&'static str, &[u8])> {
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
fn posix_class(text: &[u8]) -> Result<Option<(String, &[u8])>, Error> {
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

/// `\pL`, `\p{Greek}`, `\P{^Lu}`.
fn unicode_class(text: &[u8]) -> Result<Option<(String, &[u8])>, Error> {
    let mut negated = match text.get(..2) {
        Some(br"\p") => false,
        Some(br"\P") => true,
        _ => return Ok(None),
    };
    let (c, after) = expect_char(&text[2..])?;
    let (sequence, name, rest) = if c == '{' {
        let Some(end) = text.iter().position(|&b| b == b'}') else {
            check_utf8(text)?;
            return fail(ErrorCode::InvalidCharRange, text);
        };
        (&text[..=end], check_utf8(&text[3..end])?, &text[end + 1..])
    } else {
        let sequence = before(text, after);
        (sequence, check_utf8(&sequence[2..])?, after)
    };
    let name = match name.strip_prefix('^') {
        Some(name) => {
            negated = !negated;
            name
        }
        None => name,
    };
    let Some(class) = unicode_property(&canonical_name(name)) else {
        return fail(ErrorCode::InvalidCharRange, sequence);
    };
    let negation = if negated { "^" } else { "" };
    Ok(Some((format!("[{negation}{class}]"), rest)))
}

/// A capital first and no separators, as Go spells the names it looks up.
fn canonical_name(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars().filter(|c| !matches!(c, '_' | '-' | ' ')) {
        out.push(if out.is_empty() {
            c.to_ascii_uppercase()
        } else {
            c.to_ascii_lowercase()
        });
    }
    out
}

fn unicode_property(name: &str) -> Option<String> {
    let class = match name {
        "Any" => r"\x{0}-\x{10FFFF}".to_owned(),
        "Ascii" => r"\x00-\x7F".to_owned(),
        // Surrogates are no characters here; a class needs a member to be a class.
        "Cs" | "Surrogate" => r"&&[^\x{0}-\x{10FFFF}]".to_owned(),
        "Assigned" => r"\P{Cn}".to_owned(),
        name if CATEGORIES.contains(&name) => format!(r"\p{{gc={name}}}"),
        name if SCRIPTS.contains(&name) => format!(r"\p{{sc={name}}}"),
        _ => return None,
    };
    Some(class)
}

/// Unicode's general categories by their short and long names.
const CATEGORIES: &[&str] = &[
    "C",
    "Cc",
    "Cf",
    "Cn",
    "Co",
    "L",
    "Lc",
    "Ll",
    "Lm",
    "Lo",
    "Lt",
    "Lu",
    "M",
    "Mc",
    "Me",
    "Mn",
    "N",
    "Nd",
    "Nl",
    "No",
    "P",
    "Pc",
    "Pd",
    "Pe",
    "Pf",
    "Pi",
    "Po",
    "Ps",
    "S",
    "Sc",
    "Sk",
    "Sm",
    "So",
    "Z",
    "Zl",
    "Zp",
    "Zs",
    "Casedletter",
    "Closepunctuation",
    "Combiningmark",
    "Connectorpunctuation",
    "Control",
    "Currencysymbol",
    "Dashpunctuation",
    "Decimalnumber",
    "Enclosingmark",
    "Finalpunctuation",
    "Format",
    "Initialpunctuation",
    "Letter",
    "Letternumber",
    "Lineseparator",
    "Lowercaseletter",
    "Mark",
    "Mathsymbol",
    "Modifierletter",
    "Modifiersymbol",
    "Nonspacingmark",
    "Number",
    "Openpunctuation",
    "Other",
    "Otherletter",
    "Othernumber",
    "Otherpunctuation",
    "Othersymbol",
    "Paragraphseparator",
    "Privateuse",
    "Punctuation",
    "Separator",
    "Spaceseparator",
    "Spacingmark",
    "Symbol",
    "Titlecaseletter",
    "Unassigned",
    "Uppercaseletter",
    "Cntrl",
    "Digit",
    "Punct",
];

/// The scripts Go finds: those of one word. (It drops the separators of `\p{Old_Italic}` and then
/// knows no script `Olditalic`.)
const SCRIPTS: &[&str] = &[
    "Adlam",
    "Ahom",
    "Arabic",
    "Armenian",
    "Avestan",
    "Balinese",
    "Bamum",
    "Batak",
    "Bengali",
    "Bhaiksuki",
    "Bopomofo",
    "Brahmi",
    "Braille",
    "Buginese",
    "Buhid",
    "Carian",
    "Chakma",
    "Cham",
    "Cherokee",
    "Chorasmian",
    "Common",
    "Coptic",
    "Cuneiform",
    "Cypriot",
    "Cyrillic",
    "Deseret",
    "Devanagari",
    "Dogra",
    "Duployan",
    "Elbasan",
    "Elymaic",
    "Ethiopic",
    "Georgian",
    "Glagolitic",
    "Gothic",
    "Grantha",
    "Greek",
    "Gujarati",
    "Gurmukhi",
    "Han",
    "Hangul",
    "Hanunoo",
    "Hatran",
    "Hebrew",
    "Hiragana",
    "Inherited",
    "Javanese",
    "Kaithi",
    "Kannada",
    "Katakana",
    "Kawi",
    "Kharoshthi",
    "Khmer",
    "Khojki",
    "Khudawadi",
    "Lao",
    "Latin",
    "Lepcha",
    "Limbu",
    "Lisu",
    "Lycian",
    "Lydian",
    "Mahajani",
    "Makasar",
    "Malayalam",
    "Mandaic",
    "Manichaean",
    "Marchen",
    "Medefaidrin",
    "Miao",
    "Modi",
    "Mongolian",
    "Mro",
    "Multani",
    "Myanmar",
    "Nabataean",
    "Nandinagari",
    "Newa",
    "Nko",
    "Nushu",
    "Ogham",
    "Oriya",
    "Osage",
    "Osmanya",
    "Palmyrene",
    "Phoenician",
    "Rejang",
    "Runic",
    "Samaritan",
    "Saurashtra",
    "Sharada",
    "Shavian",
    "Siddham",
    "Sinhala",
    "Sogdian",
    "Soyombo",
    "Sundanese",
    "Syriac",
    "Tagalog",
    "Tagbanwa",
    "Takri",
    "Tamil",
    "Tangsa",
    "Tangut",
    "Telugu",
    "Thaana",
    "Thai",
    "Tibetan",
    "Tifinagh",
    "Tirhuta",
    "Toto",
    "Ugaritic",
    "Vai",
    "Vithkuqi",
    "Wancho",
    "Yezidi",
    "Yi",
];
