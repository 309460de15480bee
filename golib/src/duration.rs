//! Go's `time.Duration`: signed nanoseconds with a text form such as `1h2m0.5s`.

use std::fmt;

/// A span of time in nanoseconds, about 292 years either way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(pub i64);

/// Why a text is no duration; prints in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not a sequence of numbers with units, or out of range.
    #[error("time: invalid duration {}", quote(.0))]
    Invalid(Vec<u8>),
    /// A number without its unit.
    #[error("time: missing unit in duration {}", quote(.0))]
    MissingUnit(Vec<u8>),
    /// An unknown unit.
    #[error("time: unknown unit {} in duration {}", quote(.unit), quote(.text))]
    UnknownUnit {
        /// What stands where a unit should.
        unit: Vec<u8>,
        /// The whole text.
        text: Vec<u8>,
    },
}

impl Duration {
    /// One second.
    pub const SECOND: Self = Self(1_000_000_000);
    /// One minute.
    pub const MINUTE: Self = Self(60 * Self::SECOND.0);
    /// One hour.
    pub const HOUR: Self = Self(60 * Self::MINUTE.0);

    /// Reads a duration: an optional sign, then numbers with units `ns us µs ms s m h`.
    ///
    /// ```
    /// use golib::duration::Duration;
    ///
    /// assert_eq!(Duration::parse("1h30m")?, Duration(5_400_000_000_000));
    /// assert_eq!(Duration::parse("1.5h")?.to_string(), "1h30m0s");
    /// let error = Duration::parse("90").unwrap_err();
    /// assert_eq!(error.to_string(), "time: missing unit in duration \"90\"");
    /// # Ok::<(), golib::duration::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the text is anything else or does not fit.
    pub fn parse(text: impl AsRef<[u8]>) -> Result<Self, Error> {
        const LIMIT: u64 = 1 << 63;
        let text = text.as_ref();
        let invalid = || Error::Invalid(text.to_vec());
        let (negative, mut rest) = match text.split_first() {
            Some((b'-', rest)) => (true, rest),
            Some((b'+', rest)) => (false, rest),
            _ => (false, text),
        };
        if rest == b"0" {
            return Ok(Self(0));
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total = 0_u64;
        while !rest.is_empty() {
            let (whole, after) = leading_int(rest).ok_or_else(invalid)?;
            let mut has_digits = after.len() != rest.len();
            rest = after;
            let (mut fraction, mut scale) = (0, 1.0);
            if let Some(after) = rest.strip_prefix(b".") {
                let tail;
                (fraction, scale, tail) = leading_fraction(after);
                has_digits |= tail.len() != after.len();
                rest = tail;
            }
            if !has_digits {
                return Err(invalid());
            }
            let is_number = |b: &u8| *b == b'.' || b.is_ascii_digit();
            let (unit, after) =
                rest.split_at(rest.iter().position(is_number).unwrap_or(rest.len()));
            rest = after;
            let nanoseconds: u64 = match unit {
                b"" => return Err(Error::MissingUnit(text.to_vec())),
                b"ns" => 1,
                b"us" | b"\xC2\xB5s" | b"\xCE\xBCs" => 1_000,
                b"ms" => 1_000_000,
                b"s" => 1_000_000_000,
                b"m" => 60_000_000_000,
                b"h" => 3_600_000_000_000,
                _ => {
                    return Err(Error::UnknownUnit {
                        unit: unit.to_vec(),
                        text: text.to_vec(),
                    });
                }
            };
            if whole > LIMIT / nanoseconds {
                return Err(invalid());
            }
            // Fractions go through a float, whose rounding is part of the answer.
            let part = (fraction as f64 * (nanoseconds as f64 / scale)) as u64;
            let value = whole * nanoseconds + part;
            total = total.wrapping_add(value);
            if value > LIMIT || total > LIMIT {
                return Err(invalid());
            }
        }
        if negative {
            return Ok(Self((total as i64).wrapping_neg()));
        }
        i64::try_from(total).map(Self).map_err(|_| invalid())
    }

    /// The span in hours.
    pub fn hours(self) -> f64 {
        self.in_units(Self::HOUR.0)
    }

    /// The span in minutes.
    pub fn minutes(self) -> f64 {
        self.in_units(Self::MINUTE.0)
    }

    /// The span in seconds.
    pub fn seconds(self) -> f64 {
        self.in_units(Self::SECOND.0)
    }

    /// Whole units and the rest apart, as Go does: it decides about the last digit.
    fn in_units(self, unit: i64) -> f64 {
        (self.0 / unit) as f64 + (self.0 % unit) as f64 / unit as f64
    }

    /// The largest multiple of `unit` towards zero; itself for a unit that is not positive.
    pub fn truncate(self, unit: Self) -> Self {
        if unit.0 <= 0 {
            self
        } else {
            Self(self.0 - self.0 % unit.0)
        }
    }

    /// The nearest multiple of `unit`, halves away from zero, saturating; itself for a unit that is
    /// not positive.
    pub fn round(self, unit: Self) -> Self {
        if unit.0 <= 0 {
            return self;
        }
        let rest = self.0 % unit.0;
        let towards_zero = Self(self.0 - rest);
        if rest.unsigned_abs() * 2 < unit.0.unsigned_abs() {
            return towards_zero;
        }
        Self(towards_zero.0.saturating_add(unit.0 * self.0.signum()))
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.0.unsigned_abs();
        let sign = if self.0 < 0 { "-" } else { "" };
        let (unit, name) = match total {
            0 => return f.write_str("0s"),
            1..1_000 => (1, "ns"),
            1_000..1_000_000 => (1_000, "µs"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        f.write_str(sign)?;
        let mut whole = total / unit;
        if unit == 1_000_000_000 {
            let (minutes, hours) = (whole / 60, whole / 3600);
            if hours > 0 {
                write!(f, "{hours}h")?;
            }
            if minutes > 0 {
                write!(f, "{}m", minutes % 60)?;
            }
            whole %= 60;
        }
        write!(f, "{whole}")?;
        if !total.is_multiple_of(unit) {
            let width = unit.ilog10() as usize;
            let fraction = format!("{:0width$}", total % unit);
            write!(f, ".{}", fraction.trim_end_matches('0'))?;
        }
        f.write_str(name)
    }
}

/// Leading digits; nothing where they exceed 63 bits.
pub(crate) fn leading_int(text: &[u8]) -> Option<(u64, &[u8])> {
    const LIMIT: u64 = 1 << 63;
    let length = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(length);
    let mut value = 0_u64;
    for digit in digits {
        if value > LIMIT / 10 {
            return None;
        }
        value = value * 10 + u64::from(digit - b'0');
        if value > LIMIT {
            return None;
        }
    }
    Some((value, rest))
}

/// Leading digits as a fraction of the returned scale; digits beyond 63 bits are dropped.
fn leading_fraction(text: &[u8]) -> (u64, f64, &[u8]) {
    const LIMIT: u64 = 1 << 63;
    let length = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(length);
    let (mut value, mut scale) = (0_u64, 1.0);
    for digit in digits {
        if value > (LIMIT - 1) / 10 {
            break;
        }
        let next = value * 10 + u64::from(digit - b'0');
        if next > LIMIT {
            break;
        }
        value = next;
        scale *= 10.0;
    }
    (value, scale, rest)
}

/// Quotes as Go's `time` package does: every byte that is not printable ASCII in hexadecimal.
pub(crate) fn quote(text: &[u8]) -> String {
    let mut out = String::from("\"");
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            0x20..=0x7f => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_durations_convert_both_ways() {
        for (text, want) in [
            ("0", "0s"),
            ("1.5h", "1h30m0s"),
            ("-1h2m3.5s", "-1h2m3.5s"),
            ("100us", "100µs"),
            ("1ns", "1ns"),
            (".5s", "500ms"),
            ("+3m", "3m0s"),
            ("9223372036854775807ns", "2562047h47m16.854775807s"),
            ("-9223372036854775808ns", "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(Duration::parse(text).expect(text).to_string(), want);
        }
    }

    #[test]
    fn refusals_have_gos_words() {
        let refused = |text: &str| Duration::parse(text).expect_err(text).to_string();
        assert_eq!(refused(""), "time: invalid duration \"\"");
        assert_eq!(refused("3"), "time: missing unit in duration \"3\"");
        assert_eq!(refused("3x"), "time: unknown unit \"x\" in duration \"3x\"");
        assert_eq!(
            refused("3é"),
            r#"time: unknown unit "\xc3\xa9" in duration "3\xc3\xa9""#
        );
        assert_eq!(
            refused("9223372036854775808ns"),
            "time: invalid duration \"9223372036854775808ns\""
        );
    }

    #[test]
    fn rounding_goes_away_from_zero() {
        let seconds = |n: f64| Duration((n * 1e9) as i64);
        assert_eq!(seconds(2.5).round(Duration::SECOND), seconds(3.0));
        assert_eq!(seconds(-2.5).round(Duration::SECOND), seconds(-3.0));
        assert_eq!(seconds(-2.4).round(Duration::SECOND), seconds(-2.0));
        assert_eq!(seconds(2.9).truncate(Duration::SECOND), seconds(2.0));
        assert_eq!(Duration(i64::MAX).round(Duration::HOUR), Duration(i64::MAX));
        assert_eq!(seconds(2.5).round(Duration(-1)), seconds(2.5));
    }
}
