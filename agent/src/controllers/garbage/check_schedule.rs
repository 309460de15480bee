//! When what may have changed is asked for again: held removals, and questions that were refused. No I/O.

use std::time::Duration;

use tokio::time::Instant;

/// How often it is seen, without a question, whether anything changed that held removals depend on.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The longest pause between two checks while nothing changes. Watches deliver changes; this is for those they miss.
const MAX_PAUSE: Duration = Duration::from_secs(5 * 60);

/// When held removals are checked, or what was refused is asked again, which is a request to each cluster: at the first check that sees another state
/// than the one before, and then after pauses that double.
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
    /// One whose first check was made just now.
    pub(super) fn of(state: S) -> Self {
        Self {
            seen: Some(state),
            pause: CHECK_INTERVAL,
            next: Instant::now() + CHECK_INTERVAL,
        }
    }

    /// Whether to check now, where `state` is what is known without a request.
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
    use super::*;

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
