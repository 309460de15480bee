//! Why a removal did not work, and which others it waits for.

use std::fmt;

use release::storage::StorageError;

use crate::client::identity::IdentityError;
use crate::ledger::ReleaseKey;
use crate::public::PublicText;
use crate::public::redact::Redacted;

/// A removal that did not work. Retried.
#[derive(Debug, thiserror::Error)]
pub enum RemovalError {
    #[error("cannot list bundledeployments to confirm a deletion")]
    List(#[source] kube::Error),
    #[error("cannot compare upstream with what it was before")]
    Compare(#[source] kube::Error),
    #[error("cannot ask upstream which release its bundledeployment wants")]
    Ask(#[source] kube::Error),
    #[error("cannot read or write the ledger")]
    Ledger(#[source] kube::Error),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("cannot tell whose release {release} is, nor what it has")]
    Records {
        release: String,
        source: StorageError,
    },
    #[error("failed to delete release {name}")]
    Uninstall { name: String, source: Redacted },
    /// The release's bundle is listed again, or has changed: objects that are not removed yet stay.
    #[error("release {0} is wanted again")]
    Aborted(ReleaseKey),
    /// The release's hooks have run, and nobody can say any more that it is not wanted again: nothing of it is removed.
    #[error("release {0} may be wanted again")]
    Unconfirmed(ReleaseKey),
    #[error("release {0} is removed once the releases in its namespaces are")]
    Blocked(BlockedRemoval),
    #[error("failed to delete copies of upstream resources")]
    DownstreamResources(#[source] Redacted),
}

/// A release whose removal waits for that of others, which are in namespaces that it has; or one of another bundle that is being deployed, or
/// was meanwhile.
#[derive(Debug)]
pub struct BlockedRemoval {
    pub(super) release: ReleaseKey,
    pub(super) namespaces: Vec<String>,
    /// The removal waited for the same before.
    pub(super) is_again: bool,
}

impl BlockedRemoval {
    /// Waits until another deploy or removal of the release ends.
    pub(super) fn until_idle(release: &ReleaseKey) -> Self {
        Self {
            release: release.clone(),
            namespaces: Vec::new(),
            is_again: false,
        }
    }
}

impl fmt::Display for BlockedRemoval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.release.fmt(f)
    }
}

impl RemovalError {
    /// The error of an upstream request, if that is what failed.
    pub(super) fn of_upstream(&self) -> Option<&kube::Error> {
        match self {
            Self::List(failed) | Self::Compare(failed) | Self::Ask(failed) => Some(failed),
            _ => None,
        }
    }

    /// Keeps the first of several problems, which is reported; the others are logged.
    pub(super) fn keep_first(self, first: &mut Option<Self>, key: &ReleaseKey) {
        let Some(_) = first else {
            *first = Some(self);
            return;
        };
        let (namespace, release) = (&key.namespace, &key.name);
        let error = self.public_text();
        logging::warn!(namespace, release, error, "cannot be removed either");
    }

    /// The error's text for status and Events; quotes of a release are redacted where its secrets are known.
    pub fn public_text(&self) -> PublicText {
        match self {
            Self::Records { .. } => Redacted::unquoted(self).into(),
            _ => PublicText::nothing_secret_in(self),
        }
    }
}
