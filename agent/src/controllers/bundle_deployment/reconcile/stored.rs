//! The release of a bundle as it is in storage, and what the ledger says of it.

use chart::source::Reservation;
use objects::manifest::documents;
use release::model::{Release, Status};
use release::storage::{Storage, StorageError, StoredRelease};

use super::{ReconcileState, Reconciler};
use crate::api::BundleDeployment;
use crate::bundle::SetId;
use crate::client::identity::{DeploymentClient, Purpose};
use crate::controllers::bundle_deployment::claims::{self, ReleaseId};
use crate::controllers::bundle_deployment::halt::{Cause, Halt};
use crate::controllers::bundle_deployment::outcome::{RedeployReason, ReleaseImport};
use crate::controllers::bundle_deployment::rendering::release_bytes;
use crate::ledger::records::{self, Writes};
use crate::ledger::{
    Containers, DeploymentDigest, LedgerEntry, Notes, PlannedContainers, Proof, ReleaseKey,
};
use crate::public::PublicText;

/// What the read of a record takes until it is known how large the release is, in bytes: a mebibyte, packed, as it comes and as text. It is
/// unpacked in one go, so by one look at a time. A look at a small release has room beside whatever is waited for.
const RECORD: u64 = 2 << 20;

impl Reconciler {
    /// The release that is wanted, if the status names it and it is in storage. Another one that the status names is not read: it decides about no
    /// deploy, and where it lies today's account may have no rights.
    pub(super) async fn wanted(
        &self,
        state: &mut ReconcileState,
        impersonated: &DeploymentClient,
    ) -> Result<Option<StoredRelease>, StorageError> {
        let named = state.named().map(|id| id.key());
        match named == Some(claims::desired(&state.bundle)) {
            true => self.stored(state, impersonated).await,
            false => Ok(None),
        }
    }

    /// The release that the status names, if it is in storage as it was written, though its deploy may not be over. A revision above all that the ledger ever
    /// had a digest of was written by another agent, which named it in the status, where no tenant can: if it names the bundle it is believed once, and its
    /// digest noted.
    pub(super) async fn stored(
        &self,
        state: &mut ReconcileState,
        impersonated: &DeploymentClient,
    ) -> Result<Option<StoredRelease>, StorageError> {
        let Some(id) = state.named() else {
            return Ok(None);
        };
        let key = id.key();
        let known = self.context.ledger.get(&key).unwrap_or_default();
        let storage = self.records(&state.bundle, impersonated, &key.namespace, Writes::Deploys);
        let mut reservation = match state.reservation.take() {
            Some(reservation) => reservation,
            None => self.context.deployer.memory().reserve_brief(RECORD).await,
        };
        let stored = storage.get(&key.name, id.revision).await;
        cover(&mut reservation, stored.as_deref().ok()).await;
        state.reservation = Some(reservation);
        let release = match stored {
            Ok(release) => release,
            Err(StorageError::NotFound) => return Ok(None),
            Err(StorageError::Unproven { .. }) => {
                state.report.redeploys(&id, RedeployReason::Changed);
                return Ok(None);
            }
            // Damaged, or larger than anything that is written today: whoever waits for it waits for ever.
            Err(StorageError::Decode { .. }) => {
                state.report.redeploys(&id, RedeployReason::Unreadable);
                return Ok(None);
            }
            Err(failed) => return Err(failed),
        };
        let is_own = known.bundle == state.bundle.name();
        if !is_own || known.digest(id.revision).is_none() {
            let Some(proof) = self
                .named(&state.bundle, &release)
                .filter(|_| known.may_believe(id.revision))
            else {
                state.report.redeploys(&id, RedeployReason::Changed);
                return Ok(None);
            };
            if let Err(failed) = self.adopt(&state.bundle, impersonated, &id, &release, &proof) {
                let failed = PublicText::nothing_secret_in(&failed);
                logging::error!(error = failed, "cannot note whose a release is");
            }
        }
        // With correctDrift what somebody else made of the release is answered from the chart.
        let set = SetId::new(state.bundle.name(), &self.scope);
        if state.bundle.spec.correct_drift().enabled
            && is_superseded_or_foreign(&release, set.hash())
        {
            state
                .report
                .redeploys(&id, RedeployReason::SupersededOrForeign);
            return Ok(None);
        }
        Ok(Some(release))
    }

    /// Enters the release that another agent deployed for a bundle into the ledger, if upstream's status names it and the ledger does not
    /// know that revision or a later one: it goes with the bundle, also if that never gets as far as to be deployed here. The record is read once.
    pub(super) async fn import(&self, bundle: &BundleDeployment) -> ReleaseImport {
        let named = &bundle.status.release;
        let Some(id) = ReleaseId::parse(named) else {
            return ReleaseImport::Complete;
        };
        let ledger = &self.context.ledger;
        // Revisions that another agent deployed above all that are known here count too.
        let entry = ledger.get(&id.key()).unwrap_or_default();
        if self.was_record_read(bundle) || !entry.may_be_of(bundle.name(), id.revision) {
            return ReleaseImport::Complete;
        }
        let (identities, account) = (
            &self.context.identities,
            &bundle.spec.options.service_account,
        );
        let impersonated = match identities.deployment(account, Purpose::Monitor).await {
            Ok(impersonated) => impersonated,
            // The account may come, without an event.
            Err(_) => return ReleaseImport::Pending,
        };
        let _reservation = self.context.deployer.memory().reserve_brief(RECORD).await;
        let ReleaseKey { namespace, name } = &id.release;
        let storage = self.records(bundle, &impersonated, namespace, Writes::Deploys);
        match storage.get_unverified(name, id.revision).await {
            Ok(release) => {
                let proof = match entry.may_believe(id.revision) {
                    true => self.named(bundle, &release),
                    // The release was deployed over another bundle's, and the ledger was not written any more.
                    false => Proof::claimed(&entry, bundle.name(), id.revision, &release),
                };
                if let Some(proof) = proof {
                    let adopted = self.adopt(bundle, &impersonated, &id, &release, &proof);
                    if adopted.is_err() || ledger.settle(&id.key()).await.is_err() {
                        return ReleaseImport::Pending;
                    }
                }
            }
            Err(failed) if failed.is_retryable() => return ReleaseImport::Pending,
            Err(_) => {}
        }
        self.records_read
            .lock()
            .insert(bundle.name().to_owned(), named.clone());
        ReleaseImport::Complete
    }

    /// Whether the record that a bundle's status names was read to see whose it is.
    pub(super) fn was_record_read(&self, bundle: &BundleDeployment) -> bool {
        self.records_read.lock().get(bundle.name()) == Some(&bundle.status.release)
    }

    /// The proof that another agent's record belongs to this bundle.
    fn named(&self, bundle: &BundleDeployment, release: &Release) -> Option<Proof> {
        let namespace = self.context.collector.system_namespace();
        Proof::named(release, bundle.name(), namespace)
    }

    /// Believes a record that another agent wrote.
    fn adopt(
        &self,
        bundle: &BundleDeployment,
        impersonated: &DeploymentClient,
        id: &ReleaseId,
        release: &Release,
        proof: &Proof,
    ) -> kube::Result<()> {
        let key = id.key();
        let entry = self.entry(bundle, impersonated, &key, false);
        let entry = LedgerEntry {
            deployment: Some(DeploymentDigest::of(&bundle.status.applied_deployment_id)),
            ..entry.noting(id.revision, release::storage::digest(release))
        };
        self.context.ledger.adopt(key, entry, proof)
    }

    /// After a deploy that did not get as far as to write a revision: the release may be one of another agent's, whose attempts upstream's
    /// status does not name. A deploy that failed proves nothing.
    pub(super) async fn note_failed(
        &self,
        state: &ReconcileState,
        impersonated: &DeploymentClient,
        key: &ReleaseKey,
    ) -> Result<(), Halt> {
        let ledger = &self.context.ledger;
        if ledger.get(key).is_none() && state.report.status().release.is_empty() {
            let storage =
                self.records(&state.bundle, impersonated, &key.namespace, Writes::Deploys);
            let history = storage.history(&key.name).await.unwrap_or_default();
            let newest = release::storage::last(&history).map(|head| head.revision);
            if let Some(revision) = newest
                && let Ok(release) = storage.get_unverified(&key.name, revision).await
                && self.named(&state.bundle, &release).is_some()
            {
                // Only the record itself names the bundle: the release may be removed, but nothing is applied or run from it.
                let entry = self.entry(&state.bundle, impersonated, key, false);
                let noted = ledger.attempt(key.clone(), entry).await;
                noted.map_err(Halt::at(Cause::Ledger, &state.facts))?;
            }
        }
        let settled = ledger.settle(key).await;
        settled.map_err(Halt::at(Cause::Ledger, &state.facts))
    }

    /// The records of a bundle's releases in a namespace, to write these there.
    pub(super) fn records(
        &self,
        bundle: &BundleDeployment,
        impersonated: &DeploymentClient,
        namespace: &str,
        writes: Writes,
    ) -> Storage {
        let planned = PlannedContainers::default();
        self.planned_records(bundle, impersonated, namespace, (writes, planned))
    }

    /// The same for a deploy that says what its objects will be in, once it is rendered.
    pub(super) fn planned_records(
        &self,
        bundle: &BundleDeployment,
        impersonated: &DeploymentClient,
        namespace: &str,
        (writes, planned): (Writes, PlannedContainers),
    ) -> Storage {
        let helm = bundle.spec.options.helm.as_ref();
        let of = records::Bundle {
            name: bundle.name().to_owned(),
            account: impersonated.account().to_owned(),
            keep_resources: bundle.spec.options.keep_resources,
            deployment: Some(DeploymentDigest::of(&bundle.spec.deployment_id)),
            takes_ownership: helm.is_some_and(|helm| helm.take_ownership),
            planned,
        };
        records::records(&self.context.ledger, impersonated, namespace, of, writes)
    }

    /// After a deploy that ended well with this revision: what was announced above it and never written, as a deploy was killed then, is no try that is
    /// to be made good at each start.
    pub(super) async fn forget_unwritten(
        &self,
        state: &ReconcileState,
        records: &Storage,
        key: &ReleaseKey,
        revision: i64,
    ) -> Result<(), Halt> {
        let (ledger, bundle) = (&self.context.ledger, state.bundle.name());
        let known = ledger.get(key).filter(|known| known.bundle == bundle);
        let tried = known.iter().flat_map(|known| known.tried_above(revision));
        let mut unwritten: Vec<_> = tried.collect();
        if unwritten.is_empty() {
            return Ok(());
        }
        // A history that cannot be read now is tried again at the next start.
        let Ok(history) = records.history(&key.name).await else {
            return Ok(());
        };
        // The next number was announced; any other is of somebody who knows of more.
        let newest = history.iter().map(|head| head.revision).max();
        let next = newest.unwrap_or_default() + 1;
        unwritten.retain(|one| *one == next);
        let forgotten = ledger.forget_unwritten(key, bundle, &unwritten).await;
        forgotten.map_err(Halt::at(Cause::Ledger, &state.facts))
    }

    /// Writes into the ledger that the release is the bundle's, of which this is deployed, and what its objects are in from now on, if that is known.
    pub(super) async fn own(
        &self,
        state: &ReconcileState,
        impersonated: &DeploymentClient,
        key: ReleaseKey,
        (deployment, containers): (DeploymentDigest, Option<Containers>),
        proof: &Proof,
    ) -> Result<(), Halt> {
        let known = self.entry(&state.bundle, impersonated, &key, true);
        let entry = LedgerEntry {
            names: state.names.clone(),
            deployment: Some(deployment),
            containers: containers.unwrap_or_else(|| known.containers.clone()),
            ..known
        };
        let recorded = self.context.ledger.own(key, entry, proof).await;
        recorded.map_err(Halt::at(Cause::Ledger, &state.facts))
    }

    /// Updates the ledger entry of a release that needed no deploy: the spec's settings for it count from now on. `stored` is the revision that
    /// the status names. That it was deployed may not have been written down.
    pub(super) async fn confirm_owner(
        &self,
        state: &ReconcileState,
        impersonated: &DeploymentClient,
        id: &ReleaseId,
        stored: Option<&Release>,
    ) -> Result<(), Halt> {
        let (ledger, key) = (&self.context.ledger, id.key());
        let known = ledger.get(&key);
        let Some(known) = known.filter(|known| known.bundle == state.bundle.name()) else {
            return Ok(());
        };
        // A release left behind stays so until it is deployed anew.
        let deployment = match known.is_left_behind() {
            true => known.deployment.clone(),
            false => Some(state.deployment()),
        };
        if known.is_attempt {
            let proof = stored.and_then(|stored| Proof::of_status(&known, id.revision, stored));
            return match proof.zip(deployment) {
                Some((proof, deployment)) => {
                    let owned = self.own(state, impersonated, key, (deployment, None), &proof);
                    owned.await
                }
                None => Ok(()),
            };
        }
        let entry = LedgerEntry {
            names: state.names.clone(),
            deployment,
            ..self.entry(&state.bundle, impersonated, &key, true)
        };
        let confirmed = ledger.confirm(key, entry).await;
        confirmed.map_err(Halt::at(Cause::Ledger, &state.facts))
    }

    pub(super) fn entry(
        &self,
        bundle: &BundleDeployment,
        impersonated: &DeploymentClient,
        key: &ReleaseKey,
        is_deployed: bool,
    ) -> LedgerEntry {
        let known = self.context.ledger.get(key);
        let known = known.unwrap_or_else(|| LedgerEntry {
            revisions: Some(Notes::default()),
            ..LedgerEntry::default()
        });
        let keeps = bundle.spec.options.keep_resources;
        LedgerEntry {
            account: impersonated.account().to_owned(),
            // Until the new spec is deployed, the last one has a say.
            keep_resources: keeps || !is_deployed && known.keep_resources,
            left_since: None,
            ..known.taken_by(bundle.name())
        }
    }
}

impl ReconcileState {
    /// The deployment of the bundle that counts as deployed by now.
    pub(super) fn deployment(&self) -> DeploymentDigest {
        DeploymentDigest::of(&self.report.status().applied_deployment_id)
    }
}

/// Waits until a reservation covers what is made of a release that was read: its objects are read next, and the live ones beside them.
async fn cover(reservation: &mut Reservation, read: Option<&Release>) {
    let (read, bytes) = read.map_or((0, 0), |release| {
        let bytes = release_bytes(&release.manifest, release.chart.as_deref());
        (release.size_bytes(), bytes)
    });
    // The release is in memory while room for the rest is waited for.
    reservation.hold(read);
    reservation.resize(bytes.max(read)).await;
    reservation.rest();
}

/// Whether somebody has written a later revision, or this one, whose objects lack the marks of the bundle's set.
fn is_superseded_or_foreign(release: &Release, hash: &str) -> bool {
    let status = release.info.as_ref().map(|info| &info.status);
    let lacks_marks = || {
        !release.manifest.contains(hash)
            && documents(&release.manifest).is_ok_and(|documents| !documents.is_empty())
    };
    status == Some(&Status::Superseded) || lacks_marks()
}

#[cfg(test)]
mod tests {
    use chart::source::Memory;
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_release_that_was_read_counts_while_it_waits_for_more_memory() {
        let memory = Memory::new(48 << 20).with_reserve(6 << 20);
        let _others = memory.reserve(42 << 20).await;
        let mut reservation = memory.reserve_brief(RECORD).await;
        let release = Release {
            manifest: " ".repeat(1 << 20),
            config: [("a".to_owned(), " ".repeat(6 << 20).into())]
                .into_iter()
                .collect(),
            ..Release::default()
        };
        let waits = cover(&mut reservation, Some(&release)).now_or_never();
        assert!(waits.is_none());
        assert!(memory.used() >= 49 << 20, "{}", memory.used());
        cover(&mut reservation, None).await;
        assert_eq!(memory.used(), 42 << 20);
    }
}
