//! Reconciling one BundleDeployment: decisions in [`plan`] and [`status`], deeds in [`reconcile`].

pub mod copies;
pub mod correct;
pub mod deploy;
pub mod namespace;
pub mod observe;
pub mod plan;
pub mod reconcile;
pub mod status;
pub mod values;
