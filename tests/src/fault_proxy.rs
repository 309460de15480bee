//! A proxy before an API server that answers some requests itself: with errors that a real server gives too rarely to wait for
//! them. Everything else is forwarded, as the one user whose kubeconfig the proxy was given.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::request::Parts;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::proxy::{self, Answer};

/// A running proxy. It serves until the program ends.
pub struct FaultProxy {
    url: String,
    faults: Faults,
}

/// The faults in force.
#[derive(Clone)]
struct Faults {
    rule: Arc<Mutex<Option<Rule>>>,
    expiries: Arc<watch::Sender<usize>>,
}

type Rule = Box<dyn FnMut(&Parts) -> Option<Value> + Send>;

/// A refusal, as API servers word them.
pub fn refusal(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": message,
    })
}

/// The answer to a resource version that the server does not keep any more.
pub fn expired() -> Value {
    refusal(410, "Expired", "too old resource version: 1 (2)")
}

impl FaultProxy {
    /// A proxy that forwards everything. `kubeconfig` names the API server and the user.
    ///
    /// # Errors
    /// When no port is free or the kubeconfig is refused.
    pub async fn before(kubeconfig: Value) -> Result<Self> {
        let faults = Faults {
            rule: Arc::default(),
            expiries: Arc::new(watch::Sender::new(0)),
        };
        let served = faults.clone();
        let url = proxy::listen(kubeconfig, move |client, request| {
            let faults = served.clone();
            async move { faults.answer(&client, request).await }
        })
        .await?;
        Ok(Self { url, faults })
    }

    /// The proxy's address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// From now on requests for which `rule` gives a refusal get it, and do not reach the API server.
    pub fn refuse(&self, rule: impl FnMut(&Parts) -> Option<Value> + Send + 'static) {
        *self
            .faults
            .rule
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(Box::new(rule));
    }

    /// From now on everything goes through.
    pub fn leave(&self) {
        *self
            .faults
            .rule
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Ends every watch in progress with an `Expired` error in its stream.
    pub fn expire_watches(&self) {
        self.faults.expiries.send_modify(|count| *count += 1);
    }
}

impl Faults {
    async fn answer(&self, client: &kube::Client, request: Request<Incoming>) -> Answer {
        let Some(request) = proxy::forwarded(request).await else {
            return refuse(&refusal(400, "BadRequest", "the request broke off"));
        };
        let (parts, body) = request.into_parts();
        let refused = {
            let mut rule = self.rule.lock().unwrap_or_else(PoisonError::into_inner);
            rule.as_mut().and_then(|rule| rule(&parts))
        };
        if let Some(refusal) = refused {
            return refuse(&refusal);
        }
        let is_watch = is_watch(&parts);
        let expiries = self.expiries.subscribe();
        let request = Request::from_parts(parts, body);
        match client.send(request).await {
            Ok(answer) if is_watch => answer.map(|body| until_expired(body, expiries)),
            Ok(answer) => answer.map(BodyExt::boxed_unsync),
            Err(failed) => refuse(&refusal(502, "BadGateway", &failed.to_string())),
        }
    }
}

/// Whether this request is a watch.
pub fn is_watch(parts: &Parts) -> bool {
    let query = parts.uri.query().unwrap_or_default();
    query.split('&').any(|parameter| parameter == "watch=true")
}

fn until_expired(
    body: Body,
    expiries: watch::Receiver<usize>,
) -> UnsyncBoxBody<Bytes, kube::Error> {
    let parts = stream::unfold(
        Some((body.into_data_stream(), expiries)),
        |state| async move {
            let (mut parts, mut expiries) = state?;
            tokio::select! {
                part = parts.next() => Some((part?.map(Frame::data), Some((parts, expiries)))),
                Ok(()) = expiries.changed() => {
                    let line = format!("{}\n", json!({ "type": "ERROR", "object": expired() }));
                    Some((Ok(Frame::data(Bytes::from(line))), None))
                }
            }
        },
    );
    StreamBody::new(parts).boxed_unsync()
}

fn refuse(refusal: &Value) -> Answer {
    let body = Full::new(Bytes::from(refusal.to_string()));
    let mut answer = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    let code = refusal["code"]
        .as_u64()
        .and_then(|code| code.try_into().ok());
    *answer.status_mut() = code
        .and_then(|code| http::StatusCode::from_u16(code).ok())
        .unwrap_or_default();
    answer.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/json"),
    );
    answer
}
