//! Sending one object to the API server, again where that is known to help: a kind that is not served yet, a quota that others charge.
//!
//! It is written as it is given: whose it is, and what is done about a refusal, is for those who ask ([`super::write`], [`super::replace`]).

use std::collections::HashSet;
use std::time::Duration;

use golib::json;
use objects::Object;
use objects::readiness::Status;
use serde_json::Value;
use tokio::time::sleep;

use super::check::{CreateError, Creation, create_new};
use super::client::Cluster;
use super::error::ApiError;
use super::object_failure::ObjectFailure;
use super::transport::found_to_write;
use super::version::Version;
use super::wait::{WaitError, line, wait_until_left};

/// How long an object that is being deleted may take to go before it is written again.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a write that met another one is tried.
const TRIES: u32 = 5;

/// Inputs of sending an object.
pub(super) struct Sender<'a> {
    pub(super) cluster: &'a Cluster,
    /// Group and kind of what the same manifest defines and uses.
    pub(super) own_kinds: HashSet<(String, String)>,
    /// Whether there was a revision before: then a missing object is reported as one that could not be *created*.
    pub(super) is_update: bool,
}

impl Sender<'_> {
    /// Sends one apply, again where that is known to help.
    pub(super) async fn send(
        &self,
        object: &Object,
        body: Body,
        force: bool,
    ) -> Result<Value, ApiError> {
        let mut tries = 1;
        loop {
            match self.cluster.apply(object, body.text.clone(), force).await {
                // A ResourceQuota that several creations charge at once, or a concurrent write.
                Err(error)
                    if error.is_conflict()
                        && body.is_for_any_version
                        && error.conflicting_fields().is_empty()
                        && tries < TRIES => {}
                // A definition is established a moment before its kind is served.
                Err(error)
                    if error.code() == Some(404)
                        && self.is_new_kind(object)
                        && tries < 2 * TRIES => {}
                other => return other,
            }
            sleep(Duration::from_millis(50) * tries).await;
            tries += 1;
        }
    }

    /// Creates the object; what is there instead, if something is.
    pub(super) async fn create(
        &self,
        object: &Object,
    ) -> Result<Result<Value, Value>, ObjectFailure> {
        let mut tries = 1;
        loop {
            let refusal = match create_new(self.cluster, object).await {
                Ok(Creation::New(live)) => return Ok(Ok(live)),
                Ok(Creation::Found(live)) => return Ok(Err(live)),
                Err(CreateError::Unknown(error)) => return Err(ObjectFailure::NotOwned(error)),
                Ok(Creation::Busy(error)) if tries < TRIES => error,
                // A definition is established a moment before its kind is served.
                Err(CreateError::Refused(error))
                    if error.code() == Some(404)
                        && self.is_new_kind(object)
                        && tries < 2 * TRIES =>
                {
                    error
                }
                Ok(Creation::Busy(source)) | Err(CreateError::Refused(source)) => {
                    let failure = ObjectFailure::refused(object, source);
                    return Err(self.named(object, failure).await);
                }
            };
            drop(refusal);
            sleep(Duration::from_millis(50) * tries).await;
            tries += 1;
        }
    }

    /// Waits until an object is gone that is being deleted.
    pub(super) async fn until_gone(&self, object: &Object) -> Result<(), ObjectFailure> {
        wait_until_left(self.cluster, object, None, TERMINATION_TIMEOUT)
            .await
            .map_err(|source| ObjectFailure::Terminating(object.describe(), source))
    }

    /// The failure of an object that is being deleted whenever it is read.
    pub(super) fn leaving(object: &Object) -> ObjectFailure {
        let message = "Resource scheduled for deletion";
        let line = line(object, "still exists", Status::Terminating, message);
        let source = WaitError {
            lines: vec![line],
            timed_out: false,
        };
        ObjectFailure::Terminating(object.describe(), source)
    }

    /// Says of an object that is not there that it could not be created.
    pub(super) async fn named(&self, object: &Object, failure: ObjectFailure) -> ObjectFailure {
        match failure {
            ObjectFailure::Apply(name, source)
                if self.is_update && self.is_missing(object).await =>
            {
                ObjectFailure::Create(name, source)
            }
            failure => failure,
        }
    }

    async fn is_missing(&self, object: &Object) -> bool {
        let found = self.cluster.get_metadata(object).await;
        matches!(found_to_write(found), Ok(None))
    }

    fn is_new_kind(&self, object: &Object) -> bool {
        let key = (object.resource.group.clone(), object.resource.kind.clone());
        self.own_kinds.contains(&key)
    }
}

/// The body of an apply, as text: a tree of it would be kept until the answer is there.
pub(super) struct Body {
    text: String,
    /// Whether the body names no version that it is meant for.
    is_for_any_version: bool,
}

impl Body {
    /// Applied only over a version, if one is given.
    pub(super) fn over(body: &Value, version: Option<&Version>) -> Self {
        let Some(version) = version else {
            return Self {
                text: json::encode(body),
                is_for_any_version: body.pointer("/metadata/resourceVersion").is_none(),
            };
        };
        let mut body = body.clone();
        version.demand(&mut body);
        Self {
            text: json::encode(&body),
            is_for_any_version: false,
        }
    }
}
