//! Asking the two clusters whether they answer, and upstream whether it went back in time.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::Client;
use kube::api::{ListMeta, ListParams};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::api::BundleDeployment;
use crate::client::health::{Health, Side};
use crate::client::listed::{self, Metadata};
use crate::client::watch;
use crate::controllers::store::Store;
use crate::error::{is_answered, unended_list};
use crate::ledger::Ledger;
use crate::public::PublicText;
use crate::register::Upstream;

/// How often a cluster is asked while it is in trouble: a watch that resumes without an event does not show
/// that the cluster answers again.
const RECHECK: Duration = Duration::from_secs(5);

/// How often upstream is asked anyway whether it still is what it was, at least and at most: as often as it gets a heartbeat.
const CONTINUITY_CHECK: [Duration; 2] =
    [Duration::from_secs(10 * 60), Duration::from_secs(20 * 60)];

/// What the checks read and set.
pub(super) struct ClusterChecks<'a> {
    pub(super) upstream: &'a Upstream,
    pub(super) local: Client,
    pub(super) ledger: &'a Ledger,
    pub(super) store: &'a Store,
    pub(super) health: &'a Health,
    /// Starts the watch of BundleDeployments anew.
    pub(super) restart_watch: &'a Notify,
    /// Notifies that upstream refuses the credential, which an open watch does not notice.
    pub(super) refused: &'a Notify,
}

impl ClusterChecks<'_> {
    /// Asks clusters that are in trouble whether they are well again, clusters that have been silent for a sign of life, and
    /// upstream whether it is older than it was: a watch that resumes would get no events then, and is started anew. Never ends.
    pub(super) async fn run(&self) {
        let mut due = next_check();
        let mut missed = MissedEvents::default();
        let mut breaks = self.ledger.breaks();
        let mut was_refused = false;
        // No list is asked for before that, whatever small questions say: upstream did not end the last one.
        let mut lists_from = Instant::now();
        loop {
            tokio::time::sleep(RECHECK).await;
            // A removal may find the break first; it cannot start the watch anew.
            if std::mem::replace(&mut breaks, self.ledger.breaks()) != breaks {
                self.restart_watch.notify_one();
            }
            if self.should_ask(Side::Local) {
                self.check_local().await;
            }
            let is_due = missed.is_suspected() || due <= Instant::now();
            let may_ask = self.health.may_ask(Side::Upstream);
            if !(self.should_ask(Side::Upstream) || is_due && may_ask) {
                continue;
            }
            match self.check_upstream(&mut missed).await {
                Ok(()) => {
                    due = next_check();
                    if Instant::now() < lists_from {
                        missed = MissedEvents::default();
                    }
                    // Events that came meanwhile were not believed.
                    if std::mem::take(&mut was_refused) {
                        self.restart_watch.notify_one();
                    }
                }
                Err(failed) if unended_list(&failed).is_some() => {
                    // Upstream answers. What is there by its list is not to be had, however soon it is asked again.
                    let error = PublicText::nothing_secret_in(&failed);
                    logging::warn!(error, "cannot tell whether the watch has missed any");
                    self.health.contact(Side::Upstream);
                    (missed, due) = (MissedEvents::default(), next_check());
                    lists_from = due;
                }
                Err(failed) => {
                    self.health.unanswered(Side::Upstream);
                    match is_answered(&failed) {
                        true => self.health.refused(Side::Upstream),
                        false => self.health.trouble(Side::Upstream),
                    }
                    if watch::is_refusal_of_credential(&failed) {
                        was_refused = true;
                        self.refused.notify_one();
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
                self.health.unanswered(Side::Local);
            }
        }
    }

    async fn check_upstream(&self, missed: &mut MissedEvents) -> kube::Result<()> {
        let bundles = self
            .upstream
            .bundle_deployments::<Metadata<BundleDeployment>>();
        let seen = self.ledger.seen_version();
        let (version, received, differs) = if missed.is_suspected() {
            let mut names = BTreeSet::new();
            let named = |item: Metadata<BundleDeployment>| item.metadata.name;
            let take = |page: Vec<_>| names.extend(page.into_iter().filter_map(named));
            let version = listed::list(&bundles, take).await?;
            let received = self.store.names();
            let differs = names != received;
            (version, received, differs)
        } else {
            let one = ListParams::default().limit(1);
            let listed = bundles.list(&one).await?;
            let count = count(&listed.metadata, listed.items.len());
            let received = self.store.names();
            let differs = count.is_some_and(|count| count != received.len());
            (listed.metadata.resource_version, received, differs)
        };
        let is_missed = missed.is_certain(received, differs && !self.store.is_listing());
        let version = version.and_then(|text| text.parse::<u64>().ok());
        if version.is_some_and(|version| version < seen) {
            logging::warn!("upstream is older than it was, watching anew");
            // Upstream may have caught up before it is asked again.
            self.ledger.found_restored();
            self.restart_watch.notify_one();
            // Nor does the next process find it then, should this one die before the new watch has listed.
            if let Err(failed) = self.ledger.write().await {
                let error = PublicText::nothing_secret_in(&failed);
                logging::warn!(error, "cannot write the ledger");
            }
        } else if self.health.is_cut_off(Side::Upstream) && !self.store.is_listing() {
            // The watch has had no event since: its connection may be dead. A list that is under way ends, or begins anew, by itself.
            self.restart_watch.notify_one();
        } else if is_missed {
            logging::warn!("upstream has other bundledeployments than were told, watching anew");
            self.restart_watch.notify_one();
        }
        self.health.contact(Side::Upstream);
        Ok(())
    }

    fn should_ask(&self, side: Side) -> bool {
        let is_doubtful = self.health.is_troubled(side) || self.health.is_silent(side);
        is_doubtful && self.health.may_ask(side)
    }
}

/// When upstream is asked next though all is well.
fn next_check() -> Instant {
    let [least, most] = CONTINUITY_CHECK;
    Instant::now() + least + (most - least).mul_f64(rand::random())
}

/// How many there are, by a list of the first few; nothing where the API server does not say.
fn count(list: &ListMeta, items: usize) -> Option<usize> {
    let is_all = list.continue_.as_deref().unwrap_or_default().is_empty();
    match list.remaining_item_count {
        Some(remaining) => Some(items + usize::try_from(remaining).ok()?),
        None => is_all.then_some(items),
    }
}

/// Whether a watch has missed something. One that goes on from a version of before upstream was restored never gets events for what has
/// happened up to that version since, and where upstream has passed it by the time it is asked nothing else shows it.
#[derive(Debug, Default)]
struct MissedEvents(Option<BTreeSet<String>>);

impl MissedEvents {
    /// Whether there were other BundleDeployments at the last check, by their number, which an API server may estimate.
    fn is_suspected(&self) -> bool {
        self.0.is_some()
    }

    /// Whether upstream has others than those `received`, had them at the check before, and sent no event meanwhile.
    fn is_certain(&mut self, received: BTreeSet<String>, differs: bool) -> bool {
        let before = self.0.take().filter(|_| differs);
        let is_certain = before.as_ref() == Some(&received);
        self.0 = Some(received).filter(|_| differs && !is_certain);
        is_certain
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::Request;
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::client::scripted;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_watch_that_misses_listed_bundles_begins_anew() {
        let mut missed = MissedEvents::default();
        assert!(!missed.is_certain(names(&["a"]), false) && !missed.is_suspected());
        // The event may be on its way.
        assert!(!missed.is_certain(names(&["a"]), true) && missed.is_suspected());
        assert!(!missed.is_certain(names(&["a", "b"]), true) && missed.is_suspected());
        assert!(!missed.is_certain(names(&["a", "b"]), false) && !missed.is_suspected());
        assert!(!missed.is_certain(names(&["a", "b"]), true));
        assert!(missed.is_certain(names(&["a", "b"]), true) && !missed.is_suspected());
    }

    /// A cluster that comes up is not asked by all its agents every five seconds.
    #[tokio::test(start_paused = true)]
    async fn an_upstream_that_does_not_answer_is_asked_ever_more_rarely() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let clients = scripted::clients(move |request: Request<Body>| {
            let is_upstream = request.uri().path().contains("bundledeployments");
            counted.fetch_add(usize::from(is_upstream), Ordering::Relaxed);
            let status = json!({"kind": "Status", "status": "Failure", "code": 500});
            let answer = if is_upstream {
                (500, status)
            } else {
                (200, json!({"metadata": {}}))
            };
            std::future::ready(answer)
        });
        let agent = scripted::identities(&clients).agent();
        let ledger = Ledger::load(&agent, "system").await.unwrap();
        let health = Health::new(Duration::from_secs(300));
        let (upstream, restart_watch) = (Upstream::scripted(&clients), Notify::new());
        let checks = ClusterChecks {
            upstream: &upstream,
            local: agent.client(),
            ledger: &ledger,
            store: &Store::default(),
            health: &health,
            restart_watch: &restart_watch,
            refused: &Notify::new(),
        };
        health.trouble(Side::Upstream);
        let running = async {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            let before = asked.load(Ordering::Relaxed);
            // A watch is answered.
            tokio::time::sleep(RECHECK).await;
            health.last_contact(Side::Upstream).now();
            tokio::time::sleep(RECHECK * 2).await;
            (before, asked.load(Ordering::Relaxed))
        };
        let (before, after) = tokio::select! {
            () = checks.run() => panic!("the checks end"),
            asked = running => asked,
        };
        assert!((30..=100).contains(&before), "{before}");
        assert!(after > before, "{before}");
    }

    /// The upstream answers; each try would be as long as the first.
    #[tokio::test(start_paused = true)]
    async fn an_upstream_that_does_not_end_its_list_is_not_cut_off() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let health = Health::new(Duration::from_secs(300));
        let heard = health.clone();
        let clients = scripted::clients(move |request: Request<Body>| {
            let is_upstream = request.uri().path().contains("bundledeployments");
            counted.fetch_add(usize::from(is_upstream), Ordering::Relaxed);
            heard.last_contact(Side::Upstream).now();
            let metadata =
                json!({"resourceVersion": "5", "continue": "x", "remainingItemCount": 9});
            std::future::ready((200, json!({"metadata": metadata, "items": []})))
        });
        let agent = scripted::identities(&clients).agent();
        let ledger = Ledger::load(&agent, "system").await.unwrap();
        let (upstream, restart_watch) = (Upstream::scripted(&clients), Notify::new());
        let checks = ClusterChecks {
            upstream: &upstream,
            local: agent.client(),
            ledger: &ledger,
            store: &Store::default(),
            health: &health,
            restart_watch: &restart_watch,
            refused: &Notify::new(),
        };
        tokio::select! {
            () = checks.run() => panic!("the checks end"),
            () = tokio::time::sleep(Duration::from_secs(3600)) => {}
        }
        let asked = asked.load(Ordering::Relaxed);
        assert!((3..=60).contains(&asked), "{asked}");
        assert!(!health.is_troubled(Side::Upstream));
        let restarts = tokio::time::timeout(Duration::ZERO, restart_watch.notified());
        assert!(restarts.await.is_err(), "the watch begins anew");
    }

    /// A process that dies before the watch has listed anew leaves what it knew.
    #[tokio::test(start_paused = true)]
    async fn an_upstream_that_is_older_is_noted_before_it_is_listed() {
        let writes = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let written = Arc::clone(&writes);
        let clients = scripted::clients(move |request: Request<Body>| {
            let written = Arc::clone(&written);
            async move {
                if request.uri().path().contains("bundledeployments") {
                    let metadata = json!({"resourceVersion": "5"});
                    return (200, json!({"metadata": metadata, "items": []}));
                }
                if request.method() != http::Method::GET {
                    let body = request.into_body().collect_bytes().await.unwrap();
                    let body = String::from_utf8_lossy(&body).replace('\\', "");
                    written.lock().push(body);
                }
                let seen = json!({"server": "http://scripted", "namespace": "bundles"});
                let annotations = json!({"fleet.cattle.io/upstream": seen.to_string()});
                let metadata = json!({"resourceVersion": "1", "annotations": annotations});
                (200, json!({"metadata": metadata}))
            }
        });
        let agent = scripted::identities(&clients).agent();
        let ledger = Ledger::load(&agent, "system").await.unwrap();
        let health = Health::new(Duration::from_secs(300));
        let (upstream, restart_watch) = (Upstream::scripted(&clients), Notify::new());
        let checks = ClusterChecks {
            upstream: &upstream,
            local: agent.client(),
            ledger: &ledger,
            store: &Store::default(),
            health: &health,
            restart_watch: &restart_watch,
            refused: &Notify::new(),
        };
        ledger.saw_version(Some("9"));
        checks
            .check_upstream(&mut MissedEvents::default())
            .await
            .unwrap();
        let written = writes.lock().concat();
        assert!(written.contains(r#""broken":"restored""#), "{written}");
        let restarts = tokio::time::timeout(Duration::ZERO, restart_watch.notified());
        assert!(restarts.await.is_ok());
    }

    #[test]
    fn a_first_page_of_a_list_gives_the_total_count() {
        let list = |remaining, next: &str| ListMeta {
            remaining_item_count: remaining,
            continue_: Some(next.to_owned()),
            ..ListMeta::default()
        };
        assert_eq!(count(&list(Some(4), "x"), 1), Some(5));
        assert_eq!(count(&list(None, ""), 1), Some(1));
        assert_eq!(count(&ListMeta::default(), 0), Some(0));
        assert_eq!(count(&list(None, "x"), 1), None);
    }
}
