//! As much of OpenPGP (RFC 9580, version 4 keys and signatures) as it takes to check a clear-signed text with a keyring.
//!
//! Mirrors what Helm gets from ProtonMail's go-crypto: a key counts while it is not revoked and not expired *now*, a subkey only if it
//! is bound and has signed for its primary key, and a signature only with SHA-256 or better. Stricter than go-crypto: any revocation
//! counts, whatever its reason, since a key that was replaced is not to sign what is deployed; nothing may stand before or after the signed text.

mod armor;
mod certificate;
mod cleartext;
mod error;
mod packet;
mod signature;

pub use certificate::{Keyring, Signer};
pub use cleartext::Cleartext;
pub use error::PgpError;
