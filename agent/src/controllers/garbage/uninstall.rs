//! Removing a release whose bundle is proven to be gone, as far as the release is proven to be the bundle's, with the account that deployed
//! it.

use std::collections::BTreeMap;
use std::sync::Arc;

use chart::source::Memory;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use objects::ObjectKey;
use release::action::{
    KnownRecords, UninstallError, UninstallSpec, Writer, uninstall_confirmed, withdraw,
};
use release::model::Status;
use release::storage::{Storage, StorageError};
use release::{AbortCheck, Confirmation};

use super::error::{BlockedRemoval, RemovalError};
use crate::api::ANNOTATION_AGENT_NAMESPACE;
use crate::client::identity::{DeploymentClient, Identities};
use crate::controllers::claims::{ReleaseLock, ReleaseLocks};
use crate::controllers::downstream_resources::{self, UnnotedCopies};
use crate::controllers::shared_namespaces::SharedNamespaces;
use crate::controllers::store::Store;
use crate::error;
use crate::ledger::records::{ReleaseRecords, Writes};
use crate::ledger::{
    Ledger, LedgerEntry, OwnedRecords, PlannedContainers, Proof, ReleaseKey, records,
};
use crate::public::redact::Redacted;

/// Why a release is removed.
#[derive(Clone, Copy)]
pub(super) enum Removal<'a> {
    /// The release's bundle is gone.
    OfBundle,
    /// The bundle has this release now.
    Superseded(&'a ReleaseKey),
    /// The bundle has this release now, as other facts filled in its names: only a bundle that waits for the former one may get it.
    Renamed(&'a ReleaseKey),
}

impl<'a> Removal<'a> {
    /// The release that its bundle has now.
    pub(super) fn current(self) -> Option<&'a ReleaseKey> {
        match self {
            Self::OfBundle => None,
            Self::Superseded(current) | Self::Renamed(current) => Some(current),
        }
    }

    /// Whether the release stays where no other bundle waits for it.
    pub(super) fn leaves(self) -> bool {
        matches!(self, Self::Renamed(_))
    }
}

/// Uninstalls releases.
pub(super) struct Uninstaller {
    /// System namespace downstream.
    pub(super) system_namespace: String,
    pub(super) identities: Arc<Identities>,
    pub(super) store: Arc<Store>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) shared_namespaces: SharedNamespaces,
    /// Memory budget for reading records, where an error is to be redacted.
    pub(super) memory: Memory,
    /// Nobody deploys a release from when its records are read to when that was acted on.
    pub(super) locks: ReleaseLocks,
    pub(super) unnoted_copies: UnnotedCopies,
}

/// A release whose bundle is gone, as its records are.
pub(super) enum Found {
    /// The release is the bundle's.
    Owned(Box<OwnedRelease>),
    /// Somebody else's, before and after the bundle's deploys failed: only what those deploys wrote is the bundle's.
    Parts(Box<Attempts>),
    /// The release is not the bundle's, whatever the ledger says.
    Foreign,
    /// The namespace is gone, and the release with it.
    Gone,
}

/// What a bundle's failed deploys wrote of a release of somebody else's. Only [`Uninstaller::find`] makes one.
pub(super) struct Attempts {
    storage: Storage,
    revisions: Vec<i64>,
    /// The revisions of somebody else's.
    theirs: Vec<i64>,
    /// The attempts' objects outlive the bundle.
    pub(super) keeps: bool,
}

/// Why the records of a release cannot be read or written.
fn unread(key: &ReleaseKey) -> impl Fn(StorageError) -> RemovalError {
    move |source| RemovalError::Records {
        release: key.to_string(),
        source,
    }
}

/// Whether trying again does not help: the account may not read a record, or the record is none.
fn is_out_of_reach(failed: &StorageError) -> bool {
    match failed {
        StorageError::Api { source, .. } => source.is_forbidden(),
        StorageError::Decode { .. } => true,
        _ => false,
    }
}

/// Why what a bundle's attempts brought into another one's release is left there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetainReason {
    /// Not all other records of the release are those that were written.
    UnknownRecords,
    /// The attempts' own are gone: somebody deleted them, or an agent that was killed before it had noted that.
    NoRecords,
}

impl RetainReason {
    /// The reason, by what is known of the release since its records were read.
    fn of(known: Option<&LedgerEntry>, bundle: &str) -> Self {
        match known.is_some_and(|known| known.wrote(bundle)) {
            true => Self::UnknownRecords,
            false => Self::NoRecords,
        }
    }
}

/// A release that is a bundle's. Only [`Uninstaller::find`] makes one.
pub(super) struct OwnedRelease {
    pub(super) proof: Proof,
    impersonated: DeploymentClient,
    storage: Storage,
    /// The release's objects outlive the bundle.
    pub(super) keeps: bool,
    /// No revision was ever deployed.
    pub(super) is_attempt: bool,
    /// The records that the release had when it was proven to be the bundle's, whoever wrote them.
    known: KnownRecords,
}

impl Uninstaller {
    /// Locks a release for a bundle that has no use for it.
    ///
    /// # Errors
    /// Another bundle deploys the release: its owner is determined anew.
    pub(super) fn lock(&self, key: &ReleaseKey, bundle: &str) -> Result<ReleaseLock, RemovalError> {
        let locked = self.locks.take(key, bundle);
        locked.map_err(|_| RemovalError::Blocked(BlockedRemoval::until_idle(key)))
    }

    /// Reads what is there of a release and whose it is.
    ///
    /// # Errors
    /// Its records cannot be read.
    pub(super) async fn find(
        &self,
        key: &ReleaseKey,
        entry: &LedgerEntry,
    ) -> Result<Found, RemovalError> {
        let keeps = self.shared_namespaces.keeps(entry);
        let impersonated = self.identities.account(&entry.account)?;
        let storage = self.records(&impersonated, key, &entry.bundle, keeps);
        let found = match records::read(&storage, &key.name, entry, &self.system_namespace).await {
            Ok(found) => found,
            // In a namespace that is gone with its rights an account may not even read.
            Err(_) if self.is_gone(&key.namespace).await => return Ok(Found::Gone),
            // The bundle wrote nothing there, and the account of the one that left it the rest may be gone.
            Err(source) if entry.is_left() && is_out_of_reach(&source) => {
                return Ok(Found::Foreign);
            }
            Err(source) => return Err(unread(key)(source)),
        };
        let ReleaseRecords {
            owned,
            is_attempt,
            known,
            others,
        } = found;
        if let Some(proof) = Proof::of_records(&owned) {
            return Ok(Found::Owned(Box::new(OwnedRelease {
                proof,
                impersonated,
                storage,
                keeps,
                is_attempt,
                known,
            })));
        }
        let OwnedRecords::Parts(revisions) = owned else {
            return Ok(Found::Foreign);
        };
        Ok(Found::Parts(Box::new(Attempts {
            storage,
            revisions,
            theirs: others,
            keeps,
        })))
    }

    /// Deletes the records of attempts at a release of somebody else's, and nothing that they brought.
    ///
    /// # Errors
    /// They cannot be read or deleted.
    pub(super) async fn return_release(
        &self,
        key: &ReleaseKey,
        attempts: &Attempts,
    ) -> Result<(), RemovalError> {
        self.delete_records(key, &attempts.storage, &attempts.revisions, |_| true)
            .await
    }

    /// Deletes records of a release, as far as they are what was written here and `is_meant`.
    async fn delete_records(
        &self,
        key: &ReleaseKey,
        storage: &Storage,
        revisions: &[i64],
        is_meant: impl Fn(&Status) -> bool,
    ) -> Result<(), RemovalError> {
        for revision in revisions {
            let record = match storage.get_unverified(&key.name, *revision).await {
                Ok(record) if is_meant(&record.status()) => record,
                Ok(_) | Err(StorageError::NotFound) => continue,
                Err(source) => return Err(unread(key)(source)),
            };
            // The record was there a moment ago.
            if let Some(record) = storage.deletable(&key.name, *revision, &record) {
                let deleted = storage.delete(&key.name, &record).await;
                deleted.map_err(unread(key))?;
            }
        }
        Ok(())
    }

    /// Says of the newest attempt that it failed, where it was cut off: nobody goes on with it, and a helm client would wait for it.
    async fn end_attempt(&self, key: &ReleaseKey, attempts: &Attempts) -> Result<(), RemovalError> {
        let (storage, name) = (&attempts.storage, &key.name);
        let Some(revision) = attempts.revisions.iter().max() else {
            return Ok(());
        };
        let mut record = match storage.get_unverified(name, *revision).await {
            Ok(record) => record,
            Err(StorageError::NotFound | StorageError::Decode { .. }) => return Ok(()),
            Err(source) => return Err(unread(key)(source)),
        };
        if !record.status().is_pending() || !storage.recognises(name, *revision, &record) {
            return Ok(());
        }
        if let Some(info) = &mut record.info {
            info.status = Status::Failed;
        }
        match storage.update(&record).await {
            // The record is another one by now.
            Ok(()) | Err(StorageError::NotFound | StorageError::Replaced { .. }) => Ok(()),
            Err(source) => Err(unread(key)(source)),
        }
    }

    /// The bundle whose attempts are noted in a release that no bundle waits for: nothing else knows what it wrote there. A bundle that is gone for
    /// good has nothing there any more.
    fn claimant(&self) -> impl Fn(&LedgerEntry) -> Option<String> {
        let known = self.ledger.bundles(|_| true);
        let store = Arc::clone(&self.store);
        move |entry| {
            let mut claimants = entry.claims.keys();
            let claimant = claimants.find(|one| store.is_listed(one) || known.contains(*one));
            claimant.cloned()
        }
    }

    /// Deletes the records of attempts that bundles left which are gone, with the accounts that they were made with: whom they were left to goes as
    /// well, and nobody else knows of them. What such a bundle had deployed is the release's history. What cannot be deleted stays: `bundle`, which
    /// goes, has no part in it.
    async fn return_left(&self, key: &ReleaseKey, bundle: &str) -> Result<(), RemovalError> {
        let Some(entry) = self.ledger.get(key) else {
            return Ok(());
        };
        let is_unfinished = |status: &Status| *status == Status::Failed || status.is_pending();
        for (left_by, claim) in &entry.claims {
            if self.store.is_listed(left_by) || self.ledger.knows(left_by) {
                continue;
            }
            let impersonated = self.identities.account(&claim.account)?;
            let storage = self.records(&impersonated, key, left_by, false);
            let written = entry.written_by(left_by);
            let deleted = self.delete_records(key, &storage, &written, is_unfinished);
            match deleted.await {
                Err(RemovalError::Records { source, .. }) if is_out_of_reach(&source) => {
                    logging::warn!(
                        bundle,
                        release = key.name,
                        namespace = key.namespace,
                        "records of attempts that another bundle left stay"
                    );
                }
                deleted => deleted?,
            }
        }
        Ok(())
    }

    /// Uninstalls a release and forgets it. Its objects stay where the bundle wished so, and always those of the agent itself. When hooks have run it is
    /// asked once more whether it is to go.
    ///
    /// # Errors
    /// It could not be removed, or the ledger not be written; or it may be wanted again, and nothing of it is gone.
    pub(super) async fn uninstall(
        &self,
        key: &ReleaseKey,
        entry: &LedgerEntry,
        release: &OwnedRelease,
        removal: Removal<'_>,
        confirmation: Confirmation<'_>,
    ) -> Result<(), RemovalError> {
        let deleted = self.delete(key, entry, release, removal, (None, confirmation));
        if deleted.await? {
            self.leave_copies(key, entry, release, removal).await?;
        }
        // Somebody else's deploy may have begun meanwhile.
        let given_up = self.ledger.give_up(key, &entry.bundle, self.claimant());
        given_up.await.map_err(RemovalError::Ledger)
    }

    /// Forgets a release whose objects stay, so that its next owner installs: an upgrade would drop what that one has not. A deploy of the
    /// next owner that was under way meanwhile keeps its records and what the ledger has of them.
    ///
    /// # Errors
    /// As [`Self::uninstall`].
    pub(super) async fn leave_objects(
        &self,
        key: &ReleaseKey,
        entry: &LedgerEntry,
        release: &OwnedRelease,
        next_owner: &str,
    ) -> Result<(), RemovalError> {
        let own = entry.newest_written().unwrap_or_default();
        let known = self.ledger.get(key);
        let taken = known.and_then(|known| known.first_of_others(&entry.bundle, own));
        let up_to = match taken {
            Some(taken) => taken - 1,
            None => release.known.newest().unwrap_or_default(),
        };
        let removal = Removal::OfBundle;
        let extent = (Some(up_to), Confirmation::default());
        self.delete(key, entry, release, removal, extent).await?;
        let left_to = |_: &LedgerEntry| Some(next_owner.to_owned());
        let given_up = self.ledger.give_up(key, &entry.bundle, left_to);
        given_up.await.map_err(RemovalError::Ledger)
    }

    /// Deletes what a release has, as far as it is to go, and its records up to a revision. `false` if its namespace is gone.
    async fn delete(
        &self,
        key: &ReleaseKey,
        entry: &LedgerEntry,
        release: &OwnedRelease,
        removal: Removal<'_>,
        (up_to, confirmation): (Option<i64>, Confirmation<'_>),
    ) -> Result<bool, RemovalError> {
        let ReleaseKey { namespace, name } = key;
        let keeps = release.keeps;
        logging::info!(
            bundle = entry.bundle,
            release = name,
            namespace,
            keeps,
            "removing release"
        );
        let impersonated = &release.impersonated;
        let mut spec = UninstallSpec::new(name, namespace);
        spec.keep_resources = keeps;
        spec.is_attempt = release.is_attempt;
        spec.known = Some(release.known.clone());
        spec.up_to = up_to;
        spec.writer = Writer {
            annotations: BTreeMap::from([(
                ANNOTATION_AGENT_NAMESPACE.to_owned(),
                self.system_namespace.clone(),
            )]),
        };
        let with_bundle = matches!(removal, Removal::OfBundle);
        let shared_namespaces = &self.shared_namespaces;
        spec.other_releases = shared_namespaces.of_removal(key, &entry.bundle, with_bundle);
        spec.abort_check = AbortCheck::new(self.may_stay(key, entry));
        let (cluster, records) = (impersonated.cluster(), &release.storage);
        let done = match uninstall_confirmed(cluster, records, &spec, confirmation).await {
            Ok(done) => done,
            Err(UninstallError::NamespacesDeferred(namespaces)) => {
                let (bundle, release) = (&entry.bundle, name);
                for container in &namespaces {
                    logging::info!(
                        bundle,
                        release,
                        object = *container,
                        "others are about to leave it"
                    );
                }
                let is_again = shared_namespaces.waits(key, namespaces.clone());
                return Err(RemovalError::Blocked(BlockedRemoval {
                    release: key.clone(),
                    namespaces,
                    is_again,
                }));
            }
            Err(UninstallError::Aborted(_)) => {
                return Err(RemovalError::Aborted(key.clone()));
            }
            Err(UninstallError::Unconfirmed(_)) => {
                return Err(RemovalError::Unconfirmed(key.clone()));
            }
            // The owner is asked anew with the next try.
            Err(UninstallError::Taken(_)) => {
                return Err(RemovalError::Blocked(BlockedRemoval::until_idle(key)));
            }
            Err(failed) if failed.ends_with(namespace) && self.is_gone(namespace).await => {
                return Ok(false);
            }
            Err(failed) => {
                let records = (&release.storage, &**name);
                return Err(self.uninstall_error(impersonated, records, &failed).await);
            }
        };
        // One with a generated name is any of many.
        let kept = done.kept.iter().filter(|kept| !kept.name.is_empty());
        let kept = kept.map(|kept| (kept, "it stays, or something in it does"));
        let others = done.not_owned.iter();
        let others = others.map(|kept| (kept, "it is not this release's"));
        for (kept, reason) in kept.chain(others) {
            let (release, kind) = (name, &kept.kind);
            let ObjectKey {
                namespace, name, ..
            } = kept;
            logging::info!(release, kind, namespace, name, reason, "kept");
        }
        if !done.in_use.is_empty() {
            let (bundle, release) = (&entry.bundle, name);
            for ObjectKey { kind, name, .. } in &done.in_use {
                logging::warn!(
                    bundle,
                    release,
                    kind,
                    name,
                    "other releases are in it or come there, left"
                );
            }
        }
        Ok(true)
    }

    /// Removes the copies of upstream resources that only this bundle needs, unless its objects are to stay.
    ///
    /// # Errors
    /// They cannot be deleted.
    pub(super) async fn leave_copies(
        &self,
        key: &ReleaseKey,
        entry: &LedgerEntry,
        release: &OwnedRelease,
        removal: Removal<'_>,
    ) -> Result<(), RemovalError> {
        match release.keeps {
            true => Ok(()),
            false => {
                self.remove_copies(key, entry, &release.impersonated, removal)
                    .await
            }
        }
    }

    /// Removes the copies of upstream resources that were made for a bundle where its release is; they say themselves whose they are.
    async fn remove_copies(
        &self,
        key: &ReleaseKey,
        entry: &LedgerEntry,
        impersonated: &DeploymentClient,
        removal: Removal<'_>,
    ) -> Result<(), RemovalError> {
        // Copies in the same namespace belong to the release that came after.
        let current = removal.current();
        if current.is_some_and(|current| current.namespace == key.namespace) {
            return Ok(());
        }
        let others = self.store.claimants();
        let (namespace, bundle, unnoted) = (&key.namespace, &entry.bundle, &self.unnoted_copies);
        let removed =
            downstream_resources::remove_all(impersonated, namespace, bundle, &others, unnoted);
        match removed.await {
            // With a copy of its own the entry would have its account.
            Err(failed) if entry.is_left() && error::has_code(&failed, 403) => Ok(()),
            removed => removed
                .map_err(|failed| RemovalError::DownstreamResources(Redacted::unquoted(&failed))),
        }
    }

    /// Forgets a release that is not the bundle's, but for what is left to a bundle that tried to take it. Copies that were made for the
    /// bundle beside it go, and so do the records of attempts that others left to it.
    ///
    /// # Errors
    /// They cannot be deleted, or the ledger not be written.
    pub(super) async fn give_up(
        &self,
        key: &ReleaseKey,
        entry: &LedgerEntry,
        removal: Removal<'_>,
        left_to: Option<&str>,
    ) -> Result<(), RemovalError> {
        if !self.shared_namespaces.keeps(entry) {
            let impersonated = self.identities.account(&entry.account)?;
            self.remove_copies(key, entry, &impersonated, removal)
                .await?;
        }
        if left_to.is_none() {
            self.return_left(key, &entry.bundle).await?;
        }
        let claimant = self.claimant();
        let left_to = |entry: &LedgerEntry| match left_to {
            Some(left_to) => Some(left_to.to_owned()),
            None => claimant(entry),
        };
        let given_up = self.ledger.give_up(key, &entry.bundle, left_to).await;
        given_up.map_err(RemovalError::Ledger)
    }

    /// Leaves what a bundle's attempts brought into a release of somebody else's to the bundle that wants the release next: its first version that
    /// succeeds drops it. Copies that were made for the bundle beside it go.
    ///
    /// # Errors
    /// They cannot be deleted, a record not be ended, or the ledger not be written.
    pub(super) async fn leave_attempts(
        &self,
        key: &ReleaseKey,
        entry: &LedgerEntry,
        attempts: &Attempts,
        removal: Removal<'_>,
        next_owner: &str,
    ) -> Result<(), RemovalError> {
        let impersonated = self.identities.account(&entry.account)?;
        self.remove_copies(key, entry, &impersonated, removal)
            .await?;
        self.end_attempt(key, attempts).await?;
        let (from, theirs) = (&entry.bundle, &attempts.theirs);
        let left = self.ledger.leave_attempts(key, from, next_owner, theirs);
        left.await.map_err(RemovalError::Ledger)
    }

    /// Takes back what a bundle made in a namespace beside releases of its own, and forgets it: what its attempts brought into releases of others,
    /// as far as all records of such a release are known, and its copies, where it has no release there. Nothing where its objects are to stay. Gives
    /// the releases where everything stays, and why.
    ///
    /// # Errors
    /// A release of others is being deployed; something of it cannot be read or deleted, once all else is done; or the ledger cannot be written.
    pub(super) async fn withdraw_claims(
        &self,
        key: &ReleaseKey,
        entry: &LedgerEntry,
        removal: Removal<'_>,
    ) -> Result<Vec<(ReleaseKey, RetainReason)>, RemovalError> {
        let (bundle, namespace) = (&entry.bundle, &key.namespace);
        let (mut left, mut failed) = (Vec::new(), None);
        let claimed = self.ledger.claimed_by(bundle, namespace);
        let withdrawn: Vec<_> = claimed.iter().map(|(release, _)| release.clone()).collect();
        let check = || match removal.current() {
            None if self.ledger.is_unproven(key, bundle) => Err(RemovalError::Aborted(key.clone())),
            None | Some(_) => Ok(()),
        };
        if !self.shared_namespaces.keeps(entry) {
            for (release, account) in claimed {
                check()?;
                match self.withdraw(&release, bundle, &account).await {
                    Ok(true) => {}
                    Ok(false) => {
                        let known = self.ledger.get(&release);
                        let why = RetainReason::of(known.as_ref(), bundle);
                        left.push((release, why));
                    }
                    Err(_) if self.is_gone(namespace).await => {}
                    Err(problem) => problem.keep_first(&mut failed, &release),
                }
            }
            let releases = self.ledger.of_bundle(bundle);
            let mut releases = releases.iter().filter(|(one, _)| !one.is_claims());
            if !releases.any(|(one, _)| one.namespace == *namespace) {
                check()?;
                let impersonated = self.identities.account(&entry.account)?;
                let copies = self.remove_copies(key, entry, &impersonated, removal);
                copies.await?;
            }
        }
        if let Some(failed) = failed {
            return Err(failed);
        }
        check()?;
        let (ledger, current) = (&self.ledger, removal.current());
        let forgotten = ledger.forget_claims(key, bundle, &withdrawn, current);
        forgotten.await.map_err(RemovalError::Ledger)?;
        Ok(left)
    }

    /// Takes back what a bundle's attempts brought into a release of another's, with the account that they were made with. Whether it may.
    async fn withdraw(
        &self,
        key: &ReleaseKey,
        bundle: &str,
        account: &str,
    ) -> Result<bool, RemovalError> {
        let impersonated = self.identities.account(account)?;
        let ReleaseKey { namespace, name } = key;
        let storage = self.records(&impersonated, key, bundle, false);
        match withdraw(impersonated.cluster(), &storage, namespace, name).await {
            Ok(is_proven) => Ok(is_proven),
            // The release's lock may be held for long.
            Err(UninstallError::Locked) => {
                Err(RemovalError::Blocked(BlockedRemoval::until_idle(key)))
            }
            Err(failed) => {
                let records = (&storage, &**name);
                Err(self.uninstall_error(&impersonated, records, &failed).await)
            }
        }
    }

    /// The records of a bundle's releases in the namespace of one. Of a removal nothing is written.
    fn records(
        &self,
        impersonated: &DeploymentClient,
        key: &ReleaseKey,
        bundle: &str,
        keep_resources: bool,
    ) -> Storage {
        let of = records::Bundle {
            name: bundle.to_owned(),
            account: impersonated.account().to_owned(),
            keep_resources,
            deployment: None,
            takes_ownership: false,
            planned: PlannedContainers::default(),
        };
        let (ledger, namespace) = (&self.ledger, &key.namespace);
        records::records(ledger, impersonated, namespace, of, Writes::Deploys)
    }

    /// Forgets a release that is gone.
    ///
    /// # Errors
    /// The ledger cannot be written.
    pub(super) async fn forget(&self, key: &ReleaseKey) -> Result<(), RemovalError> {
        self.ledger.forget(key).await.map_err(RemovalError::Ledger)
    }

    async fn is_gone(&self, namespace: &str) -> bool {
        let namespaces = Api::<Namespace>::all(self.identities.agent().client());
        matches!(
            error::found(namespaces.get_metadata(namespace).await),
            Ok(None)
        )
    }

    /// Whether a release may be wanted by its bundle after all, or that the bundle is gone is no longer proven.
    pub(super) fn may_stay(
        &self,
        key: &ReleaseKey,
        entry: &LedgerEntry,
    ) -> impl Fn() -> bool + Send + Sync + use<> {
        let (store, ledger) = (Arc::clone(&self.store), Arc::clone(&self.ledger));
        let (bundle, key) = (entry.bundle.clone(), key.clone());
        let was_proven = entry.is_removing;
        move || store.may_want(&bundle, &key) || was_proven && ledger.is_unproven(&key, &bundle)
    }

    /// The error of a failed removal, without what the release's records hold.
    async fn uninstall_error(
        &self,
        impersonated: &DeploymentClient,
        records: (&Storage, &str),
        failed: &UninstallError,
    ) -> RemovalError {
        let host = impersonated.cluster().host();
        RemovalError::Uninstall {
            name: records.1.to_owned(),
            source: match failed.quotes_nothing() {
                true => Redacted::unquoted(failed),
                false => Redacted::by_records(failed, records, (host, &self.memory)).await,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::scripted;
    use crate::report::events::Events;
    use crate::report::metrics::Metrics;

    /// Whoever removes releases of the bundles in an empty store and ledger.
    async fn uninstaller() -> Uninstaller {
        let clients = scripted::clients(|_| async { (200, json!({"metadata": {}})) });
        let identities = Arc::new(scripted::identities(&clients));
        let agent = identities.agent();
        let ledger = Arc::new(Ledger::load(&agent, "system").await.unwrap());
        let store = Arc::<Store>::default();
        let events = Events::new(&agent, "system", "host", Metrics::default());
        let events = Arc::new(events);
        Uninstaller {
            system_namespace: "system".to_owned(),
            identities,
            store: Arc::clone(&store),
            ledger: Arc::clone(&ledger),
            shared_namespaces: SharedNamespaces::new(&store, &ledger, &events),
            memory: Memory::new(1 << 20),
            locks: ReleaseLocks::default(),
            unnoted_copies: UnnotedCopies::default(),
        }
    }

    fn web() -> ReleaseKey {
        ReleaseKey {
            namespace: "apps".to_owned(),
            name: "web".to_owned(),
        }
    }

    /// Between its proof and its first object a removal reads records and what they have, and runs hooks.
    #[tokio::test]
    async fn a_removal_takes_nothing_away_once_its_bundle_was_back() {
        let uninstaller = uninstaller().await;
        let ledger = &uninstaller.ledger;
        let entry = LedgerEntry {
            bundle: "a".to_owned(),
            is_removing: true,
            ..LedgerEntry::default()
        };
        ledger.attempt(web(), entry.clone()).await.unwrap();
        let may_stay = uninstaller.may_stay(&web(), &entry);
        assert!(!may_stay());
        ledger.came_back("b");
        assert!(!may_stay());
        ledger.came_back("a");
        assert!(may_stay());
        // Of a release that its bundle left nothing else was proven.
        let left = LedgerEntry {
            is_removing: false,
            ..entry
        };
        assert!(!uninstaller.may_stay(&web(), &left)());
    }

    /// A release is uninstalled, and another bundle with `takeOwnership` begins to deploy over what is left of it.
    #[tokio::test]
    async fn records_another_bundle_writes_during_a_removal_stay_its_own() {
        let uninstaller = uninstaller().await;
        let (store, ledger) = (&uninstaller.store, &uninstaller.ledger);
        let key = web();
        let removed = LedgerEntry {
            bundle: "a".to_owned(),
            ..LedgerEntry::default()
        };
        let begun = removed.noting(1, "one".into()).without(1);
        let begun = begun.noting_claim("b", "tenant", 2, "two".into());
        let given_up = async || {
            let noted = ledger.attempt(key.clone(), begun.clone()).await;
            noted.unwrap();
            let given_up = ledger.give_up(&key, "a", uninstaller.claimant()).await;
            given_up.unwrap();
            ledger.get(&key)
        };
        // A bundle that is gone has nothing there.
        assert_eq!(given_up().await, None);
        let b = serde_json::from_value(json!({"metadata": {"name": "b"}})).unwrap();
        store.applied(b);
        let left = given_up().await.unwrap();
        assert_eq!((left.bundle.as_str(), left.is_attempt), ("b", true));
        assert_eq!(
            (left.account.as_str(), left.digest(2)),
            ("tenant", Some("two"))
        );
    }

    /// Killed after the last record was deleted and before that was noted, the next agent finds none.
    #[test]
    fn records_that_are_gone_are_not_reported_as_foreign() {
        let owned = LedgerEntry {
            bundle: "a".to_owned(),
            ..LedgerEntry::default()
        };
        let claimed = owned.noting(1, "one".into());
        let claimed = claimed.noting_claim("b", "", 2, "two".into());
        let why = |known: &LedgerEntry| RetainReason::of(Some(known), "b");
        assert_eq!(why(&claimed), RetainReason::UnknownRecords);
        assert_eq!(why(&claimed.without(2)), RetainReason::NoRecords);
        assert_eq!(RetainReason::of(None, "b"), RetainReason::NoRecords);
    }
}
