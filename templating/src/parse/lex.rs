//! Text to tokens, one at a time. Mirrors Go's `text/template/parse/lex.go`.

use golib::strconv::is_print;
use golib::unicode::{is_digit, is_letter};
use golib::utf8::decode_rune;

/// What a token is; the order has no meaning, but see [`TokenKind::is_keyword`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Error,
    Bool,
    /// A punctuation mark with no meaning of its own, such as a comma.
    Char,
    CharConstant,
    Complex,
    Assign,
    Declare,
    Eof,
    Field,
    Identifier,
    LeftDelim,
    LeftParen,
    Number,
    Pipe,
    RawString,
    RightDelim,
    RightParen,
    Space,
    String,
    Text,
    Variable,
    Block,
    Break,
    Continue,
    Dot,
    Define,
    Else,
    End,
    If,
    Nil,
    Range,
    Template,
    With,
}

impl TokenKind {
    fn keyword(word: &[u8]) -> Option<Self> {
        Some(match word {
            b"block" => Self::Block,
            b"break" => Self::Break,
            b"continue" => Self::Continue,
            b"define" => Self::Define,
            b"else" => Self::Else,
            b"end" => Self::End,
            b"if" => Self::If,
            b"nil" => Self::Nil,
            b"range" => Self::Range,
            b"template" => Self::Template,
            b"with" => Self::With,
            _ => return None,
        })
    }

    pub(super) fn is_keyword(self) -> bool {
        matches!(
            self,
            Self::Block
                | Self::Break
                | Self::Continue
                | Self::Dot
                | Self::Define
                | Self::Else
                | Self::End
                | Self::If
                | Self::Nil
                | Self::Range
                | Self::Template
                | Self::With
        )
    }
}

/// A token: a range of the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) start: usize,
    pub(super) end: usize,
    /// The line it begins on, from 1.
    pub(super) line: usize,
}

const TRIM_MARKER_LEN: usize = 2;

pub(super) struct Lexer<'s> {
    text: &'s [u8],
    left: &'s [u8],
    right: &'s [u8],
    pos: usize,
    start: usize,
    paren_depth: i32,
    line: usize,
    start_line: usize,
    inside_action: bool,
    /// What the last `Error` token says. After an error there is only the end of the text.
    pub(super) error: String,
    failed: bool,
    /// Whether `break` and `continue` are keywords: not if functions have these names.
    pub(super) break_ok: bool,
    pub(super) continue_ok: bool,
}

fn is_space(c: u8) -> bool {
    matches!(c, b' ' | b'\t' | b'\r' | b'\n')
}

fn has_left_trim_marker(text: &[u8]) -> bool {
    matches!(text, [b'-', space, ..] if is_space(*space))
}

fn has_right_trim_marker(text: &[u8]) -> bool {
    matches!(text, [space, b'-', ..] if is_space(*space))
}

fn find(text: &[u8], pattern: &[u8]) -> Option<usize> {
    let (&first, rest) = pattern.split_first()?;
    memchr::memchr_iter(first, text).find(|at| text[at + 1..].starts_with(rest))
}

fn count_lines(text: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', text).count()
}

impl<'s> Lexer<'s> {
    pub(super) fn new(text: &'s [u8], left: &'s [u8], right: &'s [u8]) -> Self {
        Self {
            text,
            left,
            right,
            pos: 0,
            start: 0,
            paren_depth: 0,
            line: 1,
            start_line: 1,
            inside_action: false,
            error: String::new(),
            failed: false,
            break_ok: true,
            continue_ok: true,
        }
    }

    pub(super) fn next_token(&mut self) -> Token {
        if self.failed {
            // Go empties the text after an error; what follows is the end, of an action if inside one.
            return if self.inside_action {
                self.fail("unclosed action")
            } else {
                self.emit(TokenKind::Eof)
            };
        }
        if self.inside_action {
            self.lex_inside_action()
        } else {
            self.lex_text()
        }
    }

    fn rest(&self) -> &'s [u8] {
        &self.text[self.pos..]
    }

    fn peek(&self) -> Option<char> {
        decode_rune(self.rest()).map(|(c, _)| c)
    }

    fn next(&mut self) -> Option<char> {
        let (c, width) = decode_rune(self.rest())?;
        self.pos += width;
        if c == '\n' {
            self.line += 1;
        }
        Some(c)
    }

    fn emit(&mut self, kind: TokenKind) -> Token {
        let token = Token {
            kind,
            start: self.start,
            end: self.pos,
            line: self.start_line,
        };
        self.start = self.pos;
        self.start_line = self.line;
        token
    }

    fn ignore(&mut self) {
        self.line += count_lines(&self.text[self.start..self.pos]);
        self.start = self.pos;
        self.start_line = self.line;
    }

    fn fail(&mut self, message: impl Into<String>) -> Token {
        if !self.failed {
            self.error = message.into();
        }
        self.failed = true;
        let token = Token {
            kind: TokenKind::Error,
            start: self.start,
            end: self.start,
            line: self.start_line,
        };
        self.text = &[];
        self.pos = 0;
        self.start = 0;
        token
    }

    fn accept(&mut self, valid: &[u8]) -> bool {
        let accepted = self.rest().first().is_some_and(|c| valid.contains(c));
        self.pos += usize::from(accepted);
        accepted
    }

    fn accept_run(&mut self, valid: &[u8]) {
        while self.accept(valid) {}
    }

    /// Whether a right delimiter is here, and whether white space and a trim marker precede it.
    fn at_right_delim(&self) -> (bool, bool) {
        let rest = self.rest();
        if has_right_trim_marker(rest) && rest[TRIM_MARKER_LEN..].starts_with(self.right) {
            return (true, true);
        }
        (rest.starts_with(self.right), false)
    }

    fn lex_text(&mut self) -> Token {
        loop {
            let Some(length) = find(self.rest(), self.left) else {
                self.pos = self.text.len();
                if self.pos > self.start {
                    self.line += count_lines(&self.text[self.start..]);
                    return self.emit(TokenKind::Text);
                }
                return self.emit(TokenKind::Eof);
            };
            if length > 0 {
                self.pos += length;
                let text = &self.text[self.start..self.pos];
                let after_delim = &self.text[self.pos + self.left.len()..];
                let trimmed = if has_left_trim_marker(after_delim) {
                    text.iter().rev().take_while(|&&c| is_space(c)).count()
                } else {
                    0
                };
                self.pos -= trimmed;
                self.line += count_lines(&self.text[self.start..self.pos]);
                let token = self.emit(TokenKind::Text);
                self.pos += trimmed;
                self.ignore();
                if token.end > token.start {
                    return token;
                }
            }
            if let Some(token) = self.lex_left_delim() {
                return token;
            }
        }
    }

    /// The left delimiter, or nothing if it begins a comment, which is skipped.
    fn lex_left_delim(&mut self) -> Option<Token> {
        self.pos += self.left.len();
        let marker = if has_left_trim_marker(self.rest()) {
            TRIM_MARKER_LEN
        } else {
            0
        };
        if self.rest()[marker..].starts_with(b"/*") {
            self.pos += marker;
            self.ignore();
            return self.lex_comment();
        }
        let token = self.emit(TokenKind::LeftDelim);
        self.inside_action = true;
        self.pos += marker;
        self.ignore();
        self.paren_depth = 0;
        Some(token)
    }

    fn lex_comment(&mut self) -> Option<Token> {
        self.pos += 2;
        let Some(length) = find(self.rest(), b"*/") else {
            return Some(self.fail("unclosed comment"));
        };
        self.pos += length + 2;
        let (is_delim, trim) = self.at_right_delim();
        if !is_delim {
            return Some(self.fail("comment ends before closing delimiter"));
        }
        self.pos += self.right.len() + if trim { TRIM_MARKER_LEN } else { 0 };
        if trim {
            self.skip_space();
        }
        self.ignore();
        None
    }

    fn skip_space(&mut self) {
        self.pos += self.rest().iter().take_while(|&&c| is_space(c)).count();
    }

    fn lex_right_delim(&mut self) -> Token {
        let (_, trim) = self.at_right_delim();
        if trim {
            self.pos += TRIM_MARKER_LEN;
            self.ignore();
        }
        self.pos += self.right.len();
        let token = self.emit(TokenKind::RightDelim);
        if trim {
            self.skip_space();
            self.ignore();
        }
        self.inside_action = false;
        token
    }

    fn lex_inside_action(&mut self) -> Token {
        if self.at_right_delim().0 {
            if self.paren_depth == 0 {
                return self.lex_right_delim();
            }
            return self.fail("unclosed left paren");
        }
        let Some(c) = self.peek() else {
            return self.fail("unclosed action");
        };
        match c {
            ' ' | '\t' | '\r' | '\n' => return self.lex_space(),
            '+' | '-' | '0'..='9' => return self.lex_number(),
            '.' => {
                return match self.rest().get(1) {
                    Some(digit) if digit.is_ascii_digit() => self.lex_number(),
                    // At the very end of the text a dot is taken for the start of a number.
                    None => self.lex_number(),
                    _ => {
                        self.pos += 1;
                        self.lex_field_or_variable(TokenKind::Field)
                    }
                };
            }
            c if is_alphanumeric(c) => return self.lex_identifier(),
            _ => {}
        }
        self.next();
        match c {
            '=' => self.emit(TokenKind::Assign),
            ':' => match self.next() {
                Some('=') => self.emit(TokenKind::Declare),
                _ => self.fail("expected :="),
            },
            '|' => self.emit(TokenKind::Pipe),
            '"' => self.lex_quoted(b'"', TokenKind::String, "unterminated quoted string"),
            '\'' => self.lex_quoted(
                b'\'',
                TokenKind::CharConstant,
                "unterminated character constant",
            ),
            '`' => self.lex_raw_quoted(),
            '$' => self.lex_field_or_variable(TokenKind::Variable),
            '(' => {
                self.paren_depth += 1;
                self.emit(TokenKind::LeftParen)
            }
            ')' => {
                self.paren_depth -= 1;
                if self.paren_depth < 0 {
                    return self.fail("unexpected right paren");
                }
                self.emit(TokenKind::RightParen)
            }
            '!'..='~' => self.emit(TokenKind::Char),
            _ => self.fail(format!("unrecognized character in action: {}", describe(c))),
        }
    }

    fn lex_space(&mut self) -> Token {
        let mut spaces = 0;
        while self.rest().first().is_some_and(|&c| is_space(c)) {
            self.next();
            spaces += 1;
        }
        let from_last = &self.text[self.pos - 1..];
        if has_right_trim_marker(from_last) && from_last[TRIM_MARKER_LEN..].starts_with(self.right)
        {
            // The last space belongs to the trim marker.
            self.pos -= 1;
            if self.text[self.pos] == b'\n' {
                self.line -= 1;
            }
            if spaces == 1 {
                return self.lex_right_delim();
            }
        }
        self.emit(TokenKind::Space)
    }

    fn lex_identifier(&mut self) -> Token {
        self.skip_alphanumeric();
        let word = &self.text[self.start..self.pos];
        if let Some(token) = self.bad_terminator() {
            return token;
        }
        match TokenKind::keyword(word) {
            Some(TokenKind::Break) if !self.break_ok => self.emit(TokenKind::Identifier),
            Some(TokenKind::Continue) if !self.continue_ok => self.emit(TokenKind::Identifier),
            Some(keyword) => self.emit(keyword),
            None if matches!(word, b"true" | b"false") => self.emit(TokenKind::Bool),
            None => self.emit(TokenKind::Identifier),
        }
    }

    fn skip_alphanumeric(&mut self) {
        loop {
            let ascii = self.rest().iter();
            let is_part = |c: &&u8| c.is_ascii_alphanumeric() || **c == b'_';
            self.pos += ascii.take_while(is_part).count();
            match self.peek() {
                Some(c) if !c.is_ascii() && is_alphanumeric(c) => {
                    self.next();
                }
                _ => return,
            }
        }
    }

    /// A field after its dot, or a variable after its dollar.
    fn lex_field_or_variable(&mut self, kind: TokenKind) -> Token {
        if self.at_terminator() {
            return self.emit(if kind == TokenKind::Field {
                TokenKind::Dot
            } else {
                kind
            });
        }
        self.skip_alphanumeric();
        if let Some(token) = self.bad_terminator() {
            return token;
        }
        self.emit(kind)
    }

    fn at_terminator(&self) -> bool {
        match self.peek() {
            None | Some(' ' | '\t' | '\r' | '\n' | '.' | ',' | '|' | ':' | ')' | '(') => true,
            Some(_) => self.rest().starts_with(self.right),
        }
    }

    fn bad_terminator(&mut self) -> Option<Token> {
        if self.at_terminator() {
            return None;
        }
        let c = self.peek().unwrap_or(char::REPLACEMENT_CHARACTER);
        Some(self.fail(format!("bad character {}", describe(c))))
    }

    fn lex_quoted(&mut self, quote: u8, kind: TokenKind, unterminated: &str) -> Token {
        loop {
            match self.next() {
                Some('\\') => {
                    if matches!(self.next(), None | Some('\n')) {
                        return self.fail(unterminated);
                    }
                }
                None | Some('\n') => return self.fail(unterminated),
                Some(c) if c == char::from(quote) => return self.emit(kind),
                Some(_) => {}
            }
        }
    }

    fn lex_raw_quoted(&mut self) -> Token {
        loop {
            match self.next() {
                None => return self.fail("unterminated raw quoted string"),
                Some('`') => return self.emit(TokenKind::RawString),
                Some(_) => {}
            }
        }
    }

    fn lex_number(&mut self) -> Token {
        if !self.scan_number() {
            return self.bad_number();
        }
        if matches!(self.rest().first(), Some(b'+' | b'-')) {
            // Complex: 1+2i. No spaces, must end in 'i'.
            if !self.scan_number() || self.text[self.pos - 1] != b'i' {
                return self.bad_number();
            }
            return self.emit(TokenKind::Complex);
        }
        self.emit(TokenKind::Number)
    }

    fn bad_number(&mut self) -> Token {
        let text = golib::strconv::quote(&self.text[self.start..self.pos]);
        self.fail(format!("bad number syntax: {text}"))
    }

    fn scan_number(&mut self) -> bool {
        self.accept(b"+-");
        let mut digits: &[u8] = b"0123456789_";
        if self.accept(b"0") {
            if self.accept(b"xX") {
                digits = b"0123456789abcdefABCDEF_";
            } else if self.accept(b"oO") {
                digits = b"01234567_";
            } else if self.accept(b"bB") {
                digits = b"01_";
            }
        }
        self.accept_run(digits);
        if self.accept(b".") {
            self.accept_run(digits);
        }
        if digits.len() == 11 && self.accept(b"eE") {
            self.accept(b"+-");
            self.accept_run(b"0123456789_");
        }
        if digits.len() == 23 && self.accept(b"pP") {
            self.accept(b"+-");
            self.accept_run(b"0123456789_");
        }
        self.accept(b"i");
        if self.peek().is_some_and(is_alphanumeric) {
            // The next character must not be part of a word.
            self.next();
            return false;
        }
        true
    }
}

/// Whether the character may be part of an identifier: `_`, a letter or a digit.
fn is_alphanumeric(c: char) -> bool {
    c == '_' || is_letter(c) || is_digit(c)
}

/// Go's `%#U`: the code point, and the character if it can be printed.
fn describe(c: char) -> String {
    let code = u32::from(c);
    if is_print(c) {
        format!("U+{code:04X} '{c}'")
    } else {
        format!("U+{code:04X}")
    }
}
