//! Removing a release: hooks, objects that are provably its own, records.
//!
//! The record says `uninstalling` before the first object goes, and what it said before, and is the last thing to go, so that
//! a removal that was cut off is found and finished as what it began as. Mirrors `pkg/action/uninstall.go`.

mod records;
mod stored_objects;

use chart::Time;
use objects::{Object, ObjectKey};

use self::records::{Loaded, Records};
use self::stored_objects::{Others, check_namespaces, delete_objects, stored_objects};
use super::error::UninstallError;
use super::hook_objects::HookObjects;
use super::hook_progress::{carried_on, forget_later_runs, is_over};
use super::hooks::HookRun;
use super::known_records::KnownRecords;
use super::records::{first_attempt, is_agents};
use super::spec::{DEFAULT_TIMEOUT, UninstallSpec, Uninstalled};
use super::unquoted::error_unquoted;
use crate::kube::{
    ApiError, Cluster, Created, Owner, Spared, TakeBackError, forget_removal, newest_first,
    take_back,
};
use crate::model::{HOLDS_CONTAINERS_LABEL, HookEvent, Status};
use crate::others::Confirmation;
use crate::state::{UninstallPlan, plan_uninstall};
use crate::storage::{RecordId, Storage, StorageError, StoredRevision, last};

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
    let owner = Owner::new(&spec.name, &spec.namespace);
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
            if spec.abort_check.now() {
                return Err(UninstallError::Aborted(spec.name.clone()));
            }
            records.purge(storage, None).await?;
            forget_removal(cluster, &owner);
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
        gone,
        is_incomplete,
    } = records.load(storage).await.map_err(load)?;
    // Objects to delete must carry this release's marks, whatever a record says; hooks need not.
    let is_gone = last(&records.history).is_some_and(|head| head.status == Status::Uninstalled);
    let was_cut_off = head.status == Status::Uninstalling;
    let held_containers = was_cut_off && release.labels.contains_key(HOLDS_CONTAINERS_LABEL);
    let runs_hooks = !spec.disable_hooks && is_proven && !is_gone;
    if !is_proven && !spec.disable_hooks {
        let (release, revision) = (&spec.name, head.revision);
        logging::warn!(
            release,
            revision,
            "not one that was written here: its hooks are not run"
        );
    }
    let objects = match scope {
        UninstallScope::All => {
            let subject = (&*release, operation);
            let others = Others {
                revisions: &others,
                gone: &gone,
                are_incomplete: is_incomplete || held_containers,
            };
            let stored = stored_objects(cluster, storage, spec, subject, others);
            let stored = stored.await;
            // Before anything goes: those in a namespace of this release may need what it has to be removed themselves.
            if let Ok(stored) = &stored {
                check_namespaces(cluster, &owner, spec, stored).await?;
            }
            Some(stored.and_then(|stored| match stored.waits_for.clone() {
                Some(kind) => Err(UninstallError::Discovery(ApiError::NotServed(kind))),
                None => Ok(stored),
            }))
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
        forget_removal(cluster, &owner);
        return Ok(done);
    }
    let is_container = |key: &ObjectKey| {
        let kind = (key.group.as_str(), key.kind.as_str());
        [
            ("", "Namespace"),
            ("apiextensions.k8s.io", "CustomResourceDefinition"),
        ]
        .contains(&kind)
    };
    if done.kept.iter().any(is_container) {
        // What held it goes with the first record that goes: a removal that is cut off then may not begin again without it.
        let label = HOLDS_CONTAINERS_LABEL.to_owned();
        release.labels.insert(label, true.to_string());
        match storage.update(&release).await {
            Ok(()) | Err(StorageError::NotFound) => {}
            Err(failed) => return Err(UninstallError::Purge(failed)),
        }
    }
    records.purge(storage, Some(head.revision)).await?;
    forget_removal(cluster, &owner);
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
    use serde_json::{Value, json};
    use tower::BoxError;

    use super::*;
    use crate::model::{Hook, Release};
    use crate::storage::{Driver, Found, RecordError, RecordUid, StoredRelease};

    /// The records of release "web", by revision, and the one whose deletion fails once. One whose manifest is `DAMAGED` cannot be read.
    #[derive(Debug, Default)]
    pub(super) struct InMemory(Mutex<BTreeMap<i64, Release>>, Arc<Mutex<Option<i64>>>);

    pub(super) const DAMAGED: &str = "damaged";

    impl InMemory {
        pub(super) fn failing(revision: i64) -> Self {
            Self(Mutex::default(), Arc::new(Mutex::new(Some(revision))))
        }
    }

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
                release: match release.manifest == DAMAGED {
                    true => Err(RecordError::Truncated),
                    false => Ok(release),
                },
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
            let revision = revision_of(key);
            let fails = self.1.lock().take_if(|failing| *failing == revision);
            if fails.is_some() {
                return async { Err(StorageError::Exists) }.boxed();
            }
            self.0.lock().remove(&revision);
            async { Ok(()) }.boxed()
        }
    }

    pub(super) fn config_map(name: &str, annotations: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "shop", "annotations": annotations},
        })
    }

    /// A cluster that has ConfigMap `a` of release "web", and takes what is written, `as_written` then. What of it was deleted.
    pub(super) fn cluster(
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
    pub(super) fn web(revision: i64, has_hook: bool) -> Release {
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
}
