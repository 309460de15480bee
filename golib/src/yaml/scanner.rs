//! Text to tokens, with the quirks and messages of yaml.v2's scanner (`scannerc.go`): which is libyaml's, with YAML 1.1's
//! line breaks, simple keys of at most 1,024 characters on one line, and tabs refused only where they would indent. yaml.v3's differs in
//! how far it reads ahead.
//!
//! Scalars are in `scalar.rs`, directives, anchors and tags in `properties.rs`.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::VecDeque;

use super::error::Problem;
use super::reader::Input;
use super::token::{Kind, Mark, Token};

/// Go's limit for nested flow collections, and for nested block collections.
const MAX_DEPTH: usize = 10_000;
/// How far a simple key may be from its colon, in characters.
const MAX_SIMPLE_KEY: usize = 1024;

/// A place where a key without `?` may have begun.
#[derive(Clone, Copy, Default)]
struct SimpleKey {
    possible: bool,
    /// Nothing but a key can stand here, as it begins at the indentation of a block mapping.
    required: bool,
    token_number: usize,
    mark: Mark,
}

pub(super) struct Scanner<'a> {
    pub(super) text: &'a [u8],
    pub(super) at: usize,
    pub(super) mark: Mark,
    /// What is wrong with the input behind `text`, if anything.
    input_problem: Option<&'static str>,
    /// Whether the end of `text` was looked at.
    saw_end: Cell<bool>,
    tokens: VecDeque<Token<'a>>,
    /// How many tokens must be there behind the first.
    read_ahead: usize,
    tokens_parsed: usize,
    started: bool,
    ended: bool,
    pub(super) flow_level: usize,
    /// The column of the current block collection, -1 outside of any.
    pub(super) indent: isize,
    indents: Vec<isize>,
    pub(super) simple_key_allowed: bool,
    simple_keys: Vec<SimpleKey>,
    /// Token numbers of possible keys, ascending, and where in `simple_keys` they are. yaml.v2 keeps a map and leaves keys in
    /// it that are no more; only the one of the first token is ever asked for, so what lies before it is dropped.
    simple_keys_by_token: VecDeque<(usize, usize)>,
}

impl<'a> Scanner<'a> {
    /// `read_ahead` decides which of two problems is told, the scanner's or one of the parser's before it.
    pub(super) fn new(input: &'a Input<'_>, read_ahead: usize) -> Self {
        Self {
            text: &input.text,
            at: 0,
            mark: Mark::default(),
            input_problem: input.problem,
            saw_end: Cell::new(false),
            tokens: VecDeque::new(),
            read_ahead,
            tokens_parsed: 0,
            started: false,
            ended: false,
            flow_level: 0,
            indent: -1,
            indents: Vec::new(),
            simple_key_allowed: false,
            simple_keys: Vec::new(),
            simple_keys_by_token: VecDeque::new(),
        }
    }

    /// The next token, left in place.
    pub(super) fn peek(&mut self) -> Result<&Token<'a>, Problem> {
        while self.needs_more()? {
            let result = self.fetch();
            // A scan that ran into unreadable input says so rather than what it made of the end.
            if let Some(problem) = self.input_problem
                && self.saw_end.get()
            {
                return Err(Problem::reader(problem));
            }
            result?;
        }
        Ok(self
            .tokens
            .front()
            .expect("needs_more leaves a token in the queue"))
    }

    /// Takes the token that [`Self::peek`] showed.
    pub(super) fn next(&mut self) -> Result<Token<'a>, Problem> {
        self.peek()?;
        self.tokens_parsed += 1;
        Ok(self
            .tokens
            .pop_front()
            .expect("peek leaves a token in the queue"))
    }

    /// Whether the first token can still change: none is there, or it may turn out to be a key.
    fn needs_more(&mut self) -> Result<bool, Problem> {
        if self.tokens.is_empty() {
            if self.ended {
                self.push(Kind::StreamEnd, self.mark);
                return Ok(false);
            }
            return Ok(true);
        }
        if self.tokens.len() <= self.read_ahead && !self.ended {
            return Ok(true);
        }
        while let Some(&(number, index)) = self.simple_keys_by_token.front() {
            if number >= self.tokens_parsed {
                return if number == self.tokens_parsed {
                    self.simple_key_is_valid(index)
                } else {
                    Ok(false)
                };
            }
            self.simple_keys_by_token.pop_front();
        }
        Ok(false)
    }

    fn fetch(&mut self) -> Result<(), Problem> {
        if !self.started {
            self.byte(0);
            self.started = true;
            self.simple_keys.push(SimpleKey::default());
            self.simple_key_allowed = true;
            self.push(Kind::StreamStart, self.mark);
            return Ok(());
        }
        self.skip_to_next_token();
        self.unroll_indent(self.column());
        let (first, second) = (self.byte(0), self.byte(1));
        if self.is_end(0) {
            return self.fetch_stream_end();
        }
        if self.mark.column == 0 {
            if first == b'%' {
                return self.fetch_directive();
            }
            if let Some(kind) = self.document_indicator() {
                return self.fetch_document_indicator(kind);
            }
        }
        let blank_follows = self.is_blank_or_end(1);
        let in_flow = self.flow_level > 0;
        match first {
            b'[' => self.fetch_flow_start(Kind::FlowSequenceStart),
            b'{' => self.fetch_flow_start(Kind::FlowMappingStart),
            b']' => self.fetch_flow_end(Kind::FlowSequenceEnd),
            b'}' => self.fetch_flow_end(Kind::FlowMappingEnd),
            b',' => {
                self.remove_simple_key()?;
                self.simple_key_allowed = true;
                self.fetch_indicator(Kind::FlowEntry, 1)
            }
            b'-' if blank_follows => self.fetch_block_entry(),
            b'?' if in_flow || blank_follows => self.fetch_key(),
            b':' if in_flow || blank_follows => self.fetch_value(),
            b'*' | b'&' | b'!' => {
                self.save_simple_key()?;
                self.simple_key_allowed = false;
                let start = self.mark;
                let kind = if first == b'!' {
                    self.scan_tag()?
                } else {
                    self.scan_anchor()?
                };
                self.push(kind, start);
                Ok(())
            }
            b'|' | b'>' if !in_flow => {
                self.remove_simple_key()?;
                self.simple_key_allowed = true;
                self.fetch_scalar(|scanner| scanner.scan_block_scalar(first == b'|'))
            }
            b'\'' | b'"' => {
                self.save_simple_key()?;
                self.simple_key_allowed = false;
                self.fetch_scalar(|scanner| scanner.scan_quoted_scalar(first == b'\''))
            }
            _ if self.starts_plain(first, second, blank_follows) => {
                self.save_simple_key()?;
                self.simple_key_allowed = false;
                self.fetch_scalar(Self::scan_plain_scalar)
            }
            _ => Err(self.problem("found character that cannot start any token", self.mark)),
        }
    }

    fn starts_plain(&self, first: u8, second: u8, blank_follows: bool) -> bool {
        match first {
            b'-' => !matches!(second, b' ' | b'\t'),
            b'?' | b':' => self.flow_level == 0 && !blank_follows,
            b'#' | b'|' | b'>' | b'%' | b'@' | b'`' => false,
            _ => !self.is_blank_or_end(0),
        }
    }

    fn fetch_scalar(
        &mut self,
        scan: impl FnOnce(&mut Self) -> Result<Kind<'a>, Problem>,
    ) -> Result<(), Problem> {
        let start = self.mark;
        let kind = scan(self)?;
        self.push(kind, start);
        Ok(())
    }

    fn fetch_stream_end(&mut self) -> Result<(), Problem> {
        if self.mark.column != 0 {
            self.mark.column = 0;
            self.mark.line += 1;
        }
        self.unroll_indent(-1);
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        self.ended = true;
        self.push(Kind::StreamEnd, self.mark);
        Ok(())
    }

    fn fetch_directive(&mut self) -> Result<(), Problem> {
        self.unroll_indent(-1);
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.mark;
        let kind = self.scan_directive()?;
        self.push(kind, start);
        Ok(())
    }

    /// `---` or `...` before a blank, at the current place.
    pub(super) fn document_indicator(&self) -> Option<Kind<'a>> {
        let kind = match (self.byte(0), self.byte(1), self.byte(2)) {
            (b'-', b'-', b'-') => Kind::DocumentStart,
            (b'.', b'.', b'.') => Kind::DocumentEnd,
            _ => return None,
        };
        self.is_blank_or_end(3).then_some(kind)
    }

    fn fetch_document_indicator(&mut self, kind: Kind<'a>) -> Result<(), Problem> {
        self.unroll_indent(-1);
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        self.fetch_indicator(kind, 3)
    }

    fn fetch_indicator(&mut self, kind: Kind<'a>, length: usize) -> Result<(), Problem> {
        let start = self.mark;
        for _ in 0..length {
            self.skip();
        }
        self.push(kind, start);
        Ok(())
    }

    fn fetch_flow_start(&mut self, kind: Kind<'a>) -> Result<(), Problem> {
        self.save_simple_key()?;
        self.simple_keys.push(SimpleKey {
            token_number: self.next_token_number(),
            mark: self.mark,
            ..SimpleKey::default()
        });
        self.flow_level += 1;
        if self.flow_level > MAX_DEPTH {
            return Err(self.problem("exceeded max depth of 10000", self.mark));
        }
        self.simple_key_allowed = true;
        self.fetch_indicator(kind, 1)
    }

    fn fetch_flow_end(&mut self, kind: Kind<'a>) -> Result<(), Problem> {
        self.remove_simple_key()?;
        if self.flow_level > 0 {
            self.flow_level -= 1;
            if let Some(key) = self.simple_keys.pop() {
                self.forget_key(key.token_number);
            }
        }
        self.simple_key_allowed = false;
        self.fetch_indicator(kind, 1)
    }

    /// A block begins in this column, where one may.
    fn begin_block(&mut self, start: Kind<'a>, otherwise: &'static str) -> Result<(), Problem> {
        if self.flow_level > 0 {
            return Ok(());
        }
        if !self.simple_key_allowed {
            return Err(self.problem(otherwise, self.mark));
        }
        self.roll_indent(self.column(), None, start, self.mark)
    }

    fn fetch_block_entry(&mut self) -> Result<(), Problem> {
        self.begin_block(
            Kind::BlockSequenceStart,
            "block sequence entries are not allowed in this context",
        )?;
        self.remove_simple_key()?;
        self.simple_key_allowed = true;
        self.fetch_indicator(Kind::BlockEntry, 1)
    }

    fn fetch_key(&mut self) -> Result<(), Problem> {
        self.begin_block(
            Kind::BlockMappingStart,
            "mapping keys are not allowed in this context",
        )?;
        self.remove_simple_key()?;
        self.simple_key_allowed = self.flow_level == 0;
        self.fetch_indicator(Kind::Key, 1)
    }

    fn fetch_value(&mut self) -> Result<(), Problem> {
        let last = self.simple_keys.len() - 1;
        if self.simple_key_is_valid(last)? {
            let key = self.simple_keys[last];
            self.insert(key.token_number, Kind::Key, key.mark);
            let column = isize::try_from(key.mark.column).unwrap_or(isize::MAX);
            self.roll_indent(
                column,
                Some(key.token_number),
                Kind::BlockMappingStart,
                key.mark,
            )?;
            self.simple_keys[last].possible = false;
            self.forget_key(key.token_number);
            self.simple_key_allowed = false;
        } else {
            self.begin_block(
                Kind::BlockMappingStart,
                "mapping values are not allowed in this context",
            )?;
            self.simple_key_allowed = self.flow_level == 0;
        }
        self.fetch_indicator(Kind::Value, 1)
    }

    // Simple keys and indentation

    fn next_token_number(&self) -> usize {
        self.tokens_parsed + self.tokens.len()
    }

    fn simple_key_is_valid(&mut self, index: usize) -> Result<bool, Problem> {
        let mark = self.mark;
        let Some(key) = self.simple_keys.get_mut(index).filter(|key| key.possible) else {
            return Ok(false);
        };
        if key.mark.line < mark.line || key.mark.index + MAX_SIMPLE_KEY < mark.index {
            if key.required {
                let context = key.mark;
                return Err(self.problem("could not find expected ':'", context));
            }
            key.possible = false;
            return Ok(false);
        }
        Ok(true)
    }

    fn save_simple_key(&mut self) -> Result<(), Problem> {
        if !self.simple_key_allowed {
            return Ok(());
        }
        let key = SimpleKey {
            possible: true,
            required: self.flow_level == 0 && self.indent == self.column(),
            token_number: self.next_token_number(),
            mark: self.mark,
        };
        self.remove_simple_key()?;
        let last = self.simple_keys.len() - 1;
        self.simple_keys[last] = key;
        self.forget_key(key.token_number);
        self.simple_keys_by_token
            .push_back((key.token_number, last));
        Ok(())
    }

    fn forget_key(&mut self, token_number: usize) {
        let keys = &mut self.simple_keys_by_token;
        if let Some(from_end) = keys
            .iter()
            .rev()
            .take_while(|(number, _)| *number >= token_number)
            .position(|(number, _)| *number == token_number)
        {
            keys.remove(keys.len() - 1 - from_end);
        }
    }

    fn remove_simple_key(&mut self) -> Result<(), Problem> {
        let last = self.simple_keys.len() - 1;
        let key = self.simple_keys[last];
        if key.possible {
            if key.required {
                return Err(self.problem("could not find expected ':'", key.mark));
            }
            self.simple_keys[last].possible = false;
            self.forget_key(key.token_number);
        }
        Ok(())
    }

    fn column(&self) -> isize {
        isize::try_from(self.mark.column).unwrap_or(isize::MAX)
    }

    fn roll_indent(
        &mut self,
        column: isize,
        token_number: Option<usize>,
        kind: Kind<'a>,
        mark: Mark,
    ) -> Result<(), Problem> {
        if self.flow_level > 0 || self.indent >= column {
            return Ok(());
        }
        self.indents.push(self.indent);
        self.indent = column;
        if self.indents.len() > MAX_DEPTH {
            let context = self.simple_keys.last().map_or(self.mark, |key| key.mark);
            return Err(self.problem("exceeded max depth of 10000", context));
        }
        match token_number {
            Some(number) => self.insert(number, kind, mark),
            None => self.push(kind, mark),
        }
        Ok(())
    }

    fn unroll_indent(&mut self, column: isize) {
        if self.flow_level > 0 {
            return;
        }
        while self.indent > column {
            self.push(Kind::BlockEnd, self.mark);
            self.indent = self.indents.pop().unwrap_or(-1);
        }
    }

    fn push(&mut self, kind: Kind<'a>, start: Mark) {
        self.tokens.push_back(Token { kind, start });
    }

    fn insert(&mut self, token_number: usize, kind: Kind<'a>, start: Mark) {
        let index = token_number
            .saturating_sub(self.tokens_parsed)
            .min(self.tokens.len());
        self.tokens.insert(index, Token { kind, start });
    }

    // Characters

    pub(super) fn problem(&self, text: &'static str, context: Mark) -> Problem {
        Problem::scanner(text, context, self.mark)
    }

    /// The byte `offset` bytes ahead; 0, which the text cannot hold, behind its end.
    pub(super) fn byte(&self, offset: usize) -> u8 {
        match self.text.get(self.at + offset) {
            Some(&byte) => byte,
            None => {
                self.saw_end.set(true);
                0
            }
        }
    }

    pub(super) fn is_end(&self, offset: usize) -> bool {
        self.byte(offset) == 0
    }

    pub(super) fn is_blank(&self, offset: usize) -> bool {
        matches!(self.byte(offset), b' ' | b'\t')
    }

    /// CR, LF, NEL, LS or PS.
    pub(super) fn is_break(&self, offset: usize) -> bool {
        match self.byte(offset) {
            b'\r' | b'\n' => true,
            0xc2 => self.byte(offset + 1) == 0x85,
            0xe2 => self.byte(offset + 1) == 0x80 && matches!(self.byte(offset + 2), 0xa8 | 0xa9),
            _ => false,
        }
    }

    pub(super) fn is_break_or_end(&self, offset: usize) -> bool {
        self.is_break(offset) || self.is_end(offset)
    }

    pub(super) fn is_blank_or_end(&self, offset: usize) -> bool {
        self.is_blank(offset) || self.is_break_or_end(offset)
    }

    /// What may stand in anchors, tag handles and directive names.
    pub(super) fn is_word(&self) -> bool {
        matches!(self.byte(0), b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'-')
    }

    fn width(&self) -> usize {
        match self.byte(0) {
            0xc0..0xe0 => 2,
            0xe0..0xf0 => 3,
            0xf0..0xf8 => 4,
            _ => 1,
        }
    }

    pub(super) fn skip(&mut self) {
        self.at += self.width();
        self.mark.index += 1;
        self.mark.column += 1;
    }

    /// Takes one character, which is not a line break.
    pub(super) fn read(&mut self, out: &mut Vec<u8>) {
        let end = (self.at + self.width()).min(self.text.len());
        out.extend_from_slice(&self.text[self.at.min(end)..end]);
        self.skip();
    }

    /// Takes a line break, which is read as a newline unless it is LS or PS.
    pub(super) fn read_line(&mut self, out: &mut Vec<u8>) {
        let (width, newline) = match self.byte(0) {
            b'\r' if self.byte(1) == b'\n' => (2, true),
            b'\r' | b'\n' => (1, true),
            0xc2 if self.is_break(0) => (2, true),
            0xe2 if self.is_break(0) => (3, false),
            _ => return,
        };
        if newline {
            out.push(b'\n');
        } else {
            out.extend_from_slice(&self.text[self.at..self.at + width]);
        }
        self.mark.index += if self.byte(0) == b'\r' && width == 2 {
            2
        } else {
            1
        };
        self.at += width;
        self.mark.column = 0;
        self.mark.line += 1;
    }

    pub(super) fn skip_line(&mut self) {
        if self.byte(0) == b'\n' {
            self.at += 1;
            self.mark.index += 1;
            self.mark.column = 0;
            self.mark.line += 1;
        } else {
            self.read_line(&mut Vec::new());
        }
    }

    pub(super) fn skip_blanks(&mut self) {
        while self.is_blank(0) {
            self.skip_ascii();
        }
    }

    /// Takes one character that is known to be ASCII and no line break.
    pub(super) fn skip_ascii(&mut self) {
        self.at += 1;
        self.mark.index += 1;
        self.mark.column += 1;
    }

    /// Takes characters up to the first ASCII one that `stops` says is special, a line break or the end.
    pub(super) fn skip_run(&mut self, stops: impl Fn(u8) -> bool) {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let mut length = 0;
        let mut characters = 0;
        while let Some(&byte) = rest.get(length) {
            match byte {
                b'\r' | b'\n' => break,
                0..0x80 if stops(byte) => break,
                0xc2 if rest.get(length + 1) == Some(&0x85) => break,
                0xe2 if matches!(rest.get(length + 1..length + 3), Some([0x80, 0xa8 | 0xa9])) => {
                    break;
                }
                // What goes on with a character is part of it.
                0x80..0xc0 => {}
                _ => characters += 1,
            }
            length += 1;
        }
        self.at += length;
        self.mark.index += characters;
        self.mark.column += characters;
    }

    pub(super) fn skip_comment(&mut self) {
        if self.byte(0) == b'#' {
            self.skip_run(|_| false);
            self.byte(0);
        }
    }

    fn skip_to_next_token(&mut self) {
        loop {
            // Elsewhere it is part of the text: yaml.v2 looks for it at the beginning of its buffer.
            if self.at == 0 && self.text.starts_with(b"\xef\xbb\xbf") {
                self.skip();
                // It indents nothing: the lines below belong to the same map.
                self.mark.column = 0;
            }
            // A tab may separate tokens, but where a simple key may begin it would indent.
            while self.byte(0) == b' '
                || self.byte(0) == b'\t' && (self.flow_level > 0 || !self.simple_key_allowed)
            {
                self.skip_ascii();
            }
            self.skip_comment();
            if !self.is_break(0) {
                return;
            }
            self.skip_line();
            if self.flow_level == 0 {
                self.simple_key_allowed = true;
            }
        }
    }
}

/// Scanned bytes as text: they were checked on the way in and cut at characters.
pub(super) fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// A value that is a piece of the text until it has to be written down.
pub(super) enum Piece<'a> {
    Borrowed {
        text: &'a [u8],
        start: usize,
        end: usize,
    },
    Owned(Vec<u8>),
}

impl<'a> Piece<'a> {
    pub(super) fn new(text: &'a [u8], start: usize) -> Self {
        Self::Borrowed {
            text,
            start,
            end: start,
        }
    }

    /// Makes the value end at `at`, which is where the scanner is, when it is still a piece of the text; otherwise adds what
    /// lies between `from` and there.
    pub(super) fn extend_to(&mut self, text: &[u8], from: usize, at: usize) {
        match self {
            Self::Borrowed { end, .. } => *end = at,
            Self::Owned(out) => out.extend_from_slice(text.get(from..at).unwrap_or_default()),
        }
    }

    /// The value to be written to.
    pub(super) fn own(&mut self) -> &mut Vec<u8> {
        if let Self::Borrowed { text, start, end } = *self {
            *self = Self::Owned(text.get(start..end).unwrap_or_default().to_vec());
        }
        match self {
            Self::Owned(out) => out,
            Self::Borrowed { .. } => unreachable!("it was just written down"),
        }
    }

    pub(super) fn into_text(self) -> Cow<'a, str> {
        match self {
            Self::Borrowed { text, start, end } => {
                String::from_utf8_lossy(text.get(start..end).unwrap_or_default())
            }
            Self::Owned(out) => text(out).into(),
        }
    }
}
