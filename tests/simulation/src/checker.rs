//! The invariants: what must hold at every write, from facts that the simulation knows.
//!
//! Nothing here knows a scenario. Known are: who wrote each object and which release it names as its owner, what somebody upstream wants of each bundle (a
//! disaster changes what upstream holds, not what is wanted), the account of each write, where secrets are, the history of
//! each release, and which hook ran in which revision.

mod attempts;
mod backups;
mod holders;
mod hooks;
mod leftovers;
mod ownership;
mod revisions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use agent::api::{ANNOTATION_BUNDLE_ID, LABEL_BUNDLE_DEPLOYMENT};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tokio::time::Instant;

use crate::apiserver::{Actor, Audit, Id, Write, is_leaving};
use crate::desired::{BUNDLES, CANARY, Desired, DesiredState, SYSTEM, bundle_name};
use crate::records::{HIGHEST, decoded};
use attempts::{Attempt, has};
use hooks::Run;
pub use leftovers::Rest;
use ownership::{adoption, is_bookkeeping, is_note};
use revisions::InPlace;

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which invariant, in two or three words: what known holes are told by.
    pub rule: &'static str,
    /// What happened.
    pub text: String,
}

/// A release by namespace and name.
pub type ReleaseKey = (String, String);

/// Where an object comes from.
#[derive(Clone, Debug)]
struct Origin {
    id: Id,
    actor: Actor,
    /// Whether an actor of ours took it over with `takeOwnership`.
    taken: bool,
    /// The number of the release's good revisions when it was created.
    born: u64,
    /// The release that it was created for.
    release: Option<ReleaseKey>,
    /// When an agent last wrote it.
    written: Instant,
}

/// A release that another bundle took over above a forged record, or that the Go agent deployed there.
#[derive(Clone, Debug)]
struct Takeover {
    /// What was made before it had so many good revisions is of one of them.
    good: u64,
    /// Its objects, by uid, that were written then or since: versions that nobody forged have them.
    written: BTreeSet<String>,
}

/// Everything that is known.
#[derive(Clone, Debug, Default)]
pub struct Checker {
    pub desired_state: DesiredState,
    /// Whether bundles without an account have one all the same.
    pub has_fallback: bool,
    /// Bundles that are missing upstream although somebody wants them.
    pub lost: BTreeSet<usize>,
    /// Those that ever were.
    were_lost: BTreeSet<usize>,
    /// Lost bundles whose removal a person allowed.
    pub allowed: BTreeSet<usize>,
    /// Bundles that were deleted and whose removal was noted as held when a person allowed it.
    pub let_through: BTreeSet<usize>,
    /// When a copy that a bundle needs was last written over with other content.
    copies_changed: BTreeMap<(usize, Id), Instant>,
    /// When the agent last deployed a release.
    last_deployed: BTreeMap<ReleaseKey, Instant>,
    /// When upstream deleted the bundle of a release; not if it is there again, for then the release may have moved.
    unwanted: BTreeMap<usize, (ReleaseKey, Instant)>,
    /// When a bundle last ceased to want a release.
    left: BTreeMap<(usize, ReleaseKey), Instant>,
    /// When what is wanted of a bundle changed.
    changed: BTreeMap<usize, Vec<Instant>>,
    /// When upstream told an agent anything of bundles.
    told: Vec<Instant>,
    /// The newest record that the agent wrote of each release, with its revision.
    written: BTreeMap<ReleaseKey, (i64, Arc<Value>)>,
    /// The newest record of each release that a helm client wrote as deployed, with its revision.
    helms: BTreeMap<ReleaseKey, (i64, Arc<Value>)>,
    /// When that was.
    helms_at: BTreeMap<ReleaseKey, Instant>,
    /// Releases whose record of an upgrade that was under way a restore of the local cluster took, with that record: what it drops goes with that upgrade, or
    /// with the same one that is begun anew.
    cut_off: BTreeMap<ReleaseKey, Arc<Value>>,
    /// Releases that another bundle took over above a forged record, or that the Go agent deployed there.
    taken_above_forged: BTreeMap<ReleaseKey, Takeover>,
    /// Releases with a helm client's record of which the agent has just deleted a revision that was no good one.
    withdrawn: BTreeSet<ReleaseKey>,
    /// Objects, by uid, of attempts at such releases, once the agent has forgotten these, or below what the Go agent deployed, until they are written again.
    given_up: BTreeSet<String>,
    /// Objects, by uid, that an attempt of a bundle at another one's release made again, where that bundle had deployed them before it lost the release: of
    /// which, until it has that again.
    made_again: BTreeMap<String, (ReleaseKey, usize)>,
    /// Revisions that the Go agent recorded, of which the agent's own ledger says nothing.
    recorded_by_go: BTreeSet<(ReleaseKey, i64)>,
    /// Objects, by uid, that the Go agent has written since it began its last revision.
    written_by_go: BTreeSet<String>,
    /// The revision that the Go agent created last of each release, until our agent has entered it into its ledger.
    not_entered: BTreeMap<ReleaseKey, i64>,
    /// Records that a tenant wrote in the place of such revisions.
    in_place: BTreeMap<ReleaseKey, InPlace>,
    /// The ledger, as the agent wrote it last.
    ledger: Option<Arc<Value>>,
    /// Records that a tenant wrote under a number that the ledger said was about to be written.
    under_announced: BTreeSet<(ReleaseKey, i64)>,
    /// What the agent began with each release, until it succeeds.
    attempts: BTreeMap<ReleaseKey, Attempt>,
    /// The bundle that each release was last deployed for.
    deployed_for: BTreeMap<ReleaseKey, usize>,
    /// Releases that the agent has given to another bundle than they were last deployed for, until it deploys them.
    given: BTreeSet<ReleaseKey>,
    /// The bundles that a release ever was deployed for.
    ever_deployed_for: BTreeSet<(ReleaseKey, usize)>,
    /// Those that this agent deployed it for: of what the Go agent did for one that upstream has lost by then it knows nothing.
    ever_deployed_by_agent: BTreeSet<(ReleaseKey, usize)>,
    /// Revisions by which a helm client went back to one that was written for a bundle, which is that one's where it is what the bundle wants.
    gone_back_to: BTreeSet<(ReleaseKey, i64)>,
    /// Bundles that are wanted again after they were deleted, and since when.
    returned: BTreeMap<usize, Instant>,
    /// What the agent wrote last into each object of a release.
    contents: BTreeMap<Id, String>,
    /// Objects that the agent, or the Go agent, once created for a release.
    made: BTreeSet<(Id, ReleaseKey)>,
    origins: BTreeMap<String, Origin>,
    /// Objects that the agent has written with a release's marks, whoever gave them, until it takes them off, or that the Go agent has.
    marked: BTreeSet<(String, ReleaseKey)>,
    /// When an object, by uid, was last taken from a release by a bundle that may.
    lost_at: BTreeMap<(String, ReleaseKey), Instant>,
    /// Bundles that a copy ever said to be needed by.
    claimed: BTreeSet<(String, usize)>,
    /// Copies, by uid, that were made before their agent had noticed that the local cluster was restored, and the namespace: until its ledger names a bundle
    /// there that they say to be needed by.
    unnoticed: BTreeMap<String, String>,
    /// Status of each record by release and revision.
    records: BTreeMap<ReleaseKey, BTreeMap<i64, String>>,
    /// Releases of which a tenant forged or labelled a record.
    tampered: BTreeSet<ReleaseKey>,
    /// Records that were good before a tenant labelled them otherwise.
    were_good: BTreeSet<(ReleaseKey, i64)>,
    /// Good revisions that the agent has begun to remove.
    half_removed: BTreeSet<(ReleaseKey, i64)>,
    /// Good revisions that a release ever had.
    deployed: BTreeMap<ReleaseKey, u64>,
    /// What was known when the local cluster was last backed up.
    at_backup: Option<Box<Self>>,
    /// Those of them that the agent deployed, or the Go agent.
    deployed_by_agent: BTreeMap<ReleaseKey, u64>,
    /// Hooks that succeeded, by place, release, its revision, the uid of that one's record, and content: with a record that somebody deletes goes what
    /// it says of its hooks, and another one may get its number.
    hooks: BTreeSet<(Id, ReleaseKey, i64, String, String)>,
    /// Jobs that the agent created as hooks, by uid.
    runs: BTreeMap<String, Run>,
    /// How often a life of the agent created an object, and since when: back-offs end with a life.
    creations: BTreeMap<(Id, Option<u32>), (u64, Instant)>,
    /// Revisions a release got since this was last taken.
    pub revisions: BTreeMap<ReleaseKey, u64>,
    /// The same of those that succeeded.
    pub successes: BTreeMap<ReleaseKey, u64>,
    /// Releases whose records somebody else deleted, or labelled as uninstalled: what they had is known to nobody.
    forgotten: BTreeSet<ReleaseKey>,
    /// Whether the local cluster was restored and no agent has written the ledger since.
    is_restored: bool,
    /// The life of the agent that wrote last.
    latest_life: Option<u32>,
    /// The one that lived on when the local cluster was restored.
    lived_on: Option<u32>,
    /// Hooks, by uid, that had succeeded by then.
    outlived: BTreeMap<String, Run>,
    /// When somebody else last deleted a release's record.
    robbed: BTreeMap<ReleaseKey, Instant>,
    /// When somebody else last gave a release's record another status.
    relabelled: BTreeMap<ReleaseKey, Instant>,
    /// Writes of the agent by object, since this was last taken.
    pub writes: BTreeMap<Id, u64>,
    /// From when to when webhooks kept writes of the agent waiting.
    held_up: Vec<(Instant, Instant)>,
    /// The life that wrote the lease last, and since when it is the one.
    leader: Option<(u32, Instant)>,
    pub violations: Vec<Violation>,
    /// Lines for the log.
    pub lines: Vec<String>,
}

/// The status of a record that a tenant wrote as a good one.
const FORGED_STATUS: &str = "forged";
/// Where the agent notes whose each release is.
const LEDGER: &str = "fleet-agent-ledger";
/// Deploys that have other reasons than a desired: edits, deletions, other clients.
const MOST_DEPLOYS: u64 = 8;
/// How often an object may be created at first, and once more in each minute: with every try of what is undone each time.
const MOST_CREATIONS: u64 = 20;

/// How long a release stays after its bundle is gone: the agent's default.
const GRACE: Duration = Duration::from_secs(3);
/// Longer than it takes until a watch has told something.
const LATEST_NEWS: Duration = Duration::from_secs(30);
/// Longer than a chart may take to come.
const DOWNLOAD: Duration = Duration::from_secs(35);
/// Longer than any request takes.
const ON_ITS_WAY: Duration = Duration::from_secs(7);
/// What every secret value begins with in base64.
static ENCODED_CANARY: LazyLock<String> = LazyLock::new(|| STANDARD.encode(CANARY)[..8].to_owned());
/// What the names of objects in forged records begin with.
pub const FORGED: &str = "forged-";

/// What the names of records begin with.
pub const RECORD: &str = "sh.helm.release.v1.";

/// The bundle that a record names as its own, as those of this agent and of the Go agent do.
fn named_bundle(record: &Value) -> Option<usize> {
    let release = decoded(record)?;
    let annotations = release.chart.as_ref()?.metadata.annotations.as_ref()?;
    let name = annotations.get(ANNOTATION_BUNDLE_ID)?;
    (0..BUNDLES).find(|bundle| bundle_name(*bundle) == *name)
}

/// Where a copy is.
fn copy_at(number: u8, namespace: &str) -> Id {
    Id::new("", "secrets", namespace, &format!("pull{number}"))
}

/// Whether a copy says that a bundle needs it.
fn claims(copy: &Value, bundle: &str) -> bool {
    let labels = copy.pointer("/metadata/labels");
    labels.is_some_and(|labels| {
        let claim = format!("bundledeployment.fleet.cattle.io/{bundle}");
        labels
            .get(LABEL_BUNDLE_DEPLOYMENT)
            .is_some_and(|first| first == bundle)
            || labels.get(claim).is_some()
    })
}

fn release_of(desired: &Desired) -> ReleaseKey {
    (
        desired.release_namespace().to_owned(),
        desired.release_name(),
    )
}

impl Checker {
    /// Notes that an invariant is broken.
    pub fn violate(&mut self, rule: &'static str, text: String) {
        if !self.violations.iter().any(|known| known.rule == rule) {
            self.violations.push(Violation { rule, text });
        }
    }

    /// Upstream wants this of a bundle.
    pub fn want(&mut self, bundle: usize, desired: &Desired) {
        self.let_through.remove(&bundle);
        let was_unwanted = self.unwanted.remove(&bundle).is_some();
        // One that was deleted after it had vanished by mistake was not there to be deleted.
        let state = &self.desired_state;
        let was_lost = state.ever.contains_key(&bundle) && !state.now.contains_key(&bundle);
        if was_unwanted || was_lost {
            self.returned.insert(bundle, Instant::now());
        }
        self.change(bundle, desired);
    }

    /// This is wanted of a bundle from now on, whether somebody says so or a restore does.
    pub fn change(&mut self, bundle: usize, desired: &Desired) {
        let former = self.desired_state.now.get(&bundle);
        if former != Some(desired) {
            let changed = self.changed.entry(bundle).or_default();
            changed.push(Instant::now());
        }
        let former = former.map(release_of);
        let wanted = release_of(desired);
        if let Some(former) = former.filter(|former| *former != wanted) {
            self.left.insert((bundle, former), Instant::now());
            // One that it had left before may be about to be removed, as the agent heard last.
            if self.left.contains_key(&(bundle, wanted.clone())) {
                self.returned.insert(bundle, Instant::now());
            }
        }
        self.desired_state.want(bundle, desired);
    }

    /// Upstream deletes a bundle that it has.
    pub fn unwant(&mut self, bundle: usize, heard: Option<Instant>) {
        // One of that name which comes later needs what it has claimed itself.
        self.claimed.retain(|(_, claiming)| *claiming != bundle);
        self.let_through.remove(&bundle);
        if let Some(desired) = self.desired_state.now.get(&bundle) {
            let release = release_of(desired);
            self.left.insert((bundle, release.clone()), Instant::now());
            let newest = self
                .records
                .get(&release)
                .and_then(BTreeMap::last_key_value);
            let is_leaving = newest.is_some_and(|(_, status)| status == "uninstalling");
            // Where the agent did not hear that its bundle was back, it is missing since it went before, and a removal that has begun is finished.
            let returned = self.returned.get(&bundle);
            let is_unheard = returned.is_some_and(|at| heard.is_none_or(|heard| heard < *at));
            let is_hidden = is_unheard || is_leaving && self.is_returning(bundle);
            if !is_hidden {
                self.unwanted.insert(bundle, (release, Instant::now()));
            }
        }
    }

    /// Whether a bundle's release is older than the change of a copy that it needs. One that came into being changed nothing that ran.
    pub fn misses_a_copy(&self, bundle: usize, desired: &Desired) -> bool {
        let deployed = self.last_deployed.get(&release_of(desired));
        desired.copies.iter().any(|number| {
            let place = copy_at(*number, desired.release_namespace());
            let changed = self.copies_changed.get(&(bundle, place));
            changed.is_some_and(|changed| deployed.is_none_or(|at| at < changed))
        })
    }

    /// How many bundles that are not deployed take an object from each other with every try, as they were told to.
    pub fn contestants(&self, id: &Id, is_ready: impl Fn(usize) -> bool) -> usize {
        let now = self.desired_state.now.iter();
        let takes = |bundle: usize, desired: &Desired| {
            desired.take_ownership && !is_ready(bundle) && desired.ids().any(|wanted| wanted == *id)
        };
        now.filter(|(bundle, desired)| takes(**bundle, desired))
            .count()
    }

    /// Reads a text that leaves the agent.
    pub fn read(&mut self, place: &str, text: &str) {
        if text.contains(CANARY) || text.contains(ENCODED_CANARY.as_str()) {
            let at = text.find(CANARY).unwrap_or(0);
            let around: String = text.chars().skip(at.saturating_sub(60)).take(160).collect();
            self.violate("secret told", format!("{place} holds a secret: {around}"));
        }
    }

    fn uid(object: &Value) -> String {
        let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
        uid.unwrap_or_default().to_owned()
    }

    /// The release that an object names as its owner.
    fn owner(object: &Value) -> Option<ReleaseKey> {
        let annotations = object.pointer("/metadata/annotations")?;
        let text = |key: &str| annotations.get(key).and_then(Value::as_str);
        Some((
            text("meta.helm.sh/release-namespace")?.to_owned(),
            text("meta.helm.sh/release-name")?.to_owned(),
        ))
    }

    fn is_hook(object: &Value) -> bool {
        object
            .pointer("/metadata/annotations/helm.sh~1hook")
            .is_some()
    }

    /// The life of the agent that has the lease.
    pub fn leader(&self) -> Option<u32> {
        self.leader.map(|(life, _)| life)
    }

    /// Whoever lost the lease writes no more than what was on its way.
    fn one_writer(&mut self, write: &Write) {
        let (Some(life), Some((leader, since))) = (write.who.agent(), self.leader) else {
            return;
        };
        if life != leader && since.elapsed() > ON_ITS_WAY {
            let text = format!("agent{life} writes {}, and agent{leader} leads", write.id);
            self.violate("two writers", text);
        }
    }

    /// Release and revision of a record.
    fn record(id: &Id) -> Option<(ReleaseKey, i64)> {
        if id.plural != "secrets" {
            return None;
        }
        let (name, revision) = id.name.strip_prefix(RECORD)?.rsplit_once(".v")?;
        let key = (id.namespace.clone(), name.to_owned());
        Some((key, revision.parse().ok()?))
    }

    /// The release and the revision of which a write says that it is deployed.
    fn deployed_revision(write: &Write) -> Option<(ReleaseKey, i64)> {
        let record = Self::record(&write.id)?;
        let status = write.after.as_ref()?.pointer("/metadata/labels/status");
        (status?.as_str()? == "deployed").then_some(record)
    }

    /// Those who want a release now, or would if upstream had not lost them.
    fn wanting(&self, release: &ReleaseKey) -> Vec<usize> {
        let is_it = |desired: &Desired| {
            desired.release_namespace() == release.0 && desired.release_name() == release.1
        };
        let now = self.desired_state.now.iter();
        let wanting: Vec<usize> = now
            .filter(|(_, desired)| is_it(desired))
            .map(|(bundle, _)| *bundle)
            .collect();
        // Of several that want the same release one has it, and the others are told: which one is no fact from outside.
        match wanting.as_slice() {
            [bundle] if !self.allowed.contains(bundle) && !self.is_returning(*bundle) => wanting,
            _ => Vec::new(),
        }
    }

    /// These bundles were lost, their removal was allowed, and upstream has them again.
    pub fn come_back(&mut self, bundles: BTreeSet<usize>) {
        for bundle in bundles {
            if self.desired_state.now.contains_key(&bundle) {
                self.returned.insert(bundle, Instant::now());
            }
        }
    }

    /// These bundles are lost. One that went again before upstream told the agent anything since it came back has not come back for that: who let it go
    /// did so as it was.
    pub fn lose(&mut self, lost: BTreeSet<usize>, heard: Option<Instant>) {
        let is_unheard = |at: &Instant| heard.is_none_or(|heard| heard < *at);
        let again = lost
            .iter()
            .filter(|bundle| self.returned.get(bundle).is_some_and(is_unheard));
        let again: Vec<_> = again.copied().collect();
        self.allowed.extend(again);
        self.were_lost.extend(&lost);
        self.lost = lost;
    }

    /// Whether a bundle came back too soon for the agent to know of it: what is begun is ended.
    fn is_returning(&self, bundle: usize) -> bool {
        let since = self.returned.get(&bundle);
        since.is_some_and(|since| self.is_upstream_news(*since))
    }

    fn is_deployed(status: &str) -> bool {
        matches!(status, "deployed" | "superseded")
    }

    /// How many bundles want a release.
    pub fn claimants(&self, release: &ReleaseKey) -> usize {
        let now = self.desired_state.now.values();
        now.filter(|desired| release_of(desired) == *release)
            .count()
    }

    /// How many releases are being removed, or are to be once somebody has ended what their newest record says is under way.
    pub fn removals(&self) -> usize {
        let is_leaving = |(release, records): &(&ReleaseKey, &BTreeMap<i64, String>)| {
            let newest = records.last_key_value();
            let is_locked = newest.is_some_and(|(_, status)| status.starts_with("pending"));
            // Not the newest one alone: somebody else may have written above it.
            let mut statuses = records.values();
            statuses.any(|status| status == "uninstalling")
                || is_locked && self.claimants(release) == 0
        };
        self.records.iter().filter(is_leaving).count()
    }

    /// Whether the removal of a bundle's release has begun, as its newest record says, and is not over.
    pub fn is_half_removed(&self, desired: &Desired) -> bool {
        let release = release_of(desired);
        // What is recorded above what a tenant forged as the highest number no other bundle believes.
        let records = self.records.get(&release).into_iter();
        let mut believed = records.flat_map(|records| records.range(..=HIGHEST));
        let newest = believed.next_back();
        // What the agent itself deployed above that, over what a helm client did there.
        let written = self.written.get(&release).map(|(revision, _)| *revision);
        let own = self.records.get(&release).zip(written);
        let own = own.and_then(|(records, written)| records.get(&written));
        self.claimants(&release) == 1
            && own.is_none_or(|own| own != "deployed")
            && newest.is_some_and(|(_, status)| status == "uninstalling")
    }

    /// Whether somebody deployed a release, or tried to.
    pub fn has_records(&self, desired: &Desired) -> bool {
        let records = self.records.get(&release_of(desired));
        records.is_some_and(|records| !records.is_empty())
    }

    /// How many of the releases that bundles want belong to them: none that a bundle upstream ever wanted.
    pub fn own_releases(
        &self,
        bundles: &BTreeSet<usize>,
        is_present: impl Fn(usize) -> bool,
    ) -> usize {
        let wanted = bundles
            .iter()
            .filter_map(|bundle| self.desired_state.now.get(bundle));
        let deployed = wanted.filter(|desired| self.has_records(desired));
        let releases: BTreeSet<ReleaseKey> = deployed.map(release_of).collect();
        let is_shared = |(namespace, name): &&ReleaseKey| {
            let bundles = self.desired_state.of_release(namespace, name);
            bundles.into_iter().any(&is_present)
        };
        releases
            .iter()
            .filter(|release| !is_shared(release))
            .count()
    }

    /// How many bundles are not upstream and have a release all the same.
    pub fn leaving(&self, is_present: impl Fn(usize) -> bool) -> usize {
        let ever = self.desired_state.ever.iter();
        let has_release = |desired: &Desired| self.has_records(desired);
        ever.filter(|(bundle, desired)| !is_present(**bundle) && desired.iter().any(has_release))
            .count()
    }

    /// A release is deployed anew for each desired, and some times for what else happens to it.
    fn count_deploy(&mut self, release: &ReleaseKey) {
        let bundles = self.desired_state.of_release(&release.0, &release.1);
        let desired_state: usize = bundles
            .iter()
            .map(|bundle| self.desired_state.ever[bundle].len())
            .sum();
        let count = self.deployed_by_agent(release);
        if count > MOST_DEPLOYS + 3 * desired_state as u64 {
            let text = format!("{release:?} was deployed {count} times for {desired_state} specs");
            self.violate("release flaps", text);
        }
    }

    /// An object is created anew when somebody deleted it, not again and again.
    fn count_creation(&mut self, id: &Id, life: Option<u32>) {
        let known = self.creations.entry((id.clone(), life));
        let (count, since) = known.or_insert_with(|| (0, Instant::now()));
        *count += 1;
        if *count > MOST_CREATIONS + since.elapsed().as_secs() / 60 {
            let text = format!("{id} was created {count} times in {:?}", since.elapsed());
            self.violate("object flaps", text);
        }
    }

    fn deployed_by_agent(&self, release: &ReleaseKey) -> u64 {
        self.deployed_by_agent.get(release).copied().unwrap_or(0)
    }

    fn has_deployed(&self, release: &ReleaseKey) -> bool {
        let records = self.records.get(release);
        records.is_some_and(|records| records.values().any(|status| Self::is_deployed(status)))
    }

    /// Whether a helm client's revision is the newest of a release, deployed, and has an object. Helm begins nothing over a revision that is
    /// pending, so whoever is about to delete has one there first. A removal of the release as a whole is not meant: what a helm client wrote to a
    /// bundle's release goes with it.
    fn is_helms(&self, release: &ReleaseKey, id: &Id) -> bool {
        let records = self.records.get(release);
        let newest = records.and_then(BTreeMap::last_key_value);
        let (Some((newest, status)), Some((written, record))) = (newest, self.helms.get(release))
        else {
            return false;
        };
        // As docs/security.md has it: between the last look at the records and a deletion an attempt is gone on from.
        let at = self.helms_at.get(release);
        let is_on_its_way = at.is_some_and(|at| at.elapsed() < ON_ITS_WAY);
        if is_on_its_way && self.attempts.contains_key(release) {
            return false;
        }
        let mut statuses = records.into_iter().flat_map(BTreeMap::values);
        let is_removed = statuses.any(|status| status == "uninstalling");
        let cut_off = self.cut_off.get(release).and_then(|record| decoded(record));
        let is_dropped = cut_off.is_some_and(|cut_off| !has(&cut_off, id));
        newest == written
            && status == "deployed"
            && !is_removed
            && !is_dropped
            && release.0 == id.namespace
            && decoded(record).is_some_and(|release| has(&release, id))
    }

    /// Whether something is so new that what began before may still be under way.
    fn is_news(&self, at: Instant) -> bool {
        self.passed(at, Instant::now()) < LATEST_NEWS
    }

    /// The same of what upstream has to tell, which nobody knows while it cannot be reached.
    fn is_upstream_news(&self, at: Instant) -> bool {
        self.is_news(self.told_of(at))
    }

    /// When upstream told an agent anything first after a moment: now at the earliest, where it has not yet.
    fn told_of(&self, at: Instant) -> Instant {
        let first = self.told.partition_point(|told| *told < at);
        self.told.get(first).copied().unwrap_or_else(Instant::now)
    }

    /// How much time has passed, but for that in which a webhook kept a write waiting: whoever waits for an answer does nothing else meanwhile.
    fn passed(&self, from: Instant, to: Instant) -> Duration {
        let held = self.held_up.iter().map(|(begun, ended)| {
            let (begun, ended) = (from.max(*begun), to.min(*ended));
            ended.saturating_duration_since(begun)
        });
        let held: Duration = held.sum();
        to.saturating_duration_since(from).saturating_sub(held)
    }

    /// How often what is wanted of a bundle has changed lately: a deploy of that time may have begun with any of it. One that is not the first to give way to
    /// what is newer waits for its chart however long that takes.
    fn recent_changes(&self, bundle: usize) -> usize {
        let mut ever = self.desired_state.ever.get(&bundle).into_iter().flatten();
        let latest = match ever.any(|desired| desired.origin != crate::desired::Origin::Content) {
            true => LATEST_NEWS + DOWNLOAD,
            false => LATEST_NEWS,
        };
        let changed = self.changed.get(&bundle).into_iter().flatten();
        changed
            .filter(|at| self.passed(self.told_of(**at), Instant::now()) < latest)
            .count()
    }

    /// Whether the agent is at an upgrade of a release. What somebody else writes above its record in the meantime does not end it, nor does at once who
    /// deletes or labels that.
    fn is_upgrading(&self, release: &ReleaseKey) -> bool {
        self.written_status(release) == Some("pending-upgrade")
    }

    /// The status of the newest record that the agent wrote of a release: its own words where somebody else has deleted or labelled it so lately that the
    /// agent may not know it.
    fn written_status(&self, release: &ReleaseKey) -> Option<&str> {
        let (revision, record) = self.written.get(release)?;
        let known = self.records.get(release).and_then(|all| all.get(revision));
        let relabelled = self.relabelled.get(release);
        let is_unknown = match known {
            Some(_) => relabelled.is_some_and(|at| self.is_news(*at)),
            None => self.is_robbed(release),
        };
        match is_unknown {
            true => record.pointer("/metadata/labels/status")?.as_str(),
            false => known.map(String::as_str),
        }
    }

    /// Whether somebody else has deleted a record of a release so lately that the agent may not know it.
    fn is_robbed(&self, release: &ReleaseKey) -> bool {
        let robbed = self.robbed.get(release);
        robbed.is_some_and(|robbed| self.is_news(*robbed))
    }
}

impl Audit for Checker {
    fn told(&mut self) {
        self.told.push(Instant::now());
    }

    fn held_up(&mut self, held: Duration) {
        let (now, until) = (Instant::now(), Instant::now() + held);
        match self.held_up.last_mut() {
            Some((_, ended)) if *ended >= now => *ended = until.max(*ended),
            _ => self.held_up.push((now, until)),
        }
    }

    fn wrote(&mut self, write: &Write) {
        let by_agent = write.who.agent().is_some();
        if by_agent && let Some(after) = &write.after {
            match write.id.plural.as_str() {
                "bundledeployments" | "clusters" => {
                    self.read("the status upstream", &after["status"].to_string());
                }
                "events" => self.read("an Event", &after["message"].to_string()),
                _ => {}
            }
        }
        if write.side != "local" {
            return;
        }
        if write.id.plural == "leases" {
            let life = write.who.agent();
            if let Some(life) = life.filter(|life| self.leader() != Some(*life)) {
                self.leader = Some((life, Instant::now()));
            }
            return;
        }
        self.one_writer(write);
        self.latest_life = write.who.agent().or(self.latest_life);
        // A ledger that was restored refuses what goes by another one.
        self.is_restored &= !(by_agent && write.id.name == LEDGER);
        if let (true, Some(after)) = (by_agent && write.id.name == LEDGER, &write.after) {
            self.keep_entered(after);
        }
        if let (None, Some(after)) = (&write.before, &write.after) {
            let release = Self::owner(after);
            let born = release
                .as_ref()
                .and_then(|release| self.deployed.get(release));
            let origin = Origin {
                id: write.id.clone(),
                actor: write.who.actor,
                taken: false,
                born: born.copied().unwrap_or(0),
                release,
                written: Instant::now(),
            };
            self.origins.insert(Self::uid(after), origin);
        }
        self.keep_records(write);
        self.hook(write);
        if by_agent {
            self.has_run(write);
            self.takes(write);
        }
        if let Some((release, revision)) = Self::deployed_revision(write)
            && write.who.actor.deploys_bundles()
        {
            if let Some(in_place) = self.in_place.get_mut(&release)
                && revision > in_place.revision
            {
                in_place.later.insert(revision);
            }
            let named = write.after.as_deref().and_then(named_bundle);
            let deployed_for = named.map(|bundle| (release.clone(), bundle));
            if by_agent {
                self.ever_deployed_by_agent.extend(deployed_for.clone());
            }
            self.ever_deployed_for.extend(deployed_for);
            *self.deployed_by_agent.entry(release).or_default() += 1;
        }
        if let (Actor::Helm, Some(deployed)) = (write.who.actor, Self::deployed_revision(write))
            && write.after.as_deref().and_then(named_bundle).is_some()
        {
            self.gone_back_to.insert(deployed);
        }
        if let (Actor::Go, Some(after)) = (write.who.actor, &write.after)
            && let Some(owner) = Self::owner(after)
        {
            let uid = Self::uid(after);
            if let Some(taken) = self.taken_above_forged.get_mut(&owner) {
                taken.written.insert(uid.clone());
            }
            self.written_by_go.insert(uid.clone());
            // What the Go agent deployed is the release's too, whatever a person strips of it.
            self.marked.insert((uid, owner));
        }
        if let Some(after) = &write.after
            && write.who.actor.deploys_bundles()
        {
            let uid = Self::uid(after);
            if let (None, Some(owner)) = (&write.before, Self::owner(after))
                && !self.made.insert((write.id.clone(), owner.clone()))
            {
                self.make_again(uid.clone(), owner);
            }
            self.given_up.remove(&uid);
            if let Some(origin) = self.origins.get_mut(&uid) {
                origin.written = Instant::now();
            }
        }
        if !by_agent || write.id.namespace == SYSTEM {
            return;
        }
        if let Some(after) = &write.after {
            if write.id.name.starts_with(FORGED) && !self.is_believed(&write.id, after) {
                let text = format!(
                    "{} is in no chart, but in a record that a tenant wrote",
                    write.id
                );
                self.violate("believes a forged record", text);
            }
            if write.id.name.starts_with("pull") {
                let claiming = (0..BUNDLES).filter(|bundle| claims(after, &bundle_name(*bundle)));
                let claiming: Vec<usize> = claiming.collect();
                let claimed = claiming.iter().map(|bundle| (Self::uid(after), *bundle));
                self.claimed.extend(claimed);
                if write.before.is_none() && self.is_restored {
                    let namespace = write.id.namespace.clone();
                    self.unnoticed.insert(Self::uid(after), namespace);
                }
                let before = write.before.as_ref();
                if before.is_some_and(|before| before["data"] != after["data"]) {
                    let changed = claiming
                        .into_iter()
                        .map(|bundle| ((bundle, write.id.clone()), Instant::now()));
                    self.copies_changed.extend(changed);
                }
            }
        }
        if write.id.plural != "events" {
            *self.writes.entry(write.id.clone()).or_default() += 1;
        }
        if let Some((release, _)) = Self::deployed_revision(write) {
            self.last_deployed.insert(release.clone(), Instant::now());
            let before = write.before.as_ref();
            let before = before.and_then(|before| before.pointer("/metadata/labels/status"));
            if before.is_none_or(|before| before != "deployed") {
                *self.successes.entry(release.clone()).or_default() += 1;
            }
            self.count_deploy(&release);
        }
        match (&write.before, &write.after) {
            // Deleted before: now the last finalizer went.
            (Some(before), None) if is_leaving(before) => {}
            (Some(before), None) => {
                let before = Arc::clone(before);
                self.deleted(write, &before);
            }
            (Some(before), Some(after)) => {
                let (before, after) = (Arc::clone(before), Arc::clone(after));
                if is_leaving(&after) && !is_leaving(&before) {
                    self.deleted(write, &before);
                } else {
                    self.overwritten(write, &before, &after);
                }
                if let Some(owner) = Self::owner(&after) {
                    self.account(write, &owner);
                    self.after_hooks(write, &owner);
                    if let Some(taken) = self.taken_above_forged.get_mut(&owner) {
                        taken.written.insert(Self::uid(&after));
                    }
                }
            }
            (None, Some(after)) => {
                if let Some(owner) = Self::owner(after) {
                    self.account(write, &owner);
                    self.after_hooks(write, &owner);
                    if !Self::is_hook(after) {
                        self.count_creation(&write.id, write.who.agent());
                    }
                }
            }
            (None, None) => {}
        }
    }
}

#[cfg(test)]
mod tests;
