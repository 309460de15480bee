//! The cluster's own controllers: definitions are served, pods come up or do not, jobs run, namespaces go, autoscalers scale, and a guard lets
//! go, in its own time, of what has its finalizer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use crate::apiserver::{Actor, CLEANUP, Id, Server, is_leaving};
use crate::random::Random;

/// How the pods of an object fare: an annotation of the pod template, or of a job.
pub const BEHAVIOUR: &str = "simulation/behaviour";

/// The finalizer that somebody's controller takes off.
pub const GUARD: &str = "example.com/guard";

/// The controller of that finalizer: it lets go of what is being deleted, much later, and soon once it hurries; clones share it.
#[derive(Clone, Default)]
pub struct Guard(Arc<AtomicBool>);

impl Guard {
    /// From now on it lets go within a minute or two.
    pub fn hurry(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn let_go(&self, server: &Server, random: &mut Random) {
        let is_guarded = |_: &Id, object: &Value| is_leaving(object) && has(object, GUARD);
        for (id, object) in server.find(is_guarded) {
            let percent = if self.0.load(Ordering::Relaxed) {
                50
            } else {
                8
            };
            if random.chance(percent) {
                take_off(server, &id, &object, GUARD);
            }
        }
    }
}

fn has(object: &Value, finalizer: &str) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|all| all.iter().any(|one| one == finalizer))
}

/// Takes one finalizer off, and leaves those of others.
fn take_off(server: &Server, id: &Id, object: &Value, finalizer: &str) {
    let finalizers = object["metadata"]["finalizers"].as_array();
    let others = finalizers.into_iter().flatten();
    let others: Vec<&Value> = others.filter(|one| *one != finalizer).collect();
    let body = json!({"metadata": {"finalizers": others}});
    server.act(Actor::System, "PATCH", &path(id), body);
}

/// The path of an object.
fn path(id: &Id) -> String {
    let root = match id.group.as_str() {
        "" => "/api/v1".to_owned(),
        group => format!("/apis/{group}/{}", version(group)),
    };
    let place = match id.namespace.as_str() {
        "" => String::new(),
        namespace => format!("/namespaces/{namespace}"),
    };
    format!("{root}{place}/{}/{}", id.plural, id.name)
}

/// Deployments whose pods crash, whatever their template says; clones share it.
#[derive(Clone, Default)]
pub struct Crashes(Arc<Mutex<BTreeMap<Id, Crash>>>);

#[derive(Clone, Copy)]
struct Crash {
    is_down: bool,
    /// Whether they come up, and crash again, by themselves.
    is_loop: bool,
}

impl Crashes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Id, Crash>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_down(&self, id: &Id) -> bool {
        self.lock().get(id).is_some_and(|crash| crash.is_down)
    }

    /// The pods of a Deployment crash, once or again and again.
    pub fn begin(&self, server: &Server, id: &Id, is_loop: bool) {
        let crash = Crash {
            is_down: true,
            is_loop,
        };
        self.lock().insert(id.clone(), crash);
        self.tell(server, id);
    }

    /// All pods come up and stay so.
    pub fn end(&self, server: &Server) {
        let crashed = std::mem::take(&mut *self.lock());
        for id in crashed.keys() {
            self.tell(server, id);
        }
    }

    /// Of those that crash again and again about half come up, or crash, with each look.
    fn turn(&self, server: &Server, random: &mut Random) {
        let mut turned = Vec::new();
        for (id, crash) in self.lock().iter_mut().filter(|(_, crash)| crash.is_loop) {
            if random.chance(50) {
                crash.is_down = !crash.is_down;
                turned.push(id.clone());
            }
        }
        for id in turned {
            self.tell(server, &id);
        }
    }

    fn tell(&self, server: &Server, id: &Id) {
        if let Some(object) = server.get(id) {
            deployment(server, self, id, &object);
        }
    }
}

/// The load of what autoscalers scale: it changes again and again until it settles; clones share it.
#[derive(Clone, Default)]
pub struct Load(Arc<AtomicBool>);

impl Load {
    /// From now on it stays as it is.
    pub fn settle(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn changes(&self, random: &mut Random) -> bool {
        random.chance(LOAD_CHANGES) && !self.0.load(Ordering::Relaxed)
    }
}

/// How often an autoscaler looks at what it scales, as the real one does by default.
const SCALED_EVERY: Duration = Duration::from_secs(15);
/// How many percent of its looks find another load than the one before.
const LOAD_CHANGES: u64 = 20;

/// Runs for ever.
pub async fn run(server: Server, crashes: Crashes, guard: Guard, load: Load, seed: u64) {
    let mut random = Random::of(seed, "controllers");
    let mut loads = Random::of(seed, "load");
    let mut guarding = Random::of(seed, "guard");
    let mut crashing = Random::of(seed, "crashes");
    let mut seen = 0;
    let mut scaled = Instant::now() + SCALED_EVERY;
    loop {
        if Instant::now() >= scaled {
            scaled = Instant::now() + SCALED_EVERY;
            autoscale(&server, &load, &mut loads);
            crashes.turn(&server, &mut crashing);
            guard.let_go(&server, &mut guarding);
        }
        let is_busy = step(&server, &crashes, &mut seen);
        let pause = Duration::from_millis(10 + random.below(300));
        if is_busy {
            sleep(pause).await;
            continue;
        }
        tokio::select! {
            biased;
            () = server.changed() => {}
            () = sleep_until(scaled) => {}
        }
        sleep(pause).await;
    }
}

/// Sets the replicas of what autoscalers scale: within their bounds always, to another number of these where the load has changed.
fn autoscale(server: &Server, load: &Load, random: &mut Random) {
    for (scaler, object) in server.all(|id| id.plural == "horizontalpodautoscalers") {
        let spec = &object["spec"];
        let target = &spec["scaleTargetRef"];
        let name = target["name"].as_str().unwrap_or_default();
        let path = format!(
            "/apis/apps/v1/namespaces/{}/deployments/{name}/scale",
            scaler.namespace
        );
        let answer = server.act(Actor::System, "GET", &path, Value::Null);
        if !answer.is_ok() {
            continue;
        }
        let bound = |field: &str| spec[field].as_u64().unwrap_or(1);
        let (low, high) = (bound("minReplicas"), bound("maxReplicas"));
        let mut scale = answer.value();
        let present = scale["spec"]["replicas"].as_u64().unwrap_or(1);
        let wanted = match load.changes(random) {
            true => random.between(low, high),
            false => present.clamp(low, high),
        };
        if wanted != present {
            scale["spec"]["replicas"] = wanted.into();
            server.act(Actor::System, "PUT", &path, scale);
        }
    }
}

/// One look at what was written since the last one, and at namespaces that go; whether something was done.
fn step(server: &Server, crashes: &Crashes, seen: &mut u64) -> bool {
    let mut is_busy = false;
    let leaves = |id: &Id, object: &Value| {
        ["namespaces", "customresourcedefinitions"].contains(&id.plural.as_str())
            && is_leaving(object)
    };
    let (mut written, version) = server.written_after(*seen, leaves);
    if version < *seen {
        // Restored from a backup: everything is looked at anew.
        written = server.written_after(0, leaves).0;
    }
    *seen = version;
    for (id, object) in &written {
        is_busy |= match id.plural.as_str() {
            "namespaces" => namespace(server, id, object),
            "deployments" => deployment(server, crashes, id, object),
            "jobs" => job(server, id, object),
            "customresourcedefinitions" => definition(server, id, object),
            _ => false,
        };
    }
    for (id, object) in &written {
        // Nothing here has dependents, so whoever waits for them goes.
        if has(object, "foregroundDeletion") {
            take_off(server, id, object, "foregroundDeletion");
            is_busy = true;
        }
    }
    is_busy
}

fn status(server: &Server, path: &str, object: &Value, status: &Value) -> bool {
    if object.get("status") == Some(status) {
        return false;
    }
    let body = json!({"status": status});
    server.act(Actor::System, "PATCH", &format!("{path}/status"), body);
    true
}

fn namespace(server: &Server, id: &Id, object: &Value) -> bool {
    if !is_leaving(object) {
        return false;
    }
    let inside = server.all(|inside| inside.namespace == id.name);
    if inside.is_empty() {
        let body = json!({"spec": {"finalizers": []}});
        let path = format!("/api/v1/namespaces/{}", id.name);
        server.act(Actor::System, "PATCH", &path, body);
        return true;
    }
    delete(server, &inside)
}

/// Deletes what is not being deleted; whether there was any.
fn delete(server: &Server, objects: &[(Id, Arc<Value>)]) -> bool {
    let mut is_busy = false;
    for (id, _) in objects.iter().filter(|(_, object)| !is_leaving(object)) {
        server.act(Actor::System, "DELETE", &path(id), Value::Null);
        is_busy = true;
    }
    is_busy
}

fn version(group: &str) -> &str {
    match group {
        "autoscaling" => "v2",
        _ => "v1",
    }
}

fn behaviour(object: &Value) -> &str {
    let template = format!(
        "/spec/template/metadata/annotations/{}",
        BEHAVIOUR.replace('/', "~1")
    );
    let own = format!("/metadata/annotations/{}", BEHAVIOUR.replace('/', "~1"));
    let found = object.pointer(&template).or_else(|| object.pointer(&own));
    found.and_then(Value::as_str).unwrap_or("ready")
}

fn deployment(server: &Server, crashes: &Crashes, id: &Id, object: &Value) -> bool {
    let replicas = object.pointer("/spec/replicas").and_then(Value::as_i64);
    let replicas = replicas.unwrap_or(1);
    let generation = object["metadata"]["generation"].clone();
    let comes_up = behaviour(object) == "ready";
    let ready = comes_up && !crashes.is_down(id);
    let (up, available) = match ready {
        true => (replicas, "True"),
        false => (0, "False"),
    };
    let wanted = json!({
        "observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas,
        "readyReplicas": up, "availableReplicas": up, "unavailableReplicas": replicas - up,
        "conditions": [
            {"type": "Available", "status": available, "reason": "MinimumReplicas"},
            {"type": "Progressing", "status": "True", "reason":
                if comes_up { "NewReplicaSetAvailable" } else { "ReplicaSetUpdated" }},
        ],
    });
    let path = format!(
        "/apis/apps/v1/namespaces/{}/deployments/{}",
        id.namespace, id.name
    );
    status(server, &path, object, &wanted)
}

fn job(server: &Server, id: &Id, object: &Value) -> bool {
    if object.pointer("/status/conditions").is_some() {
        return false;
    }
    let wanted = match behaviour(object) {
        "fails" => json!({"failed": 1, "conditions": [
            {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]}),
        "never" => json!({"active": 1}),
        _ => json!({"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}),
    };
    let path = format!(
        "/apis/batch/v1/namespaces/{}/jobs/{}",
        id.namespace, id.name
    );
    status(server, &path, object, &wanted)
}

/// Its names are accepted, then its kind is served. One that goes takes its objects along first.
fn definition(server: &Server, id: &Id, object: &Value) -> bool {
    if is_leaving(object) {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
        let place = Id::new(
            group.unwrap_or_default(),
            plural.unwrap_or_default(),
            "",
            "",
        );
        let inside = server.all(|inside| inside.is_in(&place));
        if inside.is_empty() {
            take_off(server, id, object, CLEANUP);
            return true;
        }
        return delete(server, &inside);
    }
    let accepted = json!({"type": "NamesAccepted", "status": "True"});
    let mut conditions = vec![accepted.clone()];
    if object.pointer("/status/conditions/0") == Some(&accepted) {
        conditions.push(json!({"type": "Established", "status": "True"}));
    }
    let wanted = json!({
        "acceptedNames": object["spec"]["names"], "storedVersions": ["v1"], "conditions": conditions,
    });
    status(server, &path(id), object, &wanted)
}
