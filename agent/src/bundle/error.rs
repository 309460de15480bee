//! Why a bundle's chart cannot be had.

use std::fmt;

use chart::archive::ArchiveError;
use chart::loader::LoadError;
use chart::source::{FetchError, SafeUrl};

use crate::api::ANNOTATION_SIGNATURES;

/// A kind of object upstream that a bundle is read from; prints as the API server calls its resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamKind {
    /// What the controller copies next to the BundleDeployment, a moment after it.
    Secret,
    /// A bundle's files, there before its BundleDeployment.
    Content,
}

impl fmt::Display for UpstreamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Secret => "secrets",
            Self::Content => "contents.fleet.cattle.io",
        })
    }
}

/// Why a bundle's chart cannot be had. Texts are Fleet's where users know them; none quotes the
/// content of a file or Secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The options name no chart where one must be.
    #[error("helm options not found")]
    NoHelmOptions,
    /// An object upstream is not there. The controller may still be about to create it.
    #[error("{kind} \"{name}\" not found")]
    Missing { kind: UpstreamKind, name: String },
    /// An object upstream cannot be read.
    #[error("cannot read {kind} \"{name}\" upstream")]
    Read {
        kind: UpstreamKind,
        name: String,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A Secret does not hold what it must.
    #[error("{0}")]
    Secret(String),
    /// The stored files are damaged or too large.
    #[error("{0}")]
    Content(String),
    /// A fetched chart lacks charts it depends on. None are fetched for it.
    #[error(transparent)]
    Incomplete(#[from] chart::rendered::NotInstallable),
    /// An overlay does not apply.
    #[error("{0}")]
    Overlay(String),
    /// The chart or the stored files cannot be fetched.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// What the bundle asks of its chart cannot be read.
    #[error("{}", ANNOTATION_SIGNATURES)]
    SignatureRule(#[source] signatures::PolicyError),
    /// The chart is not signed as it must be.
    #[error(transparent)]
    Refused(signatures::Refusal),
    /// The fetched archive cannot be unpacked.
    #[error("failed to read chart archive {url}")]
    Archive { url: SafeUrl, source: ArchiveError },
    /// The files are no chart that Helm would accept.
    #[error(transparent)]
    Load(Box<LoadError>),
}

impl From<LoadError> for BundleError {
    fn from(error: LoadError) -> Self {
        Self::Load(Box::new(error))
    }
}
