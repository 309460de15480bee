//! Reconciling one BundleDeployment.
//!
//! [`reconcile`] is the flow, and the way in. Pure modules decide: [`plan`] whether anything is to be done, [`claims`] and [`dependencies`]
//! what stands in the way, [`observe`] how live objects differ, [`outcome`] what is told of it (of a step that got no further, [`halt`]), and [`status`] how that is
//! written. [`values`] and [`deployer`] lead from a spec to a release.

pub mod chart_poll;
pub mod claims;
pub mod correct;
pub mod dependencies;
pub mod deployed_ids;
pub mod deployer;
pub mod downstream_resources;
mod dry_run_budget;
pub mod halt;
mod memory_permit;
pub mod namespace;
pub mod observation_cache;
pub mod observe;
pub mod outcome;
pub mod ownership;
pub mod plan;
pub mod reconcile;
mod rendering;
pub mod status;
pub mod values;
