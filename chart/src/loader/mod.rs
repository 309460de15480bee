//! Reading a chart: from an archive, a directory, or files in memory.
//!
//! Mirrors `pkg/chart/loader` and `pkg/chart/v2/loader`. Subcharts below `charts/` load in the order
//! of their names; Helm's order is random there.

mod directory;
mod error;
mod files;
mod sniff;

use std::io::Read;
use std::path::Path;

pub use error::{FileError, LoadError, MAX_CHART_DEPTH};
pub use files::{load_files, load_files_within, read_chart_yaml};
pub use golib::path::io_cause;

use crate::archive::{self, ArchiveError, Budget};
use crate::chart::{Chart, File};
use crate::values::MAX_VALUES;
use crate::warning::Warnings;

/// Loads a chart from a directory or an archive file.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("web");
/// std::fs::create_dir(&path)?;
/// std::fs::write(path.join("Chart.yaml"), "apiVersion: v2\nname: web\nversion: 1.0.0\n")?;
/// let mut warnings = chart::Warnings::default();
/// let chart = chart::loader::load(&path, &mut warnings)?;
/// assert_eq!(chart.metadata.version, "1.0.0");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The path does not exist, or what is there is no chart.
pub fn load(path: &Path, warnings: &mut Warnings) -> Result<Chart, LoadError> {
    let name = path.display().to_string();
    let about = std::fs::metadata(path)
        .map_err(|error| LoadError::Io(format!("stat {name}: {}", io_cause(&error))))?;
    if about.is_dir() {
        return directory::load(path, warnings);
    }
    let data = std::fs::File::open(path)
        .map_err(|error| LoadError::Io(format!("open {name}: {}", io_cause(&error))))?;
    let data = sniff::ensure_archive(&name, data)?;
    let budget = Budget::default();
    let loaded = archive::load_archive_files(data, &budget).map_err(|error| match error {
        ArchiveError::GzipHeader => LoadError::NotChartFile(name),
        other => LoadError::ArchiveFile(other),
    })?;
    load_detected(loaded, &budget, warnings)
}

/// Loads a chart from an archive in memory or on its way.
///
/// ```
/// # use std::io::Write as _;
/// use chart::loader::{LoadError, load_archive};
///
/// # let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
/// # let text = b"apiVersion: v2\nname: web\nversion: 1.0.0\n";
/// # let mut tar = tar::Builder::new(&mut gzip);
/// # let mut header = tar::Header::new_gnu();
/// # header.set_size(text.len() as u64);
/// # header.set_mode(0o644);
/// # tar.append_data(&mut header, "web/Chart.yaml", &text[..])?;
/// # tar.finish()?;
/// # drop(tar);
/// # let bytes = gzip.finish()?;
/// let chart = load_archive(&bytes[..], &mut chart::Warnings::default())?;
/// assert_eq!(chart.name(), "web");
/// assert!(matches!(load_archive(&b"no gzip"[..], &mut chart::Warnings::default()), Err(LoadError::Archive(_))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The archive is corrupt or hostile, or holds no chart.
pub fn load_archive(data: impl Read, warnings: &mut Warnings) -> Result<Chart, LoadError> {
    let budget = Budget::default();
    let loaded = archive::load_archive_files(data, &budget)?;
    load_detected(loaded, &budget, warnings)
}

fn load_detected(
    loaded: Vec<File>,
    budget: &Budget,
    warnings: &mut Warnings,
) -> Result<Chart, LoadError> {
    let chart_yaml = loaded.iter().find(|file| file.name == "Chart.yaml");
    let model = files::Model::detect(&chart_yaml.ok_or(LoadError::NoChartYaml)?.data)?;
    let decoded = &mut golib::budget::Budget::new(MAX_VALUES);
    files::load_model(model, loaded, (budget, decoded), warnings)
}
