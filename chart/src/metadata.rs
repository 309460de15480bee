//! `Chart.yaml`: its fields, how Helm reads them and what it refuses.
//!
//! Mirrors `pkg/chart/v2/metadata.go` and `dependency.go`. Lists that Helm keeps as pointers lose
//! their null elements here; a chart that has some is refused while loading.

mod validate;

use std::collections::BTreeMap;

use golib::json::{self, At, FieldError as DecodeError};
use golib::json_fields;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

pub use validate::ValidationError;

use crate::list::List;
use crate::time::Time;

/// The contents of `Chart.yaml`. Empty fields are left out of its JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// Chart name; a single path element.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Project page.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub home: String,
    /// Where the sources are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// Chart version; lenient semver.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// One sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Words to search for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keywords: Vec<String>,
    /// Maintainers of the chart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub maintainers: Vec<Maintainer>,
    /// URL of an icon.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub icon: String,
    /// `v1` or `v2`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Unused by Helm; shown to templates.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub condition: String,
    /// Unused by Helm; shown to templates.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tags: String,
    /// Version of the application inside.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub app_version: String,
    /// Whether the chart is deprecated.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deprecated: bool,
    /// Free annotations; absent and empty look different to templates.
    #[serde(skip_serializing_if = "no_annotations")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Constraint on the Kubernetes version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kube_version: String,
    /// Charts this one depends on. Absent and empty differ: with an absent list nothing is processed
    /// and every vendored chart is used as it is.
    #[serde(skip_serializing_if = "no_dependencies")]
    pub dependencies: List<Dependency>,
    /// `application`, `library` or empty (an application).
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub chart_type: String,
}

/// A maintainer of a chart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Maintainer {
    /// User or organisation.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Mail address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub email: String,
    /// Page of the maintainer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub url: String,
}

/// An entry of `dependencies`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Dependency {
    /// Name in the dependency's own `Chart.yaml`.
    pub name: String,
    /// Version constraint; empty matches nothing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Where to fetch it from.
    pub repository: String,
    /// Comma-separated value paths; the first that is a boolean decides.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub condition: String,
    /// Switches shared by several dependencies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Whether the dependency is used; set while dependencies are processed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub enabled: bool,
    /// Values to lift into the parent: texts, or tables with `child` and `parent`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub import_values: Vec<Value>,
    /// Name to use in place of `name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub alias: String,
}

/// `Chart.lock`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Lock {
    /// When the lock was written.
    pub generated: Time,
    /// Hash of the declared and the locked dependencies.
    pub digest: String,
    /// The exact versions.
    pub dependencies: List<Dependency>,
}

fn no_annotations(annotations: &Option<BTreeMap<String, String>>) -> bool {
    annotations.as_ref().is_none_or(BTreeMap::is_empty)
}

fn no_dependencies(dependencies: &List<Dependency>) -> bool {
    dependencies.is_empty()
}

/// Metadata while it is read: null list elements are still there, and reading a second document
/// (`requirements.yaml`) merges into the first as Go's decoder does.
#[derive(Debug, Default)]
pub struct Draft {
    pub(crate) metadata: Metadata,
    maintainers: Vec<Option<Maintainer>>,
    /// `None` until a document has such a list.
    dependencies: Option<Vec<Option<Dependency>>>,
}

impl Draft {
    /// Reads a document tree over what is there.
    pub(crate) fn read(&mut self, value: &Value, at: &At<'_>) -> Result<(), DecodeError> {
        let Self {
            metadata: md,
            maintainers,
            dependencies,
        } = self;
        json_fields!(at, value, |at, value| {
            "name" => at.string(value, &mut md.name),
            "home" => at.string(value, &mut md.home),
            "sources" => read_texts(value, at, &mut md.sources),
            "version" => at.string(value, &mut md.version),
            "description" => at.string(value, &mut md.description),
            "keywords" => read_texts(value, at, &mut md.keywords),
            "icon" => at.string(value, &mut md.icon),
            "apiVersion" => at.string(value, &mut md.api_version),
            "condition" => at.string(value, &mut md.condition),
            "tags" => at.string(value, &mut md.tags),
            "appVersion" => at.string(value, &mut md.app_version),
            "deprecated" => at.boolean(value, &mut md.deprecated),
            "kubeVersion" => at.string(value, &mut md.kube_version),
            "type" => at.string(value, &mut md.chart_type),
            "annotations" => read_annotations(value, at, &mut md.annotations),
            "maintainers" => {
                let items = at.at_most(MOST, value, "[]*v2.Maintainer")?;
                let at = at.within("Maintainer", "v2.Maintainer");
                read_pointers(items, maintainers, |item, out| {
                    read_maintainer(item, &at, out)
                })
            },
            "dependencies" => {
                let items = at.at_most(MOST, value, "[]*v2.Dependency")?;
                let at = at.within("Dependency", "v2.Dependency");
                if items.is_none() {
                    *dependencies = None;
                    return Ok(());
                }
                let dependencies = dependencies.get_or_insert_with(Vec::new);
                read_pointers(items, dependencies, |item, out| {
                    read_dependency(item, &at, out)
                })
            },
        })
    }

    fn finish(self) -> Metadata {
        let mut metadata = self.metadata;
        metadata.maintainers = self.maintainers.into_iter().flatten().collect();
        if let Some(dependencies) = self.dependencies {
            metadata.dependencies = dependencies.into_iter().flatten().collect();
        }
        metadata
    }
}

/// Elements that a list of `Chart.yaml` may have. Each chart is copied several times while it is deployed, and once for each of its aliases.
const MOST: usize = 10_000;

fn read_texts(value: &Value, at: &At<'_>, out: &mut Vec<String>) -> Result<(), DecodeError> {
    at.at_most(MOST, value, "[]string")?;
    at.strings(value, "[]string", out)
}

/// Go's decoding of a list of pointers: elements that were there before are read over.
fn read_pointers<T: Default>(
    items: Option<&[Value]>,
    out: &mut Vec<Option<T>>,
    mut read: impl FnMut(&Value, &mut T) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let items = items.unwrap_or_default();
    out.resize_with(items.len(), || None);
    for (item, slot) in items.iter().zip(out) {
        if item.is_null() {
            *slot = None;
        } else {
            read(item, slot.get_or_insert_with(T::default))?;
        }
    }
    Ok(())
}

fn read_annotations(
    value: &Value,
    at: &At<'_>,
    out: &mut Option<BTreeMap<String, String>>,
) -> Result<(), DecodeError> {
    let Some(entries) = at.entries(value)? else {
        *out = None;
        return Ok(());
    };
    let annotations = out.get_or_insert_with(BTreeMap::new);
    for (key, value) in entries {
        let mut text = String::new();
        at.string(value, &mut text)?;
        annotations.insert(key.clone(), text);
    }
    Ok(())
}

fn read_maintainer(value: &Value, at: &At<'_>, out: &mut Maintainer) -> Result<(), DecodeError> {
    json_fields!(at, value, |at, value| {
        "name" => at.string(value, &mut out.name),
        "email" => at.string(value, &mut out.email),
        "url" => at.string(value, &mut out.url),
    })
}

fn read_dependency(value: &Value, at: &At<'_>, out: &mut Dependency) -> Result<(), DecodeError> {
    json_fields!(at, value, |at, value| {
        "name" => at.string(value, &mut out.name),
        "version" => at.string(value, &mut out.version),
        "repository" => at.string(value, &mut out.repository),
        "condition" => at.string(value, &mut out.condition),
        "tags" => read_texts(value, at, &mut out.tags),
        "enabled" => at.boolean(value, &mut out.enabled),
        "alias" => at.string(value, &mut out.alias),
        "import-values" => {
            let items = at.at_most(MOST, value, "[]interface {}")?;
            let items = items.unwrap_or_default().iter().cloned();
            out.import_values = items.map(golib::json::floats).collect();
            Ok(())
        },
    })
}

impl Metadata {
    pub(crate) fn from_json_at(value: &Value, at: &At<'_>) -> Result<Self, DecodeError> {
        let mut draft = Draft::default();
        draft.read(value, &at.within("Metadata", "v2.Metadata"))?;
        Ok(draft.finish())
    }
}

impl Lock {
    /// `None` for `null`.
    pub(crate) fn from_json_at(value: &Value, at: &At<'_>) -> Result<Option<Self>, DecodeError> {
        if value.is_null() {
            return Ok(None);
        }
        let mut lock = Self::default();
        let at = at.within("Lock", "v2.Lock");
        json_fields!(at, value, |at, value| {
            "generated" => json::time(value, &mut lock.generated),
            "digest" => at.string(value, &mut lock.digest),
            "dependencies" => {
                if let Some(items) = at.at_most(MOST, value, "[]*v2.Dependency")? {
                    let mut found = Vec::new();
                    let at = at.within("Dependency", "v2.Dependency");
                    read_pointers(Some(items), &mut found, |item, out| {
                        read_dependency(item, &at, out)
                    })?;
                    lock.dependencies = found.into_iter().flatten().collect();
                }
                Ok(())
            },
        })?;
        Ok(Some(lock))
    }
}

impl<'de> Deserialize<'de> for Dependency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let mut dependency = Self::default();
        let at = At::new("Dependency", "v2.Dependency", "");
        read_dependency(&value, &at, &mut dependency).map_err(serde::de::Error::custom)?;
        Ok(dependency)
    }
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::from_json_at(&value, &At::new("Metadata", "v2.Metadata", ""))
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use crate::loader::load_files;
    use crate::{File, Warnings};

    #[test]
    fn lists_of_chart_yaml_have_an_end() {
        for (field, element) in [
            ("sources", "a"),
            ("keywords", "a"),
            ("maintainers", "{}"),
            ("dependencies", "{}"),
            ("dependencies", "{name: x, version: 1.0.0, tags: [...]}"),
            (
                "dependencies",
                "{name: x, version: 1.0.0, import-values: [...]}",
            ),
        ] {
            let many = |element: &str| vec![element; 10_001].join(", ");
            let list = match element.split_once("...") {
                Some((before, after)) => format!("{before}{}{after}", many("a")),
                None => many(element),
            };
            let text = format!("apiVersion: v2\nname: web\nversion: 1.0.0\n{field}: [{list}]\n");
            let files = vec![File::new("Chart.yaml", text)];
            let failed = load_files(files, &mut Warnings::default()).unwrap_err();
            let reported =
                std::iter::successors(Some(&failed as &dyn std::error::Error), |e| e.source());
            let reported: Vec<String> = reported.map(ToString::to_string).collect();
            let reported = reported.join(": ");
            assert!(reported.contains(field), "{reported}");
            assert!(reported.contains("more than 10000 elements"), "{reported}");
        }
    }
}
