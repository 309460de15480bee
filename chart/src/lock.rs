//! `Chart.lock`: from the constraints of `Chart.yaml` to exact versions, and the hash that ties the two.
//!
//! Mirrors `internal/resolver/resolver.go`. Where versions come from is the caller's business ([`Versions`]); installing never
//! looks at the lock.

use std::collections::BTreeMap;

use golib::json;
use golib::semver::{Constraint, Version};
use golib::strconv::quote;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::metadata::Dependency;

/// The versions there are of a dependency. What is answered instead is shown to people, in Helm's words.
pub trait Versions {
    /// Checks that a path is there, seen from the chart.
    ///
    /// # Errors
    /// It is not.
    fn exists(&self, path: &str) -> Result<(), String>;

    /// The version of the chart in a directory, seen from the chart.
    ///
    /// # Errors
    /// There is no chart.
    fn local(&self, path: &str) -> Result<String, String>;

    /// The versions of a chart that a repository offers for download, newest first; `None` where it does not have the chart.
    ///
    /// # Errors
    /// The repository's index cannot be had.
    fn listed(&self, repository: &str, chart: &str) -> Result<Option<Vec<String>>, String>;

    /// The versions of a chart that a registry has, newest first.
    ///
    /// # Errors
    /// The registry does not list its tags.
    fn tags(&self, repository: &str, chart: &str) -> Result<Vec<String>, String>;
}

/// Dependencies that cannot be locked. The text is Helm's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "messages name the fields")]
pub enum LockError {
    /// A version constraint cannot be read.
    #[error("dependency {} has an invalid version/constraint format: {problem}", quote(.name))]
    Constraint { name: String, problem: String },
    /// A dependency in `charts/` has a name that is no directory's.
    #[error("chart name {} {problem}", quote(.name))]
    Name { name: String, problem: &'static str },
    /// A chart on disk is missing, or none.
    #[error("{0}")]
    Local(String),
    /// The index of a repository cannot be had.
    #[error("no cached repository for {repository} found. (try 'helm repo update'): {problem}")]
    Index { repository: String, problem: String },
    /// A repository does not have the chart.
    #[error("{name} chart not found in repo {repository}")]
    NotFound { name: String, repository: String },
    /// A registry does not list its tags.
    #[error("could not retrieve list of tags for repository {repository}: {problem}")]
    Tags { repository: String, problem: String },
    /// Of some dependencies there is no version that fits.
    #[error(
        "can't get a valid version for {} subchart(s): {}. Make sure a matching chart version \
         exists in the repo, or change the version constraint in Chart.yaml",
        .0.len(),
        .0.join(", ")
    )]
    NoVersion(Vec<String>),
}

/// Finds the newest version that satisfies each constraint. `repositories` has the name of a dependency's repository by the
/// dependency's name, as [`Versions::listed`] is to be asked for it.
///
/// ```
/// use std::collections::BTreeMap;
/// use chart::Dependency;
/// use chart::lock::{Versions, resolve};
///
/// /// Repositories that all have the same.
/// struct Fixed(Vec<String>);
///
/// impl Versions for Fixed {
///     fn exists(&self, path: &str) -> Result<(), String> {
///         Err(format!("there is no {path}"))
///     }
///     fn local(&self, path: &str) -> Result<String, String> {
///         Err(format!("there is no {path}"))
///     }
///     fn listed(&self, _repository: &str, _chart: &str) -> Result<Option<Vec<String>>, String> {
///         Ok(Some(self.0.clone()))
///     }
///     fn tags(&self, _repository: &str, _chart: &str) -> Result<Vec<String>, String> {
///         Ok(self.0.clone())
///     }
/// }
///
/// let declared = [Dependency {
///     name: "redis".into(),
///     repository: "https://charts.example".into(),
///     version: "^1".into(),
///     ..Dependency::default()
/// }];
/// let repositories = BTreeMap::from([("redis".to_owned(), "example".to_owned())]);
/// let versions = Fixed(vec!["2.0.0".into(), "1.4.0".into(), "1.3.0".into()]);
/// let locked = resolve(&declared, &repositories, &versions)?;
/// assert_eq!(locked[0].version, "1.4.0");
/// # Ok::<(), chart::lock::LockError>(())
/// ```
///
/// # Errors
/// A constraint is malformed, versions cannot be had, or none fits.
pub fn resolve(
    declared: &[Dependency],
    repositories: &BTreeMap<String, String>,
    versions: &dyn Versions,
) -> Result<Vec<Dependency>, LockError> {
    let mut locked = Vec::new();
    let mut missing = Vec::new();
    for dependency in declared {
        let Dependency {
            name, repository, ..
        } = dependency;
        match version(dependency, repositories, versions)? {
            Some(version) => locked.push(Dependency {
                name: name.clone(),
                repository: repository.clone(),
                version,
                ..Dependency::default()
            }),
            None => missing.push(format!(
                "{} (repository {}, version {})",
                quote(name),
                quote(repository),
                quote(&dependency.version)
            )),
        }
    }
    match missing.is_empty() {
        true => Ok(locked),
        false => Err(LockError::NoVersion(missing)),
    }
}

/// The version to take; `None` where none fits.
fn version(
    dependency: &Dependency,
    repositories: &BTreeMap<String, String>,
    versions: &dyn Versions,
) -> Result<Option<String>, LockError> {
    let Dependency {
        name,
        repository,
        version,
        ..
    } = dependency;
    let constraint = Constraint::parse(version).map_err(|error| LockError::Constraint {
        name: name.clone(),
        problem: error.to_string(),
    })?;
    let fits = |version: &String| Version::parse(version).is_ok_and(|v| constraint.check(&v));
    if repository.is_empty() {
        check_name(name)?;
        let path = format!("charts/{name}");
        versions.exists(&path).map_err(LockError::Local)?;
        return Ok(Some(version.clone()));
    }
    if let Some(path) = repository.strip_prefix("file://") {
        versions.exists(path).map_err(LockError::Local)?;
        let version = versions.local(path).map_err(LockError::Local)?;
        return Ok(Some(version).filter(fits));
    }
    if repository.starts_with("oci://") {
        // A registry is asked only where the version leaves a choice; what does not fit is found out when it is pulled.
        let known = match Version::parse(version) {
            Ok(_) => vec![version.clone()],
            Err(_) => versions
                .tags(repository, name)
                .map_err(|problem| LockError::Tags {
                    repository: repository.clone(),
                    problem,
                })?,
        };
        let picked = known.into_iter().find(fits);
        return Ok(Some(picked.unwrap_or_else(|| version.clone())));
    }
    let Some(known) = repositories.get(name).filter(|known| !known.is_empty()) else {
        return Ok(Some(version.clone()));
    };
    let listed = versions
        .listed(known, name)
        .map_err(|problem| LockError::Index {
            repository: known.clone(),
            problem,
        })?;
    let listed = listed.ok_or_else(|| LockError::NotFound {
        name: name.clone(),
        repository: repository.clone(),
    })?;
    Ok(listed.into_iter().find(fits))
}

/// A chart in `charts/` is not looked for elsewhere.
fn check_name(name: &str) -> Result<(), LockError> {
    let problem = match name {
        "" | "." | ".." => "is not allowed",
        _ if name.contains(['/', '\\']) => "must not contain path separators",
        _ => return Ok(()),
    };
    Err(LockError::Name {
        name: name.to_owned(),
        problem,
    })
}

/// The digest of declared and locked dependencies.
///
/// ```
/// use chart::{Dependency, lock};
///
/// let declared = Dependency { name: "db".into(), version: "1.x".into(), ..Dependency::default() };
/// let locked = Dependency { version: "1.2.0".into(), ..declared.clone() };
/// assert!(lock::digest(&[declared], &[locked]).starts_with("sha256:"));
/// ```
pub fn digest(declared: &[Dependency], locked: &[Dependency]) -> String {
    let list = |dependencies: &[Dependency]| {
        let items: Vec<String> = dependencies.iter().map(go_json).collect();
        format!("[{}]", items.join(","))
    };
    let text = format!("[{},{}]", list(declared), list(locked));
    let hash = Sha256::digest(text.as_bytes());
    format!("sha256:{}", golib::hex::encode(&hash))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A repository `one`, a registry and directories that have some versions of `web`.
    struct Shop;

    impl Versions for Shop {
        fn exists(&self, place: &str) -> Result<(), String> {
            match place.ends_with("gone") {
                true => Err(format!("directory {place} not found")),
                false => Ok(()),
            }
        }

        fn local(&self, _: &str) -> Result<String, String> {
            Ok("2.1.0".into())
        }

        fn listed(&self, repository: &str, chart: &str) -> Result<Option<Vec<String>>, String> {
            let versions = ["2.0.0-rc.1", "1.10.0", "1.2.0"].map(str::to_owned);
            match repository {
                "one" => Ok((chart == "web").then(|| versions.into())),
                _ => Err("no such file".into()),
            }
        }

        fn tags(&self, _: &str, _: &str) -> Result<Vec<String>, String> {
            Ok(vec!["1.3.0".into(), "1.2.9".into()])
        }
    }

    fn locked(name: &str, repository: &str, version: &str) -> Result<String, String> {
        let declared = [Dependency {
            name: name.into(),
            repository: repository.into(),
            version: version.into(),
            ..Dependency::default()
        }];
        let names: BTreeMap<String, String> = [("web", "one"), ("db", "two")]
            .map(|(name, known)| (name.to_owned(), known.to_owned()))
            .into();
        resolve(&declared, &names, &Shop)
            .map(|locked| locked[0].version.clone())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_newest_that_fits_is_taken() {
        let url = "http://h";
        assert_eq!(locked("web", url, "^1").as_deref(), Ok("1.10.0"));
        assert_eq!(locked("web", url, "~1.2").as_deref(), Ok("1.2.0"));
        assert_eq!(
            locked("web", url, "1.9.0").unwrap_err(),
            "can't get a valid version for 1 subchart(s): \"web\" (repository \"http://h\", version \"1.9.0\"). Make sure a matching chart version exists in the repo, or change the version constraint in Chart.yaml"
        );
        assert_eq!(locked("web", "oci://r", "^1").as_deref(), Ok("1.3.0"));
        assert_eq!(locked("web", "oci://r", "^9").as_deref(), Ok("^9"));
        assert_eq!(locked("web", "oci://r", "1.2").as_deref(), Ok("1.2"));
        assert_eq!(
            locked("web", "file://../web", ">=2").as_deref(),
            Ok("2.1.0")
        );
        assert_eq!(locked("web", "", "^1").as_deref(), Ok("^1"));
        assert_eq!(locked("other", url, "^1").as_deref(), Ok("^1"));
    }

    #[test]
    fn errors_are_helms() {
        let error = |name, repository, version| locked(name, repository, version).unwrap_err();
        assert_eq!(error("gone", "", "^1"), "directory charts/gone not found");
        assert!(error("../gone", "", "^1").contains("must not contain path separators"));
        assert!(
            error("web", "file://x", "^3").contains("(repository \"file://x\", version \"^3\")")
        );
        assert!(
            error("web", "http://h", "nonsense").starts_with("dependency \"web\" has an invalid")
        );
        assert!(error("db", "http://h", "1").starts_with("no cached repository for two found."));
    }
}
