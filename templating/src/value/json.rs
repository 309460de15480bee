//! From plain data to values and back.

use std::collections::BTreeMap;

use super::{List, MAP, Map, Str, Value};
use crate::error::Error;

/// Integers become `int64`, all other numbers `float64`, as Helm stores them.
impl From<&serde_json::Value> for Value {
    fn from(data: &serde_json::Value) -> Self {
        match data {
            serde_json::Value::Null => Value::Nil,
            serde_json::Value::Bool(b) => Value::Bool(*b),
            serde_json::Value::Number(number) => match number.as_i64() {
                Some(integer) => Value::Int64(integer),
                None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            serde_json::Value::String(text) => Value::string(text.as_str()),
            serde_json::Value::Array(items) => {
                items.iter().map(Value::from).collect::<List>().into()
            }
            serde_json::Value::Object(entries) => entries
                .iter()
                .map(|(k, v)| (k.as_str(), Value::from(v)))
                .collect::<Map>()
                .into(),
        }
    }
}

impl From<serde_json::Value> for Value {
    fn from(data: serde_json::Value) -> Self {
        from_json(data, |number| match number.as_i64() {
            Some(integer) => Value::Int64(integer),
            None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        })
    }
}

/// A list or map of the data whose elements are being made.
enum Open {
    List(std::vec::IntoIter<serde_json::Value>, Vec<Value>),
    Map(serde_json::map::IntoIter, String, BTreeMap<Str, Value>),
}

/// Data as a value. Takes the data apart as it goes, so that depth costs no stack, neither here nor when it is dropped.
pub(crate) fn from_json(
    data: serde_json::Value,
    number: impl Fn(&serde_json::Number) -> Value,
) -> Value {
    let mut open: Vec<Open> = Vec::new();
    let mut next = data;
    loop {
        let mut made = match next {
            serde_json::Value::Null => Some(Value::Nil),
            serde_json::Value::Bool(b) => Some(Value::Bool(b)),
            serde_json::Value::Number(n) => Some(number(&n)),
            serde_json::Value::String(text) => Some(Value::string(text)),
            serde_json::Value::Array(items) => {
                let list = Vec::with_capacity(items.len());
                open.push(Open::List(items.into_iter(), list));
                None
            }
            serde_json::Value::Object(entries) => {
                let map = BTreeMap::new();
                open.push(Open::Map(entries.into_iter(), String::new(), map));
                None
            }
        };
        // Puts what is complete into what is open, up to the next piece of data.
        next = loop {
            match (open.last_mut(), made.take()) {
                (None, value) => return value.unwrap_or_default(),
                (Some(Open::List(_, list)), Some(value)) => list.push(value),
                (Some(Open::Map(_, key, map)), Some(value)) => {
                    map.insert(std::mem::take(key).into(), value);
                }
                (Some(Open::List(items, list)), None) => match items.next() {
                    Some(item) => break item,
                    None => {
                        made = Some(List::new(std::mem::take(list)).into());
                        open.pop();
                    }
                },
                (Some(Open::Map(entries, key, map)), None) => match entries.next() {
                    Some((name, item)) => {
                        *key = name;
                        break item;
                    }
                    None => {
                        made = Some(Map::typed(&MAP, std::mem::take(map)).into());
                        open.pop();
                    }
                },
            }
        };
    }
}

/// How deep a value may nest; deeper than any real one, and a map that contains itself ends here.
const MAX_DEPTH: usize = 1000;
/// How many values the data may have. Shared lists are spelled out, so a small template can ask for any number.
const MAX_NODES: usize = 1_500_000;
/// What the data of a list and of a map takes in memory, in values.
const LIST_NODES: usize = 3;
const MAP_NODES: usize = 15;
/// Bytes of text that count as one value.
const NODE_BYTES: usize = 32;

impl Value {
    /// What Go's `encoding/json` makes of the value, as data: times as text, bytes as base64, structs as objects.
    ///
    /// ```
    /// use serde_json::json;
    /// use templating::{Map, Value};
    ///
    /// let value: Value = Map::from_iter([("replicas", 3)]).into();
    /// assert_eq!(value.to_json()?, json!({ "replicas": 3 }));
    /// # Ok::<(), templating::Error>(())
    /// ```
    ///
    /// # Errors
    /// In Go's words, for numbers JSON has no text for and for values that contain themselves.
    pub fn to_json(&self) -> Result<serde_json::Value, Error> {
        self.to_json_counted(&mut 0)
    }

    /// As [`Value::to_json`]; adds to `nodes` how many values were looked at.
    pub(crate) fn to_json_counted(&self, nodes: &mut usize) -> Result<serde_json::Value, Error> {
        to_json(self, nodes)
    }

    /// The JSON text of the value. `encode` prints data; structs stand in it with their fields in order.
    /// Adds to `nodes` how many values were looked at.
    ///
    /// # Errors
    /// As [`Value::to_json`].
    pub(crate) fn to_json_text(
        &self,
        encode: impl Fn(&serde_json::Value) -> String,
        nodes: &mut usize,
    ) -> Result<String, Error> {
        // This also bounds the walk below.
        let data = self.to_json_counted(nodes)?;
        if self.has_ordered_fields() {
            let mut out = String::new();
            self.write_json(&mut out, &encode)?;
            return Ok(out);
        }
        Ok(encode(&data))
    }

    fn has_ordered_fields(&self) -> bool {
        match self {
            Value::List(list) => list.iter().any(Value::has_ordered_fields),
            Value::Map(map) => map.with(|entries| entries.values().any(Value::has_ordered_fields)),
            Value::Object(object) => object.json_fields().is_some(),
            _ => false,
        }
    }

    fn write_json(
        &self,
        out: &mut String,
        encode: &impl Fn(&serde_json::Value) -> String,
    ) -> Result<(), Error> {
        let fields: Vec<(String, Value)> = match self {
            Value::List(list) if !list.is_nil() => {
                out.push('[');
                for (i, item) in list.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    item.write_json(out, encode)?;
                }
                out.push(']');
                return Ok(());
            }
            Value::Map(map) if !map.is_nil() => map
                .entries()
                .into_iter()
                .map(|(key, item)| (key.to_string(), item))
                .collect(),
            Value::Object(object) => match object.json_fields() {
                Some(fields) => fields
                    .into_iter()
                    .map(|(name, field)| (name.to_owned(), field))
                    .collect(),
                None => {
                    out.push_str(&encode(&self.to_json()?));
                    return Ok(());
                }
            },
            _ => {
                out.push_str(&encode(&self.to_json()?));
                return Ok(());
            }
        };
        out.push('{');
        for (i, (name, field)) in fields.into_iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            out.push_str(&encode(&name.into()));
            out.push(':');
            field.write_json(out, encode)?;
        }
        out.push('}');
        Ok(())
    }

    /// What the value is in JSON, or the values it consists of.
    fn plain(&self) -> Result<Plain, Error> {
        let plain = match self {
            Value::Nil | Value::Bytes(None) => serde_json::Value::Null,
            Value::Bool(b) => (*b).into(),
            Value::Int(n) | Value::Int64(n) => (*n).into(),
            Value::Int32(n) => (*n).into(),
            Value::Uint8(n) => (*n).into(),
            Value::Uint32(n) => (*n).into(),
            Value::Uint64(n) => (*n).into(),
            Value::Float(n) => match serde_json::Number::from_f64(*n) {
                Some(number) => serde_json::Value::Number(number),
                None => {
                    let text = golib::strconv::format_float(*n, b'g', -1, 64);
                    return Err(Error::message(format!("json: unsupported value: {text}")));
                }
            },
            Value::Complex(..) => return Err(Error::message("json: unsupported type: complex128")),
            Value::Str(text) => text.to_str_lossy().into(),
            Value::Bytes(Some(bytes)) => golib::base64::encode(bytes.as_bytes()).into(),
            Value::List(list) if list.is_nil() => serde_json::Value::Null,
            Value::List(list) => return Ok(Plain::List(list.clone())),
            Value::Map(map) if map.is_nil() => serde_json::Value::Null,
            Value::Map(map) => return Ok(Plain::Map(map.clone())),
            Value::Object(object) => {
                let fields = match object.json_fields() {
                    Some(fields) => fields,
                    None => match object.json()? {
                        Some(plain) => return plain.plain(),
                        None => {
                            let mut fields = object.fields();
                            fields.retain(|(name, _)| !object.unexported().contains(name));
                            fields
                        }
                    },
                };
                return Ok(Plain::Map(fields.into_iter().collect()));
            }
        };
        Ok(Plain::Scalar(plain))
    }
}

enum Plain {
    Scalar(serde_json::Value),
    List(List),
    Map(Map),
}

/// A list or map whose JSON is being made.
enum Making {
    List(List, usize, Vec<serde_json::Value>),
    Map(
        std::vec::IntoIter<(Str, Value)>,
        String,
        serde_json::Map<String, serde_json::Value>,
    ),
}

/// The value as data, without recursion: the stack may be small and the value deep.
fn to_json(value: &Value, nodes: &mut usize) -> Result<serde_json::Value, Error> {
    let mut open: Vec<Making> = Vec::new();
    let mut next = value.clone();
    loop {
        *nodes += 1;
        if let Value::Str(text) = &next {
            // A text may be shared by many values; in the data each has its own.
            *nodes += text.len() / NODE_BYTES;
        }
        if *nodes > MAX_NODES {
            return Err(Error::limit("value is too large to be encoded"));
        }
        if open.len() > MAX_DEPTH {
            let name = next.type_name();
            return Err(Error::message(format!(
                "json: unsupported value: encountered a cycle via {name}"
            )));
        }
        let mut made = match next.plain()? {
            Plain::Scalar(scalar) => Some(scalar),
            Plain::List(list) => {
                *nodes += LIST_NODES;
                let items = Vec::with_capacity(list.len());
                open.push(Making::List(list, 0, items));
                None
            }
            Plain::Map(map) => {
                *nodes += MAP_NODES;
                let entries = map.entries().into_iter();
                open.push(Making::Map(entries, String::new(), serde_json::Map::new()));
                None
            }
        };
        // Puts what is complete into what is open, up to the next value.
        next = loop {
            match (open.last_mut(), made.take()) {
                (None, data) => return Ok(data.unwrap_or_default()),
                (Some(Making::List(_, _, items)), Some(data)) => items.push(data),
                (Some(Making::Map(_, key, entries)), Some(data)) => {
                    entries.insert(std::mem::take(key), data);
                }
                (Some(Making::List(list, at, items)), None) => match list.get(*at) {
                    Some(item) => {
                        *at += 1;
                        break item.clone();
                    }
                    None => {
                        made = Some(std::mem::take(items).into());
                        open.pop();
                    }
                },
                (Some(Making::Map(values, key, entries)), None) => match values.next() {
                    Some((name, item)) => {
                        *key = name.to_str_lossy().into_owned();
                        break item;
                    }
                    None => {
                        made = Some(std::mem::take(entries).into());
                        open.pop();
                    }
                },
            }
        };
    }
}
