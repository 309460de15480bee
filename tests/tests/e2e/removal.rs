//! What is removed, and what is not: ordinary deletions, the brake, `keepResources`, releases nobody vouches for.

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use testbed::bed::Bed;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::test_agent::{PATIENCE, TestAgent, condition};
use testbed::wait::wait_until;

use crate::scene::{
    app, delete_at_once, deletions, deploy, deploy_own, gone, page, present, release_hold, target,
    untouched, wait_event, wait_held, wait_report, with_own_bundle,
};

#[tokio::test]
async fn ten_of_twelve_bundles_are_removed_while_the_agents_own_is_listed() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    // The real grace time.
    agent.grant().await?;
    agent.start(Default::default())?;
    deploy_own(&agent).await?;
    let apps = deploy(&agent, "app", 12).await?;
    agent.delete(&apps[11]).await?;
    gone(&agent, &apps[11..], PATIENCE).await?;
    for app in &apps[..10] {
        agent.delete(app).await?;
    }
    gone(&agent, &apps[..10], PATIENCE).await?;
    ensure!(present(&agent, &apps).await? == apps[10..11]);
    // Records and entries go after the objects.
    let secrets = agent.objects("v1", "Secret", &target(&agent));
    wait_until(
        "the ledger and the records to forget",
        PATIENCE,
        async || {
            let ledger = agent.ledger().await.map_err(|e| e.to_string())?;
            let ledger = ledger.ok_or("no ledger")?;
            let entries = ledger.data["data"].as_object().map_or(0, |map| map.len());
            let helm = ListParams::default().labels("owner=helm");
            let records = secrets.list(&helm).await.map_err(|e| e.to_string())?;
            match (entries, records.items.len()) {
                (2, 1) => Ok(()),
                (entries, records) => Err(format!("{entries} entries, {records} records")),
            }
        },
    )
    .await?;
    wait_event(&agent, "Removed", "app-3").await.map(drop)
}

/// Where the agent never had a bundle of its own, a deletion that was watched is proof, until there are too many.
#[tokio::test]
async fn too_many_removals_at_once_are_held_until_they_are_released() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    // The real grace time: five deletions may take longer than that of an agent in haste.
    agent.grant().await?;
    agent.start(Default::default())?;
    let apps = deploy(&agent, "app", 12).await?;
    for app in &apps[..2] {
        agent.delete(app).await?;
    }
    gone(&agent, &apps[..2], PATIENCE).await?;

    agent.process()?.kill();
    for app in &apps[2..6] {
        agent.delete(app).await?;
    }
    agent.process()?.restart()?;
    // Nobody watched: not proven, whatever the number.
    wait_held(&agent, 4).await?;
    wait_report(&agent, "held", |text| {
        text.lines().count() == 4 && text.contains("nobody saw it being deleted")
    })
    .await?;
    for name in &apps[2..6] {
        agent.apply(&app(&agent, name)).await?;
    }
    wait_held(&agent, 0).await?;
    wait_report(&agent, "held", str::is_empty).await?;

    delete_at_once(&agent, &apps[2..7]).await?;
    wait_held(&agent, 5).await?;
    wait_report(&agent, "held", |text| text.contains("more than a fifth")).await?;
    let reported = wait_event(&agent, "RemovalHeld", "app-4").await?;
    ensure!(
        reported.contains("fleet.cattle.io/release-held-removals=true"),
        "{reported}"
    );
    let log = agent.agent_log_tail(200);
    ensure!(
        log.contains("fleet.cattle.io/release-held-removals"),
        "{log}"
    );
    let of_held = |request: &testbed::audit::Request| {
        apps[2..7]
            .iter()
            .any(|app| request.name.contains(app.as_str()))
    };
    let deletions = deletions(&agent)?;
    ensure!(!deletions.iter().any(of_held), "{deletions:#?}");
    // Two are there again; the rest is still too much.
    for name in &apps[2..4] {
        agent.apply(&app(&agent, name)).await?;
    }
    wait_held(&agent, 3).await?;
    ensure!(present(&agent, &apps[2..]).await? == apps[2..]);

    release_hold(&agent).await?;
    gone(&agent, &apps[4..7], PATIENCE).await?;
    wait_held(&agent, 0).await?;
    ensure!(present(&agent, &apps).await? == [&apps[2..4], &apps[7..]].concat());
    // Said once, not for ever.
    wait_until("the annotation to be taken away", PATIENCE, async || {
        let ledger = agent
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
async fn keep_resources_counts_as_last_deployed_or_last_seen() -> Result<()> {
    let agent = with_own_bundle().await?;
    let keep = |name: &str, keep: bool| app(&agent, name).option("keepResources", json!(keep));
    // Deployed so.
    agent.apply(&keep("deployed", true)).await?;
    agent.wait_ready("deployed").await?;
    // Deployed so; the bundle that says otherwise cannot be deployed.
    agent.apply(&keep("last", true)).await?;
    agent.wait_ready("last").await?;
    let broken = keep("last", false).option("serviceAccount", json!("nobody"));
    agent.apply(&broken).await?;
    agent
        .wait_deploy_error("last", |message| message.contains("nobody"))
        .await?;
    // Said while paused, and never deployed.
    agent.apply(&keep("paused", false)).await?;
    agent.wait_ready("paused").await?;
    agent
        .apply(&keep("paused", true).spec("paused", json!(true)))
        .await?;
    // Taken back.
    agent.apply(&keep("no-more", true)).await?;
    agent.wait_ready("no-more").await?;
    agent.apply(&keep("no-more", false)).await?;
    agent.wait_ready("no-more").await?;

    let names = ["deployed", "last", "paused", "no-more"].map(str::to_owned);
    for name in &names {
        agent.delete(name).await?;
    }
    gone(&agent, &names[3..], PATIENCE).await?;
    records_gone(&agent).await?;
    ensure!(present(&agent, &names).await? == names[..3]);
    Ok(())
}

/// Waits until no release record is left where the apps were.
async fn records_gone(agent: &TestAgent<'_>) -> Result<()> {
    let secrets = agent.objects("v1", "Secret", &target(agent));
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
async fn a_release_the_ledger_does_not_know_is_reported_and_left() -> Result<()> {
    let mut agent = with_own_bundle().await?;
    let apps = deploy(&agent, "app", 2).await?;
    // The record of a release under another name: what a hand-made one would look like, and a complete one.
    let secrets = agent.objects("v1", "Secret", &target(&agent));
    let mut record = secrets.get("sh.helm.release.v1.app-1.v1").await?;
    record.metadata = serde_json::from_value(json!({
        "name": "sh.helm.release.v1.forged.v1",
        "labels": { "owner": "helm", "name": "forged", "version": "1", "status": "deployed" },
    }))?;
    secrets.create(&PostParams::default(), &record).await?;
    agent.delete("app-1").await?;
    gone(&agent, &apps[1..], PATIENCE).await?;
    // The search is slow; another process begins with one.
    agent.process()?.restart()?;
    wait_report(&agent, "unknown", |text| {
        text.contains(&format!("{}/forged", target(&agent)))
    })
    .await?;
    let reported = wait_event(&agent, "UnknownRelease", "forged").await?;
    ensure!(reported.contains("left alone"), "{reported}");
    let metrics = page(format!("{}/metrics", agent.process()?.metrics_url())).await;
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
    let agent = with_own_bundle().await?;
    let apps = deploy(&agent, "app", 2).await?;
    let unmark = json!({ "metadata": { "annotations": { "meta.helm.sh/release-name": "other" } } });
    agent
        .objects("v1", "ConfigMap", &target(&agent))
        .patch("app-0", &PatchParams::default(), &Patch::Merge(&unmark))
        .await?;
    agent.delete("app-0").await?;
    agent.delete("app-1").await?;
    gone(&agent, &apps[1..], PATIENCE).await?;
    records_gone(&agent).await?;
    ensure!(present(&agent, &apps).await? == apps[..1]);
    Ok(())
}

/// While a finalizer holds it nothing is removed; the release goes when the bundle is gone.
#[tokio::test]
async fn a_bundle_with_a_deletion_timestamp_is_not_removed() -> Result<()> {
    let agent = with_own_bundle().await?;
    let apps = deploy(&agent, "app", 1).await?;
    let bundles = agent.bundle_deployments()?;
    // The controller's finalizer keeps it.
    bundles.delete("app-0", &Default::default()).await?;
    let later = deploy(&agent, "later", 1).await?;
    untouched(&agent, &[&apps[..], &later[..]].concat()).await?;
    let bundle = serde_json::to_value(bundles.get("app-0").await?)?;
    ensure!(condition(&bundle, "Ready").is_some_and(|c| c["status"] == "True"));
    let release = json!({ "metadata": { "finalizers": null } });
    bundles
        .patch("app-0", &PatchParams::default(), &Patch::Merge(&release))
        .await?;
    gone(&agent, &apps, PATIENCE).await
}

/// It is deleted and made anew while a hook of its removal runs, which may be dropping a database that it has again.
#[tokio::test]
async fn a_bundle_that_returns_waits_for_the_hook_of_its_removal() -> Result<()> {
    let agent = with_own_bundle().await?;
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: web\n";
    let job = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: goodbye\n  annotations:\n    helm.sh/hook: post-delete\nspec:\n  \
               template:\n    spec:\n      restartPolicy: Never\n      containers: [{name: main, image: \"busybox:never\"}]\n";
    let files = [("templates/map.yaml", map), ("templates/job.yaml", job)];
    let bundle = BundleDeployment::chart("web", &files)
        .option("defaultNamespace", json!(target(&agent)))
        .helm("timeoutSeconds", json!(5));
    agent.apply(&bundle).await?;
    agent.wait_ready("web").await?;
    agent.delete("web").await?;
    let pods = agent.objects("v1", "Pod", &target(&agent));
    let pod = wait_until("the hook to run", PATIENCE, async || {
        let of_job = ListParams::default().labels("job-name=goodbye");
        let found = pods.list(&of_job).await.map_err(|e| e.to_string())?;
        found.items.into_iter().next().ok_or("no pod".to_owned())
    })
    .await?;
    agent.apply(&bundle).await?;
    agent
        .wait_deploy_error("web", |message| {
            message.contains("the removal of the release is not over")
        })
        .await?;
    ensure!(present(&agent, &["web".to_owned()]).await?.is_empty());
    let image = json!({ "spec": { "containers": [{ "name": "main", "image": "busybox:1" }] } });
    let name = pod.metadata.name.unwrap_or_default();
    pods.patch(&name, &PatchParams::default(), &Patch::Strategic(&image))
        .await?;
    agent.wait_ready("web").await?;
    let job = agent
        .object("batch/v1", "Job", &target(&agent), "goodbye")
        .await?;
    let job = job.context("no policy deletes it")?;
    let map = agent
        .object("v1", "ConfigMap", &target(&agent), "web")
        .await?;
    let created = map.context("it is deployed")?.metadata.creation_timestamp;
    let created = created.context("it was made")?.0;
    let ended = job.data["status"]["completionTime"].as_str();
    let ended: Timestamp = ended.context("it has ended")?.parse()?;
    ensure!(ended <= created, "{ended} {created}");
    Ok(())
}
