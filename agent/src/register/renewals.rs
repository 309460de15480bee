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
    /// Those that soon followed another one.
    in_a_row: u32,
}

impl Renewals {
    /// The longest pause before a renewal that follows another one; after so long a time the next is the first again.
    const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);

    /// How long a renewal that is asked for now has to wait: nothing, then `first` and ever longer.
    pub(super) fn pause(&self, now: Instant, first: Duration) -> Duration {
        let longest = Self::LONGEST_PAUSE;
        let mut renewed = self.0.lock();
        let is_recent = |at: Instant| now.saturating_duration_since(at) < longest;
        renewed.in_a_row = match renewed.last.is_some_and(is_recent) {
            true => renewed.in_a_row.saturating_add(1),
            false => 0,
        };
        let pause = match renewed.in_a_row.checked_sub(1) {
            None => Duration::ZERO,
            Some(more) => first
                .saturating_mul(2_u32.saturating_pow(more))
                .min(longest),
        };
        renewed.last = Some(now + pause);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn registrations_in_a_row_wait_ever_longer() {
        let renewals = Renewals::default();
        for (after, expected) in [(0, 0), (1, 60), (100, 120), (300, 240), (8 * 60 * 60, 0)] {
            let later = Instant::now() + Duration::from_secs(after);
            let pause = renewals.pause(later, Duration::from_secs(60));
            assert_eq!(pause, Duration::from_secs(expected));
        }
    }
}
