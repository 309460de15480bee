//! `template [NAME] CHART`: what `helm template` prints, without helm.
//!
//! Mirrors `pkg/cmd/template.go` and `runInstall` of `pkg/cmd/install.go`, in the order in which helm finds
//! fault with its input.

mod cluster;
mod flags;
mod output_dir;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use chart::rendered::{self, RenderOptions, Rendered, RenderedError, Request, ShowOptions};
use chart::values::schema::RemoteSchemas;
use chart::{Capabilities, Chart, KubeVersion, ReleaseInfo, log_text};
use golib::strconv::quote;
use release::storage::{SYSTEM_LABELS, is_system_label};
use serde_json::Value;
use templating::{Dialect, Host, Limits, Renderer, SystemHost, TemplateSet};

use crate::chart_flags::{ChartFlags, Located};
use crate::console::{log, log_warnings, say};
use crate::helm_home::{self, HelmFlags};
use crate::value_flags::ValueFlags;
use crate::{csv, dependencies, pflag};
use cluster::Server;
pub use flags::{InstallFlags, RenderFlags};
use output_dir::OutputDir;

/// Flags of `fleetagent template`; names and meanings are helm's.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TemplateArgs {
    /// Release name, then chart: a directory, an archive, an oci:// reference or other address, NAME/CHART of a
    /// repository configured for helm, or a name with --repo. With one argument the release is called
    /// release-name
    #[arg(num_args = 0.., value_names = ["NAME] [CHART"])]
    pub names: Vec<String>,

    #[command(flatten)]
    pub values: ValueFlags,

    #[command(flatten)]
    pub chart: ChartFlags,

    #[command(flatten)]
    pub render: RenderFlags,

    #[command(flatten)]
    pub helm: HelmFlags,

    #[command(flatten)]
    pub install: InstallFlags,
}

/// Prints what the chart renders to; errors go to standard error as helm words them. `schemas` is asked for what
/// the chart's schemas refer to by address.
pub fn run(args: &TemplateArgs, schemas: &dyn RemoteSchemas) -> ExitCode {
    if let Err(cause) = args.helm.check_color() {
        let cause = log_text(&cause);
        say(&format!("level=WARN msg=\"command failed\" error={cause}"));
        return ExitCode::FAILURE;
    }
    let (output, error) = match template(args, schemas) {
        Ok(output) => (output, None),
        Err(failure) if failure.logged => {
            log("INFO", &failure.message);
            return ExitCode::FAILURE;
        }
        Err(failure) => (failure.output, Some(failure.message)),
    };
    // A reader that has gone away is no reason to hide the exit code.
    std::io::stdout().write_all(output.as_bytes()).ok();
    match error {
        None => ExitCode::SUCCESS,
        Some(message) => {
            say(&format!("Error: {message}"));
            ExitCode::FAILURE
        }
    }
}

/// Why nothing, or only part, was printed.
struct Failure {
    message: String,
    output: String,
    /// Helm logs it and says no more.
    logged: bool,
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self {
            message,
            output: String::new(),
            logged: false,
        }
    }
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

fn template(args: &TemplateArgs, schemas: &dyn RemoteSchemas) -> Result<String, Failure> {
    let (remarks, checked) = args.install.remarks(&args.render);
    if let Some(name) = args
        .render
        .post_renderer
        .iter()
        .find(|name| !name.is_empty())
    {
        return Err(no_post_renderer(name).into());
    }
    for remark in remarks {
        say(&remark);
    }
    HelmFlags::check_driver().map_err(|cause| Failure {
        logged: true,
        ..cause.into()
    })?;
    if args.names.is_empty() {
        let usage = "Usage:  fleetagent template [NAME] [CHART] [flags]";
        let message = "\"fleetagent template\" requires at least 1 argument";
        return Err(format!("{message}\n\n{usage}").into());
    }
    checked?;
    let mut capabilities = Capabilities::default();
    let kube_version = &args.render.kube_version;
    if !kube_version.is_empty() {
        capabilities.kube_version = KubeVersion::parse(kube_version)
            .map_err(|error| format!("invalid kube version '{kube_version}': {error}"))?;
    }
    args.chart.access()?;
    let uses_server = uses_server(&args.render)?;
    let (name, reference) = name_and_chart(args)?;
    let located = args.chart.locate(reference, &args.helm)?;
    let values = args.values.merge().map_err(text)?;
    let chart = load(&located)?;
    rendered::check_type(&chart).map_err(text)?;
    if chart.metadata.deprecated {
        log("WARN", "this chart is deprecated");
    }
    let chart = with_dependencies(args, &located, chart)?;
    let known = capabilities.api_versions.iter().cloned();
    let given = args
        .render
        .api_versions
        .iter()
        .flat_map(|list| csv::list(list).unwrap_or_default());
    capabilities.api_versions = known.chain(given).collect();
    let job = Job {
        args,
        name: &name,
        values: &values,
        schemas,
    };
    if !uses_server {
        let host = NamesHost(args.render.enable_dns);
        let rendered = job.render(chart, &capabilities, &host)?;
        return job.show(rendered);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(text)?;
    let connected = runtime.block_on(Server::connect(&args.helm, args.render.enable_dns));
    let server = connected.inspect_err(|message| log("ERROR", message))?;
    if !args.install.skip_crds && !chart.crds().is_empty() {
        log(
            "WARN",
            "This chart or one of its subcharts contains CRDs. Rendering may fail or contain inaccuracies.",
        );
    }
    // Templates block on lookups: they run on a thread of their own while this one serves them.
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let rendered = std::thread::scope(|threads| {
        threads.spawn(|| {
            let rendered = job.render(chart, &server.capabilities, &server.lookup);
            sender.send(rendered).ok();
        });
        runtime.block_on(receiver)
    });
    let rendered = rendered.map_err(|_| "rendering ended without an answer".to_owned())??;
    runtime.block_on(server.check(&rendered))?;
    job.show(rendered)
}

fn load(located: &Located) -> Result<Chart, String> {
    let mut warnings = chart::Warnings::default();
    let loaded = located.load(&mut warnings);
    log_warnings(&mut warnings);
    loaded
}

/// The chart, loaded again where missing dependencies were downloaded into it.
fn with_dependencies(
    args: &TemplateArgs,
    located: &Located,
    chart: Chart,
) -> Result<Chart, String> {
    if chart.metadata.dependencies.is_empty() {
        return Ok(chart);
    }
    let epoch = dependencies::source_date_epoch()?;
    match rendered::check_dependencies(&chart) {
        Ok(()) => return Ok(chart),
        Err(error) if !args.render.dependency_update => return Err(error.to_string()),
        Err(_) => {}
    }
    let Located::Path(path) = located else {
        return Err(dependencies::NOT_UNPACKED.to_owned());
    };
    dependencies::update(path, &args.chart, &args.helm, epoch)?;
    load(located).map_err(|cause| format!("failed reloading chart after repo update: {cause}"))
}

/// What a chart is rendered with.
struct Job<'a> {
    args: &'a TemplateArgs,
    name: &'a str,
    values: &'a Value,
    schemas: &'a dyn RemoteSchemas,
}

impl Job<'_> {
    fn render(
        &self,
        chart: Chart,
        capabilities: &Capabilities,
        host: &(dyn Host + Sync),
    ) -> Result<Rendered, Failure> {
        let args = self.args;
        let logged = |message: &str, cause: &str| {
            say(&format!(
                "level=ERROR msg={} error={}",
                log_text(message),
                log_text(cause)
            ));
            format!("{message}: {cause}")
        };
        chart::validate_release_name(self.name).map_err(|error| {
            let cause = format!("release name {}: {error}", quote(self.name));
            logged("release name check failed", &cause)
        })?;
        let labels = args.render.labels.iter().flatten();
        let mut release = ReleaseInfo::install(self.name, args.helm.namespace());
        release.is_upgrade = args.render.is_upgrade;
        release.is_install = !args.render.is_upgrade;
        let request = Request {
            schemas: Some(self.schemas),
            options: RenderOptions {
                include_crds: args.render.include_crds,
                skip_schema_validation: args.render.skip_schema_validation,
                ..RenderOptions::default()
            },
            ..Request::new(chart, self.values, &release, capabilities, host)
        };
        let mut warnings = chart::Warnings::default();
        let rendered = rendered::render_and_warn(request, &mut warnings);
        log_warnings(&mut warnings);
        let has_system_label = labels.map(|(key, _)| key).any(|key| is_system_label(key));
        let is_late = rendered
            .as_ref()
            .err()
            .is_none_or(RenderedError::is_from_rendering);
        if has_system_label && is_late {
            return Err(format!(
                "user supplied labels contains system reserved label name. System labels: [{}]",
                SYSTEM_LABELS.join(" ")
            )
            .into());
        }
        if let Err(RenderedError::Dependencies(cause)) = &rendered {
            logged("chart dependencies processing failed", &cause.to_string());
        }
        let show = self.show_options();
        rendered.map_err(|error| failure(args.helm.is_debug(), &show, error))
    }

    fn show_options(&self) -> ShowOptions {
        let flags = &self.args.render;
        ShowOptions {
            no_hooks: flags.no_hooks,
            skip_tests: flags.skip_tests,
            show_only: flags.show_only.clone(),
        }
    }

    fn show(&self, rendered: Rendered) -> Result<String, Failure> {
        let flags = &self.args.render;
        let show = self.show_options();
        if flags.output_dir.is_empty() {
            return Ok(rendered.show(&show).map_err(text)?);
        }
        let release_name = flags.release_name.then_some(self.name);
        let mut folder = OutputDir::new(&flags.output_dir, release_name);
        let written = folder
            .manifests(&rendered, flags.include_crds)
            .map_err(|message| with_hint(self.args.helm.is_debug(), message))
            .and_then(|()| folder.hooks(&rendered, &show));
        let failed = match (written, flags.show_only.first()) {
            (Err(message), _) => Some(message),
            // Everything went into files: there is nothing left to choose from.
            (Ok(()), Some(first)) => Some(format!("could not find template {first} in chart")),
            (Ok(()), None) => None,
        };
        match failed {
            Some(message) => Err(Failure {
                message,
                output: folder.written,
                logged: false,
            }),
            None => {
                folder.written.push('\n');
                Ok(folder.written)
            }
        }
    }
}

fn failure(is_debug: bool, show: &ShowOptions, error: RenderedError) -> Failure {
    let message = error.to_string();
    if !error.is_from_rendering() {
        return message.into();
    }
    if !is_debug {
        return with_hint(is_debug, message).into();
    }
    let rendered = Rendered {
        manifest: match error {
            RenderedError::Sort { output, .. } => output,
            _ => String::new(),
        },
        chart: Chart::default(),
        manifests: Vec::new(),
        hooks: Vec::new(),
        notes: String::new(),
        crds: Vec::new(),
        warnings: chart::Warnings::default(),
    };
    // What is not there among it needs no word besides the error.
    let output = rendered.show(show).unwrap_or_default();
    Failure {
        message,
        output,
        logged: false,
    }
}

fn with_hint(is_debug: bool, message: String) -> String {
    match is_debug {
        true => message,
        false => format!("{message}\n\nUse --debug flag to render out invalid YAML"),
    }
}

/// The system's clock and randomness; host names only where `--enable-dns` says so.
struct NamesHost(bool);

impl Host for NamesHost {
    fn resolve(&self, name: &str) -> Option<Result<Vec<std::net::IpAddr>, templating::Error>> {
        self.0.then(|| templating::resolve_name(name))
    }
}

/// Whether to ask a cluster. Mirrors `cmdGetDryRunFlagStrategy` (`pkg/cmd/helpers.go`).
fn uses_server(flags: &RenderFlags) -> Result<bool, String> {
    if flags.validate == Some(true) {
        return Ok(true);
    }
    match flags.dry_run.as_deref() {
        None | Some("client") => Ok(false),
        Some("server") => Ok(true),
        Some("unset") => {
            log(
                "WARN",
                "--dry-run is deprecated and should be replaced with '--dry-run=client'",
            );
            Ok(false)
        }
        Some(value) => {
            let refused = |known: &str| {
                let value = quote(value);
                format!("invalid dry-run value ({value}). Must be {known}")
            };
            match pflag::boolean(value) {
                _ if value == "none" => Err(refused("\"server\" or \"client\"")),
                Err(_) => Err(refused("\"none\", \"server\", or \"client\"")),
                Ok(false) => Err(refused("\"server\" or \"client\"")),
                Ok(true) => {
                    let message = format!(
                        "boolean '--dry-run={value}' flag is deprecated and must be replaced with '--dry-run=client'"
                    );
                    log("WARN", &message);
                    Ok(false)
                }
            }
        }
    }
}

/// Mirrors `NameAndChart` (`pkg/action/install.go`) as `helm template` calls it.
fn name_and_chart(args: &TemplateArgs) -> Result<(String, &str), String> {
    match args.names.as_slice() {
        [] => Err("expected a chart".to_owned()),
        [_, _, more @ ..] if !more.is_empty() => Err(format!(
            "expected at most two arguments, unexpected arguments: {}",
            more.join(", ")
        )),
        [_, _, ..] if args.render.generate_name => {
            Err("cannot set --generate-name and also specify a name".to_owned())
        }
        [_, _, ..] if !args.render.name_template.is_empty() => {
            Err("cannot set --name-template and also specify a name".to_owned())
        }
        [name, chart, ..] => Ok((name.clone(), chart)),
        [chart] if !args.render.name_template.is_empty() => {
            Ok((template_name(&args.render.name_template)?, chart))
        }
        [chart] => Ok(("release-name".to_owned(), chart)),
    }
}

/// `--name-template`: Go's functions and Sprig, without those that read the environment.
fn template_name(text: &str) -> Result<String, String> {
    const NAME: &str = "name-template";
    let mut set = TemplateSet::new(NAME, Dialect::Fleet.functions());
    set.parse(NAME, text).map_err(|error| error.to_string())?;
    let dot = templating::Value::from(&Value::Null);
    let rendered = Renderer::new(Arc::new(set), &SystemHost, Limits::default()).render(NAME, &dot);
    let rendered = rendered.map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&rendered).into_owned())
}

fn no_post_renderer(name: &str) -> String {
    if helm_home::has_plugin(name) {
        return format!("--post-renderer {name} is not supported: plugins of helm are not run");
    }
    format!(
        "invalid argument {} for \"--post-renderer\" flag: plugin: {{Name:{name} Type:postrenderer/v1}} not found",
        quote(name)
    )
}

#[cfg(test)]
mod tests {
    use super::template_name;

    #[test]
    fn a_name_template_reads_neither_environment_nor_network() {
        assert_eq!(template_name("a-{{ upper \"b\" }}").unwrap(), "a-B");
        for function in ["env", "expandenv", "getHostByName"] {
            let error = template_name(&format!("{{{{ {function} \"HOME\" }}}}")).unwrap_err();
            let expected = format!("function \"{function}\" not defined");
            assert!(error.ends_with(&expected), "{error}");
        }
    }
}
