//! Records that somebody else wrote are not trusted: each must have its stored digest.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent::ledger::{LedgerEntry, Notes, OwnedRecords};
use anyhow::Result;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::{Api, ResourceExt as _};
use release::BoxError;
use release::action::Writer;
use release::model::{Release, Status};
use release::state::State;
use release::storage::{DigestStore, KnownDigest, StorageError, StoredRelease, key};
use release::{DeployError, DeployOptions, Storage, UninstallError, UninstallSpec};
use testbed::wait::wait_until;

use crate::world::{Template, World, config_map};

/// The ledger's digests of one release, which are those of attempts, and the revisions in the order they were stored.
#[derive(Debug, Default)]
pub(crate) struct Digests {
    entry: Mutex<Option<LedgerEntry>>,
    /// The bundle whose records are read and written.
    bundle: Mutex<String>,
    stored: Mutex<Vec<i64>>,
    /// The next digest is noted and cannot be written.
    fails: AtomicBool,
    theirs: Mutex<Vec<i64>>,
}

impl Digests {
    /// Those of these revisions are known of a bundle's release, and that one is gone.
    pub(crate) fn begin(&self, bundle: &str, noted: &[(i64, String)], gone: Option<i64>) {
        *self.bundle() = bundle.to_owned();
        let known = LedgerEntry {
            bundle: bundle.to_owned(),
            revisions: Some(Notes::default()),
            ..LedgerEntry::default()
        };
        let note = |entry: LedgerEntry, (revision, digest): &(i64, String)| {
            entry.noting(*revision, digest.clone())
        };
        let known = noted.iter().fold(known, note);
        *self.entry() = Some(match gone {
            Some(gone) => known.noting(gone, "gone".to_owned()).without(gone),
            None => known,
        });
    }

    /// As the ledger has it.
    pub(crate) fn as_known(&self) -> LedgerEntry {
        self.entry().clone().unwrap_or_default()
    }

    /// The release is another bundle's, which waited for it.
    pub(crate) fn hand_over(&self, to: &str, is_attempt: bool) {
        *self.bundle() = to.to_owned();
        let handed = self.as_known().handed_to(to);
        *self.entry() = Some(LedgerEntry {
            is_attempt,
            ..handed
        });
    }

    /// A deploy has succeeded: the release is the bundle's.
    pub(crate) fn own(&self) {
        let known = self.as_known();
        *self.entry() = Some(LedgerEntry {
            is_attempt: false,
            ..known
        });
    }

    /// A revision that somebody else wrote is believed.
    pub(crate) fn adopt(&self, revision: i64, record: &Release) {
        let known = self.as_known();
        *self.entry() = Some(known.noting(revision, release::storage::digest(record)));
    }

    fn bundle(&self) -> MutexGuard<'_, String> {
        self.bundle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entry(&self) -> MutexGuard<'_, Option<LedgerEntry>> {
        self.entry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The revisions whose digests are known.
    fn known_revisions(&self) -> Vec<i64> {
        let entry = self.entry().clone().unwrap_or_default();
        let has_digest = |revision: &i64| entry.digest(*revision).is_some();
        (1..10).filter(has_digest).collect()
    }
}

impl DigestStore for Digests {
    fn known(&self, _: &str, revision: i64) -> KnownDigest {
        let entry = self.entry();
        let bundle = self.bundle().clone();
        let known = entry
            .as_ref()
            .map(|entry| entry.known_digest(&bundle, revision));
        known.unwrap_or(KnownDigest::Unknown)
    }

    fn knows(&self, _: &str) -> bool {
        self.entry().is_some()
    }

    fn was_deployed(&self, _: &str) -> bool {
        let bundle = self.bundle().clone();
        let entry = self.entry();
        entry
            .as_ref()
            .is_some_and(|entry| entry.bundle == bundle && !entry.is_attempt)
    }

    fn has(&self, _: &str) -> bool {
        let bundle = self.bundle().clone();
        let entry = self.entry();
        entry.as_ref().is_some_and(|entry| entry.bundle == bundle)
    }

    fn written(&self, _: &str) -> Vec<i64> {
        let entry = self.entry().clone();
        entry.map_or_else(Vec::new, |entry| entry.written_by(&self.bundle()))
    }

    fn written_by_others(&self, _: &str) -> Option<Vec<(i64, String)>> {
        self.entry().as_ref()?.written_by_others(&self.bundle())
    }

    fn found(&self, _: &str, theirs: Vec<i64>) {
        *self.theirs.lock().unwrap_or_else(PoisonError::into_inner) = theirs;
    }

    fn confirm(&self) -> BoxFuture<'_, Result<(), BoxError>> {
        async { Ok(()) }.boxed()
    }

    fn store<'a>(
        &'a self,
        _: &'a str,
        revision: i64,
        digest: String,
    ) -> BoxFuture<'a, Result<(), BoxError>> {
        async move {
            let mut entry = self.entry();
            let known = entry.take().unwrap_or_else(|| LedgerEntry {
                is_attempt: true,
                revisions: Some(Notes::default()),
                ..LedgerEntry::default()
            });
            let theirs = self.theirs.lock();
            let known = known.noting_theirs(&theirs.unwrap_or_else(PoisonError::into_inner));
            if known.digest(revision) != Some(&digest) {
                let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
                stored.push(revision);
            }
            *entry = Some(known.noting(revision, digest));
            match self.fails.swap(false, Ordering::Relaxed) {
                true => Err("the ledger does not answer".into()),
                false => Ok(()),
            }
        }
        .boxed()
    }

    fn forget(&self, _: &str, revision: i64) {
        let mut entry = self.entry();
        *entry = entry.take().map(|entry| entry.without(revision));
    }

    fn withdraw(&self, _: &str, revision: i64) {
        let mut entry = self.entry();
        *entry = entry
            .take()
            .map(|entry| entry.restoring(&self.bundle(), revision, None));
    }
}

/// A world whose digests are stored, and a storage of the same records without digests.
pub(crate) async fn with_digests() -> Result<(World, Arc<Digests>, Storage)> {
    Ok(tracked(World::new().await?))
}

/// This world with its digests stored, and a storage of the same records without digests.
pub(crate) fn tracked(world: World) -> (World, Arc<Digests>, Storage) {
    let book = Arc::new(Digests::default());
    let plain = Storage::secrets(&world.cluster, &world.namespace);
    let storage = plain.clone().with_digests(Arc::clone(&book) as _);
    (World { storage, ..world }, book, plain)
}

/// Adds an object to what a record says.
async fn forge(plain: &Storage, revision: i64) -> Result<StoredRelease> {
    let mut record = plain.get("web", revision).await?;
    record.manifest += &config_map("forged", "1");
    plain.update(&record).await?;
    Ok(record)
}

fn failing(value: &str) -> Template {
    let refused = config_map("b", "1").replace("\ndata:", "\ndota:");
    Template::new(&(config_map("a", value) + &refused))
}

pub(crate) fn atomic() -> DeployOptions {
    DeployOptions {
        atomic: true,
        ..DeployOptions::default()
    }
}

#[tokio::test]
async fn the_digest_of_each_record_is_stored_once() -> Result<()> {
    let (world, book, _) = with_digests().await?;
    for value in ["1", "2", "2", "3"] {
        world.deploy(&config_map("a", value)).await?;
    }
    assert_eq!(*book.stored.lock().unwrap(), [1, 2, 3]);
    assert_eq!(book.known_revisions(), [2, 3], "those that are stored");
    assert!(world.deploy_with(&failing("4"), atomic()).await.is_err());
    let map = world
        .config_map("a")
        .await?
        .expect("the ConfigMap is there");
    assert_eq!(map["data"]["value"], "3", "gone back to a proven one");
    Ok(())
}

#[tokio::test]
async fn nothing_is_applied_from_a_record_that_was_changed() -> Result<()> {
    let (world, _, plain) = with_digests().await?;
    world.deploy(&config_map("a", "1")).await?;
    world.deploy(&config_map("a", "2")).await?;
    forge(&plain, 1).await?;
    forge(&plain, 2).await?;
    let changed = world.storage.get("web", 2).await.unwrap_err();
    assert!(
        matches!(changed, StorageError::Unproven { .. }),
        "{changed}"
    );
    // An atomic upgrade that fails does not go back to it,
    let error = world
        .deploy_with(&failing("3"), atomic())
        .await
        .unwrap_err();
    let error = release::error_chain(&error);
    assert!(
        error.contains("is not one that was written here"),
        "{error}"
    );
    // and the same chart as before is deployed anew.
    let done = world.deploy(&config_map("a", "2")).await?;
    assert!(done.changed);
    assert_eq!(world.config_map("forged").await?, None);
    assert_eq!(
        world.history().await?.last().map(String::as_str),
        Some("4 deployed")
    );
    world.storage.get("web", 4).await?;
    Ok(())
}

/// A revision that somebody wrote himself is no revision to go back to.
#[tokio::test]
async fn nothing_is_applied_from_a_record_without_a_digest() -> Result<()> {
    let (world, _, plain) = with_digests().await?;
    world.deploy(&config_map("a", "1")).await?;
    let mut record = plain.get("web", 1).await?;
    record.revision = 2;
    record.manifest = record.manifest.replace("name: a", "name: forged");
    plain.create(&record).await?;
    let undone = world.deploy_with(&failing("2"), atomic()).await;
    assert!(undone.is_err());
    assert_eq!(world.config_map("forged").await?, None);
    Ok(())
}

/// A release with a hook `goodbye`, uninstalled although a revision above its own has a hook `forged` and no digest.
async fn uninstalled_above_a_forged_hook() -> Result<World> {
    let (world, _, plain) = with_digests().await?;
    let hook = config_map("goodbye", "1");
    let template = Template::new(&config_map("a", "1")).hook("goodbye", "pre-delete", &hook);
    world
        .deploy_with(&template, DeployOptions::default())
        .await?;
    let mut record = plain.get("web", 1).await?;
    record.revision = 2;
    record.hooks[0].manifest = record.hooks[0].manifest.replace("goodbye", "forged");
    plain.create(&record).await?;
    let spec = UninstallSpec::new(&world.name, &world.namespace);
    release::uninstall(&world.cluster, &world.storage, &spec).await?;
    Ok(world)
}

#[tokio::test]
async fn a_record_without_a_digest_is_uninstalled_without_its_hooks() -> Result<()> {
    let world = uninstalled_above_a_forged_hook().await?;
    assert_eq!(world.config_map("a").await?, None);
    assert_eq!(world.config_map("forged").await?, None);
    assert_eq!(world.history().await?, [""; 0]);
    Ok(())
}

/// A record that stands where ours was pruned is not believed, whatever it says of itself.
#[tokio::test]
async fn a_record_in_the_place_of_one_that_was_written_here_is_never_believed() -> Result<()> {
    let (world, _, plain) = with_digests().await?;
    for value in ["1", "2", "3", "4"] {
        world.deploy(&config_map("a", value)).await?;
    }
    let mut record = plain.get("web", 4).await?;
    record.revision = 2;
    record.manifest = record.manifest.replace("name: a", "name: forged");
    plain.create(&record).await?;
    let found = world.storage.get("web", 2).await.unwrap_err();
    assert!(matches!(found, StorageError::Unproven { .. }), "{found}");
    // Somebody makes it the newest too.
    world.kubectl(&[
        "delete",
        "secret",
        "sh.helm.release.v1.web.v3",
        "sh.helm.release.v1.web.v4",
    ])?;
    let done = world.deploy(&config_map("a", "4")).await?;
    assert!(done.changed);
    assert_eq!(world.config_map("forged").await?, None);
    Ok(())
}

/// What a record says inside must be what it is named and labelled as: closing or removing it would hit another.
#[tokio::test]
async fn a_record_that_lies_about_its_place_is_no_record() -> Result<()> {
    let lies: [fn(&mut Release); 3] = [
        |record| record.revision = 1,
        |record| record.namespace = "default".to_owned(),
        |record| record.name = "other".to_owned(),
    ];
    for lie in lies {
        let (world, _, plain) = with_digests().await?;
        world.deploy(&config_map("a", "1")).await?;
        let mut record = plain.get("web", 1).await?;
        record.manifest = record.manifest.replace("name: a", "name: forged");
        record.set_status(Status::Deployed, "forged");
        lie(&mut record);
        let payload = release::storage::encode(&record)?;
        let path = std::env::temp_dir().join(format!("{}.json", world.namespace));
        let secret = serde_json::json!({
            "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
            "metadata": {"name": "sh.helm.release.v1.web.v2", "labels": {
                "name": "web", "owner": "helm", "status": "deployed", "version": "2",
            }},
            "stringData": {"release": payload},
        });
        std::fs::write(&path, secret.to_string())?;
        world.kubectl(&["create", "--filename", &path.to_string_lossy()])?;
        std::fs::remove_file(&path)?;
        let read = plain.get_unverified("web", 2).await.unwrap_err();
        assert!(matches!(read, StorageError::Decode { .. }), "{read}");
        world.deploy(&config_map("a", "2")).await?;
        assert_eq!(world.config_map("forged").await?, None);
        let first = plain.get("web", 1).await?;
        assert!(!first.manifest.contains("forged"), "ours is as it was");
        let spec = UninstallSpec::new(&world.name, &world.namespace);
        release::uninstall(&world.cluster, &world.storage, &spec).await?;
        assert_eq!(world.config_map("a").await?, None);
        assert_eq!(world.history().await?, [""; 0]);
    }
    Ok(())
}

/// Whoever removes a release waits for its lock, and meanwhile another bundle has taken it, or it was removed and forgotten.
#[tokio::test]
async fn a_release_that_is_another_bundles_by_now_is_not_uninstalled() -> Result<()> {
    let (world, book, _) = with_digests().await?;
    world.deploy(&config_map("a", "1")).await?;
    let own = book.as_known();
    let spec = UninstallSpec::new("web", &world.namespace);
    for now in [Some(own.clone().handed_to("another")), None] {
        *book.entry() = now;
        let refused = release::uninstall(&world.cluster, &world.storage, &spec).await;
        let refused = refused.expect_err("a refusal");
        assert!(matches!(refused, UninstallError::Taken(_)), "{refused}");
        assert!(world.config_map("a").await?.is_some());
    }
    *book.entry() = Some(own);
    release::uninstall(&world.cluster, &world.storage, &spec).await?;
    assert!(world.config_map("a").await?.is_none());
    Ok(())
}

/// What somebody's release had and the chart has not stays until a deploy over it has succeeded.
#[tokio::test]
async fn a_takeover_that_fails_deletes_nothing() -> Result<()> {
    let (world, _, plain) = with_digests().await?;
    let theirs = Template::new(&config_map("a", "1"));
    let spec = world.spec(&theirs, DeployOptions::default());
    release::deploy(&world.cluster, &plain, &spec).await?;
    let refused = config_map("Not_A_Name", "1");
    let template = Template::new(&config_map("b", "1")).hook("refused", "post-upgrade", &refused);
    let failed = world.deploy_with(&template, DeployOptions::default()).await;
    assert!(
        matches!(failed, Err(DeployError::Hook { .. })),
        "{failed:?}"
    );
    assert_eq!(world.value("a").await?, "1");
    let template = Template::new(&config_map("b", "1"));
    let options = DeployOptions::default();
    let done = world.deploy_with(&template, options).await?;
    assert_eq!((done.plan.state, done.release.revision), (State::Failed, 3));
    assert_eq!(done.plan.action.from(), Some(1), "it builds on theirs");
    assert_eq!(world.config_map("a").await?, None);
    assert_eq!(world.value("b").await?, "1");
    Ok(())
}

/// Above our revision lies a forged one: its hooks are not run, and ours are.
#[tokio::test]
async fn a_forged_record_does_not_keep_our_hooks_from_running() -> Result<()> {
    let world = uninstalled_above_a_forged_hook().await?;
    assert_eq!(world.value("goodbye").await?, "1");
    assert_eq!(world.config_map("forged").await?, None);
    assert_eq!(world.config_map("a").await?, None);
    Ok(())
}

/// What another agent left pending was cut off; what a person's helm has begun is waited for. Both write as `Helm`, and a rollback takes
/// over what the agent wrote into the chart.
#[tokio::test]
async fn a_pending_record_of_another_agent_is_finished_at_once() -> Result<()> {
    let writer = Writer {
        annotations: [("example.com/agent".to_owned(), "ours".to_owned())].into(),
    };
    let cases = [
        (true, Status::PendingUpgrade, true),
        (true, Status::PendingRollback, false),
        (false, Status::PendingUpgrade, false),
    ];
    for (is_agents, pending, is_finished) in cases {
        let (world, _, plain) = with_digests().await?;
        world.deploy(&config_map("a", "1")).await?;
        let mut record = plain.get("web", 1).await?;
        record.revision = 2;
        record.set_status(pending, "Preparing upgrade");
        let mut chart = record.chart.as_deref().cloned().unwrap_or_default();
        if is_agents {
            chart.metadata.annotations = Some(writer.annotations.clone().into_iter().collect());
        }
        record.chart = Some(Arc::new(chart));
        plain.create(&record).await?;
        let get = [
            "get",
            "secret",
            "sh.helm.release.v1.web.v2",
            "-o",
            "json",
            "--show-managed-fields",
        ];
        let live: serde_json::Value = serde_json::from_str(&world.kubectl(&get)?)?;
        let mut entries = live["metadata"]["managedFields"].clone();
        entries[0]["manager"] = "Helm".into();
        let patch = serde_json::json!([{"op": "replace", "path": "/metadata/managedFields", "value": entries}]);
        let patch = patch.to_string();
        world.kubectl(&[
            "patch",
            "secret",
            "sh.helm.release.v1.web.v2",
            "--type=json",
            "-p",
            &patch,
        ])?;
        let options = DeployOptions {
            writer: writer.clone(),
            ..DeployOptions::default()
        };
        let template = Template::new(&config_map("a", "2"));
        let done = world.deploy_with(&template, options).await;
        match is_finished {
            true => assert_eq!(done?.release.revision, 3),
            false => assert!(matches!(done.unwrap_err(), DeployError::Locked)),
        }
        let expected = if is_finished { "2" } else { "1" };
        assert_eq!(world.value("a").await?, expected);
    }
    Ok(())
}

/// Of a release of somebody else's no record goes before a deploy over it has succeeded.
#[tokio::test]
async fn the_history_of_somebody_elses_release_is_pruned_once_it_is_taken_over() -> Result<()> {
    let (world, _, plain) = with_digests().await?;
    for value in ["1", "2", "3"] {
        let theirs = Template::new(&config_map("a", value));
        let options = DeployOptions {
            max_history: 0,
            ..DeployOptions::default()
        };
        let spec = world.spec(&theirs, options);
        release::deploy(&world.cluster, &plain, &spec).await?;
    }
    for value in ["4", "5"] {
        let failed = world
            .deploy_with(&failing(value), DeployOptions::default())
            .await;
        assert!(failed.is_err());
    }
    let kept = ["1 superseded", "2 superseded", "3 deployed", "5 failed"];
    assert_eq!(world.history().await?, kept);
    world.deploy(&config_map("a", "6")).await?;
    assert_eq!(world.history().await?, ["3 superseded", "6 deployed"]);
    Ok(())
}

/// Somebody's helm upgraded the release; what that brought is no attempt of ours, and stays when ours is undone.
#[tokio::test]
async fn an_undo_leaves_what_another_client_deployed_before() -> Result<()> {
    let (world, _, plain) = with_digests().await?;
    world.deploy(&config_map("a", "1")).await?;
    let theirs = Template::new(&(config_map("a", "2") + &config_map("theirs", "2")));
    let spec = world.spec(&theirs, DeployOptions::default());
    release::deploy(&world.cluster, &plain, &spec).await?;
    for maps in [
        config_map("a", "3"),
        config_map("a", "3") + &config_map("theirs", "3"),
    ] {
        let refused = config_map("zz", "1").replace("\ndata:", "\ndota:");
        let template = Template::new(&(maps + &config_map("new", "3") + &refused));
        let failed = world.deploy_with(&template, atomic()).await;
        assert!(failed.is_err());
        assert_ne!(world.value("theirs").await?, "none");
        assert_eq!(world.value("new").await?, "none");
    }
    Ok(())
}

/// The bundle tries the same again after an undo. What somebody's helm deployed in between is still what there is to build on: it is
/// neither gone back past, nor pruned, nor are its objects taken for those of an attempt.
#[tokio::test]
async fn the_second_attempt_knows_what_another_client_deployed_before_the_first() -> Result<()> {
    let (world, _, plain) = with_digests().await?;
    world.deploy(&config_map("a", "1")).await?;
    let theirs = Template::new(&(config_map("a", "2") + &config_map("theirs", "2")));
    let spec = world.spec(&theirs, DeployOptions::default());
    release::deploy(&world.cluster, &plain, &spec).await?;
    let before = world.config_map("theirs").await?.expect("it is there");
    let refused = config_map("zz", "1").replace("\ndata:", "\ndota:");
    let wanted = config_map("a", "3") + &config_map("theirs", "3") + &config_map("new", "3");
    for round in 1..4 {
        let template = Template::new(&(wanted.clone() + &refused));
        let failed = world.deploy_with(&template, atomic()).await;
        assert!(failed.is_err());
        let now = world.config_map("theirs").await?.expect("it is there");
        let uid = |map: &serde_json::Value| map["metadata"]["uid"].clone();
        assert_eq!(uid(&now), uid(&before), "round {round}");
        assert_eq!(
            world.value("a").await?,
            "3",
            "round {round}: not past theirs"
        );
        assert_eq!(world.value("new").await?, "none", "round {round}");
        let kept = ["1 superseded", "2 deployed", "3 failed"];
        assert_eq!(world.history().await?, kept, "round {round}");
    }
    // What is not atomic builds on theirs as well, and takes the release over.
    let done = world.deploy(&config_map("a", "4")).await?;
    assert_eq!(done.plan.action.from(), Some(2));
    assert_eq!(
        world.value("theirs").await?,
        "none",
        "dropped by a good revision"
    );
    Ok(())
}

/// An administrator upgrades his release between two attempts of a bundle that wants it: none of his records goes.
#[tokio::test]
async fn failed_attempts_prune_no_record_of_another_client() -> Result<()> {
    let (world, _, plain) = with_digests().await?;
    let theirs = |value: &str| {
        let template = Template::new(&config_map("a", value));
        let options = DeployOptions {
            max_history: 0,
            ..DeployOptions::default()
        };
        world.spec(&template, options)
    };
    release::deploy(&world.cluster, &plain, &theirs("1")).await?;
    for value in ["2", "4", "6"] {
        let failed = world
            .deploy_with(&failing(value), DeployOptions::default())
            .await;
        assert!(failed.is_err());
        let upgraded = (value.parse::<i64>()? + 1).to_string();
        release::deploy(&world.cluster, &plain, &theirs(&upgraded)).await?;
    }
    let failed = world
        .deploy_with(&failing("8"), DeployOptions::default())
        .await;
    assert!(failed.is_err());
    let history = plain.history("web").await?;
    let kept: Vec<_> = history
        .iter()
        .map(|head| format!("{} {}", head.revision, head.status))
        .collect();
    let theirs = ["1 superseded", "3 superseded", "5 superseded", "7 deployed"];
    assert!(
        theirs.iter().all(|one| kept.contains(&(*one).to_owned())),
        "{kept:?}"
    );
    assert_eq!(kept.last().map(String::as_str), Some("8 failed"));
    Ok(())
}

/// An administrator installs under the number that an attempt of ours had, which was undone. That the ledger has its number makes the record none of
/// ours.
#[tokio::test]
async fn another_clients_record_is_not_pruned_though_its_number_was_used_before() -> Result<()> {
    let (world, _, plain) = with_digests().await?;
    assert!(world.deploy_with(&failing("1"), atomic()).await.is_err());
    assert!(world.history().await?.is_empty(), "it was undone");
    let theirs = world.spec(
        &Template::new(&config_map("a", "1")),
        DeployOptions::default(),
    );
    release::deploy(&world.cluster, &plain, &theirs).await?;
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    let mut record = secrets.get("sh.helm.release.v1.web.v1").await?;
    secrets
        .delete(&record.name_any(), &DeleteParams::default())
        .await?;
    record.metadata = ObjectMeta {
        name: record.metadata.name,
        labels: record.metadata.labels,
        ..ObjectMeta::default()
    };
    let by_helm = PostParams {
        field_manager: Some("Helm".to_owned()),
        ..PostParams::default()
    };
    secrets.create(&by_helm, &record).await?;
    let few = DeployOptions {
        max_history: 1,
        ..atomic()
    };
    for value in ["2", "3"] {
        let failed = world.deploy_with(&failing(value), few.clone()).await;
        assert!(failed.is_err());
        let kept = plain.get("web", 1).await?;
        assert_eq!(kept.status(), Status::Deployed, "after {value}");
    }
    Ok(())
}

/// An administrator's helm deploys the release while the first attempt at it waits for an object: what he wrote and has is not undone with that.
#[tokio::test]
async fn an_undo_leaves_a_release_that_somebody_went_on_with_meanwhile() -> Result<()> {
    for is_known in [false, true] {
        let (world, book, plain) = with_digests().await?;
        if is_known {
            // The ledger has it, so that what was created is taken back and nothing is uninstalled.
            book.begin("", &[], Some(1));
        }
        let unready = "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata:\n  name: unready\nspec:\n  accessModes: [ReadWriteOnce]\n  \
                       storageClassName: none\n  resources:\n    requests:\n      storage: 1Mi\n";
        let template = Template::new(&(config_map("a", "1") + unready));
        let options = DeployOptions {
            timeout: Some(Duration::from_secs(5)),
            ..atomic()
        };
        let attempt = world.deploy_with(&template, options);
        let others = async {
            let is_written = async || match world.value("a").await {
                Ok(value) if value == "1" => Ok(()),
                other => Err(format!("{other:?}")),
            };
            wait_until("the attempt's object", Duration::from_secs(300), is_written).await?;
            let head = plain.history("web").await?;
            let number = head.last().map_or(0, |head| head.revision);
            let mut theirs = plain.get("web", number).await?;
            theirs.revision = number + 1;
            theirs.set_status(Status::Deployed, "Upgrade complete");
            plain.create(&theirs).await?;
            Ok::<_, anyhow::Error>(theirs.revision)
        };
        let (undone, theirs) = futures_util::join!(attempt, others);
        let error = format!("{:?}", undone.expect_err("it never becomes ready"));
        let theirs = theirs?;
        assert_eq!(plain.get("web", theirs).await?.status(), Status::Deployed);
        assert_eq!(world.value("a").await?, "1", "known {is_known}: {error}");
    }
    Ok(())
}

/// Somebody's upgrade failed, and what it brought runs: it is no attempt of ours, and stays when ours is undone.
#[tokio::test]
async fn an_undo_leaves_what_the_failed_attempt_of_another_client_brought() -> Result<()> {
    let (world, _, plain) = with_digests().await?;
    world.deploy(&config_map("a", "1")).await?;
    let refused = config_map("zz", "1").replace("\ndata:", "\ndota:");
    let theirs = config_map("a", "2") + &config_map("theirs", "2") + &refused;
    let spec = world.spec(&Template::new(&theirs), DeployOptions::default());
    let failed = release::deploy(&world.cluster, &plain, &spec).await;
    assert!(failed.is_err());
    for round in 0..2 {
        let wanted = config_map("a", "3") + &config_map("theirs", "3") + &config_map("new", "3");
        let template = Template::new(&(wanted + &refused));
        let failed = world.deploy_with(&template, atomic()).await;
        assert!(failed.is_err());
        assert_ne!(world.value("theirs").await?, "none", "round {round}");
        assert_eq!(world.value("a").await?, "1", "round {round}");
        assert_eq!(world.value("new").await?, "none", "round {round}");
    }
    Ok(())
}

/// Somebody else was faster with a revision: its number is his, and what he writes is waited for as any helm client's.
#[tokio::test]
async fn a_revision_another_client_wrote_first_is_waited_for() -> Result<()> {
    let (world, book, plain) = with_digests().await?;
    world.deploy(&config_map("a", "1")).await?;
    let mut record = plain.get("web", 1).await?;
    record.revision = 2;
    record.set_status(Status::PendingUpgrade, "Preparing upgrade");
    plain.create(&record).await?;
    let ours = Release {
        manifest: config_map("a", "2"),
        ..record.into_release()
    };
    let refused = world.storage.create(&ours).await;
    assert!(matches!(refused, Err(StorageError::Exists)), "{refused:?}");
    let known = book.entry().as_ref().map(|entry| entry.known_digest("", 2));
    assert_eq!(known, Some(KnownDigest::Unknown));
    assert_eq!(world.history().await?, ["1 deployed", "2 pending-upgrade"]);
    Ok(())
}

/// The digest of a revision could not be written, so that revision was not either: its number is whoever's writes it.
#[tokio::test]
async fn a_digest_that_could_not_be_written_vouches_for_nothing() -> Result<()> {
    let (world, book, plain) = with_digests().await?;
    world.deploy(&config_map("a", "1")).await?;
    book.fails.store(true, Ordering::Relaxed);
    world.deploy(&config_map("a", "2")).await.unwrap_err();
    assert_eq!(book.known_revisions(), [1]);
    let mut theirs = plain.get("web", 1).await?;
    theirs.revision = 2;
    plain.create(&theirs).await?;
    world
        .deploy_with(&failing("3"), atomic())
        .await
        .unwrap_err();
    assert_eq!(
        world.history().await?,
        ["1 deployed", "2 deployed", "3 failed"],
        "not gone back past his"
    );
    Ok(())
}

/// A helm client begins while the chart is rendered that is to finish a revision of ours: he is not overwritten.
#[tokio::test]
async fn an_interrupted_revision_is_not_finished_over_a_newer_one() -> Result<()> {
    let (world, _, plain) = with_digests().await?;
    world.deploy(&config_map("a", "1")).await?;
    let template = failing("2");
    let options = DeployOptions::default;
    world.deploy_with(&template, options()).await.unwrap_err();
    let mut theirs = plain.get("web", 1).await?;
    theirs.revision = 3;
    theirs.set_status(Status::PendingUpgrade, "helm's");
    let mut spec = world.spec(&template, options());
    let (render, runtime, storage) = (
        spec.render,
        tokio::runtime::Handle::current(),
        plain.clone(),
    );
    spec.render = Arc::new(move |request| {
        // The deploy renders again when it takes the next number.
        let created = runtime.block_on(storage.create(&theirs));
        assert!(created.is_ok() || request.release.revision > 2);
        render(request)
    });
    let refused = release::deploy(&world.cluster, &world.storage, &spec).await;
    let is_changed = |refused: &DeployError| {
        let key = &key("web", 3);
        matches!(refused, DeployError::Storage(StorageError::HistoryChanged { key: new }) if new == key)
    };
    assert!(refused.as_ref().is_err_and(is_changed), "{refused:?}");
    assert_eq!(
        world.history().await?,
        ["1 deployed", "2 failed", "3 pending-upgrade"]
    );
    Ok(())
}

/// A record's digest does not cover its status: a tenant can change that.
#[tokio::test]
async fn an_attempt_that_is_made_to_look_deployed_proves_nothing_of_what_lay_there() -> Result<()> {
    let (world, book, plain) = with_digests().await?;
    let theirs = Template::new(&config_map("a", "theirs"));
    let spec = world.spec(&theirs, DeployOptions::default());
    release::deploy(&world.cluster, &plain, &spec).await?;
    world
        .deploy_with(&failing("2"), DeployOptions::default())
        .await
        .unwrap_err();
    let owned = async || -> Result<_> {
        let entry = book.as_known();
        assert!(entry.is_attempt);
        let read = agent::ledger::records::read(&world.storage, "web", &entry, "system");
        Ok(read.await?.owned)
    };
    assert_eq!(owned().await?, OwnedRecords::Parts(vec![2]));
    let mut forged = plain.get("web", 2).await?;
    forged.set_status(Status::Deployed, "Upgrade complete");
    plain.update(&forged).await?;
    assert_eq!(owned().await?, OwnedRecords::Nothing);
    Ok(())
}
