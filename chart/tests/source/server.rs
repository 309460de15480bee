//! A small HTTP(S) server for one test: answers from a function, remembers what it was asked.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// What was asked.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
    pub(crate) if_none_match: Option<String>,
    /// What was sent, of a form.
    pub(crate) body: String,
    /// Whether a client's certificate was shown.
    pub(crate) has_certificate: bool,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// PEM of the certificate, if it speaks TLS.
    pub(crate) ca: Option<Arc<[u8]>>,
    seen: Arc<Mutex<Vec<Seen>>>,
    task: JoinHandle<()>,
}

pub(crate) type Answer = Response<Full<Bytes>>;

pub(crate) fn answer(status: u16, body: impl Into<Bytes>) -> Answer {
    Response::builder()
        .status(status)
        .body(Full::new(body.into()))
        .unwrap()
}

pub(crate) fn with(mut answer: Answer, name: &'static str, value: &str) -> Answer {
    answer.headers_mut().append(name, value.parse().unwrap());
    answer
}

impl Server {
    pub(crate) async fn plain(reply: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Self {
        Self::start(None, reply).await
    }

    /// Its certificate is self-signed and calls itself a CA, as `openssl req -x509` makes them.
    pub(crate) async fn tls(reply: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        let ca: Arc<[u8]> = certificate.pem().into_bytes().into();
        Self::start(Some((TlsAcceptor::from(Arc::new(config)), ca)), reply).await
    }

    /// Its certificate is signed by an authority; `clients` signs those that it asks for.
    pub(crate) async fn signed(
        authority: &Ca,
        clients: Option<&Ca>,
        reply: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let clients = clients.map(|clients| (clients, true));
        let acceptor = authority.acceptor(clients, false);
        Self::start(Some((acceptor, authority.pem.clone())), reply).await
    }

    /// It asks clients for a certificate, and takes those that have none.
    pub(crate) async fn asking(
        authority: &Ca,
        clients: &Ca,
        reply: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let acceptor = authority.acceptor(Some((clients, false)), false);
        Self::start(Some((acceptor, authority.pem.clone())), reply).await
    }

    /// Its certificate was good until a while ago.
    pub(crate) async fn expired(
        authority: &Ca,
        reply: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let acceptor = authority.acceptor(None, true);
        Self::start(Some((acceptor, authority.pem.clone())), reply).await
    }

    async fn start(
        tls: Option<(TlsAcceptor, Arc<[u8]>)>,
        reply: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let (acceptor, ca) = tls.unzip();
        let (reply, log) = (Arc::new(reply), Arc::clone(&seen));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, reply, log) =
                    (acceptor.clone(), Arc::clone(&reply), Arc::clone(&log));
                tokio::spawn(async move {
                    let shown = Arc::new(AtomicBool::new(false));
                    let has_certificate = Arc::clone(&shown);
                    let service = service_fn(move |request: Request<Incoming>| {
                        let (reply, log) = (Arc::clone(&reply), Arc::clone(&log));
                        let has_certificate = Arc::clone(&has_certificate);
                        async move {
                            let (parts, body) = request.into_parts();
                            let header = |name: &str| {
                                let value = parts.headers.get(name);
                                value.map(|value| value.to_str().unwrap().to_owned())
                            };
                            let body = body.collect().await.unwrap().to_bytes();
                            let seen = Seen {
                                path: parts.uri.path_and_query().unwrap().to_string(),
                                authorization: header("authorization"),
                                if_none_match: header("if-none-match"),
                                body: String::from_utf8(body.to_vec()).unwrap(),
                                has_certificate: has_certificate.load(Ordering::SeqCst),
                            };
                            log.lock().unwrap().push(seen.clone());
                            Ok::<_, Infallible>(reply(&seen))
                        }
                    });
                    let http = hyper::server::conn::http1::Builder::new();
                    // A client that gives up is part of some tests.
                    let _ = match acceptor {
                        None => http.serve_connection(TokioIo::new(stream), service).await,
                        Some(acceptor) => match acceptor.accept(stream).await {
                            Ok(stream) => {
                                let is_shown = stream.get_ref().1.peer_certificates().is_some();
                                shown.store(is_shown, Ordering::SeqCst);
                                http.serve_connection(TokioIo::new(stream), service).await
                            }
                            Err(_) => Ok(()),
                        },
                    };
                });
            }
        });
        Self {
            address,
            ca,
            seen,
            task,
        }
    }

    /// What was asked so far, in order.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.path).collect()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        match self.ca {
            Some(_) => format!("https://localhost:{}{path}", self.address.port()),
            None => format!("http://{}{path}", self.address),
        }
    }

    /// `oci://…` of a repository here.
    pub(crate) fn oci(&self, repository: &str) -> String {
        match self.ca {
            Some(_) => format!("oci://localhost:{}/{repository}", self.address.port()),
            None => format!("oci://{}/{repository}", self.address),
        }
    }
}

/// A certificate authority.
pub(crate) struct Ca {
    pub(crate) pem: Arc<[u8]>,
    der: CertificateDer<'static>,
    params: rcgen::CertificateParams,
    key: rcgen::KeyPair,
}

impl Ca {
    pub(crate) fn new(name: &str) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Self {
            pem: certificate.pem().into_bytes().into(),
            der: certificate.der().clone(),
            params,
            key,
        }
    }

    fn issue(&self, is_expired: bool) -> (rcgen::Certificate, rcgen::KeyPair) {
        let names = ["localhost", "charts.example", "127.0.0.1"].map(str::to_owned);
        let key = rcgen::KeyPair::generate().unwrap();
        let issuer = rcgen::Issuer::from_params(&self.params, &self.key);
        let mut params = rcgen::CertificateParams::new(names.to_vec()).unwrap();
        if is_expired {
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        }
        (params.signed_by(&key, &issuer).unwrap(), key)
    }

    /// A client's certificate.
    pub(crate) fn client(&self) -> chart::source::Identity {
        let (certificate, key) = self.issue(false);
        chart::source::Identity::new(certificate.pem().into_bytes(), key.serialize_pem())
    }

    /// `clients`: who signs certificates of clients, and whether each must have one.
    fn acceptor(&self, clients: Option<(&Ca, bool)>, is_expired: bool) -> TlsAcceptor {
        let (certificate, key) = self.issue(is_expired);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some((clients, is_required)) => {
                let mut roots = rustls::RootCertStore::empty();
                roots.add(clients.der.clone()).unwrap();
                let roots = Arc::new(roots);
                let verifier =
                    rustls::server::WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = match is_required {
                    true => verifier,
                    false => verifier.allow_unauthenticated(),
                };
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = builder.with_single_cert(vec![certificate.der().clone()], key);
        TlsAcceptor::from(Arc::new(config.unwrap()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}
