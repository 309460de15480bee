//! Removing releases whose BundleDeployment is gone: only on proof, and with a brake.
//!
//! Replaces `internal/cmd/agent/deployer/cleanup`, which uninstalls whatever its cache no longer
//! holds. Here proof is a fresh, successful list of our namespace without the BundleDeployment,
//! plus either the agent's own BundleDeployment in that list or a deletion seen on a live watch.
//! Where the agent has no BundleDeployment of its own, more than a fifth (at least three) of all
//! releases orphaned at once removes nothing until they come back or someone says so.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use release::action::{UninstallError, UninstallSpec, uninstall};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::queue::{Pass, Queue};
use super::store::Store;
use crate::api::{AGENT_BUNDLE_PREFIX, BundleDeployment, LABEL_BUNDLE_DEPLOYMENT};
use crate::error;
use crate::identity::{Identities, IdentityError};
use crate::ledger::{LEDGER_NAME, Ledger, LedgerEntry, RELEASE_HOLD_ANNOTATION, ReleaseKey};
use crate::metrics::Metrics;

/// A list this young proves as much as a fresh one: ten removals at once share one list.
const LIST_REUSED_FOR: Duration = Duration::from_secs(1);

/// What may happen to the releases of a bundle that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The bundle is listed: nothing is orphaned.
    Alive,
    /// Not proven: the bundle is missing from the list, and nothing tells a deletion from a loss.
    Unproven,
    /// Proven, but too many at once.
    Held,
    /// Proven.
    Remove,
}

/// Judges one bundle.
///
/// `listed` is the fresh list; `seen_deleted` whether a DELETED event came on a live watch;
/// `owners` the bundles of all releases in the ledger.
pub fn judge(
    bundle: &str,
    listed: &BTreeSet<String>,
    seen_deleted: bool,
    owners: &BTreeSet<String>,
    hold_released: bool,
) -> Verdict {
    if listed.contains(bundle) {
        return Verdict::Alive;
    }
    if listed
        .iter()
        .any(|name| name.starts_with(AGENT_BUNDLE_PREFIX))
    {
        return Verdict::Remove;
    }
    if !seen_deleted {
        return if hold_released {
            Verdict::Remove
        } else {
            Verdict::Unproven
        };
    }
    let orphans = owners
        .iter()
        .filter(|owner| !listed.contains(*owner))
        .count();
    let too_many = orphans >= 3 && orphans * 5 > owners.len();
    if too_many && !hold_released {
        Verdict::Held
    } else {
        Verdict::Remove
    }
}

/// A removal that did not work. Retried.
#[derive(Debug, thiserror::Error)]
pub enum RemovalError {
    #[error("cannot list bundledeployments to confirm a deletion")]
    List(#[source] kube::Error),
    #[error("cannot read the ledger")]
    Ledger(#[source] kube::Error),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("failed to delete release {name}")]
    Uninstall {
        name: String,
        source: UninstallError,
    },
    #[error("failed to delete copies of upstream resources")]
    Copies(#[source] kube::Error),
}

/// Removes what is proven to be orphaned.
pub struct Collector {
    bundles: Api<BundleDeployment>,
    identities: Arc<Identities>,
    store: Arc<Store>,
    ledger: Arc<Ledger>,
    metrics: Metrics,
    last_list: Mutex<Option<(Instant, BTreeSet<String>)>>,
}

impl Collector {
    /// A collector that confirms deletions with `bundles`, the upstream namespace.
    pub fn new(
        bundles: Api<BundleDeployment>,
        identities: Arc<Identities>,
        store: Arc<Store>,
        ledger: Arc<Ledger>,
        metrics: Metrics,
    ) -> Self {
        Self {
            bundles,
            identities,
            store,
            ledger,
            metrics,
            last_list: Mutex::default(),
        }
    }

    /// Looks for orphans now and then, at random 1 to 2 intervals. Never returns.
    pub async fn run(&self, queue: &Queue, interval: Duration) {
        loop {
            tokio::time::sleep(interval.mul_f64(1.0 + rand::random::<f64>())).await;
            for owner in self.orphans().await {
                queue.wake(&owner, Pass::Full);
            }
        }
    }

    /// Bundles that have releases and are not listed. Meaningful once a list is complete.
    pub async fn orphans(&self) -> Vec<String> {
        let owners = self.owners().await;
        owners
            .into_iter()
            .filter(|owner| !self.store.is_listed(owner))
            .collect()
    }

    /// Whether any release of this bundle is known.
    pub async fn has_releases(&self, bundle: &str) -> bool {
        !self.ledger.of_bundle(bundle).await.is_empty()
    }

    /// Removes the releases of a bundle that is gone, if that is proven.
    ///
    /// # Errors
    /// Upstream could not be asked, or a release could not be removed.
    ///
    /// # Cancellation
    /// Safe: a removal that was cut off is continued by the next one.
    pub async fn remove(&self, bundle: &str) -> Result<Verdict, RemovalError> {
        let releases = self.ledger.of_bundle(bundle).await;
        if releases.is_empty() {
            self.store.forget_deletion(bundle);
            return Ok(Verdict::Alive);
        }
        let listed = self.fresh_list().await?;
        let seen_deleted = self.store.was_deleted(bundle);
        let owners = self.owners().await;
        let mut verdict = judge(bundle, &listed, seen_deleted, &owners, false);
        if matches!(verdict, Verdict::Held | Verdict::Unproven)
            && self
                .ledger
                .is_hold_released()
                .await
                .map_err(RemovalError::Ledger)?
        {
            verdict = judge(bundle, &listed, seen_deleted, &owners, true);
        }
        let orphans = owners
            .iter()
            .filter(|owner| !listed.contains(*owner))
            .count();
        self.metrics.held_removals(if verdict == Verdict::Remove {
            0
        } else {
            orphans
        });
        match verdict {
            Verdict::Alive => self.store.forget_deletion(bundle),
            Verdict::Unproven | Verdict::Held => tracing::warn!(
                bundle,
                orphans,
                releases = owners.len(),
                "not removing: set annotation {RELEASE_HOLD_ANNOTATION}=true on configmap \
                 {LEDGER_NAME} to allow it"
            ),
            Verdict::Remove => {
                for (key, entry) in &releases {
                    self.remove_release(key, entry).await?;
                }
                self.remove_copies(bundle)
                    .await
                    .map_err(RemovalError::Copies)?;
                self.store.forget_deletion(bundle);
            }
        }
        Ok(verdict)
    }

    /// Removes the releases a bundle left behind when its namespace or release name changed.
    ///
    /// # Errors
    /// A release could not be removed.
    pub async fn remove_former(
        &self,
        bundle: &str,
        current: &ReleaseKey,
    ) -> Result<(), RemovalError> {
        for (key, entry) in self.ledger.of_bundle(bundle).await {
            if key != *current {
                self.remove_release(&key, &entry).await?;
            }
        }
        Ok(())
    }

    async fn remove_release(
        &self,
        key: &ReleaseKey,
        entry: &LedgerEntry,
    ) -> Result<(), RemovalError> {
        let ReleaseKey { namespace, name } = key;
        let keeps = entry.keep_resources || entry.bundle.starts_with(AGENT_BUNDLE_PREFIX);
        tracing::info!(
            bundle = entry.bundle,
            release = name,
            namespace,
            keeps,
            "removing release"
        );
        let acting = self.identities.account(&entry.account)?;
        let failed = |source| RemovalError::Uninstall {
            name: name.clone(),
            source,
        };
        let storage = acting.records(namespace);
        let mut spec = UninstallSpec::new(name, namespace);
        spec.keep_resources = keeps;
        uninstall(acting.cluster(), &storage, &spec)
            .await
            .map_err(failed)?;
        self.ledger.forget(key).await.map_err(RemovalError::Ledger)
    }

    /// Deletes the copies made for a bundle, in every namespace; their label is ours alone.
    async fn remove_copies(&self, bundle: &str) -> kube::Result<()> {
        let client = self.identities.agent().client();
        let ours = ListParams::default().labels(&format!("{LABEL_BUNDLE_DEPLOYMENT}={bundle}"));
        for secret in Api::<Secret>::all(client.clone())
            .list_metadata(&ours)
            .await?
        {
            delete::<Secret>(&client, &secret.metadata).await?;
        }
        for map in Api::<ConfigMap>::all(client.clone())
            .list_metadata(&ours)
            .await?
        {
            delete::<ConfigMap>(&client, &map.metadata).await?;
        }
        Ok(())
    }

    async fn owners(&self) -> BTreeSet<String> {
        self.ledger
            .all()
            .await
            .into_iter()
            .map(|(_, entry)| entry.bundle)
            .collect()
    }

    async fn fresh_list(&self) -> Result<BTreeSet<String>, RemovalError> {
        let mut last = self.last_list.lock().await;
        if let Some((at, listed)) = &*last
            && at.elapsed() < LIST_REUSED_FOR
        {
            return Ok(listed.clone());
        }
        let items = self.bundles.list_metadata(&ListParams::default()).await;
        let items = items.map_err(RemovalError::List)?;
        let listed: BTreeSet<_> = items
            .into_iter()
            .filter_map(|item| item.metadata.name)
            .collect();
        *last = Some((Instant::now(), listed.clone()));
        Ok(listed)
    }
}

async fn delete<K>(client: &kube::Client, metadata: &kube::core::ObjectMeta) -> kube::Result<()>
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let name = metadata.name.as_deref().unwrap_or_default();
    match Api::<K>::namespaced(client.clone(), namespace)
        .delete(name, &DeleteParams::background())
        .await
    {
        Err(failed) if error::has_code(&failed, 404) => Ok(()),
        result => result.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_listed_bundle_is_alive() {
        assert_eq!(
            judge("a", &names(&["a"]), true, &names(&["a"]), false),
            Verdict::Alive
        );
    }

    #[test]
    fn the_agents_own_bundle_proves_the_list() {
        let owners: BTreeSet<_> = (0..12).map(|n| n.to_string()).collect();
        let listed = names(&["fleet-agent-c1", "10", "11"]);
        assert_eq!(judge("0", &listed, false, &owners, false), Verdict::Remove);
    }

    #[test]
    fn an_empty_list_proves_nothing_by_itself() {
        let owners = names(&["a", "b"]);
        assert_eq!(
            judge("a", &names(&[]), false, &owners, false),
            Verdict::Unproven
        );
        assert_eq!(
            judge("a", &names(&["b"]), true, &owners, false),
            Verdict::Remove
        );
        assert_eq!(
            judge("a", &names(&[]), false, &owners, true),
            Verdict::Remove
        );
    }

    #[test]
    fn many_orphans_at_once_are_held() {
        let owners: BTreeSet<_> = (0..10).map(|n| n.to_string()).collect();
        let listed: BTreeSet<_> = (3..10).map(|n| n.to_string()).collect();
        assert_eq!(judge("0", &listed, true, &owners, false), Verdict::Held);
        assert_eq!(judge("0", &listed, true, &owners, true), Verdict::Remove);
        let two_gone: BTreeSet<_> = (2..10).map(|n| n.to_string()).collect();
        assert_eq!(judge("0", &two_gone, true, &owners, false), Verdict::Remove);
    }
}
