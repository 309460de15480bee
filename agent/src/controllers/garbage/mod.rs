//! Removing releases whose BundleDeployment is gone: only on proof, and with a brake.
//!
//! Replaces `internal/cmd/agent/deployer/cleanup`, which uninstalls whatever its cache no longer
//! holds. [`upstream_list`] asks upstream, [`verdict`] decides whether a bundle was deleted, [`uninstall`] removes what of its releases is its own;
//! [`disposal`] says what becomes of a release that its bundle has no use for, [`holding`] and [`held`] keep what is held back, and the
//! [`report`] tells of it; release records that only claim to be ours are found by [`search`] and [`unknown`], and never touched.

mod disposal;
mod error;
mod held;
mod holding;
mod report;
mod search;
mod uninstall;
mod unknown;
mod upstream_list;
mod verdict;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use chart::source::Memory;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use tokio::time::Instant;

pub use error::RemovalError;
use held::{CHECK_INTERVAL, CheckSchedule, Held};
pub use report::{REPORT_NAME, Report};
use uninstall::Uninstaller;
use unknown::Search;
use upstream_list::{Lister, UpstreamList};
pub use verdict::{HoldReason, Verdict};
use verdict::{RemovalFacts, judge};

use super::bundle_deployment::claims::ReleaseLocks;
use super::neighbours::Neighbourhood;
use super::queue::{Queue, ReconcileKind};
use super::store::Store;
use crate::client::health::{Health, Side};
use crate::client::identity::Identities;
use crate::ledger::{Hold, Ledger, LedgerEntry, ReleaseKey, is_own};
use crate::public::PublicText;
use crate::register::Upstream;
use crate::report::events::{Events, Reason};
use crate::report::metrics::{Entries, Metrics};

/// When the first search for unknown releases goes out, once all bundles are listed: live bundles have been entered by then.
const FIRST_SEARCH: Duration = Duration::from_secs(10);

/// Deletions belong to those that were held for being too many when they come so many grace times after the last of them.
const WAVE_GRACES: u32 = 6;

/// How soon a removal that waits for others is tried again; their end wakes it.
pub const NEIGHBOURS_RETRY: Duration = Duration::from_secs(20);

/// Removes what is proven to be orphaned.
///
/// # Expected flow
/// [`Collector::remove`] for each bundle that is missed, again and again until the verdict is final; [`Collector::is_back`] for each that
/// is there; [`Collector::check_continuity`] when a watch has begun anew. [`Collector::run`] beside it finds what no event tells of.
///
/// # Guarantees
/// A release is removed only after a fresh list without its bundle and a second proof, or because an operator let it, and only as far as its
/// records show that it is the bundle's. What the ledger does not know, or knows for another bundle, is not touched. A removal that was begun
/// is finished, by the next process if need be.
///
/// # Cancellation
/// Safe at any point: that a removal was proven is written before it begins, and each step may be repeated.
pub struct Collector {
    store: Arc<Store>,
    ledger: Arc<Ledger>,
    queue: Arc<Queue>,
    events: Arc<Events>,
    lister: Lister,
    uninstaller: Uninstaller,
    held: Held,
    report: Report,
    search: Search,
    neighbourhood: Neighbourhood,
    health: Health,
    /// How long a bundle is missed before its removal is looked at.
    removal_grace: Duration,
    /// For how long few bundles must have vanished before one that did counts as deleted.
    removal_settle: Duration,
    /// How long a bundle must have another release, as other facts filled in its names, before a bundle that waits for the former one gets it.
    rename_grace: Duration,
}

/// What a collector works with.
pub struct CollectorContext<'a> {
    pub identities: &'a Arc<Identities>,
    pub store: &'a Arc<Store>,
    pub ledger: &'a Arc<Ledger>,
    pub queue: &'a Arc<Queue>,
    pub events: &'a Arc<Events>,
    pub metrics: &'a Metrics,
    pub health: &'a Health,
    pub memory: &'a Memory,
    pub release_locks: &'a ReleaseLocks,
    /// How long a bundle is missed before its removal is looked at.
    pub removal_grace: Duration,
    /// For how long few bundles must have vanished before one that did counts as deleted.
    pub removal_settle: Duration,
    /// How long facts must have given a bundle another release before who waits for the former one gets it.
    pub rename_grace: Duration,
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
            health,
            memory,
            release_locks,
            removal_grace,
            removal_settle,
            rename_grace,
        } = context;
        let neighbourhood = Neighbourhood::new(store, ledger);
        Self {
            store: Arc::clone(store),
            ledger: Arc::clone(ledger),
            queue: Arc::clone(queue),
            events: Arc::clone(events),
            lister: Lister::new(upstream, store, ledger, events, health, removal_settle),
            held: Held::new(ledger, removal_grace * WAVE_GRACES),
            uninstaller: Uninstaller {
                system_namespace: system_namespace.to_owned(),
                identities: Arc::clone(identities),
                store: Arc::clone(store),
                ledger: Arc::clone(ledger),
                neighbourhood: neighbourhood.clone(),
                memory: memory.clone(),
                locks: release_locks.clone(),
            },
            neighbourhood,
            report: Report::new(maps, metrics.clone()),
            search: Search::new(&agent, system_namespace),
            health: health.clone(),
            removal_grace,
            removal_settle,
            rename_grace,
        }
    }

    /// Who is in a namespace besides a release.
    pub fn neighbourhood(&self) -> &Neighbourhood {
        &self.neighbourhood
    }

    /// The agent's own namespace, which records of ours name.
    pub fn system_namespace(&self) -> &str {
        &self.uninstaller.system_namespace
    }

    /// Searches for orphans, lost records and unknown releases now and then, at random 1 to 2 intervals, and
    /// keeps the report. Never returns.
    pub async fn run(&self, queue: &Queue, interval: Duration) {
        let searching = async {
            self.store.until_whole().await;
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
        let checking = async {
            let mut schedule = CheckSchedule::default();
            let mut permissions = None;
            loop {
                tokio::select! {
                    biased;
                    () = permitted(&mut permissions) => schedule = CheckSchedule::default(),
                    () = tokio::time::sleep(CHECK_INTERVAL) => {}
                }
                self.compare().await;
                for bundle in self.ledger.take_let_go() {
                    queue.wake(&bundle, ReconcileKind::Full);
                }
                let held = self.held_bundles();
                if held.is_empty() {
                    (schedule, permissions) = (CheckSchedule::default(), None);
                    continue;
                }
                // Bundles that appear, the agent's own one among them, and others that were deployed: what a verdict is made of.
                let releases = self.ledger.count(|_| true);
                if !schedule.is_due((held.clone(), self.store.names(), releases)) {
                    continue;
                }
                // Where that may not be watched it is tried again with the next look, which sees it too.
                permissions.get_or_insert_with(|| self.ledger.permissions());
                for bundle in self.check_held(held).await {
                    queue.wake(&bundle, ReconcileKind::Full);
                }
            }
        };
        tokio::select! {
            biased;
            () = searching => {}
            () = checking => {}
            () = self.report.run() => {}
        }
    }

    /// Compares upstream with what it was where that failed, unless upstream does not answer anything.
    async fn compare(&self) {
        if !self.health.may_ask(Side::Upstream) {
            return;
        }
        if let Err(failed) = self.lister.compare().await {
            if !matches!(failed, RemovalError::Ledger(_)) {
                self.health.unanswered(Side::Upstream);
            }
            let error = PublicText::nothing_secret_in(&failed);
            logging::debug!(error, "upstream is not compared yet");
        }
    }

    /// Bundles that have releases and are not listed. Meaningful once a list is complete, before which none is reconciled.
    pub fn orphans(&self) -> BTreeSet<String> {
        let mut owners = self.ledger.bundles(|_| true);
        owners.retain(|owner| !self.store.is_listed(owner));
        for owner in &owners {
            // All at once, whenever it is their turn: how many went together is counted by that.
            self.store.missing_since(owner);
        }
        owners
    }

    /// Removals that are held, and records of other agents and people that were read.
    pub fn entries(&self) -> Entries {
        vec![
            ("held_bundles", self.held.len().max(self.report.count())),
            ("read_records", self.search.len()),
            ("removals_that_wait_for_others", self.neighbourhood.count()),
        ]
    }

    /// The bundle is there, whether or not it can be read: nothing of it is held back, no removal of it has begun, and its objects are kept should
    /// it go, if `keep_resources` says so. Where that cannot be written, the next deploy fails and says so. One that was lost is back when upstream
    /// lists it: what is remembered of it may be older.
    pub async fn is_back(&self, name: &str, keep_resources: bool) {
        self.held.forget(name);
        self.neighbourhood.is_back(name);
        if self.report.let_go(name) {
            let text = "the bundledeployment is listed upstream again";
            logging::info!(bundle = name, "{}", text);
            self.events.emit(Reason::RemovalReleased, name, text);
        }
        if self.ledger.is_lost(name)
            && let Err(failed) = self.lister.list(Instant::now()).await
        {
            logging::debug!(
                bundle = name,
                error = PublicText::nothing_secret_in(&failed),
                "still lost"
            );
        }
        if let Err(failed) = self.ledger.seen(name, keep_resources).await {
            logging::warn!(
                bundle = name,
                error = PublicText::nothing_secret_in(&failed),
                "cannot write the ledger"
            );
        }
    }

    /// Nothing is left of a bundle that is gone: nothing is to be proven of it, or held back.
    pub fn forget(&self, bundle: &str) {
        self.store.forget_deletion(bundle);
        self.held.forget(bundle);
        self.report.let_go(bundle);
    }

    /// Lists our BundleDeployments and compares upstream with the one seen before. To be called when a
    /// watch has begun anew.
    ///
    /// # Errors
    /// Upstream does not answer, or not with a list.
    pub async fn check_continuity(&self) -> Result<(), RemovalError> {
        self.lister.check_continuity().await
    }

    /// Has upstream compared with the one seen before, before anything else it says is proof, and soon. To be called when its connection broke:
    /// a watch that resumes is told nothing of what a backup lacks.
    pub fn doubt_upstream(&self) {
        self.lister.doubt();
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
        let known = self.ledger.of_bundle(bundle);
        if known.is_empty() {
            self.forget(bundle);
            return Ok(Verdict::Alive);
        }
        if self.store.is_listing() {
            // The list that is under way wakes it, and a list of names alone would say nothing of who wants the release.
            return Ok(self.wait_for_claimants(bundle, missing_since, known));
        }
        let is_followed = self.follows_upstream();
        if is_followed && let Some(left) = self.settles_in(bundle, &known) {
            self.report_vanishing(bundle, missing_since, known);
            return Ok(Verdict::Wait(left));
        }
        // One that was begun is proven: that it fails again and again costs upstream no list each time.
        let is_begun = known.iter().any(|(_, entry)| entry.is_removing);
        let list = match is_begun && is_followed {
            true => self.lister.compare().await.map(|()| self.told()),
            false => self.lister.list(missing_since).await,
        };
        if let Some(list) = self.lister.take_unnoted() {
            // It proves nothing, but that so many are missing at once: some may be back before another one can be noted.
            let releases = self.ledger.of_bundle(bundle);
            if self.judge(bundle, &list, &releases) == Verdict::Held(HoldReason::TooMany) {
                self.held.is_to_hold(self.gone_together(bundle, &list));
            }
        }
        let list = list?;
        // Read after the list, which may have declared it lost.
        let releases = self.ledger.of_bundle(bundle);
        let mut verdict = self.judge(bundle, &list, &releases);
        let is_released = |(_, entry): &(_, LedgerEntry)| entry.hold == Some(Hold::Released);
        if matches!(verdict, Verdict::Held(_)) && releases.iter().any(is_released) {
            verdict = Verdict::Remove;
        }
        if self.store.is_listed(bundle) {
            verdict = Verdict::Alive;
        }
        if verdict == Verdict::Remove && self.may_miss_claimants(&list) {
            return Ok(self.wait_for_claimants(bundle, missing_since, releases));
        }
        if verdict == Verdict::Remove
            && releases.iter().any(|(key, _)| self.is_claimed(bundle, key))
        {
            verdict = Verdict::Claimed;
        }
        match verdict {
            Verdict::Alive => self.store.forget_deletion(bundle),
            Verdict::Wait(_) if list.own_is_listed => {
                self.report_vanishing(bundle, missing_since, releases);
            }
            Verdict::Wait(_) | Verdict::Neighbours => {}
            Verdict::Claimed => self.report_claimed(bundle, releases),
            Verdict::Held(reason) => self.hold(bundle, reason, &list, releases).await?,
            Verdict::Remove => {
                // The proof does not survive a restart; that it was given does.
                let begun = self.ledger.begin_removal(bundle).await;
                begun.map_err(RemovalError::Ledger)?;
                if self.report.reason(bundle).is_some_and(HoldReason::passes) {
                    self.report.let_go(bundle);
                }
                let done = self.dispose_all(releases).await?;
                if done != Verdict::Remove {
                    return Ok(done);
                }
                if self.ledger.knows(bundle) {
                    // Another bundle took a release of it meanwhile: what this one made there goes next.
                    return Ok(Verdict::Neighbours);
                }
                self.forget(bundle);
                self.events
                    .emit(Reason::Removed, bundle, "the bundledeployment was deleted");
            }
        }
        Ok(verdict)
    }

    /// Whether the store has what upstream has, as far as a watch that is open tells.
    fn follows_upstream(&self) -> bool {
        let is_in_doubt =
            self.health.is_troubled(Side::Upstream) || self.health.is_silent(Side::Upstream);
        !is_in_doubt && !self.store.is_listing() && !self.store.names().is_empty()
    }

    /// What the watch of upstream has told.
    fn told(&self) -> Arc<UpstreamList> {
        let (bundles, listed) = (self.store.all(), self.store.names());
        let own_name = self.lister.known_own(&listed);
        let mut alive = bundles
            .iter()
            .filter(|bundle| bundle.metadata.deletion_timestamp.is_none());
        Arc::new(UpstreamList {
            has_live_bundles: alive.clone().next().is_some(),
            own_is_listed: alive.any(|bundle| is_own(bundle.name(), own_name)),
            listed,
        })
    }

    /// How long a removal waits, as far as the watch tells, until fewer bundles vanish. No list could say that it need not: what takes the others may
    /// take the agent's own after it, too.
    fn settles_in(&self, bundle: &str, releases: &[(ReleaseKey, LedgerEntry)]) -> Option<Duration> {
        let told = self.told();
        match self.judge(bundle, &told, releases) {
            Verdict::Wait(left) if told.own_is_listed => Some(left),
            _ => None,
        }
    }

    /// Whether upstream has bundles that the store has not heard of yet, or not again: one of them may want a release that others give up.
    fn may_miss_claimants(&self, list: &UpstreamList) -> bool {
        self.store.is_listing() || !list.listed.is_subset(&self.store.names())
    }

    fn judge(
        &self,
        bundle: &str,
        list: &UpstreamList,
        releases: &[(ReleaseKey, LedgerEntry)],
    ) -> Verdict {
        judge(bundle, self.facts(bundle, list, releases))
    }

    fn facts<'l>(
        &self,
        bundle: &str,
        list: &'l UpstreamList,
        releases: &[(ReleaseKey, LedgerEntry)],
    ) -> RemovalFacts<'l> {
        // What is held counts for itself and for what goes along with it, not against what goes later.
        let is_held = releases.iter().any(|(_, entry)| entry.hold.is_some());
        let counts_held = is_held || self.held.is_in_wave();
        let is_counted = |entry: &LedgerEntry| counts_held || entry.hold.is_none();
        let is_orphan =
            |entry: &LedgerEntry| is_counted(entry) && !list.listed.contains(&entry.bundle);
        RemovalFacts {
            listed: &list.listed,
            own_is_listed: list.own_is_listed,
            settles_in: self.store.settles_in(self.removal_settle, &list.listed),
            has_live_bundles: list.has_live_bundles,
            had_own: self.ledger.had_own(),
            seen_deleted: self.store.deleted_since(bundle),
            is_begun: releases.iter().any(|(_, entry)| entry.is_removing),
            lost: releases.iter().find_map(|(_, entry)| entry.lost),
            was_held: is_held || self.held.is_waiting(bundle),
            orphans: self.ledger.count(is_orphan),
            releases: self.ledger.count(is_counted),
        }
    }
}

/// Waits until somebody lets held removals through, as long as that is watched.
async fn permitted(permissions: &mut Option<BoxStream<'static, ()>>) {
    if let Some(watched) = permissions
        && watched.next().await.is_some()
    {
        return;
    }
    *permissions = None;
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use http::Request;
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::api::BundleDeployment;
    use crate::client::scripted;
    use crate::controllers::queue::Backoff;

    /// A bundle of that name.
    fn bundle(name: &str) -> BundleDeployment {
        serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
    }

    /// A collector with these entries in the ledger, and an API server that has nothing of them. `code` says how it answers a request for a
    /// path. Gives the ledger, too.
    async fn collector(
        store: &Arc<Store>,
        entries: &[(&str, LedgerEntry)],
        code: impl Fn(&str) -> u16 + Clone + Send + Sync + 'static,
    ) -> (Collector, Arc<Ledger>) {
        let clients = scripted::clients(move |request: Request<Body>| {
            let path = request.uri().path();
            let items = match path.contains("bundledeployments") {
                true => vec![json!({"metadata": {"name": "fleet-agent-edge"}})],
                false => Vec::new(),
            };
            let (code, metadata) = (code(path), json!({"resourceVersion": "5"}));
            let body = match code {
                200 => json!({"metadata": metadata, "spec": {}, "items": items}),
                _ => {
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code})
                }
            };
            async move { (code, body) }
        });
        store.applied(bundle("fleet-agent-edge"));
        let identities = Arc::new(scripted::identities(&clients));
        let agent = identities.agent();
        let ledger = Arc::new(Ledger::load(&agent, "system").await.unwrap());
        for (name, entry) in entries {
            let (namespace, name) = ("apps".to_owned(), (*name).to_owned());
            let noted = ledger.attempt(ReleaseKey { namespace, name }, entry.clone());
            noted.await.unwrap();
        }
        let upstream = Upstream::scripted(&clients);
        let metrics = Metrics::default();
        let backoff = Backoff {
            min: Duration::ZERO,
            max: Duration::ZERO,
        };
        let context = CollectorContext {
            identities: &identities,
            store,
            ledger: &ledger,
            queue: &Arc::new(Queue::new(backoff, metrics.clone())),
            events: &Arc::new(Events::new(&agent, "system", "host", metrics.clone())),
            metrics: &metrics,
            health: &Health::new(Duration::from_secs(300)),
            memory: &Memory::new(1 << 20),
            release_locks: &ReleaseLocks::default(),
            removal_grace: Duration::ZERO,
            removal_settle: Duration::from_secs(30),
            rename_grace: Duration::ZERO,
        };
        (Collector::new(&upstream, "system", context), ledger)
    }

    /// Removes bundle "web", as [`collector`] has it.
    async fn remove(
        store: &Arc<Store>,
        entries: &[(&str, LedgerEntry)],
        code: impl Fn(&str) -> u16 + Clone + Send + Sync + 'static,
    ) -> (Verdict, Arc<Ledger>) {
        let (collector, ledger) = collector(store, entries, code).await;
        let verdict = collector.remove("web", Instant::now()).await.unwrap();
        (verdict, ledger)
    }

    /// Should upstream lose it by mistake later on, nothing proves that it was deleted.
    #[tokio::test(start_paused = true)]
    async fn a_bundle_that_is_back_is_not_being_removed_though_it_cannot_be_read() {
        let entry = LedgerEntry {
            bundle: "web".to_owned(),
            is_removing: true,
            ..LedgerEntry::default()
        };
        let store = Arc::<Store>::default();
        let (collector, ledger) = collector(&store, &[("one", entry)], |_| 200).await;
        store.malformed("web");
        collector.is_back("web", false).await;
        assert!(!ledger.of_bundle("web")[0].1.is_removing);
    }

    /// The bundle has two releases, and comes back while the records of the first one are read.
    #[tokio::test(start_paused = true)]
    async fn a_bundle_that_comes_back_keeps_the_releases_not_removed_yet() {
        let store = Arc::<Store>::default();
        let seen = Arc::clone(&store);
        let entry = LedgerEntry {
            bundle: "web".to_owned(),
            revisions: Some(crate::ledger::Notes::default()),
            ..LedgerEntry::default()
        };
        let entries = ["one", "two"].map(|name| (name, entry.clone()));
        let removed = remove(&store, &entries, move |path| {
            if path.ends_with("/secrets") {
                seen.applied(bundle("web"));
            }
            200
        });
        let (verdict, ledger) = removed.await;
        assert_eq!(verdict, Verdict::Alive);
        let left = ledger.of_bundle("web").into_iter();
        let left: Vec<_> = left.map(|(key, _)| key.name).collect();
        assert_eq!(left, ["two"]);
    }

    /// Another bundle takes one of its releases while the first one is removed: what it made there is not forgotten.
    #[tokio::test(start_paused = true)]
    async fn a_removal_is_not_over_while_something_is_known_of_the_bundle() {
        let entry = LedgerEntry {
            bundle: "web".to_owned(),
            revisions: Some(crate::ledger::Notes::default()),
            ..LedgerEntry::default()
        };
        let (store, known) = (Arc::<Store>::default(), Arc::new(OnceLock::new()));
        let (seen, late) = (Arc::clone(&known), entry.clone());
        let code = move |path: &str| {
            let known: Option<&Arc<Ledger>> = seen.get();
            if let Some(ledger) = known.filter(|_| path.ends_with("/secrets")) {
                let (ledger, late) = (Arc::clone(ledger), late.clone());
                tokio::spawn(async move { ledger.note_claims("apps", &late).await });
            }
            200
        };
        let (collector, ledger) = collector(&store, &[("one", entry)], code).await;
        assert!(known.set(Arc::clone(&ledger)).is_ok());
        let verdict = collector.remove("web", Instant::now()).await.unwrap();
        assert_eq!(verdict, Verdict::Neighbours);
        assert!(ledger.knows("web"));
    }

    /// Who waits for its release may be what upstream lists and the watch has yet to tell.
    #[tokio::test(start_paused = true)]
    async fn a_removal_waits_for_bundles_that_were_not_told_of_yet() {
        let store = Arc::<Store>::default();
        let entry = LedgerEntry {
            bundle: "web".to_owned(),
            revisions: Some(crate::ledger::Notes::default()),
            ..LedgerEntry::default()
        };
        let (collector, ledger) = collector(&store, &[("one", entry)], |_| 200).await;
        let removed = async || collector.remove("web", Instant::now()).await.unwrap();
        store.deleted("fleet-agent-edge");
        assert!(matches!(removed().await, Verdict::Wait(_)));
        store.relist();
        store.applied(bundle("fleet-agent-edge"));
        assert!(matches!(removed().await, Verdict::Wait(_)));
        assert!(ledger.knows("web"));
        store.relisted();
        assert_eq!(removed().await, Verdict::Remove);
    }

    /// The watch lists again and again, and lists of names alone go well; or one of these has a bundle that the watch never tells of.
    #[tokio::test(start_paused = true)]
    async fn a_removal_that_waits_for_the_watch_asks_upstream_ever_more_rarely_and_is_told_of() {
        for is_listing in [true, false] {
            let store = Arc::<Store>::default();
            let entry = LedgerEntry {
                bundle: "web".to_owned(),
                ..LedgerEntry::default()
            };
            let lists = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&lists);
            let code = move |path: &str| {
                let is_list = path.ends_with("/bundledeployments");
                counted.fetch_add(usize::from(is_list), Ordering::Relaxed);
                200
            };
            let (collector, _) = collector(&store, &[("one", entry)], code).await;
            collector.lister.compare().await.unwrap();
            match is_listing {
                true => store.relist(),
                false => store.deleted("fleet-agent-edge"),
            }
            lists.store(0, Ordering::Relaxed);
            let begun = Instant::now();
            let (mut looks, mut told_after) = (0, None);
            while begun.elapsed() < Duration::from_secs(600) {
                let verdict = collector.remove("web", begun).await.unwrap();
                let Verdict::Wait(pause) = verdict else {
                    panic!("{verdict:?}");
                };
                if collector.report.reason("web") == Some(HoldReason::Untold) {
                    told_after.get_or_insert(begun.elapsed());
                }
                looks += 1;
                tokio::time::advance(pause.max(Duration::from_secs(3))).await;
            }
            assert!(looks < 25, "{looks}");
            let lists = lists.load(Ordering::Relaxed);
            assert!(lists <= if is_listing { 0 } else { looks }, "{lists}");
            let told_after = told_after.unwrap();
            assert!(
                (180..=300).contains(&told_after.as_secs()),
                "{told_after:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_that_cannot_be_removed_keeps_no_other_one() {
        let entry = LedgerEntry {
            bundle: "web".to_owned(),
            revisions: Some(crate::ledger::Notes::default()),
            ..LedgerEntry::default()
        };
        let entries = ["one", "two"].map(|name| (name, entry.clone()));
        let (store, asked) = (Arc::<Store>::default(), Arc::new(AtomicBool::new(false)));
        // The records of the first one alone.
        let code = move |path: &str| match path.ends_with("/secrets") {
            true if !asked.swap(true, Ordering::Relaxed) => 403,
            _ => 200,
        };
        let (collector, ledger) = collector(&store, &entries, code).await;
        let removed = collector.remove("web", Instant::now()).await;
        assert!(removed.is_err(), "{removed:?}");
        let left = ledger.of_bundle("web").into_iter();
        let left: Vec<_> = left.map(|(key, _)| key.name).collect();
        assert_eq!(left, ["one"]);
    }

    /// Of a hundred clusters with such a removal each would list all its bundles every minute.
    #[tokio::test(start_paused = true)]
    async fn a_removal_that_was_begun_and_fails_lists_upstream_no_more() {
        let entry = LedgerEntry {
            bundle: "web".to_owned(),
            is_removing: true,
            revisions: Some(crate::ledger::Notes::default()),
            ..LedgerEntry::default()
        };
        let (store, lists) = (Arc::<Store>::default(), Arc::new(AtomicUsize::new(0)));
        store.applied(bundle("other"));
        let counted = Arc::clone(&lists);
        let code = move |path: &str| {
            let is_list = path.ends_with("/bundledeployments");
            counted.fetch_add(usize::from(is_list), Ordering::Relaxed);
            match path.ends_with("/secrets") {
                true => 403,
                false => 200,
            }
        };
        let (collector, _) = collector(&store, &[("one", entry)], code).await;
        collector.lister.compare().await.unwrap();
        lists.store(0, Ordering::Relaxed);
        for _ in 0..5 {
            let removed = collector.remove("web", Instant::now()).await;
            assert!(removed.is_err(), "{removed:?}");
            tokio::time::advance(Duration::from_secs(10)).await;
        }
        assert_eq!(lists.load(Ordering::Relaxed), 0);
        // Where the watch may be broken, upstream is asked.
        collector.health.trouble(Side::Upstream);
        assert!(collector.remove("web", Instant::now()).await.is_err());
        assert_eq!(lists.load(Ordering::Relaxed), 1);
        // It is back.
        collector.health.contact(Side::Upstream);
        store.applied(bundle("web"));
        let verdict = collector.remove("web", Instant::now()).await;
        assert_eq!(verdict.unwrap(), Verdict::Alive);
    }

    /// Three bundles are gone at once, and more would go before it is known what that means.
    #[tokio::test(start_paused = true)]
    async fn removals_that_wait_until_fewer_vanish_list_upstream_once_when_that_is_so() {
        let names = ["web", "api", "db"];
        let entries = names.map(|name| {
            let entry = LedgerEntry {
                bundle: name.to_owned(),
                revisions: Some(crate::ledger::Notes::default()),
                ..LedgerEntry::default()
            };
            (name, entry)
        });
        let (store, lists) = (Arc::<Store>::default(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&lists);
        let code = move |path: &str| {
            let is_list = path.ends_with("/bundledeployments");
            counted.fetch_add(usize::from(is_list), Ordering::Relaxed);
            200
        };
        let (collector, _) = collector(&store, &entries, code).await;
        collector.lister.compare().await.unwrap();
        lists.store(0, Ordering::Relaxed);
        for name in names {
            store.deleted(name);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let vanished = Instant::now();
        let removed = async |name| collector.remove(name, vanished).await.unwrap();
        for _ in 0..4 {
            for name in names {
                assert!(matches!(removed(name).await, Verdict::Wait(_)), "{name}");
            }
            tokio::time::advance(Duration::from_secs(6)).await;
        }
        assert_eq!(lists.load(Ordering::Relaxed), 0);
        tokio::time::advance(Duration::from_secs(6)).await;
        for name in names {
            assert_eq!(removed(name).await, Verdict::Remove, "{name}");
        }
        assert_eq!(lists.load(Ordering::Relaxed), 1);
    }

    /// Three bundles are deleted and made anew again and again, and what somebody deletes meanwhile is not told from what they vanish with.
    #[tokio::test(start_paused = true)]
    async fn a_removal_that_waits_for_bundles_that_vanish_for_ever_is_told_of() {
        let entry = LedgerEntry {
            bundle: "web".to_owned(),
            revisions: Some(crate::ledger::Notes::default()),
            ..LedgerEntry::default()
        };
        let store = Arc::<Store>::default();
        let (collector, ledger) = collector(&store, &[("one", entry)], |_| 200).await;
        store.deleted("web");
        let (missing_since, mut told_after) = (Instant::now(), None);
        while missing_since.elapsed() < Duration::from_secs(600) {
            for name in ["a", "b", "c"] {
                store.applied(bundle(name));
                tokio::time::advance(Duration::from_secs(3)).await;
                store.deleted(name);
            }
            // As far as it goes by lists, too.
            match told_after {
                Some(_) => collector.health.trouble(Side::Upstream),
                None => collector.health.contact(Side::Upstream),
            }
            let verdict = collector.remove("web", missing_since).await.unwrap();
            assert!(matches!(verdict, Verdict::Wait(_)), "{verdict:?}");
            if collector.report.reason("web") == Some(HoldReason::Vanishing) {
                told_after.get_or_insert(missing_since.elapsed());
            }
        }
        let told_after = told_after.unwrap();
        assert!((60..70).contains(&told_after.as_secs()), "{told_after:?}");
        assert_eq!(store.vanished(), ["a", "b", "c"]);
        // Once they rest it goes.
        tokio::time::advance(Duration::from_secs(30)).await;
        let verdict = collector.remove("web", missing_since).await;
        assert_eq!(verdict.unwrap(), Verdict::Remove);
        assert!(!ledger.knows("web") && collector.report.reason("web").is_none());
    }

    /// An upstream that fails is not asked to be compared by each cluster every ten seconds.
    #[tokio::test(start_paused = true)]
    async fn an_upstream_that_does_not_answer_is_compared_ever_more_rarely() {
        let (store, asked) = (Arc::<Store>::default(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&asked);
        let code = move |path: &str| match path.contains("/clusters/") {
            true => {
                counted.fetch_add(1, Ordering::Relaxed);
                500
            }
            false => 200,
        };
        let (collector, _) = collector(&store, &[], code).await;
        collector.doubt_upstream();
        let hour = Duration::from_secs(3600);
        let running = collector.run(&collector.queue, hour);
        tokio::time::timeout(hour, running).await.unwrap_err();
        let asked = asked.load(Ordering::Relaxed);
        assert!((30..=100).contains(&asked), "{asked}");
    }

    /// Another bundle left its attempts at a helm release to this one, and its account is gone by now.
    #[tokio::test(start_paused = true)]
    async fn what_another_bundle_left_does_not_keep_a_removal_from_its_end() {
        let attempt = LedgerEntry {
            bundle: "gone".to_owned(),
            account: "gone".to_owned(),
            is_attempt: true,
            revisions: Some(crate::ledger::Notes::default()),
            ..LedgerEntry::default()
        };
        let left = attempt.noting(2, "two".to_owned()).taken_by("web");
        assert!(left.is_left());
        let tried = left.clone().noting(3, "three".to_owned());
        let store = Arc::<Store>::default();
        for (entry, refused) in [
            // It wrote nothing itself.
            (left, "/secrets"),
            (tried, "/secrets/sh.helm.release.v1.one.v2"),
        ] {
            let entries = [("one", entry)];
            let removed = remove(&store, &entries, move |path| {
                match path.ends_with(refused) {
                    true => 403,
                    false => 200,
                }
            });
            let (verdict, ledger) = removed.await;
            assert_eq!(verdict, Verdict::Remove, "{refused}");
            assert!(ledger.of_bundle("web").is_empty(), "{refused}");
        }
    }
}
