//! `downstreamResources`: Secrets and ConfigMaps copied from upstream into the release namespace.
//!
//! Mirrors `copyResourcesFromUpstream`; written with the bundle's account, unlike upstream.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams, Preconditions};
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::{BundleDeployment, LABEL_BUNDLE_DEPLOYMENT};
use crate::client::identity::DeploymentClient;
use crate::error;

/// A copy that could not be made. Texts are upstream's.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("could not get {what} {namespace}/{name} from upstream namespace for copying")]
    Read {
        what: &'static str,
        namespace: String,
        name: String,
        source: kube::Error,
    },
    #[error("failed to create or update {what} {namespace}/{name} downstream")]
    Write {
        what: &'static str,
        namespace: String,
        name: String,
        source: kube::Error,
    },
    #[error("unknown resource type for copy to downstream cluster: {0:?}")]
    Kind(String),
    #[error("failed to create namespace {namespace:?}")]
    Namespace {
        namespace: String,
        source: kube::Error,
    },
}

/// Copies everything the bundle lists. True if a copy that existed was changed.
///
/// # Errors
/// The first copy that fails ends it.
///
/// # Cancellation
/// Safe: the next reconcile continues; copies already made are found equal.
pub async fn copy_all(
    upstream: &Client,
    downstream: &DeploymentClient,
    bundle: &BundleDeployment,
) -> Result<bool, CopyError> {
    let options = &bundle.spec.options;
    if options.downstream_resources.is_empty() {
        return Ok(false);
    }
    let target = options.release_namespace();
    create_namespace(downstream.client(), target).await?;
    let mut changed = false;
    for desired in &options.downstream_resources {
        let name = &desired.name;
        changed |= match desired.kind.to_lowercase().as_str() {
            "secret" => copy::<Secret>(upstream, downstream, bundle, name).await?,
            "configmap" => copy::<ConfigMap>(upstream, downstream, bundle, name).await?,
            _ => return Err(CopyError::Kind(desired.kind.clone())),
        };
    }
    Ok(changed)
}

/// A kind that can be copied.
trait Copied:
    kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
{
    /// What upstream calls it where it is read.
    const READ: &str;
    /// And where it is written.
    const WRITTEN: &str;

    /// Its content under other metadata.
    fn copied(self, metadata: ObjectMeta, immutable: Option<bool>) -> Self;

    /// Whether two have the same content, whatever their metadata.
    fn has_content_of(&self, other: &Self) -> bool;

    /// Whether its content may not change.
    fn immutable(&self) -> Option<bool>;
}

impl Copied for Secret {
    const READ: &str = "secret";
    const WRITTEN: &str = "secret";

    fn copied(self, metadata: ObjectMeta, immutable: Option<bool>) -> Self {
        Self {
            metadata,
            immutable,
            type_: self.type_,
            data: self.data,
            ..Default::default()
        }
    }

    fn has_content_of(&self, other: &Self) -> bool {
        self.type_ == other.type_ && same(&self.data, &other.data)
    }

    fn immutable(&self) -> Option<bool> {
        self.immutable
    }
}

impl Copied for ConfigMap {
    const READ: &str = "config map";
    const WRITTEN: &str = "configmap";

    fn copied(self, metadata: ObjectMeta, immutable: Option<bool>) -> Self {
        Self {
            metadata,
            immutable,
            data: self.data,
            binary_data: self.binary_data,
        }
    }

    fn has_content_of(&self, other: &Self) -> bool {
        same(&self.data, &other.data) && same(&self.binary_data, &other.binary_data)
    }

    fn immutable(&self) -> Option<bool> {
        self.immutable
    }
}

/// Whether two maps are the same; none is an empty one.
fn same<V: PartialEq>(
    one: &Option<BTreeMap<String, V>>,
    other: &Option<BTreeMap<String, V>>,
) -> bool {
    let entries = |map: &Option<BTreeMap<String, V>>| map.iter().flatten().count();
    match (one, other) {
        (Some(one), Some(other)) => one == other,
        _ => entries(one) == entries(other),
    }
}

/// Copies one object. True if a copy that existed was changed.
async fn copy<K: Copied>(
    upstream: &Client,
    downstream: &DeploymentClient,
    bundle: &BundleDeployment,
    name: &str,
) -> Result<bool, CopyError> {
    let sources = Api::<K>::namespaced(upstream.clone(), bundle.namespace());
    let mut source = sources.get(name).await.map_err(|source| CopyError::Read {
        what: K::READ,
        namespace: bundle.namespace().into(),
        name: name.to_owned(),
        source,
    })?;
    let metadata = copied_metadata(name, bundle, std::mem::take(source.meta_mut()));
    let target = bundle.spec.options.release_namespace();
    let copies = Api::<K>::namespaced(downstream.client(), target);
    let written = write(&copies, name, source.copied(metadata, None)).await;
    written.map_err(|source| CopyError::Write {
        what: K::WRITTEN,
        // Upstream prints its own.
        namespace: bundle.namespace().into(),
        name: name.to_owned(),
        source,
    })
}

async fn write<K: Copied>(copies: &Api<K>, name: &str, mut desired: K) -> kube::Result<bool> {
    let parameters = PostParams::default();
    let Some(mut existing) = copies.get_opt(name).await? else {
        return copies.create(&parameters, &desired).await.map(|_| false);
    };
    if existing.has_content_of(&desired) && same_metadata(existing.meta(), desired.meta()) {
        return Ok(false);
    }
    let immutable = existing.immutable();
    let metadata = merged_metadata(
        std::mem::take(existing.meta_mut()),
        std::mem::take(desired.meta_mut()),
    );
    let replacement = desired.copied(metadata, immutable);
    let replaced = copies.replace(name, &parameters, &replacement).await;
    replaced.map(|_| true)
}

/// Other failures than "not there" surface with the copy itself.
async fn create_namespace(client: Client, name: &str) -> Result<(), CopyError> {
    let namespaces = Api::<Namespace>::all(client);
    if !matches!(namespaces.get_metadata_opt(name).await, Ok(None)) {
        return Ok(());
    }
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            // Helm's, which a deploy would set on a namespace it creates.
            labels: Some(BTreeMap::from([("name".to_owned(), name.to_owned())])),
            ..Default::default()
        },
        ..Default::default()
    };
    match namespaces.create(&PostParams::default(), &namespace).await {
        Err(failed) if error::has_code(&failed, 409) => Ok(()),
        Err(source) => Err(CopyError::Namespace {
            namespace: name.to_owned(),
            source,
        }),
        Ok(_) => Ok(()),
    }
}

fn copied_metadata(name: &str, bundle: &BundleDeployment, source: ObjectMeta) -> ObjectMeta {
    let mut labels = source.labels.unwrap_or_default();
    labels.insert(LABEL_BUNDLE_DEPLOYMENT.into(), bundle.name().into());
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(labels),
        annotations: source.annotations,
        ..Default::default()
    }
}

fn same_metadata(existing: &ObjectMeta, desired: &ObjectMeta) -> bool {
    existing.labels == desired.labels && same(&existing.annotations, &desired.annotations)
}

/// Labels and annotations are replaced; what else the copy has (owners, finalizers) stays.
fn merged_metadata(existing: ObjectMeta, desired: ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        labels: desired.labels,
        annotations: desired.annotations,
        managed_fields: None,
        ..existing
    }
}

/// Deletes the copies of upstream Secrets and ConfigMaps that were made for a bundle in a namespace, with the account that made them.
///
/// # Errors
/// They cannot be listed or deleted.
///
/// # Cancellation
/// Safe: those that are left are found again.
pub async fn remove_all(
    downstream: &DeploymentClient,
    namespace: &str,
    bundle: &str,
) -> kube::Result<()> {
    let client = downstream.client();
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn copies_carry_their_bundle_and_nothing_of_the_sources_identity() {
        let bundle: BundleDeployment =
            serde_json::from_value(json!({"metadata": {"name": "b"}})).unwrap();
        let source: ObjectMeta = serde_json::from_value(json!({
            "name": "s", "namespace": "up", "uid": "u", "resourceVersion": "7",
            "labels": {"a": "1"}, "annotations": {"x": "y"},
        }))
        .unwrap();
        let copied = serde_json::to_value(copied_metadata("s", &bundle, source)).unwrap();
        assert_eq!(
            copied,
            json!({"name": "s", "annotations": {"x": "y"},
                   "labels": {"a": "1", "fleet.cattle.io/bundledeployment": "b"}})
        );
    }
}
