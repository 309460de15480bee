//! Logging: JSON lines as the stock agent writes by default, or text for people.
//!
//! Values, Secrets and request bodies never reach a log call; the HTTP client is kept at warnings
//! unless asked for, because its spans name every URL; what it
//! fails at, we tell ourselves.

use std::io;

use tracing_subscriber::EnvFilter;

/// Overrides the filter wholesale, in `tracing`'s directive syntax.
const FILTER_VARIABLE: &str = "FLEET_AGENT_LOG";

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoder {
    /// One JSON object per line.
    Json,
    /// Text.
    Console,
}

/// What to log and how.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    pub level: tracing::Level,
    pub encoder: Encoder,
}

/// Installs the process's subscriber, writing to standard error. A second call does nothing.
pub fn init(options: &LogOptions) {
    let filter = EnvFilter::try_from_env(FILTER_VARIABLE).unwrap_or_else(|_| filter(options.level));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    // An error means a subscriber is there already (tests); then its owner decides.
    match options.encoder {
        Encoder::Json => builder.json().flatten_event(true).try_init().ok(),
        Encoder::Console => builder.with_ansi(false).try_init().ok(),
    };
}

fn filter(level: tracing::Level) -> EnvFilter {
    if level == tracing::Level::TRACE {
        // Never trace: the client's trace events may quote bodies.
        EnvFilter::new(
            "trace,kube_client=debug,kube_runtime=debug,hyper=info,hyper_util=info,\
                        h2=info,rustls=info,tower=info,reqwest=info",
        )
    } else {
        EnvFilter::new(format!(
            "{level},kube_client=off,kube_runtime=error,hyper=warn,hyper_util=warn,h2=warn,\
             rustls=warn,tower=warn,reqwest=warn"
        ))
    }
}
