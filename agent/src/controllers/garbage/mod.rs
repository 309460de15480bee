//! Removing releases whose BundleDeployment is gone: only on proof, and with a brake.
//!
//! Replaces `internal/cmd/agent/deployer/cleanup`, which uninstalls whatever its cache no longer holds. [`upstream_list`] asks upstream, [`verdict`]
//! decides whether a bundle was deleted, [`removal`] acts on that, [`uninstall`] removes what of its releases is its own; [`disposal`] says what
//! becomes of a release that its bundle has no use for, [`held`] keeps what is held back, [`check_schedule`] says when that is checked, and the
//! [`report`] shows it; release
//! records that only claim to be ours are found by [`search`] and [`unknown`], and never touched.

mod check_schedule;
mod disposal;
mod error;
mod held;
mod removal;
mod report;
mod search;
mod uninstall;
mod unknown;
mod upstream_list;
mod verdict;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chart::source::Memory;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use check_schedule::{CHECK_INTERVAL, CheckSchedule};
pub use error::RemovalError;
use held::Held;
pub use report::{REPORT_NAME, Report};
use uninstall::Uninstaller;
use unknown::Search;
use upstream_list::UpstreamLister;
pub use verdict::{HoldReason, Verdict};

use super::claims::ReleaseLocks;
use super::downstream_resources::UnnotedCopies;
use super::queue::{Queue, ReconcileKind};
use super::shared_namespaces::SharedNamespaces;
use super::store::Store;
use crate::client::health::{Health, Side};
use crate::client::identity::Identities;
use crate::error::is_answered;
use crate::ledger::Ledger;
use crate::public;
use crate::public::PublicText;
use crate::register::Upstream;
use crate::report::events::{Events, Reason};
use crate::report::metrics::{Entries, Metrics};

/// When the first search for unknown releases goes out, once all bundles are listed: live bundles have been entered by then.
const FIRST_SEARCH: Duration = Duration::from_secs(10);

/// Deletions belong to those that were held for being too many when they come so many grace times after the last of them.
const WAVE_GRACES: u32 = 6;

/// How long a bundle that had a release before another one took it has to be missing for that to be reported, where the other one goes: its own removal may
/// only be proven a moment later.
const MISSING_REPORTED: Duration = Duration::from_secs(60);

/// How soon at least, and at most, a removal that waits for such a bundle is tried again: each try lists upstream.
const MISSING_RETRY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(5 * 60));

/// How soon a removal that waits for others is tried again; their end wakes it.
pub const NAMESPACES_RETRY: Duration = Duration::from_secs(20);

/// Removes what is proven to be orphaned.
///
/// # Expected flow
/// [`Collector::remove`] for each bundle that is missed, again and again until the verdict is final; [`Collector::is_back`] for each that
/// is there; [`Collector::check_continuity`] when a watch has begun anew. [`Collector::run`] beside it compares upstream, and finds changes without an
/// event.
///
/// # Guarantees
/// A release is removed only after a fresh list without its bundle and a second proof, or because an operator let it, and only as far as its
/// records show that it is the bundle's. What the ledger does not know, or knows for another bundle, is not touched. A removal that was begun
/// is finished, by the next process if need be, unless its bundle was there again meanwhile.
///
/// # Cancellation
/// Safe at any point: that a removal was proven is written before it begins, and each step may be repeated.
pub struct Collector {
    store: Arc<Store>,
    ledger: Arc<Ledger>,
    queue: Arc<Queue>,
    events: Arc<Events>,
    lister: UpstreamLister,
    uninstaller: Uninstaller,
    held: Held,
    report: Report,
    search: Search,
    shared_namespaces: SharedNamespaces,
    health: Health,
    /// Notified when upstream is to be compared at once.
    compares: Notify,
    /// Of which doubt it was said that it cannot be.
    warned: AtomicU64,
    /// When that is tried again, by the doubt, where the ledger takes no writes: each try lists upstream.
    unwritten: Mutex<Option<CheckSchedule<u64>>>,
    /// How long a bundle is missed before its removal is checked.
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
    pub unnoted_copies: &'a UnnotedCopies,
    /// How long a bundle is missed before its removal is checked.
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
            unnoted_copies,
            removal_grace,
            removal_settle,
            rename_grace,
        } = context;
        let shared_namespaces = SharedNamespaces::new(store, ledger, events);
        Self {
            store: Arc::clone(store),
            ledger: Arc::clone(ledger),
            queue: Arc::clone(queue),
            events: Arc::clone(events),
            lister: UpstreamLister::new(
                upstream,
                store,
                queue,
                ledger,
                events,
                health,
                removal_settle,
            ),
            held: Held::new(ledger, removal_grace * WAVE_GRACES),
            uninstaller: Uninstaller {
                system_namespace: system_namespace.to_owned(),
                identities: Arc::clone(identities),
                store: Arc::clone(store),
                ledger: Arc::clone(ledger),
                shared_namespaces: shared_namespaces.clone(),
                memory: memory.clone(),
                locks: release_locks.clone(),
                unnoted_copies: unnoted_copies.clone(),
            },
            shared_namespaces,
            report: Report::new(maps, metrics.clone()),
            search: Search::new(&agent, system_namespace),
            health: health.clone(),
            compares: Notify::new(),
            warned: AtomicU64::default(),
            unwritten: Mutex::default(),
            removal_grace,
            removal_settle,
            rename_grace,
        }
    }

    /// The bundles and releases in each namespace.
    pub fn shared_namespaces(&self) -> &SharedNamespaces {
        &self.shared_namespaces
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
                    () = self.compares.notified() => {}
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
                // Permissions that may not be watched are asked for again with the next check, which reads them too.
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

    /// Compares upstream with what it was where that failed, unless one of the clusters does not answer anything.
    async fn compare(&self) {
        let doubt = self.ledger.doubts();
        let answers = |side| self.health.may_ask(side);
        let is_early = |unwritten: &mut CheckSchedule<u64>| !unwritten.is_due(doubt);
        if !answers(Side::Upstream)
            || !answers(Side::Local)
            || self.unwritten.lock().as_mut().is_some_and(is_early)
        {
            return;
        }
        let compared = self.lister.compare().await;
        match &compared {
            Err(RemovalError::Ledger(failed)) if is_answered(failed) => {
                let begun = || CheckSchedule::of(doubt);
                self.unwritten.lock().get_or_insert_with(begun);
            }
            _ => *self.unwritten.lock() = None,
        }
        let error = match compared {
            Ok(true) => return,
            Ok(false) => public!("its connection broke meanwhile, or what it has is not noted yet"),
            Err(failed) => {
                let (side, source) = match &failed {
                    RemovalError::Ledger(source) => (Side::Local, Some(source)),
                    other => (Side::Upstream, other.of_upstream()),
                };
                if !source.is_some_and(is_answered) {
                    self.health.unanswered(side);
                }
                PublicText::nothing_secret_in(&failed)
            }
        };
        let doubt = self.ledger.doubts();
        // Once for each time that it is in doubt, as `/readyz` refers to it.
        match self.warned.swap(doubt, Ordering::Relaxed) == doubt {
            true => logging::debug!(error, "upstream is not compared yet"),
            false => logging::warn!(error, "cannot compare upstream with what it was before"),
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
            (
                "removals_that_wait_for_others",
                self.shared_namespaces.count(),
            ),
        ]
    }

    /// The bundle is there, whether or not it can be read: nothing of it is held back, no removal of it has begun, and its objects are kept should
    /// it go, if `keep_resources` says so. Where that cannot be written, the next deploy fails and says so. One that was lost is back when upstream
    /// lists it: what is remembered of it may be older.
    pub async fn is_back(&self, name: &str, keep_resources: bool) {
        self.held.forget(name);
        self.shared_namespaces.is_back(name);
        if self.report.let_go(name) {
            let text = "the bundledeployment is listed upstream again";
            logging::info!(bundle = name, "{}", text);
            self.events.emit(Reason::RemovalReleased, name, text);
            self.wake_takers(name);
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

    /// A bundle is proven to be gone, whether or not its removal waits for others: the removal of one of these may wait for that.
    fn note_proven(&self, bundle: &str, missing_since: Instant) {
        if self.store.note_proven_gone(bundle, missing_since) {
            self.wake_takers(bundle);
        }
    }

    /// A bundle is back, or proven to be gone: what others took from it, and are to give up, waits for that.
    fn wake_takers(&self, bundle: &str) {
        for (key, owner) in self.ledger.taken_from(bundle) {
            let known = self.store.get(&owner);
            let desired = known.and_then(|known| self.store.desired(&known));
            if desired != Some(key) {
                self.queue.wake(&owner, ReconcileKind::Full);
            }
        }
    }

    /// Forgets a bundle that is gone: no removal is to be proven or held back any more.
    pub fn forget(&self, bundle: &str) {
        self.store.forget_deletion(bundle);
        self.held.forget(bundle);
        self.report.let_go(bundle);
    }

    /// Has upstream compared with the one seen before, as [`Self::doubt_upstream`], and at once. To be called when a watch has begun anew. The watch itself
    /// does not wait for that: only removals need it.
    pub fn check_continuity(&self) {
        self.lister.doubt();
        self.compares.notify_one();
    }

    /// Has upstream compared with the one seen before, before anything else it says is proof, and soon. To be called when its connection broke:
    /// a watch that resumes gets no event for objects that a backup lacks.
    pub fn doubt_upstream(&self) {
        self.lister.doubt();
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
pub(crate) mod fixtures;

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    use rstest::rstest;

    use super::fixtures::collector;
    use super::*;
    use crate::ledger::LedgerEntry;

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

    /// Each cluster of a fleet would ask every ten seconds, and list all its bundles where its own ledger takes no writes.
    #[rstest]
    #[case::upstream_fails("/clusters/", 500, 30..=100)]
    #[case::upstream_refuses("/clusters/", 400, 12..=25)]
    #[case::the_ledger_cannot_be_written("/configmaps", 403, 12..=25)]
    #[case::the_local_cluster_fails("/configmaps", 500, 30..=100)]
    #[tokio::test(start_paused = true)]
    async fn a_comparison_that_fails_is_tried_again_with_back_off(
        #[case] failing: &'static str,
        #[case] failure: u16,
        #[case] expected: RangeInclusive<usize>,
    ) {
        let (store, asked) = (Arc::<Store>::default(), Arc::new(AtomicUsize::new(0)));
        let fails = Arc::new(AtomicBool::new(false));
        let (counted, failed) = (Arc::clone(&asked), Arc::clone(&fails));
        let question = match failing {
            "/clusters/" => "/clusters/",
            _ => "/bundledeployments",
        };
        let code = move |path: &str| {
            counted.fetch_add(usize::from(path.contains(question)), Ordering::Relaxed);
            match path.contains(failing) && failed.load(Ordering::Relaxed) {
                true => failure,
                false => 200,
            }
        };
        let (collector, _) = collector(&store, &[], code).await;
        fails.store(true, Ordering::Relaxed);
        collector.doubt_upstream();
        let hour = Duration::from_secs(3600);
        let running = collector.run(&collector.queue, hour);
        tokio::time::timeout(hour, running).await.unwrap_err();
        let asked = asked.load(Ordering::Relaxed);
        assert!(expected.contains(&asked), "{asked}");
    }

    /// Not with the next check, which removals would wait for.
    #[tokio::test(start_paused = true)]
    async fn a_watch_that_begins_anew_has_upstream_compared_at_once() {
        let (store, asked) = (Arc::<Store>::default(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&asked);
        let code = move |path: &str| {
            counted.fetch_add(usize::from(path.contains("/clusters/")), Ordering::Relaxed);
            200
        };
        let (collector, _) = collector(&store, &[], code).await;
        collector.check_continuity();
        let running = collector.run(&collector.queue, Duration::from_secs(3600));
        tokio::time::timeout(CHECK_INTERVAL / 10, running)
            .await
            .unwrap_err();
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }
}
