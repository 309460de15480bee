//! `charts/`: where downloads are collected, and how they take the place of what was there.
//!
//! Mirrors `safeMoveDeps` and `writeLock` (`pkg/downloader/manager.go`). Every archive is known to be a chart before
//! anything is moved or deleted; helm skips one that is not a chart and goes on.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use chart::loader::{self, LoadError, io_cause};
use chart::{Chart, Dependency, Lock};
use golib::path::clean_text;
use golib::strconv::quote;
use golib::yaml;
use release::error_chain;

use crate::console::{log_warnings, print};

/// What helm says of an archive whose dependencies are missing.
pub(crate) const NOT_UNPACKED: &str = "only unpacked charts can be updated";

/// The directory of a chart.
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    pub(super) fn new(path: &Path) -> Self {
        let path = path.to_owned();
        Self { path }
    }

    /// The chart in it.
    ///
    /// # Errors
    /// There is none; the text is helm's.
    pub(super) fn chart(&self) -> Result<Chart, String> {
        let shown = self.path.display();
        match fs::metadata(&self.path) {
            Err(error) => Err(format!(
                "could not find {shown}: stat {shown}: {}",
                io_cause(&error)
            )),
            Ok(about) if !about.is_dir() => Err(NOT_UNPACKED.to_owned()),
            Ok(_) => load_directory(&self.path),
        }
    }

    /// A path in `Chart.yaml`, seen from the chart.
    ///
    /// # Errors
    /// There is nothing.
    pub(super) fn find(&self, place: &str) -> Result<PathBuf, String> {
        let joined = match place.starts_with('/') {
            true => place.to_owned(),
            false => format!("{}/{place}", self.path.display()),
        };
        let shown = clean_text(&joined);
        match fs::metadata(&shown) {
            Ok(_) => Ok(shown.into()),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(format!("directory {shown} not found"))
            }
            Err(error) => Err(format!("stat {shown}: {}", io_cause(&error))),
        }
    }

    /// `charts/`, which is made if it is not there.
    ///
    /// # Errors
    /// Something else is in its place.
    pub(super) fn charts(&self) -> Result<PathBuf, String> {
        let charts = self.path.join("charts");
        let shown = charts.display().to_string();
        match fs::metadata(&charts) {
            Ok(about) if about.is_dir() => Ok(charts),
            Ok(_) => Err(format!("{} is not a directory", quote(&shown))),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                match fs::create_dir_all(&charts) {
                    Ok(()) => Ok(charts),
                    Err(error) => Err(format!("mkdir {shown}: {}", io_cause(&error))),
                }
            }
            Err(error) => Err(format!(
                "unable to retrieve file info for '{shown}': stat {shown}: {}",
                io_cause(&error)
            )),
        }
    }

    /// Writes the lock beside `Chart.yaml`, or beside the `requirements.yaml` of an older chart.
    ///
    /// # Errors
    /// It cannot be written, or a link is in its place.
    pub(super) fn write_lock(&self, lock: &Lock, is_legacy: bool) -> Result<(), String> {
        let name = match is_legacy {
            true => "requirements.lock",
            false => "Chart.lock",
        };
        let path = self.path.join(name);
        let shown = path.display().to_string();
        let about = format!("error getting info for {}", quote(&shown));
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => {
                let target = fs::read_link(&path).unwrap_or_default();
                let target = quote(target.display().to_string());
                return Err(format!("the {name} file is a symlink to {target}"));
            }
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(format!("{about}: lstat {shown}: {}", io_cause(&error)));
            }
            _ => {}
        }
        let value = serde_json::to_value(lock).map_err(|error| error.to_string())?;
        let text = yaml::encode(&value).map_err(|error| error.to_string())?;
        fs::write(&path, text).map_err(|error| format!("open {shown}: {}", io_cause(&error)))
    }
}

/// A chart in a directory, whatever generation it is of.
///
/// # Errors
/// It is not a chart; the text is helm's.
pub(super) fn load_directory(folder: &Path) -> Result<Chart, String> {
    if !folder.is_dir() {
        return Err(LoadError::ChartYamlMissing.to_string());
    }
    let mut warnings = chart::Warnings::default();
    let loaded = loader::load(folder, &mut warnings);
    log_warnings(&mut warnings);
    loaded.map_err(|error| match error {
        LoadError::NoChart { .. } => LoadError::ChartYamlMissing.to_string(),
        error => error.to_string(),
    })
}

/// A folder in the chart for what is on its way; gone when this is dropped.
pub(super) struct Staging {
    path: PathBuf,
}

impl Staging {
    /// # Errors
    /// It cannot be made, or is there already.
    pub(super) fn new(folder: &Folder) -> Result<Self, String> {
        let path = folder
            .path
            .join(format!("tmpcharts-{}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => Ok(Self { path }),
            Err(error) => Err(format!("mkdir {}: {}", path.display(), io_cause(&error))),
        }
    }

    /// Keeps an archive under a name, which is a single path element.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn keep(&self, name: &str, data: &[u8]) -> Result<(), String> {
        let path = self.path.join(name);
        fs::write(&path, data)
            .map_err(|error| format!("open {}: {}", path.display(), io_cause(&error)))
    }

    fn names(&self) -> Result<Vec<String>, String> {
        files(&self.path)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.path).ok();
    }
}

/// The regular entries of a directory, in the order of their names.
fn files(folder: &Path) -> Result<Vec<String>, String> {
    let failed = |error: &std::io::Error| format!("open {}: {}", folder.display(), io_cause(error));
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| failed(&error))? {
        let entry = entry.map_err(|error| failed(&error))?;
        let kind = entry.file_type().map_err(|error| failed(&error))?;
        if !kind.is_dir()
            && let Ok(name) = entry.file_name().into_string()
        {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn load(path: &Path) -> Result<Chart, String> {
    let mut warnings = chart::Warnings::default();
    let loaded = loader::load(path, &mut warnings);
    log_warnings(&mut warnings);
    loaded.map_err(|error| match error {
        LoadError::NoChartYaml => LoadError::ChartYamlMissing.to_string(),
        error => error_chain(&error),
    })
}

/// Moves what was collected into `charts/` and deletes other archives of charts there.
///
/// # Errors
/// An archive is no chart (nothing has changed then), or cannot be moved.
pub(super) fn replace(
    staging: &Staging,
    charts: &Path,
    locked: &[Dependency],
) -> Result<(), String> {
    let new = staging.names()?;
    let old = files(charts)?;
    for name in &new {
        let path = staging.path.join(name);
        load(&path).map_err(|cause| format!("could not verify {name} for moving: {cause}"))?;
    }
    for name in &new {
        let (from, to) = (staging.path.join(name), charts.join(name));
        fs::rename(&from, &to)
            .or_else(|_| fs::copy(&from, &to).map(|_| ()))
            .map_err(|error| {
                let cause = io_cause(&error);
                format!("unable to move {} to charts dir: {cause}", from.display())
            })?;
    }
    print("Deleting outdated charts");
    let is_vendored = |name: &str| {
        locked
            .iter()
            .any(|dependency| dependency.repository.is_empty() && dependency.name == name)
    };
    for name in old.iter().filter(|name| !new.contains(name)) {
        let path = charts.join(name);
        let shown = path.display();
        match load(&path) {
            Err(cause) => print(&format!(
                "Could not verify {shown} for deletion: {cause} (Skipping)"
            )),
            Ok(chart) if is_vendored(chart.name()) => {}
            Ok(_) => {
                if let Err(error) = fs::remove_file(&path) {
                    let cause = io_cause(&error);
                    print(&format!("Could not delete {shown}: {cause} (Skipping)"));
                }
            }
        }
    }
    Ok(())
}
