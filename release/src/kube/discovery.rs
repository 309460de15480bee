//! The kinds the cluster serves, asked once and remembered.
//!
//! One aggregated discovery is two requests and covers every group; a server without it is asked
//! group by group. What a group whose own API server is down has is missing, and [`Discovery::has_answered`] says so. The cache
//! is shared by all identities (rights do not change what exists) and is refreshed when it is old,
//! when a kind was not found, and after this crate created a CustomResourceDefinition.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use logging::Name;
use objects::fields::{items, text};
use objects::{Discovery, GroupKind};
use parking_lot::RwLock;
use serde_json::Value;
use tokio::time::Instant;

use super::error::ApiError;
use super::transport::{ACCEPT_JSON, Connection, Verb, send};

/// How old an answer may be before `.Capabilities` is asked for anew.
const MAX_AGE: Duration = Duration::from_secs(300);
/// How often a kind that is not found may cause another request.
const MIN_AGE: Duration = Duration::from_secs(5);
/// How often an address that is not served, of a kind that is listed, may.
const NEWEST_AGE: Duration = Duration::from_secs(1);

const ACCEPT_AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// The remembered answer and how to ask again.
pub(super) struct CachedDiscovery {
    connection: Connection,
    current: RwLock<Option<(Arc<Discovery>, Instant)>>,
    /// One request at a time, however many wait for its answer.
    asking: tokio::sync::Mutex<()>,
    proven: tokio::sync::Mutex<ProvenGone>,
}

/// Kinds of which it was shown, beside one answer of the cluster, that there is nothing.
#[derive(Default)]
pub(super) struct ProvenGone {
    pub(super) at: Weak<Discovery>,
    pub(super) kinds: BTreeSet<GroupKind>,
    /// Of these there may be something.
    pub(super) not_served: BTreeSet<GroupKind>,
}

impl CachedDiscovery {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection,
            current: RwLock::new(None),
            asking: tokio::sync::Mutex::new(()),
            proven: tokio::sync::Mutex::default(),
        }
    }

    /// Kinds that are gone, as long as one answer stands.
    pub(super) fn proven(&self) -> &tokio::sync::Mutex<ProvenGone> {
        &self.proven
    }

    /// The connection that discovery uses.
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    fn current(&self, max_age: Duration) -> Option<Arc<Discovery>> {
        let current = self.current.read();
        current
            .as_ref()
            .filter(|(_, taken_at)| taken_at.elapsed() < max_age)
            .map(|(discovery, _)| Arc::clone(discovery))
    }

    /// The remembered answer, or a new one if it is too old.
    pub(super) async fn get(&self) -> Result<Arc<Discovery>, ApiError> {
        self.get_within(MAX_AGE).await
    }

    /// An answer that is only a few seconds old, for a kind that was not found.
    pub(super) async fn fresh(&self) -> Result<Arc<Discovery>, ApiError> {
        self.get_within(MIN_AGE).await
    }

    /// An answer that is hardly older than the question, for a kind that an earlier one lists and that is not served.
    pub(super) async fn newest(&self) -> Result<Arc<Discovery>, ApiError> {
        self.get_within(NEWEST_AGE).await
    }

    /// Makes the next caller ask again.
    pub(super) fn forget(&self) {
        *self.current.write() = None;
    }

    async fn get_within(&self, max_age: Duration) -> Result<Arc<Discovery>, ApiError> {
        if let Some(discovery) = self.current(max_age) {
            return Ok(discovery);
        }
        let _asking = self.asking.lock().await;
        if let Some(discovery) = self.current(max_age) {
            return Ok(discovery);
        }
        let discovery = Arc::new(self.ask().await?);
        let mut current = self.current.write();
        *current = Some((Arc::clone(&discovery), Instant::now()));
        Ok(discovery)
    }

    async fn ask(&self) -> Result<Discovery, ApiError> {
        let mut discovery = Discovery::default();
        let get =
            |path: &str, accept| send(&self.connection, Verb::get(accept), path.to_owned(), None);
        discovery.set_server_version(get("/version", ACCEPT_JSON).await?);
        for root in ["/api", "/apis"] {
            let list = get(root, ACCEPT_AGGREGATED).await?;
            if text(&list, "/kind") == "APIGroupDiscoveryList" {
                discovery.add_aggregated(&list);
            } else {
                self.ask_each(root, &list, &mut discovery).await?;
            }
        }
        Ok(discovery)
    }

    /// Asks group by group; one that does not answer is left out.
    async fn ask_each(
        &self,
        root: &str,
        list: &Value,
        discovery: &mut Discovery,
    ) -> Result<(), ApiError> {
        let core = items(list, "versions").iter().filter_map(Value::as_str);
        let groups = items(list, "groups")
            .iter()
            .flat_map(|group| items(group, "versions"));
        let versions = core.chain(groups.map(|version| text(version, "/groupVersion")));
        for version in versions {
            let path = format!("{root}/{version}");
            match send(&self.connection, Verb::get(ACCEPT_JSON), path, None).await {
                Ok(list) => discovery.add_list(&list),
                Err(ApiError::Refused(status)) => {
                    logging::warn!(
                        version = Name(version),
                        code = status.code,
                        "skipping an API group that does not answer"
                    );
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
