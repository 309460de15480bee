//! Where charts and values come from, and what happens when that changes or is not there.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use testbed::bed::{Bed, CREDENTIALS, unique};
use testbed::certs::Authority;
use testbed::chart::Chart;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::apply;
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::kills::records;
use testbed::registry::{Registry, Serving};
use testbed::repository::{Access, ChartRepository, Fault};
use testbed::wait::wait_until;

use crate::scene::{self, figure, haste, target};

/// Sooner than a remembered answer is forgotten.
const AT_ONCE: Duration = Duration::from_secs(40);

/// A chart of one ConfigMap named after the release.
fn chart(name: &str, version: &str, content: &str) -> Chart {
    let map = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{{{ .Release.Name }}}}\ndata:\n  content: {content}\n  color: {{{{ .Values.color | default \"none\" }}}}\n"
    );
    Chart::new(name, version).template("map.yaml", &map)
}

async fn with_plain_http(bed: &'static Bed) -> Result<TestAgent<'static>> {
    let mut agent = TestAgent::prepare(bed).await?;
    agent.grant().await?;
    let plain = json!({ "basicHTTP": "true" });
    agent.upstream_secret("plain", plain).await?;
    agent.start(haste())?;
    Ok(agent)
}

/// Waits until a key of a release's ConfigMap is so.
async fn wait_data(
    agent: &TestAgent<'_>,
    name: &str,
    key: &str,
    want: &str,
    deadline: Duration,
) -> Result<()> {
    let what = format!("{key} of {name} to be {want}");
    wait_until(&what, deadline, async || {
        let map = agent
            .object("v1", "ConfigMap", &target(agent), name)
            .await
            .map_err(|e| e.to_string())?;
        let map = map.ok_or("no ConfigMap")?;
        match &map.data["data"][key] {
            Value::String(is) if is == want => Ok(()),
            other => Err(other.to_string()),
        }
    })
    .await
    .with_context(|| agent.agent_log_tail(40))
}

/// Waits until a bundle's release is of a revision.
async fn wait_revision(agent: &TestAgent<'_>, bundle: &str, revision: &str) -> Result<()> {
    wait_until("another revision", PATIENCE, async || {
        let found = agent.bundle_deployments().map_err(|e| e.to_string())?;
        let found = found.get(bundle).await.map_err(|e| e.to_string())?;
        match found.data["status"]["release"].as_str() {
            Some(release) if release.ends_with(revision) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .with_context(|| agent.agent_log_tail(40))
}

async fn wait_event(agent: &TestAgent<'_>, reason: &str, at_least: u64) -> Result<()> {
    let name = format!("fleet_agent_events_total{{reason=\"{reason}\"}}");
    wait_until(&name, PATIENCE, async || {
        match figure(agent, &name).await? {
            count if count >= at_least => Ok(()),
            count => Err(count.to_string()),
        }
    })
    .await
    .with_context(|| agent.agent_log_tail(40))
}

#[tokio::test]
async fn a_forced_redeploy_takes_what_the_source_has_now() -> Result<()> {
    let bed = Bed::shared().await?;
    let agent = with_plain_http(bed).await?;
    let name = unique("moved");
    let publish = async |content: &str| -> Result<()> {
        let chart = chart(&name, "1.0.0", content);
        bed.registry.push(&chart).await?;
        bed.repository.add(&chart)
    };
    publish("old").await?;
    let bundles = [
        BundleDeployment::oci_helm_op("oci", &bed.registry.reference(&name), "1.0.0")
            .chart_options("plain", None, false)
            .release("oci", &target(&agent)),
        BundleDeployment::helm_op("http", bed.repository.url(), &name, "1.0.0")
            .release("http", &target(&agent)),
    ];
    for bundle in &bundles {
        agent.apply(bundle).await?;
        wait_data(&agent, bundle.name(), "content", "old", PATIENCE).await?;
    }
    publish("new").await?;
    for bundle in bundles {
        let forced = bundle.option("forceSyncGeneration", json!(1));
        agent.apply(&forced).await?;
        wait_data(&agent, forced.name(), "content", "new", AT_ONCE).await?;
        // Which chart it was is told, and stands in the release.
        agent.wait_ready(forced.name()).await?;
        let digest = Sha256::digest(chart(&name, "1.0.0", "new").archive()?);
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let records = records::read(&agent.downstream, &target(&agent), forced.name()).await?;
        let last = records.last().context("a record")?;
        let annotations = &last.release["chart"]["metadata"]["annotations"];
        ensure!(
            annotations["fleet.cattle.io/chart-digest"] == format!("sha256:{digest}")
                && annotations["fleet.cattle.io/chart-source"]
                    .as_str()
                    .is_some_and(|source| source.contains(&name)),
            "{annotations}"
        );
        let reported = scene::wait_event(&agent, "Deployed", forced.name()).await?;
        ensure!(
            reported.contains(&format!("chart {name} 1.0.0 (sha256:")),
            "{reported}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn without_sources_everything_is_deployed_from_what_is_kept() -> Result<()> {
    let bed = Bed::shared().await?;
    let mut agent = with_plain_http(bed).await?;
    let (name, target) = (unique("kept"), target(&agent));
    let repository = ChartRepository::start(Access::default()).await?;
    let registry = Registry::start(&bed.group, &unique("registry"), Access::default()).await?;
    let chart = chart(&name, "1.0.0", "kept");
    repository.add(&chart)?;
    registry.push(&chart).await?;
    let reference = registry.reference(&name);
    let oci = |bundle: &str| {
        BundleDeployment::oci_helm_op(bundle, &reference, "1.0.0")
            .chart_options("plain", None, false)
            .release(bundle, &target)
    };
    let http = |bundle: &str| {
        BundleDeployment::helm_op(bundle, repository.url(), &name, "^1").release(bundle, &target)
    };
    for bundle in [oci("oci"), http("http")] {
        agent.apply(&bundle).await?;
        agent.wait_ready(bundle.name()).await?;
    }
    agent.process()?.kill();
    drop(registry);
    let archive = format!("charts/{name}-1.0.0.tgz");
    for path in ["index.yaml", &archive] {
        repository.break_path(path, Fault::Status(503));
    }
    agent.process()?.restart()?;
    for bundle in [oci("oci"), http("http")] {
        let forced = bundle.option("forceSyncGeneration", json!(1));
        agent.apply(&forced).await?;
        wait_revision(&agent, forced.name(), ":2").await?;
    }
    // Other values, and an object that somebody deleted.
    for bundle in [oci("oci"), http("http")] {
        let forced = bundle.option("forceSyncGeneration", json!(1));
        let redeployed = forced.helm("values", json!({ "color": "blue" }));
        agent.apply(&redeployed).await?;
        wait_data(&agent, redeployed.name(), "color", "blue", PATIENCE).await?;
        let name = redeployed.name();
        let corrected = json!({ "spec": { "correctDrift": { "enabled": true } } });
        let bundles = agent.bundle_deployments()?;
        let parameters = PatchParams::default();
        bundles
            .patch(name, &parameters, &Patch::Merge(&corrected))
            .await?;
        let maps = agent.objects("v1", "ConfigMap", &target);
        maps.delete(name, &DeleteParams::default()).await?;
        wait_data(&agent, name, "color", "blue", PATIENCE).await?;
    }
    for bundle in [oci("oci-again"), http("http-again")] {
        agent.apply(&bundle).await?;
        wait_data(&agent, bundle.name(), "content", "kept", PATIENCE).await?;
    }
    wait_event(&agent, "SourceUnreachable", 4).await?;
    Ok(())
}

#[tokio::test]
async fn many_bundles_of_one_chart_download_it_once() -> Result<()> {
    let bed = Bed::shared().await?;
    let repository = ChartRepository::start(Access::default()).await?;
    let name = unique("shared");
    let fails =
        "{{ if .Values.fails }}{{ fail (printf \"attempt %v is none\" .Values.attempt) }}{{ end }}";
    repository.add(&chart(&name, "1.0.0", "shared").template("fails.yaml", fails))?;
    let mut agent = TestAgent::prepare(bed).await?;
    agent.grant().await?;
    let bundles: Vec<_> = (0..50)
        .map(|at| {
            let bundle = format!("one-{at}");
            BundleDeployment::helm_op(&bundle, repository.url(), &name, "1.0.0")
                .release(&bundle, &target(&agent))
        })
        .collect();
    for bundle in &bundles {
        agent.apply(bundle).await?;
    }
    agent.start(haste())?;
    for bundle in &bundles {
        agent.wait_ready(bundle.name()).await?;
    }
    // A bundle whose chart renders nothing until it is told a color: each change of it is one more attempt.
    let failing = |attempt: usize| {
        BundleDeployment::helm_op("failing", repository.url(), &name, "1.0.0")
            .helm("values", json!({ "attempt": attempt, "fails": true }))
            .release("failing", &target(&agent))
    };
    for attempt in 1..=20 {
        agent.apply(&failing(attempt)).await?;
        let reported = format!("attempt {attempt} is none");
        agent
            .wait_deploy_error("failing", |text| text.contains(&reported))
            .await?;
    }
    let archive = format!("charts/{name}-1.0.0.tgz");
    let once = BTreeMap::from([(archive.clone(), 1), ("index.yaml".to_owned(), 1)]);
    ensure!(repository.bodies() == once, "{:?}", repository.bodies());
    ensure!(
        repository.requests()[&archive] == 1,
        "{:?}",
        repository.requests()
    );
    agent.process()?.kill();
    agent.process()?.restart()?;
    let again = BundleDeployment::helm_op("again", repository.url(), &name, "1.0.0")
        .release("again", &target(&agent));
    agent.apply(&again).await?;
    agent.wait_ready("again").await?;
    let forced = bundles[0].clone().option("forceSyncGeneration", json!(1));
    agent.apply(&forced).await?;
    wait_revision(&agent, forced.name(), ":2").await?;
    ensure!(repository.bodies() == once, "{:?}", repository.bodies());
    Ok(())
}

#[tokio::test]
async fn a_polled_chart_is_upgraded_and_never_taken_back() -> Result<()> {
    let bed = Bed::shared().await?;
    let agent = with_plain_http(bed).await?;
    let (name, target) = (unique("polled"), target(&agent));
    bed.repository.add(&chart(&name, "1.0.0", "first"))?;
    bed.registry.push(&chart(&name, "1.0.0", "first")).await?;
    let listed = BundleDeployment::native("listed", bed.repository.url(), &name, "^1")
        .label("fleet.cattle.io/chart-poll", "10s")
        .release("listed", &target);
    let tagged = BundleDeployment::oci_helm_op("tagged", &bed.registry.reference(&name), "1.0.0")
        .chart_options("plain", None, false)
        .annotation("fleet.cattle.io/chart-poll", "10s")
        .release("tagged", &target);
    for bundle in [&listed, &tagged] {
        agent.apply(bundle).await?;
        wait_data(&agent, bundle.name(), "content", "first", PATIENCE).await?;
    }
    bed.repository.add(&chart(&name, "1.1.0", "second"))?;
    bed.registry.push(&chart(&name, "1.0.0", "moved")).await?;
    wait_data(&agent, "listed", "content", "second", PATIENCE).await?;
    wait_data(&agent, "tagged", "content", "moved", PATIENCE).await?;
    // An older chart under a later version's name, and the end of the one that is deployed.
    let older = chart(&name, "0.9.0", "older").archive()?;
    bed.repository.add_bytes(&name, "1.2.0", older);
    wait_event(&agent, "OlderChart", 1).await?;
    bed.repository.remove(&name, "1.2.0");
    bed.repository.remove(&name, "1.1.0");
    wait_event(&agent, "OlderChart", 2).await?;
    wait_data(&agent, "listed", "content", "second", AT_ONCE).await?;
    Ok(())
}

#[tokio::test]
async fn changed_values_are_deployed_without_a_commit() -> Result<()> {
    let bed = Bed::shared().await?;
    let agent = with_plain_http(bed).await?;
    let (name, target) = (unique("values"), target(&agent));
    bed.repository.add(&chart(&name, "1.0.0", "valued"))?;
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": target } });
    apply(&agent.downstream, namespace).await?;
    for (kind, field) in [("ConfigMap", "data"), ("Secret", "stringData")] {
        let object = json!({
            "apiVersion": "v1", "kind": kind, "metadata": { "name": "colors", "namespace": target },
            field: { "values.yaml": "color: red\n" },
        });
        apply(&agent.downstream, object).await?;
    }
    let bundle = |bundle: &str, reference: &str| {
        BundleDeployment::helm_op(bundle, bed.repository.url(), &name, "1.0.0")
            .helm("valuesFrom", json!([{ reference: { "name": "colors" } }]))
            .release(bundle, &target)
    };
    let bundles = [
        bundle("by-map", "configMapKeyRef"),
        bundle("by-secret", "secretKeyRef"),
        bundle("left-alone", "configMapKeyRef").label("fleet.cattle.io/watch-values", "false"),
    ];
    for bundle in &bundles {
        agent.apply(bundle).await?;
        wait_data(&agent, bundle.name(), "color", "red", PATIENCE).await?;
    }
    for (kind, field) in [("ConfigMap", "data"), ("Secret", "stringData")] {
        let objects = agent.objects("v1", kind, &target);
        let change = json!({ field: { "values.yaml": "color: blue\n" } });
        let parameters = PatchParams::default();
        objects
            .patch("colors", &parameters, &Patch::Merge(&change))
            .await?;
    }
    for name in ["by-map", "by-secret"] {
        wait_data(&agent, name, "color", "blue", AT_ONCE).await?;
    }
    wait_data(&agent, "left-alone", "color", "red", AT_ONCE).await?;
    // What is gone is told, and changes nothing.
    let maps = agent.objects("v1", "ConfigMap", &target);
    maps.delete("colors", &DeleteParams::default()).await?;
    wait_event(&agent, "ValuesFailed", 1).await?;
    wait_data(&agent, "by-map", "color", "blue", AT_ONCE).await?;
    Ok(())
}

#[tokio::test]
async fn a_host_secret_of_the_cluster_overrides_upstreams_login() -> Result<()> {
    let bed = Bed::shared().await?;
    let agent = with_plain_http(bed).await?;
    let (name, target) = (unique("hosted"), target(&agent));
    let chart = chart(&name, "1.0.0", "hosted");
    bed.private_registry.push(&chart).await?;
    bed.private_repository.add(&chart)?;
    let wrong = json!({ "username": "eve", "password": "wrong" });
    agent.upstream_secret("wrong", wrong).await?;
    let (_, repository) = bed
        .private_repository
        .url()
        .split_once("://")
        .context("a scheme")?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": "private", "namespace": agent.system_namespace,
            "labels": { "fleet.cattle.io/source-host": "true" },
        },
        "stringData": {
            "hosts": format!("{repository}, {}", bed.private_registry.host()),
            "username": CREDENTIALS.0, "password": CREDENTIALS.1, "cacerts": bed.authority.pem(),
        },
    });
    let bundles = [
        BundleDeployment::helm_op("supplied", bed.private_repository.url(), &name, "1.0.0"),
        BundleDeployment::helm_op("overridden", bed.private_repository.url(), &name, "1.0.0")
            .chart_options("wrong", None, false),
        BundleDeployment::oci_helm_op("pulled", &bed.private_registry.reference(&name), "1.0.0"),
    ];
    let bundles = bundles.map(|bundle| {
        let name = bundle.name().to_owned();
        bundle.release(&name, &target)
    });
    for bundle in &bundles {
        agent.apply(bundle).await?;
        agent
            .wait_deploy_error(bundle.name(), |text| text.contains("unknown authority"))
            .await?;
    }
    apply(&agent.downstream, secret).await?;
    for bundle in &bundles {
        wait_data(&agent, bundle.name(), "content", "hosted", PATIENCE).await?;
    }
    Ok(())
}

#[tokio::test]
async fn client_certificates_are_shown_to_those_who_ask_for_them() -> Result<()> {
    let bed = Bed::shared().await?;
    let agent = with_plain_http(bed).await?;
    let (name, target) = (unique("certified"), target(&agent));
    let clients = Authority::new("clients")?;
    let access = Access {
        authority: Some(&bed.authority),
        ..Access::default()
    };
    let serving = Serving {
        clients: Some(&clients),
        ..Serving::default()
    };
    let registry = Registry::start_with(&bed.group, &name, access, serving).await?;
    let repository = ChartRepository::start_for(access, Some(&clients)).await?;
    let chart = chart(&name, "1.0.0", "certified");
    registry.push(&chart).await?;
    repository.add(&chart)?;
    let own = clients.issue(&[])?;
    let certificate = json!({
        "tls.crt": own.certificate, "tls.key": own.key, "cacerts": bed.authority.pem(),
    });
    let nobodys = Authority::new("nobody")?.issue(&[])?;
    let other = json!({
        "tls.crt": nobodys.certificate, "tls.key": nobodys.key, "cacerts": bed.authority.pem(),
    });
    agent.upstream_secret("own", certificate).await?;
    agent.upstream_secret("other", other).await?;
    let bundles = |secret: &str| {
        let pulled = format!("{secret}-pulled");
        let listed = format!("{secret}-listed");
        [
            BundleDeployment::oci_helm_op(&pulled, &registry.reference(&name), "1.0.0")
                .chart_options(secret, None, false)
                .release(&pulled, &target),
            BundleDeployment::helm_op(&listed, repository.url(), &name, "^1")
                .chart_options(secret, None, false)
                .release(&listed, &target),
        ]
    };
    for bundle in bundles("own") {
        agent.apply(&bundle).await?;
        wait_data(&agent, bundle.name(), "content", "certified", PATIENCE).await?;
    }
    for bundle in bundles("other") {
        agent.apply(&bundle).await?;
        let is_reported = |text: &str| text.contains("failed to fetch") && !text.contains("BEGIN");
        agent.wait_deploy_error(bundle.name(), is_reported).await?;
    }
    Ok(())
}

/// An index as helm writes it, of at least so many bytes.
fn large_index(name: &str, url: &str, bytes: usize) -> Vec<u8> {
    let mut text = format!(
        "apiVersion: v1\nentries:\n  {name}:\n  - apiVersion: v2\n    name: {name}\n    version: 1.0.0\n    urls:\n    - {url}\n"
    );
    let mut chart = 0;
    while text.len() < bytes {
        text.push_str(&format!("  padding-{chart}:\n"));
        for version in 0..20 {
            text.push_str(&format!(
                "  - apiVersion: v2\n    description: {}\n    name: padding-{chart}\n    urls:\n    - padding-{chart}-{version}.tgz\n    version: {version}.0.0\n",
                "words ".repeat(30)
            ));
        }
        chart += 1;
    }
    text.into_bytes()
}

#[tokio::test]
async fn an_index_of_sixty_megabytes_takes_little_memory() -> Result<()> {
    let bed = Bed::shared().await?;
    let repository = ChartRepository::start(Access::default()).await?;
    let mut agent = with_plain_http(bed).await?;
    let (name, target) = (unique("large"), target(&agent));
    repository.add(&chart(&name, "1.0.0", "large"))?;
    let bundle = |bundle: &str| {
        BundleDeployment::helm_op(bundle, repository.url(), &name, "1.0.0").release(bundle, &target)
    };
    agent.apply(&bundle("small")).await?;
    agent.wait_ready("small").await?;
    let before = agent.process()?.memory_kib()?.peak;
    let index = large_index(&name, &format!("charts/{name}-1.0.0.tgz"), 60 << 20);
    repository.break_path("index.yaml", Fault::Body(index));
    // Another version of the constraint, so that nothing that is remembered fits.
    let forced = bundle("small").option("forceSyncGeneration", json!(1));
    agent.apply(&forced).await?;
    agent.apply(&bundle("other")).await?;
    agent.wait_ready("other").await?;
    let more = agent.process()?.memory_kib()?.peak.saturating_sub(before);
    ensure!(more < 20 << 10, "{more} KiB more");
    Ok(())
}

/// None are held while a chart comes: as by Fleet, they are read after it.
#[tokio::test]
async fn a_missing_chart_is_reported_before_missing_values() -> Result<()> {
    let agent = TestAgent::registered(Bed::shared().await?).await?;
    let (name, target) = (unique("missing"), target(&agent));
    let url = Bed::shared().await?.repository.url();
    let from = json!([{ "configMapKeyRef": { "name": name, "namespace": target } }]);
    let bundle = BundleDeployment::helm_op("both", url, &name, "1.0.0")
        .helm("valuesFrom", from)
        .release("both", &target);
    agent.apply(&bundle).await?;
    let is_of_chart = |text: &str| text.contains("no chart name found");
    agent.wait_deploy_error("both", is_of_chart).await.map(drop)
}
