//! Probes and metrics over plain HTTP.
//!
//! `/healthz` says the process serves; `/readyz` says it can do its work: it turns false when
//! upstream or the local cluster has not answered for five minutes. Who waits for the lease is ready
//! to take over, and needs the local cluster alone. No authentication, as upstream.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::client::health::Health;
use crate::config::ListenAddress;
use crate::public::PublicText;
use crate::report::metrics::Metrics;

/// A client that sends no complete request head within this time is cut off.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections that a port keeps open: whoever reaches the pod may open them, and each takes memory and a descriptor.
const MAX_CONNECTIONS: usize = 64;

/// Pause between two tries of a port that is taken.
const RETRY: Duration = Duration::from_secs(1);

/// What a port answers.
#[derive(Clone)]
pub enum Endpoint {
    /// `/metrics`.
    Metrics(Box<Metrics>),
    /// `/healthz` and `/readyz`.
    Probes(Health),
}

impl Endpoint {
    fn answer(&self, path: &str) -> Response<Full<Bytes>> {
        let (status, kind, body) = match (self, path) {
            (Self::Metrics(metrics), "/metrics") => (
                StatusCode::OK,
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
                metrics.encode(),
            ),
            (Self::Probes(_), "/healthz" | "/healthz/") => (StatusCode::OK, TEXT, "ok".into()),
            (Self::Probes(health), "/readyz" | "/readyz/") => match health.obstacle() {
                None => (StatusCode::OK, TEXT, "ok".into()),
                Some(obstacle) => (StatusCode::INTERNAL_SERVER_ERROR, TEXT, obstacle.into()),
            },
            _ => (StatusCode::NOT_FOUND, TEXT, "404 page not found\n".into()),
        };
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        let kind = hyper::header::HeaderValue::from_static(kind);
        response
            .headers_mut()
            .insert(hyper::header::CONTENT_TYPE, kind);
        response
    }
}

const TEXT: &str = "text/plain; charset=utf-8";

/// Opens a port. Listening starts at once, answering with [`serve`].
///
/// # Errors
/// The address is taken or not ours, or its name is not known.
pub async fn bind(address: &ListenAddress) -> std::io::Result<TcpListener> {
    let address = address.resolve().await?;
    match TcpListener::bind(address).await {
        // No IPv6 here: Go's ":8080" then means IPv4.
        Err(_) if address.is_ipv6() && address.ip().is_unspecified() => {
            TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], address.port()))).await
        }
        bound => bound,
    }
}

/// Opens a port that another process has, as soon as it lets go of it, and answers.
pub async fn serve_later(address: ListenAddress, endpoint: Endpoint, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RETRY) => {}
        }
        if let Ok(listener) = bind(&address).await {
            let shown = PublicText::of_operator(&address.to_string());
            logging::info!(address = shown, "the port is free now");
            return serve(listener, endpoint, stop).await;
        }
    }
}

/// Answers requests until the token is cancelled. Where there is one connection too many the oldest is closed: a probe that comes is answered,
/// however many stay open.
pub async fn serve(listener: TcpListener, endpoint: Endpoint, stop: CancellationToken) {
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, usually: let others go first.
                logging::warn!(error = error.kind(), "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (endpoint, stop) = (endpoint.clone(), stop.clone());
        open.retain(|connection| !connection.is_finished());
        if open.len() == MAX_CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let connection = tokio::spawn(async move {
            let answer = service_fn(move |request: Request<Incoming>| {
                let response = endpoint.answer(request.uri().path());
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), answer);
            tokio::select! {
                () = stop.cancelled() => {}
                // The client going away is its own affair.
                _ = connection => {}
            }
        });
        open.push_back(connection.abort_handle());
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;
    use crate::client::health::{Role, Side};

    #[tokio::test(start_paused = true)]
    async fn readiness_follows_contact_with_both_clusters() {
        readiness_follows(Side::Upstream).await;
        readiness_follows(Side::Local).await;
    }

    #[tokio::test]
    async fn connections_that_stay_open_make_way_for_a_probe() {
        let listener = bind(&"127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let probes = Endpoint::Probes(Health::new(Duration::from_secs(300)));
        tokio::spawn(serve(listener, probes, CancellationToken::new()));
        let mut idle = Vec::new();
        for _ in 0..3 * MAX_CONNECTIONS {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        let mut probe = TcpStream::connect(address).await.unwrap();
        let request = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        probe.write_all(request).await.unwrap();
        let mut answer = String::new();
        probe.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        // The oldest connections are closed.
        for closed in &mut idle[..2 * MAX_CONNECTIONS] {
            assert!(!matches!(closed.read(&mut [0]).await, Ok(1..)));
        }
    }

    async fn readiness_follows(side: Side) {
        let health = Health::new(Duration::from_secs(300));
        health.set_role(Role::Deploy);
        let probes = Endpoint::Probes(health.clone());
        assert!(!health.is_silent(side));
        tokio::time::advance(Duration::from_secs(100)).await;
        assert!(health.is_silent(side));
        health.trouble(side);
        assert_eq!(probes.answer("/readyz").status(), StatusCode::OK);
        // Counted from the last sign of life.
        tokio::time::advance(Duration::from_secs(201)).await;
        assert_eq!(
            probes.answer("/readyz").status(),
            StatusCode::INTERNAL_SERVER_ERROR
        );
        assert_eq!(probes.answer("/healthz").status(), StatusCode::OK);
        health.contact(side);
        assert_eq!(probes.answer("/readyz").status(), StatusCode::OK);
        assert_eq!(probes.answer("/metrics").status(), StatusCode::NOT_FOUND);
    }
}
