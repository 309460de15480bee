//! Content: the files of a bundle, gzipped, named by their manifest ID.

use k8s_openapi::ByteString;
use kube::core::{ClusterResourceScope, ObjectMeta};
use serde::{Deserialize, Serialize};

use super::{is_default, null_as_default};

/// A bundle's files. Cluster-scoped; the agent may only get it by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Content {
    pub metadata: ObjectMeta,
    /// gzip of the manifest JSON.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub content: ByteString,
    /// Hex SHA-256 of the *uncompressed* JSON; empty when unknown.
    #[serde(rename = "sha256sum", skip_serializing_if = "is_default")]
    #[serde(deserialize_with = "null_as_default")]
    pub sha256_sum: String,
}

super::fleet_kind!(Content, "Content", "contents", ClusterResourceScope);
