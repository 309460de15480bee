//! `fleetagent values [NAME] [CHART]`: the values a cluster gets, from files, without a cluster.
//!
//! Shows what stands in a Bundle, a BundleDeployment or on the command line, what `${ }` templating
//! makes of it with the facts of a cluster, and where each value comes from. What the agent does with
//! the same input is [`crate::values`]; nothing here decides anything else.

mod flags;
mod input;
mod report;

use std::io::Write as _;
use std::process::ExitCode;

use chart::{Chart, dependency};
use golib::{json, yaml};
use serde_json::Value;
use templating::SystemHost;

use crate::values::{self, Values};
pub use flags::{Output, ValuesArgs};
use input::Input;
use report::Report;

/// Prints the values; errors go to standard error.
pub fn run(args: &ValuesArgs) -> ExitCode {
    match report(args) {
        Ok(text) => {
            // A reader that has gone away is no reason to hide the exit code.
            std::io::stdout().write_all(text.as_bytes()).ok();
            ExitCode::SUCCESS
        }
        Err(message) => {
            writeln!(std::io::stderr(), "Error: {message}").ok();
            ExitCode::FAILURE
        }
    }
}

/// The text the command prints.
///
/// # Errors
/// A file is not what it should be, a template fails, or the chart cannot be had.
pub fn report(args: &ValuesArgs) -> Result<String, String> {
    let mut input = Input::read(args)?;
    let before = values::inline(input.helm.values.as_ref());
    let filled = match input.is_processed {
        true => Some(before.clone()),
        false => {
            let requires_labels = args.bundle.is_some();
            if requires_labels && input.facts.visible_labels().is_empty() {
                let note = "nothing is filled in: the Cluster has no labels, and Fleet's controller fills in nothing then";
                input.notes.push(note.to_owned());
            }
            values::preprocess(
                Some(&input.helm),
                &input.facts,
                &SystemHost,
                requires_labels,
            )
            .map_err(|error| error.to_string())?
        }
    };
    let mut report = Report::new(&before, filled.unwrap_or_default(), &input);
    for over in &input.overlays {
        report.overlay(&over.name, &over.values);
    }
    if let Some(reference) = &input.chart_reference {
        let mut warnings = chart::Warnings::default();
        let located = input.coordinates.locate(reference, &args.helm)?;
        let mut chart = located.load(&mut warnings)?;
        let computed = compute(&mut chart, &report.after)?;
        report.with_chart(&chart, computed, args.all);
    }
    let object = serde_json::to_value(&report).map_err(|error| error.to_string())?;
    Ok(match args.output {
        Output::Text => report.text(),
        Output::Yaml => yaml::encode(&object).map_err(|error| error.to_string())?,
        Output::Json => format!("{}\n", json::encode_indent(&object, "", "  ")),
    })
}

/// What the templates of the chart see as `.Values`.
fn compute(chart: &mut Chart, user: &Values) -> Result<Values, String> {
    let user = Value::Object(user.clone());
    let mut warnings = chart::Warnings::default();
    dependency::process(chart, &user, &mut warnings).map_err(|error| error.to_string())?;
    let computed = chart::values::coalesce_values(chart, &user, &mut warnings)
        .map_err(|error| error.to_string())?;
    for warning in &warnings {
        writeln!(std::io::stderr(), "{warning}").ok();
    }
    match computed {
        Value::Object(computed) => Ok(computed),
        _ => Ok(Values::new()),
    }
}
