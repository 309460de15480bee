//! Waiting for what an action cannot go on without: definitions to be served, objects to be gone,
//! hooks to end. Readiness of a whole release is observed by the caller, not waited for here.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};

use super::client::Cluster;
use super::error::ApiError;
use super::object::Object;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Something did not come to pass.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    /// Time ran out. The text is Helm's.
    #[error(
        "resource {object} not ready. status: {status}, message: {message}\ncontext deadline exceeded"
    )]
    Deadline {
        /// `Kind/namespace/name`.
        object: String,
        /// What it is instead, in kstatus' words.
        status: &'static str,
        /// What it says of itself.
        message: String,
    },
    /// It failed for good. The text is Helm's.
    #[error("resource {object} not ready. status: Failed, message: {message}")]
    Failed {
        /// `Kind/namespace/name`.
        object: String,
        /// What it says of itself.
        message: String,
    },
    /// It could not be looked at.
    #[error("could not get information about the resource {object}")]
    Api {
        /// `Kind/namespace/name`.
        object: String,
        /// Why.
        source: ApiError,
    },
}

impl WaitError {
    /// Whether trying again can help without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Deadline { .. } => true,
            Self::Failed { .. } => false,
            Self::Api { source, .. } => source.is_retryable(),
        }
    }
}

/// How far something waited for has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Done.
    Done,
    /// Not yet, and what it says.
    Going(String),
    /// It will never be, and why.
    Failed(String),
}

/// Looks again and again, at growing intervals, until `judge` says it is over.
///
/// # Cancellation
/// Nothing is changed by waiting; it may be dropped at any time.
async fn until(
    cluster: &Cluster,
    object: &Object,
    limit: Duration,
    judge: impl Fn(Option<&Value>) -> Progress,
) -> Result<(), WaitError> {
    let name = || {
        let namespace = object.namespace.as_deref().unwrap_or_default();
        format!("{}/{namespace}/{}", object.resource.kind, object.name)
    };
    let deadline = Instant::now() + limit;
    let mut pause = FIRST_PAUSE;
    let mut last = String::new();
    loop {
        let message = match timeout_at(deadline, cluster.get(object)).await {
            Ok(Ok(live)) => match judge(live.as_ref()) {
                Progress::Done => return Ok(()),
                Progress::Failed(message) => {
                    return Err(WaitError::Failed {
                        object: name(),
                        message,
                    });
                }
                Progress::Going(message) => message,
            },
            Ok(Err(source)) if !source.is_retryable() => {
                return Err(WaitError::Api {
                    object: name(),
                    source,
                });
            }
            Ok(Err(source)) => source.to_string(),
            Err(_) => std::mem::take(&mut last),
        };
        last = message;
        if Instant::now() + pause >= deadline {
            let (object, message) = (name(), last);
            return Err(WaitError::Deadline {
                object,
                status: "InProgress",
                message,
            });
        }
        sleep(pause).await;
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
}

/// Waits until a CustomResourceDefinition is served.
pub(crate) async fn until_established(
    cluster: &Cluster,
    definition: &Object,
    limit: Duration,
) -> Result<(), WaitError> {
    until(cluster, definition, limit, |live| {
        live.map_or(absent(), established)
    })
    .await
}

/// Waits until an object does not exist.
pub(crate) async fn until_gone(
    cluster: &Cluster,
    object: &Object,
    limit: Duration,
) -> Result<(), WaitError> {
    let judge = |live: Option<&Value>| match live {
        None => Progress::Done,
        Some(_) => Progress::Going("still exists".to_owned()),
    };
    until(cluster, object, limit, judge).await
}

/// Waits until a Job or Pod ended; every other kind is done at once.
pub(crate) async fn until_finished(
    cluster: &Cluster,
    object: &Object,
    limit: Duration,
) -> Result<(), WaitError> {
    let judge: fn(&Value) -> Progress = match (
        object.resource.group.as_str(),
        object.resource.kind.as_str(),
    ) {
        ("batch", "Job") => finished_job,
        ("", "Pod") => finished_pod,
        _ => return Ok(()),
    };
    until(cluster, object, limit, |live| live.map_or(absent(), judge)).await
}

fn absent() -> Progress {
    Progress::Going("Resource not found".to_owned())
}

/// The status and message of a condition.
fn condition<'v>(live: &'v Value, kind: &str) -> Option<(&'v str, &'v str)> {
    let conditions = live.pointer("/status/conditions")?.as_array()?;
    let found = conditions
        .iter()
        .find(|condition| condition["type"] == kind)?;
    let text = |field: &str| found.get(field).and_then(Value::as_str).unwrap_or_default();
    Some((text("status"), text("message")))
}

/// Whether a CustomResourceDefinition is served, or never will be.
pub(super) fn established(live: &Value) -> Progress {
    if let Some(("False", message)) = condition(live, "NamesAccepted") {
        return Progress::Failed(message.to_owned());
    }
    match condition(live, "Established") {
        Some(("True", _)) => Progress::Done,
        _ => Progress::Going("Install in progress".to_owned()),
    }
}

fn finished_job(live: &Value) -> Progress {
    let count = |pointer: &str| live.pointer(pointer).and_then(Value::as_i64);
    if let Some(("True", _)) = condition(live, "Failed") {
        let failed = count("/status/failed").unwrap_or_default();
        let completions = count("/spec/completions").unwrap_or(1);
        return Progress::Failed(format!("Job Failed. failed: {failed}/{completions}"));
    }
    match condition(live, "Complete") {
        Some(("True", _)) => Progress::Done,
        _ => Progress::Going("Job in progress".to_owned()),
    }
}

fn finished_pod(live: &Value) -> Progress {
    let name = live
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    match live.pointer("/status/phase").and_then(Value::as_str) {
        Some("Succeeded") => Progress::Done,
        Some("Failed") => Progress::Failed(format!("pod {name} failed")),
        _ => Progress::Going("Pod in progress".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hooks_end_as_helm_says() {
        let job = |kind: &str| {
            json!({"spec": {"completions": 2}, "status": {"failed": 1, "conditions": [
                {"type": kind, "status": "True"}]}})
        };
        assert_eq!(finished_job(&job("Complete")), Progress::Done);
        assert_eq!(
            finished_job(&job("Failed")),
            Progress::Failed("Job Failed. failed: 1/2".to_owned())
        );
        assert!(matches!(finished_job(&json!({})), Progress::Going(_)));
        let pod = |phase: &str| json!({"metadata": {"name": "a"}, "status": {"phase": phase}});
        assert_eq!(finished_pod(&pod("Succeeded")), Progress::Done);
        assert_eq!(
            finished_pod(&pod("Failed")),
            Progress::Failed("pod a failed".to_owned())
        );
    }
}
