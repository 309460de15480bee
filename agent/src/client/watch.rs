//! What all our watches share: how they go on after an error, and what it says about the credential.

use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt as _};
use kube::runtime::watcher;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::health;
use super::listed::{is_too_large, smaller_page};
use super::requests::PAGE;
use crate::error::has_code;

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
    let state = (None, Backoff::default(), None, PAGE);
    stream::unfold(state, move |(current, mut backoff, pause, mut page)| {
        let begin = Arc::clone(&begin);
        let mut current = current.unwrap_or_else(|| begin(page));
        async move {
            if let Some(pause) = pause {
                tokio::time::sleep(pause).await;
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
                // Comes before anything is asked.
                Ok(watcher::Event::Init) => (Some(current), None),
                Ok(_) => {
                    backoff.reset();
                    (Some(current), None)
                }
            };
            Some((event, (current, backoff, pause, page)))
        }
    })
    .boxed()
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

/// 0.5 s doubling to 10 s with jitter; back to the start after a success.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    const MIN: Duration = Duration::from_millis(500);
    const MAX: Duration = Duration::from_secs(10);

    fn reset(&mut self) {
        self.failures = 0;
    }
}

impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = Self::MIN
            .saturating_mul(2_u32.saturating_pow(self.failures))
            .min(Self::MAX);
        self.failures = self.failures.saturating_add(1);
        Some(pause.mul_f64(1.0 - 0.2 * rand::random::<f64>()))
    }
}

/// Whether a watch failed because upstream refuses the credential or is not who the CA says.
/// Neither heals by waiting; being forbidden or unreachable may.
pub fn is_credential_dead(failed: &watcher::Error) -> bool {
    fails_by(failed, is_refusal_of_credential, |code| code == 401)
}

/// Whether a watch failed because this credential may not have it, which rarely changes.
pub fn is_forbidden(failed: &watcher::Error) -> bool {
    fails_by(failed, |error| has_code(error, 403), |code| code == 403)
}

/// Whether a request failed for the same reasons.
pub fn is_refusal_of_credential(failed: &kube::Error) -> bool {
    has_code(failed, 401) || is_tls(failed)
}

/// Whether the API server refuses to list or watch at all: no right to, no such type.
pub fn is_refused(failed: &watcher::Error) -> bool {
    let is_refusal = |error: &_| [403, 404].iter().any(|code| has_code(error, *code));
    fails_by(failed, is_refusal, |code| code == 403 || code == 404)
}

/// Whether the API server answered, with a 4xx: it is there, whatever it says to a watch.
pub fn is_answer(failed: &watcher::Error) -> bool {
    fails_by(failed, health::is_answer, |code| (400..500).contains(&code))
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

/// Whether the chain of causes ends in a certificate that is not trusted.
fn is_tls(error: &kube::Error) -> bool {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(cause) = next {
        if let Some(rustls::Error::InvalidCertificate(_)) = cause.downcast_ref::<rustls::Error>() {
            return true;
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

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn start_failed(code: u16) -> watcher::Error {
        let status = Status::failure("x", "y").with_code(code).boxed();
        watcher::Error::WatchStartFailed(kube::Error::Api(status))
    }

    #[test]
    fn only_refused_credentials_are_dead() {
        assert!(is_credential_dead(&start_failed(401)));
        assert!(!is_credential_dead(&start_failed(403)));
        assert!(!is_credential_dead(&start_failed(500)));
        let tls = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let io = std::io::Error::other(tls);
        let service = kube::Error::Service(Box::new(io));
        assert!(is_credential_dead(&watcher::Error::InitialListFailed(
            service
        )));
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

    #[test]
    fn pauses_grow_until_a_success() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = backoff.by_ref().take(8).collect();
        assert!(pauses[0] <= Backoff::MIN && pauses[7] > Duration::from_secs(7));
        backoff.reset();
        assert!(backoff.next().is_some_and(|pause| pause <= Backoff::MIN));
    }
}
