//! Credentials: passwords, tokens, client certificates.
//!
//! Owns the types; sending them is left to [`super::http`] and [`super::oci`]. Nothing here can be
//! printed: the password type has no accessor outside this module tree.

use std::fmt;
use std::sync::Arc;

use url::Url;

use super::safe_url;

/// A text that never shows in logs, errors or status.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret text.
    ///
    /// ```
    /// assert_eq!(format!("{:?}", chart::source::Secret::new("hunter2")), "***");
    /// ```
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
    ///
    /// ```
    /// use chart::source::Credentials;
    ///
    /// let joe = Credentials::new("joe", "hunter2").expect("both are there");
    /// assert_eq!(joe.username(), "joe");
    /// assert!(!format!("{joe:?}").contains("hunter2"));
    /// assert!(Credentials::new("joe", "").is_none());
    /// ```
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

    /// All that distinguishes the credentials from others.
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

    /// Whether the credentials are a user name and a password.
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

/// What a server was shown that nobody else may read where the server repeats it.
#[derive(Default)]
pub(super) struct ShownSecrets(Vec<String>);

/// Shown in place of a secret.
const MASK: &str = "**REDACTED**";

impl ShownSecrets {
    /// All that is secret of credentials, as it is and as it is sent; user names are not.
    pub(super) fn of(credentials: Option<&Credentials>) -> Self {
        let mut shown = Self::default();
        let Some(credentials) = credentials else {
            return shown;
        };
        let [username, secrets @ ..] = credentials.parts();
        for secret in secrets {
            shown.add(secret);
            shown.add(&url::form_urlencoded::byte_serialize(secret.as_bytes()).collect::<String>());
        }
        if credentials.is_pair() {
            let pair = golib::base64::encode(format!("{username}:{}", credentials.password()));
            shown.add(pair.trim_end_matches('='));
        }
        shown
    }

    /// With what an address has of secrets.
    pub(super) fn and_of(mut self, url: &Url) -> Self {
        safe_url::secrets(url).iter().for_each(|one| self.add(one));
        self
    }

    /// One more: a token that was got for them.
    pub(super) fn add(&mut self, secret: &str) {
        if !secret.is_empty() {
            self.0.push(secret.to_owned());
            // The secret as errors quote it that cannot read it.
            let quoted = format!("{secret:?}");
            self.0.push(quoted[1..quoted.len() - 1].to_owned());
            self.0.dedup();
            // Of two that begin alike the longer one is found.
            self.0.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        }
    }

    /// A text without them, in small letters and in capitals: a host's name is repeated in small ones.
    pub(super) fn redact(&self, text: &str) -> String {
        let (mut redacted, mut rest) = (String::new(), text);
        while let Some(next) = rest.chars().next() {
            let after = |secret: &String| {
                let (begin, after) = rest.split_at_checked(secret.len())?;
                begin.eq_ignore_ascii_case(secret).then_some(after)
            };
            let found = self.0.iter().find_map(after);
            rest = match found {
                Some(after) => {
                    redacted.push_str(MASK);
                    after
                }
                None => {
                    redacted.push(next);
                    &rest[next.len_utf8()..]
                }
            };
        }
        redacted
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_or_a_password_alone_is_no_credential() {
        assert!(Credentials::new("u", "").is_none());
        assert!(Credentials::new("", "p").is_none());
        assert!(Credentials::new("u", "p").is_some());
    }
}
