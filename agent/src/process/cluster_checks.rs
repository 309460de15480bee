//! Asking the two clusters whether they answer, and upstream whether it went back in time.

use std::time::Duration;

use kube::Client;
use kube::api::ListParams;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::api::BundleDeployment;
use crate::client::health::{self, Health, Side};
use crate::client::listed::Metadata;
use crate::client::watch;
use crate::ledger::Ledger;
use crate::public::PublicText;
use crate::register::Upstream;

/// How often a cluster is asked while it is in trouble: a watch that resumes without an event does not show
/// that the cluster answers again.
const RECHECK: Duration = Duration::from_secs(5);

/// How often upstream is asked anyway whether it still is what it was.
const CONTINUITY_CHECK: Duration = Duration::from_secs(5 * 60);

/// What the checks read and set.
pub(super) struct ClusterChecks<'a> {
    pub(super) upstream: &'a Upstream,
    pub(super) local: Client,
    pub(super) ledger: &'a Ledger,
    pub(super) health: &'a Health,
    /// Starts the watch of BundleDeployments anew.
    pub(super) restart_watch: &'a Notify,
}

impl ClusterChecks<'_> {
    /// Asks clusters that are in trouble whether they are well again, clusters that have been silent for a sign of life, and
    /// upstream whether it is older than it was: a watch that resumes would get no events then, and is started anew. Ends when
    /// upstream refuses the credential, which an open watch does not notice.
    pub(super) async fn run(&self) {
        let mut checked = Instant::now();
        let mut breaks = self.ledger.breaks();
        loop {
            tokio::time::sleep(RECHECK).await;
            // A removal may find the break first; it cannot start the watch anew.
            if std::mem::replace(&mut breaks, self.ledger.breaks()) != breaks {
                self.restart_watch.notify_one();
            }
            if self.should_ask(Side::Local) {
                self.check_local().await;
            }
            if !self.should_ask(Side::Upstream) && checked.elapsed() < CONTINUITY_CHECK {
                continue;
            }
            match self.check_upstream().await {
                Ok(()) => checked = Instant::now(),
                Err(failed) => {
                    match health::is_answer(&failed) {
                        true => self.health.refused(Side::Upstream),
                        false => self.health.trouble(Side::Upstream),
                    }
                    if watch::is_refusal_of_credential(&failed) {
                        return;
                    }
                }
            }
        }
    }

    async fn check_local(&self) {
        match self.local.apiserver_version().await {
            Ok(_) => self.health.contact(Side::Local),
            Err(failed) => {
                let error = PublicText::nothing_secret_in(&failed);
                logging::warn!(error, "the local cluster does not answer");
                self.health.failed(Side::Local, &failed);
            }
        }
    }

    async fn check_upstream(&self) -> kube::Result<()> {
        let bundles = self
            .upstream
            .bundle_deployments::<Metadata<BundleDeployment>>();
        let seen = self.ledger.seen_version();
        let one = ListParams::default().limit(1);
        let listed = bundles.list(&one).await?;
        let version = listed.metadata.resource_version.as_deref();
        let version = version.and_then(|text| text.parse::<u64>().ok());
        if version.is_some_and(|version| version < seen) {
            logging::warn!("upstream is older than it was, watching anew");
            // It may have caught up before it is asked again.
            self.ledger.found_restored();
            self.restart_watch.notify_one();
        } else if self.health.is_cut_off(Side::Upstream) {
            // The watch has had no event since: its connection may be dead.
            self.restart_watch.notify_one();
        }
        self.health.contact(Side::Upstream);
        Ok(())
    }

    fn should_ask(&self, side: Side) -> bool {
        self.health.is_troubled(side) || self.health.is_silent(side)
    }
}
