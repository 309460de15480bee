//! Going back after a failure: where to, and what is left behind.

use std::sync::{Arc, Mutex};

use anyhow::Result;
use k8s_openapi::jiff::Timestamp;
use release::action::record_failed_rollback;
use release::model::{Info, Release, Status};
use release::{DeployOptions, Storage};

use crate::memory::Memory;
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

/// What refuses to go back may quote what stood in the revision that is gone back to, which nobody has named: the caller may have no status that does.
#[tokio::test]
async fn a_failed_rollback_hands_its_target_revision_to_on_failure() -> Result<()> {
    let world = World::new().await?;
    let refused = config_map("hook", "1").replace("\ndata:", "\ndota:");
    let first = Template::new(&config_map("a", "1")).hook("hook", "pre-rollback", &refused);
    world.deploy_with(&first, options(0, false)).await?;
    for tries in 1..=2 {
        let read = Arc::new(Mutex::new(Vec::new()));
        let mut spec = world.spec(&failing("2", "stray"), options(0, true));
        spec.on_failure = Some({
            let read = Arc::clone(&read);
            Arc::new(move |release: Release| {
                let mut read = read.lock().expect("nobody panics");
                read.push((release.revision, release.manifest));
            })
        });
        let undone = release::deploy(&world.cluster, &world.storage, &spec).await;
        let text = release::error_chain(&undone.unwrap_err());
        assert!(text.contains("rolling back"), "{text}");
        let read = std::mem::take(&mut *read.lock().expect("nobody panics"));
        let has = |revision: i64, value: &str| {
            let value = format!("value: {value:?}");
            read.iter()
                .any(|(of, manifest)| *of == revision && manifest.contains(&value))
        };
        let newest = tries * 2;
        assert!(has(1, "1"), "it is built on: {read:?}");
        assert!(has(newest, "2"), "it is gone back from: {read:?}");
        assert!(has(newest + 1, "1"), "it is gone back to: {read:?}");
    }
    Ok(())
}

/// Nothing is left pending: the next deploy goes on from a revision that says that it failed.
#[tokio::test]
async fn a_rollback_whose_hook_fails_is_a_failed_revision() -> Result<()> {
    let world = World::new().await?;
    let refused = config_map("hook", "1").replace("\ndata:", "\ndota:");
    let first = Template::new(&config_map("a", "1")).hook("hook", "pre-rollback", &refused);
    world.deploy_with(&first, options(0, false)).await?;
    let second = failing("2", "stray");
    let undone = world.deploy_with(&second, options(0, true)).await;
    let text = release::error_chain(&undone.unwrap_err());
    assert!(text.contains("rolling back"), "{text}");
    assert!(text.contains("pre-rollback hooks failed"), "{text}");
    let history = world.history().await?;
    assert_eq!(history, ["1 deployed", "2 failed", "3 failed"]);
    assert_eq!(world.value("a").await?, "2");
    world.deploy(&config_map("a", "3")).await?;
    assert_eq!(world.value("stray").await?, "none");
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

fn record(revision: i64, status: Status, manifest: &str) -> Release {
    let mut record = Release {
        name: "web".to_owned(),
        namespace: "n".to_owned(),
        manifest: manifest.to_owned(),
        info: Some(Info::default()),
        revision,
        ..Release::default()
    };
    record.set_status(status, String::new());
    record
}

async fn revisions(storage: &Storage) -> Result<Vec<i64>> {
    let left = storage.history("web").await?;
    Ok(left.iter().map(|head| head.revision).collect())
}

#[tokio::test]
async fn a_failed_correction_keeps_the_record_of_an_upgrade_that_brought_more() -> Result<()> {
    let storage = Storage::new(Memory::default());
    let deployed = record(2, Status::Deployed, "good");
    for stored in [
        record(1, Status::Superseded, "old"),
        deployed.clone(),
        record(3, Status::Failed, "more"),
        record(4, Status::Failed, "good"),
    ] {
        storage.create(&stored).await?;
    }
    record_failed_rollback(&storage, &deployed, "refused", 1, Timestamp::UNIX_EPOCH).await?;
    assert_eq!(revisions(&storage).await?, [2, 3, 5]);
    Ok(())
}

/// Each refusal may quote something else: a time, a request's number, a webhook's mood.
#[tokio::test]
async fn corrections_that_fail_in_ever_other_words_cost_no_good_revision() -> Result<()> {
    let storage = Storage::new(Memory::default());
    for revision in 1..4 {
        storage
            .create(&record(revision, Status::Superseded, "old"))
            .await?;
    }
    let deployed = record(4, Status::Deployed, "good");
    storage.create(&deployed).await?;
    let fails = async |release: &Release, problem: &str, second| {
        let now = Timestamp::from_second(second)?;
        record_failed_rollback(&storage, release, problem, 5, now).await?;
        anyhow::Ok(())
    };
    for number in 0..9 {
        fails(&deployed, &format!("request {number} was refused"), number).await?;
    }
    assert_eq!(revisions(&storage).await?, [1, 2, 3, 4, 5]);
    let failed = storage.get("web", 5).await?;
    assert_eq!(failed.status(), Status::Failed);
    assert!(failed.description().ends_with("request 8 was refused"));
    let info = failed.info.as_ref().expect("it has been written");
    assert_eq!(info.last_deployed.instant(), Timestamp::from_second(8)?);

    // What was deployed since is another one to go back to, and its failure takes the place of that.
    let mut former = storage.get("web", 4).await?;
    former.set_status(Status::Superseded, String::new());
    storage.update(&former).await?;
    let deployed = record(6, Status::Deployed, "good");
    storage.create(&deployed).await?;
    fails(&deployed, "refused", 10).await?;
    assert_eq!(revisions(&storage).await?, [2, 3, 4, 6, 7]);
    fails(&deployed, "refused again", 11).await?;
    assert_eq!(revisions(&storage).await?, [2, 3, 4, 6, 7]);
    Ok(())
}
