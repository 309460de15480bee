//! Reading a chart: from an archive, a directory, or files in memory. Each file goes where its name says; subcharts are chart lists of their own.
//!
//! Mirrors `pkg/chart/loader` and `pkg/chart/v2/loader`. Subcharts below `charts/` load in the order
//! of their names; Helm's order is random there. A file that is no archive is reported as by `EnsureArchive` of `archive/archive.go`, with the part
//! of Go's `http.DetectContentType` that people meet there.

mod directory;
mod error;

use std::collections::BTreeMap;
use std::io::{Chain, Cursor, Read};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use golib::budget::Budget as Weight;
use golib::json::At;
use golib::yaml;
use serde_json::Value;

use crate::DecodeError;
use crate::archive::{self, ArchiveError, Budget};
use crate::chart::{API_VERSION_V1, Chart, File};
use crate::depth::bounded;
use crate::metadata::{Draft, Lock};
use crate::values::{self, MAX_VALUES};
use crate::warning::{Warning, Warnings};

pub use crate::archive::MAX_CHART_DEPTH;
pub use error::{FileError, LoadError};
pub use golib::path::io_cause;

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
    let data = ensure_archive(&name, data)?;
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
    let model = Model::detect(&chart_yaml.ok_or(LoadError::NoChartYaml)?.data)?;
    let decoded = &mut Weight::new(MAX_VALUES);
    load_model(model, loaded, (budget, decoded), warnings)
}

/// The two chart models Helm knows. The third generation is experimental: it loads, but cannot be
/// installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Model {
    V2,
    V3,
}

impl Model {
    /// Determines the model from `Chart.yaml`.
    fn detect(chart_yaml: &[u8]) -> Result<Self, LoadError> {
        let failed = failed("Chart.yaml");
        let value = read_yaml(chart_yaml, &mut Weight::default()).map_err(&failed)?;
        let mut api_version = String::new();
        At::new("chartBase", "loader.chartBase", "")
            .coercing()
            .object(&value, &["apiVersion"], |_, at, value| {
                at.string(value, &mut api_version)
            })
            .map_err(|error| failed(FileError::Type(error)))?;
        match api_version.as_str() {
            "" | "v1" | "v2" => Ok(Self::V2),
            "v3" => Ok(Self::V3),
            _ => Err(LoadError::UnsupportedVersion),
        }
    }
}

/// Loads a chart from files in memory, named relative to the chart's root.
///
/// ```
/// use chart::{File, loader::load_files};
///
/// let files = vec![
///     File::new("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
///     File::new("charts/db/Chart.yaml", "apiVersion: v2\nname: db\nversion: 2.0.0\n"),
/// ];
/// let chart = load_files(files, &mut chart::Warnings::default())?;
/// assert_eq!(chart.dependencies[0].name(), "db");
/// # Ok::<(), chart::loader::LoadError>(())
/// ```
///
/// # Errors
/// `Chart.yaml` is missing or not acceptable, or another file Helm reads is malformed.
pub fn load_files(files: Vec<File>, warnings: &mut Warnings) -> Result<Chart, LoadError> {
    let decoded = &mut Weight::new(MAX_VALUES);
    load_files_within(files, &Budget::default(), decoded, warnings)
}

/// Like [`load_files`], with limits on archives among the files, and on values and metadata once they are read.
///
/// ```
/// use chart::archive::Budget;
/// use chart::{File, Warnings, loader::load_files_within};
///
/// let load = |decoded| {
///     let files = vec![
///         File::new("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
///         File::new("values.yaml", "replicas: 1\n"),
///     ];
///     let decoded = &mut golib::budget::Budget::new(decoded);
///     load_files_within(files, &Budget::new(1 << 20), decoded, &mut Warnings::default())
/// };
/// assert_eq!(load(1 << 20)?.values["replicas"], 1.0);
/// assert!(load(100).is_err());
/// # Ok::<(), chart::loader::LoadError>(())
/// ```
///
/// # Errors
/// As of [`load_files`].
pub fn load_files_within(
    files: Vec<File>,
    budget: &Budget,
    decoded: &mut Weight,
    warnings: &mut Warnings,
) -> Result<Chart, LoadError> {
    load_model(Model::V2, files, (budget, decoded), warnings)
}

fn load_model(
    model: Model,
    files: Vec<File>,
    (budget, decoded): (&Budget, &mut Weight),
    warnings: &mut Warnings,
) -> Result<Chart, LoadError> {
    Loading {
        model,
        budget,
        decoded,
        warnings,
    }
    .chart(files, 0)
}

struct Loading<'l> {
    model: Model,
    budget: &'l Budget,
    decoded: &'l mut Weight,
    warnings: &'l mut Warnings,
}

impl Loading<'_> {
    fn chart(&mut self, files: Vec<File>, depth: usize) -> Result<Chart, LoadError> {
        if depth > MAX_CHART_DEPTH {
            return Err(LoadError::TooDeep);
        }
        let mut chart = Chart {
            experimental: self.model == Model::V3,
            ..Chart::default()
        };
        let mut draft = None;
        for file in files.iter().filter(|file| file.name == "Chart.yaml") {
            let draft = draft.get_or_insert_with(Draft::default);
            self.read_metadata("Chart.yaml", &file.data, draft)?;
            if draft.metadata.api_version.is_empty() {
                // Charts older than Helm 3 had no apiVersion.
                draft.metadata.api_version = self.default_api_version().to_owned();
            }
            chart.modtime = file.modtime;
        }

        let mut subcharts: BTreeMap<String, Vec<File>> = BTreeMap::new();
        for file in files {
            self.route(file, &mut chart, &mut draft, &mut subcharts)?;
        }
        chart.metadata = draft.ok_or(LoadError::ChartYamlMissing)?.validate()?;

        for (name, files) in subcharts {
            if name.starts_with(['_', '.']) {
                continue;
            }
            let subchart = if name.ends_with(".tgz") {
                match files.first() {
                    Some(file) if file.name == name => self.nested_archive(&file.data, depth),
                    found => {
                        return Err(LoadError::SubchartArchive {
                            chart: chart.name().to_owned(),
                            found: found.map(|file| file.name.clone()).unwrap_or_default(),
                            expected: name,
                        });
                    }
                }
            } else {
                let inner = files.into_iter().filter_map(|mut file| {
                    file.name = file.name.split_once('/')?.1.to_owned();
                    Some(file)
                });
                self.chart(inner.collect(), depth + 1)
            };
            let subchart = subchart.map_err(|source| LoadError::Subchart {
                name,
                chart: chart.metadata.name.clone(),
                source: Box::new(source),
            })?;
            chart.dependencies.push(subchart);
        }
        Ok(chart)
    }

    fn default_api_version(&self) -> &'static str {
        match self.model {
            Model::V2 => API_VERSION_V1,
            Model::V3 => "v3",
        }
    }

    fn nested_archive(&mut self, data: &Bytes, depth: usize) -> Result<Chart, LoadError> {
        let files = archive::load_archive_files(&data[..], self.budget)?;
        self.chart(files, depth + 1)
    }

    fn route(
        &mut self,
        mut file: File,
        chart: &mut Chart,
        draft: &mut Option<Draft>,
        subcharts: &mut BTreeMap<String, Vec<File>>,
    ) -> Result<(), LoadError> {
        match file.name.as_str() {
            "Chart.yaml" => {}
            "Chart.lock" => chart.lock = self.read_lock("Chart.lock", &file.data)?,
            "values.yaml" => {
                let loaded = values::load_values_within(&file.data, self.decoded);
                let loaded = loaded.map_err(FileError::Values);
                chart.values = Arc::new(loaded.map_err(failed("values.yaml"))?);
                chart.values_file = Some(file);
            }
            "values.schema.json" => {
                chart.schema = Some(file.data);
                chart.schema_modtime = file.modtime;
            }
            "requirements.yaml" if self.model == Model::V2 => {
                let draft = draft.get_or_insert_with(Draft::default);
                self.discourage(draft, false);
                self.read_metadata("requirements.yaml", &file.data, draft)?;
                if is_legacy(draft) {
                    chart.files.push(file);
                }
            }
            "requirements.lock" if self.model == Model::V2 => {
                chart.lock = self.read_lock("requirements.lock", &file.data)?;
                let draft = draft.get_or_insert_with(Draft::default);
                self.discourage(draft, true);
                if is_legacy(draft) {
                    chart.files.push(file);
                }
            }
            name if name.starts_with("templates/") => chart.templates.push(file),
            name => match name.strip_prefix("charts/") {
                Some(inner) if !inner.ends_with(".prov") => {
                    let key = inner.split_once('/').map_or(inner, |(first, _)| first);
                    let key = key.to_owned();
                    file.name = inner.to_owned();
                    subcharts.entry(key).or_default().push(file);
                }
                _ => chart.files.push(file),
            },
        }
        Ok(())
    }

    fn read_metadata(
        &mut self,
        name: &'static str,
        data: &[u8],
        draft: &mut Draft,
    ) -> Result<(), LoadError> {
        read_over(data, draft, self.decoded).map_err(self.failed(name))
    }

    fn read_lock(&mut self, name: &'static str, data: &[u8]) -> Result<Option<Lock>, LoadError> {
        let value = read_yaml(data, self.decoded).map_err(self.failed(name))?;
        let at = At::new("Lock", "v2.Lock", "").coercing();
        let lock = Lock::from_json_at(&value, &at).map_err(FileError::Type);
        lock.map_err(self.failed(name))
    }

    fn failed(&self, file: &'static str) -> impl Fn(FileError) -> LoadError + use<> {
        let model = self.model;
        move |source| {
            failed(file)(match (model, source) {
                (Model::V3, FileError::Type(error)) => FileError::Type(in_generation_3(error)),
                (_, source) => source,
            })
        }
    }

    fn discourage(&mut self, draft: &Draft, lock: bool) {
        if !is_legacy(draft) {
            self.warnings.push(Warning::Requirements { lock });
        }
    }
}

/// Charts of the first generation, whose templates see the files of requirements.
fn is_legacy(draft: &Draft) -> bool {
    draft.metadata.api_version == API_VERSION_V1
}

/// Reads `Chart.yaml` without checking it.
///
/// ```
/// use chart::loader::{FileError, read_chart_yaml};
///
/// assert!(read_chart_yaml(b"name: no version, which a check would refuse").is_ok());
/// let error = read_chart_yaml(b"name: [web]").unwrap_err();
/// assert!(matches!(error, FileError::Type(_)));
/// ```
///
/// # Errors
/// It is no YAML, or a field has the wrong type.
pub fn read_chart_yaml(data: &[u8]) -> Result<Draft, FileError> {
    let mut draft = Draft::default();
    read_over(data, &mut draft, &mut Weight::default())?;
    Ok(draft)
}

fn read_over(data: &[u8], draft: &mut Draft, decoded: &mut Weight) -> Result<(), FileError> {
    let value = read_yaml(data, decoded)?;
    let at = At::new("Metadata", "v2.Metadata", "").coercing();
    draft.read(&value, &at).map_err(FileError::Type)
}

fn read_yaml(data: &[u8], decoded: &mut Weight) -> Result<Value, FileError> {
    let value = yaml::Decoder::new().decode(data, decoded);
    let value = value.map_err(FileError::Yaml)?;
    bounded(value).map_err(FileError::TooDeep)
}

/// This error in a chart of the third generation, whose types are named alike.
fn in_generation_3(error: DecodeError) -> DecodeError {
    let DecodeError::Type(mut mismatch) = error else {
        return error;
    };
    mismatch.expected = match &*mismatch.expected {
        "v2.Metadata" => "v3.Metadata".into(),
        "v2.Maintainer" => "v3.Maintainer".into(),
        "[]*v2.Maintainer" => "[]*v3.Maintainer".into(),
        "v2.Dependency" => "v3.Dependency".into(),
        "[]*v2.Dependency" => "[]*v3.Dependency".into(),
        "v2.Lock" => "v3.Lock".into(),
        _ => mismatch.expected,
    };
    mismatch.into()
}

fn failed(file: &'static str) -> impl Fn(FileError) -> LoadError {
    move |source| LoadError::File { file, source }
}

const SNIFFED: usize = 512;

/// The file's content, if it begins like a gzip stream.
fn ensure_archive(
    name: &str,
    mut file: std::fs::File,
) -> Result<Chain<Cursor<Vec<u8>>, std::fs::File>, LoadError> {
    let mut start = Vec::with_capacity(SNIFFED);
    file.by_ref()
        .take(SNIFFED as u64)
        .read_to_end(&mut start)
        .map_err(|error| {
            LoadError::Io(format!(
                "file '{name}' cannot be read: {}",
                io_cause(&error)
            ))
        })?;
    if start.starts_with(b"\x1F\x8B\x08") {
        return Ok(Cursor::new(start).chain(file));
    }
    if name.ends_with(".yml") || name.ends_with(".yaml") {
        return Err(LoadError::YamlFile(name.to_owned()));
    }
    let content_type = content_type(&start);
    Err(LoadError::NotGzip {
        file: name.to_owned(),
        content_type,
    })
}

fn content_type(start: &[u8]) -> &'static str {
    const SIGNATURES: &[(&[u8], &str)] = &[
        (b"%PDF-", "application/pdf"),
        (b"PK\x03\x04", "application/zip"),
        (b"\x89PNG\r\n\x1A\n", "image/png"),
        (b"\xFF\xD8\xFF", "image/jpeg"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a", "image/gif"),
        (b"Rar!\x1A\x07", "application/x-rar-compressed"),
        (b"\x00\x61\x73\x6D", "application/wasm"),
    ];
    if let Some((_, known)) = SIGNATURES
        .iter()
        .find(|(magic, _)| start.starts_with(magic))
    {
        return known;
    }
    let begins = |tag: &str| {
        let text = start.trim_ascii_start();
        text.len() > tag.len() && text[..tag.len()].eq_ignore_ascii_case(tag.as_bytes())
    };
    if begins("<!DOCTYPE HTML") || begins("<HTML") || begins("<HEAD") || begins("<BODY") {
        return "text/html; charset=utf-8";
    }
    if begins("<?xml") {
        return "text/xml; charset=utf-8";
    }
    // Helm sniffs a whole buffer of 512 bytes, so a shorter file ends in zeros and looks binary.
    let is_binary = |byte: &u8| matches!(byte, 0..=8 | 0x0B | 0x0E..=0x1A | 0x1C..=0x1F);
    if start.len() < SNIFFED || start.iter().any(is_binary) {
        "application/octet-stream"
    } else {
        "text/plain; charset=utf-8"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subcharts_load_in_the_order_of_their_names() {
        let about = |name: &str| format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
        let mut files = vec![File::new("Chart.yaml", about("web"))];
        for name in ["c", "a", "b"] {
            files.push(File::new(format!("charts/{name}/Chart.yaml"), about(name)));
        }
        let chart = load_files(files, &mut Warnings::default()).unwrap();
        let names: Vec<&str> = chart.dependencies.iter().map(Chart::name).collect();
        assert_eq!(names, ["a", "b", "c"]);
    }
}
