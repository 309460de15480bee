//! What errors quote of servers, without what those were shown: one may repeat a login, and whoever reads the error may be somebody else.
//!
//! Only what a server said or named goes through here. What somebody asked for stays as it is, or he could find out by guessing.

use url::Url;

use super::credentials::ShownSecrets;
use super::error::{FetchError, TransportError};
use super::index::{IndexError, LookupError};
use super::safe_url::SafeUrl;

/// An address that a server named, as errors show it: without its query, or that of `instead`, where the server says more with it than it should.
pub(super) fn shown_url(named: &Url, instead: &SafeUrl, shown: &ShownSecrets) -> SafeUrl {
    // A scheme is one of three: that a short password stands in it says nothing. A token may be an address itself.
    let is_free = |url: &Url| {
        // User and password are shown of no address.
        let mut url = url.clone();
        let _ = (url.set_username(""), url.set_password(None));
        let text = url.as_str();
        let rest = text.strip_prefix(url.scheme()).unwrap_or(text);
        shown.redact(rest) == rest && shown.redact(text).ends_with(rest)
    };
    let mut shown_url = named.clone();
    if !is_free(&shown_url) {
        shown_url.set_query(None);
    }
    match is_free(&shown_url) {
        true => SafeUrl::from(shown_url),
        false => instead.clone(),
    }
}

/// Why there is no answer: a server says where it leads, and what its certificate is for. `asked` is the host that was asked.
pub(super) fn transport(
    error: TransportError,
    asked: Option<&str>,
    shown: &ShownSecrets,
) -> TransportError {
    let redact = |text: String| match asked.filter(|host| !host.is_empty()) {
        Some(host) => {
            let parts: Vec<String> = text.split(host).map(|part| shown.redact(part)).collect();
            parts.join(host)
        }
        None => shown.redact(&text),
    };
    match error {
        TransportError::UnknownHost { host, source } => TransportError::UnknownHost {
            host: redact(host),
            source,
        },
        TransportError::Tls { problem } => TransportError::Tls {
            problem: redact(problem),
        },
        TransportError::Connect { problem } => TransportError::Connect {
            problem: redact(problem),
        },
        TransportError::Redirect { problem } => TransportError::Redirect {
            problem: redact(problem),
        },
        TransportError::Interrupted { problem } => TransportError::Interrupted {
            problem: redact(problem),
        },
        error @ (TransportError::UnknownIssuer
        | TransportError::Timeout { .. }
        | TransportError::TooSlow { .. }) => error,
    }
}

/// Why an index cannot be read, which quotes it.
pub(super) fn index(error: IndexError, shown: &ShownSecrets) -> IndexError {
    match error {
        IndexError::Decode(problem) => IndexError::Decode(shown.redact(&problem)),
        error @ (IndexError::Empty | IndexError::NoApiVersion) => error,
    }
}

/// What is not there, and what is there instead.
pub(super) fn lookup(mut error: LookupError, shown: &ShownSecrets) -> LookupError {
    match &mut error {
        LookupError::Version { newest, .. } | LookupError::Tag { newest, .. } => {
            newest.iter_mut().for_each(|one| *one = shown.redact(one));
        }
        LookupError::Chart { .. }
        | LookupError::Empty
        | LookupError::Constraint { .. }
        | LookupError::NoTags { .. } => {}
    }
    error
}

/// Why that cannot be had which a server named: an archive of an index, a tag of a list. `instead` is what was asked for.
pub(super) fn named(error: FetchError, instead: &SafeUrl, shown: &ShownSecrets) -> FetchError {
    let shown_url = |url: SafeUrl| shown_url(&url, instead, shown);
    let redact = |text: String| shown.redact(&text);
    match error {
        FetchError::InvalidReference { reference, problem } => FetchError::InvalidReference {
            reference: redact(reference),
            problem: redact(problem),
        },
        FetchError::Unsupported { reference, problem } => FetchError::Unsupported {
            reference: redact(reference),
            problem,
        },
        FetchError::HostRefused { url } => FetchError::HostRefused {
            url: shown_url(url),
        },
        FetchError::Transport { url, source } => FetchError::Transport {
            url: shown_url(url),
            source: transport(source, None, shown),
        },
        FetchError::IndexStatus {
            url,
            status,
            shown: sent,
        } => FetchError::IndexStatus {
            url: shown_url(url),
            status,
            shown: sent,
        },
        FetchError::Status {
            url,
            status,
            shown: sent,
        } => FetchError::Status {
            url: shown_url(url),
            status,
            shown: sent,
        },
        FetchError::Index { url, source } => FetchError::Index {
            url: shown_url(url),
            source: index(source, shown),
        },
        FetchError::NotFound {
            location,
            lookup: error,
        } => FetchError::NotFound {
            location: redact(location),
            lookup: lookup(error, shown),
        },
        FetchError::NoUrls {
            chart,
            version,
            repo,
        } => FetchError::NoUrls {
            chart,
            version: redact(version),
            repo,
        },
        FetchError::TooLarge { url, limit_bytes } => FetchError::TooLarge {
            url: shown_url(url),
            limit_bytes,
        },
        FetchError::Checksum {
            url,
            expected,
            actual,
        } => FetchError::Checksum {
            url: shown_url(url),
            expected: redact(expected),
            actual,
        },
        FetchError::Archive { url, problem } => FetchError::Archive {
            url: shown_url(url),
            problem: redact(problem),
        },
        FetchError::Registry {
            url,
            status,
            message,
            detail,
            shown: sent,
        } => FetchError::Registry {
            url: shown_url(url),
            status,
            message: redact(message),
            detail: redact(detail),
            shown: sent,
        },
        FetchError::Artifact { reference, problem } => FetchError::Artifact {
            reference: redact(reference),
            problem: redact(problem),
        },
        error @ FetchError::Tls { .. } => error,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nothing_of_it("secret", true)]
    #[case::only_the_scheme("http", true)]
    #[case::all_of_it("https://h.example/x", false)]
    #[case::a_part("h.example/x", false)]
    fn an_address_is_told_unless_a_secret_stands_in_it(
        #[case] secret: &str,
        #[case] is_shown: bool,
    ) {
        let mut shown = ShownSecrets::of(None);
        shown.add(secret);
        let named = Url::parse("https://h.example/x").unwrap();
        let asked = SafeUrl::from(Url::parse("https://asked.example/").unwrap());
        let found = shown_url(&named, &asked, &shown);
        assert_eq!(found.to_string() == named.as_str(), is_shown, "{found}");
    }

    #[test]
    fn an_address_with_a_login_of_its_own_is_told_without_it() {
        let asked = SafeUrl::parse("https://joe:secret@h.example/charts").unwrap();
        let shown = ShownSecrets::of(None).and_of(&asked);
        let named = Url::parse("https://joe:secret@h.example/charts/web-1.0.0.tgz").unwrap();
        let found = shown_url(&named, &asked, &shown).to_string();
        assert_eq!(found, "https://xxxxx@h.example/charts/web-1.0.0.tgz");
        let echoed = Url::parse("https://joe:secret@h.example/charts/secret.tgz").unwrap();
        let found = shown_url(&echoed, &asked, &shown).to_string();
        assert_eq!(found, asked.to_string());
    }
}
