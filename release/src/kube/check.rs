//! Finds out to whom an object belongs: by a read before anything is written, or by creating it.
//!
//! Before a first install the owner of every object is checked, because one that exists already may be
//! somebody else's. Creating it only if it does not exist, and being refused, proves the same in one
//! request, and nobody can create it in between. This serves only where a creation can be undone
//! without trace: [`creatable_unchecked`] says for which objects of a manifest. The others are checked
//! first.

use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use objects::Object;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::client::Cluster;
use super::error::ApiError;
use super::ownership::OwnershipError;
use super::transport::{PARALLEL, found_to_write};
use super::tries::pause;
use super::version::Version;

/// Reads those of `objects` that exist and are written next. Nothing is changed. Of a kind that is not served yet there is none.
///
/// # Errors
/// The first object, in manifest order, that cannot be read.
pub(crate) async fn observe_all<'o>(
    cluster: &Cluster,
    objects: &[&'o Object],
) -> Result<Vec<(&'o Object, Option<Value>)>, OwnershipError> {
    observe_all_until(cluster, objects, Instant::now()).await
}

/// Reads `objects` as [`observe_all`] does, and tries those it may not read now again until `deadline`.
///
/// # Errors
/// As [`observe_all`].
pub(crate) async fn observe_all_until<'o>(
    cluster: &Cluster,
    objects: &[&'o Object],
    deadline: Instant,
) -> Result<Vec<(&'o Object, Option<Value>)>, OwnershipError> {
    let checks: Vec<_> = objects
        .iter()
        .filter(|object| !object.name.is_empty())
        .map(|object| observe_one(cluster, object, deadline).boxed())
        .collect();
    stream::iter(checks).buffered(PARALLEL).try_collect().await
}

/// Reads those of `objects` that exist, without anything being written that would meet what was not seen.
///
/// # Errors
/// As [`observe_all`]; also where a kind is not served ([`ApiError::NotServed`]).
pub(crate) async fn find_all<'o>(
    cluster: &Cluster,
    objects: &[&'o Object],
) -> Result<Vec<(&'o Object, Value)>, OwnershipError> {
    let read = async |object: &'o Object| match cluster.get_metadata(object).await {
        Ok(found) => Ok(found.map(|live| (object, live))),
        Err(source) => {
            let object = object.describe_for_people();
            Err(OwnershipError::Unknown { object, source })
        }
    };
    let named = objects.iter().filter(|object| !object.name.is_empty());
    let reads: Vec<_> = named.map(|object| read(object).boxed()).collect();
    let found: Vec<_> = stream::iter(reads).buffered(PARALLEL).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}

async fn observe_one<'o>(
    cluster: &Cluster,
    object: &'o Object,
    deadline: Instant,
) -> Result<(&'o Object, Option<Value>), OwnershipError> {
    let mut tries = 1;
    loop {
        let source = match found_to_write(cluster.get_metadata(object).await) {
            Ok(found) => return Ok((object, found)),
            Err(source) => source,
        };
        // Rights are made anew, and tokens.
        let is_passing = source.is_retryable() || matches!(source.code(), Some(401 | 403));
        if !is_passing || Instant::now() + pause(tries) >= deadline {
            let object = object.describe_for_people();
            return Err(OwnershipError::Unknown { object, source });
        }
        sleep(pause(tries)).await;
        tries += 1;
    }
}

/// Kinds of the core and the RBAC group that start nothing and provide nothing to others.
#[rustfmt::skip]
const INERT: [&str; 8] = [
    "ServiceAccount", "Secret", "ConfigMap", "Service", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
];

/// How many of `objects`, from the first, need no check before they are created in this order:
/// everything that is inert, and whatever comes last of all.
pub(crate) fn creatable_unchecked(objects: &[Object]) -> usize {
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

/// Result of creating an object.
#[derive(Debug)]
pub(super) enum Creation {
    /// The object is new, and ours.
    New(Value),
    /// An object of this name exists already.
    Found(Value),
    /// Nothing was done because something else is being written; to be tried again.
    Busy(ApiError),
}

/// Creates the object by server-side apply, and only if it does not exist.
///
/// An apply that names a version is refused by every object that has another one. One that does not exist is
/// created whatever is named.
///
/// # Errors
/// The API server refused it, or the existing object cannot be read.
///
/// # Cancellation
/// Created or not, it carries the owner's marks.
pub(super) async fn create_new(
    cluster: &Cluster,
    object: &Object,
) -> Result<Creation, CreateError> {
    let mut body = object.body.clone();
    body["metadata"]["resourceVersion"] = json!(Version::OF_NOTHING);
    let text = golib::json::encode(&body);
    drop(body);
    let refused = match cluster.apply(object, text, false).await {
        Ok(live) => return Ok(Creation::New(live)),
        Err(error) if error.is_conflict() || error.is_forbidden() => error,
        Err(error) => return Err(CreateError::Refused(error)),
    };
    match found_to_write(cluster.get_metadata(object).await) {
        // The object may be read: an admission or a quota refused it, or there is no right to write it.
        Ok(_) if refused.is_forbidden() => Err(CreateError::Refused(refused)),
        Ok(Some(live)) => Ok(Creation::Found(live)),
        Ok(None) => Ok(Creation::Busy(refused)),
        Err(source) => Err(CreateError::Unknown(OwnershipError::Unknown {
            object: object.describe_for_people(),
            source,
        })),
    }
}

/// Creating failed.
#[derive(Debug)]
pub(super) enum CreateError {
    /// The existing object cannot be read.
    Unknown(OwnershipError),
    /// The API server refused the object.
    Refused(ApiError),
}

#[cfg(test)]
mod tests {
    use super::super::fixture::object;
    use super::*;

    #[test]
    fn only_objects_that_can_be_undone_are_created_unchecked() {
        let map = || object("", "ConfigMap", json!({}));
        let service = |kind| object("", "Service", json!({"spec": {"type": kind}}));
        let deployment = || object("apps", "Deployment", json!({}));
        assert_eq!(creatable_unchecked(&[]), 0);
        assert_eq!(
            creatable_unchecked(&[map(), service("ClusterIP"), deployment()]),
            3
        );
        assert_eq!(creatable_unchecked(&[map(), deployment(), deployment()]), 1);
        assert_eq!(
            creatable_unchecked(&[map(), service("LoadBalancer"), deployment()]),
            1
        );
        assert_eq!(
            creatable_unchecked(&[object("example.org", "ConfigMap", json!({})), map()]),
            0
        );
        let definition = object(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            json!({}),
        );
        assert_eq!(creatable_unchecked(&[map(), definition]), 0);
    }
}
