//! `fleetagent values [NAME] [CHART]`: the values a cluster gets, from files, without a cluster.
//!
//! Shows what stands in a Bundle, a BundleDeployment or on the command line, what `${ }` templating
//! makes of it with the facts of a cluster, and where each value comes from. What the agent does with
//! the same input is [`crate::values`]; nothing here decides anything else.

mod input;
mod report;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use chart::{Chart, dependency};
use golib::{json, yaml};
use helmcli::chart_flags::ChartFlags;
use helmcli::helm_home::HelmFlags;
use helmcli::value_flags::ValueFlags;
use serde_json::Value;
use templating::SystemHost;

use crate::config::ClusterValuesMode;
use crate::values::{self, Values};
use input::Input;
use report::Report;

/// Flags of `fleetagent values`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ValuesArgs {
    /// Release name, then chart: a directory, an archive, an oci:// reference, or a name with --repo.
    /// One argument is the chart; a bundle may name both
    #[arg(num_args = 0..=2, value_names = ["NAME", "CHART"])]
    pub names: Vec<String>,

    /// Facts of the cluster: a Fleet Cluster, a ConfigMap as a site keeps it, or their YAML; later files
    /// over earlier ones
    #[arg(long, value_name = "FILE")]
    pub cluster: Vec<PathBuf>,

    /// Take options from this Bundle
    #[arg(long, value_name = "FILE", conflicts_with = "bundle_deployment")]
    pub bundle: Option<PathBuf>,

    /// Take options from this BundleDeployment
    #[arg(long, value_name = "FILE")]
    pub bundle_deployment: Option<PathBuf>,

    /// ConfigMaps and Secrets the bundle refers to
    #[arg(long, value_name = "FILE")]
    pub resource: Vec<PathBuf>,

    #[command(flatten)]
    pub values: ValueFlags,

    #[command(flatten)]
    pub chart: ChartFlags,

    /// Who fills in a BundleDeployment, where its annotation does not say: auto, always or never
    #[arg(long, default_value = "auto")]
    pub mode: ClusterValuesMode,

    #[command(flatten)]
    pub helm: HelmFlags,

    /// Show the chart's defaults too
    #[arg(short, long)]
    pub all: bool,

    /// How to print
    #[arg(short, long, value_enum, default_value = "text")]
    pub output: Output,
}

/// How to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people: each value, where it comes from, and what it was before
    #[default]
    Text,
    /// One YAML document
    Yaml,
    /// The same in JSON
    Json,
}

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

/// What is printed.
///
/// # Errors
/// A file is not what it should be, a template fails, or the chart cannot be had.
pub fn report(args: &ValuesArgs) -> Result<String, String> {
    let input = Input::read(args)?;
    let before = values::inline(input.helm.values.as_ref());
    let filled = match input.is_processed {
        true => Some(before.clone()),
        false => {
            let requires_labels = args.bundle.is_some();
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
    Ok(match args.output {
        Output::Text => report.text(),
        Output::Yaml => yaml::encode(&report.object()).map_err(|error| error.to_string())?,
        Output::Json => format!("{}\n", json::encode_indent(&report.object(), "", "  ")),
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
