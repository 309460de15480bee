//! A limit on how long something takes, in which waiting for one's turn does not count.

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
}
