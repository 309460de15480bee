//! Which repository a dependency comes from: one the user has configured, or one that only `Chart.yaml` names.
//!
//! Mirrors `resolveRepoNames`, `ensureMissingRepos` and `dedupeRepos` (`pkg/downloader/manager.go`). Pure.

use std::collections::BTreeMap;

use chart::Dependency;
use sha2::{Digest as _, Sha256};

use crate::address;
use crate::repositories::Repository;

/// Name by dependency; helm keys some by their address.
pub(super) type Names = BTreeMap<String, String>;

/// What helm calls repositories that nobody configured.
const UNMANAGED: &str = "helm-manager-";

/// Whether an address is one of a registry.
pub(super) fn is_registry(repository: &str) -> bool {
    repository.starts_with("oci://")
}

/// Names the repositories that are configured, and puts their addresses where `Chart.yaml` has aliases. `local` checks a
/// `file://` address.
///
/// # Errors
/// A local chart is missing, or a name is not configured.
pub(super) fn configured(
    declared: &mut [Dependency],
    configured: &[Repository],
    local: &mut dyn FnMut(&str) -> Result<(), String>,
) -> Result<Names, String> {
    let mut names = Names::new();
    let mut missing = Vec::new();
    for dependency in declared {
        let address = dependency.repository.clone();
        if address.is_empty() {
            continue;
        }
        if address.starts_with("file://") {
            local(&address)?;
            names.insert(dependency.name.clone(), address);
            continue;
        }
        if is_registry(&address) {
            names.insert(dependency.name.clone(), address);
            continue;
        }
        let alias = ["@", "alias:"]
            .iter()
            .find_map(|mark| address.strip_prefix(mark));
        let found = configured.iter().find(|known| {
            alias == Some(known.name.as_str()) || address::equal(&known.url, &address)
        });
        match found {
            Some(known) => {
                if alias == Some(known.name.as_str()) {
                    dependency.repository.clone_from(&known.url);
                }
                names.insert(dependency.name.clone(), known.name.clone());
            }
            None if address::is_request_uri(&address) => {
                names.insert(address.clone(), address);
            }
            None => missing.push(address),
        }
    }
    match missing.is_empty() {
        true => Ok(names),
        false => Err(undefined(&missing)),
    }
}

fn undefined(missing: &[String]) -> String {
    let mut message = format!(
        "no repository definition for {}. Please add them via 'helm repo add'",
        missing.join(", ")
    );
    let is_plain = |text: &String| {
        !text.contains("//") && !text.starts_with('@') && !text.starts_with("alias:")
    };
    if missing.iter().any(is_plain) {
        message.push_str(
            "\nNote that repositories must be URLs or aliases. For example, to refer to the \"example\"\n\
             repository, use \"https://charts.example.com/\" or \"@example\" instead of\n\
             \"example\". Don't forget to add the repo, too ('helm repo add').",
        );
    }
    message
}

/// Names the others after their addresses, and tells which those are.
pub(super) fn unmanaged(names: &mut Names, declared: &[Dependency]) -> Vec<Repository> {
    let mut found = Vec::new();
    for dependency in declared {
        let address = &dependency.repository;
        if address.is_empty() || names.contains_key(&dependency.name) {
            continue;
        }
        let hash = golib::hex::encode(&Sha256::digest(address.as_bytes()));
        let name = format!("{UNMANAGED}{hash}");
        names.insert(dependency.name.clone(), name.clone());
        found.push(Repository {
            name,
            url: address.clone(),
            ..Repository::default()
        });
    }
    found
}

/// Whether helm made the name up.
pub(super) fn is_unmanaged(repository: &Repository) -> bool {
    repository.name.starts_with(UNMANAGED)
}

/// Of several with one address the last.
pub(super) fn distinct(repositories: &[Repository]) -> Vec<&Repository> {
    let key = |repository: &Repository| {
        let url = repository.url.as_str();
        url.strip_suffix('/').unwrap_or(url).to_owned()
    };
    let mut distinct: Vec<&Repository> = Vec::new();
    for repository in repositories {
        match distinct
            .iter_mut()
            .find(|known| key(known) == key(repository))
        {
            Some(known) => *known = repository,
            None => distinct.push(repository),
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dependency(name: &str, repository: &str) -> Dependency {
        Dependency {
            name: name.into(),
            repository: repository.into(),
            ..Dependency::default()
        }
    }

    fn repository(name: &str, url: &str) -> Repository {
        Repository {
            name: name.into(),
            url: url.into(),
            ..Repository::default()
        }
    }

    #[test]
    fn aliases_and_addresses_find_what_is_configured() {
        let known = [
            repository("one", "http://h/c"),
            repository("two", "http://h/d/"),
        ];
        let mut declared = [
            dependency("a", "@one"),
            dependency("b", "alias:two"),
            dependency("c", "http://h/d"),
            dependency("d", "http://other"),
            dependency("e", ""),
            dependency("f", "oci://r/charts"),
        ];
        let mut names = configured(&mut declared, &known, &mut |_| Ok(())).expect("all are known");
        let urls: Vec<&str> = declared.iter().map(|d| d.repository.as_str()).collect();
        let want = [
            "http://h/c",
            "http://h/d/",
            "http://h/d",
            "http://other",
            "",
            "oci://r/charts",
        ];
        assert_eq!(urls, want);
        let others = unmanaged(&mut names, &declared);
        assert_eq!(names["a"], "one");
        assert_eq!(names["b"], "two");
        assert_eq!(names["c"], "two");
        assert_eq!(names["f"], "oci://r/charts");
        let [other] = others.as_slice() else {
            panic!("{others:?}")
        };
        assert!(is_unmanaged(other));
        assert_eq!(names["d"], other.name);
    }

    #[test]
    fn the_last_of_several_repositories_with_one_address_is_used() {
        let known = [
            repository("one", "http://h/c"),
            repository("two", "http://h/d"),
            repository("three", "http://h/c/"),
        ];
        let names: Vec<&str> = distinct(&known).iter().map(|r| r.name.as_str()).collect();
        assert_eq!(names, ["three", "two"]);
    }
}
