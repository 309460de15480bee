//! Two clusters, an agent that lives and dies, and what is done to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent::client::requests::{Clients, Transport};
use agent::config::{AgentArgs, Settings};
use agent::process::run::{World as Outside, lead};
use agent::report::metrics::Metrics;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chart::source::{Fetcher, TransportError};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use release::model::{Info, Release, Status};
use release::storage;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::util::BoxCloneSyncService;

use crate::apiserver::{Actor, Answer, Backup, Id, Refusal, Server};
use crate::book::Book;
use crate::controllers;
use crate::plan::{Action, Plan, Setting, object_name};
use crate::wire::{Faults, Line, Wire};
use crate::wish::{CANARY, CLUSTER, NAMESPACES, Piece, SYSTEM, Sort, Wish, bundle_name};

/// The moment all histories begin at: 1 January 2026.
const BEGINNING: i64 = 1_767_225_600;

/// Where upstream keeps the Cluster.
const WORKSPACE: &str = "fleet-default";

/// A repository that has nothing but one chart.
struct Repository;

impl chart::source::Transport for Repository {
    fn get(
        &self,
        url: &url::Url,
        _headers: &http::HeaderMap,
    ) -> BoxFuture<'static, Result<http::Response<bytes::Bytes>, TransportError>> {
        let answer = match url.path() {
            "/index.yaml" => (200, INDEX.as_bytes().to_vec()),
            "/other-1.0.0.tgz" => (200, other_chart()),
            _ => (404, Vec::new()),
        };
        async move {
            let response = http::Response::builder().status(answer.0);
            let response = response.body(answer.1.into());
            response.map_err(|error| TransportError::Interrupted {
                problem: error.to_string(),
            })
        }
        .boxed()
    }
}

const INDEX: &str = "apiVersion: v1\nentries:\n  other:\n  - name: other\n    version: 1.0.0\n    urls: [other-1.0.0.tgz]\n";

/// The chart in the repository: one that no bundle means.
fn other_chart() -> Vec<u8> {
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(
        Vec::new(),
        flate2::Compression::fast(),
    ));
    for (name, text) in [
        (
            "other/Chart.yaml",
            "apiVersion: v2\nname: other\nversion: 1.0.0\n",
        ),
        (
            "other/templates/map.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: from-repository}\n",
        ),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append_data(&mut header, name, text.as_bytes())
            .expect("a Vec takes everything");
    }
    tar.into_inner()
        .and_then(flate2::write::GzEncoder::finish)
        .expect("a Vec takes everything")
}

/// A life of the agent.
struct Life {
    number: u32,
    task: JoinHandle<()>,
}

/// Everything there is in a history.
pub struct World {
    pub local: Server,
    pub upstream: Server,
    pub wire: Wire,
    pub book: Arc<Mutex<Book>>,
    setting: Setting,
    life: Option<Life>,
    lives: u32,
    jumped: Arc<AtomicI64>,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    backup: Option<(Backup, BTreeMap<usize, Wish>)>,
    /// Bundles that are to be upstream, and with which generation of copies.
    generations: BTreeMap<usize, i64>,
    fights: BTreeMap<Id, Value>,
    controllers: JoinHandle<()>,
}

impl World {
    /// Two clusters as they are before anybody does anything.
    pub fn new(plan: &Plan, wire: Wire) -> Self {
        let world = Self::bare(plan, wire);
        world.furnish();
        world
    }

    /// The same, with everything kept that the local server is asked.
    pub fn listening(plan: &Plan, wire: Wire) -> Self {
        let world = Self::bare(plan, wire);
        world.local.listen();
        world.furnish();
        world
    }

    fn bare(plan: &Plan, wire: Wire) -> Self {
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
        let mut book = Book::default();
        book.has_fallback = plan.setting.has_fallback;
        let book = Arc::new(Mutex::new(book));
        local.audited_by(book.clone());
        upstream.audited_by(book.clone());
        let controllers = tokio::task::spawn_local(controllers::run(local.clone(), plan.seed));
        Self {
            local,
            upstream,
            wire,
            book,
            setting: plan.setting,
            life: None,
            lives: 0,
            jumped,
            clock,
            backup: None,
            generations: BTreeMap::new(),
            fights: BTreeMap::new(),
            controllers,
        }
    }

    /// The book.
    pub fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn furnish(&self) {
        let create = |server: &Server, path: &str, body: Value| {
            let answer = server.act(Actor::System, "POST", path, body);
            assert!(answer.is_ok(), "{path}: {:?}", answer.value());
        };
        for server in [&self.local, &self.upstream] {
            for name in [
                "kube-system",
                "default",
                SYSTEM,
                NAMESPACES[0],
                CLUSTER,
                WORKSPACE,
            ] {
                let body = json!({"metadata": {"name": name}});
                create(server, "/api/v1/namespaces", body);
            }
        }
        let accounts = format!("/api/v1/namespaces/{SYSTEM}/serviceaccounts");
        for name in ["deployer", "other", "fleet-default"] {
            if name != "fleet-default" || self.setting.has_fallback {
                create(&self.local, &accounts, json!({"metadata": {"name": name}}));
            }
        }
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "default",
            "clusters": [{"name": "cluster", "cluster": {"server": "https://upstream"}}],
            "contexts": [{"name": "default",
                          "context": {"cluster": "cluster", "namespace": CLUSTER, "user": "user"}}],
            "users": [{"name": "user", "user": {"token": "open"}}],
        });
        let data = [
            ("kubeconfig", kubeconfig.to_string()),
            ("deploymentNamespace", CLUSTER.to_owned()),
            ("clusterNamespace", WORKSPACE.to_owned()),
            ("clusterName", "c1".to_owned()),
        ];
        let data: BTreeMap<_, _> = data
            .into_iter()
            .map(|(key, value)| (key, STANDARD.encode(value)))
            .collect();
        create(
            &self.local,
            &format!("/api/v1/namespaces/{SYSTEM}/secrets"),
            json!({"metadata": {"name": "fleet-agent"}, "data": data}),
        );
        create(
            &self.upstream,
            &format!("/apis/fleet.cattle.io/v1alpha1/namespaces/{WORKSPACE}/clusters"),
            json!({"metadata": {"name": "c1"}, "spec": {"clientID": "c1"}}),
        );
        let path =
            format!("/apis/fleet.cattle.io/v1alpha1/namespaces/{WORKSPACE}/clusters/c1/status");
        let status = json!({"status": {"display": {}}});
        self.upstream.act(Actor::System, "PATCH", &path, status);
        for number in 0..2 {
            let secret = json!({
                "metadata": {"name": format!("pull{number}")},
                "stringData": {"token": format!("{CANARY}pull{number}-0")},
            });
            let path = format!("/api/v1/namespaces/{CLUSTER}/secrets");
            create(&self.upstream, &path, secret);
        }
        self.upstream.lock().tokens.insert("open".to_owned());
        if self.setting.has_own {
            self.own();
        }
    }

    fn own(&self) {
        let body = json!({
            "metadata": {"name": "fleet-agent-c1", "namespace": CLUSTER},
            "spec": {"deploymentID": "", "paused": true, "options": {}, "stagedOptions": {}},
        });
        self.upstream.act(Actor::System, "POST", BUNDLES_PATH, body);
    }

    /// A life of the agent begins.
    pub fn start(&mut self) {
        self.lives += 1;
        let number = self.lives;
        self.wire.begin(number);
        self.wire.note(&format!("agent{number} starts"));
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
        let (wire, local, upstream) =
            (self.wire.clone(), self.local.clone(), self.upstream.clone());
        let clients = Clients::over(move |config| -> Transport {
            let is_upstream = config.cluster_url.host() == Some("upstream");
            let (server, to) = match is_upstream {
                true => (upstream.clone(), "upstream"),
                false => (local.clone(), "local"),
            };
            let line = Line {
                wire: wire.clone(),
                server,
                to,
                life: number,
            };
            BoxCloneSyncService::new(line)
        });
        let clock = Arc::clone(&self.clock);
        let outside = Outside {
            local: kube::Config::new(http::Uri::from_static("https://local")),
            clients,
            fetcher: Fetcher::over(Arc::new(Repository), chart::source::Settings::default()),
            host: release::Host::repeatable(move || clock()),
            metrics: Metrics::default(),
        };
        let wire = self.wire.clone();
        let task = tokio::task::spawn_local(async move {
            let ended = lead(settings, outside, CancellationToken::new()).await;
            wire.note(&format!("agent{number} ended: {ended:?}"));
        });
        self.life = Some(Life { number, task });
    }

    /// The agent is killed.
    pub fn kill(&mut self) {
        if let Some(life) = self.life.take() {
            self.wire.end(life.number);
            self.wire.note(&format!("kill -9 agent{}", life.number));
            life.task.abort();
        }
    }

    /// Starts the agent again if it died by itself.
    pub fn revive(&mut self) {
        let ended = std::mem::take(&mut self.wire.lock().ended);
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

    fn present(&self, bundle: usize) -> bool {
        self.upstream.get(&bundle_id(bundle)).is_some()
    }

    /// Puts a bundle upstream as it is wanted.
    fn put(&mut self, bundle: usize, wish: &Wish) {
        let (_, content) = wish.content();
        if !wish.is_missing {
            let contents = "/apis/fleet.cattle.io/v1alpha1/contents";
            self.upstream
                .act(Actor::Upstream, "POST", contents, content);
        }
        let generation = self.generations.get(&bundle).copied().unwrap_or(0);
        let spec = wish.spec(generation);
        let name = bundle_name(bundle);
        let path = format!("{BUNDLES_PATH}/{name}");
        if self.present(bundle) {
            // A spec is replaced whole.
            let id = bundle_id(bundle);
            let live = self.upstream.get(&id).unwrap_or_default();
            let mut live = live.as_ref().clone();
            live["spec"] = spec;
            self.upstream.act(Actor::Upstream, "PUT", &path, live);
        } else {
            let body = json!({
                "metadata": {"name": name, "labels": {
                    "fleet.cattle.io/bundle-name": name,
                    "fleet.cattle.io/bundle-namespace": WORKSPACE}},
                "spec": spec,
            });
            self.upstream
                .act(Actor::Upstream, "POST", BUNDLES_PATH, body);
        }
    }

    fn note_lost(&self) {
        let wanted: Vec<usize> = self.book().wishes.now.keys().copied().collect();
        let lost: BTreeSet<usize> = wanted
            .into_iter()
            .filter(|bundle| !self.present(*bundle))
            .collect();
        let mut book = self.book();
        book.allowed.retain(|bundle| lost.contains(bundle));
        book.lost = lost;
    }

    /// Puts back everything that is in the way of rest.
    pub fn settle(&mut self) {
        self.wire.lock().faults = Faults::default();
        self.wire.lock().down.clear();
        self.local.lock().refusals.clear();
        self.local.lock().denied.clear();
        self.fights.clear();
        if self.life.is_none() {
            self.start();
        }
        self.return_contents();
    }

    fn return_contents(&mut self) {
        let wishes: Vec<Wish> = self.book().wishes.now.values().cloned().collect();
        for wish in wishes {
            let (_, content) = wish.content();
            let contents = "/apis/fleet.cattle.io/v1alpha1/contents";
            self.upstream
                .act(Actor::Upstream, "POST", contents, content);
        }
    }

    /// Whether anybody fights.
    pub fn fights(&self) -> bool {
        !self.fights.is_empty()
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
        self.wire.note(&format!("-- {action}"));
        match action {
            Action::Want(bundle, wish) => {
                self.book().wishes.want(*bundle, wish);
                self.put(*bundle, wish);
                self.note_lost();
            }
            Action::Unwant(bundle) => {
                self.book().wishes.now.remove(bundle);
                let path = format!("{BUNDLES_PATH}/{}", bundle_name(*bundle));
                self.upstream
                    .act(Actor::Upstream, "DELETE", &path, Value::Null);
                self.note_lost();
            }
            Action::Backup => {
                let wishes = self.book().wishes.now.clone();
                self.backup = Some((self.upstream.backup(), wishes));
            }
            Action::Restore => {
                if let Some((backup, _)) = self.backup.clone() {
                    self.upstream.restore(&backup);
                    // What was deleted since is there again, and somebody wants it until it is deleted again.
                    self.rediscover();
                    self.note_lost();
                }
            }
            Action::Empty => {
                let present = (0..crate::wish::BUNDLES).filter(|bundle| self.present(*bundle));
                // Without a bundle of the agent's own, one or two that go are deletions like any other.
                if !self.setting.has_own && present.count() < 3 {
                    return;
                }
                let own = format!("{BUNDLES_PATH}/fleet-agent-c1");
                self.upstream
                    .act(Actor::Upstream, "DELETE", &own, Value::Null);
                for bundle in 0..crate::wish::BUNDLES {
                    let path = format!("{BUNDLES_PATH}/{}", bundle_name(bundle));
                    self.upstream
                        .act(Actor::Upstream, "DELETE", &path, Value::Null);
                }
                self.note_lost();
            }
            Action::Recreate => {
                let wishes = self.book().wishes.now.clone();
                if self.setting.has_own {
                    self.own();
                }
                for (bundle, wish) in wishes {
                    self.put(bundle, &wish);
                }
                self.note_lost();
            }
            Action::LoseContent(bundle) => {
                let wish = self.book().wishes.now.get(bundle).cloned();
                if let Some(wish) = wish {
                    let path = format!(
                        "/apis/fleet.cattle.io/v1alpha1/contents/{}",
                        wish.content().0
                    );
                    self.upstream
                        .act(Actor::Upstream, "DELETE", &path, Value::Null);
                }
            }
            Action::ReturnContents => self.return_contents(),
            Action::ChangeSource(number) => self.change_source(*number),
            Action::Down(server) => {
                self.wire.lock().down.insert(server);
            }
            Action::Up => self.wire.lock().down.clear(),
            Action::Faults(faults) => self.wire.lock().faults = *faults,
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
                    self.wire.doom(life.number, *requests);
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
            Action::Refuse(namespace, piece) => {
                let id = id(*namespace, piece);
                self.local.lock().refusals.push(Refusal {
                    plural: id.plural,
                    namespace: id.namespace,
                    name: id.name,
                    message: "exceeded quota".to_owned(),
                });
            }
            Action::Accept => self.local.lock().refusals.clear(),
            Action::Deny(account, namespace) => {
                let right = format!("{account}/{}", NAMESPACES[*namespace]);
                self.local.lock().denied.insert(right);
            }
            Action::Grant => self.local.lock().denied.clear(),
            Action::Fight(namespace, piece) => {
                let id = id(*namespace, piece);
                if let Some(live) = self.local.get(&id) {
                    self.fights.insert(id, live.as_ref().clone());
                }
            }
            Action::Peace => self.fights.clear(),
            other => self.kubectl(other),
        }
    }

    /// After a restore: what upstream has is wanted, as it is there.
    fn rediscover(&self) {
        let Some((_, wishes)) = &self.backup else {
            return;
        };
        let mut book = self.book();
        for (bundle, wish) in wishes {
            // Newer wishes are lost with the state that held them; what is there is what is wanted.
            book.wishes.want(*bundle, wish);
        }
    }

    fn change_source(&mut self, number: u8) {
        let path = format!("/api/v1/namespaces/{CLUSTER}/secrets/pull{number}");
        let changes = self.generations.entry(usize::MAX).or_default();
        *changes += 1;
        let token = STANDARD.encode(format!("{CANARY}pull{number}-{changes}"));
        let body = json!({"data": {"token": token}});
        self.upstream.act(Actor::Upstream, "PATCH", &path, body);
        // The controller tells those who have a copy.
        let wishes = self.book().wishes.now.clone();
        for (bundle, wish) in wishes {
            if wish.copies.contains(&number) && self.present(bundle) {
                *self.generations.entry(bundle).or_default() += 1;
                self.put(bundle, &wish);
            }
        }
    }

    fn permit(&mut self) {
        let id = Id::new("", "configmaps", SYSTEM, "fleet-agent-ledger");
        if self.local.get(&id).is_none() {
            return;
        }
        let body = json!({"metadata": {"annotations": {
            "fleet.cattle.io/release-held-removals": "true"}}});
        self.local.act(Actor::Person, "PATCH", &path(&id), body);
        let mut book = self.book();
        let lost = book.lost.clone();
        book.allowed.extend(lost);
    }

    /// What people and programs do to the local cluster.
    fn kubectl(&mut self, action: &Action) {
        let local = &self.local;
        match action {
            Action::Create(namespace, piece) => {
                let id = id(*namespace, piece);
                let mut body = piece.object();
                body["metadata"]["name"] = id.name.clone().into();
                let collection = path(&Id {
                    name: String::new(),
                    ..id
                });
                local.act(Actor::Person, "POST", &collection, body);
            }
            Action::Edit(namespace, piece) => {
                let id = id(*namespace, piece);
                let body = match piece.kind {
                    Sort::ConfigMap => json!({"data": {"value": "edited"}}),
                    Sort::Secret => json!({"data": {"password": "ZWRpdGVk"}}),
                    Sort::Service => json!({"spec": {"selector": {"app": "edited"}}}),
                    Sort::Deployment => json!({"spec": {"replicas": 2}}),
                    _ => json!({"metadata": {"labels": {"edited": "yes"}}}),
                };
                local.act(Actor::Person, "PATCH", &path(&id), body);
            }
            Action::Scale(namespace, name) => {
                let id = Id::new(
                    "apps",
                    "deployments",
                    NAMESPACES[*namespace],
                    &format!("d{name}"),
                );
                let body = json!({"spec": {"replicas": 3}});
                local.act(Actor::Person, "PATCH", &path(&id), body);
            }
            Action::Delete(namespace, piece) => {
                let id = id(*namespace, piece);
                local.act(Actor::Person, "DELETE", &path(&id), Value::Null);
            }
            Action::StripMarks(namespace, piece) => {
                let body = json!({"metadata": {"labels": null, "annotations": null}});
                let id = id(*namespace, piece);
                local.act(Actor::Person, "PATCH", &path(&id), body);
            }
            Action::DeleteRecords(namespace, name) => {
                for (id, _) in self.records(*namespace, *name) {
                    local.act(Actor::Person, "DELETE", &path(&id), Value::Null);
                }
            }
            Action::DeleteNamespace(namespace) => {
                let path = format!("/api/v1/namespaces/{}", NAMESPACES[*namespace]);
                local.act(Actor::Person, "DELETE", &path, Value::Null);
            }
            Action::HelmInstall(namespace, name, piece) => {
                self.helm_install(*namespace, *name, piece);
            }
            Action::HelmRollback(namespace, name) => self.helm_rollback(*namespace, *name),
            Action::HelmUninstall(namespace, name) => {
                for (id, _) in self.of_release(*namespace, *name) {
                    local.act(Actor::Helm, "DELETE", &path(&id), Value::Null);
                }
                for (id, _) in self.records(*namespace, *name) {
                    local.act(Actor::Helm, "DELETE", &path(&id), Value::Null);
                }
            }
            Action::Forge(namespace, name, piece) => self.forge(*namespace, *name, piece),
            _ => {}
        }
    }

    fn records(&self, namespace: usize, name: u8) -> Vec<(Id, Arc<Value>)> {
        let prefix = format!("sh.helm.release.v1.r{name}.v");
        let place = NAMESPACES[namespace];
        self.local.all(|id| {
            id.plural == "secrets" && id.namespace == place && id.name.starts_with(&prefix)
        })
    }

    fn of_release(&self, namespace: usize, name: u8) -> Vec<(Id, Arc<Value>)> {
        let place = NAMESPACES[namespace];
        let mut all = self.local.all(|id| id.namespace == place);
        all.retain(|(_, object)| {
            object
                .pointer("/metadata/annotations/meta.helm.sh~1release-name")
                .and_then(Value::as_str)
                == Some(&format!("r{name}"))
        });
        all
    }

    fn newest(&self, namespace: usize, name: u8) -> Option<(i64, Release)> {
        let records = self.records(namespace, name).into_iter();
        let newest = records.max_by_key(|(id, _)| revision_of(&id.name))?;
        let data = newest.1.pointer("/data/release")?.as_str()?.to_owned();
        let data = STANDARD.decode(data).ok()?;
        let release = storage::decode(&data).ok()?;
        Some((revision_of(&newest.0.name), release))
    }

    fn write_record(&self, actor: Actor, release: &Release, before: Option<i64>) {
        let Ok(payload) = storage::encode(release) else {
            return;
        };
        let namespace = &release.namespace;
        let name = storage::key(&release.name, release.revision);
        let body = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
            "metadata": {"name": name, "labels": {
                "name": release.name, "owner": "helm", "status": release.status().as_str(),
                "version": release.revision.to_string()}},
            "data": {"release": STANDARD.encode(payload)},
        });
        let path = format!("/api/v1/namespaces/{namespace}/secrets");
        self.local.act(actor, "POST", &path, body);
        if let Some(before) = before {
            let old = format!("{path}/{}", storage::key(&release.name, before));
            let body = json!({"metadata": {"labels": {"status": "superseded"}}});
            self.local.act(actor, "PATCH", &old, body);
        }
    }

    fn helm_release(&self, namespace: usize, name: u8, revision: i64, piece: &Piece) -> Release {
        let now = chart::Time::utc((self.clock)());
        let object = piece.object();
        let manifest = golib::yaml::encode(&object).unwrap_or_default();
        Release {
            name: format!("r{name}"),
            namespace: NAMESPACES[namespace].to_owned(),
            revision,
            info: Some(Info {
                first_deployed: now,
                last_deployed: now,
                status: Status::Deployed,
                description: "Install complete".to_owned(),
                ..Info::default()
            }),
            manifest: format!("---\n# Source: own/templates/x.yaml\n{manifest}"),
            ..Release::default()
        }
    }

    fn helm_install(&self, namespace: usize, name: u8, piece: &Piece) {
        if piece.kind.is_hook() {
            return;
        }
        let before = self.newest(namespace, name).map(|(revision, _)| revision);
        let release = self.helm_release(namespace, name, before.unwrap_or(0) + 1, piece);
        let mut object = piece.object();
        object["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "Helm"});
        object["metadata"]["annotations"] = json!({
            "meta.helm.sh/release-name": release.name,
            "meta.helm.sh/release-namespace": release.namespace,
        });
        let id = id(namespace, piece);
        let answer = match self.local.get(&id) {
            // Helm refuses what is not the release's.
            Some(live) => {
                let owner = live.pointer("/metadata/annotations/meta.helm.sh~1release-name");
                match owner.and_then(Value::as_str) == Some(release.name.as_str()) {
                    true => self.local.act(Actor::Helm, "PATCH", &path(&id), object),
                    false => return,
                }
            }
            None => {
                let collection = path(&Id {
                    name: String::new(),
                    ..id
                });
                self.local.act(Actor::Helm, "POST", &collection, object)
            }
        };
        if answer.is_ok() {
            self.write_record(Actor::Helm, &release, before);
        }
    }

    fn helm_rollback(&self, namespace: usize, name: u8) {
        let Some((newest, current)) = self.newest(namespace, name) else {
            return;
        };
        let records = self.records(namespace, name);
        let older = records.iter().filter(|(id, object)| {
            let status = object.pointer("/metadata/labels/status");
            revision_of(&id.name) < newest && status == Some(&Value::from("superseded"))
        });
        let Some((_, object)) = older.max_by_key(|(id, _)| revision_of(&id.name)) else {
            return;
        };
        let data = object.pointer("/data/release").and_then(Value::as_str);
        let data = STANDARD
            .decode(data.unwrap_or_default())
            .unwrap_or_default();
        let Ok(mut target) = storage::decode(&data) else {
            return;
        };
        target.revision = newest + 1;
        target.namespace.clone_from(&current.namespace);
        target.set_status(Status::Deployed, "Rollback to an older revision");
        // Helm writes its objects as the old manifest has them, and no marks of Fleet's.
        for document in target.manifest.split("---\n") {
            let Ok(mut wanted) = golib::yaml::decode(document.as_bytes()) else {
                continue;
            };
            let Some(found) = self.find(NAMESPACES[namespace], &wanted) else {
                continue;
            };
            wanted["metadata"]["namespace"] = NAMESPACES[namespace].into();
            self.local.act(Actor::Helm, "PATCH", &path(&found), wanted);
        }
        self.write_record(Actor::Helm, &target, Some(newest));
    }

    fn find(&self, namespace: &str, wanted: &Value) -> Option<Id> {
        let name = wanted.pointer("/metadata/name")?.as_str()?.to_owned();
        let kind = wanted.get("kind")?.as_str()?.to_owned();
        let all = self
            .local
            .all(|id| id.namespace == namespace && id.name == name);
        let mut found = all
            .into_iter()
            .filter(|(_, object)| object["kind"].as_str() == Some(kind.as_str()));
        found.next().map(|(id, _)| id)
    }

    /// A record that copies everything the agent's own has, but for the manifest.
    fn forge(&self, namespace: usize, name: u8, piece: &Piece) {
        let Some((newest, mut release)) = self.newest(namespace, name) else {
            return;
        };
        let mut object = piece.object();
        object["metadata"]["name"] = format!("forged-{}", object_name(piece)).into();
        release.manifest = format!(
            "---\n# Source: shop/templates/x.yaml\n{}",
            golib::yaml::encode(&object).unwrap_or_default()
        );
        release.revision = newest + 1;
        release.namespace = NAMESPACES[namespace].to_owned();
        release.set_status(Status::Deployed, "Upgrade complete");
        self.write_record(Actor::Tenant, &release, Some(newest));
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

fn id(namespace: usize, piece: &Piece) -> Id {
    Id {
        name: object_name(piece),
        ..piece.id(NAMESPACES[namespace])
    }
}

fn revision_of(name: &str) -> i64 {
    let number = name.rsplit_once(".v").map(|(_, number)| number);
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
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

/// What a server did not model, if anything.
pub fn not_modelled(answer: &Server) -> Vec<String> {
    answer.lock().not_modelled.clone()
}

/// Whether somebody refused.
pub fn is_refused(answer: &Answer) -> bool {
    !answer.is_ok()
}
