//! The loops: BundleDeployments, drift of live objects, kinds that come late, heartbeat, garbage collection.

pub mod bundle_deployment;
pub mod bundle_state;
pub mod claims;
pub mod cluster_status;
pub mod conditions;
pub mod crd_watch;
pub mod dependencies;
pub mod deployed_ids;
pub mod downstream_resources;
pub mod drift_watch;
pub mod facts;
pub mod garbage;
pub mod queue;
pub mod received;
pub mod relevant_change;
pub mod shared_namespaces;
pub mod signature_policy;
pub mod source_hosts;
pub mod source_watch;
pub mod spec_identity;
pub mod status_patch;
pub mod store;
pub mod suspension;
pub mod values_watch;
