//! The three patches that are no apply.

use objects::merge::{MergeError, apply_strategic, builtin};
use serde_json::{Map, Value};

use super::request::Answer;

/// Whether a patch says something about managed fields.
pub(crate) fn names_managed(patch: &Value) -> bool {
    match patch {
        Value::Array(operations) => operations.iter().any(|operation| {
            let path = operation["path"].as_str().unwrap_or_default();
            matches!(path, "" | "/metadata") || path.starts_with("/metadata/managedFields")
        }),
        patch => patch.pointer("/metadata/managedFields").is_some(),
    }
}

/// `value` with `patch` merged in: RFC 7386.
pub(crate) fn merge(value: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        patch.clone_into(value);
        return;
    };
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let Some(map) = value.as_object_mut() else {
        return;
    };
    for (key, patch) in patch {
        match patch {
            Value::Null => {
                map.remove(key);
            }
            patch => merge(map.entry(key.clone()).or_insert(Value::Null), patch),
        }
    }
}

/// A strategic merge. That of lists is done by `objects::merge`, which recorded answers of apimachinery's own `strategicpatch` vouch for.
pub(crate) fn strategic(value: &mut Value, patch: &Value) -> Result<(), Answer> {
    if !holds_directives(patch) {
        merge(value, patch);
        return Ok(());
    }
    let Some(builtin) = builtin(value) else {
        return Err(Answer::not_modelled("a strategic merge of a custom kind"));
    };
    let invalid =
        |problem: MergeError| Answer::failure(422, "Invalid", &problem.to_string(), &Value::Null);
    *value = apply_strategic(value, patch, builtin).map_err(invalid)?;
    Ok(())
}

fn holds_directives(patch: &Value) -> bool {
    match patch {
        Value::Object(map) => map
            .iter()
            .any(|(key, value)| key.starts_with('$') || holds_directives(value)),
        Value::Array(items) => items.iter().any(Value::is_object),
        _ => false,
    }
}

/// A JSON patch.
pub(crate) fn json(value: &mut Value, patch: &Value) -> Result<(), Answer> {
    let invalid = |problem: String| {
        let message =
            format!("the server rejected our request due to an error in our request: {problem}");
        Answer::failure(422, "Invalid", &message, &Value::Null)
    };
    let patch: json_patch::Patch = serde_json::from_value(patch.clone())
        .map_err(|error| Answer::failure(400, "BadRequest", &error.to_string(), &Value::Null))?;
    json_patch::patch(value, &patch).map_err(|error| invalid(error.to_string()))
}
