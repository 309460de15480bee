//! Cluster: this cluster as upstream sees it. The agent patches `status.agent` and nothing else;
//! labels, annotations and template values are read where upstream's rights allow it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::{NamespaceResourceScope, ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::omit_empty;

/// A registered cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cluster {
    pub metadata: ObjectMeta,
    pub spec: ClusterSpec,
    pub status: ClusterStatus,
}

super::fleet_kind!(Cluster, "Cluster", "clusters", NamespaceResourceScope);

omit_empty! {
    /// The part of the spec the agent can use.
    pub struct ClusterSpec {
        #[serde(rename = "clientID")]
        pub client_id: String,
        /// `ClusterValues` in templates.
        pub template_values: Option<Map<String, Value>>,
    }
}

/// The part of the status the agent writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterStatus {
    pub agent: AgentStatus,
}

/// The heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentStatus {
    /// Second precision, UTC.
    pub last_seen: Option<Time>,
    /// System namespace of the agent.
    pub namespace: String,
}
