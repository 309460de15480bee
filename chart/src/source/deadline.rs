//! How long a download may take. [`Deadline`]: all in all, in which waiting for memory does not count. [`Pace`]: how fast it has to
//! come if it takes memory from others; a server that goes on for ever, a byte at a time, is not waited for.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Runs from the beginning, and stands still while one waits for others.
#[derive(Debug)]
pub(super) struct Deadline {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    ran: Duration,
    /// Since when it runs; it stands still otherwise.
    since: Option<Instant>,
}

impl Deadline {
    /// Begins now.
    pub(super) fn started() -> Self {
        let state = State {
            ran: Duration::ZERO,
            since: Some(Instant::now()),
        };
        Self {
            state: Mutex::new(state),
            changed: Notify::new(),
        }
    }

    /// Waits for something that others hold up.
    ///
    /// # Cancellation
    /// Not safe: it stands still from then on.
    pub(super) async fn paused_while<T>(&self, wait: impl Future<Output = T>) -> T {
        {
            let mut state = self.state.lock();
            if let Some(since) = state.since.take() {
                state.ran += since.elapsed();
            }
        }
        self.changed.notify_one();
        let done = wait.await;
        self.state.lock().since = Some(Instant::now());
        self.changed.notify_one();
        done
    }

    /// Returns once it has run for so long.
    pub(super) async fn expired(&self, limit: Duration) {
        loop {
            let left = {
                let State { ran, since } = *self.state.lock();
                since.map(|since| limit.saturating_sub(ran + since.elapsed()))
            };
            match left {
                Some(Duration::ZERO) => return,
                Some(left) => {
                    tokio::select! {
                        () = tokio::time::sleep(left) => {}
                        () = self.changed.notified() => {}
                    }
                }
                None => self.changed.notified().await,
            }
        }
    }
}

/// The least that comes of a download in so much time of waiting for it. Generous: at this pace nothing above 640 KiB comes within the
/// five minutes that a download has.
pub(super) const LEAST_BYTES: u64 = 64 << 10;
pub(super) const WITHIN: Duration = Duration::from_secs(30);

/// Bytes received since there were last enough of them, and the time waited for these. Waits for other things do not count.
#[derive(Debug, Default)]
pub(super) struct Pace {
    bytes: u64,
    waited: Duration,
}

impl Pace {
    /// Whether the server is to be given up, after so many bytes more that were waited for so long.
    pub(super) fn is_too_slow(&mut self, bytes: u64, waited: Duration) -> bool {
        self.bytes += bytes;
        self.waited += waited;
        if self.bytes >= LEAST_BYTES {
            *self = Self::default();
        }
        self.waited >= WITHIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn paused_while_for_others_does_not_count() {
        let second = Duration::from_secs;
        let deadline = Deadline::started();
        let begun = Instant::now();
        let work = async {
            tokio::time::sleep(second(2)).await;
            deadline.paused_while(tokio::time::sleep(second(600))).await;
            tokio::time::sleep(second(600)).await;
        };
        tokio::select! {
            () = work => panic!("it had 5 s"),
            () = deadline.expired(second(5)) => {}
        }
        assert_eq!(begun.elapsed().as_secs(), 605);
    }

    #[test]
    fn a_trickle_is_given_up_and_a_slow_link_is_not() {
        let second = Duration::from_secs(1);
        let mut trickle = Pace::default();
        let given_up = (1..1_000).find(|_| trickle.is_too_slow(1, second));
        assert_eq!(given_up, Some(30));
        let mut slow = Pace::default();
        assert!((1..1_000).all(|_| !slow.is_too_slow(2_300, second)));
        // A pause within the limit, and then all of it at once.
        let mut pauses = Pace::default();
        assert!((1..1_000).all(|_| !pauses.is_too_slow(LEAST_BYTES, 29 * second)));
    }
}
