//! How a source may be reached: credentials, trust and transport options, and which of them go to which address. What the operator of
//! the cluster says of a single host comes before what upstream sent.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use url::Url;

use super::credentials::{Credentials, Identity};
use super::error::CredentialsUse;
use super::host::{Address, HostPattern};
use super::logins::Logins;
use super::safe_url::SafeUrl;

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
    /// Settings of single hosts, which come before all others.
    pub hosts: Option<Arc<Hosts>>,
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
    /// This access for one address: with the credentials that go there, and none for others. `origin` is whom `credentials` are for.
    pub(super) fn at(&self, url: &Url, origin: &SafeUrl) -> LocalAccess {
        let is_for = origin.same_origin(url) || self.passes_credentials;
        let own = self.credentials.as_ref().filter(|_| is_for);
        let logins = self.logins.as_ref();
        let logins = logins.filter(|_| may_be_shown_login(url, origin));
        let login = || {
            let (pattern, login) = logins?.entry_for(url)?;
            Some((login.as_ref()?, Scope::below(pattern)))
        };
        let shown = own.map(|own| (own, Scope::Origin)).or_else(login).unzip();
        let local = LocalAccess {
            access: Self {
                credentials: shown.0.cloned(),
                identity: self.identity.clone().filter(|_| is_for),
                logins: None,
                hosts: None,
                passes_credentials: false,
                ..self.clone()
            },
            origin: SafeUrl::from(url.clone()),
            credentials_for: shown.1.unwrap_or(Scope::Origin),
            identity_for: Scope::Origin,
            hosts: self.hosts.clone(),
        };
        match self.hosts.as_ref().and_then(|hosts| hosts.for_url(url)) {
            // What was fetched before the host was refused is not handed out as fetched from it.
            Some((_, host)) if host.is_refused => LocalAccess {
                access: Self {
                    hosts: self.hosts.clone(),
                    ..local.access
                },
                ..local
            },
            Some((pattern, host)) => local.with_host(pattern, host),
            None => local,
        }
    }

    /// The access to a registry that an index names: without the repository's own credentials and client certificate.
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
        host.map_or(self.plain_http, |(_, host)| host.is_plain(self.plain_http))
    }

    /// The credentials shown to a server at `url` that takes user name and password, for errors.
    pub(super) fn shown(&self, url: &Url, origin: &SafeUrl) -> CredentialsUse {
        match self.at(url, origin).credentials() {
            Some(credentials) if credentials.is_pair() => CredentialsUse::Sent,
            Some(_) => CredentialsUse::Unusable,
            None => match self.logins.as_ref().map(|logins| logins.for_url(url)) {
                Some(Some(None)) => CredentialsUse::Broken,
                Some(Some(Some(_))) if !may_be_shown_login(url, origin) => {
                    CredentialsUse::WithoutTls
                }
                Some(_) => CredentialsUse::NoLogin,
                None => CredentialsUse::Nothing,
            },
        }
    }

    /// A digest of the access: a chart fetched with one access is never handed out to another.
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

/// Whether a login may be shown at `url`. The author of an index must not choose that this is done without TLS: the bundle names one address so,
/// `origin`, and not others.
fn may_be_shown_login(url: &Url, origin: &SafeUrl) -> bool {
    url.scheme() == "https" || origin.same_origin(url)
}

/// An access as it is for one address, which [`Access::at`] alone makes of one for all: what is shown there, and how far that goes. Whether a
/// request may be sent at all is asked by its own address, which may be another one.
#[derive(Clone, Debug)]
pub(super) struct LocalAccess {
    access: Access,
    /// The address that it is for.
    origin: SafeUrl,
    credentials_for: Scope,
    /// For which the client certificate is.
    identity_for: Scope,
    hosts: Option<Arc<Hosts>>,
}

/// Which addresses of one server something is for.
#[derive(Clone, Debug)]
enum Scope {
    /// All of them.
    Origin,
    /// Those that a login or a host's settings are for.
    Below(HostPattern),
}

impl Scope {
    fn below(pattern: &HostPattern) -> Self {
        Self::Below(pattern.clone())
    }

    fn has(&self, url: &Url) -> bool {
        match self {
            Self::Origin => true,
            Self::Below(pattern) => pattern.matches(url),
        }
    }
}

impl LocalAccess {
    /// The access to one host that the cluster's operator has settings for. A host that is sent its operator's credentials is trusted by these settings
    /// alone, and reached by TLS unless they say otherwise: what a bundle says of trust must not give them away.
    fn with_host(self, pattern: &HostPattern, host: &HostAccess) -> Self {
        if host.has_secrets() && self.origin.scheme() == "http" && host.plain_http != Some(true) {
            return self;
        }
        let (credentials, credentials_for) = match &host.credentials {
            Some(credentials) => (Some(credentials.clone()), Scope::below(pattern)),
            None => (
                self.access.credentials.clone(),
                self.credentials_for.clone(),
            ),
        };
        let (identity, identity_for) = match &host.identity {
            Some(identity) => (Some(identity.clone()), Scope::below(pattern)),
            None => (self.access.identity.clone(), self.identity_for.clone()),
        };
        let local = self.trusting(host);
        Self {
            access: Access {
                credentials,
                identity,
                plain_http: host.is_plain(local.access.plain_http),
                ..local.access
            },
            credentials_for,
            identity_for,
            ..local
        }
    }

    /// With what the settings of a host say of trust.
    fn trusting(self, host: &HostAccess) -> Self {
        let (ca, insecure) = match host.has_secrets() {
            true => (host.ca.clone(), host.insecure.unwrap_or_default()),
            false => (
                host.ca.clone().or(self.access.ca),
                host.insecure.unwrap_or(self.access.insecure),
            ),
        };
        Self {
            access: Access {
                ca,
                insecure,
                ..self.access
            },
            ..self
        }
    }

    /// The access to the token service that a registry names, which trades the registry's credentials. It is trusted as the registry is, or as the
    /// settings of its own host say. The client certificate is for the registry alone.
    pub(super) fn for_token_service(&self, service: &Url) -> Self {
        // No token service lies below the folder that a certificate is for: the registry there names it.
        let is_for = self.origin.same_origin(service);
        let local = Self {
            access: Access {
                identity: self.access.identity.clone().filter(|_| is_for),
                ..self.access.clone()
            },
            origin: SafeUrl::from(service.clone()),
            credentials_for: Scope::Origin,
            identity_for: Scope::Origin,
            hosts: self.hosts.clone(),
        };
        match self.hosts.as_ref().and_then(|hosts| hosts.for_url(service)) {
            Some((_, host)) => local.trusting(host),
            None => local,
        }
    }

    pub(super) fn credentials(&self) -> Option<&Credentials> {
        self.access.credentials.as_ref()
    }

    /// The client certificate, if it may be shown at an address of the same server.
    pub(super) fn identity_at(&self, url: &Url) -> Option<&Identity> {
        let identity = self.access.identity.as_ref();
        identity.filter(|_| self.identity_for.has(url))
    }

    /// Whether the credentials, and what was had for them, may be shown at an address of the same server.
    pub(super) fn shows_credentials_at(&self, url: &Url) -> bool {
        self.credentials_for.has(url)
    }

    pub(super) fn ca(&self) -> Option<&[u8]> {
        self.access.ca.as_deref()
    }

    pub(super) fn is_insecure(&self) -> bool {
        self.access.insecure
    }

    /// Whether an address is of a host that nothing may be asked of.
    pub(super) fn is_refused(&self, url: &Url) -> bool {
        let hosts = self.hosts.as_ref();
        let host = hosts.and_then(|hosts| hosts.for_url(url));
        host.is_some_and(|(_, host)| host.is_refused)
    }

    /// See [`Access::fingerprint`].
    pub(super) fn fingerprint(&self) -> Fingerprint {
        self.access.fingerprint()
    }
}

/// How one host is reached. What is `None` stays as it is for everybody else.
#[derive(Clone, Debug, Default)]
pub struct HostAccess {
    /// Shown in place of others.
    pub credentials: Option<Credentials>,
    /// PEM certificates trusted in addition to the system's, in place of others.
    pub ca: Option<Arc<[u8]>>,
    /// Certificate and key to show.
    pub identity: Option<Identity>,
    /// Accept any certificate of the server.
    pub insecure: Option<bool>,
    /// Speak plain HTTP to a registry.
    pub plain_http: Option<bool>,
    /// Ask it for nothing: what is said of it cannot be used.
    pub is_refused: bool,
}

impl HostAccess {
    /// Whether a registry here is spoken to without TLS; `otherwise` is what is known of it otherwise.
    pub(super) fn is_plain(&self, otherwise: bool) -> bool {
        self.plain_http.unwrap_or(otherwise && !self.has_secrets())
    }

    pub(super) fn has_secrets(&self) -> bool {
        self.credentials.is_some() || self.identity.is_some()
    }
}

/// Hosts, each with how it is reached.
#[derive(Clone, Default)]
pub struct Hosts {
    /// The hosts, those that take precedence first.
    entries: Vec<(HostPattern, HostAccess)>,
    digest: [u8; 32],
}

impl Hosts {
    /// From hosts and how they are reached; of two for the same addresses the first counts.
    pub fn new(mut entries: Vec<(HostPattern, HostAccess)>) -> Self {
        entries.sort_by(|(a, _), (b, _)| a.precedence().cmp(&b.precedence()));
        let mut hash = Sha256::new();
        for (pattern, access) in &entries {
            let credentials = access.credentials.iter();
            let credentials = credentials.flat_map(Credentials::parts);
            let identity = access.identity.iter().flat_map(|identity| {
                let key = identity.key.reveal().as_bytes();
                [&identity.certificates[..], key]
            });
            let flags = [access.insecure, access.plain_http].map(|flag| match flag {
                None => 2,
                Some(flag) => u8::from(flag),
            });
            let flags = [flags[0], flags[1], u8::from(access.is_refused)];
            let parts = [pattern.to_string().into_bytes(), flags.to_vec()];
            let ca = access.ca.as_deref().unwrap_or_default();
            for part in parts.iter().map(Vec::as_slice).chain([ca]) {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part);
            }
            for part in credentials.map(str::as_bytes).chain(identity) {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part);
            }
        }
        Self {
            entries,
            digest: hash.finalize().into(),
        }
    }

    /// The logins of docker's, as hosts; the host of one that cannot be read is refused.
    ///
    /// ```
    /// use chart::source::{Hosts, Logins};
    ///
    /// let file = br#"{"auths": {"registry.example": {"username": "joe", "password": "hunter2"}}}"#;
    /// let hosts = Hosts::of_logins(&Logins::from_docker_config(file)?);
    /// let (pattern, access) = &hosts[0];
    /// assert!(pattern.matches(&"https://registry.example/v2/".parse()?));
    /// assert_eq!(access.credentials.as_ref().map(|login| login.username()), Some("joe"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of_logins(logins: &Logins) -> Vec<(HostPattern, HostAccess)> {
        let access = |login: &Option<Credentials>| HostAccess {
            credentials: login.clone(),
            // To go on without would show the host whatever a bundle brings.
            is_refused: login.is_none(),
            ..HostAccess::default()
        };
        let entries = logins.entries();
        entries
            .map(|(pattern, login)| (pattern.clone(), access(login)))
            .collect()
    }

    /// The settings of an address, and what they are for.
    pub(super) fn for_url(&self, url: &Url) -> Option<(&HostPattern, &HostAccess)> {
        // Another spelling of what is refused must not be asked as if nothing was said of it.
        let address = Address::of(url);
        let is_for = |pattern: &HostPattern, access: &HostAccess| {
            pattern.is_for(&address) || access.is_refused && pattern.may_be_for(&address)
        };
        let mut entries = self.entries.iter();
        entries.find_map(|(pattern, access)| is_for(pattern, access).then_some((pattern, access)))
    }

    pub(super) fn digest(&self) -> &[u8] {
        &self.digest
    }
}

impl fmt::Debug for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = self.entries.iter().map(|(pattern, _)| pattern);
        f.debug_set().entries(addresses).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_do_not_print() {
        let access = Access {
            credentials: Credentials::new("joe", "hunter2"),
            ..Access::default()
        };
        assert!(!format!("{access:?}").contains("hunter2"));
    }

    #[test]
    fn no_spelling_of_a_refused_address_is_asked() {
        let refused = HostAccess {
            is_refused: true,
            ..HostAccess::default()
        };
        let pattern = HostPattern::parse("charts.example/stable").expect("a host");
        let access = Access {
            hosts: Some(Arc::new(Hosts::new(vec![(pattern, refused)]))),
            ..Access::default()
        };
        let elsewhere = SafeUrl::parse("https://registry.example").expect("a URL");
        let elsewhere = access.at(&elsewhere, &elsewhere);
        let is_refused = |url: &str| {
            let url = SafeUrl::parse(url).expect("a URL");
            let is_refused = access.at(&url, &url).is_refused(&url);
            assert_eq!(elsewhere.is_refused(&url), is_refused, "{url}");
            is_refused
        };
        for url in [
            "https://charts.example/stable/index.yaml",
            "https://charts.example./stable/index.yaml",
            "https://charts.example/st%61ble/index.yaml",
            "https://charts.example/stable;x/index.yaml",
            "https://charts.example/x/..%2fstable/index.yaml",
            "https://charts.example/v2/x%5c..%5cstable/index.yaml",
        ] {
            assert!(is_refused(url), "{url}");
        }
        assert!(!is_refused("https://charts.example/other/index.yaml"));
    }

    #[test]
    fn fingerprints_differ_between_accesses() {
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
