//! What is sent upstream of a status. It is made from status alone: neither spec, values nor anything read from a Secret can get into it.

use objects::merge;
use serde_json::{Value, json};

use crate::api::BundleDeploymentStatus;

/// The merge patch that takes upstream from one status to another; `None` when there is nothing
/// to say.
pub fn patch(old: &BundleDeploymentStatus, new: &BundleDeploymentStatus) -> Option<Value> {
    let tree = |status: &BundleDeploymentStatus| {
        let mut tree = serde_json::to_value(status).unwrap_or_default();
        if let Value::Object(fields) = &mut tree {
            // The controller's.
            fields.remove("display");
        }
        tree
    };
    let difference = merge::json::create(&tree(old), &tree(new))?;
    Some(json!({ "status": difference }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_hold_only_what_changed_and_never_display() {
        let mut old = BundleDeploymentStatus {
            release: "a/b:1".into(),
            ..Default::default()
        };
        old.display.state = "Ready".into();
        let mut new = old.clone();
        assert_eq!(patch(&old, &new), None);
        new.display.state.clear();
        assert_eq!(patch(&old, &new), None);
        new.release.clear();
        new.ready = true;
        new.sync_generation = Some(0);
        new.resource_counts.ready = 2;
        assert_eq!(
            patch(&old, &new),
            Some(json!({"status": {
                "release": null, "ready": true, "syncGeneration": 0, "resourceCounts": {"ready": 2},
            }}))
        );
    }
}
