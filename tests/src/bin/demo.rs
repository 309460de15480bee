//! `make demo`: two clusters, a registry and a repository come up, and the agent does its job in front of you.
//!
//! Nothing is prepared: the clusters are real API servers on this machine, and what is printed is read back from them.
//! `KEEP=1` leaves everything running until Ctrl-C and says where the kubeconfigs are.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use testbed::agent;
use testbed::audit::{Request, tally};
use testbed::bed::Bed;
use testbed::chart::Chart;
use testbed::cluster::ADMIN;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::Granted;
use testbed::fleet::test_agent::{PATIENCE, TestAgent, condition};
use testbed::helm::Helm;
use testbed::story::Story;
use testbed::tools::Tool;
use testbed::wait::wait_until;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut story = Story::new();
    let program = agent::built()?;

    story.step("Start two clusters, a registry and a chart repository");
    let bed = Bed::start(false).await?;
    story.say(&format!(
        "upstream    {}   Fleet's side: etcd and an API server",
        bed.upstream.url()
    ));
    story.say(&format!(
        "downstream  {}   etcd, API server, controllers, scheduler, one pretended node",
        bed.downstream.url()
    ));
    story.say(&format!("registry    {}", bed.registry.host()));
    story.say(&format!("repository  {}", bed.repository.url()));
    story.done();

    story.step("Publish two charts: guestbook in the repository, notes in the registry");
    bed.repository.add(&Chart::small("guestbook", "1.0.0"))?;
    bed.repository.add(&Chart::small("guestbook", "1.1.0"))?;
    bed.registry.push(&Chart::small("notes", "2.0.0")).await?;
    story.done();

    story.step("Register the agent with nothing but a bootstrap secret");
    let namespaces = ("fleet-default".to_owned(), "cattle-fleet-system".to_owned());
    let mut agent =
        TestAgent::prepare_named(&bed, program, "demo-cluster".to_owned(), namespaces).await?;
    agent.bootstrap(|_| ()).await?;
    agent.start(BTreeMap::new())?;
    let granted = registered(&agent).await?;
    story.say(&format!(
        "cluster {}/{}",
        granted.cluster_namespace, granted.cluster_name
    ));
    story.say(&format!(
        "its BundleDeployments are in {}",
        granted.deployment_namespace
    ));
    agent.granted = Some(granted);
    let idle = agent.process()?.memory_kib()?;
    story.done();

    story.step("Deploy both charts through BundleDeployments");
    agent
        .upstream_secret("registry-access", json!({ "basicHTTP": "true" }))
        .await?;
    let guestbook = |version: &str| {
        BundleDeployment::helm_op("guestbook", bed.repository.url(), "guestbook", version)
            .release("guestbook", "web")
            .values(json!({ "greeting": "hello from Fleet", "replicas": 2 }))
    };
    let notes = BundleDeployment::oci_helm_op("notes", &bed.registry.reference("notes"), "2.0.0")
        .chart_options("registry-access", None, false)
        .release("notes", "web");
    agent.apply(&guestbook(">=1.0.0 <1.1.0")).await?;
    agent.apply(&notes).await?;
    follow(&mut story, &agent, &["guestbook", "notes"]).await?;
    story.done();

    story.step("Look at it with helm");
    let kubeconfig = bed.downstream.kubeconfig(ADMIN)?;
    let helm = Helm::of(Tool::Helm3, &kubeconfig, bed.group.directory())?;
    for line in helm.run(&["list", "--all-namespaces"])?.lines() {
        story.say(line.trim_end());
    }
    story.done();

    story.step("Upgrade guestbook to 1.1.0");
    agent.apply(&guestbook("1.1.0")).await?;
    follow(&mut story, &agent, &["guestbook"]).await?;
    story.done();

    story.step("Edit an object by hand: somebody scales guestbook to 5");
    let edit = json!({ "spec": { "replicas": 5 } });
    let params = PatchParams {
        field_manager: Some("kubectl-edit".to_owned()),
        ..PatchParams::default()
    };
    agent
        .objects("apps/v1", "Deployment", "web")
        .patch("guestbook", &params, &Patch::Merge(&edit))
        .await?;
    let drifted = agent
        .wait_for("guestbook", "to show the drift", |b| {
            b["status"]["modifiedStatus"].is_array()
        })
        .await?;
    for entry in drifted["status"]["modifiedStatus"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        story.say(&format!(
            "modifiedStatus: {} {} would be put right by {}",
            text("kind"),
            text("name"),
            text("patch")
        ));
    }
    story.say(&format!("Ready: {}", message(&drifted, "Ready")));
    story.done();

    story.step("Switch drift correction on, upstream");
    let switch = json!({ "spec": { "correctDrift": { "enabled": true } } });
    agent
        .bundle_deployments()?
        .patch("guestbook", &PatchParams::default(), &Patch::Merge(&switch))
        .await?;
    agent.wait_ready("guestbook").await?;
    let deployment = agent
        .object("apps/v1", "Deployment", "web", "guestbook")
        .await?
        .context("guestbook is deployed")?;
    story.say(&format!(
        "replicas: {}",
        deployment.data["spec"]["replicas"]
    ));
    story.done();

    story.step("Delete the BundleDeployment notes");
    agent.delete("notes").await?;
    removed(&agent, "notes").await?;
    story.say("its release and its objects are gone");
    story.done();

    summary(&mut story, &mut agent, idle)?;
    story.keeps(&[], &[&bed.upstream, &bed.downstream]).await
}

/// Waits for the agent's credential; gives what it says.
async fn registered(agent: &TestAgent<'_>) -> Result<Granted> {
    use base64::Engine;
    let waited = wait_until("the agent to register", PATIENCE, async || {
        let secret = agent
            .object("v1", "Secret", &agent.system_namespace, "fleet-agent")
            .await;
        let secret = secret
            .map_err(|e| e.to_string())?
            .ok_or("no credential yet")?;
        let text = |key: &str| -> Result<String, String> {
            let encoded = secret.data["data"][key]
                .as_str()
                .ok_or_else(|| format!("no {key}"))?;
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(encoded)
                .map_err(|e| e.to_string())?;
            String::from_utf8(bytes).map_err(|e| e.to_string())
        };
        let deployment_namespace = text("deploymentNamespace")?;
        let request = agent
            .bundle_account(&deployment_namespace)
            .await
            .map_err(|e| e.to_string())?;
        Ok(Granted {
            cluster_namespace: text("clusterNamespace")?,
            cluster_name: text("clusterName")?,
            user: format!("system:serviceaccount:{deployment_namespace}:{request}"),
            token: String::new(),
            deployment_namespace,
        })
    })
    .await;
    waited.with_context(|| format!("the agent's log ends with:\n{}", agent.agent_log_tail(30)))
}

/// Prints each change of state until all of them are Ready.
async fn follow(story: &mut Story, agent: &TestAgent<'_>, names: &[&str]) -> Result<()> {
    let api = agent.bundle_deployments()?;
    let mut shown: BTreeMap<&str, String> = BTreeMap::new();
    let waited = wait_until("the bundles to be Ready", PATIENCE, async || {
        let mut ready = 0;
        for name in names {
            let bundle = api.get(name).await.map_err(|e| e.to_string())?;
            let bundle = serde_json::to_value(&bundle).map_err(|e| e.to_string())?;
            let state = state(&bundle);
            if shown.get(name) != Some(&state) {
                let after = story.in_step().as_secs_f64();
                story.say(&format!("{after:5.1} s  {name:<10} {state}"));
                shown.insert(name, state.clone());
            }
            ready += usize::from(state.starts_with("Ready"));
        }
        if ready == names.len() {
            Ok(())
        } else {
            Err(format!("{shown:?}"))
        }
    })
    .await;
    waited.with_context(|| format!("the agent's log ends with:\n{}", agent.agent_log_tail(30)))
}

/// The state as Fleet displays it, with what stands in its way.
fn state(bundle: &Value) -> String {
    let (spec, status) = (&bundle["spec"], &bundle["status"]);
    if status["appliedDeploymentID"] != spec["deploymentID"] {
        return match condition(bundle, "Deployed") {
            Some(deployed) if deployed["status"] == "False" => {
                format!("ErrApplied: {}", message(bundle, "Deployed"))
            }
            _ => "WaitApplied".to_owned(),
        };
    }
    if status["ready"] != json!(true) {
        return format!("NotReady: {}", message(bundle, "Ready"));
    }
    if status["nonModified"] != json!(true) {
        return format!("Modified: {}", message(bundle, "Ready"));
    }
    format!(
        "Ready, release {}",
        status["release"].as_str().unwrap_or_default()
    )
}

fn message(bundle: &Value, kind: &str) -> String {
    condition(bundle, kind)
        .and_then(|c| c["message"].as_str())
        .unwrap_or_default()
        .to_owned()
}

async fn removed(agent: &TestAgent<'_>, release: &str) -> Result<()> {
    wait_until("the release to be removed", PATIENCE, async || {
        for (api_version, kind) in [
            ("v1", "ConfigMap"),
            ("v1", "Service"),
            ("apps/v1", "Deployment"),
        ] {
            if agent
                .object(api_version, kind, "web", release)
                .await
                .map_err(|e| e.to_string())?
                .is_some()
            {
                return Err(format!("{kind} {release} is still there"));
            }
        }
        Ok(())
    })
    .await
}

fn summary(
    story: &mut Story,
    agent: &mut TestAgent<'_>,
    idle: testbed::process::Memory,
) -> Result<()> {
    let took = story.elapsed();
    let (upstream, downstream) = (agent.upstream_requests()?, agent.downstream_requests()?);
    let memory = agent.process()?.memory_kib()?;
    story.step("Summary");
    story.say(&format!(
        "time        {:.0} s in all",
        Duration::as_secs_f64(&took)
    ));
    let mib = |kib: u64| kib as f64 / 1024.0;
    story.say(&format!(
        "memory      {:.1} MiB registered, {:.1} MiB now, {:.1} MiB at most",
        mib(idle.now),
        mib(memory.now),
        mib(memory.peak)
    ));
    for (side, requests) in [("upstream", &upstream), ("downstream", &downstream)] {
        story.say(&format!(
            "requests    {:>4} {side}: {}",
            requests.len(),
            most_frequent(requests)
        ));
    }
    Ok(())
}

fn most_frequent(requests: &[Request]) -> String {
    let counts = tally(requests);
    counts
        .iter()
        .take(5)
        .map(|(what, count)| format!("{count} {what}"))
        .collect::<Vec<_>>()
        .join(", ")
}
