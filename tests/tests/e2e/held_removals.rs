//! Removals that are held back: what counts as many, what a permission is for, what ends a loss.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use kube::api::ListParams;
use serde_json::{Value, json};
use testbed::bed::Bed;
use testbed::fault_proxy::{is_watch, refusal};
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::wait::wait_until;

use crate::scene::{
    app, behind_faults, delete_at_once, deploy, deploy_own, gone, in_haste, present, release_hold,
    start, untouched, wait_held,
};

/// The brake is for what goes at once: what it holds already is no reason to hold the next one.
#[tokio::test]
async fn held_removals_do_not_count_against_later_deletions() -> Result<()> {
    let agent = in_haste().await?;
    let apps = deploy(&agent, "app", 10).await?;
    delete_at_once(&agent, &apps[..4]).await?;
    wait_held(&agent, 4).await?;
    // What goes within six grace times goes with them.
    tokio::time::sleep(Duration::from_secs(3)).await;
    agent.delete(&apps[9]).await?;
    gone(&agent, &apps[9..], PATIENCE).await?;
    wait_held(&agent, 4).await?;
    agent.delete(&apps[8]).await?;
    gone(&agent, &apps[8..], PATIENCE).await?;
    ensure!(present(&agent, &apps).await? == apps[..8]);
    // And it holds again.
    delete_at_once(&agent, &apps[4..8]).await?;
    wait_held(&agent, 8).await?;
    ensure!(present(&agent, &apps).await? == apps[..8]);
    Ok(())
}

async fn is_permission_there(agent: &TestAgent<'_>) -> Result<bool> {
    let annotations = agent
        .ledger()
        .await?
        .and_then(|map| map.metadata.annotations);
    Ok(annotations.is_some_and(|all| all.contains_key("fleet.cattle.io/release-held-removals")))
}

/// Bundles that were held come back by themselves after somebody let them go: that was not meant for the next ones.
#[tokio::test]
async fn a_permission_is_for_the_removals_held_when_it_was_given() -> Result<()> {
    let mut agent = in_haste().await?;
    let apps = deploy(&agent, "app", 6).await?;
    agent.process()?.kill();
    for app in &apps[..2] {
        agent.delete(app).await?;
    }
    agent.process()?.restart()?;
    wait_held(&agent, 2).await?;
    agent.process()?.kill();
    release_hold(&agent).await?;
    for name in &apps[..2] {
        agent.apply(&app(&agent, name)).await?;
    }
    agent.process()?.restart()?;
    for name in &apps[..2] {
        agent.wait_ready(name).await?;
    }
    agent.process()?.kill();
    for app in &apps[2..4] {
        agent.delete(app).await?;
    }
    agent.process()?.restart()?;
    wait_held(&agent, 2).await?;
    untouched(&agent, &apps).await?;
    wait_until(
        "the permission to end",
        PATIENCE,
        async || match is_permission_there(&agent)
            .await
            .map_err(|e| e.to_string())?
        {
            false => Ok(()),
            true => Err("it is there".to_owned()),
        },
    )
    .await?;
    untouched(&agent, &apps).await?;
    // One that is given now is for these, whatever process carries it out.
    release_hold(&agent).await?;
    agent.process()?.kill();
    agent.process()?.restart()?;
    gone(&agent, &apps[2..4], PATIENCE).await?;
    ensure!(present(&agent, &apps).await? == [&apps[..2], &apps[4..]].concat());
    wait_held(&agent, 0).await
}

/// Bundles are lost while the ledger cannot be written, and somebody lets go what is shown as held: nobody was shown these.
#[tokio::test]
async fn a_permission_is_not_for_what_could_not_be_written_as_held() -> Result<()> {
    let (mut agent, local) = behind_faults().await?;
    let apps = deploy(&agent, "app", 7).await?;
    agent.process()?.kill();
    agent.delete(&apps[0]).await?;
    agent.process()?.restart()?;
    wait_held(&agent, 1).await?;
    let is_asked = Arc::new(AtomicBool::default());
    let asked = Arc::clone(&is_asked);
    local.refuse(move |parts| {
        let is_write = parts.method == http::Method::PATCH
            && parts.uri.path().ends_with("/configmaps/fleet-agent-ledger");
        asked.fetch_or(is_write, Ordering::SeqCst);
        is_write.then(|| refusal(500, "InternalError", "a webhook does not answer"))
    });
    delete_at_once(&agent, &apps[1..4]).await?;
    wait_until("a hold to be refused", PATIENCE, async || {
        match is_asked.load(Ordering::SeqCst) {
            true => Ok(()),
            false => Err("not yet".to_owned()),
        }
    })
    .await?;
    release_hold(&agent).await?;
    local.leave();
    gone(&agent, &apps[..1], PATIENCE).await?;
    wait_held(&agent, 3).await?;
    ensure!(present(&agent, &apps).await? == apps[1..]);
    Ok(())
}

/// One removal keeps failing: the permission stays with it and is not there for others.
#[tokio::test]
async fn a_permission_for_a_removal_that_fails_is_not_for_others() -> Result<()> {
    let mut agent = in_haste().await?;
    let apps = deploy(&agent, "app", 3).await?;
    agent.process()?.kill();
    agent.delete(&apps[0]).await?;
    // Its record cannot be read any more, so nobody knows what to remove.
    let secrets = agent.objects("v1", "Secret", &crate::scene::target(&agent));
    let damage = json!({ "data": { "release": "bm9uc2Vuc2U=" } });
    secrets
        .patch(
            "sh.helm.release.v1.app-0.v1",
            &Default::default(),
            &kube::api::Patch::Merge(&damage),
        )
        .await?;
    agent.process()?.restart()?;
    wait_held(&agent, 1).await?;
    release_hold(&agent).await?;
    crate::scene::wait_event(&agent, "RemovalFailed", "app-0").await?;
    agent.process()?.kill();
    agent.delete(&apps[1]).await?;
    agent.process()?.restart()?;
    crate::scene::wait_report(&agent, "held", |text| text.contains("app-1")).await?;
    // Long enough for whoever would take the permission for one of its own.
    let later = deploy(&agent, "later", 1).await?;
    tokio::time::sleep(Duration::from_secs(25)).await;
    let all = [&apps[..], &later[..]].concat();
    untouched(&agent, &all).await
}

/// Upstream is restored, and what the watch still shows is older than that: it does not take back that a bundle is lost.
#[tokio::test]
async fn a_cached_object_does_not_say_that_a_lost_bundle_is_back() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    let upstream = agent.grant_behind_faults().await?;
    start(&mut agent)?;
    deploy_own(&agent).await?;
    let apps = deploy(&agent, "app", 2).await?;
    // Questions for names alone are answered by the restored server, which is older at first and goes on from there; all others by
    // the one before.
    let bundles = agent.bundle_deployments()?;
    let listed = bundles.list(&ListParams::default()).await?;
    let version = listed.metadata.resource_version.unwrap_or_default();
    let later = version.parse::<u64>()? + 100_000;
    let namespace = agent.deployment_namespace()?.to_owned();
    let restored = move |version: u64| -> Value {
        json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
            "metadata": { "resourceVersion": version.to_string() },
            "items": [{
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                "metadata": { "name": "fleet-agent-c1", "namespace": namespace, "resourceVersion": "1" },
            }],
        })
    };
    let is_asked = Arc::new(AtomicBool::default());
    let asked = Arc::clone(&is_asked);
    upstream.refuse(move |parts| {
        let accept = parts
            .headers
            .get("accept")
            .and_then(|value| value.to_str().ok());
        let names_alone = accept.is_some_and(|accept| accept.contains("PartialObjectMetadata"));
        let query = parts.uri.query().unwrap_or_default();
        let is_list = parts.uri.path().ends_with("/bundledeployments") && !is_watch(parts);
        (is_list && names_alone && !query.contains("limit=1")).then(|| {
            restored(match asked.swap(true, Ordering::SeqCst) {
                false => 2,
                true => later,
            })
        })
    });
    upstream.expire_watches();
    crate::scene::wait_event(&agent, "UpstreamRestored", "").await?;
    ensure!(is_asked.load(Ordering::SeqCst));
    // The cached object is looked at.
    agent
        .apply(&app(&agent, "app-0").label("round", "1"))
        .await?;
    agent
        .apply(&app(&agent, "app-1").label("round", "1"))
        .await?;
    deploy(&agent, "later", 1).await?;
    ensure!(bundles.list(&ListParams::default()).await?.items.len() == 4);
    agent.delete("app-0").await?;
    wait_held(&agent, 1).await?;
    untouched(&agent, &apps).await?;
    // A server that has it says that it is back, and then its deletion is one.
    agent.apply(&app(&agent, "app-0")).await?;
    upstream.leave();
    upstream.expire_watches();
    agent.wait_ready("app-0").await?;
    wait_held(&agent, 0).await?;
    agent
        .apply(&app(&agent, "app-0").label("round", "2"))
        .await?;
    deploy(&agent, "last", 1).await?;
    agent.delete("app-0").await?;
    gone(&agent, &apps[..1], PATIENCE).await
}

/// What is held costs one look now and then, however many there are.
#[tokio::test]
async fn held_removals_are_checked_together() -> Result<()> {
    let mut agent = in_haste().await?;
    let apps = deploy(&agent, "app", 8).await?;
    agent.process()?.kill();
    for app in &apps {
        agent.delete(app).await?;
    }
    agent.process()?.restart()?;
    wait_held(&agent, 8).await?;
    let looks = |agent: &TestAgent<'_>| -> Result<usize> {
        let requests = agent.downstream_requests()?;
        let looks = requests
            .iter()
            .filter(|request| request.verb == "get" && request.name == "fleet-agent-ledger");
        Ok(looks.count())
    };
    let before = looks(&agent)?;
    wait_until("the next looks", PATIENCE, async || {
        match looks(&agent).map_err(|e| e.to_string())? {
            now if now >= before + 2 => Ok(()),
            now => Err(now.to_string()),
        }
    })
    .await?;
    // Whoever looks for each of them has made eight by now.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let after = looks(&agent)?;
    ensure!(after <= before + 4, "{before}, then {after}");
    untouched(&agent, &apps).await
}
