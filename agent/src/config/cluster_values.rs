//! The setting `FLEET_AGENT_CLUSTER_VALUES`, which an annotation overrides for one bundle.

use std::str::FromStr;

use crate::api::ANNOTATION_CLUSTER_VALUES;

/// When `${ }` is filled in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClusterValuesMode {
    /// Where the controller cannot have done it: in values that stand in the BundleDeployment. What came through
    /// the controller's Secret is left as it is, so nothing is ever filled in twice.
    #[default]
    Auto,
    /// Everywhere, also in values that the controller filled in before.
    Always,
    /// Nowhere: what the Go agent does.
    Never,
}

/// A word that is no [`ClusterValuesMode`].
#[derive(Debug, thiserror::Error)]
#[error("unknown mode {0:?} in {ANNOTATION_CLUSTER_VALUES}: auto, always or never is expected")]
pub struct UnknownMode(String);

impl FromStr for ClusterValuesMode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        match text {
            "auto" => Ok(Self::Auto),
            "always" => Ok(Self::Always),
            "never" => Ok(Self::Never),
            other => Err(UnknownMode(other.to_owned())),
        }
    }
}
