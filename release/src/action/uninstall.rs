//! Removing a release: hooks, objects that are provably its own, records.
//!
//! The record says `uninstalling` before the first object goes, and what it said before, and is the last thing to go, so that
//! a removal that was cut off is found and finished as what it began as. Mirrors `pkg/action/uninstall.go`.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;

use chart::Time;
use chart::manifest::{UNINSTALL_ORDER, sort_by_kind};
use jiff::Timestamp;
use objects::manifest::build_stored_names;
use objects::{Object, ObjectKey};
use serde_json::Value;

use super::error::UninstallError;
use super::hook_objects::HookObjects;
use super::hook_progress::{carried_on, forget_later_runs, is_over};
use super::hooks::HookRun;
use super::known_records::KnownRecords;
use super::records::{first_attempt, is_agents, was_good};
use super::retained::{Obsolete, Retained};
use super::spec::{DEFAULT_TIMEOUT, UninstallSpec, Uninstalled};
use super::unquoted::error_unquoted;
use crate::kube::{
    Cluster, Created, Owner, Removal, ResourcePolicy, Spared, TakeBackError, delete_all,
    is_deferred, newest_first, resource_policy, take_back,
};
use crate::model::{HookEvent, Release, Status};
use crate::others::Confirmation;
use crate::state::ownership::Operation;
use crate::state::{UninstallPlan, plan_uninstall};
use crate::storage::{
    Deletable, Provenance, RecordId, Storage, StorageError, StoredRelease, StoredRevision, last,
};

/// Removes a release, or goes on removing it. One that does not exist is fine.
///
/// Objects are deleted in the background and not waited for. What asks to be kept, or does not carry
/// this release's marks, stays and is reported.
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
    uninstall_confirmed(cluster, storage, spec, Confirmation::default()).await
}

/// Like [`uninstall`], but asks `confirmation` once more when hooks have run: without it no object goes, and the record stays as it is.
///
/// # Errors
/// As [`uninstall`].
///
/// # Cancellation
/// As [`uninstall`].
pub async fn uninstall_confirmed(
    cluster: &Cluster,
    storage: &Storage,
    spec: &UninstallSpec,
    confirmation: Confirmation<'_>,
) -> Result<Uninstalled, UninstallError> {
    let _lock = cluster.lock_release(&spec.namespace, &spec.name).await;
    if !storage.has(&spec.name) {
        return Err(UninstallError::Taken(spec.name.clone()));
    }
    uninstall_locked(cluster, storage, spec, (UninstallScope::All, confirmation)).await
}

/// The part of a release that is removed.
#[derive(Clone, Copy)]
pub(super) enum UninstallScope<'a> {
    /// All objects of the release's own.
    All,
    /// The objects that the only attempt created, and that attempt's record.
    Created(&'a [(Object, Created)], &'a RecordId),
}

/// [`uninstall`], for a caller that holds the release lock.
pub(super) async fn uninstall_locked(
    cluster: &Cluster,
    storage: &Storage,
    spec: &UninstallSpec,
    (scope, confirmation): (UninstallScope<'_>, Confirmation<'_>),
) -> Result<Uninstalled, UninstallError> {
    let load = |source| UninstallError::Load {
        name: spec.name.clone(),
        source,
    };
    let mut history = storage.history(&spec.name).await.map_err(load)?;
    history.retain(|head| spec.up_to.is_none_or(|newest| head.revision <= newest));
    let is_another = |known: &KnownRecords| known.first_unknown(&history).is_some();
    if spec.known.as_ref().is_some_and(is_another) {
        return Err(UninstallError::Taken(spec.name.clone()));
    }
    if let UninstallScope::Created(_, attempt) = scope {
        history.retain(|head| head.id() == *attempt);
    }
    let mut done = Uninstalled {
        existed: !history.is_empty(),
        ..Uninstalled::default()
    };
    if history.is_empty() {
        if let UninstallScope::Created(created, attempt) = scope {
            // Somebody deleted the record.
            let taken = take_created(cluster, storage, spec, created, attempt).await?;
            taken.map_err(load)?;
        }
        return Ok(done);
    }
    let now = cluster.host().now();
    let planned = |history: &[StoredRevision]| {
        plan_uninstall(history, now, spec.keep_resources, spec.keep_history)
    };
    let mut plan = planned(&history);
    if plan == UninstallPlan::Wait
        && is_agents(storage, &spec.name, &spec.writer, &mut history).await
    {
        plan = planned(&history);
    }
    let records = Records {
        name: spec.name.clone(),
        history,
        is_attempt: spec.is_attempt,
    };
    match plan {
        UninstallPlan::Wait => return Err(UninstallError::Locked),
        UninstallPlan::None | UninstallPlan::KeepRecords => return Ok(done),
        UninstallPlan::PurgeRecords => {
            records.purge(storage, None).await?;
            return Ok(done);
        }
        UninstallPlan::Delete => {}
    }
    let Loaded {
        head,
        mut release,
        operation,
        is_proven,
        others,
    } = records.load(storage).await.map_err(load)?;
    // Objects to delete must carry this release's marks, whatever a record says; hooks need not.
    let is_gone = last(&records.history).is_some_and(|head| head.status == Status::Uninstalled);
    let was_cut_off = head.status == Status::Uninstalling;
    let runs_hooks = !spec.disable_hooks && is_proven && !is_gone;
    if !is_proven && !spec.disable_hooks {
        let (release, revision) = (&spec.name, head.revision);
        logging::warn!(
            release,
            revision,
            "not one that was written here: its hooks are not run"
        );
    }
    let owner = Owner::new(&spec.name, &spec.namespace);
    let objects = match scope {
        UninstallScope::All => {
            let stored = stored_objects(cluster, storage, spec, (&release, operation), &others);
            let stored = stored.await;
            // Before anything goes: those in a namespace of this release may need what it has to be removed themselves.
            if let Ok(stored) = &stored {
                check_namespaces(cluster, &owner, spec, stored).await?;
            }
            Some(stored)
        }
        UninstallScope::Created(..) => None,
    };
    let carried_on = carried_on(&release).filter(|_| was_cut_off);
    let description = "Deletion in progress (or silently failed)".to_owned();
    let before = head.before_removal.clone();
    release.begin_removal(before, carried_on.unwrap_or(description));
    let mut began = Time::utc(cluster.host().now());
    if let Some(info) = &mut release.info {
        if was_cut_off && !info.deleted.is_zero() {
            began = info.deleted;
        }
        info.deleted = began;
    }
    if !was_cut_off {
        forget_later_runs(&mut release.hooks, began);
    }
    storage
        .update(&release)
        .await
        .map_err(UninstallError::Purge)?;
    let mut run = HookRun {
        cluster,
        storage,
        timeout: spec
            .timeout
            .filter(|limit| !limit.is_zero())
            .unwrap_or(DEFAULT_TIMEOUT),
        began,
        is_resumed: was_cut_off,
        is_only_try: matches!(scope, UninstallScope::Created(..)),
        on_started: None,
        objects: &mut HookObjects::default(),
    };
    let mut took_time = false;
    if runs_hooks && !is_over(&release, HookEvent::PostDelete) {
        let ran = run.event(&mut release, HookEvent::PreDelete).await;
        took_time = ran.map_err(UninstallError::Hook)?;
    }
    if took_time
        && matches!(scope, UninstallScope::All)
        && !records.are_all(storage, spec).await.map_err(load)?
    {
        // Another writer that went on from there has the release's objects.
        return Err(UninstallError::Taken(spec.name.clone()));
    }
    // Also where an earlier try ran them, which may have ended before this was asked.
    let had_hooks = was_cut_off
        && runs_hooks
        && release
            .hooks
            .iter()
            .any(|hook| hook.runs_at(HookEvent::PreDelete));
    if (took_time || had_hooks) && !confirmation.now().await {
        return Err(UninstallError::Unconfirmed(spec.name.clone()));
    }
    if spec.abort_check.now() {
        return Err(UninstallError::Aborted(spec.name.clone()));
    }
    if let Some(objects) = objects {
        // An object that cannot be read is reported once the removal is recorded.
        let since = first_attempt(&records.history);
        delete_objects(cluster, &owner, spec, since, objects?, &mut done).await?;
    }
    match scope {
        UninstallScope::All => {}
        UninstallScope::Created(created, attempt) => {
            let taken = take_created(cluster, storage, spec, created, attempt).await?;
            if let Err(stopped) = taken {
                // The remaining objects belong to whoever went on: no removal is under way any more.
                let described = release.description().to_owned();
                release.set_status(Status::Failed, described);
                let recorded = storage.update(&release).await;
                recorded.map_err(UninstallError::Purge)?;
                return Err(load(stopped));
            }
        }
    }
    if runs_hooks {
        match run.event(&mut release, HookEvent::PostDelete).await {
            Err(failed) if is_over(&release, HookEvent::PostDelete) => {
                let (release, namespace) = (&spec.name, &spec.namespace);
                let error = error_unquoted(&failed);
                logging::warn!(
                    release,
                    namespace,
                    error,
                    "removed, but a hook after that failed"
                );
            }
            ran => {
                ran.map_err(UninstallError::Hook)?;
            }
        }
    }
    if spec.keep_history {
        release.set_status(Status::Uninstalled, "Uninstallation complete");
        storage
            .update(&release)
            .await
            .map_err(UninstallError::Purge)?;
    } else {
        records.purge(storage, Some(head.revision)).await?;
    }
    Ok(done)
}

/// Takes back what an attempt created, as long as its record is the only one. Gives what shows that somebody has gone on from there, or why that is
/// unknown.
async fn take_created(
    cluster: &Cluster,
    storage: &Storage,
    spec: &UninstallSpec,
    created: &[(Object, Created)],
    attempt: &RecordId,
) -> Result<Result<(), StorageError>, UninstallError> {
    let owner = Owner::new(&spec.name, &spec.namespace);
    let known = KnownRecords::default().with(attempt.clone());
    let check = || known.check(storage, &spec.name);
    match take_back(
        cluster,
        &owner,
        Spared::default(),
        &newest_first(created),
        check,
    )
    .await
    {
        Ok(()) => Ok(Ok(())),
        Err(TakeBackError::Stopped(stopped)) => Ok(Err(stopped)),
        Err(TakeBackError::Delete(failures)) => Err(UninstallError::Delete {
            name: spec.name.clone(),
            failures,
        }),
    }
}

/// The records of a release. Whose the release is, the caller has proven.
struct Records {
    name: String,
    history: Vec<StoredRevision>,
    /// Whether the release was never deployed.
    is_attempt: bool,
}

/// What a removal goes by.
struct Loaded<'a> {
    /// The newest record that was written here; without any, the newest that can be read.
    head: &'a StoredRevision,
    /// The content of that record.
    release: StoredRelease,
    /// The operation by which the objects are deleted.
    operation: Operation,
    is_proven: bool,
    /// Other revisions whose objects may be in the cluster, and what taking those away is: of another claimant's
    /// attempt only what it created goes. They are read one by one, as anybody may have written them.
    others: Vec<(&'a StoredRevision, Operation)>,
}

impl Records {
    /// Reads the records. Those that cannot be read are left out; if none can, the newest one's damage is reported.
    async fn load(&self, storage: &Storage) -> Result<Loaded<'_>, StorageError> {
        let mut subject: Option<(&StoredRevision, StoredRelease, bool)> = None;
        let mut others = Vec::new();
        let mut unreadable = None;
        // Another writer's revision above our last good one dropped objects of it, and a correction may have brought them back.
        let mut is_good_found = false;
        for head in self.history.iter().rev() {
            let is_found = subject.as_ref().is_some_and(|(.., is_proven)| *is_proven);
            let is_gone = match head.status {
                Status::Superseded => is_good_found,
                Status::Uninstalled => true,
                _ => false,
            };
            if is_found && is_gone {
                continue;
            }
            let revision = head.revision;
            match storage.get_listed(&self.name, head).await {
                Ok(release) => {
                    let is_proven = storage.proves(&self.name, revision, &release);
                    is_good_found |= is_proven && was_good(&release);
                    match &subject {
                        Some(_) if is_found && head.status == Status::Superseded && !is_proven => {}
                        Some((former, ..)) if is_proven && !is_found => {
                            others.push(*former);
                            subject = Some((head, release, is_proven));
                        }
                        Some(_) => others.push(head),
                        None => subject = Some((head, release, is_proven)),
                    }
                }
                Err(StorageError::NotFound) => unreadable = Some(revision),
                Err(error @ StorageError::Decode { .. }) => {
                    let (name, error) = (&self.name, error_unquoted(&error));
                    logging::warn!(name, revision, error, "unreadable record");
                    unreadable = Some(revision);
                }
                Err(error) => return Err(error),
            }
        }
        let Some((head, release, is_proven)) = subject else {
            // Every record is damaged: what they held cannot be known.
            let damaged = storage
                .get(&self.name, unreadable.unwrap_or_default())
                .await;
            return Err(damaged.err().unwrap_or(StorageError::NotFound));
        };
        let others = others
            .into_iter()
            .map(|other| (other, self.operation(other)));
        Ok(Loaded {
            head,
            release,
            operation: self.operation(head),
            is_proven,
            others: others.collect(),
        })
    }

    /// Whether these are all records that exist by now, among those that count.
    async fn are_all(&self, storage: &Storage, spec: &UninstallSpec) -> Result<bool, StorageError> {
        let mut now = storage.history(&self.name).await?;
        now.retain(|head| spec.up_to.is_none_or(|newest| head.revision <= newest));
        let known = KnownRecords::of(&self.history);
        Ok(known.first_unknown(&now).is_none())
    }

    /// The operation by which a revision's objects are deleted: of one that was never deployed, as far as its record tells, whoever wrote it, goes
    /// only what it created. What it was before its removal began is written down, as the removal changes all that it could be told from.
    fn operation(&self, of: &StoredRevision) -> Operation {
        let was_deployed = matches!(
            of.before_removal,
            Some(Status::Deployed | Status::Superseded)
        );
        match was_deployed && !self.is_attempt && of.provenance != Provenance::Reused {
            true => Operation::Remove,
            false => Operation::Undo,
        }
    }

    /// Deletes all records. That of which the removal is recorded, `subject`, goes last, and what others wrote first: what is there tells at
    /// each moment that the release can be removed, and as what.
    async fn purge(&self, storage: &Storage, subject: Option<i64>) -> Result<(), UninstallError> {
        let mut heads: Vec<&StoredRevision> = self.history.iter().collect();
        heads.sort_by_key(|head| {
            let is_ours = matches!(head.provenance, Provenance::Untracked | Provenance::Noted);
            (Some(head.revision) == subject, is_ours, head.revision)
        });
        for head in heads {
            let deleted = storage.delete(&self.name, &Deletable::removed(head)).await;
            deleted.map_err(UninstallError::Purge)?;
        }
        Ok(())
    }
}

/// What the records of a release have.
async fn stored_objects(
    cluster: &Cluster,
    storage: &Storage,
    spec: &UninstallSpec,
    (release, operation): (&Release, Operation),
    others: &[(&StoredRevision, Operation)],
) -> Result<Obsolete, UninstallError> {
    let discovery = cluster
        .fresh_discovery()
        .await
        .map_err(UninstallError::Discovery)?;
    let mut seen: HashMap<ObjectKey, Option<usize>> = HashMap::new();
    let Obsolete {
        mut objects,
        mut kept,
    } = Obsolete::default();
    // Objects with a policy that an attempt which failed has taken off.
    let mut asked_before = HashSet::new();
    let mut take = |built: Vec<Object>, operation| {
        for mut object in built {
            let policy = resource_policy(&object.body);
            // The object's content is not needed any more.
            object.body = Value::Null;
            let key = object.key();
            let is_new = !seen.contains_key(&key);
            if let Some(at) = seen.get(&key) {
                // Of several revisions that have it the one counts that was deployed.
                let known = at.and_then(|at| objects.get_mut(at));
                let Some((_, known)) = known.filter(|_| operation == Operation::Remove) else {
                    continue;
                };
                let was_attempt = *known == Operation::Undo;
                *known = operation;
                if policy.is_none() || !was_attempt || !asked_before.insert(key.clone()) {
                    continue;
                }
            }
            if is_new {
                let at = policy.is_none().then_some(objects.len());
                seen.insert(key, at);
            }
            match policy {
                Some(ResourcePolicy::Keep) => kept.push(object),
                Some(ResourcePolicy::Other) => {}
                None => objects.push((object, operation)),
            }
        }
    };
    let built = build_stored_names(&release.manifest, &spec.namespace, &discovery);
    let built = built.map_err(UninstallError::Corrupted)?;
    let left = cluster.all_that_is_left(built).await;
    take(left.map_err(UninstallError::Discovery)?, operation);
    for (head, operation) in others {
        let other = match storage.get_listed(&spec.name, head).await {
            Ok(other) => other,
            // The record was there a moment ago.
            Err(StorageError::NotFound | StorageError::Decode { .. }) => continue,
            Err(source) => {
                let name = spec.name.clone();
                return Err(UninstallError::Load { name, source });
            }
        };
        match build_stored_names(&other.manifest, &spec.namespace, &discovery) {
            Ok(built) => {
                let left = cluster.all_that_is_left(built).await;
                take(left.map_err(UninstallError::Discovery)?, *operation);
            }
            Err(error) => {
                let error = error_unquoted(&error);
                logging::warn!(release = spec.name, error, "unreadable manifest");
            }
        }
    }
    objects.retain(|(object, _)| !asked_before.contains(&object.key()));
    sort_by_kind(&mut objects, UNINSTALL_ORDER, |(object, _)| {
        object.resource.kind.as_str()
    });
    Ok(Obsolete { objects, kept })
}

/// Checks whether a namespace is to be deleted in which there are releases that are about to go: they may need what this one has for that, such as the
/// controller that lets go of a custom resource.
async fn check_namespaces(
    cluster: &Cluster,
    owner: &Owner,
    spec: &UninstallSpec,
    stored: &Obsolete,
) -> Result<(), UninstallError> {
    let namespaces = stored.objects.iter();
    let namespaces = namespaces.filter(|(object, _)| object.is_namespace());
    let mut deferred = Vec::new();
    for (namespace, operation) in namespaces {
        match is_deferred(cluster, owner, &spec.other_releases, namespace, *operation).await {
            Ok(true) => deferred.push(namespace.name.clone()),
            Ok(false) => {}
            Err(failure) => {
                return Err(UninstallError::Delete {
                    name: spec.name.clone(),
                    failures: vec![failure],
                });
            }
        }
    }
    match deferred.is_empty() {
        true => Ok(()),
        false => Err(UninstallError::NamespacesDeferred(deferred)),
    }
}

async fn delete_objects(
    cluster: &Cluster,
    owner: &Owner,
    spec: &UninstallSpec,
    since: Option<Timestamp>,
    stored: Obsolete,
    done: &mut Uninstalled,
) -> Result<(), UninstallError> {
    let failed = |failures| UninstallError::Delete {
        name: spec.name.clone(),
        failures,
    };
    let spared = Spared::before(since);
    let retained = Retained::of_removal();
    let decided = retained.decide(cluster, owner, spared, stored, |_| true);
    let Obsolete { objects, kept } = decided.await.map_err(failed)?;
    done.kept.extend(kept.iter().map(Object::key));
    // Objects in other namespaces go before the records, which are in one of these namespaces.
    let (namespaces, objects): (Vec<_>, Vec<_>) = objects
        .into_iter()
        .partition(|(object, _)| object.is_namespace());
    let (own, namespaces): (Vec<_>, Vec<_>) = namespaces
        .into_iter()
        .partition(|(object, _)| object.name == spec.namespace);
    let mut deferred: Vec<String> = Vec::new();
    for objects in [objects, namespaces, own] {
        if !deferred.is_empty() {
            break;
        }
        // A removal has many kinds, before each of which a list would cost more than all else of it: that it goes its record says, which helm upgrades no more.
        let check = || std::future::ready(Ok::<_, Infallible>(()));
        let removed =
            delete_all(cluster, owner, &spec.other_releases, spared, objects, check).await;
        let removed = removed.map_err(|stopped| match stopped {
            TakeBackError::Stopped(never) => match never {},
            TakeBackError::Delete(failures) => failed(failures),
        })?;
        let keys = |fate| removed.with(fate).map(Object::key);
        done.kept.extend(keys(Removal::Kept));
        done.adopted.extend(keys(Removal::Adopted));
        done.not_owned.extend(keys(Removal::NotOwned));
        done.in_use.extend(keys(Removal::InUse));
        let waiting = removed.with(Removal::Deferred);
        deferred.extend(waiting.map(|namespace| namespace.name.clone()));
    }
    if !done.adopted.is_empty() {
        let release = &spec.name;
        for ObjectKey {
            kind,
            namespace,
            name,
            ..
        } in &done.adopted
        {
            logging::info!(
                release,
                kind,
                namespace,
                name,
                "was there before the release, left"
            );
        }
    }
    match deferred.is_empty() {
        true => Ok(()),
        false => Err(UninstallError::NamespacesDeferred(deferred)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt as _;
    use futures_util::future::BoxFuture;
    use http::{Method, Request, Response};
    use kube::client::Body;
    use parking_lot::Mutex;
    use rstest::rstest;
    use serde_json::json;
    use tower::BoxError;

    use super::*;
    use crate::kube::fixture;
    use crate::model::{BEFORE_REMOVAL_LABEL, Hook};
    use crate::storage::{Driver, Found, RecordUid};

    /// The records of release "web", by revision.
    #[derive(Debug, Default)]
    struct InMemory(Mutex<BTreeMap<i64, Release>>);

    fn uid_of(revision: i64) -> RecordUid {
        RecordUid::new(revision.to_string())
    }

    fn revision_of(key: &str) -> i64 {
        let revision = key.rsplit_once('v').map(|(_, revision)| revision);
        revision.unwrap().parse().unwrap()
    }

    impl Driver for InMemory {
        fn history<'a>(
            &'a self,
            _: &'a str,
        ) -> BoxFuture<'a, Result<Vec<StoredRevision>, StorageError>> {
            let head = |(revision, release): (&i64, &Release)| {
                let labels = crate::storage::system_labels("web", *revision, &release.status());
                let labels = labels.into_iter().chain(release.labels.clone());
                let head = StoredRevision::from_labels(&labels.collect()).unwrap();
                let uid = uid_of(*revision);
                StoredRevision { uid, ..head }
            };
            let history = self.0.lock().iter().map(head).collect();
            async { Ok(history) }.boxed()
        }

        fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Found, StorageError>> {
            let revision = revision_of(key);
            let found = self.0.lock().get(&revision).cloned();
            let found = found.map(|release| Found {
                uid: uid_of(revision),
                release: Ok(release),
            });
            async { found.ok_or(StorageError::NotFound) }.boxed()
        }

        fn create<'a>(
            &'a self,
            release: &'a Release,
        ) -> BoxFuture<'a, Result<RecordUid, StorageError>> {
            self.0.lock().insert(release.revision, release.clone());
            async { Ok(uid_of(release.revision)) }.boxed()
        }

        fn update<'a>(
            &'a self,
            stored: &'a StoredRelease,
        ) -> BoxFuture<'a, Result<(), StorageError>> {
            self.0.lock().insert(stored.revision, (**stored).clone());
            async { Ok(()) }.boxed()
        }

        fn delete<'a>(
            &'a self,
            key: &'a str,
            _: &'a RecordUid,
        ) -> BoxFuture<'a, Result<(), StorageError>> {
            self.0.lock().remove(&revision_of(key));
            async { Ok(()) }.boxed()
        }
    }

    fn config_map(name: &str, annotations: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "shop", "annotations": annotations},
        })
    }

    /// A cluster that has ConfigMap `a` of release "web", and takes what is written, `as_written` then. What of it was deleted.
    fn cluster(
        as_written: impl Fn() + Clone + Send + Sync + 'static,
    ) -> (Cluster, Arc<Mutex<Vec<String>>>) {
        let deleted = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&deleted);
        let written = Arc::<Mutex<Option<Value>>>::default();
        let serve = tower::service_fn(move |request: Request<Body>| {
            let (noted, written) = (Arc::clone(&noted), Arc::clone(&written));
            let as_written = as_written.clone();
            async move {
                let (parts, body) = request.into_parts();
                let path = parts.uri.path();
                let name = path.rsplit('/').next().unwrap_or_default();
                let body = body.collect_bytes().await?;
                let sent = serde_json::from_slice(&body).unwrap_or_default();
                let served = json!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {}, "versions": [
                    {"version": "v1", "resources": [{"resource": "configmaps", "scope": "Namespaced",
                        "responseKind": {"kind": "ConfigMap"}}]}]}]});
                let marks = json!({"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "shop"});
                let live = |mut object: Value| {
                    object["metadata"]["uid"] = json!("u");
                    object["metadata"]["resourceVersion"] = json!("7");
                    object["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "Helm"});
                    let by = objects::managed_fields::FIELD_MANAGER;
                    object["metadata"]["managedFields"] =
                        json!([{"manager": by, "operation": "Apply"}]);
                    object
                };
                let found = match (&parts.method, name) {
                    (_, "api") => Some(served),
                    (_, "apis" | "version") => Some(json!({})),
                    (&Method::DELETE, name) => {
                        noted.lock().push(name.to_owned());
                        Some(json!({}))
                    }
                    (&Method::GET, "a") => Some(live(config_map("a", &marks))),
                    (&Method::GET, _) => written.lock().clone(),
                    (_, _) => {
                        let object = live(sent);
                        as_written();
                        *written.lock() = Some(object.clone());
                        Some(object)
                    }
                };
                let code = if found.is_some() { 200 } else { 404 };
                let missing = json!({"kind": "Status", "status": "Failure", "code": 404,
                    "reason": "NotFound", "details": {"name": name}});
                let answer = found.unwrap_or(missing).to_string().into_bytes();
                Ok::<_, BoxError>(Response::builder().status(code).body(Body::from(answer))?)
            }
        });
        (Cluster::new(kube::Client::new(serve, "shop")), deleted)
    }

    /// Release "web" by a revision, with a hook before its removal where that `has_hook`.
    fn web(revision: i64, has_hook: bool) -> Release {
        let manifest = |object: &Value| format!("---\n{object}\n");
        let hook = config_map("goodbye", &json!({"helm.sh/hook": "pre-delete"}));
        let hook = Hook {
            name: "goodbye".to_owned(),
            kind: "ConfigMap".to_owned(),
            manifest: manifest(&hook),
            events: vec![HookEvent::PreDelete.as_str().to_owned()],
            ..Hook::default()
        };
        let mut release = Release {
            name: "web".to_owned(),
            namespace: "shop".to_owned(),
            revision,
            manifest: manifest(&config_map("a", &json!({}))),
            hooks: has_hook.then_some(hook).into_iter().collect(),
            ..Release::default()
        };
        release.set_status(Status::Deployed, "Install complete");
        release
    }

    /// Storage with the records of a deployed release.
    async fn deployed(has_hook: bool) -> Storage {
        let storage = Storage::new(InMemory::default());
        storage.create(&web(1, has_hook)).await.unwrap();
        storage
    }

    /// A client rolls it back while the hook runs.
    #[tokio::test]
    async fn what_somebody_has_deployed_while_a_hook_ran_is_not_deleted() {
        let storage = deployed(true).await;
        let theirs = storage.clone();
        let (cluster, deleted) = cluster(move || {
            let created = theirs.create(&web(2, true)).now_or_never();
            created.unwrap().unwrap();
        });
        let spec = UninstallSpec::new("web", "shop");
        let done = uninstall(&cluster, &storage, &spec).await;
        assert!(matches!(done, Err(UninstallError::Taken(_))), "{done:?}");
        assert!(deleted.lock().is_empty());
        assert_eq!(storage.history("web").await.unwrap().len(), 2);
    }

    /// The hook took its time: a bundle may want the release again, and nobody may have told.
    #[rstest]
    #[case::wanted_once_the_hook_has_run(true, false, false)]
    #[case::not_wanted_once_the_hook_has_run(true, true, true)]
    #[case::without_a_hook_it_was_just_asked(false, false, true)]
    #[tokio::test]
    async fn what_may_be_wanted_once_a_hook_has_run_is_not_deleted(
        #[case] has_hook: bool,
        #[case] is_confirmed: bool,
        #[case] goes: bool,
    ) {
        let (cluster, deleted) = cluster(|| ());
        let storage = deployed(has_hook).await;
        let asked = AtomicUsize::new(0);
        let ask = || {
            asked.fetch_add(1, Ordering::Relaxed);
            assert!(deleted.lock().is_empty());
            async move { is_confirmed }.boxed()
        };
        let spec = UninstallSpec::new("web", "shop");
        let confirmation = Confirmation::new(&ask);
        let done = uninstall_confirmed(&cluster, &storage, &spec, confirmation).await;
        assert_eq!(asked.load(Ordering::Relaxed), usize::from(has_hook));
        assert_eq!(deleted.lock().contains(&"a".to_owned()), goes, "{done:?}");
        match goes {
            true => assert!(done.is_ok(), "{done:?}"),
            false => assert!(matches!(done, Err(UninstallError::Unconfirmed(_)))),
        }
        // The next try, or deploy, goes on from there, and runs no hook again.
        let left = storage.history("web").await.unwrap();
        let left: Vec<_> = left.iter().map(|head| head.status.clone()).collect();
        let expected = (!goes).then_some(Status::Uninstalling);
        assert_eq!(left, Vec::from_iter(expected));
        if !goes {
            // Confirmation is asked with each try from then on.
            let done = uninstall_confirmed(&cluster, &storage, &spec, confirmation).await;
            assert!(matches!(done, Err(UninstallError::Unconfirmed(_))));
            assert!(deleted.lock().is_empty());
            uninstall(&cluster, &storage, &spec).await.unwrap();
            assert_eq!(*deleted.lock(), ["a"]);
        }
    }

    /// By what the version that was deployed says, and what one says that failed after it: only a version that succeeds ends what the one before it
    /// asks for.
    #[rstest]
    #[case::taken_off_by_an_attempt_that_failed(Some("Keep"), None, false)]
    #[case::added_by_an_attempt_that_failed(None, Some("keep"), false)]
    #[case::nobody_asks(None, None, true)]
    #[tokio::test]
    async fn what_was_deployed_to_be_kept_is_kept_though_an_attempt_took_that_off(
        #[case] deployed: Option<&str>,
        #[case] failed: Option<&str>,
        #[case] goes: bool,
    ) {
        let (cluster, deleted) = cluster(|| ());
        let storage = Storage::new(InMemory::default());
        let policy =
            |policy: Option<&str>| policy.map(|one| json!({"helm.sh/resource-policy": one}));
        for (revision, policy, status) in [
            (1, policy(deployed), Status::Deployed),
            (2, policy(failed), Status::Failed),
        ] {
            let mut release = web(revision, false);
            let annotations = policy.unwrap_or_else(|| json!({}));
            release.manifest = format!("---\n{}\n", config_map("a", &annotations));
            release.set_status(status, "");
            storage.create(&release).await.unwrap();
        }
        let spec = UninstallSpec::new("web", "shop");
        let done = uninstall(&cluster, &storage, &spec).await.unwrap();
        assert_eq!(deleted.lock().contains(&"a".to_owned()), goes);
        assert_eq!(done.kept.len(), usize::from(!goes));
    }

    /// A namespace goes with all that is in it, and a definition goes before the objects of its kind.
    #[rstest]
    #[case::in_a_namespace("Namespace", "data", "v1", "PersistentVolumeClaim", "data")]
    #[case::of_a_definition("CustomResourceDefinition", "cars.x.io", "x.io/v1", "Car", "shop")]
    #[tokio::test]
    async fn what_contains_a_kept_object_outlives_the_release(
        #[case] container: &'static str,
        #[case] name: &'static str,
        #[case] api_version: &str,
        #[case] kind: &str,
        #[case] namespace: &str,
    ) {
        let deleted = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&deleted);
        let cluster = fixture::server(move |method, path, _| match path {
            "/version" => Some((200, json!({}))),
            "/api" => {
                let kinds = [
                    ("PersistentVolumeClaim", true),
                    ("Namespace", false),
                    ("ConfigMap", true),
                ];
                Some(fixture::discovered(&[fixture::discovery("", &kinds)]))
            }
            "/apis" => {
                let definitions = [("CustomResourceDefinition", false)];
                let definitions = fixture::discovery("apiextensions.k8s.io", &definitions);
                let cars = fixture::discovery("x.io", &[("Car", true)]);
                Some(fixture::discovered(&[definitions, cars]))
            }
            path => {
                if *method == Method::DELETE {
                    noted
                        .lock()
                        .push(path.rsplit('/').next().unwrap_or_default().to_owned());
                }
                let mut live = json!({"metadata": {"uid": "u", "resourceVersion": "7"}});
                Owner::new("web", "shop").mark(&mut live);
                if path.ends_with("/kept") {
                    live["metadata"]["annotations"]["helm.sh/resource-policy"] = json!("keep");
                }
                Some((200, live))
            }
        });
        let version = match container {
            "Namespace" => "v1",
            _ => "apiextensions.k8s.io/v1",
        };
        let object = |api_version: &str, kind: &str, name: &str| {
            format!(
                "---\napiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: {name}, namespace: {namespace}}}\n"
            )
        };
        let mut release = web(1, false);
        release.manifest = object(version, container, name)
            + &object(api_version, kind, "kept")
            + &object("v1", "ConfigMap", "a");
        let storage = Storage::new(InMemory::default());
        storage.create(&release).await.unwrap();
        let spec = UninstallSpec::new("web", "shop");
        let done = uninstall(&cluster, &storage, &spec).await.unwrap();
        assert_eq!(*deleted.lock(), ["a"]);
        let kept: Vec<&str> = done.kept.iter().map(|key| key.name.as_str()).collect();
        assert_eq!(kept, [name, "kept"]);
    }

    /// Release "web" with an object of a kind, and an API server that lists it and answers `asked` for its objects, by how often it was asked what
    /// it serves.
    async fn removed_of(
        group: &'static str,
        asked: impl Fn(&Method, usize) -> Option<(u16, Value)> + Send + Sync + 'static,
        is_listed: impl Fn(usize) -> bool + Send + Sync + 'static,
    ) -> (Result<Uninstalled, UninstallError>, usize) {
        let looks = AtomicUsize::new(0);
        let cluster = fixture::server(move |method, path, _| match path {
            "/version" => Some((200, json!({}))),
            "/api" => {
                looks.fetch_add(1, Ordering::Relaxed);
                let core = ("", &[("Car", true)][..]);
                let kinds = if group.is_empty() { core.1 } else { &[] };
                Some(fixture::discovered(&[fixture::discovery("", kinds)]))
            }
            "/apis" if is_listed(looks.load(Ordering::Relaxed)) && !group.is_empty() => {
                let group = fixture::discovery(group, &[("Car", true)]);
                Some(fixture::discovered(&[group]))
            }
            "/apis" => Some(fixture::discovered(&[])),
            path if path.ends_with("/cars/a") => asked(method, looks.load(Ordering::Relaxed)),
            _ => None,
        });
        let mut release = web(1, false);
        let prefix = if group.is_empty() { "" } else { "/" };
        release.manifest = format!(
            "---\napiVersion: {group}{prefix}v1\nkind: Car\nmetadata: {{name: a, namespace: shop}}\n"
        );
        let storage = Storage::new(InMemory::default());
        storage.create(&release).await.unwrap();
        let spec = UninstallSpec::new("web", "shop");
        let done = uninstall(&cluster, &storage, &spec).await;
        let left = storage.history("web").await.unwrap().len();
        (done, left)
    }

    /// API servers of two versions answer in turn, or an `APIService` is taken away: that the address is not served says nothing of the object.
    #[rstest]
    #[case::read("x.io", Method::GET)]
    #[case::deleted("x.io", Method::DELETE)]
    #[case::read_of_kubernetes_own("", Method::GET)]
    #[tokio::test(start_paused = true)]
    async fn a_record_stays_whose_objects_are_asked_for_where_nothing_is_served(
        #[case] group: &'static str,
        #[case] unserved: Method,
    ) {
        let live = json!({"metadata": {"name": "a", "namespace": "shop", "uid": "u", "resourceVersion": "7",
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "shop"}}});
        let asked = move |method: &Method, _| (*method != unserved).then(|| (200, live.clone()));
        let (done, left) = removed_of(group, asked, |_| true).await;
        assert!(
            matches!(done, Err(UninstallError::Delete { .. })),
            "{done:?}"
        );
        assert_eq!(left, 1);
    }

    /// What discovery remembers may be older than the end of a definition.
    #[tokio::test(start_paused = true)]
    async fn a_kind_that_goes_during_a_removal_holds_up_nothing() {
        let live = json!({"metadata": {"name": "a", "namespace": "shop", "uid": "u", "resourceVersion": "7",
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "shop"}}});
        // The definition goes after the object was read once.
        let reads = AtomicUsize::new(0);
        let asked = move |method: &Method, _| {
            let is_first = *method == Method::GET && reads.fetch_add(1, Ordering::Relaxed) == 0;
            is_first.then(|| (200, live.clone()))
        };
        let (done, left) = removed_of("x.io", asked, |looks| looks == 1).await;
        assert!(done.is_ok(), "{done:?}");
        assert_eq!(left, 0);
    }

    const REMOVE: Operation = Operation::Remove;
    const UNDO: Operation = Operation::Undo;

    #[rstest]
    #[case::deployed("deployed", None, REMOVE)]
    #[case::of_a_former_version("superseded", None, REMOVE)]
    #[case::failed("failed", None, UNDO)]
    #[case::cut_off("pending-upgrade", None, UNDO)]
    #[case::going_on("uninstalling", Some("deployed"), REMOVE)]
    #[case::of_an_attempt_going_on("uninstalling", Some("failed"), UNDO)]
    #[case::begun_by_helm("uninstalling", None, UNDO)]
    #[case::that_gave_way("uninstalled", Some("superseded"), REMOVE)]
    #[case::by_description_alone("failed", Some("deployed"), UNDO)]
    fn only_what_was_deployed_is_removed(
        #[case] status: &str,
        #[case] before: Option<&str>,
        #[case] expected: Operation,
    ) {
        let mut labels = crate::storage::system_labels("web", 2, &Status::from(status)).to_vec();
        labels.extend(before.map(|word| (BEFORE_REMOVAL_LABEL.to_owned(), word.to_owned())));
        let head = StoredRevision::from_labels(&labels.into_iter().collect()).unwrap();
        let of = |head: &StoredRevision, is_attempt| {
            let history = vec![head.clone()];
            let name = "web".to_owned();
            let records = Records {
                name,
                history,
                is_attempt,
            };
            records.operation(head)
        };
        assert_eq!(of(&head, false), expected);
        assert_eq!(of(&head, true), UNDO);
        let spent = StoredRevision {
            provenance: Provenance::Reused,
            ..head
        };
        assert_eq!(of(&spent, false), UNDO);
        assert_eq!(of(&spent.believed(), false), UNDO);
    }
}
