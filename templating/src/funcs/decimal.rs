//! Decimal arithmetic as shopspring/decimal 1.4.0 does it for Sprig's `addf` and its siblings: exact, but for division,
//! which keeps 16 places.

use golib::strconv::format_float;
use num_bigint::{BigInt, Sign};

use crate::error::Error;

/// Places after the point that a quotient keeps.
const DIVISION_PLACES: i32 = 16;

/// A whole number and a power of ten.
#[derive(Debug, Clone)]
pub(super) struct Decimal {
    value: BigInt,
    exponent: i32,
}

impl Decimal {
    /// The shortest decimal that reads back as the float, of two equally near ones the even one.
    ///
    /// # Errors
    /// For infinities and NaN, in the words of the Go library.
    pub(super) fn from_float(value: f64) -> Result<Self, Error> {
        if !value.is_finite() {
            let value = format_float(value, b'g', -1, 64);
            return Err(Error::message(format!(
                "Cannot create a Decimal from {value}"
            )));
        }
        let text = format_float(value, b'e', -1, 64);
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let value: BigInt = format!("{whole}{fraction}").parse().unwrap_or_default();
        let exponent = match value.sign() {
            Sign::NoSign => 0,
            _ => exponent.parse::<i32>().unwrap_or(0) - fraction.len() as i32,
        };
        Ok(Self { value, exponent })
    }

    /// The nearest float.
    pub(super) fn to_float(&self) -> f64 {
        let text = format!("{}e{}", self.value, self.exponent);
        text.parse().unwrap_or(0.0)
    }

    pub(super) fn add(self, other: &Self) -> Self {
        let exponent = self.exponent.min(other.exponent);
        Self {
            value: self.scaled(exponent) + other.scaled(exponent),
            exponent,
        }
    }

    pub(super) fn sub(self, other: &Self) -> Self {
        let exponent = self.exponent.min(other.exponent);
        Self {
            value: self.scaled(exponent) - other.scaled(exponent),
            exponent,
        }
    }

    pub(super) fn mul(self, other: &Self) -> Self {
        Self {
            value: self.value * &other.value,
            exponent: self.exponent.saturating_add(other.exponent),
        }
    }

    /// Half away from zero, as `DivRound` does.
    ///
    /// # Errors
    /// Division by zero, in the words of the Go library.
    pub(super) fn div(self, other: &Self) -> Result<Self, Error> {
        if other.value.sign() == Sign::NoSign {
            return Err(Error::message("decimal division by 0"));
        }
        let shift = self
            .exponent
            .saturating_sub(other.exponent)
            .saturating_add(DIVISION_PLACES);
        let scale = ten_to(shift.unsigned_abs());
        let (dividend, divisor) = match shift >= 0 {
            true => (self.value * scale, other.value.clone()),
            false => (self.value, &other.value * scale),
        };
        let is_negative = dividend.sign() != divisor.sign();
        let (dividend, divisor) = (dividend.magnitude(), divisor.magnitude());
        let quotient = (dividend * 2_u32 + divisor) / (divisor * 2_u32);
        let sign = match is_negative {
            true => Sign::Minus,
            false => Sign::Plus,
        };
        Ok(Self {
            value: BigInt::from_biguint(sign, quotient),
            exponent: -DIVISION_PLACES,
        })
    }

    /// The whole number by a power of ten that is no higher.
    fn scaled(&self, exponent: i32) -> BigInt {
        match self.value.sign() {
            Sign::NoSign => BigInt::ZERO,
            _ => &self.value * ten_to(self.exponent.abs_diff(exponent)),
        }
    }
}

fn ten_to(power: u32) -> BigInt {
    BigInt::from(10).pow(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(value: f64) -> Decimal {
        Decimal::from_float(value).unwrap()
    }

    #[test]
    fn arithmetic_is_decimal() {
        assert_eq!(decimal(0.1).add(&decimal(0.2)).to_float(), 0.3);
        assert_eq!(decimal(1e308).sub(&decimal(1e-308)).to_float(), 1e308);
        assert_eq!(decimal(1.1).mul(&decimal(-1.1)).to_float(), -1.21);
        assert_eq!(
            decimal(2.0).div(&decimal(3.0)).unwrap().to_float(),
            0.6666666666666667
        );
        assert_eq!(
            decimal(-1.0).div(&decimal(3.0)).unwrap().to_float(),
            -0.3333333333333333
        );
        assert_eq!(decimal(1e-20).div(&decimal(1e20)).unwrap().to_float(), 0.0);
        assert_eq!(decimal(1e20).div(&decimal(1e-20)).unwrap().to_float(), 1e40);
        assert_eq!(decimal(5.0).sub(&decimal(5.0)).to_float(), 0.0);
        assert!(decimal(1.0).div(&decimal(0.0)).is_err());
        assert!(Decimal::from_float(f64::NAN).is_err());
    }

    /// Of 681212726919254.25 both …4.2 and …4.3 read back. The answers are Go's.
    #[test]
    fn a_float_between_two_shortest_decimals_is_the_even_one() {
        let whole = 681_212_726_919_254.0;
        let (tie, upper) = (decimal(whole + 0.25), decimal(whole + 0.75));
        let quotient = tie.clone().div(&decimal(-45.916)).unwrap();
        assert_eq!(quotient.to_float(), -14_836_064_267_777.12);
        let product = tie.mul(&decimal(10.0));
        assert_eq!(product.to_float(), 6_812_127_269_192_542.0);
        assert_eq!(upper.sub(&decimal(0.5)).to_float(), whole + 0.25);
    }
}
