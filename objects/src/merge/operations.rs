//! JSON patches (RFC 6902) as Go's `evanphx/json-patch` v4 applies them with its defaults: a
//! `replace` may add, a `copy` of nothing writes null, negative indexes count from the end.
//!
//! Unlike there, what a patch copies is bounded: forty copies of a document into itself would fill any memory.

use golib::budget::{Budget, MAX_DEPTH};
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
    let Some((container, key)) = container(document, pointer) else {
        return false;
    };
    if let Value::Array(list) = &*container {
        let behind = index(&key, list.len()).map_or(0, |at| list.len() - at);
        match moves.checked_sub(behind) {
            Some(left) => *moves = left,
            None => return false,
        }
    }
    remove(container, &key).is_ok()
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
            let Some((container, key)) = container(document, path) else {
                return error(format!(
                    "add operation does not apply: doc is missing path: \"{path}\": {MISSING}"
                ));
            };
            add(container, &key, value()?)
                .or_else(|cause| error(format!("error in add for path: '{path}': {cause}")))
        }
        "remove" => {
            let path = path()?;
            let Some((container, key)) = container(document, path) else {
                return error(format!(
                    "remove operation does not apply: doc is missing path: \"{path}\": {MISSING}"
                ));
            };
            remove(container, &key)
                .or_else(|cause| error(format!("error in remove for path: '{path}': {cause}")))
        }
        "replace" => replace(document, path()?, value()?),
        "move" => {
            let from = from()?;
            let Some((source, key)) = container(document, from) else {
                return error(format!(
                    "move operation does not apply: doc is missing from path: {from}: {MISSING}"
                ));
            };
            let in_move =
                |cause| OperationError(format!("error in move for path: '{key}': {cause}"));
            let moved = copy(get(source, &key).map_err(in_move)?, text("path"), copies)?;
            remove(source, &key).map_err(in_move)?;
            put(document, path()?, moved, "move", |path, cause| {
                format!("error in move for path: '{path}': {cause}")
            })
        }
        "copy" => {
            let from = from()?;
            let Some((source, key)) = container(document, from) else {
                return error(format!(
                    "copy operation does not apply: doc is missing from path: {from}: {MISSING}"
                ));
            };
            let copied = get(source, &key)
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

/// A value for another place.
fn copy(value: &Value, path: Option<&str>, copies: &mut Budget) -> Result<Value, OperationError> {
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
    match container(document, path) {
        Some((container, key)) => {
            add(container, &key, value).or_else(|cause| error(failed(path, cause)))
        }
        None => error(format!(
            "{kind} operation does not apply: doc is missing destination path: {path}: {MISSING}"
        )),
    }
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), OperationError> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return error("replace operation value must be object or array".to_owned());
        }
        *document = value;
        return Ok(());
    }
    let Some((container, key)) = container(document, path) else {
        return error(format!(
            "replace operation does not apply: doc is missing path: {path}: {MISSING}"
        ));
    };
    if get(container, &key).is_err() {
        return error(format!(
            "replace operation does not apply: doc is missing key: {path}: {MISSING}"
        ));
    }
    match container {
        Value::Object(map) => {
            map.insert(key, value);
        }
        Value::Array(list) => {
            if let Some(slot) = index(&key, list.len()).ok().and_then(|i| list.get_mut(i)) {
                *slot = value;
            }
        }
        _ => {}
    }
    Ok(())
}

fn test(document: &mut Value, path: &str, desired: Option<&Value>) -> Result<(), OperationError> {
    let failed = || error(format!("testing value {path} failed: test failed"));
    let found = match path {
        "" => &*document,
        path => {
            let Some((container, key)) = container(document, path) else {
                return error(format!(
                    "test operation does not apply: is missing path: {path}: {MISSING}"
                ));
            };
            get(container, &key)
                .or_else(|cause| error(format!("error in test for path: '{path}': {cause}")))?
        }
    };
    if found == desired.unwrap_or(&Value::Null) {
        Ok(())
    } else {
        failed()
    }
}

/// The map or list that holds the last step of `path`, and that step.
fn container<'a>(document: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (_, steps) = path.split_once('/')?;
    let (parents, key) = steps
        .rsplit_once('/')
        .map_or((None, steps), |(p, k)| (Some(p), k));
    let mut at = document;
    for step in parents.into_iter().flat_map(|parents| parents.split('/')) {
        let step = decoded(step);
        at = match at {
            Value::Object(map) => map.get_mut(&step)?,
            Value::Array(list) => {
                let index = index(&step, list.len()).ok()?;
                list.get_mut(index)?
            }
            _ => return None,
        };
    }
    (at.is_object() || at.is_array()).then(|| (at, decoded(key)))
}

fn decoded(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

/// An existing position of a list of length `len`, negative ones counted from the end.
fn index(key: &str, len: usize) -> Result<usize, String> {
    let index = golib::strconv::atoi(key).map_err(|error| error.to_string())?;
    let invalid = || format!("Unable to access invalid index: {index}: invalid index referenced");
    let position = if index < 0 {
        index.saturating_add_unsigned(len as u64)
    } else {
        index
    };
    usize::try_from(position)
        .ok()
        .filter(|at| *at < len)
        .ok_or_else(invalid)
}

fn get<'a>(container: &'a Value, key: &str) -> Result<&'a Value, String> {
    let found = match container {
        Value::Array(list) => list.get(index(key, list.len())?),
        container => container.get(key),
    };
    Ok(found.unwrap_or(&Value::Null))
}

fn add(container: &mut Value, key: &str, value: Value) -> Result<(), String> {
    match container {
        Value::Object(map) => {
            map.insert(key.to_owned(), value);
        }
        Value::Array(list) if key == "-" => list.push(value),
        Value::Array(list) => {
            // One past the end is a place to add at.
            let at = match golib::strconv::atoi(key) {
                Ok(_) => index(key, list.len() + 1)?,
                Err(error) => {
                    return Err(format!(
                        "value was not a proper array index: '{key}': {error}"
                    ));
                }
            };
            list.insert(at, value);
        }
        _ => {}
    }
    Ok(())
}

fn remove(container: &mut Value, key: &str) -> Result<(), String> {
    match container {
        Value::Object(map) => map
            .remove(key)
            .map(drop)
            .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: {MISSING}")),
        Value::Array(list) => {
            let at = index(key, list.len())?;
            list.remove(at);
            Ok(())
        }
        _ => Ok(()),
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
