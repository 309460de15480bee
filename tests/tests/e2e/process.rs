//! The process: one leader at a time, a lease that is lost and won, exits that say why.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use testbed::agent::{AgentOptions, AgentProcess, built};
use testbed::bed::{Bed, unique};
use testbed::chart::Chart;
use testbed::cluster::AGENT_USERS;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::kills::records;
use testbed::wait::wait_until;

use crate::scene::{deploy, haste, page, target};

/// Another process of the same agent, in leader election.
pub(crate) fn candidate(
    agent: &TestAgent<'_>,
    name: &str,
    extra: &[(&str, &str)],
) -> Result<AgentProcess> {
    candidate_as(agent, &agent.user, name, extra)
}

fn candidate_as(
    agent: &TestAgent<'_>,
    user: &str,
    name: &str,
    extra: &[(&str, &str)],
) -> Result<AgentProcess> {
    let mut env: BTreeMap<String, String> = haste();
    for (key, value) in [
        ("POD_NAME", name),
        ("CATTLE_ELECTION_LEASE_DURATION", "4s"),
        ("CATTLE_ELECTION_RENEW_DEADLINE", "3s"),
        ("CATTLE_ELECTION_RETRY_PERIOD", "500ms"),
    ]
    .iter()
    .chain(extra)
    {
        env.insert((*key).to_owned(), (*value).to_owned());
    }
    let options = AgentOptions {
        program: built()?,
        kubeconfig: agent.bed.downstream.kubeconfig(user)?,
        namespace: agent.system_namespace.clone(),
        env,
        // The last one counts.
        arguments: vec!["--leader-elect=true".to_owned()],
    };
    AgentProcess::start(
        agent.bed.group.clone(),
        &format!("agent-{}-{name}", agent.id),
        options,
    )
}

pub(crate) async fn holder(agent: &TestAgent<'_>, wanted: &str) -> Result<()> {
    wait_until(
        &format!("{wanted} to hold the lease"),
        PATIENCE,
        async || {
            let lease = agent
                .object(
                    "coordination.k8s.io/v1",
                    "Lease",
                    &agent.system_namespace,
                    "fleet-agent",
                )
                .await
                .map_err(|e| e.to_string())?
                .ok_or("no lease")?;
            match lease.data["spec"]["holderIdentity"].as_str() {
                Some(holder) if holder == wanted => Ok(()),
                other => Err(format!("{other:?}")),
            }
        },
    )
    .await
}

#[tokio::test]
async fn agents_take_over_from_each_other() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    let mut first = candidate(&agent, "first", &[])?;
    holder(&agent, "first").await?;
    deploy(&agent, "by-first", 1).await?;
    let mut second = candidate(&agent, "second", &[])?;
    wait_until("the second to wait", PATIENCE, async || {
        match second.log() {
            log if log.contains("another agent leads") => Ok(()),
            log => Err(log),
        }
    })
    .await?;
    ensure!(!second.log().contains("\"message\":\"registered\""));
    // A clean end gives the lease back; a crash lets it run out.
    ensure!(first.terminate(PATIENCE)?.success());
    holder(&agent, "second").await?;
    deploy(&agent, "by-second", 1).await?;
    second.kill();
    let first = candidate(&agent, "third", &[])?;
    holder(&agent, "third").await?;
    deploy(&agent, "by-third", 1).await?;

    // Robbed: it stops at once and stands for election again, in the same process.
    let leases = agent.objects("coordination.k8s.io/v1", "Lease", &agent.system_namespace);
    let robbed = json!({ "spec": { "holderIdentity": "robber", "leaseDurationSeconds": 5 } });
    leases
        .patch(
            "fleet-agent",
            &PatchParams::default(),
            &Patch::Merge(&robbed),
        )
        .await?;
    wait_until("the loss to be noticed", PATIENCE, async || {
        match first.log() {
            log if log.contains("lost the lease") => Ok(()),
            log => Err(log),
        }
    })
    .await?;
    holder(&agent, "third").await?;
    deploy(&agent, "again", 1).await?;
    Ok(())
}

/// What a rolling update needs: the successor answers its probes while the predecessor still holds the lease, and is let in.
#[tokio::test]
async fn a_standby_serves_its_probes_and_is_ready() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    let mut first = candidate(&agent, "leading", &[])?;
    holder(&agent, "leading").await?;
    let second = candidate(&agent, "waiting", &[])?;
    let answer = async |url: String, path: &str| {
        let url = format!("{url}{path}");
        wait_until(&url, PATIENCE, async || match page(url.clone()).await? {
            (200, text) => Ok(text),
            (status, text) => Err(format!("{status} {text}")),
        })
        .await
    };
    answer(second.probes_url(), "/healthz").await?;
    answer(second.probes_url(), "/readyz").await?;
    let metrics = answer(second.metrics_url(), "/metrics").await?;
    ensure!(
        metrics.contains("leader_election_master_status{name=\"fleet-agent\"} 0"),
        "{metrics}"
    );
    ensure!(
        !second.log().contains("holding the lease"),
        "{}",
        second.log()
    );
    ensure!(first.terminate(PATIENCE)?.success());
    holder(&agent, "waiting").await?;
    deploy(&agent, "app", 1).await?;
    answer(second.probes_url(), "/readyz").await.map(drop)
}

/// Who holds the lease is ready once it is registered.
#[tokio::test]
async fn a_leader_without_a_registration_is_not_ready() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    let process = candidate(&agent, "alone", &[])?;
    holder(&agent, "alone").await?;
    let ready = format!("{}/readyz", process.probes_url());
    wait_until("the agent to say why", PATIENCE, async || {
        match page(ready.clone()).await? {
            (500, text) if text == "not registered yet" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    agent.grant().await?;
    wait_until("the agent to be ready", PATIENCE, async || {
        match page(ready.clone()).await? {
            (200, _) => Ok(()),
            other => Err(format!("{other:?}\n{}", process.log())),
        }
    })
    .await
}

/// On the host's network two agents of one node want the same ports: the later one works without, and takes them when they are free.
#[tokio::test]
async fn ports_that_are_taken_are_waited_for() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    let ports = [("FLEET_AGENT_PROBE_BIND_ADDRESS", address.as_str())];
    let process = candidate(&agent, "guest", &ports)?;
    holder(&agent, "guest").await?;
    deploy(&agent, "app", 1).await?;
    ensure!(
        process.log().contains("the port is taken"),
        "{}",
        process.log()
    );
    drop(taken);
    wait_until("the port to be served", PATIENCE, async || {
        page(format!("http://{address}/healthz")).await.map(drop)
    })
    .await
}

/// A leader that was frozen while another one took over knows that it lost before it does anything.
#[tokio::test]
async fn a_leader_that_was_frozen_leaves_the_work_to_the_other() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    let first = candidate(&agent, "frozen", &[])?;
    holder(&agent, "frozen").await?;
    deploy(&agent, "by-frozen", 1).await?;
    let downstream = &agent.bed.downstream;
    let mut second = candidate_as(&agent, &format!("agent-{}", AGENT_USERS - 1), "awake", &[])?;
    first.process()?.freeze()?;
    let mark = downstream.audit().mark();
    holder(&agent, "awake").await?;
    deploy(&agent, "by-awake", 2).await?;
    // News for a watch that was frozen as well.
    let change = json!({ "data": { "key": "edited" } });
    agent
        .objects("v1", "ConfigMap", &crate::scene::target(&agent))
        .patch(
            "by-frozen-0",
            &PatchParams::default(),
            &Patch::Merge(&change),
        )
        .await?;
    first.process()?.thaw()?;
    wait_until("the loss to be noticed", PATIENCE, async || {
        match first.log() {
            log if log.contains("lost the lease") => Ok(()),
            log => Err(log),
        }
    })
    .await?;
    let requests = downstream.audit().by_user(&agent.user, mark)?;
    let changes = requests.iter().filter(|request| {
        let is_read = ["get", "list", "watch"].contains(&request.verb.as_str());
        !is_read && request.resource != "leases"
    });
    let changes: Vec<_> = changes.collect();
    ensure!(changes.is_empty(), "{changes:#?}");
    second.kill();
    holder(&agent, "frozen").await?;
    deploy(&agent, "again", 1).await.map(drop)
}

#[tokio::test]
async fn a_start_that_fails_ends_the_process() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    for (env, message) in [
        (
            ("CATTLE_ELECTION_LEASE_DURATION", "soon"),
            "failed to parse CATTLE_ELECTION_LEASE_DURATION with duration soon",
        ),
        (("CHECKIN_INTERVAL", "soon"), "CHECKIN_INTERVAL"),
        (
            ("FLEET_AGENT_METRICS_BIND_ADDRESS", "192.0.2.1:1"),
            "failed to listen on 192.0.2.1:1",
        ),
    ] {
        let mut process = candidate(&agent, "failing", &[env])?;
        let status = process
            .wait_exit(Duration::from_secs(60))
            .with_context(|| message.to_owned())?;
        ensure!(status.code() == Some(1), "{status}");
        ensure!(process.log().contains(message), "{}", process.log());
    }
    Ok(())
}

/// A Deployment whose pods never get ready by themselves, deployed by a helm that waits for them.
fn stalling(agent: &TestAgent<'_>) -> BundleDeployment {
    let text = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: stalling}
spec:
  selector: {matchLabels: {app: stalling}}
  template:
    metadata: {labels: {app: stalling}}
    spec: {containers: [{name: app, image: "app:never"}]}
"#;
    BundleDeployment::content("stalling", vec![("all.yaml".to_owned(), text.into())])
        .release("stalling", &target(agent))
        .helm("atomic", json!(true))
        .helm("timeoutSeconds", json!(3600))
}

/// Plays the kubelet for the pods that kwok leaves alone.
async fn make_ready(agent: &TestAgent<'_>) -> Result<()> {
    let pods = agent.objects("v1", "Pod", &target(agent));
    let labelled = ListParams::default().labels("app=stalling");
    let status = json!({ "status": { "phase": "Running", "conditions": [
        { "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" },
        { "type": "ContainersReady", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" },
    ]}});
    for pod in pods.list(&labelled).await?.items {
        let name = pod.metadata.name.context("a name")?;
        pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
            .await?;
    }
    Ok(())
}

/// SIGTERM while a deploy waits: the process ends well within a kubelet's grace time, the lease is free, and what was begun goes on.
#[tokio::test]
async fn a_deploy_cut_off_by_termination_is_finished_by_the_next_process() -> Result<()> {
    /// What a kubelet waits before it kills.
    const GRACE: Duration = Duration::from_secs(30);
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    let mut first = candidate(&agent, "ended", &[])?;
    holder(&agent, "ended").await?;
    agent.apply(&stalling(&agent)).await?;
    let revisions = async || records::read(&agent.downstream, &target(&agent), "stalling").await;
    wait_until("a pod to wait for", PATIENCE, async || {
        let pods = agent.objects("v1", "Pod", &target(&agent));
        let pods = pods
            .list(&ListParams::default())
            .await
            .map_err(|e| e.to_string())?;
        (!pods.items.is_empty())
            .then_some(())
            .ok_or_else(|| first.log())
    })
    .await?;
    let status = first.terminate(GRACE)?;
    ensure!(status.code() == Some(0), "{status}\n{}", first.log());
    holder(&agent, "").await?;
    let pending: Vec<_> = revisions().await?;
    ensure!(
        pending.len() == 1 && pending[0].status == "pending-install",
        "{pending:?}"
    );

    let second = candidate(&agent, "successor", &[])?;
    holder(&agent, "successor").await?;
    wait_until("the deploy to go on", PATIENCE, async || {
        match second.log() {
            log if log.contains("deploying") => Ok(()),
            log => Err(log),
        }
    })
    .await?;
    make_ready(&agent).await?;
    let ready = agent
        .wait_ready("stalling")
        .await
        .with_context(|| second.log())?;
    ensure!(
        ready["status"]["release"] == format!("{}/stalling:1", target(&agent)).as_str(),
        "{ready:#}"
    );
    let requests = agent.downstream_requests()?;
    let deleted: Vec<_> = requests
        .iter()
        .filter(|r| r.verb.starts_with("delete"))
        .collect();
    ensure!(deleted.is_empty(), "{deleted:#?}");
    Ok(())
}

/// No directory to write to, no file that may grow, and a log that is full: the agent needs none of them.
#[tokio::test]
async fn a_full_disk_delays_nothing() -> Result<()> {
    let bed = Bed::shared().await?;
    let mut agent = TestAgent::prepare(bed).await?;
    agent.grant().await?;
    let chart = Chart::small(&unique("disk"), "1.0.0");
    bed.registry.push(&chart).await?;
    bed.repository.add(&chart)?;
    // A process that writes to a file beyond the limit is killed.
    let script = bed.group.directory().join(unique("full-disk"));
    let text = format!(
        "#!/bin/sh\nulimit -f 0\ncd /proc\nexec {} \"$@\" >/dev/full 2>&1\n",
        built()?.display()
    );
    std::fs::write(&script, text)?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
    let env = [
        ("HOME", "/dev/null/home"),
        ("TMPDIR", "/dev/null/tmp"),
        ("FLEET_AGENT_LOG", "debug"),
    ];
    let mut process = AgentProcess::start(
        bed.group.clone(),
        &format!("agent-{}", agent.id),
        AgentOptions {
            program: script,
            kubeconfig: bed.downstream.kubeconfig(&agent.user)?,
            namespace: agent.system_namespace.clone(),
            env: env
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            arguments: Vec::new(),
        },
    )?;
    agent
        .upstream_secret("plain", json!({ "basicHTTP": "true" }))
        .await?;
    let http = BundleDeployment::helm_op("http", bed.repository.url(), chart.name(), "1.0.0");
    let oci = BundleDeployment::oci_helm_op("oci", &bed.registry.reference(chart.name()), "1.0.0");
    agent.apply(&http.release("http", &target(&agent))).await?;
    agent
        .apply(
            &oci.chart_options("plain", None, false)
                .release("oci", &target(&agent)),
        )
        .await?;
    deploy(&agent, "content", 1).await?;
    for name in ["http", "oci"] {
        agent.wait_ready(name).await?;
    }
    ensure!(process.terminate(PATIENCE)?.code() == Some(0));
    Ok(())
}

/// The sockets on which a process listens, by its open files and the kernel's tables.
fn listening(process: u32) -> Result<BTreeSet<u16>> {
    let mut sockets = BTreeSet::new();
    for file in std::fs::read_dir(format!("/proc/{process}/fd"))? {
        let Ok(target) = std::fs::read_link(file?.path()) else {
            continue;
        };
        let target = target.to_string_lossy();
        let inode = target
            .strip_prefix("socket:[")
            .and_then(|rest| rest.strip_suffix(']'));
        sockets.extend(inode.map(str::to_owned));
    }
    let mut ports = BTreeSet::new();
    for table in ["tcp", "tcp6"] {
        let text = std::fs::read_to_string(format!("/proc/{process}/net/{table}"))?;
        for line in text.lines().skip(1) {
            let fields: Vec<_> = line.split_whitespace().collect();
            let [_, local, _, "0A", ..] = fields[..] else {
                continue;
            };
            if fields.get(9).is_some_and(|inode| sockets.contains(*inode)) {
                let port = local.rsplit(':').next().context("a port")?;
                ports.insert(u16::from_str_radix(port, 16)?);
            }
        }
    }
    Ok(ports)
}

/// Metrics and probes are all it listens on: no profiler, whatever the Go agent's variable says.
#[tokio::test]
async fn two_ports_are_open_and_no_other() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    let process = candidate(&agent, "ports", &[("FLEET_AGENT_PPROF_DISABLED", "false")])?;
    holder(&agent, "ports").await?;
    deploy(&agent, "app", 1).await?;
    let port =
        |url: String| -> Result<u16> { Ok(url.rsplit(':').next().context("a port")?.parse()?) };
    let wanted = BTreeSet::from([port(process.metrics_url())?, port(process.probes_url())?]);
    ensure!(listening(process.process()?.id())? == wanted);
    Ok(())
}
