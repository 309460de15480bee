//! Artifacts of one layer, as Fleet stores bundles in a registry (`internal/ocistorage`).

use bytes::Bytes;

/// One layer, its digest checked.
#[derive(Clone, Debug)]
pub struct Artifact {
    /// The layer's bytes.
    pub bytes: Bytes,
    /// Of the manifest.
    pub digest: String,
}
