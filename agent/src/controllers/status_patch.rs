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

/// Whether the answer to a patch says otherwise than `new` in what the patch left alone: somebody else has written that since it was read. What the server has
/// dropped of the patch itself, as its definition does not know the field, says nothing.
pub fn is_written_over(
    sent: &Value,
    answer: &BundleDeploymentStatus,
    new: &BundleDeploymentStatus,
) -> bool {
    patch(answer, new).is_some_and(|rest| !is_part_of(&rest, sent))
}

/// Whether a merge patch says nothing that another one does not.
fn is_part_of(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => part.iter().all(|(field, value)| {
            let said = whole.get(field);
            said.is_some_and(|said| is_part_of(value, said))
        }),
        _ => part == whole,
    }
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

    /// Upstream is restored right before a patch: its answer has what the backup had, and the patch.
    #[test]
    fn an_answer_shows_what_somebody_else_has_written_beside_the_patch() {
        let at = |release: &str, ready: bool| BundleDeploymentStatus {
            release: release.into(),
            ready,
            ..Default::default()
        };
        let (known, new) = (at("a/b:1", false), at("a/b:1", true));
        let sent = patch(&known, &new).unwrap();
        assert_eq!(sent, json!({"status": {"ready": true}}));
        assert!(!is_written_over(&sent, &new, &new));
        assert!(is_written_over(&sent, &at("", true), &new));
        assert!(is_written_over(&sent, &at("a/b:2", true), &new));
        // A server that drops the field drops it each time.
        assert!(!is_written_over(&sent, &known, &new));
        assert!(is_written_over(&sent, &at("", false), &new));
    }
}
