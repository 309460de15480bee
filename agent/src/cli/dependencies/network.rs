//! What is asked of repositories and registries, and with whose credentials.
//!
//! A repository's own go to its origin only. Those of the flags are for the one registry that all dependencies in registries come
//! from; where there are several, each gets what `helm registry login` stored for it.

use std::collections::BTreeSet;
use std::path::Path;

use chart::Dependency;
use chart::source::{Access, Entry, FetchedChart, Index, Reference, SafeUrl, Strictness};
use golib::strconv::quote;

use super::names::{distinct, is_registry, is_unmanaged};
use super::{address, say};
use crate::cli::chart_flags::{ChartFlags, Client, overridden};
use crate::cli::console;
use crate::cli::fetch_errors::told;
use crate::cli::helm_home::HelmFlags;
use crate::cli::repositories::{self, Repository};

pub(super) struct Network<'a> {
    helm: &'a HelmFlags,
    client: Client,
    /// How the flags say to reach registries.
    access: Access,
    registries: BTreeSet<String>,
}

impl<'a> Network<'a> {
    pub(super) fn new(
        flags: &ChartFlags,
        helm: &'a HelmFlags,
        declared: &[Dependency],
    ) -> Result<Self, String> {
        let registries = declared
            .iter()
            .filter(|dependency| is_registry(&dependency.repository))
            .map(|dependency| host(&dependency.repository));
        Ok(Self {
            helm,
            client: Client::new()?,
            access: flags.access()?,
            registries: registries.collect(),
        })
    }

    fn registry_access(&self, reference: &str) -> Access {
        let host = host(reference);
        let is_only = self.registries.len() == 1 && self.registries.contains(&host);
        let given = self.access.credentials.clone().filter(|_| is_only);
        Access {
            credentials: given.or_else(|| repositories::registry_login(self.helm, &host)),
            ..self.access.clone()
        }
    }

    /// Renews the indexes kept of repositories; one that cannot be had stays as it is.
    ///
    /// # Errors
    /// An address is of a kind that nobody can fetch from.
    pub(super) fn refresh(&self, known: &[Repository]) -> Result<(), String> {
        let known = distinct(known);
        for repository in &known {
            check_scheme(&repository.url)?;
        }
        for repository in known {
            let Repository { name, url, .. } = repository;
            let (shown, place) = match is_unmanaged(repository) {
                true => (url, String::new()),
                false => (name, format!(" ({url})")),
            };
            let shown = quote(shown);
            match self.keep_index(repository) {
                Ok(()) => say(&format!(
                    "...Successfully got an update from the {shown} chart repository"
                )),
                Err(cause) => say(&format!(
                    "...Unable to get an update from the {shown} chart repository{place}:\n\t{cause}"
                )),
            }
        }
        Ok(())
    }

    fn keep_index(&self, repository: &Repository) -> Result<(), String> {
        let (bytes, index) = self.index_file(repository)?;
        let names = index.entries.keys().map(|name| format!("{name}\n"));
        let name = &repository.name;
        keep(
            &self.helm.cached_charts(name),
            names.collect::<String>().as_bytes(),
        )
        .ok();
        keep(&self.helm.cached_index(name), &bytes)
    }

    fn index_file(&self, repository: &Repository) -> Result<(bytes::Bytes, Index), String> {
        let url = address::resolve(&repository.url, "index.yaml")?;
        let url = SafeUrl::parse(&url)
            .map_err(|_| format!("invalid chart URL format: {}", repository.url))?;
        let access = overridden(Access::default(), repository)?;
        let bytes = self
            .client
            .run(async |fetcher| fetcher.get(&url, &access).await)
            .map_err(|error| told(&error))?;
        let index = Index::load(&bytes, Strictness::Helm, &repository.url)
            .map_err(|error| error.to_string())?;
        for skipped in &index.warnings {
            console::say(&skipped.log_line());
        }
        Ok((bytes, index))
    }

    /// The index of a repository that only `Chart.yaml` names, as it is now.
    ///
    /// # Errors
    /// It cannot be had.
    pub(super) fn index(&self, url: &str) -> Result<Index, String> {
        check_scheme(url)?;
        let repository = Repository {
            url: url.to_owned(),
            ..Repository::default()
        };
        let (_, index) = self.index_file(&repository).map_err(|cause| {
            let url = quote(url);
            format!(
                "looks like {url} is not a valid chart repository or cannot be reached: {cause}"
            )
        })?;
        Ok(index)
    }

    /// The versions in a registry, newest first.
    ///
    /// # Errors
    /// The registry does not tell.
    pub(super) fn tags(&self, reference: &str) -> Result<Vec<String>, String> {
        let access = self.registry_access(reference);
        self.client
            .run(async |fetcher| {
                let reference = Reference::parse(reference)?;
                fetcher.versions(&reference, &access).await
            })
            .map_err(|error| told(&error))
    }

    /// Pulls a chart from a registry, and tells so as helm does.
    ///
    /// # Errors
    /// It cannot be had.
    pub(super) fn pull(&self, reference: &str, version: &str) -> Result<FetchedChart, String> {
        self.client
            .pull(reference, version, &self.registry_access(reference))
    }

    /// Downloads an archive that a repository's index has.
    ///
    /// # Errors
    /// It cannot be had.
    pub(super) fn archive(
        &self,
        repository: &Repository,
        url: &str,
        digest: &str,
    ) -> Result<FetchedChart, String> {
        let access = overridden(Access::default(), repository)?;
        let invalid = |_| format!("invalid chart URL format: {url}");
        let origin = SafeUrl::parse(&repository.url).map_err(invalid)?;
        let entry = Entry {
            urls: Some(vec![url.to_owned()]),
            digest: digest.to_owned(),
            ..Entry::default()
        };
        self.client
            .run(async |fetcher| fetcher.fetch_entry(&origin, "", &entry, &access).await)
            .map_err(|error| told(&error))
    }
}

fn host(reference: &str) -> String {
    let rest = reference.trim_start_matches("oci://");
    rest.split('/').next().unwrap_or_default().to_owned()
}

fn check_scheme(url: &str) -> Result<(), String> {
    let scheme = address::scheme(url).unwrap_or_default();
    match scheme.as_str() {
        "http" | "https" | "oci" => Ok(()),
        other => Err(format!("could not find protocol handler for: {other}")),
    }
}

/// Puts a file in place of another, whole or not at all.
fn keep(path: &Path, content: &[u8]) -> Result<(), String> {
    let failed = |error: std::io::Error| {
        let cause = chart::loader::io_cause(&error);
        format!("open {}: {cause}", path.display())
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(failed)?;
    let draft = path.with_extension(format!("{}.part", std::process::id()));
    let kept = std::fs::write(&draft, content).and_then(|()| std::fs::rename(&draft, path));
    kept.map_err(|error| {
        std::fs::remove_file(&draft).ok();
        failed(error)
    })
}
