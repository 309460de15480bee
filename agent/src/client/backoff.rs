//! The pauses between questions to a cluster that fails.

use std::time::Duration;

use tokio::time::Instant;

/// 0.5 s doubling to 10 s, and once that has gone on for long to 60 s, with jitter: never more than an eighth of the time since the first failure
/// is lost when it ends, and a million clusters do not keep an upstream from coming up. Back to the start after a success, and after what went
/// well for some time.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
    /// When the first of them was.
    since: Option<Instant>,
    begun: Option<Instant>,
}

impl Backoff {
    const MIN: Duration = Duration::from_millis(500);
    const MAX: Duration = Duration::from_secs(10);
    const MAX_AFTER_LONG: Duration = Duration::from_secs(60);

    /// The part of the time since the first failure that a longer pause may take.
    const PART: u32 = 8;

    /// What goes on for so long before it fails is no failure that follows another.
    const STEADY: Duration = Duration::from_secs(30);

    /// It went well.
    pub fn reset(&mut self) {
        (self.failures, self.since) = (0, None);
    }

    /// What may fail begins now.
    pub fn begins(&mut self) {
        self.begun = Some(Instant::now());
    }
}

impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let begun = self.begun.take();
        if begun.is_some_and(|begun| begun.elapsed() >= Self::STEADY) {
            self.reset();
        }
        let since = self.since.get_or_insert_with(Instant::now).elapsed();
        let longest = (since / Self::PART).clamp(Self::MAX, Self::MAX_AFTER_LONG);
        let pause = Self::MIN
            .saturating_mul(2_u32.saturating_pow(self.failures))
            .min(longest);
        self.failures = self.failures.saturating_add(1);
        Some(pause.mul_f64(1.0 - 0.2 * rand::random::<f64>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_success() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = backoff.by_ref().take(8).collect();
        assert!(pauses[0] <= Backoff::MIN && pauses[7] > Duration::from_secs(7));
        backoff.reset();
        assert!(backoff.next().is_some_and(|pause| pause <= Backoff::MIN));
    }

    #[tokio::test(start_paused = true)]
    async fn what_went_well_for_some_time_is_tried_again_soon() {
        let mut backoff = Backoff::default();
        let pause = backoff.by_ref().nth(6);
        assert!(pause.is_some_and(|pause| pause > Duration::from_secs(7)));
        backoff.begins();
        tokio::time::sleep(Backoff::STEADY).await;
        assert!(backoff.next().is_some_and(|pause| pause <= Backoff::MIN));
    }

    /// So many clusters may wait for one upstream.
    #[tokio::test(start_paused = true)]
    async fn who_fails_for_long_asks_once_a_minute() {
        let (mut backoff, begun) = (Backoff::default(), Instant::now());
        let mut asked = [0; 2];
        while begun.elapsed() < Duration::from_secs(2 * 3600) {
            let hour = usize::from(begun.elapsed() >= Duration::from_secs(3600));
            asked[hour] += 1;
            let pause = backoff.next().unwrap();
            let lost = (begun.elapsed() / 8).max(Backoff::MAX);
            assert!(pause <= lost.min(Backoff::MAX_AFTER_LONG));
            tokio::time::sleep(pause).await;
        }
        assert!((60..=76).contains(&asked[1]), "{asked:?}");
    }
}
