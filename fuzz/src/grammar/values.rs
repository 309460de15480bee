//! Random data.

use serde_json::{Map, Value as Json, json};

use super::texts;
use crate::Choices;

/// Keys whose natural order is the same to every sorting algorithm.
pub(super) const KEYS: [&str; 12] = [
    "a", "b", "c", "name", "k1", "key-x", "true", "1", "", "é", "a.b", "Z",
];

const NUMBERS: [f64; 22] = [
    0.0,
    1.0,
    2.0,
    -1.0,
    3.0,
    0.5,
    -0.0,
    10.0,
    42.0,
    100.0,
    1e6,
    1e20,
    1e21,
    1e-7,
    123456.789,
    -2.5,
    9007199254740993.0,
    2147483648.0,
    9223372036854775807.0,
    1.7976931348623157e308,
    5e-324,
    0.1,
];

/// A number as Helm has it: always a float.
pub(super) fn number(choices: &mut Choices<'_>) -> Json {
    match choices.below(3) {
        0 => json!(choices.below(20) as f64),
        1 => json!(NUMBERS[choices.below(NUMBERS.len())]),
        _ => json!((choices.below(65536) as f64 - 32768.0) / [1.0, 8.0, 10.0][choices.below(3)]),
    }
}

/// Any value, nested at most so deep.
pub fn value(choices: &mut Choices<'_>, depth: usize) -> Json {
    match choices.below(if depth == 0 { 5 } else { 8 }) {
        0 => Json::Null,
        1 => Json::Bool(choices.below(2) == 1),
        2 => number(choices),
        3 | 4 => Json::String(texts::words(choices)),
        5 => list(choices, depth),
        _ => object(choices, depth),
    }
}

/// A value of few levels.
pub fn small_value(choices: &mut Choices<'_>) -> Json {
    value(choices, 3)
}

fn list(choices: &mut Choices<'_>, depth: usize) -> Json {
    (0..choices.below(4))
        .map(|_| value(choices, depth.saturating_sub(1)))
        .collect()
}

fn object(choices: &mut Choices<'_>, depth: usize) -> Json {
    let mut entries = Map::new();
    for _ in 0..choices.below(4) {
        let key = match choices.chance(15) {
            true => texts::words(choices),
            false => choices.pick(&KEYS).to_owned(),
        };
        entries.insert(key, value(choices, depth.saturating_sub(1)));
    }
    Json::Object(entries)
}

/// The data of a template: one field for each kind, see `FIELDS` of the expressions.
pub(super) fn dot(choices: &mut Choices<'_>) -> Json {
    let texts: Vec<Json> = (0..choices.below(4))
        .map(|_| texts::words(choices).into())
        .collect();
    json!({
        "s": texts::words(choices),
        "t": texts,
        "n": number(choices),
        "i": choices.below(12) as f64,
        "b": choices.below(2) == 1,
        "l": list(choices, 2),
        "d": object(choices, 2),
        "x": value(choices, 2),
        "z": null,
    })
}
