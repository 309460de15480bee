//! An object, what identifies it, and how it is named to people.

use std::sync::Arc;

use serde_json::Value;

use crate::discovery::{GroupKind, Resource, group_version};
use crate::fields::text;

/// Identity of an object, whatever version of its kind it is written in.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// API group; empty for the core group.
    pub group: String,
    pub kind: String,
    /// Namespace; empty for kinds without.
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    /// The object of this `apiVersion` (of which the group counts), kind, namespace and name.
    pub fn new(api_version: &str, kind: &str, namespace: &str, name: &str) -> Self {
        Self {
            group: group_version(api_version).0.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The object's kind in any version.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind {
            group: self.group.clone(),
            kind: self.kind.clone(),
        }
    }

    /// The key of an object as the API server gives it; what is absent or no text is empty.
    pub fn of(object: &Value) -> Self {
        Self::new(
            text(object, "/apiVersion"),
            text(object, "/kind"),
            text(object, "/metadata/namespace"),
            text(object, "/metadata/name"),
        )
    }
}

/// An object of a manifest and where it belongs.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// Kind of the object, as the API server serves it.
    pub resource: Arc<Resource>,
    /// Namespace of the object; `None` for kinds without.
    pub namespace: Option<String>,
    pub name: String,
    /// The object itself.
    pub body: Value,
}

impl Object {
    /// Identity across revisions.
    pub fn key(&self) -> ObjectKey {
        ObjectKey {
            group: self.resource.group.clone(),
            kind: self.resource.kind.clone(),
            namespace: self.namespace.clone().unwrap_or_default(),
            name: self.name.clone(),
        }
    }

    /// This object without its body: enough to find, to name and to delete it.
    #[must_use]
    pub fn without_body(&self) -> Self {
        Self {
            resource: Arc::clone(&self.resource),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            body: Value::Null,
        }
    }

    /// `namespace/name group/version, Kind=kind`, as Helm names an object in apply errors.
    pub fn describe(&self) -> String {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        let Resource {
            group,
            version,
            kind,
            ..
        } = &*self.resource;
        format!("{namespace}/{} {group}/{version}, Kind={kind}", self.name)
    }

    /// `Kind "name" in namespace "namespace"`, as Helm names an object in ownership errors.
    pub fn describe_for_people(&self) -> String {
        format!(
            "{} {:?} in namespace {:?}",
            self.resource.kind,
            self.name,
            self.namespace.as_deref().unwrap_or_default()
        )
    }

    /// Whether this defines a kind.
    pub fn is_crd(&self) -> bool {
        self.resource.is_definition()
    }

    /// Whether this is a namespace.
    pub fn is_namespace(&self) -> bool {
        self.resource.kind == "Namespace" && self.resource.group.is_empty()
    }
}
