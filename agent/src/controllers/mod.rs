//! The loops: BundleDeployments, drift of live objects, kinds that come late, heartbeat, garbage collection.

pub mod bundle_deployment;
pub mod cluster_status;
pub mod crd_watch;
pub mod drift_watch;
pub mod edition;
pub mod facts;
pub mod garbage;
pub mod queue;
pub mod received;
pub mod shared_namespaces;
pub mod signature_policy;
pub mod source_hosts;
pub mod source_watch;
pub mod store;
pub mod values_watch;
