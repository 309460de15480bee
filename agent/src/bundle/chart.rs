//! From a bundle's files to the chart that is deployed: moved, generated, or as it was fetched.
//!
//! Mirrors `internal/helmdeployer/render/helm.go` and the annotations set in `install.go`. Every
//! deployment is a chart; a bundle without one gets a `Chart.yaml` of its own.

use std::collections::BTreeMap;

use bytes::Bytes;
use chart::archive;
use chart::loader::load_files_within;
use chart::source::{ChartRef, FetchedChart};
use chart::{Chart, File, Time, Warnings};
use golib::budget::Budget as Weight;
use serde_json::json;

use super::error::BundleError;
use super::fleet_ignore::{FleetIgnore, IgnoreError};
use super::kustomize::Kustomization;
use super::manifest::{Budget, MAX_UNPACKED_BYTES, Manifest, Resource};
use super::raw_yaml;
use super::style::Style;
use crate::api::{
    ANNOTATION_AGENT_NAMESPACE, ANNOTATION_BUNDLE_ID, ANNOTATION_CHART_DIGEST,
    ANNOTATION_CHART_SOURCE, ANNOTATION_COMMIT, ANNOTATION_FACTS, ANNOTATION_KEEP_RESOURCES,
    ANNOTATION_LOOKED_UP, ANNOTATION_SERVICE_ACCOUNT, ANNOTATION_SIGNATURES,
    ANNOTATION_VALUES_FROM, BundleDeploymentOptions, HelmOptions,
};

/// What the agent says of a deployed chart. An author's own words under these names would be told and compared as the agent's.
const SAID_BY_THE_AGENT: [&str; 10] = [
    ANNOTATION_SERVICE_ACCOUNT,
    ANNOTATION_BUNDLE_ID,
    ANNOTATION_AGENT_NAMESPACE,
    ANNOTATION_KEEP_RESOURCES,
    ANNOTATION_FACTS,
    ANNOTATION_CHART_DIGEST,
    ANNOTATION_CHART_SOURCE,
    ANNOTATION_VALUES_FROM,
    ANNOTATION_LOOKED_UP,
    ANNOTATION_SIGNATURES,
];

/// How much of a commit goes into a generated chart's version.
const COMMIT_LENGTH: usize = 12;

/// The bundle a chart is built for; becomes the chart's annotations, the only link from a release to its bundle.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// Name of the BundleDeployment.
    pub bundle_deployment: &'a str,
    /// The agent's own namespace.
    pub agent_namespace: &'a str,
    /// The commit the bundle was made from; empty if unknown.
    pub commit: &'a str,
}

/// A chart, ready to be rendered, and what loading it had to say.
#[derive(Clone, Debug)]
pub struct Package {
    /// With Fleet's annotations.
    pub chart: Chart,
    /// What Helm would have logged.
    pub warnings: Warnings,
    /// The kustomization that the rendered objects go through.
    pub kustomization: Option<Kustomization>,
}

/// Builds the chart of a bundle's files, whose values and overlays may take so much once they are read.
///
/// # Errors
/// Files that cannot be decoded, overlays that do not apply, and charts that do not load.
pub fn from_manifest(
    manifest: &Manifest,
    options: &BundleDeploymentOptions,
    identity: Identity<'_>,
    decoded: &mut Weight,
) -> Result<Package, BundleError> {
    let style = Style::of(&manifest.resources, options);
    let kustomization = Kustomization::of(&manifest.resources, options)?;
    let mut resources = manifest.resources.clone();
    let mut id = manifest.id.clone();
    let mut commit = identity.commit;
    let files = match &style.chart {
        Some(path) => moved(resources, path),
        None if style.is_raw_yaml() => {
            let overlays = options.yaml.as_ref().map_or(&[][..], |yaml| &yaml.overlays);
            resources = raw_yaml::process(&resources, overlays, decoded)?;
            id = Manifest::id_of(&resources);
            if !overlays.is_empty() {
                // Applying overlays loses the commit upstream, and versions must agree.
                commit = "";
            }
            raw_yaml::chart_files(resources)
        }
        None => Vec::new(),
    };
    let mut budget = Budget::default();
    let mut chart_files = Vec::with_capacity(files.len() + 1);
    for (path, resource) in files {
        chart_files.push(file(path, resource.decode(&mut budget)?));
    }
    if style.chart.is_none() {
        chart_files.push(generated_chart_yaml(
            identity.bundle_deployment,
            commit,
            &id,
        )?);
    }
    let inner = archive::Budget::new(budget.left());
    let package = load(chart_files, (&inner, decoded), options, identity)?;
    Ok(Package {
        kustomization,
        ..package
    })
}

/// Takes a fetched archive as the chart. Files and directories beginning with a dot and those that a
/// `.fleetignore` names are left out, as Fleet does when it unpacks a chart.
///
/// # Errors
/// When the archive holds no acceptable chart, lacks charts it depends on, or has a malformed `.fleetignore`.
pub fn from_archive(
    fetched: &FetchedChart,
    options: &BundleDeploymentOptions,
    identity: Identity<'_>,
    decoded: &mut Weight,
) -> Result<Package, BundleError> {
    let budget = archive::Budget::new(MAX_UNPACKED_BYTES);
    let files = archive::load_fetched_files(&fetched.bytes, &budget);
    let files = files.map_err(|source| BundleError::Archive {
        url: fetched.url.clone(),
        source,
    })?;
    let is_hidden = |name: &str| name.split('/').any(|part| part.starts_with('.'));
    let names = files
        .iter()
        .map(|file| (file.name.as_str(), &file.data[..]));
    let failed = |error: IgnoreError| BundleError::Content(format!(".fleetignore: {error}"));
    let mut ignore = FleetIgnore::new(names).map_err(failed)?;
    let mut kept = Vec::with_capacity(files.len());
    for found in files {
        let is_ignored = ignore.ignores(&found.name).map_err(failed)?;
        if !is_hidden(&found.name) && !is_ignored {
            kept.push(file(found.name, found.data));
        }
    }
    let mut package = load(kept, (&budget, decoded), options, identity)?;
    let named = options.helm.as_ref().map(chart_ref).unwrap_or_default();
    let annotations = package.chart.metadata.annotations.get_or_insert_default();
    annotations.insert(ANNOTATION_CHART_DIGEST.to_owned(), fetched.digest.clone());
    annotations.insert(ANNOTATION_CHART_SOURCE.to_owned(), named.to_string());
    chart::rendered::check_dependencies(&package.chart)?;
    Ok(package)
}

/// The chart that options name.
pub(super) fn chart_ref(helm: &HelmOptions) -> ChartRef {
    ChartRef {
        repo: helm.repo.clone(),
        chart: helm.chart.clone(),
        version: helm.version.clone(),
    }
}

/// Without its byte-order mark and, as in the archive Fleet makes, last changed in 1970.
fn file(name: String, data: impl Into<Bytes>) -> File {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    let data: Bytes = data.into();
    let data = if data.starts_with(MARK) {
        data.slice(MARK.len()..)
    } else {
        data
    };
    File::new(name, data).modified(Time::from_unix_seconds(0))
}

fn load(
    files: Vec<File>,
    (budget, decoded): (&archive::Budget, &mut Weight),
    options: &BundleDeploymentOptions,
    identity: Identity<'_>,
) -> Result<Package, BundleError> {
    let mut warnings = chart::Warnings::default();
    let mut chart = load_files_within(files, budget, decoded, &mut warnings)?;
    let annotations = chart.metadata.annotations.get_or_insert_with(BTreeMap::new);
    annotations.retain(|key, _| !SAID_BY_THE_AGENT.contains(&key.as_str()));
    annotations.extend(annotations_of(options, identity));
    Ok(Package {
        chart,
        warnings,
        kustomization: None,
    })
}

/// The annotations every chart gets, and with it every release record.
pub fn annotations_of(
    options: &BundleDeploymentOptions,
    identity: Identity<'_>,
) -> BTreeMap<String, String> {
    let mut annotations = BTreeMap::from([
        (
            ANNOTATION_SERVICE_ACCOUNT.to_owned(),
            options.service_account.clone(),
        ),
        (
            ANNOTATION_BUNDLE_ID.to_owned(),
            identity.bundle_deployment.to_owned(),
        ),
        (
            ANNOTATION_AGENT_NAMESPACE.to_owned(),
            identity.agent_namespace.to_owned(),
        ),
        (
            ANNOTATION_KEEP_RESOURCES.to_owned(),
            options.keep_resources.to_string(),
        ),
    ]);
    if !identity.commit.is_empty() {
        annotations.insert(ANNOTATION_COMMIT.to_owned(), identity.commit.to_owned());
    }
    annotations
}

/// All files below the directory of `chart_yaml`, with paths relative to it.
fn moved(resources: Vec<Resource>, chart_yaml: &str) -> Vec<(String, Resource)> {
    let directory = chart_yaml
        .rsplit_once('/')
        .map(|(directory, _)| format!("{directory}/"));
    let directory = directory.as_deref().unwrap_or_default();
    resources
        .into_iter()
        .filter_map(|resource| {
            let path = resource.name.strip_prefix(directory)?.to_owned();
            (!path.is_empty()).then_some((path, resource))
        })
        .collect()
}

fn generated_chart_yaml(
    bundle_deployment: &str,
    commit: &str,
    manifest_id: &str,
) -> Result<File, BundleError> {
    let name = bundle_deployment.rsplit('/').next().unwrap_or_default();
    let suffix = match commit.get(..COMMIT_LENGTH) {
        Some(short) if commit.len() > COMMIT_LENGTH => format!("git-{short}"),
        _ => manifest_id.to_owned(),
    };
    let chart = json!({"apiVersion": "v2", "name": name, "version": format!("v0.0.0+{suffix}")});
    let text =
        golib::yaml::encode(&chart).map_err(|error| BundleError::Content(error.to_string()))?;
    Ok(file("Chart.yaml".to_owned(), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_says_nothing_in_the_agents_name() {
        let said = SAID_BY_THE_AGENT.map(|key| (key, "by the author"));
        let said = BTreeMap::from(said).into_iter().chain([("own", "kept")]);
        let chart = json!({
            "apiVersion": "v2", "name": "web", "version": "1.0.0",
            "annotations": said.collect::<BTreeMap<_, _>>(),
        });
        let files = json!({"resources": [{"name": "Chart.yaml", "content": chart.to_string()}]});
        let manifest = Manifest::from_json(files.to_string().as_bytes()).unwrap();
        let identity = Identity {
            bundle_deployment: "app",
            agent_namespace: "system",
            commit: "",
        };
        let options = BundleDeploymentOptions::default();
        let package = from_manifest(&manifest, &options, identity, &mut Weight::new(1 << 20));
        let mut annotations = package.unwrap().chart.metadata.annotations.unwrap();
        assert_eq!(annotations.remove("own").as_deref(), Some("kept"));
        assert_eq!(annotations, annotations_of(&options, identity));
    }
}
