//! Operations of JSON patches (RFC 6902) as Go's `evanphx/json-patch` v4 applies them with its defaults, words included: a
//! `replace` may add, a `copy` of nothing writes null, and indices may count from the end.

use serde_json::{Map, Number, Value};

use super::{Error, encode, equal, pointer};

const MISSING: &str = "missing value";

/// Applies one operation in place. `put` is asked before a value is put at the end of a path, so that a patch can be bounded: forty
/// copies of a document into itself would fill any memory. What `test` compares is equal with numbers that are by `numbers`: [`Number::eq`] where
/// Go compares texts as they came, [`same`] where `json.Marshal` has written them.
///
/// ```
/// use golib::json::patch;
/// use serde_json::{Number, json};
///
/// let mut document = json!({"spec": {"replicas": 1}});
/// let mut apply = |operation: serde_json::Value| {
///     let operation = operation.as_object().ok_or("an operation is an object")?;
///     patch::apply(&mut document, operation, |_, _| Ok::<_, String>(()), Number::eq)
/// };
/// apply(json!({"op": "replace", "path": "/spec/replicas", "value": 3}))?;
/// let failed = apply(json!({"op": "test", "path": "/spec/replicas", "value": 1}));
/// assert_eq!(failed, Err("testing value /spec/replicas failed: test failed".to_owned()));
/// assert_eq!(document, json!({"spec": {"replicas": 3}}));
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// The operation is malformed, unknown or does not apply, in the words of the original, or `put` refuses a value. A `move` has taken
/// its value out of the document then.
pub fn apply<E: From<String>>(
    document: &mut Value,
    operation: &Map<String, Value>,
    mut put: impl FnMut(&Value, &str) -> Result<(), E>,
    numbers: fn(&Number, &Number) -> bool,
) -> Result<(), E> {
    let kind = text(operation, "op").ok().flatten().unwrap_or("unknown");
    let undecoded =
        |field: &str, why: &str| format!("{kind} operation failed to decode {field}: {why}");
    let path = || match text(operation, "path") {
        Ok(Some(path)) => Ok(path),
        _ if matches!(kind, "add" | "remove" | "copy") => Err(undecoded("path", MISSING)),
        Ok(None) => Err(undecoded(
            "path",
            &format!("operation missing path field: {MISSING}"),
        )),
        Err(error) => Err(undecoded("path", &error.to_string())),
    };
    let from = || match text(operation, "from") {
        Ok(Some(from)) => Ok(from),
        Ok(None) => Err(undecoded(
            "from",
            &format!("operation, missing from field: {MISSING}"),
        )),
        Err(error) => Err(undecoded("from", &error.to_string())),
    };
    let missing = |what: &str, path: &str| {
        format!("{kind} operation does not apply: {what}: {path}: {MISSING}")
    };
    let value = operation.get("value").unwrap_or(&Value::Null);
    match kind {
        "add" => {
            let path = path()?;
            let (container, key) = pointer::parent(document, path)
                .ok_or_else(|| missing("doc is missing path", &format!("\"{path}\"")))?;
            put(value, path)?;
            pointer::add(container, &key, value.clone())
                .map_err(|cause| format!("error in add for path: '{path}': {cause}"))?;
        }
        "remove" => {
            let path = path()?;
            let (container, key) = pointer::parent(document, path)
                .ok_or_else(|| missing("doc is missing path", &format!("\"{path}\"")))?;
            pointer::remove(container, &key)
                .map_err(|cause| format!("error in remove for path: '{path}': {cause}"))?;
        }
        "replace" => {
            let path = path()?;
            if path.is_empty() {
                if !value.is_object() && !value.is_array() {
                    let text = "replace operation value must be object or array: %!w(<nil>)";
                    return Err(text.to_owned().into());
                }
                put(value, path)?;
                *document = value.clone();
                return Ok(());
            }
            let (container, key) = pointer::parent(document, path)
                .ok_or_else(|| missing("doc is missing path", path))?;
            put(value, path)?;
            pointer::replace(container, &key, value.clone())
                .map_err(|_| missing("doc is missing key", path))?;
        }
        "move" => {
            let from = from()?;
            let (container, key) = pointer::parent(document, from)
                .ok_or_else(|| missing("doc is missing from path", from))?;
            let moved = pointer::remove(container, &key)
                .map_err(|cause| format!("error in move for path: '{key}': {cause}"))?;
            let path = path()?;
            let (container, key) = pointer::parent(document, path)
                .ok_or_else(|| missing("doc is missing destination path", path))?;
            put(&moved, path)?;
            pointer::add(container, &key, moved)
                .map_err(|cause| format!("error in move for path: '{path}': {cause}"))?;
        }
        "copy" => {
            let from = from()?;
            let (container, key) = pointer::parent(document, from)
                .ok_or_else(|| missing("doc is missing from path", from))?;
            let copied = pointer::get(container, &key)
                .map_err(|cause| format!("error in copy for from: '{from}': {cause}"))?
                .unwrap_or(&Value::Null);
            let path = path()?;
            put(copied, path)?;
            let copied = copied.clone();
            let (container, key) = pointer::parent(document, path)
                .ok_or_else(|| missing("doc is missing destination path", path))?;
            pointer::add(container, &key, copied)
                .map_err(|cause| format!("error while adding value during copy: {cause}"))?;
        }
        "test" => {
            let path = path()?;
            let found = if path.is_empty() {
                &*document
            } else {
                let (container, key) = pointer::parent(document, path)
                    .ok_or_else(|| missing("is missing path", path))?;
                pointer::get(container, &key)
                    .map_err(|cause| format!("error in test for path: '{path}': {cause}"))?
                    .unwrap_or(&Value::Null)
            };
            if !equal(found, value, numbers) {
                return Err(format!("testing value {path} failed: test failed").into());
            }
        }
        other => return Err(format!("Unexpected kind: {other}").into()),
    }
    Ok(())
}

/// Whether `json.Marshal` writes two numbers alike: `1.0` is `1`.
pub fn same(one: &Number, other: &Number) -> bool {
    let text = |number: &Number| encode(&Value::Number(number.clone()));
    text(one) == text(other)
}

/// A text of an operation; none where it is missing.
fn text<'o>(operation: &'o Map<String, Value>, name: &str) -> Result<Option<&'o str>, Error> {
    match operation.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(Error::wrong_type(other, "string")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `lazyNode.equal` (evanphx/json-patch 4.13) compares bytes, which `json.Marshal` wrote on both sides where they were YAML.
    #[test]
    fn numbers_are_the_same_where_json_writes_them_so() {
        let test = |found: Value, value: Value| {
            let operation = json!({"op": "test", "path": "/a", "value": value});
            let operation = operation.as_object().unwrap();
            let put = |_: &Value, _: &str| Ok::<_, String>(());
            apply(&mut json!({ "a": found }), operation, put, same)
        };
        assert_eq!(test(json!(3), json!(3.0)), Ok(()));
        assert_eq!(test(json!([{"b": 1e3}]), json!([{"b": 1000}])), Ok(()));
        assert!(test(json!(3), json!(3.5)).is_err());
        assert!(test(json!(3), json!("3")).is_err());
    }
}
