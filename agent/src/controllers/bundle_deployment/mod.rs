//! Reconciling one BundleDeployment: decisions in [`plan`] and [`status`], deeds in [`reconcile`].

pub mod claims;
pub mod correct;
pub mod dependencies;
pub mod deployer;
pub mod downstream_resources;
pub mod namespace;
pub mod observation_cache;
pub mod observe;
pub mod outcome;
pub mod plan;
pub mod reconcile;
mod rendering;
pub mod spec_names;
pub mod status;
pub mod values;
