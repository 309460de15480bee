//! Deploying: from what is desired to what is stored and applied.
//!
//! *Expected flow.* The history is read (metadata only), a plan is made, the chart is rendered, the
//! record the plan builds on is read and compared. If there is something to do: the pending record
//! is written, hooks run, objects are applied, objects that vanished are deleted, the record becomes
//! `deployed` and the one before `superseded`.
//!
//! *Guarantees.* Nothing is written before everything that can fail without the cluster has passed.
//! Nothing that runs is started before it is known that no object is somebody else's.
//! The pending record is written before the first object. The last good revision's record is neither
//! pruned nor overwritten until a new one is deployed. An attempt that was cut off anywhere is
//! finished by the next call.
//!
//! *Caveats.* Readiness is not waited for unless failing shall undo the release (`atomic`): the
//! revision is `deployed` once its objects are accepted and its hooks ended well. Whoever calls
//! observes readiness from then on.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use chart::{ReleaseInfo, Time};
use jiff::Timestamp;
use objects::manifest::{build, documents, read_documents};
use objects::{Object, ObjectKey};
use serde_json::Value;

use super::attempt::{Attempt, Operation, apply_options, record_refusal};
use super::capabilities::capabilities;
use super::error::DeployError;
use super::hook_objects::HookObjects;
use super::hook_progress::carried_on;
use super::known_records::KnownRecords;
use super::previous::{Pruning, previous_objects, supersede};
use super::records::{
    confirm_install, first_attempt, is_agents, is_mislabelled, last_good, plan, read_if_possible,
    stored_objects, was_created_since,
};
use super::removal_hook::outlast;
use super::retained::Retained;
use super::spec::{DeployOptions, DeploySpec, Deployed, RenderRequest, Rendered, UninstallSpec};
use super::uninstall::UninstallScope;
use super::{install, rollback, uninstall};
use crate::error::BoxError;
use crate::kube::{
    Claim, Cluster, ClusterLookup, Created, Owner, OwnershipError, Spared, WrittenObjects,
    creatable_unchecked, is_noted, newest_first, observe_all, take_back,
};
use crate::model::{ApplyMethod, HookEvent, HookExecution, Info, Release, Status};
use crate::others::Confirmation;
use crate::state::ownership::{self, Adoption, ObjectState, Verdict};
use crate::state::{Action, DesiredContent, Plan, State, Undo, good_below};
use crate::storage::{
    Deletable, Provenance, RecordId, Storage, StorageError, StoredRelease, StoredRevision, last,
    prunable,
};

/// The most records of a release that its owner may ask to keep: who stores their digests has room for that of the last good one, whatever fails after it.
pub const MAX_HISTORY: u8 = 62;

/// Brings a release to what is desired.
///
/// # Errors
/// See [`DeployError`]. Whatever was applied stays, the record says `failed`, and calling again
/// carries on.
///
/// # Cancellation
/// Every `.await` may be the last; the next call finishes forward.
pub async fn deploy(
    cluster: &Cluster,
    storage: &Storage,
    spec: &DeploySpec,
) -> Result<Deployed, DeployError> {
    install::check_name(&spec.name)?;
    let _lock = cluster.lock_release(&spec.namespace, &spec.name).await;
    let mut history = storage.history(&spec.name).await?;
    let is_its =
        |known: &&StoredRelease| (&known.name, &known.namespace) == (&spec.name, &spec.namespace);
    let known = spec.known.as_ref().filter(is_its);
    let (name, namespace) = (&spec.name, &spec.namespace);
    let now = cluster.host().now();
    let (mut first_plan, mut base) = plan(storage, name, known, &mut history, now).await?;
    let writer = &spec.options.writer;
    if first_plan.action == Action::Wait && is_agents(storage, name, writer, &mut history).await {
        let now = cluster.host().now();
        (first_plan, base) = plan(storage, name, known, &mut history, now).await?;
    }
    if first_plan.action == Action::Wait {
        return Err(DeployError::Locked);
    }
    let outlasted = outlast(cluster, storage, name, &history, spec.options.limit()).await;
    outlasted.map_err(DeployError::Removal)?;
    let confirmed = confirm_install(cluster, storage, name, namespace, &history, first_plan);
    first_plan = confirmed.await?;
    let mut rendered = render(cluster, spec, first_plan.action).await?;
    let stored = compared_record(storage, name, base, first_plan.action).await?;
    let desired = match &stored {
        Some(stored)
            if has_content(stored, &rendered) && (spec.options.always || !is_current(stored)) =>
        {
            DesiredContent::Again
        }
        Some(stored) if has_content(stored, &rendered) => DesiredContent::Same,
        _ => DesiredContent::Other,
    };
    let plan = first_plan.confirm(desired);
    if let (Action::None, Some(release)) = (plan.action, &stored) {
        // The last write of a deployment that was cut off, if it was missing.
        supersede(storage, &history, release, BTreeMap::new()).await;
        // The stored record equals what was rendered here, whoever wrote it.
        storage.store_digest(release).await?;
        return Ok(Deployed {
            release: release.clone(),
            changed: false,
            plan,
            conflicts: Vec::new(),
            applied: Vec::new(),
            retained: Vec::new(),
        });
    }
    if plan.action.revision() != first_plan.action.revision() {
        rendered = render(cluster, spec, plan.action).await?;
    }
    // The attempt itself makes it known.
    let was_known = !history.is_empty() || storage.knows(&spec.name);
    let prepared = prepare(cluster, storage, spec, &history, plan, rendered, stored).await;
    if let Err(refused) = &prepared
        && refused.is_refusal()
    {
        record_refusal(storage, name, &history, refused).await;
    }
    let (plan, mut attempt) = prepared?;
    let result = attempt.run().await;
    if result.is_err() {
        spec.failed(std::mem::take(&mut attempt.read).into_values());
    }
    match result {
        Ok(done) => Ok(Deployed {
            release: attempt.release,
            changed: true,
            plan,
            conflicts: done.conflicts,
            applied: done.applied,
            retained: done.retained,
        }),
        // The foreign object was found before anything had started, and the attempt is undone already.
        Err(error @ DeployError::Ownership { .. }) => Err(error),
        // Another record in place of the attempt's means that somebody else has the release.
        Err(error) if error.is_replaced() => Err(error),
        // Nothing was written yet, or all was; and an object that cannot be read can hardly be undone.
        Err(error) if error.is_unseen() => Err(error),
        // As helm has it: a release that is there and cannot be recorded is not undone.
        Err(error) if spec.options.atomic && !attempt.is_carried_out => {
            // Objects that may have been created without an answer are found by the attempt's record.
            let is_outcome_unknown = error.is_outcome_unknown();
            let record = attempt.release.id();
            let made = Made {
                known: KnownRecords::of(&history).with(record.clone()),
                record,
                is_all: !was_known && !attempt.found && !is_outcome_unknown,
                created: std::mem::take(&mut attempt.created),
            };
            // The attempt's objects are not needed beside those of the revision to go back to.
            drop(attempt);
            let undo = plan.undo(&history, made.is_all);
            Err(carry_out(cluster, storage, spec, undo, &made, error).await)
        }
        Err(error) => Err(error),
    }
}

/// Renders in a thread that may block.
async fn render(
    cluster: &Cluster,
    spec: &DeploySpec,
    action: Action,
) -> Result<Rendered, DeployError> {
    let mut capabilities = capabilities(cluster)
        .await
        .map_err(DeployError::Discovery)?;
    if action.is_install() {
        // By the time the objects are written these are served, so templates may count on them.
        let mut versions = capabilities.api_versions.to_vec();
        for kind in install::crd_kinds(&spec.chart) {
            versions.push(kind.api_version());
            versions.push(format!("{}/{}", kind.api_version(), kind.kind));
        }
        capabilities.api_versions = versions.into();
    }
    let request = RenderRequest {
        release: ReleaseInfo {
            name: spec.name.clone(),
            namespace: spec.namespace.clone(),
            revision: action.revision(),
            is_install: action.is_install(),
            is_upgrade: !action.is_install(),
        },
        capabilities,
        lookup: ClusterLookup::new(cluster.clone()),
    };
    let render = Arc::clone(&spec.render);
    let rendered = cluster.host().work(move || render(&request));
    rendered
        .await
        .map_err(DeployError::RenderAborted)?
        .map_err(DeployError::Render)
}

/// The record that decides whether anything is to be done: what the plan builds on, which was read for it, or what it finishes. One that cannot be decoded
/// counts as having other content.
async fn compared_record(
    storage: &Storage,
    name: &str,
    base: Option<StoredRelease>,
    action: Action,
) -> Result<Option<StoredRelease>, StorageError> {
    let revision = match action {
        Action::Upgrade { from, .. } => from,
        Action::Finish { revision, .. } => revision,
        Action::None | Action::Wait | Action::Install { .. } => return Ok(None),
    };
    match base.filter(|base| base.revision == revision) {
        Some(base) => Ok(Some(base)),
        None => read_if_possible(storage, name, revision).await,
    }
}

/// Whether a record says that what it has is what runs. One that does not, whatever its label says, is deployed anew, as its status is what drift is
/// corrected by.
fn is_current(stored: &Release) -> bool {
    let status = stored.status();
    status.is_complete() && status != Status::Superseded
}

/// Whether a record has the content that was rendered now.
fn has_content(stored: &Release, rendered: &Rendered) -> bool {
    let hooks = |hooks: &[crate::model::Hook]| -> Vec<crate::model::Hook> {
        let plain = |hook: &crate::model::Hook| crate::model::Hook {
            last_run: HookExecution::default(),
            delete_policies: hook.effective_delete_policies(),
            ..hook.clone()
        };
        hooks.iter().map(plain).collect()
    };
    let config = golib::json::floats(Value::Object(rendered.config.clone()));
    stored.manifest == rendered.manifest
        && hooks(&stored.hooks) == hooks(&rendered.hooks)
        && golib::json::floats(Value::Object(stored.config.clone())) == config
        && stored
            .chart
            .as_ref()
            .is_some_and(|chart| chart.metadata == rendered.chart.metadata)
}

async fn prepare<'a>(
    cluster: &'a Cluster,
    storage: &'a Storage,
    spec: &'a DeploySpec,
    history: &'a [StoredRevision],
    mut plan: Plan,
    mut rendered: Rendered,
    compared: Option<StoredRelease>,
) -> Result<(Plan, Attempt<'a>), DeployError> {
    let is_install = plan.action.is_install();
    let owner = Owner::new(&spec.name, &spec.namespace);
    let mut objects = build_objects(cluster, spec, &mut rendered, is_install).await?;
    for object in &mut objects {
        owner.mark(&mut object.body);
    }
    let compared_revision = compared.as_ref().map(|compared| compared.revision);
    let is_finish = matches!(plan.action, Action::Finish { .. });
    let (unfinished, mut from) = match plan.action.from() {
        Some(from) if compared_revision == Some(from) => (None, compared),
        Some(from) => (compared, read_if_possible(storage, &spec.name, from).await?),
        None => (compared, None),
    };
    let damaged = plan.action.from().filter(|_| from.is_none());
    for revision in damaged.map_or(Vec::new(), |damaged| good_below(history, damaged)) {
        from = read_if_possible(storage, &spec.name, revision).await?;
        from = from.filter(|record| !is_mislabelled(storage, &spec.name, revision, record));
        if from.is_some() {
            plan = plan.rebased(revision);
            break;
        }
    }
    let previous = previous_objects(
        cluster,
        storage,
        history,
        (&spec.name, &objects),
        plan.action,
        from.as_deref(),
        unfinished.as_deref(),
    );
    let previous = previous.await?;
    // The first takeover goes by the record that is there.
    let is_believed = previous.is_proven() || !storage.was_deployed(&spec.name);
    let apply = apply_options(&spec.options, history, from.as_deref(), is_believed);

    let is_unchecked = creates_unchecked(spec, history, &rendered);
    let unchecked = match is_unchecked {
        true => creatable_unchecked(&objects),
        // No object can be somebody else's.
        false if history.is_empty() && spec.options.take_ownership => objects.len(),
        false => 0,
    };
    // A record that nobody here wrote proves nothing: the objects of its attempt are noted as having been there.
    let mut recorded = previous.recorded();
    let is_own = |one: &&Release| storage.recognises(&spec.name, one.revision, one);
    if let Some(unfinished) = unfinished.as_deref().filter(is_own) {
        let objects = stored_objects(cluster, Some(unfinished)).await?;
        recorded.extend(objects.iter().map(Object::key));
    }
    let others = objects[unchecked..].iter();
    let foreign_objects = spec.options.foreign_objects.now();
    let may_be_foreign = |object: &Object| {
        let foreign_objects = foreign_objects.as_ref();
        foreign_objects.is_none_or(|known| known.contains(&object.key()))
    };
    let is_proven = |object: &&Object| previous.proves(object) && !may_be_foreign(object);
    let unproven: Vec<&Object> = others.filter(|object| !is_proven(object)).collect();
    let mut open: HashMap<ObjectKey, Option<Value>> = objects[..unchecked]
        .iter()
        .chain(unproven.iter().copied())
        .map(|object| (object.key(), None))
        .collect();
    let mut check = OwnershipCheck {
        cluster,
        owner: &owner,
        operation: match (spec.options.take_ownership, is_install) {
            (true, _) => ownership::Operation::TakeOwnership,
            (_, true) => ownership::Operation::Install,
            (_, false) => ownership::Operation::Upgrade,
        },
        recorded,
        began: first_attempt(history).filter(|_| is_install),
    };
    let operation = if is_install { "install" } else { "update" };
    let refused = |source| DeployError::Ownership { operation, source };
    // Where the namespace may be missing, finding out comes first: in one that was created just now
    // there is nothing to read.
    let is_known = !history.is_empty() || cluster.knows_namespace(&spec.namespace);
    if is_known {
        check.run(&unproven, &mut open).await.map_err(refused)?;
    }
    let mut hooks = HookObjects::read(std::mem::take(&mut rendered.hook_objects));
    let mut release = pending_release(
        spec,
        plan,
        rendered,
        from.as_deref(),
        unfinished.as_deref(),
        cluster.host().now(),
    );
    let mut outdated = prunable(history, spec.options.max_history);
    let mut is_resumed = false;
    if let (true, State::Interrupted, Some(unfinished)) = (is_finish, plan.state, &unfinished) {
        // The interrupted attempt's hooks know which of them have run since it began.
        let began = unfinished.info.as_ref().map(|info| info.last_deployed);
        if let (Some(info), Some(began)) = (&mut release.info, began) {
            info.last_deployed = began;
        }
        is_resumed = began.is_some();
        release.hooks.clone_from(&unfinished.hooks);
        hooks = HookObjects::default();
        if let (Some(info), Some(description)) = (&mut release.info, carried_on(unfinished)) {
            info.description = description;
        }
    }
    let unfinished_head = history
        .iter()
        .find(|head| head.revision == release.revision);
    let release = if let Some(head) = unfinished_head.filter(|_| is_finish) {
        // Rendering takes its time, and nothing but the creation of a record is a lock.
        let known = KnownRecords::of(history);
        known.check(storage, &spec.name).await?;
        storage.store_digest(&release).await?;
        let release = StoredRelease::over(head, release);
        if let Err(failed) = storage.update(&release).await {
            if matches!(failed, StorageError::Replaced { .. }) {
                storage.withdraw_digest(&release);
            }
            return Err(failed.into());
        }
        release
    } else {
        let pruning = Pruning {
            cluster,
            storage,
            owner: &owner,
            known: KnownRecords::of(history),
            retained: Retained::new(&spec.namespace, &objects, Some(&spec.chart)),
            previous: &previous,
            desired: &objects,
        };
        let mut before = std::mem::take(&mut outdated.before);
        before.retain(|record| !previous.is_hidden(record.revision()));
        if !before.is_empty() && !previous.is_proven() {
            // Anybody may have written the labels. What is not built on, as nothing of it runs, is what an undo goes back to all the same.
            let good = last_good(storage, history, &spec.name, i64::MAX).await?;
            // Where no revision is good, a record in place of one that was may be: another agent's.
            let may_be_good = |revision| {
                let mut heads = history.iter();
                heads.any(|head| head.revision == revision && head.provenance == Provenance::Reused)
            };
            before.retain(|record| match &good {
                Some(good) => good.revision != record.revision(),
                None => !may_be_good(record.revision()),
            });
        }
        if !before.is_empty() {
            storage.confirm_digests().await?;
        }
        // What says what has to stay goes once that is decided and done: a try that fails is followed by another one.
        let needed = before.iter().map(Deletable::revision);
        let needed = needed.filter(|revision| previous.needs(*revision));
        let mut needed: Vec<i64> = needed.collect();
        needed.sort_unstable_by(|one, other| other.cmp(one));
        let own = history.iter().filter(|head| head.is_own()).count();
        let room = usize::from(MAX_HISTORY) - 1 + before.len();
        needed.truncate(room.saturating_sub(own));
        before.retain(|record| !needed.contains(&record.revision()));
        let needed = history
            .iter()
            .filter(|head| needed.contains(&head.revision));
        outdated.once_deployed.extend(needed.cloned());
        let waiting = make_room(&pruning, history, plan, before).await?;
        let created = install::create_record(cluster, storage, spec, &release, &objects).await?;
        let (record, is_new) = created;
        let release = StoredRelease::new(release, record);
        for former in waiting {
            storage.delete(&spec.name, &former).await?;
        }
        if !is_known {
            let mut doubtful = unproven;
            let is_here = |object: &Object| {
                object.namespace.as_ref() == Some(&spec.namespace)
                    || object.is_namespace() && object.name == spec.namespace
            };
            doubtful.retain(|object| !is_new || !is_here(object));
            if let Err(foreign) = check.run(&doubtful, &mut open).await {
                let record = Deletable::created(&release);
                storage.delete(&spec.name, &record).await?;
                return Err(refused(foreign));
            }
        }
        release
    };
    let OwnershipCheck { recorded, .. } = check;
    let read = from.into_iter().chain(unfinished);
    let attempt = Attempt {
        on_begun: spec.on_begun.as_deref(),
        on_written: spec.on_written.as_deref(),
        on_hooks: spec.on_hooks.as_deref(),
        cluster,
        storage,
        options: &spec.options,
        history,
        operation: match is_install {
            true => Operation::Install,
            false => Operation::Upgrade,
        },
        owner,
        release,
        read: read.map(|release| (release.revision, release)).collect(),
        found: open.values().any(Option::is_some),
        open,
        recorded,
        outdated: outdated.once_deployed,
        is_unchecked,
        created: Vec::new(),
        written: WrittenObjects::default(),
        is_carried_out: false,
        objects,
        hooks,
        previous,
        apply,
        is_resumed,
    };
    Ok((plan, attempt))
}

/// Finds out about objects that may be somebody else's.
struct OwnershipCheck<'a> {
    cluster: &'a Cluster,
    owner: &'a Owner,
    operation: ownership::Operation,
    /// Objects that a stored revision has.
    recorded: HashSet<ObjectKey>,
    /// When the first attempt at a release began that was never deployed.
    began: Option<Timestamp>,
}

impl OwnershipCheck<'_> {
    /// Reads objects before anything is written, and notes those that exist. What carries our marks though no
    /// record has it is noted at once as having been there: later nobody could tell it from what the attempt
    /// created. That a record has it proves nothing of objects older than the first record: that attempt may have been cut off before it had read
    /// them.
    async fn run(
        &mut self,
        objects: &[&Object],
        open: &mut HashMap<ObjectKey, Option<Value>>,
    ) -> Result<(), OwnershipError> {
        let observed = observe_all(self.cluster, objects).await?;
        for (object, found) in &observed {
            let is_older =
                |live: &Value| self.began.is_some() && !was_created_since(live, self.began);
            if found
                .as_ref()
                .is_some_and(|live| is_older(live) && !is_noted(live))
            {
                self.recorded.remove(&object.key());
            }
        }
        let claim = Claim {
            owner: self.owner,
            operation: self.operation,
            open: &HashMap::new(),
            recorded: &self.recorded,
        };
        for (object, found) in &observed {
            if claim.verdict(object, found.as_ref()) == Verdict::Refuse {
                let live = found.clone().unwrap_or_default();
                return Err(self.owner.refusal(object, &live));
            }
        }
        for (object, found) in observed {
            let is_marked = claim.state(object, found.as_ref()) == ObjectState::Marked;
            let noted = match found {
                Some(live) if is_marked => {
                    let adoption = Adoption::HandedOver;
                    Some(self.cluster.note(object, live, adoption).await?)
                }
                found => found,
            };
            open.insert(object.key(), noted);
        }
        Ok(())
    }
}

/// Whether objects can be created before their owners are checked: on a first install that runs
/// nothing before its objects.
fn creates_unchecked(spec: &DeploySpec, history: &[StoredRevision], rendered: &Rendered) -> bool {
    let DeployOptions {
        take_ownership,
        check_ownership_first,
        ..
    } = spec.options;
    let runs = |hook: &crate::model::Hook| hook.runs_at(HookEvent::PreInstall);
    history.is_empty()
        && !take_ownership
        && !check_ownership_first
        && !rendered.hooks.iter().any(runs)
        && rendered.chart.crds().is_empty()
}

/// Builds the objects of a rendered manifest.
async fn build_objects(
    cluster: &Cluster,
    spec: &DeploySpec,
    rendered: &mut Rendered,
    is_install: bool,
) -> Result<Vec<Object>, DeployError> {
    let brought = match is_install {
        true => install::crd_kinds(&rendered.chart),
        false => Vec::new(),
    };
    let which = if is_install { "release" } else { "new release" };
    let failed = |source| DeployError::Build { which, source };
    let documents = match rendered.objects.take() {
        Some(read) => read_documents(read),
        None => documents(&rendered.manifest),
    };
    let documents = documents.map_err(failed)?;
    let discovery = cluster.discovery_of(&documents, &brought).await;
    let discovery = discovery.map_err(DeployError::Discovery)?;
    build(documents, &spec.namespace, &discovery, &brought).map_err(failed)
}

/// The record that is written before anything is done.
fn pending_release(
    spec: &DeploySpec,
    plan: Plan,
    rendered: Rendered,
    from: Option<&Release>,
    unfinished: Option<&Release>,
    now: Timestamp,
) -> Release {
    let now = Time::utc(now);
    let first_deployed = from
        .or(unfinished)
        .and_then(|release| release.info.as_ref())
        .map(|info| info.first_deployed)
        .filter(|time| !time.is_zero());
    let mut labels = from.map(|from| from.labels.clone()).unwrap_or_default();
    Release::forget_removal(&mut labels);
    labels.retain(|_, value| !value.is_empty());
    let (status, description) = match plan.action.is_install() {
        true => (Status::PendingInstall, "Initial install underway"),
        false => (Status::PendingUpgrade, "Preparing upgrade"),
    };
    Release {
        name: spec.name.clone(),
        info: Some(Info {
            first_deployed: first_deployed.unwrap_or(now),
            last_deployed: now,
            description: description.to_owned(),
            status,
            notes: rendered.notes,
            ..Info::default()
        }),
        chart: Some(rendered.chart),
        config: rendered.config,
        manifest: rendered.manifest,
        hooks: rendered.hooks,
        revision: plan.action.revision(),
        namespace: spec.namespace.clone(),
        apply_method: ApplyMethod::ServerSide,
        labels,
    }
}

/// Makes room for one more record. The revision that is built on stays whatever its status. What
/// only the record of a failed attempt knows to be in the cluster goes before that record. Gives those
/// that must wait for the new one, as it may be refused: what has objects that only the new one has too,
/// and the newest where no other record would be left.
async fn make_room(
    pruning: &Pruning<'_>,
    history: &[StoredRevision],
    plan: Plan,
    mut outdated: Vec<Deletable>,
) -> Result<Vec<Deletable>, DeployError> {
    let from = plan.action.from();
    outdated.retain(|record| Some(record.revision()) != from);
    let newest = last(history).map(|head| head.revision);
    // Each goes, so the newest must wait.
    let leaves_none = outdated.len() == history.len();
    let mut waiting = Vec::new();
    for record in outdated {
        let revision = record.revision();
        let is_last = leaves_none && Some(revision) == newest;
        if is_last || pruning.is_only_record(revision) {
            pruning.delete_orphans(revision).await?;
            waiting.push(record);
        } else {
            pruning.prune(&record).await?;
        }
    }
    Ok(waiting)
}

/// What an attempt brought into the cluster.
struct Made {
    record: RecordId,
    /// The attempt's record, and those that were there before.
    known: KnownRecords,
    /// Whether there was nothing of the release before.
    is_all: bool,
    created: Vec<(Object, Created)>,
}

/// Undoes a failed attempt, because that was asked for. What was there before it stays.
async fn carry_out(
    cluster: &Cluster,
    storage: &Storage,
    spec: &DeploySpec,
    undo: Option<Undo>,
    made: &Made,
    error: DeployError,
) -> DeployError {
    let Some(undo) = undo else {
        return error;
    };
    let (undone, undoing, except) = match undo {
        Undo::Uninstall => ("uninstalled", "uninstalling", ""),
        Undo::RollBack { .. } => ("rolled back", "rolling back", ""),
        Undo::TakeBack => (
            "rolled back",
            "rolling back",
            ", but for what it wrote over objects that were there before",
        ),
    };
    match go_back(cluster, storage, spec, undo, made).await {
        Ok(()) => DeployError::Undone {
            name: spec.name.clone(),
            undone,
            except,
            source: Box::new(error),
        },
        Err(source) => DeployError::NotUndone {
            undoing,
            original: crate::error::error_chain(&error),
            source,
        },
    }
}

/// Undoes an attempt, as far as nobody has gone on from it.
async fn go_back(
    cluster: &Cluster,
    storage: &Storage,
    spec: &DeploySpec,
    undo: Undo,
    made: &Made,
) -> Result<(), BoxError> {
    let owner = Owner::new(&spec.name, &spec.namespace);
    // What the attempt created belongs to whoever has deployed since.
    let check = || made.known.check(storage, &spec.name);
    match undo {
        Undo::Uninstall => {
            check().await?;
            let uninstall_spec = UninstallSpec {
                timeout: spec.options.timeout,
                ..UninstallSpec::new(&spec.name, &spec.namespace)
            };
            let scope = UninstallScope::Created(&made.created, &made.record);
            let scope = (scope, Confirmation::default());
            uninstall::uninstall_locked(cluster, storage, &uninstall_spec, scope).await?;
        }
        Undo::TakeBack => {
            let back = take_back(
                cluster,
                &owner,
                Spared::default(),
                &newest_first(&made.created),
                check,
            )
            .await;
            back.map_err(DeployError::from)?;
        }
        Undo::RollBack { to: revision } => {
            let back = rollback::rollback(cluster, storage, spec, revision, &made.known);
            Box::pin(back).await?;
        }
    }
    Ok(())
}
