//! Which kinds the cluster serves, asked once and remembered.
//!
//! One aggregated discovery is two requests and covers every group; a server without it is asked
//! group by group. A group whose own API server is down is simply missing, as for Helm. The cache
//! is shared by all identities (rights do not change what exists) and is refreshed when it is old,
//! when a kind was not found, and after this crate created a CustomResourceDefinition.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::client::{Connection, get_json};
use super::error::ApiError;

/// How old an answer may be before `.Capabilities` is asked for anew.
const MAX_AGE: Duration = Duration::from_secs(300);
/// How often a kind that is not found may cause another look.
const MIN_AGE: Duration = Duration::from_secs(5);

const ACCEPT_AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// A kind as the API server serves it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: String,
    /// API version within the group.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Name in URLs.
    pub plural: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
}

impl Resource {
    /// `apiVersion` of its objects.
    pub fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }
}

/// What the cluster served at one moment.
#[derive(Debug, Default)]
pub struct Snapshot {
    kinds: HashMap<(String, String, String), Arc<Resource>>,
    api_versions: BTreeSet<String>,
    version: Value,
}

impl Snapshot {
    /// A snapshot of known kinds, for tests and for work without a cluster.
    pub fn from_resources(resources: impl IntoIterator<Item = Resource>) -> Self {
        let mut snapshot = Self::default();
        for resource in resources {
            snapshot.api_versions.insert(resource.api_version());
            snapshot.add(resource);
        }
        snapshot
    }

    /// The kind, if the cluster serves it in exactly this version.
    pub fn resource(&self, group: &str, version: &str, kind: &str) -> Option<Arc<Resource>> {
        self.kinds
            .get(&(group.to_owned(), version.to_owned(), kind.to_owned()))
            .cloned()
    }

    /// The kind in some version the cluster serves; the first by name if it serves several.
    pub fn any_version(&self, group: &str, kind: &str) -> Option<Arc<Resource>> {
        let is_it = |resource: &&Arc<Resource>| resource.group == group && resource.kind == kind;
        self.kinds
            .values()
            .filter(is_it)
            .min_by(|a, b| a.version.cmp(&b.version))
            .cloned()
    }

    /// Every `group/version` and `group/version/Kind`, sorted: `.Capabilities.APIVersions`.
    pub fn api_versions(&self) -> impl Iterator<Item = &str> {
        self.api_versions.iter().map(String::as_str)
    }

    /// The server's own words of its version: `gitVersion`, `major`, `minor`.
    pub fn server_version(&self, field: &str) -> &str {
        self.version
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    fn add(&mut self, resource: Resource) {
        self.api_versions
            .insert(format!("{}/{}", resource.api_version(), resource.kind));
        let key = (
            resource.group.clone(),
            resource.version.clone(),
            resource.kind.clone(),
        );
        self.kinds.entry(key).or_insert_with(|| Arc::new(resource));
    }

    /// Adds an `APIGroupDiscoveryList`.
    fn add_aggregated(&mut self, list: &Value) {
        for group in items(list, "items") {
            let group_name = text(group, "/metadata/name");
            for version in items(group, "versions") {
                // A stale version belongs to an API server that does not answer now; what it last
                // said is the best there is.
                self.add_aggregated_version(group_name, version);
            }
        }
    }

    fn add_aggregated_version(&mut self, group: &str, version: &Value) {
        let version_name = text(version, "/version");
        let api_version = match group {
            "" => version_name.to_owned(),
            group => format!("{group}/{version_name}"),
        };
        for resource in items(version, "resources") {
            for subresource in items(resource, "subresources") {
                let kind = text(subresource, "/responseKind/kind");
                if !kind.is_empty() {
                    self.api_versions.insert(format!("{api_version}/{kind}"));
                }
            }
            let kind = text(resource, "/responseKind/kind");
            if kind.is_empty() {
                continue; // Only subresources are served under this name.
            }
            self.add(Resource {
                group: group.to_owned(),
                version: version_name.to_owned(),
                kind: kind.to_owned(),
                plural: text(resource, "/resource").to_owned(),
                namespaced: text(resource, "/scope") == "Namespaced",
            });
        }
        self.api_versions.insert(api_version);
    }

    /// Adds an `APIResourceList`.
    fn add_list(&mut self, list: &Value) {
        let api_version = text(list, "/groupVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        for resource in items(list, "resources") {
            let (name, kind) = (text(resource, "/name"), text(resource, "/kind"));
            if name.contains('/') {
                self.api_versions.insert(format!("{api_version}/{kind}"));
                continue;
            }
            self.add(Resource {
                group: group.to_owned(),
                version: version.to_owned(),
                kind: kind.to_owned(),
                plural: name.to_owned(),
                namespaced: resource.get("namespaced") == Some(&Value::Bool(true)),
            });
        }
        self.api_versions.insert(api_version.to_owned());
    }
}

fn items<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    value
        .get(field)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The remembered answer and how to ask again.
pub(super) struct Discovery {
    connection: Connection,
    current: RwLock<Option<(Arc<Snapshot>, Instant)>>,
    /// One look at a time, however many wait for it.
    asking: tokio::sync::Mutex<()>,
}

impl Discovery {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection,
            current: RwLock::new(None),
            asking: tokio::sync::Mutex::new(()),
        }
    }

    fn current(&self, max_age: Duration) -> Option<Arc<Snapshot>> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current
            .as_ref()
            .filter(|(_, taken_at)| taken_at.elapsed() < max_age)
            .map(|(snapshot, _)| Arc::clone(snapshot))
    }

    /// The remembered answer, or a new one if it is too old.
    pub(super) async fn snapshot(&self) -> Result<Arc<Snapshot>, ApiError> {
        self.snapshot_within(MAX_AGE).await
    }

    /// An answer that is only a few seconds old, for a kind that was not found.
    pub(super) async fn fresh(&self) -> Result<Arc<Snapshot>, ApiError> {
        self.snapshot_within(MIN_AGE).await
    }

    /// Makes the next caller ask again.
    pub(super) fn forget(&self) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    async fn snapshot_within(&self, max_age: Duration) -> Result<Arc<Snapshot>, ApiError> {
        if let Some(snapshot) = self.current(max_age) {
            return Ok(snapshot);
        }
        let _asking = self.asking.lock().await;
        if let Some(snapshot) = self.current(max_age) {
            return Ok(snapshot);
        }
        let snapshot = Arc::new(self.ask().await?);
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = Some((Arc::clone(&snapshot), Instant::now()));
        Ok(snapshot)
    }

    async fn ask(&self) -> Result<Snapshot, ApiError> {
        let mut snapshot = Snapshot {
            version: get_json(&self.connection, "/version", "application/json").await?,
            ..Snapshot::default()
        };
        for root in ["/api", "/apis"] {
            let list = get_json(&self.connection, root, ACCEPT_AGGREGATED).await?;
            if text(&list, "/kind") == "APIGroupDiscoveryList" {
                snapshot.add_aggregated(&list);
            } else {
                self.ask_each(root, &list, &mut snapshot).await?;
            }
        }
        Ok(snapshot)
    }

    /// Asks group by group; one that does not answer is left out.
    async fn ask_each(
        &self,
        root: &str,
        list: &Value,
        snapshot: &mut Snapshot,
    ) -> Result<(), ApiError> {
        let core = items(list, "versions").iter().filter_map(Value::as_str);
        let groups = items(list, "groups")
            .iter()
            .flat_map(|group| items(group, "versions"));
        let versions = core.chain(groups.map(|version| text(version, "/groupVersion")));
        for version in versions {
            match get_json(
                &self.connection,
                &format!("{root}/{version}"),
                "application/json",
            )
            .await
            {
                Ok(list) => snapshot.add_list(&list),
                Err(error) if error.code().is_some() => {
                    tracing::warn!(version, %error, "skipping an API group that does not answer");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_forms_of_discovery_say_the_same() {
        let mut aggregated = Snapshot::default();
        aggregated.add_aggregated(&json!({"items": [{"metadata": {"name": "apps"}, "versions": [
            {"version": "v1", "resources": [{"resource": "deployments", "scope": "Namespaced",
                "responseKind": {"kind": "Deployment"},
                "subresources": [{"subresource": "scale", "responseKind": {"kind": "Scale"}}]}]}]}]}));
        let mut listed = Snapshot::default();
        listed.add_list(&json!({"groupVersion": "apps/v1", "resources": [
            {"name": "deployments", "kind": "Deployment", "namespaced": true},
            {"name": "deployments/scale", "kind": "Scale", "namespaced": true}]}));
        for snapshot in [aggregated, listed] {
            let versions: Vec<_> = snapshot.api_versions().collect();
            assert_eq!(versions, ["apps/v1", "apps/v1/Deployment", "apps/v1/Scale"]);
            let found = snapshot.resource("apps", "v1", "Deployment").unwrap();
            assert_eq!(
                (found.plural.as_str(), found.namespaced),
                ("deployments", true)
            );
        }
    }
}
