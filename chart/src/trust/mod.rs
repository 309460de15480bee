//! Which servers a TLS client believes: API servers, chart sources and proxies are judged alike, as Go's `crypto/x509` judges.
//!
//! rustls does the work. Ours is where Go goes further: a server's certificate that is itself among the trusted ones holds, also when it
//! calls itself a CA, as `openssl req -x509` makes them, and among many certificates those that cannot be read are passed over.

mod authorities;
mod crypto;
mod file;
mod pem;
mod system;
#[cfg(test)]
mod tests;
mod verifier;

pub use authorities::Authorities;
pub(crate) use crypto::provider;
pub use file::{AuthorityFile, AuthorityFileError};
pub use pem::{certificates, to_pem};
pub use system::system_certificates;
pub use verifier::Verifier;
