//! Somebody between a client and an API server who answers some requests himself: what a real server says too rarely to wait for
//! it. Everything else goes through, as the one user the meddler was given.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::request::Parts;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::bed::runtime;
use crate::cluster::client;

/// A running meddler. It stands until the program ends.
#[derive(Clone)]
pub struct Meddler {
    url: String,
    rule: Arc<Mutex<Option<Rule>>>,
    expiries: Arc<watch::Sender<usize>>,
}

type Rule = Box<dyn FnMut(&Parts) -> Option<Value> + Send>;
type Answer = Response<UnsyncBoxBody<Bytes, kube::Error>>;

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

impl Meddler {
    /// A meddler who lets everything through. `kubeconfig` leads to the API server and says who asks there.
    ///
    /// # Errors
    /// When no port is free or the kubeconfig is refused.
    pub async fn before(kubeconfig: Value) -> Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let meddler = Self {
            url: format!("http://{}", listener.local_addr()?),
            rule: Arc::default(),
            expiries: Arc::new(watch::Sender::new(0)),
        };
        let client = runtime().spawn(client(kubeconfig)).await??;
        let serving = meddler.clone();
        runtime().spawn(async move {
            let Ok(listener) = TcpListener::from_std(listener) else {
                return;
            };
            while let Ok((stream, _)) = listener.accept().await {
                let (client, meddler) = (client.clone(), serving.clone());
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let (client, meddler) = (client.clone(), meddler.clone());
                        async move { Ok::<_, Infallible>(meddler.answer(&client, request).await) }
                    });
                    let connection = hyper::server::conn::http1::Builder::new();
                    // A client that is killed does not say goodbye.
                    let _ = connection
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Ok(meddler)
    }

    /// The meddler's address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// From now on requests for which `rule` gives a refusal get it, and do not reach the API server.
    pub fn refuse(&self, rule: impl FnMut(&Parts) -> Option<Value> + Send + 'static) {
        *self.rule.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(rule));
    }

    /// From now on everything goes through.
    pub fn leave(&self) {
        *self.rule.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Every watch in progress is told in its stream that it expired, and ends.
    pub fn expire_watches(&self) {
        self.expiries.send_modify(|count| *count += 1);
    }

    async fn answer(&self, client: &kube::Client, request: Request<Incoming>) -> Answer {
        let (mut parts, body) = request.into_parts();
        let refused = {
            let mut rule = self.rule.lock().unwrap_or_else(PoisonError::into_inner);
            rule.as_mut().and_then(|rule| rule(&parts))
        };
        if let Some(refusal) = refused {
            return refuse(&refusal);
        }
        let is_watch = is_watch(&parts);
        for name in [
            header::HOST,
            header::AUTHORIZATION,
            header::CONNECTION,
            header::CONTENT_LENGTH,
            header::TRANSFER_ENCODING,
            header::ACCEPT_ENCODING,
        ] {
            parts.headers.remove(name);
        }
        let Ok(body) = body.collect().await else {
            return refuse(&refusal(400, "BadRequest", "the request broke off"));
        };
        let expiries = self.expiries.subscribe();
        let request = Request::from_parts(parts, Body::from(body.to_bytes()));
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
