//! Looking at what was deployed: observing live objects, correcting what drifted.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::DeleteParams;
use objects::drift::Rules;
use release::kube::{Object, Owner};
use release::model::Release;
use serde_json::Value;

use super::{Current, Reconciler, Work};
use crate::api::{BundleDeployment, ModifiedStatus};
use crate::bundle::SetId;
use crate::controllers::bundle_deployment::observe::{self, Live, View};
use crate::controllers::bundle_deployment::status::{MONITORED, Observation, READY};
use crate::controllers::bundle_deployment::{correct, deploy, plan};
use crate::controllers::queue::Next;
use crate::error;
use crate::events::Reason;
use crate::identity::{DeploymentClient, Purpose};

/// At most so many objects are read one by one.
const GLANCE: usize = 8;

impl Reconciler {
    /// Compares live objects with the release and corrects them where that is wanted.
    pub(super) async fn look(&self, work: &mut Work, current: Current) {
        let is_wanted = plan::should_monitor(&work.bundle, &work.status);
        // While the site holds changes, what was deployed before them is what there is to report.
        let is_held = work.hold.is_some() && !work.status.release.is_empty();
        if !is_wanted && !is_held {
            return;
        }
        let bundle = Arc::clone(&work.bundle);
        let acting = match &work.acting {
            Some(acting) => acting.clone(),
            None => match self
                .rooms
                .identities
                .deployment(&bundle.spec.options.service_account, Purpose::Look)
                .await
            {
                Ok(acting) => acting,
                Err(failed) => {
                    let message = error::chain(&failed);
                    return work.fail(Reason::AccountMissing, "no account", &message);
                }
            },
        };
        let release = match current.release {
            Some(release) => release,
            None if current.is_missing => return,
            None => match self.stored(work, &acting).await {
                Ok(Some(release)) => release,
                // Adopting what is live waits like any deploy: for the end of a hold, for the next try.
                Ok(None) if is_held || work.next == Next::Retry => return,
                Ok(None) => {
                    // A record that vanished: a full pass adopts what is live.
                    work.next = Next::FullAfter(Duration::ZERO);
                    return;
                }
                Err(failed) => {
                    let message = error::chain(&failed);
                    return work.fail(Reason::MonitorFailed, "no release", &message);
                }
            },
        };
        match self.observe(work, &acting, &release, current.applied).await {
            Ok(wanted) => {
                work.status.set_condition(MONITORED, Ok(()), work.now);
                if work.hold.is_none() {
                    self.adopt_agent(work, &acting).await;
                    if bundle.metadata.deletion_timestamp.is_none()
                        && plan::is_overwritten(&bundle.spec, &work.status)
                    {
                        work.next = Next::FullAfter(self.timing.overwrite_retry);
                    }
                    self.correct(work, &acting, &release, &wanted).await;
                }
            }
            Err(message) => {
                work.status
                    .set_condition(MONITORED, Err(&message), work.now);
                work.fail(
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
        work: &mut Work,
        acting: &DeploymentClient,
        release: &Release,
        applied: Vec<Value>,
    ) -> Result<Arc<Vec<Object>>, String> {
        let bundle = Arc::clone(&work.bundle);
        let set = SetId::new(bundle.name(), &self.scope);
        let wanted = correct::objects(acting.cluster(), release)
            .await
            .map_err(|e| error::chain(&e))?;
        let client = acting.client();
        let written = match applied.is_empty() {
            true => None,
            false => Live::written(set.hash(), &wanted, applied),
        };
        let mut live = match written {
            Some(live) => live,
            None => Live::read(&client, set.hash(), &wanted)
                .await
                .map_err(|e| error::chain(&e))?,
        };
        let rules = observe::rules(&bundle.spec.options);
        let owner = Owner {
            name: release.name.clone(),
            namespace: release.namespace.clone(),
        };
        let differences = live
            .differences(acting.cluster(), &owner, &wanted, &rules)
            .await;
        let former = match live.has_others_than(&wanted) {
            true => self.former_objects(&bundle, acting, release).await,
            false => Vec::new(),
        };
        let view = self.view(&bundle, &rules, work.now);
        let found = live.compare(&wanted, &former, &differences, &view);
        if !found.modified.is_empty() && work.bundle.status.non_modified {
            work.news.push((Reason::DriftFound, names(&found.modified)));
        }
        let wanted = Arc::new(wanted);
        let kinds = observe::kinds(&wanted);
        self.take_in(work, found, owner, &wanted);
        let is_ready = work.status.condition(READY) == "True";
        let (drift, name) = (&self.rooms.drift, bundle.name());
        drift.refresh(name, set.hash(), kinds, live.seen(), is_ready);
        Ok(wanted)
    }

    /// Looks only at what changed since the last look at a bundle. False if that is not enough to
    /// tell how it is.
    pub(super) async fn glance(&self, work: &mut Work) -> bool {
        let bundle = Arc::clone(&work.bundle);
        let name = bundle.name();
        if !work.status.non_modified || !plan::should_monitor(&bundle, &work.status) {
            return false;
        }
        let (Some(news), Some(memory)) = (
            self.rooms.drift.news(name),
            self.recall.of(&bundle, &work.status.release),
        ) else {
            return false;
        };
        let Some(fine) = observe::unchanged(&memory.fine, &memory.wanted, &news) else {
            return false;
        };
        if memory.wanted.len() - fine.len() > GLANCE {
            return false;
        }
        let account = &bundle.spec.options.service_account;
        let Ok(acting) = self
            .rooms
            .identities
            .deployment(account, Purpose::Look)
            .await
        else {
            return false;
        };
        // What is ready may be without its record by now: somebody deleted it.
        if work.status.ready && !matches!(self.stored(work, &acting).await, Ok(Some(_))) {
            return false;
        }
        let client = acting.client();
        let set = SetId::new(name, &self.scope);
        let Some(mut live) = Live::reread(&client, set.hash(), &memory.wanted, fine).await else {
            return false;
        };
        let rules = observe::rules(&bundle.spec.options);
        let (owner, wanted) = (&memory.owner, &memory.wanted);
        let differences = live
            .differences(acting.cluster(), owner, wanted, &rules)
            .await;
        let view = self.view(&bundle, &rules, work.now);
        let found = live.compare(wanted, &[], &differences, &view);
        if !found.modified.is_empty() {
            return false;
        }
        self.take_in(work, found, owner.clone(), wanted);
        work.status.set_condition(MONITORED, Ok(()), work.now);
        let is_ready = work.status.condition(READY) == "True";
        self.rooms.drift.update(name, live.seen(), is_ready);
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
        work: &mut Work,
        found: Observation,
        owner: Owner,
        wanted: &Arc<Vec<Object>>,
    ) {
        let bundle = &work.bundle;
        if found.modified.is_empty() {
            let (release, fine) = (&work.status.release, observe::fine(&found));
            self.recall
                .keep(bundle, release, owner, Arc::clone(wanted), fine);
        } else {
            self.recall.forget(bundle.name());
        }
        let generation = bundle.spec.options.force_sync_generation;
        work.status.observe(found, generation, work.now);
    }

    /// Objects of the revision before, to tell left-overs from copies of our label. A record that
    /// cannot be read means none.
    async fn former_objects(
        &self,
        bundle: &BundleDeployment,
        acting: &DeploymentClient,
        release: &Release,
    ) -> Vec<Object> {
        let storage = self.records(bundle, acting, &release.namespace);
        match storage
            .get(&release.name, release.revision.saturating_sub(1))
            .await
        {
            Ok(former) => correct::stored_objects(acting.cluster(), &former)
                .await
                .unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }

    /// The agent's own bundle adopts what the import left: objects left over from the former agent
    /// go. What is changed or missing is corrected, asked or not.
    async fn adopt_agent(&self, work: &Work, acting: &DeploymentClient) {
        if !work.bundle.is_agent_bundle() {
            return;
        }
        for extra in work
            .status
            .modified_status
            .iter()
            .filter(|entry| entry.extra)
        {
            let deleted = correct::delete(acting, extra, &DeleteParams::background()).await;
            if let Err(failed) = deleted {
                tracing::warn!(error = %failed, "failed cleaning old agent");
            }
        }
    }

    /// Puts drifted objects right, if that is wanted and did not just fail to help.
    async fn correct(
        &self,
        work: &mut Work,
        acting: &DeploymentClient,
        release: &Release,
        wanted: &[Object],
    ) {
        let bundle = Arc::clone(&work.bundle);
        let name = bundle.name();
        if work.status.non_modified {
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
                .due(&work.status.modified_status)
        };
        if let Some(pause) = due {
            work.next = Next::After(pause);
            return;
        }
        // Upstream learns what was found before it is put right.
        self.write_status(work).await;
        let drifted = &work.status.modified_status;
        match correct::apply(acting.cluster(), release, wanted, drifted, wish.force).await {
            Ok(conflicts) => {
                let text = names(drifted);
                tracing::info!(bundle = name, objects = drifted.len(), "corrected drift");
                work.news.push((Reason::DriftCorrected, text));
                self.tell(work, &conflicts);
                work.next = Next::After(self.timing.drift_delay.min(Duration::from_secs(1)));
            }
            Err(failed) => {
                let message = error::chain(&failed);
                if wish.keep_fail_history {
                    let kept = deploy::max_history(&bundle.spec.options);
                    let records = self.records(&bundle, acting, &release.namespace);
                    correct::record_failure(&records, release, &message, kept).await;
                }
                work.status.set_condition(READY, Err(&message), work.now);
                work.fail(
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
