//! What the actors of one history do, and when: drawn before it begins, so that steps can be left out of it.

use std::fmt;
use std::time::Duration;

use crate::dice::Dice;
use crate::wire::Faults;
use crate::wish::{ACCOUNTS, BUNDLES, NAMESPACES, Piece, Sort, Wish, bundle_name};

/// What an actor does.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Upstream wants this of a bundle from now on.
    Want(usize, Wish),
    /// Upstream deletes a bundle for good.
    Unwant(usize),
    /// Upstream is backed up.
    Backup,
    /// Upstream is restored from its last backup.
    Restore,
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
    Up,
    /// Requests fail.
    Faults(Faults),
    /// All watches of both servers end, or learn that they are too far behind.
    BreakWatches,
    Compact,
    /// Somebody with kubectl.
    Create(usize, Piece),
    Edit(usize, Piece),
    Scale(usize, u8),
    Delete(usize, Piece),
    StripMarks(usize, Piece),
    DeleteRecords(usize, u8),
    DeleteNamespace(usize),
    /// Lets removals through that are held.
    Permit,
    /// Somebody with helm.
    HelmInstall(usize, u8, Piece),
    HelmRollback(usize, u8),
    HelmUninstall(usize, u8),
    /// A tenant writes a record of a release that looks like the agent's.
    Forge(usize, u8, Piece),
    /// Admission refuses objects, and stops doing so.
    Refuse(usize, Piece),
    Accept,
    /// An account loses its rights in a namespace.
    Deny(&'static str, usize),
    Grant,
    /// Something sets an object back to what it was whenever it changes.
    Fight(usize, Piece),
    Peace,
    /// The agent dies, at once or after some more requests, and is started again.
    Kill,
    KillAfter(u64),
    /// It stays down for so long.
    Pause(u64),
    /// The clock of the node jumps by so many seconds.
    Jump(i64),
    /// Nothing happens for so many seconds.
    Wait(u64),
}

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
}

/// A history before it takes place.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub setting: Setting,
    pub steps: Vec<Step>,
}

/// How many steps a plan has.
const STEPS: u64 = 26;

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice::of(seed, "plan");
        let setting = Setting {
            has_own: dice.chance(50),
            has_fallback: dice.chance(20),
        };
        // Each history leans towards some of the actors, so that rare ones meet.
        let leaning: Vec<u64> = (0..FAMILIES).map(|_| 1 + dice.below(6)).collect();
        let mut wishes: Vec<Option<Wish>> = vec![None; BUNDLES];
        let mut steps = Vec::new();
        let count = dice.between(STEPS / 2, STEPS * 3 / 2);
        for number in 0..count {
            let action = draw(&mut dice, &leaning, &mut wishes, number < 2);
            let after = match dice.below(10) {
                0..=3 => Duration::from_millis(dice.below(300)),
                4..=7 => Duration::from_millis(dice.below(6_000)),
                _ => Duration::from_millis(dice.below(40_000)),
            };
            steps.push(Step { after, action });
        }
        Self {
            seed,
            setting,
            steps,
        }
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
            steps,
            ..self.clone()
        }
    }
}

const FAMILIES: usize = 8;

fn draw(dice: &mut Dice, leaning: &[u64], wishes: &mut [Option<Wish>], begins: bool) -> Action {
    let total: u64 = leaning.iter().sum::<u64>() + 8;
    let mut at = dice.below(total);
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
        0 => upstream(dice),
        1 => faults(dice),
        2 | 3 => person(dice, wishes),
        4 => helm(dice, wishes),
        5 => cluster(dice, wishes),
        6 => process(dice),
        7 => unwant(dice, wishes),
        _ => want(dice, wishes),
    }
}

fn want(dice: &mut Dice, wishes: &mut [Option<Wish>]) -> Action {
    let bundle = dice.index(BUNDLES);
    let wish = match &wishes[bundle] {
        Some(wish) => wish.change(dice, bundle),
        None => Wish::draw(dice, bundle),
    };
    wishes[bundle] = Some(wish.clone());
    Action::Want(bundle, wish)
}

fn unwant(dice: &mut Dice, wishes: &mut [Option<Wish>]) -> Action {
    let bundle = dice.index(BUNDLES);
    if wishes[bundle].take().is_none() {
        return want(dice, wishes);
    }
    Action::Unwant(bundle)
}

fn upstream(dice: &mut Dice) -> Action {
    match dice.below(9) {
        0 => Action::Backup,
        1 => Action::Restore,
        2 => Action::Empty,
        3 | 4 => Action::Recreate,
        5 => Action::LoseContent(dice.index(BUNDLES)),
        6 => Action::ReturnContents,
        7 => Action::ChangeSource(u8::from(dice.chance(50))),
        _ => Action::Wait(dice.between(5, 90)),
    }
}

fn faults(dice: &mut Dice) -> Action {
    match dice.below(8) {
        0 => Action::Down(["local", "upstream"][dice.index(2)]),
        1 | 2 => Action::Up,
        3 | 4 => Action::Faults(Faults {
            lost_requests: dice.below(12),
            lost_answers: dice.below(12),
            errors: dice.below(12),
            slowest: dice.below(3_000),
            lag: dice.below(20_000),
        }),
        5 => Action::Faults(Faults::default()),
        6 => Action::BreakWatches,
        _ => Action::Compact,
    }
}

/// A piece that some bundle has, or none has.
fn piece(dice: &mut Dice, wishes: &[Option<Wish>]) -> (usize, Piece) {
    let present: Vec<&Wish> = wishes.iter().flatten().collect();
    if !present.is_empty() && dice.chance(80) {
        let wish = *dice.pick(&present);
        let pieces: Vec<_> = wish.pieces.iter().collect();
        let piece = (*dice.pick(&pieces)).clone();
        return (wish.namespace, piece);
    }
    let namespace = dice.index(NAMESPACES.len());
    let wish = Wish::draw(dice, 0);
    let piece = wish.pieces.into_iter().next();
    (namespace, piece.expect("a wish has at least one piece"))
}

fn release(dice: &mut Dice, wishes: &[Option<Wish>]) -> (usize, u8) {
    let present: Vec<&Wish> = wishes.iter().flatten().collect();
    if !present.is_empty() && dice.chance(80) {
        let wish = *dice.pick(&present);
        return (wish.namespace, wish.release);
    }
    let number = u8::try_from(dice.index(BUNDLES)).unwrap_or(0);
    (dice.index(NAMESPACES.len()), number)
}

fn person(dice: &mut Dice, wishes: &[Option<Wish>]) -> Action {
    let (namespace, mut piece) = piece(dice, wishes);
    match dice.below(14) {
        0 | 1 => {
            if dice.chance(20) {
                // The name of a copy.
                let number = u8::from(dice.chance(50));
                piece = Piece {
                    kind: Sort::Secret,
                    name: 100 + number,
                    ..piece
                };
            }
            Action::Create(namespace, piece)
        }
        2..=5 => {
            piece.value = 9;
            Action::Edit(namespace, piece)
        }
        6 | 7 => Action::Delete(namespace, piece),
        8 => Action::StripMarks(namespace, piece),
        9 => {
            let (namespace, release) = release(dice, wishes);
            Action::DeleteRecords(namespace, release)
        }
        10 => match dice.chance(30) {
            true => Action::DeleteNamespace(namespace),
            false => Action::Edit(namespace, piece),
        },
        11 => Action::Permit,
        _ => Action::Scale(namespace, piece.name),
    }
}

fn helm(dice: &mut Dice, wishes: &[Option<Wish>]) -> Action {
    let (namespace, name) = release(dice, wishes);
    let (_, piece) = piece(dice, wishes);
    match dice.below(6) {
        0..=2 => Action::HelmInstall(namespace, name, piece),
        3 => Action::HelmRollback(namespace, name),
        4 => Action::HelmUninstall(namespace, name),
        _ => Action::Forge(namespace, name, piece),
    }
}

fn cluster(dice: &mut Dice, wishes: &[Option<Wish>]) -> Action {
    let (namespace, piece) = piece(dice, wishes);
    match dice.below(8) {
        0 | 1 => Action::Refuse(namespace, piece),
        2 | 3 => Action::Accept,
        4 => Action::Deny(ACCOUNTS[dice.index(ACCOUNTS.len())], namespace),
        5 => Action::Grant,
        6 => Action::Fight(namespace, piece),
        _ => Action::Peace,
    }
}

fn process(dice: &mut Dice) -> Action {
    match dice.below(8) {
        0 => Action::Kill,
        1..=4 => Action::KillAfter(dice.between(1, 25)),
        5 => Action::Pause(dice.between(1, 60)),
        6 => Action::Jump(i64::try_from(dice.between(1, 7200)).unwrap_or(0) - 3600),
        _ => Action::Wait(dice.between(5, 120)),
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |namespace: &usize, piece: &Piece| {
            format!("{}/{}", NAMESPACES[*namespace], object_name(piece))
        };
        let release =
            |namespace: &usize, number: &u8| format!("{}/r{number}", NAMESPACES[*namespace]);
        match self {
            Self::Want(bundle, wish) => {
                write!(
                    f,
                    "upstream wants of {}: {}",
                    bundle_name(*bundle),
                    wish.describe()
                )
            }
            Self::Unwant(bundle) => write!(f, "upstream deletes {}", bundle_name(*bundle)),
            Self::Backup => write!(f, "upstream is backed up"),
            Self::Restore => write!(f, "upstream is restored from its backup"),
            Self::Empty => write!(f, "all bundles vanish from upstream, by mistake"),
            Self::Recreate => write!(f, "what vanished from upstream is created anew"),
            Self::LoseContent(bundle) => {
                write!(f, "the content of {} vanishes", bundle_name(*bundle))
            }
            Self::ReturnContents => write!(f, "contents that vanished are there again"),
            Self::ChangeSource(number) => write!(f, "the secret pull{number} upstream changes"),
            Self::Down(server) => write!(f, "nobody reaches the {server} server"),
            Self::Up => write!(f, "all servers are reached again"),
            Self::Faults(faults) => write!(f, "from now on: {faults:?}"),
            Self::BreakWatches => write!(f, "all watches break"),
            Self::Compact => write!(f, "the servers forget old changes"),
            Self::Create(namespace, piece) => {
                write!(f, "a person creates {}", place(namespace, piece))
            }
            Self::Edit(namespace, piece) => write!(f, "a person edits {}", place(namespace, piece)),
            Self::Scale(namespace, name) => {
                write!(f, "a person scales {}/d{name} to 3", NAMESPACES[*namespace])
            }
            Self::Delete(namespace, piece) => {
                write!(f, "a person deletes {}", place(namespace, piece))
            }
            Self::StripMarks(namespace, piece) => {
                write!(
                    f,
                    "a person strips the marks of {}",
                    place(namespace, piece)
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
            Self::HelmInstall(namespace, name, piece) => write!(
                f,
                "somebody runs helm install or upgrade of {} with {}=v{}",
                release(namespace, name),
                object_name(piece),
                piece.value
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
            Self::Forge(namespace, name, piece) => write!(
                f,
                "a tenant forges a record of {} with {}",
                release(namespace, name),
                object_name(piece)
            ),
            Self::Refuse(namespace, piece) => {
                write!(f, "admission refuses {}", place(namespace, piece))
            }
            Self::Accept => write!(f, "admission refuses nothing"),
            Self::Deny(account, namespace) => {
                let namespace = NAMESPACES[*namespace];
                write!(f, "the account {account:?} loses its rights in {namespace}")
            }
            Self::Grant => write!(f, "all accounts have their rights"),
            Self::Fight(namespace, piece) => {
                write!(f, "something keeps {} as it is", place(namespace, piece))
            }
            Self::Peace => write!(f, "nothing keeps anything as it is"),
            Self::Kill => write!(f, "kill -9"),
            Self::KillAfter(requests) => write!(f, "kill -9 after {requests} requests"),
            Self::Pause(seconds) => write!(f, "the agent is down for {seconds} s"),
            Self::Jump(seconds) => write!(f, "the clock jumps by {seconds} s"),
            Self::Wait(seconds) => write!(f, "nothing happens for {seconds} s"),
        }
    }
}

/// The name of a piece's object; from 100 on, that of a copy.
pub fn object_name(piece: &Piece) -> String {
    match (piece.kind, piece.name) {
        (Sort::Secret, number @ 100..) => format!("pull{}", number - 100),
        _ => piece.object_name(),
    }
}
