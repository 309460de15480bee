//! Which kinds a cluster serves, and the documents that tell it.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::State;
use super::object::is_leaving;

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
    /// Whether its definition is being deleted: nothing new is made of it.
    pub(crate) is_leaving: bool,
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
            is_leaving: false,
        }
    }

    /// Whether it is the same kind, however it fares.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.group == other.group && self.version == other.version && self.plural == other.plural
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
            _ => !self.is_built_in(),
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
        let is_leaving = is_leaving(definition);
        versions
            .unwrap_or_default()
            .iter()
            .filter(|version| version["served"] == true)
            .map(|version| Self {
                group: text("/spec/group"),
                version: version["name"].as_str().unwrap_or_default().to_owned(),
                kind: text("/spec/names/kind"),
                plural: text("/spec/names/plural"),
                namespaced: text("/spec/scope") == "Namespaced",
                has_status: version.pointer("/subresources/status").is_some(),
                is_leaving,
            })
            .map(Arc::new)
            .collect()
    }
}

/// The finalizer of a definition whose objects are to go first.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Whether a definition's kinds are served: once its names were accepted, and until it is gone.
pub(crate) fn is_established(definition: &Value) -> bool {
    let conditions = definition.pointer("/status/conditions");
    let mut conditions = conditions.and_then(Value::as_array).into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Established" && condition["status"] == "True")
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
        // Of API servers of their own, of which there are none.
        kind("apiregistration.k8s.io", "v1", "APIService", false, true),
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
    let mut verbs = vec!["delete", "get", "list", "watch"];
    if !kind.is_leaving {
        verbs.extend(["create", "patch", "update"]);
    }
    verbs.sort_unstable();
    let mut resource = json!({
        "resource": kind.plural,
        "responseKind": response(&kind.kind),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.kind.to_lowercase(),
        "verbs": verbs,
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

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::{Actor, Next, Request, Server, Who};
    use super::*;
    use crate::desired::definition;

    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    const WIDGETS: &str = "/apis/example.com/v1/namespaces/apps/widgets";

    fn verbs(server: &Server) -> Value {
        let who = Who::is(Actor::Person);
        let told = server.ask(&Request::new(who, "GET", "/apis", Value::Null));
        let told = told.value();
        let groups = told["items"].as_array().into_iter().flatten();
        let mut ours = groups.filter(|group| group["metadata"]["name"] == "example.com");
        let ours = ours.next().cloned().unwrap_or_default();
        ours["versions"][0]["resources"][0]["verbs"].clone()
    }

    /// As `apiextensions-apiserver` has it.
    #[test]
    fn a_kind_is_served_from_when_it_is_established_until_its_objects_are_gone() {
        let server = Server::new("local", false, Arc::new(|| Timestamp::UNIX_EPOCH));
        let act =
            |method: &str, path: &str, body: Value| server.act(Actor::Person, method, path, body);
        act(
            "POST",
            "/api/v1/namespaces",
            json!({"metadata": {"name": "apps"}}),
        );
        let widget = |name: &str| json!({"metadata": {"name": name}, "spec": {"value": "1"}});
        act("POST", DEFINITIONS, definition());
        let path = format!("{DEFINITIONS}/widgets.example.com");
        let unserved = act("GET", WIDGETS, Value::Null);
        assert_eq!(unserved.code, 404);
        assert_eq!(unserved.text, "404 page not found\n");
        assert_eq!(verbs(&server), Value::Null);
        let conditions = json!([{"type": "NamesAccepted", "status": "True"},
                                {"type": "Established", "status": "True"}]);
        let status = json!({"status": {"conditions": conditions}});
        act("PATCH", &format!("{path}/status"), status);
        assert_eq!(act("POST", WIDGETS, widget("a")).code, 201);
        let uri = "/apis/example.com/v1/widgets?watch=true";
        let watching = Request::new(Who::is(Actor::Agent(1)), "GET", uri, Value::Null);
        let mut watch = server.watch(&watching).expect("it is served");
        assert!(matches!(server.next(&mut watch), Next::Part(_)));

        act("DELETE", &path, Value::Null);
        let refused = act("POST", WIDGETS, widget("b"));
        assert_eq!(refused.code, 405);
        let said = "create not allowed while custom resource definition is terminating";
        assert_eq!(refused.value()["message"], said);
        let uri = format!("{WIDGETS}/b?fieldManager=me");
        let mut applied = Request::new(Who::is(Actor::Agent(1)), "PATCH", &uri, widget("b"));
        applied.content_type = "application/apply-patch+yaml".to_owned();
        assert_eq!(server.ask(&applied).code, 403);
        assert_eq!(verbs(&server), json!(["delete", "get", "list", "watch"]));
        assert!(act("GET", &format!("{WIDGETS}/a"), Value::Null).is_ok());
        assert!(matches!(server.next(&mut watch), Next::Nothing));

        act("DELETE", &format!("{WIDGETS}/a"), Value::Null);
        act("PATCH", &path, json!({"metadata": {"finalizers": null}}));
        assert_eq!(act("GET", &path, Value::Null).code, 404);
        assert_eq!(act("GET", WIDGETS, Value::Null).text, unserved.text);
        assert!(
            matches!(server.next(&mut watch), Next::Part(_)),
            "of its end"
        );
        assert!(matches!(server.next(&mut watch), Next::End));
        assert_eq!(
            server.watch(&watching).err().map(|told| told.code),
            Some(404)
        );
        assert!(server.lock().not_modelled.is_empty());
    }

    /// Its watch cache is a new one, which has seen nothing of what was before.
    #[test]
    fn a_watch_from_a_version_before_the_definition_is_answered_with_410() {
        let server = Server::new("local", false, Arc::new(|| Timestamp::UNIX_EPOCH));
        let before = server.backup().version();
        let mut defined = definition();
        defined["status"] = json!({"conditions": [{"type": "Established", "status": "True"}]});
        server.act(Actor::Person, "POST", DEFINITIONS, defined.clone());
        let status = format!("{DEFINITIONS}/widgets.example.com/status");
        server.act(
            Actor::Person,
            "PATCH",
            &status,
            json!({"status": defined["status"]}),
        );
        let begun = |version: u64| {
            let uri = format!("/apis/example.com/v1/widgets?watch=true&resourceVersion={version}");
            let request = Request::new(Who::is(Actor::Agent(1)), "GET", &uri, Value::Null);
            server.watch(&request).err().map(|told| told.code)
        };
        assert_eq!(begun(before), Some(410));
        assert_eq!(begun(server.backup().version()), None);
    }
}
