//! Repositories configured for helm, by name: `repositories.yaml` and the indexes `helm repo update` left.
//!
//! Mirrors `ResolveChartVersion` (`pkg/downloader/chart_downloader.go`).

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chart::source::{Credentials, Entry, Index, SafeUrl, Strictness};
use golib::yaml;
use serde_json::Value;

use super::helm_home::HelmFlags;
use super::value_flags::read_file;

/// A repository as `helm repo add` writes it down.
#[derive(Clone, Debug)]
pub struct Repository {
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
    let file = helm.cached_index(name);
    let shown = file.display().to_string();
    let uncached =
        |cause: String| format!("no cached repo found. (try 'helm repo update'): {cause}");
    let bytes = read_file(&shown).map_err(uncached)?;
    let index = Index::load(&bytes, Strictness::Helm, &shown)
        .map_err(|error| uncached(error.to_string()))?;
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
    let unknown = || format!("repo {name} not found");
    let shown = file.display().to_string();
    let text = match std::fs::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(unknown()),
        Err(error) => {
            let cause = chart::loader::io_cause(&error);
            return Err(format!(
                "couldn't load repositories file ({shown}): open {shown}: {cause}"
            ));
        }
    };
    let config = yaml::decode(&text).map_err(|error| error.to_string())?;
    let entries = config["repositories"].as_array();
    let entry = entries.into_iter().flatten().find(|e| e["name"] == name);
    let entry = entry.ok_or_else(unknown)?;
    let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    let flag = |field: &str| entry[field].as_bool().unwrap_or_default();
    if text("url").is_empty() {
        return Err(format!("no URL found for repository {name}"));
    }
    Ok(Repository {
        url: text("url"),
        credentials: Credentials::new(text("username"), text("password")),
        ca_file: text("caFile"),
        cert_file: text("certFile"),
        key_file: text("keyFile"),
        insecure: flag("insecure_skip_tls_verify"),
        passes_credentials: flag("pass_credentials_all"),
    })
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
