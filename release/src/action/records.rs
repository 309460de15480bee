//! Reading what earlier revisions recorded, as far as it can be read and was written here.

use objects::manifest::{StoredObjects, build_stored};
use objects::{Discovery, Object};

use super::error::DeployError;
use super::spec::Writer;
use super::unquoted::error_unquoted;
use crate::kube::Cluster;
use crate::model::{Release, Status};
use crate::storage::{Origin, Storage, StorageError, StoredRelease, StoredRevision};

/// Reads one revision; none if it is gone, cannot be decoded, or is not what was written.
pub(super) async fn read_if_possible(
    storage: &Storage,
    name: &str,
    revision: i64,
) -> Result<Option<StoredRelease>, StorageError> {
    match storage.get(name, revision).await {
        Ok(release) => Ok(Some(release)),
        Err(StorageError::NotFound) => Ok(None),
        Err(error @ (StorageError::Decode { .. } | StorageError::Unproven { .. })) => {
            logging::warn!(
                name,
                revision,
                error = error_unquoted(&error),
                "unreadable record"
            );
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The objects of a stored revision, as far as the cluster lists their kinds.
pub(super) fn listed_objects(release: &Release, discovery: &Discovery) -> StoredObjects {
    let built = build_stored(&release.manifest, &release.namespace, discovery);
    built.unwrap_or_else(|error| {
        // It was applied once, so this is damage; what it had can only be left alone.
        let error = error_unquoted(&error);
        logging::warn!(
            release = release.name,
            revision = release.revision,
            error,
            "unreadable manifest"
        );
        StoredObjects::default()
    })
}

/// The objects of a stored revision. A kind that is gone for good has none.
///
/// # Errors
/// A kind is not served at this moment, so that nobody knows what there is of it.
pub(super) async fn stored_objects(
    cluster: &Cluster,
    release: &Release,
) -> Result<Vec<Object>, DeployError> {
    let listed = |discovery: &Discovery| listed_objects(release, discovery);
    cluster
        .stored_objects(listed)
        .await
        .map_err(DeployError::Discovery)
}

/// Whether the newest record was written by an agent for this caller's bundles; takes that into the history.
pub(super) async fn is_agents(
    storage: &Storage,
    name: &str,
    writer: &Writer,
    history: &mut [StoredRevision],
) -> bool {
    let Some(newest) = history.iter_mut().max_by_key(|head| head.revision) else {
        return false;
    };
    let record = storage.get_unverified(name, newest.revision).await;
    let is_agents = record.is_ok_and(|record| writer.wrote(&record));
    if is_agents {
        newest.origin = Origin::Agent;
    }
    is_agents
}

/// The last revision below another one that was written here and was good, as its record says, whatever its label does.
pub(super) async fn last_good(
    storage: &Storage,
    history: &[StoredRevision],
    name: &str,
    below: i64,
) -> Result<Option<StoredRelease>, StorageError> {
    let own = history
        .iter()
        .filter(|head| head.origin == Origin::Noted && head.revision < below);
    let mut own: Vec<i64> = own.map(|head| head.revision).collect();
    own.sort_unstable();
    for revision in own.into_iter().rev() {
        let release = read_if_possible(storage, name, revision).await?;
        let release = release.filter(|release| storage.proves(name, revision, release));
        if release.as_deref().is_some_and(was_good) {
            return Ok(release);
        }
    }
    Ok(None)
}

/// Whether a revision was deployed once, and superseded or removed since.
pub(super) fn was_good(release: &Release) -> bool {
    let before = match release.status() {
        Status::Uninstalling => release.status_before_removal(),
        status => Some(status),
    };
    let is_good = |status: &Status| {
        matches!(
            status,
            Status::Deployed | Status::Superseded | Status::Uninstalled | Status::Uninstalling
        )
    };
    before.as_ref().is_none_or(is_good)
}
