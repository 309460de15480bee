//! JSON patches (RFC 6902) as Go's `evanphx/json-patch` v4 applies them with its defaults: a
//! `replace` may add, a `copy` of nothing writes null, negative indexes count from the end.
//!
//! Unlike there, what a patch copies is bounded: forty copies of a document into itself would fill any memory.

use golib::budget::{Budget, MAX_DEPTH};
use golib::json::pointer;
use serde_json::{Map, Value};

/// Why a patch does not apply; prints Go's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OperationError(String);

const MISSING: &str = "missing value";

fn error<T>(text: String) -> Result<T, OperationError> {
    Err(OperationError(text))
}

/// `document` with a list of operations applied, one after the other.
///
/// ```
/// use objects::merge::operations::patch;
/// use serde_json::json;
///
/// let operations = [json!({"op": "replace", "path": "/spec/replicas", "value": 3})];
/// let patched = patch(&json!({"spec": {"replicas": 1}}), &operations)?;
/// assert_eq!(patched["spec"]["replicas"], 3);
/// # Ok::<(), objects::merge::operations::OperationError>(())
/// ```
///
/// # Errors
/// An operation is malformed, unknown or does not apply, or all copies weigh more than a [`Budget`]; nothing of the patch counts then.
pub fn patch(document: &Value, operations: &[Value]) -> Result<Value, OperationError> {
    let mut document = match document {
        Value::Null => Value::Object(Map::new()),
        Value::Object(_) | Value::Array(_) => document.clone(),
        scalar => {
            let kind = match scalar {
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                _ => "number",
            };
            return error(format!(
                "json: cannot unmarshal {kind} into Go value of type jsonpatch.partialDoc"
            ));
        }
    };
    let mut copies = Budget::default();
    for operation in operations {
        let empty = Map::new();
        let operation = operation.as_object().unwrap_or(&empty);
        apply(&mut document, operation, &mut copies)?;
    }
    Ok(document)
}

/// Takes what a pointer names out of a document, in place; whether it named anything. `moves` says how many elements of lists may
/// still close up behind what is taken out of them: beyond it nothing is taken out of a list.
pub(crate) fn take_out(document: &mut Value, pointer: &str, moves: &mut usize) -> bool {
    let Some((container, key)) = pointer::parent(document, pointer) else {
        return false;
    };
    if let Value::Array(list) = &*container {
        let behind = pointer::place(&key, list.len()).map_or(0, |at| list.len() - at);
        match moves.checked_sub(behind) {
            Some(left) => *moves = left,
            None => return false,
        }
    }
    pointer::remove(container, &key).is_ok()
}

fn apply(
    document: &mut Value,
    operation: &Map<String, Value>,
    copies: &mut Budget,
) -> Result<(), OperationError> {
    let text = |field: &str| operation.get(field).and_then(Value::as_str);
    let kind = text("op").unwrap_or("unknown");
    let path = || match text("path") {
        Some(path) => Ok(path),
        None if matches!(kind, "add" | "remove" | "copy") => {
            error(format!("{kind} operation failed to decode path: {MISSING}"))
        }
        None => error(format!(
            "{kind} operation failed to decode path: operation missing path field: {MISSING}"
        )),
    };
    let from = || match text("from") {
        Some(from) => Ok(from),
        None => error(format!(
            "{kind} operation failed to decode from: operation, missing from field: {MISSING}"
        )),
    };
    let value = || {
        let value = operation.get("value").unwrap_or(&Value::Null);
        fits(value, text("path"))?;
        Ok(value.clone())
    };
    match kind {
        "add" => {
            let path = path()?;
            let (container, key) = pointer::parent(document, path)
                .ok_or_else(|| missing(kind, "doc is missing path", &format!("\"{path}\"")))?;
            pointer::add(container, &key, value()?)
                .or_else(|cause| error(format!("error in add for path: '{path}': {cause}")))
        }
        "remove" => {
            let path = path()?;
            let (container, key) = pointer::parent(document, path)
                .ok_or_else(|| missing(kind, "doc is missing path", &format!("\"{path}\"")))?;
            pointer::remove(container, &key)
                .map(drop)
                .or_else(|cause| error(format!("error in remove for path: '{path}': {cause}")))
        }
        "replace" => replace(document, path()?, value()?),
        "move" => {
            let from = from()?;
            let (source, key) = pointer::parent(document, from)
                .ok_or_else(|| missing(kind, "doc is missing from path", from))?;
            let in_move =
                |cause| OperationError(format!("error in move for path: '{key}': {cause}"));
            let moved = pointer::get(source, &key).map_err(in_move)?;
            let moved = copy(moved, text("path"), copies)?;
            pointer::remove(source, &key).map_err(in_move)?;
            put(document, path()?, moved, "move", |path, cause| {
                format!("error in move for path: '{path}': {cause}")
            })
        }
        "copy" => {
            let from = from()?;
            let (source, key) = pointer::parent(document, from)
                .ok_or_else(|| missing(kind, "doc is missing from path", from))?;
            let copied = pointer::get(source, &key)
                .or_else(|cause| error(format!("error in copy for from: '{from}': {cause}")))?;
            let copied = copy(copied, text("path"), copies)?;
            put(document, path()?, copied, "copy", |_, cause| {
                format!("error while adding value during copy: {cause}")
            })
        }
        "test" => test(document, path()?, operation.get("value")),
        other => error(format!("Unexpected kind: {other}")),
    }
}

fn missing(kind: &str, what: &str, path: &str) -> OperationError {
    OperationError(format!(
        "{kind} operation does not apply: {what}: {path}: {MISSING}"
    ))
}

/// A value for another place.
fn copy(
    value: Option<&Value>,
    path: Option<&str>,
    copies: &mut Budget,
) -> Result<Value, OperationError> {
    let value = value.unwrap_or(&Value::Null);
    fits(value, path)?;
    copies
        .add(value)
        .or_else(|large| error(large.to_string()))?;
    Ok(value.clone())
}

fn fits(value: &Value, path: Option<&str>) -> Result<(), OperationError> {
    let steps = path.map_or(0, |path| path.matches('/').count());
    if depth(value) + steps > MAX_DEPTH {
        return error(format!(
            "document would be nested deeper than {MAX_DEPTH} levels"
        ));
    }
    Ok(())
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn put(
    document: &mut Value,
    path: &str,
    value: Value,
    kind: &str,
    failed: impl Fn(&str, String) -> String,
) -> Result<(), OperationError> {
    let (container, key) = pointer::parent(document, path)
        .ok_or_else(|| missing(kind, "doc is missing destination path", path))?;
    pointer::add(container, &key, value).or_else(|cause| error(failed(path, cause)))
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), OperationError> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return error("replace operation value must be object or array".to_owned());
        }
        *document = value;
        return Ok(());
    }
    let (container, key) = pointer::parent(document, path)
        .ok_or_else(|| missing("replace", "doc is missing path", path))?;
    pointer::replace(container, &key, value)
        .map_err(|_| missing("replace", "doc is missing key", path))
}

fn test(document: &mut Value, path: &str, desired: Option<&Value>) -> Result<(), OperationError> {
    let failed = || error(format!("testing value {path} failed: test failed"));
    let found = match path {
        "" => &*document,
        path => {
            let (container, key) = pointer::parent(document, path)
                .ok_or_else(|| missing("test", "is missing path", path))?;
            pointer::get(container, &key)
                .or_else(|cause| error(format!("error in test for path: '{path}': {cause}")))?
                .unwrap_or(&Value::Null)
        }
    };
    if found == desired.unwrap_or(&Value::Null) {
        Ok(())
    } else {
        failed()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn copies_are_bounded_in_weight_and_depth() {
        let base = json!({"a": ["x".repeat(100)]});
        let doubles = vec![json!({"op": "copy", "from": "/a", "path": "/a/-"}); 40];
        let failed = patch(&base, &doubles).unwrap_err().to_string();
        assert!(failed.starts_with("document is too large"), "{failed}");

        let deep = "/a".repeat(MAX_DEPTH - 1);
        let deeper = json!([{"op": "copy", "from": "/a", "path": format!("{deep}/b")}]);
        let failed = patch(&base, deeper.as_array().unwrap()).unwrap_err();
        let words = "document would be nested deeper than 1000 levels";
        assert_eq!(failed, OperationError(words.to_owned()));
    }
}
