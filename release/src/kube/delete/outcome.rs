//! What became of objects that were to be deleted, and why not all of them went.

use objects::{Object, ObjectKey};

use crate::kube::error::ApiError;

/// Result of deleting one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// The object was deleted.
    Deleted,
    /// The object was gone already.
    Absent,
    /// The object's resource policy keeps it.
    Kept,
    /// The object was there before the release, which only adopted it.
    Adopted,
    /// The object is not this release's.
    NotOwned,
    /// A namespace or definition that other releases are in or about to come to, which was left to them.
    InUse,
    /// A namespace or definition that other releases are in which are about to go.
    Deferred,
    /// The object is of another release's hook, which has not ended.
    Running,
    /// The object is one that was written just now, under another group or kind.
    Written,
}

/// Result of deleting objects.
#[derive(Debug, Default)]
pub struct Removed {
    /// In the order of the objects given.
    pub objects: Vec<(Object, Removal)>,
}

impl Removed {
    /// The objects with this fate.
    pub fn with(&self, removal: Removal) -> impl Iterator<Item = &Object> {
        self.objects
            .iter()
            .filter(move |(_, fate)| *fate == removal)
            .map(|(object, _)| object)
    }

    /// Whether the definition of an object's kind went.
    pub(super) fn took_definition_of(&self, object: &Object) -> bool {
        let gone = self
            .with(Removal::Deleted)
            .chain(self.with(Removal::Absent));
        gone.filter(|one| one.is_crd())
            .any(|definition| definition.name == object.resource.definition_name())
    }
}

/// An object could not be deleted. The text is Helm's.
#[derive(Debug, thiserror::Error)]
#[error("failed to delete resource namespace={}, name={}, kind={}", .key.namespace, .key.name, .key.kind)]
pub struct DeleteError {
    pub(super) key: ObjectKey,
    /// Whether the object could not be read, so that no deletion was sent.
    is_unseen: bool,
    pub(super) source: ApiError,
}

impl DeleteError {
    /// Of an object by its name.
    #[cfg(test)]
    pub(crate) fn of(namespace: &str, name: &str, kind: &str, source: ApiError) -> Self {
        Self {
            key: ObjectKey::new("", kind, namespace, name),
            is_unseen: false,
            source,
        }
    }

    /// The error of an object that could not be read.
    pub(super) fn unseen(object: &Object, source: ApiError) -> Self {
        Self {
            is_unseen: true,
            ..Self::new(object, source)
        }
    }

    pub(super) fn new(object: &Object, source: ApiError) -> Self {
        Self {
            key: object.key(),
            is_unseen: false,
            source,
        }
    }

    /// Whether only a read of the object failed.
    pub(crate) fn is_unseen(&self) -> bool {
        self.is_unseen
    }

    /// Whether nobody can read the object, be it that its webhook fails or that the account may not.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.is_unseen && (self.source.is_unconverted() || self.source.is_forbidden())
    }

    /// Which object it is about.
    pub(crate) fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Whether its object is one of this namespace.
    pub(crate) fn is_in(&self, namespace: &str) -> bool {
        self.key.namespace == namespace
    }

    /// Whether the object may be deleted all the same.
    pub(crate) fn is_outcome_unknown(&self) -> bool {
        self.source.is_outcome_unknown()
    }
}

/// Why not all is deleted.
#[derive(Debug)]
pub(crate) enum TakeBackError<E> {
    /// Objects that could not be deleted; all others were.
    Delete(Vec<DeleteError>),
    /// Somebody has gone on with the release, or that cannot be determined: no further object was deleted.
    Stopped(E),
}
