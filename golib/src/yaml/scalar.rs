//! Scanning block, quoted and plain scalars.

use super::error::Problem;
use super::scanner::{Piece, Scanner, text};
use super::token::{Kind, Mark, ScalarStyle};

#[derive(Clone, Copy, PartialEq)]
enum Chomping {
    Strip,
    Clip,
    Keep,
}

impl<'a> Scanner<'a> {
    pub(super) fn scan_block_scalar(&mut self, literal: bool) -> Result<Kind<'a>, Problem> {
        let start = self.mark;
        self.skip();
        let mut chomping = Chomping::Clip;
        let mut increment = 0;
        if let Some(found) = self.chomping() {
            chomping = found;
            increment = self.indentation_indicator(start)?;
        } else {
            increment += self.indentation_indicator(start)?;
            if increment > 0 {
                chomping = self.chomping().unwrap_or(chomping);
            }
        }
        self.end_line(start)?;

        // Zero means: to be found from the first line that is not empty.
        let mut indent = if increment > 0 {
            self.indent.max(0).unsigned_abs() + increment
        } else {
            0
        };
        let mut out = Vec::new();
        let mut leading_break = Vec::new();
        let mut trailing_breaks = Vec::new();
        let mut leading_blank = false;
        self.scan_block_breaks(&mut indent, &mut trailing_breaks, start)?;
        while self.mark.column == indent && !self.is_end(0) {
            let trailing_blank = self.is_blank(0);
            if !literal
                && !leading_blank
                && !trailing_blank
                && leading_break.first() == Some(&b'\n')
            {
                if trailing_breaks.is_empty() {
                    out.push(b' ');
                }
                leading_break.clear();
            } else {
                out.append(&mut leading_break);
            }
            out.append(&mut trailing_breaks);
            leading_blank = self.is_blank(0);
            let line = self.at;
            self.skip_run(|_| false);
            out.extend_from_slice(&self.text[line..self.at]);
            self.byte(0); // notes the end of the text
            self.read_line(&mut leading_break);
            self.scan_block_breaks(&mut indent, &mut trailing_breaks, start)?;
        }
        if chomping != Chomping::Strip {
            out.append(&mut leading_break);
        }
        if chomping == Chomping::Keep {
            out.append(&mut trailing_breaks);
        }
        Ok(Kind::Scalar {
            value: text(out).into(),
            style: if literal {
                ScalarStyle::Literal
            } else {
                ScalarStyle::Folded
            },
        })
    }

    fn chomping(&mut self) -> Option<Chomping> {
        let chomping = match self.byte(0) {
            b'+' => Chomping::Keep,
            b'-' => Chomping::Strip,
            _ => return None,
        };
        self.skip();
        Some(chomping)
    }

    fn indentation_indicator(&mut self, start: Mark) -> Result<usize, Problem> {
        match self.byte(0) {
            b'0' => Err(self.problem("found an indentation indicator equal to 0", start)),
            digit @ b'1'..=b'9' => {
                self.skip();
                Ok(usize::from(digit - b'0'))
            }
            _ => Ok(0),
        }
    }

    /// Takes indentation and empty lines; finds the indentation when it is not known yet.
    fn scan_block_breaks(
        &mut self,
        indent: &mut usize,
        breaks: &mut Vec<u8>,
        start: Mark,
    ) -> Result<(), Problem> {
        let mut max_indent = 0;
        loop {
            while (*indent == 0 || self.mark.column < *indent) && self.byte(0) == b' ' {
                self.skip();
            }
            max_indent = max_indent.max(self.mark.column);
            if (*indent == 0 || self.mark.column < *indent) && self.byte(0) == b'\t' {
                let text = "found a tab character where an indentation space is expected";
                return Err(self.problem(text, start));
            }
            if !self.is_break(0) {
                break;
            }
            self.read_line(breaks);
        }
        if *indent == 0 {
            let least = usize::try_from(self.indent + 1).unwrap_or(0).max(1);
            *indent = max_indent.max(least);
        }
        Ok(())
    }

    pub(super) fn scan_quoted_scalar(&mut self, single: bool) -> Result<Kind<'a>, Problem> {
        let start = self.mark;
        let quote = if single { b'\'' } else { b'"' };
        self.skip();
        let mut out = Piece::new(self.text, self.at);
        loop {
            if self.mark.column == 0 && self.document_indicator().is_some() {
                return Err(self.problem("found unexpected document indicator", start));
            }
            if self.is_end(0) {
                return Err(self.problem("found unexpected end of stream", start));
            }
            let mut leading_blanks = false;
            while !self.is_blank_or_end(0) {
                let byte = self.byte(0);
                if single && byte == quote && self.byte(1) == quote {
                    out.own().push(quote);
                    self.skip();
                    self.skip();
                } else if byte == quote {
                    break;
                } else if !single && byte == b'\\' && self.is_break(1) {
                    out.own();
                    self.skip();
                    self.skip_line();
                    leading_blanks = true;
                    break;
                } else if !single && byte == b'\\' {
                    self.scan_escape(out.own(), start)?;
                } else {
                    let from = self.at;
                    self.skip_run(|byte| {
                        byte == quote || byte == b' ' || byte == b'\t' || byte == b'\\' && !single
                    });
                    out.extend_to(self.text, from, self.at);
                }
            }
            if self.byte(0) == quote {
                break;
            }
            Fold::scan(self, leading_blanks, None)?.append_to(self.text, &mut out);
        }
        self.skip();
        Ok(Kind::Scalar {
            value: out.into_text(),
            style: if quote == b'\'' {
                ScalarStyle::SingleQuoted
            } else {
                ScalarStyle::DoubleQuoted
            },
        })
    }

    fn scan_escape(&mut self, out: &mut Vec<u8>, start: Mark) -> Result<(), Problem> {
        let (c, length) = match self.byte(1) {
            b'0' => ('\0', 0),
            b'a' => ('\x07', 0),
            b'b' => ('\x08', 0),
            b't' | b'\t' => ('\t', 0),
            b'n' => ('\n', 0),
            b'v' => ('\x0b', 0),
            b'f' => ('\x0c', 0),
            b'r' => ('\r', 0),
            b'e' => ('\x1b', 0),
            byte @ (b' ' | b'"' | b'\'' | b'\\') => (char::from(byte), 0),
            b'N' => ('\u{85}', 0),
            b'_' => ('\u{a0}', 0),
            b'L' => ('\u{2028}', 0),
            b'P' => ('\u{2029}', 0),
            b'x' => ('\0', 2),
            b'u' => ('\0', 4),
            b'U' => ('\0', 8),
            _ => return Err(self.problem("found unknown escape character", start)),
        };
        self.skip();
        self.skip();
        let mut c = c;
        if length > 0 {
            let mut value = 0_u32;
            for offset in 0..length {
                let Some(digit) = char::from(self.byte(offset)).to_digit(16) else {
                    return Err(self.problem("did not find expected hexdecimal number", start));
                };
                value = value << 4 | digit;
            }
            let text = "found invalid Unicode character escape code";
            c = char::from_u32(value).ok_or_else(|| self.problem(text, start))?;
            for _ in 0..length {
                self.skip();
            }
        }
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    pub(super) fn scan_plain_scalar(&mut self) -> Result<Kind<'a>, Problem> {
        let start = self.mark;
        let indent = usize::try_from(self.indent + 1).unwrap_or(0);
        let in_flow = self.flow_level > 0;
        let mut out = Piece::new(self.text, self.at);
        let mut fold = Fold::default();
        loop {
            if self.mark.column == 0 && self.document_indicator().is_some() || self.byte(0) == b'#'
            {
                break;
            }
            while !self.is_blank_or_end(0) {
                let byte = self.byte(0);
                if byte == b':' && self.is_blank_or_end(1)
                    || in_flow && matches!(byte, b',' | b'?' | b'[' | b']' | b'{' | b'}')
                {
                    break;
                }
                std::mem::take(&mut fold).append_to(self.text, &mut out);
                let from = self.at;
                self.skip();
                self.skip_run(|byte| {
                    matches!(byte, b' ' | b'\t' | b':')
                        || in_flow && matches!(byte, b',' | b'?' | b'[' | b']' | b'{' | b'}')
                });
                out.extend_to(self.text, from, self.at);
            }
            if !self.is_blank(0) && !self.is_break(0) {
                break;
            }
            fold = Fold::scan(self, fold.broken, Some((indent, start)))?;
            if self.flow_level == 0 && self.mark.column < indent {
                break;
            }
        }
        if fold.broken {
            self.simple_key_allowed = true;
        }
        Ok(Kind::Scalar {
            value: out.into_text(),
            style: ScalarStyle::Plain,
        })
    }
}

/// White space inside a quoted or plain scalar: one line break becomes a space, more become one fewer.
#[derive(Default)]
struct Fold {
    /// Where in the text blanks are that are kept if no line ends behind them.
    blanks: std::ops::Range<usize>,
    /// A line ended, or was escaped away at its end.
    broken: bool,
    leading_break: Vec<u8>,
    trailing_breaks: Vec<u8>,
}

impl Fold {
    /// Takes blanks and breaks. In a plain scalar `plain` gives the indentation that tabs must not make up, and its start.
    fn scan(
        scanner: &mut Scanner<'_>,
        broken: bool,
        plain: Option<(usize, Mark)>,
    ) -> Result<Self, Problem> {
        let mut fold = Self {
            blanks: scanner.at..scanner.at,
            broken,
            ..Self::default()
        };
        loop {
            if scanner.is_blank(0) {
                if let Some((indent, start)) = plain
                    && fold.broken
                    && scanner.mark.column < indent
                    && scanner.byte(0) == b'\t'
                {
                    let text = "found a tab character that violates indentation";
                    return Err(scanner.problem(text, start));
                }
                scanner.skip_ascii();
                if !fold.broken {
                    fold.blanks.end = scanner.at;
                }
            } else if scanner.is_break(0) {
                if fold.broken {
                    scanner.read_line(&mut fold.trailing_breaks);
                } else {
                    fold.broken = true;
                    scanner.read_line(&mut fold.leading_break);
                }
            } else {
                return Ok(fold);
            }
        }
    }

    fn append_to(mut self, text: &[u8], out: &mut Piece<'_>) {
        if !self.broken {
            if !self.blanks.is_empty() {
                out.extend_to(text, self.blanks.start, self.blanks.end);
            }
            return;
        }
        let out = out.own();
        match self.leading_break.first() {
            Some(b'\n') if self.trailing_breaks.is_empty() => out.push(b' '),
            Some(b'\n') => {}
            _ => out.append(&mut self.leading_break),
        }
        out.append(&mut self.trailing_breaks);
    }
}
