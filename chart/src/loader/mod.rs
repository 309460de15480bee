//! Reading a chart: from an archive, a directory, or files in memory.
//!
//! Mirrors `pkg/chart/loader` and `pkg/chart/v2/loader`. Subcharts below `charts/` load in the order
//! of their names; Helm's order is random there.

mod directory;
mod files;
mod sniff;

use std::io::Read;
use std::path::Path;

pub use files::load_files;

use crate::DecodeError;
use crate::archive::{self, ArchiveError, Budget};
use crate::chart::{Chart, File};
use crate::depth::TooDeep;
use crate::ignore::IgnoreError;
use crate::metadata::ValidationError;
use crate::values::LoadValuesError;
use crate::warning::Warnings;

/// How deep charts may lie in charts.
pub const MAX_CHART_DEPTH: usize = 64;

/// A chart that cannot be loaded. The text is Helm's.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A file or directory cannot be read; the text names it.
    #[error("{0}")]
    Io(String),
    /// A file of a chart directory cannot be read.
    #[error("error reading {file}: {cause}")]
    ReadFile {
        /// Path below the chart.
        file: String,
        /// What went wrong.
        cause: String,
    },
    /// A directory's files are too large together.
    #[error(
        "error reading {file}: chart exceeds maximum decompressed size of {} bytes",
        archive::MAX_DECOMPRESSED_CHART_SIZE
    )]
    DirectoryTooLarge {
        /// The file that went over the limit.
        file: String,
    },
    /// A directory has too many files.
    #[error("chart directory has more than {} files", archive::MAX_FILES)]
    TooManyFiles,
    /// A socket, device or pipe lies in a chart directory.
    #[error("cannot load irregular file {0} as it has file mode type bits set")]
    Irregular(String),
    /// `.helmignore` is malformed.
    #[error(transparent)]
    Ignore(IgnoreError),
    /// A values file was given where an archive belongs.
    #[error("file '{0}' seems to be a YAML file, but expected a gzipped archive")]
    YamlFile(String),
    /// Something else was given where an archive belongs.
    #[error("file '{file}' does not appear to be a gzipped archive; got '{content_type}'")]
    NotGzip {
        /// The file as given.
        file: String,
        /// What it looks like.
        content_type: &'static str,
    },
    /// The gzip header of a file is wrong.
    #[error("file '{0}' does not appear to be a valid chart file (details: gzip: invalid header)")]
    NotChartFile(String),
    /// An archive file is corrupt or hostile; the source tells how.
    #[error("unable to load chart archive")]
    ArchiveFile(#[source] ArchiveError),
    /// An archive is corrupt or hostile.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// There is no `Chart.yaml` in an archive.
    #[error("unable to detect chart version, no Chart.yaml found")]
    NoChartYaml,
    /// There is no readable `Chart.yaml` in a directory.
    #[error("unable to detect chart at {file}: {cause}")]
    NoChart {
        /// Path of the missing file.
        file: String,
        /// What went wrong.
        cause: String,
    },
    /// `apiVersion` is not one that Helm knows.
    #[error("unsupported chart version")]
    UnsupportedVersion,
    /// `Chart.yaml` is missing.
    #[error("Chart.yaml file is missing")]
    ChartYamlMissing,
    /// One of the chart's own files is malformed.
    #[error("cannot load {file}: {source}")]
    File {
        /// Its name.
        file: &'static str,
        /// What is wrong with it.
        source: FileError,
    },
    /// The metadata is not acceptable.
    #[error(transparent)]
    Validation(#[from] ValidationError),
    /// A directory below `charts/` is named like an archive.
    #[error("error unpacking subchart tar in {chart}: expected {expected}, got {found}")]
    SubchartArchive {
        /// The parent chart.
        chart: String,
        /// The archive's name.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A subchart cannot be loaded.
    #[error("error unpacking subchart {name} in {chart}: {source}")]
    Subchart {
        /// Name of the directory or archive below `charts/`.
        name: String,
        /// The parent chart.
        chart: String,
        /// What is wrong with it.
        source: Box<LoadError>,
    },
    /// Charts lie in charts too deep.
    #[error("charts are nested deeper than {MAX_CHART_DEPTH} levels")]
    TooDeep,
}

/// What is wrong with one of the chart's own files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// It is no YAML.
    #[error(transparent)]
    Yaml(golib::yaml::Error),
    /// A field has the wrong type.
    #[error("error unmarshaling JSON: while decoding JSON: {0}")]
    Type(#[source] DecodeError),
    /// It nests too deep.
    #[error(transparent)]
    TooDeep(TooDeep),
    /// A values document is malformed.
    #[error(transparent)]
    Values(LoadValuesError),
}

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
    let mut budget = Budget::default();
    let loaded = archive::load_within(data, &mut budget).map_err(|error| match error {
        ArchiveError::GzipHeader => LoadError::NotChartFile(name),
        other => LoadError::ArchiveFile(other),
    })?;
    load_detected(loaded, &mut budget, warnings)
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
    let mut budget = Budget::default();
    let loaded = archive::load_within(data, &mut budget)?;
    load_detected(loaded, &mut budget, warnings)
}

fn load_detected(
    loaded: Vec<File>,
    budget: &mut Budget,
    warnings: &mut Warnings,
) -> Result<Chart, LoadError> {
    let chart_yaml = loaded.iter().find(|file| file.name == "Chart.yaml");
    let model = files::Model::detect(&chart_yaml.ok_or(LoadError::NoChartYaml)?.data)?;
    files::load_model(model, loaded, budget, warnings)
}

/// The cause of an I/O error as Go words it.
pub fn io_cause(error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::NotFound => "no such file or directory".to_owned(),
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        ErrorKind::IsADirectory => "is a directory".to_owned(),
        ErrorKind::NotADirectory => "not a directory".to_owned(),
        _ => error.to_string(),
    }
}
