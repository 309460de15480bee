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
