//! JSON patches (RFC 6902) as Go's `evanphx/json-patch` v4 applies them: see [`golib::json::patch`].
//!
//! Unlike there, what a patch puts into a document is bounded.

use golib::budget::{Budget, MAX_DEPTH};
use golib::json::{self, pointer};
use serde_json::{Map, Number, Value};

use super::work::Work;

/// Why a patch does not apply; prints Go's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OperationError(String);

impl From<String> for OperationError {
    fn from(text: String) -> Self {
        Self(text)
    }
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
/// An operation is malformed, unknown or does not apply, or all that is put into the document weighs more than a
/// [`Budget`]; nothing of the patch counts then.
pub fn patch(document: &Value, operations: &[Value]) -> Result<Value, OperationError> {
    apply(document, operations, &mut Work::unbounded(), Number::eq)
}

/// As [`patch`], of what was read as YAML, in which `3.0` is `3`; with so much work at most.
///
/// # Errors
/// As [`patch`], and where there is more to do.
pub fn patch_within(
    document: &Value,
    operations: &[Value],
    work: &mut Work,
) -> Result<Value, OperationError> {
    apply(document, operations, work, json::patch::same)
}

/// `numbers` says which of them a `test` takes for the same.
fn apply(
    document: &Value,
    operations: &[Value],
    work: &mut Work,
    numbers: fn(&Number, &Number) -> bool,
) -> Result<Value, OperationError> {
    let mut document = match document {
        Value::Null => Value::Object(Map::new()),
        Value::Object(_) | Value::Array(_) => document.clone(),
        scalar => {
            let error = json::Error::wrong_type(scalar, "jsonpatch.partialDoc");
            return Err(error.to_string().into());
        }
    };
    let mut budget = Budget::default();
    let empty = Map::new();
    for operation in operations {
        let operation = operation.as_object().unwrap_or(&empty);
        for path in ["from", "path"] {
            let path = operation.get(path).and_then(Value::as_str).unwrap_or("");
            let counted = work
                .spend(1 + path.len() / 8)
                .and_then(|()| work.shift(pointer::behind(&mut document, path)));
            counted.map_err(|error| OperationError(error.to_string()))?;
        }
        let before = budget.spent();
        let put = |value: &Value, path: &str| {
            if json::depth(value) + path.matches('/').count() > MAX_DEPTH {
                return Err(OperationError(format!(
                    "document would be nested deeper than {MAX_DEPTH} levels"
                )));
            }
            let added = budget.add(value);
            added.map_err(|large| OperationError(large.to_string()))
        };
        json::patch::apply(&mut document, operation, put, numbers)?;
        // Another operation may take it out again, and another patch put as much in.
        work.spend((budget.spent() - before) / 16)
            .map_err(|_| OperationError("too much is put into documents".to_owned()))?;
    }
    Ok(document)
}

/// Takes what a pointer names out of a document, in place; whether it named anything. `moves` says how many elements of lists may
/// still close up behind what is taken out of them: once there are not enough there are none, and nothing is taken out of a list.
pub(crate) fn take_out(document: &mut Value, pointer: &str, moves: &mut usize) -> bool {
    let Some((container, key)) = pointer::parent(document, pointer) else {
        return false;
    };
    if let Value::Array(list) = &*container {
        let behind = pointer::place(&key, list.len()).map_or(0, |at| list.len() - at);
        match moves.checked_sub(behind) {
            Some(left) => *moves = left,
            None => {
                *moves = 0;
                return false;
            }
        }
    }
    pointer::remove(container, &key).is_ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn elements_that_move_are_counted() {
        let base = json!({"l": vec![0; 10_000]});
        let removals = vec![json!({"op": "remove", "path": "/l/0"}); 1_000];
        let patched = patch_within(&base, &removals, &mut Work::new(1_000_000)).unwrap();
        assert_eq!(patched["l"].as_array().map(Vec::len), Some(9_000));
        let failed = patch_within(&base, &removals, &mut Work::new(100_000)).unwrap_err();
        let words = "lists are too long for all that is changed in them";
        assert_eq!(failed, OperationError(words.to_owned()));
    }

    #[test]
    fn what_is_put_into_documents_is_counted_in_all_patches() {
        let base = json!({"a": "x".repeat(100_000)});
        let copies = [
            json!({"op": "copy", "from": "/a", "path": "/b"}),
            json!({"op": "remove", "path": "/b"}),
        ];
        let mut work = Work::new(10_000);
        assert_eq!(patch_within(&base, &copies, &mut work).as_ref(), Ok(&base));
        let failed = patch_within(&base, &copies, &mut work).unwrap_err();
        let words = "too much is put into documents";
        assert_eq!(failed, OperationError(words.to_owned()));
    }

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
