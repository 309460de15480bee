//! Somebody between a client and an API server who answers some requests himself: what a real server says too rarely to wait for
//! it. Everything else goes through, as the one user the meddler was given.

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

/// A running meddler. It stands until the program ends.
pub struct FaultProxy {
    url: String,
    influence: Influence,
}

/// What it does to requests.
#[derive(Clone)]
struct Influence {
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

/// What a server says of a version it does not know any more.
pub fn expired() -> Value {
    refusal(410, "Expired", "too old resource version: 1 (2)")
}

impl FaultProxy {
    /// A meddler who lets everything through. `kubeconfig` leads to the API server and says who asks there.
    ///
    /// # Errors
    /// When no port is free or the kubeconfig is refused.
    pub async fn before(kubeconfig: Value) -> Result<Self> {
        let influence = Influence {
            rule: Arc::default(),
            expiries: Arc::new(watch::Sender::new(0)),
        };
        let served = influence.clone();
        let url = proxy::listen(kubeconfig, move |client, request| {
            let influence = served.clone();
            async move { influence.answer(&client, request).await }
        })
        .await?;
        Ok(Self { url, influence })
    }

    /// The meddler's address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// From now on requests for which `rule` gives a refusal get it, and do not reach the API server.
    pub fn refuse(&self, rule: impl FnMut(&Parts) -> Option<Value> + Send + 'static) {
        *self
            .influence
            .rule
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(Box::new(rule));
    }

    /// From now on everything goes through.
    pub fn leave(&self) {
        *self
            .influence
            .rule
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Every watch in progress is told in its stream that it expired, and ends.
    pub fn expire_watches(&self) {
        self.influence.expiries.send_modify(|count| *count += 1);
    }
}

impl Influence {
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
