//! What was there before a release, and what is no longer its own, stays: whatever is undone, dropped or removed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use http::{Method, Request};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use release::action::KnownRecords;
use release::storage::{Deletable, Storage};
use release::{Cluster, DeployOptions, UninstallError, UninstallSpec};
use testbed::cluster::ADMIN;
use testbed::proxy::{self, Answer};

use crate::definitions::{car, definition, group};
use crate::doomed::Doomed;
use crate::proofs::tracked;
use crate::world::{Template, World, config_map, job};

fn options(take_ownership: bool, atomic: bool) -> DeployOptions {
    DeployOptions {
        take_ownership,
        atomic,
        timeout: Some(Duration::from_secs(120)),
        ..DeployOptions::default()
    }
}

/// These ConfigMaps, and an object that the API server refuses.
fn failing(maps: &[&str]) -> Template {
    let refused = config_map("zz", "1").replace("\ndata:", "\ndota:");
    let maps: String = maps.iter().map(|name| config_map(name, "ours")).collect();
    Template::new(&(maps + &refused))
}

impl World {
    fn uid_of(&self, object: &str) -> Result<String> {
        self.kubectl(&["get", object, "--output=jsonpath={.metadata.uid}"])
    }

    /// An administrator's ConfigMap.
    fn theirs(&self, name: &str) -> Result<()> {
        self.kubectl(&["create", "configmap", name, "--from-literal=value=theirs"])?;
        Ok(())
    }

    async fn remove(&self) -> Result<release::Uninstalled> {
        let spec = UninstallSpec::new(&self.name, &self.namespace);
        Ok(release::uninstall(&self.cluster, &self.storage, &spec).await?)
    }
}

/// A first install over an administrator's objects fails and is undone: what it created goes, theirs stay.
#[tokio::test]
async fn an_undone_install_deletes_only_what_it_created() -> Result<()> {
    let world = World::new().await?;
    world.kubectl(&["create", "namespace", &world.namespace])?;
    world.theirs("theirs")?;
    let before = world.uid_of("configmap/theirs")?;
    let template = failing(&["theirs", "ours"]);
    for _ in 0..2 {
        let error = world.deploy_with(&template, options(true, true)).await;
        let reported = release::error_chain(&error.unwrap_err());
        assert!(
            reported.contains("due to rollback-on-failure"),
            "{reported}"
        );
        assert_eq!(world.uid_of("configmap/theirs")?, before);
        assert_eq!(world.value("ours").await?, "none");
    }
    Ok(())
}

/// Who unlocks a helm client deletes the record of what is pending: what that says was created is known all the same.
#[tokio::test]
async fn an_undone_install_takes_what_it_created_though_its_record_is_gone() -> Result<()> {
    let world = Arc::new(World::new().await?);
    let mut spec = world.spec(&failing(&["a"]), options(false, true));
    let unlocking = Arc::clone(&world);
    spec.on_written = Some(Arc::new(move || {
        let records = "owner=helm,status=pending-install";
        let deleted = unlocking.kubectl(&["delete", "secret", "--selector", records]);
        assert!(deleted.unwrap().contains("deleted"));
    }));
    let failed = release::deploy(&world.cluster, &world.storage, &spec).await;
    let reported = release::error_chain(&failed.unwrap_err());
    assert!(reported.contains("has been uninstalled"), "{reported}");
    assert_eq!(world.value("a").await?, "none");
    Ok(())
}

/// An install with `takeOwnership` fails and its bundle goes: what was there before was never the release's.
#[tokio::test]
async fn the_removal_of_a_release_that_never_deployed_takes_only_what_it_created() -> Result<()> {
    let world = World::new().await?;
    world.kubectl(&["create", "namespace", &world.namespace])?;
    world.theirs("theirs")?;
    let before = world.uid_of("configmap/theirs")?;
    let template = failing(&["theirs", "ours"]);
    let failed = world.deploy_with(&template, options(true, false)).await;
    failed.unwrap_err();
    let spec = UninstallSpec {
        is_attempt: true,
        ..UninstallSpec::new(&world.name, &world.namespace)
    };
    release::uninstall(&world.cluster, &world.storage, &spec).await?;
    assert_eq!(world.uid_of("configmap/theirs")?, before);
    assert_eq!(world.value("ours").await?, "none");
    assert!(world.history().await?.is_empty());
    Ok(())
}

/// Whose records were deleted, and which an update does not fit: nothing of what runs goes.
#[tokio::test]
async fn a_release_without_records_is_not_uninstalled_by_an_undo() -> Result<()> {
    let world = World::new().await?;
    let maps = ["a", "b"].map(|name| config_map(name, "1")).concat();
    world.deploy(&maps).await?;
    let before = [world.uid_of("configmap/a")?, world.uid_of("configmap/b")?];
    world.kubectl(&["delete", "secret", "--selector", "owner=helm,name=web"])?;
    for _ in 0..2 {
        let template = failing(&["a", "b", "new"]);
        let error = world.deploy_with(&template, options(false, true)).await;
        let reported = release::error_chain(&error.unwrap_err());
        assert!(
            reported.contains("due to rollback-on-failure"),
            "{reported}"
        );
        assert_eq!(world.uid_of("configmap/a")?, before[0]);
        assert_eq!(world.uid_of("configmap/b")?, before[1]);
        assert_eq!(world.value("new").await?, "none");
        assert!(!world.history().await?.is_empty(), "it is still known");
    }
    world.deploy(&maps).await?;
    assert_eq!(world.uid_of("configmap/a")?, before[0]);
    world.remove().await?;
    assert_eq!(world.value("a").await?, "none");
    Ok(())
}

/// An upgrade takes an administrator's object over, as the Go agent does. Whatever comes then (an undo, a later
/// revision, the way back by hand, a removal), the object stays.
#[tokio::test]
async fn an_object_that_was_there_before_outlives_the_release() -> Result<()> {
    let world = World::new().await?;
    world.deploy(&config_map("a", "1")).await?;
    world.theirs("theirs")?;
    let before = world.uid_of("configmap/theirs")?;
    let error = world
        .deploy_with(&failing(&["a", "theirs", "new"]), options(false, true))
        .await;
    let reported = release::error_chain(&error.unwrap_err());
    assert!(reported.contains("has been rolled back"), "{reported}");
    assert_eq!(world.uid_of("configmap/theirs")?, before, "undone");
    assert_eq!(world.value("new").await?, "none");

    let with = |value: &str| config_map("a", value) + &config_map("theirs", value);
    world.deploy(&with("2")).await?;
    assert_eq!(world.value("theirs").await?, "2", "taken over");
    world.deploy(&with("3")).await?;
    let back = world.deploy(&config_map("a", "4")).await?;
    assert_eq!(world.uid_of("configmap/theirs")?, before, "gone back");
    let left: Vec<&str> = back.retained.iter().map(|key| key.name.as_str()).collect();
    assert_eq!(left, ["theirs"], "and that is told");
    world.deploy(&with("5")).await?;
    let done = world.remove().await?;
    assert_eq!(world.uid_of("configmap/theirs")?, before, "removed");
    assert_eq!(world.value("a").await?, "none");
    let left: Vec<&str> = done.adopted.iter().map(|key| key.name.as_str()).collect();
    assert_eq!(left, ["theirs"], "and that is told");
    Ok(())
}

/// With `takeOwnership` only the removal takes it, whether that was said at once or later.
#[tokio::test]
async fn an_object_taken_with_take_ownership_goes_with_the_release_alone() -> Result<()> {
    for at_once in [true, false] {
        let world = World::new().await?;
        world.deploy(&config_map("a", "1")).await?;
        world.theirs("theirs")?;
        let before = world.uid_of("configmap/theirs")?;
        let both =
            |value: &str| Template::new(&(config_map("a", value) + &config_map("theirs", value)));
        world
            .deploy_with(&both("2"), options(at_once, false))
            .await?;
        world.deploy_with(&both("3"), options(true, false)).await?;
        world.deploy(&config_map("a", "4")).await?;
        assert_eq!(world.uid_of("configmap/theirs")?, before, "gone back");
        world.deploy_with(&both("5"), options(false, false)).await?;
        let done = world.remove().await?;
        assert_eq!(world.value("theirs").await?, "none");
        assert!(done.adopted.is_empty());
    }
    Ok(())
}

/// What another release had is this one's once it was deployed, and not for an attempt that failed.
#[tokio::test]
async fn an_object_of_another_release_survives_an_undone_attempt_to_take_it() -> Result<()> {
    let theirs = World::new().await?;
    theirs.deploy(&config_map("shared", "theirs")).await?;
    let ours = theirs.beside("ours").await?;
    ours.deploy(&config_map("a", "1")).await?;
    let before = ours.uid_of("configmap/shared")?;
    let error = ours
        .deploy_with(&failing(&["a", "shared"]), options(true, true))
        .await;
    error.unwrap_err();
    assert_eq!(ours.uid_of("configmap/shared")?, before, "undone");
    ours.deploy(&config_map("a", "2")).await?;
    assert_eq!(ours.uid_of("configmap/shared")?, before, "left behind");
    let both = Template::new(&(config_map("a", "3") + &config_map("shared", "3")));
    ours.deploy_with(&both, options(true, false)).await?;
    ours.deploy(&config_map("a", "4")).await?;
    assert_eq!(ours.value("shared").await?, "none", "it was ours then");
    Ok(())
}

/// Another release took an object of the last good revision, and the revision that no longer has it fails: going back leaves it
/// there, also where the attempt might have taken what others have.
#[tokio::test]
async fn a_rollback_takes_no_object_from_its_new_owner() -> Result<()> {
    for take_ownership in [false, true] {
        let former = World::new().await?;
        former
            .deploy(&(config_map("a", "1") + &config_map("moved", "1")))
            .await?;
        let taker = former.beside("taker").await?;
        let moved = Template::new(&config_map("moved", "taken"));
        taker.deploy_with(&moved, options(true, false)).await?;
        let before = former.config_map("moved").await?;
        let error = former
            .deploy_with(&failing(&["a"]), options(take_ownership, true))
            .await;
        let reported = release::error_chain(&error.unwrap_err());
        assert!(reported.contains("has been rolled back"), "{reported}");
        assert_eq!(former.value("a").await?, "1", "gone back");
        assert_eq!(former.config_map("moved").await?, before, "left");
        former.deploy(&config_map("a", "3")).await?;
        assert_eq!(former.config_map("moved").await?, before, "dropped");
    }
    Ok(())
}

/// A version that was never deployed took objects, and the release goes: they were never the release's.
#[tokio::test]
async fn the_removal_of_a_release_leaves_what_only_a_failed_revision_took() -> Result<()> {
    let theirs = World::new().await?;
    theirs.deploy(&config_map("shared", "theirs")).await?;
    let ours = theirs.beside("ours").await?;
    ours.deploy(&config_map("a", "1")).await?;
    ours.theirs("theirs")?;
    let uids = || -> Result<_> {
        Ok([
            ours.uid_of("configmap/shared")?,
            ours.uid_of("configmap/theirs")?,
        ])
    };
    let before = uids()?;
    let failed = ours
        .deploy_with(
            &failing(&["a", "shared", "theirs", "new"]),
            options(true, false),
        )
        .await;
    failed.unwrap_err();
    assert_eq!(ours.value("shared").await?, "ours", "it was taken");
    ours.remove().await?;
    assert_eq!(uids()?, before);
    for name in ["a", "new"] {
        assert_eq!(ours.value(name).await?, "none", "{name}");
    }
    Ok(())
}

/// What lies beside the record of a version that was never deployed, when its release goes.
#[derive(Debug, Clone, Copy)]
enum Beside {
    /// The record of the one that was.
    Deployed,
    /// That one's was deleted.
    Nothing,
    /// A helm client has gone on.
    Helms,
}

/// A version that was never deployed took objects of others and brought a namespace, and the release goes. Wherever its removal is cut off, the
/// next one takes no more than it would have.
#[tokio::test]
async fn a_removal_killed_after_any_write_leaves_what_only_a_failed_revision_took() -> Result<()> {
    let all = [Beside::Deployed, Beside::Nothing, Beside::Helms];
    try_join_all(all.map(killed_removals)).await?;
    Ok(())
}

async fn killed_removals(beside: Beside) -> Result<()> {
    for last in 1.. {
        let theirs = World::new().await?;
        theirs.deploy(&config_map("shared", "theirs")).await?;
        let (ours, book, plain) = tracked(World {
            name: "ours".to_owned(),
            namespace: theirs.namespace.clone(),
            ..World::new().await?
        });
        ours.deploy(&config_map("a", "1")).await?;
        ours.theirs("theirs")?;
        let brought = format!("{}-brought", ours.namespace);
        let mut template = failing(&["a", "shared", "theirs", "new"]);
        template.manifest = format!(
            "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {brought}\n{}",
            template.manifest
        );
        let failed = ours.deploy_with(&template, options(true, false)).await;
        failed.expect_err("one of its objects is refused");
        match beside {
            Beside::Deployed => {}
            Beside::Nothing => {
                let history = plain.history("ours").await?;
                let record = history.first().and_then(Deletable::own);
                plain.delete("ours", &record.context("a record")?).await?;
            }
            Beside::Helms => {
                let mut record = plain.get("ours", 1).await?;
                record.revision = 3;
                plain.create(&record).await?;
            }
        }
        let uids = || -> Result<_> {
            let objects = [
                "configmap/shared".to_owned(),
                "configmap/theirs".to_owned(),
                format!("namespace/{brought}"),
            ];
            objects.iter().map(|object| ours.uid_of(object)).collect()
        };
        let before: Vec<String> = uids()?;
        let mut doomed = Doomed::new(&ours).await?;
        doomed.storage = doomed.storage.with_digests(book);
        let was_cut_off = doomed.uninstall(last).await;
        ours.remove().await?;
        let what = format!("{beside:?} after change {last}");
        assert_eq!(uids()?, before, "{what}");
        let leaving = "--output=jsonpath={.metadata.deletionTimestamp}";
        let leaving = ours.kubectl(&["get", &format!("namespace/{brought}"), leaving])?;
        assert_eq!(leaving, "", "{what}");
        for name in ["a", "new"] {
            assert_eq!(ours.value(name).await?, "none", "{what}: {name}");
        }
        assert!(plain.history("ours").await?.is_empty(), "{what}");
        if !was_cut_off {
            assert!(last > 3, "{beside:?}: cut off after {last} changes at most");
            return Ok(());
        }
    }
    unreachable!("a removal ends")
}

/// Somebody uninstalls it with helm and installs something else, after it was found whose it is and before it is removed.
#[tokio::test]
async fn a_release_that_is_installed_anew_before_its_removal_stays() -> Result<()> {
    let world = World::new().await?;
    world.deploy(&config_map("a", "1")).await?;
    let known = KnownRecords::of(&world.storage.history("web").await?);
    world.remove().await?;
    world.deploy(&config_map("a", "2")).await?;
    let spec = UninstallSpec {
        known: Some(known),
        ..UninstallSpec::new("web", &world.namespace)
    };
    let removed = release::uninstall(&world.cluster, &world.storage, &spec).await;
    assert!(
        matches!(removed, Err(UninstallError::Taken(_))),
        "{removed:?}"
    );
    assert_eq!(world.value("a").await?, "2");
    Ok(())
}

/// An attempt brought a namespace and a kind, and others have come to use them: undoing it deletes neither.
#[tokio::test]
async fn an_undo_keeps_the_namespaces_and_definitions_it_brought() -> Result<()> {
    for is_first in [true, false] {
        let world = World::new().await?;
        if !is_first {
            world.deploy(&config_map("a", "1")).await?;
        }
        let shared = format!("{}-shared", world.namespace);
        let kind = format!("cars.{}", group(&world));
        let containers = format!(
            "---\n{}---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {shared}\n",
            definition(&world)
        );
        let mut template = failing(&["a", "new"]);
        template.manifest = containers + &template.manifest;
        let failed = world.deploy_with(&template, options(false, true)).await;
        let reported = release::error_chain(&failed.unwrap_err());
        assert!(
            reported.contains("due to rollback-on-failure"),
            "{reported}"
        );
        assert_eq!(world.value("new").await?, "none");
        for object in [format!("namespace/{shared}"), format!("crd/{kind}")] {
            let leaving = "--output=jsonpath={.metadata.deletionTimestamp}";
            let leaving = world.kubectl(&["get", &object, leaving])?;
            assert_eq!(leaving, "", "{object}, first: {is_first}");
        }
    }
    Ok(())
}

/// An attempt with `takeOwnership` that fails gives nobody's object to nobody: it stays when the release goes.
#[tokio::test]
async fn an_object_is_not_owned_by_an_attempt_that_fails() -> Result<()> {
    for atomic in [false, true] {
        let world = World::new().await?;
        world.deploy(&config_map("a", "1")).await?;
        world.theirs("theirs")?;
        let before = world.uid_of("configmap/theirs")?;
        let both = config_map("a", "2") + &config_map("theirs", "2");
        world.deploy(&both).await?;
        let failed = world
            .deploy_with(&failing(&["a", "theirs"]), options(true, atomic))
            .await;
        failed.unwrap_err();
        world
            .deploy(&both.replace("value: \"2\"", "value: \"4\""))
            .await?;
        let done = world.remove().await?;
        assert_eq!(
            world.uid_of("configmap/theirs")?,
            before,
            "atomic: {atomic}"
        );
        assert_eq!(done.adopted.len(), 1);
        assert_eq!(world.value("a").await?, "none");
    }
    Ok(())
}

/// A namespace that was there before is not the release's for what is in it, though `takeOwnership` gives it the object.
#[tokio::test]
async fn a_namespace_that_was_there_before_outlives_a_release_that_took_it() -> Result<()> {
    let world = World::new().await?;
    let shared = format!("{}-shared", world.namespace);
    world.kubectl(&["create", "namespace", &shared])?;
    let manifest = format!("---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {shared}\n");
    let template = Template::new(&(manifest + &config_map("a", "1")));
    world.deploy_with(&template, options(true, false)).await?;
    let done = world.remove().await?;
    let leaving = "--output=jsonpath={.metadata.deletionTimestamp}";
    let leaving = world.kubectl(&["get", "namespace", &shared, leaving])?;
    assert_eq!(leaving, "");
    let left: Vec<&str> = done.adopted.iter().map(|key| key.name.as_str()).collect();
    assert_eq!(left, [shared.as_str()], "and that is told");
    assert_eq!(world.value("a").await?, "none");
    Ok(())
}

/// What a release left to others is theirs whose chart has it next, and is so still where it could not be written.
#[tokio::test]
async fn a_namespace_that_was_left_stays_so_until_it_is_written() -> Result<()> {
    let world = World::new().await?;
    world.kubectl(&["create", "namespace", &world.namespace])?;
    let shared = format!("{}-shared", world.namespace);
    world.kubectl(&["create", "namespace", &shared])?;
    let left = "fleetagent.cattle.io/adopted=left";
    world.kubectl(&["annotate", "namespace", &shared, left])?;
    let manifest = |label: &str| {
        format!(
            "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {shared}\n  labels: {{a: {label:?}}}\n"
        )
    };
    let noted = || {
        let note = "--output=jsonpath={.metadata.annotations.fleetagent\\.cattle\\.io/adopted}";
        world.kubectl(&["get", "namespace", &shared, note])
    };
    let refused = world.deploy(&manifest("no label")).await.unwrap_err();
    let reported = release::error_chain(&refused);
    assert!(reported.contains("metadata.labels"), "{reported}");
    assert_eq!(noted()?, "left");
    world.deploy(&manifest("label")).await?;
    assert_eq!(noted()?, "handed-over");
    let done = world.remove().await?;
    assert_eq!(done.adopted, [], "it goes with the release");
    Ok(())
}

/// `force` does not delete what another release has for an attempt that may fail yet.
#[tokio::test]
async fn force_recreates_nothing_that_was_just_taken() -> Result<()> {
    let theirs = World::new().await?;
    let secret = |value: &str| {
        format!(
            "---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: s\nimmutable: true\nstringData: {{v: {value:?}}}\n"
        )
    };
    theirs.deploy(&secret("theirs")).await?;
    let before = theirs.uid_of("secret/s")?;
    let ours = World {
        name: "ours".to_owned(),
        namespace: theirs.namespace.clone(),
        storage: Storage::secrets(&theirs.cluster, &theirs.namespace),
        ..World::new().await?
    };
    ours.deploy(&config_map("a", "1")).await?;
    let forced = DeployOptions {
        force: true,
        ..options(true, false)
    };
    let both = Template::new(&(config_map("a", "2") + &secret("ours")));
    let error = ours.deploy_with(&both, forced).await;
    let reported = release::error_chain(&error.unwrap_err());
    assert!(
        reported.contains("it was there before this version"),
        "{reported}"
    );
    assert_eq!(theirs.uid_of("secret/s")?, before);
    Ok(())
}

/// What a version drops that holds more than itself goes once that version has succeeded, and not before.
#[tokio::test]
async fn a_volume_that_a_failing_version_dropped_is_still_there() -> Result<()> {
    let world = World::new().await?;
    let claim = "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata:\n  name: data\nspec:\n  accessModes: [ReadWriteOnce]\n  \
                 resources: {requests: {storage: 1Gi}}\n";
    let definition = definition(&world);
    let custom = car(&world, 4);
    // Its claims would go with it.
    let set = "---\napiVersion: apps/v1\nkind: StatefulSet\nmetadata:\n  name: set\nspec:\n  replicas: 0\n  serviceName: set\n  \
               selector: {matchLabels: {app: set}}\n  persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}\n  template:\n    \
               metadata: {labels: {app: set}}\n    spec: {containers: [{name: c, image: busybox}]}\n";
    let maps = config_map("a", "1") + &config_map("b", "1");
    let whole = definition.clone() + &maps + claim + set + &custom;
    world.deploy(&whole).await?;
    let before = world.uid_of("persistentvolumeclaim/data")?;
    let set_before = world.uid_of("statefulset/set")?;
    let beetle = format!("cars.{}/beetle", group(&world));
    let custom_before = world.uid_of(&beetle)?;
    let without = || Template::new(&(definition.clone() + &config_map("a", "2")));
    let endless = job("endless").replace("image: busybox", "image: busybox:never");
    let endless = without().hook("endless", "post-upgrade", &endless);
    for atomic in [false, true] {
        let brief = DeployOptions {
            timeout: Some(Duration::from_secs(1)),
            ..options(false, atomic)
        };
        let failed = world.deploy_with(&endless, brief).await;
        failed.unwrap_err();
        assert_eq!(
            world.uid_of("persistentvolumeclaim/data")?,
            before,
            "atomic: {atomic}"
        );
        assert_eq!(world.uid_of(&beetle)?, custom_before, "atomic: {atomic}");
        let set_now = world.uid_of("statefulset/set")?;
        assert_eq!(set_now, set_before, "atomic: {atomic}");
    }
    assert_eq!(world.value("b").await?, "1", "gone back");
    world.deploy_with(&without(), options(false, false)).await?;
    let leaving = "--output=jsonpath={.metadata.deletionTimestamp}";
    let left = world.kubectl(&[
        "get",
        "persistentvolumeclaim",
        "--ignore-not-found",
        leaving,
    ]);
    assert!(
        !left?.is_empty() || world.uid_of("persistentvolumeclaim/data").is_err(),
        "it succeeded"
    );
    world.uid_of(&beetle).unwrap_err();
    world.uid_of("statefulset/set").unwrap_err();
    Ok(())
}

/// A definition whose scope changes is not recreated over everything of its kind, nor is what asks to be kept.
#[tokio::test]
async fn force_recreates_neither_definitions_nor_what_asks_to_be_kept() -> Result<()> {
    let force = || DeployOptions {
        force: true,
        ..DeployOptions::default()
    };
    let world = World::new().await?;
    let cars = format!("cars.{}", group(&world));
    let manifest = format!("---\n{}", definition(&world));
    world.deploy(&manifest).await?;
    world.create(&car(&world, 4)).await?;
    let before = world.uid_of(&format!("{cars}/beetle"))?;
    let scoped = manifest.replace("scope: Namespaced", "scope: Cluster");
    assert_ne!(scoped, manifest);
    let error = world.deploy_with(&Template::new(&scoped), force()).await;
    let reported = release::error_chain(&error.unwrap_err());
    assert!(
        reported.contains(&cars) && reported.contains("every object of its kind"),
        "{reported}"
    );
    assert_eq!(world.uid_of(&format!("{cars}/beetle"))?, before);

    let world = World::new().await?;
    let secret = |value: &str| {
        format!(
            "---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: k\n  annotations: {{helm.sh/resource-policy: keep}}\n\
             immutable: true\nstringData: {{v: {value:?}}}\n"
        )
    };
    world.deploy(&secret("1")).await?;
    let before = world.uid_of("secret/k")?;
    let error = world
        .deploy_with(&Template::new(&secret("2")), force())
        .await;
    let reported = release::error_chain(&error.unwrap_err());
    assert!(reported.contains("helm.sh/resource-policy"), "{reported}");
    assert_eq!(world.uid_of("secret/k")?, before);
    // What asks for nothing is still recreated.
    let plain = |value: &str| {
        Template::new(
            &secret(value)
                .replace("  annotations: {helm.sh/resource-policy: keep}\n", "")
                .replace("name: k", "name: p"),
        )
    };
    world.deploy_with(&plain("1"), force()).await?;
    let before = world.uid_of("secret/p")?;
    world.deploy_with(&plain("2"), force()).await?;
    assert_ne!(world.uid_of("secret/p")?, before);
    Ok(())
}

/// What a controller keeps for a custom resource goes with it, as a StatefulSet's claims go with it where it says so.
#[tokio::test]
async fn force_recreates_no_custom_resource_and_nothing_whose_claims_go_with_it() -> Result<()> {
    let force = || DeployOptions {
        force: true,
        ..DeployOptions::default()
    };
    let world = World::new().await?;
    let rule = "properties: {spec: {type: object, properties: {doors: {type: integer, \
                x-kubernetes-validations: [{rule: self == oldSelf, message: field is immutable}]}}}}";
    let anything = "x-kubernetes-preserve-unknown-fields: true";
    let definition = definition(&world).replace(anything, rule);
    assert!(definition.contains(rule), "{definition}");
    let template = |doors| Template::new(&format!("{definition}---\n{}", car(&world, doors)));
    world.deploy_with(&template(4), force()).await?;
    let beetle = format!("cars.{}/beetle", group(&world));
    let before = world.uid_of(&beetle)?;
    let error = world.deploy_with(&template(3), force()).await;
    let reported = release::error_chain(&error.unwrap_err());
    assert!(
        reported.contains("field is immutable")
            && reported.contains("what its controller keeps for it"),
        "{reported}"
    );
    assert_eq!(world.uid_of(&beetle)?, before);

    let set = |policy: &str, service: &str| {
        Template::new(&format!(
            "---\napiVersion: apps/v1\nkind: StatefulSet\nmetadata:\n  name: db\nspec:\n  replicas: 0\n  serviceName: {service}\n  \
             persistentVolumeClaimRetentionPolicy: {{whenDeleted: {policy}, whenScaled: Retain}}\n  selector: {{matchLabels: {{app: db}}}}\n  \
             template:\n    metadata:\n      labels: {{app: db}}\n    spec:\n      containers: [{{name: db, image: db}}]\n"
        ))
    };
    let world = World::new().await?;
    world.deploy_with(&set("Delete", "a"), force()).await?;
    let before = world.uid_of("statefulset/db")?;
    let error = world.deploy_with(&set("Delete", "b"), force()).await;
    let reported = release::error_chain(&error.unwrap_err());
    assert!(reported.contains("volume claims"), "{reported}");
    assert_eq!(world.uid_of("statefulset/db")?, before);
    // What keeps its claims is recreated.
    world.deploy_with(&set("Retain", "a"), force()).await?;
    world.deploy_with(&set("Retain", "b"), force()).await?;
    assert_ne!(world.uid_of("statefulset/db")?, before);
    Ok(())
}

/// Only what was looked at is written over by force, at whichever moment somebody else writes the object: who takes it keeps it, and who
/// only writes it keeps nobody from replacing it.
#[tokio::test]
async fn force_writes_over_nothing_that_was_taken_meanwhile() -> Result<()> {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let service = |app: &str| {
        format!(
            "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: s\nspec:\n  selector: {{app: {app}}}\n  \
             ports: [{{port: 80}}]\n"
        )
    };
    let is_forced = |request: &Request<Incoming>| {
        let query = request.uri().query().unwrap_or_default();
        query.contains("force=true")
    };
    let is_replacement = |request: &Request<Incoming>| *request.method() == Method::PUT;
    let is_taking_over = |request: &Request<Incoming>| {
        let content = request.headers().get(http::header::CONTENT_TYPE);
        content.is_some_and(|content| content == "application/json-patch+json")
    };
    let held = r#"{"spec":{"selector":{"app":"edited"}}}"#;
    let contested = r#"{"spec":{"ports":[{"port":81}],"selector":{"app":"edited"}}}"#;
    let plain = r#"{"spec":{"ports":[{"port":81}]}}"#;
    type Moment = fn(&Request<Incoming>) -> bool;
    let moments: [(&str, &str, Moment); 4] = [
        ("what others hold is taken", held, is_forced),
        ("it is replaced", contested, is_replacement),
        ("its fields are taken over", contested, is_taking_over),
        ("it is applied over that", plain, is_forced),
    ];
    for (moment, edit, is_it) in moments {
        for (act, owner) in [
            (
                "annotate service/s --overwrite meta.helm.sh/release-name=other",
                "other",
            ),
            ("annotate service/s note=x", "web"),
        ] {
            let mut world = World::new().await?;
            world.deploy(&service("one")).await?;
            world.kubectl(&["patch", "service", "s", "--type=merge", "--patch", edit])?;
            let on_service = move |request: &Request<Incoming>| {
                request.uri().path().ends_with("/services/s") && is_it(request)
            };
            let met = interrupted_at(&mut world, on_service, vec![words(act)]).await?;
            let forced = DeployOptions {
                force: true,
                ..DeployOptions::default()
            };
            let done = world
                .deploy_with(&Template::new(&service("two")), forced)
                .await;
            assert!(met.load(Ordering::SeqCst) > 0, "{moment}: it came to that");
            let reported = done.map(drop).map_err(|error| release::error_chain(&error));
            assert_eq!(reported.is_ok(), owner == "web", "{moment}: {reported:?}");
            let shown = "--output=jsonpath={.metadata.annotations.meta\\.helm\\.sh/release-name}";
            let live = world.kubectl(&["get", "service", "s", shown])?;
            assert_eq!(live, owner, "{moment}");
            if owner == "web" {
                let shown = "--output=jsonpath={.spec.selector.app} {.spec.ports[*].port}";
                let live = world.kubectl(&["get", "service", "s", shown])?;
                assert_eq!(live, "two 80", "{moment}");
                let shown =
                    "--output=jsonpath={range .metadata.managedFields[*]}{.manager}/{.operation} ";
                let shown = format!("{shown}{{end}}");
                let managers = ["get", "service", "s", "--show-managed-fields", &shown];
                let managers = world.kubectl(&managers)?;
                assert!(
                    !managers.contains("fleetagent/Update"),
                    "{moment}: {managers}"
                );
            }
        }
    }
    Ok(())
}

/// While a hook of an upgrade runs another bundle takes an object of it, as the same field manager.
#[tokio::test]
async fn an_object_taken_by_another_release_during_hooks_is_not_overwritten() -> Result<()> {
    for take_ownership in [false, true] {
        let world = World::new().await?;
        world.deploy(&config_map("a", "1")).await?;
        let other = world.beside("other").await?;
        let theirs = std::env::temp_dir().join(format!("{}-theirs.yaml", world.namespace));
        let marks = format!(
            "metadata:\n  labels: {{app.kubernetes.io/managed-by: Helm}}\n  annotations: {{meta.helm.sh/release-name: \
             other, meta.helm.sh/release-namespace: {}}}\n",
            world.namespace
        );
        let taken = config_map("a", "theirs").replace("metadata:\n", &marks);
        std::fs::write(&theirs, taken)?;
        let path = theirs.to_string_lossy().into_owned();
        let takes = move || {
            let manager = "--field-manager=fleetagent";
            let apply = ["apply", "--server-side", manager, "--filename", &path];
            other.kubectl(&apply).expect("the other one has its way");
        };
        let template =
            Template::new(&config_map("a", "2")).hook("h", "pre-upgrade", &config_map("h", "1"));
        let mut spec = world.spec(&template, options(take_ownership, false));
        spec.on_hooks = Some(Arc::new(takes));
        let done = release::deploy(&world.cluster, &world.storage, &spec).await;
        std::fs::remove_file(&theirs)?;
        let reported = done.map(drop).map_err(|error| release::error_chain(&error));
        let noted = "--output=jsonpath={.metadata.annotations.fleetagent\\.cattle\\.io/adopted}";
        let noted = world.kubectl(&["get", "configmap", "a", noted])?;
        let value = world.value("a").await?;
        match take_ownership {
            false => {
                let reported = reported.unwrap_err();
                assert!(reported.contains("cannot be imported"), "{reported}");
                assert_eq!((value.as_str(), noted.as_str()), ("theirs", ""));
            }
            true => {
                assert_eq!(reported, Ok(()));
                assert_eq!((value.as_str(), noted.as_str()), ("2", "handed-over"));
            }
        }
    }
    Ok(())
}

/// A person makes an object of the release anew while a hook of an upgrade runs, or between the look at it and the write: it was there before, and
/// the version that drops it leaves it. One whose marks somebody strips is the release's all the same.
#[tokio::test]
async fn an_object_made_anew_during_an_upgrade_is_kept() -> Result<()> {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let anew = [
        "delete configmap a",
        "create configmap a --from-literal=value=theirs",
    ];
    let stripped = [
        "label configmap a app.kubernetes.io/managed-by-",
        "annotate configmap a meta.helm.sh/release-name- meta.helm.sh/release-namespace-",
    ];
    for (acts, has_hook, is_kept) in [
        (anew, true, true),
        (anew, false, true),
        (stripped, true, false),
        (stripped, false, false),
    ] {
        let mut world = World::new().await?;
        world.deploy(&config_map("a", "1")).await?;
        let mut template = Template::new(&config_map("a", "2"));
        let acts: Vec<_> = acts.into_iter().map(words).collect();
        if has_hook {
            let hooked = template.hook("h", "pre-upgrade", &config_map("h", "1"));
            let person = world.beside("person").await?;
            let mut spec = world.spec(&hooked, options(false, false));
            spec.on_hooks = Some(Arc::new(move || {
                for act in &acts {
                    let act: Vec<&str> = act.iter().map(String::as_str).collect();
                    person.kubectl(&act).expect("a person may");
                }
            }));
            release::deploy(&world.cluster, &world.storage, &spec).await?;
            template = hooked;
        } else {
            let met = interrupted(&mut world, Method::PATCH, "a", acts).await?;
            world.deploy_with(&template, options(false, false)).await?;
            assert!(met.load(Ordering::SeqCst) > 0, "it came to that");
        }
        let noted = "--output=jsonpath={.data.value} {.metadata.annotations.fleetagent\\.cattle\\.io/adopted}";
        let noted = world.kubectl(&["get", "configmap", "a", noted])?;
        let expected = if is_kept { "2 kept" } else { "2 " };
        assert_eq!(noted, expected, "hook: {has_hook}");
        template.manifest = config_map("b", "1");
        world.deploy_with(&template, options(false, false)).await?;
        let left = world.value("a").await?;
        assert_eq!(left != "none", is_kept, "hook: {has_hook}");
    }
    Ok(())
}

/// A proxy that does something of somebody else's before the first request of a method for a ConfigMap reaches the server. Gives how many there
/// were.
pub(crate) async fn interrupted(
    world: &mut World,
    method: Method,
    name: &'static str,
    act: Vec<Vec<String>>,
) -> Result<Arc<AtomicUsize>> {
    let is_it = move |request: &Request<Incoming>| {
        let path = request.uri().path();
        *request.method() == method && path.ends_with(&format!("/configmaps/{name}"))
    };
    interrupted_at(world, is_it, act).await
}

/// As [`interrupted`], before the first of the requests that `is_it` tells.
async fn interrupted_at(
    world: &mut World,
    is_it: impl Fn(&Request<Incoming>) -> bool + Send + Sync + 'static,
    act: Vec<Vec<String>>,
) -> Result<Arc<AtomicUsize>> {
    let kubeconfig = world.plane.kubeconfig(ADMIN)?;
    let namespace = world.namespace.clone();
    let act = Arc::new(Mutex::new(act));
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let is_it = Arc::new(is_it);
    let url = proxy::listen(
        world.plane.kubeconfig_value(ADMIN, "default"),
        move |client, request: Request<Incoming>| {
            let (kubeconfig, namespace) = (kubeconfig.clone(), namespace.clone());
            let (act, counted) = (Arc::clone(&act), Arc::clone(&counted));
            let is_it = is_it(&request);
            async move {
                if is_it {
                    counted.fetch_add(1, Ordering::SeqCst);
                    let due = std::mem::take(&mut *act.lock().expect("nobody panics"));
                    for arguments in due {
                        let kubectl = testbed::tools::Tool::Kubectl.path().expect("it is built");
                        let status = std::process::Command::new(kubectl)
                            .arg("--kubeconfig")
                            .arg(&kubeconfig)
                            .args(["--namespace", &namespace])
                            .args(&arguments)
                            .status();
                        assert!(status.is_ok_and(|status| status.success()), "{arguments:?}");
                    }
                }
                pass(&client, request).await
            }
        },
    )
    .await?;
    let config = kube::Config::new(url.parse().context("the proxy's address")?);
    world.cluster = Cluster::new(kube::Client::try_from(config)?);
    world.storage = Storage::secrets(&world.cluster, &world.namespace);
    Ok(requests)
}

async fn pass(client: &kube::Client, request: Request<Incoming>) -> Answer {
    let request = proxy::forwarded(request).await.expect("whole requests");
    let answer = client.send(request).await.expect("an answer");
    answer.map(BodyExt::boxed_unsync)
}

/// What goes between the look at it and the write over it is made anew by the attempt, which knows that it is, and takes it back when it fails.
#[tokio::test]
async fn an_object_created_in_place_of_a_deleted_one_is_undone_with_the_attempt() -> Result<()> {
    let mut world = World::new().await?;
    world.kubectl(&["create", "namespace", &world.namespace])?;
    world.kubectl(&["create", "configmap", "a", "--from-literal=k=theirs"])?;
    // The first apply would create it, and shows that it is there.
    let applies = AtomicUsize::new(0);
    let is_second_apply = move |request: &Request<Incoming>| {
        let content = request.headers().get(http::header::CONTENT_TYPE);
        let is_apply = content.is_some_and(|content| content == "application/apply-patch+yaml");
        is_apply
            && request.uri().path().ends_with("/configmaps/a")
            && applies.fetch_add(1, Ordering::SeqCst) == 1
    };
    let delete = ["delete", "configmap", "a"].map(str::to_owned).to_vec();
    let met = interrupted_at(&mut world, is_second_apply, vec![delete]).await?;
    let refused = config_map("b", "1").replace("\ndata:", "\ndota:");
    let failing = Template::new(&(config_map("a", "1") + &refused));
    let failed = world.deploy_with(&failing, options(true, true)).await;
    let reported = release::error_chain(&failed.unwrap_err());
    assert_eq!(met.load(Ordering::SeqCst), 1, "{reported}");
    assert_eq!(world.value("a").await?, "none", "{reported}");
    Ok(())
}

/// Between our look and our deletion another release adopts the object, which keeps its uid; or somebody
/// writes it, which takes nothing from us.
#[tokio::test]
async fn an_object_adopted_between_check_and_deletion_stays() -> Result<()> {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    for (act, left) in [
        (
            "annotate configmap/old --overwrite meta.helm.sh/release-name=other",
            "1",
        ),
        ("annotate configmap/old note=x", "none"),
    ] {
        let mut world = World::new().await?;
        world
            .deploy(&(config_map("a", "1") + &config_map("old", "1")))
            .await?;
        let deletions = interrupted(&mut world, Method::DELETE, "old", vec![words(act)]).await?;
        let done = world.deploy(&config_map("a", "2")).await?;
        assert_eq!(world.value("old").await?, left, "{act}");
        assert_eq!(done.retained.len(), usize::from(left == "1"), "{act}");
        let tries = deletions.load(Ordering::SeqCst);
        assert_eq!(tries, if left == "1" { 1 } else { 2 }, "{act}");
    }
    Ok(())
}

/// What a version dropped another release may have by now, though the newest record that is left says that it is ours.
#[tokio::test]
async fn a_former_revision_proves_nothing_of_what_was_dropped_since() -> Result<()> {
    let (world, digests, _) = tracked(World::new().await?);
    let both = config_map("a", "1") + &config_map("x", "1");
    world.deploy(&both).await?;
    world.deploy(&config_map("a", "2")).await?;
    digests.own();
    let other = world.beside("other").await?;
    other.deploy(&config_map("x", "theirs")).await?;
    let before = world.uid_of("configmap/x")?;
    world.kubectl(&["delete", "secret", &release::storage::key("web", 2)])?;
    let reported = world.deploy(&both).await.unwrap_err();
    let reported = release::error_chain(&reported);
    assert!(
        reported.contains("invalid ownership metadata"),
        "{reported}"
    );
    assert_eq!(world.uid_of("configmap/x")?, before);
    assert_eq!(world.value("x").await?, "theirs");
    Ok(())
}

/// The cluster, to somebody who may not delete what has this path.
async fn protecting(world: &World, protected: String) -> Result<Cluster> {
    let kubeconfig = world.plane.kubeconfig_value(ADMIN, "default");
    let url = proxy::listen(kubeconfig, move |client, request| {
        let path = request.uri().path();
        let is_refused = request.method() == Method::DELETE && path.ends_with(&protected);
        async move {
            if is_refused {
                let refused = testbed::fault_proxy::refusal(403, "Forbidden", "it is protected");
                let body = http_body_util::Full::from(refused.to_string());
                let mut answer =
                    http::Response::new(body.map_err(|never| match never {}).boxed_unsync());
                *answer.status_mut() = http::StatusCode::FORBIDDEN;
                return answer;
            }
            let request = proxy::forwarded(request).await.expect("whole requests");
            let answer = client.send(request).await.expect("an answer");
            answer.map(BodyExt::boxed_unsync)
        }
    })
    .await?;
    let config = kube::Config::new(url.parse().context("the proxy's address")?);
    Ok(Cluster::new(kube::Client::try_from(config)?))
}

/// An account that may make namespaces and not delete them: what stays anyway is no reason to refuse a version.
#[tokio::test]
async fn a_retained_namespace_needs_no_right_to_delete_it() -> Result<()> {
    let (mut world, _, plain) = tracked(World::new().await?);
    let theirs = Template::new(&config_map("a", "1"));
    let spec = world.spec(&theirs, DeployOptions::default());
    release::deploy(&world.cluster, &plain, &spec).await?;
    let team = format!("{}-team", world.namespace);
    let namespace = format!("---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {team}}}\n");
    let refused = config_map("b", "1").replace("\ndata:", "\ndota:");
    let failing = Template::new(&(config_map("a", "2") + &namespace + &refused));
    let failed = world.deploy_with(&failing, options(true, false)).await;
    failed.unwrap_err();
    world.uid_of(&format!("namespace/{team}"))?;
    world.cluster = protecting(&world, format!("/namespaces/{team}")).await?;
    let without = Template::new(&config_map("a", "3"));
    world.deploy_with(&without, options(true, false)).await?;
    assert_eq!(world.value("a").await?, "3");
    world.uid_of(&format!("namespace/{team}"))?;
    Ok(())
}

/// Who takes a release over and may not delete all that it drops tries that again and again: it takes nothing with any of these tries.
#[tokio::test]
async fn a_takeover_that_may_not_drop_all_drops_nothing() -> Result<()> {
    let (mut world, _, plain) = tracked(World::new().await?);
    let theirs: String = ["a", "dropped", "protected"]
        .map(|name| config_map(name, "1"))
        .concat();
    let theirs = Template::new(&theirs);
    let spec = world.spec(&theirs, DeployOptions::default());
    release::deploy(&world.cluster, &plain, &spec).await?;
    let before = world.uid_of("configmap/dropped")?;
    world.cluster = protecting(&world, "/configmaps/protected".to_owned()).await?;
    for _ in 0..2 {
        let template = Template::new(&config_map("a", "2"));
        let reported = world.deploy_with(&template, options(true, false)).await;
        let reported = release::error_chain(&reported.unwrap_err());
        assert!(reported.contains("it is protected"), "{reported}");
        assert_eq!(world.uid_of("configmap/dropped")?, before);
    }
    Ok(())
}
