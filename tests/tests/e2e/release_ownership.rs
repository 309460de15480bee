//! Whose a release is: only what is proven counts. What a person, another bundle or another agent has stays, whatever a deploy tried.

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use release::storage::{KubernetesDriver, RecordKind};
use release::{Cluster, Storage};
use serde_json::{Value, json};
use testbed::bed::{Bed, unique};
use testbed::chart::Chart;
use testbed::cluster::ADMIN;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::apply;
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::helm::Helm;
use testbed::wait::wait_until;

use crate::scene::{
    app, deploy, deploy_own, gone, hasty, present, start, target, wait_event, wait_report,
};

/// A ConfigMap as a file of a bundle.
fn map(name: &str) -> String {
    format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n")
}

/// Objects of which the API server refuses one, after it took the others.
fn with_refused(name: &str) -> Vec<(String, Vec<u8>)> {
    let refused = format!(
        "---\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {name}\nspec:\n  selector: {{matchLabels: {{app: a}}}}\n  \
         template:\n    metadata: {{labels: {{app: other}}}}\n    spec: {{containers: [{{name: c, image: i}}]}}\n"
    );
    vec![("objects.yaml".to_owned(), (map(name) + &refused).into())]
}

/// The helm of the day, as an administrator of the cluster.
fn helm(agent: &TestAgent<'_>) -> Result<Helm> {
    let kubeconfig = agent.bed.downstream.kubeconfig(ADMIN)?;
    let [_, helm] = Helm::both(&kubeconfig, agent.bed.group.directory())?;
    Ok(helm)
}

/// What an administrator installs.
fn install(agent: &TestAgent<'_>, release: &str, chart: &Chart) -> Result<()> {
    agent.bed.repository.add(chart)?;
    let namespace = target(agent);
    let repository = agent.bed.repository.url();
    let arguments = ["install", release, chart.name(), "--repo", repository];
    let place = ["--namespace", &namespace, "--create-namespace"];
    helm(agent)?
        .run(&[&arguments[..], &place].concat())
        .map(drop)
}

/// What is there of a release that an administrator installed: revisions, and the uid of its Deployment.
async fn installed(agent: &TestAgent<'_>, release: &str) -> Result<(Vec<String>, String)> {
    let records = agent.objects("v1", "Secret", &target(agent));
    let listed = ListParams::default().labels(&format!("owner=helm,name={release}"));
    let records = records.list(&listed).await?.items;
    let deployment = agent
        .object("apps/v1", "Deployment", &target(agent), release)
        .await?
        .with_context(|| {
            format!(
                "the administrator's Deployment: {}",
                agent.agent_log_tail(30)
            )
        })?;
    let records = records.iter().map(ResourceExt::name_any).collect();
    Ok((records, deployment.uid().unwrap_or_default()))
}

/// Waits until a removal that began later is through.
async fn let_removals_pass(agent: &TestAgent<'_>, name: &str) -> Result<()> {
    let next = deploy(agent, name, 1).await?;
    agent.delete(&next[0]).await?;
    gone(agent, &next, PATIENCE).await
}

async fn records(agent: &TestAgent<'_>) -> Result<Storage> {
    let cluster = Cluster::new(agent.bed.downstream.client(ADMIN).await?);
    let objects = KubernetesDriver::new(cluster, target(agent), RecordKind::Secret);
    Ok(Storage::new(objects))
}

/// What the ledger says of a release, if anything.
async fn entry(agent: &TestAgent<'_>, release: &str) -> Result<Option<Value>> {
    let ledger = agent.ledger().await?.context("the ledger")?;
    let text = ledger.data["data"][format!("{}_{release}", target(agent))].as_str();
    Ok(text.map(serde_json::from_str).transpose()?)
}

/// A bundle of two ConfigMaps, one of its own and one that both have.
fn claim(agent: &TestAgent<'_>, name: &str) -> BundleDeployment {
    let text = map(name) + &map("common");
    BundleDeployment::content(name, vec![("maps.yaml".to_owned(), text.into())])
        .option("defaultNamespace", json!(target(agent)))
}

async fn uid(agent: &TestAgent<'_>, name: &str) -> Result<Option<String>> {
    let found = agent
        .object("v1", "ConfigMap", &target(agent), name)
        .await?;
    Ok(found.and_then(|map| map.uid()))
}

/// A Content that went (a restore, a purge) is no reason to deploy what the bundle's chart address has by now.
#[tokio::test]
async fn a_missing_content_is_an_error_and_no_other_source() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    hasty(&mut agent).await?;
    let chart = Chart::small(&unique("web"), "1.0.0");
    agent.bed.repository.add(&chart)?;
    let files = vec![("map.yaml".to_owned(), map("web").into_bytes())];
    let bundle = BundleDeployment::content("web", files)
        .release("web", &target(&agent))
        .helm("repo", json!(agent.bed.repository.url()))
        .helm("chart", json!(chart.name()));
    let objects = bundle.build(agent.deployment_namespace()?)?;
    apply(&agent.upstream, objects.bundle_deployment).await?;
    let message = agent
        .wait_deploy_error("web", |message| message.contains("not found"))
        .await?;
    ensure!(
        message.contains("contents.fleet.cattle.io \"s-"),
        "{message}"
    );
    let fetched = format!("charts/{}-1.0.0.tgz", chart.name());
    ensure!(!agent.bed.repository.requests().contains_key(&fetched));
    // It comes back, and is what is deployed.
    apply(&agent.upstream, objects.content.context("a content")?).await?;
    agent.wait_ready("web").await?;
    ensure!(!agent.bed.repository.requests().contains_key(&fetched));
    Ok(())
}

/// A tenant's bundle names a namespace that its account has no business in: nobody looks there for it.
#[tokio::test]
async fn records_are_read_with_the_rights_of_the_account() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    hasty(&mut agent).await?;
    install(&agent, "web", &Chart::small(&unique("web"), "1.0.0"))?;
    let before = installed(&agent, "web").await?;
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": "tenant", "namespace": agent.system_namespace },
    });
    apply(&agent.downstream, account).await?;
    let files = vec![("map.yaml".to_owned(), map("web").into_bytes())];
    let bundle = BundleDeployment::content("web", files)
        .release("web", &target(&agent))
        .option("serviceAccount", json!("tenant"));
    agent.apply(&bundle).await?;
    agent
        .wait_deploy_error("web", |message| message.contains("forbidden"))
        .await?;
    let requests = agent.downstream_requests()?;
    let looks = requests
        .iter()
        .filter(|request| request.resource == "secrets" && request.namespace == target(&agent));
    let looks: Vec<_> = looks.collect();
    ensure!(looks.is_empty(), "{looks:#?}");
    ensure!(installed(&agent, "web").await? == before);
    Ok(())
}

/// The search for releases that the ledger does not know looks at every record of Helm's: a tenant's may unpack to anything.
#[tokio::test]
async fn a_record_that_unpacks_to_gigabytes_is_no_burden() -> Result<()> {
    use base64::Engine as _;
    use std::io::Write as _;
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent
        .configure(json!({ "garbageCollectionInterval": "1s" }))
        .await?;
    let namespace = target(&agent);
    let object =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
    apply(&agent.downstream, object).await?;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(b"{\"name\":\"bomb\",\"manifest\":\"")?;
    let piece = vec![b'a'; 1 << 20];
    for _ in 0..240 {
        gzip.write_all(&piece)?;
    }
    gzip.write_all(b"\"}")?;
    let payload = base64::engine::general_purpose::STANDARD.encode(gzip.finish()?);
    let record = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
        "metadata": {
            "name": "sh.helm.release.v1.bomb.v1", "namespace": namespace,
            "labels": { "owner": "helm", "name": "bomb", "version": "1", "status": "deployed" },
        },
        "stringData": { "release": payload },
    });
    apply(&agent.downstream, record).await?;
    start_after_grant(&mut agent).await?;
    deploy_own(&agent).await?;
    // A record of ours that nobody knows is found by the same search.
    let apps = deploy(&agent, "app", 1).await?;
    let secrets = agent.objects("v1", "Secret", &namespace);
    let mut forged = secrets.get("sh.helm.release.v1.app-0.v1").await?;
    forged.metadata = serde_json::from_value(json!({
        "name": "sh.helm.release.v1.unknown.v1",
        "labels": { "owner": "helm", "name": "unknown", "version": "1", "status": "deployed" },
    }))?;
    secrets.create(&Default::default(), &forged).await?;
    wait_report(&agent, "unknown", |text| text.contains("/unknown")).await?;
    let memory = agent.process()?.memory_kib()?;
    ensure!(memory.peak < 150_000, "{memory:?}");
    ensure!(present(&agent, &apps).await? == apps);
    secrets
        .delete("sh.helm.release.v1.bomb.v1", &DeleteParams::default())
        .await?;
    Ok(())
}

async fn start_after_grant(agent: &mut TestAgent<'_>) -> Result<()> {
    agent.grant().await?;
    start(agent)
}

