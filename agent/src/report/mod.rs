//! What people see of the agent besides BundleDeployment status: Events and metrics.

pub mod events;
pub mod metrics;
