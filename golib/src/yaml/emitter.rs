//! Writing scalars and block structure character by character: libyaml's emitter as yaml.v2 has it (`emitterc.go`), for the
//! events an encoder of plain data produces.

use std::fmt::Write as _;

use super::token::ScalarStyle;
use super::tree::Dialect;

const INDENT: isize = 2;
/// Longer keys are written behind a `?`; in bytes.
const MAX_SIMPLE_KEY: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Collection {
    Sequence,
    Mapping,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Style {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    Literal,
}

#[derive(Debug)]
pub(super) struct Emitter {
    dialect: Dialect,
    /// Where plain and quoted text is folded, in characters.
    best_width: usize,
    out: String,
    column: usize,
    /// -1 outside of any collection.
    indent: isize,
    indents: Vec<isize>,
    /// The last character was white space or an indicator that counts as such.
    whitespace: bool,
    /// Nothing but indentation and `-`, `?` or `:` stands on the line.
    indention: bool,
}

impl Emitter {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            best_width: if dialect == Dialect::V2 {
                80
            } else {
                usize::MAX
            },
            out: String::new(),
            column: 0,
            indent: -1,
            indents: Vec::new(),
            whitespace: true,
            indention: true,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    pub(super) fn finish(mut self) -> String {
        self.write_indent();
        self.out
    }

    pub(super) fn begin(&mut self, collection: Collection, in_mapping: bool) {
        let indentless = self.dialect != Dialect::V3
            && collection == Collection::Sequence
            && in_mapping
            && !self.indention;
        self.increase_indent(false, indentless);
    }

    pub(super) fn end(&mut self) {
        self.indent = self.indents.pop().unwrap_or(-1);
    }

    pub(super) fn empty(&mut self, open: &str, close: &str) {
        self.indicator(open, true, true, false);
        self.indicator(close, false, false, false);
    }

    pub(super) fn item(&mut self) {
        self.write_indent();
        self.indicator("-", true, false, true);
    }

    /// A key and what separates it from its value.
    pub(super) fn key(&mut self, text: &str, quote: bool) {
        self.tagged_key("", text, quote);
    }

    /// The same with a tag before the key.
    pub(super) fn tagged_key(&mut self, tag: &str, text: &str, quote: bool) {
        self.write_indent();
        let analysis = Analysis::of(text, self.dialect);
        if !analysis.multiline && text.len() <= MAX_SIMPLE_KEY {
            self.tag(tag);
            self.scalar(text, quote, &analysis, true);
            self.indicator(":", false, false, false);
        } else {
            self.indicator("?", true, false, true);
            self.tag(tag);
            self.scalar(text, quote, &analysis, false);
            self.write_indent();
            self.indicator(":", true, false, true);
        }
    }

    pub(super) fn value(&mut self, text: &str, quote: bool) {
        self.scalar(text, quote, &Analysis::of(text, self.dialect), false);
    }

    fn scalar(&mut self, text: &str, quote: bool, analysis: &Analysis, simple_key: bool) {
        let style = self.style(text, quote, analysis, simple_key);
        if analysis.is_word && style != Style::Literal {
            let quote = match style {
                Style::DoubleQuoted => "\"",
                Style::SingleQuoted => "'",
                _ => "",
            };
            if !self.whitespace {
                self.put(' ');
            }
            self.put_ascii(quote);
            self.put_ascii(text);
            self.put_ascii(quote);
            self.whitespace = false;
            self.indention = false;
            return;
        }
        self.increase_indent(true, false);
        match style {
            Style::Plain => self.plain(text, !simple_key),
            Style::SingleQuoted => self.single_quoted(text, !simple_key),
            Style::DoubleQuoted => self.double_quoted(text, !simple_key),
            Style::Literal => self.literal(text),
        }
        self.end();
    }

    /// A scalar in the style it is to have, as far as its text can be written so, behind its tag.
    pub(super) fn styled(&mut self, scalar: &Styled<'_>) {
        let style = scalar.held(self.dialect);
        self.tag(scalar.tag);
        self.increase_indent(true, false);
        let fold = !scalar.simple_key;
        match style {
            ScalarStyle::Plain => self.plain(scalar.text, fold),
            ScalarStyle::SingleQuoted => self.single_quoted(scalar.text, fold),
            ScalarStyle::DoubleQuoted => self.double_quoted(scalar.text, fold),
            ScalarStyle::Literal => self.literal(scalar.text),
            ScalarStyle::Folded => self.folded(scalar.text),
        }
        self.end();
    }

    /// What opens, parts and closes a collection in brackets.
    pub(super) fn flow(&mut self, mark: &str) {
        let opens = matches!(mark, "[" | "{");
        self.indicator(mark, opens, opens, false);
    }

    /// What stands behind a key.
    pub(super) fn colon(&mut self) {
        self.indicator(":", false, false, false);
    }

    /// The line of the next entry of a mapping.
    pub(super) fn next_line(&mut self) {
        self.write_indent();
    }

    /// What stands before a scalar or a collection; empty for nothing.
    pub(super) fn tag(&mut self, tag: &str) {
        if !tag.is_empty() {
            self.indicator(tag, true, false, false);
        }
    }

    fn style(&self, text: &str, quote: bool, analysis: &Analysis, simple_key: bool) -> Style {
        let mut style = if text.contains('\n') {
            Style::Literal
        } else if quote {
            Style::DoubleQuoted
        } else {
            Style::Plain
        };
        if simple_key && analysis.multiline {
            style = Style::DoubleQuoted;
        }
        if style == Style::Plain && (!analysis.plain_allowed || text.is_empty() && simple_key) {
            style = Style::SingleQuoted;
        }
        if style == Style::SingleQuoted && !analysis.single_quoted_allowed
            || style == Style::Literal && (!analysis.block_allowed || simple_key)
        {
            style = Style::DoubleQuoted;
        }
        style
    }

    fn increase_indent(&mut self, flow: bool, indentless: bool) {
        self.indents.push(self.indent);
        if self.indent < 0 {
            self.indent = if flow { INDENT } else { 0 };
        } else if !indentless {
            self.indent += INDENT;
        }
    }

    // Characters

    fn put(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    fn put_ascii(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.len();
    }

    fn put_break(&mut self) {
        self.out.push('\n');
        self.column = 0;
    }

    /// A line break of the text itself.
    fn write_break(&mut self, c: char) {
        self.out.push(c);
        self.column = 0;
        self.indention = true;
    }

    fn write_indent(&mut self) {
        let indent = self.indent.max(0).unsigned_abs();
        if !self.indention || self.column > indent || self.column == indent && !self.whitespace {
            self.put_break();
        }
        if self.column < indent {
            self.out
                .extend(std::iter::repeat_n(' ', indent - self.column));
            self.column = indent;
        }
        self.whitespace = true;
        self.indention = true;
    }

    fn indicator(&mut self, text: &str, needs_space: bool, whitespace: bool, indention: bool) {
        if needs_space && !self.whitespace {
            self.put(' ');
        }
        self.put_ascii(text);
        self.whitespace = whitespace;
        self.indention &= indention;
    }

    fn plain(&mut self, text: &str, fold: bool) {
        if !self.whitespace && (self.dialect == Dialect::V2 || !text.is_empty()) {
            self.put(' ');
        }
        let mut spaces = false;
        let mut breaks = false;
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            if c == ' ' {
                if fold && !spaces && self.column > self.best_width && chars.peek() != Some(&' ') {
                    self.write_indent();
                } else {
                    self.put(c);
                }
                spaces = true;
            } else {
                self.fold_char(c, &mut spaces, &mut breaks);
            }
        }
        self.whitespace = false;
        self.indention = false;
    }

    fn single_quoted(&mut self, text: &str, fold: bool) {
        self.indicator("'", true, false, false);
        let mut spaces = false;
        let mut breaks = false;
        let mut chars = text.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            if c == ' ' {
                let inside = at > 0 && at + 1 < text.len();
                let single = chars.peek().is_none_or(|&(_, next)| next != ' ');
                if fold && !spaces && self.column > self.best_width && inside && single {
                    self.write_indent();
                } else {
                    self.put(c);
                }
                spaces = true;
            } else {
                self.fold_char(c, &mut spaces, &mut breaks);
                if c == '\'' {
                    self.put(c);
                }
            }
        }
        self.indicator("'", false, false, false);
        self.whitespace = false;
        self.indention = false;
    }

    /// A character of plain or single-quoted text that is not a space.
    fn fold_char(&mut self, c: char, spaces: &mut bool, breaks: &mut bool) {
        if is_break(c) {
            if !*breaks && c == '\n' {
                self.put_break();
            }
            self.write_break(c);
            *breaks = true;
            return;
        }
        if *breaks {
            self.write_indent();
        }
        self.put(c);
        self.indention = false;
        *spaces = false;
        *breaks = false;
    }

    fn double_quoted(&mut self, text: &str, fold: bool) {
        self.indicator("\"", true, false, false);
        // libyaml asks whether the text, not the character, is a byte order mark.
        let escape_all = text.starts_with('\u{feff}');
        let mut spaces = false;
        let mut chars = text.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            if escape_all || !is_printable(c) || is_break(c) || matches!(c, '"' | '\\') {
                self.escape(c);
                spaces = false;
            } else if c == ' ' {
                let inside = at > 0 && at + 1 < text.len();
                if fold && !spaces && self.column > self.best_width && inside {
                    self.write_indent();
                    if chars.peek().is_some_and(|&(_, next)| next == ' ') {
                        self.put('\\');
                    }
                } else {
                    self.put(c);
                }
                spaces = true;
            } else {
                self.put(c);
                spaces = false;
            }
        }
        self.indicator("\"", false, false, false);
        self.whitespace = false;
        self.indention = false;
    }

    fn escape(&mut self, c: char) {
        let before = self.out.len();
        let code_point = u32::from(c);
        let _ = match c {
            '\0' => self.out.write_str("\\0"),
            '\x07' => self.out.write_str("\\a"),
            '\x08' => self.out.write_str("\\b"),
            '\t' => self.out.write_str("\\t"),
            '\n' => self.out.write_str("\\n"),
            '\x0b' => self.out.write_str("\\v"),
            '\x0c' => self.out.write_str("\\f"),
            '\r' => self.out.write_str("\\r"),
            '\x1b' => self.out.write_str("\\e"),
            '"' => self.out.write_str("\\\""),
            '\\' => self.out.write_str("\\\\"),
            '\u{85}' => self.out.write_str("\\N"),
            '\u{a0}' => self.out.write_str("\\_"),
            '\u{2028}' => self.out.write_str("\\L"),
            '\u{2029}' => self.out.write_str("\\P"),
            '\0'..='\u{ff}' => write!(self.out, "\\x{code_point:02X}"),
            '\u{100}'..='\u{ffff}' => write!(self.out, "\\u{code_point:04X}"),
            _ => write!(self.out, "\\U{code_point:08X}"),
        };
        self.column += self.out.len() - before; // escapes are ASCII
    }

    fn block_hints(&mut self, text: &str) {
        if text.starts_with(|c| c == ' ' || is_break(c)) {
            self.indicator("2", false, false, false);
        }
        let mut last = text.chars().rev();
        match (last.next().map(is_break), last.next().map(is_break)) {
            (Some(true), None | Some(true)) => self.indicator("+", false, false, false),
            (Some(true), Some(false)) => {}
            _ => self.indicator("-", false, false, false),
        }
    }

    fn folded(&mut self, text: &str) {
        self.indicator(">", true, false, false);
        self.block_hints(text);
        self.put_break();
        self.indention = true;
        self.whitespace = true;
        let (mut breaks, mut leading_spaces) = (true, true);
        // libyaml asks how the text begins where it means to ask how the next line does.
        let begins_blank = text
            .trim_start_matches(is_break)
            .starts_with([' ', '\t', '\0'])
            || text.trim_start_matches(is_break).is_empty();
        for c in text.chars() {
            if is_break(c) {
                if !breaks && !leading_spaces && c == '\n' && !begins_blank {
                    self.put_break();
                }
                self.write_break(c);
                breaks = true;
            } else {
                if breaks {
                    self.write_indent();
                    leading_spaces = matches!(c, ' ' | '\t');
                }
                self.put(c);
                self.indention = false;
                breaks = false;
            }
        }
    }

    fn literal(&mut self, text: &str) {
        self.indicator("|", true, false, false);
        self.block_hints(text);
        self.put_break();
        self.indention = true;
        self.whitespace = true;
        let mut breaks = true;
        for c in text.chars() {
            if is_break(c) {
                self.write_break(c);
                breaks = true;
            } else {
                if breaks {
                    self.write_indent();
                }
                self.put(c);
                self.indention = false;
                breaks = false;
            }
        }
    }
}

/// A scalar with what is asked of its writing.
pub(super) struct Styled<'a> {
    pub(super) text: &'a str,
    pub(super) style: ScalarStyle,
    /// Empty for none.
    pub(super) tag: &'a str,
    pub(super) simple_key: bool,
    pub(super) in_flow: bool,
}

impl Styled<'_> {
    /// The style that is asked for, or the next one that can hold the text.
    pub(super) fn held(&self, dialect: Dialect) -> ScalarStyle {
        let analysis = Analysis::of(self.text, dialect);
        let inline = self.in_flow || self.simple_key;
        let mut style = self.style;
        if self.simple_key && analysis.multiline {
            style = ScalarStyle::DoubleQuoted;
        }
        let flow_indicator = |c| matches!(c, ',' | '?' | '[' | ']' | '{' | '}' | ':');
        if style == ScalarStyle::Plain
            && (!analysis.plain_allowed
                || self.in_flow && self.text.contains(flow_indicator)
                || self.text.is_empty() && inline
                || analysis.multiline && inline)
        {
            style = ScalarStyle::SingleQuoted;
        }
        let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
        if style == ScalarStyle::SingleQuoted && !analysis.single_quoted_allowed
            || is_block && (!analysis.block_allowed || inline)
        {
            style = ScalarStyle::DoubleQuoted;
        }
        style
    }
}

/// Which styles can hold a text unchanged.
struct Analysis {
    /// Printable ASCII without spaces, quotes and backslashes, plain if it need not be quoted for what it says.
    is_word: bool,
    multiline: bool,
    plain_allowed: bool,
    single_quoted_allowed: bool,
    block_allowed: bool,
}

impl Analysis {
    fn of(text: &str, dialect: Dialect) -> Self {
        if is_word(text) {
            return Self {
                is_word: true,
                multiline: false,
                plain_allowed: true,
                single_quoted_allowed: true,
                block_allowed: true,
            };
        }
        let mut indicators = text.starts_with("---") || text.starts_with("...");
        let (mut line_breaks, mut special, mut tabs) = (false, false, false);
        let (mut break_space, mut space_break) = (false, false);
        let (mut previous_space, mut previous_break) = (false, false);
        let mut preceded_by_whitespace = true;
        let mut chars = text.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            let followed_by_whitespace = chars.peek().is_none_or(|&(_, c)| matches!(c, ' ' | '\t'));
            indicators |= match c {
                '#' => at == 0 || preceded_by_whitespace,
                ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%'
                | '@' | '`' => at == 0,
                '?' | '-' => at == 0 && followed_by_whitespace,
                ':' => followed_by_whitespace,
                _ => false,
            };
            if c == '\t' && dialect != Dialect::V2 {
                tabs = true;
            } else {
                special |= !is_printable(c);
            }
            break_space |= c == ' ' && previous_break;
            space_break |= is_break(c) && previous_space;
            line_breaks |= is_break(c);
            previous_space = c == ' ';
            previous_break = is_break(c);
            preceded_by_whitespace = matches!(c, ' ' | '\t' | '\0') || is_break(c);
        }
        let bordered = |c: char| c == ' ' || is_break(c);
        let borders = text.starts_with(bordered) || text.ends_with(bordered);
        let quotable = !(break_space || space_break || special || tabs);
        Self {
            is_word: false,
            multiline: line_breaks,
            plain_allowed: quotable && !(borders || line_breaks || indicators),
            single_quoted_allowed: quotable,
            block_allowed: !(text.is_empty() || text.ends_with(' ') || space_break || special),
        }
    }
}

/// Whether what the analysis finds is clear at once: most keys and many values.
fn is_word(text: &str) -> bool {
    let (&[first, ..], &[.., last]) = (text.as_bytes(), text.as_bytes()) else {
        return false;
    };
    (first.is_ascii_alphanumeric() || matches!(first, b'/' | b'_'))
        && last != b':'
        && text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'\'' | b'"' | b'\\'))
}

fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// What may stand unescaped; nothing beyond the Basic Multilingual Plane.
fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
        && c != '\u{feff}'
}
