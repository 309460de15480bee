//! The format language of `printf`. Mirrors `doPrintf` of Go's `fmt/print.go`.

use super::{Flags, Printer};
use crate::value::Value;
use golib::utf8::decode_rune;

/// Widths and precisions beyond this are taken for mistakes.
const TOO_LARGE: i64 = 1_000_000;

impl Printer {
    pub(super) fn printf(&mut self, format: &[u8], values: &[Value]) {
        let mut args = Args {
            values,
            next: 0,
            reordered: false,
            good: true,
        };
        let mut i = 0;
        'format: while i < format.len() && self.alive() {
            args.good = true;
            let text = format[i..]
                .iter()
                .position(|&c| c == b'%')
                .unwrap_or(format.len() - i);
            self.push(&format[i..i + text]);
            i += text;
            if i >= format.len() {
                break;
            }
            i += 1; // the percent sign
            self.flags = Flags::default();
            while let Some(&c) = format.get(i) {
                match c {
                    b'#' => self.flags.sharp = true,
                    b'0' => self.flags.zero = true,
                    b'+' => self.flags.plus = true,
                    b'-' => self.flags.minus = true,
                    b' ' => self.flags.space = true,
                    b'a'..=b'z' if args.next < values.len() => {
                        // The common case: a simple verb without width or precision.
                        self.verb(char::from(c), &mut args);
                        i += 1;
                        continue 'format;
                    }
                    _ => break,
                }
                i += 1;
            }
            let mut after_index;
            (i, after_index) = args.index(format, i);
            if format.get(i) == Some(&b'*') {
                i += 1;
                match args.integer() {
                    None => self.push("%!(BADWIDTH)"),
                    Some(width) => {
                        self.flags.width = Some(width.unsigned_abs() as usize);
                        if width < 0 {
                            self.flags.minus = true;
                            self.flags.zero = false; // no padding with zeros to the right
                        }
                    }
                }
                after_index = false;
            } else {
                (self.flags.width, i) = number(format, i);
                if after_index && self.flags.width.is_some() {
                    args.good = false; // "%[3]2d"
                }
            }
            if i + 1 < format.len() && format[i] == b'.' {
                i += 1;
                if after_index {
                    args.good = false; // "%[3].2d"
                }
                (i, after_index) = args.index(format, i);
                if format.get(i) == Some(&b'*') {
                    i += 1;
                    match args.integer() {
                        Some(precision) if precision >= 0 => {
                            self.flags.precision = Some(precision as usize);
                        }
                        _ => self.push("%!(BADPREC)"),
                    }
                    after_index = false;
                } else {
                    (self.flags.precision, i) = number(format, i);
                    self.flags.precision.get_or_insert(0);
                }
            }
            if !after_index {
                (i, _) = args.index(format, i);
            }
            let Some((verb, width)) = decode_rune(format.get(i..).unwrap_or_default()) else {
                self.push("%!(NOVERB)");
                break;
            };
            i += width;
            if verb == '%' {
                self.push("%");
            } else if !args.good {
                self.complaint(verb, "(BADINDEX)");
            } else if args.next >= values.len() {
                self.complaint(verb, "(MISSING)");
            } else {
                self.verb(verb, &mut args);
            }
        }
        if !args.reordered && args.next < values.len() && self.alive() {
            self.flags = Flags::default();
            self.push("%!(EXTRA ");
            for (i, value) in values[args.next..].iter().enumerate() {
                if i > 0 {
                    self.push(", ");
                }
                self.typed(value);
            }
            self.push(")");
        }
    }

    fn verb(&mut self, verb: char, args: &mut Args<'_>) {
        if matches!(verb, 'v' | 'w') {
            self.flags.sharp_v = std::mem::take(&mut self.flags.sharp);
            self.flags.plus_v = std::mem::take(&mut self.flags.plus);
        }
        if let Some(value) = args.values.get(args.next) {
            self.argument(value, verb);
        }
        args.next += 1;
    }

    fn complaint(&mut self, verb: char, what: &str) {
        self.push("%!");
        self.push_char(verb);
        self.push(what);
    }
}

struct Args<'a> {
    values: &'a [Value],
    next: usize,
    /// Some verb chose its argument by index.
    reordered: bool,
    good: bool,
}

impl Args<'_> {
    /// An explicit index such as `[3]`: the place after it, and whether there was one.
    fn index(&mut self, format: &[u8], i: usize) -> (usize, bool) {
        if format.get(i) != Some(&b'[') {
            return (i, false);
        }
        self.reordered = true;
        let rest = &format[i..];
        // There must be a closing bracket, and a number between.
        let close = if rest.len() < 3 {
            None
        } else {
            rest.iter().position(|&c| c == b']')
        };
        let Some(close) = close.filter(|&close| close > 0) else {
            self.good = false;
            return (i + 1, false);
        };
        let inside = &rest[1..close];
        let (index, end) = number(inside, 0);
        match index {
            Some(index) if end == inside.len() => {
                if (1..=self.values.len()).contains(&index) {
                    self.next = index - 1;
                } else {
                    self.good = false;
                }
                (i + close + 1, true)
            }
            _ => {
                self.good = false;
                (i + close + 1, false)
            }
        }
    }

    /// The next argument as a width or precision.
    fn integer(&mut self) -> Option<i64> {
        let value = self.values.get(self.next)?;
        self.next += 1;
        let number = match value.as_signed() {
            Some(number) => number,
            None => i64::try_from(value.as_unsigned()?).ok()?,
        };
        (-TOO_LARGE..=TOO_LARGE).contains(&number).then_some(number)
    }
}

/// A decimal number and the place after it. One that is too large ends the format.
fn number(format: &[u8], mut i: usize) -> (Option<usize>, usize) {
    let mut number = None;
    while let Some(digit) = format.get(i).filter(|c| c.is_ascii_digit()) {
        let value = number.unwrap_or(0);
        if value > TOO_LARGE as usize {
            return (None, format.len());
        }
        number = Some(value * 10 + usize::from(digit - b'0'));
        i += 1;
    }
    (number, i)
}
