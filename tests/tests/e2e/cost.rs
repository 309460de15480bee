//! What the agent asks of the two API servers.

use anyhow::Result;
use futures_util::future::try_join_all;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use testbed::audit::{Request, tally};
use testbed::bed::{Bed, unique};
use testbed::chart::Chart;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::wait::wait_until;

fn is_write(request: &Request) -> bool {
    !matches!(request.verb.as_str(), "get" | "list" | "watch")
}

/// Not the agent's own, whatever is deployed: the lease and the heartbeat.
fn is_work(request: &Request) -> bool {
    !matches!(request.resource.as_str(), "leases" | "clusters/status")
}

/// Names that no other agent on this cluster has: objects of a bundle of the same name would carry the same label, and be looked at.
fn names(agent: &TestAgent<'_>, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{}-{n}", agent.id)).collect()
}

fn reads_and_writes(agent: &TestAgent<'_>) -> Result<(Vec<Request>, Vec<Request>)> {
    Ok((agent.upstream_requests()?, agent.downstream_requests()?))
}

/// Twenty bundles of a chart with three objects: three objects and two writes of the record each, and at most four requests more:
/// the history, the account, and two ledger entries. What bundles share of these depends on how many are worked on at once, and how often
/// something is looked at that comes up on the machine; `make bench` shows the whole, which is to be nine.
#[tokio::test]
async fn a_bundle_of_three_objects_costs_little_more_than_its_writes() -> Result<()> {
    const BUNDLES: usize = 20;
    let bed = Bed::shared().await?;
    let agent = TestAgent::registered(bed).await?;
    let chart = Chart::small(&unique("cost"), "1.0.0");
    bed.repository.add(&chart)?;
    let namespace = format!("{}-app", agent.id);
    let bundle = |name: &str| {
        BundleDeployment::helm_op(name, bed.repository.url(), chart.name(), "1.0.0")
            .release(name, &namespace)
    };
    // What is asked once per agent and namespace is not counted: registration, discovery, watches.
    agent.apply(&bundle("first")).await?;
    agent.wait_ready("first").await?;
    let (up, down) = reads_and_writes(&agent)?;
    let bundles: Vec<_> = names(&agent, BUNDLES).iter().map(|n| bundle(n)).collect();
    try_join_all(bundles.iter().map(|bundle| agent.apply(bundle))).await?;
    for bundle in &bundles {
        agent.wait_ready(bundle.name()).await?;
    }
    let (mut upstream, mut downstream) = reads_and_writes(&agent)?;
    upstream.drain(..up.len());
    downstream.drain(..down.len());
    upstream.retain(is_work);
    downstream.retain(is_work);
    let (up, down) = (tally(&upstream), tally(&downstream));
    let objects = |request: &&Request| {
        matches!(
            request.resource.as_str(),
            "configmaps" | "services" | "deployments"
        ) && request.namespace == namespace
    };
    let writes = downstream.iter().filter(objects).filter(|r| is_write(r));
    assert_eq!(writes.count(), 3 * BUNDLES, "{down:?}");
    let records = downstream
        .iter()
        .filter(|r| r.resource == "secrets" && is_write(r));
    assert_eq!(records.count(), 2 * BUNDLES, "{down:?}");
    let lists = downstream
        .iter()
        .filter(objects)
        .filter(|r| r.verb == "list");
    // No deploy lists anything. On a slow machine a few bundles are looked at in full before their Deployments are ready.
    assert!(lists.count() <= BUNDLES, "{down:?}");
    // A look reads the record, and what is not ready yet: how often that is depends on how long it takes.
    let is_look = |request: &&Request| {
        matches!(request.resource.as_str(), "deployments" | "secrets") && request.verb == "get"
    };
    let looks = downstream.iter().filter(is_look).count();
    assert!(downstream.len() - looks <= 8 * BUNDLES, "{down:?}");
    // Mostly one or two of a bundle; a slow machine takes a few more.
    assert!(looks <= 4 * BUNDLES, "{down:?}");
    // The status is written once it is known, and again when it changed; there are no other requests.
    assert!(
        upstream
            .iter()
            .all(|r| r.resource == "bundledeployments/status"),
        "{up:?}"
    );
    assert!(upstream.len() <= 3 * BUNDLES, "{up:?}");
    Ok(())
}

/// A thousand reconciles for nothing: labels that mean nothing change.
#[tokio::test]
async fn a_thousand_spurious_reconciles_write_nothing() -> Result<()> {
    const BUNDLES: usize = 10;
    const PASSES: f64 = 1_000.0;
    let bed = Bed::shared().await?;
    let mut agent = TestAgent::registered(bed).await?;
    let chart = Chart::small(&unique("spurious"), "1.0.0");
    bed.repository.add(&chart)?;
    let namespace = format!("{}-app", agent.id);
    let names = names(&agent, BUNDLES);
    for name in &names {
        let bundle = BundleDeployment::helm_op(name, bed.repository.url(), chart.name(), "1.0.0");
        agent.apply(&bundle.release(name, &namespace)).await?;
    }
    for name in &names {
        agent.wait_ready(name).await?;
    }
    // The Event that they were deployed is written a while later.
    wait_until("the Event", PATIENCE, async || {
        let reported = agent.downstream_requests().map_err(|e| format!("{e:#}"))?;
        let is_reported = reported
            .iter()
            .any(|r| r.resource == "events" && is_write(r));
        is_reported.then_some(()).ok_or("none yet".to_owned())
    })
    .await?;
    let (up, down) = reads_and_writes(&agent)?;
    let metrics = agent.process()?.metrics_url();
    let first = passes(&metrics).await?;
    let bundles = agent.bundle_deployments()?;
    let mut done = first;
    for round in 0.. {
        if done - first >= PASSES {
            break;
        }
        let label = json!({ "metadata": { "labels": { "round": round.to_string() } } });
        let (params, patch) = (PatchParams::default(), Patch::Merge(&label));
        try_join_all(
            names
                .iter()
                .map(|name| bundles.patch(name, &params, &patch)),
        )
        .await?;
        let before = done;
        done = wait_until("a pass", PATIENCE, async || match passes(&metrics).await {
            Ok(now) if now > before => Ok(now),
            other => Err(format!("{other:?}")),
        })
        .await?;
    }
    let (mut upstream, mut downstream) = reads_and_writes(&agent)?;
    upstream.drain(..up.len());
    downstream.drain(..down.len());
    let writes: Vec<_> = upstream
        .iter()
        .chain(&downstream)
        .filter(|request| is_write(request) && is_work(request))
        .collect();
    assert!(writes.is_empty(), "{writes:?}");
    Ok(())
}

/// How many reconciles the agent has ended.
async fn passes(metrics: &str) -> Result<f64> {
    let client = reqwest::Client::builder().tls_certs_only([]).build()?;
    let text = client
        .get(format!("{metrics}/metrics"))
        .send()
        .await?
        .text()
        .await?;
    let series = "controller_runtime_reconcile_total{controller=\"bundledeployment\"";
    let values = text.lines().filter(|line| line.starts_with(series));
    let values = values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(values.sum())
}
