//! Where the operator of this cluster keeps facts and may hold deploys.

use super::environment::{Environment, SITE_VARIABLE, SettingsError};

/// A ConfigMap and a Secret of one name, owned by the operator of this cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteRef {
    pub namespace: String,
    pub name: String,
}

impl SiteRef {
    /// Name in the system namespace where [`SITE_VARIABLE`] is unset.
    const DEFAULT_NAME: &str = "fleet-site";

    pub(super) fn from_environment(
        env: &Environment,
        namespace: &str,
    ) -> Result<Self, SettingsError> {
        let Some(value) = env.get(SITE_VARIABLE) else {
            return Ok(Self {
                namespace: namespace.to_owned(),
                name: Self::DEFAULT_NAME.to_owned(),
            });
        };
        match value.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => Ok(Self {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err(SettingsError::Site(value.to_owned())),
        }
    }
}
