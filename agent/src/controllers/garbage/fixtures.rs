//! A collector for tests.

use std::sync::Arc;
use std::time::Duration;

use chart::source::Memory;
use http::Request;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{Collector, CollectorContext};
use crate::api::BundleDeployment;
use crate::client::health::Health;
use crate::client::scripted;
use crate::controllers::claims::ReleaseLocks;
use crate::controllers::downstream_resources::UnnotedCopies;
use crate::controllers::queue::{Backoff, Queue};
use crate::controllers::store::Store;
use crate::ledger::{Ledger, LedgerEntry, ReleaseKey};
use crate::register::Upstream;
use crate::report::events::Events;
use crate::report::metrics::Metrics;

/// A bundle of that name.
pub(crate) fn bundle(name: &str) -> BundleDeployment {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

/// The BundleDeployments that upstream has.
pub(super) type Upstreams = Arc<Mutex<Vec<Value>>>;

/// The agent's own alone.
pub(super) fn own() -> Upstreams {
    Arc::new(Mutex::new(vec![
        json!({"metadata": {"name": "fleet-agent-edge"}}),
    ]))
}

/// A collector with these entries in the ledger, and an API server that has nothing of them. `code` says how it answers a request for a
/// path. Gives the ledger, too.
pub(crate) async fn collector(
    store: &Arc<Store>,
    entries: &[(&str, LedgerEntry)],
    code: impl Fn(&str) -> u16 + Clone + Send + Sync + 'static,
) -> (Collector, Arc<Ledger>) {
    collector_beside(&own(), store, entries, code).await
}

/// A collector with these BundleDeployments upstream.
pub(super) async fn collector_beside(
    upstreams: &Upstreams,
    store: &Arc<Store>,
    entries: &[(&str, LedgerEntry)],
    code: impl Fn(&str) -> u16 + Clone + Send + Sync + 'static,
) -> (Collector, Arc<Ledger>) {
    let upstreams = Arc::clone(upstreams);
    let clients = scripted::clients(move |request: Request<Body>| {
        let path = request.uri().path();
        let listed = || match path.ends_with("/bundledeployments") {
            true => upstreams.lock().clone(),
            false => Vec::new(),
        };
        let list = || json!({"metadata": {"resourceVersion": "5"}, "spec": {}, "items": listed()});
        let asked = path.split_once("/bundledeployments/");
        let found = match asked {
            Some((_, name)) => {
                let upstreams = upstreams.lock();
                let mut named = upstreams
                    .iter()
                    .filter(|one| one["metadata"]["name"] == name);
                named.next().cloned()
            }
            None => Some(list()),
        };
        let (code, body) = match (code(path), found) {
            (200, Some(found)) => (200, found),
            (200, None) => (
                404,
                json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"}),
            ),
            (code, _) => (
                code,
                json!({"kind": "Status", "status": "Failure", "code": code}),
            ),
        };
        async move { (code, body) }
    });
    store.applied(bundle("fleet-agent-edge"));
    let identities = Arc::new(scripted::identities(&clients));
    let agent = identities.agent();
    let ledger = Arc::new(Ledger::load(&agent, "system").await.unwrap());
    for (name, entry) in entries {
        let (namespace, name) = ("apps".to_owned(), (*name).to_owned());
        let noted = ledger.attempt(ReleaseKey { namespace, name }, entry.clone());
        noted.await.unwrap();
    }
    let upstream = Upstream::scripted(&clients);
    let metrics = Metrics::default();
    let backoff = Backoff {
        min: Duration::ZERO,
        max: Duration::ZERO,
    };
    let context = CollectorContext {
        identities: &identities,
        store,
        ledger: &ledger,
        queue: &Arc::new(Queue::new(backoff, metrics.clone())),
        events: &Arc::new(Events::new(&agent, "system", "host", metrics.clone())),
        metrics: &metrics,
        health: &Health::new(Duration::from_secs(300)),
        memory: &Memory::new(1 << 20),
        release_locks: &ReleaseLocks::default(),
        unnoted_copies: &UnnotedCopies::default(),
        removal_grace: Duration::ZERO,
        removal_settle: Duration::from_secs(30),
        rename_grace: Duration::ZERO,
    };
    (Collector::new(&upstream, "system", context), ledger)
}
