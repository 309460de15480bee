//! What the objects of a release are in besides its own namespace: other namespaces, and definitions of kinds. Who deletes one of these deletes
//! the objects. No I/O.

use std::collections::BTreeSet;
use std::sync::Arc;

use objects::fields::{items, text};
use objects::{Discovery, GroupKind, Object, Resource, group_version};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// So many containers of a release are noted by their names, and so many bytes of these: the ledger is one ConfigMap for all releases.
const MAX_NAMES: usize = 64;
const MAX_BYTES: usize = 2 << 10;

/// Stands for all containers, where they are too many to be noted one by one. None is called so.
const ALL: &str = "*";

/// Names of namespaces, which have no dot, and of definitions, `<plural>.<group>`, which have one. Where the plural was not known when it was noted,
/// `*.<group>` stands for all definitions of the group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Containers(BTreeSet<String>);

impl Containers {
    /// Every container there is.
    fn all() -> Self {
        Self(BTreeSet::from([ALL.to_owned()]))
    }

    /// What the objects of a release are in whose own namespace is `own`.
    pub fn of_objects(objects: &[Object], own: &str) -> Self {
        let mut all = Self::default();
        for object in objects {
            let namespace = object.namespace.as_deref();
            all.note(namespace, own, &object.resource.group_kind(), || {
                Some(object.resource.plural.clone())
            });
        }
        all
    }

    /// Takes in what a document's object, or those of a list, will be in once it is deployed.
    pub fn note_document(&mut self, document: &Value, own: &str, discovery: &Discovery) {
        let kind = text(document, "/kind");
        if kind.ends_with("List") && document.get("items").is_some_and(Value::is_array) {
            for item in items(document, "items") {
                self.note_document(item, own, discovery);
            }
            return;
        }
        let (group, version) = group_version(text(document, "/apiVersion"));
        // A kind that is not served yet comes with the release itself.
        let served = discovery.resource(group, version, kind);
        let is_namespaced = served.as_ref().is_none_or(|served| served.namespaced);
        let namespace = Some(text(document, "/metadata/namespace"));
        let namespace = namespace.filter(|named| is_namespaced && !named.is_empty());
        let kind = GroupKind {
            group: group.to_owned(),
            kind: kind.to_owned(),
        };
        let plural = |served: Arc<Resource>| served.plural.clone();
        self.note(namespace, own, &kind, || served.map(plural));
    }

    fn note(
        &mut self,
        namespace: Option<&str>,
        own: &str,
        kind: &GroupKind,
        plural: impl FnOnce() -> Option<String>,
    ) {
        if let Some(namespace) = namespace.filter(|namespace| *namespace != own) {
            self.add(namespace.to_owned());
        }
        if !kind.is_kubernetes_own() {
            let plural = plural().unwrap_or_else(|| ALL.to_owned());
            self.add(format!("{plural}.{}", kind.group));
        }
    }

    fn add(&mut self, name: String) {
        if self.has(&name) {
            return;
        }
        self.0.insert(name);
        let bytes = self.0.iter().map(String::len).sum::<usize>();
        if self.0.len() > MAX_NAMES || bytes > MAX_BYTES {
            *self = Self::all();
        }
    }

    /// These and others.
    pub fn extend(&mut self, others: &Self) {
        match others.0.contains(ALL) {
            true => *self = Self::all(),
            false => others.0.iter().for_each(|name| self.add(name.clone())),
        }
    }

    /// The same, or more, in fewer bytes; nothing of nothing.
    #[must_use]
    pub(super) fn shortened(&self) -> Self {
        match self.is_empty() {
            true => Self::default(),
            false => Self::all(),
        }
    }

    /// Whether none is known.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the namespace or definition of this name is among them, or may be.
    pub fn has(&self, name: &str) -> bool {
        let group = || name.split_once('.').map(|(_, group)| group);
        let has_group = || group().is_some_and(|group| self.0.contains(&format!("{ALL}.{group}")));
        // Most releases are in none.
        !self.is_empty() && (self.0.contains(ALL) || self.0.contains(name) || has_group())
    }
}

/// What the objects of a deploy will be in, for whoever notes that it begins: it is known once the chart is rendered.
#[derive(Clone, Debug, Default)]
pub struct PlannedContainers(Arc<Mutex<Option<Containers>>>);

impl PlannedContainers {
    /// The chart is rendered, for the first time or once more.
    pub fn set(&self, containers: Containers) {
        *self.0.lock() = Some(containers);
    }

    /// What is known by now.
    pub fn get(&self) -> Option<Containers> {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn discovery() -> Discovery {
        let mut discovery = Discovery::default();
        discovery.add_list(&json!({"groupVersion": "v1", "resources": [
            {"name": "configmaps", "kind": "ConfigMap", "namespaced": true},
            {"name": "namespaces", "kind": "Namespace", "namespaced": false},
        ]}));
        discovery.add_list(&json!({"groupVersion": "x.io/v1", "resources": [
            {"name": "cars", "kind": "Car", "namespaced": true},
            {"name": "roads", "kind": "Road", "namespaced": false},
        ]}));
        discovery
    }

    fn of(documents: &[Value]) -> Containers {
        let mut containers = Containers::default();
        for document in documents {
            containers.note_document(document, "apps", &discovery());
        }
        containers
    }

    fn object(api_version: &str, kind: &str, namespace: &str) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "one", "namespace": namespace}})
    }

    #[test]
    fn a_release_is_in_the_namespaces_and_the_definitions_of_its_objects() {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [
            object("v1", "ConfigMap", "team"), object("x.io/v1", "Car", ""),
        ]});
        let documents = [
            object("v1", "ConfigMap", "apps"),
            object("v1", "ConfigMap", ""),
            list,
            // No namespace can be its own.
            object("x.io/v1", "Road", "nowhere"),
            // The chart brings it.
            object("y.io/v1", "Boat", "port"),
        ];
        let all = of(&documents);
        for name in ["team", "port", "cars.x.io", "roads.x.io", "boats.y.io"] {
            assert!(all.has(name), "{name}");
        }
        for name in ["apps", "nowhere", "planes.x.io", "boats.z.y.io", "io"] {
            assert!(!all.has(name), "{name}");
        }
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(text, r#"["*.y.io","cars.x.io","port","roads.x.io","team"]"#);
        assert_eq!(serde_json::from_str::<Containers>(&text).unwrap(), all);
        // As the objects themselves say it. What is known already is not noted by another name.
        let manifest: Vec<_> = documents[..4].to_vec();
        let manifest = objects::manifest::read_documents(manifest).unwrap();
        let built = objects::manifest::build(manifest, "apps", &discovery(), &[]).unwrap();
        let seen = Containers::of_objects(&built, "apps");
        let mut both = all.clone();
        both.extend(&seen);
        assert_eq!(both, all);
        assert!(seen.has("team") && seen.has("cars.x.io") && !seen.has("boats.y.io"));
    }

    /// One release may be in thousands of namespaces, and thousands of releases share the ledger.
    #[test]
    fn a_release_in_too_many_containers_counts_as_in_all() {
        let in_namespaces = |count: usize, length: usize| {
            let names = (0..count).map(|n| format!("{n:0length$}"));
            let objects: Vec<_> = names.map(|name| object("v1", "ConfigMap", &name)).collect();
            of(&objects)
        };
        assert!(!in_namespaces(MAX_NAMES, 8).has("any"));
        for many in [in_namespaces(MAX_NAMES + 1, 8), in_namespaces(40, 63)] {
            assert!(many.has("any") && many.has("any.x.io"));
            assert_eq!(serde_json::to_string(&many).unwrap(), r#"["*"]"#);
            let mut one = in_namespaces(1, 8);
            one.extend(&many);
            assert_eq!(one, many);
        }
        assert_eq!(Containers::default().shortened(), Containers::default());
        assert!(in_namespaces(1, 8).shortened().has("any"));
    }
}
