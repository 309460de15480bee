//! The agent as a pod on a real node, installed by the unmodified Fleet and by its own chart: `make test-node` runs these, as root.
//!
//! One node and one Fleet serve them all, one test after the other; each has clusters of its own, whose agents share the node in namespaces
//! of their own, as Fleet allows.

#![allow(
    clippy::disallowed_methods,
    reason = "only API servers answer these tests, and no page of a proxy"
)]

mod day_two;
mod document;
mod fleet_values;
mod installed;
mod proxies;
mod swap;
