//! Why an object could not be written.

use std::fmt;

use objects::Object;

use super::error::ApiError;
use super::ownership::OwnershipError;
use super::wait::WaitError;

/// One object, `namespace/name group/version, Kind=kind`, could not be written. The texts are Helm's.
#[derive(Debug, thiserror::Error)]
pub enum ObjectFailure {
    /// The API server refused it.
    #[error("server-side apply failed for object {0}")]
    Apply(String, #[source] ApiError),
    /// The API server refused it, and an earlier revision or attempt did not leave it either.
    #[error("failed to create resource: server-side apply failed for object {0}")]
    Create(String, #[source] ApiError),
    /// Others wrote it each time we tried.
    #[error("conflict occurred while applying object {0}")]
    Conflict(String, #[source] ApiError),
    /// Field ownership of another client could not be taken over.
    #[error("failed to upgrade managed fields for object {0}")]
    Migrate(String, #[source] ApiError),
    /// The object should have been recreated, and its predecessor could not be deleted, or nobody said whether it would be created anew.
    #[error("failed to replace object {0}")]
    Recreate(String, #[source] ApiError),
    /// A field of the object cannot change, and the object is not recreated, whatever was asked for.
    #[error("object {object} is not recreated, although a field of it cannot change: {lost}")]
    Irreplaceable {
        object: String,
        lost: &'static str,
        /// The immutable field, in the API server's words.
        source: ApiError,
    },
    /// A field of the object cannot change, and it stays, since the object in its place would be refused.
    #[error(
        "object {0} is not recreated, although a field of it cannot change: its successor would be refused"
    )]
    NoSuccessor(String, #[source] ApiError),
    /// The object was deleted and then not created anew, for all that is known: it may be missing until an attempt creates it.
    #[error("object {object} was deleted{deletion}, and {}", told_creation(.source))]
    Lost {
        object: String,
        deletion: Deletion,
        source: ApiError,
    },
    /// The object is being deleted and does not go, with the finalizers it waits for.
    #[error("object {0} is being deleted")]
    Terminating(String, #[source] WaitError),
    /// The object is somebody else's.
    #[error(transparent)]
    NotOwned(OwnershipError),
    /// The object has the name of a hook, and is something else.
    #[error(
        "{object} exists and is not a hook of this release, or is of an earlier run and no delete policy makes it go"
    )]
    NoHookOfOurs {
        /// Kind, name and namespace.
        object: String,
    },
    /// The object is a definition whose kinds are not served, with its conditions.
    #[error("the kinds of {0} are not served")]
    NotEstablished(String, #[source] WaitError),
}

/// How an object went that was to be recreated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// We deleted it, because it has to change and cannot.
    ToRecreate,
    /// It was gone, or on its way out, before we could.
    Before,
}

impl fmt::Display for Deletion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ToRecreate => ", as a field of it cannot change",
            Self::Before => " already",
        })
    }
}

/// What is known of a creation that failed with this.
fn told_creation(error: &ApiError) -> &'static str {
    match error.is_outcome_unknown() {
        true => "nobody said whether it was created anew",
        false => "could not be created anew",
    }
}

impl ObjectFailure {
    /// The API server's reason, for metrics and conditions.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Apply(_, source)
            | Self::Create(_, source)
            | Self::Conflict(_, source)
            | Self::Migrate(_, source)
            | Self::Recreate(_, source)
            | Self::NoSuccessor(_, source)
            | Self::Lost { source, .. } => source.reason(),
            Self::Terminating(..) => "Terminating",
            Self::Irreplaceable { .. } => "Irreplaceable",
            Self::NotOwned(OwnershipError::Unknown { source, .. }) => source.reason(),
            Self::NotOwned(OwnershipError::Foreign { .. }) | Self::NoHookOfOurs { .. } => {
                "NotOwned"
            }
            Self::NotEstablished(..) => "NotEstablished",
        }
    }

    /// The API server refused the object, or others wrote it meanwhile.
    pub(super) fn refused(object: &Object, source: ApiError) -> Self {
        match source.is_conflict() {
            true => Self::conflict(object, source),
            false => Self::Apply(object.describe(), source),
        }
    }

    /// Others wrote the object.
    pub(super) fn conflict(object: &Object, source: ApiError) -> Self {
        Self::Conflict(object.describe(), source)
    }

    /// Whether the kind itself may be gone since it was discovered.
    pub(super) fn is_unserved(&self) -> bool {
        match self {
            Self::Apply(_, source) | Self::Create(_, source) | Self::Lost { source, .. } => {
                source.is_unserved()
            }
            _ => false,
        }
    }

    /// Whether no further object is to be written.
    pub(super) fn ends_all(&self) -> bool {
        let is_foreign = matches!(self, Self::NotOwned(_) | Self::NoHookOfOurs { .. });
        is_foreign || self.reason() == "Unreachable"
    }
}
