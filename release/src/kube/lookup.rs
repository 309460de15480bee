//! `lookup` in templates: reading live objects while rendering.
//!
//! Templates run outside the async runtime; each lookup blocks the rendering thread on it.

use std::net::IpAddr;

use objects::group_version;
use serde_json::{Map, Value};
use tokio::runtime::Handle;

use super::client::Cluster;
use super::error::ApiError;

/// The world outside a template: live objects, as the identity of its cluster, and host names.
///
/// It must be used from a thread that may block, such as one of `spawn_blocking`.
#[derive(Debug, Clone)]
pub struct ClusterLookup {
    cluster: Cluster,
    runtime: Handle,
    resolves_names: bool,
}

impl templating::Host for ClusterLookup {
    fn resolve(&self, name: &str) -> Option<Result<Vec<IpAddr>, templating::Error>> {
        self.resolves_names.then(|| templating::resolve_name(name))
    }

    fn lookup(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Value, templating::Error> {
        let found = self.find(api_version, kind, namespace, name);
        let found = self.runtime.block_on(found);
        found.map_err(|error| templating::Error::message(crate::error::error_chain(&error)))
    }
}

impl ClusterLookup {
    /// Lookups through `cluster`, run by the current runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            runtime: Handle::current(),
            resolves_names: false,
        }
    }

    /// Lets templates resolve host names (`getHostByName`), which Helm's `--enable-dns` does.
    #[must_use]
    pub fn resolving_names(mut self, resolves_names: bool) -> Self {
        self.resolves_names = resolves_names;
        self
    }

    /// One object, or with an empty name the list of a namespace, or with both empty of the whole
    /// cluster. What does not exist is an empty object.
    async fn find(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Value, LookupError> {
        let (group, version) = group_version(api_version);
        let mut discovery = self.cluster.discovery().await?;
        if discovery.resource(group, version, kind).is_none() {
            discovery = self.cluster.fresh_discovery().await?;
        }
        let Some(resource) = discovery.resource(group, version, kind) else {
            // Helm asks for the object all the same, and gets that there is none.
            if !name.is_empty() && discovery.api_versions().any(|known| known == api_version) {
                return Ok(Value::Object(Map::new()));
            }
            return Err(LookupError::NoMatch {
                kind: kind.to_owned(),
                api_version: api_version.to_owned(),
            });
        };
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        let nothing = || Value::Object(Map::new());
        let found = match name.is_empty() {
            true => self.cluster.list(&resource, namespace).await.map(Some),
            false => self.cluster.get_named(&resource, namespace, name).await,
        };
        match found {
            Ok(found) => Ok(found.unwrap_or_else(nothing)),
            Err(error) if error.is_not_found() => Ok(nothing()),
            // Helm takes that for nothing; what a template makes anew where it finds nothing, a password, would be written over what is there.
            Err(error) if error.is_unserved() => {
                match self.cluster.has_gone(&resource.group_kind()).await? {
                    true => Ok(nothing()),
                    false => Err(error.into()),
                }
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// A lookup failed.
#[derive(Debug, thiserror::Error)]
enum LookupError {
    /// The cluster does not serve the kind.
    #[error(
        "unable to get apiresource from unstructured: {api_version}, Kind={kind}: the server could not find the requested resource"
    )]
    NoMatch { kind: String, api_version: String },
    /// The API server refused.
    #[error(transparent)]
    Api(#[from] ApiError),
}
