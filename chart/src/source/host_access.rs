//! Settings for single hosts, by the operator of the cluster: they come before what upstream sent.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use url::Url;

use super::credentials::{Credentials, Identity};
use super::host::HostPattern;
use super::logins::Logins;

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
    /// Those that take precedence first.
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

    /// The logins of docker's, as hosts.
    pub fn of_logins(logins: &Logins) -> Vec<(HostPattern, HostAccess)> {
        let entries = logins.entries();
        let access = |credentials: &Credentials| HostAccess {
            credentials: Some(credentials.clone()),
            ..HostAccess::default()
        };
        entries
            .filter_map(|(pattern, login)| Some((pattern.clone(), access(login.as_ref()?))))
            .collect()
    }

    pub(super) fn for_url(&self, url: &Url) -> Option<&HostAccess> {
        let mut entries = self.entries.iter();
        entries.find_map(|(pattern, access)| pattern.matches(url).then_some(access))
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
