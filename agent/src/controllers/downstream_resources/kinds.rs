//! The kinds that can be copied.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bundle;

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

    /// Whether Fleet keeps it for itself: whoever names such a Secret would read another bundle's values.
    fn is_fleets(&self) -> bool {
        false
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

    fn is_fleets(&self) -> bool {
        bundle::is_fleets(self)
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
