//! The agent's output besides BundleDeployment status: Events and metrics.

pub mod events;
pub mod metrics;
