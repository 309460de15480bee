//! Where a chart comes from: Fleet's `repo`, `chart` and `version`, read once into one of three
//! forms. Mirrors `internal/bundlereader/{charturl,source}.go`.
//!
//! Then what is to be downloaded: from an index entry, or from an address with go-getter's parameters.

use std::fmt;

use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};
use url::Url;

use super::error::FetchError;
use super::index::Entry;
use super::oci::Reference;
use super::safe_url::{SafeUrl, shown_text};

/// The coordinates as they stand in Fleet's Helm options. Parsed when fetched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChartRef {
    /// A repository (`https://…`), an OCI reference (`oci://…`), or empty.
    pub repo: String,
    /// The chart's name in the repository; with an empty `repo` the address of an archive.
    pub chart: String,
    /// A version, a constraint, or empty for the newest release.
    pub version: String,
}

impl fmt::Display for ChartRef {
    /// For people: what may be a credential in URLs is hidden.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            shown_text(&self.repo),
            shown_text(&self.chart),
            self.version.clone(),
        ];
        let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        f.write_str(&parts.join(" "))
    }
}

/// One of the ways to get a chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Location {
    /// A chart named in the index of an HTTP repository.
    Repository {
        repo: SafeUrl,
        chart: String,
        version: String,
    },
    /// An archive at an address.
    Archive { url: SafeUrl },
    /// A chart in a registry.
    Oci {
        reference: Reference,
        version: String,
    },
}

/// Schemes and shorthands of go-getter that mean "clone a repository".
#[rustfmt::skip]
const GIT_MARKS: [&str; 8] = [
    "git::", "ssh::", "git@", "ssh://", "git://", "github.com/", "gitlab.com/", "bitbucket.org/",
];

impl ChartRef {
    /// The name that is looked for in the index of a repository, if the chart is from one.
    ///
    /// ```
    /// use chart::source::ChartRef;
    ///
    /// let chart = |repo: &str, chart: &str| ChartRef {
    ///     repo: repo.into(),
    ///     chart: chart.into(),
    ///     version: String::new(),
    /// };
    /// assert_eq!(chart("HTTPS://charts.example", "web").listed_name(), Some("web"));
    /// assert_eq!(chart("oci://registry.example/web", "").listed_name(), None);
    /// ```
    pub fn listed_name(&self) -> Option<&str> {
        match self.locate() {
            Ok(Location::Repository { .. }) => Some(self.chart.trim()),
            _ => None,
        }
    }

    /// The version that is asked for, or the constraint on it; `*` where none is given. `None` where a digest or an archive's address says what is meant.
    ///
    /// ```
    /// use chart::source::ChartRef;
    ///
    /// let chart = |repo: &str, version: &str| ChartRef {
    ///     repo: repo.into(),
    ///     chart: "web".into(),
    ///     version: version.into(),
    /// };
    /// assert_eq!(chart("https://charts.example", " ^2 ").constraint().as_deref(), Some("^2"));
    /// assert_eq!(chart("oci://registry.example/web:1.0.0", "").constraint().as_deref(), Some("1.0.0"));
    /// assert_eq!(chart("https://charts.example", "").constraint().as_deref(), Some("*"));
    /// let digest = format!("oci://registry.example/web@sha256:{}", "0".repeat(64));
    /// assert_eq!(chart(&digest, "1.0.0").constraint(), None);
    /// ```
    pub fn constraint(&self) -> Option<String> {
        let version = match self.locate() {
            Ok(Location::Repository { version, .. }) => version,
            Ok(Location::Oci { reference, version }) if reference.digest.is_none() => {
                match (version.is_empty(), reference.tag) {
                    (true, Some(tag)) => tag,
                    _ => version,
                }
            }
            _ => return None,
        };
        Some(version)
            .filter(|version| !version.is_empty())
            .or(Some("*".to_owned()))
    }

    /// The address that the chart is known by: its repository's with its name behind it, an archive's, or a registry's. It is made of what is
    /// asked, however the texts are written; a query of the repository is none of it.
    ///
    /// ```
    /// use chart::source::ChartRef;
    ///
    /// let chart = |repo: &str, chart: &str| ChartRef {
    ///     repo: repo.into(),
    ///     chart: chart.into(),
    ///     version: String::new(),
    /// };
    /// let web = chart("HTTPS://charts.example:443/stable/?token=abc", "web");
    /// assert_eq!(web.address()?.as_str(), "https://charts.example/stable/web");
    /// assert!(chart("https:/charts.example/stable", "web").address().is_err());
    /// # Ok::<(), chart::source::FetchError>(())
    /// ```
    ///
    /// # Errors
    /// [`FetchError::InvalidReference`] and [`FetchError::Unsupported`], as when it is fetched.
    pub fn address(&self) -> Result<SafeUrl, FetchError> {
        match self.locate()? {
            Location::Archive { url } => Ok(url),
            Location::Oci { reference, .. } => {
                let text = reference.to_string();
                SafeUrl::parse(&text).map_err(|error| invalid(&text, error.to_string()))
            }
            Location::Repository { repo, chart, .. } => {
                let mut url = Url::clone(&repo);
                url.set_query(None);
                url.set_fragment(None);
                // Every address by HTTP has segments.
                if let Ok(mut segments) = url.path_segments_mut() {
                    segments.pop_if_empty().push(&chart);
                }
                Ok(SafeUrl::from(url))
            }
        }
    }

    /// Reads the three texts as Fleet does.
    ///
    /// # Errors
    /// [`FetchError::InvalidReference`] and [`FetchError::Unsupported`], before any request.
    pub(super) fn locate(&self) -> Result<Location, FetchError> {
        let (repo, chart) = (self.repo.trim(), self.chart.trim());
        let version = self.version.trim().to_owned();
        if repo.starts_with("oci://") {
            return Ok(Location::Oci {
                reference: Reference::parse(repo)?,
                version,
            });
        }
        if repo.is_empty() && chart.starts_with("oci://") {
            return Ok(Location::Oci {
                reference: Reference::parse(chart)?,
                version,
            });
        }
        if repo.is_empty() {
            return Ok(Location::Archive {
                url: archive(chart)?,
            });
        }
        if chart.is_empty() {
            return Err(invalid(repo, "the repository is given, but no chart name"));
        }
        let url = SafeUrl::parse(repo).map_err(|error| invalid(repo, error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            let problem = "a repository is reached by http, https or oci";
            return Err(FetchError::Unsupported {
                reference: shown_text(repo),
                problem,
            });
        }
        check_as_go(repo)?;
        Ok(Location::Repository {
            repo: url,
            chart: chart.to_owned(),
            version,
        })
    }
}

fn archive(chart: &str) -> Result<SafeUrl, FetchError> {
    let unsupported = |problem| FetchError::Unsupported {
        reference: shown_text(chart),
        problem,
    };
    if chart.is_empty() {
        return Err(invalid(chart, "neither repository nor chart is given"));
    }
    if GIT_MARKS.iter().any(|mark| chart.starts_with(mark)) {
        return Err(unsupported("charts are not fetched from git"));
    }
    let web = ["http://", "https://"]
        .iter()
        .any(|scheme| chart.starts_with(scheme));
    if !web {
        return Err(unsupported(
            "without a repository, the chart must be an http(s) or oci URL",
        ));
    }
    let url = SafeUrl::parse(chart).map_err(|error| invalid(chart, error.to_string()))?;
    check_as_go(chart)?;
    if url.path().contains("//") {
        return Err(unsupported(
            "a subdirectory of an archive cannot be selected",
        ));
    }
    Ok(url)
}

/// Refuses an address by HTTP in which Go finds no host, in its words. What is lenient would find one behind any number of slashes and
/// backslashes, and overlook control characters.
fn check_as_go(text: &str) -> Result<(), FetchError> {
    if text.contains(|c: char| c.is_ascii_control()) {
        return Err(invalid(text, "net/url: invalid control character in URL"));
    }
    let rest = text.split_once(':').map_or("", |(_, rest)| rest);
    let rest = rest.strip_prefix("//").unwrap_or_default();
    match rest.split(['/', '?', '#']).next() {
        None | Some("") => Err(invalid(text, "http: no Host in request URL")),
        Some(host) if host.contains('\\') => {
            Err(invalid(text, r#"invalid character "\\" in host name"#))
        }
        Some(_) => Ok(()),
    }
}

fn invalid(reference: &str, problem: impl Into<String>) -> FetchError {
    FetchError::InvalidReference {
        reference: shown_text(reference),
        problem: problem.into(),
    }
}

/// `<repo>/index.yaml`, with the repository's own query.
pub(super) fn index_url(repo: &SafeUrl) -> Url {
    joined(repo, "index.yaml")
}

/// Appends to the path, as Go's `URL.JoinPath`; the query stays (Helm 17.1).
fn joined(base: &SafeUrl, path: &str) -> Url {
    let mut url: Url = (**base).clone();
    let mut directory = url.path().trim_end_matches('/').to_owned();
    directory.push('/');
    url.set_path(&directory);
    let query = url.query().map(str::to_owned);
    let mut url = url
        .join(&format!("./{}", path.trim_start_matches('/')))
        .unwrap_or(url);
    if url.query().is_none() {
        url.set_query(query.as_deref());
    }
    url.set_fragment(None);
    url
}

/// Where the entry's archive is: the first address, joined onto the repository if relative.
pub(super) fn chart_url(repo: &SafeUrl, chart: &str, entry: &Entry) -> Result<SafeUrl, FetchError> {
    let Some(first) = entry.first_url() else {
        return Err(FetchError::NoUrls {
            chart: chart.to_owned(),
            version: entry.version.clone(),
            repo: repo.clone(),
        });
    };
    let url = match Url::parse(first) {
        Ok(url) if url.has_host() => url,
        _ => joined(repo, first),
    };
    if !matches!(url.scheme(), "http" | "https" | "oci") {
        let problem = "a repository's charts are reached by http, https or oci";
        return Err(FetchError::Unsupported {
            reference: SafeUrl::from(url).to_string(),
            problem,
        });
    }
    Ok(SafeUrl::from(url))
}

/// The promised checksum, by whichever hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checksum {
    algorithm: Algorithm,
    hex: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Md5,
    Sha1,
    Sha256,
    Sha512,
}

impl Algorithm {
    const ALL: [(Self, &str, usize); 4] = [
        (Self::Md5, "md5", 32),
        (Self::Sha1, "sha1", 40),
        (Self::Sha256, "sha256", 64),
        (Self::Sha512, "sha512", 128),
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }
}

impl Checksum {
    /// An index entry's digest: SHA-256, with or without `sha256:`. `None` for what is no digest,
    /// which Helm overlooks too.
    pub(super) fn from_index(digest: &str) -> Option<Self> {
        let hex = digest.strip_prefix("sha256:").unwrap_or(digest);
        Self::new(Algorithm::Sha256, hex, 64)
    }

    fn new(algorithm: Algorithm, hex: &str, length: usize) -> Option<Self> {
        let valid = hex.len() == length && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        valid.then(|| Self {
            algorithm,
            hex: hex.to_ascii_lowercase(),
        })
    }

    /// The parameter's form: `sha256:<hex>`.
    fn from_parameter(text: &str) -> Option<Self> {
        let (name, hex) = text.split_once(':')?;
        let (algorithm, _, length) = Algorithm::ALL
            .iter()
            .find(|(_, known, _)| name.eq_ignore_ascii_case(known))?;
        Self::new(*algorithm, hex, *length)
    }

    /// # Errors
    /// [`FetchError::Checksum`] with both values.
    pub(super) fn check(&self, url: &SafeUrl, bytes: &[u8]) -> Result<(), FetchError> {
        let actual = match self.algorithm {
            Algorithm::Md5 => golib::hex::encode(&Md5::digest(bytes)),
            Algorithm::Sha1 => golib::hex::encode(&Sha1::digest(bytes)),
            Algorithm::Sha256 => golib::hex::encode(&Sha256::digest(bytes)),
            Algorithm::Sha512 => golib::hex::encode(&Sha512::digest(bytes)),
        };
        if actual == self.hex {
            return Ok(());
        }
        let name = self.algorithm.name();
        Err(FetchError::Checksum {
            url: url.clone(),
            expected: format!("{name}:{}", self.hex),
            actual: format!("{name}:{actual}"),
        })
    }

    /// As a key for what is remembered.
    pub(super) fn key(&self) -> String {
        format!("{}:{}", self.algorithm.name(), self.hex)
    }
}

/// Takes `?checksum=` and `?archive=` out of an address; the server never sees them.
///
/// # Errors
/// A checksum we cannot check is refused rather than overlooked.
pub(super) fn parameters(url: &SafeUrl) -> Result<(SafeUrl, Option<Checksum>), FetchError> {
    let is_ours = |key: &str| key == "checksum" || key == "archive";
    if !url.query_pairs().any(|(key, _)| is_ours(&key)) {
        return Ok((url.clone(), None));
    }
    let invalid = |problem: &str| FetchError::InvalidReference {
        reference: url.to_string(),
        problem: problem.to_owned(),
    };
    let (mut checksum, mut kept) = (None, Vec::new());
    for (key, value) in url.query_pairs() {
        match key.as_ref() {
            "checksum" if value.is_empty() => {}
            "checksum" if checksum.is_none() => {
                checksum = Some(Checksum::from_parameter(&value).ok_or_else(|| {
                    invalid("?checksum= takes md5, sha1, sha256 or sha512, a colon and hexadecimal digits")
                })?);
            }
            "archive" => {
                let format = value.trim_start_matches('.').to_ascii_lowercase();
                if !matches!(format.as_str(), "" | "tar.gz" | "tgz" | "tar" | "gz") {
                    return Err(invalid(
                        "?archive= other than tar and tar.gz is not supported",
                    ));
                }
            }
            key if is_ours(key) => {}
            _ => kept.push((key.into_owned(), value.into_owned())),
        }
    }
    let mut clean: Url = (**url).clone();
    if kept.is_empty() {
        clean.set_query(None);
    } else {
        clean.query_pairs_mut().clear().extend_pairs(kept);
    }
    Ok((SafeUrl::from(clean), checksum))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn reference(repo: &str, chart: &str, version: &str) -> ChartRef {
        ChartRef {
            repo: repo.into(),
            chart: chart.into(),
            version: version.into(),
        }
    }

    #[rstest]
    #[case("https://h/charts", "web", "repository")]
    #[case("", "https://h/web-1.tgz?checksum=sha256:ab", "archive")]
    #[case("oci://h:5000/charts/web", "", "oci")]
    #[case("oci://h/charts/web", "ignored", "oci")]
    #[case("", "oci://h/charts/web", "oci")]
    #[case("HTTPS://h/charts", "web", "repository")]
    #[case(" https://h/charts ", "web", "repository")]
    #[case("https:/h/charts", "web", "InvalidChartSource")]
    #[case("https:h/charts", "web", "InvalidChartSource")]
    #[case("https:///h/charts", "web", "InvalidChartSource")]
    #[case("https:\\\\h\\charts", "web", "InvalidChartSource")]
    #[case("https:/\\h/charts", "web", "InvalidChartSource")]
    #[case("https://\\h/charts", "web", "InvalidChartSource")]
    #[case("https://h\\charts", "web", "InvalidChartSource")]
    #[case("ht\ttps://h/charts", "web", "InvalidChartSource")]
    #[case("https:/\n/h/charts", "web", "InvalidChartSource")]
    #[case("https://\th/charts", "web", "InvalidChartSource")]
    #[case("\u{1}https://h/charts", "web", "InvalidChartSource")]
    #[case("", "https:///h/web-1.tgz", "InvalidChartSource")]
    #[case("", "https://h/\tweb-1.tgz", "InvalidChartSource")]
    #[case("", "https:/h/web-1.tgz", "UnsupportedChartSource")]
    #[case("https://h/charts", "", "InvalidChartSource")]
    #[case("", "", "InvalidChartSource")]
    #[case("oci://", "", "InvalidChartSource")]
    #[case("s3://bucket", "web", "UnsupportedChartSource")]
    #[case("", "git::https://h/r.git", "UnsupportedChartSource")]
    #[case("", "github.com/a/b", "UnsupportedChartSource")]
    #[case("", "./charts/web", "UnsupportedChartSource")]
    #[case("", "https://h/a.tgz//sub", "UnsupportedChartSource")]
    fn forms(#[case] repo: &str, #[case] chart: &str, #[case] form: &str) {
        let got = match reference(repo, chart, "").locate() {
            Ok(Location::Repository { .. }) => "repository",
            Ok(Location::Archive { .. }) => "archive",
            Ok(Location::Oci { .. }) => "oci",
            Err(error) => error.reason(),
        };
        assert_eq!(got, form);
    }

    #[test]
    fn an_address_without_host_is_refused_in_gos_words() {
        for (repo, problem) in [
            ("https:/h/charts", "http: no Host in request URL"),
            (
                "https://h/\u{7f}charts",
                "net/url: invalid control character in URL",
            ),
            (
                "https://h\\charts",
                "invalid character \"\\\\\" in host name",
            ),
        ] {
            let error = reference(repo, "web", "").locate().unwrap_err().to_string();
            assert!(error.ends_with(problem), "{error}");
        }
    }

    #[rstest]
    #[case("https://h/charts/?token=x#y", "web", "https://h/charts/web")]
    #[case("https://h", "web", "https://h/web")]
    #[case("https://h/c", "a/b?x", "https://h/c/a%2Fb%3Fx")]
    #[case("", "https://h/web.tgz?t=x", "https://h/web.tgz?t=x")]
    #[case("oci://h:5000/charts/web/", "ignored", "oci://h:5000/charts/web")]
    #[case("", "oci://b\u{fc}cher.example/web:1", "oci://xn--bcher-kva.example/web:1")]
    fn a_chart_has_the_address_that_is_asked(
        #[case] repo: &str,
        #[case] chart: &str,
        #[case] address: &str,
    ) {
        assert_eq!(
            reference(repo, chart, "").address().unwrap().as_str(),
            address
        );
    }

    #[test]
    fn passwords_are_hidden_even_in_nonsense() {
        for text in ["https://u:pw@h/charts", "foo://u:pw@h", "https://u:pw@:x/"] {
            let chart = reference(text, "web", "1");
            assert!(!chart.to_string().contains("pw"), "{chart}");
            if let Err(error) = chart.locate() {
                assert!(!error.to_string().contains("pw"), "{error}");
            }
        }
    }

    #[rstest]
    #[case("https://h/charts", "https://h/charts/index.yaml")]
    #[case("https://h/charts/", "https://h/charts/index.yaml")]
    #[case("https://h", "https://h/index.yaml")]
    #[case("https://h/c?token=x", "https://h/c/index.yaml?token=x")]
    fn index_address(#[case] repo: &str, #[case] want: &str) {
        assert_eq!(index_url(&SafeUrl::parse(repo).unwrap()).as_str(), want);
    }

    #[rstest]
    #[case("web-1.tgz", "https://h/c/web-1.tgz?t=x")]
    #[case("charts/web-1.tgz", "https://h/c/charts/web-1.tgz?t=x")]
    #[case("web-1.tgz?v=2", "https://h/c/web-1.tgz?v=2")]
    #[case("https://cdn/web-1.tgz", "https://cdn/web-1.tgz")]
    #[case("../web-1.0.0+b.tgz", "https://h/web-1.0.0+b.tgz?t=x")]
    #[case("/abs/web.tgz", "https://h/c/abs/web.tgz?t=x")]
    #[case("web:1.tgz", "https://h/c/web:1.tgz?t=x")]
    fn chart_address(#[case] url: &str, #[case] want: &str) {
        let repo = SafeUrl::parse("https://h/c?t=x").unwrap();
        let entry = Entry {
            urls: Some(vec![url.into()]),
            ..Entry::default()
        };
        assert_eq!(chart_url(&repo, "web", &entry).unwrap().as_str(), want);
    }

    #[test]
    fn go_getter_parameters() {
        let sum = "ab".repeat(32);
        let text = format!("https://h/a?x=1&checksum=sha256:{sum}&archive=tgz");
        let (url, checksum) = parameters(&SafeUrl::parse(&text).unwrap()).unwrap();
        assert_eq!(url.as_str(), "https://h/a?x=1");
        assert_eq!(checksum.unwrap().key(), format!("sha256:{sum}"));
        for bad in [
            "checksum=sha256:zz",
            "checksum=900150983cd24fb0d6963f7d28e17f72",
            "checksum=file:https://h/sums",
            "archive=zip",
        ] {
            let url = SafeUrl::parse(&format!("https://h/a?{bad}")).unwrap();
            assert!(parameters(&url).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_algorithm() {
        let url = SafeUrl::parse("https://h/a").unwrap();
        for text in [
            "md5:900150983cd24fb0d6963f7d28e17f72",
            "sha1:a9993e364706816aba3e25717850c26c9cd0d89d",
            "SHA256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        ] {
            Checksum::from_parameter(text)
                .unwrap()
                .check(&url, b"abc")
                .unwrap();
        }
        let wrong = Checksum::from_index(&"0".repeat(64))
            .unwrap()
            .check(&url, b"abc");
        assert_eq!(wrong.unwrap_err().reason(), "ChecksumMismatch");
        assert_eq!(Checksum::from_index("abc"), None);
    }
}
