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
                let is_autoscaled = self.writer.is_autoscaled(&self.desired, &error).await;
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
