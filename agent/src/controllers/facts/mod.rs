//! Facts about this cluster for `${ }`, kept current, and whether its site holds deploys.
//!
//! Facts are read when the first bundle asks, and again when a watch says that a source changed: each source is one object, watched by its name. A bundle is woken
//! only if something its templates read is different then. The site's ConfigMap is watched from the start: its
//! annotation stops all changes to the cluster while reporting goes on.

mod local;
mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::ObjectMeta;
use kube::{Api, Resource};
use parking_lot::Mutex;
use templating::Reads;
use tokio::sync::Notify;
use tokio::time::Instant;

use read::Objects;
pub use read::{FactsReader, ReadError};

use super::queue::{Queue, ReconcileKind};
use super::source_watch::{self, Seen};
use crate::api::{Cluster, HOLD_ANNOTATION};
use crate::client::listed::Metadata;
use crate::client::watch::Backoff;
use crate::public;
use crate::public::{Public, PublicText};
use crate::report::metrics::Entries;
use crate::values::{AGENT_MAP, Gathered};

/// Sources often change together: a deploy of the agent's chart, a registration.
const DEBOUNCE: Duration = Duration::from_millis(300);
/// The pause after the last of a growing series, which has no last.
const READ_RETRY: Duration = Duration::from_secs(10);

/// How often facts that change meanwhile are read for one answer.
const MOST_READS: u32 = 3;

/// Whether the site lets things change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum HoldState {
    /// Not read yet.
    #[default]
    Unknown,
    Free,
    /// Held, with the reason that the annotation gives.
    Held(PublicText),
}

impl Public for HoldState {
    fn fmt_public(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::Free => f.write_str("free"),
            Self::Held(reason) => reason.fmt_public(f),
        }
    }
}

/// What the site said last, to whichever session: what it may not be asked any more holds on.
#[derive(Debug, Default)]
pub struct LastHold(Mutex<HoldState>);

/// What a bundle's templates read, and what stood there.
struct Reader {
    reads: Reads,
    digest: String,
}

#[derive(Default)]
struct State {
    /// As no watch has said otherwise since.
    objects: Option<Arc<Objects>>,
    gathered: Option<Arc<Gathered>>,
    /// Counts invalidations, so that a slow read does not outlive one.
    version: u64,
    readers: BTreeMap<String, Reader>,
    hold: HoldState,
    /// Bundles whose status shows the hold.
    held: BTreeSet<String>,
}

/// A read that failed, and when it began: who had asked by then shares the failure. What a read gives is shared until a source changes.
struct FailedRead {
    asked: Instant,
    error: Arc<ReadError>,
}

impl FailedRead {
    /// Whether this read answers a question that was asked at `since`.
    fn is_for(&self, since: Instant) -> bool {
        self.asked >= since
    }
}

/// The facts; shared by all reconciles.
pub struct Facts {
    reader: FactsReader,
    refresh: Duration,
    queue: Arc<Queue>,
    state: Mutex<State>,
    /// Held while the sources are read, which may take as long as upstream takes to say nothing.
    reading: tokio::sync::Mutex<Option<FailedRead>>,
    requested: Notify,
    dirty: Notify,
    hold_known: Notify,
    last_hold: Arc<LastHold>,
}

impl Facts {
    /// Facts that nobody asked for yet. `refresh` is how often local facts and refused sources are tried again.
    pub fn new(
        reader: FactsReader,
        refresh: Duration,
        queue: Arc<Queue>,
        last_hold: Arc<LastHold>,
    ) -> Self {
        Self {
            reader,
            refresh,
            queue,
            state: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
            requested: Notify::new(),
            dirty: Notify::new(),
            hold_known: Notify::new(),
            last_hold,
        }
    }

    /// The facts as they are now.
    ///
    /// # Errors
    /// A source cannot be read or makes no sense. One that is absent is no error, nor is one that is forbidden and was never read.
    pub async fn current(&self) -> Result<Arc<Gathered>, Arc<ReadError>> {
        self.requested.notify_one();
        let since = Instant::now();
        // One reads at a time; those who wait get what it read, or its failure: each of them keeps a worker.
        let mut failed = self.reading.lock().await;
        if let Some(gathered) = self.known() {
            return Ok(gathered);
        }
        if let Some(failed) = failed.as_ref().filter(|failed| failed.is_for(since)) {
            return Err(Arc::clone(&failed.error));
        }
        let mut reads = 0;
        loop {
            let asked = Instant::now();
            let version = self.state.lock().version;
            let gathered = self.read(version).await.map_err(|error| {
                let error = Arc::new(error);
                *failed = Some(FailedRead {
                    asked,
                    error: Arc::clone(&error),
                });
                error
            })?;
            reads += 1;
            let mut state = self.state.lock();
            if state.version == version {
                state.gathered = Some(Arc::clone(&gathered));
                return Ok(gathered);
            }
            // Facts that change faster than a read are read again on the change's event.
            if reads == MOST_READS {
                return Ok(gathered);
            }
        }
    }

    fn known(&self) -> Option<Arc<Gathered>> {
        self.state.lock().gathered.clone()
    }

    /// Reads what is not known of the sources as they are at `version`.
    async fn read(&self, version: u64) -> Result<Arc<Gathered>, ReadError> {
        let known = self.state.lock().objects.clone();
        let objects = match known {
            Some(objects) => objects,
            None => {
                let objects = Arc::new(self.reader.objects().await?);
                let mut state = self.state.lock();
                if state.version == version {
                    state.objects = Some(Arc::clone(&objects));
                }
                objects
            }
        };
        let gathered = self.reader.with_local(&objects).await?;
        Ok(Arc::new(gathered))
    }

    /// Remembers what a bundle reads, to wake it when that changes.
    pub fn remember(&self, bundle: &str, reads: Reads, digest: &str) {
        let digest = digest.to_owned();
        let reader = Reader { reads, digest };
        self.state.lock().readers.insert(bundle.to_owned(), reader);
    }

    /// A bundle reads nothing.
    pub fn reads_nothing(&self, bundle: &str) {
        self.state.lock().readers.remove(bundle);
    }

    /// Forgets a bundle that is gone.
    pub fn forget(&self, bundle: &str) {
        let mut state = self.state.lock();
        state.readers.remove(bundle);
        state.held.remove(bundle);
    }

    /// What a held bundle's condition says; `None` when the site lets things change. A bundle that asks is woken
    /// when the hold ends.
    pub async fn hold(&self, bundle: &str) -> Option<PublicText> {
        loop {
            let known = self.hold_known.notified();
            tokio::pin!(known);
            // Before the state is read: what becomes known in between wakes us too.
            known.as_mut().enable();
            {
                let mut state = self.state.lock();
                match state.hold.clone() {
                    HoldState::Unknown => {}
                    HoldState::Free => return None,
                    HoldState::Held(note) => {
                        state.held.insert(bundle.to_owned());
                        return Some(note);
                    }
                }
            }
            known.await;
        }
    }

    /// Watches the sources; never ends.
    pub async fn run(&self) {
        let on_demand = async {
            self.requested.notified().await;
            tokio::join!(
                self.watch_cluster(),
                self.watch_agent_map(),
                self.watch_site_secret(),
                self.refresh_local(),
                self.refresh_changed(),
            )
        };
        tokio::join!(self.watch_site_map(), on_demand);
    }

    /// The Cluster upstream. Its status changes with every heartbeat and is no fact.
    async fn watch_cluster(&self) {
        let api = Api::<Metadata<Cluster>>::namespaced(
            self.reader.upstream.client.clone(),
            &self.reader.upstream.cluster_namespace,
        );
        let name = self.reader.upstream.cluster_name.clone();
        let facts_of = |found: &ObjectMeta| {
            let ObjectMeta {
                generation,
                labels,
                annotations,
                ..
            } = found.clone();
            (generation, labels, annotations)
        };
        let mut known = None;
        self.follow(api, &name, |found| {
            let found = found.metadata().map(facts_of);
            if known.as_ref() != Some(&found) {
                known = Some(found);
                self.changed();
            }
        })
        .await;
    }

    async fn watch_agent_map(&self) {
        let client = self.reader.agent.client();
        let api = Api::<Metadata<ConfigMap>>::namespaced(client, &self.reader.namespace);
        self.follow(api, AGENT_MAP, |_| self.changed()).await;
    }

    /// The site's ConfigMap, for its annotation and its facts.
    async fn watch_site_map(&self) {
        let client = self.reader.agent.client();
        let api = Api::<Metadata<ConfigMap>>::namespaced(client, &self.reader.site.namespace);
        self.follow(api, &self.reader.site.name, |found| {
            match found {
                Seen::Forbidden => self.site_is_hidden(),
                Seen::There(_) | Seen::Gone => {
                    let annotations = found
                        .metadata()
                        .and_then(|found| found.annotations.as_ref());
                    let hold = annotations.and_then(|all| all.get(HOLD_ANNOTATION));
                    self.site_is(hold.map(String::as_str));
                }
            }
            self.changed();
        })
        .await;
    }

    async fn watch_site_secret(&self) {
        let client = self.reader.agent.client();
        let api = Api::<Metadata<Secret>>::namespaced(client, &self.reader.site.namespace);
        self.follow(api, &self.reader.site.name, |_| self.changed())
            .await;
    }

    /// Calls `changed` with what is seen of one object whenever that changes. Never ends. Where watching is forbidden it is tried again after a
    /// long pause.
    async fn follow<K>(&self, api: Api<Metadata<K>>, name: &str, mut changed: impl FnMut(Seen<'_>))
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        loop {
            source_watch::follow(api.clone(), name, &mut changed).await;
            tokio::time::sleep(self.refresh).await;
        }
    }

    /// The site's ConfigMap may not be read any more: what it said holds on, and where nobody knows, nothing does.
    fn site_is_hidden(&self) {
        let hold = self.state.lock().hold.clone();
        match hold {
            HoldState::Unknown => {
                let last = self.last_hold.0.lock().clone();
                self.hold_is(match last {
                    HoldState::Unknown => HoldState::Free,
                    last => last,
                });
            }
            hold => logging::warn!(hold, "what the site holds may not be read any more"),
        }
    }

    /// Takes in the hold annotation of the site's ConfigMap.
    fn site_is(&self, annotation: Option<&str>) {
        let state = match annotation {
            None | Some("" | "false") => HoldState::Free,
            Some("true") => HoldState::Held("held by site".into()),
            Some(reason) => {
                HoldState::Held(public!("held by site: {}", PublicText::of_operator(reason)))
            }
        };
        self.hold_is(state);
    }

    fn hold_is(&self, state: HoldState) {
        self.last_hold.0.lock().clone_from(&state);
        let is_held = matches!(state, HoldState::Held(_));
        let held = {
            let mut known = self.state.lock();
            if known.hold == state {
                return;
            }
            known.hold = state.clone();
            std::mem::take(&mut known.held)
        };
        self.hold_known.notify_waiters();
        logging::info!(hold = state, "the site's hold on deploys");
        if is_held {
            // What waits for a chart, memory or values would be written in the middle of it.
            self.queue.supersede_all();
        }
        // Also when only the reason changed: conditions quote them.
        for bundle in held {
            self.queue.wake(&bundle, ReconcileKind::Full);
        }
    }

    /// A source is not what it was when it was read.
    fn changed(&self) {
        {
            let mut state = self.state.lock();
            state.version += 1;
            state.objects = None;
            state.gathered = None;
        }
        self.dirty.notify_one();
    }

    /// Reads again whenever a source changed, and wakes the bundles that read what is different.
    async fn refresh_changed(&self) {
        let mut backoff = Backoff::default();
        loop {
            self.dirty.notified().await;
            tokio::time::sleep(DEBOUNCE).await;
            match self.current().await {
                Ok(gathered) => {
                    backoff.reset();
                    self.wake_readers(&gathered);
                }
                Err(failed) => {
                    let error = PublicText::nothing_secret_in(&failed);
                    logging::warn!(error, "cannot read the facts of this cluster");
                    tokio::time::sleep(backoff.next().unwrap_or(READ_RETRY)).await;
                    self.dirty.notify_one();
                }
            }
        }
    }

    fn wake_readers(&self, gathered: &Gathered) {
        let state = self.state.lock();
        for (bundle, reader) in &state.readers {
            if gathered.digest(&reader.reads) != reader.digest {
                logging::info!(bundle, "a fact it reads changed");
                self.queue.wake(bundle, ReconcileKind::Full);
            }
        }
    }

    /// Has what this cluster says of itself read again from time to time. The objects are watched: where upstream does not answer, theirs hold on.
    async fn refresh_local(&self) {
        loop {
            tokio::time::sleep(self.refresh).await;
            self.forget_local();
        }
    }

    fn forget_local(&self) {
        let polled = {
            let mut state = self.state.lock();
            state.gathered.take_if(|facts| facts.is_polled())
        };
        if polled.is_some() {
            self.dirty.notify_one();
        }
    }

    /// Bundles that read facts, and those whose status shows the site's hold.
    pub fn entries(&self) -> Entries {
        let state = self.state.lock();
        vec![
            ("bundles_that_read_facts", state.readers.len()),
            ("bundles_held_by_the_site", state.held.len()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt as _;
    use http::Request;
    use kube::client::Body;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::client::scripted;
    use crate::config::SiteRef;
    use crate::controllers::queue::{Backoff as QueueBackoff, FreeWorkers};
    use crate::register::Upstream;
    use crate::report::metrics::Metrics;

    /// What the API servers do.
    #[derive(Clone, Default)]
    struct Servers(Arc<Mutex<Behaviour>>, Arc<AtomicUsize>);

    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    enum Behaviour {
        #[default]
        Answer,
        /// Nothing is allowed.
        Refuse,
        /// Upstream takes requests and answers none.
        SilentUpstream,
    }

    impl Servers {
        fn now(&self, behaviour: Behaviour) {
            *self.0.lock() = behaviour;
        }

        /// How many nodes there are, of which the site wants to know.
        fn nodes(&self, count: usize) {
            self.1.store(count, Ordering::Relaxed);
        }

        async fn answer(self, request: Request<Body>) -> (u16, Value) {
            let path = request.uri().path();
            let status = |code: u16, reason: &str| {
                let status = json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "x"});
                (code, status)
            };
            let is_upstream = path.ends_with("/clusters/cluster");
            let behaviour = *self.0.lock();
            match behaviour {
                Behaviour::Refuse => return status(403, "Forbidden"),
                Behaviour::SilentUpstream if is_upstream => std::future::pending().await,
                Behaviour::SilentUpstream | Behaviour::Answer => {}
            }
            if is_upstream {
                let metadata = json!({"name": "cluster", "namespace": "clusters", "labels": {"ring": "canary"}});
                return (200, json!({"metadata": metadata, "spec": {}}));
            }
            if path.ends_with("/nodes") {
                let count = self.1.load(Ordering::Relaxed);
                let node = json!({"metadata": {"name": "n"}});
                return (200, json!({"metadata": {}, "items": vec![node; count]}));
            }
            if path.ends_with("/configmaps/fleet-site") {
                return (200, json!({"metadata": {}, "data": {"local": "nodes"}}));
            }
            status(404, "NotFound")
        }

        fn facts(&self) -> Facts {
            self.facts_after(Arc::default())
        }

        /// Facts of a session after others.
        fn facts_after(&self, last_hold: Arc<LastHold>) -> Facts {
            let servers = self.clone();
            let clients = scripted::clients(move |request| servers.clone().answer(request));
            let reader = FactsReader {
                agent: scripted::identities(&clients).agent(),
                namespace: "system".to_owned(),
                site: SiteRef {
                    namespace: "system".to_owned(),
                    name: "fleet-site".to_owned(),
                },
                upstream: Upstream::scripted(&clients),
            };
            let backoff = QueueBackoff {
                min: Duration::ZERO,
                max: Duration::ZERO,
            };
            let queue = Arc::new(Queue::new(backoff, Metrics::default()));
            Facts::new(reader, Duration::from_secs(300), queue, last_hold)
        }
    }

    /// A session ends with each other credential, and with each ledger that was restored; then rights may be those of before too.
    #[tokio::test]
    async fn a_hold_outlives_the_session_in_which_it_was_read() {
        let (servers, last_hold) = (Servers::default(), Arc::<LastHold>::default());
        let session = || servers.facts_after(Arc::clone(&last_hold));
        session().site_is(Some("network maintenance"));
        let next = session();
        next.site_is_hidden();
        assert!(next.hold("web").await.is_some());
        // What it says counts where it may be read.
        let next = session();
        assert!(next.hold("web").now_or_never().is_none());
        next.site_is(None);
        let next = session();
        next.site_is_hidden();
        assert!(next.hold("web").await.is_none());
    }

    /// A chart that takes minutes to come would be deployed in the middle of the maintenance.
    #[tokio::test]
    async fn a_hold_ends_reconciles_that_have_written_nothing() {
        let facts = Servers::default().facts();
        facts.site_is(None);
        facts.queue.wake("web", ReconcileKind::Full);
        facts.queue.take(FreeWorkers::ANY).await;
        let running = facts.queue.superseded("web").unwrap();
        facts.site_is(Some("network maintenance"));
        assert!(running.is_cancelled());
    }

    /// A bundle with `${ if eq (get .ClusterLabels "ring") "canary" }2.0.0${ else }1.0.0${ end }` would go back to 1.0.0, and lose what 2.0.0 has.
    #[tokio::test]
    async fn a_source_that_was_read_and_is_refused_by_now_is_not_absent() {
        let servers = Servers::default();
        let facts = servers.facts();
        let before = facts.current().await.unwrap();
        assert_eq!(before.facts.labels["ring"], "canary");
        servers.now(Behaviour::Refuse);
        // As the watch does that is refused.
        facts.changed();
        let failed = facts.current().await.map(drop).unwrap_err();
        let expected = "cannot read Cluster clusters/cluster upstream";
        assert_eq!(failed.to_string(), expected);
        // Where it was never read, the stock rights may not let the agent read it.
        let after = servers.facts().current().await.unwrap();
        assert!(after.facts.labels.is_empty());
        assert!(after.summary().contains("upstream (not allowed)"));
        servers.now(Behaviour::Answer);
        let after = facts.current().await.unwrap();
        assert_eq!(after.facts, before.facts);
    }

    /// As many bundles as there are workers ask at once, each of which keeps one: other bundles wait with them.
    #[tokio::test(start_paused = true)]
    async fn bundles_that_ask_together_share_the_failure_too() {
        let servers = Servers::default();
        servers.now(Behaviour::SilentUpstream);
        let facts = servers.facts();
        let begun = Instant::now();
        let all = (0..50).map(|_| facts.current());
        let all = futures_util::future::join_all(all).await;
        assert!(all.iter().all(Result::is_err));
        assert!(
            begun.elapsed() < Duration::from_secs(90),
            "{:?}",
            begun.elapsed()
        );
        servers.now(Behaviour::Answer);
        assert!(facts.current().await.is_ok());
    }

    #[rstest]
    #[case::who_asks_meanwhile(1, false)]
    #[case::who_waited_for_it(0, true)]
    #[tokio::test(start_paused = true)]
    async fn only_who_asked_before_a_read_shares_its_failure(
        #[case] after_secs: u64,
        #[case] expected: bool,
    ) {
        let failed = FailedRead {
            asked: Instant::now(),
            error: Arc::new(ReadError::ManyClusters),
        };
        tokio::time::advance(Duration::from_secs(after_secs)).await;
        assert_eq!(failed.is_for(Instant::now()), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_cluster_says_of_itself_is_read_again_while_upstream_is_silent() {
        let servers = Servers::default();
        servers.nodes(1);
        let facts = servers.facts();
        let count =
            |gathered: &Gathered| gathered.facts.template_values["Local"]["nodes"]["count"].clone();
        assert_eq!(count(&facts.current().await.unwrap()), 1.0);
        servers.now(Behaviour::SilentUpstream);
        servers.nodes(2);
        let begun = Instant::now();
        assert_eq!(count(&facts.current().await.unwrap()), 1.0);
        facts.forget_local();
        let now = facts.current().await.unwrap();
        assert_eq!(count(&now), 2.0);
        assert_eq!(now.facts.labels["ring"], "canary");
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
