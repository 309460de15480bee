//! A collector for tests.

use std::sync::Arc;
use std::time::Duration;

use chart::source::Memory;
use http::Request;
use kube::client::Body;
use serde_json::json;

use super::{Collector, CollectorContext};
use crate::api::BundleDeployment;
use crate::client::health::Health;
use crate::client::scripted;
use crate::controllers::bundle_deployment::claims::ReleaseLocks;
use crate::controllers::queue::{Backoff, Queue};
use crate::controllers::store::Store;
use crate::ledger::{Ledger, LedgerEntry, ReleaseKey};
use crate::register::Upstream;
use crate::report::events::Events;
use crate::report::metrics::Metrics;

/// A bundle of that name.
pub(super) fn bundle(name: &str) -> BundleDeployment {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

/// A collector with these entries in the ledger, and an API server that has nothing of them. `code` says how it answers a request for a
/// path. Gives the ledger, too.
pub(super) async fn collector(
    store: &Arc<Store>,
    entries: &[(&str, LedgerEntry)],
    code: impl Fn(&str) -> u16 + Clone + Send + Sync + 'static,
) -> (Collector, Arc<Ledger>) {
    let clients = scripted::clients(move |request: Request<Body>| {
        let path = request.uri().path();
        let items = match path.contains("bundledeployments") {
            true => vec![json!({"metadata": {"name": "fleet-agent-edge"}})],
            false => Vec::new(),
        };
        let (code, metadata) = (code(path), json!({"resourceVersion": "5"}));
        let body = match code {
            200 => json!({"metadata": metadata, "spec": {}, "items": items}),
            _ => {
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code})
            }
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
        removal_grace: Duration::ZERO,
        removal_settle: Duration::from_secs(30),
        rename_grace: Duration::ZERO,
    };
    (Collector::new(&upstream, "system", context), ledger)
}
