//! Names of resources and of their types (kyaml's `resid`).

use std::fmt;

use crate::openapi::OpenApi;

/// Group, version and kind; empty where not given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Gvk {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    /// Known to have no namespace. Not part of what is compared by [`Gvk::equals`].
    pub(crate) is_cluster_scoped: bool,
}

/// An API version in its two parts.
pub(crate) fn parse_group_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

#[rustfmt::skip]
const ORDER_FIRST: [&str; 22] = [
    "Namespace", "ResourceQuota", "StorageClass", "CustomResourceDefinition", "ServiceAccount", "PodSecurityPolicy",
    "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding", "ConfigMap", "Secret", "Endpoints", "Service",
    "LimitRange", "PriorityClass", "PersistentVolume", "PersistentVolumeClaim", "Deployment", "StatefulSet", "CronJob",
    "PodDisruptionBudget",
];

const ORDER_LAST: [&str; 2] = [
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

/// The kinds that kustomize's legacy order puts before and behind all others.
pub(crate) fn default_order() -> (Vec<String>, Vec<String>) {
    let owned = |kinds: &[&str]| kinds.iter().map(|&kind| kind.to_owned()).collect();
    (owned(&ORDER_FIRST), owned(&ORDER_LAST))
}

impl Gvk {
    /// Of an object, with its scope looked up.
    pub(crate) fn of_type(api_version: &str, kind: &str, api: &OpenApi) -> Self {
        let (group, version) = parse_group_version(api_version);
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            is_cluster_scoped: api.is_cluster_scoped(api_version, kind),
        }
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    pub(crate) fn equals(&self, other: &Self) -> bool {
        self.group == other.group && self.version == other.version && self.kind == other.kind
    }

    /// Whether the selector matches; its empty fields match all.
    pub(crate) fn is_selected(&self, selector: &Self) -> bool {
        let fits = |own: &str, expected: &str| expected.is_empty() || own == expected;
        fits(&self.group, &selector.group)
            && fits(&self.version, &selector.version)
            && fits(&self.kind, &selector.kind)
    }

    /// The order of `Gvk.IsLessThan`, as a key to sort by.
    pub(crate) fn sort_key(&self) -> (i64, String) {
        let first = ORDER_FIRST.iter().position(|kind| *kind == self.kind);
        let last = ORDER_LAST.iter().position(|kind| *kind == self.kind);
        let index = match (first, last) {
            (Some(at), _) => i64::try_from(at).unwrap_or(0) - 22,
            (_, Some(at)) => 1 + i64::try_from(at).unwrap_or(0),
            _ => 0,
        };
        (index, self.legacy_sort_text())
    }

    pub(crate) fn legacy_sort_text(&self) -> String {
        format!(
            "{}_{}_{}",
            or(&self.group, "~G"),
            or(&self.version, "~V"),
            or(&self.kind, "~K")
        )
    }
}

fn or<'a>(text: &'a str, instead: &'a str) -> &'a str {
    if text.is_empty() { instead } else { text }
}

impl fmt::Display for Gvk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{}.{}",
            or(&self.kind, "[noKind]"),
            or(&self.version, "[noVer]"),
            or(&self.group, "[noGrp]")
        )
    }
}

/// The name of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct ResId {
    pub(crate) gvk: Gvk,
    pub(crate) name: String,
    pub(crate) namespace: String,
}

/// Namespace of kinds that have none.
pub(crate) const NOT_A_NAMESPACE: &str = "_non_namespaceable_";
const DEFAULT_NAMESPACE: &str = "default";

impl ResId {
    pub(crate) fn is_cluster_scoped(&self) -> bool {
        self.gvk.is_cluster_scoped
    }

    pub(crate) fn effective_namespace(&self) -> &str {
        if self.is_cluster_scoped() {
            NOT_A_NAMESPACE
        } else if self.namespace.is_empty() {
            DEFAULT_NAMESPACE
        } else {
            &self.namespace
        }
    }

    pub(crate) fn is_namespace_equal(&self, other: &Self) -> bool {
        self.effective_namespace() == other.effective_namespace()
    }

    pub(crate) fn gvkn_equals(&self, other: &Self) -> bool {
        self.name == other.name && self.gvk.equals(&other.gvk)
    }

    pub(crate) fn equals(&self, other: &Self) -> bool {
        self.gvkn_equals(other) && self.is_namespace_equal(other)
    }

    pub(crate) fn is_selected_by(&self, selector: &Self) -> bool {
        (selector.name.is_empty() || selector.name == self.name)
            && (selector.namespace.is_empty() || selector.is_namespace_equal(self))
            && self.gvk.is_selected(&selector.gvk)
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// As Go prints the struct with `%#v`.
    pub(crate) fn go_syntax(&self) -> String {
        let quote = |text: &str| golib::strconv::quote(text);
        format!(
            "resid.ResId{{Gvk:resid.Gvk{{Group:{}, Version:{}, Kind:{}, isClusterScoped:{}}}, Name:{}, Namespace:{}}}",
            quote(&self.gvk.group),
            quote(&self.gvk.version),
            quote(&self.gvk.kind),
            self.gvk.is_cluster_scoped,
            quote(&self.name),
            quote(&self.namespace),
        )
    }
}

impl fmt::Display for ResId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}.{}",
            self.gvk,
            or(&self.name, "[noName]"),
            or(&self.namespace, "[noNs]")
        )
    }
}
