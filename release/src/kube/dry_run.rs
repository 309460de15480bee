//! Server-side dry run: what applying an object again would leave, written nowhere.
//!
//! The answer can be compared only with the object that it was made from. Others write between our
//! reading and our request, so each request names the version that was read: the API server refuses if
//! there is another one by now, and the object is read again.

use std::collections::BTreeMap;

use golib::json;
use objects::Object;
use serde_json::Value;

use super::client::Cluster;
use super::error::ApiError;
use super::ownership::Owner;
use super::version::Version;
use super::write::ObjectWriter;

/// How often an object that was written meanwhile is read again. Then the dry run takes it as it is, so
/// that an object that is written all the time gets an answer too.
const READINGS: u32 = 5;

/// Result of a dry run of [`reapply`](super::reapply) for an object.
#[derive(Debug)]
pub enum DryRun {
    /// The object afterwards.
    Applied {
        /// The predicted object, with the fields that would be left to others as they are.
        predicted: Value,
        /// The live object; `None` where it is still the one that was given.
        newer: Option<Value>,
    },
    /// The object is gone.
    Gone,
}

/// Asks the API server what applying `object` again would make of `live`, as that was read.
///
/// # Errors
/// The API server refuses the object, or reading it again.
///
/// # Cancellation
/// Safe: nothing is written.
pub async fn dry_run(
    cluster: &Cluster,
    owner: &Owner,
    object: &Object,
    live: &Value,
) -> Result<DryRun, ApiError> {
    let previous = BTreeMap::from([(object.key(), object.clone())]);
    let mut desired = object.clone();
    owner.mark(&mut desired.body);
    let request = Request {
        cluster,
        writer: ObjectWriter::again(cluster, &previous),
        desired,
    };
    let mut newer: Option<Value> = None;
    for _ in 0..READINGS {
        let version = Version::of(newer.as_ref().unwrap_or(live));
        let refusal = match request.send(Some(&version)).await {
            Err(error) if is_another_version(&error) => error,
            answer => {
                let predicted = answer?;
                return Ok(DryRun::Applied { predicted, newer });
            }
        };
        let Some(found) = cluster.get(object).await? else {
            return Ok(DryRun::Gone);
        };
        if Version::of(&found) == version {
            return Err(refusal); // It is about something else.
        }
        newer = Some(found);
    }
    let predicted = request.send(None).await?;
    Ok(DryRun::Applied { predicted, newer })
}

struct Request<'a> {
    cluster: &'a Cluster,
    writer: ObjectWriter<'a>,
    desired: Object,
}

impl Request<'_> {
    async fn send(&self, version: Option<&Version>) -> Result<Value, ApiError> {
        match self
            .try_apply(self.desired.body.clone(), version, false)
            .await
        {
            Err(error) if !error.conflicting_fields().is_empty() => {
                let is_autoscaled = self.writer.is_autoscaled(&self.desired, &error).await?;
                // The fields' current owners: the dry run is refused if this is not the version meant.
                let live = self.cluster.get(&self.desired).await?.unwrap_or_default();
                let writer = &self.writer;
                let (_, body) =
                    writer.resolve_conflicts(&self.desired, &error, &live, is_autoscaled);
                self.try_apply(body, version, true).await
            }
            answer => answer,
        }
    }

    async fn try_apply(
        &self,
        mut body: Value,
        version: Option<&Version>,
        force: bool,
    ) -> Result<Value, ApiError> {
        if let Some(version) = version {
            version.demand_known(&mut body);
        }
        let text = json::encode(&body);
        drop(body);
        self.cluster.try_apply(&self.desired, text, force).await
    }
}

/// Whether the API server has another version than the one that was named.
fn is_another_version(error: &ApiError) -> bool {
    error.is_conflict() && error.conflicting_fields().is_empty()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use http::Method;
    use rstest::rstest;
    use serde_json::json;

    use super::super::fixture;
    use super::*;

    /// Somebody has scaled a workload. Whether an autoscaler did is not known where the autoscalers cannot be listed for a moment: that is no verdict. An
    /// account that may not list them never knows, and leaves what may be an autoscaler's.
    #[rstest]
    #[case::none_there(200, "", Some(2))]
    #[case::forbidden(403, "Forbidden", Some(3))]
    #[case::never_listed(405, "MethodNotAllowed", Some(3))]
    #[case::overloaded(500, "InternalError", None)]
    #[case::without_a_token(401, "Unauthorized", None)]
    #[case::not_served_now(404, "NotFound", None)]
    #[tokio::test]
    async fn replicas_are_judged_once_autoscalers_can_be_listed(
        #[case] code: u16,
        #[case] reason: &'static str,
        #[case] expected: Option<u64>,
    ) {
        let live = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a", "namespace": "shop", "resourceVersion": "7", "managedFields": [
                {"manager": "kubectl", "subresource": "scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]},
            "spec": {"replicas": 3}});
        let (found, was_refused) = (live.clone(), AtomicBool::new(false));
        let cluster = fixture::server(move |method, path, sent| match (method, path) {
            (_, "/api") => Some(fixture::discovered(&[])),
            (_, "/apis") => {
                let mut group =
                    fixture::discovery("autoscaling", &[("HorizontalPodAutoscaler", true)]);
                group["versions"][0]["version"] = "v2".into();
                Some(fixture::discovered(&[group]))
            }
            (_, path) if path.ends_with("/horizontalpodautoscalers") => match code {
                200 => Some((200, json!({"metadata": {}, "items": []}))),
                code => {
                    let status = json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason});
                    Some((code, status))
                }
            },
            (&Method::PATCH, _) if !was_refused.swap(true, Ordering::Relaxed) => {
                let cause = json!({"reason": "FieldManagerConflict", "field": ".spec.replicas", "message": ""});
                let status = json!({"kind": "Status", "code": 409, "reason": "Conflict", "details": {"causes": [cause]}});
                Some((409, status))
            }
            (&Method::PATCH, _) => {
                let replicas = sent["spec"].get("replicas").cloned();
                let mut after = found.clone();
                after["spec"]["replicas"] = replicas.unwrap_or_else(|| 3.into());
                Some((200, after))
            }
            _ => Some((200, found.clone())),
        });
        let body = json!({"metadata": {"name": "a"}, "spec": {"replicas": 2}});
        let object = fixture::object("apps", "Deployment", body);
        let answer = dry_run(&cluster, &Owner::new("web", "shop"), &object, &live).await;
        match (answer, expected) {
            (Ok(DryRun::Applied { predicted, .. }), Some(expected)) => {
                assert_eq!(predicted["spec"]["replicas"], expected);
            }
            (Err(failed), None) => assert!(!failed.is_lasting(), "{failed}"),
            (other, _) => panic!("{other:?}"),
        }
    }
}
