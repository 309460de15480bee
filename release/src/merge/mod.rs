//! Merging three states of an object: what the last manifest said, what this one says, what lives.
//!
//! Needed where a release was not made by server-side apply (Helm 3, the Go agent's roll-backs) and
//! for Fleet's overlay patches. Mirrors apimachinery's `strategicpatch` and `jsonmergepatch`, whose
//! rules depend on Go's types; those are data here ([`schema`]).

mod error;
pub mod json;
mod lists;
pub mod operations;
pub mod schema;
mod strategic_apply;
mod strategic_diff;

use std::sync::LazyLock;

use serde_json::{Map, Value};

pub use error::MergeError;
pub use schema::{Builtin, builtin};

/// How a patch computed by [`three_way`] has to be sent.
#[derive(Debug, Clone, PartialEq)]
pub enum Patch {
    /// `application/strategic-merge-patch+json`, for built-in kinds.
    Strategic(Value),
    /// `application/merge-patch+json`, for all others.
    Merge(Value),
}

/// The patch that brings `live` from `original` (the last manifest's object) to `modified` (this
/// manifest's), changes by others overwritten; Helm's client-side `createPatch`.
///
/// Built-in kinds are merged three ways. For others, and for a `modified` that does not fit its Go
/// type, the patch goes from `original` to `modified` and `live` is not looked at.
///
/// # Errors
/// The states cannot be merged: a list without its merge key, a map under a field that the type
/// lacks, directives that contradict each other.
pub fn three_way(original: &Value, modified: &Value, live: &Value) -> Result<Patch, MergeError> {
    match builtin(modified).filter(|builtin| builtin.fits(modified)) {
        Some(builtin) => {
            three_way_strategic(original, modified, live, builtin).map(Patch::Strategic)
        }
        None => Ok(Patch::Merge(
            json::create(original, modified).unwrap_or_else(|| Value::Object(Map::new())),
        )),
    }
}

/// The strategic patch between two manifests and a live object of a built-in kind.
///
/// # Errors
/// As [`three_way`].
pub fn three_way_strategic(
    original: &Value,
    modified: &Value,
    live: &Value,
    builtin: Builtin,
) -> Result<Value, MergeError> {
    use strategic_diff::{Part, diff_maps};
    let (original, modified, live) = (map(original)?, map(modified)?, map(live)?);
    let additions = diff_maps(live, modified, builtin.root(), Part::ADDITIONS)?;
    let deletions = diff_maps(original, modified, builtin.root(), Part::DELETIONS)?;
    let merged = strategic_apply::combine(deletions, additions, builtin.root())?;
    Ok(Value::Object(merged))
}

/// The strategic patch from one state of a built-in kind to another.
///
/// # Errors
/// As [`three_way`].
pub fn two_way_strategic(
    original: &Value,
    modified: &Value,
    builtin: Builtin,
) -> Result<Value, MergeError> {
    use strategic_diff::{Part, diff_maps};
    diff_maps(map(original)?, map(modified)?, builtin.root(), Part::ALL).map(Value::Object)
}

/// `original` with a strategic patch applied, as the API server does it.
///
/// # Errors
/// As [`three_way`].
pub fn apply_strategic(
    original: &Value,
    patch: &Value,
    builtin: Builtin,
) -> Result<Value, MergeError> {
    let (original, patch) = (map(original)?.clone(), map(patch)?.clone());
    strategic_apply::apply(original, patch, builtin.root()).map(Value::Object)
}

/// Go decodes null into an empty map and refuses anything else.
fn map(value: &Value) -> Result<&Map<String, Value>, MergeError> {
    static EMPTY: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
    match value {
        Value::Object(map) => Ok(map),
        Value::Null => Ok(&EMPTY),
        _ => Err(MergeError::BadDocument),
    }
}
