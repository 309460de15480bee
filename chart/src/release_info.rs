//! What a template learns of the release it is rendered for.

/// The facts behind `.Release`. `.Release.Service` is always `Helm`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseInfo {
    /// `.Release.Name`.
    pub name: String,
    /// `.Release.Namespace`.
    pub namespace: String,
    /// `.Release.Revision`, counted from 1.
    pub revision: i64,
    /// `.Release.IsInstall`: no revision was ever deployed.
    pub is_install: bool,
    /// `.Release.IsUpgrade`: an earlier revision exists.
    pub is_upgrade: bool,
}

impl ReleaseInfo {
    /// The first revision of a release, as `helm install` and `helm template` see it.
    ///
    /// ```
    /// let release = chart::ReleaseInfo::install("blog", "default");
    /// assert_eq!((release.revision, release.is_install), (1, true));
    /// ```
    pub fn install(name: impl Into<String>, namespace: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            namespace: namespace.into(),
            revision: 1,
            is_install: true,
            is_upgrade: false,
        }
    }
}

/// Longest release name.
const MAX_NAME_BYTES: usize = 53;

/// A release name Helm does not accept. The text is Helm's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseNameError {
    /// There is none.
    #[error("no name provided")]
    Missing,
    /// The name is too long or has other characters than a DNS name.
    #[error(
        "invalid release name, must match regex \
         ^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$ \
         and the length must not be longer than 53"
    )]
    Invalid,
}

/// Checks a release name: lower-case letters, digits, inner `-`, parts joined by `.`.
///
/// ```
/// assert!(chart::validate_release_name("blog").is_ok());
/// assert!(chart::validate_release_name("My Blog").is_err());
/// ```
///
/// # Errors
/// The name is empty, too long or malformed.
pub fn validate_release_name(name: &str) -> Result<(), ReleaseNameError> {
    if name.is_empty() {
        return Err(ReleaseNameError::Missing);
    }
    if name.len() > MAX_NAME_BYTES || !golib::validation::is_dns1123_subdomain(name) {
        return Err(ReleaseNameError::Invalid);
    }
    Ok(())
}
