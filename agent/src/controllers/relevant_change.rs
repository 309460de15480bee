//! Which changes of a BundleDeployment call for a reconcile. No I/O.

use super::status_patch;
use crate::api::{BundleDeployment, BundleDeploymentStatus};

/// Whether an event about a BundleDeployment calls for a reconcile: its spec, labels or annotations
/// changed, or its status is neither what it was nor what we left there.
pub fn is_relevant_change(
    old: &BundleDeployment,
    new: &BundleDeployment,
    written: Option<&BundleDeploymentStatus>,
) -> bool {
    let status_is_ours = || {
        status_patch::patch(&old.status, &new.status).is_none()
            || written.is_some_and(|written| status_patch::patch(written, &new.status).is_none())
    };
    old.metadata.generation != new.metadata.generation
        || old.metadata.labels != new.metadata.labels
        || old.metadata.annotations != new.metadata.annotations
        || old.metadata.uid != new.metadata.uid
        || old.spec != new.spec
        || !status_is_ours()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bundle(value: serde_json::Value) -> BundleDeployment {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn status_and_display_changes_queue_no_bundle() {
        let old = bundle(json!({"metadata": {"generation": 1}, "spec": {}}));
        let mut new = old.clone();
        new.status.display.state = "Ready".into();
        assert!(!is_relevant_change(&old, &new, None));
        new.status.release = "a/b:1".into();
        assert!(!is_relevant_change(&old, &new, Some(&new.status)));
        assert!(is_relevant_change(&old, &new, None));
        let mut spec = old.clone();
        spec.spec.downstream_resources_generation = 2;
        assert!(is_relevant_change(&old, &spec, None));
    }
}
