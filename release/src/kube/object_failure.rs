//! Why an object could not be written.

use objects::Object;

use super::error::ApiError;
use super::ownership::OwnershipError;
use super::wait::WaitError;

/// One object, `namespace/name group/version, Kind=kind`, could not be written. The texts are Helm's.
#[derive(Debug, thiserror::Error)]
pub enum ObjectFailure {
    /// The API server refused it.
    #[error("server-side apply failed for object {object}")]
    Apply { object: String, source: ApiError },
    /// The API server refused it, and an earlier revision or attempt did not leave it either.
    #[error("failed to create resource: server-side apply failed for object {object}")]
    Create { object: String, source: ApiError },
    /// Others wrote it each time we tried.
    #[error("conflict occurred while applying object {object}")]
    Conflict { object: String, source: ApiError },
    /// Field ownership of another client could not be taken over.
    #[error("failed to upgrade managed fields for object {object}")]
    Migrate { object: String, source: ApiError },
    /// It should have been recreated, and its predecessor could not be deleted.
    #[error("failed to replace object {object}")]
    Recreate { object: String, source: ApiError },
    /// A field of it cannot change, and it is not recreated, whatever was asked for.
    #[error("object {object} is not recreated, although a field of it cannot change: {lost}")]
    Irreplaceable {
        object: String,
        lost: &'static str,
        /// Which field, in the API server's words.
        source: ApiError,
    },
    /// It is being deleted and does not go.
    #[error("object {object} is being deleted")]
    Terminating {
        object: String,
        /// What it waits for.
        source: WaitError,
    },
    /// It is somebody else's.
    #[error(transparent)]
    NotOurs(OwnershipError),
    /// It has the name of a hook, and is something else.
    #[error(
        "{object} exists and is not a hook of this release, or is of an earlier run and no delete policy makes it go"
    )]
    NoHookOfOurs {
        /// Kind, name and namespace.
        object: String,
    },
    /// It defines kinds, and is not served.
    #[error("the kinds of {object} are not served")]
    NotEstablished {
        object: String,
        /// What it says of itself.
        source: WaitError,
    },
}

impl ObjectFailure {
    /// The API server's reason, for metrics and conditions.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Apply { source, .. }
            | Self::Create { source, .. }
            | Self::Conflict { source, .. }
            | Self::Migrate { source, .. }
            | Self::Recreate { source, .. } => source.reason(),
            Self::Terminating { .. } => "Terminating",
            Self::Irreplaceable { .. } => "Irreplaceable",
            Self::NotOurs(OwnershipError::Unknown { source, .. }) => source.reason(),
            Self::NotOurs(OwnershipError::Foreign { .. }) | Self::NoHookOfOurs { .. } => "NotOwned",
            Self::NotEstablished { .. } => "NotEstablished",
        }
    }

    /// The API server refused the object, or others wrote it meanwhile.
    pub(super) fn refused(object: &Object, source: ApiError) -> Self {
        let object = object.describe();
        match source.is_conflict() {
            true => Self::Conflict { object, source },
            false => Self::Apply { object, source },
        }
    }

    /// Others wrote the object.
    pub(super) fn conflict(object: &Object, source: ApiError) -> Self {
        let object = object.describe();
        Self::Conflict { object, source }
    }

    /// Whether the kind itself may be gone since it was discovered.
    pub(super) fn is_unserved(&self) -> bool {
        match self {
            Self::Apply { source, .. } | Self::Create { source, .. } => source.is_unserved(),
            _ => false,
        }
    }

    /// Whether nothing more is to be written.
    pub(super) fn ends_all(&self) -> bool {
        let is_anothers = matches!(self, Self::NotOurs(_) | Self::NoHookOfOurs { .. });
        is_anothers || self.reason() == "Unreachable"
    }
}
