//! A bound on how deep documents nest. Go's libraries stop at 10,000 levels, which a thread's stack
//! here need not hold; no chart comes near a tenth of our bound.

use serde_json::Value;

/// Levels a document may have.
pub const MAX_DEPTH: usize = 500;

/// A document nests too deep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the document is nested deeper than {MAX_DEPTH} levels")]
pub struct TooDeep;

/// Lets a decoded value pass that is safe to walk by recursion. One that is not has levels that a decoder let pass: it can be dropped.
pub(crate) fn bounded(value: Value) -> Result<Value, TooDeep> {
    let mut todo = vec![(&value, 0)];
    while let Some((value, depth)) = todo.pop() {
        if depth > MAX_DEPTH {
            return Err(TooDeep);
        }
        match value {
            Value::Array(items) => todo.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(map) => todo.extend(map.values().map(|item| (item, depth + 1))),
            _ => {}
        }
    }
    Ok(value)
}
