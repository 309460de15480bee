//! The search through the cluster's release records: bundles whose record is gone, and records that nobody knows.

use std::sync::Arc;

use super::Collector;
use super::report::REPORT_NAME;
use super::unknown::{Found, Newest};
use crate::api::BundleDeployment;
use crate::client::identity::AgentClient;
use crate::controllers::claims::ReleaseId;
use crate::controllers::suspension::suspend_reason;
use crate::ledger::ReleaseKey;
use crate::public;
use crate::public::{Name, PublicText};
use crate::report::events::Reason;

/// Releases that one search reports by name, besides the report.
const MOST_REPORTED: usize = 100;

impl Collector {
    /// Lists the cluster's release records. Reports those that name this agent and that neither the ledger nor a
    /// live bundle knows, and gives back the bundles whose record somebody deleted.
    pub(super) async fn search(&self) -> Vec<String> {
        let agent = self.uninstaller.identities.agent();
        // Before the list: a release that is deployed while it is made would count as missing from it.
        let deployed = self.deployed();
        let wanted = deployed.iter().map(|(_, key, _)| key.clone()).collect();
        let newest = match self.search.newest(&wanted, &self.ledger).await {
            Ok(newest) => newest,
            Err(failed) => {
                logging::warn!(
                    error = PublicText::nothing_secret_in(&failed),
                    "cannot look for releases"
                );
                return Vec::new();
            }
        };
        let lost_records = deployed
            .into_iter()
            .filter(|(_, key, revision)| !newest.has(key, *revision))
            .map(|(bundle, ..)| bundle)
            .collect();
        self.report_unknown(&agent, newest).await;
        lost_records
    }

    /// What the bundles have deployed: their names, and release and revision by their statuses.
    fn deployed(&self) -> Vec<(String, ReleaseKey, i64)> {
        let release = |bundle: Arc<BundleDeployment>| {
            let id = ReleaseId::parse(&bundle.status.release)?;
            Some((bundle.name().to_owned(), id.release, id.revision))
        };
        self.store.all().into_iter().filter_map(release).collect()
    }

    async fn report_unknown(&self, agent: &AgentClient, newest: Newest) {
        let found = self.search.unknown(agent, &self.ledger, newest).await;
        let Found {
            mut unknown,
            unread,
            left_out,
        } = match found {
            Ok(found) => found,
            Err(failed) => {
                logging::warn!(
                    error = PublicText::nothing_secret_in(&failed),
                    "cannot look for unknown releases"
                );
                return;
            }
        };
        unknown.retain(|one| !self.is_expected(&one.bundle, &one.key));
        let reported = self.report.unknown(unknown, &unread, left_out);
        if reported.len() > MOST_REPORTED {
            let (more, report) = (reported.len() - MOST_REPORTED, REPORT_NAME);
            logging::warn!(
                more,
                "further releases that the ledger does not know are left alone: configmap {} names them",
                report
            );
        }
        for one in reported.into_iter().take(MOST_REPORTED) {
            let ReleaseKey { namespace, name } = &one.key;
            logging::warn!(
                release = name,
                namespace,
                bundle = one.bundle,
                "a release that the ledger does not know is left alone"
            );
            self.events.emit(
                Reason::UnknownRelease,
                &one.bundle,
                public!(
                    "release {}/{} names this bundle, but the ledger does not know it: left alone",
                    Name(namespace),
                    Name(name)
                ),
            );
        }
    }

    /// Whether a live bundle is about to enter this release.
    fn is_expected(&self, bundle: &str, key: &ReleaseKey) -> bool {
        self.store.get(bundle).is_some_and(|bundle| {
            self.store.desired(&bundle).as_ref() == Some(key)
                && suspend_reason(&bundle.spec).is_none()
        })
    }
}
