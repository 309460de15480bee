//! Two clusters, an agent that lives and dies, and what is done to them.

mod helm;
mod people;
mod repository;
mod setup;
mod upstream;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent::client::requests::{Clients, Transport};
use agent::config::{AgentArgs, Settings};
use agent::process::run::{World as Outside, lead};
use agent::report::metrics::Metrics;
use chart::source::Fetcher;
use jiff::Timestamp;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::util::BoxCloneSyncService;

use crate::apiserver::{Actor, Backup, Id, Refusal, Server};
use crate::checker::Checker;
use crate::controllers;
use crate::desired::{CLUSTER, Desired, Manifest, NAMESPACES, SYSTEM, bundle_name};
use crate::network::{Connection, Faults, Network};
use crate::plan::{Action, Plan, Setting, object_name};
use repository::Repository;

/// The moment all histories begin at: 1 January 2026.
const BEGINNING: i64 = 1_767_225_600;

/// Where upstream keeps the Cluster.
const WORKSPACE: &str = "fleet-default";

/// A life of the agent.
struct Life {
    number: u32,
    task: JoinHandle<()>,
}

/// Everything there is in a history.
pub struct World {
    pub local: Server,
    pub upstream: Server,
    pub network: Network,
    pub checker: Arc<Mutex<Checker>>,
    setting: Setting,
    life: Option<Life>,
    lives: u32,
    jumped: Arc<AtomicI64>,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    backup: Option<(Backup, BTreeMap<usize, Desired>)>,
    /// Bundles that are to be upstream, and with which generation of copies.
    generations: BTreeMap<usize, i64>,
    fights: BTreeMap<Id, Value>,
    controllers: JoinHandle<()>,
}

impl World {
    /// Two clusters as they are before anybody does anything.
    pub fn new(plan: &Plan, network: Network) -> Self {
        let begun = Instant::now();
        let jumped = Arc::new(AtomicI64::new(0));
        let clock: Arc<dyn Fn() -> Timestamp + Send + Sync> = {
            let jumped = Arc::clone(&jumped);
            Arc::new(move || {
                let passed = begun.elapsed().as_millis();
                let passed = i64::try_from(passed).unwrap_or(i64::MAX);
                let at = BEGINNING * 1000 + passed + jumped.load(Ordering::Relaxed) * 1000;
                Timestamp::from_millisecond(at).unwrap_or_default()
            })
        };
        let local = Server::new("local", false, Arc::clone(&clock));
        let upstream = Server::new("upstream", true, Arc::clone(&clock));
        let mut checker = Checker::default();
        checker.has_fallback = plan.setting.has_fallback;
        let checker = Arc::new(Mutex::new(checker));
        local.audited_by(checker.clone());
        upstream.audited_by(checker.clone());
        let controllers = tokio::task::spawn_local(controllers::run(local.clone(), plan.seed));
        let world = Self {
            local,
            upstream,
            network,
            checker,
            setting: plan.setting,
            life: None,
            lives: 0,
            jumped,
            clock,
            backup: None,
            generations: BTreeMap::new(),
            fights: BTreeMap::new(),
            controllers,
        };
        world.set_up();
        world
    }

    /// The checker.
    pub fn checker(&self) -> MutexGuard<'_, Checker> {
        self.checker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A life of the agent begins.
    pub fn start(&mut self) {
        self.lives += 1;
        let number = self.lives;
        self.network.begin(number);
        self.network.note(&format!("agent{number} starts"));
        let environment = [
            ("NAMESPACE", SYSTEM),
            ("FLEET_AGENT_METRICS_BIND_ADDRESS", "0"),
            ("FLEET_AGENT_PROBE_BIND_ADDRESS", "0"),
            ("HOSTNAME", "agent-0"),
            ("POD_NAME", "agent-0"),
        ];
        let settings = Settings::new(&AgentArgs::default(), &environment.into());
        let mut settings = settings.expect("the settings are good");
        settings.election = None;
        let (network, local, upstream) = (
            self.network.clone(),
            self.local.clone(),
            self.upstream.clone(),
        );
        let clients = Clients::over(move |config| -> Transport {
            let is_upstream = config.cluster_url.host() == Some("upstream");
            let (server, to) = match is_upstream {
                true => (upstream.clone(), "upstream"),
                false => (local.clone(), "local"),
            };
            let connection = Connection {
                network: network.clone(),
                server,
                to,
                life: number,
            };
            BoxCloneSyncService::new(connection)
        });
        let clock = Arc::clone(&self.clock);
        let outside = Outside {
            local: kube::Config::new(http::Uri::from_static("https://local")),
            clients,
            fetcher: Fetcher::over(Arc::new(Repository), chart::source::Settings::default()),
            host: release::Host::repeatable(move || clock()),
            metrics: Metrics::default(),
        };
        let network = self.network.clone();
        let task = tokio::task::spawn_local(async move {
            let ended = lead(settings, outside, CancellationToken::new()).await;
            network.note(&format!("agent{number} ended: {ended:?}"));
        });
        self.life = Some(Life { number, task });
    }

    /// The agent is killed.
    pub fn kill(&mut self) {
        if let Some(life) = self.life.take() {
            self.network.end(life.number);
            self.network.note(&format!("kill -9 agent{}", life.number));
            life.task.abort();
        }
    }

    /// Starts the agent again if it died by itself.
    pub fn revive(&mut self) {
        let ended = std::mem::take(&mut self.network.lock().ended);
        if let Some(life) = &self.life
            && ended.contains(&life.number)
        {
            self.kill();
            self.start();
        }
    }

    /// Ends everything.
    pub fn end(&mut self) {
        self.kill();
        self.controllers.abort();
    }

    /// Puts back everything that is in the way of rest.
    pub fn settle(&mut self) {
        self.network.lock().faults = Faults::default();
        self.network.lock().down.clear();
        self.local.lock().refusals.clear();
        self.local.lock().denied.clear();
        if !self.setting.fights_last {
            self.fights.clear();
        }
        self.renew_token();
        if self.life.is_none() {
            self.start();
        }
        self.return_contents();
    }

    fn renew_token(&self) {
        self.upstream.lock().tokens = ["open".to_owned()].into();
    }

    /// Whether anybody fights.
    pub fn fights(&self) -> bool {
        !self.fights.is_empty()
    }

    /// Whether somebody sets this object back.
    pub fn is_fought(&self, id: &Id) -> bool {
        self.fights.contains_key(id)
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
        self.network.note(&format!("-- {action}"));
        match action {
            Action::Want(bundle, desired) => {
                self.checker().want(*bundle, desired);
                self.put(*bundle, desired);
                self.note_lost();
            }
            Action::Unwant(bundle) => {
                if self.present(*bundle) {
                    self.checker().unwant(*bundle);
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
            Action::Restore => {
                if let Some((backup, _)) = self.backup.clone() {
                    self.upstream.restore(&backup);
                    self.checker().sources_changed.clear();
                    // What was deleted since is there again, and somebody wants it until it is deleted again.
                    self.rediscover();
                    self.note_lost();
                }
            }
            Action::Empty => {
                let releases: BTreeSet<_> = {
                    let checker = self.checker();
                    let now = checker.desired_state.now.iter();
                    now.filter(|(bundle, _)| self.present(**bundle))
                        .map(|(_, desired)| (desired.namespace, desired.release))
                        .collect()
                };
                // Without a bundle of the agent's own, one or two that go are deletions like any other.
                if !self.setting.has_own && releases.len() < 3 {
                    return;
                }
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
            Action::Recreate => {
                let desired_state = self.checker().desired_state.now.clone();
                if self.setting.has_own {
                    self.own();
                }
                for (bundle, desired) in desired_state {
                    self.put(bundle, &desired);
                }
                self.note_lost();
            }
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
            Action::ChangeSource(number) => self.change_source(*number),
            Action::Down(server) => {
                self.network.lock().down.insert(server);
            }
            Action::Up => {
                self.network.lock().down.clear();
                self.renew_token();
            }
            Action::ExpireToken => {
                self.upstream.lock().tokens = ["another".to_owned()].into();
            }
            Action::Faults(faults) => self.network.lock().faults = *faults,
            Action::BreakWatches => {
                self.local.break_watches();
                self.upstream.break_watches();
            }
            Action::Compact => {
                self.local.compact();
                self.upstream.compact();
            }
            Action::Kill => {
                self.kill();
                self.start();
            }
            Action::KillAfter(requests) => {
                if let Some(life) = &self.life {
                    self.network.kill_after(life.number, *requests);
                }
            }
            Action::Pause(seconds) => {
                self.kill();
                tokio::time::sleep(Duration::from_secs(*seconds)).await;
                self.start();
            }
            Action::Jump(seconds) => {
                self.jumped.fetch_add(*seconds, Ordering::Relaxed);
            }
            Action::Wait(seconds) => tokio::time::sleep(Duration::from_secs(*seconds)).await,
            Action::Permit => self.permit(),
            Action::Refuse(namespace, manifest) => {
                let id = id(*namespace, manifest);
                self.local.lock().refusals.push(Refusal {
                    plural: id.plural,
                    namespace: id.namespace,
                    name: id.name,
                    message: "exceeded quota".to_owned(),
                });
            }
            Action::Quota(namespace, kind) => {
                self.local.lock().refusals.push(Refusal {
                    plural: kind.plural().1.to_owned(),
                    namespace: NAMESPACES[*namespace].to_owned(),
                    name: String::new(),
                    message: "exceeded quota".to_owned(),
                });
            }
            Action::Accept => self.local.lock().refusals.clear(),
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
