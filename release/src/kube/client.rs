//! The cluster handle: an identity, and what all identities share.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use objects::manifest::has_unknown_kinds;
use objects::{Discovery, Resource};
use serde_json::Value;

use super::discovery::CachedDiscovery;
use super::error::ApiError;
use super::lock::{ReleaseLock, ReleaseLocks};
use super::record_lists::BatchedLists;
use super::transport::Connection;
use crate::host::Host;

/// A cluster as one identity sees it. Cloning is cheap and shares discovery.
///
/// Everything goes through the client it was made with; [`Cluster::impersonating`] gives a handle for
/// another identity that shares only what the cluster serves and whose turn it is.
#[derive(Clone)]
pub struct Cluster {
    connection: Connection,
    discovery: Arc<CachedDiscovery>,
    namespaces: Arc<Mutex<HashSet<String>>>,
    record_lists: Arc<BatchedLists>,
    locks: Arc<ReleaseLocks>,
    host: Host,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

impl Cluster {
    /// The cluster that `client` talks to, as the identity it has. Nothing is asked yet.
    pub fn new(client: kube::Client) -> Self {
        let discovery = Arc::new(CachedDiscovery::new(client.clone()));
        Self {
            connection: client,
            discovery,
            namespaces: Arc::default(),
            record_lists: Arc::default(),
            locks: Arc::default(),
            host: Host::default(),
        }
    }

    /// The same cluster, seen from another host than the system.
    #[must_use]
    pub fn from_host(self, host: Host) -> Self {
        Self { host, ..self }
    }

    /// The process this handle is used in.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The same cluster as another identity. What the cluster serves is still asked with the first
    /// one's client: an impersonated account often may not read discovery.
    #[must_use]
    pub fn impersonating(&self, client: kube::Client) -> Self {
        Self {
            connection: client,
            record_lists: Arc::default(),
            ..self.clone()
        }
    }

    /// The client of this identity.
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Lists of records that are under way.
    pub(super) fn record_lists(&self) -> &BatchedLists {
        &self.record_lists
    }

    /// Waits until nobody else in this process acts on a release, whatever their identity.
    pub(crate) async fn lock_release(&self, namespace: &str, name: &str) -> ReleaseLock {
        self.locks.lock(namespace, name).await
    }

    /// Whether `namespace` was seen to exist. It may be gone again; this only orders requests.
    pub(crate) fn knows_namespace(&self, namespace: &str) -> bool {
        self.namespaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(namespace)
    }

    /// Remembers that `namespace` exists.
    pub(crate) fn remember_namespace(&self, namespace: &str) {
        let mut known = self
            .namespaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        known.insert(namespace.to_owned());
    }

    /// What the cluster serves; at most five minutes old.
    ///
    /// # Errors
    /// The API server was never reached.
    pub async fn discovery(&self) -> Result<Arc<Discovery>, ApiError> {
        self.discovery.get().await
    }

    /// What the cluster serves; at most a few seconds old.
    ///
    /// # Errors
    /// The API server cannot be reached.
    pub async fn fresh_discovery(&self) -> Result<Arc<Discovery>, ApiError> {
        self.discovery.fresh().await
    }

    /// What the cluster serves, asked anew if `documents` hold a kind that neither it nor `defined`
    /// knows.
    ///
    /// # Errors
    /// The API server cannot be reached.
    pub async fn discovery_of(
        &self,
        documents: &[Value],
        defined: &[Resource],
    ) -> Result<Arc<Discovery>, ApiError> {
        let discovery = self.discovery().await?;
        match has_unknown_kinds(documents, &discovery, defined) {
            true => self.fresh_discovery().await,
            false => Ok(discovery),
        }
    }

    /// Forgets what the cluster serves, for callers that see CustomResourceDefinitions change.
    pub fn forget_discovery(&self) {
        self.discovery.forget();
    }
}
