//! What the actors of one history do, and when: drawn before it begins, so that steps can be left out of it.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use crate::apiserver::Habit;
use crate::desired::{
    ACCOUNTS, BUNDLES, Behaviour, Desired, Manifest, NAMESPACES, ObjectKind, bundle_name,
    draw_manifest, put,
};
use crate::network::{Faults, Outage, Verb};
use crate::random::Random;
use crate::world::Trouble;

/// What an actor does.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Upstream wants this of a bundle from now on.
    Want(usize, Desired),
    /// Upstream deletes a bundle for good.
    Unwant(usize),
    /// Upstream is backed up.
    Backup,
    /// Upstream is restored from its last backup; versions go back with it, or not.
    Restore(bool),
    /// Fleet's controller writes the status of the Cluster: as it was one heartbeat before, or as an import leaves it.
    SetBack,
    Import,
    /// The local cluster is backed up, and restored under the agent.
    BackupLocal,
    RestoreLocal(bool),
    /// All BundleDeployments vanish, by mistake, one after the other.
    Empty,
    /// What vanished is created anew: at once, or one after the other in any order, so many seconds apart.
    Recreate(u64),
    /// A Content vanishes, or is there again.
    LoseContent(usize),
    ReturnContents,
    /// A Secret upstream changes.
    ChangeSource(u8),
    /// Nobody reaches a server.
    Down(&'static str),
    /// A server does not answer requests of one sort.
    Out(Outage),
    Up,
    /// Requests fail.
    Faults(Faults),
    /// Something is wrong with where charts are kept, or nothing is any more.
    Repository(Option<Trouble>),
    /// All watches of both servers end, or learn that they are too far behind.
    BreakWatches,
    Compact,
    /// Somebody with kubectl.
    Create(usize, Manifest),
    Edit(usize, Manifest),
    Scale(usize, u8),
    Delete(usize, Manifest),
    StripMarks(usize, Manifest),
    /// He creates the definition of widgets, or deletes it.
    Define,
    Undefine,
    /// He puts a finalizer on an object, which a controller takes off long after it is deleted.
    Guard(usize, Manifest),
    DeleteRecords(usize, u8),
    DeleteNamespace(usize),
    /// Lets removals through that are held.
    Permit,
    /// Somebody with helm.
    HelmInstall(usize, u8, Manifest),
    HelmRollback(usize, u8),
    HelmUninstall(usize, u8),
    /// A tenant writes a record of a release that looks like the agent's.
    Forge(Forgery, usize, u8, Manifest),
    /// He writes over the status in the labels of the newest record.
    Relabel(usize, u8, &'static str),
    /// Admission refuses objects, and stops doing so.
    Refuse(usize, Manifest),
    Accept,
    /// A quota has no room for more objects of a kind in a namespace than there are, until admission refuses nothing.
    Quota(usize, ObjectKind),
    /// A webhook is asked of what is written of a kind in a namespace, until none is.
    Webhook(usize, ObjectKind, Habit),
    NoWebhooks,
    /// An account loses its rights in a namespace.
    Deny(&'static str, usize),
    Grant,
    /// Something sets an object back to what it was whenever it changes.
    Fight(usize, Manifest),
    Peace,
    /// From now on an autoscaler decides how many replicas a Deployment has, again and again.
    Autoscale(usize, u8),
    /// The pods of a Deployment crash, once or again and again; until all are well.
    Crash(usize, u8, bool),
    Recover,
    /// The token upstream gave the agent is worth nothing any more, until servers are reached again.
    ExpireToken,
    /// The agent dies, at once or after some more requests, and is started again.
    Kill,
    KillAfter(u64),
    /// It stays down for so long.
    Pause(u64),
    /// Ours goes, the Go agent runs for so many seconds, or dies in the middle of a deploy; then ours comes back.
    Go(u64, bool),
    /// The leading agent reaches no server, until servers are reached again.
    Cut,
    /// The clock of the node jumps by so many seconds.
    Jump(i64),
    /// Nothing happens for so many seconds.
    Wait(u64),
}

/// What a forged record is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgery {
    /// The next revision, deployed.
    Next,
    /// The next one, with which somebody's helm removed the release and kept its history.
    Removal,
    /// The next one, which somebody's helm is just writing.
    AtWork,
    /// One so high that none can follow.
    Highest,
    /// The next one, deployed, without labels and type.
    Bare,
    /// One whose record is gone, or is deleted for it.
    Former,
}

impl Forgery {
    /// All of them, with what a script says.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::Next, ""),
        (Self::Removal, " that says it is removed"),
        (Self::AtWork, " that says helm is at work"),
        (Self::Highest, " of the highest number"),
        (Self::Bare, " without labels"),
        (Self::Former, " of a former number"),
    ];
}

/// Statuses that are written over a record's own.
pub const RELABELLED: [&str; 2] = ["uninstalled", "superseded"];

/// An action and the pause before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub after: Duration,
    pub action: Action,
}

/// What is true of a whole history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Whether upstream has a BundleDeployment of the agent's own.
    pub has_own: bool,
    /// Whether the account exists that bundles fall back to.
    pub has_fallback: bool,
    /// Whether whoever sets objects back goes on doing so once faults have ended.
    pub fights_last: bool,
    /// Whether two agents share a lease.
    pub has_two: bool,
    /// Whether it ends after a brief rest where nothing is wrong.
    pub rests_briefly: bool,
    /// Whether upstream lists bundles page by page, as where there are many.
    pub has_pages: bool,
}

/// A history before it takes place.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub setting: Setting,
    pub steps: Vec<Step>,
    /// So many of them take place in any case, the others only as long as little has happened.
    pub planned: usize,
}

/// Names from here on are those of copies.
const COPIES: u8 = 100;

/// How much of everything a history has, and what nobody does in it: what is few meets often, and what is left is done often.
#[derive(Clone, Copy)]
struct Scope {
    seed: u64,
    bundles: usize,
    namespaces: usize,
    /// Names of objects, but for copies.
    names: u8,
    /// How many percent of the sorts of actions there are not.
    left_out: u64,
    /// Options that all bundles have, or none.
    take_ownership: Option<bool>,
    atomic: Option<bool>,
    correct_drift: Option<bool>,
    /// How many percent of the objects fail with a version more than without it, and how.
    failing: u64,
    failure: Behaviour,
    /// The kinds that objects have, unless they have all.
    kinds: Option<[ObjectKind; 3]>,
    /// How many percent of the versions the agent dies with, more than without it.
    dying: u64,
    /// How many percent of those who edit an object go on insisting.
    insisting: u64,
    /// Whether some objects are of a custom kind.
    has_widgets: bool,
}

impl Scope {
    fn of(seed: u64) -> Self {
        let mut random = Random::of(seed, "scope");
        Self {
            seed,
            bundles: *random.pick(&[1, 2, 2, 3, BUNDLES]),
            namespaces: random.between(1, NAMESPACES.len() as u64) as usize,
            names: *random.pick(&[1, 2, 3, COPIES]),
            left_out: *random.pick(&[0, 30, 60]),
            take_ownership: *random.pick(&[None, None, Some(false), Some(true)]),
            atomic: *random.pick(&[None, None, Some(false), Some(true)]),
            correct_drift: *random.pick(&[None, None, Some(false), Some(true)]),
            failing: *random.pick(&[0, 0, 20]),
            kinds: random.chance(50).then(|| {
                // Not hooks alone.
                let plain = *random.pick(&ObjectKind::PLAIN);
                [
                    plain,
                    *random.pick(&ObjectKind::BUILT_IN),
                    *random.pick(&ObjectKind::BUILT_IN),
                ]
            }),
            dying: *random.pick(&[0, 0, 0, 0, 70]),
            insisting: *random.pick(&[0, 0, 0, 0, 60]),
            failure: *random.pick(&[Behaviour::Fails, Behaviour::Refused]),
            has_widgets: Random::of(seed, "widgets").chance(WIDGETS),
        }
    }

    /// Whether nobody does this.
    fn leaves_out(&self, action: &Action) -> bool {
        let text = format!("{action:?}");
        let sort = text.split(|c: char| !c.is_alphabetic()).next();
        let is_always = matches!(action, Action::Want(..) | Action::Wait(_));
        let sort = sort.filter(|_| !is_always);
        sort.is_some_and(|sort| Random::of(self.seed, sort).chance(self.left_out))
    }

    fn namespace(&self, namespace: usize) -> usize {
        namespace % self.namespaces
    }

    fn release(&self, release: u8) -> u8 {
        release % u8::try_from(self.bundles).unwrap_or(u8::MAX)
    }

    fn manifest(&self, manifest: Manifest) -> Manifest {
        let is_placed = manifest.kind == ObjectKind::Widget;
        if is_placed || manifest.name >= COPIES {
            return manifest;
        }
        let kind = match self.kinds {
            Some(kinds) if !kinds.contains(&manifest.kind) => {
                kinds[manifest.kind as usize % kinds.len()]
            }
            _ => manifest.kind,
        };
        let name = manifest.name % self.names;
        let is_widget = match kind {
            ObjectKind::Service => true,
            ObjectKind::ConfigMap => name % 2 == 1,
            _ => false,
        };
        let kind = match self.has_widgets && is_widget {
            true => ObjectKind::Widget,
            false => kind,
        };
        Manifest {
            kind,
            name,
            ..manifest
        }
    }

    fn desired(&self, random: &mut Random, mut desired: Desired) -> Desired {
        desired.take_ownership = self.take_ownership.unwrap_or(desired.take_ownership);
        desired.atomic = self.atomic.unwrap_or(desired.atomic);
        desired.correct_drift = self.correct_drift.unwrap_or(desired.correct_drift);
        desired.namespace = self.namespace(desired.namespace);
        desired.release = self.release(desired.release);
        if self.has_widgets {
            desired.defines = random.chance(DEFINING);
        }
        let manifests = std::mem::take(&mut desired.manifests);
        for mut manifest in manifests {
            if self.failing != 0 {
                let is_over = manifest.behaviour == self.failure && random.chance(50);
                let former = match is_over {
                    true => Behaviour::Ready,
                    false => manifest.behaviour,
                };
                manifest.behaviour = match random.chance(self.failing) {
                    true => self.failure,
                    false => former,
                };
            }
            put(&mut desired.manifests, self.manifest(manifest));
        }
        desired
    }
}

/// How many percent of the histories have objects of a custom kind, in how many of these it is defined at first, and how many bundles define it.
const WIDGETS: u64 = 20;
const DEFINED: u64 = 70;
const DEFINING: u64 = 20;
/// How many steps most plans have: what goes wrong needs few actors, and long histories cost what several short ones do.
const STEPS: (u64, u64) = (4, 8);
/// How many the others have, for what only comes about in time.
const MANY_STEPS: (u64, u64) = (9, 26);
/// And how many more where little happens.
const SPARE: u64 = 100;

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Self {
        let mut random = Random::of(seed, "plan");
        let setting = Setting {
            has_own: random.chance(50),
            has_fallback: random.chance(20),
            fights_last: random.chance(50),
            has_two: random.chance(12),
            rests_briefly: Random::of(seed, "rest").chance(85),
            has_pages: Random::of(seed, "pages").chance(20),
        };
        // Each history leans towards some of the actors, so that rare ones meet.
        let leaning: Vec<u64> = (0..FAMILIES).map(|_| 1 + random.below(6)).collect();
        let scope = Scope::of(seed);
        let mut course = Course {
            desired_state: vec![None; BUNDLES],
            ..Course::default()
        };
        if scope.has_widgets && Random::of(seed, "defined").chance(DEFINED) {
            course.next = Some(Action::Define);
        }
        let mut steps = Vec::new();
        let (fewest, most) = if random.chance(4) { MANY_STEPS } else { STEPS };
        let count = random.between(fewest, most);
        for number in 0..count + SPARE {
            let follows = course.next.is_some();
            let action = course.draw(&mut random, &leaning, &scope, number < 2);
            let pause = if follows { 0 } else { random.below(10) };
            let after = match pause {
                0..=3 => Duration::from_millis(random.below(300)),
                4..=7 => Duration::from_millis(random.below(6_000)),
                _ => Duration::from_millis(random.below(40_000)),
            };
            steps.push(Step { after, action });
        }
        Self {
            seed,
            setting,
            steps,
            planned: usize::try_from(count).unwrap_or(usize::MAX),
        }
    }

    /// The plan of what took place.
    #[must_use]
    pub fn until(mut self, taken: usize) -> Self {
        self.steps.truncate(taken);
        self.planned = taken;
        self
    }

    /// The plan with these of its steps alone; the pauses of the others stay.
    #[must_use]
    pub fn only(&self, kept: &[usize]) -> Self {
        let mut steps = Vec::new();
        let mut pause = Duration::ZERO;
        for (number, step) in self.steps.iter().enumerate() {
            pause += step.after;
            if kept.contains(&number) {
                steps.push(Step {
                    after: pause,
                    action: step.action.clone(),
                });
                pause = Duration::ZERO;
            }
        }
        Self {
            seed: self.seed,
            setting: self.setting,
            planned: steps.len(),
            steps,
        }
    }
}

const FAMILIES: usize = 8;

/// What the actions drawn so far come to.
#[derive(Default)]
struct Course {
    desired_state: Vec<Option<Desired>>,
    /// What people and helm clients created, which a chart may come to have.
    created: Vec<(usize, Manifest)>,
    /// What comes next, at once.
    next: Option<Action>,
    has_backup: bool,
    has_local_backup: bool,
    is_empty: bool,
    lacks_contents: bool,
    is_out: bool,
    has_faults: bool,
    has_trouble: bool,
    is_refused: bool,
    is_denied: bool,
    is_fought: bool,
    has_crashed: bool,
    has_webhook: bool,
}

impl Course {
    /// An action; rarely one that undoes what nobody did.
    fn draw(
        &mut self,
        random: &mut Random,
        leaning: &[u64],
        scope: &Scope,
        begins: bool,
    ) -> Action {
        if let Some(next) = self.next.take() {
            self.note(&next);
            return next;
        }
        let mut action = draw(random, leaning, scope, self, begins);
        for _ in 0..8 {
            if self.matters(&action) && !scope.leaves_out(&action) {
                break;
            }
            action = draw(random, leaning, scope, self, begins);
        }
        let action = self.begin(random, scope, action);
        self.note(&action);
        action
    }

    /// What begins with an action: some die at work, and some insist on what they edit.
    fn begin(&mut self, random: &mut Random, scope: &Scope, action: Action) -> Action {
        match &action {
            Action::Want(..) if scope.dying != 0 && random.chance(scope.dying) => {
                let death = Action::KillAfter(random.between(1, 40));
                if !scope.leaves_out(&death) {
                    self.next = Some(action);
                    return death;
                }
            }
            Action::Edit(namespace, manifest)
                if scope.insisting != 0 && random.chance(scope.insisting) =>
            {
                let fight = Action::Fight(*namespace, manifest.clone());
                self.next = Some(fight).filter(|fight| !scope.leaves_out(fight));
            }
            _ => {}
        }
        action
    }

    /// Whether there is something to go back to, or to end.
    fn matters(&self, action: &Action) -> bool {
        match action {
            Action::Restore(_) => self.has_backup,
            Action::RestoreLocal(_) => self.has_local_backup,
            Action::Recreate(_) => self.is_empty,
            Action::ReturnContents => self.lacks_contents,
            Action::Up => self.is_out,
            Action::Faults(faults) if *faults == Faults::default() => self.has_faults,
            Action::Repository(None) => self.has_trouble,
            Action::Accept => self.is_refused,
            Action::Grant => self.is_denied,
            Action::Peace => self.is_fought,
            Action::Recover => self.has_crashed,
            Action::NoWebhooks => self.has_webhook,
            _ => true,
        }
    }

    fn note(&mut self, action: &Action) {
        match action {
            Action::Backup => self.has_backup = true,
            Action::BackupLocal => self.has_local_backup = true,
            Action::Empty => self.is_empty = true,
            Action::Recreate(_) => self.is_empty = false,
            Action::LoseContent(_) => self.lacks_contents = true,
            Action::ReturnContents => self.lacks_contents = false,
            Action::Down(_) | Action::Out(_) | Action::Cut | Action::ExpireToken => {
                self.is_out = true;
            }
            Action::Up => self.is_out = false,
            Action::Faults(faults) => self.has_faults = *faults != Faults::default(),
            Action::Repository(trouble) => self.has_trouble = trouble.is_some(),
            Action::Refuse(..) | Action::Quota(..) => self.is_refused = true,
            Action::Accept => self.is_refused = false,
            Action::Deny(..) => self.is_denied = true,
            Action::Grant => self.is_denied = false,
            Action::Fight(..) => self.is_fought = true,
            Action::Peace => self.is_fought = false,
            Action::Crash(..) => self.has_crashed = true,
            Action::Recover => self.has_crashed = false,
            Action::Webhook(..) => self.has_webhook = true,
            Action::NoWebhooks => self.has_webhook = false,
            Action::Create(namespace, manifest) | Action::HelmInstall(namespace, _, manifest) => {
                self.created.push((*namespace, manifest.clone()));
            }
            _ => {}
        }
    }
}

fn draw(
    random: &mut Random,
    leaning: &[u64],
    scope: &Scope,
    course: &mut Course,
    begins: bool,
) -> Action {
    let total: u64 = leaning.iter().sum::<u64>() + 12;
    let mut at = random.below(total);
    let mut family = usize::MAX;
    for (number, weight) in leaning.iter().enumerate() {
        if at < *weight {
            family = number;
            break;
        }
        at -= weight;
    }
    if begins {
        family = usize::MAX;
    }
    match family {
        0 => upstream(random, scope),
        1 => faults(random),
        2 | 3 => person(random, scope, &course.desired_state),
        4 => helm(random, scope, &course.desired_state),
        5 => cluster(random, scope, &course.desired_state),
        6 => process(random),
        7 => unwant(random, scope, course),
        _ => want(random, scope, course),
    }
}

fn want(random: &mut Random, scope: &Scope, course: &mut Course) -> Action {
    // Mostly one that is there: what is deployed is changed again and again.
    let wanted = (0..BUNDLES).filter(|bundle| course.desired_state[*bundle].is_some());
    let wanted: Vec<usize> = wanted.collect();
    let bundle = match !wanted.is_empty() && random.chance(50) {
        true => *random.pick(&wanted),
        false => random.index(scope.bundles),
    };
    let desired = match &course.desired_state[bundle] {
        Some(desired) => desired.change(random, bundle),
        None => Desired::draw(random, bundle),
    };
    let mut desired = scope.desired(random, desired);
    let fits = |(namespace, manifest): &&(usize, Manifest)| {
        *namespace == desired.namespace && manifest.name < COPIES
    };
    let created: Vec<_> = course.created.iter().filter(fits).collect();
    if !created.is_empty() && random.chance(50) {
        // What was made by hand becomes part of a chart, and ceases to be.
        let (_, manifest) = random.pick(&created);
        let is_it = |one: &Manifest| (one.kind, one.name) == (manifest.kind, manifest.name);
        let others = desired.manifests.iter().filter(|one| !is_it(one));
        let others: BTreeSet<Manifest> = others.cloned().collect();
        let has_it = others.len() < desired.manifests.len();
        match has_it && !others.is_empty() && random.chance(60) {
            true => desired.manifests = others,
            false => put(&mut desired.manifests, manifest.clone()),
        }
    }
    course.desired_state[bundle] = Some(desired.clone());
    Action::Want(bundle, desired)
}

fn unwant(random: &mut Random, scope: &Scope, course: &mut Course) -> Action {
    let bundle = random.index(scope.bundles);
    if course.desired_state[bundle].take().is_none() {
        return want(random, scope, course);
    }
    Action::Unwant(bundle)
}

fn upstream(random: &mut Random, scope: &Scope) -> Action {
    match random.below(17) {
        9 => Action::Permit,
        10 => Action::Empty,
        0 | 11 => Action::Backup,
        1 | 12 => Action::Restore(random.chance(70)),
        2 => Action::Empty,
        3 => Action::Recreate(0),
        4 => Action::Recreate(random.between(1, 20)),
        5 => Action::LoseContent(random.index(scope.bundles)),
        6 => Action::ReturnContents,
        7 | 13 | 14 => Action::ChangeSource(u8::from(random.chance(50))),
        15 => Action::SetBack,
        16 => Action::Import,
        _ => Action::Wait(random.between(5, 90)),
    }
}

fn faults(random: &mut Random) -> Action {
    match random.below(14) {
        12 | 13 => {
            let (server, plurals) = *random.pick(&Outage::PLURALS);
            Action::Out(Outage {
                server,
                verb: random.pick(&Verb::ALL).0,
                plural: plurals[random.index(plurals.len())],
            })
        }
        8 => Action::ExpireToken,
        9 | 10 => Action::Repository(Some(random.pick(&Trouble::ALL).0)),
        11 => Action::Repository(None),
        0 => Action::Down(["local", "upstream"][random.index(2)]),
        1 | 2 => Action::Up,
        3 | 4 => Action::Faults(Faults {
            lost_requests: random.below(12),
            lost_answers: random.below(12),
            errors: random.below(12),
            slowest: random.below(3_000),
            lag: random.below(20_000),
        }),
        5 => Action::Faults(Faults::default()),
        6 => Action::BreakWatches,
        _ => Action::Compact,
    }
}

/// A manifest that some bundle has, or none has.
fn manifest(
    random: &mut Random,
    scope: &Scope,
    desired_state: &[Option<Desired>],
) -> (usize, Manifest) {
    let present: Vec<&Desired> = desired_state.iter().flatten().collect();
    if !present.is_empty() && random.chance(80) {
        let desired = *random.pick(&present);
        let manifests: Vec<_> = desired.manifests.iter().collect();
        let manifest = (*random.pick(&manifests)).clone();
        return (desired.namespace, manifest);
    }
    let namespace = random.index(scope.namespaces);
    let desired = Desired::draw(random, 0);
    let desired = scope.desired(random, desired);
    let manifest = desired.manifests.into_iter().next();
    (
        namespace,
        manifest.expect("a desired has at least one manifest"),
    )
}

fn release(random: &mut Random, scope: &Scope, desired_state: &[Option<Desired>]) -> (usize, u8) {
    let present: Vec<&Desired> = desired_state.iter().flatten().collect();
    if !present.is_empty() && random.chance(80) {
        let desired = *random.pick(&present);
        return (desired.namespace, desired.release);
    }
    let number = u8::try_from(random.index(scope.bundles)).unwrap_or(0);
    (random.index(scope.namespaces), number)
}

fn person(random: &mut Random, scope: &Scope, desired_state: &[Option<Desired>]) -> Action {
    let (namespace, mut manifest) = manifest(random, scope, desired_state);
    match random.below(16) {
        14 | 15 => Action::Guard(namespace, manifest),
        0 | 1 => {
            if random.chance(70) {
                // Nothing of the kind may be there yet: a chart comes to have it later.
                let bundle = random.index(scope.bundles);
                manifest = scope.manifest(draw_manifest(random, bundle));
            } else if random.chance(60) {
                // The name of a copy.
                let number = u8::from(random.chance(50));
                manifest = Manifest {
                    kind: ObjectKind::Secret,
                    name: COPIES + number,
                    ..manifest
                };
            }
            Action::Create(namespace, manifest)
        }
        2..=5 => {
            manifest.value = 9;
            Action::Edit(namespace, manifest)
        }
        6 | 7 => Action::Delete(namespace, manifest),
        8 => Action::StripMarks(namespace, manifest),
        9 => {
            let (namespace, release) = release(random, scope, desired_state);
            Action::DeleteRecords(namespace, release)
        }
        10 => match random.chance(30) {
            true => Action::DeleteNamespace(namespace),
            false => Action::Edit(namespace, manifest),
        },
        11 => Action::Permit,
        _ => Action::Scale(namespace, manifest.name),
    }
}

fn helm(random: &mut Random, scope: &Scope, desired_state: &[Option<Desired>]) -> Action {
    let (namespace, name) = release(random, scope, desired_state);
    let (_, manifest) = manifest(random, scope, desired_state);
    match random.below(9) {
        0..=2 => Action::HelmInstall(namespace, name, manifest),
        3 => Action::HelmRollback(namespace, name),
        4 => Action::HelmUninstall(namespace, name),
        5 => Action::Relabel(namespace, name, RELABELLED[random.index(RELABELLED.len())]),
        _ => Action::Forge(random.pick(&Forgery::ALL).0, namespace, name, manifest),
    }
}

/// A Deployment that some bundle has: its namespace and number.
fn deployment(random: &mut Random, desired_state: &[Option<Desired>]) -> Option<(usize, u8)> {
    let present = desired_state.iter().flatten();
    let deployments = present.flat_map(|desired| {
        let manifests = desired.manifests.iter();
        let plain = manifests.filter(|manifest| manifest.kind == ObjectKind::Deployment);
        plain.map(|manifest| (desired.namespace, manifest.name))
    });
    let deployments: Vec<_> = deployments.collect();
    (!deployments.is_empty()).then(|| *random.pick(&deployments))
}

fn cluster(random: &mut Random, scope: &Scope, desired_state: &[Option<Desired>]) -> Action {
    let (namespace, manifest) = manifest(random, scope, desired_state);
    let (place, name) = deployment(random, desired_state).unwrap_or((namespace, manifest.name));
    if scope.has_widgets && random.chance(25) {
        return match random.chance(50) {
            true => Action::Define,
            false => Action::Undefine,
        };
    }
    match random.below(18) {
        15 | 16 => Action::Webhook(namespace, manifest.kind, random.pick(&Habit::ALL).0),
        17 => Action::NoWebhooks,
        12 | 13 => Action::Crash(place, name, random.chance(40)),
        14 => Action::Recover,
        10 => Action::BackupLocal,
        11 => Action::RestoreLocal(random.chance(70)),
        8 => Action::Quota(namespace, manifest.kind),
        9 => Action::Autoscale(place, name),
        0 | 1 => Action::Refuse(namespace, manifest),
        2 | 3 => Action::Accept,
        4 => Action::Deny(ACCOUNTS[random.index(ACCOUNTS.len())], namespace),
        5 => Action::Grant,
        6 => Action::Fight(namespace, manifest),
        _ => Action::Peace,
    }
}

fn process(random: &mut Random) -> Action {
    match random.below(10) {
        0 => Action::Kill,
        7 => Action::Cut,
        8 => Action::Go(random.between(5, 40), random.chance(30)),
        1..=4 => Action::KillAfter(random.between(1, 25)),
        5 => Action::Pause(random.between(1, 60)),
        6 => Action::Jump(i64::try_from(random.between(1, 7200)).unwrap_or(0) - 3600),
        _ => Action::Wait(random.between(5, 120)),
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |namespace: &usize, manifest: &Manifest| {
            format!("{}/{}", NAMESPACES[*namespace], object_name(manifest))
        };
        let release =
            |namespace: &usize, number: &u8| format!("{}/r{number}", NAMESPACES[*namespace]);
        match self {
            Self::Want(bundle, desired) => {
                write!(
                    f,
                    "upstream wants of {}: {}",
                    bundle_name(*bundle),
                    desired.describe()
                )
            }
            Self::Unwant(bundle) => write!(f, "upstream deletes {}", bundle_name(*bundle)),
            Self::Backup => write!(f, "upstream is backed up"),
            Self::Restore(true) => write!(f, "upstream is restored from its backup"),
            Self::Restore(false) => {
                write!(f, "upstream is restored from its backup, with new versions")
            }
            Self::SetBack => write!(f, "the controller sets the last heartbeat back"),
            Self::Import => write!(f, "the controller imports the cluster again"),
            Self::BackupLocal => write!(f, "the local cluster is backed up"),
            Self::RestoreLocal(true) => write!(f, "the local cluster is restored from its backup"),
            Self::RestoreLocal(false) => {
                write!(
                    f,
                    "the local cluster is restored from its backup, with new versions"
                )
            }
            Self::Empty => write!(f, "all bundles vanish from upstream, by mistake"),
            Self::Recreate(0) => write!(f, "what vanished from upstream is created anew"),
            Self::Recreate(apart) => write!(
                f,
                "what vanished from upstream is created anew, one after the other, {apart} s apart"
            ),
            Self::LoseContent(bundle) => {
                write!(f, "the content of {} vanishes", bundle_name(*bundle))
            }
            Self::ReturnContents => write!(f, "contents that vanished are there again"),
            Self::ChangeSource(number) => write!(f, "the secret pull{number} upstream changes"),
            Self::Down(server) => write!(f, "nobody reaches the {server} server"),
            Self::Out(outage) => {
                let verb = Verb::ALL.iter().find(|(verb, _)| *verb == outage.verb);
                write!(
                    f,
                    "the {} server answers no {} of {}",
                    outage.server,
                    verb.map_or("", |(_, text)| text),
                    outage.plural
                )
            }
            Self::Up => write!(f, "all servers are reached again"),
            Self::Repository(None) => write!(f, "the repository is well"),
            Self::Repository(Some(trouble)) => {
                let known = Trouble::ALL.iter().find(|(known, _)| known == trouble);
                write!(f, "the repository {}", known.map_or("", |(_, text)| text))
            }
            Self::Faults(faults) => write!(f, "from now on: {faults:?}"),
            Self::BreakWatches => write!(f, "all watches break"),
            Self::Compact => write!(f, "the servers forget old changes"),
            Self::Create(namespace, manifest) => {
                write!(f, "a person creates {}", place(namespace, manifest))
            }
            Self::Edit(namespace, manifest) => {
                write!(f, "a person edits {}", place(namespace, manifest))
            }
            Self::Scale(namespace, name) => {
                write!(f, "a person scales {}/d{name} to 3", NAMESPACES[*namespace])
            }
            Self::Delete(namespace, manifest) => {
                write!(f, "a person deletes {}", place(namespace, manifest))
            }
            Self::StripMarks(namespace, manifest) => {
                write!(
                    f,
                    "a person strips the labels of {}",
                    place(namespace, manifest)
                )
            }
            Self::Define => write!(f, "a person creates the definition of widgets"),
            Self::Undefine => write!(f, "a person deletes the definition of widgets"),
            Self::Guard(namespace, manifest) => {
                let place = place(namespace, manifest);
                write!(f, "a person puts a finalizer on {place}")
            }
            Self::DeleteRecords(namespace, name) => {
                write!(
                    f,
                    "a person deletes the records of {}",
                    release(namespace, name)
                )
            }
            Self::DeleteNamespace(namespace) => {
                write!(
                    f,
                    "a person deletes the namespace {}",
                    NAMESPACES[*namespace]
                )
            }
            Self::Permit => write!(f, "a person lets held removals through"),
            Self::HelmInstall(namespace, name, manifest) => write!(
                f,
                "somebody runs helm install or upgrade of {} with {}=v{}",
                release(namespace, name),
                object_name(manifest),
                manifest.value
            ),
            Self::HelmRollback(namespace, name) => {
                write!(
                    f,
                    "somebody runs helm rollback of {}",
                    release(namespace, name)
                )
            }
            Self::HelmUninstall(namespace, name) => {
                write!(
                    f,
                    "somebody runs helm uninstall of {}",
                    release(namespace, name)
                )
            }
            Self::Forge(forgery, namespace, name, manifest) => {
                let known = Forgery::ALL.iter().find(|(known, _)| known == forgery);
                write!(
                    f,
                    "a tenant forges a record of {} with {}{}",
                    release(namespace, name),
                    object_name(manifest),
                    known.map_or("", |(_, text)| text)
                )
            }
            Self::Relabel(namespace, name, status) => {
                let release = release(namespace, name);
                write!(f, "a tenant labels the newest record of {release} {status}")
            }
            Self::Refuse(namespace, manifest) => {
                write!(f, "admission refuses {}", place(namespace, manifest))
            }
            Self::Webhook(namespace, kind, habit) => {
                let known = Habit::ALL.iter().find(|(known, _)| known == habit);
                write!(
                    f,
                    "a webhook for {} in {} {}",
                    kind.plural().1,
                    NAMESPACES[*namespace],
                    known.map_or("", |(_, text)| text)
                )
            }
            Self::NoWebhooks => write!(f, "no webhook is asked any more"),
            Self::Accept => write!(f, "admission refuses nothing"),
            Self::Deny(account, namespace) => {
                let namespace = NAMESPACES[*namespace];
                write!(f, "the account {account:?} loses its rights in {namespace}")
            }
            Self::Grant => write!(f, "all accounts have their rights"),
            Self::Fight(namespace, manifest) => {
                write!(f, "something keeps {} as it is", place(namespace, manifest))
            }
            Self::Quota(namespace, kind) => write!(
                f,
                "a quota refuses new {} in {}",
                kind.plural().1,
                NAMESPACES[*namespace]
            ),
            Self::Autoscale(namespace, name) => write!(
                f,
                "an autoscaler has {}/d{name} at 4 to 8",
                NAMESPACES[*namespace]
            ),
            Self::Crash(namespace, name, again) => write!(
                f,
                "the pods of {}/d{name} crash{}",
                NAMESPACES[*namespace],
                if *again { " again and again" } else { "" }
            ),
            Self::Recover => write!(f, "all pods are well"),
            Self::ExpireToken => write!(f, "the token for upstream expires"),
            Self::Peace => write!(f, "nothing keeps anything as it is"),
            Self::Go(seconds, dies) => {
                let end = if *dies {
                    ", and dies in the middle of a deploy"
                } else {
                    ""
                };
                write!(f, "the Go agent runs for {seconds} s{end}")
            }
            Self::Cut => write!(f, "the agent is cut off from all servers"),
            Self::Kill => write!(f, "kill -9"),
            Self::KillAfter(requests) => write!(f, "kill -9 after {requests} requests"),
            Self::Pause(seconds) => write!(f, "the agent is down for {seconds} s"),
            Self::Jump(seconds) => write!(f, "the clock jumps by {seconds} s"),
            Self::Wait(seconds) => write!(f, "nothing happens for {seconds} s"),
        }
    }
}

/// The name of a manifest's object; from 100 on, that of a copy.
pub fn object_name(manifest: &Manifest) -> String {
    match (manifest.kind, manifest.name) {
        (ObjectKind::Secret, number @ COPIES..) => format!("pull{}", number - COPIES),
        _ => manifest.object_name(),
    }
}
