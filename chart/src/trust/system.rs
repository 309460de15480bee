//! What the system trusts.

use rustls::pki_types::CertificateDer;

/// The system's certificates (DER), `SSL_CERT_FILE` and `SSL_CERT_DIR` included, as they are now.
pub fn system_certificates() -> Vec<CertificateDer<'static>> {
    let found = rustls_native_certs::load_native_certs();
    if !found.errors.is_empty() {
        let errors = found.errors.len();
        logging::debug!(errors, "system CA certificates skipped");
    }
    found.certs
}
