//! The release of a bundle as it is in storage, and what the ledger says of it.

use std::collections::BTreeSet;

use chart::source::{Memory, Reservation};
use objects::manifest::{build_stored_names, documents};
use release::kube::Cluster;
use release::model::{Release, Status};
use release::storage::{Storage, StorageError, StoredRelease, StoredRevision};

use super::{ReconcileState, Reconciler};
use crate::api::BundleDeployment;
use crate::bundle::SetId;
use crate::client::identity::{DeploymentClient, Purpose};
use crate::controllers::bundle_deployment::halt::{Cause, Halt};
use crate::controllers::bundle_deployment::observe::{
    FormerObjects, Kept, KindAndName, ObserveError,
};
use crate::controllers::bundle_deployment::outcome::{RedeployReason, ReleaseImport};
use crate::controllers::bundle_deployment::rendering::release_bytes;
use crate::controllers::claims::{self, ReleaseId};
use crate::ledger::records::{self, Writes};
use crate::ledger::{
    Containers, DeploymentDigest, LedgerEntry, Notes, PlannedContainers, Proof, ReleaseKey,
};
use crate::public::PublicText;

/// What the read of a record takes until it is known how large the release is, in bytes: a mebibyte, packed, as it comes and as text. It is
/// unpacked in one go, so by one look at a time. A look at a small release has room beside whatever is waited for.
const RECORD: u64 = 2 << 20;

/// The records of a bundle's releases in a namespace. One that is read here comes with the memory that it takes, and there is no other way to one but
/// what the release crate does with them.
pub(super) struct Records {
    storage: Storage,
    memory: Memory,
}

/// A record that was read, and the reservation that covers it and what is made of it.
pub(super) struct CoveredRelease {
    release: StoredRelease,
    reservation: Reservation,
}

impl CoveredRelease {
    /// The two apart, for whoever keeps the reservation for as long as the release.
    fn into_parts(self) -> (StoredRelease, Reservation) {
        (self.release, self.reservation)
    }
}

impl Records {
    /// For the release crate, whose work has a reservation of its own.
    pub(super) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The stored revisions, of which nothing but metadata is read.
    pub(super) async fn history(&self, name: &str) -> Result<Vec<StoredRevision>, StorageError> {
        self.storage.history(name).await
    }

    /// Reads a record as it was written, under `held`, or under a reservation of its own.
    async fn get(
        &self,
        name: &str,
        revision: i64,
        held: Option<Reservation>,
    ) -> Result<CoveredRelease, StorageError> {
        self.covered(held, self.storage.get(name, revision)).await
    }

    /// Reads a record, whoever wrote it.
    async fn get_unverified(
        &self,
        name: &str,
        revision: i64,
    ) -> Result<CoveredRelease, StorageError> {
        let read = self.storage.get_unverified(name, revision);
        self.covered(None, read).await
    }

    async fn covered(
        &self,
        held: Option<Reservation>,
        read: impl Future<Output = Result<StoredRelease, StorageError>>,
    ) -> Result<CoveredRelease, StorageError> {
        let mut reservation = match held {
            Some(reservation) => reservation,
            None => self.memory.reserve_brief(RECORD).await,
        };
        let release = read.await?;
        cover(&mut reservation, &release).await;
        Ok(CoveredRelease {
            release,
            reservation,
        })
    }

    /// Those of `objects` that are in a revision's manifest. A record that is not there, or not as it was written, has none. Nothing of it is kept: it
    /// may be forged, and as large as one can be.
    ///
    /// # Errors
    /// It cannot be read now.
    pub(super) async fn in_revision(
        &self,
        cluster: &Cluster,
        name: &str,
        revision: i64,
        objects: BTreeSet<KindAndName>,
    ) -> Result<FormerObjects, ObserveError> {
        // Before there is a record in memory.
        let discovery = cluster.discovery().await.map_err(ObserveError::Kinds)?;
        let read = match self.get(name, revision, None).await {
            Ok(read) => read,
            Err(failed) if may_pass(&failed) => return Err(ObserveError::Former(failed)),
            Err(_) => return Ok(FormerObjects::new()),
        };
        // The thread has what it reads and the reservation, also where nobody waits for it any more.
        let found = cluster.host().work(move || {
            let (release, _reservation) = read.into_parts();
            let built = build_stored_names(&release.manifest, &release.namespace, &discovery);
            let built = built.map(|built| built.listed()).unwrap_or_default();
            let mut former = FormerObjects::new();
            for object in built {
                let named = KindAndName::of(&object.key());
                if !objects.contains(&named) {
                    continue;
                }
                // There may be one of this name in several namespaces.
                let kept = former.entry(named).or_insert(Kept::No);
                if release::kube::is_kept(&object.body) {
                    *kept = Kept::Yes;
                }
            }
            former
        });
        Ok(found.await.unwrap_or_default())
    }
}

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
        let held = state.reservation.take();
        let release = match storage.get(&key.name, id.revision, held).await {
            Ok(read) => {
                let (release, reservation) = read.into_parts();
                state.reservation = Some(reservation);
                release
            }
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
        let ReleaseKey { namespace, name } = &id.release;
        let storage = self.records(bundle, &impersonated, namespace, Writes::Deploys);
        match storage.get_unverified(name, id.revision).await {
            Ok(read) => {
                let (release, _reservation) = read.into_parts();
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
                && let Ok(read) = storage.get_unverified(&key.name, revision).await
                && self.named(&state.bundle, &read.release).is_some()
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
    ) -> Records {
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
    ) -> Records {
        let helm = bundle.spec.options.helm.as_ref();
        let of = records::Bundle {
            name: bundle.name().to_owned(),
            account: impersonated.account().to_owned(),
            keep_resources: bundle.spec.options.keep_resources,
            deployment: Some(DeploymentDigest::of(&bundle.spec.deployment_id)),
            takes_ownership: helm.is_some_and(|helm| helm.take_ownership),
            planned,
        };
        let ledger = &self.context.ledger;
        Records {
            storage: records::records(ledger, impersonated, namespace, of, writes),
            memory: self.context.deployer.memory().clone(),
        }
    }

    /// After a deploy that ended well with this revision: what was announced above it and never written, as a deploy was killed then, is no try that is
    /// to be made good at each start.
    pub(super) async fn forget_unwritten(
        &self,
        state: &ReconcileState,
        records: &Records,
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

/// Whether a record may be read the next time without anybody changing anything.
fn may_pass(failed: &StorageError) -> bool {
    match failed {
        StorageError::Api { source, .. } => !source.is_lasting(),
        other => other.is_retryable(),
    }
}

/// Waits until a reservation covers what is made of a release that was read: its objects are read next, and the live ones beside them.
async fn cover(reservation: &mut Reservation, release: &Release) {
    let read = release.size_bytes();
    let bytes = release_bytes(&release.manifest, release.chart.as_deref());
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::client::scripted;

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
        let waits = cover(&mut reservation, &release).now_or_never();
        assert!(waits.is_none());
        assert!(memory.used() >= 49 << 20, "{}", memory.used());
        cover(&mut reservation, &Release::default()).await;
        assert_eq!(memory.used(), 42 << 20);
    }

    /// A record that cannot be read for a moment says nothing of what is left over; one that is not there does.
    #[rstest]
    #[case::overloaded(500, "InternalError", false)]
    #[case::too_many(429, "TooManyRequests", false)]
    #[case::without_a_token(401, "Unauthorized", false)]
    #[case::forbidden(403, "Forbidden", true)]
    #[case::pruned(404, "NotFound", true)]
    #[tokio::test(start_paused = true)]
    async fn a_former_record_that_cannot_be_read_now_is_no_empty_one(
        #[case] code: u16,
        #[case] reason: &'static str,
        #[case] is_empty: bool,
    ) {
        let clients = scripted::clients(move |request: http::Request<kube::client::Body>| {
            let answer = match request.uri().path() {
                "/api" | "/apis" => (
                    200,
                    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": []}),
                ),
                path if path.contains("/secrets/") => (
                    code,
                    json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "details": {"name": "a"}}),
                ),
                _ => (200, json!({})),
            };
            std::future::ready(answer)
        });
        let account = scripted::identities(&clients).account("").unwrap();
        let records = Records {
            storage: Storage::secrets(account.cluster(), "shop"),
            memory: Memory::new(48 << 20).with_reserve(6 << 20),
        };
        let found = records
            .in_revision(account.cluster(), "web", 1, BTreeSet::new())
            .await;
        match is_empty {
            true => assert_eq!(found.unwrap(), FormerObjects::new()),
            false => assert!(matches!(found, Err(ObserveError::Former(_))), "{found:?}"),
        }
    }

    /// One copied label on an object makes a look read the record of the revision before, as large as a tenant could make that.
    #[tokio::test(start_paused = true)]
    async fn former_records_that_many_looks_read_at_once_count_all_the_time() {
        const MONITORS: u64 = 20;
        const SIZE: u64 = 3 << 20;
        let object = |name: &str, policy: &str, filler: &str| {
            let annotations = format!("{{helm.sh/resource-policy: {policy}}}");
            let metadata = format!("{{name: {name}, namespace: shop, annotations: {annotations}}}");
            format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {metadata}\ndata: {{x: \"{filler}\"}}\n---\n"
            )
        };
        let fillers = [
            "x".repeat((SIZE / 2) as usize),
            "y".repeat((SIZE / 2) as usize),
        ];
        let former = Release {
            name: "web".to_owned(),
            namespace: "shop".to_owned(),
            revision: 1,
            manifest: object("left-over", "\"\"", &fillers[0])
                + &object("kept", "keep", &fillers[1]),
            ..Release::default()
        };
        let encoded = release::storage::encode(&former).unwrap();
        let record = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
            "metadata": {"name": "sh.helm.release.v1.web.v1", "namespace": "shop", "uid": "u", "resourceVersion": "7",
                         "labels": {"owner": "helm", "name": "web", "version": "1", "status": "deployed"}},
            "data": {"release": golib::base64::encode(encoded.as_bytes())},
        });
        let served = Arc::new(AtomicU64::new(0));
        let (record, counted) = (Arc::new(record), Arc::clone(&served));
        let clients = scripted::clients(move |request: http::Request<kube::client::Body>| {
            let path = request.uri().path().to_owned();
            let answer = match path.as_str() {
                "/api" => {
                    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": [{
                        "metadata": {}, "versions": [{"version": "v1", "resources": [{
                            "resource": "configmaps", "responseKind": {"group": "", "version": "v1", "kind": "ConfigMap"},
                            "scope": "Namespaced", "singularResource": "configmap", "verbs": ["get", "list", "patch"],
                        }]}],
                    }]})
                }
                "/apis" => {
                    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": []})
                }
                path if path.contains("/secrets/") => {
                    counted.fetch_add(1, Ordering::SeqCst);
                    (*record).clone()
                }
                path => json!({"metadata": {"name": path}}),
            };
            std::future::ready((200, answer))
        });
        let identities = scripted::identities(&clients);
        let account = identities.account("").unwrap();
        let memory = Memory::new(48 << 20).with_reserve(6 << 20);
        // Somebody deploys: what is read waits for room for what is made of it.
        let _others = memory.reserve(42 << 20).await;
        let done = AtomicU64::new(0);
        let monitor = async || {
            let records = Records {
                storage: Storage::secrets(account.cluster(), "shop"),
                memory: memory.clone(),
            };
            let live = ["left-over", "kept", "forged"].map(|name| KindAndName {
                kind: "ConfigMap".to_owned(),
                name: name.to_owned(),
            });
            let found = records
                .in_revision(account.cluster(), "web", 1, live.into())
                .await
                .unwrap();
            done.fetch_add(1, Ordering::SeqCst);
            found
                .into_iter()
                .map(|(one, kept)| (one.name, kept))
                .collect::<Vec<_>>()
        };
        let held = || served.load(Ordering::SeqCst) - done.load(Ordering::SeqCst);
        let mut most = 0;
        // The clock only goes on where nobody is at work.
        let watched = async {
            loop {
                tokio::time::sleep(Duration::from_millis(100)).await;
                most = held().max(most);
                let used = memory.used();
                assert!(used >= (42 << 20) + held() * SIZE, "{used} with {}", held());
            }
        };
        let monitors = futures_util::future::join_all((0..MONITORS).map(|_| monitor()));
        let found = tokio::select! {
            found = monitors => found,
            () = watched => unreachable!(),
        };
        let expected = [("kept", Kept::Yes), ("left-over", Kept::No)]
            .map(|(name, kept)| (name.to_owned(), kept));
        assert!(found.iter().all(|found| *found == expected), "{found:?}");
        assert_eq!((found.len() as u64, memory.used()), (MONITORS, 42 << 20));
        assert!(most >= 2, "{most}");
    }
}
