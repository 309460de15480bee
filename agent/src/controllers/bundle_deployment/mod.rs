//! Reconciling one BundleDeployment.
//!
//! [`reconcile`] is the flow, and the way in. Pure modules decide: [`plan`] whether anything is to be done, [`claims`](crate::controllers::claims) and
//! [`dependencies`](crate::controllers::dependencies) what stands in the way, [`observe`] how live objects differ, [`outcome`] what is told of it (of a step that got no further, [`halt`]), and [`status`] how that is
//! written. [`values`] and [`deployer`] lead from a spec to a release.

pub mod chart_poll;
pub mod correct;
pub mod deployer;
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
