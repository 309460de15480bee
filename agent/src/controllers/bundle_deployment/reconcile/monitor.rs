//! Looking at what was deployed: observing live objects, correcting what drifted.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::DeleteParams;
use objects::Object;
use objects::drift::Rules;
use release::kube::Owner;
use release::model::Release;
use serde_json::Value;

use super::{Current, ReconcileState, Reconciler};
use crate::api::{BundleDeployment, ModifiedStatus};
use crate::bundle::SetId;
use crate::client::identity::{DeploymentClient, Purpose};
use crate::controllers::bundle_deployment::observe::{self, Live, View};
use crate::controllers::bundle_deployment::status::{MONITORED, Observation, READY};
use crate::controllers::bundle_deployment::{correct, deploy, plan};
use crate::controllers::queue::Requeue;
use crate::error;
use crate::report::events::Reason;

/// At most so many objects are read one by one.
const MAX_REREAD: usize = 8;

impl Reconciler {
    /// Compares live objects with the release and corrects them where that is wanted.
    pub(super) async fn monitor(&self, state: &mut ReconcileState, current: Current) {
        let is_wanted = plan::should_monitor(&state.bundle, &state.status);
        // While the site holds changes, what was deployed before them is what there is to report.
        let is_held = state.hold.is_some() && !state.status.release.is_empty();
        if !is_wanted && !is_held {
            return;
        }
        let bundle = Arc::clone(&state.bundle);
        let impersonated = match &state.impersonated {
            Some(impersonated) => impersonated.clone(),
            None => match self
                .context
                .identities
                .deployment(&bundle.spec.options.service_account, Purpose::Monitor)
                .await
            {
                Ok(impersonated) => impersonated,
                Err(failed) => {
                    let message = error::chain(&failed);
                    return state.fail(Reason::AccountMissing, "no account", &message);
                }
            },
        };
        let release = match current.release {
            Some(release) => release,
            None if current.is_missing => return,
            None => match self.stored(state, &impersonated).await {
                Ok(Some(release)) => release,
                // Adopting what is live waits like any deploy: for the end of a hold, for the next try.
                Ok(None) if is_held || state.next == Requeue::Retry => return,
                Ok(None) => {
                    // A record that vanished: a full pass adopts what is live.
                    state.next = Requeue::FullAfter(Duration::ZERO);
                    return;
                }
                Err(failed) => {
                    let message = error::chain(&failed);
                    return state.fail(Reason::MonitorFailed, "no release", &message);
                }
            },
        };
        match self
            .observe(state, &impersonated, &release, current.applied)
            .await
        {
            Ok(desired) => {
                state.status.set_condition(MONITORED, Ok(()), state.now);
                if state.hold.is_none() {
                    self.adopt_agent(state, &impersonated).await;
                    if bundle.metadata.deletion_timestamp.is_none()
                        && plan::is_overwritten(&bundle.spec, &state.status)
                    {
                        state.next = Requeue::FullAfter(self.timing.overwrite_retry);
                    }
                    self.correct(state, &impersonated, &release, &desired).await;
                }
            }
            Err(message) => {
                state
                    .status
                    .set_condition(MONITORED, Err(&message), state.now);
                state.fail(
                    Reason::MonitorFailed,
                    "cannot monitor deployed bundle",
                    &message,
                );
            }
        }
    }

    /// Looks at the live objects and keeps watching them; gives back what is wanted.
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
        let view = self.view(&bundle, &rules, state.now);
        let found = live.compare(&desired, &former, &differences, &view);
        if !found.modified.is_empty() && state.bundle.status.non_modified {
            state
                .events
                .push((Reason::DriftFound, names(&found.modified)));
        }
        let desired = Arc::new(desired);
        let kinds = observe::kinds(&desired);
        self.take_in(state, found, owner, &desired);
        let is_ready = state.status.condition(READY) == "True";
        let (drift, name) = (&self.context.drift, bundle.name());
        drift.refresh(name, set.hash(), kinds, live.seen(), is_ready);
        Ok(desired)
    }

    /// Looks only at what changed since the last look at a bundle. False if that is not enough to
    /// tell how it is.
    pub(super) async fn monitor_changed(&self, state: &mut ReconcileState) -> bool {
        let bundle = Arc::clone(&state.bundle);
        let name = bundle.name();
        if !state.status.non_modified || !plan::should_monitor(&bundle, &state.status) {
            return false;
        }
        let (Some(events), Some(memory)) = (
            self.context.drift.changes(name),
            self.observation_cache.of(&bundle, &state.status.release),
        ) else {
            return false;
        };
        let Some(in_sync) = observe::unchanged(&memory.in_sync, &memory.desired, &events) else {
            return false;
        };
        if memory.desired.len() - in_sync.len() > MAX_REREAD {
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
        // What is ready may be without its record by now: somebody deleted it.
        if state.status.ready && !matches!(self.stored(state, &impersonated).await, Ok(Some(_))) {
            return false;
        }
        let set = SetId::new(name, &self.scope);
        let Some(mut live) =
            Live::reread(impersonated.cluster(), set.hash(), &memory.desired, in_sync).await
        else {
            return false;
        };
        let rules = observe::rules(&bundle.spec.options);
        let (owner, desired) = (&memory.owner, &memory.desired);
        let differences = live
            .differences(impersonated.cluster(), owner, desired, &rules)
            .await;
        let view = self.view(&bundle, &rules, state.now);
        let found = live.compare(desired, &[], &differences, &view);
        if !found.modified.is_empty() {
            return false;
        }
        self.take_in(state, found, owner.clone(), desired);
        state.status.set_condition(MONITORED, Ok(()), state.now);
        let is_ready = state.status.condition(READY) == "True";
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
            let (release, in_sync) = (&state.status.release, observe::in_sync(&found));
            self.observation_cache
                .keep(bundle, release, owner, Arc::clone(desired), in_sync);
        } else {
            self.observation_cache.forget(bundle.name());
        }
        let generation = bundle.spec.options.force_sync_generation;
        state.status.observe(found, generation, state.now);
    }

    /// Objects of the revision before, to tell left-overs from copies of our label. A record that
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
            .status
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
    ) {
        let bundle = Arc::clone(&state.bundle);
        let name = bundle.name();
        if state.status.non_modified {
            self.corrections
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(name);
            return;
        }
        let wish = bundle.spec.correct_drift();
        let is_wanted = wish.enabled || bundle.is_agent_bundle();
        if !is_wanted || bundle.metadata.deletion_timestamp.is_some() {
            return;
        }
        let due = {
            let mut all = self
                .corrections
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            all.entry(name.to_owned())
                .or_default()
                .due(&state.status.modified_status)
        };
        if let Some(pause) = due {
            state.next = Requeue::After(pause);
            return;
        }
        // Upstream learns what was found before it is put right.
        self.write_status(state).await;
        let drifted = &state.status.modified_status;
        match correct::apply(
            impersonated.cluster(),
            release,
            desired,
            drifted,
            wish.force,
        )
        .await
        {
            Ok(conflicts) => {
                let text = names(drifted);
                tracing::info!(bundle = name, objects = drifted.len(), "corrected drift");
                state.events.push((Reason::DriftCorrected, text));
                self.tell(state, &conflicts);
                state.next = Requeue::After(self.timing.drift_delay.min(Duration::from_secs(1)));
            }
            Err(failed) => {
                let message = error::chain(&failed);
                if wish.keep_fail_history {
                    let kept = deploy::max_history(&bundle.spec.options);
                    let records = self.records(&bundle, impersonated, &release.namespace);
                    correct::record_failure(&records, release, &message, kept, state.now).await;
                }
                state.status.set_condition(READY, Err(&message), state.now);
                state.fail(
                    Reason::CorrectionFailed,
                    "failed reconciling drift",
                    &message,
                );
            }
        }
    }
}

/// Objects by their names alone: what differs in them may be secret.
fn names(objects: &[ModifiedStatus]) -> String {
    let names: Vec<_> = objects
        .iter()
        .map(|one| format!("{} {}/{}", one.kind, one.namespace, one.name))
        .collect();
    names.join(", ")
}
