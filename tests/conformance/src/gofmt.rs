//! `gofmt.json`: what `printf`, `print` and `println` make of values, in templates with Helm's functions.

use std::sync::Arc;

use golib::json;
use golib::regexp::{Regexp, Steps};
use serde_json::Value as Json;
use templating::{Dialect, Limits, Renderer, SystemHost, TemplateSet, Value};

use crate::{Case, Outcome};

pub(crate) fn run(case: &Case) -> Outcome {
    render(case, Dialect::Helm.template_set("t"))
}

/// Renders a case's template `t`, with those it names beside it, and compares the output or the error.
pub(crate) fn render(case: &Case, set: TemplateSet) -> Outcome {
    // Recorded templates nest deeper than a library's default stack allows.
    let result = std::thread::scope(|scope| {
        std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || output(case, set))
            .map(|thread| thread.join())
    });
    match result {
        Ok(Ok(output)) => compare(case, output),
        Ok(Err(panic)) => std::panic::resume_unwind(panic),
        Err(error) => Outcome::failed(error, "a thread"),
    }
}

const STACK_BYTES: usize = 256 << 20;

fn output(case: &Case, mut set: TemplateSet) -> Result<Vec<u8>, String> {
    let templates: serde_json::Map<String, Json> = case.parse("templates").unwrap_or_default();
    for (name, text) in &templates {
        let text = text.as_str().unwrap_or_default();
        set.parse(name, text).map_err(|error| error.to_string())?;
    }
    let text = case.bytes("template").unwrap_or_default();
    set.parse("t", text).map_err(|error| error.to_string())?;
    let data = Value::from(json::floats(case.get("data").cloned().unwrap_or_default()));
    let limits = Limits {
        stack_bytes: STACK_BYTES - (16 << 20),
        ..Limits::default()
    };
    let mut renderer = Renderer::new(Arc::new(set), &SystemHost, limits);
    renderer
        .render("t", &data)
        .map_err(|error| error.to_string())
}

fn compare(case: &Case, output: Result<Vec<u8>, String>) -> Outcome {
    if let Some(pattern) = case.text("match") {
        let steps = &mut Steps::new(u64::MAX);
        let pattern = match Regexp::compile(format!(r"\A(?:{pattern})\z")) {
            Ok(pattern) => pattern,
            Err(error) => return Outcome::failed(error, "a pattern"),
        };
        return match output {
            Ok(output) if pattern.is_match(&output, steps) == Ok(true) => Outcome::Passed,
            Ok(output) => Outcome::failed(
                String::from_utf8_lossy(&output),
                case.text("match").unwrap_or("?"),
            ),
            Err(error) => Outcome::failed(error, "an output"),
        };
    }
    match (output, case.bytes("want"), case.bytes("err")) {
        (Ok(output), Some(want), _) if output == want => Outcome::Passed,
        (Err(error), _, Some(want)) if error.as_bytes() == want => Outcome::Passed,
        (Ok(output), want, err) => Outcome::failed(
            String::from_utf8_lossy(&output),
            String::from_utf8_lossy(&want.or(err).unwrap_or_default()),
        ),
        (Err(error), want, err) => Outcome::failed(
            error,
            String::from_utf8_lossy(&err.or(want).unwrap_or_default()),
        ),
    }
}
