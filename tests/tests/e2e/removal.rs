//! What is removed, and what is not: ordinary deletions, the brake, `keepResources`, releases nobody vouches for.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use testbed::bed::Bed;
use testbed::fleet::site::{PATIENCE, Site, condition};
use testbed::wait::wait_until;

use crate::scene::{
    app, deletions, deploy, deploy_own, gone, hasty, page, present, release_hold, target,
    untouched, wait_event, wait_held, wait_report,
};

/// What an operator was promised; also time for slow machines to see it.
const THIRTY: Duration = Duration::from_secs(30);

#[tokio::test]
async fn ten_of_twelve_go_at_once_beside_the_agents_own() -> Result<()> {
    let mut site = Site::prepare(Bed::shared().await?).await?;
    // The real grace time.
    site.grant().await?;
    site.start(Default::default())?;
    deploy_own(&site).await?;
    let apps = deploy(&site, "app", 12).await?;
    site.delete(&apps[11]).await?;
    gone(&site, &apps[11..], THIRTY).await?;
    for app in &apps[..10] {
        site.delete(app).await?;
    }
    gone(&site, &apps[..10], THIRTY).await?;
    ensure!(present(&site, &apps).await? == apps[10..11]);
    // Records and entries go with them.
    let ledger = site.ledger().await?.context("the ledger")?;
    let entries = ledger.data["data"].as_object().context("entries")?.len();
    ensure!(entries == 2, "{:?}", ledger.data);
    let secrets = site.objects("v1", "Secret", &target(&site));
    let records = secrets
        .list(&ListParams::default().labels("owner=helm"))
        .await?;
    ensure!(records.items.len() == 1);
    wait_event(&site, "Removed", "app-3").await.map(drop)
}

/// Where the agent never had a bundle of its own, a deletion that was watched is proof, until there are too many.
#[tokio::test]
async fn too_many_at_once_are_held_until_somebody_says_so() -> Result<()> {
    let mut site = Site::prepare(Bed::shared().await?).await?;
    hasty(&mut site).await?;
    let apps = deploy(&site, "app", 12).await?;
    for app in &apps[..2] {
        site.delete(app).await?;
    }
    gone(&site, &apps[..2], THIRTY).await?;

    site.agent()?.kill();
    for app in &apps[2..6] {
        site.delete(app).await?;
    }
    site.agent()?.restart()?;
    // Nobody watched: not proven, whatever the number.
    wait_held(&site, 4).await?;
    wait_report(&site, "held", |text| {
        text.lines().count() == 4 && text.contains("nobody saw it being deleted")
    })
    .await?;
    for name in &apps[2..6] {
        site.apply(&app(&site, name)).await?;
    }
    wait_held(&site, 0).await?;
    wait_report(&site, "held", str::is_empty).await?;

    for app in &apps[2..7] {
        site.delete(app).await?;
    }
    wait_held(&site, 5).await?;
    wait_report(&site, "held", |text| text.contains("more than a fifth")).await?;
    let told = wait_event(&site, "RemovalHeld", "app-4").await?;
    ensure!(
        told.contains("fleet.cattle.io/release-held-removals=true"),
        "{told}"
    );
    let log = site.agent_log_tail(200);
    ensure!(
        log.contains("fleet.cattle.io/release-held-removals"),
        "{log}"
    );
    let of_held = |request: &testbed::audit::Request| {
        apps[2..7]
            .iter()
            .any(|app| request.name.contains(app.as_str()))
    };
    let deletions = deletions(&site)?;
    ensure!(!deletions.iter().any(of_held), "{deletions:#?}");
    // Two are there again; the rest is still too much.
    for name in &apps[2..4] {
        site.apply(&app(&site, name)).await?;
    }
    wait_held(&site, 3).await?;
    ensure!(present(&site, &apps[2..]).await? == apps[2..]);

    release_hold(&site).await?;
    gone(&site, &apps[4..7], THIRTY + THIRTY).await?;
    wait_held(&site, 0).await?;
    ensure!(present(&site, &apps).await? == [&apps[2..4], &apps[7..]].concat());
    // Said once, not for ever.
    wait_until("the annotation to be taken away", PATIENCE, async || {
        let ledger = site
            .ledger()
            .await
            .map_err(|e| e.to_string())?
            .ok_or("no ledger")?;
        let annotations = ledger.metadata.annotations.unwrap_or_default();
        match annotations.get("fleet.cattle.io/release-held-removals") {
            None => Ok(()),
            Some(value) => Err(value.clone()),
        }
    })
    .await
}

/// The wish counts whether it was deployed or only said, and until another one is deployed.
#[tokio::test]
async fn objects_that_are_to_be_kept_outlive_their_bundle() -> Result<()> {
    let mut site = Site::prepare(Bed::shared().await?).await?;
    hasty(&mut site).await?;
    deploy_own(&site).await?;
    let keep = |name: &str, keep: bool| app(&site, name).option("keepResources", json!(keep));
    // Deployed so.
    site.apply(&keep("deployed", true)).await?;
    site.wait_ready("deployed").await?;
    // Deployed so; the bundle that says otherwise cannot be deployed.
    site.apply(&keep("last", true)).await?;
    site.wait_ready("last").await?;
    let broken = keep("last", false).option("serviceAccount", json!("nobody"));
    site.apply(&broken).await?;
    site.wait_deploy_error("last", |message| message.contains("nobody"))
        .await?;
    // Said while paused, and never deployed.
    site.apply(&keep("paused", false)).await?;
    site.wait_ready("paused").await?;
    site.apply(&keep("paused", true).spec("paused", json!(true)))
        .await?;
    // Taken back.
    site.apply(&keep("no-more", true)).await?;
    site.wait_ready("no-more").await?;
    site.apply(&keep("no-more", false)).await?;
    site.wait_ready("no-more").await?;

    let names = ["deployed", "last", "paused", "no-more"].map(str::to_owned);
    for name in &names {
        site.delete(name).await?;
    }
    gone(&site, &names[3..], THIRTY).await?;
    records_gone(&site).await?;
    ensure!(present(&site, &names).await? == names[..3]);
    Ok(())
}

/// Waits until no release record is left where the apps were.
async fn records_gone(site: &Site<'_>) -> Result<()> {
    let secrets = site.objects("v1", "Secret", &target(site));
    wait_until("the records to go", PATIENCE, async || {
        let records = secrets
            .list(&ListParams::default().labels("owner=helm"))
            .await;
        match records.map_err(|e| e.to_string())?.items.len() {
            0 => Ok(()),
            left => Err(left.to_string()),
        }
    })
    .await
}

/// A tenant's record that claims to be a release of ours, and one that names somebody else's object.
#[tokio::test]
async fn a_release_the_ledger_does_not_know_is_told_and_left() -> Result<()> {
    let mut site = Site::prepare(Bed::shared().await?).await?;
    hasty(&mut site).await?;
    deploy_own(&site).await?;
    let apps = deploy(&site, "app", 2).await?;
    // The record of a release under another name: what a hand-made one would look like, and a complete one.
    let secrets = site.objects("v1", "Secret", &target(&site));
    let mut record = secrets.get("sh.helm.release.v1.app-1.v1").await?;
    record.metadata = serde_json::from_value(json!({
        "name": "sh.helm.release.v1.forged.v1",
        "labels": { "owner": "helm", "name": "forged", "version": "1", "status": "deployed" },
    }))?;
    secrets.create(&PostParams::default(), &record).await?;
    site.delete("app-1").await?;
    gone(&site, &apps[1..], THIRTY).await?;
    // The search is slow; another process begins with one.
    site.agent()?.restart()?;
    wait_report(&site, "unknown", |text| {
        text.contains(&format!("{}/forged", target(&site)))
    })
    .await?;
    let told = wait_event(&site, "UnknownRelease", "forged").await?;
    ensure!(told.contains("left alone"), "{told}");
    let metrics = page(format!("{}/metrics", site.agent()?.metrics_url())).await;
    let (_, metrics) = metrics.map_err(anyhow::Error::msg)?;
    ensure!(
        metrics.contains("\nfleet_agent_unknown_releases 1\n"),
        "{metrics}"
    );
    secrets.get("sh.helm.release.v1.forged.v1").await?;
    Ok(())
}

/// An object without the release's marks survives its release, whatever the release's record says.
#[tokio::test]
async fn only_marked_objects_are_removed() -> Result<()> {
    let mut site = Site::prepare(Bed::shared().await?).await?;
    hasty(&mut site).await?;
    deploy_own(&site).await?;
    let apps = deploy(&site, "app", 2).await?;
    let unmark = json!({ "metadata": { "annotations": { "meta.helm.sh/release-name": "other" } } });
    site.objects("v1", "ConfigMap", &target(&site))
        .patch("app-0", &PatchParams::default(), &Patch::Merge(&unmark))
        .await?;
    site.delete("app-0").await?;
    site.delete("app-1").await?;
    gone(&site, &apps[1..], THIRTY).await?;
    records_gone(&site).await?;
    ensure!(present(&site, &apps).await? == apps[..1]);
    Ok(())
}

/// While a finalizer holds it nothing is removed; the release goes when the bundle is gone.
#[tokio::test]
async fn a_bundle_that_is_being_deleted_is_still_there() -> Result<()> {
    let mut site = Site::prepare(Bed::shared().await?).await?;
    hasty(&mut site).await?;
    deploy_own(&site).await?;
    let apps = deploy(&site, "app", 1).await?;
    let bundles = site.bundle_deployments()?;
    // The controller's finalizer keeps it.
    bundles.delete("app-0", &Default::default()).await?;
    let later = deploy(&site, "later", 1).await?;
    untouched(&site, &[&apps[..], &later[..]].concat()).await?;
    let bundle = serde_json::to_value(bundles.get("app-0").await?)?;
    ensure!(condition(&bundle, "Ready").is_some_and(|c| c["status"] == "True"));
    let release = json!({ "metadata": { "finalizers": null } });
    bundles
        .patch("app-0", &PatchParams::default(), &Patch::Merge(&release))
        .await?;
    gone(&site, &apps, THIRTY).await
}
