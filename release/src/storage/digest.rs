//! Digests of records, kept apart from the records.
//!
//! Records lie where others may write. Whoever edits one could have objects of their choosing applied
//! with the rights of whoever reads it. A [`DigestStore`] keeps a digest of each revision in a place of
//! the caller's own: a record that does not match its digest counts as damaged, and from one without
//! a digest nothing is applied and no hook is run.

use std::fmt::Debug;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::BoxFuture;
use sha2::{Digest as _, Sha256};

use crate::error::BoxError;
use crate::model::Release;

/// What a [`DigestStore`] knows of a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KnownDigest {
    /// No digests are kept of this release: its records have to be trusted as they are.
    Untracked,
    /// Digests are kept of the release, and there never was one of this revision: somebody else wrote it.
    Unknown,
    /// The [`digest`] of what was written.
    Digest(String),
    /// The written record is gone, or was never known: no record under this revision is to be believed.
    Gone,
    /// The digest of what another of those that share the digests wrote, in an attempt at the release: what that
    /// created may be taken back, but nothing of it is applied and no hook is run.
    Claim(String),
}

/// Keeps digests of records. Names of releases are those of one namespace.
pub trait DigestStore: Debug + Send + Sync {
    /// The digest known of a revision.
    fn known(&self, release: &str, revision: i64) -> KnownDigest;
    /// Whether anything was ever written here under this name, whatever is left of it.
    fn knows(&self, release: &str) -> bool;
    /// Whether a deploy of the release has succeeded for whoever asks, so that it is theirs.
    fn was_deployed(&self, release: &str) -> bool;
    /// Whether the release is theirs who asks by now, with or without a success.
    fn has(&self, release: &str) -> bool;
    /// The revisions of a release that whoever asks wrote, and whose records are not known to be gone.
    fn written(&self, release: &str) -> Vec<i64>;
    /// The digests of all that others of those that share the digests wrote of a release, by revision. `None` where not everything that lies
    /// there is known to be written by one of them.
    fn written_by_others(&self, release: &str) -> Option<Vec<(i64, String)>>;
    /// The history of a release shows these revisions, which are [`KnownDigest::Unknown`]: they were there before whatever is stored
    /// from now on, and stay so.
    fn found(&self, release: &str, theirs: Vec<i64>);
    /// Makes sure that what is known here is what is stored: a restore of the cluster may have taken that back. Asked before records go to make
    /// room for another one.
    fn confirm(&self) -> BoxFuture<'_, Result<(), BoxError>>;
    /// A revision with this digest is about to be written. Nothing is written if this fails.
    fn store<'a>(
        &'a self,
        release: &'a str,
        revision: i64,
        digest: String,
    ) -> BoxFuture<'a, Result<(), BoxError>>;
    /// A revision is gone. Its digest goes with the next one that is stored, not at once.
    fn forget(&self, release: &str, revision: i64);
    /// A revision whose digest was stored is written.
    fn is_written(&self, _release: &str, _revision: i64) {}
    /// A revision whose digest was stored was not written after all: somebody else was first, or it was refused.
    fn withdraw(&self, release: &str, revision: i64);
}

/// The digest of what of a record can reach a cluster: whose it is, its manifest and its hooks. Status,
/// times, values and the chart are left out.
pub fn digest(release: &Release) -> String {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    };
    add(&release.name);
    add(&release.namespace);
    add(&release.manifest);
    for hook in &release.hooks {
        add(&hook.manifest);
        add(&hook.events.join(","));
        add(&hook.weight.to_string());
        add(&hook.effective_delete_policies().join(","));
    }
    URL_SAFE_NO_PAD.encode(hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Hook, Status};
    use crate::storage::{decode, encode};

    fn release() -> Release {
        Release {
            name: "web".to_owned(),
            namespace: "apps".to_owned(),
            manifest: "---\nkind: ConfigMap\n".to_owned(),
            hooks: vec![Hook {
                manifest: "kind: Job\n".to_owned(),
                events: vec!["pre-install".to_owned()],
                ..Hook::default()
            }],
            revision: 3,
            ..Release::default()
        }
    }

    #[test]
    fn a_record_keeps_its_digest_through_storage_and_changes_of_status() {
        let (written, mut stored) = (digest(&release()), release());
        stored.set_status(Status::Superseded, "x");
        stored.hooks[0].delete_policies = stored.hooks[0].effective_delete_policies();
        let stored = decode(encode(&stored).unwrap().as_bytes()).unwrap();
        assert_eq!(digest(&stored), written);
    }

    #[test]
    fn a_digest_covers_all_that_reaches_a_cluster() {
        let changes: [fn(&mut Release); 6] = [
            |release| release.name.push('x'),
            |release| release.namespace.push('x'),
            |release| release.manifest.push('x'),
            |release| release.hooks[0].manifest.push('x'),
            |release| release.hooks[0].events.push("post-delete".to_owned()),
            |release| release.hooks.clear(),
        ];
        for change in changes {
            let mut changed = release();
            change(&mut changed);
            assert_ne!(digest(&changed), digest(&release()));
        }
    }
}
