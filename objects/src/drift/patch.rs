//! Redacts a patch that shows drift.

use serde_json::Value;

/// Stands for a Secret's value wherever a patch is shown.
pub const MASK: &str = "**REDACTED**";

/// Where `kubectl apply` keeps the whole object as it was applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Annotations under this prefix are bookkeeping of the agent itself.
const BOOKKEEPING_PREFIX: &str = "objectset.rio.cattle.io/";

/// Annotations that the API server and its controllers keep on workloads by themselves. A prediction that changes the
/// template moves them on.
const KEPT_BY_CLUSTER: [&str; 2] = [
    "deployment.kubernetes.io/revision",
    "deprecated.daemonset.template.generation",
];

/// Whether an annotation is the agent's own bookkeeping and never drift.
pub(super) fn is_bookkeeping(annotation: &str) -> bool {
    annotation.starts_with(BOOKKEEPING_PREFIX)
}

/// Takes out what the API server keeps by itself, `status` included.
pub(super) fn strip_server_fields(object: &mut Value) {
    let Some(object) = object.as_object_mut() else {
        return;
    };
    object.remove("status");
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in [
            "creationTimestamp",
            "generation",
            "managedFields",
            "resourceVersion",
            "uid",
        ] {
            metadata.remove(field);
        }
        if let Some(annotations) = metadata
            .get_mut("annotations")
            .and_then(Value::as_object_mut)
        {
            annotations.retain(|key, _| !KEPT_BY_CLUSTER.contains(&key.as_str()));
        }
    }
}

/// Takes bookkeeping annotations and what becomes empty by that out of a patch.
pub(super) fn strip_bookkeeping(patch: &mut Value) {
    let Some(patch) = patch.as_object_mut() else {
        return;
    };
    let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    if let Some(annotations) = metadata
        .get_mut("annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.retain(|key, _| !is_bookkeeping(key));
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    if metadata.is_empty() {
        patch.remove("metadata");
    }
}

/// Takes out what the patch would remove, and what becomes empty by that.
pub(super) fn strip_removals(patch: &mut Value) {
    let Some(patch) = patch.as_object_mut() else {
        return;
    };
    patch.retain(|_, change| match change {
        Value::Null => false,
        Value::Object(fields) if !fields.is_empty() => {
            strip_removals(change);
            change.as_object().is_some_and(|fields| !fields.is_empty())
        }
        _ => true,
    });
}

/// Replaces the values of a Secret in a patch, wherever they may stand in it.
pub(super) fn mask_secret(patch: &mut Value) {
    let Some(patch) = patch.as_object_mut() else {
        return;
    };
    for field in ["data", "stringData"] {
        match patch.get_mut(field) {
            Some(Value::Object(values)) => {
                for value in values.values_mut().filter(|value| !value.is_null()) {
                    *value = Value::String(MASK.to_owned());
                }
            }
            Some(Value::Null) | None => {}
            Some(other) => *other = Value::String(MASK.to_owned()),
        }
    }
    let metadata = patch.get_mut("metadata").and_then(Value::as_object_mut);
    let annotations = metadata.and_then(|metadata| metadata.get_mut("annotations"));
    if let Some(Value::Object(annotations)) = annotations
        && let Some(applied) = annotations.get_mut(LAST_APPLIED)
    {
        *applied = Value::String(MASK.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_the_server_maintains_are_not_compared() {
        let mut object = json!({"metadata": {"generation": 3, "annotations": {
            "deprecated.daemonset.template.generation": "3", "mine": "x"}}});
        strip_server_fields(&mut object);
        assert_eq!(object, json!({"metadata": {"annotations": {"mine": "x"}}}));
    }

    #[test]
    fn removing_managed_annotations_removes_empty_metadata() {
        let mut patch = json!({"metadata": {"annotations": {"objectset.rio.cattle.io/id": "x"}}});
        strip_bookkeeping(&mut patch);
        assert_eq!(patch, json!({}));
    }
}
