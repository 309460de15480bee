//! Running the hooks of an event.
//!
//! One at a time by weight and name, each created, waited for and recorded before the next. Hook
//! objects carry no marks of the release and are not part of it. Their logs go nowhere, which is
//! Helm's default too.
//!
//! Mirrors `pkg/action/hooks.go`.

use std::collections::BTreeMap;
use std::time::Duration;

use chart::Time;
use jiff::Timestamp;

use super::error::HookError;
use crate::kube::{
    ApplyOptions, Cluster, Object, apply_all, build, delete_one, until_gone, until_ready,
};
use crate::model::{Hook, HookDeletePolicy, HookEvent, HookExecution, Release};
use crate::readiness::wait::Mode;
use crate::storage::Storage;

/// How the hooks of a release are run.
pub(super) struct HookRun<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) storage: &'a Storage,
    /// How long each hook may take.
    pub(super) timeout: Duration,
    /// The operation was cut off before: hooks recorded as succeeded are not run again.
    pub(super) is_resumed: bool,
}

impl HookRun<'_> {
    /// Runs all hooks of `event`. Each start is stored in the release's record.
    ///
    /// # Cancellation
    /// A hook that was started goes on in the cluster; the next run deletes and recreates it,
    /// unless its delete policies say otherwise.
    pub(super) async fn event(
        &self,
        release: &mut Release,
        event: HookEvent,
    ) -> Result<(), HookError> {
        let order = order(&release.hooks, event);
        for (position, &index) in order.iter().enumerate() {
            let is_done = release.hooks[index].last_run.phase == HookExecution::SUCCEEDED;
            if self.is_resumed && is_done {
                continue;
            }
            if let Err(error) = self.one(release, index, event).await {
                self.clean_up_after_failure(release, &order[..position], index, event)
                    .await;
                return Err(error);
            }
        }
        for &index in order.iter().rev() {
            self.delete(release, index, HookDeletePolicy::Succeeded, event)
                .await?;
        }
        Ok(())
    }

    async fn one(
        &self,
        release: &mut Release,
        index: usize,
        event: HookEvent,
    ) -> Result<(), HookError> {
        let objects = self.objects(release, index, event).await?;
        let hook = &mut release.hooks[index];
        let path = hook.path.clone();
        if hook.is_deleted(HookDeletePolicy::BeforeHookCreation) {
            self.delete_objects(&objects).await?;
        }
        hook.last_run = HookExecution {
            started_at: Time::utc(Timestamp::now()),
            completed_at: Time::ZERO,
            phase: HookExecution::RUNNING.to_owned(),
        };
        self.storage
            .update(release)
            .await
            .map_err(HookError::Storage)?;
        let finished = self.create_and_wait(&objects, event, path).await;
        let last_run = &mut release.hooks[index].last_run;
        last_run.completed_at = Time::utc(Timestamp::now());
        last_run.phase = match finished {
            Ok(()) => HookExecution::SUCCEEDED.to_owned(),
            Err(_) => HookExecution::FAILED.to_owned(),
        };
        finished
    }

    async fn create_and_wait(
        &self,
        objects: &[Object],
        event: HookEvent,
        path: String,
    ) -> Result<(), HookError> {
        apply_all(
            self.cluster,
            objects,
            &BTreeMap::new(),
            ApplyOptions::default(),
        )
        .await
        .map_err(|source| HookError::Create {
            event: event.as_str(),
            path,
            source,
        })?;
        let objects: Vec<&Object> = objects.iter().collect();
        until_ready(self.cluster, &objects, Mode::Hook, self.timeout)
            .await
            .map_err(HookError::Wait)
    }

    async fn objects(
        &self,
        release: &Release,
        index: usize,
        event: HookEvent,
    ) -> Result<Vec<Object>, HookError> {
        let hook = &release.hooks[index];
        let mut discovery = self
            .cluster
            .discovery()
            .await
            .map_err(HookError::Discovery)?;
        let mut built = build(&hook.manifest, &release.namespace, &discovery, &[]);
        if built
            .as_ref()
            .is_err_and(crate::kube::BuildError::is_no_match)
        {
            discovery = self
                .cluster
                .fresh_discovery()
                .await
                .map_err(HookError::Discovery)?;
            built = build(&hook.manifest, &release.namespace, &discovery, &[]);
        }
        let path = || hook.path.clone();
        built.map_err(|source| HookError::Build {
            event: event.as_str(),
            path: path(),
            source,
        })
    }

    /// Deletes a hook's objects if `policy` is one of its own, and waits until they are gone.
    async fn delete(
        &self,
        release: &Release,
        index: usize,
        policy: HookDeletePolicy,
        event: HookEvent,
    ) -> Result<(), HookError> {
        if !release.hooks[index].is_deleted(policy) {
            return Ok(());
        }
        let objects = self.objects(release, index, event).await?;
        self.delete_objects(&objects).await
    }

    async fn delete_objects(&self, objects: &[Object]) -> Result<(), HookError> {
        // Deleting a definition deletes everything of its kind; no policy is worth that.
        for object in objects.iter().filter(|object| !object.is_crd()) {
            delete_one(self.cluster, object)
                .await
                .map_err(HookError::Delete)?;
            until_gone(self.cluster, object, self.timeout)
                .await
                .map_err(HookError::Wait)?;
        }
        Ok(())
    }

    async fn clean_up_after_failure(
        &self,
        release: &Release,
        earlier: &[usize],
        failed: usize,
        event: HookEvent,
    ) {
        let mut results = vec![
            self.delete(release, failed, HookDeletePolicy::Failed, event)
                .await,
        ];
        for &index in earlier.iter().rev() {
            results.push(
                self.delete(release, index, HookDeletePolicy::Succeeded, event)
                    .await,
            );
        }
        for error in results.into_iter().filter_map(Result::err) {
            let error = crate::error_chain(&error);
            tracing::warn!(release = release.name, error, "cannot delete a hook");
        }
    }
}

/// Positions of the event's hooks in the order they run: weight, then name, then kind order.
fn order(hooks: &[Hook], event: HookEvent) -> Vec<usize> {
    let mut order: Vec<usize> = (0..hooks.len())
        .filter(|&index| hooks[index].runs_at(event))
        .collect();
    order.sort_by(|&a, &b| {
        let key = |index: usize| (hooks[index].weight, &hooks[index].name);
        key(a).cmp(&key(b))
    });
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_run_by_weight_then_name() {
        let hook = |name: &str, weight, event: HookEvent| Hook {
            name: name.to_owned(),
            weight,
            events: vec![event.as_str().to_owned()],
            ..Hook::default()
        };
        let hooks = [
            hook("z", 0, HookEvent::PreInstall),
            hook("b", 1, HookEvent::PreInstall),
            hook("a", 1, HookEvent::PreInstall),
            hook("a", -5, HookEvent::PreInstall),
            hook("a", -9, HookEvent::PostInstall),
        ];
        assert_eq!(order(&hooks, HookEvent::PreInstall), [3, 0, 2, 1]);
    }
}
