//! The cluster: discovery, requests, server-side apply, ownership, deletion and waiting.
//!
//! Objects travel as `serde_json::Value`, never as Rust types, so that no field a chart writes is
//! lost. Everything is sent through the [`kube::Client`] that a [`Cluster`] was made with; this
//! crate cannot reach another identity. Decisions (which fields to leave to whom, what to delete)
//! are pure functions beside the code that acts on them.
//!
//! Mirrors `pkg/kube` of Helm 4.

mod apply;
mod claim;
mod client;
mod delete;
mod discovery;
mod error;
mod follow;
mod lookup;
mod migrate;
mod ownership;
mod predict;
mod records;
mod turn;
mod wait;

pub use apply::{Applied, ApplyError, ApplyOptions, ObjectFailure, reapply};
pub use client::Cluster;
pub use delete::{DeleteError, Removal, Removed};
pub use error::ApiError;
pub use lookup::{ClusterLookup, LookupError};
pub use ownership::{Owner, OwnershipError};
pub use predict::{Prediction, predict};
pub use wait::WaitError;

pub(crate) use apply::{Unproven, apply_all, is_foreign_writer};
pub(crate) use claim::provable;
pub(crate) use client::RecordRequest;
pub(crate) use delete::{delete_all, delete_hook, is_taken};
pub(crate) use follow::until_ended;
pub(crate) use ownership::{Claim, check_all, stored_policy};
pub(crate) use wait::{until_gone, until_ready};
