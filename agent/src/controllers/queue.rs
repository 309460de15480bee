//! The work queue: which bundle needs a reconcile, when, and that no bundle is reconciled twice at once.
//!
//! Replaces controller-runtime's two queues. One bundle has one entry, so that its full and its drift
//! reconciles never overlap. Failed ones back off per bundle and kind, 5 ms to 60 s with jitter: that a look at live objects
//! goes well makes no failing deploy hasty. An event cuts the wait short.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::OptionFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::report::metrics::{Controller, Entries, Metrics, Outcome};

/// How much of a bundle is reconciled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcileKind {
    /// A full reconcile: deploy what changed, then monitor. Triggered by a BundleDeployment's own events.
    Full,
    /// Compare live objects with the release, and correct them if wanted. What changes of live objects lead to.
    Drift,
}

impl ReconcileKind {
    /// The controller whose metrics it counts for.
    pub fn controller(self) -> Controller {
        match self {
            Self::Full => Controller::BundleDeployment,
            Self::Drift => Controller::Drift,
        }
    }
}

/// When a bundle is to be reconciled again. Each step of a reconcile may have a wish of its own: [`Requeue::and`] keeps them all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requeue {
    has_failed: bool,
    after: Option<Duration>,
    full_after: Option<Duration>,
    /// The reconcile ended before it monitored live objects: monitoring that was planned takes place.
    keeps_monitor: bool,
    /// What failed before may fail again once the pause is over.
    keeps_failures: bool,
}

impl Requeue {
    /// When something happens.
    pub const IDLE: Self = Self {
        has_failed: false,
        after: None,
        full_after: None,
        keeps_monitor: false,
        keeps_failures: false,
    };
    /// After a back-off: something failed.
    pub const RETRY: Self = Self {
        has_failed: true,
        ..Self::IDLE
    };

    /// After this long, of the same kind; not a failure.
    pub const fn after(pause: Duration) -> Self {
        Self {
            after: Some(pause),
            ..Self::IDLE
        }
    }

    /// After this long and in full, whatever this one was; not a failure.
    pub const fn full_after(pause: Duration) -> Self {
        Self {
            full_after: Some(pause),
            ..Self::IDLE
        }
    }

    /// After this long and in full, as the next try has to wait; no failure, nor the end of those before.
    pub const fn postponed(pause: Duration) -> Self {
        Self {
            full_after: Some(pause),
            keeps_failures: true,
            ..Self::IDLE
        }
    }

    /// Both: whichever is due first, and a failure if either is one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let earliest = |a: Option<Duration>, b: Option<Duration>| a.into_iter().chain(b).min();
        Self {
            has_failed: self.has_failed || other.has_failed,
            after: earliest(self.after, other.after),
            full_after: earliest(self.full_after, other.full_after),
            keeps_monitor: self.keeps_monitor || other.keeps_monitor,
            keeps_failures: self.keeps_failures || other.keeps_failures,
        }
    }

    /// The same requeue for a reconcile that did not monitor live objects.
    #[must_use]
    pub fn without_monitor(self) -> Self {
        Self {
            keeps_monitor: true,
            ..self
        }
    }

    fn is_idle(self) -> bool {
        !self.has_failed && self.after.is_none() && self.full_after.is_none()
    }

    /// Whether a step of the reconcile failed.
    pub fn has_failed(self) -> bool {
        self.has_failed
    }

    /// The reconcile's outcome in the metrics.
    pub fn outcome(self) -> Outcome {
        match self {
            idle if idle.is_idle() => Outcome::Success,
            Self {
                has_failed: true, ..
            } => Outcome::Error,
            _ => Outcome::RequeueAfter,
        }
    }
}

/// For which kinds a worker is free: each kind has its own number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeWorkers {
    pub full: bool,
    pub drift: bool,
}

impl FreeWorkers {
    /// No limit is reached.
    pub const ANY: Self = Self {
        full: true,
        drift: true,
    };
}

/// Limits of the back-off.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    pub min: Duration,
    pub max: Duration,
}

impl Backoff {
    /// The pause after so many failures in a row; `jitter` in 0..1 takes off up to a fifth.
    fn pause(self, failures: u32, jitter: f64) -> Duration {
        let doubled = self
            .min
            .saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
        doubled
            .min(self.max)
            .mul_f64(1.0 - jitter.clamp(0.0, 1.0) / 5.0)
    }
}

#[derive(Debug, Default)]
struct Entry {
    full: Option<Instant>,
    drift: Option<Instant>,
    /// When drift was to be monitored, which the running reconcile does as well if it gets that far.
    covered: Option<Instant>,
    /// Of the reconcile that is running: cancelled when what it works on is not wanted any more.
    running: Option<CancellationToken>,
    /// In a row, of full reconciles and of those for drift.
    failures: [u32; 2],
    /// Whether the last full one failed, so that the next is due after a back-off.
    backs_off: bool,
}

impl Entry {
    fn due(&self, free: FreeWorkers) -> Option<Instant> {
        let full = self.full.filter(|_| free.full);
        let drift = self.drift.filter(|_| free.drift);
        match (full, drift) {
            (Some(full), Some(drift)) => Some(full.min(drift)),
            (full, drift) => full.or(drift),
        }
    }
}

/// The queue, without waiting: everything happens at a given instant.
#[derive(Debug, Default)]
struct Schedule {
    entries: BTreeMap<String, Entry>,
}

impl Schedule {
    /// Queues the bundle; true if no reconcile of this kind was waiting yet.
    fn wake(&mut self, name: &str, kind: ReconcileKind, at: Instant) -> bool {
        let entry = self.entries.entry(name.to_owned()).or_default();
        let slot = match kind {
            ReconcileKind::Full => &mut entry.full,
            ReconcileKind::Drift => &mut entry.drift,
        };
        let is_new = slot.is_none();
        *slot = Some(slot.map_or(at, |due| due.min(at)));
        is_new
    }

    /// The bundle that has been due longest, if any, and since when. A full reconcile covers one for drift.
    fn take(
        &mut self,
        now: Instant,
        free: FreeWorkers,
    ) -> Option<(String, ReconcileKind, Instant)> {
        let (name, entry) = self
            .entries
            .iter_mut()
            .filter(|(_, entry)| {
                entry.running.is_none() && entry.due(free).is_some_and(|due| due <= now)
            })
            .min_by_key(|(_, entry)| entry.due(free))?;
        let since = entry.due(free)?;
        entry.running = Some(CancellationToken::new());
        let full_is_due = free.full && entry.full.is_some_and(|due| due <= now);
        let covered = entry.drift.take();
        if full_is_due {
            entry.full = None;
            entry.covered = covered;
        }
        let kind = if full_is_due {
            ReconcileKind::Full
        } else {
            ReconcileKind::Drift
        };
        Some((name.clone(), kind, since))
    }

    /// The kinds it waits for because of this one and did not before, and whether that is for later.
    fn finish(
        &mut self,
        name: &str,
        kind: ReconcileKind,
        next: Requeue,
        now: Instant,
        backoff: Backoff,
    ) -> Vec<(ReconcileKind, bool)> {
        let Some(entry) = self.entries.get_mut(name) else {
            return Vec::new();
        };
        entry.running = None;
        let covered = entry.covered.take();
        let failures = &mut entry.failures[kind as usize];
        *failures = match next.has_failed {
            true => failures.saturating_add(1),
            false if next.keeps_failures => *failures,
            false => 0,
        };
        let retry = next
            .has_failed
            .then(|| backoff.pause(*failures, rand::random()));
        let is_full = kind == ReconcileKind::Full;
        if is_full {
            entry.backs_off = next.has_failed;
        }
        if is_full && !next.has_failed && !next.keeps_failures {
            // A full one monitors drift too.
            entry.failures = [0; 2];
        }
        let deploy_backs_off = entry.backs_off && (is_full || entry.full.is_some());
        let covered = covered.filter(|_| next.keeps_monitor);
        if next.is_idle() && covered.is_none() && entry.due(FreeWorkers::ANY).is_none() {
            self.entries.remove(name);
        }
        let same = retry.into_iter().chain(next.after).min();
        // A deploy that failed is tried again in its own time.
        let full = next.full_after.filter(|_| !deploy_backs_off);
        let wishes = [(kind, same), (ReconcileKind::Full, full)];
        let mut added = Vec::new();
        if let Some(due) = covered
            && self.wake(name, ReconcileKind::Drift, due)
        {
            added.push((ReconcileKind::Drift, due > now));
        }
        for (kind, pause) in wishes {
            let Some(pause) = pause else { continue };
            if self.wake(name, kind, now + pause) {
                added.push((kind, !pause.is_zero()));
            }
        }
        added
    }

    fn next_due(&self, free: FreeWorkers) -> Option<Instant> {
        self.entries
            .values()
            .filter(|entry| entry.running.is_none())
            .filter_map(|entry| entry.due(free))
            .min()
    }

    /// How many bundles wait for a full reconcile, and for one of drift alone.
    fn depth(&self, now: Instant) -> (usize, usize) {
        let is_due = |slot: Option<Instant>| slot.is_some_and(|due| due <= now);
        let waiting = self
            .entries
            .values()
            .filter(|entry| entry.running.is_none());
        waiting.fold((0, 0), |(full, drift), entry| match entry {
            entry if is_due(entry.full) => (full + 1, drift),
            entry if is_due(entry.drift) => (full, drift + 1),
            _ => (full, drift),
        })
    }
}

/// The queue; shared by reference.
#[derive(Debug)]
pub struct Queue {
    schedule: Mutex<Schedule>,
    changed: Notify,
    backoff: Backoff,
    metrics: Metrics,
}

impl Queue {
    /// An empty queue.
    pub fn new(backoff: Backoff, metrics: Metrics) -> Self {
        Self {
            schedule: Mutex::default(),
            changed: Notify::new(),
            backoff,
            metrics,
        }
    }

    /// Asks for a reconcile now, or as soon as the running one ends.
    pub fn wake(&self, name: &str, kind: ReconcileKind) {
        self.wake_after(name, kind, Duration::ZERO);
    }

    /// Asks for a reconcile in a while. An earlier date that is already set stays.
    pub fn wake_after(&self, name: &str, kind: ReconcileKind, delay: Duration) {
        let now = Instant::now();
        let is_new = {
            let mut schedule = self.schedule.lock();
            let is_new = schedule.wake(name, kind, now + delay);
            self.count(&schedule, now);
            is_new
        };
        if is_new {
            self.metrics.added(kind.controller(), !delay.is_zero());
        }
        self.changed.notify_one();
    }

    /// Cancels the running reconcile of a bundle as another spec came. It ends where nothing was written yet.
    pub fn supersede(&self, name: &str) {
        if let Some(running) = self.superseded(name) {
            running.cancel();
        }
    }

    /// Cancels all running reconciles, as nothing is to be written any more. Those end where nothing was written yet.
    pub fn supersede_all(&self) {
        let schedule = self.schedule.lock();
        let running = schedule.entries.values();
        running
            .filter_map(|entry| entry.running.as_ref())
            .for_each(CancellationToken::cancel);
    }

    /// The bundles that are being reconciled.
    pub fn running(&self) -> BTreeSet<String> {
        let schedule = self.schedule.lock();
        let running = schedule.entries.iter();
        let running = running.filter(|(_, entry)| entry.running.is_some());
        running.map(|(name, _)| name.clone()).collect()
    }

    /// The token that cancels the running reconcile of a bundle, if there is one.
    pub fn superseded(&self, name: &str) -> Option<CancellationToken> {
        let schedule = self.schedule.lock();
        schedule.entries.get(name)?.running.clone()
    }

    /// Waits for a bundle that is due and has a free worker. Follow with [`Queue::finish`].
    ///
    /// # Cancellation
    /// Safe: a bundle is taken only when it is returned.
    pub async fn take(&self, free: FreeWorkers) -> (String, ReconcileKind) {
        loop {
            let next = {
                let (mut schedule, now) = (self.schedule.lock(), Instant::now());
                if let Some((name, kind, since)) = schedule.take(now, free) {
                    self.count(&schedule, now);
                    self.metrics.taken(kind.controller(), now - since);
                    return (name, kind);
                }
                schedule.next_due(free)
            };
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                Some(()) = OptionFuture::from(next.map(sleep_until)) => {}
            }
        }
    }

    /// A reconcile ended.
    pub fn finish(&self, name: &str, kind: ReconcileKind, next: Requeue) {
        let now = Instant::now();
        let again = {
            let mut schedule = self.schedule.lock();
            let again = schedule.finish(name, kind, next, now, self.backoff);
            self.count(&schedule, now);
            again
        };
        for (kind, is_delayed) in again {
            self.metrics.added(kind.controller(), is_delayed);
        }
        self.changed.notify_one();
    }

    fn count(&self, schedule: &Schedule, now: Instant) {
        let (full, drift) = schedule.depth(now);
        self.metrics.queued(ReconcileKind::Full.controller(), full);
        self.metrics
            .queued(ReconcileKind::Drift.controller(), drift);
    }

    /// Bundles that wait or are worked on.
    pub fn entries(&self) -> Entries {
        vec![("scheduled_bundles", self.schedule.lock().entries.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff {
        min: Duration::from_millis(5),
        max: Duration::from_secs(60),
    };

    fn second(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn taken(schedule: &mut Schedule, now: Instant, free: FreeWorkers) -> Option<ReconcileKind> {
        schedule.take(now, free).map(|(_, kind, _)| kind)
    }

    #[test]
    fn one_bundle_is_never_taken_twice() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.wake("b", ReconcileKind::Full, now);
        assert_eq!(
            taken(&mut schedule, now, FreeWorkers::ANY),
            Some(ReconcileKind::Full)
        );
        schedule.wake("b", ReconcileKind::Drift, now);
        assert_eq!(schedule.take(now, FreeWorkers::ANY), None);
        schedule.finish("b", ReconcileKind::Full, Requeue::IDLE, now, BACKOFF);
        assert_eq!(
            taken(&mut schedule, now, FreeWorkers::ANY),
            Some(ReconcileKind::Drift)
        );
        schedule.finish("b", ReconcileKind::Drift, Requeue::IDLE, now, BACKOFF);
        assert!(schedule.entries.is_empty());
    }

    #[test]
    fn drift_events_collapse() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.wake("b", ReconcileKind::Drift, now + second(5));
        schedule.wake("b", ReconcileKind::Drift, now + second(8));
        assert_eq!(schedule.take(now + second(4), FreeWorkers::ANY), None);
        let due = now + second(5);
        assert_eq!(
            taken(&mut schedule, due, FreeWorkers::ANY),
            Some(ReconcileKind::Drift)
        );
        schedule.finish("b", ReconcileKind::Drift, Requeue::IDLE, now, BACKOFF);
        assert_eq!(schedule.take(now + second(9), FreeWorkers::ANY), None);
    }

    #[test]
    fn a_full_reconcile_that_ends_early_leaves_the_planned_monitor() {
        let now = Instant::now();
        let slow = Backoff {
            min: second(500),
            max: second(500),
        };
        // The next reconcile after a full one, for which monitoring in a minute was planned, and perhaps one sooner while it ran.
        let next = |outcome, sooner: Option<Duration>| {
            let mut schedule = Schedule::default();
            schedule.wake("b", ReconcileKind::Full, now);
            schedule.wake("b", ReconcileKind::Drift, now + second(60));
            schedule.take(now, FreeWorkers::ANY);
            if let Some(sooner) = sooner {
                schedule.wake("b", ReconcileKind::Drift, now + sooner);
            }
            schedule.finish("b", ReconcileKind::Full, outcome, now, slow);
            let (_, kind, due) = schedule.take(now + second(60), FreeWorkers::ANY)?;
            Some((kind, due - now))
        };
        let planned = Some((ReconcileKind::Drift, second(60)));
        assert_eq!(next(Requeue::RETRY.without_monitor(), None), planned);
        let waits = Requeue::after(second(900)).without_monitor();
        assert_eq!(next(waits, None), planned);
        assert_eq!(next(Requeue::IDLE.without_monitor(), None), planned);
        let sooner = Some((ReconcileKind::Drift, second(5)));
        let failed = Requeue::RETRY.without_monitor();
        assert_eq!(next(failed, Some(second(5))), sooner);
        // The full reconcile monitored itself.
        assert_eq!(next(Requeue::RETRY, None), None);
        assert_eq!(next(Requeue::IDLE, None), None);
    }

    #[test]
    fn an_event_cuts_a_back_off_short() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.wake("b", ReconcileKind::Full, now);
        schedule.take(now, FreeWorkers::ANY);
        schedule.finish(
            "b",
            ReconcileKind::Full,
            Requeue::RETRY,
            now,
            Backoff {
                min: second(50),
                ..BACKOFF
            },
        );
        assert_eq!(schedule.take(now + second(1), FreeWorkers::ANY), None);
        schedule.wake("b", ReconcileKind::Full, now + second(1));
        assert!(schedule.take(now + second(1), FreeWorkers::ANY).is_some());
    }

    #[test]
    fn a_drift_check_neither_resets_nor_cuts_the_back_off_of_a_deploy() {
        let (mut schedule, mut now) = (Schedule::default(), Instant::now());
        let backoff = Backoff {
            min: second(10),
            ..BACKOFF
        };
        let (full, drift) = (ReconcileKind::Full, ReconcileKind::Drift);
        schedule.wake("b", full, now);
        for pause in [10, 20, 40, 60] {
            schedule.take(now, FreeWorkers::ANY);
            schedule.finish("b", full, Requeue::RETRY, now, backoff);
            for next in [Requeue::IDLE, Requeue::full_after(Duration::ZERO)] {
                schedule.wake("b", drift, now);
                assert_eq!(taken(&mut schedule, now, FreeWorkers::ANY), Some(drift));
                schedule.finish("b", drift, next, now, backoff);
            }
            // Jitter takes off a fifth at most.
            let early = now + second(pause) * 4 / 5 - Duration::from_millis(1);
            assert_eq!(schedule.take(early, FreeWorkers::ANY), None);
            now += second(pause);
        }
    }

    #[test]
    fn pauses_double_up_to_the_cap() {
        assert_eq!(BACKOFF.pause(1, 0.0), Duration::from_millis(5));
        assert_eq!(BACKOFF.pause(4, 0.0), Duration::from_millis(40));
        assert_eq!(BACKOFF.pause(60, 0.0), second(60));
        assert_eq!(BACKOFF.pause(60, 1.0), second(48));
    }

    #[test]
    fn each_kind_has_its_own_workers() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        let full_only = FreeWorkers {
            drift: false,
            ..FreeWorkers::ANY
        };
        schedule.wake("b", ReconcileKind::Drift, now);
        schedule.wake("b", ReconcileKind::Full, now + second(2));
        assert_eq!(schedule.take(now, full_only), None);
        // A reconcile without a free worker is no reason to try again at once.
        assert_eq!(schedule.next_due(full_only), Some(now + second(2)));
        let no_full = FreeWorkers {
            full: false,
            ..FreeWorkers::ANY
        };
        assert_eq!(
            taken(&mut schedule, now, no_full),
            Some(ReconcileKind::Drift)
        );
    }

    #[test]
    fn a_drift_reconcile_may_ask_for_a_full_one() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.wake("b", ReconcileKind::Drift, now);
        schedule.take(now, FreeWorkers::ANY);
        schedule.finish(
            "b",
            ReconcileKind::Drift,
            Requeue::full_after(second(1)),
            now,
            BACKOFF,
        );
        let later = now + second(1);
        assert_eq!(
            taken(&mut schedule, later, FreeWorkers::ANY),
            Some(ReconcileKind::Full)
        );
    }

    #[test]
    fn only_due_and_idle_bundles_count_as_waiting() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        assert!(schedule.wake("a", ReconcileKind::Full, now));
        assert!(!schedule.wake("a", ReconcileKind::Full, now));
        schedule.wake("a", ReconcileKind::Drift, now);
        schedule.wake("b", ReconcileKind::Drift, now);
        schedule.wake("c", ReconcileKind::Full, now + second(1));
        assert_eq!(schedule.depth(now), (1, 1));
        assert_eq!(schedule.depth(now + second(1)), (2, 1));
        let (name, kind, since) = schedule.take(now, FreeWorkers::ANY).unwrap();
        assert_eq!(since, now);
        let again = schedule.finish(&name, kind, Requeue::RETRY, now, BACKOFF);
        assert_eq!(again, [(kind, true)]);
        let again = schedule.finish("b", ReconcileKind::Drift, Requeue::IDLE, now, BACKOFF);
        assert_eq!(again, []);
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_running_reconcile_is_superseded() {
        let queue = Queue::new(BACKOFF, Metrics::default());
        queue.supersede("b");
        queue.wake("b", ReconcileKind::Full);
        queue.take(FreeWorkers::ANY).await;
        let running = queue.superseded("b").unwrap();
        assert!(!running.is_cancelled());
        queue.supersede("b");
        assert!(running.is_cancelled());
        queue.finish(
            "b",
            ReconcileKind::Full,
            Requeue::full_after(Duration::ZERO),
        );
        assert!(queue.superseded("b").is_none());
        queue.take(FreeWorkers::ANY).await;
        assert!(!queue.superseded("b").unwrap().is_cancelled());
    }

    /// Two hooks fail in turn, one of which waits: the other one's back-off goes on where it was.
    #[test]
    fn a_deploy_that_waits_keeps_the_back_off_of_its_failures() {
        let backoff = Backoff {
            min: second(1),
            max: second(1000),
        };
        let (mut schedule, mut now, full) =
            (Schedule::default(), Instant::now(), ReconcileKind::Full);
        schedule.wake("b", full, now);
        let mut pauses = Vec::new();
        for next in [
            Requeue::RETRY,
            Requeue::RETRY,
            Requeue::RETRY,
            Requeue::postponed(second(300)),
            Requeue::RETRY,
            Requeue::IDLE,
        ] {
            assert!(schedule.take(now, FreeWorkers::ANY).is_some());
            schedule.finish("b", full, next, now, backoff);
            let Some(due) = schedule.next_due(FreeWorkers::ANY) else {
                break;
            };
            pauses.push((due - now).as_secs_f64().ceil());
            now = due;
        }
        assert_eq!(pauses[3], 300.0);
        assert!(pauses.len() == 5 && pauses[4] > pauses[2], "{pauses:?}");
        schedule.wake("b", full, now);
        assert!(schedule.take(now, FreeWorkers::ANY).is_some());
        schedule.finish("b", full, Requeue::RETRY, now, backoff);
        let due = schedule.next_due(FreeWorkers::ANY);
        assert!(due.is_some_and(|due| due <= now + second(1)));
    }

    /// It may have found what ends the wait, or what no wait is for.
    #[test]
    fn a_drift_check_wakes_a_deploy_that_waits_and_failed_before() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        let (full, drift) = (ReconcileKind::Full, ReconcileKind::Drift);
        for next in [Requeue::RETRY, Requeue::postponed(second(300))] {
            schedule.wake("b", full, now);
            assert_eq!(taken(&mut schedule, now, FreeWorkers::ANY), Some(full));
            schedule.finish("b", full, next, now, BACKOFF);
        }
        schedule.wake("b", drift, now);
        assert_eq!(taken(&mut schedule, now, FreeWorkers::ANY), Some(drift));
        let wish = Requeue::full_after(Duration::ZERO);
        schedule.finish("b", drift, wish, now, BACKOFF);
        assert_eq!(taken(&mut schedule, now, FreeWorkers::ANY), Some(full));
    }

    #[test]
    fn the_earliest_requeue_wins_and_failures_are_kept() {
        let (soon, late) = (second(1), second(90));
        let both = Requeue::RETRY.and(Requeue::after(late));
        assert_eq!(both, Requeue::after(late).and(Requeue::RETRY));
        assert!(both.has_failed());
        assert_eq!(
            Requeue::after(late).and(Requeue::after(soon)),
            Requeue::after(soon)
        );
        let mut schedule = Schedule::default();
        let now = Instant::now();
        schedule.wake("b", ReconcileKind::Full, now);
        schedule.take(now, FreeWorkers::ANY);
        // The back-off is due first, then what was asked for late: neither is forgotten for the other.
        schedule.finish("b", ReconcileKind::Full, both, now, BACKOFF);
        let due = schedule.next_due(FreeWorkers::ANY).unwrap();
        assert!(due <= now + BACKOFF.min, "{:?}", due - now);
        let slow = Backoff {
            min: second(200),
            max: second(200),
        };
        schedule.take(due, FreeWorkers::ANY);
        schedule.finish("b", ReconcileKind::Full, both, now, slow);
        assert_eq!(schedule.next_due(FreeWorkers::ANY), Some(now + late));
    }

    #[test]
    fn a_drift_reconcile_that_may_need_a_full_one_gets_both() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.wake("b", ReconcileKind::Drift, now);
        schedule.take(now, FreeWorkers::ANY);
        let next = Requeue::after(second(1)).and(Requeue::full_after(second(3)));
        schedule.finish("b", ReconcileKind::Drift, next, now, BACKOFF);
        let first = taken(&mut schedule, now + second(1), FreeWorkers::ANY);
        assert_eq!(first, Some(ReconcileKind::Drift));
        schedule.finish("b", ReconcileKind::Drift, Requeue::IDLE, now, BACKOFF);
        let second = taken(&mut schedule, now + second(3), FreeWorkers::ANY);
        assert_eq!(second, Some(ReconcileKind::Full));
    }

    #[tokio::test(start_paused = true)]
    async fn taking_waits_until_something_is_due() {
        let queue = Queue::new(BACKOFF, Metrics::default());
        queue.wake_after("late", ReconcileKind::Drift, second(5));
        queue.wake_after("soon", ReconcileKind::Full, second(1));
        assert_eq!(queue.take(FreeWorkers::ANY).await.0, "soon");
        assert_eq!(queue.take(FreeWorkers::ANY).await.0, "late");
    }
}
