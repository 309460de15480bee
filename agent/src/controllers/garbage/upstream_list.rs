//! The list of our BundleDeployments upstream, compared each time with the upstream that was seen before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::core::Status;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::check_schedule::CheckSchedule;
use super::error::RemovalError;
use crate::api::BundleDeployment;
use crate::bundle::agent_bundle_name;
use crate::client::health::Health;
use crate::client::listed::{self, Metadata, RawObject};
use crate::controllers::queue::Queue;
use crate::controllers::spec_identity::SpecIdentity;
use crate::controllers::store::Store;
use crate::error::{self, ListUnended};
use crate::ledger::{
    ContinuityBreak, Ledger, Listed, ReleaseKey, Remembered, Renewal, UpstreamState, is_own,
};
use crate::public;
use crate::public::{Name, PublicText};
use crate::register::Upstream;
use crate::report::events::{Events, Reason};

/// A list this young when it is asked for proves as much as a fresh one: ten removals at once share one list.
const REUSED_FOR: Duration = Duration::from_secs(1);

/// A fresh, successful list.
pub(super) struct UpstreamList {
    pub(super) listed: BTreeSet<String>,
    /// The identities of the listed BundleDeployments; none of those known only from events.
    pub(super) identities: Vec<(String, SpecIdentity)>,
    /// The agent's own BundleDeployment is listed, and not being deleted.
    pub(super) own_is_listed: bool,
    /// Something that is listed is not being deleted.
    pub(super) has_live_bundles: bool,
}

/// How often upstream is listed at once where its connection breaks meanwhile: who asked comes back later then.
const LIST_TRIES: usize = 3;

/// How soon a list that upstream did not end is asked for again, at first and at most: everybody who waits for one would have it read again.
const UNENDED_RETRY: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(3600)];

/// A list that upstream did not end.
struct Unended {
    failed: ListUnended,
    pause: Duration,
    next: Instant,
}

impl Unended {
    /// One more of them in a row.
    fn again(before: Option<Self>, failed: ListUnended) -> Self {
        let [first, longest] = UNENDED_RETRY;
        let pause = before.map_or(first, |before| (before.pause * 2).min(longest));
        Self {
            failed,
            pause,
            next: Instant::now() + pause,
        }
    }

    fn failure(&self) -> kube::Error {
        kube::Error::Service(Box::new(self.failed.clone()))
    }
}

/// Lists the BundleDeployments of upstream.
pub(super) struct UpstreamLister {
    upstream: Upstream,
    store: Arc<Store>,
    queue: Arc<Queue>,
    ledger: Arc<Ledger>,
    events: Arc<Events>,
    health: Health,
    /// What Fleet calls the agent's own BundleDeployment.
    own_name: String,
    last: Mutex<Option<(Instant, Arc<UpstreamList>)>>,
    /// Where upstream did not end the last one.
    unended: Mutex<Option<Unended>>,
    /// The last list that could not be noted, which proves nothing.
    unnoted: parking_lot::Mutex<Option<Arc<UpstreamList>>>,
    /// The agent's own BundleDeployments, uids by names, where they are others than the ledger notes, and since when.
    renewed: parking_lot::Mutex<Option<(BTreeMap<String, String>, Instant)>>,
    /// For how long few bundles must have vanished before those are noted.
    settle: Duration,
    /// Up to which of the ledger's doubts upstream has said which heartbeat it remembers. Held while it is asked.
    answered: Mutex<u64>,
    /// Up to which a list was compared since then.
    compared: AtomicU64,
    /// Why upstream did not say so the last time, and when it is asked again.
    refused: parking_lot::Mutex<Option<Refusal>>,
}

/// A question that upstream refuses to answer, as long as nobody gives the rights back: everybody who waits for it would ask.
struct Refusal {
    status: Box<Status>,
    /// By the doubt, and by the last heartbeat that it took.
    schedule: CheckSchedule<(u64, Option<i64>)>,
}

impl UpstreamLister {
    pub(super) fn new(
        upstream: &Upstream,
        store: &Arc<Store>,
        queue: &Arc<Queue>,
        ledger: &Arc<Ledger>,
        events: &Arc<Events>,
        health: &Health,
        settle: Duration,
    ) -> Self {
        Self {
            upstream: upstream.clone(),
            store: Arc::clone(store),
            queue: Arc::clone(queue),
            ledger: Arc::clone(ledger),
            events: Arc::clone(events),
            health: health.clone(),
            own_name: agent_bundle_name(&upstream.cluster_name),
            last: Mutex::default(),
            unended: Mutex::default(),
            unnoted: parking_lot::Mutex::default(),
            renewed: parking_lot::Mutex::default(),
            settle,
            answered: Mutex::default(),
            compared: AtomicU64::default(),
            refused: parking_lot::Mutex::default(),
        }
    }

    /// Drops the result of the last comparison: the connection broke, and upstream may be a restored backup by now, whatever version a
    /// watch goes on from. A comparison that is under way settles nothing then.
    pub(super) fn doubt(&self) {
        self.ledger.doubt_upstream();
        self.health.compares();
    }

    /// Lists, and compares upstream with what it was, by the last heartbeat it remembers too, unless that was done since it was last in doubt. False
    /// where it is in doubt again by the end, or still: nothing proves anything then.
    ///
    /// # Errors
    /// As [`UpstreamLister::list`].
    pub(super) async fn compare(&self) -> Result<bool, RemovalError> {
        if self.is_compared() {
            return Ok(true);
        }
        let mut answered = self.answered.lock().await;
        let doubt = self.ledger.doubts();
        if *answered != doubt {
            let sent = self.ledger.seen_heartbeat();
            let state = (doubt, sent.at);
            if let Some(refused) = &mut *self.refused.lock()
                && !refused.schedule.is_due(state)
            {
                let refusal = kube::Error::Api(refused.status.clone());
                return Err(RemovalError::Compare(refusal));
            }
            let remembered = self.last_heartbeat().await;
            self.note_refusal(state, remembered.as_ref().err());
            let remembered = remembered?;
            let noted = self.ledger.asked_upstream(doubt, remembered, &sent).await;
            noted.map_err(RemovalError::Ledger)?;
            *answered = doubt;
        }
        self.fresh(Instant::now()).await?;
        if self.renewed.lock().is_some() {
            // List again until the new uid is noted.
            return Ok(false);
        }
        self.compared.store(doubt, Ordering::Release);
        let is_compared = self.is_compared();
        if is_compared {
            self.health.compared();
        }
        Ok(is_compared)
    }

    /// Takes note of how upstream answered which heartbeat it remembers.
    fn note_refusal(&self, state: (u64, Option<i64>), failed: Option<&RemovalError>) {
        let mut refused = self.refused.lock();
        let failed = failed.and_then(RemovalError::of_upstream);
        *refused = match failed {
            Some(kube::Error::Api(status)) if failed.is_some_and(error::is_refused) => {
                let before = refused.take().map(|refused| refused.schedule);
                Some(Refusal {
                    status: status.clone(),
                    schedule: before.unwrap_or_else(|| CheckSchedule::of(state)),
                })
            }
            _ => None,
        };
    }

    fn is_compared(&self) -> bool {
        // A break that was found since then is compared with a list too.
        self.compared.load(Ordering::Acquire) == self.ledger.doubts() && !self.ledger.is_broken()
    }

    /// A list that was begun no earlier than `not_before`. Before upstream was compared with what it was, none proves anything, nor does one that was
    /// under way when that was in doubt again: some of its pages may be a backup's.
    ///
    /// # Errors
    /// Upstream does not answer, or not with a list or with its last heartbeat; the ledger cannot be written.
    pub(super) async fn list(
        &self,
        not_before: Instant,
    ) -> Result<Arc<UpstreamList>, RemovalError> {
        for _ in 0..LIST_TRIES {
            let doubt = self.ledger.doubts();
            self.compare().await?;
            let list = self.fresh(not_before).await?;
            if self.ledger.doubts() == doubt {
                return Ok(list);
            }
        }
        let problem = "its connection broke each time that it was listed";
        Err(RemovalError::Compare(kube::Error::Service(problem.into())))
    }

    /// The last list that was noted, however old: after one that is under way.
    pub(super) async fn last(&self) -> Option<Arc<UpstreamList>> {
        let last = self.last.lock().await;
        last.as_ref().map(|(_, list)| Arc::clone(list))
    }

    /// The release that a bundle wants as upstream has it, whatever the watch has delivered, which may be dead unnoticed. Nothing where it is
    /// not there, or cannot be read, or the names of its release are yet to be filled in.
    ///
    /// # Errors
    /// Upstream does not answer, or refuses to.
    pub(super) async fn desired(&self, bundle: &str) -> Result<Option<ReleaseKey>, RemovalError> {
        let bundles = self
            .upstream
            .bundle_deployments::<RawObject<BundleDeployment>>();
        let found = error::found(bundles.get(bundle).await).map_err(RemovalError::Ask)?;
        let found = found.and_then(|found| found.kept().ok());
        Ok(found.and_then(|found| self.store.desired_by(&found)))
    }

    /// Takes the last list that could not be noted.
    pub(super) fn take_unnoted(&self) -> Option<Arc<UpstreamList>> {
        self.unnoted.lock().take()
    }

    /// The last heartbeat of this agent by upstream's own account; none where there never were rights to ask. They allow no GET of the Cluster: a patch
    /// that changes nothing is answered with the same. Rights that are gone are made anew, as with a role: until then nothing is compared.
    async fn last_heartbeat(&self) -> Result<Option<Remembered>, RemovalError> {
        let clusters = self.upstream.clusters();
        let nothing = Patch::Merge(serde_json::json!({}));
        let answer = clusters
            .patch_status(
                &self.upstream.cluster_name,
                &PatchParams::default(),
                &nothing,
            )
            .await;
        match answer {
            Ok(cluster) => Ok(Some(Remembered::of(&cluster))),
            Err(failed) if error::is_not_found(&failed) => Ok(Some(Remembered::gone())),
            Err(failed) if error::has_code(&failed, 403) && !self.was_answered() => {
                let error = PublicText::nothing_secret_in(&failed);
                logging::debug!(error, "cannot read upstream's last heartbeat");
                Ok(None)
            }
            Err(failed) => Err(RemovalError::Compare(failed)),
        }
    }

    /// Whether upstream ever said which heartbeat it remembers, if only that an import has put it back to none: the right was there then.
    fn was_answered(&self) -> bool {
        self.ledger.seen_heartbeat().at.is_some()
    }

    async fn fresh(&self, not_before: Instant) -> Result<Arc<UpstreamList>, RemovalError> {
        // Before one that is under way is waited for, which may take long.
        let asked = Instant::now();
        // One at a time, so that lists are compared in the order they were made.
        let mut last = self.last.lock().await;
        if let Some((at, list)) = &*last
            && asked.saturating_duration_since(*at) < REUSED_FOR
            && *at >= not_before
        {
            return Ok(Arc::clone(list));
        }
        let mut unended = self.unended.lock().await;
        if let Some(unended) = &*unended
            && asked < unended.next
        {
            return Err(RemovalError::List(unended.failure()));
        }
        let bundles = self
            .upstream
            .bundle_deployments::<Metadata<BundleDeployment>>();
        let at = Instant::now();
        let (seen_version, was_broken) = (self.ledger.seen_version(), self.ledger.is_broken());
        let seen = self.store.versions();
        let mut is_older = false;
        let (mut listed, mut identities) = (BTreeSet::new(), Vec::new());
        let (mut leaving, mut own) = (BTreeSet::new(), BTreeMap::new());
        let mut names = |item: Metadata<BundleDeployment>| {
            is_older |= seen.is_older(&item.metadata);
            let identity = SpecIdentity::of(&item.metadata);
            let name = item.metadata.name.unwrap_or_default();
            identities.push((name.clone(), identity));
            if item.metadata.deletion_timestamp.is_some() {
                leaving.insert(name.clone());
            } else if is_own(&name, None) {
                own.insert(name.clone(), item.metadata.uid);
            }
            name
        };
        let take = |page: Vec<_>| listed.extend(page.into_iter().map(&mut names));
        let answer = listed::list(&bundles, take).await;
        let failed = answer.as_ref().err().and_then(error::unended_list);
        *unended = failed.map(|failed| Unended::again(unended.take(), failed.clone()));
        let answer = answer.map_err(|failed| {
            if [401, 403, 404]
                .iter()
                .any(|code| error::has_code(&failed, *code))
            {
                // The namespace or the type may have been deleted, and its bundles with it: no proof.
                self.store.forget_deletions();
            }
            RemovalError::List(failed)
        })?;
        if is_older {
            self.ledger.found_restored();
        }
        let own_name = self.known_own(&listed);
        own.retain(|name, _| is_own(name, own_name));
        let has_own = !own.is_empty();
        let own = own.into_iter().filter_map(|(name, uid)| Some((name, uid?)));
        let own: BTreeMap<_, _> = own.collect();
        let version = answer.and_then(|text| text.parse().ok());
        let list = Arc::new(UpstreamList {
            own_is_listed: has_own,
            has_live_bundles: listed.len() > leaving.len(),
            listed,
            identities,
        });
        let now = UpstreamState {
            server: self.upstream.server.clone(),
            namespace: self.upstream.namespace.clone(),
            version: version.unwrap_or_default(),
            has_own,
            own: own.clone(),
            ..UpstreamState::default()
        };
        let renewal = self.renewal(&own, &list.listed);
        let there = self.store.still_there(&list.listed, at);
        let mut known = self.store.names();
        known.extend(self.queue.running());
        let listed = Listed {
            all: &list.listed,
            leaving: &leaving,
            there: &there,
            known: &known,
            own_name,
            was_broken: was_broken || is_older,
            renewal,
        };
        let (found, must_write) = self.ledger.check_continuity(now, seen_version, listed);
        // Before anything is waited for: what was found is not found by another list.
        match found {
            Some(ContinuityBreak::Recreated) => {
                *self.renewed.lock() = Some((own, at));
                self.doubt();
            }
            None if renewal != Renewal::Reported => *self.renewed.lock() = None,
            Some(_) | None => {}
        }
        if let Some(found) = found {
            self.report(found);
        }
        if must_write && let Err(failed) = self.ledger.write().await {
            *self.unnoted.lock() = Some(list);
            return Err(RemovalError::Ledger(failed));
        }
        *last = Some((at, Arc::clone(&list)));
        Ok(list)
    }

    /// What the agent's own BundleDeployment is called, where that is `listed` or was ever there.
    pub(super) fn known_own(&self, listed: &BTreeSet<String>) -> Option<&str> {
        let is_known = listed.contains(&self.own_name) || self.ledger.knows_own(&self.own_name);
        is_known.then_some(&*self.own_name)
    }

    /// How far it is known that these are the agent's own.
    fn renewal(&self, own: &BTreeMap<String, String>, listed: &BTreeSet<String>) -> Renewal {
        let since = match &*self.renewed.lock() {
            Some((known, since)) if known == own => *since,
            _ => return Renewal::New,
        };
        let is_over = self.store.settles_in(self.settle, listed).is_none();
        match since.elapsed() >= self.settle && is_over {
            true => Renewal::Confirmed,
            false => Renewal::Reported,
        }
    }

    fn report(&self, found: ContinuityBreak) {
        let text = match found {
            ContinuityBreak::Elsewhere => "upstream is another one than before",
            ContinuityBreak::Restored => "upstream, or this cluster, was restored from a backup",
            ContinuityBreak::Recreated => "the agent's own bundledeployment was made anew",
        };
        logging::warn!(
            server = Name(&self.upstream.server),
            "{}: what is not listed now is kept",
            text
        );
        self.events.emit_for_agent(
            Reason::UpstreamRestored,
            public!(
                "{}: releases whose bundledeployment is not listed are kept",
                text
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    use futures_util::future::join_all;
    use http::{Method, Request};
    use kube::client::Body;
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::client::requests::Clients;
    use crate::client::scripted;
    use crate::controllers::queue::Backoff;
    use crate::report::metrics::Metrics;

    /// A lister of what these clients answer, with the ledger that they have.
    async fn lister(clients: &Clients, settle: Duration, metrics: &Metrics) -> UpstreamLister {
        let agent = scripted::identities(clients).agent();
        let ledger = Arc::new(Ledger::load(&agent, "system").await.unwrap());
        let events = Arc::new(Events::new(&agent, "system", "host", metrics.clone()));
        let health = Health::new(Duration::from_secs(300));
        let upstream = Upstream::scripted(clients);
        let backoff = Backoff {
            min: settle,
            max: settle,
        };
        UpstreamLister::new(
            &upstream,
            &Arc::default(),
            &Arc::new(Queue::new(backoff, metrics.clone())),
            &ledger,
            &events,
            &health,
            settle,
        )
    }

    /// A watch that breaks does not wait for the comparison that is under way, which proves nothing of what comes after.
    #[tokio::test(start_paused = true)]
    async fn a_broken_connection_asks_for_a_comparison_after_the_one_under_way() {
        let slow = Duration::from_secs(20);
        let clients = scripted::clients(move |request: Request<Body>| async move {
            if request.method() == Method::PATCH {
                tokio::time::sleep(slow).await;
                return (200, json!({"metadata": {}, "spec": {}}));
            }
            let metadata = json!({"resourceVersion": "5"});
            (200, json!({"metadata": metadata, "items": []}))
        });
        let lister = lister(&clients, Duration::ZERO, &Metrics::default()).await;
        let begun = Instant::now();
        let doubting = async {
            tokio::time::sleep(slow / 2).await;
            lister.doubt();
            begun.elapsed()
        };
        let (compared, doubted) = tokio::join!(lister.compare(), doubting);
        assert!(!compared.unwrap());
        assert!(doubted < slow, "{doubted:?}");
        assert!(!lister.is_compared());
        assert!(lister.compare().await.unwrap());
        assert!(lister.is_compared());
        assert!(begun.elapsed() >= slow * 2);
    }

    /// As where a proxy ends watches sooner than a list is answered.
    #[tokio::test(start_paused = true)]
    async fn an_upstream_whose_connection_breaks_during_each_list_is_asked_again_later() {
        let slow = Duration::from_secs(20);
        let clients = scripted::clients(move |_: Request<Body>| async move {
            tokio::time::sleep(slow).await;
            let metadata = json!({"resourceVersion": "5"});
            (200, json!({"metadata": metadata, "spec": {}, "items": []}))
        });
        let lister = lister(&clients, Duration::ZERO, &Metrics::default()).await;
        let breaking = async {
            loop {
                tokio::time::sleep(slow / 2).await;
                lister.doubt();
            }
        };
        let listed = async {
            tokio::select! {
                listed = lister.list(Instant::now()) => listed.is_ok(),
                () = breaking => true,
            }
        };
        let listed = tokio::time::timeout(slow * 20, listed).await;
        assert!(!listed.expect("it is listed without end"));
    }

    /// Otherwise no removal is ever looked at again, and what is listed fills the memory.
    #[tokio::test(start_paused = true)]
    async fn a_list_that_upstream_does_not_end_proves_nothing() {
        let pages = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&pages);
        let clients = scripted::clients(move |request: Request<Body>| {
            let is_list = request.uri().path().ends_with("/bundledeployments");
            let page = counted.fetch_add(usize::from(is_list), Ordering::Relaxed);
            assert!(page < 10_000, "it is listed without end");
            let metadata = json!({"resourceVersion": "5", "continue": "x"});
            let items = json!([{"metadata": {"name": page.to_string(), "uid": "u"}}]);
            async move {
                (
                    200,
                    json!({"metadata": metadata, "spec": {}, "items": items}),
                )
            }
        });
        let lister = lister(&clients, Duration::ZERO, &Metrics::default()).await;
        let mut asked = Vec::new();
        // As many as come want a list each, every 20 s.
        for _ in 0..3 * 60 * 4 {
            let Err(failed) = lister.list(Instant::now()).await else {
                panic!("it is listed");
            };
            let text = error::chain(&failed);
            let expected = "bundledeployments does not end: a page goes on with itself";
            assert!(text.ends_with(expected), "{text}");
            asked.push(pages.load(Ordering::Relaxed));
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
        assert!(lister.last.lock().await.is_none() && !lister.is_compared());
        // Two pages each; after 1, 2, 4, 8, 16, 32 and 60 minutes.
        asked.dedup();
        assert_eq!(asked, [2, 4, 6, 8, 10, 12, 14, 16, 18]);
    }

    /// Upstream is restored while it is listed, and the list lacks a bundle that is back.
    #[tokio::test(start_paused = true)]
    async fn a_list_during_which_the_connection_broke_is_made_again() {
        let slow = Duration::from_secs(10);
        let (lists, comparisons) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (listed, compared) = (Arc::clone(&lists), Arc::clone(&comparisons));
        let clients = scripted::clients(move |request: Request<Body>| {
            let path = request.uri().path();
            let is_list = path.ends_with("/bundledeployments");
            let lacks = is_list && listed.fetch_add(1, Ordering::Relaxed) == 1;
            compared.fetch_add(usize::from(path.contains("/clusters/")), Ordering::Relaxed);
            async move {
                if is_list {
                    tokio::time::sleep(slow).await;
                }
                let items = match lacks {
                    true => json!([]),
                    false => json!([{"metadata": {"name": "web", "uid": "u"}}]),
                };
                let metadata = json!({"resourceVersion": "5"});
                (
                    200,
                    json!({"metadata": metadata, "spec": {}, "items": items}),
                )
            }
        });
        let lister = lister(&clients, Duration::ZERO, &Metrics::default()).await;
        lister.compare().await.unwrap();
        let doubting = async {
            tokio::time::sleep(slow / 2).await;
            lister.doubt();
        };
        let (list, ()) = tokio::join!(lister.list(Instant::now()), doubting);
        assert!(list.unwrap().listed.contains("web"));
        assert_eq!(comparisons.load(Ordering::Relaxed), 2);
    }

    /// The namespace may have been deleted, and its bundles with it.
    #[tokio::test(start_paused = true)]
    async fn deletions_seen_stop_counting_where_upstream_refuses_the_list() {
        for (code, is_proof) in [(401, false), (403, false), (404, false), (500, true)] {
            let clients = scripted::clients(move |request: Request<Body>| {
                let refused = json!({
                    "kind": "Status", "status": "Failure", "code": code, "reason": "NotFound",
                });
                let answer = match request.uri().path().ends_with("/bundledeployments") {
                    true => (code, refused),
                    false => (200, json!({"metadata": {}, "spec": {}})),
                };
                std::future::ready(answer)
            });
            let lister = lister(&clients, Duration::ZERO, &Metrics::default()).await;
            lister.store.deleted("web");
            let list = lister.list(Instant::now()).await;
            assert!(matches!(list, Err(RemovalError::List(_))), "{code}");
            let is_seen = lister.store.deleted_since("web").is_some();
            assert_eq!(is_seen, is_proof, "{code}");
        }
    }

    /// Twenty bundles are gone at once, and upstream takes its time: half of the removals ask while it lists for the others.
    #[tokio::test(start_paused = true)]
    async fn removals_that_wait_for_a_slow_list_share_the_next_one() {
        let slow = Duration::from_secs(10);
        let lists = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&lists);
        let clients = scripted::clients(move |request: Request<Body>| {
            let is_list = request.uri().path().ends_with("/bundledeployments");
            counted.fetch_add(usize::from(is_list), Ordering::Relaxed);
            async move {
                if is_list {
                    tokio::time::sleep(slow).await;
                }
                let metadata = json!({"resourceVersion": "5"});
                (200, json!({"metadata": metadata, "spec": {}, "items": []}))
            }
        });
        let lister = lister(&clients, Duration::ZERO, &Metrics::default()).await;
        lister.compare().await.unwrap();
        lists.store(0, Ordering::Relaxed);
        let removals = (0..20).map(async |number| {
            tokio::time::sleep(slow / 2 * (number % 2)).await;
            lister.list(Instant::now()).await.unwrap();
        });
        join_all(removals).await;
        assert_eq!(lists.load(Ordering::Relaxed), 2);
    }

    /// A role is made anew: what the heartbeat would show is not known meanwhile. Where there never was a right to report, nothing is to be shown.
    #[rstest]
    #[case::reported(r#""reported": 100, "#, false)]
    #[case::set_back_by_an_import(r#""reported": 0, "#, false)]
    #[case::never_reported("", true)]
    #[tokio::test(start_paused = true)]
    async fn rights_to_report_that_are_gone_leave_removals_unproven(
        #[case] reported: &'static str,
        #[case] is_proof: bool,
    ) {
        let clients = scripted::clients(move |request: Request<Body>| {
            let forbidden = json!({
                "kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden",
            });
            let seen = format!(
                r#"{{{reported}"cluster": "one", "server": "http://scripted", "namespace": "bundles", "version": 5}}"#
            );
            let annotations = json!({"fleet.cattle.io/upstream": seen});
            let metadata = json!({"resourceVersion": "5", "annotations": annotations});
            let answer = match request.uri().path().contains("/clusters/") {
                true => (403, forbidden),
                false => (200, json!({"metadata": metadata, "items": []})),
            };
            std::future::ready(answer)
        });
        let lister = lister(&clients, Duration::ZERO, &Metrics::default()).await;
        for _ in 0..2 {
            match lister.list(Instant::now()).await {
                Ok(_) => assert!(is_proof),
                Err(RemovalError::Compare(_)) => assert!(!is_proof),
                Err(failed) => panic!("{failed}"),
            }
            assert_eq!(lister.is_compared(), is_proof);
        }
    }

    /// What was begun goes on without a list only where nothing is known against it.
    #[tokio::test(start_paused = true)]
    async fn a_break_that_is_found_after_a_comparison_is_compared_too() {
        let clients = scripted::clients(|_: Request<Body>| async {
            let metadata = json!({"resourceVersion": "5"});
            (200, json!({"metadata": metadata, "spec": {}, "items": []}))
        });
        let lister = lister(&clients, Duration::ZERO, &Metrics::default()).await;
        assert!(lister.compare().await.unwrap());
        lister.ledger.found_restored();
        assert!(!lister.is_compared());
        tokio::time::advance(REUSED_FOR).await;
        assert!(lister.compare().await.unwrap() && lister.ledger.breaks() == 1);
    }

    /// Otherwise each list found it anew, with an Event and a new watch, or nobody was told of it.
    #[tokio::test(start_paused = true)]
    async fn a_break_that_cannot_be_written_is_found_and_told_once() {
        for (version, uid) in [("5", "two"), ("4", "one")] {
            let is_writable = Arc::new(AtomicBool::new(false));
            let writable = Arc::clone(&is_writable);
            let clients = scripted::clients(move |request: Request<Body>| {
                let is_ledger = request.uri().path().contains("/configmaps/");
                let is_write = request.method() != Method::GET;
                let is_refused = is_ledger && is_write && !writable.load(Ordering::Relaxed);
                let answer = match (is_ledger, is_write) {
                    _ if is_refused => json!({"kind": "Status", "status": "Failure", "code": 500}),
                    (true, _) => {
                        let seen = json!({
                            "server": "http://scripted", "namespace": "bundles", "version": 5,
                            "hasOwn": true, "ownUids": {"fleet-agent-c1": "one"},
                        });
                        let annotations = json!({"fleet.cattle.io/upstream": seen.to_string()});
                        json!({
                            "metadata": {"resourceVersion": "1", "annotations": annotations},
                            "data": {"apps_web": r#"{"bundle":"web"}"#},
                        })
                    }
                    (false, true) => json!({"metadata": {}, "spec": {}}),
                    (false, false) => {
                        let own = json!({"name": "fleet-agent-c1", "uid": uid});
                        json!({"metadata": {"resourceVersion": version}, "items": [{"metadata": own}]})
                    }
                };
                async move { (if is_refused { 500 } else { 200 }, answer) }
            });
            let (settle, metrics) = (Duration::from_secs(60), Metrics::default());
            let lister = lister(&clients, settle, &metrics).await;
            for _ in 0..3 {
                let list = lister.list(Instant::now()).await;
                assert!(matches!(list, Err(RemovalError::Ledger(_))), "{version}");
                tokio::time::advance(REUSED_FOR * 2).await;
            }
            assert_eq!(lister.ledger.breaks(), 1, "{version}");
            let expected = "fleet_agent_events_total{reason=\"UpstreamRestored\"} 1\n";
            assert!(metrics.encode().contains(expected), "{}", metrics.encode());
            is_writable.store(true, Ordering::Relaxed);
            lister.list(Instant::now()).await.unwrap();
            assert!(lister.ledger.is_lost("web"), "{version}");
            tokio::time::advance(settle).await;
            lister.list(Instant::now()).await.unwrap();
            assert_eq!(lister.ledger.breaks(), 1, "{version}");
            assert!(lister.renewed.lock().is_none() && lister.is_compared());
        }
    }

    /// Somebody else's bundle that is called alike proves nothing once it is known which one is the agent's own.
    #[rstest]
    #[case::never_seen("", &["fleet-agent-edge"], true)]
    #[case::called_alike("", &["fleet-agents"], false)]
    #[case::both_are_there("", &["fleet-agent-cluster", "fleet-agent-edge"], true)]
    #[case::it_is_being_deleted("", &["-fleet-agent-cluster", "fleet-agent-edge"], false)]
    #[case::it_was_seen(r#""ownUids": {"fleet-agent-cluster": "u"},"#, &["fleet-agent-edge"], false)]
    #[case::others_were_seen(r#""ownUids": {"fleet-agent-edge": "u"},"#, &["fleet-agent-edge"], true)]
    #[tokio::test(start_paused = true)]
    async fn only_the_agents_own_bundle_proves_that_upstream_is_the_same(
        #[case] noted: &str,
        #[case] items: &'static [&'static str],
        #[case] expected: bool,
    ) {
        let seen = r#""server": "http://scripted", "namespace": "bundles", "version": 5"#;
        let seen = format!("{{{noted} {seen}}}");
        let clients = scripted::clients(move |request: Request<Body>| {
            let item = |name: &&str| match name.strip_prefix('-') {
                Some(name) => {
                    json!({"name": name, "uid": "u", "deletionTimestamp": "2030-01-01T00:00:00Z"})
                }
                None => json!({"name": name, "uid": "u"}),
            };
            let items: Vec<_> = items
                .iter()
                .map(|name| json!({"metadata": item(name)}))
                .collect();
            let annotations = json!({"fleet.cattle.io/upstream": seen});
            let metadata = json!({"resourceVersion": "5", "annotations": annotations});
            let is_list = request.uri().path().ends_with("/bundledeployments");
            let answer = match is_list {
                true => json!({"metadata": metadata, "items": items}),
                false => json!({"metadata": metadata, "spec": {}}),
            };
            async { (200, answer) }
        });
        let lister = lister(&clients, Duration::ZERO, &Metrics::default()).await;
        let list = lister.list(Instant::now()).await.unwrap();
        assert_eq!(list.own_is_listed, expected);
    }

    /// The agent's own bundle was deployed before upstream was noted.
    #[tokio::test]
    async fn the_agents_own_bundle_is_known_where_it_was_deployed() {
        let clients = scripted::clients(|_| async {
            let data = json!({"system_agent": r#"{"bundle":"fleet-agent-cluster"}"#});
            (
                200,
                json!({"metadata": {"resourceVersion": "5"}, "data": data}),
            )
        });
        let lister = lister(&clients, Duration::ZERO, &Metrics::default()).await;
        let known = lister.known_own(&BTreeSet::new());
        assert_eq!(known, Some("fleet-agent-cluster"));
    }

    /// A proxy before upstream knows no address while it loads; the Cluster is gone where the API server says so.
    #[tokio::test]
    async fn a_404_page_does_not_mean_that_the_cluster_is_gone() {
        for (body, is_gone) in [
            (json!("404 page not found"), false),
            (json!({"code": 404, "message": "404 page not found"}), false),
            (
                json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"}),
                true,
            ),
        ] {
            let clients = scripted::clients(move |request: Request<Body>| {
                let list = json!({"metadata": {"resourceVersion": "5"}, "items": []});
                let answer = match request.method() {
                    &Method::PATCH => (404, body.clone()),
                    _ => (200, list),
                };
                async { answer }
            });
            let lister = lister(&clients, Duration::ZERO, &Metrics::default()).await;
            let remembered = lister.last_heartbeat().await;
            assert_eq!(
                remembered.is_ok_and(|remembered| remembered.is_some()),
                is_gone
            );
        }
    }
}
