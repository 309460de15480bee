//! What the actors of one history do, and when: drawn before it begins, so that steps can be left out of it.

use std::fmt;
use std::time::Duration;

use crate::desired::{ACCOUNTS, BUNDLES, Desired, Manifest, NAMESPACES, ObjectKind, bundle_name};
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
    /// The local cluster is backed up, and restored under the agent.
    BackupLocal,
    RestoreLocal(bool),
    /// All BundleDeployments vanish, by mistake, one after the other.
    Empty,
    /// What vanished is created anew.
    Recreate,
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
    /// A quota refuses every new object of a kind in a namespace, until admission refuses nothing.
    Quota(usize, ObjectKind),
    /// An account loses its rights in a namespace.
    Deny(&'static str, usize),
    Grant,
    /// Something sets an object back to what it was whenever it changes.
    Fight(usize, Manifest),
    Peace,
    /// An autoscaler decides how many replicas a Deployment has.
    Autoscale(usize, u8),
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
}

impl Forgery {
    /// All of them, with what a script says.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::Next, ""),
        (Self::Removal, " that says it is removed"),
        (Self::AtWork, " that says helm is at work"),
        (Self::Highest, " of the highest number"),
        (Self::Bare, " without labels"),
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

/// How many steps a plan has.
const STEPS: u64 = 20;
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
        };
        // Each history leans towards some of the actors, so that rare ones meet.
        let leaning: Vec<u64> = (0..FAMILIES).map(|_| 1 + random.below(6)).collect();
        let mut desired_state: Vec<Option<Desired>> = vec![None; BUNDLES];
        let mut steps = Vec::new();
        let count = random.between(STEPS / 2, STEPS * 3 / 2);
        for number in 0..count + SPARE {
            let action = draw(&mut random, &leaning, &mut desired_state, number < 2);
            let after = match random.below(10) {
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

fn draw(
    random: &mut Random,
    leaning: &[u64],
    desired_state: &mut [Option<Desired>],
    begins: bool,
) -> Action {
    let total: u64 = leaning.iter().sum::<u64>() + 8;
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
        0 => upstream(random),
        1 => faults(random),
        2 | 3 => person(random, desired_state),
        4 => helm(random, desired_state),
        5 => cluster(random, desired_state),
        6 => process(random),
        7 => unwant(random, desired_state),
        _ => want(random, desired_state),
    }
}

fn want(random: &mut Random, desired_state: &mut [Option<Desired>]) -> Action {
    let bundle = random.index(BUNDLES);
    let desired = match &desired_state[bundle] {
        Some(desired) => desired.change(random, bundle),
        None => Desired::draw(random, bundle),
    };
    desired_state[bundle] = Some(desired.clone());
    Action::Want(bundle, desired)
}

fn unwant(random: &mut Random, desired_state: &mut [Option<Desired>]) -> Action {
    let bundle = random.index(BUNDLES);
    if desired_state[bundle].take().is_none() {
        return want(random, desired_state);
    }
    Action::Unwant(bundle)
}

fn upstream(random: &mut Random) -> Action {
    match random.below(11) {
        9 => Action::Permit,
        10 => Action::Empty,
        0 => Action::Backup,
        1 => Action::Restore(random.chance(70)),
        2 => Action::Empty,
        3 | 4 => Action::Recreate,
        5 => Action::LoseContent(random.index(BUNDLES)),
        6 => Action::ReturnContents,
        7 => Action::ChangeSource(u8::from(random.chance(50))),
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
fn manifest(random: &mut Random, desired_state: &[Option<Desired>]) -> (usize, Manifest) {
    let present: Vec<&Desired> = desired_state.iter().flatten().collect();
    if !present.is_empty() && random.chance(80) {
        let desired = *random.pick(&present);
        let manifests: Vec<_> = desired.manifests.iter().collect();
        let manifest = (*random.pick(&manifests)).clone();
        return (desired.namespace, manifest);
    }
    let namespace = random.index(NAMESPACES.len());
    let desired = Desired::draw(random, 0);
    let manifest = desired.manifests.into_iter().next();
    (
        namespace,
        manifest.expect("a desired has at least one manifest"),
    )
}

fn release(random: &mut Random, desired_state: &[Option<Desired>]) -> (usize, u8) {
    let present: Vec<&Desired> = desired_state.iter().flatten().collect();
    if !present.is_empty() && random.chance(80) {
        let desired = *random.pick(&present);
        return (desired.namespace, desired.release);
    }
    let number = u8::try_from(random.index(BUNDLES)).unwrap_or(0);
    (random.index(NAMESPACES.len()), number)
}

fn person(random: &mut Random, desired_state: &[Option<Desired>]) -> Action {
    let (namespace, mut manifest) = manifest(random, desired_state);
    match random.below(14) {
        0 | 1 => {
            if random.chance(20) {
                // The name of a copy.
                let number = u8::from(random.chance(50));
                manifest = Manifest {
                    kind: ObjectKind::Secret,
                    name: 100 + number,
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
            let (namespace, release) = release(random, desired_state);
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

fn helm(random: &mut Random, desired_state: &[Option<Desired>]) -> Action {
    let (namespace, name) = release(random, desired_state);
    let (_, manifest) = manifest(random, desired_state);
    match random.below(7) {
        0..=2 => Action::HelmInstall(namespace, name, manifest),
        3 => Action::HelmRollback(namespace, name),
        4 => Action::HelmUninstall(namespace, name),
        5 => Action::Relabel(namespace, name, RELABELLED[random.index(RELABELLED.len())]),
        _ => Action::Forge(random.pick(&Forgery::ALL).0, namespace, name, manifest),
    }
}

fn cluster(random: &mut Random, desired_state: &[Option<Desired>]) -> Action {
    let (namespace, manifest) = manifest(random, desired_state);
    match random.below(12) {
        10 => Action::BackupLocal,
        11 => Action::RestoreLocal(random.chance(70)),
        8 => Action::Quota(namespace, manifest.kind),
        9 => Action::Autoscale(namespace, manifest.name),
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
            Self::BackupLocal => write!(f, "the local cluster is backed up"),
            Self::RestoreLocal(true) => write!(f, "the local cluster is restored from its backup"),
            Self::RestoreLocal(false) => {
                write!(
                    f,
                    "the local cluster is restored from its backup, with new versions"
                )
            }
            Self::Empty => write!(f, "all bundles vanish from upstream, by mistake"),
            Self::Recreate => write!(f, "what vanished from upstream is created anew"),
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
                "an autoscaler has {}/d{name} at 4",
                NAMESPACES[*namespace]
            ),
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
        (ObjectKind::Secret, number @ 100..) => format!("pull{}", number - 100),
        _ => manifest.object_name(),
    }
}
