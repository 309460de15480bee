//! Counting requests to the API servers: `rest_client_requests_total`, with client-go's labels.
//!
//! One family for the process, as client-go has one registry: clients are made in several places and live as long as their
//! credential. Requests on behalf of bundles count too; nothing of a request but its method, its server and the status code is kept.

use std::sync::LazyLock;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use kube::Client;
use kube::client::{Body, ClientBuilder};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tower_layer::layer_fn;
use tower_service::Service;

/// Name of the metric, without the suffix that counters get.
pub const NAME: &str = "rest_client_requests";

/// What client-go calls the code of a request that no server answered.
const NO_ANSWER: &str = "<error>";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    code: String,
    method: String,
    host: String,
}

static REQUESTS: LazyLock<Family<Labels, Counter>> = LazyLock::new(Family::default);

/// The counts, for the page of metrics.
pub fn counts() -> impl prometheus_client::registry::Metric {
    REQUESTS.clone()
}

/// A client whose requests are counted.
///
/// # Errors
/// The configuration is no good.
pub fn client(config: kube::Config) -> kube::Result<Client> {
    let authority = config.cluster_url.authority();
    let host = authority.map_or_else(String::new, ToString::to_string);
    let counted = layer_fn(|inner| Counted {
        inner,
        host: host.clone(),
    });
    Ok(ClientBuilder::try_from(config)?
        .with_layer(&counted)
        .build())
}

struct Counted<S> {
    inner: S,
    /// The server all requests go to.
    host: String,
}

impl<S, B> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = request.method().to_string();
        let host = self.host.clone();
        let answer = self.inner.call(request);
        async move {
            let answer = answer.await;
            let code = answer.as_ref().map_or_else(
                |_| NO_ANSWER.to_owned(),
                |answer| answer.status().as_u16().to_string(),
            );
            REQUESTS.get_or_create(&Labels { code, method, host }).inc();
            answer
        }
        .boxed()
    }
}
