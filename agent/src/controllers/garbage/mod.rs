//! Removing releases whose BundleDeployment is gone: only on proof, and with a brake.
//!
//! Replaces `internal/cmd/agent/deployer/cleanup`, which uninstalls whatever its cache no longer
//! holds. What is proof is decided in [`verdict`]; what is held back is told by [`report`]; release
//! records that only claim to be ours are found by [`unknown`] and never touched.

mod report;
mod unknown;
mod verdict;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{DeleteParams, ListParams, PartialObjectMeta, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt as _};
use release::action::{UninstallError, UninstallSpec, uninstall};
use tokio::sync::Mutex;
use tokio::time::Instant;

pub use report::{REPORT_NAME, Report};
use unknown::{Newest, Search};
pub use verdict::{HoldReason, Verdict};
use verdict::{RemovalFacts, judge};

use super::bundle_deployment::claims;
use super::bundle_deployment::plan::{self, ReleaseId};
use super::queue::{Queue, ReconcileKind};
use super::store::Store;
use crate::api::{AGENT_BUNDLE_PREFIX, BundleDeployment, Cluster, LABEL_BUNDLE_DEPLOYMENT};
use crate::bundle::release_name;
use crate::client::identity::{AgentClient, DeploymentClient, Identities, IdentityError};
use crate::error;
use crate::ledger::records;
use crate::ledger::{
    ContinuityBreak, LEDGER_NAME, Ledger, LedgerEntry, RELEASE_HOLD_ANNOTATION, ReleaseKey,
    UpstreamState,
};
use crate::register::Upstream;
use crate::report::events::{Events, Reason};
use crate::report::metrics::Metrics;

/// A list this young proves as much as a fresh one: ten removals at once share one list.
const LIST_REUSED_FOR: Duration = Duration::from_secs(1);

/// When the first search for unknown releases goes out: live bundles have been entered by then.
const FIRST_SEARCH: Duration = Duration::from_secs(10);

/// A removal that did not work. Retried.
#[derive(Debug, thiserror::Error)]
pub enum RemovalError {
    #[error("cannot list bundledeployments to confirm a deletion")]
    List(#[source] kube::Error),
    #[error("cannot read or write the ledger")]
    Ledger(#[source] kube::Error),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("failed to delete release {name}")]
    Uninstall {
        name: String,
        source: UninstallError,
    },
    #[error("failed to delete copies of upstream resources")]
    Copies(#[source] kube::Error),
}

/// Removes what is proven to be orphaned.
pub struct Collector {
    bundles: Api<BundleDeployment>,
    clusters: Api<Cluster>,
    cluster_name: String,
    server: String,
    namespace: String,
    /// System namespace downstream.
    system_namespace: String,
    identities: Arc<Identities>,
    store: Arc<Store>,
    ledger: Arc<Ledger>,
    queue: Arc<Queue>,
    events: Arc<Events>,
    report: Report,
    search: Search,
    last_list: Mutex<Option<(Instant, Arc<UpstreamList>)>>,
}

/// A fresh, successful list.
struct UpstreamList {
    listed: BTreeSet<String>,
    own_is_listed: bool,
    /// Something that is listed is not being deleted.
    has_live_bundles: bool,
}

/// What a collector works with.
pub struct Context<'a> {
    pub identities: &'a Arc<Identities>,
    pub store: &'a Arc<Store>,
    pub ledger: &'a Arc<Ledger>,
    pub queue: &'a Arc<Queue>,
    pub events: &'a Arc<Events>,
    pub metrics: &'a Metrics,
}

impl Collector {
    /// A collector that confirms deletions upstream.
    pub fn new(upstream: &Upstream, system_namespace: &str, context: Context<'_>) -> Self {
        let agent = context.identities.agent();
        let maps = Api::<ConfigMap>::namespaced(agent.client(), system_namespace);
        Self {
            bundles: Api::namespaced(upstream.client.clone(), &upstream.namespace),
            clusters: Api::namespaced(upstream.client.clone(), &upstream.cluster_namespace),
            cluster_name: upstream.cluster_name.clone(),
            server: upstream.server.clone(),
            namespace: upstream.namespace.clone(),
            system_namespace: system_namespace.to_owned(),
            identities: Arc::clone(context.identities),
            store: Arc::clone(context.store),
            ledger: Arc::clone(context.ledger),
            queue: Arc::clone(context.queue),
            events: Arc::clone(context.events),
            report: Report::new(maps, context.metrics.clone()),
            search: Search::new(&agent, system_namespace),
            last_list: Mutex::default(),
        }
    }

    /// Looks for orphans and unknown releases now and then, at random 1 to 2 intervals, and keeps
    /// the report. Never returns.
    pub async fn run(&self, queue: &Queue, interval: Duration) {
        let looking = async {
            let mut pause = FIRST_SEARCH.min(interval);
            loop {
                tokio::time::sleep(pause).await;
                let lacking = self.search().await;
                for bundle in lacking.into_iter().chain(self.orphans()) {
                    queue.wake(&bundle, ReconcileKind::Full);
                }
                pause = interval.mul_f64(1.0 + rand::random::<f64>());
            }
        };
        tokio::select! {
            () = looking => {}
            () = self.report.run() => {}
        }
    }

    /// Bundles that have releases and are not listed. Meaningful once a list is complete.
    pub fn orphans(&self) -> BTreeSet<String> {
        let mut owners: BTreeSet<_> = self
            .ledger
            .all()
            .into_iter()
            .map(|(_, e)| e.bundle)
            .collect();
        owners.retain(|owner| !self.store.is_listed(owner));
        owners
    }

    /// Whether any release of this bundle is known.
    pub fn has_releases(&self, bundle: &str) -> bool {
        !self.ledger.of_bundle(bundle).is_empty()
    }

    /// The bundle is there: nothing of it is held back or lost, and its wish to keep its objects
    /// is known should it go. A failure to write that down is told by the next deploy.
    pub async fn is_back(&self, bundle: &BundleDeployment) {
        let name = bundle.name();
        if self.report.let_go(name) {
            let text = "the bundledeployment is listed upstream again";
            tracing::info!(bundle = name, "{text}");
            self.events.emit(Reason::RemovalReleased, name, text);
        }
        let keep = bundle.spec.options.keep_resources;
        if let Err(failed) = self.ledger.seen(name, keep).await {
            tracing::warn!(bundle = name, error = %error::text(&failed), "cannot write the ledger");
        }
    }

    /// Lists our namespace and compares upstream with the one seen before. To be called when a
    /// watch has begun anew.
    ///
    /// # Errors
    /// Upstream does not answer, or not with a list.
    pub async fn check_continuity(&self) -> Result<(), RemovalError> {
        let reported = self.reported().await;
        self.list_bundles_with(Instant::now(), reported)
            .await
            .map(drop)
    }

    /// When upstream last took a report of this agent, by its own account; 0 for never. Upstream's rights allow no GET of the Cluster:
    /// a patch that changes nothing is answered with the same.
    async fn reported(&self) -> Option<i64> {
        let nothing = Patch::Merge(serde_json::json!({}));
        let parameters = PatchParams::default();
        let answer = self
            .clusters
            .patch_status(&self.cluster_name, &parameters, &nothing)
            .await;
        match answer {
            Ok(cluster) => Some(
                cluster
                    .status
                    .agent
                    .last_seen
                    .map_or(0, |at| at.0.as_second()),
            ),
            Err(failed) => {
                tracing::debug!(error = %error::text(&failed), "upstream does not tell of reports");
                None
            }
        }
    }

    /// Removes the releases of a bundle that is gone, if that is proven. A list made before it was
    /// missed says nothing about it.
    ///
    /// # Errors
    /// Upstream could not be asked, or a release could not be removed.
    ///
    /// # Cancellation
    /// Safe: a removal that was cut off is continued by the next one.
    pub async fn remove(
        &self,
        bundle: &str,
        missing_since: Instant,
    ) -> Result<Verdict, RemovalError> {
        if self.ledger.of_bundle(bundle).is_empty() {
            self.store.forget_deletion(bundle);
            return Ok(Verdict::Alive);
        }
        let list = self.list_bundles(missing_since).await?;
        // Read after the look, which may have declared it lost.
        let releases = self.ledger.of_bundle(bundle);
        let mut verdict = judge(bundle, self.facts(bundle, &list, &releases));
        let was_released = matches!(verdict, Verdict::Held(_))
            && self
                .ledger
                .is_hold_released()
                .await
                .map_err(RemovalError::Ledger)?;
        if was_released {
            verdict = Verdict::Remove;
        }
        if self.store.is_listed(bundle) {
            verdict = Verdict::Alive;
        }
        match verdict {
            Verdict::Alive => self.store.forget_deletion(bundle),
            Verdict::Wait => {}
            Verdict::Held(doubt) => self.hold(bundle, doubt, releases),
            Verdict::Remove => {
                // The proof does not survive a restart; that it was given does.
                let begun = self.ledger.begin_removal(bundle).await;
                begun.map_err(RemovalError::Ledger)?;
                for (key, entry) in &releases {
                    if !self.hand_over(key, entry).await? {
                        self.remove_release(key, entry, Scope::Bundle).await?;
                    }
                }
                self.store.forget_deletion(bundle);
                let was_held = self.report.let_go(bundle);
                self.events
                    .emit(Reason::Removed, bundle, "the bundledeployment was deleted");
                if (was_released || was_held) && self.report.is_free() && self.orphans().is_empty()
                {
                    let ended = self.ledger.end_release_of_hold().await;
                    ended.map_err(RemovalError::Ledger)?;
                }
            }
        }
        Ok(verdict)
    }

    /// Removes the releases a bundle left behind when its namespace or release name changed.
    ///
    /// # Errors
    /// A release could not be removed.
    pub async fn remove_former(
        &self,
        bundle: &str,
        current: &ReleaseKey,
    ) -> Result<(), RemovalError> {
        for (key, entry) in self.ledger.of_bundle(bundle) {
            if key != *current && !self.hand_over(&key, &entry).await? {
                self.remove_release(&key, &entry, Scope::Former(current))
                    .await?;
            }
        }
        Ok(())
    }

    /// Leaves a release to the bundle that waits for it, if there is one: its next deploy is an upgrade.
    async fn hand_over(&self, key: &ReleaseKey, entry: &LedgerEntry) -> Result<bool, RemovalError> {
        let others = self.store.all();
        let others = others.iter().map(AsRef::as_ref);
        let Some(next_owner) = claims::next_owner(&entry.bundle, key, others) else {
            return Ok(false);
        };
        let ReleaseKey { namespace, name } = key;
        tracing::info!(
            bundle = next_owner,
            release = name,
            namespace,
            "takes over a release"
        );
        let entry = LedgerEntry {
            bundle: next_owner.clone(),
            is_removing: false,
            lost: None,
            ..entry.clone()
        };
        let written = self.ledger.record(key.clone(), entry).await;
        written.map_err(RemovalError::Ledger)?;
        self.queue.wake(&next_owner, ReconcileKind::Full);
        Ok(true)
    }

    fn facts<'l>(
        &self,
        bundle: &str,
        list: &'l UpstreamList,
        releases: &[(ReleaseKey, LedgerEntry)],
    ) -> RemovalFacts<'l> {
        let all = self.ledger.all();
        let orphans = all
            .iter()
            .filter(|(_, entry)| !list.listed.contains(&entry.bundle));
        RemovalFacts {
            listed: &list.listed,
            own_is_listed: list.own_is_listed,
            has_live_bundles: list.has_live_bundles,
            had_own: self.ledger.had_own(),
            seen_deleted: self.store.deleted_since(bundle),
            is_begun: releases.iter().any(|(_, entry)| entry.is_removing),
            lost: releases.iter().find_map(|(_, entry)| entry.lost),
            orphans: orphans.count(),
            releases: all.len(),
        }
    }

    fn hold(&self, bundle: &str, doubt: HoldReason, releases: Vec<(ReleaseKey, LedgerEntry)>) {
        let keys = releases.into_iter().map(|(key, _)| key).collect();
        if !self.report.hold(bundle, doubt, keys) {
            return;
        }
        let namespace = &self.system_namespace;
        let text = format!(
            "not removed: {}. If it is to go, annotate configmap {namespace}/{LEDGER_NAME} with \
             {RELEASE_HOLD_ANNOTATION}=true",
            doubt.text()
        );
        tracing::warn!(bundle, "{text}");
        self.events.emit(Reason::RemovalHeld, bundle, text);
    }

    async fn remove_release(
        &self,
        key: &ReleaseKey,
        entry: &LedgerEntry,
        scope: Scope<'_>,
    ) -> Result<(), RemovalError> {
        let ReleaseKey { namespace, name } = key;
        let keeps = entry.keep_resources
            || self.store.wished_to_keep(&entry.bundle)
            || entry.bundle.starts_with(AGENT_BUNDLE_PREFIX);
        tracing::info!(
            bundle = entry.bundle,
            release = name,
            namespace,
            keeps,
            "removing release"
        );
        let impersonated = self.identities.account(&entry.account)?;
        let failed = |source| RemovalError::Uninstall {
            name: name.clone(),
            source,
        };
        let bundle = records::Bundle {
            name: entry.bundle.clone(),
            account: entry.account.clone(),
            keep_resources: keeps,
        };
        let storage = records::records(&self.ledger, &impersonated, namespace, bundle);
        let mut spec = UninstallSpec::new(name, namespace);
        spec.keep_resources = keeps;
        let done = match uninstall(impersonated.cluster(), &storage, &spec).await {
            Ok(done) => done,
            // An account whose namespace and rights are gone is refused even the look.
            Err(_) if self.is_gone(namespace).await => {
                return self.ledger.forget(key).await.map_err(RemovalError::Ledger);
            }
            Err(source) => return Err(failed(source)),
        };
        if !done.not_owned.is_empty() {
            tracing::info!(release = name, objects = ?done.not_owned, "not this release's, kept");
        }
        let has_copies = match scope {
            Scope::Bundle => true,
            // Copies in the namespace it moved within belong to the current release.
            Scope::Former(current) => current.namespace != *namespace,
        };
        if has_copies && !keeps {
            remove_copies(&impersonated, namespace, &entry.bundle)
                .await
                .map_err(RemovalError::Copies)?;
        }
        self.ledger.forget(key).await.map_err(RemovalError::Ledger)
    }

    async fn is_gone(&self, namespace: &str) -> bool {
        let namespaces = Api::<Namespace>::all(self.identities.agent().client());
        matches!(namespaces.get_metadata_opt(namespace).await, Ok(None))
    }

    async fn list_bundles(&self, not_before: Instant) -> Result<Arc<UpstreamList>, RemovalError> {
        self.list_bundles_with(not_before, None).await
    }

    async fn list_bundles_with(
        &self,
        not_before: Instant,
        reported: Option<i64>,
    ) -> Result<Arc<UpstreamList>, RemovalError> {
        // One at a time, so that lists are compared in the order they were made.
        let mut last = self.last_list.lock().await;
        if let Some((at, list)) = &*last
            && at.elapsed() < LIST_REUSED_FOR
            && *at >= not_before
        {
            return Ok(Arc::clone(list));
        }
        let (at, floor) = (Instant::now(), self.ledger.seen_version());
        let listed = match self.bundles.list_metadata(&ListParams::default()).await {
            Ok(listed) => listed,
            Err(failed) => {
                if [401, 403, 404]
                    .iter()
                    .any(|code| error::has_code(&failed, *code))
                {
                    // What was seen then may have been the namespace or the type going.
                    self.store.forget_deletions();
                }
                return Err(RemovalError::List(failed));
            }
        };
        let version = listed.metadata.resource_version.as_deref();
        let version = version
            .and_then(|text| text.parse().ok())
            .unwrap_or_default();
        let own_is_listed = listed.items.iter().any(|item| {
            item.name_any().starts_with(AGENT_BUNDLE_PREFIX)
                && item.metadata.deletion_timestamp.is_none()
        });
        let is_alive = |item: &PartialObjectMeta<_>| item.metadata.deletion_timestamp.is_none();
        let has_live_bundles = listed.items.iter().any(is_alive);
        let listed: BTreeSet<_> = listed
            .items
            .into_iter()
            .filter_map(|item| item.metadata.name)
            .collect();
        let origin = UpstreamState {
            server: self.server.clone(),
            namespace: self.namespace.clone(),
            version,
            has_own: own_is_listed,
            reported,
        };
        let found = self.ledger.check_continuity(origin, floor, &listed).await;
        if let Some(found) = found.map_err(RemovalError::Ledger)? {
            let text = match found {
                ContinuityBreak::Elsewhere => "upstream is another one than before",
                ContinuityBreak::Restored => "upstream was restored from a backup",
            };
            tracing::warn!(
                server = self.server,
                "{text}: what it does not list now is kept"
            );
            self.events.emit_for_agent(
                Reason::UpstreamRestored,
                format!("{text}: releases whose bundledeployment it does not list are kept"),
            );
        }
        let list = Arc::new(UpstreamList {
            listed,
            own_is_listed,
            has_live_bundles,
        });
        *last = Some((at, Arc::clone(&list)));
        Ok(list)
    }

    /// Looks at the cluster's release records: tells of those that name this agent and that neither the
    /// ledger nor a live bundle vouches for, and gives back the bundles whose record is gone.
    async fn search(&self) -> Vec<String> {
        let agent = self.identities.agent();
        // Asked before: what is deployed meanwhile is not missed.
        let deployed = self.deployed();
        let newest = match self.search.newest().await {
            Ok(newest) => newest,
            Err(failed) => {
                tracing::warn!(error = %error::text(&failed), "cannot look for releases");
                return Vec::new();
            }
        };
        let is_there = |key: &ReleaseKey, revision: i64| {
            newest
                .get(key)
                .is_some_and(|record| record.revision >= revision)
        };
        let lacking = deployed
            .into_iter()
            .filter(|(_, key, revision)| !is_there(key, *revision))
            .map(|(bundle, ..)| bundle)
            .collect();
        self.tell_unknown(&agent, newest).await;
        lacking
    }

    /// What the bundles have deployed: their names, and release and revision by their statuses.
    fn deployed(&self) -> Vec<(String, ReleaseKey, i64)> {
        let release = |bundle: Arc<BundleDeployment>| {
            let id = ReleaseId::parse(&bundle.status.release)?;
            let key = ReleaseKey {
                namespace: id.namespace,
                name: id.name,
            };
            Some((bundle.name().to_owned(), key, id.revision))
        };
        self.store.all().into_iter().filter_map(release).collect()
    }

    async fn tell_unknown(&self, agent: &AgentClient, newest: Newest) {
        let mut unknown = match self.search.unknown(agent, &self.ledger, newest).await {
            Ok(unknown) => unknown,
            Err(failed) => {
                tracing::warn!(error = %error::text(&failed), "cannot look for unknown releases");
                return;
            }
        };
        unknown.retain(|one| !self.is_expected(&one.bundle, &one.key));
        for one in self.report.unknown(unknown) {
            let ReleaseKey { namespace, name } = &one.key;
            tracing::warn!(
                release = name,
                namespace,
                bundle = one.bundle,
                "a release that the ledger does not know is left alone"
            );
            self.events.emit(
                Reason::UnknownRelease,
                &one.bundle,
                format!("release {namespace}/{name} names this bundle, but the ledger does not know it: left alone"),
            );
        }
    }

    /// Whether a live bundle is about to enter this release.
    fn is_expected(&self, bundle: &str, key: &ReleaseKey) -> bool {
        self.store.get(bundle).is_some_and(|bundle| {
            let options = &bundle.spec.options;
            options.release_namespace() == key.namespace
                && release_name(bundle.name(), options) == key.name
                && plan::suspend_reason(&bundle.spec).is_none()
        })
    }
}

/// Why a release is removed.
#[derive(Clone, Copy)]
enum Scope<'a> {
    /// Its bundle is gone.
    Bundle,
    /// Its bundle has this one now.
    Former(&'a ReleaseKey),
}

/// Deletes the copies made for a bundle in a namespace, with the account that made them.
async fn remove_copies(
    impersonated: &DeploymentClient,
    namespace: &str,
    bundle: &str,
) -> kube::Result<()> {
    let client = impersonated.client();
    remove_labelled::<Secret>(&Api::namespaced(client.clone(), namespace), bundle).await?;
    remove_labelled::<ConfigMap>(&Api::namespaced(client, namespace), bundle).await
}

async fn remove_labelled<K>(api: &Api<K>, bundle: &str) -> kube::Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let ours = ListParams::default().labels(&format!("{LABEL_BUNDLE_DEPLOYMENT}={bundle}"));
    let copies = match api.list_metadata(&ours).await {
        Ok(copies) => copies,
        Err(failed) if error::has_code(&failed, 403) => {
            let error = error::text(&failed);
            tracing::warn!(
                bundle,
                error,
                "may not look for copies, leaving any there are"
            );
            return Ok(());
        }
        Err(failed) => return Err(failed),
    };
    for copy in copies {
        let name = copy.metadata.name.as_deref().unwrap_or_default();
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: copy.metadata.uid.clone(),
                ..Default::default()
            }),
            ..DeleteParams::background()
        };
        match api.delete(name, &parameters).await {
            // Gone, or another one by now.
            Err(failed) if error::has_code(&failed, 404) || error::has_code(&failed, 409) => {}
            result => drop(result?),
        }
    }
    Ok(())
}
