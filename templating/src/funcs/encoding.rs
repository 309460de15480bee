//! Data formats: Sprig's JSON, base64 and base32 functions, and Helm's YAML, JSON and TOML functions of `pkg/engine/funcs.go`.

use std::collections::BTreeMap;

use golib::budget::{Budget, TooLarge};
use golib::{base32, base64, json, toml, yaml};

use super::functions::Functions;
use super::moment::{self, Moment};
use super::pretty::pretty;
use crate::error::Error;
use crate::state::State;
use crate::value::json::from_json;
use crate::value::{LIST, List, MAP, MAPS, Map, Str, Value};

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
        let text = or_empty(state, &value, json::encode)?;
        indented(state, &text)
    });
    f.add("mustToPrettyJson", |state: &mut State<'_>, value: Value| {
        let text = or_fail(state, &value, json::encode)?;
        indented(state, &text)
    });
    f.add("toRawJson", |state: &mut State<'_>, value: Value| {
        or_fail(state, &value, json::encode_raw)
    });
    f.alias("toRawJson", "mustToRawJson");
    f.add("b64enc", |s: Str| base64::encode(&*s));
    f.add("b64dec", |s: Str| {
        base64::decode(&*s).unwrap_or_else(|error| error.to_string().into_bytes())
    });
    f.add("b32enc", |s: Str| base32::encode(&*s));
    f.add("b32dec", |s: Str| {
        base32::decode(&*s).unwrap_or_else(|error| error.to_string().into_bytes())
    });
    f.add("fromJson", |state: &mut State<'_>, text: Str| {
        spend_text(state, &text)?;
        match json::decode_within(&text, &mut state.budget()) {
            Ok(data) => Ok(from_data(data)),
            Err(json::Error::TooLarge(error)) => Err(too_large(error)),
            Err(_) => Ok(Value::default()),
        }
    });
    f.add(
        "mustFromJson",
        |state: &mut State<'_>, text: Str| -> Result<Value, Error> {
            spend_text(state, &text)?;
            json::decode_within(&text, &mut state.budget())
                .map(from_data)
                .map_err(|error| match error {
                    json::Error::TooLarge(error) => too_large(error),
                    error => Error::message(error.to_string()),
                })
        },
    );
}

/// Counts a text about to be read: the work, and the strings that will be made of it.
fn spend_text(state: &mut State<'_>, text: &[u8]) -> Result<(), Error> {
    state.spend_steps(text.len() as u64 / 16)?;
    state.spend_bytes(text.len() as u64)
}

/// Too much to hold is never left to the template to look at.
fn too_large(error: TooLarge) -> Error {
    Error::limit(error.to_string())
}

/// The text of a value, nothing if it has none.
fn or_empty(
    state: &mut State<'_>,
    value: &Value,
    encode: impl Fn(&serde_json::Value) -> String,
) -> Result<String, Error> {
    or_fail(state, value, encode).or_else(nothing)
}

fn or_fail(
    state: &mut State<'_>,
    value: &Value,
    encode: impl Fn(&serde_json::Value) -> String,
) -> Result<String, Error> {
    let text = to_json(state, value, encode)?;
    spend(state, text)
}

/// The text of JSON over several lines.
fn indented(state: &mut State<'_>, text: &str) -> Result<String, Error> {
    spend(state, json::indent(text, INDENT))
}

/// The empty text that a failed function gives; but a limit is a limit.
fn nothing(error: Error) -> Result<String, Error> {
    match error.is_limit() {
        true => Err(error),
        false => Ok(String::new()),
    }
}

/// The value as data, its size counted whether that succeeds or not.
fn to_data(state: &mut State<'_>, value: &Value) -> Result<serde_json::Value, Error> {
    let mut nodes = 0;
    let data = value.to_json_counted(&mut nodes);
    state.spend_steps(nodes as u64 / NODES_A_STEP)?;
    data
}

/// Values that can be turned into data in the time of a step, about.
const NODES_A_STEP: u64 = 4;

/// Go writes a byte that is no UTF-8 as the escape `\ufffd`, and U+FFFD itself as it is.
fn to_json(
    state: &mut State<'_>,
    value: &Value,
    encode: impl Fn(&serde_json::Value) -> String,
) -> Result<String, Error> {
    let mut nodes = 0;
    let text = value.to_json_text(&encode, &mut nodes);
    state.spend_steps(nodes as u64 / NODES_A_STEP)?;
    let text = text?;
    if !text.contains(char::REPLACEMENT_CHARACTER) {
        return Ok(text);
    }
    // Rare: write once more, with a character in the place of such bytes that the text does not have.
    let Some(mark) = ('\u{E000}'..='\u{F8FF}').find(|&mark| !text.contains(mark)) else {
        return Ok(text);
    };
    let text = marked(value, &|_| mark).to_json_text(&encode, &mut 0)?;
    Ok(text.replace(mark, r"\ufffd"))
}

/// The value with a mark for each byte that is no UTF-8; only of values that nest as deep as JSON may.
fn marked(value: &Value, mark: &dyn Fn(u8) -> char) -> Value {
    let mark_text = |text: &Str| -> Str {
        if text.as_str().is_some() {
            return text.clone();
        }
        let mut out = String::with_capacity(text.len());
        for chunk in text.utf8_chunks() {
            out.push_str(chunk.valid());
            out.extend(chunk.invalid().iter().map(|&byte| mark(byte)));
        }
        out.into()
    };
    match value {
        Value::Str(text) => mark_text(text).into(),
        Value::List(list) if !list.is_nil() => list
            .iter()
            .map(|item| marked(item, mark))
            .collect::<List>()
            .into(),
        Value::Map(map) if !map.is_nil() => {
            let entries = map.entries().into_iter();
            entries
                .map(|(key, item)| (mark_text(&key), marked(&item, mark)))
                .collect::<Map>()
                .into()
        }
        other => other.clone(),
    }
}

fn spend(state: &mut State<'_>, text: String) -> Result<String, Error> {
    state.spend_bytes(text.len() as u64)?;
    Ok(text)
}

/// Decoded data as Go decodes into an `any`: every number is a float.
fn from_data(data: serde_json::Value) -> Value {
    from_json(data, |number| {
        Value::Float(number.as_f64().unwrap_or(f64::NAN))
    })
}

fn from_object(entries: serde_json::Map<String, serde_json::Value>) -> Map {
    let entries = entries.into_iter();
    entries
        .map(|(key, value)| (key, from_data(value)))
        .collect()
}

fn from_items(items: Vec<serde_json::Value>) -> List {
    items.into_iter().map(from_data).collect()
}

/// The error for a number that stands where a collection should.
fn no_collection(expected: &'static str) -> json::Error {
    json::Error::wrong_type(&0.into(), expected)
}

/// What Helm's `from…` functions return for a text they cannot read.
fn error_map(error: impl std::fmt::Display) -> Map {
    Map::from_iter([("Error", error.to_string())])
}

fn error_list(error: impl std::fmt::Display) -> List {
    List::new(vec![error.to_string().into()])
}

/// Helm's functions; its `fromJson` replaces Sprig's.
pub(super) fn add_helm(f: &mut Functions) {
    f.add("fromJson", |state: &mut State<'_>, text: Str| {
        spend_text(state, &text)?;
        from_json_map(&text, &mut state.budget())
    });
    f.add("fromJsonArray", |state: &mut State<'_>, text: Str| {
        spend_text(state, &text)?;
        Ok::<_, Error>(match json::decode_partly(&text, &mut state.budget()) {
            Err(json::Error::TooLarge(error)) => return Err(too_large(error)),
            Ok((serde_json::Value::Null, None)) => List::nil(&LIST),
            // All there is, is a number that no float can hold.
            Ok((serde_json::Value::Null, Some(_))) => error_list(no_collection(LIST.name)),
            Ok((serde_json::Value::Array(items), None)) => from_items(items),
            Ok((serde_json::Value::Array(_), Some(error))) | Err(error) => error_list(error),
            Ok((other, _)) => error_list(json::Error::wrong_type(&other, LIST.name)),
        })
    });
    f.add(
        "toYaml",
        |state: &mut State<'_>, value: Value| match to_yaml(state, &value) {
            Ok(text) => spend(state, text),
            Err(error) => nothing(error),
        },
    );
    f.add("mustToYaml", |state: &mut State<'_>, value: Value| {
        let text = to_yaml(state, &value)?;
        spend(state, text)
    });
    f.add("toYamlPretty", |state: &mut State<'_>, value: Value| {
        // What the library cannot write it panics at.
        let data = pretty(state, &value, 0)?;
        spend(state, without_newline(data.encode()))
    });
    f.add("fromYaml", |state: &mut State<'_>, text: Str| {
        spend_text(state, &text)?;
        let decoder = yaml::Decoder::new().floats();
        match decoder.decode_into_map(&text, &mut state.budget()) {
            Ok(entries) => Ok(from_object(entries)),
            Err(yaml::Error::TooLarge(error)) => Err(too_large(error)),
            Err(error) => Ok(error_map(error)),
        }
    });
    f.add("fromYamlArray", |state: &mut State<'_>, text: Str| {
        spend_text(state, &text)?;
        let decoder = yaml::Decoder::new().floats();
        match decoder.decode_into_list(&text, &mut state.budget()) {
            Ok(items) => Ok(from_items(items)),
            Err(yaml::Error::TooLarge(error)) => Err(too_large(error)),
            Err(error) => Ok(error_list(error)),
        }
    });
    f.add(
        "toToml",
        |state: &mut State<'_>, value: Value| match to_toml(state, &value) {
            Err(TomlFailure::Encode(error)) => Ok(error.to_string().into_bytes()),
            Ok(text) => Ok(text),
            Err(TomlFailure::Panic(error)) => Err(error),
        },
    );
    f.add(
        "mustToToml",
        |state: &mut State<'_>, value: Value| match to_toml(state, &value) {
            Ok(text) => Ok(text),
            Err(TomlFailure::Encode(error)) => Err(Error::message(error.to_string())),
            Err(TomlFailure::Panic(error)) => Err(error),
        },
    );
    f.add("fromToml", |state: &mut State<'_>, text: Str| {
        state.spend_parse(text.len())?;
        state.spend_bytes(text.len() as u64)?;
        match toml::decode_within(&text, &mut state.budget()) {
            Ok(entries) => {
                let entries = entries.into_iter();
                Ok(entries
                    .map(|(key, value)| (key, from_toml(value)))
                    .collect())
            }
            Err(toml::Error::TooLarge(error)) => Err(too_large(error)),
            Err(error) => Ok(error_map(error)),
        }
    });
}

/// A map; what is wrong with the text stands under `Error`, beside what could be read.
fn from_json_map(text: &[u8], budget: &mut Budget) -> Result<Map, Error> {
    let (entries, error) = match json::decode_partly(text, budget) {
        Ok((serde_json::Value::Null, None)) => return Ok(Map::nil(&MAP)),
        Ok((serde_json::Value::Null, Some(_))) => return Ok(error_map(no_collection(MAP.name))),
        Ok((serde_json::Value::Object(entries), error)) => (entries, error),
        Ok((other, _)) => return Ok(error_map(json::Error::wrong_type(&other, MAP.name))),
        Err(json::Error::TooLarge(error)) => return Err(too_large(error)),
        Err(error) => return Ok(error_map(error)),
    };
    let error = error.map(|error| ("Error".to_owned(), Value::from(error.to_string())));
    let entries = entries
        .into_iter()
        .map(|(key, value)| (key, from_data(value)));
    Ok(entries.chain(error).collect())
}

/// YAML as Helm writes it: by way of JSON, without the newline at the end.
fn to_yaml(state: &mut State<'_>, value: &Value) -> Result<String, Error> {
    let mut direct = DirectYaml {
        writer: yaml::Writer::new(),
        nodes: 0,
        max_bytes: state.bytes_left(),
    };
    let is_written = direct.write(value, 0);
    state.spend_steps(direct.nodes as u64 / NODES_A_STEP)?;
    // Text that outgrows the render's limit ends in that error as soon as it is paid for.
    if is_written || direct.is_too_long() {
        return Ok(without_newline(direct.writer.finish()));
    }
    let data = to_data(state, value).map_err(|error| match error.is_limit() {
        true => error,
        false => error.context("error marshaling into JSON"),
    })?;
    yaml::encode(&data)
        .map(without_newline)
        .map_err(|error| Error::message(error.to_string()))
}

/// Writes plain data without the way over JSON.
struct DirectYaml {
    writer: yaml::Writer,
    nodes: usize,
    max_bytes: u64,
}

impl DirectYaml {
    fn is_too_long(&self) -> bool {
        self.writer.len() as u64 > self.max_bytes
    }

    /// `false` when there is something in the value that only JSON knows how to treat, or too much.
    fn write(&mut self, value: &Value, depth: usize) -> bool {
        /// Shared lists are spelled out; what is larger is left to the limit of [`Value::to_json`].
        const MAX_NODES: usize = 1_000_000;
        self.nodes += 1;
        if depth > yaml::MAX_DIRECT_DEPTH || self.nodes > MAX_NODES || self.is_too_long() {
            return false;
        }
        match value {
            Value::Nil => self.writer.null(),
            Value::Bool(value) => self.writer.boolean(*value),
            Value::Int(n) | Value::Int64(n) => self.writer.integer(*n),
            Value::Int32(n) => self.writer.integer((*n).into()),
            Value::Uint8(n) => self.writer.unsigned((*n).into()),
            Value::Uint32(n) => self.writer.unsigned((*n).into()),
            Value::Uint64(n) => self.writer.unsigned(*n),
            Value::Float(n) => return self.writer.float(*n),
            Value::Str(text) => return text.as_str().is_some_and(|text| self.writer.text(text)),
            Value::List(list) if list.is_nil() => self.writer.null(),
            Value::List(list) => {
                self.writer.begin_list(list.is_empty());
                for item in list.iter() {
                    self.writer.item();
                    if !self.write(item, depth + 1) {
                        return false;
                    }
                }
                self.writer.end(list.is_empty());
            }
            Value::Map(map) if map.is_nil() => self.writer.null(),
            Value::Map(map) => return map.with(|entries| self.entries(entries, depth)),
            Value::Complex(..) | Value::Bytes(_) | Value::Object(_) => return false,
        }
        true
    }

    fn entries(&mut self, entries: &BTreeMap<Str, Value>, depth: usize) -> bool {
        self.writer.begin_mapping(entries.is_empty());
        let named = entries
            .iter()
            .map(|(key, item)| Some((key.as_str()?, item)));
        let Some(mut named) = named.collect::<Option<Vec<_>>>() else {
            return false;
        };
        yaml::Writer::sort(&mut named);
        for (key, item) in &named {
            if !self.writer.key(key) || !self.write(item, depth + 1) {
                return false;
            }
        }
        self.writer.end(entries.is_empty());
        true
    }
}

fn without_newline(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
    }
    text
}

/// Why a value is no TOML: the library says so, or it panics.
enum TomlFailure {
    Encode(toml::Error),
    Panic(Error),
}

/// Go writes bytes that are no UTF-8 as they are. The library writes text: they pass through it as its last private characters.
fn to_toml(state: &mut State<'_>, value: &Value) -> Result<Vec<u8>, TomlFailure> {
    const MARKS: std::ops::RangeInclusive<char> = '\u{10FF80}'..='\u{10FFFF}';
    if value.is_untyped_nil() {
        return Err(TomlFailure::Panic(super::reflect::type_of_nothing()));
    }
    let text = toml_text(state, value)?;
    if !text.contains(char::REPLACEMENT_CHARACTER) || text.contains(|c| MARKS.contains(&c)) {
        return Ok(text.into_bytes());
    }
    let first = u32::from(*MARKS.start()) - 0x80;
    let mark = |byte: u8| char::from_u32(first + u32::from(byte)).unwrap_or_default();
    let text = toml_text(state, &marked(value, &mark))?;
    let mut out = Vec::with_capacity(text.len());
    for c in text.chars() {
        match u8::try_from(u32::from(c).wrapping_sub(first)) {
            Ok(byte) if MARKS.contains(&c) => out.push(byte),
            _ => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Ok(out)
}

fn toml_text(state: &mut State<'_>, value: &Value) -> Result<String, TomlFailure> {
    let data = toml_data(state, value, 0).map_err(TomlFailure::Panic)?;
    let text = toml::encode(&data).map_err(TomlFailure::Encode)?;
    spend(state, text).map_err(TomlFailure::Panic)
}

/// How deep a value may nest on its way to TOML; the library's own limit is lower.
const MAX_TOML_DEPTH: usize = 1000;

fn toml_data(state: &mut State<'_>, value: &Value, depth: usize) -> Result<toml::Value, Error> {
    state.spend_steps(1)?;
    state.spend_bytes(size_of::<toml::Value>() as u64)?;
    state.check_stack()?;
    if depth > MAX_TOML_DEPTH {
        return Err(Error::message("value nests too deeply for TOML"));
    }
    // Inside another one a nil list or map is no value.
    if depth > 0 && value.is_nil() {
        return Ok(toml::Value::Nil);
    }
    Ok(match value {
        Value::Nil => toml::Value::Nil,
        Value::Bool(b) => toml::Value::Bool(*b),
        Value::Int(n) | Value::Int64(n) => toml::Value::Integer(*n),
        Value::Int32(n) => toml::Value::Integer(i64::from(*n)),
        Value::Uint8(n) => toml::Value::Integer(i64::from(*n)),
        Value::Uint32(n) => toml::Value::Integer(i64::from(*n)),
        Value::Uint64(n) => toml::Value::Unsigned(*n),
        Value::Float(n) => toml::Value::Float(*n),
        Value::Str(text) => {
            state.spend_bytes(text.len() as u64)?;
            toml::Value::String(text.to_string())
        }
        Value::List(_) | Value::Bytes(_) => {
            let items = value.items().unwrap_or_default();
            let items = items.iter().map(|item| toml_data(state, item, depth + 1));
            toml::Value::Array(items.collect::<Result<_, _>>()?)
        }
        Value::Map(map) => {
            let entries = map.entries().into_iter();
            let entries = entries
                .map(|(key, item)| Ok((key.to_string(), toml_data(state, &item, depth + 1)?)));
            toml::Value::Table(entries.collect::<Result<_, Error>>()?)
        }
        Value::Object(object) => match (moment::object::<Moment>(value), object.scalar()) {
            (Some(Moment(time)), _) => toml::Value::Datetime(time),
            (None, Some(scalar)) => match object.text() {
                // Of the named numbers only this one is known to the library.
                Some(text) if object.type_name() == moment::DURATION => {
                    toml::Value::String(text.to_string())
                }
                _ => toml_data(state, &scalar, depth + 1)?,
            },
            // An object that makes its own text for JSON does so here.
            (None, None) if let Ok(Some(Value::Str(text))) = object.json() => {
                toml::Value::String(text.to_string())
            }
            (None, None) => {
                let fields = object.fields().into_iter();
                let fields = fields.filter(|(name, _)| !object.unexported().contains(name));
                let fields = fields
                    .map(|(key, item)| Ok((key.to_owned(), toml_data(state, &item, depth + 1)?)));
                toml::Value::Struct(fields.collect::<Result<_, Error>>()?)
            }
        },
        Value::Complex(..) => toml::Value::Complex,
    })
}

/// Decoded TOML as the Go library decodes into an `any`: integers are `int64`.
fn from_toml(value: toml::Value) -> Value {
    match value {
        toml::Value::Nil | toml::Value::Complex => Value::Nil,
        toml::Value::Bool(b) => Value::Bool(b),
        toml::Value::Integer(n) => Value::Int64(n),
        toml::Value::Unsigned(n) => Value::Uint64(n),
        toml::Value::Float(n) => Value::Float(n),
        toml::Value::String(text) => text.into(),
        toml::Value::Datetime(time) => Moment(time).into(),
        toml::Value::Array(items) => items.into_iter().map(from_toml).collect::<List>().into(),
        toml::Value::Tables(items) => {
            let items = items.into_iter().map(from_toml);
            List::typed(&MAPS, items.collect()).into()
        }
        toml::Value::Table(entries) => toml_map(entries),
        toml::Value::Struct(fields) => toml_map(fields),
    }
}

fn toml_map(entries: impl IntoIterator<Item = (String, toml::Value)>) -> Value {
    let entries = entries.into_iter();
    let entries = entries.map(|(key, item)| (key, from_toml(item)));
    entries.collect::<Map>().into()
}
