//! The cluster: discovery, requests, server-side apply, ownership, deletion and waiting.
//!
//! Everything is sent through the [`kube::Client`] that a [`Cluster`] was made with; this crate cannot
//! reach another identity. What can be decided without a cluster (which fields are left to whom, when
//! an object is ready) is in [`objects`].
//!
//! - `transport`, `listed` and `client`: one request, an object of a list, and the handle of one identity with all that is asked.
//! - `connection` and `tls`: the way to a server, and whether it is the one.
//! - `ownership` and `check`: to whom an object belongs, and finding out before writing it.
//! - `discovery` and `unlisted`: which kinds there are, and which are only not served at the moment.
//! - `write`, `apply`, `migrate` and `dry_run`: one object, a manifest in order, the fields of other
//!   Helm clients, and what a write would change.
//! - `replace` and `successor`: what `force` does to an object that cannot change, and whether the new one would be created.
//! - `delete`, `wait` and `hook_watch`: removing objects, and waiting for them.
//!
//! Mirrors `pkg/kube` of Helm 4.

mod apply;
mod check;
mod claim;
mod client;
pub mod connection;
mod delete;
mod discovery;
mod dry_run;
pub(crate) mod error;
#[cfg(test)]
pub(crate) mod fixture;
mod hook_watch;
mod listed;
mod lock;
mod lookup;
mod losses;
mod migrate;
mod object_failure;
mod ownership;
mod record_lists;
mod replace;
mod sender;
mod successor;
mod tls;
mod transport;
mod tries;
mod unlisted;
mod unread;
mod version;
mod wait;
mod write;

pub use apply::{Applied, ApplyError, reapply};
pub use client::Cluster;
pub(crate) use client::RecordRequest;
pub use connection::{NotInCluster, in_cluster};
pub use delete::{DeleteError, Removal, Removed, delete_left_over};
pub use dry_run::{DryRun, dry_run};
pub use error::{AnswerLimit, AnswerTooLarge, ApiError, is_too_large};
pub use listed::{Listed, MAX_OBJECT};
pub use lookup::ClusterLookup;
pub use object_failure::{Deletion, ObjectFailure};
pub use ownership::{Owner, OwnershipError, is_kept, unnote};
pub use wait::WaitError;
pub use write::ApplyOptions;

pub(crate) use apply::{apply_all, apply_hook};
pub(crate) use check::{creatable_unchecked, find_all, observe_all, observe_all_until};
pub(crate) use claim::{Claim, HookClaim};
pub(crate) use delete::{
    Content, Contents, Held, HookInstance, Spared, TakeBackError, Unseen, check_deletable,
    clear_name, delete_all, delete_failed, delete_hook, forget_removal, forget_unserved,
    is_deferred, is_given_up, is_made_with_namespace, leave_held, newest_first, read_contents,
    take_back, waits_for_served,
};
pub(crate) use hook_watch::{running_hooks, wait_for_hooks};
pub(crate) use lock::Lock;
pub(crate) use losses::{holds_more, is_custom, with_claims};
pub(crate) use ownership::{Created, ResourcePolicy, RunMark, is_noted, resource_policy};
pub(crate) use version::WrittenObjects;
pub(crate) use wait::{wait_until_left, wait_until_over, wait_until_ready};
