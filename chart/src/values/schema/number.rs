//! Exact decimal numbers: schemas compare and divide without rounding, as Go's `big.Rat` does.

use std::cmp::Ordering;

use num_bigint::BigUint;
use serde_json::Number;

/// Digits beyond which two numbers are not brought to a common exponent.
const MAX_DIGITS: usize = 2_000;

/// `±digits × 10^exponent`; no leading or trailing zero digits, zero has none at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decimal {
    negative: bool,
    digits: Vec<u8>,
    exponent: i64,
}

impl From<&Number> for Decimal {
    fn from(number: &Number) -> Self {
        // What Go prints of a float is the shortest text that reads back the same; so is this.
        Self::parse(&number.to_string())
    }
}

impl Decimal {
    fn parse(text: &str) -> Self {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse().unwrap_or(0)),
            None => (text, 0_i64),
        };
        let negative = mantissa.starts_with('-');
        let mantissa = mantissa.trim_start_matches(['-', '+']);
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits: Vec<u8> = whole
            .bytes()
            .chain(fraction.bytes())
            .map(|b| b - b'0')
            .collect();
        let mut exponent = exponent - i64::try_from(fraction.len()).unwrap_or(0);
        while digits.last() == Some(&0) {
            digits.pop();
            exponent += 1;
        }
        let zeros = digits.iter().take_while(|digit| **digit == 0).count();
        digits.drain(..zeros);
        if digits.is_empty() {
            return Self {
                negative: false,
                digits,
                exponent: 0,
            };
        }
        Self {
            negative,
            digits,
            exponent,
        }
    }

    pub(super) fn is_integer(&self) -> bool {
        self.exponent >= 0
    }

    /// The value as a float, for messages.
    pub(super) fn to_f64(&self) -> f64 {
        let digits: String = self
            .digits
            .iter()
            .map(|digit| char::from(b'0' + digit))
            .collect();
        let sign = if self.negative { "-" } else { "" };
        let digits = if digits.is_empty() { "0" } else { &digits };
        format!("{sign}{digits}e{}", self.exponent)
            .parse()
            .unwrap_or(f64::NAN)
    }

    /// The value as a 64-bit integer, cut off where it does not fit.
    pub(super) fn to_i64(&self) -> i64 {
        #[expect(clippy::cast_possible_truncation, reason = "saturating is what limits mean")]
        let value = self.to_f64() as i64;
        value
    }

    /// Cost of dividing by `divisor`, in the steps of a check.
    pub(super) fn effort(&self, divisor: &Self) -> usize {
        let zeros = self.exponent.abs_diff(divisor.exponent);
        let digits = self.digits.len() + divisor.digits.len();
        let span = digits + usize::try_from(zeros).unwrap_or(MAX_DIGITS);
        span.min(MAX_DIGITS).pow(2) / 64
    }

    /// Whether dividing by `divisor`, which is not zero, leaves nothing.
    pub(super) fn is_multiple_of(&self, divisor: &Self) -> bool {
        let exponent = self.exponent.min(divisor.exponent);
        let divided = match (self.scaled(exponent), divisor.scaled(exponent)) {
            (Some(dividend), Some(divisor)) => {
                (divisor != BigUint::ZERO).then(|| dividend % divisor)
            }
            _ => None,
        };
        self.digits.is_empty() || divided.is_some_and(|rest| rest == BigUint::ZERO)
    }

    /// `self / 10^exponent` without its sign, an integer.
    fn scaled(&self, exponent: i64) -> Option<BigUint> {
        let zeros = usize::try_from(self.exponent - exponent).ok()?;
        if self.digits.len() + zeros > MAX_DIGITS {
            return None;
        }
        let mut digits = self.digits.clone();
        digits.resize(digits.len() + zeros, 0);
        BigUint::from_radix_be(&digits, 10)
    }

    /// Position of the first digit: the number is `0.digits × 10^magnitude`.
    fn magnitude(&self) -> i64 {
        self.exponent + i64::try_from(self.digits.len()).unwrap_or(i64::MAX)
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let sign = |number: &Self| match number {
            number if number.digits.is_empty() => 0,
            number if number.negative => -1,
            _ => 1,
        };
        let absolute = self
            .magnitude()
            .cmp(&other.magnitude())
            .then_with(|| self.digits.cmp(&other.digits));
        match (sign(self), sign(other)) {
            (1, 1) => absolute,
            (-1, -1) => absolute.reverse(),
            (ours, theirs) => ours.cmp(&theirs),
        }
    }
}

/// A float as `golang.org/x/text/message` prints it in English: `70,000`, `1.5×10⁰⁶`.
pub(super) fn english(value: f64) -> String {
    let text = golib::strconv::format_float(value, b'g', -1, 64);
    let Some((mantissa, exponent)) = text.split_once('e') else {
        return grouped(&text);
    };
    let raised = exponent.trim_start_matches('+').chars().map(|c| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '4' => '⁴',
        '5' => '⁵',
        '6' => '⁶',
        '7' => '⁷',
        '8' => '⁸',
        '9' => '⁹',
        _ => '⁰',
    });
    format!("{mantissa}×10{}", raised.collect::<String>())
}

/// Puts commas between groups of three digits before the point.
pub(super) fn grouped(text: &str) -> String {
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text),
    };
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut out = sign.to_owned();
    for (index, digit) in whole.char_indices() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::{Decimal, english};

    fn number(text: &str) -> Decimal {
        Decimal::parse(text)
    }

    #[test]
    fn comparing_and_dividing_are_exact() {
        assert!(number("0.1") < number("0.11"));
        assert!(number("-2") < number("-1.5"));
        assert_eq!(number("1e3"), number("1000.0"));
        assert!(number("0.3").is_multiple_of(&number("0.1")));
        assert!(!number("0.075").is_multiple_of(&number("0.01")));
        assert!(!number("1e20").is_multiple_of(&number("3")));
        assert!(number("-9").is_multiple_of(&number("3")));
        assert!(number("5.0").is_integer() && !number("5.5").is_integer());
    }

    #[test]
    fn numbers_print_as_in_english() {
        assert_eq!(english(70_000.0), "70,000");
        assert_eq!(english(-1e9), "-1×10⁰⁹");
        assert_eq!(english(12_345.678), "12,345.678");
        assert_eq!(english(1e-5), "1×10⁻⁰⁵");
    }
}
