//! Which kinds a cluster serves, and the documents that tell it.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::State;

/// A kind as it is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    pub(crate) namespaced: bool,
    /// Whether status is a subresource, which has its own writes.
    pub(crate) has_status: bool,
}

impl Kind {
    fn new(group: &str, version: &str, kind: &str, namespaced: bool, has_status: bool) -> Self {
        let plural = match kind {
            "NetworkPolicy" => "networkpolicies".to_owned(),
            "Ingress" => "ingresses".to_owned(),
            kind => kind.to_lowercase() + "s",
        };
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            plural,
            namespaced,
            has_status,
        }
    }

    /// Whether the server knows it by itself, not by a definition.
    pub(crate) fn is_built_in(&self) -> bool {
        !self.group.contains('.') || self.group.ends_with(".k8s.io")
    }

    pub(crate) fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Whether the server counts changes of its objects' specs.
    pub(crate) fn has_generation(&self) -> bool {
        match self.group.as_str() {
            "apps" | "batch" | "apiextensions.k8s.io" => true,
            _ => self.has_status && !self.is_built_in(),
        }
    }

    /// Whether its objects have replicas that are read and set by themselves.
    pub(crate) fn has_scale(&self) -> bool {
        self.group == "apps"
    }

    /// `deployments.apps`, as errors name it.
    pub(crate) fn qualified(&self) -> String {
        match self.group.as_str() {
            "" => self.plural.clone(),
            group => format!("{}.{group}", self.plural),
        }
    }

    /// What a definition brings.
    pub(crate) fn of_definition(definition: &Value) -> Vec<Arc<Self>> {
        let text = |pointer: &str| {
            let found = definition.pointer(pointer).and_then(Value::as_str);
            found.unwrap_or_default().to_owned()
        };
        let versions = definition.pointer("/spec/versions");
        let versions = versions.and_then(Value::as_array).cloned();
        versions
            .unwrap_or_default()
            .iter()
            .map(|version| Self {
                group: text("/spec/group"),
                version: version["name"].as_str().unwrap_or_default().to_owned(),
                kind: text("/spec/names/kind"),
                plural: text("/spec/names/plural"),
                namespaced: text("/spec/scope") == "Namespaced",
                has_status: version.pointer("/subresources/status").is_some(),
            })
            .map(Arc::new)
            .collect()
    }
}

/// What every downstream cluster of the simulation serves.
pub(crate) fn downstream() -> Vec<Arc<Kind>> {
    let kind = |group, version, kind, namespaced, has_status| {
        Arc::new(Kind::new(group, version, kind, namespaced, has_status))
    };
    vec![
        kind("", "v1", "Namespace", false, true),
        kind("", "v1", "ConfigMap", true, false),
        kind("", "v1", "Secret", true, false),
        kind("", "v1", "ServiceAccount", true, false),
        kind("", "v1", "Service", true, true),
        kind("", "v1", "Pod", true, true),
        kind("", "v1", "Node", false, true),
        kind("", "v1", "Event", true, false),
        kind("", "v1", "PersistentVolumeClaim", true, true),
        kind("apps", "v1", "Deployment", true, true),
        kind("apps", "v1", "ReplicaSet", true, true),
        kind("apps", "v1", "StatefulSet", true, true),
        kind("batch", "v1", "Job", true, true),
        kind("autoscaling", "v2", "HorizontalPodAutoscaler", true, true),
        kind("coordination.k8s.io", "v1", "Lease", true, false),
        kind(
            "rbac.authorization.k8s.io",
            "v1",
            "ClusterRole",
            false,
            false,
        ),
        kind(
            "rbac.authorization.k8s.io",
            "v1",
            "ClusterRoleBinding",
            false,
            false,
        ),
        kind("rbac.authorization.k8s.io", "v1", "Role", true, false),
        kind(
            "rbac.authorization.k8s.io",
            "v1",
            "RoleBinding",
            true,
            false,
        ),
        kind(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            false,
            true,
        ),
    ]
}

/// What the upstream cluster serves besides.
pub(crate) fn upstream() -> Vec<Arc<Kind>> {
    let mut kinds = downstream();
    for (kind, namespaced) in [
        ("BundleDeployment", true),
        ("Content", false),
        ("Cluster", true),
        ("ClusterRegistration", true),
    ] {
        let has_status = kind != "Content";
        let group = "fleet.cattle.io";
        kinds.push(Arc::new(Kind::new(
            group, "v1alpha1", kind, namespaced, has_status,
        )));
    }
    kinds
}

/// The answers to the two aggregated discoveries, as long as no definition comes or goes.
#[derive(Default)]
pub(super) struct Discovery {
    core: Option<Bytes>,
    groups: Option<Bytes>,
}

impl State {
    /// The answer to an aggregated discovery: of the core group, or of all others.
    pub(super) fn discovery(&mut self, core: bool) -> Bytes {
        let known = match core {
            true => &self.discovery.core,
            false => &self.discovery.groups,
        };
        if let Some(known) = known {
            return known.clone();
        }
        let kinds: Vec<&Kind> = self.served().map(Arc::as_ref).collect();
        let document = Bytes::from(discovery(&kinds, core).to_string());
        match core {
            true => self.discovery.core = Some(document.clone()),
            false => self.discovery.groups = Some(document.clone()),
        }
        document
    }
}

fn discovery(kinds: &[&Kind], core: bool) -> Value {
    let mut groups: Vec<&str> = Vec::new();
    for kind in kinds.iter().filter(|kind| kind.group.is_empty() == core) {
        if !groups.contains(&kind.group.as_str()) {
            groups.push(&kind.group);
        }
    }
    let items: Vec<Value> = groups
        .into_iter()
        .map(|group| {
            let of_group: Vec<_> = kinds.iter().filter(|kind| kind.group == group).collect();
            let mut versions: Vec<&str> = Vec::new();
            for kind in &of_group {
                if !versions.contains(&kind.version.as_str()) {
                    versions.push(&kind.version);
                }
            }
            let versions: Vec<Value> = versions
                .into_iter()
                .map(|version| {
                    let resources: Vec<Value> = of_group
                        .iter()
                        .filter(|kind| kind.version == version)
                        .map(|kind| resource(kind))
                        .collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            json!({"metadata": {"name": group, "creationTimestamp": null}, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {}, "items": items,
    })
}

fn resource(kind: &Kind) -> Value {
    let response =
        |kind_name: &str| json!({"group": kind.group, "version": kind.version, "kind": kind_name});
    let mut resource = json!({
        "resource": kind.plural,
        "responseKind": response(&kind.kind),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.kind.to_lowercase(),
        "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
    });
    let mut subresources = Vec::new();
    if kind.has_scale() {
        let scale = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
        subresources.push(("scale", scale));
    }
    if kind.has_status {
        subresources.push(("status", response(&kind.kind)));
    }
    if !subresources.is_empty() {
        let subresources = subresources.into_iter();
        let told = subresources.map(|(name, kind)| {
            json!({"subresource": name, "responseKind": kind, "verbs": ["get", "patch", "update"]})
        });
        resource["subresources"] = told.collect();
    }
    resource
}
