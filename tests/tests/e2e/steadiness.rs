//! No loops: what fails, comes again and again, or takes long is tried ever more rarely, ends in time and says what it waits for.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testbed::audit::Request;
use testbed::bed::{Bed, unique};
use testbed::chart::Chart;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::{apply, resource};
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::wait::wait_until;

use crate::scene::{
    HASTE, app, conditions, figure, in_haste, target, wait_answered, wait_event, with_own_bundle,
};
use crate::sizes::{DATA, tell};

/// How many full reconciles have ended.
async fn passes(agent: &TestAgent<'_>) -> Result<u64> {
    let mut sum = 0;
    for result in ["success", "error", "requeue_after"] {
        let series = format!(
            "controller_runtime_reconcile_total{{controller=\"bundledeployment\",result=\"{result}\"}}"
        );
        sum += figure(agent, &series).await.map_err(anyhow::Error::msg)?;
    }
    Ok(sum)
}

/// Wakes a bundle by a label that means nothing, and waits for the pass.
async fn wake(agent: &TestAgent<'_>, name: &str, label: &str) -> Result<()> {
    let before = passes(agent).await?;
    set_label(agent, name, "example.com/round", label).await?;
    wait_until("a pass", PATIENCE, async || match passes(agent).await {
        Ok(now) if now > before => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await
}

async fn set_label(agent: &TestAgent<'_>, name: &str, key: &str, value: &str) -> Result<()> {
    let patch = json!({ "metadata": { "labels": { key: value } } });
    let bundles = agent.bundle_deployments()?;
    bundles
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Ok(())
}

/// The revisions of a release that are kept, by name of their records.
async fn revisions(agent: &TestAgent<'_>, name: &str) -> Result<Vec<String>> {
    let secrets = agent.objects("v1", "Secret", &target(agent));
    let selector = format!("owner=helm,name={name}");
    let records = secrets
        .list(&ListParams::default().labels(&selector))
        .await?;
    Ok(records
        .items
        .into_iter()
        .filter_map(|record| record.metadata.name)
        .collect())
}

/// A chart whose second version changes a ConfigMap and brings a Service that no API server takes.
fn atomic(agent: &TestAgent<'_>, version: &str) -> BundleDeployment {
    let map = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: swings\ndata:\n  version: {version}\n"
    );
    let service = "apiVersion: v1\nkind: Service\nmetadata:\n  name: swings\nspec:\n  ports:\n  - port: 100000\n";
    let mut files = vec![("templates/map.yaml", map.as_str())];
    if version == "bad" {
        files.push(("templates/service.yaml", service));
    }
    BundleDeployment::chart("swings", &files)
        .helm("atomic", json!(true))
        .release("swings", &target(agent))
}

/// An `atomic` upgrade that fails is undone once, and then waits: for passes without end, over a restart, and until somebody asks.
#[tokio::test]
async fn a_failing_atomic_upgrade_does_not_swing_to_and_fro() -> Result<()> {
    let mut agent = in_haste().await?;
    agent.apply(&atomic(&agent, "good")).await?;
    agent.wait_ready("swings").await?;
    agent.apply(&atomic(&agent, "bad")).await?;
    let failed = agent
        .wait_for("swings", "to be undone", |bundle| {
            conditions(bundle).contains("rolled back due to rollback-on-failure")
        })
        .await?;
    let reported = conditions(&failed);
    ensure!(
        reported.contains("tried again at 20") && reported.contains("fleet.cattle.io/try-again"),
        "{reported}"
    );
    let after_one = revisions(&agent, "swings").await?;
    for round in 0..6 {
        wake(&agent, "swings", &round.to_string()).await?;
    }
    ensure!(
        revisions(&agent, "swings").await? == after_one,
        "{}",
        agent.agent_log_tail(30)
    );
    agent.process()?.restart()?;
    wait_until("the agent to be back", PATIENCE, async || {
        match passes(&agent).await {
            Ok(some) if some > 0 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    wake(&agent, "swings", "restarted").await?;
    ensure!(
        revisions(&agent, "swings").await? == after_one,
        "{}",
        agent.agent_log_tail(30)
    );
    // Whoever knows better asks for another try, or gives another spec.
    set_label(&agent, "swings", "fleet.cattle.io/try-again", "1").await?;
    wait_until("another try", PATIENCE, async || {
        let now = revisions(&agent, "swings")
            .await
            .map_err(|e| e.to_string())?;
        (now != after_one).then_some(()).ok_or(format!("{now:?}"))
    })
    .await
    .with_context(|| agent.agent_log_tail(30))?;
    agent.apply(&atomic(&agent, "better")).await?;
    let ready = agent.wait_ready("swings").await?;
    ensure!(!conditions(&ready).contains("tried again"), "{ready}");
    Ok(())
}

/// What values come from is part of what was tried: merely touched it is the same, with other values another try begins at once.
#[tokio::test]
async fn values_that_were_merely_touched_start_no_other_attempt() -> Result<()> {
    let agent = in_haste().await?;
    let target = target(&agent);
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": target } });
    apply(&agent.downstream, namespace).await?;
    let values = |port: u32| format!("port: {port}\n");
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "ports", "namespace": target },
        "data": { "values.yaml": values(80) },
    });
    apply(&agent.downstream, map).await?;
    let service = "apiVersion: v1\nkind: Service\nmetadata:\n  name: swings\nspec:\n  ports:\n  - port: {{ .Values.port }}\n";
    let bundle = BundleDeployment::chart("swings", &[("templates/service.yaml", service)])
        .helm("atomic", json!(true))
        .helm(
            "valuesFrom",
            json!([{ "configMapKeyRef": { "name": "ports" } }]),
        )
        .release("swings", &target);
    agent.apply(&bundle).await?;
    agent.wait_ready("swings").await?;
    let maps = agent.objects("v1", "ConfigMap", &target);
    let change = async |patch: Value| -> Result<()> {
        let parameters = PatchParams::default();
        maps.patch("ports", &parameters, &Patch::Merge(&patch))
            .await?;
        Ok(())
    };
    change(json!({ "data": { "values.yaml": values(100_000) } })).await?;
    agent
        .wait_for("swings", "to be undone", |bundle| {
            conditions(bundle).contains("rolled back due to rollback-on-failure")
        })
        .await?;
    let after_one = revisions(&agent, "swings").await?;
    for round in 0..4 {
        let before = passes(&agent).await?;
        change(json!({ "metadata": { "annotations": { "round": round.to_string() } } })).await?;
        wait_until("a pass", PATIENCE, async || match passes(&agent).await {
            Ok(now) if now > before => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await?;
    }
    let touched = revisions(&agent, "swings").await?;
    ensure!(touched == after_one, "{touched:?}, {after_one:?}");
    change(json!({ "data": { "values.yaml": values(81) } })).await?;
    agent
        .wait_for("swings", "to be deployed with other values", |bundle| {
            bundle["status"]["ready"] == json!(true) && !conditions(bundle).contains("tried again")
        })
        .await?;
    let services = agent.objects("v1", "Service", &target);
    let live = services.get("swings").await?;
    ensure!(
        live.data["spec"]["ports"][0]["port"] == json!(81),
        "{live:?}"
    );
    Ok(())
}

/// Who takes a release's record away whenever there is one is answered, ever more rarely, and told of it.
#[tokio::test]
async fn a_release_that_others_keep_changing_is_answered_ever_more_rarely() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    // The pause outlasts the test.
    let timing = format!("{HASTE},overwrite-retry=10m");
    agent.start([("FLEET_AGENT_TIMING".to_owned(), timing)].into())?;
    agent.apply(&app(&agent, "taken")).await?;
    agent.wait_ready("taken").await?;
    let secrets = agent.objects("v1", "Secret", &target(&agent));
    let status = async || -> Result<String> {
        let bundle = agent.bundle_deployments()?.get("taken").await?;
        Ok(conditions(&serde_json::to_value(bundle)?))
    };
    let is_deployed = async || -> Result<bool> {
        let deployed = ListParams::default().labels("owner=helm,name=taken,status=deployed");
        Ok(!secrets.list(&deployed).await?.items.is_empty())
    };
    for round in 0..8 {
        for record in revisions(&agent, "taken").await? {
            secrets.delete(&record, &DeleteParams::default()).await?;
        }
        wake(&agent, "taken", &round.to_string()).await?;
        let is_answered = wait_until("an answer", PATIENCE, async || {
            let reported = status().await.map_err(|e| e.to_string())?;
            if reported.contains("changed by others again and again; tried again at 20") {
                return Ok(false);
            }
            match is_deployed().await.map_err(|e| e.to_string())? {
                true => Ok(true),
                false => Err(reported),
            }
        })
        .await
        .with_context(|| agent.agent_log_tail(30))?;
        if !is_answered {
            ensure!(round > 0, "the first one is answered at once");
            ensure!(revisions(&agent, "taken").await?.is_empty());
            // Whoever knows better asks for it.
            set_label(&agent, "taken", "fleet.cattle.io/try-again", "1").await?;
            agent
                .wait_for("taken", "to be answered", |bundle| {
                    !conditions(bundle).contains("tried again")
                })
                .await?;
            return wait_until("a record", PATIENCE, async || {
                let is_there = is_deployed().await.map_err(|e| e.to_string())?;
                is_there.then_some(()).ok_or("none".to_owned())
            })
            .await;
        }
    }
    anyhow::bail!("answered each time: {}", status().await?)
}

/// A hook that does not end well may be a migration: whatever wakes its bundle, it does not run again before its time.
#[tokio::test]
async fn a_hook_that_fails_runs_ever_more_rarely() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    // The first pause, which is doubled after each further failure, outlasts the test.
    let timing = format!("{HASTE},overwrite-retry=10m");
    agent.start([("FLEET_AGENT_TIMING".to_owned(), timing)].into())?;
    let hook = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: migrates\n  annotations:\n    helm.sh/hook: pre-install,pre-upgrade\nspec:\n  containers:\n  - name: c\n    image: none\n  schedulerName: nobody\n  restartPolicy: Never\n";
    let bundle = BundleDeployment::chart("migrated", &[("templates/hook.yaml", hook)])
        .helm("timeoutSeconds", json!(1))
        .release("migrated", &target(&agent));
    agent.apply(&bundle).await?;
    agent
        .wait_for("migrated", "to wait after its hook", |bundle| {
            conditions(bundle).contains("tried again at 20")
        })
        .await?;
    let pods = agent.objects("v1", "Pod", &target(&agent));
    let ran = async || -> Result<_> {
        let metadata = pods.get("migrates").await?.metadata;
        Ok((metadata.uid, metadata.deletion_timestamp))
    };
    let once = ran().await?;
    for round in 0..4 {
        wake(&agent, "migrated", &round.to_string()).await?;
    }
    ensure!(ran().await? == once, "{}", agent.agent_log_tail(30));
    Ok(())
}

/// A tool that restores the bootstrap Secret registers nobody again: neither the session nor what it does is cut off.
#[tokio::test]
async fn a_bootstrap_secret_that_is_restored_again_and_again_is_left() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    let plane = agent.plane;
    let data = agent
        .controller
        .bootstrap("import-token", &plane.url(), plane.authority())
        .await?;
    agent.secret("fleet-agent-bootstrap", data.clone()).await?;
    agent.start([("FLEET_AGENT_TIMING".to_owned(), HASTE.to_owned())].into())?;
    let secrets = agent.objects("v1", "Secret", &agent.system_namespace);
    let bootstrap = async || secrets.get_opt("fleet-agent-bootstrap").await;
    wait_until(
        "the bootstrap secret to be used",
        PATIENCE,
        async || match bootstrap().await.map_err(|e| e.to_string())? {
            None => Ok(()),
            Some(_) => Err("still there".to_owned()),
        },
    )
    .await
    .with_context(|| agent.agent_log_tail(30))?;
    let registrations: Api<DynamicObject> = Api::namespaced_with(
        agent.upstream.clone(),
        &agent.registration_namespace,
        &resource("ClusterRegistration"),
    );
    let known = async || -> Result<Vec<Option<String>>> {
        let all = registrations.list(&ListParams::default()).await?.items;
        Ok(all.into_iter().map(|one| one.metadata.name).collect())
    };
    let first = known().await?;
    let credential = secrets.get("fleet-agent").await?.metadata.resource_version;
    for round in 1..=3_usize {
        if bootstrap().await?.is_some() {
            secrets
                .delete("fleet-agent-bootstrap", &DeleteParams::default())
                .await?;
        }
        agent.secret("fleet-agent-bootstrap", data.clone()).await?;
        wait_until("the restored secret to be seen", PATIENCE, async || {
            let log = agent.process.as_ref().map(|process| process.log());
            let seen = log
                .unwrap_or_default()
                .matches("the bootstrap secret was made use of before")
                .count();
            (seen >= round)
                .then_some(())
                .ok_or(format!("seen {seen} times"))
        })
        .await
        .with_context(|| agent.agent_log_tail(30))?;
    }
    ensure!(known().await? == first, "registered again");
    let now = secrets.get("fleet-agent").await?.metadata.resource_version;
    ensure!(now == credential, "the credential was written again");
    Ok(())
}

/// Upstream answers a heartbeat with 403: it is there, so nothing is listed anew.
#[tokio::test]
async fn a_refused_heartbeat_starts_no_watch_anew() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": { "name": "direct", "namespace": agent.registration_namespace },
        "rules": [],
    });
    testbed::fleet::controller::apply(&agent.upstream, role).await?;
    agent.start(
        [
            ("CHECKIN_INTERVAL".to_owned(), "1s".to_owned()),
            (
                "FLEET_AGENT_TIMING".to_owned(),
                format!("{HASTE},first-checkin=1s"),
            ),
        ]
        .into(),
    )?;
    agent.apply(&app(&agent, "one")).await?;
    agent.wait_ready("one").await?;
    let is_watch =
        |request: &&Request| request.resource == "bundledeployments" && request.verb == "watch";
    let before = agent.upstream_requests()?.iter().filter(is_watch).count();
    let refused = |request: &Request| request.resource == "clusters/status" && request.code == 403;
    let begun = agent
        .upstream_requests()?
        .into_iter()
        .filter(|one| refused(one))
        .count();
    wait_until("heartbeats to be refused", PATIENCE, async || {
        let requests = agent.upstream_requests().map_err(|e| e.to_string())?;
        let count = requests.into_iter().filter(|one| refused(one)).count() - begun;
        (count >= 15).then_some(()).ok_or(format!("{count} so far"))
    })
    .await
    .with_context(|| agent.agent_log_tail(30))?;
    let after = agent.upstream_requests()?.iter().filter(is_watch).count();
    ensure!(after == before, "{} watches began anew", after - before);
    Ok(())
}

/// The controller copies credentials a moment after the BundleDeployment: that is waited for, and is no failure of the source.
#[tokio::test]
async fn credentials_that_are_still_to_come_are_waited_for() -> Result<()> {
    let bed = Bed::shared().await?;
    let agent = TestAgent::registered(bed).await?;
    let chart = Chart::small(&unique("secret"), "1.0.0");
    bed.private_repository.add(&chart)?;
    let name = format!("{}-secret", agent.id);
    let bundle =
        BundleDeployment::helm_op(&name, bed.private_repository.url(), chart.name(), "1.0.0")
            .chart_options("access", Some(bed.authority.pem()), false)
            .release(&name, &target(&agent));
    agent.apply(&bundle).await?;
    let text = wait_event(&agent, "WaitingForUpstream", &name).await?;
    ensure!(text.contains("secrets \"access\" not found"), "{text}");
    let (username, password) = testbed::bed::CREDENTIALS;
    agent
        .upstream_secret(
            "access",
            json!({ "username": username, "password": password }),
        )
        .await?;
    agent.wait_ready(&name).await.map(drop)
}

fn rendering(agent: &TestAgent<'_>, name: &str, template: &str) -> BundleDeployment {
    BundleDeployment::chart(name, &[("templates/t.yaml", template)]).release(name, &target(agent))
}

/// Looks for an object that is not there, for hours.
const ENDLESS: &str = "{{ range $i := until 1000000 }}{{ lookup \"v1\" \"ConfigMap\" \"default\" (printf \"no-%d\" $i) | toJson | trunc 0 }}{{ end }}\n";
const SHORT: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\n";

/// A corrected spec does not wait for the render of the one before.
#[tokio::test]
async fn a_new_spec_ends_the_render_of_the_old_one() -> Result<()> {
    let agent = TestAgent::registered(Bed::shared().await?).await?;
    agent.apply(&rendering(&agent, "slow", ENDLESS)).await?;
    let looks_up =
        |request: &Request| request.resource == "configmaps" && request.name.starts_with("no-");
    wait_answered("a lookup", || agent.downstream_requests(), looks_up).await?;
    agent.apply(&rendering(&agent, "slow", SHORT)).await?;
    agent.wait_ready("slow").await?;
    // Nor does it go on beside it.
    let count = || -> Result<usize> {
        Ok(agent
            .downstream_requests()?
            .into_iter()
            .filter(looks_up)
            .count())
    };
    let before = count()?;
    agent.apply(&app(&agent, "other")).await?;
    agent.wait_ready("other").await?;
    ensure!(count()? == before, "the old render goes on");
    Ok(())
}

/// A render has its time; its end is an error that says so.
#[tokio::test]
async fn a_render_ends_in_time() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    agent.start(
        [(
            "FLEET_AGENT_TIMING".to_owned(),
            "render-limit=2s,backoff-max=2s".to_owned(),
        )]
        .into(),
    )?;
    agent.apply(&rendering(&agent, "slow", ENDLESS)).await?;
    agent
        .wait_deploy_error("slow", |message| message.contains("takes longer than 2 s"))
        .await?;
    agent.apply(&rendering(&agent, "slow", SHORT)).await?;
    agent.wait_ready("slow").await.map(drop)
}

/// What an API server quotes of a secret when a correction or a removal fails stays with the agent.
#[tokio::test]
async fn corrections_and_removals_that_fail_quote_no_secret() -> Result<()> {
    const CANARY: &str = "xyzzy-canary-selector";
    let agent = with_own_bundle().await?;
    let template = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {{ .Release.Name }}\nspec:\n  replicas: 0\n  selector:\n    matchLabels:\n      app: {{ .Values.password }}\n  template:\n    metadata:\n      labels:\n        app: {{ .Values.password }}\n    spec:\n      containers:\n      - name: web\n        image: registry.example/web:1\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\n  annotations:\n    helm.sh/hook: pre-delete\n  labels:\n    app: \"{{ .Values.password }}!\"\n";
    let bundle = rendering(&agent, "quotes", template)
        .values(json!({ "password": CANARY }))
        .correct_drift();
    agent.apply(&bundle).await?;
    agent.wait_ready("quotes").await?;
    // The same Deployment with another selector: nothing that a correction could change.
    let deployments = agent.objects("apps/v1", "Deployment", &target(&agent));
    let mut deployment = deployments.get("quotes").await?;
    deployments
        .delete("quotes", &DeleteParams::background())
        .await?;
    let metadata = &mut deployment.metadata;
    metadata.resource_version = None;
    metadata.uid = None;
    metadata.managed_fields = None;
    deployment.data["spec"]["selector"]["matchLabels"]["app"] = json!("other");
    deployment.data["spec"]["template"]["metadata"]["labels"]["app"] = json!("other");
    wait_until("the other Deployment", PATIENCE, async || {
        deployments
            .delete("quotes", &DeleteParams::background())
            .await
            .ok();
        let made = deployments
            .create(&PostParams::default(), &deployment)
            .await;
        made.map(drop).map_err(|e| e.to_string())
    })
    .await?;
    let failed = agent
        .wait_for("quotes", "to fail to be corrected", |bundle| {
            conditions(bundle).contains("immutable")
        })
        .await?;
    ensure!(
        !conditions(&failed).contains(CANARY),
        "{}",
        conditions(&failed)
    );
    let event = wait_event(&agent, "CorrectionFailed", "quotes").await?;
    ensure!(
        event.contains("immutable") && !event.contains(CANARY),
        "{event}"
    );
    agent.delete("quotes").await?;
    let event = wait_event(&agent, "RemovalFailed", "quotes").await?;
    ensure!(!event.contains(CANARY), "{event}");
    let log = agent.process.as_ref().context("the agent")?.log();
    ensure!(!log.contains(CANARY), "{}", lines_with(&log, CANARY));
    Ok(())
}

fn lines_with(text: &str, part: &str) -> String {
    let lines = text.lines().filter(|line| line.contains(part));
    lines.take(3).collect::<Vec<_>>().join("\n")
}

/// Charts that unpack to megabytes each, or are small and render to as much, all at once: they take turns.
#[tokio::test]
async fn many_large_charts_at_once_stay_within_bounds() -> Result<()> {
    const CHARTS: usize = 30;
    const MEGABYTE: usize = 1 << 20;
    let bed = Bed::shared().await?;
    let mut agent = TestAgent::registered(bed).await?;
    let prefix = unique("large");
    let large = |n: usize| {
        let mut chart = Chart::new(&format!("{prefix}-{n}"), "1.0.0");
        if n.is_multiple_of(2) {
            let data = format!("{n} 0123456789abcdef ").repeat(3 * MEGABYTE / 20);
            chart = chart.file("files/large.txt", data);
        }
        for m in 0..8 {
            let map = format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{{{ .Release.Name }}}}-{m}\ndata:\n  a: {{{{ repeat 20000 \"0123456789\" }}}}\n"
            );
            chart = chart.template(&format!("{m}.yaml"), &map);
        }
        chart
    };
    let mut names = Vec::new();
    for n in 0..CHARTS {
        let chart = large(n);
        bed.repository.add(&chart)?;
        names.push(chart.name().to_owned());
    }
    let bundles: Vec<_> = names
        .iter()
        .map(|name| {
            BundleDeployment::helm_op(name, bed.repository.url(), name, "1.0.0")
                .release(name, &target(&agent))
        })
        .collect();
    futures_util::future::try_join_all(bundles.iter().map(|bundle| agent.apply(bundle))).await?;
    let all = agent.bundle_deployments()?;
    wait_until("all to be Ready", Duration::from_secs(600), async || {
        let all = all.list(&ListParams::default()).await;
        let all = all.map_err(|failed| failed.to_string())?.items;
        let is_ready = |one: &&DynamicObject| one.data["status"]["ready"] == json!(true);
        match all.iter().filter(is_ready).count() {
            CHARTS => Ok(()),
            count => Err(format!("{count} of {CHARTS}")),
        }
    })
    .await?;
    let memory = agent.process()?.memory_kib()?;
    tell(&format!("{CHARTS} large charts: {memory:?} KiB"));
    ensure!(memory.peak_of_data() < DATA, "{memory:?}");
    agent.process()?.restart()?;
    agent.apply(&app(&agent, "one-more")).await?;
    agent.wait_ready("one-more").await?;
    wait_until(
        "all to be looked at again",
        Duration::from_secs(300),
        async || match passes(&agent).await {
            Ok(count) if count > CHARTS as u64 => Ok(()),
            other => Err(format!("{other:?}")),
        },
    )
    .await?;
    let memory = agent.process()?.memory_kib()?;
    tell(&format!(
        "{CHARTS} large charts after a restart: {memory:?} KiB"
    ));
    ensure!(memory.peak_of_data() < DATA, "after a restart: {memory:?}");
    Ok(())
}
