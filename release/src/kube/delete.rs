//! Deleting what a release no longer has, and only what is provably its own.
//!
//! An object that vanished from the manifest, or whose release is uninstalled, is read first, and
//! [`judge`](crate::state::ownership::judge) says whether it may go. The deletion names uid and version of what was
//! read: an object that was recreated or adopted in between is read again.

use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _, stream};
use jiff::Timestamp;
use objects::Object;
use objects::readiness::Status;
use objects::readiness::wait::{self, Mode};
use serde_json::Value;
use tokio::time::sleep;

use super::claim::{HookClaim, HookVerdict, runs, stays_for_next_run};
use super::client::Cluster;
use super::error::ApiError;
use super::ownership::{Created, Deletable, HookState, Owner, RunMark};
use super::transport::{PARALLEL, found_to_write};
use super::version::WrittenObjects;
use crate::others::{Container, ContainerUsage, OtherReleases};
use crate::state::ownership::{ObjectState, Operation};

/// How often an object that is written all the time is read before it is deleted or written, and the pauses between tries: some ten
/// seconds in all.
pub(super) const MAX_TRIES: u32 = 20;
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(800);

/// The pause after so many tries.
pub(super) fn pause(tries: u32) -> Duration {
    let grown = FIRST_PAUSE * 2_u32.saturating_pow(tries.min(10) - 1);
    grown.min(LONGEST_PAUSE)
}

/// Result of deleting one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// The object was deleted.
    Deleted,
    /// The object was gone already.
    Absent,
    /// The object's resource policy keeps it.
    Kept,
    /// The object was there before the release, which only adopted it.
    Adopted,
    /// The object is not this release's.
    NotOwned,
    /// A namespace or definition that other releases are in or about to come to, which was left to them.
    InUse,
    /// A namespace or definition that other releases are in which are about to go.
    Deferred,
    /// The object is of another release's hook, which has not ended.
    Running,
    /// The object is one that was written just now, under another group or kind.
    Written,
}

/// Objects of the release's own that a deletion leaves.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spared<'a> {
    /// When the first attempt at the release began: an undo leaves what is older.
    pub(crate) since: Option<Timestamp>,
    /// What the same attempt has written.
    pub(crate) written: Option<&'a WrittenObjects>,
}

impl Spared<'_> {
    /// What an undo leaves of a release whose first attempt began at `since`.
    pub(crate) fn before(since: Option<Timestamp>) -> Self {
        Self {
            since,
            written: None,
        }
    }
}

/// Result of deleting objects.
#[derive(Debug, Default)]
pub struct Removed {
    /// In the order of the objects given.
    pub objects: Vec<(Object, Removal)>,
}

impl Removed {
    /// The objects with this fate.
    pub fn with(&self, removal: Removal) -> impl Iterator<Item = &Object> {
        self.objects
            .iter()
            .filter(move |(_, fate)| *fate == removal)
            .map(|(object, _)| object)
    }

    /// Whether the definition of an object's kind went.
    fn took_definition_of(&self, object: &Object) -> bool {
        let gone = self
            .with(Removal::Deleted)
            .chain(self.with(Removal::Absent));
        gone.filter(|one| one.is_crd())
            .any(|definition| definition.name == object.resource.definition_name())
    }
}

/// An object could not be deleted. The text is Helm's.
#[derive(Debug, thiserror::Error)]
#[error("failed to delete resource namespace={namespace}, name={name}, kind={kind}")]
pub struct DeleteError {
    namespace: String,
    name: String,
    kind: String,
    /// Whether the object could not be read, so that no deletion was sent.
    is_unseen: bool,
    source: ApiError,
}

impl DeleteError {
    /// Of an object by its name.
    #[cfg(test)]
    pub(crate) fn of(namespace: &str, name: &str, kind: &str, source: ApiError) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            kind: kind.to_owned(),
            is_unseen: false,
            source,
        }
    }

    /// The error of an object that could not be read.
    fn unseen(object: &Object, source: ApiError) -> Self {
        Self {
            is_unseen: true,
            ..Self::new(object, source)
        }
    }

    fn new(object: &Object, source: ApiError) -> Self {
        Self {
            namespace: object.namespace.clone().unwrap_or_default(),
            name: object.name.clone(),
            kind: object.resource.kind.clone(),
            is_unseen: false,
            source,
        }
    }

    /// Whether only a read of the object failed.
    pub(crate) fn is_unseen(&self) -> bool {
        self.is_unseen
    }

    /// Whether its object is one of this namespace.
    pub(crate) fn is_in(&self, namespace: &str) -> bool {
        self.namespace == namespace
    }

    /// Whether the object may be deleted all the same.
    pub(crate) fn is_outcome_unknown(&self) -> bool {
        self.source.is_outcome_unknown()
    }
}

/// Deletes those of `objects` that an operation may take from `owner`, kind by kind in the given order. All are
/// tried; of a namespace or definition `other_releases` are asked at that moment. What is `spared` stays.
///
/// `check` is asked before each kind whether nobody has gone on with the release meanwhile: objects of one kind go together, and the next may wait
/// for webhooks, or for objects that are written all the time. Most operations delete none, or of one kind, so that this costs them no request more.
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
) -> Result<Removed, TakeBackError<E>>
where
    F: Future<Output = Result<(), E>>,
{
    let mut removed = Removed::default();
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
                // The API server deletes what is of a definition before that, and has nothing at their address any more.
                Err(failed)
                    if failed.source.is_unserved() && removed.took_definition_of(object) =>
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
    if failures.is_empty() {
        Ok(removed)
    } else {
        Err(TakeBackError::Delete(failures))
    }
}

/// Whether a namespace that may be deleted has releases in it that are about to go.
///
/// # Errors
/// The object cannot be read.
pub(crate) async fn is_deferred(
    cluster: &Cluster,
    owner: &Owner,
    other_releases: &OtherReleases,
    namespace: &Object,
    operation: Operation,
) -> Result<bool, DeleteError> {
    if usage(namespace, other_releases) != ContainerUsage::Draining {
        return Ok(false);
    }
    let proof = prove(
        cluster,
        owner,
        Spared::default(),
        (namespace, operation),
        None,
    )
    .await;
    let proof = proof.map_err(|error| DeleteError::unseen(namespace, error))?;
    Ok(proof.is_ok())
}

/// Those of `objects` that stay where what contains them goes not: an operation would leave them, as they ask to be kept or were there before the
/// release, or, without an operation, a record asks to keep them and they are there, or cannot be read. All are read before anything is deleted.
pub(crate) async fn find_kept<'o>(
    cluster: &Cluster,
    owner: &Owner,
    spared: Spared<'_>,
    objects: &[(&'o Object, Option<Operation>)],
) -> Contents<'o> {
    let looks: Vec<_> = objects
        .iter()
        .map(|(object, operation)| {
            let reached = (*object, operation.unwrap_or(Operation::Drop));
            prove(cluster, owner, spared, reached, None).boxed()
        })
        .collect();
    let proofs: Vec<_> = stream::iter(looks).buffered(PARALLEL).collect().await;
    let mut found = Contents::default();
    for ((object, operation), proof) in objects.iter().zip(proofs) {
        match (proof, operation) {
            (Ok(Err(Removal::Absent)), _) => {}
            (Ok(Err(Removal::Adopted)), Some(_)) if is_made_with_namespace(object) => {}
            (Ok(Err(Removal::Kept | Removal::Adopted)), _) | (_, None) => found.kept.push(*object),
            (Ok(_), Some(_)) => {}
            (Err(source), Some(_)) => {
                let failure = DeleteError::unseen(object, source);
                found.unseen.push((*object, failure));
            }
        }
    }
    found
}

/// What is in containers that are about to go.
#[derive(Default)]
pub(crate) struct Contents<'o> {
    /// It stays: by what it says itself, or as a record asks for that.
    pub(crate) kept: Vec<&'o Object>,
    /// It cannot be read.
    pub(crate) unseen: Vec<(&'o Object, DeleteError)>,
}

/// Whether Kubernetes makes the object with its namespace: that it was there before the release says nothing.
fn is_made_with_namespace(object: &Object) -> bool {
    let kind = (
        object.resource.group.as_str(),
        object.resource.kind.as_str(),
    );
    let made = [
        (("", "ServiceAccount"), "default"),
        (("", "ConfigMap"), "kube-root-ca.crt"),
    ];
    made.contains(&(kind, object.name.as_str()))
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

/// Why not all is deleted.
#[derive(Debug)]
pub(crate) enum TakeBackError<E> {
    /// Objects that could not be deleted; all others were.
    Delete(Vec<DeleteError>),
    /// Somebody has gone on with the release, or that cannot be determined: no further object was deleted.
    Stopped(E),
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
            let looks: Vec<_> = left
                .iter()
                .map(|(object, instance)| {
                    prove(cluster, owner, spared, (object, Operation::Undo), *instance).boxed()
                })
                .collect();
            let proofs: Vec<_> = stream::iter(looks).buffered(PARALLEL).collect().await;
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
        let DeleteError {
            namespace,
            name,
            kind,
            ..
        } = failed;
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

/// Reads an object that an operation would delete: the proof that it may, or why it stays.
async fn prove(
    cluster: &Cluster,
    owner: &Owner,
    spared: Spared<'_>,
    (object, operation): (&Object, Operation),
    instance: Option<&Created>,
) -> Result<Result<Deletable, Removal>, ApiError> {
    if object.name.is_empty() {
        return Ok(Err(Removal::Absent)); // A generated name is not in the manifest.
    }
    if operation == Operation::Undo && (object.is_namespace() || object.is_crd()) {
        // An attempt made it; what is in it by now others may have made.
        let (release, object) = (&owner.name, object.describe());
        logging::info!(release, object, "others may be in it, left");
        return Ok(Err(Removal::Kept));
    }
    let Some(live) = read_to_delete(cluster, object).await? else {
        return Ok(Err(Removal::Absent));
    };
    let observed = owner.observe(&live);
    if instance.is_some_and(|created| !observed.is_instance(created)) {
        return Ok(Err(Removal::NotOwned));
    }
    if spared
        .written
        .is_some_and(|all| all.has(observed.version()))
    {
        return Ok(Err(Removal::Written));
    }
    Ok(observed.deletable(operation, spared.since).map_err(left))
}

/// Reads an object that may be deleted. What was listed when its manifest was read may be gone with its definition by now; whether it is, is asked for
/// longer than an answer about that is remembered. Of anything else that is not served nobody knows.
async fn read_to_delete(cluster: &Cluster, object: &Object) -> Result<Option<Value>, ApiError> {
    const TRIES: u32 = 8;
    let mut tries = 1;
    loop {
        match cluster.get_metadata(object).await {
            Err(ApiError::NotServed(kind)) => {
                if cluster.has_gone(&kind).await? {
                    return Ok(None);
                }
                if tries == TRIES {
                    return Err(ApiError::NotServed(kind));
                }
            }
            found => return found,
        }
        sleep(pause(tries)).await;
        tries += 1;
    }
}

/// Other releases in an object that is about to be deleted.
fn usage(object: &Object, other_releases: &OtherReleases) -> ContainerUsage {
    match Container::of(object) {
        Some(container) => other_releases.of(container),
        None => ContainerUsage::Unused,
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
        let (done, fate) = match usage(object, other_releases) {
            ContainerUsage::Unused => (
                cluster.delete(object, &proof, false).await,
                Removal::Deleted,
            ),
            ContainerUsage::Draining => return Ok(Removal::Deferred),
            ContainerUsage::InUse => (cluster.leave(object, &proof).await, Removal::InUse),
        };
        match done {
            Ok(()) => {
                if fate == Removal::InUse {
                    other_releases.have(object);
                }
                return Ok(fate);
            }
            Err(error)
                if fate == Removal::InUse && error.code() != Some(404) && !error.is_retryable() =>
            {
                // An account or a webhook says no. It stays in any case. Whose chart has it next has to say `takeOwnership`.
                let release = &owner.name;
                logging::warn!(
                    release,
                    object = object.describe(),
                    "may not be changed, left with its marks"
                );
                other_releases.have(object);
                return Ok(fate);
            }
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

/// The result for an object that was left.
fn left(state: ObjectState) -> Removal {
    match state {
        ObjectState::KeepPolicy => Removal::Kept,
        ObjectState::AdoptedKept | ObjectState::AdoptedOwned | ObjectState::HandedOver => {
            Removal::Adopted
        }
        ObjectState::Leaving | ObjectState::Absent => Removal::Absent,
        _ => Removal::NotOwned,
    }
}

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
    use objects::Resource;
    use objects::managed_fields::FIELD_MANAGER;
    use serde_json::json;
    use tower::BoxError;

    use super::super::fixture;
    use super::*;
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

    /// Somebody rolls the release back while its first kind is deleted.
    #[tokio::test]
    async fn of_a_release_that_somebody_goes_on_with_no_further_kind_is_deleted() {
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
            let done = delete_all(&cluster, &owner, &none, Spared::default(), objects, check).await;
            done.map(|removed| removed.objects.into_iter().map(|(_, fate)| fate).collect())
        };
        let fates: Vec<_> = delete(vec![definition, car.clone()]).await.unwrap();
        assert_eq!(fates, [Removal::Deleted, Removal::Absent]);
        let alone: Result<Vec<_>, _> = delete(vec![car]).await;
        assert!(matches!(alone, Err(TakeBackError::Delete(_))), "{alone:?}");
    }

    #[test]
    fn only_deleting_a_namespace_or_definition_asks_for_other_releases_in_it() {
        let object = |group: &str, kind: &str, name: &str| Object {
            resource: Arc::new(Resource {
                group: group.to_owned(),
                version: "v1".to_owned(),
                kind: kind.to_owned(),
                plural: kind.to_lowercase() + "s",
                namespaced: kind == "ConfigMap",
            }),
            namespace: None,
            name: name.to_owned(),
            body: Value::Null,
        };
        let other_releases = OtherReleases::new(|container| match container {
            Container::Namespace("team") | Container::Definition("cars.x.io") => {
                ContainerUsage::InUse
            }
            Container::Namespace("old") | Container::Definition("boats.x.io") => {
                ContainerUsage::Draining
            }
            _ => ContainerUsage::Unused,
        });
        let namespace = |name| object("", "Namespace", name);
        let definition = |name| object("apiextensions.k8s.io", "CustomResourceDefinition", name);
        let of = |object: &Object| usage(object, &other_releases);
        assert_eq!(of(&namespace("team")), ContainerUsage::InUse);
        assert_eq!(of(&namespace("old")), ContainerUsage::Draining);
        assert_eq!(of(&namespace("other")), ContainerUsage::Unused);
        assert_eq!(of(&definition("cars.x.io")), ContainerUsage::InUse);
        assert_eq!(of(&definition("boats.x.io")), ContainerUsage::Draining);
        assert_eq!(of(&definition("planes.x.io")), ContainerUsage::Unused);
        assert_eq!(of(&object("", "ConfigMap", "team")), ContainerUsage::Unused);
        assert_eq!(
            usage(&namespace("team"), &OtherReleases::default()),
            ContainerUsage::Unused
        );
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
        let told = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&told);
        let others = OtherReleases::new(|container| match container.name() {
            "cars.x.io" => ContainerUsage::InUse,
            _ => ContainerUsage::Unused,
        });
        let others = others.telling(move |container| {
            assert_eq!(container, Container::Definition("cars.x.io"));
            counted.fetch_add(1, Ordering::Relaxed);
        });
        for operation in [Operation::Drop, Operation::Remove] {
            let object = (&definition, operation);
            let fate = delete_owned(&cluster, &owner, &others, Spared::default(), object).await;
            assert_eq!(fate.unwrap(), Removal::InUse);
        }
        assert_eq!(*written.lock(), [Method::PATCH, Method::PATCH]);
        assert_eq!(told.load(Ordering::Relaxed), 2);
    }
}
