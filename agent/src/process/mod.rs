//! The life of the process: start and signals, lease, sessions with upstream, ports, log and memory.

mod bundles;
mod cluster_checks;
mod credential_watch;
pub mod leader;
pub mod memory;
pub mod run;
pub mod server;
pub mod session;
pub mod telemetry;
