//! A forward proxy as companies have them: `CONNECT` and plain requests, with a password or TLS where asked for.
//!
//! It alone can resolve the names it is asked for: every one is 127.0.0.1. What it was asked for is on record.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use base64::Engine;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

use crate::bed::runtime;
use crate::repository::Access;

/// More than any client says before it is let through.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// A name that its certificate has, for clients that cannot reach it on loopback.
pub const NAME: &str = "proxy.testbed.example";

/// A running proxy; it serves until the program ends.
#[derive(Clone)]
pub struct ForwardProxy {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl ForwardProxy {
    /// Starts a proxy.
    ///
    /// # Errors
    /// When no port or certificate is to be had.
    pub fn start(access: &Access<'_>) -> Result<Self> {
        let (listener, url, tls) = access.listen(NAME, None)?;
        let expected = access.basic_auth.map(|(user, password)| {
            let pair = format!("{user}:{password}");
            let token = base64::engine::general_purpose::STANDARD.encode(pair);
            format!("proxy-authorization: basic {token}").to_lowercase()
        });
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let proxy = Self {
            url,
            asked: asked.clone(),
        };
        runtime().spawn(async move {
            let Ok(listener) = TcpListener::from_std(listener) else {
                return;
            };
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, asked, expected) = (tls.clone(), asked.clone(), expected.clone());
                tokio::spawn(async move {
                    // A client that goes away is its own affair.
                    let _ = match tls {
                        None => serve(stream, &asked, expected.as_deref()).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => serve(stream, &asked, expected.as_deref()).await,
                            Err(_) => Ok(()),
                        },
                    };
                });
            }
        });
        Ok(proxy)
    }

    /// Its address, without a password.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The servers (`host:port`) it led to, in order and with repetitions.
    pub fn asked(&self) -> Vec<String> {
        self.asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

async fn serve(
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    asked: &Mutex<Vec<String>>,
    expected: Option<&str>,
) -> Result<()> {
    let (head, rest) = read_head(&mut client).await?;
    let is_allowed = expected.is_none_or(|expected| {
        let mut lines = head.lines();
        lines.any(|line| line.to_lowercase() == expected)
    });
    if !is_allowed {
        let refusal = "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n";
        return Ok(client.write_all(refusal.as_bytes()).await?);
    }
    let line = head.lines().next().context("an empty head")?;
    let (method, target) = line.split_once(' ').context("no target")?;
    let target = target.split(' ').next().unwrap_or_default();
    let (server, opening) = if method == "CONNECT" {
        (target.to_owned(), None)
    } else {
        let (server, opening) = plain(method, target, &head)?;
        (server, Some(opening))
    };
    let port = server.rsplit(':').next().context("no port")?.parse()?;
    asked
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(server);
    let mut server = TcpStream::connect(("127.0.0.1", port)).await?;
    match opening {
        None => {
            let answer = b"HTTP/1.1 200 Connection established\r\n\r\n";
            client.write_all(answer).await?;
        }
        Some(opening) => server.write_all(opening.as_bytes()).await?,
    }
    server.write_all(&rest).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

/// The head of a request, and what was read beyond it.
async fn read_head(client: &mut (impl AsyncRead + Unpin)) -> Result<(String, Vec<u8>)> {
    let (mut seen, mut part) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(end) = seen.windows(4).position(|window| window == b"\r\n\r\n") {
            let rest = seen.split_off(end + 4);
            return Ok((String::from_utf8(seen)?, rest));
        }
        let read = client.read(&mut part).await?;
        anyhow::ensure!(read > 0 && seen.len() < MAX_HEAD_BYTES, "no head");
        seen.extend_from_slice(&part[..read]);
    }
}

/// A request without TLS: the server, and the head to send it. One request for each connection.
fn plain(method: &str, target: &str, head: &str) -> Result<(String, String)> {
    let url = Url::parse(target)?;
    let host = url.host_str().context("no host")?;
    let port = url.port_or_known_default().context("no port")?;
    let path = &url[url::Position::BeforePath..];
    let mut opening = format!("{method} {path} HTTP/1.1\r\n");
    let headers = head.lines().skip(1).filter(|line| {
        let name = line.split(':').next().unwrap_or_default().to_lowercase();
        !line.is_empty() && name != "connection" && !name.starts_with("proxy-")
    });
    for line in headers {
        opening.push_str(line);
        opening.push_str("\r\n");
    }
    opening.push_str("Connection: close\r\n\r\n");
    Ok((format!("{host}:{port}"), opening))
}
