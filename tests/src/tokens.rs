//! A token service for registries: trades a user name and a password for a token.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, SigningKey as _};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::bed::runtime;
use crate::certs::Authority;

/// What registries call themselves to it.
pub const SERVICE: &str = "registry.test";
/// Who its tokens are by.
pub const ISSUER: &str = "tokens.test";

/// How long a token is good for, in seconds.
const LIFETIME: u64 = 300;

/// A running service; it serves until the program ends.
pub struct TokenService {
    url: String,
    certificate: String,
}

/// What tokens are signed with.
struct Signer {
    key: KeyPair,
    certificate: Vec<u8>,
    expected: String,
}

impl TokenService {
    /// Starts a service at localhost for one user, with TLS by an authority if there is one.
    ///
    /// # Errors
    /// When no port or certificate is to be had.
    pub fn start(user: (&str, &str), authority: Option<&Authority>) -> Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let tls = match authority {
            Some(authority) => {
                let server = authority.issue(&[])?;
                Some(TlsAcceptor::from(server.server_config(None)?))
            }
            None => None,
        };
        let scheme = if tls.is_some() { "https" } else { "http" };
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key)?;
        let signer = Arc::new(Signer {
            key,
            certificate: certificate.der().to_vec(),
            expected: format!(
                "Basic {}",
                STANDARD.encode(format!("{}:{}", user.0, user.1))
            ),
        });
        let service = Self {
            url: format!("{scheme}://localhost:{port}/token"),
            certificate: certificate.pem(),
        };
        runtime().spawn(async move {
            let Ok(listener) = TcpListener::from_std(listener) else {
                return;
            };
            while let Ok((stream, _)) = listener.accept().await {
                let (signer, tls) = (signer.clone(), tls.clone());
                tokio::spawn(async move {
                    let service = service_fn(move |request: Request<Incoming>| {
                        let answer = signer.answer(&request);
                        async move { Ok::<_, Infallible>(answer) }
                    });
                    let http = hyper::server::conn::http1::Builder::new();
                    // A client that goes away is its own affair.
                    let _ = match tls {
                        None => http.serve_connection(TokioIo::new(stream), service).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => {
                                http.serve_connection(TokioIo::new(stream), service).await
                            }
                            Err(_) => Ok(()),
                        },
                    };
                });
            }
        });
        Ok(service)
    }

    /// Where tokens are to be had.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What registries check tokens with, as PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }
}

impl Signer {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let given = request.headers().get(header::AUTHORIZATION);
        let is_known = given.is_some_and(|given| *given == *self.expected);
        let token = match is_known {
            true => self.token(request.uri().query().unwrap_or_default()).ok(),
            false => None,
        };
        let mut response = Response::new(Full::default());
        match token {
            Some(token) => *response.body_mut() = Full::from(json!({ "token": token }).to_string()),
            None => *response.status_mut() = StatusCode::UNAUTHORIZED,
        }
        response
    }

    /// A token for what the query asks for, as the distribution registry reads it.
    fn token(&self, query: &str) -> Result<String> {
        let scopes = url::form_urlencoded::parse(query.as_bytes());
        let scopes = scopes.filter(|(name, _)| name == "scope");
        let access: Vec<Value> = scopes
            .filter_map(|(_, scope)| {
                let (kind, rest) = scope.split_once(':')?;
                let (name, actions) = rest.rsplit_once(':')?;
                let actions: Vec<&str> = actions.split(',').collect();
                Some(json!({ "type": kind, "name": name, "actions": actions }))
            })
            .collect();
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)?
            .as_secs();
        let head =
            json!({ "typ": "JWT", "alg": "EdDSA", "x5c": [STANDARD.encode(&self.certificate)] });
        let claims = json!({
            "iss": ISSUER, "aud": SERVICE, "sub": "test", "jti": now.to_string(), "access": access,
            "iat": now, "nbf": now, "exp": now + LIFETIME,
        });
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(&head), encode(&claims));
        let signature = self
            .key
            .sign(signed.as_bytes())
            .context("signing a token")?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}
