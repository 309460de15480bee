//! One attempt at a revision: from its pending record to `deployed`, or to `failed`.
//!
//! An install, an upgrade and a rollback are the same attempt with other hooks and other words, as in
//! `pkg/action/{install,upgrade,rollback}.go`: hooks run, objects are applied, obsolete ones deleted,
//! hooks run again, and the record says how it ended.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::convert::Infallible;
use std::future::ready;

use chart::Time;
use golib::budget::weigh;
use objects::conflict::FieldConflict;
use objects::readiness::wait::Mode;
use objects::{Object, ObjectKey};
use serde_json::Value;
use tokio::time::Instant;

use super::error::DeployError;
use super::hook_objects::HookObjects;
use super::hook_progress::has_begun;
use super::hooks::HookRun;
use super::install;
use super::known_records::KnownRecords;
use super::previous::{PreviousObjects, prune_outdated, supersede};
use super::records::{PAGE, listed_of_hooks};
use super::retained::{Obsolete, Retained, is_container};
use super::spec::DeployOptions;
use super::unquoted::error_unquoted;
use crate::kube::{
    ApplyError, ApplyOptions, Claim, Cluster, Created, Owner, Removal, Removed, Spared,
    TakeBackError, WrittenObjects, apply_all, check_deletable, delete_all, forget_unserved,
    holds_more, is_custom, leave_held, newest_first, observe_all_until, take_back,
    wait_until_ready, with_claims,
};
use crate::model::{ApplyMethod, HookEvent, Release, Status};
use crate::state::ownership::{self, ObjectState};
use crate::storage::{Deletable, Storage, StorageError, StoredRelease, StoredRevision, last};

/// The operation of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Install,
    Upgrade,
    Rollback,
}

impl Operation {
    /// The hook events before and after the objects are written.
    fn hooks(self) -> (HookEvent, HookEvent) {
        match self {
            Self::Install => (HookEvent::PreInstall, HookEvent::PostInstall),
            Self::Upgrade => (HookEvent::PreUpgrade, HookEvent::PostUpgrade),
            Self::Rollback => (HookEvent::PreRollback, HookEvent::PostRollback),
        }
    }

    /// Helm's description of a revision that is deployed; a rollback keeps the one it began with.
    fn completed(self) -> Option<&'static str> {
        match self {
            Self::Install => Some("Install complete"),
            Self::Upgrade => Some("Upgrade complete"),
            Self::Rollback => None,
        }
    }

    /// What a record under way is the record of.
    fn under_way(status: &Status) -> Option<Self> {
        match status {
            Status::PendingInstall => Some(Self::Install),
            Status::PendingUpgrade => Some(Self::Upgrade),
            Status::PendingRollback => Some(Self::Rollback),
            _ => None,
        }
    }

    /// Helm's description of a revision that failed.
    pub(super) fn failed(self, release: &str, problem: &str) -> String {
        let subject = match self {
            Self::Install => "Release",
            Self::Upgrade => "Upgrade",
            Self::Rollback => "Rollback",
        };
        format!("{subject} {release:?} failed: {problem}")
    }
}

/// An attempt whose pending record is stored.
pub(super) struct Attempt<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) storage: &'a Storage,
    pub(super) options: &'a DeployOptions,
    pub(super) history: &'a [StoredRevision],
    pub(super) operation: Operation,
    pub(super) owner: Owner,
    /// The pending revision.
    pub(super) release: StoredRelease,
    /// Other revisions that were read, by revision.
    pub(super) read: BTreeMap<i64, StoredRelease>,
    /// The desired objects, with their owner's marks.
    pub(super) objects: Vec<Object>,
    pub(super) hooks: HookObjects,
    /// Objects that may be somebody else's, each as it was found; for one not read, its creation shows whether it is there.
    pub(super) open: HashMap<ObjectKey, Option<Value>>,
    /// Objects that a stored revision has.
    pub(super) recorded: HashSet<ObjectKey>,
    /// Somebody else's records that are too many once the attempt has succeeded.
    pub(super) outdated: Vec<StoredRevision>,
    /// Whether its record was written just now and no object was read, so that meeting somebody else's takes the attempt back as if it
    /// had been.
    pub(super) is_unchecked: bool,
    /// Objects the attempt created, and whether it met any that was there before.
    pub(super) created: Vec<(Object, Created)>,
    pub(super) found: bool,
    /// The objects that were written.
    pub(super) written: WrittenObjects,
    /// Whether all was carried out, so that only the attempt's record can be missing.
    pub(super) is_carried_out: bool,
    pub(super) previous: PreviousObjects,
    pub(super) apply: ApplyOptions,
    /// Called once the attempt begins.
    pub(super) on_begun: Option<&'a (dyn Fn() + Send + Sync)>,
    /// Called once the objects are written.
    pub(super) on_written: Option<&'a (dyn Fn() + Send + Sync)>,
    /// Called once a hook is there.
    pub(super) on_hooks: Option<&'a (dyn Fn() + Send + Sync)>,
    /// Whether the attempt goes on with one that was interrupted.
    pub(super) is_resumed: bool,
}

/// What an attempt did.
pub(super) struct Done {
    pub(super) conflicts: Vec<FieldConflict>,
    pub(super) applied: Vec<Value>,
    pub(super) retained: Vec<ObjectKey>,
}

impl Attempt<'_> {
    /// Carries the attempt out and records how it ended.
    ///
    /// # Errors
    /// What failed first. The record says `failed`, except after [`DeployError::Ownership`]: that is
    /// found before anything runs, and the attempt is undone with its record. Nor does it where all was carried out and only that cannot
    /// be recorded, or nobody knows whether it was: the next deployment finishes it. Nor where the record is somebody else's by now.
    ///
    /// # Cancellation
    /// The record stays pending; the next deployment goes on from there.
    pub(super) async fn run(&mut self) -> Result<Done, DeployError> {
        let described = self.release.description().to_owned();
        if let Some(on_begun) = self.on_begun {
            on_begun();
        }
        let result = self.act().await;
        match &result {
            Ok(_) => {
                self.is_carried_out = true;
                self.record_success(described).await?;
            }
            Err(DeployError::Ownership { .. }) => {}
            Err(error) if error.is_replaced() => {}
            Err(error) => {
                record_failure(self.storage, self.operation, &mut self.release, error).await;
            }
        }
        result
    }

    async fn act(&mut self) -> Result<Done, DeployError> {
        let (before, after) = self.operation.hooks();
        if self.operation == Operation::Install {
            install::create_crds(self.cluster, &self.release).await?;
        }
        let have_run = self.run_hooks(before).await?;
        if have_run && self.operation != Operation::Rollback {
            self.observe_again().await?;
        }
        let claim = Claim {
            owner: &self.owner,
            operation: self.claimed(),
            open: &self.open,
            recorded: &self.recorded,
        };
        let options = ApplyOptions {
            // Only before a first revision nobody needs to look for what else there is of the release.
            keeps_answers: self.release.revision == 1 && is_small(&self.objects),
            ..self.apply
        };
        let (objects, good) = (&mut self.objects, &self.previous.good);
        let applied = apply_all(self.cluster, objects, good, options, Some(claim)).await;
        // Only what they are called is asked for from now on.
        self.previous.forget_bodies();
        if let Some(on_written) = self.on_written {
            on_written();
        }
        let applied = match applied {
            Ok(applied) => applied,
            Err(mut error) => {
                self.found |= error.applied.found;
                if self.is_unchecked {
                    return Err(self.withdraw_if_foreign(error).await);
                }
                self.created = std::mem::take(&mut error.applied.created);
                return Err(DeployError::Apply(error));
            }
        };
        self.found |= applied.found;
        self.created = applied.created;
        self.written = applied.written;
        // What a release had that was not written here cannot be brought back, should the rest fail.
        let drops_last = self.operation == Operation::Upgrade && !self.previous.is_proven();
        // Before anything goes: what converts the objects of a definition may be among that.
        let decided = self.decide_obsolete(|_| true).await;
        let going = decided.iter().flat_map(|decided| &decided.objects);
        let claimants = with_claims(self.cluster, going.map(|(object, _)| object)).await;
        // What a volume, a namespace or a definition held cannot be brought back either, nor what a controller kept for a custom resource.
        let goes_last = |object: &Object| {
            let has_claims = || claimants.contains(&object.key());
            drops_last || holds_more(object) || is_custom(object) || has_claims()
        };
        let deleted = match decided {
            Ok(_) => self.delete_obsolete(|object| !goes_last(object)).await,
            Err(unseen) => Err(unseen),
        };
        let failed = deleted.as_ref().err();
        if failed.is_none_or(DeployError::is_unseen) {
            // An object that cannot be read is no reason to undo the attempt; one that was written and does not become ready is.
            self.wait_if_atomic().await?;
        }
        let mut retained = deleted?;
        self.run_hooks(after).await?;
        // Until all is done an attempt may fail, and one that fails takes nothing: of a release that is another's it would not be its last.
        if drops_last {
            self.check_obsolete().await?;
        }
        for (object, instance) in &applied.kept {
            let owned = self.cluster.own(object, instance.as_ref()).await;
            owned.map_err(|source| DeployError::Apply(ApplyError::of(object, source)))?;
        }
        retained.extend(self.delete_obsolete(goes_last).await?);
        Ok(Done {
            conflicts: applied.conflicts,
            applied: applied.live,
            retained,
        })
    }

    /// The operation that decides which objects the attempt may write.
    fn claimed(&self) -> ownership::Operation {
        match self.operation {
            Operation::Rollback => ownership::Operation::Restore,
            _ if self.options.take_ownership => ownership::Operation::TakeOwnership,
            Operation::Install => ownership::Operation::Install,
            Operation::Upgrade => ownership::Operation::Upgrade,
        }
    }

    /// Searches for objects that the last revision proves to be the release's and that are not by now, as hooks took their time: another release has
    /// taken one, which writes as the same field manager, so that writing it would meet no conflict; or somebody has made one anew, which is noted.
    async fn observe_again(&mut self) -> Result<(), DeployError> {
        let is_open = |object: &&Object| self.open.contains_key(&object.key());
        let proven: Vec<&Object> = self.objects.iter().filter(|one| !is_open(one)).collect();
        let operation = self.claimed();
        let is_taken = |object: &Object, found: &Value| {
            let is_recorded = self.recorded.contains(&object.key());
            let state = self.owner.observe(found).state(operation, is_recorded);
            matches!(state, ObjectState::Foreign | ObjectState::Unmarked)
        };
        let mut taken = Vec::new();
        let deadline = Instant::now() + self.options.limit();
        for page in proven.chunks(PAGE) {
            let observed = observe_all_until(self.cluster, page, deadline).await;
            for (object, found) in observed.map_err(DeployError::Observed)? {
                if let Some(found) = found.filter(|found| is_taken(object, found)) {
                    taken.push((object.key(), Some(found)));
                }
            }
        }
        self.open.extend(taken);
        Ok(())
    }

    /// An object that is somebody else's undoes the whole attempt: what was created goes, and the
    /// record with it, as if all objects had been read first.
    async fn withdraw_if_foreign(&mut self, error: ApplyError) -> DeployError {
        let foreign = match error.foreign_object() {
            Ok(foreign) => foreign,
            Err(mut error) => {
                self.created = std::mem::take(&mut error.applied.created);
                return DeployError::Apply(error);
            }
        };
        // The attempt's record is the newest and pending: nobody begins anything over it.
        let check = || ready(Ok::<_, Infallible>(()));
        let back = take_back(
            self.cluster,
            &self.owner,
            Spared::default(),
            &newest_first(&foreign.created),
            check,
        )
        .await;
        let failures = match back {
            Ok(()) => Vec::new(),
            Err(TakeBackError::Delete(failures)) => failures,
            Err(TakeBackError::Stopped(never)) => match never {},
        };
        // An object without an answer to its creation may be there all the same, with our marks.
        let remains = foreign.is_outcome_unknown || !failures.is_empty();
        for failure in failures {
            let error = error_unquoted(&failure);
            logging::warn!(error, "cannot take back a new object");
        }
        let operation = "install";
        let source = foreign.source;
        let refused = DeployError::Ownership { operation, source };
        let name = &self.release.name;
        let forgotten = if remains {
            // A later uninstall must find the objects that remain.
            let text = crate::error::error_chain(&refused);
            let description = self.operation.failed(name, &text);
            self.release.set_status(Status::Failed, description);
            self.storage.update(&self.release).await
        } else {
            let record = Deletable::created(&self.release);
            self.storage.delete(name, &record).await
        };
        if let Err(error) = forgotten {
            let error = error_unquoted(&error);
            logging::warn!(
                release = self.release.name,
                error,
                "cannot take back a record"
            );
        }
        refused
    }

    /// Runs the hooks of an event; true if there were any to run or wait for.
    async fn run_hooks(&mut self, event: HookEvent) -> Result<bool, DeployError> {
        let info = self.release.info.as_ref();
        let mut run = HookRun {
            cluster: self.cluster,
            storage: self.storage,
            timeout: self.options.limit(),
            began: info.map_or(Time::ZERO, |info| info.last_deployed),
            is_resumed: self.is_resumed,
            is_only_try: false,
            on_started: self.on_hooks,
            objects: &mut self.hooks,
        };
        run.event(&mut self.release, event)
            .await
            .map_err(|source| DeployError::Hook {
                event: event.as_str(),
                source,
            })
    }

    /// Waits for readiness where a failure to become ready is to be undone.
    async fn wait_if_atomic(&self) -> Result<(), DeployError> {
        let options = self.options;
        if !options.atomic || self.operation == Operation::Rollback {
            return Ok(());
        }
        let mode = if options.wait_for_jobs {
            Mode::WaitWithJobs
        } else {
            Mode::Wait
        };
        let objects: Vec<&Object> = self.objects.iter().collect();
        wait_until_ready(self.cluster, &objects, mode, options.limit())
            .await
            .map_err(DeployError::Wait)
    }

    /// What of the release's own stays, whatever earlier revisions call it.
    fn spared(&self) -> Spared<'_> {
        Spared {
            since: self.previous.since,
            written: Some(&self.written),
        }
    }

    /// Decides what goes of what earlier revisions had and this one has not, as far as it is due, before any of it does.
    async fn decide_obsolete(
        &self,
        is_due: impl Fn(&Object) -> bool,
    ) -> Result<Obsolete, DeployError> {
        let obsolete = self.previous.obsolete(&self.objects);
        let chart = self.release.chart.as_deref();
        let (cluster, owner, spared) = (self.cluster, &self.owner, self.spared());
        let of_hooks = match obsolete.objects.iter().any(|(one, _)| is_container(one)) {
            true => {
                let discovery = cluster.discovery().await;
                let discovery = discovery.map_err(DeployError::Discovery)?;
                listed_of_hooks(&self.release, &discovery).listed()
            }
            false => Vec::new(),
        };
        let retained = Retained::new(&owner.namespace, &self.objects, chart);
        let retained = retained.beside_hooks(&of_hooks);
        let decided = retained.decide(cluster, owner, spared, obsolete, is_due);
        decided.await.map_err(DeployError::Delete)
    }

    /// Makes sure that everything can be deleted that earlier revisions had and this one has not.
    async fn check_obsolete(&self) -> Result<(), DeployError> {
        let obsolete = self.decide_obsolete(|_| true).await?.objects;
        let other_releases = &self.options.other_releases;
        let checked = check_deletable(
            self.cluster,
            &self.owner,
            other_releases,
            self.spared(),
            &obsolete,
        )
        .await;
        checked.map_err(DeployError::Delete)
    }

    /// Deletes what earlier revisions had and this one has not, as far as it is due.
    async fn delete_obsolete(
        &mut self,
        is_due: impl Fn(&Object) -> bool,
    ) -> Result<Vec<ObjectKey>, DeployError> {
        let Obsolete {
            objects: obsolete,
            kept,
            held,
            ..
        } = self.decide_obsolete(is_due).await?;
        if obsolete.is_empty() && held.is_empty() {
            return Ok(kept.iter().map(Object::key).collect());
        }
        let other_releases = &self.options.other_releases;
        // Hooks and waits take time. A record written since means another client continues, so check before anything is taken from the release.
        let known = KnownRecords::of(self.history).with(self.release.id());
        let check = || known.check(self.storage, &self.release.name);
        let (cluster, owner, spared) = (self.cluster, &self.owner, self.spared());
        if !held.is_empty() {
            check().await.map_err(DeployError::of_check)?;
            let left = leave_held(cluster, owner, other_releases, spared, &held).await;
            left.map_err(DeployError::Delete)?;
        }
        let mut removed = Removed::default();
        let into = &mut removed;
        let done = delete_all(
            cluster,
            owner,
            other_releases,
            spared,
            obsolete,
            check,
            into,
        );
        done.await.map_err(|stopped| match stopped {
            TakeBackError::Stopped(stopped) => DeployError::of_check(stopped),
            TakeBackError::Delete(failures) => DeployError::Delete(failures),
        })?;
        for object in removed.with(Removal::Adopted) {
            let (release, object) = (&self.release.name, object.describe());
            logging::info!(release, object, "was there before the release, left");
        }
        let left = [
            Removal::Kept,
            Removal::Adopted,
            Removal::NotOwned,
            Removal::InUse,
            Removal::Deferred,
        ];
        let left = left.into_iter().flat_map(|fate| removed.with(fate));
        Ok(left.chain(&kept).map(Object::key).collect())
    }

    /// The new revision first, so that a good one is recorded at every moment.
    async fn record_success(&mut self, described: String) -> Result<(), DeployError> {
        let completed = self.operation.completed();
        let description = completed.map_or(described, str::to_owned);
        self.release.set_status(Status::Deployed, description);
        self.storage.update(&self.release).await?;
        let read = std::mem::take(&mut self.read);
        supersede(self.storage, self.history, &self.release, read).await;
        prune_outdated(self.storage, &self.release, &self.outdated).await;
        forget_unserved(self.cluster, &self.owner);
        Ok(())
    }
}

/// How much objects may weigh whose answers are all kept, in bytes; of more it is better to read one after the other again.
const KEPT_ANSWERS: usize = 8 << 20;

fn is_small(objects: &[Object]) -> bool {
    let weighed = objects.iter().map(|object| weigh(&object.body));
    weighed.sum::<usize>() <= KEPT_ANSWERS
}

/// How objects are written over those of `from`, which another client, or a merge on the client's
/// side, may have made. `is_believed` says whether what `from` had may be taken off the objects wherever they
/// have it: a record that nobody here wrote may name what is others', on an object of ours.
pub(super) fn apply_options(
    options: &DeployOptions,
    history: &[StoredRevision],
    from: Option<&Release>,
    is_believed: bool,
) -> ApplyOptions {
    let Some(from) = from else {
        return ApplyOptions {
            force: options.force,
            is_update: !history.is_empty(),
            ..ApplyOptions::default()
        };
    };
    let merged = from.apply_method != ApplyMethod::ServerSide && is_believed;
    let head = history.iter().find(|head| head.revision == from.revision);
    let is_foreign = head.is_some_and(StoredRevision::is_foreign);
    ApplyOptions {
        force: options.force,
        is_update: !history.is_empty(),
        migrate: merged || is_foreign,
        merged,
        ..ApplyOptions::default()
    }
}

/// Records that a revision failed. Where that cannot be stored the record stays pending, which the
/// next deployment finishes just as well.
pub(super) async fn record_failure(
    storage: &Storage,
    operation: Operation,
    release: &mut StoredRelease,
    error: &DeployError,
) {
    let description = operation.failed(&release.name, &crate::error::error_chain(error));
    release.set_status(Status::Failed, description);
    if let Err(unstored) = storage.update(release).await {
        let error = error_unquoted(&unstored);
        logging::warn!(release = release.name, error, "cannot record failure");
    }
}

/// Records that the newest revision failed, if it was written here and its operation was cut off before any hook: what would have finished it was refused,
/// and nobody else ends it. Where that cannot be stored it stays pending, and the next deployment comes here again.
pub(super) async fn record_refusal(
    storage: &Storage,
    name: &str,
    history: &[StoredRevision],
    error: &DeployError,
) {
    let is_ours = |head: &&StoredRevision| head.is_own() && !head.is_foreign();
    let newest = last(history).filter(is_ours);
    let Some((head, operation)) =
        newest.and_then(|head| Some((head, Operation::under_way(&head.status)?)))
    else {
        return;
    };
    match storage.get_listed(name, head).await {
        // The hooks' work is carried on once the attempt is refused no more.
        Ok(record) if has_begun(&record) => {}
        Ok(mut record) if storage.proves(name, head.revision, &record) => {
            record_failure(storage, operation, &mut record, error).await;
        }
        Ok(_) | Err(StorageError::NotFound) => {}
        Err(unread) => {
            let error = error_unquoted(&unread);
            logging::warn!(release = name, error, "cannot record a refusal");
        }
    }
}
