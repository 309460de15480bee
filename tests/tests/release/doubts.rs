//! Writes that the API server carries out and does not answer.

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use kube::Client;
use release::{Cluster, Storage, UninstallSpec};
use serde_json::json;
use testbed::cluster::ADMIN;
use testbed::proxy::{self, Answer};

use crate::proofs::{atomic, tracked};
use crate::world::{Template, World, config_map};

/// Carries a request out; of what is written to ConfigMap `b` nobody hears.
async fn carried_out(client: Client, request: Request<Incoming>) -> Answer {
    let is_lost =
        request.method() == Method::PATCH && request.uri().path().ends_with("/configmaps/b");
    let request = proxy::forwarded(request).await.expect("whole requests");
    let answer = client.send(request).await.expect("an answer");
    if !is_lost {
        return answer.map(BodyExt::boxed_unsync);
    }
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "ServerTimeout", "code": 500,
        "message": "etcdserver: request timed out",
    });
    let body = Full::new(Bytes::from(status.to_string()));
    let body = body.map_err(|never| match never {}).boxed_unsync();
    let answer = Response::builder()
        .status(500)
        .header("content-type", "application/json");
    answer.body(body).expect("it is whole")
}

/// Of a first install that is undone, an object whose creation nobody answered is there still: its record stays, so that whoever removes the
/// release finds it.
#[tokio::test]
async fn an_undone_install_keeps_its_record_for_writes_with_an_unknown_outcome() -> Result<()> {
    let mut world = World::new().await?;
    let kubeconfig = world.plane.kubeconfig_value(ADMIN, "default");
    let url = proxy::listen(kubeconfig, carried_out).await?;
    let config = kube::Config::new(url.parse().context("the proxy's address")?);
    world.cluster = Cluster::new(Client::try_from(config)?);
    world.storage = Storage::secrets(&world.cluster, &world.namespace);
    let (world, ..) = tracked(world);
    let both = config_map("a", "1") + &config_map("b", "1");
    let failed = world.deploy_with(&Template::new(&both), atomic()).await;
    let failed = release::error_chain(&failed.expect_err("an answer is missing"));
    assert_eq!(world.config_map("a").await?, None, "{failed}");
    assert!(world.config_map("b").await?.is_some(), "{failed}");
    assert_eq!(world.history().await?, ["1 failed"], "{failed}");
    let spec = UninstallSpec {
        is_attempt: true,
        ..UninstallSpec::new(&world.name, &world.namespace)
    };
    release::uninstall(&world.cluster, &world.storage, &spec).await?;
    assert_eq!(world.config_map("b").await?, None);
    assert_eq!(world.history().await?, [""; 0]);
    Ok(())
}
