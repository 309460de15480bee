//! Every stored status in every shape of history, against everything that can be desired: a table in a
//! file, so that each row can be read and argued with. A row that is missing fails the test.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

use super::{Action, DesiredContent, Plan, Undo, UninstallPlan, decide, plan_uninstall};
use crate::history::prunable;
use crate::model::Status;
use crate::record::{Provenance, StoredRevision};

const TABLE: &str = include_str!("situations.txt");
const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// What the newest record says of itself; `none` is no record.
#[rustfmt::skip]
const STATUSES: [&str; 12] = [
    "none", "deployed", "failed", "superseded", "uninstalled", "uninstalling", "pending-install", "pending-upgrade",
    "pending-rollback", "unknown", "unset", "invented",
];

/// A shape: its name, the records below the newest, the newest's number, who wrote it how long ago,
/// and whether it can be read.
struct Shape {
    name: &'static str,
    below: &'static [(i64, &'static str)],
    newest: i64,
    written: (&'static str, i64),
    is_readable: bool,
    /// Provenance of the newest revision; for those below it, a digest is known then.
    provenance: Provenance,
}

const fn shape(name: &'static str, below: &'static [(i64, &'static str)], newest: i64) -> Shape {
    Shape {
        name,
        below,
        newest,
        written: ("fleetagent", 1),
        is_readable: true,
        provenance: Provenance::Untracked,
    }
}

const SHAPES: [Shape; 20] = [
    shape("alone", &[], 1),
    shape("pruned", &[], 7),
    shape("first-pending", &[(1, "pending-install")], 2),
    shape("good-below", &[(1, "deployed")], 2),
    shape("former-below", &[(1, "superseded")], 2),
    shape("failed-below", &[(1, "failed"), (2, "failed")], 3),
    shape("good-then-failed", &[(1, "deployed"), (2, "failed")], 3),
    shape("hole", &[(2, "deployed")], 6),
    shape("removed-below", &[(1, "superseded"), (2, "uninstalled")], 3),
    shape("removal-below", &[(1, "uninstalling")], 2),
    // Labels that say nothing.
    shape("corrupt-below", &[(1, "deployed"), (2, "unset")], 3),
    Shape {
        is_readable: false,
        ..shape("undecodable", &[(1, "deployed")], 2)
    },
    // Somebody went on with helm where we had stopped.
    Shape {
        written: ("Helm", 3600),
        ..shape("newer-than-ours", &[(1, "superseded")], 2)
    },
    Shape {
        written: ("Helm", 5),
        ..shape("helm-at-work", &[(1, "deployed")], 2)
    },
    Shape {
        written: ("Helm", 5),
        provenance: Provenance::Foreign,
        ..shape("helm-4-after-us", &[(1, "deployed")], 2)
    },
    // Helm 3 is told from Helm 4 by nothing but the content of its record.
    Shape {
        written: ("Helm", 3600),
        provenance: Provenance::Foreign,
        ..shape("helm-3-long-ago", &[(1, "superseded")], 2)
    },
    Shape {
        written: ("helm-controller", 5),
        provenance: Provenance::Foreign,
        ..shape("flux-at-work", &[(1, "deployed")], 2)
    },
    // The Go agent writes as `Helm` too; its record names the agent's namespace.
    Shape {
        written: ("Helm", 5),
        provenance: Provenance::OtherAgent,
        ..shape("go-agent", &[(1, "deployed")], 2)
    },
    Shape {
        written: ("kubectl-create", 5),
        provenance: Provenance::Foreign,
        ..shape("forged-above", &[(1, "deployed")], 2)
    },
    // In the place of one that was written here, of which we knew up to the second revision.
    Shape {
        written: ("kubectl-create", 5),
        provenance: Provenance::Reused,
        ..shape("forged-in-place", &[(1, "deployed")], 2)
    },
];

fn status(word: &str) -> Status {
    match word {
        "unset" => Status::Unset,
        word => Status::from(word),
    }
}

fn history(newest: &str, shape: &Shape) -> Vec<StoredRevision> {
    let below = shape.below.iter();
    let noted = match shape.provenance {
        Provenance::Untracked => Provenance::Untracked,
        _ => Provenance::Noted,
    };
    let mut history: Vec<StoredRevision> = below
        .map(|(revision, word)| StoredRevision {
            provenance: noted,
            ..StoredRevision::new(*revision, status(word))
        })
        .collect();
    let (by, seconds) = shape.written;
    history.push(
        StoredRevision {
            written_by: Some(by.to_owned()),
            written_at: Some(NOW - SignedDuration::from_secs(seconds)),
            provenance: shape.provenance,
            ..StoredRevision::new(shape.newest, status(newest))
        }
        .believed(),
    );
    match newest {
        "none" => Vec::new(),
        _ => history,
    }
}

fn action(action: Action) -> String {
    match action {
        Action::None => "-".to_owned(),
        Action::Wait => "wait".to_owned(),
        Action::Install { revision } => format!("install {revision}"),
        Action::Upgrade { revision, from } => format!("upgrade {revision}<{from}"),
        Action::Finish {
            revision,
            from: None,
        } => format!("finish {revision}"),
        Action::Finish {
            revision,
            from: Some(from),
        } => format!("finish {revision}<{from}"),
    }
}

fn uninstall_plan(uninstall_plan: UninstallPlan) -> &'static str {
    match uninstall_plan {
        UninstallPlan::None => "-",
        UninstallPlan::Wait => "wait",
        UninstallPlan::PurgeRecords => "forget",
        UninstallPlan::KeepRecords => "keep",
        UninstallPlan::Delete => "remove",
    }
}

/// The plan in place of an install where the release was deployed here and its last good revision's objects are there: of records in ours' place, or
/// that somebody else wrote, none is that.
fn over_what_runs(plan: Plan, history: &[StoredRevision], shape: &Shape) -> String {
    let is_install = plan.action.revision() > 0 && plan.action.is_install();
    let is_good = |head: &&StoredRevision| {
        let is_ours = matches!(head.provenance, Provenance::Untracked | Provenance::Noted);
        let is_readable = shape.is_readable || head.revision != shape.newest;
        let was_good = matches!(
            head.status,
            Status::Deployed | Status::Superseded | Status::Uninstalled | Status::Uninstalling
        );
        is_ours && is_readable && was_good
    };
    let good = history.iter().rfind(is_good).filter(|_| is_install);
    good.map_or("-".to_owned(), |good| {
        let plan = plan.over(good.revision);
        action(plan.confirm(DesiredContent::Other).action)
    })
}

/// A row as the table has it.
fn row(newest: &str, shape: &Shape) -> String {
    let history = history(newest, shape);
    let plan = decide(&history, NOW);
    let confirmed = |desired| match shape.is_readable {
        true => plan.confirm(desired),
        false => plan.confirm(DesiredContent::Other),
    };
    let undo = match confirmed(DesiredContent::Other).undo(&history, history.is_empty()) {
        None => "-".to_owned(),
        Some(Undo::Uninstall) => "uninstall".to_owned(),
        Some(Undo::TakeBack) => "take back".to_owned(),
        Some(Undo::RollBack { to }) => format!("back to {to}"),
    };
    let cells = [
        format!("{:?}", plan.state),
        action(confirmed(DesiredContent::Same).action),
        action(confirmed(DesiredContent::Other).action),
        action(confirmed(DesiredContent::Again).action),
        over_what_runs(plan, &history, shape),
        undo,
        uninstall_plan(plan_uninstall(&history, NOW, false, false)).to_owned(),
        uninstall_plan(plan_uninstall(&history, NOW, true, false)).to_owned(),
        uninstall_plan(plan_uninstall(&history, NOW, false, true)).to_owned(),
    ];
    let mut row = format!("{:<17} {:<17}", newest, shape.name);
    for cell in cells {
        let _ = write!(row, " {cell:<14}");
    }
    row.trim_end().to_owned()
}

/// The rows, by status and shape.
fn table() -> BTreeMap<(&'static str, &'static str), &'static str> {
    let rows = TABLE.lines().filter(|line| !line.starts_with('#'));
    rows.filter_map(|row| {
        let mut words = row.split_whitespace();
        Some(((words.next()?, words.next()?), row))
    })
    .collect()
}

fn situations() -> impl Iterator<Item = (&'static str, &'static Shape)> {
    static ALL: [Shape; 20] = SHAPES;
    STATUSES.into_iter().flat_map(|newest| {
        let count = if newest == "none" { 1 } else { ALL.len() };
        ALL[..count].iter().map(move |shape| (newest, shape))
    })
}

#[test]
fn every_situation_has_its_row() {
    let mut table = table();
    let mut wrong = String::new();
    for (newest, shape) in situations() {
        let expected = table.remove(&(newest, shape.name));
        let actual = row(newest, shape);
        if expected != Some(actual.as_str()) {
            let expected = expected.unwrap_or("no row");
            let _ = writeln!(wrong, "- {expected}\n+ {actual}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(table.is_empty(), "no such situations: {table:?}");
}

/// What the table must never say, whatever is written into it.
#[test]
fn no_plan_rewrites_or_prunes_a_good_revision() {
    for (newest, shape) in situations() {
        let history = history(newest, shape);
        let what = format!("{newest} {}", shape.name);
        let plan = decide(&history, NOW);
        for desired in [
            DesiredContent::Same,
            DesiredContent::Again,
            DesiredContent::Other,
        ] {
            let action = plan.confirm(desired).action;
            let last = history.last().map_or(0, |head| head.revision);
            let is_forward = match action {
                Action::None | Action::Wait => true,
                Action::Finish { revision, .. } => revision == last,
                Action::Install { revision } | Action::Upgrade { revision, .. } => {
                    revision == last + 1
                }
            };
            assert!(is_forward, "{what}: {action:?}");
            let is_removed = |head: &&StoredRevision| {
                matches!(head.status, Status::Uninstalled | Status::Uninstalling)
            };
            let removed_at = history.iter().rfind(is_removed).map(|head| head.revision);
            let good = history
                .iter()
                .rfind(|head| head.status == Status::Deployed && Some(head.revision) > removed_at);
            if let Some(good) = good.filter(|_| action.revision() > 0) {
                // Or a later one that was good too, and whose successor is not stored.
                let from = history
                    .iter()
                    .find(|head| Some(head.revision) == action.from());
                assert!(
                    from.is_some_and(|from| from.revision >= good.revision
                        && matches!(from.status, Status::Deployed | Status::Superseded)),
                    "{what}: {action:?}"
                );
                let limits = 1..4;
                let goes = |limit| {
                    prunable(&history, limit)
                        .before
                        .iter()
                        .any(|record| record.revision() == good.revision)
                };
                assert!(
                    !limits.into_iter().any(goes),
                    "{what}: the good one is pruned"
                );
            }
        }
    }
}
