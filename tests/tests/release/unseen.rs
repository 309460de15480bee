//! Looks that the API server refuses in the middle of a deploy: rights are made anew, tokens end, servers start.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Response};
use kube::Client;
use release::{Cluster, DeployOptions, Storage};
use rstest::rstest;
use serde_json::json;
use testbed::cluster::ADMIN;
use testbed::proxy::{self, Answer};

use crate::world::{Template, World, config_map};

/// How many more looks are refused.
type Refusals = Arc<AtomicU32>;

const FOR_EVER: u32 = u32::MAX;

/// An answer of an API server that may not, or cannot, tell.
fn refusal(code: u16, reason: &str) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code,
        "message": "not now",
    });
    let body = Full::new(Bytes::from(status.to_string()));
    let body = body.map_err(|never| match never {}).boxed_unsync();
    let answer = Response::builder()
        .status(code)
        .header("content-type", "application/json");
    answer.body(body).expect("it is whole")
}

/// A release whose looks at ConfigMap `a` are refused as often as is said.
async fn refused_looks(code: u16, reason: &'static str) -> Result<(World, Refusals)> {
    let mut world = World::new().await?;
    let refusals = Refusals::default();
    let kubeconfig = world.plane.kubeconfig_value(ADMIN, "default");
    let left = Arc::clone(&refusals);
    let url = proxy::listen(kubeconfig, move |client, request| {
        let left = Arc::clone(&left);
        async move {
            let is_look =
                request.method() == Method::GET && request.uri().path().ends_with("/configmaps/a");
            let less = |left: u32| match left {
                FOR_EVER => Some(FOR_EVER),
                left => left.checked_sub(1),
            };
            let (set, fetch) = (Ordering::SeqCst, Ordering::SeqCst);
            if is_look && left.fetch_update(set, fetch, less).is_ok() {
                return refusal(code, reason);
            }
            let request = proxy::forwarded(request).await.expect("whole requests");
            let answer = client.send(request).await.expect("an answer");
            answer.map(BodyExt::boxed_unsync)
        }
    });
    let config = kube::Config::new(url.await?.parse().context("the proxy's address")?);
    world.cluster = Cluster::new(Client::try_from(config)?);
    world.storage = Storage::secrets(&world.cluster, &world.namespace);
    Ok((world, refusals))
}

fn atomic(seconds: u64) -> DeployOptions {
    DeployOptions {
        atomic: true,
        max_history: 0,
        timeout: Some(Duration::from_secs(seconds)),
        ..DeployOptions::default()
    }
}

/// What hooks have run for is worth a second look.
#[rstest]
#[case(403, "Forbidden")]
#[case(503, "ServiceUnavailable")]
#[tokio::test]
async fn a_refused_read_after_hooks_is_repeated(
    #[case] code: u16,
    #[case] reason: &'static str,
) -> Result<()> {
    let (world, refusals) = refused_looks(code, reason).await?;
    world.deploy(&config_map("a", "1")).await?;
    let second = Template::new(&config_map("a", "2"));
    let second = second.hook("hook", "pre-upgrade", &config_map("hook", "1"));
    refusals.store(3, Ordering::SeqCst);
    world.deploy_with(&second, atomic(60)).await?;
    assert_eq!(refusals.load(Ordering::SeqCst), 0);
    assert_eq!(world.history().await?, ["1 superseded", "2 deployed"]);
    assert_eq!(world.value("a").await?, "2");
    Ok(())
}

#[tokio::test]
async fn an_upgrade_whose_reads_stay_refused_is_not_undone() -> Result<()> {
    let (world, refusals) = refused_looks(403, "Forbidden").await?;
    world.deploy(&config_map("a", "1")).await?;
    let second = Template::new(&config_map("a", "2"));
    let second = second.hook("hook", "pre-upgrade", &config_map("hook", "1"));
    refusals.store(FOR_EVER, Ordering::SeqCst);
    let failed = world.deploy_with(&second, atomic(2)).await;
    let text = release::error_chain(&failed.expect_err("nobody knows whose it is"));
    assert!(text.ends_with("not now"), "{text}");
    assert_eq!(world.history().await?, ["1 deployed", "2 failed"], "{text}");
    assert_eq!(world.value("a").await?, "1");
    refusals.store(0, Ordering::SeqCst);
    world.deploy_with(&second, atomic(60)).await?;
    assert_eq!(world.history().await?, ["1 superseded", "2 deployed"]);
    assert_eq!(world.value("a").await?, "2");
    Ok(())
}

/// All is written and becomes ready: what cannot be looked at is what the chart has no more.
#[tokio::test]
async fn an_upgrade_that_cannot_read_obsolete_objects_is_not_undone() -> Result<()> {
    let (world, refusals) = refused_looks(403, "Forbidden").await?;
    world
        .deploy(&(config_map("a", "1") + &config_map("b", "1")))
        .await?;
    let second = Template::new(&config_map("b", "2"));
    refusals.store(FOR_EVER, Ordering::SeqCst);
    let failed = world.deploy_with(&second, atomic(2)).await;
    let text = release::error_chain(&failed.expect_err("nobody knows whose it is"));
    assert!(text.ends_with("not now"), "{text}");
    assert_eq!(world.history().await?, ["1 deployed", "2 failed"], "{text}");
    assert_eq!(world.value("b").await?, "2");
    refusals.store(0, Ordering::SeqCst);
    world.deploy_with(&second, atomic(60)).await?;
    assert_eq!(world.history().await?, ["1 superseded", "2 deployed"]);
    assert_eq!(world.value("a").await?, "none");
    Ok(())
}
