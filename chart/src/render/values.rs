//! `.Values`: Helm's `common.Values`, a map with methods. The methods shadow keys of their names.

use templating::Method;
use templating::value::MapType;
use templating::{Error, Map, Operand, State, Str, Type, Value};

/// `common.Values`
pub(super) static VALUES: MapType = MapType {
    name: "common.Values",
    element: Type::Any,
    named: true,
    methods: &[
        Method::new("AsMap", &[], as_map),
        Method::new("YAML", &[], yaml),
        Method::new("Table", &[Type::String], table_method),
        Method::new("PathValue", &[Type::String], path_value_method),
        Method::new("Encode", &[Type::Object("io.Writer")], encode),
    ],
};

/// The map that a method was called on.
pub(super) fn receiver(value: &Value) -> Result<&Map, Error> {
    value.as_map().ok_or_else(|| Error::message("not a map"))
}

/// The first argument of a method, a text.
pub(super) fn argument(args: &[Operand]) -> Str {
    args.first()
        .and_then(|arg| arg.value.as_str())
        .cloned()
        .unwrap_or_default()
}

fn as_map(_: &mut State<'_>, value: &Value, _: &mut [Operand]) -> Result<Operand, Error> {
    let map = receiver(value)?;
    // Go gives an empty map of its own for a nil or empty one.
    let map = if map.is_empty() {
        Map::new()
    } else {
        map.clone()
    };
    Ok(Operand::exact(
        map.with_type(&templating::value::MAP).into(),
    ))
}

fn yaml(_: &mut State<'_>, value: &Value, _: &mut [Operand]) -> Result<Operand, Error> {
    let data = value
        .to_json()
        .map_err(|error| error.context("error marshaling into JSON"))?;
    let text = golib::yaml::encode(&data).map_err(|e| Error::message(e.to_string()))?;
    Ok(Operand::exact(text.into()))
}

fn table_method(_: &mut State<'_>, value: &Value, args: &mut [Operand]) -> Result<Operand, Error> {
    let table = table(receiver(value)?, &argument(args).to_str_lossy())?;
    Ok(Operand::exact(table.into()))
}

fn path_value_method(
    _: &mut State<'_>,
    value: &Value,
    args: &mut [Operand],
) -> Result<Operand, Error> {
    path_value(receiver(value)?, &argument(args).to_str_lossy()).map(Operand::any)
}

/// No template has a writer to encode to but nil.
fn encode(_: &mut State<'_>, _: &Value, _: &mut [Operand]) -> Result<Operand, Error> {
    Err(Error::message(
        "runtime error: invalid memory address or nil pointer dereference",
    ))
}

/// The table at a path such as `a.b`.
pub(super) fn table(values: &Map, path: &str) -> Result<Map, Error> {
    let mut table = values.clone();
    for name in path.split('.') {
        table = match table.get(name) {
            Some(Value::Map(map)) if map.map_type().element == Type::Any => map,
            _ => return Err(no_table(name)),
        };
    }
    Ok(table.with_type(&VALUES))
}

fn no_table(name: &str) -> Error {
    Error::message(format!("{} is not a table", golib::strconv::quote(name)))
}

/// The value at a path such as `a.b`, which must not be a table.
fn path_value(values: &Map, path: &str) -> Result<Value, Error> {
    if path.is_empty() {
        return Err(Error::message("YAML path cannot be empty"));
    }
    let no_value =
        |key: &str| Error::message(format!("{} is not a value", golib::strconv::quote(key)));
    let (table, key) = match path.rsplit_once('.') {
        Some((parents, key)) => (
            self::table(values, parents).map_err(|_| no_value(key))?,
            key,
        ),
        None => (values.clone(), path),
    };
    match table.get(key) {
        Some(Value::Map(map)) if !map.map_type().named => Err(no_value(key)),
        Some(value) => Ok(value),
        None => Err(no_value(key)),
    }
}
