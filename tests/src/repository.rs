//! An HTTP chart repository: `index.yaml` and archives, with or without TLS and basic auth, that counts what is fetched and fails
//! on request.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use base64::Engine;
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::bed;
use crate::certs::Authority;
use crate::chart::{Chart, identity};

/// A name of repositories and registries besides their address, for those who reach them by a proxy.
pub const NAME: &str = "charts.testbed.example";

/// How a repository or a registry is reached.
#[derive(Clone, Copy, Default)]
pub struct Access<'a> {
    /// User and password that every request must carry.
    pub basic_auth: Option<(&'a str, &'a str)>,
    /// Serve TLS with a certificate of this authority.
    pub authority: Option<&'a Authority>,
}

impl Access<'_> {
    /// A port of loopback, its URL, and what speaks TLS there where it is asked for, with a certificate for `name` and for those alone who
    /// show one of `clients`.
    pub(crate) fn listen(
        &self,
        name: &str,
        clients: Option<&Authority>,
    ) -> Result<(std::net::TcpListener, String, Option<TlsAcceptor>)> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let tls = match self.authority {
            Some(authority) => Some(TlsAcceptor::from(
                authority.issue(&[name])?.server_config(clients)?,
            )),
            None => None,
        };
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.local_addr()?);
        Ok((listener, url, tls))
    }
}

/// What goes wrong at a path.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Answer with this status and no body.
    Status(u16),
    /// Send only so many bytes of the body, well formed for HTTP.
    Truncated(usize),
    /// Send this body instead.
    Body(Vec<u8>),
    /// Redirect to this address.
    Redirect(String),
}

/// A running repository; it serves until the program ends.
#[derive(Clone)]
pub struct ChartRepository {
    url: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// By path without the leading slash.
    files: HashMap<String, Bytes>,
    index: BTreeMap<String, Vec<Entry>>,
    faults: HashMap<String, Fault>,
    requests: BTreeMap<String, usize>,
    bodies: BTreeMap<String, usize>,
    expected: Option<String>,
    /// Requests that carried credentials.
    authorized: usize,
}

#[derive(Clone)]
struct Entry {
    version: String,
    url: String,
    digest: String,
}

impl ChartRepository {
    /// Starts an empty repository.
    ///
    /// # Errors
    /// When no port or certificate is to be had.
    pub async fn start(access: Access<'_>) -> Result<Self> {
        Self::start_for(access, None).await
    }

    /// Starts an empty repository, with TLS for those alone who show a certificate of `clients`.
    ///
    /// # Errors
    /// When no port or certificate is to be had.
    pub async fn start_for(access: Access<'_>, clients: Option<&Authority>) -> Result<Self> {
        let (listener, url, tls) = access.listen(NAME, clients)?;
        let expected = access.basic_auth.map(|(user, password)| {
            let token =
                base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
            format!("Basic {token}")
        });
        let state = Arc::new(Mutex::new(State {
            expected,
            ..State::default()
        }));
        let repository = Self {
            url,
            state: state.clone(),
        };
        bed::runtime().spawn(async move {
            let Ok(listener) = TcpListener::from_std(listener) else {
                return;
            };
            while let Ok((stream, _)) = listener.accept().await {
                let (state, tls) = (state.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, state).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, state).await;
                            }
                        }
                    }
                });
            }
        });
        Ok(repository)
    }

    /// The repository's address, without a trailing slash.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Publishes a chart under a relative URL.
    ///
    /// # Errors
    /// When it cannot be packed.
    pub fn add(&self, chart: &Chart) -> Result<()> {
        self.add_archive(chart.archive()?)
    }

    /// Publishes an archive under a relative URL.
    ///
    /// # Errors
    /// When it names no chart.
    pub fn add_archive(&self, archive: Vec<u8>) -> Result<()> {
        let (name, version) = identity(&archive)?;
        let path = format!("charts/{name}-{version}.tgz");
        self.publish(&name, &version, &path, &path, archive);
        Ok(())
    }

    /// Publishes an archive whose URL in the index is absolute.
    ///
    /// # Errors
    /// When it names no chart.
    pub fn add_absolute(&self, archive: Vec<u8>) -> Result<()> {
        let (name, version) = identity(&archive)?;
        let path = format!("absolute/{name}-{version}.tgz");
        self.publish(
            &name,
            &version,
            &path,
            &format!("{}/{path}", self.url),
            archive,
        );
        Ok(())
    }

    /// Publishes any bytes as a chart of that name and version.
    pub fn add_bytes(&self, name: &str, version: &str, content: Vec<u8>) {
        let path = format!("charts/{name}-{version}.tgz");
        self.publish(name, version, &path, &path, content);
    }

    /// Publishes a provenance file beside the archive of a chart.
    pub fn add_provenance(&self, name: &str, version: &str, file: Vec<u8>) {
        let path = format!("charts/{name}-{version}.tgz.prov");
        self.lock().files.insert(path, file.into());
    }

    fn publish(&self, name: &str, version: &str, path: &str, url: &str, content: Vec<u8>) {
        let digest = hex(&Sha256::digest(&content));
        let mut state = self.lock();
        state.files.insert(path.to_owned(), content.into());
        let entries = state.index.entry(name.to_owned()).or_default();
        entries.retain(|e| e.version != version);
        entries.push(Entry {
            version: version.to_owned(),
            url: url.to_owned(),
            digest,
        });
    }

    /// Publishes no digests for what is there now, as many repositories do.
    pub fn forget_digests(&self) {
        for entry in self.lock().index.values_mut().flatten() {
            entry.digest.clear();
        }
    }

    /// Takes a chart version out of the index.
    pub fn remove(&self, name: &str, version: &str) {
        if let Some(entries) = self.lock().index.get_mut(name) {
            entries.retain(|e| e.version != version);
        }
    }

    /// Makes a path (`index.yaml`, `charts/web-1.0.0.tgz`) fail, until [`Self::heal`].
    pub fn break_path(&self, path: &str, fault: Fault) {
        self.lock().faults.insert(path.to_owned(), fault);
    }

    /// Ends the fault at a path.
    pub fn heal(&self, path: &str) {
        self.lock().faults.remove(path);
    }

    /// Serves bytes at any path.
    pub fn add_file(&self, path: &str, content: Vec<u8>) {
        let path = path.trim_start_matches('/').to_owned();
        self.lock().files.insert(path, content.into());
    }

    /// How many requests carried credentials.
    pub fn authorized_requests(&self) -> usize {
        self.lock().authorized
    }

    /// How often the content at each path was sent: not where it was refused, or where who asked had it already.
    pub fn bodies(&self) -> BTreeMap<String, usize> {
        self.lock().bodies.clone()
    }

    /// How often each path was asked for, whatever the answer.
    pub fn requests(&self) -> BTreeMap<String, usize> {
        self.lock().requests.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn serve<S>(stream: S, state: Arc<Mutex<State>>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let response = state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .answer(&request);
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = hyper::server::conn::http1::Builder::new();
    // A client that goes away mid-answer is its own affair.
    let _ = connection
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

impl State {
    fn answer(&mut self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path().trim_start_matches('/').to_owned();
        *self.requests.entry(path.clone()).or_default() += 1;
        let header = |name| request.headers().get(name).and_then(|v| v.to_str().ok());
        let given = header(header::AUTHORIZATION);
        self.authorized += usize::from(given.is_some());
        if self.expected.is_some() && self.expected.as_deref() != given {
            return status(StatusCode::UNAUTHORIZED);
        }
        let body = match self.faults.get(&path) {
            Some(Fault::Status(code)) => {
                return status(StatusCode::from_u16(*code).unwrap_or(StatusCode::BAD_GATEWAY));
            }
            Some(Fault::Redirect(target)) => {
                let mut response = status(StatusCode::TEMPORARY_REDIRECT);
                if let Ok(target) = target.parse() {
                    response.headers_mut().insert(header::LOCATION, target);
                }
                return response;
            }
            Some(Fault::Body(body)) => Some(body.clone().into()),
            Some(Fault::Truncated(bytes)) => {
                self.content(&path).map(|b| b.slice(..b.len().min(*bytes)))
            }
            None => self.content(&path),
        };
        let Some(body) = body else {
            return status(StatusCode::NOT_FOUND);
        };
        let tag = format!("\"{}\"", hex(&Sha256::digest(&body)));
        let mut response = match header(header::IF_NONE_MATCH) == Some(&tag) {
            true => status(StatusCode::NOT_MODIFIED),
            false => {
                *self.bodies.entry(path).or_default() += 1;
                Response::new(Full::new(body))
            }
        };
        if let Ok(tag) = tag.parse() {
            response.headers_mut().insert(header::ETAG, tag);
        }
        response
    }

    fn content(&self, path: &str) -> Option<Bytes> {
        if path == "index.yaml" {
            Some(self.index_yaml().into())
        } else {
            self.files.get(path).cloned()
        }
    }

    fn index_yaml(&self) -> String {
        let mut text = "apiVersion: v1\nentries:\n".to_owned();
        if self.index.is_empty() {
            text = "apiVersion: v1\nentries: {}\n".to_owned();
        }
        for (name, entries) in &self.index {
            let _ = writeln!(text, "  {name}:");
            for Entry {
                version,
                url,
                digest,
            } in entries
            {
                let _ = write!(
                    text,
                    "  - apiVersion: v2\n    name: {name}\n    version: \"{version}\"\n    created: \"2026-01-01T00:00:00Z\"\n    digest: {digest}\n    urls:\n    - {url:?}\n"
                );
            }
        }
        text.push_str("generated: \"2026-01-01T00:00:00Z\"\n");
        text
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn status(code: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = code;
    response
}
