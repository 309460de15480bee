//! The cluster: discovery, requests, server-side apply, ownership, deletion and waiting.
//!
//! Objects travel as `serde_json::Value`, never as Rust types, so that no field a chart writes is
//! lost. Everything is sent through the [`kube::Client`] that a [`Cluster`] was made with; this
//! crate cannot reach another identity. Decisions (which fields to leave to whom, what to delete)
//! are pure functions beside the code that acts on them.
//!
//! Mirrors `pkg/kube` of Helm 4.

mod apply;
mod client;
mod create;
mod delete;
mod discovery;
mod dry_run;
mod error;
mod hook_watch;
mod lock;
mod lookup;
mod migrate;
mod ownership;
mod record_lists;
mod wait;

pub use apply::{Applied, ApplyError, ApplyOptions, ObjectFailure, reapply};
pub use client::Cluster;
pub use delete::{DeleteError, Removal, Removed};
pub use dry_run::{DryRun, dry_run};
pub use error::ApiError;
pub use lookup::{ClusterLookup, LookupError};
pub use ownership::{Owner, OwnershipError};
pub use wait::WaitError;

pub(crate) use apply::{Unverified, apply_all, is_foreign_writer};
pub(crate) use client::RecordRequest;
pub(crate) use create::creatable_unchecked;
pub(crate) use delete::{delete_all, delete_hook, is_name_taken};
pub(crate) use hook_watch::wait_for_hooks;
pub(crate) use ownership::{OwnershipRule, check_all, stored_policy};
pub(crate) use wait::{wait_until_gone, wait_until_ready};
