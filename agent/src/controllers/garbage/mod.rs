//! Removing releases whose BundleDeployment is gone: only on proof, and with a brake.
//!
//! Replaces `internal/cmd/agent/deployer/cleanup`, which uninstalls whatever its cache no longer
//! holds. [`upstream_list`] asks upstream, [`verdict`] decides whether a bundle was deleted, [`uninstall`] removes what of its releases is its own;
//! [`held`] keeps what is held back, and the [`report`] tells of it; release records that only claim to be ours are found by [`unknown`] and
//! never touched.

mod held;
mod report;
mod uninstall;
mod unknown;
mod upstream_list;
mod verdict;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use release::storage::StorageError;
use tokio::time::Instant;

use held::{GLANCE, Held, Looks};
pub use report::{REPORT_NAME, Report};
use uninstall::{Found, Removal, Uninstaller};
use unknown::{Newest, Search};
use upstream_list::{Lister, UpstreamList};
pub use verdict::{HoldReason, Verdict};
use verdict::{RemovalFacts, judge};

use super::bundle_deployment::claims::{self, NextOwner, ReleaseId};
use super::bundle_deployment::plan;
use super::neighbours::Neighbourhood;
use super::queue::{Queue, ReconcileKind};
use super::store::Store;
use crate::api::BundleDeployment;
use crate::client::health::Health;
use crate::client::identity::{AgentClient, Identities, IdentityError};
use crate::ledger::{Hold, LEDGER_NAME, Ledger, LedgerEntry, RELEASE_HOLD_ANNOTATION, ReleaseKey};
use crate::public;
use crate::register::Upstream;
use crate::report::events::{Events, Reason};
use crate::report::metrics::{Entries, Metrics};
use crate::report::public::{Name, PublicText};
use crate::report::redact::Redacted;

/// When the first search for unknown releases goes out: live bundles have been entered by then.
const FIRST_SEARCH: Duration = Duration::from_secs(10);

/// Deletions belong to those that were held for being too many when they come so many grace times after the last of them.
const WAVE_GRACES: u32 = 6;

/// How soon a removal that waits for others is tried again; their end wakes it.
pub const NEIGHBOURS_RETRY: Duration = Duration::from_secs(20);

/// A removal that did not work. Retried.
#[derive(Debug, thiserror::Error)]
pub enum RemovalError {
    #[error("cannot list bundledeployments to confirm a deletion")]
    List(#[source] kube::Error),
    #[error("cannot compare upstream with what it was before")]
    Compare(#[source] kube::Error),
    #[error("cannot read or write the ledger")]
    Ledger(#[source] kube::Error),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("cannot tell whose release {release} is, nor what it has")]
    Records {
        release: String,
        source: StorageError,
    },
    #[error("failed to delete release {name}")]
    Uninstall { name: String, source: Redacted },
    #[error("release {0} is removed once the releases in its namespaces are")]
    Awaits(Awaited),
    #[error("failed to delete copies of upstream resources")]
    DownstreamResources(#[source] Redacted),
}

/// A release whose removal waits for that of others, which are in namespaces that it has.
#[derive(Debug)]
pub struct Awaited {
    release: ReleaseKey,
    namespaces: Vec<String>,
    /// It waited for the same before.
    is_again: bool,
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.release.fmt(f)
    }
}

impl RemovalError {
    /// As it may be told; what it quotes of a release is redacted where that is known.
    pub fn told(&self) -> PublicText {
        match self {
            Self::Records { .. } => Redacted::unquoted(self).into(),
            _ => PublicText::nothing_secret_in(self),
        }
    }
}

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
    /// System namespace downstream.
    system_namespace: String,
    identities: Arc<Identities>,
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
    /// How long a bundle is missed before its removal is looked at.
    pub removal_grace: Duration,
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
            removal_grace,
            rename_grace,
        } = context;
        let neighbourhood = Neighbourhood::new(store, ledger);
        Self {
            system_namespace: system_namespace.to_owned(),
            identities: Arc::clone(identities),
            store: Arc::clone(store),
            ledger: Arc::clone(ledger),
            queue: Arc::clone(queue),
            events: Arc::clone(events),
            lister: Lister::new(upstream, store, ledger, events, health),
            held: Held::new(ledger, removal_grace * WAVE_GRACES),
            uninstaller: Uninstaller {
                system_namespace: system_namespace.to_owned(),
                identities: Arc::clone(identities),
                store: Arc::clone(store),
                ledger: Arc::clone(ledger),
                neighbourhood: neighbourhood.clone(),
            },
            neighbourhood,
            report: Report::new(maps, metrics.clone()),
            search: Search::new(&agent, system_namespace),
            rename_grace,
        }
    }

    /// Who is in a namespace besides a release.
    pub fn neighbourhood(&self) -> &Neighbourhood {
        &self.neighbourhood
    }

    /// The agent's own namespace, which records of ours name.
    pub fn system_namespace(&self) -> &str {
        &self.system_namespace
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
        let looking = async {
            let mut looks = Looks::default();
            let mut permissions = None;
            loop {
                tokio::select! {
                    biased;
                    () = permitted(&mut permissions) => looks = Looks::default(),
                    () = tokio::time::sleep(GLANCE) => {}
                }
                if let Err(failed) = self.lister.compare().await {
                    logging::debug!(
                        error = PublicText::nothing_secret_in(&failed),
                        "upstream is not compared yet"
                    );
                }
                let held = self.held_bundles();
                if held.is_empty() {
                    (looks, permissions) = (Looks::default(), None);
                    continue;
                }
                // Bundles that appear, the agent's own one among them, and others that were deployed: what a verdict is made of.
                let releases = self.ledger.count(|_| true);
                if !looks.is_due((held.clone(), self.store.names(), releases)) {
                    continue;
                }
                // Where that may not be watched it is tried again with the next look, which sees it too.
                permissions.get_or_insert_with(|| self.ledger.permissions());
                for bundle in self.look_at_held(held).await {
                    queue.wake(&bundle, ReconcileKind::Full);
                }
            }
        };
        tokio::select! {
            biased;
            () = searching => {}
            () = looking => {}
            () = self.report.run() => {}
        }
    }

    /// Bundles that are held back and were not seen since.
    fn held_bundles(&self) -> BTreeSet<String> {
        let mut held = self.ledger.bundles(|entry| entry.hold == Some(Hold::Held));
        held.retain(|bundle| !self.store.is_listed(bundle));
        held
    }

    /// Looks at everything that is held back, with one question to each side. Which bundles are not to be held any more.
    async fn look_at_held(&self, mut held: BTreeSet<String>) -> BTreeSet<String> {
        let mut woken = match self.ledger.take_permission().await {
            Ok(released) => released,
            Err(failed) => {
                let error = PublicText::nothing_secret_in(&failed);
                logging::warn!(error, "cannot look whether held removals are let through");
                BTreeSet::new()
            }
        };
        match self.lister.list(Instant::now()).await {
            Ok(list) => held.retain(|bundle| {
                let releases = self.ledger.of_bundle(bundle);
                !matches!(self.judge(bundle, &list, &releases), Verdict::Held(_))
            }),
            Err(failed) => {
                logging::debug!(
                    error = PublicText::nothing_secret_in(&failed),
                    "cannot look at held removals"
                );
                held.clear();
            }
        }
        woken.append(&mut held);
        woken
    }

    /// Bundles that have releases and are not listed. Meaningful once a list is complete.
    pub fn orphans(&self) -> BTreeSet<String> {
        let mut owners = self.ledger.bundles(|_| true);
        owners.retain(|owner| !self.store.is_listed(owner));
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

    /// Whether any release of this bundle is known.
    pub fn has_releases(&self, bundle: &str) -> bool {
        self.ledger.count(|entry| entry.bundle == bundle) > 0
    }

    /// The bundle is there: nothing of it is held back, and whether its objects are to be kept is known should it go. Where that cannot
    /// be written, the next deploy fails and says so. One that was lost is back when upstream lists it: what is remembered of it may be older.
    pub async fn is_back(&self, bundle: &BundleDeployment) {
        let name = bundle.name();
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
        let keep = bundle.spec.options.keep_resources;
        if let Err(failed) = self.ledger.seen(name, keep).await {
            logging::warn!(
                bundle = name,
                error = PublicText::nothing_secret_in(&failed),
                "cannot write the ledger"
            );
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
        if self.ledger.of_bundle(bundle).is_empty() {
            self.store.forget_deletion(bundle);
            self.held.forget(bundle);
            self.report.let_go(bundle);
            return Ok(Verdict::Alive);
        }
        let list = self.lister.list(missing_since).await;
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
        if verdict == Verdict::Remove
            && releases.iter().any(|(key, _)| self.is_claimed(bundle, key))
        {
            verdict = Verdict::Claimed;
        }
        match verdict {
            Verdict::Alive => self.store.forget_deletion(bundle),
            Verdict::Wait | Verdict::Neighbours => {}
            Verdict::Claimed => self.tell_claimed(bundle, releases),
            Verdict::Held(reason) => self.hold(bundle, reason, &list, releases).await?,
            Verdict::Remove => {
                // The proof does not survive a restart; that it was given does.
                let begun = self.ledger.begin_removal(bundle).await;
                begun.map_err(RemovalError::Ledger)?;
                if !self.dispose_all(releases).await? {
                    return Ok(Verdict::Neighbours);
                }
                self.store.forget_deletion(bundle);
                self.held.forget(bundle);
                self.report.let_go(bundle);
                self.events
                    .emit(Reason::Removed, bundle, "the bundledeployment was deleted");
            }
        }
        Ok(verdict)
    }

    /// Disposes of what a bundle had, as far as it does not wait for others. Whether that is all.
    async fn dispose_all(
        &self,
        mut releases: Vec<(ReleaseKey, LedgerEntry)>,
    ) -> Result<bool, RemovalError> {
        loop {
            let before = releases.len();
            let mut waiting = Vec::new();
            for (key, entry) in releases {
                match self.dispose(&key, &entry, Removal::OfBundle).await {
                    Err(RemovalError::Awaits(awaited)) => {
                        self.tell_awaited(&entry.bundle, &awaited);
                        waiting.push((key, entry));
                    }
                    done => done?,
                }
            }
            // Of those that are gone some may have been waited for.
            match waiting.len() {
                0 => return Ok(true),
                left if left == before => return Ok(false),
                _ => releases = waiting,
            }
        }
    }

    /// Removes the releases a bundle left behind when its namespace or release name changed. One that a bundle may want whose `${ }` are not
    /// filled in yet stays until the next call. One whose names were written as they are now stays for good, unless another bundle asks for it
    /// for a while: other facts filled them in, which may be missing or wrong by mistake. `is_new`: that the bundle has `current` is, so that what
    /// stays is told. When to come back for that.
    ///
    /// # Errors
    /// A release could not be removed.
    pub async fn remove_former(
        &self,
        bundle: &str,
        current: &ReleaseKey,
        is_new: bool,
    ) -> Result<Option<Duration>, RemovalError> {
        let releases = self.ledger.of_bundle(bundle);
        let is_current =
            |(key, entry): &&(ReleaseKey, LedgerEntry)| key == current && !entry.is_attempt;
        let Some((_, entry)) = releases.iter().find(is_current) else {
            // It has no other one.
            return Ok(None);
        };
        let names = entry.names.clone();
        let is_former = |(key, _): &(ReleaseKey, LedgerEntry)| key != current;
        let mut come_back: Option<Duration> = None;
        for (key, entry) in releases.into_iter().filter(is_former) {
            let is_renamed = entry.names.is_some() && entry.names == names;
            let next_owner = self.next_owner(bundle, &key);
            let removal = match is_renamed {
                true => {
                    if is_new {
                        self.tell_former(bundle, &key, current);
                    }
                    let left = self.grace_left(&entry);
                    match next_owner {
                        NextOwner::Bundle(_) if left.is_zero() => Removal::Renamed(current),
                        NextOwner::Bundle(_) => {
                            come_back = Some(come_back.map_or(left, |sooner| sooner.min(left)));
                            continue;
                        }
                        NextOwner::Unknown(_) | NextOwner::Nobody => continue,
                    }
                }
                false if matches!(next_owner, NextOwner::Unknown(_)) => continue,
                false => Removal::Superseded(current),
            };
            match self.dispose(&key, &entry, removal).await {
                Err(RemovalError::Awaits(awaited)) => {
                    self.tell_awaited(bundle, &awaited);
                    let sooner = come_back.unwrap_or(NEIGHBOURS_RETRY);
                    come_back = Some(sooner.min(NEIGHBOURS_RETRY));
                }
                done => done?,
            }
        }
        Ok(come_back)
    }

    /// A bundle asks for a release that another one has. That one gives it up where it only has it since facts may be missing, and has
    /// another one meanwhile.
    pub fn is_wanted(&self, key: &ReleaseKey, owner: &str) {
        let releases = self.ledger.of_bundle(owner);
        let is_left = |(one, entry): &(_, LedgerEntry)| one == key && entry.left_since.is_some();
        let is_had =
            |(_, entry): &(_, LedgerEntry)| !entry.is_attempt && entry.left_since.is_none();
        if releases.iter().any(is_left) && releases.iter().any(is_had) {
            self.queue.wake(owner, ReconcileKind::Full);
        }
    }

    /// How long a release is yet to be left to its bundle, which facts gave another one, whoever waits for it: they may be what they were again.
    /// Nothing is where they gave it none.
    pub fn grace_left(&self, entry: &LedgerEntry) -> Duration {
        let now = self.identities.agent().now().as_second();
        let passed = entry
            .left_since
            .map_or(0, |since| now.saturating_sub(since));
        let passed = u64::try_from(passed).unwrap_or_default();
        self.rename_grace
            .saturating_sub(Duration::from_secs(passed))
    }

    /// Takes note of the release that a bundle wants by the facts of now, `names` being namespace and name as it writes them: since when they
    /// give it another one than it has.
    ///
    /// # Errors
    /// It cannot be written; the next write tries again.
    pub async fn wants(
        &self,
        bundle: &str,
        desired: &ReleaseKey,
        names: Option<&str>,
    ) -> kube::Result<()> {
        let now = self.identities.agent().now().as_second();
        self.ledger.wants(bundle, desired, names, now).await
    }

    /// Tells of a release that stays.
    fn tell_former(&self, bundle: &str, former: &ReleaseKey, current: &ReleaseKey) {
        let text = public!(
            "release {} is not removed: that the bundle's release is {} now comes of cluster facts alone. It goes with the \
             bundle, or when the bundle asks for another name",
            *former,
            *current
        );
        logging::warn!(bundle, "{}", text);
        self.events.emit(Reason::RemovalHeld, bundle, text);
    }

    /// A bundle has no use for one of its releases any more: a bundle that waits for it gets it, or it is removed, as far as it is the bundle's.
    async fn dispose(
        &self,
        key: &ReleaseKey,
        entry: &LedgerEntry,
        removal: Removal<'_>,
    ) -> Result<(), RemovalError> {
        self.give_or_remove(key, entry, removal).await?;
        for waiting in self.neighbourhood.is_over(key) {
            self.queue.wake(&waiting, ReconcileKind::Full);
        }
        Ok(())
    }

    async fn give_or_remove(
        &self,
        key: &ReleaseKey,
        entry: &LedgerEntry,
        removal: Removal<'_>,
    ) -> Result<(), RemovalError> {
        let release = match self.uninstaller.find(key, entry).await? {
            Found::Owned(release) => release,
            Found::Gone => {
                self.uninstaller.forget(key).await?;
                if let NextOwner::Bundle(next_owner) = self.next_owner(&entry.bundle, key) {
                    self.ledger.postpones_no_more(&next_owner);
                    self.queue.wake(&next_owner, ReconcileKind::Full);
                }
                return Ok(());
            }
            Found::Foreign => {
                let text = public!(
                    "release {} is not this bundle's any more: left as it is",
                    *key
                );
                return self.give_up(key, entry, removal, text).await;
            }
            Found::Returned => {
                let text = public!(
                    "release {} was never this bundle's: left as it is, without the revisions that failed",
                    *key
                );
                return self.give_up(key, entry, removal, text).await;
            }
        };
        let next_owner = match self.next_owner(&entry.bundle, key) {
            NextOwner::Bundle(next_owner) => next_owner,
            // Who waited for it does no longer.
            NextOwner::Unknown(_) | NextOwner::Nobody if removal.leaves() => return Ok(()),
            NextOwner::Unknown(_) | NextOwner::Nobody => {
                let done = self.uninstaller.uninstall(key, entry, &release, removal);
                return done.await;
            }
        };
        if release.keeps {
            let left = self
                .uninstaller
                .leave_objects(key, entry, &release, &next_owner);
            left.await?;
            self.queue.wake(&next_owner, ReconcileKind::Full);
            return Ok(());
        }
        logging::info!(
            bundle = next_owner,
            release = key.name,
            namespace = key.namespace,
            "takes over a release"
        );
        let copies = self.uninstaller.leave_copies(key, entry, &release, removal);
        copies.await?;
        // Its next deploy is an upgrade.
        let (from, is_attempt) = (&entry.bundle, release.is_attempt);
        let written = self
            .ledger
            .hand_over(key, from, &next_owner, is_attempt, &release.proof);
        written.await.map_err(RemovalError::Ledger)?;
        self.queue.wake(&next_owner, ReconcileKind::Full);
        Ok(())
    }

    async fn give_up(
        &self,
        key: &ReleaseKey,
        entry: &LedgerEntry,
        removal: Removal<'_>,
        text: PublicText,
    ) -> Result<(), RemovalError> {
        let next_owner = match self.next_owner(&entry.bundle, key) {
            NextOwner::Bundle(next_owner) => Some(next_owner),
            NextOwner::Unknown(_) | NextOwner::Nobody => None,
        };
        let left_to = next_owner.as_deref();
        self.uninstaller
            .give_up(key, entry, removal, left_to)
            .await?;
        logging::warn!(bundle = entry.bundle, "{}", text);
        self.events
            .emit(Reason::ReleaseNotProven, &entry.bundle, text);
        if let Some(waiting) = next_owner {
            self.queue.wake(&waiting, ReconcileKind::Full);
        }
        Ok(())
    }

    fn next_owner(&self, owner: &str, key: &ReleaseKey) -> NextOwner {
        claims::next_owner(owner, key, &self.store.claimants())
    }

    fn is_claimed(&self, owner: &str, key: &ReleaseKey) -> bool {
        matches!(self.next_owner(owner, key), NextOwner::Unknown(_))
    }

    /// What a bundle's `${ }` say is known: releases that nobody wants may have waited for that.
    pub fn is_filled(&self, bundle: &str, desired: &ReleaseKey) {
        if !self.store.filled(bundle, desired) {
            return;
        }
        for (key, entry) in self.ledger.all() {
            let owner = self.store.get(&entry.bundle);
            let desired = owner.and_then(|owner| self.store.desired(&owner));
            if entry.bundle != bundle && desired.as_ref() != Some(&key) {
                self.queue.wake(&entry.bundle, ReconcileKind::Full);
            }
        }
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

    /// Tells that a removal waits for others that do not end soon: they may wait for something themselves.
    fn tell_awaited(&self, bundle: &str, awaited: &Awaited) {
        if awaited.is_again {
            let text = public!(
                "release {} is removed once the releases in namespace {} are, which are to go too",
                awaited.release,
                Name(&awaited.namespaces.join(", "))
            );
            self.events.emit(Reason::RemovalHeld, bundle, text);
        }
    }

    /// Tells that the releases of a bundle are not removed before another one's `${ }` are filled in.
    fn tell_claimed(&self, bundle: &str, releases: Vec<(ReleaseKey, LedgerEntry)>) {
        let claimant = releases
            .iter()
            .find_map(|(key, _)| match self.next_owner(bundle, key) {
                NextOwner::Unknown(claimant) => Some((claimant, key.clone())),
                NextOwner::Bundle(_) | NextOwner::Nobody => None,
            });
        let Some((claimant, key)) = claimant else {
            return;
        };
        let keys = releases.into_iter().map(|(key, _)| key).collect();
        if self.report.hold(bundle, HoldReason::MayBeWanted, keys) {
            let text = public!(
                "not removed: bundle {} may want release {}, which shows once the ${{ }} of its names are filled in",
                Name(&claimant),
                key
            );
            logging::warn!(bundle, "{}", text);
            self.events.emit(Reason::RemovalHeld, bundle, text);
        }
    }

    /// A bundle, and those that a list lacks as well and that are not held yet.
    fn gone_together(&self, bundle: &str, list: &UpstreamList) -> BTreeSet<String> {
        let mut all = self.ledger.bundles(|entry| entry.hold.is_none());
        all.retain(|one| !list.listed.contains(one));
        all.insert(bundle.to_owned());
        all
    }

    /// Keeps the releases of a bundle. Of too many at once, all are held together: what of them would be left were few enough by itself.
    async fn hold(
        &self,
        bundle: &str,
        reason: HoldReason,
        list: &UpstreamList,
        releases: Vec<(ReleaseKey, LedgerEntry)>,
    ) -> Result<(), RemovalError> {
        if releases.iter().any(|(_, entry)| entry.hold.is_none()) {
            let mut bundles = BTreeSet::from([bundle.to_owned()]);
            if reason == HoldReason::TooMany {
                self.held.note_wave();
                bundles = self.gone_together(bundle, list);
            }
            let released = self.held.hold(bundles).await;
            for released in released.map_err(RemovalError::Ledger)? {
                self.queue.wake(&released, ReconcileKind::Full);
            }
        }
        let keys = releases.into_iter().map(|(key, _)| key).collect();
        if !self.report.hold(bundle, reason, keys) {
            return Ok(());
        }
        let namespace = &self.system_namespace;
        let text = public!(
            "not removed: {}. If it is to go, annotate configmap {}/{} with {}=true",
            reason.text(),
            Name(namespace),
            LEDGER_NAME,
            RELEASE_HOLD_ANNOTATION
        );
        logging::warn!(bundle, "{}", text);
        self.events.emit(Reason::RemovalHeld, bundle, text);
        Ok(())
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
                logging::warn!(
                    error = PublicText::nothing_secret_in(&failed),
                    "cannot look for releases"
                );
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
                logging::warn!(
                    error = PublicText::nothing_secret_in(&failed),
                    "cannot look for unknown releases"
                );
                return;
            }
        };
        unknown.retain(|one| !self.is_expected(&one.bundle, &one.key));
        for one in self.report.unknown(unknown) {
            let ReleaseKey { namespace, name } = &one.key;
            logging::warn!(
                release = name,
                namespace,
                bundle = one.bundle,
                "a release that the ledger does not know is left alone"
            );
            self.events.emit(
                Reason::UnknownRelease,
                &one.bundle,
                public!(
                    "release {}/{} names this bundle, but the ledger does not know it: left alone",
                    Name(namespace),
                    Name(name)
                ),
            );
        }
    }

    /// Whether a live bundle is about to enter this release.
    fn is_expected(&self, bundle: &str, key: &ReleaseKey) -> bool {
        self.store.get(bundle).is_some_and(|bundle| {
            self.store.desired(&bundle).as_ref() == Some(key)
                && plan::suspend_reason(&bundle.spec).is_none()
        })
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
