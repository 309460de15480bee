//! One history: what is planned takes place, and everything is put to rest.

use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::task::LocalSet;
use tokio::time::sleep;

use crate::apiserver::{Answer, Request};
use crate::book::{Book, Violation};
use crate::logs;
use crate::plan::Plan;
use crate::wire::Wire;
use crate::wish::{Sort, Wish, bundle_name};
use crate::world::{World, bundle_id};

/// How long everything may take to come to rest once nothing fails any more.
const SETTLED: Duration = Duration::from_secs(15 * 60);
/// How long it is watched at rest.
const REST: Duration = Duration::from_secs(10 * 60);
/// How often it is looked whether an invariant was broken.
const GLANCE: Duration = Duration::from_secs(2);
/// What a whole history may ask.
const MOST_OF_ALL: u64 = 8_000;
/// What may be asked at rest: heartbeats, the look at orphans, watches that begin anew.
const MOST_ASKED: u64 = 100;
/// The same for each bundle that fails and is tried about once a minute.
const MOST_TRIED: u64 = 300;
/// Writes of one object at rest, however often it is tried.
const MOST_WRITES: u64 = 3;
/// Writes of one record: two for each try.
const MOST_RECORDED: u64 = 30;
/// Revisions of one release at rest.
const MOST_REVISIONS: u64 = 2;

/// How a history ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub seed: u64,
    pub violations: Vec<Violation>,
    /// Requests answered, faults and actions.
    pub steps: u64,
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

/// Histories that have taken place when the first one is told of: what a process makes once is made by then, and shifts no hash map of
/// a later history.
const FIRST: std::ops::Range<u64> = 900_000_000..900_000_004;

/// Lets a plan take place, in a thread whose name makes all its randomness.
pub fn run(plan: &Plan, keeps_log: bool) -> Outcome {
    static WARM: Once = Once::new();
    WARM.call_once(|| {
        for seed in FIRST {
            begin(&Plan::of(seed), false);
        }
    });
    begin(plan, keeps_log)
}

fn begin(plan: &Plan, keeps_log: bool) -> Outcome {
    let plan = plan.clone();
    let seed = plan.seed;
    let thread = std::thread::Builder::new()
        .name(format!("{seed:x}"))
        .stack_size(8 << 20);
    let running = thread.spawn(move || alone(&plan, keeps_log));
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
            digest: String::new(),
            lines: Vec::new(),
        }
    })
}

fn alone(plan: &Plan, keeps_log: bool) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O can be made");
    let local = LocalSet::new();
    let outcome = runtime.block_on(local.run_until(take_place(plan, keeps_log)));
    drop(local);
    runtime.shutdown_background();
    outcome
}

/// What is asked of the local cluster's server while a plan takes place, and what it answers.
pub fn talk(plan: &Plan) -> Vec<(Request, Answer)> {
    let plan = plan.clone();
    let thread = std::thread::Builder::new().name(format!("{:x}", plan.seed));
    let running = thread.spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without I/O can be made");
        LocalSet::new().block_on(&runtime, async {
            let wire = Wire::new(plan.seed, false);
            let mut world = World::listening(&plan, wire);
            world.start();
            for step in &plan.steps {
                pass(&mut world, step.after).await;
                world.act(&step.action).await;
            }
            pass(&mut world, Duration::from_secs(60)).await;
            let talk = world.local.talk();
            world.end();
            talk
        })
    });
    let talk = running.expect("a thread can be started").join();
    talk.unwrap_or_default()
}

async fn take_place(plan: &Plan, keeps_log: bool) -> Outcome {
    let wire = Wire::new(plan.seed, keeps_log);
    let mut world = World::new(plan, wire.clone());
    let _listening = logs::listen(&wire, &world.book);
    world.start();
    let mut steps = 0;
    for step in &plan.steps {
        pass(&mut world, step.after).await;
        world.act(&step.action).await;
        world.revive();
        steps += 1;
        if is_over(&world.book) {
            break;
        }
    }
    if !is_over(&world.book) {
        rest(&mut world).await;
    }
    let missing = world.local.lock().not_modelled.clone();
    let missing = missing
        .into_iter()
        .chain(world.upstream.lock().not_modelled.clone());
    let mut violations = world.book().violations.clone();
    violations.extend(missing.map(|text| Violation {
        rule: "not modelled",
        text,
    }));
    world.end();
    let mut traffic = wire.lock();
    Outcome {
        seed: plan.seed,
        violations,
        steps: steps + traffic.requests,
        digest: traffic.log.digest(),
        lines: traffic.log.lines.take().unwrap_or_default(),
    }
}

fn is_over(book: &Arc<Mutex<Book>>) -> bool {
    let book = book.lock().unwrap_or_else(PoisonError::into_inner);
    !book.violations.is_empty()
}

/// Time passes; who dies is started again, and who fights fights.
async fn pass(world: &mut World, time: Duration) {
    let until = tokio::time::Instant::now() + time;
    while !is_over(&world.book) {
        let deaths = Arc::clone(&world.wire.deaths);
        let local = world.local.clone();
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(until) => return,
            () = sleep(GLANCE) => {
                let requests = world.wire.lock().requests;
                if requests > MOST_OF_ALL {
                    let text = format!("{requests} requests in one history");
                    world.book().violate("storm", text);
                }
            }
            () = deaths.notified() => {
                sleep(Duration::from_millis(500)).await;
                world.revive();
            }
            () = local.news(), if world.fights() => {
                sleep(Duration::from_millis(50)).await;
                world.fight();
            }
        }
    }
}

/// Faults end, and after a while nothing may be left to do.
async fn rest(world: &mut World) {
    world.wire.note("-- faults end");
    world.settle();
    world.revive();
    pass(world, SETTLED).await;
    if is_over(&world.book) {
        return;
    }
    world.wire.lock().tally.clear();
    {
        let mut book = world.book();
        book.writes.clear();
        book.revisions.clear();
    }
    pass(world, REST).await;
    quiet(world);
    settled(world);
}

/// Nothing is asked or written any more than what stays to be asked.
fn quiet(world: &World) {
    let tally = std::mem::take(&mut world.wire.lock().tally);
    let asked: u64 = tally.values().sum();
    let failing = world
        .book()
        .wishes
        .now
        .keys()
        .filter(|bundle| !is_ready(world, **bundle))
        .count();
    let mut book = world.book();
    if asked > MOST_ASKED + MOST_TRIED * failing as u64 {
        let most = tally.iter().max_by_key(|(_, count)| **count);
        let text = format!("{asked} requests in {REST:?} at rest, most of them {most:?}");
        book.violate("no rest", text);
    }
    let written = book.writes.clone();
    for (id, count) in written {
        let most = match id.name.starts_with("sh.helm.release") {
            true => MOST_RECORDED,
            false => MOST_WRITES,
        };
        if count > most {
            let text = format!("{id} is written {count} times in {REST:?} at rest");
            book.violate("writes at rest", text);
        }
    }
    let revisions = book.revisions.clone();
    for (release, count) in revisions {
        if count > MOST_REVISIONS {
            let text = format!("{release:?} gets {count} revisions in {REST:?} at rest");
            book.violate("release flaps", text);
        }
    }
}

/// Every bundle is what upstream wants, or says why not.
fn settled(world: &World) {
    let wishes = world.book().wishes.now.clone();
    for (bundle, wish) in &wishes {
        let Some(object) = world.upstream.get(&bundle_id(*bundle)) else {
            continue;
        };
        let name = bundle_name(*bundle);
        let told =
            ["Ready", "Deployed", "Monitored", "Installed"].map(|kind| condition(&object, kind));
        if !is_ready(world, *bundle) {
            let says = told.iter().flatten();
            if says.clone().all(|(_, message)| message.is_empty()) {
                let text = format!("{name} is not ready and does not say why: {told:?}");
                world.book().violate("silent", text);
            }
            continue;
        }
        if let Some(problem) = unlike(world, wish) {
            let text = format!("{name} says that it is ready, and {problem}");
            world.book().violate("ready and not so", text);
        }
    }
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
        let told = condition(&object, kind);
        told.is_some_and(|(status, _)| status == "True")
    })
}

/// How a bundle that is ready differs from what is wanted of it.
fn unlike(world: &World, wish: &Wish) -> Option<String> {
    if wish.is_missing {
        return None;
    }
    let release = wish.release_name();
    for piece in wish.pieces.iter().filter(|piece| !piece.kind.is_hook()) {
        let id = piece.id(wish.release_namespace());
        let Some(live) = world.local.get(&id) else {
            return Some(format!("{id} is not there"));
        };
        if !wish.correct_drift {
            continue;
        }
        let wanted = piece.object();
        let field = match piece.kind {
            Sort::ConfigMap => "/data/value",
            Sort::Service => "/spec/selector",
            Sort::Deployment => "/spec/template/spec/containers/0/image",
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
    for copy in &wish.copies {
        let name = format!("pull{copy}");
        let place = |namespace: &str| crate::apiserver::Id::new("", "secrets", namespace, &name);
        let source = world.upstream.get(&place(crate::wish::CLUSTER));
        let live = world.local.get(&place(wish.release_namespace()));
        let token = |object: Option<Arc<Value>>| object.map(|object| object["data"].clone());
        if token(source) != token(live) {
            return Some(format!("the copy {name} is not what upstream has"));
        }
    }
    None
}
