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
use testbed::fault_proxy::{is_watch, refusal};
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::wait::wait_until;
use testbed::wire::{State, Wire};

use crate::scene::{
    HASTE, app, deploy, figure, hasty, start, target, wait_bootstrap_gone, wait_event,
    wait_readiness,
};

/// How long a repaired cause may take to be noticed.
const REPAIRED: Duration = Duration::from_secs(120);

/// The agent's process: the same one for as long as a scene lasts.
fn starts(agent: &TestAgent<'_>) -> usize {
    let log = agent
        .process
        .as_ref()
        .map(|agent| agent.log())
        .unwrap_or_default();
    log.lines()
        .filter(|line| line.contains("\"message\":\"registered\""))
        .count()
}

/// Edits what was deployed and waits until that is put right: drift detection lives.
async fn drift_is_corrected(agent: &TestAgent<'_>, name: &str) -> Result<()> {
    let maps = agent.objects("v1", "ConfigMap", &target(agent));
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
    .with_context(|| agent.agent_log_tail(30))
}

/// A bundle of one ConfigMap with a key, which is kept as it is.
fn kept(agent: &TestAgent<'_>, name: &str) -> BundleDeployment {
    let text = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  key: wanted\n"
    );
    BundleDeployment::content(name, vec![("map.yaml".to_owned(), text.into())])
        .option("defaultNamespace", json!(target(agent)))
        .correct_drift()
}

async fn with_kept(bed: &'static Bed) -> Result<TestAgent<'static>> {
    let mut agent = TestAgent::prepare(bed).await?;
    hasty(&mut agent).await?;
    agent.apply(&kept(&agent, "kept")).await?;
    agent.wait_ready("kept").await?;
    Ok(agent)
}

async fn credential(agent: &TestAgent<'_>) -> Result<Value> {
    let secret = agent
        .object("v1", "Secret", &agent.system_namespace, "fleet-agent")
        .await?
        .context("the credential")?;
    Ok(secret.data["data"].clone())
}

async fn wait_other_credential(agent: &TestAgent<'_>, before: &Value) -> Result<()> {
    wait_until("another credential", PATIENCE, async || {
        match credential(agent).await.map_err(|e| e.to_string())? {
            now if now != *before => Ok(()),
            _ => Err("the old one".to_owned()),
        }
    })
    .await
}

#[tokio::test]
async fn a_credential_is_replaced_only_by_one_that_works() -> Result<()> {
    let agent = with_kept(Bed::shared().await?).await?;
    let granted = agent.granted.as_ref().context("granted")?;
    let (url, authority, namespace) = (
        agent.plane.url(),
        agent.plane.authority(),
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
        let reported = figure(
            &agent,
            "fleet_agent_events_total{reason=\"CredentialRefused\"}",
        )
        .await;
        let reported = reported.map_err(anyhow::Error::msg)?;
        agent
            .secret("fleet-agent", json!({ "kubeconfig": broken.to_string() }))
            .await?;
        wait_until(&format!("{what} to be refused"), PATIENCE, async || {
            let now = figure(
                &agent,
                "fleet_agent_events_total{reason=\"CredentialRefused\"}",
            )
            .await?;
            if now > reported {
                Ok(())
            } else {
                Err(now.to_string())
            }
        })
        .await?;
        // The old one is kept: everything goes on.
        deploy(&agent, &format!("under-{}", what.replace(' ', "-")), 1).await?;
        drift_is_corrected(&agent, "kept").await?;
    }
    wait_event(&agent, "CredentialRefused", "").await?;
    ensure!(starts(&agent) == 1, "{}", agent.agent_log_tail(20));
    // One that works is taken: another token of the same account.
    let another = agent.controller.grant_directly(&agent.id).await?;
    let good = kubeconfig(&url, authority, &another.token, &namespace);
    agent
        .secret("fleet-agent", json!({ "kubeconfig": good.to_string() }))
        .await?;
    wait_event(&agent, "Registered", "").await?;
    deploy(&agent, "after", 1).await?;
    drift_is_corrected(&agent, "kept").await
}

/// While a credential does not work, the ways out are still looked at: a bootstrap Secret, and that the credential is deleted.
#[tokio::test]
async fn a_credential_that_does_not_work_blocks_no_other_registration() -> Result<()> {
    for is_deleted in [false, true] {
        let agent = with_kept(Bed::shared().await?).await?;
        let broken = json!({ "kubeconfig": "apiVersion: v1\nkind: Config\n" });
        agent.secret("fleet-agent", broken).await?;
        wait_event(&agent, "CredentialRefused", "does not work").await?;
        let before = credential(&agent).await?;
        if is_deleted {
            let secrets = agent.objects("v1", "Secret", &agent.system_namespace);
            secrets
                .delete("fleet-agent", &DeleteParams::default())
                .await?;
            wait_event(&agent, "CredentialRefused", "cannot register again").await?;
        }
        agent.bootstrap(|_| ()).await?;
        wait_other_credential(&agent, &before).await?;
        deploy(&agent, "after", 1).await?;
        drift_is_corrected(&agent, "kept").await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_bootstrap_secret_leads_to_another_registration_while_work_goes_on() -> Result<()> {
    let agent = with_kept(Bed::shared().await?).await?;
    let before = credential(&agent).await?;
    // One that leads nowhere first.
    agent
        .bootstrap(|data| data["token"] = json!("not-a-token"))
        .await?;
    wait_event(&agent, "CredentialRefused", "").await?;
    deploy(&agent, "meanwhile", 1).await?;
    ensure!(credential(&agent).await? == before);
    agent.bootstrap(|_| ()).await?;
    wait_other_credential(&agent, &before).await?;
    wait_bootstrap_gone(&agent).await?;
    deploy(&agent, "after", 1).await?;
    drift_is_corrected(&agent, "kept").await
}

#[tokio::test]
async fn a_refused_credential_leads_to_another_registration() -> Result<()> {
    let mut agent = with_kept(Bed::shared().await?).await?;
    let namespace = agent.deployment_namespace()?.to_owned();
    let accounts: Api<ServiceAccount> = Api::namespaced(agent.upstream.clone(), &namespace);
    accounts
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    wait_readiness(&agent, false).await?;
    // Local work needs no upstream.
    drift_is_corrected(&agent, "kept").await?;
    // The bootstrap secret alone leads out of it.
    agent.bootstrap(|_| ()).await?;
    wait_readiness(&agent, true).await?;
    deploy(&agent, "after", 1).await?;
    drift_is_corrected(&agent, "kept").await?;
    agent
        .process()?
        .terminate(Duration::from_secs(10))
        .map(drop)
}

/// Both API servers go and come back with their watch caches empty, so that every watch is answered "expired"; upstream stays away for
/// longer than readiness allows.
#[tokio::test]
async fn watches_survive_a_restart_of_both_api_servers() -> Result<()> {
    use testbed::cluster::Part;
    let bed = Bed::start(true).await?;
    let mut agent = TestAgent::prepare(&bed).await?;
    hasty(&mut agent).await?;
    agent.apply(&kept(&agent, "kept")).await?;
    agent.wait_ready("kept").await?;
    for plane in [&bed.upstream, &bed.downstream] {
        plane.stop_part(Part::ApiServer);
        wait_readiness(&agent, false).await?;
        plane.start_part(Part::ApiServer).await?;
        wait_readiness(&agent, true).await?;
        drift_is_corrected(&agent, "kept").await?;
        deploy(&agent, plane.name(), 1).await?;
    }
    ensure!(starts(&agent) == 1, "{}", agent.agent_log_tail(20));
    Ok(())
}

#[tokio::test]
async fn an_upstream_that_never_answers_is_reconnected() -> Result<()> {
    let bed = Bed::shared().await?;
    let mut agent = TestAgent::prepare(bed).await?;
    let wire = Wire::to(agent.plane.url().trim_start_matches("https://")).await?;
    agent.grant_at(&wire.https_url()).await?;
    start(&mut agent)?;
    agent.apply(&kept(&agent, "kept")).await?;
    agent.wait_ready("kept").await?;
    wire.set(State::Cut);
    wait_readiness(&agent, false).await?;
    // The cluster is looked after meanwhile.
    drift_is_corrected(&agent, "kept").await?;
    wire.set(State::Whole);
    wait_readiness(&agent, true).await?;
    deploy(&agent, "after", 1).await.map(drop)
}

/// A repository that accepts connections and never answers: reported, and used once it does.
#[tokio::test]
async fn a_repository_that_never_answers_is_reported() -> Result<()> {
    let bed = Bed::shared().await?;
    let mut agent = TestAgent::prepare(bed).await?;
    hasty(&mut agent).await?;
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
        .release("web", &target(&agent));
    agent.apply(&bundle).await?;
    // Others are not held up.
    deploy(&agent, "other", 1).await?;
    wait_until("the silence to be told", REPAIRED, async || {
        let bundle = agent.bundle_deployments().map_err(|e| e.to_string())?;
        let bundle = bundle.get("web").await.map_err(|e| e.to_string())?;
        let conditions = bundle.data["status"]["conditions"].to_string();
        if conditions.contains("\"status\":\"False\"") {
            Ok(())
        } else {
            Err(conditions)
        }
    })
    .await
    .with_context(|| agent.agent_log_tail(20))?;
    wait_event(&agent, "SourceFailed", "web").await?;
    wire.set(State::Whole);
    agent.wait_ready("web").await.map(drop)
}

/// Upstream cannot give one of the bundles, as a server that cannot decrypt it; smaller questions go well.
#[tokio::test]
async fn an_agent_that_cannot_list_all_bundles_is_not_ready() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    let upstream = agent.grant_behind_faults().await?;
    upstream.refuse(|parts| {
        let is_list = parts.uri.path().ends_with("/bundledeployments") && !is_watch(parts);
        let accept = parts.headers.get("accept");
        let accept = accept.and_then(|value| value.to_str().ok());
        let names_alone = accept.is_some_and(|accept| accept.contains("PartialObjectMetadata"));
        (is_list && !names_alone).then(|| refusal(500, "InternalError", "unable to transform"))
    });
    let timing = format!("{HASTE},unready-after=15s");
    agent.start(BTreeMap::from([("FLEET_AGENT_TIMING".to_owned(), timing)]))?;
    wait_readiness(&agent, true).await?;
    wait_readiness(&agent, false).await?;
    upstream.leave();
    wait_readiness(&agent, true).await?;
    deploy(&agent, "app", 1).await.map(drop)
}

/// With the real back-off: causes that last are repaired, and everything is Ready in time with no change of a spec.
#[tokio::test]
async fn bundles_recover_once_their_causes_are_repaired() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    let slow = "backoff-min=20s";
    agent.start(BTreeMap::from([(
        "FLEET_AGENT_TIMING".to_owned(),
        slow.to_owned(),
    )]))?;
    let values = app(&agent, "values").values(json!({ "a": 1 }));
    let copy = app(&agent, "copy").option(
        "downstreamResources",
        json!([{ "kind": "Secret", "name": "source" }]),
    );
    let nowhere = app(&agent, "nowhere").option("createNamespace", json!(false));
    let nowhere = nowhere.option("defaultNamespace", json!(format!("{}-nowhere", agent.id)));
    let account = app(&agent, "account").option("serviceAccount", json!("late"));
    let bundles = [values, copy, nowhere, account];
    for bundle in &bundles {
        agent.apply(bundle).await?;
    }
    let secrets: Api<Secret> =
        Api::namespaced(agent.upstream.clone(), agent.deployment_namespace()?);
    secrets.delete("values", &DeleteParams::default()).await?;
    let changed = app(&agent, "values").values(json!({ "a": 2 }));
    agent.apply(&changed).await?;
    secrets
        .delete("values", &DeleteParams::default())
        .await
        .ok();
    agent
        .wait_deploy_error("copy", |message| message.contains("source"))
        .await?;
    agent
        .wait_deploy_error("nowhere", |message| message.contains("not found"))
        .await?;
    agent
        .wait_deploy_error("account", |message| message.contains("late"))
        .await?;
    wait_event(&agent, "AccountMissing", "account").await?;
    wait_event(&agent, "WaitingForUpstream", "copy").await?;

    agent
        .upstream_secret("source", json!({ "key": "value" }))
        .await?;
    testbed::fleet::controller::apply(&agent.downstream, json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": format!("{}-nowhere", agent.id) },
    }))
    .await?;
    let system = &agent.system_namespace;
    for object in [
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "late", "namespace": system } }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": system },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "kind": "ServiceAccount", "name": "late", "namespace": system }],
        }),
    ] {
        testbed::fleet::controller::apply(&agent.downstream, object).await?;
    }
    if let Some(secret) = changed.build(agent.deployment_namespace()?)?.values_secret {
        testbed::fleet::controller::apply(&agent.upstream, secret).await?;
    }
    for bundle in &bundles {
        agent.wait_ready(bundle.name()).await?;
    }
    Ok(())
}
