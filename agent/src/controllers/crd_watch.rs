//! Waking bundles that wait for a kind, to be deployed or to have objects of it again: when definitions or API services change, it may be served now.
//!
//! Upstream tries such a bundle again with its ordinary back-off, which has long reached its maximum when an operator's definitions
//! come. Nothing is watched while no bundle waits.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::OptionFuture;
use futures_util::stream::{self, BoxStream};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::queue::{Queue, ReconcileKind};
use crate::client::identity::Identities;
use crate::client::listed::Metadata;
use crate::client::watch::{self, Broken};
use crate::public::PublicText;
use crate::report::metrics::Entries;

/// When bundles are tried again after a change: a definition is established some time after it was made, and served a moment after that.
const RETRIES: [Duration; 3] = [
    Duration::from_millis(300),
    Duration::from_secs(2),
    Duration::from_secs(6),
];

/// What changes so soon after the last retries is a storm, of which nobody needs to know each change; then there is one retry after so long.
const STORM: Duration = Duration::from_secs(60);
const STORM_RETRY: Duration = Duration::from_secs(15);

/// When to try again, without waiting.
#[derive(Debug, Default)]
struct Retries {
    due: VecDeque<Instant>,
    /// Something changed while they were due.
    is_changed: bool,
    last: Option<Instant>,
    has_begun: bool,
    /// What is due is so since the watch began.
    is_beginning: bool,
}

impl Retries {
    /// The definitions were listed. The first time that is no change, but holds what was made before anybody watched.
    fn list(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.is_beginning = true;
            self.due = RETRIES.map(|pause| now + pause).into();
        } else if !self.is_beginning {
            self.change(now);
        }
    }

    /// Something changed. What is due already stays so, however many changes come.
    fn change(&mut self, now: Instant) {
        if std::mem::take(&mut self.is_beginning) {
            self.due = RETRIES.map(|pause| now + pause).into();
        } else if !self.due.is_empty() {
            self.is_changed = true;
        } else if self.last.is_some_and(|last| now < last + STORM) {
            self.due.push_back(now + STORM_RETRY);
        } else {
            self.due = RETRIES.map(|pause| now + pause).into();
        }
    }

    fn next(&self) -> Option<Instant> {
        self.due.front().copied()
    }

    fn done(&mut self, now: Instant) {
        self.due.pop_front();
        if !self.is_beginning {
            self.last = Some(now);
        }
        self.is_beginning &= !self.due.is_empty();
        if self.due.is_empty() && std::mem::take(&mut self.is_changed) {
            self.due.push_back(now + STORM_RETRY);
        }
    }
}

/// Bundles that wait for a kind; shared by reference.
pub struct CrdWatch {
    identities: Arc<Identities>,
    queue: Arc<Queue>,
    waiting: Mutex<BTreeSet<(String, Step)>>,
    changed: Notify,
}

/// What could not be done for want of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Deploy,
    Monitor,
}

impl Step {
    fn reconcile(self) -> ReconcileKind {
        match self {
            Self::Deploy => ReconcileKind::Full,
            Self::Monitor => ReconcileKind::Drift,
        }
    }
}

type Changes = BoxStream<'static, watcher::Result<watcher::Event<Metadata<DynamicObject>>>>;

impl CrdWatch {
    /// Nobody waits yet.
    pub fn new(identities: Arc<Identities>, queue: Arc<Queue>) -> Self {
        Self {
            identities,
            queue,
            waiting: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Whether a bundle's deploy failed because the cluster does not serve a kind.
    pub fn deploy_lacks_kind(&self, bundle: &str, lacks_kind: bool) {
        self.note(bundle, Step::Deploy, lacks_kind);
    }

    /// Whether a bundle's objects were compared without those whose kind is gone.
    pub fn monitor_lacks_kind(&self, bundle: &str, lacks_kind: bool) {
        self.note(bundle, Step::Monitor, lacks_kind);
    }

    /// A bundle does not wait any more.
    pub fn forget(&self, bundle: &str) {
        self.note(bundle, Step::Deploy, false);
        self.note(bundle, Step::Monitor, false);
    }

    fn note(&self, bundle: &str, step: Step, waits: bool) {
        let entry = (bundle.to_owned(), step);
        let mut waiting = self.waiting.lock();
        let is_changed = match waits {
            true => waiting.insert(entry),
            false => waiting.remove(&entry),
        };
        drop(waiting);
        if is_changed {
            self.changed.notify_one();
        }
    }

    /// Watches while somebody waits; never ends.
    pub async fn run(&self) {
        loop {
            while self.waiting.lock().is_empty() {
                self.changed.notified().await;
            }
            // Each watch wakes its bundles as it begins. A deploy that waits is not kept waiting for that.
            let next = Instant::now() + STORM_RETRY;
            self.watch().await;
            while Instant::now() < next && !self.has_deploys() {
                tokio::select! {
                    () = sleep_until(next) => {}
                    () = self.changed.notified() => {}
                }
            }
        }
    }

    fn has_deploys(&self) -> bool {
        let waiting = self.waiting.lock();
        waiting.iter().any(|(_, step)| *step == Step::Deploy)
    }

    /// Ends when nobody waits.
    async fn watch(&self) {
        let mut changes = stream::select(
            self.changes("apiextensions.k8s.io", "CustomResourceDefinition"),
            self.changes("apiregistration.k8s.io", "APIService"),
        );
        let mut retries = Retries::default();
        while !self.waiting.lock().is_empty() {
            let next = retries.next();
            tokio::select! {
                biased;
                Some(event) = changes.next() => match event {
                    Ok(watcher::Event::Apply(_)) => retries.change(Instant::now()),
                    Ok(watcher::Event::InitDone) => retries.list(Instant::now()),
                    Ok(_) => {}
                    Err(failed) => {
                        logging::debug!(error = PublicText::nothing_secret_in(&failed), "watching definitions");
                    }
                },
                Some(()) = OptionFuture::from(next.map(sleep_until)) => {
                    retries.done(Instant::now());
                    self.identities.forget_discovery();
                    for (bundle, step) in &*self.waiting.lock() {
                        self.queue.wake(bundle, step.reconcile());
                    }
                }
                () = self.changed.notified() => {}
            }
        }
    }

    fn changes(&self, group: &str, kind: &str) -> Changes {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let api = Api::all_with(self.identities.agent().client(), &kind);
        watch::watch(api, watcher::Config::default(), Broken::Relist)
    }

    /// Bundles that wait for a kind.
    pub fn entries(&self) -> Entries {
        let waiting = self.waiting.lock();
        let bundles: BTreeSet<_> = waiting.iter().map(|(bundle, _)| bundle).collect();
        vec![("bundles_waiting_for_kinds", bundles.len())]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::client::scripted;
    use crate::controllers::queue::Backoff;
    use crate::report::metrics::Metrics;

    /// How often there is a retry in ten minutes with a change every `pause` milliseconds, and when the first one is.
    fn retries(pause: u64) -> (usize, Duration) {
        let begun = Instant::now();
        let (mut retries, mut count, mut first) = (Retries::default(), 0, None);
        for at in 0..600_000_u64 / 100 {
            let now = begun + Duration::from_millis(at * 100);
            if (at * 100).is_multiple_of(pause) {
                retries.change(now);
            }
            while retries.next().is_some_and(|due| due <= now) {
                retries.done(now);
                count += 1;
                first.get_or_insert(now - begun);
            }
        }
        (count, first.unwrap())
    }

    /// Definitions are not what it lacks any more.
    #[tokio::test]
    async fn a_bundle_that_fails_for_another_reason_waits_for_no_kind() {
        let clients = scripted::clients(|_| std::future::ready((404, Value::Null)));
        let identities = Arc::new(scripted::identities(&clients));
        let backoff = Backoff {
            min: STORM,
            max: STORM,
        };
        let queue = Arc::new(Queue::new(backoff, Metrics::default()));
        let watch = CrdWatch::new(identities, queue);
        watch.deploy_lacks_kind("web", true);
        assert_eq!(watch.entries()[0].1, 1);
        watch.monitor_lacks_kind("web", true);
        watch.deploy_lacks_kind("web", false);
        assert_eq!(watch.entries()[0].1, 1);
        watch.monitor_lacks_kind("web", false);
        assert_eq!(watch.entries()[0].1, 0);
    }

    /// A bundle is there first, and its definitions come a while later, with another bundle.
    #[test]
    fn a_definition_that_comes_later_triggers_a_retry_at_once() {
        let begun = Instant::now();
        for after in [1, 5, 8, 30, 65] {
            let mut retries = Retries::default();
            // Of definitions, and of API services.
            retries.list(begun);
            retries.list(begun + Duration::from_millis(100));
            let change = begun + Duration::from_secs(after);
            while let Some(due) = retries.next().filter(|due| *due < change) {
                retries.done(due);
            }
            retries.change(change);
            let next = retries.next().unwrap();
            assert_eq!(next, change + RETRIES[0], "after {after} s");
        }
    }

    #[test]
    fn a_watch_that_keeps_breaking_off_does_not_speed_up_retries() {
        let begun = Instant::now();
        let (mut retries, mut count) = (Retries::default(), 0);
        for second in 0..600 {
            let now = begun + Duration::from_secs(second);
            retries.list(now);
            while retries.next().is_some_and(|due| due <= now) {
                retries.done(now);
                count += 1;
            }
        }
        assert!(count <= 45, "{count}");
    }

    #[test]
    fn endless_definition_changes_neither_starve_nor_speed_up_retries() {
        let soon = Duration::from_millis(300);
        assert_eq!(retries(1_000_000), (3, soon));
        // A status that flaps ten times a second, and one that does every ten seconds.
        assert_eq!(retries(100), (42, soon));
        assert_eq!(retries(10_000).1, soon);
        assert!(retries(10_000).0 <= 42, "{}", retries(10_000).0);
    }
}
