//! Decides which servers a TLS client trusts: API servers, chart sources and proxies are judged alike, as Go's `crypto/x509` judges.
//!
//! rustls does the work. Ours is where Go goes further: a server's certificate that is itself among the trusted ones holds, also when it
//! calls itself a CA, as `openssl req -x509` makes them, and among many certificates those that cannot be read are passed over.

mod authorities;
mod file;
mod pem;
#[cfg(test)]
mod tests;
mod verifier;

pub(crate) use authorities::provider;
pub use authorities::{Authorities, system_certificates};
pub use file::{AuthorityFile, AuthorityFileError};
pub use pem::{certificates, to_pem};
pub use verifier::Verifier;
