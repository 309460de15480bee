//! Going back: a new revision with the content of an earlier one.
//!
//! Mirrors `pkg/action/rollback.go`, but never leaves the record pending: every failure is recorded.

use std::collections::{HashMap, HashSet};

use chart::Time;
use jiff::Timestamp;
use objects::manifest::{build, documents};
use objects::{Object, ObjectKey};
use serde_json::Value;

use super::attempt::{Attempt, Operation, apply_options, record_failure};
use super::error::{DeployError, RollbackError};
use super::hooks::HookObjects;
use super::previous::{PreviousObjects, Pruning, unfinished_objects};
use super::records::{listed_objects, read_if_possible, stored_objects};
use super::retained::Retained;
use super::spec::{Deployed, RollbackSpec};
use crate::kube::{Cluster, Owner, OwnershipError, look_all};
use crate::model::{ApplyMethod, BEFORE_REMOVAL_LABEL, HookExecution, Info, Release, Status};
use crate::state::ownership::{self, ObjectState};
use crate::state::{Action, Plan, State};
use crate::storage::{
    Deletable, RecordId, Storage, StorageError, StoredRelease, StoredRevision, deployed,
    is_gone_on_from, key, last, prunable,
};

/// Makes an earlier revision the deployed one again, as a new revision.
///
/// # Errors
/// The revision does not exist, or as [`super::deploy`].
///
/// # Cancellation
/// The new revision stays pending; the next [`super::deploy`] goes on from there.
pub async fn rollback(
    cluster: &Cluster,
    storage: &Storage,
    spec: &RollbackSpec,
) -> Result<Deployed, RollbackError> {
    let _lock = cluster.lock_release(&spec.namespace, &spec.name).await;
    rollback_locked(cluster, storage, spec, None).await
}

/// [`rollback`], for a caller that holds the release lock; `undone` is the newest record, if it is undone as it failed.
pub(super) async fn rollback_locked(
    cluster: &Cluster,
    storage: &Storage,
    spec: &RollbackSpec,
    undone: Option<&RecordId>,
) -> Result<Deployed, RollbackError> {
    let is_undo = undone.is_some();
    let history = storage
        .history(&spec.name)
        .await
        .map_err(DeployError::Storage)?;
    let newest = last(&history).map_or(0, |head| head.revision);
    if undone.is_some_and(|undone| is_gone_on_from(&history, undone)) {
        return Err(DeployError::Locked.into());
    }
    let desired_revision = if spec.revision == 0 {
        newest - 1
    } else {
        spec.revision
    };
    if !history.iter().any(|head| head.revision == desired_revision) {
        return Err(RollbackError::NoRevision(desired_revision));
    }
    let target = storage
        .get(&spec.name, desired_revision)
        .await
        .map_err(DeployError::Storage)?;
    if !storage.proves(&spec.name, desired_revision, &target) {
        let key = key(&spec.name, desired_revision);
        return Err(DeployError::Storage(StorageError::Unproven { key }).into());
    }
    let current = read_if_possible(storage, &spec.name, newest)
        .await
        .map_err(DeployError::Storage)?;
    let discovery = cluster
        .fresh_discovery()
        .await
        .map_err(DeployError::Discovery)?;
    // Below what is gone back to nothing came with the attempt.
    let is_attempt = |head: &&StoredRevision| {
        head.revision != newest && (!is_undo || head.revision > desired_revision)
    };
    let others = history.iter().filter(is_attempt);
    let others: Vec<_> = others.collect();
    let good = if is_undo { desired_revision } else { 0 };
    let (name, read) = (&spec.name, Some(&*target));
    let others = unfinished_objects(cluster, storage, name, good, &others, read).await?;
    let former = match &current {
        Some(current) => stored_objects(cluster, current).await?,
        None => Vec::new(),
    };
    let mut previous = PreviousObjects::new(former, others);
    let head = last(&history).map(|head| &head.status);
    let was_good = matches!(head, Some(Status::Deployed | Status::Superseded));
    previous = match is_undo || !was_good {
        true => previous.undone(),
        false => {
            let is_proven = |current: &Release| storage.proves(&spec.name, newest, current);
            previous.proven(current.as_deref().is_some_and(is_proven))
        }
    };
    let is_trusted = |current: &Release| storage.proves(&spec.name, newest, current);
    let is_believed = current.as_deref().is_some_and(is_trusted);
    let is_believed = is_believed || !storage.was_deployed(&spec.name);
    let apply = apply_options(&spec.options, &history, current.as_deref(), is_believed);
    let now = cluster.host().now();
    let release = pending(spec, &target, current.as_deref(), newest + 1, now);
    let owner = Owner::new(&spec.name, &spec.namespace);
    let built = documents(&release.manifest)
        .and_then(|documents| build(documents, &spec.namespace, &discovery, &[]));
    let lenient = match &built {
        Ok(_) => Vec::new(),
        Err(_) => listed_objects(&target, &discovery).listed(),
    };
    let desired = built.as_ref().unwrap_or(&lenient);
    let pruning = Pruning {
        cluster,
        storage,
        owner: &owner,
        neighbours: &spec.options.neighbours,
        retained: Retained::new(&spec.namespace, desired, target.chart.as_deref()),
        previous: &previous,
        desired,
    };
    let outdated = prunable(&history, spec.options.max_history).before;
    let is_needed = |one: &&Deletable| [desired_revision, newest].contains(&one.revision());
    for record in outdated.iter().filter(|one| !is_needed(one)) {
        pruning.prune(record).await?;
    }
    // A record proves what was written, not whose it is by now: another release may have taken it since.
    let open = match is_undo {
        true => look_all(cluster, &desired.iter().collect::<Vec<_>>()).await,
        false => look_for_others(cluster, &owner, desired).await,
    };
    let open = open.map_err(|source| DeployError::Ownership {
        operation: "rollback",
        source,
    })?;
    let open = open
        .into_iter()
        .map(|(object, found)| (object.key(), found));
    let open: HashMap<ObjectKey, Option<Value>> = open.collect();
    let created = storage.create(&release).await;
    let created = created.map_err(DeployError::Storage)?;
    let mut release = StoredRelease::new(release, created);
    // The new record has its content; but the last good one stays until there is another. That is what an undo goes back to, whatever is labelled
    // as deployed above it: that was passed over since it is not what was written.
    let former = outdated
        .iter()
        .find(|one| one.revision() == desired_revision);
    if let Some(former) = former
        && desired_revision != newest
        && !is_undo
        && deployed(&history).is_some()
    {
        pruning.prune(former).await?;
    }
    let operation = Operation::Rollback;
    let mut objects = match built {
        Ok(objects) => objects,
        Err(source) => {
            let which = "new release";
            let error = DeployError::Build { which, source };
            record_failure(storage, operation, &mut release, &error).await;
            return Err(error.into());
        }
    };
    for object in &mut objects {
        owner.mark(&mut object.body);
    }
    let recorded: HashSet<ObjectKey> = previous
        .recorded()
        .into_iter()
        .chain(objects.iter().map(Object::key))
        .collect();
    let mut attempt = Attempt {
        on_begun: None,
        on_written: None,
        on_hooks: None,
        cluster,
        storage,
        options: &spec.options,
        history: &history,
        operation,
        owner,
        release,
        apply,
        read: current.into_iter().map(|one| (one.revision, one)).collect(),
        objects,
        hooks: HookObjects::default(),
        open,
        recorded,
        outdated: Vec::new(),
        is_unchecked: false,
        created: Vec::new(),
        is_carried_out: false,
        found: false,
        previous,
        is_resumed: false,
    };
    let done = attempt.run().await?;
    let release = attempt.release;
    Ok(Deployed {
        changed: true,
        plan: Plan {
            state: State::OutOfSync,
            action: Action::Upgrade {
                revision: release.revision,
                from: release.revision - 1,
            },
            reason: "a rollback was asked for",
        },
        conflicts: done.conflicts,
        applied: done.applied,
        retained: done.retained,
        release,
    })
}

/// Writes down that going back to `release` failed, as a failed revision in Helm's words, without
/// having tried it through [`rollback`]. Nothing is written while the newest revision says so already.
///
/// # Errors
/// The history cannot be read or written.
///
/// # Cancellation
/// Safe: pruning may have happened, the new record is written whole or not at all.
pub async fn record_failed_rollback(
    storage: &Storage,
    release: &Release,
    problem: &str,
    max_history: i64,
    now: Timestamp,
) -> Result<(), StorageError> {
    let history = storage.history(&release.name).await?;
    let newest = last(&history).map_or(0, |head| head.revision);
    let description = Operation::Rollback.failed(&release.name, problem);
    if newest > release.revision {
        let known = read_if_possible(storage, &release.name, newest).await?;
        if known.is_some_and(|known| known.description() == description) {
            return Ok(());
        }
    }
    for record in prunable(&history, max_history).before {
        let revision = record.revision();
        // What an attempt brought that came to nothing its record alone may say: the next deploy takes both.
        let is_needed = revision >= release.revision
            && (revision == release.revision || brought_more(storage, release, revision).await?);
        if !is_needed {
            storage.delete(&release.name, &record).await?;
        }
    }
    let mut failed = release.clone();
    failed.revision = newest + 1;
    if let Some(info) = &mut failed.info {
        info.last_deployed = Time::utc(now);
        info.rollback_revision = release.revision;
    }
    failed.set_status(Status::Failed, description);
    storage.create(&failed).await.map(drop)
}

/// Whether a later revision may have brought what `release` has not: it has another manifest, and is not over. One that went back to `release` and
/// failed has the same.
async fn brought_more(
    storage: &Storage,
    release: &Release,
    revision: i64,
) -> Result<bool, StorageError> {
    let record = read_if_possible(storage, &release.name, revision).await?;
    Ok(record.is_some_and(|record| {
        let is_over = matches!(record.status(), Status::Superseded | Status::Uninstalled);
        !is_over && record.manifest != release.manifest
    }))
}

/// Looks at objects; one that another release has by now is refused, as nobody asked for a failed attempt to be undone.
async fn look_for_others<'o>(
    cluster: &Cluster,
    owner: &Owner,
    objects: &'o [Object],
) -> Result<Vec<(&'o Object, Option<Value>)>, OwnershipError> {
    let looked = look_all(cluster, &objects.iter().collect::<Vec<_>>()).await?;
    let is_anothers = |live: &Value| {
        let state = owner
            .observe(live)
            .state(ownership::Operation::Restore, true);
        state == ObjectState::Anothers
    };
    for (object, found) in &looked {
        if let Some(live) = found.as_ref().filter(|live| is_anothers(live)) {
            return Err(owner.refusal(object, live));
        }
    }
    Ok(looked)
}

fn pending(
    spec: &RollbackSpec,
    target: &Release,
    current: Option<&Release>,
    revision: i64,
    now: Timestamp,
) -> Release {
    let now = Time::utc(now);
    let info_of = |release: &Release| release.info.clone().unwrap_or_default();
    let first_deployed = current.map(info_of).map_or(now, |info| info.first_deployed);
    let description = spec.options.description.clone();
    let mut hooks = target.hooks.clone();
    for hook in &mut hooks {
        hook.last_run = HookExecution::default();
    }
    let mut labels = target.labels.clone();
    labels.remove(BEFORE_REMOVAL_LABEL);
    Release {
        info: Some(Info {
            first_deployed,
            last_deployed: now,
            status: Status::PendingRollback,
            notes: info_of(target).notes,
            description: description.unwrap_or_else(|| format!("Rollback to {}", target.revision)),
            rollback_revision: target.revision,
            ..Info::default()
        }),
        hooks,
        labels,
        revision,
        namespace: spec.namespace.clone(),
        apply_method: ApplyMethod::ServerSide,
        ..target.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use futures_util::FutureExt as _;
    use futures_util::future::{BoxFuture, ready};
    use parking_lot::Mutex;

    use super::*;
    use crate::storage::{Driver, Found, RecordUid};

    /// The records of one release, in memory.
    #[derive(Debug, Clone, Default)]
    struct Records(Arc<Mutex<BTreeMap<String, Release>>>);

    impl Driver for Records {
        fn history<'a>(
            &'a self,
            _: &'a str,
        ) -> BoxFuture<'a, Result<Vec<StoredRevision>, StorageError>> {
            let records = self.0.lock();
            let head = |record: &Release| StoredRevision::new(record.revision, record.status());
            ready(Ok(records.values().map(head).collect())).boxed()
        }

        fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Found, StorageError>> {
            let found = self.0.lock().get(key).cloned().map(|release| Found {
                uid: RecordUid::default(),
                release: Ok(release),
            });
            ready(found.ok_or(StorageError::NotFound)).boxed()
        }

        fn create<'a>(
            &'a self,
            release: &'a Release,
        ) -> BoxFuture<'a, Result<RecordUid, StorageError>> {
            let key = key(&release.name, release.revision);
            self.0.lock().insert(key, release.clone());
            ready(Ok(RecordUid::default())).boxed()
        }

        fn update<'a>(&'a self, _: &'a StoredRelease) -> BoxFuture<'a, Result<(), StorageError>> {
            ready(Err(StorageError::NotFound)).boxed()
        }

        fn delete<'a>(
            &'a self,
            key: &'a str,
            _: &'a RecordUid,
        ) -> BoxFuture<'a, Result<(), StorageError>> {
            self.0.lock().remove(key);
            ready(Ok(())).boxed()
        }
    }

    #[tokio::test]
    async fn what_an_attempt_brought_is_remembered_over_a_correction_that_failed() {
        let record = |revision, status, manifest: &str| {
            let mut record = Release {
                name: "web".to_owned(),
                namespace: "n".to_owned(),
                manifest: manifest.to_owned(),
                info: Some(Info::default()),
                revision,
                ..Release::default()
            };
            record.set_status(status, String::new());
            record
        };
        let records = Records::default();
        let storage = Storage::new(records.clone());
        let deployed = record(2, Status::Deployed, "good");
        for stored in [
            record(1, Status::Superseded, "old"),
            deployed.clone(),
            record(3, Status::Failed, "more"),
            record(4, Status::Failed, "good"),
        ] {
            storage.create(&stored).await.unwrap();
        }
        let failed =
            record_failed_rollback(&storage, &deployed, "refused", 1, Timestamp::UNIX_EPOCH);
        failed.await.unwrap();
        let left = storage.history("web").await.unwrap();
        let left: Vec<i64> = left.iter().map(|head| head.revision).collect();
        assert_eq!(left, [2, 3, 5]);
    }
}
