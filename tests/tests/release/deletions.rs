//! What must not be deleted: somebody else's object with a hook's name, a definition that is a hook, an object that was recreated a
//! moment ago, another release's object, the record of the revision an upgrade builds on.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use http::{Method, Request};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use release::model::Status;
use release::storage::{Storage, StoredRelease};
use release::{
    Cluster, ContainerUsage, DeployOptions, OtherReleases, UninstallError, UninstallSpec,
};
use testbed::cluster::ADMIN;
use testbed::proxy::{self, Answer};

use crate::definitions::{car, definition, group};
use crate::doomed::Doomed;
use crate::owners::interrupted;
use crate::proofs::with_digests;
use crate::world::{Template, World, config_map};

impl World {
    fn id(&self, object: &str) -> Result<String> {
        self.kubectl(&["get", object, "--output=jsonpath={.metadata.uid}"])
    }
}

/// Whatever its policies, and whether the object carries another release's marks or nobody's.
#[tokio::test]
async fn a_hook_deletes_and_overwrites_only_hooks_of_its_release() -> Result<()> {
    for policies in ["before-hook-creation", "hook-succeeded"] {
        for marked in [false, true] {
            let world = World::new().await?;
            world.kubectl(&["create", "namespace", &world.namespace])?;
            world.kubectl(&["create", "configmap", "theirs", "--from-literal=value=kept"])?;
            if marked {
                let marks = [
                    "helm.sh/hook=pre-install",
                    "meta.helm.sh/release-name=other",
                ];
                let namespace = format!("meta.helm.sh/release-namespace={}", world.namespace);
                let annotate = ["annotate", "configmap/theirs"];
                world.kubectl(&[&annotate[..], &marks, &[&namespace]].concat())?;
            }
            let before = world.id("configmap/theirs")?;
            let mut template = Template::new(&config_map("a", "1")).hook(
                "theirs",
                "pre-install",
                &config_map("theirs", "taken"),
            );
            template.hooks[0].delete_policies = vec![policies.to_owned()];
            for _ in 0..2 {
                let reported = world.deploy_with(&template, DeployOptions::default()).await;
                let reported = release::error_chain(&reported.unwrap_err());
                assert!(
                    reported.contains("is not a hook of this release"),
                    "{reported}"
                );
            }
            assert_eq!(world.id("configmap/theirs")?, before, "{policies} {marked}");
            assert_eq!(world.value("theirs").await?, "kept", "{policies} {marked}");
            assert_eq!(world.value("a").await?, "none");
        }
    }
    Ok(())
}

/// A person's object may say that it is a hook, as a copy of one does. Helm creates a hook that no policy makes way for, and fails as the name is taken;
/// what an earlier run here left is written over.
#[tokio::test]
async fn a_hook_is_not_written_over_what_a_person_made_as_one() -> Result<()> {
    for take_ownership in [false, true] {
        let world = World::new().await?;
        let mut template = Template::new(&config_map("a", "1")).hook(
            "theirs",
            "pre-install",
            &config_map("theirs", "taken"),
        );
        template.hooks[0].delete_policies = vec!["hook-succeeded".to_owned()];
        world.kubectl(&["create", "namespace", &world.namespace])?;
        world.kubectl(&["create", "configmap", "theirs", "--from-literal=value=kept"])?;
        world.kubectl(&["annotate", "configmap/theirs", "helm.sh/hook=pre-install"])?;
        let before = world.id("configmap/theirs")?;
        let options = || DeployOptions {
            take_ownership,
            ..DeployOptions::default()
        };
        for _ in 0..2 {
            let reported = world.deploy_with(&template, options()).await;
            let reported = release::error_chain(&reported.unwrap_err());
            assert!(
                reported.contains("is not a hook of this release"),
                "{reported}"
            );
        }
        assert_eq!(world.id("configmap/theirs")?, before);
        assert_eq!(world.value("theirs").await?, "kept");
        world.kubectl(&["delete", "configmap", "theirs"])?;
        template.hooks[0].delete_policies = vec!["hook-failed".to_owned()];
        world.deploy_with(&template, options()).await?;
        template.hooks[0].events = vec!["pre-upgrade".to_owned()];
        template.hooks[0].manifest = template.hooks[0].manifest.replace("taken", "again");
        world.deploy_with(&template, options()).await?;
        assert_eq!(world.value("theirs").await?, "again");
    }
    Ok(())
}

/// Between our look and the creation somebody makes an object of the hook's name, which may say that it is a hook.
#[tokio::test]
async fn a_hook_does_not_overwrite_an_object_created_after_the_check() -> Result<()> {
    for policies in [
        "before-hook-creation,hook-failed",
        "hook-succeeded,hook-failed",
    ] {
        for marks in [None, Some("helm.sh/hook=pre-install")] {
            let mut world = World::new().await?;
            world.kubectl(&["create", "namespace", &world.namespace])?;
            let mut acts = vec!["create configmap theirs --from-literal=value=kept".to_owned()];
            acts.extend(marks.map(|mark| format!("annotate configmap/theirs {mark}")));
            let acts = acts
                .iter()
                .map(|act| act.split(' ').map(str::to_owned).collect());
            let writes = interrupted(&mut world, Method::PATCH, "theirs", acts.collect()).await?;
            let mut template = Template::new(&config_map("a", "1")).hook(
                "theirs",
                "pre-install",
                &config_map("theirs", "taken"),
            );
            template.hooks[0].delete_policies = policies.split(',').map(str::to_owned).collect();
            let reported = world.deploy_with(&template, DeployOptions::default()).await;
            let reported = release::error_chain(&reported.unwrap_err());
            assert!(
                reported.contains("is not a hook of this release"),
                "{reported}"
            );
            assert_eq!(world.value("theirs").await?, "kept", "{policies} {marks:?}");
            assert_eq!(writes.load(Ordering::SeqCst), 1);
        }
    }
    Ok(())
}

/// Deleting a namespace deletes everything in it; and what asks to be kept is kept, as a hook too.
#[tokio::test]
async fn a_hook_that_holds_more_than_itself_or_asks_to_be_kept_is_not_deleted() -> Result<()> {
    let world = World::new().await?;
    let shared = format!("{}-shared", world.namespace);
    let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {shared}\n");
    let kept = config_map("kept", "1");
    let policies = ["before-hook-creation", "hook-succeeded"];
    let template = |value: &str| {
        let events = "pre-install,pre-upgrade";
        let mut template = Template::new(&config_map("a", value))
            .hook("shared", events, &namespace)
            .hook("kept", events, &kept);
        for hook in &mut template.hooks {
            hook.events = events.split(',').map(str::to_owned).collect();
            hook.delete_policies = policies.map(str::to_owned).to_vec();
            let annotation = "annotations: {helm.sh/resource-policy: keep, ";
            if hook.name == "kept" {
                hook.manifest = hook.manifest.replacen("annotations: {", annotation, 1);
            }
        }
        template
    };
    world
        .deploy_with(&template("1"), DeployOptions::default())
        .await?;
    let ids = || -> Result<_> {
        Ok([
            world.id(&format!("namespace/{shared}"))?,
            world.id("configmap/kept")?,
        ])
    };
    let before = ids()?;
    world
        .deploy_with(&template("2"), DeployOptions::default())
        .await?;
    assert_eq!(ids()?, before);
    let leaving = "--output=jsonpath={.metadata.deletionTimestamp}";
    assert_eq!(world.kubectl(&["get", "namespace", &shared, leaving])?, "");
    Ok(())
}

/// Deleting a definition deletes everything of its kind, whatever its hook's policies say.
#[tokio::test]
async fn a_definition_that_is_a_hook_is_not_deleted_by_its_policies() -> Result<()> {
    let world = World::new().await?;
    let beetle = format!("cars.{}/beetle", group(&world));
    let with = |value: &str| {
        let events = "pre-install,pre-upgrade";
        let manifest = Template::new(&config_map("a", value));
        let mut template = manifest.hook("definition", events, &definition(&world));
        // Flow style has no line for the annotations.
        template.hooks[0].manifest = definition(&world).replacen(
            "metadata: {",
            &format!("metadata: {{annotations: {{helm.sh/hook: \"{events}\"}}, "),
            1,
        );
        template.hooks[0].events = events.split(',').map(str::to_owned).collect();
        let policies = ["before-hook-creation", "hook-succeeded"];
        template.hooks[0].delete_policies = policies.map(str::to_owned).to_vec();
        template
    };
    world
        .deploy_with(&with("1"), DeployOptions::default())
        .await?;
    world.create(&car(&world, 4)).await?;
    let before = world.id(&beetle)?;
    world
        .deploy_with(&with("2"), DeployOptions::default())
        .await?;
    assert_eq!(world.id(&beetle)?, before);
    let definition = format!("crd/cars.{}", group(&world));
    let end = "--output=jsonpath={.metadata.deletionTimestamp}";
    assert_eq!(world.kubectl(&["get", &definition, end])?, "");
    Ok(())
}

/// Whatever the policies: a definition that somebody has is no hook of ours, and what is defined otherwise by a hook would lose its objects.
#[tokio::test]
async fn a_definition_that_a_person_made_is_not_written_over_by_a_hook() -> Result<()> {
    for policies in ["before-hook-creation", "hook-succeeded"] {
        let world = World::new().await?;
        world.create(&definition(&world)).await?;
        let crd = format!("crd/cars.{}", group(&world));
        let version = ["get", &crd, "--output=jsonpath={.metadata.generation}"];
        let before = (world.id(&crd)?, world.kubectl(&version)?);
        let mut template = Template::new(&config_map("a", "1")).hook(
            "definition",
            "pre-install",
            &definition(&world),
        );
        let hook = &mut template.hooks[0];
        let annotated = "metadata: {annotations: {helm.sh/hook: pre-install}, ";
        hook.manifest = definition(&world)
            .replacen("metadata: {", annotated, 1)
            .replace("singular: car", "singular: car, shortNames: [c]");
        hook.delete_policies = vec![policies.to_owned()];
        let reported = world.deploy_with(&template, DeployOptions::default()).await;
        let reported = release::error_chain(&reported.unwrap_err());
        assert!(
            reported.contains("is not a hook of this release"),
            "{reported}"
        );
        let after = (world.id(&crd)?, world.kubectl(&version)?);
        assert_eq!(after, before, "{policies}");
    }
    Ok(())
}

/// Of two releases with one hook each has its own run: what one of them wrote is no run of the other's, and none of it goes with the other's end.
#[tokio::test]
async fn a_hook_of_another_release_is_no_run_of_this_ones() -> Result<()> {
    let world = World::new().await?;
    let other = world.beside("other").await?;
    let template = |name: &str, policies: &str| {
        let hook = config_map("shared", "1");
        let mut template =
            Template::new(&config_map(name, "1")).hook("shared", "pre-install", &hook);
        template.hooks[0].delete_policies = vec![policies.to_owned()];
        template
    };
    let stays = template("a", "hook-failed");
    world.deploy_with(&stays, DeployOptions::default()).await?;
    let before = world.id("configmap/shared")?;
    let goes = template("b", "hook-succeeded,hook-failed");
    let reported = other.deploy_with(&goes, DeployOptions::default()).await;
    let reported = release::error_chain(&reported.unwrap_err());
    assert!(
        reported.contains("is not a hook of this release"),
        "{reported}"
    );
    assert_eq!(world.id("configmap/shared")?, before);
    Ok(())
}

/// Between our look and our deletion somebody deletes the object and makes one of his own.
#[tokio::test]
async fn an_object_recreated_by_somebody_else_is_not_deleted() -> Result<()> {
    let mut world = World::new().await?;
    world
        .deploy(&(config_map("a", "1") + &config_map("old", "1")))
        .await?;
    let kubectl = {
        let (kubeconfig, namespace) = (world.plane.kubeconfig(ADMIN)?, world.namespace.clone());
        move |arguments: &[&str]| {
            let kubectl = testbed::tools::Tool::Kubectl.path().expect("it is built");
            let status = std::process::Command::new(kubectl)
                .arg("--kubeconfig")
                .arg(&kubeconfig)
                .args(["--namespace", &namespace])
                .args(arguments)
                .status();
            assert!(status.is_ok_and(|status| status.success()), "{arguments:?}");
        }
    };
    let kubeconfig = world.plane.kubeconfig_value(ADMIN, "default");
    let url = proxy::listen(kubeconfig, move |client, request| {
        let kubectl = kubectl.clone();
        async move {
            if is_deletion_of(&request, "old") {
                kubectl(&["delete", "configmap/old"]);
                kubectl(&["create", "configmap", "old", "--from-literal=value=theirs"]);
            }
            pass(&client, request).await
        }
    })
    .await?;
    let config = kube::Config::new(url.parse().context("the proxy's address")?);
    world.cluster = Cluster::new(kube::Client::try_from(config)?);
    world.storage = Storage::secrets(&world.cluster, &world.namespace);
    let done = world.deploy(&config_map("a", "2")).await?;
    assert_eq!(world.value("old").await?, "theirs");
    let left: Vec<&str> = done.retained.iter().map(|key| key.name.as_str()).collect();
    assert_eq!(left, ["old"]);
    Ok(())
}

fn is_deletion_of(request: &Request<Incoming>, name: &str) -> bool {
    let path = request.uri().path();
    request.method() == Method::DELETE && path.ends_with(&format!("/configmaps/{name}"))
}

async fn pass(client: &kube::Client, request: Request<Incoming>) -> Answer {
    let request = proxy::forwarded(request).await.expect("whole requests");
    let answer = client.send(request).await.expect("an answer");
    answer.map(BodyExt::boxed_unsync)
}

/// An upgrade whose chart has an object of another release too is refused before it changes anything; with `takeOwnership` it takes it.
#[tokio::test]
async fn an_upgrade_takes_nothing_from_another_release() -> Result<()> {
    let theirs = World::new().await?;
    theirs.deploy(&config_map("shared", "theirs")).await?;
    let ours = theirs.beside("ours").await?;
    ours.deploy(&config_map("a", "1")).await?;
    let both = config_map("a", "2") + &config_map("shared", "ours");
    let refused = ours.deploy(&both).await.unwrap_err();
    let reported = release::error_chain(&refused);
    assert!(reported.contains("current value is \"web\""), "{reported}");
    assert_eq!(
        (ours.value("a").await?, ours.value("shared").await?),
        ("1".to_owned(), "theirs".to_owned())
    );
    let options = DeployOptions {
        take_ownership: true,
        ..DeployOptions::default()
    };
    ours.deploy_with(&Template::new(&both), options).await?;
    assert_eq!(ours.value("shared").await?, "ours");
    Ok(())
}

/// A good revision whose record says `superseded` (its successor's was lost) is kept like one that says `deployed`.
#[tokio::test]
async fn the_base_revision_of_an_upgrade_is_not_pruned() -> Result<()> {
    let world = World::new().await?;
    world.deploy(&config_map("a", "1")).await?;
    world.tamper(1, Status::Superseded).await?;
    let failing = |value: &str| {
        let invalid = "---\napiVersion: v1\nkind: Service\nmetadata: {name: bad}\nspec: {ports: [{port: 0}]}\n";
        config_map("a", value) + invalid
    };
    for value in ["2", "3", "4"] {
        world.deploy(&failing(value)).await.unwrap_err();
        assert!(
            world.has_good_revision().await?,
            "{:?}",
            world.history().await?
        );
        world.storage.get(&world.name, 1).await?;
    }
    world.deploy(&config_map("a", "5")).await?;
    assert_eq!(world.value("a").await?, "5");
    Ok(())
}

/// What the manifest asks to be kept stays even where somebody took the wish off the object.
#[tokio::test]
async fn an_object_stored_with_keep_is_kept_without_its_live_annotation() -> Result<()> {
    let world = World::new().await?;
    let keep = "metadata:\n  annotations: {helm.sh/resource-policy: keep}\n";
    let kept = config_map("kept", "1").replacen("metadata:\n", keep, 1);
    world.deploy(&(config_map("a", "1") + &kept)).await?;
    world.kubectl(&["annotate", "configmap/kept", "helm.sh/resource-policy-"])?;
    let spec = UninstallSpec::new(&world.name, &world.namespace);
    let done = release::uninstall(&world.cluster, &world.storage, &spec).await?;
    assert_eq!(world.value("kept").await?, "1");
    assert_eq!(world.value("a").await?, "none");
    assert_eq!(done.kept.len(), 1);
    Ok(())
}

/// So it is where a version leaves it out, however the wish is spelled, and where only a version that failed has taken it back.
#[tokio::test]
async fn an_object_stored_with_keep_is_kept_by_a_version_without_it() -> Result<()> {
    let with = |policy: &str| {
        let keep = format!("metadata:\n  annotations: {{helm.sh/resource-policy: {policy}}}\n");
        config_map("kept", "1").replacen("metadata:\n", &keep, 1)
    };
    let broken = "---\napiVersion: v1\nkind: Service\nmetadata: {name: broken}\nspec: {}\n";
    for (policy, fails, live) in [
        ("keep", false, "helm.sh/resource-policy-"),
        ("\" Keep\"", false, "a=b"),
        ("keep", true, "a=b"),
    ] {
        let world = World::new().await?;
        world
            .deploy(&(config_map("a", "1") + &with(policy)))
            .await?;
        world.kubectl(&["annotate", "configmap/kept", live])?;
        if fails {
            let without = config_map("a", "2") + &config_map("kept", "1") + broken;
            world.deploy(&without).await.unwrap_err();
        }
        let done = world.deploy(&config_map("a", "3")).await?;
        let retained: Vec<&str> = done.retained.iter().map(|key| key.name.as_str()).collect();
        assert_eq!(retained, ["kept"], "{policy} {fails}");
        assert_eq!(world.value("kept").await?, "1", "{policy} {fails}");
    }
    // A version that succeeds ends it.
    let world = World::new().await?;
    world
        .deploy(&(config_map("a", "1") + &with("keep")))
        .await?;
    world
        .deploy(&(config_map("a", "2") + &config_map("kept", "1")))
        .await?;
    world.deploy(&config_map("a", "3")).await?;
    assert_eq!(world.value("kept").await?, "none");
    Ok(())
}

/// A release whose objects stay is forgotten up to what its bundle wrote; what another one deploys meanwhile is its own.
#[tokio::test]
async fn a_partial_removal_keeps_the_next_owners_records() -> Result<()> {
    let world = World::new().await?;
    world.deploy(&config_map("a", "1")).await?;
    world.deploy(&config_map("a", "2")).await?;
    let spec = UninstallSpec {
        keep_resources: true,
        up_to: Some(1),
        ..UninstallSpec::new(&world.name, &world.namespace)
    };
    for _ in 0..2 {
        release::uninstall(&world.cluster, &world.storage, &spec).await?;
        assert_eq!(world.history().await?, ["2 deployed"]);
        assert_eq!(world.value("a").await?, "2");
    }
    Ok(())
}

/// Whose manifest cannot be read nobody knows the objects of: the record is not thrown away over them.
#[tokio::test]
async fn a_release_with_an_unreadable_manifest_is_not_purged() -> Result<()> {
    let world = World::new().await?;
    world.deploy(&config_map("a", "1")).await?;
    let mut record = world.storage.get(&world.name, 1).await?;
    record.manifest = "---\nkind: [".to_owned();
    world.storage.update(&record).await?;
    let spec = UninstallSpec::new(&world.name, &world.namespace);
    for _ in 0..2 {
        let refused = release::uninstall(&world.cluster, &world.storage, &spec).await;
        assert!(matches!(refused, Err(UninstallError::Corrupted(_))));
        assert_eq!(world.history().await?, ["1 uninstalling"]);
        assert_eq!(world.value("a").await?, "1");
    }
    Ok(())
}

/// With one record and no good one, cut off after each of its changes: at every moment some record tells of the release.
#[tokio::test]
async fn a_record_is_stored_at_every_moment() -> Result<()> {
    const MANY: usize = 20;
    let one = || DeployOptions {
        max_history: 1,
        ..DeployOptions::default()
    };
    let failing = |value: &str| {
        let refused = config_map("zz", "1").replace("\ndata:", "\ndota:");
        Template::new(&(config_map("a", value) + &refused))
    };
    for last in 1..MANY {
        let world = World::new().await?;
        let failed = world.deploy_with(&failing("1"), one()).await;
        failed.unwrap_err();
        let doomed = Doomed::new(&world).await?;
        let was_cut_off = doomed.deploy(&failing("2"), one(), last).await;
        assert!(!world.history().await?.is_empty(), "{last}");
        if !was_cut_off {
            assert!(last > 2, "{last}");
            return Ok(());
        }
    }
    anyhow::bail!("it never ends")
}

/// Going back to the last good revision, with room for one record, cut off after each change: that revision is lost at none.
#[tokio::test]
async fn a_rollbacks_target_is_kept_until_the_rollback_is_stored() -> Result<()> {
    const MANY: usize = 20;
    let options = || DeployOptions {
        max_history: 1,
        atomic: true,
        ..DeployOptions::default()
    };
    let refused = config_map("b", "1").replace("\ndata:", "\ndota:");
    let failing = Template::new(&(config_map("a", "3") + &refused));
    for last in 1..MANY {
        let world = World::new().await?;
        world.deploy(&config_map("a", "1")).await?;
        world.deploy(&config_map("a", "2")).await?;
        world.tamper(2, Status::Failed).await?;
        let doomed = Doomed::new(&world).await?;
        let was_cut_off = doomed.deploy(&failing, options(), last).await;
        let history = world.history().await?;
        assert!(world.has_good_revision().await?, "{last}: {history:?}");
        if !was_cut_off {
            assert!(last > 3, "{last}");
            return Ok(());
        }
    }
    anyhow::bail!("it never ends")
}

/// Who removes a release while a helm client upgrades it leaves what that writes without a record.
#[tokio::test]
async fn a_release_that_helm_is_at_work_on_is_removed_after_that() -> Result<()> {
    let world = World::new().await?;
    world.deploy(&config_map("a", "1")).await?;
    let mut pending = world.storage.get("web", 1).await?;
    pending.revision = 2;
    pending.set_status(Status::PendingUpgrade, "Preparing upgrade");
    let uid = world.storage.create(&pending).await?;
    let mut pending = StoredRelease::new(pending.into_release(), uid);
    let name = release::storage::key("web", 2);
    let by_helm =
        r#"[{"op": "replace", "path": "/metadata/managedFields/0/manager", "value": "Helm"}]"#;
    world.kubectl(&["patch", "secret", &name, "--type=json", "--patch", by_helm])?;
    for (keep_resources, keep_history) in [(false, false), (true, false), (false, true)] {
        let spec = UninstallSpec {
            keep_resources,
            keep_history,
            ..UninstallSpec::new("web", &world.namespace)
        };
        let removed = release::uninstall(&world.cluster, &world.storage, &spec).await;
        assert!(
            matches!(removed, Err(UninstallError::Locked)),
            "{removed:?}"
        );
        assert_eq!(world.value("a").await?, "1");
    }
    assert_eq!(world.history().await?, ["1 deployed", "2 pending-upgrade"]);
    // It has ended.
    pending.set_status(Status::Deployed, "Upgrade complete");
    world.storage.update(&pending).await?;
    let spec = UninstallSpec::new("web", &world.namespace);
    release::uninstall(&world.cluster, &world.storage, &spec).await?;
    assert_eq!(world.value("a").await?, "none");
    assert!(world.history().await?.is_empty());
    Ok(())
}

/// Registers an API server of this group that does not answer.
fn silence(world: &World, group: &str) -> Result<()> {
    let silent = format!(
        "apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {{name: v1.{group}}}\nspec: {{group: {group}, version: v1, \
         groupPriorityMinimum: 100, versionPriority: 10, insecureSkipTLSVerify: true, service: {{name: none, namespace: default}}}}\n"
    );
    let file = std::env::temp_dir().join(format!("{group}.yaml"));
    std::fs::write(&file, silent)?;
    world.kubectl(&["create", "--filename", &file.to_string_lossy()])?;
    std::fs::remove_file(&file)?;
    Ok(())
}

/// Of what an API server behind an `APIService` has, nobody knows while it does not answer: it may be there.
#[tokio::test]
async fn objects_of_an_unavailable_api_group_count_as_existing() -> Result<()> {
    let world = World::new().await?;
    let group = format!("{}.silent.example.com", world.namespace);
    world.deploy(&config_map("a", "1")).await?;
    let mut record = world.storage.get("web", 1).await?;
    record.manifest +=
        &format!("---\napiVersion: {group}/v1\nkind: Silent\nmetadata: {{name: there}}\n");
    world.storage.update(&record).await?;
    silence(&world, &group)?;
    let uninstall = || async {
        let cluster = Cluster::new(world.client.clone());
        let spec = UninstallSpec::new("web", &world.namespace);
        release::uninstall(&cluster, &world.storage, &spec).await
    };
    let upgrade = || async {
        let cluster = Cluster::new(world.client.clone());
        let template = Template::new(&config_map("b", "1"));
        let spec = world.spec(&template, DeployOptions::default());
        release::deploy(&cluster, &world.storage, &spec).await
    };
    let reported = release::error_chain(&upgrade().await.unwrap_err());
    assert!(
        reported.contains(&format!("kind Silent.{group}")),
        "{reported}"
    );
    assert_eq!(world.history().await?, ["1 deployed"]);
    let reported = release::error_chain(&uninstall().await.unwrap_err());
    assert!(
        reported.contains(&format!("kind Silent.{group}")),
        "{reported}"
    );
    assert_eq!(world.history().await?, ["1 uninstalling"]);
    assert_eq!(world.value("a").await?, "1");
    // Who takes the kind away says that there is nothing of it.
    world.kubectl(&["delete", "apiservice", &format!("v1.{group}")])?;
    uninstall().await?;
    assert_eq!(world.value("a").await?, "none");
    assert!(world.history().await?.is_empty());
    Ok(())
}

/// A definition says that there may be objects, also while it is not served.
#[tokio::test]
async fn objects_of_an_unserved_definition_keep_the_definition() -> Result<()> {
    let world = World::new().await?;
    let unserved = definition(&world).replace("served: true", "served: false");
    world.deploy(&(unserved + &config_map("a", "1"))).await?;
    let mut record = world.storage.get("web", 1).await?;
    let manifest = std::mem::replace(&mut record.manifest, config_map("a", "1") + &car(&world, 2));
    world.storage.update(&record).await?;
    let spec = UninstallSpec::new("web", &world.namespace);
    let uninstall = || release::uninstall(&world.cluster, &world.storage, &spec);
    let reported = release::error_chain(&uninstall().await.unwrap_err());
    assert!(reported.contains("kind Car."), "{reported}");
    assert_eq!(world.value("a").await?, "1");
    record.manifest = manifest;
    world.storage.update(&record).await?;
    uninstall().await?;
    Ok(())
}

/// What others have in each namespace of the test, which may change at any moment.
#[derive(Clone)]
struct Others(Arc<Mutex<ContainerUsage>>);

impl Others {
    fn new(usage: ContainerUsage) -> Self {
        Self(Arc::new(Mutex::new(usage)))
    }

    fn are(&self, usage: ContainerUsage) {
        *self.0.lock().expect("nobody panics") = usage;
    }

    fn other_releases(&self) -> OtherReleases {
        let others = Arc::clone(&self.0);
        OtherReleases::new(move |_| *others.lock().expect("nobody panics"))
    }

    fn options(&self) -> DeployOptions {
        DeployOptions {
            other_releases: self.other_releases(),
            ..DeployOptions::default()
        }
    }
}

/// A namespace, and a chart that has it.
fn with_team(world: &World) -> (String, Template) {
    let team = format!("{}-team", world.namespace);
    let with = Template::new(&(config_map("a", "1") + &namespace(&team)));
    (team, with)
}

fn namespace(name: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n  labels: {{tier: gold}}\n"
    )
}

/// Others are asked for when a namespace is about to be deleted, and not before: they may have come while hooks ran and objects were written.
#[tokio::test]
async fn a_namespace_that_another_release_came_to_stays() -> Result<()> {
    let world = World::new().await?;
    let others = Others::new(ContainerUsage::Unused);
    let options = || others.options();
    let (team, with) = with_team(&world);
    world.deploy_with(&with, options()).await?;
    let before = world.id(&format!("namespace/{team}"))?;
    let mut spec = world.spec(&Template::new(&config_map("a", "2")), options());
    let come = others.clone();
    spec.on_written = Some(Arc::new(move || come.are(ContainerUsage::InUse)));
    let done = release::deploy(&world.cluster, &world.storage, &spec).await?;
    assert_eq!(done.retained.len(), 1, "{:?}", done.retained);
    let leaving = "--output=jsonpath={.metadata.deletionTimestamp}";
    let is_whole = || -> Result<_> {
        assert_eq!(world.id(&format!("namespace/{team}"))?, before);
        assert_eq!(world.kubectl(&["get", "namespace", &team, leaving])?, "");
        Ok(())
    };
    is_whole()?;
    // What is removed has objects elsewhere, which others do not keep.
    world.deploy_with(&with, options()).await?;
    let spec = UninstallSpec {
        other_releases: others.other_releases(),
        ..UninstallSpec::new("web", &world.namespace)
    };
    others.are(ContainerUsage::Draining);
    for _ in 0..2 {
        let removed = release::uninstall(&world.cluster, &world.storage, &spec).await;
        assert!(
            matches!(&removed, Err(UninstallError::NamespacesDeferred(all)) if *all == [team.clone()]),
            "{removed:?}"
        );
        assert_ne!(world.value("a").await?, "none");
        assert_eq!(world.history().await?.len(), 2);
        is_whole()?;
    }
    others.are(ContainerUsage::InUse);
    let removed = release::uninstall(&world.cluster, &world.storage, &spec).await?;
    assert_eq!(removed.in_use.len(), 1);
    assert!(world.history().await?.is_empty());
    is_whole()
}

/// The others may wait for it in turn, and need what it has to be removed themselves.
#[tokio::test]
async fn a_removal_waits_for_other_releases_before_it_waits_for_a_former_versions_kind()
-> Result<()> {
    let (world, _, _) = with_digests().await?;
    let (team, with) = with_team(&world);
    world.deploy(&config_map("a", "1")).await?;
    world
        .deploy_with(&with, Others::new(ContainerUsage::Unused).options())
        .await?;
    let group = format!("{}.silent.example.com", world.namespace);
    let mut record = world.storage.get("web", 1).await?;
    let there = format!("metadata: {{name: there, namespace: {team}}}");
    record.manifest += &format!("---\napiVersion: {group}/v1\nkind: Silent\n{there}\n");
    world.storage.store_digest(&record).await?;
    world.storage.update(&record).await?;
    silence(&world, &group)?;
    let cluster = Cluster::new(world.client.clone());
    let others = Others::new(ContainerUsage::Draining);
    let spec = UninstallSpec {
        other_releases: others.other_releases(),
        ..UninstallSpec::new("web", &world.namespace)
    };
    let uninstall = async || release::uninstall(&cluster, &world.storage, &spec).await;
    for _ in 0..2 {
        let removed = uninstall().await;
        assert!(
            matches!(&removed, Err(UninstallError::NamespacesDeferred(all)) if *all == [team.clone()]),
            "{removed:?}"
        );
    }
    others.are(ContainerUsage::Unused);
    let reported = release::error_chain(&uninstall().await.unwrap_err());
    assert!(
        reported.contains(&format!("kind Silent.{group}")),
        "{reported}"
    );
    assert_eq!(world.value("a").await?, "1");
    world.kubectl(&["delete", "apiservice", &format!("v1.{group}")])?;
    uninstall().await?;
    assert!(world.history().await?.is_empty());
    Ok(())
}

/// A release that waits for others in a namespace has its records still, though they are in another one that is its own.
#[tokio::test]
async fn the_namespace_of_a_releases_records_goes_last() -> Result<()> {
    let world = World::new().await?;
    let team = format!("{}-team", world.namespace);
    let manifest = config_map("a", "1") + &namespace(&team) + &namespace(&world.namespace);
    world.deploy(&manifest).await?;
    let others = Others::new(ContainerUsage::Unused);
    let asked = (others.other_releases(), team.clone());
    let spec = UninstallSpec {
        other_releases: OtherReleases::new(move |container| match container.name() == asked.1 {
            true => ContainerUsage::Draining,
            false => ContainerUsage::Unused,
        }),
        ..UninstallSpec::new("web", &world.namespace)
    };
    let removed = release::uninstall(&world.cluster, &world.storage, &spec).await;
    assert!(
        matches!(removed, Err(UninstallError::NamespacesDeferred(_))),
        "{removed:?}"
    );
    let leaving = "--output=jsonpath={.metadata.deletionTimestamp}";
    for name in [&team, &world.namespace] {
        assert_eq!(world.kubectl(&["get", "namespace", name, leaving])?, "");
    }
    assert_eq!(world.history().await?.len(), 1);
    Ok(())
}

/// What a release leaves to others is not its own any more: whose chart has it next gets it, and deletes it when it goes.
#[tokio::test]
async fn a_retained_namespace_belongs_to_the_next_release_with_it() -> Result<()> {
    let world = World::new().await?;
    let others = Others::new(ContainerUsage::InUse);
    let options = || others.options();
    let (team, with) = with_team(&world);
    world.deploy_with(&with, options()).await?;
    let before = world.id(&format!("namespace/{team}"))?;
    let uninstall = async |world: &World| {
        let spec = UninstallSpec {
            other_releases: others.other_releases(),
            ..UninstallSpec::new(&world.name, &world.namespace)
        };
        release::uninstall(&world.cluster, &world.storage, &spec).await
    };
    uninstall(&world).await?;
    let labels = "--output=jsonpath={.metadata.labels}";
    let labels = world.kubectl(&["get", "namespace", &team, labels])?;
    assert!(
        labels.contains("gold") && !labels.contains("managed-by"),
        "{labels}"
    );
    // Another release installs it, one that had none of it upgrades to it, and it goes with who has it, not with an attempt that fails.
    let next = world.beside("next").await?;
    let chart = |name: &str| Template::new(&(config_map(name, "1") + &namespace(&team)));
    next.deploy_with(&chart("b"), options()).await?;
    uninstall(&next).await?;
    let last = world.beside("last").await?;
    last.deploy_with(&Template::new(&config_map("c", "1")), options())
        .await?;
    let refused = config_map("d", "1").replace("\ndata:", "\ndota:");
    let failing = config_map("c", "2") + &namespace(&team) + &refused;
    last.deploy_with(&Template::new(&failing), options())
        .await
        .unwrap_err();
    last.deploy_with(&Template::new(&config_map("c", "3")), options())
        .await?;
    last.deploy_with(&chart("c"), options()).await?;
    assert_eq!(world.id(&format!("namespace/{team}"))?, before);
    others.are(ContainerUsage::Unused);
    uninstall(&last).await?;
    let leaving = "--output=jsonpath={.metadata.deletionTimestamp}";
    let left = world.kubectl(&["get", "namespace", &team, "--ignore-not-found", leaving])?;
    let gone = world.kubectl(&["get", "namespace", &team, "--ignore-not-found"])?;
    assert!(!left.is_empty() || gone.is_empty(), "{gone}");
    Ok(())
}
