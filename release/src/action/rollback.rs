//! Going back: a new revision with the content of an earlier one.
//!
//! Mirrors `pkg/action/rollback.go`, but never leaves the record pending: every failure is recorded.

use chart::Time;
use jiff::Timestamp;
use objects::manifest::{build, documents};
use objects::{Discovery, Object};

use super::deploy::{apply_options, read_if_possible, supersede};
use super::error::{DeployError, RollbackError};
use super::hooks::HookRun;
use super::previous::{PreviousObjects, stored_objects};
use super::retained::Retained;
use super::{Deployed, RollbackSpec};
use crate::kube::{ApplyOptions, Cluster, Owner, Removal, apply_all, delete_all};
use crate::model::{ApplyMethod, HookEvent, HookExecution, Info, Release, Status};
use crate::state::{Action, Plan, State};
use crate::storage::{Storage, StorageError, StoredRevision, deployed, key, last, prunable};

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
    rollback_locked(cluster, storage, spec).await
}

/// [`rollback`], for a caller that holds the release lock.
pub(super) async fn rollback_locked(
    cluster: &Cluster,
    storage: &Storage,
    spec: &RollbackSpec,
) -> Result<Deployed, RollbackError> {
    let history = storage
        .history(&spec.name)
        .await
        .map_err(DeployError::Storage)?;
    let newest = last(&history).map_or(0, |head| head.revision);
    let desired = if spec.revision == 0 {
        newest - 1
    } else {
        spec.revision
    };
    if !history.iter().any(|head| head.revision == desired) {
        return Err(RollbackError::NoRevision(desired));
    }
    let target = storage
        .get(&spec.name, desired)
        .await
        .map_err(DeployError::Storage)?;
    if !storage.proves(&spec.name, desired, &target) {
        let key = key(&spec.name, desired);
        return Err(DeployError::Storage(StorageError::Unproven { key }).into());
    }
    let current = read_if_possible(storage, &spec.name, newest)
        .await
        .map_err(DeployError::Storage)?;
    let discovery = cluster
        .fresh_discovery()
        .await
        .map_err(DeployError::Discovery)?;
    let others = unfinished(storage, &spec.name, &history, newest).await?;
    let base = PreviousObjects::new(current.as_ref(), &others, &discovery);
    let mut release = pending(
        spec,
        &target,
        current.as_ref(),
        newest + 1,
        cluster.host().now(),
    );
    let outdated = prunable(&history, spec.options.max_history);
    let owner = Owner {
        name: spec.name.clone(),
        namespace: spec.namespace.clone(),
    };
    let objects = stored_objects(&target, &discovery);
    let prune = async |revision: i64| {
        // What only this record knows to be in the cluster goes before it.
        let retained = Retained::new(&spec.namespace, &objects, target.chart.as_deref());
        let (orphans, _) = retained.split(base.orphans(revision, &objects));
        if !orphans.is_empty() {
            delete_all(cluster, &owner, orphans, "Background")
                .await
                .map_err(DeployError::Delete)?;
        }
        let deleted = storage.delete(&spec.name, revision).await;
        deleted.map_err(DeployError::Storage)
    };
    for revision in outdated
        .iter()
        .filter(|one| ![desired, newest].contains(one))
    {
        prune(*revision).await?;
    }
    storage
        .create(&release)
        .await
        .map_err(DeployError::Storage)?;
    // The new record has its content; but the last good one stays until there is another.
    if outdated.contains(&desired) && desired != newest && deployed(&history).is_some() {
        prune(desired).await?;
    }
    let way = Way {
        cluster,
        storage,
        spec,
        owner: &owner,
        discovery: &discovery,
        base: &base,
        options: apply_options(&spec.options, &history, current.as_ref()),
    };
    match way.go_back(&mut release).await {
        Ok(mut deployed) => {
            let description = release.description().to_owned();
            release.set_status(Status::Deployed, description);
            storage
                .update(&release)
                .await
                .map_err(DeployError::Storage)?;
            let history: Vec<StoredRevision> = history;
            supersede(storage, &history, &release, None).await;
            deployed.release = release;
            Ok(deployed)
        }
        Err(error) => {
            let text = crate::error_chain(&error);
            release.set_status(
                Status::Failed,
                format!("Rollback {:?} failed: {text}", spec.name),
            );
            if let Err(unstored) = storage.update(&release).await {
                let unstored = crate::error_chain(&unstored);
                tracing::warn!(
                    release = spec.name,
                    error = unstored,
                    "cannot record failure"
                );
            }
            Err(error.into())
        }
    }
}

/// Writes down that going back to `release` failed, as a failed revision in Helm's words, without
/// having tried it through [`rollback`]. Nothing is written while the newest revision says so already.
///
/// # Errors
/// The history cannot be read or written.
pub async fn record_failed_rollback(
    storage: &Storage,
    release: &Release,
    problem: &str,
    max_history: i64,
    now: Timestamp,
) -> Result<(), StorageError> {
    let history = storage.history(&release.name).await?;
    let newest = last(&history).map_or(0, |head| head.revision);
    let description = format!("Rollback {:?} failed: {problem}", release.name);
    if newest > release.revision {
        let known = read_if_possible(storage, &release.name, newest).await?;
        if known.is_some_and(|known| known.description() == description) {
            return Ok(());
        }
    }
    for revision in prunable(&history, max_history) {
        if revision != release.revision {
            storage.delete(&release.name, revision).await?;
        }
    }
    let mut failed = release.clone();
    failed.revision = newest + 1;
    if let Some(info) = &mut failed.info {
        info.last_deployed = Time::utc(now);
        info.rollback_revision = release.revision;
    }
    failed.set_status(Status::Failed, description);
    storage.create(&failed).await
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
        revision,
        namespace: spec.namespace.clone(),
        apply_method: ApplyMethod::ServerSide,
        ..target.clone()
    }
}

/// Records of revisions whose objects may still be in the cluster, besides `newest`: those that failed
/// or were cut off, and the last good one.
async fn unfinished(
    storage: &Storage,
    name: &str,
    history: &[StoredRevision],
    newest: i64,
) -> Result<Vec<Release>, DeployError> {
    let gone = [Status::Superseded, Status::Uninstalled];
    let mut others = Vec::new();
    for head in history {
        if head.revision != newest && !gone.contains(&head.status) {
            let found = read_if_possible(storage, name, head.revision).await;
            others.extend(found.map_err(DeployError::Storage)?);
        }
    }
    Ok(others)
}

/// What a rollback needs on its way.
struct Way<'a> {
    cluster: &'a Cluster,
    storage: &'a Storage,
    spec: &'a RollbackSpec,
    owner: &'a Owner,
    discovery: &'a Discovery,
    base: &'a PreviousObjects,
    options: ApplyOptions,
}

impl Way<'_> {
    async fn go_back(&self, release: &mut Release) -> Result<Deployed, DeployError> {
        let mut objects = documents(&release.manifest)
            .and_then(|documents| build(documents, &self.spec.namespace, self.discovery, &[]))
            .map_err(|source| DeployError::Build {
                which: "new release",
                source,
            })?;
        for object in &mut objects {
            self.owner.mark(&mut object.body);
        }
        self.run_hooks(release, HookEvent::PreRollback).await?;
        let applied = apply_all(self.cluster, &objects, &self.base.good, self.options, None)
            .await
            .map_err(DeployError::Apply)?;
        let chart = release.chart.as_deref();
        let retained = Retained::new(&self.spec.namespace, &objects, chart);
        let (obsolete, retained) = retained.split(self.base.obsolete(&objects));
        let removed = delete_all(self.cluster, self.owner, obsolete, "Background")
            .await
            .map_err(DeployError::Delete)?;
        self.run_hooks(release, HookEvent::PostRollback).await?;
        let left = [Removal::Kept, Removal::NotOwned];
        Ok(Deployed {
            release: release.clone(),
            changed: true,
            plan: Plan {
                state: State::OutOfSync,
                action: Action::Upgrade {
                    revision: release.revision,
                    from: release.revision - 1,
                },
                reason: "a rollback was asked for",
            },
            conflicts: applied.conflicts,
            applied: applied.live,
            retained: left
                .into_iter()
                .flat_map(|fate| removed.with(fate))
                .chain(&retained)
                .map(Object::key)
                .collect(),
        })
    }

    async fn run_hooks(&self, release: &mut Release, event: HookEvent) -> Result<(), DeployError> {
        if self.spec.options.disable_hooks {
            return Ok(());
        }
        let run = HookRun {
            cluster: self.cluster,
            storage: self.storage,
            timeout: self.spec.options.limit(),
            resumed: None,
        };
        run.event(release, event)
            .await
            .map_err(|source| DeployError::Hook {
                event: event.as_str(),
                source,
            })
    }
}
