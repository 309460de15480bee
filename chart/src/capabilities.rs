//! What a chart may ask about the cluster: `.Capabilities`.
//!
//! Offline defaults and `--kube-version` parsing mirror `pkg/chart/common/capabilities.go`;
//! discovery against a live cluster is the caller's.

mod defaults;

use std::sync::Arc;

pub use defaults::DEFAULT_API_VERSIONS;

/// The capabilities templates see. Cloning shares the list of API versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// `.Capabilities.KubeVersion`.
    pub kube_version: KubeVersion,
    /// `.Capabilities.APIVersions`: `group/version`, and from a live cluster also
    /// `group/version/Kind`. In the order given.
    pub api_versions: Arc<[String]>,
    /// `.Capabilities.HelmVersion`.
    pub helm_version: HelmVersion,
}

/// A Kubernetes version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeVersion {
    /// Full version, `v1.33.4-gke.1245000`.
    pub version: String,
    /// Without suffixes, for constraints; empty when the version came from a live cluster, where
    /// Helm compares the full one.
    pub normalized: String,
    /// Major number as text.
    pub major: String,
    /// Minor number as text; live clusters may add `+`.
    pub minor: String,
}

/// The Helm a chart believes it is rendered by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelmVersion {
    /// `v4.3.1`.
    pub version: String,
    /// Commit the build came from.
    pub git_commit: String,
    /// `clean` or empty.
    pub git_tree_state: String,
    /// Go release of the build.
    pub go_version: String,
    /// Kubernetes release of the client library.
    pub kube_client_version: String,
}

/// A `--kube-version` that is not a version. The text is Kubernetes'.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KubeVersionError {
    /// There are no numbers to read.
    #[error("could not parse {0:?} as version")]
    Unreadable(String),
    /// There is only one number.
    #[error("illegal version string {0:?}")]
    TooShort(String),
    /// The major number has a leading zero.
    #[error("illegal zero-prefixed version component {component:?} in {text:?}")]
    ZeroPrefixed {
        /// The number as written.
        component: String,
        /// The version as given.
        text: String,
    },
    /// One of the numbers is too large.
    #[error(
        "illegal non-numeric version component {component:?} in {text:?}: \
         strconv.ParseUint: parsing {component:?}: value out of range"
    )]
    OutOfRange {
        /// The number as written.
        component: String,
        /// The version as given.
        text: String,
    },
}

impl Capabilities {
    /// Whether `api_version` (`group/version` or `group/version/Kind`) is among the known ones.
    ///
    /// ```
    /// let offline = chart::Capabilities::default();
    /// assert!(offline.has("apps/v1"));
    /// assert!(!offline.has("example.com/v1"));
    /// ```
    pub fn has(&self, api_version: &str) -> bool {
        self.api_versions.iter().any(|known| known == api_version)
    }
}

impl Default for Capabilities {
    /// What Helm assumes offline.
    fn default() -> Self {
        let version = format!("v{}.{}.0", defaults::KUBE_MAJOR, defaults::KUBE_MINOR);
        Self {
            kube_version: KubeVersion {
                version: version.clone(),
                normalized: version,
                major: defaults::KUBE_MAJOR.to_owned(),
                minor: defaults::KUBE_MINOR.to_owned(),
            },
            api_versions: DEFAULT_API_VERSIONS
                .iter()
                .map(|&version| version.to_owned())
                .collect(),
            helm_version: HelmVersion::default(),
        }
    }
}

impl Default for HelmVersion {
    /// The Helm release whose behaviour we follow.
    fn default() -> Self {
        Self {
            version: "v4.3.1".to_owned(),
            git_commit: String::new(),
            git_tree_state: "clean".to_owned(),
            go_version: "go1.26.8".to_owned(),
            kube_client_version: format!("v{}.{}", defaults::KUBE_MAJOR, defaults::KUBE_MINOR),
        }
    }
}

impl KubeVersion {
    /// Reads a version as `--kube-version` does: two or more numbers, then anything.
    ///
    /// ```
    /// let version = chart::KubeVersion::parse("1.33.1+k3s1")?;
    /// assert_eq!((version.version.as_str(), version.for_constraints()), ("v1.33.1+k3s1", "v1.33.1"));
    /// assert!(chart::KubeVersion::parse("1").is_err());
    /// # Ok::<(), chart::capabilities::KubeVersionError>(())
    /// ```
    ///
    /// # Errors
    /// There are fewer than two numbers, the first has a leading zero, or one does not fit 64 bits.
    pub fn parse(text: &str) -> Result<Self, KubeVersionError> {
        // Go's `\s` is ASCII, and its `.` stops at a line break.
        let trimmed = text.trim_start_matches(['\t', '\n', '\x0c', '\r', ' ']);
        let digits = trimmed.strip_prefix('v').unwrap_or(trimmed);
        let numbers = leading_numbers(digits);
        if numbers.is_empty() || digits[numbers.len()..].contains('\n') {
            return Err(KubeVersionError::Unreadable(text.to_owned()));
        }
        let components: Vec<&str> = numbers.split('.').collect();
        if components.len() < 2 {
            return Err(KubeVersionError::TooShort(text.to_owned()));
        }
        let mut values = Vec::with_capacity(components.len());
        for (index, component) in components.iter().enumerate() {
            if index == 0 && component.starts_with('0') && *component != "0" {
                return Err(KubeVersionError::ZeroPrefixed {
                    component: (*component).to_owned(),
                    text: text.to_owned(),
                });
            }
            let value: u64 = component
                .parse()
                .map_err(|_| KubeVersionError::OutOfRange {
                    component: (*component).to_owned(),
                    text: text.to_owned(),
                })?;
            values.push(value.to_string());
        }
        let version = if text.starts_with('v') {
            text.to_owned()
        } else {
            format!("v{text}")
        };
        Ok(Self {
            version,
            normalized: format!("v{}", values.join(".")),
            major: values[0].clone(),
            minor: values[1].clone(),
        })
    }

    /// The version of a live cluster, where constraints see every suffix.
    ///
    /// ```
    /// let version = chart::KubeVersion::live("v1.33.1-eks-1234", "1", "33+");
    /// assert_eq!(version.for_constraints(), "v1.33.1-eks-1234");
    /// ```
    pub fn live(
        version: impl Into<String>,
        major: impl Into<String>,
        minor: impl Into<String>,
    ) -> Self {
        Self {
            version: version.into(),
            normalized: String::new(),
            major: major.into(),
            minor: minor.into(),
        }
    }

    /// The version that constraints are checked against, and that `.Capabilities.KubeVersion` prints.
    ///
    /// ```
    /// let asked = chart::KubeVersion::parse("v1.33.1-eks-1234")?;
    /// assert_eq!(asked.for_constraints(), "v1.33.1"); // as `--kube-version` is read
    /// # Ok::<(), chart::capabilities::KubeVersionError>(())
    /// ```
    pub fn for_constraints(&self) -> &str {
        if self.normalized.is_empty() {
            &self.version
        } else {
            &self.normalized
        }
    }
}

/// The longest prefix of dot-separated numbers.
fn leading_numbers(text: &str) -> &str {
    let bytes = text.as_bytes();
    let digits_from = |from: usize| {
        bytes[from..]
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count()
    };
    let mut end = digits_from(0);
    while end > 0 && bytes.get(end) == Some(&b'.') {
        match digits_from(end + 1) {
            0 => break,
            more => end += 1 + more,
        }
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::{Capabilities, KubeVersion};

    #[test]
    fn a_suffix_counts_for_the_version_but_not_for_constraints() {
        let kube = KubeVersion::parse("v1.30.2-gke.1").expect("a version");
        assert_eq!(kube.version, "v1.30.2-gke.1");
        assert_eq!(kube.for_constraints(), "v1.30.2");
        assert_eq!((kube.major.as_str(), kube.minor.as_str()), ("1", "30"));
        assert_eq!(
            KubeVersion::parse("1.36")
                .expect("a version")
                .for_constraints(),
            "v1.36"
        );
    }

    #[test]
    fn refuses_what_kubernetes_refuses() {
        let error = |text| {
            KubeVersion::parse(text)
                .expect_err("no version")
                .to_string()
        };
        assert_eq!(error("abc"), r#"could not parse "abc" as version"#);
        assert_eq!(error("1"), r#"illegal version string "1""#);
        assert_eq!(
            error("01.2"),
            r#"illegal zero-prefixed version component "01" in "01.2""#
        );
    }

    #[test]
    fn offline_defaults_know_groups_but_no_kinds() {
        let capabilities = Capabilities::default();
        assert!(capabilities.has("apps/v1"));
        assert!(!capabilities.has("apps/v1/Deployment"));
    }
}
