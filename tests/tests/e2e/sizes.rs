//! What is large: bundles and objects of a mebibyte and more, records that do not fit into a Secret, and many bundles at once.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::bed::Bed;
use testbed::cluster::ADMIN;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::site::{PATIENCE, Site};
use testbed::helm::Helm;
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

fn bundle(site: &Site<'_>, name: &str, files: Vec<(String, Vec<u8>)>) -> BundleDeployment {
    BundleDeployment::content(name, files)
        .release(name, &target(site))
        .correct_drift()
}

async fn value(site: &Site<'_>, name: &str) -> Result<Value> {
    let map = site.object("v1", "ConfigMap", &target(site), name).await?;
    Ok(map.context("the ConfigMap")?.data["data"]["value"].clone())
}

/// Four objects that take almost a mebibyte each, and one that is packed so badly that chart and manifest do not fit into one record.
#[tokio::test]
async fn bundles_of_a_mebibyte_and_more_are_like_others() -> Result<()> {
    const LARGE: usize = 1_000_000;
    let bed = Bed::shared().await?;
    let site = Site::registered(bed).await?;
    let wide = (0..4).map(|n| map(&format!("wide-{n}"), &"0123456789".repeat(LARGE / 10)));
    site.apply(&bundle(&site, "wide", wide.collect())).await?;
    let dense = |seed| bundle(&site, "dense", vec![map("dense", &noise(LARGE, HEX, seed))]);
    site.apply(&dense(1)).await?;
    for name in ["wide", "dense"] {
        site.wait_ready(name).await?;
    }
    site.apply(&dense(2)).await?;
    let second = site.wait_ready("dense").await?;
    ensure!(second["status"]["release"] == format!("{}/dense:2", target(&site)).as_str());
    let wanted = Value::from(format!("x{}", noise(LARGE, HEX, 2)));
    ensure!(value(&site, "dense").await? == wanted);

    // Edited, and put right from a record without its chart.
    let edit = json!({ "data": { "value": "edited" } });
    site.objects("v1", "ConfigMap", &target(&site))
        .patch("dense", &PatchParams::default(), &Patch::Merge(&edit))
        .await?;
    wait_until(
        "the edit to be put right",
        PATIENCE,
        async || match value(&site, "dense").await {
            Ok(value) if value == wanted => Ok(()),
            Ok(value) => Err(format!("{} bytes", value.to_string().len())),
            Err(failed) => Err(failed.to_string()),
        },
    )
    .await?;
    site.wait_ready("dense").await?;
    let kubeconfig = bed.downstream.kubeconfig(ADMIN)?;
    for helm in Helm::both(&kubeconfig, bed.group.directory())? {
        let in_target = ["--namespace", &target(&site)];
        let list = helm.json(&[&["list"], &in_target[..]].concat())?;
        ensure!(list.as_array().map(Vec::len) == Some(2), "{list}");
        let manifest = helm.run(&[&["get", "manifest", "dense"], &in_target[..]].concat())?;
        ensure!(manifest.len() > LARGE, "{} bytes", manifest.len());
    }
    Ok(())
}

/// A manifest that fits into no record is refused before anything is done, and told.
#[tokio::test]
async fn a_bundle_that_fits_into_no_record_is_refused_and_heals() -> Result<()> {
    const LARGE: usize = 700_000;
    let site = Site::registered(Bed::shared().await?).await?;
    let [a, b] = [1, 2].map(|seed| map(&format!("huge-{seed}"), &noise(LARGE, DENSE, seed)));
    site.apply(&bundle(&site, "huge", vec![a.clone(), b]))
        .await?;
    let message = site
        .wait_deploy_error("huge", |message| message.contains("more than the 1048576"))
        .await?;
    ensure!(message.len() < 1_000, "{message}");
    let maps = site.objects("v1", "ConfigMap", &target(&site));
    ensure!(maps.get_opt("huge-1").await?.is_none());
    site.apply(&bundle(&site, "huge", vec![a])).await?;
    site.wait_ready("huge").await.map(drop)
}

#[expect(clippy::print_stderr, reason = "figures are for the person who started it")]
fn tell(figures: &str) {
    eprintln!("{figures}");
}

/// Five hundred bundles at once: all get Ready, and nothing is written when the agent starts again.
#[tokio::test]
async fn five_hundred_bundles_at_once_get_ready() -> Result<()> {
    const BUNDLES: usize = 500;
    const LONG: Duration = Duration::from_secs(600);
    let bed = Bed::shared().await?;
    let mut site = Site::registered(bed).await?;
    let names: Vec<_> = (0..BUNDLES).map(|n| format!("{}-{n}", site.id)).collect();
    let idle = site.agent()?.memory_kib()?;
    for some in names.chunks(50) {
        try_join_all(
            some.iter()
                .map(async |name| site.apply(&app(&site, name)).await),
        )
        .await?;
    }
    let bundles = site.bundle_deployments()?;
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
        .with_context(|| site.agent_log_tail(20))?;
    let ledger = site.ledger().await?.context("the ledger")?;
    let entries = ledger.data["data"].as_object().context("entries")?;
    ensure!(entries.len() == BUNDLES, "{} entries", entries.len());
    let memory = site.agent()?.memory_kib()?;
    let size = serde_json::to_string(&ledger)?.len();
    tell(&format!(
        "{BUNDLES} bundles: {idle:?}, then {memory:?} KiB; the ledger takes {size} bytes"
    ));
    ensure!(memory.peak < 300_000, "{memory:?}");

    let before = site.downstream_requests()?.len();
    site.agent()?.restart()?;
    site.apply(&app(&site, "one-more")).await?;
    site.wait_ready("one-more").await?;
    wait_until("all to be looked at again", LONG, async || {
        let passes = crate::scene::figure(&site, "controller_runtime_reconcile_total{controller=\"bundledeployment\",result=\"success\"}").await?;
        match usize::try_from(passes) {
            Ok(passes) if passes > BUNDLES => Ok(()),
            _ => Err(passes.to_string()),
        }
    })
    .await?;
    let mut requests = site.downstream_requests()?;
    requests.drain(..before);
    requests.retain(|request| {
        let is_read = ["get", "list", "watch"].contains(&request.verb.as_str());
        !is_read && request.resource == "configmaps" && names.contains(&request.name)
    });
    ensure!(requests.is_empty(), "{requests:#?}");
    Ok(())
}
