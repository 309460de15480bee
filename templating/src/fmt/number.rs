//! Numbers with flags, width and precision. Mirrors Go's `fmt/format.go`.

use golib::strconv::{format_float, is_print, quote_rune, quote_rune_to_ascii};

use super::{LOWER, Printer, UPPER};
use crate::value::Value;

const MAX_RUNE: u64 = 0x10_ffff;

impl Printer {
    pub(super) fn integer_verb(&mut self, bits: u64, signed: bool, value: &Value, verb: char) {
        match verb {
            'v' if self.flags.sharp_v && !signed => self.hex_integer(bits, true),
            'v' | 'd' => self.integer(bits, 10, signed, verb, LOWER),
            'b' => self.integer(bits, 2, signed, verb, LOWER),
            'o' | 'O' => self.integer(bits, 8, signed, verb, LOWER),
            'x' => self.integer(bits, 16, signed, verb, LOWER),
            'X' => self.integer(bits, 16, signed, verb, UPPER),
            'c' => {
                let c = char_of(bits);
                self.pad(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
            'q' => {
                let c = u32::from(char_of(bits));
                let quoted = if self.flags.plus {
                    quote_rune_to_ascii(c)
                } else {
                    quote_rune(c)
                };
                self.pad(quoted.as_bytes());
            }
            'U' => self.unicode(bits),
            _ => self.bad_verb(value, verb),
        }
    }

    pub(super) fn hex_integer(&mut self, bits: u64, sharp: bool) {
        let old = std::mem::replace(&mut self.flags.sharp, sharp);
        self.integer(bits, 16, false, 'v', LOWER);
        self.flags.sharp = old;
    }

    fn integer(&mut self, bits: u64, base: u64, signed: bool, verb: char, digits: &[u8; 17]) {
        let negative = signed && (bits as i64) < 0;
        let mut rest = if negative { bits.wrapping_neg() } else { bits };
        let flags = self.flags;
        let mut precision = 0;
        if let Some(given) = flags.precision {
            precision = given;
            if given == 0 && rest == 0 {
                // Precision 0 and value 0 print nothing but padding.
                self.without_zero(|printer| printer.padding(flags.width.unwrap_or(0)));
                return;
            }
        } else if flags.zero
            && !flags.minus
            && let Some(width) = flags.width
        {
            precision = width;
            if negative || flags.plus || flags.space {
                precision = precision.saturating_sub(1); // room for the sign
            }
        }
        // Built from the end.
        let mut text = Vec::with_capacity(24.max(precision + 4));
        while rest >= base {
            text.push(digits[(rest % base) as usize]);
            rest /= base;
        }
        text.push(digits[rest as usize]);
        if precision > text.len() {
            text.resize(precision, b'0');
        }
        if flags.sharp {
            match base {
                2 => text.extend(b"b0"),
                8 if text.last() != Some(&b'0') => text.push(b'0'),
                16 => text.extend([digits[16], b'0']),
                _ => {}
            }
        }
        if verb == 'O' {
            text.extend(b"o0");
        }
        if negative {
            text.push(b'-');
        } else if flags.plus {
            text.push(b'+');
        } else if flags.space {
            text.push(b' ');
        }
        text.reverse();
        self.without_zero(|printer| printer.pad(&text));
    }

    fn without_zero(&mut self, print: impl FnOnce(&mut Self)) {
        let zero = std::mem::take(&mut self.flags.zero);
        print(self);
        self.flags.zero = zero;
    }

    fn unicode(&mut self, bits: u64) {
        let precision = self.flags.precision.unwrap_or(0).max(4);
        let digits = format!("{bits:X}");
        // A width of `format!` ends at 65,535.
        let zeros = "0".repeat(precision.saturating_sub(digits.len()));
        let mut text = format!("U+{zeros}{digits}");
        if self.flags.sharp
            && bits <= MAX_RUNE
            && let Some(c) = char::from_u32(bits as u32).filter(|&c| is_print(c))
        {
            text += &format!(" '{c}'");
        }
        self.without_zero(|printer| printer.pad(text.as_bytes()));
    }

    pub(super) fn float_verb(&mut self, number: f64, value: &Value, verb: char) {
        match verb {
            'v' => self.float(number, 'g', -1),
            'b' | 'g' | 'G' | 'x' | 'X' => self.float(number, verb, -1),
            'f' | 'e' | 'E' => self.float(number, verb, 6),
            'F' => self.float(number, 'f', 6),
            _ => self.bad_verb(value, verb),
        }
    }

    pub(super) fn complex_verb(&mut self, re: f64, im: f64, value: &Value, verb: char) {
        if !matches!(
            verb,
            'v' | 'b' | 'g' | 'G' | 'x' | 'X' | 'f' | 'F' | 'e' | 'E'
        ) {
            return self.bad_verb(value, verb);
        }
        self.push("(");
        self.float_verb(re, value, verb);
        let plus = std::mem::replace(&mut self.flags.plus, true);
        self.float_verb(im, value, verb);
        self.flags.plus = plus;
        self.push("i)");
    }

    fn float(&mut self, number: f64, verb: char, default_precision: i32) {
        let flags = self.flags;
        let precision = match flags.precision {
            Some(precision) => i32::try_from(precision).unwrap_or(i32::MAX),
            None => default_precision,
        };
        let verb_byte = u8::try_from(verb).unwrap_or(b'g');
        let mut text = format_float(number, verb_byte, precision, 64).into_bytes();
        // From here on there always is a sign.
        if !matches!(text.first(), Some(b'-' | b'+')) {
            text.insert(0, b'+');
        }
        if flags.space && text[0] == b'+' && !flags.plus {
            text[0] = b' ';
        }
        if matches!(text.get(1), Some(b'I' | b'N')) {
            // Zero padding would make nonsense of Inf and NaN. Inf keeps its sign.
            let nan = text[1] == b'N' && !flags.space && !flags.plus;
            let shown = if nan { &text[1..] } else { &text[..] };
            return self.without_zero(|printer| printer.pad(shown));
        }
        if flags.sharp && verb != 'b' {
            text = sharp_float(text, verb, precision);
        }
        if flags.plus || text[0] != b'+' {
            if flags.zero
                && !flags.minus
                && let Some(width) = flags.width
                && width > text.len()
            {
                self.out.push(text[0]);
                self.padding(width - text.len());
                return self.push(&text[1..]);
            }
            return self.pad(&text);
        }
        self.pad(&text[1..]);
    }
}

/// `%#g`: a decimal point always, trailing zeros kept.
fn sharp_float(mut text: Vec<u8>, verb: char, precision: i32) -> Vec<u8> {
    let mut digits = match verb {
        'v' | 'g' | 'G' | 'x' if precision == -1 => 6,
        'v' | 'g' | 'G' | 'x' => precision,
        _ => 0,
    };
    let hex = matches!(verb, 'x' | 'X');
    let exponent = text.iter().skip(1).position(|c| match c {
        b'p' | b'P' => true,
        b'e' | b'E' => !hex,
        _ => false,
    });
    let tail = exponent.map_or(Vec::new(), |at| text.split_off(at + 1));
    let mut has_point = false;
    let mut seen_nonzero = false;
    for c in &text[1..] {
        if *c == b'.' {
            has_point = true;
            continue;
        }
        seen_nonzero |= *c != b'0';
        if seen_nonzero {
            digits -= 1;
        }
    }
    if !has_point {
        // A leading zero counts as a digit unless the number is just that.
        if text.len() == 2 && text[1] == b'0' {
            digits -= 1;
        }
        text.push(b'.');
    }
    let zeros = usize::try_from(digits).unwrap_or(0);
    text.resize(text.len() + zeros, b'0');
    text.extend(tail);
    text
}

fn char_of(bits: u64) -> char {
    u32::try_from(bits)
        .ok()
        .and_then(char::from_u32)
        .unwrap_or(char::REPLACEMENT_CHARACTER)
}
