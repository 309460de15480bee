//! A URL that cannot print what may be a credential.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use url::Url;

use super::cache::Weigh;

/// Shown in place of a secret part, as in Go's `URL.Redacted`.
const HIDDEN: &str = "xxxxx";

/// A URL whose `Display` and `Debug` show where it leads, and nothing that may open what is there: `xxxxx` for user name and password, and
/// for the values of its query, but for those that are known to be harmless. Cheap to clone.
///
/// ```
/// let url = chart::source::SafeUrl::parse("https://me:secret@charts.example/x.tgz?private_token=abc")?;
/// assert_eq!(url.to_string(), "https://xxxxx@charts.example/x.tgz?private_token=xxxxx");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SafeUrl(Arc<Url>);

/// Query keys whose values are shown: go-getter's, what names a version, and what registries and their token services are asked for. What
/// others mean, nobody knows.
const HARMLESS_KEYS: [&str; 6] = ["checksum", "archive", "ref", "version", "service", "scope"];

/// Whether the value of a key is no credential, whatever it is; how many entries a page of a registry has is a number.
fn is_harmless(key: &str, value: &str) -> bool {
    let is_number = value.len() <= 4 && value.bytes().all(|b| b.is_ascii_digit());
    HARMLESS_KEYS.contains(&key) || key == "n" && is_number
}

impl logging::Public for SafeUrl {
    fn fmt_public(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl SafeUrl {
    /// Parses an absolute URL.
    ///
    /// ```
    /// let url = chart::source::SafeUrl::parse("https://joe:hunter2@charts.example/index.yaml?token=abc")?;
    /// assert_eq!(url.host_str(), Some("charts.example"));
    /// assert!(!url.to_string().contains("hunter2") && !url.to_string().contains("abc"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The parser's reason, without the text that was parsed.
    pub fn parse(text: &str) -> Result<Self, url::ParseError> {
        Url::parse(text).map(Self::from)
    }

    /// Whether the URL has a part in which credentials may stand: it is not to be written down.
    pub(super) fn may_hold_credentials(&self) -> bool {
        !self.username().is_empty()
            || self.password().is_some()
            || self.query().is_some()
            || self.fragment().is_some()
            || behind_login(self).is_some()
    }

    /// Whether a request to `other` stays with the server we were given credentials for.
    ///
    /// ```
    /// use chart::source::SafeUrl;
    ///
    /// let repository = SafeUrl::parse("https://charts.example/stable")?;
    /// assert!(repository.same_origin(&"https://charts.example:443/web-1.0.0.tgz".parse()?));
    /// assert!(!repository.same_origin(&"https://cdn.example/web-1.0.0.tgz".parse()?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn same_origin(&self, other: &Url) -> bool {
        self.scheme() == other.scheme()
            && self.host() == other.host()
            && self.port_or_known_default() == other.port_or_known_default()
    }
}

impl Weigh for SafeUrl {
    fn weight(&self) -> usize {
        size_of::<Url>() + self.as_str().len()
    }
}

impl From<Url> for SafeUrl {
    fn from(url: Url) -> Self {
        Self(Arc::new(url))
    }
}

impl Deref for SafeUrl {
    type Target = Url;

    fn deref(&self) -> &Url {
        &self.0
    }
}

/// Shorter values of a query, and users without password, are words as `git`: to hide them would hide much of every text.
const LEAST_SECRET: usize = 6;

/// What an address has that nobody may read where its server repeats it: user and password as they are and as they are sent, and values of its query.
pub(super) fn secrets(url: &Url) -> Vec<String> {
    let decoded = |text: &str| {
        let bytes = golib::url::path_unescape(text.as_bytes());
        bytes.map_or_else(
            |_| text.to_owned(),
            |bytes| String::from_utf8_lossy(&bytes).into_owned(),
        )
    };
    let mut found = Vec::new();
    let (username, password) = (url.username(), url.password());
    // A user alone is a token.
    let secret = password.unwrap_or(username);
    if !secret.is_empty() {
        let pair = [username, password.unwrap_or_default()]
            .map(decoded)
            .join(":");
        let pair = golib::base64::encode(pair);
        if password.is_some() || decoded(secret).len() >= LEAST_SECRET {
            found.extend([secret.to_owned(), decoded(secret)]);
        }
        found.push(pair.trim_end_matches('=').to_owned());
    }
    let parts = url.query().into_iter().flat_map(|query| query.split('&'));
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or(("", part));
        if !is_harmless(key, value) && value.len() >= LEAST_SECRET {
            found.extend([value.to_owned(), decoded(&value.replace('+', " "))]);
        }
    }
    found
}

/// A query without what may be a credential in it: values that no harmless key has, and what has no key.
fn shown_query(query: &str) -> String {
    let parts = query.split('&').map(|part| match part.split_once('=') {
        Some((key, value)) if is_harmless(key, value) => part.to_owned(),
        Some((key, _)) => format!("{key}={HIDDEN}"),
        None if part.is_empty() || HARMLESS_KEYS.contains(&part) => part.to_owned(),
        None => HIDDEN.to_owned(),
    });
    parts.collect::<Vec<_>>().join("&")
}

/// The part to show of an address with an `@` where no login stands: one with a `/`, `?` or `#` in it ends there, as URLs are read, and the rest of
/// it is taken for a path. What follows the last `@` is none of it; in a query it may be. An `@` before a digest is none of a login's.
fn behind_login(url: &Url) -> Option<&str> {
    let is_digest = |text: &str| {
        ["sha256:", "sha512:"]
            .iter()
            .any(|kind| text.starts_with(kind))
    };
    if url.query().is_some_and(|query| query.contains('@')) {
        return Some("");
    }
    if let Some((_, rest)) = url.fragment().and_then(|text| text.rsplit_once('@')) {
        return Some(rest);
    }
    let path = match url.path().rsplit_once('@') {
        Some((path, digest)) if is_digest(digest) => path,
        _ => url.path(),
    };
    path.rsplit_once('@').map(|(_, rest)| rest)
}

/// A text that may be an address, as it may be shown whatever it is: without what stands before an `@`, and as a URL's query is shown.
pub(super) fn shown_text(text: &str) -> String {
    if let Ok(url) = SafeUrl::parse(text)
        && url.has_host()
    {
        return url.to_string().trim_end_matches('/').to_owned();
    }
    // A password may have any sign in it.
    let text = match text.rsplit_once('@') {
        Some((login, _)) if login.contains('?') => return "…".to_owned(),
        Some((_, rest)) => &format!("…@{rest}"),
        None => text,
    };
    let text = text.split('#').next().unwrap_or_default();
    match text.split_once('?') {
        Some((place, query)) => format!("{place}?{}", shown_query(query)),
        None => text.to_owned(),
    }
}

impl fmt::Display for SafeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rest) = behind_login(&self.0) {
            let scheme = self.0.scheme();
            // The rest of the address has no login.
            return match Self::parse(&format!("{scheme}://{HIDDEN}@{rest}")) {
                Ok(url) if url.has_host() => url.fmt(f),
                _ => write!(f, "{scheme}://{HIDDEN}/"),
            };
        }
        let mut shown = Url::clone(&self.0);
        if !shown.username().is_empty() || shown.password().is_some() {
            // Both fail only for URLs that cannot have any.
            let _ = shown.set_password(None);
            let _ = shown.set_username(HIDDEN);
        }
        if let Some(query) = self.0.query() {
            shown.set_query(Some(&shown_query(query)));
        }
        shown.set_fragment(None);
        f.write_str(shown.as_str())
    }
}

impl fmt::Debug for SafeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_alone_is_a_secret_unless_it_is_a_word() {
        let has = |url: &str, secret: &str| {
            let url = Url::parse(url).expect("a URL");
            secrets(&url).iter().any(|one| one == secret)
        };
        assert!(has("https://glpat-1@h/x", "glpat-1"));
        assert!(!has("https://git@h/x", "git"));
        assert!(has("https://git:pw@h/x", "pw"));
    }

    #[test]
    fn possible_credentials_in_a_url_are_hidden() {
        let shown = |text: &str| SafeUrl::parse(text).unwrap().to_string();
        for (text, want) in [
            ("https://u:p@h/x?y=1", "https://xxxxx@h/x?y=xxxxx"),
            // A token as a user name.
            ("https://glpat-1@h/x", "https://xxxxx@h/x"),
            ("https://:p@h/x", "https://xxxxx@h/x"),
            (
                "https://h/x?X-Amz-Signature=abc&a=b",
                "https://h/x?X-Amz-Signature=xxxxx&a=xxxxx",
            ),
            (
                "https://h/x?private_token=glpat-1&api_key=k&job_token=j&sshkey=LS0t",
                "https://h/x?private_token=xxxxx&api_key=xxxxx&job_token=xxxxx&sshkey=xxxxx",
            ),
            ("https://h/x?n=1000&last=a", "https://h/x?n=1000&last=xxxxx"),
            ("https://h/x?n=glpat-1", "https://h/x?n=xxxxx"),
            (
                "https://h/token?service=r&scope=repository:a/b:pull",
                "https://h/token?service=r&scope=repository:a/b:pull",
            ),
            ("https://h/x?abcdef", "https://h/x?xxxxx"),
            ("https://h/x#abcdef", "https://h/x"),
            (
                "https://h/x?checksum=sha256:ab&archive=tgz&ref=v1&version=1.0%2Ba",
                "https://h/x?checksum=sha256:ab&archive=tgz&ref=v1&version=1.0%2Ba",
            ),
            ("https://h:8443/a%20b.tgz", "https://h:8443/a%20b.tgz"),
            // A login with a sign in it that ends one.
            ("https://glp/at-1@h/x?a=b", "https://xxxxx@h/x"),
            ("https://user:/abc@h/", "https://xxxxx@h/"),
            ("https://glp#at-1@h/x", "https://xxxxx@h/x"),
            ("https://glp?at-1@h/x", "https://xxxxx/"),
            ("https://h/x?private_token=a@glpat-1", "https://xxxxx/"),
            ("oci://h/x@sha256:ab", "oci://h/x@sha256:ab"),
        ] {
            assert_eq!(shown(text), want);
            // Notes on disk are compared with what is shown.
            assert_eq!(shown(&shown(text)), want);
            assert_eq!(
                format!("{:?}", SafeUrl::parse(text).unwrap()),
                format!("{want:?}")
            );
        }
    }

    #[test]
    fn possible_credentials_in_an_invalid_url_are_hidden() {
        for text in [
            "git::https://glpat-1@h/r.git?ref=v1",
            "git::ssh://git@h/r.git?sshkey=glpat-1&ref=v1",
            "git@h:a/b?sshkey=glpat-1",
            "github.com/a/b?private_token=glpat-1",
            "https://u:p?glpat-1@:x/",
            "glpat-1@h:a/b#glpat-1",
            "https://user:glpat-1#ss@h/x",
            "https://user:/glpat-1@h/",
            "https://glpat-1/x@h/x",
            "github.com/a/b?private_token=a@glpat-1",
        ] {
            let shown = shown_text(text);
            assert!(!shown.contains("glpat-1"), "{shown}");
        }
        assert_eq!(shown_text("https://user:pa#ss@h/x"), "…@h/x");
        assert_eq!(shown_text("github.com/a/b?ref=v1"), "github.com/a/b?ref=v1");
        assert_eq!(shown_text("./charts/web"), "./charts/web");
    }

    #[test]
    fn default_ports_are_the_same_origin() {
        let repo = SafeUrl::parse("https://h/charts").unwrap();
        let same = |text: &str| repo.same_origin(&Url::parse(text).unwrap());
        assert!(same("https://h:443/a.tgz"));
        assert!(!same("http://h/a.tgz"));
        assert!(!same("https://h:8443/a.tgz"));
        assert!(!same("https://sub.h/a.tgz"));
    }
}
