//! Hooks of several releases whose objects have one name.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures_util::future::try_join_all;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use release::{Cluster, DeployOptions, Host, UninstallSpec};

use crate::world::{Template, World, config_map, job};

/// A release with a Job that runs at `event` and never ends, as its image never comes.
fn with(name: &str, event: &str) -> Template {
    let shared = job("shared").replace("image: busybox", "image: busybox:never");
    Template::new(&config_map(name, "1")).hook("shared", event, &shared)
}

fn within(seconds: u64) -> DeployOptions {
    DeployOptions {
        timeout: Some(Duration::from_secs(seconds)),
        ..DeployOptions::default()
    }
}

impl World {
    fn shared(&self) -> Result<String> {
        self.kubectl(&["get", "job/shared", "--output=jsonpath={.metadata.uid}"])
    }

    /// Deploys one whose hook does not end in time. What that is told.
    async fn late(&self, map: &str) -> Result<String> {
        let template = with(map, "pre-install");
        match self.deploy_with(&template, within(3)).await {
            Ok(_) => bail!("it never ends"),
            Err(failed) => Ok(release::error_chain(&failed)),
        }
    }

    async fn removed_by(&self, cluster: &Cluster) -> Result<(), String> {
        let spec = UninstallSpec {
            timeout: Some(Duration::from_secs(3)),
            ..UninstallSpec::new(&self.name, &self.namespace)
        };
        let removed = release::uninstall(cluster, &self.storage, &spec).await;
        removed
            .map(drop)
            .map_err(|failed| release::error_chain(&failed))
    }
}

/// A hook that cannot begin yet has not failed: the removal goes on with the next try, and is told for whom it waits.
#[rstest::rstest]
#[case::before("pre-delete")]
#[case::after("post-delete")]
#[tokio::test]
async fn a_hook_of_a_removal_waits_for_what_runs_for_another_release(
    #[case] event: &str,
) -> Result<()> {
    let world = World::new().await?;
    let other = world.beside("other").await?;
    world
        .deploy_with(&with("a", event), DeployOptions::default())
        .await?;
    other.late("b").await?;
    let running = other.shared()?;
    for _ in 0..2 {
        let told = world.removed_by(&world.cluster).await.unwrap_err();
        let whose = format!("still runs for the release {}/other", world.namespace);
        ensure!(told.contains(&whose), "{told}");
        assert_eq!(world.history().await?, ["1 uninstalling"]);
        assert_eq!(world.shared()?, running);
    }
    // Nothing keeps what is left of a release for ever.
    let later = || Timestamp::now() + SignedDuration::from_mins(11);
    let later = Cluster::new(world.client.clone()).from_host(Host::repeatable(later));
    let ended = world.removed_by(&later).await;
    assert_eq!(ended.is_ok(), event == "post-delete", "{ended:?}");
    assert_eq!(world.shared()?, running);
    Ok(())
}

/// Who waits for what runs for another release deletes it once it has ended: not before that release knows that it ended well.
#[tokio::test]
async fn a_job_that_others_wait_for_has_ended_well_for_its_release() -> Result<()> {
    let first = World::new().await?;
    let mut others = Vec::new();
    for name in ["b", "c", "d", "e"] {
        let mut other = first.beside(name).await?;
        // Of one agent.
        other.cluster = first.cluster.clone();
        others.push(other);
    }
    let (ours, theirs) = (with("a", "pre-install"), with("x", "pre-install"));
    let begun = first.deploy_with(&ours, within(240));
    let all = async {
        // By then it is looked at every other second, and by who has just begun to wait more often.
        tokio::time::sleep(Duration::from_secs(12)).await;
        let running = first.shared()?;
        let waiting = others.iter().map(|one| async {
            let mut template = theirs.clone();
            template.manifest = config_map(&one.name, "1");
            one.deploy_with(&template, within(240)).await
        });
        let complete = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            assert_eq!(first.shared().ok(), Some(running));
            loop {
                // There may be none at this moment.
                let image = ["set", "image", "pods", "--all", "main=busybox:1"];
                drop(first.kubectl(&image));
                tokio::time::sleep(Duration::from_millis(1500)).await;
            }
        };
        tokio::select! {
            done = try_join_all(waiting) => done.map(drop).context("one that waited"),
            () = complete => unreachable!("it goes on"),
        }
    };
    let (begun, all) = tokio::join!(begun, all);
    begun.context("the first")?;
    all
}
