//! Logging: JSON lines, which are the stock agent's default too, though with other keys; or text for people.
//!
//! Values, Secrets and request bodies reach no line of ours: [`logging`] takes what is public, by type. Libraries are kept from theirs
//! whatever level is asked for; the HTTP client is silent unless asked, because its spans name every
//! URL, and its failures come back to us as errors.

use std::any::Any;
use std::io;

use tracing_subscriber::filter::{FilterExt as _, LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::config::{Encoder, LogOptions};
use crate::public;
use crate::public::{Name, PublicText};

/// Overrides the filter wholesale, in `tracing`'s directive syntax.
const FILTER_VARIABLE: &str = "FLEET_AGENT_LOG";

/// Installs the process's subscriber, writing to standard error. A second call does nothing.
pub fn init(options: &LogOptions) {
    let written = std::env::var(FILTER_VARIABLE).unwrap_or_default();
    let desired = directives(&written);
    let is_refused = desired.is_none() && !written.is_empty();
    let filter = desired
        .unwrap_or_else(|| filter(options.level))
        .and(library_limits());
    // A log that cannot be written (a full disk, a closed pipe) is lost; saying so on the same stream would panic.
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(|| OneLine(io::stderr()))
        .log_internal_errors(false);
    std::panic::set_hook(Box::new(|panicked| {
        let place = panicked.location().map(ToString::to_string);
        let place = place.unwrap_or_default();
        logging::error!(place = Name(&place), "{}", panic_text(panicked.payload()));
    }));
    // An error means a subscriber is there already (tests); then its owner decides.
    match options.encoder {
        Encoder::Json => {
            let layer = layer.json().flatten_event(true).with_filter(filter);
            tracing_subscriber::registry().with(layer).try_init().ok()
        }
        Encoder::Console => {
            let layer = layer.with_ansi(false).with_filter(filter);
            tracing_subscriber::registry().with(layer).try_init().ok()
        }
    };
    if is_refused {
        logging::warn!("{} cannot be read and is left out", FILTER_VARIABLE);
    }
}

/// The filter that somebody wrote; nothing where nobody did, or it cannot be read. An empty one would be silent below errors.
fn directives(written: &str) -> Option<EnvFilter> {
    let is_written = !written.trim().is_empty();
    is_written.then(|| EnvFilter::try_new(written).ok())?
}

/// Writes what it gets at once as one line: an error may quote line breaks, and what follows them would look like a line of ours.
struct OneLine<W>(W);

impl<W: io::Write> io::Write for OneLine<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let (text, end) = match line.strip_suffix(b"\n") {
            Some(text) => (text, &b"\n"[..]),
            None => (line, &b""[..]),
        };
        if text.iter().all(|byte| !matches!(byte, b'\n' | b'\r')) {
            self.0.write_all(line)?;
            return Ok(line.len());
        }
        let mut written = Vec::with_capacity(line.len() + 16);
        for byte in text {
            match byte {
                b'\n' => written.extend(b"\\n"),
                b'\r' => written.extend(b"\\r"),
                byte => written.push(*byte),
            }
        }
        written.extend(end);
        self.0.write_all(&written)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The publishable part of a panic's message: the program's own words, without inserted values, which may quote anything.
fn panic_text(payload: &(dyn Any + Send)) -> PublicText {
    match payload.downcast_ref::<&'static str>() {
        Some(words) => public!("panicked: {}", *words),
        None => "panicked".into(),
    }
}

/// The most verbose level of each library, whatever was asked for: beyond it they print bodies, headers and
/// frames. kube's client quotes a body it cannot decode as a warning.
fn library_limits() -> Targets {
    Targets::new()
        .with_default(LevelFilter::TRACE)
        .with_target("kube_client", LevelFilter::DEBUG)
        .with_target("kube_client::client", LevelFilter::OFF)
        .with_target("kube_client::client::builder", LevelFilter::DEBUG)
        .with_targets(
            ["kube_runtime", "tower", "tower_http"].map(|target| (target, LevelFilter::DEBUG)),
        )
        .with_targets(
            ["hyper", "hyper_util", "h2", "rustls", "reqwest"]
                .map(|target| (target, LevelFilter::INFO)),
        )
}

fn filter(level: logging::Level) -> EnvFilter {
    if level == logging::Level::TRACE {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_filter_is_none_and_a_bad_one_is_left_out() {
        assert!(directives("").is_none() && directives(" ").is_none());
        assert!(directives("agent=debug").is_some());
        assert!(directives("agent=loudly").is_none());
    }

    #[test]
    fn an_error_with_line_breaks_is_one_line() {
        let mut written = OneLine(Vec::new());
        for line in ["INFO plain\n", "ERROR first\r\n2026 INFO faked\n"] {
            io::Write::write_all(&mut written, line.as_bytes()).unwrap();
        }
        let want = "INFO plain\nERROR first\\r\\n2026 INFO faked\n";
        assert_eq!(String::from_utf8(written.0).unwrap(), want);
    }

    #[test]
    fn a_panic_quotes_nothing() {
        let quoting = std::panic::catch_unwind(|| {
            let canary = "canary".to_owned();
            std::panic::panic_any(format!("byte index 9 is out of bounds of `{canary}`"))
        });
        assert_eq!(panic_text(&*quoting.unwrap_err()), "panicked");
        let plain: Box<dyn Any + Send> = Box::new("no such state");
        assert_eq!(panic_text(&*plain), "panicked: no such state");
    }
}
