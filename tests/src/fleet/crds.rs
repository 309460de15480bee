//! The definitions of Fleet's kinds that demo and tests install: names, scopes and subresources as upstream, everything else open.
//!
//! Fleet's own definitions are stricter; where they lie beside the checkout the tests use those instead (`stock_file`).

use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::skipped;
use crate::tools::Tool;
use crate::wait::wait_until;

/// Kind, plural, scope and whether status is a subresource.
const KINDS: &[(&str, &str, &str)] = &[
    ("BundleDeployment", "bundledeployments", "Namespaced"),
    ("Cluster", "clusters", "Namespaced"),
    ("ClusterRegistration", "clusterregistrations", "Namespaced"),
    (
        "ClusterRegistrationToken",
        "clusterregistrationtokens",
        "Namespaced",
    ),
    ("Content", "contents", "Cluster"),
];

/// Our own definitions.
pub fn definitions() -> Vec<Value> {
    KINDS
        .iter()
        .map(|(kind, plural, scope)| definition(kind, plural, scope))
        .collect()
}

fn definition(kind: &str, plural: &str, scope: &str) -> Value {
    let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    // A Content is nothing but two fields at the top; it has no status.
    let (schema, subresources) = if kind == "Content" {
        (open, json!({}))
    } else {
        let properties = json!({ "spec": open, "status": open });
        (
            json!({ "type": "object", "properties": properties }),
            json!({ "status": {} }),
        )
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.fleet.cattle.io") },
        "spec": {
            "group": "fleet.cattle.io",
            "scope": scope,
            "names": {
                "kind": kind,
                "listKind": format!("{kind}List"),
                "plural": plural,
                "singular": kind.to_lowercase(),
            },
            "versions": [{
                "name": "v1alpha1",
                "served": true,
                "storage": true,
                "subresources": subresources,
                "schema": { "openAPIV3Schema": schema },
            }],
        },
    })
}

/// Fleet's own definitions, if they are beside the checkout. Else it is told, once, that tests do with ours.
pub fn stock_file() -> Option<PathBuf> {
    static TOLD: Once = Once::new();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/fleet/crds.yaml");
    if !path.is_file() {
        TOLD.call_once(|| {
            skipped::tell("Fleet's own definitions of its kinds, which are not beside the checkout")
        });
        return None;
    }
    Some(path)
}

/// Installs our definitions and waits until the API server serves them.
///
/// # Errors
/// When it does not.
pub async fn install(client: &Client) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in definitions() {
        let name = definition["metadata"]["name"]
            .as_str()
            .context("a definition has a name")?
            .to_owned();
        let params = PatchParams::apply("testbed").force();
        api.patch(&name, &params, &Patch::Apply(&definition))
            .await?;
    }
    wait_served(client).await
}

/// Installs Fleet's own definitions from a file.
///
/// # Errors
/// When kubectl refuses them or the API server does not serve them in time.
pub async fn install_file(client: &Client, kubeconfig: &Path, file: &Path) -> Result<()> {
    let output = std::process::Command::new(Tool::Kubectl.path()?)
        .args(["apply", "--server-side", "-f"])
        .arg(file)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .output()?;
    anyhow::ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    wait_served(client).await
}

async fn wait_served(client: &Client) -> Result<()> {
    wait_until(
        "Fleet's kinds to be served",
        Duration::from_secs(300),
        async || {
            let list = client
                .list_api_group_resources(super::API_VERSION)
                .await
                .map_err(|e| e.to_string())?;
            let missing: Vec<&str> = KINDS
                .iter()
                .map(|(_, plural, _)| *plural)
                .filter(|plural| !list.resources.iter().any(|r| r.name == *plural))
                .collect();
            if missing.is_empty() {
                Ok(())
            } else {
                Err(format!("not yet: {missing:?}"))
            }
        },
    )
    .await
}
