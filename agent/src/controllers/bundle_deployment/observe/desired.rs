//! What a release wants: its objects, and their kinds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::api::ApiResource;
use objects::manifest::{Unserved, build_deployed, documents};
use objects::{BuildError, GroupKind, Object, ObjectKey, Resource};
use release::kube::{ApiError, Cluster};
use release::model::Release;

/// A release cannot be turned into objects.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    #[error(transparent)]
    Discovery(#[from] release::kube::ApiError),
    #[error("failed to discover client for the release's objects")]
    Build(#[from] BuildError),
}

/// The objects a release wants, and apart from them those whose definitions somebody has deleted, and all objects with them.
///
/// # Errors
/// The cluster cannot be asked what it serves, or does not serve a kind of which there may be objects, or that is Kubernetes' own: Kubernetes
/// itself takes these away, and the bundle stays what it was, as Fleet has it.
pub async fn objects(
    cluster: &Cluster,
    release: &Release,
) -> Result<(Vec<Object>, Vec<Unserved>), ObjectsError> {
    let documents = documents(&release.manifest)?;
    let discovery = cluster.discovery_of(&documents, &[]).await?;
    let (mut objects, mut unserved) = build_deployed(documents, &release.namespace, &discovery)?;
    if !unserved.is_empty() {
        let kinds: BTreeSet<_> = unserved.iter().map(Unserved::group_kind).collect();
        let gone = match kinds.iter().any(GroupKind::is_kubernetes_own) {
            true => None,
            false => Some(cluster.prove_gone(&kinds).await),
        };
        match gone {
            Some(Ok(())) => {}
            None | Some(Err(ApiError::NotServed(_))) => {
                return Err(BuildError::no_matches(unserved).into());
            }
            Some(Err(failed)) => return Err(failed.into()),
        }
    }
    // Of a kind that nothing is known of any more: most have namespaces.
    let namespaces = unserved.iter_mut().map(|object| &mut object.namespace);
    for namespace in namespaces.filter(|namespace| namespace.is_empty()) {
        namespace.clone_from(&release.namespace);
    }
    // The API server names these: each apply makes another one, and nobody can tell which is meant.
    objects.retain(|object| !object.name.is_empty());
    unserved.retain(|object| !object.name.is_empty());
    // What is never written is no drift.
    objects
        .iter_mut()
        .for_each(|object| release::kube::unnote(&mut object.body));
    Ok((objects, unserved))
}

/// What tells a left over object from one that has copied our label: it was in the revision before, in whichever namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KindAndName {
    pub kind: String,
    pub name: String,
}

impl KindAndName {
    pub fn of(key: &ObjectKey) -> Self {
        Self {
            kind: key.kind.clone(),
            name: key.name.clone(),
        }
    }
}

/// Whether a record asks to keep an object that its release lets go of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    No,
    Yes,
}

/// Objects of the revision before.
pub type FormerObjects = BTreeMap<KindAndName, Kept>;

/// Wanted objects by kind, kinds in order of first appearance, objects by namespace and name.
pub(super) fn by_kind(desired: &[Object]) -> Vec<(Arc<Resource>, Vec<&Object>)> {
    let mut kinds: Vec<(Arc<Resource>, Vec<&Object>)> = Vec::new();
    for object in desired {
        match kinds
            .iter_mut()
            .find(|(resource, _)| *resource == object.resource)
        {
            Some((_, objects)) => objects.push(object),
            None => kinds.push((Arc::clone(&object.resource), vec![object])),
        }
    }
    for (_, objects) in &mut kinds {
        objects.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    }
    kinds
}

/// The kinds of a manifest, for watching.
pub fn kinds(desired: &[Object]) -> Vec<ApiResource> {
    by_kind(desired)
        .into_iter()
        .map(|(resource, _)| api_resource(&resource))
        .collect()
}

fn api_resource(resource: &Resource) -> ApiResource {
    ApiResource {
        group: resource.group.clone(),
        version: resource.version.clone(),
        api_version: resource.api_version(),
        kind: resource.kind.clone(),
        plural: resource.plural.clone(),
    }
}
