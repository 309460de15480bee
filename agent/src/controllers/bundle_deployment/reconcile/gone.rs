//! A BundleDeployment that is not there: whether its releases go, and what is forgotten of it.

use super::Reconciler;
use crate::client::health::Side;
use crate::controllers::bundle_deployment::outcome::RemovalReport;
use crate::controllers::garbage::{RemovalError, Verdict};
use crate::controllers::queue::Requeue;

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
            let settled = self.context.collector.settle(name).await;
            let report = match settled {
                Ok(()) => RemovalReport::held_by_site(name, &hold),
                Err(failed) => RemovalReport::failed(name, failed.public_text()),
            };
            return self.hand_out(name, report);
        }
        match self.context.collector.remove(name).await {
            Ok(verdict) => {
                if matches!(verdict, Verdict::Alive | Verdict::Remove) {
                    self.forget_all(name);
                }
                self.hand_out(name, RemovalReport::decided(verdict))
            }
            Err(failed) => {
                if matches!(failed, RemovalError::List(_)) {
                    self.context.health.trouble(Side::Upstream);
                }
                let error = failed.public_text();
                self.hand_out(name, RemovalReport::failed(name, error))
            }
        }
    }

    /// Hands out what a removal came to.
    fn hand_out(&self, name: &str, report: RemovalReport) -> Requeue {
        if let Some((reason, text)) = report.event {
            self.context.events.emit(reason, name, text);
        }
        report.requeue
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
