//! The natural order of keys in written YAML (`sorter.go` of yaml.v2 and yaml.v3).

use std::borrow::Cow;
use std::cmp::Ordering;

use super::tree::{Dialect, Scalar};
use crate::unicode::{is_digit, is_letter};

/// Sorts entries by their keys. The order of strings with digits is no total order (`a10` < `a1b` < `a2` < `a10`), which the
/// standard library's sort may answer with a panic: hence a merge sort that takes whatever the comparison says.
pub(super) fn sort<T: Copy>(entries: &mut Vec<(Scalar<'_>, T)>, dialect: Dialect) {
    let is_plain = |key: &Scalar<'_>| match key {
        Scalar::Str(text) => text.bytes().all(|b| b.is_ascii() && !b.is_ascii_digit()),
        _ => false,
    };
    if entries.iter().all(|(key, _)| is_plain(key)) {
        entries.sort_by(|(a, _), (b, _)| compare(a, b, dialect));
        return;
    }
    let mut merged = Vec::with_capacity(entries.len());
    let mut width = 1;
    while width < entries.len() {
        merged.clear();
        for pair in entries.chunks(2 * width) {
            let (mut left, mut right) = pair.split_at(width.min(pair.len()));
            while let (Some((a, _)), Some((b, _))) = (left.first(), right.first()) {
                let side = if compare(b, a, dialect) == Ordering::Less {
                    &mut right
                } else {
                    &mut left
                };
                merged.extend(side.split_off_first().copied());
            }
            merged.extend_from_slice(left);
            merged.extend_from_slice(right);
        }
        std::mem::swap(entries, &mut merged);
        width *= 2;
    }
}

fn compare(a: &Scalar<'_>, b: &Scalar<'_>, dialect: Dialect) -> Ordering {
    if let (Some(a), Some(b)) = (as_text(a), as_text(b)) {
        return compare_text(&a, &b, dialect);
    }
    let kinds = go_kind(a).cmp(&go_kind(b));
    match (as_float(a), as_float(b)) {
        (Some(x), Some(y)) => x.total_cmp(&y).then(kinds),
        _ => kinds,
    }
}

fn as_text<'a>(key: &Scalar<'a>) -> Option<Cow<'a, str>> {
    match *key {
        Scalar::Str(text) => Some(text.into()),
        Scalar::Binary(bytes) => Some(crate::utf8::to_str(bytes)),
        _ => None,
    }
}

/// The order of Go's `reflect.Kind`.
fn go_kind(key: &Scalar<'_>) -> u8 {
    match key {
        Scalar::Bool(_) => 1,
        Scalar::Int(_) => 2,
        Scalar::Uint(_) => 11,
        Scalar::Float(_) => 14,
        Scalar::Null => 20,
        Scalar::Str(_) | Scalar::Plain(_) | Scalar::Binary(_) => 24,
    }
}

#[expect(clippy::cast_precision_loss, reason = "Go compares numbers of two types as floats")]
fn as_float(key: &Scalar<'_>) -> Option<f64> {
    match key {
        Scalar::Bool(value) => Some(f64::from(u8::from(*value))),
        Scalar::Int(value) => Some(*value as f64),
        Scalar::Uint(value) => Some(*value as f64),
        Scalar::Float(value) => Some(*value),
        Scalar::Null | Scalar::Str(_) | Scalar::Plain(_) | Scalar::Binary(_) => None,
    }
}

fn compare_text(a: &str, b: &str, dialect: Dialect) -> Ordering {
    let at = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    // Back to the beginning of the character in which they differ.
    let at = (0..=at)
        .rev()
        .find(|&at| a.is_char_boundary(at) && b.is_char_boundary(at))
        .unwrap_or(0);
    let (equal, rest_a, rest_b) = (&a[..at], &a[at..], &b[at..]);
    let (Some(x), Some(y)) = (rest_a.chars().next(), rest_b.chars().next()) else {
        return a.len().cmp(&b.len());
    };
    match (is_letter(x), is_letter(y)) {
        (true, true) => return x.cmp(&y),
        (false, false) => {}
        (x_is_letter, _) => {
            let after_digit = equal.chars().next_back().is_some_and(is_digit);
            // Only yaml.v3 puts the letter first behind a digit.
            let letter_first = dialect == Dialect::V3 && after_digit;
            return if x_is_letter == letter_first {
                Ordering::Less
            } else {
                Ordering::Greater
            };
        }
    }
    // A zero behind other digits continues a number, elsewhere it leads one.
    let continues = (x == '0' || y == '0')
        && equal
            .chars()
            .rev()
            .take_while(|&c| is_digit(c))
            .any(|c| c != '0');
    let start = i64::from(continues);
    let (number_a, digits_a) = leading_number(rest_a, start);
    let (number_b, digits_b) = leading_number(rest_b, start);
    number_a
        .cmp(&number_b)
        .then(digits_a.cmp(&digits_b))
        .then(x.cmp(&y))
}

/// The number a text begins with, wrapping as Go's does, and how many digits it has.
fn leading_number(text: &str, start: i64) -> (i64, usize) {
    text.chars()
        .take_while(|&c| is_digit(c))
        .fold((start, 0), |(number, count), c| {
            let digit = i64::from(u32::from(c)) - i64::from(u32::from('0'));
            (number.wrapping_mul(10).wrapping_add(digit), count + 1)
        })
}
