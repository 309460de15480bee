//! An API server of which a test says what it answers.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use serde_json::Value;
use tower::BoxError;
use tower::util::BoxCloneSyncService;

use super::identity::Identities;
use super::requests::{Clients, LastContact};

/// Clients whose requests are answered with a code and a body.
pub(crate) fn clients<A>(
    answer: impl Fn(Request<Body>) -> A + Clone + Send + Sync + 'static,
) -> Clients
where
    A: Future<Output = (u16, Value)> + Send + 'static,
{
    clients_with_headers(move |request| {
        let answer = answer(request);
        async {
            let (code, body) = answer.await;
            let mut answer = Response::new(body);
            *answer.status_mut() = StatusCode::from_u16(code).unwrap();
            answer
        }
    })
}

/// Like [`clients`], where answers have headers, too.
pub(crate) fn clients_with_headers<A>(
    answer: impl Fn(Request<Body>) -> A + Clone + Send + Sync + 'static,
) -> Clients
where
    A: Future<Output = Response<Value>> + Send + 'static,
{
    let serve = tower::service_fn(move |request| {
        let answer = answer(request);
        async {
            let answer = answer.await.map(|body| {
                let body = Full::new(Bytes::from(body.to_string()));
                body.map_err(|never| match never {}).boxed_unsync()
            });
            Ok::<_, BoxError>(answer)
        }
    });
    let service = BoxCloneSyncService::new(serve);
    Clients::over(move |_| service.clone())
}

/// The configuration that leads to it.
pub(crate) fn config() -> kube::Config {
    kube::Config::new(http::Uri::from_static("http://scripted"))
}

/// Identities over these clients, in namespace `system`.
pub(crate) fn identities(clients: &Clients) -> Identities {
    let (host, contact) = (release::Host::default(), LastContact::default());
    Identities::new(config(), clients.clone(), host, "system", &contact).unwrap()
}
