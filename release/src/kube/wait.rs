//! Waiting for what an action cannot go on without: definitions to be served, objects to be gone,
//! hooks to end, and all objects to be ready where failing must undo the release.
//!
//! Readiness of an ordinary release is observed by the caller and not waited for here. What counts
//! as ready is decided by [`objects::readiness`].

use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};

use super::client::Cluster;
use super::error::ApiError;
use super::ownership::Created;
use super::transport::{PARALLEL, found_to_write};
use objects::Object;
use objects::readiness::Status;
use objects::readiness::wait::{self, Mode};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Objects are not what they were waited for to become. The text is Helm's. An object that cannot be read does not end the wait: rights are made
/// anew, and tokens.
#[derive(Debug, thiserror::Error)]
#[error("{}{}", .lines.join("\n"), if *.timed_out { "\ncontext deadline exceeded" } else { "" })]
pub struct WaitError {
    /// One line for each object, with its status and message.
    pub(crate) lines: Vec<String>,
    /// Whether time ran out, rather than every one of them having failed.
    pub(crate) timed_out: bool,
}

/// Waits until every object is what `mode` asks for, or nothing but failed ones is left.
///
/// # Cancellation
/// Nothing is changed by waiting; it may be dropped at any time.
pub(crate) async fn wait_until_ready(
    cluster: &Cluster,
    objects: &[&Object],
    mode: Mode,
    limit: Duration,
) -> Result<(), WaitError> {
    let objects = objects
        .iter()
        .copied()
        .filter(|object| needs_waiting(object, mode))
        .collect();
    let is_done = |status| status == Status::Current;
    until(
        objects,
        |object| readiness(cluster, object, mode).boxed(),
        "not ready",
        is_done,
        limit,
    )
    .await
}

/// Waits until every hook has ended well, or nothing but failed ones is left. `written` says which objects they are: another one that has
/// its name proves nothing.
pub(super) async fn wait_until_ended(
    cluster: &Cluster,
    hooks: &[&Object],
    written: &[(Object, Created)],
    limit: Duration,
) -> Result<(), WaitError> {
    let hooks = hooks.iter().copied();
    let hooks = hooks.filter(|object| needs_waiting(object, Mode::Hook));
    until(
        hooks.collect(),
        |object| end(cluster, object, instance(written, object)).boxed(),
        "not ready",
        |status| status == Status::Current,
        limit,
    )
    .await
}

/// The instance of the object that was written, if that is known.
pub(super) fn instance<'c>(
    written: &'c [(Object, Created)],
    object: &Object,
) -> Option<&'c Created> {
    let key = object.key();
    let found = written.iter().find(|(one, _)| one.key() == key);
    found.map(|(_, instance)| instance)
}

/// Message for a hook whose object was replaced by another one.
pub(super) const REPLACED: &str = "Resource was deleted, and another one has its name";

async fn end(cluster: &Cluster, object: &Object, instance: Option<&Created>) -> Observed {
    let Some(live) = cluster.get(object).await? else {
        return Ok((Status::NotFound, "Resource not found".to_owned()));
    };
    if instance.is_some_and(|instance| !instance.is(&live)) {
        return Ok((Status::Failed, REPLACED.to_owned()));
    }
    let reading = wait::read(&live, &[], Mode::Hook, cluster.host().now());
    Ok((reading.status, reading.error.unwrap_or(reading.message)))
}

/// Waits until an object does not exist, or another one has its name than `instance`, where that is given.
pub(crate) async fn wait_until_left(
    cluster: &Cluster,
    object: &Object,
    instance: Option<&Created>,
    limit: Duration,
) -> Result<(), WaitError> {
    let is_done = |status| status == Status::NotFound;
    let observe = |object| presence(cluster, object, instance).boxed();
    until(vec![object], observe, "still exists", is_done, limit).await
}

/// Waits until what a hook runs has ended, in whichever way, or is gone.
pub(crate) async fn wait_until_over(
    cluster: &Cluster,
    object: &Object,
    limit: Duration,
) -> Result<(), WaitError> {
    let is_done = |status| matches!(status, Status::Current | Status::Failed | Status::NotFound);
    let observe = |object| end(cluster, object, None).boxed();
    until(vec![object], observe, "still runs", is_done, limit).await
}

type Observed = Result<(Status, String), ApiError>;

async fn readiness(cluster: &Cluster, object: &Object, mode: Mode) -> Observed {
    let Some(live) = cluster.get(object).await? else {
        return Ok((Status::NotFound, "Resource not found".to_owned()));
    };
    let mut reading = wait::read(&live, &[], mode, cluster.host().now());
    if reading.status == Status::InProgress && depends_on_pods(object) {
        let now = cluster.host().now();
        let mut failed = 0;
        let count = |pod: &Value| failed += usize::from(wait::is_failed_pod(&live, pod, now));
        let (namespace, labels) = (object.namespace.as_deref(), wait::pod_labels(&live));
        cluster.each_pod(namespace, &labels, count).await?;
        reading = reading.with_failed_pods(failed);
    }
    Ok((reading.status, reading.error.unwrap_or(reading.message)))
}

/// Whether an object that is in progress may fail with its pods.
fn depends_on_pods(object: &Object) -> bool {
    object.resource.group == "apps"
        && ["StatefulSet", "ReplicaSet"].contains(&object.resource.kind.as_str())
}

async fn presence(cluster: &Cluster, object: &Object, instance: Option<&Created>) -> Observed {
    let live = found_to_write(cluster.get_metadata(object).await)?;
    let is_it = |live: &Value| instance.is_none_or(|instance| instance.is(live));
    Ok(match live.filter(is_it) {
        None => (Status::NotFound, String::new()),
        Some(_) => (
            Status::Terminating,
            "Resource scheduled for deletion".to_owned(),
        ),
    })
}

/// Whether a definition says that it is served.
pub(super) fn is_established(live: &Value) -> bool {
    wait::read(live, &[], Mode::Wait, Timestamp::UNIX_EPOCH).status == Status::Current
}

/// Lets go of what an object says, but for what is asked of it when it is waited for: a large manifest is not to be kept beside the answers
/// to its writes.
pub(super) fn forget_body(object: &mut Object) {
    object.body = match is_paused(object) {
        true => serde_json::json!({ "spec": { "paused": true } }),
        false => Value::Null,
    };
}

fn is_paused(object: &Object) -> bool {
    object.body.pointer("/spec/paused") == Some(&Value::Bool(true))
}

/// Whether the object has to be waited for: not one that is ready at once, nor one that is paused.
fn needs_waiting(object: &Object, mode: Mode) -> bool {
    let kind = (
        object.resource.group.as_str(),
        object.resource.kind.as_str(),
    );
    match (mode, kind) {
        _ if object.name.is_empty() => false,
        (Mode::Hook, ("batch", "Job") | ("", "Pod")) => true,
        (Mode::Hook, _) => false,
        (_, ("apps", "Deployment")) => !is_paused(object),
        _ => true,
    }
}

/// `Kind/namespace/name`.
fn name(object: &Object) -> String {
    let namespace = object.namespace.as_deref().unwrap_or_default();
    format!("{}/{namespace}/{}", object.resource.kind, object.name)
}

/// What Helm says of an object that is not what it was waited for to become.
pub(super) fn line(object: &Object, complaint: &str, status: Status, message: &str) -> String {
    let name = name(object);
    format!("resource {name} {complaint}. status: {status}, message: {message}")
}

/// Polls, at growing intervals, those objects that are not done.
async fn until<'a>(
    mut objects: Vec<&'a Object>,
    observe: impl Fn(&'a Object) -> BoxFuture<'a, Observed>,
    complaint: &str,
    is_done: impl Fn(Status) -> bool,
    limit: Duration,
) -> Result<(), WaitError> {
    let deadline = Instant::now() + limit;
    let mut pause = FIRST_PAUSE;
    let mut lines = Vec::new();
    while !objects.is_empty() {
        let observations: Vec<_> = objects.iter().map(|&object| observe(object)).collect();
        let round = stream::iter(observations)
            .buffered(PARALLEL)
            .collect::<Vec<_>>();
        let Ok(round) = timeout_at(deadline, round).await else {
            break;
        };
        lines.clear();
        let mut all_failed = true;
        let mut undone = Vec::new();
        for (object, seen) in objects.drain(..).zip(round) {
            let (status, message) = match seen {
                Ok((status, _)) if is_done(status) => continue,
                Ok(seen) => seen,
                Err(source) => (Status::Unknown, source.to_string()),
            };
            all_failed &= status == Status::Failed;
            lines.push(line(object, complaint, status, &message));
            undone.push(object);
        }
        objects = undone;
        if objects.is_empty() {
            return Ok(());
        }
        if all_failed {
            return Err(WaitError {
                lines,
                timed_out: false,
            });
        }
        if Instant::now() + pause >= deadline {
            break;
        }
        sleep(pause).await;
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
    match objects.is_empty() {
        true => Ok(()),
        false => Err(WaitError {
            lines,
            timed_out: true,
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use objects::Resource;

    fn object(kind: &str, body: Value) -> Object {
        let group = if kind == "Job" { "batch" } else { "apps" };
        Object {
            resource: Arc::new(Resource {
                group: group.to_owned(),
                version: "v1".to_owned(),
                kind: kind.to_owned(),
                plural: String::new(),
                namespaced: true,
            }),
            namespace: Some("n".to_owned()),
            name: "a".to_owned(),
            body,
        }
    }

    #[test]
    fn a_paused_deployment_is_not_waited_for() {
        let deployment = object("Deployment", json!({}));
        let paused = object("Deployment", json!({"spec": {"paused": true}}));
        assert!(needs_waiting(&deployment, Mode::Wait));
        assert!(!needs_waiting(&paused, Mode::Wait));
        assert!(!needs_waiting(&deployment, Mode::Hook));
        assert!(needs_waiting(&object("Job", json!({})), Mode::Hook));
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_ends_with_success_failure_or_time() {
        let one = object("Job", json!({}));
        let polls = Cell::new(0);
        let wait = async |statuses: &[Status]| {
            polls.set(0);
            let observe = |_| {
                let at = polls.replace(polls.get() + 1).min(statuses.len() - 1);
                std::future::ready(Ok((statuses[at], "m".to_owned()))).boxed()
            };
            let is_done = |status| status == Status::Current;
            until(
                vec![&one],
                observe,
                "not ready",
                is_done,
                Duration::from_secs(30),
            )
            .await
        };
        assert!(
            wait(&[Status::NotFound, Status::InProgress, Status::Current])
                .await
                .is_ok()
        );
        assert_eq!(polls.get(), 3);
        let failed = wait(&[Status::InProgress, Status::Failed])
            .await
            .unwrap_err();
        assert_eq!(
            failed.to_string(),
            "resource Job/n/a not ready. status: Failed, message: m"
        );
        let late = wait(&[Status::InProgress]).await.unwrap_err();
        assert_eq!(
            late.to_string(),
            "resource Job/n/a not ready. status: InProgress, message: m\ncontext deadline exceeded"
        );
    }

    /// While rights are made anew or a token is, for one.
    #[tokio::test(start_paused = true)]
    async fn a_refused_read_does_not_end_a_wait() {
        let one = object("Job", json!({}));
        let polls = Cell::new(0);
        let refused =
            |code| ApiError::Refused(kube::core::Status::failure("", "").with_code(code).boxed());
        let observe = |_| {
            let seen = match polls.replace(polls.get() + 1) {
                0 => Err(refused(403)),
                1 => Err(refused(401)),
                _ => Ok((Status::Current, String::new())),
            };
            std::future::ready(seen).boxed()
        };
        let is_done = |status| status == Status::Current;
        let limit = Duration::from_secs(30);
        let waited = until(vec![&one], observe, "not ready", is_done, limit).await;
        assert!(waited.is_ok(), "{waited:?}");
    }
}
