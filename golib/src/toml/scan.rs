//! Characters to keys and scalars, checked as the Go library's `lex.go` checks them.

use super::Value;
use super::is_bare_key_char;
use crate::strconv::{NumErrorKind, parse_float, parse_int, quote, quote_rune};
use crate::time::{Time, Zone};
use crate::utf8;

/// What is wrong, and on which line.
pub(super) struct Problem {
    pub(super) line: usize,
    pub(super) message: String,
}

pub(super) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    pub(super) line: usize,
    at_end: bool,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self {
            text,
            at: 0,
            line: 1,
            at_end: false,
        }
    }

    /// The next character, `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<char>, Problem> {
        let rest = &self.text[self.at..];
        let Some(&first) = rest.first() else {
            self.at_end = true;
            return Ok(None);
        };
        if first == b'\n' {
            self.line += 1;
        }
        let (c, width) = utf8::decode_rune(rest).unwrap_or_default();
        if (c, width) == (char::REPLACEMENT_CHARACTER, 1) {
            return Err(self.problem(format!("invalid UTF-8 byte: 0x{first:02x}")));
        }
        let lone_return = c == '\r' && rest.get(1) != Some(&b'\n');
        if lone_return || matches!(c, '\0'..' ' | '\x7f') && !matches!(c, '\t' | '\r' | '\n') {
            let message = format!("TOML files cannot contain control characters: '0x{first:02x}'");
            return Err(self.problem(message));
        }
        self.at += width;
        Ok(Some(c))
    }

    /// Takes back the character that [`Self::next`] returned.
    pub(super) fn back(&mut self, c: Option<char>) {
        self.at_end = false;
        if let Some(c) = c {
            self.at -= c.len_utf8();
            if c == '\n' {
                self.line -= 1;
            }
        }
    }

    pub(super) fn peek(&mut self) -> Result<Option<char>, Problem> {
        let c = self.next()?;
        self.back(c);
        Ok(c)
    }

    pub(super) fn accept(&mut self, expected: char) -> Result<bool, Problem> {
        let c = self.next()?;
        if c == Some(expected) {
            return Ok(true);
        }
        self.back(c);
        Ok(false)
    }

    pub(super) fn skip_blanks(&mut self) -> Result<(), Problem> {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t')) {
            self.at += 1;
        }
        self.peek().map(|_| ())
    }

    /// To the end of the line, which stays.
    pub(super) fn skip_comment(&mut self) -> Result<(), Problem> {
        loop {
            let c = self.next()?;
            if matches!(c, None | Some('\n' | '\r')) {
                self.back(c);
                return Ok(());
            }
        }
    }

    pub(super) fn problem(&self, message: impl Into<String>) -> Problem {
        let behind_newline = self.at_end && self.text[..self.at].ends_with(b"\n");
        Problem {
            line: self.line - usize::from(behind_newline),
            message: message.into(),
        }
    }

    /// For a problem found in the newline itself.
    fn problem_before_newline(&self, message: impl Into<String>) -> Problem {
        Problem {
            line: self.line.saturating_sub(1),
            message: message.into(),
        }
    }

    /// A problem with a text that ends here.
    fn problem_with(&self, message: String) -> Problem {
        Problem {
            line: self.line,
            message,
        }
    }

    fn since(&self, start: usize) -> &'a str {
        // Every character was decoded on the way.
        std::str::from_utf8(&self.text[start..self.at]).unwrap_or_default()
    }

    fn take_while(&mut self, accepts: impl Fn(char) -> bool) -> Result<(), Problem> {
        loop {
            let c = self.next()?;
            if !c.is_some_and(&accepts) {
                self.back(c);
                return Ok(());
            }
        }
    }

    // Keys

    /// The dotted key of a value, up to and with its `=`; and the line of its first part.
    pub(super) fn key(&mut self) -> Result<(Vec<String>, usize), Problem> {
        self.skip_blanks()?;
        match self.peek()? {
            None | Some('=') => {
                return Err(self.problem("unexpected '=': key name appears blank"));
            }
            Some('.') => return Err(self.problem("unexpected '.': keys cannot start with a '.'")),
            _ => {}
        }
        self.dotted('=', "unexpected '='", "unexpected '.'", |scanner, c| {
            let Some(c) = c else {
                return scanner.problem("unexpected EOF; expected key separator '='");
            };
            let shown = quote_rune(c.into());
            let message = format!("expected '.' or '=', but got {shown} instead");
            match c {
                '\n' => scanner.problem_before_newline(message),
                _ => scanner.problem(message),
            }
        })
    }

    /// The name of a table, up to and with one `]`; and the line of its first part.
    pub(super) fn table_name(&mut self) -> Result<(Vec<String>, usize), Problem> {
        let empty = "unexpected end of table name (table names cannot be empty)";
        let dot = "unexpected table separator (table names cannot be empty)";
        self.dotted(']', empty, dot, |scanner, c| {
            let c = quote_rune(c.map_or(0, u32::from));
            scanner.problem(format!(
                "expected '.' or ']' to end table name, but got {c} instead"
            ))
        })
    }

    /// Parts with dots between them, up to and with `end`, and the line of the first. `blank` and `dot` say what is wrong
    /// where the end or a dot stands for a part, `behind` what is with anything else behind one.
    fn dotted(
        &mut self,
        end: char,
        blank: &str,
        dot: &str,
        behind: impl Fn(&Self, Option<char>) -> Problem,
    ) -> Result<(Vec<String>, usize), Problem> {
        let mut parts = Vec::new();
        let mut line = None;
        loop {
            self.skip_blanks()?;
            match self.peek()? {
                Some('.') => return Err(self.problem(dot)),
                Some(c) if c != end => parts.push(self.key_part()?),
                _ => return Err(self.problem(blank)),
            }
            line.get_or_insert(self.line);
            self.skip_blanks()?;
            match self.next()? {
                Some('.') => {}
                Some(c) if c == end => return Ok((parts, line.unwrap_or(self.line))),
                c => return Err(behind(self, c)),
            }
        }
    }

    fn key_part(&mut self) -> Result<String, Problem> {
        if self.accept('"')? {
            return self.string();
        }
        if self.accept('\'')? {
            return self.raw_string();
        }
        let start = self.at;
        self.take_while(is_bare_key_char)?;
        Ok(self.since(start).to_owned())
    }

    // Scalars

    /// A scalar whose first character is `first`, which was taken.
    pub(super) fn scalar(&mut self, first: Option<char>) -> Result<Value, Problem> {
        let start = self.at - first.map_or(0, char::len_utf8);
        match first {
            Some('0'..='9') => {
                self.back(first);
                return self.number_or_date();
            }
            Some('"') => {
                if self.accept('"')? {
                    if self.accept('"')? {
                        return self.multiline_string().map(Value::String);
                    }
                    self.back(Some('"'));
                }
                return self.string().map(Value::String);
            }
            Some('\'') => {
                if self.accept('\'')? {
                    if self.accept('\'')? {
                        return self.multiline_raw_string().map(Value::String);
                    }
                    self.back(Some('\''));
                }
                return self.raw_string().map(Value::String);
            }
            Some('.') => return Err(self.problem("floats must start with a digit, not '.'")),
            Some('i' | 'n') if self.accept_inf_or_nan()? => return self.float(self.since(start)),
            Some('-' | '+') => return self.signed_number(start),
            None => return Err(self.problem("unexpected EOF; expected value")),
            _ => {}
        }
        let last = self.text[..self.at].last().copied().map(char::from);
        match first {
            Some(c) if c.is_alphabetic() => {
                self.back(last.filter(char::is_ascii).or(first));
                self.word()
            }
            c => {
                let shown = quote_rune(c.map_or(0, u32::from));
                let message = format!("expected value but found {shown} instead");
                Err(match c {
                    Some('\n') => self.problem_before_newline(message),
                    _ => self.problem(message),
                })
            }
        }
    }

    /// The rest of `inf` or `nan`.
    fn accept_inf_or_nan(&mut self) -> Result<bool, Problem> {
        Ok(self.accept('n')? && self.accept('f')? || self.accept('a')? && self.accept('n')?)
    }

    fn word(&mut self) -> Result<Value, Problem> {
        let start = self.at;
        self.take_while(char::is_alphabetic)?;
        match self.since(start) {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            word => Err(self.problem(format!("expected value but found {} instead", quote(word)))),
        }
    }

    fn signed_number(&mut self, start: usize) -> Result<Value, Problem> {
        let c = self.next()?;
        let rest = match c {
            Some('i') => ['n', 'f'],
            Some('n') => ['a', 'n'],
            Some('.') => return Err(self.problem("floats must start with a digit, not '.'")),
            Some('0'..='9') => {
                if c == Some('0')
                    && let Some(base @ ('b' | 'o' | 'x')) = self.peek()?
                {
                    let text = self.since(start);
                    let message =
                        format!("cannot use sign with non-decimal numbers: '{text}{base}'");
                    return Err(self.problem(message));
                }
                return self.decimal(start);
            }
            c => {
                let c = quote_rune(c.map_or(0, u32::from));
                return Err(self.problem(format!("expected a digit but got {c}")));
            }
        };
        for expected in rest {
            if !self.accept(expected)? {
                return Err(self.problem(format!("invalid float: '{}'", self.since(start))));
            }
        }
        self.float(self.since(start))
    }

    fn number_or_date(&mut self) -> Result<Value, Problem> {
        let start = self.at;
        if self.next()? == Some('0') {
            let c = self.next()?;
            let (name, accepts): (_, fn(char) -> bool) = match c {
                Some('b') => ("a binary", |c| matches!(c, '0' | '1')),
                Some('o') => ("an octal", |c| c.is_digit(8)),
                Some('x') => ("a hexadecimal", |c| c.is_ascii_hexdigit()),
                _ => {
                    self.back(c);
                    return self.decimal_or_date(start);
                }
            };
            let next = self.peek()?;
            if !next.is_some_and(accepts) {
                let text = self.since(start);
                let next = next.unwrap_or('\0');
                return Err(self.problem(format!("not {name} number: '{text}{next}'")));
            }
            self.take_while(|c| accepts(c) || c == '_')?;
            return self.integer(self.since(start));
        }
        self.decimal_or_date(start)
    }

    fn decimal_or_date(&mut self, start: usize) -> Result<Value, Problem> {
        self.take_while(|c| c.is_ascii_digit())?;
        if matches!(self.peek()?, Some('-' | ':'))
            && self.at > start + usize::from(self.is_zero(start))
        {
            self.take_while(|c| {
                c.is_ascii_digit()
                    || matches!(c, '-' | ':' | 'T' | 't' | ' ' | '.' | 'Z' | 'z' | '+')
            })?;
            return self.datetime(self.since(start).trim());
        }
        self.decimal(start)
    }

    /// A single zero does not begin a date: what follows it is an error of its own.
    fn is_zero(&self, start: usize) -> bool {
        self.since(start) == "0"
    }

    fn decimal(&mut self, start: usize) -> Result<Value, Problem> {
        self.take_while(|c| c.is_ascii_digit() || c == '_')?;
        if matches!(self.peek()?, Some('.' | 'e' | 'E')) {
            self.take_while(|c| {
                c.is_ascii_digit() || matches!(c, '_' | '.' | '-' | '+' | 'e' | 'E')
            })?;
            return self.float(self.since(start));
        }
        self.integer(self.since(start))
    }

    fn integer(&self, text: &str) -> Result<Value, Problem> {
        let wrong =
            |what: &str| self.problem_with(format!("Invalid integer {}: {what}", quote(text)));
        if !underscores_ok(text) {
            return Err(wrong("underscores must be surrounded by digits"));
        }
        if has_leading_zero(text) {
            return Err(wrong("cannot have leading zeroes"));
        }
        parse_int(text, 0, 64)
            .map(Value::Integer)
            .map_err(|error| match error.kind {
                NumErrorKind::Range => {
                    self.problem_with(format!("{text} is out of range for int64"))
                }
                _ => self.problem_with(format!("Expected integer value, but got '{text}'.")),
            })
    }

    fn float(&self, text: &str) -> Result<Value, Problem> {
        let wrong =
            |what: &str| self.problem_with(format!("Invalid float {}: {what}", quote(text)));
        let mut parts = text
            .split(['.', 'e', 'E'])
            .filter(|part| !part.is_empty())
            .peekable();
        let leading_zero = parts.peek().is_some_and(|part| has_leading_zero(part));
        if !parts.all(underscores_ok) {
            return Err(wrong("underscores must be surrounded by digits"));
        }
        if leading_zero {
            return Err(wrong("cannot have leading zeroes"));
        }
        if text
            .split('.')
            .skip(1)
            .any(|part| !part.starts_with(|c: char| c.is_ascii_digit()))
        {
            return Err(wrong("'.' must be followed by one or more digits"));
        }
        let number = text.replace('_', "");
        let number = number
            .strip_prefix('+')
            .filter(|rest| *rest == "nan")
            .unwrap_or(&number);
        if number == "-nan" {
            return Ok(Value::Float(-f64::NAN));
        }
        parse_float(number, 64)
            .map(Value::Float)
            .map_err(|error| match error.kind {
                NumErrorKind::Range => {
                    self.problem_with(format!("{text} is out of range for float64"))
                }
                _ => self.problem_with(format!("Invalid float value: {}", quote(text))),
            })
    }

    fn datetime(&self, text: &str) -> Result<Value, Problem> {
        let local = |name: &str| Zone::Fixed {
            name: name.into(),
            offset: 0,
        };
        let text = text.replace('z', "Z").replace(['t', ' '], "T");
        for (layout, zone) in [
            ("2006-01-02T15:04:05.999999999Z07:00", Zone::Utc),
            ("2006-01-02T15:04:05.999999999", local("datetime-local")),
            ("2006-01-02", local("date-local")),
            ("15:04:05.999999999", local("time-local")),
            ("2006-01-02T15:04Z07:00", Zone::Utc),
            ("2006-01-02T15:04", local("datetime-local")),
            ("15:04", local("time-local")),
        ] {
            if let Ok(time) = Time::parse(layout, &text, &zone) {
                // Go's parser takes a single digit for an hour; TOML does not.
                let misplaced = layout
                    .bytes()
                    .zip(text.bytes())
                    .take_while(|(expected, _)| !matches!(expected, b'.' | b'Z'))
                    .any(|(expected, found)| !expected.is_ascii_digit() && expected != found);
                if misplaced {
                    break;
                }
                return Ok(Value::Datetime(time));
            }
        }
        Err(self.problem_with(format!("invalid datetime: {}", quote(&text))))
    }

    // Strings; the opening quotes were taken

    fn string(&mut self) -> Result<String, Problem> {
        let start = self.at;
        loop {
            match self.next()? {
                None => return Err(self.problem("unexpected EOF; expected '\"'")),
                Some('\n' | '\r') => {
                    return Err(self.problem_before_newline("strings cannot contain newlines"));
                }
                Some('\\') => self.escape(start)?,
                Some('"') => {
                    let raw = self.since(start);
                    return self.unescape(&raw[..raw.len() - 1]);
                }
                Some(_) => {}
            }
        }
    }

    fn multiline_string(&mut self) -> Result<String, Problem> {
        let start = self.at;
        loop {
            match self.next()? {
                None => return Err(self.problem("unexpected EOF; expected '\"\"\"'")),
                Some('\\') => {
                    let c = self.next()?;
                    if !matches!(c, Some('\n' | '\r')) {
                        self.back(c);
                        self.escape(start)?;
                    }
                }
                Some('"') => {
                    let Some(raw) = self.closing_quotes(start, '"')? else {
                        continue;
                    };
                    let raw = strip_escaped_newlines(strip_first_newline(raw));
                    return self.unescape(&raw);
                }
                Some(_) => {}
            }
        }
    }

    fn raw_string(&mut self) -> Result<String, Problem> {
        let start = self.at;
        loop {
            match self.next()? {
                None => return Err(self.problem("unexpected EOF; expected \"'\"")),
                Some('\n' | '\r') => {
                    return Err(self.problem_before_newline("strings cannot contain newlines"));
                }
                Some('\'') => {
                    let raw = self.since(start);
                    return Ok(raw[..raw.len() - 1].to_owned());
                }
                Some(_) => {}
            }
        }
    }

    fn multiline_raw_string(&mut self) -> Result<String, Problem> {
        let start = self.at;
        loop {
            match self.next()? {
                None => return Err(self.problem("unexpected EOF; expected \"'''\"")),
                Some('\'') => {
                    if let Some(raw) = self.closing_quotes(start, '\'')? {
                        return Ok(strip_first_newline(raw).to_owned());
                    }
                }
                Some(_) => {}
            }
        }
    }

    /// After one quote of a multi-line string: the string if two more close it. Up to two quotes may stand before those.
    fn closing_quotes(&mut self, start: usize, mark: char) -> Result<Option<&'a str>, Problem> {
        if !self.accept(mark)? {
            return Ok(None);
        }
        if !self.accept(mark)? {
            self.back(Some(mark));
            return Ok(None);
        }
        if self.peek()? == Some(mark) {
            let five = mark.to_string().repeat(5);
            let text = self.since(start);
            if text.ends_with(&five) && (mark == '\'' || !text.ends_with(&format!("\\{five}"))) {
                let shown = if mark == '"' {
                    "'\"\"\"\"\"\"'"
                } else {
                    "\"''''''\""
                };
                return Err(self.problem(format!("unexpected {shown}")));
            }
            self.back(Some(mark));
            self.back(Some(mark));
            return Ok(None);
        }
        let text = self.since(start);
        Ok(Some(&text[..text.len() - 3]))
    }

    /// Checks what follows a backslash.
    fn escape(&mut self, start: usize) -> Result<(), Problem> {
        let c = self.next()?;
        let (count, name) = match c {
            Some('e' | 'b' | 't' | 'n' | 'f' | 'r' | '"' | ' ' | '\t' | '\\') => return Ok(()),
            Some('x') => (2, "two hexadecimal digits after '\\x'"),
            Some('u') => (4, "four hexadecimal digits after '\\u'"),
            Some('U') => (8, "eight hexadecimal digits after '\\U'"),
            Some(c) => return Err(self.problem(format!("invalid escape in string '\\{c}'"))),
            None => return Err(self.problem_before_newline("invalid escape in string '\\\0'")),
        };
        for _ in 0..count {
            if !self.next()?.is_some_and(|c| c.is_ascii_hexdigit()) {
                let shown = quote(self.since(start));
                return Err(self.problem(format!("expected {name}, but got {shown} instead")));
            }
        }
        Ok(())
    }

    /// Replaces the escapes that [`Self::escape`] accepted.
    fn unescape(&self, raw: &str) -> Result<String, Problem> {
        let mut out = String::with_capacity(raw.len());
        let mut rest = raw;
        while let Some((before, after)) = rest.split_once('\\') {
            out.push_str(before);
            let kind = after.chars().next().unwrap_or('\\');
            let length = match kind {
                'x' => 2,
                'u' => 4,
                'U' => 8,
                _ => 0,
            };
            rest = after.get(kind.len_utf8() + length..).unwrap_or_default();
            out.push(match kind {
                'b' => '\x08',
                't' => '\t',
                'n' => '\n',
                'f' => '\x0c',
                'r' => '\r',
                'e' => '\x1b',
                'x' | 'u' | 'U' => {
                    let digits = after.get(1..=length).unwrap_or_default();
                    let value = u32::from_str_radix(digits, 16)
                        .ok()
                        .and_then(char::from_u32);
                    value.ok_or_else(|| {
                        let message =
                            format!("Escaped character '\\u{digits}' is not valid UTF-8.");
                        self.problem_with(message)
                    })?
                }
                ' ' | '\t' => {
                    return Err(self.problem_with(format!("invalid escape: '\\{kind}'")));
                }
                other => other,
            });
        }
        out.push_str(rest);
        Ok(out)
    }
}

fn strip_first_newline(text: &str) -> &str {
    text.strip_prefix('\n')
        .or(text.strip_prefix("\r\n"))
        .unwrap_or(text)
}

/// A backslash at the end of a line takes the white space behind it away, newlines included.
fn strip_escaped_newlines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let after = &rest[at + 1..];
        let trimmed = after.trim_start_matches([' ', '\t', '\r', '\n']);
        if after[..after.len() - trimmed.len()].contains('\n') {
            out.push_str(&rest[..at]);
            rest = trimmed;
        } else {
            // Also past what is escaped, which may be a backslash.
            let end = at + 1 + usize::from(after.starts_with('\\'));
            out.push_str(&rest[..end]);
            rest = &rest[end..];
        }
    }
    out.push_str(rest);
    out
}

fn has_leading_zero(text: &str) -> bool {
    match text.as_bytes() {
        [b'0', second, ..] => !matches!(second, b'b' | b'o' | b'x'),
        [b'-' | b'+', b'0', _, ..] => true,
        _ => false,
    }
}

fn underscores_ok(text: &str) -> bool {
    if matches!(text.trim_start_matches(['+', '-']), "nan" | "inf") {
        return true;
    }
    let mut digit_before = false;
    for c in text.chars() {
        if c == '_' && !digit_before {
            return false;
        }
        digit_before = c.is_ascii_hexdigit();
    }
    digit_before
}
