//! Who we are to a repository: credentials, trust and transport options.
//!
//! Owns the types; sending them is left to [`super::http`] and [`super::oci`]. Nothing here can be
//! printed: the password type has no accessor outside this module tree.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

/// A text that never shows in logs, errors or status.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// User name and password. Sent as basic authentication, or traded for a token by a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    username: String,
    password: Secret,
}

impl Credentials {
    /// Both or nothing: Helm and Fleet send no `Authorization` when either half is empty.
    pub fn new(username: impl Into<String>, password: impl Into<String>) -> Option<Self> {
        let (username, password) = (username.into(), Secret::new(password));
        (!username.is_empty() && !password.reveal().is_empty())
            .then_some(Self { username, password })
    }

    /// The user name; not secret, but not for metrics either.
    pub fn username(&self) -> &str {
        &self.username
    }

    pub(super) fn password(&self) -> &str {
        self.password.reveal()
    }
}

/// How a source may be reached. The default is anonymous, system trust, TLS for registries.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Sent to the origin of the repository or registry only, unless `passes_credentials`.
    pub credentials: Option<Credentials>,
    /// PEM certificates trusted in addition to the system's and those of `PROXY_CA_BUNDLE`.
    pub ca: Option<Arc<[u8]>>,
    /// Accept any server certificate.
    pub insecure: bool,
    /// Speak plain HTTP to an OCI registry. HTTP repositories say so in their URL.
    pub plain_http: bool,
    /// Certificate and key to show to servers that ask for one.
    pub identity: Option<Identity>,
    /// Send the credentials to whatever host an index names (Helm's `--pass-credentials`).
    pub passes_credentials: bool,
}

/// A client's certificate chain and its private key, both in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    pub(super) certificates: Arc<[u8]>,
    pub(super) key: Secret,
}

impl Identity {
    /// From PEM texts; they are read when first used.
    pub fn new(certificates: impl Into<Arc<[u8]>>, key: impl Into<String>) -> Self {
        Self {
            certificates: certificates.into(),
            key: Secret::new(key),
        }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity(***)")
    }
}

/// Tells two accesses apart in caches without keeping what they are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Fingerprint([u8; 32]);

impl Access {
    /// What was fetched with one access is never handed out to another.
    pub(super) fn fingerprint(&self) -> Fingerprint {
        let mut hash = Sha256::new();
        let mut field = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        match &self.credentials {
            Some(credentials) => {
                field(credentials.username.as_bytes());
                field(credentials.password().as_bytes());
            }
            None => field(b""),
        }
        field(self.ca.as_deref().unwrap_or_default());
        if let Some(identity) = &self.identity {
            field(&identity.certificates);
            field(identity.key.reveal().as_bytes());
        }
        let flags = [self.insecure, self.plain_http, self.passes_credentials];
        field(&flags.map(u8::from));
        Fingerprint(hash.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_or_a_password_alone_is_no_credential() {
        assert!(Credentials::new("u", "").is_none());
        assert!(Credentials::new("", "p").is_none());
        assert!(Credentials::new("u", "p").is_some());
    }

    #[test]
    fn passwords_do_not_print() {
        let access = Access {
            credentials: Credentials::new("joe", "hunter2"),
            ..Access::default()
        };
        assert!(!format!("{access:?}").contains("hunter2"));
    }

    #[test]
    fn fingerprints_tell_accesses_apart() {
        let with = |u: &str, p: &str| Access {
            credentials: Credentials::new(u, p),
            ..Access::default()
        };
        assert_eq!(with("a", "b").fingerprint(), with("a", "b").fingerprint());
        assert_ne!(with("a", "bc").fingerprint(), with("ab", "c").fingerprint());
        let plain = Access {
            plain_http: true,
            ..Access::default()
        };
        let insecure = Access {
            insecure: true,
            ..Access::default()
        };
        assert_ne!(plain.fingerprint(), insecure.fingerprint());
    }
}
