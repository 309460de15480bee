//! `--dependency-update`: resolves what `Chart.yaml` lists, downloads it into `charts/` and writes the lock.
//!
//! Mirrors `Update` of helm's `Manager` (`pkg/downloader/manager.go`), with its words on standard output. Which repository, which
//! version and which names files get is decided by pure functions beside this.

mod download;
mod folder;
mod names;
mod network;
mod pack;
mod resolve;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use chart::loader::{self, LoadError, io_cause};
use chart::source::Index;
use chart::{API_VERSION_V1, Chart, Lock, Time, lock};
use golib::path;
use jiff::Zoned;

use super::chart_flags::ChartFlags;
use super::console::log_warnings;
use super::helm_home::HelmFlags;
use super::repositories;
use network::Network;
use resolve::Shelf;

/// What helm says of an archive whose dependencies are missing.
pub const NOT_UNPACKED: &str = "only unpacked charts can be updated";

/// The time that `SOURCE_DATE_EPOCH` wants archives to have.
///
/// # Errors
/// It is no number of seconds.
pub fn source_date_epoch() -> Result<Option<Time>, String> {
    let text = std::env::var("SOURCE_DATE_EPOCH").unwrap_or_default();
    if text.is_empty() {
        return Ok(None);
    }
    let invalid = |cause: &str| format!("invalid SOURCE_DATE_EPOCH: {cause}");
    let seconds = super::pflag::integer(&text).map_err(|error| invalid(&error.to_string()))?;
    match seconds {
        ..0 => Err(invalid("must not be negative")),
        seconds => Ok(Some(Time::from_unix_seconds(seconds))),
    }
}

/// Downloads the dependencies of the chart in a directory.
///
/// # Errors
/// One cannot be had; `charts/` and the lock are as they were then.
pub fn update(
    chart: &Path,
    flags: &ChartFlags,
    helm: &HelmFlags,
    epoch: Option<Time>,
) -> Result<(), String> {
    let update = Update {
        folder: chart.to_owned(),
        helm,
        epoch,
    };
    update.run(flags)
}

/// A line on standard output, where helm tells of its progress.
fn say(line: &str) {
    writeln!(std::io::stdout(), "{line}").ok();
}

struct Update<'a> {
    folder: PathBuf,
    helm: &'a HelmFlags,
    epoch: Option<Time>,
}

impl Update<'_> {
    fn run(&self, flags: &ChartFlags) -> Result<(), String> {
        let chart = self.chart()?;
        let mut declared = chart.metadata.dependencies.to_vec();
        let configured = || repositories::configured(&self.helm.repositories());
        let mut local = |address: &str| {
            self.local(address.trim_start_matches("file://"))?;
            if self.helm.is_debug() {
                say(&format!("Repository from local path: {address}"));
            }
            Ok(())
        };
        let mut names = names::configured(&mut declared, &configured()?, &mut local)?;
        let network = Network::new(flags, self.helm, &declared)?;
        let unmanaged = names::unmanaged(&mut names, &declared);
        if !unmanaged.is_empty() {
            say("Getting updates for unmanaged Helm repositories...");
            network.refresh(&unmanaged)?;
        }
        let configured = configured()?;
        if !configured.is_empty() {
            say("Hang tight while we grab the latest from your chart repositories...");
            network.refresh(&configured)?;
            say("Update Complete. ⎈Happy Helming!⎈");
        }
        let shelf = Shelves {
            update: self,
            network: &network,
        };
        let mut locked = resolve::resolve(&declared, &names, &shelf)?;
        self.download(&network, &configured, &mut locked)?;
        let digest = lock::digest(&declared, &locked);
        if chart.lock.is_some_and(|old| old.digest == digest) {
            return Ok(());
        }
        let lock = Lock {
            generated: now(),
            digest,
            dependencies: locked.into(),
        };
        let is_legacy = chart.metadata.api_version == API_VERSION_V1;
        folder::write_lock(&self.folder, &lock, is_legacy)
    }

    fn chart(&self) -> Result<Chart, String> {
        let shown = self.folder.display();
        match std::fs::metadata(&self.folder) {
            Err(error) => Err(format!(
                "could not find {shown}: stat {shown}: {}",
                io_cause(&error)
            )),
            Ok(about) if !about.is_dir() => Err(NOT_UNPACKED.to_owned()),
            Ok(_) => load_directory(&self.folder),
        }
    }

    /// A path in `Chart.yaml`, seen from the chart.
    fn local(&self, place: &str) -> Result<PathBuf, String> {
        let joined = match place.starts_with('/') {
            true => place.to_owned(),
            false => format!("{}/{place}", self.folder.display()),
        };
        let cleaned = path::clean(joined.as_bytes());
        let shown = String::from_utf8_lossy(&cleaned).into_owned();
        match std::fs::metadata(&shown) {
            Ok(_) => Ok(shown.into()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(format!("directory {shown} not found"))
            }
            Err(error) => Err(format!("stat {shown}: {}", io_cause(&error))),
        }
    }
}

/// A chart in a directory, whatever generation it is of.
fn load_directory(folder: &Path) -> Result<Chart, String> {
    if !folder.is_dir() {
        return Err(LoadError::ChartYamlMissing.to_string());
    }
    let mut warnings = Vec::new();
    let loaded = loader::load(folder, &mut warnings);
    log_warnings(&mut warnings);
    loaded.map_err(|error| match error {
        LoadError::NoChart { .. } => LoadError::ChartYamlMissing.to_string(),
        error => error.to_string(),
    })
}

/// Now, in the zone of the machine, as Go writes it down.
fn now() -> Time {
    let text = Zoned::now().strftime("%Y-%m-%dT%H:%M:%S%.f%:z").to_string();
    let otherwise = || Time::utc(jiff::Timestamp::now());
    text.parse().unwrap_or_else(|_| otherwise())
}

struct Shelves<'a> {
    update: &'a Update<'a>,
    network: &'a Network<'a>,
}

impl Shelf for Shelves<'_> {
    fn exists(&self, place: &str) -> Result<(), String> {
        self.update.local(place).map(|_| ())
    }

    fn local_version(&self, place: &str) -> Result<String, String> {
        let chart = load_directory(&self.update.local(place)?)?;
        Ok(chart.metadata.version)
    }

    fn index(&self, name: &str) -> Result<Index, String> {
        repositories::cached_index(self.update.helm, name)
    }

    fn tags(&self, repository: &str, chart: &str) -> Result<Vec<String>, String> {
        self.network.tags(&format!("{repository}/{chart}"))
    }
}
