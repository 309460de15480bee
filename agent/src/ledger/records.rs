//! Release records of a bundle, whose digests the ledger keeps.
//!
//! Records lie where a tenant may write. The ledger does not, and remembers by digest what was
//! written: a record that differs is not applied from, but adopted anew from the wanted chart as one
//! that vanished is.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use release::BoxError;
use release::action::KnownRecords;
use release::storage::{DigestStore, KnownDigest, Storage, StorageError};

use super::notes::Note;
use crate::client::identity::DeploymentClient;
use crate::ledger::proof::{
    OwnedRecords, RecordOwner, is_settled, of_others, owned_records, shows_deployed,
};
use crate::ledger::{DeploymentDigest, Ledger, LedgerEntry, Notes, PlannedContainers, ReleaseKey};

/// The bundle whose records are read and written.
#[derive(Clone)]
pub struct Bundle {
    pub name: String,
    /// Account it is deployed with; empty for the agent's own.
    pub account: String,
    /// Whether its spec wishes that its objects outlive it.
    pub keep_resources: bool,
    /// The ID of what its deploys deploy; nothing where none is one.
    pub deployment: Option<DeploymentDigest>,
    /// Whether the bundle's deploys take over objects that others have.
    pub takes_ownership: bool,
    /// What the objects are in that its deploy is about to write.
    pub planned: PlannedContainers,
}

/// The kind of records that are written of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// Revisions of deploys.
    Deploys,
    /// Revisions that record failed corrections: none of them is a deploy.
    FailedCorrections,
}

/// The records of a bundle's releases in a namespace. Before a new one is written the ledger knows
/// whose it is and its digest.
pub fn records(
    ledger: &Arc<Ledger>,
    impersonated: &DeploymentClient,
    namespace: &str,
    bundle: Bundle,
    writes: Writes,
) -> Storage {
    impersonated
        .records(namespace)
        .with_digests(Arc::new(LedgerDigests {
            ledger: Arc::clone(ledger),
            namespace: namespace.to_owned(),
            bundle,
            writes,
            replaced: Mutex::default(),
            theirs: Mutex::default(),
        }))
}

/// What the records of a release show.
#[derive(Debug)]
pub struct ReleaseRecords {
    /// The records that belong to the bundle the ledger has the release for.
    pub owned: OwnedRecords,
    /// Whether none of these was ever deployed.
    pub is_attempt: bool,
    /// All that there were, whoever wrote them.
    pub known: KnownRecords,
    /// The revisions that are of no bundle here, of those that were read.
    pub others: Vec<i64>,
}

/// Reads whose the records of a release are.
///
/// # Errors
/// They cannot be read; of damaged ones only if all are.
pub async fn read(
    storage: &Storage,
    name: &str,
    entry: &LedgerEntry,
    system_namespace: &str,
) -> Result<ReleaseRecords, StorageError> {
    let history = storage.history(name).await?;
    let mut is_attempt = entry.is_attempt;
    let mut records = Vec::new();
    let mut damage = None;
    for revision in history.iter().rev().map(|head| head.revision) {
        let owner = match storage.get_unverified(name, revision).await {
            Ok(record) => {
                let owner = RecordOwner::of(&record, revision, entry, system_namespace);
                is_attempt &= !shows_deployed(owner, &record);
                owner
            }
            Err(StorageError::NotFound) => continue,
            Err(failed @ StorageError::Decode { .. }) => {
                damage.get_or_insert(failed);
                RecordOwner::Unreadable
            }
            Err(failed) => return Err(failed),
        };
        records.push((revision, owner));
        if !entry.is_attempt && is_settled(&records) {
            // The others change nothing.
            break;
        }
    }
    match (owned_records(entry, &records), damage) {
        (OwnedRecords::Unreadable, Some(damage)) => Err(damage),
        (owned, _) => Ok(ReleaseRecords {
            owned,
            is_attempt,
            known: KnownRecords::of(&history),
            others: of_others(&records),
        }),
    }
}

struct LedgerDigests {
    ledger: Arc<Ledger>,
    namespace: String,
    bundle: Bundle,
    writes: Writes,
    /// Notes replaced by those of records that are not written yet, by release and revision.
    replaced: Mutex<HashMap<(String, i64), Option<Note>>>,
    /// Revisions that somebody else wrote, by release, as the history showed them last.
    theirs: Mutex<HashMap<String, Vec<i64>>>,
}

impl std::fmt::Debug for LedgerDigests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LedgerDigests")
            .field("namespace", &self.namespace)
            .field("bundle", &self.bundle.name)
            .finish_non_exhaustive()
    }
}

impl LedgerDigests {
    fn key(&self, release: &str) -> ReleaseKey {
        ReleaseKey {
            namespace: self.namespace.clone(),
            name: release.to_owned(),
        }
    }
}

impl DigestStore for LedgerDigests {
    fn known(&self, release: &str, revision: i64) -> KnownDigest {
        match self.ledger.get(&self.key(release)) {
            None => KnownDigest::Unknown,
            Some(entry) => entry.known_digest(&self.bundle.name, revision),
        }
    }

    fn knows(&self, release: &str) -> bool {
        let known = self.ledger.get(&self.key(release));
        known.is_some_and(|entry| entry.has_revisions())
    }

    fn was_deployed(&self, release: &str) -> bool {
        let known = self.ledger.get(&self.key(release));
        known.is_some_and(|entry| entry.bundle == self.bundle.name && !entry.is_attempt)
    }

    fn has(&self, release: &str) -> bool {
        let known = self.ledger.get(&self.key(release));
        known.is_some_and(|entry| entry.bundle == self.bundle.name)
    }

    fn written(&self, release: &str) -> Vec<i64> {
        let known = self.ledger.get(&self.key(release));
        known.map_or_else(Vec::new, |entry| entry.written_by(&self.bundle.name))
    }

    fn written_by_others(&self, release: &str) -> Option<Vec<(i64, String)>> {
        let entry = self.ledger.get(&self.key(release))?;
        entry.written_by_others(&self.bundle.name)
    }

    fn found(&self, release: &str, theirs: Vec<i64>) {
        self.theirs.lock().insert(release.to_owned(), theirs);
    }

    fn confirm(&self) -> BoxFuture<'_, Result<(), BoxError>> {
        async { Ok(self.ledger.confirm_unreplaced().await?) }.boxed()
    }

    fn store<'a>(
        &'a self,
        release: &'a str,
        revision: i64,
        digest: String,
    ) -> BoxFuture<'a, Result<(), BoxError>> {
        async move {
            let key = self.key(release);
            let Bundle { name, account, .. } = &self.bundle;
            let known = self.ledger.get(&key);
            let before = known.as_ref();
            let before = before.and_then(|entry| entry.note_of(name, revision));
            // An announced, unwritten revision is no former note.
            self.replaced
                .lock()
                .entry((release.to_owned(), revision))
                .or_insert_with(|| before.cloned());
            let theirs = self.theirs.lock().get(release).cloned().unwrap_or_default();
            if let (Writes::Deploys, Some(deployment)) = (self.writes, &self.bundle.deployment) {
                // Written with the revision.
                let mut state = self.ledger.state.lock();
                state.begins(name, &key, deployment, self.bundle.takes_ownership);
            }
            // Objects of revisions before this one are there until it has ended well.
            let planned = self.bundle.planned.get().unwrap_or_default();
            let entry = match known {
                // The deploy's outcome settles the owner.
                Some(known) if known.bundle != *name => {
                    let known = known.noting_theirs(&theirs);
                    let claimed = known.noting_claim(name, account, revision, digest);
                    let claimed = claimed.also_in(&planned);
                    let claimant = LedgerEntry {
                        bundle: name.clone(),
                        account: account.clone(),
                        keep_resources: self.bundle.keep_resources,
                        ..LedgerEntry::default()
                    };
                    return Ok(self.ledger.claim(key, claimed, &claimant).await?);
                }
                Some(known) => LedgerEntry {
                    account: self.bundle.account.clone(),
                    // Until the new spec is deployed, the last one counts too.
                    keep_resources: self.bundle.keep_resources || known.keep_resources,
                    ..known
                },
                None => LedgerEntry {
                    bundle: self.bundle.name.clone(),
                    account: self.bundle.account.clone(),
                    keep_resources: self.bundle.keep_resources,
                    is_attempt: true,
                    revisions: Some(Notes::default()),
                    ..LedgerEntry::default()
                },
            };
            let entry = entry.noting_theirs(&theirs).also_in(&planned);
            let entry = match self.writes {
                // A release left behind stays so until a deploy has written all of it anew.
                Writes::Deploys if entry.is_left_behind() => entry.noting(revision, digest),
                Writes::Deploys => LedgerEntry {
                    deployment: self.bundle.deployment.clone().or(entry.deployment.clone()),
                    ..entry.noting(revision, digest)
                },
                Writes::FailedCorrections => entry.noting_failed_correction(revision, digest),
            };
            Ok(self.ledger.set(key, entry).await?)
        }
        .boxed()
    }

    fn forget(&self, release: &str, revision: i64) {
        let mut state = self.ledger.state.lock();
        state.note(&self.key(release), |entry| entry.without(revision));
    }

    fn is_written(&self, release: &str, revision: i64) {
        self.replaced.lock().remove(&(release.to_owned(), revision));
    }

    fn withdraw(&self, release: &str, revision: i64) {
        let before = self.replaced.lock().remove(&(release.to_owned(), revision));
        let restore =
            |entry: LedgerEntry| entry.restoring(&self.bundle.name, revision, before.flatten());
        self.ledger.state.lock().note(&self.key(release), restore);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Method, Request};
    use kube::client::Body;

    use super::*;
    use crate::client::scripted;
    use crate::ledger::Containers;
    use serde_json::json;

    /// Killed then, it would take upstream's word for what is deployed.
    #[tokio::test]
    async fn a_bundle_that_begins_to_deploy_another_release_marks_its_others_as_left() {
        let writes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&writes);
        let clients = scripted::clients(move |request: Request<Body>| {
            let is_write = request.method() != Method::GET;
            counted.fetch_add(usize::from(is_write), Ordering::Relaxed);
            async { (200, json!({"metadata": {}})) }
        });
        let agent = scripted::identities(&clients).agent();
        let ledger = Arc::new(Ledger::load(&agent, "system").await.unwrap());
        let digests = |id: Option<&str>| LedgerDigests {
            ledger: Arc::clone(&ledger),
            namespace: "apps".to_owned(),
            bundle: Bundle {
                name: "a".to_owned(),
                account: String::new(),
                keep_resources: false,
                deployment: id.map(DeploymentDigest::of),
                takes_ownership: id.is_some_and(|id| id.ends_with("take")),
                planned: PlannedContainers::default(),
            },
            writes: Writes::Deploys,
            replaced: Mutex::default(),
            theirs: Mutex::default(),
        };
        let store = async |id: Option<&str>, release: &str, revision: i64| {
            let digests = digests(id);
            let stored = digests.store(release, revision, format!("{release} {revision}"));
            stored.await.unwrap();
            writes.load(Ordering::Relaxed)
        };
        let left = || {
            let left = ledger.of_bundle("a").into_iter();
            let left = left.filter(|(_, entry)| entry.is_left_behind());
            left.map(|(key, _)| key.name).collect::<Vec<_>>()
        };
        assert_eq!(store(Some("s-1:a"), "web", 1).await, 1);
        store(Some("s-2:a"), "other", 1).await;
        // A deploy without a takeover took no objects.
        assert_eq!(left(), [""; 0]);
        let before = writes.load(Ordering::Relaxed);
        let written = store(Some("s-3:take"), "api", 1).await;
        assert_eq!(
            (left().join(" "), written),
            ("other web".to_owned(), before + 1)
        );
        // What a removal writes of it is no deploy.
        store(None, "web", 1).await;
        assert_eq!(left(), ["other", "web"]);
        // The bundle is about to take back its objects, and may be killed before that, or fail.
        store(Some("s-1:a"), "web", 2).await;
        assert_eq!(left(), ["api", "other", "web"]);
    }

    /// Somebody else's bundle may drop the namespace while this one writes its objects there.
    #[tokio::test]
    async fn a_deploy_that_begins_notes_what_its_objects_will_be_in() {
        let writes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&writes);
        let clients = scripted::clients(move |request: Request<Body>| {
            let is_write = request.method() != Method::GET;
            counted.fetch_add(usize::from(is_write), Ordering::Relaxed);
            async { (200, json!({"metadata": {}})) }
        });
        let agent = scripted::identities(&clients).agent();
        let ledger = Arc::new(Ledger::load(&agent, "system").await.unwrap());
        let containers =
            |names: &[&str]| -> Containers { serde_json::from_value(json!(names)).unwrap() };
        let store = async |bundle: &str, revision: i64, names: &[&str]| {
            let planned = PlannedContainers::default();
            planned.set(containers(names));
            let digests = LedgerDigests {
                ledger: Arc::clone(&ledger),
                namespace: "apps".to_owned(),
                bundle: Bundle {
                    name: bundle.to_owned(),
                    account: String::new(),
                    keep_resources: false,
                    deployment: None,
                    takes_ownership: false,
                    planned,
                },
                writes: Writes::Deploys,
                replaced: Mutex::default(),
                theirs: Mutex::default(),
            };
            let stored = digests.store("web", revision, format!("digest {revision}"));
            stored.await.unwrap();
            writes.load(Ordering::Relaxed)
        };
        let key = ReleaseKey {
            namespace: "apps".to_owned(),
            name: "web".to_owned(),
        };
        let noted = || ledger.get(&key).unwrap().containers;
        // With the write that the revision needs anyway.
        assert_eq!(store("a", 1, &["team"]).await, 1);
        assert_eq!(noted(), containers(&["team"]));
        // Until this one has ended well, what the one before has is there as well; and so is what another bundle tries to make of it.
        store("a", 2, &["cars.x.io"]).await;
        store("b", 3, &["other"]).await;
        assert_eq!(noted(), containers(&["cars.x.io", "other", "team"]));
        // An agent that took the release over sees what it is in.
        let before = writes.load(Ordering::Relaxed);
        for _ in 0..2 {
            let seen = containers(&["seen", "team"]);
            ledger.seen_in(&key, "a", &seen).await.unwrap();
            ledger
                .seen_in(&key, "b", &containers(&["none"]))
                .await
                .unwrap();
        }
        assert_eq!(noted(), containers(&["cars.x.io", "other", "seen", "team"]));
        assert_eq!(writes.load(Ordering::Relaxed), before + 1);
    }

    /// The namespace was missing and is made; meanwhile a helm client wrote the record.
    #[tokio::test]
    async fn a_record_announced_twice_and_never_written_has_no_owner() {
        let clients = scripted::clients(|_| async { (200, json!({"metadata": {}})) });
        let identities = scripted::identities(&clients);
        let ledger = Ledger::load(&identities.agent(), "system").await.unwrap();
        let digests = LedgerDigests {
            ledger: Arc::new(ledger),
            namespace: "apps".to_owned(),
            bundle: Bundle {
                name: "a".to_owned(),
                account: String::new(),
                keep_resources: false,
                deployment: None,
                takes_ownership: false,
                planned: PlannedContainers::default(),
            },
            writes: Writes::Deploys,
            replaced: Mutex::default(),
            theirs: Mutex::default(),
        };
        let store = || digests.store("web", 1, "own".to_owned());
        store().await.unwrap();
        store().await.unwrap();
        assert_eq!(digests.written("web"), [1]);
        digests.withdraw("web", 1);
        assert_eq!(digests.written("web"), [0; 0]);
        // A written record is replaced by a later one.
        store().await.unwrap();
        digests.is_written("web", 1);
        digests.store("web", 1, "other".to_owned()).await.unwrap();
        digests.withdraw("web", 1);
        let known = KnownDigest::Digest("own".to_owned());
        assert_eq!(digests.known("web", 1), known);
    }
}
