//! What each template sees as dot: one object per chart, shared by all its templates.

use std::collections::BTreeMap;

use bytes::Bytes;
use templating::{List, Map, Value};

use super::values::{VALUES, table};
use super::{EngineOptions, capabilities, files};
use crate::chart::Chart;
use crate::metadata::{Dependency, Maintainer, Metadata};
use crate::release_info::ReleaseInfo;

/// A template file and the object of its chart.
pub(super) struct Template<'a> {
    pub(super) text: &'a Bytes,
    scope: Map,
    base_path: String,
}

impl Template<'_> {
    /// Dot for this file: its chart's object, with `.Template` now about this file. Where a template of the same chart
    /// was rendered before, what it changed is still changed.
    pub(super) fn dot(&self, name: &str) -> Map {
        let template = Map::from_iter([("Name", name), ("BasePath", self.base_path.as_str())]);
        self.scope
            .insert("Template", template.with_type(&VALUES))
            .expect("the object of a chart is never a nil map");
        self.scope.with_type(&VALUES)
    }
}

/// All templates of a chart and its subcharts by their full names.
pub(super) fn templates<'a>(
    chart: &'a Chart,
    values: serde_json::Value,
    options: &EngineOptions<'_>,
) -> BTreeMap<String, Template<'a>> {
    let mut walk = Walk {
        release: release(options.release).into(),
        capabilities: capabilities::object(options.capabilities),
        templates: BTreeMap::new(),
    };
    let values = match Value::from(values) {
        Value::Map(values) => values.with_type(&VALUES),
        _ => Map::new().with_type(&VALUES),
    };
    walk.chart(chart, None, chart.name().to_owned(), values);
    walk.templates
}

struct Walk<'a> {
    release: Value,
    capabilities: Value,
    templates: BTreeMap<String, Template<'a>>,
}

impl<'a> Walk<'a> {
    /// The object of a chart below `parent`. `root_values` are for the root alone: a subchart finds its values in its
    /// parent's.
    fn chart(&mut self, chart: &'a Chart, parent: Option<&Map>, path: String, values: Map) -> Map {
        let metadata = metadata(&chart.metadata, parent.is_none());
        let subcharts = Map::new();
        let scope = Map::from_iter([
            ("Chart", Value::Map(metadata)),
            ("Files", files::object(&chart.files).into()),
            ("Release", self.release.clone()),
            ("Capabilities", self.capabilities.clone()),
            ("Values", values.into()),
            ("Subcharts", subcharts.clone().into()),
        ]);
        for dependency in &chart.dependencies {
            let name = dependency.name();
            // A chart without a table of its own in the parent's values has none at all.
            let values = table(&scope, &format!("Values.{name}"))
                .unwrap_or_else(|_| Map::new().with_type(&VALUES));
            let path = format!("{path}/charts/{name}");
            let object = self.chart(dependency, Some(&scope), path, values);
            subcharts
                .insert(name, object)
                .expect("a new map is not nil");
        }
        for file in &chart.templates {
            let is_partial = golib::path::base(file.name.as_bytes()).starts_with(b"_");
            if chart.is_library() && !is_partial {
                continue;
            }
            let template = Template {
                text: &file.data,
                scope: scope.clone(),
                base_path: join(&path, "templates"),
            };
            self.templates.insert(join(&path, &file.name), template);
        }
        scope
    }
}

/// Go's `path.Join`.
fn join(parent: &str, name: &str) -> String {
    golib::path::clean_text(&format!("{parent}/{name}"))
}

fn release(info: &ReleaseInfo) -> Map {
    Map::from_iter([
        ("Name", Value::from(info.name.as_str())),
        ("Namespace", info.namespace.as_str().into()),
        ("IsUpgrade", info.is_upgrade.into()),
        ("IsInstall", info.is_install.into()),
        ("Revision", info.revision.into()),
        ("Service", "Helm".into()),
    ])
}

/// `.Chart`: a map by the names of Go's fields, as Helm 4 makes it.
fn metadata(metadata: &Metadata, is_root: bool) -> Map {
    let text = |text: &str| Value::string(text);
    Map::from_iter([
        ("Name", text(&metadata.name)),
        ("Home", text(&metadata.home)),
        ("Sources", texts(&metadata.sources)),
        ("Version", text(&metadata.version)),
        ("Description", text(&metadata.description)),
        ("Keywords", texts(&metadata.keywords)),
        (
            "Maintainers",
            list(metadata.maintainers.iter().map(maintainer)),
        ),
        ("Icon", text(&metadata.icon)),
        ("APIVersion", text(&metadata.api_version)),
        ("Condition", text(&metadata.condition)),
        ("Tags", text(&metadata.tags)),
        ("AppVersion", text(&metadata.app_version)),
        ("Deprecated", metadata.deprecated.into()),
        (
            "Annotations",
            annotations(metadata.annotations.as_ref()).into(),
        ),
        ("KubeVersion", text(&metadata.kube_version)),
        (
            "Dependencies",
            list(metadata.dependencies.iter().map(dependency)),
        ),
        ("Type", text(&metadata.chart_type)),
        ("IsRoot", is_root.into()),
    ])
}

fn texts(texts: &[String]) -> Value {
    list(texts.iter().map(|text| Value::string(text.as_str())))
}

fn list(items: impl Iterator<Item = Value>) -> Value {
    List::from_iter(items).into()
}

/// A `map[string]string`, nil when the chart has none.
fn annotations(annotations: Option<&BTreeMap<String, String>>) -> Map {
    let ty = &templating::value::STRING_MAP;
    match annotations {
        None => Map::nil(ty),
        Some(annotations) => {
            let entry = |(key, value): (&String, &String)| {
                (key.as_str().into(), Value::string(value.as_str()))
            };
            Map::typed(ty, annotations.iter().map(entry).collect())
        }
    }
}

fn maintainer(maintainer: &Maintainer) -> Value {
    Map::from_iter([
        ("Name", maintainer.name.as_str()),
        ("Email", maintainer.email.as_str()),
        ("URL", maintainer.url.as_str()),
    ])
    .into()
}

fn dependency(dependency: &Dependency) -> Value {
    let text = |text: &str| Value::string(text);
    Map::from_iter([
        ("Name", text(&dependency.name)),
        ("Version", text(&dependency.version)),
        ("Repository", text(&dependency.repository)),
        ("Condition", text(&dependency.condition)),
        ("Tags", texts(&dependency.tags)),
        ("Enabled", dependency.enabled.into()),
        (
            "ImportValues",
            list(dependency.import_values.iter().map(Value::from)),
        ),
        ("Alias", text(&dependency.alias)),
    ])
    .into()
}
