//! The table of situations (`release/src/state/situations.txt`) walked on a real API server: for each status of the newest record, each
//! history below it and each writer whose answers differ, the real records and objects are made, each operation is run (a deploy, an attempt
//! that is undone, a correction, a removal, an adoption of what another agent deployed, a hand-over), and what became of each object is read
//! from the server. What goes before an operation is what the agent asks: whose the records are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use agent::api::{ANNOTATION_AGENT_NAMESPACE, ANNOTATION_BUNDLE_ID};
use agent::controllers::bundle_deployment::{correct, observe};
use agent::ledger::records::ReleaseRecords;
use agent::ledger::{OwnedRecords, Proof, records};
use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use release::model::{Release, Status};
use release::storage::Storage;
use release::{DeployError, DeployOptions, Owner, UninstallError, UninstallSpec};
use serde_json::json;
use testbed::wait::wait_until;

use crate::proofs::{Digests, atomic};
use crate::world::{Template, World, config_map};

const TABLE: &str = include_str!("../../../release/src/state/situations.txt");

/// How long the next second may be off.
const AT_ONCE: Duration = Duration::from_secs(300);

/// Worlds that are made at a time.
const AT_A_TIME: usize = 8;

/// The bundle that has the release, one that waits for it, and the namespace of their agent.
const BUNDLE: &str = "owner";
const NEXT_OWNER: &str = "next-owner";
const SYSTEM: &str = "cattle-fleet-system";

/// Who wrote the newest record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Writer {
    /// This agent: its digest is known.
    Us,
    /// Somebody with this field manager so many seconds ago: nothing vouches for it.
    Other(&'static str, i64),
    /// The Go agent, whose record says so.
    GoAgent,
    /// Somebody, in the place of one that was written here and is gone.
    InPlace,
}

/// A shape as the table has it: its name, the records below the newest, the newest's number, and who wrote that.
struct Shape {
    name: &'static str,
    below: &'static [(i64, &'static str)],
    newest: i64,
    writer: Writer,
    is_readable: bool,
}

const fn shape(
    name: &'static str,
    below: &'static [(i64, &'static str)],
    newest: i64,
    writer: Writer,
) -> Shape {
    Shape {
        name,
        below,
        newest,
        writer,
        is_readable: true,
    }
}

const SHAPES: [Shape; 12] = [
    shape("good-below", &[(1, "deployed")], 2, Writer::Us),
    shape("alone", &[], 1, Writer::Us),
    shape(
        "failed-below",
        &[(1, "failed"), (2, "failed")],
        3,
        Writer::Us,
    ),
    shape(
        "good-then-failed",
        &[(1, "deployed"), (2, "failed")],
        3,
        Writer::Us,
    ),
    shape(
        "removed-below",
        &[(1, "superseded"), (2, "uninstalled")],
        3,
        Writer::Us,
    ),
    Shape {
        is_readable: false,
        ..shape("undecodable", &[(1, "deployed")], 2, Writer::Us)
    },
    shape(
        "helm-4-after-us",
        &[(1, "deployed")],
        2,
        Writer::Other("Helm", 5),
    ),
    shape(
        "helm-3-long-ago",
        &[(1, "superseded")],
        2,
        Writer::Other("Helm", 3600),
    ),
    shape(
        "flux-at-work",
        &[(1, "deployed")],
        2,
        Writer::Other("helm-controller", 5),
    ),
    shape("go-agent", &[(1, "deployed")], 2, Writer::GoAgent),
    shape(
        "forged-above",
        &[(1, "deployed")],
        2,
        Writer::Other("kubectl-create", 5),
    ),
    shape("forged-in-place", &[(1, "deployed")], 2, Writer::InPlace),
];

impl Shape {
    /// How whoever wrote the newest revision writes objects: Helm 3 merges on the client's side, and so records no way of applying.
    fn is_merged(&self) -> bool {
        self.name.starts_with("helm-3")
    }

    /// The field manager of what the newest revision brought.
    fn manager(&self) -> &'static str {
        match self.writer {
            Writer::Us | Writer::InPlace => "fleetagent",
            Writer::Other("helm-controller", _) => "helm-controller",
            Writer::Other("kubectl-create", _) => "kubectl-create",
            Writer::Other(..) | Writer::GoAgent => "helm",
        }
    }
}

/// A row: the newest record's status, its shape, and the cells.
struct Row {
    status: &'static str,
    shape: &'static Shape,
    other_content: &'static str,
    /// What an install becomes, as what the last good revision has is there.
    if_it_runs: &'static str,
    if_it_fails: &'static str,
    uninstall: &'static str,
}

/// The rows, and what is run for each: once for each answer that differs for who wrote the newest record.
fn rows() -> Vec<(Row, Operation)> {
    static ALL: [Shape; 12] = SHAPES;
    let mut seen = BTreeSet::new();
    let mut rows = Vec::new();
    let lines = TABLE.lines().filter(|line| !line.starts_with(['#', 'n']));
    for line in lines {
        let cells = line.split("  ").map(str::trim);
        let cells: Vec<&'static str> = cells.filter(|cell| !cell.is_empty()).collect();
        let [
            status,
            name,
            _,
            _,
            other_content,
            _,
            if_it_runs,
            if_it_fails,
            uninstall,
            ..,
        ] = cells[..]
        else {
            panic!("a row of the table: {line}");
        };
        let Some(shape) = ALL.iter().find(|shape| shape.name == name) else {
            continue;
        };
        for operation in Operation::ALL {
            let answers = match operation {
                Operation::Deploy | Operation::Undo | Operation::HandOver => {
                    [other_content, if_it_runs, if_it_fails]
                }
                Operation::Remove => [uninstall, status, ""],
                // What is put right, or believed, is so whatever the record says of itself.
                Operation::Correct | Operation::Adopt => [""; 3],
            };
            let plain = answers.map(|cell| cell.replace(|one: char| one.is_ascii_digit(), ""));
            if seen.insert((operation, shape.writer, shape.is_readable, plain)) {
                let row = Row {
                    status,
                    shape,
                    other_content,
                    if_it_runs,
                    if_it_fails,
                    uninstall,
                };
                rows.push((row, operation));
            }
        }
    }
    rows
}

/// What is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Operation {
    Deploy,
    Undo,
    Correct,
    /// Of a bundle that is gone, or of a former name: both go by what of the records is the bundle's.
    Remove,
    /// Upstream's status names the newest revision.
    Adopt,
    /// To a bundle that waits for it and then deploys.
    HandOver,
}

impl Operation {
    const ALL: [Self; 6] = [
        Self::Deploy,
        Self::Undo,
        Self::Correct,
        Self::Remove,
        Self::Adopt,
        Self::HandOver,
    ];

    /// Whether it waits for what is going, if a record has that.
    fn waits(self) -> bool {
        matches!(self, Self::Undo | Self::Correct | Self::Adopt)
    }
}

/// Objects under the names that say what they are to the release.
const OBJECTS: [&str; 9] = [
    "ours", "keep", "dropped", "adopted", "brought", "marked", "unmarked", "anothers", "leaving",
];
const KEEP: &str = "helm.sh/resource-policy";
const ADOPTED: &str = "fleetagent.cattle.io/adopted";

/// A world in which all of this is there, and its uids and versions.
struct Scene {
    world: World,
    book: Arc<Digests>,
    before: BTreeMap<String, (String, String)>,
}

/// What the revisions below the newest have, and what the newest has.
fn recorded(is_newest: bool, value: &str, operation: Operation) -> String {
    let keep = format!("  annotations: {{{KEEP}: keep}}\n  name: keep");
    let names = ["ours", "keep", "dropped", "adopted"].map(|name| config_map(name, value));
    let mut maps = names.concat().replace("  name: keep", &keep);
    if !operation.waits() {
        maps += &config_map("leaving", value);
    }
    // The newest names what is others' too: who writes records may name anything.
    let more = ["brought", "anothers", "unmarked"].map(|name| config_map(name, value));
    maps + &if is_newest {
        more.concat()
    } else {
        String::new()
    }
}

/// What is desired: all but what is dropped.
fn desired(is_install: bool) -> String {
    let names = ["ours", "keep", "adopted", "brought", "fresh"];
    // A first install takes nothing that is nobody's.
    let nobodys = (!is_install).then_some("unmarked");
    let maps = names
        .into_iter()
        .chain(nobodys)
        .map(|name| config_map(name, "9"));
    maps.collect()
}

impl Scene {
    async fn new(row: &Row, operation: Operation) -> Result<Self> {
        let mut world = World::new().await?;
        let namespace = json!({"metadata": {"name": world.namespace}});
        Api::<Namespace>::all(world.client.clone())
            .create(&PostParams::default(), &serde_json::from_value(namespace)?)
            .await?;
        let (plain, book) = (world.storage.clone(), Arc::new(Digests::default()));
        let mut noted = Vec::new();
        let runs_before = row.if_it_runs != "-" && operation != Operation::Remove;
        if !runs_before {
            // What an attempt has created is not older than its record.
            noted = records(&world, row, operation).await?;
        }
        let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &world.namespace);
        for name in OBJECTS {
            let mut map = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "annotations": {}}, "data": {"value": "0"},
            });
            let owner = match name {
                "unmarked" => None,
                "anothers" => Some("other"),
                _ => Some("web"),
            };
            if let Some(owner) = owner {
                Owner::new(owner, &world.namespace).mark(&mut map);
            }
            match name {
                "keep" => map["metadata"]["annotations"][KEEP] = "keep".into(),
                "adopted" => map["metadata"]["annotations"][ADOPTED] = "kept".into(),
                "leaving" => map["metadata"]["finalizers"] = json!(["example.com/stays"]),
                _ => {}
            }
            let manager = match owner {
                None => "kubectl",
                Some(_) if name == "brought" => row.shape.manager(),
                Some(_) => "fleetagent",
            };
            if name == "brought" && row.shape.is_merged() {
                let merging = PostParams {
                    field_manager: Some(manager.to_owned()),
                    ..PostParams::default()
                };
                maps.create(&merging, &serde_json::from_value(map)?).await?;
                continue;
            }
            maps.patch(name, &PatchParams::apply(manager), &Patch::Apply(&map))
                .await?;
        }
        maps.delete("leaving", &DeleteParams::default()).await?;
        if runs_before {
            // What runs is older than the record of an attempt, by the second.
            let made = Timestamp::now().as_second();
            wait_until("another second", AT_ONCE, async || {
                match Timestamp::now().as_second() > made {
                    true => Ok(()),
                    false => Err("the same".to_owned()),
                }
            })
            .await?;
            noted = records(&world, row, operation).await?;
        }
        let Shape {
            newest,
            writer,
            is_readable,
            ..
        } = *row.shape;
        // What a cut off process of ours left says that it is ours; nobody else's record does.
        let manager = match writer {
            Writer::Us => None,
            Writer::Other(manager, seconds) => Some((manager, seconds)),
            Writer::GoAgent => Some(("Helm", 5)),
            Writer::InPlace => Some(("kubectl-create", 5)),
        };
        let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
        let name = release::storage::key("web", newest);
        if let Some((manager, seconds)) = manager {
            let mut entries = json!(secrets.get(&name).await?.metadata.managed_fields);
            let at = Timestamp::now() - SignedDuration::from_secs(seconds);
            entries[0]["manager"] = manager.into();
            entries[0]["time"] = format!("{at:.0}").into();
            let patch =
                json!([{"op": "replace", "path": "/metadata/managedFields", "value": entries}]);
            let patch = serde_json::from_value(patch)?;
            secrets
                .patch(&name, &PatchParams::default(), &Patch::<()>::Json(patch))
                .await?;
        }
        if !is_readable {
            let damage = json!({"stringData": {"release": "H4sIAAAA"}});
            let parameters = PatchParams {
                field_manager: Some("fleetagent".to_owned()),
                ..PatchParams::default()
            };
            secrets
                .patch(&name, &parameters, &Patch::Merge(&damage))
                .await?;
        }
        book.begin(
            BUNDLE,
            &noted,
            (writer == Writer::InPlace).then_some(newest),
        );
        world.storage = plain.with_digests(Arc::clone(&book) as _);
        let mut scene = Self {
            world,
            book,
            before: BTreeMap::new(),
        };
        for name in OBJECTS {
            let found = scene.found(name).await?.context("it was made")?;
            scene.before.insert(name.to_owned(), (found.0, found.1));
        }
        Ok(scene)
    }

    /// The uid, the version and the value of an object.
    async fn found(&self, name: &str) -> Result<Option<(String, String, String)>> {
        let maps: Api<ConfigMap> =
            Api::namespaced(self.world.client.clone(), &self.world.namespace);
        Ok(maps.get_opt(name).await?.map(|map| {
            let value = map
                .data
                .as_ref()
                .and_then(|data| data.get("value"))
                .cloned();
            let version = map.resource_version().unwrap_or_default();
            (
                map.uid().unwrap_or_default(),
                version,
                value.unwrap_or_default(),
            )
        }))
    }

    async fn value(&self, name: &str) -> Result<String> {
        Ok(self
            .found(name)
            .await?
            .map_or("none".to_owned(), |found| found.2))
    }

    /// It is the same object, written to or not.
    async fn is_there(&self, name: &str) -> Result<()> {
        let uid = self.found(name).await?.map(|found| found.0);
        ensure!(
            uid.as_ref() == Some(&self.before[name].0),
            "{name} is gone or another"
        );
        Ok(())
    }

    /// Nobody wrote to any.
    async fn is_all_untouched(&self) -> Result<()> {
        for name in OBJECTS {
            self.is_untouched(name).await?;
        }
        Ok(())
    }

    /// Puts right what differs from a revision, as far as its record is believed, as a bundle with `correctDrift` does. Whether it is.
    async fn correct(&self, revision: i64) -> Result<bool> {
        let world = &self.world;
        let Ok(release) = world.storage.get("web", revision).await else {
            return Ok(false);
        };
        if !world.storage.proves("web", revision, &release) {
            return Ok(false);
        }
        let desired = observe::objects(&world.cluster, &release).await?.objects;
        let due: Vec<_> = desired.iter().map(objects::Object::key).collect();
        correct::apply(&world.cluster, &release, &desired, &due, false).await?;
        for name in ["ours", "keep", "dropped", "adopted", "brought", "unmarked"] {
            self.is_there(name).await?;
            let value = self.value(name).await?;
            ensure!(value == revision.to_string(), "{name} says {value}");
        }
        Ok(true)
    }

    /// What of the release is the bundle's, and whether none of it was deployed.
    async fn owned(&self) -> Result<ReleaseRecords> {
        let entry = self.book.as_known();
        Ok(records::read(&self.world.storage, "web", &entry, SYSTEM).await?)
    }

    /// Nobody wrote to it.
    async fn is_untouched(&self, name: &str) -> Result<()> {
        let now = self.found(name).await?.map(|found| (found.0, found.1));
        ensure!(
            now.as_ref() == Some(&self.before[name]),
            "{name} was touched"
        );
        Ok(())
    }
}

/// Writes the records of a situation. The revisions and digests of those that were written here.
async fn records(world: &World, row: &Row, operation: Operation) -> Result<Vec<(i64, String)>> {
    let Shape {
        below,
        newest,
        writer,
        ..
    } = *row.shape;
    let mut noted = Vec::new();
    for (revision, status) in below.iter().chain([&(newest, row.status)]) {
        let is_newest = *revision == newest;
        let mut record = record(world, (*revision, status), is_newest, operation);
        if is_newest && row.shape.is_merged() {
            record.apply_method = release::ApplyMethod::Unset;
        }
        if is_newest && writer == Writer::GoAgent {
            let mut chart = record.chart.as_deref().cloned().unwrap_or_default();
            chart.metadata.annotations = Some(by_an_agent().into_iter().collect());
            record.chart = Some(Arc::new(chart));
        }
        world.storage.create(&record).await?;
        if !is_newest || writer == Writer::Us {
            noted.push((*revision, release::storage::digest(&record)));
        }
    }
    Ok(noted)
}

fn by_an_agent() -> BTreeMap<String, String> {
    let all = [
        (ANNOTATION_AGENT_NAMESPACE, SYSTEM),
        (ANNOTATION_BUNDLE_ID, BUNDLE),
    ];
    all.map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

/// How the records of such agents are told.
fn by_our_agents() -> release::action::Writer {
    release::action::Writer {
        annotations: by_an_agent(),
    }
}

/// A record that tells of a revision with a hook for its removal.
fn record(
    world: &World,
    (revision, status): (i64, &str),
    is_newest: bool,
    operation: Operation,
) -> Release {
    let value = revision.to_string();
    let hook = config_map(&format!("hook-{revision}"), &value);
    let template = Template::new("").hook("goodbye", "pre-delete", &hook);
    let mut record = Release {
        name: "web".to_owned(),
        namespace: world.namespace.clone(),
        revision,
        manifest: recorded(is_newest, &value, operation),
        hooks: template.hooks,
        chart: Some(template.chart),
        info: Some(release::Info::default()),
        apply_method: release::ApplyMethod::ServerSide,
        ..Release::default()
    };
    let status = match status {
        "unset" => Status::Unset,
        word => Status::from(word),
    };
    record.set_status(status, "written for this test");
    record
}

/// The revision in front of a cell like `upgrade 3<2`, and the base behind it.
fn numbers(cell: &str) -> (i64, Option<i64>) {
    let rest = cell.split_whitespace().last().unwrap_or_default();
    let (revision, base) = rest
        .split_once('<')
        .map_or((rest, None), |(one, two)| (one, Some(two)));
    (
        revision.parse().unwrap_or_default(),
        base.and_then(|base| base.parse().ok()),
    )
}

async fn walk(row: &Row, operation: Operation) -> Result<()> {
    let scene = Scene::new(row, operation).await?;
    let (world, plain) = (
        &scene.world,
        Storage::secrets(&scene.world.cluster, &scene.world.namespace),
    );
    let is_waiting = row.other_content == "wait";
    let runs = row.if_it_runs != "-";
    let planned = if runs {
        row.if_it_runs
    } else {
        row.other_content
    };
    let (revision, base) = numbers(planned);
    // What the table does not know: that the good one is the one that cannot be read.
    let base = base.map(
        |base| match base == row.shape.newest && !row.shape.is_readable {
            true => row.shape.below[0].0,
            false => base,
        },
    );
    let is_theirs = row.shape.writer != Writer::Us;
    // What a stored record has that is an attempt of ours may be taken back; of nobody else's.
    let manifest = desired(base.is_none());
    let options = |atomic: bool| DeployOptions {
        writer: by_our_agents(),
        max_history: 0,
        ..if atomic {
            self::atomic()
        } else {
            DeployOptions::default()
        }
    };
    if operation == Operation::HandOver {
        let ReleaseRecords {
            owned, is_attempt, ..
        } = scene.owned().await?;
        ensure!(owned == OwnedRecords::Whole, "{owned:?}");
        scene.book.hand_over(NEXT_OWNER, is_attempt);
        scene.is_all_untouched().await?;
    }
    match operation {
        Operation::Deploy | Operation::HandOver => {
            let done = world
                .deploy_with(&Template::new(&manifest), options(false))
                .await;
            if is_waiting {
                ensure!(matches!(done, Err(DeployError::Locked)), "{done:?}");
            } else {
                let done = done?;
                ensure!(
                    done.release.revision == revision,
                    "revision {}",
                    done.release.revision
                );
                ensure!(done.plan.action.from() == base, "{:?}", done.plan);
                for name in ["ours", "keep", "adopted", "brought", "fresh"] {
                    ensure!(scene.value(name).await? == "9", "{name}");
                }
                for name in ["ours", "brought", "unmarked"] {
                    scene.is_there(name).await?;
                }
                let dropped = scene.value("dropped").await?;
                ensure!(base.is_none() || dropped == "none", "dropped is left");
            }
        }
        Operation::Correct => {
            let is_believed = scene.correct(row.shape.newest).await?;
            let is_ours = !is_theirs && row.shape.is_readable;
            ensure!(is_believed == is_ours, "believed: {is_believed}");
            if !is_believed {
                scene.is_all_untouched().await?;
            }
        }
        Operation::Adopt => {
            let (newest, entry) = (row.shape.newest, scene.book.as_known());
            let record = plain.get_unverified("web", newest).await.ok();
            let proof = record.as_ref().and_then(|record| {
                Proof::named(record, BUNDLE, SYSTEM).filter(|_| entry.may_believe(newest))
            });
            let is_agents = row.shape.writer == Writer::GoAgent;
            ensure!(proof.is_some() == is_agents, "adopted: {proof:?}");
            scene.is_all_untouched().await?;
            if let Some(record) = record.filter(|_| is_agents) {
                scene.book.adopt(newest, &record);
                ensure!(scene.correct(newest).await?, "it is believed from now on");
            }
        }
        Operation::Undo => {
            let refused = config_map("zz", "1").replace("\ndata:", "\ndota:");
            let failed = world
                .deploy_with(&Template::new(&(manifest + &refused)), options(true))
                .await;
            let failed = release::error_chain(&failed.err().context("a failure")?);
            ensure!(scene.value("fresh").await? == "none", "fresh: {failed}");
            for name in ["ours", "dropped", "unmarked"] {
                scene.is_there(name).await.context(failed.clone())?;
            }
            match (runs || row.if_it_fails.starts_with("back to "), base) {
                (true, Some(to)) => {
                    let value = scene.value("ours").await?;
                    ensure!(value == to.to_string(), "back to {to}: {failed}");
                }
                _ if is_waiting => scene.is_untouched("ours").await?,
                _ => ensure!(row.if_it_fails == "take back", "{}", row.if_it_fails),
            }
            if is_theirs || row.shape.below.is_empty() {
                scene.is_there("brought").await.context(failed)?;
            }
            if is_theirs {
                // Whatever the attempt came to, what others wrote is there.
                plain.get_unverified("web", row.shape.newest).await?;
            }
        }
        Operation::Remove => {
            let ReleaseRecords {
                owned, is_attempt, ..
            } = scene.owned().await?;
            ensure!(owned == OwnedRecords::Whole, "{owned:?}");
            let spec = UninstallSpec {
                is_attempt,
                writer: by_our_agents(),
                ..UninstallSpec::new("web", &world.namespace)
            };
            let removed = release::uninstall(&world.cluster, &world.storage, &spec).await;
            if row.uninstall == "wait" {
                ensure!(
                    matches!(removed, Err(UninstallError::Locked)),
                    "{removed:?}"
                );
                return scene.is_all_untouched().await;
            }
            removed?;
            ensure!(plain.history("web").await?.is_empty(), "records are left");
            // Who removes does not ask whether a record that nothing vouches for is another agent's.
            let is_agents = row.shape.writer == Writer::GoAgent;
            let goes = is_agents || row.uninstall == "remove";
            for name in ["ours", "dropped"] {
                match goes {
                    true => ensure!(scene.value(name).await? == "none", "{name} is left"),
                    false => scene.is_untouched(name).await?,
                }
            }
            scene.is_untouched("unmarked").await?;
            scene.is_untouched("adopted").await?;
            scene.is_untouched("keep").await?;
            let hook = format!("hook-{}", row.shape.newest);
            let is_foreign = is_theirs || !row.shape.is_readable;
            ensure!(
                !is_foreign || scene.value(&hook).await? == "none",
                "their hook was run"
            );
        }
    }
    let deploys = [Operation::Deploy, Operation::Undo, Operation::HandOver];
    if is_waiting && deploys.contains(&operation) {
        scene.is_all_untouched().await?;
    }
    for name in ["keep", "adopted"] {
        scene.is_there(name).await?;
    }
    // Nothing that is another's, that is going, or that nobody's record has.
    for name in ["anothers", "leaving", "marked"] {
        scene.is_untouched(name).await?;
    }
    drop(scene.book);
    Ok(())
}

#[tokio::test]
async fn no_situation_touches_what_is_not_proven_to_be_the_releases() -> Result<()> {
    let rows = rows();
    let walks = rows.iter().map(|(row, operation)| async move {
        let what = format!("{operation:?} {} {}", row.status, row.shape.name);
        let walked = walk(row, *operation).await;
        walked.err().map(|error| format!("{what}: {error:#}"))
    });
    let wrong: Vec<Option<String>> = stream::iter(walks).buffered(AT_A_TIME).collect().await;
    let count = wrong.len();
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    ensure!(
        wrong.is_empty(),
        "{} of {count}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    ensure!(count > 120, "{count} walks are too few for a table");
    for wanted in Operation::ALL {
        let walked = rows.iter().filter(|(_, operation)| *operation == wanted);
        ensure!(walked.count() >= 7, "{wanted:?} is hardly walked");
    }
    Ok(())
}
