//! Watching what was deployed: one metadata watch per kind, shared by all bundles.
//!
//! Only objects that carry the set hash are watched, and only their metadata is kept. An event
//! names its bundle by that hash; the bundle is checked for drift once changes have been collected
//! for a moment, and not more often than every few seconds. A watch that expired always lists again, and an object that is missing from the list was deleted meanwhile. Mirrors
//! the purpose, not the code, of `internal/cmd/agent/trigger` and `driftdetect`.

mod changes;
mod live_objects;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub use changes::Seen;
use changes::WatchedBundles;
use futures_util::StreamExt as _;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ObjectMeta};
use kube::runtime::watcher;
use live_objects::ListedObjects;
use objects::ObjectKey;
use parking_lot::{Mutex, MutexGuard};
use tokio::task::JoinHandle;

use super::queue::{Queue, ReconcileKind};
use crate::api::LABEL_OBJECT_SET_HASH;
use crate::client::identity::AgentClient;
use crate::client::listed::Metadata;
use crate::client::watch::{self, Broken};
use crate::public::PublicText;
use crate::report::metrics::Entries;

/// So many times in a row a kind is not served before its bundles are woken for that, once.
const UNSERVED_AFTER: u32 = 2;

/// How often a kind is listed that its server cannot watch.
const UNWATCHED_RECHECK: Duration = Duration::from_secs(5 * 60);

/// The watches.
///
/// # Expected flow
/// A reconcile calls [`DriftWatches::begin`] before it reads or writes live objects, then [`DriftWatches::refresh`] (or
/// [`DriftWatches::update`] where it read only some) with the versions it read, and [`DriftWatches::end`] whatever happened.
/// [`DriftWatches::clear`] when the bundle is gone or is to be left alone.
///
/// # Guarantees
/// A change after the read that `refresh` reports wakes the bundle, also one that came between the read and the call. What the
/// reconcile wrote itself, and then read, does not. Nothing is lost while a watch is interrupted: the list it begins anew with is compared
/// with what was read.
///
/// # Cancellation
/// No method waits. Dropping the watches ends all of them.
pub struct DriftWatches {
    agent: AgentClient,
    shared: Arc<Shared>,
    /// By `group/version` and kind: a version may not be served any more, while another one is.
    watches: Mutex<BTreeMap<(String, String), Watch>>,
}

struct Watch {
    handle: JoinHandle<()>,
    /// What it is listed by: a kind that somebody has taken away may come back under another one.
    plural: String,
    /// Names of the bundles with objects of this kind.
    bundles: Arc<Mutex<BTreeSet<String>>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

struct Shared {
    queue: Arc<Queue>,
    delay: Duration,
    bundles: Mutex<WatchedBundles>,
}

impl DriftWatches {
    /// No watches yet. A change wakes its bundle in `queue` soon, and not more often than once in `delay`.
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

    /// A reconcile of a bundle begins: events are held until it has read the live objects, or ends.
    pub fn begin(&self, bundle: &str, hash: &str) {
        self.shared.lock().started(bundle, hash);
    }

    /// The bundle was deployed, and comes up.
    pub fn deployed(&self, bundle: &str) {
        self.shared.lock().deployed(bundle);
    }

    /// The reconcile ended.
    pub fn end(&self, bundle: &str) {
        let has_changes = self.shared.lock().finished(bundle);
        if has_changes {
            self.shared.wake(bundle);
        }
    }

    /// What changed since the bundle's objects were compared; `None` if they never were, or more may have changed than is known.
    pub fn changes(&self, bundle: &str) -> Option<Vec<ObjectKey>> {
        self.shared.lock().changes(bundle)
    }

    /// The same, with what changed since the reconcile under way began; `None` also if nobody knows.
    pub fn changed_by_now(&self, bundle: &str) -> Option<Vec<ObjectKey>> {
        self.shared.lock().changed_by_now(bundle)
    }

    /// Some objects of a watched bundle were read again.
    pub fn update(&self, bundle: &str, seen: Seen, is_ready: bool) {
        let has_changes = self.shared.lock().monitored_some(bundle, seen, is_ready);
        if has_changes {
            self.shared.wake(bundle);
        }
    }

    /// Has a bundle reconciled in a while, in full or for drift alone, whether something changes or not.
    pub fn wake_after(&self, bundle: &str, kind: ReconcileKind, delay: Duration) {
        self.shared.queue.wake_after(bundle, kind, delay);
    }

    /// Watches these kinds for a bundle, and no others. `seen` are its objects as they were read:
    /// an event that tells no more is no change. `foreign` are objects that it wants and another one has: that one is deleted is a change.
    pub fn refresh(
        &self,
        bundle: &str,
        hash: &str,
        kinds: Vec<ApiResource>,
        (seen, foreign): (Seen, BTreeSet<ObjectKey>),
        is_ready: bool,
    ) {
        let has_changes = {
            let mut watched = self.shared.lock();
            let has_changes = watched.monitored_all(bundle, hash, seen, is_ready);
            watched.foreign(bundle, foreign);
            has_changes
        };
        if has_changes {
            self.shared.wake(bundle);
        }
        let desired: BTreeMap<_, _> = kinds
            .into_iter()
            .map(|kind| ((kind.api_version.clone(), kind.kind.clone()), kind))
            .collect();
        let mut watches = self.lock();
        for (kind, watch) in watches.iter_mut() {
            if !desired.contains_key(kind) {
                watch.bundles.lock().remove(bundle);
            }
        }
        for (kind, resource) in desired {
            let known = watches.get(&kind);
            let bundles = known
                .map(|watch| Arc::clone(&watch.bundles))
                .unwrap_or_default();
            bundles.lock().insert(bundle.to_owned());
            if known.is_none_or(|watch| watch.plural != resource.plural) {
                watches.insert(kind, self.begun(resource, bundles));
            }
        }
        watches.retain(|_, watch| !watch.bundles.lock().is_empty());
    }

    fn begun(&self, resource: ApiResource, bundles: Arc<Mutex<BTreeSet<String>>>) -> Watch {
        let (agent, shared) = (self.agent.clone(), Arc::clone(&self.shared));
        let plural = resource.plural.clone();
        let handle = tokio::spawn(watch(agent, resource, shared, Arc::clone(&bundles)));
        Watch {
            handle,
            plural,
            bundles,
        }
    }

    /// Stops watching for a bundle.
    pub fn clear(&self, bundle: &str) {
        self.shared.lock().forget(bundle);
        self.lock().retain(|_, watch| {
            let mut bundles = watch.bundles.lock();
            bundles.remove(bundle);
            !bundles.is_empty()
        });
    }

    /// Kinds that are watched, and the bundles whose objects are.
    pub fn entries(&self) -> Entries {
        let (bundles, events) = {
            let watched = self.shared.lock();
            (watched.len(), watched.held())
        };
        vec![
            ("watched_kinds", self.lock().len()),
            ("watched_bundles", bundles),
            ("held_events", events),
        ]
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), Watch>> {
        self.watches.lock()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, WatchedBundles> {
        self.bundles.lock()
    }

    /// Takes in an event, and wakes the bundles to which it is a change.
    fn take(&self, event: impl FnOnce(&mut WatchedBundles) -> Vec<String>) {
        let woken = event(&mut self.lock());
        for bundle in woken {
            self.wake(&bundle);
        }
    }

    fn wake(&self, bundle: &str) {
        let delay = self.lock().delay(bundle, self.delay);
        self.queue.wake_after(bundle, ReconcileKind::Drift, delay);
    }
}

/// Watches a kind for `bundles`, those of a moment.
async fn watch(
    agent: AgentClient,
    resource: ApiResource,
    shared: Arc<Shared>,
    bundles: Arc<Mutex<BTreeSet<String>>>,
) {
    let api = Api::<Metadata<DynamicObject>>::all_with(agent.client(), &resource);
    let config = watcher::Config::default().labels(LABEL_OBJECT_SET_HASH);
    let mut events = watch::watch(api, config, Broken::Relist);
    let kind = (&*resource.group, &*resource.kind);
    let mut refusals = 0;
    let mut listed = ListedObjects::default();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => listed = ListedObjects::default(),
            Ok(watcher::Event::InitApply(object)) => {
                if let Some((hash, key, version)) = identify(&resource, object.metadata) {
                    shared.take(|bundles| bundles.listed(&hash, &key, &version));
                    listed.insert(&hash, &key);
                }
            }
            Ok(watcher::Event::InitDone) => {
                refusals = 0;
                let listed = Arc::new(std::mem::take(&mut listed));
                shared.take(|bundles| bundles.list_completed(kind, &listed));
            }
            Ok(watcher::Event::Apply(object)) => {
                if let Some((hash, key, version)) = identify(&resource, object.metadata) {
                    shared.take(|bundles| bundles.changed(&hash, &key, Some(&version)));
                }
            }
            Ok(watcher::Event::Delete(object)) => {
                if let Some((hash, key, _)) = identify(&resource, object.metadata) {
                    shared.take(|bundles| bundles.changed(&hash, &key, None));
                }
            }
            Err(failed) => {
                logging::debug!(
                    kind = resource.kind,
                    error = PublicText::nothing_secret_in(&failed),
                    "watching for drift"
                );
                match watch::is_unserved(&failed) {
                    true => refusals += 1,
                    false if refusals < UNSERVED_AFTER => refusals = 0,
                    false => {}
                }
                // With its definition all objects go, and no watch may have told of them. An API server that starts serves it a moment later.
                if refusals == UNSERVED_AFTER {
                    refusals += 1;
                    let bundles = bundles.lock().clone();
                    shared.take(|watched| watched.unserved(kind, &bundles));
                }
                if watch::is_unwatchable(&failed) {
                    tokio::time::sleep(UNWATCHED_RECHECK).await;
                }
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
    use serde_json::json;
    use tokio::sync::mpsc;

    use super::super::queue::Backoff;
    use super::*;
    use crate::client::scripted;
    use crate::report::metrics::Metrics;

    /// Somebody takes a definition away and makes another one, whose objects have another address.
    #[tokio::test]
    async fn a_kind_that_comes_back_under_another_plural_is_watched_there() {
        let (asked, mut requests) = mpsc::unbounded_channel();
        let clients = scripted::clients(move |request: http::Request<kube::client::Body>| {
            let _ = asked.send(request.uri().path().to_owned());
            let list = json!({"metadata": {"resourceVersion": "1"}, "items": []});
            std::future::ready((200, list))
        });
        let backoff = Backoff {
            min: Duration::from_secs(1),
            max: Duration::from_secs(1),
        };
        let queue = Arc::new(Queue::new(backoff, Metrics::default()));
        let agent = scripted::identities(&clients).agent();
        let watches = DriftWatches::new(agent, queue, Duration::from_secs(1));
        let kind = |plural: &str| ApiResource {
            group: "x.io".to_owned(),
            version: "v1".to_owned(),
            api_version: "x.io/v1".to_owned(),
            kind: "Car".to_owned(),
            plural: plural.to_owned(),
        };
        let refresh = |bundle: &str, plural: &str| {
            let seen = (Seen::default(), BTreeSet::new());
            watches.refresh(bundle, bundle, vec![kind(plural)], seen, true);
        };
        let mut is_asked = async |path: &str| {
            let asked = async { while requests.recv().await.is_some_and(|asked| asked != path) {} };
            let asked = tokio::time::timeout(Duration::from_secs(10), asked);
            asked.await.is_ok()
        };
        refresh("one", "cars");
        refresh("two", "cars");
        assert!(is_asked("/apis/x.io/v1/cars").await);
        refresh("one", "automobiles");
        assert!(is_asked("/apis/x.io/v1/automobiles").await);
        assert_eq!(watches.lock().len(), 1);
        // The other bundle's objects are watched too, until it is gone.
        watches.clear("one");
        assert_eq!(watches.lock().len(), 1);
        watches.clear("two");
        assert!(watches.lock().is_empty());
    }
}
