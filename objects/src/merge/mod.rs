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

impl Patch {
    /// The patch without what it does to one field; none if nothing else is in it.
    pub fn without(self, path: &[&str]) -> Option<Self> {
        fn remove(value: &mut Value, path: &[&str]) {
            let (Some(map), [first, rest @ ..]) = (value.as_object_mut(), path) else {
                return;
            };
            match map.get_mut(*first) {
                Some(inner) if !rest.is_empty() => {
                    remove(inner, rest);
                    if inner.as_object().is_some_and(Map::is_empty) {
                        map.remove(*first);
                    }
                }
                _ => {
                    map.remove(*first);
                }
            }
        }
        let (Self::Strategic(mut patch) | Self::Merge(mut patch)) = self.clone();
        remove(&mut patch, path);
        let is_empty = patch.as_object().is_some_and(Map::is_empty);
        let rest = match self {
            Self::Strategic(_) => Self::Strategic(patch),
            Self::Merge(_) => Self::Merge(patch),
        };
        (!is_empty).then_some(rest)
    }
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

/// The part of [`three_way`]'s patch that removes: what `original` had and `modified` has not.
/// Any owner of it counts: it came from the last manifest. `None` if `live` has nothing of it any more.
///
/// # Errors
/// As [`three_way`].
pub fn removal(
    original: &Value,
    modified: &Value,
    live: &Value,
) -> Result<Option<Patch>, MergeError> {
    use strategic_diff::{Part, diff_maps};
    let (patch, rest) = match builtin(modified).filter(|builtin| builtin.fits(modified)) {
        Some(builtin) => {
            let (original, modified) = (map(original)?, map(modified)?);
            let deletions = diff_maps(original, modified, builtin.root(), Part::DELETIONS)?;
            let patch = Value::Object(deletions);
            let rest = apply_strategic(live, &patch, builtin)?;
            (Patch::Strategic(patch), rest)
        }
        None => {
            let patch = json::removal(original, modified);
            let rest = json::merge(live.clone(), &patch);
            (Patch::Merge(patch), rest)
        }
    };
    Ok((rest != *live).then_some(patch))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn dropped_fields_are_removed_and_added_ones_kept() {
        let object = |kind: &str, data: Value| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}, "data": data});
        let original = object("ConfigMap", json!({"kept": "1", "dropped": "1"}));
        let modified = object("ConfigMap", json!({"kept": "2"}));
        let live = object(
            "ConfigMap",
            json!({"kept": "2", "dropped": "edited", "theirs": "1"}),
        );
        assert_eq!(
            removal(&original, &modified, &live).unwrap(),
            Some(Patch::Strategic(json!({"data": {"dropped": null}})))
        );
        let live = object("ConfigMap", json!({"kept": "2", "theirs": "1"}));
        assert_eq!(removal(&original, &modified, &live).unwrap(), None);
    }

    #[test]
    fn elements_of_lists_go_by_their_key() {
        let pod = |containers: Value| {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
                   "spec": {"containers": containers}})
        };
        let original = pod(json!([{"name": "a", "image": "x:1"}, {"name": "b", "image": "y:1"}]));
        let modified = pod(json!([{"name": "a", "image": "x:1"}]));
        let live = pod(
            json!([{"name": "a", "image": "x:1"}, {"name": "b", "image": "edited"},
                              {"name": "injected", "image": "z"}]),
        );
        let Some(Patch::Strategic(patch)) = removal(&original, &modified, &live).unwrap() else {
            panic!("something is left")
        };
        let rest = apply_strategic(&live, &patch, builtin(&live).unwrap()).unwrap();
        let names: Vec<_> = rest["spec"]["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| &c["name"])
            .collect();
        assert_eq!(names, ["a", "injected"]);
    }

    #[test]
    fn a_field_is_left_out_of_a_patch() {
        let patch = Patch::Merge(json!({"spec": {"replicas": null}}));
        assert_eq!(patch.without(&["spec", "replicas"]), None);
        let patch = Patch::Merge(json!({"spec": {"replicas": null, "a": null}}));
        let rest = Patch::Merge(json!({"spec": {"a": null}}));
        assert_eq!(patch.without(&["spec", "replicas"]), Some(rest));
    }

    #[test]
    fn of_other_kinds_only_fields_go() {
        let object =
            |spec: Value| json!({"apiVersion": "example.org/v1", "kind": "Thing", "spec": spec});
        let original = object(json!({"a": {"b": 1, "c": 1}, "list": [1], "d": 1}));
        let modified = object(json!({"a": {"b": 2}, "list": [2]}));
        let live = object(json!({"a": {"b": 2, "c": 5}, "list": [2], "theirs": 1}));
        assert_eq!(
            removal(&original, &modified, &live).unwrap(),
            Some(Patch::Merge(json!({"spec": {"a": {"c": null}, "d": null}})))
        );
    }
}
