//! What is large: bundles and objects of a mebibyte and more, records that do not fit into a Secret, and many bundles at once.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::bed::Bed;
use testbed::chart::Chart;
use testbed::cluster::ADMIN;
use testbed::corpus;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::helm::Helm;
use testbed::skipped;
use testbed::wait::wait_until;

use crate::scene::{app, target};

/// Text of so many bytes that gets smaller by `alphabet` only.
fn noise(bytes: usize, alphabet: &[u8], seed: u64) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ seed;
    let mut letter = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let at = usize::try_from(state >> 33).unwrap_or_default();
        char::from(alphabet[at % alphabet.len()])
    };
    (0..bytes).map(|_| letter()).collect()
}

const HEX: &[u8] = b"0123456789abcdef";
const DENSE: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn map(name: &str, value: &str) -> (String, Vec<u8>) {
    let text = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  value: x{value}\n"
    );
    (format!("{name}.yaml"), text.into_bytes())
}

fn bundle(agent: &TestAgent<'_>, name: &str, files: Vec<(String, Vec<u8>)>) -> BundleDeployment {
    BundleDeployment::content(name, files)
        .release(name, &target(agent))
        .correct_drift()
}

async fn value(agent: &TestAgent<'_>, name: &str) -> Result<Value> {
    let map = agent
        .object("v1", "ConfigMap", &target(agent), name)
        .await?;
    Ok(map.context("the ConfigMap")?.data["data"]["value"].clone())
}

/// Four objects that take almost a mebibyte each, and one that is packed so badly that chart and manifest do not fit into one record.
#[tokio::test]
async fn bundles_of_a_mebibyte_and_more_are_deployed_and_upgraded() -> Result<()> {
    const LARGE: usize = 1_000_000;
    let bed = Bed::shared().await?;
    let agent = TestAgent::registered(bed).await?;
    let wide = (0..4).map(|n| map(&format!("wide-{n}"), &"0123456789".repeat(LARGE / 10)));
    agent.apply(&bundle(&agent, "wide", wide.collect())).await?;
    let dense = |seed| {
        bundle(
            &agent,
            "dense",
            vec![map("dense", &noise(LARGE, HEX, seed))],
        )
    };
    agent.apply(&dense(1)).await?;
    for name in ["wide", "dense"] {
        agent.wait_ready(name).await?;
    }
    agent.apply(&dense(2)).await?;
    let second = agent.wait_ready("dense").await?;
    ensure!(second["status"]["release"] == format!("{}/dense:2", target(&agent)).as_str());
    let wanted = Value::from(format!("x{}", noise(LARGE, HEX, 2)));
    ensure!(value(&agent, "dense").await? == wanted);

    // Edited, and put right from a record without its chart.
    let edit = json!({ "data": { "value": "edited" } });
    agent
        .objects("v1", "ConfigMap", &target(&agent))
        .patch("dense", &PatchParams::default(), &Patch::Merge(&edit))
        .await?;
    wait_until(
        "the edit to be put right",
        PATIENCE,
        async || match value(&agent, "dense").await {
            Ok(value) if value == wanted => Ok(()),
            Ok(value) => Err(format!("{} bytes", value.to_string().len())),
            Err(failed) => Err(failed.to_string()),
        },
    )
    .await?;
    agent.wait_ready("dense").await?;
    let kubeconfig = bed.downstream.kubeconfig(ADMIN)?;
    for helm in Helm::both(&kubeconfig, bed.group.directory())? {
        let in_target = ["--namespace", &target(&agent)];
        let list = helm.json(&[&["list"], &in_target[..]].concat())?;
        ensure!(list.as_array().map(Vec::len) == Some(2), "{list}");
        let manifest = helm.run(&[&["get", "manifest", "dense"], &in_target[..]].concat())?;
        ensure!(manifest.len() > LARGE, "{} bytes", manifest.len());
    }
    Ok(())
}

/// A manifest that fits into no record is refused before anything is done, and reported.
#[tokio::test]
async fn a_bundle_too_large_for_a_record_is_refused_until_it_shrinks() -> Result<()> {
    const LARGE: usize = 700_000;
    let agent = TestAgent::registered(Bed::shared().await?).await?;
    let [a, b] = [1, 2].map(|seed| map(&format!("huge-{seed}"), &noise(LARGE, DENSE, seed)));
    agent
        .apply(&bundle(&agent, "huge", vec![a.clone(), b]))
        .await?;
    let message = agent
        .wait_deploy_error("huge", |message| message.contains("more than the 1048576"))
        .await?;
    ensure!(message.len() < 1_000, "{message}");
    let maps = agent.objects("v1", "ConfigMap", &target(&agent));
    ensure!(maps.get_opt("huge-1").await?.is_none());
    agent.apply(&bundle(&agent, "huge", vec![a])).await?;
    agent.wait_ready("huge").await.map(drop)
}

/// More than the agent has room for is refused by what it would take, and harms nobody.
#[tokio::test]
async fn charts_that_render_or_unpack_to_too_much_are_refused() -> Result<()> {
    let bed = Bed::shared().await?;
    let mut agent = TestAgent::registered(bed).await?;
    let id = agent.id.clone();
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\n";
    let renders = Chart::new(&format!("{id}-renders"), "1.0.0").template(
        "map.yaml",
        &format!("{map}data:\n  a: {{{{ repeat 900000 \"0123456789\" }}}}\n"),
    );
    let holds = Chart::new(&format!("{id}-holds"), "1.0.0")
        .template("map.yaml", map)
        .file("files/large.txt", "0".repeat(40 << 20));
    let cases = [
        (renders, "more than 8388608 bytes"),
        (holds, "more than 33554432 bytes unpacked"),
    ];
    for (chart, expected) in cases {
        bed.repository.add(&chart)?;
        let bundle =
            BundleDeployment::helm_op(chart.name(), bed.repository.url(), chart.name(), "1.0.0");
        agent
            .apply(&bundle.release(chart.name(), &target(&agent)))
            .await?;
        agent
            .wait_deploy_error(chart.name(), |message| message.contains(expected))
            .await?;
    }
    agent.apply(&app(&agent, "other")).await?;
    agent.wait_ready("other").await?;
    let memory = agent.process()?.memory_kib()?;
    ensure!(memory.peak_of_data() < DATA, "{memory:?}");
    Ok(())
}

#[expect(clippy::print_stderr, reason = "figures are for the person who started it")]
pub(crate) fn tell(figures: &str) {
    eprintln!("{figures}");
}

/// Five hundred bundles at once: all get Ready, and nothing is written when the agent starts again.
#[tokio::test]
async fn five_hundred_bundles_at_once_get_ready() -> Result<()> {
    const BUNDLES: usize = 500;
    const LONG: Duration = Duration::from_secs(600);
    let bed = Bed::shared().await?;
    let mut agent = TestAgent::registered(bed).await?;
    let names: Vec<_> = (0..BUNDLES).map(|n| format!("{}-{n}", agent.id)).collect();
    let idle = agent.process()?.memory_kib()?;
    for some in names.chunks(50) {
        try_join_all(
            some.iter()
                .map(async |name| agent.apply(&app(&agent, name)).await),
        )
        .await?;
    }
    let bundles = agent.bundle_deployments()?;
    let all_ready = async || {
        let all = bundles
            .list(&ListParams::default())
            .await
            .map_err(|e| e.to_string())?;
        let is_ready = |bundle: &&kube::api::DynamicObject| {
            bundle.data["status"]["ready"] == json!(true)
                && bundle.data["status"]["nonModified"] == json!(true)
        };
        match all.items.iter().filter(is_ready).count() {
            BUNDLES => Ok(()),
            count => Err(format!("{count} of {BUNDLES}")),
        }
    };
    wait_until("all bundles to be Ready", LONG, all_ready)
        .await
        .with_context(|| agent.agent_log_tail(20))?;
    let ledger = agent.ledger().await?.context("the ledger")?;
    let entries = ledger.data["data"].as_object().context("entries")?;
    ensure!(entries.len() == BUNDLES, "{} entries", entries.len());
    let memory = agent.process()?.memory_kib()?;
    let size = serde_json::to_string(&ledger)?.len();
    tell(&format!(
        "{BUNDLES} bundles: {idle:?}, then {memory:?} KiB; the ledger takes {size} bytes"
    ));
    ensure!(memory.peak < 300_000, "{memory:?}");

    let before = agent.downstream_requests()?.len();
    agent.process()?.restart()?;
    agent.apply(&app(&agent, "one-more")).await?;
    agent.wait_ready("one-more").await?;
    wait_until("all to be looked at again", LONG, async || {
        let passes = crate::scene::figure(&agent, "controller_runtime_reconcile_total{controller=\"bundledeployment\",result=\"success\"}").await?;
        match usize::try_from(passes) {
            Ok(passes) if passes > BUNDLES => Ok(()),
            _ => Err(passes.to_string()),
        }
    })
    .await?;
    let mut requests = agent.downstream_requests()?;
    requests.drain(..before);
    requests.retain(|request| {
        let is_read = ["get", "list", "watch"].contains(&request.verb.as_str());
        !is_read && request.resource == "configmaps" && names.contains(&request.name)
    });
    ensure!(requests.is_empty(), "{requests:#?}");
    Ok(())
}

/// What the agent may take whatever arrives, in KiB, and what its own code takes of that where it is built for release: the rest is the
/// same for a debug build.
const MEMORY: u64 = 128 << 10;
const CODE: u64 = 14 << 10;
pub(crate) const DATA: u64 = MEMORY - CODE;

/// The largest published charts, all at once: they take turns. On clusters of their own, as they bring definitions for everybody.
#[tokio::test]
async fn fifty_large_published_charts_at_once_stay_within_bounds() -> Result<()> {
    const CHARTS: usize = 50;
    if !corpus::is_present_for("fifty published charts at once") {
        return Ok(());
    }
    let mut charts = Vec::new();
    for path in corpus::charts()? {
        charts.push(std::fs::read(path)?);
    }
    charts.sort_by_key(|archive| std::cmp::Reverse(archive.len()));
    charts.truncate(CHARTS);
    if charts.len() < CHARTS {
        skipped::tell(&format!(
            "more than {} of fifty published charts at once",
            charts.len()
        ));
    }
    let bed = Bed::start(false).await?;
    let mut agent = TestAgent::registered(&bed).await?;
    let mut bundles = Vec::new();
    for (n, archive) in charts.into_iter().enumerate() {
        let (name, version) = testbed::chart::identity(&archive)?;
        bed.repository.add_archive(archive)?;
        let bundle = BundleDeployment::helm_op(
            &format!("{name}-{n}"),
            bed.repository.url(),
            &name,
            &version,
        );
        bundles.push(bundle.release(&name, &format!("{}-{name}-{n}", agent.id)));
    }
    try_join_all(bundles.iter().map(|bundle| agent.apply(bundle))).await?;
    let all = agent.bundle_deployments()?;
    let reported = async || {
        let list = all.list(&ListParams::default()).await;
        let list = list.map_err(|failed| failed.to_string())?.items;
        let is_silent = |bundle: &&kube::api::DynamicObject| {
            let conditions = bundle.data["status"]["conditions"].as_array();
            !conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Deployed"))
        };
        let silent: Vec<_> = list.iter().filter(is_silent).collect();
        match silent.as_slice() {
            [] => Ok(()),
            silent => {
                let names = silent.iter().filter_map(|one| one.metadata.name.clone());
                Err(names.collect::<Vec<_>>().join(", "))
            }
        }
    };
    const LONG: Duration = Duration::from_secs(600);
    wait_until("all to be deployed or to say why not", LONG, reported).await?;
    let memory = agent.process()?.memory_kib()?;
    tell(&format!("{CHARTS} published charts: {memory:?} KiB"));
    ensure!(memory.peak_of_data() < DATA, "{memory:?}");
    Ok(())
}
