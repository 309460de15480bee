//! Real servers for the tests, on one machine and without containers: control planes, an OCI registry, a chart repository, the
//! agent itself, and the builders for what is put into them.
//!
//! Everything listens on 127.0.0.1, on ports the system picks. Nothing here looks inside the crates under test: objects are plain
//! JSON, written down as the stock Fleet controller writes them, so a mistake in our own types cannot hide in the test bed.
//! What the servers are built from is in `tools/`.

#![allow(
    clippy::disallowed_methods,
    reason = "only API servers answer these tests, and no page of a proxy"
)]

pub mod agent;
pub mod audit;
pub mod bed;
pub mod certs;
pub mod chart;
pub mod cluster;
pub mod corpus;
pub mod fault_proxy;
pub mod fleet;
pub mod forward;
pub mod helm;
pub mod kills;
pub mod node;
pub mod objects;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod recording;
pub mod registry;
pub mod repository;
pub mod signed;
pub mod skipped;
pub mod soak;
pub mod story;
pub mod tls_front;
pub mod tokens;
pub mod tools;
pub mod wait;
pub mod wire;
