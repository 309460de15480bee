//! Repositories configured for helm, by name: `repositories.yaml` and the indexes `helm repo update` left.
//!
//! Mirrors `ResolveChartVersion` (`pkg/downloader/chart_downloader.go`).

use std::io::ErrorKind;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chart::source::{Credentials, Entry, Index, SafeUrl, Strictness};
use golib::yaml;
use serde_json::Value;

use super::console::say;
use super::helm_home::HelmFlags;
use super::value_flags::{go_cause, read_file};

/// A repository as `helm repo add` writes it down.
#[derive(Clone, Debug, Default)]
pub struct Repository {
    pub name: String,
    pub url: String,
    pub credentials: Option<Credentials>,
    pub ca_file: String,
    pub cert_file: String,
    pub key_file: String,
    pub insecure: bool,
    pub passes_credentials: bool,
}

/// A chart in such a repository.
#[derive(Debug)]
pub struct Listed {
    pub repository: Repository,
    pub url: SafeUrl,
    pub chart: String,
    pub entry: Entry,
}

/// Finds `NAME/CHART`.
///
/// # Errors
/// In Helm's words: no such repository, no cached index, no such chart or version in it.
pub fn find(helm: &HelmFlags, reference: &str, version: &str) -> Result<Listed, String> {
    let Some((name, chart)) = reference.split_once('/') else {
        return Err(not_absolute(reference));
    };
    let repository = repository(&helm.repositories(), name)?;
    let uncached =
        |cause: String| format!("no cached repo found. (try 'helm repo update'): {cause}");
    let index = cached_index(helm, name).map_err(uncached)?;
    let entry = index.get(chart, version).map_err(|error| {
        format!(
            "chart {} matching {version} not found in {name} index. (try 'helm repo update'): {}",
            golib::strconv::quote(chart),
            error.in_helms_words()
        )
    })?;
    if entry.urls.as_ref().is_none_or(Vec::is_empty) {
        let shown = golib::strconv::quote(reference);
        return Err(format!("chart {shown} has no downloadable URLs"));
    }
    let url = SafeUrl::parse(&repository.url)
        .map_err(|_| format!("invalid chart URL format: {reference}"))?;
    Ok(Listed {
        repository,
        url,
        chart: chart.to_owned(),
        entry: entry.clone(),
    })
}

/// What helm says of an address without a path.
pub fn not_absolute(reference: &str) -> String {
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
pub fn configured(file: &Path) -> Result<Vec<Repository>, String> {
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
/// In Helm's words: it is not there, or is none.
pub fn cached_index(helm: &HelmFlags, name: &str) -> Result<Index, String> {
    let shown = helm.cached_index(name).display().to_string();
    let bytes = read_file(&shown)?;
    let index = Index::load(&bytes, Strictness::Helm, &shown)
        .map_err(|error| format!("error loading {shown}: {error}"))?;
    for skipped in &index.warnings {
        say(&skipped.log_line());
    }
    Ok(index)
}

/// The login `helm registry login` stored for a registry. Credential helpers are not asked.
pub fn registry_login(helm: &HelmFlags, registry: &str) -> Option<Credentials> {
    let text = std::fs::read(helm.registry_logins()).ok()?;
    let config: Value = serde_json::from_slice(&text).ok()?;
    let login = config["auths"].get(registry)?;
    let pair = STANDARD.decode(login["auth"].as_str()?).ok()?;
    let pair = String::from_utf8(pair).ok()?;
    let (user, password) = pair.split_once(':')?;
    Credentials::new(user, password)
}
