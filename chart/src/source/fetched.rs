//! Results of fetching: charts, artifacts, and the signatures and provenance files of a chart.

use std::collections::BTreeMap;

use bytes::Bytes;
use golib::budget;

use super::cache::Weigh;
use super::oci;
use super::safe_url::SafeUrl;

/// A chart as it was downloaded; cheap to clone.
#[derive(Clone, Debug)]
pub struct FetchedChart {
    /// The archive as it came: tar and gzip, whole, or a plain tar.
    pub bytes: Bytes,
    /// Size of the archive unpacked, and of archives in it: files, padding and headers. No more than the settings ask for.
    pub unpacked_bytes: u64,
    /// The version that was picked. Empty for a plain archive, whose `Chart.yaml` knows.
    pub version: String,
    /// SHA-256 of the archive, `sha256:…`.
    pub digest: String,
    /// Digest of the manifest that names it; `None` unless it came from a registry.
    pub manifest: Option<String>,
    /// Address the chart came from.
    pub url: SafeUrl,
    /// The source does not answer: this is what it gave before.
    pub is_stale: bool,
}

impl FetchedChart {
    /// Whether the archive is what its digest says.
    pub(super) fn is_intact(&self) -> bool {
        oci::is_of(&self.digest, &self.bytes)
    }
}

/// An artifact of one layer, its digest checked: what Fleet stores a bundle as (`internal/ocistorage`).
#[derive(Clone, Debug)]
pub struct Artifact {
    /// The layer's bytes.
    pub bytes: Bytes,
    /// Of the manifest.
    pub digest: String,
}

/// The kinds of signatures to fetch; each is requests of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignatureKinds {
    /// Provenance files.
    pub provenance: bool,
    /// Signatures in the registry; charts from elsewhere have none.
    pub cosign: bool,
}

/// A signature that `cosign` attached under the tag `sha256-….sig`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// The signed payload.
    pub payload: Bytes,
    /// The layer's annotations that belong to a signature.
    pub annotations: BTreeMap<String, String>,
}

/// The provenance file and signatures that were found beside a chart; cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChartSignatures {
    /// The provenance file.
    pub provenance: Option<Bytes>,
    /// Attached signatures.
    pub attached: Vec<Attached>,
    /// Sigstore bundles that refer to the chart's manifest, as JSON.
    pub bundles: Vec<Bytes>,
    /// How many signatures there are besides, at least, which were not fetched: there are too many, or they are too large.
    pub left_out: usize,
}

impl Weigh for FetchedChart {
    fn weight(&self) -> usize {
        let manifest = self.manifest.as_ref().map_or(0, String::len);
        let texts = self.version.len() + self.digest.len() + manifest;
        self.bytes.len() + texts + self.url.weight()
    }
}

impl Weigh for ChartSignatures {
    fn weight(&self) -> usize {
        let attached = self.attached.iter().map(|one| {
            size_of::<Attached>() + one.payload.len() + budget::weigh_texts(&one.annotations)
        });
        let bundles = self.bundles.iter();
        let bundles = bundles.map(|bundle| size_of::<Bytes>() + bundle.len());
        self.provenance.as_ref().map_or(0, Bytes::len)
            + attached.sum::<usize>()
            + bundles.sum::<usize>()
    }
}
