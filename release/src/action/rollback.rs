//! Going back from an attempt that failed: a new revision with the content of an earlier one.
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
use super::hook_objects::HookObjects;
use super::known_records::KnownRecords;
use super::previous::{PreviousObjects, Pruning, Unfinished, unfinished_objects};
use super::records::{listed_objects, read_if_possible, stored_objects};
use super::retained::Retained;
use super::spec::DeploySpec;
use crate::kube::{Cluster, Owner, WrittenObjects, observe_all};
use crate::model::{ApplyMethod, HookExecution, Info, Release, Status};
use crate::storage::{
    Storage, StorageError, StoredRelease, StoredRevision, key, last, prunable, prunable_for_failure,
};

/// Gives the release, whose lock the caller holds, the content of revision `to` again, since the newest one that is `known` failed.
///
/// # Errors
/// The revision does not exist, or as [`super::deploy`].
///
/// # Cancellation
/// The new revision stays pending; the next [`super::deploy`] goes on from there.
pub(super) async fn rollback(
    cluster: &Cluster,
    storage: &Storage,
    spec: &DeploySpec,
    to: i64,
    known: &KnownRecords,
) -> Result<(), RollbackError> {
    let history = known
        .history(storage, &spec.name)
        .await
        .map_err(DeployError::Storage)?;
    let newest = last(&history).map_or(0, |head| head.revision);
    if !history.iter().any(|head| head.revision == to) {
        return Err(RollbackError::NoRevision(to));
    }
    let target = storage
        .get(&spec.name, to)
        .await
        .map_err(DeployError::Storage)?;
    if !storage.proves(&spec.name, to, &target) {
        let key = key(&spec.name, to);
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
    let is_between = |head: &&StoredRevision| head.revision != newest && head.revision > to;
    let others: Vec<_> = history.iter().filter(is_between).collect();
    let former = stored_objects(cluster, current.as_deref()).await?;
    let others = Unfinished {
        good: to,
        revisions: &others,
        // Going back leaves namespaces and definitions, whatever is in them.
        with_hooks: false,
        read: Some(&*target),
    };
    let others = unfinished_objects(cluster, storage, &spec.name, others).await?;
    let previous = PreviousObjects::new(&history, former, others).undone();
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
        known: known.clone(),
        retained: Retained::new(&spec.namespace, desired, target.chart.as_deref()),
        previous: &previous,
        desired,
    };
    // A record proves what was written, not whose it is by now: another release may have taken it since.
    let observed = observe_all(cluster, &desired.iter().collect::<Vec<_>>()).await;
    let observed = observed.map_err(|source| DeployError::Ownership {
        operation: "rollback",
        source,
    })?;
    let observed = observed.into_iter();
    let open = observed.map(|(object, found)| (object.key(), found));
    let open: HashMap<ObjectKey, Option<Value>> = open.collect();
    // The revision that is gone back to stays until the new record has succeeded, whatever is labelled as deployed above it: that was passed over
    // since it is not what was written.
    let mut outdated = prunable(&history, spec.options.max_history).before;
    outdated.retain(|record| ![to, newest].contains(&record.revision()));
    if !outdated.is_empty() {
        let confirmed = storage.confirm_digests().await;
        confirmed.map_err(DeployError::Storage)?;
    }
    for record in &outdated {
        pruning.prune(record).await?;
    }
    let created = storage.create(&release).await;
    let created = created.map_err(DeployError::Storage)?;
    let mut release = StoredRelease::new(release, created);
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
        written: WrittenObjects::default(),
        is_carried_out: false,
        found: false,
        previous,
        is_resumed: false,
    };
    let result = attempt.run().await;
    if result.is_err() {
        let Attempt { release, read, .. } = attempt;
        spec.failed(read.into_values().chain([release]));
    }
    result?;
    Ok(())
}

/// Writes down that going back to `release` failed, as a failed revision in Helm's words, without
/// having tried it. One that says so already is written over, where it says why in other words: a failure that repeats makes no history.
///
/// # Errors
/// The history cannot be read or written.
///
/// # Cancellation
/// Safe: the record is written whole or not at all, and what gives way to it goes after that.
pub async fn record_failed_rollback(
    storage: &Storage,
    release: &Release,
    problem: &str,
    max_history: i64,
    now: Timestamp,
) -> Result<(), StorageError> {
    let history = storage.history(&release.name).await?;
    let newest = last(&history);
    let description = Operation::Rollback.failed(&release.name, problem);
    if let Some(head) = newest.filter(|head| head.revision > release.revision)
        && let Some(mut known) = read_if_possible(storage, &release.name, head.revision).await?
    {
        if known.description() == description {
            return Ok(());
        }
        if head.is_own() && is_failed_rollback(&known, release) {
            if let Some(info) = &mut known.info {
                info.last_deployed = Time::utc(now);
            }
            known.set_status(Status::Failed, description);
            return storage.update(&known).await;
        }
    }
    let mut failed = release.clone();
    failed.revision = newest.map_or(0, |head| head.revision) + 1;
    if let Some(info) = &mut failed.info {
        info.last_deployed = Time::utc(now);
        info.rollback_revision = release.revision;
    }
    Release::forget_removal(&mut failed.labels);
    failed.set_status(Status::Failed, description);
    storage.create(&failed).await?;
    for record in prunable_for_failure(&history, max_history) {
        let revision = record.revision();
        // What an attempt brought that came to nothing its record alone may say: the next deploy takes both.
        let is_needed = revision >= release.revision
            && (revision == release.revision || brought_more(storage, release, revision).await?);
        if !is_needed {
            storage.delete(&release.name, &record).await?;
        }
    }
    Ok(())
}

/// Whether a record says that going back to `release` failed.
fn is_failed_rollback(record: &Release, release: &Release) -> bool {
    let info = record.info.as_ref();
    let is_to = info.is_some_and(|info| info.rollback_revision == release.revision);
    is_to && record.status() == Status::Failed && record.manifest == release.manifest
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

fn pending(
    spec: &DeploySpec,
    target: &Release,
    current: Option<&Release>,
    revision: i64,
    now: Timestamp,
) -> Release {
    let now = Time::utc(now);
    let info_of = |release: &Release| release.info.clone().unwrap_or_default();
    let first_deployed = current.map(info_of).map_or(now, |info| info.first_deployed);
    let mut hooks = target.hooks.clone();
    for hook in &mut hooks {
        hook.last_run = HookExecution::default();
    }
    let mut labels = target.labels.clone();
    Release::forget_removal(&mut labels);
    Release {
        info: Some(Info {
            first_deployed,
            last_deployed: now,
            status: Status::PendingRollback,
            notes: info_of(target).notes,
            description: format!("Rollback to {}", target.revision),
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
