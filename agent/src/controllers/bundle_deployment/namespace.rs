//! `namespaceLabels` and `namespaceAnnotations` of the release namespace.
//!
//! Upstream makes labels and annotations *equal* to the options after a deploy, which wipes what
//! other controllers put there. Here our keys are set before the objects, by server-side apply
//! under a field manager of their own: what the options no longer have goes, what others set stays.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::api::BundleDeploymentOptions;
use crate::error;
use crate::identity::DeploymentClient;

/// Owns the labels and annotations of namespaces, apart from the objects of releases.
const FIELD_MANAGER: &str = "fleetagent-namespace";

/// Set by the API server, on every namespace.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The cluster's administrator decides these.
const POD_SECURITY_PREFIX: &str = "pod-security.kubernetes.io/";

/// The namespace could not be labelled.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The account lacks a right; granting it wakes nobody.
    #[error(
        "the deployment's service account is not allowed to {verb} namespace \"{namespace}\"; \
         grant it {verb} on namespaces"
    )]
    Forbidden {
        verb: &'static str,
        namespace: String,
    },
    #[error("failed to {verb} namespace {namespace}")]
    Api {
        verb: &'static str,
        namespace: String,
        source: kube::Error,
    },
}

impl NamespaceError {
    fn new(verb: &'static str, namespace: &str, source: kube::Error) -> Self {
        let namespace = namespace.to_owned();
        match error::has_code(&source, 403) {
            true => Self::Forbidden { verb, namespace },
            false => Self::Api {
                verb,
                namespace,
                source,
            },
        }
    }
}

/// What the namespace should carry; `None` when the options say nothing about it.
fn wanted(options: &BundleDeploymentOptions, namespace: &str) -> Option<Value> {
    if options.namespace_labels.is_none() && options.namespace_annotations.is_none() {
        return None;
    }
    let allowed = |pairs: &Option<BTreeMap<String, String>>| -> BTreeMap<String, String> {
        let pairs = pairs.clone().unwrap_or_default();
        let ours = |key: &String| key != NAME_LABEL && !key.starts_with(POD_SECURITY_PREFIX);
        pairs.into_iter().filter(|(key, _)| ours(key)).collect()
    };
    Some(json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": namespace,
            "labels": allowed(&options.namespace_labels),
            "annotations": allowed(&options.namespace_annotations),
        },
    }))
}

/// Labels and annotates the release namespace, creating it where the options allow that.
///
/// # Errors
/// The account may not, or the API server refuses.
pub async fn label(
    downstream: &DeploymentClient,
    options: &BundleDeploymentOptions,
) -> Result<(), NamespaceError> {
    let name = options.release_namespace();
    let Some(wanted) = wanted(options, name) else {
        return Ok(());
    };
    let namespaces = Api::<Namespace>::all(downstream.client());
    if options.create_namespace == Some(false) {
        let found = namespaces.get_metadata_opt(name).await;
        let found = found.map_err(|source| NamespaceError::new("get", name, source))?;
        if found.is_none() {
            // The deploy that follows tells it better.
            return Ok(());
        }
    }
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    namespaces
        .patch(name, &parameters, &Patch::Apply(&wanted))
        .await
        .map(drop)
        .map_err(|source| NamespaceError::new("update", name, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protected_keys_are_left_out() {
        let options: BundleDeploymentOptions = serde_json::from_value(json!({
            "namespaceLabels": {"team": "a", "kubernetes.io/metadata.name": "x",
                                "pod-security.kubernetes.io/enforce": "privileged"},
        }))
        .unwrap();
        let wanted = wanted(&options, "ns").unwrap();
        assert_eq!(wanted["metadata"]["labels"], json!({"team": "a"}));
        assert_eq!(wanted["metadata"]["annotations"], json!({}));
        assert!(super::wanted(&BundleDeploymentOptions::default(), "ns").is_none());
    }
}
