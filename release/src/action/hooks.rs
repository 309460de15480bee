//! Running the hooks of an event.
//!
//! One at a time by weight and name, each created, waited for and recorded before the next. Hook
//! objects carry no marks of the release and are not part of it; an annotation says which run wrote them, and what that run deletes once it is
//! over is what it wrote. Their logs go nowhere, which is Helm's default too.
//!
//! Mirrors `pkg/action/hooks.go`.

use std::sync::Arc;
use std::time::Duration;

use chart::Time;
use objects::Object;
use objects::readiness::Status;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::error::HookError;
use super::hook_objects::HookObjects;
use super::hook_progress::{
    Progress, is_of_both, is_over, is_waited_for, not_before, operation, order, over, progress,
};
use super::unquoted::error_unquoted;
use crate::kube::{
    Applied, Cluster, Created, HookClaim, HookInstance, Lock, Owner, Removal, RunMark, apply_hook,
    clear_name, delete_failed, delete_hook, wait_for_hooks, wait_until_left, wait_until_over,
};
use crate::model::{HookDeletePolicy, HookEvent, HookExecution, Release};
use crate::storage::{Storage, StoredRelease};

/// How long a finished hook is left to the other process that started it: more than two of its reads.
const GRACE: Duration = Duration::from_secs(5);

/// How the hooks of a release are run.
pub(super) struct HookRun<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) storage: &'a Storage,
    /// How long each hook may take.
    pub(super) timeout: Duration,
    /// When the operation began: no hook of it starts before, whatever the clock says by then.
    pub(super) began: Time,
    /// Whether the operation was cut off and goes on now.
    pub(super) is_resumed: bool,
    /// Whether nobody tries again should a hook not end well, in a removal.
    pub(super) is_only_try: bool,
    /// Called once a hook is there.
    pub(super) on_started: Option<&'a (dyn Fn() + Send + Sync)>,
    pub(super) objects: &'a mut HookObjects,
}

impl HookRun<'_> {
    /// Runs all hooks of `event`. Each start is stored in the release's record, and the end of those
    /// that precede the objects. Says whether there was one to be run or waited for, which takes its time.
    ///
    /// # Cancellation
    /// A hook that was started goes on in the cluster; a resumed operation waits for it instead of
    /// starting another one.
    pub(super) async fn event(
        &mut self,
        release: &mut StoredRelease,
        event: HookEvent,
    ) -> Result<bool, HookError> {
        let order = order(&release.hooks, event);
        if self.is_resumed && is_over(release, event) {
            self.finish(release, &order, event).await?;
            return Ok(false);
        }
        let [first, _] = operation(event);
        let (is_first, is_first_over) = (event == first, is_over(release, first));
        let mut is_any_new = false;
        for (position, &index) in order.iter().enumerate() {
            let hook = &release.hooks[index];
            let progress = match self.is_resumed {
                true => progress(hook, event, self.began, is_first_over),
                false => Progress::Due,
            };
            if progress == Progress::Done {
                continue;
            }
            let is_started = progress == Progress::Started;
            is_any_new = true;
            if let Err(error) = self.one(release, index, event, is_started).await {
                let (earlier, failed) = (&order[..position], (index, event));
                return Err(self.failed(release, earlier, failed, error).await);
            }
        }
        let mut is_to_store = is_any_new && is_first;
        if is_first && !order.is_empty() {
            let status = release.status();
            release.set_status(status, over(event));
            // What a hook of both events did at the first is in the description from now on.
            for &index in &order {
                if is_of_both(&release.hooks[index], event) {
                    release.hooks[index].last_run = HookExecution::default();
                    is_to_store = true;
                }
            }
        }
        // Before that which shows that it ended well is deleted the record has to say so. After the objects it is
        // written anyhow; before them the hooks would run again if the objects were never finished.
        let is_deleted =
            |index: &usize| release.hooks[*index].is_deleted(HookDeletePolicy::Succeeded);
        if is_to_store || is_any_new && order.iter().any(is_deleted) {
            self.storage
                .update(release)
                .await
                .map_err(HookError::Storage)?;
        }
        for &index in order.iter().rev() {
            let deleted = self.delete(release, index, HookDeletePolicy::Succeeded, event);
            if let Err(error) = deleted.await {
                let ended = release.hooks[index].last_run.completed_at;
                if !self.ends_removal(event, &error, ended) {
                    return Err(error);
                }
                warn_of(release, &error);
            }
        }
        Ok(is_any_new)
    }

    /// Ends an event whose hooks are over: what of them is to be deleted may be there still, but for those that the second event has started again.
    async fn finish(
        &mut self,
        release: &StoredRelease,
        order: &[usize],
        event: HookEvent,
    ) -> Result<(), HookError> {
        let is_first = operation(event)[0] == event;
        for &index in order.iter().rev() {
            let hook = &release.hooks[index];
            let is_again = is_first && is_of_both(hook, event) && !hook.last_run.phase.is_empty();
            if is_again {
                continue;
            }
            let policy = match hook.last_run.phase == HookExecution::FAILED {
                true => HookDeletePolicy::Failed,
                false => HookDeletePolicy::Succeeded,
            };
            self.delete(release, index, policy, event).await?;
        }
        Ok(())
    }

    /// Whether a removal is over though this befell one of its last hooks, whose turn it has been since then.
    fn ends_removal(&self, event: HookEvent, error: &HookError, since: Time) -> bool {
        let now = self.cluster.host().now();
        let is_given_up = self.is_only_try || !is_waited_for(since, now);
        event == HookEvent::PostDelete && error.ends_removal(is_given_up)
    }

    /// A hook did not end well: records what whoever tries again has to know, and deletes what policies say. One that has failed is run anew then, as by
    /// Helm, unless the removal is over with it. `earlier` are those before it, which have ended well. Gives what the event failed with.
    async fn failed(
        &mut self,
        release: &mut StoredRelease,
        earlier: &[usize],
        (index, event): (usize, HookEvent),
        error: HookError,
    ) -> HookError {
        let since = release.hooks[index].last_run.started_at;
        let is_removal = operation(HookEvent::PostDelete).contains(&event);
        let ends = self.ends_removal(event, &error, since);
        // The next try waits for it.
        let goes_on = is_removal && error.is_late() && !ends && !self.is_only_try;
        let is_unknown = matches!(error, HookError::Create { .. } | HookError::Storage(_));
        // The start of a hook is recorded, and with it how those before it ended.
        let mut is_recorded = matches!(error, HookError::Create { .. } | HookError::Wait(_));
        if ends || is_removal && !goes_on && !is_unknown {
            let described = release.description().to_owned();
            let status = release.status();
            if ends {
                release.hooks[index].last_run.phase = HookExecution::FAILED.to_owned();
                release.set_status(status.clone(), over(event));
            }
            match self.storage.update(release).await {
                Ok(()) => is_recorded = true,
                Err(unstored) if ends => {
                    release.set_status(status, described);
                    return HookError::Storage(unstored);
                }
                Err(unstored) => warn_of(release, &HookError::Storage(unstored)),
            }
        }
        self.clean_up_after_failure(release, earlier, is_recorded, (index, goes_on), event)
            .await;
        error
    }

    async fn one(
        &mut self,
        release: &mut StoredRelease,
        index: usize,
        event: HookEvent,
        is_started: bool,
    ) -> Result<(), HookError> {
        if event == HookEvent::PostDelete && !is_started {
            self.is_its_turn(&mut release.hooks[index].last_run);
        }
        let run = run_mark(release, event);
        let objects = self.objects(release, index, event, &run).await?;
        self.objects.written.insert(index, Vec::new());
        let hook = &mut release.hooks[index];
        let path = hook.path.clone();
        hook.delete_policies = hook.effective_delete_policies();
        let claim = HookClaim {
            run: &run,
            makes_way: hook.is_deleted(HookDeletePolicy::BeforeHookCreation),
            is_resumed: is_started,
        };
        let deadline = Instant::now() + self.timeout;
        // Held until its end is known: whose hook has that name next in this process deletes it then.
        let mut locks = self.lock(&objects, deadline).await?;
        // The hook is recorded as started once its predecessor is gone: an object there now is this run's.
        if !is_started {
            let foreign = match claim.makes_way {
                true => {
                    let made_way = self.make_way(&run, &objects, &mut locks, deadline);
                    made_way.await?
                }
                false => {
                    self.make_way_for_itself(&run, index, &objects).await?;
                    let ends = ENDS.iter().filter(|(policy, _)| hook.is_deleted(*policy));
                    let goes: Vec<Status> = ends.map(|(_, end)| *end).collect();
                    self.foreign(claim, &objects, &goes).await?
                }
            };
            if let Some(object) = foreign {
                return Err(HookError::Foreign {
                    kind: object.resource.kind.clone(),
                    namespace: object.namespace.clone().unwrap_or_default(),
                    name: object.name.clone(),
                });
            }
            let running = self.begun(HookExecution::RUNNING);
            let former = std::mem::replace(&mut hook.last_run, running);
            if let Err(unstored) = self.storage.update(release).await {
                // The hook was not created, and no later record is to say that it runs.
                release.hooks[index].last_run = former;
                return Err(HookError::Storage(unstored));
            }
        }
        let finished = self
            .create_and_wait(index, &objects, claim, event, path)
            .await;
        let last_run = &mut release.hooks[index].last_run;
        last_run.completed_at = not_before(last_run.started_at, self.cluster.host().now());
        last_run.phase = match finished {
            Ok(()) => HookExecution::SUCCEEDED.to_owned(),
            Err(_) => HookExecution::FAILED.to_owned(),
        };
        // Only the record shows that the hook ended well once its objects are deleted.
        if finished.is_ok()
            && locks.iter().any(Lock::has_waiters)
            && let Err(unstored) = self.storage.update(release).await
        {
            warn_of(release, &HookError::Storage(unstored));
        }
        finished
    }

    /// Waits until nobody else in this process runs a hook that has one of the objects.
    pub(super) async fn lock(
        &self,
        objects: &[Object],
        deadline: Instant,
    ) -> Result<Vec<Lock>, HookError> {
        match timeout_at(deadline, self.cluster.lock_hook(objects)).await {
            Ok(locks) => Ok(locks),
            Err(_) => Err(self.busy(objects).await),
        }
    }

    /// Notes since when one of the last hooks of a removal is to be started, unless an earlier try has.
    fn is_its_turn(&self, last_run: &mut HookExecution) {
        let is_noted = last_run.phase == HookExecution::UNKNOWN
            && last_run.started_at.instant() >= self.began.instant();
        if !is_noted {
            *last_run = self.begun(HookExecution::UNKNOWN);
        }
    }

    /// A run that begins now, in this phase.
    fn begun(&self, phase: &str) -> HookExecution {
        HookExecution {
            started_at: not_before(self.began, self.cluster.host().now()),
            completed_at: Time::ZERO,
            phase: phase.to_owned(),
        }
    }

    async fn create_and_wait(
        &mut self,
        index: usize,
        objects: &[Object],
        claim: HookClaim<'_>,
        event: HookEvent,
        path: String,
    ) -> Result<(), HookError> {
        let applied = apply_hook(self.cluster, &mut objects.to_vec(), claim).await;
        let written = |applied: &Applied| applied.created.clone();
        let written = match &applied {
            Ok(applied) => written(applied),
            Err(error) => written(&error.applied),
        };
        self.objects.written.insert(index, written);
        let applied = applied.map_err(|source| HookError::Create {
            event: event.as_str(),
            path,
            source,
        })?;
        if let Some(on_started) = self.on_started {
            on_started();
        }
        wait_for_hooks(self.cluster, objects, &applied, self.timeout)
            .await
            .map_err(HookError::Wait)
    }

    pub(super) async fn objects(
        &mut self,
        release: &Release,
        index: usize,
        event: HookEvent,
        run: &RunMark,
    ) -> Result<Arc<[Object]>, HookError> {
        let objects = self.objects.of(self.cluster, release, index, event, run);
        objects.await
    }

    /// Deletes what the run at `event` wrote of a hook if `policy` is one of the hook's own, and waits until it is gone. What has its name by
    /// then is another run's.
    pub(super) async fn delete(
        &mut self,
        release: &StoredRelease,
        index: usize,
        policy: HookDeletePolicy,
        event: HookEvent,
    ) -> Result<(), HookError> {
        if !release.hooks[index].is_deleted(policy) {
            return Ok(());
        }
        let run = run_mark(release, event);
        let objects = self.objects(release, index, event, &run).await?;
        let written = self.objects.written.get(&index);
        // Deleting a definition deletes everything of its kind; no policy is worth that.
        for object in objects.iter().filter(|object| !object.is_crd()) {
            let key = object.key();
            let instance = |written: &'_ Vec<(Object, Created)>| {
                let found = written.iter().find(|(one, _)| one.key() == key);
                found.map(|(_, instance)| instance.clone())
            };
            let instance = written.map(instance);
            let which = match &instance {
                Some(Some(instance)) => HookInstance::Written(&run, instance),
                // Written and not answered, or in the life of an agent before this one.
                Some(None) | None => HookInstance::Of(&run),
            };
            let removal = delete_hook(self.cluster, which, object).await;
            let (removal, instance) = removal.map_err(HookError::Delete)?;
            if removal == Removal::Deleted {
                self.until_gone(object, instance).await?;
            }
        }
        Ok(())
    }

    /// Deletes what makes way for a hook; gives one that does not, as it is no hook or another release's object. What stays is written over, and what
    /// runs for another release is waited for, for as long as a hook may take, without the locks.
    async fn make_way<'o>(
        &self,
        run: &RunMark,
        objects: &'o [Object],
        locks: &mut Vec<Lock>,
        deadline: Instant,
    ) -> Result<Option<&'o Object>, HookError> {
        let which = HookInstance::Before(run);
        let mut is_late = false;
        'again: loop {
            let mut foreign = None;
            for object in objects {
                let removal = delete_hook(self.cluster, which, object).await;
                match removal.map_err(HookError::Delete)? {
                    // Seen to run when the time was over: where nobody answers, nobody says so.
                    (Removal::Running, _) if is_late => {
                        return Err(self.busy(std::slice::from_ref(object)).await);
                    }
                    (Removal::Running, _) => {
                        // The run's owner goes on, and may be of this process.
                        locks.clear();
                        is_late = !self.until_over(object, deadline).await;
                        *locks = self.lock(objects, deadline).await?;
                        continue 'again;
                    }
                    (Removal::NotOwned, _) => foreign = Some(object),
                    (Removal::Deleted, instance) => self.until_gone(object, instance).await?,
                    _ => {}
                }
            }
            return Ok(foreign);
        }
    }

    /// Waits until what runs for another release has ended, and who started it has seen that. Whether it has.
    async fn until_over(&self, object: &Object, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let is_over = wait_until_over(self.cluster, object, left).await.is_ok();
        if is_over {
            sleep_until(deadline.min(Instant::now() + GRACE)).await;
        }
        is_over
    }

    /// The error for a hook whose objects are in use by other runs.
    async fn busy(&self, objects: &[Object]) -> HookError {
        let mut owners = Vec::new();
        for object in objects {
            let live = self.cluster.get_metadata(object).await.ok().flatten();
            let owner = live.and_then(|live| Some(RunMark::record(&live)?.0));
            owners.push((object.describe_for_people(), owner));
        }
        let owned = owners.iter().position(|(_, owner)| owner.is_some());
        let (object, owner) = owners
            .into_iter()
            .nth(owned.unwrap_or(0))
            .unwrap_or_default();
        HookError::Busy { object, owner }
    }

    /// Deletes what this very run wrote before and what has failed, of a hook whose name nobody else uses: Helm gives it another one with each try.
    /// What still runs is waited for.
    async fn make_way_for_itself(
        &self,
        run: &RunMark,
        index: usize,
        objects: &[Object],
    ) -> Result<(), HookError> {
        for object in self.objects.nameless(index, objects) {
            let deleted = delete_failed(self.cluster, run, object).await;
            if let Some(instance) = deleted.map_err(HookError::Observed)? {
                self.until_gone(object, Some(instance)).await?;
            }
        }
        Ok(())
    }

    /// The first of `objects` whose name something else has. What another run of this release should have deleted as it ended in one of the
    /// ways `goes` is deleted.
    async fn foreign<'o>(
        &self,
        claim: HookClaim<'_>,
        objects: &'o [Object],
        goes: &[Status],
    ) -> Result<Option<&'o Object>, HookError> {
        for object in objects {
            let cleared = clear_name(self.cluster, claim, object, goes).await;
            match cleared.map_err(HookError::Observed)? {
                (Removal::NotOwned, _) => return Ok(Some(object)),
                (Removal::Deleted, instance) => self.until_gone(object, instance).await?,
                _ => {}
            }
        }
        Ok(None)
    }

    /// Waits until what was deleted is gone, which another one may have the name of at once.
    async fn until_gone(
        &self,
        object: &Object,
        instance: Option<Created>,
    ) -> Result<(), HookError> {
        wait_until_left(self.cluster, object, instance.as_ref(), self.timeout)
            .await
            .map_err(HookError::Former)
    }

    /// Deletes what the policies of a hook that failed, and of those before it, which ended well, say. `is_recorded` tells whether the record says of
    /// these that they did, `goes_on` whether the next try waits for the one that did not end.
    async fn clean_up_after_failure(
        &mut self,
        release: &StoredRelease,
        earlier: &[usize],
        is_recorded: bool,
        (failed, goes_on): (usize, bool),
        event: HookEvent,
    ) {
        let mut results = Vec::new();
        if !goes_on {
            let policy = HookDeletePolicy::Failed;
            results.push(self.delete(release, failed, policy, event).await);
        }
        let policy = HookDeletePolicy::Succeeded;
        let mut ended: Vec<usize> = earlier.iter().rev().copied().collect();
        ended.retain(|index| release.hooks[*index].is_deleted(policy));
        // Where no object shows any more that a hook ended well the record does, or it would run again after a kill.
        if !is_recorded
            && !ended.is_empty()
            && let Err(unstored) = self.storage.update(release).await
        {
            results.push(Err(HookError::Storage(unstored)));
            ended.clear();
        }
        for index in ended {
            results.push(self.delete(release, index, policy, event).await);
        }
        for error in results.into_iter().filter_map(Result::err) {
            warn_of(release, &error);
        }
    }
}

/// What an operation does not fail for.
pub(super) fn warn_of(release: &Release, error: &HookError) {
    let error = error_unquoted(error);
    logging::warn!(
        release = release.name,
        error,
        "cannot record or delete a hook"
    );
}

pub(super) fn run_mark(release: &StoredRelease, event: HookEvent) -> RunMark {
    let owner = Owner::new(&release.name, &release.namespace);
    RunMark::new(owner, &release.id(), event.as_str())
}

/// How what runs ends, by the policy that deletes it then.
const ENDS: [(HookDeletePolicy, Status); 2] = [
    (HookDeletePolicy::Succeeded, Status::Current),
    (HookDeletePolicy::Failed, Status::Failed),
];
