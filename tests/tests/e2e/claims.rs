//! Two bundles that want one release, for good: who has it keeps it, the other says so and stays still, until it is free.

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::bed::Bed;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::test_agent::{PATIENCE, TestAgent, condition};
use testbed::wait::wait_until;

use crate::scene::{
    HASTE, conditions, deletions, deploy, in_haste, present, release_hold, target, untouched,
    wait_held, with_own_bundle,
};

/// What two times that are told by the second differ by at least.
const LATER: SignedDuration = SignedDuration::from_secs(2);

/// A bundle of two ConfigMaps, one of its own and one that both have, in the release `shared`.
fn claim(agent: &TestAgent<'_>, name: &str, value: &str) -> BundleDeployment {
    with(agent, name, value, "").correct_drift()
}

/// The same with `more`, without correction.
fn with(agent: &TestAgent<'_>, name: &str, value: &str, more: &str) -> BundleDeployment {
    let map = |name: &str| {
        format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  value: {value}\n"
        )
    };
    let text = map(name) + &map("common") + more;
    BundleDeployment::content(name, vec![("maps.yaml".to_owned(), text.into())])
        .release("shared", &target(agent))
}

async fn common(agent: &TestAgent<'_>) -> Result<(Option<String>, Value)> {
    let map = agent
        .object("v1", "ConfigMap", &target(agent), "common")
        .await?;
    let map = map.context("the common ConfigMap")?;
    Ok((map.uid(), map.data["data"]["value"].clone()))
}

/// A bundle's status without what it says of others.
fn own_status(bundle: &Value) -> Value {
    let mut status = bundle["status"].clone();
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.retain(|condition| condition["type"] != "OwnershipConflicts");
    }
    status
}

/// Wakes a bundle by something that means nothing.
async fn nudge(agent: &TestAgent<'_>, name: &str, round: usize) -> Result<()> {
    let label = json!({ "metadata": { "labels": { "round": round.to_string() } } });
    let bundles = agent.bundle_deployments()?;
    bundles
        .patch(name, &PatchParams::default(), &Patch::Merge(&label))
        .await?;
    Ok(())
}

/// The one that has it comes last in every list.
#[tokio::test]
async fn a_release_named_by_two_bundles_stays_with_the_first() -> Result<()> {
    let mut agent = with_own_bundle().await?;
    agent.apply(&claim(&agent, "zeta", "one")).await?;
    let before = agent.wait_ready("zeta").await?;
    let (uid, _) = common(&agent).await?;
    let names = ["zeta".to_owned(), "common".to_owned()];

    let installed = condition(&before, "Installed").context("a condition")?;
    let since = installed["lastUpdateTime"].as_str().context("a time")?;
    // Who is refused later says since when the other one has it.
    wait_until("the next second", PATIENCE, async || {
        match Timestamp::now() > since.parse::<Timestamp>().map_err(|e| e.to_string())? + LATER {
            true => Ok(()),
            false => Err("the same".to_owned()),
        }
    })
    .await?;
    agent.apply(&claim(&agent, "alpha", "two")).await?;
    let refused = format!("release {}/shared belongs to bundle zeta", target(&agent));
    agent
        .wait_deploy_error("alpha", |message| message == refused)
        .await?;
    // Whatever wakes them, and whatever the other wants now.
    for round in 0..6 {
        nudge(&agent, "zeta", round).await?;
        nudge(&agent, "alpha", round).await?;
        let wanted = claim(&agent, "alpha", &format!("two-{round}"));
        agent.apply(&wanted).await?;
        let id = format!("round {round} to be refused");
        agent
            .wait_for("alpha", &id, |bundle| {
                bundle["metadata"]["labels"]["round"] == round.to_string().as_str()
                    && conditions(bundle).contains(&refused)
            })
            .await?;
    }
    agent.process()?.restart()?;
    nudge(&agent, "alpha", 99).await?;
    agent.apply(&crate::scene::app(&agent, "bystander")).await?;
    agent.wait_ready("bystander").await?;
    let after = agent.wait_ready("zeta").await?;
    ensure!(
        own_status(&after) == own_status(&before),
        "{:#}\n{:#}",
        before["status"],
        after["status"]
    );
    let reported = format!(
        "Helm release {}/shared: bundle zeta has it since {since}, and bundle alpha wants it too",
        target(&agent)
    );
    for name in ["zeta", "alpha"] {
        agent
            .wait_for(name, "to say who has the release since when", |bundle| {
                conditions(bundle).contains(&reported)
            })
            .await?;
    }
    ensure!(present(&agent, &names).await? == names);
    ensure!(common(&agent).await? == (uid.clone(), json!("one")));
    let deleted = deletions(&agent)?;
    ensure!(deleted.is_empty(), "{deleted:#?}");

    // Once it is free it is handed over as it stands.
    agent.delete("zeta").await?;
    let ready = agent.wait_ready("alpha").await?;
    let wanted = format!("{}/shared:2", target(&agent));
    ensure!(
        ready["status"]["release"] == wanted.as_str(),
        "{:#}",
        ready["status"]
    );
    ensure!(
        common(&agent).await? == (uid, json!("two-5")),
        "the common object was made anew"
    );
    ensure!(present(&agent, &["zeta".to_owned()]).await?.is_empty());
    Ok(())
}

/// Both at once, and the one that loses goes: nothing of the other's goes with it.
#[tokio::test]
async fn deleting_a_refused_bundle_removes_nothing() -> Result<()> {
    let agent = with_own_bundle().await?;
    let (left, right) = (claim(&agent, "left", "l"), claim(&agent, "right", "r"));
    tokio::try_join!(agent.apply(&left), agent.apply(&right))?;
    let is_refused = |bundle: &Value| conditions(bundle).contains("/shared belongs to bundle ");
    let is_ready = |bundle: &Value| bundle["status"]["ready"] == json!(true);
    let settled = |bundle: &Value| is_refused(bundle) || is_ready(bundle);
    let one = agent.wait_for("left", "to settle", settled).await?;
    let other = agent.wait_for("right", "to settle", settled).await?;
    ensure!(
        is_refused(&one) != is_refused(&other),
        "{:#}\n{:#}",
        one["status"],
        other["status"]
    );
    let (winner, loser) = match is_refused(&one) {
        true => ("right", "left"),
        false => ("left", "right"),
    };
    let before = agent.wait_ready(winner).await?;
    ensure!(before["status"]["release"] == format!("{}/shared:1", target(&agent)).as_str());
    agent.delete(loser).await?;
    // The next removal is carried out, so this one was looked at as well.
    agent.apply(&crate::scene::app(&agent, "next")).await?;
    agent.wait_ready("next").await?;
    agent.delete("next").await?;
    crate::scene::gone(
        &agent,
        &["next".to_owned()],
        testbed::fleet::test_agent::PATIENCE,
    )
    .await?;
    let names = [winner.to_owned(), "common".to_owned()];
    ensure!(present(&agent, &names).await? == names);
    let after = agent.wait_ready(winner).await?;
    ensure!(own_status(&after) == own_status(&before));
    Ok(())
}

/// That the one that has it is not listed proves nothing, and is no reason to take it either: its objects would go.
#[tokio::test]
async fn a_release_whose_removal_is_held_is_not_taken_over() -> Result<()> {
    let mut agent = in_haste().await?;
    agent.apply(&claim(&agent, "zeta", "one")).await?;
    agent.wait_ready("zeta").await?;
    let (uid, _) = common(&agent).await?;
    agent.process()?.kill();
    agent.delete("zeta").await?;
    agent.apply(&claim(&agent, "alpha", "two")).await?;
    agent.process()?.restart()?;
    let refused = format!("release {}/shared belongs to bundle zeta", target(&agent));
    agent
        .wait_deploy_error("alpha", |message| message == refused)
        .await?;
    wait_held(&agent, 1).await?;
    nudge(&agent, "alpha", 1).await?;
    deploy(&agent, "bystander", 1).await?;
    untouched(&agent, &["zeta".to_owned(), "common".to_owned()]).await?;
    ensure!(common(&agent).await? == (uid.clone(), json!("one")));
    release_hold(&agent).await?;
    agent.wait_ready("alpha").await?;
    ensure!(common(&agent).await? == (uid, json!("two")));
    Ok(())
}

/// The one that took the release has no status for a while, since its next version cannot be deployed, and then is not listed any more, which
/// proves nothing. The one that had the release before still has a status that names it.
#[tokio::test]
async fn a_release_that_was_taken_is_not_taken_back_while_its_owner_fails_or_is_missed()
-> Result<()> {
    let mut agent = in_haste().await?;
    agent.apply(&claim(&agent, "zeta", "one")).await?;
    agent.wait_ready("zeta").await?;
    let taker = claim(&agent, "alpha", "two").helm("takeOwnership", json!(true));
    agent.apply(&taker).await?;
    agent.wait_ready("alpha").await?;
    let names = ["alpha".to_owned(), "common".to_owned()];
    let refused = format!("release {}/shared belongs to bundle alpha", target(&agent));
    let reported = format!(
        "Helm release {}/shared: bundle alpha has it since ",
        target(&agent)
    );
    let is_lost = |bundle: &Value| {
        bundle["status"]["ready"] != json!(true)
            && bundle["status"]["resources"]
                .as_array()
                .is_none_or(Vec::is_empty)
            && conditions(bundle).contains(&format!("not ready: {refused}"))
            && conditions(bundle).contains(&reported)
    };
    agent.wait_for("zeta", "to have lost it", is_lost).await?;
    let is_reported = |bundle: &Value| {
        bundle["status"]["ready"] == json!(true) && conditions(bundle).contains(&reported)
    };
    agent
        .wait_for("alpha", "to say who else wants it", is_reported)
        .await?;
    stays_refused(&agent, &refused, "taken").await?;
    let before = common(&agent).await?;

    let chart = "apiVersion: v2\nname: alpha\nversion: 1.0.0\nkubeVersion: '>=99.0.0'\n";
    let failing = BundleDeployment::content("alpha", vec![("Chart.yaml".to_owned(), chart.into())])
        .release("shared", &target(&agent))
        .helm("takeOwnership", json!(true));
    agent.apply(&failing).await?;
    let is_cleared = |bundle: &Value| {
        conditions(bundle).contains("chart requires kubeVersion")
            && bundle["status"]["release"]
                .as_str()
                .is_none_or(str::is_empty)
    };
    agent
        .wait_for("alpha", "a status of no release", is_cleared)
        .await?;
    stays_refused(&agent, &refused, "failing").await?;

    agent.process()?.kill();
    agent.delete("alpha").await?;
    agent.process()?.restart()?;
    wait_held(&agent, 1).await?;
    stays_refused(&agent, &refused, "missed").await?;
    ensure!(present(&agent, &names).await? == names);
    ensure!(present(&agent, &["zeta".to_owned()]).await?.is_empty());
    ensure!(common(&agent).await? == before);
    Ok(())
}

/// A Deployment whose pods never get ready by themselves.
const STALLING: &str = r#"---
apiVersion: apps/v1
kind: Deployment
metadata: {name: stalling}
spec:
  selector: {matchLabels: {app: stalling}}
  template:
    metadata: {labels: {app: stalling}}
    spec: {containers: [{name: app, image: "app:never"}]}
"#;

/// Plays the kubelet for the pods that kwok leaves alone, as long as there are any.
async fn make_ready(agent: &TestAgent<'_>) -> Result<()> {
    let pods = agent.objects("v1", "Pod", &target(agent));
    let labelled = ListParams::default().labels("app=stalling");
    let status = json!({ "status": { "phase": "Running", "conditions": [
        { "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" },
        { "type": "ContainersReady", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" },
    ]}});
    for pod in pods.list(&labelled).await?.items {
        let (name, patch) = (pod.name_any(), Patch::Merge(&status));
        // It may be going already.
        let _ = pods
            .patch_status(&name, &PatchParams::default(), &patch)
            .await;
    }
    Ok(())
}

/// What an undo leaves of it the owner puts right, which does not correct drift; and the taker tries again, though what it failed with is one of the
/// errors that upstream shows as "not ready".
#[tokio::test]
async fn an_atomic_takeover_that_fails_is_made_good_and_tried_again() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    let timing = format!("{HASTE},undo-retry=8s,undo-retry-max=8s");
    agent.start([("FLEET_AGENT_TIMING".to_owned(), timing)].into())?;
    agent.apply(&with(&agent, "zeta", "one", "")).await?;
    agent.wait_ready("zeta").await?;
    let (uid, _) = common(&agent).await?;
    let taker = with(&agent, "alpha", "two", STALLING)
        .helm("takeOwnership", json!(true))
        .helm("atomic", json!(true))
        .helm("timeoutSeconds", json!(4));
    agent.apply(&taker).await?;
    let undone = "has been rolled back due to rollback-on-failure being set, but for what it wrote over objects that were there before";
    agent
        .wait_for("alpha", "to be undone", |bundle| {
            conditions(bundle).contains(undone) && conditions(bundle).contains("tried again at 20")
        })
        .await?;
    wait_until("what the owner had", PATIENCE, async || {
        match common(&agent).await.map_err(|e| e.to_string())? {
            (found, value) if found == uid && value == "one" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .with_context(|| agent.agent_log_tail(40))?;
    let is_well = |bundle: &Value| {
        let release = bundle["status"]["release"].as_str().unwrap_or_default();
        bundle["status"]["ready"] == json!(true)
            && bundle["status"]["nonModified"] == json!(true)
            && !release.ends_with("/shared:1")
    };
    agent.wait_for("zeta", "to be well again", is_well).await?;

    let names = ["alpha".to_owned(), "common".to_owned()];
    wait_until("the takeover", PATIENCE, async || {
        make_ready(&agent).await.map_err(|e| e.to_string())?;
        let bundles = agent.bundle_deployments().map_err(|e| e.to_string())?;
        let bundle = bundles.get("alpha").await.map_err(|e| e.to_string())?;
        match bundle.data["status"]["ready"] == json!(true) {
            true => Ok(()),
            false => Err(bundle.data["status"].to_string()),
        }
    })
    .await
    .with_context(|| agent.agent_log_tail(40))?;
    ensure!(present(&agent, &names).await? == names);
    ensure!(common(&agent).await? == (uid, json!("two")));
    let refused = format!("release {}/shared belongs to bundle alpha", target(&agent));
    let is_lost = |bundle: &Value| conditions(bundle).contains(&refused);
    agent.wait_for("zeta", "to have lost it", is_lost).await?;
    Ok(())
}

/// Whatever `zeta` wants by now, it is told that the release is another's.
async fn stays_refused(agent: &TestAgent<'_>, refused: &str, what: &str) -> Result<()> {
    for round in 0..2 {
        let label = format!("{what}-{round}");
        let wanted = claim(agent, "zeta", &label).label("round", &label);
        agent.apply(&wanted).await?;
        agent.apply(&crate::scene::app(agent, &label)).await?;
        agent.wait_ready(&label).await?;
        let is_refused = |bundle: &Value| {
            bundle["metadata"]["labels"]["round"] == label.as_str()
                && conditions(bundle).contains(refused)
        };
        agent.wait_for("zeta", "a refusal", is_refused).await?;
    }
    Ok(())
}
