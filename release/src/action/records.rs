//! What actions do with the records of other revisions: reading and superseding them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::model::{Release, Status};
use crate::storage::{Storage, StorageError, StoredRevision};

/// Reads one revision; none if it is gone, cannot be decoded, or is not what was written.
pub(super) async fn read_if_possible(
    storage: &Storage,
    name: &str,
    revision: i64,
) -> Result<Option<Release>, StorageError> {
    match storage.get(name, revision).await {
        Ok(release) => Ok(Some(release)),
        Err(StorageError::NotFound) => Ok(None),
        Err(error @ (StorageError::Decode { .. } | StorageError::Unproven { .. })) => {
            tracing::warn!(
                name,
                revision,
                error = crate::error::error_chain(&error),
                "unreadable record"
            );
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Those of `revisions` that can be read and whose objects may still be in the cluster. What was `read`
/// before is not read again.
pub(super) async fn read_unfinished<'r>(
    storage: &Storage,
    name: &str,
    revisions: impl Iterator<Item = &StoredRevision>,
    read: Option<&'r Release>,
) -> Result<Vec<Cow<'r, Release>>, StorageError> {
    let mut unfinished = Vec::new();
    for StoredRevision {
        revision, status, ..
    } in revisions
    {
        if matches!(status, Status::Superseded | Status::Uninstalled) {
            continue;
        }
        match read.filter(|read| read.revision == *revision) {
            Some(read) => unfinished.push(Cow::Borrowed(read)),
            None => {
                let release = read_if_possible(storage, name, *revision).await?;
                unfinished.extend(release.map(Cow::Owned));
            }
        }
    }
    Ok(unfinished)
}

/// Closes every other record: a deployed one is superseded now, one that was cut off has failed, and
/// a removal that gave way is over. A failure is only logged: the next deployment comes here again,
/// and readers take the newest deployed one. What of them was `read` before is not read again.
pub(super) async fn supersede(
    storage: &Storage,
    history: &[StoredRevision],
    newest: &Release,
    mut read: BTreeMap<i64, Release>,
) {
    let others = history
        .iter()
        .filter(|head| head.revision != newest.revision);
    for (head, closed) in others.filter_map(|head| Some((head, closed(&head.status)?))) {
        let old = match read.remove(&head.revision) {
            Some(old) => Ok(old),
            None => storage.get_unverified(&newest.name, head.revision).await,
        };
        let result = match old {
            Ok(mut old) => {
                if let Some(info) = &mut old.info {
                    info.status = closed;
                }
                storage.update(&old).await
            }
            Err(error) => Err(error),
        };
        match result {
            // Pruned, by us or by somebody else.
            Ok(()) | Err(StorageError::NotFound) => {}
            Err(error) => {
                let error = crate::error::error_chain(&error);
                tracing::warn!(
                    release = newest.name,
                    revision = head.revision,
                    error,
                    "cannot close the record of an earlier revision"
                );
            }
        }
    }
}

/// What a record says of itself once a later revision is deployed; none if it says so already.
fn closed(status: &Status) -> Option<Status> {
    match status {
        Status::Deployed => Some(Status::Superseded),
        Status::Uninstalling => Some(Status::Uninstalled),
        status if status.is_pending() => Some(Status::Failed),
        _ => None,
    }
}
