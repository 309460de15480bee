//! How soon a credential that works may be renewed again.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// When the credential was renewed last: where two tools restore a bootstrap Secret of their own each, registrations become rare.
/// Cheap to clone, all clones share.
#[derive(Clone, Default)]
pub struct Renewals(Arc<Mutex<Renewed>>);

#[derive(Default)]
struct Renewed {
    last: Option<Instant>,
    /// Renewals that soon followed another one.
    in_a_row: u32,
}

impl Renewed {
    /// When the next may be: `first` after the last one, then ever later.
    fn due(&self, first: Duration) -> Option<Instant> {
        let pause = first.saturating_mul(2_u32.saturating_pow(self.in_a_row));
        Some(self.last? + pause.min(Renewals::LONGEST_PAUSE))
    }
}

impl Renewals {
    /// The longest pause between two renewals; who waits for so long after the next was due is the first again.
    const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);

    /// How long a renewal has to wait, however often that is asked: what is asked for and comes to nothing puts nothing off.
    pub(super) fn pause(&self, now: Instant, first: Duration) -> Duration {
        let due = self.0.lock().due(first);
        due.map_or(Duration::ZERO, |due| due.saturating_duration_since(now))
    }

    /// The credential was renewed.
    pub(super) fn count(&self, now: Instant, first: Duration) {
        let mut renewed = self.0.lock();
        let is_recent = |due: Instant| now.saturating_duration_since(due) < Self::LONGEST_PAUSE;
        renewed.in_a_row = match renewed.due(first).is_some_and(is_recent) {
            true => renewed.in_a_row.saturating_add(1),
            false => 0,
        };
        renewed.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn registrations_in_a_row_wait_ever_longer() {
        const FIRST: Duration = Duration::from_secs(60);
        let renewals = Renewals::default();
        let begun = Instant::now();
        let asked = |after: u64| {
            let at = begun + Duration::from_secs(after);
            (at, renewals.pause(at, FIRST).as_secs())
        };
        for (after, expected, left) in [
            (0, 0, 60),
            (60, 0, 120),
            (180, 0, 240),
            // Two hours later.
            (8_000, 0, 60),
        ] {
            let (at, pause) = asked(after);
            assert_eq!(pause, expected);
            renewals.count(at, FIRST);
            assert_eq!(asked(after).1, left);
            // A second question does not begin the wait again.
            assert_eq!(asked(after + 20).1, left - 20);
        }
        for _ in 0..10 {
            renewals.count(begun + Duration::from_secs(8_000), FIRST);
        }
        assert_eq!(asked(8_000).1, 3_600);
        // Once an hour, it stays at that.
        renewals.count(begun + Duration::from_secs(8_000 + 3_600), FIRST);
        assert_eq!(asked(8_000 + 3_600).1, 3_600);
    }
}
