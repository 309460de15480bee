//! What applying an object again would leave, asked of the API server and written nowhere.
//!
//! A prediction can be compared only with the object that it was made from. Between our reading and
//! our asking others write, so each question names the version that was read: if that is not the one
//! that is there any more, the API server refuses, and the object is read again.

use std::collections::BTreeMap;

use objects::Object;
use serde_json::Value;

use super::apply::{Work, contested_paths};
use super::client::Cluster;
use super::error::ApiError;
use super::ownership::Owner;

/// How often an object that was written meanwhile is read again. Then it is asked about as it is,
/// so that what is always in motion can be told of too.
const READINGS: u32 = 5;

/// What [`reapply`](super::reapply) would make of an object.
#[derive(Debug)]
pub enum Prediction {
    /// The object afterwards.
    Made {
        /// What would be live, with the fields that would be left to others as they are.
        predicted: Value,
        /// What is live: none where it is still the object that was given.
        newer: Option<Value>,
    },
    /// It is not there any more.
    Gone,
}

/// Asks what applying `object` again would make of `live`, as that was read.
///
/// # Errors
/// The API server refuses the object, or reading it again.
///
/// # Cancellation
/// Safe: nothing is written.
pub async fn predict(
    cluster: &Cluster,
    owner: &Owner,
    object: &Object,
    live: &Value,
) -> Result<Prediction, ApiError> {
    let previous = BTreeMap::from([(object.key(), object.body.clone())]);
    let mut wanted = object.clone();
    owner.mark(&mut wanted.body);
    let question = Question {
        cluster,
        work: Work::again(cluster, &previous),
        wanted,
    };
    let mut newer: Option<Value> = None;
    for _ in 0..READINGS {
        let version = Version::of(newer.as_ref().unwrap_or(live));
        let refusal = match question.ask(version).await {
            Err(error) if is_another_version(&error) => error,
            answer => {
                let predicted = answer?;
                return Ok(Prediction::Made { predicted, newer });
            }
        };
        let Some(found) = cluster.get(object).await? else {
            return Ok(Prediction::Gone);
        };
        if Version::of(&found) == version {
            return Err(refusal); // It is about something else.
        }
        newer = Some(found);
    }
    let predicted = question.ask(Version::default()).await?;
    Ok(Prediction::Made { predicted, newer })
}

/// Which object, and which state of it; either may be empty, for any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Version<'v> {
    uid: &'v str,
    version: &'v str,
}

impl<'v> Version<'v> {
    fn of(live: &'v Value) -> Self {
        let text = |pointer| live.pointer(pointer).and_then(Value::as_str);
        Self {
            uid: text("/metadata/uid").unwrap_or_default(),
            version: text("/metadata/resourceVersion").unwrap_or_default(),
        }
    }

    fn demand(self, body: &mut Value) {
        let demands = [("uid", self.uid), ("resourceVersion", self.version)];
        for (field, value) in demands {
            if !value.is_empty() {
                body["metadata"][field] = value.into();
            }
        }
    }
}

struct Question<'a> {
    cluster: &'a Cluster,
    work: Work<'a>,
    wanted: Object,
}

impl Question<'_> {
    async fn ask(&self, version: Version<'_>) -> Result<Value, ApiError> {
        let mut body = self.wanted.body.clone();
        version.demand(&mut body);
        match self.cluster.try_apply(&self.wanted, &body, false).await {
            Err(error) if !contested_paths(&error).is_empty() => {
                // Whoever holds what by now: the answer is refused if that is not the version meant.
                let (_, mut body) = self.work.settle(&self.wanted, &error).await?;
                version.demand(&mut body);
                self.cluster.try_apply(&self.wanted, &body, true).await
            }
            answer => answer,
        }
    }
}

/// Whether the object is another one than the question was about.
fn is_another_version(error: &ApiError) -> bool {
    error.is_conflict() && contested_paths(error).is_empty()
}
