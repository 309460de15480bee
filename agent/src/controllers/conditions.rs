//! The conditions of a BundleDeployment: their types, and how one stands.

use crate::api::BundleDeploymentStatus;

/// Condition types in the order of a first success.
pub const INSTALLED: &str = "Installed";
pub const DEPLOYED: &str = "Deployed";
pub const READY: &str = "Ready";
pub const MONITORED: &str = "Monitored";
/// Fields that other managers held when we last wrote; there only if there were any. Ours alone:
/// the controller takes texts from the others, for bundles that are not Ready.
pub const FIELD_CONFLICTS: &str = "FieldConflicts";

/// Objects that were corrected in vain and how long they are left; there only if there are any. Ours alone too.
pub const CORRECTIONS_POSTPONED: &str = "CorrectionsPostponed";

impl BundleDeploymentStatus {
    /// A condition's status word, empty when it was never set.
    pub fn condition(&self, type_: &str) -> &str {
        let found = self
            .conditions
            .iter()
            .find(|condition| condition.type_ == type_);
        found.map_or("", |condition| condition.status.as_str())
    }
}
