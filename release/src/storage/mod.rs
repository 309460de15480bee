//! Where release records live: one object per revision, as Helm's drivers write them.
//!
//! [`Storage`] is bound to one namespace, as Helm's drivers are. A [`Driver`] knows five operations;
//! [`KubernetesDriver`] keeps records in Secrets. Records are found by listing *metadata*
//! and read one by one by name: nothing here ever lists the payload of more than one release.
//!
//! Mirrors `pkg/storage` and `pkg/storage/driver`.

mod decode;
mod digest;
mod encoding;
mod kubernetes;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use jiff::Timestamp;

pub use crate::deletable::Deletable;
pub use crate::history::{Prunable, deployed, last, prunable, prunable_for_failure};
pub use crate::record::{Provenance, RecordId, RecordUid, StoredRelease, StoredRevision};
pub use digest::{DigestStore, KnownDigest, digest};
pub use encoding::{MAX_PAYLOAD_BYTES, RecordError, decode, encode, encode_within, to_json};
pub use kubernetes::{
    KubernetesDriver, SYSTEM_LABELS, is_system_label, system_labels, user_labels,
};

use crate::error::BoxError;
use crate::kube::ApiError;
use crate::model::Release;

/// What the names of storage objects begin with.
pub const STORAGE_TYPE: &str = "sh.helm.release.v1";

/// The name of the object that stores one revision.
pub fn key(name: &str, revision: i64) -> String {
    format!("{STORAGE_TYPE}.{name}.v{revision}")
}

/// A storage operation failed. The texts are Helm's where Helm has one; a key is the name of a storage object.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// There is no such record.
    #[error("release: not found")]
    NotFound,
    /// Somebody else wrote this revision first.
    #[error("release: already exists")]
    Exists,
    /// The record is another object than the one that was to be changed or deleted: that is gone, and somebody has made this one.
    #[error("release: already exists: somebody has replaced the record {key:?}")]
    Replaced { key: String },
    /// Somebody wrote a record of the release, or restored one, after the operation had read its history.
    #[error("the history of the release changed during the operation: {key:?} is new")]
    HistoryChanged { key: String },
    /// The record's payload cannot be read.
    #[error("get: failed to decode data {key:?}")]
    Decode { key: String, source: RecordError },
    /// The record is not the one that was written, or nobody knows that it was.
    #[error("the record {key:?} is not one that was written here")]
    Unproven { key: String },
    /// The digest of the record could not be stored, so the record was not written.
    #[error("create: failed to store the digest of {key:?}")]
    DigestNotStored { key: String, source: BoxError },
    /// It is not known whether the digests are those that are stored, so no record was deleted for another one.
    #[error("failed to confirm the digests of records")]
    DigestsUnconfirmed(#[source] BoxError),
    /// The record cannot be written down.
    #[error("create: failed to encode release {name:?}")]
    Encode { name: String, source: RecordError },
    /// A name cannot be a label's value.
    #[error("invalid label value: {value:?}: {problem}")]
    Label {
        value: String,
        /// The API server's rule that it breaks.
        problem: String,
    },
    /// The namespace of the record is missing.
    #[error("create: failed to create: namespaces {namespace:?} not found")]
    NoNamespace { namespace: String },
    /// The API server refused.
    #[error("{verb}: failed to {verb}")]
    Api {
        /// `create`, `update`, `get`, `list` or `delete`.
        verb: &'static str,
        source: ApiError,
    },
}

impl StorageError {
    /// Whether the error says that nothing was written, and that the caller does not create what is missing.
    fn is_refusal(&self) -> bool {
        match self {
            Self::Exists | Self::Encode { .. } | Self::Label { .. } => true,
            Self::Api { source, .. } => {
                source.code().is_some_and(|code| (400..500).contains(&code))
            }
            Self::NotFound
            | Self::Replaced { .. }
            | Self::HistoryChanged { .. }
            | Self::Decode { .. }
            | Self::Unproven { .. }
            | Self::DigestNotStored { .. }
            | Self::DigestsUnconfirmed(_)
            | Self::NoNamespace { .. } => false,
        }
    }

    /// Whether an object is not the one that was meant.
    fn is_conflict(&self) -> bool {
        match self {
            Self::Replaced { .. } => true,
            Self::Api { source, .. } => source.is_conflict(),
            _ => false,
        }
    }

    /// Whether trying again can help without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Api { source, .. } => source.is_retryable(),
            Self::Exists
            | Self::Replaced { .. }
            | Self::HistoryChanged { .. }
            | Self::NoNamespace { .. }
            | Self::DigestNotStored { .. }
            | Self::DigestsUnconfirmed(_) => true,
            Self::NotFound
            | Self::Decode { .. }
            | Self::Unproven { .. }
            | Self::Encode { .. }
            | Self::Label { .. } => false,
        }
    }
}

/// The time that a write stamps on the record's labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    /// `createdAt`.
    Created(Timestamp),
    /// `modifiedAt`.
    Modified(Timestamp),
}

/// The record found under a name.
#[derive(Debug)]
pub struct Found {
    /// The object.
    pub uid: RecordUid,
    /// The release of the record, without its system labels.
    pub release: Result<Release, RecordError>,
}

/// Stores records of one namespace.
///
/// Every future may be dropped at any point: a write happened completely or not at all.
pub trait Driver: Send + Sync + std::fmt::Debug {
    /// The stored revisions of `release`, unordered. No payload is read.
    fn history<'a>(
        &'a self,
        release: &'a str,
    ) -> BoxFuture<'a, Result<Vec<StoredRevision>, StorageError>>;
    /// Reads one record.
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Found, StorageError>>;
    /// Writes a new record; [`StorageError::Exists`] is the lock between two writers.
    fn create<'a>(&'a self, release: &'a Release)
    -> BoxFuture<'a, Result<RecordUid, StorageError>>;
    /// Overwrites a record; a conflict if another object has its name by now, or if it is gone ([`StorageError::NotFound`] is better).
    fn update<'a>(&'a self, stored: &'a StoredRelease) -> BoxFuture<'a, Result<(), StorageError>>;
    /// Deletes a record; [`StorageError::NotFound`] if it is gone already, and a conflict if another object has its name by now.
    fn delete<'a>(
        &'a self,
        key: &'a str,
        uid: &'a RecordUid,
    ) -> BoxFuture<'a, Result<(), StorageError>>;
}

/// The records of one namespace.
#[derive(Debug, Clone)]
pub struct Storage {
    driver: Arc<dyn Driver>,
    digests: Option<Arc<dyn DigestStore>>,
}

impl Storage {
    /// Records kept by `driver`.
    pub fn new(driver: impl Driver + 'static) -> Self {
        Self {
            driver: Arc::new(driver),
            digests: None,
        }
    }

    /// Stores a digest of each record that is written, and trusts no record that differs from its own.
    #[must_use]
    pub fn with_digests(self, digests: Arc<dyn DigestStore>) -> Self {
        Self {
            digests: Some(digests),
            ..self
        }
    }

    /// Records in Secrets of `namespace`, Helm's default.
    pub fn secrets(cluster: &crate::kube::Cluster, namespace: &str) -> Self {
        Self::new(KubernetesDriver::new(cluster.clone(), namespace))
    }

    /// The stored revisions of `release`, oldest first. A record in place of one that was written here has the status `unknown`, whatever it says.
    ///
    /// # Errors
    /// The API server refused, or `release` cannot be a label value.
    pub async fn history(&self, release: &str) -> Result<Vec<StoredRevision>, StorageError> {
        if let Some(problem) = golib::validation::API_SERVER.invalid_label_value(release) {
            return Err(StorageError::Label {
                value: release.to_owned(),
                problem,
            });
        }
        let mut history = self.driver.history(release).await?;
        history.sort_by_key(|head| head.revision);
        for head in &mut history {
            head.provenance = match self.known_digest(release, head.revision) {
                KnownDigest::Untracked => Provenance::Untracked,
                KnownDigest::Claim(_) | KnownDigest::Gone => Provenance::Reused,
                KnownDigest::Digest(_) => Provenance::Noted,
                KnownDigest::Unknown => Provenance::Foreign,
            };
        }
        StoredRevision::retain_counting(&mut history);
        if let Some(digests) = &self.digests {
            let theirs = history
                .iter()
                .filter(|head| head.provenance == Provenance::Foreign);
            digests.found(release, theirs.map(|head| head.revision).collect());
        }
        let history = history.into_iter().map(StoredRevision::believed).collect();
        Ok(history)
    }

    /// Reads one revision.
    ///
    /// # Errors
    /// It does not exist, it cannot be decoded, it is not what was written, or the API server refused.
    pub async fn get(&self, release: &str, revision: i64) -> Result<StoredRelease, StorageError> {
        let found = self.get_unverified(release, revision).await?;
        match self.is_another(release, revision, &found) {
            true => Err(StorageError::Unproven {
                key: key(release, revision),
            }),
            false => Ok(found),
        }
    }

    /// Whether `found` is known not to be what was written under this name and revision.
    fn is_another(&self, release: &str, revision: i64, found: &Release) -> bool {
        match self.known_digest(release, revision) {
            KnownDigest::Digest(known) | KnownDigest::Claim(known) => known != digest(found),
            KnownDigest::Gone => true,
            KnownDigest::Unknown | KnownDigest::Untracked => false,
        }
    }

    /// Reads one revision as it is, whoever wrote it.
    ///
    /// # Errors
    /// It does not exist, it cannot be decoded, or the API server refused.
    pub async fn get_unverified(
        &self,
        release: &str,
        revision: i64,
    ) -> Result<StoredRelease, StorageError> {
        let key = key(release, revision);
        let Found { uid, release } = self.driver.get(&key).await?;
        match release {
            Ok(release) => Ok(StoredRelease::new(release, uid)),
            Err(source) => Err(StorageError::Decode { key, source }),
        }
    }

    /// Reads the record that a history shows, whoever wrote it.
    ///
    /// # Errors
    /// It does not exist any more, another object is in its place, it cannot be decoded, or the API server refused.
    pub(crate) async fn get_listed(
        &self,
        release: &str,
        head: &StoredRevision,
    ) -> Result<StoredRelease, StorageError> {
        let found = self.get_unverified(release, head.revision).await?;
        match *found.uid() == head.uid {
            true => Ok(found),
            false => Err(StorageError::Replaced {
                key: key(release, head.revision),
            }),
        }
    }

    /// Whether anything was ever written here under this name, by the digest store.
    pub fn knows(&self, release: &str) -> bool {
        let digests = self.digests.as_ref();
        digests.is_some_and(|digests| digests.knows(release))
    }

    /// Whether a deploy under this name has succeeded here, by the digest store. No record says so: its status
    /// anybody may write.
    pub fn was_deployed(&self, release: &str) -> bool {
        let digests = self.digests.as_ref();
        digests.is_some_and(|digests| digests.was_deployed(release))
    }

    /// Whether the release is still theirs who asks, by the digest store: while they waited, another one of those
    /// that share them may have taken it.
    pub(crate) fn has(&self, release: &str) -> bool {
        let digests = self.digests.as_ref();
        digests.is_none_or(|digests| digests.has(release))
    }

    /// Forgets the digests of what whoever asks wrote of a release and a `history` of it does not have: a record that was deleted while that
    /// could not be noted. The revisions.
    pub(crate) fn forget_missing(&self, release: &str, history: &[StoredRevision]) -> Vec<i64> {
        let written = self
            .digests
            .iter()
            .flat_map(|digests| digests.written(release));
        let is_there = |revision: i64| history.iter().any(|head| head.revision == revision);
        let missing: Vec<i64> = written.filter(|revision| !is_there(*revision)).collect();
        for revision in &missing {
            self.forget_digest(release, *revision);
        }
        missing
    }

    /// The digests of all that others of those that share the digests wrote of a release, by revision. `None` where not everything that lies
    /// there is known to be written by one of them.
    pub(crate) fn written_by_others(&self, release: &str) -> Option<Vec<(i64, String)>> {
        self.digests.as_ref()?.written_by_others(release)
    }

    /// Whether `release` is known to be what was written under this name and revision, so that its
    /// objects may be applied and its hooks be run.
    pub fn proves(&self, name: &str, revision: i64, release: &Release) -> bool {
        match self.known_digest(name, revision) {
            KnownDigest::Untracked => true,
            KnownDigest::Unknown | KnownDigest::Claim(_) | KnownDigest::Gone => false,
            KnownDigest::Digest(known) => known == digest(release),
        }
    }

    /// Whether `release` is known to be what was written here under this name and revision, by whichever of those that share the digests:
    /// what it brought may be taken back.
    pub fn recognises(&self, name: &str, revision: i64, release: &Release) -> bool {
        match self.known_digest(name, revision) {
            KnownDigest::Claim(known) => known == digest(release),
            _ => self.proves(name, revision, release),
        }
    }

    /// Stores the digest of a revision, as [`Self::create`] does: for a record of somebody else that
    /// has the desired content, and before an update that changes the content.
    ///
    /// # Errors
    /// It cannot.
    pub async fn store_digest(&self, release: &Release) -> Result<(), StorageError> {
        let Some(digests) = &self.digests else {
            return Ok(());
        };
        let stored = digests.store(&release.name, release.revision, digest(release));
        stored
            .await
            .map_err(|source| StorageError::DigestNotStored {
                key: key(&release.name, release.revision),
                source,
            })
    }

    /// Makes sure that the digest store is what is known of it, before records go to make room for another one.
    ///
    /// # Errors
    /// It is not, as after a restore of the cluster, or cannot be read.
    pub(crate) async fn confirm_digests(&self) -> Result<(), StorageError> {
        let Some(digests) = &self.digests else {
            return Ok(());
        };
        let confirmed = digests.confirm().await;
        confirmed.map_err(StorageError::DigestsUnconfirmed)
    }

    /// The digest known of a revision, from the digest store.
    pub(crate) fn known_digest(&self, release: &str, revision: i64) -> KnownDigest {
        match &self.digests {
            Some(digests) => digests.known(release, revision),
            None => KnownDigest::Untracked,
        }
    }

    fn forget_digest(&self, release: &str, revision: i64) {
        if let Some(digests) = &self.digests {
            digests.forget(release, revision);
        }
    }

    /// Writes a new revision. The object that it gives is what it takes to write it again, or to delete it.
    ///
    /// # Errors
    /// It exists already, it is too large, or the API server refused.
    pub async fn create(&self, release: &Release) -> Result<RecordUid, StorageError> {
        if let Err(unstored) = self.store_digest(release).await {
            // The digest may be written with another entry yet.
            self.withdraw_digest(release);
            return Err(unstored);
        }
        let created = self.driver.create(release).await;
        match &created {
            Ok(_) => self.is_written(release),
            Err(failed) if failed.is_refusal() => self.withdraw_digest(release),
            Err(_) => {}
        }
        created
    }

    fn is_written(&self, release: &Release) {
        if let Some(digests) = &self.digests {
            digests.is_written(&release.name, release.revision);
        }
    }

    /// Takes back the digest of a revision that is not written after all: its number is whoever's writes it first.
    pub fn withdraw_digest(&self, release: &Release) {
        if let Some(digests) = &self.digests {
            digests.withdraw(&release.name, release.revision);
        }
    }

    /// Puts a record right that is there though the history does not show it, because its labels were
    /// damaged: one that can be read gets its labels back, any other gives way to `release`.
    ///
    /// # Errors
    /// [`StorageError::Exists`] if there is one by now that is not to be overwritten; the history
    /// shows it. Else as [`Self::create`].
    pub async fn repair(&self, release: &Release) -> Result<RecordUid, StorageError> {
        let is_shown = |head: &StoredRevision| head.revision == release.revision;
        if self.history(&release.name).await?.iter().any(is_shown) {
            return Err(StorageError::Exists);
        }
        let (name, revision) = (&release.name, release.revision);
        let found = match self.driver.get(&key(name, revision)).await {
            Err(StorageError::NotFound) => return Err(StorageError::Exists),
            other => other?,
        };
        match found.release {
            Ok(readable) if !self.is_another(name, revision, &readable) => {
                let readable = StoredRelease::new(readable, found.uid);
                self.update(&readable).await?;
                Err(StorageError::Exists)
            }
            _ => {
                self.delete_object(name, revision, &found.uid).await?;
                self.create(release).await
            }
        }
    }

    /// Overwrites a revision, in the object that holds it. Of a record with other contents than were written, [`Self::store_digest`] first.
    ///
    /// # Errors
    /// It does not exist, another object is in its place, it is too large, or the API server refused.
    pub async fn update(&self, stored: &StoredRelease) -> Result<(), StorageError> {
        let refused = match self.driver.update(stored).await {
            Err(refused) if refused.is_conflict() => refused,
            Ok(()) => {
                self.is_written(stored);
                return Ok(());
            }
            other => return other,
        };
        let key = key(&stored.name, stored.revision);
        match self.driver.get(&key).await {
            // Until Kubernetes 1.34 an API server says so of one that is gone, too.
            Err(StorageError::NotFound) => Err(StorageError::NotFound),
            Ok(found) if found.uid == *stored.uid() => Err(refused),
            Err(StorageError::Api { .. }) => Err(refused),
            _ => Err(StorageError::Replaced { key }),
        }
    }

    /// The right to delete a record that was read, if it is known to be what was written here, by whichever of those that share the
    /// digests.
    pub fn deletable(
        &self,
        name: &str,
        revision: i64,
        release: &StoredRelease,
    ) -> Option<Deletable> {
        let is_known = self.recognises(name, revision, release);
        is_known.then(|| Deletable::recognised(release.id()))
    }

    /// Deletes a revision; one that is gone already is fine.
    ///
    /// # Errors
    /// Another object is in its place, or the API server refused.
    pub async fn delete(&self, release: &str, record: &Deletable) -> Result<(), StorageError> {
        self.delete_object(release, record.revision(), record.uid())
            .await
    }

    async fn delete_object(
        &self,
        release: &str,
        revision: i64,
        uid: &RecordUid,
    ) -> Result<(), StorageError> {
        let key = key(release, revision);
        let gone = match self.driver.delete(&key, uid).await {
            Err(StorageError::NotFound) => Ok(()),
            Err(refused) if refused.is_conflict() => Err(StorageError::Replaced { key }),
            other => other,
        };
        if gone.is_ok() {
            self.forget_digest(release, revision);
        }
        gone
    }
}

/// All labels of the object that stores `release`: user labels, then Helm's own over them.
pub fn record_labels(release: &Release, stamp: Stamp) -> BTreeMap<String, String> {
    let mut labels = release.labels.clone();
    labels.extend(system_labels(
        &release.name,
        release.revision,
        &release.status(),
    ));
    let (label, at) = match stamp {
        Stamp::Created(at) => ("createdAt", at),
        Stamp::Modified(at) => ("modifiedAt", at),
    };
    labels.insert(label.to_owned(), at.as_second().to_string());
    labels
}
