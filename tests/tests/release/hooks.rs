//! Hooks that fail, and what the next attempt makes of them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use release::model::{HookExecution, Status};
use release::state::Action;
use release::{
    AbortCheck, Cluster, DeployError, DeployOptions, Host, UninstallError, UninstallSpec,
};
use testbed::cluster::ADMIN;
use tokio::sync::Notify;

use crate::doomed::Doomed;
use crate::world::{Template, World, config_map, job};

/// A Job whose pod never runs.
fn endless_job(name: &str) -> String {
    job(name).replace("image: busybox", "image: busybox:never")
}

/// A Job whose pod never runs, given up after a second.
fn doomed_job(name: &str) -> String {
    endless_job(name).replace(
        "spec:\n  template",
        "spec:\n  backoffLimit: 0\n  activeDeadlineSeconds: 1\n  template",
    )
}

fn options() -> DeployOptions {
    DeployOptions {
        timeout: Some(Duration::from_secs(60)),
        ..DeployOptions::default()
    }
}

impl World {
    fn uid(&self, object: &str) -> Result<String> {
        self.kubectl(&["get", object, "--output=jsonpath={.metadata.uid}"])
    }

    /// The cluster, once a removal has waited for long enough.
    fn later(&self) -> Cluster {
        let later = || Timestamp::now() + SignedDuration::from_mins(11);
        Cluster::new(self.client.clone()).from_host(Host::repeatable(later))
    }

    /// Lets the pods of a Job run that never would, and waits for its end.
    fn complete(&self, job: &str) -> Result<()> {
        let selector = format!("--selector=job-name={job}");
        self.kubectl(&["set", "image", "pods", &selector, "main=busybox:1"])?;
        let job = format!("job/{job}");
        self.kubectl(&["wait", "--for=condition=complete", "--timeout=300s", &job])?;
        Ok(())
    }
}

/// The same chart again runs the hook again and writes no further revision; a chart that mends it is an
/// upgrade of what was good, with the Job of the same name made anew.
#[tokio::test]
async fn a_job_that_failed_before_an_upgrade_runs_again_until_it_passes() -> Result<()> {
    let world = World::new().await?;
    world.deploy(&config_map("a", "1")).await?;
    let with = |migrate: &str| {
        Template::new(&config_map("a", "2")).hook("migrate", "pre-upgrade", migrate)
    };
    let mut uids = Vec::new();
    for _ in 0..2 {
        let failed = world
            .deploy_with(&with(&doomed_job("migrate")), options())
            .await;
        let error = failed.unwrap_err();
        let text = release::error_chain(&error);
        assert!(matches!(error, DeployError::Hook { .. }), "{text}");
        assert!(
            text.starts_with("pre-upgrade hooks failed: ") && text.contains("status: Failed"),
            "{text}"
        );
        assert_eq!(world.history().await?, ["1 deployed", "2 failed"]);
        assert_eq!(
            world.value("a").await?,
            "1",
            "nothing is applied before it passes"
        );
        let record = world.newest().await?;
        assert_eq!(record.hooks[0].last_run.phase, HookExecution::FAILED);
        uids.push(world.uid("job/migrate")?);
    }
    assert_ne!(uids[0], uids[1], "it ran again");
    let done = world.deploy_with(&with(&job("migrate")), options()).await?;
    assert_eq!(
        done.plan.action,
        Action::Upgrade {
            revision: 3,
            from: 1
        }
    );
    let phase = &done.release.hooks[0].last_run.phase;
    assert_eq!(phase, HookExecution::SUCCEEDED);
    assert!(!uids.contains(&world.uid("job/migrate")?));
    assert_eq!(world.value("a").await?, "2");
    assert_eq!(world.history().await?, ["1 superseded", "3 deployed"]);
    Ok(())
}

/// A wish to be kept, as charts put it on all they have, does not keep a hook from running: the Job of the last time makes way.
#[tokio::test]
async fn a_job_that_asks_to_be_kept_runs_again() -> Result<()> {
    let world = World::new().await?;
    let with = |image: &str, event: &str| {
        let migrate = job("migrate").replace("image: busybox", &format!("image: {image}"));
        let mut template = Template::new(&config_map("a", image)).hook("migrate", event, &migrate);
        let manifest = &mut template.hooks[0].manifest;
        *manifest = manifest.replace(
            "annotations: {",
            "annotations: {helm.sh/resource-policy: keep, ",
        );
        template
    };
    let mut uids = Vec::new();
    for (image, event) in [("busybox", "pre-install"), ("busybox:2", "pre-upgrade")] {
        let done = world.deploy_with(&with(image, event), options()).await?;
        let phase = &done.release.hooks[0].last_run.phase;
        assert_eq!(phase, HookExecution::SUCCEEDED);
        uids.push(world.uid("job/migrate")?);
    }
    assert_ne!(uids[0], uids[1], "it ran again");
    Ok(())
}

/// A Job that fails after the objects were applied leaves them, and the release comes right with it.
#[tokio::test]
async fn a_job_that_failed_after_the_install_runs_again_with_the_install() -> Result<()> {
    let world = World::new().await?;
    let with = |after: &str| {
        Template::new(&config_map("a", "1"))
            .hook("before", "pre-install", &config_map("before", "1"))
            .hook("after", "post-install", after)
    };
    let failed = world
        .deploy_with(&with(&doomed_job("after")), options())
        .await;
    assert!(failed.is_err());
    assert_eq!(world.history().await?, ["1 failed"]);
    assert_eq!(world.value("a").await?, "1");
    let done = world.deploy_with(&with(&job("after")), options()).await?;
    assert!(done.plan.action.is_install(), "nothing was ever deployed");
    for hook in &done.release.hooks {
        assert_eq!(
            hook.last_run.phase,
            HookExecution::SUCCEEDED,
            "{}",
            hook.name
        );
    }
    assert_eq!(world.history().await?, ["1 failed", "2 deployed"]);
    Ok(())
}

/// A removal that waits for each hook only for a moment.
fn brief(world: &World) -> UninstallSpec {
    UninstallSpec {
        timeout: Some(Duration::from_secs(5)),
        ..UninstallSpec::new("web", &world.namespace)
    }
}

/// Tries to remove the release, which its hook keeps from it.
async fn fail_to_uninstall(world: &World) -> Result<()> {
    match release::uninstall(&world.cluster, &world.storage, &brief(world)).await {
        Ok(_) => bail!("it was removed"),
        Err(failed) => {
            let text = release::error_chain(&failed);
            ensure!(text.contains("goodbye"), "{text}");
        }
    }
    Ok(())
}

/// The same by a hook that comes before all else.
async fn fail_to_begin_to_uninstall(world: &World) -> Result<()> {
    fail_to_uninstall(world).await?;
    ensure!(
        world.config_map("a").await?.is_some(),
        "nothing goes before it has run"
    );
    Ok(())
}

/// Somebody wants it again while its hook runs: what it has stays, and the next deploy goes on with it.
#[tokio::test]
async fn a_release_that_is_wanted_again_once_its_hook_has_run_stays() -> Result<()> {
    let world = World::new().await?;
    let template =
        Template::new(&config_map("a", "1")).hook("goodbye", "pre-delete", &job("goodbye"));
    world.deploy_with(&template, options()).await?;
    let before = world.uid("configmap/a")?;
    let spec = UninstallSpec {
        abort_check: AbortCheck::new(|| true),
        ..UninstallSpec::new("web", &world.namespace)
    };
    let aborted = release::uninstall(&world.cluster, &world.storage, &spec).await;
    assert!(matches!(aborted, Err(UninstallError::Aborted(_))));
    world.uid("job/goodbye")?;
    world.deploy_with(&template, options()).await?;
    assert_eq!(world.uid("configmap/a")?, before);
    let spec = UninstallSpec::new("web", &world.namespace);
    release::uninstall(&world.cluster, &world.storage, &spec).await?;
    assert!(world.config_map("a").await?.is_none());
    Ok(())
}

/// What fails once does not keep a release for ever: Helm makes way for the Job and runs it again.
#[tokio::test]
async fn a_job_that_failed_before_a_removal_runs_again_with_the_next_try() -> Result<()> {
    let world = World::new().await?;
    let template =
        Template::new(&config_map("a", "1")).hook("goodbye", "pre-delete", &doomed_job("goodbye"));
    world.deploy_with(&template, options()).await?;
    fail_to_begin_to_uninstall(&world).await?;
    let first = world.uid("job/goodbye")?;
    fail_to_begin_to_uninstall(&world).await?;
    ensure!(world.uid("job/goodbye")? != first, "it ran again");
    Ok(())
}

/// A Job that takes longer than a try is waited for by the next one, whatever becomes of those before it.
#[rstest::rstest]
#[case("pre-delete")]
#[case("post-delete")]
#[tokio::test]
async fn a_job_that_runs_for_longer_than_a_removal_waits_is_not_made_anew(
    #[case] event: &str,
) -> Result<()> {
    let world = World::new().await?;
    let mut template = Template::new(&config_map("a", "1"))
        .hook("at-first", "pre-delete", &job("at-first"))
        .hook("goodbye", event, &endless_job("goodbye"));
    template.hooks[0].delete_policies = vec!["hook-succeeded".to_owned()];
    template.hooks[1].weight = 1;
    template.hooks[1].delete_policies =
        vec!["before-hook-creation".to_owned(), "hook-failed".to_owned()];
    world.deploy_with(&template, options()).await?;
    fail_to_uninstall(&world).await?;
    let is_left = world.config_map("a").await?.is_some();
    assert_eq!(is_left, event == "pre-delete");
    let first = world.uid("job/goodbye")?;
    ensure!(world.uid("job/at-first").is_err(), "it has ended well");
    fail_to_uninstall(&world).await?;
    assert_eq!(world.uid("job/goodbye")?, first);
    ensure!(world.uid("job/at-first").is_err(), "it ran once");
    if event == "post-delete" {
        // It does not keep the release for ever, and is deleted as one that failed.
        let (cluster, spec) = (world.later(), brief(&world));
        release::uninstall(&cluster, &world.storage, &spec).await?;
        assert!(world.history().await?.is_empty());
        ensure!(world.uid("job/goodbye").is_err(), "it is deleted");
    }
    Ok(())
}

/// Nothing is left that it could keep, and Helm keeps nothing either.
#[tokio::test]
async fn a_job_that_fails_after_a_removal_does_not_keep_the_release() -> Result<()> {
    let world = World::new().await?;
    let template =
        Template::new(&config_map("a", "1")).hook("goodbye", "post-delete", &doomed_job("goodbye"));
    world.deploy_with(&template, options()).await?;
    let spec = UninstallSpec::new("web", &world.namespace);
    release::uninstall(&world.cluster, &world.storage, &spec).await?;
    world.uid("job/goodbye")?;
    assert!(world.history().await?.is_empty());
    assert!(world.config_map("a").await?.is_none());
    Ok(())
}

/// A Job that the chart leaves it to the API server to name, run before the install.
fn generated(migrate: &str, policies: &[&str]) -> Template {
    let migrate = migrate.replace("name: migrate", "generateName: migrate-");
    let mut template =
        Template::new(&config_map("a", "1")).hook("migrate", "pre-install", &migrate);
    template.hooks[0].delete_policies = policies.iter().map(|&policy| policy.to_owned()).collect();
    template
}

impl World {
    /// The uids of the Jobs there are.
    fn jobs(&self) -> Result<Vec<String>> {
        let uids = self.kubectl(&["get", "jobs", "--output=jsonpath={.items[*].metadata.uid}"])?;
        Ok(uids.split_whitespace().map(str::to_owned).collect())
    }
}

/// It is waited for as any other, and goes by its policies. One that has failed gives way to the next try, whatever they say.
#[rstest::rstest]
#[case(&["hook-succeeded"], 1)]
#[case(&["hook-succeeded", "hook-failed"], 0)]
#[case(&["before-hook-creation", "hook-succeeded"], 1)]
#[tokio::test]
async fn a_job_with_a_generated_name_ends_before_the_objects_come(
    #[case] policies: &[&str],
    #[case] left: usize,
) -> Result<()> {
    let world = World::new().await?;
    let doomed = generated(&doomed_job("migrate"), policies);
    let mut failed_jobs = Vec::new();
    for _ in 0..2 {
        let failed = world.deploy_with(&doomed, options()).await;
        assert!(
            matches!(failed, Err(DeployError::Hook { .. })),
            "{failed:?}"
        );
        assert!(world.config_map("a").await?.is_none());
        let jobs = world.jobs()?;
        assert_eq!(jobs.len(), left);
        failed_jobs.push(jobs);
    }
    assert!(
        left == 0 || failed_jobs[0] != failed_jobs[1],
        "it ran again"
    );
    let passing = generated(&job("migrate"), policies);
    let done = world.deploy_with(&passing, options()).await?;
    let phase = &done.release.hooks[0].last_run.phase;
    assert_eq!(phase, HookExecution::SUCCEEDED);
    assert_eq!(world.jobs()?, failed_jobs[1], "it has succeeded, and went");
    Ok(())
}

/// Whoever goes on finds it by the name that its run gives it; a try that comes after one that did not wait long enough waits for it too.
#[tokio::test]
async fn a_job_with_a_generated_name_is_not_made_anew_by_who_goes_on() -> Result<()> {
    let world = World::new().await?;
    let endless = job("migrate").replace("image: busybox", "image: busybox:never");
    let template = generated(&endless, &["hook-succeeded"]);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let started = Arc::new(Notify::new());
        let mut spec = world.spec(&template, options());
        let starts = Arc::clone(&started);
        spec.on_hooks = Some(Arc::new(move || starts.notify_one()));
        tokio::select! {
            _ = release::deploy(&world.cluster, &world.storage, &spec) => bail!("the hook never ends"),
            () = started.notified() => {}
        }
        assert_eq!(world.history().await?, ["1 pending-install"]);
        seen.push(world.jobs()?);
    }
    let brief = DeployOptions {
        timeout: Some(Duration::from_secs(2)),
        ..DeployOptions::default()
    };
    for _ in 0..2 {
        let late = world.deploy_with(&template, brief.clone()).await;
        assert!(matches!(late, Err(DeployError::Hook { .. })), "{late:?}");
        seen.push(world.jobs()?);
    }
    assert_eq!(seen[0].len(), 1);
    assert!(seen.iter().all(|jobs| *jobs == seen[0]), "{seen:?}");
    Ok(())
}

/// It may be dropping a database that the release has again.
#[rstest::rstest]
#[case::until_it_ends("post-delete", false)]
#[case::for_ten_minutes("post-delete", true)]
#[case::before_its_objects_go("pre-delete", false)]
#[tokio::test]
async fn redeploying_a_release_waits_for_the_job_of_its_removal(
    #[case] event: &str,
    #[case] is_endless: bool,
) -> Result<()> {
    let world = World::new().await?;
    let with = |value: &str| {
        let template = Template::new(&config_map("a", value));
        let mut template = template.hook("goodbye", event, &endless_job("goodbye"));
        template.hooks[0].delete_policies =
            vec!["hook-succeeded".to_owned(), "hook-failed".to_owned()];
        template
    };
    world.deploy_with(&with("1"), options()).await?;
    fail_to_uninstall(&world).await?;
    let brief = || DeployOptions {
        timeout: Some(Duration::from_secs(5)),
        ..DeployOptions::default()
    };
    for _ in 0..2 {
        let error = world.deploy_with(&with("2"), brief()).await.unwrap_err();
        let text = release::error_chain(&error);
        assert!(matches!(error, DeployError::Removal(_)), "{text}");
        ensure!(world.value("a").await? != "2", "it runs still");
        world.uid("job/goodbye")?;
    }
    let cluster = match is_endless {
        true => world.later(),
        false => {
            world.complete("goodbye")?;
            world.cluster.clone()
        }
    };
    let spec = world.spec(&with("2"), brief());
    release::deploy(&cluster, &world.storage, &spec).await?;
    assert_eq!(world.value("a").await?, "2");
    ensure!(world.uid("job/goodbye").is_err(), "it is deleted");
    assert_eq!(world.history().await?, ["1 uninstalled", "2 deployed"]);
    Ok(())
}

/// Nobody looked while the one before it ran, and ended.
#[tokio::test]
async fn each_job_after_a_removal_has_time_of_its_own() -> Result<()> {
    let world = World::new().await?;
    let names = ["goodbye-one", "goodbye-two"];
    let mut template = Template::new(&config_map("a", "1"));
    for (at, name) in names.into_iter().enumerate() {
        template = template.hook(name, "post-delete", &endless_job(name));
        template.hooks[at].delete_policies = vec!["hook-failed".to_owned()];
    }
    world.deploy_with(&template, options()).await?;
    fail_to_uninstall(&world).await?;
    world.complete(names[0])?;
    let spec = brief(&world);
    let tried = release::uninstall(&world.later(), &world.storage, &spec).await;
    let text = release::error_chain(&tried.unwrap_err());
    ensure!(text.contains(names[1]), "{text}");
    world.uid("job/goodbye-two")?;
    assert_eq!(world.history().await?, ["1 uninstalling"]);
    Ok(())
}

/// The removal has taken long before it came to that; once it cannot be started for as long, it is over.
#[rstest::rstest]
#[case::then_it_can_be(false)]
#[case::for_ever(true)]
#[tokio::test]
async fn a_hook_that_cannot_be_started_after_a_removal_is_tried_for_ten_minutes(
    #[case] is_for_ever: bool,
) -> Result<()> {
    let world = World::new().await?;
    let template = Template::new(&config_map("a", "1")).hook(
        "goodbye",
        "post-delete",
        &config_map("goodbye", "1"),
    );
    world.deploy_with(&template, options()).await?;
    let former = template.hooks[0]
        .manifest
        .replace("value: \"1\"", "value: former");
    world
        .create(&former.replacen(
            "metadata:\n",
            "metadata:\n  finalizers: [example.com/stay]\n",
            1,
        ))
        .await?;
    let mut record = world.storage.get("web", 1).await?;
    record.set_status(Status::Uninstalling, "began long ago");
    if let Some(info) = &mut record.info {
        info.deleted = chart::Time::utc(Timestamp::now() - SignedDuration::from_mins(15));
    }
    world.storage.update(&record).await?;
    for _ in 0..2 {
        fail_to_uninstall(&world).await?;
        assert_eq!(world.history().await?, ["1 uninstalling"]);
    }
    let cluster = match is_for_ever {
        true => world.later(),
        false => {
            let patch = r#"{"metadata": {"finalizers": null}}"#;
            world.kubectl(&[
                "patch",
                "configmap",
                "goodbye",
                "--type=merge",
                "--patch",
                patch,
            ])?;
            world.cluster.clone()
        }
    };
    release::uninstall(&cluster, &world.storage, &brief(&world)).await?;
    assert!(world.history().await?.is_empty());
    let expected = if is_for_ever { "former" } else { "1" };
    assert_eq!(world.value("goodbye").await?, expected);
    Ok(())
}

/// A failure after which nothing is left to be done is written down before anything is deleted.
#[tokio::test]
async fn a_job_that_fails_after_a_removal_runs_once_whenever_the_agent_is_killed() -> Result<()> {
    for last in 1.. {
        let world = World::new().await?;
        let mut template = Template::new(&config_map("a", "1")).hook(
            "goodbye",
            "post-delete",
            &doomed_job("goodbye"),
        );
        template.hooks[0].delete_policies = vec!["hook-failed".to_owned()];
        world.deploy_with(&template, options()).await?;
        let mark = world.plane.audit().mark();
        let doomed = Doomed::new(&world).await?;
        let was_cut_off = doomed.uninstall(last).await;
        let spec = UninstallSpec::new(&world.name, &world.namespace);
        release::uninstall(&world.cluster, &world.storage, &spec).await?;
        let requests = world.plane.audit().by_user(ADMIN, mark)?;
        let runs = requests.iter().filter(|request| {
            (request.code, request.resource.as_str()) == (201, "jobs")
                && request.namespace == world.namespace
        });
        assert_eq!(runs.count(), 1, "after change {last}");
        ensure!(world.uid("job/goodbye").is_err(), "after change {last}");
        assert!(world.history().await?.is_empty(), "after change {last}");
        if !was_cut_off {
            break;
        }
    }
    Ok(())
}

/// Nobody tries again to undo it: what is late then has failed, as with Helm.
#[rstest::rstest]
#[case("pre-delete")]
#[case("post-delete")]
#[tokio::test]
async fn an_undone_install_leaves_no_job_that_should_go_when_it_fails(
    #[case] event: &str,
) -> Result<()> {
    let world = World::new().await?;
    let bad = config_map("zz", "1").replace("\ndata:", "\ndota:");
    let mut template = Template::new(&(config_map("a", "1") + &bad)).hook(
        "goodbye",
        event,
        &endless_job("goodbye"),
    );
    template.hooks[0].delete_policies = vec!["hook-failed".to_owned()];
    let atomic = DeployOptions {
        atomic: true,
        timeout: Some(Duration::from_secs(5)),
        ..DeployOptions::default()
    };
    let error = world.deploy_with(&template, atomic).await.unwrap_err();
    let text = release::error_chain(&error);
    ensure!(world.uid("job/goodbye").is_err(), "{text}");
    if event == "post-delete" {
        assert!(matches!(error, DeployError::Undone { .. }), "{text}");
        assert!(world.history().await?.is_empty(), "{text}");
        assert!(world.config_map("a").await?.is_none());
    }
    Ok(())
}
