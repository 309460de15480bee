//! Uninstalling a release whose removal was proven, with the account that deployed it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Preconditions};
use release::action::{UninstallSpec, uninstall};

use super::RemovalError;
use crate::api::{AGENT_BUNDLE_PREFIX, LABEL_BUNDLE_DEPLOYMENT};
use crate::client::identity::{DeploymentClient, Identities};
use crate::controllers::store::Store;
use crate::error;
use crate::ledger::{Ledger, LedgerEntry, ReleaseKey, records};

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
            Err(source) => {
                let name = name.clone();
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
            remove_downstream_resources(&impersonated, namespace, &entry.bundle)
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

/// Deletes the copies of upstream Secrets and ConfigMaps that were made for a bundle in a namespace, with the account that made them.
async fn remove_downstream_resources(
    impersonated: &DeploymentClient,
    namespace: &str,
    bundle: &str,
) -> kube::Result<()> {
    let client = impersonated.client();
    remove_labelled::<Secret>(&Api::namespaced(client.clone(), namespace), bundle).await?;
    remove_labelled::<ConfigMap>(&Api::namespaced(client, namespace), bundle).await
}

async fn remove_labelled<K>(api: &Api<K>, bundle: &str) -> kube::Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let ours = ListParams::default().labels(&format!("{LABEL_BUNDLE_DEPLOYMENT}={bundle}"));
    let copies = match api.list_metadata(&ours).await {
        Ok(copies) => copies,
        Err(failed) if error::has_code(&failed, 403) => {
            let error = error::text(&failed);
            tracing::warn!(
                bundle,
                error,
                "may not look for copies, leaving any there are"
            );
            return Ok(());
        }
        Err(failed) => return Err(failed),
    };
    for copy in copies {
        let name = copy.metadata.name.as_deref().unwrap_or_default();
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: copy.metadata.uid.clone(),
                ..Default::default()
            }),
            ..DeleteParams::background()
        };
        match api.delete(name, &parameters).await {
            // Gone, or another one by now.
            Err(failed) if error::has_code(&failed, 404) || error::has_code(&failed, 409) => {}
            result => drop(result?),
        }
    }
    Ok(())
}
