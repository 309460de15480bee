//! Errors of fetching, split by what the caller does about them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::index::{IndexError, LookupError};
use super::safe_url::SafeUrl;

/// The credentials a server was shown, as errors report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialsUse {
    /// Credentials: a bundle's, a login's or a host's.
    Sent,
    /// No credentials, as none are configured.
    Nothing,
    /// No credentials, as no login is for this address.
    NoLogin,
    /// No credentials, as the login for this address is not shown without TLS to whom an index names.
    WithoutTls,
    /// No credentials, as the login for this address cannot be read.
    Broken,
    /// No credentials, as the answer came from an address that they are not for, to which the one that was asked redirects.
    Elsewhere,
    /// No credentials, as the login for this address has a token of a kind that the server does not take.
    Unusable,
}

/// Why a chart could not be fetched. Cheap to clone, so that everybody who waited for the same
/// download learns the same reason. No variant holds or prints a credential.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "messages name the fields")]
pub enum FetchError {
    /// The coordinates make no sense; no source was asked.
    #[error("invalid chart source {reference:?}: {problem}")]
    InvalidReference {
        /// The reference as given, without password.
        reference: String,
        problem: String,
    },
    /// A source that Fleet knows and we do not fetch (git, local paths, other archive formats).
    #[error("chart source {reference:?} is not supported: {problem}")]
    Unsupported {
        /// The reference as given, without password.
        reference: String,
        /// The kind of source it names.
        problem: &'static str,
    },
    /// The CA bundle has no usable certificate, or the system trust cannot be read.
    #[error("invalid TLS settings: {problem}")]
    Tls { problem: String },
    /// What the operator of this cluster says of a host cannot be used, so that nobody knows how it may be reached.
    #[error("not fetching \"{url}\": what this cluster's settings say of its host cannot be used")]
    HostRefused { url: SafeUrl },
    /// No answer, or an answer that broke off.
    #[error("failed to fetch \"{url}\"")]
    Transport {
        url: SafeUrl,
        source: TransportError,
    },
    /// The repository's index answered with something else than 200.
    #[error("failed to read helm repo from {url}, error code: {status}{}", hint(*.status, *.shown))]
    IndexStatus {
        url: SafeUrl,
        status: u16,
        shown: CredentialsUse,
    },
    /// A download answered with something else than 200.
    #[error("downloading \"{url}\": unexpected status {status}{}", hint(*.status, *.shown))]
    Status {
        url: SafeUrl,
        status: u16,
        shown: CredentialsUse,
    },
    /// The index is not one.
    #[error("failed to load the index {url}")]
    Index { url: SafeUrl, source: IndexError },
    /// The index (or registry) is fine, but the chart or version is not in it.
    #[error("{lookup} in {location}")]
    NotFound {
        /// The repository or registry.
        location: String,
        lookup: LookupError,
    },
    /// The entry has no download address.
    #[error("no URLs found for chart {chart} {version} at {repo}")]
    NoUrls {
        chart: String,
        /// The version that was picked.
        version: String,
        repo: SafeUrl,
    },
    /// The answer is larger than we are willing to hold.
    #[error("download of \"{url}\" exceeds the {limit_bytes} byte limit")]
    TooLarge { url: SafeUrl, limit_bytes: u64 },
    /// The digest of the answer is not the promised one.
    #[error("checksum mismatch for \"{url}\": expected {expected}, got {actual}")]
    Checksum {
        url: SafeUrl,
        /// Algorithm and hex digest that was promised.
        expected: String,
        /// Algorithm and hex digest of what came.
        actual: String,
    },
    /// The answer is not a whole gzip or tar archive.
    #[error("chart archive \"{url}\" is damaged: {problem}")]
    Archive { url: SafeUrl, problem: String },
    /// The registry refused, in its own words.
    #[error("registry answered {status} for \"{url}\"{message}{}", hint(*.status, *.shown))]
    Registry {
        url: SafeUrl,
        status: u16,
        /// `: ` and the first error of the answer, cut short; or nothing.
        message: String,
        /// `: ` and what more it says of that error, as Go prints it; or nothing.
        detail: String,
        shown: CredentialsUse,
    },
    /// The artifact is there, but it is not a chart (or not the one requested).
    #[error("\"{reference}\": {problem}")]
    Artifact {
        /// Registry, repository and tag or digest.
        reference: String,
        /// The missing or wrong part, in Helm's words where Helm has some.
        problem: String,
    },
}

fn hint(status: u16, shown: CredentialsUse) -> &'static str {
    match (status, shown) {
        (401 | 403, CredentialsUse::Sent) => " (the credentials were refused)",
        (401 | 403, CredentialsUse::Nothing) => " (no credentials were sent)",
        (401 | 403, CredentialsUse::NoLogin) => {
            " (no credentials were sent: none of the logins is for this address)"
        }
        (401 | 403, CredentialsUse::WithoutTls) => {
            " (no credentials were sent: the login for this address is not shown without TLS, as an index names it)"
        }
        (401 | 403, CredentialsUse::Broken) => {
            " (no credentials were sent: the login for this address cannot be read)"
        }
        (401 | 403, CredentialsUse::Elsewhere) => {
            " (no credentials were sent: it redirects to an address that they are not for)"
        }
        (401 | 403, CredentialsUse::Unusable) => {
            " (no credentials were sent: the login for this address has a token alone, which this server does not take)"
        }
        _ => "",
    }
}

/// Why there was no whole answer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The name server does not know the host, or there is no name server.
    #[error("lookup {host}: no such host")]
    UnknownHost {
        /// The host of the URL, or of the proxy.
        host: String,
        /// The system's reason.
        source: Arc<std::io::Error>,
    },
    /// Nobody trusted signed the server's certificate.
    #[error(
        "tls: failed to verify certificate: x509: certificate signed by unknown authority (is a private CA missing?)"
    )]
    UnknownIssuer,
    /// Any other objection to the server's certificate, or TLS trouble.
    #[error("tls: {problem}")]
    Tls {
        /// The TLS library's words.
        problem: String,
    },
    /// No server listens there, or a network in between refuses.
    #[error("connect: {problem}")]
    Connect {
        /// The system's words.
        problem: String,
    },
    /// The whole exchange took too long.
    #[error("no complete answer within {}", seconds(*.limit))]
    Timeout {
        /// How long we waited.
        limit: Duration,
    },
    /// The answer comes, but too slowly to be waited for.
    #[error("the answer comes too slowly: less than {least_bytes} bytes in {}", seconds(*.within))]
    TooSlow {
        /// The least that has to come,
        least_bytes: u64,
        /// in so much time.
        within: Duration,
    },
    /// More redirects than anyone needs, or one that leads nowhere.
    #[error("redirect: {problem}")]
    Redirect {
        /// The error about the redirect.
        problem: String,
    },
    /// The connection broke before the end of the answer.
    #[error("the answer broke off: {problem}")]
    Interrupted {
        /// The HTTP library's words.
        problem: String,
    },
}

fn seconds(limit: Duration) -> String {
    format!("{} s", limit.as_secs_f64())
}

/// Addresses and codes: what a server says in its answer may repeat what it was shown.
impl logging::Public for FetchError {
    fn fmt_public(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport { source, .. } => write!(f, "{self}: {source}"),
            Self::IndexStatus { .. }
            | Self::Status { .. }
            | Self::TooLarge { .. }
            | Self::Checksum { .. }
            | Self::HostRefused { .. }
            | Self::NoUrls { .. } => fmt::Display::fmt(self, f),
            Self::Registry { url, status, .. } => write!(f, "registry answered {status} for {url}"),
            Self::Index { url, .. } | Self::Archive { url, .. } => write!(f, "cannot read {url}"),
            Self::InvalidReference { .. }
            | Self::Unsupported { .. }
            | Self::Tls { .. }
            | Self::NotFound { .. }
            | Self::Artifact { .. } => f.write_str("the source has no such chart"),
        }
    }
}

impl FetchError {
    /// Whether waiting alone may help. Everything else needs somebody to change something, here or
    /// at the source.
    ///
    /// ```
    /// use chart::source::{CredentialsUse, FetchError, SafeUrl};
    ///
    /// let url = SafeUrl::parse("https://charts.example/web-1.0.0.tgz")?;
    /// let answered = |status| FetchError::Status { url: url.clone(), status, shown: CredentialsUse::Nothing };
    /// assert!(answered(503).is_retryable() && !answered(404).is_retryable());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Transport { source, .. } => !matches!(
                source,
                TransportError::UnknownIssuer | TransportError::Redirect { .. }
            ),
            Self::IndexStatus { status, .. }
            | Self::Status { status, .. }
            | Self::Registry { status, .. } => is_transient(*status),
            Self::Archive { .. } | Self::Checksum { .. } => true,
            _ => false,
        }
    }

    /// Whether the source does not answer, or cannot: what it said before may stand in. One that refuses, or that is not who it should be,
    /// has answered.
    ///
    /// ```
    /// use chart::source::{CredentialsUse, FetchError, SafeUrl};
    ///
    /// let url = SafeUrl::parse("https://charts.example/web-1.0.0.tgz")?;
    /// let answered = |status| FetchError::Status { url: url.clone(), status, shown: CredentialsUse::Nothing };
    /// assert!(answered(502).is_out_of_reach() && !answered(403).is_out_of_reach());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_out_of_reach(&self) -> bool {
        match self {
            Self::Transport { source, .. } => matches!(
                source,
                TransportError::UnknownHost { .. }
                    | TransportError::Connect { .. }
                    | TransportError::Timeout { .. }
                    | TransportError::TooSlow { .. }
                    | TransportError::Interrupted { .. }
            ),
            Self::IndexStatus { status, .. }
            | Self::Status { status, .. }
            | Self::Registry { status, .. } => is_transient(*status),
            _ => false,
        }
    }

    /// A fixed word for metrics and conditions.
    ///
    /// ```
    /// use chart::source::{FetchError, LookupError};
    ///
    /// let missing = FetchError::NotFound {
    ///     location: "https://charts.example".to_owned(),
    ///     lookup: LookupError::Chart { chart: "web".to_owned() },
    /// };
    /// assert_eq!(missing.reason(), "UnknownChart");
    /// assert_eq!(missing.to_string(), "no chart name found: \"web\" in https://charts.example");
    /// ```
    pub fn reason(&self) -> &'static str {
        match self {
            Self::InvalidReference { .. } => "InvalidChartSource",
            Self::Unsupported { .. } => "UnsupportedChartSource",
            Self::Tls { .. } => "InvalidTLSSettings",
            Self::HostRefused { .. } => "InvalidHostSettings",
            Self::Transport { source, .. } => match source {
                TransportError::UnknownHost { .. } => "UnknownHost",
                TransportError::UnknownIssuer => "UnknownIssuer",
                TransportError::Tls { .. } => "TLSFailed",
                TransportError::Timeout { .. } | TransportError::TooSlow { .. } => "Timeout",
                TransportError::Connect { .. }
                | TransportError::Redirect { .. }
                | TransportError::Interrupted { .. } => "Unreachable",
            },
            Self::IndexStatus { status, .. }
            | Self::Status { status, .. }
            | Self::Registry { status, .. } => match status {
                401 | 403 => "Unauthorized",
                404 => "NotFound",
                status if is_transient(*status) => "SourceUnavailable",
                _ => "SourceRefused",
            },
            Self::Index { .. } => "InvalidIndex",
            Self::NotFound { lookup, .. } => match lookup {
                LookupError::Chart { .. } => "UnknownChart",
                LookupError::Constraint { .. } => "InvalidVersion",
                _ => "NoMatchingVersion",
            },
            Self::NoUrls { .. } => "InvalidIndex",
            Self::TooLarge { .. } => "TooLarge",
            Self::Checksum { .. } => "ChecksumMismatch",
            Self::Archive { .. } => "InvalidArchive",
            Self::Artifact { .. } => "InvalidArtifact",
        }
    }
}

/// Statuses by which a server says "later".
pub(super) fn is_transient(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..=599)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_layer_and_the_remedy() {
        let url = SafeUrl::parse("https://u:secret@repo.example/index.yaml").unwrap();
        let refused = FetchError::IndexStatus {
            url: url.clone(),
            status: 401,
            shown: CredentialsUse::Sent,
        };
        assert_eq!(
            refused.to_string(),
            "failed to read helm repo from https://xxxxx@repo.example/index.yaml, \
             error code: 401 (the credentials were refused)"
        );
        assert_eq!(refused.reason(), "Unauthorized");
        assert!(!refused.is_retryable());
        let busy = FetchError::Status {
            url,
            status: 503,
            shown: CredentialsUse::Nothing,
        };
        assert!(busy.is_retryable());
        let none = LookupError::Version {
            chart: "web".into(),
            version: "^9".into(),
            newest: vec!["2.1.0".into(), "2.0.0".into()],
        };
        assert_eq!(
            none.to_string(),
            "no chart version found for web-^9 (newest seen: 2.1.0, 2.0.0)"
        );
    }
}
