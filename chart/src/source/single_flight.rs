//! Doing a thing once, however many ask for it at the same time.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;

/// Running work by key. Whoever asks while it runs waits for the same result.
///
/// The work goes on as long as one of those who wait is still there; when the last one leaves it
/// is dropped, and the next one starts afresh.
pub(super) struct SingleFlight<K, T: Clone> {
    running: Mutex<HashMap<K, WeakShared<BoxFuture<'static, T>>>>,
}

impl<K, T: Clone> Default for SingleFlight<K, T> {
    fn default() -> Self {
        Self {
            running: Mutex::default(),
        }
    }
}

impl<K: Eq + Hash + Clone, T: Clone + Send + Sync + 'static> SingleFlight<K, T> {
    /// Joins the work under `key`, or starts it.
    pub(super) async fn run<F>(&self, key: K, start: impl FnOnce() -> F) -> T
    where
        F: Future<Output = T> + Send + 'static,
    {
        let flight = self.join(&key, start);
        let result = flight.await;
        let mut running = self.running.lock();
        // Finished or abandoned work upgrades to nothing worth joining.
        running.retain(|_, weak| weak.upgrade().is_some_and(|shared| shared.peek().is_none()));
        result
    }

    fn join<F>(&self, key: &K, start: impl FnOnce() -> F) -> Shared<BoxFuture<'static, T>>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut running = self.running.lock();
        if let Some(flight) = running.get(key).and_then(WeakShared::upgrade)
            && flight.peek().is_none()
        {
            return flight;
        }
        let flight = start().boxed().shared();
        if let Some(weak) = flight.downgrade() {
            running.insert(key.clone(), weak);
        }
        flight
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn all_callers_get_the_result_of_one_download() {
        let flights = Arc::new(SingleFlight::<&str, usize>::default());
        let runs = Arc::new(AtomicUsize::new(0));
        let ask = || {
            let (flights, runs) = (Arc::clone(&flights), Arc::clone(&runs));
            async move {
                flights
                    .run("chart", || async move {
                        for _ in 0..1000 {
                            tokio::task::yield_now().await;
                        }
                        runs.fetch_add(1, Ordering::SeqCst) + 1
                    })
                    .await
            }
        };
        let answers = futures_util::future::join_all((0..50).map(|_| ask())).await;
        assert_eq!(answers, vec![1; 50]);
        assert_eq!(ask().await, 2, "finished work is not handed out again");
        assert!(flights.running.lock().is_empty());
    }

    #[tokio::test]
    async fn a_cancelled_download_is_started_again_by_the_next_caller() {
        let flights = SingleFlight::<&str, u8>::default();
        let stuck = flights.run("k", futures_util::future::pending);
        assert!(stuck.now_or_never().is_none());
        assert_eq!(flights.run("k", || async { 7 }).await, 7);
    }
}
