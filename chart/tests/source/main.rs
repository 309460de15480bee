//! Fetching from real sockets on the loopback interface.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod changes;
mod disk;
mod faults;
mod hosts;
mod logins;
mod registry;
mod repository;
mod schemas;
mod server;
mod signatures;

use std::io::Write as _;
use std::time::Duration;

use chart::source::{ChartRef, FetchError, Fetcher, Settings};
use flate2::Compression;
use flate2::write::GzEncoder;

/// Settings that do not wait.
fn settings() -> Settings {
    Settings {
        retry_pause: Duration::from_millis(1),
        ..Settings::default()
    }
}

fn fetcher() -> Fetcher {
    Fetcher::new(settings())
}

fn reference(repo: &str, chart: &str, version: &str) -> ChartRef {
    ChartRef {
        repo: repo.into(),
        chart: chart.into(),
        version: version.into(),
    }
}

/// A gzip archive whose bytes depend on `name`.
fn archive(name: &str) -> Vec<u8> {
    let mut writer = GzEncoder::new(Vec::new(), Compression::fast());
    writer.write_all(name.repeat(500).as_bytes()).unwrap();
    writer.finish().unwrap()
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The error and its causes as one line, as people see it.
fn chain(error: &FetchError) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
