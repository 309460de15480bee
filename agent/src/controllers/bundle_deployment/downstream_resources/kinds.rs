//! The kinds that can be copied.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::{BundleDeployment, LABEL_INTERNAL_SECRET};

/// Begin of the types of Secrets that Fleet keeps beside BundleDeployments: a bundle's values, where its files are, credentials of its chart.
const FLEETS_TYPES: &str = "fleet.cattle.io/";
/// The type that Fleet gives to credentials of a HelmOp's chart.
const HELM_OPS_TYPE: &str = "fleet.cattle.io/bundle-helmops-access/v1alpha1";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Secret,
    ConfigMap,
}

impl Kind {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text.to_lowercase().as_str() {
            "secret" => Some(Self::Secret),
            "configmap" => Some(Self::ConfigMap),
            _ => None,
        }
    }
}

/// A kind that can be copied.
pub(super) trait Copied:
    kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
    const KIND: Kind;
    /// The kind's name in upstream's error for a failed read.
    const READ: &str;
    /// And where it is written.
    const WRITTEN: &str;

    /// A copy of the object with other metadata.
    fn copied(self, metadata: ObjectMeta, immutable: Option<bool>) -> Self;

    /// Whether two have the same content, whatever their metadata.
    fn has_content_of(&self, other: &Self) -> bool;

    /// Whether its content may not change.
    fn immutable(&self) -> Option<bool>;

    /// Whether a bundle may have it: Fleet's own Secrets lie in the same namespace, and whoever names one would read another bundle's values.
    fn is_for(&self, _bundle: &BundleDeployment) -> bool {
        true
    }
}

impl Copied for Secret {
    const KIND: Kind = Kind::Secret;
    const READ: &str = "secret";
    const WRITTEN: &str = "secret";

    fn copied(self, metadata: ObjectMeta, immutable: Option<bool>) -> Self {
        Self {
            metadata,
            immutable,
            type_: self.type_,
            data: self.data,
            ..Default::default()
        }
    }

    fn has_content_of(&self, other: &Self) -> bool {
        self.type_ == other.type_ && same(&self.data, &other.data)
    }

    fn immutable(&self) -> Option<bool> {
        self.immutable
    }

    fn is_for(&self, bundle: &BundleDeployment) -> bool {
        let type_ = self.type_.as_deref().unwrap_or_default();
        let mut labels = self.metadata.labels.iter().flatten();
        let is_fleets = type_.starts_with(FLEETS_TYPES)
            || labels.any(|(label, _)| label == LABEL_INTERNAL_SECRET);
        // Where a HelmOp names the Secret of its chart as a resource too, Fleet copies it once and marks it as its own.
        let chart = bundle.spec.helm_chart_options.as_ref();
        let is_charts = type_ == HELM_OPS_TYPE
            && chart.is_some_and(|chart| Some(&chart.secret_name) == self.metadata.name.as_ref());
        !is_fleets || is_charts
    }
}

impl Copied for ConfigMap {
    const KIND: Kind = Kind::ConfigMap;
    const READ: &str = "config map";
    const WRITTEN: &str = "configmap";

    fn copied(self, metadata: ObjectMeta, immutable: Option<bool>) -> Self {
        Self {
            metadata,
            immutable,
            data: self.data,
            binary_data: self.binary_data,
        }
    }

    fn has_content_of(&self, other: &Self) -> bool {
        same(&self.data, &other.data) && same(&self.binary_data, &other.binary_data)
    }

    fn immutable(&self) -> Option<bool> {
        self.immutable
    }
}

/// Whether two maps are the same; none is an empty one.
pub(super) fn same<V: PartialEq>(
    one: &Option<BTreeMap<String, V>>,
    other: &Option<BTreeMap<String, V>>,
) -> bool {
    let entries = |map: &Option<BTreeMap<String, V>>| map.iter().flatten().count();
    match (one, other) {
        (Some(one), Some(other)) => one == other,
        _ => entries(one) == entries(other),
    }
}
