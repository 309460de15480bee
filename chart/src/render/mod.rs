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
use templating::{Dialect, Host, Limits, MissingKey, State, TemplateSet, Value};

use crate::{Capabilities, Chart, ReleaseInfo};

/// What a render depends on besides chart and values.
#[derive(Clone, Copy)]
pub struct RenderOptions<'a> {
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
}

impl<'a> RenderOptions<'a> {
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
        }
    }
}

/// Stack of the thread that renders. A thousand nested includes need a few megabytes; unoptimised, some ten times that.
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

/// Renders every template of a chart and its subcharts. `values` are the coalesced ones. The result maps the path of
/// each file, beginning with the chart's name, to its text; partials (`_helpers.tpl`) are not in it.
///
/// # Errors
/// When a template cannot be parsed or fails: rendering stops at the first. Also when the thread cannot be started.
pub fn render(
    chart: &Chart,
    values: &serde_json::Value,
    options: &RenderOptions<'_>,
) -> Result<BTreeMap<String, String>, RenderError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("render".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || render_here(chart, values, options))
            .map_err(RenderError::Thread)?;
        match thread.join() {
            Ok(result) => result,
            Err(panic) => Err(RenderError::Panic(panic_text(&*panic))),
        }
    })
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}

fn render_here(
    chart: &Chart,
    values: &serde_json::Value,
    options: &RenderOptions<'_>,
) -> Result<BTreeMap<String, String>, RenderError> {
    let _cycles = CycleGuard::new();
    let templates = scope::templates(chart, values, options);
    let order = order(&templates);
    let set = Arc::new(parse(&templates, &order, options)?);
    let limits = Limits {
        stack_bytes: STACK_BYTES - STACK_RESERVE,
        ..options.limits
    };
    let mut state = State::new(set, options.host, limits);
    let mut rendered = BTreeMap::new();
    for name in order {
        if golib::path::base(name.as_bytes()).starts_with(b"_") {
            continue;
        }
        let template = &templates[name];
        let dot = template.dot(name);
        let output = state
            .render(name, &Value::Map(dot))
            .map_err(|error| RenderError::execute(name, error))?;
        let text = String::from_utf8(without_no_value(output))
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        rendered.insert(name.to_owned(), text);
    }
    Ok(rendered)
}

fn parse(
    templates: &BTreeMap<String, Template<'_>>,
    order: &[&str],
    options: &RenderOptions<'_>,
) -> Result<TemplateSet, RenderError> {
    let dialect = if options.lint {
        Dialect::HelmLint
    } else {
        Dialect::Helm
    };
    let mut set = dialect.template_set("gotpl").with_max_depth(MAX_DEPTH);
    if options.strict {
        set = set.with_missing_key(MissingKey::Error);
    }
    for name in order {
        let text = templates[*name].text.to_vec();
        set.parse(name, text)
            .map_err(|error| RenderError::parse(name, error))?;
    }
    Ok(set)
}

/// Deepest path first, and backwards by name within one depth: what a parent defines replaces what its subcharts define.
fn order<'t>(templates: &'t BTreeMap<String, Template<'_>>) -> Vec<&'t str> {
    let mut names: Vec<&str> = templates.keys().map(String::as_str).collect();
    names.sort_by_key(|name| std::cmp::Reverse((name.matches('/').count(), *name)));
    names
}
