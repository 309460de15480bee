//! Where a chart comes from: Fleet's `repo`, `chart` and `version`, read once into one of three
//! forms. Mirrors `internal/bundlereader/{charturl,source}.go`.

use std::fmt;

use super::error::FetchError;
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
    if url.path().contains("//") {
        return Err(unsupported(
            "a subdirectory of an archive cannot be selected",
        ));
    }
    Ok(url)
}

fn invalid(reference: &str, problem: impl Into<String>) -> FetchError {
    FetchError::InvalidReference {
        reference: shown_text(reference),
        problem: problem.into(),
    }
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
    fn passwords_are_hidden_even_in_nonsense() {
        for text in ["https://u:pw@h/charts", "foo://u:pw@h", "https://u:pw@:x/"] {
            let chart = reference(text, "web", "1");
            assert!(!chart.to_string().contains("pw"), "{chart}");
            if let Err(error) = chart.locate() {
                assert!(!error.to_string().contains("pw"), "{error}");
            }
        }
    }
}
