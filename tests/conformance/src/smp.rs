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
        "three_way_strategic" => {
            removed(case)?;
            applied(case, &side("current"))
        }
        "two_way_strategic" => {
            removed(case)?;
            applied(case, &side("original"))
        }
        "apply_strategic" => {
            let original = side("original");
            let kind = builtin(&[&original])?;
            let result = match serde_json::from_str(case.text("patch").unwrap_or_default()) {
                Ok(patch) => merge::apply_strategic(&original, &patch, kind),
                Err(_) => Err(MergeError::BadDocument),
            };
            outcome(case, "result", result.map_err(|error| error.go_text()))
        }
        "three_way_json" => match (case.get("patch").map(parsed), case.get("applied")) {
            (Some(patch), Some(wanted)) => compare(&json::merge(side("current"), &patch), wanted),
            _ => Ok(()),
        },
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

/// Go's patch brings the live object to what the manifest says; ours holds of it what removes, and the
/// server applies the rest. So all that ours removes has to be removed by Go's, and the other way round.
fn removed(case: &Case) -> Check {
    let (original, modified) = (case.value("original"), case.value("modified"));
    let found = merge::removal(original, modified, original);
    let Some(wanted) = case.get("patch").map(parsed) else {
        // Where Go refuses what is added, there may be nothing to remove.
        return match (found, case.get("error").and_then(Value::as_str)) {
            (Err(error), Some(wanted)) => {
                // Which element is told of depends on which half of the patch is made first.
                let error = error.go_text();
                let said = |text: &str| Value::from(text.rsplit(']').next());
                compare(&said(&error), &said(wanted))
            }
            _ => Ok(()),
        };
    };
    let patch = match found.map_err(|error| Outcome::failed(error, &wanted))? {
        None => Value::Object(Default::default()),
        Some(Patch::Strategic(patch)) => {
            compare(
                &"strategic".into(),
                case.get("patch_type").unwrap_or(&"strategic".into()),
            )?;
            patch
        }
        // What does not fit its Go type is merged as JSON, whatever the case asks for.
        Some(Patch::Merge(_)) if case.kind() == "two_way_strategic" => return Ok(()),
        Some(Patch::Merge(patch)) => {
            compare(&"merge".into(), case.value("patch_type"))?;
            patch
        }
    };
    match holds_removals(&wanted, &patch) && removals(&patch) + nulls(modified) >= removals(&wanted)
    {
        true => Ok(()),
        false => Outcome::failed(patch, wanted).checked(),
    }
}

/// A patch is recorded as text or as a value.
fn parsed(patch: &Value) -> Value {
    match patch {
        Value::String(text) => serde_json::from_str(text).unwrap_or_default(),
        patch => patch.clone(),
    }
}

/// Whether all that `part` removes is removed by `patch` in the same place.
fn holds_removals(patch: &Value, part: &Value) -> bool {
    match (patch, part) {
        (Value::Object(patch), Value::Object(part)) => part
            .iter()
            .filter(|(key, _)| !key.starts_with("$setElementOrder") && *key != "$retainKeys")
            .all(|(key, part)| {
                patch
                    .get(key)
                    .is_some_and(|patch| holds_removals(patch, part))
            }),
        (Value::Array(patch), Value::Array(part)) => part
            .iter()
            .all(|part| patch.iter().any(|patch| holds_removals(patch, part))),
        // Of two elements with one key the second sets again what the first has lost.
        (_, Value::Null) => true,
        // Merge keys, and `$patch: delete`.
        (patch, part) => patch == part,
    }
}

/// How much a patch removes.
fn removals(patch: &Value) -> usize {
    match patch {
        Value::Null => 1,
        Value::Object(map)
            if map
                .get("$patch")
                .is_some_and(|directive| directive == "delete") =>
        {
            1
        }
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| match value {
                Value::Array(list) if key.starts_with("$deleteFromPrimitiveList") => list.len(),
                value => removals(value),
            })
            .sum(),
        Value::Array(list) => list.iter().map(removals).sum(),
        _ => 0,
    }
}

/// How often a manifest says null itself.
fn nulls(value: &Value) -> usize {
    match value {
        Value::Null => 1,
        Value::Object(map) => map.values().map(nulls).sum(),
        Value::Array(list) => list.iter().map(nulls).sum(),
        _ => 0,
    }
}

/// What Go's patch makes of `base`, where the case has it.
fn applied(case: &Case, base: &Value) -> Check {
    let Some(patch) = case.get("patch").map(parsed) else {
        return Ok(());
    };
    let is_merge = case.text("patch_type").is_some_and(|kind| kind == "merge");
    let apply = || match is_merge {
        true => Ok(json::merge(base.clone(), &patch)),
        false => merge::apply_strategic(
            base,
            &patch,
            builtin(&[case.value("modified"), base]).map_err(|_| MergeError::BadDocument)?,
        ),
    };
    if let Some(wanted) = case.get("apply_error").and_then(Value::as_str) {
        return match apply() {
            Err(error) => compare(&Value::from(error.go_text()), &wanted.into()),
            Ok(applied) => Outcome::failed(applied, wanted).checked(),
        };
    }
    match case.get("applied") {
        Some(wanted) => {
            let applied = apply().map_err(|error| Outcome::failed(error, wanted))?;
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
