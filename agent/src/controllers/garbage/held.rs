//! Which removals are held back: written down, so that what a person lets go later is what was held by then. And when they are looked at again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::ledger::Ledger;

/// What is to be marked.
#[derive(Default)]
struct Waiting {
    next: BTreeSet<String>,
    /// What is being marked, or could not be.
    batch: BTreeSet<String>,
}

/// Marks what is held back.
pub(super) struct Held {
    ledger: Arc<Ledger>,
    waiting: Mutex<Waiting>,
    /// Held while marking: bundles that come meanwhile are marked together after it.
    marking: tokio::sync::Mutex<()>,
    /// When bundles were last held for being too many at once.
    last_wave: Mutex<Option<Instant>>,
    /// How long after that others count as gone with them.
    wave: Duration,
}

impl Held {
    pub(super) fn new(ledger: &Arc<Ledger>, wave: Duration) -> Self {
        Self {
            ledger: Arc::clone(ledger),
            waiting: Mutex::default(),
            marking: tokio::sync::Mutex::default(),
            last_wave: Mutex::default(),
            wave,
        }
    }

    /// Too many bundles are gone at once: those that go next may have gone with them.
    pub(super) fn note_wave(&self) {
        *self.last_wave.lock() = Some(Instant::now());
    }

    /// Whether what goes now goes with those that are held.
    pub(super) fn is_in_wave(&self) -> bool {
        let last = *self.last_wave.lock();
        last.is_some_and(|last| last.elapsed() < self.wave)
    }

    /// Marks bundles as held. A permission that was given before is not for them: it is taken in first.
    ///
    /// # Errors
    /// The ledger cannot be read or written; they are not marked.
    pub(super) async fn hold(&self, bundles: BTreeSet<String>) -> kube::Result<()> {
        self.waiting.lock().next.extend(bundles.iter().cloned());
        let _marking = self.marking.lock().await;
        {
            let mut waiting = self.waiting.lock();
            let next = std::mem::take(&mut waiting.next);
            waiting.batch.extend(next);
            if waiting.batch.is_disjoint(&bundles) {
                // They went with the batch before.
                return Ok(());
            }
        }
        self.ledger.take_permission().await?;
        // Some may be back by now.
        let batch = self.waiting.lock().batch.clone();
        self.ledger.hold(&batch).await?;
        self.waiting.lock().batch.clear();
        Ok(())
    }

    /// Bundles are to be held once the ledger can be written.
    pub(super) fn is_to_hold(&self, bundles: BTreeSet<String>) {
        self.waiting.lock().next.extend(bundles);
    }

    /// How many bundles are about to be marked.
    pub(super) fn len(&self) -> usize {
        let waiting = self.waiting.lock();
        waiting.next.union(&waiting.batch).count()
    }

    /// Whether a bundle is to be held, and that is not known to be written yet.
    pub(super) fn is_waiting(&self, bundle: &str) -> bool {
        let waiting = self.waiting.lock();
        waiting.next.contains(bundle) || waiting.batch.contains(bundle)
    }

    /// The bundle is there, or nothing of it is.
    pub(super) fn forget(&self, bundle: &str) {
        let mut waiting = self.waiting.lock();
        waiting.next.remove(bundle);
        waiting.batch.remove(bundle);
    }
}

/// How often it is seen, without a question, whether anything changed that held removals depend on.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The longest pause between two looks while nothing changes. Watches tell of what does; this is for what they miss.
const MAX_PAUSE: Duration = Duration::from_secs(5 * 60);

/// When held removals are looked at, which is a question to each side: at the first look that sees another state than the one before, and
/// then after pauses that double.
pub(super) struct CheckSchedule<S> {
    seen: Option<S>,
    pause: Duration,
    next: Instant,
}

impl<S> Default for CheckSchedule<S> {
    fn default() -> Self {
        Self {
            seen: None,
            pause: CHECK_INTERVAL,
            next: Instant::now(),
        }
    }
}

impl<S: PartialEq> CheckSchedule<S> {
    /// Whether to look now, where what is known without a question is `state`.
    pub(super) fn is_due(&mut self, state: S) -> bool {
        let now = Instant::now();
        if self.seen.as_ref() != Some(&state) {
            self.seen = Some(state);
            self.pause = CHECK_INTERVAL;
        } else if now < self.next {
            return false;
        } else {
            self.pause = (self.pause * 2).min(MAX_PAUSE);
        }
        self.next = now + self.pause;
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::scripted;
    use crate::ledger::Hold;

    /// Each request takes its time. Of three that went together one alone would be few enough to be removed meanwhile.
    #[tokio::test(start_paused = true)]
    async fn what_is_being_written_as_held_counts_as_held_unless_it_is_back() {
        let slow = Duration::from_secs(10);
        let clients = scripted::clients(move |_| async move {
            tokio::time::sleep(slow).await;
            let data = json!({"apps_a": r#"{"bundle":"a"}"#, "apps_b": r#"{"bundle":"b"}"#});
            (
                200,
                json!({"metadata": {"resourceVersion": "1"}, "data": data}),
            )
        });
        let agent = scripted::identities(&clients).agent();
        let ledger = Arc::new(Ledger::load(&agent, "system").await.unwrap());
        let held = Held::new(&ledger, Duration::ZERO);
        let coming_back = async {
            tokio::time::sleep(slow / 2).await;
            let waiting = ["a", "b"].map(|bundle| held.is_waiting(bundle));
            held.forget("a");
            waiting
        };
        let bundles = ["a", "b"].map(str::to_owned);
        let (marked, waiting) = tokio::join!(held.hold(bundles.into()), coming_back);
        marked.unwrap();
        assert_eq!((waiting, held.len()), ([true; 2], 0));
        let holds = ["a", "b"].map(|bundle| ledger.of_bundle(bundle)[0].1.hold);
        assert_eq!(holds, [None, Some(Hold::Held)]);
    }

    #[tokio::test(start_paused = true)]
    async fn held_removals_are_checked_after_changes_and_else_with_back_off() {
        let mut schedule = CheckSchedule::default();
        let mut checks = async |state: u8, count: usize| {
            let mut due = Vec::new();
            for _ in 0..count {
                due.push(schedule.is_due(state));
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
            due
        };
        assert_eq!(
            checks(1, 8).await,
            [true, true, false, true, false, false, false, true]
        );
        let day = checks(1, 24 * 360).await;
        let due = day.into_iter().filter(|is_due| *is_due).count();
        assert!((280..300).contains(&due), "{due}");
        assert_eq!(checks(2, 3).await, [true, true, false]);
    }
}
