//! A bound on how deep documents nest. Go's libraries stop at 10,000 levels, which a thread's stack
//! here need not hold; no chart comes near a tenth of our bound.

use serde_json::Value;

/// Levels a document may have.
pub const MAX_DEPTH: usize = 500;

/// A document nests too deep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the document is nested deeper than {MAX_DEPTH} levels")]
pub struct TooDeep;

/// Lets a value pass that is safe to walk by recursion.
pub(crate) fn bounded(value: Value) -> Result<Value, TooDeep> {
    if is_bounded(&value) {
        return Ok(value);
    }
    // Dropping it would recurse too: take it apart instead.
    let mut parts = vec![value];
    while let Some(part) = parts.pop() {
        match part {
            Value::Array(items) => parts.extend(items),
            Value::Object(map) => parts.extend(map.into_iter().map(|(_, value)| value)),
            _ => {}
        }
    }
    Err(TooDeep)
}

fn is_bounded(value: &Value) -> bool {
    let mut todo = vec![(value, 0)];
    while let Some((value, depth)) = todo.pop() {
        if depth > MAX_DEPTH {
            return false;
        }
        match value {
            Value::Array(items) => todo.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(map) => todo.extend(map.values().map(|item| (item, depth + 1))),
            _ => {}
        }
    }
    true
}
