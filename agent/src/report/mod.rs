//! What people see of the agent besides BundleDeployment status: Events and metrics; how objects
//! are summarised, and what must be redacted before a text leaves the process.

pub mod events;
pub mod metrics;
pub mod redact;
pub mod summary;
