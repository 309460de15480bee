//! `downstreamResources`: Secrets and ConfigMaps copied from upstream into the release namespace.
//!
//! Mirrors `copyResourcesFromUpstream`; written with the bundle's account, unlike upstream.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

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

/// Copies everything the bundle lists and tells whether a copy that existed was changed.
///
/// # Errors
/// The first copy that fails ends it.
///
/// # Cancellation
/// Safe: the next pass continues; copies already made are found equal.
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
        let (name, client) = (&desired.name, downstream.client());
        changed |= match desired.kind.to_lowercase().as_str() {
            "secret" => {
                let source = Api::<Secret>::namespaced(upstream.clone(), bundle.namespace());
                let source = source.get(name).await.map_err(|source| CopyError::Read {
                    what: "secret",
                    namespace: bundle.namespace().into(),
                    name: name.clone(),
                    source,
                })?;
                let copies = Api::<Secret>::namespaced(client, target);
                write_secret(&copies, bundle, name, source).await
            }
            "configmap" => {
                let source = Api::<ConfigMap>::namespaced(upstream.clone(), bundle.namespace());
                let source = source.get(name).await.map_err(|source| CopyError::Read {
                    what: "config map",
                    namespace: bundle.namespace().into(),
                    name: name.clone(),
                    source,
                })?;
                let copies = Api::<ConfigMap>::namespaced(client, target);
                write_config_map(&copies, bundle, name, source).await
            }
            _ => return Err(CopyError::Kind(desired.kind.clone())),
        }
        .map_err(|source| CopyError::Write {
            what: if desired.kind.eq_ignore_ascii_case("secret") {
                "secret"
            } else {
                "configmap"
            },
            namespace: bundle.namespace().into(),
            name: name.clone(),
            source,
        })?;
    }
    Ok(changed)
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

async fn write_secret(
    copies: &Api<Secret>,
    bundle: &BundleDeployment,
    name: &str,
    source: Secret,
) -> kube::Result<bool> {
    let desired = Secret {
        metadata: copied_metadata(name, bundle, source.metadata),
        type_: source.type_,
        data: source.data,
        ..Default::default()
    };
    let Some(existing) = copies.get_opt(name).await? else {
        return copies
            .create(&PostParams::default(), &desired)
            .await
            .map(|_| false);
    };
    let same = existing.type_ == desired.type_
        && existing.data.as_ref().is_none_or(BTreeMap::is_empty)
            == desired.data.as_ref().is_none_or(BTreeMap::is_empty)
        && existing.data.clone().unwrap_or_default() == desired.data.clone().unwrap_or_default()
        && same_metadata(&existing.metadata, &desired.metadata);
    if same {
        return Ok(false);
    }
    let replacement = Secret {
        metadata: merged_metadata(existing.metadata, desired.metadata),
        immutable: existing.immutable,
        ..desired
    };
    copies
        .replace(name, &PostParams::default(), &replacement)
        .await
        .map(|_| true)
}

async fn write_config_map(
    copies: &Api<ConfigMap>,
    bundle: &BundleDeployment,
    name: &str,
    source: ConfigMap,
) -> kube::Result<bool> {
    let desired = ConfigMap {
        metadata: copied_metadata(name, bundle, source.metadata),
        data: source.data,
        binary_data: source.binary_data,
        ..Default::default()
    };
    let Some(existing) = copies.get_opt(name).await? else {
        return copies
            .create(&PostParams::default(), &desired)
            .await
            .map(|_| false);
    };
    let same = existing.data.clone().unwrap_or_default()
        == desired.data.clone().unwrap_or_default()
        && existing.binary_data.clone().unwrap_or_default()
            == desired.binary_data.clone().unwrap_or_default()
        && same_metadata(&existing.metadata, &desired.metadata);
    if same {
        return Ok(false);
    }
    let replacement = ConfigMap {
        metadata: merged_metadata(existing.metadata, desired.metadata),
        immutable: existing.immutable,
        ..desired
    };
    copies
        .replace(name, &PostParams::default(), &replacement)
        .await
        .map(|_| true)
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
    existing.labels == desired.labels
        && existing.annotations.clone().unwrap_or_default()
            == desired.annotations.clone().unwrap_or_default()
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
