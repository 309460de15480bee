//! The chart object: metadata, default values, templates, files and vendored subcharts.
//!
//! Its JSON is what Helm stores in a release record; subcharts are not part of that. Reading charts
//! is in [`crate::loader`].

use std::sync::Arc;

use bytes::Bytes;
use golib::base64;
use golib::json::{self, At, FieldError as DecodeError};
use golib::json_fields;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::list::List;
use crate::metadata::{Lock, Metadata};
use crate::time::Time;

/// `apiVersion` of charts that keep their dependencies in `requirements.yaml`.
pub const API_VERSION_V1: &str = "v1";
/// `apiVersion` of charts that keep their dependencies in `Chart.yaml`.
pub const API_VERSION_V2: &str = "v2";

/// One file of a chart. Cloning shares the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Path below the chart's root, with `/` as separator.
    pub name: String,
    /// The content, byte-order mark removed.
    pub data: Bytes,
    /// When the file was last changed; zero if unknown.
    pub modtime: Time,
    /// A record wrote `null` for the content, and shall again.
    null: bool,
}

impl File {
    /// A file with its content; the modification time is unknown.
    ///
    /// ```
    /// let file = chart::File::new("templates/a.yaml", "kind: Service");
    /// assert_eq!(&*file.data, b"kind: Service");
    /// ```
    pub fn new(name: impl Into<String>, data: impl Into<Bytes>) -> Self {
        Self {
            name: name.into(),
            data: data.into(),
            modtime: Time::ZERO,
            null: false,
        }
    }

    /// This file with a modification time.
    ///
    /// ```
    /// use chart::{File, Time};
    ///
    /// let file = File::new("README.md", "# Web").modified(Time::from_unix_seconds(86_400));
    /// assert_eq!(file.modtime.to_string(), "1970-01-02T00:00:00Z");
    /// ```
    #[must_use]
    pub fn modified(mut self, modtime: Time) -> Self {
        self.modtime = modtime;
        self
    }
}

/// A chart and the charts vendored in it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chart {
    /// `Chart.yaml`.
    pub metadata: Metadata,
    /// `Chart.lock` or `requirements.lock`.
    pub lock: Option<Lock>,
    /// Files below `templates/`.
    pub templates: List<File>,
    /// Default values: an object, or null when the chart has no `values.yaml`. Numbers are floats
    /// wherever they come from YAML. Cloning a chart shares them.
    pub values: Arc<Value>,
    /// `values.yaml` as it was written, to pack the chart again. Not stored in release records, gone once rendered.
    pub values_file: Option<File>,
    /// `values.schema.json` as it was written.
    pub schema: Option<Bytes>,
    /// When the schema was last changed.
    pub schema_modtime: Time,
    /// All other files: `crds/`, README, whatever templates read through `.Files`.
    pub files: List<File>,
    /// When `Chart.yaml` was last changed.
    pub modtime: Time,
    /// Loaded as a chart of the third generation, which cannot be installed yet.
    pub experimental: bool,
    /// Charts below `charts/`. Not stored in release records.
    pub dependencies: Vec<Chart>,
}

/// A file of `crds/`, of a chart or one of its subcharts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crd {
    /// Path from the root chart on: `parent/charts/sub/crds/x.yaml`.
    pub path: String,
    /// The file; its name begins with `crds/`.
    pub file: File,
}

impl Chart {
    /// The chart's name (the alias, once dependencies were processed).
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Whether the chart only lends its named templates to others.
    pub fn is_library(&self) -> bool {
        self.metadata.chart_type.eq_ignore_ascii_case("library")
    }

    /// Lets go of what a render has no use for.
    pub(crate) fn forget_values_files(&mut self) {
        self.values_file = None;
        self.dependencies
            .iter_mut()
            .for_each(Self::forget_values_files);
    }

    /// Memory of the chart and its subcharts, in bytes, about: files, and default values as they were read.
    pub fn size_bytes(&self) -> u64 {
        let files = self.templates.iter().chain(&self.files);
        let own = files.map(|file| file.data.len()).sum::<usize>()
            + self.schema.as_ref().map_or(0, Bytes::len)
            + golib::budget::weigh(&self.values);
        let dependencies = self.dependencies.iter().map(Self::size_bytes);
        own as u64 + dependencies.sum::<u64>()
    }

    /// Memory of the default values of the chart and its subcharts, in bytes, about.
    pub fn values_bytes(&self) -> u64 {
        let dependencies = self.dependencies.iter().map(Self::values_bytes);
        golib::budget::weigh(&self.values) as u64 + dependencies.sum::<u64>()
    }

    /// The files of `crds/`, own ones first, then each dependency's.
    ///
    /// ```
    /// use chart::{File, loader::load_files};
    ///
    /// let files = vec![
    ///     File::new("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
    ///     File::new("crds/site.yaml", "kind: CustomResourceDefinition\n"),
    ///     File::new("charts/db/Chart.yaml", "apiVersion: v2\nname: db\nversion: 1.0.0\n"),
    ///     File::new("charts/db/crds/backup.yaml", "kind: CustomResourceDefinition\n"),
    /// ];
    /// let chart = load_files(files, &mut chart::Warnings::default())?;
    /// let paths: Vec<_> = chart.crds().into_iter().map(|crd| crd.path).collect();
    /// assert_eq!(paths, ["web/crds/site.yaml", "web/charts/db/crds/backup.yaml"]);
    /// # Ok::<(), chart::loader::LoadError>(())
    /// ```
    pub fn crds(&self) -> Vec<Crd> {
        let mut found = Vec::new();
        self.collect_crds(self.name().to_owned(), &mut found);
        found
    }

    fn collect_crds(&self, path: String, found: &mut Vec<Crd>) {
        for file in &self.files {
            if file.name.starts_with("crds/") && has_manifest_extension(&file.name) {
                found.push(Crd {
                    path: golib::path::clean_text(&format!("{path}/{}", file.name)),
                    file: file.clone(),
                });
            }
        }
        for dependency in &self.dependencies {
            dependency.collect_crds(format!("{path}/charts/{}", dependency.name()), found);
        }
    }

    /// Reads a chart out of the JSON of a release record. `path` is where it stands in there
    /// (`chart`), for error texts.
    ///
    /// ```
    /// use chart::Chart;
    /// use serde_json::json;
    ///
    /// let record = json!({ "metadata": { "name": "web", "version": "1.0.0" }, "templates": [{ "name": "templates/a", "data": "YTogMQ==" }] });
    /// let chart = Chart::from_json(&record, "chart")?;
    /// assert_eq!((chart.name(), &chart.templates[0].data[..]), ("web", &b"a: 1"[..]));
    /// # Ok::<(), chart::DecodeError>(())
    /// ```
    ///
    /// # Errors
    /// A field has the wrong type, a file's content is not base64, or a time is not one.
    pub fn from_json(value: &Value, path: &str) -> Result<Self, DecodeError> {
        let mut chart = Self::default();
        let at = At::new("Chart", "chart.Chart", path);
        json_fields!(at, value, |at, value| {
            "metadata" => Metadata::from_json_at(value, at).map(|read| chart.metadata = read),
            "lock" => Lock::from_json_at(value, at).map(|read| chart.lock = read),
            "templates" => files_from_json(value, at).map(|read| chart.templates = read),
            "values" => at.table(value).map(|read| chart.values = Arc::new(read)),
            "schema" => at.base64(value).map(|read| chart.schema = read.map(Bytes::from)),
            "schemamodtime" => json::time(value, &mut chart.schema_modtime),
            "files" => files_from_json(value, at).map(|read| chart.files = read),
            "modtime" => json::time(value, &mut chart.modtime),
        })?;
        Ok(chart)
    }
}

fn files_from_json(value: &Value, at: &At<'_>) -> Result<List<File>, DecodeError> {
    let Some(items) = at.list(value, "[]*common.File")? else {
        return Ok(List::absent());
    };
    let mut files = Vec::with_capacity(items.len());
    for item in items {
        let mut file = File::new("", Bytes::new());
        file.null = true;
        let at = at.within("File", "common.File");
        json_fields!(at, item, |at, value| {
            "name" => at.string(value, &mut file.name),
            "data" => {
                let data = at.base64(value)?;
                file.null = data.is_none();
                file.data = data.unwrap_or_default().into();
                Ok(())
            },
            "modtime" => json::time(value, &mut file.modtime),
        })?;
        files.push(file);
    }
    Ok(files.into())
}

fn has_manifest_extension(name: &str) -> bool {
    let base = name.rsplit('/').next().unwrap_or(name);
    base.rsplit_once('.').is_some_and(|(_, extension)| {
        ["yaml", "yml", "json"]
            .iter()
            .any(|known| extension.eq_ignore_ascii_case(known))
    })
}

impl Serialize for File {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("File", 3)?;
        out.serialize_field("name", &self.name)?;
        let data = (!self.null).then(|| base64::encode(&self.data));
        out.serialize_field("data", &data)?;
        if !self.modtime.is_zero() {
            out.serialize_field("modtime", &self.modtime)?;
        }
        out.end()
    }
}

impl Serialize for Chart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Chart", 8)?;
        let metadata = (self.metadata != Metadata::default()).then_some(&self.metadata);
        out.serialize_field("metadata", &metadata)?;
        out.serialize_field("lock", &self.lock)?;
        out.serialize_field("templates", &self.templates)?;
        out.serialize_field("values", &*self.values)?;
        let schema = self.schema.as_ref().map(base64::encode);
        out.serialize_field("schema", &schema)?;
        out.serialize_field("schemamodtime", &self.schema_modtime)?;
        out.serialize_field("files", &self.files)?;
        if !self.modtime.is_zero() {
            out.serialize_field("modtime", &self.modtime)?;
        }
        out.end()
    }
}

impl<'de> Deserialize<'de> for Chart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::from_json(&value, "").map_err(serde::de::Error::custom)
    }
}
