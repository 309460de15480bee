//! Charts that nobody vouched for are not deployed, whatever a bundle says; signatures are those of the real tools, registries real ones.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testbed::bed::{Bed, unique};
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::apply;
use testbed::fleet::test_agent::TestAgent;
use testbed::signed::{SIGNED_AT, Signatures, SignedChart, text};

/// A repository with the signed chart in it, unsigned, and its manifest's digest.
async fn mirrored(bed: &Bed) -> Result<(String, String)> {
    let repository = format!("{}/web", unique("signed"));
    let digest = bed
        .registry
        .mirror(&repository, &SignedChart::read()?)
        .await?;
    Ok((repository, digest))
}

fn bundle(agent: &TestAgent<'_>, bed: &Bed, name: &str, repository: &str) -> BundleDeployment {
    let reference = format!("oci://{}/{repository}", bed.registry.host());
    BundleDeployment::oci_helm_op(name, &reference, "1.1.0")
        .chart_options("plain", None, false)
        .release(name, &target(agent))
}

fn target(agent: &TestAgent<'_>) -> String {
    format!("{}-app", agent.id)
}

async fn registered(bed: &Bed) -> Result<TestAgent<'_>> {
    let agent = TestAgent::registered(bed).await?;
    let plain = json!({ "basicHTTP": "true" });
    agent.upstream_secret("plain", plain).await?;
    Ok(agent)
}

async fn set_policy(agent: &TestAgent<'_>, policy: &Value) -> Result<()> {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "fleet-agent-signatures", "namespace": agent.system_namespace },
        "data": { "policy.yaml": policy.to_string() },
    });
    apply(&agent.downstream, map).await.map(drop)
}

/// A policy by which this key signs all charts of the registry.
fn by_key(bed: &Bed, key: &str) -> Result<Value> {
    let signer = json!({"name": key, "cosign": {
        "publicKey": text(&format!("{key}.pub"))?,
        "signedAs": [format!("{SIGNED_AT}/*/web")],
    }});
    let source = format!("oci://{}/**", bed.registry.host());
    Ok(json!({"rules": [{"name": "ours", "sources": [source], "signedBy": [signer]}]}))
}

async fn deployed(agent: &TestAgent<'_>, release: &str) -> Result<bool> {
    let map = format!("{release}-web");
    let found = agent
        .object("v1", "ConfigMap", &target(agent), &map)
        .await?;
    Ok(found.is_some())
}

#[tokio::test]
async fn an_unsigned_chart_is_blocked_until_it_is_signed() -> Result<()> {
    let bed = Bed::shared().await?;
    let agent = registered(bed).await?;
    set_policy(&agent, &by_key(bed, "key")?).await?;
    let (repository, digest) = mirrored(bed).await?;
    agent
        .apply(&bundle(&agent, bed, "web", &repository))
        .await?;
    let reported = agent
        .wait_deploy_error("web", |message| message.contains("found no signature"))
        .await?;
    for part in [
        "signature policy refuses",
        "rule \"ours\"",
        "\"key\" (key sha256:",
        &digest,
    ] {
        ensure!(reported.contains(part), "{part}: {reported}");
    }
    ensure!(!deployed(&agent, "web").await?);
    let event = |reason: &str| format!("fleet_agent_events_total{{reason=\"{reason}\"}}");
    let refused = super::scene::figure(&agent, &event("SignatureRefused")).await;
    let refused = refused.map_err(anyhow::Error::msg)?;

    // Somebody else's signature does not help; ours does, without a push.
    let wrong = Signatures::read("bundle-other-key")?;
    bed.registry.attach(&repository, &digest, &wrong).await?;
    agent
        .wait_deploy_error("web", |message| message.contains("not by this key"))
        .await?;
    let right = Signatures::read("attached-key")?;
    bed.registry.attach(&repository, &digest, &right).await?;
    agent.wait_ready("web").await?;
    ensure!(deployed(&agent, "web").await?);
    ensure!(refused > 0);
    super::scene::wait_figure(&agent, &event("SignatureVerified"), 1).await
}

#[tokio::test]
async fn a_bundle_cannot_weaken_the_policy() -> Result<()> {
    let bed = Bed::shared().await?;
    let agent = registered(bed).await?;
    let mut policy = by_key(bed, "key")?;
    policy["content"] = json!("refuse");
    policy["unmatched"] = json!("refuse");
    set_policy(&agent, &policy).await?;
    let (repository, digest) = mirrored(bed).await?;
    let unsigned = |name: &str| bundle(&agent, bed, name, &repository);
    let pinned = json!({"digests": [digest]}).to_string();
    let annotation = "fleet.cattle.io/signatures";
    // Its own rule is one more; the chart as content, or by another name of the registry, is no way round.
    let port = bed.registry.host().rsplit(':').next().context("a port")?;
    let elsewhere = format!("oci://localhost:{port}/{repository}");
    let bundles = [
        (
            unsigned("pinned").annotation(annotation, &pinned),
            "found no signature",
        ),
        (
            unsigned("named").label(annotation, "lax"),
            "none of that name",
        ),
        (
            unsigned("odd").annotation(annotation, "{unmatched: allow}"),
            "fleet.cattle.io/signatures",
        ),
        (
            super::scene::app(&agent, "content"),
            "came through the upstream cluster",
        ),
        (
            BundleDeployment::oci_helm_op("elsewhere", &elsewhere, "1.1.0")
                .chart_options("plain", None, false)
                .release("elsewhere", &target(&agent)),
            "no rule of the agent's policy is about it",
        ),
    ];
    for (bundle, _) in &bundles {
        agent.apply(bundle).await?;
    }
    for (bundle, reported) in &bundles {
        agent
            .wait_deploy_error(bundle.name(), |message| message.contains(reported))
            .await
            .with_context(|| bundle.name().to_owned())?;
        ensure!(!deployed(&agent, bundle.name()).await?);
    }
    Ok(())
}

#[tokio::test]
async fn a_chart_that_is_remembered_is_checked_by_the_policy_in_force() -> Result<()> {
    let bed = Bed::shared().await?;
    let agent = registered(bed).await?;
    let (repository, digest) = mirrored(bed).await?;
    let signed = Signatures::read("attached-key")?;
    bed.registry.attach(&repository, &digest, &signed).await?;
    let forced = |generation: u64| {
        bundle(&agent, bed, "web", &repository).option("forceSyncGeneration", json!(generation))
    };
    agent.apply(&forced(1)).await?;
    agent.wait_ready("web").await?;

    // The chart lies in the cache; what counts is the policy of now, and what is deployed stays.
    set_policy(&agent, &by_key(bed, "other")?).await?;
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    agent.apply(&forced(2)).await?;
    agent
        .wait_deploy_error("web", |message| message.contains("it is not by this key"))
        .await?;
    ensure!(deployed(&agent, "web").await?);

    set_policy(&agent, &by_key(bed, "key")?).await?;
    agent.wait_ready("web").await?;
    let record = agent.wait_ready("web").await?;
    ensure!(record["status"]["ready"] == json!(true));

    // A policy that nobody can read lets nothing through.
    let broken = json!({"rules": [{"name": "a", "signed": []}]});
    set_policy(&agent, &broken).await?;
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    agent.apply(&forced(3)).await?;
    agent
        .wait_deploy_error("web", |message| {
            message.contains("the signature policy is malformed")
        })
        .await
        .map(drop)
}

#[tokio::test]
async fn an_agent_that_needs_a_policy_deploys_nothing_without() -> Result<()> {
    let bed = Bed::shared().await?;
    let mut agent = TestAgent::prepare(bed).await?;
    agent.grant().await?;
    let needs = [("FLEET_AGENT_SIGNATURES".to_owned(), "required".to_owned())];
    agent.start(BTreeMap::from(needs))?;
    agent.apply(&super::scene::app(&agent, "web")).await?;
    agent
        .wait_deploy_error("web", |message| {
            message.contains("there is no signature policy")
        })
        .await?;
    set_policy(&agent, &json!({})).await?;
    agent.wait_ready("web").await.map(drop)
}
