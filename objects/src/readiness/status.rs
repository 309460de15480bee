//! Results of readiness rules, and the conditions they read.

use std::fmt;

use serde_json::Value;

use crate::fields::{self, WrongType};

/// The kstatus of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The object is as its spec wants it.
    Current,
    /// The object is on its way there.
    InProgress,
    /// The object will not get there by itself.
    Failed,
    /// The object is being deleted.
    Terminating,
    /// The object is not in the cluster (only [`super::wait`] says so).
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
        /// The type that was found instead.
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
        other => golib::json::go_type(other),
    }
}

/// `metadata.generation` and `status.observedGeneration`; the second is read only with the first.
pub(super) fn generations(object: &Value) -> Result<(Option<i64>, Option<i64>), ComputeError> {
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
