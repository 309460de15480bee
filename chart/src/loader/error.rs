//! Charts that cannot be loaded, in Helm's words.

use crate::DecodeError;
use crate::archive::{self, ArchiveError, MAX_CHART_DEPTH};
use crate::depth::TooDeep;
use crate::ignore::IgnoreError;
use crate::metadata::ValidationError;
use crate::values::LoadValuesError;

/// A chart that cannot be loaded. The text is Helm's.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "messages name the fields")]
pub enum LoadError {
    /// A file or directory cannot be read; the text names it.
    #[error("{0}")]
    Io(String),
    /// A file of a chart directory cannot be read.
    #[error("error reading {file}: {cause}")]
    ReadFile {
        /// Path below the chart.
        file: String,
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
        file: String,
        /// The content type that was detected.
        content_type: &'static str,
    },
    /// The gzip header of a file is wrong.
    #[error("file '{0}' does not appear to be a valid chart file (details: gzip: invalid header)")]
    NotChartFile(String),
    /// An archive file is corrupt or hostile; the source says how.
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
        file: &'static str,
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
        /// The chart in the archive.
        found: String,
    },
    /// A subchart cannot be loaded.
    #[error("error unpacking subchart {name} in {chart}: {source}")]
    Subchart {
        /// Name of the directory or archive below `charts/`.
        name: String,
        /// The parent chart.
        chart: String,
        source: Box<LoadError>,
    },
    /// Charts lie in charts too deep.
    #[error("charts are nested deeper than {MAX_CHART_DEPTH} levels")]
    TooDeep,
}

/// An error in one of the chart's own files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file is no YAML.
    #[error(transparent)]
    Yaml(golib::yaml::Error),
    /// A field has the wrong type.
    #[error("error unmarshaling JSON: while decoding JSON: {0}")]
    Type(#[source] DecodeError),
    /// The file nests too deep.
    #[error(transparent)]
    TooDeep(TooDeep),
    /// A values document is malformed.
    #[error(transparent)]
    Values(LoadValuesError),
}
