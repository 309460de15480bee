//! Which deployment ID of each bundle was deployed last, and for which forced sync, whatever upstream's status says.
//!
//! A status comes back as it was when upstream is restored. Where it names the ID that is wanted, and another one was deployed since, it
//! tells of an earlier deployment, and the bundle is deployed again. And a status may be late: what it does not say yet is not done twice.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::api::BundleDeployment;

/// Deployment IDs by bundle, for as long as this agent leads: another one may deploy afterwards. They outlive a connection to upstream, which
/// ends when it is restored.
#[derive(Debug, Default)]
pub struct DeployedIds(Mutex<HashMap<String, Deployed>>);

/// What of a bundle's spec was deployed.
#[derive(Debug)]
struct Deployed {
    id: String,
    sync: i64,
}

impl DeployedIds {
    /// The ID of its spec is deployed by now.
    pub fn note(&self, bundle: &BundleDeployment) {
        let deployed = Deployed {
            id: bundle.spec.deployment_id.clone(),
            sync: bundle.spec.options.force_sync_generation,
        };
        self.0.lock().insert(bundle.name().to_owned(), deployed);
    }

    /// Whether another ID was deployed than the one that a bundle's status names.
    pub fn contradict(&self, bundle: &BundleDeployment) -> bool {
        let ids = self.0.lock();
        let last = ids.get(bundle.name());
        last.is_some_and(|last| last.id != bundle.status.applied_deployment_id)
    }

    /// Whether what a bundle's spec says was deployed last, though its status may not say so yet.
    pub fn has_latest(&self, bundle: &BundleDeployment) -> bool {
        let ids = self.0.lock();
        let last = ids.get(bundle.name());
        last.is_some_and(|last| last.id == bundle.spec.deployment_id)
    }

    /// Whether somebody asks for a deploy though nothing has changed, and it was not done yet.
    pub fn is_forced(&self, bundle: &BundleDeployment) -> bool {
        let desired = bundle.spec.options.force_sync_generation;
        let ids = self.0.lock();
        let last = ids.get(bundle.name());
        desired != bundle.status.sync_generation.unwrap_or_default()
            && last.is_none_or(|last| last.sync != desired)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(id: &str, sync: i64) -> BundleDeployment {
        let mut bundle = BundleDeployment::default();
        bundle.metadata.name = Some("web".to_owned());
        bundle.spec.deployment_id = id.to_owned();
        bundle.spec.options.force_sync_generation = sync;
        bundle
    }

    /// Upstream's status says nothing of either yet.
    #[test]
    fn a_deployed_id_is_neither_outstanding_nor_forced_again() {
        let ids = DeployedIds::default();
        let first = bundle("s-1:a", 1);
        assert!(!ids.has_latest(&first) && ids.is_forced(&first));
        ids.note(&first);
        assert!(ids.has_latest(&first) && !ids.is_forced(&first));
        assert!(!ids.has_latest(&bundle("s-2:a", 1)));
        assert!(ids.is_forced(&bundle("s-1:a", 2)));
        ids.forget_all();
        assert!(!ids.has_latest(&first) && ids.is_forced(&first));
    }
}
