//! Waking bundles that wait for a kind: when definitions or API services change, it may be served now.
//!
//! Upstream tries such a bundle again with its ordinary back-off, which has long reached its maximum when an operator's definitions
//! come. Nothing is watched while no bundle waits.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::runtime::watcher;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::queue::{Queue, ReconcileKind};
use crate::client::identity::Identities;
use crate::client::watch::{self, Broken};
use crate::error;

/// When bundles are tried again after a change: a definition is established some time after it was made, and served a moment after that.
const RETRIES: [Duration; 3] = [
    Duration::from_millis(300),
    Duration::from_secs(2),
    Duration::from_secs(6),
];

/// Bundles that wait for a kind; shared by reference.
pub struct CrdWatch {
    identities: Arc<Identities>,
    queue: Arc<Queue>,
    waiting: Mutex<BTreeSet<String>>,
    changed: Notify,
}

type Changes =
    BoxStream<'static, watcher::Result<watcher::Event<PartialObjectMeta<DynamicObject>>>>;

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

    /// A bundle failed because the cluster does not serve a kind.
    pub fn wait(&self, bundle: &str) {
        self.lock().insert(bundle.to_owned());
        self.changed.notify_one();
    }

    /// A bundle does not wait any more.
    pub fn forget(&self, bundle: &str) {
        if self.lock().remove(bundle) {
            self.changed.notify_one();
        }
    }

    /// Watches while somebody waits; never ends.
    pub async fn run(&self) {
        loop {
            self.changed.notified().await;
            if !self.lock().is_empty() {
                self.watch().await;
            }
        }
    }

    /// Ends when nobody waits.
    async fn watch(&self) {
        let mut changes = stream::select(
            self.changes("apiextensions.k8s.io", "CustomResourceDefinition"),
            self.changes("apiregistration.k8s.io", "APIService"),
        );
        let mut retries = VecDeque::new();
        while !self.lock().is_empty() {
            let next = retries.front().copied();
            let until_retry = async {
                match next {
                    Some(retry) => tokio::time::sleep_until(retry).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(event) = changes.next() => match event {
                    // Also after a list: it holds what was made before the watch began.
                    Ok(watcher::Event::Apply(_) | watcher::Event::InitDone) => {
                        let now = Instant::now();
                        retries = RETRIES.map(|pause| now + pause).into();
                    }
                    Ok(_) => {}
                    Err(failed) => {
                        tracing::debug!(error = %error::chain(&failed), "watching definitions");
                    }
                },
                () = until_retry => {
                    retries.pop_front();
                    self.identities.forget_discovery();
                    for bundle in &*self.lock() {
                        self.queue.wake(bundle, ReconcileKind::Full);
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

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
