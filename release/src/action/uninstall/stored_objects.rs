//! The objects of a release that is removed: what its records have, and deleting that.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;

use chart::manifest::{UNINSTALL_ORDER, sort_by_kind};
use jiff::Timestamp;
use objects::manifest::build_stored_names;
use objects::{Object, ObjectKey};
use serde_json::Value;

use crate::action::error::UninstallError;
use crate::action::former::{Former, inside};
use crate::action::previous::MAX_OF_OTHERS;
use crate::action::records::listed_of_hooks;
use crate::action::retained::{Obsolete, Retained, is_container};
use crate::action::spec::{UninstallSpec, Uninstalled};
use crate::action::unquoted::error_unquoted;
use crate::kube::{
    ApiError, Cluster, Owner, Removal, Removed, ResourcePolicy, Spared, TakeBackError, delete_all,
    is_deferred, is_given_up, is_made_with_namespace, leave_held, resource_policy,
    waits_for_served,
};
use crate::model::Release;
use crate::state::ownership::Operation;
use crate::storage::{Storage, StorageError, StoredRelease, StoredRevision};

/// The records of a release beside that by which it is removed.
pub(super) struct Others<'a> {
    /// Those whose objects go too, and as what.
    pub(super) revisions: &'a [(&'a StoredRevision, Operation)],
    /// Those whose labels say that what they had is gone, or a later one's.
    pub(super) gone: &'a [&'a StoredRevision],
    /// Whether there may be more that nobody can read.
    pub(super) are_incomplete: bool,
}

/// What the records of a release have. What those have that nobody can read (`is_incomplete`) nobody knows.
pub(super) async fn stored_objects(
    cluster: &Cluster,
    storage: &Storage,
    spec: &UninstallSpec,
    (release, operation): (&Release, Operation),
    others: Others<'_>,
) -> Result<Obsolete, UninstallError> {
    let mut is_incomplete = others.are_incomplete;
    let discovery = cluster
        .fresh_discovery()
        .await
        .map_err(UninstallError::Discovery)?;
    let mut seen: HashMap<ObjectKey, Option<usize>> = HashMap::new();
    let (mut objects, mut kept) = (Vec::new(), Vec::new());
    // Objects with a policy that an attempt which failed has taken off.
    let mut asked_before = HashSet::new();
    let mut foreign = HashSet::new();
    let mut take = |built: Vec<Object>, operation, is_foreign: bool| {
        for mut object in built {
            let policy = resource_policy(&object.body);
            // The object's content is not needed any more.
            object.body = Value::Null;
            if object.name.is_empty() {
                // The API server has named it: it cannot be deleted, and is one of many.
                kept.extend((policy == Some(ResourcePolicy::Keep)).then_some(object));
                continue;
            }
            if is_foreign && policy == Some(ResourcePolicy::Other) {
                // Nothing is done with it, nor does it hide what a record of ours has.
                continue;
            }
            let key = object.key();
            let is_new = !seen.contains_key(&key);
            if !is_foreign {
                foreign.remove(&key);
            }
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
                foreign.extend(is_foreign.then(|| key.clone()));
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
    let mut of_hooks = vec![listed_of_hooks(release, &discovery)];
    let built = build_stored_names(&release.manifest, &spec.namespace, &discovery);
    let built = built.map_err(UninstallError::Corrupted)?;
    let left = cluster.all_that_is_left(built).await;
    take(left.map_err(UninstallError::Discovery)?, operation, false);
    // How much records have that others may have written, as many as they like.
    let mut count_of_others = 0;
    for (head, operation) in others.revisions {
        let Some(other) = read(storage, &spec.name, head).await? else {
            is_incomplete = true;
            continue;
        };
        let is_foreign = !storage.recognises(&spec.name, head.revision, &other);
        let made = listed_of_hooks(&other, &discovery);
        let built = match build_stored_names(&other.manifest, &spec.namespace, &discovery) {
            Ok(built) => built,
            Err(error) => {
                let error = error_unquoted(&error);
                logging::warn!(release = spec.name, error, "unreadable manifest");
                is_incomplete = true;
                of_hooks.extend((!is_foreign).then_some(made));
                continue;
            }
        };
        if is_foreign && count_of_others + built.len() + made.len() > MAX_OF_OTHERS {
            let (release, revision) = (&spec.name, head.revision);
            logging::warn!(
                release,
                revision,
                "a record of others has too many objects: left"
            );
            is_incomplete = true;
            continue;
        }
        if is_foreign {
            count_of_others += built.len() + made.len();
        }
        of_hooks.push(made);
        let left = cluster.all_that_is_left(built).await;
        take(
            left.map_err(UninstallError::Discovery)?,
            *operation,
            is_foreign,
        );
    }
    objects.retain(|(object, _)| !asked_before.contains(&object.key()));
    sort_by_kind(&mut objects, UNINSTALL_ORDER, |(object, _)| {
        object.resource.kind.as_str()
    });
    let mut stored = Obsolete {
        objects,
        kept,
        foreign,
        is_incomplete,
        ..Obsolete::default()
    };
    let goes = |(one, operation): &(Object, _)| is_container(one) && *operation != Operation::Undo;
    if stored.objects.iter().any(goes) {
        let own = stored.objects.iter().map(|(object, _)| object);
        let own = own.chain(&stored.kept);
        let known: HashSet<ObjectKey> = own.map(Object::key).collect();
        let containers = stored.objects.iter().filter(|one| goes(one));
        let containers = containers.map(|(object, _)| object);
        let owner = Owner::new(&spec.name, &spec.namespace);
        let (mut former, mut unserved) = (Former::default(), None);
        for head in others.gone {
            let other = read(storage, &spec.name, head).await?;
            let is_own =
                |other: &StoredRelease| storage.recognises(&spec.name, head.revision, other);
            let Some(other) = other.filter(is_own) else {
                stored.is_incomplete = true;
                continue;
            };
            let mut built = listed_of_hooks(&other, &discovery);
            let of_manifest = build_stored_names(&other.manifest, &spec.namespace, &discovery);
            built.extend(of_manifest.unwrap_or_default());
            let left = match cluster.all_that_is_left(built).await {
                // Nobody waits for long for what only a former version had.
                Err(ApiError::NotServed(kind)) => {
                    stored.is_incomplete = true;
                    unserved = unserved.or(Some(kind));
                    continue;
                }
                left => left.map_err(UninstallError::Discovery)?,
            };
            former.add(head.revision, &other, inside(left, containers.clone()));
        }
        let waits = waits_for_served(cluster, &owner, unserved.is_some());
        stored.waits_for = unserved.filter(|_| waits);
        stored.of_former = former.beside(&known);
        for of_hooks in of_hooks {
            let left = cluster.all_that_is_left(of_hooks).await;
            let left = left.map_err(UninstallError::Discovery)?;
            stored.of_hooks.extend(left);
        }
    }
    Ok(stored)
}

/// Reads one of the records of a release; nothing where nobody can read it, or somebody has deleted it since they were listed.
async fn read(
    storage: &Storage,
    name: &str,
    head: &StoredRevision,
) -> Result<Option<StoredRelease>, UninstallError> {
    match storage.get_listed(name, head).await {
        Ok(record) => Ok(Some(record)),
        Err(StorageError::NotFound | StorageError::Decode { .. }) => Ok(None),
        Err(source) => Err(UninstallError::Load {
            name: name.to_owned(),
            source,
        }),
    }
}

/// Checks whether a namespace or definition is to be deleted in which there are releases that are about to go: they may need what this one has for
/// that, such as the controller that lets go of a custom resource.
pub(super) async fn check_namespaces(
    cluster: &Cluster,
    owner: &Owner,
    spec: &UninstallSpec,
    stored: &Obsolete,
) -> Result<(), UninstallError> {
    let containers = stored.objects.iter();
    let containers = containers.filter(|(object, _)| is_container(object));
    let mut deferred = Vec::new();
    for (container, operation) in containers {
        match is_deferred(cluster, owner, &spec.other_releases, container, *operation).await {
            Ok(true) => deferred.push(container.name.clone()),
            Ok(false) => {}
            Err(failure)
                if stored.foreign.contains(&container.key())
                    && is_given_up(cluster, owner, container, &failure) => {}
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

/// The order in which the objects of a release go: what takes others along begins a pass of its own. Objects in other namespaces go before the records,
/// which are in one of the namespaces.
fn passes(
    mut objects: Vec<(Object, Operation)>,
    namespace: &str,
) -> impl Iterator<Item = Vec<(Object, Operation)>> {
    let namespaces = objects.extract_if(.., |(object, _)| object.is_namespace());
    let (own, namespaces): (Vec<_>, Vec<_>) =
        namespaces.partition(|(object, _)| object.name == namespace);
    let first = objects.iter().position(|(object, _)| object.is_crd());
    let from_definitions = objects.split_off(first.unwrap_or(objects.len()));
    [objects, from_definitions, namespaces, own].into_iter()
}

/// Deletes them.
///
/// # Errors
/// They may be wanted by now; objects that cannot be read or deleted; namespaces or definitions that others are about to leave.
pub(super) async fn delete_objects(
    cluster: &Cluster,
    owner: &Owner,
    spec: &UninstallSpec,
    since: Option<Timestamp>,
    mut stored: Obsolete,
    done: &mut Uninstalled,
) -> Result<(), UninstallError> {
    let failed = |failures| UninstallError::Delete {
        name: spec.name.clone(),
        failures,
    };
    let spared = Spared::before(since);
    // Decides about objects, and leaves what holds others that stay.
    let decide = async |retained: Retained<'_>, stored, due: Option<HashSet<ObjectKey>>| {
        let is_due = |object: &Object| due.as_ref().is_none_or(|due| due.contains(&object.key()));
        let decided = retained.decide(cluster, owner, spared, stored, is_due);
        let decided = decided.await?;
        leave_held(cluster, owner, &spec.other_releases, spared, &decided.held).await?;
        Ok(decided)
    };
    let first = decide(Retained::of_removal(), stored.clone(), None).await;
    let first = first.map_err(failed)?;
    if spec.abort_check.now() {
        return Err(UninstallError::Aborted(spec.name.clone()));
    }
    done.kept.extend(first.kept.iter().map(Object::key));
    let (mut removed, mut failures) = (Removed::default(), Vec::new());
    for mut objects in passes(first.objects, &spec.namespace) {
        let are_namespaces = objects.first().is_some_and(|(one, _)| one.is_namespace());
        let waits = removed.with(Removal::Deferred).next().is_some();
        if waits || are_namespaces && !failures.is_empty() {
            break;
        }
        // What went before took its time, and something in them may be there to stay by now.
        if objects.iter().any(|(object, _)| is_container(object)) {
            let due = objects.iter().map(|(object, _)| object.key()).collect();
            let gone = [Removal::Deleted, Removal::Absent];
            let gone = gone.into_iter().flat_map(|fate| removed.with(fate));
            let gone: HashSet<ObjectKey> = gone.map(Object::key).collect();
            stored.objects.retain(|(one, _)| !gone.contains(&one.key()));
            let foreign = [Removal::Adopted, Removal::NotOwned];
            let foreign = foreign.into_iter().flat_map(|fate| removed.with(fate));
            let foreign = foreign.filter(|object| !is_made_with_namespace(object));
            let left = removed.with(Removal::Kept).chain(foreign);
            stored.stays.extend(left.map(Object::key));
            match decide(Retained::of_removal().again(), stored.clone(), Some(due)).await {
                Ok(decided) => {
                    done.kept.extend(decided.kept.iter().map(Object::key));
                    stored.stays.extend(decided.stays);
                    objects = decided.objects;
                }
                Err(unseen) => {
                    failures.extend(unseen);
                    objects.retain(|(object, _)| !is_container(object));
                }
            }
        }
        // A removal has many kinds, before each of which a list would cost more than all else of it: that it goes its record says, which helm upgrades no more.
        let check = || std::future::ready(Ok::<_, Infallible>(()));
        let (others, into) = (&spec.other_releases, &mut removed);
        let deleted = delete_all(cluster, owner, others, spared, objects, check, into).await;
        match deleted {
            Ok(()) => {}
            Err(TakeBackError::Stopped(never)) => match never {},
            Err(TakeBackError::Delete(more)) => {
                for failure in more {
                    let foreign = stored.foreign(&failure);
                    let is_left = |object| is_given_up(cluster, owner, object, &failure);
                    if !foreign.is_some_and(is_left) {
                        failures.push(failure);
                        continue;
                    }
                    let (release, error) = (&spec.name, error_unquoted(&failure));
                    logging::warn!(release, error, "only a record of others names it, left");
                    done.not_owned.push(failure.key().clone());
                    stored.leave(failure.key());
                }
            }
        }
    }
    let keys = |fate| removed.with(fate).map(Object::key);
    done.kept.extend(keys(Removal::Kept));
    done.adopted.extend(keys(Removal::Adopted));
    done.not_owned.extend(keys(Removal::NotOwned));
    done.in_use.extend(keys(Removal::InUse));
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
    if !failures.is_empty() {
        return Err(failed(failures));
    }
    let deferred = removed.with(Removal::Deferred);
    let deferred: Vec<String> = deferred.map(|container| container.name.clone()).collect();
    if !deferred.is_empty() {
        return Err(UninstallError::NamespacesDeferred(deferred));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::Method;
    use parking_lot::Mutex;
    use rstest::rstest;
    use serde_json::json;

    use super::super::tests::{DAMAGED, InMemory, cluster, config_map, web};
    use super::super::uninstall;
    use super::*;
    use crate::kube::fixture;
    use crate::model::{Hook, Status};

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

    /// A namespace goes with all that is in it, and a definition goes before the objects of its kind. Somebody may say that something in it is to be kept,
    /// or take it, while what goes first still goes.
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
        #[values((false, false), (true, false), (false, true))] (is_of_hook, is_taken): (
            bool,
            bool,
        ),
        #[values(false, true)] is_late: bool,
    ) {
        let deleted = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&deleted);
        let cluster = fixture::server(move |method, path, _| match path {
            "/version" => Some((200, json!({}))),
            "/api" => {
                let kinds = [
                    ("PersistentVolumeClaim", true),
                    ("Namespace", false),
                    ("Service", true),
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
                if path.ends_with("/kept") && !(is_late && noted.lock().is_empty()) {
                    match is_taken {
                        true => Owner::new("other", "shop").mark(&mut live),
                        false => {
                            live["metadata"]["annotations"]["helm.sh/resource-policy"] =
                                json!("keep");
                        }
                    }
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
        release.manifest = object(version, container, name) + &object("v1", "Service", "a");
        let kept = object(api_version, kind, "kept");
        match is_of_hook {
            true => release.hooks.push(Hook {
                manifest: kept,
                events: vec!["post-install".to_owned()],
                ..Hook::default()
            }),
            false => release.manifest += &kept,
        }
        let storage = Storage::new(InMemory::default());
        storage.create(&release).await.unwrap();
        let spec = UninstallSpec::new("web", "shop");
        let done = uninstall(&cluster, &storage, &spec).await.unwrap();
        assert_eq!(*deleted.lock(), ["a"]);
        let mut kept: Vec<&str> = done.kept.iter().map(|key| key.name.as_str()).collect();
        kept.sort_unstable();
        let expected = [name, "kept"];
        assert_eq!(kept, expected[..2 - usize::from(is_of_hook || is_taken)]);
        assert_eq!(done.not_owned.len(), usize::from(is_taken));
    }

    /// An attempt below the deployed version made an object in its namespace that only the attempt's record asks to keep.
    #[rstest]
    #[case::its_record_is_damaged(true)]
    #[case::its_record_went_before_the_removal_was_cut_off(false)]
    #[tokio::test]
    async fn a_namespace_outlives_the_record_of_what_is_to_be_kept_in_it(#[case] is_damaged: bool) {
        let deleted = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&deleted);
        let cluster = fixture::server(move |method, path, _| match path {
            "/version" | "/apis" => Some((200, json!({}))),
            "/api" => {
                let kinds = [("PersistentVolumeClaim", true), ("Namespace", false)];
                Some(fixture::discovered(&[fixture::discovery("", &kinds)]))
            }
            path => {
                if *method == Method::DELETE {
                    noted.lock().push(path.to_owned());
                }
                let mut live = json!({"metadata": {"uid": "u", "resourceVersion": "7"}});
                Owner::new("web", "shop").mark(&mut live);
                Some((200, live))
            }
        });
        let namespace = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: data}\n";
        let disk = "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: disk, namespace: data, annotations: {helm.sh/resource-policy: keep}}\n";
        let mut attempt = web(1, false);
        attempt.set_status(Status::Failed, "");
        attempt.manifest = match is_damaged {
            true => DAMAGED.to_owned(),
            false => format!("{namespace}{disk}"),
        };
        let mut release = web(2, false);
        release.manifest = namespace.to_owned();
        let storage = Storage::new(InMemory::failing(2));
        storage.create(&attempt).await.unwrap();
        storage.create(&release).await.unwrap();
        let spec = UninstallSpec::new("web", "shop");
        let cut_off = uninstall(&cluster, &storage, &spec).await;
        assert!(
            matches!(cut_off, Err(UninstallError::Purge(_))),
            "{cut_off:?}"
        );
        assert_eq!(storage.history("web").await.unwrap().len(), 1);
        uninstall(&cluster, &storage, &spec).await.unwrap();
        assert_eq!(storage.history("web").await.unwrap().len(), 0);
        assert!(deleted.lock().is_empty(), "{deleted:?}");
    }

    /// An API server that does not answer may have what a former version left in a namespace, to be kept: one of two, in turns.
    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_long_for_a_kind_that_only_a_former_version_had() {
        let tries = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&tries);
        let cluster = fixture::server(move |_, path, _| match path {
            "/api" => {
                let kinds = [("Namespace", false)];
                Some(fixture::discovered(&[fixture::discovery("", &kinds)]))
            }
            "/apis" => Some(fixture::discovered(&[])),
            path if path.contains("/apiservices") => {
                let group = ["x.io", "y.io"][counted.load(Ordering::Relaxed) % 2];
                let service = json!({"spec": {"group": group, "version": "v1", "service": {}}});
                Some((200, json!({"items": [service]})))
            }
            _ => Some((200, json!({}))),
        });
        let namespace = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: data}\n";
        let car = |group: &str| {
            let metadata = "metadata: {name: a, namespace: data}";
            format!("---\napiVersion: {group}/v1\nkind: Car\n{metadata}\n")
        };
        let storage = Storage::new(InMemory::default());
        for (revision, group) in [(1, "x.io"), (2, "y.io")] {
            let mut former = web(revision, false);
            former.manifest = format!("{namespace}{}", car(group));
            former.set_status(Status::Superseded, "");
            storage.create(&former).await.unwrap();
        }
        let mut release = web(3, false);
        release.manifest = namespace.to_owned();
        let gone = storage.history("web").await.unwrap();
        let spec = UninstallSpec::new("web", "shop");
        let mut ends = Vec::new();
        for _ in 0..5 {
            let others = Others {
                revisions: &[],
                gone: &gone.iter().collect::<Vec<_>>(),
                are_incomplete: false,
            };
            let subject = (&release, Operation::Remove);
            let stored = stored_objects(&cluster, &storage, &spec, subject, others).await;
            let stored = stored.unwrap();
            assert!(stored.is_incomplete);
            ends.push(stored.waits_for.is_none());
            tries.fetch_add(1, Ordering::Relaxed);
            tokio::time::advance(std::time::Duration::from_secs(100)).await;
        }
        assert_eq!(ends, [false, false, false, true, true]);
    }

    /// Of an object that only somebody else's record names: what the account may not do may be otherwise in a moment, or never.
    #[rstest]
    #[case::it_may_not_be_read(Method::GET)]
    #[case::it_may_not_be_deleted(Method::DELETE)]
    #[tokio::test(start_paused = true)]
    async fn what_only_a_record_of_others_names_holds_up_no_removal_for_long(
        #[case] refused: Method,
        #[values(true, false)] is_foreign: bool,
    ) {
        let deleted = Arc::<Mutex<Vec<String>>>::default();
        let (noted, answered) = (Arc::clone(&deleted), refused.clone());
        let cluster = fixture::server(move |method, path, _| {
            let name = path.rsplit('/').next().unwrap_or_default();
            if name == "theirs" && *method == answered {
                return Some((403, json!({"kind": "Status", "code": 403})));
            }
            if noted.lock().iter().any(|gone| gone == name) {
                return Some(fixture::missing(name));
            }
            if *method == Method::DELETE {
                noted.lock().push(name.to_owned());
            }
            let mut live = json!({"metadata": {"uid": "u", "resourceVersion": "7",
                "managedFields": [{"manager": objects::managed_fields::FIELD_MANAGER, "operation": "Apply"}]}});
            Owner::new("web", "shop").mark(&mut live);
            Some((200, live))
        });
        let object = |kind: &str, namespace: Option<&str>, name: &str| {
            let object = fixture::object("", kind, Value::Null);
            Object {
                namespace: namespace.map(str::to_owned),
                name: name.to_owned(),
                ..object
            }
        };
        let theirs = object("ConfigMap", Some("data"), "theirs");
        let stored = Obsolete {
            foreign: is_foreign.then(|| theirs.key()).into_iter().collect(),
            objects: vec![
                (object("Service", Some("shop"), "front"), Operation::Remove),
                (theirs.clone(), Operation::Undo),
                (object("Namespace", None, "data"), Operation::Remove),
            ],
            ..Obsolete::default()
        };
        let (owner, spec) = (Owner::new("web", "shop"), UninstallSpec::new("web", "shop"));
        let mut ends = Vec::new();
        for _ in 0..12 {
            let mut done = Uninstalled::default();
            let removed =
                delete_objects(&cluster, &owner, &spec, None, stored.clone(), &mut done).await;
            ends.push(removed.is_ok());
            tokio::time::advance(std::time::Duration::from_secs(100)).await;
        }
        let is_over = ends.last() == Some(&true);
        assert_eq!(is_over, is_foreign, "{ends:?}");
        assert!(ends[..3].iter().all(|is_over| !is_over), "{ends:?}");
        let deleted = deleted.lock().clone();
        assert_eq!(
            deleted.contains(&"front".to_owned()),
            is_foreign || refused == Method::DELETE
        );
        assert!(!deleted.contains(&"data".to_owned()) && !deleted.contains(&"theirs".to_owned()));
    }

    /// All that the API server is to name have the same key, and are others.
    #[rstest]
    #[case::the_last_is_to_be_kept(["", "keep"], false)]
    #[case::the_first_is_to_be_kept(["keep", ""], false)]
    #[case::none_is(["", ""], true)]
    #[tokio::test]
    async fn a_namespace_stays_with_one_of_several_generated_names(
        #[case] policies: [&str; 2],
        #[case] goes: bool,
    ) {
        let deleted = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&deleted);
        let cluster = fixture::server(move |method, path, _| match path {
            "/version" => Some((200, json!({}))),
            "/api" => {
                let kinds = [("ConfigMap", true), ("Namespace", false)];
                Some(fixture::discovered(&[fixture::discovery("", &kinds)]))
            }
            "/apis" => Some(fixture::discovered(&[])),
            path => {
                let name = path.rsplit('/').next().unwrap_or_default();
                if *method == Method::DELETE {
                    noted.lock().push(name.to_owned());
                }
                let mut live = json!({"metadata": {"uid": "u", "resourceVersion": "7"}});
                Owner::new("web", "shop").mark(&mut live);
                Some((200, live))
            }
        });
        let mut release = web(1, false);
        release.manifest =
            "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: data}\n".to_owned();
        for policy in policies {
            release.manifest += &format!(
                "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{generateName: a-, namespace: data, annotations: {{helm.sh/resource-policy: {policy:?}}}}}\n"
            );
        }
        let storage = Storage::new(InMemory::default());
        storage.create(&release).await.unwrap();
        let spec = UninstallSpec::new("web", "shop");
        uninstall(&cluster, &storage, &spec).await.unwrap();
        assert_eq!(deleted.lock().contains(&"data".to_owned()), goes);
    }

    /// What a removal has deleted may be what it takes to read or to delete the rest.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Needed {
        /// Nothing is.
        Nothing,
        /// A policy refuses to delete a Service, and goes after it.
        Policy,
        /// The webhook behind the Service converts custom resources to the only version that is served.
        Webhook,
        /// What goes first gives the account its rights.
        Rights,
        /// The same, and somebody has asked meanwhile to keep what can be read no more.
        RightsToWhatIsKept,
        /// A controller makes what was deleted anew until it has gone itself.
        Controller,
    }

    /// By what the objects of a release need of it, with how many tries all of it goes.
    #[rstest]
    #[case::nothing(Needed::Nothing, 1)]
    #[case::what_its_policy_refused(Needed::Policy, 2)]
    #[case::what_its_webhook_converted(Needed::Webhook, 1)]
    #[case::what_its_account_could_read(Needed::Rights, 1)]
    #[case::what_its_account_could_read_to_stay(Needed::RightsToWhatIsKept, 1)]
    #[case::what_its_controller_made_anew(Needed::Controller, 1)]
    #[tokio::test(start_paused = true)]
    async fn a_removal_ends_though_it_deletes_what_the_rest_needs(
        #[case] needed: Needed,
        #[case] tries: u32,
        #[values(false, true)] has_hook: bool,
    ) {
        let deleted = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&deleted);
        let (reads, keep) = (
            AtomicUsize::new(0),
            json!({"helm.sh/resource-policy": "keep"}),
        );
        let cluster = fixture::server(move |method, path, _| match path {
            "/version" => Some((200, json!({}))),
            "/api" => {
                let kinds = [("Service", true), ("ConfigMap", true), ("Namespace", false)];
                Some(fixture::discovered(&[fixture::discovery("", &kinds)]))
            }
            "/apis" => {
                let definitions = [("CustomResourceDefinition", false)];
                let definitions = fixture::discovery("apiextensions.k8s.io", &definitions);
                let cars = fixture::discovery("x.io", &[("Car", true)]);
                Some(fixture::discovered(&[definitions, cars]))
            }
            path => {
                let name = path.rsplit('/').next().unwrap_or_default();
                let mut gone = noted.lock();
                let is_gone = |name: &str| gone.iter().any(|one| one == name);
                let refusal = |code: u16, message: &str| {
                    Some((
                        code,
                        json!({"kind": "Status", "code": code, "message": message}),
                    ))
                };
                let mut live = json!({"metadata": {"uid": "u", "resourceVersion": "7"}});
                match needed {
                    Needed::Policy
                        if *method == Method::DELETE && name == "front" && !is_gone("policy") =>
                    {
                        return refusal(403, "denied by the policy");
                    }
                    Needed::Webhook if path.contains("/cars/") && is_gone("front") => {
                        let message =
                            "conversion webhook for x.io/v1, Kind=Car failed: service not found";
                        return refusal(500, message);
                    }
                    Needed::Rights
                        if path.contains("/data/")
                            && is_gone("front")
                            && *method == Method::GET =>
                    {
                        return refusal(403, "no rights");
                    }
                    Needed::RightsToWhatIsKept if name == "inside" && *method == Method::GET => {
                        // The first decision, then the proof before the deletion.
                        match reads.fetch_add(1, Ordering::Relaxed) {
                            0 => {}
                            1 => live["metadata"]["annotations"] = keep.clone(),
                            _ => return refusal(403, "no rights"),
                        }
                    }
                    Needed::Controller if name == "inside" && is_gone("inside") => {
                        return Some((200, live));
                    }
                    _ if is_gone(name) || name == "hooked" => return Some(fixture::missing(name)),
                    _ => {}
                }
                if *method == Method::DELETE {
                    gone.push(name.to_owned());
                }
                Owner::new("web", "shop").mark(&mut live);
                Some((200, live))
            }
        });
        let object = |api_version: &str, kind: &str, namespace: &str, name: &str| {
            format!(
                "---\napiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: {name}, namespace: {namespace}}}\n"
            )
        };
        let mut release = web(1, false);
        release.manifest = [
            object("v1", "Service", "data", "inside"),
            object("v1", "Service", "shop", "front"),
            object("v1", "ConfigMap", "shop", "policy"),
            object("v1", "Namespace", "", "data"),
            object(
                "apiextensions.k8s.io/v1",
                "CustomResourceDefinition",
                "",
                "cars.x.io",
            ),
            object("x.io/v1", "Car", "shop", "beetle"),
        ]
        .concat();
        if has_hook {
            release.hooks.push(Hook {
                manifest: object("v1", "ConfigMap", "data", "hooked"),
                events: vec!["post-install".to_owned()],
                ..Hook::default()
            });
        }
        let storage = Storage::new(InMemory::default());
        storage.create(&release).await.unwrap();
        let spec = UninstallSpec::new("web", "shop");
        for _ in 1..tries {
            let failed = uninstall(&cluster, &storage, &spec).await;
            assert!(
                matches!(failed, Err(UninstallError::Delete { .. })),
                "{failed:?}"
            );
            assert!(!deleted.lock().contains(&"data".to_owned()));
        }
        let done = uninstall(&cluster, &storage, &spec).await.unwrap();
        let stays = needed == Needed::RightsToWhatIsKept;
        assert_eq!(done.kept.is_empty(), !stays, "{done:?}");
        let deleted = deleted.lock().clone();
        for name in ["front", "policy", "cars.x.io"] {
            assert!(deleted.contains(&name.to_owned()), "{name}: {deleted:?}");
        }
        for name in ["inside", "data"] {
            assert_eq!(
                deleted.contains(&name.to_owned()),
                !stays,
                "{name}: {deleted:?}"
            );
        }
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
}
