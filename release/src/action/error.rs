//! Why an action failed. The texts are Helm's where users know them from Helm.

use objects::BuildError;

use crate::error::{BoxError, error_chain};
use crate::kube::{
    ApiError, ApplyError, DeleteError, Owner, OwnershipError, TakeBackError, WaitError,
};
use crate::storage::StorageError;

/// A deployment failed.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    /// The name cannot be a release's.
    #[error("release name check failed: release name {name:?}: {problem}")]
    Name {
        name: String,
        /// Helm's rule that it breaks.
        problem: chart::ReleaseNameError,
    },
    /// Another client is at work on the release.
    #[error("another operation (install/upgrade/rollback) is in progress")]
    Locked,
    /// The API server cannot be asked what it serves.
    #[error(transparent)]
    Discovery(ApiError),
    /// A record cannot be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The chart cannot be rendered.
    #[error(transparent)]
    Render(BoxError),
    /// The renderer panicked, or the runtime is shutting down.
    // A panic may quote anything.
    #[error("rendering was aborted")]
    RenderAborted(tokio::task::JoinError),
    /// The rendered manifest is not made of objects the cluster knows.
    #[error("unable to build kubernetes objects from {which} manifest")]
    Build {
        /// `release` on install, `new release` on upgrade.
        which: &'static str,
        source: BuildError,
    },
    /// An object belongs to somebody else.
    #[error("unable to continue with {operation}")]
    Ownership {
        /// `install`, `update` or `rollback`.
        operation: &'static str,
        /// The object, and whose it is.
        source: OwnershipError,
    },
    /// The owner of an object cannot be determined.
    #[error(transparent)]
    Observed(OwnershipError),
    /// It is unknown whether somebody has gone on with the release.
    #[error(transparent)]
    Unlisted(StorageError),
    /// The namespace cannot be created.
    #[error("failed to create namespace {namespace:?}")]
    Namespace { namespace: String, source: ApiError },
    /// A file of `crds/` cannot be installed.
    #[error("failed to install CRD {path}")]
    Crd { path: String, source: CrdError },
    /// The removal of the release goes on: a hook that it has started would hit what is deployed.
    #[error("the removal of the release is not over")]
    Removal(#[source] HookError),
    /// A hook failed.
    #[error("{}", hook_text(.event))]
    Hook {
        event: &'static str,
        source: HookError,
    },
    /// Objects were refused.
    #[error(transparent)]
    Apply(ApplyError),
    /// Objects did not become ready in time, and that was asked for.
    #[error(transparent)]
    Wait(WaitError),
    /// Objects that the new revision no longer has cannot be deleted.
    #[error("{}", joined(.0, " && "))]
    Delete(Vec<DeleteError>),
    /// The deploy failed, and was undone because that was asked for.
    #[error(
        "release {name} failed, and has been {undone} due to rollback-on-failure being set{except}"
    )]
    Undone {
        name: String,
        /// `uninstalled` or `rolled back`.
        undone: &'static str,
        /// The part that was not undone; empty where all was.
        except: &'static str,
        /// The original failure.
        source: Box<DeployError>,
    },
    /// The deploy failed, and so did undoing it.
    #[error("an error occurred while {undoing} the release. original error: {original}")]
    NotUndone {
        /// `uninstalling` or `rolling back`.
        undoing: &'static str,
        /// The original failure, all causes included.
        original: String,
        /// The failure of the undo.
        source: BoxError,
    },
}

impl From<TakeBackError<StorageError>> for DeployError {
    fn from(error: TakeBackError<StorageError>) -> Self {
        match error {
            TakeBackError::Delete(failures) => Self::Delete(failures),
            TakeBackError::Stopped(stopped) => Self::Storage(stopped),
        }
    }
}

impl DeployError {
    /// Whether an object may be there though nobody answered that it is.
    pub(crate) fn is_outcome_unknown(&self) -> bool {
        match self {
            Self::Apply(refused)
            | Self::Hook {
                source:
                    HookError::Create {
                        source: refused, ..
                    },
                ..
            } => refused.is_outcome_unknown(),
            Self::Namespace { source, .. }
            | Self::Crd {
                source: CrdError::Api(source),
                ..
            } => source.is_outcome_unknown(),
            _ => false,
        }
    }

    /// The error where it is not known that nobody else has gone on with the release: somebody has, or the records cannot be read.
    pub(super) fn of_check(failed: StorageError) -> Self {
        match failed {
            StorageError::HistoryChanged { .. } => Self::Storage(failed),
            unread => Self::Unlisted(unread),
        }
    }

    /// Whether only reads failed: of objects that may have another owner since the hooks ran, before anything was written, or of those to delete once
    /// all is.
    pub(crate) fn is_unseen(&self) -> bool {
        match self {
            Self::Observed(_) | Self::Unlisted(_) => true,
            Self::Delete(failures) => failures.iter().all(DeleteError::is_unseen),
            _ => false,
        }
    }

    /// Whether what is wanted is refused, until somebody changes that or what is in the cluster.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Build { .. } => true,
            Self::Ownership { source, .. } => matches!(source, OwnershipError::Foreign { .. }),
            _ => false,
        }
    }

    /// Whether the attempt's record is somebody else's by now, who goes on from there.
    pub(crate) fn is_replaced(&self) -> bool {
        let (Self::Storage(failed)
        | Self::Hook {
            source: HookError::Storage(failed),
            ..
        }) = self
        else {
            return false;
        };
        matches!(failed, StorageError::Replaced { .. })
    }

    /// Whether a hook ran and did not end well, rather than could not be run.
    pub fn is_failed_hook(&self) -> bool {
        let Self::Hook { source, .. } = self else {
            return false;
        };
        matches!(source, HookError::Wait(_))
    }
}

/// A file of `crds/` cannot be installed.
#[derive(Debug, thiserror::Error)]
pub enum CrdError {
    /// The CRD cannot be read.
    #[error(transparent)]
    Build(BuildError),
    /// There is nothing in it.
    #[error("{0}")]
    Empty(&'static str),
    /// The API server refused.
    #[error(transparent)]
    Api(ApiError),
    /// The CRD is not served in time.
    #[error(transparent)]
    Wait(WaitError),
}

/// A hook failed. The texts are Helm's.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The hook is not made of objects the cluster knows.
    #[error("unable to build kubernetes object for {event} hook {path}")]
    Build {
        event: &'static str,
        /// Path of the hook's template.
        path: String,
        source: BuildError,
    },
    /// The hook cannot be created.
    #[error("warning: Hook {event} {path} failed")]
    Create {
        event: &'static str,
        /// Path of the hook's template.
        path: String,
        source: ApplyError,
    },
    /// The hook did not end well.
    #[error(transparent)]
    Wait(WaitError),
    /// The hook's previous instance does not go.
    #[error(transparent)]
    Former(WaitError),
    /// The hook cannot be deleted.
    #[error(transparent)]
    Delete(DeleteError),
    /// An object with the hook's name is not a hook of this release.
    #[error(
        "{kind} {namespace}/{name} exists and is not a hook of this release, or is of an earlier run and no delete policy makes it go"
    )]
    Foreign {
        kind: String,
        namespace: String,
        name: String,
    },
    /// The hook's name is taken by one that runs for somebody else, and has not ended in time.
    #[error("{object} still runs for {}", whose(.owner.as_ref()))]
    Busy {
        object: String,
        /// The release, where it says so.
        owner: Option<Owner>,
    },
    /// An object with the hook's name cannot be read.
    #[error(transparent)]
    Observed(ApiError),
    /// The hook's run cannot be recorded.
    #[error(transparent)]
    Storage(StorageError),
    /// The API server cannot be asked what it serves.
    #[error(transparent)]
    Discovery(ApiError),
}

impl HookError {
    /// Whether a removal is complete though this befell one of its last hooks: the hook has failed or can never begin, or it is given up. What nobody
    /// answered or recorded ends nothing.
    pub(super) fn ends_removal(&self, is_given_up: bool) -> bool {
        match self {
            Self::Foreign { .. } => true,
            Self::Wait(waited) => !waited.timed_out || is_given_up,
            Self::Build { .. } | Self::Former(_) | Self::Busy { .. } => is_given_up,
            Self::Create { source, .. } => is_given_up && !source.is_outcome_unknown(),
            Self::Delete(failed) => is_given_up && !failed.is_outcome_unknown(),
            Self::Observed(source) | Self::Discovery(source) => {
                is_given_up && !source.is_outcome_unknown()
            }
            Self::Storage(_) => false,
        }
    }

    /// Whether time ran out for the hook, which goes on.
    pub(super) fn is_late(&self) -> bool {
        matches!(self, Self::Wait(waited) if waited.timed_out)
    }
}

/// An attempt cannot be undone by going back.
#[derive(Debug, thiserror::Error)]
pub(super) enum RollbackError {
    /// The revision to go back to is not stored any more.
    #[error("release has no {0} version")]
    NoRevision(i64),
    /// Anything else, as for a deployment.
    #[error(transparent)]
    Deploy(#[from] DeployError),
}

/// A removal failed. Trying again goes on where it stopped.
#[derive(Debug, thiserror::Error)]
pub enum UninstallError {
    /// The records cannot be read, or somebody goes on with the release ([`StorageError::HistoryChanged`]).
    #[error("uninstall: Release not loaded: {name}")]
    Load { name: String, source: StorageError },
    /// A helm client is at work on it: what it is about to write would have no record.
    #[error("another operation (install/upgrade/rollback) is in progress")]
    Locked,
    /// Since it was found to be the caller's another one of those that share its digests has taken it, or somebody wrote another record.
    #[error("release {0} is another's by now")]
    Taken(String),
    /// The release is wanted after all. Objects not removed yet are still there, and the next deploy goes on with them.
    #[error("release {0} is wanted again")]
    Aborted(String),
    /// Hooks of its removal have run, and it may be wanted by now: nobody could say that it is not. All of its objects are there yet.
    #[error("release {0} may be wanted again")]
    Unconfirmed(String),
    /// The release waits with these namespaces and definitions, in which other releases are that are about to go.
    #[error("{} are deleted once the releases in them are removed", .0.join(", "))]
    NamespacesDeferred(Vec<String>),
    /// A record cannot be written or deleted.
    #[error("uninstall: Failed to purge the release")]
    Purge(#[source] StorageError),
    /// A hook failed before the objects of the release went, or could not be asked for or recorded.
    #[error(transparent)]
    Hook(HookError),
    /// The stored manifest cannot be read.
    #[error("corrupted release record. You must manually delete the resources")]
    Corrupted(#[source] BuildError),
    /// The API server cannot be asked what it serves.
    #[error(transparent)]
    Discovery(ApiError),
    /// Objects cannot be deleted.
    #[error("failed to delete release: {name}: {}", joined(.failures, "; "))]
    Delete {
        name: String,
        failures: Vec<DeleteError>,
    },
}

impl UninstallError {
    /// Whether the error quotes no object.
    pub fn quotes_nothing(&self) -> bool {
        match self {
            Self::Locked
            | Self::Taken(_)
            | Self::Aborted(_)
            | Self::Unconfirmed(_)
            | Self::NamespacesDeferred(_) => true,
            Self::Load { .. }
            | Self::Purge(_)
            | Self::Hook(_)
            | Self::Corrupted(_)
            | Self::Discovery(_)
            | Self::Delete { .. } => false,
        }
    }

    /// Whether what failed is over with this namespace, once that is gone: nothing of it is left elsewhere.
    pub fn ends_with(&self, namespace: &str) -> bool {
        match self {
            // The records were there.
            Self::Load { .. } | Self::Locked | Self::Purge(_) | Self::Corrupted(_) => true,
            Self::Delete { failures, .. } => failures.iter().all(|failed| failed.is_in(namespace)),
            // Others were yet to be deleted.
            Self::Hook(_)
            | Self::Discovery(_)
            | Self::Taken(_)
            | Self::Aborted(_)
            | Self::Unconfirmed(_)
            | Self::NamespacesDeferred(_) => false,
        }
    }
}

fn whose(owner: Option<&Owner>) -> String {
    match owner {
        Some(Owner { name, namespace }) => format!("the release {namespace}/{name}"),
        None => "somebody else".to_owned(),
    }
}

fn hook_text(event: &str) -> String {
    match event {
        "pre-install" | "post-install" => format!("failed {event}"),
        event => format!("{event} hooks failed"),
    }
}

fn joined(errors: &[DeleteError], separator: &str) -> String {
    let texts: Vec<String> = errors.iter().map(|error| error_chain(error)).collect();
    texts.join(separator)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    /// An upgrade that is carried out is not undone for a list that nobody answers.
    #[test]
    fn records_that_cannot_be_read_undo_nothing() {
        let unanswered = StorageError::Api {
            verb: "list",
            source: ApiError::Refused(Status::failure("later", "Timeout").with_code(504).boxed()),
        };
        assert!(DeployError::of_check(unanswered).is_unseen());
        let key = "sh.helm.release.v1.web.v4".to_owned();
        let overtaken = StorageError::HistoryChanged { key };
        assert!(!DeployError::of_check(overtaken).is_unseen());
    }

    /// The namespace went with its release; objects elsewhere did not.
    #[test]
    fn a_removal_is_not_over_with_its_namespace_while_something_elsewhere_failed() {
        let failed = |namespace: &str| {
            let status = Status::failure("no", "Forbidden").with_code(403);
            DeleteError::of(namespace, "web", "Thing", ApiError::Refused(status.boxed()))
        };
        let deleting = |namespaces: &[&str]| UninstallError::Delete {
            name: "web".to_owned(),
            failures: namespaces.iter().copied().map(failed).collect(),
        };
        for (error, ends) in [
            (deleting(&["apps"]), true),
            (deleting(&["apps", ""]), false),
            (deleting(&["apps", "other"]), false),
            (UninstallError::Purge(StorageError::NotFound), true),
            (
                UninstallError::Discovery(ApiError::Refused(Status::default().boxed())),
                false,
            ),
        ] {
            assert_eq!(error.ends_with("apps"), ends, "{error}");
        }
    }
}
