//! A long time with everything that makes an agent loop: bundles whose objects somebody reverts, `atomic` upgrades that fail, registries
//! that are not there, and an upstream that comes and goes. What that costs is held against figures.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use kube::Api;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::audit::Request;
use crate::bed::Bed;
use crate::fault_proxy::refusal;
use crate::fleet::bundle_deployment::BundleDeployment;
use crate::fleet::test_agent::{PATIENCE, TestAgent};
use crate::process::Memory;
use crate::wait::wait_until;

/// How often whoever fights looks at its object.
const FIGHTS_EVERY: Duration = Duration::from_millis(300);
/// Upstream is there for so long, and then away for so long.
const UPSTREAM_THERE: Duration = Duration::from_secs(20);
const UPSTREAM_AWAY: Duration = Duration::from_secs(5);
/// The most the agent may take at any time, in KiB.
const MEMORY: u64 = 128 << 10;

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Soak {
    /// Bundles in all; five are fought over, three are failing `atomic` upgrades, two name registries that are not there.
    pub bundles: usize,
    /// How long it goes on once all is deployed.
    pub time: Duration,
}

/// What bundles of one kind did, and may do at most.
#[derive(Debug)]
pub struct Group {
    name: &'static str,
    bundles: usize,
    /// The most of any of them: requests to both clusters, writes among them, revisions of its release.
    requests: usize,
    writes: usize,
    revisions: usize,
    /// Limits of the same.
    limits: [usize; 3],
}

/// How it went.
#[derive(Debug)]
pub struct Outcome {
    groups: Vec<Group>,
    memory: Memory,
    /// What upstream was asked while it was away.
    refused: usize,
    /// What is over its figure; nothing if all went well.
    pub findings: Vec<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<12} {:>7} {:>18} {:>18} {:>18}",
            "", "bundles", "requests", "writes", "revisions"
        )?;
        for group in &self.groups {
            let [requests, writes, revisions] = group.limits;
            let of = |figure: usize, limit: usize| format!("{figure} of {limit}");
            writeln!(
                f,
                "{:<12} {:>7} {:>18} {:>18} {:>18}",
                group.name,
                group.bundles,
                of(group.requests, requests),
                of(group.writes, writes),
                of(group.revisions, revisions)
            )?;
        }
        writeln!(
            f,
            "memory {} KiB, {} at its highest of {MEMORY}; {} requests while upstream was away",
            self.memory.now, self.memory.peak, self.refused
        )?;
        for finding in &self.findings {
            writeln!(f, "FOUND: {finding}")?;
        }
        Ok(())
    }
}

/// How often something is done in a time whose pauses double from the first to the longest, jitter taken off.
fn times(time: Duration, first: f64, longest: f64) -> usize {
    let (mut at, mut pause, mut count) = (0.0, first * 0.8, 1);
    while at + pause <= time.as_secs_f64() {
        at += pause;
        pause = (pause * 2.0).min(longest * 0.8);
        count += 1;
    }
    count
}

fn names(agent: &TestAgent<'_>, kind: &str, count: usize) -> Vec<String> {
    (0..count)
        .map(|n| format!("{}-{kind}-{n:04}", agent.id))
        .collect()
}

fn target(agent: &TestAgent<'_>) -> String {
    format!("{}-app", agent.id)
}

fn plain(agent: &TestAgent<'_>, name: &str) -> BundleDeployment {
    let text = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  key: wanted\n"
    );
    BundleDeployment::content(name, vec![("map.yaml".to_owned(), text.into())])
        .release(name, &target(agent))
}

/// One whose second version no API server takes.
fn atomic(agent: &TestAgent<'_>, name: &str, is_good: bool) -> BundleDeployment {
    let port = if is_good { 80 } else { 100_000 };
    let text = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  port: \"{port}\"\n---\napiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\nspec:\n  ports:\n  - port: {port}\n"
    );
    let files = vec![
        (
            "chart/Chart.yaml".to_owned(),
            b"apiVersion: v2\nname: c\nversion: 1.0.0\n".to_vec(),
        ),
        ("chart/templates/all.yaml".to_owned(), text.into_bytes()),
    ];
    BundleDeployment::content(name, files)
        .helm("chart", json!("chart"))
        .helm("atomic", json!(true))
        .release(name, &target(agent))
}

/// Runs it. `say` is told how far it is.
///
/// # Errors
/// When the surroundings do not come up.
pub async fn run(bed: &Bed, soak: Soak, say: &dyn Fn(String)) -> Result<Outcome> {
    let mut agent = TestAgent::prepare(bed).await?;
    let upstream = agent.grant_behind_faults().await?;
    agent.start([].into())?;

    let fought = names(&agent, "fought", 5);
    let atomics = names(&agent, "atomic", 3);
    let missing = names(&agent, "missing", 2);
    let special = fought.len() + atomics.len() + missing.len();
    let resting = names(&agent, "resting", soak.bundles.saturating_sub(special));
    for name in &resting {
        agent.apply(&plain(&agent, name)).await?;
    }
    for name in &fought {
        agent.apply(&plain(&agent, name).correct_drift()).await?;
    }
    for name in &atomics {
        agent.apply(&atomic(&agent, name, true)).await?;
    }
    let nowhere = ["http://127.0.0.1:1", "oci://127.0.0.1:1/web"];
    for (name, address) in missing.iter().zip(nowhere) {
        let bundle = match address.starts_with("oci") {
            true => BundleDeployment::oci_helm_op(name, address, "1.0.0"),
            false => BundleDeployment::helm_op(name, address, "web", "1.0.0"),
        };
        agent.apply(&bundle.release(name, &target(&agent))).await?;
    }
    for name in resting.iter().chain(&fought).chain(&atomics) {
        agent.wait_ready(name).await?;
    }
    say(format!("{} bundles are deployed", soak.bundles));

    let begun = (
        agent.upstream_requests()?.len(),
        agent.downstream_requests()?.len(),
    );
    for name in &atomics {
        agent.apply(&atomic(&agent, name, false)).await?;
    }
    let mut fighters = JoinSet::new();
    let maps = agent.objects("v1", "ConfigMap", &target(&agent));
    for name in fought.clone() {
        fighters.spawn(fight(maps.clone(), name));
    }
    let refused = Arc::new(AtomicUsize::new(0));
    let end = Instant::now() + soak.time;
    while Instant::now() < end {
        sleep(UPSTREAM_THERE.min(end - Instant::now())).await;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let count = Arc::clone(&refused);
        upstream.refuse(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Some(refusal(503, "ServiceUnavailable", "apiserver not ready"))
        });
        upstream.expire_watches();
        sleep(UPSTREAM_AWAY.min(left)).await;
        upstream.leave();
        let memory = agent.process()?.memory_kib()?;
        say(format!("{} s left, {memory:?} KiB", left.as_secs()));
    }
    let mut findings = Vec::new();
    // While they still are.
    let bundles = agent.bundle_deployments()?;
    for name in &fought {
        let is_reported = async || match bundles.get(name).await {
            // Left out where it is false.
            Ok(bundle) if bundle.data["status"]["nonModified"] != json!(true) => Ok(()),
            Ok(bundle) => Err(bundle.data["status"].to_string()),
            Err(failed) => Err(failed.to_string()),
        };
        let reported = wait_until("the fight to be told", PATIENCE, is_reported).await;
        if let Err(failed) = reported {
            findings.push(format!(
                "{name} is fought over and does not say so: {failed}"
            ));
        }
    }
    fighters.abort_all();

    let mut requests = agent.upstream_requests()?.split_off(begun.0);
    requests.extend(agent.downstream_requests()?.split_off(begun.1));
    requests.retain(|request| !request.uri.contains("dryRun="));
    let secrets = agent.objects("v1", "Secret", &target(&agent));
    let records = secrets
        .list(&ListParams::default().labels("owner=helm"))
        .await?;
    let records: Vec<String> = records
        .items
        .into_iter()
        .filter_map(|record| record.metadata.name)
        .collect();
    // How often an attempt may be made at all, and what one may cost.
    let corrections = times(soak.time, 5.0, 300.0) + 2;
    let attempts = times(soak.time, 120.0, 3600.0);
    let tries = times(soak.time, 0.005, 60.0);
    let lists = 1 + usize::try_from(soak.time.as_secs() / UPSTREAM_THERE.as_secs())?;
    let groups = vec![
        group("resting", &resting, &requests, &records, [2 + lists, 2, 1]),
        group(
            "fought",
            &fought,
            &requests,
            &records,
            [16 * corrections, 6 * corrections, 1],
        ),
        group(
            "atomic",
            &atomics,
            &requests,
            &records,
            [60 * attempts + 4 * lists, 30 * attempts, 1 + 2 * attempts],
        ),
        group("missing", &missing, &requests, &records, [4 * tries, 4, 0]),
    ];
    let memory = agent.process()?.memory_kib()?;
    for group in &groups {
        let figures = [group.requests, group.writes, group.revisions];
        for ((what, figure), limit) in ["requests", "writes", "revisions"]
            .iter()
            .zip(figures)
            .zip(group.limits)
        {
            if figure > limit {
                findings.push(format!(
                    "{}: {figure} {what}, {limit} are the most",
                    group.name
                ));
            }
        }
    }
    if memory.peak > MEMORY {
        findings.push(format!(
            "{} KiB of memory, {MEMORY} are the most",
            memory.peak
        ));
    }
    Ok(Outcome {
        groups,
        memory,
        refused: refused.load(Ordering::Relaxed),
        findings,
    })
}

/// Puts an object back whenever somebody else put it right.
async fn fight(maps: Api<DynamicObject>, name: String) {
    let mine = Patch::Merge(json!({ "data": { "key": "fought over" } }));
    loop {
        if let Ok(map) = maps.get(&name).await
            && map.data["data"]["key"] == "wanted"
        {
            // The next look tries again.
            let _ = maps.patch(&name, &PatchParams::default(), &mine).await;
        }
        sleep(FIGHTS_EVERY).await;
    }
}

fn group(
    kind: &'static str,
    bundles: &[String],
    requests: &[Request],
    records: &[String],
    limits: [usize; 3],
) -> Group {
    let is_write = |request: &&Request| !["get", "list", "watch"].contains(&request.verb.as_str());
    let most =
        |count: &dyn Fn(&str) -> usize| bundles.iter().map(|name| count(name)).max().unwrap_or(0);
    let of = |name: &str| {
        let name = name.to_owned();
        requests
            .iter()
            .filter(move |request| request.name.contains(&name))
    };
    let revision = |name: &str| {
        let prefix = format!("sh.helm.release.v1.{name}.v");
        let numbers = records
            .iter()
            .filter_map(|record| record.strip_prefix(&prefix)?.parse().ok());
        numbers.max().unwrap_or(0)
    };
    Group {
        name: kind,
        bundles: bundles.len(),
        requests: most(&|name| of(name).count()),
        writes: most(&|name| of(name).filter(is_write).count()),
        revisions: most(&revision),
        limits,
    }
}

impl Outcome {
    /// Fails with everything that was found.
    ///
    /// # Errors
    /// When anything was.
    pub fn check(&self) -> Result<()> {
        match self.findings.is_empty() {
            true => Ok(()),
            false => Err(anyhow::Error::msg(self.to_string())).context("the figures are exceeded"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_that_double_are_few() {
        assert_eq!(times(Duration::from_secs(3_600), 120.0, 3600.0), 6);
        assert_eq!(times(Duration::from_secs(120), 5.0, 300.0), 5);
        assert_eq!(times(Duration::ZERO, 5.0, 300.0), 1);
    }
}
