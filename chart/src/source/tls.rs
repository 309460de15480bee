//! TLS for sources and proxies: whom they are trusted by, and what they are shown.
//!
//! Mirrors Fleet's `transportForAuth` (`internal/bundlereader/charturl.go`).

use std::sync::{Arc, OnceLock};

use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder};

use super::credentials::Identity;
use super::error::FetchError;
use super::settings::Settings;
use crate::trust::{Authorities, Verifier, certificates, provider};

/// The system's roots. Read once.
fn system() -> Authorities {
    static ROOTS: OnceLock<Authorities> = OnceLock::new();
    ROOTS.get_or_init(Authorities::system).clone()
}

/// The certificates of a bundle that somebody gave.
fn listed(bundle: &[u8]) -> Vec<CertificateDer<'static>> {
    let certificates = certificates(bundle);
    if certificates.is_empty() {
        logging::warn!("a CA bundle without any PEM certificate is ignored");
    }
    certificates
}

fn trusting(
    verifier: Verifier,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, FetchError> {
    Ok(ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier)))
}

/// By what a proxy with TLS is trusted: the system's roots, `PROXY_CA_BUNDLE` of the process, and these certificates (DER).
///
/// ```
/// let config = chart::source::proxy_trust(&[])?;
/// assert!(config.alpn_protocols.is_empty());
/// # Ok::<(), chart::source::FetchError>(())
/// ```
///
/// # Errors
/// The crypto library lacks what TLS needs.
pub fn proxy_trust(authorities: &[Vec<u8>]) -> Result<ClientConfig, FetchError> {
    let bundle = Settings::from_environment().proxy_ca;
    let bundle = bundle.as_deref().map(listed).unwrap_or_default();
    let trusted = system().and(bundle).and(authorities);
    // No protocol is offered: a proxy that chose HTTP/2 would not understand what follows.
    Ok(trusting(Verifier::Authorities(trusted))?.with_no_client_auth())
}

fn failed(error: impl std::fmt::Display) -> FetchError {
    FetchError::Tls {
        problem: error.to_string(),
    }
}

/// Error for a client's key that cannot be read.
const NO_KEY: &str = "the client's key is no private key in PEM";

fn private_key(identity: &Identity) -> Option<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(identity.key.reveal().as_bytes()).ok()
}

impl Identity {
    /// Whether certificates and key can be read.
    ///
    /// ```
    /// use chart::source::Identity;
    ///
    /// let identity = Identity::new(*b"no PEM", "no PEM either");
    /// assert_eq!(identity.check(), Err("the client's certificate is no certificate in PEM"));
    /// ```
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
    let builder = trusting(match insecure {
        true => Verifier::Anybody,
        false => {
            let given = bundles.iter().flat_map(|bundle| listed(bundle));
            Verifier::Authorities(system().and(given))
        }
    })?;
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
