//! The progress of hooks by an operation's record, and what follows from that. No I/O.
//!
//! A removal is where its record says it is: at its objects, until one of its `post-delete` hooks has an entry of this removal; at that hook since
//! then, which is `Unknown` while it cannot be started and `Running` once it was; at its records, once [`over`] stands there, or all of these hooks have
//! ended well. As long as [`is_waited_for`] says the removal is tried again, and who has the release next waits for what is [`running`].

use chart::Time;
use jiff::{SignedDuration, Timestamp};

use crate::model::{Hook, HookEvent, HookExecution, Release, Status};
use crate::state::{FUTURE_LIMIT, REMOVAL_LIMIT};

/// How far a hook got before its operation was cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// The hook has to run, as far as anybody can tell.
    Due,
    /// The hook was started.
    Started,
    /// The hook ended well.
    Done,
}

/// The progress of a hook by the record of an operation that began at `began`. A hook of both of the operation's events
/// has one entry for the two; once the first event is over ([`is_over`]) it is the second's.
pub(super) fn progress(
    hook: &Hook,
    event: HookEvent,
    began: Time,
    is_first_over: bool,
) -> Progress {
    let is_first = operation(event)[0] == event;
    if is_first && is_first_over {
        return Progress::Done;
    }
    let is_of_before = hook.last_run.started_at.instant() < began.instant();
    if is_of_before || (is_of_both(hook, event) && is_first == is_first_over) {
        return Progress::Due;
    }
    match hook.last_run.phase.as_str() {
        HookExecution::SUCCEEDED => Progress::Done,
        HookExecution::RUNNING => Progress::Started,
        _ => Progress::Due,
    }
}

/// When a hook starts, or ends. The clock may have been set back since its operation, or the hook, began, or be that of another node.
pub(super) fn not_before(began: Time, now: Timestamp) -> Time {
    match now < began.instant() {
        true => began,
        false => Time::utc(now),
    }
}

/// Whether a removal waits still for a last hook whose turn it has been since then, or that was started then. A time that only a clock far ahead can have
/// written is not waited for.
pub(super) fn is_waited_for(since: Time, now: Timestamp) -> bool {
    let limit = SignedDuration::try_from(REMOVAL_LIMIT).unwrap_or(SignedDuration::MAX);
    let age = now.duration_since(since.instant());
    age < limit && age > -FUTURE_LIMIT
}

/// The hook that a removal has started and not seen the end of, and at which event.
pub(super) fn running(release: &Release) -> Option<(usize, HookEvent)> {
    let began = release.info.as_ref()?.deleted;
    let events = operation(HookEvent::PreDelete).into_iter();
    let mut events = events.filter(|event| !is_over(release, *event));
    let is_first_over = is_over(release, HookEvent::PreDelete);
    if release.status() != Status::Uninstalling {
        return None;
    }
    events.find_map(|event| {
        let mut hooks = release.hooks.iter();
        let is_it = |hook: &Hook| {
            hook.runs_at(event) && progress(hook, event, began, is_first_over) == Progress::Started
        };
        Some((hooks.position(is_it)?, event))
    })
}

/// Takes from the hooks runs that could be taken for one in the operation that begins now: the clock was set back since.
pub(super) fn forget_later_runs(hooks: &mut [Hook], began: Time) {
    for hook in hooks {
        if hook.last_run.started_at.instant() >= began.instant() {
            hook.last_run = HookExecution::default();
        }
    }
}

/// Whether a hook runs at the other event of the operation too.
pub(super) fn is_of_both(hook: &Hook, event: HookEvent) -> bool {
    operation(event).iter().all(|one| hook.runs_at(*one))
}

/// What a record under way says of itself once the hooks of an event are over: the first of its operation, or the last of a removal. No other field of a
/// record can tell.
pub(super) fn over(event: HookEvent) -> String {
    format!("{} hooks completed", event.as_str())
}

/// The description of an operation that goes on: which hooks are over, if that was recorded.
pub(super) fn carried_on(unfinished: &Release) -> Option<String> {
    let description = unfinished.description();
    let is_mark = |event: &HookEvent| description == over(*event);
    let is_mark = OPERATIONS.iter().flatten().any(is_mark);
    is_mark.then(|| description.to_owned())
}

/// Whether a record under way has a hook that was started: who goes on waits for it, and runs none again that is over.
pub(super) fn has_begun(unfinished: &Release) -> bool {
    let began = unfinished.info.as_ref().map(|info| info.last_deployed);
    let is_of_this = |hook: &Hook| {
        let started = hook.last_run.started_at.instant();
        began.is_none_or(|began| started >= began.instant())
    };
    carried_on(unfinished).is_some() || unfinished.hooks.iter().any(is_of_this)
}

/// Whether a record under way says that the hooks of `event` are over: it says so of those that came last.
pub(super) fn is_over(release: &Release, event: HookEvent) -> bool {
    let events = operation(event).into_iter();
    let mut since = events.skip_while(|one| *one != event);
    since.any(|one| release.description() == over(one))
}

/// The two events of the operation that has this one.
pub(super) fn operation(event: HookEvent) -> [HookEvent; 2] {
    let found = OPERATIONS.iter().find(|events| events.contains(&event));
    *found.unwrap_or(&[event, event])
}

/// The two events of each operation.
const OPERATIONS: [[HookEvent; 2]; 4] = [
    [HookEvent::PreInstall, HookEvent::PostInstall],
    [HookEvent::PreUpgrade, HookEvent::PostUpgrade],
    [HookEvent::PreRollback, HookEvent::PostRollback],
    [HookEvent::PreDelete, HookEvent::PostDelete],
];

/// Positions of the event's hooks in the order they run: weight, then name, then kind order.
pub(super) fn order(hooks: &[Hook], event: HookEvent) -> Vec<usize> {
    let mut order: Vec<usize> = (0..hooks.len())
        .filter(|&index| hooks[index].runs_at(event))
        .collect();
    order.sort_by(|&a, &b| {
        let key = |index: usize| (hooks[index].weight, &hooks[index].name);
        key(a).cmp(&key(b))
    });
    order
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::never_ran("", 0, &["pre-install"], Progress::Due)]
    #[case::was_running("Running", 5, &["pre-install"], Progress::Started)]
    #[case::ended_well("Succeeded", 5, &["pre-install", "pre-upgrade", "post-upgrade"], Progress::Done)]
    #[case::failed("Failed", 5, &["pre-install"], Progress::Due)]
    #[case::ended_in_an_earlier_operation("Succeeded", -5, &["pre-delete"], Progress::Due)]
    #[case::of_both_events_at_the_first("Succeeded", 5, &["pre-install", "post-install"], Progress::Done)]
    fn an_interrupted_hook_resumes_from_its_record(
        #[case] phase: &str,
        #[case] seconds: i64,
        #[case] events: &[&str],
        #[case] expected: Progress,
    ) {
        let hook = Hook {
            events: events.iter().map(|&event| event.to_owned()).collect(),
            last_run: HookExecution {
                started_at: Time::from_unix_seconds(BEGAN + seconds),
                phase: phase.to_owned(),
                ..HookExecution::default()
            },
            ..Hook::default()
        };
        let began = Time::from_unix_seconds(BEGAN);
        let event = HookEvent::ALL
            .into_iter()
            .find(|event| hook.runs_at(*event));
        assert_eq!(progress(&hook, event.unwrap(), began, false), expected);
    }

    const BEGAN: i64 = 1_800_000_000;

    /// A record whose removal began then, with one last hook of these events.
    fn removal(events: &[&str], phase: &str, started: i64, description: &str) -> Release {
        let mut release = Release {
            hooks: vec![Hook {
                events: events.iter().map(|&event| event.to_owned()).collect(),
                last_run: HookExecution {
                    started_at: Time::from_unix_seconds(started),
                    phase: phase.to_owned(),
                    ..HookExecution::default()
                },
                ..Hook::default()
            }],
            ..Release::default()
        };
        release.set_status(Status::Uninstalling, description);
        if let Some(info) = &mut release.info {
            info.deleted = Time::from_unix_seconds(BEGAN);
        }
        release
    }

    #[rstest]
    #[case::not_started("", 5, "", false)]
    #[case::cannot_be_started("Unknown", 5, "", false)]
    #[case::of_an_earlier_removal("Running", -5, "", false)]
    #[case::started("Running", 5, "", true)]
    #[case::started_after_others("Running", 5, "pre-delete hooks completed", true)]
    #[case::ended("Succeeded", 5, "", false)]
    #[case::given_up("Running", 5, "post-delete hooks completed", false)]
    fn the_next_owner_waits_for_a_running_hook_of_the_removal(
        #[case] phase: &str,
        #[case] minutes: i64,
        #[case] description: &str,
        #[case] expected: bool,
    ) {
        let started = BEGAN + 60 * minutes;
        let mut release = removal(&["post-delete"], phase, started, description);
        let last = expected.then_some((0, HookEvent::PostDelete));
        assert_eq!(running(&release), last);
        // At the first event, if that is not over; of both, what its entry tells of.
        let first = expected.then_some((0, HookEvent::PreDelete));
        let first = first.filter(|_| description.is_empty());
        let at_first = removal(&["pre-delete"], phase, started, description);
        assert_eq!(running(&at_first), first);
        let events = ["pre-delete", "post-delete"];
        let of_both = removal(&events, phase, started, description);
        assert_eq!(running(&of_both), first.or(last));
        release.set_status(Status::Uninstalled, description);
        assert_eq!(running(&release), None);
    }

    #[rstest]
    #[case::just_now(0, true)]
    #[case::not_long_ago(9, true)]
    #[case::long_ago(11, false)]
    #[case::by_a_clock_that_is_ahead(-9, true)]
    #[case::by_a_clock_far_ahead(-90, false)]
    fn a_removal_waits_ten_minutes_for_each_of_its_last_hooks(
        #[case] minutes_ago: i64,
        #[case] expected: bool,
    ) {
        let now = Timestamp::from_second(BEGAN + 60 * minutes_ago).unwrap();
        let since = Time::from_unix_seconds(BEGAN);
        assert_eq!(is_waited_for(since, now), expected);
    }

    #[rstest]
    #[case::nothing("Deletion in progress", [false, false])]
    #[case::the_first("pre-delete hooks completed", [true, false])]
    #[case::the_last("post-delete hooks completed", [true, true])]
    #[case::of_another_operation("pre-install hooks completed", [false, false])]
    fn the_hooks_of_an_event_are_over_if_later_ones_are(
        #[case] description: &str,
        #[case] expected: [bool; 2],
    ) {
        let release = removal(&[], "", BEGAN, description);
        let events = [HookEvent::PreDelete, HookEvent::PostDelete];
        assert_eq!(events.map(|event| is_over(&release, event)), expected);
        let is_mark = description != "Deletion in progress";
        assert_eq!(carried_on(&release).is_some(), is_mark);
    }

    /// One entry for both events: whose it is depends on whether the first is over.
    #[rstest]
    #[case::first(HookEvent::PreUpgrade, "Succeeded", false, Progress::Done)]
    #[case::first_running(HookEvent::PreUpgrade, "Running", false, Progress::Started)]
    #[case::first_over(HookEvent::PreUpgrade, "", true, Progress::Done)]
    #[case::second_before_its_turn(HookEvent::PostUpgrade, "Succeeded", false, Progress::Due)]
    #[case::second(HookEvent::PostUpgrade, "", true, Progress::Due)]
    #[case::second_running(HookEvent::PostUpgrade, "Running", true, Progress::Started)]
    #[case::second_over(HookEvent::PostUpgrade, "Succeeded", true, Progress::Done)]
    fn a_hook_of_both_events_runs_once_at_each(
        #[case] event: HookEvent,
        #[case] phase: &str,
        #[case] is_first_over: bool,
        #[case] expected: Progress,
    ) {
        let began = Time::from_unix_seconds(1_800_000_000);
        let events = [HookEvent::PreUpgrade, HookEvent::PostUpgrade];
        let hook = Hook {
            events: events
                .iter()
                .map(|event| event.as_str().to_owned())
                .collect(),
            last_run: HookExecution {
                started_at: Time::from_unix_seconds(1_800_000_005),
                phase: phase.to_owned(),
                ..HookExecution::default()
            },
            ..Hook::default()
        };
        assert_eq!(progress(&hook, event, began, is_first_over), expected);
    }

    /// The clock that an operation began by may have been ahead: of the same node before it was set, or of another one.
    #[test]
    fn a_hook_that_starts_while_the_clock_is_behind_is_of_its_operation() {
        let began = Time::from_unix_seconds(1_800_000_000);
        let mut hook = Hook {
            events: vec![HookEvent::PreUpgrade.as_str().to_owned()],
            last_run: HookExecution {
                started_at: not_before(began, began.instant() - SignedDuration::from_hours(1)),
                phase: HookExecution::RUNNING.to_owned(),
                ..HookExecution::default()
            },
            ..Hook::default()
        };
        let found = progress(&hook, HookEvent::PreUpgrade, began, false);
        assert_eq!(found, Progress::Started);
        let later = began.instant() + SignedDuration::from_secs(5);
        assert_eq!(not_before(began, later).instant(), later);
        // Of an earlier operation, by a clock that was ahead then.
        hook.last_run.phase = HookExecution::SUCCEEDED.to_owned();
        let mut hooks = [hook];
        forget_later_runs(&mut hooks, began);
        let found = progress(&hooks[0], HookEvent::PreUpgrade, began, false);
        assert_eq!(found, Progress::Due);
    }

    #[test]
    fn hooks_run_by_weight_then_name() {
        let hook = |name: &str, weight, event: HookEvent| Hook {
            name: name.to_owned(),
            weight,
            events: vec![event.as_str().to_owned()],
            ..Hook::default()
        };
        let hooks = [
            hook("z", 0, HookEvent::PreInstall),
            hook("b", 1, HookEvent::PreInstall),
            hook("a", 1, HookEvent::PreInstall),
            hook("a", -5, HookEvent::PreInstall),
            hook("a", -9, HookEvent::PostInstall),
        ];
        assert_eq!(order(&hooks, HookEvent::PreInstall), [3, 0, 2, 1]);
    }
}
