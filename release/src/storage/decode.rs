//! Reads the JSON of a record as Helm 4 reads it: names match whatever their case, unknown fields
//! are dropped, empty texts stand for "no time", and a misfit is told in Go's words.

use std::sync::Arc;

use chart::{Chart, Time};
use serde_json::{Map, Value};

use super::RecordError;
use crate::model::{Hook, HookExecution, Info, Release};

/// Reads a whole record.
pub(super) fn release(value: &Value) -> Result<Release, RecordError> {
    let mut out = Release::default();
    let place = Place {
        owner: "Release",
        path: "",
    };
    for (name, value) in place.fields(value, "v1.Release")? {
        let field = place.field(&name);
        match name.as_str() {
            "name" => field.text(value, &mut out.name)?,
            "info" if value.is_null() => out.info = None,
            "info" => out.info = Some(info(value, &field)?),
            "chart" if value.is_null() => out.chart = None,
            "chart" => out.chart = Some(Arc::new(chart(value)?)),
            "config" => out.config = field.table(value)?,
            "manifest" => field.text(value, &mut out.manifest)?,
            "hooks" => out.hooks = hooks(value, &field)?,
            "version" => field.integer(value, &mut out.revision)?,
            "namespace" => field.text(value, &mut out.namespace)?,
            "apply_method" => {
                let mut word = String::new();
                field.text(value, &mut word)?;
                out.apply_method = word.as_str().into();
            }
            _ => {}
        }
    }
    Ok(out)
}

fn chart(value: &Value) -> Result<Chart, RecordError> {
    match value {
        Value::Object(_) => Ok(Chart::from_json(value, "chart")?),
        other => Err(Field {
            owner: "Release",
            path: "chart".into(),
        }
        .misfit(other, "v2.Chart")),
    }
}

fn info(value: &Value, field: &Field) -> Result<Info, RecordError> {
    let mut out = Info::default();
    let place = Place {
        owner: field.owner,
        path: &field.path,
    };
    for (name, value) in place.fields(value, "map[string]interface {}")? {
        let field = place.field(&name);
        match name.as_str() {
            "first_deployed" => field.time(value, &mut out.first_deployed)?,
            "last_deployed" => field.time(value, &mut out.last_deployed)?,
            "deleted" => field.time(value, &mut out.deleted)?,
            "description" => field.text(value, &mut out.description)?,
            "status" => {
                let mut word = String::new();
                field.text(value, &mut word)?;
                out.status = word.as_str().into();
            }
            "rollback_revision" => field.integer(value, &mut out.rollback_revision)?,
            "notes" => field.text(value, &mut out.notes)?,
            "resources" => out.resources = field.table(value)?,
            _ => {}
        }
    }
    Ok(out)
}

fn hooks(value: &Value, field: &Field) -> Result<Vec<Hook>, RecordError> {
    // Helm keeps pointers, so a null element survives; nothing could be run from it.
    field
        .list(value, "[]*v1.Hook")?
        .iter()
        .filter(|item| !item.is_null())
        .map(|item| hook(item, field))
        .collect()
}

fn hook(value: &Value, field: &Field) -> Result<Hook, RecordError> {
    let mut out = Hook::default();
    let place = Place {
        owner: "Hook",
        path: &field.path,
    };
    for (name, value) in place.fields(value, "v1.Hook")? {
        let field = place.field(&name);
        match name.as_str() {
            "name" => field.text(value, &mut out.name)?,
            "kind" => field.text(value, &mut out.kind)?,
            "path" => field.text(value, &mut out.path)?,
            "manifest" => field.text(value, &mut out.manifest)?,
            "events" => out.events = field.words(value, "[]v1.HookEvent")?,
            "last_run" if value.is_null() => {}
            "last_run" => out.last_run = execution(value, &field)?,
            "weight" => field.integer(value, &mut out.weight)?,
            "delete_policies" => {
                out.delete_policies = field.words(value, "[]v1.HookDeletePolicy")?;
            }
            "output_log_policies" => {
                out.output_log_policies = field.words(value, "[]v1.HookOutputLogPolicy")?;
            }
            _ => {}
        }
    }
    Ok(out)
}

fn execution(value: &Value, field: &Field) -> Result<HookExecution, RecordError> {
    let mut out = HookExecution::default();
    let place = Place {
        owner: field.owner,
        path: &field.path,
    };
    for (name, value) in place.fields(value, "map[string]interface {}")? {
        let field = place.field(&name);
        match name.as_str() {
            "started_at" => field.time(value, &mut out.started_at)?,
            "completed_at" => field.time(value, &mut out.completed_at)?,
            "phase" => field.text(value, &mut out.phase)?,
            _ => {}
        }
    }
    Ok(out)
}

/// A struct being read: Go's name of it, and where it stands in the record.
struct Place<'a> {
    owner: &'static str,
    path: &'a str,
}

impl Place<'_> {
    /// The object's fields under their lower-case names.
    fn fields<'v>(
        &self,
        value: &'v Value,
        desired: &'static str,
    ) -> Result<Vec<(String, &'v Value)>, RecordError> {
        match value {
            Value::Null => Ok(Vec::new()),
            Value::Object(map) => Ok(map
                .iter()
                .map(|(name, value)| (name.to_ascii_lowercase(), value))
                .collect()),
            other => Err(Field {
                owner: self.owner,
                path: self.path.to_owned(),
            }
            .misfit(other, desired)),
        }
    }

    fn field(&self, name: &str) -> Field {
        let path = match self.path {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        };
        Field {
            owner: self.owner,
            path,
        }
    }
}

/// A field being read, for error texts.
struct Field {
    owner: &'static str,
    path: String,
}

impl Field {
    fn misfit(&self, value: &Value, desired: &'static str) -> RecordError {
        let found = match value {
            Value::Null => "null".to_owned(),
            Value::Bool(_) => "bool".to_owned(),
            // Go names the number where it has the right kind and the wrong size.
            Value::Number(number) if desired == "int" => format!("number {number}"),
            Value::Number(_) => "number".to_owned(),
            Value::String(_) => "string".to_owned(),
            Value::Array(_) => "array".to_owned(),
            Value::Object(_) => "object".to_owned(),
        };
        let place = match self.path.as_str() {
            "" => "value".to_owned(),
            path => format!("struct field {}.{path}", self.owner),
        };
        RecordError::Misfit {
            found,
            place,
            desired,
        }
    }

    fn text(&self, value: &Value, out: &mut String) -> Result<(), RecordError> {
        match value {
            Value::Null => Ok(()),
            Value::String(text) => {
                text.clone_into(out);
                Ok(())
            }
            other => Err(self.misfit(other, "string")),
        }
    }

    fn integer(&self, value: &Value, out: &mut i64) -> Result<(), RecordError> {
        match value {
            Value::Null => Ok(()),
            Value::Number(number) if number.is_i64() => {
                *out = number.as_i64().unwrap_or_default();
                Ok(())
            }
            other => Err(self.misfit(other, "int")),
        }
    }

    /// A `map[string]any`: numbers become floats.
    fn table(&self, value: &Value) -> Result<Map<String, Value>, RecordError> {
        match value {
            Value::Null => Ok(Map::new()),
            Value::Object(_) => match golib::json::floats(value.clone()) {
                Value::Object(map) => Ok(map),
                _ => Ok(Map::new()),
            },
            other => Err(self.misfit(other, "map[string]interface {}")),
        }
    }

    fn list<'v>(
        &self,
        value: &'v Value,
        desired: &'static str,
    ) -> Result<&'v [Value], RecordError> {
        match value {
            Value::Null => Ok(&[]),
            Value::Array(items) => Ok(items),
            other => Err(self.misfit(other, desired)),
        }
    }

    fn words(&self, value: &Value, desired: &'static str) -> Result<Vec<String>, RecordError> {
        let mut words = Vec::new();
        for item in self.list(value, desired)? {
            let mut word = String::new();
            self.text(item, &mut word)?;
            words.push(word);
        }
        Ok(words)
    }

    fn time(&self, value: &Value, out: &mut Time) -> Result<(), RecordError> {
        match value {
            Value::Null => Ok(()),
            Value::String(text) if text.is_empty() => Ok(()),
            Value::String(text) => {
                *out = strict_time(text)?;
                Ok(())
            }
            _ => Err(RecordError::TimeNotText),
        }
    }
}

/// RFC 3339 as strictly as Go reads it.
fn strict_time(text: &str) -> Result<Time, RecordError> {
    if let Some((rest, element)) = time_misfit(text) {
        return Err(RecordError::Time {
            text: beginning(text),
            rest: beginning(rest),
            element,
        });
    }
    text.parse().map_err(|_| RecordError::TimeRange {
        text: beginning(text),
    })
}

/// So much of a text as anybody has use for: a record may have megabytes in place of a time.
fn beginning(text: &str) -> String {
    text.chars().take(64).collect()
}

/// The first place where `text` leaves Go's layout `2006-01-02T15:04:05Z07:00`: what is left of the
/// text and the element it should have been.
fn time_misfit(text: &str) -> Option<(&str, &'static str)> {
    let mut rest = text;
    for (element, digits) in [
        ("2006", 4),
        ("-", 0),
        ("01", 2),
        ("-", 0),
        ("02", 2),
        ("T", 0),
        ("15", 2),
        (":", 0),
        ("04", 2),
        (":", 0),
        ("05", 2),
    ] {
        let fits = match digits {
            0 => rest.starts_with(element),
            _ => rest.len() >= digits && rest.as_bytes()[..digits].iter().all(u8::is_ascii_digit),
        };
        if !fits {
            return Some((rest, element));
        }
        rest = &rest[element.len()..];
    }
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 {
            rest = &fraction[digits..];
        }
    }
    let zone = rest.as_bytes();
    let is_offset = zone.len() == 6
        && matches!(zone[0], b'+' | b'-')
        && zone[3] == b':'
        && [1, 2, 4, 5].iter().all(|at| zone[*at].is_ascii_digit());
    (rest != "Z" && !is_offset).then_some((rest, "Z07:00"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tenant may write a record, and it packs to nothing.
    #[test]
    fn a_text_in_place_of_a_time_is_not_quoted_whole() {
        for text in [
            "2".repeat(1 << 20),
            "2006-01-02T15:04:05".to_owned() + &"0".repeat(1 << 20),
        ] {
            let told = strict_time(&text).unwrap_err().to_string();
            assert!(told.len() < 1 << 10, "{} bytes", told.len());
        }
    }
}
