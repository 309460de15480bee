//! Decimal arithmetic as shopspring/decimal 1.4.0 does it for Sprig's `addf` and its siblings: exact, but for division,
//! which keeps 16 places.

use std::cmp::Ordering;

use crate::error::Error;

/// Places after the point that a quotient keeps.
const DIVISION_PLACES: i32 = 16;
/// The base of a limb.
const BASE: u128 = 1_000_000_000;

/// A number: sign, whole number, power of ten.
#[derive(Debug, Clone)]
pub(super) struct Decimal {
    negative: bool,
    /// Limbs of nine digits, the least first; none for zero.
    limbs: Vec<u32>,
    exponent: i32,
    /// The whole number, if the value came from a float and so has at most 17 digits.
    small: u64,
}

impl Decimal {
    /// The shortest decimal that reads back as the float.
    ///
    /// # Errors
    /// For infinities and NaN, in the words of the Go library.
    pub(super) fn from_float(value: f64) -> Result<Self, Error> {
        if !value.is_finite() {
            let value = golib::strconv::format_float(value, b'g', -1, 64);
            return Err(Error::message(format!(
                "Cannot create a Decimal from {value}"
            )));
        }
        let text = format!("{:e}", value.abs());
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let small: u64 = format!("{whole}{fraction}").parse().unwrap_or(0);
        let exponent = exponent.parse::<i32>().unwrap_or(0) - fraction.len() as i32;
        let mut limbs = Vec::new();
        let mut rest = u128::from(small);
        while rest > 0 {
            limbs.push((rest % BASE) as u32);
            rest /= BASE;
        }
        let exponent = if small == 0 { 0 } else { exponent };
        Ok(Self {
            negative: value < 0.0,
            limbs,
            exponent,
            small,
        })
    }

    /// The nearest float.
    pub(super) fn to_float(&self) -> f64 {
        let mut text = String::from(if self.negative { "-" } else { "" });
        if self.limbs.is_empty() {
            return 0.0;
        }
        for limb in self.limbs.iter().rev() {
            text.push_str(&format!("{limb:09}"));
        }
        text.push_str(&format!("e{}", self.exponent));
        text.parse().unwrap_or(0.0)
    }

    pub(super) fn add(self, other: &Self) -> Self {
        let exponent = self.exponent.min(other.exponent);
        let a = scale(&self.limbs, (self.exponent - exponent) as u32);
        let b = scale(&other.limbs, (other.exponent - exponent) as u32);
        let (negative, limbs) = if self.negative == other.negative {
            (self.negative, add(&a, &b))
        } else if compare(&a, &b) == Ordering::Less {
            (other.negative, subtract(&b, &a))
        } else {
            (self.negative, subtract(&a, &b))
        };
        Self {
            negative,
            limbs,
            exponent,
            small: 0,
        }
    }

    pub(super) fn sub(self, other: &Self) -> Self {
        self.add(&Self {
            negative: !other.negative,
            ..other.clone()
        })
    }

    /// The product; `other` comes straight from a float.
    pub(super) fn mul(self, other: &Self) -> Self {
        Self {
            negative: self.negative != other.negative,
            limbs: multiply(&self.limbs, u128::from(other.small)),
            exponent: self.exponent.saturating_add(other.exponent),
            small: 0,
        }
    }

    /// The quotient to [`DIVISION_PLACES`], halves away from zero; `other` comes straight from a float.
    ///
    /// # Errors
    /// When `other` is zero.
    pub(super) fn div(self, other: &Self) -> Result<Self, Error> {
        if other.small == 0 {
            return Err(Error::message("decimal division by 0"));
        }
        let shift = self
            .exponent
            .saturating_sub(other.exponent)
            .saturating_add(DIVISION_PLACES);
        // floor(a / d + 1/2) = floor((2a + d) / 2d), where d is the divisor with its share of tens.
        let (a, d) = if shift >= 0 {
            (scale(&self.limbs, shift as u32), from_u64(other.small))
        } else {
            (
                self.limbs.clone(),
                scale(&from_u64(other.small), shift.unsigned_abs()),
            )
        };
        let mut limbs = add(&multiply(&a, 2), &d);
        if shift < 0 {
            limbs = divide_by_ten_power(limbs, shift.unsigned_abs());
        }
        let limbs = divide(limbs, u128::from(other.small) * 2);
        let negative = self.negative != other.negative;
        Ok(Self {
            negative,
            limbs,
            exponent: -DIVISION_PLACES,
            small: 0,
        })
    }
}

fn from_u64(value: u64) -> Vec<u32> {
    multiply(&[1], u128::from(value))
}

fn trim(mut limbs: Vec<u32>) -> Vec<u32> {
    while limbs.last() == Some(&0) {
        limbs.pop();
    }
    limbs
}

fn add(a: &[u32], b: &[u32]) -> Vec<u32> {
    let mut carry = 0;
    let mut sum = Vec::with_capacity(a.len().max(b.len()) + 1);
    for index in 0..a.len().max(b.len()) {
        let limb = |limbs: &[u32]| u128::from(limbs.get(index).copied().unwrap_or(0));
        carry += limb(a) + limb(b);
        sum.push((carry % BASE) as u32);
        carry /= BASE;
    }
    sum.push(carry as u32);
    trim(sum)
}

/// `a - b`, where `a` is not smaller.
fn subtract(a: &[u32], b: &[u32]) -> Vec<u32> {
    let mut borrow = 0;
    let mut difference = Vec::with_capacity(a.len());
    for (index, &limb) in a.iter().enumerate() {
        let mut value = i64::from(limb) - i64::from(b.get(index).copied().unwrap_or(0)) - borrow;
        borrow = i64::from(value < 0);
        value += borrow * BASE as i64;
        difference.push(value as u32);
    }
    trim(difference)
}

fn compare(a: &[u32], b: &[u32]) -> Ordering {
    a.len()
        .cmp(&b.len())
        .then_with(|| a.iter().rev().cmp(b.iter().rev()))
}

fn multiply(limbs: &[u32], factor: u128) -> Vec<u32> {
    let mut carry = 0;
    let mut product = Vec::with_capacity(limbs.len() + 3);
    for &limb in limbs {
        carry += u128::from(limb) * factor;
        product.push((carry % BASE) as u32);
        carry /= BASE;
    }
    while carry > 0 {
        product.push((carry % BASE) as u32);
        carry /= BASE;
    }
    trim(product)
}

fn scale(limbs: &[u32], tens: u32) -> Vec<u32> {
    if limbs.is_empty() {
        return Vec::new();
    }
    let mut scaled = vec![0; (tens / 9) as usize];
    scaled.extend(multiply(limbs, 10_u128.pow(tens % 9)));
    scaled
}

fn divide(limbs: Vec<u32>, divisor: u128) -> Vec<u32> {
    let mut rest = 0;
    let mut quotient = limbs;
    for limb in quotient.iter_mut().rev() {
        rest = rest * BASE + u128::from(*limb);
        *limb = (rest / divisor) as u32;
        rest %= divisor;
    }
    trim(quotient)
}

fn divide_by_ten_power(mut limbs: Vec<u32>, tens: u32) -> Vec<u32> {
    let whole = ((tens / 9) as usize).min(limbs.len());
    limbs.drain(..whole);
    divide(limbs, 10_u128.pow(tens % 9))
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
}
