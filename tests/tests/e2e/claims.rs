//! Two bundles that want one release, for good: who has it keeps it, the other says so and stays still, until it is free.

use anyhow::{Context, Result, ensure};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use testbed::bed::Bed;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::site::Site;

use crate::scene::{
    conditions, deletions, deploy, deploy_own, hasty, present, release_hold, target, untouched,
    wait_held,
};

/// A bundle of two ConfigMaps, one of its own and one that both have, in the release `shared`.
fn claim(site: &Site<'_>, name: &str, value: &str) -> BundleDeployment {
    let map = |name: &str| {
        format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  value: {value}\n"
        )
    };
    let text = map(name) + &map("common");
    BundleDeployment::content(name, vec![("maps.yaml".to_owned(), text.into())])
        .release("shared", &target(site))
        .correct_drift()
}

async fn common(site: &Site<'_>) -> Result<(Option<String>, Value)> {
    let map = site
        .object("v1", "ConfigMap", &target(site), "common")
        .await?;
    let map = map.context("the common ConfigMap")?;
    Ok((map.uid(), map.data["data"]["value"].clone()))
}

/// Wakes a bundle by something that means nothing.
async fn nudge(site: &Site<'_>, name: &str, round: usize) -> Result<()> {
    let label = json!({ "metadata": { "labels": { "round": round.to_string() } } });
    let bundles = site.bundle_deployments()?;
    bundles
        .patch(name, &PatchParams::default(), &Patch::Merge(&label))
        .await?;
    Ok(())
}

/// The one that has it comes last in every list.
#[tokio::test]
async fn a_release_that_two_bundles_want_stays_with_the_first() -> Result<()> {
    let mut site = Site::prepare(Bed::shared().await?).await?;
    hasty(&mut site).await?;
    deploy_own(&site).await?;
    site.apply(&claim(&site, "zeta", "one")).await?;
    let before = site.wait_ready("zeta").await?;
    let (uid, _) = common(&site).await?;
    let names = ["zeta".to_owned(), "common".to_owned()];

    site.apply(&claim(&site, "alpha", "two")).await?;
    let refused = format!("release {}/shared belongs to bundle zeta", target(&site));
    site.wait_deploy_error("alpha", |message| message == refused)
        .await?;
    // Whatever wakes them, and whatever the other wants now.
    for round in 0..6 {
        nudge(&site, "zeta", round).await?;
        nudge(&site, "alpha", round).await?;
        let wanted = claim(&site, "alpha", &format!("two-{round}"));
        site.apply(&wanted).await?;
        let id = format!("round {round} to be refused");
        site.wait_for("alpha", &id, |bundle| {
            bundle["metadata"]["labels"]["round"] == round.to_string().as_str()
                && conditions(bundle).contains(&refused)
        })
        .await?;
    }
    site.agent()?.restart()?;
    nudge(&site, "alpha", 99).await?;
    site.apply(&crate::scene::app(&site, "bystander")).await?;
    site.wait_ready("bystander").await?;
    let after = site.wait_ready("zeta").await?;
    ensure!(
        after["status"] == before["status"],
        "{:#}\n{:#}",
        before["status"],
        after["status"]
    );
    ensure!(present(&site, &names).await? == names);
    ensure!(common(&site).await? == (uid.clone(), json!("one")));
    let deleted = deletions(&site)?;
    ensure!(deleted.is_empty(), "{deleted:#?}");

    // Once it is free it is handed over as it stands.
    site.delete("zeta").await?;
    let ready = site.wait_ready("alpha").await?;
    let wanted = format!("{}/shared:2", target(&site));
    ensure!(
        ready["status"]["release"] == wanted.as_str(),
        "{:#}",
        ready["status"]
    );
    ensure!(
        common(&site).await? == (uid, json!("two-5")),
        "the common object was made anew"
    );
    ensure!(present(&site, &["zeta".to_owned()]).await?.is_empty());
    Ok(())
}

/// Both at once, and the one that loses goes: nothing of the other's goes with it.
#[tokio::test]
async fn a_bundle_that_was_refused_takes_nothing_with_it() -> Result<()> {
    let mut site = Site::prepare(Bed::shared().await?).await?;
    hasty(&mut site).await?;
    deploy_own(&site).await?;
    let (left, right) = (claim(&site, "left", "l"), claim(&site, "right", "r"));
    tokio::try_join!(site.apply(&left), site.apply(&right))?;
    let is_refused = |bundle: &Value| conditions(bundle).contains("/shared belongs to bundle ");
    let is_ready = |bundle: &Value| bundle["status"]["ready"] == json!(true);
    let settled = |bundle: &Value| is_refused(bundle) || is_ready(bundle);
    let one = site.wait_for("left", "to settle", settled).await?;
    let other = site.wait_for("right", "to settle", settled).await?;
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
    let before = site.wait_ready(winner).await?;
    ensure!(before["status"]["release"] == format!("{}/shared:1", target(&site)).as_str());
    site.delete(loser).await?;
    // The next removal is carried out, so this one was looked at as well.
    site.apply(&crate::scene::app(&site, "next")).await?;
    site.wait_ready("next").await?;
    site.delete("next").await?;
    crate::scene::gone(&site, &["next".to_owned()], testbed::fleet::site::PATIENCE).await?;
    let names = [winner.to_owned(), "common".to_owned()];
    ensure!(present(&site, &names).await? == names);
    ensure!(site.wait_ready(winner).await?["status"] == before["status"]);
    Ok(())
}

/// That the one that has it is not listed proves nothing, and is no reason to take it either: its objects would go.
#[tokio::test]
async fn a_release_that_is_held_is_not_taken_by_another_bundle() -> Result<()> {
    let mut site = Site::prepare(Bed::shared().await?).await?;
    hasty(&mut site).await?;
    site.apply(&claim(&site, "zeta", "one")).await?;
    site.wait_ready("zeta").await?;
    let (uid, _) = common(&site).await?;
    site.agent()?.kill();
    site.delete("zeta").await?;
    site.apply(&claim(&site, "alpha", "two")).await?;
    site.agent()?.restart()?;
    let refused = format!("release {}/shared belongs to bundle zeta", target(&site));
    site.wait_deploy_error("alpha", |message| message == refused)
        .await?;
    wait_held(&site, 1).await?;
    nudge(&site, "alpha", 1).await?;
    deploy(&site, "bystander", 1).await?;
    untouched(&site, &["zeta".to_owned(), "common".to_owned()]).await?;
    ensure!(common(&site).await? == (uid.clone(), json!("one")));
    release_hold(&site).await?;
    site.wait_ready("alpha").await?;
    ensure!(common(&site).await? == (uid, json!("two")));
    Ok(())
}
