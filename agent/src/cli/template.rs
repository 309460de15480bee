//! `fleetagent template NAME CHART`: what `helm template` prints, without helm and without a cluster.
//!
//! Mirrors `pkg/cmd/template.go` and the flags of `pkg/cmd/install.go` that matter there. Chart
//! repositories configured for helm (`repo/chart`) are not known; `--repo URL` and `oci://` are.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use chart::rendered::{self, Options, RenderedError, Request, ShowOptions};
use chart::source::{Access, ChartRef, Credentials, Fetcher, Settings};
use chart::values::options;
use chart::{Capabilities, Chart, KubeVersion, ReleaseInfo, Warning, loader};
use templating::SystemHost;

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

    /// Values files, later ones first in priority; - is standard input
    #[arg(short = 'f', long = "values", value_delimiter = ',')]
    pub values: Vec<String>,

    /// Values as JSON: key=json,… or one JSON object
    #[arg(long)]
    pub set_json: Vec<String>,

    /// Values: key=value,…
    #[arg(long)]
    pub set: Vec<String>,

    /// Values that stay text: key=value,…
    #[arg(long)]
    pub set_string: Vec<String>,

    /// Values from files: key=path,…
    #[arg(long)]
    pub set_file: Vec<String>,

    /// One value taken as it is: key=value
    #[arg(long)]
    pub set_literal: Vec<String>,

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

    /// Chart repository to take the chart from
    #[arg(long, default_value = "", hide_default_value = true)]
    pub repo: String,

    /// Version or constraint of the chart to take
    #[arg(long, default_value = "", hide_default_value = true)]
    pub version: String,

    /// User name for the repository or registry
    #[arg(long, default_value = "", hide_default_value = true)]
    pub username: String,

    /// Password for the repository or registry
    #[arg(long, default_value = "", hide_default_value = true)]
    pub password: String,

    /// Certificates to trust when fetching, in PEM
    #[arg(long)]
    pub ca_file: Option<std::path::PathBuf>,

    /// Accept any certificate when fetching
    #[arg(long)]
    pub insecure_skip_tls_verify: bool,

    /// Fetch from the registry without TLS
    #[arg(long)]
    pub plain_http: bool,

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
    let archive = if needs_fetching(args, reference) {
        Some(fetch(args, reference)?)
    } else {
        None
    };
    let values = user_values(args).merge(&mut read_file).map_err(text)?;
    let mut warnings = Vec::new();
    let chart = match archive {
        Some(archive) => loader::load_archive(&archive[..], &mut warnings).map_err(text)?,
        None => load(reference, &mut warnings)?,
    };
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

fn user_values(args: &TemplateArgs) -> options::Options {
    options::Options {
        value_files: args.values.clone(),
        json_values: args.set_json.clone(),
        values: args.set.clone(),
        string_values: args.set_string.clone(),
        file_values: args.set_file.clone(),
        literal_values: args.set_literal.clone(),
    }
}

/// A values file, or standard input for `-`; errors read as Go words them.
fn read_file(name: &str) -> Result<Vec<u8>, String> {
    if name.trim() == "-" {
        let mut data = Vec::new();
        std::io::stdin()
            .read_to_end(&mut data)
            .map_err(|error| error.to_string())?;
        return Ok(data);
    }
    std::fs::read(name).map_err(|error| format!("open {name}: {}", loader::io_cause(&error)))
}

fn load(reference: &str, warnings: &mut Vec<Warning>) -> Result<Chart, String> {
    let path = Path::new(reference);
    if !path.exists() {
        return Err(format!(
            "path {} not found",
            golib::strconv::quote(reference)
        ));
    }
    loader::load(path, warnings).map_err(text)
}

fn needs_fetching(args: &TemplateArgs, reference: &str) -> bool {
    let remote = ["oci://", "http://", "https://"];
    !args.repo.is_empty() || remote.iter().any(|scheme| reference.starts_with(scheme))
}

fn fetch(args: &TemplateArgs, reference: &str) -> Result<bytes::Bytes, String> {
    let is_registry = reference.starts_with("oci://");
    let chart = ChartRef {
        repo: if is_registry {
            reference.to_owned()
        } else {
            args.repo.clone()
        },
        chart: if is_registry {
            String::new()
        } else {
            reference.to_owned()
        },
        version: args.version.clone(),
    };
    let ca = match &args.ca_file {
        Some(file) => Some(read_file(&file.display().to_string())?.into()),
        None => None,
    };
    let access = Access {
        credentials: Credentials::new(&args.username, &args.password),
        ca,
        insecure: args.insecure_skip_tls_verify,
        plain_http: args.plain_http,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(text)?;
    let fetcher = Fetcher::new(Settings::from_environment());
    let fetched = runtime.block_on(fetcher.fetch(&chart, &access));
    fetched
        .map(|chart| chart.bytes)
        .map_err(|error| format!("{:#}", anyhow::Error::new(error)))
}
