//! kstatus: one of five statuses for any object, from its generic fields, its kind's own rules, or
//! a `Ready` condition.
//!
//! Mirrors cli-utils `pkg/kstatus/status` (sigs.k8s.io v0.37.2 and fluxcd v1.2.2 agree).

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::fields::{self, WrongType, i64_or, str_or};

/// How long a pod may wait for a node before it counts as unschedulable.
const SCHEDULE_WINDOW: SignedDuration = SignedDuration::from_secs(15);

/// What kstatus says of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The object is as its spec wants it.
    Current,
    /// On its way there.
    InProgress,
    /// It will not get there by itself.
    Failed,
    /// Being deleted.
    Terminating,
    /// Not in the cluster (only [`super::wait`] says so).
    NotFound,
    /// The rules could not be evaluated (only [`super::wait`] says so).
    Unknown,
}

impl Status {
    /// The name as kstatus prints it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Current => "Current",
            Self::InProgress => "InProgress",
            Self::Failed => "Failed",
            Self::Terminating => "Terminating",
            Self::NotFound => "NotFound",
            Self::Unknown => "Unknown",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A standard condition that kstatus derives, always with status `True`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// `Reconciling` or `Stalled`.
    pub condition_type: &'static str,
    /// One CamelCase word.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// The verdict on one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readiness {
    /// The status.
    pub status: Status,
    /// Why, for people.
    pub message: String,
    /// Conditions derived from it: none where the object is as it should be.
    pub conditions: Vec<Condition>,
}

impl Readiness {
    pub(super) fn current(message: impl Into<String>) -> Self {
        Self {
            status: Status::Current,
            message: message.into(),
            conditions: Vec::new(),
        }
    }

    pub(super) fn in_progress(reason: &str, message: impl Into<String>) -> Self {
        Self::with_condition(Status::InProgress, "Reconciling", reason, message.into())
    }

    pub(super) fn failed(reason: &str, message: impl Into<String>) -> Self {
        Self::with_condition(Status::Failed, "Stalled", reason, message.into())
    }

    fn with_condition(
        status: Status,
        condition_type: &'static str,
        reason: &str,
        message: String,
    ) -> Self {
        let condition = Condition {
            condition_type,
            reason: reason.to_owned(),
            message: message.clone(),
        };
        Self {
            status,
            message,
            conditions: vec![condition],
        }
    }
}

/// Why an object's status cannot be computed; prints Go's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ComputeError {
    /// A field of `metadata` or `status` that the rules read has the wrong type.
    #[error("looking up {field} from resource: {source}")]
    Field {
        /// Dotted path without a leading dot.
        field: &'static str,
        /// What was found instead.
        source: WrongType,
    },
    /// `status` or its conditions do not have the shape of conditions.
    #[error("{0}")]
    Conditions(String),
    /// Container statuses of a pod do not have their shape.
    #[error(transparent)]
    Containers(#[from] WrongType),
    /// A pod phase that Kubernetes does not know.
    #[error("unknown phase {0}")]
    Phase(String),
}

/// One entry of `status.conditions`; absent fields are empty.
#[derive(Debug, Default)]
pub(super) struct BasicCondition<'a> {
    pub(super) condition_type: &'a str,
    pub(super) status: &'a str,
    pub(super) reason: &'a str,
    pub(super) message: &'a str,
}

/// Computes the status of a live object.
///
/// `now` decides only whether a pod has been unschedulable for longer than 15 seconds.
///
/// # Errors
/// A field that the rules read has the wrong type.
pub fn compute(object: &Value, now: Timestamp) -> Result<Readiness, ComputeError> {
    if let Some(result) = generic(object)? {
        return Ok(result);
    }
    let kind = str_or(object, &["kind"], "");
    match (group(object), kind) {
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

/// The API group of an object; empty for the core group and for text that is no group/version.
pub(super) fn group(object: &Value) -> &str {
    match str_or(object, &["apiVersion"], "").split_once('/') {
        Some((group, version)) if !version.contains('/') => group,
        _ => "",
    }
}

/// Reads `status.conditions` as Go converts them to its typed form.
pub(super) fn conditions(object: &Value) -> Result<Vec<BasicCondition<'_>>, ComputeError> {
    let shape = |text: String| ComputeError::Conditions(text);
    let status = match object.get("status") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(status)) => status,
        Some(other) => {
            return Err(shape(format!(
                "cannot restore struct from: {}",
                kind(other)
            )));
        }
    };
    let list = match status.get("conditions") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(shape(format!("cannot restore slice from {}", kind(other)))),
    };
    let mut result = Vec::with_capacity(list.len());
    for entry in list {
        let entry = match entry {
            Value::Null => {
                result.push(BasicCondition::default());
                continue;
            }
            Value::Object(entry) => entry,
            other => {
                return Err(shape(format!(
                    "cannot restore struct from: {}",
                    kind(other)
                )));
            }
        };
        let text = |name: &str, go_type: &str| match entry.get(name) {
            None | Some(Value::Null) => Ok(""),
            Some(Value::String(text)) => Ok(text.as_str()),
            Some(Value::Number(number)) if !number.is_f64() => {
                Err(shape(format!("cannot convert int64 to {go_type}")))
            }
            Some(_) => Err(shape("unrecognized type: string".to_owned())),
        };
        result.push(BasicCondition {
            condition_type: text("type", "string")?,
            status: text("status", "v1.ConditionStatus")?,
            reason: text("reason", "string")?,
            message: text("message", "string")?,
        });
    }
    Ok(result)
}

/// Go's reflect kind of a decoded JSON value.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
        other => fields::go_type(other),
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

/// `metadata.generation` and `status.observedGeneration`; the second is read only with the first.
fn generations(object: &Value) -> Result<(Option<i64>, Option<i64>), ComputeError> {
    let read = |path: &[&str], field| {
        fields::nested_i64(object, path).map_err(|source| ComputeError::Field { field, source })
    };
    let generation = read(&["metadata", "generation"], "metadata.generation")?;
    if generation.is_none() {
        return Ok((None, None));
    }
    let observed = read(
        &["status", "observedGeneration"],
        "status.observedGeneration",
    )?;
    Ok((generation, observed))
}

fn ready_condition(object: &Value) -> Result<Readiness, ComputeError> {
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

fn service(object: &Value) -> Readiness {
    let is_load_balancer = str_or(object, &["spec", "type"], "ClusterIP") == "LoadBalancer";
    if is_load_balancer && str_or(object, &["spec", "clusterIP"], "").is_empty() {
        let message = "ClusterIP not set. Service type: LoadBalancer";
        return Readiness::in_progress("NoIPAssigned", message);
    }
    Readiness::current("Service is ready")
}

fn claim(object: &Value) -> Readiness {
    match str_or(object, &["status", "phase"], "unknown") {
        "Bound" => Readiness::current("PVC is Bound"),
        phase => Readiness::in_progress("NotBound", format!("PVC is not Bound. phase: {phase}")),
    }
}

fn pod(object: &Value, now: Timestamp) -> Result<Readiness, ComputeError> {
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

fn stateful_set(object: &Value) -> Readiness {
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

fn deployment(object: &Value) -> Result<Readiness, ComputeError> {
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

fn replica_set(object: &Value) -> Result<Readiness, ComputeError> {
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

fn daemon_set(object: &Value, kind: &str) -> Result<Readiness, ComputeError> {
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

fn job(object: &Value) -> Result<Readiness, ComputeError> {
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

fn custom_resource_definition(object: &Value) -> Result<Readiness, ComputeError> {
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
