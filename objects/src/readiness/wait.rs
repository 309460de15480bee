//! What Helm's status watcher reads from an object while it waits.
//!
//! Mirrors Helm 4's `pkg/kube/statuswait.go` with its status readers and cli-utils' readers for
//! pod controllers (`pkg/kstatus/polling/statusreaders`): kstatus, but a ReplicaSet or
//! StatefulSet in progress fails with its pods, and Jobs and Pods are judged by what is waited for.

use jiff::Timestamp;
use serde_json::Value;

use super::kinds::finished_job;
use super::kstatus;
use super::status::{Readiness, Status, conditions};
use crate::fields::{self, str_or};

/// The objects to wait for, and how far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The release's objects; a started Job is good enough.
    Wait,
    /// The release's objects; Jobs must complete.
    WaitWithJobs,
    /// A hook: Jobs and Pods must end, everything else is done at once.
    Hook,
}

/// One reading of an object; an object whose rules fail reads as `Unknown` with the error's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    pub status: Status,
    /// Why, for people; empty when `error` is set.
    pub message: String,
    /// The error that kept the rules from being evaluated.
    pub error: Option<String>,
}

impl Reading {
    fn unknown(error: impl ToString) -> Self {
        Self {
            status: Status::Unknown,
            message: String::new(),
            error: Some(error.to_string()),
        }
    }

    /// The same of a StatefulSet or ReplicaSet, so many of whose pods have failed.
    #[must_use]
    pub fn with_failed_pods(self, failed: usize) -> Self {
        if self.status != Status::InProgress || failed == 0 {
            return self;
        }
        Self {
            status: Status::Failed,
            message: format!("{failed} pods have failed"),
            error: None,
        }
    }
}

impl From<Readiness> for Reading {
    fn from(result: Readiness) -> Self {
        Self {
            status: result.status,
            message: result.message,
            error: None,
        }
    }
}

impl<E: std::error::Error> From<Result<Readiness, E>> for Reading {
    fn from(result: Result<Readiness, E>) -> Self {
        result.map_or_else(Self::unknown, Self::from)
    }
}

/// Reads one object. `pods` are the pods of its namespace (only those its selector matches count);
/// it is needed for StatefulSets and ReplicaSets alone.
pub fn read(object: &Value, pods: &[Value], mode: Mode, now: Timestamp) -> Reading {
    let (group, kind) = kstatus::group_kind(object);
    match (mode, group, kind) {
        (Mode::WaitWithJobs | Mode::Hook, "batch", "Job") => job(object),
        (Mode::Hook, "", "Pod") => pod(object),
        (Mode::Hook, ..) => Readiness::current("Resource is current").into(),
        (_, "apps", "StatefulSet" | "ReplicaSet") => pod_controller(object, pods, now),
        // The Deployment reader lists replica sets by this selector, so it must be there.
        (_, "apps", "Deployment") => match selector(object) {
            Ok(_) => kstatus::compute(object, now).into(),
            Err(error) => Reading::unknown(error),
        },
        _ => kstatus::compute(object, now).into(),
    }
}

fn job(object: &Value) -> Reading {
    match finished_job(object) {
        Ok(Some(result)) => result.into(),
        Ok(None) => Readiness::in_progress("JobInProgress", "Job in progress").into(),
        Err(error) => Reading::unknown(error),
    }
}

fn pod(object: &Value) -> Reading {
    let name = str_or(object, &["metadata", "name"], "");
    match str_or(object, &["status", "phase"], "") {
        "Succeeded" => Readiness::current(format!("pod {name} succeeded")),
        "Failed" => Readiness::failed("PodFailed", format!("pod {name} failed")),
        _ => Readiness::in_progress("PodInProgress", "Pod in progress"),
    }
    .into()
}

fn pod_controller(object: &Value, pods: &[Value], now: Timestamp) -> Reading {
    if let Err(error) = selector(object) {
        return Reading::unknown(error);
    }
    let failed = pods.iter().filter(|pod| is_failed_pod(object, pod, now));
    Reading::from(kstatus::compute(object, now)).with_failed_pods(failed.count())
}

/// Whether a pod is one of `object`'s, a StatefulSet or ReplicaSet, and has failed in a way for which that fails.
pub fn is_failed_pod(object: &Value, pod: &Value, now: Timestamp) -> bool {
    let namespace = |of| str_or(of, &["metadata", "namespace"], "");
    namespace(pod) == namespace(object)
        && selector(object).is_ok_and(|selector| selector.matches(pod))
        && kstatus::compute(pod, now).is_ok_and(|reading| reading.status == Status::Failed)
        && !is_transient_failure(pod)
}

/// The labels that all pods of `object` have, as a list of them is asked for by these; it may hold others too.
pub fn pod_labels(object: &Value) -> String {
    let labels = selector(object).map(|selector| selector.labels);
    let labels = labels.unwrap_or_default().into_iter();
    let labels: Vec<_> = labels
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    labels.join(",")
}

/// Pods on their way out and pods that wait for a node say nothing about their controller.
fn is_transient_failure(pod: &Value) -> bool {
    let is_deleted = !str_or(pod, &["metadata", "deletionTimestamp"], "").is_empty();
    is_deleted
        || conditions(pod).is_ok_and(|conditions| {
            conditions.iter().any(|c| {
                (c.condition_type, c.status, c.reason) == ("PodScheduled", "False", "Unschedulable")
            })
        })
}

/// A label selector of a workload.
struct Selector<'a> {
    labels: Vec<(&'a str, &'a str)>,
    expressions: Vec<Expression<'a>>,
}

struct Expression<'a> {
    key: &'a str,
    operator: Operator,
    values: Vec<&'a str>,
}

enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// Why a workload's selector cannot be used.
#[derive(Debug, thiserror::Error)]
enum SelectorError {
    #[error("no selector found")]
    Missing,
    #[error(transparent)]
    Type(#[from] fields::WrongType),
    #[error("{0:?} is not a valid label selector operator")]
    Operator(String),
}

fn selector(object: &Value) -> Result<Selector<'_>, SelectorError> {
    let selector =
        fields::nested_map(object, &["spec", "selector"])?.ok_or(SelectorError::Missing)?;
    // The selector of a ReplicationController is the labels themselves.
    let is_plain = str_or(object, &["kind"], "") == "ReplicationController";
    let labels = match is_plain {
        true => Some(selector),
        false => selector.get("matchLabels").and_then(Value::as_object),
    };
    let labels = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
        .collect();
    let mut expressions = Vec::new();
    for expression in selector
        .get("matchExpressions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let operator = match str_or(expression, &["operator"], "") {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            other => return Err(SelectorError::Operator(other.to_owned())),
        };
        let values = expression.get("values").and_then(Value::as_array);
        expressions.push(Expression {
            key: str_or(expression, &["key"], ""),
            operator,
            values: values
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect(),
        });
    }
    Ok(Selector {
        labels,
        expressions,
    })
}

impl Selector<'_> {
    fn matches(&self, object: &Value) -> bool {
        // An empty selector of a workload selects everything, as metav1's does.
        let label = |key: &str| object.get("metadata")?.get("labels")?.get(key)?.as_str();
        self.labels
            .iter()
            .all(|(key, value)| label(key) == Some(value))
            && self.expressions.iter().all(|expression| {
                let found = label(expression.key);
                match expression.operator {
                    Operator::In => found.is_some_and(|v| expression.values.contains(&v)),
                    Operator::NotIn => found.is_none_or(|v| !expression.values.contains(&v)),
                    Operator::Exists => found.is_some(),
                    Operator::DoesNotExist => found.is_none(),
                }
            })
    }
}
