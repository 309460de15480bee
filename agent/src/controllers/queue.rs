//! The work queue: which bundle needs a pass, when, and that no bundle is worked on twice at once.
//!
//! Replaces controller-runtime's two queues. One bundle has one entry, so a drift pass and a
//! reconcile of the same bundle never overlap. Failed passes back off per bundle, 5 ms to 60 s
//! with jitter; an event cuts the wait short.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// What a bundle is woken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Everything: deploy if needed, then look.
    Full,
    /// Look at live objects, and correct them if wanted.
    Drift,
}

/// How a pass wants to be followed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait for an event.
    Idle,
    /// Come back after this long; not a failure.
    After(Duration),
    /// Come back after a back-off.
    Retry,
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
    running: bool,
    failures: u32,
}

impl Entry {
    fn due(&self) -> Option<Instant> {
        match (self.full, self.drift) {
            (Some(full), Some(drift)) => Some(full.min(drift)),
            (full, drift) => full.or(drift),
        }
    }
}

/// The queue, without waiting: everything happens at a given instant.
#[derive(Debug, Default)]
struct Schedule {
    entries: HashMap<String, Entry>,
}

impl Schedule {
    fn wake(&mut self, name: &str, pass: Pass, at: Instant) {
        let entry = self.entries.entry(name.to_owned()).or_default();
        let slot = match pass {
            Pass::Full => &mut entry.full,
            Pass::Drift => &mut entry.drift,
        };
        *slot = Some(slot.map_or(at, |due| due.min(at)));
    }

    /// The bundle that has been due longest, if any. A full pass covers a drift pass.
    fn take(&mut self, now: Instant) -> Option<(String, Pass)> {
        let (name, entry) = self
            .entries
            .iter_mut()
            .filter(|(_, entry)| !entry.running && entry.due().is_some_and(|due| due <= now))
            .min_by_key(|(_, entry)| entry.due())?;
        entry.running = true;
        let full_is_due = entry.full.is_some_and(|due| due <= now);
        entry.drift = None;
        if full_is_due {
            entry.full = None;
        }
        Some((
            name.clone(),
            if full_is_due { Pass::Full } else { Pass::Drift },
        ))
    }

    fn finish(&mut self, name: &str, pass: Pass, next: Next, now: Instant, backoff: Backoff) {
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        entry.running = false;
        entry.failures = match next {
            Next::Retry => entry.failures.saturating_add(1),
            Next::Idle | Next::After(_) => 0,
        };
        let pause = match next {
            Next::Idle => None,
            Next::After(pause) => Some(pause),
            Next::Retry => Some(backoff.pause(entry.failures, rand::random())),
        };
        match pause {
            Some(pause) => self.wake(name, pass, now + pause),
            None if entry.due().is_none() => {
                self.entries.remove(name);
            }
            None => {}
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.entries
            .values()
            .filter(|entry| !entry.running)
            .filter_map(Entry::due)
            .min()
    }

    fn depth(&self, now: Instant) -> usize {
        let due = |entry: &&Entry| !entry.running && entry.due().is_some_and(|due| due <= now);
        self.entries.values().filter(due).count()
    }
}

/// The queue; shared by reference.
#[derive(Debug)]
pub struct Queue {
    schedule: Mutex<Schedule>,
    changed: Notify,
    backoff: Backoff,
}

impl Queue {
    /// An empty queue.
    pub fn new(backoff: Backoff) -> Self {
        Self {
            schedule: Mutex::default(),
            changed: Notify::new(),
            backoff,
        }
    }

    /// Asks for a pass now, or as soon as the running one ends.
    pub fn wake(&self, name: &str, pass: Pass) {
        self.wake_after(name, pass, Duration::ZERO);
    }

    /// Asks for a pass in a while. An earlier date that is already set stays.
    pub fn wake_after(&self, name: &str, pass: Pass, delay: Duration) {
        self.lock().wake(name, pass, Instant::now() + delay);
        self.changed.notify_one();
    }

    /// Waits for a bundle that is due. Follow with [`Queue::finish`].
    ///
    /// # Cancellation
    /// Safe: a bundle is taken only when it is returned.
    pub async fn take(&self) -> (String, Pass) {
        loop {
            let next = {
                let mut schedule = self.lock();
                if let Some(taken) = schedule.take(Instant::now()) {
                    return taken;
                }
                schedule.next_due()
            };
            let until_due = async {
                match next {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.changed.notified() => {}
                () = until_due => {}
            }
        }
    }

    /// Ends a pass.
    pub fn finish(&self, name: &str, pass: Pass, next: Next) {
        self.lock()
            .finish(name, pass, next, Instant::now(), self.backoff);
        self.changed.notify_one();
    }

    /// Bundles due and not being worked on.
    pub fn depth(&self) -> usize {
        self.lock().depth(Instant::now())
    }

    fn lock(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
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

    #[test]
    fn one_bundle_is_never_taken_twice() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.wake("b", Pass::Full, now);
        assert_eq!(schedule.take(now), Some(("b".into(), Pass::Full)));
        schedule.wake("b", Pass::Drift, now);
        assert_eq!(schedule.take(now), None);
        schedule.finish("b", Pass::Full, Next::Idle, now, BACKOFF);
        assert_eq!(schedule.take(now), Some(("b".into(), Pass::Drift)));
        schedule.finish("b", Pass::Drift, Next::Idle, now, BACKOFF);
        assert!(schedule.entries.is_empty());
    }

    #[test]
    fn drift_events_collapse() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.wake("b", Pass::Drift, now + second(5));
        schedule.wake("b", Pass::Drift, now + second(8));
        assert_eq!(schedule.take(now + second(4)), None);
        assert_eq!(
            schedule.take(now + second(5)),
            Some(("b".into(), Pass::Drift))
        );
        schedule.finish("b", Pass::Drift, Next::Idle, now, BACKOFF);
        assert_eq!(schedule.take(now + second(9)), None);
    }

    #[test]
    fn an_event_cuts_a_back_off_short() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.wake("b", Pass::Full, now);
        schedule.take(now);
        schedule.finish(
            "b",
            Pass::Full,
            Next::Retry,
            now,
            Backoff {
                min: second(50),
                ..BACKOFF
            },
        );
        assert_eq!(schedule.take(now + second(1)), None);
        schedule.wake("b", Pass::Full, now + second(1));
        assert!(schedule.take(now + second(1)).is_some());
    }

    #[test]
    fn pauses_double_up_to_the_cap() {
        assert_eq!(BACKOFF.pause(1, 0.0), Duration::from_millis(5));
        assert_eq!(BACKOFF.pause(4, 0.0), Duration::from_millis(40));
        assert_eq!(BACKOFF.pause(60, 0.0), second(60));
        assert_eq!(BACKOFF.pause(60, 1.0), second(48));
    }

    #[tokio::test(start_paused = true)]
    async fn taking_waits_until_something_is_due() {
        let queue = Queue::new(BACKOFF);
        queue.wake_after("late", Pass::Drift, second(5));
        queue.wake_after("soon", Pass::Full, second(1));
        assert_eq!(queue.take().await.0, "soon");
        assert_eq!(queue.take().await.0, "late");
    }
}
