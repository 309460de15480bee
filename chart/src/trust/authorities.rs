//! Certificates that are trusted, the system's among them, and whether a server's certificate holds by them.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, OtherError, RootCertStore};
use sha2::{Digest as _, Sha256};

/// Certificates that are trusted: what they signed holds, and so does each of them as a server's own.
#[derive(Debug, Clone)]
pub struct Authorities {
    roots: Arc<RootCertStore>,
    /// SHA-256 of each certificate.
    known: HashSet<[u8; 32]>,
}

impl Authorities {
    /// Trusts these certificates (DER) alone; without any, no server. Those that cannot be read are passed over.
    ///
    /// ```
    /// use chart::trust::Authorities;
    ///
    /// # let ca = rcgen::generate_simple_self_signed(["ca.example".to_owned()])?.cert;
    /// assert!(!Authorities::new([ca.der()]).is_empty());
    /// assert!(Authorities::new(["no certificate"]).is_empty());
    /// # Ok::<(), rcgen::Error>(())
    /// ```
    pub fn new(certificates: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        Self::nobody().and(certificates)
    }

    /// The system's, as they are now.
    pub fn system() -> Self {
        let mut system = Self::nobody();
        let unusable = system.add(system_certificates());
        if unusable > 0 {
            logging::debug!(unusable, "system CA certificates skipped");
        }
        system
    }

    /// With these certificates (DER) besides.
    ///
    /// ```
    /// use chart::trust::{Authorities, certificates};
    ///
    /// // A CA bundle beside what the system trusts.
    /// let bundle = b"-----BEGIN CERTIFICATE-----\nMIIB...\n-----END CERTIFICATE-----\n";
    /// let trusted = Authorities::system().and(certificates(bundle));
    /// # drop(trusted);
    /// ```
    #[must_use]
    pub fn and(mut self, certificates: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        let unusable = self.add(certificates);
        if unusable > 0 {
            logging::warn!(
                unusable,
                "certificates of a CA bundle cannot be used as roots"
            );
        }
        self
    }

    fn nobody() -> Self {
        Self {
            roots: Arc::new(RootCertStore::empty()),
            known: HashSet::new(),
        }
    }

    /// Gives how many were passed over.
    fn add(&mut self, certificates: impl IntoIterator<Item = impl AsRef<[u8]>>) -> usize {
        let roots = Arc::make_mut(&mut self.roots);
        let mut unusable = 0;
        for certificate in certificates {
            let certificate = CertificateDer::from(certificate.as_ref());
            self.known.insert(digest(&certificate));
            unusable += usize::from(roots.add(certificate).is_err());
        }
        unusable
    }

    /// Whether no certificate can be used.
    pub fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// Whether a server of this name may have this certificate now.
    pub(super) fn check(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        let is_known = self.known.contains(&digest(certificate));
        // Go looks no further than a certificate that is trusted itself: neither who signed it counts, nor whether it is a CA's.
        // What webpki objects to without any root is its dates, then that it is a CA's, then its purpose, and last that nobody signed it.
        let nobody = RootCertStore::empty();
        let (roots, intermediates) = match is_known {
            true => (&nobody, &[][..]),
            false => (&*self.roots, intermediates),
        };
        let algorithms = provider().signature_verification_algorithms.all;
        let signed = verify_server_cert_signed_by_trust_anchor(
            &parsed,
            roots,
            intermediates,
            now,
            algorithms,
        );
        match signed {
            Ok(()) => {}
            Err(error) if !is_unknown_issuer(&error) => return Err(error),
            Err(_) if is_known => {}
            Err(_) => return Err(CertificateError::UnknownIssuer.into()),
        }
        verify_server_name(&parsed, name)
    }
}

fn digest(certificate: &CertificateDer<'_>) -> [u8; 32] {
    Sha256::digest(certificate).into()
}

/// Whether the objection is that no trusted authority signed the certificate: its issuer is not known, or
/// it calls itself a CA (rustls' word for most self-signed ones).
fn is_unknown_issuer(error: &Error) -> bool {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => true,
        Error::InvalidCertificate(CertificateError::Other(OtherError(other))) => {
            matches!(other.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
        }
        _ => false,
    }
}

/// The system's certificates (DER), `SSL_CERT_FILE` and `SSL_CERT_DIR` included, as they are now.
pub fn system_certificates() -> Vec<CertificateDer<'static>> {
    let found = rustls_native_certs::load_native_certs();
    if !found.errors.is_empty() {
        let errors = found.errors.len();
        logging::debug!(errors, "system CA certificates skipped");
    }
    found.certs
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider())))
}
