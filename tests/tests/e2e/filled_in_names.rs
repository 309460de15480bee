//! Bundles whose release is named by `${ }`: what happens to releases while facts are missing, wrong or others.

use anyhow::{Context, Result, ensure};
use kube::api::DeleteParams;
use serde_json::{Value, json};
use testbed::bed::Bed;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::apply;
use testbed::fleet::test_agent::{PATIENCE, TestAgent};

use crate::release_scene::{claim, let_removals_pass, map, uid, wait_entry};
use crate::scene::{
    HASTE, deploy_own, gone, hasty, target, wait_event, wait_report, with_own_bundle,
};

/// The site says what the cluster is called.
async fn name_cluster(agent: &TestAgent<'_>, name: &str) -> Result<()> {
    hold_cluster(agent, name, json!({})).await
}

/// The same, with annotations.
async fn hold_cluster(agent: &TestAgent<'_>, name: &str, annotations: Value) -> Result<()> {
    let facts = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "fleet-site", "namespace": agent.system_namespace, "annotations": annotations,
        },
        "data": { "facts": format!("name: {name}\n") },
    });
    apply(&agent.downstream, facts).await.map(drop)
}

/// Who waits is known by what its `${ }` say on this cluster, also by an agent that has just begun.
#[tokio::test]
async fn a_bundle_whose_name_is_filled_in_gets_what_it_waits_for() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    name_cluster(&agent, "edge-1").await?;
    hasty(&mut agent).await?;
    deploy_own(&agent).await?;
    let owner = claim(&agent, "zeta").helm("releaseName", json!("shared-edge-1"));
    agent.apply(&owner).await?;
    agent.wait_ready("zeta").await?;
    let before = uid(&agent, "common").await?;
    let next_owner = claim(&agent, "alpha")
        .annotation("fleet.cattle.io/release-name", "shared-${ .ClusterName }")
        .annotation("fleet.cattle.io/cluster-values", "always");
    agent.apply(&next_owner).await?;
    let refused = format!(
        "release {}/shared-edge-1 belongs to bundle zeta",
        target(&agent)
    );
    agent
        .wait_deploy_error("alpha", |message| message == refused)
        .await?;
    agent.process()?.kill();
    agent.delete("zeta").await?;
    agent.process()?.restart()?;
    let ready = agent.wait_ready("alpha").await?;
    let wanted = format!("{}/shared-edge-1:2", target(&agent));
    ensure!(
        ready["status"]["release"] == wanted.as_str(),
        "{:#}",
        ready["status"]
    );
    ensure!(
        uid(&agent, "common").await? == before,
        "the common object was made anew"
    );
    ensure!(uid(&agent, "zeta").await?.is_none());
    Ok(())
}

/// The facts that its name was filled in with are missing: they may be back in a moment, and with them the name.
#[tokio::test]
async fn a_release_is_not_removed_since_facts_were_missing() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    name_cluster(&agent, "edge-1").await?;
    hasty(&mut agent).await?;
    deploy_own(&agent).await?;
    let named = map("{{ .Release.Name }}");
    let bundle = BundleDeployment::chart("alpha", &[("templates/map.yaml", &named)])
        .option("defaultNamespace", json!(target(&agent)))
        .annotation("fleet.cattle.io/release-name", "web-${ .ClusterName }")
        .annotation("fleet.cattle.io/cluster-values", "always");
    agent.apply(&bundle).await?;
    agent.wait_ready("alpha").await?;
    let before = uid(&agent, "web-edge-1").await?;
    ensure!(before.is_some());
    let site = agent.objects("v1", "ConfigMap", &agent.system_namespace);
    site.delete("fleet-site", &DeleteParams::default()).await?;
    let former = format!("{}/web-edge-1:1", target(&agent));
    let is_another = |bundle: &Value| {
        let release = bundle["status"]["release"].as_str().unwrap_or_default();
        !release.is_empty() && release != former
    };
    agent.wait_for("alpha", "another name", is_another).await?;
    let reported = wait_event(&agent, "RemovalHeld", "alpha").await?;
    ensure!(
        reported.contains("/web-edge-1 is not removed"),
        "{reported}"
    );
    let_removals_pass(&agent, "next").await?;
    ensure!(uid(&agent, "web-edge-1").await? == before);
    agent.delete("alpha").await?;
    gone(&agent, &["web-edge-1".to_owned()], PATIENCE).await
}

/// Facts give a bundle another name, and its former release is asked for by name: by a bundle that came meanwhile.
#[tokio::test]
async fn a_release_left_for_facts_goes_to_the_bundle_that_asks_for_it() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    name_cluster(&agent, "edge-1").await?;
    hasty(&mut agent).await?;
    deploy_own(&agent).await?;
    let named = map("{{ .Release.Name }}");
    let bundle = |name: &str| {
        BundleDeployment::chart(name, &[("templates/map.yaml", &named)])
            .option("defaultNamespace", json!(target(&agent)))
    };
    let owner = bundle("alpha")
        .annotation("fleet.cattle.io/release-name", "web-${ .ClusterName }")
        .annotation("fleet.cattle.io/cluster-values", "always");
    agent.apply(&owner).await?;
    agent.wait_ready("alpha").await?;
    let before = uid(&agent, "web-edge-1").await?;
    ensure!(before.is_some());
    name_cluster(&agent, "edge-2").await?;
    let reported = wait_event(&agent, "RemovalHeld", "alpha").await?;
    ensure!(
        reported.contains("/web-edge-1 is not removed"),
        "{reported}"
    );
    let next_owner = bundle("beta").helm("releaseName", json!("web-edge-1"));
    agent.apply(&next_owner).await?;
    let ready = agent.wait_ready("beta").await?;
    let wanted = format!("{}/web-edge-1:2", target(&agent));
    ensure!(
        ready["status"]["release"] == wanted.as_str(),
        "{:#}",
        ready["status"]
    );
    ensure!(uid(&agent, "web-edge-1").await? == before);
    ensure!(uid(&agent, "web-edge-2").await?.is_some());
    agent.wait_ready("alpha").await.map(drop)
}

/// A fact is wrong for a while, and somebody waits for the release that it named before: the bundle has it back with the fact.
#[tokio::test]
async fn a_fact_that_is_wrong_for_a_moment_gives_no_release_away() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    name_cluster(&agent, "edge-1").await?;
    agent.grant().await?;
    let timing = HASTE.replace("rename-grace=1s", "rename-grace=1h");
    agent.start([("FLEET_AGENT_TIMING".to_owned(), timing)].into())?;
    deploy_own(&agent).await?;
    // Objects that are called as their release is; one of them is the owner's alone.
    let own = map("{{ .Release.Name }}-own");
    let shared = map("{{ .Release.Name }}");
    let chart = |name: &str, files: &[(&str, &str)]| {
        BundleDeployment::chart(name, files).option("defaultNamespace", json!(target(&agent)))
    };
    let both = [
        ("templates/own.yaml", &*own),
        ("templates/shared.yaml", &*shared),
    ];
    let owner = chart("alpha", &both)
        .annotation("fleet.cattle.io/release-name", "web-${ .ClusterName }")
        .annotation("fleet.cattle.io/cluster-values", "always");
    agent.apply(&owner).await?;
    agent.wait_ready("alpha").await?;
    let names = ["web-edge-1-own", "web-edge-1"];
    let before = [uid(&agent, names[0]).await?, uid(&agent, names[1]).await?];
    let waiting = chart("beta", &both[1..]).helm("releaseName", json!("web-edge-1"));
    agent.apply(&waiting).await?;
    let refused = format!(
        "release {}/web-edge-1 belongs to bundle alpha",
        target(&agent)
    );
    let is_refused = |message: &str| message == refused;
    agent.wait_deploy_error("beta", is_refused).await?;
    name_cluster(&agent, "edge-2").await?;
    let reported = wait_event(&agent, "RemovalHeld", "alpha").await?;
    ensure!(
        reported.contains("/web-edge-1 is not removed"),
        "{reported}"
    );
    wait_entry(&agent, "web-edge-1", "to be left", |entry| {
        entry.is_some_and(|entry| entry["leftSince"].is_i64())
    })
    .await?;
    agent.process()?.restart()?;
    // Nothing is deployed while the site holds it: that the fact is right again counts all the same.
    hold_cluster(
        &agent,
        "edge-1",
        json!({ "fleet.cattle.io/hold-deploys": "for now" }),
    )
    .await?;
    wait_entry(&agent, "web-edge-1", "not to be left", |entry| {
        entry.is_some_and(|entry| entry["leftSince"].is_null())
    })
    .await?;
    name_cluster(&agent, "edge-1").await?;
    wait_entry(&agent, "web-edge-1", "to be had again", |entry| {
        entry.is_some_and(|entry| entry["bundle"] == "alpha" && entry["leftSince"].is_null())
    })
    .await?;
    agent.wait_deploy_error("beta", is_refused).await?;
    let after = [uid(&agent, names[0]).await?, uid(&agent, names[1]).await?];
    ensure!(
        before[0].is_some() && before == after,
        "{before:?} {after:?}"
    );
    Ok(())
}

/// One bundle whose name is never filled in keeps what it may turn out to want: that is told.
#[tokio::test]
async fn a_removal_that_waits_for_facts_of_another_bundle_is_reported() -> Result<()> {
    let agent = with_own_bundle().await?;
    agent
        .apply(&claim(&agent, "zeta").helm("releaseName", json!("web-1")))
        .await?;
    agent.wait_ready("zeta").await?;
    let unfilled = claim(&agent, "alpha")
        .annotation(
            "fleet.cattle.io/release-name",
            "web-${ .ClusterLabels.never | required \"no label\" }",
        )
        .annotation("fleet.cattle.io/cluster-values", "always");
    agent.apply(&unfilled).await?;
    agent
        .wait_deploy_error("alpha", |message| message.contains("required"))
        .await?;
    agent.delete("zeta").await?;
    let reported = wait_event(&agent, "RemovalHeld", "zeta").await?;
    ensure!(
        reported.contains("bundle alpha may want release"),
        "{reported}"
    );
    wait_report(&agent, "held", |text| text.contains("zeta")).await?;
    ensure!(uid(&agent, "zeta").await?.is_some());
    agent.delete("alpha").await?;
    gone(&agent, &["zeta".to_owned()], PATIENCE + PATIENCE).await?;
    wait_report(&agent, "held", |text| !text.contains("zeta")).await
}

/// Facts are wrong for a while, by which two bundles want each other's releases: each keeps what it has.
#[tokio::test]
async fn wrong_facts_for_a_moment_do_not_swap_the_releases_of_two_bundles() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    name_cluster(&agent, "edge-1").await?;
    agent.grant().await?;
    let timing = HASTE.replace("rename-grace=1s", "rename-grace=1h");
    agent.start([("FLEET_AGENT_TIMING".to_owned(), timing)].into())?;
    deploy_own(&agent).await?;
    let bundle = |name: &str, right: &str, wrong: &str| {
        let own = map(&format!("{{{{ .Release.Name }}}}-{name}"));
        let shared = map("{{ .Release.Name }}");
        let files = [
            ("templates/own.yaml", &*own),
            ("templates/shared.yaml", &*shared),
        ];
        let named =
            format!("${{ if eq .ClusterName \"edge-1\" }}{right}${{ else }}{wrong}${{ end }}");
        BundleDeployment::chart(name, &files)
            .option("defaultNamespace", json!(target(&agent)))
            .annotation("fleet.cattle.io/release-name", &named)
            .annotation("fleet.cattle.io/cluster-values", "always")
    };
    agent.apply(&bundle("alpha", "web", "db")).await?;
    agent.apply(&bundle("beta", "db", "web")).await?;
    agent.wait_ready("alpha").await?;
    agent.wait_ready("beta").await?;
    let objects = async || -> Result<_> {
        let mut found = Vec::new();
        for name in ["web-alpha", "db-beta", "web", "db"] {
            found.push(uid(&agent, name).await?);
        }
        Ok(found)
    };
    let before = objects().await?;
    ensure!(before.iter().all(Option::is_some), "{before:?}");
    name_cluster(&agent, "edge-2").await?;
    let refused = |release: &str, owner: &str| {
        format!(
            "release {}/{release} belongs to bundle {owner}",
            target(&agent)
        )
    };
    for (name, release, owner) in [("alpha", "db", "beta"), ("beta", "web", "alpha")] {
        let reported = refused(release, owner);
        agent
            .wait_deploy_error(name, |message| message == reported)
            .await
            .with_context(|| agent.agent_log_tail(40))?;
    }
    for release in ["web", "db"] {
        wait_entry(&agent, release, "to be left", |entry| {
            entry.is_some_and(|entry| entry["leftSince"].is_i64())
        })
        .await?;
    }
    name_cluster(&agent, "edge-1").await?;
    agent.wait_ready("alpha").await?;
    agent.wait_ready("beta").await?;
    for (release, owner) in [("web", "alpha"), ("db", "beta")] {
        wait_entry(&agent, release, "to be had again", |entry| {
            entry.is_some_and(|entry| entry["bundle"] == owner && entry["leftSince"].is_null())
        })
        .await?;
    }
    let after = objects().await?;
    ensure!(before == after, "{before:?} {after:?}");
    Ok(())
}

/// Once the facts stay so, they do change places.
#[tokio::test]
async fn bundles_change_places_once_facts_have_been_so_for_a_while() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    name_cluster(&agent, "edge-1").await?;
    hasty(&mut agent).await?;
    deploy_own(&agent).await?;
    let bundle = |name: &str, right: &str, wrong: &str| {
        let own = map(&format!("{{{{ .Release.Name }}}}-{name}"));
        let named =
            format!("${{ if eq .ClusterName \"edge-1\" }}{right}${{ else }}{wrong}${{ end }}");
        BundleDeployment::chart(name, &[("templates/own.yaml", &*own)])
            .option("defaultNamespace", json!(target(&agent)))
            .annotation("fleet.cattle.io/release-name", &named)
            .annotation("fleet.cattle.io/cluster-values", "always")
    };
    agent.apply(&bundle("alpha", "web", "db")).await?;
    agent.apply(&bundle("beta", "db", "web")).await?;
    agent.wait_ready("alpha").await?;
    agent.wait_ready("beta").await?;
    name_cluster(&agent, "edge-2").await?;
    for (release, owner) in [("db", "alpha"), ("web", "beta")] {
        wait_entry(&agent, release, "to change hands", |entry| {
            entry.is_some_and(|entry| entry["bundle"] == owner)
        })
        .await
        .with_context(|| agent.agent_log_tail(40))?;
    }
    agent.wait_ready("alpha").await?;
    agent.wait_ready("beta").await.map(drop)
}
