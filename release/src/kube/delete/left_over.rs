//! What a release has left over: found by a look, not dropped by an operation.

use objects::Object;

use super::outcome::{DeleteError, Removal};
use super::proof::left;
use crate::kube::client::Cluster;
use crate::kube::ownership::Owner;
use crate::others::Container;
use crate::state::ownership::Operation;

/// Deletes an object that a look found and the release wants no more, where its marks prove that an upgrade that drops it may, and nobody has written
/// it since it was `seen` with that metadata. What others may be in stays.
///
/// # Errors
/// The API server refuses.
///
/// # Cancellation
/// Safe: the next look finds what is still there.
pub async fn delete_left_over(
    cluster: &Cluster,
    owner: &Owner,
    seen: &Object,
) -> Result<Removal, DeleteError> {
    if Container::of(seen).is_some() {
        // An upgrade looks at what is in it before it goes.
        return Ok(Removal::Kept);
    }
    let proof = match owner.observe(&seen.body).deletable(Operation::Drop, None) {
        Ok(proof) => proof,
        Err(state) => return Ok(left(state)),
    };
    match cluster.delete(seen, &proof, false).await {
        Ok(()) => Ok(Removal::Deleted),
        Err(error) if error.is_not_found() => Ok(Removal::Absent),
        // The next look judges what it is by now.
        Err(error) if error.is_conflict() => Ok(Removal::NotOwned),
        Err(error) => Err(DeleteError::new(seen, error)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use http::Method;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::kube::fixture;
    use crate::kube::ownership::ADOPTED_ANNOTATION;

    /// By what is found on it: only what the release has marked goes, in the version that was seen.
    #[rstest]
    #[case::of_the_release("ConfigMap", json!({}), json!({}), Some(Removal::Deleted))]
    #[case::handed_over("ConfigMap", json!({ADOPTED_ANNOTATION: "handed-over"}), json!({}), Some(Removal::Deleted))]
    #[case::kept("ConfigMap", json!({"helm.sh/resource-policy": "keep"}), json!({}), Some(Removal::Kept))]
    #[case::there_before("ConfigMap", json!({ADOPTED_ANNOTATION: "kept"}), json!({}), Some(Removal::Adopted))]
    #[case::taken_with_take_ownership("ConfigMap", json!({ADOPTED_ANNOTATION: "owned"}), json!({}), Some(Removal::Adopted))]
    #[case::of_another_release("ConfigMap", json!({"meta.helm.sh/release-name": "other"}), json!({}), Some(Removal::NotOwned))]
    #[case::of_a_release_that_is_not_told("ConfigMap", json!({"meta.helm.sh/release-name": null}), json!({}), Some(Removal::NotOwned))]
    #[case::by_nobody("ConfigMap", json!({}), json!({"labels": null, "annotations": null}), Some(Removal::NotOwned))]
    #[case::a_namespace("Namespace", json!({}), json!({}), Some(Removal::Kept))]
    #[case::written_since("ConfigMap", json!({}), json!({"resourceVersion": "6"}), Some(Removal::NotOwned))]
    #[case::refused("ConfigMap", json!({}), json!({"resourceVersion": "forbidden"}), None)]
    #[tokio::test]
    async fn what_is_left_over_goes_only_as_what_the_release_dropped(
        #[case] kind: &str,
        #[case] annotations: Value,
        #[case] metadata: Value,
        #[case] expected: Option<Removal>,
    ) {
        let deleted = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&deleted);
        let cluster = fixture::server(move |method, _, sent| {
            let named = &sent["preconditions"];
            assert_eq!((method, &named["uid"]), (&Method::DELETE, &json!("u")));
            let (code, reason) = match named["resourceVersion"].as_str()? {
                "7" => (200, ""),
                "6" => (409, "Conflict"),
                _ => (403, "Forbidden"),
            };
            counted.fetch_add(u32::from(code == 200), Ordering::Relaxed);
            let answer =
                json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason});
            Some((code, answer))
        });
        let owner = Owner::new("web", "shop");
        let mut live = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}});
        owner.mark(&mut live);
        json_patch::merge(
            &mut live,
            &json!({"metadata": {"annotations": annotations}}),
        );
        json_patch::merge(&mut live, &json!({ "metadata": metadata }));
        let seen = fixture::object("", kind, live);
        let removal = delete_left_over(&cluster, &owner, &seen).await;
        assert_eq!(removal.as_ref().ok(), expected.as_ref(), "{removal:?}");
        let is_deleted = expected == Some(Removal::Deleted);
        assert_eq!(deleted.load(Ordering::Relaxed), u32::from(is_deleted));
    }
}
