//! `oci://registry[:port]/repository[:tag][@digest]`.

use std::fmt;

use golib::semver::Version;

use super::super::error::FetchError;

/// Names an artifact in a registry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// Host, and port if it is not the default.
    pub registry: String,
    /// Path of the repository, without leading slash.
    pub repository: String,
    /// As written: a `+` is still a `+`.
    pub tag: Option<String>,
    /// `sha256:…` or `sha512:…`.
    pub digest: Option<String>,
}

impl Reference {
    /// Reads a reference, with or without `oci://`.
    ///
    /// ```
    /// let reference = chart::source::Reference::parse("oci://registry.example:5000/charts/web:1.0.0+b")?;
    /// assert_eq!((reference.registry.as_str(), reference.repository.as_str()), ("registry.example:5000", "charts/web"));
    /// # Ok::<(), chart::source::FetchError>(())
    /// ```
    ///
    /// # Errors
    /// [`FetchError::InvalidReference`] for what no registry would accept.
    pub fn parse(text: &str) -> Result<Self, FetchError> {
        let invalid = |problem: &str| FetchError::InvalidReference {
            reference: text
                .rsplit_once('@')
                .map_or(text, |(_, rest)| rest)
                .to_owned(),
            problem: problem.to_owned(),
        };
        let rest = text
            .strip_prefix("oci://")
            .unwrap_or(text)
            .trim_end_matches('/');
        let (registry, path) = rest
            .split_once('/')
            .ok_or_else(|| invalid("there is no repository in it"))?;
        if !is_host(registry) {
            return Err(invalid(
                "the registry is not a host name with an optional port",
            ));
        }
        let (path, digest) = match path.split_once('@') {
            Some((path, digest)) => (path, Some(digest.to_owned())),
            None => (path, None),
        };
        if digest.as_deref().is_some_and(|digest| !is_digest(digest)) {
            return Err(invalid(
                "the digest is not sha256:… or sha512:… in hexadecimal",
            ));
        }
        let (path, tag) = match path.rsplit_once(':') {
            Some((path, tag)) => (path, Some(tag.to_owned())),
            None => (path, None),
        };
        if tag.as_deref().is_some_and(|tag| !is_tag(tag)) {
            return Err(invalid("the tag is not valid"));
        }
        let path = path.trim_matches('/');
        if !is_repository(path) {
            return Err(invalid(
                "the repository is not a valid path of lower-case names",
            ));
        }
        Ok(Self {
            registry: as_asked(registry),
            repository: path.to_owned(),
            tag,
            digest,
        })
    }

    /// This repository with a tag, given as a version.
    ///
    /// ```
    /// use chart::source::Reference;
    ///
    /// let web = Reference::parse("oci://registry.example/charts/web")?;
    /// assert_eq!(web.with_tag("1.0.0")?.to_string(), "oci://registry.example/charts/web:1.0.0");
    /// assert!(web.with_tag("not a tag").is_err());
    /// # Ok::<(), chart::source::FetchError>(())
    /// ```
    ///
    /// # Errors
    /// When no registry could have such a tag.
    pub fn with_tag(&self, version: &str) -> Result<Self, FetchError> {
        if !is_tag(version) {
            return Err(FetchError::InvalidReference {
                reference: self.to_string(),
                problem: format!("{version:?} cannot be a tag"),
            });
        }
        Ok(Self {
            tag: Some(version.to_owned()),
            digest: None,
            ..self.clone()
        })
    }

    /// What the registry calls it: the digest, or the tag with `+` as `_`.
    pub(in crate::source) fn wire_name(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.clone(),
            (None, Some(tag)) => tag.replace('+', "_"),
            (None, None) => "latest".to_owned(),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "oci://{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

/// Whether a text is a host and nothing more, both as the reference is read and as it is asked for: they differ in what they take for a slash.
fn is_host(text: &str) -> bool {
    let is_host = |scheme: &str| {
        let url = url::Url::parse(&format!("{scheme}://{text}/"));
        url.is_ok_and(|url| url.has_host() && url.path() == "/")
    };
    // Some of these would be left out without a word.
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || "?#@%\\".contains(c);
    is_host("oci") && is_host("https") && !text.contains(is_odd)
}

/// A host as it is asked: one that is not ASCII has several spellings, and none of them comes back from a URL of another scheme than http.
fn as_asked(registry: &str) -> String {
    let url = url::Url::parse(&format!("https://{registry}/")).ok();
    let asked = url.filter(|_| !registry.is_ascii()).and_then(|url| {
        let port = url.port().map(|port| format!(":{port}"));
        Some(format!("{}{}", url.host_str()?, port.unwrap_or_default()))
    });
    asked.unwrap_or_else(|| registry.to_owned())
}

fn is_repository(text: &str) -> bool {
    text.len() <= 255
        && text.split('/').all(|name| {
            let edge =
                |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
            edge(name.chars().next())
                && edge(name.chars().last())
                && name.chars().all(|c| {
                    c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-')
                })
        })
}

/// The spec's tag rule, with Helm's `+` allowed.
pub(super) fn is_tag(text: &str) -> bool {
    let first = text
        .chars()
        .next()
        .is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    first
        && text.len() <= 128
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+'))
}

/// The version that a tag stands for: a tag cannot hold `+` and has `_` for it.
pub(super) fn version(tag: &str) -> Option<Version> {
    Version::parse_strict(tag.replace('_', "+")).ok()
}

/// Whether a tag is one that Helm lists.
pub(super) fn is_version(tag: &str) -> bool {
    is_tag(tag) && version(tag).is_some()
}

pub(in crate::source) fn is_digest(text: &str) -> bool {
    let hex = |hex: &str, length: usize| {
        hex.len() == length
            && hex
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    match text.split_once(':') {
        Some(("sha256", digits)) => hex(digits, 64),
        Some(("sha512", digits)) => hex(digits, 128),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("oci://h/a/b", "oci://h/a/b", "latest")]
    #[case("h:5000/a", "oci://h:5000/a", "latest")]
    #[case("oci://h/a:1.0.0+b", "oci://h/a:1.0.0+b", "1.0.0_b")]
    #[case("oci://[::1]:5000/a", "oci://[::1]:5000/a", "latest")]
    fn reads(#[case] text: &str, #[case] shown: &str, #[case] wire: &str) {
        let reference = Reference::parse(text).unwrap();
        assert_eq!(
            (
                reference.to_string().as_str(),
                reference.wire_name().as_str()
            ),
            (shown, wire)
        );
    }

    #[rstest]
    #[case("oci://bücher.example/a")]
    #[case(
        "oci://r_1.example:5000/a@sha256:0000000000000000000000000000000000000000000000000000000000000000"
    )]
    #[case("oci://127.0.0.1:5000/a:1.0.0+b")]
    fn what_is_a_reference_is_a_url(#[case] text: &str) {
        let reference = Reference::parse(text).unwrap();
        let url = url::Url::parse(&reference.to_string()).unwrap();
        assert_eq!(Reference::parse(url.as_str()).unwrap(), reference);
    }

    #[test]
    fn a_digest_beats_a_tag() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        let reference = Reference::parse(&format!("oci://h/a:1.0@{digest}")).unwrap();
        assert_eq!(reference.wire_name(), digest);
        assert_eq!(reference.tag.as_deref(), Some("1.0"));
    }

    #[rstest]
    #[case("oci://h")]
    #[case("oci://h/")]
    #[case("oci://u:p@h/a")]
    #[case("oci://h/A")]
    #[case("oci://h/a/../b")]
    #[case("oci://h/a@sha256:short")]
    #[case("oci://h/a?x=y")]
    #[case("oci://h/a:")]
    #[case("oci://evil\\x/a")]
    #[case("oci://evil^x/a")]
    #[case("oci://evil\tx/a")]
    #[case("oci://h|x/a")]
    #[case("oci://evil%2eexample/a")]
    #[case("oci://h:port/a")]
    #[case("oci:///a")]
    fn refuses(#[case] text: &str) {
        let error = Reference::parse(text).unwrap_err();
        assert!(!error.to_string().contains("u:p"), "{error}");
    }
}
