//! Decides the action a release needs now: a pure function from what is stored to a named state, an action
//! and a reason.
//!
//! [`decide`] looks at the history alone, because templates must know revision and kind of action
//! before they can be rendered; [`Plan::confirm`] then compares what was rendered with what is
//! stored. Nothing here ever answers "uninstall in order to deploy": whatever was cut off is finished
//! forward, and the last revision that was deployed stays the base until a new one is.

pub mod ownership;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::history::last;
use crate::model::Status;
use crate::record::{Provenance, StoredRevision};

/// How long a helm client's operation is waited for before it counts as cut off.
pub const FOREIGN_OPERATION_LIMIT: Duration = Duration::from_secs(120);

/// How long a removal is waited for. A helm client's, since it wrote last: it deletes by name what is deployed meanwhile, and while a hook runs, or objects
/// go, it writes nothing, five minutes each where nobody says otherwise. One of ours, for each of its last hooks: who has the release next may miss what that
/// is to do, but it does not keep the release for ever.
pub const REMOVAL_LIMIT: Duration = Duration::from_secs(600);

/// How far the clock of a record's writer may be ahead of ours.
pub(crate) const FUTURE_LIMIT: SignedDuration = SignedDuration::from_hours(1);

/// The stored state of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// No revision is stored.
    Absent,
    /// The newest revision is deployed and is what is desired.
    InSync,
    /// The newest revision is deployed and something else is desired.
    OutOfSync,
    /// An operation of ours was cut off.
    Interrupted,
    /// The newest revision failed over a deployed one.
    Failed,
    /// Every revision so far failed before it was deployed.
    NeverDeployed,
    /// A removal has begun, and the release is desired again.
    Uninstalling,
    /// The release was removed and its history kept.
    Uninstalled,
    /// Another client is at work on the release.
    Locked,
}

/// The action a release needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing to do.
    None,
    /// Write `revision` as an install, with install hooks.
    Install {
        /// The new revision.
        revision: i64,
    },
    /// Write `revision` as an upgrade of `from`.
    Upgrade {
        /// The new revision.
        revision: i64,
        /// The last good revision.
        from: i64,
    },
    /// Carry on with the stored `revision`, if it is what is desired.
    Finish {
        /// The revision that was cut off or failed.
        revision: i64,
        /// The last good revision; an install has none.
        from: Option<i64>,
    },
    /// Come back later.
    Wait,
}

/// A state, what follows from it, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The state the release was found in.
    pub state: State,
    /// The action.
    pub action: Action,
    /// The reason, for logs and events.
    pub reason: &'static str,
}

impl Action {
    /// The revision it writes; 0 if it writes none.
    pub fn revision(self) -> i64 {
        match self {
            Self::None | Self::Wait => 0,
            Self::Install { revision }
            | Self::Upgrade { revision, .. }
            | Self::Finish { revision, .. } => revision,
        }
    }

    /// The last good revision, if there is one.
    pub fn from(self) -> Option<i64> {
        match self {
            Self::None | Self::Wait | Self::Install { .. } => None,
            Self::Upgrade { from, .. } => Some(from),
            Self::Finish { from, .. } => from,
        }
    }

    /// Whether the action is an install for templates and hooks: nothing was ever deployed.
    pub fn is_install(self) -> bool {
        self.from().is_none()
    }
}

/// Decides from the stored history. `now` gives the age of another client's operation.
pub fn decide(history: &[StoredRevision], now: Timestamp) -> Plan {
    let plan = |state, action, reason| Plan {
        state,
        action,
        reason,
    };
    let Some(newest) = last(history) else {
        return plan(
            State::Absent,
            Action::Install { revision: 1 },
            "the release does not exist",
        );
    };
    let next = newest.revision + 1;
    let unfinished = Action::Finish {
        revision: newest.revision,
        from: base(history),
    };
    match &newest.status {
        Status::Deployed => plan(
            State::OutOfSync,
            Action::Upgrade {
                revision: next,
                from: newest.revision,
            },
            "the newest revision is deployed",
        ),
        status if is_operation(status) && is_helm_at_work(newest, now) => plan(
            State::Locked,
            Action::Wait,
            "another operation (install/upgrade/rollback) is in progress",
        ),
        status if status.is_pending() => {
            plan(State::Interrupted, unfinished, "an operation was cut off")
        }
        Status::Uninstalling => plan(
            State::Uninstalling,
            Action::Install { revision: next },
            "its removal had begun",
        ),
        Status::Uninstalled => plan(
            State::Uninstalled,
            Action::Install { revision: next },
            "it had been removed",
        ),
        // With an older one deployed, nothing superseded it: somebody has written that over how it ended.
        Status::Superseded if base(history) == Some(newest.revision) => plan(
            State::Failed,
            Action::Upgrade {
                revision: next,
                from: newest.revision,
            },
            "the revision that superseded it is not stored",
        ),
        // What Helm cannot tell, or somebody invented, may have been applied in part.
        _ if base(history).is_some() => {
            plan(State::Failed, unfinished, "the newest revision failed")
        }
        _ => plan(
            State::NeverDeployed,
            unfinished,
            "no revision was ever deployed",
        ),
    }
}

/// The last good revision: the newest deployed one, else the newest that once was, unless the
/// release was removed since.
fn base(history: &[StoredRevision]) -> Option<i64> {
    let removed_at = history
        .iter()
        .filter(|head| matches!(head.status, Status::Uninstalled | Status::Uninstalling))
        .map(|head| head.revision)
        .max()
        .unwrap_or_default();
    let newest = |status: Status| {
        history
            .iter()
            .filter(|head| head.status == status && head.revision > removed_at)
            .map(|head| head.revision)
            .max()
    };
    newest(Status::Deployed).or_else(|| newest(Status::Superseded))
}

/// Whether a status says that something is being done to the release; over a removal that goes on,
/// what is deployed would be deleted.
fn is_operation(status: &Status) -> bool {
    status.is_pending() || *status == Status::Uninstalling
}

/// Whether a helm client may be at work: `Helm`, which is how the command writes records,
/// `helm-controller` and the like. Nobody else writes such records in the course of an operation, but for the Go
/// agent, which is helm's library: of the two agents only one is ever at work, so that what the other has begun was
/// cut off, but for what a person's helm does to its release.
fn is_helm_at_work(head: &StoredRevision, now: Timestamp) -> bool {
    let is_cut_off = match head.provenance {
        // With another manager it is not the record that was announced: helm was faster.
        Provenance::Noted => !head.is_foreign(),
        // A person's rollback or uninstall takes along the chart, and with it what an agent wrote into that.
        Provenance::OtherAgent => {
            !matches!(head.status, Status::PendingRollback | Status::Uninstalling)
        }
        Provenance::Untracked | Provenance::Foreign | Provenance::Reused => false,
    };
    if is_cut_off {
        return false;
    }
    let limit = match head.status {
        Status::Uninstalling => REMOVAL_LIMIT,
        _ => FOREIGN_OPERATION_LIMIT,
    };
    let limit = SignedDuration::try_from(limit).unwrap_or(SignedDuration::MAX);
    let is_helm = head
        .written_by
        .as_ref()
        .is_some_and(|by| by.to_ascii_lowercase().contains("helm"));
    is_helm
        && head
            .written_at
            // The writer of a record sets its time, and clocks differ: a record from a distant future is not waited for.
            .is_some_and(|at| {
                let age = now.duration_since(at);
                age < limit && age > -FUTURE_LIMIT
            })
}

/// How an attempt that failed is undone, if that was asked for (`atomic`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undo {
    /// Back to the last good revision that was written here, or whose release's are believed as they are.
    RollBack {
        /// The revision to go back to.
        to: i64,
    },
    /// No revision was ever good, and nothing of the release was there before: it goes as a whole.
    Uninstall,
    /// No stored revision was ever good, but something was there before, or somebody knew the release: what the
    /// attempt created goes, its record stays as a note of that.
    TakeBack,
}

/// Good revisions below `revision`, the newest first: what to build on where that one cannot be read.
pub fn good_below(history: &[StoredRevision], revision: i64) -> Vec<i64> {
    let is_below = |head: &&StoredRevision| head.revision < revision;
    let mut below: Vec<StoredRevision> = history.iter().filter(is_below).cloned().collect();
    let mut good = Vec::new();
    while let Some(next) = base(&below) {
        good.push(next);
        below.retain(|head| head.revision < next);
    }
    good
}

impl Plan {
    /// This plan over another good revision.
    #[must_use]
    pub fn rebased(self, onto: i64) -> Self {
        let action = match self.action {
            Action::Upgrade { revision, .. } => Action::Upgrade {
                revision,
                from: onto,
            },
            Action::Finish {
                revision,
                from: Some(_),
            } => Action::Finish {
                revision,
                from: Some(onto),
            },
            other => other,
        };
        Self { action, ..self }
    }

    /// This plan over a good revision whose objects are there, whatever its record says became of it.
    #[must_use]
    pub fn over(self, running: i64) -> Self {
        let action = match self.action {
            Action::Install { revision } => Action::Upgrade {
                revision,
                from: running,
            },
            Action::Finish {
                revision,
                from: None,
            } if revision > running => Action::Finish {
                revision,
                from: Some(running),
            },
            Action::Finish {
                revision,
                from: None,
            } => Action::Upgrade {
                revision: revision + 1,
                from: running,
            },
            other => {
                return Self {
                    action: other,
                    ..self
                };
            }
        };
        let reason = "what it has is there, whatever its records say";
        Self {
            action,
            reason,
            ..self
        }
    }

    /// The undo of this plan's action; `None` if it changes nothing. `is_all` says that all there is of the
    /// release came with the attempt: no record, object or digest was there before.
    pub fn undo(self, history: &[StoredRevision], is_all: bool) -> Option<Undo> {
        let from = match self.action {
            Action::None | Action::Wait => return None,
            action => action.from(),
        };
        // A revision that somebody else deployed is never applied, so it cannot be gone back to; and one that was written here before that is not
        // what was there before the attempt.
        let is_ours = |revision: &i64| {
            let mut heads = history.iter();
            heads.any(|head| {
                head.revision == *revision
                    && matches!(head.provenance, Provenance::Untracked | Provenance::Noted)
            })
        };
        Some(match from.filter(is_ours) {
            Some(to) => Undo::RollBack { to },
            None if from.is_none() && is_all => Undo::Uninstall,
            None => Undo::TakeBack,
        })
    }
}

/// How a release is uninstalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UninstallPlan {
    /// The release does not exist.
    None,
    /// Come back later: a helm client is at work on it.
    Wait,
    /// The records are deleted and nothing else: the release's objects are to stay, or are gone already.
    PurgeRecords,
    /// The release was uninstalled with its history, which is to be kept.
    KeepRecords,
    /// The objects are deleted, then the records.
    Delete,
}

/// Decides how a release is uninstalled; whatever its newest revision is, it can be, once a helm client that is at work on it has ended or has
/// had its time. `now` gives the age of its operation.
pub fn plan_uninstall(
    history: &[StoredRevision],
    now: Timestamp,
    keep_resources: bool,
    keep_history: bool,
) -> UninstallPlan {
    let Some(newest) = last(history) else {
        return UninstallPlan::None;
    };
    // A helm client that removes the release does what is about to be done.
    if newest.status.is_pending() && is_helm_at_work(newest, now) {
        return UninstallPlan::Wait;
    }
    let is_gone = newest.status == Status::Uninstalled;
    // A foreign record that says the objects are gone may be right, or a lie.
    let is_believed = is_gone && newest.provenance != Provenance::Foreign;
    match (is_believed, keep_resources) {
        _ if is_gone && keep_history => UninstallPlan::KeepRecords,
        (true, _) | (_, true) => UninstallPlan::PurgeRecords,
        (false, false) => UninstallPlan::Delete,
    }
}

/// How what is desired compares with the stored revision (the base of an upgrade, the one to finish).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DesiredContent {
    /// The newest revision has the desired content.
    Same,
    /// The newest revision has the desired content, and is to be deployed once more.
    Again,
    /// The newest revision has other content, or cannot be read.
    Other,
}

impl Plan {
    /// The plan once the desired content is known.
    #[must_use]
    pub fn confirm(self, desired: DesiredContent) -> Self {
        let is_upgrade = matches!(self.action, Action::Upgrade { .. });
        let is_same = match desired {
            DesiredContent::Same => true,
            // A deploy begun anew and cut off is finished, not begun once more.
            DesiredContent::Again => !is_upgrade,
            DesiredContent::Other => false,
        };
        let (state, action, reason) = match self.action {
            Action::Upgrade { .. } if is_same && self.state == State::OutOfSync => (
                State::InSync,
                Action::None,
                "the deployed revision is what is wanted",
            ),
            Action::Finish {
                revision,
                from: Some(from),
            } if !is_same => {
                let action = Action::Upgrade {
                    revision: revision + 1,
                    from,
                };
                (self.state, action, "something else is wanted by now")
            }
            Action::Finish {
                revision,
                from: None,
            } if !is_same => {
                let action = Action::Install {
                    revision: revision + 1,
                };
                (self.state, action, "something else is wanted by now")
            }
            action => (self.state, action, self.reason),
        };
        Self {
            state,
            action,
            reason,
        }
    }
}

#[cfg(test)]
mod situations;

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn history(words: &str) -> Vec<StoredRevision> {
        let history = words.split_whitespace().enumerate();
        history
            .map(|(at, word)| {
                StoredRevision::new(i64::try_from(at).unwrap() + 1, Status::from(word))
            })
            .collect()
    }

    fn install(revision: i64) -> Action {
        Action::Install { revision }
    }

    fn upgrade(revision: i64, from: i64) -> Action {
        Action::Upgrade { revision, from }
    }

    fn finish(revision: i64, from: impl Into<Option<i64>>) -> Action {
        Action::Finish {
            revision,
            from: from.into(),
        }
    }

    #[rstest]
    #[case::nothing_stored("", State::Absent, install(1), install(1))]
    #[case::deployed("deployed", State::OutOfSync, Action::None, upgrade(2, 1))]
    #[case::deployed_after_history(
        "superseded deployed",
        State::OutOfSync,
        Action::None,
        upgrade(3, 2)
    )]
    #[case::two_deployed("deployed deployed", State::OutOfSync, Action::None, upgrade(3, 2))]
    #[case::first_install_cut_off(
        "pending-install",
        State::Interrupted,
        finish(1, None),
        install(2)
    )]
    #[case::second_install_cut_off(
        "failed pending-install",
        State::Interrupted,
        finish(2, None),
        install(3)
    )]
    #[case::upgrade_cut_off(
        "deployed pending-upgrade",
        State::Interrupted,
        finish(2, 1),
        upgrade(3, 1)
    )]
    #[case::upgrade_cut_off_between_its_last_writes(
        "superseded pending-upgrade",
        State::Interrupted,
        finish(2, 1),
        upgrade(3, 1)
    )]
    #[case::rollback_cut_off(
        "superseded deployed pending-rollback",
        State::Interrupted,
        finish(3, 2),
        upgrade(4, 2)
    )]
    #[case::pending_twice(
        "deployed pending-upgrade pending-upgrade",
        State::Interrupted,
        finish(3, 1),
        upgrade(4, 1)
    )]
    #[case::first_install_failed("failed", State::NeverDeployed, finish(1, None), install(2))]
    #[case::every_install_failed(
        "failed failed",
        State::NeverDeployed,
        finish(2, None),
        install(3)
    )]
    #[case::upgrade_failed("deployed failed", State::Failed, finish(2, 1), upgrade(3, 1))]
    #[case::upgrades_failed("deployed failed failed", State::Failed, finish(3, 1), upgrade(4, 1))]
    #[case::good_one_marked_superseded(
        "superseded failed",
        State::Failed,
        finish(2, 1),
        upgrade(3, 1)
    )]
    #[case::newest_superseded("superseded superseded", State::Failed, upgrade(3, 2), upgrade(3, 2))]
    #[case::removal_cut_off("deployed uninstalling", State::Uninstalling, install(3), install(3))]
    #[case::removed("superseded uninstalled", State::Uninstalled, install(3), install(3))]
    #[case::failed_after_removal(
        "superseded uninstalled failed",
        State::NeverDeployed,
        finish(3, None),
        install(4)
    )]
    #[case::unknown_over_deployed("deployed unknown", State::Failed, finish(2, 1), upgrade(3, 1))]
    #[case::invented_word("surprise", State::NeverDeployed, finish(1, None), install(2))]
    fn situations(
        #[case] words: &str,
        #[case] state: State,
        #[case] if_same: Action,
        #[case] if_other: Action,
    ) {
        let plan = decide(&history(words), NOW);
        assert_eq!(plan.state, state);
        assert_eq!(
            plan.confirm(DesiredContent::Same).action,
            if_same,
            "the stored content is wanted"
        );
        assert_eq!(
            plan.confirm(DesiredContent::Other).action,
            if_other,
            "other content is wanted"
        );
    }

    #[rstest]
    #[case::somebody_at_work("Helm", 60, State::Locked)]
    #[case::a_controller_at_work("helm-controller", 60, State::Locked)]
    #[case::somebody_died("Helm", 3600, State::Interrupted)]
    #[case::we_died("fleetagent", 60, State::Interrupted)]
    fn a_helm_clients_pending_record_is_respected_for_two_minutes(
        #[case] manager: &str,
        #[case] seconds_ago: i64,
        #[case] state: State,
    ) {
        let head = StoredRevision {
            written_at: Some(NOW - SignedDuration::from_secs(seconds_ago)),
            written_by: Some(manager.to_owned()),
            ..StoredRevision::new(1, Status::PendingUpgrade)
        };
        assert_eq!(decide(&[head], NOW).state, state);
    }

    #[rstest]
    #[case::its_hook_may_still_run(540, State::Locked)]
    #[case::it_gave_up(660, State::Uninstalling)]
    fn a_helm_clients_removal_is_respected_for_ten_minutes(
        #[case] seconds_ago: i64,
        #[case] state: State,
    ) {
        let head = StoredRevision {
            written_at: Some(NOW - SignedDuration::from_secs(seconds_ago)),
            written_by: Some("Helm".to_owned()),
            ..StoredRevision::new(1, Status::Uninstalling)
        };
        assert_eq!(decide(&[head], NOW).state, state);
    }

    /// Every history has a plan that moves forward, and never forgets a deployed revision.
    #[test]
    fn every_history_has_a_forward_plan() {
        const WORDS: [&str; 9] = [
            "deployed",
            "superseded",
            "failed",
            "unknown",
            "uninstalled",
            "uninstalling",
            "pending-install",
            "pending-upgrade",
            "pending-rollback",
        ];
        for first in WORDS {
            for second in WORDS {
                for third in WORDS {
                    let history = history(&format!("{first} {second} {third}"));
                    let plan = decide(&history, NOW).confirm(DesiredContent::Other);
                    assert_eq!(plan.action.revision(), 4);
                    let is_removed = [second, third].iter().any(|word| word.starts_with("unin"));
                    if first == "deployed" && !is_removed {
                        assert!(!plan.action.is_install(), "{first} {second} {third}");
                    }
                }
            }
        }
    }
}
