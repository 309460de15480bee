//! What a release wants: its objects, and their kinds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::api::ApiResource;
use objects::manifest::{Unserved, build_deployed, documents};
use objects::{BuildError, Discovery, GroupKind, Object, ObjectKey, Resource};
use release::kube::{ApiError, Cluster};
use release::model::Release;

use crate::api::ModifiedStatus;
use crate::ledger::Containers;

/// A release cannot be turned into objects.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    #[error(transparent)]
    Discovery(#[from] release::kube::ApiError),
    #[error("failed to discover client for the release's objects")]
    Build(#[from] BuildError),
}

/// What a release wants.
pub struct Desired {
    pub objects: Vec<Object>,
    /// Objects whose definitions somebody has deleted, and all objects with them.
    pub unserved: Vec<Unserved>,
    /// What its objects are in, those of its hooks and those that the API server named with them.
    pub containers: Containers,
}

/// The objects a release wants.
///
/// # Errors
/// The cluster cannot be asked what it serves, or does not serve a kind of which there may be objects, or that is Kubernetes' own: Kubernetes
/// itself takes these away, and the bundle stays what it was, as Fleet has it.
pub async fn objects(cluster: &Cluster, release: &Release) -> Result<Desired, ObjectsError> {
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
    let containers = containers(release, &objects, &discovery);
    // The API server names these: each apply makes another one, and nobody can tell which is meant.
    objects.retain(|object| !object.name.is_empty());
    unserved.retain(|object| !object.name.is_empty());
    // What is never written is no drift.
    objects
        .iter_mut()
        .for_each(|object| release::kube::unnote(&mut object.body));
    Ok(Desired {
        objects,
        unserved,
        containers,
    })
}

/// What these objects of a release are in, and what its hooks make. Of a kind that is not served there are none.
fn containers(release: &Release, objects: &[Object], discovery: &Discovery) -> Containers {
    let own = &release.namespace;
    let mut all = Containers::of_objects(objects, own);
    for hook in &release.hooks {
        // What cannot be read was never made.
        let documents = documents(&hook.manifest).unwrap_or_default();
        if let Ok((made, _)) = build_deployed(documents, own, discovery) {
            all.extend(&Containers::of_objects(&made, own));
        }
    }
    all
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

/// What a status tells as left over, where nobody can read now which objects the revision before had: nothing says that any of it may be deleted.
pub fn told_as_left_over(told: &[ModifiedStatus]) -> FormerObjects {
    let extras = told.iter().filter(|entry| entry.extra);
    extras
        .map(|entry| (KindAndName::of(&entry.key()), Kept::Yes))
        .collect()
}

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

#[cfg(test)]
mod tests {
    use release::model::Hook;
    use serde_json::json;

    use super::*;

    /// Another agent deployed it.
    #[test]
    fn what_hooks_made_and_what_the_api_server_named_is_in_containers_too() {
        let mut discovery = Discovery::default();
        discovery.add_list(&json!({"groupVersion": "v1", "resources": [
            {"name": "configmaps", "kind": "ConfigMap", "namespaced": true},
        ]}));
        discovery.add_list(&json!({"groupVersion": "x.io/v1", "resources": [
            {"name": "cars", "kind": "Car", "namespaced": true},
        ]}));
        let hook = |manifest: &str| Hook {
            manifest: manifest.to_owned(),
            ..Hook::default()
        };
        let release = Release {
            namespace: "apps".to_owned(),
            hooks: vec![
                hook("{"),
                hook("{apiVersion: x.io/v1, kind: Car, metadata: {name: one}}"),
                hook("{apiVersion: y.io/v1, kind: Boat, metadata: {name: one}}"),
            ],
            ..Release::default()
        };
        let named =
            "{apiVersion: v1, kind: ConfigMap, metadata: {generateName: one-, namespace: team}}";
        let named = documents(named).unwrap();
        let (objects, _) = build_deployed(named, "apps", &discovery).unwrap();
        let all = containers(&release, &objects, &discovery);
        assert!(["team", "cars.x.io"].iter().all(|name| all.has(name)));
        // Of a kind that is not served there is nothing.
        assert!(["apps", "boats.y.io"].iter().all(|name| !all.has(name)));
    }
}
