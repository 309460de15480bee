//! Objects of any kind, by the words that their manifests have.

use anyhow::Result;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::Value;

/// The objects of a kind, such as `apps/v1` and `Deployment`; an empty namespace for cluster-scoped ones.
pub fn api(client: &Client, api_version: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match namespace {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    }
}

/// One of them, if it is there.
///
/// # Errors
/// When the API server refuses, or does not serve the kind.
pub async fn get(api: &Api<DynamicObject>, name: &str) -> Result<Option<Value>> {
    let found = api.get_opt(name).await?;
    Ok(found.map(serde_json::to_value).transpose()?)
}
