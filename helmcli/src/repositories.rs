//! Repositories configured for helm, by name: `repositories.yaml` and the indexes `helm repo update` left.
//!
//! Mirrors `ResolveChartVersion` (`pkg/downloader/chart_downloader.go`).

use std::io::ErrorKind;
use std::path::Path;

use chart::log_text;
use chart::source::{Access, Credentials, Entry, Index, LookupError, SafeUrl, Strictness};
use golib::strconv::quote;
use golib::yaml;
use serde_json::Value;

use crate::address;
use crate::client::Client;
use crate::console::say;
use crate::fetch_errors::message;
use crate::files::{go_cause, read_file};
use crate::helm_home::HelmFlags;

/// A repository as `helm repo add` writes it down.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repository {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) ca_file: String,
    pub(crate) cert_file: String,
    pub(crate) key_file: String,
    pub(crate) insecure: bool,
    pub(crate) passes_credentials: bool,
}

/// A chart in such a repository.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) repository: Repository,
    pub(crate) url: String,
    pub(crate) digest: String,
}

/// Finds `NAME/CHART`.
///
/// # Errors
/// In Helm's words: no such repository, no cached index, no such chart or version in it.
pub(crate) fn find(helm: &HelmFlags, reference: &str, version: &str) -> Result<Listed, String> {
    let Some((name, chart)) = reference.split_once('/') else {
        return Err(not_absolute(reference));
    };
    let repository = repository(&helm.repositories(), name)?;
    let uncached =
        |cause: String| format!("no cached repo found. (try 'helm repo update'): {cause}");
    let index = cached_index(helm, name).map_err(uncached)?;
    let entry = pick(&index, chart, version).map_err(|error| {
        format!(
            "chart {} matching {version} not found in {name} index. (try 'helm repo update'): {}",
            quote(chart),
            error.in_helms_words()
        )
    })?;
    let Some(first) = entry.first_url() else {
        let shown = quote(reference);
        return Err(format!("chart {shown} has no downloadable URLs"));
    };
    let url = address::resolve(&repository.url, first)
        .map_err(|_| format!("invalid chart URL format: {reference}"))?;
    Ok(Listed {
        repository,
        url,
        digest: entry.digest.clone(),
    })
}

/// The configured repository that lists an archive by its full address.
///
/// # Errors
/// In Helm's words: a repository was never updated.
pub(crate) fn owner(helm: &HelmFlags, url: &str) -> Result<Option<Repository>, String> {
    for repository in configured(&helm.repositories())? {
        check_scheme(&repository.url)?;
        let index = cached_index(helm, &repository.name)
            .map_err(|cause| format!("no cached repo found. (try 'helm repo update'): {cause}"))?;
        if lists(&index, url) {
            return Ok(Some(repository));
        }
    }
    Ok(None)
}

/// Whether an index has an archive by its full address.
pub(crate) fn lists(index: &Index, url: &str) -> bool {
    let mut urls = index
        .entries
        .values()
        .flatten()
        .flat_map(|entry| entry.urls.iter().flatten());
    urls.any(|listed| address::equal(url, listed))
}

/// Where the repository at an address has a chart, and the archive's digest.
///
/// # Errors
/// In Helm's words: it cannot be reached, or has no such chart.
pub(crate) fn find_at(
    client: &Client,
    repository: &str,
    chart: &str,
    version: &str,
    access: &Access,
) -> Result<(String, String), String> {
    check_scheme(repository)?;
    let (_, index) = download_index(client, repository, access).map_err(|cause| {
        let shown = quote(repository);
        format!("looks like {shown} is not a valid chart repository or cannot be reached: {cause}")
    })?;
    let mut shown = format!("chart {}", quote(chart));
    if !version.is_empty() {
        shown = format!("{shown} version {}", quote(version));
    }
    let entry = pick(&index, chart, version)
        .map_err(|_| format!("{shown} not found in {repository} repository"))?;
    let first = entry.first_url();
    let first = first.ok_or_else(|| format!("{shown} has no downloadable URLs"))?;
    let url = address::resolve(repository, first)
        .map_err(|cause| format!("failed to make chart URL absolute: {cause}"))?;
    Ok((url, entry.digest.clone()))
}

/// The entry of a version; Helm warns where one was asked for that is not there exactly.
fn pick<'i>(index: &'i Index, chart: &str, version: &str) -> Result<&'i Entry, LookupError> {
    let entry = index.get(chart, version)?;
    if !version.is_empty() && entry.version != version && !is_range(version) {
        let fields = [
            ("chart", chart),
            ("requested", version),
            ("selected", &entry.version),
        ];
        let fields = fields.map(|(key, value)| format!(" {key}={}", log_text(value)));
        say(&format!(
            "level=WARN msg=\"unable to find exact version requested; falling back to closest available version\"{}",
            fields.concat()
        ));
    }
    Ok(entry)
}

/// Whether Helm takes a version for a range (`isVersionRange`).
fn is_range(version: &str) -> bool {
    let core = version.split(['-', '+']).next().unwrap_or_default();
    version.contains(['^', '~', '<', '>', '=', '!', '*'])
        || version.contains("||")
        || version.contains(" - ")
        || core.contains(['x', 'X'])
}

/// Refuses addresses of a kind that nobody can fetch from.
///
/// # Errors
/// In Helm's words.
pub(crate) fn check_scheme(url: &str) -> Result<(), String> {
    let scheme = address::scheme(url).unwrap_or_default();
    match scheme.as_str() {
        "http" | "https" | "oci" => Ok(()),
        other => Err(format!("could not find protocol handler for: {other}")),
    }
}

/// The index of the repository at an address, as it is and read.
///
/// # Errors
/// In Helm's words: it cannot be fetched, or is not an index.
pub(crate) fn download_index(
    client: &Client,
    repository: &str,
    access: &Access,
) -> Result<(bytes::Bytes, Index), String> {
    if repository.starts_with("oci://") {
        return Err("failed to perform \"FetchReference\" on source: invalid reference".to_owned());
    }
    let url = address::resolve(repository, "index.yaml")?;
    let invalid = |_| format!("invalid chart URL format: {repository}");
    let url = SafeUrl::parse(&url).map_err(invalid)?;
    let bytes = client.run(async |fetcher| fetcher.get(&url, access).await);
    let bytes = bytes.map_err(|error| message(&error))?;
    let index = Index::load(&bytes, Strictness::Helm, repository);
    let index = index.map_err(|error| error.to_string())?;
    for skipped in &index.warnings {
        say(&skipped.log_line());
    }
    Ok((bytes, index))
}

/// What helm says of an address without a path.
pub(crate) fn not_absolute(reference: &str) -> String {
    format!("non-absolute URLs should be in form of repo_name/path_to_chart, got: {reference}")
}

fn repository(file: &Path, name: &str) -> Result<Repository, String> {
    let mut known = configured(file)?.into_iter();
    let found = known.find(|repository| repository.name == name);
    let found = found.ok_or_else(|| format!("repo {name} not found"))?;
    match found.url.as_str() {
        "" => Err(format!("no URL found for repository {name}")),
        _ => Ok(found),
    }
}

/// All repositories in `repositories.yaml`; none where there is no such file.
///
/// # Errors
/// It cannot be read.
pub(crate) fn configured(file: &Path) -> Result<Vec<Repository>, String> {
    let shown = file.display().to_string();
    let text = match std::fs::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            let cause = go_cause(&shown, &error);
            return Err(format!(
                "couldn't load repositories file ({shown}): {cause}"
            ));
        }
    };
    let config = yaml::decode(&text).map_err(|error| error.to_string())?;
    let entries = config["repositories"].as_array();
    Ok(entries.into_iter().flatten().map(entry).collect())
}

fn entry(entry: &Value) -> Repository {
    let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    let flag = |field: &str| entry[field].as_bool().unwrap_or_default();
    Repository {
        name: text("name"),
        url: text("url"),
        credentials: Credentials::new(text("username"), text("password")),
        ca_file: text("caFile"),
        cert_file: text("certFile"),
        key_file: text("keyFile"),
        insecure: flag("insecure_skip_tls_verify"),
        passes_credentials: flag("pass_credentials_all"),
    }
}

/// An index that helm keeps below its cache.
///
/// # Errors
/// In Helm's words: it is not there, or cannot be read.
pub(crate) fn cached_index(helm: &HelmFlags, name: &str) -> Result<Index, String> {
    let shown = helm.cached_index(name).display().to_string();
    let bytes = read_file(&shown)?;
    let index = Index::load(&bytes, Strictness::Helm, &shown)
        .map_err(|error| format!("error loading {shown}: {error}"))?;
    for skipped in &index.warnings {
        say(&skipped.log_line());
    }
    Ok(index)
}
