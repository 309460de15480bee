//! A URL that cannot print its password.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use url::Url;

/// A URL whose `Display` and `Debug` show `xxxxx` for a password, as Go's `URL.Redacted`, and for
/// query values that carry signatures or tokens. Cheap to clone.
///
/// ```
/// let url = chart::source::SafeUrl::parse("https://me:secret@charts.example/x.tgz?token=abc")?;
/// assert_eq!(url.to_string(), "https://me:xxxxx@charts.example/x.tgz?token=xxxxx");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SafeUrl(Arc<Url>);

/// Query keys of signed URLs (object stores, registries) and hand-written tokens.
const SECRET_KEYS: [&str; 8] = [
    "signature",
    "sig",
    "token",
    "access_token",
    "password",
    "secret",
    "key",
    "credential",
];

impl logging::Public for SafeUrl {
    fn tell(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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

    /// Whether a request to `other` stays with the server we were given credentials for.
    pub fn same_origin(&self, other: &Url) -> bool {
        self.scheme() == other.scheme()
            && self.host() == other.host()
            && self.port_or_known_default() == other.port_or_known_default()
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

fn is_secret_key(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let key = key
        .strip_prefix("x-amz-")
        .or_else(|| key.strip_prefix("x-goog-"))
        .unwrap_or(&key);
    key == "security-token" || SECRET_KEYS.contains(&key)
}

impl fmt::Display for SafeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = Url::clone(&self.0);
        if shown.password().is_some() {
            // Fails only for URLs that cannot have a password.
            let _ = shown.set_password(Some("xxxxx"));
        }
        if shown.query_pairs().any(|(key, _)| is_secret_key(&key)) {
            let pairs: Vec<(String, String)> = self
                .0
                .query_pairs()
                .map(|(key, value)| match is_secret_key(&key) {
                    true => (key.into_owned(), "xxxxx".into()),
                    false => (key.into_owned(), value.into_owned()),
                })
                .collect();
            shown.query_pairs_mut().clear().extend_pairs(pairs);
        }
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
    fn hides_passwords_and_signatures() {
        let shown = |text: &str| SafeUrl::parse(text).unwrap().to_string();
        assert_eq!(shown("https://u:p@h/x?y=1"), "https://u:xxxxx@h/x?y=1");
        assert_eq!(
            shown("https://h/x?X-Amz-Signature=abc&a=b"),
            "https://h/x?X-Amz-Signature=xxxxx&a=b"
        );
        assert_eq!(shown("https://h/x?a=b%20c"), "https://h/x?a=b%20c");
        assert!(!format!("{:?}", SafeUrl::parse("https://u:p@h").unwrap()).contains(":p@"));
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
