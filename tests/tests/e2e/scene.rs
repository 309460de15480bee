//! What the disaster, recovery, identity and removal tests share: small bundles, and what an agent says of itself.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Api;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use testbed::audit::Request;
use testbed::bed::Bed;
use testbed::fault_proxy::FaultProxy;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::{apply, resource};
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::wait::wait_until;

/// The ConfigMap that lists what is not removed.
pub(crate) const REPORT: &str = "fleet-agent-removals";
/// Short intervals, so that a test sees in seconds what takes minutes.
pub(crate) const HASTE: &str = "removal-grace=300ms,removal-settle=1s,unready-after=3s,registration-retry=2s,credential-poll=200ms,backoff-max=2s,rename-grace=1s";

/// An agent in haste, on the shared bed, with a credential.
pub(crate) async fn in_haste() -> Result<TestAgent<'static>> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    hasty(&mut agent).await?;
    Ok(agent)
}

/// The same, once its own bundle is deployed: nothing is removed without that.
pub(crate) async fn with_own_bundle() -> Result<TestAgent<'static>> {
    let agent = in_haste().await?;
    deploy_own(&agent).await?;
    Ok(agent)
}

/// Deletes bundles before the grace of the first is over, so that they count together.
pub(crate) async fn delete_at_once(agent: &TestAgent<'_>, names: &[String]) -> Result<()> {
    let deletions = names.iter().map(|name| agent.delete(name));
    futures_util::future::try_join_all(deletions)
        .await
        .map(drop)
}

/// Starts an agent in haste, on the bed's upstream, with a credential.
pub(crate) async fn hasty(agent: &mut TestAgent<'_>) -> Result<()> {
    agent.grant().await?;
    start(agent)
}

pub(crate) fn start(agent: &mut TestAgent<'_>) -> Result<()> {
    agent.start(haste())
}

pub(crate) fn haste() -> BTreeMap<String, String> {
    BTreeMap::from([("FLEET_AGENT_TIMING".to_owned(), HASTE.to_owned())])
}

/// An agent in haste whose requests downstream pass a proxy that can spoil them.
pub(crate) async fn behind_faults() -> Result<(TestAgent<'static>, FaultProxy)> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    let downstream = &agent.bed.downstream;
    let fault_proxy =
        FaultProxy::before(downstream.kubeconfig_value(&agent.user, "default")).await?;
    agent.start_at(fault_proxy.url(), haste())?;
    Ok((agent, fault_proxy))
}

/// Waits until the agent has removed its bootstrap Secret.
pub(crate) async fn wait_bootstrap_gone(agent: &TestAgent<'_>) -> Result<()> {
    wait_until("the bootstrap secret to be removed", PATIENCE, async || {
        let namespace = &agent.system_namespace;
        let secret = agent.object("v1", "Secret", namespace, "fleet-agent-bootstrap");
        match secret.await.map_err(|e| e.to_string())? {
            None => Ok(()),
            Some(_) => Err("still there".to_owned()),
        }
    })
    .await
}

/// The namespace apps go to.
pub(crate) fn target(agent: &TestAgent<'_>) -> String {
    format!("{}-app", agent.id)
}

/// Upstream's Clusters, and the name of the agent's own.
pub(crate) fn clusters(agent: &TestAgent<'_>) -> Result<(Api<DynamicObject>, String)> {
    let granted = agent.granted.as_ref().context("just granted")?;
    let namespace = &granted.cluster_namespace;
    let api = Api::namespaced_with(agent.upstream.clone(), namespace, &resource("Cluster"));
    Ok((api, granted.cluster_name.clone()))
}

/// A bundle of one ConfigMap of the same name.
pub(crate) fn app(agent: &TestAgent<'_>, name: &str) -> BundleDeployment {
    let text = format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n");
    BundleDeployment::content(name, vec![("map.yaml".to_owned(), text.into())])
        .option("defaultNamespace", json!(target(agent)))
}

/// The agent's own bundle, which every managed cluster has.
pub(crate) fn own(agent: &TestAgent<'_>) -> BundleDeployment {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: own\n";
    BundleDeployment::content(
        "fleet-agent-c1",
        vec![("agent.yaml".to_owned(), text.into())],
    )
    .option("defaultNamespace", json!(agent.system_namespace))
}

/// Deploys apps named `<prefix>-0` and so on.
pub(crate) async fn deploy(
    agent: &TestAgent<'_>,
    prefix: &str,
    count: usize,
) -> Result<Vec<String>> {
    let names: Vec<_> = (0..count).map(|n| format!("{prefix}-{n}")).collect();
    for name in &names {
        agent.apply(&app(agent, name)).await?;
    }
    for name in &names {
        agent.wait_ready(name).await?;
    }
    Ok(names)
}

pub(crate) async fn deploy_own(agent: &TestAgent<'_>) -> Result<()> {
    agent.apply(&own(agent)).await?;
    agent.wait_ready("fleet-agent-c1").await.map(drop)
}

/// Which of these apps are there.
pub(crate) async fn present(agent: &TestAgent<'_>, names: &[String]) -> Result<Vec<String>> {
    let mut present = Vec::new();
    for name in names {
        if agent
            .object("v1", "ConfigMap", &target(agent), name)
            .await?
            .is_some()
        {
            present.push(name.clone());
        }
    }
    Ok(present)
}

/// Waits until these apps are gone, for as long as an operator would.
pub(crate) async fn gone(
    agent: &TestAgent<'_>,
    names: &[String],
    deadline: Duration,
) -> Result<()> {
    wait_until("apps to be removed", deadline, async || {
        match present(agent, names).await.map_err(|e| e.to_string())? {
            left if left.is_empty() => Ok(()),
            left => Err(format!("still there: {left:?}")),
        }
    })
    .await
    .with_context(|| agent.agent_log_tail(30))
}

/// Limits how many objects of a resource (`count/secrets`) a namespace may have. Nothing is refused before the quota's controller has counted.
pub(crate) async fn limit(
    agent: &TestAgent<'_>,
    namespace: &str,
    resource: &str,
    count: &str,
) -> Result<()> {
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": { "name": "few", "namespace": namespace },
        "spec": { "hard": { resource: count } },
    });
    apply(&agent.downstream, quota).await?;
    wait_until("the quota to be counted", PATIENCE, async || {
        let quota = agent.object("v1", "ResourceQuota", namespace, "few").await;
        let quota = quota.map_err(|e| e.to_string())?.ok_or("gone")?;
        match &quota.data["status"]["hard"][resource] {
            Value::String(hard) if hard == count => Ok(()),
            _ => Err(quota.data.to_string()),
        }
    })
    .await
}

/// Everything the agent asked to be deleted downstream.
pub(crate) fn deletions(agent: &TestAgent<'_>) -> Result<Vec<Request>> {
    let mut requests = agent.downstream_requests()?;
    requests.retain(|request| request.verb.starts_with("delete"));
    Ok(requests)
}

/// The proof of a scene: nothing was deleted, and everything is there.
pub(crate) async fn untouched(agent: &TestAgent<'_>, names: &[String]) -> Result<()> {
    let deletions = deletions(agent)?;
    ensure!(
        deletions.is_empty(),
        "{deletions:#?}\n{}",
        agent.agent_log_tail(40)
    );
    ensure!(present(agent, names).await? == names);
    Ok(())
}

/// A page of the agent's own: status and text.
pub(crate) async fn page(url: String) -> Result<(u16, String), String> {
    let client = reqwest::Client::builder()
        .tls_certs_only([])
        .build()
        .map_err(|e| e.to_string())?;
    let answer = client.get(url).send().await.map_err(|e| e.to_string())?;
    let status = answer.status().as_u16();
    Ok((status, answer.text().await.map_err(|e| e.to_string())?))
}

/// A figure of `/metrics`, by its name and labels as printed; 0 if it is not there.
pub(crate) async fn figure(agent: &TestAgent<'_>, name: &str) -> Result<u64, String> {
    let agent = agent.process.as_ref().ok_or("no agent")?;
    let (_, text) = page(format!("{}/metrics", agent.metrics_url())).await?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(value.and_then(|value| value.parse().ok()).unwrap_or(0))
}

pub(crate) async fn wait_figure(agent: &TestAgent<'_>, name: &str, wanted: u64) -> Result<()> {
    wait_until(
        &format!("{name} to be {wanted}"),
        PATIENCE,
        async || match figure(agent, name).await? {
            value if value == wanted => Ok(()),
            value => Err(value.to_string()),
        },
    )
    .await
    .with_context(|| agent.agent_log_tail(30))
}

/// Waits until so many releases are held back.
pub(crate) async fn wait_held(agent: &TestAgent<'_>, count: u64) -> Result<()> {
    wait_figure(agent, "fleet_agent_held_removals", count).await
}

pub(crate) async fn wait_readiness(agent: &TestAgent<'_>, wanted: bool) -> Result<()> {
    let url = format!(
        "{}/readyz",
        agent.process.as_ref().context("no agent")?.probes_url()
    );
    wait_until(
        &format!("readiness to be {wanted}"),
        PATIENCE,
        async || match page(url.clone()).await? {
            (200, _) if wanted => Ok(()),
            (500, _) if !wanted => Ok(()),
            other => Err(format!("{other:?}")),
        },
    )
    .await
    .with_context(|| agent.agent_log_tail(30))
}

/// Waits until the report's key holds a text that `passes` accepts.
pub(crate) async fn wait_report(
    agent: &TestAgent<'_>,
    key: &str,
    passes: impl Fn(&str) -> bool,
) -> Result<()> {
    wait_until(&format!("the report of {key}"), PATIENCE, async || {
        let map = agent
            .object("v1", "ConfigMap", &agent.system_namespace, REPORT)
            .await
            .map_err(|e| e.to_string())?;
        let text = map.map(|map| {
            map.data["data"][key]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        });
        let text = text.unwrap_or_default();
        if passes(&text) { Ok(()) } else { Err(text) }
    })
    .await
    .with_context(|| agent.agent_log_tail(30))
}

/// Waits for an Event with this reason that names a bundle, or is about the agent; gives its text.
pub(crate) async fn wait_event(
    agent: &TestAgent<'_>,
    reason: &str,
    bundle: &str,
) -> Result<String> {
    let what = format!("an event {reason} about {bundle}");
    wait_until(&what, PATIENCE, async || {
        let events = agent.objects("v1", "Event", &agent.system_namespace);
        let all = events.list(&kube::api::ListParams::default()).await;
        let all = all.map_err(|e| e.to_string())?.items;
        let tells = |event: &&kube::api::DynamicObject| {
            let message = event.data["message"].as_str().unwrap_or_default();
            event.data["reason"] == reason
                && (bundle.is_empty()
                    || event.data["involvedObject"]["name"] == bundle
                    || message.contains(bundle))
        };
        let found = all.iter().find(tells);
        found
            .map(|event| {
                event.data["message"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            })
            .ok_or_else(|| {
                let reasons: Vec<_> = all.iter().map(|event| &event.data["reason"]).collect();
                format!("{reasons:?}")
            })
    })
    .await
    .with_context(|| agent.agent_log_tail(30))
}

/// The definition of a kind `Widget` that takes anything.
pub(crate) fn widgets(group: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("widgets.{group}") },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": { "kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    })
}

/// Releases what is held back, by the documented annotation.
pub(crate) async fn release_hold(agent: &TestAgent<'_>) -> Result<()> {
    let annotation = json!({ "metadata": { "annotations": {
        "fleet.cattle.io/release-held-removals": "true",
    }}});
    agent.patch_ledger(&annotation).await
}

/// Waits until the agent was answered so, by an API server it asked.
pub(crate) async fn wait_answered(
    what: &str,
    requests: impl Fn() -> Result<Vec<Request>>,
    passes: impl Fn(&Request) -> bool,
) -> Result<()> {
    wait_until(what, PATIENCE, async || {
        let requests = requests().map_err(|e| e.to_string())?;
        match requests.iter().any(&passes) {
            true => Ok(()),
            false => Err(format!("{} requests", requests.len())),
        }
    })
    .await
}

/// The conditions of a BundleDeployment as a text, for looking into.
pub(crate) fn conditions(bundle: &Value) -> String {
    bundle["status"]["conditions"].to_string()
}
