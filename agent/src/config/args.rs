//! Flags of the agent, as Fleet's spells them.
//!
//! Mirrors `internal/cmd/agent/root.go` and `internal/cmd/builder.go`; `--zap-…` are the flags of
//! controller-runtime's logger.

use std::path::PathBuf;

use golib::strconv::{NumError, parse_bool};

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
          default_missing_value = "true", value_parser = boolean, value_name = "BOOL")]
    pub leader_elect: bool,

    /// Turn on debug logging, unless FLEET_AGENT_LOG says what to log
    #[arg(long, default_value = "false", hide_default_value = true, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", value_parser = boolean,
          value_name = "BOOL")]
    pub debug: bool,

    /// With --debug: how much to log; above 0 includes requests to the API servers
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub debug_level: i64,

    /// Kubeconfig of the cluster the agent deploys to; without one the pod's own account [env: KUBECONFIG]
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,

    /// Same as --debug
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_parser = boolean, value_name = "BOOL")]
    pub zap_devel: Option<bool>,

    /// Log encoding: json or console
    #[arg(long, value_parser = zap_encoder)]
    pub zap_encoder: Option<Encoder>,

    /// Log level: debug, info, error, panic, or a number above 0
    #[arg(long, value_parser = zap_level)]
    pub zap_log_level: Option<logging::Level>,

    /// Accepted and ignored: errors carry their causes instead of stack traces
    #[arg(long)]
    pub zap_stacktrace_level: Option<String>,

    /// Accepted and ignored: times are RFC 3339
    #[arg(long)]
    pub zap_time_encoding: Option<String>,
}

impl AgentArgs {
    /// The log options that the flags give.
    pub(crate) fn log_options(&self) -> LogOptions {
        let debug = self.debug || self.zap_devel == Some(true);
        let default_level = match (debug, self.debug_level) {
            (false, _) => logging::Level::INFO,
            (true, ..=0) => logging::Level::DEBUG,
            (true, _) => logging::Level::TRACE,
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

fn boolean(text: &str) -> Result<bool, NumError> {
    parse_bool(text)
}

fn zap_encoder(text: &str) -> Result<Encoder, String> {
    match text {
        "json" => Ok(Encoder::Json),
        "console" => Ok(Encoder::Console),
        _ => Err(format!("invalid encoder value \"{text}\"")),
    }
}

fn zap_level(text: &str) -> Result<logging::Level, String> {
    match text.to_lowercase().as_str() {
        "debug" => Ok(logging::Level::DEBUG),
        "info" => Ok(logging::Level::INFO),
        "error" | "panic" => Ok(logging::Level::ERROR),
        number => match number.parse::<u8>() {
            Ok(1) => Ok(logging::Level::DEBUG),
            Ok(2..) => Ok(logging::Level::TRACE),
            _ => Err(format!("invalid log level \"{text}\"")),
        },
    }
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoder {
    /// One JSON object per line.
    Json,
    /// Text.
    Console,
}

/// Log level and format.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    pub level: logging::Level,
    pub encoder: Encoder,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    #[command(args_override_self = true)]
    struct Cli {
        #[command(flatten)]
        agent: AgentArgs,
    }

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
    fn boolean_flags_are_read_as_go_reads_them() {
        assert!(!parse(&["--leader-elect=false"]).unwrap().leader_elect);
        assert!(!parse(&["--leader-elect=0"]).unwrap().leader_elect);
        assert!(parse(&["--leader-elect"]).unwrap().leader_elect);
        assert!(parse(&["--leader-elect=no"]).is_err());
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
            (Encoder::Json, logging::Level::TRACE)
        );
        assert!(parse(&["--zap-encoder=xml"]).is_err());
    }
}
