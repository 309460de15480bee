//! Integers and booleans from text: `ParseInt`, `ParseUint`, `Atoi`, `ParseBool`.

use super::{NumError, NumErrorKind, split_sign, underscores_ok};

/// Go's `ParseInt(text, base, bits)`. Base 0 takes the base from a `0x`, `0o`, `0b` or `0` prefix and allows underscores;
/// `bits` of 0 means 64.
///
/// ```
/// use golib::strconv::parse_int;
///
/// assert_eq!(parse_int("0x_ff", 0, 64)?, 255);
/// let error = parse_int("12a", 10, 64).unwrap_err();
/// assert_eq!(error.to_string(), "strconv.ParseInt: parsing \"12a\": invalid syntax");
/// # Ok::<(), golib::strconv::NumError>(())
/// ```
///
/// # Errors
/// As Go: invalid syntax, value out of range, or invalid base.
pub fn parse_int(text: impl AsRef<[u8]>, base: u32, bits: u32) -> Result<i64, NumError> {
    signed("ParseInt", text.as_ref(), base, bits)
}

/// Go's `Atoi`: a decimal integer without underscores.
///
/// ```
/// assert_eq!(golib::strconv::atoi("-7"), Ok(-7));
/// ```
///
/// # Errors
/// As [`parse_int`], naming `Atoi`.
pub fn atoi(text: impl AsRef<[u8]>) -> Result<i64, NumError> {
    signed("Atoi", text.as_ref(), 10, 64)
}

/// Go's `ParseUint(text, base, bits)`: as [`parse_int`], but no sign is accepted.
///
/// ```
/// assert_eq!(golib::strconv::parse_uint("ff", 16, 8), Ok(255));
/// ```
///
/// # Errors
/// As [`parse_int`], naming `ParseUint`.
pub fn parse_uint(text: impl AsRef<[u8]>, base: u32, bits: u32) -> Result<u64, NumError> {
    let text = text.as_ref();
    magnitude(text, base, bits).map_err(|kind| NumError::new("ParseUint", text, kind))
}

/// Go's `ParseBool`.
///
/// ```
/// assert_eq!(golib::strconv::parse_bool("T"), Ok(true));
/// assert!(golib::strconv::parse_bool("yes").is_err());
/// ```
///
/// # Errors
/// Anything but `1 t T TRUE true True` and `0 f F FALSE false False`.
pub fn parse_bool(text: impl AsRef<[u8]>) -> Result<bool, NumError> {
    match text.as_ref() {
        b"1" | b"t" | b"T" | b"TRUE" | b"true" | b"True" => Ok(true),
        b"0" | b"f" | b"F" | b"FALSE" | b"false" | b"False" => Ok(false),
        other => Err(NumError::new("ParseBool", other, NumErrorKind::Syntax)),
    }
}

fn signed(function: &'static str, text: &[u8], base: u32, bits: u32) -> Result<i64, NumError> {
    let error = |kind| NumError::new(function, text, kind);
    let (negative, digits) = split_sign(text);
    let bits = if bits == 0 { 64 } else { bits.min(64) };
    let value = magnitude(digits, base, bits).map_err(error)?;
    let limit = 1_u64 << (bits - 1);
    match negative {
        false if value < limit => Ok(value.cast_signed()),
        true if value <= limit => Ok(value.wrapping_neg().cast_signed()),
        _ => Err(error(NumErrorKind::Range)),
    }
}

fn magnitude(text: &[u8], base: u32, bits: u32) -> Result<u64, NumErrorKind> {
    use NumErrorKind::{Base, Range, Syntax};
    if text.is_empty() {
        return Err(Syntax);
    }
    let (radix, digits) = match (base, text) {
        (2..=36, _) => (base, text),
        (0, [b'0', b'b' | b'B', rest @ ..]) if !rest.is_empty() => (2, rest),
        (0, [b'0', b'o' | b'O', rest @ ..]) if !rest.is_empty() => (8, rest),
        (0, [b'0', b'x' | b'X', rest @ ..]) if !rest.is_empty() => (16, rest),
        (0, [b'0', rest @ ..]) => (8, rest),
        (0, _) => (10, text),
        _ => return Err(Base(base)),
    };
    let max = if bits == 0 || bits >= 64 {
        u64::MAX
    } else {
        (1 << bits) - 1
    };
    let mut value = 0_u64;
    for &byte in digits {
        if byte == b'_' && base == 0 {
            continue;
        }
        let digit = char::from(byte).to_digit(radix).ok_or(Syntax)?;
        value = value
            .checked_mul(u64::from(radix))
            .and_then(|value| value.checked_add(u64::from(digit)))
            .filter(|&value| value <= max)
            .ok_or(Range)?;
    }
    if digits.contains(&b'_') && !underscores_ok(text) {
        return Err(Syntax);
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_prefixes_and_underscores() {
        for (text, want) in [
            ("0x1F", Some(31)),
            ("0b101", Some(5)),
            ("0o17", Some(15)),
            ("017", Some(15)),
            ("0", Some(0)),
            ("-0", Some(0)),
            ("1_000", Some(1000)),
            ("0_7", Some(7)),
            ("0x_1", Some(1)),
            ("_1", None),
            ("1__0", None),
            ("1_", None),
            ("08", None),
            ("0x", None),
            ("", None),
            ("+", None),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
        ] {
            assert_eq!(parse_int(text, 0, 64).ok(), want, "{text}");
        }
    }

    #[test]
    fn errors_read_as_gos() {
        let error = parse_int("a\n", 10, 64).unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"strconv.ParseInt: parsing "a\n": invalid syntax"#
        );
        let error = atoi("-99999999999999999999").unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"strconv.Atoi: parsing "-99999999999999999999": value out of range"#
        );
        assert_eq!(error.saturated(), i64::MIN);
        assert_eq!(
            parse_int("300", 10, 8).unwrap_err().kind,
            NumErrorKind::Range
        );
        assert_eq!(parse_int("-128", 10, 8), Ok(-128));
        assert_eq!(
            parse_uint("+1", 10, 64).unwrap_err().kind,
            NumErrorKind::Syntax
        );
    }
}
