//! Creating what nobody may have yet, and finding out by doing so.
//!
//! Before a first install every object is looked at, because one that is there already may be somebody
//! else's. Creating it and seeing it refused proves the same in one request, and leaves no moment in
//! which somebody could step in between. It holds only where a creation can be taken back without
//! trace: [`provable`] says for which objects of a manifest. The others are looked at first.

use objects::Object;
use serde_json::{Value, json};

use super::client::Cluster;
use super::error::ApiError;
use super::ownership::{Claim, Owner, OwnershipError};

/// Kinds of the core and the RBAC group that start nothing and provide nothing to others.
const INERT: [&str; 8] = [
    "ServiceAccount",
    "Secret",
    "ConfigMap",
    "Service",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
];

/// How many of `objects`, from the first, need no look before they are created in this order:
/// everything that is inert, and whatever comes last of all.
pub(crate) fn provable(objects: &[Object]) -> usize {
    if objects.iter().any(Object::is_crd) {
        return 0; // Written first, wherever it stands.
    }
    let inert = objects.iter().take_while(|object| is_inert(object)).count();
    match objects.len() - inert {
        0 | 1 => objects.len(),
        _ => inert,
    }
}

fn is_inert(object: &Object) -> bool {
    let resource = &object.resource;
    // A load balancer is made of something outside the cluster.
    let service = object.body.pointer("/spec/type").and_then(Value::as_str);
    matches!(resource.group.as_str(), "" | "rbac.authorization.k8s.io")
        && INERT.contains(&resource.kind.as_str())
        && (resource.kind != "Service" || service != Some("LoadBalancer"))
}

/// What creating an object led to.
#[derive(Debug)]
pub(super) enum Created {
    /// It is new, and ours.
    New(Value),
    /// It was there, with our marks: to be written like any other.
    Ours,
    /// Nothing was done because something else is being written; to be tried again.
    Busy(ApiError),
}

/// Creating failed.
#[derive(Debug)]
pub(super) enum ClaimError {
    /// It belongs to somebody else.
    Foreign(OwnershipError),
    /// The API server refused it.
    Refused(ApiError),
}

/// Creates the object by server-side apply, and only if it does not exist.
///
/// An apply that names a version is refused by every object that has another one; none has the
/// first, which etcd gives to nothing. One that does not exist is created whatever is named.
///
/// # Cancellation
/// Created or not, it carries the owner's marks.
pub(super) async fn create(
    cluster: &Cluster,
    owner: &Owner,
    object: &Object,
) -> Result<Created, ClaimError> {
    let mut body = object.body.clone();
    body["metadata"]["resourceVersion"] = json!("1");
    let refused = match cluster.apply(object, &body, false).await {
        Ok(live) => return Ok(Created::New(live)),
        Err(error) if error.is_conflict() || error.is_forbidden() => error,
        Err(error) => return Err(ClaimError::Refused(error)),
    };
    match cluster.get_metadata(object).await {
        // It may be read: an admission or a quota refused it, or there is no right to write it.
        Ok(_) if refused.is_forbidden() => Err(ClaimError::Refused(refused)),
        Ok(Some(live)) => match owner.check(Claim::Marked, object, &live) {
            Ok(()) => Ok(Created::Ours),
            Err(foreign) => Err(ClaimError::Foreign(foreign)),
        },
        Ok(None) => Ok(Created::Busy(refused)),
        Err(source) => Err(ClaimError::Foreign(OwnershipError::Unknown {
            object: object.describe_for_people(),
            source,
        })),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use objects::Resource;

    fn object(group: &str, kind: &str, body: Value) -> Object {
        Object {
            resource: Arc::new(Resource {
                group: group.to_owned(),
                version: "v1".to_owned(),
                kind: kind.to_owned(),
                plural: kind.to_lowercase() + "s",
                namespaced: true,
            }),
            namespace: Some("ns".to_owned()),
            name: "a".to_owned(),
            body,
        }
    }

    #[test]
    fn only_what_leaves_no_trace_is_tried_out() {
        let map = || object("", "ConfigMap", json!({}));
        let service = |kind| object("", "Service", json!({"spec": {"type": kind}}));
        let deployment = || object("apps", "Deployment", json!({}));
        assert_eq!(provable(&[]), 0);
        assert_eq!(provable(&[map(), service("ClusterIP"), deployment()]), 3);
        assert_eq!(provable(&[map(), deployment(), deployment()]), 1);
        assert_eq!(provable(&[map(), service("LoadBalancer"), deployment()]), 1);
        assert_eq!(
            provable(&[object("example.org", "ConfigMap", json!({})), map()]),
            0
        );
        let definition = object(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            json!({}),
        );
        assert_eq!(provable(&[map(), definition]), 0);
    }
}
