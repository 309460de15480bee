//! Shared by all watches: how they resume after an error, with which pauses, and what an error says about the credential.

use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt as _};
use kube::runtime::watcher;
use kube::{Api, Resource};
use release::kube::is_too_large;
use rustls::CertificateError;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::listed::smaller_page;
use super::requests::PAGE;
use crate::error::{has_code, is_answered};

/// What a watch does when its connection broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Resumes where it broke off: an object deleted meanwhile comes as a DELETED event and is not just missing from a list.
    Resume,
    /// Begins with a list: a server that was restored from a backup may not have reached the version to resume from.
    Relist,
}

/// Watches for ever. When the server ends or refuses a watch, it begins anew with a list once it has backed off. kube's watcher
/// resumes even after `410 Gone` before the first event, for ever, and starts its back-off over with each attempt to list.
pub fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
    broken: Broken,
) -> BoxStream<'static, watcher::Result<watcher::Event<K>>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    // A page is there as a whole before the first of it is seen.
    let begin = Arc::new(move |page| watcher(api.clone(), config.clone().page_size(page)).boxed());
    let state = (None, Backoff::default(), Some(Duration::ZERO), PAGE);
    stream::unfold(state, move |(current, mut backoff, pause, mut page)| {
        let begin = Arc::clone(&begin);
        let mut current = current.unwrap_or_else(|| begin(page));
        async move {
            if let Some(pause) = pause {
                tokio::time::sleep(pause).await;
                backoff.begins();
            }
            let event = loop {
                match current.next().await? {
                    Err(watcher::Error::InitialListFailed(failed))
                        if page > 1 && is_too_large(&failed) =>
                    {
                        page = smaller_page(page);
                        current = begin(page);
                    }
                    event => break event,
                }
            };
            let (current, pause) = match &event {
                Err(failed) if broken == Broken::Resume && is_broken(failed) => {
                    (Some(current), backoff.next())
                }
                Err(_) => (None, backoff.next()),
                // Of a list: whether it can be watched too is not known yet.
                Ok(
                    watcher::Event::Init | watcher::Event::InitApply(_) | watcher::Event::InitDone,
                ) => (Some(current), None),
                Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_)) => {
                    backoff.reset();
                    (Some(current), None)
                }
            };
            Some((event, (current, backoff, pause, page)))
        }
    })
    .boxed()
}

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

    /// A watch that ran this long before it failed starts its pauses anew.
    const STEADY: Duration = Duration::from_secs(30);

    /// Resets the pauses after a success.
    pub fn reset(&mut self) {
        (self.failures, self.since) = (0, None);
    }

    /// Notes when an attempt begins, to know how long it ran before it failed.
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

/// Whether the connection ended a watch, not the server.
pub fn is_broken(failed: &watcher::Error) -> bool {
    match failed {
        watcher::Error::WatchStartFailed(error) | watcher::Error::WatchFailed(error) => {
            !matches!(error, kube::Error::Api(_))
        }
        _ => false,
    }
}

/// Whether a watch failed because upstream refuses the credential or is not who the CA says: another credential may be needed. Being forbidden or
/// unreachable heals by waiting.
pub fn is_credential_refused(failed: &watcher::Error) -> bool {
    fails_by(failed, is_refusal_of_credential, |code| code == 401)
}

/// Whether a watch failed because this credential may not have it, which rarely changes.
pub fn is_forbidden(failed: &watcher::Error) -> bool {
    fails_by(failed, |error| has_code(error, 403), |code| code == 403)
}

/// Whether the server does not serve what is watched, at this moment at least.
pub fn is_unserved(failed: &watcher::Error) -> bool {
    fails_by(failed, |error| has_code(error, 404), |code| code == 404)
}

/// Whether what is watched can only be listed: the server knows no such verb for it.
pub fn is_unwatchable(failed: &watcher::Error) -> bool {
    match failed {
        watcher::Error::WatchStartFailed(error) => has_code(error, 405),
        watcher::Error::WatchError(status) => status.code == 405,
        _ => false,
    }
}

/// Whether a request failed for the same reasons.
pub fn is_refusal_of_credential(failed: &kube::Error) -> bool {
    has_code(failed, 401) || is_distrusted(failed)
}

/// Whether the API server refuses to list or watch at all: to whoever asks, no right to, no such type.
pub fn is_refused(failed: &watcher::Error) -> bool {
    const REFUSALS: [u16; 3] = [401, 403, 404];
    let is_refusal = |error: &_| REFUSALS.iter().any(|code| has_code(error, *code));
    fails_by(failed, is_refusal, |code| REFUSALS.contains(&code))
}

/// Whether the API server answered, with a 4xx: it is there, whatever it says to a watch.
pub fn is_answer(failed: &watcher::Error) -> bool {
    fails_by(failed, is_answered, |code| (400..500).contains(&code))
}

/// Whether a request of a watch failed so, or the watch was ended with such a code.
fn fails_by(
    failed: &watcher::Error,
    is_so: impl Fn(&kube::Error) -> bool,
    is_such: impl Fn(u16) -> bool,
) -> bool {
    match failed {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => is_so(error),
        watcher::Error::WatchError(status) => is_such(status.code),
        watcher::Error::NoResourceVersion => false,
    }
}

/// Whether the chain of causes ends in a certificate that is not trusted, for another reason than the time: no other credential helps against that.
fn is_distrusted(error: &kube::Error) -> bool {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(cause) = next {
        if let Some(rustls::Error::InvalidCertificate(reason)) = cause.downcast_ref() {
            return !is_of_time(reason);
        }
        // An io::Error hides what it wraps from source().
        next = match cause
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref)
        {
            Some(inner) => Some(inner),
            None => cause.source(),
        };
    }
    false
}

fn is_of_time(reason: &CertificateError) -> bool {
    matches!(
        reason,
        CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. }
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use http_body_util::{BodyExt as _, Full};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;
    use kube::core::Status;
    use rstest::rstest;
    use tower::BoxError;
    use tower::util::BoxCloneSyncService;

    use super::super::requests::{Clients, LastContact};
    use super::super::scripted;
    use super::*;

    fn start_failed(code: u16) -> watcher::Error {
        let status = Status::failure("x", "y").with_code(code).boxed();
        watcher::Error::WatchStartFailed(kube::Error::Api(status))
    }

    #[test]
    fn only_a_401_or_an_unknown_issuer_counts_as_a_refused_credential() {
        assert!(is_credential_refused(&start_failed(401)));
        assert!(!is_credential_refused(&start_failed(403)));
        assert!(!is_credential_refused(&start_failed(500)));
        let is_refused = |reason| {
            let io = std::io::Error::other(rustls::Error::InvalidCertificate(reason));
            let service = kube::Error::Service(Box::new(io));
            is_credential_refused(&watcher::Error::InitialListFailed(service))
        };
        assert!(is_refused(CertificateError::UnknownIssuer));
        // Upstream's is to be renewed, or a clock is wrong.
        let time = rustls::pki_types::UnixTime::now();
        let context = (time, time);
        for reason in [
            CertificateError::Expired,
            CertificateError::NotValidYet,
            CertificateError::ExpiredContext {
                time: context.0,
                not_after: context.1,
            },
            CertificateError::NotValidYetContext {
                time: context.0,
                not_before: context.1,
            },
        ] {
            assert!(!is_refused(reason));
        }
    }

    #[test]
    fn a_watch_resumes_only_after_a_broken_connection() {
        let reset = || kube::Error::Service("connection reset".into());
        assert!(is_broken(&watcher::Error::WatchFailed(reset())));
        assert!(is_broken(&watcher::Error::WatchStartFailed(reset())));
        assert!(!is_broken(&start_failed(410)));
        assert!(!is_broken(&watcher::Error::InitialListFailed(reset())));
        assert!(!is_broken(&watcher::Error::NoResourceVersion));
    }

    /// A watch that lists and cannot watch, or is sent no events, asks no more often than one that gets no answer at all.
    #[rstest]
    #[case::an_end_at_once(200, Broken::Relist)]
    #[case::an_end_at_once_and_no_list(200, Broken::Resume)]
    #[case::forbidden(403, Broken::Relist)]
    #[case::no_such_verb(405, Broken::Resume)]
    #[tokio::test(start_paused = true)]
    async fn a_watch_that_ends_at_once_or_is_refused_is_opened_with_back_off(
        #[case] code: u16,
        #[case] broken: Broken,
    ) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let serve = tower::service_fn(move |request: Request<Body>| {
            let counted = Arc::clone(&counted);
            async move {
                counted.fetch_add(1, Ordering::Relaxed);
                // A round trip.
                tokio::time::sleep(Duration::from_millis(5)).await;
                let is_watch = request.uri().query().unwrap_or_default().contains("watch=");
                let list = r#"{"metadata": {"resourceVersion": "5"}, "items": [{"metadata": {"name": "a"}}]}"#;
                let (code, body) = match is_watch {
                    true => (code, ""),
                    false => (200, list),
                };
                let body = Full::new(body.into()).map_err(|never| match never {});
                let mut answer = Response::new(body.boxed_unsync());
                *answer.status_mut() = http::StatusCode::from_u16(code)?;
                Ok::<_, BoxError>(answer)
            }
        });
        let service = BoxCloneSyncService::new(serve);
        let clients = Clients::over(move |_| service.clone());
        let client = clients.client(scripted::config(), &LastContact::default());
        let maps = Api::<ConfigMap>::default_namespaced(client.unwrap());
        let events = watch(maps, watcher::Config::default(), broken);
        let minute = Duration::from_secs(60);
        tokio::time::timeout(minute, events.for_each(async |_| ()))
            .await
            .unwrap_err();
        let asked = asked.load(Ordering::Relaxed);
        assert!((8..=24).contains(&asked), "{asked}");
    }

    #[test]
    fn pauses_grow_until_a_success() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = backoff.by_ref().take(8).collect();
        assert!(pauses[0] <= Backoff::MIN && pauses[7] > Duration::from_secs(7));
        backoff.reset();
        assert!(backoff.next().is_some_and(|pause| pause <= Backoff::MIN));
    }

    #[tokio::test(start_paused = true)]
    async fn a_back_off_starts_over_after_a_steady_time() {
        let mut backoff = Backoff::default();
        let pause = backoff.by_ref().nth(6);
        assert!(pause.is_some_and(|pause| pause > Duration::from_secs(7)));
        backoff.begins();
        tokio::time::sleep(Backoff::STEADY).await;
        assert!(backoff.next().is_some_and(|pause| pause <= Backoff::MIN));
    }

    /// So many clusters may wait for one upstream.
    #[tokio::test(start_paused = true)]
    async fn an_hour_of_failures_slows_retries_to_one_a_minute() {
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
