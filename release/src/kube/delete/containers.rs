//! Namespaces and definitions, which take along what is in them: what stays of that, and which other releases are in them.

use std::collections::BTreeMap;

use futures_util::{FutureExt as _, StreamExt as _, stream};
use objects::Object;

use super::outcome::{DeleteError, Removal};
use super::proof::{Spared, prove};
use crate::kube::client::Cluster;
use crate::kube::error::ApiError;
use crate::kube::ownership::Owner;
use crate::kube::transport::PARALLEL;
use crate::others::{Container, ContainerUsage, OtherReleases};
use crate::state::ownership::Operation;

/// Whether a namespace or definition that may be deleted has releases in it that are about to go.
///
/// # Errors
/// The object cannot be read.
pub(crate) async fn is_deferred(
    cluster: &Cluster,
    owner: &Owner,
    other_releases: &OtherReleases,
    container: &Object,
    operation: Operation,
) -> Result<bool, DeleteError> {
    if usage(container, other_releases) != ContainerUsage::Draining {
        return Ok(false);
    }
    let proof = prove(
        cluster,
        owner,
        Spared::default(),
        (container, operation),
        None,
    )
    .await;
    let proof = proof.map_err(|error| DeleteError::unseen(container, error))?;
    Ok(proof.is_ok())
}

/// Those of `objects` that stay where what contains them goes not: an operation would leave them, as they ask to be kept or were there before the
/// release, or, without an operation, a record asks to keep them and they are there. All are read before anything is deleted.
pub(crate) async fn find_kept<'o>(
    cluster: &Cluster,
    owner: &Owner,
    spared: Spared<'_>,
    objects: &[(&'o Object, Option<Operation>)],
) -> Contents<'o> {
    let looks: Vec<_> = objects
        .iter()
        .map(|(object, operation)| {
            let reached = (*object, operation.unwrap_or(Operation::Drop));
            prove(cluster, owner, spared, reached, None).boxed()
        })
        .collect();
    let proofs: Vec<_> = stream::iter(looks).buffered(PARALLEL).collect().await;
    note_unconverted(cluster, objects, &proofs);
    let mut found = Contents::default();
    for ((object, operation), proof) in objects.iter().zip(proofs) {
        match (proof, operation) {
            (Ok(Err(Removal::Absent)), _) => {}
            (Ok(Err(Removal::Adopted)), Some(_)) if is_made_with_namespace(object) => {}
            (Ok(Err(Removal::Kept | Removal::Adopted)), _) | (Ok(_), None) => {
                found.kept.push(*object);
            }
            (Ok(_), Some(_)) => found.going.push(*object),
            (Err(source), _) => {
                let definition = object.resource.definition_name();
                let is_unconverted = source.is_unconverted();
                found.unseen.push(Unseen {
                    object,
                    is_asked_for: operation.is_none(),
                    is_unconverted,
                    is_lasting: is_unconverted && cluster.unconverted().is_lasting(&definition),
                    failure: DeleteError::unseen(object, source),
                });
            }
        }
    }
    found
}

/// Takes note of the definitions whose objects were read, or of which some cannot be converted.
fn note_unconverted<P>(
    cluster: &Cluster,
    objects: &[(&Object, Option<Operation>)],
    proofs: &[Result<P, ApiError>],
) {
    let mut tried: BTreeMap<String, bool> = BTreeMap::new();
    for ((object, _), proof) in objects.iter().zip(proofs) {
        let failed = proof.as_ref().err();
        // Any other failure says nothing of the webhook.
        if failed.is_none_or(ApiError::is_unconverted) {
            let has_failed = tried.entry(object.resource.definition_name()).or_default();
            *has_failed |= failed.is_some();
        }
    }
    for (definition, has_failed) in tried {
        cluster.unconverted().note(&definition, has_failed);
    }
}

/// What is in containers that are about to go.
#[derive(Default)]
pub(crate) struct Contents<'o> {
    /// Nothing says that it stays.
    pub(crate) going: Vec<&'o Object>,
    /// It stays: by what it says itself, or as a record asks for that.
    pub(crate) kept: Vec<&'o Object>,
    pub(crate) unseen: Vec<Unseen<'o>>,
}

/// Something in a container that cannot be read.
pub(crate) struct Unseen<'o> {
    pub(crate) object: &'o Object,
    /// Whether a record asks to keep it.
    pub(crate) is_asked_for: bool,
    /// Whether the webhook failed that converts it to the version which was asked for, and has for so long that it counts as gone.
    pub(crate) is_unconverted: bool,
    pub(crate) is_lasting: bool,
    pub(crate) failure: DeleteError,
}

/// Whether Kubernetes makes the object with its namespace: that it was there before the release says nothing.
fn is_made_with_namespace(object: &Object) -> bool {
    let kind = (
        object.resource.group.as_str(),
        object.resource.kind.as_str(),
    );
    let made = [
        (("", "ServiceAccount"), "default"),
        (("", "ConfigMap"), "kube-root-ca.crt"),
    ];
    made.contains(&(kind, object.name.as_str()))
}

/// Other releases in an object that is about to be deleted.
pub(super) fn usage(object: &Object, other_releases: &OtherReleases) -> ContainerUsage {
    match Container::of(object) {
        Some(container) => other_releases.of(container),
        None => ContainerUsage::Unused,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use objects::Resource;
    use serde_json::Value;

    use super::*;

    #[test]
    fn only_deleting_a_namespace_or_definition_asks_for_other_releases_in_it() {
        let object = |group: &str, kind: &str, name: &str| Object {
            resource: Arc::new(Resource {
                group: group.to_owned(),
                version: "v1".to_owned(),
                kind: kind.to_owned(),
                plural: kind.to_lowercase() + "s",
                namespaced: kind == "ConfigMap",
            }),
            namespace: None,
            name: name.to_owned(),
            body: Value::Null,
        };
        let other_releases = OtherReleases::new(|container| match container {
            Container::Namespace("team") | Container::Definition("cars.x.io") => {
                ContainerUsage::InUse
            }
            Container::Namespace("old") | Container::Definition("boats.x.io") => {
                ContainerUsage::Draining
            }
            _ => ContainerUsage::Unused,
        });
        let namespace = |name| object("", "Namespace", name);
        let definition = |name| object("apiextensions.k8s.io", "CustomResourceDefinition", name);
        let of = |object: &Object| usage(object, &other_releases);
        assert_eq!(of(&namespace("team")), ContainerUsage::InUse);
        assert_eq!(of(&namespace("old")), ContainerUsage::Draining);
        assert_eq!(of(&namespace("other")), ContainerUsage::Unused);
        assert_eq!(of(&definition("cars.x.io")), ContainerUsage::InUse);
        assert_eq!(of(&definition("boats.x.io")), ContainerUsage::Draining);
        assert_eq!(of(&definition("planes.x.io")), ContainerUsage::Unused);
        assert_eq!(of(&object("", "ConfigMap", "team")), ContainerUsage::Unused);
        assert_eq!(
            usage(&namespace("team"), &OtherReleases::default()),
            ContainerUsage::Unused
        );
    }
}
