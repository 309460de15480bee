//! Addresses of repositories as Go's `net/url` reads and joins them.
//!
//! Mirrors `internal/urlutil` and `ResolveReferenceURL` (`pkg/repo/v1/chartrepo.go`).

use golib::path::{self, clean_text};
use percent_encoding::percent_decode_str;
use url::Url;

/// The scheme in front of a colon, in lower case.
pub(crate) fn scheme(text: &str) -> Option<String> {
    let (scheme, _) = text.split_once(':')?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    is_scheme.then(|| scheme.to_ascii_lowercase())
}

/// What Go's `url.ParseRequestURI` takes: absolute addresses and absolute paths.
pub(crate) fn is_request_uri(text: &str) -> bool {
    if text.chars().any(|c| c.is_control()) {
        return false;
    }
    match scheme(text).as_deref() {
        Some("http" | "https") => Url::parse(text).is_ok(),
        Some(_) => true,
        None => text.starts_with('/'),
    }
}

/// Whether two addresses are the same, whatever slashes their paths have.
pub(crate) fn equal(a: &str, b: &str) -> bool {
    cleaned(a) == cleaned(b)
}

fn cleaned(text: &str) -> String {
    let (front, query) = match text.find(['?', '#']) {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let start = match front.find("://") {
        Some(at) => front[at + 3..]
            .find('/')
            .map_or(front.len(), |slash| at + 3 + slash),
        None => 0,
    };
    let (origin, place) = front.split_at(start);
    let place = match place {
        "" => "/".to_owned(),
        place => clean_text(place),
    };
    let origin = match (scheme(origin), origin.split_once(':')) {
        (Some(scheme), Some((_, rest))) => format!("{scheme}:{rest}"),
        _ => origin.to_owned(),
    };
    format!("{origin}{place}{query}")
}

/// An address that an index names, seen from its repository; the repository's query stays.
///
/// # Errors
/// The repository's address is not a URL.
pub(crate) fn resolve(repository: &str, reference: &str) -> Result<String, String> {
    if scheme(reference).is_some() {
        return Ok(reference.to_owned());
    }
    let failed = |error: url::ParseError| format!("failed to parse {repository} as URL: {error}");
    let mut base = Url::parse(repository).map_err(failed)?;
    let folder = format!("{}/", base.path().strip_suffix('/').unwrap_or(base.path()));
    base.set_path(&folder);
    let mut resolved = base.join(reference).map_err(failed)?;
    resolved.set_query(base.query());
    Ok(resolved.into())
}

/// The last element of an address's path, as a file is named after it. `None` where that is no name.
pub(crate) fn file_name(address: &Url) -> Option<String> {
    let decoded: Vec<u8> = percent_decode_str(address.path()).collect();
    let name = String::from_utf8(path::base(&decoded).to_vec()).ok()?;
    let is_name = !["", ".", "..", "/"].contains(&name.as_str()) && !name.contains('\0');
    is_name.then_some(name)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("http://h/c", "http://h/c/", true)]
    #[case("http://h", "http://h/", true)]
    #[case("HTTP://h//c/./", "http://h/c", true)]
    #[case("http://h/c?a=1", "http://h/c", false)]
    #[case("http://h:80/c", "http://h/c", false)]
    #[case("name", "./name/", true)]
    fn same(#[case] a: &str, #[case] b: &str, #[case] want: bool) {
        assert_eq!(equal(a, b), want);
    }

    #[rstest]
    #[case("http://h/c", "web.tgz", "http://h/c/web.tgz")]
    #[case("http://h/c/?t=x", "web.tgz?v=2", "http://h/c/web.tgz?t=x")]
    #[case("http://h/c", "/web.tgz", "http://h/web.tgz")]
    #[case("http://h/c", "../web.tgz", "http://h/web.tgz")]
    #[case("http://h/c", "//cdn/web.tgz", "http://cdn/web.tgz")]
    #[case("http://h/c", "oci://r/web:1", "oci://r/web:1")]
    fn joins(#[case] repository: &str, #[case] reference: &str, #[case] want: &str) {
        assert_eq!(resolve(repository, reference).as_deref(), Ok(want));
    }

    #[rstest]
    #[case("http://h/a/web-1.0.0%2Bb.tgz?x=/y", Some("web-1.0.0+b.tgz"))]
    #[case("http://h/a/%2e%2e%2f%2e%2e%2fetc", Some("etc"))]
    #[case("http://h/a/x%2f..", None)]
    #[case("http://h/a/..%5cx", Some("..\\x"))]
    #[case("http://h/", None)]
    fn names_stay_names(#[case] address: &str, #[case] want: Option<&str>) {
        let address = Url::parse(address).expect("an address");
        assert_eq!(file_name(&address).as_deref(), want);
    }

    #[rstest]
    #[case("http://h/c", true)]
    #[case("alias:stable", true)]
    #[case("/folder", true)]
    #[case("@stable", false)]
    #[case("stable", false)]
    #[case("", false)]
    fn request_uris(#[case] text: &str, #[case] want: bool) {
        assert_eq!(is_request_uri(text), want);
    }
}
