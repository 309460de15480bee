//! Eleven ways for BundleDeployments to be gone without anybody having deleted them, and a cluster that is restored itself. In none of them does the agent send a single
//! DELETE downstream; where upstream recovers, it works on.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use testbed::audit::Request;
use testbed::bed::Bed;
use testbed::cluster::{ADMIN, kubeconfig};
use testbed::fault_proxy::{is_watch, refusal};
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::Controller;
use testbed::fleet::crds;
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::wait::wait_until;
use testbed::wire::{State, Wire};

use crate::scene::{
    HASTE, app, clusters, deploy, deploy_own, gone, haste, hasty, own, present, release_hold,
    start, target, untouched, wait_answered, wait_event, wait_held, wait_readiness, wait_report,
};

/// An agent with its own bundle and six apps.
async fn settled<'b>(bed: &'b Bed) -> Result<(TestAgent<'b>, Vec<String>)> {
    let mut agent = TestAgent::prepare(bed).await?;
    hasty(&mut agent).await?;
    deploy_own(&agent).await?;
    let apps = deploy(&agent, "app", 6).await?;
    Ok((agent, apps))
}

#[tokio::test]
async fn a_deleted_cluster_namespace_removes_nothing() -> Result<()> {
    let (agent, apps) = settled(Bed::shared().await?).await?;
    let name = agent.deployment_namespace()?.to_owned();
    let bundles = agent.bundle_deployments()?;
    // The order of a namespace that ends: everything is marked, then goes one by one, the agent's own account among it.
    bundles
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    for app in &apps {
        agent.delete(app).await?;
    }
    agent.delete("fleet-agent-c1").await?;
    wait_held(&agent, 7).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(agent.upstream.clone(), &name);
    accounts
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    let namespaces: Api<Namespace> = Api::all(agent.upstream.clone());
    namespaces.delete(&name, &DeleteParams::default()).await?;
    wait_readiness(&agent, false).await?;
    untouched(&agent, &apps).await
}

/// Two restores of one upstream of its own: from before the newer half of the bundles, then from before all of them.
#[tokio::test]
async fn upstream_is_restored_from_backups() -> Result<()> {
    let bed = Bed::shared().await?;
    let plane = bed.another_upstream().await?;
    let mut agent = TestAgent::prepare_on(bed, &plane).await?;
    agent.grant().await?;
    plane.save("empty").await?;
    start(&mut agent)?;
    deploy_own(&agent).await?;
    let older = deploy(&agent, "older", 3).await?;
    plane.save("half").await?;
    let newer = deploy(&agent, "newer", 6).await?;
    let all = [&older[..], &newer[..]].concat();

    plane.restore("half").await?;
    wait_held(&agent, 6).await?;
    wait_report(&agent, "held", |text| {
        text.contains("newer-5") && text.contains("backup")
    })
    .await?;
    wait_event(&agent, "UpstreamRestored", "").await?;
    untouched(&agent, &all).await?;
    // The watch began anew: events arrive again, and a bundle that comes back is not held any more.
    let later = deploy(&agent, "later", 1).await?;
    agent.apply(&app(&agent, "newer-0")).await?;
    agent.wait_ready("newer-0").await?;
    wait_held(&agent, 5).await?;

    plane.restore("empty").await?;
    wait_held(&agent, 11).await?;
    let all = [all, later].concat();
    untouched(&agent, &all).await
}

/// Nobody watches while upstream is restored, and it has been written to since for longer than it had been before.
#[tokio::test]
async fn upstream_is_restored_while_no_agent_runs() -> Result<()> {
    let bed = Bed::shared().await?;
    let plane = bed.another_upstream().await?;
    let mut agent = TestAgent::prepare_on(bed, &plane).await?;
    agent.grant().await?;
    let mut env = haste();
    env.insert("CHECKIN_INTERVAL".to_owned(), "1s".to_owned());
    agent.start(env)?;
    deploy_own(&agent).await?;
    let older = deploy(&agent, "older", 2).await?;
    let before = remembered(&agent, "reported").await?;
    plane.save("half").await?;
    let newer = deploy(&agent, "newer", 2).await?;
    wait_reported(&agent, before + 1).await?;
    agent.process()?.kill();
    let known = remembered(&agent, "version").await?;
    plane.restore("half").await?;
    let mut writes = 0;
    wait_until("upstream to be ahead", PATIENCE, async || {
        writes += 1;
        let name = format!("write-{writes}");
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name, "namespace": "default" },
        });
        let map = testbed::fleet::controller::apply(&agent.upstream, map).await;
        let map = map.map_err(|e| e.to_string())?;
        let version = map.metadata.resource_version.unwrap_or_default();
        match version.parse::<i64>() {
            Ok(version) if version > known + 5 => Ok(()),
            _ => Err(version),
        }
    })
    .await?;
    agent.process()?.restart()?;
    wait_event(&agent, "UpstreamRestored", "").await?;
    wait_held(&agent, 2).await?;
    untouched(&agent, &[&older[..], &newer[..]].concat()).await?;
    deploy(&agent, "later", 1).await?;
    // What is deleted from now on is.
    agent.delete("older-0").await?;
    gone(&agent, &older[..1], PATIENCE).await
}

/// Upstream, just restored, takes a heartbeat before it can list, and the agent is killed then: that upstream had forgotten one still counts.
#[tokio::test]
async fn a_restore_that_was_noticed_counts_until_upstream_lists() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    let upstream = agent.grant_behind_faults().await?;
    let mut env = haste();
    env.insert("CHECKIN_INTERVAL".to_owned(), "1s".to_owned());
    agent.start(env)?;
    deploy_own(&agent).await?;
    let apps = deploy(&agent, "app", 2).await?;
    wait_reported(&agent, 0).await?;
    agent.process()?.kill();
    let reported = remembered(&agent, "reported").await?;
    // What a backup from before the second bundle has.
    agent.delete("app-1").await?;
    set_last_seen(&agent, json!("2020-01-01T00:00:00Z"), AGENT).await?;
    upstream.refuse(|parts| {
        let is_list = parts.uri.path().ends_with("/bundledeployments") && !is_watch(parts);
        let accept = parts.headers.get("accept");
        let accept = accept.and_then(|value| value.to_str().ok());
        let names_alone = accept.is_some_and(|accept| accept.contains("PartialObjectMetadata"));
        let mut query = parts.uri.query().unwrap_or_default().split('&');
        // Lists of one object ask whether upstream is there.
        (is_list && names_alone && query.all(|part| part != "limit=1"))
            .then(|| refusal(503, "ServiceUnavailable", "the server is starting"))
    });
    agent.process()?.restart()?;
    wait_reported(&agent, reported).await?;
    agent.process()?.kill();
    upstream.leave();
    agent.process()?.restart()?;
    wait_event(&agent, "UpstreamRestored", "").await?;
    wait_held(&agent, 1).await?;
    untouched(&agent, &apps).await
}

/// Whether it asks upstream which heartbeat it remembers: a change of nothing.
fn is_question(parts: &http::request::Parts) -> bool {
    let sort = parts.headers.get("content-type");
    let is_merge = sort.is_some_and(|sort| sort == "application/merge-patch+json");
    is_merge && parts.method == http::Method::PATCH && parts.uri.path().contains("/clusters/")
}

/// A heartbeat goes out though upstream does not say what it remembers of the last one; and one that was restored meanwhile does not take it, so
/// that what it has forgotten is seen once it answers.
#[tokio::test]
async fn a_heartbeat_waits_for_nothing_and_hides_no_restore() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    let upstream = agent.grant_behind_faults().await?;
    let mut env = haste();
    env.insert("CHECKIN_INTERVAL".to_owned(), "1s".to_owned());
    agent.start(env)?;
    deploy_own(&agent).await?;
    let apps = deploy(&agent, "app", 2).await?;
    wait_reported(&agent, 0).await?;
    agent.process()?.kill();
    let silent = |parts: &http::request::Parts| {
        is_question(parts).then(|| refusal(500, "InternalError", "the server is busy"))
    };
    upstream.refuse(silent);
    let reported = remembered(&agent, "reported").await?;
    agent.process()?.restart()?;
    wait_reported(&agent, reported).await?;
    agent.process()?.kill();
    // What a backup from before the second bundle has.
    agent.delete("app-1").await?;
    let last_seen = "2020-01-01T00:00:00Z";
    set_last_seen(&agent, json!(last_seen), AGENT).await?;
    agent.process()?.restart()?;
    wait_answered(
        "a heartbeat to be refused",
        || agent.upstream_requests(),
        |request| request.resource == "clusters/status" && request.code == 422,
    )
    .await?;
    let (clusters, name) = clusters(&agent)?;
    let cluster = clusters.get(&name).await?;
    ensure!(cluster.data["status"]["agent"]["lastSeen"] == last_seen);
    let reported = remembered(&agent, "reported").await?;
    upstream.leave();
    wait_event(&agent, "UpstreamRestored", "").await?;
    wait_held(&agent, 1).await?;
    untouched(&agent, &apps).await?;
    wait_reported(&agent, reported).await
}

/// Who wrote the last heartbeat that upstream has: the agent, in a backup too.
const AGENT: &str = "fleetagent";
/// Fleet's controller, which writes the whole status of a Cluster.
const CONTROLLER: &str = "fleetcontroller";

/// Has upstream remember another last heartbeat, written in the place of the whole report, as Go writes it: none is `null`.
async fn set_last_seen(
    agent: &TestAgent<'_>,
    last_seen: serde_json::Value,
    writer: &str,
) -> Result<()> {
    let report = json!({ "lastSeen": last_seen, "namespace": "" });
    write_status(agent, "/status/agent", report, writer).await
}

/// Writes a field of the Cluster's status.
async fn write_status(
    agent: &TestAgent<'_>,
    path: &str,
    value: serde_json::Value,
    writer: &str,
) -> Result<()> {
    let (clusters, name) = clusters(agent)?;
    let patch = json!([{ "op": "add", "path": path, "value": value }]);
    let patch = serde_json::from_value(patch)?;
    let parameters = PatchParams {
        field_manager: Some(writer.to_owned()),
        ..PatchParams::default()
    };
    clusters
        .patch_status(&name, &parameters, &Patch::<()>::Json(patch))
        .await?;
    Ok(())
}

/// An agent with its own bundle and two apps, which reports each second and was heard of.
async fn reporting() -> Result<(TestAgent<'static>, Vec<String>)> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    let mut env = haste();
    env.insert("CHECKIN_INTERVAL".to_owned(), "1s".to_owned());
    agent.start(env)?;
    deploy_own(&agent).await?;
    let apps = deploy(&agent, "app", 2).await?;
    let reported = remembered(&agent, "reported").await?;
    wait_reported(&agent, reported.max(0)).await?;
    Ok((agent, apps))
}

/// A change of what the agent's pod is to be has Fleet's controller import the cluster again: it forgets the last heartbeat.
#[tokio::test]
async fn an_agent_that_upstream_installs_anew_is_no_restore() -> Result<()> {
    let (mut agent, apps) = reporting().await?;
    agent.process()?.kill();
    set_last_seen(&agent, json!(null), CONTROLLER).await?;
    agent.delete("app-1").await?;
    agent.grant().await?;
    agent.process()?.restart()?;
    gone(&agent, &apps[1..], PATIENCE).await?;
    let log = agent.process()?.log();
    ensure!(!log.contains("restored from a backup"), "{log}");
    Ok(())
}

/// Fleet's controller writes the status of a Cluster as it was when it began to look at it, and with it the former heartbeat.
#[tokio::test]
async fn a_status_the_controller_writes_back_is_no_restore() -> Result<()> {
    let (mut agent, apps) = reporting().await?;
    let maps = agent.objects("v1", "ConfigMap", &target(&agent));
    let finalizers =
        |finalizers: serde_json::Value| json!({ "metadata": { "finalizers": finalizers } });
    let held = finalizers(json!(["example.com/held"]));
    maps.patch("app-1", &PatchParams::default(), &Patch::Merge(&held))
        .await?;
    agent.delete("app-1").await?;
    wait_until("the removal to begin", PATIENCE, async || {
        let map = maps.get("app-1").await.map_err(|e| e.to_string())?;
        let at = map.metadata.deletion_timestamp;
        at.map(drop).ok_or_else(|| "not yet".to_owned())
    })
    .await?;
    let refused = |request: &Request| request.resource == "clusters/status" && request.code == 422;
    let former = remembered(&agent, "reported").await? - 1;
    let former = k8s_openapi::jiff::Timestamp::from_second(former)?;
    set_last_seen(&agent, json!(format!("{former:.0}")), CONTROLLER).await?;
    wait_answered(
        "a heartbeat to be refused",
        || agent.upstream_requests(),
        refused,
    )
    .await?;
    let reported = remembered(&agent, "reported").await?;
    wait_reported(&agent, reported).await?;
    // And once more while no agent runs.
    agent.process()?.kill();
    set_last_seen(&agent, json!(format!("{former:.0}")), CONTROLLER).await?;
    agent.process()?.restart()?;
    let none = finalizers(json!(null));
    maps.patch("app-1", &PatchParams::default(), &Patch::Merge(&none))
        .await?;
    gone(&agent, &apps[1..], PATIENCE).await?;
    let log = agent.process()?.log();
    ensure!(!log.contains("restored from a backup"), "{log}");
    Ok(())
}

/// A Cluster that was restored object by object is the same one, with newer versions; Fleet's controller then writes what it displays.
#[tokio::test]
async fn a_cluster_restored_from_before_any_report_removes_nothing() -> Result<()> {
    let (mut agent, apps) = reporting().await?;
    agent.process()?.kill();
    set_last_seen(&agent, json!(null), "backup-restore-operator").await?;
    let display = json!({ "readyBundles": "1/2" });
    write_status(&agent, "/status/display", display, CONTROLLER).await?;
    agent.delete("app-1").await?;
    agent.process()?.restart()?;
    wait_event(&agent, "UpstreamRestored", "").await?;
    wait_held(&agent, 1).await?;
    untouched(&agent, &apps).await
}

/// A Cluster that was deleted and made anew has none of the bundles yet: what it lacks was not deleted.
#[tokio::test]
async fn a_cluster_that_is_made_anew_removes_nothing() -> Result<()> {
    let (mut agent, apps) = reporting().await?;
    agent.process()?.kill();
    let (clusters, name) = clusters(&agent)?;
    clusters.delete(&name, &DeleteParams::default()).await?;
    agent.delete("app-1").await?;
    agent.grant().await?;
    agent.process()?.restart()?;
    wait_event(&agent, "UpstreamRestored", "").await?;
    wait_held(&agent, 1).await?;
    untouched(&agent, &apps).await
}

/// Waits for a report later than `after`, in seconds since 1970, that the ledger knows of.
async fn wait_reported(agent: &TestAgent<'_>, after: i64) -> Result<()> {
    wait_until("a report", PATIENCE, async || {
        match remembered(agent, "reported").await {
            Ok(at) if at > after => Ok(()),
            other => Err(format!("{other:?}, not after {after}")),
        }
    })
    .await
    .with_context(|| agent.agent_log_tail(30))
}

/// A number that the ledger remembers of upstream.
async fn remembered(agent: &TestAgent<'_>, what: &str) -> Result<i64> {
    let origin = remembered_origin(agent).await?;
    Ok(origin[what].as_i64().unwrap_or_default())
}

/// The agent's own BundleDeployments as the ledger notes them.
async fn own_uids(agent: &TestAgent<'_>) -> Result<serde_json::Value> {
    let mut origin = remembered_origin(agent).await?;
    Ok(origin["ownUids"].take())
}

async fn remembered_origin(agent: &TestAgent<'_>) -> Result<serde_json::Value> {
    let ledger = agent.ledger().await?;
    let annotations = ledger.and_then(|ledger| ledger.metadata.annotations);
    let text = annotations
        .and_then(|all| all.get("fleet.cattle.io/upstream").cloned())
        .context("no ledger yet")?;
    Ok(serde_json::from_str(&text)?)
}

#[tokio::test]
async fn deleted_crds_remove_nothing() -> Result<()> {
    let bed = Bed::shared().await?;
    let plane = bed.another_upstream().await?;
    let mut agent = TestAgent::prepare_on(bed, &plane).await?;
    hasty(&mut agent).await?;
    // Two apps and no bundle of the agent's own: the brake alone would let them go.
    let apps = deploy(&agent, "app", 2).await?;
    let types: Api<CustomResourceDefinition> = Api::all(agent.upstream.clone());
    let name = "bundledeployments.fleet.cattle.io";
    types.delete(name, &DeleteParams::default()).await?;
    for app in &apps {
        // The finalizer of the controller, which is not there to take it away.
        agent.delete(app).await.ok();
    }
    wait_answered(
        "the agent to be told 404",
        || agent.upstream_requests(),
        |request| request.resource == "bundledeployments" && request.code == 404,
    )
    .await?;
    wait_readiness(&agent, false).await?;
    untouched(&agent, &apps).await?;
    match crds::stock_file() {
        Some(file) => {
            crds::install_file(&agent.upstream, &plane.kubeconfig(ADMIN)?, &file).await?;
        }
        None => crds::install(&agent.upstream).await?,
    }
    wait_readiness(&agent, true).await?;
    wait_held(&agent, 2).await?;
    untouched(&agent, &apps).await
}

/// All BundleDeployments vanish, and Fleet makes them anew one after the other: that of the agent's own is the first.
#[tokio::test]
async fn bundles_recreated_after_the_agents_own_are_waited_for() -> Result<()> {
    let (agent, apps) = settled(Bed::shared().await?).await?;
    agent.delete("fleet-agent-c1").await?;
    for app in &apps {
        agent.delete(app).await?;
    }
    wait_held(&agent, 7).await?;
    agent.apply(&own(&agent)).await?;
    // Upstream was listed with it, and all is looked at once more by that.
    wait_report(&agent, "held", |text| {
        text.lines().count() == 6 && text.lines().all(|line| line.contains("made anew"))
    })
    .await?;
    wait_held(&agent, 6).await?;
    wait_event(&agent, "UpstreamRestored", "").await?;
    untouched(&agent, &apps).await?;
    // Those that are back go like any other from then on, and the others when somebody lets them.
    for name in &apps[..2] {
        agent.apply(&app(&agent, name)).await?;
        agent.wait_ready(name).await?;
    }
    wait_held(&agent, 4).await?;
    untouched(&agent, &apps).await?;
    agent.delete(&apps[0]).await?;
    gone(&agent, &apps[..1], PATIENCE).await?;
    wait_held(&agent, 4).await?;
    ensure!(present(&agent, &apps[1..]).await? == &apps[1..]);
    release_hold(&agent).await?;
    gone(&agent, &apps[2..], PATIENCE).await?;
    ensure!(present(&agent, &apps[1..]).await? == &apps[1..2]);
    Ok(())
}

/// BundleDeployments are deleted one after the other by their names, the agent's own in the middle of them, and Fleet makes that one anew while the
/// others still go.
#[tokio::test]
async fn bundles_deleted_around_the_agents_own_are_held() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    let timing = format!("{HASTE},removal-settle=20s");
    agent.start([("FLEET_AGENT_TIMING".to_owned(), timing)].into())?;
    deploy_own(&agent).await?;
    let before = deploy(&agent, "app", 4).await?;
    let after = deploy(&agent, "web", 3).await?;
    let all = [&before[..], &after[..]].concat();
    // At once, as two that a slow machine deletes before the others would be removed.
    try_join_all(before.iter().map(|app| agent.delete(app))).await?;
    // They are missed for long enough, and the agent's own is listed still.
    tokio::time::sleep(Duration::from_secs(2)).await;
    agent.delete("fleet-agent-c1").await?;
    wait_held(&agent, 5).await?;
    let former = own_uids(&agent).await?;
    agent.apply(&own(&agent)).await?;
    wait_report(&agent, "held", |text| text.contains("made anew")).await?;
    agent.delete(&after[0]).await?;
    wait_report(&agent, "held", |text| text.contains("web-0")).await?;
    wait_held(&agent, 5).await?;
    // Once that is over, one that is deleted is removed, and what is held stays so.
    wait_until(
        "the new one to be noted",
        PATIENCE,
        async || match own_uids(&agent).await.map_err(|e| e.to_string())? {
            now if now != former => Ok(()),
            _ => Err("the former one is".to_owned()),
        },
    )
    .await?;
    untouched(&agent, &all).await?;
    agent.delete(&after[1]).await?;
    gone(&agent, &after[1..2], PATIENCE).await?;
    wait_held(&agent, 5).await?;
    ensure!(present(&agent, &all).await? == [&all[..5], &all[6..]].concat());
    Ok(())
}

/// Somebody on the way to upstream answers each list with an empty one, and says that all is well.
#[tokio::test]
async fn an_empty_list_removes_nothing() -> Result<()> {
    for has_own in [true, false] {
        let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
        let fault_proxy = agent.grant_behind_faults().await?;
        start(&mut agent)?;
        if has_own {
            deploy_own(&agent).await?;
        }
        let apps = deploy(&agent, "app", 2).await?;
        let bundles = agent.bundle_deployments()?;
        let now = bundles.list(&ListParams::default()).await?.metadata;
        let empty = json!({
            "apiVersion": "fleet.cattle.io/v1alpha1", "kind": "BundleDeploymentList",
            "metadata": { "resourceVersion": now.resource_version }, "items": [],
        });
        fault_proxy.refuse(move |parts| {
            let is_list = parts.uri.path().ends_with("/bundledeployments") && !is_watch(parts);
            is_list.then(|| empty.clone())
        });
        fault_proxy.expire_watches();
        wait_held(&agent, if has_own { 3 } else { 2 }).await?;
        untouched(&agent, &apps).await?;
        fault_proxy.leave();
        fault_proxy.expire_watches();
        wait_held(&agent, 0).await?;
        for name in &apps {
            agent.wait_ready(name).await?;
        }
        untouched(&agent, &apps).await?;
        // What is deleted from now on is.
        agent.delete(&apps[0]).await?;
        gone(&agent, &apps[..1], PATIENCE).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_agent_is_registered_elsewhere() -> Result<()> {
    let (mut agent, apps) = settled(Bed::shared().await?).await?;
    // Another registration of the same cluster, which has the agent's own bundle and one of the apps.
    let elsewhere = format!("{}-elsewhere", agent.registration_namespace);
    agent.controller = Controller::start(agent.upstream.clone(), &elsewhere).await?;
    let granted = agent.controller.grant_directly(&agent.id).await?;
    let new = granted.deployment_namespace.clone();
    agent.granted = Some(granted.clone());
    agent.apply(&own(&agent)).await?;
    agent.apply(&app(&agent, "app-0")).await?;
    let credential = kubeconfig(
        &agent.plane.url(),
        agent.plane.authority(),
        &granted.token,
        &new,
    );
    agent
        .secret(
            "fleet-agent",
            json!({
                "kubeconfig": credential.to_string(),
                "deploymentNamespace": new,
                "clusterNamespace": granted.cluster_namespace,
                "clusterName": granted.cluster_name,
            }),
        )
        .await?;
    agent.wait_ready("app-0").await?;
    wait_held(&agent, 5).await?;
    wait_event(&agent, "Registered", "").await?;
    untouched(&agent, &apps).await?;
    // What is not wanted any more goes when somebody says so.
    release_hold(&agent).await?;
    gone(&agent, &apps[1..], PATIENCE).await?;
    wait_held(&agent, 0).await
}

#[tokio::test]
async fn a_revoked_token_removes_nothing() -> Result<()> {
    let (mut agent, apps) = settled(Bed::shared().await?).await?;
    let namespace = agent.deployment_namespace()?.to_owned();
    let accounts: Api<ServiceAccount> = Api::namespaced(agent.upstream.clone(), &namespace);
    accounts
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    let token = agent.granted.as_ref().context("granted")?.token.clone();
    let config = kubeconfig(
        &agent.plane.url(),
        agent.plane.authority(),
        &token,
        &namespace,
    );
    let refused = testbed::cluster::client(config).await?;
    wait_until(
        "the token to be refused",
        PATIENCE,
        async || match refused.apiserver_version().await {
            Err(kube::Error::Api(status)) if status.code == 401 => Ok(()),
            other => Err(format!("{other:?}")),
        },
    )
    .await?;
    // A watch lives on with the rights it began with: it sees this deletion, and no list confirms it.
    agent.delete("app-0").await?;
    wait_readiness(&agent, false).await?;
    untouched(&agent, &apps).await?;
    // A new token, in the same process: what was meant is done.
    agent.grant().await?;
    wait_readiness(&agent, true).await?;
    gone(&agent, &apps[..1], PATIENCE).await?;
    deploy(&agent, "after", 1).await.map(drop)
}

#[tokio::test]
async fn revoked_rights_remove_nothing() -> Result<()> {
    let (agent, apps) = settled(Bed::shared().await?).await?;
    let namespace = agent.deployment_namespace()?.to_owned();
    let bindings: Api<RoleBinding> = Api::namespaced(agent.upstream.clone(), &namespace);
    let all = bindings.list(&ListParams::default()).await?.items;
    bindings
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    agent.delete("app-0").await?;
    wait_answered(
        "the agent to be told 403",
        || agent.upstream_requests(),
        |request| {
            request.resource == "bundledeployments" && request.verb == "list" && request.code == 403
        },
    )
    .await?;
    untouched(&agent, &apps).await?;
    for mut binding in all {
        binding.metadata.resource_version = None;
        binding.metadata.uid = None;
        bindings.create(&PostParams::default(), &binding).await?;
    }
    gone(&agent, &apps[..1], PATIENCE).await
}

#[tokio::test]
async fn a_stale_cache_after_a_partition_removes_nothing() -> Result<()> {
    let bed = Bed::shared().await?;
    let mut agent = TestAgent::prepare(bed).await?;
    let wire = Wire::to(agent.plane.url().trim_start_matches("https://")).await?;
    agent.grant_at(&wire.https_url()).await?;
    start(&mut agent)?;
    let apps = deploy(&agent, "app", 4).await?;
    wire.set(State::Silent);
    // Unseen: all are deleted and made again, which a cache full of old objects cannot tell from a deletion.
    for app_name in &apps {
        agent.delete(app_name).await?;
    }
    wait_until("the apps to be gone upstream", PATIENCE, async || {
        let left = agent.bundle_deployments().map_err(|e| e.to_string())?;
        let left = left
            .list(&ListParams::default())
            .await
            .map_err(|e| e.to_string())?;
        if left.items.is_empty() {
            Ok(())
        } else {
            Err(left.items.len().to_string())
        }
    })
    .await?;
    for app_name in &apps {
        agent.apply(&app(&agent, app_name)).await?;
    }
    wire.set(State::Whole);
    for app_name in &apps {
        agent.wait_ready(app_name).await?;
    }
    untouched(&agent, &apps).await
}

/// The cluster itself is restored from a backup under a running agent: what was deployed since is deployed again, what was upgraded
/// since is upgraded again, nothing is deleted, and edits are seen as ever.
#[tokio::test]
async fn the_cluster_is_restored_from_a_backup() -> Result<()> {
    let bed = Bed::start(true).await?;
    let mut agent = TestAgent::prepare(&bed).await?;
    hasty(&mut agent).await?;
    deploy_own(&agent).await?;
    let older = deploy(&agent, "older", 2).await?;
    let namespace = target(&agent);
    let upgraded = |value: &str| {
        let text = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: upgraded}}\ndata: {{key: {value}}}\n"
        );
        BundleDeployment::content("upgraded", vec![("map.yaml".to_owned(), text.into())])
            .option("defaultNamespace", json!(namespace))
            .correct_drift()
    };
    agent.apply(&upgraded("before")).await?;
    agent.wait_ready("upgraded").await?;
    bed.downstream.save("before").await?;
    for value in ["between", "after"] {
        agent.apply(&upgraded(value)).await?;
        agent.wait_ready("upgraded").await?;
    }
    let newer = deploy(&agent, "newer", 2).await?;

    bed.downstream.restore("before").await?;
    let key = async |wanted: &str| {
        wait_until(
            &format!("the object to say {wanted}"),
            PATIENCE,
            async || {
                let found = agent
                    .object("v1", "ConfigMap", &target(&agent), "upgraded")
                    .await;
                let found = found.map_err(|e| e.to_string())?.ok_or("gone")?;
                match &found.data["data"]["key"] {
                    key if key == wanted => Ok(()),
                    other => Err(other.to_string()),
                }
            },
        )
        .await
        .with_context(|| agent.agent_log_tail(40))
    };
    key("after").await?;
    let all = [&older[..], &newer[..], &["upgraded".to_owned()]].concat();
    wait_until("everything to be there", PATIENCE, async || {
        let present = crate::scene::present(&agent, &all).await;
        match present.map_err(|e| e.to_string())? {
            present if present == all => Ok(()),
            present => Err(format!("{present:?}")),
        }
    })
    .await
    .with_context(|| agent.agent_log_tail(40))?;
    for name in &all {
        agent.wait_ready(name).await?;
    }
    // Old records go as with every upgrade.
    let mut deletions = crate::scene::deletions(&agent)?;
    deletions.retain(|request| !request.name.starts_with("sh.helm.release.v1."));
    ensure!(deletions.is_empty(), "{deletions:#?}");
    let edit = json!({ "data": { "key": "edited" } });
    agent
        .objects("v1", "ConfigMap", &target(&agent))
        .patch("upgraded", &PatchParams::default(), &Patch::Merge(&edit))
        .await?;
    key("after").await?;
    // And an agent that starts on it knows what is its own.
    agent.process()?.restart()?;
    agent.apply(&upgraded("later")).await?;
    agent.wait_ready("upgraded").await?;
    agent.delete("newer-0").await?;
    gone(&agent, &newer[..1], PATIENCE).await
}
