//! The watch of BundleDeployments: keeps the store like upstream and wakes bundles.

use futures_util::StreamExt as _;
use kube::runtime::watcher;
use tokio::sync::Notify;

use crate::api::BundleDeployment;
use crate::client::health::{Health, Side};
use crate::client::listed::Unread;
use crate::client::watch::{self, Broken};
use crate::controllers::garbage::Collector;
use crate::controllers::queue::{Queue, ReconcileKind};
use crate::controllers::store::Store;
use crate::ledger::Ledger;
use crate::public::PublicText;
use crate::public::redact;
use crate::register::Upstream;

/// What the watch reads from and writes to.
pub(super) struct BundleWatch<'a> {
    pub(super) upstream: &'a Upstream,
    pub(super) store: &'a Store,
    pub(super) queue: &'a Queue,
    pub(super) collector: &'a Collector,
    pub(super) ledger: &'a Ledger,
    pub(super) health: &'a Health,
    /// Notified when the watch is to begin anew.
    pub(super) restart: &'a Notify,
    /// Notifies that upstream refuses the credential.
    pub(super) refused: &'a Notify,
}

impl BundleWatch<'_> {
    /// Watches; never ends.
    pub(super) async fn run(&self) {
        loop {
            tokio::select! {
                biased;
                () = self.watch() => {}
                () = self.restart.notified() => {}
            }
        }
    }

    async fn watch(&self) {
        let api = self
            .upstream
            .bundle_deployments::<Unread<BundleDeployment>>();
        let mut events = watch::watch(api, watcher::Config::default(), Broken::Resume);
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(event) => event,
                Err(failed) => {
                    match watch::is_answer(&failed) {
                        true => self.health.refused(Side::Upstream),
                        false => self.health.trouble(Side::Upstream),
                    }
                    logging::warn!(
                        error = PublicText::nothing_secret_in(&failed),
                        "watching bundledeployments"
                    );
                    let is_credential_refused = watch::is_credential_refused(&failed);
                    if is_credential_refused {
                        self.refused.notify_one();
                    }
                    if is_credential_refused || watch::is_broken(&failed) {
                        self.collector.doubt_upstream();
                    }
                    if watch::is_refused(&failed) {
                        // The namespace or the type may have been deleted, and its bundles with it: no proof.
                        self.store.forget_deletions();
                    }
                    continue;
                }
            };
            match event {
                // Nothing was asked yet.
                watcher::Event::Init => self.health.lists(),
                _ => self.health.contact(Side::Upstream),
            }
            for name in self.take(event).await {
                self.queue.wake(&name, ReconcileKind::Full);
            }
        }
    }

    /// Brings the store up to an event. Which bundles it wakes.
    async fn take(&self, event: watcher::Event<Unread<BundleDeployment>>) -> Vec<String> {
        match event {
            watcher::Event::Init => {
                self.store.relist();
                Vec::new()
            }
            watcher::Event::InitApply(bundle) => self.applied(&bundle),
            watcher::Event::Apply(bundle) => {
                // Not while listing: the version of a list is first compared with the one seen before.
                let version = &bundle.metadata.resource_version;
                self.ledger.saw_version(version.as_deref());
                self.applied(&bundle)
            }
            watcher::Event::InitDone => {
                self.health.listed();
                // The store has forgotten by now what it was compared with.
                if self.store.take_older_listed() {
                    self.ledger.found_restored();
                }
                let mut wake = self.store.relisted();
                if let Err(failed) = self.collector.check_continuity().await {
                    // Every removal lists again.
                    let error = PublicText::nothing_secret_in(&failed);
                    logging::warn!(error, "cannot compare upstream with what it was before");
                }
                // Deleted while nobody watched: such bundles are in the ledger and not in the list.
                wake.extend(self.collector.orphans());
                wake
            }
            watcher::Event::Delete(Unread { metadata, .. }) => {
                self.ledger
                    .saw_version(metadata.resource_version.as_deref());
                let name = metadata.name.unwrap_or_default();
                self.store.deleted(&name);
                self.queue.supersede(&name);
                vec![name]
            }
        }
    }

    fn applied(&self, received: &Unread<BundleDeployment>) -> Vec<String> {
        let name = received.metadata.name.as_deref();
        self.ledger.came_back(name.unwrap_or_default());
        match received.kept() {
            Ok(bundle) => {
                let name = bundle.name().to_owned();
                let old = self.store.get(&name);
                let is_other_spec = old.is_some_and(|old| old.spec != bundle.spec);
                let wake = self.store.applied(bundle);
                if is_other_spec {
                    self.queue.supersede(&name);
                }
                wake
            }
            Err(invalid) => {
                let name = received.metadata.name.clone().unwrap_or_default();
                logging::error!(
                    name,
                    error = redact::without_quotes(&invalid.to_string()),
                    "a bundledeployment cannot be read"
                );
                self.store.malformed(&name);
                vec![name]
            }
        }
    }
}
