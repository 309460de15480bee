//! Reads the JSON of a record as Helm 4 reads it: names match whatever their case, unknown fields
//! are dropped, empty texts stand for "no time", and a misfit is told in Go's words.

use std::sync::Arc;

use chart::{Chart, Time};
use golib::json::{self, At, FieldError};
use serde_json::{Map, Value};

use crate::model::{Hook, HookExecution, Info, Release};

/// What those types of Helm are read as first that take an empty text for no time.
const RAW: &str = "map[string]interface {}";

/// Reads a whole record.
pub(super) fn release(value: &Value) -> Result<Release, FieldError> {
    const KNOWN: &[&str] = &[
        "name",
        "info",
        "chart",
        "config",
        "manifest",
        "hooks",
        "version",
        "namespace",
        "apply_method",
    ];
    let mut out = Release::default();
    let at = At::new("Release", "v1.Release", "");
    at.object(value, KNOWN, |name, at, value| match name {
        "name" => at.string(value, &mut out.name),
        "info" => {
            out.info = optional(value, |value| info(value, at))?;
            Ok(())
        }
        "chart" => {
            out.chart = optional(value, |value| chart(value, at))?;
            Ok(())
        }
        "config" => {
            out.config = table(value, at)?;
            Ok(())
        }
        "manifest" => at.string(value, &mut out.manifest),
        "hooks" => {
            out.hooks = hooks(value, at)?;
            Ok(())
        }
        "version" => at.integer(value, &mut out.revision),
        "namespace" => at.string(value, &mut out.namespace),
        _ => {
            out.apply_method = word(value, at)?.as_str().into();
            Ok(())
        }
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
    const KNOWN: &[&str] = &[
        "first_deployed",
        "last_deployed",
        "deleted",
        "description",
        "status",
        "rollback_revision",
        "notes",
        "resources",
    ];
    let mut out = Info::default();
    let at = at.within("Release", RAW);
    at.object(value, KNOWN, |name, at, value| match name {
        "first_deployed" => time(value, &mut out.first_deployed),
        "last_deployed" => time(value, &mut out.last_deployed),
        "deleted" => time(value, &mut out.deleted),
        "description" => at.string(value, &mut out.description),
        "rollback_revision" => at.integer(value, &mut out.rollback_revision),
        "notes" => at.string(value, &mut out.notes),
        "status" => {
            out.status = word(value, at)?.as_str().into();
            Ok(())
        }
        _ => {
            out.resources = table(value, at)?;
            Ok(())
        }
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
    const KNOWN: &[&str] = &[
        "name",
        "kind",
        "path",
        "manifest",
        "events",
        "last_run",
        "weight",
        "delete_policies",
        "output_log_policies",
    ];
    let mut out = Hook::default();
    at.object(value, KNOWN, |name, at, value| match name {
        "name" => at.string(value, &mut out.name),
        "kind" => at.string(value, &mut out.kind),
        "path" => at.string(value, &mut out.path),
        "manifest" => at.string(value, &mut out.manifest),
        "events" => at.strings(value, "[]v1.HookEvent", &mut out.events),
        "last_run" => execution(value, at, &mut out.last_run),
        "weight" => at.integer(value, &mut out.weight),
        "delete_policies" => at.strings(value, "[]v1.HookDeletePolicy", &mut out.delete_policies),
        _ => at.strings(
            value,
            "[]v1.HookOutputLogPolicy",
            &mut out.output_log_policies,
        ),
    })?;
    Ok(out)
}

fn execution(value: &Value, at: &At<'_>, out: &mut HookExecution) -> Result<(), FieldError> {
    const KNOWN: &[&str] = &["started_at", "completed_at", "phase"];
    let at = at.within("Hook", RAW);
    at.object(value, KNOWN, |name, at, value| match name {
        "started_at" => time(value, &mut out.started_at),
        "completed_at" => time(value, &mut out.completed_at),
        _ if value.is_string() || value.is_null() => at.string(value, &mut out.phase),
        _ => Err(at.mismatch(value, "v1.HookPhase")),
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
            // What is told of it would be a time.
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
