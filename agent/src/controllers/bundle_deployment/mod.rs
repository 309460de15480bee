//! Reconciling one BundleDeployment: decisions in [`plan`] and [`status`], deeds in [`reconcile`].

pub mod claims;
pub mod copies;
pub mod correct;
pub mod deploy;
pub mod names;
pub mod namespace;
pub mod observe;
pub mod plan;
pub mod recall;
pub mod reconcile;
pub mod status;
pub mod values;
