//! ClusterRegistration: the agent's request to be let in.

use std::collections::BTreeMap;

use kube::core::{NamespaceResourceScope, ObjectMeta, TypeMeta};
use serde::{Deserialize, Serialize};

use super::omit_empty;

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

omit_empty! {
    /// Identity and labels of the cluster that registers.
    pub struct ClusterRegistrationSpec {
        #[serde(rename = "clientID")]
        pub client_id: String,
        /// New for each attempt.
        pub client_random: String,
        pub cluster_labels: BTreeMap<String, String>,
    }
}
