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

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use chart::{ReleaseInfo, Time};
use jiff::Timestamp;
use serde_json::Value;

use super::error::{BoxError, DeployError};
use super::hooks::HookRun;
use super::retained::Retained;
use super::{DeploySpec, Deployed, Options, RenderRequest, Rendered, UninstallSpec, capabilities};
use super::{install, previous, rollback, uninstall};
use crate::kube::{
    ApplyError, ApplyOptions, Cluster, ClusterLookup, Owner, OwnershipRule, Removal, Unverified,
    apply_all, check_all, creatable_unchecked, delete_all, is_foreign_writer, wait_until_ready,
};
use crate::model::{ApplyMethod, HookEvent, HookExecution, Info, Release, Status};
use crate::state::{Action, DesiredContent, Plan, State, Undo, decide, good_below};
use crate::storage::{Storage, StorageError, StoredRevision, last, prunable};
use objects::manifest::{build, documents};
use objects::readiness::wait::Mode;
use objects::{Object, ObjectKey};

/// Brings a release to what is desired.
///
/// # Errors
/// See [`DeployError`]. Whatever was applied stays, the record tells `failed`, and calling again
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
    let history = storage.history(&spec.name).await?;
    let first_plan = decide(&history, cluster.host().now());
    if first_plan.action == Action::Wait {
        return Err(DeployError::Locked);
    }
    let mut rendered = render(cluster, spec, first_plan.action).await?;
    let stored = compared_record(storage, &spec.name, first_plan.action).await?;
    let desired = match &stored {
        Some(stored) if has_content(stored, &rendered) && spec.options.always => {
            DesiredContent::Again
        }
        Some(stored) if has_content(stored, &rendered) => DesiredContent::Same,
        _ => DesiredContent::Other,
    };
    let plan = first_plan.confirm(desired);
    if let (Action::None, Some(release)) = (plan.action, &stored) {
        // The last write of a deployment that was cut off, if it was missing.
        supersede(storage, &history, release, None).await;
        // Whoever wrote it, it is what was rendered here.
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
    let stored = stored.map(|stored| (stored.revision, stored));
    let attempt = prepare(cluster, storage, spec, &history, plan, rendered, stored).await?;
    attempt.run().await
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
    if action.is_install() && !spec.options.skip_crds {
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

/// The record that decides whether anything is to be done. One that cannot be decoded counts as
/// having other content.
async fn compared_record(
    storage: &Storage,
    name: &str,
    action: Action,
) -> Result<Option<Release>, StorageError> {
    let revision = match action {
        Action::Upgrade { from, .. } => from,
        Action::Finish { revision, .. } => revision,
        Action::None | Action::Wait | Action::Install { .. } => return Ok(None),
    };
    read_if_possible(storage, name, revision).await
}

pub(super) async fn read_if_possible(
    storage: &Storage,
    name: &str,
    revision: i64,
) -> Result<Option<Release>, StorageError> {
    match storage.get(name, revision).await {
        Ok(release) => Ok(Some(release)),
        Err(StorageError::NotFound) => Ok(None),
        Err(error @ (StorageError::Decode { .. } | StorageError::Unproven { .. })) => {
            tracing::warn!(
                name,
                revision,
                error = crate::error_chain(&error),
                "unreadable record"
            );
            Ok(None)
        }
        Err(error) => Err(error),
    }
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

/// An attempt whose pending record is stored.
struct Attempt<'a> {
    cluster: &'a Cluster,
    storage: &'a Storage,
    spec: &'a DeploySpec,
    history: &'a [StoredRevision],
    plan: Plan,
    owner: Owner,
    /// The pending revision.
    release: Release,
    /// The last good revision.
    from: Option<Release>,
    objects: Vec<Object>,
    /// Those whose owner was not checked: creating them does that.
    unverified: HashSet<ObjectKey>,
    base: previous::PreviousObjects,
    how: ApplyOptions,
    /// When the attempt began that was cut off and goes on with this one.
    resumed: Option<Time>,
}

async fn prepare<'a>(
    cluster: &'a Cluster,
    storage: &'a Storage,
    spec: &'a DeploySpec,
    history: &'a [StoredRevision],
    mut plan: Plan,
    rendered: Rendered,
    compared: Option<(i64, Release)>,
) -> Result<Attempt<'a>, DeployError> {
    let is_install = plan.action.is_install();
    let owner = Owner {
        name: spec.name.clone(),
        namespace: spec.namespace.clone(),
    };
    let mut objects = build_objects(cluster, spec, &rendered, is_install).await?;
    for object in &mut objects {
        owner.mark(&mut object.body);
    }
    let compared_revision = compared.as_ref().map(|(revision, _)| *revision);
    let compared = compared.map(|(_, release)| release);
    let is_finish = matches!(plan.action, Action::Finish { .. });
    let (unfinished, mut from) = match plan.action.from() {
        Some(from) if compared_revision == Some(from) => (None, compared),
        Some(from) => (compared, read_if_possible(storage, &spec.name, from).await?),
        None => (compared, None),
    };
    let damaged = plan.action.from().filter(|_| from.is_none());
    for revision in damaged.map_or(Vec::new(), |damaged| good_below(history, damaged)) {
        from = read_if_possible(storage, &spec.name, revision).await?;
        if from.is_some() {
            plan = plan.rebased(revision);
            break;
        }
    }
    let base = previous::read_previous(
        cluster,
        storage,
        history,
        plan.action,
        from.as_ref(),
        &spec.name,
    );
    let base = base.await?;
    let how = apply_options(&spec.options, history, from.as_ref());

    let unchecked = match creates_unchecked(spec, history, &rendered) {
        true => creatable_unchecked(&objects),
        false => 0,
    };
    let unverified: HashSet<ObjectKey> = objects[..unchecked].iter().map(Object::key).collect();
    let unowned: Vec<&Object> = match spec.options.take_ownership {
        true => Vec::new(),
        false => {
            let others = objects[unchecked..].iter();
            others.filter(|object| !base.had(object)).collect()
        }
    };
    let (claim, operation) = match is_install {
        true => (OwnershipRule::MustBeOurs, "install"),
        false => (OwnershipRule::MustNotBeAnothers, "update"),
    };
    let refused = |source| DeployError::Ownership { operation, source };
    // Where the namespace may be missing, finding out comes first: in one that was created just now
    // there is nothing to look at.
    let is_known = !history.is_empty() || cluster.knows_namespace(&spec.namespace);
    if is_known {
        check_all(cluster, &owner, claim, &unowned)
            .await
            .map_err(refused)?;
    }
    let mut release = pending_release(
        spec,
        plan,
        rendered,
        from.as_ref(),
        unfinished.as_ref(),
        cluster.host().now(),
    );
    let mut resumed = None;
    if let (true, State::Interrupted, Some(unfinished)) = (is_finish, plan.state, unfinished) {
        // Its hooks know which of them have run since it began.
        let began = unfinished.info.as_ref().map(|info| info.last_deployed);
        if let (Some(info), Some(began)) = (&mut release.info, began) {
            info.last_deployed = began;
        }
        resumed = began;
        release.hooks = unfinished.hooks;
    }
    if is_finish {
        storage.store_digest(&release).await?;
        storage.update(&release).await?;
    } else {
        let last = make_room(cluster, storage, spec, history, plan, &base, &objects).await?;
        let is_new = install::create_record(cluster, storage, spec, &release, &objects).await?;
        if let Some(revision) = last {
            storage.delete(&spec.name, revision).await?;
        }
        if !is_known {
            let mut doubtful = unowned;
            doubtful.retain(|object| !is_new || object.namespace.as_ref() != Some(&spec.namespace));
            if let Err(foreign) = check_all(cluster, &owner, claim, &doubtful).await {
                storage.delete(&spec.name, release.revision).await?;
                return Err(refused(foreign));
            }
        }
    }
    Ok(Attempt {
        cluster,
        storage,
        spec,
        history,
        plan,
        owner,
        release,
        from,
        objects,
        unverified,
        base,
        how,
        resumed,
    })
}

/// Whether objects can be created before their owners are checked: on a first install that runs
/// nothing before its objects.
fn creates_unchecked(spec: &DeploySpec, history: &[StoredRevision], rendered: &Rendered) -> bool {
    let Options {
        take_ownership,
        check_ownership_first,
        skip_crds,
        disable_hooks,
        ..
    } = spec.options;
    let runs = |hook: &crate::model::Hook| hook.runs_at(HookEvent::PreInstall);
    history.is_empty()
        && !take_ownership
        && !check_ownership_first
        && (disable_hooks || !rendered.hooks.iter().any(runs))
        && (skip_crds || rendered.chart.crds().is_empty())
}

/// Builds the objects of a rendered manifest.
async fn build_objects(
    cluster: &Cluster,
    spec: &DeploySpec,
    rendered: &Rendered,
    is_install: bool,
) -> Result<Vec<Object>, DeployError> {
    let brought = match is_install && !spec.options.skip_crds {
        true => install::crd_kinds(&rendered.chart),
        false => Vec::new(),
    };
    let which = if is_install { "release" } else { "new release" };
    let failed = |source| DeployError::Build { which, source };
    let documents = documents(&rendered.manifest).map_err(failed)?;
    let discovery = cluster.discovery_of(&documents, &brought).await;
    let discovery = discovery.map_err(DeployError::Discovery)?;
    build(documents, &spec.namespace, &discovery, &brought).map_err(failed)
}

/// How objects are written over those of `from`, which another client, or a merge on the client's
/// side, may have made.
pub(super) fn apply_options(
    options: &Options,
    history: &[StoredRevision],
    from: Option<&Release>,
) -> ApplyOptions {
    let Some(from) = from else {
        return ApplyOptions {
            force: options.force,
            is_update: !history.is_empty(),
            ..ApplyOptions::default()
        };
    };
    let merged = from.apply_method != ApplyMethod::ServerSide;
    let head = history.iter().find(|head| head.revision == from.revision);
    let is_foreign = is_foreign_writer(head.and_then(|head| head.written_by.as_deref()));
    ApplyOptions {
        force: options.force,
        is_update: !history.is_empty(),
        migrate: merged || is_foreign,
        merged,
    }
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
    labels.extend(spec.options.labels.clone());
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
/// only the record of a failed attempt knows to be in the cluster goes before that record. Gives the
/// one that must wait for the new one, because no other record would be left.
async fn make_room(
    cluster: &Cluster,
    storage: &Storage,
    spec: &DeploySpec,
    history: &[StoredRevision],
    plan: Plan,
    base: &previous::PreviousObjects,
    desired: &[Object],
) -> Result<Option<i64>, DeployError> {
    let owner = Owner {
        name: spec.name.clone(),
        namespace: spec.namespace.clone(),
    };
    let outdated = prunable(history, spec.options.max_history);
    let leaves_none = history
        .iter()
        .all(|head| outdated.contains(&head.revision) && Some(head.revision) != plan.action.from());
    let newest = last(history).map(|head| head.revision);
    let last = newest.filter(|_| leaves_none);
    for revision in outdated {
        if Some(revision) == plan.action.from() {
            continue;
        }
        let retained = Retained::new(&spec.namespace, desired, Some(&spec.chart));
        let (orphans, _) = retained.split(base.orphans(revision, desired));
        if !orphans.is_empty() {
            delete_all(cluster, &owner, orphans, "Background")
                .await
                .map_err(DeployError::Delete)?;
        }
        if Some(revision) != last {
            storage.delete(&spec.name, revision).await?;
        }
    }
    Ok(last)
}

impl Attempt<'_> {
    async fn run(mut self) -> Result<Deployed, DeployError> {
        match self.act().await {
            Ok(deployed) => Ok(deployed),
            // It was found out before anything had started, and taken back.
            Err(error @ DeployError::Ownership { .. }) => Err(error),
            Err(error) => {
                let text = crate::error_chain(&error);
                let description = match self.plan.action.is_install() {
                    true => format!("Release {:?} failed: {text}", self.spec.name),
                    false => format!("Upgrade {:?} failed: {text}", self.spec.name),
                };
                self.release.set_status(Status::Failed, description);
                if let Err(unstored) = self.storage.update(&self.release).await {
                    // The record stays pending, which the next call finishes just as well.
                    let unstored = crate::error_chain(&unstored);
                    tracing::warn!(
                        release = self.spec.name,
                        error = unstored,
                        "cannot record failure"
                    );
                }
                match self.spec.options.atomic {
                    true => Err(self.undo(error).await),
                    false => Err(error),
                }
            }
        }
    }

    async fn act(&mut self) -> Result<Deployed, DeployError> {
        let is_install = self.plan.action.is_install();
        let (before, after) = match is_install {
            true => (HookEvent::PreInstall, HookEvent::PostInstall),
            false => (HookEvent::PreUpgrade, HookEvent::PostUpgrade),
        };
        if is_install && !self.spec.options.skip_crds {
            install::create_crds(self.cluster, &self.release).await?;
        }
        self.run_hooks(before).await?;
        let unverified = Unverified {
            owner: &self.owner,
            objects: &self.unverified,
        };
        let unverified = Some(unverified).filter(|unverified| !unverified.objects.is_empty());
        let good = &self.base.good;
        let applied = match apply_all(self.cluster, &self.objects, good, self.how, unverified).await
        {
            Ok(applied) => applied,
            Err(error) => return Err(self.withdraw_if_foreign(error).await),
        };
        let retained = self.delete_obsolete().await?;
        self.wait_if_atomic().await?;
        self.run_hooks(after).await?;
        self.record_success().await?;
        Ok(Deployed {
            release: self.release.clone(),
            changed: true,
            plan: self.plan,
            conflicts: applied.conflicts,
            applied: applied.live,
            retained,
        })
    }

    /// An object that is somebody else's undoes the whole attempt: what was created goes, and the
    /// record with it, as if everything had been looked at first.
    async fn withdraw_if_foreign(&mut self, error: ApplyError) -> DeployError {
        let (source, created) = match error.not_ours() {
            Ok(foreign) => foreign,
            Err(error) => return DeployError::Apply(error),
        };
        let mut remains = false;
        for (object, uid) in created.iter().rev() {
            match self.cluster.delete(object, Some(uid), "Background").await {
                Err(error) if !error.is_not_found() && !error.is_conflict() => {
                    let (object, error) = (object.describe(), crate::error_chain(&error));
                    tracing::warn!(object, error, "cannot take back a new object");
                    remains = true;
                }
                _ => {}
            }
        }
        let operation = "install";
        let refused = DeployError::Ownership { operation, source };
        let (name, revision) = (&self.spec.name, self.release.revision);
        let forgotten = if remains {
            // Whoever uninstalls must find what is left.
            let text = crate::error_chain(&refused);
            let description = format!("Release {name:?} failed: {text}");
            self.release.set_status(Status::Failed, description);
            self.storage.update(&self.release).await
        } else {
            self.storage.delete(name, revision).await
        };
        if let Err(error) = forgotten {
            let error = crate::error_chain(&error);
            tracing::warn!(release = name, error, "cannot take back a record");
        }
        refused
    }

    async fn run_hooks(&mut self, event: HookEvent) -> Result<(), DeployError> {
        if self.spec.options.disable_hooks {
            return Ok(());
        }
        let run = HookRun {
            cluster: self.cluster,
            storage: self.storage,
            timeout: self.spec.options.limit(),
            resumed: self.resumed,
        };
        run.event(&mut self.release, event)
            .await
            .map_err(|source| DeployError::Hook {
                event: event.as_str(),
                source,
            })
    }

    /// What is to be undone when it does not become ready must be waited for.
    async fn wait_if_atomic(&self) -> Result<(), DeployError> {
        let options = &self.spec.options;
        if !options.atomic {
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

    /// Deletes what earlier revisions had and this one has not.
    async fn delete_obsolete(&mut self) -> Result<Vec<ObjectKey>, DeployError> {
        let obsolete = self.base.obsolete(&self.objects);
        if obsolete.is_empty() {
            return Ok(Vec::new());
        }
        let chart = self.release.chart.as_deref();
        let retained = Retained::new(&self.spec.namespace, &self.objects, chart);
        let (obsolete, retained) = retained.split(obsolete);
        let removed = delete_all(self.cluster, &self.owner, obsolete, "Background")
            .await
            .map_err(DeployError::Delete)?;
        let left = [Removal::Kept, Removal::NotOwned];
        let left = left.into_iter().flat_map(|fate| removed.with(fate));
        Ok(left.chain(&retained).map(Object::key).collect())
    }

    /// The new revision first, so that a good one is recorded at every moment.
    async fn record_success(&mut self) -> Result<(), DeployError> {
        let done = if self.plan.action.is_install() {
            "Install complete"
        } else {
            "Upgrade complete"
        };
        let description = self.spec.options.description.clone();
        self.release.set_status(
            Status::Deployed,
            description.unwrap_or_else(|| done.to_owned()),
        );
        self.storage.update(&self.release).await?;
        let from = self.from.take();
        supersede(self.storage, self.history, &self.release, from).await;
        Ok(())
    }

    /// Undoes a failed attempt, because that was asked for.
    async fn undo(&self, error: DeployError) -> DeployError {
        let Some(undo) = self.plan.undo() else {
            return error;
        };
        let (undone, undoing) = match undo {
            Undo::Uninstall => ("uninstalled", "uninstalling"),
            Undo::RollBack { .. } => ("rolled back", "rolling back"),
        };
        let result: Result<(), BoxError> = match undo {
            Undo::Uninstall => {
                let spec = UninstallSpec {
                    disable_hooks: self.spec.options.disable_hooks,
                    timeout: self.spec.options.timeout,
                    ..UninstallSpec::new(&self.spec.name, &self.spec.namespace)
                };
                let done = uninstall::uninstall_locked(self.cluster, self.storage, &spec).await;
                done.map(drop).map_err(Into::into)
            }
            Undo::RollBack { to: revision } => {
                let mut options = self.spec.options.clone();
                options.atomic = false;
                options.description = None;
                let spec = super::RollbackSpec {
                    name: self.spec.name.clone(),
                    namespace: self.spec.namespace.clone(),
                    revision,
                    options,
                };
                let done =
                    Box::pin(rollback::rollback_locked(self.cluster, self.storage, &spec)).await;
                done.map(drop).map_err(Into::into)
            }
        };
        match result {
            Ok(()) => DeployError::Undone {
                name: self.spec.name.clone(),
                undone,
                source: Box::new(error),
            },
            Err(source) => DeployError::NotUndone {
                undoing,
                original: crate::error_chain(&error),
                source,
            },
        }
    }
}

/// Closes every other record: a deployed one is superseded now, one that was cut off has failed, and
/// a removal that gave way is over. A failure is only logged: the next deployment comes here again,
/// and readers take the newest deployed one.
pub(super) async fn supersede(
    storage: &Storage,
    history: &[StoredRevision],
    newest: &Release,
    from: Option<Release>,
) {
    let mut from = from
        .into_iter()
        .map(|from| (from.revision, from))
        .collect::<BTreeMap<_, _>>();
    let others = history
        .iter()
        .filter(|head| head.revision != newest.revision);
    for (head, closed) in others.filter_map(|head| Some((head, closed(&head.status)?))) {
        let old = match from.remove(&head.revision) {
            Some(old) => Ok(Some(old)),
            None => storage
                .get_unverified(&newest.name, head.revision)
                .await
                .map(Some),
        };
        let result = match old {
            Ok(Some(mut old)) => {
                if let Some(info) = &mut old.info {
                    info.status = closed;
                }
                storage.update(&old).await
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        match result {
            // Pruned, by us or by somebody else.
            Ok(()) | Err(StorageError::NotFound) => {}
            Err(error) => {
                let error = crate::error_chain(&error);
                tracing::warn!(
                    release = newest.name,
                    revision = head.revision,
                    error,
                    "cannot close the record of an earlier revision"
                );
            }
        }
    }
}

/// What a record says of itself once a later revision is deployed; none if it says so already.
fn closed(status: &Status) -> Option<Status> {
    match status {
        Status::Deployed => Some(Status::Superseded),
        Status::Uninstalling => Some(Status::Uninstalled),
        status if status.is_pending() => Some(Status::Failed),
        _ => None,
    }
}
