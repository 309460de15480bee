//! From the constraints of `Chart.yaml` to exact versions.
//!
//! Mirrors `internal/resolver/resolver.go`: the newest version that satisfies a constraint, as repositories, registries and
//! local charts tell it.

use chart::Dependency;
use chart::source::Index;
use golib::semver::{Constraint, Version};
use golib::strconv::quote;

use super::names::{Names, is_registry};

/// Where versions come from.
pub(super) trait Shelf {
    /// Checks that a path, seen from the chart, is there.
    fn exists(&self, place: &str) -> Result<(), String>;
    /// The version of the chart in a local directory.
    fn local_version(&self, place: &str) -> Result<String, String>;
    /// The index kept of a repository.
    fn index(&self, name: &str) -> Result<Index, String>;
    /// The versions a registry has of a chart, newest first.
    fn tags(&self, repository: &str, chart: &str) -> Result<Vec<String>, String>;
}

/// Locks every dependency.
///
/// # Errors
/// A constraint is malformed, a repository cannot be read, or no version fits; the text is helm's.
pub(super) fn resolve(
    declared: &[Dependency],
    names: &Names,
    shelf: &dyn Shelf,
) -> Result<Vec<Dependency>, String> {
    let mut locked = Vec::new();
    let mut missing = Vec::new();
    for dependency in declared {
        let constraint = constraint(dependency)?;
        match version(dependency, &constraint, names, shelf)? {
            Some(version) => locked.push(Dependency {
                name: dependency.name.clone(),
                repository: dependency.repository.clone(),
                version,
                ..Dependency::default()
            }),
            None => missing.push(format!(
                "{} (repository {}, version {})",
                quote(&dependency.name),
                quote(&dependency.repository),
                quote(&dependency.version)
            )),
        }
    }
    match missing.len() {
        0 => Ok(locked),
        count => Err(format!(
            "can't get a valid version for {count} subchart(s): {}. Make sure a matching chart version exists in the repo, \
             or change the version constraint in Chart.yaml",
            missing.join(", ")
        )),
    }
}

fn constraint(dependency: &Dependency) -> Result<Constraint, String> {
    Constraint::parse(&dependency.version).map_err(|error| {
        format!(
            "dependency {} has an invalid version/constraint format: {error}",
            quote(&dependency.name)
        )
    })
}

/// A chart in `charts/` is not looked for elsewhere.
fn check_name(name: &str) -> Result<(), String> {
    let shown = quote(name);
    match name {
        "" | "." | ".." => Err(format!("chart name {shown} is not allowed")),
        _ if name.contains(['/', '\\']) => Err(format!(
            "chart name {shown} must not contain path separators"
        )),
        _ => Ok(()),
    }
}

/// The version to take; `None` where none fits.
fn version(
    dependency: &Dependency,
    constraint: &Constraint,
    names: &Names,
    shelf: &dyn Shelf,
) -> Result<Option<String>, String> {
    let (name, repository) = (&dependency.name, &dependency.repository);
    let fits = |version: &str| Version::parse(version).is_ok_and(|v| constraint.check(&v));
    if repository.is_empty() {
        check_name(name)?;
        shelf.exists(&format!("charts/{name}"))?;
        return Ok(Some(dependency.version.clone()));
    }
    if let Some(place) = repository.strip_prefix("file://") {
        shelf.exists(place)?;
        let version = shelf.local_version(place)?;
        return Ok(Some(version).filter(|version| fits(version)));
    }
    if is_registry(repository) {
        // A registry is asked only where the version leaves a choice; what does not fit is found out when it is pulled.
        let known = match Version::parse(&dependency.version) {
            Ok(_) => vec![dependency.version.clone()],
            Err(_) => shelf.tags(repository, name).map_err(|cause| {
                format!("could not retrieve list of tags for repository {repository}: {cause}")
            })?,
        };
        let picked = known.into_iter().find(|version| fits(version));
        return Ok(Some(picked.unwrap_or_else(|| dependency.version.clone())));
    }
    let Some(known) = names.get(name).filter(|known| !known.is_empty()) else {
        return Ok(Some(dependency.version.clone()));
    };
    let index = shelf.index(known).map_err(|cause| {
        format!("no cached repository for {known} found. (try 'helm repo update'): {cause}")
    })?;
    let versions = index.entries.get(name);
    let versions =
        versions.ok_or_else(|| format!("{name} chart not found in repo {repository}"))?;
    let has_urls = |urls: &Option<Vec<String>>| urls.as_ref().is_some_and(|urls| !urls.is_empty());
    let picked = versions
        .iter()
        .find(|entry| has_urls(&entry.urls) && fits(&entry.version));
    Ok(picked.map(|entry| entry.version.clone()))
}

#[cfg(test)]
mod tests {
    use chart::source::Strictness;

    use super::*;

    struct Shop;

    impl Shelf for Shop {
        fn exists(&self, place: &str) -> Result<(), String> {
            match place.ends_with("gone") {
                true => Err(format!("directory {place} not found")),
                false => Ok(()),
            }
        }

        fn local_version(&self, _: &str) -> Result<String, String> {
            Ok("2.1.0".into())
        }

        fn index(&self, name: &str) -> Result<Index, String> {
            let text = "apiVersion: v1\nentries:\n  web:\n  - {name: web, version: 1.9.0, urls: []}\n  \
                        - {name: web, version: 1.2.0, urls: [a]}\n  - {name: web, version: 1.10.0, urls: [a]}\n  \
                        - {name: web, version: 2.0.0-rc.1, urls: [a]}\n";
            match name {
                "one" => {
                    Index::load(text.as_bytes(), Strictness::Helm, "").map_err(|e| e.to_string())
                }
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
        let names: Names = [("web", "one"), ("db", "two")]
            .map(|(name, known)| (name.to_owned(), known.to_owned()))
            .into();
        resolve(&declared, &names, &Shop).map(|locked| locked[0].version.clone())
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
    fn what_cannot_be_told_is_an_error() {
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
