//! What the command shows: the values before and after, and one entry per value.

use chart::values::merge_maps;
use std::fmt::Write as _;

use chart::Chart;
use golib::{json, yaml};
use serde::Serialize;
use serde_json::Value;

use super::input::Input;
use crate::values::Values;

/// One value: a scalar, a list, or an empty map.
#[derive(Debug, Serialize)]
struct Entry {
    path: String,
    #[serde(rename = "after")]
    value: Value,
    #[serde(rename = "from")]
    source: String,
    /// The text it was rendered from, where it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Value>,
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    release: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    cluster: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    chart: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    before: Values,
    pub(super) after: Values,
    /// With the chart's defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    computed: Option<Values>,
    #[serde(rename = "values")]
    entries: Vec<Entry>,
}

impl Report {
    pub(super) fn new(before: &Values, after: Values, input: &Input) -> Self {
        let mut entries = Vec::new();
        leaves(&after, &mut Vec::new(), &mut |path, value| {
            let (source, before) = source(path, value, before, input);
            entries.push(Entry {
                path: shown(path),
                value: value.clone(),
                source,
                before,
            });
        });
        let facts = &input.facts;
        let cluster = match (facts.namespace.as_str(), facts.name.as_str()) {
            ("", name) => name.to_owned(),
            (namespace, name) => format!("{namespace}/{name}"),
        };
        let mut before = before.clone();
        for (key, template) in &input.helm.template_values {
            before.insert(key.clone(), template.as_str().into());
        }
        Self {
            release: input.release_name.clone(),
            namespace: input.namespace.clone(),
            cluster,
            chart: None,
            notes: input.notes.clone(),
            before,
            after,
            computed: None,
            entries,
        }
    }

    /// Merges values over the others.
    pub(super) fn overlay(&mut self, name: &str, over: &Values) {
        merge_maps(&mut self.after, over.clone());
        let mut entries = Vec::new();
        leaves(&self.after, &mut Vec::new(), &mut |path, value| {
            let path_text = shown(path);
            let old = self.entries.iter().find(|entry| entry.path == path_text);
            let entry = match (lookup(over, path), old) {
                (None, Some(old)) => Entry {
                    path: path_text,
                    value: value.clone(),
                    source: old.source.clone(),
                    before: old.before.clone(),
                },
                _ => Entry {
                    path: path_text,
                    value: value.clone(),
                    source: name.to_owned(),
                    before: None,
                },
            };
            entries.push(entry);
        });
        self.entries = entries;
    }

    /// Adds the chart's defaults; `all` lists them too.
    pub(super) fn with_chart(&mut self, chart: &Chart, computed: Values, all: bool) {
        let version = &chart.metadata.version;
        self.chart = Some(format!("{} {version}", chart.name()));
        if !all {
            return;
        }
        let mut entries = Vec::new();
        leaves(&computed, &mut Vec::new(), &mut |path, value| {
            let text = shown(path);
            match self.entries.iter().position(|entry| entry.path == text) {
                Some(at) => entries.push(self.entries.swap_remove(at)),
                None => entries.push(Entry {
                    path: text,
                    value: value.clone(),
                    source: "chart".to_owned(),
                    before: None,
                }),
            }
        });
        // A null takes a default away and is gone afterwards.
        entries.append(&mut self.entries);
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        self.entries = entries;
        self.computed = Some(computed);
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let heads = [
            ("release", self.release.as_str()),
            ("namespace", self.namespace.as_str()),
            ("chart", self.chart.as_deref().unwrap_or_default()),
            ("cluster", self.cluster.as_str()),
        ];
        for (name, value) in heads.iter().filter(|(_, value)| !value.is_empty()) {
            let _ = writeln!(text, "# {name}: {value}");
        }
        for note in &self.notes {
            let _ = writeln!(text, "# note: {note}");
        }
        for entry in &self.entries {
            let _ = write!(text, "# from {}", entry.source);
            match &entry.before {
                None => text.push('\n'),
                Some(before) => {
                    let before = block(before);
                    let _ = writeln!(text, "; before: {}", before.trim_end().replace('\n', "\n#"));
                }
            }
            let _ = write!(text, "{}: {}", entry.path, block(&entry.value));
        }
        text
    }
}

/// A value as it may stand behind a key: on one line, or as an indented block. Ends in a newline.
fn block(value: &Value) -> String {
    match value {
        Value::String(text) if text.contains('\n') => {
            let lines: Vec<&str> = text.trim_end_matches('\n').split('\n').collect();
            format!("|\n    {}\n", lines.join("\n    "))
        }
        Value::Array(_) | Value::Object(_) => format!("{}\n", json::encode_raw(value)),
        scalar => yaml::encode(scalar).unwrap_or_else(|_| format!("{}\n", json::encode(scalar))),
    }
}

/// Calls `found` for everything that is no map with something in it.
fn leaves<'a>(
    values: &'a Values,
    path: &mut Vec<&'a str>,
    found: &mut impl FnMut(&[&'a str], &'a Value),
) {
    for (key, value) in values {
        path.push(key);
        match value {
            Value::Object(map) if !map.is_empty() => leaves(map, path, found),
            leaf => found(path, leaf),
        }
        path.pop();
    }
}

/// A path as `--set` takes it.
fn shown(path: &[&str]) -> String {
    let keys: Vec<String> = path.iter().map(|key| key.replace('.', "\\.")).collect();
    keys.join(".")
}

fn lookup<'a>(values: &'a Values, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter()
        .try_fold(values.get(*first)?, |value, key| value.get(key))
}

/// The longest part of the path that `values` has, if there is no map below it.
fn nearest<'a>(values: &'a Values, path: &[&str]) -> Option<&'a Value> {
    (1..=path.len())
        .rev()
        .find_map(|length| lookup(values, &path[..length]))
        .filter(|value| !value.is_object())
}

fn source(path: &[&str], value: &Value, before: &Values, input: &Input) -> (String, Option<Value>) {
    let helm = &input.helm;
    let template = path.first().and_then(|key| helm.template_values.get(*key));
    if let Some(template) = template.filter(|_| !input.is_processed && !helm.disable_pre_process) {
        let source = format!("templateValues.{}", path.first().unwrap_or(&""));
        return (source, Some(template.as_str().into()));
    }
    let source = if input.came_processed {
        "the controller"
    } else if nearest(&input.command_line, path).is_some() {
        "the command line"
    } else {
        "values"
    };
    match nearest(before, path) {
        Some(old) if old == value => (source.to_owned(), None),
        Some(old) => (format!("{source}, filled in"), Some(old.clone())),
        None => (format!("{source}, filled in"), None),
    }
}
