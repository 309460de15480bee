//! Floats: `FormatFloat` and `ParseFloat`.

use std::fmt::Write as _;

use super::{NumError, NumErrorKind, split_sign, underscores_ok};

/// An exact f64 has no more than 1,074 digits behind the point and 309 before it: more precision only appends zeros.
const MAX_DIGITS: usize = 1100;

/// Decimal digits without leading or trailing zeros, and where the point stands: `0.d1d2… × 10^point`.
struct Decimal {
    digits: Vec<u8>,
    point: i32,
}

impl Decimal {
    /// From the text of Rust's `{:e}`, which rounds as Go does.
    fn from_exponent_text(text: &str) -> Self {
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let mut digits: Vec<u8> = mantissa.bytes().filter(u8::is_ascii_digit).collect();
        while digits.last() == Some(&b'0') {
            digits.pop();
        }
        let exponent = exponent.parse::<i32>().unwrap_or(0);
        let point = if digits.is_empty() { 0 } else { exponent + 1 };
        Self { digits, point }
    }

    /// The shortest digits that read back as the same float of this size, and of those the nearest: of two equally near the
    /// even ones, where Rust takes the upper.
    fn shortest(value: f64, bits: u32) -> Self {
        let value = value.abs();
        let single = bits == 32;
        #[expect(clippy::cast_possible_truncation, reason = "a 32-bit float is what was asked for")]
        let text = if single {
            format!("{:e}", value as f32)
        } else {
            format!("{value:e}")
        };
        let shortest = Self::from_exponent_text(&text);
        // Two candidates can be equally near only where decimals lie closer together than floats.
        if shortest.digits.len() < if single { 6 } else { 15 } {
            return shortest;
        }
        let precision = shortest.digits.len() - 1;
        let even = format!("{value:.precision$e}");
        #[expect(clippy::cast_possible_truncation, reason = "a 32-bit float is what was asked for")]
        let reads_back = if single {
            even.parse() == Ok(value as f32)
        } else {
            even.parse() == Ok(value)
        };
        if reads_back {
            Self::from_exponent_text(&even)
        } else {
            shortest
        }
    }

    /// Rounded, half to even, to at most `count` digits.
    fn rounded(value: f64, count: usize) -> Self {
        let precision = count.clamp(1, MAX_DIGITS) - 1;
        Self::from_exponent_text(&format!("{:.precision$e}", value.abs()))
    }

    fn digit(&self, index: i32) -> char {
        let digit = usize::try_from(index)
            .ok()
            .and_then(|index| self.digits.get(index));
        char::from(digit.copied().unwrap_or(b'0'))
    }

    fn len(&self) -> i32 {
        i32::try_from(self.digits.len()).unwrap_or(i32::MAX)
    }
}

/// Go's `FormatFloat(value, format, precision, bits)`. `format` is one of `e E f g G b x X`; a negative precision asks for
/// the shortest text that reads back; `bits` is 32 or 64. Any other format gives `%` and that byte.
///
/// ```
/// use golib::strconv::format_float;
///
/// assert_eq!(format_float(1e6, b'g', -1, 64), "1e+06");
/// assert_eq!(format_float(0.1, b'f', 3, 64), "0.100");
/// ```
pub fn format_float(value: f64, format: u8, precision: i32, bits: u32) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "a 32-bit float is what was asked for")]
    let value = if bits == 32 {
        f64::from(value as f32)
    } else {
        value
    };
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.into();
    }
    let mut out = String::new();
    if value.is_sign_negative() {
        out.push('-');
    }
    let shortest = precision < 0;
    match format {
        b'b' => binary(&mut out, value, bits),
        b'x' | b'X' => hexadecimal(&mut out, value, format, precision, bits),
        b'e' | b'E' => {
            let decimal = if shortest {
                Decimal::shortest(value, bits)
            } else {
                Decimal::rounded(
                    value,
                    usize::try_from(precision).unwrap_or(0).saturating_add(1),
                )
            };
            let precision = if shortest {
                (decimal.len() - 1).max(0)
            } else {
                precision
            };
            exponent(&mut out, &decimal, precision, format);
        }
        b'f' if shortest => {
            let decimal = Decimal::shortest(value, bits);
            plain(&mut out, &decimal, (decimal.len() - decimal.point).max(0));
        }
        b'f' => {
            let digits = usize::try_from(precision).unwrap_or(0);
            let exact = digits.min(MAX_DIGITS);
            let _ = write!(out, "{:.exact$}", value.abs()); // writing to a String cannot fail
            out.extend(std::iter::repeat_n('0', digits - exact));
        }
        b'g' | b'G' => {
            let precision = if precision == 0 { 1 } else { precision };
            let decimal = if shortest {
                Decimal::shortest(value, bits)
            } else {
                Decimal::rounded(value, usize::try_from(precision).unwrap_or(1))
            };
            let mut limit = if shortest { 6 } else { precision };
            if !shortest && limit > decimal.len() && decimal.len() >= decimal.point {
                limit = decimal.len();
            }
            let exp = decimal.point - 1;
            if exp < -4 || exp >= limit {
                let digits = if shortest {
                    decimal.len()
                } else {
                    precision.min(decimal.len())
                };
                exponent(&mut out, &decimal, digits - 1, format - 2); // 'g' - 2 is 'e'
            } else {
                plain(&mut out, &decimal, (decimal.len() - decimal.point).max(0));
            }
        }
        other => return format!("%{}", char::from(other)),
    }
    out
}

/// `d.ddde±dd`, with at least two digits of exponent.
fn exponent(out: &mut String, decimal: &Decimal, precision: i32, letter: u8) {
    out.push(decimal.digit(0));
    if precision > 0 {
        out.push('.');
        let present = precision.min(decimal.len() - 1).max(0);
        out.extend((1..=present).map(|index| decimal.digit(index)));
        out.extend((present..precision).map(|_| '0'));
    }
    let exp = if decimal.digits.is_empty() {
        0
    } else {
        decimal.point - 1
    };
    let sign = if exp < 0 { '-' } else { '+' };
    let _ = write!(out, "{}{sign}{:02}", char::from(letter), exp.abs());
}

/// `ddd.ddd` with `precision` digits behind the point.
fn plain(out: &mut String, decimal: &Decimal, precision: i32) {
    if decimal.point > 0 {
        out.extend((0..decimal.point).map(|index| decimal.digit(index)));
    } else {
        out.push('0');
    }
    if precision > 0 {
        out.push('.');
        out.extend((0..precision).map(|index| decimal.digit(decimal.point + index)));
    }
}

/// Mantissa, binary exponent (before the mantissa's point is counted) and the mantissa's width.
fn parts(value: f64, bits: u32) -> (u64, i32, u32) {
    let (raw, width, bias) = if bits == 32 {
        #[expect(clippy::cast_possible_truncation, reason = "a 32-bit float is what was asked for")]
        let narrow = value as f32;
        (u64::from(narrow.abs().to_bits()), 23, 127)
    } else {
        (value.abs().to_bits(), 52, 1023)
    };
    let mantissa = raw & ((1 << width) - 1);
    let exp = i32::try_from(raw >> width).unwrap_or(0);
    if exp == 0 {
        (mantissa, 1 - bias, width)
    } else {
        (mantissa | 1 << width, exp - bias, width)
    }
}

fn binary(out: &mut String, value: f64, bits: u32) {
    let (mantissa, exp, width) = parts(value, bits);
    let _ = write!(out, "{mantissa}p{:+}", exp - width.cast_signed());
}

fn hexadecimal(out: &mut String, value: f64, format: u8, precision: i32, bits: u32) {
    let (mut mantissa, mut exp, width) = parts(value, bits);
    if mantissa == 0 {
        exp = 0;
    } else {
        let shift = mantissa.leading_zeros() - 3; // leading 1 to bit 60
        exp -= shift.cast_signed() - (60 - width.cast_signed());
        mantissa <<= shift;
    }
    if let Ok(digits @ 0..15) = u32::try_from(precision) {
        let shift = digits * 4;
        let extra = (mantissa << shift) & ((1 << 60) - 1);
        mantissa >>= 60 - shift;
        if extra | (mantissa & 1) > 1 << 59 {
            mantissa += 1;
        }
        mantissa <<= 60 - shift;
        if mantissa & (1 << 61) != 0 {
            mantissa >>= 1;
            exp += 1;
        }
    }
    let mut text = format!("0x{}", (mantissa >> 60) & 1);
    mantissa <<= 4;
    let nibble = |mantissa: u64| {
        let digit = u32::try_from(mantissa >> 60).unwrap_or(0);
        char::from_digit(digit, 16).unwrap_or('0')
    };
    if precision > 0 || precision < 0 && mantissa != 0 {
        text.push('.');
        let mut written = 0;
        while if precision < 0 {
            mantissa != 0
        } else {
            written < precision
        } {
            text.push(nibble(mantissa));
            mantissa <<= 4;
            written += 1;
        }
    }
    let sign = if exp < 0 { '-' } else { '+' };
    let _ = write!(text, "p{sign}{:02}", exp.abs());
    if format == b'X' {
        text.make_ascii_uppercase();
    }
    out.push_str(&text);
}

/// Go's `ParseFloat(text, bits)`: decimal and hexadecimal floats, `inf`, `infinity` and `nan` in any case, underscores only
/// behind a base prefix.
///
/// ```
/// use golib::strconv::{NumErrorKind, parse_float};
///
/// assert_eq!(parse_float("0x1p-2", 64)?, 0.25);
/// assert_eq!(parse_float("1e999", 64).unwrap_err().kind, NumErrorKind::Range);
/// # Ok::<(), golib::strconv::NumError>(())
/// ```
///
/// # Errors
/// Invalid syntax, or value out of range (Go then returns an infinity beside the error; the sign is the text's).
pub fn parse_float(text: impl AsRef<[u8]>, bits: u32) -> Result<f64, NumError> {
    let text = text.as_ref();
    let error = |kind| NumError::new("ParseFloat", text, kind);
    let syntax = || error(NumErrorKind::Syntax);
    if let Some(special) = special(text) {
        return Ok(special);
    }
    let (negative, body) = split_sign(text);
    let hex = matches!(body, [b'0', b'x' | b'X', _, ..]);
    let number = Literal::parse(if hex { &body[2..] } else { body }, hex).ok_or_else(syntax)?;
    if text.contains(&b'_') && !underscores_ok(text) {
        return Err(syntax());
    }
    let value = if hex {
        number.hex_value(bits)
    } else {
        number.decimal_value(bits)
    };
    if value.is_infinite() {
        return Err(error(NumErrorKind::Range));
    }
    Ok(if negative { -value } else { value })
}

fn special(text: &[u8]) -> Option<f64> {
    let (negative, body) = split_sign(text);
    if body.eq_ignore_ascii_case(b"inf") || body.eq_ignore_ascii_case(b"infinity") {
        return Some(match negative {
            true => f64::NEG_INFINITY,
            false => f64::INFINITY,
        });
    }
    text.eq_ignore_ascii_case(b"nan").then_some(f64::NAN)
}

/// The parts of a float literal, underscores removed.
struct Literal {
    /// Digits before and behind the point, as text.
    digits: String,
    /// How many of the digits are behind the point.
    fraction: i64,
    exponent: i64,
}

impl Literal {
    fn parse(text: &[u8], hex: bool) -> Option<Self> {
        let (mark, radix) = if hex { (b'p', 16) } else { (b'e', 10) };
        let mut digits = String::new();
        let mut fraction = None;
        let mut exponent = None;
        for (index, &byte) in text.iter().enumerate() {
            match byte {
                b'_' => {}
                b'.' if fraction.is_none() => fraction = Some(0),
                _ if char::from(byte).is_digit(radix) => {
                    digits.push(char::from(byte));
                    fraction = fraction.map(|count: i64| count + 1);
                }
                _ if byte.eq_ignore_ascii_case(&mark) => {
                    exponent = Some(Self::exponent(&text[index + 1..])?);
                    break;
                }
                _ => return None,
            }
        }
        if digits.is_empty() || hex && exponent.is_none() {
            return None;
        }
        Some(Self {
            digits,
            fraction: fraction.unwrap_or(0),
            exponent: exponent.unwrap_or(0),
        })
    }

    /// The exponent, saturated far beyond every float.
    fn exponent(text: &[u8]) -> Option<i64> {
        let (negative, body) = split_sign(text);
        if !body.first()?.is_ascii_digit() {
            return None;
        }
        let mut value = 0_i64;
        for &byte in body {
            match byte {
                b'_' => {}
                b'0'..=b'9' if value < 10_000 => value = value * 10 + i64::from(byte - b'0'),
                b'0'..=b'9' => {}
                _ => return None,
            }
        }
        Some(if negative { -value } else { value })
    }

    fn decimal_value(&self, bits: u32) -> f64 {
        let text = format!("{}e{}", self.digits, self.exponent - self.fraction);
        if bits == 32 {
            return text.parse::<f32>().map_or(f64::NAN, f64::from);
        }
        text.parse().unwrap_or(f64::NAN)
    }

    fn hex_value(&self, bits: u32) -> f64 {
        let mut mantissa = 0_u64;
        let mut exponent = self.exponent - self.fraction * 4;
        let mut sticky = false;
        for digit in self.digits.chars().filter_map(|c| c.to_digit(16)) {
            if mantissa >> 60 == 0 {
                mantissa = mantissa << 4 | u64::from(digit);
            } else {
                exponent += 4;
                sticky |= digit != 0;
            }
        }
        if mantissa == 0 {
            return 0.0;
        }
        let (width, lowest, highest) = if bits == 32 {
            (24, -149, 104)
        } else {
            (53, -1074, 971)
        };
        // Round once, half to even, to the mantissa's width or to the lowest exponent, whichever drops more bits.
        let used = 64 - i64::from(mantissa.leading_zeros());
        let drop = (used - width).max(lowest - exponent);
        if drop > 64 {
            return 0.0;
        }
        if drop > 0 {
            let kept = mantissa
                .checked_shr(u32::try_from(drop).unwrap_or(64))
                .unwrap_or(0);
            let half = 1_u128 << (drop - 1);
            let rest = u128::from(mantissa) & ((1_u128 << drop) - 1);
            let up = rest > half || rest == half && (sticky || kept & 1 == 1);
            mantissa = kept + u64::from(up);
            exponent += drop;
        }
        while exponent > highest && mantissa >> (width - 1) == 0 {
            mantissa <<= 1;
            exponent -= 1;
        }
        if mantissa == 0 {
            return 0.0;
        }
        if exponent > highest || exponent == highest && mantissa >> width != 0 {
            return f64::INFINITY;
        }
        // Exact: the mantissa fits, and each power of two is taken in steps that stay in range.
        #[expect(clippy::cast_precision_loss, reason = "at most 53 significant bits are left")]
        let mut value = mantissa as f64;
        while exponent > 0 {
            let step = exponent.min(512);
            value *= 2_f64.powi(i32::try_from(step).unwrap_or(0));
            exponent -= step;
        }
        while exponent < 0 {
            let step = (-exponent).min(512);
            value *= 2_f64.powi(-i32::try_from(step).unwrap_or(0));
            exponent += step;
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_as_go_does() {
        for (value, format, precision, want) in [
            (100_000.0, b'g', -1, "100000"),
            (1_000_000.0, b'g', -1, "1e+06"),
            (1_234_567.5, b'g', -1, "1.2345675e+06"),
            (0.0001, b'g', -1, "0.0001"),
            (0.00001, b'g', -1, "1e-05"),
            (0.0, b'g', -1, "0"),
            (-0.0, b'g', -1, "-0"),
            (100_000.0, b'g', 3, "1e+05"),
            (2.5, b'f', 0, "2"),
            (2.5, b'e', 0, "2e+00"),
            (0.5, b'f', 0, "0"),
            (1.005, b'f', 2, "1.00"),
            (12.0, b'G', 20, "12"),
            (1e21, b'f', -1, "1000000000000000000000"),
            (1.0, b'x', -1, "0x1p+00"),
            (0.1, b'x', -1, "0x1.999999999999ap-04"),
            (0.1, b'X', 3, "0X1.99AP-04"),
            (1.0, b'b', -1, "4503599627370496p-52"),
            (5e-324, b'x', -1, "0x1p-1074"),
            (0.0, b'e', 3, "0.000e+00"),
            (123_423_456_756_789.12, b'f', -1, "123423456756789.12"),
            (f64::INFINITY, b'g', -1, "+Inf"),
        ] {
            assert_eq!(format_float(value, format, precision, 64), want);
        }
        assert_eq!(format_float(f64::from(0.1_f32), b'g', -1, 32), "0.1");
        assert_eq!(format_float(1.0, b'f', 70_000, 64).len(), 70_002);
    }

    #[test]
    fn parses_as_go_does() {
        for (text, want) in [
            ("1e3", Some(1000.0)),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            ("+1", Some(1.0)),
            ("0x1p-2", Some(0.25)),
            ("0x1.8p1", Some(3.0)),
            ("0x1p-1074", Some(5e-324)),
            ("0x1p-1075", Some(0.0)),
            ("0x1.fffffffffffffp1023", Some(f64::MAX)),
            ("0x1p1024", None),
            ("1e400", None),
            ("1e-400", Some(0.0)),
            ("inf", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("1_0", Some(10.0)),
            ("1__0", None),
            ("0x1", None),
            ("1e", None),
            (".", None),
            ("", None),
            ("1 ", None),
        ] {
            assert_eq!(parse_float(text, 64).ok(), want, "{text}");
        }
        let error = parse_float("1e400", 64).unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"strconv.ParseFloat: parsing "1e400": value out of range"#
        );
        assert!(parse_float("nan", 64).unwrap().is_nan());
        assert_eq!(
            parse_float("+nan", 64).unwrap_err().kind,
            NumErrorKind::Syntax
        );
    }
}
