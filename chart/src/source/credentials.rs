//! Who we are to a repository: credentials, trust and transport options.
//!
//! Owns the types; sending them is left to [`super::http`] and [`super::oci`]. Nothing here can be
//! printed: the password type has no accessor outside this module tree.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use url::Url;

use super::host_access::Hosts;
use super::logins::Logins;
use super::safe_url::SafeUrl;

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

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// What a server is shown: user name and password, and the tokens a login may have in their place.
///
/// User name and password are sent as basic authentication, or traded for a token by a registry. An identity token is
/// traded for one too (OAuth2's refresh token), a registry token is sent as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    username: String,
    password: Secret,
    identity_token: Secret,
    registry_token: Secret,
}

impl Credentials {
    /// Both or nothing: Helm and Fleet send no `Authorization` when either half is empty.
    pub fn new(username: impl Into<String>, password: impl Into<String>) -> Option<Self> {
        let (username, password) = (username.into(), Secret::new(password));
        (!username.is_empty() && !password.is_empty()).then(|| Self {
            username,
            password,
            ..Self::default()
        })
    }

    /// With the tokens of a login; `None` where there is nothing that could be shown.
    pub(super) fn login(
        username: String,
        password: String,
        identity_token: String,
        registry_token: String,
    ) -> Option<Self> {
        let pair = Self::new(username, password).unwrap_or_default();
        let login = Self {
            identity_token: Secret::new(identity_token),
            registry_token: Secret::new(registry_token),
            ..pair
        };
        (login != Self::default()).then_some(login)
    }

    /// All that tells them from others.
    pub(super) fn parts(&self) -> [&str; 4] {
        let secrets = [&self.password, &self.identity_token, &self.registry_token];
        let [password, identity_token, registry_token] = secrets.map(Secret::reveal);
        [&self.username, password, identity_token, registry_token]
    }

    /// The user name; not secret, but not for metrics either.
    pub fn username(&self) -> &str {
        &self.username
    }

    pub(super) fn password(&self) -> &str {
        self.password.reveal()
    }

    /// Whether there is a user name and a password.
    pub(super) fn is_pair(&self) -> bool {
        !self.username.is_empty()
    }

    /// To be traded for a token by a registry's token service.
    pub(super) fn identity_token(&self) -> Option<&str> {
        Some(self.identity_token.reveal()).filter(|token| !token.is_empty())
    }

    /// Shown to a registry as it is.
    pub(super) fn registry_token(&self) -> Option<&str> {
        Some(self.registry_token.reveal()).filter(|token| !token.is_empty())
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
    /// For addresses that `credentials` are not for.
    pub logins: Option<Arc<Logins>>,
    /// What comes before all else for single hosts.
    pub hosts: Option<Arc<Hosts>>,
}

/// A client's certificate chain and its private key, both in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    pub(super) certificates: Arc<[u8]>,
    pub(super) key: Secret,
}

impl Identity {
    /// Whether certificates and key can be read.
    ///
    /// # Errors
    /// What is wrong, without a word of what they hold.
    pub fn check(&self) -> Result<(), &'static str> {
        super::tls::check_identity(self)
    }

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

/// What a server was shown, as errors tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Credentials, whoever they are of.
    Credentials,
    /// Nothing, as there was nothing.
    Nothing,
    /// Nothing, as no login is for this address.
    NoLogin,
    /// Nothing, as the login for this address cannot be read.
    Broken,
    /// Nothing, as it is another host than the one that was asked, which redirects there.
    Elsewhere,
    /// Nothing, as the login for this address has a token of a kind that the server does not take.
    Unusable,
}

/// Tells two accesses apart in caches without keeping what they are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Access {
    /// As it is for one address: with the credentials that go there, and none for others. `origin` is whom `credentials` are for.
    pub(super) fn at(&self, url: &Url, origin: &SafeUrl) -> Self {
        let is_for = origin.same_origin(url) || self.passes_credentials;
        let own = self.credentials.as_ref().filter(|_| is_for);
        // Whoever names an address in an index does not choose that a login is shown without TLS.
        let is_plain = self.plain_http || origin.scheme() == "http";
        let may_be_shown = url.scheme() == "https" || is_plain;
        let logins = self.logins.as_ref().filter(|_| may_be_shown);
        let login = || logins?.for_url(url)?.as_ref();
        let access = Self {
            credentials: own.or_else(login).cloned(),
            identity: self.identity.clone().filter(|_| is_for),
            logins: None,
            hosts: None,
            passes_credentials: false,
            ..self.clone()
        };
        let hosts = self.hosts.as_ref();
        match hosts.and_then(|hosts| hosts.for_url(url)) {
            Some(host) => host.over(access, url),
            None => access,
        }
    }

    /// As it is for a registry that an index names: what proves who asks is the repository's own.
    pub(super) fn without_own(&self) -> Self {
        Self {
            credentials: None,
            identity: None,
            ..self.clone()
        }
    }

    /// Whether a registry, by its address with TLS, is spoken to without.
    pub(super) fn is_plain(&self, registry: &Url) -> bool {
        let hosts = self.hosts.as_ref();
        let host = hosts.and_then(|hosts| hosts.for_url(registry));
        host.map_or(self.plain_http, |host| host.is_plain(self.plain_http))
    }

    /// What is shown to a server at `url` that takes user name and password, for errors.
    pub(super) fn shown(&self, url: &Url, origin: &SafeUrl) -> Shown {
        match self.at(url, origin).credentials {
            Some(credentials) if credentials.is_pair() => Shown::Credentials,
            Some(_) => Shown::Unusable,
            None => match &self.logins {
                Some(logins) if logins.for_url(url).is_some_and(Option::is_none) => Shown::Broken,
                Some(_) => Shown::NoLogin,
                None => Shown::Nothing,
            },
        }
    }

    /// What was fetched with one access is never handed out to another.
    pub(super) fn fingerprint(&self) -> Fingerprint {
        let mut hash = Sha256::new();
        let mut field = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        match &self.credentials {
            Some(credentials) => {
                let parts = credentials.parts();
                parts.iter().for_each(|part| field(part.as_bytes()));
            }
            None => field(b""),
        }
        field(
            self.logins
                .as_ref()
                .map_or(&[][..], |logins| logins.digest()),
        );
        field(self.hosts.as_ref().map_or(&[][..], |hosts| hosts.digest()));
        field(self.ca.as_deref().unwrap_or_default());
        if let Some(identity) = &self.identity {
            field(&identity.certificates);
            field(identity.key.reveal().as_bytes());
        }
        field(&[u8::from(self.identity.is_some())]);
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
