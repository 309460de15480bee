//! Going back, by itself after a failure or because somebody asks: where to, and what is left behind.

use anyhow::Result;
use release::{DeployOptions, Deployed, RollbackError, RollbackSpec};

use crate::world::{Template, World, config_map};

fn options(max_history: i64, atomic: bool) -> DeployOptions {
    DeployOptions {
        atomic,
        max_history,
        ..DeployOptions::default()
    }
}

/// A ConfigMap `a`, one more, and an object that the API server refuses.
fn failing(value: &str, stray: &str) -> Template {
    let refused = config_map("zz", "1").replace("\ndata:", "\ndota:");
    Template::new(&(config_map("a", value) + &config_map(stray, value) + &refused))
}

async fn roll_back(
    world: &World,
    revision: i64,
    max_history: i64,
) -> Result<Deployed, RollbackError> {
    let spec = RollbackSpec {
        name: world.name.clone(),
        namespace: world.namespace.clone(),
        revision,
        options: options(max_history, false),
    };
    release::rollback(&world.cluster, &world.storage, &spec).await
}

/// Whether the record of a failed attempt is pruned on the way or not, what it created goes.
#[tokio::test]
async fn an_undone_upgrade_leaves_nothing_of_the_attempts_before_it() -> Result<()> {
    for max_history in [1, 2, 3, 4, 0] {
        let world = World::new().await?;
        world.deploy(&config_map("a", "1")).await?;
        let first = failing("2", "stray");
        let keep = options(max_history, false);
        world.deploy_with(&first, keep).await.unwrap_err();
        assert_eq!(world.value("stray").await?, "2");
        let undone = options(max_history, true);
        let second = failing("3", "other");
        let error = world.deploy_with(&second, undone).await.unwrap_err();
        let text = release::error_chain(&error);
        assert!(text.contains("has been rolled back"), "{text}");
        let what = format!("{max_history} records: {:?}", world.history().await?);
        for (name, value) in [("a", "1"), ("stray", "none"), ("other", "none")] {
            assert_eq!(world.value(name).await?, value, "{name}, {what}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_rollback_deletes_objects_of_failed_and_deployed_revisions() -> Result<()> {
    for max_history in [2, 0] {
        let world = World::new().await?;
        for value in ["1", "2"] {
            let template =
                Template::new(&(config_map("a", value) + &config_map(&format!("m{value}"), value)));
            world.deploy_with(&template, options(0, false)).await?;
        }
        for value in ["3", "4"] {
            let template = failing(value, &format!("m{value}"));
            let error = world.deploy_with(&template, options(0, false)).await;
            assert!(error.is_err());
        }
        let done = roll_back(&world, 1, max_history).await?;
        assert_eq!(done.release.revision, 5);
        let what = format!("{:?}", world.history().await?);
        let expected = [
            ("a", "1"),
            ("m1", "1"),
            ("m2", "none"),
            ("m3", "none"),
            ("m4", "none"),
        ];
        for (name, value) in expected {
            assert_eq!(world.value(name).await?, value, "{name}, {what}");
        }
        let again = world
            .deploy(&(config_map("a", "1") + &config_map("m1", "1")))
            .await?;
        assert!(!again.changed, "what was gone back to is what is deployed");
    }
    Ok(())
}

/// Revisions that were pruned, or never were, are told as helm tells them, and nothing is written.
/// Nothing is left pending: the next deploy goes on from a revision that says that it failed.
#[tokio::test]
async fn a_rollback_whose_hook_fails_is_a_failed_revision() -> Result<()> {
    let world = World::new().await?;
    let refused = config_map("hook", "1").replace("\ndata:", "\ndota:");
    let first = Template::new(&config_map("a", "1")).hook("hook", "pre-rollback", &refused);
    world.deploy_with(&first, options(0, false)).await?;
    world.deploy(&config_map("a", "2")).await?;
    let error = roll_back(&world, 1, 0).await.unwrap_err();
    let text = release::error_chain(&error);
    assert!(text.starts_with("pre-rollback hooks failed"), "{text}");
    assert_eq!(
        world.history().await?,
        ["1 superseded", "2 deployed", "3 failed"]
    );
    assert_eq!(world.value("a").await?, "2");
    Ok(())
}

#[tokio::test]
async fn a_rollback_to_a_revision_that_is_not_stored_is_refused() -> Result<()> {
    let world = World::new().await?;
    for value in ["1", "2", "3"] {
        world.deploy(&config_map("a", value)).await?;
    }
    let before = world.history().await?;
    assert_eq!(before, ["2 superseded", "3 deployed"]);
    for revision in [1, 9, -1] {
        let error = roll_back(&world, revision, 2).await.unwrap_err();
        let text = release::error_chain(&error);
        assert_eq!(text, format!("release has no {revision} version"));
    }
    assert_eq!(world.history().await?, before);
    assert_eq!(world.value("a").await?, "3");
    Ok(())
}

/// One record is no room for both what was good and what is tried: the good one stays, always.
#[tokio::test]
async fn with_one_record_kept_a_failed_upgrade_can_still_be_rolled_back() -> Result<()> {
    let world = World::new().await?;
    let map = |value: &str| Template::new(&config_map("a", value));
    world.deploy_with(&map("1"), options(1, false)).await?;
    world.deploy_with(&map("2"), options(1, false)).await?;
    world.deploy_with(&map("3"), options(1, false)).await?;
    assert_eq!(world.history().await?, ["2 superseded", "3 deployed"]);
    for value in ["4", "5"] {
        let failing = failing(value, "stray");
        let failed = world.deploy_with(&failing, options(1, false)).await;
        assert!(failed.is_err());
        assert!(
            world.has_good_revision().await?,
            "{:?}",
            world.history().await?
        );
    }
    let undone = world
        .deploy_with(&failing("6", "stray"), options(1, true))
        .await;
    let text = release::error_chain(&undone.unwrap_err());
    assert!(text.contains("has been rolled back"), "{text}");
    assert_eq!(world.value("a").await?, "3");
    assert_eq!(world.value("stray").await?, "none");
    let done = world.deploy_with(&map("7"), options(1, false)).await?;
    let history = world.history().await?;
    assert_eq!(
        history.last(),
        Some(&format!("{} deployed", done.release.revision))
    );
    assert!(history.len() <= 2, "{history:?}");
    Ok(())
}
