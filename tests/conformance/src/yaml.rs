//! `yaml.json`: reading and writing YAML as sigs.k8s.io/yaml does.

use golib::budget::Budget;
use golib::yaml::Error;
use golib::{json, yaml};
use serde_json::Value;

use crate::{Case, Outcome};

/// Levels at which Go's decoders stop.
const GO_DEPTH: usize = 10_000;

pub(crate) fn run(case: &Case) -> Outcome {
    let answer = match case.kind() {
        "decode" => decode(case),
        "decode_strict" => {
            let text = case.bytes("yaml").unwrap_or_default();
            yaml::decode_strict(&text).and_then(|_| decode(case))
        }
        "encode" => {
            let value = json::floats(case.get("value").cloned().unwrap_or_default());
            yaml::encode(&value)
                .map(|text| Outcome::of_texts(&text, case.text("yaml").unwrap_or("?")))
        }
        "json_to_yaml" => {
            let text = case.bytes("json").unwrap_or_default();
            yaml::json_to_yaml(&text)
                .map(|text| Outcome::of_texts(&text, case.text("yaml").unwrap_or("?")))
        }
        "roundtrip" => roundtrip(case),
        other => return Outcome::unknown(other),
    };
    match (answer, case.text("error")) {
        (Ok(_), Some(error)) => Outcome::failed("no error", error),
        (Ok(outcome), None) => outcome,
        (Err(error), Some(want)) => Outcome::of_texts(&error.to_string(), want),
        (Err(error), None) => Outcome::failed(error, "no error"),
    }
}

fn decode(case: &Case) -> Result<Outcome, Error> {
    let text = case.bytes("yaml").unwrap_or_default();
    let want = case.get("value").unwrap_or(&Value::Null);
    let got = match case.text("into") {
        Some("map") => match yaml::decode_into_map(&text)? {
            entries if entries.is_empty() && want.is_null() => Value::Null,
            entries => Value::Object(entries),
        },
        _ => yaml::Decoder::new().decode(&text, &mut Budget::default().with_depth(GO_DEPTH))?,
    };
    if let Some(depth) = case.get("depth").and_then(Value::as_u64) {
        return Ok(Outcome::of_values(&depth_of(&got).into(), &depth.into()));
    }
    let json = match case.text("json") {
        // Go escapes the U+FFFD it puts for bytes that are not UTF-8; a decoded value no longer tells.
        Some(want) if want.contains("\\ufffd") => {
            Outcome::of_texts(&json::encode(&got), &want.replace("\\ufffd", "\u{fffd}"))
        }
        Some(want) => Outcome::of_texts(&json::encode(&got), want),
        None => Outcome::Passed,
    };
    Ok(Outcome::all([
        Outcome::of_values(&json::floats(got), want),
        json,
    ]))
}

fn roundtrip(case: &Case) -> Result<Outcome, Error> {
    let value = yaml::decode_floats(&case.bytes("yaml").unwrap_or_default())?;
    let out = yaml::encode(&value)?;
    Ok(Outcome::all([
        Outcome::of_values(&value, case.get("value").unwrap_or(&Value::Null)),
        Outcome::of_texts(&out, case.text("out").unwrap_or("?")),
    ]))
}

/// How many collections enclose the innermost place.
fn depth_of(value: &Value) -> u64 {
    let mut deepest = 0;
    let mut pending = vec![(value, 1)];
    while let Some((value, depth)) = pending.pop() {
        match value {
            Value::Array(items) => pending.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(entries) => {
                pending.extend(entries.values().map(|item| (item, depth + 1)));
            }
            _ => continue,
        }
        deepest = deepest.max(depth);
    }
    deepest
}
