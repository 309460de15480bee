//! A BundleDeployment that is not there: whether its releases go, and what is forgotten of it.

use std::time::Duration;

use super::Reconciler;
use crate::client::health::Side;
use crate::controllers::garbage::{NAMESPACES_RETRY, RemovalError, Verdict};
use crate::controllers::queue::Requeue;
use crate::public;
use crate::report::events::Reason;

/// How often it is looked whether a bundle that may want a release has its `${ }` filled in; when it has, its owner is woken.
const CLAIMED_RETRY: Duration = Duration::from_secs(20);

/// When to come back to a bundle the removal of whose releases came to this.
fn requeue(verdict: Verdict) -> Requeue {
    match verdict {
        // All held releases are checked together.
        Verdict::Alive | Verdict::Remove | Verdict::Held(_) => Requeue::IDLE,
        Verdict::Wait(pause) => Requeue::after(pause),
        Verdict::Claimed => Requeue::after(CLAIMED_RETRY),
        Verdict::NamespacesDeferred => Requeue::after(NAMESPACES_RETRY),
    }
}

impl Reconciler {
    /// The BundleDeployment is not there; says when to come back to it, unless somebody wakes it.
    pub(super) async fn gone(&self, name: &str) -> Requeue {
        if self.context.store.is_listed(name) {
            // There, but unreadable: left as it is. What it says of its objects is not known.
            self.context.collector.is_back(name, false).await;
            return Requeue::IDLE;
        }
        self.context.drift.clear(name);
        self.observation_cache.forget(name);
        self.note_taken(name, None);
        self.forget(name);
        self.context.crd_watch.forget(name);
        if !self.context.ledger.knows(name) {
            self.context.collector.forget(name);
            self.forget_all(name);
            return Requeue::IDLE;
        }
        if let Some(hold) = self.context.facts.hold(name).await {
            logging::info!(bundle = name, hold, "not removing a release");
            let text = public!("not removed while the site holds deploys: {}", hold);
            self.context.events.emit(Reason::RemovalHeld, name, text);
            return Requeue::IDLE;
        }
        let missing_since = self.context.store.missing_since(name);
        let missed = missing_since.elapsed();
        if missed < self.timing.removal_grace {
            return Requeue::after(self.timing.removal_grace - missed);
        }
        match self.context.collector.remove(name, missing_since).await {
            Ok(verdict) => {
                if matches!(verdict, Verdict::Alive | Verdict::Remove) {
                    self.forget_all(name);
                }
                requeue(verdict)
            }
            Err(failed) => {
                if matches!(failed, RemovalError::List(_)) {
                    self.context.health.trouble(Side::Upstream);
                }
                let error = failed.public_text();
                logging::error!(
                    bundle = name,
                    error,
                    "failed to clean up missing bundledeployment"
                );
                self.context.events.emit(Reason::RemovalFailed, name, error);
                Requeue::RETRY
            }
        }
    }

    /// The bundle is gone for good.
    fn forget_all(&self, name: &str) {
        self.context.facts.forget(name);
        self.context.deployer.forget(name);
        self.context.values_watches.forget(name);
        self.overwritten.note(name, false);
        self.corrections.lock().remove(name);
        self.context.unnoted_copies.forget(name);
        self.rolled_out_copies.forget(name);
        self.records_read.lock().remove(name);
        self.context.deployed_ids.forget(name);
    }
}
