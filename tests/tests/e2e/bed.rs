//! The bed itself works: what later tests take for granted.

use anyhow::Result;
use serde_json::json;
use testbed::bed::{Bed, unique};
use testbed::chart::Chart;
use testbed::cluster::{ADMIN, Part};
use testbed::fleet::controller::apply;
use testbed::helm::Helm;

#[tokio::test]
async fn helm_installs_from_registry_and_repository() -> Result<()> {
    let bed = Bed::shared().await?;
    let name = unique("bed");
    let chart = Chart::small(&name, "1.0.0");
    bed.repository.add(&chart)?;
    bed.registry.push(&chart).await?;
    bed.private_registry.push(&chart).await?;
    let kubeconfig = bed.downstream.kubeconfig(ADMIN)?;
    for helm in Helm::both(&kubeconfig, bed.group.directory())? {
        let namespace = unique("helm");
        let common = [
            "--namespace",
            &namespace,
            "--create-namespace",
            "--wait",
            "--timeout",
            "60s",
        ];
        let repository = ["install", "http", &name, "--repo", bed.repository.url()];
        helm.run(&[&repository[..], &common].concat())?;
        let registry = [
            "install",
            "oci",
            &bed.registry.reference(&name),
            "--plain-http",
        ];
        helm.run(&[&registry[..], &common].concat())?;
        let releases = helm.json(&["list", "--namespace", &namespace])?;
        assert_eq!(releases.as_array().map(Vec::len), Some(2), "{releases}");
    }
    assert!(
        bed.repository
            .requests()
            .contains_key(&format!("charts/{name}-1.0.0.tgz"))
    );
    Ok(())
}

#[tokio::test]
async fn an_api_server_comes_back_with_its_objects() -> Result<()> {
    let bed = Bed::start(false).await?;
    let client = bed.upstream.client(ADMIN).await?;
    let name = unique("kept");
    apply(
        &client,
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }),
    )
    .await?;
    bed.upstream.stop_part(Part::ApiServer);
    assert!(client.apiserver_version().await.is_err());
    bed.upstream.start_part(Part::ApiServer).await?;
    let namespaces: kube::Api<k8s_openapi::api::core::v1::Namespace> = kube::Api::all(client);
    namespaces.get(&name).await?;
    let requests = bed
        .upstream
        .audit()
        .by_user(ADMIN, testbed::audit::Mark::default())?;
    assert!(requests.iter().any(|r| r.verb == "patch" && r.name == name));
    Ok(())
}
