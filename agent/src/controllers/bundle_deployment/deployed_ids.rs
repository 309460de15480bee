//! Which deployment ID of each bundle was tried and deployed last, and for which forced sync, whatever upstream's status says.
//!
//! A status comes back as it was when upstream is restored. Where it names the ID that is wanted, and another one was tried since, it
//! tells of an earlier deployment, and the bundle is deployed again: what failed since may have left something. And a status may be late: what
//! it does not say yet is not done twice.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::api::BundleDeployment;

/// Deployment IDs by bundle, for as long as this agent leads: another one may deploy afterwards. They outlive a connection to upstream, which
/// ends when it is restored.
#[derive(Debug, Default)]
pub struct DeployedIds(Mutex<HashMap<String, Last>>);

/// What of a bundle's spec was tried last, and deployed.
#[derive(Debug, Default)]
struct Last {
    tried: String,
    deployed: Option<Deployed>,
}

/// What of a bundle's spec was deployed.
#[derive(Debug)]
struct Deployed {
    id: String,
    sync: i64,
}

impl DeployedIds {
    /// The deploy of the ID of its spec has begun.
    pub fn note_tried(&self, bundle: &BundleDeployment) {
        let mut ids = self.0.lock();
        let last = ids.entry(bundle.name().to_owned()).or_default();
        last.tried.clone_from(&bundle.spec.deployment_id);
    }

    /// The ID of its spec is deployed by now.
    pub fn note(&self, bundle: &BundleDeployment) {
        let id = bundle.spec.deployment_id.clone();
        let last = Last {
            tried: id.clone(),
            deployed: Some(Deployed {
                id,
                sync: bundle.spec.options.force_sync_generation,
            }),
        };
        self.0.lock().insert(bundle.name().to_owned(), last);
    }

    /// Whether another ID was tried than the one that a bundle's status names. `None` where none was.
    pub fn contradict(&self, bundle: &BundleDeployment) -> Option<bool> {
        let ids = self.0.lock();
        let last = ids.get(bundle.name())?;
        Some(last.tried != bundle.status.applied_deployment_id)
    }

    /// Whether what a bundle's spec says was deployed last, though its status may not say so yet.
    pub fn has_latest(&self, bundle: &BundleDeployment) -> bool {
        self.is_deployed(bundle, |last| last.id == bundle.spec.deployment_id)
    }

    /// Whether somebody asks for a deploy though nothing has changed, and it was not done yet.
    pub fn is_forced(&self, bundle: &BundleDeployment) -> bool {
        let desired = bundle.spec.options.force_sync_generation;
        desired != bundle.status.sync_generation.unwrap_or_default()
            && !self.is_deployed(bundle, |last| last.sync == desired)
    }

    fn is_deployed(&self, bundle: &BundleDeployment, is_it: impl Fn(&Deployed) -> bool) -> bool {
        let ids = self.0.lock();
        let last = ids.get(bundle.name());
        last.is_some_and(|last| last.deployed.as_ref().is_some_and(is_it))
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

    /// Of a restored upstream, which has the one before.
    #[test]
    fn a_status_of_before_an_attempt_is_contradicted() {
        let ids = DeployedIds::default();
        let mut first = bundle("s-1:a", 1);
        first.status.applied_deployment_id = "s-1:a".to_owned();
        assert_eq!(ids.contradict(&first), None);
        ids.note(&first);
        assert_eq!(ids.contradict(&first), Some(false));
        ids.note_tried(&bundle("s-2:a", 1));
        assert_eq!(ids.contradict(&first), Some(true));
        // What was deployed is what it was.
        assert!(ids.has_latest(&first) && !ids.is_forced(&first));
        ids.note(&first);
        assert_eq!(ids.contradict(&first), Some(false));
    }
}
