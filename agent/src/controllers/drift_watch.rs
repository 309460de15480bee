//! Watching what was deployed: one metadata watch per kind, shared by all bundles.
//!
//! Only objects that carry the set hash are watched, and only their metadata is kept. An event
//! names its bundle by that hash; the bundle gets a drift pass once changes have been collected
//! for a moment. A watch that expired lists again, always, and what the list does not have went meanwhile. Mirrors the purpose, not the code, of
//! `internal/cmd/agent/trigger` and `driftdetect`.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ObjectMeta, PartialObjectMeta};
use kube::runtime::watcher;
use objects::ObjectKey;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::queue::{Queue, ReconcileKind};
use crate::api::LABEL_OBJECT_SET_HASH;
use crate::client::identity::AgentClient;
use crate::client::watch::{self, Broken};
use crate::error;

/// Changes to a bundle that is not ready yet are looked at this soon: it is probably becoming so.
const UNREADY_DELAY: Duration = Duration::from_millis(300);

/// But not more often than this: coming up takes several changes.
const UNREADY_PAUSE: Duration = Duration::from_secs(1);

/// The versions of one bundle's objects, as a monitor pass saw them.
pub type Seen = HashMap<ObjectKey, String>;

/// The watches; dropping them ends all.
pub struct DriftWatches {
    agent: AgentClient,
    shared: Arc<Shared>,
    /// By `group/version` and kind: a version may not be served any more, while another one is.
    watches: Mutex<HashMap<(String, String), Watch>>,
}

struct Watch {
    handle: JoinHandle<()>,
    users: BTreeSet<String>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

struct Shared {
    queue: Arc<Queue>,
    delay: Duration,
    bundles: Mutex<Bundles>,
}

#[derive(Default)]
struct Bundles {
    by_hash: HashMap<String, String>,
    by_name: HashMap<String, Watched>,
}

struct Watched {
    hash: String,
    seen: Seen,
    is_ready: bool,
    /// While a pass is under way: the last event of each object, to be judged by what it saw.
    during_pass: Option<HashMap<ObjectKey, Option<String>>>,
    /// What changed since the last look.
    changes: BTreeSet<ObjectKey>,
    /// When that was; never for a bundle that is new.
    monitored: Option<Instant>,
}

impl Bundles {
    fn hash_of(&mut self, bundle: &str, hash: &str) {
        let former = self.by_name.get(bundle).map(|watched| &watched.hash);
        if let Some(former) = former.filter(|former| *former != hash).cloned() {
            self.by_hash.remove(&former);
        }
        self.by_hash.insert(hash.to_owned(), bundle.to_owned());
    }

    /// A pass begins that may read live objects or write them. Without this, what happens between that
    /// and the first [`Bundles::monitored`] of a new bundle would be nobody's.
    fn begun(&mut self, bundle: &str, hash: &str) {
        self.hash_of(bundle, hash);
        let watched = self.by_name.entry(bundle.to_owned()).or_insert(Watched {
            hash: String::new(),
            seen: Seen::new(),
            is_ready: false,
            during_pass: None,
            changes: BTreeSet::new(),
            monitored: None,
        });
        hash.clone_into(&mut watched.hash);
        watched.during_pass = Some(HashMap::new());
    }

    /// All live objects were read. Whether something newer has been told since.
    fn monitored(&mut self, bundle: &str, hash: &str, seen: Seen, is_ready: bool) -> bool {
        self.hash_of(bundle, hash);
        let former = self.by_name.remove(bundle);
        let mut watched = Watched {
            hash: hash.to_owned(),
            seen,
            is_ready,
            during_pass: former.and_then(|former| former.during_pass),
            changes: BTreeSet::new(),
            monitored: Some(Instant::now()),
        };
        let changes = watched.take_events();
        self.by_name.insert(bundle.to_owned(), watched);
        changes
    }

    /// Some live objects were read again. Whether something newer has been told since.
    fn monitored_partly(&mut self, bundle: &str, seen: Seen, is_ready: bool) -> bool {
        let Some(watched) = self.by_name.get_mut(bundle) else {
            return false;
        };
        watched.changes.retain(|object| !seen.contains_key(object));
        watched.seen.extend(seen);
        watched.is_ready = is_ready;
        watched.monitored = Some(Instant::now());
        watched.take_events()
    }

    /// The pass ended, whether it looked or not. Whether something new was told meanwhile.
    fn ended(&mut self, bundle: &str) -> bool {
        let Some(watched) = self.by_name.get_mut(bundle) else {
            return false;
        };
        if watched.monitored.is_some() {
            return watched.take_events();
        }
        if let Some(watched) = self.by_name.remove(bundle) {
            self.by_hash.remove(&watched.hash);
        }
        false
    }

    /// An object is in a list of its kind. After a restore of the cluster it may have any version: one
    /// that is not the one we saw is news, older or not.
    fn observed_in_list(&mut self, hash: &str, object: &ObjectKey, version: &str) -> Vec<String> {
        let owner = self.by_hash.get(hash);
        let watched = owner.and_then(|owner| self.by_name.get(owner));
        let seen = watched.and_then(|watched| watched.seen.get(object));
        let is_other = seen.is_some_and(|seen| seen != version);
        self.observed(hash, object, Some(version).filter(|_| !is_other))
    }

    /// A list of a kind is complete: what we saw and it does not have went while nobody watched. Gives
    /// the bundles to wake.
    fn missing_from_list(
        &mut self,
        (group, kind): (&str, &str),
        observed_in_list: &HashSet<(String, ObjectKey)>,
    ) -> Vec<String> {
        let mut woken = Vec::new();
        for (name, watched) in &mut self.by_name {
            let is_lacking = |object: &&ObjectKey| {
                let listing = (watched.hash.clone(), (*object).clone());
                (&*object.group, &*object.kind) == (group, kind)
                    && !observed_in_list.contains(&listing)
            };
            let missing_from_list: Vec<_> =
                watched.seen.keys().filter(is_lacking).cloned().collect();
            let mut is_newer = false;
            for object in &missing_from_list {
                is_newer |= watched.observe(object, None);
            }
            woken.extend(is_newer.then(|| name.clone()));
        }
        woken
    }

    /// An object with this hash is there in this version, or gone (`None`). Gives the bundles to
    /// wake.
    fn observed(&mut self, hash: &str, object: &ObjectKey, version: Option<&str>) -> Vec<String> {
        let owner = self.by_hash.get(hash);
        let is_known = owner
            .and_then(|owner| self.by_name.get(owner))
            .is_some_and(|watched| watched.seen.contains_key(object));
        let mut woken = Vec::new();
        for (name, watched) in &mut self.by_name {
            let version = match owner == Some(name) {
                true => version,
                // New to its owner: whoever had it before has lost it.
                false if version.is_some() && !is_known => None,
                false => continue,
            };
            if watched.observe(object, version) {
                woken.push(name.clone());
            }
        }
        woken
    }
}

impl Watched {
    /// Judges what was told during a pass by what it saw. Whether any of it is news.
    fn take_events(&mut self) -> bool {
        let seen = &self.seen;
        let changes = self.during_pass.take().unwrap_or_default();
        let changes = changes.into_iter().filter(|(object, observed)| {
            is_newer(seen.get(object).map(String::as_str), observed.as_deref())
        });
        let before = self.changes.len();
        self.changes.extend(changes.map(|(object, _)| object));
        self.changes.len() > before
    }

    /// Whether an event is news; during a pass that is decided later.
    fn observe(&mut self, object: &ObjectKey, version: Option<&str>) -> bool {
        match &mut self.during_pass {
            Some(during_pass) => {
                during_pass.insert(object.clone(), version.map(str::to_owned));
                false
            }
            None => {
                let is_newer = is_newer(self.seen.get(object).map(String::as_str), version);
                if is_newer {
                    self.changes.insert(object.clone());
                }
                is_newer
            }
        }
    }

    /// How long what changed is collected.
    fn pause(&self, delay: Duration) -> Duration {
        if self.is_ready {
            return delay;
        }
        let since = self
            .monitored
            .map_or(UNREADY_PAUSE, |monitored| monitored.elapsed());
        delay.min(UNREADY_DELAY.max(UNREADY_PAUSE.saturating_sub(since)))
    }
}

impl DriftWatches {
    /// No watches yet. Events wake `queue` after `delay`.
    pub fn new(agent: AgentClient, queue: Arc<Queue>, delay: Duration) -> Self {
        let shared = Arc::new(Shared {
            queue,
            delay,
            bundles: Mutex::default(),
        });
        Self {
            agent,
            shared,
            watches: Mutex::default(),
        }
    }

    /// A pass over a bundle begins: events are held until it has looked or ends.
    pub fn begin(&self, bundle: &str, hash: &str) {
        self.shared.lock().begun(bundle, hash);
    }

    /// The pass ended.
    pub fn end(&self, bundle: &str) {
        let changes = self.shared.lock().ended(bundle);
        if changes {
            self.shared.wake(bundle);
        }
    }

    /// What changed since the bundle was last looked at; none if it never was.
    pub fn changes(&self, bundle: &str) -> Option<Vec<ObjectKey>> {
        let bundles = self.shared.lock();
        let watched = bundles.by_name.get(bundle)?;
        watched.monitored?;
        Some(watched.changes.iter().cloned().collect())
    }

    /// Some objects of a watched bundle were looked at again.
    pub fn update(&self, bundle: &str, seen: Seen, is_ready: bool) {
        let changes = self.shared.lock().monitored_partly(bundle, seen, is_ready);
        if changes {
            self.shared.wake(bundle);
        }
    }

    /// Asks for a look at a bundle in a while, whether something changes or not.
    pub fn monitor_after(&self, bundle: &str, delay: Duration) {
        self.shared
            .queue
            .wake_after(bundle, ReconcileKind::Drift, delay);
    }

    /// Watches these kinds for a bundle, and no others. `seen` are the objects as they are known:
    /// an event that tells nothing newer is not passed on.
    pub fn refresh(
        &self,
        bundle: &str,
        hash: &str,
        kinds: Vec<ApiResource>,
        seen: Seen,
        is_ready: bool,
    ) {
        let changes = self.shared.lock().monitored(bundle, hash, seen, is_ready);
        if changes {
            self.shared.wake(bundle);
        }
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let desired: HashMap<_, _> = kinds
            .into_iter()
            .map(|kind| ((kind.api_version.clone(), kind.kind.clone()), kind))
            .collect();
        for (kind, watch) in watches.iter_mut() {
            if !desired.contains_key(kind) {
                watch.users.remove(bundle);
            }
        }
        for (kind, resource) in desired {
            let watch = watches.entry(kind).or_insert_with(|| Watch {
                handle: tokio::spawn(watch(
                    self.agent.clone(),
                    resource,
                    Arc::clone(&self.shared),
                )),
                users: BTreeSet::new(),
            });
            watch.users.insert(bundle.to_owned());
        }
        watches.retain(|_, watch| !watch.users.is_empty());
    }

    /// Stops watching for a bundle.
    pub fn clear(&self, bundle: &str) {
        {
            let mut bundles = self.shared.lock();
            if let Some(watched) = bundles.by_name.remove(bundle) {
                bundles.by_hash.remove(&watched.hash);
            }
        }
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        for watch in watches.values_mut() {
            watch.users.remove(bundle);
        }
        watches.retain(|_, watch| !watch.users.is_empty());
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Bundles> {
        self.bundles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the bundles, and wakes those to which it is news.
    fn observe(&self, observe: impl FnOnce(&mut Bundles) -> Vec<String>) {
        let observed = observe(&mut self.lock());
        for bundle in observed {
            self.wake(&bundle);
        }
    }

    fn wake(&self, bundle: &str) {
        let delay = self
            .lock()
            .by_name
            .get(bundle)
            .map_or(self.delay, |watched| watched.pause(self.delay));
        self.queue.wake_after(bundle, ReconcileKind::Drift, delay);
    }
}

/// Whether an event tells more than a monitor pass saw. Versions of one kind are numbers that
/// grow; where they are not, a different one is news.
fn is_newer(seen: Option<&str>, observed: Option<&str>) -> bool {
    match (seen, observed) {
        (None, None) => false,
        (None, Some(_)) | (Some(_), None) => true,
        (Some(seen), Some(observed)) => match (seen.parse::<u64>(), observed.parse::<u64>()) {
            (Ok(seen), Ok(observed)) => observed > seen,
            _ => observed != seen,
        },
    }
}

async fn watch(agent: AgentClient, resource: ApiResource, shared: Arc<Shared>) {
    let api = Api::<PartialObjectMeta<DynamicObject>>::all_with(agent.client(), &resource);
    let config = watcher::Config::default().labels(LABEL_OBJECT_SET_HASH);
    let mut events = watch::watch(api, config, Broken::Relist);
    let mut observed_in_list = HashSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => observed_in_list.clear(),
            Ok(watcher::Event::InitApply(object)) => {
                let Some((hash, id, version)) = identify(&resource, object.metadata) else {
                    continue;
                };
                shared.observe(|bundles| bundles.observed_in_list(&hash, &id, &version));
                observed_in_list.insert((hash, id));
            }
            Ok(watcher::Event::InitDone) => {
                let observed_in_list = std::mem::take(&mut observed_in_list);
                shared.observe(|bundles| {
                    bundles.missing_from_list((&resource.group, &resource.kind), &observed_in_list)
                });
            }
            Ok(watcher::Event::Apply(object)) => {
                if let Some((hash, id, version)) = identify(&resource, object.metadata) {
                    shared.observe(|bundles| bundles.observed(&hash, &id, Some(&version)));
                }
            }
            Ok(watcher::Event::Delete(object)) => {
                if let Some((hash, id, _)) = identify(&resource, object.metadata) {
                    shared.observe(|bundles| bundles.observed(&hash, &id, None));
                }
            }
            Err(failed) => {
                tracing::debug!(kind = resource.kind, error = %error::chain(&failed), "watching for drift");
            }
        }
    }
}

/// Set hash, name and version of an object.
fn identify(kind: &ApiResource, metadata: ObjectMeta) -> Option<(String, ObjectKey, String)> {
    let hash = metadata.labels?.remove(LABEL_OBJECT_SET_HASH)?;
    let id = ObjectKey {
        group: kind.group.clone(),
        kind: kind.kind.clone(),
        namespace: metadata.namespace.unwrap_or_default(),
        name: metadata.name.unwrap_or_default(),
    };
    Some((hash, id, metadata.resource_version.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::echo_of_what_was_seen(Some("7"), Some("7"), false)]
    #[case::older_than_seen(Some("10"), Some("9"), false)]
    #[case::newer(Some("9"), Some("10"), true)]
    #[case::deleted(Some("9"), None, true)]
    #[case::deleted_and_known_missing(None, None, false)]
    #[case::appeared(None, Some("3"), true)]
    #[case::opaque(Some("a"), Some("b"), true)]
    fn changes(#[case] seen: Option<&str>, #[case] observed: Option<&str>, #[case] expected: bool) {
        assert_eq!(is_newer(seen, observed), expected);
    }

    fn deployment() -> ObjectKey {
        ObjectKey::new("apps/v1", "Deployment", "ns", "web")
    }

    fn seen(version: &str) -> Seen {
        Seen::from([(deployment(), version.to_owned())])
    }

    #[rstest]
    #[case::as_it_was(Some("7"), false)]
    #[case::changed_unwatched(Some("8"), true)]
    #[case::of_a_backup(Some("6"), true)]
    #[case::gone_unwatched(None, true)]
    fn a_list_tells_what_nobody_watched(
        #[case] observed_in_list: Option<&str>,
        #[case] expected: bool,
    ) {
        let mut bundles = Bundles::default();
        bundles.monitored("web", "h", seen("7"), true);
        let mut woken = Vec::new();
        let mut list = HashSet::new();
        if let Some(version) = observed_in_list {
            woken.extend(bundles.observed_in_list("h", &deployment(), version));
            list.insert(("h".to_owned(), deployment()));
        }
        woken.extend(bundles.missing_from_list(("", "ConfigMap"), &HashSet::new()));
        woken.extend(bundles.missing_from_list(("apps", "Deployment"), &list));
        assert_eq!(woken, vec!["web"; usize::from(expected)]);
    }

    #[test]
    fn an_object_that_is_listed_as_anothers_is_lacking() {
        let mut bundles = Bundles::default();
        bundles.monitored("web", "h", seen("7"), true);
        let list = HashSet::from([("other".to_owned(), deployment())]);
        assert_eq!(
            bundles.missing_from_list(("apps", "Deployment"), &list),
            ["web"]
        );
    }

    #[rstest]
    #[case::became_ready_since(Some("8"), true)]
    #[case::deleted_since(None, true)]
    #[case::echo(Some("7"), false)]
    fn what_is_told_while_a_new_bundle_is_read_counts(
        #[case] observed: Option<&str>,
        #[case] expected: bool,
    ) {
        let mut bundles = Bundles::default();
        assert!(bundles.observed("h", &deployment(), Some("6")).is_empty());
        bundles.begun("web", "h");
        assert!(bundles.observed("h", &deployment(), observed).is_empty());
        assert_eq!(bundles.monitored("web", "h", seen("7"), false), expected);
        let later = bundles.observed("h", &deployment(), Some("9"));
        assert_eq!(later, ["web"]);
    }

    #[test]
    fn an_object_that_another_bundle_takes_is_news_to_both() {
        let mut bundles = Bundles::default();
        bundles.monitored("former", "f", seen("7"), true);
        bundles.monitored("bystander", "b", Seen::new(), true);
        bundles.monitored("taker", "t", Seen::new(), true);
        let mut woken = bundles.observed("t", &deployment(), Some("8"));
        woken.sort();
        assert_eq!(woken, ["former", "taker"]);
        bundles.monitored("former", "f", Seen::new(), false);
        bundles.monitored("taker", "t", seen("8"), true);
        assert!(bundles.observed("t", &deployment(), Some("8")).is_empty());
        // Taken by somebody unknown, for instance the agent of another scope.
        let lost = bundles.observed("x", &deployment(), Some("9"));
        assert_eq!(lost, ["taker"]);
    }

    #[test]
    fn another_hash_takes_the_place_of_the_former() {
        let mut bundles = Bundles::default();
        bundles.monitored("web", "old", seen("7"), true);
        bundles.begun("web", "new");
        assert!(!bundles.monitored("web", "new", seen("7"), true));
        let woken = bundles.observed("new", &deployment(), Some("8"));
        assert_eq!(woken, ["web"]);
    }

    #[test]
    fn what_happens_during_a_pass_is_news_unless_it_saw_it() {
        let mut bundles = Bundles::default();
        let changes = |bundles: &Bundles| bundles.by_name["web"].changes.len();
        bundles.monitored("web", "h", seen("5"), false);
        bundles.begun("web", "h");
        assert!(bundles.observed("h", &deployment(), Some("6")).is_empty());
        assert!(!bundles.monitored_partly("web", seen("6"), false));
        assert_eq!(changes(&bundles), 0);
        bundles.begun("web", "h");
        assert!(bundles.observed("h", &deployment(), Some("7")).is_empty());
        assert!(bundles.ended("web"));
        assert_eq!(changes(&bundles), 1);
        // A pass that never came to look leaves nothing behind.
        bundles.begun("other", "o");
        assert!(!bundles.ended("other"));
        assert!(!bundles.by_name.contains_key("other") && !bundles.by_hash.contains_key("o"));
    }
}
