//! Records that a tenant writes, or labels, over a release that was deployed here: they decide neither which hooks run nor what is taken away.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use release::model::{Release, Status};
use release::storage::Storage;
use release::{ApplyMethod, DeployError, DeployOptions, UninstallSpec};
use serde_json::json;

use crate::proofs::{Digests, with_digests};
use crate::world::{Template, World, config_map};

/// A release with two objects and one that asks to be kept, which is its bundle's, and records without digests.
async fn deployed() -> Result<(World, Arc<Digests>, Storage)> {
    let (world, book, plain) = with_digests().await?;
    let kept = config_map("kept", "1").replace(
        "  name: kept",
        "  annotations: {helm.sh/resource-policy: keep}\n  name: kept",
    );
    let all = config_map("a", "1") + &config_map("b", "1") + &kept;
    world.deploy(&all).await?;
    book.own();
    Ok((world, book, plain))
}

/// Writes a revision above ours.
async fn forge(plain: &Storage, status: Status, change: impl Fn(&mut Release)) -> Result<()> {
    let mut forged = plain.get("web", 1).await?;
    forged.revision = 2;
    forged.set_status(status, "forged");
    change(&mut forged);
    plain.create(&forged).await?;
    Ok(())
}

/// The annotations of an object.
async fn annotations(world: &World, name: &str) -> Result<String> {
    let map = world.config_map(name).await?.expect("it is there");
    Ok(map["metadata"]["annotations"].to_string())
}

#[tokio::test]
async fn an_object_a_forged_revision_omits_is_pruned_by_the_next() -> Result<()> {
    let (world, _, plain) = deployed().await?;
    forge(&plain, Status::Deployed, |forged| forged.manifest.clear()).await?;
    let done = world.deploy(&config_map("a", "2")).await?;
    assert_eq!(done.plan.action.from(), Some(2));
    assert_eq!(world.config_map("b").await?, None);
    assert_eq!(world.value("a").await?, "2");
    assert!(world.config_map("kept").await?.is_some());
    // It was the release's before, as the last record of ours says.
    let noted = annotations(&world, "a").await?;
    assert!(!noted.contains("adopted"), "{noted}");
    Ok(())
}

/// Nobody looks at more than a bounded number of what others' records name. A namespace of the release stays then: one of them may ask to be kept in it.
#[tokio::test]
async fn a_forged_record_of_very_many_objects_holds_up_no_removal() -> Result<()> {
    let (world, book, plain) = with_digests().await?;
    let data = format!("{}-data", world.namespace);
    let namespace = format!("---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {data}}}\n");
    world.deploy(&(config_map("a", "1") + &namespace)).await?;
    book.own();
    forge(&plain, Status::Failed, |forged| {
        let one = |number: u32| {
            format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a{number}, namespace: {data}}}\n")
        };
        forged.manifest = (0..10_001).map(one).collect();
    })
    .await?;
    let spec = UninstallSpec::new("web", &world.namespace);
    let done = release::uninstall(&world.cluster, &world.storage, &spec).await?;
    let kept: Vec<&str> = done.kept.iter().map(|key| key.name.as_str()).collect();
    assert_eq!(kept, [data.as_str()]);
    assert_eq!(world.config_map("a").await?, None);
    assert!(world.history().await?.is_empty());
    Ok(())
}

/// Writes over the status in a record's labels.
pub(crate) async fn label(world: &World, revision: i64, status: &str) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    let label = json!({"metadata": {"labels": {"status": status}}});
    let name = release::storage::key("web", revision);
    let patch = Patch::Merge(&label);
    secrets
        .patch(&name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// How it is made to look as if the release had been removed, or never deployed.
#[derive(Clone, Copy, Debug)]
enum Lie {
    /// A revision above ours says so.
    Above(&'static str),
    /// The label of ours does.
    Label(&'static str),
}

impl Lie {
    async fn write(self, world: &World, plain: &Storage) -> Result<()> {
        match self {
            Self::Above(status) => forge(plain, Status::from(status), |_| {}).await,
            Self::Label(status) => label(world, 1, status).await,
        }
    }
}

/// Objects `a` and, once it has run, `first` or `later`.
fn with_hooks(value: &str) -> Template {
    Template::new(&config_map("a", value))
        .hook("first", "pre-install", &config_map("first", "1"))
        .hook("later", "pre-upgrade", &config_map("later", "1"))
}

#[tokio::test]
async fn nothing_is_installed_over_what_runs() -> Result<()> {
    for lie in [
        Lie::Above("uninstalled"),
        Lie::Above("uninstalling"),
        Lie::Above("failed"),
        Lie::Label("uninstalled"),
        Lie::Label("uninstalling"),
        Lie::Label("failed"),
        Lie::Label("something"),
    ] {
        let (world, _, plain) = deployed().await?;
        lie.write(&world, &plain).await?;
        let done = world
            .deploy_with(&with_hooks("2"), DeployOptions::default())
            .await?;
        assert_eq!(done.plan.action.from(), Some(1), "{lie:?} {:?}", done.plan);
        assert_eq!(world.config_map("first").await?, None, "{lie:?}");
        assert_eq!(world.value("later").await?, "1", "{lie:?}");
        assert_eq!(world.config_map("b").await?, None, "{lie:?}");
        assert_eq!(world.value("a").await?, "2", "{lie:?}");
    }
    Ok(())
}

/// Somebody labels a failed attempt as deployed, to get the release going again: what it has left undone is done all the same.
#[tokio::test]
async fn an_attempt_that_only_its_label_calls_deployed_is_finished() -> Result<()> {
    let (world, _, _) = deployed().await?;
    let refused = config_map("c", "1").replace("\ndata:", "\ndota:");
    let content = config_map("a", "2") + &refused;
    assert!(world.deploy(&content).await.is_err());
    label(&world, 2, "deployed").await?;
    let again = world.deploy(&content).await;
    assert!(again.is_err(), "it was not deployed: {again:?}");
    // As an attempt of the same number, which drops what the version before had.
    let done = world.deploy(&config_map("a", "2")).await?;
    assert_eq!(done.plan.action.from(), Some(1));
    assert_eq!(world.config_map("b").await?, None);
    Ok(())
}

/// Two labels say that the good revision was removed, and that the failed one is good.
#[tokio::test]
async fn nothing_is_installed_over_what_runs_below_a_failed_attempt() -> Result<()> {
    let (world, _, _) = deployed().await?;
    // What an attempt has created is told by its time, in whole seconds.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let refused = config_map("c", "1").replace("\ndata:", "\ndota:");
    assert!(
        world
            .deploy(&(config_map("a", "2") + &refused))
            .await
            .is_err()
    );
    label(&world, 1, "uninstalled").await?;
    label(&world, 2, "deployed").await?;
    let done = world
        .deploy_with(&with_hooks("3"), DeployOptions::default())
        .await?;
    assert_eq!(done.plan.action.from(), Some(1), "{:?}", done.plan);
    assert_eq!(world.config_map("first").await?, None);
    assert_eq!(world.value("a").await?, "3");
    Ok(())
}

/// The version that runs is damaged, and a label calls the failed attempt below it good: that one is neither built on nor gone back to.
#[tokio::test]
async fn a_failed_attempt_below_a_damaged_version_is_not_built_on() -> Result<()> {
    for is_atomic in [false, true] {
        let (world, _, plain) = deployed().await?;
        let deploy = async |content: String, atomic| {
            let options = DeployOptions {
                max_history: 10,
                atomic,
                ..DeployOptions::default()
            };
            world.deploy_with(&Template::new(&content), options).await
        };
        let refused = config_map("c", "1").replace("\ndata:", "\ndota:");
        let failed = deploy(config_map("a", "2") + &refused, false).await;
        assert!(failed.is_err());
        let both = config_map("a", "3") + &config_map("b", "3");
        assert_eq!(deploy(both, false).await?.release.revision, 3);
        let mut damaged = plain.get("web", 3).await?;
        damaged.manifest += "# edited\n";
        plain.update(&damaged).await?;
        label(&world, 2, "deployed").await?;
        if is_atomic {
            let undone = deploy(config_map("a", "4") + &refused, true).await;
            let undone = undone.unwrap_err();
            assert!(matches!(undone, DeployError::Undone { .. }), "{undone:?}");
            assert_eq!(world.value("a").await?, "1");
            continue;
        }
        let done = deploy(config_map("a", "4"), false).await?;
        assert_eq!(done.plan.action.from(), Some(1), "{:?}", done.plan);
        assert_eq!(world.config_map("b").await?, None);
    }
    Ok(())
}

/// A record that says of itself that it is not what runs, under the label of one that is deployed, corrects nothing: it is written anew.
#[tokio::test]
async fn a_record_that_says_that_it_was_removed_is_deployed_anew() -> Result<()> {
    for status in [
        Status::Uninstalled,
        Status::Uninstalling,
        Status::Superseded,
    ] {
        let (world, _, plain) = deployed().await?;
        let stored = plain.get("web", 1).await?;
        let content = stored.manifest.clone();
        let mut lying = stored;
        lying.set_status(status.clone(), "forged");
        plain.update(&lying).await?;
        label(&world, 1, "deployed").await?;
        let done = world.deploy(&content).await?;
        assert!(done.changed, "{status}: {:?}", done.plan);
        assert_eq!(done.release.status(), Status::Deployed);
    }
    Ok(())
}

/// What is removed indeed leaves what asks to be kept, and that makes no upgrade of the next install.
#[tokio::test]
async fn a_removed_release_is_installed_anew() -> Result<()> {
    // By helm; after an upgrade by helm.
    for removal in [Lie::Label("uninstalled"), Lie::Above("uninstalled")] {
        let (world, _, plain) = deployed().await?;
        removal.write(&world, &plain).await?;
        let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &world.namespace);
        for name in ["a", "b"] {
            maps.delete(name, &DeleteParams::default()).await?;
        }
        let refused = config_map("c", "1").replace("\ndata:", "\ndota:");
        let mut failing = with_hooks("2");
        failing.manifest += &refused;
        let failed = world.deploy_with(&failing, DeployOptions::default()).await;
        assert!(failed.is_err());
        assert_eq!(world.value("first").await?, "1", "{removal:?}");
        // What that one created is no sign that the release was there.
        assert_eq!(world.value("a").await?, "2", "{removal:?}");
        let again = with_hooks("3");
        let done = world.deploy_with(&again, DeployOptions::default()).await?;
        let from = done.plan.action.from();
        assert_eq!(from, None, "{removal:?} {:?}", done.plan);
        assert_eq!(world.config_map("later").await?, None, "{removal:?}");
    }
    Ok(())
}

/// Its manifest names what is somebody else's on an object of ours, and says that a client merged it.
#[tokio::test]
async fn a_forged_revision_removes_no_field_of_an_object() -> Result<()> {
    let (world, _, plain) = deployed().await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &world.namespace);
    let injected = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"injected": "yes"},
    });
    let by = PatchParams::apply("policy-engine");
    maps.patch("a", &by, &Patch::Apply(&injected)).await?;
    let lie = |forged: &mut Release| {
        forged.apply_method = ApplyMethod::Unset;
        forged.manifest = config_map("a", "1") + "  injected: \"yes\"\n";
    };
    forge(&plain, Status::Deployed, lie).await?;
    world.deploy(&config_map("a", "2")).await?;
    let map = world.config_map("a").await?.expect("it is there");
    assert_eq!(map["data"], json!({"value": "2", "injected": "yes"}));
    Ok(())
}

/// A number so high that none is left to count to.
#[tokio::test]
async fn a_forged_number_leaves_room_for_the_next_version() -> Result<()> {
    let (world, _, plain) = deployed().await?;
    let highest = i64::MAX / 2;
    forge(&plain, Status::Deployed, |forged| forged.revision = highest).await?;
    for (version, expected) in [("2", highest + 1), ("3", highest + 2)] {
        let done = world.deploy(&config_map("a", version)).await?;
        assert_eq!(done.release.revision, expected);
        assert_eq!(world.value("a").await?, version);
    }
    let spec = UninstallSpec::new("web", &world.namespace);
    release::uninstall(&world.cluster, &world.storage, &spec).await?;
    assert_eq!(world.value("a").await?, "none");
    assert!(world.history().await?.is_empty());
    Ok(())
}
