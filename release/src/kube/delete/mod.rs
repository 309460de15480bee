//! Deleting what a release no longer has, and only what is provably its own.
//!
//! An object that vanished from the manifest, or whose release is uninstalled, is read first, and
//! [`judge`](crate::state::ownership::judge) says whether it may go. The deletion names uid and version of what was
//! read: an object that was recreated or adopted in between is read again.

mod containers;
mod hooks;
mod left_over;
mod outcome;
mod proof;

use futures_util::{FutureExt as _, StreamExt as _, stream};
use objects::{Object, ObjectKey};
use tokio::time::sleep;

pub(crate) use self::containers::{
    Content, Contents, Held, Unseen, forget_removal, forget_unserved, is_deferred, is_given_up,
    is_made_with_namespace, leave_held, read_contents, waits_for_served,
};
use self::containers::{leave, usage};
pub(crate) use self::hooks::{HookInstance, clear_name, delete_failed, delete_hook};
pub use self::left_over::delete_left_over;
pub(crate) use self::outcome::TakeBackError;
pub use self::outcome::{DeleteError, Removal, Removed};
pub(crate) use self::proof::Spared;
use self::proof::prove;
use super::client::Cluster;
use super::ownership::{Created, Owner};
use super::transport::PARALLEL;
use super::tries::{MAX_TRIES, pause};
use crate::others::{ContainerUsage, OtherReleases};
use crate::state::ownership::Operation;

/// Deletes those of `objects` that an operation may take from `owner`, kind by kind in the given order. All are
/// tried; of a namespace or definition `other_releases` are asked at that moment. What is `spared` stays.
///
/// `check` is asked before each kind whether nobody has gone on with the release meanwhile: objects of one kind go together, and the next may wait
/// for webhooks, or for objects that are written all the time. Most operations delete none, or of one kind, so that this costs them no request more.
///
/// What became of each is added to `removed`.
///
/// # Errors
/// [`TakeBackError`].
///
/// # Cancellation
/// What was deleted stays so; asking again is safe.
pub(crate) async fn delete_all<E, F>(
    cluster: &Cluster,
    owner: &Owner,
    other_releases: &OtherReleases,
    spared: Spared<'_>,
    objects: Vec<(Object, Operation)>,
    check: impl Fn() -> F,
    removed: &mut Removed,
) -> Result<(), TakeBackError<E>>
where
    F: Future<Output = Result<(), E>>,
{
    let mut failures = Vec::new();
    for kind in objects.chunk_by(|(a, _), (b, _)| a.resource.kind == b.resource.kind) {
        if let Err(stopped) = check().await {
            report_left(owner, &failures);
            return Err(TakeBackError::Stopped(stopped));
        }
        let deletions: Vec<_> = kind
            .iter()
            .map(|(object, operation)| {
                delete_owned(cluster, owner, other_releases, spared, (object, *operation)).boxed()
            })
            .collect();
        let fates: Vec<_> = stream::iter(deletions).buffered(PARALLEL).collect().await;
        let fates = fates
            .into_iter()
            .zip(kind)
            .map(|(fate, (object, _))| match fate {
                // The API server deletes what is of a definition before that. There is nothing at their address any more, or nobody who converts them.
                Err(failed)
                    if (failed.source.is_unserved() || failed.source.is_unconverted())
                        && removed.took_definition_of(object) =>
                {
                    Ok(Removal::Absent)
                }
                fate => fate,
            });
        let fates: Vec<_> = fates.collect();
        for ((object, _), fate) in kind.iter().zip(fates) {
            match fate {
                Ok(fate) => removed.objects.push((object.clone(), fate)),
                Err(failed) => failures.push(failed),
            }
        }
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(TakeBackError::Delete(failures)),
    }
}

/// Whether none of `objects` would be refused to who deletes them: an account may lack a right, a webhook may say no. What would be left
/// anyway is not asked for.
///
/// # Errors
/// What cannot be deleted.
pub(crate) async fn check_deletable(
    cluster: &Cluster,
    owner: &Owner,
    other_releases: &OtherReleases,
    spared: Spared<'_>,
    objects: &[(Object, Operation)],
) -> Result<(), Vec<DeleteError>> {
    let checks: Vec<_> = objects
        .iter()
        .map(|(object, operation)| {
            let check = async {
                if usage(object, other_releases) != ContainerUsage::Unused {
                    return Ok(());
                }
                let proof = prove(cluster, owner, spared, (object, *operation), None).await;
                let Ok(proof) = proof.map_err(|error| DeleteError::unseen(object, error))? else {
                    return Ok(());
                };
                match cluster.delete(object, &proof, true).await {
                    // Another client deletes the object, or has changed it: the next step reads it again.
                    Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
                    tried => tried.map_err(|error| DeleteError::new(object, error)),
                }
            };
            async move { check.await.err() }.boxed()
        })
        .collect();
    let refused: Vec<_> = stream::iter(checks).buffered(PARALLEL).collect().await;
    let refused: Vec<_> = refused.into_iter().flatten().collect();
    match refused.is_empty() {
        true => Ok(()),
        false => Err(refused),
    }
}

/// What an attempt created, the last first.
pub(crate) fn newest_first(created: &[(Object, Created)]) -> Vec<(&Object, Option<&Created>)> {
    let created = created.iter().rev();
    created.map(|(object, one)| (object, Some(one))).collect()
}

/// Takes back what an attempt brought, kind by kind in the given order, as far as it is still `owner`'s, is not `spared`, and where the attempt is known to have created it, is still that. All are tried.
///
/// `check` is asked whether nobody has gone on from the attempt once objects were read, and before those very versions are deleted: whoever goes on
/// writes a record before he writes an object.
///
/// # Errors
/// [`TakeBackError`].
pub(crate) async fn take_back<E, F>(
    cluster: &Cluster,
    owner: &Owner,
    spared: Spared<'_>,
    brought: &[(&Object, Option<&Created>)],
    check: impl Fn() -> F,
) -> Result<(), TakeBackError<E>>
where
    F: Future<Output = Result<(), E>>,
{
    let mut failures = Vec::new();
    let kinds = brought.chunk_by(|(a, _), (b, _)| a.resource.kind == b.resource.kind);
    for some in kinds.flat_map(|kind| kind.chunks(PARALLEL)) {
        let mut left = some.to_vec();
        let mut tries = 1;
        loop {
            let reads: Vec<_> = left
                .iter()
                .map(|(object, instance)| {
                    prove(cluster, owner, spared, (object, Operation::Undo), *instance).boxed()
                })
                .collect();
            let proofs: Vec<_> = stream::iter(reads).buffered(PARALLEL).collect().await;
            let mut proven = Vec::new();
            for (one, proof) in left.drain(..).zip(proofs) {
                match proof {
                    Ok(Ok(proof)) => proven.push((one, proof)),
                    Ok(Err(_)) => {}
                    Err(source) => failures.push(DeleteError::unseen(one.0, source)),
                }
            }
            if proven.is_empty() {
                break;
            }
            if let Err(stopped) = check().await {
                report_left(owner, &failures);
                return Err(TakeBackError::Stopped(stopped));
            }
            let deletions: Vec<_> = proven
                .iter()
                .map(|((object, _), proof)| cluster.delete(object, proof, false).boxed())
                .collect();
            let done: Vec<_> = stream::iter(deletions).buffered(PARALLEL).collect().await;
            for ((one, _), done) in proven.into_iter().zip(done) {
                match done {
                    Ok(()) => {}
                    Err(error) if error.is_not_found() => {}
                    // The object is another one by now, or has changed: its writer has to be determined first.
                    Err(error)
                        if (error.is_conflict() || error.is_unserved()) && tries < MAX_TRIES =>
                    {
                        left.push(one);
                    }
                    Err(source) => failures.push(DeleteError::new(one.0, source)),
                }
            }
            if left.is_empty() {
                break;
            }
            sleep(pause(tries)).await;
            tries += 1;
        }
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(TakeBackError::Delete(failures)),
    }
}

/// Logs what could not be deleted before it was seen that somebody has gone on with the release: they are reported nowhere else.
fn report_left(owner: &Owner, failures: &[DeleteError]) {
    for failed in failures {
        let (release, reason) = (&owner.name, failed.source.reason());
        let ObjectKey {
            namespace,
            name,
            kind,
            ..
        } = failed.key();
        logging::warn!(
            release,
            namespace,
            kind,
            name,
            reason,
            "cannot be deleted, left"
        );
    }
}

async fn delete_owned(
    cluster: &Cluster,
    owner: &Owner,
    other_releases: &OtherReleases,
    spared: Spared<'_>,
    (object, operation): (&Object, Operation),
) -> Result<Removal, DeleteError> {
    let mut tries = 1;
    loop {
        let proof = prove(cluster, owner, spared, (object, operation), None).await;
        let proof = match proof.map_err(|error| DeleteError::unseen(object, error))? {
            Ok(proof) => proof,
            Err(stays) => return Ok(stays),
        };
        match usage(object, other_releases) {
            ContainerUsage::Unused => {}
            ContainerUsage::Draining => return Ok(Removal::Deferred),
            ContainerUsage::InUse => {
                let reached = (object, operation);
                return leave(cluster, owner, other_releases, spared, reached).await;
            }
        }
        match cluster.delete(object, &proof, false).await {
            Ok(()) => return Ok(Removal::Deleted),
            Err(error) if error.is_not_found() => return Ok(Removal::Absent),
            // The object is another one by now, or has changed: its owner has to be determined again; or its kind may be gone.
            Err(error) if (error.is_conflict() || error.is_unserved()) && tries < MAX_TRIES => {
                sleep(pause(tries)).await;
                tries += 1;
            }
            Err(error) => return Err(DeleteError::new(object, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use http::{Method, Request, Response};
    use kube::client::Body;
    use objects::managed_fields::FIELD_MANAGER;
    use serde_json::{Value, json};
    use tower::BoxError;

    use super::super::fixture;
    use super::*;
    use crate::others::{Container, WhyLeft};

    /// Somebody rolls the release back while its first kind is deleted.
    #[tokio::test]
    async fn deletion_stops_before_the_next_kind_when_another_client_writes_a_record() {
        let deleted = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&deleted);
        let serve = tower::service_fn(move |request: Request<Body>| {
            let is_deletion = request.method() == Method::DELETE;
            counted.fetch_add(u32::from(is_deletion), Ordering::Relaxed);
            let live = json!({"metadata": {
                "name": "a", "namespace": "shop", "uid": "u", "resourceVersion": "7",
                "labels": {"app.kubernetes.io/managed-by": "Helm"},
                "annotations": {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "shop"},
                "managedFields": [{"manager": FIELD_MANAGER, "operation": "Apply"}],
            }});
            let answer = Body::from(live.to_string().into_bytes());
            std::future::ready(Ok::<_, BoxError>(Response::new(answer)))
        });
        let cluster = Cluster::new(kube::Client::new(serve, "n"));
        let owner = Owner::new("web", "shop");
        let kinds = ["ConfigMap", "ConfigMap", "Service", "Secret"];
        let objects = kinds.map(|kind| fixture::object("", kind, Value::Null));
        let objects = || objects.clone().map(|object| (object, Operation::Remove));
        let delete = async |stops_at: u32| {
            let asked = AtomicU32::new(0);
            let check = || {
                let is_stopped = asked.fetch_add(1, Ordering::Relaxed) == stops_at;
                std::future::ready(match is_stopped {
                    true => Err("rolled back"),
                    false => Ok(()),
                })
            };
            let (other_releases, objects) = (OtherReleases::default(), objects().into());
            let done = delete_all(
                &cluster,
                &owner,
                &other_releases,
                Spared::default(),
                objects,
                check,
                &mut Removed::default(),
            )
            .await;
            (done, deleted.swap(0, Ordering::Relaxed))
        };
        for (stops_at, expected) in [(0, 0), (1, 2), (2, 3)] {
            let (done, deleted) = delete(stops_at).await;
            let is_stopped = matches!(done, Err(TakeBackError::Stopped("rolled back")));
            assert!(is_stopped, "{done:?}");
            assert_eq!(deleted, expected);
        }
        let (done, deleted) = delete(3).await;
        assert!(done.is_ok(), "{done:?}");
        assert_eq!(deleted, 4);
    }

    /// A definition is gone a moment after it is deleted, with all that is of it, and what the API server says it serves comes later.
    #[tokio::test(start_paused = true)]
    async fn an_object_whose_definition_was_just_deleted_counts_as_gone() {
        let owner = Owner::new("web", "shop");
        let mut live =
            json!({"metadata": {"name": "cars.x.io", "uid": "u", "resourceVersion": "7"}});
        owner.mark(&mut live);
        let listed = fixture::discovery("x.io", &[("Car", true)]);
        let cluster = fixture::server(move |_, path, _| match path {
            "/version" => Some((200, json!({}))),
            "/api" => Some(fixture::discovered(&[])),
            "/apis" => Some(fixture::discovered(std::slice::from_ref(&listed))),
            path if path.ends_with("/cars.x.io") => Some((200, live.clone())),
            _ => None,
        });
        let mut definition = fixture::object(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            Value::Null,
        );
        definition.name = "cars.x.io".to_owned();
        let car = fixture::object("x.io", "Car", Value::Null);
        let delete = async |objects: Vec<Object>| {
            let objects = objects
                .into_iter()
                .map(|object| (object, Operation::Remove));
            let check = || std::future::ready(Ok::<_, &str>(()));
            let (none, objects) = (OtherReleases::default(), objects.collect());
            let (spared, mut removed) = (Spared::default(), Removed::default());
            let into = &mut removed;
            let done = delete_all(&cluster, &owner, &none, spared, objects, check, into).await;
            done.map(|()| removed.objects.into_iter().map(|(_, fate)| fate).collect())
        };
        let fates: Vec<_> = delete(vec![definition, car.clone()]).await.unwrap();
        assert_eq!(fates, [Removal::Deleted, Removal::Absent]);
        let alone: Result<Vec<_>, _> = delete(vec![car]).await;
        assert!(matches!(alone, Err(TakeBackError::Delete(_))), "{alone:?}");
    }

    /// What is left to others is told of where it is left, and of nothing else.
    #[tokio::test]
    async fn a_definition_that_others_have_objects_of_is_left_without_its_marks() {
        let written = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let sent = Arc::clone(&written);
        let serve = tower::service_fn(move |request: Request<Body>| {
            if request.method() != Method::GET {
                sent.lock().push(request.method().clone());
            }
            let live = json!({"metadata": {
                "name": "cars.x.io", "uid": "u", "resourceVersion": "7",
                "labels": {"app.kubernetes.io/managed-by": "Helm"},
                "annotations": {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "shop"},
                "managedFields": [{"manager": FIELD_MANAGER, "operation": "Apply"}],
            }});
            let answer = Body::from(live.to_string().into_bytes());
            std::future::ready(Ok::<_, BoxError>(Response::new(answer)))
        });
        let cluster = Cluster::new(kube::Client::new(serve, "n"));
        let owner = Owner::new("web", "shop");
        let mut definition = fixture::object(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            Value::Null,
        );
        definition.name = "cars.x.io".to_owned();
        let reported = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&reported);
        let others = OtherReleases::new(|container| match container.name() {
            "cars.x.io" => ContainerUsage::InUse,
            _ => ContainerUsage::Unused,
        });
        let others = others.reporting(move |container, why| {
            let expected = (Container::Definition("cars.x.io"), WhyLeft::Others);
            assert_eq!((container, why), expected);
            counted.fetch_add(1, Ordering::Relaxed);
        });
        for operation in [Operation::Drop, Operation::Remove] {
            let object = (&definition, operation);
            let fate = delete_owned(&cluster, &owner, &others, Spared::default(), object).await;
            assert_eq!(fate.unwrap(), Removal::InUse);
        }
        // The same where something in it holds it as well.
        let held = |is_unread| {
            [Held {
                object: definition.clone(),
                operation: Operation::Drop,
                is_unread,
            }]
        };
        let (spared, both) = (Spared::default(), held(true));
        let left = leave_held(&cluster, &owner, &others, spared, &both);
        left.await.unwrap();
        assert_eq!(
            *written.lock(),
            [Method::PATCH, Method::PATCH, Method::PATCH]
        );
        assert_eq!(reported.load(Ordering::Relaxed), 3);
        // Nobody else uses it: it stays as it is, and is told of only as unread.
        let reported = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&reported);
        let nobody = OtherReleases::default().reporting(move |_, why| {
            assert_eq!(why, WhyLeft::Unread);
            counted.fetch_add(1, Ordering::Relaxed);
        });
        for is_unread in [false, true] {
            let (spared, held) = (Spared::default(), held(is_unread));
            let left = leave_held(&cluster, &owner, &nobody, spared, &held);
            left.await.unwrap();
        }
        assert_eq!(written.lock().len(), 3);
        assert_eq!(reported.load(Ordering::Relaxed), 1);
    }
}
