//! Watching hooks that remove themselves.
//!
//! A Job with `ttlSecondsAfterFinished` may be gone before anybody looks. It is watched from the
//! moment it was written, so that its end is seen even then; nothing is concluded from its absence.
//! Helm 4 watches all hooks; those that stay are polled here, which costs less.

use std::pin::pin;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use jiff::Timestamp;
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::apply::Applied;
use super::claim::{HookClaim, HookVerdict};
use super::client::Cluster;
use super::error::ApiError;
use super::ownership::Created;
use super::transport::Watched;
use super::wait::{REPLACED, WaitError, instance, line, wait_until_ended};
use objects::Object;
use objects::readiness::Status;
use objects::readiness::wait::{self, Mode};

/// Between two watches of one hook.
const PAUSE: Duration = Duration::from_secs(1);

/// After so long the server ends a watch; it is begun anew where it was.
const WATCH_LIMIT: Duration = Duration::from_secs(290);

/// A watch that goes on for longer has a connection that died without a word.
const WATCH_PATIENCE: Duration = Duration::from_secs(295);

/// How long the read of a hook may take that is made when its time is up.
const LAST_READ: Duration = Duration::from_secs(10);

/// The objects of a started hook that run to completion, without bodies, and which instances they are: all other objects of a hook are done as soon
/// as they are written.
///
/// # Errors
/// An object cannot be read.
pub(crate) async fn running_hooks(
    cluster: &Cluster,
    claim: HookClaim<'_>,
    objects: &[Object],
) -> Result<(Vec<Object>, Applied), ApiError> {
    let (mut running, mut found) = (Vec::new(), Applied::default());
    for object in objects.iter().filter(|object| !object.name.is_empty()) {
        let Some(live) = cluster.get_metadata(object).await? else {
            continue;
        };
        if claim.verdict(object, &live) == HookVerdict::Await {
            let instance = Created::from_answer(&live);
            let instance = instance.map(|instance| (object.clone(), instance));
            found.created.extend(instance);
            running.push(object.clone());
        }
    }
    Ok((running, found))
}

/// Waits until every hook has ended well, or one has failed. `applied` is what writing them answered.
///
/// # Cancellation
/// Nothing is changed by waiting; it may be dropped at any time.
pub(crate) async fn wait_for_hooks(
    cluster: &Cluster,
    objects: &[Object],
    applied: &Applied,
    limit: Duration,
) -> Result<(), WaitError> {
    let deadline = Instant::now() + limit;
    let (leaving, staying): (Vec<&Object>, Vec<&Object>) =
        objects.iter().partition(|object| removes_itself(object));
    for object in leaving {
        let seen = Seen {
            version: version(object, &applied.live),
            instance: instance(&applied.created, object),
            status: Status::Unknown,
            message: String::new(),
        };
        watch_hook(cluster, object, seen, deadline).await?;
    }
    let left = deadline.saturating_duration_since(Instant::now());
    wait_until_ended(cluster, &staying, &applied.created, left).await
}

fn removes_itself(object: &Object) -> bool {
    let ttl = object.body.pointer("/spec/ttlSecondsAfterFinished");
    object.resource.kind == "Job" && !object.name.is_empty() && ttl.is_some_and(Value::is_number)
}

/// The resource version at which an object was written; empty if that is not known.
fn version(object: &Object, live: &[Value]) -> String {
    let text = |live: &Value, pointer: &str| {
        let found = live.pointer(pointer).and_then(Value::as_str);
        found.unwrap_or_default().to_owned()
    };
    live.iter()
        .find(|live| text(live, "/metadata/name") == object.name)
        .map(|live| text(live, "/metadata/resourceVersion"))
        .unwrap_or_default()
}

async fn watch_hook(
    cluster: &Cluster,
    object: &Object,
    mut seen: Seen<'_>,
    deadline: Instant,
) -> Result<(), WaitError> {
    let watched = timeout_at(deadline, seen.watch(cluster, object)).await;
    let timed_out = watched.is_err() && !seen.read(cluster, object).await;
    if seen.status == Status::Current {
        return Ok(());
    }
    let lines = vec![seen.line(object)];
    Err(WaitError { lines, timed_out })
}

/// The state in which a hook was last seen.
struct Seen<'a> {
    version: String,
    /// The hook's instance, if that is known.
    instance: Option<&'a Created>,
    status: Status,
    message: String,
}

impl Seen<'_> {
    fn line(&self, object: &Object) -> String {
        line(object, "not ready", self.status, &self.message)
    }

    /// Watches until the hook is over, one way or the other.
    async fn watch(&mut self, cluster: &Cluster, object: &Object) {
        loop {
            let end = Instant::now() + WATCH_PATIENCE;
            match cluster.watch(object, &self.version, WATCH_LIMIT).await {
                Ok(events) => {
                    let mut events = pin!(events);
                    // A watch that breaks off is begun anew where it broke off.
                    while let Ok(Ok(Some(event))) = timeout_at(end, events.try_next()).await {
                        if self.is_over_with(event, cluster.host().now()) {
                            return;
                        }
                    }
                }
                Err(source) if source.code() == Some(410) => self.version.clear(),
                Err(source) => {
                    self.status = Status::Unknown;
                    self.message = source.to_string();
                }
            }
            sleep(PAUSE).await;
        }
    }

    /// Reads the hook once more, as the watch may have missed events. Whether it is over.
    async fn read(&mut self, cluster: &Cluster, object: &Object) -> bool {
        match timeout(LAST_READ, cluster.get(object)).await {
            Ok(Ok(Some(live))) => {
                let event = WatchEvent::Modified(Watched(live));
                self.is_over_with(event, cluster.host().now())
            }
            _ => false,
        }
    }

    fn is_over_with(&mut self, event: WatchEvent<Watched>, now: Timestamp) -> bool {
        let (live, is_gone) = match event {
            WatchEvent::Added(Watched(live)) | WatchEvent::Modified(Watched(live)) => (live, false),
            // The last state goes with the news that it is gone.
            WatchEvent::Deleted(Watched(live)) => (live, true),
            WatchEvent::Bookmark(news) => {
                self.version = news.metadata.resource_version;
                return false;
            }
            // Events since then are lost: the current state has to do.
            WatchEvent::Error(_) => {
                self.version.clear();
                return false;
            }
        };
        if let Some(version) = live.pointer("/metadata/resourceVersion") {
            self.version = version.as_str().unwrap_or_default().to_owned();
        }
        if self.instance.is_some_and(|instance| !instance.is(&live)) {
            self.status = Status::Failed;
            REPLACED.clone_into(&mut self.message);
            return true;
        }
        let reading = wait::read(&live, &[], Mode::Hook, now);
        self.status = reading.status;
        self.message = reading.error.unwrap_or(reading.message);
        let is_over = matches!(self.status, Status::Current | Status::Failed);
        if is_gone && !is_over {
            self.status = Status::NotFound;
            "Resource not found".clone_into(&mut self.message);
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use bytes::Bytes;
    use http::{Request, Response};
    use hyper::body::{Body, Frame};
    use rstest::rstest;
    use serde_json::json;
    use tower::BoxError;

    use super::super::fixture;
    use super::*;

    fn job(condition: &str) -> Value {
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "a", "resourceVersion": "7"},
            "status": {"conditions": [{"type": condition, "status": "True"}]},
        })
    }

    #[rstest]
    #[case::runs(WatchEvent::Modified(Watched(job("Suspended"))), false, Status::InProgress)]
    #[case::complete(WatchEvent::Modified(Watched(job("Complete"))), true, Status::Current)]
    #[case::gone_when_complete(
        WatchEvent::Deleted(Watched(job("Complete"))),
        true,
        Status::Current
    )]
    #[case::gone_when_failed(WatchEvent::Deleted(Watched(job("Failed"))), true, Status::Failed)]
    #[case::taken_away(WatchEvent::Deleted(Watched(job("Suspended"))), false, Status::NotFound)]
    fn a_hook_is_judged_by_its_last_state(
        #[case] event: WatchEvent<Watched>,
        #[case] is_over: bool,
        #[case] status: Status,
    ) {
        let mut seen = written_at("");
        assert_eq!(seen.is_over_with(event, Timestamp::UNIX_EPOCH), is_over);
        assert_eq!((seen.status, seen.version.as_str()), (status, "7"));
    }

    fn written_at(version: &str) -> Seen<'static> {
        Seen {
            version: version.to_owned(),
            instance: None,
            status: Status::Unknown,
            message: String::new(),
        }
    }

    /// An answer that says this, and does not end unless it is no watch.
    struct Events {
        part: Option<Bytes>,
        is_watch: bool,
    }

    impl Body for Events {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match self.part.take() {
                Some(part) => Poll::Ready(Some(Ok(Frame::data(part)))),
                None if self.is_watch => Poll::Pending,
                None => Poll::Ready(None),
            }
        }
    }

    /// A cluster by what a watch from a version tells, and what is there when it is asked for.
    fn cluster(events: fn(&str) -> Option<(&'static str, Value)>, there: fn() -> Value) -> Cluster {
        let serve = tower::service_fn(move |request: Request<kube::client::Body>| {
            let query = request.uri().query().unwrap_or_default();
            let is_watch = query.contains("watch=true&");
            let part = match is_watch {
                true => {
                    assert!(query.contains("&timeoutSeconds=290&"), "{query}");
                    let version = query.rsplit('=').next().unwrap_or_default();
                    // The type comes first, as with an API server.
                    let line = |(event, object): (&str, Value)| {
                        format!("{{\"type\":\"{event}\",\"object\":{object}}}\n")
                    };
                    events(version).map(line)
                }
                false => Some(there().to_string()),
            };
            let part = part.map(Bytes::from);
            async move { Ok::<_, BoxError>(Response::new(Events { part, is_watch })) }
        });
        Cluster::new(kube::Client::new(serve, "n"))
    }

    /// A tunnel or a load balancer forgets a connection and tells nobody.
    #[tokio::test(start_paused = true)]
    async fn a_watch_whose_connection_died_goes_on_where_it_was() {
        let events = |version: &str| match version {
            "3" => Some(("MODIFIED", job("Suspended"))),
            "7" => {
                let metadata = json!({"resourceVersion": "9"});
                let news = json!({"kind": "Job", "apiVersion": "batch/v1", "metadata": metadata});
                Some(("BOOKMARK", news))
            }
            "9" => Some(("MODIFIED", job("Complete"))),
            _ => None,
        };
        let cluster = cluster(events, || panic!("asked for"));
        let begun = Instant::now();
        let object = fixture::object("batch", "Job", Value::Null);
        let deadline = begun + Duration::from_secs(60 * 60);
        let ended = watch_hook(&cluster, &object, written_at("3"), deadline).await;
        assert!(ended.is_ok(), "{ended:?}");
        assert!(begun.elapsed() < Duration::from_secs(600));
    }

    #[rstest]
    #[case::complete("Complete", None)]
    #[case::failed("Failed", Some(false))]
    #[case::runs("Suspended", Some(true))]
    #[tokio::test(start_paused = true)]
    async fn a_hook_without_events_is_read_when_its_time_is_up(
        #[case] condition: &'static str,
        #[case] timed_out: Option<bool>,
    ) {
        let there: fn() -> Value = match condition {
            "Complete" => || job("Complete"),
            "Failed" => || job("Failed"),
            _ => || job("Suspended"),
        };
        let cluster = cluster(|_| None, there);
        let object = fixture::object("batch", "Job", Value::Null);
        let deadline = Instant::now() + Duration::from_secs(60);
        let ended = watch_hook(&cluster, &object, written_at("3"), deadline).await;
        assert_eq!(ended.err().map(|error| error.timed_out), timed_out);
    }
}
