//! Nine ways for BundleDeployments to be gone without anybody having deleted them, and a cluster that is restored itself. In none of them does the agent send a single
//! DELETE downstream; where upstream recovers, it works on.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use testbed::bed::Bed;
use testbed::cluster::{ADMIN, kubeconfig};
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::Controller;
use testbed::fleet::crds;
use testbed::fleet::site::{PATIENCE, Site};
use testbed::meddler::{Meddler, is_watch};
use testbed::wait::wait_until;
use testbed::wire::{State, Wire};

use crate::scene::{
    app, deploy, deploy_own, gone, haste, hasty, own, release_hold, start, target, untouched,
    wait_answered, wait_event, wait_held, wait_readiness, wait_report,
};

const THIRTY: Duration = Duration::from_secs(30);

/// An agent with its own bundle and six apps.
async fn settled<'b>(bed: &'b Bed) -> Result<(Site<'b>, Vec<String>)> {
    let mut site = Site::prepare(bed).await?;
    hasty(&mut site).await?;
    deploy_own(&site).await?;
    let apps = deploy(&site, "app", 6).await?;
    Ok((site, apps))
}

#[tokio::test]
async fn the_cluster_namespace_goes() -> Result<()> {
    let (site, apps) = settled(Bed::shared().await?).await?;
    let name = site.deployment_namespace()?.to_owned();
    let bundles = site.bundle_deployments()?;
    // The order of a namespace that ends: everything is marked, then goes one by one, the agent's own account among it.
    bundles
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    for app in &apps {
        site.delete(app).await?;
    }
    site.delete("fleet-agent-c1").await?;
    wait_held(&site, 7).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(site.upstream.clone(), &name);
    accounts
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    let namespaces: Api<Namespace> = Api::all(site.upstream.clone());
    namespaces.delete(&name, &DeleteParams::default()).await?;
    wait_readiness(&site, false).await?;
    untouched(&site, &apps).await
}

/// Two restores of one upstream of its own: from before the newer half of the bundles, then from before all of them.
#[tokio::test]
async fn upstream_is_restored_from_backups() -> Result<()> {
    let bed = Bed::shared().await?;
    let plane = bed.another_upstream().await?;
    let mut site = Site::prepare_on(bed, &plane).await?;
    site.grant().await?;
    plane.save("empty").await?;
    start(&mut site)?;
    deploy_own(&site).await?;
    let older = deploy(&site, "older", 3).await?;
    plane.save("half").await?;
    let newer = deploy(&site, "newer", 6).await?;
    let all = [&older[..], &newer[..]].concat();

    plane.restore("half").await?;
    wait_held(&site, 6).await?;
    wait_report(&site, "held", |text| {
        text.contains("newer-5") && text.contains("backup")
    })
    .await?;
    wait_event(&site, "UpstreamRestored", "").await?;
    untouched(&site, &all).await?;
    // The watch is not deaf: what upstream says now is heard, and what comes back is not held any more.
    let later = deploy(&site, "later", 1).await?;
    site.apply(&app(&site, "newer-0")).await?;
    site.wait_ready("newer-0").await?;
    wait_held(&site, 5).await?;

    plane.restore("empty").await?;
    wait_held(&site, 11).await?;
    let all = [all, later].concat();
    untouched(&site, &all).await
}

/// Nobody watches while upstream is restored, and it has been written to since for longer than it had been before.
#[tokio::test]
async fn upstream_is_restored_while_no_agent_runs() -> Result<()> {
    let bed = Bed::shared().await?;
    let plane = bed.another_upstream().await?;
    let mut site = Site::prepare_on(bed, &plane).await?;
    site.grant().await?;
    let mut env = haste();
    env.insert("CHECKIN_INTERVAL".to_owned(), "1s".to_owned());
    site.start(env)?;
    deploy_own(&site).await?;
    let older = deploy(&site, "older", 2).await?;
    let before = remembered(&site, "reported").await?;
    plane.save("half").await?;
    let newer = deploy(&site, "newer", 2).await?;
    wait_until("a later report", PATIENCE, async || {
        match remembered(&site, "reported").await {
            Ok(at) if at > before + 1 => Ok(()),
            other => Err(format!("{other:?} after {before}")),
        }
    })
    .await?;
    site.agent()?.kill();
    let known = remembered(&site, "version").await?;
    plane.restore("half").await?;
    let mut writes = 0;
    wait_until("upstream to be ahead", PATIENCE, async || {
        writes += 1;
        let name = format!("write-{writes}");
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name, "namespace": "default" },
        });
        let map = testbed::fleet::controller::apply(&site.upstream, map).await;
        let map = map.map_err(|e| e.to_string())?;
        let version = map.metadata.resource_version.unwrap_or_default();
        match version.parse::<i64>() {
            Ok(version) if version > known + 5 => Ok(()),
            _ => Err(version),
        }
    })
    .await?;
    site.agent()?.restart()?;
    wait_event(&site, "UpstreamRestored", "").await?;
    wait_held(&site, 2).await?;
    untouched(&site, &[&older[..], &newer[..]].concat()).await?;
    deploy(&site, "later", 1).await?;
    // What is deleted from now on is.
    site.delete("older-0").await?;
    gone(&site, &older[..1], THIRTY).await
}

/// A number that the ledger remembers of upstream.
async fn remembered(site: &Site<'_>, what: &str) -> Result<i64> {
    let ledger = site.ledger().await?;
    let annotations = ledger.and_then(|ledger| ledger.metadata.annotations);
    let text = annotations
        .and_then(|all| all.get("fleet.cattle.io/upstream").cloned())
        .context("no ledger yet")?;
    let origin: serde_json::Value = serde_json::from_str(&text)?;
    Ok(origin[what].as_i64().unwrap_or_default())
}

#[tokio::test]
async fn the_types_go() -> Result<()> {
    let bed = Bed::shared().await?;
    let plane = bed.another_upstream().await?;
    let mut site = Site::prepare_on(bed, &plane).await?;
    hasty(&mut site).await?;
    // Two apps and no bundle of the agent's own: the brake alone would let them go.
    let apps = deploy(&site, "app", 2).await?;
    let types: Api<CustomResourceDefinition> = Api::all(site.upstream.clone());
    let name = "bundledeployments.fleet.cattle.io";
    types.delete(name, &DeleteParams::default()).await?;
    for app in &apps {
        // The finalizer of the controller, which is not there to take it away.
        site.delete(app).await.ok();
    }
    wait_answered(
        "the agent to be told 404",
        || site.upstream_requests(),
        |request| request.resource == "bundledeployments" && request.code == 404,
    )
    .await?;
    wait_readiness(&site, false).await?;
    untouched(&site, &apps).await?;
    match crds::stock_file() {
        Some(file) => {
            crds::install_file(&site.upstream, &plane.kubeconfig(ADMIN)?, &file).await?;
        }
        None => crds::install(&site.upstream).await?,
    }
    wait_readiness(&site, true).await?;
    wait_held(&site, 2).await?;
    untouched(&site, &apps).await
}

/// Somebody on the way to upstream answers each list with an empty one, and says that all is well.
#[tokio::test]
async fn upstream_lists_nothing() -> Result<()> {
    for has_own in [true, false] {
        let mut site = Site::prepare(Bed::shared().await?).await?;
        let granted = site.controller.grant_directly(&site.id).await?;
        let namespace = granted.deployment_namespace.clone();
        let (url, authority) = (site.plane.url(), site.plane.authority());
        let config = kubeconfig(&url, authority, &granted.token, &namespace);
        let meddler = Meddler::before(config).await?;
        site.grant_at(meddler.url()).await?;
        start(&mut site)?;
        if has_own {
            deploy_own(&site).await?;
        }
        let apps = deploy(&site, "app", 2).await?;
        let bundles = site.bundle_deployments()?;
        let now = bundles.list(&ListParams::default()).await?.metadata;
        let empty = json!({
            "apiVersion": "fleet.cattle.io/v1alpha1", "kind": "BundleDeploymentList",
            "metadata": { "resourceVersion": now.resource_version }, "items": [],
        });
        meddler.refuse(move |parts| {
            let is_list = parts.uri.path().ends_with("/bundledeployments") && !is_watch(parts);
            is_list.then(|| empty.clone())
        });
        meddler.expire_watches();
        wait_held(&site, if has_own { 3 } else { 2 }).await?;
        untouched(&site, &apps).await?;
        meddler.leave();
        meddler.expire_watches();
        wait_held(&site, 0).await?;
        for name in &apps {
            site.wait_ready(name).await?;
        }
        untouched(&site, &apps).await?;
        // What is deleted from now on is.
        site.delete(&apps[0]).await?;
        gone(&site, &apps[..1], THIRTY).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_agent_is_registered_elsewhere() -> Result<()> {
    let (mut site, apps) = settled(Bed::shared().await?).await?;
    // Another registration of the same cluster, which has the agent's own bundle and one of the apps.
    let elsewhere = format!("{}-elsewhere", site.registration_namespace);
    site.controller = Controller::start(site.upstream.clone(), &elsewhere).await?;
    let granted = site.controller.grant_directly(&site.id).await?;
    let new = granted.deployment_namespace.clone();
    site.granted = Some(granted.clone());
    site.apply(&own(&site)).await?;
    site.apply(&app(&site, "app-0")).await?;
    let credential = kubeconfig(
        &site.plane.url(),
        site.plane.authority(),
        &granted.token,
        &new,
    );
    site.secret(
        "fleet-agent",
        json!({
            "kubeconfig": credential.to_string(),
            "deploymentNamespace": new,
            "clusterNamespace": granted.cluster_namespace,
            "clusterName": granted.cluster_name,
        }),
    )
    .await?;
    site.wait_ready("app-0").await?;
    wait_held(&site, 5).await?;
    wait_event(&site, "Registered", "").await?;
    untouched(&site, &apps).await?;
    // What is not wanted any more goes when somebody says so.
    release_hold(&site).await?;
    gone(&site, &apps[1..], THIRTY + THIRTY).await?;
    wait_held(&site, 0).await
}

#[tokio::test]
async fn the_token_is_revoked() -> Result<()> {
    let (mut site, apps) = settled(Bed::shared().await?).await?;
    let namespace = site.deployment_namespace()?.to_owned();
    let accounts: Api<ServiceAccount> = Api::namespaced(site.upstream.clone(), &namespace);
    accounts
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    let token = site.granted.as_ref().context("granted")?.token.clone();
    let config = kubeconfig(
        &site.plane.url(),
        site.plane.authority(),
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
    site.delete("app-0").await?;
    wait_readiness(&site, false).await?;
    untouched(&site, &apps).await?;
    // A new token, in the same process: what was meant is done.
    site.grant().await?;
    wait_readiness(&site, true).await?;
    gone(&site, &apps[..1], THIRTY + THIRTY).await?;
    deploy(&site, "after", 1).await.map(drop)
}

#[tokio::test]
async fn the_rights_go() -> Result<()> {
    let (site, apps) = settled(Bed::shared().await?).await?;
    let namespace = site.deployment_namespace()?.to_owned();
    let bindings: Api<RoleBinding> = Api::namespaced(site.upstream.clone(), &namespace);
    let all = bindings.list(&ListParams::default()).await?.items;
    bindings
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    site.delete("app-0").await?;
    wait_answered(
        "the agent to be told 403",
        || site.upstream_requests(),
        |request| {
            request.resource == "bundledeployments" && request.verb == "list" && request.code == 403
        },
    )
    .await?;
    untouched(&site, &apps).await?;
    for mut binding in all {
        binding.metadata.resource_version = None;
        binding.metadata.uid = None;
        bindings.create(&PostParams::default(), &binding).await?;
    }
    gone(&site, &apps[..1], THIRTY + THIRTY).await
}

#[tokio::test]
async fn a_partition_leaves_a_stale_cache() -> Result<()> {
    let bed = Bed::shared().await?;
    let mut site = Site::prepare(bed).await?;
    let wire = Wire::to(site.plane.url().trim_start_matches("https://")).await?;
    site.grant_at(&wire.https_url()).await?;
    start(&mut site)?;
    let apps = deploy(&site, "app", 4).await?;
    wire.set(State::Silent);
    // Unseen: all are deleted and made again, which a cache full of old objects cannot tell from a deletion.
    for app_name in &apps {
        site.delete(app_name).await?;
    }
    wait_until("the apps to be gone upstream", PATIENCE, async || {
        let left = site.bundle_deployments().map_err(|e| e.to_string())?;
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
        site.apply(&app(&site, app_name)).await?;
    }
    wire.set(State::Whole);
    for app_name in &apps {
        site.wait_ready(app_name).await?;
    }
    untouched(&site, &apps).await
}

/// The cluster itself is restored from a backup under a running agent: what was deployed since is deployed again, what was upgraded
/// since is upgraded again, nothing is deleted, and edits are seen as ever.
#[tokio::test]
async fn the_cluster_is_restored_from_a_backup() -> Result<()> {
    let bed = Bed::start(true).await?;
    let mut site = Site::prepare(&bed).await?;
    hasty(&mut site).await?;
    deploy_own(&site).await?;
    let older = deploy(&site, "older", 2).await?;
    let namespace = target(&site);
    let upgraded = |value: &str| {
        let text = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: upgraded}}\ndata: {{key: {value}}}\n"
        );
        BundleDeployment::content("upgraded", vec![("map.yaml".to_owned(), text.into())])
            .option("defaultNamespace", json!(namespace))
            .correct_drift()
    };
    site.apply(&upgraded("before")).await?;
    site.wait_ready("upgraded").await?;
    bed.downstream.save("before").await?;
    for value in ["between", "after"] {
        site.apply(&upgraded(value)).await?;
        site.wait_ready("upgraded").await?;
    }
    let newer = deploy(&site, "newer", 2).await?;

    bed.downstream.restore("before").await?;
    let key = async |wanted: &str| {
        wait_until(
            &format!("the object to say {wanted}"),
            PATIENCE,
            async || {
                let found = site
                    .object("v1", "ConfigMap", &target(&site), "upgraded")
                    .await;
                let found = found.map_err(|e| e.to_string())?.ok_or("gone")?;
                match &found.data["data"]["key"] {
                    key if key == wanted => Ok(()),
                    other => Err(other.to_string()),
                }
            },
        )
        .await
        .with_context(|| site.agent_log_tail(40))
    };
    key("after").await?;
    let all = [&older[..], &newer[..], &["upgraded".to_owned()]].concat();
    wait_until("everything to be there", PATIENCE, async || {
        let present = crate::scene::present(&site, &all).await;
        match present.map_err(|e| e.to_string())? {
            present if present == all => Ok(()),
            present => Err(format!("{present:?}")),
        }
    })
    .await
    .with_context(|| site.agent_log_tail(40))?;
    for name in &all {
        site.wait_ready(name).await?;
    }
    // Old records go as with every upgrade.
    let mut deletions = crate::scene::deletions(&site)?;
    deletions.retain(|request| !request.name.starts_with("sh.helm.release.v1."));
    ensure!(deletions.is_empty(), "{deletions:#?}");
    let edit = json!({ "data": { "key": "edited" } });
    site.objects("v1", "ConfigMap", &target(&site))
        .patch("upgraded", &PatchParams::default(), &Patch::Merge(&edit))
        .await?;
    key("after").await?;
    // And an agent that starts on it knows what is its own.
    site.agent()?.restart()?;
    site.apply(&upgraded("later")).await?;
    site.wait_ready("upgraded").await?;
    site.delete("newer-0").await?;
    gone(&site, &newer[..1], THIRTY).await
}
