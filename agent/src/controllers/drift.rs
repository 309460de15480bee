//! Watching what was deployed: one metadata watch per kind, shared by all bundles.
//!
//! Only objects that carry the set hash are watched, and only their metadata is kept. An event
//! names its bundle by that hash; the bundle gets a drift pass once changes have been collected
//! for a moment. A watch that expired lists again, always. Mirrors the purpose, not the code, of
//! `internal/cmd/agent/trigger` and `driftdetect`.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::runtime::{WatchStreamExt as _, watcher};
use tokio::task::JoinHandle;

use super::queue::{Pass, Queue};
use crate::api::LABEL_OBJECT_SET_HASH;
use crate::error;
use crate::identity::AgentClient;
use crate::watching;

/// Changes to a bundle that is not ready yet are looked at this soon: it is probably becoming so.
const UNREADY_DELAY: Duration = Duration::from_millis(300);

/// Objects of one bundle, by kind, namespace and name, as a monitor pass saw them.
pub type Seen = HashMap<ObjectId, String>;

/// An object of a kind that is clear from the context.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectId {
    /// `group/Kind`, the group empty for core.
    pub kind: String,
    pub namespace: String,
    pub name: String,
}

impl ObjectId {
    /// Names the kind of an API resource; versions of one kind are the same objects.
    pub fn kind_of(resource: &ApiResource) -> String {
        format!("{}/{}", resource.group, resource.kind)
    }
}

/// The watches; dropping them ends all.
pub struct DriftWatches {
    agent: AgentClient,
    shared: Arc<Shared>,
    watches: Mutex<HashMap<String, Watch>>,
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
        {
            let mut bundles = self.shared.lock();
            if let Some(old) = bundles
                .by_name
                .get(bundle)
                .map(|watched| watched.hash.clone())
                && old != hash
            {
                bundles.by_hash.remove(&old);
            }
            bundles.by_hash.insert(hash.to_owned(), bundle.to_owned());
            let watched = Watched {
                hash: hash.to_owned(),
                seen,
                is_ready,
            };
            bundles.by_name.insert(bundle.to_owned(), watched);
        }
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted: HashMap<_, _> = kinds
            .into_iter()
            .map(|kind| (ObjectId::kind_of(&kind), kind))
            .collect();
        for (kind, watch) in watches.iter_mut() {
            if !wanted.contains_key(kind) {
                watch.users.remove(bundle);
            }
        }
        for (kind, resource) in wanted {
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

    /// An object with this hash is there in this version, or gone (`None`).
    fn changed(&self, hash: &str, object: &ObjectId, version: Option<&str>) {
        let (bundle, delay) = {
            let bundles = self.lock();
            let Some(name) = bundles.by_hash.get(hash) else {
                return;
            };
            let Some(watched) = bundles.by_name.get(name) else {
                return;
            };
            if !is_news(watched.seen.get(object).map(String::as_str), version) {
                return;
            }
            let delay = if watched.is_ready {
                self.delay
            } else {
                self.delay.min(UNREADY_DELAY)
            };
            (name.clone(), delay)
        };
        self.queue.wake_after(&bundle, Pass::Drift, delay);
    }
}

/// Whether an event tells more than a monitor pass saw. Versions of one kind are numbers that
/// grow; where they are not, a different one is news.
fn is_news(seen: Option<&str>, told: Option<&str>) -> bool {
    match (seen, told) {
        (None, None) => false,
        (None, Some(_)) | (Some(_), None) => true,
        (Some(seen), Some(told)) => match (seen.parse::<u64>(), told.parse::<u64>()) {
            (Ok(seen), Ok(told)) => told > seen,
            _ => told != seen,
        },
    }
}

async fn watch(agent: AgentClient, resource: ApiResource, shared: Arc<Shared>) {
    let kind = ObjectId::kind_of(&resource);
    let api = Api::<PartialObjectMeta<DynamicObject>>::all_with(agent.client(), &resource);
    let config = watcher::Config::default().labels(LABEL_OBJECT_SET_HASH);
    let events = watcher(api, config).backoff(watching::Backoff::default());
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let (object, is_gone) = match event {
            Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                (object, false)
            }
            Ok(watcher::Event::Delete(object)) => (object, true),
            Ok(watcher::Event::Init | watcher::Event::InitDone) => continue,
            Err(failed) => {
                tracing::debug!(kind, error = %error::chain(&failed), "watching for drift");
                continue;
            }
        };
        let metadata = object.metadata;
        let labels = metadata.labels.unwrap_or_default();
        let Some(hash) = labels.get(LABEL_OBJECT_SET_HASH) else {
            continue;
        };
        let id = ObjectId {
            kind: kind.clone(),
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
        };
        let version = metadata.resource_version.filter(|_| !is_gone);
        shared.changed(hash, &id, version.as_deref());
    }
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
    fn news(#[case] seen: Option<&str>, #[case] told: Option<&str>, #[case] expected: bool) {
        assert_eq!(is_news(seen, told), expected);
    }
}
