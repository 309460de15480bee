//! How long one monitoring of a bundle's objects waits for dry runs that fail, or are slow.
//!
//! A webhook that hangs, or takes its time, holds up each dry run for up to half a minute, and with it a worker, while others, of objects that no webhook
//! is asked about, are answered at once: those are asked for to the end. An API server that does not answer at all is not asked once for each object.

use std::future::Future;
use std::time::Duration;

use release::kube::ApiError;
use tokio::time::{Instant, timeout};

/// How long dry runs are waited for in all, each to its end.
const BUDGET: Duration = Duration::from_secs(20);
/// What a verdict may take without using up any of that: a small cluster, or one over a slow link, takes so long for each.
const PROMPT: Duration = Duration::from_secs(1);
/// How long each further dry run is waited for.
const SHORT_TIMEOUT: Duration = Duration::from_millis(500);
/// After so many dry runs cut short, no others are sent.
const MAX_CUT_SHORT: u32 = 40;
/// After so many dry runs without any answer, no others are sent.
const MAX_UNANSWERED: u32 = 2;

/// Time and failures that dry runs have used up so far.
#[derive(Debug, Default)]
pub(super) struct DryRunBudget {
    waited: Duration,
    cut_short: u32,
    unanswered: u32,
}

impl DryRunBudget {
    /// Whether no others are to be asked for.
    pub(super) fn is_exhausted(&self) -> bool {
        self.cut_short >= MAX_CUT_SHORT || self.unanswered >= MAX_UNANSWERED
    }

    /// Waits for the answer to a dry run, for as long as the budget lasts.
    ///
    /// # Errors
    /// It is refused, or does not come in time.
    ///
    /// # Cancellation
    /// As safe as the dry run.
    pub(super) async fn wait<T>(
        &mut self,
        dry_run: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        let begun = Instant::now();
        let is_short = self.waited >= BUDGET;
        let answer = match is_short {
            true => timeout(SHORT_TIMEOUT, dry_run)
                .await
                .unwrap_or(Err(ApiError::Timeout(SHORT_TIMEOUT))),
            false => dry_run.await,
        };
        let took = begun.elapsed();
        let failed = answer.as_ref().err().filter(|error| !error.is_lasting());
        let Some(failed) = failed else {
            self.waited += took.saturating_sub(PROMPT);
            return answer;
        };
        self.waited += took;
        match failed {
            _ if is_short && took >= SHORT_TIMEOUT => self.cut_short += 1,
            // The API server does not answer, or has too many requests. One object alone may have a webhook that hangs.
            failed if failed.code().is_none_or(|code| code == 429) => self.unanswered += 1,
            _ => {}
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use tokio::time::sleep;

    use super::*;

    /// What an API server says once a webhook has not answered for ten seconds.
    async fn hanging() -> Result<(), ApiError> {
        sleep(Duration::from_secs(10)).await;
        let said = "failed calling webhook \"x\": context deadline exceeded";
        let status = Status::failure(said, "InternalError").with_code(500);
        Err(ApiError::Refused(status.boxed()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_webhook_delays_drift_detection_by_less_than_a_minute() {
        let begun = Instant::now();
        let mut budget = DryRunBudget::default();
        let mut asked = 0;
        while !budget.is_exhausted() {
            asked += 1;
            budget.wait(hanging()).await.unwrap_err();
            // Dry runs of objects without a webhook are answered all the same.
            let soon = async {
                sleep(Duration::from_millis(100)).await;
                Ok(())
            };
            budget.wait(soon).await.unwrap();
        }
        assert_eq!(asked, 42);
        assert!(begun.elapsed() < Duration::from_secs(60));
    }

    /// A look at so many objects, each dry run of which takes so long: how many are answered, and how long it took.
    async fn monitor(
        objects: usize,
        takes: Duration,
        answer: fn() -> Result<(), ApiError>,
    ) -> (usize, Duration) {
        let (begun, mut budget, mut answered) = (Instant::now(), DryRunBudget::default(), 0);
        for _ in 0..objects {
            if budget.is_exhausted() {
                break;
            }
            let dry_run = async {
                sleep(takes).await;
                answer()
            };
            let answer = budget.wait(dry_run).await;
            answered += usize::from(answer.is_ok());
        }
        (answered, begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn slow_answers_end_a_look_in_a_minute_as_failures_do() {
        let refused = || {
            let status = Status::failure("denied", "Forbidden").with_code(403);
            Err(ApiError::Refused(status.boxed()))
        };
        for answer in [|| Ok(()), refused] {
            let (_, took) = monitor(300, Duration::from_secs(25), answer).await;
            assert!(took < Duration::from_secs(60), "{took:?}");
        }
    }

    /// A small cluster, or one over a slow link.
    #[tokio::test(start_paused = true)]
    async fn answers_within_a_second_are_waited_for_however_many_they_are() {
        for takes in [100, 1_000].map(Duration::from_millis) {
            let done = monitor(300, takes, || Ok(())).await;
            assert_eq!(done, (300, 300 * takes));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn dry_runs_end_after_two_without_an_answer() {
        let mut budget = DryRunBudget::default();
        for _ in 0..MAX_UNANSWERED {
            assert!(!budget.is_exhausted());
            let silent = std::future::ready(Err::<(), _>(ApiError::Timeout(SHORT_TIMEOUT)));
            budget.wait(silent).await.unwrap_err();
        }
        assert!(budget.is_exhausted());
    }
}
