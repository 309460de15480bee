//! Reads the JSON of a record as Helm 4 reads it: names match whatever their case, unknown fields
//! are dropped, empty texts stand for "no time", and a misfit is reported in Go's words.

use std::sync::Arc;

use chart::{Chart, Time};
use golib::json::{self, At, FieldError};
use golib::json_fields;
use serde_json::{Map, Value};

use crate::model::{Hook, HookExecution, Info, Release};

/// Go type into which Helm first reads types that take an empty text for no time.
const RAW: &str = "map[string]interface {}";

/// Reads a whole record.
pub(super) fn release(value: &Value) -> Result<Release, FieldError> {
    let mut out = Release::default();
    let at = At::new("Release", "v1.Release", "");
    json_fields!(at, value, |at, value| {
        "name" => at.string(value, &mut out.name),
        "info" => optional(value, |value| info(value, at)).map(|read| out.info = read),
        "chart" => optional(value, |value| chart(value, at)).map(|read| out.chart = read),
        "config" => table(value, at).map(|read| out.config = read),
        "manifest" => at.string(value, &mut out.manifest),
        "hooks" => hooks(value, at).map(|read| out.hooks = read),
        "version" => at.integer(value, &mut out.revision),
        "namespace" => at.string(value, &mut out.namespace),
        "apply_method" => word(value, at).map(|read| out.apply_method = read.as_str().into()),
    })?;
    Ok(out)
}

fn optional<T>(
    value: &Value,
    read: impl FnOnce(&Value) -> Result<T, FieldError>,
) -> Result<Option<T>, FieldError> {
    let value = Some(value).filter(|value| !value.is_null());
    value.map(read).transpose()
}

fn chart(value: &Value, at: &At<'_>) -> Result<Arc<Chart>, FieldError> {
    match value {
        Value::Object(_) => Ok(Arc::new(Chart::from_json(value, "chart")?)),
        other => Err(at.mismatch(other, "v2.Chart")),
    }
}

fn info(value: &Value, at: &At<'_>) -> Result<Info, FieldError> {
    let mut out = Info::default();
    let at = at.within("Release", RAW);
    json_fields!(at, value, |at, value| {
        "first_deployed" => time(value, &mut out.first_deployed),
        "last_deployed" => time(value, &mut out.last_deployed),
        "deleted" => time(value, &mut out.deleted),
        "description" => at.string(value, &mut out.description),
        "rollback_revision" => at.integer(value, &mut out.rollback_revision),
        "notes" => at.string(value, &mut out.notes),
        "status" => word(value, at).map(|read| out.status = read.as_str().into()),
        "resources" => table(value, at).map(|read| out.resources = read),
    })?;
    Ok(out)
}

fn hooks(value: &Value, at: &At<'_>) -> Result<Vec<Hook>, FieldError> {
    // Helm keeps pointers, so a null element survives; nothing could be run from it.
    let items = at.list(value, "[]*v1.Hook")?.unwrap_or_default().iter();
    let at = at.within("Hook", "v1.Hook");
    items
        .filter(|item| !item.is_null())
        .map(|item| hook(item, &at))
        .collect()
}

fn hook(value: &Value, at: &At<'_>) -> Result<Hook, FieldError> {
    let mut out = Hook::default();
    json_fields!(at, value, |at, value| {
        "name" => at.string(value, &mut out.name),
        "kind" => at.string(value, &mut out.kind),
        "path" => at.string(value, &mut out.path),
        "manifest" => at.string(value, &mut out.manifest),
        "events" => at.strings(value, "[]v1.HookEvent", &mut out.events),
        "last_run" => execution(value, at, &mut out.last_run),
        "weight" => at.integer(value, &mut out.weight),
        "delete_policies" => at.strings(value, "[]v1.HookDeletePolicy", &mut out.delete_policies),
        "output_log_policies" => {
            at.strings(value, "[]v1.HookOutputLogPolicy", &mut out.output_log_policies)
        },
    })?;
    Ok(out)
}

fn execution(value: &Value, at: &At<'_>, out: &mut HookExecution) -> Result<(), FieldError> {
    let at = at.within("Hook", RAW);
    json_fields!(at, value, |at, value| {
        "started_at" => time(value, &mut out.started_at),
        "completed_at" => time(value, &mut out.completed_at),
        "phase" => match value {
            Value::String(_) | Value::Null => at.string(value, &mut out.phase),
            _ => Err(at.mismatch(value, "v1.HookPhase")),
        },
    })
}

fn word(value: &Value, at: &At<'_>) -> Result<String, FieldError> {
    let mut word = String::new();
    at.string(value, &mut word)?;
    Ok(word)
}

fn table(value: &Value, at: &At<'_>) -> Result<Map<String, Value>, FieldError> {
    match at.table(value)? {
        Value::Object(map) => Ok(map),
        _ => Ok(Map::new()),
    }
}

fn time(value: &Value, out: &mut Time) -> Result<(), FieldError> {
    match value {
        Value::String(text) if text.is_empty() => Ok(()),
        value => json::time(value, out),
    }
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
            // The quoted part would read as a time.
            format!(
                "2006-01-02T15:04:05.{}Z{}",
                "0".repeat(43),
                "0".repeat(1 << 20)
            ),
        ] {
            let reported = time(&text.into(), &mut Time::default())
                .unwrap_err()
                .to_string();
            assert!(reported.len() < 1 << 10, "{} bytes", reported.len());
        }
    }
}
