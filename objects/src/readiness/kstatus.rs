//! kstatus: one of five statuses for any object, from its generic fields, its kind's own rules, or
//! a `Ready` condition.
//!
//! Mirrors cli-utils `pkg/kstatus/status` (sigs.k8s.io v0.37.2 and fluxcd v1.2.2 agree): `status.go`
//! here, `core.go` in `kinds.rs`.

use jiff::Timestamp;
use serde_json::Value;

use super::kinds::{
    claim, custom_resource_definition, daemon_set, deployment, job, pod, ready_condition,
    replica_set, service, stateful_set,
};
use super::status::{ComputeError, Readiness, Status, conditions, generations};
use crate::fields::{self, str_or};

/// Computes the status of a live object.
///
/// `now` decides only whether a pod has been unschedulable for longer than 15 seconds.
///
/// ```
/// use jiff::Timestamp;
/// use objects::readiness::{Status, kstatus};
/// use serde_json::json;
///
/// let claim = |phase| json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "status": {"phase": phase}});
/// let status = |phase| kstatus::compute(&claim(phase), Timestamp::UNIX_EPOCH).map(|ready| ready.status);
/// assert_eq!(status("Pending")?, Status::InProgress);
/// assert_eq!(status("Bound")?, Status::Current);
/// # Ok::<(), objects::readiness::ComputeError>(())
/// ```
///
/// # Errors
/// A field that the rules read has the wrong type.
pub fn compute(object: &Value, now: Timestamp) -> Result<Readiness, ComputeError> {
    if let Some(result) = generic(object)? {
        return Ok(result);
    }
    let (group, kind) = group_kind(object);
    match (group, kind) {
        ("", "Service") => Ok(service(object)),
        ("", "Pod") => pod(object, now),
        ("", "Secret" | "ConfigMap") | ("batch", "CronJob") => {
            Ok(Readiness::current("Resource is always ready"))
        }
        ("", "PersistentVolumeClaim") => Ok(claim(object)),
        ("apps", "StatefulSet") => Ok(stateful_set(object)),
        ("apps" | "extensions", "DaemonSet") => daemon_set(object, kind),
        ("apps" | "extensions", "Deployment") => deployment(object),
        ("apps" | "extensions", "ReplicaSet") => replica_set(object),
        ("policy", "PodDisruptionBudget") => {
            Ok(Readiness::current("AllowedDisruptions has been computed."))
        }
        ("batch", "Job") => job(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => custom_resource_definition(object),
        _ => ready_condition(object),
    }
}

/// The API group and kind whose rules hold for an object: of no kind where its `apiVersion` is no group and version, as in Go.
pub(super) fn group_kind(object: &Value) -> (&str, &str) {
    let kind = str_or(object, &["kind"], "");
    match str_or(object, &["apiVersion"], "").split_once('/') {
        Some((_, version)) if version.contains('/') => ("", ""),
        Some((group, _)) => (group, kind),
        None => ("", kind),
    }
}

/// Deletion, an unobserved generation, and the standard conditions settle any kind.
fn generic(object: &Value) -> Result<Option<Readiness>, ComputeError> {
    let deletion =
        fields::nested_str(object, &["metadata", "deletionTimestamp"]).map_err(|source| {
            ComputeError::Field {
                field: "metadata.deletionTimestamp",
                source,
            }
        })?;
    if deletion.is_some_and(|time| !time.is_empty()) {
        return Ok(Some(Readiness {
            status: Status::Terminating,
            message: "Resource scheduled for deletion".to_owned(),
            conditions: Vec::new(),
        }));
    }
    if let (Some(generation), Some(observed)) = generations(object)?
        && observed != generation
    {
        let kind = str_or(object, &["kind"], "");
        let message = format!(
            "{kind} generation is {generation}, but latest observed generation is {observed}"
        );
        return Ok(Some(Readiness::in_progress(
            "LatestGenerationNotObserved",
            message,
        )));
    }
    for condition in conditions(object)? {
        match (condition.condition_type, condition.status) {
            ("Reconciling", "True") => {
                return Ok(Some(Readiness::in_progress(
                    condition.reason,
                    condition.message,
                )));
            }
            ("Stalled", "True") => {
                return Ok(Some(Readiness::failed(condition.reason, condition.message)));
            }
            _ => {}
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// As cli-utils says: such an object has no kind of its own.
    #[test]
    fn an_object_with_an_invalid_api_version_has_no_rules_of_its_kind() {
        let claim = |version| json!({ "apiVersion": version, "kind": "PersistentVolumeClaim" });
        let status = |version| {
            let result = compute(&claim(version), Timestamp::UNIX_EPOCH);
            result.map(|ready| ready.status.as_str())
        };
        assert_eq!(status("v1"), Ok("InProgress"));
        assert_eq!(status("a/b/v1"), Ok("Current"));
    }
}
