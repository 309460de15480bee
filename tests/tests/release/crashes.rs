//! Killed after any write: each action is cut off after each of its writes, and the next one must finish it.
//!
//! The process is a future that is dropped, behind a gate that lets so many changes through and hands
//! out no answer to the last of them; its successor knows nothing but what is stored.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use release::model::Status;
use release::{DeployError, DeployOptions, UninstallSpec};
use testbed::cluster::ADMIN;
use testbed::wait::wait_until;

use crate::doomed::Doomed;
use crate::world::{Template, World, config_map, job};

const PATIENCE: Duration = Duration::from_secs(30);

/// More changes than any action here makes.
const MANY: usize = 60;

/// `a` in every version, `old` in the first only, `new` in all others; hooks that are done at once.
fn version(value: &str) -> Template {
    let other = if value == "1" { "old" } else { "new" };
    let hook = |name: &str| config_map(name, value);
    Template::new(&(config_map("a", value) + &config_map(other, value)))
        .hook("before", "pre-install", &hook("before"))
        .hook("after", "post-install", &hook("after"))
        .hook("upgrading", "pre-upgrade", &hook("upgrading"))
        .hook("upgraded", "post-upgrade", &hook("upgraded"))
        .hook("goodbye", "pre-delete", &hook("goodbye"))
        .hook("gone", "post-delete", &hook("gone"))
}

impl World {
    /// The deployed record is the newest, no other is pending or deployed, and the hooks of `events` ran.
    async fn is_settled(&self, what: &str, events: [&str; 2]) -> Result<()> {
        let history = self.history().await?;
        let open = history
            .iter()
            .filter(|one| one.contains("pending") || one.contains("deployed"));
        assert_eq!(open.count(), 1, "{what}: {history:?}");
        let newest = self.newest().await?;
        assert_eq!(newest.status().as_str(), "deployed", "{what}: {history:?}");
        for hook in &newest.hooks {
            let is_due = hook
                .events
                .iter()
                .any(|event| events.contains(&event.as_str()));
            let ran = hook.last_run.phase == "Succeeded";
            assert_eq!(
                ran, is_due,
                "{what}: hook {} {:?}",
                hook.name, hook.last_run
            );
        }
        Ok(())
    }
}

#[tokio::test]
async fn an_install_killed_after_any_write_is_finished_with_its_hooks() -> Result<()> {
    for last in 1..MANY {
        let world = World::new().await?;
        let doomed = Doomed::new(&world).await?;
        let template = version("1");
        let was_cut_off = doomed
            .deploy(&template, DeployOptions::default(), last)
            .await;
        let done = world
            .deploy_with(&template, DeployOptions::default())
            .await?;
        let what = format!("after change {last}");
        assert!(
            done.release.revision == 1,
            "{what}: {:?}",
            world.history().await?
        );
        world
            .is_settled(&what, ["pre-install", "post-install"])
            .await?;
        for name in ["a", "old", "before", "after"] {
            assert_eq!(world.value(name).await?, "1", "{what}: {name}");
        }
        if !was_cut_off {
            return Ok(());
        }
    }
    panic!("an install makes {MANY} changes")
}

/// Killed once its record is there, which has objects that nobody has looked at: what is older than it was there before.
#[tokio::test]
async fn objects_older_than_a_killed_install_are_noted_as_preexisting() -> Result<()> {
    for last in 1..=2 {
        let world = World::new().await?;
        world.kubectl(&["create", "namespace", &world.namespace])?;
        let marks = format!(
            "metadata:\n  labels: {{app.kubernetes.io/managed-by: Helm}}\n  annotations: {{meta.helm.sh/release-name: \
             {}, meta.helm.sh/release-namespace: {}}}\n",
            world.name, world.namespace
        );
        let old = config_map("old", "before").replace("metadata:\n", &marks);
        world.create(&old).await?;
        let created = Timestamp::now();
        wait_until("another second", PATIENCE, async || {
            match Timestamp::now() > created + SignedDuration::from_secs(2) {
                true => Ok(()),
                false => Err("the same".to_owned()),
            }
        })
        .await?;
        let template = Template::new(&(config_map("new", "1") + &config_map("old", "1")));
        let doomed = Doomed::new(&world).await?;
        let options = DeployOptions::default;
        assert!(doomed.deploy(&template, options(), last).await);
        let done = world.deploy_with(&template, options()).await?;
        assert_eq!(done.release.revision, 1);
        let noted = |name: &str| {
            let shown =
                "--output=jsonpath={.metadata.annotations.fleetagent\\.cattle\\.io/adopted}";
            world.kubectl(&["get", "configmap", name, shown])
        };
        let what = format!("after change {last}");
        assert_eq!(noted("old")?, "handed-over", "{what}");
        assert_eq!(noted("new")?, "", "{what}");
        assert_eq!(world.value("old").await?, "1", "{what}");
    }
    Ok(())
}

#[tokio::test]
async fn an_upgrade_killed_after_any_write_is_finished_or_followed() -> Result<()> {
    let mut is_over = [false; 2];
    for last in 1..MANY {
        // The same is wanted after the crash, or something else.
        for (at, wanted) in ["2", "3"].into_iter().enumerate() {
            if is_over[at] {
                continue;
            }
            let world = World::new().await?;
            world
                .deploy_with(&version("1"), DeployOptions::default())
                .await?;
            let doomed = Doomed::new(&world).await?;
            let was_cut_off = doomed
                .deploy(&version("2"), DeployOptions::default(), last)
                .await;
            let what = format!("{wanted} after change {last}");
            assert!(world.has_good_revision().await?, "{what}");
            world
                .deploy_with(&version(wanted), DeployOptions::default())
                .await?;
            assert!(world.has_good_revision().await?, "{what}");
            world
                .is_settled(&what, ["pre-upgrade", "post-upgrade"])
                .await?;
            for (name, value) in [("a", wanted), ("new", wanted), ("old", "none")] {
                assert_eq!(world.value(name).await?, value, "{what}: {name}");
            }
            is_over[at] = !was_cut_off;
        }
        if is_over == [true; 2] {
            return Ok(());
        }
    }
    panic!("an upgrade makes {MANY} changes")
}

#[tokio::test]
async fn a_failing_upgrade_killed_after_any_write_is_undone() -> Result<()> {
    let bad = config_map("zz", "1").replace("\ndata:", "\ndota:");
    for last in 1..MANY {
        let world = World::new().await?;
        world
            .deploy_with(&version("1"), DeployOptions::default())
            .await?;
        let mut failing = version("2");
        failing.manifest += &bad;
        let options = || DeployOptions {
            atomic: true,
            ..DeployOptions::default()
        };
        let doomed = Doomed::new(&world).await?;
        let was_cut_off = doomed.deploy(&failing, options(), last).await;
        let what = format!("after change {last}");
        assert!(world.has_good_revision().await?, "{what}");
        let error = world.deploy_with(&failing, options()).await.unwrap_err();
        let text = release::error_chain(&error);
        assert!(text.contains("has been rolled back"), "{what}: {text}");
        for (name, value) in [("a", "1"), ("old", "1"), ("new", "none")] {
            assert_eq!(world.value(name).await?, value, "{what}: {name}");
        }
        let newest = world.newest().await?;
        assert!(newest.description().starts_with("Rollback to"), "{what}");
        if !was_cut_off {
            return Ok(());
        }
    }
    panic!("a rollback makes {MANY} changes")
}

#[tokio::test]
async fn an_uninstall_killed_after_any_write_is_resumed_or_superseded() -> Result<()> {
    let mut is_over = false;
    for last in 1..MANY {
        // The release is to go, or is wanted again.
        for is_wanted in [false, true] {
            let world = World::new().await?;
            world
                .deploy_with(&version("1"), DeployOptions::default())
                .await?;
            let doomed = Doomed::new(&world).await?;
            let was_cut_off = doomed.uninstall(last).await;
            let what = format!("after change {last}, wanted: {is_wanted}");
            if is_wanted {
                world
                    .deploy_with(&version("2"), DeployOptions::default())
                    .await?;
                world
                    .is_settled(&what, ["pre-install", "post-install"])
                    .await?;
                for (name, value) in [("a", "2"), ("new", "2"), ("old", "none")] {
                    assert_eq!(world.value(name).await?, value, "{what}: {name}");
                }
            } else {
                let spec = UninstallSpec::new(&world.name, &world.namespace);
                release::uninstall(&world.cluster, &world.storage, &spec).await?;
                assert_eq!(world.history().await?, [""; 0], "{what}");
                let expected = [
                    ("a", "none"),
                    ("old", "none"),
                    ("goodbye", "1"),
                    ("gone", "1"),
                ];
                for (name, value) in expected {
                    assert_eq!(world.value(name).await?, value, "{what}: {name}");
                }
            }
            is_over = !was_cut_off;
        }
        if is_over {
            return Ok(());
        }
    }
    panic!("a removal makes {MANY} changes")
}

/// A hook for each event, one for both events of each operation, all gone once they have succeeded. ConfigMaps are
/// done at once, so that creations are runs.
fn fleeting(value: &str) -> Template {
    const EVENTS: [(&str, &str); 9] = [
        ("before", "pre-install"),
        ("after", "post-install"),
        ("around", "pre-install,post-install"),
        ("upgrading", "pre-upgrade"),
        ("upgraded", "post-upgrade"),
        ("past", "pre-upgrade,post-upgrade"),
        ("goodbye", "pre-delete"),
        ("gone", "post-delete"),
        ("wake", "pre-delete,post-delete"),
    ];
    let mut template = Template::new(&config_map("a", value));
    for (at, (name, events)) in EVENTS.into_iter().enumerate() {
        template = template.hook(name, events, &config_map(name, value));
        let hook = &mut template.hooks[at];
        hook.events = events.split(',').map(str::to_owned).collect();
        hook.manifest = hook.manifest.replace(events, &format!("\"{events}\""));
        hook.delete_policies = vec!["hook-succeeded".to_owned()];
    }
    template
}

/// How often each hook of `template` was created in the world's namespace.
fn runs(
    world: &World,
    mark: testbed::audit::Mark,
    template: &Template,
) -> Result<Vec<(String, usize)>> {
    let requests = world.plane.audit().by_user(ADMIN, mark)?;
    let count = |name: &str| {
        let is_it = |request: &&testbed::audit::Request| {
            request.code == 201
                && request.resource == "configmaps"
                && request.namespace == world.namespace
                && request.name == name
        };
        requests.iter().filter(is_it).count()
    };
    let hooks = template.hooks.iter();
    Ok(hooks
        .map(|hook| (hook.name.clone(), count(&hook.name)))
        .collect())
}

/// Neither too rarely nor too often: each hook runs once at each of its events, wherever the process was cut off.
#[tokio::test]
async fn a_hook_that_goes_when_it_has_succeeded_runs_once_whenever_the_agent_is_killed()
-> Result<()> {
    for operation in ["install", "upgrade", "delete"] {
        for last in 1..MANY {
            let world = World::new().await?;
            let template = fleeting("2");
            if operation != "install" {
                world
                    .deploy_with(&fleeting("1"), DeployOptions::default())
                    .await?;
            }
            let mark = world.plane.audit().mark();
            let doomed = Doomed::new(&world).await?;
            let was_cut_off = match operation {
                "delete" => {
                    let cut_off = doomed.uninstall(last).await;
                    let spec = UninstallSpec::new(&world.name, &world.namespace);
                    release::uninstall(&world.cluster, &world.storage, &spec).await?;
                    cut_off
                }
                _ => {
                    let cut_off = doomed
                        .deploy(&template, DeployOptions::default(), last)
                        .await;
                    world
                        .deploy_with(&template, DeployOptions::default())
                        .await?;
                    cut_off
                }
            };
            for (hook, (name, count)) in template.hooks.iter().zip(runs(&world, mark, &template)?) {
                let due = hook
                    .events
                    .iter()
                    .filter(|event| event.ends_with(operation))
                    .count();
                assert_eq!(count, due, "{name} of {operation} after change {last}");
            }
            if !was_cut_off {
                break;
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn objects_of_several_failed_attempts_are_deleted() -> Result<()> {
    let world = World::new().await?;
    world.deploy(&config_map("a", "1")).await?;
    let bad = config_map("zz", "1").replace("\ndata:", "\ndota:");
    for stray in ["one", "two", "three"] {
        let manifest = config_map("a", "2") + &config_map(stray, "1") + &bad;
        world.deploy(&manifest).await.unwrap_err();
    }
    world.deploy(&config_map("a", "3")).await?;
    for stray in ["one", "two", "three"] {
        assert!(world.config_map(stray).await?.is_none(), "{stray}");
    }
    Ok(())
}

/// What may not go on is over: nobody would end it, and helm would wait for it.
#[tokio::test]
async fn an_attempt_that_was_cut_off_and_is_refused_then_has_failed() -> Result<()> {
    let world = World::new().await?;
    world.deploy(&config_map("a", "1")).await?;
    let both = Template::new(&(config_map("a", "2") + &config_map("b", "2")));
    let doomed = Doomed::new(&world).await?;
    assert!(doomed.deploy(&both, DeployOptions::default(), 1).await);
    assert_eq!(world.history().await?, ["1 deployed", "2 pending-upgrade"]);
    let other = world.beside("other").await?;
    other.deploy(&config_map("b", "1")).await?;
    let is_refused = async || {
        let refused = world.deploy_with(&both, DeployOptions::default()).await;
        assert!(matches!(refused, Err(DeployError::Ownership { .. })));
        let newest = world.newest().await?;
        assert!(
            newest.description().contains("cannot be imported"),
            "{}",
            newest.description()
        );
        anyhow::Ok(())
    };
    is_refused().await?;
    assert_eq!(world.history().await?, ["1 deployed", "2 failed"]);
    assert_eq!(world.value("a").await?, "1");
    let spec = UninstallSpec::new("other", &other.namespace);
    release::uninstall(&other.cluster, &other.storage, &spec).await?;
    world.deploy_with(&both, DeployOptions::default()).await?;
    assert_eq!(world.history().await?, ["1 superseded", "2 deployed"]);
    // The same of a first install.
    let spec = UninstallSpec::new("web", &world.namespace);
    release::uninstall(&world.cluster, &world.storage, &spec).await?;
    world.deploy(&both.manifest).await?;
    world.kubectl(&["delete", "configmap", "b"])?;
    world.tamper(1, Status::PendingInstall).await?;
    other.deploy(&config_map("b", "1")).await?;
    is_refused().await?;
    assert_eq!(world.history().await?, ["1 failed"]);
    assert_eq!(other.value("b").await?, "1");
    Ok(())
}

#[tokio::test]
async fn a_started_hook_is_waited_for_and_not_restarted() -> Result<()> {
    let world = World::new().await?;
    let slow = job("slow").replace("image: busybox", "image: busybox:never");
    let template = Template::new(&config_map("a", "1")).hook("slow", "pre-install", &slow);
    let doomed = Doomed::new(&world).await?;
    // Its pod, too, which is given another image below.
    let is_started = async || {
        world
            .kubectl(&[
                "get",
                "pods",
                "--selector=job-name=slow",
                "--output",
                "name",
            ])
            .is_ok_and(|pods| !pods.is_empty())
    };
    let spec = world.spec(&template, DeployOptions::default());
    doomed.gate.open(None);
    tokio::select! {
        _ = release::deploy(&doomed.cluster, &doomed.storage, &spec) => panic!("the hook never ends"),
        found = testbed::wait::wait_until("the hook", std::time::Duration::from_secs(300), async || {
            is_started().await.then_some(()).ok_or_else(String::new)
        }) => found?,
    }
    let uid = |world: &World| {
        world.kubectl(&["get", "job", "slow", "--output", "jsonpath={.metadata.uid}"])
    };
    let before = uid(&world)?;
    // Its pod may run now.
    world.kubectl(&[
        "set",
        "image",
        "pods",
        "--selector=job-name=slow",
        "main=busybox:1",
    ])?;
    let done = world
        .deploy_with(&template, DeployOptions::default())
        .await?;
    assert_eq!(uid(&world)?, before);
    assert_eq!(done.release.hooks[0].last_run.phase, "Succeeded");
    Ok(())
}

/// It is gone before anybody looks. Helm sees its end in a watch, and so do we.
#[tokio::test]
async fn a_hook_that_removes_itself_is_judged_by_its_end() -> Result<()> {
    let leaving = job("leaving").replace(
        "spec:\n  template",
        "spec:\n  ttlSecondsAfterFinished: 0\n  backoffLimit: 0\n  template",
    );
    let world = World::new().await?;
    let template = Template::new(&config_map("a", "1")).hook("leaving", "pre-install", &leaving);
    let done = world
        .deploy_with(&template, DeployOptions::default())
        .await?;
    assert_eq!(done.release.hooks[0].last_run.phase, "Succeeded");

    let world = World::new().await?;
    let late = leaving.replace("template:", "activeDeadlineSeconds: 1\n  template:");
    let late = late.replace("image: busybox", "image: busybox:never");
    let template = Template::new(&config_map("a", "1")).hook("leaving", "pre-install", &late);
    let error = world.deploy_with(&template, DeployOptions::default()).await;
    let text = release::error_chain(&error.unwrap_err());
    assert!(
        text.contains("status: Failed, message: Job Failed"),
        "{text}"
    );
    assert!(world.config_map("a").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn a_record_without_labels_is_repaired() -> Result<()> {
    let world = World::new().await?;
    world.deploy(&config_map("a", "1")).await?;
    let record = "secret/sh.helm.release.v1.web.v1";
    world.kubectl(&["label", record, "owner-", "name-", "status-"])?;
    assert_eq!(world.history().await?, [""; 0]);
    world.deploy(&config_map("a", "2")).await.unwrap_err();
    world.deploy(&config_map("a", "2")).await?;
    assert_eq!(world.history().await?, ["1 superseded", "2 deployed"]);
    Ok(())
}

#[tokio::test]
async fn unreadable_records_do_not_block_a_deployment() -> Result<()> {
    let world = World::new().await?;
    world
        .deploy(&(config_map("a", "1") + &config_map("old", "1")))
        .await?;
    world
        .deploy(&(config_map("a", "2") + &config_map("old", "2")))
        .await?;
    world.spoil(2)?;
    let done = world.deploy(&config_map("a", "3")).await?;
    assert_eq!(
        done.plan.action.from(),
        Some(1),
        "the one below is built on"
    );
    assert_eq!(world.value("old").await?, "none");
    assert_eq!(
        world.history().await?.last().map(String::as_str),
        Some("3 deployed")
    );

    // All of them: what is live is adopted.
    for revision in world.storage.history("web").await? {
        world.spoil(revision.revision)?;
    }
    world.deploy(&config_map("a", "3")).await?;
    assert_eq!(
        world.history().await?.last().map(String::as_str),
        Some("4 deployed")
    );
    assert_eq!(world.value("a").await?, "3");
    Ok(())
}

#[tokio::test]
async fn a_release_whose_records_were_deleted_is_adopted_from_its_live_objects() -> Result<()> {
    let world = World::new().await?;
    world.deploy(&config_map("a", "1")).await?;
    world.kubectl(&["delete", "secret", "--selector", "owner=helm,name=web"])?;
    let done = world.deploy(&config_map("a", "1")).await?;
    assert!(done.changed);
    assert_eq!(world.history().await?, ["1 deployed"]);
    Ok(())
}

#[tokio::test]
async fn two_actions_on_one_release_run_one_after_the_other() -> Result<()> {
    let world = World::new().await?;
    let (one, two) = (version("1"), version("2"));
    let (first, second) = tokio::join!(
        world.deploy_with(&one, DeployOptions::default()),
        world.deploy_with(&two, DeployOptions::default()),
    );
    assert_eq!((first?.release.revision, second?.release.revision), (1, 2));
    let spec = UninstallSpec::new(&world.name, &world.namespace);
    let (removed, deployed) = tokio::join!(
        release::uninstall(&world.cluster, &world.storage, &spec),
        world.deploy_with(&one, DeployOptions::default()),
    );
    assert!(removed?.existed);
    assert_eq!(deployed?.release.revision, 1, "installed after the removal");
    assert_eq!(world.value("a").await?, "1");
    Ok(())
}
