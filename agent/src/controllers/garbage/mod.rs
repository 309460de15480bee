//! Removing releases whose BundleDeployment is gone: only on proof, and with a brake.
//!
//! Replaces `internal/cmd/agent/deployer/cleanup`, which uninstalls whatever its cache no longer
//! holds. [`upstream_list`] asks upstream, [`verdict`] decides what is proof, [`uninstall`] removes; what is held back is in
//! the [`report`]; release records that only claim to be ours are found by [`unknown`] and never touched.

mod report;
mod uninstall;
mod unknown;
mod upstream_list;
mod verdict;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use tokio::time::Instant;

pub use report::{REPORT_NAME, Report};
use uninstall::{Removal, Uninstaller};
use unknown::{Newest, Search};
use upstream_list::{Lister, UpstreamList};
pub use verdict::{HoldReason, Verdict};
use verdict::{RemovalFacts, judge};

use super::bundle_deployment::claims::{self, ReleaseId};
use super::bundle_deployment::plan;
use super::queue::{Queue, ReconcileKind};
use super::store::Store;
use crate::api::BundleDeployment;
use crate::client::identity::{AgentClient, Identities, IdentityError};
use crate::error;
use crate::ledger::{LEDGER_NAME, Ledger, LedgerEntry, RELEASE_HOLD_ANNOTATION, ReleaseKey};
use crate::register::Upstream;
use crate::report::events::{Events, Reason};
use crate::report::metrics::Metrics;
use crate::report::redact::Redacted;

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
    Uninstall { name: String, source: Redacted },
    #[error("failed to delete copies of upstream resources")]
    DownstreamResources(#[source] kube::Error),
}

/// Removes what is proven to be orphaned.
///
/// # Expected flow
/// [`Collector::remove`] for each bundle that is missed, again and again until the verdict is final; [`Collector::is_back`] for each that
/// is there; [`Collector::check_continuity`] when a watch has begun anew. [`Collector::run`] beside it finds what no event tells of.
///
/// # Guarantees
/// A release is removed only after a fresh list without its bundle and a second proof, or because an operator let it. What the
/// ledger does not know, or knows for another bundle, is not touched. A removal that was begun is finished, by the next process if need be.
///
/// # Cancellation
/// Safe at any point: that a removal was proven is written before it begins, and each step may be repeated.
pub struct Collector {
    /// System namespace downstream.
    system_namespace: String,
    identities: Arc<Identities>,
    store: Arc<Store>,
    ledger: Arc<Ledger>,
    queue: Arc<Queue>,
    events: Arc<Events>,
    lister: Lister,
    uninstaller: Uninstaller,
    report: Report,
    search: Search,
}

/// What a collector works with.
pub struct CollectorContext<'a> {
    pub identities: &'a Arc<Identities>,
    pub store: &'a Arc<Store>,
    pub ledger: &'a Arc<Ledger>,
    pub queue: &'a Arc<Queue>,
    pub events: &'a Arc<Events>,
    pub metrics: &'a Metrics,
}

impl Collector {
    /// A collector that confirms deletions upstream.
    pub fn new(upstream: &Upstream, system_namespace: &str, context: CollectorContext<'_>) -> Self {
        let agent = context.identities.agent();
        let maps = Api::<ConfigMap>::namespaced(agent.client(), system_namespace);
        let CollectorContext {
            identities,
            store,
            ledger,
            queue,
            events,
            metrics,
        } = context;
        Self {
            system_namespace: system_namespace.to_owned(),
            identities: Arc::clone(identities),
            store: Arc::clone(store),
            ledger: Arc::clone(ledger),
            queue: Arc::clone(queue),
            events: Arc::clone(events),
            lister: Lister::new(upstream, store, ledger, events),
            uninstaller: Uninstaller {
                identities: Arc::clone(identities),
                store: Arc::clone(store),
                ledger: Arc::clone(ledger),
            },
            report: Report::new(maps, metrics.clone()),
            search: Search::new(&agent, system_namespace),
        }
    }

    /// Searches for orphans, lost records and unknown releases now and then, at random 1 to 2 intervals, and
    /// keeps the report. Never returns.
    pub async fn run(&self, queue: &Queue, interval: Duration) {
        let searching = async {
            let mut pause = FIRST_SEARCH.min(interval);
            loop {
                tokio::time::sleep(pause).await;
                let lost_records = self.search().await;
                for bundle in lost_records.into_iter().chain(self.orphans()) {
                    queue.wake(&bundle, ReconcileKind::Full);
                }
                pause = interval.mul_f64(1.0 + rand::random::<f64>());
            }
        };
        tokio::select! {
            biased;
            () = searching => {}
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

    /// The bundle is there: nothing of it is held back or lost, and whether its objects are to
    /// be kept is known should it go. Where that cannot be written, the next deploy fails and says so.
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

    /// Lists our BundleDeployments and compares upstream with the one seen before. To be called when a
    /// watch has begun anew.
    ///
    /// # Errors
    /// Upstream does not answer, or not with a list.
    pub async fn check_continuity(&self) -> Result<(), RemovalError> {
        self.lister.check_continuity().await
    }

    /// Removes the releases of a bundle that is gone, if that is proven. `missing_since` is when it was first missed:
    /// an older list proves nothing.
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
        let list = self.lister.list(missing_since).await?;
        // Read after the list, which may have declared it lost.
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
            Verdict::Held(reason) => self.hold(bundle, reason, releases),
            Verdict::Remove => {
                // The proof does not survive a restart; that it was given does.
                let begun = self.ledger.begin_removal(bundle).await;
                begun.map_err(RemovalError::Ledger)?;
                for (key, entry) in &releases {
                    if !self.hand_over(key, entry).await? {
                        self.uninstaller
                            .uninstall(key, entry, Removal::OfBundle)
                            .await?;
                    }
                }
                self.store.forget_deletion(bundle);
                let was_held = self.report.let_go(bundle);
                self.events
                    .emit(Reason::Removed, bundle, "the bundledeployment was deleted");
                if (was_released || was_held)
                    && self.report.holds_nothing()
                    && self.orphans().is_empty()
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
                self.uninstaller
                    .uninstall(&key, &entry, Removal::Superseded(current))
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

    fn hold(&self, bundle: &str, reason: HoldReason, releases: Vec<(ReleaseKey, LedgerEntry)>) {
        let keys = releases.into_iter().map(|(key, _)| key).collect();
        if !self.report.hold(bundle, reason, keys) {
            return;
        }
        let namespace = &self.system_namespace;
        let text = format!(
            "not removed: {}. If it is to go, annotate configmap {namespace}/{LEDGER_NAME} with \
             {RELEASE_HOLD_ANNOTATION}=true",
            reason.text()
        );
        tracing::warn!(bundle, "{text}");
        self.events.emit(Reason::RemovalHeld, bundle, text);
    }

    /// Lists the cluster's release records. Reports those that name this agent and that neither the ledger nor a
    /// live bundle knows, and gives back the bundles whose record somebody deleted.
    async fn search(&self) -> Vec<String> {
        let agent = self.identities.agent();
        // Before the list: a release that is deployed while it is made would count as missing from it.
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
        let lost_records = deployed
            .into_iter()
            .filter(|(_, key, revision)| !is_there(key, *revision))
            .map(|(bundle, ..)| bundle)
            .collect();
        self.report_unknown(&agent, newest).await;
        lost_records
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

    async fn report_unknown(&self, agent: &AgentClient, newest: Newest) {
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
            claims::desired(&bundle) == *key && plan::suspend_reason(&bundle.spec).is_none()
        })
    }
}
