//! Reading the files the command is given.

use chart::values::merge_maps;
use std::collections::BTreeMap;
use std::path::Path;

use golib::yaml;
use helmcli::chart_flags::ChartFlags;
use helmcli::files::read_file;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;
use templating::SystemHost;

use super::flags::ValuesArgs;
use crate::api::{BundleDeployment, BundleDeploymentOptions, HelmOptions};
use crate::config::ClusterValuesMode;
use crate::values::{self, ClusterFacts, Reference, ReferenceKind, Values};

/// The inputs of the command.
#[derive(Debug, Default)]
pub(super) struct Input {
    pub release_name: String,
    /// Where the release goes; empty if nothing says so.
    pub namespace: String,
    /// The values before anything happens to them.
    pub helm: HelmOptions,
    /// The part of them that the command line gave.
    pub command_line: Values,
    /// Whether the values stay as they are.
    pub is_processed: bool,
    /// Whether the values come from the controller.
    pub came_processed: bool,
    pub facts: ClusterFacts,
    /// `valuesFrom`, in the order of merging.
    pub overlays: Vec<Overlay>,
    pub chart_reference: Option<String>,
    pub coordinates: ChartFlags,
    /// Parts that were left out, and why.
    pub notes: Vec<String>,
}

/// Values that are merged over the others as they are.
#[derive(Debug)]
pub(super) struct Overlay {
    pub name: String,
    pub values: Values,
}

impl Input {
    pub(super) fn read(args: &ValuesArgs) -> Result<Self, String> {
        let mut input = Self {
            coordinates: args.chart.clone(),
            ..Self::default()
        };
        for file in &args.cluster {
            let facts = facts(file)?;
            input.facts = std::mem::take(&mut input.facts).overlaid(facts);
        }
        let resources = args
            .resource
            .iter()
            .map(|file| object(file))
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(file) = &args.bundle {
            input.bundle(file, &resources)?;
        }
        if let Some(file) = &args.bundle_deployment {
            input.bundle_deployment(file, &resources, args.mode)?;
        }
        if let Value::Object(given) = args.values.merge().map_err(|error| error.to_string())? {
            input.command_line = values::inline(Some(&given));
            let merged = input.helm.values.get_or_insert_default();
            merge_maps(merged, given);
        }
        input.name_chart(args)?;
        Ok(input)
    }

    fn bundle(&mut self, file: &Path, resources: &[Value]) -> Result<(), String> {
        let bundle = kind(file, "Bundle")?;
        let spec = bundle.get("spec").cloned().unwrap_or(Value::Null);
        let targets = spec.get("targets").and_then(Value::as_array);
        for (at, target) in targets.into_iter().flatten().enumerate() {
            if target.get("helm").is_some_and(|helm| !helm.is_null()) {
                self.notes.push(format!(
                    "targets[{at}] has helm options of its own, which the controller merges: left out here"
                ));
            }
        }
        let options: BundleDeploymentOptions = match spec {
            Value::Null => BundleDeploymentOptions::default(),
            spec => serde_json::from_value(spec).map_err(|error| wrong(file, &error))?,
        };
        self.options(options, resources)
    }

    fn bundle_deployment(
        &mut self,
        file: &Path,
        resources: &[Value],
        mode: ClusterValuesMode,
    ) -> Result<(), String> {
        let bundle = kind(file, "BundleDeployment")?;
        let bundle: BundleDeployment =
            serde_json::from_value(bundle).map_err(|error| wrong(file, &error))?;
        let mode = mode
            .for_bundle(&bundle)
            .map_err(|error| error.to_string())?;
        let bundle = match mode {
            ClusterValuesMode::Never => bundle,
            _ => values::coordinates(&bundle, &self.facts, &SystemHost)
                .map_err(|error| error.to_string())?,
        };
        self.is_processed = !mode.fills_values(&bundle.spec);
        let hash = bundle.spec.values_hash.clone();
        let mut options = bundle.spec.options.clone();
        options.helm = values::options_to_fill(&bundle);
        self.options(options, resources)?;
        if hash.is_empty() {
            return Ok(());
        }
        self.came_processed = true;
        let name = bundle.name();
        let found = resources.iter().find(|resource| {
            is_named(resource, "Secret", name) && is_in(resource, bundle.namespace())
        });
        let Some(found) = found else {
            self.notes.push(format!(
                "the controller keeps the values in Secret {}/{name} upstream: not given",
                bundle.namespace()
            ));
            return Ok(());
        };
        let secret: Secret = serde_json::from_value(found.clone())
            .map_err(|_| format!("Secret {name} has a field of the wrong type"))?;
        let stored = values::stored(&secret, &hash).map_err(|error| error.to_string())?;
        if let Some(values) = stored {
            self.helm.values = Some(values);
        }
        Ok(())
    }

    fn options(
        &mut self,
        options: BundleDeploymentOptions,
        resources: &[Value],
    ) -> Result<(), String> {
        let mut budget = values::budget();
        for reference in values::references(&options) {
            let Reference {
                kind,
                namespace,
                name,
                key,
            } = &reference;
            let kind = match kind {
                ReferenceKind::ConfigMap => "ConfigMap",
                ReferenceKind::Secret => "Secret",
            };
            let title = format!("{kind} {namespace}/{name} key {key}");
            let found = resources
                .iter()
                .find(|resource| is_named(resource, kind, name) && is_in(resource, namespace));
            let Some(found) = found else {
                self.notes.push(format!("{title}: not given"));
                continue;
            };
            let content = content(found, key)?;
            let values = values::parse(&reference, content.as_deref(), &mut budget)
                .map_err(|error| error.to_string())?;
            self.overlays.push(Overlay {
                name: title,
                values,
            });
        }
        self.namespace = options.release_namespace().to_owned();
        let helm = options.helm.unwrap_or_default();
        self.release_name.clone_from(&helm.release_name);
        if !helm.values_files.is_empty() {
            self.notes
                .push("valuesFiles are merged when the bundle is made: left out here".to_owned());
        }
        self.helm = helm;
        Ok(())
    }

    /// The arguments first, then what the bundle names.
    fn name_chart(&mut self, args: &ValuesArgs) -> Result<(), String> {
        match args.names.as_slice() {
            [] => {}
            [chart] => self.chart_reference = Some(chart.clone()),
            [name, chart, ..] => {
                self.release_name.clone_from(name);
                self.chart_reference = Some(chart.clone());
            }
        }
        if self.chart_reference.is_some() {
            return Ok(());
        }
        let (repo, chart) = (self.helm.repo.trim(), self.helm.chart.trim());
        if repo.starts_with("oci://") {
            self.chart_reference = Some(repo.to_owned());
        } else if !repo.is_empty() {
            self.coordinates.repo = repo.to_owned();
            self.chart_reference = Some(chart.to_owned());
        } else if chart.contains("://") {
            self.chart_reference = Some(chart.to_owned());
        } else if args.bundle.is_none() && args.bundle_deployment.is_none() {
            return Err("give a chart, --bundle or --bundle-deployment".to_owned());
        } else {
            self.notes
                .push("the bundle brings its chart itself: give CHART to see its defaults".into());
            return Ok(());
        }
        if self.coordinates.version.is_empty() {
            self.coordinates.version.clone_from(&self.helm.version);
        }
        // Fetching for the chart's defaults alone is not worth the network.
        if !args.all {
            self.chart_reference = None;
        }
        Ok(())
    }
}

fn wrong(file: &Path, error: &serde_json::Error) -> String {
    format!("{}: {error}", file.display())
}

/// The YAML or JSON object in a file.
fn object(file: &Path) -> Result<Value, String> {
    let name = file.display().to_string();
    let text = read_file(&name)?;
    match yaml::decode(&text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(format!("{name}: not an object")),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

fn kind(file: &Path, kind: &str) -> Result<Value, String> {
    let object = object(file)?;
    match object.get("kind").and_then(Value::as_str) {
        Some(found) if found == kind => Ok(object),
        Some(found) => Err(format!("{}: a {found}, not a {kind}", file.display())),
        None => Err(format!("{}: not a {kind}", file.display())),
    }
}

fn is_named(object: &Value, kind: &str, name: &str) -> bool {
    object["kind"] == kind && object["metadata"]["name"] == name
}

/// A file that names no namespace fits any.
fn is_in(object: &Value, namespace: &str) -> bool {
    match object["metadata"]["namespace"].as_str() {
        None | Some("") => true,
        Some(found) => found == namespace,
    }
}

/// One key of a ConfigMap or Secret.
fn content(object: &Value, key: &str) -> Result<Option<Vec<u8>>, String> {
    let texts = ["stringData", "data"].map(|field| object[field][key].as_str());
    match (object["kind"].as_str(), texts) {
        (Some("Secret"), [None, Some(text)]) => {
            let decoded: Result<ByteString, _> = serde_json::from_value(text.into());
            let ByteString(bytes) = decoded.map_err(|_| format!("key {key} is not base64"))?;
            Ok(Some(bytes))
        }
        (Some("Secret"), [text, _]) | (_, [_, text]) => {
            Ok(text.map(|text| text.as_bytes().to_vec()))
        }
    }
}

/// A Fleet Cluster, the ConfigMap with a site's facts, or the facts themselves.
fn facts(file: &Path) -> Result<ClusterFacts, String> {
    let object = object(file)?;
    let failed =
        |error: values::FactsError| format!("{}: {}", file.display(), crate::error::chain(&error));
    let text = |value: &Value| yaml::encode(value).map_err(|error| error.to_string());
    let is_fleet = |object: &Value| {
        let version = object["apiVersion"].as_str().unwrap_or_default();
        version.is_empty() || version.starts_with("fleet.cattle.io/")
    };
    match object.get("kind").and_then(Value::as_str) {
        Some("Cluster") if is_fleet(&object) => Ok(ClusterFacts::from_cluster(&object)),
        Some("ConfigMap" | "Secret") => {
            let tables = ["data", "stringData"].map(|table| object[table].as_object());
            let keys = tables.into_iter().flatten().flat_map(|table| table.keys());
            let mut data = BTreeMap::new();
            for key in keys {
                if let Some(content) = content(&object, key)? {
                    data.insert(key.clone(), content);
                }
            }
            Ok(values::facts_of(&data).map_err(failed)?.unwrap_or_default())
        }
        Some(other) => Err(format!(
            "{}: a {other} tells no facts; give a Fleet Cluster, a ConfigMap or their YAML",
            file.display()
        )),
        None => ClusterFacts::from_yaml(text(&object)?.as_bytes()).map_err(failed),
    }
}
