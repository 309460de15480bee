//! Reconciling one BundleDeployment: decisions in [`plan`] and [`status`], deeds in [`reconcile`].

pub mod claims;
pub mod correct;
pub mod deploy;
pub mod downstream_resources;
pub mod names;
pub mod namespace;
pub mod observation_cache;
pub mod observe;
pub mod outcome;
pub mod plan;
pub mod reconcile;
pub mod status;
pub mod values;
