//! The command line: flags as Fleet's agent spells them, environment fallbacks, exit codes.
//!
//! Without a subcommand the binary is the agent. Mirrors `internal/cmd/agent/root.go` and
//! `internal/cmd/builder.go`: a flag that is empty yields to its environment variable, unknown
//! flags and every start-up failure exit with 1.

pub mod address;
pub mod chart_flags;
pub mod console;
pub mod dependencies;
pub mod fetch_errors;
pub mod helm_home;
mod logins;
pub mod pflag;
pub mod repositories;
pub mod template;
pub mod value_flags;
pub mod values;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};

use crate::config::{Environment, Settings};
use crate::telemetry::{self, Encoder, LogOptions};

/// Rancher Fleet's downstream agent.
#[derive(Debug, Parser)]
#[command(name = "fleetagent", version, args_override_self = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,

    #[command(flatten)]
    pub agent: AgentArgs,
}

/// What else the binary can do.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Render a chart as helm template does, without a cluster
    Template(Box<template::TemplateArgs>),
    /// Show the values a cluster gets: before and after `${ }` templating, and where each comes from
    Values(Box<values::ValuesArgs>),
}

/// Flags of the agent itself.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct AgentArgs {
    /// System namespace: the namespace the agent runs in, e.g. cattle-fleet-system [env: NAMESPACE]
    #[arg(long, default_value = "", hide_default_value = true)]
    pub namespace: String,

    /// Identifier that scopes the agent's bundle IDs, typically its namespace [env: AGENT_SCOPE]
    #[arg(long, default_value = "", hide_default_value = true)]
    pub agent_scope: String,

    /// How often to report the cluster's status, as a Go duration [env: CHECKIN_INTERVAL]
    #[arg(long, default_value = "", hide_default_value = true)]
    pub checkin_interval: String,

    /// Let only one agent act at a time
    #[arg(long, default_value = "true", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = go_bool, value_name = "BOOL")]
    pub leader_elect: bool,

    /// Turn on debug logging
    #[arg(long, default_value = "false", hide_default_value = true, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", value_parser = go_bool,
          value_name = "BOOL")]
    pub debug: bool,

    /// With --debug: how much to log; above 0 includes requests to the API servers
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub debug_level: i64,

    /// Kubeconfig of the cluster the agent deploys to
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,

    /// Same as --debug
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_parser = go_bool, value_name = "BOOL")]
    pub zap_devel: Option<bool>,

    /// Log encoding: json or console
    #[arg(long, value_parser = zap_encoder)]
    pub zap_encoder: Option<Encoder>,

    /// Log level: debug, info, error, panic, or a number above 0
    #[arg(long, value_parser = zap_level)]
    pub zap_log_level: Option<tracing::Level>,

    /// Accepted and ignored: errors carry their causes instead of stack traces
    #[arg(long)]
    pub zap_stacktrace_level: Option<String>,

    /// Accepted and ignored: times are RFC 3339
    #[arg(long)]
    pub zap_time_encoding: Option<String>,
}

impl AgentArgs {
    fn log_options(&self) -> LogOptions {
        let debug = self.debug || self.zap_devel == Some(true);
        let default_level = match (debug, self.debug_level) {
            (false, _) => tracing::Level::INFO,
            (true, ..=0) => tracing::Level::DEBUG,
            (true, _) => tracing::Level::TRACE,
        };
        LogOptions {
            level: self.zap_log_level.unwrap_or(default_level),
            encoder: self.zap_encoder.unwrap_or(if debug {
                Encoder::Console
            } else {
                Encoder::Json
            }),
        }
    }
}

/// Parses a command line, runs it to its end and tells the exit code.
///
/// 0 after a requested termination, `--help` or `--version`; 1 for everything else.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let is_command = args.get(1).is_some_and(|name| {
        let names = ["template", "values"];
        names.iter().any(|known| name == known)
    });
    let arguments: Vec<String> = args
        .iter()
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let matches = pflag::command(Cli::command()).try_get_matches_from(args);
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            let message = pflag::message(&error, &arguments);
            if let Some(message) = message.filter(|_| is_command) {
                writeln!(std::io::stderr(), "Error: {message}").ok();
                return ExitCode::FAILURE;
            }
            let failed = error.use_stderr();
            // The stream being closed is no reason to hide the exit code.
            error.print().ok();
            return if failed {
                ExitCode::FAILURE
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    match &cli.command {
        Some(Command::Template(args)) => return template::run(args),
        Some(Command::Values(args)) => return values::run(args),
        None => {}
    }
    match run_agent(&cli.agent) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            writeln!(std::io::stderr(), "Error: {error:#}").ok();
            ExitCode::FAILURE
        }
    }
}

fn run_agent(args: &AgentArgs) -> anyhow::Result<()> {
    telemetry::init(&args.log_options());
    let settings = Settings::new(args, &Environment::of_process())?;
    crate::run::run(settings)
}

/// What Go's `strconv.ParseBool` takes.
fn go_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("not a boolean".into()),
    }
}

fn zap_encoder(text: &str) -> Result<Encoder, String> {
    match text {
        "json" => Ok(Encoder::Json),
        "console" => Ok(Encoder::Console),
        _ => Err(format!("invalid encoder value \"{text}\"")),
    }
}

fn zap_level(text: &str) -> Result<tracing::Level, String> {
    match text.to_lowercase().as_str() {
        "debug" => Ok(tracing::Level::DEBUG),
        "info" => Ok(tracing::Level::INFO),
        "error" | "panic" => Ok(tracing::Level::ERROR),
        number => match number.parse::<u8>() {
            Ok(1) => Ok(tracing::Level::DEBUG),
            Ok(2..) => Ok(tracing::Level::TRACE),
            _ => Err(format!("invalid log level \"{text}\"")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<AgentArgs, clap::Error> {
        Cli::try_parse_from([&["fleetagent"], args].concat()).map(|cli| cli.agent)
    }

    #[test]
    fn stock_deployments_parse() {
        let args = parse(&["--debug", "--debug-level", "5"]).unwrap();
        assert!(args.debug && args.leader_elect);
        assert_eq!(args.debug_level, 5);
        let args = parse(&[]).unwrap();
        assert!(!args.debug && args.leader_elect);
        assert_eq!(args.log_options().encoder, Encoder::Json);
    }

    #[test]
    fn booleans_are_gos() {
        assert!(!parse(&["--leader-elect=false"]).unwrap().leader_elect);
        assert!(!parse(&["--leader-elect=0"]).unwrap().leader_elect);
        assert!(parse(&["--leader-elect"]).unwrap().leader_elect);
        assert!(parse(&["--leader-elect=no"]).is_err());
    }

    #[test]
    fn the_last_of_a_repeated_flag_wins() {
        assert_eq!(
            parse(&["--namespace", "a", "--namespace=b"])
                .unwrap()
                .namespace,
            "b"
        );
    }

    #[test]
    fn zap_flags_are_accepted_and_checked() {
        let args = parse(&[
            "--zap-devel",
            "--zap-encoder=json",
            "--zap-log-level=3",
            "--zap-stacktrace-level=error",
            "--zap-time-encoding=rfc3339",
        ])
        .unwrap();
        let log = args.log_options();
        assert_eq!(
            (log.encoder, log.level),
            (Encoder::Json, tracing::Level::TRACE)
        );
        assert!(parse(&["--zap-encoder=xml"]).is_err());
    }

    #[test]
    fn unknown_flags_and_arguments_are_errors() {
        assert!(parse(&["--no-such-flag"]).is_err());
        assert!(parse(&["surplus"]).is_err());
        assert_eq!(
            main(["fleetagent".into(), "--version".into()]),
            ExitCode::SUCCESS
        );
        assert_eq!(
            main(["fleetagent".into(), "--nope".into()]),
            ExitCode::FAILURE
        );
    }
}
