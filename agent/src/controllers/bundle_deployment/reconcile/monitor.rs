//! The step that compares live objects with the release, and corrects what drifted.

use std::sync::{Arc, PoisonError};

use k8s_openapi::jiff::Timestamp;
use kube::api::DeleteParams;
use objects::Object;
use objects::drift::Rules;
use release::kube::Owner;
use release::model::Release;
use serde_json::Value;

use super::{Current, ReconcileState, Reconciler};
use crate::api::BundleDeployment;
use crate::bundle::SetId;
use crate::client::identity::{DeploymentClient, Purpose};
use crate::controllers::bundle_deployment::observe::{self, Live, View};
use crate::controllers::bundle_deployment::outcome::{Cause, Halt};
use crate::controllers::bundle_deployment::status::{Observation, READY};
use crate::controllers::bundle_deployment::{correct, deployer, observation_cache, plan};
use crate::controllers::queue::Requeue;
use crate::error;

/// At most so many objects are read one by one.
const MAX_REREAD: usize = 8;

impl Reconciler {
    /// Compares live objects with the release and corrects them where that is wanted. `impersonated` is the bundle's account, where it was
    /// looked up already.
    pub(super) async fn monitor(
        &self,
        state: &mut ReconcileState,
        impersonated: Option<DeploymentClient>,
        current: Current,
    ) -> Result<(), Halt> {
        let is_wanted = plan::should_monitor(&state.bundle, state.report.status());
        // While the site holds changes, what was deployed before them is what there is to report.
        let is_held = state.hold.is_some() && !state.report.status().release.is_empty();
        if !is_wanted && !is_held {
            return Ok(());
        }
        let bundle = Arc::clone(&state.bundle);
        let impersonated = match impersonated {
            Some(impersonated) => impersonated,
            None => {
                let (identities, options) = (&self.context.identities, &bundle.spec.options);
                let account = identities.deployment(&options.service_account, Purpose::Monitor);
                account.await.map_err(Halt::at(Cause::MonitorAccount))?
            }
        };
        let (release, applied) = match current {
            Current::Deployed(release, applied) => (release, applied),
            Current::Stored(release) => (release, Vec::new()),
            Current::Missing => return Ok(()),
            Current::Unread => {
                let stored = self.stored(state, &impersonated).await;
                match stored.map_err(Halt::at(Cause::MonitorRelease))? {
                    Some(release) => (release, Vec::new()),
                    // Adopting what is live is a deploy: it waits for the end of a hold, or for the next try.
                    None if is_held || state.report.requeue() == Requeue::Retry => return Ok(()),
                    None => {
                        state.report.record_vanished();
                        return Ok(());
                    }
                }
            }
        };
        let observed = self.observe(state, &impersonated, &release, applied).await;
        let desired = observed.map_err(|message| Halt::new(Cause::Monitor, message))?;
        if state.hold.is_some() {
            return Ok(());
        }
        self.adopt_agent(state, &impersonated).await;
        if bundle.metadata.deletion_timestamp.is_none()
            && plan::is_overwritten(&bundle.spec, state.report.status())
        {
            state.report.overwritten_missing();
        }
        self.correct(state, &impersonated, &release, &desired).await
    }

    /// Compares the live objects and keeps watching them; gives back the desired ones.
    async fn observe(
        &self,
        state: &mut ReconcileState,
        impersonated: &DeploymentClient,
        release: &Release,
        applied: Vec<Value>,
    ) -> Result<Arc<Vec<Object>>, String> {
        let bundle = Arc::clone(&state.bundle);
        let set = SetId::new(bundle.name(), &self.scope);
        let desired = correct::objects(impersonated.cluster(), release)
            .await
            .map_err(|e| error::chain(&e))?;
        let written = match applied.is_empty() {
            true => None,
            false => Live::written(set.hash(), &desired, applied),
        };
        let mut live = match written {
            Some(live) => live,
            None => Live::read(impersonated.cluster(), set.hash(), &desired)
                .await
                .map_err(|e| error::chain(&e))?,
        };
        let rules = observe::rules(&bundle.spec.options);
        let owner = Owner::new(&release.name, &release.namespace);
        let differences = live
            .differences(impersonated.cluster(), &owner, &desired, &rules)
            .await;
        let former = match live.has_others_than(&desired) {
            true => self.former_objects(&bundle, impersonated, release).await,
            false => Vec::new(),
        };
        let view = self.view(&bundle, &rules, state.report.now());
        let found = live.compare(&desired, &former, &differences, &view);
        let desired = Arc::new(desired);
        let kinds = observe::kinds(&desired);
        self.take_in(state, found, owner, &desired);
        let is_ready = state.report.status().condition(READY) == "True";
        let (drift, name) = (&self.context.drift, bundle.name());
        drift.refresh(name, set.hash(), kinds, live.seen(), is_ready);
        Ok(desired)
    }

    /// Reads only what changed since the bundle was last monitored. False if that is not enough to
    /// know its state.
    pub(super) async fn monitor_changed(&self, state: &mut ReconcileState) -> bool {
        let bundle = Arc::clone(&state.bundle);
        let name = bundle.name();
        let status = state.report.status();
        if !status.non_modified || !plan::should_monitor(&bundle, status) {
            return false;
        }
        let (Some(changes), Some(cached)) = (
            self.context.drift.changes(name),
            self.observation_cache.of(&bundle, &status.release),
        ) else {
            return false;
        };
        let Some(in_sync) =
            observation_cache::unchanged(&cached.in_sync, &cached.desired, &changes)
        else {
            return false;
        };
        if cached.desired.len() - in_sync.len() > MAX_REREAD {
            return false;
        }
        let account = &bundle.spec.options.service_account;
        let Ok(impersonated) = self
            .context
            .identities
            .deployment(account, Purpose::Monitor)
            .await
        else {
            return false;
        };
        // Somebody may have deleted the record of what is ready.
        if status.ready && !matches!(self.stored(state, &impersonated).await, Ok(Some(_))) {
            return false;
        }
        let set = SetId::new(name, &self.scope);
        let Some(mut live) =
            Live::reread(impersonated.cluster(), set.hash(), &cached.desired, in_sync).await
        else {
            return false;
        };
        let rules = observe::rules(&bundle.spec.options);
        let (owner, desired) = (&cached.owner, &cached.desired);
        let differences = live
            .differences(impersonated.cluster(), owner, desired, &rules)
            .await;
        let view = self.view(&bundle, &rules, state.report.now());
        let found = live.compare(desired, &[], &differences, &view);
        if !found.modified.is_empty() {
            return false;
        }
        self.take_in(state, found, owner.clone(), desired);
        let is_ready = state.report.status().condition(READY) == "True";
        self.context.drift.update(name, live.seen(), is_ready);
        true
    }

    fn view<'v>(
        &'v self,
        bundle: &'v BundleDeployment,
        rules: &'v Rules,
        now: Timestamp,
    ) -> View<'v> {
        let ignored = bundle.spec.options.ignore_options.as_ref();
        View {
            rules,
            mapping: &self.mapping,
            ignored_conditions: ignored.map_or(&[], |ignore| ignore.conditions.as_slice()),
            now,
        }
    }

    /// Takes what was found into the status, and remembers a bundle in motion.
    fn take_in(
        &self,
        state: &mut ReconcileState,
        found: Observation,
        owner: Owner,
        desired: &Arc<Vec<Object>>,
    ) {
        let bundle = &state.bundle;
        if found.modified.is_empty() {
            let (release, desired) = (&state.report.status().release, Arc::clone(desired));
            self.observation_cache
                .keep(bundle, release, owner, desired, &found);
        } else {
            self.observation_cache.forget(bundle.name());
        }
        let generation = bundle.spec.options.force_sync_generation;
        state.report.observed(found, generation);
    }

    /// Objects of the revision before, to know what was left over from what copied our label. A record that
    /// cannot be read means none.
    async fn former_objects(
        &self,
        bundle: &BundleDeployment,
        impersonated: &DeploymentClient,
        release: &Release,
    ) -> Vec<Object> {
        let storage = self.records(bundle, impersonated, &release.namespace);
        match storage
            .get(&release.name, release.revision.saturating_sub(1))
            .await
        {
            Ok(former) => correct::stored_objects(impersonated.cluster(), &former)
                .await
                .unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }

    /// The agent's own bundle adopts what the import left: objects left over from the former agent
    /// go. What is changed or missing is corrected, asked or not.
    async fn adopt_agent(&self, state: &ReconcileState, impersonated: &DeploymentClient) {
        if !state.bundle.is_agent_bundle() {
            return;
        }
        for extra in state
            .report
            .status()
            .modified_status
            .iter()
            .filter(|entry| entry.extra)
        {
            let deleted = correct::delete(impersonated, extra, &DeleteParams::background()).await;
            if let Err(failed) = deleted {
                tracing::warn!(error = %failed, "failed cleaning old agent");
            }
        }
    }

    /// Puts drifted objects right, if that is wanted and did not just fail to help.
    async fn correct(
        &self,
        state: &mut ReconcileState,
        impersonated: &DeploymentClient,
        release: &Release,
        desired: &[Object],
    ) -> Result<(), Halt> {
        let bundle = Arc::clone(&state.bundle);
        let name = bundle.name();
        if state.report.status().non_modified {
            self.corrections
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(name);
            return Ok(());
        }
        let correction = bundle.spec.correct_drift();
        let is_wanted = correction.enabled || bundle.is_agent_bundle();
        if !is_wanted || bundle.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let postponed = {
            let mut all = self
                .corrections
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            all.entry(name.to_owned())
                .or_default()
                .due(&state.report.status().modified_status)
        };
        if let Some(pause) = postponed {
            state.report.correction_postponed(pause);
            return Ok(());
        }
        // Upstream learns what was found before it is put right.
        let written = self.write_status(state).await;
        self.note(state, written);
        let drifted = &state.report.status().modified_status;
        let cluster = impersonated.cluster();
        match correct::apply(cluster, release, desired, drifted, correction.force).await {
            Ok(conflicts) => {
                state.report.corrected(&conflicts);
                Ok(())
            }
            Err(failed) => {
                let halt = Halt::at(Cause::Correct)(failed);
                if correction.keep_fail_history {
                    let kept = deployer::max_history(&bundle.spec.options);
                    let records = self.records(&bundle, impersonated, &release.namespace);
                    let now = state.report.now();
                    correct::record_failure(&records, release, &halt.message, kept, now).await;
                }
                Err(halt)
            }
        }
    }
}
