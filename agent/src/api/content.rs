//! Content: the files of a bundle, gzipped, named by their manifest ID.

use k8s_openapi::ByteString;
use kube::core::{ClusterResourceScope, ObjectMeta};

use super::omit_empty;

omit_empty! {
    /// A bundle's files. Cluster-scoped; the agent may only get it by name.
    pub struct Content {
        /// gzip of the manifest JSON.
        pub content: ByteString,
        /// Hex SHA-256 of the *uncompressed* JSON; empty when unknown.
        #[serde(rename = "sha256sum")]
        pub sha256_sum: String,
        ;
        pub metadata: ObjectMeta,
    }
}

super::fleet_kind!(Content, "Content", "contents", ClusterResourceScope);
