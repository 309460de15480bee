//! What API servers answer too rarely to wait for it: conflicts in the middle of a deploy, versions that expired, nothing at all;
//! and kinds that are served later than asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use kube::api::{DeleteParams, Patch, PatchParams};
use rstest::rstest;
use serde_json::{Value, json};
use testbed::bed::{Bed, unique};
use testbed::fault_proxy::{FaultProxy, expired, is_watch, refusal};
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::apply;
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::wait::wait_until;
use testbed::wire::{State, Wire};

use crate::scene::{
    app, behind_faults, deploy, figure, haste, target, wait_event, wait_readiness, widgets,
};

/// Longer than the agent waits for an answer, twice.
const LONG: Duration = Duration::from_secs(180);

/// A bundle of one ConfigMap with this text, which is kept as it is.
fn kept(agent: &TestAgent<'_>, name: &str, text: &str) -> BundleDeployment {
    let file = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  key: {text}\n"
    );
    BundleDeployment::content(name, vec![("map.yaml".to_owned(), file.into())])
        .release(name, &target(agent))
        .correct_drift()
}

async fn wait_key(agent: &TestAgent<'_>, name: &str, wanted: &str) -> Result<()> {
    wait_until(&format!("{name} to say {wanted}"), PATIENCE, async || {
        let map = agent.object("v1", "ConfigMap", &target(agent), name).await;
        let map = map.map_err(|e| e.to_string())?.ok_or("gone")?;
        match &map.data["data"]["key"] {
            Value::String(key) if key == wanted => Ok(()),
            other => Err(other.to_string()),
        }
    })
    .await
    .with_context(|| agent.agent_log_tail(30))
}

async fn edit(agent: &TestAgent<'_>, name: &str) -> Result<()> {
    let edit = json!({ "data": { "key": "edited" } });
    agent
        .objects("v1", "ConfigMap", &target(agent))
        .patch(name, &PatchParams::default(), &Patch::Merge(&edit))
        .await?;
    Ok(())
}

/// Every write is answered "conflict" once, on the way to install and on the way to upgrade.
#[tokio::test]
async fn a_deploy_retries_write_conflicts() -> Result<()> {
    let (agent, fault_proxy) = behind_faults().await?;
    let conflict = |path: &str| {
        let message = format!("Operation cannot be fulfilled on {path}: please apply your changes");
        refusal(409, "Conflict", &message)
    };
    for (revision, text) in [(1, "first"), (2, "second")] {
        let mut met = BTreeSet::new();
        let seen = Arc::new(Mutex::new(0));
        let count = Arc::clone(&seen);
        fault_proxy.refuse(move |parts| {
            let path = parts.uri.path().to_owned();
            if parts.method == Method::GET || !met.insert((parts.method.clone(), path.clone())) {
                return None;
            }
            *count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            Some(conflict(&path))
        });
        agent.apply(&kept(&agent, "web", text)).await?;
        let ready = agent.wait_ready("web").await?;
        ensure!(ready["status"]["release"] == format!("{}/web:{revision}", target(&agent)));
        wait_key(&agent, "web", text).await?;
        ensure!(*seen.lock().unwrap_or_else(PoisonError::into_inner) > 2);
        // Drift is corrected through a conflict as well.
        edit(&agent, "web").await?;
        wait_key(&agent, "web", text).await?;
    }
    // One that stays is reported in its own words, and recovered from.
    fault_proxy.refuse(move |parts| {
        let is_object = parts.uri.path().contains("configmaps/web");
        (is_object && parts.method != Method::GET).then(|| conflict("web"))
    });
    agent.apply(&kept(&agent, "web", "third")).await?;
    agent
        .wait_deploy_error("web", |message| message.contains("cannot be fulfilled"))
        .await?;
    fault_proxy.leave();
    agent.wait_ready("web").await?;
    wait_key(&agent, "web", "third").await
}

/// Upstream refuses the status once, of a bundle whose objects were not ready when it was deployed. What stands before it may know the address no
/// more, which is not to say that the bundle is gone.
#[rstest]
#[case::by_the_server(refusal(500, "InternalError", "etcdserver: request timed out"))]
#[case::by_an_ingress(json!({ "code": 404, "message": "404 page not found" }))]
#[tokio::test]
async fn a_status_that_was_refused_is_written_later(#[case] refused: Value) -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    let fault_proxy = agent.grant_behind_faults().await?;
    agent.start(haste())?;
    let mut is_refused = false;
    fault_proxy.refuse(move |parts| {
        let is_first = parts.method == Method::PATCH
            && parts.uri.path().ends_with("bundledeployments/web/status")
            && !std::mem::replace(&mut is_refused, true);
        is_first.then(|| refused.clone())
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" },
        "spec": {
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "web", "image": "web" }] },
            },
        },
    });
    let file = vec![("web.yaml".to_owned(), deployment.to_string().into())];
    let bundle = BundleDeployment::content("web", file).release("web", &target(&agent));
    agent.apply(&bundle).await?;
    agent.wait_ready("web").await.map(drop)
}

/// "Expired" in the streams of all watches, then for each list once, then instead of each watch once: on both sides. Nothing is
/// missed after that.
#[tokio::test]
async fn watches_that_expired_begin_anew() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    let downstream = &agent.bed.downstream;
    let below = FaultProxy::before(downstream.kubeconfig_value(&agent.user, "default")).await?;
    let above = agent.grant_behind_faults().await?;
    agent.start_at(below.url(), haste())?;
    agent.apply(&kept(&agent, "kept", "wanted")).await?;
    agent.wait_ready("kept").await?;

    for (round, fault_proxy) in [("above", &above), ("below", &below)] {
        let reported = Arc::new(Mutex::new(BTreeMap::<&str, usize>::new()));
        let counts = Arc::clone(&reported);
        let mut met = BTreeSet::new();
        fault_proxy.refuse(move |parts| {
            let what = match (is_watch(parts), parts.method == Method::GET) {
                (true, _) => "watch",
                (false, true) if parts.uri.query().is_some() => "list",
                _ => return None,
            };
            if !met.insert((what, parts.uri.path().to_owned())) {
                return None;
            }
            let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            *counts.entry(what).or_default() += 1;
            Some(expired())
        });
        fault_proxy.expire_watches();
        // Events from now on arrive, from both clusters.
        edit(&agent, "kept").await?;
        wait_key(&agent, "kept", "wanted").await?;
        deploy(&agent, round, 1).await?;
        let reported = reported
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        ensure!(
            reported.contains_key("watch") && reported.contains_key("list"),
            "{reported:?}"
        );
        fault_proxy.leave();
    }
    Ok(())
}

/// No event comes for objects deleted while no watch is open: they are missing from the next list. Without correction they are reported.
#[tokio::test]
async fn deletions_while_a_watch_is_interrupted_are_noticed() -> Result<()> {
    let (agent, fault_proxy) = behind_faults().await?;
    agent.apply(&kept(&agent, "kept", "wanted")).await?;
    let uncorrected = app(&agent, "told");
    agent.apply(&uncorrected).await?;
    for name in ["kept", "told"] {
        agent.wait_ready(name).await?;
    }
    let refused = Arc::new(Mutex::new(0));
    let count = Arc::clone(&refused);
    fault_proxy.refuse(move |parts| {
        let is_of_all = parts.uri.path() == "/api/v1/configmaps";
        *count.lock().unwrap_or_else(PoisonError::into_inner) += usize::from(is_of_all);
        is_of_all.then(|| refusal(500, "InternalError", "not now"))
    });
    fault_proxy.expire_watches();
    wait_until("nobody to watch", PATIENCE, async || {
        let refused = *refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused > 0 {
            Ok(())
        } else {
            Err("still watched".to_owned())
        }
    })
    .await?;
    let maps = agent.objects("v1", "ConfigMap", &target(&agent));
    for name in ["kept", "told"] {
        maps.delete(name, &DeleteParams::default()).await?;
    }
    fault_proxy.leave();
    wait_key(&agent, "kept", "wanted").await?;
    let bundle = agent
        .wait_for("told", "to be missed", |bundle| {
            bundle["status"]["modifiedStatus"][0]["missing"] == true
        })
        .await?;
    ensure!(bundle["status"]["nonModified"] != true, "{bundle:#}");
    Ok(())
}

/// A downstream API server that takes connections and never answers: reported upstream and by the probe, no worker waits for ever, and
/// all is well when it speaks.
#[tokio::test]
async fn a_cluster_that_never_answers_is_reported_and_reconnected() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    let target = agent.bed.downstream.url();
    let wire = Wire::to(target.trim_start_matches("https://")).await?;
    let mut env = haste();
    env.insert(
        "BUNDLEDEPLOYMENT_RECONCILER_WORKERS".to_owned(),
        "2".to_owned(),
    );
    agent.start_at(&wire.https_url(), env)?;
    agent.apply(&kept(&agent, "kept", "wanted")).await?;
    agent.wait_ready("kept").await?;
    wire.set(State::Silent);
    // More bundles than workers.
    let names: Vec<_> = (0..4).map(|n| format!("silent-{n}")).collect();
    for name in &names {
        agent.apply(&app(&agent, name)).await?;
    }
    wait_readiness(&agent, false).await?;
    let bundles = agent.bundle_deployments()?;
    for name in &names {
        wait_until(&format!("{name} to be told"), LONG, async || {
            let bundle = bundles.get(name).await.map_err(|e| e.to_string())?;
            let conditions = bundle.data["status"]["conditions"].to_string();
            match conditions.contains("cannot reach the API server") {
                true => Ok(()),
                false => Err(conditions),
            }
        })
        .await
        .with_context(|| agent.agent_log_tail(30))?;
    }
    ensure!(
        agent
            .process()?
            .log()
            .contains("the local cluster does not answer")
    );
    wire.set(State::Whole);
    wait_readiness(&agent, true).await?;
    for name in &names {
        agent.wait_ready(name).await?;
    }
    edit(&agent, "kept").await?;
    wait_key(&agent, "kept", "wanted").await
}

/// With a back-off of its own far beyond the test's patience, so that only the definition can have woken the bundle.
#[tokio::test]
async fn a_bundle_is_deployed_as_soon_as_its_kind_is_served() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    let never = "backoff-min=10m,backoff-max=10m";
    agent.start(BTreeMap::from([(
        "FLEET_AGENT_TIMING".to_owned(),
        never.to_owned(),
    )]))?;
    let group = format!("{}.example.com", unique("late"));
    let widget = format!("apiVersion: {group}/v1\nkind: Widget\nmetadata:\n  name: first\n");
    let bundle =
        BundleDeployment::content("widget", vec![("widget.yaml".to_owned(), widget.into())])
            .release("widget", "default");
    agent.apply(&bundle).await?;
    agent
        .wait_deploy_error("widget", |message| message.contains("no matches for kind"))
        .await?;
    wait_event(&agent, "KindMissing", "widget").await?;
    let definition = widgets(&group);
    apply(&agent.downstream, definition).await?;
    agent.wait_ready("widget").await.map(drop)
}

/// With the agent's own intervals: causes that last until the back-off is at its longest are repaired, and everything is Ready
/// with no change of a spec, each in no more than two minutes.
#[tokio::test]
async fn bundles_recover_from_causes_that_lasted_for_minutes() -> Result<()> {
    // The pauses before the seventeenth attempt are two minutes and more together, the last of them close to one.
    const ATTEMPTS: u64 = 17;
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    agent.start(BTreeMap::new())?;
    let nowhere = format!("{}-nowhere", agent.id);
    let copy = app(&agent, "copy").option(
        "downstreamResources",
        json!([{ "kind": "Secret", "name": "source" }]),
    );
    let homeless = app(&agent, "homeless")
        .option("createNamespace", json!(false))
        .option("defaultNamespace", json!(nowhere));
    let account = app(&agent, "account").option("serviceAccount", json!("late"));
    let chart = testbed::chart::Chart::small(&unique("absent"), "1.0.0");
    let source = BundleDeployment::helm_op(
        "source",
        agent.bed.repository.url(),
        chart.name(),
        chart.version(),
    )
    .release("source", &target(&agent));
    let bundles = [copy, homeless, account, source];
    for bundle in &bundles {
        agent.apply(bundle).await?;
    }
    let all = u64::try_from(bundles.len())? * ATTEMPTS;
    wait_until("causes to have lasted", LONG * 3, async || {
        let errors = "controller_runtime_reconcile_errors_total{controller=\"bundledeployment\"}";
        match figure(&agent, errors).await? {
            failures if failures >= all => Ok(()),
            failures => Err(format!("{failures} of {all} failures")),
        }
    })
    .await
    .with_context(|| agent.agent_log_tail(30))?;

    agent
        .upstream_secret("source", json!({ "key": "value" }))
        .await?;
    agent.bed.repository.add(&chart)?;
    let system = &agent.system_namespace;
    let rbac = "rbac.authorization.k8s.io";
    for object in [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": nowhere } }),
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": "late", "namespace": system },
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": agent.id },
            "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "kind": "ServiceAccount", "name": "late", "namespace": system }],
        }),
    ] {
        apply(&agent.downstream, object).await?;
    }
    // All at once: they were repaired at the same time. The test bed's patience is less than the two minutes.
    let ready = bundles.iter().map(|bundle| agent.wait_ready(bundle.name()));
    futures_util::future::try_join_all(ready).await.map(drop)
}
