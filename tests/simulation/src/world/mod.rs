//! Two clusters, an agent that lives and dies, and what is done to them.

mod go;
mod helm;
mod people;
mod pods;
mod repository;
mod setup;
mod upstream;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::apiserver::{Actor, Backup, Id, Quota, Refusal, Server, Webhook};
use crate::checker::Checker;
use crate::controllers::{self, Crashes, Guard, Load};
use crate::desired::{CLUSTER, Desired, Manifest, NAMESPACES, bundle_name};
use crate::network::{Faults, Network};
use crate::plan::{Action, Plan, Setting, object_name};
use crate::random::Random;
use pods::Pod;
use repository::Repository;
pub use repository::Trouble;

/// The moment all histories begin at: 1 January 2026.
const BEGINNING: i64 = 1_767_225_600;

/// How much older a heartbeat is that Fleet's controller sets back.
const INTERVAL: SignedDuration = SignedDuration::from_mins(15);

type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Where upstream keeps the Cluster.
const WORKSPACE: &str = "fleet-default";

/// Everything there is in a history.
pub struct World {
    pub local: Server,
    pub upstream: Server,
    pub network: Network,
    pub checker: Arc<Mutex<Checker>>,
    setting: Setting,
    pods: Vec<Pod>,
    lives: u32,
    clock: Clock,
    backup: Option<(Backup, BTreeMap<usize, Desired>)>,
    local_backup: Option<Backup>,
    /// Bundles that were missing upstream when the agent last ceased to reach the local cluster: until it does again they are held there,
    /// though they may be back.
    held: BTreeSet<usize>,
    /// When upstream last lost all bundles.
    emptied: Option<Instant>,
    /// When upstream was last restored with the heartbeat that it had, up to which version the agent had been told of bundles, and those that were
    /// lost: until somebody has compared it with what it was.
    unnoticed: Option<(Instant, u64, BTreeSet<usize>)>,
    /// Whether the local cluster ever was what it had been.
    pub was_restored: bool,
    /// Bundles that are to be upstream, and with which generation of copies.
    generations: BTreeMap<usize, i64>,
    /// What each deployment ID that upstream ever had means.
    specs: BTreeMap<String, Desired>,
    fights: BTreeMap<Id, Value>,
    repository: Repository,
    /// In which order upstream creates what vanished.
    random: Random,
    controllers: JoinHandle<()>,
    crashes: Crashes,
    load: Load,
    guard: Guard,
}

impl World {
    /// Two clusters as they are before anybody does anything.
    pub fn new(plan: &Plan, network: Network) -> Self {
        let begun = Instant::now();
        let clock: Clock = Arc::new(move || {
            let passed = i64::try_from(begun.elapsed().as_millis()).unwrap_or(i64::MAX);
            Timestamp::from_millisecond(BEGINNING * 1000 + passed).unwrap_or_default()
        });
        let local = Server::new("local", false, Arc::clone(&clock));
        let upstream = Server::new("upstream", true, Arc::clone(&clock));
        let mut checker = Checker::default();
        checker.has_fallback = plan.setting.has_fallback;
        let checker = Arc::new(Mutex::new(checker));
        local.audited_by(checker.clone());
        upstream.audited_by(checker.clone());
        upstream.lock().page = plan.setting.has_pages.then_some(1);
        let crashes = Crashes::default();
        let guard = Guard::default();
        let load = Load::default();
        let shared = (crashes.clone(), guard.clone(), load.clone());
        let running = controllers::run(local.clone(), shared.0, shared.1, shared.2, plan.seed);
        let controllers = tokio::task::spawn_local(running);
        let world = Self {
            local,
            upstream,
            network,
            checker,
            setting: plan.setting,
            pods: Pod::all(plan.setting),
            lives: 0,
            clock,
            backup: None,
            local_backup: None,
            held: BTreeSet::new(),
            emptied: None,
            unnoticed: None,
            was_restored: false,
            generations: BTreeMap::new(),
            specs: BTreeMap::new(),
            fights: BTreeMap::new(),
            repository: Repository::default(),
            random: Random::of(plan.seed, "recreate"),
            controllers,
            crashes,
            guard,
            load,
        };
        world.set_up();
        world
    }

    /// The checker.
    pub fn checker(&self) -> MutexGuard<'_, Checker> {
        self.checker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts back everything that is in the way of rest.
    pub fn settle(&mut self) {
        self.network.lock().faults = Faults::default();
        self.network.lock().outages.clear();
        self.network.lock().down.clear();
        self.local.lock().refusals.clear();
        self.local.lock().quotas.clear();
        // What changes objects is nothing that fails.
        let is_well = |webhook: &Webhook| !webhook.habit.is_fault();
        self.local.lock().webhooks.retain(is_well);
        self.local.lock().denied.clear();
        if !self.setting.fights_last {
            self.fights.clear();
        }
        self.crashes.end(&self.local);
        self.load.settle();
        self.guard.hurry();
        self.renew_token();
        self.repository.fail(None);
        self.network.lock().cut.clear();
        self.start();
        self.return_contents();
    }

    fn renew_token(&self) {
        self.upstream.lock().tokens = ["open".to_owned()].into();
    }

    /// Whether the history ends after a brief rest where nothing is wrong: what never ends shows only how often it comes about.
    pub fn rests_briefly(&self) -> bool {
        self.setting.rests_briefly && !self.fights()
    }

    /// Whether anybody fights.
    pub fn fights(&self) -> bool {
        !self.fights.is_empty()
    }

    /// Whether somebody sets this object back.
    pub fn is_fought(&self, id: &Id) -> bool {
        self.fights.contains_key(id)
    }

    /// How many Deployments somebody sets back and an autoscaler scales: their bundles read them with each of these writes.
    pub fn contended(&self) -> usize {
        let is_scaled = |id: &&Id| {
            let scaler = Id::new(
                "autoscaling",
                "horizontalpodautoscalers",
                &id.namespace,
                &id.name,
            );
            self.local.get(&scaler).is_some()
        };
        let fought = self.fights.keys().filter(|id| id.plural == "deployments");
        fought.filter(is_scaled).count()
    }

    /// Does what fighters do: sets their objects back.
    pub fn fight(&mut self) {
        for (id, wanted) in &self.fights {
            let Some(live) = self.local.get(id) else {
                continue;
            };
            for field in ["data", "spec"] {
                if live.get(field) != wanted.get(field) && wanted.get(field).is_some() {
                    let mut object = live.as_ref().clone();
                    object[field] = wanted[field].clone();
                    self.local.act(Actor::Fighter, "PUT", &path(id), object);
                    break;
                }
            }
        }
    }

    /// Does what a step says.
    pub async fn act(&mut self, action: &Action) {
        self.network.note(format_args!("-- {action}"));
        match action {
            Action::Want(bundle, desired) => {
                self.checker().want(*bundle, desired);
                self.put(*bundle, desired);
                self.note_lost();
            }
            Action::Unwant(bundle) => {
                if self.present(*bundle) {
                    let heard = self.network.lock().heard;
                    self.checker().unwant(*bundle, heard);
                }
                self.checker().desired_state.now.remove(bundle);
                let path = format!("{BUNDLES_PATH}/{}", bundle_name(*bundle));
                self.upstream
                    .act(Actor::Upstream, "DELETE", &path, Value::Null);
                self.note_lost();
            }
            Action::Backup => {
                let desired_state = self.checker().desired_state.now.clone();
                self.backup = Some((self.upstream.backup(), desired_state));
            }
            Action::Restore(goes_back) => {
                if let Some((backup, _)) = self.backup.clone() {
                    let told = self.network.lock().told_version;
                    let before = (self.announced_version().min(told), self.heartbeat());
                    let lost = self.checker().lost.clone();
                    let removed = self.missing_with(&["isRemoving"]);
                    self.upstream.restore(&backup, *goes_back);
                    // What was deleted since is there again, and somebody wants it until it is deleted again.
                    self.rediscover();
                    // As docs/removal.md has it: a removal that was proven and has begun is finished.
                    let back = removed.into_iter().filter(|bundle| self.present(*bundle));
                    let back = back.collect();
                    self.checker().come_back(back);
                    self.note_lost();
                    let lost = &self.checker().lost - &lost;
                    let is_hidden =
                        *goes_back && (before.1 == self.heartbeat() || self.has_cluster_as_noted());
                    self.unnoticed = is_hidden.then(|| (Instant::now(), before.0, lost));
                }
            }
            Action::SetBack => {
                if let Some(at) = self.heartbeat().and_then(|at| at.as_str()?.parse().ok()) {
                    let former: Timestamp = at;
                    let former = former.saturating_sub(INTERVAL).unwrap_or(former);
                    self.set_heartbeat(json!(format!("{former:.0}")));
                }
            }
            Action::Import => self.set_heartbeat(Value::Null),
            Action::BackupLocal => {
                self.local_backup = Some(self.local.backup());
                self.checker().backed_up();
            }
            Action::RestoreLocal(goes_back) => {
                if let Some(backup) = &self.local_backup {
                    self.local.restore(backup, *goes_back);
                    self.checker().restored();
                    self.was_restored = true;
                }
            }
            Action::Empty => {
                let releases: BTreeSet<_> = {
                    let checker = self.checker();
                    let now = checker.desired_state.now.iter();
                    let has = |bundle: usize| self.present(bundle);
                    now.filter(|(bundle, desired)| has(**bundle) && checker.has_records(desired))
                        .map(|(_, desired)| (desired.namespace, desired.release))
                        .collect()
                };
                // Without a bundle of the agent's own, one or two releases that lose theirs are deletions like any other.
                if !self.setting.has_own && releases.len() < 3 {
                    return;
                }
                self.emptied = Some(Instant::now());
                let own = format!("{BUNDLES_PATH}/fleet-agent-c1");
                self.upstream
                    .act(Actor::Upstream, "DELETE", &own, Value::Null);
                for bundle in 0..crate::desired::BUNDLES {
                    let path = format!("{BUNDLES_PATH}/{}", bundle_name(bundle));
                    self.upstream
                        .act(Actor::Upstream, "DELETE", &path, Value::Null);
                }
                self.note_lost();
            }
            Action::Recreate(apart) => self.recreate(*apart).await,
            Action::LoseContent(bundle) => {
                let desired = self.checker().desired_state.now.get(bundle).cloned();
                if let Some(desired) = desired {
                    let path = format!(
                        "/apis/fleet.cattle.io/v1alpha1/contents/{}",
                        desired.content().0
                    );
                    self.upstream
                        .act(Actor::Upstream, "DELETE", &path, Value::Null);
                }
            }
            Action::ReturnContents => self.return_contents(),
            Action::ChangeSource(number) => {
                self.change_source(*number);
                self.note_lost();
            }
            Action::Down(server) => {
                if *server == "local" {
                    let lost = self.checker().lost.clone();
                    self.held = lost;
                }
                self.network.lock().down.insert(server);
            }
            Action::Cut => {
                let lost = self.checker().lost.clone();
                self.held = lost;
                self.cut();
            }
            Action::Out(outage) => {
                self.network.lock().outages.insert(*outage);
            }
            Action::Up => {
                self.network.lock().outages.clear();
                self.network.lock().down.clear();
                self.network.lock().cut.clear();
                self.held.clear();
                self.note_lost();
                self.renew_token();
            }
            Action::ExpireToken => {
                self.upstream.lock().tokens = ["another".to_owned()].into();
            }
            Action::Faults(faults) => self.network.lock().faults = *faults,
            Action::Repository(trouble) => self.repository.fail(*trouble),
            Action::BreakWatches => {
                self.local.break_watches();
                self.upstream.break_watches();
            }
            Action::Compact => {
                self.local.compact();
                self.upstream.compact();
            }
            Action::Kill => {
                self.kill(self.leading());
                self.start();
            }
            Action::KillAfter(requests) => self.kill_after(*requests),
            Action::Pause(seconds) => {
                self.end_lives();
                tokio::time::sleep(Duration::from_secs(*seconds)).await;
                self.start();
            }
            Action::Go(seconds, dies) => {
                self.end_lives();
                for _ in 0..seconds.div_ceil(15) {
                    self.go_agent(*dies);
                    tokio::time::sleep(Duration::from_secs(15.min(*seconds))).await;
                }
                self.start();
            }
            Action::Jump(seconds) => self.jump(*seconds),
            Action::Wait(seconds) => tokio::time::sleep(Duration::from_secs(*seconds)).await,
            Action::Permit => self.permit(),
            Action::Refuse(namespace, manifest) => {
                let id = id(*namespace, manifest);
                self.local.lock().refusals.push(Refusal {
                    plural: id.plural,
                    namespace: id.namespace,
                    name: id.name,
                });
            }
            Action::Quota(namespace, kind) => {
                let (group, plural) = kind.plural();
                let place = Id::new(group, plural, NAMESPACES[*namespace], "");
                let there = self.local.all(|id| id.is_in(&place)).len();
                self.local.lock().quotas.push(Quota {
                    group: place.group,
                    plural: place.plural,
                    namespace: place.namespace,
                    hard: there,
                });
            }
            Action::Webhook(namespace, kind, habit) => {
                let (group, plural) = kind.plural();
                let place = Id::new(group, plural, NAMESPACES[*namespace], "");
                let habit = *habit;
                self.local.lock().webhooks.push(Webhook { place, habit });
            }
            Action::NoWebhooks => self.local.lock().webhooks.clear(),
            Action::Accept => {
                self.local.lock().refusals.clear();
                self.local.lock().quotas.clear();
            }
            Action::Deny(account, namespace) => {
                let right = format!("{account}/{}", NAMESPACES[*namespace]);
                self.local.lock().denied.insert(right);
            }
            Action::Grant => self.local.lock().denied.clear(),
            Action::Fight(namespace, manifest) => {
                let id = id(*namespace, manifest);
                if let Some(live) = self.local.get(&id) {
                    self.fights.insert(id, live.as_ref().clone());
                }
            }
            Action::Peace => self.fights.clear(),
            Action::Crash(namespace, name, again) => {
                let name = format!("d{name}");
                let id = Id::new("apps", "deployments", NAMESPACES[*namespace], &name);
                self.crashes.begin(&self.local, &id, *again);
            }
            Action::Recover => self.crashes.end(&self.local),
            other => self.kubectl(other),
        }
    }
}

const BUNDLES_PATH: &str =
    "/apis/fleet.cattle.io/v1alpha1/namespaces/cluster-fleet-default-c1/bundledeployments";

/// Where a bundle is upstream.
pub fn bundle_id(bundle: usize) -> Id {
    Id::new(
        "fleet.cattle.io",
        "bundledeployments",
        CLUSTER,
        &bundle_name(bundle),
    )
}

fn id(namespace: usize, manifest: &Manifest) -> Id {
    Id {
        name: object_name(manifest),
        ..manifest.id(NAMESPACES[namespace])
    }
}

/// The path of an object; of a collection if it has no name.
pub fn path(id: &Id) -> String {
    let root = match id.group.as_str() {
        "" => "/api/v1".to_owned(),
        "autoscaling" => "/apis/autoscaling/v2".to_owned(),
        group => format!("/apis/{group}/v1"),
    };
    let place = match id.namespace.as_str() {
        "" => String::new(),
        namespace => format!("/namespaces/{namespace}"),
    };
    let name = match id.name.as_str() {
        "" => String::new(),
        name => format!("/{name}"),
    };
    format!("{root}{place}/{}{name}", id.plural)
}
