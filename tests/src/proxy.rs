//! What stands between a client and an API server and sees every request in plain text.

use std::convert::Infallible;
use std::future::Future;

use anyhow::Result;
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::bed::runtime;
use crate::cluster::client;

/// What it answers: the API server's words as they come, or its own.
pub type Answer = Response<UnsyncBoxBody<Bytes, kube::Error>>;

/// A port whose requests `answer` is asked for; gives back its address. `kubeconfig` leads to the API server and says who asks there. It stands
/// until the program ends.
///
/// # Errors
/// When no port is free or the kubeconfig is refused.
pub async fn listen<F>(
    kubeconfig: Value,
    answer: impl Fn(kube::Client, Request<Incoming>) -> F + Clone + Send + 'static,
) -> Result<String>
where
    F: Future<Output = Answer> + Send + 'static,
{
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let url = format!("http://{}", listener.local_addr()?);
    let client = runtime().spawn(client(kubeconfig)).await??;
    runtime().spawn(async move {
        let Ok(listener) = TcpListener::from_std(listener) else {
            return;
        };
        while let Ok((stream, _)) = listener.accept().await {
            let (client, answer) = (client.clone(), answer.clone());
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let answer = answer(client.clone(), request);
                    async move { Ok::<_, Infallible>(answer.await) }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                // A client that is killed does not say goodbye.
                let _ = connection
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    Ok(url)
}

/// The request for the API server: the proxy's own client adds who asks. None if it broke off.
pub async fn forwarded(request: Request<Incoming>) -> Option<Request<Body>> {
    let (mut parts, body) = request.into_parts();
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
    let body = body.collect().await.ok()?.to_bytes();
    Some(Request::from_parts(parts, Body::from(body)))
}
