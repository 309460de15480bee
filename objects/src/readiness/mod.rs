//! Is a live object ready? Pure functions from an object, as the API server returned it, to a status.
//!
//! - [`kstatus`]: the rules every other answer builds on (cli-utils' `pkg/kstatus/status`).
//! - [`wait`]: what Helm's status watcher makes of them while it waits for a release or a hook.
//!
//! Nothing here talks to a cluster; the caller brings the object and, where a rule needs them, its
//! pods and replica sets.

mod kinds;
pub mod kstatus;
mod status;
pub mod wait;

pub use status::{ComputeError, Condition, Readiness, Status};
