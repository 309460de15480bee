//! What each option of a deployment does.

use std::time::Duration;

use anyhow::Result;
use release::{DeployOptions, UninstallSpec};
use testbed::wait::wait_until;

use crate::world::{Template, World, config_map, deployment, job};

#[tokio::test]
async fn a_missing_namespace_is_created_unless_that_is_forbidden() -> Result<()> {
    let world = World::new().await?;
    let template = Template::new(&config_map("a", "1"));
    let options = DeployOptions {
        create_namespace: false,
        ..DeployOptions::default()
    };
    let error = world.deploy_with(&template, options).await.unwrap_err();
    let text = release::error_chain(&error);
    assert!(text.contains("not found"), "{text}");
    world
        .deploy_with(&template, DeployOptions::default())
        .await?;
    let namespace = world.kubectl(&[
        "get",
        "namespace",
        &world.namespace,
        "--output",
        "jsonpath={.metadata.labels.name}",
    ])?;
    assert_eq!(namespace, world.namespace);
    Ok(())
}

#[tokio::test]
async fn max_history_records_are_kept_and_always_the_last_good_one() -> Result<()> {
    let world = World::new().await?;
    let keep = |max_history| DeployOptions {
        max_history,
        ..DeployOptions::default()
    };
    for value in ["1", "2", "3", "4"] {
        let template = Template::new(&config_map("a", value));
        world.deploy_with(&template, keep(3)).await?;
    }
    assert_eq!(
        world.history().await?,
        ["2 superseded", "3 superseded", "4 deployed"]
    );
    let bad = config_map("b", "1").replace("\ndata:", "\ndota:");
    for value in ["5", "6", "7"] {
        let template = Template::new(&(config_map("a", value) + &bad));
        world.deploy_with(&template, keep(2)).await.unwrap_err();
        assert!(world.history().await?.contains(&"4 deployed".to_owned()));
    }
    assert_eq!(world.history().await?, ["4 deployed", "7 failed"]);
    for value in ["8", "9", "10"] {
        let template = Template::new(&config_map("a", value));
        world.deploy_with(&template, keep(0)).await?;
    }
    assert_eq!(world.history().await?.len(), 5, "no limit");
    Ok(())
}

#[tokio::test]
async fn labels_added_to_a_record_are_carried_to_the_next_revision() -> Result<()> {
    let world = World::new().await?;
    world.deploy(&config_map("a", "1")).await?;
    let record = "sh.helm.release.v1.web.v1";
    world.kubectl(&["label", "secret", record, "team=a", "stage="])?;
    world.deploy(&config_map("a", "2")).await?;
    let second = world.newest().await?;
    let labels = [("team".to_owned(), "a".to_owned())].into();
    assert_eq!(second.labels, labels);
    assert_eq!(second.description(), "Upgrade complete");
    Ok(())
}

#[tokio::test]
async fn hooks_of_a_removal_can_be_left_out() -> Result<()> {
    let world = World::new().await?;
    let template = Template::new(&config_map("a", "1")).hook(
        "goodbye",
        "pre-delete",
        &config_map("goodbye", "1"),
    );
    world
        .deploy_with(&template, DeployOptions::default())
        .await?;
    let spec = UninstallSpec {
        disable_hooks: true,
        ..UninstallSpec::new("web", &world.namespace)
    };
    release::uninstall(&world.cluster, &world.storage, &spec).await?;
    assert!(world.config_map("goodbye").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn a_removal_may_leave_the_history() -> Result<()> {
    let world = World::new().await?;
    world.deploy(&config_map("a", "1")).await?;
    let spec = UninstallSpec {
        keep_history: true,
        ..UninstallSpec::new("web", &world.namespace)
    };
    for _ in 0..2 {
        release::uninstall(&world.cluster, &world.storage, &spec).await?;
        assert_eq!(world.history().await?, ["1 uninstalled"]);
        assert!(world.config_map("a").await?.is_none());
    }
    let done = world.deploy(&config_map("a", "1")).await?;
    assert!(done.plan.action.is_install());
    assert_eq!(world.history().await?, ["1 uninstalled", "2 deployed"]);
    Ok(())
}

#[tokio::test]
async fn an_unchanged_release_is_deployed_again_on_request() -> Result<()> {
    let world = World::new().await?;
    world.deploy(&config_map("a", "1")).await?;
    let options = DeployOptions {
        always: true,
        ..DeployOptions::default()
    };
    let template = Template::new(&config_map("a", "1"));
    let done = world.deploy_with(&template, options).await?;
    assert_eq!((done.changed, done.release.revision), (true, 2));
    Ok(())
}

fn atomic(seconds: u64, wait_for_jobs: bool) -> DeployOptions {
    DeployOptions {
        atomic: true,
        wait_for_jobs,
        timeout: Some(Duration::from_secs(seconds)),
        ..DeployOptions::default()
    }
}

#[tokio::test]
async fn atomic_waits_for_its_timeout_and_for_jobs_on_request() -> Result<()> {
    let world = World::new().await?;
    let endless = job("endless").replace("image: busybox", "image: busybox:never");
    let template = Template::new(&format!("---\n{endless}"));
    world.deploy_with(&template, atomic(30, false)).await?;

    let world = World::new().await?;
    let error = world
        .deploy_with(&template, atomic(2, true))
        .await
        .unwrap_err();
    let text = release::error_chain(&error);
    assert!(
        text.starts_with("release web failed, and has been uninstalled"),
        "{text}"
    );
    assert!(text.ends_with("context deadline exceeded"), "{text}");
    Ok(())
}

/// A time-out without atomic is no failure: whoever watches sees it become ready.
#[tokio::test]
async fn a_timeout_without_atomic_waits_for_nothing() -> Result<()> {
    let world = World::new().await?;
    let template = Template::new(&deployment("d", 1, "nginx:never"));
    let options = DeployOptions {
        timeout: Some(Duration::from_secs(1)),
        ..DeployOptions::default()
    };
    let done = world.deploy_with(&template, options).await?;
    assert_eq!(done.release.status().as_str(), "deployed");
    Ok(())
}

/// Helm's watcher reads the pods of a StatefulSet and of a bare ReplicaSet, and does not wait for what
/// has failed.
#[tokio::test]
async fn atomic_fails_with_the_pods_of_a_controller() -> Result<()> {
    const CRASHING: &str = r#"{"status": {"phase": "Running", "containerStatuses": [{"name": "main", "image": "x", "imageID": "",
        "ready": false, "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}}"#;
    for kind in ["StatefulSet", "ReplicaSet"] {
        let world = World::new().await?;
        let mut set = deployment("set", 1, "nginx:never")
            .replace("kind: Deployment", &format!("kind: {kind}"));
        if kind == "StatefulSet" {
            set = set.replace("  replicas: 1", "  serviceName: set\n  replicas: 1");
        }
        let template = Template::new(&set);
        let crash = wait_until("the pod to crash", Duration::from_secs(300), async || {
            let get = ["get", "pods", "--selector=app=set", "--output=name"];
            let pods = world.kubectl(&get).map_err(|error| error.to_string())?;
            let pod = pods.lines().next().ok_or("no pod yet")?;
            let patch = [
                "patch",
                pod,
                "--subresource=status",
                "--type=merge",
                "--patch",
                CRASHING,
            ];
            world.kubectl(&patch).map_err(|error| error.to_string())
        });
        let (deployed, crashed) =
            tokio::join!(world.deploy_with(&template, atomic(120, false)), crash);
        crashed?;
        let text = release::error_chain(&deployed.unwrap_err());
        assert!(
            text.ends_with("status: Failed, message: 1 pods have failed"),
            "{kind}: {text}"
        );
        assert_eq!(world.history().await?, [""; 0], "{kind}: it was undone");
        assert_eq!(
            world.kubectl(&["get", kind, "--output=name"])?,
            "",
            "{kind}"
        );
    }
    Ok(())
}
