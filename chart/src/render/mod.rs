//! Helm's engine: a chart and its values to the text of its manifests.
//!
//! Mirrors `pkg/engine/engine.go` of Helm 4. Rendering is a pure function of the chart, the values, the release and the
//! [`Host`]; splitting the output into manifests and hooks happens elsewhere.

mod capabilities;
mod error;
mod files;
mod scope;
mod values;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use error::RenderError;
use scope::Template;
use templating::funcs::without_no_value;
use templating::value::CycleGuard;
use templating::{
    Dialect, Error, Host, Limits, MissingKey, Renderer, TemplateCache, TemplateSet, Value,
};

use crate::capabilities::Capabilities;
use crate::chart::Chart;
use crate::release_info::ReleaseInfo;

/// What a render depends on besides chart and values.
#[derive(Clone, Copy)]
pub struct EngineOptions<'a> {
    /// `.Release`.
    pub release: &'a ReleaseInfo,
    /// `.Capabilities`.
    pub capabilities: &'a Capabilities,
    /// `lookup`, the clock, randomness, and host names where they may be resolved.
    pub host: &'a (dyn Host + Sync),
    /// Missing keys are errors.
    pub strict: bool,
    /// `required` and `fail` let everything pass, `lookup` finds nothing.
    pub lint: bool,
    /// What the render may use up; its stack limit is replaced, as rendering has a stack of its own.
    pub limits: Limits,
    /// Templates that were parsed before, to be shared.
    pub templates: Option<&'a TemplateCache>,
}

impl<'a> EngineOptions<'a> {
    /// The options of an ordinary install.
    pub fn new(
        release: &'a ReleaseInfo,
        capabilities: &'a Capabilities,
        host: &'a (dyn Host + Sync),
    ) -> Self {
        Self {
            release,
            capabilities,
            host,
            strict: false,
            lint: false,
            limits: Limits::default(),
            templates: None,
        }
    }
}

/// Stack that a render may use where it was called: nearly all need less, and a thread of their own would take small ones
/// longer than the work.
const NEAR_STACK_BYTES: usize = 512 << 10;
/// Stack of the thread that renders what nests deeper. A thousand nested includes need a few megabytes; unoptimised, some ten times that.
/// Only what is used is ever backed by memory.
const STACK_BYTES: usize = if cfg!(debug_assertions) {
    512 << 20
} else {
    64 << 20
};
/// Nested parentheses, as many as Go allows.
const MAX_DEPTH: usize = 10_000;
/// What the deepest function may still need when the limit is reached.
const STACK_RESERVE: usize = 4 << 20;

/// Output of templates, by the path of each file.
type Files = BTreeMap<String, Vec<u8>>;

/// Renders every template of a chart and its subcharts. `values` are the coalesced ones. The result maps the path of
/// each file, beginning with the chart's name, to its text; partials (`_helpers.tpl`) are not in it. Bytes that are
/// not UTF-8 become U+FFFD.
///
/// ```
/// use chart::render::{EngineOptions, render};
/// use chart::{Capabilities, File, ReleaseInfo, loader::load_files, values::coalesce_values};
/// use serde_json::Value;
/// use templating::SystemHost;
///
/// let files = vec![
///     File::new("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
///     File::new("templates/_name.tpl", "{{ define \"name\" }}{{ .Release.Name }}-web{{ end }}"),
///     File::new("templates/map.yaml", "name: {{ include \"name\" . }}"),
/// ];
/// let chart = load_files(files, &mut chart::Warnings::default())?;
/// let values = coalesce_values(&chart, &Value::Null, &mut chart::Warnings::default())?;
/// let (release, capabilities) = (ReleaseInfo::install("blog", "default"), Capabilities::default());
/// let options = EngineOptions::new(&release, &capabilities, &SystemHost);
/// let files = render(&chart, &values, &options)?;
/// assert_eq!(files["web/templates/map.yaml"], "name: blog-web");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When a template cannot be parsed or fails: rendering stops at the first. Also when a thread is needed and cannot be
/// started.
pub fn render(
    chart: &Chart,
    values: &serde_json::Value,
    options: &EngineOptions<'_>,
) -> Result<BTreeMap<String, String>, RenderError> {
    let text = |(path, bytes)| (path, golib::utf8::to_string(bytes));
    Ok(render_bytes(chart, &mut || values.clone(), options)?
        .into_iter()
        .map(text)
        .collect())
}

/// [`render`], with the bytes as they came. `values` gives the values for one attempt: templates may change what they are
/// given, and values take too much room to keep them for an attempt that hardly ever comes.
pub(crate) fn render_bytes(
    chart: &Chart,
    values: &mut dyn FnMut() -> serde_json::Value,
    options: &EngineOptions<'_>,
) -> Result<Files, RenderError> {
    let given = values();
    // A mistake of ours costs one chart. Nothing that may be left half done outlives the render.
    let current = || render_here(chart, given, options, Stack::Current);
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(current)) {
        Ok(Some(result)) => result,
        Ok(None) => render_apart(chart, values(), options),
        Err(panic) => Err(RenderError::Panic(panic_text(&*panic))),
    }
}

/// Renders once more, on a thread with a large stack.
fn render_apart(
    chart: &Chart,
    values: serde_json::Value,
    options: &EngineOptions<'_>,
) -> Result<Files, RenderError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("render".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, move || {
                render_here(chart, values, options, Stack::Large)
            })
            .map_err(RenderError::Thread)?;
        match thread.join() {
            Ok(result) => result.unwrap_or(Ok(Files::new())),
            Err(panic) => Err(RenderError::Panic(panic_text(&*panic))),
        }
    })
}

/// The stack there is.
#[derive(Clone, Copy, PartialEq)]
enum Stack {
    /// What the caller has left.
    Current,
    /// All that any chart may need.
    Large,
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}

/// `None`: it takes more room.
fn render_here(
    chart: &Chart,
    values: serde_json::Value,
    options: &EngineOptions<'_>,
    stack: Stack,
) -> Option<Result<Files, RenderError>> {
    let _cycles = CycleGuard::new();
    let templates = scope::templates(chart, values, options);
    let order = order(&templates);
    let set = match parse(&templates, &order, options, stack) {
        Ok(set) => Arc::new(set),
        Err(error) => {
            let is_too_deep = error.template_error().is_some_and(Error::is_too_deep);
            return (stack == Stack::Large || !is_too_deep).then_some(Err(error));
        }
    };
    let stack_bytes = match stack {
        Stack::Current => NEAR_STACK_BYTES,
        Stack::Large => STACK_BYTES - STACK_RESERVE,
    };
    let limits = Limits {
        stack_bytes,
        ..options.limits
    };
    let mut renderer = Renderer::new(set, options.host, limits);
    let rendered = execute(&mut renderer, &templates, order);
    (stack == Stack::Large || !renderer.ran_out_of_stack()).then_some(rendered)
}

fn execute(
    renderer: &mut Renderer<'_>,
    templates: &BTreeMap<String, Template<'_>>,
    order: Vec<&str>,
) -> Result<Files, RenderError> {
    let mut rendered = BTreeMap::new();
    for name in order {
        if golib::path::base(name.as_bytes()).starts_with(b"_") {
            continue;
        }
        let template = &templates[name];
        let dot = template.dot(name);
        let output = renderer
            .render(name, &Value::Map(dot))
            .map_err(|error| RenderError::execute(name, error))?;
        rendered.insert(name.to_owned(), without_no_value(output));
    }
    Ok(rendered)
}

fn parse(
    templates: &BTreeMap<String, Template<'_>>,
    order: &[&str],
    options: &EngineOptions<'_>,
    stack: Stack,
) -> Result<TemplateSet, RenderError> {
    let dialect = if options.lint {
        Dialect::HelmLint
    } else {
        Dialect::Helm
    };
    let mut set = dialect.template_set("gotpl");
    if stack == Stack::Large {
        set = set.with_max_depth(MAX_DEPTH);
    }
    if options.strict {
        set = set.with_missing_key(MissingKey::Error);
    }
    for name in order {
        let text = templates[*name].text.clone();
        let parsed = match options.templates {
            Some(cache) => set.parse_cached(name, text, cache),
            None => set.parse_shared(name, text),
        };
        parsed.map_err(|error| RenderError::parse(name, error))?;
    }
    Ok(set)
}

/// Deepest path first, and backwards by name within one depth: what a parent defines replaces what its subcharts define.
fn order<'t>(templates: &'t BTreeMap<String, Template<'_>>) -> Vec<&'t str> {
    let mut names: Vec<&str> = templates.keys().map(String::as_str).collect();
    names.sort_by_key(|name| std::cmp::Reverse((name.matches('/').count(), *name)));
    names
}
