//! `--dependency-update`: resolves what `Chart.yaml` lists, downloads it into `charts/` and writes the lock.
//!
//! Mirrors `Update` of helm's `Manager` (`pkg/downloader/manager.go`), with its words on standard output. Which repository, which
//! version and which names files get is decided by pure functions beside this.

mod download;
mod folder;
mod network;
mod pack;
mod repository_names;

use std::path::Path;

use chart::{API_VERSION_V1, Lock, Time, lock};

use crate::chart_flags::ChartFlags;
use crate::console::print;
use crate::helm_home::HelmFlags;
use crate::{pflag, repositories};
use download::Download;
use folder::Folder;
pub(crate) use folder::NOT_UNPACKED;
use network::Network;

/// The time that `SOURCE_DATE_EPOCH` wants archives to have.
///
/// # Errors
/// It is no number of seconds.
pub(crate) fn source_date_epoch() -> Result<Option<Time>, String> {
    let text = std::env::var("SOURCE_DATE_EPOCH").unwrap_or_default();
    if text.is_empty() {
        return Ok(None);
    }
    let invalid = |cause: &str| format!("invalid SOURCE_DATE_EPOCH: {cause}");
    let seconds = pflag::integer(&text).map_err(|error| invalid(&error.to_string()))?;
    match seconds {
        ..0 => Err(invalid("must not be negative")),
        seconds => Ok(Some(Time::from_unix_seconds(seconds))),
    }
}

/// Downloads the dependencies of the chart in a directory.
///
/// # Errors
/// One cannot be had; `charts/` and the lock are as they were then.
pub(crate) fn update(
    path: &Path,
    flags: &ChartFlags,
    helm: &HelmFlags,
    epoch: Option<Time>,
) -> Result<(), String> {
    let folder = Folder::new(path);
    let chart = folder.chart()?;
    let mut declared = chart.metadata.dependencies.to_vec();
    let configured = || repositories::configured(&helm.repositories());
    let mut local = |address: &str| {
        folder.find(address.trim_start_matches("file://"))?;
        if helm.is_debug() {
            print(&format!("Repository from local path: {address}"));
        }
        Ok(())
    };
    let mut names = repository_names::configured(&mut declared, &configured()?, &mut local)?;
    let network = Network::new(flags, helm, &declared)?;
    let unmanaged = repository_names::unmanaged(&mut names, &declared);
    if !unmanaged.is_empty() {
        print("Getting updates for unmanaged Helm repositories...");
        network.refresh(&unmanaged)?;
    }
    let configured = configured()?;
    if !configured.is_empty() {
        print("Hang tight while we grab the latest from your chart repositories...");
        network.refresh(&configured)?;
        print("Update Complete. ⎈Happy Helming!⎈");
    }
    let available = Available {
        folder: &folder,
        helm,
        network: &network,
    };
    let mut locked =
        lock::resolve(&declared, &names, &available).map_err(|error| error.to_string())?;
    Download::new(&folder, helm, epoch, &network, &configured)?.run(&mut locked)?;
    let digest = lock::digest(&declared, &locked);
    if chart.lock.is_some_and(|old| old.digest == digest) {
        return Ok(());
    }
    let lock = Lock {
        generated: pack::now(),
        digest,
        dependencies: locked.into(),
    };
    let is_legacy = chart.metadata.api_version == API_VERSION_V1;
    folder.write_lock(&lock, is_legacy)
}

/// The versions there are: in folders, in the indexes kept of repositories, and in registries.
struct Available<'a> {
    folder: &'a Folder,
    helm: &'a HelmFlags,
    network: &'a Network<'a>,
}

impl lock::Versions for Available<'_> {
    fn exists(&self, path: &str) -> Result<(), String> {
        self.folder.find(path).map(|_| ())
    }

    fn local(&self, path: &str) -> Result<String, String> {
        let chart = folder::load_directory(&self.folder.find(path)?)?;
        Ok(chart.metadata.version)
    }

    fn listed(&self, repository: &str, chart: &str) -> Result<Option<Vec<String>>, String> {
        let index = repositories::cached_index(self.helm, repository)?;
        let entries = index.entries.get(chart);
        Ok(entries.map(|entries| {
            let usable = entries.iter().filter(|entry| entry.first_url().is_some());
            usable.map(|entry| entry.version.clone()).collect()
        }))
    }

    fn tags(&self, repository: &str, chart: &str) -> Result<Vec<String>, String> {
        self.network.tags(&format!("{repository}/{chart}"))
    }
}
