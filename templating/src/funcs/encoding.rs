//! Data formats: Sprig's JSON functions, and Helm's YAML, JSON and TOML functions of `pkg/engine/funcs.go`.

use golib::json;

use super::Functions;
use crate::error::Error;
use crate::exec::State;
use crate::value::{List, Map, Str, Value};

/// How `toPrettyJson` indents.
const INDENT: &str = "  ";

/// Sprig's functions.
pub(super) fn add(f: &mut Functions) {
    f.add("toJson", |state: &mut State<'_>, value: Value| {
        or_empty(state, &value, json::encode)
    });
    f.add("mustToJson", |state: &mut State<'_>, value: Value| {
        or_fail(state, &value, json::encode)
    });
    f.add("toPrettyJson", |state: &mut State<'_>, value: Value| {
        or_empty(state, &value, |data| json::encode_indent(data, "", INDENT))
    });
    f.add("mustToPrettyJson", |state: &mut State<'_>, value: Value| {
        or_fail(state, &value, |data| json::encode_indent(data, "", INDENT))
    });
    f.add("toRawJson", |state: &mut State<'_>, value: Value| {
        or_fail(state, &value, json::encode_raw)
    });
    f.alias("toRawJson", "mustToRawJson");
    f.add("fromJson", |text: Str| {
        json::decode(&text)
            .map(|data| from_data(&data))
            .unwrap_or_default()
    });
    f.add("mustFromJson", |text: Str| -> Result<Value, Error> {
        json::decode(&text)
            .map(|data| from_data(&data))
            .map_err(|e| Error::message(e.to_string()))
    });
}

/// The text of a value, nothing if it has none.
fn or_empty(
    state: &mut State<'_>,
    value: &Value,
    encode: impl Fn(&serde_json::Value) -> String,
) -> Result<String, Error> {
    match value.to_json() {
        Ok(data) => spend(state, encode(&data)),
        Err(_) => Ok(String::new()),
    }
}

fn or_fail(
    state: &mut State<'_>,
    value: &Value,
    encode: impl Fn(&serde_json::Value) -> String,
) -> Result<String, Error> {
    let data = value.to_json()?;
    spend(state, encode(&data))
}

fn spend(state: &mut State<'_>, text: String) -> Result<String, Error> {
    state.spend_bytes(text.len() as u64)?;
    Ok(text)
}

/// Decoded data as Go decodes into an `any`: every number is a float.
fn from_data(data: &serde_json::Value) -> Value {
    match data {
        serde_json::Value::Number(number) => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        serde_json::Value::Array(items) => items.iter().map(from_data).collect::<List>().into(),
        serde_json::Value::Object(entries) => from_object(entries).into(),
        other => Value::from(other),
    }
}

fn from_object(entries: &serde_json::Map<String, serde_json::Value>) -> Map {
    entries
        .iter()
        .map(|(key, value)| (key.as_str(), from_data(value)))
        .collect()
}

/// What Helm's `from…` functions return for a text they cannot read.
fn error_map(error: impl std::fmt::Display) -> Map {
    Map::from_iter([("Error", error.to_string())])
}

fn error_list(error: impl std::fmt::Display) -> List {
    List::new(vec![error.to_string().into()])
}

/// Helm's functions; its `toJson` and `fromJson` replace Sprig's.
pub(super) fn add_helm(f: &mut Functions) {
    f.add("fromJson", |text: Str| match json::decode_map(&text) {
        Ok(entries) => from_object(&entries),
        Err(error) => error_map(error),
    });
    f.add("fromJsonArray", |text: Str| {
        match json::decode_list(&text) {
            Ok(items) => items.iter().map(from_data).collect::<List>(),
            Err(error) => error_list(error),
        }
    });
}
