//! As much of OpenPGP (RFC 9580, version 4 keys and signatures) as it takes to check a clear-signed text with a keyring.
//!
//! Mirrors what Helm gets from ProtonMail's go-crypto: a key counts while it is not revoked and not expired *now*, a subkey only if it
//! is bound and has signed for its primary key, and a signature only with SHA-256 or better. Stricter than go-crypto: any revocation
//! counts, whatever its reason, since a key that was replaced is not to sign what is deployed; nothing may stand before or after the signed text.

mod armor;
mod certificate;
mod cleartext;
mod packet;
mod signature;

use std::fmt;

pub use certificate::Keyring;
pub use cleartext::Cleartext;

/// Why a text, a keyring or a signature does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PgpError {
    /// It is no clear-signed text.
    #[error("{0}")]
    Cleartext(String),
    /// An armored block is malformed.
    #[error("armor: {0}")]
    Armor(String),
    /// Packets are malformed or of another kind.
    #[error("OpenPGP data is malformed: {0}")]
    Malformed(String),
    /// A keyring without a key.
    #[error("the keyring has no public key{0}")]
    EmptyKeyring(&'static str),
    /// No signature counts; each with its reason.
    #[error("openpgp: {}", .0.join("; "))]
    NotSigned(Vec<String>),
}

/// Who signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signer {
    /// Of the primary key, upper-case hexadecimal.
    pub fingerprint: String,
    /// The key's user names, those that are not revoked.
    pub users: Vec<String>,
}

impl fmt::Display for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {}", self.fingerprint)?;
        match self.users.first() {
            Some(user) => write!(f, " ({user})"),
            None => Ok(()),
        }
    }
}
