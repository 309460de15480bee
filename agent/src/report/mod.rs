//! What people see of the agent besides BundleDeployment status: Events and metrics, and what
//! must be redacted before a text leaves the process.

pub mod events;
pub mod metrics;
pub mod redact;
