//! Which deployment ID of each bundle was deployed last, whatever upstream's status says.
//!
//! A status comes back as it was when upstream is restored. Where it names the ID that is wanted, and another one was deployed since, it
//! tells of an earlier deployment, and the bundle is deployed again.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::api::BundleDeployment;

/// Deployment IDs by bundle, for as long as this agent leads: another one may deploy afterwards. They outlive a connection to upstream, which
/// ends when it is restored.
#[derive(Debug, Default)]
pub struct DeployedIds(Mutex<HashMap<String, String>>);

impl DeployedIds {
    /// The ID of its spec is deployed by now.
    pub fn note(&self, bundle: &BundleDeployment) {
        let (name, id) = (bundle.name(), &bundle.spec.deployment_id);
        self.0.lock().insert(name.to_owned(), id.clone());
    }

    /// Whether another ID was deployed than the one that a bundle's status names.
    pub fn contradict(&self, bundle: &BundleDeployment) -> bool {
        let ids = self.0.lock();
        let last = ids.get(bundle.name());
        last.is_some_and(|last| *last != bundle.status.applied_deployment_id)
    }

    /// The bundle is gone for good.
    pub fn forget(&self, bundle: &str) {
        self.0.lock().remove(bundle);
    }

    /// Somebody else may have deployed since.
    pub fn forget_all(&self) {
        self.0.lock().clear();
    }

    /// Keeps those of bundles that are still known.
    pub fn retain(&self, is_known: impl Fn(&str) -> bool) {
        self.0.lock().retain(|bundle, _| is_known(bundle));
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.lock().len()
    }
}
