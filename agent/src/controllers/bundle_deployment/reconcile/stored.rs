//! The release of a bundle as it is in storage, and what the ledger says of it.

use std::collections::BTreeMap;

use objects::manifest::documents;
use release::model::{Release, Status};
use release::storage::{KnownDigest, Storage, StorageError};

use super::{ReconcileState, Reconciler};
use crate::api::BundleDeployment;
use crate::bundle::SetId;
use crate::client::identity::DeploymentClient;
use crate::controllers::bundle_deployment::claims::ReleaseId;
use crate::controllers::bundle_deployment::outcome::{Cause, Halt};
use crate::ledger::{LedgerEntry, ReleaseKey, records};

/// What a release whose record is a mebibyte, packed, takes once it is read and looked at, in bytes, about.
const RECORD: u64 = 8 << 20;

/// What a release takes that was read, with the objects made of it and their live ones, about.
fn release_bytes(release: &Release) -> u64 {
    release.manifest.len() as u64 * 6
}

impl Reconciler {
    /// The release that the status names, if it is in storage as it was written. A revision without a digest in the ledger was written by
    /// another agent, which named it in the status, where no tenant can: it is believed the first time, and its digest noted.
    pub(super) async fn stored(
        &self,
        state: &mut ReconcileState,
        impersonated: &DeploymentClient,
    ) -> Result<Option<Release>, StorageError> {
        let Some(id) = ReleaseId::parse(&state.report.status().release) else {
            return Ok(None);
        };
        let key = id.key();
        let known = self.context.ledger.get(&key).unwrap_or_default();
        let storage = self.records(&state.bundle, impersonated, &key.namespace);
        let mut turn = match state.turn.take() {
            Some(turn) => turn,
            None => self.context.deployer.memory().reserve(RECORD).await,
        };
        let stored = storage.get(&key.name, id.revision).await;
        let bytes = stored.as_ref().map_or(0, release_bytes);
        turn.resize(bytes.min(turn.bytes())).await;
        state.turn = Some(turn);
        let release = match stored {
            Ok(release) => release,
            Err(StorageError::NotFound) => return Ok(None),
            Err(StorageError::Unproven { .. }) => {
                state.report.record_changed(&id);
                return Ok(None);
            }
            Err(failed) => return Err(failed),
        };
        // With correctDrift what somebody else made of the release is answered from the chart.
        let set = SetId::new(state.bundle.name(), &self.scope);
        if state.bundle.spec.correct_drift().enabled && is_anothers(&release, set.hash()) {
            state.report.revision_of_another(&id);
            return Ok(None);
        }
        if !matches!(known.known_digest(id.revision), KnownDigest::Digest(_)) {
            let entry = self.entry(state, impersonated, &key, false);
            let digest = release::storage::digest(&release);
            let entry = entry.noting(id.revision, digest);
            self.context.ledger.adopt_revision(key, entry);
        }
        Ok(Some(release))
    }

    /// The records of a bundle's releases in a namespace.
    pub(super) fn records(
        &self,
        bundle: &BundleDeployment,
        impersonated: &DeploymentClient,
        namespace: &str,
    ) -> Storage {
        let bundle = records::Bundle {
            name: bundle.name().to_owned(),
            account: impersonated.account().to_owned(),
            keep_resources: bundle.spec.options.keep_resources,
        };
        records::records(&self.context.ledger, impersonated, namespace, bundle)
    }

    /// Writes into the ledger whose the release is.
    pub(super) async fn enter(
        &self,
        state: &ReconcileState,
        impersonated: &DeploymentClient,
        key: ReleaseKey,
        is_deployed: bool,
    ) -> Result<(), Halt> {
        let entry = self.entry(state, impersonated, &key, is_deployed);
        let recorded = self.context.ledger.record(key, entry).await;
        recorded.map_err(Halt::at(Cause::Ledger))
    }

    fn entry(
        &self,
        state: &ReconcileState,
        impersonated: &DeploymentClient,
        key: &ReleaseKey,
        is_deployed: bool,
    ) -> LedgerEntry {
        let known = self.context.ledger.get(key);
        let keeps = state.bundle.spec.options.keep_resources;
        let kept = known.as_ref().is_some_and(|entry| entry.keep_resources);
        let entry = LedgerEntry {
            bundle: state.bundle.name().to_owned(),
            account: impersonated.account().to_owned(),
            // Until the new spec is deployed, the last one has a say.
            keep_resources: keeps || !is_deployed && kept,
            ..LedgerEntry::default()
        };
        match known {
            Some(known) => entry.with_revisions_of(&known),
            None => LedgerEntry {
                revisions: Some(BTreeMap::new()),
                ..entry
            },
        }
    }
}

/// Whether somebody has written a later revision, or this one, whose objects lack the marks of the bundle's set.
fn is_anothers(release: &Release, hash: &str) -> bool {
    let status = release.info.as_ref().map(|info| &info.status);
    let lacks_marks = || {
        !release.manifest.contains(hash)
            && documents(&release.manifest).is_ok_and(|documents| !documents.is_empty())
    };
    status == Some(&Status::Superseded) || lacks_marks()
}
