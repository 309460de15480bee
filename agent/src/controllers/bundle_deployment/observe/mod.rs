//! Comparing a release's live objects with what it wants: which are missing, extra, changed or not ready.
//!
//! One LIST per kind and namespace by the set's hash, as the bundle's account. Right after a first
//! install the answers to its writes do, and of a bundle that is becoming ready only what changed
//! is read again. What it wants is made of its record. Mirrors `internal/cmd/agent/deployer/monitor` and `desiredset`; how two objects
//! differ and when one is ready is the objects crate's.

mod compare;
mod desired;
mod differences;
#[cfg(test)]
mod fixtures;
mod live;
mod rules;

pub use self::compare::View;
pub use self::desired::{
    Desired, FormerObjects, Kept, KindAndName, ObjectsError, kinds, objects, told_as_left_over,
};
pub use self::differences::Differences;
pub use self::live::{Live, ObserveError};
pub use self::rules::rules;
