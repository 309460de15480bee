//! Input of yaml.v3 for `toYamlPretty`: Go's own values, where every other format is given their JSON.

use golib::yaml::Pretty;

use super::moment::{self, Moment};
use crate::error::Error;
use crate::state::State;
use crate::value::{Object, Value};

/// The value as yaml.v3 sees it: nil lists and maps are empty ones, bytes are numbers, times are times.
pub(super) fn pretty(state: &mut State<'_>, value: &Value, depth: usize) -> Result<Pretty, Error> {
    /// As deep as the other formats.
    const MAX_DEPTH: usize = 1000;
    state.spend_steps(1)?;
    state.spend_bytes(size_of::<Pretty>() as u64)?;
    state.check_stack()?;
    if depth > MAX_DEPTH {
        return Err(Error::message("value nests too deeply for YAML"));
    }
    Ok(match value {
        Value::Nil => Pretty::Null,
        Value::Bool(b) => Pretty::Bool(*b),
        Value::Int(n) | Value::Int64(n) => Pretty::Int(*n),
        Value::Int32(n) => Pretty::Int((*n).into()),
        Value::Uint8(n) => Pretty::Uint((*n).into()),
        Value::Uint32(n) => Pretty::Uint((*n).into()),
        Value::Uint64(n) => Pretty::Uint(*n),
        Value::Float(n) => Pretty::Float(*n),
        Value::Complex(..) => return Err(Error::message("cannot marshal type: complex128")),
        Value::Str(text) => {
            state.spend_bytes(text.len() as u64)?;
            Pretty::Str(text.to_vec())
        }
        Value::Bytes(_) | Value::List(_) => {
            let items = value.items().unwrap_or_default();
            let items = items.iter().map(|item| pretty(state, item, depth + 1));
            Pretty::Seq(items.collect::<Result<_, _>>()?)
        }
        Value::Map(map) => {
            let entries = map.entries().into_iter();
            let entries =
                entries.map(|(key, item)| Ok((key.to_vec(), pretty(state, &item, depth + 1)?)));
            Pretty::Map(entries.collect::<Result<_, Error>>()?)
        }
        Value::Object(object) => match moment::object::<Moment>(value) {
            Some(Moment(time)) => {
                let text = time.format(golib::time::RFC3339_NANO);
                Pretty::Plain(String::from_utf8_lossy(&text).into_owned())
            }
            None => return pretty_object(state, object.as_ref(), depth),
        },
    })
}

fn pretty_object(
    state: &mut State<'_>,
    object: &dyn Object,
    depth: usize,
) -> Result<Pretty, Error> {
    if object.type_name() == "time.Duration"
        && let Some(text) = object.text()
    {
        return Ok(Pretty::Str(text.to_vec()));
    }
    if let Some(plain) = object.json()? {
        return pretty(state, &plain, depth + 1);
    }
    let fields = object.fields().into_iter();
    let fields = fields.filter(|(name, _)| !object.unexported().contains(name));
    let fields =
        fields.map(|(name, field)| Ok((name.to_lowercase(), pretty(state, &field, depth + 1)?)));
    Ok(Pretty::Struct(fields.collect::<Result<_, Error>>()?))
}
