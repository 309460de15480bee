//! `fleetagent template NAME CHART`: what `helm template` prints, without helm and without a cluster.
//!
//! Mirrors `pkg/cmd/template.go` and the flags of `pkg/cmd/install.go` that matter there. Chart
//! repositories configured for helm (`repo/chart`) are not known; `--repo URL` and `oci://` are.

use std::io::Write as _;
use std::process::ExitCode;

use chart::rendered::{self, Options, RenderedError, Request, ShowOptions};
use chart::{Capabilities, KubeVersion, ReleaseInfo};
use templating::SystemHost;

use super::chart_flags::ChartFlags;
use super::value_flags::ValueFlags;

/// Flags of `fleetagent template`; names and meanings are helm's.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TemplateArgs {
    /// Release name, then chart: a directory, an archive, an oci:// reference, or a name with --repo.
    /// With one argument the release is called release-name
    #[arg(required = true, num_args = 1..=2, value_names = ["NAME", "CHART"])]
    pub names: Vec<String>,

    /// Namespace of the release
    #[arg(short, long, default_value = "default")]
    pub namespace: String,

    #[command(flatten)]
    pub values: ValueFlags,

    #[command(flatten)]
    pub chart: ChartFlags,

    /// Kubernetes version charts are told of
    #[arg(long, default_value = "", hide_default_value = true)]
    pub kube_version: String,

    /// Further API versions charts are told of
    #[arg(short, long, value_delimiter = ',')]
    pub api_versions: Vec<String>,

    /// Print the files of crds/ too
    #[arg(long)]
    pub include_crds: bool,

    /// Print the documents of these templates only
    #[arg(short, long)]
    pub show_only: Vec<String>,

    /// Tell templates that this is an upgrade
    #[arg(long)]
    pub is_upgrade: bool,

    /// Leave hooks out
    #[arg(long)]
    pub no_hooks: bool,

    /// Leave test hooks out
    #[arg(long)]
    pub skip_tests: bool,

    /// Do not check values against schemas
    #[arg(long)]
    pub skip_schema_validation: bool,

    /// On failure print what was rendered so far
    #[arg(long)]
    pub debug: bool,
}

/// Prints what the chart renders to; errors go to standard error as helm words them.
pub fn run(args: &TemplateArgs) -> ExitCode {
    let (output, error) = match template(args) {
        Ok(output) => (output, None),
        Err(failure) => (failure.output, Some(failure.message)),
    };
    // A reader that has gone away is no reason to hide the exit code.
    std::io::stdout().write_all(output.as_bytes()).ok();
    match error {
        None => ExitCode::SUCCESS,
        Some(message) => {
            writeln!(std::io::stderr(), "Error: {message}").ok();
            ExitCode::FAILURE
        }
    }
}

/// Why nothing, or only part, was printed.
struct Failure {
    message: String,
    output: String,
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self {
            message,
            output: String::new(),
        }
    }
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

fn template(args: &TemplateArgs) -> Result<String, Failure> {
    let mut capabilities = Capabilities::default();
    if !args.kube_version.is_empty() {
        capabilities.kube_version = KubeVersion::parse(&args.kube_version)
            .map_err(|error| format!("invalid kube version '{}': {error}", args.kube_version))?;
    }
    let known = capabilities.api_versions.iter().chain(&args.api_versions);
    capabilities.api_versions = known.cloned().collect();
    let (name, reference) = match args.names.as_slice() {
        [name, reference] => (name.as_str(), reference.as_str()),
        [reference] => ("release-name", reference.as_str()),
        _ => return Err("expected a release name and a chart".to_owned().into()),
    };
    let located = args.chart.locate(reference)?;
    let values = args.values.merge().map_err(text)?;
    let mut warnings = Vec::new();
    let chart = located.load(&mut warnings)?;
    rendered::check_installable(&chart).map_err(text)?;
    if chart.metadata.deprecated {
        warn("level=WARN msg=\"this chart is deprecated\"");
    }
    chart::validate_release_name(name).map_err(|error| {
        format!(
            "release name check failed: release name {}: {error}",
            golib::strconv::quote(name)
        )
    })?;
    let mut release = ReleaseInfo::install(name, &args.namespace);
    release.is_upgrade = args.is_upgrade;
    release.is_install = !args.is_upgrade;
    let rendered = rendered::render_release(&Request {
        chart: &chart,
        values: &values,
        release: &release,
        capabilities: &capabilities,
        host: &SystemHost,
        post_renderer: None,
        options: Options {
            include_crds: args.include_crds,
            skip_schema_validation: args.skip_schema_validation,
            ..Options::default()
        },
    })
    .map_err(|error| failure(args, error))?;
    for warning in warnings.iter().chain(&rendered.warnings) {
        warn(&warning.in_helms_words());
    }
    let show = ShowOptions {
        no_hooks: args.no_hooks,
        skip_tests: args.skip_tests,
        show_only: args.show_only.clone(),
    };
    Ok(rendered.show(&show).map_err(text)?)
}

fn failure(args: &TemplateArgs, error: RenderedError) -> Failure {
    let message = error.to_string();
    if !error.is_from_rendering() {
        return message.into();
    }
    if !args.debug {
        return format!("{message}\n\nUse --debug flag to render out invalid YAML").into();
    }
    let output = match error {
        RenderedError::Sort { output, .. } => format!("{}\n", output.trim()),
        _ => String::new(),
    };
    Failure { message, output }
}

fn warn(text: &str) {
    writeln!(std::io::stderr(), "{text}").ok();
}
