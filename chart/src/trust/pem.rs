//! Certificates in PEM, as Go's `AppendCertsFromPEM` finds them: whatever is malformed is passed over.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

const BEGIN: &[u8] = b"-----BEGIN ";

/// The certificates of a PEM text, without what is malformed or something else.
///
/// ```
/// use chart::trust::{certificates, to_pem};
///
/// let bundle = "# ours\n-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n-----BEGIN CERTIFICATE-----\n?";
/// let found = certificates(bundle.as_bytes());
/// assert_eq!(found.len(), 1);
/// assert_eq!(to_pem(&found), "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n");
/// ```
pub fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    blocks(pem)
        .filter_map(|block| CertificateDer::from_pem_slice(block).ok())
        .collect()
}

/// The text from one `BEGIN` to the next: a block that is cut off takes no part of its neighbour.
fn blocks(pem: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_begin = |at: &usize| {
        pem[*at..].starts_with(BEGIN) && (*at == 0 || matches!(pem[at - 1], b'\n' | b'\r'))
    };
    let mut begins = (0..pem.len()).filter(is_begin).peekable();
    std::iter::from_fn(move || {
        let begin = begins.next()?;
        let end = begins.peek().copied().unwrap_or(pem.len());
        Some(&pem[begin..end])
    })
}

/// A PEM text of these certificates.
pub fn to_pem(certificates: &[CertificateDer<'_>]) -> String {
    let blocks = certificates.iter().map(|certificate| {
        let body = golib::base64::encode(certificate);
        format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
    });
    blocks.collect()
}
