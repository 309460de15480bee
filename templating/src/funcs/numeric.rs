//! Sprig's `numeric.go`: conversions (spf13/cast), whole-number and decimal arithmetic, ranges of numbers.

use golib::strconv;

use super::argument::{Int64, Rest};
use super::crypto;
use super::decimal::Decimal;
use super::functions::Functions;
use crate::error::Error;
use crate::fmt;
use crate::state::State;
use crate::value::{List, Str, Value};

pub(super) fn add(f: &mut Functions) {
    f.add("int", |value: Value| to_int(&value));
    f.add("int64", |value: Value| Int64(to_int(&value)));
    f.add("float64", |value: Value| to_float(&value));
    f.add("atoi", |s: Str| {
        strconv::atoi(&*s).unwrap_or_else(|error| error.saturated())
    });
    f.add(
        "toDecimal",
        |state: &mut State<'_>, value: Value| -> Result<Int64, Error> {
            let text = fmt::to_text(state, &value)?;
            Ok(Int64(strconv::parse_int(&*text, 8, 64).unwrap_or(0)))
        },
    );
    f.add("add", |values: Rest<Value>| {
        Int64(values.iter().map(to_int).fold(0, i64::wrapping_add))
    });
    f.add("add1", |value: Value| Int64(to_int(&value).wrapping_add(1)));
    f.add("sub", |a: Value, b: Value| {
        Int64(to_int(&a).wrapping_sub(to_int(&b)))
    });
    f.add("mul", |first: Value, more: Rest<Value>| {
        Int64(
            more.iter()
                .map(to_int)
                .fold(to_int(&first), i64::wrapping_mul),
        )
    });
    f.add("div", |a: Value, b: Value| {
        divide(&a, &b, i64::wrapping_div)
    });
    f.add("mod", |a: Value, b: Value| {
        divide(&a, &b, i64::wrapping_rem)
    });
    f.add("max", |first: Value, more: Rest<Value>| {
        Int64(more.iter().map(to_int).fold(to_int(&first), i64::max))
    });
    f.alias("max", "biggest");
    f.add("min", |first: Value, more: Rest<Value>| {
        Int64(more.iter().map(to_int).fold(to_int(&first), i64::min))
    });
    f.add("maxf", |first: Value, more: Rest<Value>| {
        more.iter().map(to_float).fold(to_float(&first), max)
    });
    f.add("minf", |first: Value, more: Rest<Value>| {
        more.iter().map(to_float).fold(to_float(&first), min)
    });
    f.add("ceil", |value: Value| to_float(&value).ceil());
    f.add("floor", |value: Value| to_float(&value).floor());
    f.add("round", |value: Value, places: i64, round_on: Rest<f64>| {
        round(
            to_float(&value),
            places,
            round_on.first().copied().unwrap_or(0.5),
        )
    });
    add_decimal(f);
    f.add("until", |state: &mut State<'_>, count: i64| {
        range(state, 0, count, if count < 0 { -1 } else { 1 }).map(List::ints)
    });
    f.add(
        "untilStep",
        |state: &mut State<'_>, start: i64, stop: i64, step: i64| {
            range(state, start, stop, step).map(List::ints)
        },
    );
    f.add("seq", seq);
    f.add(
        "randInt",
        |state: &mut State<'_>, min: i64, max: i64| -> Result<i64, Error> {
            let width = u64::try_from(max.wrapping_sub(min)).unwrap_or(0);
            if width == 0 {
                return Err(Error::message("invalid argument to Intn"));
            }
            Ok(min.wrapping_add(crypto::random_below(state.host(), width) as i64))
        },
    );
}

fn add_decimal(f: &mut Functions) {
    type Operation = fn(Decimal, &Decimal) -> Result<Decimal, Error>;
    let fold = |first: f64, more: &[Value], operation: Operation| -> Result<f64, Error> {
        let mut result = Decimal::from_float(first)?;
        for value in more {
            result = operation(result, &Decimal::from_float(to_float(value))?)?;
        }
        Ok(result.to_float())
    };
    f.add("add1f", move |value: Value| {
        fold(to_float(&value), &[Value::Int(1)], |a, b| Ok(a.add(b)))
    });
    f.add("addf", move |values: Rest<Value>| {
        fold(0.0, &values, |a, b| Ok(a.add(b)))
    });
    f.add("subf", move |first: Value, more: Rest<Value>| {
        fold(to_float(&first), &more, |a, b| Ok(a.sub(b)))
    });
    f.add("mulf", move |first: Value, more: Rest<Value>| {
        fold(to_float(&first), &more, |a, b| Ok(a.mul(b)))
    });
    f.add("divf", move |first: Value, more: Rest<Value>| {
        fold(to_float(&first), &more, Decimal::div)
    });
}

/// cast's `ToInt64`: floats are cut off, text is read by its prefix, everything else is 0.
pub(super) fn to_int(value: &Value) -> i64 {
    match value {
        Value::Int(n) | Value::Int64(n) => *n,
        Value::Int32(n) => i64::from(*n),
        Value::Uint8(n) => i64::from(*n),
        Value::Uint32(n) => i64::from(*n),
        Value::Uint64(n) => *n as i64,
        Value::Float(n) => float_to_int(*n),
        Value::Bool(b) => i64::from(*b),
        Value::Str(text) => strconv::parse_int(trim_zero_decimal(text), 0, 64).unwrap_or(0),
        Value::Object(_) => enumeration(value).unwrap_or(0),
        _ => 0,
    }
}

/// cast's `ToFloat64`.
pub(super) fn to_float(value: &Value) -> f64 {
    match value {
        Value::Float(n) => *n,
        Value::Uint64(n) => *n as f64,
        Value::Str(text) => strconv::parse_float(&**text, 64).unwrap_or(0.0),
        Value::Object(_) => enumeration(value).unwrap_or(0) as f64,
        other => to_int(other) as f64,
    }
}

/// cast knows Go's months and weekdays, and no other named number.
fn enumeration(value: &Value) -> Option<i64> {
    matches!(value.type_name(), "time.Month" | "time.Weekday").then(|| value.as_signed())?
}

/// Go's conversion on the common processors: what does not fit becomes the smallest number.
fn float_to_int(n: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&n) {
        n as i64
    } else {
        i64::MIN
    }
}

/// Cuts `.0`, `.00` and so on, with points that follow it, as cast does: `5.0.` is 5 and `5.` is no number.
fn trim_zero_decimal(text: &[u8]) -> &[u8] {
    let mut found_zero = false;
    for (at, byte) in text.iter().enumerate().rev() {
        match byte {
            b'.' if found_zero => return &text[..at],
            b'.' => {}
            b'0' => found_zero = true,
            _ => break,
        }
    }
    text
}

fn divide(a: &Value, b: &Value, operation: fn(i64, i64) -> i64) -> Result<Int64, Error> {
    match to_int(b) {
        0 => Err(Error::message("runtime error: integer divide by zero")),
        divisor => Ok(Int64(operation(to_int(a), divisor))),
    }
}

/// `math.Max`
fn max(a: f64, b: f64) -> f64 {
    if a == f64::INFINITY || b == f64::INFINITY {
        f64::INFINITY
    } else if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a == 0.0 && a == b {
        if a.is_sign_negative() { b } else { a }
    } else {
        a.max(b)
    }
}

/// `math.Min`
fn min(a: f64, b: f64) -> f64 {
    let least = -max(-a, -b);
    // What Go makes is the NaN without a sign, which TOML shows.
    if least.is_nan() { f64::NAN } else { least }
}

/// Rounds up where the fraction after so many places is at least `round_on`. The fraction of a negative number is
/// negative, so those are always rounded down, as in Sprig.
fn round(value: f64, places: i64, round_on: f64) -> f64 {
    let power = power_of_ten(places as f64);
    let shifted = power * value;
    let rounded = if shifted % 1.0 >= round_on {
        shifted.ceil()
    } else {
        shifted.floor()
    };
    rounded / power
}

/// Go's `math.Pow(10, y)` for a whole `y`: its way of multiplying decides about the last digit.
fn power_of_ten(y: f64) -> f64 {
    if y == 0.0 {
        return 1.0;
    }
    let mut bits = if y.abs() >= 9.2e18 {
        i64::MAX as u64
    } else {
        y.abs() as u64
    };
    // 10 is 0.625 * 2^4.
    let (mut factor, mut exponent) = (0.625_f64, 4_i64);
    let (mut fraction, mut total) = (1.0_f64, 0_i64);
    while bits != 0 {
        if exponent.abs() > 1 << 12 {
            total += exponent;
            break;
        }
        if bits & 1 == 1 {
            fraction *= factor;
            total += exponent;
        }
        factor *= factor;
        exponent *= 2;
        if factor < 0.5 {
            factor += factor;
            exponent -= 1;
        }
        bits >>= 1;
    }
    if y < 0.0 {
        fraction = 1.0 / fraction;
        total = -total;
    }
    // In two steps, so that a subnormal result is rounded once.
    let half = total.clamp(-2400, 2400) / 2;
    fraction * 2.0_f64.powi(half as i32) * 2.0_f64.powi((total.clamp(-2400, 2400) - half) as i32)
}

/// The numbers from `start` up or down to `stop`, without it; none if the step goes the other way. A step that overflows goes on
/// from the other end, as in Go.
fn range(state: &mut State<'_>, start: i64, stop: i64, step: i64) -> Result<Vec<i64>, Error> {
    let distance = i128::from(stop) - i128::from(start);
    let step_size = i128::from(step);
    if distance == 0 || step == 0 || (distance < 0) != (step < 0) {
        return Ok(Vec::new());
    }
    let mut numbers = Vec::new();
    let (mut next, mut is_before) = (start, true);
    while is_before {
        // As many as there are until the stop, or the overflow.
        let distance = i128::from(stop) - i128::from(next);
        let count = (distance.abs() + step_size.abs() - 1) / step_size.abs();
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        state.spend_steps(count)?;
        state.spend_bytes(count.saturating_mul(size_of::<Value>() as u64))?;
        numbers
            .extend((0..count).map(|index| next.wrapping_add((index as i64).wrapping_mul(step))));
        next = next.wrapping_add((count as i64).wrapping_mul(step));
        is_before = if step > 0 { next < stop } else { next > stop };
    }
    Ok(numbers)
}

/// Like the shell's `seq`: the end is included.
fn seq(state: &mut State<'_>, parameters: Rest<i64>) -> Result<String, Error> {
    let direction = |start: i64, end: i64| if end < start { -1 } else { 1 };
    let (start, end, step) = match *parameters.as_slice() {
        [end] => (1, end, direction(1, end)),
        [start, end] => (start, end, direction(start, end)),
        [start, step, end] if end < start && step > 0 => (start, end, 0),
        [start, step, end] => (start, end, step),
        _ => return Ok(String::new()),
    };
    let stop = end.wrapping_add(direction(start, end));
    let numbers = range(state, start, stop, step)?;
    let texts: Vec<String> = numbers.iter().map(i64::to_string).collect();
    Ok(texts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_follow_cast() {
        for (text, want) in [
            ("012", 10),
            ("0x1f", 31),
            ("1_000", 1000),
            ("5.0", 5),
            ("5.", 0),
            ("5.0.", 5),
            ("5..0", 0),
            ("1.9", 0),
            (" 5", 0),
            ("0", 0),
            (".0", 0),
        ] {
            assert_eq!(to_int(&text.into()), want, "{text}");
        }
        assert_eq!(to_int(&Value::Float(1e300)), i64::MIN);
        assert_eq!(to_float(&"1e3".into()), 1000.0);
    }

    /// The answers are Go's.
    #[test]
    fn a_step_that_overflows_goes_on_from_the_other_end() {
        let mut set = crate::TemplateSet::new("t", crate::Dialect::Helm.functions());
        let template = r#"{{ untilStep 5 20 9223372036854775807 }}{{ untilStep -5 -20 -9223372036854775807 }}"#;
        set.parse("t", template).unwrap();
        let set = std::sync::Arc::new(set);
        let mut renderer = crate::Renderer::new(set, &crate::SystemHost, crate::Limits::default());
        assert_eq!(
            String::from_utf8(renderer.render("t", &Value::Nil).unwrap()).unwrap(),
            "[5 -9223372036854775804 3 -9223372036854775806 1 -9223372036854775808 -1][-5 9223372036854775804 -3 9223372036854775806 -1]"
        );
    }

    #[test]
    fn powers_of_ten_are_exact_where_they_can_be() {
        for places in -5..=15 {
            let text = format!("1e{places}");
            assert_eq!(
                power_of_ten(f64::from(places)),
                text.parse::<f64>().unwrap(),
                "{places}"
            );
        }
        assert_eq!(power_of_ten(400.0), f64::INFINITY);
        assert_eq!(power_of_ten(-400.0), 0.0);
        assert_eq!(round(-2.5, 0, 0.5), -3.0);
        assert_eq!(round(123.5555, 3, 0.5), 123.556);
    }
}
