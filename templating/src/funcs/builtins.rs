//! Go's own functions. Mirrors `text/template/funcs.go`.

use super::argument::{Argument, Rest, Signature};
use super::functions::{Body, Functions};
use crate::error::Error;
use crate::fmt;
use crate::state::State;
use crate::value::{Kind, List, Operand, Str, Value, same_scalar};

impl Functions {
    /// Go's own functions and nothing else.
    ///
    /// ```
    /// let functions = templating::Functions::builtin();
    /// assert!(functions.get("printf").is_some() && functions.get("upper").is_none());
    /// ```
    pub fn builtin() -> Self {
        let mut functions = Self::default();
        add(&mut functions);
        functions
    }
}

fn add(functions: &mut Functions) {
    let at_least_one = || Signature {
        params: vec![Operand::TYPE, Operand::TYPE],
        variadic: true,
    };
    functions.insert("and", at_least_one(), Body::And);
    functions.insert("or", at_least_one(), Body::Or);
    functions.insert("call", at_least_one(), Body::Call);
    functions.add("not", |value: Operand| !value.value.is_true());
    functions.add("len", len);
    functions.add("index", index);
    functions.add("slice", slice);
    functions.add("print", |state: &mut State<'_>, values: Rest<Value>| {
        fmt::sprint(state, &values)
    });
    functions.add("println", |state: &mut State<'_>, values: Rest<Value>| {
        fmt::sprintln(state, &values)
    });
    functions.add(
        "printf",
        |state: &mut State<'_>, format: Str, values: Rest<Value>| {
            fmt::sprintf(state, &format, &values)
        },
    );
    functions.add("html", |state: &mut State<'_>, values: Rest<Value>| {
        Ok::<_, Error>(html(&joined(state, values)?))
    });
    functions.add("js", |state: &mut State<'_>, values: Rest<Value>| {
        Ok::<_, Error>(js(&joined(state, values)?))
    });
    functions.add("urlquery", |state: &mut State<'_>, values: Rest<Value>| {
        Ok::<_, Error>(url_query(&joined(state, values)?))
    });
    functions.add(
        "eq",
        |state: &mut State<'_>, a: Operand, others: Rest<Operand>| {
            equal_to_any(state, &a.value, others)
        },
    );
    functions.add("ne", |state: &mut State<'_>, a: Operand, b: Operand| {
        equal(state, &a.value, &b.value).map(|equal| !equal)
    });
    functions.add("lt", |a: Operand, b: Operand| less(&a.value, &b.value));
    functions.add("le", |state: &mut State<'_>, a: Operand, b: Operand| {
        less_or_equal(state, &a.value, &b.value)
    });
    functions.add("gt", |state: &mut State<'_>, a: Operand, b: Operand| {
        less_or_equal(state, &a.value, &b.value).map(|not| !not)
    });
    functions.add("ge", |a: Operand, b: Operand| {
        less(&a.value, &b.value).map(|less| !less)
    });
}

fn len(item: Operand) -> Result<i64, Error> {
    let length = match &item.value {
        Value::Nil if item.is_interface => return Err("len of nil pointer".into()),
        Value::Nil => return Err("reflect: call of reflect.Value.Type on zero Value".into()),
        Value::Str(text) => text.len(),
        Value::Bytes(bytes) => bytes.as_ref().map_or(0, |bytes| bytes.len()),
        Value::List(list) => list.len(),
        Value::Map(map) => map.len(),
        other => {
            // Go looks at what a pointer points to.
            let name = other.type_name().trim_start_matches('*');
            return Err(format!("len of type {name}").into());
        }
    };
    Ok(length as i64)
}

/// A position in something of the given length; the length itself passes.
fn position(index: &Value, length: usize) -> Result<usize, Error> {
    if index.is_untyped_nil() {
        return Err("cannot index slice/array with nil".into());
    }
    let position = match (index.as_signed(), index.as_unsigned()) {
        (Some(signed), _) => signed,
        (None, Some(unsigned)) => unsigned as i64,
        (None, None) => {
            let name = index.type_name();
            return Err(format!("cannot index slice/array with type {name}").into());
        }
    };
    match usize::try_from(position) {
        Ok(position) if position <= length => Ok(position),
        _ => Err(format!("index out of range: {position}").into()),
    }
}

fn index(item: Operand, indexes: Rest<Operand>) -> Result<Operand, Error> {
    if item.value.is_untyped_nil() {
        return Err("index of untyped nil".into());
    }
    let mut item = item.stripped();
    for Operand { value: index, .. } in indexes {
        let byte = |bytes: &[u8], what: &str| -> Result<Operand, Error> {
            let byte = bytes.get(position(&index, bytes.len())?);
            let byte = byte.ok_or_else(|| format!("reflect: {what} index out of range"))?;
            Ok(Operand::exact(Value::Uint8(*byte)))
        };
        item = match &item.value {
            Value::Nil => return Err("index of nil pointer".into()),
            Value::List(list) => {
                let position = position(&index, list.len())?;
                let value = list
                    .get(position)
                    .ok_or("reflect: slice index out of range")?;
                Operand::element(value.clone(), list.list_type().element)
            }
            Value::Bytes(bytes) => byte(bytes.as_deref().map_or(&[], Str::as_bytes), "slice")?,
            Value::Str(text) => byte(text, "string")?,
            Value::Map(map) => {
                let key = match &index {
                    Value::Str(key) => key,
                    Value::Nil => return Err("value is nil; should be of type string".into()),
                    other => {
                        let name = other.type_name();
                        return Err(format!("value has type {name}; should be string").into());
                    }
                };
                let element = map.map_type().element;
                let value = map.get(key).unwrap_or_else(|| element.zero());
                Operand::element(value, element)
            }
            other => {
                // Go looks at what a pointer points to.
                let name = other.type_name().trim_start_matches('*');
                return Err(format!("can't index item of type {name}").into());
            }
        };
    }
    Ok(item)
}

fn slice(item: Operand, indexes: Rest<Operand>) -> Result<Operand, Error> {
    let item = item.value;
    if item.is_untyped_nil() {
        return Err("slice of untyped nil".into());
    }
    if indexes.len() > 3 {
        return Err(format!("too many slice indexes: {}", indexes.len()).into());
    }
    let length = match &item {
        Value::Str(_) if indexes.len() == 3 => return Err("cannot 3-index slice a string".into()),
        Value::Str(text) => text.len(),
        Value::List(list) => list.len(),
        Value::Bytes(bytes) => bytes.as_ref().map_or(0, |bytes| bytes.len()),
        other => return Err(format!("can't slice item of type {}", other.type_name()).into()),
    };
    let mut bounds = [0, length, length];
    for (bound, index) in bounds.iter_mut().zip(indexes.iter()) {
        // Go looks into what holds an index for `index`, but not here.
        if index.is_interface {
            return Err("cannot index slice/array with type interface {}".into());
        }
        *bound = position(&index.value, length)?;
    }
    let [from, to, cap] = bounds;
    if from > to {
        return Err(format!("invalid slice index: {from} > {to}").into());
    }
    if to > cap {
        return Err(format!("invalid slice index: {to} > {cap}").into());
    }
    Ok(Operand::exact(match item {
        Value::Str(text) => Value::string(&text[from..to]),
        Value::Bytes(bytes) => Value::Bytes(bytes.map(|bytes| Str::from(&bytes[from..to]).into())),
        Value::List(list) => List::typed(list.list_type(), list[from..to].to_vec()).into(),
        other => other,
    }))
}

/// What Go compares values by.
#[derive(Clone, Copy, PartialEq)]
enum Basic {
    Other,
    Bool,
    Complex,
    Int,
    Float,
    String,
    Uint,
}

/// A value by its basic kind, a named scalar by what it is made of.
fn basic(value: &Value) -> (Basic, Value) {
    let basic = match value {
        Value::Bool(_) => Basic::Bool,
        Value::Int(_) | Value::Int32(_) | Value::Int64(_) => Basic::Int,
        Value::Uint8(_) | Value::Uint32(_) | Value::Uint64(_) => Basic::Uint,
        Value::Float(_) => Basic::Float,
        Value::Complex(..) => Basic::Complex,
        Value::Str(_) => Basic::String,
        Value::Object(object) => match object.scalar() {
            Some(scalar) => return self::basic(&scalar),
            None => Basic::Other,
        },
        _ => Basic::Other,
    };
    (basic, value.clone())
}

fn incompatible(a: &Value, b: &Value) -> Error {
    let (a, b) = (a.type_name(), b.type_name());
    format!("incompatible types for comparison: {a} and {b}").into()
}

fn equal_to_any(
    state: &mut State<'_>,
    first: &Value,
    others: Rest<Operand>,
) -> Result<bool, Error> {
    if others.is_empty() {
        return Err("missing argument for comparison".into());
    }
    for other in others {
        if equal(state, first, &other.value)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn equal(state: &mut State<'_>, a: &Value, b: &Value) -> Result<bool, Error> {
    let ((kind_a, plain_a), (kind_b, plain_b)) = (basic(a), basic(b));
    if kind_a != kind_b {
        return match (plain_a.as_signed(), plain_b.as_unsigned()) {
            (Some(a), Some(b)) => Ok(u64::try_from(a) == Ok(b)),
            _ => match (plain_a.as_unsigned(), plain_b.as_signed()) {
                (Some(a), Some(b)) => Ok(u64::try_from(b) == Ok(a)),
                _ if a.is_untyped_nil() || b.is_untyped_nil() => Ok(false),
                _ => Err(incompatible(a, b)),
            },
        };
    }
    match kind_a {
        Basic::Int => Ok(plain_a.as_signed() == plain_b.as_signed()),
        Basic::Uint => Ok(plain_a.as_unsigned() == plain_b.as_unsigned()),
        Basic::Other => equal_other(state, a, b),
        _ => Ok(same_scalar(&plain_a, &plain_b)),
    }
}

/// Equality of lists, maps, structs and nil.
fn equal_other(state: &mut State<'_>, a: &Value, b: &Value) -> Result<bool, Error> {
    let (kind_a, kind_b) = (a.kind(), b.kind());
    if kind_a != kind_b && kind_a != Kind::Invalid && kind_b != Kind::Invalid {
        let format = format!(
            "non-comparable types %s: {}, {}: %v",
            a.type_name(),
            b.type_name()
        );
        let text = fmt::sprintf(state, format.as_bytes(), &[a.clone(), b.clone()])?;
        return Err(golib::utf8::to_str(&text).into_owned().into());
    }
    if a.is_nil() || b.is_nil() {
        return Ok(a.is_nil() == b.is_nil());
    }
    if matches!(b, Value::List(_) | Value::Map(_) | Value::Bytes(_)) {
        let format = format!("non-comparable type %s: {}", b.type_name());
        let text = fmt::sprintf(state, format.as_bytes(), std::slice::from_ref(b))?;
        return Err(golib::utf8::to_str(&text).into_owned().into());
    }
    Ok(same_scalar(a, b))
}

fn less(a: &Value, b: &Value) -> Result<bool, Error> {
    let bad_type = || Error::message("invalid type for comparison");
    let ((kind_a, plain_a), (kind_b, plain_b)) = (basic(a), basic(b));
    if kind_a == Basic::Other || kind_b == Basic::Other {
        return Err(bad_type());
    }
    match (&plain_a, &plain_b) {
        (Value::Float(a), Value::Float(b)) => return Ok(a < b),
        (Value::Str(a), Value::Str(b)) => return Ok(a < b),
        _ if kind_a != kind_b => {}
        _ if matches!(kind_a, Basic::Bool | Basic::Complex) => return Err(bad_type()),
        _ => {}
    }
    let wide = |value: &Value| {
        value
            .as_signed()
            .map(i128::from)
            .or_else(|| value.as_unsigned().map(i128::from))
    };
    match (wide(&plain_a), wide(&plain_b)) {
        (Some(a), Some(b)) => Ok(a < b),
        _ => Err(incompatible(a, b)),
    }
}

fn less_or_equal(state: &mut State<'_>, a: &Value, b: &Value) -> Result<bool, Error> {
    Ok(less(a, b)? || equal(state, a, b)?)
}

/// The arguments of an escaping function, joined as `print` joins them.
fn joined(state: &mut State<'_>, values: Rest<Value>) -> Result<Str, Error> {
    if let [Value::Str(text)] = values.as_slice() {
        return Ok(text.clone());
    }
    let values: Vec<Value> = values
        .into_iter()
        .map(|value| {
            if value.is_untyped_nil() {
                "<no value>".into()
            } else {
                value
            }
        })
        .collect();
    fmt::sprint_printable(state, &values).map(Str::from)
}

fn html(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for &byte in text {
        match byte {
            0 => out.extend("\u{fffd}".as_bytes()),
            b'"' => out.extend(b"&#34;"),
            b'\'' => out.extend(b"&#39;"),
            b'&' => out.extend(b"&amp;"),
            b'<' => out.extend(b"&lt;"),
            b'>' => out.extend(b"&gt;"),
            other => out.push(other),
        }
    }
    out
}

fn js(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((c, width)) = golib::utf8::decode_rune(rest) {
        match c {
            '\\' => out.extend(br"\\"),
            '\'' => out.extend(br"\'"),
            '"' => out.extend(br#"\""#),
            '<' | '>' | '&' | '=' | '\0'..' ' => {
                out.extend(format!("\\u{:04X}", u32::from(c)).as_bytes());
            }
            ' '..='\x7f' => out.extend(&rest[..width]),
            c if golib::strconv::is_print(c) => out.extend(&rest[..width]),
            c => out.extend(format!("\\u{:04X}", u32::from(c)).as_bytes()),
        }
        rest = &rest[width..];
    }
    out
}

fn url_query(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for &byte in text {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            b' ' => out.push('+'),
            other => out += &format!("%{other:02X}"),
        }
    }
    out
}
