//! Writing one object: server-side apply, conflicts, force, retries.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use golib::json;
use objects::conflict::{Contested, FieldConflict, Outcome, concerns_replicas, leave_out, scales};
use objects::fields::items;
use objects::{Object, ObjectKey, Resource};
use serde_json::Value;
use tokio::time::sleep;

use super::check::{CreateError, Creation, create_new};
use super::client::Cluster;
use super::delete::{MAX_TRIES, pause, runs, stays_for_next_run};
use super::error::ApiError;
use super::migrate;
use super::ownership::{
    ADOPTED_ANNOTATION, Created, HookState, Observed, Owner, OwnershipError, RunMark, adoption,
    is_written_by_us, stored_policy,
};
use super::version::Version;
use super::wait::{WaitError, wait_until_left};
use crate::state::ownership::{Adoption, ObjectState, Operation, Verdict, judge};

/// How long an object that is being deleted may take to go before it is written again.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a write that met another one is tried.
const TRIES: u32 = 5;

/// How a manifest is applied.
#[derive(Debug, Clone, Copy, Default)]
pub struct ApplyOptions {
    /// Replace an object whose change the API server calls invalid, which drops what others wrote
    /// into it, and recreate one whose immutable field changes.
    pub force: bool,
    /// Another client wrote these objects before us: take over the fields it owns, so that what the
    /// chart no longer has goes away.
    pub migrate: bool,
    /// There was a revision or an attempt before: Helm then says of an object that it could not be
    /// *created*.
    pub is_update: bool,
    /// It merged on its own side, so that what the chart no longer has goes away even where somebody
    /// else edited it; only with `migrate`.
    pub merged: bool,
    /// Whether the answers to the writes are wanted, all at once.
    pub keeps_answers: bool,
}

/// In whose name objects are written, and which of them may be somebody else's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim<'a> {
    /// The release.
    pub(crate) owner: &'a Owner,
    /// What it is about to do.
    pub(crate) operation: Operation,
    /// Objects that the last good revision does not prove to be the release's, each as it was found when it was
    /// looked at. One that was not there, or not looked at, is created if nothing is there.
    pub(crate) open: &'a HashMap<ObjectKey, Option<Value>>,
    /// Objects that a stored revision has.
    pub(crate) recorded: &'a HashSet<ObjectKey>,
}

/// For which run hooks are written, and what it may find.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HookClaim<'a> {
    /// The run.
    pub(crate) run: &'a RunMark,
    /// Whether the hooks of before make way for it, as its policy says.
    pub(crate) makes_way: bool,
    /// Whether a record said before that it was started.
    pub(crate) is_resumed: bool,
}

/// What is to be done about what has a hook's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HookVerdict {
    /// It is this run, and under way: there is nothing to be written.
    Await,
    /// It is written over.
    Write,
    /// It is left, and the hook not run.
    Refuse,
}

impl HookClaim<'_> {
    /// What is to be done about `live`. What runs ran for one release at one event of one revision, and is no run of another: it is waited
    /// for, or in the way. What a client wrote that does not say for whom is this run where a record says that one was started.
    pub(super) fn verdict(&self, object: &Object, live: &Value) -> HookVerdict {
        let state = self.run.state(live);
        let is_made_way_for = || self.makes_way && stays_for_next_run(object, live);
        match state {
            HookState::This if runs(object) => HookVerdict::Await,
            HookState::Unsigned if self.is_resumed && runs(object) => HookVerdict::Await,
            HookState::This => HookVerdict::Write,
            HookState::Former if !runs(object) => HookVerdict::Write,
            HookState::Unsigned if !runs(object) && (self.is_resumed || is_written_by_us(live)) => {
                HookVerdict::Write
            }
            HookState::Unsigned if is_made_way_for() => HookVerdict::Write,
            _ => HookVerdict::Refuse,
        }
    }
}

impl Claim<'_> {
    /// What an object is that was found.
    pub(crate) fn state(&self, object: &Object, found: Option<&Value>) -> ObjectState {
        let Some(live) = found else {
            return ObjectState::Absent;
        };
        let is_recorded = self.recorded.contains(&object.key());
        self.owner.observe(live).state(self.operation, is_recorded)
    }

    /// What is to be done about it, with what it was noted as before: what says already that it is adopted is written.
    pub(crate) fn verdict(&self, object: &Object, found: Option<&Value>) -> Verdict {
        let noted = found.and_then(adoption);
        match judge(self.operation, self.state(object, found)) {
            Verdict::Adopt(now) => match now.after(noted) {
                now if noted == Some(now) => Verdict::Write,
                now => Verdict::Adopt(now),
            },
            verdict => verdict,
        }
    }
}

/// One object could not be written. The texts are Helm's.
#[derive(Debug, thiserror::Error)]
pub enum ObjectFailure {
    /// The API server refused it.
    #[error("server-side apply failed for object {object}")]
    Apply {
        /// `namespace/name group/version, Kind=kind`.
        object: String,
        /// Why.
        source: ApiError,
    },
    /// The API server refused it, and an earlier revision or attempt did not leave it either.
    #[error("failed to create resource: server-side apply failed for object {object}")]
    Create {
        /// `namespace/name group/version, Kind=kind`.
        object: String,
        /// Why.
        source: ApiError,
    },
    /// Others wrote it each time we tried.
    #[error("conflict occurred while applying object {object}")]
    Conflict {
        /// `namespace/name group/version, Kind=kind`.
        object: String,
        /// Why.
        source: ApiError,
    },
    /// Field ownership of another client could not be taken over.
    #[error("failed to upgrade managed fields for object {object}")]
    Migrate {
        /// `namespace/name group/version, Kind=kind`.
        object: String,
        /// Why.
        source: ApiError,
    },
    /// It should have been recreated, and its predecessor could not be deleted.
    #[error("failed to replace object {object}")]
    Recreate {
        /// `namespace/name group/version, Kind=kind`.
        object: String,
        /// Why.
        source: ApiError,
    },
    /// A field of it cannot change, and it is not recreated, whatever was asked for.
    #[error("object {object} is not recreated, although a field of it cannot change: {lost}")]
    Irreplaceable {
        /// `namespace/name group/version, Kind=kind`.
        object: String,
        /// What would be lost.
        lost: &'static str,
        /// Which field, in the API server's words.
        source: ApiError,
    },
    /// It is being deleted and does not go.
    #[error("object {object} is being deleted")]
    Terminating {
        /// `namespace/name group/version, Kind=kind`.
        object: String,
        /// What it waits for.
        source: WaitError,
    },
    /// It is somebody else's.
    #[error(transparent)]
    NotOurs(OwnershipError),
    /// It has the name of a hook, and is something else.
    #[error(
        "{object} exists and is not a hook of this release, or is of an earlier run and no delete policy makes it go"
    )]
    NoHookOfOurs {
        /// Kind, name and namespace.
        object: String,
    },
    /// It defines kinds, and is not served.
    #[error("the kinds of {object} are not served")]
    NotEstablished {
        /// `namespace/name group/version, Kind=kind`.
        object: String,
        /// What it says of itself.
        source: WaitError,
    },
}

impl ObjectFailure {
    /// The API server's reason, for metrics and conditions.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Apply { source, .. }
            | Self::Create { source, .. }
            | Self::Conflict { source, .. }
            | Self::Migrate { source, .. }
            | Self::Recreate { source, .. } => source.reason(),
            Self::Terminating { .. } => "Terminating",
            Self::Irreplaceable { .. } => "Irreplaceable",
            Self::NotOurs(_) | Self::NoHookOfOurs { .. } => "NotOwned",
            Self::NotEstablished { .. } => "NotEstablished",
        }
    }

    /// Whether the kind itself may be gone since it was discovered.
    pub(super) fn is_unserved(&self) -> bool {
        match self {
            Self::Apply { source, .. } | Self::Create { source, .. } => source.is_unserved(),
            _ => false,
        }
    }

    /// Whether nothing more is to be written.
    pub(super) fn ends_all(&self) -> bool {
        let is_anothers = matches!(self, Self::NotOurs(_) | Self::NoHookOfOurs { .. });
        is_anothers || self.reason() == "Unreachable"
    }
}

/// One object that was written.
pub(super) struct WrittenObject {
    pub(super) live: Value,
    pub(super) conflicts: Vec<FieldConflict>,
    /// Which object, if it is known to be new, or a hook's; without what it says.
    pub(super) created: Option<(Object, Created)>,
    /// The object, if it was there before, and is wanted with `takeOwnership`.
    pub(super) kept: Option<Object>,
}

/// What became of one object; nothing if it was left to whoever has it.
pub(super) type Written = Result<Option<WrittenObject>, ObjectFailure>;

/// What one request for an object came to.
type Sent = Result<WrittenObject, ObjectFailure>;

impl WrittenObject {
    fn over(live: Value, conflicts: Vec<FieldConflict>) -> Self {
        Self {
            live,
            conflicts,
            created: None,
            kept: None,
        }
    }
}

/// What writing an object depends on.
pub(super) struct ObjectWriter<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) previous: &'a BTreeMap<ObjectKey, Object>,
    pub(super) options: ApplyOptions,
    /// None for hooks.
    pub(super) claim: Option<Claim<'a>>,
    /// None for objects.
    pub(super) hooks: Option<HookClaim<'a>>,
    /// Group and kind of what the same manifest defines and uses.
    pub(super) own_kinds: HashSet<(String, String)>,
    /// Whether something was there that may be somebody else's.
    pub(super) found: AtomicBool,
}

impl<'a> ObjectWriter<'a> {
    /// For objects that are ours already, one by one.
    pub(super) fn again(cluster: &'a Cluster, previous: &'a BTreeMap<ObjectKey, Object>) -> Self {
        Self {
            cluster,
            previous,
            options: ApplyOptions::default(),
            claim: None,
            hooks: None,
            own_kinds: HashSet::new(),
            found: AtomicBool::new(false),
        }
    }

    pub(super) async fn write(&self, object: &Object) -> Written {
        let object_name = || object.describe();
        if object.name.is_empty() {
            let created = self.cluster.create(object).await;
            let failed = |source| ObjectFailure::Apply {
                object: object_name(),
                source,
            };
            let created = created.map_err(failed)?;
            return Ok(Some(WrittenObject::over(created, Vec::new())));
        }
        let mut wrote = match self.open(object) {
            Some((claim, found)) => match self.write_judged(claim, object, found).await? {
                Some(wrote) if wrote.created.is_none() => wrote,
                new_or_left => return Ok(new_or_left),
            },
            None if self.options.migrate => self.migrate(object, None).await?,
            None => match (self.write_unjudged(object).await, self.claim) {
                // Its replacement met somebody else's change, or what is to be noted or left.
                (Err(ObjectFailure::Conflict { .. }), Some(claim)) if self.options.force => {
                    let found = self.read_metadata(object).await?;
                    match self.write_judged(claim, object, found).await? {
                        Some(wrote) if wrote.created.is_none() => wrote,
                        new_or_left => return Ok(new_or_left),
                    }
                }
                (written, _) => written?,
            },
        };
        if wrote.live.pointer("/metadata/deletionTimestamp").is_some() {
            // It was accepted and will vanish all the same: written again once it is gone, unless somebody else is faster.
            self.until_gone(object).await?;
            let conflicts = std::mem::take(&mut wrote.conflicts);
            let again = match self.claim {
                Some(claim) => self.write_judged(claim, object, None).await?,
                None => Some(self.write_unjudged(object).await?),
            };
            let Some(again) = again else { return Ok(None) };
            wrote = again;
            wrote.conflicts.extend(conflicts);
        }
        if self.claim.is_some() && adoption(&wrote.live) == Some(Adoption::Left) {
            self.note_handed_over(object, &wrote.live).await?;
        }
        let is_taken = self
            .claim
            .is_some_and(|claim| claim.operation == Operation::TakeOwnership);
        // What others have in it is not taken with it.
        let holds_others = object.is_namespace() || object.is_crd();
        if is_taken && !holds_others && adoption(&wrote.live) == Some(Adoption::Kept) {
            wrote.kept = Some(object.without_body());
        }
        Ok(Some(wrote))
    }

    /// Notes on what was left, and has marks now, that it was there before: it counts as handed over as soon as it has marks, but somebody may take them off.
    async fn note_handed_over(&self, object: &Object, live: &Value) -> Result<(), ObjectFailure> {
        let (version, note) = (Version::of(live), Adoption::HandedOver);
        match self
            .cluster
            .note_adoption(object, Some(&version), note)
            .await
        {
            Ok(_) => Ok(()),
            // Whoever writes it next notes it.
            Err(error) if error.is_conflict() || error.is_not_found() => Ok(()),
            Err(source) => Err(ObjectFailure::Apply {
                object: object.describe(),
                source,
            }),
        }
    }

    async fn until_gone(&self, object: &Object) -> Result<(), ObjectFailure> {
        wait_until_left(self.cluster, object, None, TERMINATION_TIMEOUT)
            .await
            .map_err(|source| ObjectFailure::Terminating {
                object: object.describe(),
                source,
            })
    }

    /// What was found under the object's name, if it is not known to be ours.
    fn open(&self, object: &Object) -> Option<(Claim<'a>, Option<Value>)> {
        let claim = self.claim?;
        let found = claim.open.get(&object.key())?;
        Some((claim, found.clone()))
    }

    /// Writes an object that may be somebody else's: as it was judged, and only while it is as it was then.
    async fn write_judged(
        &self,
        claim: Claim<'_>,
        object: &Object,
        mut found: Option<Value>,
    ) -> Written {
        let mut tries = 0;
        loop {
            tries += 1;
            if found.is_some() {
                self.found.store(true, Ordering::Relaxed);
            }
            let live = match claim.verdict(object, found.as_ref()) {
                Verdict::Create => match self.create(object).await? {
                    Ok(created) => return Ok(Some(created)),
                    Err(live) => {
                        found = Some(live);
                        continue;
                    }
                },
                Verdict::Wait => {
                    self.until_gone(object).await?;
                    found = None;
                    continue;
                }
                Verdict::Write => found.unwrap_or_default(),
                Verdict::Adopt(adoption) => {
                    let live = found.unwrap_or_default();
                    let version = Version::of(&live);
                    let noted = self.cluster.note_adoption(object, Some(&version), adoption);
                    match noted.await {
                        Ok(noted) => noted,
                        Err(error) if error.is_conflict() && tries < MAX_TRIES => {
                            sleep(pause(tries)).await;
                            found = self.read_metadata(object).await?;
                            continue;
                        }
                        Err(error) if error.is_not_found() && tries < MAX_TRIES => {
                            found = None;
                            continue;
                        }
                        Err(source) => {
                            return Err(ObjectFailure::Apply {
                                object: object.describe(),
                                source,
                            });
                        }
                    }
                }
                Verdict::Leave => {
                    let (release, object) = (&claim.owner.name, object.describe());
                    logging::info!(release, object, "another release has it by now, left");
                    return Ok(None);
                }
                Verdict::Refuse | Verdict::Delete => {
                    let live = found.unwrap_or_default();
                    let refusal = claim.owner.refusal(object, &live);
                    return Err(ObjectFailure::NotOurs(refusal));
                }
            };
            let judged = claim.owner.observe(&live);
            let written = match self.options.migrate {
                true => self.migrate(object, Some(&judged)).await,
                false => self.write_settled(object, Some(&judged)).await,
            };
            match written {
                // Somebody wrote it: whose it is has to be seen again.
                Err(ObjectFailure::Conflict { .. }) if tries < MAX_TRIES => {
                    sleep(pause(tries)).await;
                    found = self.read_metadata(object).await?;
                }
                written => return written.map(Some),
            }
        }
    }

    async fn write_unjudged(&self, object: &Object) -> Sent {
        match self.hooks {
            Some(claim) => self.write_hook(claim, object).await,
            None => self.write_settled(object, None).await,
        }
    }

    /// Creates a hook. What has its name by now, and is not what may have it, was made since that was looked at: it is left.
    async fn write_hook(&self, claim: HookClaim<'_>, object: &Object) -> Sent {
        let mut tries = 0;
        loop {
            tries += 1;
            let live = match self.create(object).await {
                Ok(Ok(created)) => return Ok(created),
                Ok(Err(live)) => live,
                Err(failure) => self.created_unseen(claim, object, failure).await?,
            };
            let mut wrote = match claim.verdict(object, &live) {
                HookVerdict::Refuse => {
                    let object = object.describe_for_people();
                    return Err(ObjectFailure::NoHookOfOurs { object });
                }
                HookVerdict::Await => WrittenObject::over(begun(live), Vec::new()),
                HookVerdict::Write => {
                    let judged = claim.run.owner().observe(&live);
                    match self.write_settled(object, Some(&judged)).await {
                        // Somebody wrote it: whose it is has to be seen again.
                        Err(ObjectFailure::Conflict { .. }) if tries < MAX_TRIES => {
                            sleep(pause(tries)).await;
                            continue;
                        }
                        written => written?,
                    }
                }
            };
            let instance = Created::from_answer(&wrote.live);
            wrote.created = instance.map(|instance| (object.without_body(), instance));
            return Ok(wrote);
        }
    }

    /// What a creation made that nobody answered: what it created says for which run, so that it is not created once more by the next try.
    async fn created_unseen(
        &self,
        claim: HookClaim<'_>,
        object: &Object,
        failure: ObjectFailure,
    ) -> Result<Value, ObjectFailure> {
        let is_in_doubt = match &failure {
            ObjectFailure::Apply { source, .. } | ObjectFailure::Create { source, .. } => {
                source.is_in_doubt()
            }
            _ => false,
        };
        if !is_in_doubt {
            return Err(failure);
        }
        match self.cluster.get_metadata(object).await {
            Ok(Some(live)) if claim.run.state(&live) == HookState::This => Ok(live),
            _ => Err(failure),
        }
    }

    async fn read_metadata(&self, object: &Object) -> Result<Option<Value>, ObjectFailure> {
        let found = self.cluster.get_metadata(object).await;
        found.map_err(|source| {
            ObjectFailure::NotOurs(OwnershipError::Unknown {
                object: object.describe_for_people(),
                source,
            })
        })
    }

    /// Writes an object of another Helm client: what that owned is ours from now on, and nothing of
    /// the manifest before stays behind. Only as it was judged, if it was.
    async fn migrate(&self, object: &Object, judged: Option<&Observed>) -> Sent {
        let failed = |source: ApiError| {
            let object = object.describe();
            match source.is_conflict() && judged.is_some() {
                true => ObjectFailure::Conflict { object, source },
                false => ObjectFailure::Migrate { object, source },
            }
        };
        let version = judged.map(Observed::version);
        let (managers, version) = migrate::take_over_managers(self.cluster, object, version)
            .await
            .map_err(failed)?;
        let judged = judged.zip(version).map(|(one, now)| one.in_version(now));
        let mut wrote = self.write_settled(object, judged.as_ref()).await?;
        if !managers.is_empty() {
            wrote.conflicts.insert(
                0,
                FieldConflict {
                    object: object.key(),
                    field: String::new(),
                    managers,
                    outcome: Outcome::Taken,
                },
            );
        }
        let previous = self.previous.get(&object.key());
        let previous = previous.filter(|_| self.options.merged);
        let left = previous.and_then(|old| migrate::left_over(&old.body, object, &wrote.live));
        if let Some(patch) = left {
            wrote.live = self
                .cluster
                .merge_patch(object, &patch)
                .await
                .map_err(failed)?;
        }
        Ok(wrote)
    }

    /// Creates the object; what is there instead, if something is.
    async fn create(&self, object: &Object) -> Result<Result<WrittenObject, Value>, ObjectFailure> {
        let mut tries = 1;
        loop {
            let refusal = match create_new(self.cluster, object).await {
                Ok(Creation::New(live)) => {
                    let created =
                        Created::from_answer(&live).map(|new| (object.without_body(), new));
                    return Ok(Ok(WrittenObject {
                        created,
                        ..WrittenObject::over(live, Vec::new())
                    }));
                }
                Ok(Creation::Found(live)) => return Ok(Err(live)),
                Err(CreateError::Unknown(error)) => return Err(ObjectFailure::NotOurs(error)),
                Ok(Creation::Busy(error)) if tries < TRIES => error,
                // A definition is established a moment before its kind is served.
                Err(CreateError::Refused(error))
                    if error.is_not_found() && self.is_new_kind(object) && tries < 2 * TRIES =>
                {
                    error
                }
                Ok(Creation::Busy(source)) | Err(CreateError::Refused(source)) => {
                    let object_name = object.describe();
                    let failure = match source.is_conflict() {
                        true => ObjectFailure::Conflict {
                            object: object_name,
                            source,
                        },
                        false => ObjectFailure::Apply {
                            object: object_name,
                            source,
                        },
                    };
                    return Err(self.named(object, failure).await);
                }
            };
            drop(refusal);
            sleep(Duration::from_millis(50) * tries).await;
            tries += 1;
        }
    }

    fn is_new_kind(&self, object: &Object) -> bool {
        let key = (object.resource.group.clone(), object.resource.kind.clone());
        self.own_kinds.contains(&key)
    }

    /// Applies without force; what others hold is settled and the rest forced. Only as it was judged, if it was: an object that is written all
    /// the time is written over the version in which it was looked at last, if nothing has changed about whose it is.
    async fn write_settled(&self, object: &Object, judged: Option<&Observed>) -> Sent {
        let refused = |source: ApiError| {
            let object = object.describe();
            match source.is_conflict() {
                true => ObjectFailure::Conflict { object, source },
                false => ObjectFailure::Apply { object, source },
            }
        };
        let mut tries = 1;
        loop {
            let mut conflicts = Vec::new();
            let mut is_contested = false;
            let first = Body::over(&object.body, judged.map(Observed::version));
            let mut sent = self.send(object, first, false).await;
            if let Err(error) = &sent
                && !error.contested_fields().is_empty()
            {
                is_contested = true;
                let is_autoscaled = self.is_autoscaled(object, error).await;
                // One that went meanwhile is created by the next try.
                if let Some(live) = self.cluster.get(object).await.map_err(refused)? {
                    if judged.is_none() {
                        self.check_still_ours(object, &live)?;
                    }
                    let body;
                    (conflicts, body) = self.settle(object, error, &live, is_autoscaled);
                    let is_alike = |judged: &&Observed| match self.claim {
                        Some(claim) => claim.owner.observe(&live).is_alike(judged),
                        None => false,
                    };
                    // Only what was looked at is forced: where it would be judged otherwise by now, the version that was judged is named, which the API
                    // server refuses.
                    let looked_at = Version::of(&live);
                    let changed = judged.filter(|judged| !is_alike(judged));
                    let over = changed.map_or(&looked_at, Observed::version);
                    let settled = Body::over(&body, Some(over));
                    drop(body);
                    sent = self.send(object, settled, true).await;
                }
            }
            let error = match sent {
                Ok(live) => return Ok(WrittenObject::over(live, conflicts)),
                Err(error) => error,
            };
            if self.options.force && error.is_invalid() {
                let forced = self.force(object, error).await?;
                // Whoever held a field of it, it was replaced whole.
                for conflict in &mut conflicts {
                    conflict.outcome = Outcome::Taken;
                }
                return Ok(WrittenObject::over(forced, conflicts));
            }
            // Somebody wrote it: what he has in it, and whose it is, has to be seen again.
            let is_changed = error.is_conflict() && is_contested && judged.is_none();
            if !is_changed || tries == MAX_TRIES {
                return Err(self.named(object, refused(error)).await);
            }
            sleep(pause(tries)).await;
            tries += 1;
        }
    }

    /// Refuses what the last revision had and another release has by now: Helm looks at what an upgrade adds, and takes this.
    fn check_still_ours(&self, object: &Object, live: &Value) -> Result<(), ObjectFailure> {
        let Some(claim) = self.claim else {
            return Ok(());
        };
        let state = claim.state(object, Some(live));
        if state == ObjectState::Anothers && judge(claim.operation, state) == Verdict::Refuse {
            let refusal = claim.owner.refusal(object, live);
            return Err(ObjectFailure::NotOurs(refusal));
        }
        Ok(())
    }

    /// Says of an object that is not there that it could not be created.
    async fn named(&self, object: &Object, failure: ObjectFailure) -> ObjectFailure {
        match failure {
            ObjectFailure::Apply {
                object: name,
                source,
            } if self.options.is_update && self.is_missing(object).await => ObjectFailure::Create {
                object: name,
                source,
            },
            failure => failure,
        }
    }

    async fn is_missing(&self, object: &Object) -> bool {
        matches!(self.cluster.get_metadata(object).await, Ok(None))
    }

    /// Sends one apply, again where that is known to help.
    async fn send(&self, object: &Object, body: Body, force: bool) -> Result<Value, ApiError> {
        let mut tries = 1;
        loop {
            match self.cluster.apply(object, body.text.clone(), force).await {
                // A ResourceQuota that several creations charge at once, or a concurrent write.
                Err(error)
                    if error.is_conflict()
                        && body.is_for_any_version
                        && error.contested_fields().is_empty()
                        && tries < TRIES => {}
                // A definition is established a moment before its kind is served.
                Err(error)
                    if error.is_not_found() && self.is_new_kind(object) && tries < 2 * TRIES => {}
                other => return other,
            }
            sleep(Duration::from_millis(50) * tries).await;
            tries += 1;
        }
    }

    /// Decides about the fields that others hold; gives what is to be written by force then.
    pub(super) fn settle(
        &self,
        object: &Object,
        error: &ApiError,
        live: &Value,
        is_autoscaled: bool,
    ) -> (Vec<FieldConflict>, Value) {
        let previous = self.previous.get(&object.key()).map(|old| &old.body);
        let contested = Contested {
            desired: object,
            previous,
            live,
            is_autoscaled,
        };
        let conflicts = contested.settle(error.contested_fields());
        let mut body = object.body.clone();
        for left in conflicts.iter().filter(|one| one.outcome == Outcome::Left) {
            leave_out(&mut body, &left.field);
        }
        (conflicts, body)
    }

    /// Whether an autoscaler sets the replicas that others hold; asked before the object is looked at, which is written right after that.
    pub(super) async fn is_autoscaled(&self, object: &Object, error: &ApiError) -> bool {
        concerns_replicas(error.contested_fields().into_iter())
            && self.has_autoscaler(object).await.unwrap_or_default()
    }

    async fn has_autoscaler(&self, object: &Object) -> Result<bool, ApiError> {
        let discovery = self.cluster.discovery().await?;
        let Some(kind) = discovery.resource("autoscaling", "v2", "HorizontalPodAutoscaler") else {
            return Ok(false);
        };
        let list = self
            .cluster
            .list(&kind, object.namespace.as_deref())
            .await?;
        let mut autoscalers = items(&list, "items").iter();
        Ok(autoscalers.any(|autoscaler| scales(autoscaler, object)))
    }

    /// Makes an object what is desired although the API server calls merging invalid.
    async fn force(&self, object: &Object, refusal: ApiError) -> Result<Value, ObjectFailure> {
        if refusal.is_immutable() {
            return self.recreate(object, refusal).await;
        }
        let failed = |source| ObjectFailure::Recreate {
            object: object.describe(),
            source,
        };
        let found = self.cluster.get_metadata(object).await.map_err(failed)?;
        let Some(live) = found else {
            let failure = ObjectFailure::Apply {
                object: object.describe(),
                source: refusal,
            };
            return Err(self.named(object, failure).await);
        };
        self.check_writable(object, &live, refusal)?;
        // Who reads it must find the note still.
        let mut whole = object.clone();
        if let Some(note) = adoption(&live) {
            whole.body["metadata"]["annotations"][ADOPTED_ANNOTATION] = note.as_str().into();
        }
        let mut live = match self.cluster.replace(&whole, &Version::of(&live)).await {
            Ok(replaced) => replaced,
            Err(error) if error.is_immutable() => return self.recreate(object, error).await,
            Err(error) if error.is_conflict() => return Err(conflict(object, error)),
            Err(error) => return Err(failed(error)),
        };
        let mut tries = 1;
        loop {
            let error = match self.apply_replaced(object, &live).await {
                Ok(applied) => return Ok(applied),
                Err(error) => error,
            };
            if !error.is_conflict() && !error.is_not_found() {
                return Err(failed(error));
            }
            if tries == MAX_TRIES {
                return Err(conflict(object, error));
            }
            // Somebody wrote it.
            sleep(pause(tries)).await;
            tries += 1;
            let Some(found) = self.cluster.get(object).await.map_err(failed)? else {
                return Err(conflict(object, error));
            };
            self.check_writable(object, &found, error)?;
            live = found;
        }
    }

    /// What was written whole is owned as if it had been applied.
    async fn apply_replaced(&self, object: &Object, live: &Value) -> Result<Value, ApiError> {
        let version = migrate::own_replaced(self.cluster, object, live).await?;
        let body = Body::over(&object.body, Some(&version));
        self.send(object, body, true).await
    }

    /// Refuses what may not be written as it was found. What is to be noted or left first is a conflict: it goes the way of what may be
    /// somebody else's.
    fn check_writable(
        &self,
        object: &Object,
        live: &Value,
        refusal: ApiError,
    ) -> Result<(), ObjectFailure> {
        let Some(claim) = self.claim else {
            return Ok(());
        };
        match claim.verdict(object, Some(live)) {
            Verdict::Write => Ok(()),
            Verdict::Refuse => Err(ObjectFailure::NotOurs(claim.owner.refusal(object, live))),
            _ => Err(conflict(object, refusal)),
        }
    }

    /// Deletes the object and creates it anew, where that loses nothing but the object.
    async fn recreate(&self, object: &Object, refusal: ApiError) -> Result<Value, ObjectFailure> {
        let failed = |source| ObjectFailure::Recreate {
            object: object.describe(),
            source,
        };
        let irreplaceable = |lost, source| ObjectFailure::Irreplaceable {
            object: object.describe(),
            lost,
            source,
        };
        if let Some(lost) = contents(object) {
            return Err(irreplaceable(lost, refusal));
        }
        if is_custom(object) {
            // "Field is immutable" is what rules and webhooks of custom resources say as well.
            const LOST: &str =
                "recreating a custom resource may delete what its controller keeps for it";
            return Err(irreplaceable(LOST, refusal));
        }
        const KEPT: &str = "it asks to be kept (helm.sh/resource-policy)";
        if stored_policy(&object.body).as_deref() == Some("keep") {
            return Err(irreplaceable(KEPT, refusal));
        }
        let Some(claim) = self.claim else {
            return Err(failed(refusal));
        };
        let mut note = None;
        let mut tries = 1;
        while let Some(live) = self.cluster.get(object).await.map_err(failed)? {
            note = adoption(&live);
            if live.pointer(WHEN_DELETED) == Some(&Value::from("Delete")) {
                const LOST: &str =
                    "its volume claims would go with it (persistentVolumeClaimRetentionPolicy)";
                return Err(irreplaceable(LOST, refusal));
            }
            if note.is_some() && !self.previous.contains_key(&object.key()) {
                // An attempt that fails could not give it back.
                return Err(irreplaceable("it was there before this version", refusal));
            }
            let proof = match claim.owner.observe(&live).deletable(Operation::Recreate) {
                Ok(proof) => proof,
                Err(ObjectState::KeepPolicy) => return Err(irreplaceable(KEPT, refusal)),
                Err(ObjectState::AdoptedKept) => {
                    let lost = "it was there before the release";
                    return Err(irreplaceable(lost, refusal));
                }
                Err(ObjectState::Leaving) => break,
                Err(_) => {
                    let refusal = claim.owner.refusal(object, &live);
                    return Err(ObjectFailure::NotOurs(refusal));
                }
            };
            match self.cluster.delete(object, &proof).await {
                Ok(()) => break,
                Err(error) if error.is_not_found() => break,
                Err(error) if error.is_conflict() && tries < MAX_TRIES => {
                    sleep(pause(tries)).await;
                    tries += 1;
                }
                Err(error) => return Err(failed(error)),
            }
        }
        self.until_gone(object).await?;
        let live = match self.create(object).await? {
            Ok(created) => created.live,
            // Somebody else was faster.
            Err(live) => {
                let refusal = claim.owner.refusal(object, &live);
                return Err(ObjectFailure::NotOurs(refusal));
            }
        };
        // It stands where something was before.
        if let Some(note) = note {
            let noted = self.cluster.note_adoption(object, None, note).await;
            noted.map_err(failed)?;
        }
        Ok(live)
    }
}

/// Others wrote the object.
fn conflict(object: &Object, source: ApiError) -> ObjectFailure {
    let object = object.describe();
    ObjectFailure::Conflict { object, source }
}

/// A run that was found, without the version it has: what it came to may be in that already, so that whoever watches it begins with it.
fn begun(mut live: Value) -> Value {
    if let Some(Value::Object(metadata)) = live.get_mut("metadata") {
        metadata.remove("resourceVersion");
    }
    live
}

/// Whether more would go with an object than itself.
pub(crate) fn holds_more(object: &Object) -> bool {
    contents(object).is_some()
}

/// What would go with an object that only contains or keeps it, in people's words.
fn contents(object: &Object) -> Option<&'static str> {
    let Resource { group, kind, .. } = &*object.resource;
    match (group.as_str(), kind.as_str()) {
        _ if object.is_crd() => Some("recreating a definition deletes every object of its kind"),
        _ if object.is_namespace() => Some("recreating a namespace deletes everything in it"),
        ("", "PersistentVolumeClaim" | "PersistentVolume") => {
            Some("recreating it may delete the data of the volume")
        }
        _ => None,
    }
}

/// Of a StatefulSet, whether its volume claims go with it.
const WHEN_DELETED: &str = "/spec/persistentVolumeClaimRetentionPolicy/whenDeleted";

/// Groups whose kinds Kubernetes itself defines, with controllers that make anew what they made for an object.
const BUILT_IN: [&str; 12] = [
    "",
    "admissionregistration.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "autoscaling",
    "batch",
    "extensions",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// Whether somebody's controller may keep something for an object that goes with it: a database, a cluster.
pub(crate) fn is_custom(object: &Object) -> bool {
    !BUILT_IN.contains(&object.resource.group.as_str())
}

/// What is applied, as text: a tree of it would be kept until the answer is there.
struct Body {
    text: String,
    /// Whether it names no version that it is meant for.
    is_for_any_version: bool,
}

impl Body {
    /// Applied only over a version, if one is given.
    fn over(body: &Value, version: Option<&Version>) -> Self {
        let Some(version) = version else {
            return Self {
                text: json::encode(body),
                is_for_any_version: body.pointer("/metadata/resourceVersion").is_none(),
            };
        };
        let mut body = body.clone();
        version.demand(&mut body);
        Self {
            text: json::encode(&body),
            is_for_any_version: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chart::manifest::HOOK_ANNOTATION;
    use http::{Request, Response};
    use kube::client::Body;
    use objects::managed_fields::FIELD_MANAGER;
    use parking_lot::Mutex;
    use rstest::rstest;
    use serde_json::json;
    use tower::BoxError;

    use super::super::fixture::object;
    use super::*;
    use crate::stored_release::{RecordId, RecordUid};
    use HookVerdict::{Await, Refuse, Write};

    /// By what the run expects: nothing that makes way, hooks of before that make way, a start that a record tells of.
    #[rstest]
    #[case::this_run(Some(("web", 3)), [[Await; 3], [Write; 3], [Write; 3]])]
    #[case::another_revisions(Some(("web", 2)), [[Refuse; 3], [Write; 3], [Write; 3]])]
    #[case::another_releases(Some(("other", 3)), [[Refuse; 3]; 3])]
    #[case::unsigned(None, [[Refuse, Refuse, Await], [Write; 3], [Write; 3]])]
    fn a_hook_is_written_over_what_its_run_may_find(
        #[case] of: Option<(&str, i64)>,
        #[case] expected: [[HookVerdict; 3]; 3],
    ) {
        let run = |name: &str, revision| {
            let uid = RecordUid::new("u");
            let record = RecordId { revision, uid };
            RunMark::new(Owner::new(name, "shop"), &record, "pre-upgrade")
        };
        let mut live = json!({"metadata": {
            "annotations": {HOOK_ANNOTATION: "pre-upgrade"},
            "managedFields": [{"manager": FIELD_MANAGER, "operation": "Apply"}],
        }});
        if let Some((name, revision)) = of {
            run(name, revision).sign(&mut live);
        }
        let kinds = [
            object("batch", "Job", Value::Null),
            object("", "ConfigMap", Value::Null),
            object(
                "apiextensions.k8s.io",
                "CustomResourceDefinition",
                Value::Null,
            ),
        ];
        let mine = run("web", 3);
        let found = kinds.map(|object| {
            [(false, false), (true, false), (false, true)].map(|(makes_way, is_resumed)| {
                let claim = HookClaim {
                    run: &mine,
                    makes_way,
                    is_resumed,
                };
                claim.verdict(&object, &live)
            })
        });
        assert_eq!(found, expected);
    }

    /// The object goes between the refusal, which tells of fields of others, and the look at it: whatever is made under its name then is not
    /// written over by force.
    #[tokio::test]
    async fn what_went_before_it_was_looked_at_is_not_forced() {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = Arc::clone(&seen);
        let serve = tower::service_fn(move |request: Request<Body>| {
            let uri = request.uri().to_string();
            let is_first = !told.lock().iter().any(|uri| uri.contains("force="));
            told.lock().push(uri.clone());
            let (code, answer) = match (uri.contains("force="), is_first) {
                (true, true) => {
                    let cause = json!({"reason": "FieldManagerConflict", "field": ".data.a", "message": "conflict"});
                    let details = json!({"causes": [cause]});
                    (
                        409,
                        json!({"kind": "Status", "code": 409, "reason": "Conflict", "details": details}),
                    )
                }
                (true, false) => (
                    201,
                    json!({"metadata": {"name": "a", "resourceVersion": "7"}}),
                ),
                _ => (
                    404,
                    json!({"kind": "Status", "code": 404, "reason": "NotFound"}),
                ),
            };
            let answer = Response::builder()
                .status(code)
                .body(Body::from(answer.to_string().into_bytes()));
            std::future::ready(Ok::<_, BoxError>(answer.expect("it is valid")))
        });
        let cluster = Cluster::new(kube::Client::new(serve, "n"));
        let previous = BTreeMap::new();
        let writer = ObjectWriter::again(&cluster, &previous);
        let object = object("", "ConfigMap", json!({"metadata": {"name": "a"}}));
        writer.write(&object).await.unwrap();
        let seen = seen.lock();
        assert!(
            !seen.iter().any(|uri| uri.contains("force=true")),
            "{seen:?}"
        );
    }

    /// A namespace that was left is written by somebody else while the release that has it next writes it: it says that it was left until it has marks.
    #[tokio::test]
    async fn what_was_left_stays_so_until_it_has_marks() {
        let live = |version: &str, note: &str, owner: Option<&Owner>| {
            let mut live = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": version,
                "managedFields": [{"manager": FIELD_MANAGER, "operation": "Apply"}]}});
            if let Some(owner) = owner {
                owner.mark(&mut live);
            }
            live["metadata"]["annotations"][ADOPTED_ANNOTATION] = note.into();
            live
        };
        let owner = Owner::new("web", "shop");
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = Arc::clone(&seen);
        let server_owner = owner.clone();
        let serve = tower::service_fn(move |request: Request<Body>| {
            let uri = request.uri().to_string();
            let is_apply = uri.contains("force=");
            let is_first = !told.lock().iter().any(|uri| uri.contains("force="));
            let is_read = request.method() == "GET";
            told.lock().push(uri.clone());
            let (code, answer) = match (is_apply, is_first) {
                (true, true) => (
                    409,
                    json!({"kind": "Status", "code": 409, "reason": "Conflict"}),
                ),
                (true, false) => (200, live("8", "left", Some(&server_owner))),
                (false, _) if is_read => (200, live("7", "left", None)),
                (false, _) => (200, live("9", "handed-over", Some(&server_owner))),
            };
            let answer = Response::builder()
                .status(code)
                .body(Body::from(answer.to_string().into_bytes()));
            std::future::ready(Ok::<_, BoxError>(answer.expect("it is valid")))
        });
        let cluster = Cluster::new(kube::Client::new(serve, "n"));
        let namespace = object("", "Namespace", json!({"metadata": {"name": "a"}}));
        let open = HashMap::from([(namespace.key(), Some(live("6", "left", None)))]);
        let claim = Claim {
            owner: &owner,
            operation: Operation::Install,
            open: &open,
            recorded: &HashSet::new(),
        };
        let previous = BTreeMap::new();
        let writer = ObjectWriter {
            claim: Some(claim),
            ..ObjectWriter::again(&cluster, &previous)
        };
        writer.write(&namespace).await.unwrap();
        let asked = seen
            .lock()
            .iter()
            .map(|uri| uri.contains("force="))
            .collect::<Vec<_>>();
        assert_eq!(
            asked,
            [true, false, true, false],
            "refused, looked at, applied, noted"
        );
    }

    /// Others write an object all the time, and hold a field of it: it is written over the version in which it was looked at last.
    #[tokio::test]
    async fn an_object_that_is_written_all_the_time_is_written_as_it_was_looked_at_last() {
        let live = |version: u32| {
            let mut live = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": version.to_string()}});
            Owner::new("web", "shop").mark(&mut live);
            live
        };
        let now = Arc::new(Mutex::new(1));
        let serve = tower::service_fn(move |request: Request<Body>| {
            let now = Arc::clone(&now);
            async move {
                let uri = request.uri().to_string();
                let body = request.into_body().collect_bytes().await?;
                let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
                let mut now = now.lock();
                let is_now = sent["metadata"]["resourceVersion"] == now.to_string();
                let refused = |reason: &str, code: u16, causes: Value| {
                    let details = json!({"causes": causes});
                    let status = json!({"kind": "Status", "code": code, "reason": reason, "details": details});
                    (code, status)
                };
                let contested = json!([{"reason": "FieldManagerConflict", "field": ".spec.replicas", "message": ""}]);
                // Whatever is asked, there is another version after that.
                *now += 1;
                let (code, answer) = match (uri.contains("force=false"), uri.contains("force=true"))
                {
                    (true, _) => refused("Conflict", 409, contested),
                    (_, true) if !is_now => refused("Conflict", 409, json!([])),
                    _ if uri.contains("/deployments/a") => (200, live(*now)),
                    _ => refused("NotFound", 404, json!([])),
                };
                let answer = Body::from(answer.to_string().into_bytes());
                Ok::<_, BoxError>(Response::builder().status(code).body(answer)?)
            }
        });
        let cluster = Cluster::new(kube::Client::new(serve, "n"));
        let (owner, previous) = (Owner::new("web", "shop"), BTreeMap::new());
        let body = json!({"metadata": {"name": "a"}, "spec": {"replicas": 1}});
        let object = object("apps", "Deployment", body);
        let open = HashMap::from([(object.key(), Some(live(1)))]);
        let recorded = HashSet::from([object.key()]);
        let claim = Claim {
            owner: &owner,
            operation: Operation::Upgrade,
            open: &open,
            recorded: &recorded,
        };
        let writer = ObjectWriter {
            claim: Some(claim),
            ..ObjectWriter::again(&cluster, &previous)
        };
        let wrote = writer.write(&object).await.unwrap();
        assert_eq!(wrote.unwrap().conflicts.len(), 1);
    }
}
