//! Data that would be lost with an object that is deleted and made anew, beside what its manifest says.

use std::collections::HashSet;

use objects::{Object, ObjectKey, Resource};
use serde_json::Value;

use super::client::Cluster;

/// Whether more would go with an object than itself.
pub(crate) fn holds_more(object: &Object) -> bool {
    contents(object).is_some()
}

/// The data that goes with an object that only contains or keeps it, in words for people.
pub(super) fn contents(object: &Object) -> Option<&'static str> {
    let Resource { group, kind, .. } = &*object.resource;
    match (group.as_str(), kind.as_str()) {
        _ if object.is_crd() => Some("recreating a definition deletes every object of its kind"),
        _ if object.is_namespace() => Some("recreating a namespace deletes everything in it"),
        ("", "PersistentVolumeClaim" | "PersistentVolume") => {
            Some("recreating it may delete the data of the volume")
        }
        _ => None,
    }
}

/// Of a live StatefulSet, whether its volume claims go with it.
pub(super) fn deletes_claims(live: &Value) -> bool {
    const WHEN_DELETED: &str = "/spec/persistentVolumeClaimRetentionPolicy/whenDeleted";
    live.pointer(WHEN_DELETED) == Some(&Value::from("Delete"))
}

/// Those of `objects` with which volume claims go, or may, as they cannot be read now.
pub(crate) async fn with_claims<'o>(
    cluster: &Cluster,
    objects: impl Iterator<Item = &'o Object>,
) -> HashSet<ObjectKey> {
    let mut found = HashSet::new();
    for object in objects {
        let Resource { group, kind, .. } = &*object.resource;
        if (group.as_str(), kind.as_str()) == ("apps", "StatefulSet") {
            let live = cluster.get(object).await;
            let has_none = |live: Option<Value>| live.is_none_or(|live| !deletes_claims(&live));
            if !live.is_ok_and(has_none) {
                found.insert(object.key());
            }
        }
    }
    found
}

/// Groups whose kinds Kubernetes itself defines, with controllers that make anew what they made for an object.
#[rustfmt::skip]
const BUILT_IN: [&str; 12] = [
    "", "admissionregistration.k8s.io", "apiregistration.k8s.io", "apps", "autoscaling", "batch", "extensions",
    "networking.k8s.io", "policy", "rbac.authorization.k8s.io", "scheduling.k8s.io", "storage.k8s.io",
];

/// Whether somebody's controller may keep something for an object that goes with it: a database, a cluster.
pub(crate) fn is_custom(object: &Object) -> bool {
    !BUILT_IN.contains(&object.resource.group.as_str())
}
