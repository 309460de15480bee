//! What two want and one has: objects that moved to another bundle, labels of a namespace that bundles share, somebody who writes back what
//! is corrected, and releases that helm wrote last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use http::Request;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testbed::audit;
use testbed::bed::Bed;
use testbed::cluster::ADMIN;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::test_agent::{PATIENCE, TestAgent, condition};
use testbed::helm::Helm;
use testbed::proxy;
use testbed::wait::wait_until;
use tokio::sync::{Notify, Semaphore};

use crate::scene::{app, deploy, gone, haste, hasty, in_haste, target, with_own_bundle};

/// A bundle of ConfigMaps that say by whom they are.
fn maps(agent: &TestAgent<'_>, name: &str, maps: &[&str], extra: &str) -> BundleDeployment {
    let map = |map: &&str| {
        format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {map}\n{extra}data:\n  by: {name}\n"
        )
    };
    let text: String = maps.iter().map(map).collect();
    BundleDeployment::content(name, vec![("maps.yaml".to_owned(), text.into())])
        .option("defaultNamespace", json!(target(agent)))
}

async fn by(agent: &TestAgent<'_>, name: &str) -> Result<Option<String>> {
    let map = agent
        .object("v1", "ConfigMap", &target(agent), name)
        .await?;
    Ok(map.and_then(|map| map.data["data"]["by"].as_str().map(str::to_owned)))
}

async fn wait_by(agent: &TestAgent<'_>, name: &str, expected: &str) -> Result<()> {
    wait_until(
        &format!("{name} to be by {expected}"),
        PATIENCE,
        async || match by(agent, name).await.map_err(|e| e.to_string())? {
            Some(found) if found == expected => Ok(()),
            other => Err(format!("{other:?}")),
        },
    )
    .await
    .with_context(|| agent.agent_log_tail(40))
}

async fn patch(agent: &TestAgent<'_>, name: &str, change: Value) -> Result<()> {
    let parameters = PatchParams {
        field_manager: Some("kubectl-edit".to_owned()),
        ..PatchParams::default()
    };
    let maps = agent.objects("v1", "ConfigMap", &target(agent));
    maps.patch(name, &parameters, &Patch::Merge(&change))
        .await?;
    Ok(())
}

fn reported(bundle: &Value) -> &str {
    condition(bundle, "OwnershipConflicts")
        .and_then(|condition| condition["message"].as_str())
        .unwrap_or_default()
}

async fn wait_reported(agent: &TestAgent<'_>, name: &str, expected: &[&str]) -> Result<String> {
    let what = format!("to tell {expected:?}");
    let is_reported = |bundle: &Value| {
        let reported = reported(bundle);
        expected.is_empty() == reported.is_empty()
            && expected.iter().all(|text| reported.contains(text))
    };
    let bundle = agent.wait_for(name, &what, is_reported).await?;
    Ok(reported(&bundle).to_owned())
}

pub(crate) async fn nudge(agent: &TestAgent<'_>, name: &str, round: usize) -> Result<()> {
    let change =
        json!({ "metadata": { "annotations": { "example.com/round": round.to_string() } } });
    let bundles = agent.bundle_deployments()?;
    bundles
        .patch(name, &PatchParams::default(), &Patch::Merge(&change))
        .await?;
    Ok(())
}

/// What somebody deleted and a helm release has made anew is that release's: a new version of the bundle that had it is refused.
#[tokio::test]
async fn an_object_recreated_by_a_helm_release_stays_with_it() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    hasty(&mut agent).await?;
    let former = maps(&agent, "former", &["moved", "own"], "");
    agent.apply(&former).await?;
    agent.wait_ready("former").await?;
    let maps_there = agent.objects("v1", "ConfigMap", &target(&agent));
    maps_there.delete("moved", &DeleteParams::default()).await?;
    let anew = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": { "by": "helm" },
        "metadata": {
            "name": "moved",
            "labels": { "app.kubernetes.io/managed-by": "Helm" },
            "annotations": {
                "meta.helm.sh/release-name": "web",
                "meta.helm.sh/release-namespace": target(&agent),
            },
        },
    });
    let parameters = PostParams {
        field_manager: Some("helm".to_owned()),
        ..PostParams::default()
    };
    maps_there
        .create(&parameters, &serde_json::from_value(anew)?)
        .await?;
    let version = "  labels: {version: two}\n";
    let next = maps(&agent, "former", &["moved", "own"], version);
    agent.apply(&next).await?;
    agent
        .wait_for("former", "to be refused", |bundle| {
            let installed = condition(bundle, "Installed");
            let message = installed.and_then(|installed| installed["message"].as_str());
            message.is_some_and(|message| message.contains("current value is \"web\""))
        })
        .await?;
    ensure!(by(&agent, "moved").await?.as_deref() == Some("helm"));
    agent
        .apply(&next.helm("takeOwnership", json!(true)))
        .await?;
    agent.wait_ready("former").await?;
    wait_by(&agent, "moved", "former").await
}

/// The ordinary way to move an object: its new bundle takes it, then the old one no longer lists it.
#[tokio::test]
async fn an_object_that_moved_to_another_bundle_stays_with_it() -> Result<()> {
    let mut agent = in_haste().await?;
    let former = maps(&agent, "former", &["moved", "own"], "").correct_drift();
    agent.apply(&former).await?;
    agent.wait_ready("former").await?;
    let taker = maps(&agent, "taker", &["moved"], "").helm("takeOwnership", json!(true));
    agent.apply(&taker).await?;
    agent.wait_ready("taker").await?;
    let sentence = format!(
        "ConfigMap {}/moved: bundle taker has it since 20",
        target(&agent)
    );
    let expected = [sentence.as_str(), "and bundle former wants it too"];
    let one = wait_reported(&agent, "former", &expected).await?;
    let other = wait_reported(&agent, "taker", &expected).await?;
    ensure!(one == other, "{one}\n{other}");
    // Other objects are corrected; this one is not, whatever wakes the bundle.
    for round in 0..2 {
        patch(&agent, "own", json!({ "data": { "by": "hand" } })).await?;
        nudge(&agent, "former", round).await?;
        wait_by(&agent, "own", "former").await?;
        ensure!(by(&agent, "moved").await?.as_deref() == Some("taker"));
    }
    let maps_of_all = agent.objects("v1", "ConfigMap", &target(&agent));
    maps_of_all.delete("own", &DeleteParams::default()).await?;
    wait_by(&agent, "own", "former").await?;
    agent.process()?.restart()?;
    deploy(&agent, "bystander", 1).await?;
    ensure!(by(&agent, "moved").await?.as_deref() == Some("taker"));
    ensure!(wait_reported(&agent, "former", &expected).await? == one);
    agent.wait_ready("taker").await?;

    // Nor does a new version take it back.
    let version = "  labels: {version: two}\n";
    let both = maps(&agent, "former", &["moved", "own"], version).correct_drift();
    agent.apply(&both).await?;
    agent
        .wait_for("former", "to be refused", |bundle| {
            let installed = condition(bundle, "Installed");
            let message = installed.and_then(|installed| installed["message"].as_str());
            message.is_some_and(|message| message.contains("invalid ownership metadata"))
        })
        .await?;
    ensure!(by(&agent, "moved").await?.as_deref() == Some("taker"));

    let next = maps(&agent, "former", &["own"], "").correct_drift();
    agent.apply(&next).await?;
    agent.wait_ready("former").await?;
    wait_reported(&agent, "former", &[]).await?;
    wait_reported(&agent, "taker", &[]).await?;
    ensure!(by(&agent, "moved").await?.as_deref() == Some("taker"));
    agent.wait_ready("taker").await.map(drop)
}

/// More than a status names, taken while nobody looked: the next version takes none of them back, nor does the one after delete any.
#[tokio::test]
async fn objects_taken_by_others_unobserved_stay_with_them() -> Result<()> {
    let agent = in_haste().await?;
    let names: Vec<_> = (0..12).map(|n| format!("m-{n:02}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    agent.apply(&maps(&agent, "former", &all, "")).await?;
    agent.wait_ready("former").await?;
    let paused = maps(&agent, "former", &all, "").spec("paused", json!(true));
    agent.apply(&paused).await?;
    let taker = maps(&agent, "taker", &all[1..], "").helm("takeOwnership", json!(true));
    agent.apply(&taker).await?;
    agent.wait_ready("taker").await?;
    let version = "  labels: {version: two}\n";
    agent.apply(&maps(&agent, "former", &all, version)).await?;
    agent
        .wait_for("former", "to be refused", |bundle| {
            let installed = condition(bundle, "Installed");
            let message = installed.and_then(|installed| installed["message"].as_str());
            message.is_some_and(|message| message.contains("invalid ownership metadata"))
        })
        .await?;
    let next = maps(&agent, "former", &all[..1], version);
    agent.apply(&next).await?;
    agent.wait_ready("former").await?;
    for name in &all[1..] {
        ensure!(
            by(&agent, name).await?.as_deref() == Some("taker"),
            "{name}"
        );
    }
    ensure!(by(&agent, all[0]).await?.as_deref() == Some("former"));
    Ok(())
}

/// Taken while the next version waits: before it is rendered its history is read, which takes as long as `open` says no.
#[tokio::test]
async fn an_object_taken_while_a_deploy_waits_stays_with_its_new_bundle() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    let (held, waits) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
    let open = Arc::new(Semaphore::new(0));
    let downstream = agent
        .bed
        .downstream
        .kubeconfig_value(&agent.user, "default");
    let url = {
        let (held, waits, open) = (Arc::clone(&held), Arc::clone(&waits), Arc::clone(&open));
        proxy::listen(downstream, move |client, request: Request<Incoming>| {
            let query = request.uri().query().unwrap_or_default();
            let is_history = query.contains("former") && query.contains("owner%3Dhelm");
            let is_held = is_history && held.load(Ordering::SeqCst);
            let (waits, open) = (Arc::clone(&waits), Arc::clone(&open));
            async move {
                if is_held {
                    waits.notify_one();
                    let _open = open.acquire().await;
                }
                let request = proxy::forwarded(request).await.expect("whole requests");
                let answer = client.send(request).await.expect("an answer");
                answer.map(|body| body.boxed_unsync())
            }
        })
        .await?
    };
    agent.start_at(&url, haste())?;
    agent
        .apply(&maps(&agent, "former", &["moved", "own"], ""))
        .await?;
    agent.wait_ready("former").await?;
    held.store(true, Ordering::SeqCst);
    let version = "  labels: {version: two}\n";
    agent
        .apply(&maps(&agent, "former", &["moved", "own"], version))
        .await?;
    tokio::time::timeout(PATIENCE, waits.notified()).await?;
    // Its records are in another namespace, whose lists do not wait.
    let placed = format!("  namespace: {}\n", target(&agent));
    let taker = maps(&agent, "taker", &["moved"], &placed)
        .option("defaultNamespace", json!(format!("{}-taker", agent.id)))
        .helm("takeOwnership", json!(true));
    agent.apply(&taker).await?;
    agent.wait_ready("taker").await?;
    held.store(false, Ordering::SeqCst);
    open.add_permits(Semaphore::MAX_PERMITS);
    agent
        .wait_for("former", "to be refused", |bundle| {
            let installed = condition(bundle, "Installed");
            let message = installed.and_then(|installed| installed["message"].as_str());
            message.is_some_and(|message| message.contains("invalid ownership metadata"))
        })
        .await?;
    ensure!(by(&agent, "moved").await?.as_deref() == Some("taker"));
    agent.wait_ready("taker").await.map(drop)
}

#[tokio::test]
async fn an_object_that_went_with_its_new_bundle_is_missing_to_the_old_one() -> Result<()> {
    let agent = with_own_bundle().await?;
    agent
        .apply(&maps(&agent, "former", &["moved", "own"], ""))
        .await?;
    agent.wait_ready("former").await?;
    let taker = maps(&agent, "taker", &["moved"], "").helm("takeOwnership", json!(true));
    agent.apply(&taker).await?;
    agent.wait_ready("taker").await?;
    wait_reported(&agent, "former", &["bundle taker"]).await?;
    agent.delete("taker").await?;
    gone(&agent, &["moved".to_owned()], PATIENCE).await?;
    let is_missing = |bundle: &Value| {
        let entry = &bundle["status"]["modifiedStatus"][0];
        entry["missing"] == json!(true) && entry["exist"].is_null()
    };
    let former = agent
        .wait_for("former", "to miss its object", is_missing)
        .await?;
    ensure!(reported(&former).is_empty(), "{}", reported(&former));
    let ready = condition(&former, "Ready").context("a Ready condition")?;
    ensure!(ready["message"] == format!("configmap.v1 {}/moved missing", target(&agent)).as_str());
    Ok(())
}

async fn namespace(agent: &TestAgent<'_>) -> Result<BTreeMap<String, String>> {
    let found = agent.object("v1", "Namespace", "", &target(agent)).await?;
    let labels = found.context("the namespace")?.metadata.labels;
    Ok(labels.unwrap_or_default())
}

/// A bundle that labels its namespace.
fn labelling(agent: &TestAgent<'_>, name: &str, labels: Value) -> BundleDeployment {
    app(agent, name).option("namespaceLabels", labels).option(
        "namespaceAnnotations",
        json!({ "example.com/shared": "yes" }),
    )
}

#[tokio::test]
async fn bundles_that_share_a_namespace_keep_each_others_labels() -> Result<()> {
    let mut agent = in_haste().await?;
    // As the agent left it that had one field manager for all bundles.
    let labels = json!({ "left": "1", "right": "1" });
    let before = json!({ "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": target(&agent), "labels": labels } });
    let namespaces = agent.objects("v1", "Namespace", "");
    let parameters = PatchParams::apply("fleetagent-namespace");
    namespaces
        .patch(&target(&agent), &parameters, &Patch::Apply(&before))
        .await?;
    agent
        .apply(&labelling(
            &agent,
            "left",
            json!({ "left": "1", "team": "a" }),
        ))
        .await?;
    agent.wait_ready("left").await?;
    agent
        .apply(&labelling(
            &agent,
            "right",
            json!({ "right": "1", "team": "b" }),
        ))
        .await?;
    agent.wait_ready("right").await?;
    let sentence = format!(
        "label team of namespace {}: bundle left has it since 20",
        target(&agent)
    );
    let expected = [sentence.as_str(), "and bundle right wants it too"];
    let one = wait_reported(&agent, "right", &expected).await?;
    ensure!(wait_reported(&agent, "left", &expected).await? == one);
    let has = |labels: &BTreeMap<String, String>, expected: &[(&str, &str)]| {
        expected
            .iter()
            .all(|(key, value)| labels.get(*key).map(String::as_str) == Some(value))
    };
    let all = [("left", "1"), ("right", "1"), ("team", "a")];
    let labels = namespace(&agent).await?;
    ensure!(has(&labels, &all), "{labels:?}");
    // Nothing changes with the order in which they are looked at, nor is a change asked for.
    let before = namespaces.get(&target(&agent)).await?;
    let written = |agent: &TestAgent<'_>| -> Result<usize> {
        let requests = agent.downstream_requests()?;
        let is_write = |request: &&audit::Request| {
            request.verb == "patch"
                && request.resource == "namespaces"
                && request.name == target(agent)
        };
        Ok(requests.iter().filter(is_write).count())
    };
    let writes = written(&agent)?;
    for round in 0..2 {
        agent.process()?.restart()?;
        for name in ["left", "right"] {
            nudge(&agent, name, round).await?;
        }
        deploy(&agent, &format!("bystander-{round}"), 1).await?;
    }
    let after = namespaces.get(&target(&agent)).await?;
    ensure!(
        before.metadata.resource_version == after.metadata.resource_version,
        "{before:#?}\n{after:#?}"
    );
    ensure!(written(&agent)? == writes);
    // What a bundle gives up goes, or is the other one's.
    agent
        .apply(&labelling(&agent, "left", json!({ "new": "1" })))
        .await?;
    agent.wait_ready("left").await?;
    agent
        .apply(&labelling(
            &agent,
            "right",
            json!({ "right": "2", "team": "b" }),
        ))
        .await?;
    agent.wait_ready("right").await?;
    wait_reported(&agent, "right", &[]).await?;
    wait_reported(&agent, "left", &[]).await?;
    let labels = namespace(&agent).await?;
    ensure!(
        has(&labels, &[("new", "1"), ("right", "2"), ("team", "b")]),
        "{labels:?}"
    );
    ensure!(!labels.contains_key("left"), "{labels:?}");
    Ok(())
}

/// How often the agent wrote a ConfigMap, questions apart.
pub(crate) fn writes(agent: &TestAgent<'_>, name: &str) -> Result<usize> {
    let requests = agent.downstream_requests()?;
    let is_write = |verb: &str| ["patch", "create", "update"].contains(&verb);
    let written = requests.iter().filter(|request| {
        request.resource == "configmaps"
            && request.name == name
            && is_write(&request.verb)
            && request.code < 300
            && !request.uri.contains("dryRun")
    });
    Ok(written.count())
}

/// How often the agent read a release's first record: once in each pass.
fn passes(agent: &TestAgent<'_>, name: &str) -> Result<usize> {
    let record = format!("sh.helm.release.v1.{name}.v1");
    let requests = agent.downstream_requests()?;
    let reads = requests
        .iter()
        .filter(|request| request.name == record && request.verb == "get");
    Ok(reads.count())
}

/// A controller that writes back what the agent corrects, at once, while full passes come for other reasons.
#[tokio::test]
async fn somebody_who_reverts_each_correction_is_not_fought() -> Result<()> {
    let mut agent = in_haste().await?;
    agent
        .apply(&maps(&agent, "web", &["fought"], "").correct_drift())
        .await?;
    agent.wait_ready("web").await?;
    let reverted = Arc::new(AtomicUsize::new(0));
    let fighter = {
        let (maps, reverted) = (
            agent.objects("v1", "ConfigMap", &target(&agent)),
            Arc::clone(&reverted),
        );
        tokio::spawn(async move {
            let theirs = json!({ "data": { "by": "fighter" } });
            loop {
                let found = maps.get("fought").await;
                if found.is_ok_and(|found| found.data["data"]["by"] == "web") {
                    let (parameters, change) = (PatchParams::default(), Patch::Merge(&theirs));
                    let done = maps.patch("fought", &parameters, &change).await;
                    reverted.fetch_add(usize::from(done.is_ok()), Ordering::Relaxed);
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
    };
    wait_until(
        "the first correction to be reverted",
        PATIENCE,
        async || match reverted.load(Ordering::Relaxed) {
            0 | 1 => Err("not yet".to_owned()),
            _ => Ok(()),
        },
    )
    .await
    .with_context(|| agent.agent_log_tail(30))?;
    for round in 0..25 {
        let before = passes(&agent, "web")?;
        nudge(&agent, "web", round).await?;
        wait_until("a pass", PATIENCE, async || {
            match passes(&agent, "web").map_err(|e| e.to_string())? {
                now if now > before => Ok(()),
                now => Err(now.to_string()),
            }
        })
        .await?;
    }
    let is_reported = |bundle: &Value| {
        let reported = condition(bundle, "CorrectionsPostponed")
            .map(|reported| reported["message"].to_string());
        reported.is_some_and(|reported| reported.contains("/fought: corrected "))
    };
    agent
        .wait_for("web", "to say what does not last", is_reported)
        .await?;
    for _ in 0..10 {
        let before = passes(&agent, "web")?;
        agent.process()?.restart()?;
        wait_until(
            "a pass of the next process",
            PATIENCE,
            async || match passes(&agent, "web").map_err(|e| e.to_string())? {
                now if now > before => Ok(()),
                now => Err(now.to_string()),
            },
        )
        .await?;
    }
    fighter.abort();
    let written = writes(&agent, "fought")?;
    // One creation, and corrections that become rare.
    ensure!(
        written <= 10,
        "{written} writes\n{}",
        agent.agent_log_tail(60)
    );
    Ok(())
}

/// Left-overs that no correction can change neither fill the list that is worked from nor are corrected for ever.
#[tokio::test]
async fn orphaned_objects_do_not_crowd_out_corrections() -> Result<()> {
    let agent = in_haste().await?;
    let keep = "  annotations:\n    helm.sh/resource-policy: keep\n";
    let names: Vec<_> = (0..11).map(|n| format!("a-{n:02}")).collect();
    let mut all: Vec<&str> = names.iter().map(String::as_str).collect();
    all.push("zeta");
    agent
        .apply(&maps(&agent, "web", &all, keep).correct_drift())
        .await?;
    agent.wait_ready("web").await?;
    agent
        .apply(&maps(&agent, "web", &["zeta"], keep).correct_drift())
        .await?;
    let are_left = |bundle: &Value| bundle["status"]["resourceCounts"]["orphaned"] == json!(11);
    agent
        .wait_for("web", "to have left-overs", are_left)
        .await?;
    patch(&agent, "zeta", json!({ "data": { "by": "hand" } })).await?;
    wait_by(&agent, "zeta", "web").await?;
    for round in 0..3 {
        nudge(&agent, "web", round).await?;
    }
    deploy(&agent, "bystander", 1).await?;
    let events = agent.objects("v1", "Event", &agent.system_namespace);
    let events = events.list(&kube::api::ListParams::default()).await?;
    let corrected: Vec<_> = events
        .iter()
        .filter(|event| event.data["reason"] == "DriftCorrected")
        .map(|event| event.data["message"].as_str().unwrap_or_default())
        .collect();
    ensure!(
        corrected.iter().all(|text| !text.contains("a-0")),
        "{corrected:?}"
    );
    Ok(())
}

/// `helm upgrade` with another chart, then `helm rollback`: each is answered by a revision from the bundle's chart.
#[tokio::test]
async fn a_release_that_helm_wrote_last_is_deployed_anew_from_its_chart() -> Result<()> {
    let bed = Bed::shared().await?;
    let mut agent = TestAgent::prepare(bed).await?;
    hasty(&mut agent).await?;
    agent
        .apply(&maps(&agent, "web", &["settings"], "").correct_drift())
        .await?;
    agent.wait_ready("web").await?;
    let [_, helm] = Helm::both(&bed.downstream.kubeconfig(ADMIN)?, bed.group.directory())?;
    let chart = bed.group.directory().join(format!("{}-other", agent.id));
    std::fs::create_dir_all(chart.join("templates"))?;
    std::fs::write(
        chart.join("Chart.yaml"),
        "apiVersion: v2\nname: other\nversion: 9.9.9\n",
    )?;
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata:\n  by: helm\n";
    std::fs::write(chart.join("templates/map.yaml"), map)?;
    let (chart, namespace) = (chart.display().to_string(), target(&agent));
    helm.run(&[
        "upgrade",
        "web",
        &chart,
        "-n",
        &namespace,
        "--force-conflicts",
    ])?;
    wait_by(&agent, "settings", "web").await?;
    let is_new = |bundle: &Value| {
        let release = bundle["status"]["release"].as_str().unwrap_or_default();
        release.ends_with("/web:3") && bundle["status"]["nonModified"] == json!(true)
    };
    agent.wait_for("web", "to be at revision 3", is_new).await?;
    let list = helm.json(&["list", "-n", &namespace])?;
    ensure!(
        list[0]["revision"] == "3" && list[0]["chart"] != "other-9.9.9",
        "{list:#}"
    );
    let written = writes(&agent, "settings")?;
    nudge(&agent, "web", 1).await?;
    deploy(&agent, "bystander", 1).await?;
    ensure!(writes(&agent, "settings")? == written);

    helm.run(&[
        "rollback",
        "web",
        "2",
        "-n",
        &namespace,
        "--force-conflicts",
    ])?;
    wait_by(&agent, "settings", "web").await?;
    let is_new = |bundle: &Value| {
        let release = bundle["status"]["release"].as_str().unwrap_or_default();
        release.ends_with("/web:5") && bundle["status"]["nonModified"] == json!(true)
    };
    agent.wait_for("web", "to be at revision 5", is_new).await?;
    Ok(())
}
