//! The process: one leader at a time, a lease that is lost and won, exits that say why.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use testbed::agent::{AgentProcess, Options, built};
use testbed::bed::Bed;
use testbed::cluster::AGENT_USERS;
use testbed::fleet::site::{PATIENCE, Site};
use testbed::wait::wait_until;

use crate::scene::{deploy, haste};

/// Another process of the same agent, in leader election.
fn candidate(site: &Site<'_>, name: &str, extra: &[(&str, &str)]) -> Result<AgentProcess> {
    candidate_as(site, &site.user, name, extra)
}

fn candidate_as(
    site: &Site<'_>,
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
    let options = Options {
        program: built()?,
        kubeconfig: site.bed.downstream.kubeconfig(user)?,
        namespace: site.system_namespace.clone(),
        env,
        // The last one counts.
        arguments: vec!["--leader-elect=true".to_owned()],
    };
    AgentProcess::start(
        site.bed.group.clone(),
        &format!("agent-{}-{name}", site.id),
        options,
    )
}

async fn holder(site: &Site<'_>, wanted: &str) -> Result<()> {
    wait_until(
        &format!("{wanted} to hold the lease"),
        PATIENCE,
        async || {
            let lease = site
                .object(
                    "coordination.k8s.io/v1",
                    "Lease",
                    &site.system_namespace,
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
    let mut site = Site::prepare(Bed::shared().await?).await?;
    site.grant().await?;
    let mut first = candidate(&site, "first", &[])?;
    holder(&site, "first").await?;
    deploy(&site, "by-first", 1).await?;
    let mut second = candidate(&site, "second", &[])?;
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
    holder(&site, "second").await?;
    deploy(&site, "by-second", 1).await?;
    second.kill();
    let first = candidate(&site, "third", &[])?;
    holder(&site, "third").await?;
    deploy(&site, "by-third", 1).await?;

    // Robbed: it stops at once and stands for election again, in the same process.
    let leases = site.objects("coordination.k8s.io/v1", "Lease", &site.system_namespace);
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
    holder(&site, "third").await?;
    deploy(&site, "again", 1).await?;
    Ok(())
}

/// A leader that was frozen while another one took over knows that it lost before it does anything.
#[tokio::test]
async fn a_leader_that_was_frozen_leaves_the_work_to_the_other() -> Result<()> {
    let mut site = Site::prepare(Bed::shared().await?).await?;
    site.grant().await?;
    let first = candidate(&site, "frozen", &[])?;
    holder(&site, "frozen").await?;
    deploy(&site, "by-frozen", 1).await?;
    let downstream = &site.bed.downstream;
    let mut second = candidate_as(&site, &format!("agent-{}", AGENT_USERS - 1), "awake", &[])?;
    first.process()?.freeze()?;
    let mark = downstream.audit().mark();
    holder(&site, "awake").await?;
    deploy(&site, "by-awake", 2).await?;
    // News for a watch that was frozen as well.
    let change = json!({ "data": { "key": "edited" } });
    site.objects("v1", "ConfigMap", &crate::scene::target(&site))
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
    let requests = downstream.audit().by_user(&site.user, mark)?;
    let changes = requests.iter().filter(|request| {
        let is_read = ["get", "list", "watch"].contains(&request.verb.as_str());
        !is_read && request.resource != "leases"
    });
    let changes: Vec<_> = changes.collect();
    ensure!(changes.is_empty(), "{changes:#?}");
    second.kill();
    holder(&site, "frozen").await?;
    deploy(&site, "again", 1).await.map(drop)
}

#[tokio::test]
async fn a_start_that_fails_ends_the_process() -> Result<()> {
    let mut site = Site::prepare(Bed::shared().await?).await?;
    site.grant().await?;
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
        let mut agent = candidate(&site, "failing", &[env])?;
        let status = agent
            .wait_exit(Duration::from_secs(60))
            .with_context(|| message.to_owned())?;
        ensure!(status.code() == Some(1), "{status}");
        ensure!(agent.log().contains(message), "{}", agent.log());
    }
    Ok(())
}
