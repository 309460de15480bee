//! From a chart and its user's values to what a release consists of: manifests in order, hooks and
//! notes.
//!
//! Mirrors the part of Helm's install and upgrade that needs no cluster: dependency processing,
//! coalescing, schema, the kubeVersion check, rendering, post-rendering and sorting (`renderResources`
//! of `pkg/action/action.go`). `helm template` is exactly this.

mod show;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use golib::budget::Allowance;
use serde_json::Value;
use templating::{Host, Limits, TemplateCache};

pub use show::{NotFound, ShowOptions};

use crate::capabilities::Capabilities;
use crate::chart::{Chart, Crd};
use crate::dependency;
use crate::manifest::{self, Hook, INSTALL_ORDER, Manifest, SortError};
use crate::post_render::{self, PostRenderError, PostRenderer, Strategy};
use crate::release_info::ReleaseInfo;
use crate::render::{self, EngineOptions, RenderError};
use crate::values::schema::{self, RemoteSchemas};
use crate::values::{self, CoalesceError, Effort};
use crate::warning::Warnings;

/// End of the path of files that are notes, not manifests.
const NOTES_SUFFIX: &str = "NOTES.txt";

/// The inputs of a render.
pub struct Request<'a> {
    /// The chart as loaded.
    pub chart: Chart,
    /// The user's values, kept as the release's `config`.
    pub values: &'a Value,
    /// The release, as templates see it.
    pub release: &'a ReleaseInfo,
    /// The cluster, as templates see it.
    pub capabilities: &'a Capabilities,
    /// Clock, randomness, host names and `lookup`.
    pub host: &'a (dyn Host + Sync),
    /// Changes documents before they are sorted.
    pub post_renderer: Option<&'a dyn PostRenderer>,
    /// Templates that were parsed before, shared between renders.
    pub templates: Option<&'a TemplateCache>,
    /// Where schemas are had from that a chart's schema refers to by address; otherwise it is broken.
    pub schemas: Option<&'a dyn RemoteSchemas>,
    /// Limits on values, schemas and rendered documents; those of templates are in the options.
    pub allowance: Allowance,
    /// Switches; the defaults are Helm's.
    pub options: RenderOptions,
}

/// Switches of a render. The defaults are Helm's.
#[derive(Debug, Clone, Copy, Default)]
pub struct RenderOptions {
    /// Put the files of `crds/` in front of the manifest.
    pub include_crds: bool,
    /// Do not check values against schemas.
    pub skip_schema_validation: bool,
    /// Show the notes of subcharts too.
    pub sub_notes: bool,
    /// Leave the contents of Secrets out of the manifest text.
    pub hide_secret: bool,
    /// What the post-renderer sees.
    pub post_render_strategy: Strategy,
    /// How much the templates may use.
    pub limits: Limits,
}

impl<'a> Request<'a> {
    /// A request with Helm's defaults and nothing that is optional.
    pub fn new(
        chart: Chart,
        values: &'a Value,
        release: &'a ReleaseInfo,
        capabilities: &'a Capabilities,
        host: &'a (dyn Host + Sync),
    ) -> Self {
        Self {
            chart,
            values,
            release,
            capabilities,
            host,
            post_renderer: None,
            templates: None,
            schemas: None,
            allowance: Allowance::default(),
            options: RenderOptions::default(),
        }
    }
}

/// A rendered release.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    /// The chart as it was used: disabled dependencies gone, aliases applied, imported values in its
    /// defaults. This is what a release record stores.
    pub chart: Chart,
    /// The manifest as a release record stores it; hooks are not in it.
    pub manifest: String,
    /// The documents of the manifest, in install order. CRDs of `crds/` are not among them.
    pub manifests: Vec<Manifest>,
    /// Hooks, in kind order.
    pub hooks: Vec<Hook>,
    /// The root chart's notes.
    pub notes: String,
    /// The files of `crds/`.
    pub crds: Vec<Crd>,
    /// What Helm would have logged.
    pub warnings: Warnings,
}

/// A release that cannot be rendered. The text is Helm's.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RenderedError {
    /// Charts of the third generation cannot be installed.
    #[error("invalid chart apiVersion")]
    ApiVersion,
    /// Values do not fit the chart's dependencies.
    #[error("chart dependencies processing failed: {0}")]
    Dependencies(#[source] CoalesceError),
    /// Values do not fit the chart.
    #[error(transparent)]
    Values(CoalesceError),
    /// Values do not fit the chart's schemas.
    #[error(
        "values don't meet the specifications of the schema(s) in the following chart(s):\n{0}"
    )]
    Schema(#[source] schema::SchemaErrors),
    /// The host ended it while values were checked against schemas: [`Host::check`].
    #[error(transparent)]
    Ended(templating::Error),
    /// The cluster's version does not fit the chart.
    #[error("chart requires kubeVersion: {expected} which is incompatible with Kubernetes {found}")]
    KubeVersion {
        /// The chart's constraint.
        expected: String,
        /// The cluster's version.
        found: String,
    },
    /// A template failed.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// The post-renderer failed.
    #[error(transparent)]
    PostRender(#[from] PostRenderError),
    /// A rendered document cannot be read.
    #[error("{source}")]
    Sort {
        /// The document, and its error.
        source: SortError,
        /// All rendered documents, for `--debug`.
        output: String,
    },
}

/// A chart `helm template` and `helm install` refuse before looking at values. The text is Helm's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotInstallable {
    /// The chart only lends templates to others.
    #[error("{0} charts are not installable")]
    Type(String),
    /// Listed dependencies are not vendored.
    #[error(
        "an error occurred while checking for chart dependencies. You may need to run 'helm \
         dependency build' to fetch missing dependencies: found in Chart.yaml, but missing in charts/ \
         directory: {}",
        .0.join(", ")
    )]
    MissingDependencies(Vec<String>),
}

/// Checks that the chart is no library.
///
/// ```
/// use chart::rendered::{NotInstallable, check_type};
///
/// let mut library = chart::Chart::default();
/// library.metadata.chart_type = "library".to_owned();
/// assert!(matches!(check_type(&library), Err(NotInstallable::Type(_))));
/// ```
///
/// # Errors
/// [`NotInstallable::Type`].
pub fn check_type(chart: &Chart) -> Result<(), NotInstallable> {
    match chart.metadata.chart_type.as_str() {
        "" | "application" => Ok(()),
        other => Err(NotInstallable::Type(other.to_owned())),
    }
}

/// Checks that everything the chart lists is vendored, whatever its version.
///
/// ```
/// use chart::rendered::{NotInstallable, check_dependencies};
///
/// let mut chart = chart::Chart::default();
/// chart.metadata.dependencies.push(chart::Dependency { name: "db".into(), ..Default::default() });
/// assert!(matches!(check_dependencies(&chart), Err(NotInstallable::MissingDependencies(_))));
/// ```
///
/// # Errors
/// [`NotInstallable::MissingDependencies`].
pub fn check_dependencies(chart: &Chart) -> Result<(), NotInstallable> {
    let vendored = |name: &str| chart.dependencies.iter().any(|chart| chart.name() == name);
    let listed = chart
        .metadata
        .dependencies
        .iter()
        .map(|dependency| &dependency.name);
    let missing: Vec<String> = listed.filter(|name| !vendored(name)).cloned().collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(NotInstallable::MissingDependencies(missing))
    }
}

impl RenderedError {
    /// Whether values were fine and rendering began: then `helm template` points at `--debug`.
    pub fn is_from_rendering(&self) -> bool {
        match self {
            Self::ApiVersion
            | Self::Dependencies(_)
            | Self::Values(_)
            | Self::Schema(_)
            | Self::Ended(_) => false,
            Self::KubeVersion { .. }
            | Self::Render(_)
            | Self::PostRender(_)
            | Self::Sort { .. } => true,
        }
    }
}

/// Renders a release. The same request gives the same answer, but for what `host` makes different.
///
/// ```
/// use chart::rendered::{Request, RenderedError, render_release};
/// use chart::{Capabilities, File, ReleaseInfo, loader::load_files};
/// use serde_json::Value;
/// use templating::SystemHost;
///
/// let files = vec![
///     File::new("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
///     File::new("templates/map.yaml", "kind: ConfigMap\ndata:\n  a: {{ .Values.a.b | quote }}\n"),
/// ];
/// let chart = load_files(files, &mut chart::Warnings::default())?;
/// let (release, capabilities) = (ReleaseInfo::install("blog", "default"), Capabilities::default());
/// let request = Request::new(chart, &Value::Null, &release, &capabilities, &SystemHost);
/// let error = render_release(request).unwrap_err();
/// assert!(matches!(error, RenderedError::Render(_)));
/// assert!(error.to_string().contains("nil pointer evaluating interface {}.b"));
/// # Ok::<(), chart::loader::LoadError>(())
/// ```
///
/// # Errors
/// The chart, its values or its templates do not work out; see [`RenderedError`].
pub fn render_release(request: Request<'_>) -> Result<Rendered, RenderedError> {
    let mut warnings = Warnings::default();
    let mut rendered = render_and_warn(request, &mut warnings)?;
    rendered.warnings = warnings;
    Ok(rendered)
}

/// Like [`render_release`], with the warnings in `warnings` also when it fails.
///
/// ```
/// use chart::loader::load_files;
/// use chart::rendered::{Request, render_and_warn};
/// use chart::{Capabilities, File, ReleaseInfo};
/// use serde_json::json;
/// use templating::SystemHost;
///
/// let files = vec![
///     File::new("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
///     File::new("values.yaml", "image: a text\n"),
///     File::new("templates/map.yaml", "{{ fail \"no\" }}"),
/// ];
/// let chart = load_files(files, &mut chart::Warnings::default())?;
/// let (release, capabilities) = (ReleaseInfo::install("blog", "default"), Capabilities::default());
/// let values = json!({ "image": { "tag": 1 } }); // a table in the place of a text
/// let mut warnings = chart::Warnings::default();
/// let request = Request::new(chart, &values, &release, &capabilities, &SystemHost);
/// assert!(render_and_warn(request, &mut warnings).is_err());
/// assert_eq!(warnings.iter().count(), 1);
/// # Ok::<(), chart::loader::LoadError>(())
/// ```
///
/// # Errors
/// As [`render_release`].
pub fn render_and_warn(
    request: Request<'_>,
    warnings: &mut Warnings,
) -> Result<Rendered, RenderedError> {
    let mut chart = request.chart;
    chart.forget_values_files();
    if chart.experimental {
        return Err(RenderedError::ApiVersion);
    }
    let allowance = &request.allowance;
    dependency::process_within(&mut chart, request.values, allowance, warnings)
        .map_err(RenderedError::Dependencies)?;
    let coalesce = |warnings: &mut Warnings| {
        let effort = &mut Effort::within(allowance);
        values::coalesce_within(&chart, request.values, effort, warnings)
    };
    let coalesced = coalesce(warnings).map_err(RenderedError::Values)?;
    if !request.options.skip_schema_validation {
        let schemas = request.schemas;
        let is_wanted = || request.host.check().is_ok();
        schema::validate_within(&chart, &coalesced, schemas, allowance, &is_wanted, warnings)
            .map_err(|misfits| match request.host.check() {
                Ok(()) => RenderedError::Schema(misfits),
                Err(ended) => RenderedError::Ended(ended),
            })?;
    }
    check_kube_version(&chart, request.capabilities)?;

    let options = EngineOptions {
        limits: request.options.limits,
        templates: request.templates,
        ..EngineOptions::new(request.release, request.capabilities, request.host)
    };
    let mut coalesced = Some(coalesced);
    let mut values = || match coalesced.take() {
        Some(values) => values,
        None => coalesce(&mut Warnings::default()).unwrap_or_default(),
    };
    let mut files = texts(render::render_bytes(&chart, &mut values, &options)?)?;
    let notes = take_notes(&mut files, chart.name(), request.options.sub_notes);
    let sorted = match request.post_renderer {
        None => manifest::sort_manifests(files, INSTALL_ORDER, warnings),
        Some(renderer) => {
            let strategy = request.options.post_render_strategy;
            let documents = post_render::apply(renderer, strategy, files, allowance, warnings)?;
            manifest::sort_pieces(documents, INSTALL_ORDER, warnings)
        }
    };
    let sorted = sorted.map_err(|mut source| {
        let files = std::mem::take(&mut source.files);
        RenderedError::Sort {
            source,
            output: everything(&files),
        }
    })?;

    let crds = chart.crds();
    let included = match request.options.include_crds {
        true => crds.as_slice(),
        false => &[],
    };
    // A text that grows by and by takes up to twice its size for as long as the release is worked on.
    let sizes = included
        .iter()
        .map(|crd| document_bytes(&crd.path, crd.file.data.len()));
    let sizes = sizes.chain(
        sorted
            .manifests
            .iter()
            .map(|one| document_bytes(&one.path, one.content.len())),
    );
    let mut text = String::with_capacity(sizes.sum());
    for crd in included {
        push_document(
            &mut text,
            &crd.path,
            &String::from_utf8_lossy(&crd.file.data),
        );
    }
    for manifest in &sorted.manifests {
        let head = &manifest.head;
        if request.options.hide_secret && head.kind == "Secret" && head.api_version == "v1" {
            let _ = write!(
                text,
                "---\n# Source: {}\n# HIDDEN: The Secret output has been suppressed\n",
                manifest.path
            );
        } else {
            push_document(&mut text, &manifest.path, &manifest.content);
        }
    }
    Ok(Rendered {
        chart,
        manifest: text,
        manifests: sorted.manifests,
        hooks: sorted.hooks,
        notes,
        crds,
        warnings: Warnings::default(),
    })
}

fn check_kube_version(chart: &Chart, capabilities: &Capabilities) -> Result<(), RenderedError> {
    let expected = &chart.metadata.kube_version;
    let found = &capabilities.kube_version;
    if expected.is_empty() || dependency::is_compatible_range(expected, found.for_constraints()) {
        return Ok(());
    }
    Err(RenderedError::KubeVersion {
        expected: expected.clone(),
        found: found.version.clone(),
    })
}

/// Rendered files as text. Only notes may be anything else.
fn texts(files: BTreeMap<String, Vec<u8>>) -> Result<BTreeMap<String, String>, RenderedError> {
    let mut texts = BTreeMap::new();
    for (path, bytes) in files {
        if !path.ends_with(NOTES_SUFFIX)
            && let Some(source) = manifest::find_fault(&bytes)
        {
            let (source, output) = (manifest::SortError::new(path, source), String::new());
            return Err(RenderedError::Sort { source, output });
        }
        texts.insert(path, golib::utf8::to_string(bytes));
    }
    Ok(texts)
}

/// Takes every `…NOTES.txt` out of the files; returns the root chart's, or all of them.
fn take_notes(files: &mut BTreeMap<String, String>, chart: &str, all: bool) -> String {
    let own = format!("{chart}/templates/{NOTES_SUFFIX}");
    let mut notes = String::new();
    files.retain(|path, content| {
        if !path.ends_with(NOTES_SUFFIX) {
            return true;
        }
        if all || *path == own {
            if !notes.is_empty() {
                notes.push('\n');
            }
            notes.push_str(content);
        }
        false
    });
    notes
}

/// How many bytes [`push_document`] adds, about.
fn document_bytes(path: &str, content: usize) -> usize {
    "---\n# Source: \n\n".len() + path.len() + content
}

fn push_document(text: &mut String, path: &str, content: &str) {
    let _ = write!(text, "---\n# Source: {path}\n{content}\n");
}

fn everything(files: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for (path, content) in files
        .iter()
        .filter(|(_, content)| !content.trim().is_empty())
    {
        push_document(&mut text, path, content);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_come_in_the_order_of_their_paths() {
        let notes = |all| {
            let mut files = BTreeMap::new();
            for (path, text) in [
                ("web/templates/NOTES.txt", "web"),
                ("web/charts/b/templates/NOTES.txt", "b"),
                ("web/charts/a/templates/NOTES.txt", "a"),
                ("web/templates/a.yaml", "kind: A"),
            ] {
                files.insert(path.to_owned(), text.to_owned());
            }
            let notes = take_notes(&mut files, "web", all);
            assert_eq!(files.len(), 1, "notes are no manifests");
            notes
        };
        assert_eq!(notes(true), "a\nb\nweb");
        assert_eq!(notes(false), "web");
    }

    /// Its time is up.
    struct Late;

    impl Host for Late {
        fn check(&self) -> Result<(), templating::Error> {
            Err(templating::Error::limit("too late"))
        }
    }

    #[test]
    fn a_host_ends_checking_against_schemas() {
        let chart = Chart {
            schema: Some(
                br#"{"items": {"type": "integer"}, "additionalProperties": true}"#
                    .to_vec()
                    .into(),
            ),
            ..Chart::default()
        };
        let values = (0..20_000).map(|at| (format!("k{at}"), Value::Null));
        let values = Value::Object(values.collect());
        let (release, capabilities) = (ReleaseInfo::install("r", "n"), Capabilities::default());
        let request = Request::new(chart, &values, &release, &capabilities, &Late);
        let ended = render_release(request).unwrap_err();
        assert!(matches!(ended, RenderedError::Ended(_)), "{ended}");
        assert_eq!(ended.to_string(), "too late");
    }

    struct Unchanged;

    impl PostRenderer for Unchanged {
        fn run(
            &self,
            documents: Vec<post_render::Document>,
        ) -> Result<Vec<post_render::Document>, Box<dyn std::error::Error + Send + Sync>> {
            Ok(documents)
        }
    }

    /// A few kilobytes that come to more than a mebibyte, in each of the places where a chart has them read.
    #[test]
    fn exceeding_the_memory_allowance_is_noted_for_every_chart_file() {
        let maps = vec!["{a: 1}"; 2_000].join(", ");
        let schema = format!(
            r#"{{"not": {{"const": [{}]}}}}"#,
            maps.replace('a', "\"a\"")
        );
        let document = format!("kind: A\nspec: [{maps}]\n");
        let subchart = "apiVersion: v2\nname: sub\nversion: 1.0.0\n";
        let aliases: String = (0..20)
            .map(|at| format!("- {{name: sub, version: 1.0.0, alias: a{at}}}\n"))
            .collect();
        let web = |more: &str| format!("apiVersion: v2\nname: web\nversion: 1.0.0\n{more}");
        let some = vec!["{a: 1}"; 100].join(", ");
        for (name, chart_yaml, text) in [
            ("values.yaml", web(""), format!("list: [{maps}]\n")),
            ("values.schema.json", web(""), schema),
            ("templates/a.yaml", web(""), document),
            (
                "charts/sub/values.yaml",
                web(&format!("dependencies:\n{aliases}")),
                format!("list: [{some}]\n"),
            ),
        ] {
            let render = |limit: usize| {
                let files = vec![
                    crate::File::new("Chart.yaml", chart_yaml.clone()),
                    crate::File::new("charts/sub/Chart.yaml", subchart),
                    crate::File::new(name, text.clone()),
                ];
                let chart = crate::loader::load_files(files, &mut Warnings::default()).unwrap();
                let (release, capabilities) = (
                    ReleaseInfo::install("blog", "default"),
                    Capabilities::default(),
                );
                let allowance = Allowance::new(limit);
                let request = Request {
                    post_renderer: Some(&Unchanged),
                    allowance: allowance.clone(),
                    ..Request::new(
                        chart,
                        &Value::Null,
                        &release,
                        &capabilities,
                        &templating::SystemHost,
                    )
                };
                (render_release(request).is_ok(), allowance.is_exceeded())
            };
            assert_eq!(render(1 << 20), (false, true), "{name}");
            assert_eq!(render(8 << 20), (true, false), "{name}");
        }
    }
}
