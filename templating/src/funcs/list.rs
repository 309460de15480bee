//! Sprig's `list.go`. Every function makes a new `[]interface {}`; only `slice` keeps the type of its list.

use super::argument::Rest;
use super::functions::Functions;
use super::text::{to_text, to_texts};
use super::{defaults, numeric};
use crate::error::Error;
use crate::state::State;
use crate::value::size::ELEMENT;
use crate::value::{LIST, LISTS, List, STRINGS, Str, Value, deep_equal_counted};

pub(super) fn add(f: &mut Functions) {
    f.add("list", |items: Rest<Value>| List::new(items.0));
    f.alias("list", "tuple");
    f.add(
        "append",
        |list: Value, item: Value| -> Result<List, Error> {
            let mut items = items(&list, "Cannot push on type")?.to_vec();
            items.push(item);
            Ok(List::new(items))
        },
    );
    f.add(
        "prepend",
        |list: Value, item: Value| -> Result<List, Error> {
            let list = items(&list, "Cannot prepend on type")?;
            Ok(std::iter::once(item).chain(list.iter().cloned()).collect())
        },
    );
    f.add("first", |list: Value| -> Result<Value, Error> {
        Ok(items(&list, "Cannot find first on type")?
            .first()
            .cloned()
            .unwrap_or_default())
    });
    f.add("last", |list: Value| -> Result<Value, Error> {
        Ok(items(&list, "Cannot find last on type")?
            .last()
            .cloned()
            .unwrap_or_default())
    });
    f.add("rest", |list: Value| -> Result<List, Error> {
        let list = items(&list, "Cannot find rest on type")?;
        Ok(list
            .split_first()
            .map_or(List::nil(&LIST), |(_, rest)| List::new(rest.to_vec())))
    });
    f.add("initial", |list: Value| -> Result<List, Error> {
        let list = items(&list, "Cannot find initial on type")?;
        Ok(list
            .split_last()
            .map_or(List::nil(&LIST), |(_, rest)| List::new(rest.to_vec())))
    });
    f.add("reverse", |list: Value| -> Result<List, Error> {
        Ok(items(&list, "Cannot find reverse on type")?
            .iter()
            .rev()
            .cloned()
            .collect())
    });
    f.add("compact", |list: Value| -> Result<List, Error> {
        let list = items(&list, "Cannot compact on type")?;
        Ok(list
            .iter()
            .filter(|item| !defaults::is_empty(item))
            .cloned()
            .collect())
    });
    f.add("uniq", uniq);
    f.add("without", without);
    f.add("has", has);
    f.add("slice", slice);
    f.add("chunk", chunk);
    f.add("concat", concat);
    f.add(
        "sortAlpha",
        |state: &mut State<'_>, list: Value| -> Result<List, Error> {
            Ok(match &list {
                Value::List(list) if list.is_nil() && std::ptr::eq(list.list_type(), &STRINGS) => {
                    list.clone()
                }
                Value::List(_) | Value::Bytes(_) => {
                    let mut texts = to_texts(state, &list)?;
                    texts.sort();
                    List::strings(texts)
                }
                other => List::strings([to_text(state, other)?]),
            })
        },
    );
    f.alias("append", "push");
    for (name, must) in [
        ("append", "mustAppend"),
        ("append", "mustPush"),
        ("prepend", "mustPrepend"),
        ("first", "mustFirst"),
        ("last", "mustLast"),
        ("rest", "mustRest"),
        ("initial", "mustInitial"),
        ("reverse", "mustReverse"),
        ("compact", "mustCompact"),
        ("uniq", "mustUniq"),
        ("without", "mustWithout"),
        ("has", "mustHas"),
        ("slice", "mustSlice"),
        ("chunk", "mustChunk"),
    ] {
        f.alias(name, must);
    }
}

/// What Go's runtime says when Sprig asks for the type of nil.
pub(super) fn nil_dereference() -> Error {
    Error::message("runtime error: invalid memory address or nil pointer dereference")
}

/// The elements of a list of any type, or the complaint about something else.
fn items(value: &Value, complaint: &str) -> Result<List, Error> {
    match value {
        Value::List(list) => Ok(list.clone()),
        Value::Bytes(_) => Ok(List::new(value.items().unwrap_or_default())),
        Value::Nil => Err(nil_dereference()),
        other => Err(Error::message(format!("{complaint} {}", other.kind()))),
    }
}

fn contains(state: &mut State<'_>, list: &[Value], item: &Value) -> Result<bool, Error> {
    for other in list {
        let mut steps = 0;
        let is_equal = deep_equal_counted(item, other, &mut steps);
        state.spend_steps(steps)?;
        if is_equal {
            return Ok(true);
        }
    }
    Ok(false)
}

fn uniq(state: &mut State<'_>, list: Value) -> Result<List, Error> {
    let list = items(&list, "Cannot find uniq on type")?;
    let mut unique: Vec<Value> = Vec::new();
    for item in list.iter() {
        if !contains(state, &unique, item)? {
            unique.push(item.clone());
        }
    }
    Ok(List::new(unique))
}

fn without(state: &mut State<'_>, list: Value, omit: Rest<Value>) -> Result<List, Error> {
    let list = items(&list, "Cannot find without on type")?;
    let mut kept = Vec::new();
    for item in list.iter() {
        if !contains(state, &omit, item)? {
            kept.push(item.clone());
        }
    }
    Ok(List::new(kept))
}

fn has(state: &mut State<'_>, needle: Value, list: Value) -> Result<bool, Error> {
    if list.is_untyped_nil() {
        return Ok(false);
    }
    let list = items(&list, "Cannot find has on type")?;
    contains(state, &list, &needle)
}

fn slice(list: Value, indices: Rest<Value>) -> Result<Value, Error> {
    let length = items(&list, "list should be type of slice or array but")?.len();
    if length == 0 {
        return Ok(Value::Nil);
    }
    let start = indices.first().map_or(0, numeric::to_int);
    let end = indices.get(1).map_or(length as i64, numeric::to_int);
    let range = match (usize::try_from(start), usize::try_from(end)) {
        (Ok(start), Ok(end)) if start <= end && end <= length => start..end,
        _ => {
            return Err(Error::message(
                "reflect.Value.Slice: slice index out of bounds",
            ));
        }
    };
    Ok(match list {
        Value::List(list) => List::typed(list.list_type(), list[range].to_vec()).into(),
        Value::Bytes(bytes) => Value::Bytes(bytes.map(|bytes| Str::from(&bytes[range]).into())),
        other => other,
    })
}

/// Sprig computes the number of chunks in floating point; with sizes that are not positive that matters.
fn chunk(size: i64, list: Value) -> Result<List, Error> {
    let list = items(&list, "Cannot chunk type")?;
    let bad_length = || Error::message("runtime error: makeslice: len out of range");
    let length = list.len() as f64;
    let count = ((length - 1.0) / size as f64).floor() + 1.0;
    if count.is_nan() || count < 0.0 || count.is_infinite() {
        return Err(bad_length());
    }
    let count = count as i64;
    let mut chunks = Vec::new();
    for index in 0..count {
        let mut chunk_length = size;
        if index == count - 1 {
            chunk_length = (length % size as f64).floor() as i64;
            if chunk_length == 0 {
                chunk_length = size;
            }
        }
        let chunk_length = usize::try_from(chunk_length).map_err(|_| bad_length())?;
        let start = usize::try_from(index.saturating_mul(size)).unwrap_or(usize::MAX);
        let chunk = start
            .checked_add(chunk_length)
            .and_then(|end| list.get(start..end))
            .ok_or_else(|| Error::message("reflect: slice index out of range"))?;
        chunks.push(List::new(chunk.to_vec()).into());
    }
    Ok(List::typed(&LISTS, chunks))
}

fn concat(state: &mut State<'_>, lists: Rest<Value>) -> Result<Value, Error> {
    let mut all = Vec::new();
    for list in lists {
        let list = match &list {
            Value::List(_) | Value::Bytes(_) => items(&list, "")?,
            Value::Nil => return Err(nil_dereference()),
            other => {
                let kind = other.kind();
                return Err(Error::message(format!("Cannot concat type {kind} as list")));
            }
        };
        state.spend_steps(list.len() as u64)?;
        state.check_memory((all.len() + list.len()) as u64 * ELEMENT)?;
        all.extend_from_slice(&list);
    }
    Ok(if all.is_empty() {
        List::nil(&LIST).into()
    } else {
        List::new(all).into()
    })
}
