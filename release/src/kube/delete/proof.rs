//! Looking at an object before it is deleted: the proof that it may be, or why it stays.

use std::sync::Arc;

use jiff::Timestamp;
use objects::{Object, Resource};
use serde_json::Value;
use tokio::time::sleep;

use super::outcome::Removal;
use crate::kube::client::Cluster;
use crate::kube::error::ApiError;
use crate::kube::ownership::{Created, Deletable, Owner};
use crate::kube::tries::pause;
use crate::kube::version::WrittenObjects;
use crate::state::ownership::{ObjectState, Operation};

/// Objects of the release's own that a deletion leaves.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spared<'a> {
    /// When the first attempt at the release began: an undo leaves what is older.
    pub(crate) since: Option<Timestamp>,
    /// What the same attempt has written.
    pub(crate) written: Option<&'a WrittenObjects>,
}

impl Spared<'_> {
    /// What an undo leaves of a release whose first attempt began at `since`.
    pub(crate) fn before(since: Option<Timestamp>) -> Self {
        Self {
            since,
            written: None,
        }
    }
}

/// Reads an object that an operation would delete: the proof that it may, or why it stays.
pub(super) async fn prove(
    cluster: &Cluster,
    owner: &Owner,
    spared: Spared<'_>,
    (object, operation): (&Object, Operation),
    instance: Option<&Created>,
) -> Result<Result<Deletable, Removal>, ApiError> {
    if object.name.is_empty() {
        return Ok(Err(Removal::Absent)); // A generated name is not in the manifest.
    }
    if operation == Operation::Undo && (object.is_namespace() || object.is_crd()) {
        // An attempt made it; what is in it by now others may have made.
        let (release, object) = (&owner.name, object.describe());
        logging::info!(release, object, "others may be in it, left");
        return Ok(Err(Removal::Kept));
    }
    let Some((live, read_as)) = read_to_delete(cluster, object).await? else {
        return Ok(Err(Removal::Absent));
    };
    let observed = owner.observe(&live);
    if instance.is_some_and(|created| !observed.is_instance(created)) {
        return Ok(Err(Removal::NotOwned));
    }
    if spared
        .written
        .is_some_and(|all| all.has(observed.version()))
    {
        return Ok(Err(Removal::Written));
    }
    let proof = observed.deletable(operation, spared.since);
    Ok(proof.map(|proof| proof.read_as(read_as)).map_err(left))
}

/// Reads an object that may be deleted. What was listed when its manifest was read may be gone with its definition by now; whether it is, is asked for
/// longer than an answer about that is remembered. Of anything else that is not served nobody knows. With it comes the version in which it was read, if
/// not the one that was asked for.
pub(super) async fn read_to_delete(
    cluster: &Cluster,
    object: &Object,
) -> Result<Option<(Value, Option<Arc<Resource>>)>, ApiError> {
    const TRIES: u32 = 8;
    let mut tries = 1;
    loop {
        match cluster.get_metadata(object).await {
            Err(ApiError::NotServed(kind)) => {
                if cluster.has_gone(&kind).await? {
                    return Ok(None);
                }
                if tries == TRIES {
                    return Err(ApiError::NotServed(kind));
                }
            }
            Err(failed) if failed.is_unconverted() => {
                return read_unconverted(cluster, object, failed).await;
            }
            found => return Ok(found?.map(|live| (live, None))),
        }
        sleep(pause(tries)).await;
        tries += 1;
    }
}

/// Reads an object in the other versions of its kind: of the one in which it is stored nobody has to convert it. The webhook may be gone with the release.
async fn read_unconverted(
    cluster: &Cluster,
    object: &Object,
    failed: ApiError,
) -> Result<Option<(Value, Option<Arc<Resource>>)>, ApiError> {
    let Ok(discovery) = cluster.discovery().await else {
        return Err(failed);
    };
    let mut others = discovery.all_versions(&object.resource.group_kind());
    // The same object: another kind of this name may be served at another address.
    others.retain(|one| {
        let Resource {
            plural, namespaced, ..
        } = &*object.resource;
        let is_it = one.plural == *plural && one.namespaced == *namespaced;
        is_it && one.version != object.resource.version
    });
    for resource in others {
        match cluster.get_metadata_as(object, &resource).await {
            Ok(Some(live)) => return Ok(Some((live, Some(resource)))),
            // It was there to be converted, so whoever has none has others.
            Ok(None) => {}
            Err(error) if error.is_unconverted() || error.is_unserved() => {}
            Err(error) => return Err(error),
        }
    }
    Err(failed)
}

/// The result for an object that was left.
pub(super) fn left(state: ObjectState) -> Removal {
    match state {
        ObjectState::KeepPolicy => Removal::Kept,
        ObjectState::AdoptedKept | ObjectState::AdoptedOwned | ObjectState::HandedOver => {
            Removal::Adopted
        }
        ObjectState::Leaving | ObjectState::Absent => Removal::Absent,
        _ => Removal::NotOwned,
    }
}
