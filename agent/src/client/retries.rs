//! Retries of requests to API servers: which are sent again, and after what pause.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};
use tower::BoxError;
use tower::retry::Policy;
use tower::retry::backoff::{
    Backoff as _, ExponentialBackoff, ExponentialBackoffMaker, MakeBackoff as _,
};
use tower::util::rng::Rng;

/// After what pause a request is sent again; the next one is twice as long.
const FIRST_RETRY: Duration = Duration::from_millis(250);
const LONGEST_RETRY: Duration = Duration::from_secs(1000);
/// Up to so many times as much is added to a pause.
const RETRY_JITTER: f64 = 2.0;

/// When a server says that it may be asked again, for whoever asks: an extension of a request, which has that of the answer that is handed back.
#[derive(Clone, Debug, Default)]
pub struct RetryAfter(Arc<Mutex<Option<Duration>>>);

impl RetryAfter {
    /// After what pause; none where it did not say so, or not in seconds.
    pub fn pause(&self) -> Option<Duration> {
        *self.0.lock()
    }

    /// Takes note of an answer that is no success.
    pub(super) fn hears<B>(&self, answer: &Response<B>) {
        let is_failure = !answer.status().is_success();
        *self.0.lock() = retry_after(answer).filter(|_| is_failure);
    }
}

/// What an answer says of when to ask again, in seconds as client-go reads it.
fn retry_after<B>(answer: &Response<B>) -> Option<Duration> {
    let seconds = answer.headers().get(header::RETRY_AFTER)?.to_str().ok()?;
    seconds.parse().ok().map(Duration::from_secs)
}

/// Until when a request may be sent again.
#[derive(Clone, Copy)]
pub(super) struct LastRetry(Instant);

impl LastRetry {
    /// A retry has half of the time limit for its answer.
    pub(super) fn of(limit: Duration) -> Self {
        Self(Instant::now() + limit / 2)
    }
}

/// Retries of requests the server rejected as too many, or with a `Retry-After`, as client-go does. Callers have pauses of their own,
/// which grow where nobody answers: retries here must not multiply their requests. An answer to a change with 504 may hide that it was carried out,
/// and what is then found would count as having been there before. Where the next pause is too long the answer is handed back.
///
/// In place of kube's `RetryPolicy`, which draws once for all requests of a client: those that fail together would all come back together.
#[derive(Clone)]
pub(super) struct Retries {
    backoff: ExponentialBackoff<Drawn>,
}

/// Random numbers, drawn anew for each pause.
#[derive(Clone)]
struct Drawn;

impl Rng for Drawn {
    fn next_u64(&mut self) -> u64 {
        rand::random()
    }
}

impl Default for Retries {
    fn default() -> Self {
        let pauses = ExponentialBackoffMaker::new(FIRST_RETRY, LONGEST_RETRY, RETRY_JITTER, Drawn);
        Self {
            backoff: pauses
                .expect("the first pause is shorter than the longest")
                .make_backoff(),
        }
    }
}

impl<B> Policy<Request<Body>, Response<B>, BoxError> for Retries {
    type Future = Sleep;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<B>, BoxError>,
    ) -> Option<Sleep> {
        let answer = result.as_ref().ok()?;
        let is_read = request.method() == Method::GET;
        let says_when = answer.headers().contains_key(header::RETRY_AFTER);
        let is_sent_again = match answer.status() {
            StatusCode::TOO_MANY_REQUESTS => true,
            StatusCode::SERVICE_UNAVAILABLE => says_when,
            StatusCode::GATEWAY_TIMEOUT => is_read && says_when,
            _ => false,
        };
        if !is_sent_again {
            return None;
        }
        let pause = self.backoff.next_backoff();
        let is_longer = |retry_after: &Duration| {
            let after = Instant::now().checked_add(*retry_after);
            after.is_none_or(|after| pause.deadline() <= after)
        };
        let pause = match retry_after(answer).filter(is_longer) {
            Some(retry_after) => tokio::time::sleep(retry_after),
            None => pause,
        };
        let last = request.extensions().get::<LastRetry>()?;
        (pause.deadline() <= last.0).then_some(pause)
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        let mut copy = Request::new(request.body().try_clone()?);
        request.method().clone_into(copy.method_mut());
        request.uri().clone_into(copy.uri_mut());
        *copy.version_mut() = request.version();
        request.headers().clone_into(copy.headers_mut());
        request.extensions().clone_into(copy.extensions_mut());
        Some(copy)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use rstest::rstest;

    use super::super::requests::{LastContact, READ_TIMEOUT, WRITE_TIMEOUT, layered};
    use super::*;

    /// A change that may have been carried out is not sent again: a second creation would meet the object as one that was there before.
    #[rstest]
    #[case::a_read(Method::GET, 503, None, false)]
    #[case::a_read_while_the_server_shuts_down(Method::GET, 503, Some("1"), true)]
    #[case::a_read_that_took_too_long(Method::GET, 504, None, false)]
    #[case::a_read_that_may_be_asked_again(Method::GET, 504, Some("1"), true)]
    #[case::a_read_after_too_long(Method::GET, 503, Some("16"), false)]
    #[case::a_change(Method::PATCH, 503, None, false)]
    #[case::a_change_that_took_too_long(Method::POST, 504, Some("1"), false)]
    #[case::a_change_while_the_server_shuts_down(Method::PATCH, 503, Some("1"), true)]
    #[case::too_many_changes(Method::PATCH, 429, None, true)]
    #[case::a_refusal(Method::PATCH, 409, None, false)]
    #[tokio::test(start_paused = true)]
    async fn a_change_is_sent_again_only_where_the_server_says_so(
        #[case] method: Method,
        #[case] code: u16,
        #[case] again_after: Option<&'static str>,
        #[case] is_repeated: bool,
    ) {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let serve = tower::service_fn(move |_: Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            let mut answer = Response::builder().status(code);
            if let Some(seconds) = again_after {
                answer = answer.header(header::RETRY_AFTER, seconds);
            }
            let body = http_body_util::Full::new(Bytes::from_static(b"{}"));
            let answer = answer.body(body).unwrap();
            async { Ok::<_, BoxError>(answer) }
        });
        let config = kube::Config::new(http::Uri::from_static("http://unused"));
        let client = layered(serve, config, &LastContact::default()).unwrap();
        let request = Request::builder().method(method).uri("/x");
        let request = request.body(Vec::new()).unwrap();
        client.request_text(request).await.unwrap_err();
        assert_eq!(count.load(Ordering::Relaxed) > 1, is_repeated);
    }

    /// Refused requests return their error, and come ever more rarely; a server that refuses is there.
    #[rstest]
    #[case::without_saying_when(None)]
    #[case::again_and_again(Some("1"))]
    #[case::for_longer_than_anybody_waits(Some("18446744073709551615"))]
    #[tokio::test(start_paused = true)]
    async fn a_request_that_stays_refused_with_429_returns_the_refusal(
        #[case] again_after: Option<&'static str>,
    ) {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let serve = tower::service_fn(move |_: Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            let mut answer = Response::builder().status(429);
            if let Some(seconds) = again_after {
                answer = answer.header(header::RETRY_AFTER, seconds);
            }
            let body = http_body_util::Full::new(Bytes::from_static(b"{\"code\": 429}"));
            let answer = answer.body(body).unwrap();
            async { Ok::<_, BoxError>(answer) }
        });
        let config = kube::Config::new(http::Uri::from_static("http://unused"));
        let last_contact = LastContact::default();
        let client = layered(serve, config, &last_contact).unwrap();
        for (method, limit) in [(Method::GET, READ_TIMEOUT), (Method::PATCH, WRITE_TIMEOUT)] {
            let (begun, before) = (Instant::now(), count.load(Ordering::Relaxed));
            let request = Request::builder().method(method).uri("/x");
            let request = request.body(Vec::new()).unwrap();
            let failed = client.request_text(request).await.unwrap_err();
            assert!(crate::error::has_code(&failed, 429), "{failed}");
            assert!(begun.elapsed() <= limit / 2);
            let asked = count.load(Ordering::Relaxed) - before;
            assert!((1..=8).contains(&asked), "{asked}");
            assert_eq!(last_contact.last(), Instant::now());
        }
    }

    /// Requests that fail together are not retried together.
    #[tokio::test(start_paused = true)]
    async fn retries_of_two_requests_wait_different_times() {
        let pauses = |retries: &Retries| {
            let mut retries = retries.clone();
            let mut request = Request::new(Body::empty());
            request.extensions_mut().insert(LastRetry::of(READ_TIMEOUT));
            let refused = Response::builder().status(429).body(()).unwrap();
            let mut answer: Result<Response<()>, BoxError> = Ok(refused);
            let mut pauses = Vec::new();
            while let Some(pause) = retries.retry(&mut request, &mut answer) {
                pauses.push(pause.deadline() - Instant::now());
            }
            pauses
        };
        let retries = Retries::default();
        let (one, other) = (pauses(&retries), pauses(&retries));
        assert_ne!(one, other);
        assert!(one[0] >= FIRST_RETRY && one[0] <= FIRST_RETRY * 3);
        assert!(one.iter().all(|pause| *pause <= READ_TIMEOUT / 2));
    }
}
