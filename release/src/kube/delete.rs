//! Deleting what a release no longer has, and only what is provably its own.
//!
//! An object that vanished from the manifest, or whose release is uninstalled, is looked at first:
//! it must carry the release's marks and must not ask to be kept. The deletion names the uid that
//! was looked at, so an object recreated by somebody else in between survives.

use chart::manifest::HOOK_ANNOTATION;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use objects::Object;
use serde_json::Value;

use super::client::Cluster;
use super::error::ApiError;
use super::ownership::{Owner, is_kept};
use super::transport::PARALLEL;

/// What became of one object that was to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// It was deleted.
    Deleted,
    /// It was gone already.
    Absent,
    /// It asks to be kept.
    Kept,
    /// It is not this release's.
    NotOwned,
}

/// What became of each object.
#[derive(Debug, Default)]
pub struct Removed {
    /// In the order of the objects given.
    pub objects: Vec<(Object, Removal)>,
}

impl Removed {
    /// The objects with this fate.
    pub fn with(&self, removal: Removal) -> impl Iterator<Item = &Object> {
        self.objects
            .iter()
            .filter(move |(_, fate)| *fate == removal)
            .map(|(object, _)| object)
    }
}

/// An object could not be deleted. The text is Helm's.
#[derive(Debug, thiserror::Error)]
#[error("failed to delete resource namespace={namespace}, name={name}, kind={kind}")]
pub struct DeleteError {
    namespace: String,
    name: String,
    kind: String,
    source: ApiError,
}

impl DeleteError {
    /// Whether trying again can help without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        self.source.is_retryable()
    }

    /// The API server's reason.
    pub fn reason(&self) -> &str {
        self.source.reason()
    }

    fn new(object: &Object, source: ApiError) -> Self {
        Self {
            namespace: object.namespace.clone().unwrap_or_default(),
            name: object.name.clone(),
            kind: object.resource.kind.clone(),
            source,
        }
    }
}

/// Deletes those of `objects` that are `owner`'s, kind by kind in the given order. All are tried.
///
/// # Errors
/// What could not be deleted.
///
/// # Cancellation
/// What was deleted stays so; asking again is safe.
pub(crate) async fn delete_all(
    cluster: &Cluster,
    owner: &Owner,
    objects: Vec<Object>,
) -> Result<Removed, Vec<DeleteError>> {
    let mut removed = Removed::default();
    let mut failures = Vec::new();
    for kind in objects.chunk_by(|a, b| a.resource.kind == b.resource.kind) {
        let deletions: Vec<_> = kind
            .iter()
            .map(|object| delete_owned(cluster, owner, object).boxed())
            .collect();
        let fates: Vec<_> = stream::iter(deletions).buffered(PARALLEL).collect().await;
        for (object, fate) in kind.iter().zip(fates) {
            match fate {
                Ok(fate) => removed.objects.push((object.clone(), fate)),
                Err(source) => failures.push(DeleteError::new(object, source)),
            }
        }
    }
    if failures.is_empty() {
        Ok(removed)
    } else {
        Err(failures)
    }
}

async fn delete_owned(
    cluster: &Cluster,
    owner: &Owner,
    object: &Object,
) -> Result<Removal, ApiError> {
    if object.name.is_empty() {
        return Ok(Removal::Absent); // A generated name is not in the manifest.
    }
    let Some(live) = cluster.get_metadata(object).await? else {
        return Ok(Removal::Absent);
    };
    if is_kept(&live) {
        return Ok(Removal::Kept);
    }
    if !owner.owns(&live) {
        return Ok(Removal::NotOwned);
    }
    match delete_instance(cluster, object, &live).await {
        // The uid does not match any more: what is there now is somebody else's.
        Err(error) if error.is_conflict() => Ok(Removal::NotOwned),
        result => result,
    }
}

/// Deletes the instance of an object that was read, and no other.
async fn delete_instance(
    cluster: &Cluster,
    object: &Object,
    live: &Value,
) -> Result<Removal, ApiError> {
    let uid = live.pointer("/metadata/uid").and_then(Value::as_str);
    match cluster.delete(object, uid).await {
        Ok(()) => Ok(Removal::Deleted),
        Err(error) if error.is_not_found() => Ok(Removal::Absent),
        Err(error) => Err(error),
    }
}

/// Whether an object that has a hook's name is not that hook, nor an earlier one's.
fn is_anothers(owner: &Owner, live: &Value) -> bool {
    let annotations = live.pointer("/metadata/annotations");
    let is_hook = annotations.is_some_and(|all| all.get(HOOK_ANNOTATION).is_some());
    let is_foreign = Owner::of(live).is_some_and(|marked| marked != *owner);
    is_foreign || !(is_hook || owner.owns(live))
}

/// Looks whether a hook would be written over something else, which its end would then delete.
pub(crate) async fn is_name_taken(
    cluster: &Cluster,
    owner: &Owner,
    object: &Object,
) -> Result<bool, ApiError> {
    if object.name.is_empty() {
        return Ok(false);
    }
    let live = cluster.get_metadata(object).await?;
    Ok(live.is_some_and(|live| is_anothers(owner, &live)))
}

/// Deletes a hook's object. Hooks carry no marks of a release, but they say that they are hooks: what
/// does not, and what another release marked, is left alone. Helm deletes whatever has the name.
pub(crate) async fn delete_hook(
    cluster: &Cluster,
    owner: &Owner,
    object: &Object,
) -> Result<Removal, DeleteError> {
    if object.name.is_empty() {
        return Ok(Removal::Absent);
    }
    let failed = |error| DeleteError::new(object, error);
    let Some(live) = cluster.get_metadata(object).await.map_err(failed)? else {
        return Ok(Removal::Absent);
    };
    if is_anothers(owner, &live) {
        return Ok(Removal::NotOwned);
    }
    let deleted = delete_instance(cluster, object, &live).await;
    deleted.map_err(failed)
}
