//! The command line: which command runs, and its exit code.
//!
//! Without a subcommand the binary is the agent, whose flags are [`AgentArgs`]. As with Fleet's agent
//! (`internal/cmd/agent/root.go`), unknown flags and every start-up failure exit with 1.

pub mod kustomize;
pub mod values;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand as _};
use helmcli::{pflag, template};

use crate::config::{AgentArgs, Environment, Settings, fetches_schemas};
use crate::error;
use crate::process::telemetry;
use crate::schemas::Schemas;

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
    /// Render a chart as helm template does; asks no cluster unless --dry-run=server
    Template(Box<template::TemplateArgs>),
    /// Build a directory as kustomize build does; nothing is fetched and no plugin run
    Kustomize(kustomize::KustomizeArgs),
    /// Show the values a cluster gets: before and after `${ }` templating, and where each comes from
    Values(Box<values::ValuesArgs>),
}

/// Parses a command line, runs it to its end and returns the exit code.
///
/// 0 after a requested termination, `--help` or `--version`; 1 for everything else.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let first = args.get(1).and_then(|name| name.to_str());
    let is_command = first.is_some_and(Command::has_subcommand);
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
        Some(Command::Template(args)) => {
            let schemas = Schemas::new(fetches_schemas(&Environment::of_process()));
            return template::run(args, &schemas);
        }
        Some(Command::Kustomize(args)) => return kustomize::run(args),
        Some(Command::Values(args)) => return values::run(args),
        None => {}
    }
    match run_agent(&cli.agent) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            writeln!(std::io::stderr(), "Error: {}", error::chain(error.as_ref())).ok();
            ExitCode::FAILURE
        }
    }
}

fn run_agent(args: &AgentArgs) -> anyhow::Result<()> {
    telemetry::init(&args.log_options());
    let settings = Settings::new(args, &Environment::of_process())?;
    crate::process::run::run(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<AgentArgs, clap::Error> {
        Cli::try_parse_from([&["fleetagent"], args].concat()).map(|cli| cli.agent)
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
