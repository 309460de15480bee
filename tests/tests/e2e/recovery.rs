//! What one process lives through: credentials that change, watches that expire, servers that never answer, causes that go.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::bed::{Bed, unique};
use testbed::chart::Chart;
use testbed::cluster::kubeconfig;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::site::{PATIENCE, Site};
use testbed::wait::wait_until;
use testbed::wire::{State, Wire};

use crate::scene::{app, deploy, figure, hasty, start, target, wait_event, wait_readiness};

/// How long a repaired cause may take to be noticed.
const REPAIRED: Duration = Duration::from_secs(120);

/// The agent's process: the same one for as long as a scene lasts.
fn starts(site: &Site<'_>) -> usize {
    let log = site
        .agent
        .as_ref()
        .map(|agent| agent.log())
        .unwrap_or_default();
    log.lines()
        .filter(|line| line.contains("\"message\":\"registered\""))
        .count()
}

/// Edits what was deployed and waits until that is put right: drift detection lives.
async fn drift_is_corrected(site: &Site<'_>, name: &str) -> Result<()> {
    let maps = site.objects("v1", "ConfigMap", &target(site));
    let edit = json!({ "data": { "key": "edited" } });
    maps.patch(name, &PatchParams::default(), &Patch::Merge(&edit))
        .await?;
    wait_until(&format!("{name} to be put right"), PATIENCE, async || {
        let map = maps.get(name).await.map_err(|e| e.to_string())?;
        match &map.data["data"]["key"] {
            Value::String(value) if value == "wanted" => Ok(()),
            other => Err(other.to_string()),
        }
    })
    .await
    .with_context(|| site.agent_log_tail(30))
}

/// A bundle of one ConfigMap with a key, which is kept as it is.
fn kept(site: &Site<'_>, name: &str) -> BundleDeployment {
    let text = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  key: wanted\n"
    );
    BundleDeployment::content(name, vec![("map.yaml".to_owned(), text.into())])
        .option("defaultNamespace", json!(target(site)))
        .correct_drift()
}

async fn with_kept(bed: &'static Bed) -> Result<Site<'static>> {
    let mut site = Site::prepare(bed).await?;
    hasty(&mut site).await?;
    site.apply(&kept(&site, "kept")).await?;
    site.wait_ready("kept").await?;
    Ok(site)
}

async fn credential(site: &Site<'_>) -> Result<Value> {
    let secret = site
        .object("v1", "Secret", &site.system_namespace, "fleet-agent")
        .await?
        .context("the credential")?;
    Ok(secret.data["data"].clone())
}

#[tokio::test]
async fn a_credential_is_replaced_only_by_one_that_works() -> Result<()> {
    let site = with_kept(Bed::shared().await?).await?;
    let granted = site.granted.as_ref().context("granted")?;
    let (url, authority, namespace) = (
        site.plane.url(),
        site.plane.authority(),
        granted.deployment_namespace.clone(),
    );
    let other = testbed::certs::Authority::new("somebody else")?;
    for (what, broken) in [
        (
            "a token",
            kubeconfig(&url, authority, "not-a-token", &namespace),
        ),
        (
            "an authority",
            kubeconfig(&url, other.pem(), &granted.token, &namespace),
        ),
        (
            "an address",
            kubeconfig("https://127.0.0.1:1", authority, &granted.token, &namespace),
        ),
    ] {
        let told = figure(
            &site,
            "fleet_agent_events_total{reason=\"CredentialRefused\"}",
        )
        .await;
        let told = told.map_err(anyhow::Error::msg)?;
        site.secret("fleet-agent", json!({ "kubeconfig": broken.to_string() }))
            .await?;
        wait_until(&format!("{what} to be refused"), PATIENCE, async || {
            let now = figure(
                &site,
                "fleet_agent_events_total{reason=\"CredentialRefused\"}",
            )
            .await?;
            if now > told {
                Ok(())
            } else {
                Err(now.to_string())
            }
        })
        .await?;
        // The old one is kept: everything goes on.
        deploy(&site, &format!("under-{}", what.replace(' ', "-")), 1).await?;
        drift_is_corrected(&site, "kept").await?;
    }
    wait_event(&site, "CredentialRefused", "").await?;
    ensure!(starts(&site) == 1, "{}", site.agent_log_tail(20));
    // One that works is taken: another token of the same account.
    let another = site.controller.grant_directly(&site.id).await?;
    let good = kubeconfig(&url, authority, &another.token, &namespace);
    site.secret("fleet-agent", json!({ "kubeconfig": good.to_string() }))
        .await?;
    wait_event(&site, "Registered", "").await?;
    deploy(&site, "after", 1).await?;
    drift_is_corrected(&site, "kept").await
}

#[tokio::test]
async fn a_bootstrap_secret_leads_to_another_registration_while_work_goes_on() -> Result<()> {
    let site = with_kept(Bed::shared().await?).await?;
    let before = credential(&site).await?;
    // One that leads nowhere first.
    site.bootstrap(|data| data["token"] = json!("not-a-token"))
        .await?;
    wait_event(&site, "CredentialRefused", "").await?;
    deploy(&site, "meanwhile", 1).await?;
    ensure!(credential(&site).await? == before);
    site.bootstrap(|_| ()).await?;
    wait_until("another credential", PATIENCE, async || {
        match credential(&site).await.map_err(|e| e.to_string())? {
            now if now != before => Ok(()),
            _ => Err("the old one".to_owned()),
        }
    })
    .await?;
    wait_until("the bootstrap secret to go", PATIENCE, async || {
        let secret = site
            .object(
                "v1",
                "Secret",
                &site.system_namespace,
                "fleet-agent-bootstrap",
            )
            .await;
        match secret.map_err(|e| e.to_string())? {
            None => Ok(()),
            Some(_) => Err("still there".to_owned()),
        }
    })
    .await?;
    deploy(&site, "after", 1).await?;
    drift_is_corrected(&site, "kept").await
}

#[tokio::test]
async fn a_dead_credential_is_survived() -> Result<()> {
    let mut site = with_kept(Bed::shared().await?).await?;
    let namespace = site.deployment_namespace()?.to_owned();
    let accounts: Api<ServiceAccount> = Api::namespaced(site.upstream.clone(), &namespace);
    accounts
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    wait_readiness(&site, false).await?;
    // The bootstrap secret alone leads out of it.
    site.bootstrap(|_| ()).await?;
    wait_readiness(&site, true).await?;
    deploy(&site, "after", 1).await?;
    drift_is_corrected(&site, "kept").await?;
    site.agent()?.terminate(Duration::from_secs(10)).map(drop)
}

/// Both API servers go and come back with their watch caches empty, so that every watch is told "expired"; upstream stays away for
/// longer than readiness allows.
#[tokio::test]
async fn both_api_servers_forget_the_watches() -> Result<()> {
    use testbed::cluster::Part;
    let bed = Bed::start(true).await?;
    let mut site = Site::prepare(&bed).await?;
    hasty(&mut site).await?;
    site.apply(&kept(&site, "kept")).await?;
    site.wait_ready("kept").await?;
    for plane in [&bed.upstream, &bed.downstream] {
        plane.stop_part(Part::ApiServer);
        wait_readiness(&site, false).await?;
        plane.start_part(Part::ApiServer).await?;
        wait_readiness(&site, true).await?;
        drift_is_corrected(&site, "kept").await?;
        deploy(&site, plane.name(), 1).await?;
    }
    ensure!(starts(&site) == 1, "{}", site.agent_log_tail(20));
    Ok(())
}

#[tokio::test]
async fn an_upstream_that_never_answers_is_left_and_found_again() -> Result<()> {
    let bed = Bed::shared().await?;
    let mut site = Site::prepare(bed).await?;
    let wire = Wire::to(site.plane.url().trim_start_matches("https://")).await?;
    site.grant_at(&wire.https_url()).await?;
    start(&mut site)?;
    site.apply(&kept(&site, "kept")).await?;
    site.wait_ready("kept").await?;
    wire.set(State::Cut);
    wait_readiness(&site, false).await?;
    // The cluster is looked after meanwhile.
    drift_is_corrected(&site, "kept").await?;
    wire.set(State::Whole);
    wait_readiness(&site, true).await?;
    deploy(&site, "after", 1).await.map(drop)
}

/// A repository that accepts connections and says nothing: told, and healed when it speaks.
#[tokio::test]
async fn a_repository_that_never_answers_is_told() -> Result<()> {
    let bed = Bed::shared().await?;
    let mut site = Site::prepare(bed).await?;
    hasty(&mut site).await?;
    let chart = Chart::small(&unique("web"), "1.0.0");
    bed.repository.add(&chart)?;
    let wire = Wire::to(
        bed.repository
            .url()
            .trim_start_matches("http://")
            .trim_end_matches('/'),
    )
    .await?;
    wire.set(State::Silent);
    let bundle = BundleDeployment::helm_op("web", &wire.http_url(), chart.name(), "1.0.0")
        .release("web", &target(&site));
    site.apply(&bundle).await?;
    // Others are not held up.
    deploy(&site, "other", 1).await?;
    wait_until("the silence to be told", REPAIRED, async || {
        let bundle = site.bundle_deployments().map_err(|e| e.to_string())?;
        let bundle = bundle.get("web").await.map_err(|e| e.to_string())?;
        let conditions = bundle.data["status"]["conditions"].to_string();
        if conditions.contains("\"status\":\"False\"") {
            Ok(())
        } else {
            Err(conditions)
        }
    })
    .await
    .with_context(|| site.agent_log_tail(20))?;
    wait_event(&site, "SourceFailed", "web").await?;
    wire.set(State::Whole);
    site.wait_ready("web").await.map(drop)
}

/// With the real back-off: causes that last are repaired, and everything is Ready in time with no change of a spec.
#[tokio::test]
async fn causes_that_are_repaired_are_noticed() -> Result<()> {
    let mut site = Site::prepare(Bed::shared().await?).await?;
    site.grant().await?;
    let slow = "backoff-min=20s";
    site.start(BTreeMap::from([(
        "FLEET_AGENT_TIMING".to_owned(),
        slow.to_owned(),
    )]))?;
    let values = app(&site, "values").values(json!({ "a": 1 }));
    let copy = app(&site, "copy").option(
        "downstreamResources",
        json!([{ "kind": "Secret", "name": "source" }]),
    );
    let nowhere = app(&site, "nowhere").option("createNamespace", json!(false));
    let nowhere = nowhere.option("defaultNamespace", json!(format!("{}-nowhere", site.id)));
    let account = app(&site, "account").option("serviceAccount", json!("late"));
    let bundles = [values, copy, nowhere, account];
    for bundle in &bundles {
        site.apply(bundle).await?;
    }
    let secrets: Api<Secret> = Api::namespaced(site.upstream.clone(), site.deployment_namespace()?);
    secrets.delete("values", &DeleteParams::default()).await?;
    let changed = app(&site, "values").values(json!({ "a": 2 }));
    site.apply(&changed).await?;
    secrets
        .delete("values", &DeleteParams::default())
        .await
        .ok();
    site.wait_deploy_error("copy", |message| message.contains("source"))
        .await?;
    site.wait_deploy_error("nowhere", |message| message.contains("not found"))
        .await?;
    site.wait_deploy_error("account", |message| message.contains("late"))
        .await?;
    wait_event(&site, "AccountMissing", "account").await?;
    wait_event(&site, "WaitingForUpstream", "copy").await?;

    site.upstream_secret("source", json!({ "key": "value" }))
        .await?;
    testbed::fleet::controller::apply(&site.downstream, json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": format!("{}-nowhere", site.id) },
    }))
    .await?;
    let system = &site.system_namespace;
    for object in [
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "late", "namespace": system } }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": system },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "kind": "ServiceAccount", "name": "late", "namespace": system }],
        }),
    ] {
        testbed::fleet::controller::apply(&site.downstream, object).await?;
    }
    if let Some(secret) = changed.build(site.deployment_namespace()?)?.values_secret {
        testbed::fleet::controller::apply(&site.upstream, secret).await?;
    }
    for bundle in &bundles {
        site.wait_ready(bundle.name()).await?;
    }
    Ok(())
}
