//! Uninstalling a release whose removal was proven, with the account that deployed it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use release::action::{UninstallSpec, uninstall};

use super::RemovalError;
use crate::api::AGENT_BUNDLE_PREFIX;
use crate::client::identity::Identities;
use crate::controllers::bundle_deployment::downstream_resources;
use crate::controllers::store::Store;
use crate::ledger::{Ledger, LedgerEntry, ReleaseKey, records};
use crate::report::redact::{Redacted, SensitiveData};

/// Why a release is removed.
#[derive(Clone, Copy)]
pub(super) enum Removal<'a> {
    /// Its bundle is gone.
    OfBundle,
    /// Its bundle has this one now.
    Superseded(&'a ReleaseKey),
}

/// Uninstalls releases.
pub(super) struct Uninstaller {
    pub(super) identities: Arc<Identities>,
    pub(super) store: Arc<Store>,
    pub(super) ledger: Arc<Ledger>,
}

impl Uninstaller {
    /// Uninstalls a release and forgets it. Its objects stay where the bundle wished so, and always those of the agent itself.
    ///
    /// # Errors
    /// It could not be removed, or the ledger not be written.
    pub(super) async fn uninstall(
        &self,
        key: &ReleaseKey,
        entry: &LedgerEntry,
        removal: Removal<'_>,
    ) -> Result<(), RemovalError> {
        let ReleaseKey { namespace, name } = key;
        let keeps = entry.keep_resources
            || self.store.kept_resources(&entry.bundle)
            || entry.bundle.starts_with(AGENT_BUNDLE_PREFIX);
        tracing::info!(
            bundle = entry.bundle,
            release = name,
            namespace,
            keeps,
            "removing release"
        );
        let impersonated = self.identities.account(&entry.account)?;
        let bundle = records::Bundle {
            name: entry.bundle.clone(),
            account: entry.account.clone(),
            keep_resources: keeps,
        };
        let storage = records::records(&self.ledger, &impersonated, namespace, bundle);
        let mut spec = UninstallSpec::new(name, namespace);
        spec.keep_resources = keeps;
        let done = match uninstall(impersonated.cluster(), &storage, &spec).await {
            Ok(done) => done,
            // In a namespace that is gone with its rights an account may not even look.
            Err(_) if self.is_gone(namespace).await => return self.forget(key).await,
            Err(failed) => {
                let name = name.clone();
                let source = match SensitiveData::of_records(&storage, &name).await {
                    Ok(secrets) => secrets.redacted(&failed),
                    Err(unreadable) => Redacted::withheld(&unreadable),
                };
                return Err(RemovalError::Uninstall { name, source });
            }
        };
        if !done.not_owned.is_empty() {
            tracing::info!(release = name, objects = ?done.not_owned, "not this release's, kept");
        }
        let has_copies = match removal {
            Removal::OfBundle => true,
            // Copies in the same namespace belong to the release that came after.
            Removal::Superseded(current) => current.namespace != *namespace,
        };
        if has_copies && !keeps {
            downstream_resources::remove_all(
                &impersonated,
                namespace,
                &entry.bundle,
                &self.store.all(),
            )
            .await
            .map_err(RemovalError::DownstreamResources)?;
        }
        self.forget(key).await
    }

    async fn forget(&self, key: &ReleaseKey) -> Result<(), RemovalError> {
        self.ledger.forget(key).await.map_err(RemovalError::Ledger)
    }

    async fn is_gone(&self, namespace: &str) -> bool {
        let namespaces = Api::<Namespace>::all(self.identities.agent().client());
        matches!(namespaces.get_metadata_opt(namespace).await, Ok(None))
    }
}
