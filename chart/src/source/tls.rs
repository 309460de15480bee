//! Whom we trust: system roots, the bundle of the repository, the proxy's bundle.
//!
//! Mirrors Fleet's `transportForAuth` (`internal/bundlereader/charturl.go`). One difference from
//! rustls' own verifier is smoothed over: Go accepts a self-signed server certificate that is
//! itself in the bundle, also when it calls itself a CA, as `openssl req -x509` makes them.

use std::sync::{Arc, OnceLock};

use rustls::client::WantsClientCert;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, OtherError,
    RootCertStore, SignatureScheme, WantsVerifier,
};

use super::credentials::Identity;
use super::error::FetchError;
use super::settings::Settings;

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider())))
}

/// The certificates of a PEM text; other blocks are passed over, as Go's
/// `AppendCertsFromPEM` does.
fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem)
        .filter_map(Result::ok)
        .collect()
}

/// The system's roots, `SSL_CERT_FILE` and `SSL_CERT_DIR` included. Read once.
fn system_roots() -> &'static RootCertStore {
    static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    ROOTS.get_or_init(|| {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let (_, unusable) = roots.add_parsable_certificates(found.certs);
        if unusable > 0 || !found.errors.is_empty() {
            logging::debug!(
                unusable,
                errors = found.errors.len(),
                "system CA certificates skipped"
            );
        }
        roots
    })
}

/// The certificates of a bundle that somebody gave.
fn listed(bundle: &[u8]) -> Vec<CertificateDer<'static>> {
    let certificates = certificates(bundle);
    if certificates.is_empty() {
        logging::warn!("a CA bundle without any PEM certificate is ignored");
    }
    certificates
}

fn builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, FetchError> {
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(failed)
}

/// The system's roots and these.
fn trusting(
    given: Vec<CertificateDer<'static>>,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, FetchError> {
    let mut roots = system_roots().clone();
    let (_, unusable) = roots.add_parsable_certificates(given.iter().cloned());
    if unusable > 0 {
        logging::warn!(
            unusable,
            "certificates of a CA bundle cannot be used as roots"
        );
    }
    if given.is_empty() {
        return Ok(builder()?.with_root_certificates(roots));
    }
    let roots = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(failed)?;
    let pinned = given;
    Ok(builder()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trust::RootsOrPinned { roots, pinned })))
}

/// By what a proxy with TLS is trusted: the system's roots, `PROXY_CA_BUNDLE` of the process, and these certificates (DER).
///
/// # Errors
/// The crypto library lacks what TLS needs.
pub fn proxy_trust(authorities: &[Vec<u8>]) -> Result<ClientConfig, FetchError> {
    let bundle = Settings::from_environment().proxy_ca;
    let mut given = bundle.as_deref().map(listed).unwrap_or_default();
    let authorities = authorities.iter().cloned();
    given.extend(authorities.map(CertificateDer::from));
    // No protocol is offered: a proxy that chose HTTP/2 would not understand what follows.
    Ok(trusting(given)?.with_no_client_auth())
}

fn failed(error: impl std::fmt::Display) -> FetchError {
    FetchError::Tls {
        problem: error.to_string(),
    }
}

/// What is said of a client's key that cannot be read.
const NO_KEY: &str = "the client's key is no private key in PEM";

fn private_key(identity: &Identity) -> Option<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(identity.key.reveal().as_bytes()).ok()
}

impl Identity {
    /// Whether certificates and key can be read.
    ///
    /// # Errors
    /// What is wrong, without a word of what they hold.
    pub fn check(&self) -> Result<(), &'static str> {
        if certificates(&self.certificates).is_empty() {
            return Err("the client's certificate is no certificate in PEM");
        }
        private_key(self).map(drop).ok_or(NO_KEY)
    }
}

/// TLS settings for one kind of access.
///
/// # Errors
/// The client's key or certificate cannot be used, or the crypto library lacks what TLS needs.
pub(super) fn client_config(
    bundles: &[&[u8]],
    insecure: bool,
    identity: Option<&Identity>,
) -> Result<ClientConfig, FetchError> {
    let builder = if insecure {
        builder()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Trust::Anybody))
    } else {
        trusting(bundles.iter().flat_map(|bundle| listed(bundle)).collect())?
    };
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            // The parser's error quotes what it read.
            let key = private_key(identity).ok_or_else(|| failed(NO_KEY))?;
            let chain = certificates(&identity.certificates);
            builder.with_client_auth_cert(chain, key).map_err(failed)?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Which server certificates are trusted. The handshake itself is checked in any case.
#[derive(Debug)]
enum Trust {
    /// `insecureSkipTLSVerify`: any certificate.
    Anybody,
    /// Those that chain up to a root, or the very certificate somebody put into the bundle.
    RootsOrPinned {
        roots: Arc<WebPkiServerVerifier>,
        pinned: Vec<CertificateDer<'static>>,
    },
}

/// Whether the objection is that no trusted authority signed the certificate: its issuer is not known, or
/// it calls itself a CA (rustls' word for most self-signed ones). The dates were checked before.
pub(super) fn is_unknown_issuer(error: &rustls::Error) -> bool {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => true,
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(other))) => {
            matches!(other.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
        }
        _ => false,
    }
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Self::RootsOrPinned { roots, pinned } = self else {
            return Ok(ServerCertVerified::assertion());
        };
        let is_pinned = || {
            let mut pinned = pinned.iter();
            pinned.any(|known| known.as_ref() == end_entity.as_ref())
        };
        match roots.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(error) if is_unknown_issuer(&error) && is_pinned() => {
                let certificate = ParsedCertificate::try_from(end_entity)?;
                rustls::client::verify_server_name(&certificate, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
