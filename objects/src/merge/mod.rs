//! Merge patches: what the last manifest said and this one does not is removed, and overlays of a
//! bundle are applied.
//!
//! Removing is needed where a release was not made by server-side apply (Helm 3, the Go agent's
//! roll-backs); what this manifest says is applied by the server. Mirrors apimachinery's `strategicpatch` and `jsonmergepatch`, whose
//! rules depend on Go's types; those are data here ([`schema`]).

mod error;
pub mod json;
mod lists;
pub mod operations;
pub mod schema;
mod strategic_apply;
mod strategic_removal;
mod work;

use std::sync::LazyLock;

use serde_json::{Map, Value};

pub use error::MergeError;
pub use schema::{Builtin, builtin};
pub use work::{TooMuchWork, Work};

/// How a patch computed by [`removal`] has to be sent.
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

/// The patch that removes from `live` what `original` (the last manifest's object) had and `modified`
/// (this manifest's) has not: the deletions of Helm's client-side `createPatch`. Any owner of it counts:
/// it came from the last manifest. `None` if `live` has nothing of it any more.
///
/// For kinds that are not built in, and for a `modified` that does not fit its Go type, lists are left
/// alone.
///
/// ```
/// use objects::merge::{Patch, removal};
/// use serde_json::json;
///
/// let object = |data| json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data});
/// let last = object(json!({"kept": "1", "dropped": "1"}));
/// let now = object(json!({"kept": "2"}));
/// let patch = removal(&last, &now, &last)?;
/// assert_eq!(patch, Some(Patch::Strategic(json!({"data": {"dropped": null}}))));
/// // Nothing is left to be removed.
/// assert_eq!(removal(&last, &now, &now)?, None);
/// # Ok::<(), objects::merge::MergeError>(())
/// ```
///
/// # Errors
/// The states cannot be merged: a list without its merge key, a map under a field that the type
/// lacks, directives that contradict each other.
pub fn removal(
    original: &Value,
    modified: &Value,
    live: &Value,
) -> Result<Option<Patch>, MergeError> {
    let (patch, rest) = match builtin(modified).filter(|builtin| builtin.fits(modified)) {
        Some(builtin) => {
            let (original, modified) = (map(original)?, map(modified)?);
            let patch = strategic_removal::in_map(original, modified, builtin.root(), false)?;
            let patch = Value::Object(patch);
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

/// `original` with a strategic patch applied, as the API server does it.
///
/// # Errors
/// As [`removal`].
pub fn apply_strategic(
    original: &Value,
    patch: &Value,
    builtin: Builtin,
) -> Result<Value, MergeError> {
    apply_strategic_within(original, patch, builtin, &mut Work::unbounded())
}

/// As [`apply_strategic`], with so much work at most.
///
/// # Errors
/// As [`removal`], and where there is more to do.
pub fn apply_strategic_within(
    original: &Value,
    patch: &Value,
    builtin: Builtin,
    work: &mut Work,
) -> Result<Value, MergeError> {
    let (original, patch) = (map(original)?.clone(), map(patch)?.clone());
    strategic_apply::apply(original, patch, builtin.root(), work).map(Value::Object)
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
    fn long_lists_are_merged_in_few_steps_or_not_at_all() {
        let finalizers = |count: usize| (0..count).map(|at| at.to_string()).collect::<Vec<_>>();
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"finalizers": finalizers(20_000)}});
        let patch = json!({"metadata": {"finalizers": ["x"]}});
        let kind = builtin(&object).unwrap();
        let patched = apply_strategic_within(&object, &patch, kind, &mut Work::new(1_000)).unwrap();
        let list = patched["metadata"]["finalizers"].as_array().unwrap();
        assert_eq!(list.len(), 20_001);

        let pod = |count: usize| {
            let containers: Vec<_> = finalizers(count)
                .iter()
                .map(|name| json!({"name": name}))
                .collect();
            json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": containers}})
        };
        let kind = builtin(&pod(0)).unwrap();
        let merge = |steps: usize| {
            apply_strategic_within(&pod(100), &pod(100), kind, &mut Work::new(steps))
        };
        assert_eq!(merge(1_000_000), Ok(pod(100)));
        assert_eq!(merge(100), Err(MergeError::TooMuchWork(TooMuchWork)));
    }

    /// Memory that the process had at most, in KiB; none where the system does not tell.
    fn peak_kib() -> Option<usize> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().trim_end_matches(" kB").parse().ok()
    }

    /// Go repeats what is left over at the end of a list once for each deletion: here it would take a gigabyte.
    #[test]
    fn what_deletions_leave_over_is_not_copied() {
        let mut containers: Vec<_> = (0..1_000)
            .map(|at| json!({"name": format!("a{at}")}))
            .collect();
        let last = json!({"name": "z", "args": ["x".repeat(1 << 20)]});
        let deletions: Vec<_> = containers
            .iter()
            .map(|container| json!({"name": container["name"], "$patch": "delete"}))
            .collect();
        containers.push(last.clone());
        let pod = |spec: Value| json!({"apiVersion": "v1", "kind": "Pod", "spec": spec});
        let base = pod(json!({ "containers": containers }));
        let patch = json!({"spec": {"$setElementOrder/containers": [], "containers": deletions}});
        let kind = builtin(&base).unwrap();
        let before = peak_kib();
        let patched = apply_strategic_within(&base, &patch, kind, &mut Work::new(2_000_000));
        let grown = peak_kib().zip(before).map(|(after, before)| after - before);
        assert!(patched == Ok(pod(json!({"containers": [last]}))));
        assert!(grown.is_none_or(|kib| kib < 512 << 10), "{grown:?} KiB");
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
    fn a_merge_of_an_unknown_kind_removes_only_fields() {
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
