//! ClusterRegistration: the agent's request to be let in.

use std::collections::BTreeMap;

use kube::core::{NamespaceResourceScope, ObjectMeta, TypeMeta};
use serde::{Deserialize, Serialize};

use super::is_default;

/// A request for a credential; upstream answers with a Secret named after client ID and random.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterRegistration {
    /// Written out because the agent creates this kind: `TypeMeta::resource::<Self>()`.
    #[serde(flatten)]
    pub types: TypeMeta,
    pub metadata: ObjectMeta,
    pub spec: ClusterRegistrationSpec,
}

super::fleet_kind!(
    ClusterRegistration,
    "ClusterRegistration",
    "clusterregistrations",
    NamespaceResourceScope
);

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterRegistrationSpec {
    #[serde(rename = "clientID", skip_serializing_if = "is_default")]
    pub client_id: String,
    /// New for each attempt.
    #[serde(skip_serializing_if = "is_default")]
    pub client_random: String,
    #[serde(skip_serializing_if = "is_default")]
    pub cluster_labels: BTreeMap<String, String>,
}
