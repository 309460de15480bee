//! Whose a release is: only what is proven counts. What a person, another bundle or another agent has stays, whatever a deploy tried.

use agent::ledger::LEDGER_NAME;
use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::bed::{Bed, unique};
use testbed::chart::Chart;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::apply;
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::wait::wait_until;

use crate::release_scene::{
    claim, delete_record, entry, gone_entry, helm, let_removals_pass, map, records, uid, wait_entry,
};
use crate::scene::{
    HASTE, app, conditions, deploy, deploy_own, gone, in_haste, present, start, target, wait_event,
    wait_report, with_own_bundle,
};

/// Objects of which the API server refuses one, after it took the others.
fn with_refused(name: &str) -> Vec<(String, Vec<u8>)> {
    let refused = format!(
        "---\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {name}\nspec:\n  selector: {{matchLabels: {{app: a}}}}\n  \
         template:\n    metadata: {{labels: {{app: other}}}}\n    spec: {{containers: [{{name: c, image: i}}]}}\n"
    );
    vec![("objects.yaml".to_owned(), (map(name) + &refused).into())]
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

/// A bundle whose release would be an administrator's never gets as far as to deploy: it is deleted, or its release name is put right.
#[tokio::test]
async fn a_refused_deploy_over_a_helm_release_takes_nothing_along() -> Result<()> {
    let agent = with_own_bundle().await?;
    let chart = Chart::small(&unique("web"), "1.0.0");
    install(&agent, "web", &chart)?;
    let before = installed(&agent, "web").await?;
    let wrong = |name: &str| {
        BundleDeployment::helm_op(name, agent.bed.repository.url(), chart.name(), "9.9.9")
            .release("web", &target(&agent))
    };
    for name in ["deleted", "renamed"] {
        agent.apply(&wrong(name)).await?;
        agent
            .wait_deploy_error(name, |message| message.contains("9.9.9"))
            .await?;
        if name == "deleted" {
            agent.delete("deleted").await?;
            let_removals_pass(&agent, "first").await?;
        }
    }
    agent.apply(&app(&agent, "renamed")).await?;
    agent.wait_ready("renamed").await?;
    let_removals_pass(&agent, "second").await?;
    ensure!(installed(&agent, "web").await? == before);
    Ok(())
}

/// The attempt writes a revision of its own over an administrator's and fails in the middle: only that revision's record goes.
#[tokio::test]
async fn a_failed_deploy_over_a_helm_release_takes_nothing_along() -> Result<()> {
    let agent = with_own_bundle().await?;
    let chart = Chart::small(&unique("web"), "1.0.0");
    install(&agent, "web", &chart)?;
    let before = installed(&agent, "web").await?;
    let failing = BundleDeployment::content("failing", with_refused("extra"))
        .release("web", &target(&agent))
        .helm("takeOwnership", json!(true));
    agent.apply(&failing).await?;
    agent
        .wait_deploy_error("failing", |message| message.contains("selector"))
        .await?;
    ensure!(installed(&agent, "web").await?.0.len() == 2);
    agent.delete("failing").await?;
    wait_entry(&agent, "web", "to be forgotten", |entry| entry.is_none()).await?;
    ensure!(
        installed(&agent, "web").await? == before,
        "{}",
        agent.agent_log_tail(30)
    );
    let releases = helm(&agent)?.json(&["list", "--namespace", &target(&agent)])?;
    ensure!(releases[0]["status"] == "deployed", "{releases}");
    Ok(())
}

/// What a first deploy created before it failed is ours by the revision that we wrote.
#[tokio::test]
async fn a_first_deploy_that_failed_is_cleaned_up() -> Result<()> {
    let agent = with_own_bundle().await?;
    let failing = BundleDeployment::content("failing", with_refused("failing"))
        .release("failing", &target(&agent));
    agent.apply(&failing).await?;
    agent
        .wait_deploy_error("failing", |message| message.contains("selector"))
        .await?;
    let names = ["failing".to_owned()];
    ensure!(present(&agent, &names).await? == names);
    agent.delete("failing").await?;
    gone(&agent, &names, PATIENCE).await?;
    let records = records(&agent).await?;
    wait_until("the record to go", PATIENCE, async || {
        let left = records
            .history("failing")
            .await
            .map_err(|e| e.to_string())?;
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .await
}

/// A deploy that succeeds over a release of somebody else's takes it over, as under the Go agent, and says so.
#[tokio::test]
async fn a_release_that_is_taken_over_is_reported() -> Result<()> {
    let agent = with_own_bundle().await?;
    let chart = Chart::small(&unique("web"), "1.0.0");
    install(&agent, "web", &chart)?;
    let bundle =
        BundleDeployment::helm_op("taker", agent.bed.repository.url(), chart.name(), "1.0.0")
            .release("web", &target(&agent));
    agent.apply(&bundle).await?;
    let ready = agent.wait_ready("taker").await?;
    ensure!(ready["status"]["release"] == format!("{}/web:2", target(&agent)).as_str());
    let reported = wait_event(&agent, "ReleaseTakenOver", "taker").await?;
    ensure!(
        reported.contains(&format!("{}/web", target(&agent))),
        "{reported}"
    );
    agent.delete("taker").await?;
    gone(&agent, &["web".to_owned()], PATIENCE).await
}

/// While the Go agent ran, it removed what the ledger still has, and an administrator took the name.
#[tokio::test]
async fn a_stale_ledger_deletes_nothing() -> Result<()> {
    let mut agent = with_own_bundle().await?;
    agent.apply(&app(&agent, "web")).await?;
    agent.wait_ready("web").await?;
    agent.process()?.kill();
    agent.delete("web").await?;
    helm(&agent)?.run(&["uninstall", "web", "--wait", "--namespace", &target(&agent)])?;
    install(&agent, "web", &Chart::small(&unique("web"), "1.0.0"))?;
    let before = installed(&agent, "web").await?;
    agent.process()?.restart()?;
    wait_entry(&agent, "web", "to be forgotten", |entry| entry.is_none()).await?;
    ensure!(
        installed(&agent, "web").await? == before,
        "{}",
        agent.agent_log_tail(30)
    );
    let reported = wait_event(&agent, "ReleaseNotProven", "web").await?;
    ensure!(reported.contains("left"), "{reported}");
    Ok(())
}

/// A tenant forges a newer revision, so that the deployed one could be pruned, and then writes that anew with a hook of its own.
#[tokio::test]
async fn a_revision_below_the_newest_is_not_believed_anew() -> Result<()> {
    let mut agent = with_own_bundle().await?;
    let namespace = target(&agent);
    let files = vec![("map.yaml".to_owned(), map("kept").into_bytes())];
    let bundle = BundleDeployment::content("kept", files).release("kept", &namespace);
    agent.apply(&bundle).await?;
    agent.wait_ready("kept").await?;
    let records = records(&agent).await?;
    let genuine = records.get("kept", 1).await?;
    let mut newer = genuine.clone();
    newer.revision = 2;
    records.create(&newer).await?;
    let failing =
        BundleDeployment::content("kept", with_refused("kept")).release("kept", &namespace);
    agent.apply(&failing).await?;
    agent
        .wait_deploy_error("kept", |message| message.contains("selector"))
        .await?;
    // What is forged does not make it go; who may write records may delete it as well.
    records.get("kept", 1).await?;
    delete_record(&records, "kept", 1).await?;
    let mut forged = genuine;
    forged.hooks.push(release::Hook {
        name: "forged".to_owned(),
        kind: "ConfigMap".to_owned(),
        path: "web/templates/hook.yaml".to_owned(),
        manifest: map("forged"),
        events: vec!["pre-delete".to_owned()],
        ..release::Hook::default()
    });
    records.create(&forged).await?;
    agent.process()?.restart()?;
    // The next tries read the revision that the status names.
    agent.apply(&failing.label("round", "1")).await?;
    let_removals_pass(&agent, "next").await?;
    let digest = release::storage::digest(&forged);
    let known = entry(&agent, "kept").await?.context("an entry")?;
    ensure!(!known.to_string().contains(&digest), "{known}");
    for revision in [3, 2] {
        delete_record(&records, "kept", revision).await?;
    }
    agent.delete("kept").await?;
    gone(&agent, &["kept".to_owned()], PATIENCE).await?;
    let_removals_pass(&agent, "last").await?;
    let hook = agent
        .object("v1", "ConfigMap", &namespace, "forged")
        .await?;
    ensure!(hook.is_none(), "the forged hook was run");
    Ok(())
}

/// Until a deploy with `takeOwnership` has succeeded, the release stays with the bundle that has it.
#[tokio::test]
async fn a_failing_claimant_does_not_become_the_owner() -> Result<()> {
    let agent = with_own_bundle().await?;
    agent
        .apply(&claim(&agent, "zeta").helm("releaseName", json!("shared")))
        .await?;
    agent.wait_ready("zeta").await?;
    // Else it would put right at once what the other one's attempt leaves.
    let paused = claim(&agent, "zeta").helm("releaseName", json!("shared"));
    agent.apply(&paused.spec("paused", json!(true))).await?;
    let before = uid(&agent, "common").await?;
    let mut files = with_refused("common");
    let hook = "  annotations: {helm.sh/hook: pre-delete}\n";
    files.push((
        "hook.yaml".to_owned(),
        (map("claimants-hook") + hook).into(),
    ));
    files.push(("own.yaml".to_owned(), map("claimants").into()));
    let claimant = BundleDeployment::content("alpha", files)
        .release("shared", &target(&agent))
        .helm("takeOwnership", json!(true));
    agent.apply(&claimant).await?;
    agent
        .wait_deploy_error("alpha", |message| message.contains("selector"))
        .await?;
    let owner = entry(&agent, "shared").await?.context("an entry")?;
    // It does not try so again at once: each try writes over what the other one has.
    agent
        .wait_deploy_error("alpha", |message| message.contains("tried again"))
        .await?;
    ensure!(owner["bundle"] == "zeta", "{owner}");
    let owned = owner["revisions"].as_object().context("revisions")?;
    ensure!(owned.len() == 1, "{owner}");
    ensure!(uid(&agent, "claimants").await?.is_some());
    agent.delete("alpha").await?;
    // What only it brought goes with it, and its record.
    gone(&agent, &["claimants".to_owned()], PATIENCE).await?;
    let_removals_pass(&agent, "next").await?;
    ensure!(uid(&agent, "common").await? == before && uid(&agent, "zeta").await?.is_some());
    let (namespace, name) = (target(&agent), "sh.helm.release.v1.shared.v2");
    let record = agent.object("v1", "Secret", &namespace, name).await?;
    ensure!(record.is_none(), "{record:?}");
    let owner = entry(&agent, "shared").await?.context("an entry")?;
    ensure!(
        owner["bundle"] == "zeta" && owner["claims"].is_null(),
        "{owner}"
    );
    agent.delete("zeta").await?;
    gone(&agent, &["zeta".to_owned(), "common".to_owned()], PATIENCE).await?;
    let_removals_pass(&agent, "last").await?;
    ensure!(uid(&agent, "claimants-hook").await?.is_none());
    Ok(())
}

/// Its bundle is paused from before this agent began until it is deleted.
#[tokio::test]
async fn a_release_of_another_agent_goes_with_a_bundle_that_was_never_deployed_here() -> Result<()>
{
    let mut agent = with_own_bundle().await?;
    agent.apply(&app(&agent, "web")).await?;
    agent.wait_ready("web").await?;
    agent.process()?.kill();
    // What the Go agent leaves: records that name the bundle, and no ledger.
    let ledger = agent.objects("v1", "ConfigMap", &agent.system_namespace);
    ledger.delete(LEDGER_NAME, &DeleteParams::default()).await?;
    let pause = json!({ "spec": { "paused": true } });
    agent
        .bundle_deployments()?
        .patch("web", &PatchParams::default(), &Patch::Merge(&pause))
        .await?;
    agent.process()?.restart()?;
    wait_entry(&agent, "web", "to be entered", |entry| {
        entry.is_some_and(|entry| entry["bundle"] == "web" && entry["isAttempt"].is_null())
    })
    .await?;
    agent.delete("web").await?;
    gone(&agent, &["web".to_owned()], PATIENCE).await
}

/// A deploy succeeded, and the write that was to say so was lost.
#[tokio::test]
async fn a_deployed_release_is_confirmed_though_the_ledger_write_was_lost() -> Result<()> {
    let mut agent = with_own_bundle().await?;
    agent.apply(&app(&agent, "web")).await?;
    agent.wait_ready("web").await?;
    agent.process()?.kill();
    let mut known = entry(&agent, "web").await?.context("an entry")?;
    known["isAttempt"] = json!(true);
    let key = format!("{}_web", target(&agent));
    let change = json!({ "data": { key: known.to_string() } });
    agent
        .objects("v1", "ConfigMap", &agent.system_namespace)
        .patch(LEDGER_NAME, &PatchParams::default(), &Patch::Merge(&change))
        .await?;
    agent.process()?.restart()?;
    wait_entry(&agent, "web", "to be the bundle's", |entry| {
        entry.is_some_and(|entry| entry["bundle"] == "web" && entry["isAttempt"].is_null())
    })
    .await
}

/// A Content that went (a restore, a purge) is no reason to deploy what the bundle's chart address has by now.
#[tokio::test]
async fn a_missing_content_is_an_error_and_no_other_source() -> Result<()> {
    let agent = in_haste().await?;
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
    let agent = in_haste().await?;
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

/// A revision that is not the one the ledger knows is answered by a new one from the chart, and removed with its bundle.
#[tokio::test]
async fn a_release_stays_its_bundles_after_helm_wrote_to_it() -> Result<()> {
    let agent = with_own_bundle().await?;
    let chart = Chart::small(&unique("web"), "1.0.0");
    agent.bed.repository.add(&chart)?;
    let bundle =
        BundleDeployment::helm_op("web", agent.bed.repository.url(), chart.name(), "1.0.0")
            .release("web", &target(&agent));
    agent.apply(&bundle).await?;
    agent.wait_ready("web").await?;
    let namespace = target(&agent);
    let repository = agent.bed.repository.url();
    let upgrade = [
        "upgrade",
        "web",
        chart.name(),
        "--repo",
        repository,
        "--namespace",
        &namespace,
    ];
    let forced = ["--set", "greeting=hi", "--force-conflicts"];
    helm(&agent)?.run(&[&upgrade[..], &forced].concat())?;
    let label = json!({ "metadata": { "labels": { "woken": "yes" } } });
    agent
        .bundle_deployments()?
        .patch("web", &PatchParams::default(), &Patch::Merge(&label))
        .await?;
    agent.delete("web").await?;
    gone(&agent, &["web".to_owned()], PATIENCE).await
}

/// A bundle takes another's object and fails; the one that gets its release when it goes never deploys either.
#[tokio::test]
async fn an_object_a_failed_attempt_took_outlives_the_next_owner() -> Result<()> {
    let agent = with_own_bundle().await?;
    let theirs = deploy(&agent, "theirs", 1).await?;
    let before = uid(&agent, &theirs[0]).await?;
    let failing = |name: &str, object: &str| {
        BundleDeployment::content(name, with_refused(object))
            .release("failed", &target(&agent))
            .helm("takeOwnership", json!(name == "first"))
    };
    agent.apply(&failing("first", &theirs[0])).await?;
    agent
        .wait_deploy_error("first", |message| message.contains("selector"))
        .await?;
    agent.apply(&failing("next-owner", "next-owner")).await?;
    agent
        .wait_deploy_error("next-owner", |message| {
            message.contains("belongs to bundle first")
        })
        .await?;
    agent.delete("first").await?;
    agent
        .wait_deploy_error("next-owner", |message| message.contains("selector"))
        .await?;
    agent.delete("next-owner").await?;
    wait_entry(&agent, "failed", "to be forgotten", |entry| entry.is_none()).await?;
    ensure!(uid(&agent, &theirs[0]).await? == before && before.is_some());
    ensure!(uid(&agent, "next-owner").await?.is_none());
    Ok(())
}

/// Somebody damages the record that the status names: the bundle goes on, with a revision from its chart.
#[tokio::test]
async fn a_damaged_record_stops_no_bundle() -> Result<()> {
    let agent = with_own_bundle().await?;
    agent.apply(&claim(&agent, "web")).await?;
    agent.wait_ready("web").await?;
    let before = uid(&agent, "common").await?;
    let damage = json!({ "stringData": { "release": "H4sIAAAA" } });
    let secrets = agent.objects("v1", "Secret", &target(&agent));
    secrets
        .patch(
            "sh.helm.release.v1.web.v1",
            &PatchParams::default(),
            &Patch::Merge(&damage),
        )
        .await?;
    agent
        .apply(
            &claim(&agent, "web")
                .label("round", "1")
                .helm("atomic", json!(true)),
        )
        .await?;
    agent
        .wait_for("web", "to be deployed anew", |bundle| {
            let release = bundle["status"]["release"].as_str().unwrap_or_default();
            release.ends_with("/web:2") && bundle["status"]["ready"] == json!(true)
        })
        .await?;
    ensure!(uid(&agent, "common").await? == before, "it was made anew");
    let reported = wait_event(&agent, "RecordChanged", "web").await?;
    ensure!(reported.contains("cannot be read"), "{reported}");
    agent.delete("web").await?;
    gone(&agent, &["web".to_owned(), "common".to_owned()], PATIENCE).await
}

/// The Go agent deploys a later revision of a release that the ledger knows, and its bundle is paused from then on.
#[tokio::test]
async fn a_later_revision_of_another_agent_is_entered_for_a_paused_bundle() -> Result<()> {
    let mut agent = with_own_bundle().await?;
    agent.apply(&app(&agent, "web")).await?;
    agent.wait_ready("web").await?;
    agent.process()?.kill();
    let records = records(&agent).await?;
    let mut later = records.get("web", 1).await?;
    later.revision = 2;
    records.create(&later).await?;
    let bundles = agent.bundle_deployments()?;
    let named = json!({ "status": { "release": format!("{}/web:2", target(&agent)) } });
    let pause = json!({ "spec": { "paused": true } });
    let parameters = PatchParams::default();
    bundles
        .patch("web", &parameters, &Patch::Merge(&pause))
        .await?;
    bundles
        .patch_status("web", &parameters, &Patch::Merge(&named))
        .await?;
    agent.process()?.restart()?;
    wait_entry(&agent, "web", "to know the revision", |entry| {
        entry.is_some_and(|entry| entry["revisions"]["2"].is_string())
    })
    .await
}

/// An agent that was suspended for longer than its lease, and one whose own cluster was restored, know an older ledger than there is: what
/// somebody else wrote stays.
#[tokio::test]
async fn a_ledger_written_by_another_agent_is_not_overwritten() -> Result<()> {
    let agent = with_own_bundle().await?;
    let of = |value: &str| {
        let text = map("web") + &format!("data: {{value: {value}}}\n");
        BundleDeployment::content("web", vec![("map.yaml".to_owned(), text.into())])
            .option("defaultNamespace", json!(target(&agent)))
    };
    agent.apply(&of("one")).await?;
    agent.wait_ready("web").await?;
    // An annotation is no such thing.
    agent
        .patch_ledger(&json!({ "metadata": { "annotations": { "example.com/seen": "yes" } } }))
        .await?;
    agent.apply(&of("two")).await?;
    agent.wait_ready("web").await?;
    let mut known = entry(&agent, "web").await?.context("an entry")?;
    known["revisions"]["7"] = "written by another agent, in the meantime".into();
    let key = format!("{}_web", target(&agent));
    agent
        .patch_ledger(&json!({ "data": { key: known.to_string() } }))
        .await?;
    agent.apply(&of("three")).await?;
    agent.wait_ready("web").await?;
    let after = entry(&agent, "web").await?.context("an entry")?;
    ensure!(
        after["revisions"]["7"] == known["revisions"]["7"],
        "{after}"
    );
    ensure!(after["revisions"]["3"].is_string(), "{after}");
    Ok(())
}

/// A status can be written by whoever has the cluster's credential upstream. What it says is no reason to remove anything.
#[tokio::test]
async fn a_status_that_names_another_release_removes_nothing() -> Result<()> {
    let agent = with_own_bundle().await?;
    let names = deploy(&agent, "app", 2).await?;
    let mut uids = Vec::new();
    for name in &names {
        uids.push(uid(&agent, name).await?);
    }
    let bundles = agent.bundle_deployments()?;
    let release = |bundle: &Value| bundle["status"]["release"].clone();
    let other = agent.wait_ready(&names[1]).await?;
    let own = release(&agent.wait_ready(&names[0]).await?);
    let lie = Patch::Merge(json!({ "status": { "release": release(&other) } }));
    bundles
        .patch_status(&names[0], &PatchParams::default(), &lie)
        .await?;
    agent
        .wait_for(&names[0], "to say what it has", |bundle| {
            release(bundle) == own && bundle["status"]["ready"] == json!(true)
        })
        .await?;
    let_removals_pass(&agent, "next").await?;
    for (name, before) in names.iter().zip(&uids) {
        ensure!(
            before.is_some() && uid(&agent, name).await? == *before,
            "{name}"
        );
    }
    Ok(())
}

/// What is to outlive its bundle does, also where another one waits for the release and has not all of it: nobody has it while its owner goes, and
/// what somebody's helm wrote over it is none of the other one's.
#[tokio::test]
async fn kept_resources_stay_though_another_bundle_gets_the_release() -> Result<()> {
    let agent = with_own_bundle().await?;
    let shared = |name: &str| claim(&agent, name).helm("releaseName", json!("shared"));
    let keeping = shared("zeta").option("keepResources", json!(true));
    agent.apply(&keeping).await?;
    agent.wait_ready("zeta").await?;
    let before = [uid(&agent, "zeta").await?, uid(&agent, "common").await?];
    let records = records(&agent).await?;
    let mut upgraded = records.get("shared", 1).await?;
    upgraded.revision = 2;
    records.create(&upgraded).await?;
    agent.apply(&shared("alpha")).await?;
    let refused = |message: &str| message.contains("belongs to bundle zeta");
    agent.wait_deploy_error("alpha", refused).await?;
    let bundles = agent.bundle_deployments()?;
    bundles.delete("zeta", &DeleteParams::default()).await?;
    // It has its finalizer yet, and the other one is tried again and again.
    for round in ["one", "two"] {
        agent.apply(&shared("alpha").label("round", round)).await?;
        let_removals_pass(&agent, round).await?;
        let is_refused = |bundle: &Value| {
            bundle["metadata"]["labels"]["round"] == round && refused(&conditions(bundle))
        };
        agent.wait_for("alpha", "a refusal", is_refused).await?;
    }
    agent.delete("zeta").await?;
    agent.wait_ready("alpha").await?;
    let after = [uid(&agent, "zeta").await?, uid(&agent, "common").await?];
    ensure!(
        before == after && before[0].is_some(),
        "{before:?} {after:?}"
    );
    Ok(())
}

/// A bundle is in the middle of taking a release when its owner goes and leaves its objects: what it has written of it by then is its own.
#[tokio::test]
async fn a_bundle_that_is_taking_a_release_keeps_its_records_when_the_owner_goes() -> Result<()> {
    let agent = with_own_bundle().await?;
    let keeping = claim(&agent, "zeta")
        .helm("releaseName", json!("shared"))
        .option("keepResources", json!(true));
    agent.apply(&keeping).await?;
    agent.wait_ready("zeta").await?;
    // A Pod that no scheduler takes: the deploy is under way until somebody says that it is done.
    let hook = "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: migrates\n  annotations: {helm.sh/hook: pre-upgrade}\nspec:\n  \
                containers: [{name: c, image: none}]\n  schedulerName: nobody\n  restartPolicy: Never\n";
    let files = vec![(
        "all.yaml".to_owned(),
        (map("alpha") + &map("common") + hook).into(),
    )];
    let taker = BundleDeployment::content("alpha", files)
        .release("shared", &target(&agent))
        .helm("takeOwnership", json!(true));
    agent.apply(&taker).await?;
    let pods = agent.objects("v1", "Pod", &target(&agent));
    wait_until("the hook to be waited for", PATIENCE, async || {
        let found = pods.get_opt("migrates").await.map_err(|e| e.to_string())?;
        found.map(drop).ok_or_else(|| "no hook".to_owned())
    })
    .await?;
    agent.delete("zeta").await?;
    wait_entry(&agent, "shared", "to be given up", |entry| {
        entry.is_some_and(|entry| entry["bundle"] == "alpha")
    })
    .await?;
    let done = json!({ "status": { "phase": "Succeeded" } });
    pods.patch_status("migrates", &PatchParams::default(), &Patch::Merge(&done))
        .await?;
    let ready = agent.wait_ready("alpha").await?;
    let wanted = format!("{}/shared:2", target(&agent));
    ensure!(
        ready["status"]["release"] == wanted.as_str(),
        "{:#}",
        ready["status"]
    );
    let record = records(&agent).await?.get("shared", 2).await?;
    ensure!(record.status() == release::Status::Deployed);
    Ok(())
}

/// Who could not take a release from another bundle tries again once that one is gone, however long it was to wait.
#[tokio::test]
async fn a_claimant_waits_no_longer_than_the_owner_is_there() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    let timing = format!("{HASTE},undo-retry=1h,undo-retry-max=1h");
    agent.start([("FLEET_AGENT_TIMING".to_owned(), timing)].into())?;
    deploy_own(&agent).await?;
    agent
        .apply(&claim(&agent, "zeta").helm("releaseName", json!("shared")))
        .await?;
    agent.wait_ready("zeta").await?;
    // Something is missing that it needs, which comes without a word to the agent.
    let room = format!("{}-room", agent.id);
    let inside = map("inside").replace("metadata:\n", &format!("metadata:\n  namespace: {room}\n"));
    let files = vec![("all.yaml".to_owned(), (map("common") + &inside).into())];
    let claimant = BundleDeployment::content("alpha", files)
        .release("shared", &target(&agent))
        .helm("takeOwnership", json!(true));
    agent.apply(&claimant).await?;
    agent
        .wait_deploy_error("alpha", |message| message.contains("tried again"))
        .await?;
    let made = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": room } });
    apply(&agent.downstream, made).await?;
    agent.delete("zeta").await?;
    agent
        .wait_ready("alpha")
        .await
        .with_context(|| agent.agent_log_tail(40))?;
    ensure!(entry(&agent, "shared").await?.context("an entry")?["bundle"] == "alpha");
    Ok(())
}

/// An agent that was killed once its bundle had failed over an administrator's release, and the uid of that one's object.
async fn killed_after_a_failed_attempt() -> Result<(TestAgent<'static>, String)> {
    let mut agent = with_own_bundle().await?;
    let chart = Chart::small(&unique("web"), "1.0.0");
    install(&agent, "web", &chart)?;
    let before = uid(&agent, "web").await?.context("the release's object")?;
    let mut files = with_refused("extra");
    files.push(("map.yaml".to_owned(), map("web").into()));
    let failing = BundleDeployment::content("failing", files)
        .release("web", &target(&agent))
        .helm("takeOwnership", json!(true));
    agent.apply(&failing).await?;
    agent
        .wait_deploy_error("failing", |message| message.contains("selector"))
        .await?;
    agent.process()?.kill();
    Ok((agent, before))
}

/// Who may write Secrets where an administrator's release is deletes its record, and makes the failed attempt over it look deployed.
#[tokio::test]
async fn a_release_stays_whose_record_was_deleted_under_a_failed_attempt() -> Result<()> {
    let (mut agent, before) = killed_after_a_failed_attempt().await?;
    let storage = records(&agent).await?;
    let mut forged = storage.get("web", 2).await?;
    forged.set_status(release::Status::Deployed, "forged");
    storage.update(&forged).await?;
    delete_record(&storage, "web", 1).await?;
    agent.process()?.restart()?;
    agent.delete("failing").await?;
    gone_entry(&agent, "web").await?;
    ensure!(
        uid(&agent, "web").await?.as_ref() == Some(&before),
        "{}",
        agent.agent_log_tail(40)
    );
    Ok(())
}

/// A bundle is cut off in an attempt at an administrator's release, and goes. Another one that wants the release is paused until it goes as well, and
/// by then somebody has deleted the administrator's record.
#[tokio::test]
async fn attempts_at_a_helm_release_that_are_left_to_a_bundle_take_nothing_along_when_it_goes()
-> Result<()> {
    let (mut agent, before) = killed_after_a_failed_attempt().await?;
    let storage = records(&agent).await?;
    let mut attempt = storage.get("web", 2).await?;
    attempt.set_status(release::Status::PendingUpgrade, "Preparing upgrade");
    storage.update(&attempt).await?;
    let next = app(&agent, "next").release("web", &target(&agent));
    agent.apply(&next.spec("paused", json!(true))).await?;
    agent.delete("failing").await?;
    agent.process()?.restart()?;
    wait_entry(&agent, "web", "to be left", |entry| {
        entry.is_some_and(|entry| entry["bundle"] == "next")
    })
    .await?;
    ensure!(storage.get("web", 2).await?.status() == release::Status::Failed);
    delete_record(&storage, "web", 1).await?;
    agent.delete("next").await?;
    gone_entry(&agent, "web").await?;
    ensure!(
        uid(&agent, "web").await?.as_ref() == Some(&before),
        "{}",
        agent.agent_log_tail(40)
    );
    let left = storage.history("web").await?;
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}
