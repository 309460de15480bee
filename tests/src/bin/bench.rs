//! `make bench`: what the agent costs. 50 HelmOps of a three-object chart, the release build, real API servers.
#![expect(clippy::print_stdout, reason = "the figures are for the person who started it")]

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use testbed::agent;
use testbed::audit::{Request, tally};
use testbed::bed::Bed;
use testbed::chart::Chart;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::test_agent::TestAgent;
use testbed::wait::wait_until;

/// How many bundles are deployed.
const BUNDLES: usize = 50;
/// How long the agent is left alone after its start before its memory counts as idle.
const SETTLE: Duration = Duration::from_secs(10);
/// How long after a burst: connections are kept for half a minute, and bundles in motion are remembered for a whole one.
const REST: Duration = Duration::from_secs(70);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let program = agent::optimised()?;
    let size = std::fs::metadata(&program)?.len();
    println!("bench: starting two clusters");
    let bed = Bed::start(false).await?;
    bed.repository.add(&Chart::small("web", "1.0.0"))?;
    let mut agent = TestAgent::registered_with(&bed, program).await?;
    let probes = agent.process()?.probes_url();
    let http = reqwest::Client::builder().tls_certs_only([]).build()?;
    let started = Instant::now();
    // Asked more often than tests wait: what is measured takes less than their interval.
    while !http
        .get(format!("{probes}/readyz"))
        .send()
        .await
        .is_ok_and(|answer| answer.status().is_success())
    {
        ensure!(
            started.elapsed() < Duration::from_secs(60),
            "{}",
            agent.agent_log_tail(30)
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let start = started.elapsed();
    tokio::time::sleep(SETTLE).await;
    let before = agent.process()?.memory_kib()?;
    let asked = (
        agent.upstream_requests()?.len(),
        agent.downstream_requests()?.len(),
    );

    println!("bench: deploying {BUNDLES} bundles");
    let target = format!("{}-app", agent.id);
    let bundles: Vec<BundleDeployment> = (0..BUNDLES)
        .map(|n| {
            let name = format!("web-{n}");
            BundleDeployment::helm_op(&name, bed.repository.url(), "web", "1.0.0")
                .release(&name, &target)
        })
        .collect();
    let deploying = Instant::now();
    try_join_all(bundles.iter().map(|bundle| agent.apply(bundle))).await?;
    let written = deploying.elapsed();
    let api = agent.bundle_deployments()?;
    wait_until(
        "all bundles to be Ready",
        Duration::from_secs(300),
        async || {
            let all = api
                .list(&kube::api::ListParams::default())
                .await
                .map_err(|e| e.to_string())?;
            let ready = all.items.iter().filter(|b| {
                let status = &b.data["status"];
                status["ready"] == true
                    && status["nonModified"] == true
                    && status["appliedDeploymentID"] == b.data["spec"]["deploymentID"]
            });
            let ready = ready.count();
            if ready == BUNDLES {
                Ok(())
            } else {
                Err(format!("{ready} of {BUNDLES}"))
            }
        },
    )
    .await
    .with_context(|| agent.agent_log_tail(30))?;
    let all_ready = deploying.elapsed();
    println!(
        "bench: waiting {} s for the agent to come to rest",
        REST.as_secs()
    );
    tokio::time::sleep(REST).await;
    let after = agent.process()?.memory_kib()?;
    let upstream = agent.upstream_requests()?.split_off(asked.0);
    let downstream = agent.downstream_requests()?.split_off(asked.1);

    println!();
    println!(
        "binary size              {:8.1} MiB",
        size as f64 / 1_048_576.0
    );
    println!("start to ready           {:8.2} s", start.as_secs_f64());
    println!(
        "50 bundles all Ready     {:8.2} s   (writing them took {:.2} s)",
        all_ready.as_secs_f64(),
        written.as_secs_f64()
    );
    println!("memory idle, no bundles  {:8.1} MiB", mib(before.now));
    println!("memory idle, 50 bundles  {:8.1} MiB", mib(after.now));
    println!("memory at its highest    {:8.1} MiB", mib(after.peak));
    print_requests("upstream", &upstream);
    print_requests("downstream", &downstream);
    println!(
        "index fetched            {:8} times",
        bed.repository
            .requests()
            .get("index.yaml")
            .copied()
            .unwrap_or(0)
    );
    println!(
        "chart fetched            {:8} times",
        bed.repository
            .requests()
            .get("charts/web-1.0.0.tgz")
            .copied()
            .unwrap_or(0)
    );
    Ok(())
}

fn print_requests(side: &str, requests: &[Request]) {
    println!(
        "requests per bundle      {:8.1} {side}",
        requests.len() as f64 / BUNDLES as f64
    );
    for (what, count) in tally(requests).iter().take(12) {
        println!("    {:6.2} {what}", *count as f64 / BUNDLES as f64);
    }
}

fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}
