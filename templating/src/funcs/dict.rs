//! Sprig's `dict.go`. Merging and copying are in `merge.rs`.
//!
//! `keys` and `values` come in the order of the keys, where Go's order is random.

use super::argument::Rest;
use super::functions::Functions;
use super::merge;
use super::text::to_text;
use crate::error::Error;
use crate::state::State;
use crate::value::{List, MAP, Map, Str, Value};

pub(super) fn add(f: &mut Functions) {
    f.add("dict", dict);
    f.add("get", |dict: Map, key: Str| {
        dict.get(&key).unwrap_or_else(|| Value::string(""))
    });
    f.add(
        "set",
        |dict: Map, key: Str, value: Value| -> Result<Map, Error> {
            dict.insert(key, value)?;
            Ok(dict)
        },
    );
    f.add("unset", |dict: Map, key: Str| {
        dict.remove(&key);
        dict
    });
    f.add("hasKey", |dict: Map, key: Str| dict.contains_key(&key));
    f.add("pluck", |key: Str, dicts: Rest<Map>| {
        dicts
            .iter()
            .filter_map(|dict| dict.get(&key))
            .collect::<List>()
    });
    f.add("keys", |dicts: Rest<Map>| {
        List::strings(dicts.iter().flat_map(Map::keys))
    });
    f.add("values", |dict: Map| {
        dict.entries().into_iter().map(|(_, v)| v).collect::<List>()
    });
    f.add("pick", |dict: Map, keys: Rest<Str>| {
        let present = keys
            .into_iter()
            .filter_map(|key| dict.get(&key).map(|value| (key, value)));
        present.collect::<Map>()
    });
    f.add("omit", |dict: Map, keys: Rest<Str>| {
        let keys: std::collections::HashSet<Str> = keys.into_iter().collect();
        let kept = dict
            .entries()
            .into_iter()
            .filter(|(key, _)| !keys.contains(key));
        kept.collect::<Map>()
    });
    f.add("dig", dig);
    merge::add(f);
}

/// Keys and values by turns; a key left over gets an empty string.
fn dict(state: &mut State<'_>, parts: Rest<Value>) -> Result<Map, Error> {
    let mut parts = parts.into_iter();
    let mut entries = Vec::with_capacity(parts.len() / 2 + 1);
    while let Some(key) = parts.next() {
        let value = parts.next().unwrap_or_else(|| Value::string(""));
        entries.push((to_text(state, &key)?, value));
    }
    Ok(entries.into_iter().collect())
}

/// Walks down `keys… default dict`.
fn dig(parts: Rest<Value>) -> Result<Value, Error> {
    let [keys @ .., default, dict] = parts.as_slice() else {
        return Err(Error::message("dig needs at least three arguments"));
    };
    if keys.is_empty() {
        return Err(Error::message("dig needs at least three arguments"));
    }
    let mut dict = plain_map(dict)?;
    let keys: Vec<&Str> = keys
        .iter()
        .map(|key| key.as_str().ok_or_else(|| conversion(key, "string")))
        .collect::<Result<_, _>>()?;
    let mut keys = keys.into_iter().peekable();
    while let Some(key) = keys.next() {
        let Some(step) = dict.get(key) else {
            return Ok(default.clone());
        };
        if keys.peek().is_none() {
            return Ok(step);
        }
        dict = plain_map(&step)?;
    }
    Ok(default.clone())
}

/// Go's type assertion to `map[string]interface {}`, which fails for `common.Values` too.
fn plain_map(value: &Value) -> Result<Map, Error> {
    match value {
        Value::Map(map) if std::ptr::eq(map.map_type(), &MAP) => Ok(map.clone()),
        other => Err(conversion(other, MAP.name)),
    }
}

fn conversion(value: &Value, expected: &str) -> Error {
    let found = match value {
        Value::Nil => "nil",
        other => other.type_name(),
    };
    Error::message(format!(
        "interface conversion: interface {{}} is {found}, not {expected}"
    ))
}
