//! Where a bundle's files come from, beyond what the other end-to-end tests deploy.

use std::io::Write as _;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use testbed::fleet::bundle_deployment::{BundleDeployment, manifest, manifest_id};
use testbed::fleet::controller::apply;
use testbed::fleet::sha256_hex;

use crate::shared::{Case, run};

fn config(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  greeting: hello\n"
    )
}

fn gzip(data: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(data)?;
    Ok(encoder.finish()?)
}

/// Deploys a BundleDeployment whose deployment ID names this manifest.
async fn deploy_named(case: &Case, id: &str, spec: Value) -> Result<()> {
    let mut bundle = json!({
        "apiVersion": "fleet.cattle.io/v1alpha1",
        "kind": "BundleDeployment",
        "metadata": {
            "name": case.name,
            "namespace": case.agent.deployment_namespace()?,
            "finalizers": ["fleet.cattle.io/bundle-deployment-finalizer"],
        },
        "spec": {
            "deploymentID": format!("{id}:x"),
            "stagedDeploymentID": format!("{id}:x"),
            "options": { "defaultNamespace": case.namespace },
        },
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        bundle["spec"][key] = value.clone();
    }
    apply(&case.agent.upstream, bundle).await.map(drop)
}

#[test]
fn every_encoding_is_read() -> Result<()> {
    run(async {
        let case = Case::new("encodings").await?;
        let resources = json!({ "resources": [
        { "name": "plain.yaml", "content": config("plain") },
        { "name": "base64.yaml", "content": STANDARD.encode(config("base64")), "encoding": "base64" },
        { "name": "zipped.yaml", "content": STANDARD.encode(gzip(config("zipped").as_bytes())?), "encoding": "base64+gz" },
        { "name": "odd.yaml", "content": config("odd"), "encoding": "rot13" },
    ] })
    .to_string();
        let id = manifest_id(&resources);
        apply(
            &case.agent.upstream,
            json!({
                "apiVersion": "fleet.cattle.io/v1alpha1",
                "kind": "Content",
                "metadata": { "name": id },
                "content": STANDARD.encode(gzip(resources.as_bytes())?),
                "sha256sum": sha256_hex(resources.as_bytes()),
            }),
        )
        .await?;
        deploy_named(&case, &id, json!({})).await?;
        case.ready().await?;
        for name in ["plain", "base64", "zipped", "odd"] {
            assert_eq!(
                case.object("v1", "ConfigMap", name).await?["data"]["greeting"],
                "hello"
            );
        }
        Ok(())
    })
}

#[test]
fn a_templates_directory_of_a_plain_bundle_is_rendered() -> Result<()> {
    run(async {
        let case = Case::new("templates").await?;
        let template = config("config").replace("hello", "{{ .Release.Name }}");
        let files = vec![("templates/config.yaml".to_owned(), template.into_bytes())];
        let bundle = BundleDeployment::content(&case.name, files);
        case.deploy(&bundle.option("defaultNamespace", json!(case.namespace)))
            .await?;
        let config = case.object("v1", "ConfigMap", "config").await?;
        assert_eq!(config["data"]["greeting"], json!(case.name));
        Ok(())
    })
}

/// The Secret that says where a bundle's files are stored.
async fn storage(case: &Case, id: &str, reference: &str) -> Result<()> {
    apply(
        &case.agent.upstream,
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "fleet.cattle.io/bundle-oci-storage/v1alpha1",
            "metadata": { "name": id, "namespace": case.agent.deployment_namespace()? },
            "stringData": { "reference": reference, "basicHTTP": "true" },
        }),
    )
    .await
    .map(drop)
}

#[test]
fn a_bundle_comes_from_a_registry() -> Result<()> {
    run(async {
        let case = Case::new("stored").await?;
        let files = manifest(&[("config.yaml".to_owned(), config("config").into_bytes())]);
        let id = manifest_id(&files);
        let registry = &case.agent.bed.registry;
        registry
            .push_bundle("bundles", &id, files.into_bytes())
            .await?;
        storage(&case, &id, &format!("{}/bundles", registry.host())).await?;
        deploy_named(&case, &id, json!({ "ociContents": true })).await?;
        case.ready().await?;
        assert_eq!(
            case.object("v1", "ConfigMap", "config").await?["data"]["greeting"],
            "hello"
        );
        Ok(())
    })
}

#[test]
fn another_manifest_in_the_registry_is_refused() -> Result<()> {
    run(async {
        let case = Case::new("swapped").await?;
        let wanted = manifest(&[("config.yaml".to_owned(), config("wanted").into_bytes())]);
        let other = manifest(&[("config.yaml".to_owned(), config("other").into_bytes())]);
        let (id, found) = (manifest_id(&wanted), manifest_id(&other));
        let registry = &case.agent.bed.registry;
        // Under the wanted name and with the wanted mark, but other files.
        registry
            .push_bundle("swapped", &id, other.into_bytes())
            .await?;
        storage(&case, &id, &format!("{}/swapped", registry.host())).await?;
        deploy_named(&case, &id, json!({ "ociContents": true })).await?;
        let message = case
            .agent
            .wait_deploy_error(&case.name, |m| m.contains("corrupt"))
            .await?;
        assert_eq!(
            message,
            format!("invalid or corrupt manifest. Expecting id: \"{id}\", got \"{found}\"")
        );
        // Pushed again as it should be: deployed without anything else.
        registry
            .push_bundle("swapped", &id, wanted.into_bytes())
            .await?;
        case.ready().await.map(drop)
    })
}
