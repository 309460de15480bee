//! `Chart.lock`: the hash that ties it to `Chart.yaml`, and locking what lies on disk.
//!
//! Mirrors `internal/resolver/resolver.go`. Locking against repositories and registries is not done
//! here; installing never looks at the lock.

use golib::json;
use golib::path;
use golib::semver::{Constraint, Version};
use golib::strconv::quote;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::{Dependency, Lock, Metadata, Time};

/// A lock that cannot be made or does not fit. The text is Helm's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// A version constraint cannot be read.
    #[error("dependency {} has an invalid version/constraint format: {why}", quote(.name))]
    Constraint {
        /// The dependency.
        name: String,
        /// What is wrong with the constraint.
        why: String,
    },
    /// A chart that should lie on disk does not.
    #[error("directory {0} not found")]
    NotFound(String),
    /// Charts on disk have versions nobody wants.
    #[error(
        "can't get a valid version for {} subchart(s): {}. Make sure a matching chart version \
         exists in the repo, or change the version constraint in Chart.yaml",
        .0.len(),
        .0.join(", ")
    )]
    NoVersion(Vec<String>),
    /// A dependency comes from a repository.
    #[error("dependency {} comes from {repository}: only local charts can be locked", quote(.name))]
    Remote {
        /// The dependency.
        name: String,
        /// Its repository.
        repository: String,
    },
    /// `Chart.yaml` has changed since the lock was made.
    #[error(
        "the lock file (Chart.lock) is out of sync with the dependencies file (Chart.yaml). Please \
         update the dependencies with 'helm dependency update'"
    )]
    OutOfSync,
}

/// The digest of declared and locked dependencies.
pub fn digest(declared: &[Dependency], locked: &[Dependency]) -> String {
    let list = |dependencies: &[Dependency]| {
        let items: Vec<String> = dependencies.iter().map(go_json).collect();
        format!("[{}]", items.join(","))
    };
    let text = format!("[{},{}]", list(declared), list(locked));
    let hash = Sha256::digest(text.as_bytes());
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// A dependency as Go's `encoding/json` prints the struct.
fn go_json(dependency: &Dependency) -> String {
    let texts = |texts: &[String]| {
        texts
            .iter()
            .map(|text| Value::from(text.as_str()))
            .collect()
    };
    let fields = [
        ("name", true, Value::from(dependency.name.as_str())),
        ("version", false, Value::from(dependency.version.as_str())),
        (
            "repository",
            true,
            Value::from(dependency.repository.as_str()),
        ),
        (
            "condition",
            false,
            Value::from(dependency.condition.as_str()),
        ),
        ("tags", false, texts(&dependency.tags)),
        ("enabled", false, Value::from(dependency.enabled)),
        (
            "import-values",
            false,
            Value::from(dependency.import_values.clone()),
        ),
        ("alias", false, Value::from(dependency.alias.as_str())),
    ];
    let is_empty = |value: &Value| match value {
        Value::Bool(flag) => !flag,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    let shown: Vec<String> = fields
        .iter()
        .filter(|(_, always, value)| *always || !is_empty(value))
        .map(|(name, _, value)| format!("\"{name}\":{}", json::encode(value)))
        .collect();
    format!("{{{}}}", shown.join(","))
}

/// Locks the dependencies of a chart that all lie on disk. `version_of` tells the version of the chart
/// in a directory, given relative to the parent of `base`.
///
/// # Errors
/// A constraint is malformed, a chart is missing or has the wrong version, or comes from elsewhere.
pub fn resolve_local(
    metadata: &Metadata,
    base: &str,
    version_of: &dyn Fn(&str) -> Option<String>,
) -> Result<Lock, LockError> {
    let mut locked = Vec::new();
    let mut missing = Vec::new();
    for dependency in &metadata.dependencies {
        let name = &dependency.name;
        let constraint =
            Constraint::parse(&dependency.version).map_err(|error| LockError::Constraint {
                name: name.clone(),
                why: error.to_string(),
            })?;
        let repository = &dependency.repository;
        let vendored = repository.is_empty();
        let version = if vendored {
            local_version(base, &format!("charts/{name}"), version_of)?;
            dependency.version.clone()
        } else if let Some(place) = repository.strip_prefix("file://") {
            local_version(base, place, version_of)?
        } else {
            let (name, repository) = (name.clone(), repository.clone());
            return Err(LockError::Remote { name, repository });
        };
        let fits = || Version::parse(&version).is_ok_and(|version| constraint.check(&version));
        if !vendored && !fits() {
            missing.push(format!(
                "{} (repository {}, version {})",
                quote(name),
                quote(repository),
                quote(&dependency.version)
            ));
            continue;
        }
        let (name, repository) = (name.clone(), repository.clone());
        locked.push(Dependency {
            name,
            version,
            repository,
            ..Dependency::default()
        });
    }
    if !missing.is_empty() {
        return Err(LockError::NoVersion(missing));
    }
    let digest = digest(&metadata.dependencies, &locked);
    Ok(Lock {
        generated: Time::ZERO,
        digest,
        dependencies: locked.into(),
    })
}

fn local_version(
    base: &str,
    place: &str,
    version_of: &dyn Fn(&str) -> Option<String>,
) -> Result<String, LockError> {
    let joined = if place.starts_with('/') {
        place.to_owned()
    } else {
        format!("{base}/{place}")
    };
    let joined = String::from_utf8_lossy(&path::clean(joined.as_bytes())).into_owned();
    version_of(&joined).ok_or(LockError::NotFound(joined))
}

/// Checks that a lock belongs to the dependencies `Chart.yaml` declares, and that local charts among
/// them are there.
///
/// # Errors
/// A local chart is missing, or the lock is out of sync.
pub fn check(
    metadata: &Metadata,
    lock: &Lock,
    base: &str,
    version_of: &dyn Fn(&str) -> Option<String>,
) -> Result<(), LockError> {
    for dependency in &metadata.dependencies {
        if let Some(place) = dependency.repository.strip_prefix("file://") {
            local_version(base, place, version_of)?;
        }
    }
    if digest(&metadata.dependencies, &lock.dependencies) == lock.digest {
        Ok(())
    } else {
        Err(LockError::OutOfSync)
    }
}
