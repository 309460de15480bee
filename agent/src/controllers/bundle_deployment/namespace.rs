//! The release namespace: whether a bundle may deploy into it (`allowedTargetNamespaceSelector`), and what it is to carry
//! (`namespaceLabels`, `namespaceAnnotations`).
//!
//! Upstream makes labels and annotations *equal* to the options after a deploy, which wipes what
//! other controllers put there. Here our keys are set before the objects, by server-side apply
//! under a field manager of their own: what the options no longer have is removed, what others set stays.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{Selector, SelectorExt as _};
use serde_json::{Value, json};

use crate::api::BundleDeploymentOptions;
use crate::client::identity::{AgentClient, DeploymentClient};
use crate::error;

/// Owns the labels and annotations of namespaces, apart from the objects of releases.
const FIELD_MANAGER: &str = "fleetagent-namespace";

/// Set by the API server, on every namespace.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The cluster's administrator decides these.
const POD_SECURITY_PREFIX: &str = "pod-security.kubernetes.io/";

/// The namespace could not be labelled.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The account lacks a right; granting it causes no event.
    #[error(
        "the deployment's service account is not allowed to {verb} namespace \"{namespace}\"; \
         grant it '{verb}' on this namespace (scoped via resourceNames) or remove \
         namespaceLabels/namespaceAnnotations"
    )]
    Forbidden {
        verb: &'static str,
        namespace: String,
        source: kube::Error,
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
            true => Self::Forbidden {
                verb,
                namespace,
                source,
            },
            false => Self::Api {
                verb,
                namespace,
                source,
            },
        }
    }
}

/// The release namespace as the check of its labels finds it.
enum Found {
    Missing,
    Unreadable(String),
    Labelled(BTreeMap<String, String>),
}

/// Checks `allowedTargetNamespaceSelector` as the agent: it bounds the bundle, so the bundle's own rights do not count.
///
/// # Errors
/// The text of the Deployed condition: the namespace cannot be read, or does not match.
pub async fn check_allowed(
    agent: &AgentClient,
    options: &BundleDeploymentOptions,
) -> Result<(), String> {
    let Some(selector) = &options.allowed_target_namespace_selector else {
        return Ok(());
    };
    let name = options.release_namespace();
    let namespaces = Api::<Namespace>::all(agent.client());
    let found = match namespaces.get_metadata_opt(name).await {
        Ok(Some(found)) => Found::Labelled(found.metadata.labels.unwrap_or_default()),
        Ok(None) => Found::Missing,
        Err(failed) => Found::Unreadable(error::text(&failed)),
    };
    check_selector(selector, name, &found)
}

fn check_selector(selector: &LabelSelector, name: &str, found: &Found) -> Result<(), String> {
    let labels = match found {
        Found::Missing => {
            return Err(format!(
                "target namespace {name} does not exist on downstream cluster"
            ));
        }
        Found::Unreadable(cause) => {
            return Err(format!("failed to get target namespace {name}: {cause}"));
        }
        Found::Labelled(labels) => labels,
    };
    let parsed = Selector::try_from(selector.clone())
        .map_err(|error| format!("invalid AllowedTargetNamespaceSelector: {error}"))?;
    if parsed.matches(labels) {
        return Ok(());
    }
    let pairs: Vec<_> = labels
        .iter()
        .map(|(key, value)| format!("{key}:{value}"))
        .collect();
    Err(format!(
        "target namespace {name} does not match AllowedTargetNamespaceSelector ({parsed}); \
         namespace labels map[{}]",
        pairs.join(" ")
    ))
}

/// What a namespace should carry.
struct Desired {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

/// What the namespace should carry; `None` when the options say nothing about it.
fn desired(options: &BundleDeploymentOptions) -> Option<Desired> {
    if options.namespace_labels.is_none() && options.namespace_annotations.is_none() {
        return None;
    }
    let allowed = |pairs: &Option<BTreeMap<String, String>>| -> BTreeMap<String, String> {
        let pairs = pairs.clone().unwrap_or_default();
        let ours = |key: &String| key != NAME_LABEL && !key.starts_with(POD_SECURITY_PREFIX);
        pairs.into_iter().filter(|(key, _)| ours(key)).collect()
    };
    Some(Desired {
        labels: allowed(&options.namespace_labels),
        annotations: allowed(&options.namespace_annotations),
    })
}

impl Desired {
    fn object(&self, namespace: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": namespace, "labels": self.labels, "annotations": self.annotations,
            },
        })
    }
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
    let Some(desired) = desired(options) else {
        return Ok(());
    };
    let namespaces = Api::<Namespace>::all(downstream.client());
    if options.create_namespace == Some(false) {
        let found = namespaces.get_metadata_opt(name).await;
        let found = found.map_err(|source| NamespaceError::new("get", name, source))?;
        if found.is_none() {
            // The deploy that follows has the better error for it.
            return Ok(());
        }
    }
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let applied = namespaces
        .patch(name, &parameters, &Patch::Apply(&desired.object(name)))
        .await;
    match applied {
        Ok(_) => Ok(()),
        Err(failed) if error::has_code(&failed, 403) => update(&namespaces, name, desired).await,
        Err(source) => Err(NamespaceError::new("patch", name, source)),
    }
}

/// The way the Go agent goes, for accounts that were given the rights it needs: reading and replacing.
async fn update(
    namespaces: &Api<Namespace>,
    name: &str,
    desired: Desired,
) -> Result<(), NamespaceError> {
    let found = namespaces.get_opt(name).await;
    let Some(mut namespace) = found.map_err(|source| NamespaceError::new("get", name, source))?
    else {
        // The deploy that follows creates it, or says why not.
        return Ok(());
    };
    let metadata = &mut namespace.metadata;
    let labels = metadata.labels.get_or_insert_default();
    let annotations = metadata.annotations.get_or_insert_default();
    let before = (labels.clone(), annotations.clone());
    labels.extend(desired.labels);
    annotations.extend(desired.annotations);
    if before == (labels.clone(), annotations.clone()) {
        return Ok(());
    }
    metadata.managed_fields = None;
    let parameters = PostParams {
        field_manager: Some(FIELD_MANAGER.into()),
        ..PostParams::default()
    };
    namespaces
        .replace(name, &parameters, &namespace)
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
        let object = desired(&options).unwrap().object("ns");
        assert_eq!(object["metadata"]["labels"], json!({"team": "a"}));
        assert_eq!(object["metadata"]["annotations"], json!({}));
        assert!(desired(&BundleDeploymentOptions::default()).is_none());
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn a_namespace_that_does_not_match_is_refused_in_upstreams_words() {
        let selector: LabelSelector =
            serde_json::from_value(json!({"matchLabels": {"team": "a"}})).unwrap();
        let check = |found| check_selector(&selector, "ns", &found);
        assert_eq!(
            check(Found::Missing).unwrap_err(),
            "target namespace ns does not exist on downstream cluster"
        );
        assert_eq!(
            check(Found::Labelled(labels(&[("team", "b"), ("a", "1")]))).unwrap_err(),
            "target namespace ns does not match AllowedTargetNamespaceSelector (team=a); \
             namespace labels map[a:1 team:b]"
        );
        assert!(check(Found::Labelled(labels(&[("team", "a")]))).is_ok());
    }
}
