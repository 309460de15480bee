//! Deleting objects of hooks: they carry no marks of a release, but they say that they are hooks, and most of which run.

use jiff::Timestamp;
use objects::Object;
use objects::readiness::Status;
use objects::readiness::wait::{self, Mode};
use serde_json::Value;
use tokio::time::sleep;

use super::outcome::{DeleteError, Removal};
use crate::kube::claim::{HookClaim, HookVerdict, runs, stays_for_next_run};
use crate::kube::client::Cluster;
use crate::kube::error::ApiError;
use crate::kube::ownership::{Created, Deletable, HookState, RunMark};
use crate::kube::transport::found_to_write;
use crate::kube::tries::{MAX_TRIES, pause};

/// Reads the object with the name of a hook that no policy makes way for. What another run of the release left, and what should have gone by the
/// hook's policies as it ended in one of the ways `goes`, goes now: that run was cut off before. Gives [`Removal::NotOwned`] for what is in the
/// way, and says which one was deleted. Helm creates its hooks, and fails where anything has the name.
pub(crate) async fn clear_name(
    cluster: &Cluster,
    claim: HookClaim<'_>,
    object: &Object,
    goes: &[Status],
) -> Result<(Removal, Option<Created>), ApiError> {
    if object.name.is_empty() {
        return Ok((Removal::Absent, None));
    }
    let Some(live) = found_to_write(cluster.get_metadata(object).await)? else {
        return Ok((Removal::Absent, None));
    };
    if claim.verdict(object, &live) != HookVerdict::Refuse {
        return Ok((Removal::Kept, None));
    }
    if claim.run.state(&live) != HookState::Former || goes.is_empty() {
        return Ok((Removal::NotOwned, None));
    }
    delete_ended(cluster, claim.run, HookState::Former, object, goes).await
}

/// Deletes what `run` itself wrote, if that has failed. Says which one was deleted.
pub(crate) async fn delete_failed(
    cluster: &Cluster,
    run: &RunMark,
    object: &Object,
) -> Result<Option<Created>, ApiError> {
    let goes = [Status::Failed];
    let deleted = delete_ended(cluster, run, HookState::This, object, &goes).await?;
    Ok(deleted.1)
}

/// Deletes a hook's object that is this to `run`, if it has ended in one of the ways `goes`.
async fn delete_ended(
    cluster: &Cluster,
    run: &RunMark,
    is: HookState,
    object: &Object,
    goes: &[Status],
) -> Result<(Removal, Option<Created>), ApiError> {
    if object.name.is_empty() {
        return Ok((Removal::Absent, None));
    }
    let mut tries = 1;
    loop {
        // Only the whole object says how it ended.
        let Some(live) = cluster.get(object).await? else {
            return Ok((Removal::Absent, None));
        };
        let ended = wait::read(&live, &[], Mode::Hook, cluster.host().now()).status;
        let proof = run.owner().hook(&live);
        let proof = proof.filter(|_| run.state(&live) == is && goes.contains(&ended));
        let Some(proof) = proof else {
            return Ok((Removal::NotOwned, None));
        };
        match cluster.delete(object, &proof, false).await {
            Ok(()) => return Ok((Removal::Deleted, Created::from_answer(&live))),
            Err(error) if error.is_not_found() => return Ok((Removal::Absent, None)),
            // The object's status was written since.
            Err(error) if error.is_conflict() && tries < MAX_TRIES => {
                sleep(pause(tries)).await;
                tries += 1;
            }
            Err(error) if error.is_conflict() => return Ok((Removal::NotOwned, None)),
            Err(error) => return Err(error),
        }
    }
}

/// Which objects with a hook's name are deleted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HookInstance<'a> {
    /// Any that says that it is a hook and that no other release has marked: it makes way for this run, once it has ended where it is no run of this
    /// release. Helm deletes whatever has the name.
    Before(&'a RunMark),
    /// The one that a run wrote.
    Written(&'a RunMark, &'a Created),
    /// An object with the mark of this run.
    Of(&'a RunMark),
}

impl HookInstance<'_> {
    /// The proof that `live` may be deleted; none if it is something else.
    fn proof(self, live: &Value) -> Option<Deletable> {
        let (owner, is_it) = match self {
            Self::Before(run) => (run.owner(), true),
            Self::Written(run, instance) => (run.owner(), instance.is(live)),
            Self::Of(run) => (run.owner(), run.state(live) == HookState::This),
        };
        owner.hook(live).filter(|_| is_it)
    }

    /// Whether `live`, read whole, does its work still for others than it is deleted for: a migration of another release, which is not cut off.
    fn goes_on(self, live: &Value, now: Timestamp) -> bool {
        let Self::Before(run) = self else {
            return false;
        };
        let status = wait::read(live, &[], Mode::Hook, now).status;
        let is_over = matches!(
            status,
            Status::Current | Status::Failed | Status::Terminating
        );
        run.state(live) == HookState::Foreign && !is_over
    }
}

/// Deletes a hook's object. Hooks carry no marks of a release, but they say that they are hooks: what
/// does not, and what another release marked, is left alone, as is what holds more than itself and what asks to be kept. Of what runs
/// nothing is kept: it would not run again, and its template cannot be changed. What runs for another release is left until it has ended.
/// Says which one was deleted.
pub(crate) async fn delete_hook(
    cluster: &Cluster,
    which: HookInstance<'_>,
    object: &Object,
) -> Result<(Removal, Option<Created>), DeleteError> {
    if object.name.is_empty() {
        return Ok((Removal::Absent, None));
    }
    let failed = |error| DeleteError::new(object, error);
    // Only the whole object says whether it has ended.
    let may_run = runs(object) && matches!(which, HookInstance::Before(_));
    let mut tries = 1;
    loop {
        let live = match may_run {
            true => cluster.get(object).await,
            false => cluster.get_metadata(object).await,
        };
        // Of a hook's object nothing tells but itself: one whose kind is not served is left, as one that was never made.
        let Some(live) = found_to_write(live).map_err(failed)? else {
            return Ok((Removal::Absent, None));
        };
        let Some(proof) = which.proof(&live) else {
            return Ok((Removal::NotOwned, None));
        };
        if may_run && which.goes_on(&live, cluster.host().now()) {
            return Ok((Removal::Running, None));
        }
        if stays_for_next_run(object, &live) {
            return Ok((Removal::Kept, None));
        }
        match cluster.delete(object, &proof, false).await {
            Ok(()) => return Ok((Removal::Deleted, Created::from_answer(&live))),
            Err(error) if error.is_not_found() => return Ok((Removal::Absent, None)),
            // A Job's status is written all the time.
            Err(error) if error.is_conflict() && tries < MAX_TRIES => {
                sleep(pause(tries)).await;
                tries += 1;
            }
            Err(error) => return Err(failed(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use chart::manifest::HOOK_ANNOTATION;
    use http::{Method, Request, Response};
    use kube::client::Body;
    use objects::managed_fields::FIELD_MANAGER;
    use serde_json::json;
    use tower::BoxError;

    use super::*;
    use crate::kube::fixture;
    use crate::kube::ownership::Owner;
    use crate::record::{RecordId, RecordUid};

    /// A Job's status is written between the look and the deletion.
    #[tokio::test]
    async fn deleting_a_former_hook_run_reads_it_again_after_a_conflict() {
        let run = |revision| {
            let uid = RecordUid::new("u");
            let record = RecordId { revision, uid };
            RunMark::new(Owner::new("web", "shop"), &record, "post-delete")
        };
        let mut live = json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": "a", "namespace": "shop", "uid": "u", "resourceVersion": "7",
                "annotations": {HOOK_ANNOTATION: "post-delete"},
                "managedFields": [{"manager": FIELD_MANAGER, "operation": "Apply"}],
            },
            "status": {"conditions": [{"type": "Failed", "status": "True"}]},
        });
        run(2).sign(&mut live);
        let deletions = Arc::new(AtomicU32::new(0));
        let tried = Arc::clone(&deletions);
        let serve = tower::service_fn(move |request: Request<Body>| {
            let is_deletion = request.method() == Method::DELETE;
            let (code, answer) = match is_deletion && tried.fetch_add(1, Ordering::Relaxed) == 0 {
                true => (
                    409,
                    json!({"kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict"}),
                ),
                false => (200, live.clone()),
            };
            async move {
                let answer = Body::from(answer.to_string().into_bytes());
                Ok::<_, BoxError>(Response::builder().status(code).body(answer)?)
            }
        });
        let cluster = Cluster::new(kube::Client::new(serve, "n"));
        let run = run(3);
        let claim = HookClaim {
            run: &run,
            makes_way: false,
            is_resumed: false,
        };
        let object = fixture::object("batch", "Job", Value::Null);
        let cleared = clear_name(&cluster, claim, &object, &[Status::Failed]).await;
        assert_eq!(cleared.unwrap().0, Removal::Deleted);
        assert_eq!(deletions.load(Ordering::Relaxed), 2);
    }

    /// By whose run it is: its own, another of its release, another release's, a person's, a client's that does not say.
    #[test]
    fn a_running_hook_of_another_release_is_not_deleted() {
        let run = |name: &str, revision| {
            let uid = RecordUid::new("u");
            let record = RecordId { revision, uid };
            RunMark::new(Owner::new(name, "shop"), &record, "pre-upgrade")
        };
        let mine = run("web", 3);
        let which = HookInstance::Before(&mine);
        let job = |of: Option<&RunMark>, manager: &str, status: Value| {
            let mut live = json!({
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {
                    "name": "a", "namespace": "shop",
                    "annotations": {HOOK_ANNOTATION: "pre-upgrade"},
                    "managedFields": [{"manager": manager, "operation": "Apply"}],
                },
                "status": status,
            });
            if let Some(of) = of {
                of.sign(&mut live);
            }
            live
        };
        let ended = |how: &str| json!({"conditions": [{"type": how, "status": "True"}]});
        let (former, foreign) = (run("web", 2), run("other", 3));
        let by = [
            (Some(&mine), FIELD_MANAGER, false),
            (Some(&former), FIELD_MANAGER, false),
            (Some(&foreign), FIELD_MANAGER, true),
            (None, "kubectl-create", true),
            (None, "helm", false),
        ];
        for (of, manager, expected) in by {
            let goes_on = |status| which.goes_on(&job(of, manager, status), Timestamp::UNIX_EPOCH);
            assert_eq!(goes_on(json!({"active": 1})), expected, "{of:?} {manager}");
            assert!(!goes_on(ended("Complete")) && !goes_on(ended("Failed")));
        }
        let others = job(Some(&foreign), FIELD_MANAGER, json!({"active": 1}));
        assert!(!HookInstance::Of(&mine).goes_on(&others, Timestamp::UNIX_EPOCH));
    }
}
