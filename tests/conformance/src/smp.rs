//! `smp.json`: strategic and JSON merge patches, JSON patches.

use objects::merge::{self, MergeError, Patch, json, operations};
use serde_json::Value;

use crate::{Case, Check, Outcome, compare};

pub(crate) fn run(case: &Case) -> Outcome {
    check(case).err().unwrap_or(Outcome::Passed)
}

fn check(case: &Case) -> Check {
    let side = |name: &str| case.value(name).clone();
    match case.kind() {
        "three_way_strategic" => three_way(case),
        "two_way_strategic" => {
            let modified = side("modified");
            let original = side("original");
            let kind = builtin(&[&modified, &original])?;
            let patch = merge::two_way_strategic(&original, &modified, kind);
            patched(case, patch, &original, |original, patch| {
                merge::apply_strategic(original, patch, kind)
            })
        }
        "apply_strategic" => {
            let original = side("original");
            let kind = builtin(&[&original])?;
            let result = match serde_json::from_str(case.text("patch").unwrap_or_default()) {
                Ok(patch) => merge::apply_strategic(&original, &patch, kind),
                Err(_) => Err(MergeError::BadDocument),
            };
            outcome(case, "result", result)
        }
        "three_way_json" => {
            let live = side("current");
            let patch = json::three_way(&side("original"), &side("modified"), &live);
            patched(case, patch, &live, |live, patch| {
                Ok(json::merge(live.clone(), patch))
            })
        }
        "json_merge" => {
            let result = json_merge(
                case.text("doc").unwrap_or_default(),
                case.text("patch").unwrap_or_default(),
            );
            outcome_text(case, "result", result)
        }
        "json_merge_create" => {
            let result = json_merge_create(
                case.text("original").unwrap_or_default(),
                case.text("modified").unwrap_or_default(),
            );
            outcome_text(case, "patch", result)
        }
        "json_patch" => json_patch(case),
        kind => Outcome::unknown(kind).checked(),
    }
}

fn builtin(objects: &[&Value]) -> Result<merge::Builtin, Outcome> {
    let found = objects.iter().find_map(|object| merge::builtin(object));
    found.ok_or_else(|| Outcome::failed("not a built-in kind", ""))
}

fn three_way(case: &Case) -> Check {
    let side = |name: &str| case.value(name).clone();
    let (original, modified, live) = (side("original"), side("modified"), side("current"));
    let wanted_type = case.text("patch_type").unwrap_or_default();
    match merge::three_way(&original, &modified, &live) {
        Err(error) => outcome(case, "patch", Err::<Value, _>(error)),
        Ok(Patch::Merge(patch)) => {
            compare(&Value::from("merge"), &Value::from(wanted_type))?;
            patched(case, Ok::<_, MergeError>(patch), &live, |live, patch| {
                Ok(json::merge(live.clone(), patch))
            })
        }
        Ok(Patch::Strategic(patch)) => {
            compare(&Value::from("strategic"), &Value::from(wanted_type))?;
            let kind = builtin(&[&modified])?;
            patched(case, Ok::<_, MergeError>(patch), &live, |live, patch| {
                merge::apply_strategic(live, patch, kind)
            })
        }
    }
}

/// Compares a patch, and where the case has it what the patch makes of `base`.
fn patched<E: ToString>(
    case: &Case,
    patch: Result<Value, E>,
    base: &Value,
    apply: impl Fn(&Value, &Value) -> Result<Value, MergeError>,
) -> Check {
    let patch = patch.map_err(|error| error.to_string());
    outcome(case, "patch", patch.clone())?;
    let Ok(patch) = patch else { return Ok(()) };
    if let Some(wanted) = case.get("apply_error").and_then(Value::as_str) {
        return match apply(base, &patch) {
            Err(error) => compare(&Value::from(error.to_string()), &wanted.into()),
            Ok(applied) => Outcome::failed(applied, wanted).checked(),
        };
    }
    match case.get("applied") {
        Some(wanted) => {
            let applied = apply(base, &patch).map_err(|error| Outcome::failed(error, wanted))?;
            compare(&applied, wanted)
        }
        None => Ok(()),
    }
}

/// Compares a result, given as text or as a value, or its error.
fn outcome<E: ToString>(case: &Case, field: &str, result: Result<Value, E>) -> Check {
    match (result, case.get("error").and_then(Value::as_str)) {
        (Err(error), Some(wanted)) => {
            compare(&Value::from(error.to_string()), &Value::from(wanted))
        }
        (Err(error), None) => Outcome::failed(error.to_string(), "no error").checked(),
        (Ok(value), Some(wanted)) => Outcome::failed(value, wanted).checked(),
        (Ok(value), None) => match case.get(field) {
            Some(Value::String(wanted)) => {
                let written = golib::json::encode(&value);
                if written == *wanted {
                    return Ok(());
                }
                let wanted = serde_json::from_str(wanted).unwrap_or(Value::Null);
                compare(&value, &wanted)
            }
            Some(wanted) => compare(&value, wanted),
            None => Outcome::failed(value, "no such field").checked(),
        },
    }
}

fn outcome_text(case: &Case, field: &str, result: Result<Value, String>) -> Check {
    outcome(case, field, result)
}

/// Go's library takes texts and judges their shape; our function takes values.
fn json_merge(document: &str, patch: &str) -> Result<Value, String> {
    let parse = |text: &str, wrong: &str| {
        let value: Value = serde_json::from_str(text).map_err(|_| wrong.to_owned())?;
        if value.is_null() {
            Err(wrong.to_owned())
        } else {
            Ok(value)
        }
    };
    let document = parse(document, "Invalid JSON Document")?;
    let patch = parse(patch, "Invalid JSON Patch")?;
    if !patch.is_object() && !patch.is_array() {
        return Err("Invalid JSON Patch".to_owned());
    }
    Ok(json::merge(document, &patch))
}

fn json_merge_create(original: &str, modified: &str) -> Result<Value, String> {
    let wrong = |_| "Invalid JSON Document".to_owned();
    let original: Value = serde_json::from_str(original).map_err(wrong)?;
    let modified: Value = serde_json::from_str(modified).map_err(wrong)?;
    let empty = || Value::Object(Default::default());
    let between = |original: &Value, modified: &Value| {
        let is_document = |value: &Value| value.is_object() || value.is_null();
        if !is_document(original) || !is_document(modified) {
            return Err("Invalid JSON Document".to_owned());
        }
        let or_empty = |value: &Value| {
            if value.is_null() {
                empty()
            } else {
                value.clone()
            }
        };
        Ok(json::create(&or_empty(original), &or_empty(modified)).unwrap_or_else(empty))
    };
    match (&original, &modified) {
        (Value::Array(original), Value::Array(modified)) => {
            if original.len() != modified.len() {
                return Err("Invalid JSON Document".to_owned());
            }
            original
                .iter()
                .zip(modified)
                .map(|(o, m)| between(o, m))
                .collect()
        }
        (Value::Array(_), _) | (_, Value::Array(_)) => Err("Mismatched JSON Documents".to_owned()),
        _ => between(&original, &modified),
    }
}

fn json_patch(case: &Case) -> Check {
    if case.text("doc").unwrap_or_default().is_empty() {
        // No bytes at all: Go hands them back.
        return compare(&Value::from(""), case.value("result"));
    }
    let document = match golib::json::decode(case.text("doc").unwrap_or_default().as_bytes()) {
        Ok(document) => document,
        Err(error) => return outcome(case, "result", Err::<Value, _>(error)),
    };
    let patch = serde_json::from_str::<Value>(case.text("patch").unwrap_or_default());
    if case.get("decode_error").is_some() {
        // Go's texts name its own types; that it is refused is what counts.
        return match patch {
            Ok(Value::Array(list)) if list.iter().all(|o| o.is_object() || o.is_null()) => {
                Outcome::failed("decoded", "a decode error").checked()
            }
            _ => Ok(()),
        };
    }
    let operations = match patch {
        Ok(Value::Array(operations)) => operations,
        Ok(Value::Null) => Vec::new(),
        other => return Outcome::failed(format!("{other:?}"), "a list").checked(),
    };
    let result = operations::patch(&document, &operations);
    if case.get("panic").is_some() {
        // Where Go's library panics ours refuses or leaves the document alone.
        return Ok(());
    }
    outcome(case, "result", result)
}
