//! The hook of a removal that gives way: its release is wanted again, by its bundle or by another one.
//!
//! Nothing more of the removal is begun then, but what runs would hit what is deployed: it may be dropping a database of that name.

use std::time::Duration;

use tokio::time::Instant;

use super::error::HookError;
use super::hook_objects::HookObjects;
use super::hook_progress::{is_waited_for, not_before, over, running};
use super::hooks::{HookRun, run_mark, warn_of};
use crate::kube::{Cluster, HookClaim, running_hooks, wait_for_hooks};
use crate::model::{HookDeletePolicy, HookEvent, HookExecution, Status};
use crate::state::REMOVAL_LIMIT;
use crate::storage::{Storage, StorageError, StoredRelease, StoredRevision, last};

/// Waits for the hook that the removal over which a release is deployed now has started, and deletes it as its policies say. One that is not there any
/// more is over, and so is one that runs for longer than a removal waits for its last hooks.
///
/// # Errors
/// The hook goes on, or that is unknown: calling again waits on.
///
/// # Cancellation
/// Nothing is changed by waiting.
pub(super) async fn outlast(
    cluster: &Cluster,
    storage: &Storage,
    name: &str,
    history: &[StoredRevision],
    limit: Duration,
) -> Result<(), HookError> {
    let newest = last(history).filter(|head| head.status == Status::Uninstalling);
    let Some(head) = newest else { return Ok(()) };
    let mut release = match storage.get_listed(name, head).await {
        Ok(release) => release,
        Err(StorageError::NotFound | StorageError::Decode { .. }) => return Ok(()),
        Err(failed) => return Err(HookError::Storage(failed)),
    };
    let Some((index, event)) = running(&release) else {
        return Ok(());
    };
    let began = release.info.as_ref().map(|info| info.deleted);
    let mut run = HookRun {
        cluster,
        storage,
        timeout: limit.min(REMOVAL_LIMIT),
        began: began.unwrap_or_default(),
        is_resumed: true,
        is_only_try: false,
        on_started: None,
        objects: &mut HookObjects::default(),
    };
    let started = release.hooks[index].last_run.started_at;
    let ended = match run.end_of_running(&release, index, event).await {
        Ok(false) => return Ok(()),
        Ok(true) => Ok(()),
        Err(error) => Err(error),
    };
    let now = cluster.host().now();
    let has_failed = |error: &HookError| matches!(error, HookError::Wait(_)) && !error.is_late();
    if let Err(error) = ended.as_ref()
        && !has_failed(error)
        && is_waited_for(started, now)
    {
        return ended;
    }
    if !storage.recognises(name, head.revision, &release) {
        // Another bundle's, whose removal goes on from there.
        return Ok(());
    }
    let (phase, policy) = match &ended {
        Ok(()) => (HookExecution::SUCCEEDED, HookDeletePolicy::Succeeded),
        Err(_) => (HookExecution::FAILED, HookDeletePolicy::Failed),
    };
    let last_run = &mut release.hooks[index].last_run;
    last_run.completed_at = not_before(started, now);
    last_run.phase = phase.to_owned();
    if let Err(error) = ended {
        if event == HookEvent::PostDelete {
            // Should the removal go on after all, it is not run anew.
            release.set_status(Status::Uninstalling, over(event));
        }
        warn_of(&release, &error);
    }
    match storage.update(&release).await {
        Ok(_) => {}
        // Somebody else has the release by now: whoever deploys reads again.
        Err(failed @ (StorageError::NotFound | StorageError::Replaced { .. })) => {
            return Err(HookError::Storage(failed));
        }
        // A deploy writes a record of its own. A hook that ended stays, as no record says that it did.
        Err(failed) => {
            warn_of(&release, &HookError::Storage(failed));
            return Ok(());
        }
    }
    if let Err(error) = run.delete(&release, index, policy, event).await {
        warn_of(&release, &error);
    }
    Ok(())
}

impl HookRun<'_> {
    /// Waits for what runs of a hook that was started. `false` if nothing does.
    async fn end_of_running(
        &mut self,
        release: &StoredRelease,
        index: usize,
        event: HookEvent,
    ) -> Result<bool, HookError> {
        let run = run_mark(release, event);
        let objects = self.objects(release, index, event, &run).await?;
        // Another release's run that has the name deletes it once it has ended.
        let _locks = self.lock(&objects, Instant::now() + self.timeout).await?;
        let claim = HookClaim {
            run: &run,
            makes_way: false,
            is_resumed: true,
        };
        let running = running_hooks(self.cluster, claim, &objects).await;
        let (running, found) = running.map_err(HookError::Observed)?;
        if running.is_empty() {
            return Ok(false);
        }
        let ended = wait_for_hooks(self.cluster, &running, &found, self.timeout).await;
        ended.map(|()| true).map_err(HookError::Wait)
    }
}
