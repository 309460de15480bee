//! Helm's older readiness rules (wait strategy `legacy`), one poll.
//!
//! Mirrors Helm 4's `pkg/kube/ready.go`. A status that lags behind its spec is "not ready yet";
//! only a Job that has used up its retries is an error.

use serde_json::Value;

use super::kstatus::group;
use super::wait;
use crate::fields::{i64_or, nested, nested_i64, str_or};

/// What counts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Jobs must complete.
    pub check_jobs: bool,
    /// A paused Deployment is ready; otherwise it never is.
    pub paused_as_ready: bool,
}

/// A Job that has failed more often than it may.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("job is failed: {namespace}/{name}")]
pub struct JobFailed {
    namespace: String,
    name: String,
}

/// Whether an object is ready. `others` are the pods and replica sets of its namespace.
///
/// # Errors
/// The object is a Job that has failed for good.
pub fn is_ready(object: &Value, others: &[Value], options: Options) -> Result<bool, JobFailed> {
    let kind = str_or(object, &["kind"], "");
    Ok(match (group(object), kind) {
        ("", "Pod") => has_condition(object, "Ready", "True"),
        ("batch", "Job") if options.check_jobs => return job(object),
        ("apps", "Deployment") => deployment(object, others, options),
        ("", "PersistentVolumeClaim") => str_or(object, &["status", "phase"], "") == "Bound",
        ("", "Service") => service(object),
        ("apps", "DaemonSet") => daemon_set(object),
        ("apps", "StatefulSet") => stateful_set(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            has_condition(object, "Established", "True")
                || has_condition(object, "NamesAccepted", "False")
        }
        ("", "ReplicationController") | ("apps", "ReplicaSet") => {
            is_observed(object)
                && wait::pods_of(object, others).all(|pod| has_condition(pod, "Ready", "True"))
        }
        _ => true,
    })
}

fn has_condition(object: &Value, condition_type: &str, status: &str) -> bool {
    let conditions = nested(object, &["status", "conditions"]).ok().flatten();
    conditions
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .any(|condition| {
            str_or(condition, &["type"], "") == condition_type
                && str_or(condition, &["status"], "") == status
        })
}

fn is_observed(object: &Value) -> bool {
    i64_or(object, &["status", "observedGeneration"], 0)
        == i64_or(object, &["metadata", "generation"], 0)
}

fn job(object: &Value) -> Result<bool, JobFailed> {
    // The API server's default where the chart says nothing.
    let limit = i64_or(object, &["spec", "backoffLimit"], 6);
    if i64_or(object, &["status", "failed"], 0) > limit {
        return Err(JobFailed {
            namespace: str_or(object, &["metadata", "namespace"], "").to_owned(),
            name: str_or(object, &["metadata", "name"], "").to_owned(),
        });
    }
    let completions = nested_i64(object, &["spec", "completions"]).ok().flatten();
    let succeeded = i64_or(object, &["status", "succeeded"], 0);
    Ok(completions.is_none_or(|completions| succeeded >= completions))
}

fn service(object: &Value) -> bool {
    let service_type = str_or(object, &["spec", "type"], "");
    if service_type == "ExternalName" {
        return true;
    }
    if str_or(object, &["spec", "clusterIP"], "").is_empty() {
        return false;
    }
    let list = |path: &[&str]| {
        nested(object, path)
            .ok()
            .flatten()
            .and_then(Value::as_array)
    };
    service_type != "LoadBalancer"
        || list(&["spec", "externalIPs"]).is_some_and(|ips| !ips.is_empty())
        || list(&["status", "loadBalancer", "ingress"]).is_some()
}

fn deployment(object: &Value, others: &[Value], options: Options) -> bool {
    if nested(object, &["spec", "paused"]).ok().flatten() == Some(&Value::Bool(true)) {
        return options.paused_as_ready;
    }
    let Some(newest) = newest_replica_set(object, others) else {
        return false;
    };
    if !is_observed(newest) || !is_observed(object) {
        return false;
    }
    let desired = i64_or(object, &["spec", "replicas"], 1);
    let expected = desired - max_unavailable(object, desired);
    i64_or(newest, &["status", "readyReplicas"], 0) >= expected
}

/// The replica set of the Deployment's own template; of several the oldest.
fn newest_replica_set<'a>(deployment: &'a Value, others: &'a [Value]) -> Option<&'a Value> {
    let uid = str_or(deployment, &["metadata", "uid"], "");
    let template = without_hash(nested(deployment, &["spec", "template"]).ok()??.clone());
    let is_owned = |set: &Value| {
        let owners = nested(set, &["metadata", "ownerReferences"]).ok().flatten();
        owners
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .any(|owner| {
                owner.get("controller") == Some(&Value::Bool(true))
                    && str_or(owner, &["uid"], "") == uid
            })
    };
    wait::selected_by(deployment, others)
        .filter(|set| str_or(set, &["kind"], "") == "ReplicaSet" && is_owned(set))
        .filter(|set| {
            let found = nested(set, &["spec", "template"]).ok().flatten();
            found.is_some_and(|found| without_hash(found.clone()) == template)
        })
        .min_by_key(|set| str_or(set, &["metadata", "creationTimestamp"], ""))
}

fn without_hash(mut template: Value) -> Value {
    if let Some(labels) = template
        .pointer_mut("/metadata/labels")
        .and_then(Value::as_object_mut)
    {
        labels.remove("pod-template-hash");
    }
    template
}

/// How many pods a rolling update may take away; none while recreating.
fn max_unavailable(deployment: &Value, desired: i64) -> i64 {
    let strategy = str_or(deployment, &["spec", "strategy", "type"], "");
    if strategy != "RollingUpdate" || desired == 0 {
        return 0;
    }
    let field = |name| {
        nested(deployment, &["spec", "strategy", "rollingUpdate", name])
            .ok()
            .flatten()
    };
    let surge = scaled(field("maxSurge"), desired, Round::Up).unwrap_or(0);
    let unavailable = scaled(field("maxUnavailable"), desired, Round::Down).unwrap_or(0);
    // Both zero would never make progress, so the controller takes one away.
    let unavailable = if surge == 0 && unavailable == 0 {
        1
    } else {
        unavailable
    };
    unavailable.min(desired)
}

enum Round {
    Up,
    Down,
}

/// A number, or a percentage of `total`.
fn scaled(value: Option<&Value>, total: i64, round: Round) -> Option<i64> {
    match value? {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => {
            let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
            let product = percent.checked_mul(total)?;
            Some(match round {
                Round::Up => product.div_euclid(100) + i64::from(product.rem_euclid(100) != 0),
                Round::Down => product.div_euclid(100),
            })
        }
        _ => None,
    }
}

fn daemon_set(object: &Value) -> bool {
    if !is_observed(object) {
        return false;
    }
    if str_or(object, &["spec", "updateStrategy", "type"], "") != "RollingUpdate" {
        return true;
    }
    let status = |field| i64_or(object, &["status", field], 0);
    let desired = status("desiredNumberScheduled");
    if status("updatedNumberScheduled") != desired {
        return false;
    }
    let path = ["spec", "updateStrategy", "rollingUpdate", "maxUnavailable"];
    let allowed = nested(object, &path).ok().flatten();
    // An unusable limit counts as "all may be away".
    let unavailable = scaled(allowed, desired, Round::Up).unwrap_or(desired);
    status("numberReady") >= desired - unavailable
}

fn stateful_set(object: &Value) -> bool {
    if !is_observed(object) {
        return false;
    }
    if str_or(object, &["spec", "updateStrategy", "type"], "") != "RollingUpdate" {
        return true;
    }
    let partition = i64_or(
        object,
        &["spec", "updateStrategy", "rollingUpdate", "partition"],
        0,
    );
    let desired = i64_or(object, &["spec", "replicas"], 1);
    let status = |field| i64_or(object, &["status", field], 0);
    let revision = |field| str_or(object, &["status", field], "");
    status("updatedReplicas") >= desired - partition
        && status("readyReplicas") == desired
        && (partition != 0 || revision("currentRevision") == revision("updateRevision"))
}
