//! What is asked of repositories and registries, and with whose credentials.
//!
//! A repository's own go to its origin only. Those of the flags are for the one registry that all dependencies in registries come
//! from; where there are several, each gets what `helm registry login` stored for it.

use std::collections::BTreeSet;
use std::path::Path;

use chart::Dependency;
use chart::source::{Access, FetchedChart, Index, Reference};
use golib::strconv::quote;

use super::repository_names::{distinct, is_registry, is_unmanaged};
use crate::access::overridden;
use crate::chart_flags::ChartFlags;
use crate::client::Client;
use crate::console::print;
use crate::fetch_errors::message;
use crate::helm_home::HelmFlags;
use crate::logins;
use crate::repositories::{self, Repository};

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
            credentials: given.or_else(|| logins::for_registry(self.helm, &host)),
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
            repositories::check_scheme(&repository.url)?;
        }
        for repository in known {
            let Repository { name, url, .. } = repository;
            let (shown, place) = match is_unmanaged(repository) {
                true => (url, String::new()),
                false => (name, format!(" ({url})")),
            };
            let shown = quote(shown);
            match self.keep_index(repository) {
                Ok(()) => print(&format!(
                    "...Successfully got an update from the {shown} chart repository"
                )),
                Err(cause) => print(&format!(
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
        let access = overridden(Access::default(), repository)?;
        repositories::download_index(&self.client, &repository.url, &access)
    }

    /// Where a repository that only `Chart.yaml` names has a chart now, and its digest.
    ///
    /// # Errors
    /// It cannot be had.
    pub(super) fn find(
        &self,
        url: &str,
        chart: &str,
        version: &str,
    ) -> Result<(String, String), String> {
        repositories::find_at(&self.client, url, chart, version, &Access::default())
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
            .map_err(|error| message(&error))
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
        self.client.archive(&repository.url, url, digest, &access)
    }
}

fn host(reference: &str) -> String {
    let rest = reference.trim_start_matches("oci://");
    rest.split('/').next().unwrap_or_default().to_owned()
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
