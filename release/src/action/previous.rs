//! The objects that earlier revisions put into the cluster: those of the last good one, and of later ones
//! that failed.

use std::collections::{BTreeMap, HashSet};

use objects::manifest::build_stored;
use objects::{Discovery, Object, ObjectKey};
use serde_json::Value;

use super::deploy::read_if_possible;
use super::error::DeployError;
use crate::kube::Cluster;
use crate::model::{Release, Status};
use crate::state::Action;
use crate::storage::{Storage, StoredRevision};

/// The objects that earlier revisions put into the cluster.
#[derive(Debug, Default)]
pub(super) struct PreviousObjects {
    /// Those of the last good revision, as its manifest has them.
    pub(super) good: BTreeMap<ObjectKey, Value>,
    /// Those of later revisions that failed, with the revision, for deletion only.
    others: Vec<(i64, Object)>,
    /// Those of the last good revision once more, in the order of its manifest.
    objects: Vec<Object>,
}

impl PreviousObjects {
    /// The objects of `good` and, for deletion only, of `others`.
    pub(super) fn new(good: Option<&Release>, others: &[Release], discovery: &Discovery) -> Self {
        let objects_of = |release: &Release| stored_objects(release, discovery);
        let objects = good.map(objects_of).unwrap_or_default();
        let good = objects
            .iter()
            .map(|object| (object.key(), object.body.clone()))
            .collect();
        let with_revision = |release: &Release| {
            let revision = release.revision;
            objects_of(release)
                .into_iter()
                .map(move |object| (revision, object))
        };
        Self {
            good,
            others: others.iter().flat_map(with_revision).collect(),
            objects,
        }
    }

    /// Whether the last good revision had this object, so that its owner needs no check.
    pub(super) fn had(&self, object: &Object) -> bool {
        self.good.contains_key(&object.key())
    }

    /// Objects of earlier revisions that are not desired any more, each once: to be deleted.
    pub(super) fn obsolete(&self, desired: &[Object]) -> Vec<Object> {
        let mut seen: HashSet<ObjectKey> = desired.iter().map(Object::key).collect();
        let others = self.others.iter().map(|(_, object)| object);
        self.objects
            .iter()
            .chain(others)
            .filter(|object| seen.insert(object.key()))
            .cloned()
            .collect()
    }

    /// Objects that only the record of a failed `revision` knows: neither the last good one nor `desired`
    /// has them. They are deleted before that record is.
    pub(super) fn orphans(&self, revision: i64, desired: &[Object]) -> Vec<Object> {
        let mut known: HashSet<ObjectKey> = desired.iter().map(Object::key).collect();
        known.extend(self.good.keys().cloned());
        let others = self.others.iter().filter(|(of, _)| *of == revision);
        others
            .filter(|(_, object)| !known.contains(&object.key()))
            .map(|(_, object)| object.clone())
            .collect()
    }
}

/// The objects of a stored revision, as far as the cluster knows their kinds.
pub(super) fn stored_objects(release: &Release, discovery: &Discovery) -> Vec<Object> {
    let built = build_stored(&release.manifest, &release.namespace, discovery);
    built.unwrap_or_else(|error| {
        // It was applied once, so this is damage; what it had can only be left alone.
        tracing::warn!(release = release.name, revision = release.revision, %error, "unreadable manifest");
        Vec::new()
    })
}

/// Reads the records whose objects may be in the cluster. Later revisions that failed may have created
/// objects too.
pub(super) async fn read_previous(
    cluster: &Cluster,
    storage: &Storage,
    history: &[StoredRevision],
    action: Action,
    from: Option<&Release>,
    name: &str,
) -> Result<PreviousObjects, DeployError> {
    let good = action.from().unwrap_or_default();
    let mut others = Vec::new();
    for head in history {
        let is_later = head.revision > good && head.revision != action.revision();
        if is_later && !matches!(head.status, Status::Uninstalled | Status::Superseded) {
            others.extend(read_if_possible(storage, name, head.revision).await?);
        }
    }
    if from.is_none() && others.is_empty() {
        return Ok(PreviousObjects::default());
    }
    let discovery = cluster.discovery().await.map_err(DeployError::Discovery)?;
    Ok(PreviousObjects::new(from, &others, &discovery))
}
