//! Watches on the ConfigMaps and Secrets that bundles read their values from (`valuesFrom`).
//!
//! Each is watched by its name, its metadata alone, with the account of the bundle that reads it. A change wakes the bundles that read it;
//! whether they are deployed anew is decided from a digest of what they read ([`Filled`](super::bundle_deployment::values::Filled)). The Go
//! agent reads values when it deploys, and not again.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::queue::{Queue, ReconcileKind};
use super::source_watch::{self, Seen};
use crate::client::identity::DeploymentClient;
use crate::client::listed::Metadata;
use crate::report::metrics::Entries;
use crate::values::{Reference, ReferenceKind};

/// Pause between two reads of one source that changes all the time.
const CHECKS_APART: Duration = Duration::from_secs(5);

/// When what was not answered is read again.
const RETRY: Duration = Duration::from_secs(60);

/// An object of one kind, by namespace and name.
type Source = (ReferenceKind, String, String);

/// The watches of one session; they end with it.
pub struct ValuesWatches {
    shared: Arc<Shared>,
    /// How often an object is read that its readers' account may not watch.
    refresh: Duration,
}

struct Shared {
    queue: Arc<Queue>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By account and object.
    watches: HashMap<(String, Source), Watched>,
    bundles: BTreeMap<String, Reader>,
}

/// What a bundle found of an object when it read it.
pub enum LastRead {
    /// The object exists in this version.
    At(String),
    Missing,
    /// The read failed; the reader tries again.
    Failed,
}

/// A bundle that reads values.
#[derive(Default)]
struct Reader {
    watched: BTreeSet<(String, Source)>,
    /// The version of each of these that it read last; none where it read none.
    read: HashMap<Source, String>,
    /// Of what it was deployed with, where the release does not say.
    digest: Option<String>,
    /// Since its account is not allowed to read what it names: when it reads that again, and after what pause.
    refused: Option<(Instant, Duration)>,
}

struct Watched {
    bundles: BTreeSet<String>,
    /// The version that the last event was of.
    seen: Option<String>,
    /// When the object's bundles read it next because of the last change, or did.
    woken: Option<Instant>,
    task: JoinHandle<()>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ValuesWatches {
    /// No watches yet; `queue` is woken by changes.
    pub fn new(queue: Arc<Queue>, refresh: Duration) -> Self {
        let state = Mutex::default();
        Self {
            shared: Arc::new(Shared { queue, state }),
            refresh,
        }
    }

    /// Watches these for a bundle, as its account, and nothing else.
    pub fn refresh(&self, bundle: &str, account: &DeploymentClient, references: &[Reference]) {
        let desired: BTreeSet<_> = references
            .iter()
            .map(|reference| (account.account().to_owned(), source_of(reference)))
            .collect();
        let mut state = self.shared.state.lock();
        let known = state.bundles.get(bundle);
        if known.map(|known| &known.watched) == Some(&desired)
            || known.is_none() && desired.is_empty()
        {
            return;
        }
        state.release(bundle);
        for key in &desired {
            let watched = state.watches.entry(key.clone());
            let watched = watched.or_insert_with(|| Watched {
                bundles: BTreeSet::new(),
                seen: None,
                woken: None,
                task: self.start(account.client(), key.clone()),
            });
            watched.bundles.insert(bundle.to_owned());
        }
        match desired.is_empty() {
            true => drop(state.bundles.remove(bundle)),
            false => {
                let reader = state.bundles.entry(bundle.to_owned()).or_default();
                let sources: HashSet<&Source> = desired.iter().map(|(_, source)| source).collect();
                reader.read.retain(|source, _| sources.contains(source));
                reader.watched = desired;
                reader.refused = None;
            }
        }
    }

    /// Forgets a bundle.
    pub fn forget(&self, bundle: &str) {
        let mut state = self.shared.state.lock();
        state.release(bundle);
        state.bundles.remove(bundle);
    }

    /// A bundle read an object, or could not. What another bundle reads is no news to it. A change that was told of before this was noted
    /// wakes it.
    pub fn was_read(&self, bundle: &str, reference: &Reference, last: LastRead) {
        let missed = self.shared.state.lock().was_read(bundle, reference, last);
        for key in missed {
            self.shared.wake(&key, [bundle.to_owned()].into());
        }
    }

    /// Whether a bundle reads other values than before, by their digest and the one its release has. One whose release has none counts from
    /// what was read first.
    pub fn is_changed(&self, bundle: &str, recorded: Option<&str>, digest: &str) -> bool {
        let mut state = self.shared.state.lock();
        let Some(reader) = state.bundles.get_mut(bundle) else {
            return false;
        };
        reader.refused = None;
        match recorded {
            Some(recorded) => recorded != digest,
            None => *reader.digest.get_or_insert_with(|| digest.to_owned()) != digest,
        }
    }

    /// When a bundle reads again what it could not read: soon, and ever later where its account may not, which nothing tells the end of, and which may have
    /// none. A read in between, for whatever else, makes it no later.
    pub fn read_again_in(&self, bundle: &str, is_forbidden: bool) -> Duration {
        let mut state = self.shared.state.lock();
        let Some(reader) = state.bundles.get_mut(bundle) else {
            return RETRY;
        };
        if !is_forbidden {
            reader.refused = None;
            return RETRY;
        }
        let now = Instant::now();
        let pause = match reader.refused {
            Some((due, _)) if now < due => return due - now,
            Some((_, pause)) => pause.saturating_mul(2).min(self.refresh.max(RETRY)),
            None => RETRY,
        };
        reader.refused = Some((now + pause, pause));
        pause
    }

    /// Watches of values, the bundles that read them, and versions that were read.
    pub fn entries(&self) -> Entries {
        let state = self.shared.state.lock();
        vec![
            ("values_watches", state.watches.len()),
            ("bundles_that_read_values", state.bundles.len()),
            (
                "values_versions",
                state.bundles.values().map(|reader| reader.read.len()).sum(),
            ),
        ]
    }

    fn start(&self, client: Client, key: (String, Source)) -> JoinHandle<()> {
        let (shared, refresh) = (Arc::clone(&self.shared), self.refresh);
        tokio::spawn(async move {
            let namespace = key.1.1.clone();
            match key.1.0 {
                ReferenceKind::ConfigMap => {
                    let api = Api::<Metadata<ConfigMap>>::namespaced(client, &namespace);
                    shared.follow(api, &key, refresh).await;
                }
                ReferenceKind::Secret => {
                    let api = Api::<Metadata<Secret>>::namespaced(client, &namespace);
                    shared.follow(api, &key, refresh).await;
                }
            }
        })
    }
}

impl Drop for ValuesWatches {
    fn drop(&mut self) {
        // The tasks hold what they are noted in.
        self.shared.state.lock().watches.clear();
    }
}

impl State {
    /// Notes what a bundle read of an object. Those of its watches that have delivered more.
    fn was_read(
        &mut self,
        bundle: &str,
        reference: &Reference,
        last: LastRead,
    ) -> Vec<(String, Source)> {
        let Some(reader) = self.bundles.get_mut(bundle) else {
            return Vec::new();
        };
        let source = source_of(reference);
        // Later on any event of an object that was missing wakes it.
        let is_first = !reader.read.contains_key(&source);
        let is_more = |seen: &str| match &last {
            LastRead::At(version) => is_later(seen, version),
            LastRead::Missing => is_first && !seen.is_empty(),
            LastRead::Failed => false,
        };
        let has_more = |key: &&(String, Source)| {
            let watched = self.watches.get(*key);
            let seen = watched.and_then(|watched| watched.seen.as_deref());
            key.1 == source && seen.is_some_and(is_more)
        };
        let missed = reader.watched.iter().filter(has_more).cloned().collect();
        let version = match last {
            LastRead::At(version) => version,
            LastRead::Missing | LastRead::Failed => String::new(),
        };
        reader.read.insert(source, version);
        missed
    }

    /// The bundles that read another version of an object than this one, of those that watch it as one account.
    fn outdated(&self, key: &(String, Source), version: &str) -> BTreeSet<String> {
        let watched = self.watches.get(key);
        let bundles = watched.into_iter().flat_map(|watched| &watched.bundles);
        let is_outdated = |bundle: &&String| {
            // A bundle yet to read it reads the new one.
            let reader = self.bundles.get(*bundle);
            let read = reader.and_then(|reader| reader.read.get(&key.1));
            read.is_some_and(|read| read != version)
        };
        bundles.filter(is_outdated).cloned().collect()
    }

    /// Ends the watches that only this bundle has.
    fn release(&mut self, bundle: &str) {
        let watched = self.bundles.get_mut(bundle);
        for key in watched
            .map(|reader| std::mem::take(&mut reader.watched))
            .into_iter()
            .flatten()
        {
            let is_last = self.watches.get_mut(&key).is_some_and(|watched| {
                watched.bundles.remove(bundle);
                watched.bundles.is_empty()
            });
            if is_last {
                self.watches.remove(&key);
            }
        }
    }
}

impl Shared {
    /// Reports each change of one object. Where its account may not watch, the bundles read again after a while.
    async fn follow<K>(&self, api: Api<Metadata<K>>, key: &(String, Source), refresh: Duration)
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        loop {
            source_watch::follow(api.clone(), &key.1.2, |found| match found {
                Seen::There(found) => {
                    self.seen(key, found.resource_version.as_deref().unwrap_or_default());
                }
                Seen::Gone => self.seen(key, ""),
                Seen::Forbidden => {}
            })
            .await;
            tokio::time::sleep(refresh).await;
            let bundles = self
                .state
                .lock()
                .watches
                .get(key)
                .map(|one| one.bundles.clone());
            self.wake(key, bundles.unwrap_or_default());
        }
    }

    /// An object is there in this version; in none when it is gone.
    fn seen(&self, key: &(String, Source), version: &str) {
        let outdated = {
            let mut state = self.state.lock();
            if let Some(watched) = state.watches.get_mut(key) {
                watched.seen = Some(version.to_owned());
            }
            state.outdated(key, version)
        };
        if !outdated.is_empty() {
            self.wake(key, outdated);
        }
    }

    /// Has bundles that read an object read it again.
    fn wake(&self, key: &(String, Source), bundles: BTreeSet<String>) {
        let now = Instant::now();
        let at = {
            let mut state = self.state.lock();
            let Some(watched) = state.watches.get_mut(key) else {
                return;
            };
            let at = next_check(watched.woken, now);
            watched.woken = Some(at);
            at
        };
        for bundle in bundles {
            logging::debug!(
                bundle,
                namespace = key.1.1,
                name = key.1.2,
                "a source of values changed"
            );
            let kind = ReconcileKind::Full;
            self.queue.wake_after(&bundle, kind, at - now);
        }
    }
}

/// When bundles read a source that changed `now`: at once, but not again and again. Changes before a read are seen by it.
fn next_check(last: Option<Instant>, now: Instant) -> Instant {
    match last {
        Some(planned) if planned > now => planned,
        Some(last) => now.max(last + CHECKS_APART),
        None => now,
    }
}

/// Whether a version is after another one; a watch may lag behind a read.
fn is_later(version: &str, than: &str) -> bool {
    let number = |text: &str| text.parse::<u64>().ok();
    matches!((number(version), number(than)), (Some(version), Some(than)) if version > than)
}

fn source_of(reference: &Reference) -> Source {
    let Reference {
        kind,
        namespace,
        name,
        ..
    } = reference;
    (*kind, namespace.clone(), name.clone())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::controllers::queue::Backoff;
    use crate::report::metrics::Metrics;

    #[test]
    fn a_source_that_changes_all_the_time_is_checked_at_intervals() {
        let begun = Instant::now();
        let (mut last, mut checks) = (None, BTreeSet::new());
        for tenth in 0..600_u32 {
            let now = begun + Duration::from_millis(100) * tenth;
            let at = next_check(last, now);
            checks.insert(at - begun);
            last = Some(at);
        }
        assert_eq!(checks.len(), 13);
        assert_eq!(checks.first(), Some(&Duration::ZERO));
        let later = begun + Duration::from_secs(600);
        assert_eq!(next_check(last, later), later);
    }

    /// Each read takes a full reconcile.
    #[tokio::test(start_paused = true)]
    async fn a_forbidden_values_source_is_read_with_growing_pauses() {
        let backoff = Backoff {
            min: Duration::ZERO,
            max: Duration::ZERO,
        };
        let queue = Arc::new(Queue::new(backoff, Metrics::default()));
        let watches = ValuesWatches::new(queue, Duration::from_secs(5 * 60));
        let readers = [("a".to_owned(), Reader::default())];
        watches.shared.state.lock().bundles.extend(readers);
        let pauses = async |is_forbidden: bool, times: usize| {
            let mut pauses = Vec::new();
            for _ in 0..times {
                let pause = watches.read_again_in("a", is_forbidden);
                pauses.push(pause.as_secs());
                tokio::time::advance(pause).await;
            }
            pauses
        };
        assert_eq!(pauses(true, 5).await, [60, 120, 240, 300, 300]);
        assert_eq!(pauses(false, 2).await, [60, 60]);
        assert_eq!(pauses(true, 2).await, [60, 120]);
        // The source could be read, for once.
        watches.is_changed("a", None, "digest");
        assert_eq!(pauses(true, 1).await, [60]);
        // Other things wake the bundle every ten seconds.
        let next = watches.read_again_in("a", true);
        assert_eq!(next.as_secs(), 120);
        for left in [110, 100, 90] {
            tokio::time::advance(Duration::from_secs(10)).await;
            assert_eq!(watches.read_again_in("a", true).as_secs(), left);
        }
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(pauses(true, 1).await, [240]);
    }

    /// One of two bundles reads a change before its event is there.
    #[tokio::test]
    async fn a_change_one_bundle_has_read_still_wakes_the_other() {
        let key = (
            "account".to_owned(),
            (ReferenceKind::Secret, "ns".to_owned(), "s".to_owned()),
        );
        let mut state = State::default();
        let watched = Watched {
            bundles: BTreeSet::from(["a".to_owned(), "b".to_owned(), "c".to_owned()]),
            seen: None,
            woken: None,
            task: tokio::spawn(async {}),
        };
        state.watches.insert(key.clone(), watched);
        for (bundle, version) in [("a", Some("3")), ("b", Some("2")), ("c", None)] {
            let reader = state.bundles.entry(bundle.to_owned()).or_default();
            let version = version.map(|version| (key.1.clone(), version.to_owned()));
            reader.read.extend(version);
        }
        assert_eq!(state.outdated(&key, "3"), BTreeSet::from(["b".to_owned()]));
        assert_eq!(state.outdated(&key, "4").len(), 2);
    }

    /// The answer to a first read is on its way when the object changes: the event finds nobody who has read another version.
    #[rstest]
    #[case::changed_meanwhile(Some("3"), at("2"), 1)]
    #[case::read_as_it_is(Some("3"), at("3"), 0)]
    #[case::the_watch_lags_behind(Some("9"), at("10"), 0)]
    #[case::nothing_was_told(None, at("2"), 0)]
    #[case::gone(Some(""), at("2"), 0)]
    #[case::made_meanwhile(Some("3"), LastRead::Missing, 1)]
    #[case::missing(Some(""), LastRead::Missing, 0)]
    #[case::tried_again_anyway(Some("3"), LastRead::Failed, 0)]
    #[tokio::test]
    async fn a_change_before_a_read_was_noted_is_not_lost(
        #[case] seen: Option<&str>,
        #[case] read: LastRead,
        #[case] woken: usize,
    ) {
        let reference = Reference {
            kind: ReferenceKind::Secret,
            namespace: "ns".to_owned(),
            name: "s".to_owned(),
            key: "values.yaml".to_owned(),
        };
        let key = ("account".to_owned(), source_of(&reference));
        let backoff = Backoff {
            min: CHECKS_APART,
            max: CHECKS_APART,
        };
        let queue = Arc::new(Queue::new(backoff, Metrics::default()));
        let waiting = || queue.entries()[0].1;
        let watches = ValuesWatches::new(Arc::clone(&queue), CHECKS_APART);
        {
            let mut state = watches.shared.state.lock();
            let watched = Watched {
                bundles: BTreeSet::from(["a".to_owned()]),
                seen: None,
                woken: None,
                task: tokio::spawn(async {}),
            };
            state.watches.insert(key.clone(), watched);
            let reader = state.bundles.entry("a".to_owned()).or_default();
            reader.watched.insert(key.clone());
        }
        if let Some(seen) = seen {
            watches.shared.seen(&key, seen);
        }
        assert_eq!(waiting(), 0, "it is still to read");
        watches.was_read("a", &reference, read);
        assert_eq!(waiting(), woken);
    }

    fn at(version: &str) -> LastRead {
        LastRead::At(version.to_owned())
    }
}
