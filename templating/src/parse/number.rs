//! Numeric literals. One literal may be an integer, unsigned, a float and complex at once; which it becomes is decided
//! by the parameter it is passed to.

use golib::strconv::{parse_float, parse_int, parse_uint, quote, unquote_char};

use crate::value::Str;

/// A literal with every exact reading it has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Number {
    pub(crate) text: Str,
    pub(crate) int: Option<i64>,
    pub(crate) uint: Option<u64>,
    pub(crate) float: Option<f64>,
    pub(crate) complex: Option<(f64, f64)>,
}

impl Number {
    /// `'c'`: the code point of the character.
    pub(super) fn character(text: &str) -> Result<Self, String> {
        let bytes = text.as_bytes();
        let unquoted = bytes
            .split_first()
            .and_then(|(&mark, inside)| unquote_char(inside, mark))
            .ok_or("invalid syntax")?;
        if unquoted.tail != b"'" {
            return Err(format!("malformed character constant: {text}"));
        }
        let code = unquoted.value;
        Ok(Self {
            text: text.into(),
            int: Some(code.into()),
            uint: Some(code.into()),
            float: Some(code.into()),
            complex: None,
        })
    }

    /// `1+2i`
    pub(super) fn complex(text: &str) -> Result<Self, String> {
        const BAD: &str = "syntax error scanning complex number";
        let part = |part: &str| parse_float(part, 64).map_err(|error| error.to_string());
        let (re, rest) = text.split_at(float_token(text));
        let Some(unsigned) = rest.strip_prefix(['+', '-']) else {
            return Err(BAD.to_owned());
        };
        let (im, rest) = rest.split_at(1 + float_token(unsigned));
        if !rest.starts_with('i') {
            return Err(BAD.to_owned());
        }
        let (re, im) = (part(re)?, part(im)?);
        Ok(Self::from_complex(text, re, im))
    }

    fn from_complex(text: &str, re: f64, im: f64) -> Self {
        let mut number = Self {
            text: text.into(),
            complex: Some((re, im)),
            ..Self::default()
        };
        if im == 0.0 {
            number.float = Some(re);
            number.int = exact_int(re);
            number.uint = exact_uint(re);
        }
        number
    }

    /// Parses a number that is neither a character constant nor complex.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if let Some(imaginary) = text.strip_suffix('i')
            && let Ok(im) = parse_float(imaginary, 64)
        {
            return Ok(Self::from_complex(text, 0.0, im));
        }
        let mut number = Self {
            text: text.into(),
            ..Self::default()
        };
        number.uint = parse_uint(text, 0, 64).ok();
        number.int = parse_int(text, 0, 64).ok();
        if number.int == Some(0) {
            number.uint = Some(0); // in case of -0
        }
        if let Some(int) = number.int {
            number.float = Some(int as f64);
        } else if let Some(uint) = number.uint {
            number.float = Some(uint as f64);
        } else if let Ok(float) = parse_float(text, 64) {
            if !text.contains(['.', 'e', 'E', 'p', 'P']) {
                return Err(format!("integer overflow: {}", quote(text)));
            }
            number.float = Some(float);
            number.int = exact_int(float);
            number.uint = exact_uint(float);
        } else {
            return Err(format!("illegal number syntax: {}", quote(text)));
        }
        Ok(number)
    }

    /// Whether the literal is a float where the parameter leaves it open.
    pub(crate) fn reads_as_float(&self) -> bool {
        let bytes = self.text.as_bytes();
        let has = |any: &[u8]| bytes.iter().any(|byte| any.contains(byte));
        let hex_int =
            bytes.len() > 2 && bytes[0] == b'0' && matches!(bytes[1], b'x' | b'X') && !has(b"pP");
        !hex_int && bytes.first() != Some(&b'\'') && has(b".eEpP")
    }
}

/// The length of the number that a text begins with, as Go's scanner sees numbers: it takes the beginning of `NaN` and
/// `Inf` for part of one.
fn float_token(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut end = 0;
    let mut accept = |accepted: &[u8]| {
        let is_accepted = bytes.get(end).is_some_and(|c| accepted.contains(c));
        end += usize::from(is_accepted);
        is_accepted
    };
    const DECIMAL: &[u8] = b"0123456789_";
    if accept(b"nN") && accept(b"aA") && accept(b"nN") {
        return end;
    }
    accept(b"+-");
    if accept(b"iI") && accept(b"nN") && accept(b"fF") {
        return end;
    }
    let (digits, exponent): (&[u8], &[u8]) = match accept(b"0") && accept(b"xX") {
        true => (b"0123456789abcdefABCDEF_", b"pP"),
        false => (DECIMAL, b"eEpP"),
    };
    while accept(digits) {}
    if accept(b".") {
        while accept(digits) {}
    }
    if accept(exponent) {
        accept(b"+-");
        while accept(DECIMAL) {}
    }
    end
}

/// The integer equal to a float, if there is one.
fn exact_int(float: f64) -> Option<i64> {
    let int = float as i64;
    (int as f64 == float && float < 9_223_372_036_854_775_808.0).then_some(int)
}

fn exact_uint(float: f64) -> Option<u64> {
    let uint = float as u64;
    (uint as f64 == float && float < 18_446_744_073_709_551_616.0).then_some(uint)
}
