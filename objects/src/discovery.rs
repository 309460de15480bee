//! Which kinds a cluster serves: what its answers to discovery say, and nothing of asking.
//!
//! Both forms are read: the aggregated lists of Kubernetes 1.30 and later, and one list for each
//! version of a group.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;

use crate::fields::{items, text};

/// Group and version of an `apiVersion`; the group is empty for the core group.
pub fn group_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// A kind as the API server serves it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: String,
    /// API version within the group.
    pub version: String,
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

    /// The kind in any version.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind {
            group: self.group.clone(),
            kind: self.kind.clone(),
        }
    }

    /// Whether it defines kinds.
    pub fn is_definition(&self) -> bool {
        self.kind == "CustomResourceDefinition" && self.group == "apiextensions.k8s.io"
    }

    /// The name of the definition of the kind, if it has one.
    pub fn definition_name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    /// Whether it is this kind in this version.
    pub fn is(&self, group: &str, version: &str, kind: &str) -> bool {
        self.group == group && self.version == version && self.kind == kind
    }
}

/// A kind in whatever version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKind {
    /// API group; empty for the core group.
    pub group: String,
    pub kind: String,
}

impl GroupKind {
    /// Whether its group is one of Kubernetes itself, which no definition brings.
    ///
    /// ```
    /// use objects::GroupKind;
    ///
    /// let of = |group: &str| GroupKind { group: group.into(), kind: "Any".into() };
    /// assert!(of("policy").is_kubernetes_own() && of("networking.k8s.io").is_kubernetes_own());
    /// assert!(!of("gateway.networking.k8s.io").is_kubernetes_own());
    /// ```
    pub fn is_kubernetes_own(&self) -> bool {
        const GROUPS: [&str; 18] = [
            "admissionregistration.k8s.io",
            "apiextensions.k8s.io",
            "apiregistration.k8s.io",
            "authentication.k8s.io",
            "authorization.k8s.io",
            "certificates.k8s.io",
            "coordination.k8s.io",
            "discovery.k8s.io",
            "events.k8s.io",
            "flowcontrol.apiserver.k8s.io",
            "internal.apiserver.k8s.io",
            "networking.k8s.io",
            "node.k8s.io",
            "rbac.authorization.k8s.io",
            "resource.k8s.io",
            "scheduling.k8s.io",
            "storage.k8s.io",
            "storagemigration.k8s.io",
        ];
        !self.group.contains('.') || GROUPS.contains(&self.group.as_str())
    }
}

impl std::fmt::Display for GroupKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.group.as_str() {
            "" => f.write_str(&self.kind),
            group => write!(f, "{}.{group}", self.kind),
        }
    }
}

/// What the cluster served at one moment.
#[derive(Debug, Default)]
pub struct Discovery {
    kinds: HashMap<(String, String, String), Arc<Resource>>,
    api_versions: BTreeSet<String>,
    /// Versions of groups whose own API server did not answer: what is known of them is old, or nothing.
    silent: BTreeSet<String>,
    version: Value,
}

impl Discovery {
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

    /// The kind in each version the cluster serves, by the versions' names.
    pub fn all_versions(&self, kind: &GroupKind) -> Vec<Arc<Resource>> {
        let is_it =
            |resource: &&Arc<Resource>| resource.group == kind.group && resource.kind == kind.kind;
        let mut all: Vec<_> = self.kinds.values().filter(is_it).cloned().collect();
        all.sort_by(|a, b| a.version.cmp(&b.version));
        all
    }

    /// Whether discovery of a `group/version` succeeded just now: a kind that it lacks is not served then.
    pub fn has_answered(&self, api_version: &str) -> bool {
        self.api_versions.contains(api_version) && !self.silent.contains(api_version)
    }

    /// Whether a kind is served under this name in URLs, in some version.
    pub fn serves(&self, group: &str, plural: &str) -> bool {
        let is_it = |one: &Arc<Resource>| one.group == group && one.plural == plural;
        self.kinds.values().any(is_it)
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

    /// Sets the server's answer to `/version`.
    pub fn set_server_version(&mut self, version: Value) {
        self.version = version;
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
    pub fn add_aggregated(&mut self, list: &Value) {
        for group in items(list, "items") {
            let group_name = text(group, "/metadata/name");
            for version in items(group, "versions") {
                // What it last said is the best there is; that it did not say more is no proof of anything.
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
        if text(version, "/freshness") == "Stale" {
            self.silent.insert(api_version.clone());
        }
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
    ///
    /// ```
    /// use objects::Discovery;
    /// use serde_json::json;
    ///
    /// let mut discovery = Discovery::default();
    /// discovery.add_list(&json!({"groupVersion": "apps/v1", "resources": [
    ///     {"name": "deployments", "kind": "Deployment", "namespaced": true},
    /// ]}));
    /// let kind = discovery.resource("apps", "v1", "Deployment").unwrap();
    /// assert_eq!((kind.plural.as_str(), kind.namespaced), ("deployments", true));
    /// assert!(discovery.resource("apps", "v1beta1", "Deployment").is_none());
    /// ```
    pub fn add_list(&mut self, list: &Value) {
        let api_version = text(list, "/groupVersion");
        let (group, version) = group_version(api_version);
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_forms_of_discovery_say_the_same() {
        let mut aggregated = Discovery::default();
        aggregated.add_aggregated(&json!({"items": [{"metadata": {"name": "apps"}, "versions": [
            {"version": "v1", "resources": [{"resource": "deployments", "scope": "Namespaced",
                "responseKind": {"kind": "Deployment"},
                "subresources": [{"subresource": "scale", "responseKind": {"kind": "Scale"}}]}]}]}]}));
        let mut listed = Discovery::default();
        listed.add_list(&json!({"groupVersion": "apps/v1", "resources": [
            {"name": "deployments", "kind": "Deployment", "namespaced": true},
            {"name": "deployments/scale", "kind": "Scale", "namespaced": true}]}));
        for discovery in [aggregated, listed] {
            let versions: Vec<_> = discovery.api_versions().collect();
            assert_eq!(versions, ["apps/v1", "apps/v1/Deployment", "apps/v1/Scale"]);
            let found = discovery.resource("apps", "v1", "Deployment").unwrap();
            assert_eq!(
                (found.plural.as_str(), found.namespaced),
                ("deployments", true)
            );
        }
    }
}
