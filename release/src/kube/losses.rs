//! Data that would be lost with an object that is deleted and made anew, beside what its manifest says.

use objects::{Object, Resource};

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
