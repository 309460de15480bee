//! Replicas that an autoscaler of the same release holds are not drift.
//!
//! Mirrors `normalizeReplicasPatch` of Fleet's `desiredset/diff.go`.

use serde_json::{Map, Value};

use crate::discovery::Resource;
use crate::fields::{nested, nested_i64, text};
use crate::object::ObjectKey;

/// An autoscaler of the release lacks a field that the API demands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed HPA {namespace}/{name}: field {field:?} not found")]
pub struct MalformedAutoscaler {
    namespace: String,
    name: String,
    field: &'static str,
}

/// Whether objects of this kind scale others, so that their `spec` says whether replicas are drift.
pub fn is_autoscaler(kind: &Resource) -> bool {
    (&*kind.group, &*kind.kind) == ("autoscaling", "HorizontalPodAutoscaler")
}

/// Drops `spec.replicas` from the `patch` of a Deployment or StatefulSet if a live autoscaler among
/// `release_objects` targets it and its replicas lie within the autoscaler's range; outside of
/// it the difference stays.
///
/// # Errors
/// An autoscaler in the object's namespace lacks its target or maximum, or the object its replicas.
pub fn hold_replicas<'v>(
    patch: &mut Map<String, Value>,
    live: &Value,
    release_objects: impl IntoIterator<Item = &'v Value>,
) -> Result<(), MalformedAutoscaler> {
    let key = ObjectKey::of(live);
    let is_scalable = key.group == "apps" && matches!(&*key.kind, "Deployment" | "StatefulSet");
    if !is_scalable || !patch.contains_key("spec") {
        return Ok(());
    }
    let missing = |key: &ObjectKey, field| MalformedAutoscaler {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        field,
    };
    let replicas = nested_i64(live, &["spec", "replicas"])
        .ok()
        .flatten()
        .ok_or_else(|| missing(&key, ".spec.replicas"))?;

    for autoscaler in release_objects {
        let found = ObjectKey::of(autoscaler);
        let is_autoscaler = found.kind == "HorizontalPodAutoscaler"
            && matches!(
                text(autoscaler, "/apiVersion"),
                "autoscaling/v1" | "autoscaling/v2"
            );
        if !is_autoscaler || found.namespace != key.namespace {
            continue;
        }
        let number = |field| nested_i64(autoscaler, &["spec", field]).ok().flatten();
        let minimum = number("minReplicas").unwrap_or(1);
        let maximum = number("maxReplicas").ok_or_else(|| missing(&found, ".spec.maxReplicas"))?;
        let target = nested(autoscaler, &["spec", "scaleTargetRef"])
            .ok()
            .flatten();
        let target = target.ok_or_else(|| missing(&found, ".spec.scaleTargetRef"))?;
        let target_field = |field| target.get(field).and_then(Value::as_str);
        let kind =
            target_field("kind").ok_or_else(|| missing(&found, ".spec.scaleTargetRef.kind"))?;
        let name =
            target_field("name").ok_or_else(|| missing(&found, ".spec.scaleTargetRef.name"))?;
        let version = target_field("apiVersion").unwrap_or_default();
        let is_target = kind == key.kind
            && name == key.name
            && (version.is_empty() || version == text(live, "/apiVersion"));
        if !is_target {
            continue;
        }
        if (minimum..=maximum).contains(&replicas) {
            drop_replicas(patch);
        }
        return Ok(());
    }
    Ok(())
}

fn drop_replicas(patch: &mut Map<String, Value>) {
    if let Some(spec) = patch.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("replicas");
        if spec.is_empty() {
            patch.remove("spec");
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn deployment(replicas: i64) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
               "metadata": {"name": "web", "namespace": "ns"}, "spec": {"replicas": replicas}})
    }

    fn autoscaler(target: &str) -> Value {
        json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
               "metadata": {"name": "hpa", "namespace": "ns"},
               "spec": {"minReplicas": 2, "maxReplicas": 5,
                        "scaleTargetRef": {"kind": "Deployment", "name": target}}})
    }

    #[rstest]
    #[case::within_the_range(4, "web", json!({}))]
    #[case::outside_the_range(9, "web", json!({"spec": {"replicas": 3}}))]
    #[case::of_another_deployment(4, "other", json!({"spec": {"replicas": 3}}))]
    fn replicas_are_held(#[case] live: i64, #[case] target: &str, #[case] expected: Value) {
        let mut patch = json!({"spec": {"replicas": 3}})
            .as_object()
            .unwrap()
            .clone();
        hold_replicas(&mut patch, &deployment(live), &[autoscaler(target)]).unwrap();
        assert_eq!(Value::Object(patch), expected);
    }

    #[test]
    fn an_autoscaler_without_a_maximum_is_named() {
        let mut hpa = autoscaler("web");
        hpa["spec"].as_object_mut().unwrap().remove("maxReplicas");
        let mut patch = json!({"spec": {"replicas": 3}})
            .as_object()
            .unwrap()
            .clone();
        let error = hold_replicas(&mut patch, &deployment(4), &[hpa]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "malformed HPA ns/hpa: field \".spec.maxReplicas\" not found"
        );
    }
}
