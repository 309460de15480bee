//! Why a text, a keyring or a signature does not count.

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
