//! Removing a release: hooks, objects that are provably its own, records.
//!
//! The record says `uninstalling` before the first object goes, and is the last thing to go, so that
//! a removal that was cut off is found and finished. Mirrors `pkg/action/uninstall.go`.

use chart::Time;
use chart::manifest::{UNINSTALL_ORDER, sort_by_kind};
use objects::manifest::build_stored;
use objects::{Object, ObjectKey};

use super::error::UninstallError;
use super::hooks::HookRun;
use super::{DEFAULT_TIMEOUT, UninstallSpec, Uninstalled};
use crate::kube::{Cluster, Owner, Removal, delete_all, stored_policy};
use crate::model::{HookEvent, Release, Status};
use crate::state::{UninstallPlan, plan_uninstall};
use crate::storage::{Storage, StorageError, StoredRevision};

/// Removes a release, or goes on removing it. One that does not exist is fine.
///
/// Objects are deleted in the background and not waited for. What asks to be kept, or does not carry
/// this release's marks, stays and is told.
///
/// # Errors
/// See [`UninstallError`]; calling again goes on.
///
/// # Cancellation
/// The release stays `uninstalling`; calling again goes on.
pub async fn uninstall(
    cluster: &Cluster,
    storage: &Storage,
    spec: &UninstallSpec,
) -> Result<Uninstalled, UninstallError> {
    let _lock = cluster.lock_release(&spec.namespace, &spec.name).await;
    uninstall_locked(cluster, storage, spec).await
}

/// [`uninstall`], for a caller that holds the release lock.
pub(super) async fn uninstall_locked(
    cluster: &Cluster,
    storage: &Storage,
    spec: &UninstallSpec,
) -> Result<Uninstalled, UninstallError> {
    let load = |source| UninstallError::Load {
        name: spec.name.clone(),
        source,
    };
    let history = storage.history(&spec.name).await.map_err(load)?;
    let mut done = Uninstalled {
        existed: !history.is_empty(),
        ..Uninstalled::default()
    };
    let was_cut_off = match plan_uninstall(&history, spec.keep_resources, spec.keep_history) {
        UninstallPlan::None | UninstallPlan::KeepRecords => return Ok(done),
        UninstallPlan::PurgeRecords => {
            purge(storage, &spec.name, &history).await?;
            return Ok(done);
        }
        UninstallPlan::Delete { is_resumed } => is_resumed,
    };
    let (newest, others) = load_all(storage, spec, &history).await.map_err(load)?;
    let (revision, mut release) = newest;
    // What is deleted must carry this release's marks, whatever a record says; hooks need not.
    let runs_hooks = !spec.disable_hooks && storage.proves(&spec.name, revision, &release);
    if !runs_hooks && !spec.disable_hooks {
        let release = &spec.name;
        tracing::warn!(
            release,
            revision,
            "not one that was written here: its hooks are not run"
        );
    }
    release.set_status(
        Status::Uninstalling,
        "Deletion in progress (or silently failed)",
    );
    let mut began = Time::utc(cluster.host().now());
    if let Some(info) = &mut release.info {
        if was_cut_off && !info.deleted.is_zero() {
            began = info.deleted;
        }
        info.deleted = began;
    }
    storage
        .update(&release)
        .await
        .map_err(UninstallError::Purge)?;
    let run = HookRun {
        cluster,
        storage,
        timeout: spec
            .timeout
            .filter(|limit| !limit.is_zero())
            .unwrap_or(DEFAULT_TIMEOUT),
        resumed: was_cut_off.then_some(began),
    };
    if runs_hooks {
        run.event(&mut release, HookEvent::PreDelete)
            .await
            .map_err(UninstallError::Hook)?;
    }
    delete_objects(cluster, spec, &release, &others, &mut done).await?;
    if runs_hooks {
        run.event(&mut release, HookEvent::PostDelete)
            .await
            .map_err(UninstallError::Hook)?;
    }
    if spec.keep_history {
        release.set_status(Status::Uninstalled, "Uninstallation complete");
        storage
            .update(&release)
            .await
            .map_err(UninstallError::Purge)?;
    } else {
        purge(storage, &spec.name, &history).await?;
    }
    Ok(done)
}

/// The newest record with its revision, and those others whose objects may be in the cluster. If the
/// newest cannot be read, the newest that can takes its place.
async fn load_all(
    storage: &Storage,
    spec: &UninstallSpec,
    history: &[StoredRevision],
) -> Result<((i64, Release), Vec<Release>), StorageError> {
    let mut readable = Vec::new();
    let mut unreadable = None;
    let gone = [Status::Superseded, Status::Uninstalled];
    for head in history.iter().rev() {
        if !readable.is_empty() && gone.contains(&head.status) {
            continue;
        }
        match storage.get_unverified(&spec.name, head.revision).await {
            Ok(release) => readable.push((head.revision, release)),
            Err(StorageError::NotFound) => unreadable = Some(head.revision),
            Err(error @ StorageError::Decode { .. }) => {
                let (name, error) = (&spec.name, crate::error::error_chain(&error));
                tracing::warn!(name, revision = head.revision, error, "unreadable record");
                unreadable = Some(head.revision);
            }
            Err(error) => return Err(error),
        }
    }
    if readable.is_empty() {
        // Every record is damaged: what they held cannot be known. Tell the newest one's damage.
        let revision = unreadable.unwrap_or_default();
        return Err(storage
            .get(&spec.name, revision)
            .await
            .err()
            .unwrap_or(StorageError::NotFound));
    }
    let newest = readable.remove(0);
    let others = readable.into_iter().map(|(_, release)| release).collect();
    Ok((newest, others))
}

async fn delete_objects(
    cluster: &Cluster,
    spec: &UninstallSpec,
    release: &Release,
    others: &[Release],
    done: &mut Uninstalled,
) -> Result<(), UninstallError> {
    let discovery = cluster
        .fresh_discovery()
        .await
        .map_err(UninstallError::Discovery)?;
    let mut objects: Vec<Object> = Vec::new();
    for (index, one) in std::iter::once(release).chain(others).enumerate() {
        match build_stored(&one.manifest, &spec.namespace, &discovery) {
            Ok(built) => {
                for object in built {
                    if !objects.iter().any(|known| known.key() == object.key()) {
                        objects.push(object);
                    }
                }
            }
            Err(source) if index == 0 => return Err(UninstallError::Corrupted(source)),
            Err(error) => tracing::warn!(release = spec.name, %error, "unreadable manifest"),
        }
    }
    let (kept, mut objects): (Vec<Object>, Vec<Object>) = objects
        .into_iter()
        .partition(|object| stored_policy(&object.body).is_some());
    let keep = |object: &&Object| stored_policy(&object.body).as_deref() == Some("keep");
    done.kept = kept.iter().filter(keep).map(Object::key).collect();
    sort_by_kind(&mut objects, UNINSTALL_ORDER, |object| {
        object.resource.kind.as_str()
    });
    let owner = Owner::new(&spec.name, &spec.namespace);
    let removed = delete_all(cluster, &owner, objects)
        .await
        .map_err(|failures| UninstallError::Delete {
            name: spec.name.clone(),
            failures,
        })?;
    let keys = |fate| -> Vec<ObjectKey> { removed.with(fate).map(Object::key).collect() };
    done.kept.extend(keys(Removal::Kept));
    done.not_owned = keys(Removal::NotOwned);
    Ok(())
}

/// Deletes all records, the newest last: until then the release can be found.
async fn purge(
    storage: &Storage,
    name: &str,
    history: &[StoredRevision],
) -> Result<(), UninstallError> {
    for head in history {
        storage
            .delete(name, head.revision)
            .await
            .map_err(UninstallError::Purge)?;
    }
    Ok(())
}
