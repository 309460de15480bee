//! From plain data to values and back.

use base64::prelude::{BASE64_STANDARD, Engine as _};

use super::{List, Map, Value};
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
        Value::from(&data)
    }
}

/// How deep a value may nest; deeper than any real one, and a map that contains itself ends here.
const MAX_DEPTH: usize = 1000;
/// How many values the data may have. Shared lists are spelled out, so a small template can ask for any number.
const MAX_NODES: usize = 4_000_000;

impl Value {
    /// What Go's `encoding/json` makes of the value, as data: times as text, bytes as base64, structs as objects.
    ///
    /// # Errors
    /// In Go's words, for numbers JSON has no text for and for values that contain themselves.
    pub fn to_json(&self) -> Result<serde_json::Value, Error> {
        self.to_json_below(0, &mut 0)
    }

    /// The JSON text of the value. `encode` prints data; structs stand in it with their fields in order.
    ///
    /// # Errors
    /// As [`Value::to_json`].
    pub fn to_json_text(
        &self,
        encode: impl Fn(&serde_json::Value) -> String,
    ) -> Result<String, Error> {
        // This also bounds the walk below.
        let data = self.to_json()?;
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

    fn to_json_below(&self, depth: usize, nodes: &mut usize) -> Result<serde_json::Value, Error> {
        *nodes += 1;
        if *nodes > MAX_NODES {
            return Err(Error::limit("value is too large to be encoded"));
        }
        if depth > MAX_DEPTH {
            let name = self.type_name();
            return Err(Error::message(format!(
                "json: unsupported value: encountered a cycle via {name}"
            )));
        }
        Ok(match self {
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
            Value::Bytes(Some(bytes)) => BASE64_STANDARD.encode(bytes.as_bytes()).into(),
            Value::List(list) if list.is_nil() => serde_json::Value::Null,
            Value::List(list) => serde_json::Value::Array(
                list.iter()
                    .map(|item| item.to_json_below(depth + 1, nodes))
                    .collect::<Result<_, _>>()?,
            ),
            Value::Map(map) if map.is_nil() => serde_json::Value::Null,
            Value::Map(map) => map.with(|entries| {
                entries
                    .iter()
                    .map(|(key, item)| {
                        Ok((
                            key.to_str_lossy().into_owned(),
                            item.to_json_below(depth + 1, nodes)?,
                        ))
                    })
                    .collect::<Result<serde_json::Map<_, _>, Error>>()
                    .map(serde_json::Value::Object)
            })?,
            Value::Object(object) => match object
                .json_fields()
                .map(|fields| fields.into_iter().collect::<Map>().into())
                .or_else(|| object.json())
            {
                Some(plain) => plain.to_json_below(depth + 1, nodes)?,
                None => object
                    .fields()
                    .into_iter()
                    .map(|(name, field)| {
                        Ok((name.to_owned(), field.to_json_below(depth + 1, nodes)?))
                    })
                    .collect::<Result<serde_json::Map<_, _>, Error>>()?
                    .into(),
            },
        })
    }
}
