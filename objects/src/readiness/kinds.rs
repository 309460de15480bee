//! The rules of single kinds, and of kinds that only have conditions.
//!
//! Mirrors cli-utils `pkg/kstatus/status/core.go`.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::status::{ComputeError, Readiness, conditions, generations};
use crate::fields::{self, i64_or, str_or};

/// How long a pod may wait for a node before it counts as unschedulable.
const SCHEDULE_WINDOW: SignedDuration = SignedDuration::from_secs(15);

pub(super) fn ready_condition(object: &Value) -> Result<Readiness, ComputeError> {
    for condition in conditions(object)? {
        if condition.condition_type != "Ready" {
            continue;
        }
        match condition.status {
            "True" => return Ok(Readiness::current("Resource is Ready")),
            "False" | "Unknown" => {
                return Ok(Readiness::in_progress(condition.reason, condition.message));
            }
            _ => {}
        }
    }
    Ok(Readiness::current("Resource is current"))
}

pub(super) fn service(object: &Value) -> Readiness {
    let is_load_balancer = str_or(object, &["spec", "type"], "ClusterIP") == "LoadBalancer";
    if is_load_balancer && str_or(object, &["spec", "clusterIP"], "").is_empty() {
        let message = "ClusterIP not set. Service type: LoadBalancer";
        return Readiness::in_progress("NoIPAssigned", message);
    }
    Readiness::current("Service is ready")
}

pub(super) fn claim(object: &Value) -> Readiness {
    match str_or(object, &["status", "phase"], "unknown") {
        "Bound" => Readiness::current("PVC is Bound"),
        phase => Readiness::in_progress("NotBound", format!("PVC is not Bound. phase: {phase}")),
    }
}

pub(super) fn pod(object: &Value, now: Timestamp) -> Result<Readiness, ComputeError> {
    let conditions = conditions(object)?;
    let has = |condition_type: &str, status: &str| {
        conditions
            .iter()
            .find(|c| c.condition_type == condition_type && c.status == status)
    };
    Ok(match str_or(object, &["status", "phase"], "") {
        "Succeeded" => Readiness::current("Pod has completed successfully"),
        "Failed" => Readiness::current("Pod has completed, but not successfully"),
        "Running" if has("Ready", "True").is_some() => Readiness::current("Pod is Ready"),
        "Running" => match crash_looping(object)?.as_slice() {
            [] => Readiness::in_progress("PodRunningNotReady", "Pod is running but is not Ready"),
            names => Readiness::failed(
                "ContainerCrashLooping",
                format!("Containers in CrashLoop state: {}", names.join(",")),
            ),
        },
        "Pending" => match has("PodScheduled", "False") {
            Some(scheduled) if scheduled.reason == "Unschedulable" => {
                if is_within_schedule_window(object, now) {
                    Readiness::in_progress("PodNotScheduled", "Pod has not been scheduled")
                } else {
                    Readiness::failed("PodUnschedulable", "Pod could not be scheduled")
                }
            }
            _ => Readiness::in_progress("PodPending", "Pod is in the Pending phase"),
        },
        "" => Readiness::in_progress("PodNotObserved", "Pod phase not available"),
        phase => return Err(ComputeError::Phase(phase.to_owned())),
    })
}

fn is_within_schedule_window(object: &Value, now: Timestamp) -> bool {
    let created: Option<Timestamp> = str_or(object, &["metadata", "creationTimestamp"], "")
        .parse()
        .ok();
    created.is_some_and(|created| now.duration_since(created) < SCHEDULE_WINDOW)
}

/// Names of the containers that wait in `CrashLoopBackOff`. Malformed entries are passed over,
/// where Go's code panics.
fn crash_looping(object: &Value) -> Result<Vec<&str>, ComputeError> {
    let statuses = fields::nested_list(object, &["status", "containerStatuses"])?;
    let is_looping = |container: &&Value| {
        str_or(container, &["state", "waiting", "reason"], "") == "CrashLoopBackOff"
    };
    Ok(statuses
        .into_iter()
        .flatten()
        .filter(is_looping)
        .filter_map(|container| container.get("name")?.as_str())
        .collect())
}

pub(super) fn stateful_set(object: &Value) -> Readiness {
    if str_or(object, &["spec", "updateStrategy", "type"], "") == "OnDelete" {
        return Readiness::current("StatefulSet is using the ondelete update strategy");
    }
    let desired = i64_or(object, &["spec", "replicas"], 1);
    let status = |field| i64_or(object, &["status", field], 0);
    let (replicas, ready) = (status("replicas"), status("readyReplicas"));
    let (current, updated) = (status("currentReplicas"), status("updatedReplicas"));
    let partition = i64_or(
        object,
        &["spec", "updateStrategy", "rollingUpdate", "partition"],
        -1,
    );

    if desired > replicas {
        return Readiness::in_progress("LessReplicas", format!("Replicas: {replicas}/{desired}"));
    }
    if desired > ready {
        return Readiness::in_progress("LessReady", format!("Ready: {ready}/{desired}"));
    }
    if replicas > desired {
        return extra_pods(replicas, desired);
    }
    if partition != -1 {
        let to_update = desired.saturating_sub(partition);
        if updated < to_update {
            let message = format!("updated: {updated}/{to_update}");
            return Readiness::in_progress("PartitionRollout", message);
        }
        return Readiness::current(format!("Partition rollout complete. updated: {updated}"));
    }
    if desired > current {
        return Readiness::in_progress("LessCurrent", format!("current: {current}/{desired}"));
    }
    let revision = |field| str_or(object, &["status", field], "");
    if revision("currentRevision") != revision("updateRevision") {
        let message = "Waiting for updated revision to match current";
        return Readiness::in_progress("RevisionMismatch", message);
    }
    Readiness::current(format!(
        "All replicas scheduled as expected. Replicas: {replicas}"
    ))
}

fn extra_pods(replicas: i64, desired: i64) -> Readiness {
    let surplus = replicas.saturating_sub(desired);
    Readiness::in_progress("ExtraPods", format!("Pending termination: {surplus}"))
}

pub(super) fn deployment(object: &Value) -> Result<Readiness, ComputeError> {
    // Without a deadline (or with the controller's "never") no Progressing condition is kept.
    let never = i64::from(i32::MAX);
    let mut progressing = i64_or(object, &["spec", "progressDeadlineSeconds"], never) == never;
    let mut available = false;
    for condition in conditions(object)? {
        match condition.condition_type {
            "Progressing" if condition.reason == "ProgressDeadlineExceeded" => {
                return Ok(Readiness {
                    message: "Progress deadline exceeded".to_owned(),
                    ..Readiness::failed(condition.reason, condition.message)
                });
            }
            "Progressing" => {
                progressing |=
                    condition.status == "True" && condition.reason == "NewReplicaSetAvailable";
            }
            "Available" => available |= condition.status == "True",
            _ => {}
        }
    }

    let desired = i64_or(object, &["spec", "replicas"], 1);
    let status = |field| i64_or(object, &["status", field], 0);
    let (replicas, updated) = (status("replicas"), status("updatedReplicas"));
    let (ready, available_replicas) = (status("readyReplicas"), status("availableReplicas"));
    Ok(if desired > replicas {
        Readiness::in_progress("LessReplicas", format!("Replicas: {replicas}/{desired}"))
    } else if desired > updated {
        Readiness::in_progress("LessUpdated", format!("Updated: {updated}/{desired}"))
    } else if replicas > desired {
        extra_pods(replicas, desired)
    } else if updated > available_replicas {
        let message = format!("Available: {available_replicas}/{updated}");
        Readiness::in_progress("LessAvailable", message)
    } else if desired > ready {
        Readiness::in_progress("LessReady", format!("Ready: {ready}/{desired}"))
    } else if !progressing {
        Readiness::in_progress("ReplicaSetNotAvailable", "ReplicaSet not Available")
    } else if !available {
        Readiness::in_progress("DeploymentNotAvailable", "Deployment not Available")
    } else {
        Readiness::current(format!("Deployment is available. Replicas: {replicas}"))
    })
}

pub(super) fn replica_set(object: &Value) -> Result<Readiness, ComputeError> {
    if conditions(object)?
        .iter()
        .any(|c| c.condition_type == "ReplicaFailure" && c.status == "True")
    {
        let message = "Replica Failure condition. Check Pods";
        return Ok(Readiness::in_progress("ReplicaFailure", message));
    }
    let desired = i64_or(object, &["spec", "replicas"], 1);
    let status = |field| i64_or(object, &["status", field], 0);
    let (replicas, labelled) = (status("replicas"), status("fullyLabeledReplicas"));
    let (available, ready) = (status("availableReplicas"), status("readyReplicas"));
    Ok(if desired > labelled {
        Readiness::in_progress("LessLabelled", format!("Labelled: {labelled}/{desired}"))
    } else if desired > available {
        Readiness::in_progress("LessAvailable", format!("Available: {available}/{desired}"))
    } else if desired > ready {
        Readiness::in_progress("LessReady", format!("Ready: {ready}/{desired}"))
    } else if replicas > desired {
        extra_pods(replicas, desired)
    } else {
        Readiness::current(format!("ReplicaSet is available. Replicas: {replicas}"))
    })
}

pub(super) fn daemon_set(object: &Value, kind: &str) -> Result<Readiness, ComputeError> {
    // The generic check tolerates absent generations; a controller that has acted sets both.
    match generations(object)? {
        (None, _) => {
            let message = format!("{kind} metadata.generation not found");
            return Ok(Readiness::in_progress("NoGeneration", message));
        }
        (Some(_), None) => {
            let message = format!("{kind} status.observedGeneration not found");
            return Ok(Readiness::in_progress("NoObservedGeneration", message));
        }
        _ => {}
    }
    let status = |field| i64_or(object, &["status", field], 0);
    let desired = i64_or(object, &["status", "desiredNumberScheduled"], -1);
    let (current, updated) = (
        status("currentNumberScheduled"),
        status("updatedNumberScheduled"),
    );
    let (available, ready) = (status("numberAvailable"), status("numberReady"));
    Ok(if desired == -1 {
        Readiness::in_progress("NoDesiredNumber", "Missing .status.desiredNumberScheduled")
    } else if desired > current {
        Readiness::in_progress("LessCurrent", format!("Current: {current}/{desired}"))
    } else if desired > updated {
        Readiness::in_progress("LessUpdated", format!("Updated: {updated}/{desired}"))
    } else if desired > available {
        Readiness::in_progress("LessAvailable", format!("Available: {available}/{desired}"))
    } else if desired > ready {
        Readiness::in_progress("LessReady", format!("Ready: {ready}/{desired}"))
    } else {
        Readiness::current(format!(
            "All replicas scheduled as expected. Replicas: {desired}"
        ))
    })
}

pub(super) fn job(object: &Value) -> Result<Readiness, ComputeError> {
    let status = |field| i64_or(object, &["status", field], 0);
    let (succeeded, failed) = (status("succeeded"), status("failed"));
    if let Some(result) = finished_job(object)? {
        return Ok(result);
    }
    if str_or(object, &["status", "startTime"], "").is_empty() {
        return Ok(Readiness::in_progress("JobNotStarted", "Job not started"));
    }
    let active = status("active");
    Ok(Readiness::current(format!(
        "Job in progress. success:{succeeded}, active: {active}, failed: {failed}"
    )))
}

/// The verdict on a Job whose conditions say that it is over.
pub(super) fn finished_job(object: &Value) -> Result<Option<Readiness>, ComputeError> {
    let parallelism = i64_or(object, &["spec", "parallelism"], 1);
    let completions = i64_or(object, &["spec", "completions"], parallelism);
    let status = |field| i64_or(object, &["status", field], 0);
    for condition in conditions(object)? {
        match (condition.condition_type, condition.status) {
            ("Complete", "True") => {
                let succeeded = status("succeeded");
                return Ok(Some(Readiness::current(format!(
                    "Job Completed. succeeded: {succeeded}/{completions}"
                ))));
            }
            ("Failed", "True") => {
                let failed = status("failed");
                let message = format!("Job Failed. failed: {failed}/{completions}");
                return Ok(Some(Readiness::failed("JobFailed", message)));
            }
            _ => {}
        }
    }
    Ok(None)
}

pub(super) fn custom_resource_definition(object: &Value) -> Result<Readiness, ComputeError> {
    for condition in conditions(object)? {
        match (condition.condition_type, condition.status) {
            ("NamesAccepted", "False") => {
                return Ok(Readiness::failed(condition.reason, condition.message));
            }
            ("Established", "False") if condition.reason != "Installing" => {
                return Ok(Readiness::failed(condition.reason, condition.message));
            }
            ("Established", "True") => return Ok(Readiness::current("CRD is established")),
            _ => {}
        }
    }
    Ok(Readiness::in_progress("Installing", "Install in progress"))
}
