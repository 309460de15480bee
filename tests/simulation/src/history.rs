//! One history: what is planned takes place, and everything is put to rest.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::RandomState;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::task::LocalSet;
use tokio::time::sleep;

use crate::apiserver::Id;
use crate::checker::{Checker, RECORD, Rest, Violation};
use crate::desired::{ACCOUNTS, BUNDLES, Desired, NAMESPACES, ObjectKind, bundle_name};
use crate::logs;
use crate::network::Network;
use crate::plan::Plan;
use crate::world::{World, bundle_id};

/// How long everything may take to come to rest once nothing fails any more.
const SETTLED: Duration = Duration::from_secs(10 * 60);
/// How long it is watched at rest.
const REST: Duration = Duration::from_secs(10 * 60);
/// How long at least, where nothing is wrong: most histories that go wrong do so at once, and the time of two rests is that of another history. What comes
/// about no more often than is allowed at rest comes about once in it.
const BRIEF_REST: Duration = Duration::from_secs(3 * 60);
/// How often it is asked whether such a rest may begin.
const BRIEF_POLL: Duration = Duration::from_secs(30);
/// How often it is looked whether an invariant was broken.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Requests that a history has before it comes to rest, however little its actors do.
const FEWEST: u64 = 200;
/// What a whole history may ask.
const MOST_OF_ALL: u64 = 8_000;
/// What may be asked at rest: heartbeats, the look at orphans, watches that begin anew.
const MOST_ASKED: u64 = 100;
/// The same for each bundle that fails, or cannot be removed, and is tried about once a minute: five objects are thirty-five requests.
const MOST_TRIED: u64 = 420;
/// Writes of one object at rest, however often it is tried.
const MOST_WRITES: u64 = 3;
/// The same where a person sets the object back each time, and for each of several bundles that take it over from each other, each of which is tried about
/// once a minute.
const MOST_FOUGHT: u64 = 20;
/// Writes of one record: it is pending, its hook begins and ends, it has failed; about once a minute.
const MOST_RECORDED: u64 = 60;
/// Revisions of one release at rest.
const MOST_REVISIONS: u64 = 2;
/// Tries of each of several bundles that want one release and cannot be deployed: one about each five minutes, above the others'.
const MOST_TRIES: u64 = 3;

/// How a history ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub seed: u64,
    pub violations: Vec<Violation>,
    /// Requests answered, and what actors did.
    pub steps: u64,
    /// How many steps of the plan took place.
    pub taken: usize,
    /// Hash of everything that took place.
    pub digest: String,
    /// Everything that took place, if it was to be kept.
    pub lines: Vec<String>,
}

impl Outcome {
    /// The invariant that was broken first.
    pub fn rule(&self) -> Option<&'static str> {
        self.violations.first().map(|violation| violation.rule)
    }

    /// Whether this invariant was broken.
    pub fn breaks(&self, rule: &str) -> bool {
        self.violations
            .iter()
            .any(|violation| violation.rule == rule)
    }
}

/// Lets a plan take place, in a thread whose name makes all its randomness.
pub fn run(plan: &Plan, keeps_log: bool) -> Outcome {
    begin(plan, keeps_log, 0)
}

/// Lets it take place again, with all hash maps in another order: which order they have depends on how many a thread has made, and what a
/// process makes once, or a thread finds made by another one, is made by one history and not by the next. Few differ all the same: which of several that
/// wait for one `watch` wakes first tokio draws by a count of the whole process.
pub fn again(plan: &Plan, keeps_log: bool) -> Outcome {
    begin(plan, keeps_log, 1)
}

fn begin(plan: &Plan, keeps_log: bool, hash_maps: usize) -> Outcome {
    let plan = plan.clone();
    let (seed, plan_steps) = (plan.seed, plan.steps.len());
    let running = thread(seed).spawn(move || {
        let others: Vec<RandomState> = (0..hash_maps).map(|_| RandomState::new()).collect();
        let outcome = alone(take_place(&plan, keeps_log));
        drop(others);
        outcome
    });
    let ended = running.expect("a thread can be started").join();
    ended.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Outcome {
            seed,
            violations: vec![Violation {
                rule: "panic",
                text: text.unwrap_or_default(),
            }],
            steps: 0,
            taken: plan_steps,
            digest: String::new(),
            lines: Vec::new(),
        }
    })
}

/// Lets a plan take place, and then a test act in its world, whose faults go on: what no plan has, step by step. In a thread whose name makes all its
/// randomness.
///
/// # Panics
/// Where `acts` does.
pub fn scene(plan: &Plan, acts: impl AsyncFnOnce(&mut World) + Send + 'static) {
    let plan = plan.clone();
    let running = thread(plan.seed).spawn(move || {
        alone(async {
            let mut world = World::new(&plan, Network::new(plan.seed, false));
            world.start();
            for step in &plan.steps {
                pass(&mut world, step.after).await;
                world.act(&step.action).await;
                world.revive();
            }
            acts(&mut world).await;
            world.end();
        });
    });
    if let Err(panic) = running.expect("a thread can be started").join() {
        std::panic::resume_unwind(panic);
    }
}

/// A thread whose name makes all its randomness.
fn thread(seed: u64) -> std::thread::Builder {
    let thread = std::thread::Builder::new().name(format!("{seed:x}"));
    thread.stack_size(8 << 20)
}

/// What goes on by itself, under virtual time.
fn alone<T>(taking_place: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O can be made");
    let local = LocalSet::new();
    let outcome = runtime.block_on(local.run_until(taking_place));
    drop(local);
    runtime.shutdown_background();
    outcome
}

async fn take_place(plan: &Plan, keeps_log: bool) -> Outcome {
    let network = Network::new(plan.seed, keeps_log);
    let mut world = World::new(plan, network.clone());
    let _listening = logs::listen(&network, &world.checker);
    world.start();
    let mut taken = 0;
    for (number, step) in plan.steps.iter().enumerate() {
        if number >= plan.planned && network.lock().requests >= FEWEST {
            break;
        }
        pass(&mut world, step.after).await;
        world.act(&step.action).await;
        world.revive();
        taken += 1;
        if is_over(&world.checker) {
            break;
        }
    }
    if !is_over(&world.checker) {
        rest(&mut world).await;
    }
    let missing = world.local.lock().not_modelled.clone();
    let missing = missing
        .into_iter()
        .chain(world.upstream.lock().not_modelled.clone());
    let mut violations = world.checker().violations.clone();
    violations.extend(missing.map(|text| Violation {
        rule: "not modelled",
        text,
    }));
    world.end();
    let mut traffic = network.lock();
    Outcome {
        seed: plan.seed,
        violations,
        steps: taken as u64 + traffic.requests,
        taken,
        digest: traffic.log.digest(),
        lines: traffic.log.lines.take().unwrap_or_default(),
    }
}

fn is_over(checker: &Arc<Mutex<Checker>>) -> bool {
    let checker = checker.lock().unwrap_or_else(PoisonError::into_inner);
    !checker.violations.is_empty()
}

/// Time passes; who dies is started again, and who fights fights.
async fn pass(world: &mut World, time: Duration) {
    let until = tokio::time::Instant::now() + time;
    while !is_over(&world.checker) {
        let deaths = Arc::clone(&world.network.deaths);
        let lists = Arc::clone(&world.network.lists);
        let local = world.local.clone();
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(until) => return,
            () = sleep(POLL_INTERVAL) => {
                let requests = world.network.lock().requests;
                if requests > MOST_OF_ALL {
                    let text = format!("{requests} requests in one history");
                    world.checker().violate("storm", text);
                }
            }
            () = lists.notified() => world.note_listed(),
            () = deaths.notified() => {
                sleep(Duration::from_millis(500)).await;
                world.revive();
            }
            () = local.changed(), if world.fights() => {
                sleep(Duration::from_millis(50)).await;
                world.fight();
            }
        }
    }
}

/// Faults end, and after a while nothing may be left to do.
async fn rest(world: &mut World) {
    world.network.note("-- faults end");
    world.settle();
    world.revive();
    let settled = tokio::time::Instant::now() + SETTLED;
    if world.rests_briefly() && is_soon_at_rest(world).await {
        return;
    }
    pass(world, settled - tokio::time::Instant::now()).await;
    if is_over(&world.checker) {
        return;
    }
    let failing = count_anew(world);
    pass(world, REST).await;
    let busy = busy(world, REST, failing);
    for (rule, text) in busy.into_iter().chain(wrong(world)) {
        world.checker().violate(rule, text);
    }
}

/// Requests, writes and revisions are counted from now on. Gives how many bundles fail by now.
fn count_anew(world: &World) -> usize {
    world.network.lock().tally = Some(BTreeMap::new());
    let mut checker = world.checker();
    checker.writes.clear();
    checker.revisions.clear();
    checker.successes.clear();
    drop(checker);
    failing(world)
}

/// How many bundles fail, or cannot be removed.
fn failing(world: &World) -> usize {
    let checker = world.checker();
    let wanted = checker.desired_state.now.keys();
    let failing = wanted.filter(|bundle| !is_ready(world, **bundle)).count();
    failing + checker.removals()
}

/// Whether nothing is wrong any more long before everything has to be at rest, and still is not after a brief rest in which no more took place than may
/// in a part of the full one. What is wrong, or takes place, by then says nothing yet: it has its full time.
async fn is_soon_at_rest(world: &mut World) -> bool {
    let last = tokio::time::Instant::now() + SETTLED / 2;
    while tokio::time::Instant::now() < last && !is_over(&world.checker) {
        pass(world, BRIEF_POLL).await;
        if !wrong(world).is_empty() {
            continue;
        }
        let failing = count_anew(world);
        pass(world, BRIEF_REST).await;
        if busy(world, BRIEF_REST, failing).is_empty() && wrong(world).is_empty() {
            return true;
        }
    }
    is_over(&world.checker)
}

/// What is not as it has to be at rest: the rule and what breaks it.
fn wrong(world: &World) -> Vec<(&'static str, String)> {
    let mut found = unsettled(world);
    found.extend(remembered(world).map(|text| ("remembers too much", text)));
    found.extend(left(world).map(|text| ("left behind", text)));
    found
}

/// What is there and nobody wants any more.
fn left(world: &World) -> Option<String> {
    let held = world.held();
    let rest = Rest {
        live: &|id| world.local.get(id),
        is_ready: &|bundle| is_ready(world, bundle),
        is_held: &|bundle| held.contains(&bundle),
        remembered: &world.remembered(),
    };
    world.checker().leftover(&rest)
}

/// What is remembered of others than bundles that upstream has, and those whose removal is not over.
fn remembered(world: &World) -> Option<String> {
    let present = world.upstream.all(|id| id.plural == "bundledeployments");
    let leaving = world.checker().leaving(|bundle| world.present(bundle));
    let held = world.held();
    let leaving = leaving.max(held.iter().collect::<BTreeSet<_>>().len());
    let bundles = present.len() + leaving;
    let ever = world.checker().desired_state.ever.clone();
    let former: BTreeSet<(usize, u8)> = ever
        .iter()
        .filter(|(bundle, _)| world.present(**bundle))
        .flat_map(|(_, desired)| desired.iter().map(|one| (one.namespace, one.release)))
        .collect();
    let records = world.local.all(|id| id.name.starts_with(RECORD)).len();
    for (map, count) in world.entries() {
        let most = match map {
            "accounts" | "looked_up_accounts" => ACCOUNTS.len() + 1,
            "accounts_read_for" => ACCOUNTS.len() * NAMESPACES.len(),
            // As the last search found them, half an hour ago at most: the newest one of each release.
            "read_records" => records.max(NAMESPACES.len() * BUNDLES),
            // A bundle may have several: those of its former names.
            "releases" => bundles.max(former.len() + held.len()) + records,
            // A day long, of whichever bundle: one that comes back has not failed less.
            "postponed_attempts" => BUNDLES,
            "watched_kinds" => bundles * ObjectKind::ALL.len(),
            // Of objects, while a bundle is reconciled.
            "held_events" => 4096,
            // Each is told once in a while, and there are few texts.
            "waiting_events" | "written_events" => 100,
            _ => bundles,
        };
        if count > most {
            let text = format!(
                "{count} entries of {map} with {} bundles, {leaving} removals and {records} records",
                present.len()
            );
            return Some(text);
        }
    }
    None
}

/// What was asked and written in so much time at rest beyond what stays to be: the rule and what breaks it. The limits are those of the full rest; of a part
/// of it that part, rounded up. `failed` bundles failed as it began.
fn busy(world: &World, watched: Duration, failed: usize) -> Vec<(&'static str, String)> {
    let limit = |most: u64| (most * watched.as_secs()).div_ceil(REST.as_secs());
    let mut found = Vec::new();
    let tally = world.network.lock().tally.take().unwrap_or_default();
    let asked: u64 = tally.values().sum();
    let failing = failing(world).max(failed);
    let checker = world.checker();
    // That the local cluster was restored the next write of the ledger tells, if need be that with a heartbeat: all pauses begin anew then.
    let beginnings = if world.was_restored { 2 } else { 1 };
    // Before a hook whose finalizer goes late is made anew each try waits for a while, and looks again and again.
    let slow = checker.desired_state.now.values();
    let slow = slow.filter(|desired| desired.has_guarded_hook()).count();
    let tries = failing + failing.min(slow) + world.contended();
    if asked > limit(MOST_ASKED + MOST_TRIED * beginnings * tries as u64) {
        let most = tally.iter().max_by_key(|(_, count)| **count);
        let text = format!("{asked} requests in {watched:?} at rest, most of them {most:?}");
        found.push(("no rest", text));
    }
    // Created and deleted again with each try, or deleted, where the last good version has it, and created again.
    let desired_state = checker.desired_state.clone();
    let is_undone = |id: &Id| {
        let mut undone = desired_state.now.iter();
        undone.any(|(bundle, desired)| {
            let mut ever = desired_state.ever.get(bundle).into_iter().flatten();
            desired.atomic
                && ever.any(|desired| desired.ids().any(|wanted| wanted == *id))
                && !is_ready(world, *bundle)
        })
    };
    // Each deploy that succeeds may drop an object that another bundle waits for, or bring one.
    let good: u64 = checker.successes.values().sum();
    for (id, count) in &checker.writes {
        let most = match id.name.starts_with("sh.helm.release") {
            true => MOST_RECORDED,
            // A hook is made anew for each try.
            false if id.plural == "jobs" => MOST_RECORDED,
            false => match checker.contestants(id, |bundle| is_ready(world, bundle)) {
                0 | 1 if world.is_fought(id) => MOST_FOUGHT,
                0 | 1 if is_undone(id) => 2 * MOST_WRITES,
                0 | 1 => MOST_WRITES,
                contestants => MOST_FOUGHT * contestants as u64,
            },
        };
        if *count > limit(most) + good {
            let text = format!("{id} is written {count} times in {watched:?} at rest");
            found.push(("writes at rest", text));
        }
    }
    for (release, count) in &checker.revisions {
        let most = match checker.claimants(release) {
            0 | 1 => MOST_REVISIONS,
            rivals => MOST_TRIES * rivals as u64,
        };
        let successes = checker.successes.get(release).copied().unwrap_or(0);
        if *count > limit(most) || successes > limit(MOST_REVISIONS) {
            let text = format!(
                "{release:?} gets {count} revisions in {watched:?} at rest, {successes} of them good"
            );
            found.push(("release flaps", text));
        }
    }
    found
}

/// Bundles that are not what upstream wants, and do not say why.
fn unsettled(world: &World) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let desired_state = world.checker().desired_state.now.clone();
    for (bundle, desired) in &desired_state {
        let Some(object) = world.upstream.get(&bundle_id(*bundle)) else {
            continue;
        };
        let name = bundle_name(*bundle);
        let reported =
            ["Ready", "Deployed", "Monitored", "Installed"].map(|kind| condition(&object, kind));
        // What fails in words that Fleet takes for "not ready" is deployed, and not installed.
        let is_deployed = [&reported[1], &reported[3]].iter().all(|reported| {
            reported
                .as_ref()
                .is_some_and(|(status, _)| status == "True")
        });
        if is_deployed && world.checker().is_half_removed(desired) {
            let text = format!("{name} says that it is deployed, and its removal has begun");
            found.push(("half removed", text));
        }
        if !is_ready(world, *bundle) {
            let says = reported.iter().flatten();
            if says.clone().all(|(_, message)| message.is_empty()) {
                let text = format!("{name} is not ready and does not say why: {reported:?}");
                found.push(("silent", text));
            }
            continue;
        }
        if world.checker().misses_a_copy(*bundle, desired) {
            let text = format!("{name} is ready, and was not deployed since a copy changed");
            found.push(("copy not rolled out", text));
        }
        if let Some(problem) = unlike(world, desired) {
            let text = format!("{name} says that it is ready, and {problem}");
            found.push(("ready and not so", text));
        }
    }
    found
}

/// Status and message of one of a bundle's conditions.
fn condition(object: &Value, kind: &str) -> Option<(String, String)> {
    let conditions = object
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let found = conditions?
        .iter()
        .find(|condition| condition["type"] == kind)?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("message")))
}

/// Whether upstream is told that a bundle is deployed and ready.
fn is_ready(world: &World, bundle: usize) -> bool {
    let Some(object) = world.upstream.get(&bundle_id(bundle)) else {
        return false;
    };
    ["Ready", "Deployed"].iter().all(|kind| {
        let reported = condition(&object, kind);
        reported.is_some_and(|(status, _)| status == "True")
    })
}

/// How a bundle that is ready differs from what is wanted of it.
fn unlike(world: &World, desired: &Desired) -> Option<String> {
    if desired.is_missing {
        return None;
    }
    let release = desired.release_name();
    for manifest in desired
        .manifests
        .iter()
        .filter(|manifest| !manifest.kind.is_hook())
    {
        let id = manifest.id(desired.release_namespace());
        let Some(live) = world.local.get(&id) else {
            return Some(format!("{id} is not there"));
        };
        if !desired.correct_drift {
            continue;
        }
        let wanted = manifest.object();
        let field = match manifest.kind {
            ObjectKind::ConfigMap => "/data/value",
            ObjectKind::Service => "/spec/selector",
            ObjectKind::Widget => "/spec/value",
            ObjectKind::Deployment => "/spec/template/spec/containers/0/image",
            _ => continue,
        };
        if live.pointer(field) != wanted.pointer(field) {
            return Some(format!(
                "{id} of {release} has {:?} at {field}, not {:?}",
                live.pointer(field),
                wanted.pointer(field)
            ));
        }
    }
    // What has nothing but hooks is looked at with the search for lost records, every half an hour: a namespace that went took them along.
    let is_forgotten = desired.manifests.iter().all(|one| one.kind.is_hook())
        && !world.checker().has_records(desired);
    if let Some(label) = desired.namespace_label.filter(|_| !is_forgotten) {
        let id = crate::apiserver::Id::new("", "namespaces", "", desired.release_namespace());
        let labels = world
            .local
            .get(&id)
            .map(|namespace| namespace["metadata"]["labels"].clone());
        if labels.is_some_and(|labels| labels.get(format!("team{label}")).is_none()) {
            return Some(format!("its namespace has no label team{label}"));
        }
    }
    for copy in desired.copies.iter().filter(|_| !is_forgotten) {
        let name = format!("pull{copy}");
        let place = |namespace: &str| crate::apiserver::Id::new("", "secrets", namespace, &name);
        let source = world.upstream.get(&place(crate::desired::CLUSTER));
        let live = world.local.get(&place(desired.release_namespace()));
        let token = |object: Option<Arc<Value>>| object.map(|object| object["data"].clone());
        if token(source) != token(live) {
            return Some(format!("the copy {name} is not what upstream has"));
        }
    }
    None
}
